"""Linear, Embedding, the two norms, Dropout, and the two kinds of absolute positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyfm import ops
from tinyfm.autograd import Tensor, raw
from tinyfm.backend import Array, array_module, draw_seed
from tinyfm.nn.module import Init, Module, new_parameter, normal, ones, xavier_uniform, zeros
from tinyfm.ops.neural import check_ids


class Linear(Module):
    """x W^T + b; weight (out, in), bias (out,) zero at first, or none."""

    def __init__(
        self, inputs: int, outputs: int, bias: bool = True, init: Init = xavier_uniform
    ) -> None:
        self.weight = new_parameter((outputs, inputs), init)
        self.bias = new_parameter((outputs,), zeros) if bias else None

    def forward(self, x: Any) -> Tensor:
        return ops.linear(x, self.weight, self.bias)


class Embedding(Module):
    """A table (size, dim) of vectors, looked up by ids (...) -> (..., dim).

    The row `padding_idx` starts as zeros, gets no gradient from look-ups and does not decay.
    """

    def __init__(
        self, size: int, dim: int, padding_idx: int | None = None, init: Init | None = None
    ) -> None:
        self.padding_idx = padding_idx
        if padding_idx is not None and not 0 <= padding_idx < size:
            raise ValueError(f"padding_idx {padding_idx} is not one of the {size} rows")
        self.weight = new_parameter((size, dim), self.initial(init or normal(dim**-0.5)))
        self.weight.padding_idx = padding_idx

    def initial(self, init: Init) -> Init:
        """`init` with the padding row zeroed: for whoever initialises the table anew, too."""

        def padded(shape: tuple[int, ...]) -> np.ndarray:
            table = init(shape)
            if self.padding_idx is not None:
                table[self.padding_idx] = 0
            return table

        return padded

    def forward(self, ids: Any) -> Tensor:
        table = raw(self.weight)
        if isinstance(ids, np.ndarray) and not isinstance(table, np.ndarray):
            check_ids(ids, len(table))  # on the host: on the device it would have to wait
            ids = array_module(table).asarray(ids)
        return ops.embedding(self.weight, ids, padding_idx=self.padding_idx)


class LayerNorm(Module):
    """Layer normalisation over the last axis with gain and bias (ops.layer_norm)."""

    def __init__(self, dim: int, eps: float = 1e-5, bias: bool = True) -> None:
        self.eps = eps
        self.weight = new_parameter((dim,), ones)
        self.bias = new_parameter((dim,), zeros) if bias else None

    def forward(self, x: Any) -> Tensor:
        return ops.layer_norm(x, self.weight, self.bias, eps=self.eps)


class RMSNorm(Module):
    """Root-mean-square normalisation over the last axis with gain (ops.rms_norm)."""

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        self.eps = eps
        self.weight = new_parameter((dim,), ones)

    def forward(self, x: Any) -> Tensor:
        return ops.rms_norm(x, self.weight, eps=self.eps)


class Dropout(Module):
    """ops.dropout in training with a fresh seed from the one generator; nothing in evaluation."""

    def __init__(self, p: float) -> None:
        if not 0 <= p <= 1:
            raise ValueError(f"dropout p is {p}: it is a probability, between 0 and 1")
        self.p = p

    def forward(self, x: Any) -> Any:
        return ops.dropout(x, p=self.p, seed=draw_seed()) if self.training and self.p else x


class LearnedPositions(Module):
    """A learned vector for each position 0..length-1; weight (unused + length, dim).

    The first `unused` rows stand for no position.
    """

    def __init__(self, length: int, dim: int, init: Init | None = None, unused: int = 0) -> None:
        self.unused = unused
        self.weight = new_parameter((unused + length, dim), init or normal(dim**-0.5))

    def forward(self, positions: np.ndarray, like: Array) -> Tensor:
        """Positions (...), a NumPy array of integers -> their vectors (..., dim)."""
        length = len(self.weight) - self.unused
        if (last := positions.max(initial=-1)) >= length:
            raise ValueError(f"position {last} is asked for, and {length} are learned")
        return ops.embedding(self.weight, array_module(like).asarray(positions + self.unused))


class SinusoidalPositions(Module):
    """PE[pos, 2i] = sin(pos / 10000**(2i/d)), PE[pos, 2i+1] = cos of the same (Vaswani 2017, 3.5).

    Fixed, and computed as far as it is needed.  layout "interleaved" is the paper's; "halves" puts
    all sines before all cosines, as Marian does.
    """

    def __init__(self, dim: int, layout: str = "interleaved") -> None:
        if layout not in ("interleaved", "halves"):
            raise ValueError(f"layout {layout!r}: use 'interleaved' or 'halves'")
        self.dim, self.layout = dim, layout
        self._table = np.zeros((0, dim))

    def forward(self, positions: np.ndarray, like: Array) -> Array:
        """Positions (...), a NumPy array of integers -> (..., dim), an array of like's kind."""
        table, needed = self._table, int(positions.max(initial=-1)) + 1
        if needed > len(table):
            table = self._table = sinusoids(max(needed, 2 * len(table)), self.dim, self.layout)
        return array_module(like).asarray(table[positions], like.dtype)


def sinusoids(length: int, dim: int, layout: str = "interleaved") -> np.ndarray:
    """The table (length, dim) of SinusoidalPositions, in float64."""
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(0, dim, 2) / dim)
    waves = [np.sin(angles), np.cos(angles[:, : dim // 2])]
    if layout == "halves":
        return np.concatenate(waves, 1)
    table = np.empty((length, dim))
    table[:, 0::2], table[:, 1::2] = waves
    return table
