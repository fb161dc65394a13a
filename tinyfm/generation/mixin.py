"""`model.generate()`, over the steps of any model."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Protocol

import numpy as np

from tinyfm.backend import Array, draw_seed, host, keep_memory
from tinyfm.generation.options import GenerationConfig
from tinyfm.generation.processors import processors
from tinyfm.generation.searches import (
    Choose,
    beam_search,
    most_probable,
    sampled,
    search_by_token,
)
from tinyfm.masks import Mask

DEFAULT_NEW_TOKENS = 20


class Streamer(Protocol):
    """What gets tokens as they are made: called with each step's new ids (R,), then `end`."""

    def __call__(self, ids: np.ndarray) -> None: ...

    def end(self) -> None: ...


class _Steps:
    """The `next_logits` of a model: one step from what is cached, or all anew each time."""

    def __init__(
        self,
        model: GenerationMixin,
        inputs: tuple[Array, Array | None],
        rows: np.ndarray,
        length: int,
        use_cache: bool,
        on_step: Callable[[Array], None] | None,
    ) -> None:
        self.model, self.use_cache, self.state = model, use_cache, None
        self.begin_arguments, self.on_step = (*inputs, rows, length), on_step

    def __call__(self, ids: np.ndarray, rows: np.ndarray | None) -> Array:
        if self.state is None or not self.use_cache:
            self.state = self.model.begin(*self.begin_arguments)
            logits = self.model.step(ids, self.state)
        else:
            if rows is not None:
                self.state.reorder(rows)
            logits = self.model.step(ids[:, -1:], self.state)
        if self.on_step is not None:
            self.on_step(logits)
        return logits


class GenerationMixin:
    """Adds `generate` to a model that has a config, `begin` and `step`.

    is_encoder_decoder: the input is read by an encoder, and the decoder begins with a start token;
        otherwise the input is the prompt with which the sequence itself begins.
    """

    is_encoder_decoder: ClassVar[bool] = True
    config: Any
    generation_config: dict[str, Any] | None = None  # of the folder that the model comes from

    def generate(
        self,
        input_ids: Array,
        attention_mask: Array | Mask | None = None,
        *,
        use_cache: bool = True,
        return_scores: bool = False,
        seed: int | None = None,
        streamer: Streamer | None = None,
        on_step: Callable[[Array], None] | None = None,
        **options: Any,
    ) -> Any:
        """What a model makes of its input, or how it goes on with a prompt: ids (rows, length).

        input_ids (B, S), attention_mask (B, S): prompts of different lengths are padded on the
            left.  Without a mask the padding token, where it is another one than the end token,
            counts as padding.  A Mask says the same by its keys (without any, nothing is padding),
            and may have a prefix: the tokens of a prompt that see each other (a prefix LM).
        Each row begins with the start token, or with its prompt, and is padded after its end token;
        there are num_return_sequences rows for each input, in order.  At the most positions that a
        model has it stops, with a warning.

        options: see GenerationConfig; those left out come from the generation_config.json of the
            model's folder, or else from its config.  num_beams > 1: beam search; do_sample: tokens
            are drawn; otherwise greedy.
        seed: of the draws; without one they come from the one generator (tinyfm.manual_seed).
        use_cache=False computes everything anew at each step: the same tokens, for comparison.
        return_scores: gives a GenerationOutput instead; by token: the log-probability of each new
            one, beams: the score of each row.
        streamer: called with the new ids (rows,) of each step, and with `end` after the last; not
            with beams.
        on_step: called with the logits (R, V) of each step, before anything changes them.

        The model works in evaluation mode, records no graph, and has its own mode afterwards.

        ValueError: an empty prompt without a begin token, one that is padded on the right or longer
        than the model's positions, options that contradict each other.  NoTokenLeft, which is one:
        a row has no token to go on with; of beams that find too few texts a warning tells.
        """
        _check_seed(seed)
        config = GenerationConfig.of(self.config, options, self.generation_config)
        if streamer is not None and config.num_beams > 1:
            raise ValueError("streamer: beams have no token that stays; leave num_beams out")
        ids = _checked(input_ids)
        mask = _padding_mask(ids, attention_mask, config)
        if config.pad_token_id < 0:
            config = replace(config, pad_token_id=next(iter(config.ends), -1))
        repeats = config.num_return_sequences if config.do_sample else config.num_beams
        if self.is_encoder_decoder:
            for name in ("decoder_start_token_id", "pad_token_id"):
                if getattr(config, name) < 0:
                    raise ValueError(
                        f"{name} is missing: give it, since the model's config has none"
                    )
            prompt = np.full((len(ids) * repeats, 1), config.decoder_start_token_id)
            real = None
        else:
            ids, mask = _prompts(ids, mask, config)
            prompt = np.repeat(ids, repeats, 0)
            real = None if mask is None else np.repeat(mask, repeats, 0)
        rows = np.repeat(np.arange(len(ids)), repeats)
        length = self._length(config, prompt.shape[1])
        changes = processors(config, prompt.shape[1], length, real)
        keep_memory()
        with self.evaluating():  # type: ignore[attr-defined]
            given = attention_mask if isinstance(attention_mask, Mask) else mask
            steps = _Steps(self, (ids, given), rows, length, use_cache, on_step)
            if config.num_beams > 1:
                output = beam_search(steps, prompt, length, config, changes)
            else:
                choose: Choose = most_probable
                if config.do_sample:
                    rng = np.random.default_rng(draw_seed() if seed is None else seed)
                    choose = sampled(config, rng)
                output = search_by_token(
                    steps, prompt, length, config, changes, choose, return_scores, streamer
                )
        if streamer is not None:
            streamer.end()
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
        limit = self.position_limit()
        if limit is not None and prompt_length > limit:
            raise ValueError(
                f"the prompt has {prompt_length} tokens and the model takes {limit} "
                f"({prompt_length} > {limit}): cut it"
            )
        if config.max_new_tokens is not None:
            length = prompt_length + config.max_new_tokens
        else:
            length = config.max_length or prompt_length + DEFAULT_NEW_TOKENS
            if length <= prompt_length and not self.is_encoder_decoder:
                warnings.warn(
                    f"max_length {length} counts the prompt, which has {prompt_length} tokens: "
                    "nothing is generated, give max_new_tokens instead",
                    stacklevel=3,
                )
        if limit is None or length <= limit:
            return length
        warnings.warn(
            f"generation stops at the model's {limit} positions instead of {length}",
            stacklevel=3,
        )
        return limit


