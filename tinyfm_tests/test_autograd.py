"""The engine: order and price of backward, whose memory a gradient is, what may change, dtypes.

Most of these are faults that were measured in other small frameworks (silently wrong gradients for
`x + y`, recursion in long chains, float64 creeping in); each test holds one of them.
"""

import gc
import itertools
import operator
import subprocess
import sys
import textwrap
import tracemalloc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyfm
from tinyfm import Tensor, gradcheck, no_grad, op, ops, tensor
from tinyfm.autograd import Node, registry

settings_of_graphs = settings(max_examples=max(30, settings.default.max_examples // 2))


def leaf(*values, dtype=np.float32):
    return tensor(np.array(values, dtype), requires_grad=True)


def own_op(function):
    """@op as a user writes it, but not left in the registry that test_ops.py goes by."""
    made = op(function)
    registry.remove(made)
    return made


def alive():
    """How many tensors and nodes there are in this process."""
    return sum(type(o) in (Node, Tensor) for o in gc.get_objects())


@pytest.fixture
def no_gc():
    """Whatever is freed is freed by reference counting."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


# -- order, and one call for each node (R1) --------------------------------------------------------


def test_r1_a_diamond_of_sums():
    a = leaf(1.0)
    b = a + a
    (b + b).backward()
    assert a.grad == 4


def test_r1_products_of_sums_and_products():
    a, b = leaf(2.0), leaf(3.0)
    p, q = a + b, a * b
    ((p + q) + (p * q)).backward()
    assert (a.grad, b.grad) == (25, 19)


def test_r1_one_tensor_four_times():
    x = leaf(1.0)
    (2 * x * x + x * x).backward()
    assert x.grad == 6


def test_r1_sixty_doublings_call_sixty_vjps(monkeypatch):
    calls = []
    add = ops.add.__wrapped__

    def counted(a, b):
        y, (first, second) = add(a, b)
        return y, (lambda g: calls.append(1) or first(g), second)

    monkeypatch.setattr(ops.add, "__wrapped__", counted)
    x = leaf(1.0, dtype=np.float64)
    y = x
    for _ in range(60):
        y = y + y
    y.backward()
    assert len(calls) == 60
    assert x.grad == 2.0**60


def test_r1_a_vjp_waits_for_all_consumers():
    """The consumers sit at different depths; the vjp sees their sum, once."""
    seen = []

    @own_op
    def spy(x):
        return x * 1, (lambda g: seen.append(g.copy()) or g,)

    h = spy(leaf(1.0))
    (h + ((h * 2) * 3) * 4 + h).backward()
    assert [g.tolist() for g in seen] == [[26.0]]


def test_an_unused_consumer_changes_nothing():
    x = leaf(1.0, 2.0)
    h = x * 2
    unused = (h * 100, h.sum(), ops.split(h, sections=2))
    (h * 3).sum().backward()
    assert x.grad.tolist() == [6, 6]
    assert len(unused) == 3


def test_only_what_the_result_depends_on_gets_a_gradient():
    x, y = leaf(1.0), leaf(2.0)
    z = x * y.detach()
    z.backward()
    assert (x.grad, y.grad) == (2, None)


def test_two_backwards_add_up_on_leaves():
    x = leaf(1.0, 2.0)
    for _ in range(2):
        (x * x).sum().backward()
    assert x.grad.tolist() == [4, 8]


# -- depth (R2) ------------------------------------------------------------------------------------


@pytest.fixture
def recursion_limit_1000():
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)


def chain(x, n=20_000):
    for _ in range(n):
        x = x + 1
    return x


def test_r2_backward_through_20000_ops(recursion_limit_1000):
    x = leaf(0.0, dtype=np.float64)
    y = chain(x)
    y.backward()
    assert (y.item(), x.grad) == (20_000, 1)


def test_r2_repr_and_freeing_without_backward(recursion_limit_1000, no_gc):
    before = alive()
    y = chain(leaf(0.0))
    assert repr(y) == "tensor([20000.], requires_grad=True)"
    assert alive() > before
    del y
    assert alive() == before


def test_r2_a_chain_alive_at_exit_is_no_crash():
    code = """
        from tinyfm import tensor

        x = tensor(1.0, requires_grad=True)
        y = x
        for _ in range(20_000):
            y = y + x * 0
        print(y.item())
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1.0\n", "")


# -- shapes of gradients (R3) ----------------------------------------------------------------------


def test_r3_leading_and_0d_broadcasting():
    x = tensor([[1, 2, 3], [4, 5, 6]], requires_grad=True)
    b = tensor([[10, 20, 30]], requires_grad=True)
    s = tensor(2, requires_grad=True)
    ((x + b) * s).sum().backward()
    assert x.grad.tolist() == [[2, 2, 2], [2, 2, 2]]
    assert b.grad.tolist() == [[4, 4, 4]]
    assert (s.grad.tolist(), s.grad.shape) == (141, ())


def test_r3_middle_broadcasting():
    p = tensor([[[1, 2, 3]], [[4, 5, 6]]], requires_grad=True)
    q = tensor([[1], [2], [3], [4]], requires_grad=True)
    (p * q).sum().backward()
    assert p.grad.tolist() == [[[10, 10, 10]], [[10, 10, 10]]]
    assert q.grad.tolist() == [[21], [21], [21], [21]]


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (4,), (1, 4), (3, 1), (3, 4), (2, 1, 1)])
def test_r3_a_gradient_has_the_shape_of_its_operand(shape):
    x = tensor(np.ones(shape), requires_grad=True)
    other = np.arange(24.0).reshape(2, 3, 4)
    (x * other).sum().backward()
    assert x.grad.shape == shape
    assert x.grad.sum() == other.sum()


# -- whose memory a gradient is (R8) ---------------------------------------------------------------


def test_r8_both_inputs_of_a_sum():
    a, b = leaf(1.0, 1.0), leaf(1.0, 1.0)
    (a + b).sum().backward()
    a.grad[0] = 99
    assert b.grad.tolist() == [1, 1]


def test_r8_one_of_two_summands_gets_more():
    x, y = leaf(1.0), leaf(1.0)
    ((x + y) + x).backward()
    assert (x.grad, y.grad) == (2, 1)


