"""Learn to tag words: who and what is named in a sentence.

    python -m tinyfm.demos.tag                      learns from generated sentences, in English
    python -m tinyfm.demos.tag --model FOLDER --text "Steve Jobs founded Apple in California."
    python -m tinyfm.demos.tag --model FOLDER < lines.txt            (on a terminal: a prompt)
    python -m tinyfm.demos.tag --train train.txt --valid dev.txt --test test.txt
    python -m tinyfm.demos.tag --train train.jsonl --model FOLDER    fine-tunes what is there

Files have a word and its tag (B-PER, I-PER, O ...) in each line and a blank line between sentences;
or they are JSON lines with tokens and ner_tags, two lists. A training replaces what is in its
folder (--save).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from tinyfm import metrics
from tinyfm.backend import to_numpy
from tinyfm.data import Example
from tinyfm.demos import cli, people
from tinyfm.demos.encoders import new_example
from tinyfm.demos.finetuning import (
    Command,
    Model,
    Score,
    Task,
    learns,
    new_training,
    run,
    shared_parser,
)
from tinyfm.demos.modelling import outputs
from tinyfm.demos.records import Records, TaggedWords, read_tagging
from tinyfm.errors import InputError
from tinyfm.objectives import tag_labels, word_tags
from tinyfm.tokenizer import Encoding

COMMAND = Command(
    prog="tag",
    doc=__doc__ or "",
    save="tagger",
    train="a word and its tag in each line, or JSON lines",
)
TRAINING = new_training(epochs=(7, 3, 3))


def new_parser() -> cli.Parser:
    """The shared options, and what to tag."""
    new = shared_parser(COMMAND, TRAINING)
    new.add_argument(
        "--text", type=cli.text, metavar="TEXT", help="find what is named in this; without it, "
        "after --model, in each line of standard input, or in what is typed at a prompt",
    )  # fmt: skip
    return new


class Tagging(Task[TaggedWords]):
    heads = ("ForTokenClassification",)
    lowercase = False  # capitals tell names

    def read(self, path: str, args: argparse.Namespace, model: Any = None) -> Records[TaggedWords]:
        tags = None if model is None else list(model.config.label2id)
        return read_tagging(path, tags=tags, skip=bool(args.skip_bad))

    def embedded(self) -> tuple[Records[TaggedWords], dict[str, Records[TaggedWords]]]:
        return people.records()

    def config(self, records: Records[TaggedWords]) -> dict[str, Any]:
        """O, and both B- and I- of all that is tagged, so that the tests have no others."""
        found = {metrics.split_tag(tag) for record in records for tag in record.tags or ()}
        if found == {("O", "")}:
            raise InputError(
                f"{records.where(0)}: here and in the rest of the file every tag is O; mark what "
                "is to be found with B- and I-"
            )
        kinds = {f"{sign}-{name}" for _, name in found if name for sign in "BI"}
        others = {f"{sign}-{name}" for sign, name in found if name} - kinds
        return {"id2label": dict(enumerate(["O", *sorted(kinds | others)]))}

    def lines(self, records: Records[TaggedWords]) -> list[str]:
        return [" ".join(record.words) for record in records]

    def examples(self, records: Sequence[TaggedWords], model: Model) -> list[Example]:
        label2id = model.model.config.label2id
        return [
            new_example(
                encoding,
                model.model,
                labels=tag_labels(encoding.word_ids, record.tags or (), label2id),
            )
            for record, encoding in zip(records, self.encode(records, model), strict=True)
        ]

    def encode(self, records: Sequence[TaggedWords], model: Model) -> list[Encoding]:
        return [model.tokenizer.encode_words(r.words, model.max_length) for r in records]

    def score(self, records: Records[TaggedWords], model: Model) -> Score:
        encodings = self.encode(records, model)
        found = predicted_tags(model, encodings)
        cut = 0
        for record, tags in zip(records, found, strict=True):
            cut += len(record.words) - len(tags)
            tags.extend(["O"] * (len(record.words) - len(tags)))
        true = [list(record.tags or ()) for record in records]
        scores = metrics.entity_f1(true, found)
        numbers = {"precision": scores.precision, "recall": scores.recall, "F1": scores.f1}
        shown = ", ".join(f"{name} {number:.4f}" for name, number in numbers.items())
        more = f"; {cut} words are cut and count as O" if cut else ""
        return Score(f"{shown} of entities ({len(records)} sentences{more})", numbers)


def predicted_tags(model: Model, encodings: Sequence[Encoding]) -> list[list[str]]:
    """The tag of each word, read at its first piece."""
    names = model.model.config.id2label
    examples = [new_example(encoding, model.model) for encoding in encodings]
    tags: list[list[str]] = [[] for _ in encodings]
    for indexes, _, output in outputs(model.model, examples):
        best = to_numpy(output.logits.data).argmax(-1)
        for i, row in zip(indexes, best, strict=True):
            word_ids = encodings[i].word_ids
            tags[i] = word_tags(word_ids, [names[int(k)] for k in row[: len(word_ids)]])
    return tags


class Found(NamedTuple):
    """An entity in a text: text[start:end] names a thing of this type."""

    type: str
    text: str
    start: int
    end: int


def find(model: Model, text: str) -> list[Found]:
    """The entities of a text, whose words are parted as the tokenizer parts them."""
    encoding = model.tokenizer.encode(text, max_length=model.max_length)
    (tags,) = predicted_tags(model, [encoding])
    starts: dict[int, int] = {}
    ends: dict[int, int] = {}
    for word, (start, end) in zip(encoding.word_ids, encoding.offsets, strict=True):
        if word is not None:
            starts.setdefault(word, start)
            ends[word] = end
    return [
        Found(kind, text[starts[first] : ends[last - 1]], starts[first], ends[last - 1])
        for kind, first, last in metrics.entities(tags)
    ]


def print_found(model: Model, text: str, where: str) -> None:
    """A line for each entity: its type, its text, and its place in characters, with tabs."""
    if (length := len(model.tokenizer.encode(text).ids)) > model.max_length:
        print(
            f"{where}: {length} subwords, and the model takes {model.max_length}: the end is cut",
            file=sys.stderr,
        )
    for found in find(model, text):
        print(*found, sep="\t")


def check_tags(model: Model, folder: str) -> None:
    """InputError: the model has learnt other tags, such as parts of speech."""
    try:
        metrics.entities(list(model.model.config.label2id))
    except ValueError as error:
        raise InputError(f"{folder}: {error}; give a model that finds entities") from error


def main(args: argparse.Namespace) -> None:
    quiet = args.text is not None or (not learns(args) and not args.test)

    say = cli.new_say(quiet)

    def answer(line: str, where: str) -> None:
        print_found(model, line, where)
        print()

    model = run(Tagging(), TRAINING, args, say)
    if not learns(args):
        check_tags(model, args.model)
    if args.text is not None:
        print_found(model, args.text, "--text")
    elif not learns(args) and not args.test:
        cli.answer_lines(answer)


if __name__ == "__main__":
    sys.exit(cli.run(main, new_parser()))
