"""The rules of the house that a machine can check: imports, sizes, version, examples, README."""

import ast
import configparser
import doctest
import importlib
import importlib.metadata
import inspect
import re
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import NamedTuple

import pytest

import tinyfm

ROOT = Path(__file__).parent.parent
SOURCES = {str(path.relative_to(ROOT)): path for path in sorted((ROOT / "tinyfm").rglob("*.py"))}

# Imports go down this list, never up. "tinyfm" is the public face, tinyfm/__init__.py.
LAYERS = [
    "demos",
    "tinyfm",
    "training",
    "checkpoints",
    "models",
    "pretrained",
    "renames",
    "generation",
    "nn",
    "optim",
    "ops",
    "checking",
    "masks",
    "autograd",
    "arrays",
    "backend",
    "blas",
    "cuda",
    # Plain arrays and plain text: these know nothing of the engine.
    "objectives",
    "data",
    "plot",
    "tokenizer",
    "subwords",
    "hub",
    "text",
    "files",
    "metrics",
    "errors",
]
LAZY = {"tqdm", "safetensors", "tokenizers", "huggingface_hub", "sacrebleu", "matplotlib", "torch"}
LAZY |= {"cupy", "scipy", "sentencepiece"}
ALLOWED_AT_TOP = sys.stdlib_module_names | {"numpy"}


class Import(NamedTuple):
    name: str  # full, as in tinyfm.ops.basic
    line: int
    lazy: bool  # inside a function, or only for the type checker


def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(tree, package):
    """Every import in a file that belongs to the package (a tuple of names)."""

    def visit(node, lazy):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, lazy)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            source = ".".join((*start, *filter(None, [node.module])))
            for alias in node.names:
                yield Import(f"{source}.{alias.name}", node.lineno, lazy)
        else:
            lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            lazy = lazy or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
            for child in ast.iter_child_nodes(node):
                yield from visit(child, lazy)

    return list(visit(tree, False))


def layer(name):
    """tinyfm.ops.basic is in ops; tinyfm.Tensor, which is no module, in the face."""
    second = [*name.split("."), ""][1]
    return second if second in LAYERS else "tinyfm"


def broken_import_rules(tree, module):
    """What is wrong with the imports of a file; module: its path as a tuple of names."""
    own = layer(".".join(module))
    for name, line, lazy in imports(tree, module[:-1]):
        top = name.split(".")[0]
        if top != "tinyfm":
            if not lazy and top not in ALLOWED_AT_TOP:
                yield f"line {line}: {top} is imported where it is used, not at the top"
        elif lazy:
            yield f"line {line}: {name}, an own module, is imported at the top of the file"
        elif LAYERS.index(layer(name)) < LAYERS.index(own):
            yield f"line {line}: {own} may not import {name}, which is above it"


@pytest.mark.parametrize("file", SOURCES)
def test_imports_go_one_way(file):
    module = Path(file).with_suffix("").parts
    assert module[1] in [*LAYERS, "__init__"], f"{file} has no place in LAYERS"
    assert list(broken_import_rules(parse(SOURCES[file]), module)) == []


@pytest.mark.parametrize(
    "module, source, broken",
    [
        ("tinyfm.ops.basic", "from tinyfm.autograd import op", False),
        ("tinyfm.ops.basic", "from tinyfm.ops.neural import softmax", False),
        ("tinyfm.ops.basic", "from . import neural", False),
        ("tinyfm.ops.__init__", "from . import basic", False),
        ("tinyfm.ops.basic", "from .. import nn", True),
        ("tinyfm.ops.basic", "from ..nn.layers import Linear", True),
        ("tinyfm.ops.basic", "from tinyfm import backend", False),
        ("tinyfm.ops.basic", "from tinyfm import Tensor", True),
        ("tinyfm.ops.basic", "import tinyfm.nn", True),
        ("tinyfm.autograd", "try:\n    import tinyfm.ops\nfinally:\n    pass", True),
        ("tinyfm.autograd", "def f():\n    from tinyfm import backend", True),
        ("tinyfm.objectives.denoising", "from tinyfm import masks", True),
        ("tinyfm.__init__", "from tinyfm.training import fit", False),
        ("tinyfm.__init__", "from tinyfm.demos import cli", True),
        ("tinyfm.demos.chat", "import tinyfm", False),
        ("tinyfm.data", "import tqdm", True),
        ("tinyfm.data", "def f():\n    import tqdm", False),
        ("tinyfm.data", "import numpy.random, json", False),
    ],
)
def test_the_import_rules_notice(module, source, broken):
    assert bool([*broken_import_rules(ast.parse(source), tuple(module.split(".")))]) == broken