def test_r8_one_of_two_interior_summands_gets_more():
    x, y = leaf(1.0), leaf(1.0)
    h, k = x * 1, y * 1
    ((h + k) * 2 + h * 3).backward()
    assert (x.grad, y.grad) == (5, 2)


def test_r8_x_minus_x_and_x_plus_x():
    for function, wanted in [(lambda x: x - x, 0), (lambda x: x + x, 2)]:
        x = leaf(1.0, 2.0)
        function(x).sum().backward()
        assert x.grad.tolist() == [wanted, wanted]
        h = leaf(1.0, 2.0)
        function(h * 1).sum().backward()
        assert h.grad.tolist() == [wanted, wanted]


def test_r8_one_tensor_into_a_sum_and_a_reshape():
    x = leaf(1.0, 2.0)
    h = x * 1
    ((h + 1).sum() + (h.reshape(2, 1) * 3).sum() + h.sum()).backward()
    assert x.grad.tolist() == [5, 5]


def test_r8_three_leaves_of_one_sum():
    leaves = [leaf(1.0, 2.0) for _ in range(3)]
    (leaves[0] + leaves[1] + leaves[2]).sum().backward()
    for a, b in itertools.combinations(leaves, 2):
        assert not np.shares_memory(a.grad, b.grad)


def test_r8_accumulating_after_the_user_wrote_into_a_grad():
    a, b = leaf(1.0, 1.0), leaf(1.0, 1.0)
    (a + b).sum().backward()
    a.grad[0] = 99
    (a + b).sum().backward()
    assert (a.grad.tolist(), b.grad.tolist()) == ([100, 2], [2, 2])


def test_r8_the_gradient_handed_to_backward_stays_the_callers():
    a, b = leaf(1.0, 2.0), leaf(1.0, 2.0)
    given_ = np.array([1, 2], np.float32)
    (a + b).backward(given_)
    b.backward(given_)
    for t in (a, b):
        assert not np.shares_memory(t.grad, given_)
    assert given_.tolist() == [1, 2]


def saved(y):
    """A pair of vjps over one buffer that was made in the forward."""
    buffer = np.ones_like(y)
    return (lambda g: buffer,) * 2


GIVERS = {
    # name: from an array of g's shape, the vjps of f(a, b) = a + b
    "g itself": lambda y: (lambda g: g, lambda g: g),
    "a view of g": lambda y: (lambda g: g[...], lambda g: g[::-1]),
    "transposed twice": lambda y: (lambda g: g.T.copy().T, lambda g: g.T.copy().T),
    "read-only broadcasts": lambda y: (
        lambda g: np.broadcast_to(g[0, 0], g.shape),
        lambda g: np.broadcast_to(g[:1], g.shape),
    ),
    "one saved buffer": saved,
    "one new array, jointly": lambda y: lambda g: (g * 1,) * 2,
    "an array and its view, jointly": lambda y: lambda g: (lambda d: (d, d[...]))(g * 1),
    "a view and its array, jointly": lambda y: lambda g: (lambda d: (d[::-1], d))(g * 1),
    "g itself, jointly": lambda y: lambda g: (g, g),
    "halves of one array, jointly": lambda y: lambda g: tuple(np.stack([g, g])),
}


@pytest.mark.parametrize("giver", GIVERS)
@pytest.mark.parametrize("interior", [False, True], ids=["leaves", "interior"])
def test_r8_leaf_gradients_are_contiguous_writable_and_unshared(giver, interior):
    @own_op
    def pair(a, b):
        return a + b, GIVERS[giver](a + b)

    a, b = (tensor(np.ones((2, 2)), requires_grad=True) for _ in range(2))
    g = np.ones((2, 2))
    inputs = (a * 1, b * 1) if interior else (a, b)
    pair(*inputs).backward(g)
    for t in (a, b):
        assert t.grad.flags.c_contiguous
        assert t.grad.flags.writeable
        assert t.grad.tolist() == [[1, 1], [1, 1]]
        assert not np.shares_memory(t.grad, g)
    assert not np.shares_memory(a.grad, b.grad)


@pytest.mark.parametrize("giver", GIVERS)
def test_r8_a_second_backward_adds_to_both(giver):
    @own_op
    def pair(a, b):
        return a + b, GIVERS[giver](a + b)

    a, b = (tensor(np.ones((2, 2)), requires_grad=True) for _ in range(2))
    y = pair(a, b)
    y.backward(np.ones((2, 2)), retain_graph=True)
    y.backward(np.ones((2, 2)))
    assert a.grad.tolist() == b.grad.tolist() == [[2, 2], [2, 2]]


def test_r8_a_leafs_grad_is_not_the_interior_gradient_kept_beside_it():
    x = leaf(1.0, 2.0)
    y = x + 0
    y.retain_grad()
    y.sum().backward()
    x.grad[0] = 99
    assert y.grad.tolist() == [1, 1]


# -- memory (R9) -----------------------------------------------------------------------------------


def test_r9_tensors_and_nodes_die_right_after_backward(no_gc):
    x = leaf(1.0, 2.0)
    before = alive()
    h = ops.gelu(x * 2)
    parts = ops.split(h, sections=2)
    loss = (parts[0] * h).sum()
    dead = [weakref.ref(t) for t in (h, *parts)]
    del h, parts
    loss.backward()
    assert [r() for r in dead] == [None] * 3
    assert alive() == before + 2  # the loss and its own node
    last = weakref.ref(loss)
    del loss
    assert last() is None
    assert alive() == before


def test_r9_what_the_vjps_saved_dies_although_the_loss_lives(no_gc):
    class Saved(np.ndarray):  # an ndarray that can be watched
        pass

    watched = []

    @own_op
    def saving(x):
        kept = (x * 2).view(Saved)
        watched.append(weakref.ref(kept))
        return x * 1, (lambda g: g * np.asarray(kept),)

    loss = saving(leaf(1.0)).sum()
    assert watched[0]() is not None
    loss.backward()
    assert watched[0]() is None


def test_r9_a_graph_without_backward_is_freed_too(no_gc):
    x = leaf(1.0, 2.0)
    before = alive()
    for _ in range(50):
        (ops.softmax(x * 2) @ np.ones(2)).sum()
    assert alive() == before


