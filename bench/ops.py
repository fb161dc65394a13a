"""The cost of ops: tinyfm beside torch eager, in one process and in turns.

    python -m bench.ops [--rounds N] [--quick] [--allocator keep|default] [--no-save]

Three groups of rows:
* tiny ops: the price per op of a chain of 200 ops on a handful of numbers, that is the overhead of
  the engine itself, forward and backward;
* the ops of a training step, at the size that a batch of 128 sentences of 20 tokens gives them;
* single costs: importing tinyfm, the memory of attention, the gradient of a large embedding.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

if not __package__:  # run as `python bench/ops.py`
    sys.path[0] = str(Path(__file__).parents[1])

import bench  # first: it sets the number of threads that NumPy is imported with

import numpy as np  # isort: skip

import tinyfm
from bench import common
from tinyfm import masks, ops

Row = dict[str, Any]
TINY, STEP, COST = "tiny ops, per op of a chain", "the ops of a training step", "single costs"


# -- tiny ops -------------------------------------------------------------------------------------


class Tiny(NamedTuple):
    """One op of a chain y = f(y, c, w) that keeps y's shape; c wants no gradient, w wants one."""

    work: str
    ours: Callable[[Any, Any, Any], Any]
    theirs: Callable[[Any, Any, Any], Any] | None = None  # None: the same expression does
    shape: tuple[int, ...] = (8,)
    ops_in_a_link: int = 1


TINY_OPS = [
    Tiny("add", lambda y, c, w: y + c),
    Tiny("mul", lambda y, c, w: y * c),
    Tiny("mul, both gradients", lambda y, c, w: y * w),
    Tiny("mul by a Python number", lambda y, c, w: y * 1.001),
    Tiny("exp(-y), two ops", lambda y, c, w: (-y).exp(), ops_in_a_link=2),
    Tiny("tanh", lambda y, c, w: y.tanh()),
    Tiny("reshape", lambda y, c, w: y.reshape(8)),
    Tiny("getitem, a slice", lambda y, c, w: y[0:8]),
    Tiny(
        "sum over an axis of 1",
        lambda y, c, w: y.sum(axis=0, keepdims=True),
        lambda y, c, w: y.sum(0, keepdim=True),
        shape=(1, 8),
    ),
    Tiny("matmul 8 x 8", lambda y, c, w: y @ c, shape=(8, 8)),
]


def tiny_ops(torch: Any, rounds: int, length: int) -> Iterator[Row]:
    """The chains: forward builds one of `length` links, backward walks it."""
    rng = np.random.default_rng(0)
    for tiny in TINY_OPS:
        x = rng.uniform(0.1, 0.9, tiny.shape).astype(np.float32)
        factor = np.full(tiny.shape, 1.001, np.float32)
        if tiny.shape == (8, 8):
            factor = np.linalg.qr(rng.standard_normal((8, 8)))[0].astype(np.float32)
        g = rng.uniform(0.5, 1, tiny.shape).astype(np.float32)

        def chain(f, x, c, w, g, length=length):
            def forward():
                x.grad = w.grad = None
                y = x
                for _ in range(length):
                    y = f(y, c, w)
                return y

            return forward, lambda y: y.backward(g)

        our_leaves = [tinyfm.tensor(a, requires_grad=True) for a in (x, factor)]
        ours = chain(tiny.ours, our_leaves[0], tinyfm.tensor(factor), our_leaves[1], g)
        theirs = None
        if torch is not None:
            their_leaves = [torch.tensor(a, requires_grad=True) for a in (x, factor)]
            f = tiny.theirs or tiny.ours
            theirs = chain(
                f, their_leaves[0], torch.tensor(factor), their_leaves[1], torch.tensor(g)
            )
            check(tiny.work, ours, our_leaves, theirs, their_leaves)
        us = 1e6 / (length * tiny.ops_in_a_link)
        seconds = common.alternate(ours, theirs, rounds, settle=0)  # no worker threads here
        a, b = (side and side.times(us) for side in seconds)
        within = max(a.median) <= 3
        yield common.row(
            TINY, tiny.work, "us", a, b, peer="torch",
            goal="<= 3 + 3, sum <= torch",
            reached=False if not within else None if b is None else sum(a.median) <= sum(b.median),
        )  # fmt: skip


