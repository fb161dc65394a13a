"""Checkpoints that do not fit, are damaged, in the way or not finite (R39); averaging."""

import errno
import itertools
import json
import os
import re
import shutil

import numpy as np
import pytest
import safetensors.numpy
from numpy.testing import assert_array_equal

from tinyfm import InputError, checkpoints, models, nn, optim, training
from tinyfm.data import Batches
from tinyfm_tests.small_training import KINDS, New, Training, files_of, listing, pairs, snapshot


@pytest.fixture(scope="module")
def uninterrupted():
    """The outcome of 10 steps that are never saved; an evaluation after steps 3, 6, 9 and 10."""
    return Training().fit(10)


# -- weights that are not finite (R39) -------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_r39_a_checkpoint_refuses_weights_that_are_not_finite(bad, tmp_path):
    run = Training()
    run.fit(4, tmp_path)
    before = snapshot(tmp_path)
    bias = run.model.encoder.layers[0].feed_forward.up.bias
    bias.data = np.full(bias.shape, bad, np.float32)
    state = checkpoints.TrainingState(history=[{}] * 5, batches={})
    with pytest.raises(FloatingPointError, match=r"^encoder.*up.bias is not finite after step 5"):
        checkpoints.save(tmp_path, run.model, run.optimizer, state, 4, 1)
    assert snapshot(tmp_path) == before


def test_r39_a_training_that_flies_off_keeps_the_checkpoint_before(tmp_path):
    """A step that is finite leads to weights that are not."""
    run = Training("SGD")
    with (
        np.errstate(over="ignore", invalid="ignore"),
        pytest.raises(FloatingPointError, match="is not finite after step 3, which is not saved"),
    ):
        run.fit(
            10,
            tmp_path,
            clip=None,
            evaluate=None,
            save_every=1,
            schedule=lambda step: 1e38 * 1e5 if step == 3 else 1,
        )
    assert listing(tmp_path) == files_of(2)


# -- parameters of any shape -----------------------------------------------------------------------


class Factor(nn.Module):
    """A single number, which has no dimension."""

    def __init__(self):
        self.factor = nn.Parameter(np.ones((), np.float32))

    def forward(self, input_ids, attention_mask, labels):
        values = self.factor * np.float32(labels.mean())
        return models.ModelOutput(loss=values, num_labels=labels.size)


@pytest.mark.parametrize("kind", KINDS)
def test_r38_a_parameter_without_a_dimension_is_saved_and_goes_on(kind, tmp_path):
    def go(steps, folder, resume=False):
        model = Factor()
        batches = Batches(pairs(), max_tokens=60, pad_id=0, eos_id=2, seed=0)
        options = {"folder": folder, "resume": resume, "progress": False}
        optimizer = KINDS[kind](model.parameters())
        training.fit(model, batches, optimizer, optim.constant(), steps, **options)
        return model.factor.item(), optimizer.state_dict()["state"]

    go(3, tmp_path / "parts")
    assert go(7, tmp_path / "parts", resume=True) == go(7, tmp_path / "whole")
    assert training.average(tmp_path / "parts")["factor"].shape == ()


# -- what does not fit -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original")
    Training().fit(5, folder, keep=2)
    return folder


@pytest.fixture
def saved(original, tmp_path):
    """A folder with the checkpoint of 5 steps."""
    return shutil.copytree(original, tmp_path / "run")


@pytest.mark.parametrize(
    "there, message",
    [
        (
            {"width": 8},
            r"embedding.weight: the checkpoint has \(12, 16\) float32, and this model \(12, 8\)",
        ),
        (
            {"dtype": np.float64},
            r"has \(12, 16\) float32, and this model \(12, 16\) float64; give the",
        ),
        ({"kind": "SGD"}, "the optimizer's state is of AdamW, and this is SGD"),
        (
            {"kind": "Adam"},
            "the optimizer's state is of AdamW, and this is Adam; give the model and",
        ),
        ({"count": 39}, "had pairs=40, this one has 39; resume it with the same data"),
        ({"max_tokens": 61}, "had max_tokens=60, this one has 61"),
    ],
)
def test_what_differs_is_named(there, message, saved):
    before = snapshot(saved)
    with pytest.raises(InputError, match=message) as raised:
        Training(**there).fit(10, saved, resume=True)
    assert str(raised.value).startswith(f"{saved}: cannot resume: ")
    assert "\n" not in str(raised.value)
    assert snapshot(saved) == before


