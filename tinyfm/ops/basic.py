"""Arithmetic, reductions, shapes, matrix products: each op beside its derivative.

In the comments y is the result, g = dL/dy, and a vjp returns dL/dx.  All ops broadcast as NumPy
does; the engine sums a gradient down to the shape of the argument.
"""

from __future__ import annotations

import math
import numbers

import numpy as np

from tinyfm.autograd import op
from tinyfm.backend import array_module, is_array

# -- elementwise ----------------------------------------------------------------------------------


@op
def add(a, b):
    """a + b."""
    return a + b, (lambda g: g, lambda g: g)


@op
def sub(a, b):
    """a - b."""
    return a - b, (lambda g: g, lambda g: -g)


@op
def mul(a, b):
    """a * b, elementwise."""
    return a * b, (lambda g: g * b, lambda g: g * a)


@op
def div(a, b):
    """a / b.  d(a/b)/db = -a / b**2 = -y / b."""
    y = a / b
    return y, (lambda g: g / b, lambda g: -g * y / b)


@op
def neg(x):
    """-x."""
    return -x, (lambda g: -g,)


@op
def power(a, b):
    """a ** b.

    da = b a**(b-1), and 0 where b = 0 (also at a = 0, where the formula says 0 * inf).
    db = y log a, and 0 at a = 0; it is undefined (NaN) for a < 0.
    """
    xp = array_module(a)
    y = a**b

    def vjp_a(g):
        return g * b * a ** xp.where(b == 0, 1, b - 1)

    def vjp_b(g):
        return g * y * xp.log(xp.where(a == 0, 1, a))

    return y, (vjp_a, vjp_b)


@op
def maximum(a, b):
    """The larger one, elementwise; at a tie each gets half of the gradient."""
    return array_module(a).maximum(a, b), _shares(a > b, a == b)


@op
def minimum(a, b):
    """The smaller one, elementwise; at a tie each gets half of the gradient."""
    return array_module(a).minimum(a, b), _shares(a < b, a == b)


def _shares(first, tie):
    """The vjps of a choice: all of g to the one chosen, half to each at a tie."""
    xp = array_module(first)
    return (
        lambda g: xp.where(first, g, xp.where(tie, 0.5 * g, 0)),
        lambda g: xp.where(first, 0, xp.where(tie, 0.5 * g, g)),
    )


@op
def exp(x):
    """e ** x; its own derivative."""
    y = array_module(x).exp(x)
    return y, (lambda g: g * y,)


@op
def log(x):
    """Natural logarithm."""
    return array_module(x).log(x), (lambda g: g / x,)


@op
def sqrt(x):
    """Square root.  dy/dx = 1 / (2 y): infinite at 0, see `norm`."""
    y = array_module(x).sqrt(x)
    return y, (lambda g: g / (2 * y),)


@op
def tanh(x):
    """Hyperbolic tangent.  dy/dx = 1 - y**2."""
    y = array_module(x).tanh(x)
    return y, (lambda g: g - g * y * y,)


@op
def where(condition, a, b):
    """a where the condition holds, b elsewhere.

    It selects and never multiplies: 0 * inf is NaN, so a product with a 0/1 mask would let what
    stands in the branch not taken through to the gradient.  (A NaN made *inside* that branch is
    another matter: make the input safe first, as in sqrt(where(x > 0, x, 1)).)
    """
    xp = array_module(condition)
    y = xp.where(condition, a, b)
    return y, (None, lambda g: xp.where(condition, g, 0), lambda g: xp.where(condition, 0, g))


@op
def astype(x, *, dtype):
    """x converted to another dtype; the gradient is converted back."""
    return x.astype(dtype), (lambda g, before=x.dtype: g.astype(before),)


# -- reductions over any axes ---------------------------------------------------------------------
# axis: None (all), an int or a tuple of ints; keepdims as in NumPy.


def _kept(x, axis):
    """The shape of a reduction over `axis` with keepdims, and how many entries each result has."""
    axes = range(x.ndim) if axis is None else np.atleast_1d(axis).tolist()
    axes = {a % (x.ndim or 1) for a in axes}
    shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    return shape, math.prod(n for i, n in enumerate(x.shape) if i in axes)


