"""How denoise learns to summarise: documents in, what they say in short out (BART, section 3.3)."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tinyfm
from tinyfm import plot
from tinyfm.data import Example, ExampleBatches
from tinyfm.demos import cli
from tinyfm.demos.denoising import new_model, new_tokenizer
from tinyfm.demos.encoders import new_optimizer
from tinyfm.demos.learning import Look, Say, Training
from tinyfm.demos.modelling import counted, mean_loss, open_model, train_model
from tinyfm.demos.pretraining import check_lengths
from tinyfm.demos.records import Records, Summarized, read_summaries
from tinyfm.demos.rewriting import FAMILIES, HEAD, MORE, Rewriter, generation_config
from tinyfm.errors import InputError
from tinyfm.metrics import rouge, rouge_words
from tinyfm.tokenizer import Tokenizer

LEAST = 3  # tokens of a text: <s>, one, </s>
# What a new model is told to do, unless the command line says otherwise: as in section 5.3 of the
# paper no three tokens come twice.
SEARCH = {"num_beams": 4, "no_repeat_ngram_size": 3, "early_stopping": True}
SAMPLES = 2  # summaries that are shown, of --valid or else of what is learnt


def learn_summaries(
    training: Training,
    args: argparse.Namespace,
    chosen: int | None,
    device: str,
    options: dict[str, Any],
    say: Say,
) -> Rewriter:
    """Learn from --train, with a new model or that in --model; saved to --save, also on Ctrl-C.

    chosen: the --max-length that the user gave.
    """
    if args.plot is not None:
        cli.make_folder(args.plot)
    records = read_summaries(args.train)
    valid = None if args.valid is None else read_summaries(args.valid)
    tinyfm.manual_seed(args.seed)
    if args.model is not None:
        model, tokenizer = open_model(args.model, HEAD, families=FAMILIES)
        longest = model.position_limit()
        if chosen is not None and chosen > longest:
            raise InputError(
                f"--max-length {chosen}: the model in {args.model} takes {longest}; give that or "
                "less"
            )
        args.max_length = min(args.max_length, longest)
    else:
        tokenizer = new_tokenizer(
            args, (text for r in records for text in (r.document, *r.summaries))
        )
        model = new_model(args, tokenizer)
    check_lengths(args, LEAST)
    model.to(device)
    examples = examples_of(records, tokenizer, args.max_length)
    most = max(len(example["labels"]) for example in examples) + MORE
    model.generation_config = SEARCH | generation_config(tokenizer, min(most, args.max_length))
    rewriter = Rewriter(model, tokenizer, options)
    batches = ExampleBatches(
        examples, max_tokens=args.max_tokens, pad_id=tokenizer.pad_id, seed=args.seed
    )
    checked = None if valid is None else examples_of(valid, tokenizer, args.max_length)
    look = new_look(rewriter, (valid or records)[:SAMPLES], checked, say)
    cut = sum(len(example["input_ids"]) == args.max_length for example in examples)
    notes = [f"{counted(cut, 'document')} of {args.max_length} tokens or more; what is over is cut"]
    what = counted(len(records), "record")
    history = train_model(
        training, args, model, tokenizer, batches, new_optimizer(model), look, say, what,
        notes=notes if cut else (),
    )  # fmt: skip
    if args.plot is not None:
        plot.curves(history, Path(args.plot) / "curves.png")
    return rewriter


def examples_of(
    records: Iterable[Summarized], tokenizer: Tokenizer, max_length: int
) -> list[Example]:
    """An example for each summary; the ends of long texts are cut off."""
    pairs = [(record.document, summary) for record in records for summary in record.summaries]
    sources, targets = (
        tokenizer.encode_batch(texts, max_length=max_length) for texts in zip(*pairs, strict=True)
    )
    return [
        {"input_ids": source, "labels": target}
        for source, target in zip(sources, targets, strict=True)
    ]


def new_look(
    rewriter: Rewriter, samples: Sequence[Summarized], valid: Sequence[Example] | None, say: Say
) -> Look:
    """What fit's `evaluate` does: the samples, and the loss on --valid, returned."""

    def look(model: Any) -> dict[str, float]:
        made = rewriter.summarize([record.document for record in samples])
        for record, summary in zip(samples, made, strict=True):
            say(f"  {summary} ({record.summaries[0]})")
        if valid is None:
            return {}
        loss = mean_loss(model, valid)
        say(f"  validation loss {loss:.3f}")
        return {"validation_loss": loss}

    return look


def report(rewriter: Rewriter, name: str, records: Records[Summarized], say: Say) -> list[str]:
    """Summaries of all documents, and what ROUGE says of them where the file has summaries."""
    began = time.perf_counter()
    made = rewriter.summarize([record.document for record in records])
    took = time.perf_counter() - began
    scored = [(record, own) for record, own in zip(records, made, strict=True) if record.summaries]
    if scored:
        known, own = zip(*scored, strict=True)
        first = [record.first for record in known]
        say(f"first sentences of {name}: {_scores(first, known)} ({len(known)} texts)")
        say(f"{name}: {_scores(own, known)} ({len(known)} texts, {took:.0f} s)")
        if not any(rouge_words(text) for record in known for text in record.summaries):
            print(
                f"{name}: ROUGE counts words of a to z and 0 to 9, and no summary has one",
                file=sys.stderr,
            )
    return made


def _scores(texts: Sequence[str], known: Sequence[Summarized]) -> str:
    scores = rouge(texts, [record.summaries for record in known])
    return ", ".join(f"ROUGE-{k} {100 * x:.2f}" for k, x in zip("12L", scores, strict=True))
