"""What the tests know of each op: calls to try, its definition in NumPy, what gets a gradient.

**You add an op?**  Add one entry to CASES, at the end of this file, with

    calls           a strategy of calls to it: arguments and options
    reference       its definition in plain NumPy, written without a look at the op
    differentiable  the names of the arguments that get a gradient
    float32         what a float32 tensor may meet in a call: "numbers" (where a Python or NumPy
                    scalar makes sense in place of an array), "arrays", or "alone"

and test_ops.py checks its values, gradients, dtypes, memory and manners.  A test fails until the
entry is there.  If the op is fused, its composed twin goes into reference.py, and that into TWINS
of test_fused.py; a mistake that this op invites goes into MUTANTS of test_mutants.py.

Strategies draw shapes, axes and keys; numbers come from a drawn seed, spread out so that no finite
difference crosses a kink or a tie of relu, max or maximum.  Every array is read-only and lies in
memory in one of several ways.
"""

from __future__ import annotations

import inspect
import itertools
import math
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

import hypothesis.extra.numpy as hnp
import numpy as np
from hypothesis import strategies as st

from tinyfm import Tensor, masks, ops
from tinyfm.autograd import registry
from tinyfm.backend import is_array, keep_mask

SHIPPED = [function for function in registry if function.__module__.startswith("tinyfm.")]
# Taken once and for all: while a test replaces f.__wrapped__, inspect would look at that.
SIGNATURES = {function: inspect.signature(function).parameters for function in SHIPPED}


class Call(NamedTuple):
    args: tuple[Any, ...]
    options: dict[str, Any]


class Case(NamedTuple):
    calls: st.SearchStrategy[Call]
    reference: Callable[..., Any]
    differentiable: str
    float32: str


# -- what one does with a call --------------------------------------------------------------------


def is_float(x):
    return is_array(x) and x.dtype.kind == "f"


def argument_names(function, count):
    """The name of each argument of a call: an op of any number of arrays has one name for all."""
    parameters = SIGNATURES[function].values()
    variadic = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
    return variadic * count or [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


def differentiable(function, call):
    """The positions of the arguments in a call that get a gradient: not those that are None."""
    names = argument_names(function, len(call.args))
    wanted = CASES[function].differentiable.split()
    return [i for i, x in enumerate(call.args) if x is not None and names[i] in wanted]


def leaves(function, call):
    """The arguments of the call, with a leaf Tensor for each one that gets a gradient."""
    args = list(call.args)
    for i in differentiable(function, call):
        args[i] = Tensor(args[i], requires_grad=True)
    return args


def parts(result):
    """The results of an op as a list."""
    return list(result) if isinstance(result, tuple | list) else [result]


def like(arrays, seed=0):
    """Random arrays of the same shapes and dtypes: gradients to start a backward from."""
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.standard_normal(a.shape), a.dtype) for a in arrays]


def backward(result, gradients):
    """Backward from all results at once."""
    results = parts(result)
    for n, (y, g) in enumerate(zip(results, gradients, strict=True)):
        y.backward(g, retain_graph=n + 1 < len(results))


def values_and_gradients(function, call):
    """(arrays of the results, gradients of the differentiable arguments) of one call."""
    args = leaves(function, call)
    result = function(*args, **call.options)
    backward(result, like(parts(result)))
    return [y.data for y in parts(result)], [a.grad for a in args if isinstance(a, Tensor)]


def change_floats(call, change):
    """The call with change(x) in place of each float array x."""

    def changed(x):
        if not is_float(x):
            return x
        x = np.asarray(change(x))
        x.flags.writeable = False
        return x

    return Call(tuple(map(changed, call.args)), call.options)


def cast(call, dtype):
    """The same call in another precision."""
    options = {k: dtype if v is np.float64 else v for k, v in call.options.items()}
    return Call(change_floats(call, lambda x: x.astype(dtype)).args, options)


def memory(call):
    """(bytes that the result of a call holds, the most bytes that the call held)."""
    call()  # fills caches
    tracemalloc.start()
    try:
        result = call()
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    del result
    return held, peak


