"""Compare architectures on one task.

    python -m tinyfm.demos.compare --architectures      encoder-decoder, language model, prefix LM

They learn to translate from the sentences of the embedded Korean-English grammar: the same batches
in the same order, as many steps, the same blocks. At equal parameters: half of the layers in the
encoder and half in the decoder, or one stack for both. At equal compute: as many layers in each of
the two. The table has parameters, operations, and scores on sentences that were held out.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tinyfm import plot
from tinyfm.demos import architectures, cli
from tinyfm.errors import InputError


def new_parser() -> cli.Parser:
    parser = cli.Parser("compare", __doc__)
    work = parser.add_argument_group("what to do")
    work.add_argument(
        "--architectures", action="store_true", help="train five models of three architectures on "
        "one task, and show a table",
    )  # fmt: skip
    work.add_argument(
        "--plot", type=cli.folder, metavar="FOLDER", help="draw there how the losses fall with the "
        "operations that are spent (needs matplotlib)",
    )  # fmt: skip
    work.add_argument("--seed", type=cli.seed, metavar="N", help="of all randomness (default: 0)")
    architectures.TRAINING.add_options(parser)
    parser.set_defaults(resume=False)  # nothing is saved
    return parser


def main(args: argparse.Namespace) -> None:
    if not args.architectures:
        raise InputError("nothing to compare: give --architectures")
    architectures.TRAINING.settle(args, lambda args: 0)
    if args.plot:
        plot.check()
        cli.make_folder(args.plot)
    say = cli.new_say(quiet=False)
    results = architectures.compare(args, say)
    if args.plot:
        path = Path(args.plot) / "architectures.png"
        architectures.draw(results, path)
        say(f"the picture is {path}")


if __name__ == "__main__":
    sys.exit(cli.run(main, new_parser()))
