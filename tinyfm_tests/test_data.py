"""Length-bucketed batches, and windows of a long text."""

import json
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyfm.data import (
    Batches,
    ExampleBatches,
    WindowBatches,
    collate,
    collate_examples,
    evaluation_batches,
    example_batches,
)
from tinyfm.errors import InputError

OPTIONS = {"max_tokens": 60, "pad_id": 0, "eos_id": 2}


def numbered(lengths):
    """Pairs that can be told apart: every id of pair n is 10 + n."""
    return [([10 + n] * s, [10 + n] * t) for n, (s, t) in enumerate(lengths)]


sizes = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=60)


def random_pairs(count, seed=0):
    rng = np.random.default_rng(seed)
    source = rng.integers(1, 20, count)
    return numbered(zip(source, np.clip(source + rng.integers(-3, 4, count), 1, 25), strict=True))


def rows(batch):
    """The pairs of a batch, read back from its arrays."""
    for ids, mask, labels in zip(*batch.values(), strict=True):
        assert ids[mask == 1][-1] == 2 and labels[labels != -100][-1] == 2
        yield tuple(ids[mask == 1][:-1]), tuple(labels[labels != -100][:-1])


def as_counter(pairs):
    return Counter((tuple(s), tuple(t)) for s, t in pairs)


def epoch_of(batches):
    return list(islice(batches, len(batches)))


def assert_same(left, right):
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])


def test_collate():
    batch = collate([([5, 0, 6], [7]), ([8], [9, 10])], pad_id=0, eos_id=2)
    expected = {
        "input_ids": [[5, 0, 6, 2], [8, 2, 0, 0]],
        "attention_mask": [[1, 1, 1, 1], [1, 1, 0, 0]],
        "labels": [[7, 2, -100], [9, 10, 2]],
    }
    assert {name: array.tolist() for name, array in batch.items()} == expected
    assert {array.dtype for array in batch.values()} == {np.dtype(np.int64)}


def test_r48_padding_is_decided_by_position():
    batch = collate([([2, 2], [2]), ([5, 5, 5], [5, 5])], pad_id=2, eos_id=2)
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert batch["labels"].tolist() == [[2, 2, -100], [5, 5, 2]]


@given(sizes, st.integers(0, 5))
def test_an_epoch_gives_every_pair_once_within_the_size(lengths, seed):
    pairs = numbered(lengths)
    batches = Batches(pairs, **OPTIONS, seed=seed)
    for _ in range(2):
        epoch = epoch_of(batches)
        assert as_counter(pair for batch in epoch for pair in rows(batch)) == as_counter(pairs)
        for batch in epoch:
            count, source = batch["input_ids"].shape
            assert count * (source + batch["labels"].shape[1]) <= 60


def test_epochs_follow_each_other():
    batches = Batches(random_pairs(100), **OPTIONS, seed=0)
    assert (batches.epoch, batches.position) == (0, 0)
    epoch_of(batches)
    assert (batches.epoch, batches.position) == (0, len(batches))
    next(batches)
    assert (batches.epoch, batches.position) == (1, 1)


def test_order_comes_from_seed_and_epoch_alone():
    pairs = random_pairs(300)

    def epochs(seed):
        batches = Batches(pairs, **OPTIONS, seed=seed)
        return [[frozenset(rows(b)) for b in epoch_of(batches)] for _ in range(2)]

    (first, second), again, other = epochs(1), epochs(1), epochs(2)
    assert [first, second] == again
    assert first != second and first != other[0] and second != other[0]
    assert set(first) != set(second), "equal lengths meet in new batches, too"


def test_batches_are_not_given_out_by_length():
    widths = [
        b["input_ids"].shape[1] for b in epoch_of(Batches(random_pairs(300), **OPTIONS, seed=0))
    ]
    assert widths != sorted(widths) and widths != sorted(widths)[::-1]