# -- numbers, shapes, axes ------------------------------------------------------------------------

LAYOUTS = {
    "contiguous": lambda x: x.copy(),
    "transposed": lambda x: x.T.copy().T,
    "strided": lambda x: np.repeat(x[..., None], 2, -1)[..., 0],
    "reversed": lambda x: x[::-1].copy()[::-1] if x.ndim else x.copy(),
}


def laid_out(x, layout):
    """x as a read-only array that lies in memory in the given way."""
    x = LAYOUTS[layout](x)
    x.flags.writeable = False
    return x


def arrays(draw, *shapes, positive=False):
    """A float64 array of each shape; 0.2 < |x| < 2 and no two |x| near each other, in all of them.

    So gradcheck's steps of about 1e-5 change neither a sign nor the order of any two numbers.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = [math.prod(shape) for shape in shapes]
    cell = (2 - 0.2) / max(1, sum(sizes))
    x = 0.2 + cell * (rng.permutation(sum(sizes)) + rng.uniform(0.2, 0.8, sum(sizes)))
    if not positive:
        x *= rng.choice([-1.0, 1.0], len(x))
    flat = np.split(x, np.cumsum(sizes)[:-1])
    layout = st.sampled_from(sorted(LAYOUTS))
    return [laid_out(a.reshape(s), draw(layout)) for a, s in zip(flat, shapes, strict=True)]


def integers(draw, shape, low, high):
    """An integer array with entries from low to high - 1, in one of several integer types."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds = [np.int64, np.int32, np.int16] + [np.uint8] * (low >= 0)
    x = np.asarray(rng.integers(low, high, shape), draw(st.sampled_from(kinds)))
    return laid_out(x, draw(st.sampled_from(sorted(LAYOUTS))))


WIDTHS = st.integers(1, 4)
CLASSES = st.sampled_from([2, 3, 4, 1])
SEEDS = st.integers(0, 2**63 - 1)
BATCHES = st.sampled_from([1, 2, 0])
SIDES = st.sampled_from([1, 2, 3, 2, 3])  # mostly such that an axis shows


@st.composite
def shapes(draw, least_dims=0, last=None):
    """0 to 3 dimensions of 1 to 3 entries, now and then of 0; the last one of `last` if given."""
    shape = draw(st.lists(SIDES, min_size=least_dims, max_size=3))
    if shape and draw(st.integers(0, 7)) == 7:
        shape[draw(st.integers(0, len(shape) - 1))] = 0
    return tuple(shape) if last is None else (*shape[:2], last)


@st.composite
def partly(draw, shape):
    """A shape that broadcasts to this one: with 1 in some places and without some at the front."""
    shape = tuple(1 if draw(st.booleans()) else n for n in shape)
    return shape[draw(st.integers(0, len(shape))) :]


def any_axis(draw, ndim):
    return draw(st.integers(-ndim, ndim - 1))


@st.composite
def unary(draw, positive=False):
    return Call(tuple(arrays(draw, draw(shapes()), positive=positive)), {})


def broadcasting(draw, count):
    """Shapes that broadcast: alike, with axes missing in front, of size 1 in the middle, 0-d."""
    shape = draw(shapes())
    return [draw(st.just(shape) | partly(shape)) for _ in range(count)]


@st.composite
def pairs(draw, positive=False):
    return Call(tuple(arrays(draw, *broadcasting(draw, 2), positive=positive)), {})


@st.composite
def powers(draw):
    """Positive bases; exponents of either sign, whole and 0."""
    a, b = draw(pairs(positive=True)).args
    b = draw(st.sampled_from([b, -b, np.sign(b), 0 * b]))
    return Call((a, laid_out(np.asarray(b), "contiguous")), {})


@st.composite
def choices(draw):
    """A condition and two arrays that broadcast with it."""
    three = broadcasting(draw, 3)
    condition = integers(draw, three[0], 0, 2)
    condition = condition.astype(draw(st.sampled_from([bool, np.int64])))
    return Call((condition, *arrays(draw, *three[1:])), {})


