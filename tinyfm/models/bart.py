"""BART, "Denoising Sequence-to-Sequence Pre-training" (Lewis et al. 2019).

    damaged text -> LN(E + P) -> encoder layers -> memory
    text shifted right -> LN(E + P) -> decoder layers, looking at memory -> h E^T -> logits

The Transformer with GELU, learned positions and a norm over the embeddings (section 2.1).  What
makes it BART is what it learns: to give the text back of which it sees a damaged copy, with the
loss at every position, damaged or not.  A fine-tuned model reads one text with both stacks, or says
another one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from tinyfm import masks, nn, ops
from tinyfm.autograd import Tensor, raw
from tinyfm.backend import Array
from tinyfm.models.encoder_decoder import of_batch
from tinyfm.models.heads import at, sequence_loss, span_loss
from tinyfm.models.marian import FINAL_LOGITS_BIAS, body
from tinyfm.models.output import ModelOutput
from tinyfm.models.transformer import Transformer, TransformerBody, TransformerConfig
from tinyfm.pretrained import ClassifierConfig
from tinyfm.renames import Rename, matches


@dataclass
class BartConfig(TransformerConfig, ClassifierConfig):
    """Hugging Face's fields; the defaults are the large model's, as there.

    One table serves source, target and output.  Without num_labels or id2label there are 3 classes.
    forced_bos_token_id: what a generated text begins with, behind the start token; BART learns to
        say <s> there.
    """

    model_type: ClassVar[str] = "bart"
    embedding_norm: ClassVar[bool] = True
    unused_positions: ClassVar[int] = 2

    vocab_size: int = 50265
    d_model: int = 1024
    encoder_layers: int = 12
    decoder_layers: int = 12
    encoder_attention_heads: int = 16
    decoder_attention_heads: int = 16
    encoder_ffn_dim: int = 4096
    decoder_ffn_dim: int = 4096
    activation_function: str = field(default="gelu", metadata={"choices": tuple(nn.ACTIVATIONS)})
    classifier_dropout: float = 0.0
    label_smoothing: float = 0.0
    max_position_embeddings: int = 1024
    scale_embedding: bool = False
    init_std: float = 0.02
    pad_token_id: int = field(default=1, metadata={"least": 0})
    bos_token_id: int | None = field(default=0, metadata={"least": 0})
    eos_token_id: int = field(default=2, metadata={"least": 0})
    decoder_start_token_id: int = field(default=2, metadata={"least": 0})
    forced_bos_token_id: int | None = field(default=None, metadata={"least": 0})
    forced_eos_token_id: int | None = field(default=2, metadata={"least": 0})
    tie_word_embeddings: bool = True

    positions: str = field(default="learned", init=False)
    share_embeddings: bool = field(default=True, init=False)
    final_logits_bias: bool = field(default=True, init=False)
    norm_first: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.num_labels is None and self.id2label is None:
            self.num_labels = 3
        super().__post_init__()
        if not self.tie_word_embeddings:
            raise ValueError("tie_word_embeddings is False: the head is always the word table")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Folders from before forced_bos_token_id say by another name that it is <s>."""
        old = values.get("force_bos_token_to_be_generated")
        if old and values.get("forced_bos_token_id") is None:
            values = values | {"forced_bos_token_id": values.get("bos_token_id", cls.bos_token_id)}
        return super().from_dict(values)

    @classmethod
    def base(cls, **changes: Any) -> Self:
        """6 + 6 layers, 768 wide, 12 heads; 139 million parameters (section 2.1)."""
        sizes = {"d_model": 768}
        for side in ("encoder", "decoder"):
            sizes |= {f"{side}_layers": 6, f"{side}_attention_heads": 12, f"{side}_ffn_dim": 3072}
        return cls(**{"forced_bos_token_id": 0, **sizes, **changes})

    @classmethod
    def large(cls, **changes: Any) -> Self:
        """12 + 12 layers, 1024 wide, 16 heads; 406 million parameters (section 2.1)."""
        return cls(**{"forced_bos_token_id": 0, **changes})