def test_import_tinyfm_is_light():
    code = f"import sys, tinyfm; print(*sys.modules.keys() & {LAZY})"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    assert loaded.stdout.split() == []


def code_lines(path):
    """Lines that bear code: neither blank nor comment nor docstring."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    docstrings = {
        (node.body[0].lineno, node.body[0].col_offset)
        for node in ast.walk(parse(path))
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None
    }
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines = set()
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type not in layout | {tokenize.ENDMARKER} and token.start not in docstrings:
                lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines)


def test_code_lines_counts_code(tmp_path):
    file = tmp_path / "file.py"
    file.write_text(
        '"""Two lines\nof docstring."""\n\n# comment\nx = [\n    1,  # one\n]\n'
        'def f():\n    """No code."""\n    return """\n    text"""\n',
        encoding="utf-8",
    )
    assert code_lines(file) == 6


def test_the_autograd_source_is_read_in_one_sitting():
    assert code_lines(ROOT / "tinyfm" / "autograd.py") <= 250


def test_ops_stay_small():
    # Kernels, in kernels/ and in two files for the CPU, are fast before they are short.
    files = {
        path.name: code_lines(path)
        for path in (ROOT / "tinyfm" / "ops").glob("*.py")
        if path.name not in ("rows.py", "fused_attention.py", "erf.py")
    }
    assert files.keys() >= {"__init__.py", "basic.py", "neural.py", "attention.py"}
    assert sum(files.values()) <= 700, files
    assert max(files.values()) < 400, files


def test_the_version_stands_in_one_place():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    assert setup["metadata"]["version"] == "attr: tinyfm.__version__"
    assert f"## [{tinyfm.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    try:
        assert importlib.metadata.version("tinyfm") == tinyfm.__version__
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("tinyfm is not installed, only on the path")


@pytest.mark.parametrize(
    "command",
    [
        "pip install -e . && python -m tinyfm.demos.translate",
        'pip install -e ".[test]" && pytest',
    ],
)
def test_readme_has_the_two_commands(command):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(f"^ *{re.escape(command)}$", readme, re.MULTILINE)


@pytest.mark.parametrize("file", ["README.md", "demos/README.md", "bench/results/README.md"])
def test_relative_links_lead_somewhere(file):
    text = (ROOT / file).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#:\s]+)\)", text)
    assert [t for t in targets if not ((ROOT / file).parent / t).exists()] == []


OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.mark.parametrize("file", SOURCES)
def test_docstring_examples(file, monkeypatch):
    name = ".".join(Path(file).with_suffix("").parts).removesuffix(".__init__")
    module = importlib.import_module(name)
    # doctest takes what @op returns for a function of autograd.py and passes over it;
    # `__module__` knows better, and `__test__` is where doctest is told of more.
    own = {
        key: value
        for key, value in vars(module).items()
        if inspect.isroutine(value) and value.__module__ == name
    }
    monkeypatch.setattr(module, "__test__", own, raising=False)
    assert doctest.testmod(module, optionflags=OPTIONS).failed == 0


def test_readme_examples():
    results = doctest.testfile(
        str(ROOT / "README.md"), module_relative=False, encoding="utf-8", optionflags=OPTIONS
    )
    assert results.failed == 0
