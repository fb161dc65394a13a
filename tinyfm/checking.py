"""gradcheck: are the gradients of a function right?  A tool for your own ops as well as for these.

A derivative is a limit, so it can be measured: (f(x + h) - f(x - h)) / 2h differs from f'(x) by
O(h**2).  For a function with many outputs we check the gradient of sum(w * f(x)) for random w: one
number, on which every output and, with a few directions or entry by entry, every input has a say.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinyfm.autograd import Tensor, no_grad
from tinyfm.backend import Array


class GradientError(AssertionError):
    """A gradient that differs from what finite differences measure."""


def gradcheck(
    f: Callable[..., Any],
    *tensors: Tensor,
    rtol: float = 1e-5,
    atol: float = 1e-7,
    max_entries: int = 64,
    seed: int = 0,
) -> bool:
    """True if backward through f agrees with central differences, for every input; else an error.

    f(*tensors) -> a Tensor or a tuple of them, of any shapes.  f may also reach the tensors by
        itself, as a model does its parameters.
    tensors: float64; those with requires_grad are checked, and their `.grad` is left as it was
        (tensors that f reaches by itself and that are not among these collect a gradient).
    max_entries: inputs up to this size are checked at every entry, larger ones along 4 random
        directions; if one of those is off, halving the direction leads to an entry that is.
    rtol, atol: of the comparison; atol shrinks with sum|f| below 1, down to 1e-10.
    Raises GradientError with the input, the index and both values; ValueError where a check could
    not mean anything: float32 (rounding drowns the difference), no input with requires_grad, or a
    function that gives two results for the same inputs.

    >>> x = Tensor(np.array([1.0, 2.0]), requires_grad=True)
    >>> gradcheck(lambda x: x * x, x)
    True
    """
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise TypeError(f"gradcheck: input {i} is {type(t).__name__}; give Tensors")
    checked = [(i, t) for i, t in enumerate(tensors) if t.requires_grad]
    if not checked:
        raise ValueError("gradcheck: no input has requires_grad=True, so nothing would be checked")
    for i, t in enumerate(tensors):
        if t.dtype.kind == "f" and t.dtype != np.float64:
            raise ValueError(
                f"gradcheck: input {i} is {t.dtype}; use float64, rounding hides errors below that"
            )
    rng = np.random.default_rng(seed)
    before = [t.grad for _, t in checked]
    try:
        for _, t in checked:
            t.grad = None
        outputs = _outputs(f, tensors)
        weights = [rng.standard_normal(y.shape) for y in outputs]
        with no_grad():
            again = _outputs(f, tensors)
        # Not bit for bit: a matrix product may round differently where its memory lies otherwise.
        for y, z in zip(outputs, again, strict=True):
            if not np.allclose(y._data, z._data, rtol=1e-9, atol=1e-12, equal_nan=True):
                raise ValueError(
                    "gradcheck: the function gives two results for the same inputs, which differ "
                    f"by up to {np.abs(y._data - z._data).max():.3g}; fix its randomness (dropout "
                    "takes a seed)"
                )
        size = sum(float(np.abs(y._data * w).sum()) for y, w in zip(outputs, weights, strict=True))
        atol = max(atol * min(1.0, size), 1e-10) if math.isfinite(size) else atol
        _backward(outputs, weights)
        gradients = [np.zeros(t.shape) if t.grad is None else t.grad for _, t in checked]
    finally:
        for (_, t), grad in zip(checked, before, strict=True):
            t.grad = grad

    def moved(t: Tensor, step: Array) -> float:
        kept = t._data
        t._data = np.asarray(kept + step)
        try:
            with no_grad():
                return _weighted(_outputs(f, tensors), weights)
        finally:
            t._data = kept

    for (i, t), gradient in zip(checked, gradients, strict=True):
        _check_input(i, t, gradient, moved, rng, rtol, atol, max_entries)
    return True


def _check_input(
    i: int, t: Tensor, gradient: Array, moved: Any, rng: Any, rtol: float, atol: float, most: int
) -> None:
    h = 6e-6 * max(1.0, float(np.abs(t._data).max(initial=0.0)))  # eps ** (1/3): both errors small

    def along(direction: Array, h: float = h) -> tuple[float, float]:
        """(the gradient's, the measured) derivative along a direction."""
        step, used = h * direction, direction != 0
        with np.errstate(invalid="ignore"):  # inf - inf
            said = float((gradient[used] * direction[used]).sum())  # without NaNs from elsewhere
        return said, (moved(t, step) - moved(t, -step)) / (2 * h)

    def differ(pair: tuple[float, float], scale: float = 1.0) -> bool:
        said, measured = pair
        bound = atol * scale + rtol * max(abs(said), abs(measured))
        return not (math.isfinite(said) and abs(said - measured) <= bound)

    def checked(direction: Array, scale: float = 1.0) -> tuple[tuple[float, float], bool]:
        """(the two derivatives, do they differ).

        If they do, half the step tells how much of it is curvature, O(h**2), and leaves O(h**4).
        """
        pair = along(direction)
        if differ(pair, scale):
            said, measured = pair
            pair = said, (4 * along(direction, h / 2)[1] - measured) / 3
        return pair, differ(pair, scale)

    def entry(index: tuple[int, ...]) -> Array:
        one = np.zeros(t.shape)
        one[index] = 1.0
        return one

    def report(index: tuple[int, ...], pair: tuple[float, float]) -> None:
        raise GradientError(
            f"input {i} at {index}: backward gives {pair[0]:.10g} and finite differences "
            f"{pair[1]:.10g}"
        )

    if t.size <= most:
        for index in np.ndindex(t.shape):
            pair, wrong = checked(entry(index))
            if wrong:
                report(index, pair)
        return
    for _ in range(4):
        direction = rng.choice([-1.0, 1.0], t.shape)
        _, wrong = checked(direction, scale=math.sqrt(t.size))
        if not wrong:
            continue
        where = np.arange(t.size)  # halve the direction, keeping the half that is further off
        while len(where) > 1:
            halves = []
            for part in np.array_split(where, 2):
                masked = np.zeros(t.size)
                masked[part] = direction.reshape(-1)[part]
                said, measured = along(masked.reshape(t.shape))
                off = abs(said - measured)
                halves.append((math.inf if math.isnan(off) else off, part))
            where = max(halves, key=lambda half: half[0])[1]
        index = tuple(int(n) for n in np.unravel_index(where[0], t.shape))
        report(index, along(entry(index)))


def _outputs(f: Callable[..., Any], tensors: tuple[Tensor, ...]) -> list[Tensor]:
    result = f(*tensors)
    return list(result) if isinstance(result, tuple | list) else [result]


def _weighted(outputs: list[Tensor], weights: list[Array]) -> float:
    return sum(float((y._data * w).sum()) for y, w in zip(outputs, weights, strict=True))


def _backward(outputs: list[Tensor], weights: list[Array]) -> None:
    """Backward from sum(w * y) over all outputs that depend on anything."""
    for n, (y, w) in enumerate(zip(outputs, weights, strict=True)):
        if y.requires_grad:
            y.backward(w.astype(y.dtype), retain_graph=n + 1 < len(outputs))
