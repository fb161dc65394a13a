"""Every op that @op has made: values, gradients, dtypes, memory; and what is asked of single ones.

The first part runs over the list of ops that the decorator keeps, with the calls and definitions
of registry.py.  The second holds the examples of requirements R3 to R27 that concern ops.
"""

from __future__ import annotations

import contextlib
import gc
import math
import warnings
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tinyfm import Tensor, gradcheck, no_grad, op, ops, tensor
from tinyfm.autograd import registry
from tinyfm_tests import reference
from tinyfm_tests.registry import (
    CASES,
    SHIPPED,
    SIGNATURES,
    argument_names,
    backward,
    cast,
    change_floats,
    differentiable,
    is_float,
    laid_out,
    leaves,
    like,
    memory,
    missing,
    parts,
    values_and_gradients,
)

EXAMPLES = max(1, settings.default.max_examples // 3)


def of_every_op(test):
    """The test, for each shipped op and for calls that its strategy draws."""
    test = settings(max_examples=EXAMPLES)(given(data=st.data())(test))
    return pytest.mark.parametrize("function", SHIPPED, ids=lambda f: f.__name__)(test)


def float_arrays(call):
    return [x for x in call.args if is_float(x)]


def same(got, wanted):
    """Bit for bit, for all arrays of two lists."""
    for a, b in zip(got, wanted, strict=True):
        assert_array_equal(np.asarray(a), b, strict=True)


# -- the list of ops ------------------------------------------------------------------------------


def test_every_op_has_calls_a_reference_and_a_float32_case():
    assert missing(SHIPPED, CASES) == []


def test_the_table_has_no_entry_for_an_op_that_is_gone():
    assert set(CASES) == set(SHIPPED)


def test_an_op_that_lacks_something_is_noticed():
    @op
    def cube(x):
        return x**3, (lambda g: g * 3 * x**2,)

    assert registry[-1] is cube  # the decorator enters it, and nobody else
    registry.pop()
    whole = CASES[ops.exp]
    for case in (
        None,
        whole._replace(calls=None),
        whole._replace(reference=None),
        whole._replace(differentiable=""),
        whole._replace(differentiable="a"),
        whole._replace(float32=""),
    ):
        assert len(missing([cube], {cube: case})) == 1
    assert missing([cube], {cube: whole}) == []


def test_every_public_op_is_made_by_the_decorator():
    others = {"attention", "attention_weights", "check_ids"}  # made of ops; a check
    assert set(ops.__all__) - others == {function.__name__ for function in SHIPPED}


# -- what holds for every op ----------------------------------------------------------------------


@of_every_op
def test_values(function, data):
    """Results equal the definition; of Tensors, of plain arrays and without recording."""
    call = data.draw(CASES[function].calls)
    before = [x.copy() for x in float_arrays(call)]
    result = function(*leaves(function, call), **call.options)
    wanted = CASES[function].reference(*call.args, **call.options)
    for got, value in zip(parts(result), parts(wanted), strict=True):
        assert got.shape == np.shape(value)
        assert got.dtype == np.float64
        assert_allclose(got.data, value, rtol=1e-11, atol=1e-12)
    got = [y.data for y in parts(result)]
    same([y.data for y in parts(function(*call.args, **call.options))], got)
    with no_grad():
        same([y.data for y in parts(function(*leaves(function, call), **call.options))], got)
    same(float_arrays(call), before)


@of_every_op
def test_gradients(function, data):
    """gradcheck in float64."""
    call = data.draw(CASES[function].calls)
    where = differentiable(function, call)

    def f(*tensors):
        args = list(call.args)
        for i, t in zip(where, tensors, strict=True):
            args[i] = t
        return function(*args, **call.options)

    assert gradcheck(f, *(Tensor(call.args[i], requires_grad=True) for i in where))


@of_every_op
def test_float32(function, data):
    """float32 in, float32 out and back, close to what float64 gives."""
    call = data.draw(CASES[function].calls)
    results, gradients = values_and_gradients(function, cast(call, np.float32))
    wanted, wanted_gradients = values_and_gradients(function, call)
    for got, exact in zip(results + gradients, wanted + wanted_gradients, strict=True):
        assert got.dtype == np.float32
        assert_allclose(got, exact, rtol=1e-4, atol=1e-4)


def whole(x):
    """x rounded away from 0, as integers."""
    return np.copysign(np.ceil(np.abs(x)), x).astype(np.int64)


PARTNERS = {  # what a float32 tensor may meet: of the other argument x -> what stands in its place
    "arrays": [lambda x: x, whole, lambda x: x.astype(np.float32)],
    "numbers": [
        lambda x: float(x.flat[0]),
        lambda x: int(whole(x).flat[0]),
        lambda x: np.float64(x.flat[0]),
        lambda x: np.int64(whole(x).flat[0]),
    ],
}
WITH_PARTNERS = [function for function, case in CASES.items() if case.float32 != "alone"]


@settings(max_examples=EXAMPLES)
@given(data=st.data())
@pytest.mark.parametrize("function", WITH_PARTNERS, ids=lambda f: f.__name__)
def test_float32_keeps_its_dtype_in_company(function, data):
    """One float32 Tensor among numbers, integers and float64 arrays makes all of it float32."""
    call = data.draw(CASES[function].calls)
    where = differentiable(function, call)
    tensor_at = data.draw(st.sampled_from(where))
    kinds = PARTNERS["arrays"] + PARTNERS["numbers"] * (CASES[function].float32 == "numbers")
    args, exact = list(call.args), list(call.args)
    for i in where:
        partner = data.draw(st.sampled_from(kinds)) if args[i].size else (lambda x: x)
        if i != tensor_at:
            args[i] = partner(args[i])
            exact[i] = np.asarray(args[i], np.float64)
    args[tensor_at] = Tensor(args[tensor_at].astype(np.float32), requires_grad=True)
    exact[tensor_at] = Tensor(exact[tensor_at], requires_grad=True)
    got = function(*args, **call.options)
    wanted = function(*exact, **call.options)
    assert got.dtype == np.float32
    assert_allclose(got.data, wanted.data, rtol=1e-4, atol=1e-4)
    [g] = like([got.data])
    got.backward(g)
    wanted.backward(g.astype(np.float64))
    assert args[tensor_at].grad.dtype == np.float32
    assert_allclose(args[tensor_at].grad, exact[tensor_at].grad, rtol=1e-4, atol=1e-4)


def test_whole_numbers_beside_a_bias_that_learns():
    bias = Tensor(np.array([0.5, -0.5], np.float32), requires_grad=True)
    y = ops.linear(np.array([[1, 2]]), np.array([[3, 4], [5, 6]]), bias)
    assert y.dtype == np.float32 and y.data.tolist() == [[11.5, 16.5]]
    y.sum().backward()
    assert bias.grad.tolist() == [1, 1]


@of_every_op
def test_calls_are_independent(function, data):
    """A second call changes nothing of a first one, and no gradient shares memory with anything."""
    call = data.draw(CASES[function].calls)
    alone, gradients_alone = values_and_gradients(function, call)
    alone = [x.copy() for x in alone]
    gradients_alone = [x.copy() for x in gradients_alone]

    first = leaves(function, call)
    result = function(*first, **call.options)
    other = change_floats(call, lambda x: 0.9 * x)
    second = leaves(function, other)
    other_result = function(*second, **call.options)
    start = like(parts(result))
    backward(other_result, like(parts(other_result), seed=1))
    backward(result, start)
    same([y.data for y in parts(result)], alone)
    tensors = [a for a in (*first, *second) if isinstance(a, Tensor)]
    same([a.grad for a in first if isinstance(a, Tensor)], gradients_alone)
    same(start, like(parts(result)))  # a vjp does not edit the gradient that it was given

    gradients = [t.grad for t in tensors]
    everything = [*gradients, *start, *float_arrays(call), *float_arrays(other)]
    everything += [y._data for y in (*parts(result), *parts(other_result))]
    for i, gradient in enumerate(gradients):
        assert gradient.flags.c_contiguous and gradient.flags.writeable
        for k, x in enumerate(everything):
            assert i == k or not np.shares_memory(gradient, x)


def raw_gradients(vjps, gradient, wanted):
    """The gradients of the wanted arguments that the vjps of a raw op give, in either form."""
    if callable(vjps):
        vjps = [lambda _, grad=grad: grad for grad in vjps(gradient)]
    return [vjps[i](gradient) for i in wanted]


@of_every_op
def test_vjps(function, data):
    """The raw function's vjps: called twice they give the same, for gradients of any layout."""
    call = data.draw(CASES[function].calls)
    wanted = differentiable(function, call)
    options = dict(call.options)
    if "needs" in SIGNATURES[function]:
        options["needs"] = tuple(i in wanted for i in range(len(call.args)))
    result, vjps = function.__wrapped__(*call.args, **options)
    start = like(parts(result))

    def gradients(layout, factor=1):
        g = [laid_out(np.asarray(factor * x), layout) for x in start]
        return raw_gradients(vjps, tuple(g) if isinstance(result, tuple) else g[0], wanted)

    first = gradients("contiguous")
    copies = [np.array(x) for x in first]
    gradients("contiguous", factor=2)
    same(first, copies)
    same(gradients("contiguous"), copies)
    for layout in ("transposed", "strided"):
        for a, copy in zip(gradients(layout), copies, strict=True):
            assert_allclose(a, copy, rtol=1e-11, atol=1e-12)
    if not callable(vjps):
        names = argument_names(function, len(call.args))
        others = [
            vjps[i] for i, n in enumerate(names) if n not in CASES[function].differentiable.split()
        ]
        assert others == [None] * len(others)  # ids, labels, conditions stay what they are


@contextlib.contextmanager
def watched(function):
    """Weak references to all vjps that an op makes meanwhile."""
    raw, made = function.__wrapped__, []

    def watch(*args, **options):
        result, vjps = raw(*args, **options)
        made.extend(weakref.ref(f) for f in (vjps if isinstance(vjps, tuple) else (vjps,)) if f)
        return result, vjps

    function.__wrapped__ = watch
    gc.disable()
    try:
        yield made
    finally:
        function.__wrapped__ = raw
        gc.enable()


@of_every_op
def test_nothing_is_retained_without_recording(function, data):
    """Under no_grad the vjps, and with them all that they hold, are gone when the op returns."""
    call = data.draw(CASES[function].calls)
    with watched(function) as made:
        with no_grad():
            result = function(*leaves(function, call), **call.options)
        assert made and not any(vjp() for vjp in made)
        assert not any(y.requires_grad for y in parts(result))
        made.clear()
        result = function(*leaves(function, call), **call.options)
        assert any(vjp() for vjp in made)  # recorded, they live with the result: the watch sees
        assert all(y.requires_grad for y in parts(result))


# -- what the strategies do not reach -------------------------------------------------------------


def leaf(values, dtype=np.float64):
    return Tensor(np.array(values, dtype), requires_grad=True)


@pytest.mark.parametrize("unused", [0, 1, 2])
def test_split_with_a_part_unused(unused):
    x = leaf(np.arange(7.0))
    taken = [y for i, y in enumerate(ops.split(x, sections=[3, 5])) if i != unused]
    (ops.concatenate(taken) * 2.0).sum().backward()
    wanted = np.full(7, 2.0)
    wanted[[slice(0, 3), slice(3, 5), slice(5, 7)][unused]] = 0
    assert_array_equal(x.grad, wanted)


def test_split_heads_with_a_part_unused():
    x = leaf(np.arange(12.0).reshape(1, 2, 6))
    _, y, _ = ops.split_heads(x, parts=3, heads=2)
    y.sum().backward()
    assert_array_equal(x.grad, [[[0, 0, 1, 1, 0, 0]] * 2])


def test_astype_carries_the_gradient_back_in_the_dtype_of_its_input():
    x = leaf([1.5, 2.5], np.float32)
    y = ops.astype(x, dtype=np.float64)
    assert y.dtype == np.float64
    y.backward(np.array([0.1, 0.2]))
    assert_array_equal(x.grad, np.array([0.1, 0.2], np.float32), strict=True)


def test_power_at_zero():
    """0 ** 0 and 0 ** 2: no NaN from 0 * inf or log 0, and no warning."""
    a, b = leaf([0.0, 0.0, 3.0]), leaf([0.0, 2.0, 0.0])
    y = a**b
    y.backward(np.ones(3))
    assert_array_equal(y.data, [1, 0, 1])
    assert_array_equal(a.grad, [0, 0, 0])
    assert_allclose(b.grad, [0, 0, math.log(3)])


def test_power_of_a_negative_base_and_a_whole_exponent():
    a = leaf([-2, -3])
    y = a**3
    y.sum().backward()
    assert_array_equal(y.data, [-8, -27])
    assert_array_equal(a.grad, [12, 27])


def test_sigmoid_and_silu_of_large_numbers():
    for dtype in (np.float32, np.float64):
        x = leaf([-1e4, -800, 0, 800, 1e4], dtype)
        y = ops.sigmoid(x)
        y.sum().backward()
        assert_array_equal(y.data, [0, 0, 0.5, 1, 1])
        assert_array_equal(x.grad, [0, 0, 0.25, 0, 0])
        x.grad = None
        y = ops.silu(x)
        y.sum().backward()
        assert_array_equal(y.data, [0, 0, 0, 800, 1e4])
        assert_array_equal(x.grad, [0, 0, 0.5, 1, 1])


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.uint64])
def test_small_integers_as_ids(dtype):
    """The row's place in the gradient, id x width, need not fit into the ids' type."""
    weight = leaf(np.ones((200, 300)))
    ids = np.array([120, 120, 3], dtype)
    ops.embedding(weight, ids).backward(np.ones((3, 300)))
    assert_array_equal(weight.grad[:, 0].nonzero()[0], [3, 120])
    assert_array_equal(weight.grad[[3, 120], 299], [1, 2])
    logits = leaf(np.zeros((3, 200)))
    ops.cross_entropy(logits, ids, reduction="sum").backward()
    assert_array_equal(logits.grad.argmin(1), ids)


