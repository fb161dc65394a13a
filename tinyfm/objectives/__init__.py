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
from tinyfm.objectives.denoising import (
    denoise,
    denoising_examples,
    document_rotation,
    infilling_spans,
    sentence_permutation,
    text_infilling,
    token_deletion,
    token_masking,
)
from tinyfm.objectives.masked_lm import mask_tokens
from tinyfm.objectives.next_sentence import SentencePair, full_sentences, next_sentence_pairs
from tinyfm.objectives.question_answering import (
    Answer,
    answer_span,
    answer_text,
    best_spans,
    decode_answer,
)
from tinyfm.objectives.span_corruption import (
    corrupted_lengths,
    fill_spans,
    random_spans_noise_mask,
    raw_length,
    span_corruption,
    span_corruption_examples,
)
from tinyfm.objectives.tagging import tag_labels, word_tags
from tinyfm.objectives.texts import TextTokens, text_tokens
from tinyfm.objectives.translation import teacher_forcing

__all__ = [
    "Answer",
    "Entity",
    "SentencePair",
    "TextTokens",
    "answer_span",
    "answer_text",
    "best_spans",
    "chat_example",
    "chat_parts",
    "chat_prompt",
    "class_labels",
    "corrupted_lengths",
    "decode_answer",
    "denoise",
    "denoising_examples",
    "document_rotation",
    "entities",
    "fill_spans",
    "full_sentences",
    "infilling_spans",
    "mask_tokens",
    "next_sentence_pairs",
    "pack",
    "prefix_lm_example",
    "random_spans_noise_mask",
    "raw_length",
    "regression_labels",
    "sentence_permutation",
    "sft_example",
    "shifted",
    "span_corruption",
    "span_corruption_examples",
    "tag_labels",
    "teacher_forcing",
    "text_infilling",
    "text_tokens",
    "token_deletion",
    "token_masking",
    "windows",
    "word_tags",
]
