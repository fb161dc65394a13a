"""Modules: the blocks that the models put together."""

from tinyfm.nn.attention import KVCache, MultiHeadAttention
from tinyfm.nn.layers import (
    Dropout,
    Embedding,
    LayerNorm,
    LearnedPositions,
    Linear,
    RMSNorm,
    SinusoidalPositions,
    sinusoids,
)
from tinyfm.nn.module import (
    Module,
    Parameter,
    new_parameter,
    normal,
    ones,
    stacked,
    without_memory,
    xavier_uniform,
    zeros,
)
from tinyfm.nn.relative_bias import RelativeBias, relative_buckets
from tinyfm.nn.stacks import (
    ACTIVATIONS,
    Decoder,
    Encoder,
    FeedForward,
    Layer,
    LayerCache,
    LayerConfig,
)

__all__ = [
    "ACTIVATIONS",
    "Decoder",
    "Dropout",
    "Embedding",
    "Encoder",
    "FeedForward",
    "KVCache",
    "Layer",
    "LayerCache",
    "LayerConfig",
    "LayerNorm",
    "LearnedPositions",
    "Linear",
    "Module",
    "MultiHeadAttention",
    "Parameter",
    "RMSNorm",
    "RelativeBias",
    "SinusoidalPositions",
    "new_parameter",
    "normal",
    "ones",
    "relative_buckets",
    "sinusoids",
    "stacked",
    "without_memory",
    "xavier_uniform",
    "zeros",
]
