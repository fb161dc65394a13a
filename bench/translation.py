"""The first translations: what the command learns, and in how many seconds.

    python -m bench.translation [--multi30k FOLDER] [--no-save]

Runs `python -m tinyfm.demos.translate` as a user would, in a process of its own and in a temporary
folder: with its defaults, and on Multi30k English to German, whose files (train, test_2016_flickr,
.en.gz and .de.gz) are in FOLDER.  BLEU is sacreBLEU's default, cased and detokenised, of greedy
translations; there is no peer, and published values on Multi30k are of lower-cased, tokenised text.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import common

ROOT = Path(__file__).parents[1]


def rows_of(work: str, goal: str, *options: str) -> list[dict[str, Any]]:
    """Run the command; a row for its score and one for its time."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "tinyfm.demos.translate", "--save", "model", *options],
            env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        seconds = time.perf_counter() - start
    print(done.stdout)
    bleu = float(re.search(r"^BLEU (\d+\.\d+)", done.stdout, re.MULTILINE)[1])
    said = re.search(r"^loss .* steps, \d+ s", done.stdout, re.MULTILINE)[0]
    least = float(goal.split()[-1]) if goal else None
    group, note = "translation, greedy", f"defaults of the command; {said}"
    reached = None if least is None else bleu >= least
    return [
        common.row(group, work, "BLEU", bleu, goal=goal, reached=reached, note=note),
        common.row(group, f"{work}, whole command", "s", seconds),
    ]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--multi30k", type=Path, metavar="FOLDER")
    parser.add_argument("--no-save", action="store_true", help="write no result file")
    options = parser.parse_args(arguments)
    measured = common.facts()
    rows = rows_of("embedded Korean-English, 300 held-out sentences", ">= 90")
    if options.multi30k:
        folder = options.multi30k.resolve()
        train, test = (
            [str(folder / f"{part}.{side}.gz") for side in ("en", "de")]
            for part in ("train", "test_2016_flickr")
        )
        rows += rows_of("Multi30k en-de, test_2016_flickr", "", "--train", *train, "--test", *test)
    print(common.table(rows))
    if not options.no_save:
        print("written:", common.write_results("translation", rows, measured))


if __name__ == "__main__":
    main()
