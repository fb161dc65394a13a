"""What the commands share that learn with or open a model: sizes, new and opened ones, a training,
outputs and losses over many examples, and what the library has to say.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tinyfm import models, optim, pretrained, training
from tinyfm.data import Example, example_batches
from tinyfm.demos import cli
from tinyfm.demos.learning import CHECKPOINT, Look, Option, Say, Training, learn
from tinyfm.errors import InputError
from tinyfm.pretrained import PretrainedConfig
from tinyfm.tokenizer import Tokenizer

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


def vocabulary(args: argparse.Namespace, learnt: Callable[[], Tokenizer]) -> Tokenizer:
    """What is learnt; with --resume the vocabulary of the training that goes on."""
    return Tokenizer.load(Path(args.save) / CHECKPOINT) if args.resume else learnt()


def check_family(path: Path, values: dict[str, Any], families: Sequence[str]) -> None:
    """InputError if the model in a folder, with these values in its config, is none of them."""
    if (family := values.get("model_type")) not in families:
        raise InputError(
            f"{path / pretrained.CONFIG}: model_type is {family!r}, and this command takes "
            f"{', '.join(families)}; give a model of one of these"
        )


def open_model(
    folder: str, *heads: str, families: Sequence[str], **config: Any
) -> tuple[Any, Tokenizer]:
    """The model in a folder with a head, new or its own, and the tokenizer.

    heads: ends of class names, as ForMaskedLM ("Model" for none); of several that of the model's
        own class is taken, or else the first.
    families: the values of model_type that will do.
    What the library warns of is said on standard error.

    InputError: what cannot be opened, has no such head, or does not fit together.
    """
    path = pretrained.resolve(folder)
    values = pretrained.read_config(path)
    check_family(path, values, families)
    own = [head for head in heads for name in values["architectures"] if name.endswith(head)]
    cls = models.with_head(values["model_type"], (*own, *heads)[0])
    with notes():
        model = cls.from_pretrained(folder, **config)
    for name, array in model.state_dict().items():
        if not np.isfinite(array).all():  # save_pretrained writes such weights when forced
            raise InputError(f"{folder}: the weight {name} is not finite; train the model anew")
    return model, pretrained.load_tokenizer(folder, model)


@contextmanager
def notes() -> Iterator[None]:
    """What the library warns of meanwhile, as lines on standard error."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in said:
        print(warning.message, file=sys.stderr)


def train_model(
    how: Training,
    args: argparse.Namespace,
    model: Any,
    tokenizer: Tokenizer,
    batches: Any,
    optimizer: optim.Optimizer,
    look: Look,
    say: Say,
    what: str,
    unit: str = "subwords",
    saved: Any = None,
    notes: Sequence[str] = (),
) -> list[dict[str, float]]:
    """Train, save the model and its tokenizer to --save; the history.

    what: is learnt from, as the first line tells; unit: what the vocabulary is of; notes: more
        lines. saved: the part of the model that is saved, if it is not the whole.
    """

    def save(folder: Path) -> None:
        (saved or model).save_pretrained(folder)
        tokenizer.save(folder)

    with how.folder(args, prepare=tokenizer.save) as checkpoint:
        count = sum(p.size for p in model.parameters())
        padding = batches.padding_share()
        say(
            f"{what}, {len(tokenizer)} {unit}, {counted(count, 'parameter')}, "
            f"{counted(len(batches), 'batch', 'batches')} an epoch, {counted(args.steps, 'step')}"
            + (f", {padding:.1%} padding" if padding else "")
        )
        for note in notes:
            say(note)
        return learn(model, batches, optimizer, look, save, checkpoint, args, say)


def counted(number: int, one: str, more: str | None = None) -> str:
    """ "1 text", "2,000 texts"."""
    return f"{number:,} {one if number == 1 else more or f'{one}s'}"


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


def mean_loss(model: Any, examples: Sequence[Example]) -> float:
    """The mean loss of their labels."""
    batches = example_batches(examples, max_tokens=BATCH_TOKENS, pad_id=pad_id(model))
    with model.evaluating():
        return training.mean_loss(model, (batch for _, batch in batches))
