"""The founding models, one file each, put together from the blocks of `tinyfm.nn`."""

from typing import Any

from tinyfm.errors import InputError
from tinyfm.models.bart import (
    BartConfig,
    BartForConditionalGeneration,
    BartForQuestionAnswering,
    BartForSequenceClassification,
    BartForTranslation,
    BartModel,
    BartTranslationConfig,
)
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
from tinyfm.models.gpt import (
    GPT2Config,
    GPT2DoubleHeadsModel,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    GPT2Model,
    OpenAIGPTConfig,
    OpenAIGPTDoubleHeadsModel,
    OpenAIGPTForSequenceClassification,
    OpenAIGPTLMHeadModel,
    OpenAIGPTModel,
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
from tinyfm.models.t5 import (
    MT5Config,
    MT5EncoderModel,
    MT5ForConditionalGeneration,
    T5Config,
    T5EncoderModel,
    T5ForConditionalGeneration,
)
from tinyfm.models.transformer import Transformer, TransformerConfig
from tinyfm.nn import without_memory
from tinyfm.pretrained import PreTrainedModel, class_of

__all__ = [
    "BartConfig",
    "BartForConditionalGeneration",
    "BartForQuestionAnswering",
    "BartForSequenceClassification",
    "BartForTranslation",
    "BartModel",
    "BartTranslationConfig",
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
    "GPT2Config",
    "GPT2DoubleHeadsModel",
    "GPT2ForSequenceClassification",
    "GPT2LMHeadModel",
    "GPT2Model",
    "MT5Config",
    "MT5EncoderModel",
    "MT5ForConditionalGeneration",
    "MarianConfig",
    "MarianMTModel",
    "ModelOutput",
    "OpenAIGPTConfig",
    "OpenAIGPTDoubleHeadsModel",
    "OpenAIGPTForSequenceClassification",
    "OpenAIGPTLMHeadModel",
    "OpenAIGPTModel",
    "RobertaConfig",
    "RobertaForMaskedLM",
    "RobertaForMultipleChoice",
    "RobertaForQuestionAnswering",
    "RobertaForSequenceClassification",
    "RobertaForTokenClassification",
    "RobertaModel",
    "T5Config",
    "T5EncoderModel",
    "T5ForConditionalGeneration",
    "Transformer",
    "TransformerConfig",
    "num_parameters",
    "with_head",
]


def num_parameters(config: Any, cls: type | None = None) -> int:
    """How many parameters a model learns, shared ones once; counted without allocating the weights.

    cls: the model's class; without it the first one for such a config.
    """
    with without_memory():
        model = (cls or class_of(config))(config)
    return sum(p.size for p in model.parameters() if p.requires_grad)


def with_head(model_type: str, head: str) -> type[PreTrainedModel]:
    """The class of a family, by config.json's name for it, and a head: "bert", "ForMaskedLM".

    head: the end of the class's name; "Model" for the model without one.
    InputError: no class has that name.
    """
    for cls in list(globals().values()):
        if (
            isinstance(cls, type)
            and issubclass(cls, PreTrainedModel)
            and cls is not PreTrainedModel
            and cls.config_class.model_type == model_type
            and cls.__name__.endswith(head)
        ):
            return cls
    raise InputError(f"a model of type {model_type!r} has no class that ends in {head}")
