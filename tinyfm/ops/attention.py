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

from tinyfm.autograd import Tensor, op
from tinyfm.backend import Array, array_module, block_bytes, by_blocks, keep_mask
from tinyfm.masks import as_mask
from tinyfm.ops import basic, neural


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
    implementation: "composed", "fused", or "auto": fused on the CPU, composed elsewhere.
    """
    if implementation not in ("auto", "composed", "fused"):
        raise ValueError(f"implementation {implementation!r}: use 'auto', 'composed' or 'fused'")
    if dropout and dropout_seed is None:
        raise ValueError("dropout in attention needs dropout_seed, an integer")
    batch = _check(q, k, v)
    if implementation == "composed" or not isinstance(_array(q), np.ndarray):
        weights = attention_weights(q, k, mask, bias, relative_bias, scale=scale)
        if dropout:
            weights = neural.dropout(weights, p=dropout, seed=dropout_seed)
        return basic.matmul(weights, v)
    if len(batch) < 2:
        q, k, v = (
            basic.reshape(x, shape=(1,) * (2 - len(batch)) + _array(x).shape) for x in (q, k, v)
        )
    out = fused_attention(
        q, k, v, as_mask(mask), bias, relative_bias,
        scale=scale, dropout=dropout, dropout_seed=dropout_seed,
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
    batch = _check(q, k, k)
    queries, keys = _array(q).shape[-2], _array(k).shape[-2]
    q = basic.mul(q, _scale(_array(q), scale))
    scores = basic.matmul(q, basic.swapaxes(k, axis1=-1, axis2=-2))
    if bias is not None:
        scores = basic.add(scores, bias)
    if relative_bias is not None:
        _check_relative(relative_bias, queries, keys)
        xp = array_module(_array(q))
        entry = xp.arange(keys) - xp.arange(queries)[:, None] + (queries - 1)
        scores = basic.add(scores, basic.getitem(relative_bias, key=(slice(None), entry)))
    if mask is not None:
        seen = as_mask(mask).dense(batch[0] if len(batch) == 2 else 1, queries, keys, _array(q))
        seen = seen if len(batch) == 2 else seen[0] if batch else seen[0, 0]
        scores = basic.where(seen, scores, -math.inf)
    return neural.softmax(scores)


@op
def fused_attention(
    q, k, v, mask=None, bias=None, relative_bias=None,
    *, scale=None, dropout=0.0, dropout_seed=None, needs=None,
):  # fmt: skip
    """`attention` in blocks of score rows on the CPU; q, k, v (B, H, T, D), mask a Mask.

    With scores S, L = log sum exp S by row, P = exp(S - L), A = P with dropout, o = A v and dA =
    g v^T (dropout applied):  dv = A^T g,  dS = P (dA - sum(g o)),  dq = dS k scale,
    dk = dS^T q scale.  sum(g o) stands for sum(P dA), to which it is equal row by row.
    The gradient of `bias` needs the array dS whole; nothing else here grows with Tq x Tk.
    """
    mask = as_mask(mask)
    (batch, heads, queries, width), keys = q.shape, k.shape[2]
    groups = batch * heads
    scale = _scale(q, scale)
    q3 = q.reshape(groups, queries, width) * scale
    k3, v3 = k.reshape(groups, keys, width), v.reshape(groups, keys, v.shape[3])
    out = np.empty((groups, queries, v.shape[3]), q.dtype)
    log_sum = np.empty((groups, queries, 1), q.dtype)
    if bias is not None:
        bias4 = np.broadcast_to(bias, (batch, heads, queries, keys))
    if relative_bias is not None:
        _check_relative(relative_bias, queries, keys)
        # Row i of the view starts at entry Tq - 1 - i: a Toeplitz matrix without its memory.
        relative = np.lib.stride_tricks.sliding_window_view(relative_bias, keys, 1)[:, ::-1]

    def blocks(work):
        """work(groups, rows, keys that the rows may see), over blocks of at most block_bytes."""
        row_bytes = keys * q.itemsize
        step = max(1, min(queries, block_bytes() // max(1, row_bytes)))

        def of_groups(start, stop):
            for i in range(0, queries, step if stop - start == 1 else max(queries, 1)):
                rows = slice(i, min(queries, i + step) if stop - start == 1 else queries)
                seen = max(0, min(keys, rows.stop + keys - queries)) if mask.causal else keys
                work(slice(start, stop), rows, seen)

        by_blocks(of_groups, groups, queries * row_bytes)

    def scores(g, rows, seen):
        s = q3[g, rows] @ k3[g, :seen].swapaxes(1, 2)
        member, head = np.divmod(np.arange(g.start, g.stop), heads)
        if bias is not None:
            s += bias4[member, head, rows, :seen]
        if relative_bias is not None:
            s += relative[head, rows, :seen]
        allowed = mask.rows(member, queries, keys, rows.start, rows.stop, head)
        if allowed is not None:
            np.copyto(s, -math.inf, where=~allowed[:, 0, :, :seen])
        return s

    def kept(g, rows, seen):
        n = (g.stop - g.start) * (rows.stop - rows.start)
        start = g.start * queries + rows.start
        mask = keep_mask(dropout_seed, dropout, n, keys, q, start)
        return mask.reshape(g.stop - g.start, -1, keys)[:, :, :seen]

    keep_scale = 0.0 if dropout == 1 else 1 / (1 - dropout)

    def forward(g, rows, seen):
        s = scores(g, rows, seen)
        top, log_total = neural.softmax_rows(s, s)
        np.add(top, log_total, out=log_sum[g, rows])
        if dropout:
            s *= kept(g, rows, seen)
            s *= keep_scale
        np.matmul(s, v3[g, :seen], out=out[g, rows])

    blocks(forward)

    def vjp(gradient):
        gradient = gradient.reshape(out.shape)
        dot = np.einsum("gid,gid->gi", gradient, out)[:, :, None]
        dq, dk, dv = np.empty_like(q3), np.zeros_like(k3), np.zeros_like(v3)
        dbias = np.zeros((groups, queries, keys), q.dtype) if needs[4] else None
        drelative = np.zeros((groups, queries + keys - 1), q.dtype) if needs[5] else None

        def backward(g, rows, seen):
            p = scores(g, rows, seen)
            p -= log_sum[g, rows]
            np.exp(p, out=p)
            do = gradient[g, rows]
            da = do @ v3[g, :seen].swapaxes(1, 2)
            if dropout:
                keep = kept(g, rows, seen) * q.dtype.type(keep_scale)
                da *= keep
                dv[g, :seen] += (p * keep).swapaxes(1, 2) @ do
            else:
                dv[g, :seen] += p.swapaxes(1, 2) @ do
            da -= dot[g, rows]
            da *= p
            np.matmul(da, k3[g, :seen], out=dq[g, rows])
            dk[g, :seen] += da.swapaxes(1, 2) @ q3[g, rows]
            if dbias is not None:
                dbias[g, rows, :seen] = da
            if drelative is not None:
                for i in range(rows.start, rows.stop):
                    first = queries - 1 - i
                    drelative[g, first : first + seen] += da[:, i - rows.start]

        blocks(backward)
        dq *= scale
        return (
            dq.reshape(q.shape),
            dk.reshape(k.shape),
            dv.reshape(v.shape),
            None,
            None if dbias is None else dbias.reshape(batch, heads, queries, keys),
            None if drelative is None else drelative.reshape(batch, heads, -1).sum(0),
        )

    return out.reshape(batch, heads, queries, -1), vjp


def _array(x: Any) -> Array:
    return x._data if isinstance(x, Tensor) else x


def _scale(q: Array, scale: float | None) -> float:
    return 1 / math.sqrt(q.shape[-1]) if scale is None else scale


def _check(q: Any, k: Any, v: Any) -> tuple[int, ...]:
    """The common leading sizes, (B, H), (H,) or (); or an error that says what does not fit."""
    q, k, v = (_array(x).shape for x in (q, k, v))
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
    return q[:-2]


def _check_relative(relative_bias: Any, queries: int, keys: int) -> None:
    shape = _array(relative_bias).shape
    if len(shape) != 2 or shape[1] != queries + keys - 1:
        raise ValueError(
            f"op 'attention': relative_bias is {shape}: it must be (H, Tq + Tk - 1), here "
            f"(H, {queries + keys - 1})"
        )
