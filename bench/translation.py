"""What the translate command learns, and in how many seconds.

    python -m bench.translation [--multi30k FOLDER] [--tatoeba FILE] [--no-save]
    python -m bench.translation --only multi30k --multi30k FOLDER --tried "--dropout 0.1"

Runs `python -m tinyfm.demos.translate` as a user would, in a process of its own and in a temporary
folder:

- with its defaults, on the embedded sentences;
- on Multi30k English to German, whose files (train, val, test_2016_flickr; .en.gz, .de.gz) are
  in FOLDER, with the defaults for files;
- on Tatoeba Korean to English, from a table with a header, the columns en, ko and split;
- on the second task of the paper: a sentence to its bracketed parse (tinyfm.demos.parses).

BLEU is sacreBLEU's default, cased and detokenised; there is no peer, and published values on
Multi30k are of lower-cased, tokenised text.  --tried runs one of them with other options and adds
the result to another file, which shows what else was tried.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import common
from tinyfm.text import read_lines

ROOT = Path(__file__).parents[1]
SCORE = re.compile(
    r"^BLEU (\S+) greedy \((\S+) exact\)"
    r"(?:, (\S+) with (\d+) beams \((\S+) exact\))?: (\d+ .*), \d+ s$",
    re.MULTILINE,
)


def run(module: str, *options: str, cwd: str) -> str:
    """Standard output of a command of tinyfm, which is shown as well."""
    done = subprocess.run(
        [sys.executable, "-m", f"tinyfm.demos.{module}", *options],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=cwd, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    print(done.stdout, flush=True)
    return done.stdout


def rows_of(work: str, *options: str, goals: tuple[float, ...] = (), seconds: float) -> list[Any]:
    """Train with the options; a row for each score (at least goals[i]) and one for the time."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        out = run("translate", "--save", "model", *options, cwd=folder)
        took = time.perf_counter() - start
    names = (Path(option).name if os.sep in option else option for option in options)
    facts = f"{datetime.date.today()}, `translate {' '.join(names)}`; {out.splitlines()[0]}"
    said = re.search(r"^loss .* steps, \d+ s", out, re.MULTILINE)[0]
    signature = re.search(r"^ +(nrefs\S+)", out, re.MULTILINE)[1]
    rows = []
    for i, (greedy, exact, beam, beams, exact_beam, test) in enumerate(SCORE.findall(out)):
        for score, how, whole in (
            (greedy, "greedy", exact),
            (beam, f"{beams} beams", exact_beam),
        ):
            if score:
                least = goals[i] if i < len(goals) else None
                rows.append(
                    common.row(
                        "translation", f"{work}: {test}, {how}", "BLEU", float(score),
                        goal="" if least is None else f">= {least}",
                        reached=None if least is None else float(score) >= least,
                        note=f"{facts}; {said}; {whole} of the sentences exact; {signature}",
                    )
                )  # fmt: skip
    goal = {"goal": f"<= {seconds:.0f}", "reached": took <= seconds}
    return [*rows, common.row("time", f"{work}: whole command", "s", took, **goal)]


def embedded(options: argparse.Namespace, *others: str) -> list[Any]:
    return rows_of("embedded Korean-English", *others, goals=(90, 70), seconds=120)


def multi30k(options: argparse.Namespace, *others: str) -> list[Any]:
    files = []
    for option, part in (("train", "train"), ("valid", "val"), ("test", "test_2016_flickr")):
        paths = (str(options.multi30k.resolve() / f"{part}.{side}.gz") for side in ("en", "de"))
        files += [f"--{option}", *paths]
    return rows_of("Multi30k en-de", *files, *others, goals=(30,), seconds=2700)


def tatoeba(options: argparse.Namespace, *others: str) -> list[Any]:
    lines = [line.split("\t") for line in read_lines(options.tatoeba)]
    names = lines[0]
    files = []
    with tempfile.TemporaryDirectory() as folder:
        for option, part in (("train", "train"), ("valid", "dev"), ("test", "test")):
            path = Path(folder) / f"{part}.tsv"
            rows = [dict(zip(names, line, strict=True)) for line in lines[1:]]
            text = "".join(f"{r['ko']}\t{r['en']}\n" for r in rows if r["split"] == part)
            path.write_text(text, encoding="utf-8")
            files += [f"--{option}", str(path)]
        size = ("--steps", "2500", "--vocab-size", "4000", "--dropout", "0.3")
        return rows_of("Tatoeba ko-en", *files, *size, *others, seconds=2700)


def parses(options: argparse.Namespace, *others: str) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        run("parses", "--save", folder, cwd=folder)
        files = []
        for part in ("train", "valid", "test"):
            files += [f"--{part}", str(Path(folder) / f"{part}.tsv")]
        size = ("--steps", "2500", "--vocab-size", "300", "--d-model", "128", "--layers", "2")
        return rows_of("sentence to parse", *files, *size, *others, seconds=600)


WORKS: dict[str, Callable[..., list[Any]]] = {
    "embedded": embedded, "multi30k": multi30k, "tatoeba": tatoeba, "parses": parses,
}  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--multi30k", type=Path, metavar="FOLDER")
    parser.add_argument("--tatoeba", type=Path, metavar="FILE")
    parser.add_argument("--only", choices=WORKS, nargs="+", default=list(WORKS))
    parser.add_argument("--tried", metavar="OPTIONS", help="other options, in one argument")
    parser.add_argument("--no-save", action="store_true", help="write no result file")
    options = parser.parse_args(arguments)
    name = "translation" if options.tried is None else "translation_tried"
    measured = common.facts()
    rows: list[dict[str, Any]] = []
    for work in options.only:
        if work not in ("multi30k", "tatoeba") or getattr(options, work):
            rows += WORKS[work](options, *shlex.split(options.tried or ""))
    if options.tried is not None:
        rows = [{**row, "work": f"{row['work']}; {options.tried}"} for row in rows]
    print(common.table(rows))
    if not options.no_save:
        print("written:", common.write_results(name, kept(name, rows) + rows, measured))


def kept(name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the result file that these do not replace: each work takes its own hour."""
    path = common.RESULTS / f"{name}.json"
    if not path.is_file():
        return []
    new = {_run(row) for row in rows}
    old = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return [row for row in old if _run(row) not in new]


def _run(row: dict[str, Any]) -> str:
    """What was run; after the colon stands what was found of it."""
    return row["work"].partition(":")[0]


if __name__ == "__main__":
    common.command(main)
