"""How tokens are chosen: the most probable one, a drawn one, or the best of several beams.

A search sees no model.  It asks `next_logits(ids, rows)` for the logits of its running sequences
ids (R, n), of which number i continues number rows[i] of the call before (None: itself).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tinyfm import ops
from tinyfm.autograd import raw
from tinyfm.backend import Array, array_module, to_numpy
from tinyfm.generation.options import GenerationConfig
from tinyfm.generation.processors import Processor

NextLogits = Callable[[np.ndarray, np.ndarray | None], Array]
Choose = Callable[[Array], np.ndarray]  # scores (R, V) -> one token a row (R,)


class GenerationOutput(NamedTuple):
    """sequences (rows, length) int64; scores float64, per token (rows, new) or per row (rows,)."""

    sequences: np.ndarray
    scores: np.ndarray


class NoTokenLeft(ValueError):
    """The options forbid every token with which a sequence could go on."""


# -- one sequence a row ----------------------------------------------------------------------------


def most_probable(scores: Array) -> np.ndarray:
    """The token of the highest score; of equal ones the lowest id."""
    return to_numpy(array_module(scores).argmax(scores, -1))


def sampled(options: GenerationConfig, rng: np.random.Generator) -> Choose:
    """A token drawn from the probabilities that temperature, top_k and top_p leave."""
    if options.temperature == 0:
        return most_probable

    def choose(scores: Array) -> np.ndarray:
        weights = probabilities(to_numpy(scores), options.temperature, options.top_k, options.top_p)
        reached = weights.cumsum(1)
        return (reached > rng.random((len(weights), 1)) * reached[:, -1:]).argmax(1)

    return choose


def probabilities(
    scores: np.ndarray, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0
) -> np.ndarray:
    """softmax(scores / temperature) (R, V) in float64, of what top_k and then top_p leave.

    top_k: the k highest scores, and what equals the lowest of them; 0 or V and above: all.
    top_p: the fewest most probable tokens that together reach p, the one that crosses it included
        (Holtzman et al. 2019, section 3.1); of equal ones the higher id, as in transformers.
    """
    scores = scores.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # invalid: a row of -inf alone gives NaN
        # Subtracted first: divided by a tiny temperature, two scores would both be infinite.
        scores = (scores - scores.max(1, keepdims=True)) / temperature
    if 0 < top_k < scores.shape[1]:
        lowest = np.partition(scores, -top_k, 1)[:, -top_k, None]
        scores = np.where(scores < lowest, -np.inf, scores)
    weights = np.exp(scores)
    weights /= weights.sum(1, keepdims=True)
    if top_p < 1:
        order = np.argsort(weights, 1, kind="stable")
        rising = np.take_along_axis(weights, order, 1)
        left_out = rising.cumsum(1) <= 1 - top_p
        left_out[:, -1] = False
        np.put_along_axis(weights, order, np.where(left_out, 0, rising), 1)
        weights /= weights.sum(1, keepdims=True)
    return weights


def search_by_token(
    next_logits: NextLogits,
    prompt: np.ndarray,
    length: int,
    options: GenerationConfig,
    changes: Sequence[Processor] = (),
    choose: Choose = most_probable,
    with_scores: bool = True,
    streamer: Callable[[np.ndarray], None] | None = None,
) -> GenerationOutput:
    """Each row takes the token that is chosen for it until it takes the end token; then padding.

    prompt (R, P) -> sequences (R, at most length); generation stops when all rows have ended.
    scores (R, new): the log-probability of each new token in the model's own distribution, before
        anything changed it; 0 on padding, so that a row's sum is that of its sequence.  None are
        made without with_scores.
    streamer: gets the new tokens (R,) of each step.

    NoTokenLeft: the changes leave no token for a row.  (transformers then takes token 0.)
    """
    made = np.empty((len(prompt), max(length, prompt.shape[1])), np.int64)
    made[:, : prompt.shape[1]] = prompt
    ids, running, scores = prompt, np.ones(len(prompt), bool), [np.zeros((len(prompt), 0))]
    while ids.shape[1] < length and running.any():
        logits = choices = next_logits(ids, None)
        for change in changes:
            choices = change(ids, choices)
        best = choose(choices)
        if changes and (stuck := running & (_taken(choices, best) == -np.inf)).any():
            raise NoTokenLeft(
                f"row {stuck.argmax()} has no token left after {ids.shape[1]}: "
                "no_repeat_ngram_size, bad_words_ids and minimal lengths forbid all, loosen them"
            )
        if with_scores:
            own = _taken(raw(ops.log_softmax(logits)), best)
            scores.append(np.where(running, own, 0.0)[:, None])
        new = np.where(running, best, options.pad_token_id)
        made[:, ids.shape[1]] = new
        ids = made[:, : ids.shape[1] + 1]
        running = running & ~np.isin(best, options.ends)
        if streamer is not None:
            streamer(new)
    return GenerationOutput(ids.copy(), np.concatenate(scores, 1))


def _taken(scores: Array, tokens: np.ndarray) -> np.ndarray:
    """scores (R, V), tokens (R,) -> (R,) the scores of the tokens, on the host."""
    xp = array_module(scores)
    return to_numpy(scores[xp.arange(len(tokens)), xp.asarray(tokens)])


# -- beams -----------------------------------------------------------------------------------------


class _Finished:
    """The best finished sequences of one input, best first; of equal ones the earlier first."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.best: list[tuple[float, np.ndarray]] = []

    def add(self, score: float, ids: np.ndarray) -> None:
        self.best.append((score, ids))
        self.best.sort(key=lambda scored: scored[0], reverse=True)
        del self.best[self.room :]

    @property
    def full(self) -> bool:
        return len(self.best) == self.room

    @property
    def worst(self) -> float:
        """The score that a further sequence has to beat; while there is room, any will do."""
        return self.best[-1][0] if self.full else -math.inf