def _checked(input_ids: Any) -> np.ndarray:
    """input_ids as an int64 array (B, S); or an error."""
    ids = host(input_ids)
    if ids.ndim != 2:
        raise ValueError(f"input_ids are {ids.shape}: they must be (batch, length)")
    if ids.size and ids.dtype.kind not in "iu":
        raise TypeError(f"input_ids are {ids.dtype}: token ids are integers")
    return ids.astype(np.int64)


def _check_seed(seed: Any) -> None:
    """ValueError: no seed of a random generator."""
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if seed is not None and not (whole and seed >= 0):
        raise ValueError(f"seed is {seed!r}: it must be a whole number of at least 0")


def _padding_mask(ids: np.ndarray, mask: Any, options: GenerationConfig) -> np.ndarray | None:
    """Which of the input's tokens are no padding, (B, S) bool; None: all of them.

    Without a mask it is told from the padding token, unless this is the end token too, which may
    stand in a text; what looks like padding then gets a warning.
    """
    pad = options.pad_token_id
    if isinstance(mask, Mask):
        mask = np.ones(ids.shape) if mask.keys is None else mask.keys
    if mask is not None:
        real = host(mask) != 0
        if real.shape != ids.shape:
            raise ValueError(f"attention_mask is {real.shape}, and input_ids are {ids.shape}")
        return None if real.all() else real
    if pad >= 0 and pad not in options.ends:
        real = ids != pad
        return None if real.all() else real
    ends = np.isin(ids, options.ends)
    if ends.size and (
        ends[:, -1].any() or ends[:, :2].all(1).any() or len({*ends[:, 0].tolist()}) > 1
    ):
        warnings.warn(
            f"input_ids begin or end with the end token {ids[ends][0]}, which is the padding token "
            "too; if it is padding there, give an attention_mask",
            stacklevel=3,
        )
    return None


def _prompts(
    ids: np.ndarray, mask: np.ndarray | None, options: GenerationConfig
) -> tuple[np.ndarray, np.ndarray | None]:
    """Prompts with which sequences may begin, and their mask; or a ValueError."""
    if ids.shape[1] == 0:
        if options.bos_token_id < 0:
            raise ValueError("the prompt is empty: give at least one token, or a bos_token_id")
        return np.full((len(ids), 1), options.bos_token_id), None
    if mask is None:
        return ids, None
    if not (found := mask.any(1)).all():
        raise ValueError(
            f"prompt {int(found.argmin())} is empty: begin it with a token, such as bos_token_id"
        )
    if not mask[:, -1].all():
        raise ValueError(
            f"prompt {int(mask[:, -1].argmin())} ends with padding, and generation goes on at its "
            "end: pad on the left"
        )
    return ids, mask