BAD_CALLS = [  # (call, error, what its message names)
    (lambda x: ops.gelu(x, approximate="erf"), ValueError, "erf.*'none'.*'tanh'"),
    (lambda x: ops.dropout(x, p=1.5, seed=0), ValueError, "1.5"),
    (lambda x: ops.linear(x, np.ones((2, 4)), None), ValueError, r"linear.*\(2, 3\).*\(2, 4\)"),
    (lambda x: ops.matmul(x, np.ones((2, 3))), ValueError, r"matmul.*\(2, 3\).*\(2, 3\)"),
    (lambda x: ops.add(x, np.ones(4)), ValueError, r"add.*\(2, 3\).*\(4,\)"),
    (lambda x: ops.reshape(x, shape=(4, 2)), ValueError, r"reshape.*\(2, 3\)"),
    (lambda x: ops.cross_entropy(x, np.zeros(3, int)), ValueError, r"cross_entropy.*\(2, 3\)"),
    (lambda x: ops.cross_entropy(x, np.zeros(2)), TypeError, "float"),
    (lambda x: ops.cross_entropy(x, np.zeros(2, int), reduction="avg"), ValueError, "avg.*'mean'"),
    (
        lambda x: ops.linear_cross_entropy(x, np.ones((5, 4)), None, np.zeros(2, int)),
        ValueError,
        r"linear_cross_entropy.*\(2, 3\).*\(5, 4\)",
    ),
]


