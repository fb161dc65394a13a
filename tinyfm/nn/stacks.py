"""The layers that all five models are stacked from, with the differences between them as switches.

    x = LayerNorm(x + Dropout(sublayer(x)))     norm_first=False: Transformer, BERT, GPT-1, BART
    x = x + Dropout(sublayer(Norm(x)))          norm_first=True: GPT-2, T5 (with a norm at the end)

A sublayer is self-attention, cross-attention (decoders of encoder-decoder models) or the
feed-forward network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tinyfm import ops
from tinyfm.autograd import Tensor
from tinyfm.backend import Array
from tinyfm.masks import Mask
from tinyfm.nn.attention import KVCache, MultiHeadAttention
from tinyfm.nn.layers import Dropout, LayerNorm, Linear, RMSNorm
from tinyfm.nn.module import Init, Module, xavier_uniform
from tinyfm.nn.relative_bias import RelativeBias

ACTIVATIONS: dict[str, Callable[[Any], Tensor]] = {
    "relu": ops.relu,
    "silu": ops.silu,
    "swish": ops.silu,
    "gelu": ops.gelu,
    "gelu_new": partial(ops.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(ops.gelu, approximate="tanh"),
}


@dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """The shape of a layer and its switches; the defaults are those of the Transformer of 2017."""

    d_model: int
    num_heads: int
    d_ff: int
    head_dim: int | None = None  # d_model / num_heads
    dropout: float = 0.1  # after each sublayer
    attention_dropout: float = 0.0  # on the attention probabilities
    activation_dropout: float = 0.0  # after the activation of the feed-forward network
    activation: str = "relu"
    gated: bool = False  # activation(x W) * (x V), as in T5 v1.1
    norm: str = "layer"  # or "rms"
    eps: float = 1e-5
    norm_first: bool = False
    bias: bool = True  # in linear layers
    scale: float | None = None  # of the attention scores: 1 / sqrt(head_dim); T5: 1
    init: Init = xavier_uniform  # of every projection
    query_init: Init | None = None  # of those that make queries; None: as the others
    out_init: Init | None = None  # of those that end a sublayer; None: as the others

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise ValueError(f"activation {self.activation!r} is unknown: use one of {known}")
        if self.norm not in ("layer", "rms"):
            raise ValueError(f"norm {self.norm!r} is unknown: use 'layer' or 'rms'")

    def new_norm(self) -> Module:
        kind = LayerNorm if self.norm == "layer" else RMSNorm
        return kind(self.d_model, self.eps)

    def new_attention(self, cross: bool = False) -> MultiHeadAttention:
        return MultiHeadAttention(
            self.d_model,
            self.num_heads,
            head_dim=self.head_dim,
            cross=cross,
            bias=self.bias,
            dropout=self.attention_dropout,
            scale=self.scale,
            init=self.init,
            query_init=self.query_init,
            out_init=self.out_init,
        )


class FeedForward(Module):
    """activation(x W1 + b1) W2 + b2, on each position alone (Vaswani et al. 2017, section 3.3)."""

    def __init__(self, config: LayerConfig) -> None:
        self.activation = ACTIVATIONS[config.activation]
        wide = (config.d_model, config.d_ff, config.bias, config.init)
        self.up = Linear(*wide)
        self.gate = Linear(*wide) if config.gated else None
        self.dropout = Dropout(config.activation_dropout)
        self.down = Linear(config.d_ff, config.d_model, config.bias, config.out_init or config.init)

    def forward(self, x: Any) -> Tensor:
        if self.gate is None:
            return self.down(self.dropout(self.activation(self.up(x))))
        return self.down(self.dropout(self.activation(self.gate(x)) * self.up(x)))


class LayerCache:
    """What a decoder layer keeps between steps: the cache of each of its attentions."""

    def __init__(self, own: KVCache, cross: KVCache | None) -> None:
        self.own, self.cross = own, cross

    def reorder(self, rows: Array) -> None:
        for cache in (self.own, self.cross):
            if cache is not None:
                cache.reorder(rows)


class Layer(Module):
    """Self-attention, cross-attention if it has one, feed-forward; each with residual and norm."""

    def __init__(self, config: LayerConfig, cross_attention: bool = False) -> None:
        self.norm_first = config.norm_first
        self.attention, self.attention_norm = config.new_attention(), config.new_norm()
        self.cross: Any = config.new_attention(cross=True) if cross_attention else None
        self.cross_norm: Any = config.new_norm() if cross_attention else None
        self.feed_forward, self.feed_forward_norm = FeedForward(config), config.new_norm()
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x: Any,
        mask: Mask | None = None,
        relative_bias: Any = None,
        memory: Any = None,
        memory_mask: Mask | None = None,
        cache: LayerCache | None = None,
        weights: list[Array] | None = None,
        cross_weights: list[Array] | None = None,
    ) -> Tensor:
        """x (B, T, D) -> (B, T, D); memory (B, S, D) is what cross-attention looks at."""

        def look(x: Any) -> Tensor:
            own = cache.own if cache else None
            return self.attention(
                x, mask=mask, relative_bias=relative_bias, cache=own, weights=weights
            )

        def look_across(x: Any) -> Tensor:
            cross = cache.cross if cache else None
            return self.cross(x, memory, memory_mask, cache=cross, weights=cross_weights)

        x = self._residual(x, look, self.attention_norm)
        if self.cross is not None:
            x = self._residual(x, look_across, self.cross_norm)
        return self._residual(x, self.feed_forward, self.feed_forward_norm)

    def _residual(self, x: Any, sublayer: Callable[[Any], Tensor], norm: Module) -> Tensor:
        if self.norm_first:
            return x + self.dropout(sublayer(norm(x)))
        return norm(x + self.dropout(sublayer(x)))

    def cache(self, batch: int, length: int, memory_length: int) -> LayerCache:
        cross = None if self.cross is None else self.cross.cache(batch, memory_length)
        return LayerCache(self.attention.cache(batch, length), cross)


def _final_norm(config: LayerConfig, wanted: bool | None) -> Module | None:
    """The norm at the end of a stack: by default where norms come first."""
    return config.new_norm() if (config.norm_first if wanted is None else wanted) else None


class Encoder(Module):
    """Layers of self-attention and feed-forward; a final norm where norms come first.

    relative_bias: of the scores of self-attention, one for all layers.
    """

    def __init__(
        self,
        config: LayerConfig,
        num_layers: int,
        final_norm: bool | None = None,
        relative_bias: RelativeBias | None = None,
    ) -> None:
        self.layers = [Layer(config) for _ in range(num_layers)]
        self.norm = _final_norm(config, final_norm)
        self.relative_bias = relative_bias

    def forward(
        self, x: Any, mask: Mask | None = None, weights: list[Array] | None = None
    ) -> Tensor:
        """x (B, T, D) -> (B, T, D); weights: a list that gets each layer's probabilities."""
        length = x.shape[1]
        bias = None if self.relative_bias is None else self.relative_bias(length, length)
        for layer in self.layers:
            x = layer(x, mask, bias, weights=weights)
        return x if self.norm is None else self.norm(x)


