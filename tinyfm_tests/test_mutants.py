"""Test the tester: ops and engine made wrong on purpose, which the tests of the others must notice.

A mutant replaces the raw function of a shipped op (`op.__wrapped__`), or a function of the engine.
Its killer is one of the very tests that pytest runs in test_ops.py and test_fused.py: it must pass
before, and fail with the mutant.  Mutants know the mathematics of an op and not its code, so that a
faster op needs no new ones.  A new op is covered by the five kinds of mutants for every op; for the
mistakes that only it invites, add a line to MUTANTS.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import tinyfm
from tinyfm import autograd, masks, ops
from tinyfm.ops import neural
from tinyfm_tests import test_fused, test_ops
from tinyfm_tests.registry import SHIPPED, parts

# The tests for every op, by names that pytest does not collect a second time.
VALUES = test_ops.test_values
GRADIENTS = test_ops.test_gradients
FLOAT32 = test_ops.test_float32
INDEPENDENT = test_ops.test_calls_are_independent
VJPS = test_ops.test_vjps
RETAINED = test_ops.test_nothing_is_retained_without_recording
# By its name in sys.modules, for in tinyfm.ops the op of that name stands before its file.
blocked_attention = importlib.import_module("tinyfm.ops.fused_attention")
TWIN = test_fused.test_fused_equals_twin

NOTICED = (AssertionError, pytest.fail.Exception)  # GradientError is an AssertionError


# -- running a killer -----------------------------------------------------------------------------


def run(killer, function, examples):
    """Run the test, for this op if it is one of those for every op, but shrink no failing call."""
    if not hasattr(killer, "hypothesis"):
        killer()
        return
    quick = settings(
        max_examples=examples, derandomize=True, database=None, phases=[Phase.generate]
    )
    quick(given(data=st.data())(killer.hypothesis.inner_test))(function)


@functools.cache
def passes_unmutated(killer, function):
    run(killer, function, examples=5)  # test_ops.py and test_fused.py run it with more
    return True


def noticed(monkeypatch, mutant):
    """The mutant's killer passes without it and fails with it."""
    assert passes_unmutated(mutant.killer, mutant.target)
    attribute = "__wrapped__" if mutant.target in SHIPPED else mutant.attribute
    wrong = mutant.mutate(getattr(mutant.target, attribute))
    with monkeypatch.context() as patch:
        patch.setattr(mutant.target, attribute, wrong)
        with pytest.raises(mutant.error):  # at the first failure; no kill shall hang on luck
            run(mutant.killer, mutant.target, examples=3 * test_ops.EXAMPLES)


# -- ways to be wrong -----------------------------------------------------------------------------


class Mutant(NamedTuple):
    target: Any  # an op, or the module whose `attribute` is replaced
    mutate: Callable[[Callable[..., Any]], Callable[..., Any]]
    killer: Callable[..., Any]
    error: Any = NOTICED
    attribute: str = ""


def result(change):
    """The op gives change(y, *arguments, **options) in place of y."""

    def mutate(raw):
        def mutant(*args, **options):
            y, vjps = raw(*args, **options)
            options.pop("needs", None)
            return change(y, *args, **options), vjps

        return mutant

    return mutate


def gradient(change):
    """Backward gives change(g, gradients, *arguments, **options), a list, for the gradients."""

    def mutate(raw):
        def mutant(*args, **options):
            y, vjps = raw(*args, **options)
            needs = options.pop("needs", [True] * len(args))

            def vjp(g):
                if callable(vjps):
                    right = list(vjps(g))
                else:
                    right = [f(g) if f and n else None for f, n in zip(vjps, needs, strict=True)]
                wrong = change(g, right, *args, **options)
                pairs = zip(wrong, right, strict=True)
                return tuple(None if d is None else np.asarray(w, d.dtype) for w, d in pairs)

            return y, vjp

        return mutant

    return mutate


def call(change):
    """The op is called with what change(*arguments, **options) returns: (arguments, options)."""

    def mutate(raw):
        def mutant(*args, needs=None, **options):
            args, options = change(*args, **options)
            return raw(*args, **options, **({} if needs is None else {"needs": needs}))

        return mutant

    return mutate


def stale(change):
    """Forward is right; backward belongs to the call that `change` makes of it."""

    def mutate(raw):
        wrong = call(change)(raw)

        def mutant(*args, **options):
            return raw(*args, **options)[0], wrong(*args, **options)[1]

        return mutant

    return mutate


