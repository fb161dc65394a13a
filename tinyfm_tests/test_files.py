"""Files in and out: replacing, JSON, arrays."""

import errno
import json
import os
import pickle
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from tinyfm import files
from tinyfm.errors import InputError
from tinyfm_tests.small_training import listing

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# -- replacing -------------------------------------------------------------------------------------


def test_replacing_names_the_file_and_leaves_the_old_one(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(OSError) as raised, files.replacing(path) as temporary:
        temporary.write_text("half of the n")
        raise OSError(*FULL.args)
    assert str(raised.value) == f"[Errno 28] No space left on device: {str(path)!r}"
    assert (listing(tmp_path), path.read_text()) == (["file"], "old")
    with pytest.raises(FileNotFoundError) as raised, files.replacing(path):
        Path("nowhere").read_text()  # another file's error keeps its name
    assert raised.value.filename == "nowhere"
    with pytest.raises(FileNotFoundError) as raised, files.replacing(tmp_path / "no" / "file"):
        pass
    assert raised.value.filename == str(tmp_path / "no" / "file")


def test_replacing_renames_what_has_reached_the_disk_and_then_the_name_does(tmp_path, monkeypatch):
    fsync, replace, calls = os.fsync, os.replace, []

    def watched_fsync(descriptor):
        calls.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def watched_replace(old, new):
        calls.append("replace")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    with files.replacing(tmp_path / "file") as temporary:
        temporary.write_text("new")
    assert calls == [(tmp_path / "file").stat().st_ino, "replace", tmp_path.stat().st_ino]
    assert (tmp_path / "file").read_text() == "new"


def test_replacing_does_without_a_system_that_can_sync_folders(tmp_path, monkeypatch):
    fsync = os.fsync

    def of_files_only(descriptor):
        if os.fstat(descriptor).st_ino == tmp_path.stat().st_ino:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", of_files_only)
    with files.replacing(tmp_path / "file") as temporary:
        temporary.write_text("new")
    assert (listing(tmp_path), (tmp_path / "file").read_text()) == (["file"], "new")


def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path):
    left = tmp_path / "file.partial"
    left.mkdir(mode=0o700)
    (left / "file").write_text("half of it")
    (left / "file").chmod(0o400)
    (left / ".tmp123").write_text("of the writer")
    with files.replacing(tmp_path / "file") as temporary:
        assert temporary.read_text() == ""
    (tmp_path / "plain").touch()
    assert listing(tmp_path) == ["file", "plain"]
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("link", [False, True])
def test_a_file_in_the_place_of_the_folder_is_no_hindrance(link, tmp_path):
    left = tmp_path / "file.partial"
    left.symlink_to(tmp_path) if link else left.write_text("of an older version")
    with files.replacing(tmp_path / "file") as temporary:
        temporary.write_text("new")
    assert (listing(tmp_path), (tmp_path / "file").read_text()) == (["file"], "new")


# -- JSON ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("indent, lines", [(2, 5), (None, 1)])
def test_json_comes_back(indent, lines, tmp_path):
    values = {"name": "나는", "sizes": {}, "x": 0.1}
    files.write_json(tmp_path / "x.json", values, indent)
    assert files.read_json(tmp_path / "x.json") == values
    text = (tmp_path / "x.json").read_text(encoding="utf-8")
    assert text.endswith("}\n") and text.count("\n") == lines


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"null", b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_is_named(content, tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as raised:
        files.read_json(path)
    assert str(raised.value).startswith(f"{path}: damaged, or not ")
    assert "\n" not in str(raised.value)


# -- arrays ----------------------------------------------------------------------------------------

dtypes = st.sampled_from([np.float16, np.float32, np.float64, np.int64])


@given(
    st.lists(hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, min_side=0)), max_size=3),
    st.sampled_from([lambda x: x, lambda x: x.T, lambda x: x[..., ::-1] if x.ndim else x]),
)
def test_arrays_come_back(tmp_path_factory, arrays, seen):
    """Those without a dimension or an entry too, and however they lie in memory."""
    path = tmp_path_factory.mktemp("arrays") / "x.safetensors"
    arrays = {f"x{i}": seen(array) for i, array in enumerate(arrays)}
    files.write_arrays(path, arrays)
    found = files.read_arrays(path)
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert_array_equal(found[name], array, strict=True)


