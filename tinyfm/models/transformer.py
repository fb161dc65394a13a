"""The Transformer, "Attention Is All You Need" (Vaswani et al. 2017).

    source -> E sqrt(d) + PE -> encoder layers -> memory
    target shifted right -> E sqrt(d) + PE -> decoder layers, looking at memory -> h E^T -> logits

Encoder layers see the whole source (its padding masked); decoder layers see what is to the left of
them and the whole source.  One matrix E serves as source, target and output embedding (3.4).
Norms come after the residual sum and there is none at the end (3.1); torch.nn.Transformer has two
more.  The loss is at every target position.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from tinyfm import masks, nn, ops
from tinyfm.autograd import Tensor, raw
from tinyfm.backend import Array, array_module, host
from tinyfm.data import IGNORE_INDEX
from tinyfm.models.output import ModelOutput
from tinyfm.objectives import teacher_forcing
from tinyfm.pretrained import PretrainedConfig, PreTrainedModel

POSITIONS = ("sinusoidal", "sinusoidal_halves", "learned")  # halves: all sines, then all cosines


@dataclass
class TransformerConfig(PretrainedConfig):
    """Sizes and switches, named as in Hugging Face's Marian; the defaults are the base model."""

    model_type: ClassVar[str] = "transformer"

    vocab_size: int = 37000
    d_model: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_attention_heads: int = 8
    decoder_attention_heads: int = 8
    encoder_ffn_dim: int = 2048
    decoder_ffn_dim: int = 2048
    activation_function: str = field(default="relu", metadata={"choices": tuple(nn.ACTIVATIONS)})
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    label_smoothing: float = 0.1
    max_position_embeddings: int = 512
    positions: str = field(default="sinusoidal", metadata={"choices": POSITIONS})
    scale_embedding: bool = True  # by sqrt(d_model)
    share_embeddings: bool = True  # source, target and output in one matrix
    final_logits_bias: bool = False  # added to the logits; read from files, not learned
    norm_first: bool = False
    init_std: float | None = None  # None: see Transformer
    pad_token_id: int = field(default=0, metadata={"least": 0})
    bos_token_id: int | None = field(default=1, metadata={"least": 0})
    eos_token_id: int = field(default=2, metadata={"least": 0})
    decoder_start_token_id: int = field(default=1, metadata={"least": 0})

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
            if (value := getattr(self, name)) is not None and value >= self.vocab_size:
                raise ValueError(f"{name} {value} is outside the {self.vocab_size} ids")

    @classmethod
    def base(cls, **changes: Any) -> Self:
        """Table 3, row "base": 6 + 6 layers, 512 wide, 8 heads, 65 million parameters."""
        return cls(**changes)

    @classmethod
    def big(cls, **changes: Any) -> Self:
        """Table 3, row "big": 1024 wide, 16 heads, dropout 0.3, 213 million parameters."""
        sizes = {"encoder_attention_heads": 16, "decoder_attention_heads": 16}
        sizes |= {"d_model": 1024, "encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096}
        return cls(**{"dropout": 0.3, **sizes, **changes})

    def layer(self, side: str) -> nn.LayerConfig:
        """What a layer of the "encoder" or "decoder" is made of."""
        return nn.LayerConfig(
            d_model=self.d_model,
            num_heads=getattr(self, f"{side}_attention_heads"),
            d_ff=getattr(self, f"{side}_ffn_dim"),
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            activation_dropout=self.activation_dropout,
            activation=self.activation_function,
            norm_first=self.norm_first,
            init=nn.xavier_uniform if self.init_std is None else nn.normal(self.init_std),
        )


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


class Transformer(PreTrainedModel):
    """The encoder-decoder model.

    Each projection starts Xavier uniform (q, k and v by themselves, though they are stored as one
    matrix), biases at 0, embeddings at N(0, 1 / d_model), so that times sqrt(d) they are N(0, 1).
    With init_std both start N(0, init_std**2).
    """

    config_class: ClassVar[type[TransformerConfig]] = TransformerConfig

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        size, d = config.vocab_size, config.d_model
        init = nn.normal(d**-0.5 if config.init_std is None else config.init_std)
        self.embedding = nn.Embedding(size, d, config.pad_token_id, init)
        self.decoder_embedding = self.embedding
        self.head: nn.Embedding | nn.Linear = self.embedding
        if not config.share_embeddings:
            self.decoder_embedding = nn.Embedding(size, d, config.pad_token_id, init)
            self.head = nn.Linear(d, size, bias=False, init=init)
        self.final_logits_bias: nn.Parameter | None = None
        if config.final_logits_bias:
            self.final_logits_bias = nn.new_parameter((size,), nn.zeros)
            self.final_logits_bias.requires_grad = False
        self.encoder_positions = self._new_positions(init)
        self.decoder_positions = self._new_positions(init)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.Encoder(config.layer("encoder"), config.encoder_layers)
        self.decoder = nn.Decoder(config.layer("decoder"), config.decoder_layers)

    def _new_positions(self, init: Any) -> nn.Module:
        config = self.config
        if config.positions == "learned":
            return nn.LearnedPositions(config.max_position_embeddings, config.d_model, init)
        layout = "halves" if config.positions == "sinusoidal_halves" else "interleaved"
        return nn.SinusoidalPositions(config.d_model, layout)

    def forward(
        self,
        input_ids: Array,
        attention_mask: Array | None = None,
        decoder_input_ids: Array | None = None,
        decoder_attention_mask: Array | None = None,
        labels: Array | None = None,
        output_attentions: bool = False,
    ) -> ModelOutput:
        """Source ids (B, S) and target ids (B, T) -> logits (B, T, V), and the loss for labels.

        attention_mask (B, S), decoder_attention_mask (B, T): 1 for tokens, 0 for padding; or a
            Mask, joined by & with the decoder's causal one.
        labels (B, T): the target with its end token, -100 on padding; without decoder_input_ids
            they are shifted right for the decoder (teacher forcing).  Label smoothing works in
            training mode; the loss in evaluation mode is plain, so that exp(loss) is a perplexity.
        output_attentions: adds encoder_attentions, decoder_attentions and cross_attentions, a list
            of arrays (B, H, Tq, Tk) with one entry per layer.
        """
        config = self.config
        labels = None if labels is None else host(labels)
        if decoder_input_ids is None:
            if labels is None:
                raise ValueError("Transformer: give decoder_input_ids or labels")
            decoder_input_ids = teacher_forcing(
                labels, config.decoder_start_token_id, config.pad_token_id
            )
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
        if labels is None:
            return ModelOutput(logits=self._logits(hidden), **fields)
        loss = ops.linear_cross_entropy(
            hidden,
            self.head.weight,
            self.final_logits_bias,
            self._array(labels),
            ignore_index=IGNORE_INDEX,
            label_smoothing=config.label_smoothing if self.training else 0.0,
        )
        return ModelOutput(
            loss=loss,
            num_labels=int((labels != IGNORE_INDEX).sum()),
            logits=lambda: self._logits(hidden),
            **fields,
        )

    def encode(
        self, input_ids: Array, mask: masks.Mask, weights: list[Array] | None = None
    ) -> Tensor:
        """Source ids (B, S) -> memory (B, S, d)."""
        x = self._embed(self.embedding, self.encoder_positions, input_ids, 0)
        return self.encoder(x, mask, weights=weights)

    def decode(
        self,
        ids: Array,
        memory: Tensor | None,
        memory_mask: masks.Mask,
        mask: masks.Mask | None = None,
        caches: list[nn.LayerCache] | None = None,
        weights: Any = None,
    ) -> Tensor:
        """Target ids (B, T) -> hidden states (B, T, d); with caches, ids are the new ones only."""
        start = caches[0].own.length if caches else 0
        x = self._embed(self.decoder_embedding, self.decoder_positions, ids, start)
        mask = masks.causal() if mask is None else masks.causal() & mask
        return self.decoder(x, mask, memory, memory_mask, caches=caches, weights=weights)

    def _embed(self, table: nn.Embedding, positions: nn.Module, ids: Array, start: int) -> Tensor:
        """E[ids] sqrt(d) + PE, then dropout (3.4, 5.4); sqrt(d) is a switch."""
        ids = host(ids)
        if ids.ndim != 2:
            raise ValueError(f"ids are {ids.shape}: they must be (batch, length)")
        vectors = table(ids)
        if self.config.scale_embedding:
            vectors = vectors * math.sqrt(self.config.d_model)
        places = np.arange(start, start + ids.shape[1])
        return self.dropout(vectors + positions(places, raw(vectors)))

    def _logits(self, hidden: Tensor) -> Tensor:
        """h E^T, and the bias of files that have one: (..., d) -> (..., V)."""
        return ops.linear(hidden, self.head.weight, self.final_logits_bias)

    def _padding(self, attention_mask: Array | None) -> masks.Mask:
        if attention_mask is None:
            return masks.full()
        if isinstance(attention_mask, masks.Mask):
            return attention_mask
        return masks.padding(self._array(host(attention_mask)))

    def _array(self, x: Any) -> Array:
        """x where the weights are."""
        return array_module(raw(self.embedding.weight)).asarray(x)

    def begin(
        self, input_ids: Array, attention_mask: Array | None, rows: Array, max_length: int
    ) -> State:
        """See tinyfm.generation: each source is encoded once, however many rows run from it."""
        mask = self._padding(attention_mask)
        memory = self.encode(input_ids, mask)[self._array(rows)]
        caches = self.decoder.caches(len(rows), max_length, memory.shape[1])
        return State(memory, mask.reorder(rows), caches)

    def step(self, ids: Array, state: State) -> Array:
        hidden = self.decode(ids, state.memory, state.mask, caches=state.caches)
        state.memory = None
        return raw(self._logits(hidden[:, -1]))