def only(i, change):
    """A `gradient` mutant of the argument i: change(g, its gradient, *arguments, **options)."""

    def all_of_them(g, d, *args, **options):
        return [
            change(g, x, *args, **options) if k == i and x is not None else x
            for k, x in enumerate(d)
        ]

    return gradient(all_of_them)


def doubled(g, d, *args, **options):
    return [None if x is None else 2 * x for x in d]


def each_part(change):
    """The op's result, or all parts of it, changed."""

    def all_of_them(y, *args, **options):
        return tuple(change(p) for p in y) if isinstance(y, tuple) else change(y)

    return result(all_of_them)


# -- mutants of every op --------------------------------------------------------------------------


def in_a_buffer(raw):
    """Results of one shape are written into one array, over those of earlier calls."""
    buffers = {}

    def stored(i, y):
        buffer = buffers.setdefault((i, np.shape(y)), np.empty(np.shape(y), y.dtype))
        buffer[...] = y
        return buffer

    def mutant(*args, **options):
        y, vjps = raw(*args, **options)
        stores = [stored(i, p) for i, p in enumerate(parts(y))]
        return tuple(stores) if isinstance(y, tuple) else stores[0], vjps

    return mutant


def gradients_in_a_buffer(raw):
    """The same of gradients."""
    buffers = {}

    def stored(i, d):
        buffer = buffers.setdefault((i, np.shape(d)), np.empty(np.shape(d), d.dtype))
        buffer[...] = d
        return buffer

    return gradient(
        lambda g, d, *_, **__: [None if x is None else stored(i, x) for i, x in enumerate(d)]
    )(raw)


def hoarding(raw):
    """What backward needs is kept for ever."""
    kept = []

    def mutant(*args, **options):
        kept.append(raw(*args, **options))
        return kept[-1]

    return mutant


EVERY_OP = {
    "a value off by a thousandth": (each_part(lambda y: y * 1.001 + 0.001), VALUES),
    "a doubled gradient": (gradient(doubled), GRADIENTS),
    "a result in a shared buffer": (in_a_buffer, INDEPENDENT),
    "gradients in a shared buffer": (gradients_in_a_buffer, VJPS),
    "vjps kept for ever": (hoarding, RETAINED),
}