@pytest.mark.parametrize("call, error, names", BAD_CALLS)
def test_what_does_not_fit_is_an_error_that_names_it(call, error, names):
    with pytest.raises(error, match=names):
        call(leaf(np.ones((2, 3))))


NEEDY = {
    ops.gelu: lambda x: ops.gelu(x),
    ops.linear_cross_entropy: lambda x: ops.linear_cross_entropy(x[:9], x, None, np.zeros(9, int)),
    ops.fused_attention: lambda x: ops.attention(*[x.reshape(1, 1, 1000, 100)] * 3),
}


def test_every_op_that_names_needs_is_measured():
    assert set(NEEDY) == {function for function in SHIPPED if "needs" in SIGNATURES[function]}


@pytest.mark.parametrize("function", NEEDY, ids=lambda f: f.__name__)
def test_what_no_gradient_needs_is_neither_kept_nor_computed(function):
    x = leaf(np.random.default_rng(0).standard_normal((1000, 100)))
    room = x.data.nbytes // 10
    call = NEEDY[function]

    def unrecorded():
        with no_grad():
            return call(x)

    result = unrecorded()
    assert_array_equal(result.data, call(x).data)
    held, peak = memory(unrecorded)
    assert held < result.data.nbytes + room
    if function is not ops.fused_attention:  # which computes nothing ahead of its backward
        assert peak + x.data.nbytes - room < memory(lambda: call(x))[1]


