"""How denoise learns: texts of whole sentences, their noise, the model, and what is scored.

A text has as many sentences of one document as fit, and is spoilt anew each time that it is seen.
For the scores each held-out text is spoilt once, by text infilling, whatever was learnt from: so
models that were trained with different noises take the same test.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyfm import models
from tinyfm.backend import to_numpy
from tinyfm.data import Batch, Example, collate_examples
from tinyfm.demos import modelling
from tinyfm.demos.documents import Document
from tinyfm.demos.modelling import check_heads, outputs, vocabulary
from tinyfm.objectives import TextTokens, denoise, infilling_spans, text_infilling, text_tokens
from tinyfm.tokenizer import Tokenizer

DEFAULT = ["permute", "infill"]  # the paper's choice among objectives.denoising.NOISES
LEAST = 4  # tokens of a text: <s>, two of which one can tell the other, </s>


# -- vocabulary and model --------------------------------------------------------------------------


def new_tokenizer(args: argparse.Namespace, texts: Iterable[str]) -> Tokenizer:
    """A vocabulary learnt from the texts; with --resume the one of the training that goes on."""
    return vocabulary(args, lambda: Tokenizer.train_byte_level(texts, args.vocab_size, bart=True))


def new_model(
    args: argparse.Namespace, tokenizer: Tokenizer
) -> models.BartForConditionalGeneration:
    """A BART of the sizes in args, with random weights."""
    check_heads(args)
    sides: dict[str, Any] = {}
    for side in ("encoder", "decoder"):
        sides[f"{side}_layers"] = args.layers
        sides[f"{side}_attention_heads"] = args.heads
        sides[f"{side}_ffn_dim"] = args.ffn
    config = models.BartConfig(
        vocab_size=len(tokenizer),
        d_model=args.hidden_size,
        init_std=args.hidden_size**-0.5,  # a projection keeps the size of what it projects
        dropout=args.dropout,
        max_position_embeddings=args.max_length,
        pad_token_id=tokenizer.pad_id,
        bos_token_id=tokenizer.bos_id,
        eos_token_id=tokenizer.eos_id,
        decoder_start_token_id=tokenizer.eos_id,
        forced_bos_token_id=tokenizer.bos_id,
        forced_eos_token_id=tokenizer.eos_id,
        **sides,
    )
    return modelling.new_model(models.BartForConditionalGeneration, config)


# -- texts and noise -------------------------------------------------------------------------------


def whole_sentences(
    documents: Iterable[Document], tokenizer: Tokenizer, max_length: int
) -> list[TextTokens]:
    """Texts of at most max_length tokens, with <s> and </s>; a longer sentence loses its end.

    Texts of a single token, in which nothing could be told, are left out.
    """
    room = max_length - 2
    texts: list[str] = []
    for document in documents:
        size = room  # so that the first sentence begins a text
        parts = [f" {sentence}" for sentence in document]
        for part, ids in zip(parts, tokenizer.encode_batch(parts), strict=True):
            length = len(ids) - 2
            if size + length > room:
                texts.append("")
                size = 0
            texts[-1] += part
            size += length
    found = (text_tokens(text.strip(), tokenizer) for text in texts)
    return [
        TextTokens(ids[:room], starts[:room], ends) for ids, starts, ends in found if len(ids) > 1
    ]


def framed(spoilt: np.ndarray, ids: np.ndarray, tokenizer: Tokenizer) -> Example:
    """What is left of a text, and the text, both between <s> and </s>.

    With the masks of empty spans what is left may be longer than the text; then its end is cut off.
    """
    bos, eos = [tokenizer.bos_id], [tokenizer.eos_id]
    return {
        "input_ids": np.concatenate([bos, spoilt[: len(ids)], eos]),
        "labels": np.concatenate([bos, ids, eos]),
    }


class Spoil:
    """Spoils whole texts by some noises, those of `texts` one by one or all of a batch.

    A batch of them becomes the batch that a model learns from: `change` of ExampleBatches.
    """

    def __init__(
        self, texts: Sequence[TextTokens], tokenizer: Tokenizer, noises: Sequence[str]
    ) -> None:
        self.tokenizer, self.noises = tokenizer, noises
        self.sentence_end_ids = set().union(*(text.sentence_end_ids for text in texts))
        # In which nothing is spoilt yet.
        self.whole = [{"input_ids": t.ids, "word_starts": t.word_starts} for t in texts]

    def __call__(self, batch: Batch, rng: np.random.Generator) -> Batch:
        fields = (batch[name] for name in ("input_ids", "word_starts", "attention_mask"))
        rows = zip(*fields, strict=True)
        examples = [
            self.spoilt(ids[seen == 1], starts[seen == 1], rng) for ids, starts, seen in rows
        ]
        return collate_examples(examples, self.tokenizer.pad_id)

    def spoilt(self, ids: np.ndarray, word_starts: np.ndarray, rng: np.random.Generator) -> Example:
        """An example of one text."""
        mask, ends = self.tokenizer.mask_id, self.sentence_end_ids
        left = denoise(ids, mask, ends, rng, self.noises, word_starts=word_starts)
        return framed(left, ids, self.tokenizer)

    def once(self, seed: int = 0) -> list[Example]:
        """All texts, spoilt for good."""
        rng = np.random.default_rng(seed)
        return [self.spoilt(text["input_ids"], text["word_starts"], rng) for text in self.whole]


# -- scores ----------------------------------------------------------------------------------------


def new_test(texts: Sequence[TextTokens], tokenizer: Tokenizer, seed: int = 0) -> list[Example]:
    """Texts with spans hidden once and for all; `hidden`: 1 at each label of which this is true."""
    rng = np.random.default_rng(seed)
    tests: list[Example] = []
    for ids, starts, _ in texts:
        spans = infilling_spans(starts, rng)
        spoilt = text_infilling(ids, tokenizer.mask_id, None, spans=spans)
        hidden = np.zeros(len(ids) + 2, np.int64)
        for start, end in spans:
            hidden[start + 1 : end + 1] = 1  # after <s>
        tests.append({**framed(spoilt, ids, tokenizer), "hidden": hidden})
    return tests


class Scores(NamedTuple):
    """On `new_test`: the mean loss; the shares of all tokens, of hidden tokens and of spans right.

    spans: how many there are.
    """

    loss: float
    tokens: float
    hidden: float
    restored: float
    spans: int

    def __str__(self) -> str:
        return (
            f"loss {self.loss:.3f}, tokens right {self.tokens:.1%}, hidden ones {self.hidden:.1%}, "
            f"restored spans {self.restored:.1%} of {self.spans}"
        )


def score(model: Any, tests: Sequence[Example]) -> Scores:
    """How well a model restores texts.

    Each time the model has the true text before it, and says its most probable token. A span is
    restored if the model writes all that was hidden there, and then goes on with what follows it:
    what it would write there by itself, and neither more nor less.
    """
    loss = 0.0
    right: list[np.ndarray] = []
    hidden: list[np.ndarray] = []
    texts = [{name: e[name] for name in ("input_ids", "labels")} for e in tests]
    for indexes, batch, output in outputs(model, texts):
        loss += output.loss.item() * output.num_labels
        hits = to_numpy(output.logits.data).argmax(-1) == batch["labels"]
        for i, row in zip(indexes, hits, strict=True):
            hidden.append(tests[i]["hidden"] == 1)
            right.append(row[: len(hidden[-1])])
    spans = [hit for pair in zip(right, hidden, strict=True) for hit in restored(*pair)]
    all_right, all_hidden = np.concatenate(right), np.concatenate(hidden)
    return Scores(
        loss / len(all_right),
        float(all_right.mean()),
        float(all_right[all_hidden].mean()),
        float(np.mean(spans)),
        len(spans),
    )


def restored(right: np.ndarray, hidden: np.ndarray) -> list[bool]:
    """Of each run of hidden tokens whether it and the token after it are right: (T,), (T,) bool.

    >>> right, hidden = [1, 1, 1, 0, 1, 1], [0, 1, 0, 1, 1, 0]
    >>> restored(np.array(right, bool), np.array(hidden, bool))
    [True, False]
    """
    edges = np.flatnonzero(np.diff(hidden, prepend=False, append=False))
    return [bool(right[start : end + 1].all()) for start, end in edges.reshape(-1, 2)]
