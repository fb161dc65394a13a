"""Optimizers against loops over numbers, clipping, schedules: requirements R33 to R37."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import tinyfm
from tinyfm import nn, optim, tensor


def parameter(values, gradient=None, dtype=np.float64):
    p = nn.Parameter(np.array(values, dtype))
    if gradient is not None:
        p.grad = np.array(gradient, dtype)
    return p


def stepped(optimizer, gradients):
    """The values of the optimizer's first parameter after each step with the gradients."""
    (p,) = optimizer.params
    seen = []
    for g in gradients:
        p.grad = np.array(g, p.dtype)
        optimizer.step()
        seen.append(p.data.copy())
    return seen


# -- plain references, one number at a time --------------------------------------------------------


def sgd(p, gradients, lr):
    for g in gradients:
        p -= lr * g
    return p


def adam(p, gradients, lr, betas, eps, weight_decay=0.0, bias_correction=True):
    m = v = 0.0
    for t, g in enumerate(gradients, 1):
        p -= lr * weight_decay * p
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        c1, c2 = (1 - betas[0] ** t, 1 - betas[1] ** t) if bias_correction else (1, 1)
        p -= lr * (m / c1) / (math.sqrt(v / c2) + eps)
    return p


OPTIONS = {"lr": 0.03, "betas": (0.8, 0.95), "eps": 1e-3}
KINDS = {
    "sgd": (lambda p: optim.SGD(p, lr=0.1), lambda p, g: sgd(p, g, 0.1)),
    "adam": (lambda p: optim.Adam(p, **OPTIONS), lambda p, g: adam(p, g, **OPTIONS)),
    "adamw": (
        lambda p: optim.AdamW(p, **OPTIONS, weight_decay=0.2),
        lambda p, g: adam(p, g, **OPTIONS, weight_decay=0.2),
    ),
    "adamw without bias correction": (
        lambda p: optim.AdamW(p, **OPTIONS, weight_decay=0.2, bias_correction=False),
        lambda p, g: adam(p, g, **OPTIONS, weight_decay=0.2, bias_correction=False),
    ),
}
numbers = st.floats(-3, 3, allow_subnormal=False)


@pytest.mark.parametrize("kind", KINDS)
@given(start=numbers, gradients=st.lists(numbers, min_size=1, max_size=6))
def test_steps_are_those_of_the_formula(kind, start, gradients):
    make, reference = KINDS[kind]
    seen = stepped(make([parameter([start])]), [[g] for g in gradients])
    assert_allclose(seen[-1], [reference(start, gradients)], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 7), (2, 3, 5)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_entry_has_its_own_step(kind, shape, order):
    make, reference = KINDS[kind]
    rng = np.random.default_rng(0)
    p = nn.Parameter(np.asarray(rng.standard_normal(shape), order=order))
    start, gradients = p.data.copy(), rng.standard_normal((3, *shape))
    stepped(make([p]), gradients)
    for index in np.ndindex(shape):
        wanted = reference(float(start[index]), [float(g[index]) for g in gradients])
        assert_allclose(p.data[index], wanted, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_on_two_threads_give_what_one_block_gives(kind):
    rng = np.random.default_rng(0)
    start, gradients = rng.standard_normal((37, 11)), rng.standard_normal((3, 37, 11))
    results = []
    for settings in ({"threads": 1}, {"block_bytes": 64, "threads": 2}):
        p = parameter(start, dtype=np.float32)
        with tinyfm.settings(**settings):
            stepped(KINDS[kind][0]([p]), gradients)
        results.append(p.data)
    assert_array_equal(results[0], results[1], strict=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_reads_the_gradient_and_does_not_write_it(kind):
    p = parameter([1.0, 2.0], gradient=[3.0, -4.0])
    KINDS[kind][0]([p]).step()
    assert_array_equal(p.grad, [3, -4])


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_in_place_and_dated(kind):
    """The array stays the same, and a backward over the old values raises."""
    p = parameter([1.0, 2.0], gradient=[1.0, 1.0])
    array, y = p._data, (p * p).sum()
    KINDS[kind][0]([p]).step()
    assert p._data is array
    with pytest.raises(RuntimeError, match="written since"):
        y.backward()


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_without_a_gradient_are_left_alone(kind):
    p, q = parameter([1.0]), parameter([1.0], gradient=[1.0])
    optimizer = KINDS[kind][0]([p, q])
    optimizer.step()
    assert p.data == [1] and q.data < 1
    assert optimizer.state[0] == {}


def test_the_factor_of_a_schedule_scales_the_rate():
    p = parameter([1.0], gradient=[1.0])
    optim.SGD([p], lr=0.5).step(0.5)
    assert_allclose(p.data, [0.75])
    q = parameter([1.0], gradient=[0.0])
    optim.AdamW([q], lr=0.5, weight_decay=0.1).step(0.5)  # the decay too
    assert_allclose(q.data, [1 - 0.5 * 0.5 * 0.1])


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.AdamW])
def test_a_rate_from_numpy_does_not_change_the_arithmetic(kind):
    values = np.random.default_rng(0).standard_normal((3, 100)).astype(np.float32)
    plain, numpys = (nn.Parameter(values[0].copy()) for _ in range(2))
    for p, number in ((plain, float), (numpys, np.float64)):
        optimizer = kind([p], lr=number(0.1))
        for gradient in values[1:]:
            p.grad = gradient.copy()
            optimizer.step(number(0.7))
    assert_array_equal(numpys.data, plain.data, strict=True)