@st.composite
def reductions(draw, empty=False, ddof=False):
    """An array and any axes of it; `empty` ones too where the result is defined for them."""
    shape = draw(shapes())
    usable = [i for i, n in enumerate(shape) if n or empty]
    axes = draw(st.lists(st.sampled_from(usable), unique=True)) if usable else []
    axes = [a - len(shape) if draw(st.booleans()) else a for a in axes]
    forms = [tuple(axes)]
    forms += [axes[0]] * 2 if axes else []
    forms += [None] if len(usable) == len(shape) else []
    axis = draw(st.sampled_from(forms))
    options = {"axis": axis, "keepdims": draw(st.booleans())}
    if ddof:
        counted = range(len(shape)) if axis is None else [axis] if isinstance(axis, int) else axis
        count = math.prod(shape[a] for a in counted) if shape else 1
        options["ddof"] = draw(st.integers(0, min(1, count - 1)))
    return Call(tuple(arrays(draw, shape)), options)


# -- shapes ---------------------------------------------------------------------------------------


@st.composite
def reshapes(draw):
    shape = draw(shapes())
    new = list(draw(st.permutations(shape)))
    if len(new) > 1 and draw(st.booleans()):
        new[:2] = [new[0] * new[1]]
    new.insert(draw(st.integers(0, len(new))), 1)
    if math.prod(new) and draw(st.booleans()):
        new[draw(st.integers(0, len(new) - 1))] = -1
    return Call(tuple(arrays(draw, shape)), {"shape": tuple(new)})


@st.composite
def transposes(draw):
    shape = draw(shapes(least_dims=draw(st.sampled_from([3, 2, 0]))))
    axes = draw(st.none() | st.permutations(range(len(shape))))
    if axes is not None:
        axes = tuple(a - len(shape) if draw(st.booleans()) else a for a in axes)
    return Call(tuple(arrays(draw, shape)), {"axes": axes})


@st.composite
def swaps(draw):
    shape = draw(shapes(least_dims=draw(st.sampled_from([2, 3, 1]))))
    options = {name: any_axis(draw, len(shape)) for name in ("axis1", "axis2")}
    return Call(tuple(arrays(draw, shape)), options)


@st.composite
def joins(draw):
    """One to three arrays that differ in one axis only."""
    shape = list(draw(shapes(least_dims=1)))
    axis = any_axis(draw, len(shape))
    sizes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    joined = [(*shape[:axis], n, *shape[axis:][1:]) for n in sizes]
    return Call(tuple(arrays(draw, *joined)), {"axis": axis})


@st.composite
def stacks(draw):
    shape = draw(shapes())
    alike = [shape] * draw(st.integers(1, 3))
    return Call(tuple(arrays(draw, *alike)), {"axis": any_axis(draw, len(shape) + 1)})


@st.composite
def splits(draw):
    shape = draw(shapes(least_dims=1))
    axis = any_axis(draw, len(shape))
    n = shape[axis]
    equal = st.sampled_from([k for k in (1, 2, 3) if n % k == 0])
    cuts = st.lists(st.integers(0, n), max_size=2).map(sorted)
    return Call(tuple(arrays(draw, shape)), {"axis": axis, "sections": draw(equal | cuts)})


@st.composite
def packed_heads(draw):
    batch, (length, parts, heads, width) = draw(BATCHES), draw(st.tuples(*[WIDTHS] * 4))
    x = arrays(draw, (batch, length, parts * heads * width))
    return Call(tuple(x), {"parts": parts, "heads": heads})


@st.composite
def separate_heads(draw):
    shape = (draw(BATCHES), *draw(st.tuples(*[WIDTHS] * 3)))
    return Call(tuple(arrays(draw, shape)), {})


