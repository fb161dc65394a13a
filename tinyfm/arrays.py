"""What a tensor is before it has a gradient: an array, its description, and the law of dtypes.

**The dtype law.**  Arrays keep their dtype; Python numbers and lists become float32.  Scalars
(Python's and NumPy's), integers and plain float arrays take the dtype of the floating tensor that
they meet in an op.  Two tensors of different float dtypes are an error.  NumPy alone would turn
float32 into float64 at the first np.float64 scalar, and nobody would notice but the clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyfm.backend import Array, array_module, device_of, is_array, to_numpy

PLAIN = (bool, int, float, list, tuple, np.generic)  # what becomes an array in an op


class ArrayHolder:
    """Something with an array in `_data`: what the array tells about itself, and ways out of it."""

    __slots__ = ("_data",)
    __array_ufunc__ = None  # so that `array + tensor` comes to __radd__, and np.exp(tensor) raises
    __hash__ = object.__hash__  # by identity, although == compares elementwise
    _data: Array

    if TYPE_CHECKING:  # what tinyfm.ops attaches

        def __add__(self, other: Any) -> Any: ...
        def __radd__(self, other: Any) -> Any: ...
        def __sub__(self, other: Any) -> Any: ...
        def __rsub__(self, other: Any) -> Any: ...
        def __mul__(self, other: Any) -> Any: ...
        def __rmul__(self, other: Any) -> Any: ...
        def __truediv__(self, other: Any) -> Any: ...
        def __rtruediv__(self, other: Any) -> Any: ...
        def __matmul__(self, other: Any) -> Any: ...
        def __rmatmul__(self, other: Any) -> Any: ...
        def __pow__(self, other: Any) -> Any: ...
        def __rpow__(self, other: Any) -> Any: ...
        def __lt__(self, other: Any) -> Any: ...
        def __le__(self, other: Any) -> Any: ...
        def __gt__(self, other: Any) -> Any: ...
        def __ge__(self, other: Any) -> Any: ...
        def __getitem__(self, key: Any) -> Any: ...
        def __neg__(self) -> Any: ...
        def exp(self) -> Any: ...
        def log(self) -> Any: ...
        def sqrt(self) -> Any: ...
        def tanh(self) -> Any: ...
        def sum(self, axis: Any = None, keepdims: bool = False) -> Any: ...
        def mean(self, axis: Any = None, keepdims: bool = False) -> Any: ...
        def max(self, axis: Any = None, keepdims: bool = False) -> Any: ...
        def min(self, axis: Any = None, keepdims: bool = False) -> Any: ...
        def var(self, axis: Any = None, keepdims: bool = False) -> Any: ...
        def reshape(self, *shape: Any) -> Any: ...
        def transpose(self, *axes: Any) -> Any: ...
        def swapaxes(self, axis1: int, axis2: int) -> Any: ...
        def astype(self, dtype: Any) -> Any: ...

        T: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return self._data.shape

    @property
    def dtype(self) -> np.dtype:
        return self._data.dtype

    @property
    def ndim(self) -> int:
        return self._data.ndim

    @property
    def size(self) -> int:
        return self._data.size

    @property
    def device(self) -> str:
        """ "cpu", or "cuda:0" and so on."""
        return device_of(self._data)

    def view(self) -> Array:
        """A read-only view of the array (a plain view on a GPU, where arrays have no such flag)."""
        view = self._data.view()
        if isinstance(view, np.ndarray):
            view.flags.writeable = False
        return view

    def numpy(self) -> np.ndarray:
        """The values as a NumPy array: a read-only view on the CPU, a copy from a GPU."""
        return to_numpy(self.view())

    def item(self) -> float | int | bool:
        """The one element as a Python number; on a GPU this waits for the device."""
        if self.size != 1:
            raise ValueError(f"item() needs one element, and the shape is {self.shape}")
        return self._data.item()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if not isinstance(self._data, np.ndarray):
            raise TypeError(f"a tensor on {self.device} becomes a NumPy array only by .numpy()")
        return np.array(self.view(), dtype, copy=copy)

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        raise TypeError("a tensor has no truth value: compare its .item() or its .data")

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("a 0-d tensor has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        values = np.array2string(to_numpy(self._data), separator=", ", prefix="tensor(")
        kind = "" if self.dtype == np.float32 else f", dtype={self.dtype}"
        flag = ", requires_grad=True" if getattr(self, "requires_grad", False) else ""
        return f"tensor({values}{kind}{flag})"


def default_array(data: Any) -> Array:
    """An array as it is; float32 of Python numbers and lists; a NumPy scalar in its own dtype."""
    if is_array(data) and not isinstance(data, np.ndarray):
        return data
    array = np.asarray(data)  # of a subclass, such as a memory map, the plain array
    if array.dtype.kind not in "fiub":
        raise TypeError(f"a tensor holds numbers, not {type(data).__name__} {data!r}"[:200])
    keeps = isinstance(data, np.ndarray | np.generic)
    return array if keeps else array.astype(np.float32)


def same_kind(value: Any, like: Array) -> Array:
    """value as an array of `like`'s shape and dtype, or an error: numbers and lists convert."""
    value = value if is_array(value) else array_module(like).asarray(value, like.dtype)
    if value.shape != like.shape or value.dtype != like.dtype:
        error = ValueError if value.shape != like.shape else TypeError
        raise error(
            f"a tensor of {like.shape} {like.dtype} cannot take {value.shape} {value.dtype}: "
            "give an array of the same shape and dtype"
        )
    return value


