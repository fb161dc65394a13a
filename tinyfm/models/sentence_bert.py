"""Sentence-BERT (Reimers and Gurevych 2019): one vector for a sentence, by which to compare it."""

from __future__ import annotations

from typing import Any

from tinyfm import nn, ops
from tinyfm.autograd import Tensor, raw
from tinyfm.backend import Array, array_module, host
from tinyfm.models.output import ModelOutput


def mean_pool(hidden: Tensor, attention_mask: Array) -> Tensor:
    """(B, T, d) -> (B, d), the mean over the positions whose mask (B, T) is 1; zeros without any.

    So padding changes nothing.
    """
    xp = array_module(raw(hidden))
    seen = xp.asarray(host(attention_mask), hidden.dtype)[..., None]
    count = xp.maximum(seen.sum(axis=1), 1)
    return (hidden * seen).sum(axis=1) / count


class CosineRegression(nn.Module):
    """The likeness of two texts: the loss is (cosine - score)^2 (section 3, regression).

    Both texts of a pair go through the same body, a BertModel or one of its families.
    """

    def __init__(self, body: Any) -> None:
        self.body = body

    def forward(
        self, input_ids: Array, attention_mask: Array, labels: Array, **inputs: Array
    ) -> ModelOutput:
        """Pairs (B, 2, T) and their scores (B,), from -1 to 1; the loss is the mean over pairs."""
        ids, mask = (x.reshape(-1, x.shape[-1]) for x in map(host, (input_ids, attention_mask)))
        more = {name: host(x).reshape(ids.shape) for name, x in inputs.items()}
        vectors = mean_pool(self.body(ids, mask, **more).last_hidden_state, mask)
        unit = vectors / ops.norm(vectors, axis=-1, keepdims=True)
        pairs = unit.reshape(len(input_ids), 2, -1)
        cosine = (pairs[:, 0] * pairs[:, 1]).sum(axis=-1)
        error = cosine - array_module(raw(cosine)).asarray(host(labels), cosine.dtype)
        return ModelOutput(loss=(error * error).mean(), num_labels=len(input_ids), cosine=cosine)
