"""What the commands around BERT share: sizes, new models, opened ones, examples, the optimizer."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tinyfm import models, optim, pretrained
from tinyfm.data import Example, ExampleBatches, example_batches
from tinyfm.demos import cli
from tinyfm.demos.learning import CHECKPOINT, Look, Option, Say, Training, learn
from tinyfm.errors import InputError
from tinyfm.pretrained import PretrainedConfig
from tinyfm.tokenizer import Encoding, Tokenizer

FAMILIES = tuple(
    config.model_type
    for config in (models.BertConfig, models.RobertaConfig, models.DistilBertConfig)
)
BATCH_TOKENS = 4000  # in one batch, where nothing is learnt


def size_options(kinds: int, **changes: Any) -> dict[str, Option]:
    """The options of a model that is made anew; changes: other defaults, one for each kind."""
    sizes = {
        "vocab_size": (cli.positive_int, 4000, "subwords to learn"),
        "hidden_size": (cli.positive_int, 128, "width of the model"),
        "layers": (cli.positive_int, 2, "layers"),
        "heads": (cli.positive_int, 4, "attention heads"),
        "ffn": (cli.positive_int, 512, "width of the feed-forward networks"),
    }
    return {
        name: Option(kind, changes.get(name, (default,) * kinds), meaning)
        for name, (kind, default, meaning) in sizes.items()
    }


def check_heads(args: argparse.Namespace) -> None:
    """InputError if the heads cannot share the width."""
    if args.hidden_size % args.heads:
        raise InputError(
            f"--hidden-size {args.hidden_size} is not a multiple of --heads {args.heads}"
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


def new_model(cls: type, config: PretrainedConfig, **options: Any) -> Any:
    """A model with random weights; a size that the memory does not hold is an InputError."""
    try:
        return cls(config, **options)
    except MemoryError as error:
        size = models.num_parameters(config, cls)
        raise InputError(
            f"a model of {size:,} parameters does not fit into the memory; give a smaller "
            "--hidden-size, --vocab-size, or number of --layers"
        ) from error


def open_model(
    folder: str, *heads: str, families: Sequence[str] = FAMILIES, **config: Any
) -> tuple[Any, Tokenizer]:
    """The model in a folder with a head, new or its own, and the tokenizer.

    heads: ends of class names, as ForMaskedLM ("Model" for none); of several that of the model's
        own class is taken, or else the first.
    families: the values of model_type that will do.
    InputError: what cannot be opened, has no such head, or does not fit together.
    """
    path = pretrained.resolve(folder)
    values = pretrained.read_config(path)
    check_family(path, values, families)
    own = [head for head in heads for name in values["architectures"] if name.endswith(head)]
    cls = models.with_head(values["model_type"], (*own, *heads)[0])
    model = cls.from_pretrained(folder, **config)
    for name, array in model.state_dict().items():
        if not np.isfinite(array).all():  # save_pretrained writes such weights when forced
            raise InputError(f"{folder}: the weight {name} is not finite; train the model anew")
    return model, pretrained.load_tokenizer(folder, model)


def check_family(path: Path, values: dict[str, Any], families: Sequence[str]) -> None:
    """InputError if the model in a folder, with these values in its config, is none of them."""
    if (family := values.get("model_type")) not in families:
        raise InputError(
            f"{path / pretrained.CONFIG}: model_type is {family!r}, and this command takes "
            f"{', '.join(families)}; give a model of one of these"
        )


def new_tokenizer(
    args: argparse.Namespace, lines: Iterable[str], lowercase: bool = True
) -> Tokenizer:
    """A vocabulary learnt from the lines; with --resume the one of the training that goes on."""
    if args.resume:
        return Tokenizer.load(Path(args.save) / CHECKPOINT)
    return Tokenizer.train_wordpiece(lines, args.vocab_size, lowercase=lowercase)


def train_encoder(
    training: Training,
    args: argparse.Namespace,
    model: Any,
    tokenizer: Tokenizer,
    batches: ExampleBatches,
    look: Look,
    say: Say,
    what: str,
    saved: Any = None,
    notes: Sequence[str] = (),
) -> list[dict[str, float]]:
    """Train with BERT's optimizer, save the model and its tokenizer to --save; the history.

    what: is learnt from, as the first line tells; notes: more lines. saved: the part of the model
        that is saved, if it is not the whole.
    """

    def save(folder: Path) -> None:
        (saved or model).save_pretrained(folder)
        tokenizer.save(folder)

    with training.folder(args, prepare=tokenizer.save) as checkpoint:
        count = sum(p.size for p in model.parameters())
        say(
            f"{what}, {len(tokenizer)} subwords, {count:,} parameters, {len(batches)} batches an "
            f"epoch, {args.steps} steps, {batches.padding_share():.1%} padding"
        )
        for note in notes:
            say(note)
        return learn(model, batches, new_optimizer(model), look, save, checkpoint, args, say)


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


def pad_id(model: Any) -> int:
    """What fills the ends of short texts; any token where a model has none for it (GPT-2)."""
    return 0 if model.config.pad_token_id is None else model.config.pad_token_id


def outputs(
    model: Any, examples: Sequence[Example], max_tokens: int = BATCH_TOKENS
) -> Iterator[tuple[np.ndarray, dict[str, Any], Any]]:
    """(indexes, batch, the model's output), in batches over all examples; nothing is recorded."""
    with model.evaluating():
        for indexes, batch in example_batches(
            examples, max_tokens=max_tokens, pad_id=pad_id(model)
        ):
            yield indexes, batch, model(**batch)


def new_optimizer(model: Any) -> optim.AdamW:
    """BERT's: decay of the matrices, none of norms and biases (appendix A.2)."""
    return optim.AdamW(
        model.parameters(), lr=1.0, eps=1e-6, weight_decay=0.01, decay=lambda p: p.ndim > 1
    )