# -- requirements, by number ----------------------------------------------------------------------


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def dtype(request):
    return request.param


def test_R3_gradients_have_the_shape_of_their_operand():
    x, b, s = leaf([[1, 2, 3], [4, 5, 6]]), leaf([[10, 20, 30]]), leaf(2)
    ((x + b) * s).sum().backward()
    assert_array_equal(x.grad, np.full((2, 3), 2.0), strict=True)
    assert_array_equal(b.grad, [[4.0, 4.0, 4.0]])
    assert_array_equal(s.grad, np.array(141.0), strict=True)
    p, q = leaf([[[1, 2, 3]], [[4, 5, 6]]]), leaf([[1], [2], [3], [4]])
    (p * q).sum().backward()
    assert_array_equal(p.grad, np.full((2, 1, 3), 10.0), strict=True)
    assert_array_equal(q.grad, np.full((4, 1), 21.0), strict=True)


def test_R4_norm_of_zeros_has_gradient_zero(dtype):
    x = leaf([0, 0, 0], dtype)
    y = ops.norm(x)
    y.backward()
    assert_array_equal(x.grad, np.zeros(3, dtype), strict=True)
    assert y.item() == 0
    rows = leaf([[3, 4], [0, 0]], dtype)
    ops.norm(rows, axis=1).sum().backward()
    assert_allclose(rows.grad, [[0.6, 0.8], [0, 0]], rtol=1e-6)


def test_R5_where_selects():
    a, b = leaf([1, np.inf]), leaf([np.nan, 2])
    y = ops.where(np.array([True, False]), a, b)
    y.backward(np.array([3, np.inf]))
    assert_array_equal(y.data, [1, 2])
    assert_array_equal(a.grad, [3, 0])
    assert_array_equal(b.grad, [0, np.inf])


def test_R5_masking_makes_the_input_safe_first():
    x = leaf([4, -1])
    positive = x > 0
    y = ops.where(positive, ops.sqrt(ops.where(positive, x, 1.0)), 0.0)
    y.sum().backward()
    assert_array_equal(y.data, [2, 0])
    assert_array_equal(x.grad, [0.25, 0])


