"""The guided tour: the chapters as they are committed, and whether they still run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parent.parent

CHAPTERS = {path.name: path for path in sorted((ROOT / "demos").glob("*.ipynb"))}
# An absolute path, on Unix or Windows, of a place that only one machine has.
MACHINE_PATH = re.compile(
    r"(?<![\w.])/(home|root|Users|tmp|work|var|opt|usr|mnt|private)/|\b[A-Za-z]:\\\\?\w|site-packages"
)

each_chapter = pytest.mark.parametrize("path", CHAPTERS.values(), ids=CHAPTERS)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(notebook):
    """All that a reader sees: sources, and what the cells printed or gave back."""
    for cell in notebook.cells:
        yield cell.source
        for output in cell.get("outputs", ()):
            yield output.get("text", "")
            yield from (
                value for kind, value in output.get("data", {}).items() if kind.startswith("text/")
            )


def what_is_wrong(notebook):
    """The rules for a notebook that is committed, one line for each that is broken."""
    cells = code_cells(notebook)
    outputs = [output for cell in cells for output in cell.outputs]
    if [cell.execution_count for cell in cells] != list(range(1, len(cells) + 1)):
        yield "the cells were not run once each, from top to bottom"
    if not any("image/png" in output.get("data", {}) for output in outputs):
        yield "no figure"
    if any(output.output_type == "error" for output in outputs):
        yield "a cell ended in an error"
    if any(output.get("name") == "stderr" for output in outputs):
        yield "a cell wrote warnings or errors"
    for text in texts(notebook):
        if found := MACHINE_PATH.search(text):
            yield f"a path of one machine: {found[0]}"
    if not notebook.metadata.keys() <= {"kernelspec", "language_info"}:
        yield f"metadata: {sorted(notebook.metadata)}"
    if (name := notebook.metadata.kernelspec.name) != "python3":
        yield f"the kernel is {name!r}: python3 is what everybody has"
    if any(cell.metadata for cell in notebook.cells):
        yield "cells have metadata (times of execution?)"
    if len(nbformat.writes(notebook)) > 500_000:
        yield "more than 500 kB"


def test_the_tour_has_its_first_chapters():
    first = {
        "0_autograd.ipynb",
        "1_attention_and_masks.ipynb",
        "2_transformer.ipynb",
        "3_bert.ipynb",
        "4_gpt.ipynb",
        "5_bart.ipynb",
        "6_t5.ipynb",
        "7_five_models.ipynb",
    }
    assert CHAPTERS.keys() >= first


@each_chapter
def test_a_committed_chapter_is_clean(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert list(what_is_wrong(notebook)) == []


@each_chapter
def test_the_readme_of_the_tour_names_the_chapter(path):
    assert f"({path.name})" in (ROOT / "demos" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "spoil, complaint",
    [
        (lambda n: n.cells.append(nbformat.v4.new_code_cell("1", execution_count=9)), "not run"),
        (lambda n: n.cells.append(nbformat.v4.new_code_cell("1")), "not run"),
        (lambda n: code_cells(n)[0].outputs.clear(), "no figure"),
        (
            lambda n: code_cells(n)[0].outputs.append(nbformat.v4.new_output("error", ename="E")),
            "ended in an error",
        ),
        (
            lambda n: code_cells(n)[0].outputs.append(
                nbformat.v4.new_output("stream", name="stderr", text="RuntimeWarning: overflow")
            ),
            "warnings or errors",
        ),
        (
            lambda n: code_cells(n)[0].outputs.append(
                nbformat.v4.new_output(
                    "stream", text="in {}/x.py".format("/".join(("", "home", "somebody")))
                )
            ),
            "a path of one machine: /",
        ),
        (
            lambda n: n.cells.append(nbformat.v4.new_markdown_cell(r"see C:\Users\somebody")),
            "a path of one machine: C:",
        ),
        (lambda n: n.metadata.update(widgets={}), "metadata: "),
        (lambda n: n.metadata.kernelspec.update(name="my-venv"), "my-venv"),
        (lambda n: n.cells[0].metadata.update(execution={"iopub": "2020"}), "metadata"),
        (lambda n: n.cells.append(nbformat.v4.new_markdown_cell("x" * 500_000)), "500 kB"),
    ],
)
def test_the_rules_for_chapters_notice(spoil, complaint):
    figure = nbformat.v4.new_output("display_data", {"image/png": "iVBORw0KGgo="})
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("figure", execution_count=1, outputs=[figure])],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    assert list(what_is_wrong(notebook)) == []
    spoil(notebook)
    (line,) = what_is_wrong(notebook)
    assert complaint in line


@pytest.mark.slow
@each_chapter
def test_a_chapter_runs_without_a_warning(path, tmp_path):
    """A copy in an empty folder, without its outputs and without anybody's settings of IPython."""
    copy = tmp_path / path.name
    notebook = nbformat.read(path, as_version=4)
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    nbformat.write(notebook, copy)
    own = {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path / "ipython")}
    command = [sys.executable, ROOT / "demos" / "run.py", copy]
    subprocess.run(command, env=os.environ | own, check=True)
    assert list(what_is_wrong(nbformat.read(copy, as_version=4))) == []
