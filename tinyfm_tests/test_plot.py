"""Pictures: what is drawn is what was given, every glyph is there, and no text lies on another."""

import errno
import importlib.util
import logging
import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib import colors, font_manager, ft2font, image
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tinyfm import plot
from tinyfm.errors import InputError


def tokens(text):
    return text.split()


KOREAN = tokens("▁나는 ▁사과 를 ▁먹 었다 . </s>")
ENGLISH = tokens("<s> ▁I ▁ate ▁an ▁apple .")
LONG_KOREAN = tokens(
    "▁어제 ▁도서관 에서 ▁할머니 가 ▁빨간 ▁사과 를 ▁세 ▁개 ▁먹 었 고 , ▁오늘 ▁아침 에 ▁공원 에서 "
    "▁고양이 ▁두 ▁마리 를 ▁만났 다 . ▁그래서 ▁기뻤 다 </s>"
)
LONG_ENGLISH = tokens(
    "<s> ▁Yesterday ▁my ▁grandmother ▁ate ▁three ▁red ▁apples ▁at ▁the ▁library , ▁and ▁this "
    "▁morning ▁she ▁met ▁two ▁cats ▁in ▁the ▁park . ▁So ▁she ▁was ▁unbeliev ably ▁happy ."
)


def rows_of_weights(*shape):
    weights = np.random.default_rng(0).exponential(size=shape)
    return weights / weights.sum(-1, keepdims=True)


def heat_maps(figure):
    """The panels with a matrix in them, without the bar of colours."""
    return [axes for axes in figure.axes if axes.images]


def names(labels):
    return [label.get_text() for label in labels]


# -- attention and tables -------------------------------------------------------------------------


def test_attention_draws_every_layer_and_head():
    weights = rows_of_weights(3, 2, len(ENGLISH), len(KOREAN))
    panels = heat_maps(plot.attention(list(weights), ENGLISH, KOREAN))
    titles = [f"layer {i}, head {j}" for i in (1, 2, 3) for j in (1, 2)]
    assert [axes.get_title() for axes in panels] == titles
    for axes, matrix in zip(panels, weights.reshape(6, *weights.shape[2:]), strict=True):
        np.testing.assert_array_equal(axes.images[0].get_array(), matrix)
        assert names(axes.get_yticklabels()) == tokens("<s> I ate an apple .")
        assert names(axes.get_xticklabels()) == tokens("나는 사과 를 먹 었다 . </s>")
        # One scale: equal weights have equal colours in all panels.
        assert axes.images[0].get_clim() == (0, weights.max())


def test_a_token_is_shown_without_its_space_but_is_never_blank():
    weights = rows_of_weights(1, 1, 2, 2)
    (axes,) = heat_maps(plot.attention(weights, ["▁", "▁a"], ["▁New▁York", "x_▁"]))
    assert names(axes.get_yticklabels()) == ["▁", "a"]
    assert names(axes.get_xticklabels()) == ["New York", "x_"]


def test_tables_write_the_number_into_every_cell():
    mask = np.array([[True, False, False], [True, True, False]])
    weights = np.array([[1.0, 0, 0], [0.254, 0.746, 0]])
    figure = plot.tables({"mask": mask, "weights": weights}, ["q1", "q2"], ["k1", "k2", "k3"])
    assert [axes.get_title() for axes in figure.axes] == ["mask", "weights"]
    written = [
        {tuple(map(int, text.get_position())): text.get_text() for text in axes.texts}
        for axes in figure.axes
    ]
    numbers = {(0, 0): "1", (1, 0): "0", (2, 0): "0", (0, 1): "1", (1, 1): "1", (2, 1): "0"}
    assert written[0] == numbers  # (column, row)
    assert written[1] == {
        (0, 0): "1.00", (1, 0): "0.00", (2, 0): "0.00",
        (0, 1): "0.25", (1, 1): "0.75", (2, 1): "0.00",
    }  # fmt: skip


def test_the_numbers_stand_out_from_their_cells():
    weights = np.linspace(0, 0.7, 12).reshape(3, 4)
    (axes,) = plot.tables({"weights": weights}, "abc", "defg").axes
    for text, value in zip(axes.texts, weights.T.flat, strict=True):
        ink, paper = colors.to_rgb(text.get_color()), axes.images[0].to_rgba(value)[:3]
        assert abs(np.mean(ink) - np.mean(paper)) > 0.3