def test_a_repeated_array_is_written_out(tmp_path):
    files.write_arrays(tmp_path / "x", {"x": np.broadcast_to(np.float32(3), (2, 2))})
    assert_array_equal(files.read_arrays(tmp_path / "x")["x"], np.full((2, 2), 3, np.float32))


def test_arrays_that_may_not_be_read_are_said_to_be_there(tmp_path, monkeypatch):
    files.write_arrays(tmp_path / "x", {"x": np.ones(1)})

    def refused(path, mode):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(InputError, match="x: Permission denied; give a file that can be read"):
        files.read_arrays(tmp_path / "x")


def test_arrays_are_mapped_and_not_read(tmp_path):
    """A file that the disk holds no blocks for is open at once, and no memory is taken."""
    path = tmp_path / "x"
    header = entries(x=("F32", [2**28], 0, 2**30))
    path.write_bytes(header)
    os.truncate(path, len(header) + 2**30)
    tracemalloc.start()
    try:
        x = files.read_arrays(path)["x"]
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert x.shape == (2**28,) and x[-1] == 0
    assert type(x) is np.ndarray and not x.flags.writeable


def test_the_header_may_be_in_any_order(tmp_path):
    header = entries(b=("I32", [1], 8, 12), c=("I32", [0], 8, 8), a=("I32", [2], 0, 8))
    (tmp_path / "x").write_bytes(header + np.arange(3, dtype="<i4").tobytes())
    found = files.read_arrays(tmp_path / "x")
    assert {name: array.tolist() for name, array in found.items()} == {
        "b": [2],
        "c": [],
        "a": [0, 1],
    }


def test_arrays_stay_when_the_file_is_replaced(tmp_path):
    files.write_arrays(tmp_path / "x", {"x": np.arange(3.0)})
    before = files.read_arrays(tmp_path / "x")["x"]
    files.write_arrays(tmp_path / "x", {"x": np.arange(3.0) + 5})
    assert_array_equal(before, np.arange(3.0))
    assert_array_equal(files.read_arrays(tmp_path / "x")["x"], np.arange(3.0) + 5)


@given(st.lists(st.integers(0, 2**16 - 1), max_size=9))
def test_r71_bfloat16_is_widened_exactly(tmp_path_factory, patterns):
    """The patterns are the upper halves of float32, infinities and not-a-numbers too."""
    path = tmp_path_factory.mktemp("arrays") / "x"
    content = np.array(patterns, "<u2").tobytes()
    path.write_bytes(entries(x=("BF16", [len(patterns)], 0, len(content))) + content)
    found = files.read_arrays(path)["x"]
    assert found.dtype == np.float32
    assert found.view(np.uint32).tolist() == [pattern << 16 for pattern in patterns]


def test_r71_the_values_of_bfloat16(tmp_path):
    content = np.array([0x3F80, 0xC049, 0x3E20, 0x7F80, 0x0001], "<u2").tobytes()
    header = entries(x=("BF16", [5, 1], 0, 10), y=("BF16", [], 10, 12))
    (tmp_path / "x").write_bytes(header + content + b"\x80\x3f")
    found = files.read_arrays(tmp_path / "x")
    wanted = np.float32([[1.0], [-3.140625], [0.15625], [np.inf], [9.1835496e-41]])
    assert_array_equal(found["x"], wanted, strict=True)
    assert_array_equal(found["y"], np.array(1, np.float32), strict=True)