@st.composite
def indexings(draw):
    """Slices, integers, None and ...; integer arrays with repeats; bool arrays; mixtures."""
    shape = draw(shapes(least_dims=1))

    def integer_key(n):
        """Entries of an axis of n, from either end and many of them twice."""
        size = draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=4))
        return integers(draw, size, -n, n) if n else np.zeros(0, int)

    def bool_key(size):
        return integers(draw, size, 0, 2).astype(bool)

    kind = draw(st.sampled_from(["basic", "integer", "integer", "bool", "list", "mixed", "mixed"]))
    if kind == "basic":
        key = draw(hnp.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    elif kind == "integer":
        key = integer_key(shape[0])
    elif kind == "bool":
        key = bool_key(shape[: draw(st.integers(1, len(shape)))])
    elif kind == "list":
        key = [int(i) for i in integer_key(shape[0]).reshape(-1)]
    else:  # of the last axis, behind whatever picks from those before it
        before = draw(hnp.basic_indices(shape[:-1], allow_ellipsis=False))
        before = before if isinstance(before, tuple) else (before,)
        before += (slice(None),) * (len(shape) - 1 - len(before))
        last = integer_key(shape[-1]) if draw(st.booleans()) else bool_key(shape[-1:])
        key = (*before, last)
    return Call(tuple(arrays(draw, shape)), {"key": key})


@st.composite
def products(draw):
    """Matrices, vectors and broadcast batches of matrices."""
    n, k = draw(SIDES), draw(SIDES | st.just(0))
    m = draw(st.just(k) | SIDES)
    batches = hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=2, max_side=2)
    a, b = draw(batches).input_shapes
    a, b = ((k,) if draw(st.integers(0, 3)) == 3 else s for s in ((*a, n, k), (*b, k, m)))
    return Call(tuple(arrays(draw, a, b)), {})


# -- networks -------------------------------------------------------------------------------------


@st.composite
def gelus(draw):
    approximate = draw(st.sampled_from(["none", "tanh"]))
    return Call(draw(unary()).args, {"approximate": approximate})


@st.composite
def along_axis(draw):
    shape = draw(shapes())
    shape = shape if 0 not in shape or draw(st.booleans()) else (2, 3)
    usable = [a for a in range(-len(shape), len(shape)) if shape[a]]
    if not usable:
        return Call(tuple(arrays(draw, ())), {})
    return Call(tuple(arrays(draw, shape)), {"axis": draw(st.sampled_from(usable))})


@st.composite
def norms(draw, bias):
    width = draw(WIDTHS)
    x, weight, b = arrays(draw, draw(shapes(last=width)), (width,), (width,))
    options = {"eps": draw(st.sampled_from([1e-12, 1e-5, 0.1]))}
    return Call((x, weight, draw(st.sampled_from([b, None]))) if bias else (x, weight), options)


@st.composite
def dropouts(draw):
    options = {"p": draw(st.sampled_from([0, 0.1, 0.25, 0.5, 1])), "seed": draw(SEEDS)}
    return Call(draw(unary()).args, options)


@st.composite
def linears(draw):
    ins, outs = draw(WIDTHS), draw(WIDTHS)
    x, weight, bias = arrays(draw, draw(shapes(last=ins)), (outs, ins), (outs,))
    return Call((x, weight, draw(st.sampled_from([bias, None]))), {})


@st.composite
def look_ups(draw):
    rows, width = draw(WIDTHS), draw(WIDTHS)
    ids = integers(draw, draw(shapes()), 0, rows)
    unused = sorted({*range(rows)} - {*ids.reshape(-1).tolist()})  # see test_R15 for a used one
    padding = draw(st.sampled_from([None, *unused]))
    return Call((*arrays(draw, (rows, width)), ids), {"padding_idx": padding})


@st.composite
def labels(draw, shape, classes):
    """Labels, of which some, all or none are to be ignored, and the options of a loss."""
    ignore = draw(st.sampled_from([-100, -100, 255, 0]))
    ids = integers(draw, shape, 0, classes)
    share = draw(st.sampled_from([0.0, 0.3, 0.3, 0.5, 1.0]))
    dropped = np.random.default_rng(draw(SEEDS)).random(shape) < share
    kind = ids.dtype if ids.dtype != np.uint8 or ignore >= 0 else np.int64
    options = {
        "ignore_index": ignore,
        "label_smoothing": draw(st.sampled_from([0.0, 0.1, 1.0])),
        "reduction": draw(st.sampled_from(["mean", "mean", "sum", "none"])),
    }
    return laid_out(
        np.where(dropped, ignore, ids.astype(np.int64)).astype(kind), "contiguous"
    ), options


