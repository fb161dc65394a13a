"""What the commands around GPT share: sizes, new models, the optimizer, and going on with texts.

What may be said of the way in which
tokens are chosen is added by `add_generation_options` and read by `generation_options`; `complete`
goes on with a text under these options and writes it while it is made.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tinyfm import models, optim
from tinyfm.backend import to_numpy
from tinyfm.demos import cli, modelling
from tinyfm.demos.learning import Option
from tinyfm.demos.modelling import check_heads, notes, vocabulary
from tinyfm.errors import InputError
from tinyfm.generation import (
    GenerationConfig,
    NoTokenLeft,
    TextStreamer,
    continued,
    probabilities,
    processors,
)
from tinyfm.tokenizer import Tokenizer

FAMILIES = (models.GPT2Config.model_type, models.OpenAIGPTConfig.model_type)
LEVELS = ("bpe", "char")  # what a token is
SHOWN = 5  # tokens of which --show-probabilities tells
Write = Callable[[str], None]


# -- models ----------------------------------------------------------------------------------------


def size_options(kinds: int, **changes: Any) -> dict[str, Option]:
    """The options of a GPT that is made anew; changes: other defaults, one for each kind."""
    options = modelling.size_options(kinds, **changes)
    del options["ffn"]  # four times the width, as in every GPT
    context = changes.get("context", (128,) * kinds)
    options["context"] = Option(cli.positive_int, context, "tokens that the model sees at once")
    return options


def new_tokenizer(args: argparse.Namespace, texts: Iterable[str], level: str = "bpe") -> Tokenizer:
    """A vocabulary learnt from the texts; with --resume the one of the training that goes on."""
    if level == "char":
        return vocabulary(args, lambda: Tokenizer.train_characters(texts))
    return vocabulary(args, lambda: Tokenizer.train_byte_level(texts, args.vocab_size))


def new_model(args: argparse.Namespace, tokenizer: Tokenizer) -> models.GPT2LMHeadModel:
    """A GPT-2 of the sizes in args, with random weights."""
    check_heads(args)
    config = models.GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=args.context,
        n_embd=args.hidden_size,
        n_layer=args.layers,
        n_head=args.heads,
        initializer_range=0.02 * (768 / args.hidden_size) ** 0.5,
        resid_pdrop=args.dropout,
        embd_pdrop=args.dropout,
        attn_pdrop=args.dropout,
        bos_token_id=tokenizer.bos_id,
        eos_token_id=tokenizer.eos_id,
    )
    return modelling.new_model(models.GPT2LMHeadModel, config)


def open_model(folder: str) -> tuple[Any, Tokenizer]:
    """The language model in a folder, a GPT-2 or GPT-1, and its tokenizer; or an InputError."""
    return modelling.open_model(folder, "LMHeadModel", families=FAMILIES)


def new_optimizer(model: Any) -> optim.AdamW:
    """GPT-3's (appendix B): beta 2 is 0.95; decay of the matrices, none of norms and biases."""
    return optim.AdamW(
        model.parameters(), lr=1.0, betas=(0.9, 0.95), weight_decay=0.1, decay=lambda p: p.ndim > 1
    )


# -- how tokens are chosen -------------------------------------------------------------------------

SAMPLING = ("temperature", "top_k", "top_p")
BEAMS = ("length_penalty", "early_stopping")
STOPPING = {"yes": True, "no": False, "never": "never"}


def add_generation_options(
    parser: argparse.ArgumentParser, max_new_tokens: int, temperature: float
) -> None:
    """The options of `generate`; the defaults of two of them differ from command to command."""
    how = parser.add_argument_group("how tokens are chosen")

    def add(name: str, kind: Callable[[str], Any], metavar: str, meaning: str) -> None:
        how.add_argument(name, type=kind, metavar=metavar, help=meaning)

    how.add_argument(
        "--max-new-tokens", type=cli.seed, metavar="N", default=max_new_tokens, help="stop after "
        "so many (default: %(default)s)",
    )  # fmt: skip
    add("--min-new-tokens", cli.seed, "N", "no end before so many")
    add(
        "--temperature", cli.number, "X", "draw tokens: near 0 mostly the probable ones, above 1 "
        f"also improbable ones; 0: always the most probable one (default: {temperature})",
    )  # fmt: skip
    add("--top-k", cli.seed, "K", "draw only from the K most probable tokens (0: all; default: 50)")
    add("--top-p", cli.number, "P", "draw only from those that together reach this probability")
    add("--repetition-penalty", cli.number, "X", "above 1: what is there already becomes rarer")
    add("--no-repeat-ngram-size", cli.seed, "N", "no N tokens come twice")
    add(
        "--beams", cli.positive_int, "N", "do not draw, but search the most probable text, N texts "
        "at a time",
    )  # fmt: skip
    add("--length-penalty", cli.number, "X", "of beams: above 0 favours long texts (default: 1)")
    how.add_argument(
        "--early-stopping", choices=STOPPING, help="of beams: yes stops when N texts are finished, "
        "no when a better one is unlikely, never when there can be none (default: no)",
    )  # fmt: skip
    add("--num-return-sequences", cli.positive_int, "N", "so many texts (default: 1)")
    parser.set_defaults(default_temperature=temperature)


