"""Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1): softmax(q k^T scale) v.

`attention` chooses between two ways to the same numbers:

* composed: the plain ops that the formula names.  Every array of scores stands whole, Tq x Tk for
  each head, for forward and again for backward.  The oracle of the tests, and the way to read it.
* fused: one op that never holds more than a block of score rows.  Forward keeps one number a row,
  the log of the softmax's denominator, and backward makes the probabilities again from it, block by
  block (the algorithm of Dao et al. 2022, FlashAttention, with blocks of rows).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinyfm.arrays import default_array
from tinyfm.autograd import Tensor, raw
from tinyfm.backend import Array, array_module
from tinyfm.masks import as_mask
from tinyfm.ops import basic, neural
from tinyfm.ops.fused_attention import fused_attention


def attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    bias: Any = None,
    relative_bias: Any = None,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    dropout_seed: int | None = None,
    implementation: str = "auto",
) -> Tensor:
    """softmax(q k^T scale + bias, where the mask allows) v, with dropout on the probabilities.

    q (B, H, Tq, D), k (B, H, Tk, D), v (B, H, Tk, Dv) -> (B, H, Tq, Dv); B and H may be absent.
    mask: a Mask, a bool array (True: may look) or None.  A query that may look nowhere gives zeros
        and zero gradients.
    bias: added to the scores, broadcastable to (B, H, Tq, Tk).
    relative_bias: (H, Tq + Tk - 1), entry n for the distance key - query = n - (Tk - 1), where the
        last query stands on the last key (T5's bias without its T x T array).
    scale: 1 / sqrt(D) when None.  dropout needs an integer dropout_seed.
    implementation: "composed", "fused" (CPU only), or "auto": fused on the CPU, else composed.
    """
    if implementation not in ("auto", "composed", "fused"):
        raise ValueError(f"implementation {implementation!r}: use 'auto', 'composed' or 'fused'")
    if not 0 <= dropout <= 1:
        raise ValueError(f"dropout is {dropout}: it is a probability, between 0 and 1")
    if dropout and dropout_seed is None:
        raise ValueError("dropout in attention needs dropout_seed, an integer")
    q, k, v, bias, relative_bias = _settled(q, k, v, bias, relative_bias)
    batch = _check(q, k, v, bias, relative_bias)
    on_cpu = isinstance(raw(q), np.ndarray)
    if implementation == "fused" and not on_cpu:
        raise ValueError("op 'attention': 'fused' runs on the CPU only; use 'auto' or 'composed'")
    if implementation == "composed" or not on_cpu:
        weights = attention_weights(q, k, mask, bias, relative_bias, scale=scale)
        if dropout:
            weights = neural.dropout(weights, p=dropout, seed=dropout_seed)
        return basic.matmul(weights, v)
    if len(batch) < 2:
        q, k, v = (
            basic.reshape(x, shape=(1,) * (2 - len(batch)) + raw(x).shape) for x in (q, k, v)
        )
    out = fused_attention(
        q, k, v, as_mask(mask), bias, relative_bias,
        scale=_scale(raw(q), scale), dropout=dropout, dropout_seed=dropout_seed,
    )  # fmt: skip
    return out if len(batch) == 2 else basic.reshape(out, shape=batch + out.shape[2:])


def attention_weights(
    q: Any,
    k: Any,
    mask: Any = None,
    bias: Any = None,
    relative_bias: Any = None,
    *,
    scale: float | None = None,
) -> Tensor:
    """The probabilities (B, H, Tq, Tk) of `attention`, before dropout, out of plain ops."""
    q, k, bias, relative_bias = _settled(q, k, bias, relative_bias)
    batch = _check(q, k, k, bias, relative_bias)
    queries, keys = raw(q).shape[-2], raw(k).shape[-2]
    q = basic.mul(q, _scale(raw(q), scale))
    scores = basic.matmul(q, basic.swapaxes(k, axis1=-1, axis2=-2))
    if bias is not None:
        scores = basic.add(scores, bias)
    if relative_bias is not None:
        xp = array_module(raw(q))
        entry = xp.arange(keys) - xp.arange(queries)[:, None] + (queries - 1)
        key = (slice(None) if batch else 0, entry)
        scores = basic.add(scores, basic.getitem(relative_bias, key=key))
    if mask is not None:
        mask, sizes = as_mask(mask), (1,) * (2 - len(batch)) + batch
        mask.check(*sizes, queries, keys, raw(q))
        seen = mask.dense(sizes[0], queries, keys, raw(q))
        seen = seen if len(batch) == 2 else seen[0] if batch else seen[0, 0]
        scores = basic.where(seen, scores, -math.inf)
    return neural.softmax(scores)


def _scale(q: Array, scale: float | None) -> float:
    if isinstance(scale, Tensor):
        raise TypeError("op 'attention': 'scale' is an option, not an argument: no Tensor here")
    return 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)


def _settled(*arguments: Any) -> list[Any]:
    """Plain arrays and lists among the arguments as arrays of the Tensors' dtype."""
    dtype = next((x.dtype for x in arguments if isinstance(x, Tensor)), None)

    def settled(x: Any) -> Any:
        if x is None or isinstance(x, Tensor) or getattr(x, "dtype", x) is dtype:
            return x  # without a copy: a whole cache may come by here
        return (array := default_array(x)).astype(dtype or array.dtype, copy=False)

    return [settled(x) for x in arguments]


def _check(q: Any, k: Any, v: Any, bias: Any, relative_bias: Any) -> tuple[int, ...]:
    """The common leading sizes, (B, H), (H,) or (); or an error that says what does not fit."""
    q, k, v = raw(q).shape, raw(k).shape, raw(v).shape
    if not (
        2 <= len(q) == len(k) == len(v) <= 4
        and q[:-2] == k[:-2] == v[:-2]
        and q[-1] == k[-1]
        and k[-2] == v[-2]
    ):
        raise ValueError(
            f"op 'attention': q {q}, k {k} and v {v} do not fit: they must be (B, H, Tq, D), "
            "(B, H, Tk, D) and (B, H, Tk, Dv)"
        )
    if relative_bias is not None:
        shape, wanted = raw(relative_bias).shape, (q[-3] if len(q) > 2 else 1, q[-2] + k[-2] - 1)
        if shape != wanted:
            raise ValueError(
                f"op 'attention': relative_bias {shape} does not fit q {q} and k {k}: it must be "
                f"(H, Tq + Tk - 1), here {wanted}"
            )
    if bias is not None:
        scores, sizes = (*q[:-1], k[-2]), raw(bias).shape
        pairs = zip(sizes[::-1], scores[::-1], strict=False)
        if len(sizes) > len(scores) or any(n not in (1, m) for n, m in pairs):
            raise ValueError(
                f"op 'attention': bias {sizes} does not broadcast to the scores {scores}"
            )
    return q[:-2]
