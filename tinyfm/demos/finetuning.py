"""How classify, tag, answer and chat learn: a model with a head, new or opened, on records.

A command describes its `Task`; `run` reads the files, trains, and takes the scores.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

import tinyfm
from tinyfm import pretrained
from tinyfm.data import Batch, Example, ExampleBatches
from tinyfm.demos import cli
from tinyfm.demos.families import BERT, Family, family_of
from tinyfm.demos.learning import Option, Say, Training
from tinyfm.demos.modelling import counted, open_model, pad_id, size_options, train_model
from tinyfm.demos.records import Records
from tinyfm.errors import InputError
from tinyfm.tokenizer import Tokenizer

R = TypeVar("R")

KINDS = ("", "with --train", "with --train and --model")
GENERATED = "generated"  # given to --train: what is learnt from without it
Change = Callable[[Batch, np.random.Generator], Batch]


class Score(NamedTuple):
    """What is said of a test, and its numbers by name, for the history of a training."""

    text: str
    numbers: dict[str, float]


class Model(NamedTuple):
    """A model on its device, its tokenizer, and how many tokens it is given at most."""

    model: Any
    tokenizer: Tokenizer
    max_length: int
    family: Family = BERT


class Task(Generic[R]):
    """What a command knows of its records."""

    heads: tuple[str, ...]  # ends of the names of the classes that do it, as ForMaskedLM
    families: tuple[Family, ...] = (BERT,)  # that have such classes; new models are of the first
    lowercase = True  # in a vocabulary that is learnt here

    def read(self, path: str, args: argparse.Namespace, model: Any = None) -> Records[R]:
        """The records of a file; model: the one that they are for, whose labels count."""
        raise NotImplementedError

    def embedded(self) -> tuple[Records[R], dict[str, Records[R]]]:
        """Generated records: to learn from, and by name those to test on."""
        raise NotImplementedError

    def head(self, records: Records[R], family: Family) -> str:
        """The one of `heads` that learns from such records."""
        return self.heads[0]

    def config(self, records: Records[R]) -> dict[str, Any]:
        """Fields of the config that depend on the records, such as the names of classes.

        InputError: there is nothing to tell apart.
        """
        return {}

    def reading(
        self, records: Records[R], family: Family, args: argparse.Namespace
    ) -> dict[str, Any]:
        """Fields of the config that say how a model of the family reads such records.

        InputError: it cannot read them as the command line says.
        """
        return {}

    def lines(self, records: Records[R]) -> list[str]:
        """The texts that a vocabulary is learnt from."""
        raise NotImplementedError

    def examples(self, records: Records[R], model: Model) -> list[Example]:
        """Inputs with labels."""
        raise NotImplementedError

    def cut(self, records: Records[R], examples: list[Example], model: Model) -> int:
        """How many records reach --max-length, beyond which nothing is read."""
        return sum(_longest(example["input_ids"]) >= model.max_length for example in examples)

    def change(self, args: argparse.Namespace, model: Model) -> Change | None:
        """What is done to each batch of a training as it is made; None: nothing."""
        return None

    def score(self, records: Records[R], model: Model) -> Score:
        """How well the model does on the records."""
        raise NotImplementedError

    def check_asked(self, args: argparse.Namespace, model: Model) -> None:
        """InputError if the model could not answer what the command line asks, once trained."""


@dataclass(frozen=True)
class Command:
    """The words of a command that differ from task to task."""

    prog: str
    doc: str
    save: str  # where the model goes by default
    train: str  # of the help texts: what --train reads


def new_training(
    remembered: Mapping[str, Callable[[Any], bool]] | None = None,
    sizes: dict[str, Any] | None = None,
    **changes: Any,
) -> Training:
    """The options of a fine-tuning; changes: other defaults for the three KINDS.

    remembered: options of the command that say how files are read, and which --resume keeps; each
        with a test of its value.
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
    names = ("train", "valid", "test", "model")
    return Training(
        kinds=KINDS,
        options=options,
        schedules=("linear",) * 3,
        remembered=dict.fromkeys(names, is_text) | {"skip_bad": is_switch} | dict(remembered or {}),
        anew=("steps", "test"),
    )


# Whether the value of an option in a folder is of its kind, or left out (None).


def is_text(value: Any) -> bool:
    """A file, a folder, a name."""
    return isinstance(value, str | None)


def is_texts(value: Any) -> bool:
    """One or more of them."""
    return value is None or (
        isinstance(value, list) and all(isinstance(text, str) for text in value)
    )


