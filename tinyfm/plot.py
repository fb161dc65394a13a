"""Pictures: curves of a training, attention as heat maps, masks and small matrices as tables.

Plain arrays and strings in; a matplotlib Figure out, which a notebook shows, and with `path` a PNG
file.  Nothing global is touched: the figures need no display, no setting is changed, and pyplot,
which keeps every figure that it makes, stays out.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tinyfm.errors import InputError
from tinyfm.files import replacing
from tinyfm.text import columns as text_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

FONT_SIZE = 8.0  # points, of all that is written beside and in a matrix
MOST_LABELS = 1500  # beside every panel (each takes 8 ms); of more, only the outer ones are written
MOST_PIXELS = 40e6  # a picture that would be larger gets a lower resolution
NOT_DRAWN = ("step", "norm")  # what a record of a training holds and no curve shows


def curves(history: Sequence[Mapping[str, float]], path: str | Path | None = None) -> Figure:
    """Loss and learning rate over the steps, and a panel for every other number of the records.

    history: the records that `training.fit` returns.  What an evaluation added to some of them is
        drawn as points; names that end in `loss` share the first panel.
    path: of the PNG file to write, if one is wanted.
    """
    if not history:
        raise ValueError("the history is empty: there is no step to draw")
    names = dict.fromkeys(name for record in history for name in record)
    shown = [name for name in names if name not in NOT_DRAWN]
    losses = [name for name in shown if name.endswith("loss")]
    panels = [losses] * bool(losses) + [[name] for name in shown if name not in losses]

    figure = _figure(7, 2.2 * len(panels))
    grid = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    for axes, panel in zip(grid, panels, strict=True):
        for color, name in enumerate(panel):
            _curve(axes, history, name, f"C{color}")
        axes.set_ylabel({"lr": "learning rate"}.get(panel[0], panel[0]))
        axes.grid(alpha=0.3)
        if len(panel) > 1:
            axes.legend()
    grid[-1].set_xlabel("step")
    grid[-1].xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    return _saved(figure, path)


def _curve(axes: Axes, history: Sequence[Mapping[str, float]], name: str, color: str) -> None:
    """What every record has is a line; what only some have are points."""
    points = [(record["step"], record[name]) for record in history if name in record]
    steps, values = np.array(points, float).T
    if len(points) < len(history) or len(points) == 1:
        axes.plot(steps, values, "o-", color=color, markersize=4, label=name)
        return
    if name != "loss":
        axes.plot(steps, values, color=color, label=name)
        return
    # The loss of single batches jumps; the mean over a fiftieth of the training shows the way.
    window = max(1, len(points) // 50)
    means = np.convolve(values, np.full(window, 1 / window), "valid")
    axes.plot(steps, values, color=color, alpha=0.25, linewidth=0.8)
    axes.plot(steps[window - 1 :], means, color=color, label=name)


def lines(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    path: str | Path | None = None,
    *,
    x: str,
    y: str,
    yscale: str = "linear",
) -> Figure:
    """Several curves in one panel: by name the points (x, y) of each, at least one.

    x, y: names of the axes; yscale: "linear" or "log".
    path: of the PNG file to write, if one is wanted.
    """
    if not curves or not all(map(len, curves.values())):
        sizes = {name: len(points) for name, points in curves.items()}
        raise ValueError(f"a curve has no point (there are {sizes}): give at least one for each")
    figure = _figure(7, 3.6)
    axes = figure.subplots()
    for name, points in curves.items():
        axes.plot(*np.array(points, float).T, "o-", markersize=4, label=name)
    axes.set(xlabel=x, ylabel=y, yscale=yscale)
    axes.grid(alpha=0.3)
    axes.legend()
    return _saved(_legible(figure), path)


def attention(
    weights: Sequence[Any],
    rows: Sequence[str],
    columns: Sequence[str],
    path: str | Path | None = None,
    *,
    title: str | None = None,
) -> Figure:
    """Heat maps of attention: a row of panels for each layer, a panel for each head.

    weights: per layer an array (H, Tq, Tk), as a model's `encoder_attentions`, `decoder_attentions`
        and `cross_attentions` hold them for each member of the batch.
    rows, columns: the Tq tokens that look and the Tk tokens that are looked at.
    path: of the PNG file to write, if one is wanted.

    All panels share one scale of colours.  Very many tokens stand only above the first row of
    panels and left of the first column.  Many layers of many heads over long sentences come out at
    a lower resolution: draw a few layers at a time.
    """
    grid = [
        {f"layer {i}, head {j}": head for j, head in enumerate(np.asarray(layer), 1)}
        for i, layer in enumerate(weights, 1)
    ]
    figure, images = _matrices(grid, rows, columns, cell=0.17)
    width, height = figure.get_size_inches()
    bar = figure.colorbar(
        images[-1], ax=figure.axes, fraction=0.12 / width, pad=0.12 / width, aspect=height / 0.12
    )
    bar.ax.tick_params(labelsize=FONT_SIZE)
    figure.supxlabel("key: is looked at", fontsize=FONT_SIZE)
    figure.supylabel("query: looks", fontsize=FONT_SIZE)
    if title is not None:
        figure.suptitle(title, fontsize=FONT_SIZE, wrap=True)
        figure.set_figheight(height + 0.2 * math.ceil(1.2 * _inches([title]) / width))
    return _saved(_legible(figure), path)


def tables(
    matrices: Mapping[str, Any],
    rows: Sequence[str],
    columns: Sequence[str],
    path: str | Path | None = None,
) -> Figure:
    """Masks and other small matrices side by side, with the number in every cell.

    matrices: by title an array (Tq, Tk); bool (a mask: True may look) is written as 1 and 0.
    rows, columns: the names of the Tq rows and Tk columns.
    path: of the PNG file to write, if one is wanted.
    """
    masks = all(np.asarray(matrix).dtype == bool for matrix in matrices.values())
    figure, images = _matrices([matrices], rows, columns, cell=0.26 if masks else 0.36)
    for image, matrix in zip(images, matrices.values(), strict=True):
        for (j, i), value in np.ndenumerate(np.asarray(matrix).T):
            image.axes.text(
                j, i, f"{value:.2f}" if isinstance(value, np.floating) else str(int(value)),
                ha="center", va="center", fontsize=FONT_SIZE,
                color="white" if image.norm(value) > 0.5 else "black",
            )  # fmt: skip
    return _saved(_legible(figure), path)


class MaskPanel(NamedTuple):
    """A mask (Tq, Tk) with the tokens around it.

    mask: bool, True may look; asked: (Tq,) bool, the rows that are drawn darker.
    rows, columns: the Tq tokens that look and the Tk that are looked at; after: Tq texts at the
        right.  Rows and after may be empty, where a panel beside this one has them.
    """

    title: str
    mask: Any
    asked: Any
    rows: Sequence[str]
    columns: Sequence[str]
    after: Sequence[str] = ()


def masks(
    lines: Mapping[str, Sequence[MaskPanel]],
    path: str | Path | None = None,
    *,
    caption: str = "",
) -> Figure:
    """Masks of any sizes, on one scale: under each heading a line of panels.

    caption: what stands above them all.
    path: of the PNG file to write, if one is wanted.

    ValueError: a mask that does not fit its tokens.
    """
    cell, gap, line = 0.17, 0.15, 1.5 * FONT_SIZE / 72
    places, headings = [], []
    wide, down = 0.0, gap + line * len(caption.splitlines())
    for heading, panels in lines.items():
        headings.append((down + gap + line, heading))
        down += gap + 3 * line + max(_inches(panel.columns) for panel in panels)
        right = gap
        for panel in panels:
            _check_fits(panel)
            queries, keys = np.shape(panel.mask)
            right += _inches(panel.rows) + 0.1
            places.append((panel, (right, down, cell * keys, cell * queries)))
            right += max(cell * keys + 0.1 + _inches(panel.after), _inches([panel.title])) + gap
        wide = max(wide, right)
        down += cell * max(len(panel.mask) for panel in panels) + gap
    wide = max(wide, gap + _inches([*lines, *caption.splitlines()]))

    figure = _figure(wide, down, layout="none")
    for panel, (x, y, width, height) in places:
        axes = figure.add_axes((x / wide, 1 - (y + height) / down, width / wide, height / down))
        _draw_mask(axes, panel)
    figure.text(gap / wide, 1 - gap / down, caption, va="top", fontsize=FONT_SIZE)
    for y, heading in headings:
        figure.text(gap / wide, 1 - y / down, heading, va="bottom", fontsize=FONT_SIZE)
    return _saved(_legible(figure), path)


def _check_fits(panel: MaskPanel) -> None:
    queries, keys = np.shape(panel.mask)
    sizes = [len(panel.columns), *(len(x) or queries for x in (panel.rows, panel.after))]
    if sizes != [keys, queries, queries] or len(panel.asked) != queries:
        raise ValueError(
            f"the mask {panel.title!r} is {(queries, keys)} and does not fit its {sizes[0]} "
            f"columns, {sizes[1]} rows, {sizes[2]} texts after them and {len(panel.asked)} asked"
        )


def _draw_mask(axes: Axes, panel: MaskPanel) -> None:
    shades = np.where(panel.mask, np.where(panel.asked, 1.0, 0.3)[:, None], 0.0)
    axes.imshow(shades, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_title(panel.title, fontsize=FONT_SIZE, loc="left")
    columns, rows = ([_shown(token) for token in side] for side in (panel.columns, panel.rows))
    axes.set_xticks(range(len(columns)), columns, rotation=90, fontsize=FONT_SIZE)
    axes.set_yticks(range(len(rows)), rows, fontsize=FONT_SIZE)
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=2, pad=1)
    beside = len(columns) - 0.1  # a column ends half a cell behind its number
    for i, text in enumerate(panel.after):
        axes.text(beside, i, _shown(text), va="center", fontsize=FONT_SIZE)


def _matrices(
    grid: Sequence[Mapping[str, Any]], rows: Sequence[str], columns: Sequence[str], cell: float
) -> tuple[Figure, list[Any]]:
    """A figure with a panel for each titled matrix (Tq, Tk), and the images in the panels.

    cell: height and width of an entry in inches.  What is beside the panels is reckoned in, so
    that the cells come out nearly square and no text lies on another.
    """
    titles = [title for line in grid for title in line]
    matrices = [matrix for line in grid for matrix in line.values()]
    sizes = {np.shape(matrix) for matrix in matrices}
    if sizes != {(len(rows), len(columns))} or len({len(line) for line in grid}) != 1:
        raise ValueError(
            f"matrices of {sorted(sizes)} in lines of {[len(line) for line in grid]} do not fit: "
            f"every line needs as many, each ({len(rows)} rows, {len(columns)} columns)"
        )
    rows, columns = [[_shown(token) for token in tokens] for tokens in (rows, columns)]
    everywhere = len(titles) * (len(rows) + len(columns)) <= MOST_LABELS
    turned = _inches(columns) > 0.8 * cell
    beside, above = _inches(rows), _inches(columns) if turned else 0.1
    width = max(cell * len(columns) + beside * everywhere, _inches(titles)) + 0.3
    height = max(cell * len(rows), 0.8) + above * everywhere + 0.5
    figure = _figure(
        width * len(grid[0]) + beside * (not everywhere) + 0.9,
        height * len(grid) + above * (not everywhere) + 0.3,
    )
    panels = figure.subplots(len(grid), len(grid[0]), squeeze=False)
    top = max(float(np.max(matrix)) for matrix in matrices)
    images = []
    for axes, title, matrix in zip(panels.flat, titles, matrices, strict=True):
        images.append(axes.imshow(matrix, cmap="Blues", vmin=0, vmax=top, aspect="auto"))
        axes.set_title(title, fontsize=FONT_SIZE)
        if everywhere or axes in panels[0]:
            axes.set_xticks(range(len(columns)), columns, rotation=90 * turned, fontsize=FONT_SIZE)
        else:
            axes.set_xticks([])
        if everywhere or axes in panels[:, 0]:
            axes.set_yticks(range(len(rows)), rows, fontsize=FONT_SIZE)
        else:
            axes.set_yticks([])
        axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=2, pad=1)
    return figure, images


def _shown(token: str) -> str:
    """A token as a reader wants it: the tokenizer's `▁` says that a space stood before it."""
    return token.replace("▁", " ").strip() or token