@pytest.mark.parametrize("function", SHIPPED, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", EVERY_OP)
def test_a_mutant_of_every_op_is_noticed(name, function, monkeypatch):
    noticed(monkeypatch, Mutant(function, *EVERY_OP[name]))


# -- mutants of single ops ------------------------------------------------------------------------


def unused_parts_dropped(g, d, x, *, sections, axis=0):
    """What there is of the parts' gradients, with the zeros at the end."""
    used = np.concatenate([part for part in g if part is not None], axis)
    wrong = np.zeros(x.shape)
    wrong[: len(used)] = used
    return [wrong]


def multiplied(g, d, condition, a, b):
    with np.errstate(invalid="ignore"):
        return [None, g * condition, g * ~condition]


def rows_written_once(g, d, weight, ids, **_):
    wrong = np.zeros(weight.shape)
    wrong[ids] = g
    return wrong


def entries_written_once(g, d, x, *, key):
    wrong = np.zeros(x.shape)
    wrong[key] = g
    return wrong


def untransposed(g, d, a, b):
    square = a.ndim > 1 < b.ndim and b.shape[-2] == b.shape[-1]
    return g @ b if square else d


def taken_from_the_start(g, d, *parts, axis=0):
    """For each part the first entries of g."""
    return [np.take(g, range(x.shape[axis]), axis) for x in parts]


def overflowing(y, x, axis=-1):
    with np.errstate(all="ignore"):
        e = np.exp(x)
        return e / e.sum(axis, keepdims=True)


def unsafe_norm(g, d, x, axis=None, keepdims=False):
    with np.errstate(all="ignore"):
        return x * (g / np.sqrt((x * x).sum()))


def layer_norm(scale):
    def wrong(y, x, weight, bias, eps):
        normed = (x - x.mean(-1, keepdims=True)) * scale(x.var(-1, keepdims=True), eps, x.shape[-1])
        return normed * weight + (0 if bias is None else bias)

    return result(wrong)


def next_label(x, *rest, ignore_index=-100, **options):
    """The arguments of a loss with each label one too high."""
    *rest, labels = rest
    classes = len(rest[0]) if rest else x.shape[-1]
    wrong = np.where(labels == ignore_index, ignore_index, (labels.astype(int) + 1) % classes)
    return (x, *rest, wrong), {"ignore_index": ignore_index, **options}


def smoothing_beside_the_label(logits, labels, *, label_smoothing=0.0, **options):
    """e / (V - 1) on every other class and 1 - e on the label itself."""
    classes = logits.shape[-1]
    return (logits, labels), {
        "label_smoothing": label_smoothing * classes / (classes - 1),
        **options,
    }


def mean_over_all(y, logits, labels, *, ignore_index=-100, reduction="mean", **_):
    return y * (labels != ignore_index).mean() if reduction == "mean" else y


def as_if_sum(x, labels, *, reduction="mean", **options):
    return (x, labels), {"reduction": "sum" if reduction == "mean" else reduction, **options}


def one_too_far(q, k, v, mask, bias, relative, **options):
    """Causal masks that let a query see the token after it."""
    if isinstance(mask, masks.Mask) and mask.causal:
        n, m = q.shape[2], k.shape[2]
        later = np.arange(m) <= np.arange(n)[:, None] + m - n + 1
        mask = masks.Mask(keys=mask.keys, allowed=mask.allowed) & masks.allowed(later)
    return (q, k, v, mask, bias, relative), options


def unmasked(q, k, v, mask, bias, relative, **options):
    return (q, k, v, None, bias, relative), options


def shifted_bias(q, k, v, mask, bias, relative, **options):
    relative = None if relative is None else np.roll(relative, 1, axis=1)
    return (q, k, v, mask, bias, relative), options


def another_seed(*args, **options):
    for name in {"seed", "dropout_seed"} & set(options):
        options[name] += 1
    return args, options


def in_one_block(raw):
    def mutant(*args, **options):
        with tinyfm.settings(block_bytes=1 << 30):
            return raw(*args, **options)

    return mutant


def edits_its_gradient(raw):
    def mutant(a, b):
        y, (_, vjp_b) = raw(a, b)

        def vjp_a(g):
            g *= b
            return g

        return y, (vjp_a, vjp_b)

    return mutant


def of_R(test, *args):
    """A test of a requirement with its parameters, as a killer."""
    return functools.partial(getattr(test_ops, test), *args)


def odd(function, blocks="small blocks"):
    return functools.partial(test_fused.test_odd_sizes_equal_twin, function, blocks, np.float64)


MUTANTS = {
    # arithmetic
    "mul: twice the gradient": Mutant(ops.mul, only(0, lambda g, d, *_: 2 * d), GRADIENTS),
    "mul: the factors' gradients exchanged": Mutant(
        ops.mul, only(0, lambda g, d, a, b: g * np.broadcast_to(a, g.shape)), GRADIENTS
    ),
    "mul: edits the gradient that it is given": Mutant(
        ops.mul, edits_its_gradient, INDEPENDENT, (AssertionError, ValueError)
    ),
    "add: the mean over broadcast axes": Mutant(
        ops.add, only(1, lambda g, d, a, b: d * (b.size / g.size if g.size else 1)), GRADIENTS
    ),
    "sub: no sign": Mutant(ops.sub, only(1, lambda g, d, *_: -d), GRADIENTS),
    "div: the numerator forgotten": Mutant(
        ops.div, only(1, lambda g, d, a, b: -g / b / b), GRADIENTS
    ),
    "neg: no sign": Mutant(ops.neg, only(0, lambda g, d, *_: -d), GRADIENTS),
    "power: the exponent not lowered": Mutant(
        ops.power, only(0, lambda g, d, a, b: g * b * a**b), GRADIENTS
    ),
    "maximum: a tie counted twice": Mutant(
        ops.maximum,
        gradient(lambda g, d, a, b: [g * (a >= b), g * (b >= a)]),
        of_R("test_R6_elementwise_ties_share_one_gradient", ops.maximum),
    ),
    "minimum: the wrong branch": Mutant(
        ops.minimum, gradient(lambda g, d, a, b: [g * (a > b), g * (b > a)]), GRADIENTS
    ),
    "exp: its own value forgotten": Mutant(ops.exp, only(0, lambda g, d, x: g), GRADIENTS),
    "log: base 2": Mutant(ops.log, result(lambda y, x: np.log2(x)), VALUES),
    "sqrt: the factor 2 forgotten": Mutant(ops.sqrt, only(0, lambda g, d, x: 2 * d), GRADIENTS),
    "tanh: 1 - y": Mutant(ops.tanh, only(0, lambda g, d, x: g * (1 - np.tanh(x))), GRADIENTS),
    "where: a product": Mutant(
        ops.where,
        gradient(multiplied),
        of_R("test_R5_where_selects"),
    ),
    "where: the wrong sign in one branch": Mutant(
        ops.where, only(2, lambda g, d, *_: -d), GRADIENTS
    ),
    "astype: the gradient not converted back": Mutant(
        ops.astype,
        lambda raw: lambda x, dtype: (x.astype(dtype), (lambda g: g,)),
        of_R("test_astype_carries_the_gradient_back_in_the_dtype_of_its_input"),
        TypeError,  # from the engine, which compares each gradient with its argument
    ),
    # reductions
    "sum: the mean": Mutant(
        ops.sum, result(lambda y, x, **axes: x.mean(**axes) if x.size else y), VALUES
    ),
    "sum: keepdims ignored": Mutant(
        ops.sum, call(lambda x, axis=None, keepdims=False: ((x,), {"axis": axis})), VALUES
    ),
    "mean: the gradient of sum": Mutant(
        ops.mean,
        only(0, lambda g, d, x, **axes: d * (x.size / g.size if g.size else 1)),
        GRADIENTS,
    ),
    "mean: float64 leaks": Mutant(
        ops.mean, each_part(lambda y: y * np.float64([1.0])[0]), FLOAT32, (*NOTICED, TypeError)
    ),
    "var: ddof ignored": Mutant(
        ops.var, call(lambda x, **o: ((x,), o | {"ddof": 0})), VALUES
    ),
    "max: each tie gets all": Mutant(
        ops.max,
        only(0, lambda g, d, x, **_: d if x.ndim > 1 else g * (x == x.max())),
        of_R("test_R6_ties_share_one_gradient", ops.max),
    ),
    "min: the maximum": Mutant(
        ops.min, result(lambda y, x, **axes: x.max(**axes)), VALUES
    ),
    "norm: NaN at the zero vector": Mutant(
        ops.norm, only(0, unsafe_norm), of_R("test_R4_norm_of_zeros_has_gradient_zero", np.float64)
    ),
    # shapes
    "reshape: the gradient column by column": Mutant(
        ops.reshape, only(0, lambda g, d, x, shape: g.reshape(x.shape, order="F")), GRADIENTS
    ),
    "transpose: axes ignored": Mutant(
        ops.transpose, call(lambda x, axes: ((x,), {"axes": None})), VALUES
    ),
    "swapaxes: the gradient not swapped back": Mutant(
        ops.swapaxes, only(0, lambda g, d, x, **_: g.reshape(x.shape)), GRADIENTS
    ),
    "concatenate: each part's gradient taken from the start": Mutant(
        ops.concatenate, gradient(taken_from_the_start), GRADIENTS
    ),
    "stack: parts swapped": Mutant(
        ops.stack, gradient(lambda g, d, *a, axis: d[::-1]), GRADIENTS
    ),
    "split: the unused part dropped": Mutant(
        ops.split, gradient(unused_parts_dropped), of_R("test_split_with_a_part_unused", 0)
    ),
    "split_heads: heads outside parts": Mutant(
        ops.split_heads,
        result(
            lambda y, x, parts, heads: tuple(
                x.reshape(*x.shape[:2], heads, parts, -1).transpose(3, 0, 2, 1, 4)
            )
            if x.size
            else y
        ),
        VALUES,
    ),
    "merge_heads: a bare reshape": Mutant(
        ops.merge_heads, result(lambda y, x: x.reshape(y.shape)), VALUES
    ),
    "getitem: repeats dropped": Mutant(ops.getitem, only(0, entries_written_once), GRADIENTS),
    "matmul: a transpose missing": Mutant(ops.matmul, only(0, untransposed), GRADIENTS),
    # activations and softmax
    "relu: a slope below 0": Mutant(ops.relu, only(0, lambda g, d, x: g * (x > -1)), GRADIENTS),
    "relu: a slope at 0": Mutant(
        ops.relu,
        only(0, lambda g, d, x: g * (x >= 0)),
        of_R("test_R6_relu_at_zero_has_slope_zero"),
    ),
    "sigmoid: y in place of y (1 - y)": Mutant(
        ops.sigmoid, only(0, lambda g, d, x: g / (1 + np.exp(-x))), GRADIENTS
    ),
    "silu: one factor's derivative only": Mutant(
        ops.silu, only(0, lambda g, d, x: g / (1 + np.exp(-x))), TWIN
    ),
    "gelu: the tanh form for the exact one": Mutant(
        ops.gelu,
        call(lambda x, **_: ((x,), {"approximate": "tanh"})),
        of_R("test_R13_both_forms_of_gelu", np.float32),
    ),
    "gelu: the other form's derivative": Mutant(
        ops.gelu,
        stale(
            lambda x, approximate="none": (
                (x,),
                {"approximate": {"none": "tanh", "tanh": "none"}[approximate]},
            )
        ),
        GRADIENTS,
    ),
    "gelu: the slope is made when nobody wants it": Mutant(
        ops.gelu,
        lambda raw: lambda x, needs=None, **o: raw(x, needs=(True,), **o),
        of_R("test_what_no_gradient_needs_is_neither_kept_nor_computed", ops.gelu),
    ),
    "softmax: the last axis, always": Mutant(
        ops.softmax, call(lambda x, axis=-1: ((x,), {"axis": -1})), VALUES
    ),
    "softmax: the maximum not subtracted": Mutant(
        ops.softmax, result(overflowing), of_R("test_softmax_does_not_overflow", np.float32)
    ),
    "softmax: sum(g y) forgotten": Mutant(
        ops.softmax, only(0, lambda g, d, x, axis=-1: g * np.exp(x)), TWIN
    ),
    "log_softmax: the softmax forgotten": Mutant(
        ops.log_softmax, only(0, lambda g, d, *_, **__: g), GRADIENTS
    ),
    # norms and dropout
    "layer_norm: n - 1": Mutant(
        ops.layer_norm,
        layer_norm(lambda var, eps, n: 1 / np.sqrt(var * n / (n - 1) + eps)),
        of_R("test_R11_layer_norm_is_biased_with_eps_in_the_root", np.float64),
    ),
    "layer_norm: eps outside the root": Mutant(
        ops.layer_norm, layer_norm(lambda var, eps, n: 1 / (np.sqrt(var) + eps)), VALUES
    ),
    "layer_norm: the bias gradient forgotten": Mutant(
        ops.layer_norm, only(2, lambda g, d, *_, **__: 0 * d), GRADIENTS
    ),
    "layer_norm: the mean's derivative forgotten": Mutant(
        ops.layer_norm, only(0, lambda g, d, *_, **__: d + g.mean()), TWIN
    ),
    "rms_norm: the mean removed": Mutant(
        ops.rms_norm,
        call(lambda x, weight, **o: ((x - x.mean(-1, keepdims=True), weight), o)),
        of_R("test_trap_21_rms_norm_removes_no_mean", np.float64),
    ),
    "dropout: a stale mask": Mutant(ops.dropout, stale(another_seed), GRADIENTS),
    "dropout: not scaled": Mutant(
        ops.dropout, result(lambda y, x, p, seed: y * (1 - p)), TWIN
    ),
    # linear and embedding
    "linear: the weight not transposed": Mutant(
        ops.linear,
        call(lambda x, w, b: ((x, w.T if w.shape[0] == w.shape[1] else w, b), {})),
        VALUES,
    ),
    "linear: the mean for the bias": Mutant(
        ops.linear, only(2, lambda g, d, *_: d * (len(d) / max(1, g.size))), GRADIENTS
    ),
    "embedding: repeats dropped": Mutant(
        ops.embedding,
        only(0, rows_written_once),
        of_R("test_R7_repeated_rows_collect_all_gradients", ops.embedding),
    ),
    "embedding: repeats dropped in some call": Mutant(
        ops.embedding, only(0, rows_written_once), GRADIENTS
    ),
    "embedding: the padding row's gradient kept": Mutant(
        ops.embedding,
        call(lambda weight, ids, padding_idx=None: ((weight, ids), {})),
        of_R("test_R15_the_look_up_adds_nothing_to_the_padding_row"),
    ),
    "embedding: negative ids from the end": Mutant(
        ops.embedding,
        call(lambda weight, ids, **o: ((weight, ids % len(weight)), o)),
        of_R("test_R16_ids_outside_the_vocabulary", -1),
    ),
    # losses
    "cross_entropy: the gradient of the next label": Mutant(
        ops.cross_entropy, stale(next_label), GRADIENTS
    ),
    "cross_entropy: ignored labels count in the mean": Mutant(
        ops.cross_entropy,
        result(mean_over_all),
        of_R("test_R26_the_mean_is_over_counted_labels", test_ops.plain_loss, np.float64),
    ),
    "cross_entropy: the gradient of the sum for the mean": Mutant(
        ops.cross_entropy, stale(as_if_sum), GRADIENTS
    ),
    "cross_entropy: smoothing e / (V - 1)": Mutant(
        ops.cross_entropy,
        call(smoothing_beside_the_label),
        of_R("test_trap_46_label_smoothing_is_over_all_classes", test_ops.plain_loss),
    ),
    "linear_cross_entropy: the next label": Mutant(
        ops.linear_cross_entropy, call(next_label), VALUES
    ),
    "linear_cross_entropy: the bias gradient forgotten": Mutant(
        ops.linear_cross_entropy, only(2, lambda g, d, *_, **__: 0 * d), TWIN
    ),
    "linear_cross_entropy: all logits at once": Mutant(
        ops.linear_cross_entropy,
        in_one_block,
        functools.partial(test_fused.test_linear_cross_entropy_never_holds_the_logits, "mean"),
    ),
    # attention
    "attention: the mask ignored": Mutant(ops.fused_attention, call(unmasked), VALUES),
    "attention: the mask ignored by backward": Mutant(
        ops.fused_attention, stale(unmasked), GRADIENTS
    ),
    "attention: causal off by one": Mutant(ops.fused_attention, call(one_too_far), VALUES),
    "attention: the relative bias shifted by one": Mutant(
        ops.fused_attention, call(shifted_bias), TWIN
    ),
    "attention: the bias gradient forgotten": Mutant(
        ops.fused_attention, only(4, lambda g, d, *_, **__: 0 * d), GRADIENTS
    ),
    "attention: a stale dropout mask": Mutant(
        ops.fused_attention, stale(another_seed), GRADIENTS
    ),
    "attention: the scale forgotten by backward": Mutant(
        ops.fused_attention, only(0, lambda g, d, *_, scale, **__: d / scale), GRADIENTS
    ),
    "attention: the first block's dropout mask for all": Mutant(
        blocked_attention,
        lambda keep_mask: lambda seed, p, n, width, like, start=0: keep_mask(
            seed, p, n, width, like
        ),
        odd(ops.fused_attention),
        attribute="keep_mask",
    ),
    # blocks, and the engine itself
    "blocks: the last one left out": Mutant(
        neural,
        lambda by_rows: lambda work, *arrays: by_rows(work, *(x[:-1] for x in arrays)),
        odd(ops.softmax),
        attribute="by_rows",
    ),
    "engine: a gradient added in place that belongs to others": Mutant(
        autograd,
        lambda deliver: lambda node, g, grads, owned, keep: deliver(
            node, g, grads, Everything(), keep
        ),
        of_R("test_R8_the_gradient_of_one_operand_survives_what_the_other_collects"),
        attribute="_deliver",
    ),
    "engine: two leaves share one gradient": Mutant(
        autograd,
        lambda right: lambda leaf, grad, own: right(leaf, grad, True),
        of_R("test_R8_no_two_gradients_share_memory"),
        attribute="_accumulate",
    ),
    "engine: broadcast gradients not summed": Mutant(
        autograd,
        lambda _: lambda g, shape: g,
        of_R("test_R3_gradients_have_the_shape_of_their_operand"),
        TypeError,
        "_sum_to_shape",
    ),
    "engine: broadcast gradients averaged": Mutant(
        autograd,
        lambda right: lambda g, shape: right(g, shape) * (np.prod(shape) / g.size),
        of_R("test_R3_gradients_have_the_shape_of_their_operand"),
        attribute="_sum_to_shape",
    ),
    "engine: only the last of two gradients": Mutant(
        autograd,
        lambda right: lambda leaf, grad, own: setattr(leaf, "grad", grad.copy()),
        of_R("test_R8_no_two_gradients_share_memory"),
        attribute="_accumulate",
    ),
}  # fmt: skip


class Everything(set):
    def __contains__(self, _):
        return True


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed(name, monkeypatch):
    noticed(monkeypatch, MUTANTS[name])


def test_there_are_mutants_enough():
    """Each op has its own beside those of every op, and so have the blocks and the engine."""
    assert len(MUTANTS) >= 80
    without = set(SHIPPED) - {mutant.target for mutant in MUTANTS.values()}
    assert not {function.__name__ for function in without}
    assert {autograd, neural, blocked_attention} < {mutant.target for mutant in MUTANTS.values()}
