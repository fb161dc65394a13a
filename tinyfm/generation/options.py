"""The options of `generate`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np

IDS = {"bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"}
# What only sampling looks at, each with the values that are no wish to sample: those that change
# nothing, the default, and for the temperature the one that asks for the most probable token.
SAMPLING: dict[str, tuple[float, ...]] = {"temperature": (0, 1), "top_k": (0, 50), "top_p": (1,)}
BEAMS: dict[str, tuple[float, ...]] = {"length_penalty": (1,), "early_stopping": (False,)}
# What transformers has besides and would make another text of; of the first four the value 1 does
# nothing, and of all no value, 0 or an empty one.
AT_ONE = ("encoder_repetition_penalty", "guidance_scale", "num_beam_groups", "typical_p")
FOREIGN = {
    *AT_ONE, "begin_suppress_tokens", "constraints", "diversity_penalty", "dola_layers",
    "encoder_no_repeat_ngram_size", "epsilon_cutoff", "eta_cutoff",
    "exponential_decay_length_penalty", "force_words_ids", "forced_decoder_ids", "max_time",
    "min_p", "penalty_alpha", "remove_invalid_values", "renormalize_logits", "sequence_bias",
    "stop_strings", "suppress_tokens", "token_healing", "top_h", "watermarking_config",
}  # fmt: skip


def _count(default: int | None, least: int) -> Any:
    return field(default=default, metadata={"least": least})


def _between(default: float, low: float, high: float, open_low: bool = False) -> Any:
    return field(default=default, metadata={"range": (low, high, open_low)})


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """The options of `generate`; their names and their defaults are Hugging Face's.

    max_new_tokens, max_length: when to stop.  max_length counts the prompt, or the start token of
        an encoder-decoder model; max_new_tokens does not, and wins over max_length.  Without either
        20 new tokens are made.
    min_length, min_new_tokens: no end token before so many tokens, counted in the same way; of
        the two min_new_tokens wins.
    do_sample: draw each token from the model's probabilities, changed by temperature, top_k and
        top_p in this order; otherwise the most probable one is taken.
    temperature: the logits are divided by it; 0 is the most probable token.
    top_k: only so many tokens, the most probable ones (0: all); of equal ones all are kept.
    top_p: only the most probable tokens that together reach this probability.
    repetition_penalty: above 1 makes tokens that are there already less probable: their positive
        scores are divided by it and their negative ones multiplied, once each.  Padding on the left
        is not there.  (Keskar et al. 2019, section 4.1)
    no_repeat_ngram_size: no sequence of so many tokens comes twice (0: it may).
    num_beams: sequences that run side by side for each input; 1 is greedy search.
    length_penalty: the exponent of the length by which a beam's log-probability is divided: above
        0 it favours long sequences, at 0 it does nothing.
    early_stopping: when beams stop, see `beam_search`.
    num_return_sequences: how many sequences come back for each input: of the finished beams the
        best first, or as many samples.
    eos_token_id, pad_token_id: what ends a sequence (-1: nothing does; a list: each of its ids)
        and what follows its end (-1: the end token, of several the first).
    bos_token_id: what an empty prompt begins with (-1: not known, an error).
    decoder_start_token_id: what an encoder-decoder model's sequence begins with (-1: an error).
    bad_words_ids: lists of ids that never come one after the other.
    forced_bos_token_id, forced_eos_token_id: the only choice for the token after the first one, and
        for the last one where the length runs out.
    """

    max_new_tokens: int | None = _count(None, least=0)
    max_length: int | None = _count(None, least=1)
    min_length: int = _count(0, least=0)
    min_new_tokens: int = _count(0, least=0)
    do_sample: bool = False
    temperature: float = _between(1.0, 0, 1_000_000)
    top_k: int = _count(50, least=0)
    top_p: float = _between(1.0, 0, 1, open_low=True)
    repetition_penalty: float = _between(1.0, 0, 1_000_000, open_low=True)
    no_repeat_ngram_size: int = _count(0, least=0)
    num_beams: int = _count(1, least=1)
    length_penalty: float = _between(1.0, -100, 100)  # or powers overflow
    early_stopping: bool | str = False
    num_return_sequences: int = _count(1, least=1)
    bos_token_id: int = _count(-1, least=-1)
    eos_token_id: int | Sequence[int] = -1
    pad_token_id: int = _count(-1, least=-1)
    decoder_start_token_id: int = _count(-1, least=-1)
    bad_words_ids: Sequence[Sequence[int]] = ()
    forced_bos_token_id: int | None = _count(None, least=0)
    forced_eos_token_id: int | None = _count(None, least=0)

    def __post_init__(self) -> None:
        for entry in fields(self):
            name, value, least = entry.name, getattr(self, entry.name), entry.metadata.get("least")
            if "range" in entry.metadata:
                _check_range(name, value, *entry.metadata["range"])
            if least is None or (value is None and entry.default is None):
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                raise TypeError(f"{name} is {value!r}: it must be a whole number")
            if value < least:
                raise ValueError(f"{name} is {value}: it must be at least {least}")
        _check_ends(self.eos_token_id)
        words = self.bad_words_ids
        if not isinstance(words, list | tuple) or not all(map(_is_word, words)):
            raise ValueError(f"bad_words_ids is {words!r}: it must hold lists of ids, none empty")
        if not isinstance(self.do_sample, bool):
            raise TypeError(f"do_sample is {self.do_sample!r}: it must be True or False")
        if not isinstance(self.early_stopping, bool) and self.early_stopping != "never":
            raise ValueError(
                f"early_stopping is {self.early_stopping!r}: it must be True, False or 'never'"
            )
        if self.do_sample and self.num_beams > 1:
            raise ValueError(
                f"do_sample with num_beams {self.num_beams}: beams do not sample, leave one out"
            )
        if not self.do_sample and self.num_return_sequences > self.num_beams:
            raise ValueError(
                f"num_return_sequences is {self.num_return_sequences}: without do_sample it must "
                f"be at most num_beams, which is {self.num_beams}"
            )

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end a sequence, each once; none: it goes on to its full length."""
        given = self.eos_token_id
        ids = (given,) if isinstance(given, int | np.integer) else given
        return tuple(dict.fromkeys(int(i) for i in ids if i != -1))

    @classmethod
    def of(cls, config: Any, options: dict[str, Any], saved: dict[str, Any] | None = None) -> Self:
        """The given options; those left out (or None) from what was saved with the model.

        saved: the content of generation_config.json.  Without it the options come from the model's
            config, where older models have them.  Ids that it lacks come from the config as well.

        A length that is given stands alone: the other one that was saved takes no part; and so do
        saved ways to choose tokens where another one is given.

        A warning names an option that is given in vain: one of sampling where nothing is sampled,
        one of beams where there are none, a least number of new tokens above the most.

        ValueError: a token to be forced or forbidden that the model's vocabulary has not.
        """
        saved = saved or {}
        names = {entry.name for entry in fields(cls)}
        if unknown := options.keys() - names:
            known = ", ".join(sorted(names))
            raise TypeError(f"generate has no option {min(unknown)!r}: it has {known}")
        given = {name: value for name, value in options.items() if value is not None}
        left_out = names - given.keys()
        lengths = {"max_new_tokens", "max_length"}
        if given.keys() & lengths:
            left_out -= lengths
        if given.get("num_beams", 1) != 1:
            left_out -= {"do_sample"}
        if given.get("do_sample"):
            left_out -= {"num_beams"}
        found = {name: saved.get(name) for name in left_out}
        for name in left_out & (IDS - saved.keys()) if saved else left_out:
            found[name] = getattr(config, name, None)
        made = cls(**given, **{name: value for name, value in found.items() if value is not None})
        if (size := getattr(config, "vocab_size", None)) is not None:
            made._check_vocabulary(size)
        for reason in made._vain(given):
            warnings.warn(reason, stacklevel=3)
        return made

    def _check_vocabulary(self, size: int) -> None:
        """ValueError: an id to be forced or forbidden is outside the vocabulary."""
        forced = ("forced_bos_token_id", "forced_eos_token_id")
        named = {name: [i] for name in forced if (i := getattr(self, name)) is not None}
        named["bad_words_ids"] = [i for word in self.bad_words_ids for i in word]
        for name, ids in named.items():
            if ids and max(ids) >= size:
                raise ValueError(
                    f"{name} has the id {max(ids)}, and the vocabulary has {size} tokens, 0 to "
                    f"{size - 1}: leave it out"
                )

    def _vain(self, given: dict[str, Any]) -> Iterator[str]:
        """What is to be said of given options that have no effect."""

        def wanted(neutral: dict[str, tuple[float, ...]]) -> set[str]:
            return {name for name in given.keys() & neutral if given[name] not in neutral[name]}

        if not self.do_sample and (names := wanted(SAMPLING)):
            remedy = "leave num_beams out and give" if self.num_beams > 1 else "give"
            yield f"{min(names)} has no effect, for nothing is sampled: {remedy} do_sample=True"
        if self.num_beams == 1 and (names := wanted(BEAMS)):
            yield f"{min(names)} has no effect, for there are no beams: give num_beams"
        most = self.max_new_tokens
        if given.get("min_new_tokens") and most is not None and self.min_new_tokens > most:
            yield (
                f"min_new_tokens {self.min_new_tokens} is more than max_new_tokens {most}, where "
                "generation stops: give a smaller one"
            )