def check(work: str, ours: Any, our_leaves: list, theirs: Any, their_leaves: list) -> None:
    """Both sides once, values and all gradients compared."""

    def results(side, leaves):
        forward, backward = side
        y = forward()
        backward(y)
        grads = [np.asarray(leaf.grad) for leaf in leaves if leaf.grad is not None]
        return [y.detach().numpy(), *grads]

    common.assert_same(work, results(ours, our_leaves), results(theirs, their_leaves))


# -- the ops of a training step -------------------------------------------------------------------


class Sizes(NamedTuple):
    """A batch of the training step that performance.md times first (V 8000, d 128)."""

    batch: int = 128
    length: int = 20
    width: int = 128
    inner: int = 512
    vocabulary: int = 8000
    heads: int = 4
    attended: int = 2048  # tokens of the attention rows: 64 sentences of 32, or 2 of 1024
    short: int = 32
    long: int = 1024
    longest: int = 4096
    large_vocabulary: int = 30522
    large_ids: int = 8192


QUICK = Sizes(3, 4, 8, 16, 50, 2, 48, 8, 24, 64, 100, 60)


class Step(NamedTuple):
    """One op at a size: ours(*inputs) and theirs(torch.nn.functional, *inputs) make its result.

    inputs: arrays; the floating ones become tensors that want gradients.
    """

    work: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]
    same: bool = True  # dropout draws other masks: compared in its own way


