"""Where a training step of tinyfm goes: matrix products, passes over arrays, Python, optimizer.

    python -m bench.breakdown [--rounds 9] [--no-save]

For the three sizes of bench.train_step, in ms of a step:

- the step, its optimizer, and each kind of op, forward and backward, as the clock sees them
- matrix products: those of the step alone, on arrays of the same shapes; no NumPy does without
- Python: the same step of the same network on arrays of next to no size, so that only calls are
  left
- passes over arrays: what remains; elementwise arithmetic, sums, exp, copies
- memory: page faults of a step, which an allocator that gives freed arrays back makes many of; and
  the step under glibc's own setting, in a process of its own
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from bench import common, products
from bench.train_step import SIZES, Size, batch_of, our_model, our_step
from tinyfm import optim
from tinyfm.demos.cli import positive_int


def median_of(step: Callable[[], Any], rounds: int) -> float:
    return common.alternate(step, None, rounds)[0].median[0]


def page_faults(step: Callable[[], Any], steps: int = 5) -> float:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(steps):
        step()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / steps


# -- the table -------------------------------------------------------------------------------------


def measure(size: Size, rounds: int, default: list[float] | None) -> list[dict[str, Any]]:
    """Rows of one size; default: ms and page faults of a step under glibc's own setting."""
    model, batch = our_model(size), batch_of(size)
    step = our_step(model, batch)
    whole = median_of(step, rounds)
    faults = page_faults(step)
    optimizer = optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
    optimizing = median_of(optimizer.step, rounds)

    records = []
    for _ in range(rounds):
        times = products.new_times()
        shapes: products.Shapes = []
        with products.watched(times, shapes):
            step()
        records.append(times)
    multiplying = median_of(products.multiply(shapes), rounds)

    # The same layers and calls: one pair of two tokens, eight numbers wide for each head.
    small = size._replace(d=8 * size.heads, ffn=8, batch=1, length=2)
    calling = median_of(our_step(our_model(small), batch_of(small)), rounds)

    def row(work: str, seconds: float, note: str = "") -> dict[str, Any]:
        share = f"{seconds / whole:.0%} of the step"
        text = f"{share}; {note}" if note else share
        return common.row(str(size), work, "ms", seconds * 1e3, note=text)

    passes = whole - multiplying - optimizing - calling
    rows = [
        common.row(str(size), "a step", "ms", whole * 1e3),
        row("matrix products", multiplying),
        row("passes over arrays", passes),
        row("optimizer", optimizing),
        row("Python", calling),
    ]
    names = sorted(records[0], key=lambda name: -sum(records[0][name]))
    for name in names:
        forward, backward = (
            statistics.median(times[name][place] for times in records) for place in (0, 1)
        )
        if forward + backward >= 0.005 * whole:
            text = f"forward {forward * 1e3:.3g}, backward {backward * 1e3:.3g}"
            rows.append(row(f"op {name}", forward + backward, text))
    rows.append(common.row(str(size), "page faults of a step", "", faults))
    if default is not None:
        rows.append(common.row(str(size), "a step, glibc's own setting", "ms", default[0]))
        rows.append(common.row(str(size), "page faults, glibc's own setting", "", default[1]))
    return rows


def print_default(number: int, rounds: int) -> None:
    """ms and page faults of a step in this process, which has left the allocator alone."""
    step = our_step(our_model(SIZES[number]), batch_of(SIZES[number]))
    print(json.dumps([median_of(step, rounds) * 1e3, page_faults(step)]))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=positive_int, default=9)
    parser.add_argument("--no-save", action="store_true", help="write no result file")
    parser.add_argument("--default", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.default is not None:
        print_default(options.default, options.rounds)
        return
    allocator = common.set_allocator("keep")
    rows = []
    for number, size in enumerate(SIZES):
        command = [sys.executable, "-m", "bench.breakdown", "--default", str(number)]
        command += ["--rounds", str(options.rounds)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows += measure(size, options.rounds, json.loads(done.stdout))
    measured = common.facts(allocator=allocator, rounds=options.rounds)
    print(common.table(rows))
    if not options.no_save:
        print("written:", common.write_results("breakdown", rows, measured))


if __name__ == "__main__":
    common.command(main)
