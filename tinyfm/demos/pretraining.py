"""How fill_mask learns: hidden words, next sentences, and the two recipes.

recipe    sentences                         words are hidden        asks what follows
bert      pairs, half of them random        once, in 10 copies      yes
roberta   whole ones, as many as fit        anew in each epoch      no
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyfm import models
from tinyfm.backend import to_numpy
from tinyfm.data import IGNORE_INDEX, Example, ExampleBatches
from tinyfm.demos.documents import Document
from tinyfm.demos.encoders import outputs
from tinyfm.objectives import full_sentences, mask_tokens, next_sentence_pairs
from tinyfm.tokenizer import Tokenizer

COPIES = 10  # of each text, with other words hidden (BERT's dupe_factor)
Ids = list[list[list[int]]]  # documents of sentences of ids


class Recipe(NamedTuple):
    """How examples are made. cls: the model that learns from them."""

    pairs: bool
    dynamic: bool
    cls: type


RECIPES = {
    "bert": Recipe(True, False, models.BertForPreTraining),
    "roberta": Recipe(False, True, models.BertForMaskedLM),
}


def encode(documents: Sequence[Document], tokenizer: Tokenizer) -> Ids:
    """The ids of all sentences, without special tokens."""
    encoded = iter(tokenizer.encode_all([s for document in documents for s in document]))

    def ids() -> list[int]:
        encoding = next(encoded)
        pieces = zip(encoding.ids, encoding.word_ids, strict=True)
        return [i for i, word in pieces if word is not None]

    return [[ids() for _ in document] for document in documents]


def whole_texts(
    documents: Ids, tokenizer: Tokenizer, pairs: bool, max_length: int, rng: np.random.Generator
) -> list[Example]:
    """One pass over the documents: examples in which nothing is hidden yet.

    [CLS] a [SEP] b [SEP] with token_type_ids and next_sentence_label; or [CLS] row [SEP].
    special: 1 where no word may be hidden.
    """
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    if not pairs:
        rows = full_sentences(documents, max_length - 2, separator=[sep])
        return [
            {
                "input_ids": [cls, *row, sep],
                "special": [1, *(int(i == sep) for i in row), 1],
            }
            for row in rows
        ]
    return [
        {
            "input_ids": [cls, *a, sep, *b, sep],
            "token_type_ids": [0] * (len(a) + 2) + [1] * (len(b) + 1),
            "special": [1, *[0] * len(a), 1, *[0] * len(b), 1],
            "next_sentence_label": label,
        }
        for a, b, label in next_sentence_pairs(documents, rng, max_length)
    ]


class Hide:
    """Hides words in a batch: (batch, generator) -> the batch with labels."""

    def __init__(self, tokenizer: Tokenizer, recipe: str) -> None:
        self.tokenizer, self.recipe = tokenizer, recipe

    def __call__(self, batch: Example, rng: np.random.Generator) -> dict[str, Any]:
        batch = dict(batch)
        special = np.asarray(batch.pop("special"), bool)
        batch["input_ids"], batch["labels"] = mask_tokens(
            batch["input_ids"],
            special,
            self.tokenizer.mask_id,
            len(self.tokenizer),
            rng,
            recipe=self.recipe,
            special_ids=self.tokenizer.special_ids,
        )
        return batch


def hidden_once(
    documents: Ids, tokenizer: Tokenizer, pairs: bool, max_length: int, copies: int, seed: int
) -> list[Example]:
    """Examples whose words are hidden for good, in several copies that differ in all choices."""
    rng, hide = np.random.default_rng(seed), Hide(tokenizer, "bert")
    return [
        hide(text, rng)
        for _ in range(copies)
        for text in whole_texts(documents, tokenizer, pairs, max_length, rng)
    ]


def new_batches(
    documents: Ids,
    tokenizer: Tokenizer,
    recipe: str,
    max_length: int,
    max_tokens: int,
    seed: int,
) -> ExampleBatches:
    """Training batches as the recipe makes them."""
    pairs, dynamic, _ = RECIPES[recipe]
    change: Callable[..., Any] | None = None
    if dynamic:
        rng = np.random.default_rng(seed)
        examples = whole_texts(documents, tokenizer, pairs, max_length, rng)
        change = Hide(tokenizer, recipe)
    else:
        examples = hidden_once(documents, tokenizer, pairs, max_length, COPIES, seed)
    ids = {"pad_id": tokenizer.pad_id, "seed": seed}
    return ExampleBatches(examples, max_tokens=max_tokens, change=change, **ids)


class Scores(NamedTuple):
    """On hidden words: the mean loss, and the share that is right; of pairs, the share right.

    words, pairs: how many there were.  Without pairs next_sentence is None.
    """

    loss: float
    masked_lm: float
    next_sentence: float | None
    words: int
    pairs: int

    def __str__(self) -> str:
        words = f"MLM loss {self.loss:.3f}, accuracy {self.masked_lm:.1%} of {self.words} words"
        if self.next_sentence is None:
            return words
        return f"{words}, NSP accuracy {self.next_sentence:.1%} of {self.pairs} pairs"


def score(model: Any, examples: Sequence[Example]) -> Scores:
    """How well the model fills the hidden words of examples, and tells what follows."""
    asks = isinstance(model, models.BertForPreTraining)
    loss = right = words = follows = pairs = 0.0
    given = [
        {k: v for k, v in example.items() if asks or k != "next_sentence_label"}
        for example in examples
    ]
    for _, batch, output in outputs(model, given):
        logits = to_numpy((output.prediction_logits if asks else output.logits).data)
        hidden = batch["labels"] != IGNORE_INDEX
        rows, labels = logits[hidden].astype(np.float64), batch["labels"][hidden]
        top = rows.max(-1)
        norms = top + np.log(np.exp(rows - top[:, None]).sum(-1))
        loss += (norms - rows[np.arange(len(rows)), labels]).sum()
        right += (rows.argmax(-1) == labels).sum()
        words += len(rows)
        if asks:
            guesses = to_numpy(output.seq_relationship_logits.data).argmax(-1)
            follows += (guesses == batch["next_sentence_label"]).sum()
            pairs += len(guesses)
    return Scores(
        loss / words, right / words, follows / pairs if pairs else None, int(words), int(pairs)
    )
