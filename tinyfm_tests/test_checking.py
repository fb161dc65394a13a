"""The checker is checked: right gradients pass, and every way of being wrong is found and named."""

import contextlib
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyfm import GradientError, Tensor, gradcheck, op, ops, tensor
from tinyfm.autograd import registry


def own_op(function):
    """@op as a user writes it, but not left in the registry that test_ops.py goes by."""
    made = op(function)
    registry.remove(made)
    return made


def square(spoil):
    """x * x whose gradient is made wrong by spoil(gradient, x, g)."""

    @own_op
    def spoiled(x):
        return x * x, (lambda g: spoil(2 * x * g, x, g),)

    return spoiled


def point(shape, seed=0):
    values = np.random.default_rng(seed).uniform(0.5, 1.5, shape)
    return tensor(values, requires_grad=True)


def report(f, *tensors, **options):
    """(input, index, what backward gives, what was measured) out of the error's message."""
    with pytest.raises(GradientError) as caught:
        gradcheck(f, *tensors, **options)
    number = r"(nan|-?inf|-?[\d.]+(?:e[-+]\d+)?)"
    words = (
        rf"input (\d+) at \(([\d, ]*)\): backward gives {number} and finite differences {number}"
    )
    found = re.fullmatch(words, str(caught.value))
    assert found, caught.value
    index = tuple(int(n) for n in found[2].split(",") if n.strip())
    return int(found[1]), index, float(found[3]), float(found[4])


SMALL, LARGE = (3, 4), (25, 20)  # below and above max_entries: every entry, or directions

# -- right ones pass -------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,), SMALL, LARGE, (0,), (2, 0, 3)])
def test_a_right_gradient_passes(shape):
    assert gradcheck(square(lambda d, x, g: d), point(shape)) is True


def test_all_inputs_are_checked_and_may_broadcast():
    assert gradcheck(lambda a, b, c: a * b / c, point((2, 3)), point((3,), 1), point((), 2))


def test_inputs_without_requires_grad_are_only_handed_on():
    constant = Tensor(np.array([1.0, 2.0, 3.0]))
    ids = Tensor(np.array([0, 0, 1]))
    assert gradcheck(
        lambda x, c, ids: ops.embedding(x, ids) * c[:, None], point(SMALL), constant, ids
    )


def test_a_tuple_of_outputs():
    assert gradcheck(lambda x: ops.split(x, sections=2, axis=1), point(SMALL))
    assert gradcheck(lambda x: [x * x, x.sum(), x.detach() * 0], point(SMALL))


def test_one_wrong_output_of_several_is_found():
    wrong = square(lambda d, x, g: 2 * d)
    assert report(lambda x: (x * 2, wrong(x)), point(SMALL))[:2] == (0, (0, 0))


def test_parameters_that_the_function_reaches_by_itself():
    weight, bias, x = point((2, 4)), point((2,)), np.ones((3, 4))
    assert gradcheck(lambda *_: ops.linear(x, weight, bias).tanh(), weight, bias)


def test_a_wrong_gradient_of_a_parameter_reached_by_itself_is_found():
    weight = point((2, 4))
    wrong = square(lambda d, x, g: d * 1.001)
    found = report(lambda *_: wrong(weight).sum(), weight)
    assert found[:2] == (0, (0, 0))


def test_an_output_of_zero_size():
    assert gradcheck(lambda x: x[:0] * 2, point(SMALL))


@given(st.integers(0, 2**32 - 1), st.sampled_from([(), (2,), (2, 3), (9, 9)]))
def test_smooth_functions_pass_wherever_they_are_evaluated(seed, shape):
    x, y = point(shape, seed), point(shape, seed + 1)
    gradcheck(lambda x, y: (x * y).tanh() + ops.exp(-x) / y + (x @ y if x.ndim == 1 else x), x, y)


# -- wrong ones do not -----------------------------------------------------------------------------

