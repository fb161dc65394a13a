"""Attention through each of its implementations: worked examples, masks, biases, torch."""

import contextlib
import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyfm
from tinyfm import Tensor, gradcheck, masks, ops, tensor
from tinyfm.masks import as_mask

# name: (implementation, bytes of a block, threads)
IMPLEMENTATIONS = {
    "composed": ("composed", 1 << 20, 1),
    "fused": ("fused", 1 << 20, 1),
    "auto": ("auto", 1 << 20, 2),
    "one row a block": ("fused", 1, 2),
    "two rows a block": ("fused", 2 * 5 * 8, 1),
}
BLOCKS = ["fused", "one row a block", "two rows a block"]


@contextlib.contextmanager
def running(name):
    """ops.attention of an implementation, with its size of blocks for forward and backward."""
    implementation, block_bytes, threads = IMPLEMENTATIONS[name]
    with tinyfm.settings(block_bytes=block_bytes, threads=threads):
        yield functools.partial(ops.attention, implementation=implementation)


@pytest.fixture(params=IMPLEMENTATIONS)
def attend(request):
    with running(request.param) as attend:
        yield attend


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def leaf(array):
    return tensor(np.asarray(array, np.float64), requires_grad=True)


def close(found, wanted, atol=1e-12):
    np.testing.assert_allclose(getattr(found, "data", found), wanted, rtol=0, atol=atol)


# -- worked examples (features.md, section 1) ------------------------------------------------------

X = np.array([[1.0, 0], [0, 1], [1, 1], [0, 0], [1, 2]])
Q, K, V = X, X @ [[0, 1], [1, 0]], X @ [[1, 1], [1, -1]]


def test_seed_example_with_scale_1(attend):
    first = ops.attention_weights(Q, K, scale=1).data[0]
    close(first, [0.067451, 0.183350, 0.183350, 0.067451, 0.498398], 1e-6)
    wanted = [[2.1127, 1.7046, 2.3730, 1.4, 2.4953], [-0.6143, -0.0985, -0.5923, -0.2, -0.5820]]
    close(attend(Q, K, V, scale=1), np.transpose(wanted), 5e-5)


def test_seed_example_with_the_default_scale(attend):
    close(ops.attention_weights(Q, K).data[0], [0.0983, 0.1994, 0.1994, 0.0983, 0.4045], 5e-5)
    close(attend(Q, K, V).data[0], [1.9100, -0.5056], 5e-5)


SCORES = np.array(
    [
        [3.0475, 0.7071, -0.4910, 1.2574],
        [0.7071, 1.6871, -0.1919, 1.5459],
        [-0.4910, -0.1919, 4.2369, -1.2359],
        [1.2574, 1.5459, -1.2359, 2.4831],
    ]
)
KEY_4_PADDED = masks.padding([[1, 1, 1, 0]])


@pytest.mark.parametrize(
    "mask, row, wanted",
    [
        (None, 2, [0.1566, 0.4173, 0.0637, 0.3623]),
        (masks.causal(), 2, [0.2729, 0.7271, 0, 0]),
        (masks.causal(), 4, [0.1717, 0.2291, 0.0142, 0.5850]),
        (None, 4, [0.1717, 0.2291, 0.0142, 0.5850]),
        (KEY_4_PADDED, 2, [0.2456, 0.6544, 0.1000, 0]),
        (KEY_4_PADDED, 4, [0.4137, 0.5521, 0.0342, 0]),  # a pad query's own row is not masked
    ],
)
def test_masking_renormalises(attend, mask, row, wanted):
    """With keys and values of the identity the scores are q, and the result is the weights."""
    one = np.eye(4)
    close(ops.attention_weights(SCORES, one, mask, scale=1).data[row - 1], wanted, 5e-5)
    close(attend(SCORES, one, one, mask, scale=1).data[row - 1], wanted, 5e-5)


@pytest.mark.parametrize("mask", [masks.causal(), KEY_4_PADDED, masks.prefix(2)])
def test_every_row_of_weights_sums_to_1(mask):
    weights = ops.attention_weights(SCORES, np.eye(4), mask).data
    close(weights.sum(-1), np.ones(4))


# -- rows without anything to look at (R18) --------------------------------------------------------


