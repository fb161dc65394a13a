"""A training run on disk: a crash at any moment leaves the last checkpoint whole.

    checkpoint.json                 the commit point: history, random state, place in the data
    weights-000600.safetensors      the parameters after step 600, by their names in the model
    optimizer-000600.safetensors    what the optimizer remembers of them: NAME.m, NAME.v, NAME.t

Arrays are written first, and as their step is in their names, they touch none of another step
that the present checkpoint.json names; those of the same step are replaced by equal ones.  Then the
new checkpoint.json takes the place of the old one in a single rename, and only then are the files
removed that it does not name.  Whatever happens in between, checkpoint.json names whole files.

A folder is for one training at a time: `alone` keeps others out.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tinyfm.backend import generator
from tinyfm.errors import InputError
from tinyfm.files import read_arrays, read_json, remove, write_arrays, write_json
from tinyfm.nn import Module
from tinyfm.optim import Optimizer

MANIFEST = "checkpoint.json"
Folder = str | os.PathLike[str]


@runtime_checkable
class Resumable(Protocol):
    """Data that can tell its place, in what JSON can hold, and go on from there."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any], /) -> None: ...


def place_of(batches: object) -> dict[str, Any] | None:
    """Where the data stand, for good: a copy, should state_dict() give what goes on to change.

    None for data that cannot tell.
    """
    return copy.deepcopy(batches.state_dict()) if isinstance(batches, Resumable) else None


def _generator_state() -> dict[str, Any]:
    return dict(generator().bit_generator.state)


@dataclass
class TrainingState:
    """What a run consists of besides weights and moments, as it was after its last whole step.

    history    the record of every step (each save writes all of them: 100 bytes a step)
    batches    the place in the data; None where they cannot tell
    taken      how many batches have been used, those without labels included
    evaluated  the step of the last evaluation
    generator  the state of the one generator
    kept       the steps whose weights are in the folder; the last one is the checkpoint's
    """

    history: list[dict[str, float]] = field(default_factory=list)
    batches: Any = None
    taken: int = 0
    evaluated: int = 0
    generator: dict[str, Any] = field(default_factory=_generator_state)
    kept: list[int] = field(default_factory=list)

    @property
    def step(self) -> int:
        """The number of the last whole step, 0 before the first."""
        return len(self.history)

    def advance(self, record: dict[str, float], batches: object, taken: int) -> None:
        """One more step is whole."""
        self.history.append(record)
        self.batches, self.taken = place_of(batches), taken
        self.generator = _generator_state()


def exists(folder: Folder) -> bool:
    """Whether the folder holds a checkpoint."""
    return (Path(folder) / MANIFEST).exists()


def step_of(folder: Folder) -> int:
    """The step of the folder's checkpoint; InputError if it holds none, or a damaged one."""
    return _read_manifest(Path(folder))[0].step


def history(folder: Folder) -> list[dict[str, float]]:
    """The record of every step so far, as `training.fit` returns it."""
    return _read_manifest(Path(folder))[0].history


@contextmanager
def alone(folder: Folder) -> Iterator[None]:
    """Keep every other training, of this process and of others, out of the folder for the block.

    InputError while another one is in it.  The folder itself is locked, so that no file is added,
    and the system unlocks it when the process ends, however that comes about.  Nothing is locked
    where there is no folder yet, or where the system cannot (Windows, some network file systems).
    """
    if os.name != "posix" or not Path(folder).is_dir():
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                f"{folder}: another training is using it; wait for its end, or give another folder"
            ) from error
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(descriptor)


def save(
    folder: Folder,
    model: Module,
    optimizer: Optimizer,
    state: TrainingState,
    save_every: int,
    keep: int,
) -> None:
    """Write a checkpoint, and note in state.kept whose weights the folder now holds.

    keep: of how many checkpoints the weights stay, for `average`.  Among the earlier ones those at
        multiples of save_every count, so that the set is the same with and without interruptions.

    OSError: the disk is full, for one; the earlier checkpoint stays and nothing beside it.
    FloatingPointError: a weight is not finite; the same.
    """
    path, step = Path(folder), state.step
    weights = model.state_dict()
    for name, array in weights.items():
        if not np.isfinite(array).all():
            raise FloatingPointError(
                f"{name} is not finite after step {step}, which is not saved; "
                "lower the learning rate or look at the data"
            )
    moments = optimizer.state_dict()
    memory = {
        f"{name}.{key}": np.asarray(value)
        for name, entry in zip(_names(model, optimizer), moments["state"], strict=True)
        for key, value in entry.items()
    }
    regular = range(save_every, step, save_every)
    kept = [*(s for s in state.kept if s in regular), step][-keep:]
    path.mkdir(parents=True, exist_ok=True)
    try:
        write_arrays(path / _weights_file(step), weights)
        write_arrays(path / _optimizer_file(step), memory)
        values = {"optimizer": moments["kind"], **vars(state), "kept": kept}
        write_json(path / MANIFEST, values, indent=None)
        state.kept = kept
    finally:
        _remove_others(path)


