"""Documents, and what they say in short."""

import re
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tinyfm.demos.records.reading import (
    Fields,
    Place,
    Reading,
    Records,
    is_json,
    json_object,
    numbered_lines,
    text,
    texts,
)
from tinyfm.errors import InputError

# The names under which known files have them; the first that is there is taken.
DOCUMENTS = ("source", "document", "article", "text")
SUMMARIES = ("target", "summary", "highlights")


class Summarized(NamedTuple):
    """A document, and summaries that all count as right (none: not given).

    sentences: the document's; one text, if the file does not part them
    """

    sentences: tuple[str, ...]
    summaries: tuple[str, ...]

    @property
    def document(self) -> str:
        return " ".join(self.sentences)

    @property
    def first(self) -> str:
        """The first sentence, a good summary already where the important comes first."""
        return self.sentences[0] if len(self.sentences) > 1 else first_sentence(self.sentences[0])


def read_summaries(
    path: str | Path, *, labelled: bool = True, skip: bool = False
) -> Records[Summarized]:
    """Read JSON lines of a document and its summary, or lines of document, tab, summary.

    In JSON they have one of the names DOCUMENTS and SUMMARIES. A document may be a list of its
    sentences, and a summary a list of several that are all right; what is blank in a list is left
    out.

    labelled  False: summaries may be missing, and a line without a tab is a document

    Raises InputError, naming file and line: no JSON, a field that is missing or blank, no tab or
    several, no record at all, and all that `read_lines` raises.
    """
    reading = Reading(path, skip)
    lines = numbered_lines(path)
    if lines and is_json(lines[0][1]):
        rows = reading.step(lines, json_object)
        return reading.done(reading.step(rows, partial(_from_fields, labelled)))
    return reading.done(reading.step(lines, partial(_from_columns, labelled)))


def _from_fields(labelled: bool, fields: Fields, place: Place) -> Summarized:
    sentences = _texts(fields, DOCUMENTS, place)
    if not sentences:
        raise InputError(f"{place}: no {DOCUMENTS[0]!r}; every record needs one")
    summaries = _texts(fields, SUMMARIES, place)
    if labelled and not summaries:
        raise InputError(f"{place}: no {SUMMARIES[0]!r}; every record needs one")
    return Summarized(sentences, summaries)


def _texts(fields: Fields, names: tuple[str, ...], place: Place) -> tuple[str, ...]:
    """What the record has under the first of these names, one text or a list; else nothing."""
    name = next((name for name in names if name in fields), None)
    if name is None:
        return ()
    value: Any = fields[name]
    if not isinstance(value, list):
        return (text(value, name, place).strip(),)
    written = [each for each in value if each != "" and not str(each).isspace()]
    return tuple(each.strip() for each in texts(written, name, place))


def _from_columns(labelled: bool, line: str, place: Place) -> Summarized:
    cells = line.split("\t")
    if len(cells) > 2 or (labelled and len(cells) == 1):
        raise InputError(
            f"{place}: {len(cells) - 1} tabs; write document, tab, summary, or one JSON object a "
            "line"
        )
    document, *summary = (
        text(cell, name, place) for cell, name in zip(cells, ("document", "summary"), strict=False)
    )
    return Summarized((document,), tuple(summary))


def first_sentence(document: str) -> str:
    """What stands before the first white space behind a full stop, question or exclamation mark.

    >>> first_sentence("It is 3.5 m long. It is red.")
    'It is 3.5 m long.'
    """
    return re.split(r"(?<=[.!?。！？])\s", document.strip(), maxsplit=1)[0]
