"""Labels of whole texts."""

import numpy as np
import pytest

from tinyfm.objectives import class_labels, regression_labels


def test_class_labels():
    labels = class_labels(["no", "yes", "no"], {"yes": 1, "no": 0})
    assert labels.tolist() == [0, 1, 0] and labels.dtype == np.int64
    assert class_labels([3, 0], {c: c for c in range(4)}).tolist() == [3, 0]
    assert class_labels([], {"no": 0}).shape == (0,)
    with pytest.raises(ValueError, match=r"label 1 \(from 0\) is 'maybe'; known are 'no', 'yes'"):
        class_labels(["no", "maybe"], {"no": 0, "yes": 1})


def test_regression_labels():
    labels = regression_labels([2.5, 0, 5])
    assert labels.tolist() == [2.5, 0.0, 5.0] and labels.dtype == np.float32
    with pytest.raises(ValueError, match=r"label 1 \(from 0\) is nan"):
        regression_labels([1.0, float("nan")])