@st.composite
def losses(draw):
    shape = draw(shapes(last=draw(CLASSES)))
    targets, options = draw(labels(shape[:-1], shape[-1]))
    return Call((*arrays(draw, shape), targets), options)


@st.composite
def linear_losses(draw):
    shape, classes = draw(shapes(last=draw(WIDTHS))), draw(CLASSES)
    targets, options = draw(labels(shape[:-1], classes))
    hidden, weight, bias = arrays(draw, shape, (classes, shape[-1]), (classes,))
    return Call((hidden, weight, draw(st.sampled_from([bias, None])), targets), options)


@st.composite
def any_mask(draw, batch, heads, queries, keys):
    """None, a bool array, or any one or two kinds of mask at once; some hide whole rows."""
    rng = np.random.default_rng(draw(SEEDS))
    seen = rng.random((batch, heads, queries, keys)) < draw(st.sampled_from([0.3, 0.7]))
    allowed = seen[tuple(slice(draw(st.sampled_from([1, n]))) for n in seen.shape)]
    while allowed.ndim > 2 and len(allowed) == 1 and draw(st.booleans()):
        allowed = allowed[0]
    kinds = [
        masks.causal(),
        masks.causal(),
        masks.full(),
        masks.prefix(rng.integers(0, keys + 1, draw(st.sampled_from([1, batch])))),
        masks.padding(seen[:, 0, 0]),
        masks.allowed(allowed),
    ]
    one = st.sampled_from(kinds)
    both = st.tuples(one, one).map(lambda two: two[0] & two[1])
    return draw(st.sampled_from([None, allowed]) | one | both)


@st.composite
def attentions(draw):
    batch, heads, width, out_width = (draw(st.integers(1, 2)) for _ in range(4))
    queries, keys = draw(WIDTHS), draw(WIDTHS)
    q, k, v, bias, relative = arrays(
        draw,
        (batch, heads, queries, width),
        (batch, heads, keys, width),
        (batch, heads, keys, out_width),
        draw(partly((batch, heads, queries, keys))),
        (heads, queries + keys - 1),
    )
    mask = draw(any_mask(batch, heads, queries, keys))
    bias, relative = (draw(st.sampled_from([x, None])) for x in (bias, relative))
    options = {"scale": draw(st.sampled_from([1.0, 0.5]))}
    if draw(st.sampled_from([False, True, True])):
        p = draw(st.sampled_from([0.25, 0.5, 0.1, 1]))
        options |= {"dropout": p, "dropout_seed": draw(SEEDS)}
    return Call((q, k, v, mask, bias, relative), options)


# -- definitions in NumPy -------------------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def split_heads(x, *, parts, heads):
    """Of each token: the vectors of all heads of part 0, then those of part 1, ..."""
    batch, length, width = x.shape
    width //= parts * heads
    out = np.zeros((parts, batch, heads, length, width))
    for p, h in itertools.product(range(parts), range(heads)):
        first = (p * heads + h) * width
        out[p, :, h] = x[:, :, first : first + width]
    return list(out)


def merge_heads(x):
    return np.concatenate([x[:, h] for h in range(x.shape[1])], -1)


def gelu(x, *, approximate):
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2)))


def log_softmax(x, axis=-1):
    return x - np.log(np.exp(x).sum(axis if x.ndim else None, keepdims=True))


def layer_norm(x, weight, bias, *, eps):
    normed = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
    return normed * weight + (0 if bias is None else bias)


def rms_norm(x, weight, *, eps):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * weight


