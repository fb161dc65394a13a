"""What networks are made of: activations, softmax, norms, dropout, linear, embedding, losses.

The fused ops go through all their steps on a block of rows while it is in the cache, on two threads
(`backend.by_rows`); on a GPU the same lines run on whole arrays.  Each has a composed twin in
tinyfm_tests/reference.py, made of basic ops, which it must equal forward and backward.
"""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from tinyfm.autograd import op
from tinyfm.backend import array_module, block_bytes, by_rows, keep_mask, scatter_add_rows
from tinyfm.ops.rows import (
    chosen,
    column_sum,
    floating,
    gelu_exact_rows,
    gelu_tanh_rows,
    mean_product,
    nll_rows,
    row_sum,
    softmax_rows,
    times_transposed,
)


def _as_rows(x):
    """x as a matrix of its last axis: (..., D) -> (N, D); a 0-d x as one row of one entry."""
    return x.reshape(_rows_shape(x))


def _rows_shape(x) -> tuple[int, int]:
    width = x.shape[-1] if x.ndim else 1
    return math.prod(x.shape[:-1]), width


# -- activations ----------------------------------------------------------------------------------


@op
def relu(x):
    """max(x, 0) (Nair and Hinton 2010); the derivative at 0 is 0."""
    y = array_module(x).maximum(x, 0)
    return y, (lambda g: chosen(g, y > 0),)


@op
def sigmoid(x):
    """1 / (1 + exp(-x)), written as a tanh, which cannot overflow.  dy/dx = y (1 - y)."""
    y = _sigmoid(x)
    return y, (lambda g: g * (y * (1 - y)),)


def _sigmoid(x):
    return 0.5 * array_module(x).tanh(0.5 * x) + 0.5


@op
def silu(x):
    """x sigmoid(x), also called swish (Elfwing et al. 2017); Marian's activation."""
    s = _sigmoid(x)
    return x * s, (lambda g: g * (s + x * s * (1 - s)),)


@op
def gelu(x, *, approximate="none", needs=None):
    """x Phi(x) with the normal distribution function Phi (Hendrycks and Gimpel 2016).

    approximate: "none", the exact form 0.5 x (1 + erf(x / sqrt 2)) of BERT and BART, or "tanh", the
    form 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x**3))) of GPT and the gated T5.
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f"approximate is {approximate!r}: use 'none' or 'tanh'")
    x = floating(x)
    xp, shape, rows = array_module(x), x.shape, _as_rows(x)
    y = xp.empty(rows.shape, x.dtype)
    slope: Any = xp.empty_like(y) if needs[0] else None
    steps = gelu_exact_rows if approximate == "none" else gelu_tanh_rows
    by_rows(steps, rows, y, slope)
    return y.reshape(shape), (lambda g: g * slope.reshape(shape),)


# -- softmax --------------------------------------------------------------------------------------


@op
def softmax(x, *, axis=-1):
    """exp(x) / sum exp(x) along an axis.  dx = y (g - sum(g y)).

    A row of -inf alone, where nothing may be seen, gives zeros and zero gradients, not NaN.
    """
    x = floating(x)
    xp, shape = array_module(x), x.shape
    rows = x.swapaxes(axis, -1) if x.ndim else x.reshape(1)
    swapped, y = rows.shape, xp.empty(_rows_shape(rows), x.dtype)
    if y.size:
        by_rows(softmax_rows, _as_rows(rows), y)

    def back(values):
        return values.reshape(swapped).swapaxes(axis, -1).reshape(shape)

    def vjp(g):
        d = xp.empty_like(y)

        def steps(g, y, d):
            xp.multiply(g, y, out=d)
            d -= y * d.sum(-1, keepdims=True)

        by_rows(steps, _as_rows(g.swapaxes(axis, -1) if g.ndim else g.reshape(1)), y, d)
        return back(d)

    return back(y), (vjp,)


@op
def log_softmax(x, *, axis=-1):
    """x - log sum exp(x) along an axis.  dx = g - softmax(x) sum(g).

    A row of -inf alone has no logarithm: it gives NaN, where softmax gives zeros.
    """
    xp = array_module(x)
    axis = axis if x.ndim else None
    y = x - x.max(axis, keepdims=True)
    y = y - xp.log(xp.exp(y).sum(axis, keepdims=True))
    return y, (lambda g: g - xp.exp(y) * g.sum(axis, keepdims=True),)


# -- norms ----------------------------------------------------------------------------------------


@op
def layer_norm(x, weight, bias=None, *, eps=1e-5):
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axis (Ba et al. 2016).

    x (..., D), weight (D,), bias (D,) or None; var is the biased variance, eps stands in the root.
    With h the normalised x and d = g weight: dx = (d - mean d - h mean(d h)) / sqrt(var + eps).
    """
    x = floating(x)
    _check_gain(x, weight, bias)
    xp, shape, rows = array_module(x), x.shape, _as_rows(x)
    y, h, scale = [xp.empty(s, x.dtype) for s in (rows.shape, rows.shape, (len(rows), 1))]

    def forward(x, y, h, scale):
        xp.subtract(x, row_sum(x) / x.shape[1], out=h)
        xp.divide(1, xp.sqrt(mean_product(h, h) + eps), out=scale)
        h *= scale
        xp.multiply(h, weight, out=y)
        if bias is not None:
            y += bias

    by_rows(forward, rows, y, h, scale)

    def vjp(g):
        g = _as_rows(g)
        dx = xp.empty_like(h)

        def backward(g, dx, h, scale):
            xp.multiply(g, weight, out=dx)
            dot = mean_product(dx, h)
            dx -= row_sum(dx) / dx.shape[1]
            dx -= h * dot
            dx *= scale

        by_rows(backward, g, dx, h, scale)
        return dx.reshape(shape), xp.einsum("nd,nd->d", g, h), column_sum(g)

    return y.reshape(shape), vjp