def test_r9_a_failed_backward_leaves_nothing_behind(no_gc):
    x = leaf(1.0, 2.0)
    before = alive()
    for _ in range(3):
        with pytest.raises(ValueError):
            (x * 2).backward()
    assert alive() == before


def test_r9_a_gradient_holds_no_graph(no_gc):
    x = leaf(1.0, 2.0)
    before = alive()
    y = (x * x).sum()
    y.retain_grad()
    y.backward()
    grads = x.grad, y.grad
    del y
    assert alive() == before
    assert {type(g) for g in grads} == {np.ndarray}


def test_r9_training_steps_do_not_grow(no_gc):
    """300 steps of a 2-layer net on (32, 64) inputs, the losses kept as floats."""
    rng = np.random.default_rng(0)
    w1, w2 = (tensor(rng.standard_normal(s).astype(np.float32), True) for s in [(64, 64), (8, 64)])
    x, labels = rng.standard_normal((32, 64)).astype(np.float32), rng.integers(0, 8, 32)
    losses = []

    def step():
        loss = ops.cross_entropy(ops.linear(ops.relu(ops.linear(x, w1)), w2), labels)
        loss.backward()
        for w in (w1, w2):
            with w.writing() as values:
                values -= 0.01 * w.grad
            w.grad = None
        losses.append(float(loss))

    for _ in range(50):
        step()
    tracemalloc.start()
    before = alive(), tracemalloc.get_traced_memory()[0]
    for _ in range(250):
        step()
    after = alive(), tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert after[0] == before[0]
    assert after[1] - before[1] < 1e6  # R9 allows 20 MB; one kept graph a step would be 10 MB
    assert losses[-1] < losses[0]


# -- more than one use -----------------------------------------------------------------------------


def test_r7_repeated_indices_add_up():
    x = leaf(1.0, 2.0, 3.0)
    x[[1, 1, 2]].sum().backward()
    assert x.grad.tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    "key",
    [
        [0, 0],
        ([0, 0],),
        ((0, 0),),
        ((0, 0), slice(None)),
        np.array([0, 0]),
        (np.array([0, 0], np.uint8), ...),
        (slice(0, 1), [[0, 0]]),
        (None, [0, 0]),
        range(1),
        ([0, 1, 0], (1, 1, 1)),
        (True, [0, 0]),
        (np.array([True, False]), [1, 1]),
        1,
        np.int64(1),
        (..., -1),
        np.array([[True, False, True], [False, False, True]]),
        Tensor(np.array([1, 1])),
    ],
    ids=repr,
)
def test_r7_indexing_counts_every_pick(key):
    """The gradient of a sum of picks is how often each entry was picked."""
    x = tensor(np.zeros((2, 3)), requires_grad=True)
    raw_key = key.data if isinstance(key, Tensor) else key
    picked = np.arange(6).reshape(2, 3)[raw_key]
    x[key].sum().backward()
    assert x.grad.reshape(-1).tolist() == np.bincount(picked.reshape(-1), minlength=6).tolist()


def test_r7_one_embedding_used_three_times():
    """As in BART and T5: encoder, decoder and the output projection share the table."""
    table = tensor(np.ones((4, 2)), requires_grad=True)
    h = ops.embedding(table, [[1, 1]]).sum() + ops.embedding(table, [3]).sum() * 10
    (h + ops.linear(np.array([[1.0, 2.0]]), table).sum()).backward()
    assert table.grad.tolist() == [[1, 2], [3, 4], [1, 2], [11, 12]]


# -- freeing and keeping the graph -----------------------------------------------------------------


def test_a_second_backward_is_a_clear_error():
    y = leaf(2.0) * 3
    y.backward()
    with pytest.raises(RuntimeError, match=r"earlier backward.*retain_graph=True"):
        y.backward()


def test_a_part_freed_by_another_backward_is_a_clear_error():
    x = leaf(2.0)
    h = x * 3
    first, second = h * 1, h * 2
    first.backward()
    with pytest.raises(RuntimeError, match=r"'mul'.*retain_graph=True"):
        second.backward()
    with pytest.raises(RuntimeError, match=r"'mul'.*retain_graph=True"):
        (h * 5).backward()
    assert x.grad == 3  # nothing was delivered before the error


def test_retain_graph_keeps_it_for_a_second_backward():
    x = leaf(2.0)
    parts = ops.split(ops.stack([x * x, x]), sections=2)
    y = (parts[0] * parts[1]).sum()
    for n in (1, 2, 3):
        y.backward(retain_graph=True)
        assert x.grad == 12 * n


def test_retain_grad_keeps_an_interior_gradient():
    x = leaf(2.0)
    h = x * x
    h.retain_grad()
    (h * 3 + h).backward()
    assert (h.grad, x.grad) == (4, 16)


def test_retain_grad_on_a_part_of_a_split_and_on_the_result():
    first, _ = ops.split(leaf(1.0, 2.0), sections=2)
    first.retain_grad()
    y = first * 5
    y.retain_grad()
    y.backward()
    assert (first.grad.tolist(), y.grad.tolist()) == ([5], [1])


def test_retained_gradients_add_up_like_those_of_leaves():
    h = leaf(2.0) * 2
    h.retain_grad()
    y = h * 3
    y.backward(retain_graph=True)
    y.backward()
    assert h.grad == 6


def test_interior_tensors_keep_no_gradient_unasked():
    h = leaf(2.0) * 2
    (h * 3).backward()
    assert h.grad is None


def test_retain_grad_of_a_dead_tensor_is_nothing(no_gc):
    x = leaf(2.0)
    h = x * 2
    h.retain_grad()
    y = h * 3
    del h
    y.backward()
    assert x.grad == 6


@pytest.mark.parametrize(
    "function, error, words",
    [
        (lambda: tensor([1.0]).backward(), RuntimeError, "requires_grad"),
        (lambda: (tensor([1.0]) * 2).backward(), RuntimeError, "requires_grad"),
        (lambda: (leaf(1.0, 2.0) * 2).backward(), ValueError, r"\(2,\).*sum\(\)"),
        (lambda: (leaf(1.0, 2.0) * 2).backward(np.ones(3)), ValueError, r"\(2,\).*\(3,\)"),
    ],
)
def test_backward_of_what_has_none_says_so(function, error, words):
    with pytest.raises(error, match=words):
        function()


