"""Greedy generation with a cache, time a token: tinyfm beside transformers.

    python -m bench.generate [--shape small gpt2] [--rounds 7] [--no-save]

A random GPT-2 goes on with one prompt of 16 tokens.  First both sides, from the same weights, must
make the same tokens.  The torch side is transformers' GPT2LMHeadModel with
scaled_dot_product_attention and its own cache.  A row beside each has the limit: the products of
one token with all weights, and nothing else.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import tinyfm
from bench import THREADS, common
from tinyfm import models
from tinyfm.demos.cli import positive_int

PROMPT = 16


class Shape(NamedTuple):
    config: models.GPT2Config
    new: int  # tokens
    faster: float | None  # the goal: so many times as many tokens a second as the peer

    def __str__(self) -> str:
        config = self.config
        return (
            f"{config.n_layer} layers x {config.n_embd}, V {config.vocab_size}, "
            f"{PROMPT} + {self.new} tokens"
        )

    def prompt(self) -> np.ndarray:
        return np.random.default_rng(0).integers(0, self.config.vocab_size, (1, PROMPT))


NO_END: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
SIZES = {"vocab_size": 8000, "n_positions": 256, "n_embd": 256, "n_layer": 4, "n_head": 4}
TINY = {"vocab_size": 50, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
SHAPES = {
    "small": Shape(models.GPT2Config(**SIZES, **NO_END), 128, 3.5),
    "gpt2": Shape(models.GPT2Config.small(**NO_END), 64, 1.3),
    "tiny": Shape(models.GPT2Config(**TINY, **NO_END), 8, None),
}
MEASURED = ["small", "gpt2"]


def our_side(model: Any, shape: Shape) -> Callable[[], np.ndarray]:
    prompt = shape.prompt()
    mask = np.ones_like(prompt)
    return lambda: model.generate(prompt, mask, max_new_tokens=shape.new)


def their_side(model: Any, shape: Shape) -> Callable[[], Any] | None:
    """transformers' model out of the folder that tinyfm writes; None where a package is missing."""
    torch, transformers = common.peer("torch"), common.peer("transformers")
    if torch is None or transformers is None:
        return None
    torch.set_num_threads(THREADS)
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        kind = transformers.GPT2LMHeadModel
        theirs = kind.from_pretrained(folder, attn_implementation="sdpa").eval()
    prompt = torch.from_numpy(shape.prompt())
    mask = torch.ones_like(prompt)
    options = {"max_new_tokens": shape.new, "do_sample": False, "use_cache": True}
    return lambda: theirs.generate(prompt, attention_mask=mask, **options)


def measure(shape: Shape, rounds: int) -> list[dict[str, Any]]:
    tinyfm.manual_seed(0)
    model = models.GPT2LMHeadModel(shape.config)
    ours, theirs = our_side(model, shape), their_side(model, shape)
    if theirs is not None:
        common.assert_same("greedy generation", ours(), theirs(), tolerance=0)
    mine, other = common.alternate(ours, theirs, rounds)
    alone, _ = common.alternate(products(model, shape), None, rounds)
    reached, note = None, f"{shape.new / mine.median[0]:.0f} tokens a second"
    if other is not None:
        times = other.median[0] / mine.median[0]
        note += f" against {shape.new / other.median[0]:.0f}, {times:.2f} times as many"
        reached = None if shape.faster is None else times >= shape.faster
    each = 1e3 / shape.new
    return [
        common.row(
            "greedy generation", str(shape), "ms a token", mine.times(each),
            None if other is None else other.times(each), peer="transformers",
            goal="" if shape.faster is None else f"<= 1 / {shape.faster} x",
            reached=reached, note=note,
        ),
        common.row(
            "greedy generation", f"{shape}; the limit: products alone", "ms a token",
            alone.times(each),
        ),
    ]  # fmt: skip


def products(model: Any, shape: Shape) -> Callable[[], None]:
    """One token times all weights, as often as tokens are made."""
    looked_up = model.transformer.positions.weight
    weights = [p.data for p in model.parameters() if p.ndim == 2 and p is not looked_up]
    rows = [np.ones((1, w.shape[1]), np.float32) for w in weights]

    def run() -> None:
        for _ in range(shape.new):
            for x, w in zip(rows, weights, strict=True):
                x @ w.T

    return run


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, nargs="+", default=MEASURED)
    parser.add_argument("--rounds", type=positive_int, default=7)
    parser.add_argument(
        "--no-save", action="store_true", help="write no result file; nor does another --shape"
    )
    options = parser.parse_args(arguments)
    allocator = common.set_allocator("keep")
    rows = [row for name in options.shape for row in measure(SHAPES[name], options.rounds)]
    measured = common.facts(allocator=allocator, rounds=options.rounds)
    print(common.table(rows))
    if options.shape == MEASURED and not options.no_save:
        print("written:", common.write_results("generate", rows, measured))


if __name__ == "__main__":
    main()
