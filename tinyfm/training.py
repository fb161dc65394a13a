"""fit(): the training loop.

One step is forward and backward over `accumulate` batches, clipping, and an optimizer update with
the rate of the schedule.  The loss is a mean over *labelled tokens*.  Batches differ in how many
they have, so gradients are accumulated as sums over tokens and divided once by the common count:
the result is the gradient of the concatenated batch, not a mean of means.
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
from typing import Any

import numpy as np

from tinyfm.backend import keep_memory
from tinyfm.optim import Optimizer, Schedule, clip_grad_norm


def fit(
    model: Any,
    batches: Iterable[dict[str, Any]],
    optimizer: Optimizer,
    schedule: Schedule,
    steps: int,
    accumulate: int = 1,
    clip: float | None = 1.0,
    evaluate: Callable[[Any], dict[str, float]] | None = None,
    evaluate_every: int | None = None,
    progress: bool | None = None,
    description: str = "training",
) -> list[dict[str, float]]:
    """Train for `steps` optimizer steps; returns a record of every step, the history.

    batches: dicts for `model(**batch)`, whose result has .loss and .num_labels.  As many as are
        needed are taken from the iterator, so an endless one is usual.
    clip: limit of the gradient's norm; None for no limit.
    evaluate: called with the model (in evaluation mode, nothing recorded) every evaluate_every
        steps and after the last one; what it returns is added to the record.
    progress: a tqdm line with loss, rate, tokens per second and the time left, on standard error;
        None: when that is a terminal.

    A batch without labels is left out and said so.  A step whose loss or gradient is not finite
    changes no weight and is said; a second one in a row ends the training with FloatingPointError.
    KeyboardInterrupt passes through between two updates, never in the middle of one.  Batches that
    run out before the last step are a ValueError.
    """
    from tqdm import tqdm

    say = partial(tqdm.write, file=sys.stderr)
    for name, value, least in (
        ("steps", steps, 0),
        ("accumulate", accumulate, 1),
        ("evaluate_every", evaluate_every or 1, 1),
    ):
        if value < least:
            raise ValueError(f"{name} is {value}: it must be at least {least}")
    keep_memory()
    model.train()
    history: list[dict[str, float]] = []
    source = iter(batches)
    shown = sys.stderr.isatty() if progress is None else progress
    with tqdm(total=steps, desc=description, disable=not shown, unit="step", leave=True) as bar:
        tokens, began, skipped = 0, time.perf_counter(), 0
        while len(history) < steps:
            step = len(history) + 1
            loss, count = _accumulate(model, source, optimizer, accumulate, say)
            norm = clip_grad_norm(optimizer.params, math.inf if clip is None else clip)
            if not (math.isfinite(loss) and math.isfinite(norm)):
                skipped += 1
                say(f"step {step}: loss {loss}, gradient norm {norm}: not applied")
                if skipped == 2:
                    raise FloatingPointError(
                        f"training stopped at step {step}: the loss or its gradient is not finite "
                        "twice in a row; lower the learning rate or look at the data"
                    )
                continue
            skipped = 0
            rate = schedule(step)
            with _undivided():
                optimizer.step(rate)
            tokens += count
            record = {"step": step, "loss": loss, "lr": optimizer.lr * rate, "norm": norm}
            if evaluate and (step == steps or (evaluate_every and step % evaluate_every == 0)):
                with model.evaluating():
                    record |= evaluate(model)
            history.append(record)
            speed = tokens / (time.perf_counter() - began)
            bar.set_postfix_str(f"loss {loss:.3f} lr {record['lr']:.2e} {speed:.0f} tokens/s")
            bar.update()
    optimizer.zero_grad()
    return history


def _accumulate(
    model: Any,
    source: Iterator[dict[str, Any]],
    optimizer: Optimizer,
    accumulate: int,
    say: Callable[[str], None],
) -> tuple[float, int]:
    """Gradients of the mean loss over the labelled tokens of `accumulate` batches, and the loss."""
    optimizer.zero_grad()
    total, count, empty = 0.0, 0, 0
    while not count or accumulate > 0:
        batch = next(source, None)
        if batch is None:
            raise ValueError("the batches ended before the last step; give an endless iterator")
        output = model(**batch)
        accumulate -= 1
        n = output.num_labels
        if not n:
            empty += 1
            say("a batch had no labelled position and was left out")
            if empty == 100:
                raise ValueError("100 batches in one step had no labelled position")
            continue
        output.loss.backward(np.asarray(n, output.loss.dtype))
        total += output.loss.item() * n
        count += n
    for p in optimizer.params:
        if p.grad is not None:
            p.grad /= count
    return total / count, count


@contextmanager
def _undivided() -> Iterator[None]:
    """Hold back Ctrl-C until the end of the block, so that weights are never half updated."""
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

    For use in an `evaluate` of fit, or within `model.evaluating()`.
    """
    total, count = 0.0, 0
    for batch in batches:
        output = model(**batch)
        total += output.loss.item() * output.num_labels
        count += output.num_labels
    return total / max(count, 1)
