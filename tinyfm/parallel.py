"""Forward and backward of one batch on several threads, each with some of its rows.

NumPy computes without Python's lock, so threads do run side by side.  But a thread takes as long to
wake up as a small op to run, and a step has a thousand ops: threads that shared the rows of each op
would mostly wait for each other.  Parts of a batch need nothing of each other until the end, where
their gradients are summed.  That is what `accumulate` does in `training.fit`, at the same time
instead of in turns.

The result is that of the whole batch but for rounding: every part draws the same seeds, and takes
its own rows of the dropout masks.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tinyfm import blas
from tinyfm.autograd import Tensor
from tinyfm.backend import (
    Array,
    batch_part,
    by_rows,
    copy_of_generator,
    generator,
    settings,
    side_by_side,
    threads,
)
from tinyfm.gradients import collected
from tinyfm.masks import Mask

LEAST_WORK = 1e10  # operations of a step; with fewer, threads cost more than they bring


def backward(model: Any, batch: dict[str, Any]) -> tuple[float, int]:
    """Add to `.grad` the gradient of the *sum* of the losses of all labelled positions.

    batch: for `model(**batch)`, whose result has .loss, a mean, and .num_labels, of how many.
    Returns (the sum of the losses, num_labels).  A batch without labels adds nothing.

    On a CPU it runs on `settings(threads=...)` threads where the model is `separable` (nn.Module)
    and there is enough to do; else on one.
    """
    parts = _parts(model, batch)
    if len(parts) == 1:
        return _backward(model, batch)
    results = side_by_side(*(partial(_apart, model, part) for part in parts))
    generator().bit_generator.state = results[0].generator_state
    for result in results:
        for leaf, gradient in result.gradients.items():
            if leaf.grad is None:
                leaf.grad = gradient
            else:
                by_rows(_add, leaf.grad.reshape(-1), gradient.reshape(-1))
    return sum(result.loss for result in results), sum(result.labels for result in results)


def _backward(model: Any, batch: dict[str, Any]) -> tuple[float, int]:
    output = model(**batch)
    count = output.num_labels
    if not count:
        return 0.0, 0
    output.loss.backward(np.asarray(count, output.loss.dtype))
    return output.loss.item() * count, count


def _add(a: Array, b: Array) -> None:
    a += b


# -- parts of a batch -----------------------------------------------------------------------------


class _Part(NamedTuple):
    batch: dict[str, Any]
    first: int
    rows: int


class _Result(NamedTuple):
    loss: float
    labels: int
    gradients: dict[Tensor, Array]
    generator_state: Any


def _apart(model: Any, part: _Part) -> _Result:
    own = copy_of_generator()
    with (
        settings(threads=1),
        batch_part(part.first, part.rows, own),
        collected() as gradients,
    ):
        loss, labels = _backward(model, part.batch)
    return _Result(loss, labels, gradients, own.bit_generator.state)


def _parts(model: Any, batch: dict[str, Any]) -> list[_Part]:
    """The batch cut by rows, one part for each thread; a single one where it is not to be cut."""
    arrays = {k: np.asarray(v) if isinstance(v, list) else v for k, v in batch.items()}
    cut = [v for v in arrays.values() if isinstance(v, np.ndarray) and v.ndim]
    counts = {len(v) for v in cut}
    rows = counts.pop() if len(counts) == 1 and getattr(model, "separable", False) else 1
    number = min(threads(), rows)
    if number > 1 and not _worth_it(model, max(v.size for v in cut)):
        number = 1
    ends = [rows * i // number for i in range(number + 1)]
    return [
        _Part({k: _rows(v, i, j) for k, v in arrays.items()}, i, j - i)
        for i, j in itertools.pairwise(ends)
    ]


def _worth_it(model: Any, positions: int) -> bool:
    weights = list(model.parameters())
    work = 6 * positions * sum(p.size for p in weights)  # a product and its two derivatives
    on_cpu = all(p.device == "cpu" for p in weights)
    # With more cores than threads here, products on all cores are the better way to use them.
    return on_cpu and work >= LEAST_WORK and blas.threads() <= threads()


def _rows(value: Any, start: int, stop: int) -> Any:
    if isinstance(value, Mask):
        return value.reorder(np.arange(start, stop))
    return value[start:stop] if isinstance(value, np.ndarray) and value.ndim else value