def is_switch(value: Any) -> bool:
    """On or off."""
    return isinstance(value, bool | None)


def shared_parser(command: Command, training: Training) -> cli.Parser:
    """The options that the commands share."""
    parser = cli.Parser(command.prog, command.doc)
    work = parser.add_argument_group("what to do")
    file: dict[str, Any] = {"metavar": "FILE"}
    work.add_argument(
        "--train", **file, help=f"learn from this file: {command.train}; may be .gz; or from what "
        f'is learnt without a file: "{GENERATED}"',
    )  # fmt: skip
    work.add_argument("--valid", **file, help="score this file while learning")
    work.add_argument("--test", **file, help="score this file at the end")
    work.add_argument(
        "--skip-bad", action="store_true", default=None, help="leave bad records out and say how "
        "many, instead of stopping at the first",
    )  # fmt: skip
    training.add_folders(
        work,
        save=command.save,
        model="with --train: begin with this model, pretrained or fine-tuned; else use it as it is",
    )
    training.add_options(parser)
    cli.add_common_options(parser)
    return parser


def learns(args: argparse.Namespace) -> bool:
    """Whether the arguments ask for a training."""
    return args.train is not None or args.resume or args.model is None


def check(training: Training, args: argparse.Namespace) -> None:
    """Options that exclude or need each other."""
    given = [name for name in (*training.options, "schedule") if getattr(args, name) is not None]
    if not learns(args):
        given = [name for name in given if name != "max_length"]
        given += ["valid"] if args.valid is not None else []
        if given:
            raise InputError(f"--{given[0].replace('_', '-')} is for a training: give --train too")
    own = [name for name in given if name in {*size_options(1), "dropout", "level"}]
    if args.model is not None and own:
        raise InputError(
            f"--{own[0].replace('_', '-')} is for a new model, and that in {args.model} has its "
            "own: leave it or --model out"
        )
    if args.valid is not None and args.train is None and not args.resume:
        raise InputError("--valid belongs to a training on a file: give --train too")


def run(task: Task[R], training: Training, args: argparse.Namespace, say: Say) -> Model:
    """Train, if the arguments ask for it, and score what is to be tested."""
    return run_and_score(task, training, args, say)[0]


def run_and_score(
    task: Task[R], training: Training, args: argparse.Namespace, say: Say
) -> tuple[Model, dict[str, Score]]:
    """What `run` does; the scores by the names of the tests."""
    check(training, args)
    device = cli.choose_device(args)
    tests: dict[str, Records[R]]
    if learns(args):
        model, tests = _train(task, training, args, device, say)
    else:
        opened, tokenizer = open_model(args.model, *task.heads, families=_types(task))
        if new := opened.load_report.new:
            raise InputError(
                f"{args.model}: is not trained for this task ({', '.join(new)} would be new); "
                "give --train FILE too"
            )
        family = family_of(opened.config.model_type, task.families)
        longest = args.max_length or family.longest(opened)
        model = Model(opened.to(device), tokenizer, longest, family)
        _check_length(model, args.model)
        task.check_asked(args, model)
        tests = {}
        if args.test is not None:
            tests = {args.test: task.read(args.test, args, opened)}
    scores = {name: task.score(records, model) for name, records in tests.items()}
    for name, score in scores.items():
        say(f"{name}: {score.text}")
    return model, scores


def _types(task: Task[Any]) -> list[str]:
    return [name for family in task.families for name in family.types]