@pytest.mark.parametrize("gradient", [[1.0, 2.0], np.array([1, 2]), tensor([1.0, 2.0])], ids=repr)
def test_backward_takes_a_list_an_array_or_a_tensor(gradient):
    x = leaf(3.0, 4.0)
    (x * 2).backward(gradient)
    assert (x.grad.tolist(), x.grad.dtype) == ([2, 4], np.float32)


def test_backward_of_a_leaf_is_its_gradient():
    x = leaf(3.0)
    x.backward()
    x.backward()
    assert x.grad == 2


# -- several results, joint derivatives ------------------------------------------------------------


def test_a_split_with_unused_parts():
    x = leaf(1.0, 2.0, 3.0)
    parts = ops.split(x, sections=3)
    (parts[2] * 5).sum().backward()
    assert x.grad.tolist() == [0, 0, 5]


def test_the_parts_of_a_split_used_at_different_depths():
    x = leaf(1.0, 2.0, 3.0)
    a, b, c = ops.split(x, sections=3)
    (a * b + ops.tanh(c * 0) + b * b).sum().backward()
    assert x.grad.tolist() == [2, 5, 0]


def test_a_part_alone_can_be_the_root():
    x = leaf(1.0, 2.0)
    ops.split(x, sections=2)[1].backward()
    assert x.grad.tolist() == [0, 1]


def test_a_joint_vjp_is_called_once_and_sees_unused_parts_as_none():
    seen = []

    @own_op
    def both(a, b):
        return (a * b, a + b), lambda g: seen.append(g) or (g[1], g[1] * 1)

    a, b = leaf(1.0), leaf(2.0)
    both(a, b)[1].backward()
    ((first, second),) = seen
    assert first is None
    assert second == 1
    assert (a.grad, b.grad) == (1, 1)


def test_none_from_a_joint_vjp_is_no_gradient():
    @own_op
    def product(a, b):
        return a * b, lambda g: (g * b, None)

    a, b = leaf(2.0), leaf(3.0)
    product(a, b).backward()
    assert (a.grad, b.grad) == (3, None)


def test_an_integer_part_of_a_result_has_no_gradient():
    @own_op
    def largest(x):
        place = np.argmax(x, keepdims=True)

        def vjp(g):
            out = np.zeros_like(x)
            out[place] = g[0]
            return out

        return (x[place], place), (vjp,)

    x = leaf(1.0, 3.0, 2.0)
    value, place = largest(x)
    assert (value.requires_grad, place.requires_grad) == (True, False)
    value.backward()
    assert x.grad.tolist() == [0, 1, 0]


# -- no_grad ---------------------------------------------------------------------------------------


def records():
    return (leaf(1.0) * 2).requires_grad


def test_no_grad_records_nothing():
    with no_grad():
        y = leaf(1.0) * 2
    assert (y.requires_grad, y._node) == (False, None)
    assert records()


def test_no_grad_nests():
    with no_grad():
        with no_grad():
            assert not records()
        assert not records()
    assert records()


def test_no_grad_ends_with_an_exception():
    with pytest.raises(ZeroDivisionError), no_grad():
        1 / 0  # noqa: B018
    assert records()


def test_no_grad_as_a_decorator_of_a_function_that_calls_itself():
    @no_grad()
    def count(n):
        inner = count(n - 1) if n else []
        return [*inner, records()]

    assert count(3) == [False] * 4
    assert records()


def test_no_grad_as_a_decorator_ends_with_an_exception():
    @no_grad()
    def fail():
        raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert records()


def test_detach_stops_the_gradient_and_shares_the_values():
    x = leaf(3.0)
    y = x.detach()
    assert (y.requires_grad, np.shares_memory(x.data, y.data)) == (False, True)
    (x * y).backward()
    assert x.grad == 3


# -- changes between forward and backward ----------------------------------------------------------


def assign(w):
    w.data = np.zeros(2, np.float32)


def assign_to_detached(w):
    w.detach().data = np.zeros(2, np.float32)


def assign_to_view(w):
    with no_grad():
        view = w.reshape(2, 1)
    view.data = np.zeros((2, 1), np.float32)


def assign_to_part(w):
    with no_grad():
        part = w[1:]
    part.data = np.zeros(1, np.float32)


def assign_to_view_of_view(w):
    with no_grad():
        view = w.detach().reshape(1, 2).T[1:]
    view.data = np.zeros((1, 1), np.float32)


def write(w):
    with w.writing() as values:
        values[0] = 7


def write_detached(w):
    with w.detach().writing() as values:
        values[0] = 7


WRITES = [
    assign,
    assign_to_detached,
    assign_to_view,
    assign_to_part,
    assign_to_view_of_view,
    write,
    write_detached,
]


@pytest.mark.parametrize("change", WRITES)
def test_a_write_between_forward_and_backward_is_an_error(change):
    w, x = leaf(1.0, 2.0), leaf(1.0, 2.0)
    y = (w * x).sum()
    change(w)
    with pytest.raises(RuntimeError, match=r"'mul'.*written since"):
        y.backward()
    assert (w.grad, x.grad) == (None, None)


@pytest.mark.parametrize("change", WRITES)
def test_a_write_before_forward_or_after_backward_is_none(change):
    w = leaf(1.0, 2.0)
    change(w)
    for _ in range(2):
        values = w.data.copy()
        w.grad = None
        (w * w).sum().backward()
        assert w.grad.tolist() == (2 * values).tolist()
        change(w)


@pytest.mark.parametrize("change", WRITES)
def test_a_write_to_another_tensor_is_none(change):
    w, other = leaf(1.0, 2.0), leaf(1.0, 2.0)
    y = (w * w).sum()
    change(other)
    y.backward()
    assert w.grad.tolist() == [2, 4]


def test_a_forward_inside_writing_is_an_error_too():
    w = leaf(1.0, 2.0)
    with w.writing() as values:
        y = (w * w).sum()
        values[0] = 7
    with pytest.raises(RuntimeError, match="written since"):
        y.backward()


