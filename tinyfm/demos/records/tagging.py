"""Sentences whose words bear tags: who and what is named where."""

import reprlib
from collections.abc import Collection
from functools import partial
from itertools import groupby
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
    texts,
)
from tinyfm.errors import InputError
from tinyfm.metrics import split_tag
from tinyfm.text import read_lines

DOCUMENT_START = "-DOCSTART-"  # a line of its own between the documents of CoNLL-2003


class TaggedWords(NamedTuple):
    """The words of a sentence and as many tags, B-PER, I-PER, O ... (None: not given)."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None


def read_tagging(
    path: str | Path,
    *,
    labelled: bool = True,
    tags: Collection[str] | None = None,
    skip: bool = False,
) -> Records[TaggedWords]:
    """Read sentences of tagged words: JSON lines or columns.

    JSON lines have tokens and ner_tags, lists of one length; the tags are names, not numbers. In
    columns each line has a word first and its tag last, between tabs or else spaces, and a blank
    line ends a sentence.

    labelled  False: tags are not looked for; they come out as None
    tags      the tags there are; any other is an error. Whatever is given, a tag is O or begins
              with B-, I-, E- or S- (`metrics.split_tag`)
    skip      leaves out the whole sentence of a bad line

    Raises InputError, naming file and line: a word without a tag, an unknown tag, no JSON, no
    sentence at all, and all that `read_lines` raises.
    """
    reading = Reading(path, skip)
    lines = numbered_lines(path)
    if lines and is_json(lines[0][1]):
        rows = reading.step(lines, json_object)
        return reading.done(reading.step(rows, partial(_from_json, labelled, tags)))
    return reading.done(reading.step(_blocks(path), partial(_from_columns, labelled, tags)))


def _blocks(path: str | Path) -> list[tuple[Place, list[tuple[Place, str]]]]:
    """The lines between blank lines, each block with the place of its first line."""
    lines = [(f"{path}:{number}", line) for number, line in enumerate(read_lines(path), 1)]
    lines = [(place, line) for place, line in lines if not line.startswith(DOCUMENT_START)]
    runs = groupby(lines, key=lambda numbered: bool(numbered[1].strip()))
    blocks = [list(run) for full, run in runs if full]
    return [(block[0][0], block) for block in blocks]


def _from_columns(
    labelled: bool, tags: Collection[str] | None, block: list[tuple[Place, str]], place: Place
) -> TaggedWords:
    rows = [(where, line.split("\t" if "\t" in line else None)) for where, line in block]
    words = tuple(text(cells[0], "word", where) for where, cells in rows)
    if not labelled:
        return TaggedWords(words, None)
    for where, cells in rows:
        if len(cells) == 1:
            raise InputError(
                f"{where}: no tag after {reprlib.repr(cells[0])}; put a tab and a tag there"
            )
    return TaggedWords(words, tuple(_tag(cells[-1], tags, where) for where, cells in rows))


def _from_json(
    labelled: bool, tags: Collection[str] | None, fields: Fields, place: Place
) -> TaggedWords:
    words = texts(field(fields, "tokens", place), "tokens", place)
    if not labelled:
        return TaggedWords(words, None)
    given = texts(field(fields, "ner_tags", place), "ner_tags", place)
    if len(given) != len(words):
        raise InputError(f"{place}: {len(words)} tokens but {len(given)} ner_tags; each needs one")
    return TaggedWords(words, tuple(_tag(tag, tags, place) for tag in given))


def _tag(tag: str, tags: Collection[str] | None, place: Place) -> str:
    try:
        split_tag(tag)
    except ValueError as error:
        raise InputError(f"{place}: {error}; write it so") from None
    if tags is not None and tag not in tags:
        raise InputError(f"{place}: tag {tag!r} is none of {', '.join(tags)}; mend it")
    return tag
