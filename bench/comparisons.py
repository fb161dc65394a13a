"""What the commands find when they compare ways to learn, and in how many seconds.

    python -m bench.comparisons [--no-save]
    python -m bench.comparisons --only denoise
    python -m bench.comparisons --steps 3      a trial of all, which writes nothing

Runs the commands as a user would, in processes of their own and in a temporary folder, on what
tinyfm and Python bring along:

- fill_mask: BERT's recipe and RoBERTa's (fill_mask --recipe both);
- denoise: each noise alone, and the default (denoise --compare);
- text_to_text: one model of all tasks beside one of each, and without pretraining
  (text_to_text --compare);
- architectures: encoder-decoder, language model and prefix LM (compare --architectures).

The rows are the cells of the tables that they end with.  There is no peer.
"""

from __future__ import annotations

import argparse
import datetime
import re
import tempfile
import time
from typing import Any

from bench import common
from bench.translation import kept, run
from tinyfm.demos.cli import positive_int

WORKS = {
    "fill_mask": ["fill_mask", "--recipe", "both"],
    "denoise": ["denoise", "--compare"],
    "text_to_text": ["text_to_text", "--compare"],
    "architectures": ["compare", "--architectures"],
}
CELL = re.compile(r"(-?[\d,]+(?:\.\d+)?)(%?)(?: \(.*\))?")  # with what it is a multiple of


def cells(out: str) -> list[tuple[str, str, float, str]]:
    """(row, column, number, unit) of the table at the end; cells without a number are left out."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]
    width = len(lines[-1])
    begin = next(i for i in reversed(range(len(lines))) if len(lines[i]) != width)
    if len(lines[begin]) == width - 1:  # nothing stands above the names of the rows
        header, rows = ["", *lines[begin]], lines[begin + 1 :]
    else:
        header, *rows = lines[begin + 1 :]
    found = []
    for name, *row in rows:
        for column, cell in zip(header[1:], row, strict=True):
            if match := CELL.fullmatch(cell):
                number = float(match[1].replace(",", ""))
                found.append((name, column, number, match[2] or "score"))
    return found


def measure(work: str, steps: int | None) -> list[Any]:
    """Compare; a row for each cell of the table, and one for the time."""
    command, *how = WORKS[work]
    if steps:
        how += ["--steps", str(steps)]
        if work == "text_to_text":
            how += ["--pretraining-steps", str(steps)]
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        out = run(command, *how, cwd=folder)
        took = time.perf_counter() - start
    note = f"{datetime.date.today()}, `{' '.join([command, *how])}`"
    rows = [
        common.row("comparisons", f"{work}: {name}, {column}", unit, number, note=note)
        for name, column, number, unit in cells(out)
    ]
    return [*rows, common.row("time", f"{work}: whole command", "s", took)]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=WORKS, nargs="+", default=list(WORKS))
    parser.add_argument("--steps", type=positive_int, metavar="N", help="a trial, not written")
    parser.add_argument("--no-save", action="store_true", help="write no result file")
    options = parser.parse_args(arguments)
    measured = common.facts()
    rows = [row for work in options.only for row in measure(work, options.steps)]
    print(common.table(rows))
    if not options.no_save and not options.steps:
        rows = kept("comparisons", rows) + rows
        print("written:", common.write_results("comparisons", rows, measured))


if __name__ == "__main__":
    common.command(main)
