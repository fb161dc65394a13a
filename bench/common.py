"""What all benchmarks share: timing side by side, the same-work check, tables, result files."""

from __future__ import annotations

import datetime
import gc
import importlib
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tinyfm
from bench import THREADS
from tinyfm import backend, blas
from tinyfm.demos import cli

RESULTS = Path(__file__).parent / "results"

_peers: dict[str, str] = {}  # the version of each peer that was asked for, or MISSING
MISSING = "missing: not installed"

# A side of a comparison: a function, or steps of which each gets the result of the one before.
Side = Callable[[], Any] | Sequence[Callable[..., Any]]


# -- peers and the machine ------------------------------------------------------------------------


def peer(name: str) -> Any:
    """The module of a peer; None, and named as missing in every table and file, if it is absent."""
    try:
        module = importlib.import_module(name)
    except ImportError:
        _peers[name] = MISSING
        return None
    _peers[name] = module.__version__
    return module


def set_allocator(setting: str) -> str:
    """Apply "keep" (tinyfm's setting, for all of the process, peers included) or "default"."""
    if setting == "default":
        return "default"
    return "kept (backend.keep_memory)" if backend.keep_memory() else "default (keep not possible)"


def facts(**settings: Any) -> dict[str, Any]:
    """Machine, versions, date, and the settings under which a bench was run."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}",
            "load_average": [round(x, 2) for x in os.getloadavg()],
        },
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "OpenBLAS for": blas.kernels(),
            "tinyfm": tinyfm.__version__,
        },
        "peers": dict(_peers),
        "settings": {"threads": THREADS, "dtype": "float32", **settings},
    }


def _cpu_model() -> str:
    """The processor's name and, where the name says little, family and model."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    info = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    name = info.get("model name", platform.machine())
    return f"{name} (family {info.get('cpu family', '?')}, model {info.get('model', '?')})"


def command(main: Callable[[], None]) -> None:
    """Run a bench as tinyfm's commands are run: bad input is one line and status 2, Ctrl-C 130."""
    sys.exit(cli.run(lambda _: main(), cli.Parser(prog=Path(sys.argv[0]).stem), []))


# -- timing ---------------------------------------------------------------------------------------


class Timing(NamedTuple):
    """Seconds of each step of a side: the median of all rounds, and the fastest."""

    median: tuple[float, ...]
    fastest: tuple[float, ...]

    def times(self, factor: float) -> Timing:
        """In another unit."""
        return Timing(*(tuple(t * factor for t in part) for part in self))


def alternate(
    a: Side, b: Side | None, rounds: int, settle: float = 0.03
) -> tuple[Timing, Timing | None]:
    """Medians of a and of b, timed in turns (a b a b ...): load on the machine hits both.

    A side is a function or a sequence of steps (forward, backward); each step gets the result of
    the one before and is timed on its own.  b may be None, a peer that is not installed.

    settle: seconds of rest before each turn.  Worker threads of OpenBLAS and OpenMP go on spinning
    for a while after their last job, and would take a core from the other side.  Therefore each
    turn also starts with a call that is not timed, which wakes the side's own threads and fills the
    caches.  Python's garbage collector rests meanwhile, as in timeit.
    """
    sides = [a, b]
    times: list[list[list[float]]] = [[], []]
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for side, record in zip(sides, times, strict=True):
                if side is not None:
                    time.sleep(settle)
                    steps = (side,) if callable(side) else side
                    _laps(steps)
                    record.append(_laps(steps))
    finally:
        if collecting:
            gc.enable()
    ours, theirs = (_timing(record) for record in times)
    assert ours is not None
    return ours, theirs


def _laps(steps: Sequence[Callable[..., Any]]) -> list[float]:
    seconds: list[float] = []
    given: tuple[Any, ...] = ()
    for step in steps:
        start = time.perf_counter()
        result = step(*given)
        seconds.append(time.perf_counter() - start)
        given = (result,)
    return seconds


def _timing(record: list[list[float]]) -> Timing | None:
    steps = list(zip(*record, strict=True))
    if not steps:
        return None
    return Timing(tuple(map(statistics.median, steps)), tuple(map(min, steps)))


# -- the same work --------------------------------------------------------------------------------


class NotTheSameWork(AssertionError):
    """The two sides of a comparison give different results: their times mean nothing."""