@pytest.mark.parametrize("kind", KINDS)
def test_zero_gradients_give_no_nan(kind):
    p = parameter([0.0, 0.0])
    (last,) = stepped(KINDS[kind][0]([p]), [[0.0, 0.0]])
    assert_array_equal(last, [0, 0])


def test_zero_grad():
    p = parameter([1.0], gradient=[1.0])
    optim.SGD([p], lr=0.1).zero_grad()
    assert p.grad is None


def test_decay_predicate_sees_the_parameter():
    weight, bias = parameter([[1.0]], gradient=[[0.0]]), parameter([1.0], gradient=[0.0])
    optimizer = optim.AdamW([weight, bias], lr=0.1, weight_decay=0.5, decay=lambda p: p.ndim > 1)
    optimizer.step()
    assert_allclose(weight.data, [[0.95]])
    assert_array_equal(bias.data, [1.0])


# -- state in and out ------------------------------------------------------------------------------


def three(dtype=np.float64, seed=0):
    """A scalar, a matrix, and a parameter that is never reached."""
    rng = np.random.default_rng(seed)
    shapes = ((), (3, 2), (4,))
    return [nn.Parameter(np.asarray(rng.standard_normal(shape), dtype)) for shape in shapes]


def walk(optimizer, gradients):
    for scalar, matrix in gradients:
        for p, g in zip(optimizer.params, (scalar, matrix), strict=False):
            p.grad = np.asarray(g, p.dtype)
        optimizer.step()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(before=st.integers(0, 3), after=st.integers(1, 3))
def test_r38_a_state_dict_goes_on_bit_for_bit(kind, dtype, before, after):
    rng = np.random.default_rng(1)
    gradients = [(rng.standard_normal(()), rng.standard_normal((3, 2))) for _ in range(6)]
    whole = KINDS[kind][0](three(dtype))
    walk(whole, gradients[: before + after])
    first, again = KINDS[kind][0](three(dtype)), KINDS[kind][0](three(dtype, seed=9))
    walk(first, gradients[:before])
    for p, q in zip(first.params, again.params, strict=True):
        q.data = p.data
    again.load_state_dict(first.state_dict())
    walk(again, gradients[before : before + after])
    for p, q in zip(whole.params, again.params, strict=True):
        assert_array_equal(q.data, p.data, strict=True)
    for left, right in zip(whole.state_dict()["state"], again.state_dict()["state"], strict=True):
        assert left.keys() == right.keys()
        for name in left:
            assert type(left[name]) is type(right[name])
            assert_array_equal(right[name], left[name], strict=True)


