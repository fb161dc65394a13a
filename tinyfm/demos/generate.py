r"""Train a small GPT on texts, and let it go on with a prompt.

    python -m tinyfm.demos.generate                 learns from the source of your Python's library
    python -m tinyfm.demos.generate --model FOLDER --prompt "class Stack:"
    python -m tinyfm.demos.generate --model FOLDER < lines.txt       (on a terminal: a prompt)
    python -m tinyfm.demos.generate --model FOLDER --prompt "def" --show-probabilities
    python -m tinyfm.demos.generate --corpus FILE --level char

The last tenth of the texts is held out, and every score is taken there. A training replaces what is
in its folder (--save). Each line of standard input is answered by one line, in which \n is a line
end, \t a tab, and \\ a backslash; a tab parts several texts (--num-return-sequences). A space at
the end of a prompt is left to the model to write, unless its tokens are characters: elsewhere it
belongs to the next word.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

import tinyfm
from tinyfm.data import WindowBatches
from tinyfm.demos import cli, sources
from tinyfm.demos.language import (
    ESCAPES,
    LEVELS,
    add_generation_options,
    can_stream,
    complete,
    encode_prompt,
    generation_options,
    new_model,
    new_optimizer,
    new_tokenizer,
    note_unknown,
    open_ended,
    open_model,
    size_options,
)
from tinyfm.demos.learning import Look, Option, Say, Training
from tinyfm.demos.modelling import counted, train_model
from tinyfm.errors import InputError
from tinyfm.metrics import perplexity
from tinyfm.tokenizer import Tokenizer
from tinyfm.training import mean_loss

# Of each option what fits subwords, and what fits characters.
TRAINING = Training(
    kinds=("", "with --level char"),
    options={
        "steps": Option(cli.positive_int, (1300, 1300), "optimizer steps"),
        **size_options(2, vocab_size=(2000, 2000), layers=(3, 3), context=(128, 128)),
        "batch_size": Option(cli.positive_int, (8, 8), "windows of --context tokens in a batch"),
        "accumulate": Option(cli.positive_int, (1, 1), "batches that make one step"),
        "warmup": Option(
            cli.positive_int, (100, 100), "steps until the learning rate is at its peak"
        ),
        "lr": Option(cli.positive_float, (3e-3, 3e-3), "peak learning rate"),
        "clip": Option(cli.positive_float, (1.0,) * 2, "limit of the gradient's norm"),
        "dropout": Option(cli.probability, (0.0, 0.0), "share of the activations left out"),
    },
    schedules=("cosine",) * 2,
    remembered={
        "corpus": lambda value: value is None or isinstance(value, str),
        "level": lambda value: value in LEVELS,
    },
)
PROMPT = "def"  # of the samples, where Python is learnt and no other prompt is given
SAMPLE = 60  # tokens of a sample
LOOK = 10_000  # tokens, about, on which a look takes the loss


def new_parser() -> cli.Parser:
    parser = cli.Parser("generate", __doc__)
    work = parser.add_argument_group("what to do")
    work.add_argument(
        "--corpus", metavar="FILE", help='learn from this text, or from lines of {"text": ...}, '
        "each a document (may be .gz)",
    )  # fmt: skip
    work.add_argument(
        "--level", choices=LEVELS, help="what a token is: bpe: a byte or a frequent run of bytes, "
        "as in GPT-2; char: a character (default: bpe)",
    )  # fmt: skip
    TRAINING.add_folders(work, save="language-model")
    work.add_argument(
        "--prompt", type=cli.text, metavar="TEXT", help="go on with this; without it, after "
        "--model, with each line of standard input, or what is typed at a prompt",
    )  # fmt: skip
    work.add_argument(
        "--show-probabilities", action="store_true", help="show for each token how probable it and "
        "others were, under the options below (of lines of standard input on standard error)",
    )  # fmt: skip
    add_generation_options(parser, max_new_tokens=100, temperature=0.8)
    TRAINING.add_options(parser)
    cli.add_common_options(parser)
    return parser


def main(args: argparse.Namespace) -> None:
    options = generation_options(args)
    if args.show_probabilities and not can_stream(options):
        raise InputError(
            "--show-probabilities shows how one text is made: leave --beams and "
            "--num-return-sequences out"
        )
    if args.model is not None:
        if args.corpus is not None or args.level is not None:
            raise InputError("--model uses a saved model, --corpus and --level make one")
        TRAINING.refuse(args)
    device = cli.choose_device(args)

    if args.model is not None:
        model, tokenizer = open_model(args.model)
        writer = Writer(model.to(device), tokenizer, options, args.show_probabilities)
        tinyfm.manual_seed(args.seed or 0)
    else:
        say = cli.new_say(quiet=args.prompt is not None)
        writer = train(args, device, options, say)
    if args.prompt is not None:
        writer.print_text(args.prompt, "--prompt")
    elif args.model is not None:
        answer = writer.print_text if cli.on_terminal() else writer.print_line
        cli.answer_lines(answer, "One prompt a line")


# -- going on --------------------------------------------------------------------------------------


class Writer:
    """Goes on with texts, under the options of `language.generation_options`."""

    def __init__(
        self, model: Any, tokenizer: Tokenizer, options: dict[str, Any], show: bool = False
    ) -> None:
        self.model, self.tokenizer, self.options, self.show = model, tokenizer, options, show

    def encode(self, text: str, where: str) -> list[int]:
        """The ids of a prompt; InputError, naming it by `where`, if it does not do."""
        return encode_prompt(self.model, self.tokenizer, text, where)

    def prompt(self, text: str, where: str) -> tuple[str, list[int]]:
        """A prompt as it is gone on with, and its ids; characters that are not known are noted."""
        text = open_ended(self.tokenizer, text)
        note_unknown(self.tokenizer, text, where)
        return text, self.encode(text, where)

    def more(self, ids: Sequence[int], **how: Any) -> list[str]:
        """What follows a prompt; how: see `language.complete`."""
        return complete(self.model, self.tokenizer, ids, **{"options": self.options, **how})

    def print_text(self, text: str, where: str) -> None:
        """The text and what follows it, as it is made if there is one; a line between several."""
        text, ids = self.prompt(text, where)
        if self.show:
            (more,) = self.more(ids, show=print)
            print(f"\n{text}{more}")
        elif can_stream(self.options):
            print(text, end="", flush=True)
            self.more(ids, write=lambda piece: print(piece, end="", flush=True))
            print()
        else:
            print("\n---\n".join(text + more for more in self.more(ids)))

    def print_line(self, text: str, where: str) -> None:
        """One line, a blank one of blanks."""
        found: list[str] = []
        if text.strip():
            text, ids = self.prompt(text, where)
            found = self.more(ids, show=partial(print, file=sys.stderr) if self.show else None)
        print("\t".join((text + more).translate(ESCAPES) for more in found))


# -- training --------------------------------------------------------------------------------------


def train(args: argparse.Namespace, device: str, options: dict[str, Any], say: Say) -> Writer:
    """Learn a vocabulary and a model; saved to --save, also on Ctrl-C."""
    if args.level == "char" and args.vocab_size is not None:
        raise InputError(
            "--vocab-size is for --level bpe: there are as many characters as there are"
        )
    TRAINING.settle(args, lambda args: int(args.level == "char"))
    args.level = args.level or "bpe"
    if args.context < 2:
        raise InputError(f"--context {args.context}: nothing follows one token; give 2 or more")
    documents = sources.standard_library() if args.corpus is None else sources.read(args.corpus)
    texts, held_out = sources.split(documents)
    tinyfm.manual_seed(args.seed)
    tokenizer = new_tokenizer(args, texts, args.level)
    model = new_model(args, tokenizer).to(device)
    writer = Writer(model, tokenizer, options, args.show_probabilities)
    ids, test_ids = stream(texts, tokenizer), stream(held_out, tokenizer)
    for what, found in (("to learn from", ids), ("held out", test_ids)):
        if len(found) < args.context:
            raise InputError(
                f"{args.corpus or 'the library'}: {len(found)} tokens {what} are fewer than "
                f"--context {args.context}; give more text or a smaller --context"
            )
    batches = WindowBatches(ids, length=args.context, rows=args.batch_size, seed=args.seed)
    tests = blocks(test_ids, args)
    sample = new_sample(args, held_out, writer)
    look = new_look(thinned(blocks(ids, args), args), thinned(tests, args), sample, writer, say)

    size = sum(map(len, texts))
    what = (
        f"{counted(len(texts), 'text')} of {counted(size, 'character')}, "
        f"{counted(len(ids), 'token')}"
    )
    train_model(
        TRAINING, args, model, tokenizer, batches, new_optimizer(model), look, say, what,
        unit="in the vocabulary",
    )  # fmt: skip
    with model.evaluating():
        loss = mean_loss(model, tests)
    scored = np.concatenate([batch["labels"][:, 1:].ravel() for batch in tests])
    unknown = int((scored == tokenizer.unk_id).sum())
    say(
        f"{counted(len(held_out), 'held-out text')}: loss {loss:.3f}, perplexity "
        f"{perplexity(loss, 1):.2f} of {counted(len(scored), 'token')}"
        + (f", {unknown:,} of them characters that are not in the vocabulary" if unknown else "")
    )
    return writer


def stream(texts: Sequence[str], tokenizer: Tokenizer) -> np.ndarray:
    """The ids of all texts, an end token after each (L,)."""
    end = [tokenizer.eos_id]
    return np.concatenate([[*ids, *end] for ids in tokenizer.encode_batch(texts)])


def blocks(ids: np.ndarray, args: argparse.Namespace) -> list[dict[str, np.ndarray]]:
    """A text cut into windows, the last part of one left out, in batches as large as those of the
    training."""
    rows = ids[: len(ids) // args.context * args.context].reshape(-1, args.context)
    cuts = range(args.batch_size, len(rows), args.batch_size)
    return [{"input_ids": part, "labels": part} for part in np.split(rows, cuts)]


def thinned(batches: list[Any], args: argparse.Namespace) -> list[Any]:
    """Some of the batches, from all parts of the text: as many tokens as a look takes time for."""
    wanted = max(1, LOOK // (args.batch_size * args.context))
    return batches[:: -(-len(batches) // wanted)]


def new_sample(args: argparse.Namespace, held_out: Sequence[str], writer: Writer) -> list[int]:
    """The ids that the samples go on with: --prompt, or a beginning of what is to be learnt."""
    tokenizer = writer.tokenizer
    if args.prompt is not None:
        return writer.encode(open_ended(tokenizer, args.prompt), "--prompt")
    begin = PROMPT if args.corpus is None else held_out[0].strip()[:20]
    ids = tokenizer.encode(open_ended(tokenizer, begin)).ids[: args.context // 2]
    return ids or [tokenizer.eos_id]  # of a blank text


def new_look(learnt: list[Any], tests: list[Any], ids: list[int], writer: Writer, say: Say) -> Look:
    """What fit's `evaluate` does: a sample, and the losses, returned."""
    room = min(writer.options["max_new_tokens"], SAMPLE, writer.model.position_limit() - len(ids))
    options = writer.options | {"max_new_tokens": room}

    def look(model: Any) -> dict[str, float]:
        more, *_ = writer.more(ids, options=options, seed=0)
        for line in (writer.tokenizer.decode(ids) + more).splitlines():
            say(f"  | {line}")
        loss, validation = mean_loss(model, learnt), mean_loss(model, tests)
        perplexed = perplexity(validation, 1)
        say(f"  loss {loss:.3f}; held out {validation:.3f}, perplexity {perplexed:.2f}")
        return {"train_loss": loss, "validation_loss": validation}

    return look


if __name__ == "__main__":
    sys.exit(cli.run(main, new_parser()))