def _table(prefix: str) -> tuple[Rename, ...]:
    return (
        *body(prefix),
        Rename("*_positions", f"{prefix}*.embed_positions"),
        Rename("*_embedding_norm", f"{prefix}*.layernorm_embedding"),
    )


RENAMES = _table("model.")
# What files hold of other tasks, and the mark of a version that the first ones have.
UNUSED = (
    "final_logits_bias",
    "classification_head.**",
    "qa_outputs.**",
    "*.version",
    "model.*.version",
)


class BartModel(TransformerBody):
    """Both stacks without a head.

    Without decoder_input_ids the decoder reads the same text as the encoder, shifted right.
    """

    config_class: ClassVar[type[BartConfig]] = BartConfig
    base_model_prefix = "model"
    renames = _table("")
    unused = UNUSED
    decoder_reads_source = True


class BartForConditionalGeneration(Transformer):
    """A text for a text: the whole one, a summary.  labels (B, T), .logits (B, T, V).

    Without labels and decoder_input_ids the decoder reads the same text as the encoder.
    """

    config_class: ClassVar[type[BartConfig]] = BartConfig
    base_model_prefix = "model"
    renames = (*RENAMES, FINAL_LOGITS_BIAS)
    unused = UNUSED
    decoder_reads_source = True


class ClassificationHead(nn.Module):
    """tanh(x W1 + b1) W2 + b2, with dropout before each product."""

    def __init__(self, config: Any) -> None:
        d, init = config.d_model, nn.normal(config.init_std)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.dense = nn.Linear(d, d, init=init)
        self.out_proj = nn.Linear(d, config.num_labels, init=init)

    def forward(self, x: Tensor) -> Tensor:
        return self.out_proj(self.dropout(ops.tanh(self.dense(self.dropout(x)))))


class BartForSequenceClassification(BartModel):
    """A class, or with one label a number, for each text or pair: labels (B,), .logits (B, C).

    Both stacks read the text, and the decoder's vector at its last end token, where it has seen all
    of it, is classified (section 3.1).
    """

    renames = RENAMES
    task_head = ("classification_head.**",)

    def __init__(self, config: BartConfig) -> None:
        super().__init__(config)
        self.classification_head = ClassificationHead(config)

    def forward(
        self, input_ids: Array, *inputs: Any, labels: Array | None = None, **options: Any
    ) -> ModelOutput:
        """ValueError: texts without an end token, or with unequal numbers of them."""
        output = super().forward(input_ids, *inputs, **options)
        hidden, places = output.last_hidden_state, self._last_ends(of_batch(input_ids))
        logits = self.classification_head(at(hidden, places))
        loss = None if labels is None else sequence_loss(logits, labels)
        return output.extended(loss, logits=logits)

    @classmethod
    def fitted(cls, values: dict[str, Any], file: dict[str, np.ndarray]) -> dict[str, Any]:
        """Where config.json names no classes, the head says how many there are.

        transformers leaves out the names LABEL_0 and LABEL_1, as if two were the default here too.
        """
        head = file.get("classification_head.out_proj.weight")
        if head is None or values.get("id2label") or values.get("num_labels"):
            return values
        return values | {"num_labels": len(head)}

    def _last_ends(self, ids: np.ndarray) -> np.ndarray:
        """(B,) where the last end token of each row stands."""
        ends = ids == (end := self.config.eos_token_id)
        counts = ends.sum(1)
        if (wrong := (counts == 0) | (counts != counts[0])).any():
            row = int(wrong.argmax())
            raise ValueError(
                f"text {row} has {counts[row]} end tokens ({end}), and text 0 has {counts[0]}: "
                "each must have at least one, and all as many"
            )
        return ids.shape[1] - 1 - ends[:, ::-1].argmax(1)


