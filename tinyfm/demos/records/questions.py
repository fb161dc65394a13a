"""Questions about passages, with the places of their answers."""

import reprlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tinyfm.demos.records.reading import (
    Fields,
    Place,
    Reading,
    Records,
    field,
    json_object,
    numbered_lines,
    text,
)
from tinyfm.errors import InputError
from tinyfm.files import read_json


class Answer(NamedTuple):
    """The passage has this text at this character."""

    text: str
    start: int


class Question(NamedTuple):
    """A question about a passage. No answers: the passage has none (or none are given).

    title: of the article that the passage is a part of, "" if there is none
    """

    question: str
    context: str
    answers: tuple[Answer, ...]
    title: str = ""


def read_questions(
    path: str | Path, *, labelled: bool = True, skip: bool = False
) -> Records[Question]:
    """Read SQuAD's JSON (1.1 or 2.0), or JSON lines of question, context and answers.

    answers is [{"text": ..., "answer_start": ...}, ...] or, as Hugging Face's data sets have it,
    {"text": [...], "answer_start": [...]}; all of them count as right. None mean that the passage
    has no answer, which is_impossible, where it is given, has to say as well.

    labelled  False: answers are not looked for

    Raises InputError, naming the file and the line or the question's id: no JSON, a field that is
    missing or blank, an answer_start that does not point at its text, answers to what
    is_impossible, no question at all, and all that `read_lines` raises.
    """
    reading = Reading(path, skip)
    lines = numbered_lines(path)
    if _by_line([line for _, line in lines]):
        rows = reading.step(lines, json_object)
    else:
        rows = reading.step(_squad(path), lambda fields, place: fields)
    return reading.done(reading.step(rows, partial(_question, labelled)))


def _by_line(lines: list[str]) -> bool:
    """Whether each line is an object; SQuAD's file is one with "data", on one line or on many.

    The first line tells, or where that is damaged any other with a question and its passage.
    """
    objects = map(_fields, lines)
    if first := next(objects, None):
        return "data" not in first
    return any({"question", "context"} <= fields.keys() for fields in objects)


def _fields(line: str) -> Fields:
    """The object in a line of its own, or an empty one."""
    try:
        return json_object(line, "")
    except InputError:
        return {}


def _squad(path: str | Path) -> Iterator[tuple[Place, Fields]]:
    """The questions of a file in SQuAD's shape, each with its passage and title."""
    number = 0
    try:
        for article in read_json(Path(path))["data"]:
            for paragraph in article["paragraphs"]:
                about = {"context": paragraph["context"], "title": article.get("title", "")}
                for question in paragraph["qas"]:
                    number += 1
                    name = question.get("id", f"{number} of the file")
                    yield f"{path}: question {name}", {**question, **about}
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: not in SQuAD's shape after {number} questions ({error!r}); "
            "data, paragraphs with context and qas"
        ) from error


def _question(labelled: bool, fields: Fields, place: Place) -> Question:
    question, context = (
        text(field(fields, name, place), name, place) for name in ("question", "context")
    )
    answers = _answers(fields, context, place) if labelled else ()
    return Question(question, context, answers, str(fields.get("title", "")))


def _answers(fields: Fields, context: str, place: Place) -> tuple[Answer, ...]:
    answers = tuple(
        _answer(words, start, context, place)
        for words, start in _texts_and_starts(field(fields, "answers", place), place)
    )
    impossible = fields.get("is_impossible", not answers)
    if impossible == bool(answers):
        raise InputError(
            f"{place}: {len(answers)} answers, but is_impossible is {impossible}; mend one of them"
        )
    return answers


def _texts_and_starts(answers: Any, place: Place) -> list[tuple[Any, Any]]:
    try:
        if isinstance(answers, dict):
            return list(zip(answers["text"], answers["answer_start"], strict=True))
        return [(answer["text"], answer["answer_start"]) for answer in answers]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f'{place}: answers are not of the form [{{"text": ..., "answer_start": ...}}]; mend it'
        ) from error


def _answer(words: object, start: object, context: str, place: Place) -> Answer:
    words = text(words, "answer", place)
    if not isinstance(start, int):
        raise InputError(f"{place}: answer_start {start!r} is no whole number; count characters")
    if start < 0 or not context.startswith(words, start):
        there = reprlib.repr(context[start : start + len(words)] if start >= 0 else "")
        raise InputError(
            f"{place}: answer_start {start} does not point at {reprlib.repr(words)} "
            f"but at {there}; count characters from 0"
        )
    return Answer(words, start)