@pytest.mark.parametrize("function", [ops.max, ops.min])
def test_R6_ties_share_one_gradient(function):
    x = leaf([2, 2, 1]) if function is ops.max else leaf([2, 2, 3])
    function(x).backward()
    assert_array_equal(x.grad, [0.5, 0.5, 0])
    x = leaf([[1, 1, 1], [0, 0, 0]])
    function(x, axis=1).backward(np.array([3.0, 6.0]))
    assert_allclose(x.grad, [[1, 1, 1], [2, 2, 2]])


@pytest.mark.parametrize("function", [ops.maximum, ops.minimum])
def test_R6_elementwise_ties_share_one_gradient(function):
    a, b = leaf([2, 1]), leaf([2, 3])
    function(a, b).backward(np.array([1.0, 1.0]))
    assert_array_equal(a.grad, [0.5, 0 if function is ops.maximum else 1])
    assert_array_equal(a.grad + b.grad, [1, 1])


def test_R6_relu_at_zero_has_slope_zero():
    x = leaf([-1, 0, 1])
    ops.relu(x).sum().backward()
    assert_array_equal(x.grad, [0, 0, 1])


@pytest.mark.parametrize(
    "look_up", [ops.embedding, lambda weight, ids: ops.getitem(weight, key=ids)]
)
def test_R7_repeated_rows_collect_all_gradients(look_up):
    weight = leaf(np.ones((4, 2)))
    look_up(weight, np.array([1, 1, 3])).backward(np.array([[1.0, 1], [10, 10], [100, 100]]))
    assert_array_equal(weight.grad, [[0, 0], [11, 11], [0, 0], [100, 100]])


def test_R7_a_large_table_equals_a_loop():
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 3000, 2000)
    g = rng.standard_normal((2000, 16)).astype(np.float32)
    weight = leaf(np.ones((3000, 16)), np.float32)
    ops.embedding(weight, ids).backward(g)
    wanted = np.zeros((3000, 16))
    for i, row in zip(ids, g, strict=True):
        wanted[i] += row
    assert_allclose(weight.grad, wanted, rtol=1e-5, atol=1e-5)


def test_R8_no_two_gradients_share_memory():
    a, b = leaf([1, 2]), leaf([3, 4])
    (a + b).sum().backward()
    a.grad[0] = 99
    assert_array_equal(b.grad, [1, 1])
    given = np.array([1.0, 1.0])
    a.grad = b.grad = None
    (a + b).backward(given)
    a.grad[0] = 99
    assert_array_equal(b.grad, [1, 1])
    assert_array_equal(given, [1, 1])
    x = leaf([1, 2])
    (x + x).sum().backward()
    assert_array_equal(x.grad, [2, 2])


def test_R8_the_gradient_of_one_operand_survives_what_the_other_collects():
    """add hands the same g to both operands; h collects more of it, which x must not see."""
    x, y = leaf([1, 2]), leaf([3, 4])
    h, k = x * 1.0, y * 1.0
    (k + h + h.reshape(2, 1).reshape(2) * 5.0 + h).backward(np.array([1.0, 10.0]))
    assert_array_equal(x.grad, [7, 70])
    assert_array_equal(y.grad, [1, 10])


def test_R11_layer_norm_is_biased_with_eps_in_the_root(dtype):
    one, zero = np.ones(4, dtype), np.zeros(4, dtype)
    y = ops.layer_norm(leaf([1, 2, 3, 4], dtype), one, zero, eps=1e-5)
    assert_allclose(y.data, [-1.3416354, -0.4472118, 0.4472118, 1.3416354], rtol=3e-7)


def test_R11_trap_19_layer_norm_with_three_eps():
    for eps, wanted in ((1e-12, 0.9999995), (1e-6, 0.7071068), (1e-5, 0.3015114)):
        y = ops.layer_norm(leaf([0, 0.002]), np.ones(2), np.zeros(2), eps=eps)
        assert_allclose(y.data, [-wanted, wanted], rtol=2e-7)


def test_R12_layer_norm_of_a_constant_row(dtype):
    x = leaf([5, 5, 5, 5], dtype)
    y = ops.layer_norm(x, np.ones(4, dtype), np.zeros(4, dtype), eps=1e-5)
    y.backward(np.array([1, 2, 3, 4], dtype))
    assert_array_equal(y.data, np.zeros(4))
    assert_allclose(x.grad, [-474.34165, -158.11388, 158.11388, 474.34165], rtol=1e-6)


def test_trap_21_rms_norm_removes_no_mean(dtype):
    y = ops.rms_norm(leaf([1, 2, 3, 4], dtype), np.ones(4, dtype), eps=1e-6)
    assert_allclose(y.data, [0.3651484, 0.7302967, 1.0954452, 1.4605935], rtol=5e-7)


def test_R13_both_forms_of_gelu(dtype):
    x = leaf([-3, -1, 1, 2], dtype)
    exact = [-0.0040497, -0.1586553, 0.8413447, 1.9544997]
    assert_allclose(ops.gelu(x).data, exact, atol=1e-7)
    tanh = [-0.0036374, -0.1588080, 0.8411920, 1.9545977]
    assert_allclose(ops.gelu(x, approximate="tanh").data, tanh, atol=1e-7)


