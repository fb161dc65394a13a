"""What the commands that train share: options by kind of training, the --save folder, --resume.

A command describes its training by a `Training`: it adds the options, settles what is left out,
and opens the folder, in which `learn` trains. Ctrl-C saves, and --resume goes on from there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tinyfm import checkpoints, optim, training
from tinyfm.demos import cli
from tinyfm.errors import InputError
from tinyfm.files import read_json, write_json

Say = Callable[[str], None]
Look = Callable[[Any], dict[str, float]]

LOOKS, SAVES = 5, 20  # how often a training is looked at (samples, validation), and saved
SCHEDULES = ("noam", "linear", "cosine", "constant")
# In the --save folder, so that a model that is there stays whole until the new one is trained.
CHECKPOINT, OPTIONS = "checkpoint", "options.json"


def begun(folder: str | Path) -> bool:
    """Whether a --save folder holds a training that can go on; none that was stopped at once."""
    return _missing(folder) is None


def _missing(folder: str | Path) -> Path | None:
    """The first of the files that make a training, if the --save folder lacks one."""
    needed = (Path(folder) / CHECKPOINT / name for name in (OPTIONS, checkpoints.MANIFEST))
    return next((path for path in needed if not path.is_file()), None)


class Option(NamedTuple):
    """An option of a training: its kind, its value in each kind of training, its meaning.

    A value of None is settled by the command, as its meaning tells.
    """

    kind: Callable[[str], Any]
    defaults: tuple[Any, ...]
    meaning: str


@dataclass(frozen=True)
class Training:
    """How a command learns.

    kinds: what it may learn from, as --help names it; the defaults of an option follow this order.
    options: by name; `steps` and `lr` must be among them, `warmup`, `clip`, `accumulate` and
        `average` (the last checkpoints whose mean is taken) may be.
    schedules: the default one for each kind.
    remembered: more names that --resume takes from the folder, each with a test of its value.
    anew: of all these, the ones that may be given anew with --resume.
    """

    kinds: tuple[str, ...]
    options: Mapping[str, Option]
    schedules: tuple[str, ...]
    remembered: Mapping[str, Callable[[Any], bool]]
    anew: tuple[str, ...] = ("steps",)

    @property
    def names(self) -> tuple[str, ...]:
        """All that a training in a folder remembers of its command line."""
        return (*self.remembered, "schedule", "seed", "save_every", *self.options)

    def refuse(self, args: argparse.Namespace) -> None:
        """InputError if the command line has an option of a training, or --resume."""
        for name in (*self.options, "schedule", "resume"):
            if getattr(args, name) not in (None, False):
                option = name.replace("_", "-")
                raise InputError(f"--{option} is for a training: leave --model out")

    def add_folders(
        self,
        group: argparse._ArgumentGroup,
        save: str,
        model: str = "use a saved model, or a published one, instead of training one",
    ) -> None:
        """--model, --save and --resume. save: the default; model: what --help says of --model."""
        group.add_argument("--model", type=cli.folder, metavar="FOLDER", help=model)
        group.add_argument(
            "--save",
            type=cli.folder,
            metavar="FOLDER",
            default=save,
            help="where the trained model goes (default: %(default)s)",
        )
        more = "".join(f", --{name} others" for name in self.anew if name != "steps")
        group.add_argument(
            "--resume", action="store_true", help="go on with the training in the --save folder, "
            "with its options; --steps may be more" + more,
        )  # fmt: skip

    def add_options(self, parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
        """Those that are left out are None until `settle` fills them in."""
        how = parser.add_argument_group("how to train")
        metavars: dict[Any, str] = {cli.positive_int: "N", cli.seed: "N", cli.yes_or_no: "yes|no"}
        for name, (kind, defaults, meaning) in self.options.items():
            shown = "" if defaults[0] is None else f" (default: {self._by_kind(defaults)})"
            how.add_argument(
                f"--{name.replace('_', '-')}",
                type=kind,
                metavar=metavars.get(kind, "X"),
                help=meaning + shown,
            )
        how.add_argument(
            "--schedule", choices=SCHEDULES, help="of the learning rate after the warmup: noam "
            "falls with step**-0.5, linear and cosine reach 0 at the last step (default: "
            f"{self._by_kind(self.schedules)})",
        )  # fmt: skip
        parser.set_defaults(save_every=None)  # settled with the steps; --resume keeps it
        return how

    def _by_kind(self, defaults: tuple[Any, ...]) -> str:
        if len(set(defaults)) == 1:
            return str(defaults[0])
        return "; ".join(
            f"{kind} {default}".strip() for kind, default in zip(self.kinds, defaults, strict=True)
        )

    def settle(self, args: argparse.Namespace, kind: Callable[[argparse.Namespace], int]) -> None:
        """Fill in what is left out: with --resume from the folder, else by the kind of training.

        kind: gives the place in `kinds` of what the arguments ask for.
        """
        if args.resume:
            self._recall(args)
        which = kind(args)
        for name, option in self.options.items():
            if getattr(args, name) is None:
                setattr(args, name, option.defaults[which])
        args.schedule = args.schedule or self.schedules[which]
        args.seed = args.seed or 0

    def _recall(self, args: argparse.Namespace) -> None:
        """--resume: set the options of the training that goes on."""
        path = Path(args.save) / CHECKPOINT / OPTIONS
        if missing := _missing(args.save):
            raise InputError(
                f"{missing}: no such file; {args.save} holds no training to go on with, leave "
                "--resume out to begin one"
            )
        try:
            saved = self._checked(read_json(path))
        except (LookupError, argparse.ArgumentTypeError) as error:
            raise InputError(f"{path}: not the options of a training ({error})") from error
        for name, value in saved.items():
            given = getattr(args, name)
            if given is not None and given != value and name not in self.anew:
                raise InputError(
                    f"--{name.replace('_', '-')}: the training in {args.save} has {value}; leave "
                    "it out to go on, or leave --resume out to begin anew"
                )
            if given is None:
                setattr(args, name, value)

    def _checked(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The options in a folder; an error for what no training would have written."""
        saved = {name: values[name] for name in self.names}
        for name, (kind, *_) in self.options.items():
            saved[name] = kind(str(saved[name]))
        for name, number in (("seed", cli.seed), ("save_every", cli.positive_int)):
            saved[name] = number(str(saved[name]))
        for name, fits in self.remembered.items():
            if not fits(saved[name]):
                raise LookupError(f"{name} is {saved[name]!r}")
        if saved["schedule"] not in SCHEDULES:
            raise LookupError(f"schedule is {saved['schedule']!r}")
        return saved

    @contextmanager
    def folder(self, args: argparse.Namespace, prepare: Callable[[Path], None]) -> Iterator[Path]:
        """The folder of the checkpoint, made ready; within the block no other training uses it.

        prepare: writes there what --resume needs besides, such as the tokenizer.

        Kept to itself is the whole --save folder, where fit keeps the checkpoint's alone: of two
        trainings that begin at the same moment, the one that is refused has written nothing.
        """
        checkpoint = Path(args.save) / CHECKPOINT
        cli.make_folder(args.save)
        args.save_every = args.save_every or -(-args.steps // SAVES)
        with training.alone(args.save):
            if args.resume and (done := training.step_of(checkpoint)) > args.steps:
                raise InputError(
                    f"--steps {args.steps}: the training in {args.save} is at step {done} already"
                )
            cli.make_folder(checkpoint)
            if not args.resume:
                training.forget(checkpoint)
                prepare(checkpoint)
            values = {name: getattr(args, name) for name in self.names}
            write_json(checkpoint / OPTIONS, values)
            yield checkpoint


def learn(
    model: Any,
    batches: Any,
    optimizer: optim.Optimizer,
    look: Look,
    save: Callable[[Path], None],
    checkpoint: Path,
    args: argparse.Namespace,
    say: Say,
) -> list[dict[str, float]]:
    """The training; after it, or on Ctrl-C, `save` has written the model to --save."""
    began = time.perf_counter()
    folder = Path(args.save)
    try:
        history = fit(model, batches, optimizer, look, checkpoint, args, say)
    except KeyboardInterrupt:
        # The weights that fit has saved; those in memory may be half loaded or not trained at all.
        if checkpoints.exists(checkpoint) and training.step_of(checkpoint) > 0:
            model.load_state_dict(training.average(checkpoint, last=1))
            save(folder)
            print(f"stopped; what was learnt is in {folder}, --resume goes on", file=sys.stderr)
        raise
    save(folder)
    loss, took = history[-1]["loss"], time.perf_counter() - began
    say(f"loss {loss:.3f} after {len(history)} steps, {took:.0f} s; saved to {folder}")
    return history


def fit(
    model: Any,
    batches: Any,
    optimizer: optim.Optimizer,
    look: Look,
    checkpoint: Path | None,
    args: argparse.Namespace,
    say: Say,
) -> list[dict[str, float]]:
    """training.fit, and the mean of the last checkpoints (--average).

    checkpoint: the folder; None: nothing is saved.
    """
    average = getattr(args, "average", 1)
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # fit raises an error with a remedy
            history = training.fit(
                model,
                batches,
                optimizer,
                new_schedule(args),
                args.steps,
                accumulate=getattr(args, "accumulate", 1),
                clip=getattr(args, "clip", 1.0),
                evaluate=look,
                evaluate_every=-(-args.steps // LOOKS),
                folder=checkpoint,
                resume=args.resume,
                save_every=args.save_every or args.steps,
                keep=average,
            )
    except FloatingPointError as error:
        raise InputError(str(error)) from error
    if checkpoint is not None and average > 1:
        model.load_state_dict(training.average(checkpoint))
        count = len(list(checkpoint.glob("weights-*")))
        say(f"the weights are the mean of those at the last {count} checkpoints")
    return history


def new_schedule(args: argparse.Namespace) -> optim.Schedule:
    """The schedule by its name, scaled so that its peak is --lr."""
    shape: optim.Schedule
    match args.schedule:
        case "noam":
            noam = optim.noam(1, args.warmup)
            peak = noam(args.warmup)
            shape = lambda step: noam(step) / peak  # noqa: E731
        case "linear":
            shape = optim.linear(args.warmup, args.steps)
        case "cosine":
            shape = optim.cosine(args.warmup, args.steps)
        case _:
            shape = optim.constant()
    return lambda step: args.lr * shape(step)