def generation_options(args: argparse.Namespace) -> dict[str, Any]:
    """What `model.generate` is to be told; those left out are the model's own, but for what --help
    says a default of: how many texts, how long, drawn or searched for.

    InputError: an option out of its range, or two that contradict each other.
    """
    given = {name: getattr(args, name) for name in (*SAMPLING, *BEAMS)}
    given = {name: value for name, value in given.items() if value is not None}
    beams = args.beams or 1
    options: dict[str, Any] = {
        name: value
        for name in ("max_new_tokens", "min_new_tokens", "repetition_penalty",
                     "no_repeat_ngram_size", "num_return_sequences")
        if (value := getattr(args, name)) is not None
    }  # fmt: skip
    if beams > 1:
        _refuse(
            given, SAMPLING, f"is for drawing, and --beams {beams} draws nothing: leave one out"
        )
        options |= {"num_beams": beams, "do_sample": False}
        options |= {name: given[name] for name in BEAMS if name in given}
        if "early_stopping" in given:
            options["early_stopping"] = STOPPING[args.early_stopping]
    else:
        _refuse(given, BEAMS, "is for beams: give --beams 2 or more")
        temperature = given.pop("temperature", args.default_temperature)
        if temperature == 0:
            _refuse(given, SAMPLING, "is for drawing: give a --temperature above 0")
        options |= {"do_sample": temperature != 0, "num_beams": 1, **given}
        if temperature != 0:
            options["temperature"] = temperature
    options.setdefault("num_return_sequences", 1)
    wanted = options["num_return_sequences"]
    if not options["do_sample"] and wanted > beams:
        raise InputError(
            f"--num-return-sequences {wanted}: there are so many with --beams {wanted} or a "
            "--temperature above 0"
        )
    return checked(options)


def checked(options: dict[str, Any]) -> dict[str, Any]:
    """Options of `generate`; InputError, as of the command line: one out of its range, or a least
    length above the largest."""
    least, most = options.get("min_new_tokens", 0), options.get("max_new_tokens", math.inf)
    if least > most:
        raise InputError(f"--min-new-tokens {least} is more than --max-new-tokens {most}")
    try:
        GenerationConfig(**options)
    except ValueError as error:
        name, _, rest = str(error).partition(" ")
        raise InputError(f"--{name.replace('_', '-')} {rest}") from error
    return options


def _refuse(given: dict[str, Any], names: Sequence[str], why: str) -> None:
    """InputError if one of the names is given."""
    for name in names:
        if name in given:
            raise InputError(f"--{name.replace('_', '-')} {why}")


# -- going on with a text --------------------------------------------------------------------------


def open_ended(tokenizer: Tokenizer, text: str) -> str:
    """A prompt without a space at its end, where the space is no token of its own.

    It belongs to the next word's token, and a model that has read it alone has seen no such text.
    """
    return text if tokenizer.token_to_id(" ") is not None else text.removesuffix(" ")


def note_unknown(tokenizer: Tokenizer, text: str, where: str) -> None:
    """Name the characters that the vocabulary lacks, on standard error: the model sees <unk>."""
    unknown = tokenizer.unk_id
    if unknown is None or unknown not in tokenizer.encode(text).ids:
        return
    found = [c for c in dict.fromkeys(text) if unknown in tokenizer.encode(c).ids]
    print(f"{where}: the model does not know {', '.join(map(repr, found))}", file=sys.stderr)


def encode_prompt(model: Any, tokenizer: Tokenizer, text: str, where: str) -> list[int]:
    """The ids of a text to go on with; <|endoftext|> and its like in it are the special tokens.

    An empty text is the begin token.  InputError, naming the text by `where`: it is empty and there
    is no such token, or it is too long for the model.
    """
    ids = tokenizer.encode(text, special_tokens=True).ids
    if not ids and (begin := model.config.bos_token_id) is not None:
        ids = [begin]
    if not ids:
        raise InputError(f"{where}: no text, and the model has no token to begin with; give a word")
    if len(ids) > (limit := model.position_limit()):
        raise InputError(
            f"{where}: {len(ids)} tokens, and the model takes {limit} ({len(ids)} > {limit}); cut "
            "the text"
        )
    return ids


