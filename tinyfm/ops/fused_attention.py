"""Attention on the CPU in blocks of score rows, so that long scores never stand whole."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinyfm.autograd import op
from tinyfm.backend import block_bytes, by_blocks, keep_mask
from tinyfm.masks import as_mask
from tinyfm.ops.rows import floating, softmax_rows, within_reach_of_exp


@op
def fused_attention(
    q, k, v, mask=None, bias=None, relative_bias=None,
    *, scale, dropout=0.0, dropout_seed=None, needs=None,
):  # fmt: skip
    """`attention` in blocks of score rows on the CPU; q, k, v (B, H, T, D), mask a Mask.

    With scores S, L = log sum exp S by row, P = exp(S - L), A = P with dropout, o = A v and dA =
    g v^T (dropout applied):  dv = A^T g,  dS = P (dA - sum(g o)),  dq = dS k scale,
    dk = dS^T q scale.  sum(g o) stands for sum(P dA), to which it is equal row by row.
    Backward makes P again from L, unless P is no larger than q, k and v together: then it is kept.
    The gradient of `bias` needs the array dS whole; nothing else here grows with Tq x Tk.
    """
    mask = as_mask(mask)
    q, k, v = floating(q), floating(k), floating(v)
    (batch, heads, queries, width), keys = q.shape, k.shape[2]
    groups = batch * heads
    mask.check(batch, heads, queries, keys, q)
    q3 = q.reshape(groups, queries, width) * scale
    k3, v3 = k.reshape(groups, keys, width), v.reshape(groups, keys, v.shape[3])
    out = np.empty((groups, queries, v.shape[3]), q.dtype)
    recorded = any(needs)
    log_sum: Any = np.empty((groups, queries, 1), q.dtype) if recorded else None
    short = recorded and queries * keys <= width * queries + (width + v.shape[3]) * keys
    saved = np.empty((groups, queries, keys), q.dtype) if short else None
    # One new token behind its cache, or nothing to forbid: the scores are what the product gives.
    bare = bias is None and relative_bias is None and mask.sees_all(queries)
    if bias is not None:
        bias4 = np.broadcast_to(bias, (batch, heads, queries, keys))
    if relative_bias is not None and queries and keys:
        # Row i of the view starts at entry Tq - 1 - i: a Toeplitz matrix without its memory.
        relative = np.lib.stride_tricks.sliding_window_view(relative_bias, keys, 1)[:, ::-1]

    def blocks(work):
        """work(groups, rows, keys that the rows may see), over blocks of some block_bytes."""
        row_bytes = keys * q.itemsize
        step = max(1, min(queries, block_bytes() // max(1, row_bytes)))

        def of_groups(start, stop):
            for i in range(0, queries, step if stop - start == 1 else max(queries, 1)):
                rows = slice(i, min(queries, i + step) if stop - start == 1 else queries)
                seen = max(0, min(keys, rows.stop + keys - queries)) if mask.causal else keys
                work(slice(start, stop), rows, seen)

        vectors = (queries + keys) * (width + v.shape[3]) * q.itemsize
        # Blocks of three times the usual size: threads meet in Python between many small products.
        by_blocks(of_groups, groups, (queries * row_bytes + vectors) // 3)

    def scores(g, rows, seen):
        """Of a block, -inf where the mask forbids; and whether exp may take them as they are."""
        s = q3[g, rows] @ k3[g, :seen].swapaxes(1, 2)
        if bare:
            return s, within_reach_of_exp(s)
        member, head = np.divmod(np.arange(g.start, g.stop), heads)
        if bias is not None:
            s += bias4[member, head, rows, :seen]
        if relative_bias is not None:
            s += relative[head, rows, :seen]
        within = within_reach_of_exp(s)
        allowed = mask.rows(member, queries, keys, rows.start, rows.stop, head)
        if allowed is not None and within:
            s += np.where(allowed[:, 0, :, :seen], s.dtype.type(0), s.dtype.type(-math.inf))
        elif allowed is not None:  # slower, and right where a forbidden score is inf or NaN
            np.copyto(s, -math.inf, where=~allowed[:, 0, :, :seen])
        return s, within

    def kept(g, rows, seen):
        n = (g.stop - g.start) * (rows.stop - rows.start)
        start = g.start * queries + rows.start
        mask = keep_mask(dropout_seed, dropout, n, keys, q, start)
        return mask.reshape(g.stop - g.start, rows.stop - rows.start, keys)[:, :, :seen]

    keep_scale = 0.0 if dropout == 1 else 1 / (1 - dropout)

    def forward(g, rows, seen):
        if not seen:  # rows before the first key
            out[g, rows] = 0
            if recorded:
                log_sum[g, rows] = 0
            return
        s, within = scores(g, rows, seen)
        top, total = softmax_rows(s, s, within)
        if recorded:
            np.add(top, np.log(total), out=log_sum[g, rows])
        if saved is not None:
            saved[g, rows, :seen] = s
            saved[g, rows, seen:] = 0  # backward may cut the rows into other blocks
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
        drelative = np.zeros((batch, heads, queries + keys - 1), q.dtype) if needs[5] else None
        if drelative is not None:
            drelative3 = drelative.reshape(groups, queries + keys - 1)

        def backward(g, rows, seen):
            if saved is None:
                p, _ = scores(g, rows, seen)
                p -= log_sum[g, rows]
                np.exp(p, out=p)
            else:
                p = saved[g, rows, :seen]
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
                    drelative3[g, first : first + seen] += da[:, i - rows.start]

        blocks(backward)
        dq *= scale
        return (
            dq.reshape(q.shape),
            dk.reshape(k.shape),
            dv.reshape(v.shape),
            None,
            None if dbias is None else dbias.reshape(batch, heads, queries, keys),
            None if drelative is None else drelative.sum(0),
        )

    return out.reshape(*q.shape[:3], v.shape[3]), vjp
