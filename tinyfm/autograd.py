"""The autograd: Tensor, @op, backward, no_grad.  Read this file first.

**Reverse mode in one paragraph.**  A computation is a graph: each op takes arrays and makes a new
one.  Suppose we know g = dL/dy for the output y of an op.  The chain rule gives the gradient of
each input x as the *vector-Jacobian product* (vjp) of g with the op's derivative, dL/dx = g dy/dx.
Starting from dL/dL = 1 and walking the graph from the end to the start, every op's vjps are called
once, and the gradients of all inputs appear at about the price of one more forward pass.

**How an op is written.**  One pure function on raw arrays which returns its result and its vjps,
so that a derivative stands beside its forward:

    @op
    def mul(a, b):
        return a * b, (lambda g: g * b, lambda g: g * a)

Everything that is the same for all ops is done here, once: Tensors are unwrapped, dtypes settled,
nodes recorded, broadcast gradients summed, shapes and dtypes checked, gradients accumulated.
No op is imported here; `tinyfm.ops` attaches operators and methods to Tensor.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from tinyfm.arrays import ArrayHolder, bind, default_array, name_op, same_kind, settle
from tinyfm.backend import Array, array_module, is_array

# One clock numbers the nodes and dates the writes into leaves.  A node's inputs were made before
# it, so descending ids are a topological order; and a write that is younger than a node came after
# the node saved what its backward needs.
_clock = itertools.count(1)
_last_write = 0  # the date of the youngest write anywhere

_recording: ContextVar[bool] = ContextVar("recording", default=True)


@contextmanager
def no_grad() -> Iterator[None]:
    """`with no_grad():` or `@no_grad()`: ops record nothing, results require no gradient."""
    token = _recording.set(False)
    try:
        yield
    finally:
        _recording.reset(token)


# -- Tensor ---------------------------------------------------------------------------------------


class Tensor(ArrayHolder):
    """An array that remembers how it was made.

    A *leaf* is made by the user (`tinyfm.tensor`, a layer's Parameter); its gradient is collected
    in `.grad`, a plain array of its own that is shared with nothing.  The result of an op is an
    interior tensor: it holds the Node that made it, and its gradient is handed on and dropped.
    """

    __slots__ = ("__weakref__", "_node", "_written", "grad", "requires_grad")

    def __init__(self, data: Any, requires_grad: bool = False) -> None:
        """Wrap an array without copying it; Python numbers and lists become float32 arrays."""
        self._data = default_array(raw(data))
        self._node: Node | None = None
        self._written = [0]  # when the storage was last written; views and detach() share the list
        self.grad: Array | None = None
        self.requires_grad = requires_grad
        if requires_grad and self.dtype.kind != "f":
            raise TypeError(f"requires_grad on {self.dtype}: only floating-point tensors have it")

    @property
    def data(self) -> Array:
        """A read-only view of the array; `t.data = x` writes x (same shape and dtype) into it."""
        return self.view()

    @data.setter
    def data(self, value: Any) -> None:
        if self._node is not None:
            raise RuntimeError("data of the result of an op cannot be set: write into a leaf")
        value = same_kind(raw(value), self._data)
        with self.writing() as array:
            array[...] = value

    @contextmanager
    def writing(self) -> Iterator[Array]:
        """The array itself, to be written in place (optimizers, loaders); the write is dated.

        A backward whose graph is older than the write raises, since it would use the new values.
        """
        global _last_write
        try:
            yield self._data
        finally:
            self._written[0] = _last_write = next(_clock)

    def detach(self) -> Tensor:
        """The same values (and the same memory) without history."""
        return _wrap(self._data, (self,), self.dtype)

    def retain_grad(self) -> None:
        """Keep the gradient of this interior tensor in `.grad`, for study."""
        if self._node is not None:
            self._node.retained = weakref.ref(self)  # weak: the node must not keep its result alive

    def backward(self, gradient: Any = None, retain_graph: bool = False) -> None:
        """Add d self / d leaf, times `gradient`, to the `.grad` of every leaf that self depends on.

        gradient: array of self's shape; may be left out when self has one element (it is 1 then).
        The graph is freed while it is walked; `retain_graph=True` keeps it for a second backward.
        """
        if not self.requires_grad:
            raise RuntimeError("backward() of a tensor that depends on no leaf with requires_grad")
        xp = array_module(self._data)
        if gradient is None:
            if self.size != 1:
                raise ValueError(f"backward() of {self.shape}: give a gradient, or sum() it first")
            gradient = xp.ones(self.shape, self.dtype)
        gradient = xp.asarray(raw(gradient), self.dtype)
        if gradient.shape != self.shape:
            raise ValueError(f"backward() of {self.shape}: the gradient is {gradient.shape}")
        if self._node is None:
            _accumulate(self, gradient, own=False)
        else:
            _backward(self._node, gradient, retain_graph)


def tensor(data: Any, requires_grad: bool = False, dtype: Any = None) -> Tensor:
    """A leaf with a copy of `data`: arrays keep their dtype, numbers and lists become float32.

    >>> x = tensor([1.0, 2.0], requires_grad=True)
    >>> x.dtype
    dtype('float32')
    """
    data = default_array(raw(data))
    return Tensor(data.astype(dtype or data.dtype, order="C"), requires_grad)


def raw(x: Any) -> Any:
    """The array in a Tensor; anything else as it is."""
    return x._data if isinstance(x, Tensor) else x


# -- the graph ------------------------------------------------------------------------------------


class Node:
    """One call of an op in the graph: its vjps, and where their gradients go.

    Nodes point backward only, to the nodes and leaves that they used; nobody points forward.  So
    there is no reference cycle, and an unused graph is freed by reference counting alone.
    """

    __slots__ = ("dtype", "id", "name", "parents", "retained", "shape", "vjps", "written")

    def __init__(self, name: str, vjps: Any, parents: Any, written: Any, out: Any = None) -> None:
        self.id, self.name = next(_clock), name
        self.vjps = vjps  # a tuple with a function or None per argument, or one joint function
        self.parents = parents  # per argument the Node or leaf that wants its gradient, or None
        self.written = written  # the write dates of the storages that the vjps may look at
        self.retained: Any = None
        if out is not None:  # its result; a node with several results has slots instead
            self.shape, self.dtype = out._data.shape, out._data.dtype
            out._node, out.requires_grad = self, True


class _Slot(NamedTuple):
    """In place of vjps, for one result of several (split): its place in the gradient's tuple."""

    place: int
    places: int


_FREED = "an earlier backward() freed this graph: use retain_graph=True there, or compute it again"
_CHANGED = "a tensor that it used was written since (optimizer, loader, `.data = `): backward first"


def _backward(root: Node, gradient: Array, retain_graph: bool) -> None:
    """Walk the graph from `root` in descending order of ids.

    Why an order at all: a node may hand on its gradient only when it is complete, that is after all
    its consumers have delivered.  In b = a + a; c = b + b, following each use as it is found would
    call b's vjp once for each path: twice here, 2**60 times after 60 such doublings, and with
    partial gradients at that.  A consumer is always made after what it consumes, so walking by
    falling id meets it first.  Nothing recurses: 20,000 ops in a chain are no problem.
    """
    order = [root]
    seen = {root}
    for node in order:  # grows while it is walked
        if node.vjps is None:
            raise RuntimeError(f"{node.name!r}: {_FREED}")
        if node.id < _last_write and any(written[0] > node.id for written in node.written):
            raise RuntimeError(f"{node.name!r}: {_CHANGED}")
        for parent in node.parents:
            if type(parent) is Node and parent not in seen:
                seen.add(parent)
                order.append(parent)
    order.sort(key=operator.attrgetter("id"))
    del seen, node

    grads: dict[Node, Any] = {root: gradient}
    owned: set[Any] = set()  # nodes whose gradient was summed here, ids of arrays leaves have got
    while order:
        node = order.pop()
        g = grads.pop(node)
        if node.retained is not None and (kept := node.retained()) is not None:
            _accumulate(kept, g, own=False)
        if type(node.vjps) is _Slot:
            slot, parent = node.vjps, node.parents[0]
            parts = grads.get(parent, (None,) * slot.places)
            grads[parent] = (*parts[: slot.place], g, *parts[slot.place + 1 :])
        else:
            _deliver(node, g, grads, owned, retain_graph)
        if not retain_graph:
            node.vjps, node.parents, node.written = None, (), ()


def _deliver(node: Node, g: Any, grads: dict[Node, Any], owned: set[Any], keep: bool) -> None:
    """Call the vjps of a node with its gradient g, and add their results to its parents' gradients.

    Two gradients of an interior tensor are summed *out of place* the first time: the arrays belong
    to whoever made them, and add, for one, hands the very same g to both of its inputs.  A `+=`
    here would change the other input's gradient too, silently.  The sum is ours; what comes later
    may be added in place.
    """
    vjps, parents = node.vjps, node.parents
    joint = callable(vjps)
    gradients = vjps(g) if joint else vjps
    if type(gradients) is not tuple or len(gradients) != len(parents):
        raise TypeError(f"op {node.name!r}: a tuple with one vjp or gradient per argument is due")
    for i, parent in enumerate(parents):
        if parent is None or gradients[i] is None:
            continue
        grad = gradients[i] if joint else vjps[i](g)
        grad = grad if is_array(grad) else np.asarray(grad)  # NumPy makes scalars of 0-d results
        leaf = type(parent) is not Node
        target = parent._data if leaf else parent
        if grad.shape != target.shape:
            grad = _sum_to_shape(grad, target.shape)
        if grad.shape != target.shape or grad.dtype != target.dtype:
            found, wanted = (f"{x.shape} {x.dtype}" for x in (grad, target))
            raise TypeError(f"op {node.name!r}: gradient {i} is {found}, its argument {wanted}")
        if leaf:
            new = parent.grad is None and not keep and id(grad) not in owned
            _accumulate(parent, grad, own=new and _is_new(grad, g, gradients if joint else ()))
            owned.add(id(grad))
        elif parent not in grads:
            grads[parent] = grad
        elif parent in owned:
            grads[parent] += grad
        else:
            grads[parent] = default_array(grads[parent] + grad)
            owned.add(parent)


def _is_new(grad: Array, g: Any, gradients: Sequence[Any]) -> bool:
    """Whether grad was made by this very call of a vjp and by nothing else is referred to."""
    others = (*g, *gradients) if type(g) is tuple else (g, *gradients)
    uses = sum(1 for x in others if x is grad or (x is not None and x.base is grad))
    return grad.base is None and uses <= 1 and grad is not g


def _sum_to_shape(g: Array, shape: tuple[int, ...]) -> Array:
    """Sum g over the axes along which an input of `shape` was broadcast.

    Broadcasting copies an entry to many places; by the chain rule its gradient is the sum over all
    of them.  So a bias (D,) added to (B, T, D) gets the sum over B and T.
    """
    extra = g.ndim - len(shape)
    sizes = zip((1,) * extra + shape, g.shape, strict=False)
    axes = tuple(i for i, (n, m) in enumerate(sizes) if i < extra or n == 1 != m)
    return g.sum(axes, g.dtype, keepdims=True)[(0,) * extra + (...,)] if axes else g


def _accumulate(leaf: Tensor, grad: Array, own: bool) -> None:
    """Add to leaf.grad, which is contiguous, writable and shared with nobody from the start.

    own: grad is a new array that nobody else will look at, so it may become .grad itself.
    """
    if leaf.grad is not None:
        leaf.grad += grad
    else:
        leaf.grad = grad if own and grad.flags.c_contiguous else grad.copy(order="C")


# -- ops ------------------------------------------------------------------------------------------

registry: list[Callable[..., Any]] = []  # every op in the order of definition; the tests go by it


def op(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a differentiable op of `f(*arguments, *, options, needs=None) -> (result, vjps)`.

    Parameters before the `*` are the op's arguments: Tensor, array, number, list, Mask or None, by
    position or name.  Keyword-only parameters are options, and a Tensor there is a TypeError.
    An op of any number of arguments (`*arrays`) also takes them as one list.

    vjps: a tuple with one function g -> gradient, or None (ids, labels, conditions), per argument;
    or, where the gradients share work, one joint function g -> tuple.  A result may be a tuple of
    arrays; its g is a tuple then, with None for the parts that were not used.
    needs: one boolean per argument for ops that name it, all False when nothing is recorded: what
    no gradient needs is then neither saved nor computed.

    A function writes neither into its inputs nor into what it keeps for its vjps, and a vjp returns
    g, a view of it or a new array.  `f.__wrapped__` is the raw function.
    """
    kinds = inspect.signature(function).parameters.values()
    arguments = [p for p in kinds if p.kind is p.POSITIONAL_OR_KEYWORD]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in kinds)
    wants_needs = any(p.name == "needs" for p in kinds)
    numeric: set[int] = set()  # the positions seen to have a vjp: integers there are numbers
    name, count = function.__name__, len(arguments)

    @functools.wraps(function)
    def apply(*args: Any, **options: Any) -> Any:
        if len(args) != count:
            args = bind(name, arguments, variadic, args, options)
        for key, value in options.items():
            if isinstance(value, ArrayHolder):
                raise TypeError(f"op {name!r}: {key!r} is an option, not an argument: no Tensor")
        arrays, parents, written, wanted, dtype, unsettled = _unwrap(name, args, numeric)
        record = wanted and _recording.get()
        if wants_needs:
            options["needs"] = tuple([record and p is not None for p in parents])
        try:
            result, vjps = apply.__wrapped__(*arrays, **options)
        except (IndexError, TypeError, ValueError) as error:
            name_op(error, name, arrays)
            raise
        for i in unsettled:
            # Integers with a vjp are numbers.  A joint vjp does not tell: the result's dtype does.
            joint = callable(vjps)
            if getattr(result, "dtype", dtype) != dtype if joint else vjps[i]:
                numeric.update(() if joint else (i,))
                arrays[i] = arrays[i].astype(dtype)
                result, vjps = apply.__wrapped__(*arrays, **options)

        if type(result) is tuple:
            outs = tuple([_wrap(r, args, dtype) for r in result])
            if record:
                node = Node(name, vjps, parents, [*written, *(out._written for out in outs)])
                for i, out in enumerate(outs):
                    if out.dtype.kind == "f":
                        Node(name, _Slot(i, len(outs)), (node,), (), out)
            return outs
        out = _wrap(result, args, options.get("dtype") if dtype is None else dtype)
        if record and out._data.dtype.kind == "f":
            written.append(out._written)
            Node(name, vjps, parents, written, out)
        return out

    registry.append(apply)
    return apply


def _unwrap(name: str, args: tuple, numeric: set[int]) -> tuple:
    """(arrays, parents, write dates of the storages, is any gradient wanted, dtype, unsettled).

    The dtype law: scalars, integers and plain float arrays take the dtype of the floating Tensor
    that they meet.  (NumPy alone would turn float32 into float64 at the first np.float64 scalar.)
    Whether an integer is a number or an id only its vjp tells: those are returned as `unsettled`.
    """
    arrays, parents, written = [], [], []
    dtype = kind = None
    plain = wanted = False
    for a in args:
        if isinstance(a, Tensor):
            written.append(a._written)
            wanted = wanted or a.requires_grad
            parents.append((a._node or a) if a.requires_grad else None)
            a = a._data
            if a.dtype is not dtype:
                if a.dtype.kind != "f":
                    plain = True
                elif dtype is None:
                    dtype = a.dtype
                elif a.dtype != dtype:
                    raise TypeError(f"op {name!r}: {dtype} and {a.dtype}; use astype() on one")
            if type(a) is not kind:  # the first one, or two devices
                plain, kind = plain or kind is not None, kind or type(a)
        else:
            parents.append(None)
            plain = plain or a is not None
        arrays.append(a)
    dtype, unsettled = settle(name, arrays, dtype, kind, numeric) if plain else (dtype, ())
    return arrays, parents, written, wanted, dtype, unsettled


def _wrap(result: Any, args: Sequence[Any], dtype: Any) -> Tensor:
    """A Tensor of an op's result; one that shares an input's memory shares its write date too."""
    result = result if is_array(result) else np.asarray(result)  # 0-d: NumPy makes scalars
    if dtype is None and result.dtype == np.float64:
        result = result.astype(np.float32)  # made of integers alone: exp, mean, division
    out = Tensor.__new__(Tensor)  # __init__ checks what is certain here
    out._data = result
    out._node = out.grad = None
    out.requires_grad = False
    base = result.base
    for a in args:
        if isinstance(a, Tensor) and (
            a._data is result or (base is not None and (base is a._data or base is a._data.base))
        ):
            out._written = a._written
            return out
    out._written = [0]
    return out
