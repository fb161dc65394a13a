"""What a training step costs: the floating-point operations of its matrix products.

A product of (n, k) and (k, m) takes n k m multiplications and as many additions.  So each position
that passes a weight matrix costs 2 operations for each of its numbers; and each pair of a query and
a key costs 2 for each number of the heads, twice: for the score and for the weighted sum.  Backward
takes two products for each one of forward, one for either factor.  Norms, softmax and activations
are left out; padding and what a mask hides count like everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tinyfm import nn
from tinyfm.data import IGNORE_INDEX
from tinyfm.models.bart import BartForTranslation
from tinyfm.models.encoder_decoder import EncoderDecoder
from tinyfm.models.gpt import GPT2LMHeadModel
from tinyfm.objectives import shifted


def training_flops(model: Any, batch: Mapping[str, Any]) -> int:
    """The operations of `model(**batch).loss.backward()`, by the shapes of weights and batch.

    model: a Transformer, BART or T5, with batches of input_ids (B, S) and labels (B, T); or a
        GPT2LMHeadModel, both (B, T).  The output matrix is multiplied where there is a label only,
        as on the CPU.

    TypeError: another model.
    """
    labels = np.asarray(batch["labels"])
    count, length = np.shape(batch["input_ids"])
    if isinstance(model, EncoderDecoder):
        products = _stack(model.encoder.layers, count, length)
        products += _stack(model.decoder.layers, count, labels.shape[1], length)
        if isinstance(model, BartForTranslation):
            products += _stack(model.source.encoder.layers, count, length)
        head = model.head.weight
    elif isinstance(model, GPT2LMHeadModel):
        products = _stack(model.transformer.decoder.layers, count, length)
        head, labels = model.transformer.tokens.weight, shifted(labels)
    else:
        raise TypeError(
            f"training_flops knows no {type(model).__name__}: give an encoder-decoder with "
            "a head, or a GPT2LMHeadModel"
        )
    products += int((labels != IGNORE_INDEX).sum()) * head.size
    return 3 * 2 * products


def _stack(layers: Iterable[Any], count: int, length: int, memory: int = 0) -> int:
    """Multiplications of a forward pass over (count, length), looking at (count, memory)."""
    total = 0
    for layer in layers:
        total += count * _attention(layer.attention, length, length)
        if layer.cross is not None:
            total += count * _attention(layer.cross, length, memory)
        total += count * length * _weights(layer.feed_forward)
    return total


def _attention(attention: nn.MultiHeadAttention, queries: int, keys: int) -> int:
    """Multiplications for one text: projections, scores, weighted sums."""
    inner = attention.num_heads * attention.head_dim
    pairs = 2 * queries * keys * inner
    if attention.cross:
        of_memory = attention.kv.weight.size
        return pairs + keys * of_memory + queries * (_weights(attention) - of_memory)
    return pairs + queries * _weights(attention)


def _weights(module: nn.Module) -> int:
    """The numbers in the matrices of a module; biases and norms are vectors."""
    return sum(p.size for p in module.parameters() if p.ndim == 2)