@op
def rms_norm(x, weight, *, eps=1e-6):
    """x / sqrt(mean(x**2) + eps) * weight over the last axis (Zhang and Sennrich 2019); T5's norm.

    No mean is removed and there is no bias.  With h the normalised x and d = g weight:
    dx = (d - h mean(d h)) / sqrt(mean(x**2) + eps).
    """
    x = floating(x)
    _check_gain(x, weight)
    xp, shape, rows = array_module(x), x.shape, _as_rows(x)
    y, h, scale = [xp.empty(s, x.dtype) for s in (rows.shape, rows.shape, (len(rows), 1))]

    def forward(x, y, h, scale):
        xp.divide(1, xp.sqrt(mean_product(x, x) + eps), out=scale)
        xp.multiply(x, scale, out=h)
        xp.multiply(h, weight, out=y)

    by_rows(forward, rows, y, h, scale)

    def vjp(g):
        g = _as_rows(g)
        dx = xp.empty_like(h)

        def backward(g, dx, h, scale):
            xp.multiply(g, weight, out=dx)
            dx -= h * mean_product(dx, h)
            dx *= scale

        by_rows(backward, g, dx, h, scale)
        return dx.reshape(shape), xp.einsum("nd,nd->d", g, h)

    return y.reshape(shape), vjp


def _check_gain(x, weight, bias=None):
    if weight.shape != x.shape[-1:] or (bias is not None and bias.shape != weight.shape):
        raise ValueError("weight and bias must have one entry for each of the last axis of x")


# -- dropout --------------------------------------------------------------------------------------


@op
def dropout(x, *, p, seed):
    """Zero each entry with probability p and scale the others by 1 / (1 - p).

    (Srivastava et al. 2014, in the form that leaves evaluation alone.)  The mask is a function of
    (seed, p, shape), so that a second forward or a resumed run sees the same one; a GPU's differs.
    """
    if not 0 <= p <= 1:
        raise ValueError(f"dropout p is {p}: it is a probability, between 0 and 1")
    if not isinstance(seed, numbers.Integral):
        raise TypeError(f"dropout seed is {seed!r}: it must be an integer")
    if p == 0:
        return x, (lambda g: g,)
    x = floating(x)
    kept = keep_mask(int(seed), p, *_rows_shape(x), x).reshape(x.shape)
    scale = 0.0 if p == 1 else 1 / (1 - p)

    def apply(values):
        out = values * kept
        out *= scale
        return out

    return apply(x), (apply,)


