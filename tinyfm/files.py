"""Files in and out: bytes, JSON and arrays; what is written is there whole or not at all."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tinyfm.errors import InputError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """`with replacing(path) as temporary:` write to temporary; it becomes path when all is well.

    So a file is there whole or not at all, also after an interrupt, a power cut or on a full disk.
    temporary is in a folder of its own, NAME.partial, as some writers put more files beside it;
    what a killed process leaves there goes with the next write.  An OSError names path.
    """
    folder = path.with_name(path.name + ".partial")
    temporary = folder / path.name
    try:
        remove(folder)
        folder.mkdir()
        temporary.touch()
        mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)  # safetensors lets nobody but the owner read its files
        _sync(temporary, os.O_RDWR)  # else the new name may reach the disk before the content
        os.replace(temporary, path)
        with suppress(OSError):  # some systems cannot do it for a folder
            _sync(path.parent, os.O_RDONLY)  # the new name, before anything that relies on it
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(folder), str(temporary)):
            error.filename = str(path)  # a failed write names no file
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it; nothing if there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path, mode: int) -> None:
    """Wait until the content of a file, or the names in a folder, have reached the disk."""
    descriptor = os.open(path, mode)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked if its name ends in `.gz`.

    InputError, naming the file: missing, unreadable, a damaged archive.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; give a file that can be read") from error
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"{path}: the gzip archive is cut short or damaged ({error}); pack it anew"
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; InputError, naming the file, if there is none."""
    content = read_bytes(path)
    try:
        values = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: damaged, or not JSON ({error}); write it anew") from error
    if not isinstance(values, dict):
        raise InputError(f"{path}: damaged, or not a JSON object; write it anew")
    return values


def write_json(path: Path, values: dict[str, Any], indent: int | None = 2) -> None:
    """A JSON file; indent=None puts all of it into one line."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(values, indent=indent) + "\n", encoding="utf-8")


DTYPES = {
    **{f"F{8 * size}": f"<f{size}" for size in (2, 4, 8)},
    **{f"I{8 * size}": f"<i{size}" for size in (1, 2, 4, 8)},
    **{f"U{8 * size}": f"<u{size}" for size in (1, 2, 4, 8)},
    "BOOL": "?",
    "BF16": "<u2",  # the upper half of a float32, which NumPy has no name for
}
LONGEST_HEADER = 100_000_000  # bytes; the format allows no more


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file by their names; InputError if it is not a whole one.

    They are read-only views of the mapped file, of which the system reads a page when it is used.
    They stay as they are when another file takes the name, as `replacing` does it, but not when
    somebody writes into this one.  bfloat16 alone is copied: it is widened to float32, exactly.
    """
    # A file is eight bytes, the header's length; the header, JSON; and the arrays end to end.
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = 8 + int.from_bytes(file.read(8), "little")
            if not 8 < start <= min(size, 8 + LONGEST_HEADER):
                raise ValueError(f"it has {size} bytes and announces {start - 8} for its header")
            header = json.loads(file.read(start - 8).decode("utf-8"))
            entries = _checked_entries(header, size - start)
            content = np.memmap(file, np.uint8, "r").view(np.ndarray)[start:]
        return {name: _array(content, entry) for name, entry in entries.items()}
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; give a file that can be read") from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: not a whole safetensors file ({error}); get or write it anew"
        ) from error


class _Entry(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    begin: int  # bytes after the header
    end: int


def _checked_entries(header: Any, size: int) -> dict[str, _Entry]:
    """What a header says of each array, if it fits together and into the size; else ValueError."""
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    entries = {}
    for name, values in header.items():
        if name == "__metadata__":
            continue
        try:
            dtype, (begin, end) = values["dtype"], values["data_offsets"]
            entry = _Entry(dtype, tuple(values["shape"]), begin, end)
            whole = all(type(n) is int and n >= 0 for n in (*entry.shape, begin, end))
            known = dtype in DTYPES
        except (KeyError, TypeError, ValueError):
            whole = known = False
        if not whole:
            raise ValueError(f"its header says of {name!r} {str(values)[:80]}")
        if not known:
            raise ValueError(f"{name!r} is of type {dtype}, which cannot be read; save as float32")
        if end - begin != math.prod(entry.shape) * np.dtype(DTYPES[dtype]).itemsize:
            raise ValueError(f"{name!r}, {dtype} {entry.shape}, has {end - begin} bytes")
        entries[name] = entry
    place = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1][2:]):
        if entry.begin != place:
            raise ValueError(f"{name!r} begins at byte {entry.begin} instead of {place}")
        place = entry.end
    if place != size:
        raise ValueError(f"{size} bytes follow its header, which speaks of {place}")
    return entries


def _array(content: np.ndarray, entry: _Entry) -> np.ndarray:
    array = content[entry.begin : entry.end].view(DTYPES[entry.dtype])
    if entry.dtype == "BF16":
        array = np.left_shift(array, 16, dtype=np.uint32).view(np.float32)
    return array.reshape(entry.shape)


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """A safetensors file of the arrays; OSError, as of a full disk, names the path."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    # In C order, for safetensors writes the memory as it lies.  (ascontiguousarray makes 0-d 1-d.)
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    with replacing(path) as temporary:
        try:
            save_file(arrays, temporary, {"format": "pt"})  # older transformers look for it
        except SafetensorError as error:
            if found := re.search(r"os error (\d+)", str(error)):  # as Python would say it
                raise OSError(number := int(found[1]), os.strerror(number)) from error
            raise OSError(f"{path}: {error}") from error