def test_R14_dropout_keeps_and_scales(dtype):
    x = leaf(np.ones(100_000), dtype)
    y = ops.dropout(x, p=0.25, seed=1)
    assert abs(y.data.mean() - 1) < 0.01
    assert set(np.unique(y.data)) == {dtype(0), dtype(1) * (1 / 0.75)}
    y.backward(np.ones(100_000, dtype))
    assert_array_equal(x.grad, y.data)


def test_R14_the_ends_of_p(dtype):
    x = leaf([[1, -2], [3, 4]], dtype)
    for p, wanted in ((0, x.data), (0.0, x.data), (1, 0 * x.data), (1.0, 0 * x.data)):
        x.grad = None
        y = ops.dropout(x, p=p, seed=3)
        y.sum().backward()
        assert_array_equal(y.data, wanted)
        assert_array_equal(x.grad, np.full((2, 2), 1.0 - p))


def test_R14_the_mask_depends_on_the_seed_and_p_alone():
    x = leaf(np.ones((50, 30)))
    masks = [ops.dropout(x, p=0.3, seed=seed).data > 0 for seed in (5, 5, 6)]
    assert_array_equal(masks[0], masks[1])
    assert 0.3 < (masks[0] != masks[2]).mean() < 0.54  # 2 p (1 - p) = 0.42 of independent ones
    for p in (0.1, 0.25, 0.5, 0.9):
        kept = ops.dropout(leaf(np.ones((400, 500))), p=p, seed=7).data > 0
        assert abs(kept.mean() - (1 - p)) < 0.005
        assert abs(kept[:, 1:] ^ kept[:, :-1]).mean() == pytest.approx(2 * p * (1 - p), abs=0.01)
        assert abs(kept[1:] ^ kept[:-1]).mean() == pytest.approx(2 * p * (1 - p), abs=0.01)


def test_R15_the_look_up_adds_nothing_to_the_padding_row():
    weight = leaf(np.arange(8.0).reshape(4, 2))
    y = ops.embedding(weight, np.array([0, 0, 2]), padding_idx=0)
    assert_array_equal(y.data, [[0, 1], [0, 1], [4, 5]])
    y.backward(np.ones((3, 2)))
    assert_array_equal(weight.grad, [[0, 0], [0, 0], [1, 1], [0, 0]])


@pytest.mark.parametrize("bad", [17, -1, -100])
def test_R16_ids_outside_the_vocabulary(bad):
    with pytest.raises(IndexError, match=rf" {bad}\b.*\b17\b"):
        ops.embedding(leaf(np.ones((17, 8))), np.array([[0, bad]]))


@pytest.mark.parametrize("ids", [np.array([[1.0]]), np.array([[True]])])
def test_R16_ids_that_are_no_integers(ids):
    with pytest.raises(TypeError, match=r"float64|bool"):
        ops.embedding(leaf(np.ones((17, 8))), ids)


def plain_loss(logits, labels, **options):
    return ops.cross_entropy(logits, np.array(labels), **options)


def head_loss(logits, labels, **options):
    """linear_cross_entropy behind an identity, so that its logits are these."""
    identity = np.eye(logits.shape[-1], dtype=logits.dtype)
    return ops.linear_cross_entropy(logits, identity, None, np.array(labels), **options)


def twin_loss(logits, labels, **options):
    return reference.cross_entropy(logits, np.array(labels), **options)


LOSSES = [plain_loss, head_loss, twin_loss]
DIAGONAL = np.diag([2.0, 2.0, 2.0])


@pytest.fixture(params=LOSSES, ids=lambda f: f.__name__)
def loss(request):
    return request.param


def test_R25_trap_49_no_label_at_all(loss, dtype):
    for reduction in ("mean", "sum", "none"):
        x = leaf(np.random.default_rng(0).standard_normal((3, 3)), dtype)
        y = loss(x, [-100, -100, -100], reduction=reduction)
        y.backward(np.ones(y.shape, dtype))
        assert_array_equal(y.data, np.zeros(3 if reduction == "none" else ()))
        assert_array_equal(x.grad, np.zeros((3, 3), dtype), strict=True)


def test_R26_the_mean_is_over_counted_labels(loss, dtype):
    x = leaf(DIAGONAL, dtype)
    y = loss(x, [0, -100, 1])
    y.backward()
    assert_allclose(y.data, 1.2395448, rtol=3e-7)
    assert_array_equal(x.grad[1], [0, 0, 0])
    none = loss(x, [0, -100, 1], reduction="none")
    assert_allclose(none.data, [0.2395448, 0, 2.2395448], rtol=3e-7)
    assert_allclose(loss(x, [0, -100, 1], reduction="sum").data, 2 * 1.2395448, rtol=3e-7)


