"""What changes scores before a token is chosen from them.

A processor gets the ids so far (R, n), NumPy, and scores (R, V): logits, or in beam search
log-probabilities.  It returns scores and writes into neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tinyfm.backend import Array, array_module
from tinyfm.generation.options import GenerationConfig

Processor = Callable[[np.ndarray, Array], Array]


def repeated_less(penalty: float, real: np.ndarray | None = None) -> Processor:
    """Tokens that are there already: scores above 0 divided by the penalty, others multiplied.

    real (R, P) bool: which ids of the prompt are no padding; what follows the prompt all is.
    """

    def process(ids: np.ndarray, scores: Array) -> Array:
        there = np.ones(ids.shape, bool)
        if real is not None:
            there[:, : real.shape[1]] = real
        row, place = np.nonzero(there)
        xp, scores = array_module(scores), scores.copy()
        at = xp.asarray(row), xp.asarray(ids[row, place])
        seen = scores[at]  # of an id that is there twice the same score, and so the same change
        scores[at] = xp.where(seen > 0, seen / penalty, seen * penalty)
        return scores

    return process


def no_ngram_twice(size: int) -> Processor:
    """No sequence takes a token that would end the same `size` tokens as were there before.

    The prompt counts, and so does its padding, as in transformers.
    """

    def process(ids: np.ndarray, scores: Array) -> Array:
        if ids.shape[1] < size:
            return scores
        grams = np.lib.stride_tricks.sliding_window_view(ids, size, axis=1)
        last = ids[:, ids.shape[1] - size + 1 :]
        row, place = np.nonzero((grams[:, :, :-1] == last[:, None]).all(2))
        xp, scores = array_module(scores), scores.copy()
        scores[xp.asarray(row), xp.asarray(grams[row, place, -1])] = -np.inf
        return scores

    return process


def no_end_before(length: int, ends: Sequence[int]) -> Processor:
    """Sequences shorter than `length` do not take one of the tokens that end them."""

    def process(ids: np.ndarray, scores: Array) -> Array:
        if ids.shape[1] >= length:
            return scores
        scores = scores.copy()
        for end in ends:
            scores[:, end : end + 1] = -np.inf  # none, where the vocabulary lacks it
        return scores

    return process


def never(words: Sequence[Sequence[int]]) -> Processor:
    """No sequence takes the last id of a word after the ids before it."""

    def process(ids: np.ndarray, scores: Array) -> Array:
        scores = scores.copy()
        for *before, last in words:
            if (place := ids.shape[1] - len(before)) >= 0:
                rows = np.flatnonzero((ids[:, place:] == before).all(1))
                scores[array_module(scores).asarray(rows), last] = -np.inf
        return scores

    return process


def only(token: int, length: int) -> Processor:
    """Sequences of exactly `length` tokens go on with `token`, at no cost."""

    def process(ids: np.ndarray, scores: Array) -> Array:
        if ids.shape[1] != length:
            return scores
        scores = array_module(scores).full_like(scores, -np.inf)
        scores[:, token] = 0.0
        return scores

    return process


def processors(
    options: GenerationConfig, prompt_length: int, length: int, real: np.ndarray | None = None
) -> list[Processor]:
    """What the options ask for, in the order in which it is applied: what is forced wins.

    length: tokens at which generation stops; real: see `repeated_less`.
    """
    made = []
    if options.repetition_penalty != 1:
        made.append(repeated_less(options.repetition_penalty, real))
    if options.no_repeat_ngram_size:
        made.append(no_ngram_twice(options.no_repeat_ngram_size))
    ends = [[end] for end in options.ends]
    if words := [word for word in options.bad_words_ids if list(word) not in ends]:
        made.append(never(words))
    new = options.min_new_tokens
    least = prompt_length + new if new else options.min_length
    if least > prompt_length and options.ends:
        made.append(no_end_before(least, options.ends))
    if options.forced_bos_token_id is not None:
        made.append(only(options.forced_bos_token_id, 1))
    if options.forced_eos_token_id is not None:
        made.append(only(options.forced_eos_token_id, length - 1))
    return made
