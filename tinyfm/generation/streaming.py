"""Text printed while it is made."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np

UNFINISHED = "\ufffd"  # what decoders put for bytes that are no character yet


class Decoder(Protocol):
    """What turns ids into text, such as tinyfm.tokenizer.Tokenizer."""

    def decode(self, ids: Iterable[int]) -> str: ...


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def continued(tokenizer: Decoder, before: Sequence[int], ids: Sequence[int]) -> str:
    """What ids add to the text of those before them.

    Of itself no token tells whether a space parts it from the one before (GPT-1), or of which
    character it is a part.
    """
    begin, whole = tokenizer.decode(before), tokenizer.decode([*before, *ids])
    differ = (i for i, (old, new) in enumerate(zip(begin, whole, strict=False)) if old != new)
    return whole[next(differ, len(begin)) :]


class TextStreamer:
    """A streamer of one sequence: writes each piece of text as soon as it can no longer change.

    A character of several bytes may come in several tokens: what decodes to a replacement mark at
    the end waits for the tokens that repair it, and is written at the end at the latest.

    write: gets each piece; by default it is printed.
    skip: ids that end or pad the text and give none.
    before: the ids of a prompt, whose text is not written but is gone on with.
    """

    def __init__(
        self,
        tokenizer: Decoder,
        write: Callable[[str], None] = _write,
        skip: Iterable[int] = (),
        before: Sequence[int] = (),
    ) -> None:
        self.tokenizer, self.write, self.skip, self.before = tokenizer, write, {*skip}, before
        self.ids: list[int] = []
        self.written = 0  # characters

    def __call__(self, ids: np.ndarray) -> None:
        if len(ids) != 1:
            raise ValueError(
                f"streamer: {len(ids)} sequences run and one can be shown: give one prompt, and "
                "leave num_return_sequences out"
            )
        new = int(ids[0])
        if new not in self.skip:
            self.ids.append(new)
            self._put(self._text().rstrip(UNFINISHED))

    def end(self) -> None:
        """Write what was held back; another continuation may then begin."""
        self._put(self._text())
        self.ids, self.written = [], 0

    def _text(self) -> str:
        return continued(self.tokenizer, self.before, self.ids)

    def _put(self, text: str) -> None:
        if piece := text[self.written :]:
            self.write(piece)
            self.written = len(text)