@op
def sum(x, *, axis=None, keepdims=False):
    """Sum; every entry gets the gradient of its sum."""
    y = x.sum(axis, keepdims=True)
    return y if keepdims else y.squeeze(axis), (_spread(y.shape, x),)


def _spread(kept, x):
    """The vjp that copies g to all places of x; x itself is not kept for it."""
    xp, shape, dtype = array_module(x), x.shape, x.dtype

    def vjp(g):
        d = xp.empty(shape, dtype)
        d[...] = g.reshape(kept)  # on small arrays broadcast_to costs ten times as much
        return d

    return vjp


@op
def mean(x, *, axis=None, keepdims=False):
    """Mean; every entry gets the gradient of its mean divided by the number of entries."""
    kept, n = _kept(x, axis)
    y = x.mean(axis, keepdims=keepdims)
    spread = _spread(kept, x)
    return y, (lambda g: spread(g / n),)


@op
def var(x, *, axis=None, keepdims=False, ddof=0):
    """Variance, the mean square of d = x - mean (divisor n - ddof).  dy/dx = 2 d / (n - ddof).

    (The derivative of the mean falls out: it multiplies sum d, which is 0.)
    """
    kept, n = _kept(x, axis)
    d = x - x.mean(axis, keepdims=True)
    y = (d * d).sum(axis, keepdims=keepdims) / (n - ddof)
    return y, (lambda g: g.reshape(kept) * (2 / (n - ddof)) * d,)


@op
def max(x, *, axis=None, keepdims=False):
    """Largest entry; entries that tie share the gradient equally."""
    return _extreme(x, x.max(axis, keepdims=True), axis, keepdims)


@op
def min(x, *, axis=None, keepdims=False):
    """Smallest entry; entries that tie share the gradient equally."""
    return _extreme(x, x.min(axis, keepdims=True), axis, keepdims)


def _extreme(x, y, axis, keepdims):
    kept, _ = _kept(x, axis)

    def vjp(g):
        tie = x == y
        share = g.reshape(kept) / tie.sum(axis, keepdims=True).astype(g.dtype)
        return array_module(x).where(tie, share, 0)

    return y if keepdims else y.squeeze(axis), (vjp,)


@op
def norm(x, *, axis=None, keepdims=False):
    """Euclidean norm.  dy/dx = x / y, and 0 at the zero vector.

    (sqrt(sum(x * x)) written by hand has the same values, but 0 / 0 = NaN as gradient there.)
    """
    kept, _ = _kept(x, axis)
    xp = array_module(x)
    y = xp.sqrt((x * x).sum(axis, keepdims=keepdims))
    safe = xp.where(y == 0, 1, y)
    return y, (lambda g: x * (g / safe).reshape(kept),)


# -- shapes ---------------------------------------------------------------------------------------


@op
def reshape(x, *, shape):
    """The same entries in another shape (one size may be -1)."""
    return x.reshape(shape), (lambda g: g.reshape(x.shape),)


@op
def transpose(x, *, axes=None):
    """Axes permuted; reversed when `axes` is None."""
    back = None if axes is None else sorted(range(x.ndim), key=lambda i: axes[i] % x.ndim)
    return x.transpose(axes), (lambda g: g.transpose(back),)


@op
def swapaxes(x, *, axis1, axis2):
    """Two axes exchanged."""
    return x.swapaxes(axis1, axis2), (lambda g: g.swapaxes(axis1, axis2),)


@op
def concatenate(*arrays, axis=0):
    """Arrays joined along an axis; takes them as a list or one by one."""
    xp = array_module(arrays[0])
    ends = [0]
    for a in arrays:
        ends.append(ends[-1] + a.shape[axis])

    def part(i):
        def vjp(g):
            key = [slice(None)] * g.ndim
            key[axis] = slice(ends[i], ends[i + 1])
            return g[tuple(key)]

        return vjp

    return xp.concatenate(arrays, axis), tuple(part(i) for i in range(len(arrays)))