def _train(
    task: Task[R], training: Training, args: argparse.Namespace, device: str, say: Say
) -> tuple[Model, dict[str, Records[R]]]:
    """Learn from the records; the model is saved to --save, also on Ctrl-C."""
    chosen = args.max_length
    training.settle(args, kind_of)
    tests: dict[str, Records[R]] = {}
    if _has_file(args):
        records = task.read(args.train, args)
    else:
        records, tests = task.embedded()
    tinyfm.manual_seed(args.seed)
    family = _family(task, args)
    config, head = task.config(records), task.head(records, family)
    reading = task.reading(records, family, args)
    if args.model is not None:
        changes = _changes(args.model, head, config) | reading
        opened = open_model(args.model, head, families=_types(task), **changes)
        model, tokenizer = family.prepared(*opened)
        if chosen is None:  # else it is the user's, and refused where the model takes less
            args.max_length = min(args.max_length, family.longest(model))
    else:
        tokenizer = family.new_tokenizer(args, task.lines(records), task.lowercase)
        model = family.new_model(args, tokenizer, head, **config, **reading)
    ready = Model(model.to(device), tokenizer, args.max_length, family)
    _check_length(ready, args.model)
    task.check_asked(args, ready)
    # All files are read, and found good and short enough, before the work begins.
    if args.test is not None:
        tests = {args.test: task.read(args.test, args, model)}
    valid = None if args.valid is None else task.read(args.valid, args, model)
    if valid is None and not _has_file(args):
        valid = next(iter(tests.values()))
    for others in (*tests.values(), *([] if valid is None else [valid])):
        task.examples(others, ready)
    examples = task.examples(records, ready)
    batches = new_batches(examples, ready, args, task.change(args, ready))
    args.steps = args.steps or max(1, args.epochs * len(batches) // args.accumulate)
    args.warmup = args.warmup or -(-args.steps // 10)

    def look(_: Any) -> dict[str, float]:
        if valid is None:
            return {}
        score = task.score(valid, ready)
        say(f"  {score.text}")
        return score.numbers

    notes = [f"labels: {', '.join(model.config.id2label.values())}"] if "id2label" in config else []
    if (report := model.load_report) and (untrained := [*report.new, *report.missing]):
        notes.append(f"new, and to be learnt: {', '.join(untrained)}")
    if cut := task.cut(records, examples, ready):
        notes.append(
            f"{cut} of {len(records)} records reach --max-length {args.max_length}: what is beyond "
            "it is left out"
        )
    what = counted(len(records), "record")
    train_model(
        training, args, model, tokenizer, batches, family.new_optimizer(model), look, say, what,
        unit=family.unit, notes=notes,
    )  # fmt: skip
    return ready, tests


def _has_file(args: argparse.Namespace) -> bool:
    """Whether the records are a file's, and not generated."""
    return args.train not in (None, GENERATED)


def _family(task: Task[Any], args: argparse.Namespace) -> Family:
    """That of the model in --model, or else of the one that is asked for."""
    if args.model is not None:
        values = pretrained.read_config(pretrained.resolve(args.model))
        return family_of(values.get("model_type"), task.families)
    asked = getattr(args, "architecture", None)
    return next((f for f in task.families if f.name == asked), task.families[0])


def kind_of(args: argparse.Namespace) -> int:
    """The place in KINDS of what the arguments ask for."""
    return 2 if args.model is not None else 1 if _has_file(args) else 0


def _changes(folder: str, head: str, config: dict[str, Any]) -> dict[str, Any]:
    """The fields that differ from those in a model's folder.

    A model that tells all these classes apart already keeps its own: its head knows them in its own
    order, and perhaps others.

    InputError: its head has been trained for more classes or fewer, or for numbers.
    """
    values = pretrained.read_config(pretrained.resolve(folder))
    names = values.get("id2label")
    if not config or not any(name.endswith(head) for name in values["architectures"]):
        return config
    old = list(map(str, names.values())) if isinstance(names, dict) else ["LABEL_0", "LABEL_1"]
    new = list(config.get("id2label", {}).values())
    if new and set(new) <= set(old):
        return {}
    if len(old) != (len(new) or 1):
        raise InputError(
            f"{folder}: the model has been trained for the labels {', '.join(old)}, and the file "
            f"has {', '.join(new) or 'numbers'}; begin with a model without such a head"
        )
    return config


def new_batches(
    examples: list[Example], model: Model, args: argparse.Namespace, change: Change | None = None
) -> ExampleBatches:
    """Training batches; InputError: one example is over --max-tokens."""
    try:
        return ExampleBatches(
            examples,
            max_tokens=args.max_tokens,
            pad_id=pad_id(model.model),
            seed=args.seed,
            change=change,
        )
    except InputError as error:
        raise InputError(f"--max-tokens {args.max_tokens}: {error}") from error


def _longest(ids: Sequence[Any]) -> int:
    """Tokens of a text, or of the longest of an example's texts."""
    return len(ids) if np.ndim(ids[0]) == 0 else max(map(len, ids))


def _check_length(model: Model, folder: str | None) -> None:
    check_room(model, texts=1)
    if model.max_length > (most := model.family.longest(model.model)):
        raise InputError(f"--max-length {model.max_length}: the model in {folder} takes {most}")


def check_room(model: Model, texts: int) -> None:
    """InputError if --max-length holds no more than what stands around a text, or around two."""
    special = len(model.tokenizer.encode("", "" if texts > 1 else None).ids)
    if model.max_length <= special:
        around = "two texts" if texts > 1 else "a text"
        raise InputError(
            f"--max-length {model.max_length}: {special} special tokens stand around {around}; "
            "give more"
        )
