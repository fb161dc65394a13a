"""Files in and out: replacing, JSON, arrays."""

import errno
import os
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