def test_only_the_uses_before_the_write_are_stale():
    w = leaf(1.0, 2.0)
    old = (w * w).sum()
    assign(w)
    new = (w * w).sum()
    new.backward()
    assert w.grad.tolist() == [0, 0]
    with pytest.raises(RuntimeError, match="written since"):
        (old + (w * 1).sum()).backward()


def test_a_frozen_weight_its_transpose_and_a_reload():
    x = tensor(np.ones((2, 2)), requires_grad=True)
    frozen = tensor(np.ones((2, 2)))
    y = (x @ frozen.T).sum()
    frozen.data = np.zeros((2, 2))
    with pytest.raises(RuntimeError, match=r"'matmul'.*written since"):
        y.backward()


def test_a_transpose_made_before_the_reload_of_its_weight():
    x, frozen = leaf(1.0, 2.0), tensor(np.ones((2, 2), np.float32))
    transposed = frozen.T
    y = (x @ transposed).sum()
    transposed.data = np.zeros((2, 2), np.float32)  # a view of a leaf without gradient
    with pytest.raises(RuntimeError, match="written since"):
        y.backward()
    y = (x @ transposed).sum()
    frozen.data = np.ones((2, 2), np.float32)
    with pytest.raises(RuntimeError, match="written since"):
        y.backward()


def test_a_write_into_the_result_of_an_op_is_seen():
    x = leaf(1.0, 2.0)
    h = x * 2
    y = (h * h).sum()
    with h.writing() as values:
        values[0] = 7
    with pytest.raises(RuntimeError, match="written since"):
        y.backward()


def test_a_write_into_a_part_of_a_split_is_seen():
    x = leaf(1.0, 2.0)
    a, _ = ops.split(x, sections=2)
    y = (a * a).sum()
    with a.writing() as values:
        values[0] = 7
    with pytest.raises(RuntimeError, match="written since"):
        y.backward()


def test_data_cannot_be_written_directly():
    x = leaf(1.0, 2.0)
    for array in (x.data, x.numpy(), x.detach().data, np.asarray(x)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7
    with pytest.raises(ValueError, match="read-only"):
        x.data += 1
    assert x.data.tolist() == [1, 2]


def test_data_takes_the_same_shape_and_dtype_only():
    x = leaf(1.0, 2.0)
    with pytest.raises(ValueError, match=r"\(2,\) float32.*\(1,\) float32"):
        x.data = np.zeros(1, np.float32)
    with pytest.raises(TypeError, match=r"\(2,\) float32.*\(2,\) float64"):
        x.data = np.zeros(2)
    with pytest.raises(RuntimeError, match="leaf"):
        (x * 2).data = np.zeros(2, np.float32)
    x.data = tensor([5, 6])
    x.data = [7, 8]
    assert x.data.tolist() == [7, 8]


def test_data_is_written_in_place():
    x = leaf(1.0, 2.0)
    seen = x.data
    x.data = np.array([3, 4], np.float32)
    assert seen.tolist() == [3, 4]


def test_tensor_copies_and_the_class_wraps():
    array = np.ones(2)
    assert not np.shares_memory(tensor(array).data, array)
    assert np.shares_memory(Tensor(array).data, array)
    assert type(Tensor(Tensor(array)).data) is np.ndarray


# -- ops of one's own ------------------------------------------------------------------------------


@own_op
def scaled(x, y=None, *, factor=1.0, needs=None):
    """factor * x (+ y), with the joint derivative."""
    result = x * factor if y is None else x * factor + y
    return result, lambda g: (g * factor, g)


def test_arguments_by_position_and_by_name():
    x, y = leaf(1.0), leaf(2.0)
    for out in (scaled(x, y), scaled(x, y=y), scaled(y=y, x=x), scaled(x, factor=1.0, y=y)):
        out.backward()
    assert (x.grad, y.grad) == (4, 4)


def test_default_arguments_and_options():
    x = leaf(2.0)
    scaled(x).backward()
    scaled(x, None, factor=3.0).backward()
    assert x.grad == 4


def test_a_missing_argument_names_op_and_argument():
    with pytest.raises(TypeError, match=r"'scaled'.*'x'"):
        scaled(factor=2.0)


@pytest.mark.parametrize("call", [lambda x: scaled(x, None, 1), lambda x: scaled(x, wrong=1)])
def test_what_the_signature_lacks_is_a_type_error(call):
    with pytest.raises(TypeError, match=r"scaled"):
        call(leaf(1.0))


def test_a_tensor_as_an_option_names_op_and_option():
    with pytest.raises(TypeError, match=r"'scaled'.*'factor'"):
        scaled(leaf(1.0), factor=tensor(2.0))


def test_the_tuple_form():
    @own_op
    def cube(x):
        return x**3, (lambda g: g * 3 * x**2,)

    x = leaf(2.0)
    cube(x).backward()
    assert x.grad == 12


def test_needs_says_what_will_be_asked_for():
    seen = []

    @own_op
    def observed(a, b, ids, *, needs=None):
        seen.append(needs)
        return a + b, lambda g: (g, g, None)

    x, frozen = leaf(1.0), tensor([1.0])
    observed(x, frozen, [0])
    observed(frozen, x * 2, None)
    observed(frozen, 1.0, 3)
    with no_grad():
        observed(x, x, 3)
    assert seen == [
        (True, False, False),
        (False, True, False),
        (False, False, False),
        (False, False, False),
    ]


@pytest.mark.parametrize(
    "ids, shape",
    [
        ([0, 2], (2,)),
        ([[1]], (1, 1)),
        (np.array([0, 2], np.int32), (2,)),
        (2, ()),
        (np.int16(2), ()),
    ],
)
def test_integers_where_the_vjp_is_none_stay_integers(ids, shape):
    seen = []

    @own_op
    def pick(table, ids):
        seen.append(ids)
        return table[ids], (lambda g: np.zeros_like(table), None)

    assert pick(leaf(1.0, 2.0, 3.0), ids).shape == shape
    assert {a.dtype.kind for a in seen} == {"i"}


def test_a_list_of_bools_where_the_vjp_is_none_stays_bool():
    y = ops.where([True, False], leaf(1.0, 2.0), 0)
    assert (y.data.tolist(), y.dtype) == ([1, 0], np.float32)


def test_any_number_of_arguments_one_by_one_or_as_a_list():
    a, b = leaf(1.0), leaf(2.0)
    (ops.stack(a, b).sum() + ops.stack([a, b]).sum() + ops.stack((a, b), axis=-1).sum()).backward()
    assert (a.grad, b.grad) == (3, 3)


def wrong(vjps):
    def wrong_op(a, b):
        return a + b, vjps

    return own_op(wrong_op)


@pytest.mark.parametrize(
    "vjps, words",
    [
        ((lambda g: g[:1], lambda g: g), r"gradient 0 is \(1,\) float32, .* \(2,\) float32"),
        ((lambda g: g, lambda g: g[:, None]), "gradient 1 is"),
        ((lambda g: g.astype(np.float64), lambda g: g), "gradient 0 is .* float64"),
        (lambda g: (g, g.astype(np.float16)), "gradient 1 is .* float16"),
        ((lambda g: g,), "tuple with one vjp"),
        (lambda g: (g, g, g), "tuple with one vjp"),
        (lambda g: g, "tuple"),
        (lambda g: [g, g], "tuple"),
    ],
)  # fmt: skip
def test_a_wrong_gradient_names_the_op(vjps, words):
    y = wrong(vjps)(leaf(1.0, 2.0), leaf(1.0, 2.0))
    with pytest.raises(TypeError, match=f"'wrong_op'.*{words}"):
        y.sum().backward()


def test_a_joint_vjp_without_its_tuple_names_the_op():
    @own_op
    def bare(x):
        return x * 2, lambda g: g * 2

    with pytest.raises(TypeError, match=r"'bare'.*tuple"):
        bare(leaf(1.0)).backward()


def test_shapes_that_do_not_fit_name_the_op_and_what_it_was_given():
    with pytest.raises(ValueError, match=r"'add' of \(2,\) float32, \(3,\) float32"):
        leaf(1.0, 2.0) + leaf(1.0, 2.0, 3.0)


def test_the_raw_function_stands_behind_the_op():
    y, vjps = scaled.__wrapped__(np.ones(2), factor=3.0)
    assert y.tolist() == [3, 3]
    assert callable(vjps)
    assert (scaled.__name__, scaled.__doc__[:8]) == ("scaled", "factor *")


def test_every_op_is_in_the_registry_once():
    names = [f.__name__ for f in registry]
    assert len(set(names)) == len(names)
    assert {"add", "matmul", "layer_norm", "fused_attention"} <= set(names)


# -- dtypes (R10) ----------------------------------------------------------------------------------

OPERATORS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "**": lambda a, b: a**b,
}