FAULTS = {
    "factor 2": lambda d, x, g: 2 * d,
    "a hundredth too much": lambda d, x, g: 1.01 * d,
    "wrong sign": lambda d, x, g: -d,
    "zeros": lambda d, x, g: 0 * d,
    "g alone": lambda d, x, g: g * 1,
    "g forgotten": lambda d, x, g: 2 * x,
    "an entry forgotten": lambda d, x, g: d * (np.arange(d.size).reshape(d.shape) != d.size // 2),
    "a constant too much": lambda d, x, g: d + 1e-3,
    "nan": lambda d, x, g: d * np.nan,
    "inf": lambda d, x, g: d + np.inf,
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("shape", [(), SMALL, LARGE], ids=["0-d", "small", "large"])
def test_a_wrong_gradient_is_found_and_its_entry_told(fault, shape):
    """The index is one where the gradient is wrong, and both values are those of that entry."""
    seen = {}

    def spoil(d, x, g):
        seen["said"], seen["right"] = FAULTS[fault](d, x, g), d
        return seen["said"]

    number, index, said, measured = report(square(spoil), point(shape))
    assert number == 0
    assert len(index) == len(shape)
    np.testing.assert_allclose(said, seen["said"][index], rtol=1e-8)
    np.testing.assert_allclose(measured, seen["right"][index], rtol=1e-5, atol=1e-7)
    assert seen["said"][index] != seen["right"][index]


@pytest.mark.parametrize("value", [100.0, 1.0, -1.0, np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 4321, 9999])
def test_one_wrong_entry_in_10000(place, value):
    def spoil(d, x, g):
        d = d.copy()
        d.reshape(-1)[place] += value
        return d

    _, index, said, measured = report(square(spoil), point((100, 100)))
    assert index == np.unravel_index(place, (100, 100))
    assert not abs(said - measured) < 0.99 * abs(value)


def test_the_input_is_named():
    wrong = square(lambda d, x, g: 3 * d)
    right, other = point(SMALL), point((2,), 1)
    assert report(lambda a, b: (a * 2).sum() * wrong(b), right, other)[0] == 1
    assert report(lambda a, b: (a * 2).sum() * wrong(b), right.detach(), other)[0] == 1


def test_a_wrong_entry_is_named_by_its_index():
    def spoil(d, x, g):
        d = d.copy()
        d[1, 2] = 0.125
        return d

    number, index, said, _ = report(lambda x: square(spoil)(x).sum(), point(SMALL))
    assert (number, index, said) == (0, (1, 2), 0.125)


def test_a_missing_dependence_is_found():
    assert report(lambda x: x * x.detach(), point(SMALL))[:2] == (0, (0, 0))
    number, _, said, measured = report(lambda x: x.detach() * 1, point(LARGE))
    assert (number, said) == (0, 0)
    assert measured != 0


def test_a_vjp_that_edits_the_gradient_it_was_given_is_found():
    """add hands one g to both of its inputs: who writes into it spoils the other's."""

    @own_op
    def doubled(x):
        def vjp(g):
            g *= 2
            return g

        return 2 * x, (vjp,)

    def f(x):
        h = x * 1
        return h + doubled(h)

    report(f, point(SMALL))


def test_a_vjp_that_hands_out_one_buffer_for_two_calls_is_found():
    buffer = np.empty(SMALL)

    @own_op
    def lazy(x):
        def vjp(g):
            np.multiply(g, 2 * x, out=buffer)
            return buffer

        return x * x, (vjp,)

    def f(x):
        h = x * 1
        return lazy(h) * 2 + lazy(h + 1)

    report(f, point(SMALL))


def test_a_missing_sum_over_repeats_is_found():
    @own_op
    def pick(x, *, key):
        def vjp(g):
            out = np.zeros_like(x)
            out[key] = g
            return out

        return x[key], (vjp,)

    assert report(lambda x: pick(x, key=[1, 1, 2]), point((3,)))[1] == (1,)
    assert gradcheck(lambda x: pick(x, key=[0, 1, 2]), point((3,)))


def test_dropout_whose_backward_draws_another_mask_is_found():
    @own_op
    def stale(x, *, seed):
        def mask(seed):
            return np.random.default_rng(seed).random(x.shape) < 0.5

        return x * mask(seed), (lambda g: g * mask(seed + 1),)

    report(lambda x: stale(x, seed=1), point(SMALL))


def test_tolerances_can_be_set():
    slightly = square(lambda d, x, g: d * 1.001)
    report(slightly, point(SMALL))
    assert gradcheck(slightly, point(SMALL), rtol=1e-2)


def test_max_entries_chooses_between_entries_and_directions():
    """Two errors that cancel along some directions are found entry by entry."""

    def spoil(d, x, g):
        d = d.copy()
        d[:2] += 1
        return d

    assert report(square(spoil), point((100,)), max_entries=100)[1] == (0,)
    assert report(square(spoil), point((100,)), max_entries=10)[1] in [(0,), (1,)]


# -- what could not mean anything is refused -------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_low_precision_is_refused(dtype):
    x = tensor(np.ones(3, dtype), requires_grad=True)
    with pytest.raises(ValueError, match=rf"input 1 is {np.dtype(dtype)}.*float64"):
        gradcheck(lambda a, b: a, point((3,)), x)


def test_float32_without_gradient_is_refused_too():
    with pytest.raises(ValueError, match=r"input 1 is float32.*float64"):
        gradcheck(lambda a, b: a, point((3,)), tensor([1.0]))


def test_no_input_with_requires_grad_is_refused():
    for inputs in [(), (tensor(np.ones(2)),)]:
        with pytest.raises(ValueError, match="no input has requires_grad"):
            gradcheck(lambda *x: tensor(1.0), *inputs)


def test_a_random_function_is_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"gives two results for the same inputs.*seed"):
        gradcheck(lambda x: x * rng.random(), point(SMALL))


def test_dropout_with_a_seed_is_accepted():
    assert gradcheck(lambda x: ops.dropout(x, p=0.5, seed=3), point(LARGE))


def test_a_function_that_changes_its_input_is_refused_or_wrong():
    def f(x):
        with x.writing() as values:
            values += 1
        return x * x

    with pytest.raises((ValueError, GradientError, RuntimeError)):
        gradcheck(f, point(SMALL))


# -- nothing is left behind ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spoil", [lambda d, x, g: d, lambda d, x, g: 2 * d], ids=["right", "wrong"]
)
@pytest.mark.parametrize("shape", [(), SMALL, LARGE], ids=["0-d", "small", "large"])
def test_data_and_grad_are_left_as_they_were(shape, spoil):
    x, y = point(shape), point(shape, 1)
    x.grad = kept = np.full(shape, 5.0)
    before, array, grad = x.data.copy(), x._data, kept.copy()
    with contextlib.suppress(GradientError):
        gradcheck(lambda x, y: square(spoil)(x) * y, x, y)
    assert x._data is array
    assert x.data.tolist() == before.tolist()
    assert x.grad is kept
    assert kept.tolist() == grad.tolist()
    assert y.grad is None