@pytest.mark.parametrize(
    "weights",
    [
        rows_of_weights(1, 2, 3, 3),  # three tokens where there are two
        [],
        [rows_of_weights(2, 2, 3), rows_of_weights(1, 2, 3)],  # layers of 2 heads and of 1
        rows_of_weights(2, 2, 3),  # the layers left out
    ],
)
def test_weights_that_do_not_fit_their_tokens_are_refused(weights):
    with pytest.raises(ValueError, match=r"do not fit: .*2 rows, 3 columns"):
        plot.attention(weights, ["a", "b"], ["c", "d", "e"])


def panel(rows, columns, title="decoder: source", **others):
    mask = np.tri(len(rows), len(columns), dtype=bool)
    asked = np.arange(len(rows)) % 2 == 0
    return plot.MaskPanel(title, mask, asked, rows, columns, **others)


def test_masks_are_darker_where_a_row_is_asked():
    (axes,) = plot.masks({"a model": [panel(["▁a", "b"], ["c", "d", "e"], after="xy")]}).axes
    hidden, seen, asked = 0.0, 0.3, 1.0
    assert axes.images[0].get_array().tolist() == [[asked, hidden, hidden], [seen, seen, hidden]]
    assert axes.get_title("left") == "decoder: source"
    assert names(axes.get_yticklabels()) == ["a", "b"]
    assert names(axes.get_xticklabels()) == ["c", "d", "e"]
    assert {text.get_text(): text.get_position()[1] for text in axes.texts} == {"x": 0, "y": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        panel("ab", "cde")._replace(columns="cd"),
        panel("ab", "cde")._replace(rows="abc"),
        panel("ab", "cde", after="x"),
        panel("ab", "cde")._replace(asked=[True]),
    ],
)
def test_a_mask_that_does_not_fit_its_tokens_is_refused(wrong):
    with pytest.raises(ValueError, match=r"mask 'decoder: source' is \(2, 3\) and does not fit"):
        plot.masks({"a model": [wrong]})


# -- legible --------------------------------------------------------------------------------------


def boxes(figure, texts):
    renderer = FigureCanvasAgg(figure).get_renderer()
    return [
        (text.get_text(), text.get_window_extent(renderer)) for text in texts if text.get_text()
    ]


def assert_apart(named_boxes):
    for (name, box), (other, its_box) in combinations(named_boxes, 2):
        width = min(box.x1, its_box.x1) - max(box.x0, its_box.x0)
        height = min(box.y1, its_box.y1) - max(box.y0, its_box.y0)
        assert width < 1 or height < 1, f"{name!r} lies on {other!r}"


def assert_laid_out_well(figure):
    """No text on another or on a picture or over the edge, and cells that are about square."""
    figure.draw_without_rendering()
    axes_boxes = [("panel", axes.get_window_extent()) for axes in heat_maps(figure)]
    beside = [figure.texts]
    for axes in heat_maps(figure):
        beside.append([axes.title, *axes.get_xticklabels(), *axes.get_yticklabels()])
    beside = boxes(figure, [text for texts in beside for text in texts])
    assert_apart(axes_boxes + beside)
    for axes in heat_maps(figure):
        assert_apart(boxes(figure, axes.texts))
    for name, box in beside:
        assert box.x0 > -1 and box.y0 > -1, name
        assert box.x1 < figure.bbox.width + 1 and box.y1 < figure.bbox.height + 1, name
    (_, box), matrix = axes_boxes[0], heat_maps(figure)[0].images[0].get_array()
    assert min(box.width, box.height) > 0.5 * figure.dpi
    rows, columns = matrix.shape
    if min(rows, columns) > 4:  # else the titles decide the width
        assert 0.7 < (box.width / columns) / (box.height / rows) < 1.4


@pytest.mark.parametrize(
    "layers, heads, rows, columns",
    [
        (1, 1, ["▁a"], ["가"]),
        (1, 1, ENGLISH, KOREAN),
        pytest.param(3, 8, ENGLISH, KOREAN, marks=pytest.mark.slow),
        pytest.param(3, 8, LONG_ENGLISH, LONG_KOREAN, marks=pytest.mark.slow),
        (2, 4, KOREAN, KOREAN),
        (1, 3, LONG_ENGLISH, LONG_KOREAN),
        (2, 1, LONG_ENGLISH, LONG_ENGLISH),
        (2, 2, ["▁a"], LONG_ENGLISH),
        (2, 2, LONG_KOREAN, ["▁a"]),
    ],
)
def test_attention_is_laid_out_well(layers, heads, rows, columns):
    weights = rows_of_weights(layers, heads, len(rows), len(columns))
    title = "나는 어제 도서관에서 사과를 먹었다. Yesterday I ate an apple at the library."
    figure = plot.attention(weights, rows, columns, title=title)
    assert_laid_out_well(figure)


