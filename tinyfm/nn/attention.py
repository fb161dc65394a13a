"""Multi-head attention (Vaswani et al. 2017, section 3.2.2) and its cache of keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyfm import ops
from tinyfm.autograd import Tensor, no_grad, raw
from tinyfm.backend import Array, array_module, draw_seed
from tinyfm.masks import Mask
from tinyfm.nn.layers import Linear
from tinyfm.nn.module import Init, Module, stacked, xavier_uniform


class KVCache:
    """The keys and values that one attention has seen, (batch, heads, length, dim) each.

    Memory for `length` positions is taken once, at the first append, which also fixes dtype and
    device; appending copies the new positions only.  Where gradients are recorded nothing is
    written in place: the graph would see it, so the tensors are joined instead.
    """

    def __init__(self, batch: int, heads: int, length: int, dim: int) -> None:
        self.shape = (batch, heads, length, dim)
        self.length = 0  # positions filled
        self._keys: Any = None
        self._values: Any = None

    def append(self, k: Any, v: Any) -> tuple[Any, Any]:
        """Add k, v (batch, heads, n, dim); returns all keys and values so far."""
        batch, heads, capacity, _ = self.shape
        end = self.length + k.shape[2]
        if k.shape[:2] != (batch, heads) or end > capacity:
            raise ValueError(
                f"a cache of {self.shape} with {self.length} positions filled cannot take "
                f"{k.shape}: make it with the batch, heads and length that it will hold"
            )
        tensors = [x for x in (k, v, self._keys, self._values) if isinstance(x, Tensor)]
        recorded = any(x.requires_grad for x in tensors)
        if recorded:
            if self.length:
                k = ops.concatenate([self.view(self._keys), k], axis=2)
                v = ops.concatenate([self.view(self._values), v], axis=2)
            self._keys, self._values, self.length = k, v, end
            return k, v
        k, v = raw(k), raw(v)
        if self._keys is None or raw(self._keys).shape[2] < capacity:
            self._keys, self._values = self._room(k, self._keys), self._room(v, self._values)
        self._keys[:, :, self.length : end] = k
        self._values[:, :, self.length : end] = v
        self.length = end
        return self.filled()

    def filled(self) -> tuple[Any, Any]:
        """All keys and values so far, as views."""
        return self.view(self._keys), self.view(self._values)

    def view(self, x: Any) -> Any:
        return x[:, :, : self.length]

    def _room(self, new: Array, old: Any) -> Array:
        batch, heads, capacity, _ = self.shape
        buffer = array_module(new).empty((batch, heads, capacity, new.shape[3]), new.dtype)
        if old is not None:
            buffer[:, :, : self.length] = raw(old)[:, :, : self.length]
        return buffer

    def reorder(self, rows: Array) -> None:
        """Continue with the rows (batch,) of the old batch, a NumPy array; nothing if in order."""
        if not self.length or (rows == np.arange(len(rows))).all():
            return
        rows = array_module(raw(self._keys)).asarray(rows)
        if isinstance(self._keys, Tensor) or isinstance(self._values, Tensor):  # a graph sees them
            self._keys, self._values = self.view(self._keys)[rows], self.view(self._values)[rows]
        else:
            for x in (self._keys, self._values):
                self.view(x)[...] = self.view(x)[rows]


class MultiHeadAttention(Module):
    """Heads of width head_dim look from x at x itself, or at a memory; then one output projection.

    d_model: width of x and of the result; head_dim: d_model / num_heads unless given.
    cross: keys and values come from `memory` and are projected apart from the queries; otherwise
        one product makes all three.
    scale: of the scores; 1 / sqrt(head_dim) when None.
    init: of each of the four projections; query_init, out_init: of the first and of the last one,
        where they differ.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        head_dim: int | None = None,
        cross: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
        scale: float | None = None,
        init: Init = xavier_uniform,
        query_init: Init | None = None,
        out_init: Init | None = None,
    ) -> None:
        if num_heads < 1:
            raise ValueError(f"num_heads is {num_heads}: it must be at least 1")
        if head_dim is None and d_model % num_heads:
            raise ValueError(f"d_model {d_model} is not a multiple of num_heads {num_heads}")
        self.num_heads, self.head_dim = num_heads, head_dim or d_model // num_heads
        self.cross, self.dropout, self.scale = cross, dropout, scale
        inner, query_init = self.num_heads * self.head_dim, query_init or init
        if cross:
            self.q = Linear(d_model, inner, bias, query_init)
            self.kv = Linear(d_model, 2 * inner, bias, stacked(init, init))
        else:
            self.qkv = Linear(d_model, 3 * inner, bias, stacked(query_init, init, init))
        self.out = Linear(inner, d_model, bias, out_init or init)

    def cache(self, batch: int, length: int) -> KVCache:
        """An empty cache for `length` positions."""
        return KVCache(batch, self.num_heads, length, self.head_dim)

    def forward(
        self,
        x: Any,
        memory: Any = None,
        mask: Mask | None = None,
        bias: Any = None,
        relative_bias: Any = None,
        cache: KVCache | None = None,
        weights: list[Array] | None = None,
    ) -> Tensor:
        """x (B, T, d_model) -> (B, T, d_model).

        memory (B, S, d_model): for cross attention; with a cache that is filled it is not read.
        mask, bias, relative_bias: as in ops.attention; with a cache they cover all its keys.
        weights: a list to which the probabilities (B, H, Tq, Tk) are appended, for study.
        """
        if self.cross:
            (q,) = self._heads(self.q(x), 1)
            if cache is None or not cache.length:
                k, v = self._heads(self.kv(memory), 2)
                if cache is not None:
                    k, v = cache.append(k, v)
            else:
                k, v = cache.filled()
        else:
            q, k, v = self._heads(self.qkv(x), 3)
            if cache is not None:
                k, v = cache.append(k, v)
        if weights is not None:
            with no_grad():
                probabilities = ops.attention_weights(
                    q, k, mask, bias, relative_bias, scale=self.scale
                )
            weights.append(probabilities.data)
        p = self.dropout if self.training else 0.0
        seed = draw_seed() if p else None
        heads = ops.attention(
            q, k, v, mask, bias, relative_bias, scale=self.scale, dropout=p, dropout_seed=seed
        )
        return self.out(ops.merge_heads(heads))

    def _heads(self, x: Tensor, parts: int) -> tuple[Tensor, ...]:
        return ops.split_heads(x, parts=parts, heads=self.num_heads)
