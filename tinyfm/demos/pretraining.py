"""How fill_mask learns: hidden words, next sentences, and the two recipes.

recipe    sentences                         words are hidden        asks what follows
bert      pairs, half of them random        once, in 10 copies      yes
roberta   whole ones, as many as fit        anew in each epoch      no
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from tinyfm import models
from tinyfm.backend import to_numpy
from tinyfm.data import Example, ExampleBatches
from tinyfm.demos.documents import Document
from tinyfm.demos.modelling import outputs
from tinyfm.errors import InputError
from tinyfm.objectives import full_sentences, mask_tokens, next_sentence_pairs
from tinyfm.tokenizer import Tokenizer

COPIES = 10  # of each text, with other words hidden (BERT's dupe_factor)
Ids = list[list[list[int]]]  # documents of sentences of ids


class Recipe(NamedTuple):
    """How examples are made. cls: the model that learns from them; least: tokens in a text."""

    pairs: bool
    dynamic: bool
    cls: type
    least: int


RECIPES = {
    "bert": Recipe(True, False, models.BertForPreTraining, 5),
    "roberta": Recipe(False, True, models.BertForMaskedLM, 3),
}


def check_lengths(args: argparse.Namespace, least: int) -> None:
    """InputError if --max-length is below `least`, or --max-tokens below --max-length."""
    if args.max_length < least:
        raise InputError(
            f"--max-length {args.max_length}: too short for texts with their special tokens; give "
            f"{least} or more"
        )
    if args.max_tokens < args.max_length:
        raise InputError(
            f"--max-tokens {args.max_tokens}: a batch must hold a text of --max-length "
            f"{args.max_length}; give that or more"
        )


def check_documents(documents: Ids, pairs: bool, name: str) -> None:
    """InputError, which begins with their name, if no examples can be made of these documents."""
    if not documents:
        raise InputError(f"{name} have no word; give sentences")
    if pairs and max(map(len, documents)) < 2:
        raise InputError(
            f"{name} have one sentence each, so that none has a next one; take --recipe roberta"
        )


def encode(documents: Sequence[Document], tokenizer: Tokenizer) -> Ids:
    """The ids of all sentences, without special tokens; what has no token is left out."""
    encoded = tokenizer.encode_all([s for document in documents for s in document])
    sentences = (
        [i for i, word in zip(e.ids, e.word_ids, strict=True) if word is not None] for e in encoded
    )
    parts = [[s for s in islice(sentences, len(document)) if s] for document in documents]
    return [document for document in parts if document]


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
    how = RECIPES[recipe]
    change: Callable[..., Any] | None = None
    if how.dynamic:
        rng = np.random.default_rng(seed)
        examples = whole_texts(documents, tokenizer, how.pairs, max_length, rng)
        change = Hide(tokenizer, recipe)
    else:
        examples = hidden_once(documents, tokenizer, how.pairs, max_length, COPIES, seed)
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


def word_logits(model: Any, output: Any) -> np.ndarray:
    """(B, T, vocabulary): which words a model, of either recipe, expects at each place."""
    asks = isinstance(model, models.BertForPreTraining)
    return to_numpy((output.prediction_logits if asks else output.logits).data)


def score(model: Any, examples: Sequence[Example]) -> Scores:
    """How well the model fills the hidden words of examples, and tells what follows."""
    asks = isinstance(model, models.BertForPreTraining)
    loss = right = words = follows = pairs = 0
    texts = [{k: v for k, v in e.items() if k != "next_sentence_label"} for e in examples]
    for indexes, batch, output in outputs(model, texts):
        labels = batch["labels"]
        guesses = word_logits(model, output).argmax(-1)
        loss += output.loss.item() * output.num_labels
        right += int((guesses == labels).sum())
        words += output.num_labels
        if asks:
            said = to_numpy(output.seq_relationship_logits.data).argmax(-1)
            follows += int(sum(said == [examples[i]["next_sentence_label"] for i in indexes]))
            pairs += len(indexes)
    return Scores(loss / words, right / words, follows / pairs if pairs else None, words, pairs)
