"""Learn to classify sentences, or pairs of them, to rate them, or to choose an ending.

    python -m tinyfm.demos.classify                 learns from generated opinions, in English
    python -m tinyfm.demos.classify --model FOLDER --text "The food was not good."
    python -m tinyfm.demos.classify --model FOLDER < lines.txt       (on a terminal: a prompt)
    python -m tinyfm.demos.classify --train train.tsv --valid dev.tsv --test test.tsv
    python -m tinyfm.demos.classify --train train.jsonl --model FOLDER     fine-tunes what is there
    python -m tinyfm.demos.classify --architecture gpt --lm-weight 0 0.5   GPT-1's way, compared

Files are JSON lines or tab-separated columns with a header, with the names

    sentence, label                 classes; or numbers (with a point: 4.0), to be predicted
    sentence1, sentence2, label     the same for pairs
    context, endings, label         which of the endings (a list, JSON only) is right, from 0

or others: --text-columns and --label-column name them; in a file without a header by numbers.
A training replaces what is in its folder (--save).

GPT-1 reads one text, a pair, or each ending after the context, between tokens that are new to it.
Pairs with numbers, and others with --both-orders, are read in both orders, for of two similar texts
neither comes first. While it learns the task it goes on learning to predict words (--lm-weight);
with several weights there is a model for each, in a folder of its own in --save, and a table.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tinyfm import metrics
from tinyfm.backend import to_numpy
from tinyfm.data import Example
from tinyfm.demos import cli, reviews
from tinyfm.demos.families import BERT, GPT1, Family
from tinyfm.demos.finetuning import (
    GENERATED,
    Change,
    Command,
    Model,
    Score,
    Task,
    check_room,
    is_switch,
    is_text,
    is_texts,
    learns,
    new_training,
    run_and_score,
    shared_parser,
)
from tinyfm.demos.learning import Say, begun
from tinyfm.demos.modelling import outputs
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
LM_WEIGHT = 0.5  # GPT-1, section 4.1
TRAINING = new_training(
    remembered={
        "text_columns": is_texts,
        "label_column": is_text,
        "architecture": lambda value: value in (None, BERT.name, GPT1.name),
        "both_orders": is_switch,
        "lm_weight": lambda value: value is None or isinstance(value, int | float),
    },
    epochs=(12, 3, 3),
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
    gpt = new.add_argument_group("models")
    gpt.add_argument(
        "--architecture", choices=(BERT.name, GPT1.name), help=f"of a new model (default: "
        f"{BERT.name})",
    )  # fmt: skip
    gpt.add_argument(
        "--both-orders", action="store_true", default=None, help="of GPT: read pairs in both "
        "orders, for classes that do not depend on it, such as paraphrase or none",
    )  # fmt: skip
    gpt.add_argument(
        "--lm-weight", type=weight, nargs="+", metavar="X", help="of GPT: how much the loss of the "
        f"next words is added to that of the task (default: {LM_WEIGHT}); several: a table",
    )  # fmt: skip
    files.add_argument(
        "--text", type=cli.full_text, metavar="TEXT", help="classify this; without it, after "
        "--model, each line of standard input, or what is typed at a prompt: a text, or texts with "
        "tabs between them",
    )  # fmt: skip
    files.add_argument(
        "--pair", type=cli.full_text, nargs="+", metavar="TEXT", help="the second text, or the "
        "endings, that belong to --text",
    )  # fmt: skip
    return new


def weight(value: str) -> float:
    """A number of at least 0."""
    if (parsed := cli.number(value)) < 0:
        raise argparse.ArgumentTypeError(f"give a number of at least 0, not {value!r}")
    return parsed


class Classification(Task[Any]):
    """Records are Examples, of one text or two, or Choices."""

    families = (BERT, GPT1)
    heads = ("ForSequenceClassification", *(family.choice for family in families))

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

    def head(self, records: Records[Any], family: Family) -> str:
        return family.choice if is_choice(records) else self.heads[0]

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

    def reading(
        self, records: Records[Any], family: Family, args: argparse.Namespace
    ) -> dict[str, Any]:
        if not family.generative:
            for name in ("both_orders", "lm_weight"):
                if getattr(args, name) is not None:
                    raise InputError(
                        f"--{name.replace('_', '-')} is for GPT: give --architecture {GPT1.name}, "
                        "or a --model of its family"
                    )
            return {}
        pairs = len(texts_of(records[0])) == 2 and not is_choice(records)
        if args.both_orders and not pairs:
            raise InputError(f"{records.where(0)}: no pair of texts; leave --both-orders out")
        similar = args.both_orders or (pairs and isinstance(records[0].label, float))
        return {"both_orders": True} if similar else {}

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
        task, words = label_names(model.model)
        made: list[Example] = []
        for example, label in zip(inputs, labels, strict=True):
            language = {words: example["input_ids"]} if model.family.generative else {}
            made.append({**example, task: label, **language})
        return made

    def change(self, args: argparse.Namespace, model: Model) -> Change | None:
        if not model.family.generative:
            return None
        weight = LM_WEIGHT if args.lm_weight is None else args.lm_weight
        _, words = label_names(model.model)

        def change(batch: Any, rng: np.random.Generator) -> Any:
            if weight == 0:
                return {name: array for name, array in batch.items() if name != words}
            return {**batch, "lm_weight": weight}

        return change

    def inputs(self, records: Sequence[Any], model: Model) -> list[Example]:
        """Examples without labels; of what is read in several ways, with a list for each."""

        def encoded(firsts: list[str], seconds: list[str] | None) -> list[dict[str, Any]]:
            check_room(model, 1 if seconds is None else 2)
            found = model.tokenizer.encode_all(firsts, seconds, model.max_length)
            return [model.family.example(encoding, model.model) for encoding in found]

        if is_choice(records):
            contexts = [record.context for record in records for _ in record.endings]
            endings = [ending for record in records for ending in record.endings]
            rows = iter(encoded(contexts, endings))
            return [together([next(rows) for _ in record.endings]) for record in records]
        firsts = [record.texts[0] for record in records]
        if not records[0].texts[1:]:
            return list(encoded(firsts, None))
        seconds = [record.texts[1] for record in records]
        pairs = encoded(firsts, seconds)
        if not model.family.generative or not model.model.config.both_orders:
            return list(pairs)
        others = encoded(seconds, firsts)
        return [together([*both]) for both in zip(pairs, others, strict=True)]

    def logits(self, records: Sequence[Any], model: Model) -> np.ndarray:
        """(N, C) numbers of float64."""
        examples = self.inputs(records, model)
        rows: list[Any] = [None] * len(examples)
        for indexes, _, output in outputs(model.model, examples):
            found = output.mc_logits if gpt_chooses(model.model) else output.logits
            for i, row in zip(indexes, to_numpy(found.data), strict=True):
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
            texts = [args.text, *(args.pair or ())]
            asked(model, texts, "--text")
            check_room(model, len(texts))


def is_choice(records: Sequence[Any]) -> bool:
    """Whether the records have endings."""
    return isinstance(records[0], Choice)


def chooses(model: Any) -> bool:
    """Whether the model is for such records."""
    return type(model).__name__.endswith((BERT.choice, GPT1.choice))


def gpt_chooses(model: Any) -> bool:
    """Whether it is GPT's, whose logits are those of words."""
    return type(model).__name__.endswith(GPT1.choice)