# -- linear and embedding -------------------------------------------------------------------------


@op
def linear(x, weight, bias=None):
    """x weight^T + bias: x (..., in), weight (out, in), bias (out,) or None -> (..., out)."""
    if x.ndim == 0 or weight.ndim != 2 or x.shape[-1] != weight.shape[1]:
        raise ValueError("the last axis of x must be the weight's second one, (out, in)")
    rows = _as_rows(x)
    y = floating(times_transposed(rows, weight))  # x and weight may be integers
    if bias is not None:
        y += bias
    shape, flat = x.shape, y.shape  # vjps that named x or y would keep those arrays alive
    return y.reshape(*shape[:-1], len(weight)), (
        lambda g: (g.reshape(flat) @ weight).reshape(shape),
        lambda g: g.reshape(flat).T @ rows,
        lambda g: column_sum(g.reshape(flat)),
    )


@op
def embedding(weight, ids, *, padding_idx=None):
    """Rows of a table: weight (V, D), ids (...) integers -> (..., D).

    A row that is looked up several times collects all the gradients; the row `padding_idx` gets
    none from here.  On the CPU ids outside 0..V-1 raise; NumPy would take -1 for the last row.
    """
    xp = array_module(weight)
    rows, width = weight.shape
    if xp is np:
        check_ids(ids, rows)
    ids = ids.copy()  # the caller may reuse a buffer of ids before backward

    def vjp(g):
        table = scatter_add_rows(rows, ids.reshape(-1), g.reshape(-1, width))
        if padding_idx is not None:
            table[padding_idx] = 0
        return table

    return weight[ids], (vjp, None)


def check_ids(ids, rows):
    """TypeError or IndexError, naming the bad id, unless all are integers from 0 to rows - 1."""
    if ids.dtype.kind not in "iu":
        raise TypeError(f"ids are {ids.dtype}: token ids are integers")
    if ids.size and (ids.min() < 0 or ids.max() >= rows):
        bad = ids[(ids < 0) | (ids >= rows)].flat[0]
        raise IndexError(f"id {bad} is outside the vocabulary of {rows} (0..{rows - 1})")


# -- losses ---------------------------------------------------------------------------------------


@op
def cross_entropy(logits, labels, *, ignore_index=-100, label_smoothing=0.0, reduction="mean"):
    """-log softmax(logits)[label]: logits (..., V), labels (...) integers.

    Rows labelled `ignore_index` count nowhere: "mean" divides by the number of the others (0 when
    there is none), "none" has 0 there.  With label_smoothing e the target is (1 - e) one-hot + e/V
    (Szegedy et al. 2016; e/V also on the label itself).  With t that target,
    dlogits = softmax(logits) - t.
    """
    if labels.shape != logits.shape[:-1]:
        raise ValueError("labels must have the shape of logits without its last axis")
    xp, logits = array_module(logits), floating(logits)
    z, targets = _as_rows(logits), labels.reshape(-1)
    options = (ignore_index, z.shape[1], label_smoothing, reduction)
    weights, targets = _row_weights(targets, *options, z.dtype)
    losses = xp.empty((len(z), 1), z.dtype)

    def forward(z, losses, targets):
        losses[...] = nll_rows(z, z.copy(), targets, label_smoothing)

    by_rows(forward, z, losses, targets)
    losses = xp.where(weights > 0, losses[:, 0], 0) * weights  # an ignored row may hold anything

    def vjp(g):
        d = xp.empty_like(z)
        scale = xp.broadcast_to(g.reshape(-1), (len(z),)) * weights

        def backward(z, d, targets, scale):
            nll_rows(z, d, targets, label_smoothing, scale)

        by_rows(backward, z, d, targets, scale[:, None])
        d[weights == 0] = 0
        return d.reshape(logits.shape)

    return losses.reshape(labels.shape) if reduction == "none" else losses.sum(), (vjp, None)