def test_other_sentences_of_the_same_number_are_noticed(saved):
    run = Training()
    other = [(target, source) for source, target in pairs()]
    run.batches = Batches(other, max_tokens=60, pad_id=0, eos_id=2, seed=0)
    with pytest.raises(InputError, match="had checksum="):
        run.fit(10, saved, resume=True)


def test_parameters_that_come_and_go_are_named(saved):
    run = Training()
    run.model.extra = nn.Parameter(np.zeros(3, np.float32))
    with pytest.raises(
        InputError, match=r"extra: the checkpoint has none, and this model \(3,\) float32"
    ):
        run.fit(10, saved, resume=True)
    run = Training()
    run.model.encoder.layers[0].feed_forward.up.bias = None
    run.optimizer = KINDS["AdamW"](run.model.parameters())
    with pytest.raises(
        InputError, match=r"up.bias: the checkpoint has \(16,\) float32, and this model none"
    ):
        run.fit(10, saved, resume=True)


def test_an_optimizer_of_other_parameters_is_noticed(saved):
    run = Training()
    run.optimizer = optim.AdamW(run.model.encoder.parameters(), lr=0.01)
    with pytest.raises(
        InputError, match=r"has optimizer state for .*, which this optimizer does not"
    ):
        run.fit(10, saved, resume=True)
    run = Training()
    run.optimizer = optim.AdamW([nn.Parameter(np.zeros(3, np.float32))], lr=0.01)
    with pytest.raises(ValueError, match="a parameter that the model lacks"):
        run.fit(10, saved / "new")


def test_a_reordered_optimizer_takes_each_moment_by_its_name(uninterrupted, tmp_path):
    Training().fit(4, tmp_path)
    run = Training(seed=99)
    run.optimizer.params.reverse()
    outcome = run.fit(10, tmp_path, resume=True)
    for p, entry in zip(run.optimizer.params, run.optimizer.state, strict=True):
        assert all(x.shape == p.shape for name, x in entry.items() if name != "t")
    by_name = {k: v for k, v in outcome["arrays"].items() if not k[0].isdigit()}
    assert by_name.items() <= uninterrupted["arrays"].items()


def test_a_frozen_parameter_has_no_moments(saved):
    names = safetensors.numpy.load_file(saved / "optimizer-000005.safetensors")
    frozen = "decoder.layers.0.feed_forward.up"
    assert f"{frozen}.bias.m" in names and names[f"{frozen}.bias.t"].item() == 5
    assert not any(name.startswith(f"{frozen}.weight.") for name in names)
    assert f"{frozen}.weight" in safetensors.numpy.load_file(saved / "weights-000005.safetensors")


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda f: shutil.rmtree(f), "holds no checkpoint (checkpoint.json)"),
        (lambda f: (f / "checkpoint.json").unlink(), "holds no checkpoint (checkpoint.json)"),
        (lambda f: (f / "checkpoint.json").write_text(""), "checkpoint.json: damaged"),
        (lambda f: (f / "checkpoint.json").write_text("{"), "checkpoint.json: damaged"),
        (lambda f: (f / "checkpoint.json").write_text("[]"), "checkpoint.json: damaged"),
        (lambda f: (f / "checkpoint.json").write_text("{}"), "checkpoint.json: damaged"),
        (lambda f: (f / "checkpoint.json").write_bytes(b"\xff"), "checkpoint.json: damaged"),
        (
            lambda f: (f / "weights-000005.safetensors").unlink(),
            "weights-000005.safetensors: No such file",
        ),
        (
            lambda f: os.truncate(f / "weights-000005.safetensors", 999),
            "weights-000005.safetensors",
        ),
        (lambda f: os.truncate(f / "optimizer-000005.safetensors", 9), "optimizer-000005.safetens"),
    ],
)
def test_a_damaged_or_missing_checkpoint_is_named(damage, message, saved):
    damage(saved)
    run = Training()
    before = run.outcome()
    with pytest.raises(InputError, match=re.escape(message)) as raised:
        run.fit(10, saved, resume=True)
    assert str(raised.value).startswith(str(saved))
    assert "\n" not in str(raised.value)
    assert run.outcome() == before


