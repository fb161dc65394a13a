"""How the translate command learns: its options, vocabulary, model, batches, schedule, samples."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import tinyfm
from tinyfm import models, optim, plot, training
from tinyfm.data import Batches, evaluation_batches
from tinyfm.demos import cli
from tinyfm.demos.learning import SAVES, Look, Option, Say, Training, learn
from tinyfm.demos.modelling import vocabulary
from tinyfm.demos.translator import BATCH_TOKENS, Translator
from tinyfm.errors import InputError
from tinyfm.text import ParallelText
from tinyfm.tokenizer import Tokenizer


def _names_or_none(value: Any) -> bool:
    """Whether value is what --train takes, one or two names of files, or nothing."""
    return value is None or (
        isinstance(value, list)
        and len(value) in (1, 2)
        and all(isinstance(name, str) for name in value)
    )


# Of each option what fits the embedded sentences, and what fits files of real ones.
TRAINING = Training(
    kinds=("", "with --train"),
    options={
        "steps": Option(cli.positive_int, (900, 8000), "optimizer steps"),
        "vocab_size": Option(
            cli.positive_int, (1500, 5000), "subwords to learn, for both languages together"
        ),
        "d_model": Option(cli.positive_int, (128, 256), "width of the model"),
        "layers": Option(cli.positive_int, (2, 3), "layers of the encoder and of the decoder"),
        "heads": Option(cli.positive_int, (4, 8), "attention heads"),
        "ffn": Option(cli.positive_int, (512, 512), "width of the feed-forward networks"),
        "norm_first": Option(
            cli.yes_or_no, ("no", "yes"), "norms before the layers, not after as in the paper"
        ),
        "max_length": Option(cli.positive_int, (256, 256), "subwords in the longest sentence"),
        "max_tokens": Option(cli.positive_int, (1500, 1400), "tokens in a batch, padding included"),
        "accumulate": Option(cli.positive_int, (1, 1), "batches that make one step"),
        "warmup": Option(
            cli.positive_int, (200, 400), "steps until the learning rate is at its peak"
        ),
        "lr": Option(cli.positive_float, (3e-3, 2e-3), "peak learning rate"),
        "clip": Option(cli.positive_float, (1.0, 1.0), "limit of the gradient's norm"),
        "dropout": Option(cli.probability, (0.1, 0.2), "share of the activations left out"),
        "label_smoothing": Option(
            cli.probability, (0.1, 0.1), "weight of the uniform distribution"
        ),
        "average": Option(
            cli.positive_int, (1, 1), f"last checkpoints, of {SAVES}, that are averaged"
        ),
    },
    schedules=("noam", "linear"),
    remembered={
        **dict.fromkeys(("train", "valid", "test"), _names_or_none),
        "skip_long": lambda value: isinstance(value, bool),
    },
    anew=("steps", "test"),
)


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """The options of this file; those that are left out are None until `settle` fills them in."""
    TRAINING.add_options(parser).add_argument(
        "--skip-long", action="store_true", default=None, help="leave pairs out of the training "
        "that are over --max-length or --max-tokens, instead of stopping at the first",
    )  # fmt: skip


def settle(args: argparse.Namespace) -> None:
    """Fill in what is left out: with --resume from the folder, else what fits the kind of text."""
    TRAINING.settle(args, lambda args: 1 if args.train else 0)
    args.skip_long = bool(args.skip_long)


def train(
    pairs: ParallelText,
    valid: ParallelText | None,
    tests: Sequence[ParallelText],
    args: argparse.Namespace,
    device: str,
    say: Say,
) -> Translator:
    """Learn a vocabulary and a model from pairs of texts; saved to --save, also on Ctrl-C."""
    if args.d_model % args.heads:
        raise InputError(f"--d-model {args.d_model} is not a multiple of --heads {args.heads}")
    tinyfm.manual_seed(args.seed)
    texts = [text for pair in pairs for text in pair]
    tokenizer = vocabulary(args, lambda: Tokenizer.train(texts, args.vocab_size))
    try:
        translator = Translator(new_model(args, tokenizer).to(device), tokenizer)
    except MemoryError as error:
        raise InputError(
            f"--d-model {args.d_model}, --ffn {args.ffn}, --layers {args.layers}: the model does "
            "not fit into the memory; make it smaller"
        ) from error
    kept = encoded_pairs(pairs, tokenizer, args)
    batches = new_batches(kept, tokenizer, args)
    translator.expect(target for _, target in kept)
    # What is too long, or done already, is to be found now and not when the training is over.
    for test in tests:
        translator.encode([source for source, _ in test], test.places())
    checked = None if valid is None else encoded_pairs(valid, tokenizer, args)
    if args.text is not None:
        translator.encode([args.text], ["--text"])
    shown = valid or [*tests, pairs][0]
    short = (pair for pair in shown if len(tokenizer.encode(pair[0]).ids) <= args.max_length)
    look = new_look(translator, checked, list(islice(short, 2)), say)
    optimizer = optim.Adam(translator.model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    with TRAINING.folder(args, prepare=tokenizer.save) as checkpoint:
        count = sum(p.size for p in translator.model.parameters())
        left_out = len(pairs) - len(kept)
        say(
            f"{len(kept)} pairs, {len(tokenizer)} subwords, {count:,} parameters, "
            f"{len(batches)} batches an epoch, {batches.padding_share():.1%} padding"
            + (f"; {left_out} pairs are too long and left out" if left_out else "")
        )
        model, save = translator.model, translator.save
        history = learn(model, batches, optimizer, look, save, checkpoint, args, say)
    if args.plot:
        plot.curves(history, Path(args.plot) / "curves.png")
    return translator


def new_model(args: argparse.Namespace, tokenizer: Tokenizer) -> models.Transformer:
    sides: dict[str, Any] = {}
    for side in ("encoder", "decoder"):
        sides[f"{side}_layers"] = args.layers
        sides[f"{side}_attention_heads"] = args.heads
        sides[f"{side}_ffn_dim"] = args.ffn
    return models.Transformer(
        models.TransformerConfig(
            vocab_size=len(tokenizer),
            d_model=args.d_model,
            dropout=args.dropout,
            label_smoothing=args.label_smoothing,
            norm_first=args.norm_first == "yes",
            max_position_embeddings=args.max_length + 1,
            pad_token_id=tokenizer.pad_id,
            bos_token_id=tokenizer.bos_id,
            eos_token_id=tokenizer.eos_id,
            decoder_start_token_id=tokenizer.bos_id,
            **sides,
        )
    )


def encoded_pairs(
    pairs: ParallelText, tokenizer: Tokenizer, args: argparse.Namespace
) -> list[tuple[list[int], list[int]]]:
    """The pairs' ids; a pair that is too long is an error, or with --skip-long left out."""
    sources, targets = (tokenizer.encode_batch([pair[side] for pair in pairs]) for side in (0, 1))
    kept = []
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        longest, size = max(len(source), len(target)), len(source) + len(target) + 2
        if longest <= args.max_length and size <= args.max_tokens:
            kept.append((source, target))
        elif not args.skip_long:
            too_long = longest > args.max_length
            option, number = ("--max-length", longest) if too_long else ("--max-tokens", size)
            raise InputError(
                f"{pairs.where(i, side=len(target) > len(source))}: {number} subwords, over "
                f"{option}; raise it, or leave such pairs out with --skip-long"
            )
    if not kept:
        raise InputError(
            f"all {len(pairs)} pairs are over --max-length {args.max_length} or --max-tokens "
            f"{args.max_tokens}: none is left to learn from; raise them"
        )
    return kept