def test_a_state_dict_is_what_the_formulas_say():
    optimizer = optim.Adam([parameter([1.0]), parameter([1.0])], betas=(0.8, 0.9))
    for g in (1.0, 3.0):
        optimizer.params[0].grad = np.array([g])
        optimizer.step()
    state = optimizer.state_dict()
    assert state["kind"] == "Adam"
    (entry, untouched) = state["state"]
    assert untouched == {}
    assert entry["t"] == 2
    assert_allclose(entry["m"], [0.8 * 0.2 * 1 + 0.2 * 3])
    assert_allclose(entry["v"], [0.9 * 0.1 * 1 + 0.1 * 9])
    assert optim.SGD(three(), 0.1).state_dict() == {"kind": "SGD", "state": [{}, {}, {}]}


def test_a_state_is_read_only_and_loading_copies_it():
    first, again = optim.Adam([parameter([1.0], [1.0])]), optim.Adam([parameter([1.0], [1.0])])
    first.step()
    (entry,) = first.state_dict()["state"]
    with pytest.raises(ValueError, match="read-only"):
        entry["m"][...] = 0
    again.load_state_dict(first.state_dict())
    again.step()
    assert (first.state[0]["t"], again.state[0]["t"]) == (1, 2)
    assert_allclose(entry["m"], [0.1])


def test_r38_an_update_after_loading_counts_with_python_integers():
    """A NumPy integer from a file would turn the bias correction into float64 scalars."""
    optimizer = optim.Adam([parameter([1.0], dtype=np.float32)])
    moments = {"m": np.ones(1, np.float32), "v": np.ones(1, np.float32)}
    optimizer.load_state_dict({"kind": "Adam", "state": [{"t": np.array(3), **moments}]})
    assert type(optimizer.state[0]["t"]) is int and optimizer.state[0]["t"] == 3


GOOD = {"t": 1, "m": np.ones(2), "v": np.ones(2)}


