"""Text files."""

import gzip
import logging
import os

import pytest

from tinyfm.errors import InputError
from tinyfm.text import read_lines, read_pairs


def write(path, content):
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def error_of(function, *arguments):
    with pytest.raises(InputError) as caught:
        function(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_r54_lines_are_utf8_without_mark_and_line_ends(tmp_path, name):
    content = b"\xef\xbb\xbf" + "사과\r\n\r\n a b \nlast".encode()
    assert read_lines(write(tmp_path / name, content)) == ["사과", "", " a b ", "last"]


def test_only_line_feeds_end_a_line(tmp_path):
    text = "one\u2028still one\x0cstill\x85one\rone\ntwo\n"
    assert read_lines(write(tmp_path / "a", text.encode())) == [*text.split("\n")[:2]]


def test_r54_bad_bytes_name_file_and_line(tmp_path):
    path = write(tmp_path / "latin1.txt", b"fine\nStra\xdfe\n")
    assert error_of(read_lines, path).startswith(f"{path}:2: not valid UTF-8; save")


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_an_empty_file_is_refused(tmp_path, content):
    path = write(tmp_path / "empty", content)
    assert error_of(read_lines, path) == f"{path}: the file is empty; give one with lines of text"


def test_r77_what_cannot_be_read_is_named(tmp_path):
    missing = tmp_path / "missing.txt"
    assert error_of(read_lines, missing).startswith(f"{missing}: No such file or directory; give")
    assert error_of(read_lines, tmp_path).startswith(f"{tmp_path}: Is a directory; give a file")


@pytest.mark.parametrize("damage", ["cut", "flipped", "not gzip"])
def test_a_damaged_archive_is_named(tmp_path, damage):
    content = bytearray(gzip.compress(os.urandom(500).hex().encode()))
    if damage == "cut":
        content = content[:200]
    elif damage == "flipped":
        content[200] ^= 255
    else:
        content = bytearray(b"plain text")
    path = tmp_path / "a.gz"
    path.write_bytes(content)
    assert error_of(read_lines, path).startswith(f"{path}: the gzip archive is cut short or")


def test_pairs_keep_lines_together(tmp_path):
    source = write(tmp_path / "s.gz", "하나\n둘\n".encode())
    target = write(tmp_path / "t", b"one\r\ntwo")
    assert read_pairs(source, target) == [("하나", "one"), ("둘", "two")]


def test_r80_dropped_pairs_are_counted_and_reported(tmp_path, caplog):
    source = write(tmp_path / "s", b"a\n\nc\nd\n")
    target = write(tmp_path / "t", b"A\nB\n \t\nD\n")
    with caplog.at_level(logging.WARNING):
        assert read_pairs(source, target) == [("a", "A"), ("d", "D")]
    assert [record.getMessage() for record in caplog.records] == [
        f"{source} and {target}: dropped 2 of 4 pairs, which have a blank side"
    ]


def test_nothing_is_reported_when_nothing_is_dropped(tmp_path, caplog):
    path = write(tmp_path / "s", b"a\nb\n")
    read_pairs(path, path)
    assert caplog.records == []


def test_unequal_files_are_refused_with_both_counts(tmp_path):
    source, target = write(tmp_path / "s", b"a\nb\n"), write(tmp_path / "t", b"A\nB\n\n")
    message = error_of(read_pairs, source, target)
    assert f"{source} has 2 lines and {target} has 3" in message


def test_files_without_a_full_pair_are_refused(tmp_path):
    source, target = write(tmp_path / "s", b"a\n\n"), write(tmp_path / "t", b"\nB\n")
    message = error_of(read_pairs, source, target)
    assert str(source) in message and str(target) in message


def test_pairs_from_one_file_end_at_the_second_tab(tmp_path):
    path = write(
        tmp_path / "pairs.tsv.gz", "Go.\t가.\tCC-BY 2.0\tid 7\n\nI see.\t알겠어.\r\n".encode()
    )
    assert read_pairs(path) == [("Go.", "가."), ("I see.", "알겠어.")]


def test_a_line_without_a_tab_is_named(tmp_path):
    path = write(tmp_path / "pairs.tsv", b"a\tA\n\nb B\n")
    assert error_of(read_pairs, path).startswith(f"{path}:3: no tab; each line must be source, tab")


def test_pairs_know_where_they_stand(tmp_path):
    source = write(tmp_path / "s", b"a\n\nc\n")
    target = write(tmp_path / "t", b"A\nB\nC\n")
    pairs = read_pairs(source, target)
    assert [pairs.where(1), pairs.where(1, 1)] == [f"{source}:3", f"{target}:3"]
    both = write(tmp_path / "pairs.tsv", b"\t\nb\tB\n")
    assert read_pairs(both).where(0, 1) == f"{both}:2"
