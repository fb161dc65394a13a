"""T5: "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer"
(Raffel et al. 2020), its version 1.1 (Shazeer 2020; the body of Flan-T5) and mT5 (Xue et al. 2021).

    source -> E -> encoder layers -> norm -> memory
    target shifted right -> E -> decoder layers, looking at memory -> norm -> h E^T / sqrt(d)

The Transformer with three differences (section 2.1).  Norms come first, have no bias and leave the
mean where it is; one more ends each stack.  There are no positions: the scores of self-attention
get a learned number for each distance and head, from one table for all layers of a stack.  And
scores are not divided by sqrt(d_kv), for the queries start that much smaller.  No layer has a bias.
Version 1.1 has gated feed-forward networks, and an output matrix of its own, without 1 / sqrt(d).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from tinyfm import masks, nn
from tinyfm.autograd import Tensor, raw
from tinyfm.backend import Array
from tinyfm.models.encoder_decoder import EncoderDecoder, check_special_ids, of_batch
from tinyfm.models.output import ModelOutput
from tinyfm.nn.module import Init
from tinyfm.pretrained import PretrainedConfig, PreTrainedModel
from tinyfm.renames import Rename

# Width, d_ff, layers of each stack, heads; heads are 64 wide.
V1_1 = {
    "small": (512, 1024, 8, 6),
    "base": (768, 2048, 12, 12),
    "large": (1024, 2816, 24, 16),
    "xl": (2048, 5120, 24, 32),
    "xxl": (4096, 10240, 24, 64),
}
GATED = "gated-"
FEED_FORWARDS = tuple(gate + name for gate in ("", GATED) for name in nn.ACTIVATIONS)


@dataclass
class T5Config(PretrainedConfig):
    """Hugging Face's fields; the defaults are those of the smallest T5 of version 1.0.

    scale_decoder_outputs: what the head reads is divided by sqrt(d_model); by default where
        tie_word_embeddings says that the head is the table of words.
    scale_attn_weights: scores are divided by sqrt(d_kv), which no published model does, nor can
        transformers.
    task_specific_params: by the names of tasks, how the model reads and writes them, such as
        {"summarization": {"prefix": "summarize: "}}; nothing here depends on it.
    """

    model_type: ClassVar[str] = "t5"

    vocab_size: int = 32128
    d_model: int = 512
    d_kv: int = 64
    d_ff: int = 2048
    num_layers: int = 6
    num_decoder_layers: int | None = None  # num_layers
    num_heads: int = 8
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    feed_forward_proj: str = field(default="relu", metadata={"choices": FEED_FORWARDS})
    dropout_rate: float = 0.1
    label_smoothing: float = 0.0
    layer_norm_epsilon: float = 1e-6
    initializer_factor: float = field(default=1.0, metadata={"most": 100})
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool | None = None
    scale_attn_weights: bool = False
    pad_token_id: int = field(default=0, metadata={"least": 0})
    eos_token_id: int = field(default=1, metadata={"least": 0})
    decoder_start_token_id: int = field(default=0, metadata={"least": 0})
    task_specific_params: dict | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_decoder_layers is None:
            self.num_decoder_layers = self.num_layers
        if self.scale_decoder_outputs is None:
            self.scale_decoder_outputs = self.tie_word_embeddings
        check_special_ids(self)

    @classmethod
    def small(cls, **changes: Any) -> Self:
        """6 + 6 layers, 512 wide, 8 heads; 60 million parameters."""
        return cls(**changes)

    @classmethod
    def base(cls, **changes: Any) -> Self:
        """12 + 12 layers, 768 wide, 12 heads; 223 million parameters ("220M" in the paper)."""
        sizes = {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}
        return cls(**{**sizes, **changes})

    @classmethod
    def large(cls, **changes: Any) -> Self:
        """24 + 24 layers, 1024 wide, 16 heads; 738 million parameters ("770M")."""
        sizes = {"d_model": 1024, "d_ff": 4096, "num_layers": 24, "num_heads": 16}
        return cls(**{**sizes, **changes})

    @classmethod
    def xl(cls, **changes: Any) -> Self:
        """ "3B": as large, with 32 heads of 128 and d_ff 16384; 2852 million parameters."""
        sizes = {"d_kv": 128, "d_ff": 16384, "num_heads": 32}
        return cls.large(**{**sizes, **changes})

    @classmethod
    def xxl(cls, **changes: Any) -> Self:
        """ "11B": as large, with 128 heads of 128 and d_ff 65536; 11307 million parameters."""
        sizes = {"d_kv": 128, "d_ff": 65536, "num_heads": 128}
        return cls.large(**{**sizes, **changes})

    @classmethod
    def v1_1(cls, size: str, **changes: Any) -> Self:
        """Version 1.1 and Flan-T5: "small", "base", "large", "xl" or "xxl"."""
        if size not in V1_1:
            raise ValueError(f"there is no T5 1.1 of size {size!r}: take one of {', '.join(V1_1)}")
        names = ("d_model", "d_ff", "num_layers", "num_heads")
        sizes = dict(zip(names, V1_1[size], strict=True))
        kind = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
        return cls(**{**sizes, **kind, **changes})

    @property
    def gated(self) -> bool:
        return self.feed_forward_proj.startswith(GATED)

    def layer(self) -> nn.LayerConfig:
        """What the layers of both stacks are made of."""
        name = self.feed_forward_proj.removeprefix(GATED)
        # "gelu" is the exact form everywhere but in the gate of the published models.
        activation = "gelu_new" if self.feed_forward_proj == "gated-gelu" else name
        factor = self.initializer_factor
        return nn.LayerConfig(
            d_model=self.d_model,
            num_heads=self.num_heads,
            head_dim=self.d_kv,
            d_ff=self.d_ff,
            dropout=self.dropout_rate,
            attention_dropout=self.dropout_rate,
            activation_dropout=self.dropout_rate,
            activation=activation,
            gated=self.gated,
            norm="rms",
            eps=self.layer_norm_epsilon,
            norm_first=True,
            bias=False,
            scale=None if self.scale_attn_weights else 1.0,
            init=by_inputs(factor),
            query_init=by_inputs(factor * (1.0 if self.scale_attn_weights else self.d_kv**-0.5)),
        )

    def relative_bias(self, bidirectional: bool) -> nn.RelativeBias:
        return nn.RelativeBias(
            self.num_heads,
            bidirectional,
            self.relative_attention_num_buckets,
            self.relative_attention_max_distance,
            nn.normal(self.initializer_factor * self.d_model**-0.5),
        )


@dataclass
class MT5Config(T5Config):
    """mT5: version 1.1 with a vocabulary of 101 languages; the defaults are the smallest one's.

    The head is never scaled, whatever tie_word_embeddings says, which newer files set to True.
    """

    model_type: ClassVar[str] = "mt5"

    vocab_size: int = 250112
    d_ff: int = 1024
    num_layers: int = 8
    num_heads: int = 6
    feed_forward_proj: str = field(default="gated-gelu", metadata={"choices": FEED_FORWARDS})
    tie_word_embeddings: bool = False
    scale_decoder_outputs: bool | None = False


def by_inputs(factor: float) -> Init:
    """N(0, factor**2 / inputs) for a weight (outputs, inputs)."""
    return lambda shape: nn.normal(factor * shape[1] ** -0.5)(shape)


def _stack(side: str, last: int, gated: bool) -> Iterator[Rename]:
    """The names of one side in files; last: the number of its feed-forward sublayer there."""
    own, block = f"{side}.layers.*", f"{side}.block.*.layer"
    one, two, wide = f"{block}.0", f"{block}.1", f"{block}.{last}"
    yield Rename(f"{own}.attention.qkv", *(f"{one}.SelfAttention.{x}" for x in "qkv"))
    yield Rename(f"{own}.attention.out", f"{one}.SelfAttention.o")
    yield Rename(f"{own}.attention_norm", f"{one}.layer_norm")
    yield Rename(f"{own}.cross.q", f"{two}.EncDecAttention.q")
    yield Rename(f"{own}.cross.kv", *(f"{two}.EncDecAttention.{x}" for x in "kv"))
    yield Rename(f"{own}.cross.out", f"{two}.EncDecAttention.o")
    yield Rename(f"{own}.cross_norm", f"{two}.layer_norm")
    yield Rename(f"{own}.feed_forward.gate", f"{wide}.DenseReluDense.wi_0")
    yield Rename(f"{own}.feed_forward.up", f"{wide}.DenseReluDense.{'wi_1' if gated else 'wi'}")
    yield Rename(f"{own}.feed_forward.down", f"{wide}.DenseReluDense.wo")
    yield Rename(f"{own}.feed_forward_norm", f"{wide}.layer_norm")
    yield Rename(f"{side}.norm", f"{side}.final_layer_norm")
    first = f"{side}.block.0.layer.0.SelfAttention"
    yield Rename(f"{side}.relative_bias", f"{first}.relative_attention_bias")


TABLES = ("encoder.embed_tokens", "decoder.embed_tokens")  # copies of `shared`
HEAD = "lm_head"


class T5ForConditionalGeneration(EncoderDecoder, PreTrainedModel):
    """The model; its call and its generation are EncoderDecoder's.

    Projections start N(0, 1 / inputs), those of queries smaller by sqrt(d_kv), words N(0, 1).  A
    head of its own starts like them where its input is scaled, and otherwise smaller by sqrt(d), so
    that the first probabilities are the same.
    """

    config_class: ClassVar[type[T5Config]] = T5Config
    unused = ("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",)

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        size, d, factor = config.vocab_size, config.d_model, config.initializer_factor
        self.embedding = nn.Embedding(size, d, init=nn.normal(factor))
        self.encoder = new_encoder(config)
        self.decoder = nn.Decoder(
            config.layer(),
            config.num_decoder_layers or config.num_layers,
            relative_bias=config.relative_bias(bidirectional=False),
        )
        self.dropout = nn.Dropout(config.dropout_rate)
        self.head = self.embedding
        if not config.tie_word_embeddings:
            std = factor * (1 if config.scale_decoder_outputs else d**-0.5)
            self.head = nn.Linear(d, size, bias=False, init=nn.normal(std))
        copies = (*TABLES, HEAD) if config.tie_word_embeddings else TABLES
        self.renames = (
            Rename("embedding", "shared", copies=copies),
            Rename("head", HEAD),
            *_stack("encoder", 1, config.gated),
            *_stack("decoder", 2, config.gated),
        )

    @classmethod
    def fitted(cls, values: dict[str, Any], file: dict[str, np.ndarray]) -> dict[str, Any]:
        """A head in the file that is not the table of words is used, whatever the config says of
        ties; that says, if nothing else does, whether the head is scaled."""
        head = file.get(f"{HEAD}.weight")
        tables = [
            file[f"{name}.weight"] for name in ("shared", *TABLES) if f"{name}.weight" in file
        ]
        if head is None or any(np.array_equal(head, table) for table in tables):
            return values
        scaled = cls.config_class.from_dict(values).scale_decoder_outputs
        return values | {"tie_word_embeddings": False, "scale_decoder_outputs": scaled}

    def embed_source(self, ids: np.ndarray) -> Tensor:
        return self.dropout(self.embedding(ids))

    def embed_target(self, ids: np.ndarray, start: int) -> Tensor:
        return self.dropout(self.embedding(ids))

    def encode(
        self, input_ids: Array, mask: masks.Mask, weights: list[Array] | None = None
    ) -> Tensor:
        return self.dropout(super().encode(input_ids, mask, weights))

    def decode(self, *inputs: Any, **options: Any) -> Tensor:
        hidden = self.dropout(super().decode(*inputs, **options))
        return hidden * self.config.d_model**-0.5 if self.config.scale_decoder_outputs else hidden


def new_encoder(config: T5Config) -> nn.Encoder:
    return nn.Encoder(
        config.layer(), config.num_layers, relative_bias=config.relative_bias(bidirectional=True)
    )


class T5EncoderModel(PreTrainedModel):
    """The encoder alone; it opens the files of whole models too."""

    config_class: ClassVar[type[T5Config]] = T5Config
    unused = ("decoder.**", f"{HEAD}.**")

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        init = nn.normal(config.initializer_factor)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model, init=init)
        self.encoder = new_encoder(config)
        self.dropout = nn.Dropout(config.dropout_rate)
        self.renames = (
            Rename("embedding", "shared", copies=TABLES[:1]),
            *_stack("encoder", 1, config.gated),
        )

    def forward(
        self,
        input_ids: Array,
        attention_mask: Array | None = None,
        output_attentions: bool = False,
    ) -> ModelOutput:
        """Ids (B, T) -> .last_hidden_state (B, T, d).

        attention_mask (B, T): 1 for tokens, 0 for padding; or a Mask.
        output_attentions: adds .attentions, an array (B, H, T, T) for each layer.
        """
        mask = masks.of_tokens(attention_mask, raw(self.embedding.weight))
        weights: list[Array] = []
        x = self.dropout(self.embedding(of_batch(input_ids)))
        x = self.dropout(self.encoder(x, mask, weights=weights if output_attentions else None))
        fields: dict[str, Any] = {"attentions": weights} if output_attentions else {}
        return ModelOutput(last_hidden_state=x, **fields)


class MT5ForConditionalGeneration(T5ForConditionalGeneration):
    config_class = MT5Config


class MT5EncoderModel(T5EncoderModel):
    config_class = MT5Config
