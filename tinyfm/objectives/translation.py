"""Translation: the decoder learns every next word of the reference at once."""

import numpy as np
import numpy.typing as npt

from tinyfm.data import IGNORE_INDEX


def teacher_forcing(labels: npt.ArrayLike, start_id: int, pad_id: int) -> npt.NDArray[np.integer]:
    """Return the decoder's input ids for its labels: the labels moved one place to the right.

    While it is trained, a decoder does not read its own guesses but the reference up to the word
    in question: the teacher's words, whatever the pupil would have said. With the causal mask all
    positions are then trained in one forward pass. Position t has to predict labels[t] from
    labels[:t] (Vaswani et al. 2017, figure 1 and section 3.1), so the input begins
    with `start_id` and loses the last label. Shifting here, in one place, keeps the labels as the
    loss sees them: data pipelines never shift, and no label can leak into its own position.

    labels  (..., T) integers, -100 where no loss is taken
    returns (..., T) integers of the same dtype; each -100 has become `pad_id`

    Raises TypeError for labels that are not integers.
    """
    labels = np.asarray(labels)
    if not np.issubdtype(labels.dtype, np.integer):
        raise TypeError(f"teacher_forcing: labels must be integers, not {labels.dtype}")
    start = np.full_like(labels[..., :1], start_id)
    inputs = np.concatenate([start, labels[..., :-1]], axis=-1)
    return np.where(inputs == IGNORE_INDEX, labels.dtype.type(pad_id), inputs)