def dropout(x, *, p, seed):
    width = x.shape[-1] if x.ndim else 1
    kept = keep_mask(seed, p, math.prod(x.shape[:-1]), width, x).reshape(x.shape)
    return np.where(kept, x / (1 - p or 1), 0)


def linear(x, weight, bias=None):
    return np.einsum("...i,oi->...o", x, weight) + (0 if bias is None else bias)


def cross_entropy(logits, labels, *, ignore_index, label_smoothing, reduction):
    losses = np.zeros(labels.shape)
    for index, label in np.ndenumerate(labels):
        if label != ignore_index:
            target = np.full(logits.shape[-1], label_smoothing / logits.shape[-1])
            target[label] += 1 - label_smoothing
            losses[index] = -(target * log_softmax(logits[index])).sum()
    if reduction == "mean":
        return losses.sum() / max(1, (labels != ignore_index).sum())
    return losses if reduction == "none" else losses.sum()


def linear_cross_entropy(hidden, weight, bias, labels, **options):
    return cross_entropy(linear(hidden, weight, bias), labels, **options)


def may_look(mask, b, h, i, j, queries, keys):
    """Whether query i of head h of batch member b sees key j."""

    def pick(array, *index):
        """The entry of an array that is broadcast to the size of the index."""
        index = index[len(index) - array.ndim :]
        return array[
            tuple(n if size > 1 else 0 for n, size in zip(index, array.shape, strict=True))
        ]

    mask = masks.as_mask(mask)
    past = j <= i + keys - queries  # the last query stands on the last key
    seen = past or not mask.causal
    if mask.prefix is not None:
        seen = past or j < pick(mask.prefix, b)
    seen = seen and (mask.keys is None or pick(mask.keys, b, j))
    return seen and (mask.allowed is None or pick(mask.allowed, b, h, i, j))


def attention(q, k, v, mask, bias, relative_bias, *, scale, dropout=0.0, dropout_seed=None):
    """Query by query and key by key."""
    (batch, heads, queries, _), keys = q.shape, k.shape[2]
    kept = np.ones((batch, heads, queries, keys))
    if dropout:
        kept = keep_mask(dropout_seed, dropout, batch * heads * queries, keys, q)
        kept = kept.reshape(batch, heads, queries, keys) / (1 - dropout or 1)
    if bias is not None:
        bias = np.broadcast_to(bias, kept.shape)
    out = np.zeros((batch, heads, queries, v.shape[3]))
    for b, h, i in itertools.product(range(batch), range(heads), range(queries)):
        total = 0.0
        for j in range(keys):
            if may_look(mask, b, h, i, j, queries, keys):
                score = q[b, h, i] @ k[b, h, j] * scale
                score += 0 if bias is None else bias[b, h, i, j]
                distance = j - (i + keys - queries)
                score += 0 if relative_bias is None else relative_bias[h, distance + keys - 1]
                total += math.exp(score)
                out[b, h, i] += math.exp(score) * kept[b, h, i, j] * v[b, h, j]
        out[b, h, i] /= total or 1
    return out


# -- the table ------------------------------------------------------------------------------------

