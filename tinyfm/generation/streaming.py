"""Text printed while it is made."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np

UNFINISHED = "\ufffd"  # what decoders put for bytes that are no character yet


class Decoder(Protocol):
    """What turns ids into text, such as tinyfm.tokenizer.Tokenizer."""

    def decode(self, ids: Iterable[int]) -> str: ...


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


class TextStreamer:
    """A streamer of one sequence: writes each piece of text as soon as it can no longer change.

    A character of several bytes may come in several tokens: what decodes to a replacement mark at
    the end waits for the tokens that repair it, and is written at the end at the latest.

    write: gets each piece; by default it is printed.
    skip: ids that end or pad the text and give none.
    """

    def __init__(
        self,
        tokenizer: Decoder,
        write: Callable[[str], None] = _write,
        skip: Iterable[int] = (),
    ) -> None:
        self.tokenizer, self.write, self.skip = tokenizer, write, {*skip}
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
            self._put(self.tokenizer.decode(self.ids).rstrip(UNFINISHED))

    def end(self) -> None:
        """Write what was held back; a new sequence may then begin."""
        self._put(self.tokenizer.decode(self.ids))
        self.ids, self.written = [], 0

    def _put(self, text: str) -> None:
        if piece := text[self.written :]:
            self.write(piece)
            self.written = len(text)
