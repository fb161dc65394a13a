"""The pictures of the results: one function a file of results, drawn from its JSON alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

GOAL = re.compile(r"<= (?:1 / )?([\d.]+) x")


def goal_of(row: dict[str, Any]) -> float | None:
    """The ratio that a row's goal allows: of "<= 0.67 x" and of "<= 1 / 1.3 x"; else None."""
    found = GOAL.fullmatch(row["goal"])
    if found is None:
        return None
    number = float(found[1])
    return 1 / number if "1 / " in row["goal"] else number


def goals(documents: list[dict[str, Any]], figure: Any) -> None:
    """Time of tinyfm over time of its peer, with the goal as a mark."""
    found = [
        (row["work"], row["peer"], row["ratio"], goal)
        for document in documents
        for row in document["rows"]
        if row["ratio"] is not None and (goal := goal_of(row)) is not None
    ]
    figure.set_size_inches(10, 0.42 * len(found) + 1.2)
    axes = figure.subplots()
    for place, (_, _, ratio, goal) in enumerate(found):
        axes.barh(place, ratio, color="C0" if ratio <= goal else "C1", height=0.6)
        axes.plot([goal, goal], [place - 0.4, place + 0.4], "k", linewidth=2)
        axes.text(0.01, place, f"{ratio:.2f}", color="white", va="center")
    axes.axvline(1, color="0.5", linewidth=1)
    axes.set_yticks(range(len(found)), [f"{work}\nbeside {peer}" for work, peer, _, _ in found])
    axes.tick_params("y", labelsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.08)
    axes.set(xlabel="time of tinyfm / time of its peer; black: the goal; right of 1: slower")


def scaling(document: dict[str, Any], figure: Any) -> None:
    """Both sides over length and width, and memory over length, on logarithmic axes."""
    figure.set_size_inches(11, 3.6)
    titles = {
        "length": ("a step, by length", "tokens", "ms"),
        "width": ("a step, by width", "width", "ms"),
        "memory": ("peak memory of a step, by length", "tokens", "MB"),
    }
    panels = figure.subplots(1, len(titles))
    for axes, (kind, (title, across, up)) in zip(panels, titles.items(), strict=True):
        for side, key in (("tinyfm", "tinyfm"), ("torch", "theirs")):
            points = [
                (int(row["work"].split()[1]), row[key]["sum"])
                for row in document["rows"]
                if row["work"].split()[0] == kind and row[key] is not None
            ]
            if points:
                axes.loglog(*zip(*points, strict=True), marker="o", label=side)
                ticks = [x for x, _ in points]
        axes.set_xticks(ticks, [str(x) for x in ticks], rotation=45)
        axes.minorticks_off()
        axes.set(title=title, xlabel=across, ylabel=up)
        axes.grid(alpha=0.3)
        axes.legend()


def multi30k(document: dict[str, Any], figure: Any) -> None:
    """BLEU of the validation text over minutes of training."""
    figure.set_size_inches(6, 3.6)
    axes = figure.subplots()
    curve = document["curve"]
    axes.plot([p["minutes"] for p in curve], [p["bleu"] for p in curve], marker="o")
    axes.set(
        title="Multi30k English to German: validation text, greedy",
        xlabel="minutes on two cores", ylabel="BLEU, lower-cased and tokenised",
    )  # fmt: skip
    axes.grid(alpha=0.3)


OF_ONE: dict[str, Callable[[dict[str, Any], Any], None]] = {
    "scaling": scaling,
    "multi30k": multi30k,
}


def draw(documents: list[dict[str, Any]], folder: Path) -> list[Path]:
    """Write the pictures beside the results; the paths."""
    from matplotlib.figure import Figure

    by_name = {document["name"]: document for document in documents}
    drawn = []
    wanted: dict[str, tuple[Callable[..., None], Any]] = {"goals": (goals, documents)}
    wanted |= {name: (of, by_name[name]) for name, of in OF_ONE.items() if name in by_name}
    for name, (function, given) in wanted.items():
        figure = Figure(layout="constrained")
        function(given, figure)
        drawn.append(folder / f"{name}.png")
        figure.savefig(drawn[-1], dpi=110, metadata={"Software": None})
    return drawn
