"""Train a small T5 that reads a task as text and writes the answer, and use it.

    python -m tinyfm.demos.text_to_text             learns hidden spans, and then five tasks
    python -m tinyfm.demos.text_to_text --model FOLDER --input "In Korean: He reads books."
    python -m tinyfm.demos.text_to_text --model FOLDER < lines.txt   (on a terminal: a prompt)
    python -m tinyfm.demos.text_to_text --train FILE    lines of {"source": ..., "target": ...},
                                                    perhaps with a "task"; or of source, tab, target
    python -m tinyfm.demos.text_to_text --compare   what the mixture and the pretraining are worth

Without a file the tasks are generated (text_tasks.py), and put as text in several wordings
(templates.py). Scores are of texts that it has not seen, by task; in brackets is what can be had
without having learnt anything. One more task is not learnt, and tried zero-shot.

A new model is pretrained first, on texts without tasks; with --train, on its sources and targets.
So far it is left in the folder `pretrained` in the --save folder, from which other trainings can
begin. In an input, <extra_id_0> and its like are sentinels.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import tinyfm
from tinyfm import checkpoints, plot, training
from tinyfm.demos import cli
from tinyfm.demos.finetuning import GENERATED, Command, kind_of, learns, run, shared_parser
from tinyfm.demos.language import ESCAPES, add_generation_options, generation_options
from tinyfm.demos.learning import CHECKPOINT, Say, begun
from tinyfm.demos.modelling import size_options
from tinyfm.demos.text_learning import (
    PRETRAINING,
    TRAINING,
    SpanCorruption,
    TextTasks,
    encode_input,
    known_wordings,
    written,
)
from tinyfm.demos.transfer import compare
from tinyfm.errors import InputError

COMMAND = Command(
    prog="text_to_text",
    doc=__doc__ or "",
    save="text-model",
    train='lines of {"source": ..., "target": ...}, or of source, tab, target',
)
PRETRAINED = "pretrained"  # in the --save folder


def new_parser() -> cli.Parser:
    """The shared options, and what is to be written."""
    new = shared_parser(COMMAND, TRAINING)
    new.add_argument(
        "--input", type=cli.text, metavar="TEXT", help="write the answer to this; without it, "
        "after --model, to each line of standard input, or to what is typed at a prompt",
    )  # fmt: skip
    new.add_argument(
        "--compare", action="store_true", help="in tables: one model of all generated tasks beside "
        "one of each, and beside one that is not pretrained; seven minutes, and leaves no folder",
    )  # fmt: skip
    new.add_argument(
        "--plot", type=cli.folder, metavar="FOLDER", help="draw the curves of the training there "
        "(needs matplotlib)",
    )  # fmt: skip
    add_generation_options(new, max_new_tokens=100, temperature=0.0)
    return new


def main(args: argparse.Namespace) -> None:
    check(args)
    options = generation_options(args)
    learning = learns(args)
    say = cli.new_say(quiet=args.input is not None or not (learning or args.test))
    if args.compare:
        compare(args, say)
        return
    if args.plot:
        plot.check()
        cli.make_folder(args.plot)
    if learning:
        args = pretrained(args, say)
    model = run(TextTasks(), TRAINING, args, say)
    if args.plot:
        draw(args, say)
    tinyfm.manual_seed(args.seed or 0)

    known = known_wordings(model.model.config)

    def answer(text: str, where: str) -> None:
        ids = [encode_input(text, where, model, known)] if text.strip() else []
        print("\t".join(text.translate(ESCAPES) for text in written(ids, model, options)))

    if args.input is not None:
        answer(args.input, "--input")
    elif not learning and not args.test:
        cli.answer_lines(answer, "A task a line")


def check(args: argparse.Namespace) -> None:
    """Options that this command has no use for together."""
    if args.model is not None and args.pretraining_steps is not None:
        raise InputError(
            "--pretraining-steps is for a new model, and --model gives one: leave one out"
        )
    if args.plot and not learns(args):
        raise InputError("--plot draws a training: give --train too")
    if args.compare:
        for name in ("train", "valid", "test", "model", "resume", "input", "plot"):
            if getattr(args, name):
                raise InputError(f"--compare makes models of its own: leave --{name} out")


# -- pretraining, and then -------------------------------------------------------------------------


def pretrained(args: argparse.Namespace, say: Say) -> argparse.Namespace:
    """Pretrain, where the arguments ask for that, or go on with it; what is to be done after it.

    --resume goes on with the one of the two trainings that has saved last.
    """
    early = Path(args.save) / PRETRAINED
    if args.resume:
        if last_saved(early) <= last_saved(args.save):
            return args
        then = run_first(args, early, {"steps": None, "then": None}, say)
        then |= {name: getattr(args, name) for name in TRAINING.anew if getattr(args, name)}
    else:
        if args.model is not None:
            return args
        TRAINING.settle(args, kind_of)
        if args.max_tokens < (least := 2 * args.max_length):
            raise InputError(
                f"--max-tokens {args.max_tokens}: a batch must hold a source and a target of "
                f"--max-length {args.max_length}; give {least} or more"
            )
        if args.pretraining_steps == 0:
            return args
        then = {name: getattr(args, name) for name in TRAINING.names}
        then = run_first(args, early, {"steps": args.pretraining_steps, "then": then}, say)
    own = dict.fromkeys((*size_options(1), "dropout"))  # the pretrained model has its own
    begin = {"model": str(early), "train": then["train"] or GENERATED, "resume": False}
    return argparse.Namespace(**vars(args) | then | own | begin)


def run_first(
    args: argparse.Namespace, folder: Path, changes: dict[str, object], say: Say
) -> dict[str, object]:
    """The pretraining, with these changes to the arguments; those of the training after it."""
    own = argparse.Namespace(**vars(args) | {"save": str(folder)} | changes)
    run(SpanCorruption(), PRETRAINING, own, say)
    return own.then


def last_saved(folder: str | Path) -> int:
    """When the training in a folder has saved its state; 0: there is none."""
    path = Path(folder) / CHECKPOINT / checkpoints.MANIFEST
    return path.stat().st_mtime_ns if begun(folder) else 0


def draw(args: argparse.Namespace, say: Say) -> None:
    """The curves of the pretraining, if there was one, and of the training."""
    for name, folder in (("pretraining", args.model), ("tasks", args.save)):
        if folder is not None and begun(folder):
            history = training.history(Path(folder) / CHECKPOINT)
            plot.curves(history, Path(args.plot) / f"{name}.png")
    say(f"plots are in {args.plot}")


if __name__ == "__main__":
    sys.exit(cli.run(main, new_parser()))