CASES: dict[Callable[..., Any], Case] = {
    ops.add: Case(pairs(), np.add, "a b", "numbers"),
    ops.sub: Case(pairs(), np.subtract, "a b", "numbers"),
    ops.mul: Case(pairs(), np.multiply, "a b", "numbers"),
    ops.div: Case(pairs(), np.divide, "a b", "numbers"),
    ops.neg: Case(unary(), np.negative, "x", "alone"),
    ops.power: Case(powers(), np.power, "a b", "numbers"),
    ops.maximum: Case(pairs(), np.maximum, "a b", "numbers"),
    ops.minimum: Case(pairs(), np.minimum, "a b", "numbers"),
    ops.exp: Case(unary(), np.exp, "x", "alone"),
    ops.log: Case(unary(positive=True), np.log, "x", "alone"),
    ops.sqrt: Case(unary(positive=True), np.sqrt, "x", "alone"),
    ops.tanh: Case(unary(), np.tanh, "x", "alone"),
    ops.where: Case(choices(), np.where, "a b", "numbers"),
    ops.astype: Case(
        unary().map(lambda call: Call(call.args, {"dtype": np.float64})), np.ndarray.astype, "x",
        "alone",
    ),
    ops.sum: Case(reductions(empty=True), np.sum, "x", "alone"),
    ops.mean: Case(reductions(), np.mean, "x", "alone"),
    ops.var: Case(reductions(ddof=True), np.var, "x", "alone"),
    ops.max: Case(reductions(), np.max, "x", "alone"),
    ops.min: Case(reductions(), np.min, "x", "alone"),
    ops.norm: Case(
        reductions(empty=True), lambda x, **axes: np.sqrt(np.sum(x**2, **axes)), "x", "alone"
    ),
    ops.reshape: Case(reshapes(), lambda x, *, shape: np.reshape(x, shape), "x", "alone"),
    ops.transpose: Case(transposes(), np.transpose, "x", "alone"),
    ops.swapaxes: Case(swaps(), np.swapaxes, "x", "alone"),
    ops.concatenate: Case(joins(), lambda *a, axis: np.concatenate(a, axis), "arrays", "arrays"),
    ops.stack: Case(stacks(), lambda *a, axis: np.stack(a, axis), "arrays", "arrays"),
    ops.split: Case(
        splits(), lambda x, *, sections, axis: np.split(x, sections, axis), "x", "alone"
    ),
    ops.split_heads: Case(packed_heads(), split_heads, "x", "alone"),
    ops.merge_heads: Case(separate_heads(), merge_heads, "x", "alone"),
    ops.getitem: Case(indexings(), lambda x, *, key: x[key], "x", "alone"),
    ops.matmul: Case(products(), np.matmul, "a b", "arrays"),
    ops.relu: Case(unary(), lambda x: np.where(x > 0, x, 0), "x", "alone"),
    ops.sigmoid: Case(unary(), sigmoid, "x", "alone"),
    ops.silu: Case(unary(), lambda x: x * sigmoid(x), "x", "alone"),
    ops.gelu: Case(gelus(), gelu, "x", "alone"),
    ops.softmax: Case(
        along_axis(), lambda x, axis=-1: np.exp(log_softmax(x, axis)), "x", "alone"
    ),
    ops.log_softmax: Case(along_axis(), log_softmax, "x", "alone"),
    ops.layer_norm: Case(norms(bias=True), layer_norm, "x weight bias", "arrays"),
    ops.rms_norm: Case(norms(bias=False), rms_norm, "x weight", "arrays"),
    ops.dropout: Case(dropouts(), dropout, "x", "alone"),
    ops.linear: Case(linears(), linear, "x weight bias", "arrays"),
    ops.embedding: Case(
        look_ups(), lambda weight, ids, *, padding_idx: weight[ids], "weight", "arrays"
    ),
    ops.cross_entropy: Case(losses(), cross_entropy, "logits", "arrays"),
    ops.linear_cross_entropy: Case(
        linear_losses(), linear_cross_entropy, "hidden weight bias", "arrays"
    ),
    ops.fused_attention: Case(
        attentions(), attention, "q k v bias relative_bias", "arrays"
    ),
}  # fmt: skip


def missing(functions, cases):
    """What the table lacks, as one line for each op that does not have all it needs."""
    lines = []
    for function in functions:
        case = cases.get(function)
        names = [*inspect.signature(function).parameters]
        if case is None:
            lines.append(f"{function.__name__}: no entry in CASES")
        elif not isinstance(case.calls, st.SearchStrategy):
            lines.append(f"{function.__name__}: calls is no strategy")
        elif not callable(case.reference):
            lines.append(f"{function.__name__}: reference is no function")
        elif not case.differentiable or not set(case.differentiable.split()) <= set(names):
            lines.append(f"{function.__name__}: differentiable names no argument of {names}")
        elif case.float32 not in ("numbers", "arrays", "alone"):
            lines.append(f"{function.__name__}: float32 says {case.float32!r}")
    return lines
