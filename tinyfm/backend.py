"""What lies under the engine: the array library, the random generator, blocks of rows, memory.

An array's own type says where it lives, and nothing else does: `array_module(x)` is NumPy for
NumPy's arrays and CuPy for CuPy's, so that a model on the CPU and one on the GPU run side by side
in one process.  NumPy is the only import; CuPy comes in with the first array that is one of its.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from tinyfm import blas, cuda

Array = Any  # a NumPy or CuPy array


# -- arrays and devices ---------------------------------------------------------------------------


def array_module(x: Array) -> Any:
    """NumPy for a NumPy array, else the library whose module defines the array's class (CuPy)."""
    return np if isinstance(x, np.ndarray) else sys.modules[type(x).__module__]


def is_array(x: object) -> bool:
    """Whether x is an array, of NumPy or of CuPy, which gave its class the same name."""
    return isinstance(x, np.ndarray) or type(x).__name__ == "ndarray"


def device_of(x: Array) -> str:
    """The device's name: "cpu" for NumPy, "cuda:0" and so on for CuPy."""
    if isinstance(x, np.ndarray):
        return "cpu"
    number = getattr(getattr(x, "device", None), "id", None)
    return type(x).__module__ if number is None else f"cuda:{number}"


def host(x: Any) -> np.ndarray:
    """A NumPy array of an array on any device, or of lists."""
    return to_numpy(x) if is_array(x) else np.asarray(x)


def to_numpy(x: Array) -> np.ndarray:
    """The NumPy array with x's values: x itself on the CPU, a copy from the device elsewhere."""
    return x if isinstance(x, np.ndarray) else x.get()


def to_device(x: Array, device: str) -> Array:
    """x on `device` ("cpu" or "cuda"): x itself when it is there already."""
    if device == "cpu":
        return to_numpy(x)
    kind, _, number = device.partition(":")
    if kind != "cuda" or not (number or "0").isdigit():
        raise ValueError(f"device {device!r} is unknown: use 'cpu', 'cuda' or 'cuda:1'")
    ok, reason = cuda.status()
    if not ok:
        raise RuntimeError(f"device {device!r}: {reason}; or use 'cpu'")
    import cupy

    with cupy.cuda.Device(int(number)) if number else nullcontext():
        return cupy.asarray(x)


# -- randomness -----------------------------------------------------------------------------------

_generator = np.random.Generator(np.random.PCG64(0))


def generator() -> np.random.Generator:
    """The one generator: weights are initialised and seeds of dropout masks are drawn from it.

    Its state (`generator().bit_generator.state`) is what a checkpoint saves.
    """
    return _generator


def manual_seed(seed: int) -> None:
    """Start the one generator anew, so that everything random that follows repeats."""
    _generator.bit_generator.state = np.random.PCG64(seed).state


def draw_seed() -> int:
    """An integer for an op that needs randomness; the same state gives the same one."""
    return int(_generator.integers(1 << 63))


