"""T5's positions: a number for each distance and head, added to the scores of attention.

Raffel et al. 2020, section 2.1.  Near distances have a bucket each, far ones share buckets that
grow with the logarithm of the distance, and all beyond a certain one share the last.
"""

from __future__ import annotations

import math

import numpy as np

from tinyfm import ops
from tinyfm.autograd import Tensor, raw
from tinyfm.backend import array_module
from tinyfm.nn.module import Init, Module, new_parameter, normal


def relative_buckets(
    distances: np.ndarray, bidirectional: bool, num_buckets: int = 32, max_distance: int = 128
) -> np.ndarray:
    """The bucket of each distance key - query: integers of any shape -> the same shape.

    bidirectional: the first half of the buckets is for keys at or before the query, the other half
        for those behind it; otherwise all are for the former, and keys behind share bucket 0.
    Of the buckets of one direction half have one distance each, the others divide what is left up
    to max_distance evenly on a logarithmic scale.
    """
    buckets = num_buckets // 2 if bidirectional else num_buckets
    away = np.abs(distances) if bidirectional else np.maximum(-distances, 0)
    exact = buckets // 2
    share = np.log(np.maximum(away, 1) / exact) / math.log(max_distance / exact)
    far = exact + (share * (buckets - exact)).astype(int)
    bucket = np.where(away < exact, away, np.minimum(far, buckets - 1))
    return bucket + buckets * (bidirectional & (distances > 0))


class RelativeBias(Module):
    """A learned table (num_buckets, num_heads), which all layers of a stack share.

    init: N(0, 1 / num_buckets) unless given.

    ValueError: fewer than 4 buckets, or a max_distance among those that have a bucket each.
    """

    def __init__(
        self,
        num_heads: int,
        bidirectional: bool,
        num_buckets: int = 32,
        max_distance: int = 128,
        init: Init | None = None,
    ) -> None:
        if num_buckets < 4 or max_distance <= num_buckets // 2:
            raise ValueError(
                f"{num_buckets} buckets up to distance {max_distance}: there must be at least 4, "
                "and the distance above half of them"
            )
        self.bidirectional, self.max_distance = bidirectional, max_distance
        self.weight = new_parameter((num_buckets, num_heads), init or normal(num_buckets**-0.5))

    def forward(self, queries: int, keys: int) -> Tensor:
        """(num_heads, queries + keys - 1), as ops.attention takes it: the last query stands on the
        last key, so that it is right behind a cache of keys too."""
        distances = np.arange(1 - keys, queries)
        buckets = relative_buckets(
            distances, self.bidirectional, len(self.weight), self.max_distance
        )
        buckets = array_module(raw(self.weight)).asarray(buckets)
        return ops.transpose(ops.embedding(self.weight, buckets))
