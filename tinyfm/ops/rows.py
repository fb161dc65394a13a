"""The inner passes of the fused ops: what is done to one block of rows while it is in the cache.

They work in place and through `out=`, on NumPy and CuPy alike; who calls them cuts the rows into
blocks and hands these to threads (`backend.by_rows`).  The row-blocked attention of the CPU, which
is all about blocks, stands here whole.
"""

from __future__ import annotations

import math

import numpy as np

from tinyfm.autograd import op
from tinyfm.backend import array_module, block_bytes, by_blocks, keep_mask
from tinyfm.masks import as_mask
from tinyfm.ops.erf import erf


def floating(x):
    """x, or x in float32 if it holds integers.

    An op is tried with integers first, to see by its vjps whether they are numbers.
    """
    return x if x.dtype.kind == "f" else x.astype(np.float32)


def gelu_exact_rows(x, y, slope):
    """y = x Phi(x); dy/dx = Phi(x) + x phi(x) with the density phi."""
    xp = array_module(x)
    phi = erf(x * math.sqrt(0.5))
    phi += 1
    phi *= 0.5
    xp.multiply(x, phi, out=y)
    if slope is not None:
        xp.multiply(x, x, out=slope)
        slope *= -0.5
        xp.exp(slope, out=slope)
        slope *= x
        slope *= 1 / math.sqrt(2 * math.pi)
        slope += phi


def gelu_tanh_rows(x, y, slope):
    """With u = c (x + a x**3) and t = tanh u: dy/dx = 0.5 (1 + t) + 0.5 x (1 - t**2) du/dx."""
    xp = array_module(x)
    a, c = 0.044715, math.sqrt(2 / math.pi)
    square = x * x
    t = square * (a * c)
    t += c
    t *= x
    xp.tanh(t, out=t)
    xp.add(t, 1, out=y)
    y *= 0.5
    if slope is not None:
        xp.multiply(t, t, out=t)
        xp.subtract(1, t, out=t)
        square *= 3 * a * c
        square += c
        square *= x
        square *= 0.5
        xp.multiply(t, square, out=slope)
        slope += y
    y *= x


def softmax_rows(x, out):
    """Softmax over the last axis of x into out (which may be x).

    Returns (top, log_total), both (..., 1), whose sum is log sum exp(x): the maximum is subtracted
    first, so that exp cannot overflow.  Rows of -inf become zeros.
    """
    xp = array_module(x)
    top = x.max(-1, keepdims=True)
    top = xp.where(top == -math.inf, 0, top)
    xp.subtract(x, top, out=out)
    xp.exp(out, out=out)
    total = out.sum(-1, keepdims=True)
    total = xp.where(total == 0, 1, total)
    out /= total
    return top, xp.log(total)


def nll_rows(z, out, targets, label_smoothing):
    """Losses (N, 1) of the rows of logits z; leaves softmax(z) in out (which may be z)."""
    xp = array_module(z)
    at = targets[:, None]
    chosen = xp.take_along_axis(z, at, 1)
    if label_smoothing:
        chosen = (1 - label_smoothing) * chosen + label_smoothing * z.mean(1, keepdims=True)
    top, log_total = softmax_rows(z, out)
    return log_total - (chosen - top)  # in this order: at logits of 1e8 the sum would lose the log


def minus_target_rows(p, targets, label_smoothing):
    """p -= (1 - e) one-hot + e / V, in place."""
    if label_smoothing:
        p -= label_smoothing / p.shape[1]
    p[array_module(p).arange(len(p)), targets] -= 1 - label_smoothing


@op
def fused_attention(
    q, k, v, mask=None, bias=None, relative_bias=None,
    *, scale, dropout=0.0, dropout_seed=None, needs=None,
):  # fmt: skip
    """`attention` in blocks of score rows on the CPU; q, k, v (B, H, T, D), mask a Mask.

    With scores S, L = log sum exp S by row, P = exp(S - L), A = P with dropout, o = A v and dA =
    g v^T (dropout applied):  dv = A^T g,  dS = P (dA - sum(g o)),  dq = dS k scale,
    dk = dS^T q scale.  sum(g o) stands for sum(P dA), to which it is equal row by row.
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
    log_sum = np.empty((groups, queries, 1), q.dtype)
    if bias is not None:
        bias4 = np.broadcast_to(bias, (batch, heads, queries, keys))
    if relative_bias is not None:
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
        if not seen:  # rows before the first key
            out[g, rows] = log_sum[g, rows] = 0
            return
        s = scores(g, rows, seen)
        top, log_total = softmax_rows(s, s)
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

    return out.reshape(*q.shape[:3], v.shape[3]), vjp