def beam_search(
    next_logits: NextLogits,
    prompt: np.ndarray,
    length: int,
    options: GenerationConfig,
    changes: Sequence[Processor] = (),
) -> GenerationOutput:
    """The num_return_sequences best finished sequences that num_beams running ones lead to.

    prompt (R, P): num_beams = K equal rows for each input.  At each step the best 2 K continuations
    of an input's K sequences are looked at (with N > 1 end tokens the best (1 + N) K), of which at
    least K do not end.  Those among the best K that end (with an end token or at the length) are
    finished; the best K that do not end run on.
    A finished sequence's score is the sum of its log-probabilities divided by L ** length_penalty,
    L its new tokens, the end token included; the best K are kept.  An input's search is over when
    K have finished and, by early_stopping,
        True: at once;
        False: when the best running sequence, scored as if it ended now, does not beat the worst;
        "never": the same, scored as if it ended at the full length where that is the better case
            (length_penalty > 0).  What still runs could then do no better.
    This is what transformers does (5.24) but for two things.  What follows an end is padding, also
    where pad_token_id is 0, which transformers takes for "none given" and puts the end token.  And
    a beam that has nothing to go on with is dead, where theirs runs on with -1e9: when fewer
    sequences exist than are asked for, the missing ones are the prompt alone with a score of -inf,
    and a warning says so.
    Log-probabilities have the logits' dtype; of equal ones the lower beam, then the lower id wins.
    """
    beams, penalty = options.num_beams, options.length_penalty
    count, prompt_length = len(prompt) // beams, prompt.shape[1]
    first_row = np.arange(count)[:, None] * beams
    finished = [_Finished(beams) for _ in range(count)]
    searching = np.ones(count, bool)
    totals = np.full((count, beams), -np.inf)
    totals[:, 0] = 0.0  # the rows are still equal: only the first may go on
    ids, rows = prompt, None
    while ids.shape[1] < length and searching.any():
        scores = raw(ops.log_softmax(next_logits(ids, rows)))
        for change in changes:
            scores = change(ids, scores)
        scores = scores + array_module(scores).asarray(totals.reshape(-1, 1), scores.dtype)
        looked_at = min(max(2, 1 + len(options.ends)), scores.shape[1]) * beams
        values, places = largest(scores.reshape(count, -1), looked_at)
        beam, tokens = np.divmod(places, scores.shape[1])
        rows = first_row + beam
        longer = np.append(ids[rows], tokens[:, :, None], 2)  # (count, 2 K or more, n + 1)
        new = longer.shape[2] - prompt_length
        ends = np.isin(tokens, options.ends) | (longer.shape[2] == length)

        done = ends & searching[:, None] & (values > -np.inf)
        for i, j in np.argwhere(done[:, :beams]):
            finished[i].add(float(values[i, j]) / new**penalty, longer[i, j])

        totals, kept = largest(np.where(ends, -np.inf, values), beams)
        ids = np.take_along_axis(longer, kept[:, :, None], 1).reshape(len(prompt), -1)
        rows = np.take_along_axis(rows, kept, 1).reshape(-1)

        look_ahead = options.early_stopping == "never" and penalty > 0
        assumed = length - prompt_length if look_ahead else new
        best = totals[:, 0].astype(np.float64) / assumed**penalty  # float32 holds few powers
        searching &= best > [f.worst for f in finished]
        if options.early_stopping is True:
            searching &= [not f.full for f in finished]
    wanted, found = options.num_return_sequences, min((len(f.best) for f in finished), default=0)
    if count and length > prompt_length and found < wanted:
        warnings.warn(
            f"beams found {found} of {wanted} texts: the options leave no more; ask for fewer, or "
            "loosen what forbids tokens",
            stacklevel=3,
        )
    return _best(finished, prompt, options)


def largest(x: Array, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k largest entries of each row of x (R, N), in order: values and places (R, k).

    Of equal entries the first in the row comes first.  The k-th largest of the maxima of groups of
    entries bounds the k largest entries from below; few reach it and are sorted.
    """
    xp, (rows, width) = array_module(x), x.shape
    size = max(1, width // (32 * k))
    maxima = x[:, : width // size * size].reshape(rows, size, -1).max(1)
    bound = xp.partition(maxima, -k)[:, -k, None]
    row, place = xp.nonzero(~(x < bound))  # not >=: a bound of NaN lets all pass
    values, row, place = to_numpy(x[row, place]), to_numpy(row), to_numpy(place)
    order = np.lexsort((-values, row))
    picked = order[np.searchsorted(row, np.arange(rows))[:, None] + np.arange(k)]
    return values[picked], place[picked]


def _best(
    finished: list[_Finished], prompt: np.ndarray, options: GenerationConfig
) -> GenerationOutput:
    """The best of each input's finished sequences as padded rows, the prompt for missing ones."""
    wanted, rows = options.num_return_sequences, []
    for own, alone in zip(finished, prompt[:: options.num_beams], strict=True):
        missing = wanted - len(own.best)
        rows += own.best[:wanted] + [(-math.inf, alone)] * missing
    length = max((len(ids) for _, ids in rows), default=prompt.shape[1])
    sequences = np.full((len(rows), length), options.pad_token_id, np.int64)
    for row, (_, ids) in zip(sequences, rows, strict=True):
        row[: len(ids)] = ids
    return GenerationOutput(sequences, np.array([score for score, _ in rows], np.float64))
