"""Every row of the speed goals in one run, tinyfm beside its peers, and what came out.

    python -m bench --text FILE [--only NAME ...]

Runs the benches one after the other, each in a process of its own, then bench.report, and prints
the rows that have a goal.  --text: the text for bench.characters (tiny Shakespeare), which is left
out without it.  Nothing else should run on the machine meanwhile; it takes some twenty minutes.
bench.multi30k, bench.translation and others that measure what is learnt are run by themselves.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import common, report

BENCHES: dict[str, tuple[str, Sequence[str]]] = {  # result file -> module, options
    "train_step": ("train_step", ()),
    "train_step_default_allocator": ("train_step", ("--allocator", "default")),
    "characters": ("characters", ()),
    "masked_lm": ("masked_lm", ()),
    "generate": ("generate", ()),
    "ops": ("ops", ()),
    "ops_default_allocator": ("ops", ("--allocator", "default")),
    "breakdown": ("breakdown", ()),
    "scaling": ("scaling", ()),
}


def with_goals(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of result files that have a goal, each with the file's name in its work."""
    return [
        {**row, "work": f"{document['name']}: {row['work']}"}
        for document in documents
        for row in document["rows"]
        if row["goal"]
    ]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--text", type=Path, metavar="FILE", help="what bench.characters learns")
    parser.add_argument("--only", choices=BENCHES, nargs="+", metavar="NAME", default=[*BENCHES])
    options = parser.parse_args(arguments)
    if options.text is not None and not options.text.is_file():
        parser.error(f"--text {options.text}: there is no such file")
    done = []
    for name in options.only:
        module, extra = BENCHES[name]
        if module == "characters":
            if options.text is None:
                print("characters is left out: it needs --text FILE", flush=True)
                continue
            extra = ("--text", str(options.text))
        print(f"\n== {name}", flush=True)
        status = subprocess.run([sys.executable, "-m", f"bench.{module}", *extra]).returncode
        if status:  # it has said why
            sys.exit(status)
        done.append(name)
    report.main()
    rows = with_goals([d for d in report.documents() if d["name"] in done])
    for peer in dict.fromkeys(row["peer"] for row in rows):
        print(f"\n{common.table([row for row in rows if row['peer'] == peer])}")


if __name__ == "__main__":
    common.command(main)
