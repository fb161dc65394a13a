"""What the encoder-decoder models share: the call, the loss, and the steps of generation.

    source -> vectors -> encoder -> memory
    target shifted right -> vectors -> decoder, looking at memory -> head -> logits

Encoder layers see the whole source (its padding masked); decoder layers see what is to the left of
them and the whole source.  The loss is at every target position.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from tinyfm import masks, nn, ops
from tinyfm.autograd import Tensor, raw
from tinyfm.backend import Array, array_module, host
from tinyfm.data import IGNORE_INDEX
from tinyfm.models.output import ModelOutput
from tinyfm.objectives import teacher_forcing
from tinyfm.pretrained import PretrainedConfig


def check_special_ids(config: PretrainedConfig) -> None:
    """ValueError: a token that the config names is outside the vocabulary."""
    size = config.to_dict()["vocab_size"]
    for name, value in config.to_dict().items():
        if name.endswith("_token_id") and value is not None and value >= size:
            raise ValueError(f"{name} {value} is outside the {size} ids")


class State:
    """A generation in progress: the encoder's result and the decoder's caches, row by row."""

    def __init__(self, memory: Tensor, mask: masks.Mask, caches: list[nn.LayerCache]) -> None:
        self.memory: Tensor | None = memory  # until the cross-attentions have cached what they need
        self.mask, self.caches = mask, caches

    def reorder(self, rows: np.ndarray) -> None:
        """Go on with these rows (R,) of the running sequences."""
        if self.memory is not None:  # before the first step
            self.memory = self.memory[array_module(raw(self.memory)).asarray(rows)]
        for cache in self.caches:
            cache.reorder(rows)
        self.mask = self.mask.reorder(rows)


class EncoderDecoderBody(nn.Module):
    """All but the head: a vector for each target position; a base beside PreTrainedModel.

    A class has an `encoder` and a `decoder`, and says how ids become vectors.

    decoder_reads_source: the decoder may be left without a target; it then reads the source,
        shifted right.
    """

    decoder_reads_source: ClassVar[bool] = False
    config: Any
    encoder: nn.Encoder
    decoder: nn.Decoder

    def embed_source(self, ids: np.ndarray) -> Tensor:
        """Source ids (B, S) -> what the encoder gets (B, S, d)."""
        raise NotImplementedError(f"{type(self).__name__} defines no embed_source()")

    def embed_target(self, ids: np.ndarray, start: int) -> Tensor:
        """Target ids (B, T), the first of them at position `start` -> what the decoder gets."""
        raise NotImplementedError(f"{type(self).__name__} defines no embed_target()")

    def forward(
        self,
        input_ids: Array,
        attention_mask: Array | None = None,
        decoder_input_ids: Array | None = None,
        decoder_attention_mask: Array | None = None,
        *,
        output_attentions: bool = False,
    ) -> ModelOutput:
        """Source ids (B, S) and target ids (B, T) -> .last_hidden_state (B, T, d).

        attention_mask (B, S), decoder_attention_mask (B, T): 1 for tokens, 0 for padding; or a
            Mask, joined by & with the decoder's causal one.
        output_attentions: adds encoder_attentions, decoder_attentions and cross_attentions, a list
            of arrays (B, H, Tq, Tk) with one entry per layer.
        """
        if decoder_input_ids is None:
            if not self.decoder_reads_source:
                raise ValueError(f"{type(self).__name__}: give decoder_input_ids or labels")
            decoder_input_ids = self._shifted(input_ids)
        attentions: tuple[list, list, list] = ([], [], [])
        memory_mask = self._padding(attention_mask)
        memory = self.encode(input_ids, memory_mask, attentions[0] if output_attentions else None)
        hidden = self.decode(
            decoder_input_ids,
            memory,
            memory_mask,
            self._padding(decoder_attention_mask),
            weights=attentions[1:] if output_attentions else None,
        )
        fields: dict[str, Any] = {"encoder_last_hidden_state": memory}
        if output_attentions:
            names = ("encoder_attentions", "decoder_attentions", "cross_attentions")
            fields |= dict(zip(names, attentions, strict=True))
        return ModelOutput(last_hidden_state=hidden, **fields)

    def encode(
        self, input_ids: Array, mask: masks.Mask, weights: list[Array] | None = None
    ) -> Tensor:
        """Source ids (B, S) -> memory (B, S, d)."""
        return self.encoder(self.embed_source(of_batch(input_ids)), mask, weights=weights)

    def decode(
        self,
        ids: Array,
        memory: Tensor | None,
        memory_mask: masks.Mask,
        mask: masks.Mask | None = None,
        caches: list[nn.LayerCache] | None = None,
        weights: Any = None,
    ) -> Tensor:
        """Target ids (B, T) -> what the head multiplies (B, T, d); with caches, ids are the new
        ones only."""
        start = caches[0].own.length if caches else 0
        x = self.embed_target(of_batch(ids), start)
        mask = masks.causal() if mask is None else masks.causal() & mask
        return self.decoder(x, mask, memory, memory_mask, caches=caches, weights=weights)

    def _shifted(self, labels: Array) -> np.ndarray:
        """What the decoder reads (B, T) to say the labels (B, T)."""
        config = self.config
        return teacher_forcing(host(labels), config.decoder_start_token_id, config.pad_token_id)

    def _padding(self, attention_mask: Array | None) -> masks.Mask:
        _, weight = next(self.named_parameters())
        return masks.of_tokens(attention_mask, raw(weight))

    def _array(self, x: Any) -> Array:
        """x where the weights are."""
        _, weight = next(self.named_parameters())
        return array_module(raw(weight)).asarray(x)


class EncoderDecoder(EncoderDecoderBody):
    """With the head that says the next target word.

    A class has a `head` whose weight is (V, d), and perhaps `final_logits_bias` (V,).
    """

    head: nn.Embedding | nn.Linear
    final_logits_bias: nn.Parameter | None = None

    def forward(
        self,
        input_ids: Array,
        attention_mask: Array | None = None,
        decoder_input_ids: Array | None = None,
        decoder_attention_mask: Array | None = None,
        labels: Array | None = None,
        output_attentions: bool = False,
    ) -> ModelOutput:
        """What the body gives, with .logits (B, T, V), and the loss for labels.

        labels (B, T): the target with its end token, -100 on padding; without decoder_input_ids
            they are shifted right for the decoder (teacher forcing).  Label smoothing works in
            training mode; the loss in evaluation mode is plain, so that exp(loss) is a perplexity.
        """
        if decoder_input_ids is None and labels is not None:
            decoder_input_ids = self._shifted(labels)
        output = super().forward(
            input_ids,
            attention_mask,
            decoder_input_ids,
            decoder_attention_mask,
            output_attentions=output_attentions,
        )
        hidden = output.last_hidden_state
        if labels is None:
            return output.extended(None, logits=self._logits(hidden))
        labels = host(labels)
        loss = ops.linear_cross_entropy(
            hidden,
            self.head.weight,
            self.final_logits_bias,
            self._array(labels),
            ignore_index=IGNORE_INDEX,
            label_smoothing=self.config.label_smoothing if self.training else 0.0,
        )
        count = int((labels != IGNORE_INDEX).sum())
        return output.extended((loss, count), logits=lambda: self._logits(hidden))

    def _logits(self, hidden: Tensor) -> Tensor:
        """h W^T, and the bias of files that have one: (..., d) -> (..., V)."""
        return ops.linear(hidden, self.head.weight, self.final_logits_bias)

    def begin(
        self, input_ids: Array, attention_mask: Array | None, rows: Array, max_length: int
    ) -> State:
        """See tinyfm.generation: each source is encoded once, however many rows run from it."""
        if input_ids.shape[1] == 0:
            raise ValueError("input_ids has no token: give each source one at least, such as </s>")
        mask = self._padding(attention_mask)
        memory = self.encode(input_ids, mask)[self._array(rows)]
        caches = self.decoder.caches(len(rows), max_length, memory.shape[1])
        return State(memory, mask.reorder(rows), caches)

    def step(self, ids: Array, state: State) -> Array:
        hidden = self.decode(ids, state.memory, state.mask, caches=state.caches)
        state.memory = None
        return raw(self._logits(hidden[:, -1]))


def of_batch(ids: Array) -> np.ndarray:
    """ids on the host; ValueError unless they are (batch, length)."""
    ids = host(ids)
    if ids.ndim != 2:
        raise ValueError(f"ids are {ids.shape}: they must be (batch, length)")
    return ids