def bind(name: str, arguments: list, variadic: bool, args: tuple, options: dict) -> tuple:
    """All arguments in order: defaults filled in, those given by name moved out of the options."""
    if variadic and len(args) == 1 and isinstance(args[0], list | tuple):
        args = tuple(args[0])
    for p in arguments[len(args) :]:
        if p.name not in options and p.default is p.empty:
            raise TypeError(f"op {name!r}: argument {p.name!r} is missing")
        args += (options.pop(p.name, p.default),)
    return args


def settle(
    name: str, arrays: list[Any], dtype: Any, kind: type | None, numeric: set[int]
) -> tuple[Any, list[int]]:
    """Make arrays of an op's numbers and lists, in place in `arrays`, by the dtype law.

    dtype, kind: of the floating tensors, and the array type of all tensors; None without any.
    numeric: the arguments that are known to hold numbers.  An integer in another one may be an id
        or a label, which must stay an integer: its position is returned.
    Returns (dtype, unsettled positions).  dtype is that of the floating tensors, else of the plain
    float arrays, else float32 if there is a float or nothing but numbers and lists, else None
    (integer tensors and arrays among themselves).
    """
    if kind is np.ndarray and dtype is not None and _settle_numbers(arrays, dtype, numeric):
        return dtype, []
    for i, a in enumerate(arrays):
        if isinstance(a, np.ndarray):
            arrays[i] = np.asarray(a)  # no subclass: memmap
    given = [a for a in arrays if is_array(a)]
    if dtype is None and any(a.dtype.kind == "f" for a in given):
        dtype = np.result_type(*(a.dtype for a in given if a.dtype.kind == "f"))
    if given and kind is None:
        kind = type(given[0])
    xp = array_module(given[0]) if given else np
    values = []  # (position, array) of what holds numbers: neither None nor a Mask
    for i, a in enumerate(arrays):
        if isinstance(a, PLAIN):
            a = xp.asarray(a)
            if dtype is None and (a.dtype.kind == "f" or not given):
                dtype = np.dtype(np.float32)
        elif not is_array(a):
            continue
        elif kind is not None and type(a) is not kind:
            raise mixed_devices(name, given, a)
        values.append((i, a))
    unsettled = []
    for i, a in values:
        if dtype is not None and a.dtype != dtype:
            if a.dtype.kind == "f" or i in numeric:
                a = a.astype(dtype)
            else:
                unsettled.append(i)
        arrays[i] = a
    return dtype, unsettled


def mixed_devices(name: str, arrays: Sequence[Any], a: Array) -> TypeError:
    other = next(x for x in arrays if is_array(x) and type(x) is not type(a))
    return TypeError(
        f"op {name!r}: arrays on {device_of(other)} and on {device_of(a)}; move one of them, "
        "with model.to(device) or backend.to_device(array, device)"
    )


def _settle_numbers(arrays: list[Any], dtype: Any, numeric: set[int]) -> bool:
    """The common case, NumPy tensors and Python numbers, Masks and arrays of the same dtype beside
    them, without `settle`'s other questions.

    Returns whether that was all there was to do.
    """
    done = True
    for i, a in enumerate(arrays):
        kind = type(a)
        if kind is np.ndarray:
            done = done and a.dtype is dtype
        elif kind is float or (kind is int and i in numeric):
            arrays[i] = np.asarray(a, dtype)
        elif a is not None and (isinstance(a, PLAIN) or is_array(a)):
            done = False
    return done


def name_op(error: Exception, name: str, arrays: Sequence[Any]) -> None:
    """Make an error say which op it comes from and what that was given."""
    given = ", ".join(f"{a.shape} {a.dtype}" for a in arrays if is_array(a))
    if type(error) in (IndexError, TypeError, ValueError):
        error.args = (f"op {name!r} of {given}: {error}",)
    else:  # a subclass of NumPy's makes its text itself
        error.add_note(f"in op {name!r} of {given}")
