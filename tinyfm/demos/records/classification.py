"""Texts with labels: class names, numbers, or the right one of several endings."""

import math
import re
import reprlib
from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import NamedTuple

from tinyfm.demos.records.reading import (
    Fields,
    Place,
    Reading,
    Records,
    field,
    is_json,
    json_object,
    numbered_lines,
    text,
    texts,
)
from tinyfm.errors import InputError

CHOICE_COLUMNS = ("context", "endings")
# The names under which known task files have their texts and labels; the first that fits is taken.
TEXT_COLUMNS = (
    CHOICE_COLUMNS,
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("#1 String", "#2 String"),
    ("sentence",),
    ("text",),
    ("document",),
)
LABEL_COLUMNS = (("label",), ("score",), ("Quality",))

DECIMAL = re.compile(r"[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?")


class Example(NamedTuple):
    """One text, or two that belong together, and a class name or a number (None: not given)."""

    texts: tuple[str, ...]
    label: str | float | None


class Choice(NamedTuple):
    """A beginning, endings to choose from, and the index of the right one (None: not given)."""

    context: str
    endings: tuple[str, ...]
    label: int | None


def read_classification(
    path: str | Path,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
    *,
    labelled: bool = True,
    regression: bool | None = None,
    classes: Collection[str] | None = None,
    skip: bool = False,
    options: bool = True,
) -> Records[Example] | Records[Choice]:
    """Read JSON lines or tab-separated columns: texts and labels.

    The columns of common files (TEXT_COLUMNS, LABEL_COLUMNS) are found by their names; else they
    have to be named, one column of texts or two. In tab-separated files the first line has the
    names, and quotation marks mean nothing. Files without such a line have columns "1", "2" ...:
    it is taken for a row when all columns are named by numbers.

    JSON lines with context and endings (a list) give Choices; their labels count from 0, and all
    have the same number of endings.

    labelled    False: labels are not looked for; they come out as None
    regression  True: labels are numbers. False: class names, whatever they look like. None:
                numbers where one is written with a decimal point, as 3.8 and 5.0 are, and no
                classes are given
    classes     the class names there are; any other is an error
    options     whether the user can name columns, with --text-columns and --label-column

    Raises InputError, naming file and line: no such column, columns too few or too many, no JSON,
    a blank text, a label that is blank, no number or not among the classes, no record at all, and
    all that `read_lines` raises.
    """
    reading = Reading(path, skip)
    named = [*(text_columns or ()), *([label_column] if label_column else ())]
    rows = _rows(reading, headed=not named or not all(name.isdecimal() for name in named))
    columns = list(rows[0][1])
    text_option, label_option = ("--text-columns", "--label-column") if options else (None, None)
    text_names = tuple(text_columns or _known(TEXT_COLUMNS, columns, text_option, path))
    label_name = None
    if labelled:
        label_name = label_column or _known(LABEL_COLUMNS, columns, label_option, path)[0]
    for name in (*text_names, *([label_name] if label_name else ())):
        if name not in columns:
            remedy = "name another" if options else "call it so in the file"
            raise InputError(f"{path}: no column {name!r} among {_names(columns)}; {remedy}")

    if text_names == CHOICE_COLUMNS:
        choices = reading.step(rows, partial(_choice, label_name))
        counts = Counter(len(choice.endings) for _, choice in choices)
        number = counts.most_common(1)[0][0]  # of the first, where several are as frequent
        return reading.done(reading.step(choices, partial(_check_endings, number)))
    if len(text_names) > 2:
        raise InputError(f"{path}: {len(text_names)} columns of texts; name one or two")
    examples = reading.step(rows, partial(_example, text_names, label_name))
    if regression is None:
        regression = classes is None and any(_is_decimal(e.label) for _, e in examples)
    if labelled:
        finish = _with_number if regression else partial(_with_class, classes)
        examples = reading.step(examples, finish)
    return reading.done(examples)


# Rows of columns


def _rows(reading: Reading, headed: bool) -> list[tuple[Place, Fields]]:
    lines = numbered_lines(reading.path)
    if lines and is_json(lines[0][1]):
        return reading.step(lines, json_object)
    names = lines[0][1].split("\t") if lines else []
    if headed:
        return reading.step(lines[1:], partial(_cells, names))
    names = [str(number) for number in range(1, len(names) + 1)]
    return reading.step(lines, partial(_cells, names))


def _cells(names: Sequence[str], line: str, place: Place) -> Fields:
    cells = line.split("\t")
    if len(cells) != len(names):
        raise InputError(
            f"{place}: {_columns(len(cells))}, but the first line has {len(names)}; "
            "put one tab between columns and none into them"
        )
    return dict(zip(names, cells, strict=True))


def _columns(number: int) -> str:
    return "1 column" if number == 1 else f"{number} columns"


def _names(columns: Sequence[str]) -> str:
    return shorten(", ".join(map(repr, columns)), 200)


def _known(
    known: Sequence[tuple[str, ...]], columns: Sequence[str], option: str | None, path: str | Path
) -> tuple[str, ...]:
    for names in known:
        if set(names) <= set(columns):
            return names
    what = " or ".join("+".join(names) for names in known if names != CHOICE_COLUMNS)
    remedy = "call it so in the file"
    if option is not None:
        remedy = f"name it with {option} (by its number, where the file has no line with names)"
    raise InputError(f"{path}: the columns are {_names(columns)}, and none is {what}; {remedy}")


# Their texts


def _example(
    text_names: Sequence[str], label_name: str | None, fields: Fields, place: Place
) -> Example:
    """Texts, and the label as it stands in the file."""
    pair = tuple(text(field(fields, name, place), name, place) for name in text_names)
    return Example(pair, field(fields, label_name, place) if label_name else None)


def _choice(label_name: str | None, fields: Fields, place: Place) -> Choice:
    context = text(field(fields, "context", place), "context", place)
    endings = texts(field(fields, "endings", place), "endings", place)
    if label_name is None:
        return Choice(context, endings, None)
    label = field(fields, label_name, place)
    if str(label) not in map(str, range(len(endings))):
        raise InputError(
            f"{place}: label {reprlib.repr(label)} is none of 0 to {len(endings) - 1}; "
            "it is the index of the right ending"
        )
    return Choice(context, endings, int(label))


def _check_endings(number: int, choice: Choice, place: Place) -> Choice:
    if len(choice.endings) != number:
        raise InputError(
            f"{place}: {len(choice.endings)} endings, but {number} in most records; give as many "
            "everywhere"
        )
    return choice


# Their labels


def _is_decimal(label: object) -> bool:
    return isinstance(label, float) or (
        isinstance(label, str) and DECIMAL.fullmatch(label.strip()) is not None
    )


def _with_number(example: Example, place: Place) -> Example:
    label: object = example.label
    try:
        number = math.nan if isinstance(label, bool) else float(label)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(
            f"{place}: label {reprlib.repr(label)} is no number, as the others are; mend it"
        )
    return example._replace(label=number)


def _with_class(classes: Collection[str] | None, example: Example, place: Place) -> Example:
    label: object = example.label
    if isinstance(label, bool):
        name = str(label).lower()  # as JSON writes it
    elif isinstance(label, str | int | float) and str(label).strip():
        name = str(label).strip()
    else:
        raise InputError(
            f"{place}: label {reprlib.repr(label)} is no class; give a name or a number"
        )
    if classes is not None and name not in classes:
        raise InputError(
            f"{place}: label {reprlib.repr(name)} is none of {_names(list(classes))}; mend it"
        )
    return example._replace(label=name)