@op
def linear_cross_entropy(
    hidden, weight, bias, labels, *, ignore_index=-100, label_smoothing=0.0, reduction="mean",
    needs=None,
):  # fmt: skip
    """cross_entropy(linear(hidden, weight, bias), labels), without the logits ever standing whole.

    hidden (..., D), weight (V, D), bias (V,) or None, labels (...).  Only labelled rows are
    computed (15% of them in masked LM).  They go through the vocabulary in blocks, and where
    gradients are wanted they are made on the way, from the same block of logits: backward then
    only scales them.  (With "none" each row has a g of its own: backward runs the blocks anew.)
    On a GPU, where the number of labels would have to be waited for, all rows are one block.
    """
    if hidden.shape[-1] != weight.shape[1]:
        raise ValueError("the last axis of hidden must be the weight's second one, (V, D)")
    if labels.shape != hidden.shape[:-1]:
        raise ValueError("labels must have the shape of hidden without its last axis")
    xp, hidden = array_module(hidden), floating(hidden)
    options = (ignore_index, len(weight), label_smoothing, reduction)
    weights, targets = _row_weights(labels.reshape(-1), *options, hidden.dtype)
    rows = np.flatnonzero(weights) if xp is np else xp.arange(len(targets))
    h, t, w = _as_rows(hidden)[rows], targets[rows], weights[rows]
    if xp is not np:
        h = xp.where(w[:, None] > 0, h, 0)  # an ignored row may hold anything

    def blocks(scale):
        """Losses of the rows, and the gradients of sum(scale * losses) that are needed."""
        losses = xp.empty(len(h), h.dtype)
        dh = xp.empty_like(h) if scale is not None and needs[0] else None
        dw = xp.zeros_like(weight) if scale is not None and needs[1] else None
        db = xp.zeros_like(bias) if scale is not None and needs[2] else None
        # Large blocks here: each one reads and writes the weight's gradient once.
        size = max(1, 16 * block_bytes() // (len(weight) * h.itemsize)) if xp is np else len(h) or 1
        logits = xp.empty((min(size, len(h)), len(weight)), h.dtype)  # of one block at a time
        for start in range(0, len(h), size):
            part = slice(start, min(start + size, len(h)))
            z = xp.matmul(h[part], weight.T, out=logits[: part.stop - start])
            if bias is not None:
                z += bias

            def steps(z, targets, out, scale):
                out[...] = nll_rows(z, z, targets, label_smoothing, scale)

            column = None if scale is None else scale[part, None]
            by_rows(steps, z, t[part], losses[part, None], column)
            if dh is not None:
                dh[part] = z @ weight
            if dw is not None:
                dw += z.T @ h[part]
            if db is not None:
                db += column_sum(z)
        return losses, dh, dw, db

    def whole(dh):
        out = xp.zeros((len(targets), hidden.shape[-1]), hidden.dtype)
        out[rows] = dh
        return out.reshape(hidden.shape)

    if reduction == "none":
        losses = xp.zeros(len(targets), hidden.dtype)
        losses[rows] = blocks(None)[0] * w

        def vjp(g):
            _, dh, dw, db = blocks(g.reshape(-1)[rows] * w)
            return None if dh is None else whole(dh), dw, db, None

        return losses.reshape(labels.shape), vjp

    losses, dh, dw, db = blocks(w if any(needs) else None)
    return (losses * w).sum(), (
        lambda g: whole(dh * g),
        lambda g: dw * g,
        lambda g: db * g,
        None,
    )


def _row_weights(targets, ignore_index, vocabulary, label_smoothing, reduction, dtype):
    """What the rows' losses are multiplied by (N,), and labels (N,) that are valid in every row.

    The weight is 0 where the row is ignored, else 1, or 1 / count for the mean.
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction is {reduction!r}: use 'mean', 'sum' or 'none'")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing is {label_smoothing}: it lies between 0 and 1")
    if targets.dtype.kind not in "iu":
        raise TypeError(f"labels are {targets.dtype}: class labels are integers")
    xp = array_module(targets)
    counted = targets != ignore_index
    if xp is np:
        wrong = counted & ((targets < 0) | (targets >= vocabulary))
        if wrong.any():
            raise IndexError(
                f"label {targets[wrong][0]} is outside the {vocabulary} classes "
                f"(0..{vocabulary - 1}) and is not ignore_index ({ignore_index})"
            )
    weights = counted.astype(dtype)
    if reduction == "mean":
        weights = weights / xp.maximum(weights.sum(), 1)
    return weights, xp.where(counted, targets, 0)
