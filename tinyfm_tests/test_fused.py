"""Each fused op equals its composed twin: blocks, threads and saved rows change no number.

TWINS says which op has which twin; the calls are those of registry.py, and ODD holds one call of
each that is large and odd enough for many uneven blocks.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import tinyfm
from tinyfm import Tensor, masks, ops
from tinyfm.backend import keep_mask
from tinyfm.ops.erf import erf
from tinyfm_tests import reference
from tinyfm_tests.registry import (
    CASES,
    SHIPPED,
    Call,
    backward,
    cast,
    leaves,
    like,
    memory,
    parts,
    values_and_gradients,
)

EXAMPLES = max(1, settings.default.max_examples // 3)
BLOCKS = {
    "default": {},
    "small blocks": {"block_bytes": 64, "threads": 2},
    "one row": {"block_bytes": 1, "threads": 3},
}


def dropout_twin(x, *, p, seed):
    rows, width = math.prod(x.shape[:-1]), x.shape[-1] if x.ndim else 1
    return reference.dropout(x, keep_mask(seed, p, rows, width, x.data).reshape(x.shape), p)


def attention_twin(*args, **options):
    return ops.attention(*args, **options, implementation="composed")


TWINS = {
    ops.sigmoid: reference.sigmoid,
    ops.silu: reference.silu,
    ops.gelu: reference.gelu,
    ops.softmax: reference.softmax,
    ops.log_softmax: reference.log_softmax,
    ops.layer_norm: reference.layer_norm,
    ops.rms_norm: reference.rms_norm,
    ops.dropout: dropout_twin,
    ops.linear: reference.linear,
    ops.embedding: reference.embedding,
    ops.cross_entropy: reference.cross_entropy,
    ops.linear_cross_entropy: reference.linear_cross_entropy,
    ops.fused_attention: attention_twin,
}


def test_every_op_of_networks_has_a_twin():
    fused = {f for f in SHIPPED if f.__module__ in ("tinyfm.ops.neural", "tinyfm.ops.rows")}
    assert fused - set(TWINS) == {ops.relu}


def odd_calls():
    """A call of each fused op that no number of blocks divides evenly."""
    rng = np.random.default_rng(0)

    def x(*shape):
        return rng.standard_normal(shape)

    ids = rng.integers(0, 11, (7, 5))
    ids[2, 1:] = -100
    smooth = {"label_smoothing": 0.1}
    queries = x(2, 3, 13, 5)
    return {
        ops.sigmoid: Call((x(7, 5, 11),), {}),
        ops.silu: Call((x(7, 5, 11),), {}),
        ops.gelu: Call((x(7, 5, 11),), {}),
        ops.softmax: Call((x(7, 5, 11),), {"axis": 1}),
        ops.log_softmax: Call((x(7, 5, 11),), {"axis": 1}),
        ops.layer_norm: Call((x(7, 5, 11), x(11), x(11)), {}),
        ops.rms_norm: Call((x(7, 5, 11), x(11)), {}),
        ops.dropout: Call((x(7, 5, 11),), {"p": 0.1, "seed": 3}),
        ops.linear: Call((x(7, 5, 11), x(3, 11), x(3)), {}),
        ops.embedding: Call((x(11, 3), np.abs(ids) % 11), {"padding_idx": 4}),
        ops.cross_entropy: Call((x(7, 5, 11), ids), smooth),
        ops.linear_cross_entropy: Call((x(7, 5, 3), x(11, 3), x(11), ids), smooth),
        ops.fused_attention: Call(
            (
                queries,
                x(2, 3, 17, 5),
                x(2, 3, 17, 3),
                masks.causal() & masks.padding(rng.random((2, 17)) < 0.7),
                x(3, 1, 17),
                x(3, 29),
            ),
            {"scale": 0.4, "dropout": 0.1, "dropout_seed": 5},
        ),
    }


ODD = odd_calls()


def equal_twin(function, call, rtol, atol):
    """Results and gradients of the call are those of the twin."""
    args, twin_args = leaves(function, call), leaves(function, call)
    result = function(*args, **call.options)
    twin = TWINS[function](*twin_args, **call.options)
    start = like(parts(result))
    backward(result, start)
    if twin.requires_grad:  # a loss without a label depends on nothing
        backward(twin, start)
    assert result.dtype == twin.dtype and result.shape == twin.shape
    assert_allclose(result.data, twin.data, rtol, atol)
    for mine, other in zip(args, twin_args, strict=True):
        if isinstance(mine, Tensor):
            wanted = np.zeros(mine.shape, mine.dtype) if other.grad is None else other.grad
            assert mine.grad.dtype == wanted.dtype
            assert_allclose(mine.grad, wanted, rtol, atol)


TOLERANCE = {np.float64: (1e-10, 1e-11), np.float32: (2e-4, 2e-4)}


@settings(max_examples=EXAMPLES)
@given(data=st.data())
@pytest.mark.parametrize("function", TWINS, ids=lambda f: f.__name__)
def test_fused_equals_twin(function, data):
    call = data.draw(CASES[function].calls)
    dtype = data.draw(st.sampled_from(sorted(TOLERANCE, key=str)))
    with tinyfm.settings(**BLOCKS[data.draw(st.sampled_from(sorted(BLOCKS)))]):
        equal_twin(function, cast(call, dtype), *TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("function", TWINS, ids=lambda f: f.__name__)
def test_odd_sizes_equal_twin(function, blocks, dtype):
    with tinyfm.settings(**BLOCKS[blocks]):
        equal_twin(function, cast(ODD[function], dtype), *TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("block_bytes", [64, 1000, 1 << 20])
@pytest.mark.parametrize("function", TWINS, ids=lambda f: f.__name__)
def test_runs_and_threads_give_the_same_bits(function, block_bytes, dtype):
    def run(threads):
        with tinyfm.settings(block_bytes=block_bytes, threads=threads):
            results, gradients = values_and_gradients(function, cast(ODD[function], dtype))
        return results + gradients

    first = run(1)
    for threads in (1, 2, 2, 3):
        for a, b in zip(run(threads), first, strict=True):
            assert_array_equal(a, b, strict=True)


def test_small_blocks_are_taken():
    """What the tests above rely on: the settings do cut the rows."""
    seen = []
    with tinyfm.settings(block_bytes=64, threads=2):
        tinyfm.backend.by_rows(lambda rows: seen.append(len(rows)), np.zeros((7, 3)))
        assert sorted(seen) == [1, 2, 2, 2]
    seen.clear()
    tinyfm.backend.by_rows(lambda rows: seen.append(len(rows)), np.zeros((7, 3)))
    assert seen == [7]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("rows", [1, 2, 31, 32, 33])
def test_linear_of_few_rows_and_of_more(rows, dtype):
    rng = np.random.default_rng(0)
    x, weight, bias = (rng.standard_normal(s).astype(dtype) for s in ((rows, 7), (40, 7), 40))
    args = [tinyfm.tensor(a, requires_grad=True) for a in (x, weight, bias)]
    y = ops.linear(*args)
    g = rng.standard_normal(y.shape).astype(dtype)
    y.backward(g)
    wide = [a.astype(np.float64) for a in (x, weight, bias, g)]
    wanted = [wide[0] @ wide[1].T + wide[2], wide[3] @ wide[1], wide[3].T @ wide[0], wide[3].sum(0)]
    got = [y.data, *(a.grad for a in args)]
    for a, b in zip(got, wanted, strict=True):
        assert a.dtype == dtype and a.flags.c_contiguous
        assert_allclose(a, b, *TOLERANCE[dtype])


@pytest.mark.parametrize("offset", [0, 1e4, 1e8, 1e36])
def test_smoothed_losses_lose_nothing_to_an_offset(offset):
    z = np.random.default_rng(0).integers(-8, 8, (4, 1000)) * max(1, offset / 2**22) + offset
    z, labels = z.astype(np.float32), np.array([1, 2, 3, 4])
    twin = reference.cross_entropy(tinyfm.tensor(z.astype(np.float64)), labels, label_smoothing=0.1)
    loss = ops.cross_entropy(tinyfm.tensor(z), labels, label_smoothing=0.1)
    assert_allclose(loss.item(), twin.item(), 2e-6)


def test_relu_of_long_doubles():
    x = tinyfm.tensor(np.array([-1, 2], np.longdouble), requires_grad=True)
    ops.relu(x).sum().backward()
    assert_array_equal(x.grad, [0, 1])


# -- attention ------------------------------------------------------------------------------------


def implementations(call, **options):
    """[composed, fused] -> results and gradients of ops.attention."""
    both = []
    for implementation in ("composed", "fused"):
        args = leaves(ops.fused_attention, call)
        y = ops.attention(*args, **call.options, **options, implementation=implementation)
        y.backward(*like([y.data]))
        both.append([y.data, *(a.grad for a in args if isinstance(a, Tensor))])
    return both


@settings(max_examples=4 * EXAMPLES)
@given(
    call=CASES[ops.fused_attention].calls,
    dtype=st.sampled_from(sorted(TOLERANCE, key=str)),
    blocks=st.sampled_from(sorted(BLOCKS)),
    dims=st.sampled_from([4, 4, 3, 2]),
)
def test_attention_fused_equals_composed(call, dtype, blocks, dims):
    """Every mask with every bias and with dropout: the same seed drops the same in both.

    Queries and keys differ in number; heads or batch may be absent.
    """
    q, k, v, mask, bias, relative = cast(call, dtype).args
    first = (0,) * (4 - dims)
    mask = masks.as_mask(mask).dense(q.shape[0], q.shape[2], k.shape[2])
    mask = mask[0] if dims == 3 else mask[0, 0] if dims == 2 else mask
    if bias is not None:
        bias = np.broadcast_to(bias, (*q.shape[:3], k.shape[2]))[first]
    if relative is not None and dims == 2:
        relative = relative[:1]
    call = call._replace(args=(q[first], k[first], v[first], mask, bias, relative))
    with tinyfm.settings(**BLOCKS[blocks]):
        composed, fused = implementations(call)
    for wanted, got in zip(composed, fused, strict=True):
        assert got.dtype == dtype
        assert_allclose(got, wanted, *TOLERANCE[dtype])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("block_bytes", [300, 1 << 20])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("size", [0.5, 12.0], ids=["within reach of exp", "beyond"])
@pytest.mark.parametrize("mask", ["full", "causal", "prefix", "keys", "nowhere"])
@pytest.mark.parametrize(
    "queries, keys, width",
    [(5, 5, 9), (3, 7, 8), (19, 23, 3), (1, 13, 4), (1, 1, 2), (7, 3, 4)],
    ids=["kept", "kept, a cache", "made again", "a new token", "single", "more queries"],
)
def test_every_path_of_attention_equals_composed(
    queries, keys, width, mask, size, dtype, block_bytes, threads
):
    """Probabilities that are kept or made again, a maximum that is found or saved, no mask at all
    for what sees everything."""
    rng = np.random.default_rng(0)

    def x(length):
        return size * rng.standard_normal((2, 3, length, width))

    seen = {
        "full": masks.full(),
        "causal": masks.causal(),
        "prefix": masks.prefix(np.array([2, 1])),
        "keys": masks.padding(np.arange(keys) < np.array([[keys], [1]])),
        "nowhere": masks.allowed(np.arange(3)[:, None, None] != np.zeros((queries, keys))),
    }[mask]
    options = {"scale": 0.25}
    call = cast(Call((x(queries), x(keys), x(keys), seen, None, None), options), dtype)
    with tinyfm.settings(block_bytes=block_bytes, threads=threads):
        composed, fused = implementations(call)
    rtol, atol = TOLERANCE[dtype]
    for wanted, got in zip(composed, fused, strict=True):
        assert got.dtype == dtype
        assert_allclose(got, wanted, rtol, atol * max(1, np.abs(wanted).max()))


def test_backward_may_cut_the_rows_into_other_blocks_than_forward_did():
    rng, gradients = np.random.default_rng(0), []
    arrays = [rng.standard_normal((2, 2, 16, 8)) for _ in range(3)]
    for block_bytes in (64, 1 << 20):
        q, k, v = (tinyfm.tensor(a, requires_grad=True) for a in arrays)
        used = [np.full((4, 16, 16), np.nan) for _ in range(20)]  # memory that comes again
        del used
        with tinyfm.settings(block_bytes=block_bytes):
            out = ops.attention(q, k, v, masks.causal())
        out.sum().backward()
        gradients.append([q.grad, k.grad, v.grad])
    for a, b in zip(*gradients, strict=True):
        assert_allclose(a, b, 1e-10, 1e-12)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 3e38])
def test_a_forbidden_key_may_hold_anything(value):
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 1, 2, 3, 4)).astype(np.float32)
    wanted = ops.attention(q, k[:, :, :2], v[:, :, :2], implementation="composed")
    k[:, :, 2] = value
    with np.errstate(invalid="ignore", over="ignore"):
        got = ops.attention(q, k, v, masks.padding([[1, 1, 0]]))
        bias = np.zeros((1, 1, 3, 3), np.float32)
        bias[..., 2] = value
        biased = ops.attention(q, np.ones_like(k), v, masks.padding([[1, 1, 0]]), bias)
    assert_allclose(got.data, wanted.data, 1e-5, 1e-6)
    assert_allclose(biased.data, np.broadcast_to(v[:, :, :2].mean(2, keepdims=True), v.shape), 1e-5)


@pytest.mark.parametrize(
    "shape, keys",
    [((0, 2, 3, 4), 3), ((2, 0, 3, 4), 3), ((2, 2, 0, 4), 3), ((2, 2, 3, 4), 0)],
)
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_attention_of_nothing_is_nothing(shape, keys, dropout):
    q = tinyfm.tensor(np.zeros(shape), requires_grad=True)
    k = tinyfm.tensor(np.zeros((*shape[:2], keys, 4)), requires_grad=True)
    relative = tinyfm.tensor(np.zeros((shape[1], shape[2] + keys - 1)), requires_grad=True)
    out = ops.attention(q, k, k, None, None, relative, dropout=dropout, dropout_seed=1)
    out.sum().backward()
    assert out.shape == shape and not out.data.any()
    assert k.grad.shape == k.shape and not k.grad.any()
    assert relative.grad.shape == relative.shape and not relative.grad.any()


@pytest.mark.parametrize("implementation", ["composed", "fused"])
def test_R18_a_row_that_sees_nothing(implementation):
    q, k = (Tensor(np.eye(2)[None, None], requires_grad=True) for _ in range(2))
    v = Tensor(np.array([[[[1.0, 2.0], [3.0, 4.0]]]]), requires_grad=True)
    mask = np.array([[True, True], [False, False]])
    y = ops.attention(q, k, v, mask, implementation=implementation)
    y.sum().backward()
    assert_allclose(y.data[0, 0], [[1.6604769, 2.6604769], [0, 0]], atol=1e-7)
    assert_allclose(v.grad[0, 0], [[0.6697615] * 2, [0.3302385] * 2], atol=1e-7)
    assert_array_equal(q.grad[0, 0, 1], [0, 0])
    assert_allclose(k.grad[0, 0], [[-0.6255944, 0], [0.6255944, 0]], atol=1e-7)


def test_relative_bias_counts_from_the_last_query_on_the_last_key():
    """Entry n is for the distance key - query = n - (Tk - 1); one query sees them in order."""
    zero = np.zeros((1, 1, 1, 1))
    relative = np.log(np.arange(1.0, 5.0))[None]  # scores whose softmax is n / 10
    keys = np.zeros((1, 1, 4, 1))
    weights = ops.attention_weights(zero, keys, relative_bias=relative)
    assert_allclose(weights.data[0, 0], [[0.1, 0.2, 0.3, 0.4]])
    two = np.zeros((1, 1, 2, 1))
    relative = np.log(np.array([[1.0, 2, 3]]))
    weights = ops.attention_weights(two, two, relative_bias=relative)
    assert_allclose(weights.data[0, 0], [[2 / 5, 3 / 5], [1 / 3, 2 / 3]])


def test_attention_drops_different_entries_in_each_head_and_row():
    value = np.eye(40)[None, None].repeat(3, 1)
    zero = np.zeros((1, 3, 40, 1))
    for implementation in ("composed", "fused"):
        weights = ops.attention(
            zero, zero, value, dropout=0.5, dropout_seed=1, implementation=implementation
        ).data
        kept = (weights > 0).reshape(-1, 40)
        assert abs(kept.mean() - 0.5) < 0.03
        assert len(np.unique(kept, axis=0)) == 120


BAD_ATTENTION = [
    ({"implementation": "flash"}, "flash.*'fused'"),
    ({"dropout": 0.1}, "dropout_seed"),
    ({"relative_bias": np.zeros((1, 4))}, r"\(1, 4\).*\(1, 5\)"),
    ({"relative_bias": np.zeros((2, 5))}, r"\(2, 5\).*\(1, 5\)"),
    ({"k": np.zeros((1, 1, 4, 2))}, r"attention.*\(1, 1, 4, 2\)"),
]


@pytest.mark.parametrize("wrong, names", BAD_ATTENTION)
def test_attention_refuses_what_does_not_fit(wrong, names):
    right = {name: np.zeros((1, 1, 3, 2)) for name in "qkv"}
    with pytest.raises(ValueError, match=names):
        ops.attention(**right | wrong)


# -- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_linear_cross_entropy_never_holds_the_logits(reduction):
    rng = np.random.default_rng(0)
    rows, classes, width = 512, 20_000, 4
    hidden = rng.standard_normal((rows, width)).astype(np.float32)
    weight = rng.standard_normal((classes, width)).astype(np.float32)
    targets = rng.integers(0, classes, rows)

    def run():
        h, w = Tensor(hidden, requires_grad=True), Tensor(weight, requires_grad=True)
        ops.linear_cross_entropy(h, w, None, targets, reduction=reduction).sum().backward()

    assert memory(run)[1] < 4 * rows * classes


def test_linear_cross_entropy_computes_labelled_rows_only():
    """With one row in eight labelled, an eighth of the logits: what ignored rows hold is unseen."""
    hidden = np.full((512, 4), np.nan, np.float32)
    targets = np.full(512, -100)
    hidden[::8], targets[::8] = 1, 3
    h = Tensor(hidden, requires_grad=True)
    w = Tensor(np.ones((20, 4), np.float32), requires_grad=True)
    loss = ops.linear_cross_entropy(h, w, None, targets)
    loss.backward()
    assert_allclose(loss.data, math.log(20), rtol=1e-6)
    assert np.isfinite(w.grad).all()
    assert_array_equal(h.grad[1], np.zeros(4))


@pytest.mark.parametrize("mask", [None, masks.causal()], ids=["full", "causal"])
def test_fused_attention_holds_a_third_of_what_composed_does(mask):
    x = np.random.default_rng(0).standard_normal((1, 2, 2048, 16)).astype(np.float32)

    def run(implementation):
        q, k, v = (Tensor(x, requires_grad=True) for _ in range(3))
        y = ops.attention(q, k, v, mask, implementation=implementation)
        y.backward(x)

    assert memory(lambda: run("fused"))[1] <= memory(lambda: run("composed"))[1] / 3


# -- erf ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype, bound", [(np.float32, 2.4e-7), (np.float64, 1e-15)])
def test_erf_over_a_dense_grid(dtype, bound):
    x = np.concatenate([np.linspace(-7, 7, 140_001), np.geomspace(1e-30, 1, 2001), [1e4, 1e30]])
    x = x.astype(dtype)
    exact = np.array([math.erf(v) for v in x.tolist()])
    y = erf(x)
    assert y.dtype == dtype
    assert np.abs(y - exact).max() <= bound
    assert_array_equal(erf(-x), -y)
