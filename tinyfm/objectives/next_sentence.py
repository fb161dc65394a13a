"""How texts are cut for pretraining: BERT's pairs of segments, RoBERTa's rows of sentences.

A document is a list of sentences, a sentence a list of token ids.  BERT is also asked whether its
second segment follows its first one in the text; RoBERTa is not, and so needs no pairs.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from tinyfm.errors import InputError

logger = logging.getLogger(__name__)

Sentence = Sequence[int]
Document = Sequence[Sentence]


class SentencePair(NamedTuple):
    """Two segments without special tokens; label 0: b follows a, 1: b is from elsewhere."""

    a: list[int]
    b: list[int]
    label: int


def next_sentence_pairs(
    documents: Iterable[Document],
    rng: np.random.Generator,
    max_tokens: int,
    short_prob: float = 0.1,
) -> Iterator[SentencePair]:
    """One pass over the documents in pairs of segments (Devlin et al. 2018, 3.1 and appendix A.2).

    Sentences are gathered until they fill the target length, and are split between two of them into
    a and the rest. In half of the cases the rest is b; in the others b begins anywhere in another
    document, and the rest is gathered again for the pair that comes next. What goes beyond
    `max_tokens` is cut from the longer segment, a token at a time from its beginning or its end.

    max_tokens  of a pair, with the three special tokens of [CLS] a [SEP] b [SEP]
    short_prob  how often a document is cut for a random target length from 2 on, so that short
                texts are known too

    A single sentence, as at the end of a document, has no rest, and its b is always a random one:
    label 1 takes more than half, the more so the shorter the documents are. Each document takes
    part as `a` once in a pass; another pass, with the same generator, cuts other pairs.

    The original takes a random document up to ten times until it is another one, and may fail;
    here b with label 1 always comes from another document. So with a single document there is
    only label 0, and a sentence that is left over is left out. Where all documents have one
    sentence there is only label 1; a warning of the logger `tinyfm.objectives.next_sentence` says
    so. Empty sentences and documents do not count.

    Raises InputError when no pair can be made: no sentences, or a single one. Raises ValueError for
    `max_tokens` below 5 and for a probability out of range.
    """
    if max_tokens < 5:
        raise ValueError(
            f"next_sentence_pairs: max_tokens is {max_tokens}; three special tokens and a token on "
            "each side need 5"
        )
    if not 0 <= short_prob <= 1:
        raise ValueError(f"next_sentence_pairs: short_prob is {short_prob}; it is a probability")
    full = [document for d in documents if (document := [s for s in d if len(s)])]
    longest = max(map(len, full), default=0)
    if len(full) < 2 and longest < 2:
        raise InputError(
            f"a corpus of {longest} sentence{'s' * (longest != 1)} has no pairs; give two at least"
        )
    if longest == 1:
        logger.warning(
            "all %d documents have one sentence, so that none has a next one: every pair gets "
            "label 1; blank lines belong between documents only",
            len(full),
        )
    return _pairs(full, rng, max_tokens - 3, short_prob)


def _pairs(
    documents: Sequence[Document], rng: np.random.Generator, budget: int, short_prob: float
) -> Iterator[SentencePair]:
    alone = len(documents) == 1
    fewest = 2 if alone else 1  # sentences in a chunk
    for index, document in enumerate(documents):
        short = rng.random() < short_prob
        target = int(rng.integers(2, budget, endpoint=True)) if short else budget
        start = 0
        while start + fewest <= len(document):
            end = _chunk_end(document, start, target, fewest)
            split = start + 1 if end == start + 1 else int(rng.integers(start + 1, end))
            a = _joined(document[start:split])
            if split == end or (not alone and rng.random() < 0.5):
                other = int(rng.integers(len(documents) - 1))
                other += other >= index  # any but this one
                b, label = _excerpt(documents[other], target - len(a), rng), 1
                start = split  # the sentences from here on are unused as yet
            else:
                b, label = _joined(document[split:end]), 0
                start = end
            # The longer side gives way, and b where both are equal: what is left to a.
            length = min(len(a), max(budget - len(b), (budget + 1) // 2))
            yield SentencePair(_trim(a, length, rng), _trim(b, budget - length, rng), label)


def _chunk_end(document: Document, start: int, target: int, fewest: int) -> int:
    """Where the sentences from `start` reach `target` tokens, or the document's end."""
    length = 0
    for end in range(start + 1, len(document) + 1):
        length += len(document[end - 1])
        if length >= target and end - start >= fewest:
            return end
    return len(document)


def _excerpt(document: Document, length: int, rng: np.random.Generator) -> list[int]:
    """Sentences from a random one on, until they have `length` tokens or the document ends."""
    start = int(rng.integers(len(document)))
    return _joined(document[start : _chunk_end(document, start, length, fewest=1)])


def _joined(sentences: Iterable[Sentence]) -> list[int]:
    return list(chain.from_iterable(sentences))


def _trim(tokens: list[int], length: int, rng: np.random.Generator) -> list[int]:
    """At most `length` tokens: every one too many falls off the front or the back by chance."""
    if len(tokens) <= length:
        return tokens
    front = int(rng.binomial(len(tokens) - length, 0.5))
    return tokens[front : front + length]


def full_sentences(
    documents: Iterable[Document], max_tokens: int, separator: Sequence[int] = ()
) -> Iterator[list[int]]:
    """RoBERTa's FULL-SENTENCES (Liu et al. 2019, section 4.2): rows of contiguous whole sentences.

    A row takes sentences as long as they fit into `max_tokens`, which counts neither <s> nor </s>.
    It may run from one document into the next, with `separator` between them. A sentence that is
    longer than a row is cut into rows, so that no token is lost.

    Raises ValueError for `max_tokens` below 1.
    """
    if max_tokens < 1:
        raise ValueError(f"full_sentences: max_tokens is {max_tokens}; give 1 or more")
    return _rows(documents, max_tokens, list(separator))


def _rows(
    documents: Iterable[Document], max_tokens: int, separator: list[int]
) -> Iterator[list[int]]:
    row: list[int] = []
    for document in documents:
        gap = separator if row else []
        for sentence in document:
            for start in range(0, len(sentence), max_tokens):
                piece = list(sentence[start : start + max_tokens])
                if row and len(row) + len(gap) + len(piece) > max_tokens:
                    yield row
                    row, gap = [], []
                row, gap = row + gap + piece, []
    if row:
        yield row
