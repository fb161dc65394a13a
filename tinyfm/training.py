"""fit(): the training loop.

One step is forward and backward over `accumulate` batches, clipping, and an optimizer update with
the rate of the schedule.  The loss is a mean over *labelled tokens*.  Batches differ in how many
they have, so gradients are accumulated as sums over tokens and divided once by the common count:
the result is the gradient of the concatenated batch, not a mean of means.

A run can be stopped at any moment and goes on as if it had not been: random numbers come from one
generator, and its state and the place in the data are noted at the end of each step, with the
update, in one piece that no Ctrl-C can divide.  A step that was cut short is done again from there.
"""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tinyfm import checkpoints
from tinyfm.backend import generator, keep_memory
from tinyfm.checkpoints import (
    Folder,
    Resumable,
    TrainingState,
    alone,
    average,
    forget,
    history,
    step_of,
)
from tinyfm.errors import InputError
from tinyfm.optim import Optimizer, Schedule, clip_grad_norm

__all__ = ["alone", "average", "fit", "forget", "history", "mean_loss", "step_of"]


def fit(
    model: Any,
    batches: Iterable[dict[str, Any]],
    optimizer: Optimizer,
    schedule: Schedule,
    steps: int,
    accumulate: int = 1,
    clip: float | None = 1.0,
    evaluate: Callable[[Any], dict[str, float]] | None = None,
    folder: Folder | None = None,
    resume: bool = False,
    *,
    evaluate_every: int | None = None,
    save_every: int = 500,
    keep: int = 1,
    progress: bool | None = None,
    description: str = "training",
) -> list[dict[str, float]]:
    """Train up to step `steps`; returns the history: a record of every step from the first on.

    batches: dicts for `model(**batch)`, whose result has .loss and .num_labels.  As many as are
        needed are taken from the iterator, so an endless one is usual.
    accumulate: how many batches make a step.  Each weighs as much as the num_labels of its result,
        in all parts of its loss.
    clip: limit of the gradient's norm; None for no limit.
    evaluate: called with the model (in evaluation mode, nothing recorded) every evaluate_every
        steps and after the last one; what it returns is added to the record.  What it draws from
        the one generator does not change the training.
    folder: where the training is saved: before the first step, every save_every steps, after the
        last one, and on Ctrl-C.  `batches` then needs state_dict() and load_state_dict(), with
        states that JSON can hold, as data.Batches has them.  One training at a time may use it.
    resume: go on from the folder's checkpoint, bit for bit (on the CPU of the same machine) as if
        nothing had happened.  Model, optimizer and batches are made as for the first run and are
        put in their places.  Without it, a folder that holds a checkpoint is refused;
        `forget(folder)` removes it.
    keep: the weights of how many checkpoints stay in the folder, for `average(folder)`.
    progress: a tqdm line with loss, rate, tokens per second and the time left, on standard error;
        None: when that is a terminal.

    A batch without labels is left out, with a message on standard error.  A step whose loss or
    gradient is not finite changes no weight and is reported there; a second one in a row raises
    FloatingPointError.  Ctrl-C never cuts an update in two: the checkpoint is saved and
    KeyboardInterrupt raised again.  ValueError: the batches end before the last step.  InputError:
    a checkpoint is missing, damaged, unexpectedly there (resume=False), or of another model,
    optimizer or data; or another training is using the folder.  OSError: a checkpoint cannot be
    written, and the one before is still whole.
    """
    from tqdm import tqdm

    say = partial(tqdm.write, file=sys.stderr)
    for name, value, least in (
        ("steps", steps, 0),
        ("accumulate", accumulate, 1),
        ("evaluate_every", 1 if evaluate_every is None else evaluate_every, 1),
        ("save_every", save_every, 1),
        ("keep", keep, 1),
    ):
        if not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} is {value!r}: it must be a whole number of at least {least}")
    keep_memory()
    model.train()
    terminal = sys.stderr is not None and sys.stderr.isatty()  # None: started without it
    shown = terminal if progress is None else progress
    with (
        _started(folder, resume, steps, model, optimizer, batches) as state,
        tqdm(
            total=steps, initial=state.step, desc=description, disable=not shown, unit="step"
        ) as bar,
    ):
        if state.step:
            was, now = state.history[-1]["lr"], float(optimizer.lr * schedule(state.step))
            if was != now:
                say(
                    f"the learning rate of step {state.step} was {was:.4g}, and would be "
                    f"{now:.4g} now"
                )

        def due(every: int | None) -> bool:
            return state.step == steps or (every is not None and state.step % every == 0)

        def save() -> None:
            if folder is not None:
                with _undivided():
                    checkpoints.save(folder, model, optimizer, state, save_every, keep)

        source = enumerate(batches, state.taken + 1)
        gradients = partial(_gradients, model, source, optimizer, accumulate, clip, say)
        tokens, began = 0, time.perf_counter()
        try:
            while True:
                # First what is due after the last step: Ctrl-C may have cut its evaluation short.
                if evaluate is not None and state.evaluated < state.step and due(evaluate_every):
                    with model.evaluating(), _same_random_numbers():
                        scores = evaluate(model)
                    if taken := scores.keys() & {"step", "loss", "lr", "norm"}:
                        raise ValueError(
                            f"evaluate returned {min(taken)!r}, which is of the training itself; "
                            "give it another name"
                        )
                    state.history[-1] |= {name: float(score) for name, score in scores.items()}
                    state.evaluated = state.step
                if due(save_every):
                    save()
                if state.step == steps:
                    break
                step = state.step + 1
                gradient = _finite(gradients, step, say)
                factor = schedule(step)
                record = {
                    "step": step,
                    "loss": gradient.loss,
                    "lr": float(optimizer.lr * factor),
                    "norm": gradient.norm,
                }
                with _undivided():
                    optimizer.step(factor)
                    state.advance(record, batches, taken=gradient.batches[-1])
                tokens += gradient.tokens
                speed = tokens / (time.perf_counter() - began)
                bar.set_postfix_str(
                    f"loss {gradient.loss:.3f} lr {record['lr']:.2e} {speed:.0f} tokens/s"
                )
                bar.update()
        except KeyboardInterrupt:
            save()
            raise
    optimizer.zero_grad()
    return state.history