class Decoder(Module):
    """Layers that also look at a memory, unless cross_attention is off (then it is GPT's stack).

    The caller gives the mask: causal, or prefix for a prefix LM.
    relative_bias: of the scores of self-attention, one for all layers.
    """

    def __init__(
        self,
        config: LayerConfig,
        num_layers: int,
        cross_attention: bool = True,
        final_norm: bool | None = None,
        relative_bias: RelativeBias | None = None,
    ) -> None:
        self.layers = [Layer(config, cross_attention) for _ in range(num_layers)]
        self.norm = _final_norm(config, final_norm)
        self.relative_bias = relative_bias

    def forward(
        self,
        x: Any,
        mask: Mask | None = None,
        memory: Any = None,
        memory_mask: Mask | None = None,
        caches: list[LayerCache] | None = None,
        weights: tuple[list[Array], list[Array]] | None = None,
    ) -> Tensor:
        """x (B, T, D), memory (B, S, D) -> (B, T, D).

        caches: from `self.caches`, filled by earlier positions; x then holds the new ones only.
        weights: two lists that get each layer's probabilities, of self- and of cross-attention.
        """
        own_weights, cross_weights = weights or (None, None)
        new = x.shape[1]
        keys = new + (caches[0].own.length if caches else 0)
        bias = None if self.relative_bias is None else self.relative_bias(new, keys)
        for i, layer in enumerate(self.layers):
            x = layer(
                x,
                mask,
                bias,
                memory,
                memory_mask,
                cache=None if caches is None else caches[i],
                weights=own_weights,
                cross_weights=cross_weights,
            )
        return x if self.norm is None else self.norm(x)

    def caches(self, batch: int, length: int, memory_length: int = 0) -> list[LayerCache]:
        """Empty caches for `length` positions of `batch` rows and a memory of memory_length."""
        return [layer.cache(batch, length, memory_length) for layer in self.layers]
