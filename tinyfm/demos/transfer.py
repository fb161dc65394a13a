"""What one model of all tasks is worth beside one of each, and what pretraining is (Raffel et al.
2020, sections 3.5.2 and 3.1.5).

                  begins with            learns                steps
mixture           what is pretrained     all n tasks at once   s
a model each      the same               one task              as many as the mixture has of it
not pretrained    random weights         all n tasks at once   s
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import tinyfm
from tinyfm.demos import cli
from tinyfm.demos.encoders import new_optimizer
from tinyfm.demos.families import T5
from tinyfm.demos.finetuning import Model, Task, kind_of, new_batches
from tinyfm.demos.learning import Say, fit
from tinyfm.demos.records import Records
from tinyfm.demos.templates import Scores, learnt
from tinyfm.demos.text_learning import HEAD, TRAINING, SpanCorruption, TextTasks, guessed

COLUMNS = ("guessed", "mixture", "a model each", "not pretrained")
State = dict[str, np.ndarray]


def compare(args: argparse.Namespace, say: Say) -> None:
    """Train all of them on the generated tasks, and say the table; nothing is saved."""
    device = cli.choose_device(args)
    TRAINING.settle(args, kind_of)
    tinyfm.manual_seed(args.seed)
    spans, tasks = SpanCorruption(), TextTasks()
    corpus, _ = spans.embedded()
    records, tests = tasks.embedded()
    test = next(iter(tests.values()))
    tokenizer = T5.new_tokenizer(args, spans.lines(corpus), spans.lowercase)
    made = T5.new_model(args, tokenizer, HEAD).to(device)
    model = Model(made, tokenizer, args.max_length, T5)
    student = Student(model, args, say)
    random = student.state()

    parts = {name: only(records, name) for name in learnt()}
    sizes = {
        name: len(new_batches(tasks.examples(part, model), model, args))
        for name, part in parts.items()
    }
    steps = args.steps or args.epochs * sum(sizes.values())
    student.learn("hidden spans", spans, corpus, args.pretraining_steps)
    pretrained = student.state()

    student.learn("all tasks", tasks, records, steps)
    mixture = tasks.score(test, model).numbers
    alone: Scores = {}
    for name, part in parts.items():
        student.begin(pretrained)
        student.learn(name, tasks, part, -(-steps * sizes[name] // sum(sizes.values())))
        alone |= tasks.score(only(test, name), model).numbers
    student.begin(random)
    student.learn("all tasks, not pretrained", tasks, records, steps)
    scratch = tasks.score(test, model).numbers

    say(f"after {args.pretraining_steps} steps of pretraining and {steps} on tasks:")
    for line in table(dict(zip(COLUMNS, (guessed(test), mixture, alone, scratch), strict=True))):
        say(line)


class Student:
    """A model that learns one thing after the other, with a new optimizer each time."""

    def __init__(self, model: Model, args: argparse.Namespace, say: Say) -> None:
        self.model, self.args, self.say = model, args, say

    def state(self) -> State:
        """A copy of the weights."""
        return {name: array.copy() for name, array in self.model.model.state_dict().items()}

    def begin(self, state: State) -> None:
        """Forget what has been learnt since."""
        self.model.model.load_state_dict(state)

    def learn(self, what: str, task: Task[Any], records: Records[Any], steps: int) -> None:
        if steps == 0:
            return
        model, args = self.model, self.args
        warmup = args.warmup or -(-steps // 10)
        own = argparse.Namespace(**vars(args) | {"steps": steps, "warmup": warmup})
        examples = task.examples(records, model)
        batches = new_batches(examples, model, own, task.change(own, model))
        optimizer = new_optimizer(model.model)
        history = fit(model.model, batches, optimizer, lambda _: {}, None, own, self.say)
        self.say(f"{what}: loss {history[-1]['loss']:.3f} after {steps} steps")


def only(records: Records[Any], task: str) -> Records[Any]:
    """Those of one task."""
    rows = [i for i, pair in enumerate(records) if pair.task == task]
    return Records([records[i] for i in rows], [records.where(i) for i in rows])


def table(columns: dict[str, Scores]) -> list[str]:
    """A line for each score, which is a key of every column."""
    names = list(next(iter(columns.values())))
    first = max(map(len, names))
    lines = ["  ".join([" " * first, *(f"{name:>14}" for name in columns)])]
    for name in names:
        cells = (f"{scores[name]:14.3g}" for scores in columns.values())
        lines.append("  ".join([f"{name:{first}}", *cells]))
    return lines
