"""Masked language modelling: which words are hidden, how many, and behind what."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyfm.objectives import mask_tokens

CLS, SEP, PAD, MASK = 101, 102, 0, 103
RECIPES = ["bert", "roberta", "hf"]
VOCAB = 30522


def framed(normal, width=None, left=0):
    """(ids, special) of [CLS] 1000, 1001, ... [SEP], padded left and up to a width."""
    ids = [PAD] * left + [CLS, *range(1000, 1000 + normal), SEP]
    ids += [PAD] * ((width or 0) - len(ids))
    return np.array(ids), np.array(ids) < 1000


def mask(ids, special, seed=0, **options):
    options = {"mask_id": MASK, "vocab_size": VOCAB, "rng": np.random.default_rng(seed)} | options
    return mask_tokens(ids, special, **options)


@pytest.mark.parametrize("recipe", RECIPES)
def test_r45_ratios(recipe):
    ids = np.random.default_rng(1).integers(1000, VOCAB, 100_000)
    hidden, labels = mask(ids, np.zeros(ids.shape, bool), recipe=recipe)
    chosen = labels != -100
    masked, kept = chosen & (hidden == MASK), chosen & (hidden == ids)
    assert abs(chosen.sum() - 15_000) <= (565 if recipe == "hf" else 0)
    share = chosen.sum() / 15_000
    assert abs(masked.sum() - 12_000 * share) <= 245
    assert abs(kept.sum() - 1_500 * share) <= 184
    assert abs((chosen & ~masked & ~kept).sum() - 1_500 * share) <= 184


@given(
    st.lists(st.lists(st.booleans(), min_size=6, max_size=6), max_size=5),
    st.sampled_from(RECIPES),
    st.floats(0.01, 1),
    st.none() | st.integers(1, 3),
    st.sampled_from([np.int32, np.int64, np.uint16]),
    st.integers(0, 99),
)
def test_r45_input_and_labels_differ_only_where_chosen(special, recipe, p, most, dtype, seed):
    special = np.array(special, bool).reshape(-1, 6)
    ids = np.arange(special.size, dtype=dtype).reshape(special.shape) + 1000
    before = ids.copy()
    hidden, labels = mask(ids, special, seed, recipe=recipe, p=p, max_predictions=most)
    chosen = labels != -100
    np.testing.assert_array_equal(ids, before)
    assert (hidden.dtype, labels.dtype) == (dtype, np.int64)
    assert not chosen[special].any()
    np.testing.assert_array_equal(labels[chosen], ids[chosen])
    np.testing.assert_array_equal(hidden[~chosen], ids[~chosen])
    assert (hidden[chosen] < VOCAB).all()
    normal, count = (~special).sum(axis=-1), chosen.sum(axis=-1)
    assert ((count >= 1) == (normal >= 1)).all()
    assert (count <= (normal if most is None else np.minimum(normal, most))).all()


@pytest.mark.parametrize("recipe", RECIPES)
def test_r45_short_texts(recipe):
    rows = [framed(n, width=22) for n in (1, 3, 10, 20, 0)]
    ids, special = (np.stack(side) for side in zip(*rows, strict=True))
    for seed in range(50):
        hidden, labels = mask(ids, special, seed, recipe=recipe)
        counts = (labels != -100).sum(axis=-1).tolist()
        if recipe == "bert":
            assert counts == [1, 1, 2, 3, 0]
            half = mask(ids, special, seed, p=0.5)[1]  # of 3, 5, 12, 22 with [CLS] and [SEP]
            assert (half != -100).sum(axis=-1).tolist() == [1, 2, 6, 11, 0]
        assert min(counts[:4]) >= 1 and counts[4] == 0
        assert labels[0].tolist() == [-100, 1000, *[-100] * 20]
        assert (hidden[special] == ids[special]).all()


# 0.15 times the length with special tokens, halves to the even side (Python's round).
@pytest.mark.parametrize(
    "length, count", [(10, 2), (30, 4), (50, 8), (70, 10), (128, 19), (512, 77)]
)
@pytest.mark.parametrize("padding", [{}, {"width": 600}, {"left": 7}, {"width": 600, "left": 7}])
def test_bert_counts_by_the_length_without_padding(length, count, padding):
    ids, special = framed(length - 2, **padding)
    assert (mask(ids, special)[1] != -100).sum() == count
    assert (mask(ids, special, max_predictions=20)[1] != -100).sum() == min(count, 20)


def test_bert_counts_in_a_text_without_special_tokens():
    ids = np.arange(1000, 1043)
    assert (mask(ids, ids < 0)[1] != -100).sum() == 6  # round(6.45); of 44 it would be 7


def test_roberta_rounds_at_random_and_hf_draws_every_token():
    for length, mean in ((10, 1.5), (100, 15.0)):
        ids, special = (np.tile(side, (4000, 1)) for side in framed(length - 2))
        counts = (mask(ids, special, recipe="roberta")[1] != -100).sum(axis=-1)
        assert set(counts.tolist()) == {int(np.floor(mean)), int(np.ceil(mean))}
        assert abs(counts.mean() - mean) < 5 * 0.5 / 4000**0.5
    counts = (mask(ids, special, recipe="hf")[1] != -100).sum(axis=-1)
    mean, variance = 98 * 0.15, 98 * 0.15 * 0.85
    assert abs(counts.mean() - mean) < 5 * (variance / 4000) ** 0.5
    assert abs(counts.var() - variance) < 5 * variance * (2 / 4000) ** 0.5


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_place_is_as_likely_and_copies_of_a_text_differ(recipe):
    ids, special = (np.tile(side, (4000, 1)) for side in framed(18))  # static: copies of a text
    chosen = mask(ids, special, recipe=recipe)[1] != -100
    shares = chosen[:, 1:-1].mean(axis=0)
    assert np.abs(shares - shares.mean()).max() < 5 * (0.25 / 4000) ** 0.5
    assert len(np.unique(chosen, axis=0)) > 100


def test_random_ids_come_from_the_vocabulary_of_the_recipe():
    ids = np.full(20_000, 7)
    for recipe in RECIPES:
        options = {"mask_id": 4, "vocab_size": 20, "recipe": recipe, "special_ids": range(5)}
        hidden, _ = mask(ids, ids < 0, p=1.0, **options)
        replaced = hidden[(hidden != 4) & (hidden != 7)]
        drawn = np.bincount(replaced, minlength=20)
        allowed = [i for i in range(5 if recipe == "roberta" else 0, 20) if i not in (4, 7)]
        assert np.flatnonzero(drawn).tolist() == allowed
        mean = 2000 / (15 if recipe == "roberta" else 20)
        assert np.abs(drawn[allowed] - mean).max() < 5 * mean**0.5


def test_a_generator_decides_all():
    ids, special = framed(50)
    for recipe in RECIPES:
        one, two, other = (mask(ids, special, seed, recipe=recipe) for seed in (3, 3, 4))
        np.testing.assert_array_equal(one, two)
        assert not np.array_equal(one[1], other[1])


# "my dog is hairy and he likes to play fetch in the park every morning", bert-base-uncased
MORNING = [101, 2026, 3899, 2003, 15892, 1998, 2002, 7777, 2000, 2377, 18584, 1999, 1996, 2380,
           2296, 2851, 102]  # fmt: skip
# "my dog is hairy" / "he likes to play"
HAIRY = [101, 2026, 3899, 2003, 15892, 102, 2002, 7777, 2000, 2377, 102]


def copies(ids, count=8000):
    ids = np.tile(ids, (count, 1))
    return mask(ids, (ids == 101) | (ids == 102))


def test_three_of_seventeen_are_learnt():
    _, labels = copies(MORNING)
    assert ((labels != -100).sum(axis=-1) == 3).all()
    rows = labels[(labels[:, [2, 3, 12]] != -100).all(axis=-1)]
    expected = np.full(17, -100)
    expected[[2, 3, 12]] = 3899, 2003, 1996
    assert len(rows) and (rows == expected).all()


def test_one_word_is_masked_and_one_kept():
    hidden, labels = copies(HAIRY)
    pair = labels[(labels[:, [4, 9]] != -100).all(axis=-1)]
    expected = [-100, -100, -100, -100, 15892, -100, -100, -100, -100, 2377, -100]
    assert len(pair) and (pair == expected).all()
    shown = [101, 2026, 3899, 2003, 103, 102, 2002, 7777, 2000, 2377, 102]
    assert ((hidden == shown).all(axis=-1) & (labels == expected).all(axis=-1)).any()
    # Three inputs for one label: [MASK], any word at all, the word itself.
    inputs = hidden[labels[:, 4] == 15892, 4]
    assert {103, 15892} < set(inputs.tolist())
    assert len(set(inputs.tolist())) > 50


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5)])
def test_nothing_to_hide(shape):
    hidden, labels = mask(np.zeros(shape, int), np.zeros(shape, bool))
    assert hidden.shape == labels.shape == shape


def test_a_vocabulary_may_fill_the_dtype():
    mask(np.array([5], np.uint8), [False], mask_id=3, vocab_size=256)


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"ids": [1.0]}, TypeError, "integers, not float64"),
        ({"special": [False, False]}, ValueError, r"shape \(1,\) and special \(2,\)"),
        ({"recipe": "electra"}, ValueError, "'electra' is unknown; take bert, hf or roberta"),
        ({"p": 0}, ValueError, "p is 0"),
        ({"p": 15}, ValueError, "p is 15"),
        ({"max_predictions": 0}, ValueError, "max_predictions is 0"),
        ({"mask_id": 30522}, ValueError, "mask_id 30522 is not below vocab_size 30522"),
        ({"special_ids": [0, 40000]}, ValueError, "special_ids 40000"),
        ({"ids": np.array([5], np.uint8)}, ValueError, "ids of uint8 reach to 255, .* of 30522"),
        ({"ids": np.array([5], np.int16), "vocab_size": 2**15 + 1}, ValueError, "int16 reach to"),
    ],
)
def test_mistakes_are_named(options, error, message):
    with pytest.raises(error, match=message):
        mask(**({"ids": [5], "special": [False]} | options))
