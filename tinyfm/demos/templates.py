"""Tasks put as text, for a model that reads text and writes text (Raffel et al. 2020, section 2.4).

A template makes an input and a target of a record, which has the fields of its task:

    question: Where was Selinodan born? context: Selinodan was born in Corodavik in 1874.
    Corodavik

A task has several, which say the same in other words (Sanh et al. 2022, Wei et al. 2022), and the
first is the paper's own (appendix D).  What a model writes is read by the inverse; what is no
answer to the task is wrong, and not left out of a score.

A new task is a `TextTask` in TASKS; records for those that are here come from text_tasks.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinyfm.metrics import (
    accuracy,
    corpus_bleu,
    matthews,
    pearson,
    rouge,
    spearman,
    squad_scores,
)

Record = Mapping[str, Any]
Scores = dict[str, float]

LABELS = ("unacceptable", "acceptable")
LEAST, MOST = 0.0, 5.0  # of likeness
NO_NUMBER = -1.0  # stands in a correlation for what is none


@dataclass(frozen=True)
class TextTask:
    """A kind of task.

    wordings: inputs, with the fields of a record in braces; each begins with words of its own.
    target: what is to be written, of a record.
    value: what a text says, the inverse of `target`; None for a text that is no answer.
    score: of true targets and of texts that a model wrote, by name; the first counts most.
    guess: what can be written of a record without having learnt anything.
    """

    wordings: tuple[str, ...]
    target: Callable[[Record], str]
    value: Callable[[str], Any]
    score: Callable[[Sequence[str], Sequence[str]], Scores]
    guess: Callable[[Record], str]

    def templates(self) -> list[Template]:
        return [Template(wording, self) for wording in self.wordings]


@dataclass(frozen=True)
class Template:
    """One wording of a task: a function of a record, with its inverse.

    >>> template = TASKS["similarity"].templates()[0]
    >>> template({"sentence1": "A cat sits.", "sentence2": "A cat sat.", "score": 4.1})
    ('stsb sentence1: A cat sits. sentence2: A cat sat.', '4.0')
    >>> template.value("4.0"), template.value("4.1"), template.value("much")
    (4.0, None, None)
    """

    wording: str
    task: TextTask

    def __call__(self, record: Record) -> tuple[str, str]:
        """Record -> (input, target); KeyError for a field that it lacks."""
        return self.wording.format(**record), self.task.target(record)

    def value(self, text: str) -> Any:
        """What a target says: the field that it was made of; None for what is no answer."""
        return self.task.value(text)


def fits(wording: str, text: str) -> bool:
    """Whether a text is an input in this wording.

    >>> fits("question: {question} context: {context}", "question: Who? context: Ann sang.")
    True
    >>> fits("question: {question} context: {context}", "question: Who?")
    False
    """
    parts = re.split(r"\{\w+\}", wording)
    pattern = r".*\S.*".join(re.escape(part.strip()) for part in parts)
    return re.fullmatch(pattern, text.strip(), re.DOTALL) is not None


def with_dots(wording: str) -> str:
    """A wording without its fields, as a message shows it.

    >>> with_dots("question: {question} context: {context}")
    'question: ... context: ...'
    """
    return re.sub(r"\{\w+\}", "...", wording)


# -- from values to texts and back -----------------------------------------------------------------


def text_of_number(number: float) -> str:
    """The nearest step of 0.2, a half to the even one, with one decimal.

    >>> [text_of_number(number) for number in (2.57, 4.1, 2.5, 5)]
    ['2.6', '4.0', '2.4', '5.0']
    """
    return f"{round(5 * number) / 5:.1f}"


def number_of_text(text: str) -> float | None:
    """The inverse; None for what `text_of_number` writes of no score.

    >>> [number_of_text(text) for text in ("2.6", "2.5", "2.60", "5.2", "nan")]
    [2.6, None, None, None, None]
    """
    if not re.fullmatch(r"\d\.\d", text) or not LEAST <= float(text) <= MOST:
        return None
    return float(text) if text_of_number(float(text)) == text else None


def label_of_text(text: str) -> str | None:
    return text if text in LABELS else None


# -- scores ----------------------------------------------------------------------------------------


def score_translations(true: Sequence[str], made: Sequence[str]) -> Scores:
    return {"BLEU": corpus_bleu(made, true).score, "exact match": exact_match(true, made)}


def score_labels(true: Sequence[str], made: Sequence[str]) -> Scores:
    values = [label_of_text(text) for text in made]
    return {"accuracy": accuracy(true, values), "Matthews": matthews(true, values)}


def score_numbers(true: Sequence[str], made: Sequence[str]) -> Scores:
    numbers = [number_of_text(text) for text in made]
    filled = [NO_NUMBER if number is None else number for number in numbers]
    scores = [float(text) for text in true]
    return {"Pearson": pearson(scores, filled), "Spearman": spearman(scores, filled)}


def score_summaries(true: Sequence[str], made: Sequence[str]) -> Scores:
    scores = rouge(made, true)
    return {"ROUGE-L": scores.rougeL, "ROUGE-1": scores.rouge1, "ROUGE-2": scores.rouge2}


def score_answers(true: Sequence[str], made: Sequence[str]) -> Scores:
    scores = squad_scores([[text] for text in true], made)
    return {"exact match": scores.exact_match, "F1": scores.f1}


def score_texts(true: Sequence[str], made: Sequence[str]) -> Scores:
    """For tasks of which nothing is known; F1 is that of their words, as of answers."""
    overlap = squad_scores([[text] for text in true], made).f1
    return {"exact match": exact_match(true, made), "F1": overlap}


def exact_match(true: Sequence[str], made: Sequence[str]) -> float:
    return sum(map(str.__eq__, true, made)) / len(true)


# -- the tasks -------------------------------------------------------------------------------------


def first_sentence(passage: str) -> str:
    return passage.partition(".")[0] + "."


def field(name: str) -> Callable[[Record], str]:
    return lambda record: record[name]


def _text(text: str) -> str | None:
    return text or None


TASKS = {
    "translation": TextTask(
        ("translate English to Korean: {english}", "In Korean: {english}"),
        target=field("korean"),
        value=_text,
        score=score_translations,
        guess=field("english"),
    ),
    "acceptability": TextTask(
        ("cola sentence: {sentence}", "Is this good English? {sentence}"),
        target=field("label"),
        value=label_of_text,
        score=score_labels,
        guess=lambda record: LABELS[1],
    ),
    "similarity": TextTask(
        (
            "stsb sentence1: {sentence1} sentence2: {sentence2}",
            "How alike are these? First: {sentence1} Second: {sentence2}",
        ),
        target=lambda record: text_of_number(record["score"]),
        value=number_of_text,
        score=score_numbers,
        guess=lambda record: text_of_number((LEAST + MOST) / 2),
    ),
    "summary": TextTask(
        ("summarize: {passage}", "What is the news? {passage}"),
        target=field("summary"),
        value=_text,
        score=score_summaries,
        guess=lambda record: first_sentence(record["passage"]),
    ),
    "question": TextTask(
        ("question: {question} context: {context}", "Read: {context} And answer: {question}"),
        target=field("answer"),
        value=_text,
        score=score_answers,
        guess=lambda record: record["context"].split()[0],
    ),
    # Not among the tasks that are learnt: what a model makes of it is zero-shot.
    "place": TextTask(
        (
            "question: Where did it happen? context: {passage}",
            "Read: {passage} And answer: Where did it happen?",
        ),
        target=field("place"),
        value=_text,
        score=score_answers,
        guess=lambda record: record["passage"].split()[0],
    ),
}
HELD_OUT = ("place",)


def learnt() -> list[str]:
    """The tasks of the mixture."""
    return [name for name in TASKS if name not in HELD_OUT]