@pytest.mark.parametrize(
    "state, message",
    [
        ({"kind": "SGD", "state": [GOOD]}, "is of SGD, and this is Adam"),
        ({"kind": "AdamW", "state": [GOOD]}, "is of AdamW, and this is Adam"),
        ({"kind": "Adam", "state": []}, "of 0 parameters, not of 1"),
        ({"kind": "Adam", "state": [GOOD, GOOD]}, "of 2 parameters, not of 1"),
        (
            {"kind": "Adam", "state": [GOOD | {"m": np.ones(3)}]},
            r"parameter 0 .* m is \(3,\) float64",
        ),
        ({"kind": "Adam", "state": [GOOD | {"v": np.ones(2, "f")}]}, r"v is .*float32 instead of"),
        ({"kind": "Adam", "state": [{"t": 1, "m": np.ones(2)}]}, r"\['m', 't'\] instead of"),
        ({"kind": "Adam", "state": [GOOD | {"x": 1}]}, r"'x'\] instead of \['m', 't', 'v'\]"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_nothing_changes(state, message):
    optimizer = optim.Adam([parameter([1.0, 2.0], gradient=[1.0, 1.0])])
    optimizer.step()
    before = optimizer.state
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(state)
    assert optimizer.state is before


# -- R33 to R35 ------------------------------------------------------------------------------------


def test_r33_each_parameter_counts_its_own_steps_from_1():
    p, q = parameter([1.0]), parameter([1.0])
    optimizer = optim.Adam([p, q], lr=1e-3)
    for wanted in (0.999, 0.998, 0.997):
        p.grad, q.grad = np.ones(1), np.ones(1)
        optimizer.step()
        assert_allclose([p.data, q.data], [[wanted], [wanted]], atol=1e-9)


def test_r33_a_parameter_that_joins_late_starts_at_1():
    p, q = parameter([1.0]), parameter([1.0])
    optimizer = optim.Adam([p, q], lr=1e-3)
    p.grad = np.ones(1)
    optimizer.step()
    q.grad = np.ones(1)
    optimizer.step()
    assert_allclose(q.data, [0.999], atol=1e-9)
    assert [state["t"] for state in optimizer.state] == [2, 1]


def test_r34_decay_is_decoupled():
    no_gradient = optim.AdamW([parameter([1.0])], lr=0.1, weight_decay=0.1)
    assert_allclose(stepped(no_gradient, [[0.0], [0.0]]), [[0.99], [0.9801]], rtol=1e-12)
    optimizer = optim.AdamW([parameter([1.0])], lr=0.1, weight_decay=0.01)
    seen = stepped(optimizer, [[0.5], [-0.25], [0.1]])
    assert_allclose(seen, [[0.8990000], [0.8714673], [0.8390715]], atol=1e-7)


def test_r35_a_shared_parameter_counts_once():
    class Shared(nn.Module):
        def __init__(self):
            self.first = nn.Linear(1, 1, bias=False, init=nn.ones).to(dtype=np.float64)
            self.second = self.first

        def forward(self, x):
            return self.first(x) + self.second(x)

    model = Shared()
    assert len(model.parameters()) == 1
    model(np.ones((1, 1))).sum().backward()
    assert_array_equal(model.first.weight.grad, [[2.0]])
    assert optim.clip_grad_norm(model.parameters(), 10.0) == 2.0
    optim.SGD(model.parameters(), lr=0.1).step()
    assert_allclose(model.first.weight.data, [[0.8]])


def test_r35_a_parameter_given_twice_is_refused():
    p = parameter([1.0])
    with pytest.raises(ValueError, match="a parameter is given twice"):
        optim.SGD([p, p], lr=0.1)
    optim.SGD([p, parameter([1.0])], lr=0.1)  # equal values are not the same parameter


# -- R36: clipping ---------------------------------------------------------------------------------


def clipped(gradients, limit):
    """(what clip_grad_norm returns, the gradients after it)."""
    params = [nn.Parameter(np.zeros(np.shape(g))) for g in gradients]
    for p, g in zip(params, gradients, strict=True):
        p.grad = None if g is None else np.array(g)
    norm = optim.clip_grad_norm(params, limit)
    return norm, [p.grad for p in params]


def test_r36_a_large_gradient_is_scaled_down_to_the_limit():
    norm, grads = clipped([[3.0], [4.0]], 1.0)
    assert norm == 5
    assert_allclose(grads, [[0.6], [0.8]], atol=1e-6)


def test_r36_a_small_gradient_is_untouched():
    norm, grads = clipped([[0.3], [0.4]], 1.0)
    assert norm == pytest.approx(0.5)
    assert_array_equal(grads, [[0.3], [0.4]])
    norm, grads = clipped([[3.0], [4.0]], 5.0)  # just at the limit
    assert_array_equal(grads, [[3.0], [4.0]])


@pytest.mark.parametrize("limit", [1.0, 0.0])
def test_r36_zero_gradients_stay_zero(limit):
    norm, grads = clipped([[0.0], [0.0, 0.0]], limit)
    assert norm == 0
    assert_array_equal(np.concatenate(grads), [0, 0, 0])


def test_r36_a_limit_of_0_makes_them_0():
    norm, grads = clipped([[3.0], [4.0]], 0.0)
    assert norm == 5
    assert_array_equal(grads, [[0], [0]])


def test_r36_parameters_without_gradient_count_nothing():
    norm, grads = clipped([[3.0], None, [[4.0]]], 1.0)
    assert norm == 5
    assert grads[1] is None
    assert_allclose(grads[2], [[0.8]])
    assert clipped([None], 1.0)[0] == 0


@pytest.mark.parametrize("limit", [-1.0, math.nan])
def test_r36_a_negative_limit_is_refused(limit):
    with pytest.raises(ValueError, match="max_norm is"):
        clipped([[3.0]], limit)


def test_clipping_takes_any_iterable_and_keeps_the_dtype():
    p = parameter([3.0, 4.0], gradient=[3.0, 4.0], dtype=np.float32)
    array = p.grad
    assert optim.clip_grad_norm((q for q in [p]), math.inf) == 5
    assert optim.clip_grad_norm(iter([p]), np.float64(1.0)) == 5
    assert p.grad is array and array.dtype == np.float32
    assert_allclose(array, [0.6, 0.8], rtol=1e-6)


def test_the_norm_of_a_gradient_that_is_not_finite():
    assert math.isnan(clipped([[3.0], [math.nan]], 1.0)[0])
    assert clipped([[math.inf]], math.inf)[0] == math.inf


# -- bad options -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda p: optim.SGD(p, lr=-1.0), "lr is -1"),
        (lambda p: optim.SGD(p, lr=math.nan), "lr is nan"),
        (lambda p: optim.Adam(p, lr=-1.0), "lr is -1"),
        (lambda p: optim.Adam(p, betas=(1.0, 0.9)), "betas are"),
        (lambda p: optim.Adam(p, betas=(0.9, -0.1)), "betas are"),
        (lambda p: optim.Adam(p, eps=-1.0), "eps is -1"),
        (lambda p: optim.AdamW(p, weight_decay=-0.1), "weight_decay is -0.1"),
    ],
)
def test_bad_options_name_themselves(make, message):
    with pytest.raises(ValueError, match=message):
        make([parameter([1.0])])


# -- R37 and the other schedules -------------------------------------------------------------------


@pytest.mark.parametrize(
    "step, rate", [(1, 1.746928e-07), (4000, 6.987712e-04), (16000, 3.493856e-04)]
)
def test_r37_noam(step, rate):
    assert optim.noam(512, 4000)(step) == pytest.approx(rate, rel=1e-6)


def test_r37_noam_peaks_at_the_warmup_step_and_has_no_zero_division():
    schedule = optim.noam(64, 10)
    rates = [schedule(step) for step in range(1, 40)]
    assert rates.index(max(rates)) == 9
    assert schedule(0) == schedule(1) > 0
    assert optim.noam(64, 0)(1) == 64**-0.5  # no warmup: falls from the first step


def test_r37_noam_is_the_rate_itself():
    """lr = 1 gives the paper's rate: one step of SGD on a gradient of 1 moves by just that."""
    p = parameter([0.0], gradient=[1.0])
    optim.SGD([p], lr=1.0).step(optim.noam(512, 4000)(1))
    assert_allclose(p.data, [-1.746928e-07], rtol=1e-6)


def test_linear():
    schedule = optim.linear(warmup=4, total=10)
    values = [schedule(step) for step in (1, 2, 4, 5, 7, 10, 11)]
    assert values == pytest.approx([1 / 4, 2 / 4, 1, 5 / 6, 3 / 6, 0, 0])
    assert [optim.linear(0, 2)(step) for step in (1, 2)] == [0.5, 0]


def test_cosine():
    schedule = optim.cosine(warmup=4, total=12)
    values = [schedule(step) for step in (1, 4, 6, 8, 12, 13)]
    assert values == pytest.approx([1 / 4, 1, 0.5 + 0.5 * math.sqrt(0.5), 0.5, 0, 0])


def test_constant():
    assert [optim.constant()(step) for step in (1, 1000)] == [1, 1]


@pytest.mark.parametrize("make", [optim.linear, optim.cosine])
def test_schedules_whose_end_is_their_warmup(make):
    assert [make(3, 3)(step) for step in (3, 4)] == [1, 0]


# -- beside torch ----------------------------------------------------------------------------------


@pytest.mark.parity
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW"])
def test_ten_steps_equal_torchs(kind):
    import torch

    rng = np.random.default_rng(0)
    shapes = [(3, 4), (4,), (2, 3, 2)]
    starts = [rng.standard_normal(shape) for shape in shapes]
    ours = [parameter(x) for x in starts]
    theirs = [torch.tensor(x, requires_grad=True) for x in starts]
    options = {"SGD": {"lr": 0.1}, "Adam": OPTIONS, "AdamW": OPTIONS | {"weight_decay": 0.3}}[kind]
    mine, other = (
        getattr(optim, kind)(ours, **options),
        getattr(torch.optim, kind)(theirs, **options),
    )
    for _ in range(10):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = rng.standard_normal(p.shape)
            q.grad = torch.tensor(p.grad)
        mine.step()
        other.step()
    for p, q in zip(ours, theirs, strict=True):
        assert_allclose(p.data, q.detach().numpy(), atol=1e-9)


@pytest.mark.parity
def test_decay_predicate_equals_torchs_groups():
    import torch

    rng = np.random.default_rng(1)
    weight, bias = rng.standard_normal((3, 2)), rng.standard_normal(3)
    ours = [parameter(weight), parameter(bias)]
    theirs = [torch.tensor(weight, requires_grad=True), torch.tensor(bias, requires_grad=True)]
    mine = optim.AdamW(ours, **OPTIONS, weight_decay=0.3, decay=lambda p: p.ndim > 1)
    groups = [
        {"params": [p], "weight_decay": decay} for p, decay in zip(theirs, (0.3, 0.0), strict=True)
    ]
    other = torch.optim.AdamW(groups, **OPTIONS)
    for _ in range(5):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = rng.standard_normal(p.shape)
            q.grad = torch.tensor(p.grad)
        mine.step()
        other.step()
    for p, q in zip(ours, theirs, strict=True):
        assert_allclose(p.data, q.detach().numpy(), atol=1e-9)


@pytest.mark.parity
@pytest.mark.parametrize("limit", [0.5, 100.0])
def test_clipping_equals_torchs(limit):
    import torch

    rng = np.random.default_rng(2)
    grads = [rng.standard_normal(shape) for shape in ((3, 4), (5,))]
    theirs = [torch.zeros(g.shape, dtype=torch.float64, requires_grad=True) for g in grads]
    for q, g in zip(theirs, grads, strict=True):
        q.grad = torch.tensor(g)
    wanted = torch.nn.utils.clip_grad_norm_(theirs, limit)
    norm, ours = clipped(grads, limit)
    assert norm == pytest.approx(float(wanted))
    for g, q in zip(ours, theirs, strict=True):
        assert_allclose(g, q.grad.numpy(), rtol=1e-5)  # torch adds 1e-6 to the norm


def test_an_optimizer_learns():
    """All of it at once: each optimizer finds the least squares solution of y = 2 x - 1."""
    x = np.linspace(-1, 1, 20)[:, None]
    for make in (lambda p: optim.SGD(p, 0.5), lambda p: optim.Adam(p, 0.05)):
        w, b = parameter([[0.0]]), parameter([0.0])
        optimizer = make([w, b])
        for _ in range(300):
            optimizer.zero_grad()
            error = tensor(x) * w + b - (2 * x - 1)
            (error * error).mean().backward()
            optimizer.step()
        assert_allclose([w.data.item(), b.data.item()], [2, -1], atol=1e-3)


# -- what is no list of parameters ----------------------------------------------------------------


@pytest.mark.parametrize(
    "params, error, message",
    [
        (tensor([1.0, 2.0], requires_grad=True), TypeError, "one Tensor: give a list"),
        ([], ValueError, "at least one parameter"),
        ([tensor([1.0], requires_grad=True) * 2], TypeError, "the result of an op"),
        ([("weight", tensor([1.0]))], TypeError, "holds tuple"),
        ([np.ones(2)], TypeError, "holds ndarray"),
    ],
)
def test_an_optimizer_takes_leaf_tensors_only(params, error, message):
    with pytest.raises(error, match=message):
        optim.SGD(params, 0.1)


def test_clipping_one_tensor_by_itself_is_refused():
    with pytest.raises(TypeError, match="one Tensor: give a list"):
        optim.clip_grad_norm(tensor([1.0, 2.0], requires_grad=True), 1.0)


def test_r35_a_parameter_given_twice_counts_once_in_the_norm():
    w = tensor([1.0, 2.0, 3.0], requires_grad=True)
    (w * w).sum().backward()
    assert optim.clip_grad_norm([w, w], 1.0) == pytest.approx(math.sqrt(56))
    assert_allclose(w.grad, np.array([2, 4, 6]) / math.sqrt(56), rtol=1e-6)


def test_r36_a_norm_beyond_the_square_root_of_float32_is_finite():
    w = tensor([0.0, 0.0], requires_grad=True)
    w.grad = np.array([3e30, 4e30], np.float32)
    assert optim.clip_grad_norm([w], 1.0) == pytest.approx(5e30)
    assert_allclose(w.grad, [0.6, 0.8], rtol=1e-6)