def test_little_is_wasted_on_padding():
    pairs = random_pairs(2000)
    batches = Batches(pairs, max_tokens=1000, pad_id=0, eos_id=2, seed=0)
    epoch = epoch_of(batches)
    all_positions = sum(b["input_ids"].size + b["labels"].size for b in epoch)
    padded = sum((b["attention_mask"] == 0).sum() + (b["labels"] == -100).sum() for b in epoch)
    assert batches.padding_share() == pytest.approx(padded / all_positions)
    assert batches.padding_share() < 0.08
    assert len(batches) < 1.1 * sum(len(s) + len(t) + 2 for s, t in pairs) / 1000


def test_padding_share_by_hand():
    pairs = [([5], [5, 5]), ([5, 5], [5, 5])]  # with ends: 2 + 3 and 3 + 3, padded to 2 x (3 + 3)
    assert Batches(pairs, **OPTIONS, seed=0).padding_share() == pytest.approx(1 / 12)


@given(sizes, st.integers(0, 40))
def test_a_restart_goes_on_with_the_next_batch(lengths, taken):
    pairs = numbered(lengths)
    batches = Batches(pairs, **OPTIONS, seed=3)
    list(islice(batches, taken))
    state = batches.state_dict()
    restarted = Batches(pairs, **OPTIONS, seed=99)
    restarted.load_state_dict(state)
    assert_same(list(islice(restarted, 8)), list(islice(batches, 8)))
    assert restarted.state_dict() == batches.state_dict()
    assert state != batches.state_dict(), "a state does not move with its stream"


def test_a_restart_on_other_data_is_refused():
    state = Batches(random_pairs(10), **OPTIONS, seed=0).state_dict()
    with pytest.raises(InputError, match="pairs=10, this one has 11"):
        Batches(random_pairs(11), **OPTIONS, seed=0).load_state_dict(state)
    with pytest.raises(InputError, match="max_tokens=60, this one has 70"):
        Batches(random_pairs(10), **{**OPTIONS, "max_tokens": 70}, seed=0).load_state_dict(state)


def test_a_restart_on_other_pairs_of_the_same_number_is_refused():
    """Of other lengths, though of the same ids, or of equal ones: another order, a changed id."""
    pairs = random_pairs(10)
    state = Batches(pairs, **OPTIONS, seed=0).state_dict()
    (source, target), *rest = pairs
    changed = [(source, [99, *target[1:]]), *rest]
    moved = [([*source, target[0]], target[1:]), *rest]
    for other in (pairs[1:] + pairs[:1], [*rest, ([5], [5, 5])], changed, moved):
        with pytest.raises(InputError, match=r"checksum=\d+, this one has \d+; resume it with the"):
            Batches(other, **OPTIONS, seed=0).load_state_dict(state)
    Batches(list(pairs), **OPTIONS, seed=1).load_state_dict(state)


@pytest.mark.parametrize(
    "damage, message",
    [
        ({"position": 1000}, "stood at batch 1000, and an epoch has 6; begin the training anew"),
        ({"position": -1}, "the place in the data is damaged"),
        ({"epoch": -1}, "the place in the data is damaged"),
        ({"epoch": 0.5}, "the place in the data is damaged"),
        ({"seed": "x"}, "the place in the data is damaged"),
        ({"seed": None}, "the place in the data is damaged"),
        ({"checksum": ...}, "the place in the data is damaged"),
        (None, "the place in the data is damaged"),
        ([], "the place in the data is damaged"),
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(damage, message):
    batches = Batches(random_pairs(10), **OPTIONS, seed=0)
    next(batches)
    before = batches.state_dict()
    damaged = before | damage if isinstance(damage, dict) else damage
    if isinstance(damaged, dict):
        damaged = {name: value for name, value in damaged.items() if value is not ...}
    with pytest.raises(InputError, match=message):
        batches.load_state_dict(damaged)
    assert batches.state_dict() == before
    batches.load_state_dict(before | {"position": len(batches)})  # the end of an epoch is a place


def test_a_state_survives_json():
    batches = Batches(random_pairs(10), **OPTIONS, seed=0)
    next(batches)
    assert json.loads(json.dumps(batches.state_dict())) == batches.state_dict()


def test_nothing_to_train_on_is_refused():
    with pytest.raises(InputError, match="no sentence pairs"):
        Batches([], **OPTIONS, seed=0)


def test_a_pair_beyond_the_size_is_refused():
    Batches(numbered([(1, 1), (28, 30)]), **OPTIONS, seed=0)
    with pytest.raises(InputError, match=r"pair 1 .*has 61 tokens, .*max_tokens=60"):
        Batches(numbered([(1, 1), (29, 30)]), **OPTIONS, seed=0)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=30))
