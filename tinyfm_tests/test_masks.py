"""Who may see whom, against the definition written as a loop over queries and keys."""

import dataclasses
import functools
import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyfm import masks, tensor
from tinyfm.backend import host
from tinyfm.masks import Mask, as_mask
from tinyfm_tests import standin

# -- the definition --------------------------------------------------------------------------------
# A mask is drawn as a list of parts (name, array), and combined by `&` in that order.


def make(parts):
    makers = {
        "full": lambda _: masks.full(),
        "causal": lambda _: masks.causal(),
        "prefix": masks.prefix,
        "padding": masks.padding,
        "allowed": masks.allowed,
    }
    return functools.reduce(operator.and_, [makers[name](array) for name, array in parts])


def sees(parts, b, h, i, j, queries, keys):
    """May query i of head h and member b look at key j?  The last query stands on the last key."""
    position = i + keys - queries
    lengths = [array[b % len(array)] for name, array in parts if name == "prefix"]
    if lengths:  # a prefix mask holds causality already
        visible = j < min(lengths) or j <= position
    else:
        visible = j <= position or all(name != "causal" for name, _ in parts)
    for name, array in parts:
        if name == "padding":
            visible = visible and bool(array[b, j])
        if name == "allowed":
            wide = array.reshape((1,) * (4 - array.ndim) + array.shape)
            at = [n % size for n, size in zip((b, h, i, j), wide.shape, strict=True)]
            visible = visible and bool(wide[tuple(at)])
    return visible


def loop(parts, batch, heads, queries, keys):
    out = np.zeros((batch, heads, queries, keys), bool)
    for at in np.ndindex(out.shape):
        out[at] = sees(parts, *at, queries, keys)
    return out


def bools(shape):
    return st.lists(st.booleans(), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))).map(
        lambda values: np.array(values, bool).reshape(shape)
    )


@st.composite
def cases(draw, max_parts=4):
    """(parts, batch, heads, queries, keys); fewer, as many or more queries than keys."""
    batch, heads, queries, keys = (draw(st.integers(1, n)) for n in (3, 2, 4, 5))
    parts = []
    for _ in range(draw(st.integers(1, max_parts))):
        name = draw(st.sampled_from(["full", "causal", "prefix", "prefix", "padding", "allowed"]))
        array = None
        if name == "prefix":
            n = draw(st.sampled_from([1, batch]))
            array = np.array(draw(st.lists(st.integers(0, keys + 1), min_size=n, max_size=n)))
        elif name == "padding":  # holes and padding on the left come with any 0/1 array
            array = draw(bools((batch, keys))).astype(draw(st.sampled_from([bool, int, float])))
        elif name == "allowed":
            dims = draw(st.integers(2, 4))
            sizes = (batch, heads, queries, keys)[4 - dims :]
            array = draw(bools(tuple(draw(st.sampled_from([1, n])) for n in sizes)))
        parts.append((name, array))
    return parts, batch, heads, queries, keys


def broadcast(dense, shape):
    assert dense.dtype == bool
    assert dense.shape[1] in (1, shape[1])
    assert dense.shape[:1] + dense.shape[2:] == shape[:1] + shape[2:]
    return np.broadcast_to(dense, shape)


@given(cases(max_parts=1))
def test_each_mask_is_its_definition(case):
    parts, *sizes = case
    wanted = loop(parts, *sizes)
    batch, _, queries, keys = sizes
    found = make(parts).dense(batch, queries, keys)
    assert broadcast(found, wanted.shape).tolist() == wanted.tolist()


@settings(max_examples=2 * settings.default.max_examples)
@given(cases())
def test_every_combination_is_its_definition(case):
    parts, *sizes = case
    wanted = loop(parts, *sizes)
    batch, _, queries, keys = sizes
    found = make(parts).dense(batch, queries, keys)
    assert broadcast(found, wanted.shape).tolist() == wanted.tolist()


@given(cases(max_parts=3), st.data())
def test_and_is_associative_and_commutative(case, data):
    parts, batch, _, queries, keys = case
    shuffled = data.draw(st.permutations(parts))
    grouped = functools.reduce(lambda a, b: b & a, [make([part]) for part in shuffled])
    one, two = (m.dense(batch, queries, keys) for m in (make(parts), grouped))
    assert one.tolist() == two.tolist()


@given(cases(), st.data())
def test_blocks_of_rows_are_slices_of_the_whole(case, data):
    parts, batch, heads, queries, keys = case
    whole = loop(parts, batch, heads, queries, keys)
    start = data.draw(st.integers(0, queries))
    stop = data.draw(st.integers(start, queries))
    members = np.array(data.draw(st.lists(st.integers(0, batch - 1), max_size=4)), int)
    first = data.draw(st.integers(0, heads - 1))
    mask = make(parts)

    rows = mask.rows(members, queries, keys, start, stop, slice(first, heads))
    wanted = whole[members, first:, start:stop]
    assert np.broadcast_to(True if rows is None else rows, wanted.shape).tolist() == wanted.tolist()

    head = np.array([data.draw(st.integers(0, heads - 1)) for _ in members], int)
    rows = mask.rows(members, queries, keys, start, stop, head)
    wanted = whole[members, head, start:stop][:, None]
    assert np.broadcast_to(True if rows is None else rows, wanted.shape).tolist() == wanted.tolist()


