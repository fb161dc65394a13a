"""The five views of a text (`five_models`) drawn: in the terminal, and as a figure.

A line of the terminal, as a row of the figure, is a position: the token that is read there, the
tokens that it sees, and the one that it has to say.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from tinyfm import plot
from tinyfm.demos.five_models import Stack, View
from tinyfm.text import columns

Shown = Callable[[int], str]

ASKED, SEEN, UNSEEN = "█▒·"
LEGEND = f"""\
{ASKED} seen, from where a loss is taken   {SEEN} seen   {UNSEEN} not seen; as a label: no loss
in: what is read   label: what is to be said there   <0>: <extra_id_0>
itself: the tokens of the same stack, in their order   source: the encoder's"""
TRAINED = (
    "To train, each takes one forward pass for all positions, for the answers are known: the mask "
    "hides them from the decoders, and [MASK] from BERT."
)
CAPTION = """\
dark: seen, from where a loss is taken   light: seen   white: not seen
left: what is read   above: what is seen   right: what is to be said (a dot: no loss)"""
WIDEST = 13  # columns of a token; longer ones are cut
GAP = "  "
FIGURE_POSITIONS = 40  # of a stack that a figure shows


def lines(views: Sequence[View], shown: Shown, width: int) -> Iterator[str]:
    """The views one after the other, and a table, in lines of `width` columns.

    shown: id -> how a token is written.
    """
    yield from LEGEND.splitlines()
    for view in views:
        yield ""
        yield from textwrap.wrap(_heading(view), width)
        part, note = shortened(view, _room(view, width))
        yield from _beside([_block(stack, shown) for stack in part.stacks], width)
        for remark in filter(None, (note, *view.remarks)):
            yield from textwrap.wrap(remark, width, initial_indent=GAP, subsequent_indent=GAP)
    yield ""
    yield from _table(views)
    yield from textwrap.wrap(TRAINED, width)


def _heading(view: View) -> str:
    asked, positions = view.loss
    names = "-".join(stack.name for stack in view.stacks)
    return f"{view.model}, {names}: {view.learns}. Loss at {asked} of {positions} positions."


def shortened(view: View, most: int) -> tuple[View, str]:
    """The first `most` positions of every stack, and a note that says so if there are more."""
    longest = max(len(stack.reads) for stack in view.stacks)
    stacks = tuple(
        Stack(
            stack.name,
            stack.reads[:most],
            stack.labels[:most],
            {name: mask[:most, :most] for name, mask in stack.sees.items()},
            {place: said for place, said in stack.others.items() if place < most},
        )
        for stack in view.stacks
    )
    note = f"(the first {most} of {longest} positions)" if longest > most else ""
    return view._replace(stacks=stacks), note


def _room(view: View, width: int) -> int:
    """Positions of each stack for which a line of `width` columns has room."""
    groups = max(len(stack.sees) for stack in view.stacks)
    return max(1, (width - 2 * WIDEST - (groups + 2) * len(GAP)) // groups)


def _block(stack: Stack, shown: Shown) -> list[str]:
    """A head and a line for each position, all equally wide."""
    asked = stack.asked
    table = [[f"{stack.name} in", *_tokens(stack.reads, shown)]]
    for name, mask in stack.sees.items():
        table.append([name, *map(_cells, mask, asked)])
    if asked.any():
        table.append(["label", *_labels(stack, shown)])
    padded = [_equally_wide(column) for column in table]
    return [GAP + GAP.join(line) for line in zip(*padded, strict=True)]


def _tokens(ids: np.ndarray, shown: Shown) -> list[str]:
    return [_cut(shown(int(id))) for id in ids]


def _labels(stack: Stack, shown: Shown) -> list[str]:
    """What is to be said: a token, or something else, or nothing."""
    return [
        _cut(stack.others.get(place) or shown(int(id))) for place, id in enumerate(stack.labels)
    ]


def _cells(row: np.ndarray, asked: bool) -> str:
    seen = ASKED if asked else SEEN
    return "".join(seen if sees else UNSEEN for sees in row)


def _cut(token: str) -> str:
    if columns(token) <= WIDEST:
        return token
    while columns(token) > WIDEST - 1:
        token = token[:-1]
    return f"{token}…"


def _equally_wide(texts: Sequence[str]) -> list[str]:
    """Spaces behind each, so that all take as many columns."""
    most = max(map(columns, texts))
    return [text + " " * (most - columns(text)) for text in texts]


def _beside(blocks: Sequence[list[str]], width: int) -> Iterator[str]:
    """Blocks side by side if they fit, else one below the other; no spaces at the end of a line."""
    if sum(columns(block[0]) for block in blocks) <= width:
        rows = zip_longest(*blocks)
        empty = [" " * columns(block[0]) for block in blocks]
        blocks = [["".join(a or b for a, b in zip(row, empty, strict=True)) for row in rows]]
    for block in blocks:
        yield from map(str.rstrip, block)


def _table(views: Sequence[View]) -> Iterator[str]:
    """What the views add up to."""
    rows = [["", "reads", "loss at", "passes to write n", "these"]]
    for view in views:
        asked, positions = view.loss
        formula, passes = view.writing
        reads = " + ".join(str(len(stack.reads)) for stack in view.stacks)
        rows.append([view.model, reads, f"{asked} of {positions}", formula, str(passes)])
    for line in zip(*map(_equally_wide, zip(*rows, strict=True)), strict=True):
        yield GAP.join(line).rstrip()


# -- as a figure -----------------------------------------------------------------------------------


def figure(views: Sequence[View], shown: Shown, path: str | Path | None = None) -> Any:
    """A row for each model, a panel for each of its masks."""
    rows = {}
    for view in views:
        part, note = shortened(view, FIGURE_POSITIONS)
        rows[f"{_heading(view)} {note}".strip()] = [
            panel for stack in part.stacks for panel in _panels(stack, shown, part.stacks[0])
        ]
    return plot.masks(rows, path, caption=CAPTION)


def _panels(stack: Stack, shown: Shown, source: Stack) -> Iterator[plot.MaskPanel]:
    """Panels side by side: the first has what is read at its left, the last the labels."""
    asked = stack.asked
    reads = _tokens(stack.reads, shown)
    for name, mask in stack.sees.items():
        first, last = name == next(iter(stack.sees)), name == "itself"
        yield plot.MaskPanel(
            f"{stack.name}: {name}",
            mask,
            asked,
            rows=reads if first else (),
            columns=_tokens(source.reads, shown) if name == "source" else reads,
            after=_labels(stack, shown) if last and asked.any() else (),
        )
