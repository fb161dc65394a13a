"""A GPT over characters, by nanoGPT's recipe for a CPU, beside the same model in torch eager.

    python -m bench.characters --text input.txt.gz [--steps 2000] [--no-save]
    python -m bench.characters --text input.txt.gz --long 20    also: the best loss in 20 minutes

The first 90% of the text (tiny Shakespeare) are learnt and the rest is held out.  4 layers, 4
heads, 128 wide, 64 characters of context, 12 random windows a step, 2,000 steps, no dropout, AdamW
(0.9, 0.99) with decay 0.1 on matrices, 100 steps of warmup to 1e-3, then a cosine to 1e-4, gradient
norm at most 1.  First both sides, from the same weights, must give the same loss and norm of the
gradient; then steps are timed in turns; then each side learns alone, from the same weights on the
same windows, and is scored on all of the held-out text.  nanoGPT itself (without biases, scored on
20 random batches) says 1.8857 after 121 s on two such cores.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tinyfm
from bench import THREADS, common, products
from tinyfm import models, optim
from tinyfm.demos.cli import positive_int
from tinyfm.text import read_lines

GOAL, LOSS = 0.75, 1.89
PEAK, LOWEST, WARMUP, BETAS, DECAY, CLIP = 1e-3, 1e-4, 100, (0.9, 0.99), 0.1, 1.0


class Recipe(NamedTuple):
    layers: int = 4
    heads: int = 4
    width: int = 128
    context: int = 64
    batch: int = 12
    dropout: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.layers} layers, {self.heads} heads, {self.width} wide, "
            f"{self.batch} x {self.context} characters"
        )

    def config(self, vocabulary: int) -> models.GPT2Config:
        rates = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), self.dropout)
        return models.GPT2Config(
            vocab_size=vocabulary, n_positions=self.context, n_embd=self.width,
            n_layer=self.layers, n_head=self.heads, **rates,
        )  # fmt: skip


LONG = Recipe(layers=6, heads=4, width=256, context=128, batch=32, dropout=0.1)


class Text(NamedTuple):
    """Characters as numbers, learnt and held out."""

    train: np.ndarray
    held_out: np.ndarray
    vocabulary: int

    @classmethod
    def read(cls, path: Path) -> Text:
        text = "".join(f"{line}\n" for line in read_lines(path))
        characters = sorted(set(text))
        numbers = {character: i for i, character in enumerate(characters)}
        ids = np.array([numbers[c] for c in text])
        end = int(0.9 * len(ids))
        return cls(ids[:end], ids[end:], len(characters))

    def batches(self, recipe: Recipe, seed: int = 0) -> Iterator[np.ndarray]:
        """Random windows (B, context + 1): the last character is only a label."""
        rng = np.random.default_rng(seed)
        while True:
            starts = rng.integers(0, len(self.train) - recipe.context, recipe.batch)
            yield self.train[starts[:, None] + np.arange(recipe.context + 1)]


def rate(step: int, steps: int) -> float:
    """The learning rate of step 1, 2, ..."""
    if step <= WARMUP:
        return PEAK * step / (WARMUP + 1)
    done = (step - WARMUP) / max(steps - WARMUP, 1)
    return LOWEST + (PEAK - LOWEST) * 0.5 * (1 + math.cos(math.pi * done))


# -- the two sides ---------------------------------------------------------------------------------


class Side(NamedTuple):
    """loss: (B, T + 1) windows -> the mean loss as each library has it; step: (windows, rate)."""

    loss: Callable[[np.ndarray], Any]
    step: Callable[[np.ndarray, float], None]
    norm: Callable[[], float]  # of the gradient
    evaluating: Callable[[], Any]


def our_side(model: models.GPT2LMHeadModel) -> Side:
    optimizer = optim.AdamW(
        model.parameters(), lr=1.0, betas=BETAS, weight_decay=DECAY, decay=lambda p: p.ndim > 1
    )
    table = model.transformer.tokens.weight

    def loss(windows: np.ndarray) -> Any:
        hidden = model.transformer(windows[:, :-1]).last_hidden_state
        return tinyfm.ops.linear_cross_entropy(hidden, table, None, windows[:, 1:])

    def step(windows: np.ndarray, lr: float) -> None:
        optimizer.zero_grad()
        loss(windows).backward()
        optim.clip_grad_norm(model.parameters(), CLIP)
        optimizer.step(lr)

    def norm() -> float:
        return math.sqrt(sum(float((p.grad**2).sum()) for p in model.parameters()))

    return Side(loss, step, norm, model.evaluating)


def their_side(torch: Any, model: models.GPT2LMHeadModel, recipe: Recipe) -> Side:
    """The same network in torch with the same weights."""
    functional, nn = torch.nn.functional, torch.nn
    d, heads = recipe.width, recipe.heads

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention_norm, self.feed_forward_norm = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x: Any) -> Any:
            size = (*x.shape[:2], heads, d // heads)
            q, k, v = (
                part.view(size).transpose(1, 2)
                for part in self.qkv(self.attention_norm(x)).split(d, 2)
            )
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).flatten(2))
            y = functional.gelu(self.up(self.feed_forward_norm(x)), approximate="tanh")
            return x + self.down(y)

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(model.config.vocab_size, d)
            self.positions = nn.Embedding(recipe.context, d)
            self.layers = nn.ModuleList(Layer() for _ in range(recipe.layers))
            self.norm = nn.LayerNorm(d)

        def forward(self, ids: Any) -> Any:
            x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
            for layer in self.layers:
                x = layer(x)
            return self.norm(x) @ self.tokens.weight.T

    theirs = GPT()
    values = {}
    for name, array in model.state_dict().items():
        for ours in ("transformer.", "decoder.", "attention.", "feed_forward."):
            name = name.replace(ours, "")
        values[name] = torch.tensor(array)
    theirs.load_state_dict(values)  # strict
    groups = [
        {"params": [p for p in theirs.parameters() if p.ndim > 1], "weight_decay": DECAY},
        {"params": [p for p in theirs.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, betas=BETAS, fused=True)

    def loss(windows: np.ndarray) -> Any:
        ids = torch.from_numpy(windows)
        return functional.cross_entropy(theirs(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    def step(windows: np.ndarray, lr: float) -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(windows).backward()
        nn.utils.clip_grad_norm_(theirs.parameters(), CLIP)
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()

    def norm() -> float:
        return math.sqrt(sum(float((p.grad**2).sum()) for p in theirs.parameters()))

    return Side(loss, step, norm, torch.no_grad)


def score(side: Side, text: Text, context: int, rows: int = 64) -> float:
    """The mean loss over the held-out text, each character once, in windows side by side."""
    ids = text.held_out
    starts = np.arange(0, len(ids) - context, context)
    windows = ids[starts[:, None] + np.arange(context + 1)]
    with side.evaluating():
        parts = [windows[i : i + rows] for i in range(0, len(windows), rows)]
        return sum(float(side.loss(part).item()) * len(part) for part in parts) / len(windows)


def train(side: Side, text: Text, recipe: Recipe, steps: int) -> tuple[float, float]:
    """(seconds, loss on the held-out text) after so many steps."""
    batches, start = text.batches(recipe), time.perf_counter()
    for step in range(1, steps + 1):
        side.step(next(batches), rate(step, steps))
    return time.perf_counter() - start, score(side, text, recipe.context)


# -- what is measured ------------------------------------------------------------------------------


def new_model(text: Text, recipe: Recipe) -> models.GPT2LMHeadModel:
    tinyfm.manual_seed(0)
    return models.GPT2LMHeadModel(recipe.config(text.vocabulary))


def new_sides(text: Text, recipe: Recipe) -> tuple[Side, Side | None]:
    model, torch = new_model(text, recipe), common.peer("torch")
    if torch is None:
        return our_side(model), None
    torch.set_num_threads(THREADS)
    return our_side(model), their_side(torch, model, recipe)


def timed(
    work: str, ours: Side, theirs: Side | None, windows: np.ndarray, rounds: int
) -> tuple[common.Timing, common.Timing | None]:
    """A step of both sides in turns, after both have given the same loss and norm of gradient."""
    if theirs is not None:
        values = []
        for side in (ours, theirs):
            loss = side.loss(windows)
            loss.backward()
            values.append([np.float32(loss.item()), np.float32(side.norm())])
        common.assert_same(work, *values)
    return common.alternate(
        lambda: ours.step(windows, PEAK),
        None if theirs is None else lambda: theirs.step(windows, PEAK),
        rounds,
    )


def compare(text: Text, recipe: Recipe, steps: int, rounds: int) -> list[dict[str, Any]]:
    ours, theirs = new_sides(text, recipe)
    windows = next(text.batches(recipe))
    mine, other = timed("character model", ours, theirs, windows, rounds)
    reached = None if other is None else mine.median[0] <= GOAL * other.median[0]
    rows = [
        common.row(
            "characters", f"{recipe}: a step", "ms", mine.times(1e3),
            None if other is None else other.times(1e3), peer="torch", goal=f"<= {GOAL} x",
            reached=reached,
        )
    ]  # fmt: skip
    rows.append(
        products.limit("characters", f"{recipe}: a step", lambda: ours.step(windows, PEAK), rounds)
    )
    ours, theirs = new_sides(text, recipe)
    took, loss = train(ours, text, recipe, steps)
    other_took, other_loss = (None, None) if theirs is None else train(theirs, text, recipe, steps)
    rows.append(common.row("characters", f"{steps} steps", "s", took, other_took, peer="torch"))
    rows.append(
        common.row(
            "characters", f"loss on the held-out text after {steps} steps", "nats", loss,
            other_loss, peer="torch", goal=f"<= {LOSS}", reached=loss <= LOSS,
        )
    )  # fmt: skip
    return rows


def best_in(text: Text, recipe: Recipe, minutes: float) -> dict[str, Any]:
    """The loss on the held-out text after so many minutes; the steps that fit are timed first."""
    side, batches = our_side(new_model(text, recipe)), text.batches(recipe)
    side.step(next(batches), LOWEST)
    start = time.perf_counter()
    for _ in range(10):
        side.step(next(batches), LOWEST)
    steps = int(60 * minutes / ((time.perf_counter() - start) / 10))
    took, loss = train(our_side(new_model(text, recipe)), text, recipe, steps)
    return common.row(
        "characters", f"the best in {minutes:g} minutes: loss on the held-out text", "nats", loss,
        note=f"{recipe}, dropout {recipe.dropout}; {steps} steps, {took:.0f} s",
    )  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, metavar="FILE", required=True)
    parser.add_argument("--steps", type=positive_int, default=2000)
    parser.add_argument("--rounds", type=positive_int, default=51)
    parser.add_argument("--long", type=float, metavar="MINUTES", help="also train so long")
    parser.add_argument("--no-save", action="store_true", help="write no result file")
    options = parser.parse_args(arguments)
    allocator = common.set_allocator("keep")
    text = Text.read(options.text)
    rows = compare(text, Recipe(), options.steps, options.rounds)
    measured = common.facts(allocator=allocator, rounds=options.rounds)
    if options.long:
        rows.append(best_in(text, LONG, options.long))
    print(common.table(rows))
    if not options.no_save:
        print("written:", common.write_results("characters", rows, measured))


if __name__ == "__main__":
    common.command(main)