def complete(
    model: Any,
    tokenizer: Tokenizer,
    ids: Sequence[int],
    options: dict[str, Any],
    write: Write | None = None,
    show: Write | None = None,
    seed: int | None = None,
) -> list[str]:
    """The texts that follow ids, without their special tokens: num_return_sequences of them, or as
    many as there are under the options.

    options: as of `generation_options`.
    write: gets the pieces of the text as they are made; of several texts, and of beams, none.
    show: gets a line for each step: the token, and what else was probable.  Not with several.
    seed: of what is drawn; without one it comes from the one generator.

    A text that stops for lack of the model's positions, and missing texts, are noted on standard
    error.  InputError: the options, or those of the model's folder, leave no token to go on with.
    """
    limit, wanted = model.position_limit(), len(ids) + options["max_new_tokens"]
    room = min(wanted, limit) - len(ids)
    least = GenerationConfig.of(model.config, options, model.generation_config).min_new_tokens
    options = options | {"max_new_tokens": room, "min_new_tokens": min(least, room)}
    listeners: dict[str, Any] = {}
    if show is not None:
        steps = _Steps(model, tokenizer, ids, options, show)
        listeners = {"streamer": steps, "on_step": steps.note}
    elif write is not None and can_stream(options):
        skip = tokenizer.special_ids
        listeners = {"streamer": TextStreamer(tokenizer, write, skip=skip, before=ids)}
    made = _generated(model, ids, options, seed, listeners)
    if made.shape[1] == limit < wanted:
        print(f"the text stops at the {limit} tokens that the model takes", file=sys.stderr)
    return [continued(tokenizer, ids, row) for row in made[:, len(ids) :].tolist()]


def _generated(
    model: Any,
    ids: Sequence[int],
    options: dict[str, Any],
    seed: int | None,
    listeners: dict[str, Any],
) -> np.ndarray:
    """The sequences that there are; an InputError if there is none."""
    prompt = np.array([ids])
    beams = options.get("num_beams", 1) > 1 and options["max_new_tokens"] > 0
    # All ones: an end token in the prompt parts texts there and is no padding.
    how = {"seed": seed, "return_scores": beams, **options, **listeners}
    try:
        with notes():
            made = model.generate(prompt, np.ones_like(prompt), **how)
            if not beams:
                return made
            if not (found := made.scores > -np.inf).any():
                raise NoTokenLeft
            return made.sequences[found]
    except NoTokenLeft as error:
        raise InputError(
            "the options forbid every token with which the text could go on; give a larger "
            "--no-repeat-ngram-size or a smaller --min-new-tokens, or take bad_words_ids out of "
            "the model's generation_config.json"
        ) from error


# A text in one line, as an answer to a line of standard input, and none that commands a terminal.
CONTROLS = {chr(i): rf"\x{i:02x}" for i in (*range(32), *range(127, 160))}
ESCAPES = str.maketrans(CONTROLS | {"\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t"})


def can_stream(options: dict[str, Any]) -> bool:
    """Whether there is one text, whose tokens stay."""
    return options.get("num_return_sequences", 1) == 1 and options.get("num_beams", 1) == 1


def _letters_of_bytes() -> dict[str, int]:
    """The byte that each letter of a byte-level vocabulary stands for: for itself, where it can be
    seen; the others have letters from 256 on."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in seen]
    return {chr(i): i for i in seen} | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTES = _letters_of_bytes()


def token_name(tokenizer: Tokenizer, token: int) -> str:
    """The token's text in quotes, with parts of characters by their bytes; or its name, where it
    has no text."""
    text, name = tokenizer.decode([token]), str(tokenizer.id_to_token(token))
    if "\ufffd" in text and BYTES.keys() >= {*name}:
        data = bytes(BYTES[letter] for letter in name)
        return f"'{data.decode('utf-8', errors='backslashreplace')}'"
    return repr(text) if text else name


class _Steps:
    """A streamer that tells for each token from which probabilities it was chosen."""

    def __init__(
        self,
        model: Any,
        tokenizer: Tokenizer,
        ids: Sequence[int],
        options: dict[str, Any],
        show: Write,
    ) -> None:
        self.tokenizer, self.ids, self.show = tokenizer, [*ids], show
        self.config = GenerationConfig.of(model.config, options, model.generation_config)
        self.changes = processors(self.config, len(ids), len(ids) + options["max_new_tokens"])

    def note(self, logits: Any) -> None:
        """What on_step calls: keep the probabilities that the options make of the logits (1, V)."""
        for change in self.changes:
            logits = change(np.array([self.ids]), logits)
        config = self.config
        if config.do_sample:
            how = (config.temperature, config.top_k, config.top_p)
            self.weights = probabilities(to_numpy(logits), *how)[0]
        else:
            self.weights = probabilities(to_numpy(logits))[0]

    def __call__(self, ids: np.ndarray) -> None:
        (new,) = (int(i) for i in ids)
        best = [i for i in np.argsort(-self.weights, kind="stable")[:SHOWN] if self.weights[i] > 0]
        others = "  ".join(f"{token_name(self.tokenizer, i)} {self.weights[i]:.3f}" for i in best)
        name = token_name(self.tokenizer, new)
        self.show(f"{name:20} {self.weights[new]:.3f}  of  {others}")
        self.ids.append(new)

    def end(self) -> None:
        """Nothing is held back."""