@contextmanager
def _started(
    folder: Folder | None,
    resume: bool,
    steps: int,
    model: Any,
    optimizer: Optimizer,
    batches: Iterable[dict[str, Any]],
) -> Iterator[TrainingState]:
    """Where the training starts: anew, or where the folder's checkpoint has put everything.

    Within the block no other training may use the folder.
    """
    if folder is None:
        if resume:
            raise ValueError("resume=True: give the folder of the run that shall go on")
        yield TrainingState()
        return
    if not isinstance(batches, Resumable):
        raise TypeError(
            f"batches is a {type(batches).__name__}: a training that is saved needs one with "
            "state_dict() and load_state_dict(), as data.Batches has them; or leave folder out"
        )
    if not resume:
        Path(folder).mkdir(parents=True, exist_ok=True)
    with alone(folder):
        if resume:
            state = checkpoints.load(folder, model, optimizer, batches)
        elif checkpoints.exists(folder):
            raise InputError(
                f"{folder}: holds a training that can go on (resume=True); to begin anew, remove "
                "it (training.forget) or give another folder"
            )
        else:
            state = TrainingState(batches=checkpoints.place_of(batches))
        if state.step > steps:
            raise InputError(
                f"{folder}: the training is at step {state.step} already, and steps is {steps}; "
                "give more steps to go on"
            )
        yield state


class Gradient(NamedTuple):
    """What the gradients of a step, which are in the parameters, are the gradients of.

    loss: the mean over the labelled tokens; norm: of all gradients together, before clipping;
    tokens: how many are labelled; batches: the numbers of the batches that they come from.
    """

    loss: float
    norm: float
    tokens: int
    batches: list[int]


def _gradients(
    model: Any,
    source: Iterator[tuple[int, dict[str, Any]]],
    optimizer: Optimizer,
    accumulate: int,
    clip: float | None,
    say: Callable[[str], None],
) -> Gradient:
    """Fill the clipped gradients of the mean loss over the labelled tokens of `accumulate` batches.

    If none of them has a labelled token, more are taken until one has.
    """
    optimizer.zero_grad()
    total, count, empty = 0.0, 0, 0
    numbers: list[int] = []
    while len(numbers) < accumulate or not count:
        number, batch = next(source, (0, None))
        if batch is None:
            raise ValueError("the batches ended before the last step; give an endless iterator")
        numbers.append(number)
        output = model(**batch)
        n = output.num_labels
        if not n:
            empty += 1
            say(f"batch {number} had no labelled position and was left out")
            if empty == 100:
                raise ValueError("100 batches in one step had no labelled position")
            continue
        output.loss.backward(np.asarray(n, output.loss.dtype))
        total += output.loss.item() * n
        count += n
    for p in optimizer.params:
        if p.grad is not None:
            p.grad /= count
    norm = clip_grad_norm(optimizer.params, math.inf if clip is None else clip)
    return Gradient(total / count, norm, count, numbers)


def _finite(gradients: Callable[[], Gradient], step: int, say: Callable[[str], None]) -> Gradient:
    """What gradients() returns; if its loss or norm is not finite, that of the next batches."""
    for _ in range(2):
        gradient = gradients()
        if math.isfinite(gradient.loss) and math.isfinite(gradient.norm):
            return gradient
        first, last = gradient.batches[0], gradient.batches[-1]
        batch = f"{first}" if first == last else f"{first}-{last}"
        say(
            f"step {step}, batch {batch}: loss {gradient.loss}, gradient norm {gradient.norm}: "
            "not applied"
        )
    raise FloatingPointError(
        f"training stopped at step {step}, batch {batch}: the loss or its gradient is not finite "
        "twice in a row; lower the learning rate or look at the data"
    )


@contextmanager
def _same_random_numbers() -> Iterator[None]:
    """After the block, the one generator goes on as if the block had drawn nothing from it."""
    before = generator().bit_generator.state
    try:
        yield
    finally:
        generator().bit_generator.state = before


@contextmanager
def _undivided() -> Iterator[None]:
    """Hold back Ctrl-C until the end of the block: an update or a checkpoint is not cut in two."""
    handler = signal.getsignal(signal.SIGINT)
    # Only the main thread gets signals, and only a handler of Python's can be put back.
    if threading.current_thread() is not threading.main_thread() or handler is None:
        yield
        return
    held = []
    signal.signal(signal.SIGINT, lambda *arguments: held.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if held:
            signal.raise_signal(signal.SIGINT)


def mean_loss(model: Any, batches: Iterable[dict[str, Any]]) -> float:
    """The loss over all labelled tokens of the batches (not a mean of means); exp: perplexity.

    For use in an `evaluate` of fit, or within `model.evaluating()`.  ValueError: nothing labelled.
    """
    total, count = 0.0, 0
    for batch in batches:
        output = model(**batch)
        if output.num_labels:
            total += output.loss.item() * output.num_labels
            count += output.num_labels
    if not count:
        raise ValueError(
            "no batch had a labelled position; give a list, since a generator is empty when it is "
            "used again"
        )
    return total / count