def test_r18_a_fully_masked_row(attend):
    q, k, v = leaf(np.eye(2)), leaf(np.eye(2)), leaf([[1, 2], [3, 4]])
    out = attend(q, k, v, np.array([[True, True], [False, False]]))
    close(out, [[1.6604769, 2.6604769], [0, 0]], 1e-7)
    out.sum().backward()
    close(v.grad, [[0.6697615, 0.6697615], [0.3302385, 0.3302385]], 1e-7)
    close(k.grad, [[-0.6255944, 0], [0.6255944, 0]], 1e-7)
    assert q.grad[1].tolist() == [0, 0]
    assert q.grad[0].any()


def test_r18_the_other_rows_are_unaffected(attend):
    q, k, v = (normal(1, 2, 4, 3, seed=s) for s in range(3))
    seen = np.ones((4, 4), bool)
    seen[1] = False
    full, masked = attend(q, k, v).data, attend(q, k, v, seen).data
    close(masked[:, :, [0, 2, 3]], full[:, :, [0, 2, 3]])
    assert not masked[:, :, 1].any()


def test_r18_all_keys_of_one_member_padded(attend):
    q, k, v = (leaf(normal(2, 2, 3, 4, seed=s)) for s in range(3))
    out = attend(q, k, v, masks.padding([[1, 1, 0], [0, 0, 0]]))
    out.sum().backward()
    assert not out.data[1].any()
    for t in (q, k, v):
        assert np.isfinite(t.grad).all()
        assert not t.grad[1].any()
        assert t.grad[0].any()


def test_r18_causal_with_more_queries_than_keys(attend):
    q, k, v = (leaf(normal(1, 1, n, 3, seed=n)) for n in (5, 2, 2))
    out = attend(q, k, v, masks.causal())
    out.sum().backward()
    assert not out.data[0, 0, :3].any()
    close(out.data[0, 0, 3], v.data[0, 0, 0])
    assert not q.grad[0, 0, :3].any()


@pytest.mark.parametrize("sizes", [(2, 0), (0, 2), (0, 0)])
def test_no_queries_or_no_keys(attend, sizes):
    queries, keys = sizes
    q, k, v = (leaf(np.ones((1, 2, n, 3))) for n in (queries, keys, keys))
    out = attend(q, k, v)
    out.sum().backward()
    assert out.shape == (1, 2, queries, 3)
    assert not out.data.any()
    assert not q.grad.any()
    assert k.grad.shape == k.shape


def test_an_empty_batch(attend):
    empty = np.ones((0, 2, 3, 4))
    assert attend(empty, empty, empty, masks.causal()).shape == (0, 2, 3, 4)


# -- what attention is, in words -------------------------------------------------------------------


def test_a_padded_batch_equals_each_sentence_alone(attend):
    lengths = [5, 2, 3]
    q, k, v = (normal(3, 2, 5, 4, seed=s) for s in range(3))
    padded = attend(q, k, v, masks.padding(np.arange(5) < np.array(lengths)[:, None])).data
    for b, n in enumerate(lengths):
        alone = attend(*(x[b : b + 1, :, :n] for x in (q, k, v))).data
        close(padded[b, :, :n], alone[0])


def test_left_padding_equals_the_sentence_alone(attend):
    q, k, v = (normal(1, 2, 5, 4, seed=s) for s in range(3))
    padded = attend(q, k, v, masks.causal() & masks.padding([[0, 0, 1, 1, 1]])).data
    close(padded[:, :, 2:], attend(*(x[:, :, 2:] for x in (q, k, v)), masks.causal()))


def test_what_stands_in_the_padding_does_not_matter(attend):
    q, k, v = (normal(1, 1, 4, 3, seed=s) for s in range(3))
    mask = masks.padding([[1, 0, 1, 0]])
    before = attend(q, k, v, mask).data
    k, v = k.copy(), v.copy()
    k[:, :, [1, 3]], v[:, :, [1, 3]] = 1e3, -1e3
    close(attend(q, k, v, mask), before)


def test_r20_permuting_the_tokens_permutes_the_output(attend):
    q, k, v = (normal(2, 2, 5, 4, seed=s) for s in range(3))
    order = [3, 0, 4, 1, 2]
    found = attend(*(x[:, :, order] for x in (q, k, v))).data
    close(found, attend(q, k, v).data[:, :, order])


