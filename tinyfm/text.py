"""Lines of UTF-8 files, alone and in pairs; characters, and the room that they take."""

import logging
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from tinyfm.errors import InputError
from tinyfm.files import read_bytes

logger = logging.getLogger(__name__)


def read_lines(path: str | Path) -> list[str]:
    """Return the lines of a UTF-8 text file, without their line ends.

    A name ending in `.gz` is unpacked. The encoding is UTF-8 whatever the locale says; a
    byte-order mark is dropped. Lines end in `\\n` or `\\r\\n` and in nothing else, so that two
    parallel files stay parallel: `str.splitlines` would also cut at U+2028 or a form feed.
    Blank lines are kept.

    Raises InputError, naming the file: missing, unreadable, a damaged archive, empty, or not
    UTF-8 (then with the number of the first bad line).
    """
    content = read_bytes(Path(path)).removeprefix(b"\xef\xbb\xbf")
    if not content:
        raise InputError(f"{path}: the file is empty; give one with lines of text")
    lines = content.removesuffix(b"\n").split(b"\n")
    return [_decode(line, path, number) for number, line in enumerate(lines, 1)]


def _decode(line: bytes, path: str | Path, number: int) -> str:
    try:
        return line.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}:{number}: not valid UTF-8; save the file as UTF-8") from error


class ParallelText(list[tuple[str, str]]):
    """Pairs (source, target) that remember where they stand: `where(i)` is "train.de.gz:17".

    That is what a message about pair i should name.  Slices are plain lists.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]], paths: Sequence[str], lines: list[int]):
        super().__init__(pairs)
        self._paths, self._lines = paths, lines

    def where(self, index: int, side: int = 0) -> str:
        """File and line of one side (0: source, 1: target) of a pair."""
        return f"{self._paths[side]}:{self._lines[index]}"

    def places(self, side: int = 0) -> list[str]:
        """`where` of every pair."""
        return [self.where(index, side) for index in range(len(self))]


def read_pairs(source_path: str | Path, target_path: str | Path | None = None) -> ParallelText:
    """Return the pairs (source, target) of two files, or of one file with a tab in each line.

    Two files: equal line numbers belong together.  One file: source, tab, target; what follows
    after another tab (a licence, an id) is left out.  A pair with a blank side teaches nothing and
    is left out as well; how many were is reported as a warning of the logger `tinyfm.text`, which
    Python prints to stderr by default.

    Raises InputError, naming file and line: files of unequal length, a line without a tab, no pair
    that is left, and all that `read_lines` raises.
    """
    if target_path is None:
        pairs, paths = _split_at_tabs(source_path), [str(source_path)] * 2
    else:
        sources, targets = read_lines(source_path), read_lines(target_path)
        if len(sources) != len(targets):
            raise InputError(
                f"{source_path} has {len(sources)} lines and {target_path} has {len(targets)}; "
                "line n of one must be the translation of line n of the other"
            )
        pairs, paths = (
            list(zip(sources, targets, strict=True)),
            [str(source_path), str(target_path)],
        )
    lines = [number for number, pair in enumerate(pairs, 1) if all(map(str.strip, pair))]
    names = " and ".join(dict.fromkeys(paths))
    if not lines:
        raise InputError(f"{names}: every pair has a blank side; are these the right files?")
    if dropped := len(pairs) - len(lines):
        logger.warning(
            "%s: dropped %d of %d pairs, which have a blank side", names, dropped, len(pairs)
        )
    return ParallelText([pairs[number - 1] for number in lines], paths, lines)


def _split_at_tabs(path: str | Path) -> list[tuple[str, str]]:
    pairs = []
    for number, line in enumerate(read_lines(path), 1):
        source, tab, rest = line.partition("\t")
        if not tab and line.strip():
            raise InputError(
                f"{path}:{number}: no tab; each line must be source, tab, target; or give two files"
            )
        pairs.append((source, rest.partition("\t")[0]))
    return pairs


def is_attached(character: str) -> bool:
    """Whether a character is no letter or sign of its own, and goes with the one before it.

    Marks such as a combining accent, the vowels and finals of a decomposed Korean syllable, and
    what is not seen at all, such as a soft hyphen or a zero-width space.  White space is not meant.
    """
    return not character.isspace() and (
        unicodedata.category(character)[0] in "MC"
        or "\u1160" <= character <= "\u11ff"
        or "\ud7b0" <= character <= "\ud7ff"
    )


def columns(text: str) -> int:
    """How many columns of a terminal a text takes: two for a Hangul syllable and its like.

    >>> columns("party"), columns("파티"), columns("e\N{COMBINING ACUTE ACCENT}")
    (5, 4, 1)
    """
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(map(is_attached, text))
