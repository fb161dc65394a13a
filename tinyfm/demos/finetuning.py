"""How classify, tag and answer learn: a model with a head, new or opened, on records of a file.

A command describes its `Task`; `run` reads the files, trains, and takes the scores.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import tinyfm
from tinyfm.data import Example, ExampleBatches
from tinyfm.demos import cli
from tinyfm.demos.encoders import (
    longest,
    new_config,
    new_model,
    new_optimizer,
    open_model,
    size_options,
)
from tinyfm.demos.learning import CHECKPOINT, Option, Say, Training, learn
from tinyfm.demos.records import Records
from tinyfm.errors import InputError
from tinyfm.models import with_head
from tinyfm.tokenizer import Tokenizer

R = TypeVar("R")

KINDS = ("", "with --train", "with --train and --model")


class Score(NamedTuple):
    """What is said of a test, and its numbers by name, for the history of a training."""

    text: str
    numbers: dict[str, float]


class Model(NamedTuple):
    """A model on its device, its tokenizer, and how many tokens it is given at most."""

    model: Any
    tokenizer: Tokenizer
    max_length: int


class Task(Generic[R]):
    """What a command knows of its records."""

    heads: tuple[str, ...]  # ends of the names of the classes that do it, as ForMaskedLM
    lowercase = True  # in a vocabulary that is learnt here

    def read(self, path: str, args: argparse.Namespace, config: Any = None) -> Records[R]:
        """The records of a file; config: of the model that they are for, whose labels count."""
        raise NotImplementedError

    def embedded(self) -> tuple[Records[R], dict[str, Records[R]]]:
        """Generated records: to learn from, and by name those to test on."""
        raise NotImplementedError

    def head(self, records: Records[R]) -> str:
        """The one of `heads` that learns from such records."""
        return self.heads[0]

    def config(self, records: Records[R]) -> dict[str, Any]:
        """Fields of the config that depend on the records, such as the names of classes."""
        return {}

    def lines(self, records: Records[R]) -> list[str]:
        """The texts that a vocabulary is learnt from."""
        raise NotImplementedError

    def examples(self, records: Records[R], model: Model) -> list[Example]:
        """Inputs with labels."""
        raise NotImplementedError

    def score(self, records: Records[R], model: Model) -> Score:
        """How well the model does on the records."""
        raise NotImplementedError


@dataclass(frozen=True)
class Command:
    """The words of a command that differ from task to task."""

    prog: str
    doc: str
    save: str  # where the model goes by default
    train: str  # of the help texts: what --train reads


def new_training(
    remembered: Sequence[str] = (), sizes: dict[str, Any] | None = None, **changes: Any
) -> Training:
    """The options of a fine-tuning; changes: other defaults for the three KINDS.

    remembered: options of the command that say how files are read, and which --resume keeps.
    """
    options = {
        "epochs": Option(cli.positive_int, (3, 3, 3), "times that each record is seen"),
        "steps": Option(cli.positive_int, (None,) * 3, "optimizer steps (default: the epochs')"),
        **size_options(3, **(sizes or {})),
        "max_length": Option(
            cli.positive_int, (128, 128, 128), "subwords in an input; longer ones are cut"
        ),
        "max_tokens": Option(cli.positive_int, (1000, 2000, 1000), "tokens in a batch"),
        "accumulate": Option(cli.positive_int, (1, 1, 1), "batches that make one step"),
        "warmup": Option(
            cli.positive_int,
            (None,) * 3,
            "steps until the learning rate is at its peak (default: a tenth)",
        ),
        "lr": Option(cli.positive_float, (1e-3, 5e-4, 5e-5), "peak learning rate"),
        "clip": Option(cli.positive_float, (1.0,) * 3, "limit of the gradient's norm"),
        "dropout": Option(cli.probability, (0.1,) * 3, "share of the activations left out"),
    }
    for name, defaults in changes.items():
        options[name] = options[name]._replace(defaults=defaults)
    names = ("train", "valid", "test", "model", *remembered)
    return Training(
        kinds=KINDS,
        options=options,
        schedules=("linear",) * 3,
        remembered=dict.fromkeys(names, _is_plain),
        anew=("steps", "test"),
    )


def _is_plain(value: Any) -> bool:
    """Whether an option in a folder is a text, a switch, a list of texts, or left out."""
    values = value if isinstance(value, list) else [value]
    return all(isinstance(value, str | bool | None) for value in values)


def new_parser(command: Command, training: Training) -> cli.Parser:
    """The options that the commands share."""
    parser = cli.Parser(
        prog=command.prog,
        description=command.doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    work = parser.add_argument_group("what to do")
    file: dict[str, Any] = {"metavar": "FILE"}
    work.add_argument("--train", **file, help=f"learn from this file: {command.train}; may be .gz")
    work.add_argument("--valid", **file, help="score this file while learning")
    work.add_argument("--test", **file, help="score this file at the end")
    work.add_argument(
        "--skip-bad", action="store_true", default=None, help="leave bad records out and say how "
        "many, instead of stopping at the first",
    )  # fmt: skip
    work.add_argument(
        "--model",
        type=cli.folder,
        metavar="FOLDER",
        help="with --train: begin with this model, pretrained or fine-tuned; else use it as it is",
    )
    work.add_argument(
        "--save",
        type=cli.folder,
        metavar="FOLDER",
        default=command.save,
        help="where the trained model goes (default: %(default)s)",
    )
    work.add_argument(
        "--resume", action="store_true", help="go on with the training in the --save folder, with "
        "its options; --steps may be more",
    )  # fmt: skip
    training.add_options(parser)
    cli.add_common_options(parser)
    parser.set_defaults(seed=None)
    return parser


def learns(args: argparse.Namespace) -> bool:
    """Whether the arguments ask for a training."""
    return args.train is not None or args.resume or args.model is None


def check(training: Training, args: argparse.Namespace) -> None:
    """Options that exclude or need each other."""
    given = [name for name in training.options if getattr(args, name) is not None]
    if not learns(args):
        given = [name for name in given if name != "max_length"] + ["valid"] * bool(args.valid)
        if given:
            raise InputError(f"--{given[0].replace('_', '-')} is for a training: give --train too")
    own = [name for name in given if name in {*size_options(1), "dropout"}]
    if args.model is not None and own:
        raise InputError(
            f"--{own[0].replace('_', '-')} is for a new model, and that in {args.model} has its "
            "own: leave it or --model out"
        )
    if args.valid and not args.train and not args.resume:
        raise InputError("--valid belongs to a training on a file: give --train too")


def run(task: Task[R], training: Training, args: argparse.Namespace, say: Say) -> Model:
    """Train, if the arguments ask for it, and score what is to be tested."""
    check(training, args)
    device = cli.choose_device(args)
    tests: dict[str, Records[R]]
    if learns(args):
        model, tests = _train(task, training, args, device, say)
    else:
        opened, tokenizer = open_model(args.model, *task.heads)
        if new := opened.load_report.new:
            raise InputError(
                f"{args.model}: is not trained for this task ({', '.join(new)} would be new); "
                "give --train FILE too"
            )
        model = Model(opened.to(device), tokenizer, args.max_length or longest(opened))
        _check_length(args, model)
        tests = {args.test: task.read(args.test, args, opened.config)} if args.test else {}
    for name, records in tests.items():
        say(f"{name}: {task.score(records, model).text}")
    return model


def _train(
    task: Task[R], training: Training, args: argparse.Namespace, device: str, say: Say
) -> tuple[Model, dict[str, Records[R]]]:
    """Learn from the records; the model is saved to --save, also on Ctrl-C."""
    training.settle(args, lambda args: 2 if args.model else 1 if args.train else 0)
    tests: dict[str, Records[R]] = {}
    if args.train:
        records = task.read(args.train, args)
    else:
        records, tests = task.embedded()
    tinyfm.manual_seed(args.seed)
    config, head = task.config(records), task.head(records)
    if args.model is not None:
        model, tokenizer = open_model(args.model, head, **config)
        if report := [*model.load_report.new, *model.load_report.missing]:
            say(f"new, and to be learnt: {', '.join(report)}")
    else:
        if args.resume:
            tokenizer = Tokenizer.load(Path(args.save) / CHECKPOINT)
        else:
            lines = task.lines(records)
            tokenizer = Tokenizer.train_wordpiece(lines, args.vocab_size, lowercase=task.lowercase)
        model = new_model(with_head("bert", head), new_config(args, tokenizer, **config))
    ready = Model(model.to(device), tokenizer, args.max_length)
    _check_length(args, ready)
    # All files are read, and found good, before the work begins.
    if args.test:
        tests = {args.test: task.read(args.test, args, model.config)}
    valid = task.read(args.valid, args, model.config) if args.valid else None
    if valid is None and not args.train:
        valid = next(iter(tests.values()))
    pad_id = model.config.pad_token_id
    batches = ExampleBatches(
        task.examples(records, ready), max_tokens=args.max_tokens, pad_id=pad_id, seed=args.seed
    )
    args.steps = args.steps or max(1, args.epochs * len(batches) // args.accumulate)
    args.warmup = args.warmup or -(-args.steps // 10)

    def look(_: Any) -> dict[str, float]:
        if valid is None:
            return {}
        score = task.score(valid, ready)
        say(f"  {score.text}")
        return score.numbers

    def save(folder: Path) -> None:
        model.save_pretrained(folder)
        tokenizer.save(folder)

    with training.folder(args, prepare=tokenizer.save) as checkpoint:
        count = sum(p.size for p in model.parameters())
        say(
            f"{len(records)} records, {len(tokenizer)} subwords, {count:,} parameters, "
            f"{len(batches)} batches an epoch, {args.steps} steps, "
            f"{batches.padding_share():.1%} padding"
        )
        learn(model, batches, new_optimizer(model), look, save, checkpoint, args, say)
    return ready, tests


def _check_length(args: argparse.Namespace, model: Model) -> None:
    if model.max_length > (most := longest(model.model)):
        raise InputError(f"--max-length {model.max_length}: the model in {args.model} takes {most}")