def assert_same(work: str, ours: Any, theirs: Any, tolerance: float = 1e-4) -> None:
    """Raise NotTheSameWork unless two results agree, relative to the largest entry of `theirs`.

    Results are arrays or sequences of arrays: values first, then gradients.
    """
    if not isinstance(ours, list | tuple):
        ours, theirs = [ours], [theirs]
    if len(ours) != len(theirs):
        raise NotTheSameWork(f"{work}: {len(ours)} results against {len(theirs)}")
    for i, (x, y) in enumerate(zip(ours, theirs, strict=True)):
        x, y = np.asarray(x), np.asarray(y)
        if x.shape != y.shape or x.dtype != y.dtype:
            raise NotTheSameWork(
                f"{work}: result {i} is {x.shape} {x.dtype} against {y.shape} {y.dtype}"
            )
        off = float(np.max(np.abs(x - y), initial=0.0))
        size = float(np.max(np.abs(y), initial=0.0))
        if not off <= tolerance * max(size, 1e-30):  # "not": NaN is a difference as well
            raise NotTheSameWork(f"{work}: result {i} is off by {off:.3g}, at a size of {size:.3g}")


# -- rows, tables, files --------------------------------------------------------------------------


def row(
    group: str,
    work: str,
    unit: str,
    ours: Timing | float,
    theirs: Timing | float | None = None,
    *,
    peer: str | None = None,
    goal: str = "",
    reached: bool | None = None,
    note: str = "",
) -> dict[str, Any]:
    """One measurement in `unit`: timings of a whole or of (forward, backward), or numbers.

    ratio = our sum of medians / theirs: lower is better.  spread = median / fastest, of the side
    where it is larger: far from 1, other programs were in the way.  reached: None where no goal is
    set, or where the goal needs a peer that is missing.
    """
    timings = [t for t in (ours, theirs) if isinstance(t, Timing)]
    ours, theirs = _parts(ours), None if theirs is None else _parts(theirs)
    return {
        "group": group,
        "work": work,
        "unit": unit,
        "tinyfm": ours,
        "peer": peer,
        "theirs": theirs,
        "ratio": None if theirs is None else round(ours["sum"] / theirs["sum"], 3),
        "spread": round(max(sum(t.median) / sum(t.fastest) for t in timings), 2)
        if timings
        else None,
        "goal": goal,
        "reached": reached,
        "note": note,
    }


def _parts(value: Timing | float) -> dict[str, float]:
    if not isinstance(value, Timing):
        return {"sum": float(f"{value:.6g}")}
    parts = {"sum": sum(value.median), "fastest": sum(value.fastest)}
    if len(value.median) == 2:
        parts = {"forward": value.median[0], "backward": value.median[1], **parts}
    return {k: float(f"{v:.4g}") for k, v in parts.items()}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as a table in Markdown, columns aligned so that it reads well as plain text too."""
    peers = [r["peer"] for r in rows if r["peer"]]
    them = peers[0] if peers else "peer"
    lines = [["work", "unit", "tinyfm", them, "ratio", "spread", "goal", "reached"]]
    for r in rows:
        theirs = _cell(r, "theirs") if r["theirs"] else MISSING.split(":")[0] if r["peer"] else "-"
        ratio, spread = ("-" if r[k] is None else f"{r[k]:.2f}" for k in ("ratio", "spread"))
        reached = {True: "yes", False: "**no**", None: "-"}[r["reached"]]
        cells = [r["work"], r["unit"], _cell(r, "tinyfm"), theirs, ratio, spread]
        lines.append([*cells, r["goal"] or "-", reached])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |"
        for line in lines
    )


SCORES = ("score", "nats", "BLEU", "%")  # units of what has more than three digits to say


def _cell(row: dict[str, Any], side: str) -> str:
    value = row[side]
    total = number(value["sum"], 6 if row["unit"] in SCORES else 3)
    pair = "forward" in value
    return f"{number(value['forward'])} + {number(value['backward'])} = {total}" if pair else total


def number(x: float, digits: int = 3) -> str:
    """With so many digits, and no exponent where it is large."""
    return f"{x:.0f}" if abs(x) >= 10**digits else f"{x:.{digits}g}"


def groups(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The rows by their group, in order of appearance."""
    found: dict[str, list[dict[str, Any]]] = {}
    for r in rows:
        found.setdefault(r["group"], []).append(r)
    return found


def describe(document: dict[str, Any]) -> str:
    """Machine, versions, settings and peers of a result file, in four lines."""
    machine, settings = document["machine"], document["settings"]
    return "\n".join(
        [
            f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}; "
            f"load average {machine['load_average'][0]} at the start; {document['date']}",
            ", ".join(f"{k} {v}" for k, v in document["versions"].items()),
            "peers: " + (", ".join(f"{k} {v}" for k, v in document["peers"].items()) or "none"),
            ", ".join(f"{k}: {v}" for k, v in settings.items()),
        ]
    )


def write_results(
    name: str, rows: Sequence[dict[str, Any]], facts: dict[str, Any], folder: Path = RESULTS
) -> Path:
    """Write folder/NAME.json: the facts of the run (see `facts`) and its rows."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    text = json.dumps({"name": name, **facts, "rows": list(rows)}, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path
