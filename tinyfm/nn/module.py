"""Module and Parameter: a model is a tree of objects; its parameters are found by walking it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self

import numpy as np

from tinyfm.autograd import Tensor, no_grad, raw
from tinyfm.backend import Array, generator, host, to_device


class Parameter(Tensor):
    """A leaf that a module learns.  Frozen by `requires_grad = False`, it stays a parameter.

    padding_idx: the row of a table that weight decay leaves alone, if there is one.
    """

    __slots__ = ("padding_idx",)

    def __init__(self, data: Array, requires_grad: bool = True) -> None:
        super().__init__(data, requires_grad)
        self.padding_idx: int | None = None


class Module:
    """Attributes that are Parameters, Modules or lists of Modules make up the tree.

    A module holds parameters and switches, and no state of a call: one embedding may be used three
    times in a graph.  A parameter that stands at several places is one object and counts once.
    """

    training: bool = True

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.forward(*args, **options)

    def forward(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} defines no forward()")

    # the tree

    def children(self) -> Iterator[tuple[str, Module]]:
        """Direct submodules with their names; members of a list are named by their position."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value
            elif isinstance(value, list | tuple):
                for i, item in enumerate(value):
                    if isinstance(item, Module):
                        yield f"{name}.{i}", item

    def modules(self) -> Iterator[Module]:
        """This module and all below it."""
        yield self
        for _, child in self.children():
            yield from child.modules()

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """All parameters with the first name that leads to each, every one once."""
        seen: set[int] = set()
        for name, parameter in self._walk(""):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield name, parameter

    def _walk(self, prefix: str) -> Iterator[tuple[str, Parameter]]:
        for name, value in vars(self).items():
            if isinstance(value, Parameter):
                yield prefix + name, value
        for name, child in self.children():
            yield from child._walk(f"{prefix}{name}.")

    def parameters(self) -> list[Parameter]:
        return [parameter for _, parameter in self.named_parameters()]

    # modes, places, dtypes

    def train(self, mode: bool = True) -> Self:
        """Dropout on (or off with mode=False), in this module and all below."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        return self.train(False)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Evaluation mode, nothing recorded; afterwards every module has its own mode again."""
        modes = [(module, module.training) for module in self.modules()]
        try:
            self.eval()
            with no_grad():
                yield
        finally:
            for module, mode in modes:
                module.training = mode

    def to(self, device: str | None = None, dtype: Any = None) -> Self:
        """Move or convert every parameter in place; the Parameter objects, and so ties, stay.

        Gradients are dropped.  Move before an optimizer is made: its moments stay where they are.
        """
        if not isinstance(device, str | None):
            raise TypeError(f"to(device={device!r}): 'cpu' or 'cuda'; for a dtype, to(dtype=...)")
        _check_dtype(dtype)
        for parameter in self.parameters():
            with parameter.writing() as array:
                array = array if device is None else to_device(array, device)
                parameter._data = array if dtype is None else array.astype(dtype, copy=False)
            parameter.grad = None
        return self

    # names and values

    def state_dict(self) -> dict[str, np.ndarray]:
        """Name -> values as NumPy arrays (on the CPU read-only views), shared parameters once."""
        return {name: p.numpy() for name, p in self.named_parameters()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Write values (arrays, Tensors or lists) into the parameters, in the parameters' dtypes.

        Names and shapes must match exactly; otherwise ValueError, and nothing is written.
        """
        values = self._fitting(state)
        for name, p in self.named_parameters():
            with p.writing() as array:
                array[...] = to_device(values[name], p.device).astype(p.dtype)

    def allocate(self, state: dict[str, Any], dtype: Any) -> None:
        """Give a module that was built `without_memory` its values: copies, as `dtype`, on the CPU.

        They must match as those of load_state_dict must.
        """
        _check_dtype(dtype)
        values = self._fitting(state)
        for name, p in self.named_parameters():
            with p.writing():
                p._data = np.array(values[name], dtype, order="C")

    def _fitting(self, state: dict[str, Any]) -> dict[str, np.ndarray]:
        """The values on the host, by name; ValueError lists what does not fit."""
        parameters = dict(self.named_parameters())
        values = {name: host(raw(value)) for name, value in state.items()}
        problems = [f"missing {name}" for name in parameters if name not in state]
        problems += [f"unexpected {name}" for name in state if name not in parameters]
        problems += [
            f"{name} is {values[name].shape} instead of {p.shape}"
            for name, p in parameters.items()
            if name in values and values[name].shape != p.shape
        ]
        if problems:
            raise ValueError(
                f"{type(self).__name__} cannot take these values: {'; '.join(problems)}"
            )
        return values


def _check_dtype(dtype: Any) -> None:
    if dtype is not None and np.dtype(dtype).kind != "f":
        raise TypeError(f"dtype {dtype}: parameters are floating-point numbers")


# -- initial values -------------------------------------------------------------------------------
# float32 arrays; random ones from the one generator, in the order in which layers are built.

Init = Callable[[tuple[int, ...]], np.ndarray]


class _Places:
    """How many parameters are made without memory, and may be at most (None: any number)."""

    def __init__(self, most: int | None) -> None:
        self.made, self.most = 0, most


_places: ContextVar[_Places | None] = ContextVar("places", default=None)


@contextmanager
def without_memory(most: int | None = None) -> Iterator[None]:
    """Build modules of any size from zero-stride arrays: to count parameters, or to `allocate`.

    most: about how many there are values for.  ValueError as soon as there are more: each takes a
        moment and some memory even so, and a wrong config may ask for millions of layers.
    """
    token = _places.set(_Places(most))
    try:
        yield
    finally:
        _places.reset(token)


def new_parameter(shape: tuple[int, ...], init: Init) -> Parameter:
    """A parameter with initial values, or without memory inside `without_memory`."""
    if (places := _places.get()) is None:
        return Parameter(init(shape))
    places.made += 1
    if places.most is not None and places.made > places.most:
        raise ValueError(
            f"more than {places.most} parameter arrays are asked for, far more than have values"
        )
    return Parameter(np.broadcast_to(np.float32(0), shape))


def zeros(shape: tuple[int, ...]) -> np.ndarray:
    return np.zeros(shape, np.float32)


def ones(shape: tuple[int, ...]) -> np.ndarray:
    return np.ones(shape, np.float32)


def normal(std: float) -> Init:
    """N(0, std**2)."""

    def init(shape: tuple[int, ...]) -> np.ndarray:
        return generator().standard_normal(shape, np.float32) * np.float32(std)

    return init


def xavier_uniform(shape: tuple[int, ...]) -> np.ndarray:
    """Uniform within sqrt(6 / (in + out)) (Glorot and Bengio 2010), for a weight (out, in)."""
    bound = math.sqrt(6 / (shape[0] + shape[1]))
    return (generator().random(shape, np.float32) * 2 - 1) * np.float32(bound)


def stacked(*inits: Init) -> Init:
    """One of `inits` for each of as many equal matrices, stored one under the other as one."""

    def whole(shape: tuple[int, ...]) -> np.ndarray:
        part = (shape[0] // len(inits), *shape[1:])
        return np.concatenate([init(part) for init in inits])

    return whole