def test_evaluation_restores_the_order(lengths):
    pairs = numbered(lengths)
    result = [None] * len(pairs)
    widths = []
    for indexes, batch in evaluation_batches(pairs, **OPTIONS):
        assert len(indexes) == len(batch["input_ids"])
        widths.append(batch["input_ids"].shape[1])
        for index, row in zip(indexes, rows(batch), strict=True):
            assert result[index] is None
            result[index] = row
        size = batch["input_ids"].size + batch["labels"].size
        assert size <= 60 or len(indexes) == 1
    assert result == [(tuple(s), tuple(t)) for s, t in pairs]
    assert widths == sorted(widths)


def test_evaluation_is_the_same_every_time_and_may_be_empty():
    pairs = random_pairs(50)
    first, second = (list(evaluation_batches(pairs, **OPTIONS)) for _ in range(2))
    assert_same([batch for _, batch in first], [batch for _, batch in second])
    assert list(evaluation_batches([], **OPTIONS)) == []


@pytest.mark.parametrize("name, value", [("max_tokens", 60.0), ("max_tokens", "60"), ("seed", 0.5)])
def test_counts_of_batches_are_whole_numbers(name, value):
    options = {"max_tokens": 60, "seed": 0, "pad_id": 0, "eos_id": 2} | {name: value}
    with pytest.raises(TypeError, match=f"{name} is {value!r}: it must be a whole number"):
        Batches([([5], [6])], **options)


def test_r38_numbers_of_numpy_go_into_a_checkpoint():
    batches = Batches([([5], [6])], max_tokens=np.int64(60), seed=np.int64(1), pad_id=0, eos_id=2)
    assert json.loads(json.dumps(batches.state_dict())) == batches.state_dict()


@pytest.mark.parametrize("changed", [{"pad_id": 1}, {"eos_id": 3}])
def test_r38_another_end_or_padding_is_other_data(changed):
    ids = {"pad_id": 0, "eos_id": 2}
    state = Batches([([5], [6])], max_tokens=60, seed=0, **ids).state_dict()
    other = Batches([([5], [6])], max_tokens=60, seed=0, **ids | changed)
    with pytest.raises(InputError, match="checksum"):
        other.load_state_dict(state)


# -- examples --------------------------------------------------------------------------------------

WIDTHS = st.lists(st.integers(1, 20), min_size=1, max_size=40)


def examples_of(widths):
    """Texts that can be told apart: every id of example n is 10 + n."""
    return [{"input_ids": [10 + n] * width, "label": n} for n, width in enumerate(widths)]


def test_collate_examples_pads_each_field_with_its_own():
    examples = [
        {"input_ids": [5, 6, 7], "token_type_ids": [0, 1, 1], "labels": [-100, 6, -100],
         "special": [1, 0, 1], "next_sentence_label": 1},
        {"input_ids": [8], "token_type_ids": [1], "labels": [8], "special": [0],
         "next_sentence_label": 0},
    ]  # fmt: skip
    batch = collate_examples(examples, pad_id=3)
    assert {name: array.tolist() for name, array in batch.items()} == {
        "input_ids": [[5, 6, 7], [8, 3, 3]],
        "token_type_ids": [[0, 1, 1], [1, 0, 0]],
        "labels": [[-100, 6, -100], [8, -100, -100]],
        "special": [[1, 0, 1], [0, 1, 1]],
        "next_sentence_label": [1, 0],
        "attention_mask": [[1, 1, 1], [1, 0, 0]],
    }
    assert {array.dtype for array in batch.values()} == {np.dtype(np.int64)}


