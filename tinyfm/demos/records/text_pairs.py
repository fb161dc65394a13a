"""Texts and what is to be written of them."""

from pathlib import Path
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
)
from tinyfm.errors import InputError


class TextPair(NamedTuple):
    """What a model reads, and what it is to write.

    task: what sort it is, where that is known. guess: what can be written without having learnt.
    """

    source: str
    target: str
    task: str = ""
    guess: str = ""


def read_text_pairs(path: str | Path, *, skip: bool = False) -> Records[TextPair]:
    """Read JSON lines of {"source": ..., "target": ...}, perhaps with a "task"; or lines of source,
    tab, target.

    Raises InputError, naming file and line: no JSON, a field that is missing or blank, no tab or
    several, no record at all, and all that `read_lines` raises.
    """
    reading = Reading(path, skip)
    lines = numbered_lines(path)
    if lines and is_json(lines[0][1]):
        return reading.done(reading.step(reading.step(lines, json_object), _from_fields))
    return reading.done(reading.step(lines, _from_columns))


def _from_fields(fields: Fields, place: Place) -> TextPair:
    source, target = (
        text(field(fields, name, place), name, place) for name in TextPair._fields[:2]
    )
    task = text(fields["task"], "task", place) if "task" in fields else ""
    return TextPair(source, target, task)


def _from_columns(line: str, place: Place) -> TextPair:
    cells = line.split("\t")
    if len(cells) != 2:
        raise InputError(
            f"{place}: {len(cells) - 1} tabs; write source, tab, target, or one JSON object a line"
        )
    return TextPair(text(cells[0], "source", place), text(cells[1], "target", place))
