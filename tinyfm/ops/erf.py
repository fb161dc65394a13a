"""The error function, which NumPy lacks: erf(x) = 2 / sqrt(pi) * integral of exp(-t**2) over 0..x.

It is wanted by the exact GELU only.  The lower precisions get a vectorised formula, float64 (the
checks) the C library's function, entry by entry; CuPy has its own.
"""

from __future__ import annotations

import math

import numpy as np

from tinyfm.backend import Array, array_module

# erf(x) = tanh(x P(x**2)) defines a smooth, nearly constant P, and NumPy's tanh is vectorised.  The
# coefficients are a weighted least-squares fit of degree 6 on 0..4 to atanh(erf(x)) / x, with the
# weights of a relative error in erf.  At 4.1 and beyond the result is 1 exactly, in float32.
_P = (
    1.128379225730896, 0.10276905447244644, -0.00019182905089110136, -0.000619786384049803,
    8.763803634792566e-05, -5.668601716024568e-06, 1.418599424596323e-07,
)  # fmt: skip
_LIMIT = 4.1

_erf64 = np.frompyfunc(math.erf, 1, 1)


def erf(x: Array) -> Array:
    """erf of every entry, in x's dtype; float32 within 2e-7 of the true value."""
    xp = array_module(x)
    if xp is not np:
        import cupyx.scipy.special

        return cupyx.scipy.special.erf(x)
    if x.dtype == np.float64:
        return np.asarray(_erf64(x), np.float64)
    x = np.clip(x, -_LIMIT, _LIMIT)
    z = x * x
    p = z * _P[-1]
    for c in _P[-2:0:-1]:
        p += c
        p *= z
    p += _P[0]
    p *= x
    return np.tanh(p, out=p)
