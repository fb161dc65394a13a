"""DistilBERT (Sanh et al. 2019): BERT with half of the layers, taught by BERT itself.

No segments and no pooler; a classifier has a dense layer with ReLU in its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from tinyfm import nn
from tinyfm.models.bert import (
    BertForMaskedLM,
    BertForMultipleChoice,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    Switches,
)
from tinyfm.pretrained import ClassifierConfig
from tinyfm.renames import Rename, below


@dataclass
class DistilBertConfig(ClassifierConfig):
    """Hugging Face's fields; the defaults are distilbert-base-uncased's."""

    model_type: ClassVar[str] = "distilbert"

    vocab_size: int = 30522
    max_position_embeddings: int = 512
    dim: int = 768
    n_layers: int = 6
    n_heads: int = 12
    hidden_dim: int = 3072
    activation: str = field(default="gelu", metadata={"choices": tuple(nn.ACTIVATIONS)})
    dropout: float = 0.1
    attention_dropout: float = 0.1
    qa_dropout: float = 0.1
    seq_classif_dropout: float = 0.2
    initializer_range: float = 0.02
    pad_token_id: int = field(default=0, metadata={"least": 0})
    tie_word_embeddings: bool = True

    def layer(self) -> nn.LayerConfig:
        return nn.LayerConfig(
            d_model=self.dim,
            num_heads=self.n_heads,
            d_ff=self.hidden_dim,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            activation=self.activation,
            eps=1e-12,
            init=nn.normal(self.initializer_range),
        )

    def switches(self) -> Switches:
        return Switches(
            num_layers=self.n_layers,
            segments=0,
            mlm_activation=self.activation,
            pooler_activation="relu",
            classifier_dropout=self.seq_classif_dropout,
            token_dropout=self.dropout,
            answer_dropout=self.qa_dropout,
        )


BODY = (
    Rename("embeddings.word", "embeddings.word_embeddings"),
    Rename("embeddings.position", "embeddings.position_embeddings"),
    Rename("embeddings.norm", "embeddings.LayerNorm"),
    Rename(
        "encoder.layers.*.attention.qkv",
        "transformer.layer.*.attention.q_lin",
        "transformer.layer.*.attention.k_lin",
        "transformer.layer.*.attention.v_lin",
    ),
    Rename("encoder.layers.*.attention.out", "transformer.layer.*.attention.out_lin"),
    Rename("encoder.layers.*.attention_norm", "transformer.layer.*.sa_layer_norm"),
    Rename("encoder.layers.*.feed_forward.up", "transformer.layer.*.ffn.lin1"),
    Rename("encoder.layers.*.feed_forward.down", "transformer.layer.*.ffn.lin2"),
    Rename("encoder.layers.*.feed_forward_norm", "transformer.layer.*.output_layer_norm"),
)
RENAMES = (Rename("bert.pooler.dense", "pre_classifier"), *below("bert", "distilbert", BODY))
UNUSED = (
    "vocab_transform.**", "vocab_layer_norm.**", "vocab_projector.**", "pre_classifier.**",
    "classifier.**", "qa_outputs.**",
)  # fmt: skip


class DistilBertModel(BertModel):
    config_class = DistilBertConfig
    base_model_prefix = "distilbert"
    renames = BODY
    unused = UNUSED

    def __init__(self, config: DistilBertConfig, pooler: bool = False) -> None:
        super().__init__(config, pooler)


class DistilBertForMaskedLM(BertForMaskedLM):
    config_class = DistilBertConfig
    base_model_prefix = "distilbert"
    unused = UNUSED
    renames = (
        Rename(
            "bert.embeddings.word",
            "distilbert.embeddings.word_embeddings",
            copies=["vocab_projector"],
        ),
        Rename("predictions.dense", "vocab_transform"),
        Rename("predictions.norm", "vocab_layer_norm"),
        Rename("predictions.bias", "vocab_projector.bias"),
        *RENAMES,
    )


class DistilBertForSequenceClassification(BertForSequenceClassification):
    config_class = DistilBertConfig
    base_model_prefix = "distilbert"
    unused, renames = UNUSED, RENAMES


class DistilBertForMultipleChoice(BertForMultipleChoice):
    config_class = DistilBertConfig
    base_model_prefix = "distilbert"
    unused, renames = UNUSED, RENAMES


class DistilBertForTokenClassification(BertForTokenClassification):
    config_class = DistilBertConfig
    base_model_prefix = "distilbert"
    unused, renames = UNUSED, RENAMES


class DistilBertForQuestionAnswering(BertForQuestionAnswering):
    config_class = DistilBertConfig
    base_model_prefix = "distilbert"
    unused, renames = UNUSED, RENAMES
