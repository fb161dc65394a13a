"""The inner passes of the fused ops: what is done to one block of rows while it is in the cache.

They work in place and through `out=`, on NumPy and CuPy alike; who calls them cuts the rows into
blocks and hands these to threads (`backend.by_rows`).
"""

from __future__ import annotations

import math

import numpy as np

from tinyfm.backend import array_module
from tinyfm.ops.erf import erf

REACH = 60.0  # how far from 0 exp is safe in float32: e**60 is 1e26, and sums of them fit
FEW = 32  # rows of a product
FAR = 40.0  # where GELU is 0 or x in every dtype; squares of what lies beyond might overflow


def floating(x):
    """x, or x in float32 if it holds integers.

    An op is tried with integers first, to see by its vjps whether they are numbers.
    """
    return x if x.dtype.kind == "f" else x.astype(np.float32)


def chosen(x, mask):
    """x where the mask is true, else 0 (also in place of inf and NaN).

    By the bits, all of which the mask keeps or clears: np.where, which branches at each entry,
    takes fifteen times as long on a mask without a pattern.
    """
    xp = array_module(x)
    if xp is not np or x.itemsize > 8:
        return xp.where(mask, x, 0)
    bits = np.asarray(mask).astype(f"i{x.itemsize}")
    np.negative(bits, out=bits)  # 1 -> all bits
    bits &= x.view(bits.dtype)
    return bits.view(x.dtype)


def times_transposed(x, weight):
    """x weight^T of matrices: (N, in), (out, in) -> (N, out).

    A few rows, as beams and heads of classifiers have them, are multiplied the other way round,
    weight x^T, for which OpenBLAS needs half the time in float32.
    """
    if 1 < len(x) <= FEW and x.dtype == weight.dtype == np.float32 and array_module(x) is np:
        return np.ascontiguousarray((weight @ x.T).T)
    return x @ weight.T


def row_sum(x):
    """sum over the last axis, which stays as 1: (..., D) -> (..., 1).

    On short rows einsum takes a quarter of the time; on long ones sum adds in pairs, which rounds
    less.
    """
    if x.shape[-1] > 1024:
        return x.sum(-1, keepdims=True)
    return array_module(x).einsum("...d->...", x)[..., None]


def mean_product(a, b):
    """mean(a * b) over the last axis, (N, D) -> (N, 1), without an array for the product."""
    return array_module(a).einsum("nd,nd->n", a, b)[:, None] / a.shape[1]


def column_sum(x):
    """sum over the rows, (N, D) -> (D,): as a matrix product, twice as fast as x.sum(0)."""
    return array_module(x).ones(len(x), x.dtype) @ x


def gelu_exact_rows(x, y, slope):
    """y = x Phi(x); dy/dx = Phi(x) + x phi(x) with the density phi."""
    xp = array_module(x)
    near = x.clip(-FAR, FAR)
    phi = erf(near * math.sqrt(0.5))
    phi += 1
    phi *= 0.5
    xp.multiply(x, phi, out=y)
    if slope is not None:
        xp.multiply(near, near, out=slope)
        slope *= -0.5
        xp.exp(slope, out=slope)
        slope *= near
        slope *= 1 / math.sqrt(2 * math.pi)
        slope += phi


def gelu_tanh_rows(x, y, slope):
    """With u = c (x + a x**3) and t = tanh u: dy/dx = 0.5 (1 + t) + 0.5 x (1 - t**2) du/dx."""
    xp = array_module(x)
    a, c = 0.044715, math.sqrt(2 / math.pi)
    near = x.clip(-FAR, FAR)
    square = near * near
    t = square * (a * c)
    t += c
    t *= near
    xp.tanh(t, out=t)
    xp.add(t, 1, out=y)
    y *= 0.5
    if slope is not None:
        xp.multiply(t, t, out=t)
        xp.subtract(1, t, out=t)
        square *= 3 * a * c
        square += c
        square *= near
        square *= 0.5
        xp.multiply(t, square, out=slope)
        slope += y
    y *= x


def within_reach_of_exp(x):
    """Whether exp of every entry of x, and the sum of a row of them, is far from 0 and infinity.

    Then softmax needs no maximum: on rows of a few dozen entries that would be its dearest part.
    """
    return bool(x.dtype.itemsize >= 4 and x.size and x.max() < REACH and x.min() > -REACH)


def softmax_rows(x, out, within=False, times=1):
    """Softmax over the last axis of x, times `times` (..., 1), into out (which may be x).

    Returns (top, total), both (..., 1) or 0, such that top + log(total) is log sum exp(x): the
    maximum is subtracted first, so that exp cannot overflow.  Rows of -inf become zeros.
    within: what `within_reach_of_exp` says of x without its -inf; True saves the maximum.
    """
    xp, top = array_module(x), x.dtype.type(0)
    if within:
        xp.exp(x, out=out)
    else:
        top = _shifted(x, out)
        xp.exp(out, out=out)
    return top, _normalised(out, times)


def _shifted(x, out):
    """x - max(x) by row into out; returns the maximum (..., 1), 0 where all is -inf."""
    xp, top = array_module(x), x.max(-1, keepdims=True)
    top = xp.where(top == -math.inf, 0, top)
    xp.subtract(x, top, out=out)
    return top


def _normalised(e, times):
    """Divide rows of exp's values, in place, by their sum, and multiply them; returns the sum."""
    xp, total = array_module(e), row_sum(e)
    total = xp.where(total == 0, 1, total)
    e *= times / total
    return total


def nll_rows(z, out, targets, label_smoothing, times=None):
    """Losses (N, 1) of the rows of logits z (N, V); out, which may be z, is used up.

    times (N, 1): of the losses, when their gradients are wanted, which are then left in out:
    times (softmax(z) - t), where t is (1 - e) one-hot + e / V.
    """
    xp, width = array_module(z), z.shape[1]
    place = (xp.arange(len(z)), targets)
    _shifted(z, out)  # before anything is summed: logits of 1e8 and 1e36 lose nothing
    target = out[place][:, None]
    if label_smoothing:
        mean = out.mean(-1, keepdims=True)
        target = (1 - label_smoothing) * target + label_smoothing * mean
    xp.exp(out, out=out)
    total = _normalised(out, 1 if times is None else times)
    if times is not None:
        if label_smoothing:
            out -= label_smoothing / width * times
        out[place] -= (1 - label_smoothing) * times[:, 0]
    return xp.log(total) - target
