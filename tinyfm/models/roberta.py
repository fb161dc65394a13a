"""RoBERTa, "A Robustly Optimized BERT Pretraining Approach" (Liu et al. 2019).

BERT with other data and another recipe: no next sentences, masks drawn anew each time, larger
batches.  In the model: one segment, positions that count words only (from pad_token_id + 1), byte
level subwords, and a classifier that has its own dense layer in place of the pooler.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from tinyfm.models.bert import (
    BODY,
    BertConfig,
    BertForMaskedLM,
    BertForMultipleChoice,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    Switches,
)
from tinyfm.renames import Rename, below


@dataclass
class RobertaConfig(BertConfig):
    """Hugging Face's fields; the defaults are roberta-base's.

    Of max_position_embeddings rows the first pad_token_id + 1 stand for no position: 514 make 512.
    """

    model_type: ClassVar[str] = "roberta"

    vocab_size: int = 50265
    max_position_embeddings: int = 514
    type_vocab_size: int = 1
    layer_norm_eps: float = 1e-5
    pad_token_id: int = field(default=1, metadata={"least": 0})
    bos_token_id: int = field(default=0, metadata={"least": 0})
    eos_token_id: int = field(default=2, metadata={"least": 0})

    def switches(self) -> Switches:
        own = super().switches()
        return Switches(
            num_layers=own.num_layers,
            segments=own.segments,
            positions_skip_padding=True,
            classifier_dropout=own.classifier_dropout,
            choice_dropout=self.hidden_dropout_prob,
            pooler_dropout=own.classifier_dropout,
        )


OTHER_HEADS = ("lm_head.**", "classifier.**", "qa_outputs.**")
UNUSED = ("roberta.embeddings.position_ids", "roberta.pooler.**", *OTHER_HEADS)
RENAMES = below("bert", "roberta", BODY)


class RobertaModel(BertModel):
    config_class = RobertaConfig
    base_model_prefix = "roberta"
    unused = ("embeddings.position_ids", "pooler.**", *OTHER_HEADS)


class RobertaForMaskedLM(BertForMaskedLM):
    config_class = RobertaConfig
    base_model_prefix = "roberta"
    unused = UNUSED
    renames = (
        Rename(
            "bert.embeddings.word", "roberta.embeddings.word_embeddings", copies=["lm_head.decoder"]
        ),
        Rename("predictions.dense", "lm_head.dense"),
        Rename("predictions.norm", "lm_head.layer_norm"),
        Rename("predictions.bias", "lm_head.bias", copies=["lm_head.decoder.bias"]),
        *RENAMES,
    )


class RobertaForSequenceClassification(BertForSequenceClassification):
    config_class = RobertaConfig
    base_model_prefix = "roberta"
    unused = UNUSED
    renames = (
        Rename("bert.pooler.dense", "classifier.dense"),
        Rename("classifier", "classifier.out_proj"),
        *RENAMES,
    )


class RobertaForMultipleChoice(BertForMultipleChoice):
    config_class = RobertaConfig
    base_model_prefix = "roberta"
    unused = UNUSED
    renames = (Rename("bert.pooler.dense", "roberta.pooler.dense"), *RENAMES)


class RobertaForTokenClassification(BertForTokenClassification):
    config_class = RobertaConfig
    base_model_prefix = "roberta"
    unused = UNUSED
    renames = RENAMES


class RobertaForQuestionAnswering(BertForQuestionAnswering):
    config_class = RobertaConfig
    base_model_prefix = "roberta"
    unused = UNUSED
    renames = RENAMES
