"""How the translate command learns: its options, vocabulary, model, batches, schedule, samples."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import tinyfm
from tinyfm import checkpoints, models, optim, plot, training
from tinyfm.data import Batches, evaluation_batches
from tinyfm.demos import cli
from tinyfm.demos.translator import BATCH_TOKENS, Translator
from tinyfm.errors import InputError
from tinyfm.files import read_json, write_json
from tinyfm.text import ParallelText, Tokenizer

Say = Callable[[str], None]

LOOKS, SAVES = 5, 20  # how often a training is looked at (samples, validation), and saved

# Option: (its kind, what fits the embedded sentences, what fits files of real ones, its meaning).
TRAINING = {
    "steps": (cli.positive_int, 900, 8000, "optimizer steps"),
    "vocab_size": (cli.positive_int, 1500, 5000, "subwords to learn, for both languages together"),
    "d_model": (cli.positive_int, 128, 256, "width of the model"),
    "layers": (cli.positive_int, 2, 3, "layers of the encoder and of the decoder"),
    "heads": (cli.positive_int, 4, 8, "attention heads"),
    "ffn": (cli.positive_int, 512, 512, "width of the feed-forward networks"),
    "norm_first": (
        cli.yes_or_no,
        "no",
        "yes",
        "norms before the layers, not after as in the paper",
    ),
    "max_length": (cli.positive_int, 256, 256, "subwords in the longest sentence"),
    "max_tokens": (cli.positive_int, 1500, 1400, "tokens in a batch, padding included"),
    "accumulate": (cli.positive_int, 1, 1, "batches that make one step"),
    "warmup": (cli.positive_int, 200, 400, "steps until the learning rate is at its peak"),
    "lr": (cli.positive_float, 3e-3, 2e-3, "peak learning rate"),
    "clip": (cli.positive_float, 1.0, 1.0, "limit of the gradient's norm"),
    "dropout": (cli.probability, 0.1, 0.2, "share of the activations left out"),
    "label_smoothing": (cli.probability, 0.1, 0.1, "weight of the uniform distribution"),
    "average": (cli.positive_int, 1, 1, f"last checkpoints, of {SAVES}, that are averaged"),
}
SCHEDULES = ("noam", "linear", "cosine", "constant")
# What a training is: --resume takes it from the folder, and only ANEW may be given anew.
REMEMBERED = ("train", "valid", "test", "skip_long", "schedule", "seed", "save_every", *TRAINING)
ANEW = ("steps", "test")
# In the --save folder, so that a model that is there stays whole until the new one is trained.
CHECKPOINT, OPTIONS = "checkpoint", "options.json"


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """The options of this file; those that are left out are None until `settle` fills them in."""
    how = parser.add_argument_group("how to train")
    for name, (kind, for_embedded, for_files, meaning) in TRAINING.items():
        how.add_argument(
            f"--{name.replace('_', '-')}",
            type=kind,
            metavar={cli.positive_int: "N", cli.yes_or_no: "yes|no"}.get(kind, "X"),
            help=f"{meaning} (default: {for_embedded}; with --train {for_files})",
        )
    how.add_argument(
        "--schedule", choices=SCHEDULES, help="of the learning rate after the warmup: noam falls "
        "with step**-0.5, linear and cosine reach 0 at the last step (default: noam; with --train "
        "linear)",
    )  # fmt: skip
    how.add_argument(
        "--skip-long", action="store_true", default=None, help="leave pairs out of the training "
        "that are over --max-length or --max-tokens, instead of stopping at the first",
    )  # fmt: skip
    parser.set_defaults(save_every=None)  # settled with the number of steps; --resume keeps it


def settle(args: argparse.Namespace) -> None:
    """Fill in what is left out: with --resume from the folder, else what fits the kind of text."""
    if args.resume:
        recall(args)
    for name, (_, for_embedded, for_files, _) in TRAINING.items():
        if getattr(args, name) is None:
            setattr(args, name, for_files if args.train else for_embedded)
    args.schedule = args.schedule or ("linear" if args.train else "noam")
    args.seed = args.seed or 0
    args.save_every = args.save_every or -(-args.steps // SAVES)
    args.skip_long = bool(args.skip_long)


def recall(args: argparse.Namespace) -> None:
    """--resume: set the options of the training that goes on."""
    path = Path(args.save) / CHECKPOINT / OPTIONS
    if not path.is_file():
        raise InputError(
            f"{path}: no such file; {args.save} holds no training to go on with, leave --resume "
            "out to begin one"
        )
    try:
        saved = {name: value for name, value in read_json(path).items() if name in REMEMBERED}
        for name, (kind, *_) in TRAINING.items():
            saved[name] = kind(str(saved[name]))
        for name, kind in (("seed", cli.seed), ("save_every", cli.positive_int)):
            saved[name] = kind(str(saved[name]))
        for name in ("train", "valid", "test"):
            if not (saved[name] is None or _are_names(saved[name])):
                raise LookupError(f"{name} is {saved[name]!r}")
        if saved["schedule"] not in SCHEDULES:
            raise LookupError(f"schedule is {saved['schedule']!r}")
    except (LookupError, argparse.ArgumentTypeError) as error:
        raise InputError(f"{path}: not the options of a training ({error})") from error
    for name, value in saved.items():
        given = getattr(args, name)
        if given is not None and given != value and name not in ANEW:
            raise InputError(
                f"--{name.replace('_', '-')}: the training in {args.save} has {value}; leave it "
                "out to go on, or leave --resume out to begin anew"
            )
        if given is None:
            setattr(args, name, value)


def _are_names(value: Any) -> bool:
    """Whether value is what --train takes: one or two names of files."""
    return (
        isinstance(value, list)
        and len(value) in (1, 2)
        and all(isinstance(name, str) for name in value)
    )


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
    if args.resume:
        tokenizer = Tokenizer.load(Path(args.save) / CHECKPOINT)
    else:
        tokenizer = Tokenizer.train([text for pair in pairs for text in pair], args.vocab_size)
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
    cli.make_folder(args.save)
    # The whole folder, where fit keeps its checkpoint alone to itself: of two trainings that begin
    # at the same moment, the one that is refused shall have written nothing.
    with training.alone(args.save):
        open_checkpoint(Path(args.save) / CHECKPOINT, tokenizer, args)
        count = sum(p.size for p in translator.model.parameters())
        left_out = len(pairs) - len(kept)
        say(
            f"{len(kept)} pairs, {len(tokenizer)} subwords, {count:,} parameters, "
            f"{len(batches)} batches an epoch, {batches.padding_share():.1%} padding"
            + (f"; {left_out} pairs are too long and left out" if left_out else "")
        )
        learn_and_save(translator, batches, look, args, say)
    return translator


def open_checkpoint(checkpoint: Path, tokenizer: Tokenizer, args: argparse.Namespace) -> None:
    """Make the checkpoint's folder, with what --resume needs beside the checkpoint."""
    if args.resume and (done := training.step_of(checkpoint)) > args.steps:
        raise InputError(
            f"--steps {args.steps}: the training in {args.save} is at step {done} already"
        )
    cli.make_folder(checkpoint)
    if not args.resume:
        training.forget(checkpoint)
        tokenizer.save(checkpoint)
    write_json(checkpoint / OPTIONS, {name: getattr(args, name) for name in REMEMBERED})