def test_very_many_tokens_stand_only_at_the_outer_panels(monkeypatch):
    monkeypatch.setattr(plot, "MOST_LABELS", 10)
    weights = rows_of_weights(2, 3, len(LONG_ENGLISH), len(LONG_KOREAN))
    figure = plot.attention(weights, LONG_ENGLISH, LONG_KOREAN)
    assert_laid_out_well(figure)
    panels = np.reshape(heat_maps(figure), (2, 3))
    for (i, j), axes in np.ndenumerate(panels):
        assert len(axes.get_xticklabels()) == (len(LONG_KOREAN) if i == 0 else 0)
        assert len(axes.get_yticklabels()) == (len(LONG_ENGLISH) if j == 0 else 0)


def test_masks_of_all_sizes_are_laid_out_well():
    few, many = KOREAN, LONG_ENGLISH
    rows = {
        "나는 어제 사과를 먹었다: a heading that is longer than all of its panels together" * 2: [
            panel(few, few, after=few)
        ],
        "one": [panel(many, many), panel(many, few), panel([], few)._replace(
            mask=np.ones((len(many), len(few)), bool), asked=[True] * len(many), after=many
        )],
        "two": [panel(few, many, after=few), panel(many, few)],
    }  # fmt: skip
    figure = plot.masks(rows, caption="what is what\nand why")
    figure.draw_without_rendering()
    assert_laid_out_well(figure)
    beside = [*figure.texts]
    for axes in figure.axes:
        title = axes._left_title
        beside += [title, *axes.texts, *axes.get_xticklabels(), *axes.get_yticklabels()]
    assert_apart(boxes(figure, beside))
    assert {*rows} < {text.get_text() for text in figure.texts}


@pytest.mark.parametrize("size", [1, 5, 12])
@pytest.mark.parametrize("dtype", [bool, int, float])
def test_tables_are_laid_out_well(size, dtype):
    matrix = np.tri(size).astype(dtype)
    words = LONG_KOREAN[:size]
    assert_laid_out_well(plot.tables({"causal": matrix, "a longer title": matrix}, words, words))


def test_a_huge_picture_keeps_within_limits(tmp_path, monkeypatch):
    monkeypatch.setattr(plot, "MOST_PIXELS", 10_000)
    figure = plot.tables({"mask": np.tri(5)}, "abcde", "abcde", tmp_path / "small.png")
    height, width, _ = image.imread(tmp_path / "small.png").shape
    assert height * width == pytest.approx(10_000, rel=0.05)
    assert width / height == pytest.approx(np.divide(*figure.get_size_inches()), rel=0.05)


@pytest.fixture
def fresh_font():
    """Look for the font anew, here and after the test."""
    plot._korean_font.cache_clear()
    yield
    plot._korean_font.cache_clear()


def has(text):
    file = text.get_fontproperties().get_file()
    font = ft2font.FT2Font(file or font_manager.findfont(text.get_fontproperties()))
    return [bool(font.get_char_index(ord(character))) for character in text.get_text()]


def test_korean_has_its_glyphs_everywhere():
    figure = plot.attention(
        rows_of_weights(1, 1, 2, 3), ["ㅋㅋ", "a"], ["▁뷁을", "b", "é"], title="한글"
    )
    (axes,) = heat_maps(figure)
    for text in (*axes.get_xticklabels(), *axes.get_yticklabels(), *figure.texts, axes.title):
        assert all(has(text)), text.get_text()


def packaged(name):
    """A font file of the package that the plot extra brings."""
    (folder,) = importlib.util.find_spec("koreanize_matplotlib").submodule_search_locations
    return f"{folder}/fonts/{name}.ttf"


def test_the_package_s_font_serves_where_none_is_installed(monkeypatch, fresh_font):
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [])
    assert plot._korean_font() == packaged("NanumGothic")
    assert "koreanize_matplotlib" not in sys.modules  # its import would set the font of all plots


def test_an_installed_font_of_a_known_name_comes_first(monkeypatch, fresh_font):
    latin = font_manager.fontManager.ttflist[:3]
    bold, known, unknown = (
        font_manager.FontEntry(fname=packaged(file), name=name, weight=weight)
        for file, name, weight in (
            ("NanumGothicBold", "Malgun Gothic", 700),
            ("NanumGothicLight", "Malgun Gothic", 400),
            ("NanumGothic", "Some Font", 400),
        )
    )
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [unknown, *latin, bold, known])
    assert plot._korean_font() == known.fname