RECORD = {"step": 1, "loss": 1.0, "lr": 0.1, "norm": 1.0}
KEYS = ["history", "batches", "taken", "evaluated", "generator", "kept", "optimizer"]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    "value", [None, [], {}, "x", ["x"] * 5, [{"step": 1}] * 5, [RECORD | {"loss": None}] * 5, ...]
)
def test_a_manifest_with_a_wrong_entry_is_an_input_error(key, value, saved):
    values = json.loads((saved / "checkpoint.json").read_text())
    if value is ...:
        del values[key]
    else:
        values[key] = value
    (saved / "checkpoint.json").write_text(json.dumps(values))
    with pytest.raises(InputError, match=re.escape(str(saved))):
        Training().fit(10, saved, resume=True)


@pytest.mark.parametrize("state", [-1, 2**200, None])
def test_a_generator_with_an_impossible_state_is_an_input_error(state, saved):
    values = json.loads((saved / "checkpoint.json").read_text())
    values["generator"]["state"]["state"] = state
    (saved / "checkpoint.json").write_text(json.dumps(values))
    with pytest.raises(InputError, match="cannot resume"):
        Training().fit(10, saved, resume=True)


def test_a_mistake_in_the_code_of_the_data_is_no_damage(saved):
    class Wrong(Batches):
        def load_state_dict(self, state):
            return state["no such key"]

    run = Training()
    run.batches.__class__ = Wrong
    with pytest.raises(KeyError, match="no such key"):
        run.fit(10, saved, resume=True)


def test_the_step_of_a_folder(saved):
    assert training.step_of(saved) == 5
    with pytest.raises(InputError, match="holds no checkpoint"):
        training.step_of(saved / "nowhere")


# -- one training at a time ------------------------------------------------------------------------


def test_two_trainings_cannot_use_one_folder(tmp_path, uninterrupted):
    """Neither begin nor go on nor forget, while a training is at work there; afterwards all can."""
    folder, refused = tmp_path / "run", []

    def others(model):
        before = snapshot(folder)
        for intrude in (
            lambda: training.forget(folder),
            lambda: Training().fit(10, folder),
            lambda: Training().fit(10, folder, resume=True),
        ):
            with pytest.raises(InputError, match="another training is using it; wait") as raised:
                intrude()
            refused.append(str(raised.value))
        assert snapshot(folder) == before
        return {}

    Training().fit(5, folder, evaluate=others, evaluate_every=2)
    assert len(refused) == 9 and all(line.startswith(f"{folder}: ") for line in refused)
    training.forget(folder)
    assert Training().fit(10, folder) == uninterrupted


def test_two_processes_cannot_use_one_folder(saved):
    code = f"""
import time
with training.alone({str(saved)!r}):
    print("ready", flush=True)
    time.sleep(60)
"""
    other = New(code)
    assert other.process.stdout.readline() == "ready\n"
    with pytest.raises(InputError, match="another training is using it"):
        Training().fit(10, saved, resume=True)
    other.process.kill()
    other.end()  # and with it its lock
    Training().fit(10, saved, resume=True)


def test_a_folder_is_free_again_after_an_error(saved):
    with pytest.raises(ZeroDivisionError), training.alone(saved):
        raise ZeroDivisionError
    with training.alone(saved), training.alone(saved.parent), training.alone(saved / "nowhere"):
        pass


def test_where_folders_cannot_be_locked_trainings_go_on(saved, monkeypatch, uninterrupted):
    def none(*arguments):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", none)
    outcome = Training().fit(10, saved, resume=True)
    assert outcome["history"][4].pop("dev")
    assert outcome == uninterrupted


# -- what is in the way ----------------------------------------------------------------------------


def test_a_training_in_the_way_is_refused_and_can_be_forgotten(saved, uninterrupted):
    before = snapshot(saved)
    (saved / "tokenizer.json").write_text("of the user")
    (saved / "weights-best.safetensors").write_text("of the user")
    with pytest.raises(InputError, match=r"resume=True.*remove it \(training.forget\) or give ano"):
        Training().fit(10, saved)
    assert snapshot(saved).items() >= before.items()
    training.forget(saved)
    assert listing(saved) == ["tokenizer.json", "weights-best.safetensors"]
    assert Training().fit(10, saved) == uninterrupted
    training.forget(saved / "nowhere")


def test_fewer_steps_than_there_are_is_refused(saved):
    with pytest.raises(InputError, match=r"at step 5 already, and steps is 4; give more steps"):
        Training().fit(4, saved, resume=True)


def test_resume_needs_a_folder():
    with pytest.raises(ValueError, match="resume=True: give the folder"):
        Training().fit(4, resume=True)