@given(cases(), st.data())
def test_reorder_picks_members_of_the_batch(case, data):
    parts, batch, _, queries, keys = case
    picked = np.array(data.draw(st.lists(st.integers(0, batch - 1), min_size=1, max_size=5)))
    mask = make(parts)
    found = mask.reorder(picked).dense(len(picked), queries, keys)
    assert found.tolist() == mask.dense(batch, queries, keys)[picked].tolist()


# -- by hand ---------------------------------------------------------------------------------------


def rows_of(mask, queries, keys=None):
    """The mask of the first member as strings of 0 and 1."""
    dense = mask.dense(1, queries, keys or queries)[0, 0]
    return ["".join(str(int(x)) for x in row) for row in dense]


def test_full_and_causal():
    assert rows_of(masks.full(), 2, 3) == ["111", "111"]
    assert rows_of(masks.causal(), 3) == ["100", "110", "111"]


def test_r21_two_new_tokens_behind_three_cached():
    assert rows_of(masks.causal(), 2, 5) == ["11110", "11111"]


def test_r21_chunks_of_any_length_are_rows_of_the_whole():
    whole = rows_of(masks.causal(), 6)
    for cached in range(6):
        for new in range(1, 7 - cached):
            wanted = [row[: cached + new] for row in whole[cached : cached + new]]
            assert rows_of(masks.causal(), new, cached + new) == wanted


def test_more_queries_than_keys_leaves_the_first_without_any():
    assert rows_of(masks.causal(), 4, 2) == ["00", "00", "10", "11"]


def test_r24_a_prefix_of_three():
    assert rows_of(masks.prefix(3), 5) == ["11100", "11100", "11100", "11110", "11111"]


def test_r24_a_prefix_of_one_or_none_is_causal():
    for n in (0, 1):
        assert rows_of(masks.prefix(n), 5) == rows_of(masks.causal(), 5)


def test_r24_a_prefix_of_the_whole_length_is_full():
    for n in (5, 9):
        assert rows_of(masks.prefix(n), 5) == rows_of(masks.full(), 5)


def test_r24_a_new_token_behind_a_cached_prefix():
    assert rows_of(masks.prefix(3), 2, 5) == ["11110", "11111"]


def test_a_prefix_for_each_member():
    dense = masks.prefix([1, 3]).dense(2, 3, 3)[:, 0].astype(int)
    assert dense.tolist() == [[[1, 0, 0], [1, 1, 0], [1, 1, 1]], [[1, 1, 1], [1, 1, 1], [1, 1, 1]]]


def test_causal_and_prefix_is_that_prefix():
    for mask in (masks.causal() & masks.prefix(3), masks.prefix(3) & masks.causal()):
        assert rows_of(mask, 5) == rows_of(masks.prefix(3), 5)
        assert mask.causal is False


def test_prefix_and_prefix_is_the_shorter():
    mask = masks.prefix([1, 4]) & masks.prefix([2, 3]) & masks.prefix(9)
    assert mask.prefix.tolist() == [1, 3]


def test_a_prefix_counts_key_columns_padding_included():
    mask = masks.prefix(3) & masks.padding([[0, 1, 1, 1]])
    assert rows_of(mask, 4) == ["0110", "0110", "0110", "0111"]


def test_a_padding_query_still_looks_at_the_others():
    assert rows_of(masks.padding([[1, 1, 0]]), 3) == ["110", "110", "110"]


def test_padding_with_a_hole_and_on_the_left():
    assert rows_of(masks.causal() & masks.padding([[0, 1, 0, 1]]), 4) == [
        "0000",
        "0100",
        "0100",
        "0101",
    ]


def test_packed_documents():
    document = np.array([[0, 0, 1, 1]])
    same = document[:, None, :, None] == document[:, None, None, :]
    assert rows_of(masks.causal() & masks.allowed(same), 4) == ["1000", "1100", "0010", "0011"]


def test_a_mask_with_heads_shows_heads():
    bands = np.stack([np.eye(3, dtype=bool), np.ones((3, 3), bool)])
    assert masks.allowed(bands).dense(2, 3, 3).shape == (2, 2, 3, 3)
    assert masks.causal().dense(2, 3, 3).shape == (2, 1, 3, 3)


def test_a_model_is_given_nothing_or_a_mask_or_numbers():
    for like in (np.ones(1), standin.asarray(np.ones(1))):
        assert masks.of_tokens(None, like).dense(1, 2, 3).all()
        given = masks.prefix(2)
        assert masks.of_tokens(given, like) is given
        keys = masks.of_tokens([[1, 1, 0]], like).keys
        assert type(keys) is type(like)
        assert host(keys).tolist() == [[True, True, False]]


