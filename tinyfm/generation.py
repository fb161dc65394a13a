"""Text out of a model: `model.generate()`, over a small protocol that every generating model has.

state = model.begin(input_ids, attention_mask, rows, max_length)
    the encoder runs once, caches are taken; rows (R,): the input row of each running sequence
logits = model.step(ids, state)
    ids (R, n) -> logits (R, V) of the last position, a plain array; the first step gets the
    whole decoder prompt, the later ones one new token a row
state.reorder(rows)
    go on with these rows of the running sequences (beam search)

A search (`greedy_search`, `beam_search`) sees none of this: it asks `next_logits(ids, rows)` for
the logits of its running sequences ids (R, n), of which number i continues number rows[i] of the
call before (None: itself).  Processors change scores before a search chooses from them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np

from tinyfm import ops
from tinyfm.autograd import raw
from tinyfm.backend import Array, array_module, keep_memory, to_numpy

DEFAULT_NEW_TOKENS = 20

NextLogits = Callable[[np.ndarray, np.ndarray | None], Array]
Processor = Callable[[np.ndarray, Array], Array]  # ids (R, n), scores (R, V) -> scores


class GenerationOutput(NamedTuple):
    """sequences (rows, length) int64; scores float64, per token (rows, new) or per row (rows,)."""

    sequences: np.ndarray
    scores: np.ndarray


# -- options ---------------------------------------------------------------------------------------


IDS = {"eos_token_id", "pad_token_id", "decoder_start_token_id"}


def _option(default: int | None, least: int) -> Any:
    return field(default=default, metadata={"least": least})


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """The options of `generate`; their names and their defaults are Hugging Face's.

    max_new_tokens, max_length: when to stop.  max_length counts the start token; max_new_tokens
        does not, and wins over max_length.  Without either 20 new tokens are made.
    min_length, min_new_tokens: no end token before so many tokens, counted in the same way; of
        the two min_new_tokens wins.
    num_beams: sequences that run side by side for each input; 1 is greedy search.
    length_penalty: the exponent of the length by which a beam's log-probability is divided: above
        0 it favours long sequences, at 0 it does nothing.
    early_stopping: when beams stop, see `beam_search`.
    num_return_sequences: how many of the finished beams come back, the best first.
    eos_token_id, pad_token_id: what ends a sequence (-1: nothing does) and what follows its end
        (-1: the end token).
    decoder_start_token_id: what a sequence begins with (-1: not known, an error).
    bad_words_ids: lists of ids that never come one after the other.
    forced_bos_token_id, forced_eos_token_id: the only choice for the first new token, and for the
        last one where the length runs out.
    """

    max_new_tokens: int | None = _option(None, least=0)
    max_length: int | None = _option(None, least=1)
    min_length: int = _option(0, least=0)
    min_new_tokens: int = _option(0, least=0)
    num_beams: int = _option(1, least=1)
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    num_return_sequences: int = _option(1, least=1)
    eos_token_id: int = _option(-1, least=-1)
    pad_token_id: int = _option(-1, least=-1)
    decoder_start_token_id: int = _option(-1, least=-1)
    bad_words_ids: Sequence[Sequence[int]] = ()
    forced_bos_token_id: int | None = _option(None, least=0)
    forced_eos_token_id: int | None = _option(None, least=0)

    def __post_init__(self) -> None:
        for entry in fields(self):
            name, value, least = entry.name, getattr(self, entry.name), entry.metadata.get("least")
            if least is None or (value is None and entry.default is None):
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                raise TypeError(f"{name} is {value!r}: it must be a whole number")
            if value < least:
                raise ValueError(f"{name} is {value}: it must be at least {least}")
        words, penalty = self.bad_words_ids, self.length_penalty
        if not isinstance(words, list | tuple) or not all(map(_is_word, words)):
            raise ValueError(f"bad_words_ids is {words!r}: it must hold lists of ids, none empty")
        if not isinstance(penalty, Real) or not -100 <= penalty <= 100:  # or powers overflow
            raise ValueError(f"length_penalty is {penalty!r}: it must be between -100 and 100")
        if not isinstance(self.early_stopping, bool) and self.early_stopping != "never":
            raise ValueError(
                f"early_stopping is {self.early_stopping!r}: it must be True, False or 'never'"
            )
        if self.num_return_sequences > self.num_beams:
            raise ValueError(
                f"num_return_sequences is {self.num_return_sequences}: it must be at most "
                f"num_beams, which is {self.num_beams}"
            )

    @classmethod
    def of(cls, config: Any, options: dict[str, Any], saved: dict[str, Any] | None = None) -> Self:
        """The given options; those left out (or None) from what was saved with the model.

        saved: the content of generation_config.json.  Without it the options come from the model's
            config, where older models have them.  Ids that it lacks come from the config as well.

        A length that is given stands alone: the other one that was saved takes no part.
        """
        saved = saved or {}
        names = {entry.name for entry in fields(cls)}
        if unknown := options.keys() - names:
            known = ", ".join(sorted(names))
            raise TypeError(f"generate has no option {min(unknown)!r}: it has {known}")
        given = {name: value for name, value in options.items() if value is not None}
        lengths = {"max_new_tokens", "max_length"}
        left_out = names - (given.keys() | lengths if given.keys() & lengths else given.keys())
        found = {name: saved.get(name) for name in left_out}
        for name in left_out & (IDS - saved.keys()) if saved else left_out:
            found[name] = getattr(config, name, None)
        return cls(**given, **{name: value for name, value in found.items() if value is not None})


def _is_word(word: Any) -> bool:
    """Whether word is a list of ids, at least one."""
    return (
        isinstance(word, list | tuple)
        and len(word) > 0
        and all(isinstance(i, int | np.integer) and i >= 0 for i in word)
    )


# -- processors ------------------------------------------------------------------------------------


def no_end_before(length: int, eos: int) -> Processor:
    """Sequences shorter than `length` do not end."""

    def process(ids: np.ndarray, scores: Array) -> Array:
        if ids.shape[1] >= length:
            return scores
        scores = scores.copy()
        scores[:, eos] = -np.inf
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


def processors(options: GenerationConfig, prompt_length: int, length: int) -> list[Processor]:
    """What the options ask for, in the order in which it is applied: what is forced wins.

    length: tokens at which generation stops.
    """
    made = []
    if words := [word for word in options.bad_words_ids if list(word) != [options.eos_token_id]]:
        made.append(never(words))
    new = options.min_new_tokens
    least = prompt_length + new if new else options.min_length
    if least > prompt_length and options.eos_token_id >= 0:
        made.append(no_end_before(least, options.eos_token_id))
    if options.forced_bos_token_id is not None:
        made.append(only(options.forced_bos_token_id, 1))
    if options.forced_eos_token_id is not None:
        made.append(only(options.forced_eos_token_id, length - 1))
    return made


# -- searches --------------------------------------------------------------------------------------


def greedy_search(
    next_logits: NextLogits,
    prompt: np.ndarray,
    length: int,
    options: GenerationConfig,
    with_scores: bool = True,
) -> GenerationOutput:
    """Each row takes its most probable token until it takes the end token; then it is padded.

    prompt (R, P) -> sequences (R, at most length); generation stops when all rows have ended.
    scores (R, new): the log-probability of each new token in the model's own distribution, before
        processors; 0 on padding, so that a row's sum is that of its sequence.  None are made
        without with_scores.  Of equally probable tokens the one with the lowest id is taken.
    """
    changes = processors(options, prompt.shape[1], length)
    ids, running = prompt, np.ones(len(prompt), bool)
    scores = [np.zeros((len(prompt), 0))]
    while ids.shape[1] < length and running.any():
        logits = choices = next_logits(ids, None)
        for change in changes:
            choices = change(ids, choices)
        best = to_numpy(array_module(choices).argmax(choices, -1))
        if with_scores:
            xp, log_probs = array_module(logits), raw(ops.log_softmax(logits))
            taken = to_numpy(xp.take_along_axis(log_probs, xp.asarray(best[:, None]), -1))
            scores.append(np.where(running[:, None], taken, 0.0))
        ids = np.append(ids, np.where(running, best, options.pad_token_id)[:, None], 1)
        running = running & (best != options.eos_token_id)
    return GenerationOutput(ids, np.concatenate(scores, 1))


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
    next_logits: NextLogits, prompt: np.ndarray, length: int, options: GenerationConfig
) -> GenerationOutput:
    """The num_return_sequences best finished sequences that num_beams running ones lead to.

    prompt (R, P): num_beams = K equal rows for each input.  At each step the best 2 K continuations
    of an input's K sequences are looked at, of which at least K do not end.  Those among the best K
    that end (with the end token or at the length) are finished; the best K that do not end run on.
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
    sequences exist than are asked for, the missing ones are the prompt alone with a score of -inf.
    Log-probabilities have the logits' dtype; of equal ones the lower beam, then the lower id wins.
    """
    beams, penalty = options.num_beams, options.length_penalty
    count, prompt_length = len(prompt) // beams, prompt.shape[1]
    changes = processors(options, prompt_length, length)
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
        values, places = largest(scores.reshape(count, -1), 2 * beams)
        beam, tokens = np.divmod(places, scores.shape[1])
        rows = first_row + beam
        longer = np.append(ids[rows], tokens[:, :, None], 2)  # (count, 2 K, n + 1)
        new = longer.shape[2] - prompt_length
        ends = (tokens == options.eos_token_id) | (longer.shape[2] == length)

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


# -- models ----------------------------------------------------------------------------------------


class _Steps:
    """The `next_logits` of a model: one step from what is cached, or all anew each time."""

    def __init__(
        self,
        model: GenerationMixin,
        inputs: tuple[Array, Array | None],
        rows: np.ndarray,
        length: int,
        use_cache: bool,
    ) -> None:
        self.model, self.use_cache, self.state = model, use_cache, None
        self.begin_arguments = (*inputs, rows, length)

    def __call__(self, ids: np.ndarray, rows: np.ndarray | None) -> Array:
        if self.state is None or not self.use_cache:
            self.state = self.model.begin(*self.begin_arguments)
            return self.model.step(ids, self.state)
        if rows is not None:
            self.state.reorder(rows)
        return self.model.step(ids[:, -1:], self.state)


class GenerationMixin:
    """Adds `generate` to a model that has a config, `begin` and `step`."""

    config: Any
    generation_config: dict[str, Any] | None = None  # of the folder that the model comes from

    def generate(
        self,
        input_ids: Array,
        attention_mask: Array | None = None,
        *,
        use_cache: bool = True,
        return_scores: bool = False,
        **options: Any,
    ) -> Any:
        """What an encoder-decoder model makes of its input: ids (rows, length), int64.

        input_ids (B, S), attention_mask (B, S).  Each row begins with the start token and is
        padded after its end token; there are num_return_sequences rows for each input, in order.
        options: see GenerationConfig; those left out come from the generation_config.json of the
            model's folder, or else from its config.  num_beams > 1: beam search, otherwise greedy.
        use_cache=False computes everything anew at each step: the same tokens, for comparison.
        return_scores: gives a GenerationOutput instead; greedy: the log-probability of each new
            token, beams: the score of each row.

        The model works in evaluation mode, records no graph, and has its own mode afterwards.
        """
        config = GenerationConfig.of(self.config, options, self.generation_config)
        if config.pad_token_id < 0:
            config = replace(config, pad_token_id=config.eos_token_id)
        for name in ("decoder_start_token_id", "pad_token_id"):
            if getattr(config, name) < 0:
                raise ValueError(f"{name} is missing: give it, since the model's config has none")
        rows = np.repeat(np.arange(len(input_ids)), config.num_beams)
        prompt = np.full((len(rows), 1), config.decoder_start_token_id, np.int64)
        length = self._length(config, prompt.shape[1])
        keep_memory()
        with self.evaluating():  # type: ignore[attr-defined]
            steps = _Steps(self, (input_ids, attention_mask), rows, length, use_cache)
            if config.num_beams > 1:
                output = beam_search(steps, prompt, length, config)
            else:
                output = greedy_search(steps, prompt, length, config, return_scores)
        return output if return_scores else output.sequences

    def begin(
        self, input_ids: Array, attention_mask: Array | None, rows: Array, max_length: int
    ) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not generate")

    def step(self, ids: Array, state: Any) -> Array:
        raise NotImplementedError(f"{type(self).__name__} does not generate")

    def position_limit(self) -> int | None:
        """The most tokens that the decoder has positions for; None: as many as are wanted."""
        if getattr(self.config, "positions", "learned") != "learned":  # but computed
            return None
        return getattr(self.config, "max_position_embeddings", None)

    def _length(self, config: GenerationConfig, prompt_length: int) -> int:
        """The length at which to stop, the prompt included."""
        if config.max_new_tokens is not None:
            length = prompt_length + config.max_new_tokens
        else:
            length = config.max_length or prompt_length + DEFAULT_NEW_TOKENS
        limit = self.position_limit()
        if limit is None or length <= limit:
            return length
        warnings.warn(
            f"generation stops at the model's {limit} positions instead of {length}",
            stacklevel=3,
        )
        return limit
