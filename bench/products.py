"""The matrix products of a training step, and what its ops take: by watching them.

A product is the limit of what NumPy can do: none of its parts makes it faster.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bench import common
from tinyfm.autograd import registry

Times = dict[str, list[float]]  # of an op: seconds forward and backward
Shapes = list[tuple[tuple[int, ...], tuple[int, ...]]]  # of two arrays that are multiplied


def new_times() -> Times:
    return defaultdict(lambda: [0.0, 0.0])


def products_of(name: str, arrays: tuple[Any, ...]) -> Shapes:
    """The matrix products of one call of an op with its backward, which has two for each one."""
    if name in ("linear", "linear_cross_entropy"):
        x, (outputs, inputs) = arrays[0], arrays[1].shape
        rows = x.size // inputs
        if name == "linear_cross_entropy":
            rows = int((arrays[3] != -100).sum())
        return [
            ((rows, inputs), (inputs, outputs)),
            ((rows, outputs), (outputs, inputs)),
            ((outputs, rows), (rows, inputs)),
        ]
    shapes: Shapes = []
    if name == "fused_attention":
        q, k, v = (x.shape for x in arrays[:3])
        many, queries, keys = q[:2], q[2], k[2]
        for width in (q[3], v[3]):  # scores and result, each with the gradients of both sides
            shapes += [
                ((*many, queries, width), (*many, width, keys)),
                ((*many, queries, keys), (*many, keys, width)),
                ((*many, keys, queries), (*many, queries, width)),
            ]
    return shapes


@contextmanager
def watched(times: Times, shapes: Shapes) -> Iterator[None]:
    """Every op adds its seconds to `times` and its products to `shapes`."""
    plain = [op.__wrapped__ for op in registry]  # type: ignore[attr-defined]

    def timed(name: str, place: int, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            result = call(*arguments, **options)
            times[name][place] += time.perf_counter() - start
            return result

        return run

    def watch(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__
        forward = timed(name, 0, function)

        def run(*arrays: Any, **options: Any) -> Any:
            result, vjps = forward(*arrays, **options)
            shapes.extend(products_of(name, arrays))
            if callable(vjps):
                return result, timed(name, 1, vjps)
            return result, tuple(None if vjp is None else timed(name, 1, vjp) for vjp in vjps)

        return run

    for op, function in zip(registry, plain, strict=True):
        op.__wrapped__ = watch(function)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for op, function in zip(registry, plain, strict=True):
            op.__wrapped__ = function  # type: ignore[attr-defined]


def multiply(shapes: Shapes) -> Callable[[], None]:
    """The products, on arrays that are shared where shapes are equal, and nothing else."""
    arrays = {
        shape: np.random.default_rng(0).standard_normal(shape, np.float32)
        for shape in {shape for pair in shapes for shape in pair}
    }
    pairs = [(arrays[a], arrays[b]) for a, b in shapes]

    def run() -> None:
        for a, b in pairs:
            a @ b

    return run


def limit(group: str, work: str, step: Callable[[], Any], rounds: int) -> dict[str, Any]:
    """A row with the time of a step's products alone."""
    shapes: Shapes = []
    with watched(new_times(), shapes):
        step()
    alone, _ = common.alternate(multiply(shapes), None, rounds)
    return common.row(group, f"{work}; the limit: matrix products alone", "ms", alone.times(1e3))