@pytest.mark.parametrize("fails_at_call", [1, 2, 3, 4])
def test_an_exception_of_the_function_leaves_data_and_grad(fails_at_call):
    x = point(SMALL)
    x.grad = kept = np.ones(SMALL)
    array, calls = x._data, []

    def f(x):
        calls.append(1)
        if len(calls) == fails_at_call:
            raise ZeroDivisionError
        return x * x

    with pytest.raises(ZeroDivisionError):
        gradcheck(f, x)
    assert x._data is array
    assert x.grad is kept


def test_a_0d_input_stays_an_array_for_the_function():
    """Moving a 0-d array must not make a NumPy scalar of it."""
    kinds = set()

    def f(x):
        kinds.add(type(x.data))
        return x + (x * 0.5 + x)

    assert gradcheck(f, point(()))
    assert kinds == {np.ndarray}


def test_a_wrong_gradient_of_a_tiny_function_is_found():
    @op
    def tiny(x):
        return x * 1e-8, (lambda g: g * 0,)

    with pytest.raises(GradientError):
        gradcheck(tiny, tensor(np.ones(3), requires_grad=True))


def test_what_is_no_tensor_is_refused():
    with pytest.raises(TypeError, match="input 1 is ndarray"):
        gradcheck(ops.add, tensor(np.ones(2), requires_grad=True), np.ones(2))


def test_strong_curvature_is_not_taken_for_a_wrong_gradient():
    """The difference of 1e6 x**3 over 2 h is 1e6 h**2 at 0, where the derivative is 0."""
    x = tensor(np.zeros(1), requires_grad=True)
    assert gradcheck(lambda x: 1e6 * x * x * x, x)
    many = tensor(np.zeros(100), requires_grad=True)
    assert gradcheck(lambda x: 1e6 * x * x * x, many)
