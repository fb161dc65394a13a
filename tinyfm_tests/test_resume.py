"""Exact resume (R38): after any interruption, crash or full disk."""

import errno
import itertools
import json
import os
import random
import re
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tinyfm import checkpoints
from tinyfm.data import Batches
from tinyfm_tests.small_training import (
    ROOT,
    New,
    Training,
    as_json,
    files_of,
    go_on,
    listing,
    snapshot,
)


@pytest.fixture(scope="module")
def uninterrupted():
    """The outcome of 10 steps that are never saved; an evaluation after steps 3, 6, 9 and 10."""
    return Training().fit(10)


# -- R38: exact resume -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind, stop", [("SGD", 5), ("Adam", 5), *(("AdamW", stop) for stop in (0, 1, 5, 9, 10))]
)
def test_r38_resume_is_exact(kind, stop, tmp_path):
    """With dropout, accumulation, clipping, warmup and shuffled data, within and across epochs."""
    once = Training(kind)
    whole = once.fit(10, evaluate_every=1)
    assert (once.batches.epoch, len(once.batches)) == (2, 8)  # 20 batches
    Training(kind).fit(stop, tmp_path, evaluate_every=1)
    assert Training(kind, seed=99).fit(10, tmp_path, resume=True, evaluate_every=1) == whole


def test_r38_saving_changes_nothing(uninterrupted, tmp_path):
    assert Training().fit(10, tmp_path, save_every=1, keep=3) == uninterrupted


def test_r38_resume_in_float64_and_at_each_step(tmp_path):
    whole = Training(dtype=np.float64).fit(6, evaluate_every=1)
    for step in range(7):
        run = Training(dtype=np.float64, seed=step)
        outcome = run.fit(step, tmp_path, resume=step > 0, evaluate_every=1)
    assert outcome == whole


def test_r38_step_rate_generator_and_place_are_restored(tmp_path):
    first = Training()
    first.fit(5, tmp_path)
    again = Training(seed=99)
    again.fit(5, tmp_path, resume=True)  # nothing is left to do
    assert again.outcome() == first.outcome()
    assert [record["step"] for record in again.history] == [1, 2, 3, 4, 5]
    assert again.history[-1]["lr"] == pytest.approx(0.01 * 95 / 96)
    assert (again.batches.epoch, again.batches.position) == (1, 2)


def test_r38_a_finished_training_may_get_more_steps(uninterrupted, tmp_path):
    Training().fit(4, tmp_path)
    outcome = Training(seed=99).fit(10, tmp_path, resume=True)
    assert outcome["history"][3].pop("dev")  # step 4 was the last one then
    assert outcome == uninterrupted


def test_r38_resume_in_a_new_process(uninterrupted, tmp_path):
    for steps in (5, 10):
        status, out, err = New(f"print(json.dumps(go_on({steps}, {str(tmp_path)!r})))").end()
        assert (status, err) == (0, "")
    outcome = json.loads(out)
    assert outcome["history"][4].pop("dev")
    assert outcome == as_json(uninterrupted)


# -- Ctrl-C ----------------------------------------------------------------------------------------


def counting_moments(work, at=None):
    """Call work(); a Ctrl-C comes at moment `at`.  Returns how many moments there were.

    A moment is a call or a return in a function of tinyfm, or a call out of it into C; but for the
    one that locks the folder: what it holds would end with the process, and here no process ends.
    """
    package, count = str(ROOT / "tinyfm") + os.sep, 0

    def watch(frame, event, argument):
        nonlocal count
        code = frame.f_code
        if code.co_filename.startswith(package) and code.co_name != "alone":
            count += 1
            if count == at:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)

    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.fixture(scope="module")
