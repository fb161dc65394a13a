"""Texts for a language model: documents, each one string with its line ends.

- `standard_library`: the Python source of the standard library with which this Python runs;
- `read`: a file of text, or of JSON lines with a "text" each.
"""

from __future__ import annotations

import json
import os
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from tinyfm.demos.records.reading import field, is_json, json_object, numbered_lines, text
from tinyfm.errors import InputError
from tinyfm.text import read_lines

# Tests, tables instead of code, and what other versions of Python lack.
LEFT_OUT = {
    "dist-packages", "distutils", "encodings", "idlelib", "lib2to3", "pydoc_data", "site-packages",
    "test", "tests", "turtledemo",
}  # fmt: skip


def standard_library() -> list[str]:
    """The source files, in the order of their names; the versions of Python differ in them.

    InputError: this Python has come without them.
    """
    root = sysconfig.get_path("stdlib")
    paths = []
    for folder, inner, files in os.walk(root):
        inner[:] = set(inner) - LEFT_OUT  # and does not walk there
        paths += [Path(folder, name) for name in files if name.endswith(".py")]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(paths)]
    if not (texts := [source for source in texts if source.strip()]):
        raise InputError(f"{root}: holds no Python source to learn from; give --corpus FILE")
    return texts


def read(path: str | Path) -> list[str]:
    """The documents of a file: one a line, if the first is a JSON object; else the whole is one.

    InputError names the file, and the line that is no {"text": ...} or whose text is blank; a file
    that is JSON as a whole is no text either.
    """
    lines = numbered_lines(path)
    if not lines:
        raise InputError(f"{path}: every line is blank; give a text to learn from")
    if not is_json(lines[0][1]):
        document = "\n".join(read_lines(path)) + "\n"
        if is_whole_json(document):
            raise InputError(
                f'{path}: one JSON value and no text; give lines of {{"text": ...}}, each whole'
            )
        return [document]
    rows = ((json_object(line, place), place) for place, line in lines)
    return [text(field(row, "text", place), "text", place) for row, place in rows]


def is_whole_json(document: str) -> bool:
    """Whether a file is one list or object of JSON, such as a data set on several lines."""
    if not document.lstrip().startswith(("[", "{")):
        return False
    try:
        json.loads(document)
    except (ValueError, RecursionError):
        return False
    return True


def split(documents: Sequence[str]) -> tuple[list[str], list[str]]:
    """(to learn from, held out): the last documents, so many that they are a tenth of the text.

    At least one is kept and one held out; a single document is cut after nine tenths of it.
    """
    size = sum(map(len, documents))
    if len(documents) == 1:
        place = size * 9 // 10
        return [documents[0][:place]], [documents[0][place:]]
    first, wanted = len(documents), size / 10
    while wanted > 0 and first > 1:
        first -= 1
        wanted -= len(documents[first])
    return [*documents[:first]], [*documents[first:]]
