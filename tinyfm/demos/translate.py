"""Train a Transformer to translate, score it, and translate with it.

    python -m tinyfm.demos.translate                learns Korean to English in a minute
    python -m tinyfm.demos.translate --model FOLDER --text "나는 사과를 먹었다."
    python -m tinyfm.demos.translate --model FOLDER < lines.txt      (on a terminal: a prompt)
    python -m tinyfm.demos.translate --train en.txt de.txt --test test.en test.de
    python -m tinyfm.demos.translate --resume       goes on after Ctrl-C

Without files it learns from the sentences of a small Korean-English grammar (korean_english).
A training replaces what is in its folder (--save).
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from tinyfm import plot
from tinyfm.demos import cli, korean_english
from tinyfm.demos.learning import Say
from tinyfm.demos.translation import TRAINING, add_training_options, settle, train
from tinyfm.demos.translator import Translator
from tinyfm.errors import InputError
from tinyfm.metrics import corpus_bleu
from tinyfm.text import ParallelText, read_pairs


def new_parser() -> cli.Parser:
    parser = cli.Parser("translate", __doc__)
    work = parser.add_argument_group("what to do")
    files: dict[str, Any] = {"nargs": "+", "metavar": ("SOURCE", "TARGET")}
    work.add_argument(
        "--train", **files, help="learn from these files, line n with line n; or from one file "
        "with source, tab, target in each line (all may be .gz)",
    )  # fmt: skip
    work.add_argument("--valid", **files, help="show the loss on these files while learning")
    work.add_argument("--test", **files, help="score these files (BLEU, greedy and with --beams)")
    TRAINING.add_folders(
        work,
        save="translation-model",
        model="use a saved model instead of training one",
    )
    work.add_argument(
        "--text", type=cli.text, metavar="TEXT", help="translate this; without it, after --model, "
        "each line of standard input, or what is typed at a prompt",
    )  # fmt: skip
    work.add_argument(
        "--plot", type=cli.folder, metavar="FOLDER", help="draw the curves of the training and the "
        "attention in --text or a sample (needs matplotlib)",
    )  # fmt: skip
    search = parser.add_argument_group("how to search")
    search.add_argument(
        "--beams", type=cli.positive_int, default=4, metavar="N", help="sentences that are "
        "followed at a time; 1: the most probable subword each time (default: %(default)s)",
    )  # fmt: skip
    search.add_argument(
        "--length-penalty", type=cli.number, default=1.0, metavar="X", help="above 0 favours long "
        "translations: score = log-probability / length**X (default: %(default)s)",
    )  # fmt: skip
    add_training_options(parser)
    cli.add_common_options(parser)
    return parser


def main(args: argparse.Namespace) -> None:
    check(args)
    settle(args)
    device = cli.choose_device(args)
    quiet = args.text is not None or (args.model is not None and not args.test)

    say = cli.new_say(quiet)

    # Files are read before anything else is done: a mistake in a name shall not cost a training.
    if args.plot:
        plot.check()
    tests = {"test sentences": read_pairs(*args.test)} if args.test else {}
    valid = read_pairs(*args.valid) if args.valid else None
    pairs: ParallelText | None = None
    if args.model is not None:
        translator = Translator.load(args.model, device)
    elif args.train:
        pairs = read_pairs(*args.train)
    else:
        parts = korean_english.split()
        pairs = embedded(parts.train)
        tests = tests or {
            "random held-out sentences": embedded(parts.random),
            "compositional sentences": embedded(parts.compositional),
        }
    if args.plot:
        cli.make_folder(args.plot)
    if pairs is not None:
        translator = train(pairs, valid, list(tests.values()), args, device, say)
    for name, test in tests.items():
        report(translator, name, test, args, say)
    if args.plot:
        sample = args.text
        if sample is None:
            sample = next(iter(tests.values()), pairs)[0][0]  # type: ignore[index]
        draw_attention(translator, sample, args)
        say(f"plots are in {args.plot}")
    if args.text is not None:
        print(translator([args.text], args.beams, args.length_penalty, ["--text"])[0])
    elif args.model is not None and not args.test:
        cli.answer_lines(
            lambda line, where: print(
                translator([line], args.beams, args.length_penalty, [where])[0]
            )
        )


def embedded(pairs: list[tuple[str, str]]) -> ParallelText:
    return ParallelText(pairs, ["embedded sentence"] * 2, list(range(1, len(pairs) + 1)))


def check(args: argparse.Namespace) -> None:
    """Options that exclude or need each other."""
    for name in ("train", "valid", "test"):
        if len(getattr(args, name) or ()) > 2:
            raise InputError(f"--{name}: give two files, or one with tabs")
    if args.model is not None and (args.train or args.resume):
        raise InputError("--model translates with a saved model, --train makes one: give one only")
    if args.model is not None and (
        given := [n for n in TRAINING.options if getattr(args, n) is not None]
    ):
        raise InputError(f"--{given[0].replace('_', '-')} is for a training: leave --model out")
    if args.model is not None and args.plot and args.text is None and not args.test:
        raise InputError("--plot draws the attention in a sentence: give it with --text")
    if not -100 <= args.length_penalty <= 100:
        raise InputError(f"--length-penalty {args.length_penalty}: give a number from -100 to 100")
    if args.valid and not args.train and not args.resume:
        raise InputError("--valid belongs to a training on files: give --train too")


def report(
    translator: Translator, name: str, test: ParallelText, args: argparse.Namespace, say: Say
) -> None:
    """Say the BLEU of greedy translations and of those with --beams, and how many are exact."""
    sources, targets = map(list, zip(*test, strict=True))
    began = time.perf_counter()
    scores = []
    for beams in dict.fromkeys((1, args.beams)):
        made = translator(sources, beams, args.length_penalty, test.places())
        bleu = corpus_bleu(made, targets)
        exact = sum(map(str.__eq__, made, targets)) / len(test)
        how = "greedy" if beams == 1 else f"with {beams} beams"
        scores.append(f"{bleu.score:.2f} {how} ({exact:.1%} exact)")
    took = time.perf_counter() - began
    say(f"BLEU {', '.join(scores)}: {len(test)} {name}, {took:.0f} s")
    say(f"     {bleu.signature}")


def draw_attention(translator: Translator, text: str, args: argparse.Namespace) -> None:
    """Heat maps of the three kinds of attention while `text` is translated."""
    translation = translator([text], args.beams, args.length_penalty, ["--text"])[0]
    maps = translator.attention(text, translation)
    said = [*maps.target[1:], maps.source[-1]]  # what a row of cross-attention is about to say
    for name, rows, columns in (
        ("encoder", maps.source, maps.source),
        ("decoder", maps.target, maps.target),
        ("cross", said, maps.source),
    ):
        path = Path(args.plot) / f"{name}.png"
        plot.attention(getattr(maps, name), rows, columns, path, title=f"{name} attention")


if __name__ == "__main__":
    sys.exit(cli.run(main, new_parser()))
