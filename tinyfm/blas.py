"""OpenBLAS, which makes NumPy's matrix products: the kernels that it runs, and its threads."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np


@cache
def _library() -> Any:
    """OpenBLAS as NumPy's own wheels bring it; None in other builds, whose names differ."""
    for path in (Path(np.__file__).parents[1] / "numpy.libs").glob("*openblas*"):
        try:
            library = ctypes.CDLL(str(path))
            library.scipy_openblas_get_corename64_.restype = ctypes.c_char_p
            _ = library.scipy_openblas_get_num_threads64_, library.scipy_openblas_set_num_threads64_
        except (OSError, AttributeError):
            return None
        return library
    return None


def kernels() -> str:
    """The processor that OpenBLAS's kernels are for, "Haswell" for one; else "unknown"."""
    library = _library()
    return library.scipy_openblas_get_corename64_().decode() if library else "unknown"


def threads() -> int:
    """The threads of a matrix product; 1 where that is not known."""
    library = _library()
    return int(library.scipy_openblas_get_num_threads64_()) if library else 1


def set_threads(number: int) -> None:
    """How many threads a matrix product may take; without effect where that is not known."""
    if library := _library():
        library.scipy_openblas_set_num_threads64_(number)


_lock = threading.Lock()
_inside: set[int] = set()  # the threads that are within one_thread
_before = 1


@contextmanager
def one_thread() -> Iterator[None]:
    """Products inside run on one thread each: two of ours that each ask for two get in the way.

    (Their workers spin while they wait, and a long attention took ten times as long.)  What Ctrl-C
    leaves undone between any two of the lines is made good by the next use at the latest.
    """
    global _before
    me = threading.get_ident()
    with _lock:
        if not _inside:
            _before = threads()
        _inside.add(me)
    try:
        set_threads(1)
        yield
    finally:
        with _lock:
            if _inside <= {me}:
                set_threads(_before)
            _inside.discard(me)


def _after_fork() -> None:
    """A child has one thread, which is not within."""
    global _lock
    _lock = threading.Lock()
    if _inside:
        set_threads(_before)
        _inside.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_after_fork)