def test_batches_that_cannot_tell_their_place_are_refused_at_once(tmp_path):
    run = Training()
    run.batches = (run.dev for _ in itertools.count())
    with pytest.raises(TypeError, match=r"batches is a generator: .* state_dict"):
        run.fit(4, tmp_path)
    assert listing(tmp_path) == []
    with pytest.raises(AttributeError):  # of this test's outcome(): without a folder they are fine
        run.fit(2)
    assert len(run.history) == 2


def test_another_learning_rate_is_said(saved, capsys):
    Training().fit(6, saved, resume=True)
    assert capsys.readouterr().err == ""
    Training().fit(7, saved, resume=True, schedule=optim.constant())
    said = "the learning rate of step 6 was 0.009792, and would be 0.01 now\n"
    assert capsys.readouterr().err == said


# -- messages, progress ----------------------------------------------------------------------------


def test_batches_are_counted_on(saved, capsys):
    class Unlabelled(Batches):
        def __next__(self):
            batch = super().__next__()
            return batch | {"labels": np.full_like(batch["labels"], -100)}

    run = Training()
    run.batches.__class__ = Unlabelled
    with pytest.raises(ValueError, match="no labelled position"):
        run.fit(6, saved, resume=True)
    assert capsys.readouterr().err.startswith("batch 11 had no labelled position")


def test_the_progress_line_goes_on(saved, capsys):
    Training().fit(8, saved, resume=True, progress=True)
    err = capsys.readouterr().err
    assert re.search(r"training: +62%\|.*\| 5/8", err) and "0/8" not in err
    assert re.search(r"training: 100%\|.*\| 8/8", err)


# -- averaging (the paper, section 6.1) ------------------------------------------------------------


def weights_of(folder, *steps):
    return [safetensors.numpy.load_file(folder / f"weights-{s:06}.safetensors") for s in steps]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_average_is_the_mean_of_the_last_weights(dtype, tmp_path):
    run = Training(dtype=dtype)
    run.fit(12, tmp_path, save_every=2, keep=4)
    assert listing(tmp_path) == files_of(6, 8, 10, 12)
    for last, steps in ((None, (6, 8, 10, 12)), (3, (8, 10, 12)), (1, (12,))):
        mean = checkpoints.average(tmp_path, last)
        files = weights_of(tmp_path, *steps)
        for name, array in mean.items():
            exact = np.mean([file[name].astype(np.float64) for file in files], axis=0)
            assert_array_equal(array, exact.astype(dtype), strict=True)
    for name, p in run.model.named_parameters():
        assert_array_equal(mean[name], p.data, strict=True)
    run.model.load_state_dict(checkpoints.average(tmp_path))


def test_average_adds_in_float64(tmp_path):
    values = np.array([[1e8, 1.0], [1.0, 1.0], [-1e8, 1.0]], np.float32)
    model = nn.Linear(2, 1, bias=False)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    state = checkpoints.TrainingState(batches={})
    for step, row in enumerate(values, 1):
        model.weight.data = row[None]
        state.history.append(RECORD | {"step": step})
        checkpoints.save(tmp_path, model, optimizer, state, save_every=1, keep=3)
    assert_array_equal(training.average(tmp_path)["weight"], np.float32([[1 / 3, 1]]))


def test_the_averaged_checkpoints_are_the_same_after_interruptions(tmp_path, uninterrupted):
    """Those of Ctrl-C and of an early end count only while they are the last."""
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    Training().fit(10, whole, save_every=2, keep=3)
    Training().fit(1, stopped, save_every=2, keep=3)
    assert listing(stopped) == files_of(1)  # and not 0, which is no training
    for steps in (5, 7, 9, 10):
        run = Training(seed=steps)
        run.fit(steps, stopped, resume=True, save_every=2, keep=3)
    assert listing(stopped) == listing(whole) == files_of(6, 8, 10)
    for name, array in checkpoints.average(whole).items():
        assert_array_equal(checkpoints.average(stopped)[name], array)


def test_average_of_more_than_there_are_is_refused(saved):
    assert listing(saved) == files_of(4, 5)
    with pytest.raises(
        InputError, match=r"weights of 2 checkpoints.*last 3 is.*keep=3, or average"
    ):
        checkpoints.average(saved, 3)
    with pytest.raises(ValueError, match="last is 0"):
        checkpoints.average(saved, 0)
    with pytest.raises(InputError, match="holds no checkpoint"):
        checkpoints.average(saved / "nowhere")