class BartForQuestionAnswering(BartModel):
    """Where in the text, which both stacks read, the answer starts and ends (section 3.2)."""

    renames = RENAMES
    task_head = ("qa_outputs.**",)

    def __init__(self, config: BartConfig) -> None:
        super().__init__(config)
        self.qa_outputs = nn.Linear(config.d_model, 2, init=nn.normal(config.init_std))

    def forward(
        self,
        *inputs: Any,
        start_positions: Array | None = None,
        end_positions: Array | None = None,
        **options: Any,
    ) -> ModelOutput:
        """start_positions, end_positions (B,): tokens; .start_logits, .end_logits (B, T)."""
        output = super().forward(*inputs, **options)
        logits = self.qa_outputs(output.last_hidden_state)
        start, end = logits[..., 0], logits[..., 1]
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = span_loss(start, end, start_positions, end_positions)
        return output.extended(loss, start_logits=start, end_logits=end)


# -- translation (section 3.4) ---------------------------------------------------------------------


@dataclass
class BartTranslationConfig(BartConfig):
    """Adds the source encoder; its layers are like those of BART's encoder.

    source_vocab_size: of the foreign language; its padding token is pad_token_id too.
    source_layers: 6 as in section 5.4.
    """

    source_vocab_size: int = 0
    source_layers: int = 6

    def __post_init__(self) -> None:
        if self.source_vocab_size == 0:
            raise ValueError("source_vocab_size is missing: give the number of foreign tokens")
        super().__post_init__()


class SourceEncoder(nn.Module):
    """Foreign words -> what BART can take for the embeddings of a damaged text."""

    def __init__(self, config: BartTranslationConfig) -> None:
        d, init = config.d_model, config.embedding_init()
        self.embedding = nn.Embedding(config.source_vocab_size, d, config.pad_token_id, init)
        self.positions = nn.LearnedPositions(config.max_position_embeddings, d, init)
        self.norm = nn.LayerNorm(d)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.Encoder(config.layer("encoder"), config.source_layers)

    def forward(self, ids: np.ndarray, mask: masks.Mask) -> Tensor:
        """Ids (B, S) of the foreign vocabulary -> (B, S, d)."""
        words = self.embedding(ids)
        positions = self.positions(np.arange(ids.shape[1]), raw(words))
        return self.encoder(self.dropout(self.norm(words + positions)), mask)


class BartForTranslation(BartForConditionalGeneration):
    """BART with a new encoder in the place of the encoder's embedding, for foreign words.

    Opened from the folder of a pretrained BART, it has that one's weights and a random source
    encoder, which learns first, and then all together:

        model = BartForTranslation.from_pretrained(folder, source_vocab_size=8000)
        model.learn_source()  # and training.fit
        model.learn_all()  # and training.fit with a new optimizer, for a few steps
    """

    config_class: ClassVar[type[BartTranslationConfig]] = BartTranslationConfig
    task_head = ("source.**",)
    decoder_reads_source = False
    first_step = ("source.**", "*_positions.weight", "encoder.layers.0.attention.qkv.*")

    def __init__(self, config: BartTranslationConfig) -> None:
        super().__init__(config)
        self.source = SourceEncoder(config)

    def encode(
        self, input_ids: Array, mask: masks.Mask, weights: list[Array] | None = None
    ) -> Tensor:
        """Foreign ids (B, S) -> memory (B, S, d)."""
        words = self.source(of_batch(input_ids), mask)
        x = self._place(words, self.encoder_positions, self.encoder_embedding_norm)
        return self.encoder(x, mask, weights=weights)

    def learn_source(self) -> Self:
        """Freeze all but the source encoder, BART's positions and the self-attention input
        projection of its encoder's first layer."""
        for name, parameter in self.named_parameters():
            parameter.requires_grad = matches(name, self.first_step)
        return self

    def learn_all(self) -> Self:
        """Let all parameters learn again; the bias of the logits never does."""
        for name, parameter in self.named_parameters():
            parameter.requires_grad = name != "final_logits_bias"
        return self
