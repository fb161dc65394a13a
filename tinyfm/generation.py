"""Text out of a model: `model.generate()`, over a small protocol that every generating model has.

state = model.begin(input_ids, attention_mask, rows, max_length)
    the encoder runs once, caches are taken; rows (R,): the input row of each running sequence
logits = model.step(ids, state)
    ids (R, n) -> logits (R, V) of the last position, a plain array; the first step gets the
    whole decoder prompt, the later ones one new token a row
state.reorder(rows)
    go on with these rows of the running sequences (beam search)
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from tinyfm.backend import Array, array_module, keep_memory, to_numpy

DEFAULT_NEW_TOKENS = 20


class GenerationMixin:
    """Adds `generate` to a model that has a config, `begin` and `step`."""

    config: Any

    def generate(
        self,
        input_ids: Array,
        attention_mask: Array | None = None,
        *,
        max_new_tokens: int | None = None,
        max_length: int | None = None,
        eos_token_id: int | None = None,
        pad_token_id: int | None = None,
        decoder_start_token_id: int | None = None,
        use_cache: bool = True,
    ) -> np.ndarray:
        """Greedy decoding of an encoder-decoder model: ids (rows, length), the start token first.

        input_ids (B, S), attention_mask (B, S).  Each row takes the most probable token until it
        gives the end token; what follows in that row is padding, and when all rows have ended
        generation stops.  max_length counts the start token, max_new_tokens does not; without
        either 20 new tokens are made.  use_cache=False computes everything anew at each step: the
        same tokens, for comparison.
        """
        config = self.config
        eos = config.eos_token_id if eos_token_id is None else eos_token_id
        pad = config.pad_token_id if pad_token_id is None else pad_token_id
        start = config.decoder_start_token_id
        start = start if decoder_start_token_id is None else decoder_start_token_id
        length = self._length(max_new_tokens, max_length)
        count = len(input_ids)
        ids = np.full((count, 1), start, np.int64)
        running = np.ones(count, bool)
        rows = np.arange(count)
        keep_memory()
        with self.evaluating():  # type: ignore[attr-defined]
            state: Any = None
            while ids.shape[1] < length and running.any():
                if state is None or not use_cache:
                    state = self.begin(input_ids, attention_mask, rows, length)
                    logits = self.step(ids, state)
                else:
                    logits = self.step(ids[:, -1:], state)
                best = to_numpy(array_module(logits).argmax(logits, -1))
                best = np.where(running, best, pad)
                running &= best != eos
                ids = np.concatenate([ids, best[:, None].astype(np.int64)], 1)
        return ids

    def begin(
        self, input_ids: Array, attention_mask: Array | None, rows: Array, max_length: int
    ) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not generate")

    def step(self, ids: Array, state: Any) -> Array:
        raise NotImplementedError(f"{type(self).__name__} does not generate")

    def _length(self, max_new_tokens: int | None, max_length: int | None) -> int:
        """The length at which to stop, start token included, within the model's positions."""
        for name, value, least in (
            ("max_new_tokens", max_new_tokens, 0),
            ("max_length", max_length, 1),
        ):
            if value is not None and value < least:
                raise ValueError(f"{name} is {value}: it must be at least {least}")
        if max_new_tokens is not None:
            length = 1 + max_new_tokens
        else:
            length = 1 + DEFAULT_NEW_TOKENS if max_length is None else max_length
        limit = self.config.max_position_embeddings
        if length > limit:
            warnings.warn(
                f"generation stops at the model's {limit} positions instead of {length}",
                stacklevel=3,
            )
        return min(length, limit)
