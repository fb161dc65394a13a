"""One training step of the Transformer: forward, backward, Adam; beside torch eager.

    python -m bench.train_step [--rounds 9] [--allocator keep|default] [--no-save]

Three sizes on the same batch, which has some padding, with dropout 0.1 and label smoothing 0.1.
First both sides, from the same weights and without dropout, must give the same loss and the same
norm of the gradient.  The torch side is eager at its best: one product for q, k and v,
scaled_dot_product_attention, cross_entropy with ignore_index, fused Adam.  A row beside each has
the limit: the matrix products of tinyfm's step alone, of which NumPy does none faster.  Where
tinyfm's time goes says bench.breakdown.
"""

from __future__ import annotations

import argparse
import math
from typing import Any, NamedTuple

import numpy as np

import tinyfm
from bench import THREADS, common, products
from tinyfm import models, nn, optim
from tinyfm.demos.cli import positive_int
from tinyfm.nn import sinusoids

VOCABULARY, DROPOUT, SMOOTHING = 8000, 0.1, 0.1


class Size(NamedTuple):
    d: int
    heads: int
    layers: int
    ffn: int
    batch: int
    length: int
    goal: float | None = None  # the most times of the peer's time

    def __str__(self) -> str:
        return (
            f"d {self.d}, {self.layers}+{self.layers}, ffn {self.ffn}, "
            f"{self.batch} x {self.length} tokens"
        )


SIZES = (
    Size(128, 4, 4, 256, 128, 20, 0.67),
    Size(256, 4, 3, 1024, 64, 32, 0.67),
    Size(512, 8, 6, 2048, 32, 32, 0.85),
)


def batch_of(size: Size) -> dict[str, np.ndarray]:
    """Random ids; row i ends i % 8 positions early."""
    rng = np.random.default_rng(0)
    source, labels = (rng.integers(4, VOCABULARY, (size.batch, size.length)) for _ in range(2))
    mask = np.arange(size.length) < size.length - np.arange(size.batch)[:, None] % 8
    return {
        "input_ids": np.where(mask, source, 0),
        "attention_mask": mask.astype(np.int64),
        "labels": np.where(mask, labels, -100),
    }


def our_model(size: Size) -> models.Transformer:
    tinyfm.manual_seed(0)
    sides = {}
    for side in ("encoder", "decoder"):
        sides |= {f"{side}_layers": size.layers, f"{side}_attention_heads": size.heads}
        sides |= {f"{side}_ffn_dim": size.ffn}
    return models.Transformer(
        models.TransformerConfig(
            vocab_size=VOCABULARY,
            d_model=size.d,
            dropout=DROPOUT,
            label_smoothing=SMOOTHING,
            **sides,
        )
    )


def our_step(model: models.Transformer, batch: dict[str, np.ndarray]) -> Any:
    optimizer = optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)

    def step() -> None:
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()

    return step


def their_model(torch: Any, model: models.Transformer, size: Size) -> Any:
    """The same network in torch, with the same weights under the same names."""
    functional, nn = torch.nn.functional, torch.nn
    d, heads = size.d, size.heads

    class Attention(nn.Module):
        def __init__(self, cross: bool) -> None:
            super().__init__()
            if cross:
                self.q, self.kv = nn.Linear(d, d), nn.Linear(d, 2 * d)
            else:
                self.qkv = nn.Linear(d, 3 * d)
            self.out = nn.Linear(d, d)

        def forward(
            self, x: Any, memory: Any = None, mask: Any = None, causal: bool = False
        ) -> Any:
            def split(x: Any, parts: int) -> Any:
                return x.view(*x.shape[:2], parts, heads, d // heads).permute(2, 0, 3, 1, 4)

            if memory is None:
                q, k, v = split(self.qkv(x), 3)
            else:
                (q,), (k, v) = split(self.q(x), 1), split(self.kv(memory), 2)
            y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
            return self.out(y.transpose(1, 2).flatten(2))

    class FeedForward(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(d, size.ffn), nn.Linear(size.ffn, d)

        def forward(self, x: Any) -> Any:
            return self.down(functional.relu(self.up(x)))

    class Layer(nn.Module):
        def __init__(self, cross: bool) -> None:
            super().__init__()
            self.attention, self.attention_norm = Attention(False), nn.LayerNorm(d)
            if cross:
                self.cross, self.cross_norm = Attention(True), nn.LayerNorm(d)
            self.feed_forward, self.feed_forward_norm = FeedForward(), nn.LayerNorm(d)
            self.dropout = nn.Dropout(DROPOUT)

        def forward(self, x: Any, memory: Any = None, mask: Any = None) -> Any:
            own = {"causal": True} if memory is not None else {"mask": mask}
            x = self.attention_norm(x + self.dropout(self.attention(x, **own)))
            if memory is not None:
                x = self.cross_norm(x + self.dropout(self.cross(x, memory, mask)))
            return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))

    class Stack(nn.Module):
        def __init__(self, cross: bool) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Layer(cross) for _ in range(size.layers))

        def forward(self, x: Any, *others: Any, **named: Any) -> Any:
            for layer in self.layers:
                x = layer(x, *others, **named)
            return x

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, d, padding_idx=0)
            self.register_buffer(
                "positions", torch.tensor(sinusoids(size.length, d)).float(), False
            )
            self.dropout = nn.Dropout(DROPOUT)
            self.encoder, self.decoder = Stack(False), Stack(True)

        def embed(self, ids: Any) -> Any:
            x = self.embedding(ids) * math.sqrt(d) + self.positions[: ids.shape[1]]
            return self.dropout(x)

        def forward(self, input_ids: Any, attention_mask: Any, labels: Any) -> Any:
            mask = attention_mask.bool()[:, None, None, :]
            memory = self.encoder(self.embed(input_ids), mask=mask)
            shifted = labels.roll(1, 1).masked_fill(labels.roll(1, 1) == -100, 0)
            shifted[:, 0] = 1
            logits = self.decoder(self.embed(shifted), memory, mask) @ self.embedding.weight.T
            return functional.cross_entropy(
                logits.flatten(0, 1), labels.flatten(), ignore_index=-100,
                label_smoothing=SMOOTHING,
            )  # fmt: skip

    theirs = Transformer()
    values = {name: torch.tensor(array) for name, array in model.state_dict().items()}
    theirs.load_state_dict(values)  # strict: the names and shapes are the same
    return theirs


