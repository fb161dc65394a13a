"""How the translate command learns: its options, vocabulary, model, batches, schedule, samples."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tinyfm
from tinyfm import models, optim, plot, training
from tinyfm.data import Batches, evaluation_batches
from tinyfm.demos import cli
from tinyfm.demos.translator import BATCH_TOKENS, Translator
from tinyfm.errors import InputError
from tinyfm.text import ParallelText, Tokenizer, replacing

Say = Callable[[str], None]

# Option: (its kind, what fits the embedded sentences, what fits files of real ones, its meaning).
TRAINING = {
    "steps": (cli.positive_int, 900, 1500, "optimizer steps"),
    "vocab_size": (cli.positive_int, 1500, 8000, "subwords to learn, for both languages together"),
    "d_model": (cli.positive_int, 128, 256, "width of the model"),
    "layers": (cli.positive_int, 2, 3, "layers of the encoder and of the decoder"),
    "heads": (cli.positive_int, 4, 8, "attention heads"),
    "ffn": (cli.positive_int, 512, 512, "width of the feed-forward networks"),
    "max_length": (cli.positive_int, 256, 256, "subwords in the longest sentence"),
    "max_tokens": (cli.positive_int, 1500, 2200, "tokens in a batch, padding included"),
    "accumulate": (cli.positive_int, 1, 1, "batches that make one step"),
    "warmup": (cli.positive_int, 200, 400, "steps until the learning rate is at its peak"),
    "lr": (cli.positive_float, 3e-3, 1.5e-3, "peak learning rate"),
    "clip": (cli.positive_float, 1.0, 1.0, "limit of the gradient's norm"),
    "dropout": (cli.probability, 0.1, 0.15, "share of the activations left out"),
    "label_smoothing": (cli.probability, 0.1, 0.1, "weight of the uniform distribution"),
    "average": (cli.positive_int, 1, 1, "last checkpoints that are averaged in the end"),
}
SCHEDULES = ("noam", "linear", "cosine", "constant")
# What a training is: --resume takes it from the folder, and only --steps may be given anew.
REMEMBERED = ("train", "valid", "skip_long", "schedule", "seed", *TRAINING)
OPTIONS, CHECKPOINT = "training.json", "checkpoint"
LOOKS = 5  # how often a training is looked at: samples, validation, a checkpoint


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """The options of this file; those that are left out are None until `settle` fills them in."""
    how = parser.add_argument_group("how to train")
    for name, (kind, for_embedded, for_files, meaning) in TRAINING.items():
        how.add_argument(
            f"--{name.replace('_', '-')}",
            type=kind,
            metavar="N" if kind is cli.positive_int else "X",
            help=f"{meaning} (default: {for_embedded}; with --train {for_files})",
        )
    how.add_argument(
        "--schedule", choices=SCHEDULES, help="of the learning rate after the warmup: noam falls "
        "with step**-0.5, linear and cosine reach 0 at the last step (default: noam)",
    )  # fmt: skip
    how.add_argument(
        "--skip-long", action="store_true", default=None, help="leave pairs out of the training "
        "that are over --max-length or --max-tokens, instead of stopping at the first",
    )  # fmt: skip


def settle(args: argparse.Namespace) -> None:
    """Fill in what is left out: with --resume from the folder, else what fits the kind of text."""
    if args.resume:
        recall(args)
    for name, (_, for_embedded, for_files, _) in TRAINING.items():
        if getattr(args, name) is None:
            setattr(args, name, for_files if args.train else for_embedded)
    args.schedule, args.seed = args.schedule or "noam", args.seed or 0
    args.skip_long = bool(args.skip_long)


def recall(args: argparse.Namespace) -> None:
    """--resume: set the options of the training that goes on."""
    path = Path(args.save) / OPTIONS
    if not path.is_file():
        raise InputError(
            f"{path}: no such file; {args.save} holds no training to go on with, leave --resume "
            "out to begin one"
        )
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        saved = {name: saved[name] for name in REMEMBERED}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not the options of a training ({error})") from error
    for name, value in saved.items():
        given = getattr(args, name)
        if given is not None and given != value and name != "steps":
            raise InputError(
                f"--{name.replace('_', '-')}: the training in {args.save} has {value}; leave it "
                "out to go on, or leave --resume out to begin anew"
            )
        if given is None:
            setattr(args, name, value)


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
    folder = Path(args.save)
    tinyfm.manual_seed(args.seed)
    if args.resume:
        tokenizer = Tokenizer.load(folder)
    else:
        tokenizer = Tokenizer.train([text for pair in pairs for text in pair], args.vocab_size)
    translator = Translator(new_model(args, tokenizer).to(device), tokenizer)
    batches = new_batches(pairs, tokenizer, args, say)
    for test in tests:  # what is too long is to be found now, not when the training is over
        translator.encode([source for source, _ in test], test.places())
    folder.mkdir(parents=True, exist_ok=True)
    if not args.resume:
        training.forget(folder / CHECKPOINT)
        tokenizer.save(folder)
    with replacing(folder / OPTIONS) as temporary:
        options = {name: getattr(args, name) for name in REMEMBERED}
        temporary.write_text(json.dumps(options, indent=2) + "\n", encoding="utf-8")
    count = sum(p.size for p in translator.model.parameters())
    say(
        f"{len(pairs)} pairs, {len(tokenizer)} subwords, {count:,} parameters, "
        f"{len(batches)} batches an epoch, {batches.padding_share():.1%} padding"
    )
    optimizer = optim.Adam(translator.model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    every = -(-args.steps // LOOKS)
    began = time.perf_counter()
    history: list[dict[str, float]] = []
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # fit says it in words
            history = training.fit(
                translator.model,
                batches,
                optimizer,
                new_schedule(args),
                args.steps,
                accumulate=args.accumulate,
                clip=args.clip,
                evaluate=new_look(translator, pairs, valid, args, say),
                evaluate_every=every,
                folder=folder / CHECKPOINT,
                resume=args.resume,
                save_every=-(-every // 4),
                keep=args.average,
            )
        if args.average > 1:
            translator.model.load_state_dict(training.average(folder / CHECKPOINT))
    except FloatingPointError as error:
        raise InputError(str(error)) from error
    except KeyboardInterrupt:
        translator.save(folder)
        print(f"stopped; what was learnt is in {folder}, --resume goes on", file=sys.stderr)
        raise
    translator.save(folder)
    loss, took = history[-1]["loss"], time.perf_counter() - began
    say(f"loss {loss:.3f} after {len(history)} steps, {took:.0f} s; saved to {folder}")
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
            max_position_embeddings=args.max_length + 1,
            pad_token_id=tokenizer.pad_id,
            bos_token_id=tokenizer.bos_id,
            eos_token_id=tokenizer.eos_id,
            decoder_start_token_id=tokenizer.bos_id,
            **sides,
        )
    )


def new_batches(
    pairs: ParallelText, tokenizer: Tokenizer, args: argparse.Namespace, say: Say
) -> Batches:
    """Batches of the pairs' ids; a pair that is too long is an error, or with --skip-long said."""
    sides = (tokenizer.encode_batch([pair[i] for pair in pairs]) for i in (0, 1))
    kept, dropped = [], 0
    for i, (source, target) in enumerate(zip(*sides, strict=True)):
        side, longest = max(enumerate((len(source), len(target))), key=lambda x: x[1])
        option, size = "--max-length", longest
        if longest <= args.max_length:
            option, size = "--max-tokens", len(source) + len(target) + 2
        if size <= getattr(args, option[2:].replace("-", "_")):
            kept.append((source, target))
        elif args.skip_long:
            dropped += 1
        else:
            raise InputError(
                f"{pairs.where(i, side)}: {size} subwords, over {option}; raise it, or leave such "
                "pairs out with --skip-long"
            )
    if dropped:
        say(f"left out {dropped} of {len(pairs)} pairs, which are too long")
    return Batches(
        kept,
        max_tokens=args.max_tokens,
        pad_id=tokenizer.pad_id,
        eos_id=tokenizer.eos_id,
        seed=args.seed,
    )


