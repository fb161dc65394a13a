"""Learn to find the answer to a question in a passage, or that there is none.

    python -m tinyfm.demos.answer                   learns from generated passages, in English
    python -m tinyfm.demos.answer --model FOLDER --question "..." --context "..."
    python -m tinyfm.demos.answer --model FOLDER < lines.txt         question, tab, passage
    python -m tinyfm.demos.answer --train train.json --test dev.json
    python -m tinyfm.demos.answer --train train.json --model FOLDER  fine-tunes what is there

Files are SQuAD's JSON (1.1 or 2.0), or JSON lines with question, context and answers. A passage
that is too long is read in windows. A training replaces what is in its folder (--save).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyfm import metrics
from tinyfm.backend import to_numpy
from tinyfm.data import Example
from tinyfm.demos import cli, facts
from tinyfm.demos.encoders import new_example
from tinyfm.demos.finetuning import (
    Command,
    Model,
    Score,
    Task,
    learns,
    new_training,
    run,
    shared_parser,
)
from tinyfm.demos.modelling import outputs
from tinyfm.demos.records import Question, Records, read_questions
from tinyfm.errors import InputError
from tinyfm.objectives import answer_span, answer_text, best_spans
from tinyfm.tokenizer import Window

COMMAND = Command(
    prog="answer",
    doc=__doc__ or "",
    save="answerer",
    train="SQuAD's JSON, or JSON lines",
)
TRAINING = new_training(
    sizes={"vocab_size": (1000, 4000, 4000)},
    epochs=(12, 3, 3),
    max_length=(128, 384, 384),
    max_tokens=(1000, 2000, 2000),
    dropout=(0.0, 0.1, 0.1),
)
MAX_ANSWER = 30  # tokens in an answer


def new_parser() -> cli.Parser:
    """The shared options, and what to answer."""
    new = shared_parser(COMMAND, TRAINING)
    asked = new.add_argument_group("questions")
    asked.add_argument(
        "--question", type=cli.full_text, metavar="TEXT", help="answer this out of --context; "
        "without it, after --model, each line of standard input, or what is typed at a prompt: a "
        "question, a tab, a passage",
    )  # fmt: skip
    asked.add_argument("--context", type=cli.full_text, metavar="TEXT", help="the passage")
    asked.add_argument(
        "--n-best", type=cli.positive_int, default=1, metavar="N", help="answers that are shown "
        "(default: %(default)s)",
    )  # fmt: skip
    asked.add_argument(
        "--null-threshold", type=cli.number, default=0.0, metavar="X", help="there is no answer "
        "where that scores more than X above the best one (default: %(default)s); it is not asked "
        "in a --test whose questions all have answers",
    )  # fmt: skip
    return new


class Found(NamedTuple):
    """An answer, "" for none, and its score: the sum of the logits at its start and end."""

    text: str
    score: float


class Answering(Task[Question]):
    """threshold: how far above the best answer it must score that there is none."""

    heads = ("ForQuestionAnswering",)

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def read(self, path: str, args: argparse.Namespace, model: Any = None) -> Records[Question]:
        return read_questions(path, skip=bool(args.skip_bad))

    def embedded(self) -> tuple[Records[Question], dict[str, Records[Question]]]:
        return facts.records()

    def lines(self, records: Records[Question]) -> list[str]:
        return [*{r.context: None for r in records}, *(record.question for record in records)]

    def examples(self, records: Records[Question], model: Model) -> list[Example]:
        """One for each window; the answer is at token 0 where the window does not hold it."""
        made = []
        for i, record in enumerate(records):
            for encoding, allowed in windows(record, model, records.where(i)):
                start = end = 0
                if record.answers:
                    text, place = record.answers[0]
                    start, end = answer_span(encoding.offsets, allowed, place, text)
                made.append(
                    new_example(encoding, model.model, start_positions=start, end_positions=end)
                )
        return made

    def cut(self, records: Records[Question], examples: list[Example], model: Model) -> int:
        return 0  # the windows hold all of it

    def score(self, records: Records[Question], model: Model) -> Score:
        answers = [[answer.text for answer in record.answers] for record in records]
        places = [records.where(i) for i in range(len(records))]
        threshold = None if all(answers) else self.threshold
        found = [best[0].text for best in find(model, records, places, 1, threshold)]
        scores = metrics.squad_scores(answers, found)
        numbers = {"EM": scores.exact_match, "F1": scores.f1}
        none = [text == "" for text, given in zip(found, answers, strict=True) if not given]
        more = f", {len(none)} without an answer: {sum(none)} of them found" if none else ""
        return Score(
            f"EM {scores.exact_match:.2%}, F1 {scores.f1:.2%} ({len(records)} questions{more})",
            numbers,
        )

    def check_asked(self, args: argparse.Namespace, model: Model) -> None:
        if args.question is not None:
            windows(Question(args.question, args.context, ()), model, "--question")


def windows(record: Question, model: Model, where: str) -> list[Window]:
    """The question with each part of the passage; a quarter of a part is in the next one too."""
    tokenizer, length = model.tokenizer, model.max_length
    question = len(tokenizer.encode(record.question).ids)
    try:
        stride = max(0, (length - question) // 4)
        return tokenizer.encode_windows(record.question, record.context, length, stride)
    except ValueError as error:
        raise InputError(
            f"{where}: the question has {question} subwords, and with {length} in all there is no "
            "room for the passage; raise --max-length"
        ) from error


def find(
    model: Model,
    records: Sequence[Question],
    where: Sequence[str],
    n_best: int,
    threshold: float | None,
) -> list[list[Found]]:
    """For each record up to n_best answers out of all its windows, the best first.

    threshold: if there is an answer at all is asked too (SQuAD 2.0): its score is that of token 0,
        in the window where this is lowest. None: there is one.
    """
    parts = [
        (i, window)
        for i, record in enumerate(records)
        for window in windows(record, model, where[i])
    ]
    candidates: list[dict[str, float]] = [{} for _ in records]
    nothing = [np.inf] * len(records)
    examples = [new_example(window.encoding, model.model) for _, window in parts]
    for indexes, _, output in outputs(model.model, examples):
        starts, ends = (to_numpy(x.data) for x in (output.start_logits, output.end_logits))
        for row, index in enumerate(indexes):
            i, (encoding, allowed) = parts[index]
            start, end = (x[row, : len(allowed)].astype(np.float64) for x in (starts, ends))
            nothing[i] = min(nothing[i], float(start[0] + end[0]))
            for first, last, score in best_spans(start, end, allowed, MAX_ANSWER, n_best):
                text = answer_text(records[i].context, encoding.offsets, first, last)
                candidates[i][text] = max(score, candidates[i].get(text, -np.inf))
    results = []
    for texts, null in zip(candidates, nothing, strict=True):
        best = sorted(map(Found, texts, texts.values()), key=lambda found: -found.score)
        if threshold is not None and (not best or null - best[0].score > threshold):
            best = [Found("", null), *best]
        results.append(best[:n_best] or [Found("", null)])
    return results


def print_answers(model: Model, args: argparse.Namespace, record: Question, where: str) -> None:
    """A line for each answer: its text and its score, with a tab between."""
    (best,) = find(model, [record], [where], args.n_best, args.null_threshold)
    for text, score in best:
        print(f"{text or '(no answer)'}\t{score:.4f}")


def main(args: argparse.Namespace) -> None:
    if (args.question is None) != (args.context is None):
        raise InputError("--question and --context belong together: give both")
    quiet = args.question is not None or (not learns(args) and not args.test)

    say = cli.new_say(quiet)

    def answer(line: str, where: str) -> None:
        if not line.strip():
            print()
            return
        question, _, context = line.partition("\t")
        if not question.strip() or not context.strip():
            raise InputError(f"{where}: give a question, a tab and a passage")
        print_answers(model, args, Question(question, context, ()), where)

    model = run(Answering(args.null_threshold), TRAINING, args, say)
    if args.question is not None:
        print_answers(model, args, Question(args.question, args.context, ()), "--question")
    elif not learns(args) and not args.test:
        cli.answer_lines(answer, "A question, a tab and a passage in each line")


if __name__ == "__main__":
    sys.exit(cli.run(main, new_parser()))