@pytest.mark.parametrize("labels", [[1], [0.5]])
def test_collate_examples_takes_an_empty_text_anywhere(labels):
    full, empty = {"input_ids": [5], "labels": labels}, {"input_ids": [], "labels": []}
    for examples in ([full, empty], [empty, full]):
        batch = collate_examples(examples, pad_id=3)
        assert batch["input_ids"].dtype == batch["attention_mask"].dtype == np.int64
        assert batch["labels"].dtype == np.asarray(labels).dtype
        assert sorted(batch["input_ids"].ravel()) == [3, 5]
    assert collate_examples([empty], pad_id=3)["input_ids"].dtype == np.int64


def test_collate_examples_of_choices():
    """(B, C, T), also where the first text of a choice is a single token."""
    examples = [
        {"input_ids": [[5], [6, 7]], "token_type_ids": [[0], [0, 1]], "labels": 1},
        {"input_ids": [[8, 8, 8], [9]], "token_type_ids": [[1, 1, 1], [1]], "labels": 0},
    ]
    batch = collate_examples(examples, pad_id=2)
    assert batch["input_ids"].tolist() == [[[5, 2, 2], [6, 7, 2]], [[8, 8, 8], [9, 2, 2]]]
    assert batch["token_type_ids"].tolist() == [[[0, 0, 0], [0, 1, 0]], [[1, 1, 1], [1, 0, 0]]]
    assert batch["attention_mask"].tolist() == [[[1, 0, 0], [1, 1, 0]], [[1, 1, 1], [1, 0, 0]]]
    assert batch["labels"].tolist() == [1, 0]


def test_a_number_for_the_text_keeps_its_kind():
    batch = collate_examples(
        [{"input_ids": [5], "labels": 2.5}, {"input_ids": [6], "labels": 0.0}], 0
    )
    assert batch["labels"].tolist() == [2.5, 0.0] and batch["labels"].dtype == np.float64


@given(WIDTHS, st.integers(0, 5))
def test_an_epoch_gives_every_example_once_within_the_size(widths, seed):
    batches = ExampleBatches(examples_of(widths), max_tokens=40, pad_id=0, seed=seed)
    for _ in range(2):
        epoch = epoch_of(batches)
        assert sorted(n for batch in epoch for n in batch["label"]) == list(range(len(widths)))
        for batch in epoch:
            assert batch["input_ids"].size <= 40
            for row, mask, n in zip(
                *(batch[k] for k in ("input_ids", "attention_mask", "label")), strict=True
            ):
                assert row.tolist() == [10 + n] * widths[n] + [0] * (len(row) - widths[n])
                assert mask.sum() == widths[n]


def noisy(batch, rng):
    """A change that depends on the generator."""
    return batch | {"noise": rng.random(batch["input_ids"].shape)}


@given(WIDTHS, st.integers(0, 30))
def test_r38_a_restart_at_any_place_changes_batches_alike(widths, taken):
    examples, options = examples_of(widths), {"max_tokens": 40, "pad_id": 0, "change": noisy}
    batches = ExampleBatches(examples, **options, seed=3)
    list(islice(batches, taken))
    restarted = ExampleBatches(examples, **options, seed=99)
    restarted.load_state_dict(json.loads(json.dumps(batches.state_dict())))
    assert_same(list(islice(restarted, 8)), list(islice(batches, 8)))


def test_changes_differ_between_batches_epochs_and_seeds():
    def noise(seed):
        batches = ExampleBatches(
            examples_of([4] * 5), max_tokens=4, pad_id=0, seed=seed, change=noisy
        )
        return [batch["noise"] for batch in islice(batches, 3 * len(batches))]

    drawn = [array.tobytes() for array in noise(0) + noise(1)]
    assert len(set(drawn)) == len(drawn) == 30
    assert [array.tobytes() for array in noise(0)] == drawn[:15]