def test_permuting_keys_and_values_together_changes_nothing(attend):
    q, k, v = (normal(1, 1, 4, 3, seed=s) for s in range(3))
    order = [2, 0, 3, 1]
    close(attend(q, k[:, :, order], v[:, :, order]), attend(q, k, v).data)


@pytest.mark.parametrize("chunks", [[1] * 6, [3, 1, 2], [2, 4], [6]])
def test_r21_causal_with_cached_keys_equals_the_full_run(attend, chunks):
    q, k, v = (normal(2, 2, 6, 4, seed=s) for s in range(3))
    mask = masks.causal() & masks.padding([[1] * 6, [0, 1, 1, 1, 1, 1]])
    whole, start = attend(q, k, v, mask).data, 0
    for n in chunks:
        stop = start + n
        so_far = masks.causal() & masks.padding(mask.keys[:, :stop])
        part = attend(q[:, :, start:stop], k[:, :, :stop], v[:, :, :stop], so_far)
        close(part, whole[:, :, start:stop])
        start = stop


def test_r19_a_causal_row_depends_on_nothing_later(attend):
    q, k, v = (normal(1, 2, 5, 4, seed=s) for s in range(3))
    before = attend(q, k, v, masks.causal()).data
    k[:, :, 3], v[:, :, 3] = 7, -7
    after = attend(q, k, v, masks.causal()).data
    close(after[:, :, :3], before[:, :, :3], 0)
    assert (np.abs(after - before)[:, :, 3:] > 1e-3).all()


def test_batch_and_heads_may_be_absent(attend):
    q, k, v = (normal(1, 2, n, 3, seed=n) for n in (4, 5, 5))
    wanted = attend(q, k, v, masks.causal()).data
    close(attend(q[0], k[0], v[0], masks.causal()), wanted[0])
    close(attend(q[0, 1], k[0, 1], v[0, 1], masks.causal()), wanted[0, 1])


def test_values_may_have_another_width(attend):
    out = attend(normal(1, 2, 3, 4), normal(1, 2, 5, 4), normal(1, 2, 5, 7))
    assert out.shape == (1, 2, 3, 7)


def test_scores_of_a_thousand_do_not_overflow(attend):
    q = np.full((1, 1, 2, 1), 1000.0)
    k, v = np.array([[1.0], [-1.0]])[None, None], np.array([[1.0], [2.0]])[None, None]
    close(attend(q, k, v), np.ones((1, 1, 2, 1)))


def test_r20_head_split_and_merge():
    heads = np.array([[[[1.0, 2], [3, 4]], [[5, 6], [7, 8]]]])
    merged = ops.merge_heads(heads)
    assert merged.data.tolist() == [[[1, 2, 5, 6], [3, 4, 7, 8]]]
    (back,) = ops.split_heads(merged, parts=1, heads=2)
    assert back.data.tolist() == heads.tolist()


# -- dropout ---------------------------------------------------------------------------------------


def test_dropout_is_that_of_the_composed_version(attend):
    """The mask is a function of the seed alone, however the rows are cut into blocks."""
    q, k, v = (normal(2, 2, 5, 4, seed=s) for s in range(3))
    for p in (0.25, 0.3):
        options = {"dropout": p, "dropout_seed": 7}
        wanted = ops.attention(q, k, v, masks.causal(), implementation="composed", **options)
        close(attend(q, k, v, masks.causal(), **options), wanted.data)


def test_dropout_works_on_the_probabilities(attend):
    """With values of one, what is left of a row is the kept probability times 1 / (1 - p)."""
    q = np.zeros((1, 1, 400, 1))
    out = attend(q, np.zeros((1, 1, 50, 1)), np.ones((1, 1, 50, 1)), dropout=0.5, dropout_seed=1)
    kept = np.round(out.data * 50 / 2)
    close(out, kept * 2 / 50)
    assert abs(kept.mean() - 25) < 1
    assert kept.std() > 2


def test_dropout_of_1_leaves_nothing(attend):
    q = leaf(normal(1, 1, 3, 2))
    out = attend(q, q, q, dropout=1.0, dropout_seed=1)
    out.sum().backward()
    assert not out.data.any()
    assert not q.grad.any()


# -- gradients -------------------------------------------------------------------------------------