def keep_mask(seed: int, p: float, rows: int, width: int, like: Array, start: int = 0) -> Array:
    """A bool array (rows, width), True with probability 1 - p: what dropout keeps.

    It is the part from row `start` of a mask without end that depends on seed, p and width alone,
    so that blocks of rows may be drawn in any order.  Drawn as bytes where 256 p is whole, else as
    16-bit integers: several times cheaper than uniform floats, and p is exact to 2**-17.  A GPU has
    masks of its own, whole ones only (start = 0).
    """
    bits, kind = (8, np.uint8) if float(p * 256).is_integer() else (16, np.uint16)
    threshold = round(p * 2**bits)
    xp = array_module(like)
    if threshold == 2**bits:
        return xp.zeros((rows, width), bool)
    if xp is not np:
        draws = xp.random.RandomState(seed % 2**32).randint(0, 2**bits, (rows, width), kind)
        return draws >= threshold
    words = -(-width * bits // 64)  # 64-bit words a row
    draws = np.random.PCG64(seed).advance(start * words).random_raw(rows * words)
    return draws.view(kind).reshape(rows, words * 64 // bits)[:, :width] >= threshold


# -- rows -----------------------------------------------------------------------------------------


def scatter_add_rows(rows: int, ids: Array, values: Array) -> Array:
    """A new (rows, D) array that holds at row r the sum of values[i] (N, D) over all ids[i] == r.

    A plain `table[ids] += values` would keep only the last of several equal ids.  NumPy's `add.at`
    has a fast path for one dimension, which is why the rows are addressed entry by entry.
    """
    xp = array_module(values)
    width = values.shape[1]
    table = xp.zeros((rows, width), values.dtype)
    entries = ids.reshape(-1, 1).astype(np.int64) * width + xp.arange(width)
    xp.add.at(table.reshape(-1), entries.reshape(-1), values.reshape(-1))
    return table


@dataclass(frozen=True)
class _Settings:
    block_bytes: int = 1 << 21  # the size at which a pass over rows is cut into blocks
    threads: int = 2


_DEFAULTS = _Settings()
_settings: ContextVar[_Settings] = ContextVar("settings", default=_DEFAULTS)


@contextmanager
def settings(*, block_bytes: int | None = None, threads: int | None = None) -> Iterator[None]:
    """Set the bytes of a block and the number of threads of the row-blocked CPU paths.

    >>> with settings(block_bytes=64, threads=2):  # what the tests use to force small blocks
    ...     pass
    """
    given = {"block_bytes": block_bytes, "threads": threads}
    for name, value in given.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}: it must be at least 1")
    changes = {name: value for name, value in given.items() if value is not None}
    token = _settings.set(replace(_settings.get(), **changes))
    try:
        yield
    finally:
        _settings.reset(token)


@cache
def _pool(threads: int) -> Any:
    from concurrent.futures import ThreadPoolExecutor  # slow to import, and often not needed

    return ThreadPoolExecutor(threads, thread_name_prefix="tinyfm")


def block_bytes() -> int:
    """Bytes that one block of a row-blocked pass should hold."""
    return _settings.get().block_bytes


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork


def by_blocks(work: Callable[[int, int], None], count: int, bytes_each: int) -> None:
    """Call work(start, stop) over consecutive blocks of `count` items of `bytes_each` bytes.

    A block goes through all steps of a fused op while it is in the cache, and two threads take
    turns at the blocks (NumPy releases the GIL inside its loops).  What fits into one block is one
    plain call: small arrays do not pay for any of it.
    """
    size = max(1, _settings.get().block_bytes // max(1, bytes_each))
    if size >= count:
        work(0, count)
        return
    threads = _settings.get().threads
    blocks = min(count, -(-count // (size * threads)) * threads)  # the same number for each thread
    size = -(-count // blocks)
    starts = iter(range(0, count, size))  # threads share it: each block goes to one of them

    def take_blocks() -> None:
        try:
            for start in starts:
                work(start, min(start + size, count))
        except BaseException:
            deque(starts, maxlen=0)  # nobody takes another one
            raise

    if threads == 1:
        take_blocks()
        return

    def help_out() -> None:
        with settings(threads=1):  # blocks within blocks would wait for this very thread
            take_blocks()

    pool = _pool(threads - 1)  # the caller is one of the threads
    with blas.one_thread():
        # A copy of the context: the caller's np.errstate holds in the other threads too.
        others = [pool.submit(copy_context().run, help_out) for _ in range(threads - 1)]
        try:
            take_blocks()
        finally:
            errors = [other.exception() for other in others]  # waits: nothing runs on behind us
    for error in filter(None, errors):
        raise error


def by_rows(work: Callable[..., None], first: Array, *others: Array | None) -> None:
    """Call work on the same blocks of rows of all arrays (None stays None); whole on a GPU."""
    # What is one block anyway is taken whole here already: a token's few rows pay for each call.
    if not isinstance(first, np.ndarray) or first.nbytes <= _settings.get().block_bytes:
        work(first, *others)
        return

    def block(start: int, stop: int) -> None:
        work(*(None if a is None else a[start:stop] for a in (first, *others)))

    by_blocks(block, len(first), first.nbytes // max(1, len(first)))


# -- memory ---------------------------------------------------------------------------------------

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # the constants of glibc's malloc.h


@cache
def keep_memory(limit: int = 1 << 30) -> bool:
    """Tell glibc's allocator to keep freed blocks up to `limit` bytes; True where it was done.

    By default every temporary of a few hundred KB goes back to the kernel and its pages fault anew
    at the next step, which costs more than the arithmetic.  Training and generation call this;
    the variable TINYFM_KEEP_MEMORY=0 leaves the allocator alone.
    """
    if os.environ.get("TINYFM_KEEP_MEMORY") == "0" or not sys.platform.startswith("linux"):
        return False
    import ctypes

    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another C library, musl for one
        return False
    limit = min(limit, (1 << 31) - 1)
    return bool(mallopt(_M_MMAP_THRESHOLD, limit) and mallopt(_M_TRIM_THRESHOLD, limit))