def learn_and_save(
    translator: Translator,
    batches: Batches,
    look: Callable[[Any], dict[str, float]],
    args: argparse.Namespace,
    say: Say,
) -> None:
    """The training; after it, or on Ctrl-C, the folder is that of a translator."""
    folder = Path(args.save)
    checkpoint = folder / CHECKPOINT
    began = time.perf_counter()
    try:
        history = learn(translator.model, batches, look, checkpoint, args, say)
    except KeyboardInterrupt:
        # The weights that fit has saved; those in memory may be half loaded or not trained at all.
        if checkpoints.exists(checkpoint) and training.step_of(checkpoint) > 0:
            translator.model.load_state_dict(training.average(checkpoint, last=1))
            translator.save(folder)
            print(f"stopped; what was learnt is in {folder}, --resume goes on", file=sys.stderr)
        raise
    translator.save(folder)
    loss, took = history[-1]["loss"], time.perf_counter() - began
    say(f"loss {loss:.3f} after {len(history)} steps, {took:.0f} s; saved to {folder}")
    if args.plot:
        plot.curves(history, Path(args.plot) / "curves.png")


def learn(
    model: models.Transformer,
    batches: Batches,
    look: Callable[[Any], dict[str, float]],
    checkpoint: Path,
    args: argparse.Namespace,
    say: Say,
) -> list[dict[str, float]]:
    """training.fit with the paper's optimizer, and the mean of the last checkpoints (--average)."""
    optimizer = optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # fit raises an error with a remedy
            history = training.fit(
                model,
                batches,
                optimizer,
                new_schedule(args),
                args.steps,
                accumulate=args.accumulate,
                clip=args.clip,
                evaluate=look,
                evaluate_every=-(-args.steps // LOOKS),
                folder=checkpoint,
                resume=args.resume,
                save_every=args.save_every,
                keep=args.average,
            )
    except FloatingPointError as error:
        raise InputError(str(error)) from error
    if args.average > 1:
        model.load_state_dict(training.average(checkpoint))
        count = len(list(checkpoint.glob("weights-*")))
        say(f"the weights are the mean of those at the last {count} checkpoints")
    return history


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
    valid: Sequence[tuple[list[int], list[int]]] | None,
    samples: Sequence[tuple[str, str]],
    say: Say,
) -> Callable[[Any], dict[str, float]]:
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