def moments(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return counting_moments(lambda: Training().fit(10, folder))


def interrupted_at(stops, folder):
    """The outcome of a training that Ctrl-C stops at these moments, counted from each start."""
    for at in stops:
        with suppress(KeyboardInterrupt):
            counting_moments(lambda: go_on(10, folder), at)
    outcome = go_on(10, folder)
    assert listing(folder) == files_of(10)
    shutil.rmtree(folder)
    return outcome


# A moment may lie in a generator that is being closed, where Python itself ignores the exception.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@examples(max_examples=10)
@given(st.data())
def test_r38_after_ctrl_c_at_any_moment(uninterrupted, moments, tmp_path_factory, data):
    """In forward, backward, update, evaluation or saving; up to three times in one training."""
    stops = data.draw(st.lists(st.integers(1, moments), min_size=1, max_size=3))
    assert interrupted_at(stops, tmp_path_factory.mktemp("run")) == uninterrupted


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
def test_r38_after_ctrl_c_at_many_moments(uninterrupted, moments, tmp_path):
    for at in range(1, moments, moments // 60):
        assert interrupted_at([at], tmp_path / str(at)) == uninterrupted


LONG = {"save_every": 7, "keep": 3}


def stopped_by(sent, seed, folder):
    """The outcome of 30 steps in processes that get a signal, each at a random time."""
    code = f"print('ready', flush=True); print(json.dumps(go_on(30, {str(folder)!r}, **{LONG})))"
    random_times = random.Random(seed)
    for attempt in itertools.count():
        new = New(code)
        new.process.stdout.readline()
        if attempt < 2:
            time.sleep(random_times.uniform(0, 0.5))
            new.process.send_signal(sent)
        status, out, err = new.end()
        if status == 0:
            return json.loads(out)
        assert attempt < 2, err
        assert err == "" if sent == signal.SIGKILL else err.endswith("KeyboardInterrupt\n")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 9))]
)
def test_r38_after_signals_from_outside_at_random_times(sent, seed, tmp_path):
    assert stopped_by(sent, seed, tmp_path) == as_json(Training().fit(30))
    assert listing(tmp_path) == files_of(21, 28, 30)


@pytest.mark.parametrize("write", range(1, 7))  # weights and optimizer of steps 3, 6 and 9
def test_r38_what_a_killed_write_leaves_goes_with_the_next(write, uninterrupted, tmp_path):
    """The half-written file, and whatever else its writer had put beside it."""
    killed = New(f"""
import itertools, os, safetensors.numpy
writes, write = itertools.count(1), safetensors.numpy.save_file
def half(arrays, path, *rest):
    if next(writes) != {write}:
        return write(arrays, path, *rest)
    path.write_bytes(b"half")
    (path.parent / ".tmp123").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
safetensors.numpy.save_file = half
go_on(10, {str(tmp_path)!r}, save_every=3)
""").end()
    assert killed == (-signal.SIGKILL, "", "")
    assert len(list(tmp_path.rglob(".tmp123"))) == 1
    assert go_on(10, tmp_path, save_every=3) == uninterrupted
    assert listing(tmp_path) == files_of(10)


def test_ctrl_c_saves_the_last_whole_step_and_is_raised_again(tmp_path, uninterrupted):
    run = Training()
    draw, drawn = Batches.__next__, []

    class Interrupted(Batches):
        def __next__(self):
            drawn.append(draw(self))
            if len(drawn) == 14:  # the second half of step 7
                raise KeyboardInterrupt
            return drawn[-1]

    run.batches.__class__ = Interrupted
    with pytest.raises(KeyboardInterrupt):
        run.fit(10, tmp_path)
    assert listing(tmp_path) == files_of(6)
    assert Training(seed=99).fit(10, tmp_path, resume=True) == uninterrupted


class Live(Batches):
    """Its state is a dict that changes with every batch, also in the hands of others.

    until: the number of the batch in which Ctrl-C comes.
    """

    def state_dict(self):
        self.state = super().state_dict()
        return self.state

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.state = state

    def __next__(self):
        batch = super().__next__()
        self.state.update(super().state_dict())
        self.until -= 1
        if self.until == 0:
            raise KeyboardInterrupt
        return batch


def test_r38_the_place_in_the_data_is_a_copy(tmp_path, uninterrupted):
    """Ctrl-C in the second half of the first step; after a resume again; and of a later step."""
    for until in (2, 2, 14, -1):
        there = checkpoints.exists(tmp_path)
        run = Training(seed=99 if there else 0)
        run.batches.__class__, run.batches.until = Live, until
        with suppress(KeyboardInterrupt):
            outcome = run.fit(10, tmp_path, resume=there)
    assert outcome == uninterrupted


def test_ctrl_c_without_a_folder_saves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Training()
    run.batches = iter([run.dev, run.dev])

    def interrupt(model):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.fit(5, evaluate=interrupt, evaluate_every=1)
    assert listing(tmp_path) == []


def test_an_evaluation_cut_short_is_made_up_for(tmp_path, uninterrupted):
    def interrupt(model):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Training().fit(10, tmp_path, evaluate=interrupt)
    assert listing(tmp_path) == files_of(3)
    assert Training(seed=99).fit(10, tmp_path, resume=True) == uninterrupted


def test_an_evaluation_that_was_done_is_not_repeated(tmp_path):
    at = []

    def look(model):
        at.append(len(at))
        return {"dev": len(at)}

    options = {"evaluate": look, "evaluate_every": 3}
    Training().fit(3, tmp_path, **options)
    run = Training(seed=99)
    run.fit(6, tmp_path, resume=True, **options)
    assert at == [0, 1]
    assert [record.get("dev") for record in run.history] == [None, None, 1, None, None, 2]


