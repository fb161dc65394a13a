"""Optimizers, gradient clipping, and learning-rate schedules.

Optimizers work per tensor, in place and in blocks that stay in the cache: the steps on one block
use a few small temporaries instead of arrays of the parameter's size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tinyfm.autograd import Tensor
from tinyfm.backend import Array, array_module, by_blocks, device_of, is_array, to_device

ENTRY_BYTES = 32  # of parameter, gradient, two moments and temporaries: what a block is made up of


class Optimizer:
    """What all optimizers share: the parameters, `step`, `zero_grad`, and their state.

    A parameter without a gradient, frozen or not reached, is left alone: no update, no decay.
    """

    def __init__(self, params: Iterable[Tensor], lr: float) -> None:
        self.params = _leaves(params)
        if not self.params:
            raise ValueError("an optimizer needs at least one parameter")
        if len({id(p) for p in self.params}) != len(self.params):
            raise ValueError("a parameter is given twice; Module.parameters() lists each once")
        if not lr >= 0:
            raise ValueError(f"lr is {lr}: a learning rate is a number of at least 0")
        self.lr = lr
        self.state: list[dict[str, Any]] = [{} for _ in self.params]

    def step(self, factor: float = 1.0) -> None:
        """One update with the learning rate lr * factor (what a schedule returns)."""
        rate = float(self.lr * factor)  # a NumPy float64 would have float32 updates in float64
        for p, state in zip(self.params, self.state, strict=True):
            if p.grad is None or not p.requires_grad:
                continue
            with p.writing() as array:
                if not state:
                    state.update(self.initial_state(array))
                self.update(array, p.grad, state, rate, p)

    def initial_state(self, array: Array) -> dict[str, Any]:
        """What the first update of a parameter finds in its state: counts and arrays by name."""
        return {}

    def update(
        self, array: Array, grad: Array, state: dict[str, Any], rate: float, parameter: Tensor
    ) -> None:
        """Write the update of one parameter's array in place."""
        raise NotImplementedError

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for p in self.params:
            p.grad = None

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` goes on from; options such as lr are not in it.

        kind   the name of the class
        state  for each parameter, in order, its counts (int) and moments (NumPy arrays, on the CPU
               read-only views); nothing where there was no update yet
        """
        state = [
            {name: Tensor(x).numpy() if is_array(x) else x for name, x in entry.items()}
            for entry in self.state
        ]
        return {"kind": type(self).__name__, "state": state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over (copies of) what a state_dict holds.

        ValueError, and nothing is changed, when it is of another kind of optimizer or of parameters
        of another number, shape or dtype.
        """
        kind, entries = type(self).__name__, state["state"]
        if state["kind"] != kind:
            raise ValueError(f"the optimizer's state is of {state['kind']}, and this is {kind}")
        if len(entries) != len(self.params):
            raise ValueError(
                f"the optimizer's state is of {len(entries)} parameters, not of {len(self.params)}"
            )
        self.state = [
            self._taken_over(entry, p._data, f"parameter {i} of {len(entries)}") if entry else {}
            for i, (entry, p) in enumerate(zip(entries, self.params, strict=True))
        ]

    def _taken_over(self, entry: dict[str, Any], array: Array, whose: str) -> dict[str, Any]:
        """initial_state(array) with the values of entry."""
        state = self.initial_state(array)
        if entry.keys() != state.keys():
            raise ValueError(f"{whose}: its state is {sorted(entry)} instead of {sorted(state)}")
        for name, value in entry.items():
            if not is_array(state[name]):
                state[name] = int(value)
            elif value.shape != array.shape or value.dtype != array.dtype:
                found, wanted = (f"{x.shape} {x.dtype}" for x in (value, array))
                raise ValueError(f"{whose}: {name} is {found} instead of {wanted}")
            else:
                state[name][...] = to_device(value, device_of(array))
        return state


def _leaves(params: Iterable[Tensor]) -> list[Tensor]:
    if isinstance(params, Tensor):
        raise TypeError("params is one Tensor: give a list of them, or module.parameters()")
    params = list(params)
    for p in params:
        if not isinstance(p, Tensor) or p._node is not None:
            kind = "the result of an op" if isinstance(p, Tensor) else type(p).__name__
            raise TypeError(f"params holds {kind}: only leaf Tensors, as in module.parameters()")
    return params


class SGD(Optimizer):
    """p -= rate g."""

    def update(
        self, array: Array, grad: Array, state: dict[str, Any], rate: float, parameter: Tensor
    ) -> None:
        subtract = array_module(array).subtract
        _in_blocks(lambda p, g: subtract(p, g * rate, out=p), array, grad)


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015).  With t the number of this parameter's updates, from 1:

    m = b1 m + (1 - b1) g,   v = b2 v + (1 - b2) g**2,
    p -= rate (m / (1 - b1**t)) / (sqrt(v / (1 - b2**t)) + eps)
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__(params, lr)
        if not all(0 <= b < 1 for b in betas):
            raise ValueError(f"betas are {betas}: each must be at least 0 and below 1")
        if not eps >= 0:
            raise ValueError(f"eps is {eps}: it must not be negative")
        self.betas, self.eps = betas, eps
        self.bias_correction = True

    def initial_state(self, array: Array) -> dict[str, Any]:
        zeros_like = array_module(array).zeros_like
        return {"t": 0, "m": zeros_like(array), "v": zeros_like(array)}

    def update(
        self, array: Array, grad: Array, state: dict[str, Any], rate: float, parameter: Tensor
    ) -> None:
        xp = array_module(array)
        state["t"] += 1
        b1, b2 = self.betas
        c1 = 1 - b1 ** state["t"] if self.bias_correction else 1.0
        c2 = 1 - b2 ** state["t"] if self.bias_correction else 1.0
        # sqrt(v / c2) + eps = (sqrt(v) + eps sqrt(c2)) / sqrt(c2): numbers meet numbers first.
        eps, rate = self.eps * math.sqrt(c2), rate * math.sqrt(c2) / c1

        def steps(p: Array, g: Array, m: Array, v: Array) -> None:
            u = g * (1 - b1)
            m *= b1
            m += u
            xp.multiply(g, g, out=u)
            u *= 1 - b2
            v *= b2
            v += u
            xp.sqrt(v, out=u)
            u += eps
            xp.divide(m, u, out=u)
            u *= rate
            p -= u

        _in_blocks(steps, array, grad, state["m"], state["v"])


class AdamW(Adam):
    """Adam with decoupled decay (Loshchilov and Hutter 2019): first p *= 1 - rate * weight_decay.

    decay: a function of a parameter, True where it decays; None: all do.  Usual is
        `lambda p: p.ndim > 1`, which spares biases and norms.
    bias_correction: False is the variant of the original BERT.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        decay: Callable[[Tensor], bool] | None = None,
        bias_correction: bool = True,
    ) -> None:
        super().__init__(params, lr, betas, eps)
        if not weight_decay >= 0:
            raise ValueError(f"weight_decay is {weight_decay}: it must not be negative")
        self.weight_decay, self.decay = weight_decay, decay
        self.bias_correction = bias_correction

    def update(
        self, array: Array, grad: Array, state: dict[str, Any], rate: float, parameter: Tensor
    ) -> None:
        if self.weight_decay and (self.decay is None or self.decay(parameter)):
            row = getattr(parameter, "padding_idx", None)  # a padding row does not decay
            kept = None if row is None else array[row].copy()
            array *= 1 - rate * self.weight_decay
            if kept is not None:
                array[row] = kept
        super().update(array, grad, state, rate, parameter)


def _in_blocks(steps: Callable[..., None], *arrays: Array) -> None:
    """steps(*blocks) over blocks of entries of arrays of one shape; whole on a GPU."""
    if array_module(arrays[0]) is not np or not all(a.flags.c_contiguous for a in arrays):
        steps(*arrays)
        return
    flat = [a.reshape(-1) for a in arrays]
    by_blocks(lambda i, j: steps(*(a[i:j] for a in flat)), flat[0].size, ENTRY_BYTES)


def clip_grad_norm(params: Iterable[Tensor], max_norm: float) -> float:
    """Scale all gradients so that their common Euclidean norm is at most max_norm.

    Returns the norm before.  Gradients below the limit are untouched; a limit of 0 makes them 0;
    parameters without a gradient count nothing.  (Pascanu et al. 2013.)
    """
    if not max_norm >= 0:
        raise ValueError(f"max_norm is {max_norm}: a norm is not negative")
    unique = {id(p): p for p in _leaves(params)}.values()
    grads = [p.grad for p in unique if p.grad is not None]
    with np.errstate(over="ignore"):
        total = math.sqrt(sum(_square_sum(g) for g in grads))
    if total > max_norm:
        for g in grads:
            g *= max_norm / total
    return total


def _square_sum(g: Array) -> float:
    flat = g.reshape(-1)
    total = (flat @ flat).item()
    if not math.isfinite(total):  # perhaps only too large for float32
        flat = flat.astype(np.float64)
        total = (flat @ flat).item()
    return total


# -- schedules: step (from 1) -> factor of the learning rate --------------------------------------

Schedule = Callable[[int], float]


def noam(d_model: int, warmup: int) -> Schedule:
    """d_model**-0.5 min(step**-0.5, step warmup**-1.5) (Vaswani et al. 2017, section 5.3).

    This is the paper's rate itself, with its peak at step `warmup`: use it with lr = 1.
    """
    warmup = max(warmup, 1)
    return lambda step: d_model**-0.5 * min(max(step, 1) ** -0.5, max(step, 1) * warmup**-1.5)


def linear(warmup: int, total: int) -> Schedule:
    """Up to 1 at step `warmup`, then down to 0 at step `total`, both in straight lines."""
    return lambda step: _ramp(step, warmup, total, lambda left: left)


def cosine(warmup: int, total: int) -> Schedule:
    """Up to 1 at step `warmup` in a straight line, then to 0 at `total` along a half cosine."""
    return lambda step: _ramp(step, warmup, total, lambda x: 0.5 - 0.5 * math.cos(math.pi * x))


def constant() -> Schedule:
    """1 at every step."""
    return lambda step: 1.0


def _ramp(step: int, warmup: int, total: int, shape: Callable[[float], float]) -> float:
    """step / warmup up to warmup; then shape(x), where x falls from 1 to 0 at total."""
    if step <= warmup:
        return step / max(warmup, 1)
    return shape(max(0.0, (total - step) / max(total - warmup, 1)))