def step_ops(sizes: Sizes) -> Iterator[Step]:
    rng = np.random.default_rng(1)
    rows, d, inner = sizes.batch * sizes.length, sizes.width, sizes.inner

    def normal(*shape, scale=1.0):
        return (scale * rng.standard_normal(shape, np.float32)).astype(np.float32)

    x, wide = normal(rows, d), normal(rows, inner)
    weight, bias = normal(inner, d, scale=d**-0.5), normal(inner)
    labels = rng.integers(0, sizes.vocabulary, rows)
    labels[::8] = -100

    yield Step(
        f"linear {rows} x {d} -> {inner}", ops.linear, lambda F, *a: F.linear(*a),
        (x, weight, bias),
    )  # fmt: skip
    yield Step(
        f"layer_norm {rows} x {d}", ops.layer_norm,
        lambda F, x, w, b: F.layer_norm(x, (d,), w, b), (x, normal(d), normal(d)),
    )  # fmt: skip
    yield Step(
        f"softmax {rows} x {inner}", ops.softmax, lambda F, x: F.softmax(x, -1), (wide,)
    )  # fmt: skip
    for form in ("none", "tanh"):
        yield Step(
            f"gelu {'exact' if form == 'none' else form} {rows} x {inner}",
            lambda x, form=form: ops.gelu(x, approximate=form),
            lambda F, x, form=form: F.gelu(x, approximate=form), (wide,),
        )  # fmt: skip
    yield Step(
        f"dropout 0.1 {rows} x {inner}",
        lambda x: ops.dropout(x, p=0.1, seed=tinyfm.backend.draw_seed()),
        lambda F, x: F.dropout(x, 0.1), (wide,), same=False,
    )  # fmt: skip
    yield embedding_step(sizes.vocabulary, rows, d)
    yield Step(
        f"cross_entropy {rows} x {sizes.vocabulary}",
        lambda z, t: ops.cross_entropy(z, t, label_smoothing=0.1),
        lambda F, z, t: F.cross_entropy(z, t, label_smoothing=0.1),
        (normal(rows, sizes.vocabulary), labels),
    )
    yield Step(
        f"linear + cross_entropy {rows} x {d} -> {sizes.vocabulary}",
        lambda h, w, t: ops.linear_cross_entropy(h, w, None, t, label_smoothing=0.1),
        lambda F, h, w, t: F.cross_entropy(F.linear(h, w), t, label_smoothing=0.1),
        (x, normal(sizes.vocabulary, d, scale=d**-0.5), labels),
    )
    for length in (sizes.short, sizes.long):  # as many tokens in either case
        shape = (sizes.attended // length, sizes.heads, length, 32)
        yield Step(
            "attention causal B {} H {} T {} D {}".format(*shape),
            lambda q, k, v: ops.attention(q, k, v, masks.causal()),
            lambda F, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
            (normal(*shape), normal(*shape), normal(*shape)),
        )


def embedding_step(vocabulary: int, count: int, width: int) -> Step:
    rng = np.random.default_rng(3)
    table = rng.standard_normal((vocabulary, width), np.float32)
    return Step(
        f"embedding V {vocabulary}, {count} ids, d {width}",
        ops.embedding,
        lambda F, weight, ids: F.embedding(ids, weight),
        (table, rng.integers(0, vocabulary, count)),
    )


def training_ops(torch: Any, rounds: int, sizes: Sizes) -> Iterator[Row]:
    for step in step_ops(sizes):
        yield compare(STEP, step, torch, rounds)


def compare(group: str, step: Step, torch: Any, rounds: int) -> Row:
    """Forward and backward of one op beside torch's, in ms, after the same-work check."""

    def floating(a):
        return a.dtype.kind == "f"

    def side(f, inputs, leaves, g):
        def forward():
            for leaf in leaves:
                leaf.grad = None
            return f(*inputs)

        return forward, lambda y: y.backward(g)

    inputs = [tinyfm.tensor(a, requires_grad=True) if floating(a) else a for a in step.inputs]
    our_leaves = [x for x in inputs if isinstance(x, tinyfm.Tensor)]
    shape = step.ours(*inputs).shape
    g = np.asarray(np.random.default_rng(2).standard_normal(shape), np.float32)
    ours = side(step.ours, inputs, our_leaves, g)
    theirs = None
    if torch is not None:
        inputs = [torch.tensor(a, requires_grad=floating(a)) for a in step.inputs]
        their_leaves = [x for x in inputs if x.requires_grad]
        f = functools.partial(step.theirs, torch.nn.functional)
        theirs = side(f, inputs, their_leaves, torch.tensor(g))
        if step.same:
            check(step.work, ours, our_leaves, theirs, their_leaves)
        else:
            check_dropout(f"{step.work}, tinyfm", ours, our_leaves[0], step.inputs[0], g)
            check_dropout(f"{step.work}, torch", theirs, their_leaves[0], step.inputs[0], g)
    seconds = common.alternate(ours, theirs, rounds)
    a, b = (timing and timing.times(1e3) for timing in seconds)
    return common.row(group, step.work, "ms", a, b, peer="torch")


def check_dropout(work: str, side: Any, leaf: Any, x: np.ndarray, g: np.ndarray) -> None:
    """The masks of two generators differ: 1 - p is kept and scaled, and so is the gradient."""
    y = side[0]()
    side[1](y)
    y, grad = y.detach().numpy(), np.asarray(leaf.grad)
    kept = y != 0
    if x.size > 10_000 and abs(kept.mean() - 0.9) > 0.005:
        raise common.NotTheSameWork(f"{work}: {kept.mean():.4f} of the entries kept, not 0.9")
    common.assert_same(work, [y, grad], [a * kept / np.float32(0.9) for a in (x, g)])


# -- single costs ---------------------------------------------------------------------------------


def single_costs(torch: Any, rounds: int, sizes: Sizes) -> Iterator[Row]:
    seconds = import_seconds(rounds)
    yield common.row(
        COST, "import tinyfm beyond numpy", "s", seconds, goal="<= 0.1", reached=seconds <= 0.1,
        note=f"median of {rounds} processes",
    )  # fmt: skip

    fused, composed = (attention_memory(sizes, way) for way in ("fused", "composed"))
    yield common.row(
        COST, f"attention T {sizes.longest}, 8 heads x 64, forward + backward, peak extra memory",
        "MB", fused, composed, peer="composed", goal="ratio <= 0.33",
        reached=fused <= composed / 3, note="causal, batch 1; tracemalloc, one run a side",
    )  # fmt: skip

    step = embedding_step(sizes.large_vocabulary, sizes.large_ids, sizes.width)
    found = compare(COST, step, torch, rounds)
    reached = found["tinyfm"]["backward"] < 1000
    yield {**found, "goal": "backward < 1000 (R7)", "reached": reached}


def import_seconds(rounds: int) -> float:
    """Median seconds that `import tinyfm` takes in a new process that has imported NumPy.

    Compiled, as pip leaves it: where this process may write no .pyc files, those still may.
    """
    code = (
        "import time, numpy; start = time.perf_counter(); import tinyfm; "
        "print(time.perf_counter() - start)"
    )
    root = str(Path(__file__).parents[1])
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}

    def once():
        run = subprocess.run(
            [sys.executable, "-c", code],
            env=environment, cwd=root, capture_output=True, check=True, text=True,
        )  # fmt: skip
        return float(run.stdout)

    once()  # the first one may compile the sources
    return statistics.median(once() for _ in range(rounds))