@pytest.mark.parametrize("loss", [plain_loss, head_loss])
def test_R26_other_labels_are_errors(loss):
    for labels in ([0, -4, 1], [0, 3, 1]):
        with pytest.raises(IndexError, match=rf" {labels[1]}\b"):
            loss(leaf(DIAGONAL), labels)
    with pytest.raises(IndexError, match="-100"):
        loss(leaf(DIAGONAL), [0, -100, 1], ignore_index=255)


def test_R26_any_ignore_index(loss):
    for reduction in ("mean", "sum", "none"):
        got = loss(leaf(DIAGONAL), [0, 255, 1], ignore_index=255, reduction=reduction)
        wanted = loss(leaf(DIAGONAL), [0, -100, 1], reduction=reduction)
        assert_array_equal(got.data, wanted.data)


def test_R27_any_finite_logits(loss, dtype):
    cases = [
        ([-431, 279, 427], 0, 858, [-1, 0, 1]),
        ([-1047, -981, 1891], 0, 2938, [-1, 0, 1]),
        ([1e8, 1e8], 1, 0.6931472, [0.5, -0.5]),
        ([0, 200], 0, 200, [-1, 1]),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for logits, label, value, gradient in cases:
            x = leaf([logits], dtype)
            y = loss(x, [label])
            y.backward()
            assert_allclose(y.data, value, rtol=1e-7)
            assert_allclose(x.grad, [gradient], atol=1e-7)


def test_losses_of_features_section_2(loss):
    assert_allclose(loss(leaf([[2, 1, 0.1]]), [0]).data, 0.4170, atol=5e-5)


def test_an_untrained_model_starts_near_the_log_of_its_vocabulary():
    labels, options = np.array([1, 7999]), {"label_smoothing": 0.1}
    loss = ops.cross_entropy(leaf(np.zeros((2, 8000))), labels, **options)
    assert_allclose(loss.data, math.log(8000))
    hidden, weight = leaf(np.ones((2, 3))), np.zeros((8000, 3))
    loss = ops.linear_cross_entropy(hidden, weight, None, labels, **options)
    assert_allclose(loss.data, math.log(8000))


def test_trap_46_label_smoothing_is_over_all_classes(loss):
    y = loss(leaf([[10, 0, 0]]), [0], label_smoothing=0.1)
    assert_allclose(y.data, 0.6667575, atol=5e-8)  # e / (V - 1) would give 1.0000908


def test_trap_47_label_smoothing_and_ignored_labels(loss, dtype):
    x = leaf([[2, 0, -1, 1], [0, 1, 2, 3], [1, 1, 1, 1]], dtype)
    assert_allclose(loss(x, [0, -100, 2]).data, 0.9132420, atol=3e-7)
    y = loss(x, [0, -100, 2], label_smoothing=0.1)
    assert_allclose(y.data, 0.9882420, atol=3e-7)  # over 3 rows it would be 0.6588280
    y.backward()
    assert_array_equal(x.grad[1], np.zeros(4))
    assert_allclose(x.grad.sum(-1), np.zeros(3), atol=1e-7)


def test_softmax_of_a_row_that_sees_nothing(dtype):
    x = leaf([[-np.inf, -np.inf], [-np.inf, 1]], dtype)
    for softmax in (ops.softmax, reference.softmax):
        x.grad = None
        y = softmax(x)
        y.backward(np.array([[1, 2], [3, 4]], dtype))
        assert_array_equal(y.data, [[0, 0], [0, 1]])
        assert_array_equal(x.grad, np.zeros((2, 2)))


def test_softmax_does_not_overflow(dtype):
    x = leaf([[1e4, 1e4 - 1], [-1e4, -1e4]], dtype)
    wanted = [[0.7310586, 0.2689414], [0.5, 0.5]]
    for function in (ops.softmax, reference.softmax):
        assert_allclose(function(x).data, wanted, rtol=1e-6)
    for function in (ops.log_softmax, reference.log_softmax):
        assert_allclose(function(x).data, np.log(wanted), rtol=1e-6)


def test_indexing_of_rivals_1c():
    x = tensor([1.0, 2.0, 3.0], requires_grad=True)
    x[[1, 1, 2]].sum().backward()
    assert_array_equal(x.grad, [0, 2, 1])


# -- values at the edges --------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("junk", [-np.inf, np.nan], ids=["-inf", "nan"])
def test_an_ignored_row_may_hold_anything(junk, reduction):
    logits = tensor(np.array([[junk, 1.0, 2.0], [0.0, 1.0, 2.0]]), requires_grad=True)
    loss = ops.cross_entropy(logits, np.array([-100, 1]), reduction=reduction)
    assert_allclose(loss.data, [0, 1.40760596] if reduction == "none" else 1.40760596)
    loss.sum().backward()
    assert_array_equal(logits.grad[0], 0)
    assert_allclose(logits.grad[1], [0.09003057, -0.75527153, 0.66524096], rtol=1e-6)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gelu_far_from_0_is_0_or_x(approximate, dtype):
    x = tensor(np.array([-1e20, -1e6, -50, 50, 1e6, 1e20], dtype), requires_grad=True)
    y = ops.gelu(x, approximate=approximate)
    y.sum().backward()
    assert_array_equal(y.data, np.maximum(x.data, 0))
    assert_array_equal(x.grad, x.data > 0)


def test_what_is_not_chosen_gets_0_and_not_0_times_infinity():
    x = tensor([-1.0, 1.0], requires_grad=True)
    ops.relu(x).backward([np.inf, 1])
    assert_array_equal(x.grad, [0, 1])
    a, b = tensor([1.0, 2.0], requires_grad=True), tensor([2.0, 1.0], requires_grad=True)
    ops.maximum(a, b).backward([np.inf, 1])
    assert_array_equal(a.grad, [0, 1])
    assert_array_equal(b.grad, [np.inf, 0])
    c = tensor([1.0, 2.0], requires_grad=True)
    ops.max(c).backward(np.inf)
    assert_array_equal(c.grad, [0, np.inf])


def test_buffers_of_ids_may_be_reused_before_backward():
    ids, labels, key = np.array([0]), np.array([1]), np.array([1])
    w, x = tensor(np.eye(3), requires_grad=True), tensor(np.zeros((1, 3)), requires_grad=True)
    loss = ops.embedding(w, ids).sum() + ops.cross_entropy(x, labels) + w[key].sum()
    ids[:], labels[:], key[:] = 2, 2, 2
    loss.backward()
    assert_array_equal(w.grad, [[1, 1, 1], [1, 1, 1], [0, 0, 0]])
    assert_allclose(x.grad, [[1 / 3, -2 / 3, 1 / 3]])


@pytest.mark.parametrize("function", [ops.sum, ops.mean, ops.max, ops.min, ops.var])
def test_an_axis_may_be_an_integer_of_numpys(function):
    x = tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    function(x, axis=np.int64(1)).sum().backward()
    assert x.grad.shape == (2, 3)


def test_astype_of_integers_gives_what_was_asked_for():
    assert tensor(np.array([16777217])).astype(np.float64).data[0] == 16777217


def test_a_failed_call_teaches_an_op_nothing():
    """Integers in an odd place once made the loss take every later label for a number."""
    labels, weight = np.array([0, 1, 1]), tensor(np.ones((2, 4)), requires_grad=True)
    for reduction in ("none", "mean"):
        loss = ops.linear_cross_entropy(
            np.ones((3, 4), int), weight, None, labels, reduction=reduction
        )
        assert_allclose(loss.data, np.full(loss.shape, math.log(2)))


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda x: ops.layer_norm(x, np.ones((2, 3))), ValueError, "'layer_norm'.*one entry"),
        (lambda x: ops.rms_norm(x, np.ones(1)), ValueError, "'rms_norm'.*one entry"),
        (lambda x: ops.dropout(x, p=0.5, seed=None), TypeError, "'dropout'.*seed is None"),
        (
            lambda x: ops.cross_entropy(x, [0, 1], label_smoothing=1.5),
            ValueError,
            "'cross_entropy'.*label_smoothing is 1.5",
        ),
        (lambda x: ops.embedding(x, np.array([2])), IndexError, "'embedding'.*id 2 is outside"),
    ],
)
def test_a_wrong_argument_names_op_and_value(call, error, message):
    with pytest.raises(error, match=message):
        call(tensor(np.ones((2, 3)), requires_grad=True))


