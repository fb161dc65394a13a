"""Turn bench/results/*.json into its README.md and pictures: `python -m bench.report`.

The project's README quotes the rows of speed, which are written there, too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench import common, plots

README = Path(__file__).parents[1] / "README.md"
INTRODUCTION = """\
# Results

Written by `python -m bench.report` from the JSON files beside it; do not edit.

How it is measured: tinyfm and its peer run **in one process, in turns** (a b a b ...), with the
same number of threads, the same dtype and the same allocator setting, after a check that both give
the same values and gradients (to 1e-4 of the largest entry; of a training step: the same loss and
norm of the gradient). Times are medians; a pair reads
forward + backward = sum. The ratio is tinyfm / peer: lower is better. `kept` means that glibc keeps
freed memory (`tinyfm.backend.keep_memory`), for the peer as well, which gains more from it. A peer
that is not installed is named as missing. Tiny ops are the cost of one op in a chain of 200 on
8 numbers (8 x 8 for matmul). Before each turn the threads of the other side come to rest: OpenBLAS
and OpenMP workers spin on for a while after a job, and would take a core from whoever is next.

BLEU of the translate command is sacreBLEU's default, cased and detokenised; its signature stands
with each score. Published values on Multi30k (41.02 for a small Transformer) are of lower-cased,
tokenised text, as in the section on `bench.multi30k`, and cannot be compared with the others.

Spread is median / fastest, of the side where it is larger. Far above 1 means that other programs
were running on the machine: such a row says little about either side.

The rows of speed come from one run of `python -m bench`, and those of small ops from
`python -m bench --only ops ops_default_allocator` on the same day. OpenBLAS picks its kernels by
the processor ("OpenBLAS for" says which), as it does for a user; the variable OPENBLAS_CORETYPE
must not be set.

![Time over the peer's time, with the goals](goals.png)
"""

TITLES = {
    "ops": "Ops (`python -m bench.ops`)",
    "train_step": "Training step (`python -m bench.train_step`)",
    "train_step_default_allocator": (
        "Training step, glibc's own allocator setting (`--allocator default`)"
    ),
    "translation": "Translation (`python -m bench.translation`)",
    "translation_tried": "Translation, other options (`python -m bench.translation --tried ...`)",
    "masked_lm": "Training step of masked words, base shape (`python -m bench.masked_lm`)",
    "generate": "Generation (`python -m bench.generate`)",
    "multi30k": "The Multi30k anchor (`python -m bench.multi30k`)",
    "breakdown": "Where a training step goes (`python -m bench.breakdown`)",
    "scaling": "How time and memory grow (`python -m bench.scaling`)",
    "characters": "A GPT over characters (`python -m bench.characters`)",
    "finetuning": "BERT's tasks, as a user runs them (`python -m bench.finetuning`)",
    "summaries": "Summaries (`python -m bench.summaries`)",
    "comparisons": "What the commands compare (`python -m bench.comparisons`)",
    "ops_default_allocator": "Ops, glibc's own allocator setting (`--allocator default`)",
}


def render(documents: list[dict[str, Any]]) -> str:
    """The text of README.md."""
    parts = [INTRODUCTION]
    for document in documents:
        title = TITLES.get(document["name"], document["name"])
        if document["name"] in plots.OF_ONE:
            title += f"\n\n![{document['name']}]({document['name']}.png)"
        described = common.describe(document).splitlines()
        parts.append(f"## {title}\n\n" + "".join(f"- {line}\n" for line in described))
        for group, rows in common.groups(document["rows"]).items():
            # One table has one peer column: rows of another peer get a table of their own.
            for peer in dict.fromkeys(r["peer"] for r in rows):
                members = [r for r in rows if r["peer"] == peer]
                beside = f", beside {peer}" if peer else ""
                parts.append(f"### {group.capitalize()}{beside}\n\n{common.table(members)}\n")
                # Rows of one run have one note, which stands by the first of them.
                noted = {r["note"]: r["work"] for r in reversed(members) if r["note"]}
                notes = "".join(f"- {work}: {note}\n" for note, work in [*noted.items()][::-1])
                if notes:
                    parts.append(notes)
    return "\n".join(parts)


QUOTED = ("train_step", "characters", "masked_lm", "generate")  # in the project's own README
MARKS = ("<!-- speed: written by python -m bench.report -->\n", "<!-- end of speed -->\n")


def quoted(documents: list[dict[str, Any]]) -> str:
    """The rows of time with a goal, as the project's README has them, under machine and date."""
    found = [d for name in QUOTED for d in documents if d["name"] == name]
    lines = ["| work | tinyfm | peer | time of tinyfm / peer | goal |", "|---|---|---|---|---|"]
    for document in found:
        for row in document["rows"]:
            if row["ratio"] is None or plots.goal_of(row) is None:
                continue
            ours, theirs = (common.number(row[side]["sum"]) for side in ("tinyfm", "theirs"))
            ratio = f"{row['ratio']:.2f}"
            lines.append(
                f"| {row['group']}: {row['work']} | {ours} {row['unit']} | "
                f"{row['peer']}: {theirs} {row['unit']} | "
                f"{f'**{ratio}**' if row['reached'] else ratio} | {row['goal']} |"
            )
    versions = {k: v for d in found for k, v in (d["versions"] | d["peers"]).items()}
    said = ", ".join(f"{k} {v}" for k, v in versions.items() if k != "tinyfm")
    machines = dict.fromkeys(f"{d['machine']['cpu']}, {d['machine']['cores']} cores" for d in found)
    dates = dict.fromkeys(d["date"][:10] for d in found)
    lines += ["", f"{'; '.join(machines)}; {', '.join(dates)}; {said}."]
    return "\n".join(lines) + "\n"


def with_quoted(text: str, documents: list[dict[str, Any]]) -> str:
    """A README with the table between its marks made anew."""
    before, rest = text.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    return f"{before}{MARKS[0]}\n{quoted(documents)}\n{MARKS[1]}{after}"


def documents(folder: Path = common.RESULTS) -> list[dict[str, Any]]:
    """All result files of a folder, by name."""
    return [json.loads(p.read_text(encoding="utf-8")) for p in sorted(folder.glob("*.json"))]


def main(folder: Path = common.RESULTS) -> None:
    path = folder / "README.md"
    found = documents(folder)
    path.write_text(render(found), encoding="utf-8")
    print("written:", path, *plots.draw(found, folder))
    if folder == common.RESULTS:
        text = README.read_text(encoding="utf-8")
        README.write_text(with_quoted(text, found), encoding="utf-8")
        print("written:", README)


if __name__ == "__main__":
    common.command(main)
