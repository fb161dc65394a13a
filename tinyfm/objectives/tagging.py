"""Tagging: one label for each word, although a model reads pieces of words.

`word_ids` says for each token which word it is a piece of; None stands for special tokens.
`tinyfm.metrics.entities` groups the tags of words into entities.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tinyfm.data import IGNORE_INDEX

T = TypeVar("T")
WordIds = Sequence[int | None]
# The signs of a word's first piece, of those between, and of its last, by that of the word.
PIECES = {
    "B-": ("B-", "I-", "I-"),
    "I-": ("I-", "I-", "I-"),
    "E-": ("I-", "I-", "E-"),
    "S-": ("B-", "I-", "E-"),
}


def _first_pieces(word_ids: WordIds) -> dict[int, int]:
    """{word: the position of its first piece}"""
    first: dict[int, int] = {}
    for position, word in enumerate(word_ids):
        if word is not None:
            first.setdefault(word, position)
    return first


def tag_labels(
    word_ids: WordIds, tags: Sequence[str], label2id: Mapping[str, int], all_pieces: bool = False
) -> npt.NDArray[np.int64]:
    """Labels (T,) int64 for the tokens of a sentence whose word w has the tag `tags[w]`.

    The first piece of a word carries its tag; the other pieces and special tokens get -100, where
    no loss is taken (Devlin et al. 2018, section 5.3). With `all_pieces` all pieces get a tag; read
    as words they are the same entities (PIECES), so that B-X goes on as I-X.

    >>> tag_labels([None, 0, 0, 1, None], ["B-LOC", "O"], {"O": 0, "B-LOC": 1}).tolist()
    [-100, 1, -100, 0, -100]

    Raises ValueError for a word without a tag and for a tag that `label2id` does not have.
    """
    first = _first_pieces(word_ids)
    last = {word: position for position, word in enumerate(word_ids)}
    labels = np.full(len(word_ids), IGNORE_INDEX, np.int64)
    for position, word in enumerate(word_ids):
        if word is None:
            continue
        if word >= len(tags):
            raise ValueError(f"tag_labels: word {word} (from 0) has no tag; there are {len(tags)}")
        tag, alone = tags[word], first[word] == last[word]
        if not all_pieces and position != first[word]:
            continue
        if all_pieces and not alone and tag[:2] in PIECES:
            place = 0 if position == first[word] else 2 if position == last[word] else 1
            tag = PIECES[tag[:2]][place] + tag[2:]
        if tag not in label2id:
            raise ValueError(
                f"tag_labels: word {word} (from 0) needs the unknown tag {tag!r}; known are "
                f"{', '.join(label2id)}"
            )
        labels[position] = label2id[tag]
    return labels


def word_tags(word_ids: WordIds, predictions: Sequence[T], missing: T | str = "O") -> list[T | str]:
    """What was predicted for each word: the prediction at its first piece.

    predictions  T of them, names of tags or ids, one a token
    returns      a list over the words from 0 to the last that has a piece; a word between them of
                 which the tokenizer kept nothing (it may be a control character) gets `missing`

    Words beyond the longest text that a model reads are cut, and the list is shorter by their
    number: `len(words) - len(word_tags(...))` is what to report.

    Raises ValueError when predictions and word ids differ in number.
    """
    if len(predictions) != len(word_ids):
        raise ValueError(
            f"word_tags: {len(predictions)} predictions for {len(word_ids)} tokens; give one each"
        )
    first = _first_pieces(word_ids)
    words = range(max(first, default=-1) + 1)
    return [predictions[first[word]] if word in first else missing for word in words]
