"""Compare the five models on one text, or architectures on one task.

    python -m tinyfm.demos.compare --text "Thank you for inviting me to your party last week."
    python -m tinyfm.demos.compare --architectures      encoder-decoder, language model, prefix LM

--text shows how the Transformer, BERT, GPT, BART and T5 are trained on it: what each reads, whom
each position sees, and what it has to say. Nothing is learnt. T5 hides the end of a short text; to
hide what the paper's figure does, name it: --hide "for inviting" --hide last.

--architectures: they learn to translate from the sentences of the embedded Korean-English grammar:
the same batches in the same order, as many steps, the same blocks. At equal parameters: half of the
layers in the encoder and half in the decoder, or one stack for both. At equal compute: as many
layers in each of the two. The table has parameters, operations, and scores on sentences that were
held out.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from tinyfm import plot
from tinyfm.demos import architectures, cli, drawing
from tinyfm.demos.five_models import TRANSLATIONS, Vocabulary, new_text, views
from tinyfm.demos.learning import Say
from tinyfm.errors import InputError

OF_TEXT = ("target", "hide", "tokenizer")


def new_parser() -> cli.Parser:
    parser = cli.Parser("compare", __doc__)
    work = parser.add_argument_group("what to do")
    work.add_argument(
        "--text", type=cli.full_text, metavar="TEXT", help="show it as each of the five models is "
        "trained on it",
    )  # fmt: skip
    work.add_argument(
        "--architectures", action="store_true", help="train five models of three architectures on "
        "one task, and show a table",
    )  # fmt: skip
    work.add_argument(
        "--plot", type=cli.folder, metavar="FOLDER", help="draw the masks there, or how the "
        "losses fall with the operations that are spent (needs matplotlib)",
    )  # fmt: skip
    work.add_argument("--seed", type=cli.seed, metavar="N", help="of all randomness (default: 0)")
    text = parser.add_argument_group("with --text")
    text.add_argument(
        "--target",
        type=cli.full_text,
        metavar="TEXT",
        help="its translation, for the Transformer",
    )
    text.add_argument(
        "--hide", type=cli.full_text, action="append", metavar="WORDS", help="hide these from "
        "BERT, BART and T5, instead of what chance says; may be given more than once",
    )  # fmt: skip
    text.add_argument(
        "--tokenizer", type=cli.folder, metavar="FOLDER", help="take its subwords (default: words "
        "and punctuation marks)",
    )  # fmt: skip
    architectures.TRAINING.add_options(parser)
    parser.set_defaults(resume=False)  # nothing is saved
    return parser


def main(args: argparse.Namespace) -> None:
    check(args)
    if args.plot:
        plot.check()
    say = cli.new_say(quiet=False)
    if args.text is not None:
        show_text(args, say)
    else:
        compare_architectures(args, say)


def check(args: argparse.Namespace) -> None:
    """One thing to do, and options that belong to it."""
    if (args.text is not None) == args.architectures:
        raise InputError("give either --text TEXT or --architectures: that is what to compare")
    others = OF_TEXT if args.architectures else (*architectures.TRAINING.options, "schedule")
    for name in others:
        if getattr(args, name) is not None:
            why = "goes with --text" if args.architectures else "is for --architectures"
            raise InputError(f"--{name.replace('_', '-')} {why}; leave it out")


def show_text(args: argparse.Namespace, say: Say) -> None:
    """The text as each model sees it."""
    target = args.target or TRANSLATIONS.get(args.text.strip())
    vocabulary = Vocabulary([args.text, target or ""], args.tokenizer)
    text = new_text(args.text, vocabulary, args.hide or ())
    translation = None if target is None else new_text(target, vocabulary, name="--target", least=1)
    seen = views(text, translation, vocabulary, args.seed or 0)
    if args.plot:
        cli.make_folder(args.plot)
    for line in drawing.lines(seen, vocabulary.shown, shutil.get_terminal_size().columns):
        say(line)
    if args.plot:
        path = Path(args.plot) / "five_models.png"
        drawing.figure(seen, vocabulary.shown, path)
        say(f"the picture is {path}")


def compare_architectures(args: argparse.Namespace, say: Say) -> None:
    """The table of the architectures."""
    architectures.TRAINING.settle(args, lambda args: 0)
    if args.plot:
        cli.make_folder(args.plot)
    results = architectures.compare(args, say)
    if args.plot:
        path = Path(args.plot) / "architectures.png"
        architectures.draw(results, path)
        say(f"the picture is {path}")


if __name__ == "__main__":
    sys.exit(cli.run(main, new_parser()))