def entries(length=None, **arrays):
    """The beginning of a safetensors file, put together by hand."""
    values = {
        name: {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        for name, (dtype, shape, begin, end) in arrays.items()
    }
    header = json.dumps(values).encode()
    return struct.pack("<Q", len(header) if length is None else length) + header


def raw_header(header):
    return struct.pack("<Q", len(header)) + header


TWO = {"x": ("F32", [2], 0, 8), "y": ("F32", [1], 8, 12)}
WHOLE = entries(**TWO) + bytes(12)
DAMAGED = {
    "nothing in it": (b"", "it has 0 bytes and announces 0 "),
    "a length alone": (struct.pack("<Q", 2), "it has 8 bytes and announces 2 "),
    "too long a header": (entries(10**12, **TWO) + bytes(12), f"announces {10**12} "),
    "no header": (struct.pack("<Q", 0) + bytes(9), "announces 0 "),
    "a web page": (b"<!DOCTYPE html><html><body>Not Found</body></html>", "announces "),
    "a pickle": (pickle.dumps({"x": np.ones(100)}), "announces "),
    "cut in the header": (WHOLE[:50], "announces "),
    "cut in the arrays": (WHOLE[:-1], "11 bytes follow its header, which speaks of 12"),
    "more than the arrays": (WHOLE + b"x", "13 bytes follow its header, which speaks of 12"),
    "not JSON": (raw_header(b"{x}"), "Expecting property name"),
    "not UTF-8": (raw_header(b'{"\xff"}'), "can't decode"),
    "a list": (raw_header(b"[]"), "its header is not a JSON object"),
    "deep": (raw_header(b"[" * 100_000), "recursion"),
    "a number": (raw_header(b'{"x": 3}'), "its header says of 'x' 3"),
    "no shape": (raw_header(b'{"x": {"dtype": "F32", "data_offsets": [0, 0]}}'), "says of 'x' "),
    "a huge number": (raw_header(b'{"x": ' + b"9" * 9999 + b"}"), "4300 digits"),
    "overlap": (
        entries(x=("F32", [2], 0, 8), y=("F32", [2], 4, 12)) + bytes(12),
        "'y' begins at byte 4 instead of 8",
    ),
    "the same bytes twice": (
        entries(x=("F32", [2], 0, 8), y=("F32", [2], 0, 8)) + bytes(8),
        "'y' begins at byte 0 instead of 8",
    ),
    "a gap": (
        entries(x=("F32", [2], 0, 8), y=("F32", [1], 12, 16)) + bytes(16),
        "'y' begins at byte 12 instead of 8",
    ),
    "past the end": (entries(x=("F32", [3], 0, 12)) + bytes(8), "8 bytes follow its header"),
    "far past the end": (entries(x=("F32", [10**15], 0, 4 * 10**15)) + bytes(8), "8 bytes follow"),
    "backwards": (entries(x=("F32", [0], 8, 4)) + bytes(8), "'x', F32 (0,), has -4 bytes"),
    "another shape": (entries(x=("F32", [3], 0, 8)) + bytes(8), "'x', F32 (3,), has 8 bytes"),
    "a negative size": (entries(x=("F32", [-1, -2], 0, 8)) + bytes(8), "its header says of 'x'"),
    "a broken size": (entries(x=("F32", [2.0], 0, 8)) + bytes(8), "its header says of 'x'"),
    "a true size": (entries(x=("F32", [True], 0, 4)) + bytes(4), "its header says of 'x'"),
    "an endless shape": (entries(x=("F32", [0, 10**30], 0, 0)), ""),
    "many dimensions": (entries(x=("F32", [1] * 100, 0, 4)) + bytes(4), ""),
    "an unknown type": (entries(x=("F8_E4M3", [2], 0, 2)) + bytes(2), "'x' is of type F8_E4M3"),
    "no type": (entries(x=(["F32"], [2], 0, 8)) + bytes(8), "its header says of 'x'"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_r72_a_damaged_file_is_named_and_costs_nothing(kind, tmp_path):
    content, said = DAMAGED[kind]
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as raised:
            files.read_arrays(path)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    message = str(raised.value)
    assert message.startswith(f"{path}: not a whole safetensors file (")
    assert said in message and "\n" not in message and len(message) < 400


def test_r73_objects_are_never_read(tmp_path):
    class Bomb:
        def __reduce__(self):
            return open, (str(tmp_path / "it ran"), "w")

    path = tmp_path / "model.safetensors"
    np.savez(tmp_path / "objects.npz", x=np.array([Bomb()], dtype=object))
    for content in ((tmp_path / "objects.npz").read_bytes(), pickle.dumps(Bomb())):
        path.write_bytes(content)
        with pytest.raises(InputError, match="not a whole safetensors file"):
            files.read_arrays(path)
    assert not (tmp_path / "it ran").exists()


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=3))
def test_r72_any_damage_is_an_input_error_or_other_values(tmp_path_factory, changes):
    content = bytearray(WHOLE)
    for place, value in changes:
        content[place % len(content)] = value
    path = tmp_path_factory.mktemp("arrays") / "x"
    path.write_bytes(content)
    try:
        found = files.read_arrays(path)
    except InputError:
        return
    assert sum(array.nbytes for array in found.values()) == 12
