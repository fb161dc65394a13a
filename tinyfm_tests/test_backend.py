"""Blocks of rows on threads, and what surrounds them: settings, forks, errors, BLAS threads."""

import contextvars
import os
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest

import tinyfm
from tinyfm import backend, blas, ops

FORK = """
import os, sys
import numpy as np
import tinyfm
from tinyfm import ops

def blocked():
    with tinyfm.settings(block_bytes=64, threads=2):
        return float(ops.softmax(np.ones((50, 4))).data.sum())

blocked()
child = os.fork()
if not child:
    os._exit(0 if blocked() == 50 else 1)
sys.exit(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_blocked_ops_work_in_a_forked_process():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], timeout=60)
    assert done.returncode == 0


def test_tinyfm_is_imported_where_there_is_no_fork():
    code = "import os; del os.fork, os.register_at_fork; import tinyfm.training"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_blocks_cover_everything_once_and_hand_on_errors():
    for threads in (1, 2):
        seen = np.zeros(10, int)

        def work(start, stop, seen=seen):
            seen[start:stop] += 1

        with tinyfm.settings(block_bytes=24, threads=threads):
            backend.by_blocks(work, 10, 8)
            assert (seen == 1).all()
            with pytest.raises(ZeroDivisionError):
                backend.by_blocks(lambda start, stop: start // 0, 10, 8)


def test_settings_hold_in_their_own_context():
    def elsewhere():
        found.append(backend.block_bytes())

    found = []
    before = backend.block_bytes()
    with tinyfm.settings(block_bytes=64):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert backend.block_bytes() == 64
    assert found == [before] and backend.block_bytes() == before
    with pytest.raises(ValueError, match="threads is 0"), tinyfm.settings(threads=0):
        pass


def test_the_callers_errstate_holds_in_the_blocks():
    x = np.full((50, 4), 1e300)
    with tinyfm.settings(block_bytes=64, threads=2):
        with warnings.catch_warnings(), np.errstate(over="ignore"):
            warnings.simplefilter("error")
            backend.by_rows(lambda rows: rows * rows, x)
        with pytest.raises(FloatingPointError), np.errstate(over="raise"):
            backend.by_rows(lambda rows: rows * rows, x)


@pytest.mark.skipif(blas.kernels() == "unknown", reason="NumPy has another BLAS")
def test_products_run_on_one_thread_within_blocks_and_as_before_after_them():
    before, found = blas.threads(), []
    try:
        blas.set_threads(2)
        with tinyfm.settings(block_bytes=8, threads=2):
            backend.by_blocks(lambda start, stop: found.append(blas.threads()), 4, 8)
        assert found == [1] * 4 and blas.threads() == 2
    finally:
        blas.set_threads(before)


def test_the_allocator_is_left_alone_when_asked(monkeypatch):
    monkeypatch.setenv("TINYFM_KEEP_MEMORY", "0")
    assert backend.keep_memory.__wrapped__() is False


def test_the_generator_repeats_from_a_seed():
    draws = []
    for _ in range(2):
        tinyfm.manual_seed(5)
        draws.append([backend.draw_seed() for _ in range(3)])
    assert draws[0] == draws[1] and len(set(draws[0])) == 3


@pytest.mark.parametrize("p", [0.1, 0.25, 0.5])
def test_a_keep_mask_is_one_mask_however_it_is_cut(p):
    like = np.empty(0)
    whole = backend.keep_mask(7, p, 300, 33, like)
    parts = [backend.keep_mask(7, p, 100, 33, like, start) for start in (0, 100, 200)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert abs(whole.mean() - (1 - p)) < 4 * np.sqrt(p * (1 - p) / whole.size)
    assert ops.dropout(np.ones((300, 33)), p=p, seed=7).data.astype(bool).sum() == whole.sum()


def test_blocks_within_blocks_come_to_an_end():
    done = []

    def outer(start, stop):
        time.sleep(0.02)
        backend.by_blocks(lambda start, stop: done.append(start), 4, 1)

    with tinyfm.settings(block_bytes=1, threads=2):
        context = contextvars.copy_context()
        thread = threading.Thread(
            target=context.run, args=(backend.by_blocks, outer, 4, 1), daemon=True
        )
        thread.start()
        thread.join(20)
    assert not thread.is_alive() and sorted(done) == sorted(4 * [0, 1, 2, 3])


def test_after_an_error_nobody_takes_another_block():
    taken = []

    def work(start, stop):
        taken.append(start)
        if start == 0:
            raise ZeroDivisionError
        time.sleep(0.01)

    with tinyfm.settings(block_bytes=1, threads=2), pytest.raises(ZeroDivisionError):
        backend.by_blocks(work, 1000, 1)
    assert len(taken) < 20


@pytest.mark.skipif(blas.kernels() == "unknown", reason="NumPy has another BLAS")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_of_a_thread_within_blocks_has_openblas_as_before():
    before = blas.threads()
    try:
        blas.set_threads(2)
        with blas.one_thread():
            reading, writing = os.pipe()
            if not (child := os.fork()):
                os.write(writing, bytes([blas.threads()]))
                os._exit(0)
            os.waitpid(child, 0)
            assert os.read(reading, 1) == bytes([2])
            assert blas.threads() == 1
    finally:
        blas.set_threads(before)