def test_r21_a_padding_mask_covers_the_cached_keys():
    mask = masks.causal() & masks.padding([[0, 1, 1, 1]])
    assert rows_of(mask, 1, 4) == ["0111"]


def test_full_changes_nothing():
    mask = masks.full() & masks.prefix(2) & masks.full()
    assert rows_of(mask, 3) == rows_of(masks.prefix(2), 3)


def test_what_may_be_given_as_a_mask():
    array = np.eye(2, dtype=bool)
    assert rows_of(as_mask(None), 2) == ["11", "11"]
    assert rows_of(as_mask(array), 2) == ["10", "01"]
    assert rows_of(as_mask(tensor(array)), 2) == ["10", "01"]
    mask = masks.causal()
    assert as_mask(mask) is mask


@pytest.mark.parametrize("kind", [np.array, tensor, list], ids=["array", "tensor", "list"])
def test_padding_and_prefix_take_arrays_tensors_and_lists(kind):
    integers = [[1, 1, 0]] if kind is list else kind(np.array([[1, 1, 0]]))
    lengths = [2] if kind is list else kind(np.array([2]))
    assert rows_of(masks.padding(integers), 3) == ["110"] * 3
    assert rows_of(masks.prefix(lengths), 3) == ["110", "110", "111"]


def test_the_mask_does_not_follow_a_change_of_the_attention_mask():
    attention_mask = np.array([[1, 1, 0]])
    mask = masks.padding(attention_mask)
    attention_mask[:] = 1
    assert rows_of(mask, 3) == ["110"] * 3


# -- bad input -------------------------------------------------------------------------------------


def test_a_mask_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        masks.causal().causal = False


@pytest.mark.parametrize(
    "make_it, error, words",
    [
        (lambda: masks.allowed(np.ones((3, 3))), TypeError, r"bool.*float64 \(3, 3\)"),
        (lambda: masks.allowed([[1, 0]]), TypeError, r"bool.*int64 \(1, 2\)"),
        (lambda: masks.allowed([True]), TypeError, r"2 to 4 dimensions.*\(1,\)"),
        (lambda: masks.allowed(np.ones((1,) * 5, bool)), TypeError, "2 to 4 dimensions"),
        (lambda: as_mask("causal"), TypeError, "bool array"),
        (lambda: as_mask(3), TypeError, "bool array"),
        (lambda: masks.prefix(2.0), TypeError, "integers, not float64"),
        (lambda: masks.prefix(True), TypeError, "integers, not bool"),
        (lambda: masks.padding([1, 1, 0]), ValueError, r"\(3,\).*\(batch, keys\)"),
        (lambda: masks.padding(np.ones((1, 1, 3))), ValueError, r"\(1, 1, 3\).*\(batch, keys\)"),
        (lambda: masks.padding([[1]] * 2) & masks.padding([[1]] * 3), ValueError, "(2,1).*(3,1)"),
        (lambda: masks.causal() & np.ones((2, 2), bool), TypeError, "&"),
        (lambda: masks.causal() & None, TypeError, "&"),
    ],
)  # fmt: skip
def test_what_is_no_mask_says_what_is_wrong(make_it, error, words):
    with pytest.raises(error, match=words):
        make_it()


def ones(*shape):
    return np.ones(shape, bool)


MISFITS = {
    "keys": masks.padding(ones(2, 4)),
    "one key": masks.padding(ones(2, 1)),
    "batch of the padding": masks.padding(ones(3, 5)),
    "batch of the prefix": masks.prefix([1, 2, 3]),
    "batch of allowed": masks.allowed(ones(3, 1, 4, 5)),
    "queries of allowed": masks.allowed(ones(3, 5)),
    "keys of allowed": masks.allowed(ones(4, 4)),
}


@pytest.mark.parametrize("name", MISFITS)
def test_a_mask_that_does_not_fit_names_sizes_and_remedy(name):
    mask = MISFITS[name]
    part = next(p for p in (mask.keys, mask.prefix, mask.allowed) if p is not None)
    with pytest.raises(ValueError) as caught:
        mask.dense(2, 4, 5)
    words = str(caught.value)
    assert str(part.shape) in words
    assert "4 queries" in words
    assert "5 keys" in words
    assert "must be" in words


def test_a_mask_for_one_member_fits_any_batch():
    for mask in (masks.padding(ones(1, 5)), masks.prefix(3), masks.allowed(ones(1, 1, 4, 5))):
        assert mask.dense(3, 4, 5).shape == (3, 1, 4, 5)


def test_heads_are_checked_where_they_are_known():
    mask = Mask(allowed=ones(1, 3, 4, 5))
    with pytest.raises(ValueError, match=r"\(1, 3, 4, 5\)"):
        mask.check(2, 2, 4, 5)
    mask.check(2, 3, 4, 5)
