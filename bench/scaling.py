"""How time and memory of a training step grow: with length, with width, and with threads.

    python -m bench.scaling [--rounds 5] [--no-save]

A GPT of 4 layers and 1,000 words, tinyfm beside torch eager (scaled_dot_product_attention, fused
AdamW), from the same weights, which must give the same loss and norm of the gradient:

- length: one text of 64 to 4,096 tokens, 256 wide, 4 heads
- width: 4 texts of 256 tokens, 64 to 1,024 wide, heads of 64
- threads: both on 1 and on 2
- memory: the highest resident memory during steps of a length, above what the process had before
  the first one; each in a process of its own

bench.report draws it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bench import THREADS, common
from bench.characters import PEAK, Recipe, Side, our_side, their_side, timed
from tinyfm import blas, models
from tinyfm.backend import keep_memory, manual_seed, settings
from tinyfm.demos.cli import positive_int

VOCABULARY = 1000
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
WIDTHS = (64, 128, 256, 512, 1024)
SIDES = ("tinyfm", "torch")


def of_length(length: int) -> Recipe:
    return Recipe(layers=4, heads=4, width=256, context=length, batch=1)


def of_width(width: int) -> Recipe:
    return Recipe(layers=4, heads=width // 64, width=width, context=256, batch=4)


def windows_of(recipe: Recipe) -> np.ndarray:
    shape = (recipe.batch, recipe.context + 1)
    return np.random.default_rng(0).integers(0, VOCABULARY, shape)


def new_sides(recipe: Recipe) -> dict[str, Side | None]:
    manual_seed(0)
    model, torch = models.GPT2LMHeadModel(recipe.config(VOCABULARY)), common.peer("torch")
    theirs = None if torch is None else their_side(torch, model, recipe)
    return {"tinyfm": our_side(model), "torch": theirs}


def set_threads(number: int) -> None:
    blas.set_threads(number)
    if (torch := common.peer("torch")) is not None:
        torch.set_num_threads(number)


def compare(recipe: Recipe, work: str, rounds: int, threads: int = THREADS) -> dict[str, Any]:
    sides, windows = new_sides(recipe), windows_of(recipe)
    ours, theirs = sides["tinyfm"], sides["torch"]
    assert ours is not None
    set_threads(threads)
    with settings(threads=threads):
        mine, other = timed(work, ours, theirs, windows, rounds)
    return common.row(
        "scaling", work, "ms", mine.times(1e3), None if other is None else other.times(1e3),
        peer="torch",
    )  # fmt: skip


# -- memory ----------------------------------------------------------------------------------------


def peak_of(side: str, length: int) -> float | None:
    """MB, measured in a process of its own; None where the side is not installed."""
    command = [sys.executable, "-m", "bench.scaling", "--peak", side, str(length)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def print_peak(name: str, length: int) -> None:
    """The highest resident memory of 3 steps above that before them, as JSON."""
    keep_memory()
    recipe = of_length(length)
    side = new_sides(recipe)[name]
    if side is None:
        print(json.dumps(None))
        return
    windows, before = windows_of(recipe), resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak starts anew
    for _ in range(3):
        side.step(windows, PEAK)
    print(json.dumps(round(resident("VmHWM") - before, 1)))
    sys.stdout.flush()


def resident(name: str) -> float:
    """MB of this process, by Linux."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"/proc/self/status: no {name}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=positive_int, default=5)
    parser.add_argument("--lengths", type=positive_int, nargs="+", default=LENGTHS)
    parser.add_argument("--widths", type=positive_int, nargs="+", default=WIDTHS)
    parser.add_argument("--no-save", action="store_true", help="write no result file")
    parser.add_argument("--peak", nargs=2, metavar=("SIDE", "LENGTH"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.peak:
        print_peak(options.peak[0], int(options.peak[1]))
        return
    allocator = common.set_allocator("keep")
    rows = [compare(of_length(n), f"length {n}", options.rounds) for n in options.lengths]
    rows += [compare(of_width(n), f"width {n}", options.rounds) for n in options.widths]
    for recipe, work in ((of_width(256), "width 256"), (of_length(1024), "length 1024")):
        rows += [compare(recipe, f"threads {n}, {work}", options.rounds, n) for n in (1, THREADS)]
    set_threads(THREADS)
    for length in options.lengths if os.path.exists("/proc/self/clear_refs") else ():
        ours, theirs = (peak_of(side, length) for side in SIDES)
        assert ours is not None
        rows.append(common.row("memory", f"memory {length}", "MB", ours, theirs, peer="torch"))
    measured = common.facts(allocator=allocator, rounds=options.rounds)
    print(common.table(rows))
    if not options.no_save:
        print("written:", common.write_results("scaling", rows, measured))


if __name__ == "__main__":
    common.command(main)
