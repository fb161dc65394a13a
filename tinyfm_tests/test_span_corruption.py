"""T5's span corruption: what is hidden, behind which sentinels, and how it comes back."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tinyfm import InputError
from tinyfm.objectives import (
    corrupted_lengths,
    fill_spans,
    random_spans_noise_mask,
    raw_length,
    span_corruption,
    span_corruption_examples,
    text_tokens,
)
from tinyfm.tokenizer import Tokenizer

SENTINELS = range(32099, 31999, -1)  # <extra_id_0> to <extra_id_99> of T5's vocabulary
END = 1
TEXTS = st.lists(st.integers(1, 60), min_size=2, max_size=60)  # END may stand in the text
SEEDS = st.integers(0, 10**6)


def generator(seed=0):
    return np.random.default_rng(seed)


def hide(positions, length):
    return np.isin(np.arange(length), positions)


def corrupt(ids, positions):
    inputs, labels = span_corruption(ids, SENTINELS, END, mask=hide(positions, len(ids)))
    return inputs.tolist(), labels.tolist()


# -- the worked values -----------------------------------------------------------------------------


def test_the_figure_of_the_paper():
    """Thank you (for inviting) me to your party (last) week."""
    text = [1562, 25, 21, 14256, 140, 12, 39, 1088, 336, 471, 5]
    assert corrupt(text, [2, 3, 8]) == (
        [1562, 25, 32099, 140, 12, 39, 1088, 32098, 471, 5, 1],
        [32099, 21, 14256, 32098, 336, 32097, 1],
    )


def test_trap_76_sentinels_descend():
    ids = range(10, 20)
    assert corrupt(ids, [8, 9]) == ([*range(10, 18), 32099, END], [32099, 18, 19, END])
    assert corrupt(ids, [2, 3, 7]) == (
        [10, 11, 32099, 14, 15, 16, 32098, 18, 19, END],
        [32099, 12, 13, 32098, 17, 32097, END],
    )


def test_r47_kept_runs_after_hidden_ones_are_sentinels_in_the_labels():
    a, b, c, d, e, f, g, h = ids = range(10, 18)
    first, second, third = SENTINELS[:3]
    assert corrupt(ids, [2, 3, 6]) == (
        [a, b, first, e, f, second, h, END],
        [first, c, d, second, g, third, END],
    )
    # A text that begins hidden begins with the first sentinel on both sides.
    assert corrupt(ids, [0, 1, 5]) == (
        [first, c, d, e, second, g, h, END],
        [first, a, b, second, f, third, END],
    )
    assert corrupt(ids, [0, 7]) == ([first, *ids[1:7], second, END], [first, a, second, h, END])


@pytest.mark.parametrize(
    "length, sizes", [(2, (3, 3)), (3, (4, 3)), (20, (19, 5)), (100, (91, 21)), (512, (462, 104))]
)
def test_r47_sizes_of_inputs_and_labels(length, sizes):
    assert corrupted_lengths(length) == sizes
    for seed in range(20):
        inputs, labels = span_corruption(range(length), SENTINELS, END, generator(seed))
        assert (len(inputs), len(labels)) == sizes


@pytest.mark.parametrize(
    "inputs, raw, labels", [(512, 568, 114), (128, 141, 29), (256, 284, 58), (1024, 1137, 229)]
)
def test_trap_75_the_arithmetic_of_lengths(inputs, raw, labels):
    assert raw_length(inputs) == raw
    assert corrupted_lengths(raw) == (inputs, labels)
    assert corrupted_lengths(raw + 1)[0] > inputs


def test_trap_75_hidden_tokens_and_spans_of_568():
    for seed in range(50):
        mask = random_spans_noise_mask(568, generator(seed))
        assert mask.sum() == 85
        assert (np.diff(mask, prepend=False) & mask).sum() == 28
        assert not mask[0] and mask[-1]
        labels = span_corruption(np.full(568, 7), SENTINELS, END, mask=mask)[1]
        assert labels[-2:].tolist() == [7, END]  # no sentinel closes them


# -- what holds for every text ---------------------------------------------------------------------


@given(TEXTS, st.data())
def test_r47_input_and_labels_give_the_text_back(ids, data):
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids))))
    assume(mask.any() and not mask.all())
    inputs, labels = span_corruption(ids, SENTINELS, END, mask=mask)
    assert fill_spans(inputs, labels, SENTINELS, END).tolist() == ids
    assert inputs[-1] == labels[-1] == END
    used = int((np.diff(mask, prepend=False) & mask).sum())
    assert inputs[inputs > 60].tolist() == list(SENTINELS[:used])
    assert labels[labels > 60].tolist() == list(SENTINELS[: used + (not mask[-1])])
    assert inputs[inputs <= 60].tolist() == [*np.array(ids)[~mask].tolist(), END]
    assert labels[labels <= 60].tolist() == [*np.array(ids)[mask].tolist(), END]


@given(TEXTS, SEEDS)
def test_r47_drawn_spans_give_the_text_back(ids, seed):
    before = np.array(ids, np.int32)
    inputs, labels = span_corruption(before, SENTINELS, END, generator(seed))
    assert (inputs.dtype, labels.dtype, before.tolist()) == (np.int64, np.int64, ids)
    assert (len(inputs), len(labels)) == corrupted_lengths(len(ids))
    assert fill_spans(inputs, labels, SENTINELS, END).tolist() == ids
    again = span_corruption(ids, SENTINELS, END, generator(seed))
    assert inputs.tolist() == again[0].tolist() and labels.tolist() == again[1].tolist()


@given(st.integers(2, 300), st.floats(0.001, 0.999), st.floats(1, 20), SEEDS)
def test_r47_one_token_at_least_is_hidden_and_one_kept(length, p, mean, seed):
    mask = random_spans_noise_mask(length, generator(seed), p, mean)
    hidden, spans = int(mask.sum()), int((np.diff(mask, prepend=False) & mask).sum())
    assert mask.shape == (length,) and mask.dtype == bool
    assert hidden == min(max(round(p * length), 1), length - 1)
    assert spans == min(max(round(hidden / mean), 1), length - hidden)
    assert not mask[0] and mask[-1]
    assert corrupted_lengths(length, p, mean) == (length - hidden + spans + 1, hidden + spans + 1)


@given(st.integers(3, 300), st.floats(0.01, 0.99), st.floats(1, 20))
def test_the_raw_length_is_the_longest_that_fits(input_length, p, mean):
    length = raw_length(input_length, p, mean)
    fits = [n for n in range(2, length + 50) if corrupted_lengths(n, p, mean)[0] <= input_length]
    assert fits == [*range(2, length + 1)]


def test_all_divisions_are_as_likely():
    """4 of 8 tokens in 2 spans: 1+3, 2+2 or 3+1 hidden, and so kept: nine masks."""
    rng = generator()
    masks = Counter(random_spans_noise_mask(8, rng, 0.5, 2.0).tobytes() for _ in range(4500))
    assert len(masks) == 9
    assert max(abs(count - 500) for count in masks.values()) < 5 * 500**0.5


@pytest.mark.parametrize("length", range(2, 31))
def test_a_short_text_hides_its_end(length):
    """round(0.15 x 30) is 4, halves to the even side: one span, which is the last."""
    mask = random_spans_noise_mask(length, generator())
    assert mask.tolist() == sorted(mask.tolist()) and mask.sum() == max(1, round(0.15 * length))


def test_filling_takes_what_a_model_writes():
    inputs = [10, 32099, 11, 32098, 12, END]
    assert fill_spans(inputs, [32099, 20, 21, 32098, 22, END], SENTINELS, END).tolist() == [
        10, 20, 21, 11, 22, 12,
    ]  # fmt: skip
    cases = {
        (): [10, 11, 12],
        (END,): [10, 11, 12],
        (0, 32099, 20): [10, 20, 11, 12],  # the decoder's start
        (5, 32098, 22, END): [10, 11, 22, 12],
        (32098, 22, 32099, 20): [10, 20, 11, 22, 12],
        (32099, 32098, 22, 32050, 23): [10, 11, 22, 12],
    }
    for labels, filled in cases.items():
        assert fill_spans(inputs, labels, SENTINELS, END).tolist() == filled


# -- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [[], [7]])
def test_r47_texts_without_something_to_hide_and_to_keep_are_refused(ids):
    with pytest.raises(InputError, match=f"a text of {len(ids)} tokens .* give 2 or more"):
        span_corruption(ids, SENTINELS, END, generator())


def test_too_many_spans_are_said_and_not_wrapped():
    ids, every_second = range(7, 27), hide(range(0, 20, 2), 20)
    with pytest.raises(InputError, match="text of 20 tokens need 11 sentinels, and there are 10"):
        span_corruption(ids, SENTINELS[:10], END, mask=every_second)
    labels = span_corruption(ids, SENTINELS[:11], END, mask=every_second)[1]
    assert labels[-2] == SENTINELS[10]
    # One that ends hidden needs none to close.
    labels = span_corruption(ids, SENTINELS[:10], END, mask=~every_second)[1]
    assert labels[-3] == SENTINELS[9]


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: span_corruption([7, 8], [9], END), ValueError, "give the mask .* or rng"),
        (lambda: span_corruption([7.0, 8.0], [9], END, generator()), TypeError, "not float64"),
        (lambda: span_corruption([[7, 8]], [9], END, generator()), ValueError, r"shape \(1, 2\)"),
        (
            lambda: span_corruption([7, 8], [9], END, mask=[True]),
            ValueError,
            r"mask has shape \(1,\) and ids \(2,\)",
        ),
        (lambda: span_corruption([7, 8], [9], END, mask=[0, 0]), ValueError, "all tokens or none"),
        (lambda: span_corruption([7, 8], [9], END, mask=[1, 1]), ValueError, "all tokens or none"),
        (lambda: span_corruption([7, 9], [9], END, generator()), InputError, "the sentinel 9"),
        (lambda: random_spans_noise_mask(1, generator()), ValueError, "length is 1"),
        (lambda: random_spans_noise_mask(9, generator(), 0.0), ValueError, "p is 0.0"),
        (lambda: random_spans_noise_mask(9, generator(), 1.0), ValueError, "p is 1.0"),
        (lambda: corrupted_lengths(9, mean=0.5), ValueError, "mean is 0.5"),
        (lambda: corrupted_lengths(9, mean=float("nan")), ValueError, "mean is nan"),
        (lambda: raw_length(2), ValueError, "input_length is 2"),
    ],
)
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


# -- from text -------------------------------------------------------------------------------------

LINES = ["The cat sat on the mat all day.", "나는 사과를 먹었다.", "Thank you for inviting me."]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train_unigram(LINES * 2, 120, sentinels=10)


@given(st.lists(st.sampled_from(["", *LINES]), max_size=8), st.integers(3, 40), SEEDS)
def test_r44_examples_join_the_texts_and_end_once(tokenizer, lines, input_length, seed):
    rng = generator(seed)
    examples = list(span_corruption_examples(lines, tokenizer, rng, input_length))
    assert all(len(e["input_ids"]) == input_length for e in examples[:-1])
    assert all(len(e["input_ids"]) <= input_length for e in examples)
    sentinels, end = tokenizer.sentinels, tokenizer.eos_id
    assert len(sentinels) == 10
    for side in (side for example in examples for side in example.values()):
        assert np.flatnonzero(side == end).tolist() == [len(side) - 1]
    parts = [fill_spans(e["input_ids"], e["labels"], sentinels, end) for e in examples]
    found = np.concatenate([np.zeros(0, int), *parts]).tolist()
    whole = [id for line in lines for id in text_tokens(line, tokenizer).ids.tolist()]
    left_over = len(whole) % raw_length(input_length) == 1
    assert found == whole[: len(whole) - left_over]


def test_examples_are_made_as_they_are_asked_for(tokenizer):
    rng = generator()
    endless = span_corruption_examples(iter(lambda: LINES[0], None), tokenizer, rng, 40)
    inputs = {next(endless)["input_ids"].tobytes() for _ in range(20)}
    assert len(inputs) > 10


def test_a_vocabulary_without_sentinels_is_named():
    with pytest.raises(InputError, match="no </s> or no <extra_id_0>"):
        next(span_corruption_examples(LINES, Tokenizer.train(LINES, 80), generator()))
