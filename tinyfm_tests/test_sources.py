"""Texts for a language model: the standard library, files, what is held out."""

import gzip
import sysconfig
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyfm import InputError
from tinyfm.demos import sources


def test_the_standard_library_is_code_and_no_tests():
    texts = sources.standard_library()
    assert len(texts) > 100 and sum(map(len, texts)) > 1e6
    assert texts == sources.standard_library()
    assert Path(textwrap.__file__).read_text(encoding="utf-8") in texts
    source = "".join(texts)
    assert "import unittest\n" in source  # of others
    assert "class BaseTestUUID" not in source and "decoding_table" not in source


def test_a_python_without_its_sources_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(InputError, match="holds no Python source to learn from; give --corpus"):
        sources.standard_library()


@pytest.mark.parametrize(
    "content, wanted",
    [
        ("one\n\n  two\n", ["one\n\n  two\n"]),
        ("{ a brace\nand more", ["{ a brace\nand more\n"]),
        ("[1] a note\n[2] another", ["[1] a note\n[2] another\n"]),
        ("\ufeffein Wort\r\nzwei\r\n", ["ein Wort\nzwei\n"]),
        ('{"text": "one\\ntwo"}\n\n{"text": "나", "more": 1}\n', ["one\ntwo", "나"]),
    ],
)
@pytest.mark.parametrize("name", ["corpus.txt", "corpus.gz"])
def test_a_file_is_one_text_or_lines_of_texts(content, wanted, name, tmp_path):
    data = content.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert sources.read(tmp_path / name) == wanted


@pytest.mark.parametrize(
    "lines, said",
    [
        ("", "corpus: the file is empty"),
        (" \n\n", "corpus: every line is blank; give a text"),
        ('{"text": "a"}\nb', "corpus:2: not JSON"),
        ('[{"text": "a"}, {"text": "b"}]', 'corpus: one JSON value and no text; give lines of {"'),
        ('{\n  "text": "a"\n}', "corpus: one JSON value and no text"),
        ('{"text": "a"}\n[1]', "corpus:2: no JSON object"),
        ('{"text": "a"}\n\n{"txt": "b"}', "corpus:3: no 'text'; every record needs one"),
        ('{"text": 5}', "corpus:1: 'text' is no text"),
        ('{"text": " "}', "corpus:1: 'text' is blank"),
    ],
)
def test_r80_a_file_that_does_not_do(lines, said, tmp_path):
    (tmp_path / "corpus").write_text(lines, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        sources.read(tmp_path / "corpus")
    assert f"{tmp_path}/{said}" in str(caught.value)


@given(st.lists(st.text(min_size=1), min_size=2))
def test_the_last_tenth_is_held_out_in_whole_texts(documents):
    kept, held_out = sources.split(documents)
    assert kept and held_out and kept + held_out == documents
    size, held = sum(map(len, documents)), sum(map(len, held_out))
    assert held >= size / 10 or len(kept) == 1
    assert held - len(held_out[0]) < size / 10, "and not more than needed"


@given(st.text(min_size=10))
def test_a_single_text_is_cut(text):
    (kept,), (held_out,) = sources.split([text])
    assert kept + held_out == text
    assert len(held_out) == -(-len(text) // 10)


def test_many_short_documents_are_split_at_once():
    kept, held_out = sources.split(["ab"] * 100_000)
    assert len(kept) == 90_000 and len(held_out) == 10_000
