"""Where the loss is taken: each objective turns token ids into inputs and labels.

Plain arrays in, plain arrays out; nothing here knows a model.
"""

from tinyfm.metrics import Entity, entities
from tinyfm.objectives.causal_lm import (
    chat_example,
    chat_parts,
    chat_prompt,
    pack,
    prefix_lm_example,
    sft_example,
    shifted,
    windows,
)
from tinyfm.objectives.classification import class_labels, regression_labels
from tinyfm.objectives.masked_lm import mask_tokens
from tinyfm.objectives.next_sentence import SentencePair, full_sentences, next_sentence_pairs
from tinyfm.objectives.question_answering import (
    Answer,
    answer_span,
    answer_text,
    best_spans,
    decode_answer,
)
from tinyfm.objectives.tagging import tag_labels, word_tags
from tinyfm.objectives.translation import teacher_forcing

__all__ = [
    "Answer",
    "Entity",
    "SentencePair",
    "answer_span",
    "answer_text",
    "best_spans",
    "chat_example",
    "chat_parts",
    "chat_prompt",
    "class_labels",
    "decode_answer",
    "entities",
    "full_sentences",
    "mask_tokens",
    "next_sentence_pairs",
    "pack",
    "prefix_lm_example",
    "regression_labels",
    "sft_example",
    "shifted",
    "tag_labels",
    "teacher_forcing",
    "windows",
    "word_tags",
]