def test_a_font_that_is_gone_or_damaged_is_passed_over(monkeypatch, fresh_font, tmp_path):
    damaged = tmp_path / "damaged.ttf"
    damaged.write_bytes(b"no font")
    entries = [
        font_manager.FontEntry(fname=str(file), name="Malgun Gothic")
        for file in (tmp_path / "gone.ttf", damaged)
    ]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", entries)
    assert plot._korean_font() == packaged("NanumGothic")


def test_a_font_of_last_resort_has_no_hangul(monkeypatch, fresh_font):
    class LastResort:
        """Newer matplotlib brings such a font: one box stands for every syllable."""

        def __init__(self, file):
            assert file == packaged("NanumGothic")

        def get_char_index(self, code):
            return 7

    entry = font_manager.FontEntry(fname=packaged("NanumGothic"), name="Malgun Gothic", weight=400)
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [entry])
    assert plot._korean_font() == entry.fname
    plot._korean_font.cache_clear()
    monkeypatch.setattr(ft2font, "FT2Font", LastResort)
    assert plot._korean_font() is None


def test_any_font_with_hangul_is_better_than_none(monkeypatch, fresh_font):
    latin = font_manager.fontManager.ttflist[:3]
    unknown = font_manager.FontEntry(fname=packaged("NanumGothic"), name="Some Font", weight=400)
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [*latin, unknown])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert plot._korean_font() == unknown.fname


def test_without_a_korean_font_a_warning_says_what_to_install(
    monkeypatch, fresh_font, caplog, tmp_path
):
    entries = font_manager.fontManager.ttflist
    dejavu = [font for font in entries if font.name.startswith("DejaVu")]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", dejavu)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    path = tmp_path / "picture.png"
    with caplog.at_level(logging.WARNING):
        plot.attention(rows_of_weights(1, 1, 1, 2), ["a"], ["가", "나"], path)
        plot.attention(rows_of_weights(1, 1, 1, 2), ["a"], ["b", "c"], path)  # needs no Hangul
    (message,) = caplog.messages
    assert 'pip install "tinyfm[plot]"' in message and "\n" not in message
    assert is_png(path)


def test_a_dollar_begins_no_formula(tmp_path):
    weights = rows_of_weights(1, 1, 2, 2)
    dear = ["$\\frac$", "$x"]
    figure = plot.attention(weights, dear, dear, tmp_path / "a.png", title="$5 and $6_7")
    figure.draw_without_rendering()
    (axes,) = heat_maps(figure)
    assert names(axes.get_xticklabels()) == dear
    assert not any(text.get_parse_math() for text in (*axes.get_xticklabels(), *figure.texts))


# -- curves ---------------------------------------------------------------------------------------


def history(steps, every=None):
    records = [{"step": n, "loss": 8 / n, "lr": n / 64, "norm": 2.0} for n in range(1, steps + 1)]
    for record in records if every else ():
        if record["step"] % every == 0:
            record |= {"valid_loss": 16 / record["step"], "bleu": 10.0 * record["step"]}
    return records


def drawn(axes):
    return {
        line.get_label(): (line.get_xdata().tolist(), line.get_ydata().tolist())
        for line in axes.get_lines()
        if not line.get_label().startswith("_")
    }


def test_curves_show_loss_and_rate():
    loss, rate = plot.curves(history(4)).axes
    assert drawn(loss) == {"loss": ([1, 2, 3, 4], [8, 4, 8 / 3, 2])}
    assert drawn(rate) == {"lr": ([1, 2, 3, 4], [1 / 64, 2 / 64, 3 / 64, 4 / 64])}
    assert (loss.get_ylabel(), rate.get_ylabel()) == ("loss", "learning rate")


def test_curves_show_evaluations_where_they_were_made():
    loss, rate, bleu = plot.curves(history(6, every=3)).axes
    assert drawn(loss).keys() == {"loss", "valid_loss"}
    assert drawn(loss)["valid_loss"] == ([3, 6], [16 / 3, 16 / 6])
    assert drawn(rate).keys() == {"lr"}
    assert drawn(bleu) == {"bleu": ([3, 6], [30, 60])}
    assert names(loss.get_legend().get_texts()) == ["loss", "valid_loss"]
    ink = {line.get_label(): line.get_color() for line in loss.get_lines()}
    assert ink["loss"] != ink["valid_loss"]


@pytest.mark.parametrize("count, window", [(1, 1), (99, 1), (100, 2), (350, 7)])
def test_the_smooth_curve_is_the_mean_of_the_last_losses(count, window):
    losses = np.random.default_rng(0).standard_normal(count)
    records = [{"step": n, "loss": loss} for n, loss in enumerate(losses, 1)]
    steps, values = drawn(plot.curves(records).axes[0])["loss"]
    assert steps == list(range(window, count + 1))
    expected = [losses[n - window : n].mean() for n in range(window, count + 1)]
    np.testing.assert_allclose(values, expected, atol=1e-12)


