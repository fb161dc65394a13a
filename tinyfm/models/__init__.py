"""The founding models, one file each, put together from the blocks of `tinyfm.nn`."""

from typing import Any

from tinyfm.models.bert import (
    BertConfig,
    BertForMaskedLM,
    BertForMultipleChoice,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)
from tinyfm.models.distilbert import (
    DistilBertConfig,
    DistilBertForMaskedLM,
    DistilBertForMultipleChoice,
    DistilBertForQuestionAnswering,
    DistilBertForSequenceClassification,
    DistilBertForTokenClassification,
    DistilBertModel,
)
from tinyfm.models.marian import MarianConfig, MarianMTModel
from tinyfm.models.output import ModelOutput
from tinyfm.models.roberta import (
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForMultipleChoice,
    RobertaForQuestionAnswering,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    RobertaModel,
)
from tinyfm.models.transformer import Transformer, TransformerConfig
from tinyfm.nn import without_memory
from tinyfm.pretrained import class_of

__all__ = [
    "BertConfig",
    "BertForMaskedLM",
    "BertForMultipleChoice",
    "BertForPreTraining",
    "BertForQuestionAnswering",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertModel",
    "DistilBertConfig",
    "DistilBertForMaskedLM",
    "DistilBertForMultipleChoice",
    "DistilBertForQuestionAnswering",
    "DistilBertForSequenceClassification",
    "DistilBertForTokenClassification",
    "DistilBertModel",
    "MarianConfig",
    "MarianMTModel",
    "ModelOutput",
    "RobertaConfig",
    "RobertaForMaskedLM",
    "RobertaForMultipleChoice",
    "RobertaForQuestionAnswering",
    "RobertaForSequenceClassification",
    "RobertaForTokenClassification",
    "RobertaModel",
    "Transformer",
    "TransformerConfig",
    "num_parameters",
]


def num_parameters(config: Any, cls: type | None = None) -> int:
    """How many parameters a model learns, shared ones once; counted without allocating the weights.

    cls: the model's class; without it the first one for such a config.
    """
    with without_memory():
        model = (cls or class_of(config))(config)
    return sum(p.size for p in model.parameters() if p.requires_grad)
