"""What the commands around BERT share: its sizes, its vocabulary, examples, the optimizer."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from tinyfm import models, optim
from tinyfm.data import Example
from tinyfm.demos import modelling
from tinyfm.demos.modelling import check_heads, vocabulary
from tinyfm.errors import InputError
from tinyfm.tokenizer import Encoding, Tokenizer

FAMILIES = tuple(
    config.model_type
    for config in (models.BertConfig, models.RobertaConfig, models.DistilBertConfig)
)


def new_config(args: argparse.Namespace, tokenizer: Tokenizer, **more: Any) -> models.BertConfig:
    """A BERT of the sizes in args."""
    check_heads(args)
    return models.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=args.hidden_size,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads,
        intermediate_size=args.ffn,
        max_position_embeddings=args.max_length,
        initializer_range=0.02 * (768 / args.hidden_size) ** 0.5,
        hidden_dropout_prob=args.dropout,
        attention_probs_dropout_prob=args.dropout,
        pad_token_id=tokenizer.pad_id,
        **more,
    )


def new_tokenizer(
    args: argparse.Namespace, lines: Iterable[str], lowercase: bool = True
) -> Tokenizer:
    """A vocabulary learnt from the lines; with --resume the one of the training that goes on."""
    return vocabulary(
        args, lambda: Tokenizer.train_wordpiece(lines, args.vocab_size, lowercase=lowercase)
    )


def open_model(folder: str, *heads: str, **config: Any) -> tuple[Any, Tokenizer]:
    """A BERT and its tokenizer; see `modelling.open_model`."""
    return modelling.open_model(folder, *heads, families=FAMILIES, **config)


def longest(model: Any) -> int:
    """How many tokens a text may have, special ones included."""
    table, config = model.config.max_position_embeddings, model.config
    return table - (config.pad_token_id + 1 if config.switches().positions_skip_padding else 0)


def check_length(encoding: Encoding, model: Any, where: str) -> None:
    """InputError, naming the text by `where`, if it is too long for the model."""
    if len(encoding.ids) > longest(model):
        raise InputError(
            f"{where}: {len(encoding.ids)} subwords with the special ones, and the model takes "
            f"{longest(model)}; cut the text"
        )


def new_example(encoding: Encoding, model: Any, **more: Any) -> Example:
    """An encoded text as the model's input, with more fields such as labels."""
    example: dict[str, Any] = {"input_ids": encoding.ids}
    if model.config.switches().segments > 1:
        example["token_type_ids"] = encoding.type_ids
    return example | more


def new_optimizer(model: Any) -> optim.AdamW:
    """BERT's: decay of the matrices, none of norms and biases (appendix A.2)."""
    return optim.AdamW(
        model.parameters(), lr=1.0, eps=1e-6, weight_decay=0.01, decay=lambda p: p.ndim > 1
    )