def attention_memory(sizes: Sizes, implementation: str) -> float:
    """MB of arrays, beyond the inputs, at the peak of one forward and backward."""
    shape = (1, 8, sizes.longest, 64)
    rng = np.random.default_rng(4)
    q, k, v = (
        tinyfm.tensor(rng.standard_normal(shape, np.float32), requires_grad=True) for _ in range(3)
    )
    g = rng.standard_normal(shape, np.float32)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    ops.attention(q, k, v, masks.causal(), implementation=implementation).backward(g)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return (peak - before) / 1e6


# -- the command ----------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ops", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--rounds", type=int, metavar="N",
        help="rounds of the ops of a training step (9); tiny ops get five times as many",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="toy sizes, to see that it runs")
    parser.add_argument(
        "--allocator", choices=("keep", "default"), default="keep",
        help="keep: tinyfm's setting of glibc, for both sides (default); default: glibc's own",
    )  # fmt: skip
    parser.add_argument(
        "--folder", type=Path, default=common.RESULTS, help="where the result file goes"
    )
    parser.add_argument("--no-save", action="store_true", help="write no result file")
    options = parser.parse_args(arguments)
    rounds = options.rounds or (1 if options.quick else 9)
    if rounds < 1:
        parser.error("--rounds must be at least 1")
    if options.quick and options.folder == common.RESULTS:
        options.no_save = True  # toy numbers never stand where the real ones do

    torch = common.peer("torch")
    if torch is not None:
        torch.set_num_threads(bench.THREADS)
    allocator = common.set_allocator(options.allocator)
    facts = common.facts(allocator=allocator, rounds=rounds, quick=options.quick)
    print(common.describe(facts), flush=True)
    sizes = QUICK if options.quick else Sizes()
    start, rows = time.perf_counter(), []
    length = 5 if options.quick else 200
    for measured in (
        tiny_ops(torch, rounds if options.quick else 5 * rounds, length),
        training_ops(torch, rounds, sizes),
        single_costs(torch, 1 if options.quick else max(rounds, 7), sizes),
    ):
        for row in measured:
            rows.append(row)
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for group, members in common.groups(rows).items():
        print(f"\n{group}\n\n{common.table(members)}")
    print(f"\n{time.perf_counter() - start:.0f} s")
    if not options.no_save:
        name = "ops" if options.allocator == "keep" else "ops_default_allocator"
        print("written:", common.write_results(name, rows, facts, options.folder))


if __name__ == "__main__":
    common.command(main)
