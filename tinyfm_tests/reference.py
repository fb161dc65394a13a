"""The composed twins of the fused ops: the same functions, made of basic ops, as a book has them.

They know nothing of blocks, threads, saved rows or derivatives: the engine differentiates them.
What a fused op gives, forward and backward, must equal what its twin gives (test_fused.py).
The twin of attention is in the product: ops.attention(..., implementation="composed").
"""

from __future__ import annotations

import math

import numpy as np

from tinyfm import op, ops
from tinyfm.autograd import raw


def sigmoid(x):
    return 1 / (1 + ops.exp(-x))


def silu(x):
    return x * sigmoid(x)


@op
def erf(x):
    y = np.vectorize(math.erf, otypes=[x.dtype])(x)
    return y, (lambda g: g * np.exp(-x * x) * (2 / math.sqrt(math.pi)),)


def gelu(x, *, approximate="none"):
    if approximate == "tanh":
        return 0.5 * x * (1 + ops.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def shifted(x, axis):
    """x minus its maximum, as a constant: softmax is the same, and exp cannot overflow."""
    top = raw(x).max(axis, keepdims=True)
    return x - np.where(np.isinf(top), 0, top)


def softmax(x, *, axis=-1):
    axis = axis if x.ndim else None
    e = ops.exp(shifted(x, axis))
    total = e.sum(axis, keepdims=True)
    return e / (total + (total.data == 0))  # a row of -inf alone gives zeros


def log_softmax(x, *, axis=-1):
    axis = axis if x.ndim else None
    x = shifted(x, axis)
    return x - ops.log(ops.exp(x).sum(axis, keepdims=True))


def layer_norm(x, weight, bias=None, *, eps=1e-5):
    centred = x - x.mean(-1, keepdims=True)
    normed = centred / ops.sqrt((centred * centred).mean(-1, keepdims=True) + eps)
    return normed * weight if bias is None else normed * weight + bias


def rms_norm(x, weight, *, eps=1e-6):
    return x / ops.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def dropout(x, kept, p):
    """kept: the bool mask of what stays."""
    return ops.where(kept, x / (1 - p or 1), 0.0)


def linear(x, weight, bias=None):
    y = x @ ops.transpose(weight)
    return y if bias is None else y + bias


def embedding(weight, ids, *, padding_idx=None):
    rows = ops.getitem(weight, key=ids)
    if padding_idx is None:
        return rows
    return ops.where((ids == padding_idx)[..., None], rows.detach(), rows)


def cross_entropy(logits, labels, *, ignore_index=-100, label_smoothing=0.0, reduction="mean"):
    classes = raw(logits).shape[-1]
    counted = labels != ignore_index
    one_hot = np.arange(classes) == np.where(counted, labels, 0)[..., None]
    target = (1 - label_smoothing) * one_hot + label_smoothing / classes
    losses = -(target * log_softmax(logits)).sum(-1)
    losses = ops.where(counted, losses, 0.0)
    if reduction == "none":
        return losses
    return losses.sum() / max(1, int(counted.sum())) if reduction == "mean" else losses.sum()


def linear_cross_entropy(hidden, weight, bias, labels, **options):
    return cross_entropy(linear(hidden, weight, bias), labels, **options)
