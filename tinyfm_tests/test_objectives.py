"""Where the loss is taken."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyfm.objectives import teacher_forcing


@pytest.mark.parametrize(
    "labels, start, expected",
    [
        ([[0, 10, 11, 2], [0, 12, 2, -100]], 2, [[2, 0, 10, 11], [2, 0, 12, 2]]),
        ([0, 12, -100, 5], 2, [2, 0, 12, 1]),
        ([[7, 8, 1]], 0, [[0, 7, 8]]),
        ([-100], 2, [2]),
        ([[], []], 2, [[], []]),
    ],
)
def test_r64_teacher_forcing(labels, start, expected):
    labels = np.array(labels, np.int64)
    before = labels.copy()
    inputs = teacher_forcing(labels, start_id=start, pad_id=1)
    assert inputs.tolist() == expected
    assert inputs.dtype == np.int64
    np.testing.assert_array_equal(labels, before)


@given(st.lists(st.integers(0, 100), min_size=1), st.integers(0, 3))
def test_r64_no_label_reaches_its_own_position(labels, padding):
    padded = labels + [-100] * padding
    for position in range(len(labels)):
        changed = padded.copy()
        changed[position] += 1
        same = teacher_forcing(padded, 2, 1)[: position + 1]
        np.testing.assert_array_equal(teacher_forcing(changed, 2, 1)[: position + 1], same)


def test_labels_must_be_integers():
    assert teacher_forcing(np.array([5, 6], np.int32), 2, 1).dtype == np.int32
    with pytest.raises(TypeError, match="integers, not float64"):
        teacher_forcing([1.0], 2, 1)