def their_step(torch: Any, model: Any, batch: dict[str, Any]) -> Any:
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, (0.9, 0.98), 1e-9, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        model(**batch).backward()
        optimizer.step()

    return step


def set_dropout(model: Any, kind: type, p: float) -> None:
    for module in model.modules():
        if isinstance(module, kind):
            module.p = p


def assert_same_work(ours: Any, theirs: Any, batch: Any, tensors: Any) -> None:
    """Loss, with label smoothing, and norm of the gradient."""
    loss, other = ours(**batch).loss, theirs(**tensors)
    loss.backward()
    other.backward()
    norms = (
        math.sqrt(sum(float((p.grad**2).sum()) for p in model.parameters()))
        for model in (ours, theirs)
    )
    values = [np.float32(x) for x in (loss.item(), other.item(), *norms)]
    common.assert_same("training step", values[::2], values[1::2])


def measure(size: Size, rounds: int) -> dict[str, Any]:
    torch = common.peer("torch")
    batch, model = batch_of(size), our_model(size)
    theirs = None
    if torch is not None:
        torch.set_num_threads(THREADS)
        tensors = {name: torch.tensor(array) for name, array in batch.items()}
        peer = their_model(torch, model, size)
        pairs = ((model, nn.Dropout), (peer, torch.nn.Dropout))
        for side, kind in pairs:
            set_dropout(side, kind, 0.0)
        assert_same_work(model, peer, batch, tensors)
        for side, kind in pairs:
            set_dropout(side, kind, DROPOUT)
        theirs = their_step(torch, peer, tensors)
    ours, theirs = common.alternate(our_step(model, batch), theirs, rounds)
    ours = ours.times(1e3)
    theirs = None if theirs is None else theirs.times(1e3)
    reached = None
    if theirs is not None and size.goal is not None:
        reached = ours.median[0] <= size.goal * theirs.median[0]
    goal = "" if size.goal is None else f"<= {size.goal} x"
    return common.row(
        "training step", str(size), "ms", ours, theirs, peer="torch", goal=goal, reached=reached
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=positive_int, default=9)
    parser.add_argument("--allocator", choices=("keep", "default"), default="keep")
    parser.add_argument(
        "--sizes", type=int, nargs="+", choices=range(3), default=[0, 1, 2], help="which of them"
    )
    parser.add_argument("--no-save", action="store_true", help="write no result file")
    options = parser.parse_args(arguments)
    allocator = common.set_allocator(options.allocator)
    sizes = [SIZES[i] for i in options.sizes]
    if options.allocator == "default":  # the goals are for a setting that is good for both sides
        sizes = [size._replace(goal=None) for size in sizes]
    rows = []
    for size in sizes:
        rows.append(measure(size, options.rounds))
        step = our_step(our_model(size), batch_of(size))
        rows.append(products.limit("training step", str(size), step, options.rounds))
    measured = common.facts(allocator=allocator, rounds=options.rounds)
    print(common.table(rows))
    if not options.no_save:
        name = "train_step" if options.allocator == "keep" else "train_step_default_allocator"
        print("written:", common.write_results(name, rows, measured))


if __name__ == "__main__":
    common.command(main)
