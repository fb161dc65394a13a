"""Files in and out: bytes, JSON and arrays; what is written is there whole or not at all."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

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


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a safetensors file by their names; InputError if it is not a whole one."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        path.open("rb").close()  # safetensors says of any file it may not read that there is none
        return load_file(path)
    except PermissionError as error:
        raise InputError(f"{path}: {error.strerror}; give a file that can be read") from error
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"{path}: not a readable safetensors file ({error}); write it anew"
        ) from error
    except TypeError as error:  # bfloat16 and narrower
        raise InputError(f"{path}: NumPy has no such type ({error}); save as float32") from error


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
            raise OSError(f"{path}: {error}") from error