def _inches(texts: Sequence[str]) -> float:
    """About how long the longest of the texts is, written in FONT_SIZE; Hangul is twice as wide."""
    return max(map(text_columns, texts), default=0) * 0.6 * FONT_SIZE / 72


# -- figures and fonts ----------------------------------------------------------------------------


def check() -> None:
    """InputError without matplotlib: for commands that would draw only after long work."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise InputError('pictures need matplotlib: pip install "tinyfm[plot]"') from error


def _figure(width: float, height: float, layout: Any = "constrained") -> Figure:
    """An empty figure of so many inches whose parts make room for each other.

    layout: "none" if they are put where they belong.
    """
    check()
    from matplotlib.figure import Figure

    return Figure((width, height), dpi=100, layout=layout)


def _saved(figure: Figure, path: str | Path | None) -> Figure:
    """The figure, written to path if there is one, in a resolution that can be zoomed into."""
    dpi = min(150.0, math.sqrt(MOST_PIXELS / math.prod(figure.get_size_inches())))
    if path is not None:
        with replacing(Path(path)) as temporary, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            figure.savefig(temporary, format="png", dpi=dpi)
        # Of letters it is said once, not for each of them; of Korean ones by `_legible`.
        lost: list[warnings.WarningMessage] = []
        others: list[warnings.WarningMessage] = []
        for warning in said:
            (lost if GLYPH.match(str(warning.message)) else others).append(warning)
        for each in others:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
        if any("HANGUL" not in str(warning.message) for warning in lost):
            logger.warning("%s: letters that no font here has are drawn as boxes", path)
    return figure


GLYPH = re.compile(r"Glyph .* missing")
HANGUL = re.compile("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3]")
KOREAN_FONTS = (
    "Malgun Gothic",
    "Apple SD Gothic Neo",
    "AppleGothic",
    "Noto Sans KR",
    "Noto Sans CJK KR",
    "NanumGothic",
)


def _legible(figure: Figure) -> Figure:
    """Give every text a font that has its letters, and take it as it stands: `$` is no formula."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.text import Text

    axes = [axis for panel in figure.axes for axis in (panel.xaxis, panel.yaxis)]
    powers = [axis.get_ticklabels(which="both") for axis in axes if axis.get_scale() == "log"]
    own = {id(label) for labels in powers for label in labels}  # matplotlib's formulas: 10 to the 2
    texts = [text for text in figure.findobj(Text) if id(text) not in own]
    korean = [text for text in texts if HANGUL.search(text.get_text())]
    font = _korean_font() if korean else None
    for text in texts:
        text.set_parse_math(False)
    for text in korean if font else ():
        text.set_fontproperties(FontProperties(fname=font, size=text.get_fontsize()))
    if korean and not font:
        logger.warning(
            "no font here has Hangul, so Korean is drawn as boxes: pip install "
            '"tinyfm[plot]" brings one'
        )
    return figure


@functools.cache
def _korean_font() -> str | None:
    """The file of a font with Hangul: a well-known one, the plot extra's, any; None without one."""
    from matplotlib.font_manager import fontManager

    regular = (400, "normal", "regular")
    installed = sorted(fontManager.ttflist, key=lambda font: font.weight not in regular)
    files = [font.fname for name in KOREAN_FONTS for font in installed if font.name == name]
    # The package's own import sets the font of every plot, with a module that Python 3.12 dropped.
    if (spec := importlib.util.find_spec("koreanize_matplotlib")) is not None:
        folders = spec.submodule_search_locations or ()
        files += [f"{folder}/fonts/NanumGothic.ttf" for folder in folders]
    files += [font.fname for font in installed]
    return next(filter(_has_hangul, files), None)


def _has_hangul(file: str) -> bool:
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(file)
        first, second = (font.get_char_index(ord(syllable)) for syllable in "가나")
        return first != 0 and first != second  # a font of last resort has one box for all
    except (OSError, RuntimeError):  # in matplotlib's list but gone, or damaged
        return False