def test_what_a_change_returns_is_the_batch():
    batches = ExampleBatches(
        examples_of([2]), max_tokens=9, pad_id=0, seed=0, change=lambda batch, rng: {"x": 1}
    )
    assert next(batches) == {"x": 1}


def test_r38_other_examples_or_another_size_are_refused():
    """Another id, label, field or padding; a token that moves to the next example; other sizes."""
    options = {"max_tokens": 40, "pad_id": 0, "seed": 0}
    examples = examples_of([3, 4])
    state = ExampleBatches(examples, **options).state_dict()
    first, second = examples
    others = [
        [first | {"input_ids": [10, 10, 99]}, second],
        [first | {"label": 7}, second],
        [first | {"more": 0}, second | {"more": 0}],
        [second, first],
        [first | {"input_ids": [10] * 2}, second | {"input_ids": [10, *[11] * 4]}],
    ]
    for other in others:
        with pytest.raises(InputError, match=r"checksum=\d+, this one has"):
            ExampleBatches(other, **options).load_state_dict(state)
    with pytest.raises(InputError, match="checksum"):
        ExampleBatches(examples, **options | {"pad_id": 1}).load_state_dict(state)
    with pytest.raises(InputError, match="max_tokens=40, this one has 50"):
        ExampleBatches(examples, **options | {"max_tokens": 50}).load_state_dict(state)
    with pytest.raises(InputError, match="examples=2, this one has 1"):
        ExampleBatches(examples[:1], **options).load_state_dict(state)
    ExampleBatches(list(examples), **options | {"seed": 5}).load_state_dict(state)


def test_r38_choices_are_told_apart_by_where_they_are_cut():
    options = {"max_tokens": 40, "pad_id": 0, "seed": 0}
    state = ExampleBatches([{"input_ids": [[5, 6], [7]]}], **options).state_dict()
    with pytest.raises(InputError, match="checksum"):
        ExampleBatches([{"input_ids": [[5], [6, 7]]}], **options).load_state_dict(state)


def test_a_batch_takes_as_many_examples_as_fit():
    batches = ExampleBatches(examples_of([4] * 20), max_tokens=16, pad_id=0, seed=0)
    assert [len(batch["input_ids"]) for batch in epoch_of(batches)] == [4] * 5


def test_all_texts_of_a_choice_count():
    """Three texts of up to 4 tokens take 12 places."""
    choice = {"input_ids": [[5], [6, 6, 6, 6], [7]], "labels": 0}
    batches = ExampleBatches([choice] * 4, max_tokens=24, pad_id=0, seed=0)
    assert [batch["input_ids"].shape for batch in epoch_of(batches)] == [(2, 3, 4)] * 2
    with pytest.raises(InputError, match=r"example 0 .* has 12 tokens, .*max_tokens=11"):
        ExampleBatches([choice], max_tokens=11, pad_id=0, seed=0)


def test_no_examples_and_one_beyond_the_size_are_refused():
    with pytest.raises(InputError, match="no examples to train on"):
        ExampleBatches([], max_tokens=9, pad_id=0, seed=0)
    with pytest.raises(InputError, match=r"example 1 .* has 9 tokens, .*max_tokens=8"):
        ExampleBatches(examples_of([3, 9]), max_tokens=8, pad_id=0, seed=0)


