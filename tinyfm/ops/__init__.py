"""The differentiable functions, and what they make of a Tensor: its operators and methods."""

from __future__ import annotations

from typing import Any

from tinyfm.autograd import Tensor, raw
from tinyfm.ops.attention import attention, attention_weights
from tinyfm.ops.basic import (
    add,
    astype,
    concatenate,
    div,
    exp,
    getitem,
    log,
    matmul,
    max,
    maximum,
    mean,
    merge_heads,
    min,
    minimum,
    mul,
    neg,
    norm,
    power,
    reshape,
    split,
    split_heads,
    sqrt,
    stack,
    sub,
    sum,
    swapaxes,
    tanh,
    transpose,
    var,
    where,
)  # fmt: skip
from tinyfm.ops.fused_attention import fused_attention
from tinyfm.ops.neural import (
    cross_entropy,
    dropout,
    embedding,
    gelu,
    layer_norm,
    linear,
    linear_cross_entropy,
    log_softmax,
    relu,
    rms_norm,
    sigmoid,
    silu,
    softmax,
)  # fmt: skip

__all__ = [
    "add", "astype", "attention", "attention_weights", "concatenate", "cross_entropy", "div",
    "dropout", "embedding", "exp", "fused_attention", "gelu", "getitem", "layer_norm", "linear",
    "linear_cross_entropy", "log", "log_softmax", "matmul", "max", "maximum", "mean", "merge_heads",
    "min", "minimum", "mul", "neg", "norm", "power", "relu", "reshape", "rms_norm", "sigmoid",
    "silu", "softmax", "split", "split_heads", "sqrt", "stack", "sub", "sum", "swapaxes", "tanh",
    "transpose", "var", "where",
]  # fmt: skip


def _reflected(function: Any) -> Any:
    return lambda self, other: function(other, self)


def _compare(name: str) -> Any:
    """Comparisons give plain bool arrays: they have no derivative."""

    def compare(self: Tensor, other: Any) -> Any:
        return getattr(self.data, name)(raw(other))

    return compare


def _power(self: Tensor, exponent: Any) -> Tensor:
    # A square is a product: NumPy's general power costs five times as much.
    return (
        mul(self, self)
        if type(exponent) in (int, float) and exponent == 2
        else power(self, exponent)
    )


def _getitem(self: Tensor, key: Any) -> Tensor:
    key = tuple(raw(k) for k in key) if isinstance(key, tuple) else raw(key)
    return getitem(self, key=key)


def _shape(sizes: tuple) -> tuple[int, ...]:
    """Sizes given one by one, or as one tuple."""
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes


def _reduction(function: Any) -> Any:
    def reduce(self: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
        return function(self, axis=axis, keepdims=keepdims)

    reduce.__doc__ = function.__doc__
    return reduce


def _attach() -> None:
    for name, function in {
        "add": add, "sub": sub, "mul": mul, "truediv": div, "matmul": matmul, "pow": power,
    }.items():  # fmt: skip
        setattr(Tensor, f"__{name}__", function)
        setattr(Tensor, f"__r{name}__", _reflected(function))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(Tensor, f"__{name}__", _compare(f"__{name}__"))
    for function in (sum, mean, max, min, var):
        setattr(Tensor, function.__name__, _reduction(function))
    for function in (exp, log, sqrt, tanh):
        setattr(Tensor, function.__name__, lambda self, function=function: function(self))
    methods: dict[str, Any] = {
        "__neg__": lambda self: neg(self),
        "__pow__": _power,
        "__getitem__": _getitem,
        "reshape": lambda self, *shape: reshape(self, shape=_shape(shape)),
        "transpose": lambda self, *axes: transpose(self, axes=_shape(axes) or None),
        "swapaxes": lambda self, axis1, axis2: swapaxes(self, axis1=axis1, axis2=axis2),
        "astype": lambda self, dtype: astype(self, dtype=dtype),
        "T": property(lambda self: transpose(self)),
    }
    for name, method in methods.items():
        setattr(Tensor, name, method)


_attach()
