"""A text as the noises of pretraining take it: its own tokens, without those around it."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tinyfm.tokenizer import Tokenizer

Ids = npt.NDArray[np.int64]
SENTENCE_ENDS = frozenset(".!?。！？")


def text_ids(ids: npt.ArrayLike) -> Ids:
    """The ids of one text as an array (T,) int64; TypeError: no integers, ValueError: no row."""
    array = np.asarray(ids)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"ids must be integers, not {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"ids have shape {array.shape}; give one text, (T,)")
    return array.astype(np.int64)


class TextTokens(NamedTuple):
    """A text without the special tokens that its vocabulary puts around it.

    ids               (T,) int64
    word_starts       (T,) bool, True where the text begins and after white space
    sentence_end_ids  the ids of its full stops, question and exclamation marks
    """

    ids: Ids
    word_starts: npt.NDArray[np.bool_]
    sentence_end_ids: set[int]


def text_tokens(text: str, tokenizer: Tokenizer) -> TextTokens:
    """Tokenise a text for the noises."""
    found = tokenizer.encode(text)
    ids: list[int] = []
    starts: list[bool] = []
    ends: set[int] = set()
    before = -1  # where the last token begins, for the pieces of one character begin at one place
    for id, (start, end), word in zip(found.ids, found.offsets, found.word_ids, strict=True):
        if word is None:
            continue
        starts.append(before < start and (not ids or text[start - 1].isspace()))
        ids.append(id)
        if text[start:end] in SENTENCE_ENDS:
            ends.add(id)
        before = start
    return TextTokens(np.array(ids, np.int64), np.array(starts, bool), ends)
