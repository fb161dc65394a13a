"""Texts to pretrain on: documents, each a list of sentences.

- `python_manual`: the language reference that comes with every Python (pydoc_data.topics), English;
- `python_prose`: that, and the docstrings of Python's library, five times as much;
- `korean`: the Korean side of the embedded sentences, each a document of its own;
- `read`: a file with one sentence a line and a blank line between documents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from tinyfm.demos import korean_english
from tinyfm.demos.sources import standard_library
from tinyfm.errors import InputError
from tinyfm.text import read_lines

Document = list[str]


def python_manual() -> list[Document]:
    """A document for each topic of Python's `help()`, each sentence where it comes first.

    A paragraph counts if it is prose and no code, grammar or heading: it ends like a sentence, and
    five in six of its characters are letters and spaces. The versions of Python differ a little in
    these texts.
    """
    from pydoc_data.topics import topics

    return _prose([topics[name] for name in sorted(topics)])


def python_prose() -> list[Document]:
    """The manual's topics, and a document for each module of the library that has docstrings."""
    from pydoc_data.topics import topics

    docstrings = (re.findall(r'"""(.*?)"""', text, re.DOTALL) for text in standard_library())
    return _prose([*(topics[name] for name in sorted(topics)), *map("\n\n".join, docstrings)])


def _prose(texts: Iterable[str]) -> list[Document]:
    """The sentences of each text's paragraphs of prose; texts without any are left out."""
    seen: set[str] = set()
    documents = []
    for text in texts:
        document = []
        for block in re.split(r"\n\s*\n", text):
            paragraph = " ".join(re.sub(r"^\s*[*\-] ", "", block).split())
            if not _is_prose(paragraph):
                continue
            for sentence in re.split(r"(?<=[.!?:])[)”]? (?=[A-Z\"“])", paragraph):
                if sentence not in seen and len(sentence.split()) > 3:
                    seen.add(sentence)
                    document.append(sentence)
        if document:
            documents.append(document)
    return documents


def _is_prose(paragraph: str) -> bool:
    plain = sum(c.isalpha() or c.isspace() for c in paragraph)
    return (
        paragraph.endswith((".", ":", "!", "?"))
        and plain > 5 / 6 * len(paragraph)
        and not any(sign in paragraph for sign in ("::=", ">>>", " = ", " # ", "**", "--"))
    )


def korean() -> list[Document]:
    """The Korean sentences that the translate command is trained on, each a document."""
    return [[sentence] for sentence, _ in korean_english.split().train]


def read(path: str | Path) -> list[Document]:
    """The documents of a file; InputError, naming it, if there is no text in it."""
    documents: list[Document] = [[]]
    for line in read_lines(path):
        if line.strip():
            documents[-1].append(line.strip())
        elif documents[-1]:
            documents.append([])
    documents = [document for document in documents if document]
    if not documents:
        raise InputError(f"{path}: every line is blank; give one sentence a line")
    return documents


def split(documents: list[Document]) -> tuple[list[Document], list[Document]]:
    """(to learn from, held out): every tenth document by size, but never the only one."""
    by_size = sorted(range(len(documents)), key=lambda i: len(documents[i]))
    held_out = set(by_size[5::10] or by_size[1:2])
    rest = [document for i, document in enumerate(documents) if i not in held_out]
    return rest, [documents[i] for i in sorted(held_out)]


def corpus(
    name: str | None, default: Callable[[], list[Document]]
) -> tuple[list[Document], list[Document]]:
    """What --corpus names, parted by `split`: the default, "korean", or a file.

    InputError: one document, so that there is none to hold out.
    """
    if name == "korean":
        found = korean()
    elif name is None:
        found = default()
    else:
        found = read(name)
    rest, held_out = split(found)
    if not held_out:
        raise InputError(
            f"{name}: one document, and none to hold out; put a blank line between documents"
        )
    return rest, held_out
