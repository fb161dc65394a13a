"""Where the gradients of leaves go: into `.grad`, or into a dict of the thread that makes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tinyfm.backend import Array

_collected: ContextVar[dict[Any, Array] | None] = ContextVar("collected", default=None)


@contextmanager
def collected() -> Iterator[dict[Any, Array]]:
    """Within the block, on this thread, gradients go into the dict, by leaf, instead of `.grad`.

    So two threads may go backward through the same weights at the same time.
    """
    gradients: dict[Any, Array] = {}
    token = _collected.set(gradients)
    try:
        yield gradients
    finally:
        _collected.reset(token)


def accumulate(leaf: Any, grad: Array, own: bool) -> None:
    """Add to the leaf's gradient, which is contiguous, writable and shared with nobody.

    own: grad is a new array that nobody else will look at, so it may become the gradient itself.
    """
    gradients = _collected.get()
    held = leaf.grad if gradients is None else gradients.get(leaf)
    if held is not None:
        held += grad
        return
    new = grad if own and grad.flags.c_contiguous else grad.copy(order="C")
    if gradients is None:
        leaf.grad = new
    else:
        gradients[leaf] = new
