"""What a small BART learns to summarise, and in how many seconds.

    python -m bench.summaries --data FOLDER [--no-save]
    python -m bench.summaries --data FOLDER --only scratch
    python -m bench.summaries --data FOLDER --steps 3      a trial of all, which writes nothing

FOLDER holds SciTLDR's abstracts as they are published (train, dev, test; .jsonl.gz): 1,992 of
scientific papers, each with a sentence that says what is in it, and 618 to test on. Runs denoise
as a user would, in processes of its own and in a temporary folder:

- pretrained: on the abstracts that are learnt from, spoilt; then on their summaries;
- scratch: on their summaries alone, with random weights.

The first sentence of each abstract, which needs no learning, is scored as well. There is no peer.
"""

from __future__ import annotations

import argparse
import datetime
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import common
from bench.finetuning import scores_of, write_lines
from bench.translation import kept, run
from tinyfm.demos.cli import positive_int
from tinyfm.demos.records import read_summaries

SIZES = ("--vocab-size", "8000", "--max-length", "256")
PRETRAINING, LEARNING = 1200, 2000  # steps
FIRST = {"ROUGE-1": 28.24, "ROUGE-2": 10.45, "ROUGE-L": 22.35}  # of the first sentences


def corpus(data: Path, folder: Path) -> Path:
    """The abstracts that are learnt from, a sentence a line, a blank line between them."""
    records = read_summaries(data / "train.jsonl.gz")
    lines = (line for record in records for line in (*record.sentences, ""))
    return write_lines(folder / "abstracts.txt", lines)


def measure(work: str, data: Path, steps: int | None) -> list[Any]:
    """Learn and score; a row for each score, one for the time, and those of the first sentences."""
    test = data / "test.jsonl.gz"
    files = ["--train", str(data / "train.jsonl.gz"), "--valid", str(data / "dev.jsonl.gz")]
    begin: list[str] = [*SIZES]
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        said = []
        if work == "pretrained":
            first = ["--corpus", str(corpus(data, Path(folder))), *SIZES, "--save", "pretrained"]
            first += ["--steps", str(steps or PRETRAINING)]
            said.append(run("denoise", *first, cwd=folder))
            begin = ["--model", "pretrained"]
        how = [*files, *begin, "--steps", str(steps or LEARNING), "--summarize", str(test)]
        out = run("denoise", *how, cwd=folder)
        took = time.perf_counter() - start
    said.append(out)
    facts = [str(datetime.date.today())]
    for each in said:
        facts += re.findall(r"^noise .*|^\d+ records, .*|^loss .* steps, \d+ s", each, re.MULTILINE)
    note = "; ".join(facts)
    rows = [
        common.row("summaries", f"SciTLDR test, {work}: {name}", unit, number, note=note)
        for name, (number, unit) in scores_of(out, str(test)).items()
    ]
    for name, (number, unit) in scores_of(out, f"first sentences of {test}").items():
        goal = {"goal": f"= {FIRST[name]}", "reached": number == FIRST[name]}
        rows.append(
            common.row("summaries", f"SciTLDR test, first sentences: {name}", unit, number, **goal)
        )
    return [*rows, common.row("time", f"SciTLDR, {work}: whole command", "s", took)]


def main(arguments: list[str] | None = None) -> None:
    works = ("pretrained", "scratch")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, metavar="FOLDER", required=True)
    parser.add_argument("--only", choices=works, nargs="+", default=list(works))
    parser.add_argument("--steps", type=positive_int, metavar="N", help="a trial, not written")
    parser.add_argument("--no-save", action="store_true", help="write no result file")
    options = parser.parse_args(arguments)
    measured = common.facts()
    found: dict[str, dict[str, Any]] = {}  # by its work: the first sentences only once
    for work in options.only:
        rows = measure(work, options.data.resolve(), options.steps)
        found |= {row["work"]: row for row in rows}
    rows = list(found.values())
    print(common.table(rows))
    if not options.no_save and not options.steps:
        print(
            "written:", common.write_results("summaries", kept("summaries", rows) + rows, measured)
        )


if __name__ == "__main__":
    common.command(main)