def load(folder: Folder, model: Module, optimizer: Optimizer, batches: Resumable) -> TrainingState:
    """Put model, optimizer, data and the one generator where the folder's checkpoint has them.

    InputError names the folder and what is missing, damaged, or differs from what was saved: a
    parameter's name, shape or dtype, the kind of the optimizer, the data.
    """
    path = Path(folder)
    state, kind = _read_manifest(path)
    weights = read_arrays(path / _weights_file(state.step))
    memory = read_arrays(path / _optimizer_file(state.step))
    entries: dict[str, dict[str, Any]] = {name: {} for name in _names(model, optimizer)}
    try:
        _compare(weights, dict(model.named_parameters()))
        for full_name, array in memory.items():
            name, _, key = full_name.rpartition(".")
            if name not in entries:
                raise ValueError(
                    f"the checkpoint has optimizer state for {name}, which this optimizer does "
                    "not train"
                )
            entries[name][key] = array if array.dtype.kind == "f" else array.item()
        optimizer.load_state_dict({"kind": kind, "state": list(entries.values())})
        generator().bit_generator.state = state.generator
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        what = str(error) if isinstance(error, ValueError) else f"damaged ({error!r})"
        raise InputError(
            f"{path}: cannot resume: {what}; give the model and optimizer of its training, and, as "
            "a model is made for its data, the data as they were"
        ) from error
    try:  # code of others: only a ValueError speaks of the data, the rest are bugs in it
        batches.load_state_dict(copy.deepcopy(state.batches))
    except ValueError as error:
        raise InputError(f"{path}: cannot resume: {error}") from error
    model.load_state_dict(weights)
    return state


def average(folder: Folder, last: int | None = None) -> dict[str, np.ndarray]:
    """The mean of the weights of the `last` checkpoints in the folder; None: of all it has.

    Summed in float64, returned by name in the dtype of the weights, for `model.load_state_dict`.
    (Vaswani et al. 2017, section 6.1: the last 5 of the base models, the last 20 of the big ones.)
    """
    path = Path(folder)
    state, _ = _read_manifest(path)
    count = len(state.kept) if last is None else last
    if count < 1:
        raise ValueError(f"last is {last}: the mean is over at least 1 checkpoint")
    if count > len(state.kept):
        raise InputError(
            f"{path}: has the weights of {len(state.kept)} checkpoints, and the mean of the last "
            f"{last} is wanted; train with keep={last}, or average fewer"
        )
    first, *others = state.kept[-count:]
    weights = read_arrays(path / _weights_file(first))
    total = {name: array.astype(np.float64) for name, array in weights.items()}
    for step in others:
        for name, array in read_arrays(path / _weights_file(step)).items():
            total[name] += array
    return {name: np.asarray(total[name] / count, array.dtype) for name, array in weights.items()}


def forget(folder: Folder) -> None:
    """Remove the checkpoint and its weights from the folder; other files stay.

    InputError while a training is using it.
    """
    path = Path(folder)
    with alone(path):
        (path / MANIFEST).unlink(missing_ok=True)  # first: without it the rest is nothing
        _remove_others(path)


# -- files ----------------------------------------------------------------------------------------


def _weights_file(step: int) -> str:
    return f"weights-{step:06}.safetensors"


def _optimizer_file(step: int) -> str:
    return f"optimizer-{step:06}.safetensors"


_OWN = re.compile(r"(weights|optimizer)-\d{6,}\.safetensors(\.partial)?|checkpoint\.json\.partial")


def _remove_others(folder: Path) -> None:
    """Remove array files that checkpoint.json does not name, and all that is half written."""
    kept = _read_manifest(folder)[0].kept if exists(folder) else []
    named = {_weights_file(step) for step in kept} | {_optimizer_file(step) for step in kept[-1:]}
    for path in folder.glob("*"):
        if _OWN.fullmatch(path.name) and path.name not in named:
            remove(path)


def _read_manifest(folder: Path) -> tuple[TrainingState, str]:
    """The state in checkpoint.json, and the kind of its optimizer."""
    path = folder / MANIFEST
    if not path.exists():
        raise InputError(
            f"{folder}: holds no checkpoint ({MANIFEST}); give the folder of a saved training"
        )
    values = read_json(path)
    try:
        state = TrainingState(**{f.name: values[f.name] for f in fields(TrainingState)})
        _check(state)
        return state, values["optimizer"]
    except (LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: damaged, or not of a training ({error!r}); begin anew in another folder"
        ) from error


def _check(state: TrainingState) -> None:
    """ValueError or TypeError for what no training would have written."""
    for record in state.history:
        whole = isinstance(record, dict) and {"step", "loss", "lr", "norm"} <= record.keys()
        if not whole or not all(isinstance(value, int | float) for value in record.values()):
            raise TypeError("a record of a step that lacks a number")
    if not all(type(count) is int for count in (state.taken, state.evaluated, *state.kept)):
        raise TypeError("a count that is no whole number")
    if state.kept[-1] != state.step:
        raise ValueError(f"weights of step {state.kept[-1]}, history of {state.step} steps")


# -- matching a checkpoint with a model -----------------------------------------------------------


def _names(model: Module, optimizer: Optimizer) -> list[str]:
    """The model's names of the optimizer's parameters, in the optimizer's order."""
    names = {id(p): name for name, p in model.named_parameters()}
    if not all(id(p) in names for p in optimizer.params):
        raise ValueError("the optimizer has a parameter that the model lacks: it has no name")
    return [names[id(p)] for p in optimizer.params]


def _compare(saved: dict[str, Any], here: dict[str, Any]) -> None:
    """ValueError at the first parameter whose name, shape or dtype differs."""

    def describe(arrays: dict[str, Any], name: str) -> str:
        x = arrays.get(name)
        return "none" if x is None else f"{tuple(x.shape)} {x.dtype}"

    for name in [*here, *(saved.keys() - here.keys())]:
        then, now = describe(saved, name), describe(here, name)
        if then != now:
            raise ValueError(f"{name}: the checkpoint has {then}, and this model {now}")