def test_labels_that_are_another_text_count_with_the_input():
    """And equal inputs come in the order of their labels, so that little is padded."""
    lengths = [(3, 2), (3, 9), (3, 8), (3, 3), (5, 1), (5, 1)]
    examples = [{"input_ids": [7] * n, "labels": [8] * m} for n, m in lengths]
    batches = ExampleBatches(examples, max_tokens=24, pad_id=0, seed=0)
    shapes = [(b["input_ids"].shape, b["labels"].shape) for b in islice(batches, 3)]
    assert sorted(shapes) == [((2, 3), (2, 3)), ((2, 3), (2, 9)), ((2, 5), (2, 1))]
    assert batches.padding_share() == pytest.approx(2 / 48)
    with pytest.raises(InputError, match="12 tokens, special ones included, but a batch holds"):
        ExampleBatches(examples, max_tokens=11, pad_id=0, seed=0)


@given(st.lists(st.integers(1, 60), max_size=30))
def test_evaluation_of_examples_restores_the_order(widths):
    result = [None] * len(widths)
    for indexes, batch in example_batches(examples_of(widths), max_tokens=40, pad_id=0):
        assert batch["input_ids"].size <= 40 or len(indexes) == 1
        for index, label, mask in zip(
            indexes, batch["label"], batch["attention_mask"], strict=True
        ):
            assert result[index] is None
            result[index] = (int(label), int(mask.sum()))
    assert result == list(enumerate(widths))


# -- windows ---------------------------------------------------------------------------------------

TEXT = np.arange(100, 200)


@given(st.integers(1, 20), st.integers(1, 5), st.integers(0, 9))
def test_windows_are_pieces_of_the_text_from_anywhere(length, rows, seed):
    batches = WindowBatches(TEXT, length=length, rows=rows, seed=seed)
    assert len(batches) == -(-100 // (length * rows))
    starts = set()
    for batch in islice(batches, 400 // rows):
        assert batch["input_ids"].shape == batch["labels"].shape == (rows, length)
        assert (batch["labels"] == batch["input_ids"]).all()
        assert (np.diff(batch["input_ids"]) == 1).all()
        starts |= {*(batch["input_ids"][:, 0] - 100).tolist()}
    assert min(starts) >= 0 and max(starts) <= 100 - length
    assert len(starts) > 60, "400 draws of at least 81 places"


def test_the_last_window_can_come():
    batches = WindowBatches(TEXT[:5], length=4, rows=50, seed=0)
    assert {*next(batches)["input_ids"][:, -1].tolist()} == {103, 104}
    assert (next(WindowBatches(TEXT[:4], length=4, rows=1, seed=0))["input_ids"] == TEXT[:4]).all()


@given(st.integers(0, 30))
def test_r38_windows_go_on_from_any_place(taken):
    """Also from another seed, and through JSON; with numbers of NumPy as well."""
    first = WindowBatches(TEXT, length=np.int64(8), rows=np.int64(3), seed=np.int64(1))
    for _ in range(taken):
        next(first)
    again = WindowBatches(TEXT, length=8, rows=3, seed=2)
    again.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert again.position == taken
    for _ in range(3):
        assert (next(first)["input_ids"] == next(again)["input_ids"]).all()


@pytest.mark.parametrize(
    "text, length, rows", [(TEXT + 1, 8, 3), (TEXT[:-1], 8, 3), (TEXT, 7, 3), (TEXT, 8, 4)]
)
def test_r38_windows_of_another_text_or_size_are_refused(text, length, rows):
    state = WindowBatches(TEXT, length=8, rows=3, seed=1).state_dict() | {"position": 5}
    other = WindowBatches(text, length=length, rows=rows, seed=1)
    with pytest.raises(InputError, match="resume it with the same data and options"):
        other.load_state_dict(state)
    assert other.position == 0
    with pytest.raises(InputError, match="the place in the data is damaged"):
        other.load_state_dict({"position": 5})


def test_windows_that_cannot_be():
    with pytest.raises(InputError, match="3 tokens are too few for a window of 4"):
        WindowBatches([1, 2, 3], length=4, rows=1, seed=0)
    for name in ("length", "rows", "seed"):
        with pytest.raises(TypeError, match=f"{name} is 2.0: it must be a whole number"):
            WindowBatches(TEXT, **{"length": 2, "rows": 2, "seed": 2, name: 2.0})
