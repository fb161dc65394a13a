"""Classes and numbers as labels of whole texts: the loss is taken once a text."""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import numpy.typing as npt


def class_labels(
    labels: Sequence[Hashable], label2id: Mapping[Hashable, int]
) -> npt.NDArray[np.int64]:
    """(N,) int64: the number of each label.

    In multiple choice the label of an example is the place of the right one among its C endings,
    and is looked up all the same: `class_labels(labels, {c: c for c in range(C)})`.

    Raises ValueError naming the first label that `label2id` does not have.
    """
    for row, label in enumerate(labels):
        if label not in label2id:
            raise ValueError(
                f"class_labels: label {row} (from 0) is {label!r}; known are "
                f"{', '.join(map(repr, label2id))}"
            )
    return np.array([label2id[label] for label in labels], np.int64)


def regression_labels(labels: Sequence[float]) -> npt.NDArray[np.float32]:
    """(N,) float32: scores to be met, as the similarity of two sentences; num_labels is 1 then.

    Raises ValueError naming the first that is not finite.
    """
    scores = np.asarray(labels, np.float32)
    if len(bad := np.flatnonzero(~np.isfinite(scores))):
        raise ValueError(
            f"regression_labels: label {bad[0]} (from 0) is {labels[bad[0]]}; give finite numbers"
        )
    return scores