# -- memory ---------------------------------------------------------------------------------------

UNNEEDED = {  # ops whose derivative needs the shape of their argument, but not its values
    "sum": lambda h: ops.sum(h, axis=1),
    "mean": lambda h: ops.mean(h),
    "astype": lambda h: h.astype(np.float32),
    "softmax": lambda h: ops.softmax(h),
    "gelu": lambda h: ops.gelu(h),
    "layer_norm": lambda h: ops.layer_norm(h, np.ones(4), np.zeros(4)),
    "rms_norm": lambda h: ops.rms_norm(h, np.ones(4)),
    "dropout": lambda h: ops.dropout(h, p=0.5, seed=1),
}


@pytest.mark.parametrize("function", UNNEEDED.values(), ids=UNNEEDED)
def test_a_graph_keeps_no_argument_for_its_shape_alone(function):
    h = tensor(np.ones((3, 4)), requires_grad=True) + 1.0
    values = weakref.ref(h._data)
    y = function(h)
    del h
    assert y.requires_grad and values() is None


def test_linear_does_not_keep_its_result():
    y = ops.linear(tensor(np.ones((3, 4)), requires_grad=True), np.ones((2, 4)))
    values = weakref.ref(y._data if y._data.base is None else y._data.base)
    loss = y.sum()
    del y
    assert loss.requires_grad and values() is None