def test_more_ctrl_c_while_saving_wait_for_its_end(tmp_path, monkeypatch, uninterrupted):
    """Someone is impatient: the checkpoint is written all the same."""
    write = safetensors.numpy.save_file

    def impatient(*arguments):
        if "000004" in str(arguments[1]):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        write(*arguments)

    monkeypatch.setattr(safetensors.numpy, "save_file", impatient)
    with pytest.raises(KeyboardInterrupt):
        Training().fit(10, tmp_path)
    monkeypatch.undo()
    assert listing(tmp_path) == files_of(4)
    assert Training(seed=99).fit(10, tmp_path, resume=True) == uninterrupted


# -- crashes and full disks ------------------------------------------------------------------------


def test_at_every_moment_of_saving_the_folder_holds_a_whole_checkpoint(
    tmp_path, monkeypatch, uninterrupted
):
    """What a power cut would leave: the folder before each change of a name, and after it."""
    folder, copies = tmp_path / "run", []

    def watched(module, name):
        change = getattr(module, name)

        def and_copy(*arguments, **options):
            for moment in ("before", "after"):
                copies.append(tmp_path / f"{len(copies)}-{moment}-{name}")
                shutil.copytree(folder, copies[-1])
                if moment == "before":
                    change(*arguments, **options)

        monkeypatch.setattr(module, name, and_copy)

    Training().fit(4, folder, keep=2)
    watched(os, "replace")
    watched(os, "fsync")
    watched(Path, "unlink")
    go_on(8, folder, keep=2)
    monkeypatch.undo()
    assert len(copies) > 20
    steps = []
    for copy in copies:
        run = Training(seed=99)
        steps.append(checkpoints.load(copy, run.model, run.optimizer, run.batches).step)
    assert steps == sorted(steps) and set(steps) == {4, 8}
    for copy in (copies[0], copies[steps.index(8)]):
        outcome = Training(seed=99).fit(10, copy, resume=True)
        outcome["history"][3].pop("dev")
        outcome["history"][7].pop("dev", 0)
        assert outcome == uninterrupted


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("which", ["weights", "optimizer", "checkpoint"])
def test_a_full_disk_leaves_the_last_checkpoint_and_nothing_beside_it(
    which, tmp_path, monkeypatch, uninterrupted
):
    write, write_text = safetensors.numpy.save_file, Path.write_text

    def full_arrays(arrays, path, *options):
        write(arrays, path, *options)
        if which in str(path):
            os.truncate(path, 100)
            raise OSError(*FULL.args)

    def full_text(path, content, **options):
        write_text(path, content[:100], **options)
        raise OSError(*FULL.args)

    Training().fit(4, tmp_path)
    before = snapshot(tmp_path)
    monkeypatch.setattr(safetensors.numpy, "save_file", full_arrays)
    if which == "checkpoint":
        monkeypatch.setattr(Path, "write_text", full_text)
    with pytest.raises(OSError, match="No space left on device") as raised:
        go_on(6, tmp_path)
    monkeypatch.undo()
    assert Path(raised.value.filename).parent == tmp_path
    assert Path(raised.value.filename).name.startswith(which)
    assert snapshot(tmp_path) == before
    outcome = Training(seed=99).fit(10, tmp_path, resume=True)
    assert outcome["history"][3].pop("dev")
    assert outcome == uninterrupted


def test_a_file_limit_ends_a_command_with_one_line_and_a_whole_checkpoint(tmp_path):
    """A real limit, in a process of its own, under what the commands do with errors."""
    Training().fit(4, tmp_path)
    before = snapshot(tmp_path)
    limit = len(before["optimizer-000004.safetensors"]) - 1
    code = f"""
import resource
from tinyfm.demos import cli
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
sys.exit(cli.run(lambda args: print(go_on(8, {str(tmp_path)!r})), cli.Parser(prog="probe"), []))
"""
    status, out, err = New(code).end()
    assert (status, out) == (2, "")
    name = re.escape(str(tmp_path / "optimizer-000004.safetensors"))
    assert re.fullmatch(rf"probe: {name}: .*File too large.*\n", err)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", ["", "no/such"])
def test_a_folder_that_cannot_be_written_is_said_before_the_first_step(name, tmp_path):
    """A file stands where the folder shall be."""
    (tmp_path / "run").write_text("not a folder")
    run = Training()
    with pytest.raises(OSError) as raised:
        run.fit(10, tmp_path / "run" / name)
    assert str(tmp_path / "run") in str(raised.value)
    assert run.batches.position == 0
