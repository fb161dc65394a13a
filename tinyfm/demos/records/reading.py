"""What the readers share: records that remember their places, and what to do with bad ones."""

import json
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from tinyfm.errors import InputError
from tinyfm.text import read_lines

logger = logging.getLogger("tinyfm.demos.records")

A = TypeVar("A")
B = TypeVar("B")
Place = str  # how a message names a record: "train.tsv:7"
Fields = dict[str, Any]  # a record by the names of its columns


class Records(list[A]):
    """Records that remember where they stand: `where(i)` is "train.tsv:17".

    That is what a message about record i should name.  Slices are plain lists.
    """

    def __init__(self, records: Iterable[A], places: Sequence[Place]) -> None:
        super().__init__(records)
        self._places = places

    @classmethod
    def generated(cls, records: Sequence[A], what: str) -> Self:
        """Records out of no file: `where(i)` is "generated sentence 17"."""
        return cls(records, [f"generated {what} {i}" for i in range(1, len(records) + 1)])

    def where(self, index: int) -> Place:
        """File and line of a record; in SQuAD's JSON, file and question."""
        return self._places[index]


class Reading:
    """Records on their way through the steps of a reader, which may find them bad.

    A step is a function (record, place) -> record that raises InputError. Without `skip` the first
    one leaves; with `skip` the record is dropped, and `done` reports how many were, and why.
    """

    def __init__(self, path: str | Path, skip: bool) -> None:
        self.path, self.skip = path, skip
        self.dropped: list[InputError] = []

    def step(
        self, records: Iterable[tuple[Place, A]], read: Callable[[A, Place], B]
    ) -> list[tuple[Place, B]]:
        """The records as `read` gives them, with their places; InputError if none is left."""
        kept = []
        for place, record in records:
            try:
                kept.append((place, read(record, place)))
            except InputError as error:
                if not self.skip:
                    raise
                self.dropped.append(error)
        if not kept:
            why = f"every record is bad ({self.dropped[0]})" if self.dropped else "no records"
            raise InputError(f"{self.path}: {why}; is this the right file?")
        return kept

    def done(self, records: list[tuple[Place, A]]) -> Records[A]:
        """The records that are left, after a word about those that are not."""
        if self.dropped:
            number = len(self.dropped)
            logger.warning(
                "%s: dropped %d of %d rows (%s%s)",
                *(self.path, number, number + len(records)),
                *(self.dropped[0], "; ..." if number > 1 else ""),
            )
        return Records([record for _, record in records], [place for place, _ in records])


def numbered_lines(path: str | Path) -> list[tuple[Place, str]]:
    """The lines of a file that are not blank, with their places."""
    lines = enumerate(read_lines(path), 1)
    return [(f"{path}:{number}", line) for number, line in lines if line.strip()]


def is_json(line: str) -> bool:
    """Whether a line begins as a JSON object does, and not with a word that is a brace."""
    return re.match(r'\s*\{\s*["}]', line) is not None


def json_object(line: str, place: Place) -> Fields:
    """The object in a line of JSON."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: not JSON ({error}); each line is one JSON object") from error
    if not isinstance(fields, dict):
        raise InputError(f"{place}: no JSON object; each line is one, {{...}}")
    return fields


def field(fields: Fields, name: str, place: Place) -> Any:
    """What a record has under this name."""
    if name not in fields:
        raise InputError(f"{place}: no {name!r}; every record needs one")
    return fields[name]


def text(value: object, name: str, place: Place) -> str:
    """A text that is not blank and that UTF-8 can express (JSON can write half a character)."""
    if not isinstance(value, str):
        raise InputError(f"{place}: {name!r} is no text; write it in quotation marks")
    if not value.strip():
        raise InputError(f"{place}: {name!r} is blank; write a text or leave the record out")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{place}: {name!r} holds half a character ({error}); mend it") from None
    return value


def texts(value: object, name: str, place: Place) -> tuple[str, ...]:
    """A list of such texts."""
    if not isinstance(value, list) or not value:
        raise InputError(f"{place}: {name!r} is no list of texts; write one or more in [...]")
    return tuple(text(item, name, place) for item in value)