F16, F32, F64, I64, BOOL = np.float16, np.float32, np.float64, np.int64, np.bool_


def t(dtype, *values):
    return Tensor(np.array(values or (1, 0), dtype))


@pytest.mark.parametrize(
    "data, dtype",
    [
        (1, F32),
        (1.5, F32),
        (True, F32),
        ([1, 2], F32),
        ([[1.0], [2.0]], F32),
        ([True, False], F32),
        ((1, 2), F32),
        (np.float64(1.5), F64),
        (np.float16(1.5), F16),
        (np.int32(1), np.int32),
        (np.ones(2), F64),
        (np.ones(2, F16), F16),
        (np.arange(2), I64),
        (np.array([True]), BOOL),
    ],
    ids=repr,
)
def test_arrays_keep_their_dtype_and_python_becomes_float32(data, dtype):
    assert tensor(data).dtype == dtype
    assert Tensor(data).dtype == dtype


OTHERS = [
    2,
    2.0,
    True,
    np.float64(2),
    np.float32(2),
    np.float16(2),
    np.int64(2),
    np.bool_(True),
    [2, 3],
    [2.0, 3.0],
    [True, True],
    np.array([2.0, 3.0]),
    np.array([2, 3], F32),
    np.array([2, 3]),
    np.array([2, 3], np.int8),
    np.array([True, True]),
    np.array(2.0),
    np.array(2),
]


@pytest.mark.parametrize("dtype", [F16, F32, F64])
@pytest.mark.parametrize("other", OTHERS, ids=lambda x: f"{type(x).__name__} {x!r}")
def test_r10_whatever_meets_a_float_tensor_takes_its_dtype(dtype, other):
    x = tensor(np.array([1, 2], dtype), requires_grad=True)
    results = [f(x, other) for f in OPERATORS.values()] + [f(other, x) for f in OPERATORS.values()]
    results += [ops.maximum(x, other), ops.where([True, False], other, x)]
    assert {y.dtype for y in results} == {np.dtype(dtype)}
    for y in results:
        y.sum().backward()
    assert x.grad.dtype == dtype


@pytest.mark.parametrize("three", [3, 3.0, np.float64(3), np.int64(3), np.array(3.0), np.sqrt(9)])
def test_r10_x_times_2_plus_1_over_3_stays_float32(three):
    x = leaf(1.0, 2.0)
    y = (x * 2.0 + 1) / three
    assert y.dtype == np.float32
    y.sum().backward()
    assert x.grad.dtype == np.float32
    np.testing.assert_allclose(x.grad, 2 / 3, rtol=1e-6)


@pytest.mark.parametrize("integers", [t(I64), t(np.int8), t(BOOL), t(np.uint8)], ids=repr)
@pytest.mark.parametrize("dtype", [F16, F32, F64])
def test_an_integer_tensor_takes_the_float_tensors_dtype(integers, dtype):
    x = tensor(np.array([1, 2], dtype), requires_grad=True)
    for y in (x * integers, integers * x, integers + x, x - integers):
        assert y.dtype == dtype
        y.sum().backward()
    assert x.grad.dtype == dtype


@pytest.mark.parametrize("other", [2.5, np.float64(2.5), [2.5, 2.5]], ids=repr)
def test_an_integer_tensor_and_a_float_number_are_float32(other):
    assert (t(I64) + other).dtype == np.float32
    assert (other * t(BOOL)).dtype == np.float32