def gradients(name, arrays, mask, **options):
    """(result, gradients) of attention with q, k, v, bias, relative_bias; the last two or None."""
    leaves = [None if a is None else leaf(a) for a in arrays]
    with running(name) as attend:
        out = attend(*leaves[:3], mask, *leaves[3:], **options)
        out.backward(normal(*out.shape, seed=9))
    return out.data, [t.grad for t in leaves if t is not None]


BIASES = [(), (1,), (4, 5), (1, 5), (4, 1), (2, 4, 5), (2, 1, 1), (3, 1, 4, 5), (3, 2, 4, 5)]


@pytest.mark.parametrize("shape", BIASES, ids=str)
@pytest.mark.parametrize("name", ["composed", "fused", "one row a block"])
def test_a_bias_broadcasts_and_its_gradient_is_summed(name, shape):
    q, k, v = (normal(3, 2, n, 3, seed=n) for n in (4, 5, 5))
    small = normal(*shape, seed=4)
    out, grads = gradients(name, (q, k, v, small, None), masks.causal())
    whole = np.broadcast_to(small, (3, 2, 4, 5))
    wanted, whole_grads = gradients("composed", (q, k, v, whole, None), masks.causal())
    close(out, wanted)
    summed = whole_grads[3].sum(tuple(range(4 - len(shape))))
    axes = tuple(i for i, n in enumerate(shape) if n == 1)
    close(grads[3], summed.sum(axes, keepdims=True) if axes else summed)


def test_a_constant_bias_on_a_row_changes_nothing(attend):
    q, k, v = (normal(1, 2, 4, 3, seed=s) for s in range(3))
    close(attend(q, k, v, None, normal(1, 2, 4, 1)), attend(q, k, v).data)


def relative_as_bias(relative, queries, keys):
    """(H, Tq, Tk): entry n is for key - query = n - (Tk - 1), the last query on the last key."""
    bias = np.empty((len(relative), queries, keys))
    for h, i, j in np.ndindex(bias.shape):
        position = i + keys - queries
        bias[h, i, j] = relative[h, (j - position) + (keys - 1)]
    return bias


def test_the_definition_of_relative_bias_by_hand():
    """Three keys, two queries: the queries stand on keys 1 and 2, distances go from -2 to 1."""
    relative = np.array([[-2.0, -1, 0, 1]])
    assert relative_as_bias(relative, 2, 3).tolist() == [[[-1, 0, 1], [-2, -1, 0]]]


@pytest.mark.parametrize("sizes", [(4, 4), (2, 5), (1, 5), (5, 2), (1, 1)], ids=str)
@pytest.mark.parametrize("mask", [None, masks.causal()], ids=["full", "causal"])
@pytest.mark.parametrize("name", ["composed", *BLOCKS])
def test_relative_bias_is_its_dense_definition(name, mask, sizes):
    queries, keys = sizes
    q, k, v = (normal(3, 2, n, 3, seed=s) for s, n in enumerate((queries, keys, keys)))
    relative = normal(2, queries + keys - 1, seed=5)
    dense = relative_as_bias(relative, queries, keys)
    out, grads = gradients(name, (q, k, v, None, relative), mask)
    wanted, dense_grads = gradients("composed", (q, k, v, dense, None), mask)
    close(out, wanted)
    for found, right in zip(grads[:3], dense_grads[:3], strict=True):
        close(found, right)
    diagonals = np.zeros_like(relative)
    for h, i, j in np.ndindex(dense.shape):
        diagonals[h, j - i + queries - 1] += dense_grads[3][h, i, j]
    close(grads[3], diagonals)


def test_a_relative_bias_is_right_with_a_cache(attend):
    """The last rows of a full run, from the middle of the table."""
    q, k, v = (normal(1, 2, 5, 3, seed=s) for s in range(3))
    relative = normal(2, 9, seed=5)
    whole = attend(q, k, v, masks.causal(), None, relative).data
    part = attend(q[:, :, 3:], k, v, masks.causal(), None, relative[:, :6])
    close(part, whole[:, :, 3:])


