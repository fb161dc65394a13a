"""Texts out of texts, by a BART: spoilt ones restored, long ones summarised."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyfm.data import example_batches
from tinyfm.demos.modelling import BATCH_TOKENS, counted
from tinyfm.errors import InputError
from tinyfm.models import BartConfig
from tinyfm.tokenizer import Tokenizer

FAMILIES, HEAD = (BartConfig.model_type,), "ForConditionalGeneration"
MASKS = ("[MASK]", "<mask>")  # how users may write it
MORE = 20  # tokens, by which a text may become longer than the spoilt one
# What a folder may say of summaries is nothing to a text that is to be restored.
RESTORING = {
    "num_beams": 4,
    "length_penalty": 1.0,
    "min_length": 0,
    "no_repeat_ngram_size": 0,
    "early_stopping": False,
}


def generation_config(tokenizer: Tokenizer, max_length: int) -> dict[str, Any]:
    """What the folder of a model tells `generate`: how long a text may be, and how it begins.

    Without a bound, one that never comes to its end would go on for ever.
    """
    return {
        "max_length": max_length,
        "forced_bos_token_id": tokenizer.bos_id,
        "forced_eos_token_id": tokenizer.eos_id,
    }


class Restored(NamedTuple):
    """score: the log-probability of the text, by its length (see --length-penalty)."""

    text: str
    score: float


class Rewriter:
    """A model with its tokenizer; options: of `generate`, where they are not the model's own."""

    def __init__(self, model: Any, tokenizer: Tokenizer, options: dict[str, Any]) -> None:
        self.model, self.tokenizer, self.options = model, tokenizer, dict(options)
        most = self.longest - 1  # besides the start token
        for name in ("min_new_tokens", "max_new_tokens"):
            if name in options:
                self.options[name] = min(options[name], most)

    @property
    def longest(self) -> int:
        """How many tokens a text may have, special ones included."""
        return self.model.position_limit()

    def _room(self, bound: int) -> dict[str, int]:
        """A bound on the length: this, or what --min-new-tokens asks for, if that is more."""
        least = self.options.get("min_new_tokens", 0) + 2  # the start token, the end token
        return {"max_length": min(max(bound, least), self.longest)}

    # -- spoilt texts ------------------------------------------------------------------------------

    def encode(self, text: str, where: str) -> list[int]:
        """The ids of a text with masks.

        InputError, naming the text by `where`: there is no mask in it or nothing else, or it is too
        long; or the vocabulary has no mask.
        """
        known = self.tokenizer
        if known.mask_id is None:
            raise InputError(
                "the tokenizer has no <mask> token; take a model that restores spoilt texts"
            )
        mask = str(known.id_to_token(known.mask_id))
        for name in MASKS:
            text = text.replace(name, mask)
        ids = known.encode(text, special_tokens=True).ids
        if known.mask_id not in ids:
            raise InputError(f"{where}: no {mask} in {text!r}; put it where words are wanted")
        if not set(ids) - set(known.special_ids):
            raise InputError(f"{where}: nothing but {mask} in {text!r}; put words beside it")
        if len(ids) > self.longest:
            raise InputError(
                f"{where}: {len(ids)} tokens with the special ones, and the model takes "
                f"{self.longest}; cut the text"
            )
        return ids

    def restore(self, ids: Sequence[int], **options: Any) -> list[Restored]:
        """The best texts that beams find for a spoilt one, as many as there are beams."""
        how = RESTORING | self._room(len(ids) + MORE) | self.options | options
        output = self.model.generate(
            np.array([ids]), num_return_sequences=how["num_beams"], return_scores=True, **how
        )
        # The score of a greedy text comes token by token.
        scores = output.scores if output.scores.ndim == 1 else output.scores.mean(1)
        texts = (self.tokenizer.decode(row) for row in output.sequences)
        return [Restored(*each) for each in zip(texts, scores.tolist(), strict=True)]

    def with_masks(self, ids: Sequence[int]) -> str:
        """A spoilt text, its masks apart from the words around them."""
        mask = str(self.tokenizer.id_to_token(self.tokenizer.mask_id))
        text = self.tokenizer.decode(ids[1:-1], special_tokens=True)
        return " ".join(text.replace(mask, f" {mask} ").split())

    # -- long texts --------------------------------------------------------------------------------

    def summarize(self, texts: Sequence[str]) -> list[str]:
        """A summary of each text; of one that is too long, of its beginning."""
        encoded = self.tokenizer.encode_batch(texts, max_length=self.longest)
        if cut := sum(len(ids) == self.longest for ids in encoded):
            print(
                f"{counted(cut, 'text')} of {self.longest} tokens or more, of which the model "
                "reads the beginning",
                file=sys.stderr,
            )
        summaries = [""] * len(texts)
        own = self.model.generation_config or {}
        how = (self._room(own["max_length"]) if own.get("max_length") else {}) | self.options
        beams = (own | how).get("num_beams", 1)
        for indexes, batch in example_batches(
            [{"input_ids": ids} for ids in encoded],
            max_tokens=max(1, BATCH_TOKENS // beams),
            pad_id=self.tokenizer.pad_id,
        ):
            made = self.model.generate(**batch, **how)
            for i, row in zip(indexes, made, strict=True):
                summaries[i] = self.tokenizer.decode(row)
        return summaries