def test_integers_among_themselves_stay_integers():
    assert (t(I64) + t(I64)).dtype == np.int64
    assert (t(I64) * 2).dtype == np.int64
    assert (t(np.int32) - np.array([1, 1], np.int32)).dtype == np.int32


@pytest.mark.parametrize("function", [ops.exp, ops.mean, ops.sqrt, lambda x: x / 2, ops.norm])
def test_what_is_fractional_of_integers_is_float32(function):
    assert function(t(I64)).dtype == np.float32


def test_plain_numbers_and_arrays_without_any_tensor():
    assert ops.add([1, 2], 3).dtype == np.float32
    assert ops.add(1, 2.5).dtype == np.float32
    assert ops.add(np.ones(2), 1).dtype == np.float64
    assert ops.add(np.ones(2, F32), [1, 2]).dtype == np.float32


@pytest.mark.parametrize("one, two", [*itertools.permutations([F16, F32, F64], 2)])
def test_two_float_dtypes_are_an_error_that_names_the_op(one, two):
    words = f"'mul'.*{np.dtype(one)}.*{np.dtype(two)}.*astype"
    with pytest.raises(TypeError, match=words):
        t(one) * t(two)


def test_requires_grad_on_integers_is_a_type_error():
    for dtype in (I64, BOOL):
        with pytest.raises(TypeError, match="requires_grad"):
            tensor(np.ones(2, dtype), requires_grad=True)


@pytest.mark.parametrize("data", ["text", 1j, None, {}, np.array([1j]), np.array([None])], ids=repr)
def test_what_holds_no_numbers_is_a_type_error(data):
    with pytest.raises(TypeError, match="numbers"):
        tensor(data)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ops.softmax(x),
        lambda x: ops.log_softmax(x),
        lambda x: ops.gelu(x),
        lambda x: ops.gelu(x, approximate="tanh"),
        lambda x: ops.silu(x),
        lambda x: ops.dropout(x, p=0.5, seed=1),
        lambda x: ops.layer_norm(x, [1.0, 1.0], [0.0, 0.0]),
        lambda x: ops.rms_norm(x, [1.0, 1.0]),
        lambda x: ops.linear(x, [[1.0, 1.0]]),
        lambda x: ops.cross_entropy(x, [0]),
        lambda x: ops.linear_cross_entropy(x, [[1.0, 1.0], [0.0, 2.0]], None, [0]),
    ],
)
@pytest.mark.parametrize("kind", ["list", "array", "tensor"])
def test_integers_given_to_the_fused_ops_are_numbers(function, kind):
    values = np.array([[1, 2]])
    x = {"list": [[1, 2]], "array": values, "tensor": Tensor(values)}[kind]
    wanted = function(tensor([[1.0, 2.0]]))
    found = function(x)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.data, wanted.data, rtol=1e-6)


def test_r10_a_training_step_stays_float32():
    rng = np.random.default_rng(0)
    w = tensor(rng.standard_normal((5, 4)).astype(F32), True)
    g, b = tensor(np.ones(4, F32), True), tensor(np.zeros(4, F32), True)
    h = ops.embedding(w, [[0, 1, 2]]) * np.sqrt(4) + np.sin(np.arange(4.0))
    h = ops.layer_norm(h / np.float64(2), g, b)
    h = h + ops.attention(h, h, h, tinyfm.masks.causal(), scale=1 / np.sqrt(4))
    loss = ops.linear_cross_entropy(ops.gelu(h), w, None, [[1, 2, 3]]) * np.mean([1.0])
    loss.backward()
    assert {x.dtype for x in (h, loss)} == {np.dtype(F32)}
    assert {x.grad.dtype for x in (w, g, b)} == {np.dtype(F32)}


@pytest.mark.parametrize("implementation", ["composed", "fused"])
def test_r10_integers_and_numpy_scales_in_attention(implementation):
    q = tensor(np.ones((2, 3), F32), requires_grad=True)
    k, scale = np.arange(6).reshape(2, 3), 1 / np.sqrt(3)
    y = ops.attention(q, k, Tensor(k), scale=scale, implementation=implementation)
    y.sum().backward()
    assert (y.dtype, q.grad.dtype) == (F32, F32)


def test_astype_converts_there_and_the_gradient_back():
    x = leaf(1.0, 2.0)
    y = x.astype(np.float64) * np.ones(2)
    assert y.dtype == np.float64
    y.sum().backward()
    assert x.grad.dtype == np.float32


def test_arrays_of_an_ndarray_subclass_are_arrays(tmp_path):
    """np.load(mmap_mode="r") gives memmaps; they are on the CPU like any other array."""
    np.save(tmp_path / "ids.npy", np.array([0, 1, 1]))
    ids = np.load(tmp_path / "ids.npy", mmap_mode="r")
    table = tensor(np.ones((3, 2)), requires_grad=True)
    ops.embedding(table, ids).sum().backward()
    assert table.grad.tolist() == [[1, 1], [2, 2], [0, 0]]
    assert (Tensor(ids) + np.ones(3, int)).data.tolist() == [1, 2, 2]


# -- operators and conversions ---------------------------------------------------------------------


@pytest.mark.parametrize("name", [*OPERATORS, "@"])
@pytest.mark.parametrize("left", [np.array([3.0, 4.0]), np.array([3, 4]), [3, 4]], ids=repr)
def test_reflected_operators(name, left):
    function = OPERATORS.get(name, operator.matmul)
    x = tensor(np.array([1.0, 2.0]), requires_grad=True)
    y = function(left, x)
    assert type(y) is Tensor
    np.testing.assert_allclose(y.data, function(np.asarray(left, float), x.data))
    y.sum().backward()
    assert x.grad.shape == (2,)


COMPARISONS = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("other", [2, np.array([3.0, 2.0, 1.0]), tensor([3, 2, 1])], ids=repr)
def test_comparisons_give_plain_arrays(name, other):
    x = leaf(1.0, 2.0, 3.0)
    values = other.data if isinstance(other, Tensor) else other
    for left, right, wanted in [
        (x, other, COMPARISONS[name](x.data, values)),
        (other, x, COMPARISONS[name](values, x.data)),
    ]:
        found = COMPARISONS[name](left, right)
        assert type(found) is np.ndarray
        assert found.dtype == bool
        assert found.tolist() == wanted.tolist()


