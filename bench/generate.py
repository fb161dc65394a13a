"""Generation with a cache, time a token: tinyfm beside transformers.

    python -m bench.generate [--shape small gpt2 t5 t5_beams] [--rounds 7] [--no-save]

A random GPT-2 goes on with one prompt of 16 tokens, and a random T5 answers an input of 16, by the
most probable token and with 4 beams.  First both sides, from the same weights, must make the same
tokens.  The torch side is transformers' model with scaled_dot_product_attention (T5: as it is) and
its own cache.  Two rows beside each have the limits: the products of one token (with beams of one
token each) with all weights that it meets, and nothing else; and the same layers on arrays of next
to no size, which leaves the calls of Python and NumPy.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import tinyfm
from bench import THREADS, common
from tinyfm import models
from tinyfm.demos.cli import positive_int
from tinyfm.ops.rows import times_transposed

PROMPT = 16


class Shape(NamedTuple):
    config: Any
    new: int  # tokens
    faster: float | None  # the goal: so many times as many tokens a second as the peer
    beams: int = 1

    @property
    def gpt(self) -> bool:
        return isinstance(self.config, models.GPT2Config)

    def __str__(self) -> str:
        c = self.config
        sizes = (c.n_layer, c.n_embd) if self.gpt else (c.num_decoder_layers, c.d_model)
        return (
            f"{'GPT-2' if self.gpt else 'T5'}, {sizes[0]} layers x {sizes[1]}, V {c.vocab_size}, "
            f"{PROMPT} + {self.new} tokens" + (f", {self.beams} beams" if self.beams > 1 else "")
        )

    def model(self) -> Any:
        kind = models.GPT2LMHeadModel if self.gpt else models.T5ForConditionalGeneration
        tinyfm.manual_seed(0)
        return kind(self.config)

    def without_size(self) -> Shape:
        """As many layers, heads, tokens and beams, two numbers for each head and few words."""
        c, sizes = self.config, {"vocab_size": 64}
        if self.gpt:
            sizes |= {"n_embd": 2 * c.n_head}
        else:
            sizes |= {"d_model": 2 * c.num_heads, "d_kv": 2, "d_ff": 4}
        return self._replace(config=replace(c, **sizes))

    def prompt(self) -> np.ndarray:
        return np.random.default_rng(0).integers(2, self.config.vocab_size, (1, PROMPT))

    def options(self) -> dict[str, Any]:
        """Of `generate` on both sides; T5 has an end token, which is not to come early."""
        lengths = {"max_new_tokens": self.new, "min_new_tokens": self.new}
        return {**lengths, "num_beams": self.beams, "do_sample": False}


NO_END: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
SIZES = {"vocab_size": 8000, "n_positions": 256, "n_embd": 256, "n_layer": 4, "n_head": 4}
TINY = {"vocab_size": 50, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
TINY_T5 = {
    "vocab_size": 50, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2,
}  # fmt: skip
SHAPES = {
    "small": Shape(models.GPT2Config(**SIZES, **NO_END), 128, 3.5),
    "gpt2": Shape(models.GPT2Config.small(**NO_END), 64, 1.3),
    "t5": Shape(models.T5Config.small(), 64, 2.0),
    "t5_beams": Shape(models.T5Config.small(), 64, 1.3, beams=4),
    "tiny": Shape(models.GPT2Config(**TINY, **NO_END), 8, None),
    "tiny_t5": Shape(models.T5Config(**TINY_T5), 8, None, beams=2),
}
MEASURED = ["small", "gpt2", "t5", "t5_beams"]


def our_side(model: Any, shape: Shape) -> Callable[[], np.ndarray]:
    prompt, options = shape.prompt(), shape.options()
    mask = np.ones_like(prompt)
    return lambda: model.generate(prompt, mask, **options)


def their_side(model: Any, shape: Shape) -> Callable[[], Any] | None:
    """transformers' model out of the folder that tinyfm writes; None where a package is missing."""
    torch, transformers = common.peer("torch"), common.peer("transformers")
    if torch is None or transformers is None:
        return None
    torch.set_num_threads(THREADS)
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        kind = getattr(transformers, type(model).__name__)
        theirs = kind.from_pretrained(folder, attn_implementation="sdpa").eval()
    prompt = torch.from_numpy(shape.prompt())
    mask = torch.ones_like(prompt)
    options = shape.options()
    return lambda: theirs.generate(prompt, attention_mask=mask, use_cache=True, **options)


def measure(shape: Shape, rounds: int) -> list[dict[str, Any]]:
    model = shape.model()
    ours, theirs = our_side(model, shape), their_side(model, shape)
    if theirs is not None:
        common.assert_same(str(shape), ours(), theirs(), tolerance=0)
    mine, other = common.alternate(ours, theirs, rounds)
    alone, _ = common.alternate(products(model, shape), None, rounds)
    small = shape.without_size()
    calls, _ = common.alternate(our_side(small.model(), small), None, rounds)
    reached, note = None, f"{shape.new / mine.median[0]:.0f} tokens a second"
    if other is not None:
        times = other.median[0] / mine.median[0]
        note += f" against {shape.new / other.median[0]:.0f}, {times:.2f} times as many"
        reached = None if shape.faster is None else times >= shape.faster
    each = 1e3 / shape.new
    return [
        common.row(
            "generation", str(shape), "ms a token", mine.times(each),
            None if other is None else other.times(each), peer="transformers",
            goal="" if shape.faster is None else f"<= 1 / {shape.faster} x",
            reached=reached, note=note,
        ),
        common.row(
            "generation", f"{shape}; the limit: products alone", "ms a token",
            alone.times(each),
        ),
        common.row(
            "generation", f"{shape}; the limit: calls alone", "ms a token", calls.times(each),
        ),
    ]  # fmt: skip


def products(model: Any, shape: Shape) -> Callable[[], None]:
    """One token of each beam times all weights that it meets, as often as tokens are made.

    It meets none of an encoder, none that make keys and values of what the encoder says, and none
    that are looked up only; a table that words are scored with is one of its matrices.
    """
    looked_up = ("encoder.", "positions.weight", "relative_bias.weight", "cross.kv.weight")
    weights = [
        p.data
        for name, p in model.named_parameters()
        if p.ndim == 2 and not name.startswith(looked_up[0]) and not name.endswith(looked_up[1:])
    ]
    rows = [np.ones((shape.beams, w.shape[1]), np.float32) for w in weights]

    def run() -> None:
        for _ in range(shape.new):
            for x, w in zip(rows, weights, strict=True):
                times_transposed(x, w)

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
    common.command(main)