def label_names(model: Any) -> tuple[str, str]:
    """What the model calls the labels of the task, and a GPT those of words."""
    return ("mc_labels", "labels") if gpt_chooses(model) else ("labels", "lm_labels")


def together(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Texts of one example: of each field a list."""
    return {name: [row[name] for row in rows] for name in rows[0]}


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


def check_models(args: argparse.Namespace) -> None:
    """Options of GPT that exclude or need others."""
    for name in ("architecture", "both_orders", "lm_weight"):
        if getattr(args, name) is not None and not learns(args):
            option = name.replace("_", "-")
            raise InputError(f"--{option} is for a training: give --train too")
    if args.architecture is not None and args.model is not None:
        raise InputError(
            f"--architecture is for a new model, and that in {args.model} has its own: leave it or "
            "--model out"
        )
    if args.architecture == GPT1.name and args.ffn is not None:
        raise InputError("--ffn is for BERT: those of GPT are four times --hidden-size wide")


def learn_all(args: argparse.Namespace, say: Say) -> Model:
    """With several --lm-weight a training for each, and a table of their scores; the last model."""
    task, weights = Classification(), args.lm_weight
    if weights is None or len(weights) == 1:
        args.lm_weight = weights and weights[0]
        return run_and_score(task, TRAINING, args, say)[0]
    if len({*weights}) < len(weights):
        raise InputError("--lm-weight: a weight is given twice; give different ones")
    if args.train not in (None, GENERATED) and args.test is None:
        raise InputError("--lm-weight: several are compared by a test; give --test FILE")
    rows: list[tuple[float, dict[str, float]]] = []
    for number in weights:
        folder = Path(args.save) / f"lm-weight-{number:g}"
        # The second has the options of the first, and has not begun if that was interrupted.
        resume = args.resume and (not rows or begun(folder))
        changes = {"lm_weight": number, "save": str(folder), "resume": resume}
        own = argparse.Namespace(**vars(args) | changes)
        say(f"LM weight {number:g}:")
        model, scores = run_and_score(task, TRAINING, own, say)
        rows += [(number, score.numbers) for score in scores.values()]
    names = list(rows[0][1])
    say("  ".join(["LM weight", *(f"{name:>10}" for name in names)]))
    for number, numbers in rows:
        say("  ".join([f"{number:9g}", *(f"{numbers[name]:10.4f}" for name in names)]))
    return model


def main(args: argparse.Namespace) -> None:
    if args.pair and args.text is None:
        raise InputError("--pair is the second text: give the first with --text")
    check_models(args)
    quiet = args.text is not None or (not learns(args) and not args.test)
    task = Classification()

    say = cli.new_say(quiet)

    def answer_line(line: str, where: str) -> None:
        print(answer(task, model, line.split("\t"), where) if line.strip() else "")

    model = learn_all(args, say)
    if args.text is not None:
        print(answer(task, model, [args.text, *(args.pair or ())], "--text"))
    elif not learns(args) and not args.test:
        cli.answer_lines(answer_line)


if __name__ == "__main__":
    sys.exit(cli.run(main, new_parser()))