def test_a_numpy_function_of_a_tensor_raises():
    """It would return an array without history: a silently detached gradient."""
    x = leaf(1.0)
    for function in (np.exp, np.add.reduce, np.sqrt):
        with pytest.raises(TypeError):
            function(x)
    with pytest.raises(TypeError):
        np.add(np.ones(1), x)
    array = np.ones(1)
    with pytest.raises(TypeError):
        array += x


def test_a_tensor_has_no_truth_value():
    with pytest.raises(TypeError, match="truth value"):
        bool(leaf(1.0))


def test_ways_out_of_a_tensor():
    x = leaf(1.5)
    assert (x.item(), float(x), int(x), len(x)) == (1.5, 1.5, 1, 1)
    assert np.asarray(x).tolist() == [1.5]
    with pytest.raises(ValueError, match=r"\(2,\)"):
        leaf(1.0, 2.0).item()
    with pytest.raises(TypeError, match="0-d"):
        len(tensor(1.0))


def test_a_tensor_is_a_key_by_identity():
    a, b = leaf(1.0), leaf(1.0)
    assert len({a, b, a}) == 2


def test_0d_results_are_arrays():
    x = tensor(2.0, requires_grad=True)
    for y in (x * x, x + 1, x**3, ops.exp(x), leaf(1.0, 2.0).sum(), leaf(1.0, 2.0)[0], x.reshape()):
        assert type(y.data) is np.ndarray
        assert y.shape == ()
        y.backward()
    assert type(x.grad) is np.ndarray


# -- random graphs ---------------------------------------------------------------------------------
# A program is a list of steps; each picks tensors of the pool by number and adds its results to it.
# All shapes broadcast to (2, 3), and values stay of order 1.


class Tinyfm:
    zeros = np.zeros((2, 3))

    @staticmethod
    def split(x):
        return ops.split(x, sections=3, axis=-1)

    @staticmethod
    def where(condition, a, b):
        return ops.where(condition, a, b)


class Torch:
    def __init__(self):
        import torch

        self.zeros = torch.zeros(2, 3, dtype=torch.float64)
        self.where = lambda condition, a, b: torch.where(torch.tensor(condition), a, b)

    @staticmethod
    def split(x):
        return x.tensor_split(3, dim=-1)


def picks(x):
    """x with repeated entries along its first axis; a shape that still broadcasts to (2, 3)."""
    if x.ndim == 0:
        return x * x
    return x[[1, 1, 2]] if tuple(x.shape) == (3,) else x[[0, 0]] if x.ndim == 2 else x[[0]]


def product(m):
    return m @ (m.swapaxes(-1, -2) @ m) / 6


CONDITION = np.array([[True, False, True], [False, False, True]])
STEPS = {
    "add": lambda lib, a, b: [(a + b) * 0.5],
    "sub": lambda lib, a, b: [a - b * 0.5],
    "mul": lambda lib, a, b: [a * b],
    "div": lambda lib, a, b: [a / (1 + b * b)],
    "power": lambda lib, a, b: [(1 + a * a) ** (b * 0.5) * 0.5],
    "tanh": lambda lib, a, b: [a.tanh()],
    "where": lambda lib, a, b: [lib.where(CONDITION, a, b)],
    "picks": lambda lib, a, b: [picks(a)],
    "slice": lambda lib, a, b: [a[..., -1:] if a.ndim else a + b],
    "mean": lambda lib, a, b: [a.sum(axis=-1, keepdims=True) / 3 if a.ndim else a],
    "sum": lambda lib, a, b: [a.sum() / 6],
    "matmul": lambda lib, a, b: [product(a * 0.5 + b * 0.5 + lib.zeros)],
    "split": lambda lib, a, b: lib.split(a) if a.ndim and a.shape[-1] == 3 else [a * b],
    "reshape": lambda lib, a, b: [a.reshape(1, -1) if a.ndim == 1 else a.reshape(a.shape)],
}
SHAPES = [(), (1,), (3,), (2, 1), (1, 3), (2, 3)]
programs = st.lists(
    st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 99), st.integers(0, 99)),
    min_size=1,
    max_size=12,
)
graphs = st.tuples(
    st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3),
    programs,
    st.lists(st.integers(0, 99), min_size=1, max_size=3),
    st.integers(0, 2**32 - 1),
)


def run_program(lib, leaves, program, roots):
    pool = list(leaves)
    for name, i, j in program:
        pool += STEPS[name](lib, pool[i % len(pool)], pool[j % len(pool)])
    loss = None
    for n in roots:
        part = pool[-1 - n % len(pool)].sum()
        loss = part if loss is None else loss + part * 0.7
    return loss


def values(shapes, seed):
    rng = np.random.default_rng(seed)
    return [rng.uniform(-1, 1, shape) for shape in shapes]


@settings_of_graphs
@given(graphs)
def test_random_graphs_pass_gradcheck(graph):
    shapes, program, roots, seed = graph
    leaves = [tensor(v, requires_grad=True) for v in values(shapes, seed)]
    gradcheck(lambda *leaves: run_program(Tinyfm(), leaves, program, roots), *leaves)


@pytest.mark.parity
@settings_of_graphs
@given(graphs)
def test_random_graphs_equal_torch(graph):
    import torch

    shapes, program, roots, seed = graph
    ours = [tensor(v, requires_grad=True) for v in values(shapes, seed)]
    theirs = [torch.tensor(v, requires_grad=True) for v in values(shapes, seed)]
    loss = run_program(Tinyfm(), ours, program, roots)
    wanted = run_program(Torch(), theirs, program, roots)
    np.testing.assert_allclose(loss.data, wanted.detach().numpy(), rtol=1e-12, atol=1e-14)
    loss.backward()
    wanted.backward()
    for a, b in zip(ours, theirs, strict=True):
        assert (a.grad is None) == (b.grad is None)
        if b.grad is not None:
            np.testing.assert_allclose(a.grad, b.grad.numpy(), rtol=1e-10, atol=1e-12)
