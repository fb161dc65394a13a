"""The losses of fine-tuned models, the same for every family."""

from __future__ import annotations

import numpy as np

from tinyfm import ops
from tinyfm.autograd import Tensor, raw
from tinyfm.backend import Array, array_module, host
from tinyfm.data import IGNORE_INDEX


def classification_loss(logits: Tensor, labels: Array) -> tuple[Tensor, int]:
    """(loss, how many rows it is the mean of) of logits (..., C) and labels (...).

    C > 1: cross-entropy of integer labels, -100 ignored.  C = 1: the mean squared error of numbers.

    TypeError: labels that are no integers where classes are told apart.
    """
    labels, xp = host(labels), array_module(raw(logits))
    if labels.shape != logits.shape[:-1]:
        raise ValueError(f"labels are {labels.shape}, and the logits {logits.shape} have one a row")
    if logits.shape[-1] == 1:
        wanted = xp.asarray(labels.reshape(*labels.shape, 1), logits.dtype)
        error = logits - wanted
        return (error * error).mean(), labels.size
    if labels.dtype.kind not in "iu":
        raise TypeError(f"labels are {labels.dtype}: give the numbers of the classes, integers")
    loss = ops.cross_entropy(logits, xp.asarray(labels), ignore_index=IGNORE_INDEX)
    return loss, int((labels != IGNORE_INDEX).sum())


def span_loss(start: Tensor, end: Tensor, starts: Array, ends: Array) -> tuple[Tensor, int]:
    """(loss, how many rows) of where answers start and end: logits (B, T) and positions (B,).

    The mean of the two cross-entropies.  A position beyond the text, which was cut, is ignored.

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