@op
def stack(*arrays, axis=0):
    """Arrays of one shape joined along a new axis; takes them as a list or one by one."""
    xp = array_module(arrays[0])
    take = tuple(lambda g, i=i: xp.moveaxis(g, axis, 0)[i] for i in range(len(arrays)))
    return xp.stack(arrays, axis), take


@op
def split(x, *, sections, axis=0):
    """A tuple of parts of x: `sections` equal ones, or cut at the indices in `sections`."""
    xp = array_module(x)
    parts = tuple(xp.split(x, sections, axis))
    shapes = [p.shape for p in parts]

    def vjp(g):
        blank = [xp.zeros(s, x.dtype) if p is None else p for p, s in zip(g, shapes, strict=True)]
        return xp.concatenate(blank, axis)

    return parts, (vjp,)


@op
def split_heads(x, *, parts, heads):
    """(B, T, parts * heads * D) -> `parts` arrays (B, heads, T, D): packed q, k, v to their heads.

    A token's channels stay together: head h of part p has those from (p * heads + h) * D on.
    """
    xp, dtype, shape = array_module(x), x.dtype, x.shape
    batch, length, width = shape
    packed = (batch, length, parts, heads, width // (parts * heads))
    views = x.reshape(packed).transpose(2, 0, 3, 1, 4)

    def vjp(g):
        dx = xp.zeros(packed, dtype)
        for i, part in enumerate(g):
            if part is not None:
                dx[:, :, i] = part.swapaxes(1, 2)
        return dx.reshape(shape)

    return tuple(views[i] for i in range(parts)), (vjp,)


@op
def merge_heads(x):
    """(B, heads, T, D) -> (B, T, heads * D), the heads of a token side by side."""
    batch, heads, length, width = x.shape
    y = x.swapaxes(1, 2).reshape(batch, length, heads * width)
    return y, (lambda g: g.reshape(batch, length, heads, width).swapaxes(1, 2),)


@op
def getitem(x, *, key):
    """x[key]: slices, integers, None, bool arrays, integer arrays with repeats, as in NumPy.

    An entry that is picked several times collects all of their gradients.
    """
    xp = array_module(x)
    keys = key if isinstance(key, tuple) else (key,)
    # Copies: the caller may reuse a buffer of ids before backward.
    key = keys = tuple([k.copy() if is_array(k) or type(k) is list else k for k in keys])

    def vjp(g):
        out = xp.zeros(x.shape, x.dtype)
        if all(_picks_once(k) for k in keys):
            out[key] = g
        else:
            entries = xp.arange(x.size).reshape(x.shape)[key]
            xp.add.at(out.reshape(-1), entries.reshape(-1), g.reshape(-1))
        return out

    return x[key], (vjp,)


def _picks_once(k):
    """Whether a part of an index names no entry twice; lists, ranges and integer arrays may."""
    whole = k is None or k is Ellipsis or isinstance(k, (slice, int, numbers.Integral))
    return whole or (hasattr(k, "dtype") and k.dtype.kind == "b")


# -- matrix product -------------------------------------------------------------------------------


@op
def matmul(a, b):
    """a @ b over the last two axes: (..., n, k) @ (..., k, m) -> (..., n, m); vectors as in NumPy.

    y[i, j] = sum_k a[i, k] b[k, j], hence da = g @ b^T and db = a^T @ g.
    """
    y = a @ b
    left = a[None, :] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b

    def matrix(g):
        g = g[..., None] if b.ndim == 1 else g
        return g[..., None, :] if a.ndim == 1 else g

    def vjp_a(g):
        d = matrix(g) @ right.swapaxes(-1, -2)
        return d[..., 0, :] if a.ndim == 1 else d

    def vjp_b(g):
        g = matrix(g)
        if right.ndim == 2:  # one weight for a whole batch: one product, not a batch to be summed
            n = math.prod(left.shape[:-1])
            d = left.reshape(n, left.shape[-1]).T @ g.reshape(n, g.shape[-1])
        else:
            d = left.swapaxes(-1, -2) @ g
        return d[..., 0] if b.ndim == 1 else d

    return y, (vjp_a, vjp_b)
