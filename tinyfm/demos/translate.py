"""Train a Transformer to translate, score it, and translate with it.

    python -m tinyfm.demos.translate                learns Korean to English in a minute or two
    python -m tinyfm.demos.translate --model FOLDER --text "나는 사과를 먹었다."
    python -m tinyfm.demos.translate --model FOLDER < lines.txt
    python -m tinyfm.demos.translate --train en.txt de.txt --test test.en test.de

Without files it learns from the sentences of a small Korean-English grammar (korean_english.py).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tinyfm
from tinyfm import models, optim, pretrained, training
from tinyfm.data import Batches, evaluation_batches
from tinyfm.demos import cli, korean_english
from tinyfm.errors import InputError
from tinyfm.metrics import Bleu, corpus_bleu
from tinyfm.text import Tokenizer, read_pairs

Pairs = Sequence[tuple[str, str]]

# Option: (its kind, what fits the embedded sentences, what fits files of real ones, its meaning).
TRAINING = {
    "steps": (cli.positive_int, 600, 1500, "optimizer steps"),
    "vocab_size": (cli.positive_int, 1000, 8000, "subwords to learn, for both languages together"),
    "d_model": (cli.positive_int, 128, 256, "width of the model"),
    "layers": (cli.positive_int, 2, 3, "layers of the encoder and of the decoder"),
    "heads": (cli.positive_int, 4, 8, "attention heads"),
    "ffn": (cli.positive_int, 512, 512, "width of the feed-forward networks"),
    "max_tokens": (cli.positive_int, 3000, 2200, "tokens in a batch, padding included"),
    "warmup": (cli.positive_int, 200, 400, "steps until the learning rate is at its peak"),
    "lr": (cli.positive_float, 2e-3, 1.5e-3, "peak learning rate; it falls with step**-0.5"),
    "dropout": (cli.probability, 0.1, 0.15, "share of the activations left out"),
    "label_smoothing": (cli.probability, 0.1, 0.1, "weight of the uniform distribution"),
}
HELD_OUT = 300  # embedded sentences that are tested and not trained on
LONGEST = 256  # tokens; longer pairs are left out of training


def new_parser() -> cli.Parser:
    parser = cli.Parser(
        prog="translate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    work = parser.add_argument_group("what to do")
    files: dict[str, Any] = {"nargs": 2, "metavar": ("SOURCE", "TARGET")}
    work.add_argument("--train", **files, help="learn from these files, line n with line n (.gz)")
    work.add_argument("--test", **files, help="score these files (BLEU)")
    work.add_argument("--model", metavar="FOLDER", help="use a saved model instead of training one")
    work.add_argument(
        "--save",
        metavar="FOLDER",
        default="translation-model",
        help="where the trained model goes (default: %(default)s)",
    )
    work.add_argument(
        "--text", type=cli.text, metavar="TEXT", help="translate this; without it, after --model, "
        "each line of standard input",
    )  # fmt: skip
    how = parser.add_argument_group("how to train")
    for name, (kind, embedded, files_default, meaning) in TRAINING.items():
        how.add_argument(
            f"--{name.replace('_', '-')}",
            type=kind,
            metavar="N" if kind is cli.positive_int else "X",
            help=f"{meaning} (default: {embedded}; with --train {files_default})",
        )
    cli.add_common_options(parser)
    return parser


def main(args: argparse.Namespace) -> None:
    for name, (_, embedded, files_default, _) in TRAINING.items():
        if getattr(args, name) is None:
            setattr(args, name, files_default if args.train else embedded)
    from tqdm import tqdm

    device = cli.choose_device(args)
    if args.model is not None and args.train:
        raise InputError("--model translates with a saved model, --train makes one: give one only")
    # Files are read before anything else is done: a mistake in a name shall not cost a training.
    test = read_pairs(*args.test) if args.test else None
    quiet = args.text is not None or (args.model is not None and not args.test)

    def say(message: str) -> None:  # around the progress line, where there is one
        tqdm.write(message, file=sys.stderr if quiet else sys.stdout)

    if args.model is not None:
        translator = Translator.load(args.model, device)
    else:
        pairs = read_pairs(*args.train) if args.train else None
        if pairs is None:
            pairs, held_out = korean_english.split(korean_english.corpus(), HELD_OUT)
            test = test or held_out
        translator = train(pairs, args, device, say)
    if test:
        began = time.perf_counter()
        bleu = translator.score(test)
        took = time.perf_counter() - began
        say(f"BLEU {bleu.score:.2f} on {len(test)} sentences, greedy, in {took:.0f} s")
        say(f"     {bleu.signature}")
    if args.text is not None:
        print(translator([args.text])[0])
    elif args.model is not None and not args.test:
        for line in cli.read_stdin_lines():
            print(translator([line])[0])


class Translator:
    """A model and its tokenizer: texts in, texts out."""

    def __init__(self, model: models.Transformer, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer

    @classmethod
    def load(cls, folder: str, device: str) -> Translator:
        model = pretrained.load(folder)
        if not isinstance(model, models.Transformer):
            raise InputError(f"{folder}: holds a {type(model).__name__}, which does not translate")
        tokenizer = Tokenizer.load(folder)
        if len(tokenizer) != model.config.vocab_size:
            raise InputError(
                f"{folder}: the tokenizer has {len(tokenizer)} subwords and the model "
                f"{model.config.vocab_size}; they do not belong together"
            )
        return cls(model.to(device), tokenizer)

    def save(self, folder: str) -> None:
        self.model.save_pretrained(folder)
        self.tokenizer.save(folder)

    def __call__(self, texts: Sequence[str], max_tokens: int = 4000) -> list[str]:
        """The translation of each text, greedy; a blank text gives a blank one."""
        sources = self.tokenizer.encode_batch(texts)
        limit = self.model.config.max_position_embeddings
        results = [""] * len(texts)
        full = [i for i, ids in enumerate(sources) if ids]
        pairs: list[tuple[list[int], list[int]]] = [(sources[i][: limit - 1], []) for i in full]
        if cut := sum(len(sources[i]) >= limit for i in full):
            print(f"{cut} text(s) were cut to {limit - 1} subwords", file=sys.stderr)
        tokenizer = self.tokenizer
        for indexes, batch in evaluation_batches(
            pairs, max_tokens=max_tokens, pad_id=tokenizer.pad_id, eos_id=tokenizer.eos_id
        ):
            length = batch["input_ids"].shape[1]
            made = self.model.generate(
                batch["input_ids"], batch["attention_mask"], max_length=min(2 * length + 10, limit)
            )
            for i, ids in zip(indexes, made, strict=True):
                results[full[i]] = tokenizer.decode(ids.tolist())
        return results

    def score(self, pairs: Pairs) -> Bleu:
        """Corpus BLEU of the translations of all sources against the targets."""
        return corpus_bleu(self([source for source, _ in pairs]), [target for _, target in pairs])


def train(
    pairs: Pairs, args: argparse.Namespace, device: str, say: Callable[[str], None]
) -> Translator:
    """Learn a vocabulary and a model from pairs of texts; saved to --save, also on Ctrl-C."""
    if args.d_model % args.heads:
        raise InputError(f"--d-model {args.d_model} is not a multiple of --heads {args.heads}")
    Path(args.save).mkdir(parents=True, exist_ok=True)  # before the work, not after it
    tinyfm.manual_seed(args.seed)
    tokenizer = Tokenizer.train([text for pair in pairs for text in pair], args.vocab_size)
    translator = Translator(new_model(args, tokenizer).to(device), tokenizer)
    batches = new_batches(pairs, tokenizer, args, say)
    count = sum(p.size for p in translator.model.parameters())
    say(
        f"{len(pairs)} pairs, {len(tokenizer)} subwords, {count:,} parameters, "
        f"{len(batches)} batches an epoch, {batches.padding_share():.1%} padding"
    )
    samples = [pairs[i] for i in np.random.default_rng(args.seed).integers(len(pairs), size=3)]

    def show(model: Any) -> dict[str, float]:
        made = translator([source for source, _ in samples])
        for (source, target), translation in zip(samples, made, strict=True):
            say(f"  {source}\n    -> {translation}\n       ({target})")
        return {}

    parameters = translator.model.parameters()
    optimizer = optim.Adam(parameters, lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    began = time.perf_counter()
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # fit says it in words
            history = training.fit(
                translator.model,
                batches,
                optimizer,
                inverse_root(args.lr, args.warmup),
                args.steps,
                evaluate=show,
                evaluate_every=-(-args.steps // 3),
            )
    except FloatingPointError as error:
        raise InputError(str(error)) from error
    except KeyboardInterrupt:
        translator.save(args.save)
        print(f"stopped; what was learnt is in {args.save}", file=sys.stderr)
        raise
    translator.save(args.save)
    loss, took = history[-1]["loss"], time.perf_counter() - began
    say(f"loss {loss:.3f} after {len(history)} steps, {took:.0f} s; saved to {args.save}")
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
            pad_token_id=tokenizer.pad_id,
            bos_token_id=tokenizer.bos_id,
            eos_token_id=tokenizer.eos_id,
            decoder_start_token_id=tokenizer.bos_id,
            **sides,
        )
    )


def new_batches(
    pairs: Pairs, tokenizer: Tokenizer, args: argparse.Namespace, say: Callable[[str], None]
) -> Batches:
    """Batches of the pairs' ids; what is too long for the model or a batch is left out and said."""
    sides = (tokenizer.encode_batch([pair[i] for pair in pairs]) for i in (0, 1))
    encoded = list(zip(*sides, strict=True))
    longest = min(LONGEST, args.max_tokens // 2 - 1)
    if longest < 1:
        raise InputError(f"--max-tokens {args.max_tokens} is less than the shortest pair needs: 4")
    kept = [pair for pair in encoded if max(map(len, pair)) <= longest]
    if dropped := len(encoded) - len(kept):
        say(f"left out {dropped} of {len(encoded)} pairs, which are over {longest} tokens long")
    return Batches(
        kept,
        max_tokens=args.max_tokens,
        pad_id=tokenizer.pad_id,
        eos_id=tokenizer.eos_id,
        seed=args.seed,
    )


def inverse_root(peak: float, warmup: int) -> optim.Schedule:
    """The paper's schedule, scaled so that its peak is `peak`."""
    schedule = optim.noam(1, warmup)
    return lambda step: peak * schedule(step) / schedule(warmup)


if __name__ == "__main__":
    sys.exit(cli.run(main, new_parser()))