MASKS = {
    "none": None,
    "causal": masks.causal(),
    "prefix": masks.prefix([2, 4]),
    "padding with holes": masks.padding([[1, 0, 1, 1, 0], [0, 1, 1, 1, 1]]),
    "causal and left padding": masks.causal() & masks.padding([[0, 0, 1, 1, 1], [1] * 5]),
    "bands": masks.allowed(np.tri(4, 5, 1, bool) & ~np.tri(4, 5, -1, bool)),
    "heads": masks.allowed(np.stack([np.tri(4, 5, 1, bool), np.ones((4, 5), bool)])),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", ["composed", *BLOCKS])
def test_gradients_under_each_mask_with_both_biases(name, mask):
    q, k, v = (leaf(normal(2, 2, n, 3, seed=s)) for s, n in enumerate((4, 5, 5)))
    bias, relative = leaf(normal(2, 4, 5)), leaf(normal(2, 8))
    with running(name) as attend:
        gradcheck(lambda *args: attend(*args[:3], MASKS[mask], *args[3:]), q, k, v, bias, relative)


@settings(max_examples=max(25, settings.default.max_examples // 4))
@given(
    st.sampled_from(BLOCKS),
    st.sampled_from(list(MASKS)),
    st.sampled_from([None, 0.7, 1]),
    st.sampled_from([0.0, 0.25, 0.4]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_fused_equals_composed(name, mask, scale, dropout, bias, relative, seed):
    arrays = [normal(2, 2, n, 3, seed=seed + i) for i, n in enumerate((4, 5, 5))]
    arrays += [normal(2, 4, 5, seed=seed) if bias else None, normal(2, 8) if relative else None]
    options = {"scale": scale, "dropout": dropout, "dropout_seed": seed if dropout else None}
    out, grads = gradients(name, arrays, MASKS[mask], **options)
    wanted, right = gradients("composed", arrays, MASKS[mask], **options)
    close(out, wanted)
    for g, r in zip(grads, right, strict=True):
        close(g, r)


# -- torch -----------------------------------------------------------------------------------------


@pytest.mark.parity
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("scale", [None, 1.0, 0.3])
@pytest.mark.parametrize("name", ["composed", "fused", "one row a block"])
def test_torch_scaled_dot_product_attention(name, scale, mask):
    import torch

    arrays = [normal(2, 2, n, 3, seed=s) for s, n in enumerate((4, 5, 5))]
    bias = normal(2, 4, 5)
    out, grads = gradients(name, (*arrays, bias, None), MASKS[mask], scale=scale)
    dense = as_mask(MASKS[mask]).dense(2, 4, 5)
    q, k, v, b = (torch.tensor(a, requires_grad=True) for a in (*arrays, bias))
    added = torch.where(torch.tensor(dense), b, -torch.inf)
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, added, scale=scale)
    wanted.backward(torch.tensor(normal(*out.shape, seed=9)))
    right, found = [t.grad.numpy() for t in (q, k, v, b)], [out, *grads]
    # torch makes NaN of a row that may look nowhere; those rows are test_r18's
    rows = dense.any(-1).all(1)
    if rows.all():
        for a, w in zip(found, [wanted.detach().numpy(), *right], strict=True):
            close(a, w)
    else:
        every = np.broadcast_to(rows[:, None, :, None], out.shape)
        close(out[every], wanted.detach().numpy()[every])


# -- bad input -------------------------------------------------------------------------------------

ONE = np.ones((2, 3, 4, 5))


@pytest.mark.parametrize(
    "q, k, v",
    [
        (ONE, ONE[..., :4], ONE),
        (ONE, ONE[:, :, :3], ONE),
        (ONE, ONE[:1], ONE[:1]),
        (ONE, ONE[:, :1], ONE[:, :1]),
        (ONE, ONE[0], ONE[0]),
        (ONE[0, 0, 0], ONE[0, 0], ONE[0, 0]),
        (ONE[None], ONE[None], ONE[None]),
    ],
)
def test_shapes_that_do_not_fit_name_op_shapes_and_remedy(attend, q, k, v):
    with pytest.raises(ValueError) as caught:
        attend(q, k, v)
    words = str(caught.value)
    assert "'attention'" in words
    assert all(str(x.shape) in words for x in (q, k, v))
    assert "(B, H, Tq, D)" in words


@pytest.mark.parametrize("shape", [(3, 6), (3, 8), (1, 7), (4, 7), (7,), (1, 3, 7)])
def test_a_relative_bias_of_another_shape(attend, shape):
    with pytest.raises(ValueError) as caught:
        attend(ONE, ONE, ONE, None, None, np.ones(shape))
    words = str(caught.value)
    assert "'attention'" in words
    assert str(shape) in words
    assert "(H, Tq + Tk - 1)" in words
    assert "(3, 7)" in words


@pytest.mark.parametrize("shape", [(3, 4), (4, 3, 4, 4), (2, 2, 4, 4)])
def test_a_bias_of_another_shape_names_an_op_and_the_shape(attend, shape):
    with pytest.raises(ValueError) as caught:
        attend(ONE, ONE, ONE, None, np.ones(shape))
    assert "op '" in str(caught.value)
    assert str(shape) in str(caught.value)


MISFITS = [
    masks.padding(np.ones((2, 5))),
    masks.padding(np.ones((3, 4))),
    masks.prefix([1, 2, 3]),
    masks.allowed(np.ones((4, 3), bool)),
    masks.allowed(np.ones((5, 4, 4), bool)),
    masks.allowed(np.ones((3, 1, 4, 4), bool)),
]


@pytest.mark.parametrize("mask", MISFITS, ids=lambda m: str(m)[:60])
def test_a_mask_of_another_shape_names_it_and_the_sizes(attend, mask):
    part = next(p for p in (mask.keys, mask.prefix, mask.allowed) if p is not None)
    with pytest.raises(ValueError) as caught:
        attend(ONE, ONE, ONE, mask)
    assert str(part.shape) in str(caught.value)


@pytest.mark.parametrize("mask", [np.ones((4, 4)), np.ones((4, 4), int), "causal"])
def test_a_mask_that_is_not_bool(attend, mask):
    with pytest.raises(TypeError, match="bool array"):
        attend(ONE, ONE, ONE, mask)


def test_a_mask_as_array_tensor_or_mask_is_the_same(attend):
    array = np.tri(4, dtype=bool)
    wanted = attend(ONE, ONE, ONE, masks.causal()).data
    for mask in (array, Tensor(array), masks.allowed(array), masks.allowed(Tensor(array))):
        close(attend(ONE, ONE, ONE, mask), wanted)


def test_unknown_options_say_what_there_is():
    with pytest.raises(ValueError, match=r"'flash'.*'auto'"):
        ops.attention(ONE, ONE, ONE, implementation="flash")
    with pytest.raises(ValueError, match=r"attention.*dropout_seed"):
        ops.attention(ONE, ONE, ONE, dropout=0.1)
    with pytest.raises(ValueError, match=r"dropout.*1\.5.*between 0 and 1"):
        ops.attention(ONE, ONE, ONE, dropout=1.5, dropout_seed=1)
    with pytest.raises(ValueError, match=r"dropout.*1\.5.*between 0 and 1"):
        ops.attention(ONE, ONE, ONE, dropout=1.5, dropout_seed=1, implementation="composed")


# -- arguments of other kinds ---------------------------------------------------------------------


@pytest.mark.parametrize("implementation", ["fused", "composed"])
def test_plain_arrays_and_lists_take_the_tensors_dtype(implementation):
    k = tensor(np.eye(2, dtype=np.float32), requires_grad=True)
    out = ops.attention(np.eye(2), k, [[1.0, 2.0], [3.0, 4.0]], implementation=implementation)
    assert out.dtype == np.float32
    expected = ops.attention(np.eye(2), np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]]))
    np.testing.assert_allclose(out.data, expected.data, rtol=1e-6)


@pytest.mark.parametrize("implementation", ["fused", "composed"])
def test_a_bias_that_does_not_broadcast_to_the_scores_is_refused(implementation):
    q = np.ones((1, 1, 2, 2))
    with pytest.raises(ValueError, match=r"bias \(5, 1, 2, 2\) does not broadcast to the scores"):
        ops.attention(q, q, q, bias=np.ones((5, 1, 2, 2)), implementation=implementation)


@pytest.mark.parametrize("function", [ops.attention, ops.attention_weights])
def test_a_tensor_as_scale_is_refused(function):
    q = np.ones((2, 2))
    arguments = (q, q, q) if function is ops.attention else (q, q)
    with pytest.raises(TypeError, match="'scale' is an option"):
        function(*arguments, scale=tensor(0.5))