def new_batches(
    pairs: Sequence[tuple[list[int], list[int]]], tokenizer: Tokenizer, args: argparse.Namespace
) -> Batches:
    ids = {"pad_id": tokenizer.pad_id, "eos_id": tokenizer.eos_id}
    return Batches(pairs, max_tokens=args.max_tokens, seed=args.seed, **ids)


def new_look(
    translator: Translator,
    valid: Sequence[tuple[list[int], list[int]]] | None,
    samples: Sequence[tuple[str, str]],
    say: Say,
) -> Look:
    """What fit's `evaluate` does: the samples, and the loss on the ids of --valid, returned."""
    tokenizer = translator.tokenizer

    def look(model: Any) -> dict[str, float]:
        made = translator([source for source, _ in samples])
        for (source, target), translation in zip(samples, made, strict=True):
            say(f"  {source} -> {translation} ({target})")
        if valid is None:
            return {}
        batches = evaluation_batches(
            valid, max_tokens=BATCH_TOKENS, pad_id=tokenizer.pad_id, eos_id=tokenizer.eos_id
        )
        loss = training.mean_loss(model, (batch for _, batch in batches))
        say(f"  validation loss {loss:.3f}, perplexity {np.exp(loss):.2f}")
        return {"validation_loss": loss}

    return look