def test_an_empty_history_is_refused():
    with pytest.raises(ValueError, match="history is empty"):
        plot.curves([])


POINTS = {"a cheap $x$": [(1, 4.0), (2, 2.0), (3, 1.0)], "나": [(1, 3.0)]}


def test_lines_show_every_point_under_its_name():
    figure = plot.lines(POINTS, x="updates", y="loss", yscale="log")
    (axes,) = figure.axes
    assert drawn(axes) == {"a cheap $x$": ([1, 2, 3], [4, 2, 1]), "나": ([1], [3])}
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_yscale()) == ("updates", "loss", "log")
    named = axes.get_legend().get_texts()
    assert names(named) == [*POINTS]
    assert not any(text.get_parse_math() for text in named)  # a dollar begins no formula
    assert all(has(named[1]))


@pytest.mark.parametrize("most", [4.5, 4e6])
def test_numbers_on_a_logarithmic_axis_are_read_as_formulas(most):
    (axes,) = plot.lines({"$": [(1, 4.0), (2, most)]}, x="x", y="y", yscale="log").axes
    FigureCanvasAgg(axes.figure).draw()
    shown = [text for text in axes.get_yticklabels(which="both") if text.get_text()]
    assert shown and all(text.get_parse_math() for text in shown if "$" in text.get_text())
    assert not axes.get_legend().get_texts()[0].get_parse_math()


@pytest.mark.parametrize("curves", [{}, {"empty": []}])
def test_lines_without_points_are_refused(curves):
    with pytest.raises(ValueError, match=r"has no point.*: give at least one"):
        plot.lines(curves, x="x", y="y")


# -- files ----------------------------------------------------------------------------------------


def is_png(path):
    return path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


DRAWINGS = {
    "curves": lambda path=None: plot.curves(history(3), path),
    "attention": lambda path=None: plot.attention(rows_of_weights(1, 1, 1, 1), ["a"], ["b"], path),
    "lines": lambda path=None: plot.lines(POINTS, path, x="x", y="y"),
    "masks": lambda path=None: plot.masks({"a model": [panel("ab", "cd")]}, path),
    "tables": lambda path=None: plot.tables({"mask": np.tri(2, dtype=bool)}, "ab", "ab", path),
}


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_a_path_gets_a_png(draw, tmp_path):
    path = tmp_path / "picture.png"
    figure = draw(path)
    assert is_png(path)
    assert [file.name for file in tmp_path.iterdir()] == ["picture.png"]
    height, width, _ = image.imread(path).shape
    inches = figure.get_size_inches()
    assert (width, height) == tuple((150 * inches + 1e-6).astype(int))  # 219.99999 are 220
    assert isinstance(draw(), Figure)


def test_a_picture_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "picture.png"
    path.write_bytes(b"the picture of before")

    def full_disk(figure, file, **options):
        file.write_bytes(b"half a pic")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full_disk)
    with pytest.raises(OSError, match="No space left"):
        plot.curves(history(3), path)
    assert path.read_bytes() == b"the picture of before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("draw", [*DRAWINGS.values(), plot.check], ids=[*DRAWINGS, "check"])
def test_without_matplotlib_one_line_says_what_to_install(draw, monkeypatch):
    plot.check()  # with it there is nothing to say
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r'^.*pip install "tinyfm\[plot\]"$'):
        draw()


def test_letters_without_a_font_are_said_once(tmp_path, caplog):
    plot.lines(
        {"\u0939\u093f\u0928\u094d\u0926\u0940": [(1, 2.0), (2, 1.0)]},
        tmp_path / "a.png",
        x="\u0939",
        y="loss",
    )
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / 'a.png'}: letters that no font here has are drawn as boxes"
    ]


def test_nothing_global_is_touched(tmp_path):
    code = """
import sys, matplotlib
before = matplotlib.rcParams.copy()
from tinyfm import plot
plot.curves([{"step": 1, "loss": 2.0, "lr": 0.1}], "a.png")
plot.attention([[[[1.0]]]], ["가"], ["▁나"], "b.png", title="한글")
assert matplotlib.rcParams.copy() == before
assert "matplotlib.pyplot" not in sys.modules
"""
    root = Path(plot.__file__).parents[1]
    subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(root), "PYTHONUTF8": "1"},
        check=True,
    )
