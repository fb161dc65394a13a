"""Learn to classify sentences, or pairs of them, to rate them, or to choose an ending.

    python -m tinyfm.demos.classify                 learns from generated opinions, in English
    python -m tinyfm.demos.classify --model FOLDER --text "The food was not good."
    python -m tinyfm.demos.classify --model FOLDER < lines.txt       (on a terminal: a prompt)
    python -m tinyfm.demos.classify --train train.tsv --valid dev.tsv --test test.tsv
    python -m tinyfm.demos.classify --train train.jsonl --model FOLDER     fine-tunes what is there

Files are JSON lines or tab-separated columns with a header, with the names

    sentence, label                 classes; or numbers (with a point: 4.0), to be predicted
    sentence1, sentence2, label     the same for pairs
    context, endings, label         which of the endings (a list, JSON only) is right, from 0

or others: --text-columns and --label-column name them; in a file without a header by numbers.
A training replaces what is in its folder (--save).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyfm import metrics
from tinyfm.backend import to_numpy
from tinyfm.data import Example
from tinyfm.demos import cli, reviews
from tinyfm.demos.encoders import new_example, outputs
from tinyfm.demos.finetuning import (
    Command,
    Model,
    Score,
    Task,
    is_text,
    is_texts,
    learns,
    new_training,
    run,
    shared_parser,
)
from tinyfm.demos.records import Choice, Records, read_classification
from tinyfm.demos.records import Example as Record
from tinyfm.errors import InputError
from tinyfm.objectives import class_labels, regression_labels

COMMAND = Command(
    prog="classify",
    doc=__doc__ or "",
    save="classifier",
    train="JSON lines, or tab-separated columns with a header",
)
TRAINING = new_training(
    remembered={"text_columns": is_texts, "label_column": is_text}, epochs=(12, 3, 3)
)


def new_parser() -> cli.Parser:
    """The shared options, and how the columns are called, and what to classify."""
    new = shared_parser(COMMAND, TRAINING)
    files = new.add_argument_group("files and texts")
    files.add_argument(
        "--text-columns", type=cli.text, nargs="+", metavar="NAME", help="the columns of the "
        "text, or of the two texts (default: sentence; sentence1 and sentence2; others that are "
        "usual)",
    )  # fmt: skip
    files.add_argument(
        "--label-column",
        type=cli.text,
        metavar="NAME",
        help="the column of the label (default: label, score)",
    )
    files.add_argument(
        "--text", type=cli.text, metavar="TEXT", help="classify this; without it, after --model, "
        "each line of standard input, or what is typed at a prompt: a text, or texts with tabs "
        "between them",
    )  # fmt: skip
    files.add_argument(
        "--pair", type=cli.text, nargs="+", metavar="TEXT", help="the second text, or the endings, "
        "that belong to --text",
    )  # fmt: skip
    return new


class Classification(Task[Any]):
    """Records are Examples, of one text or two, or Choices."""

    heads = ("ForSequenceClassification", "ForMultipleChoice")

    def read(self, path: str, args: argparse.Namespace, model: Any = None) -> Records[Any]:
        classes = regression = None
        if model is not None and not chooses(model):
            regression = model.config.num_labels == 1
            classes = None if regression else list(model.config.label2id)
        records = read_classification(
            path,
            args.text_columns,
            args.label_column,
            regression=regression,
            classes=classes,
            skip=bool(args.skip_bad),
        )
        if model is not None and chooses(model) != is_choice(records):
            kinds = {True: "endings to choose from", False: "classes or numbers"}
            raise InputError(
                f"{path}: has {kinds[is_choice(records)]}, and the model is for "
                f"{kinds[chooses(model)]}; give another file"
            )
        return records

    def embedded(self) -> tuple[Records[Any], dict[str, Records[Any]]]:
        return reviews.records()

    def head(self, records: Records[Any]) -> str:
        return self.heads[is_choice(records)]

    def config(self, records: Records[Any]) -> dict[str, Any]:
        if is_choice(records):
            if len(records[0].endings) == 1:
                raise InputError(f"{records.where(0)}: 1 ending; give two or more to choose from")
            return {}
        labels = {record.label for record in records}
        if any(isinstance(label, float) for label in labels):
            return {"num_labels": 1}
        names = sorted(labels)
        if len(names) == 1:
            raise InputError(
                f"{records.where(0)}: label {names[0]!r} is the only one in the file; give two or "
                "more to tell apart"
            )
        if all(name.isdecimal() for name in names):
            names.sort(key=int)
        return {"id2label": dict(enumerate(names))}

    def lines(self, records: Records[Any]) -> list[str]:
        return [text for record in records for text in texts_of(record)]

    def examples(self, records: Sequence[Any], model: Model) -> list[Example]:
        inputs = self.inputs(records, model)
        given = [record.label for record in records]
        labels: np.ndarray
        if is_choice(records):
            labels = np.array(given, np.int64)
        elif model.model.config.num_labels == 1:
            labels = regression_labels(given)
        else:
            labels = class_labels(given, model.model.config.label2id)
        return [{**x, "labels": label} for x, label in zip(inputs, labels, strict=True)]

    def inputs(self, records: Sequence[Any], model: Model) -> list[Example]:
        """Examples without labels."""
        if not is_choice(records):
            firsts = [record.texts[0] for record in records]
            pairs = [record.texts[1] for record in records] if records[0].texts[1:] else None
            encoded = model.tokenizer.encode_all(firsts, pairs, model.max_length)
            return [new_example(encoding, model.model) for encoding in encoded]
        contexts = [record.context for record in records for _ in record.endings]
        endings = [ending for record in records for ending in record.endings]
        encoded = model.tokenizer.encode_all(contexts, endings, model.max_length)
        rows = iter([new_example(encoding, model.model) for encoding in encoded])
        made = ([next(rows) for _ in record.endings] for record in records)
        return [{name: [row[name] for row in group] for name in group[0]} for group in made]

    def logits(self, records: Sequence[Any], model: Model) -> np.ndarray:
        """(N, C) numbers of float64."""
        examples = self.inputs(records, model)
        rows: list[Any] = [None] * len(examples)
        for indexes, _, output in outputs(model.model, examples):
            for i, row in zip(indexes, to_numpy(output.logits.data), strict=True):
                rows[i] = row
        return np.array(rows, np.float64)

    def score(self, records: Records[Any], model: Model) -> Score:
        logits, given = self.logits(records, model), [record.label for record in records]
        if is_choice(records):
            numbers = {"accuracy": metrics.accuracy(given, logits.argmax(-1))}
        elif model.model.config.num_labels == 1:
            numbers = {
                "Pearson": metrics.pearson(given, logits[:, 0]),
                "Spearman": metrics.spearman(given, logits[:, 0]),
            }
        else:
            names = model.model.config.id2label
            predicted = [names[int(i)] for i in logits.argmax(-1)]
            numbers = {
                "accuracy": metrics.accuracy(given, predicted),
                "macro F1": metrics.macro_f1(given, predicted),
                "Matthews": metrics.matthews(given, predicted),
            }
            if len(names) == 2:
                numbers[f"F1 of {names[1]}"] = metrics.f1(given, predicted, names[1])
        shown = ", ".join(f"{name} {number:.4f}" for name, number in numbers.items())
        return Score(f"{shown} ({len(records)} records)", numbers)

    def check_asked(self, args: argparse.Namespace, model: Model) -> None:
        if args.text is not None:
            asked(model, [args.text, *(args.pair or ())], "--text")


def is_choice(records: Sequence[Any]) -> bool:
    """Whether the records have endings."""
    return isinstance(records[0], Choice)


def chooses(model: Any) -> bool:
    """Whether the model is for such records."""
    return type(model).__name__.endswith("MultipleChoice")


def texts_of(record: Any) -> tuple[str, ...]:
    return (record.context, *record.endings) if isinstance(record, Choice) else record.texts


def asked(model: Model, texts: Sequence[str], where: str) -> Any:
    """A text, or texts that belong together, as a record; InputError if the model takes no such."""
    if chooses(model.model):
        if len(texts) < 3:
            raise InputError(
                f"{where}: the model chooses among endings; give a text and two or more"
            )
        return Choice(texts[0], tuple(texts[1:]), None)
    if len(texts) > 2:
        raise InputError(f"{where}: {len(texts)} texts; give one, or two that belong together")
    return Record(tuple(texts), None)


def answer(task: Classification, model: Model, texts: Sequence[str], where: str) -> str:
    """One line for a text, or texts that belong together: the best class first, with tabs."""
    choosing = chooses(model.model)
    logits = task.logits([asked(model, texts, where)], model)[0]
    if not choosing and model.model.config.num_labels == 1:
        return f"{logits[0]:.4f}"
    weights = np.exp(logits - logits.max())
    names = dict(enumerate(texts[1:])) if choosing else model.model.config.id2label
    best = np.argsort(-weights, kind="stable")
    return "\t".join(f"{names[int(i)]}\t{weights[i] / weights.sum():.4f}" for i in best)


def main(args: argparse.Namespace) -> None:
    if args.pair and args.text is None:
        raise InputError("--pair is the second text: give the first with --text")
    quiet = args.text is not None or (not learns(args) and not args.test)
    task = Classification()

    say = cli.new_say(quiet)

    def answer_line(line: str, where: str) -> None:
        print(answer(task, model, line.split("\t"), where) if line.strip() else "")

    model = run(task, TRAINING, args, say)
    if args.text is not None:
        print(answer(task, model, [args.text, *(args.pair or ())], "--text"))
    elif not learns(args) and not args.test:
        cli.answer_lines(answer_line)


if __name__ == "__main__":
    sys.exit(cli.run(main, new_parser()))
