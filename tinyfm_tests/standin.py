"""A stand-in for CuPy: arrays that are none of NumPy's and refuse every implicit conversion.

`tinyfm.backend.array_module` finds this module by the class of its arrays, as it would find CuPy.
What NumPy and CuPy share is there, through the module's `__getattr__`; what CuPy lacks is an
AttributeError.  A NumPy array among the arguments, a truth value, an iteration, a NumPy function
of a stand-in: whatever would copy between devices or wait for one is a TypeError.  That is
stricter than CuPy, which copies silently in some of these places.  `.item()` and `.get()` are the
ways out.
"""

from __future__ import annotations

import operator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np

CUPY_NAMES = frozenset((Path(__file__).parent / "cupy_names.txt").read_text().split())


def refuse(what):
    def method(self, *args, **kwargs):
        raise TypeError(f"stand-in: implicit {what} of a device array")

    return method


def unwrap(x):
    """The NumPy arrays inside stand-ins; a bare NumPy array is refused."""
    if isinstance(x, ndarray):
        return x._array
    if isinstance(x, np.ndarray):
        raise TypeError(f"stand-in: a NumPy array {x.shape} among device arrays")
    if isinstance(x, tuple | list):
        return type(x)(map(unwrap, x))
    if isinstance(x, slice):
        return slice(*map(unwrap, (x.start, x.stop, x.step)))
    return x


def wrap(result, sources):
    """Stand-ins around the arrays of a result; views know their base, `out=` is returned itself."""
    if isinstance(result, tuple | list):
        return type(result)(wrap(x, sources) for x in result)
    if not isinstance(result, np.ndarray | np.generic):
        return result
    base = None
    for x in sources:
        if x._array is result:
            return x
        if isinstance(result, np.ndarray) and np.may_share_memory(result, x._array):
            base = x if x.base is None else x.base
    return ndarray(np.asarray(result), base)


def stand_ins(values):
    for x in values:
        if isinstance(x, ndarray):
            yield x
        elif isinstance(x, tuple | list):
            yield from stand_ins(x)


def call(function, *args, **options):
    sources = list(stand_ins((*args, *options.values())))
    options = {name: unwrap(x) for name, x in options.items()}
    return wrap(function(*map(unwrap, args), **options), sources)


class ndarray:
    """A NumPy array in disguise."""

    __array_ufunc__ = None  # NumPy's operators and functions keep off
    __hash__ = None

    def __init__(self, array, base=None):
        self._array = array
        self.base = base

    def __getattr__(self, name):
        value = getattr(self._array, name)
        if f"ndarray.{name}" not in CUPY_NAMES or name in ("tolist", "ctypes"):
            raise AttributeError(f"stand-in: CuPy's ndarray has no {name!r}")
        if not callable(value):
            return wrap(value, [self])
        return lambda *args, **options: call(
            lambda a, *rest, **given: getattr(a, name)(*rest, **given), self, *args, **options
        )

    @property
    def device(self):
        return SimpleNamespace(id=0)

    def item(self, *args):
        return self._array.item(*args)

    def get(self):
        return self._array.copy()

    def __len__(self):
        return len(self._array)

    def __repr__(self):
        return f"standin.{self._array!r}"

    def __getitem__(self, key):
        return call(operator.getitem, self, key)

    def __setitem__(self, key, value):
        call(operator.setitem, self, key, value)

    __bool__ = refuse("truth value")
    __float__ = refuse("float()")
    __int__ = refuse("int()")
    __index__ = refuse("index")
    __iter__ = refuse("iteration")
    __contains__ = refuse("iteration")
    __array__ = refuse("conversion to NumPy")


def _binary(function, reflected=False):
    def method(self, other):
        if type(other) is not ndarray and getattr(other, "__array_ufunc__", self) is None:
            return NotImplemented  # a Tensor knows better
        return call(function, other, self) if reflected else call(function, self, other)

    return method


def _unary(function):
    return lambda self: call(function, self)


_BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"]
for _name in _BINARY:
    _function = getattr(operator, {"and": "and_", "or": "or_"}.get(_name, _name))
    setattr(ndarray, f"__{_name}__", _binary(_function))
    setattr(ndarray, f"__r{_name}__", _binary(_function, reflected=True))
    setattr(ndarray, f"__i{_name}__", _binary(getattr(operator, f"i{_name}")))
for _name in ["eq", "ne", "lt", "le", "gt", "ge"]:
    setattr(ndarray, f"__{_name}__", _binary(getattr(operator, _name)))
for _name in ["neg", "pos", "abs", "invert"]:
    setattr(ndarray, f"__{_name}__", _unary(getattr(operator, _name)))


class _Function:
    """A function of NumPy on stand-ins; a ufunc has its methods."""

    def __init__(self, function):
        self._function = function

    def __call__(self, *args, **options):
        return call(self._function, *args, **options)

    def __getattr__(self, name):
        if not isinstance(self._function, np.ufunc) or f"add.{name}" not in CUPY_NAMES:
            raise AttributeError(f"stand-in: no {name!r}")
        return _Function(getattr(self._function, name))


class _RandomState:
    def __init__(self, seed):
        self._state = np.random.RandomState(seed)

    def __getattr__(self, name):
        if f"random.RandomState.{name}" not in CUPY_NAMES:
            raise AttributeError(f"stand-in: CuPy's RandomState has no {name!r}")
        return _Function(getattr(self._state, name))


random = SimpleNamespace(RandomState=_RandomState)


def asarray(x, dtype=None, **options):
    """The one way in: also for NumPy arrays, which are copied."""
    if isinstance(x, np.ndarray):
        return ndarray(np.array(x, dtype))
    return call(np.asarray, x, dtype, **options)


array = asarray


def erf(x):
    """What cupyx.scipy.special.erf is for CuPy."""
    from tinyfm.ops.erf import erf

    return call(erf, x)


def __getattr__(name):
    if name not in CUPY_NAMES or not hasattr(np, name):
        raise AttributeError(f"stand-in: NumPy and CuPy do not share {name!r}")
    value = getattr(np, name)
    if isinstance(value, ModuleType):
        raise AttributeError(f"stand-in: nothing is known of the submodule {name!r}")
    return value if isinstance(value, type) or not callable(value) else _Function(value)