def foreign_options(saved: dict[str, Any]) -> list[str]:
    """The names in a generation_config.json, or a config.json, of options that would change the
    text and that `generate` does not have."""
    return sorted(
        name
        for name in FOREIGN
        if (value := saved.get(name)) and not (value == 1 and name in AT_ONE)
    )


def _check_range(name: str, value: Any, low: float, high: float, open_low: bool) -> None:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not (low < value <= high or (value == low and not open_low)):
        words = f"above {low} and at most {high:,}" if open_low else f"between {low} and {high:,}"
        raise ValueError(f"{name} is {value!r}: it must be {words}")


def _check_ends(given: Any) -> None:
    """An error unless it is an id, -1, or a list of ids."""
    ids = given if isinstance(given, list | tuple) else [given]
    if any(isinstance(i, bool) or not isinstance(i, int | np.integer) for i in ids):
        raise TypeError(f"eos_token_id is {given!r}: it must be a whole number or a list of them")
    if not ids or min(ids) < (-1 if ids is not given else 0):
        raise ValueError(f"eos_token_id is {given!r}: it must be an id, -1 for none, or ids")


def _is_word(word: Any) -> bool:
    """Whether word is a list of ids, at least one."""
    return (
        isinstance(word, list | tuple)
        and len(word) > 0
        and all(isinstance(i, int | np.integer) and i >= 0 for i in word)
    )