def new_schedule(args: argparse.Namespace) -> optim.Schedule:
    """The schedule by its name, scaled so that its peak is --lr."""
    shape: optim.Schedule
    match args.schedule:
        case "noam":
            noam = optim.noam(1, args.warmup)
            peak = noam(args.warmup)
            shape = lambda step: noam(step) / peak  # noqa: E731
        case "linear":
            shape = optim.linear(args.warmup, args.steps)
        case "cosine":
            shape = optim.cosine(args.warmup, args.steps)
        case _:
            shape = optim.constant()
    return lambda step: args.lr * shape(step)


def new_look(
    translator: Translator,
    pairs: ParallelText,
    valid: ParallelText | None,
    args: argparse.Namespace,
    say: Say,
) -> Callable[[Any], dict[str, float]]:
    """What fit's `evaluate` does: two samples, and the loss on --valid, which it returns."""
    samples = [pairs[i] for i in np.random.default_rng(args.seed).integers(len(pairs), size=2)]
    tokenizer = translator.tokenizer
    encoded: list[Any] = []
    if valid is not None:
        sides = (tokenizer.encode_batch([pair[i] for pair in valid]) for i in (0, 1))
        encoded = list(zip(*sides, strict=True))

    def look(model: Any) -> dict[str, float]:
        made = translator([source for source, _ in samples])
        for (source, target), translation in zip(samples, made, strict=True):
            say(f"  {source} -> {translation} ({target})")
        if valid is None:
            return {}
        batches = evaluation_batches(
            encoded, max_tokens=BATCH_TOKENS, pad_id=tokenizer.pad_id, eos_id=tokenizer.eos_id
        )
        loss = training.mean_loss(model, (batch for _, batch in batches))
        say(f"  validation loss {loss:.3f}, perplexity {np.exp(loss):.2f}")
        return {"validation_loss": loss}

    return look
