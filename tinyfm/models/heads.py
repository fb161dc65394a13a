"""The losses of fine-tuned models, the same for every family."""

from __future__ import annotations

import numpy as np

from tinyfm import ops
from tinyfm.autograd import Tensor, raw
from tinyfm.backend import Array, array_module, host
from tinyfm.data import IGNORE_INDEX


def sequence_loss(logits: Tensor, labels: Array) -> tuple[Tensor, int]:
    """(loss, how many rows it is the mean of) of logits (B, C) of whole texts and labels (B,).

    C > 1: as classification_loss.  C = 1: the mean squared error of numbers.
    """
    if logits.shape[-1] > 1:
        return classification_loss(logits, labels)
    labels = _one_a_row(logits, labels)
    error = logits[..., 0] - array_module(raw(logits)).asarray(labels, logits.dtype)
    return (error * error).mean(), labels.size


def classification_loss(logits: Tensor, labels: Array) -> tuple[Tensor, int]:
    """(loss, how many rows it is the mean of) of logits (..., C) and labels (...).

    The cross-entropy of integer labels, -100 ignored; also where there is but one class.

    TypeError: labels that are no integers.
    """
    labels, xp = _one_a_row(logits, labels), array_module(raw(logits))
    if labels.dtype.kind not in "iu":
        raise TypeError(f"labels are {labels.dtype}: give the numbers of the classes, integers")
    loss = ops.cross_entropy(logits, xp.asarray(labels), ignore_index=IGNORE_INDEX)
    return loss, int((labels != IGNORE_INDEX).sum())


def _one_a_row(logits: Tensor, labels: Array) -> np.ndarray:
    """The labels on the host; ValueError unless there is one for each row of logits."""
    labels = host(labels)
    if labels.shape != logits.shape[:-1]:
        raise ValueError(f"labels are {labels.shape}, and the logits {logits.shape} have one a row")
    return labels


def at(hidden: Tensor, places: np.ndarray) -> Tensor:
    """(B, T, d), (B,) -> (B, d): one position of each row."""
    xp = array_module(raw(hidden))
    return hidden[xp.arange(len(places)), xp.asarray(places)]


def choices_of(input_ids: Array) -> tuple[int, int, int]:
    """(B, C, T) of the input_ids of a model that chooses; ValueError if they have another shape."""
    shape = host(input_ids).shape
    if len(shape) != 3:
        raise ValueError(f"input_ids are {shape}: they must be (batch, choices, length)")
    return shape


def span_loss(start: Tensor, end: Tensor, starts: Array, ends: Array) -> tuple[Tensor, int]:
    """(loss, how many rows) of where answers start and end: logits (B, T) and positions (B,).

    The mean of the two cross-entropies.  A position beyond the text, which was cut, is ignored; a
    row counts if one of its two is not.

    ValueError: a negative position.
    """
    losses, length = [], start.shape[1]
    for name, logits, positions in (("start", start, starts), ("end", end, ends)):
        places = host(positions)
        if (places < 0).any():
            raise ValueError(
                f"{name}_positions are below 0; 0 stands for no answer, T for a cut one"
            )
        labels = np.where(places < length, places, IGNORE_INDEX)
        xp = array_module(raw(logits))
        losses.append(ops.cross_entropy(logits, xp.asarray(labels), ignore_index=IGNORE_INDEX))
    kept = (host(starts) < length) | (host(ends) < length)
    return (losses[0] + losses[1]) / 2.0, int(kept.sum())
