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

from tinyfm import nn
from tinyfm.autograd import Tensor, raw
from tinyfm.models.encoder_decoder import EncoderDecoder, EncoderDecoderBody, check_special_ids
from tinyfm.nn.module import Init
from tinyfm.pretrained import PretrainedConfig, PreTrainedModel

POSITIONS = ("sinusoidal", "sinusoidal_halves", "learned")  # halves: all sines, then all cosines


@dataclass
class TransformerConfig(PretrainedConfig):
    """Sizes and switches, named as in Hugging Face's Marian; the defaults are the base model."""

    model_type: ClassVar[str] = "transformer"

    # What other families have otherwise, and a Transformer has no option for.
    embedding_norm: ClassVar[bool] = False  # over words plus positions, in each stack
    unused_positions: ClassVar[int] = 0  # rows that the tables of learned ones begin with

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
    init_std: float | None = None  # None: see TransformerBody
    pad_token_id: int = field(default=0, metadata={"least": 0})
    bos_token_id: int | None = field(default=1, metadata={"least": 0})
    eos_token_id: int = field(default=2, metadata={"least": 0})
    decoder_start_token_id: int = field(default=1, metadata={"least": 0})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_special_ids(self)

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

    def embedding_init(self) -> Init:
        """What tables of words and of positions start with."""
        return nn.normal(self.d_model**-0.5 if self.init_std is None else self.init_std)


class TransformerBody(EncoderDecoderBody, PreTrainedModel):
    """All but the head.

    Each projection starts Xavier uniform (q, k and v by themselves, though they are stored as one
    matrix), biases at 0, embeddings at N(0, 1 / d_model), so that times sqrt(d) they are N(0, 1).
    With init_std both start N(0, init_std**2).
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        init = config.embedding_init()
        table = (config.vocab_size, config.d_model, config.pad_token_id, init)
        self.embedding = self.decoder_embedding = nn.Embedding(*table)
        if not config.share_embeddings:
            self.decoder_embedding = nn.Embedding(*table)
        self.encoder_positions = self._new_positions(init)
        self.decoder_positions = self._new_positions(init)
        self.encoder_embedding_norm = self._new_embedding_norm()
        self.decoder_embedding_norm = self._new_embedding_norm()
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.Encoder(config.layer("encoder"), config.encoder_layers)
        self.decoder = nn.Decoder(config.layer("decoder"), config.decoder_layers)

    def _new_positions(self, init: Init) -> nn.Module:
        config = self.config
        if config.positions == "learned":
            length, unused = config.max_position_embeddings, config.unused_positions
            return nn.LearnedPositions(length, config.d_model, init, unused)
        layout = "halves" if config.positions == "sinusoidal_halves" else "interleaved"
        return nn.SinusoidalPositions(config.d_model, layout)

    def _new_embedding_norm(self) -> nn.Module | None:
        return nn.LayerNorm(self.config.d_model) if self.config.embedding_norm else None

    def embed_source(self, ids: np.ndarray) -> Tensor:
        vectors = self._look_up(self.embedding, ids)
        return self._place(vectors, self.encoder_positions, self.encoder_embedding_norm)

    def embed_target(self, ids: np.ndarray, start: int) -> Tensor:
        vectors = self._look_up(self.decoder_embedding, ids)
        return self._place(vectors, self.decoder_positions, self.decoder_embedding_norm, start)

    def _look_up(self, table: nn.Embedding, ids: np.ndarray) -> Tensor:
        """E[ids] sqrt(d) (3.4), where sqrt(d) is a switch: (B, T) -> (B, T, d)."""
        vectors = table(ids)
        return vectors * math.sqrt(self.config.d_model) if self.config.scale_embedding else vectors

    def _place(
        self, vectors: Tensor, positions: nn.Module, norm: nn.Module | None, start: int = 0
    ) -> Tensor:
        """The vectors + PE, from position `start` on, and the norm if there is one; then dropout
        (5.4)."""
        places = np.arange(start, start + vectors.shape[1])
        x = vectors + positions(places, raw(vectors))
        return self.dropout(x if norm is None else norm(x))


class Transformer(EncoderDecoder, TransformerBody):
    """The encoder-decoder model; its call and its generation are EncoderDecoder's."""

    config_class: ClassVar[type[TransformerConfig]] = TransformerConfig

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        size, d = config.vocab_size, config.d_model
        self.head: nn.Embedding | nn.Linear = self.embedding
        if not config.share_embeddings:
            self.head = nn.Linear(d, size, bias=False, init=config.embedding_init())
        self.final_logits_bias: nn.Parameter | None = None
        if config.final_logits_bias:
            self.final_logits_bias = nn.new_parameter((size,), nn.zeros)
            self.final_logits_bias.requires_grad = False
