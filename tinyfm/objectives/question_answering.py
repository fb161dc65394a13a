"""Answers as spans of a passage (Devlin et al. 2018, sections 4.2 and 4.3).

A text of T tokens holds a question and a passage; `allowed` (T,) is True on the passage.  `offsets`
(T, 2) says which characters [start, end) of the passage a token of it covers, and is (0, 0) at
special tokens.  Token 0, [CLS], stands for "no answer".
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from tinyfm.text import is_attached

NO_ANSWER = (0, 0)


class Answer(NamedTuple):
    """The tokens from start to end, both included, and the sum of their logits."""

    start: int
    end: int
    score: float


def answer_span(
    offsets: npt.ArrayLike, allowed: npt.ArrayLike, start_char: int, text: str
) -> tuple[int, int]:
    """(start, end), the first and the last token of an answer: the labels of its example.

    The answer `text` stands at `start_char` of the passage; at its ends blanks do not count, nor do
    marks and unseen characters (`tinyfm.text.is_attached`) that no token covers. It is (0, 0) when
    it is empty, as in questions without an answer, and when these tokens do not hold
    all of it, as where the passage was cut: what a model cannot see it shall not point to.

    Raises ValueError when the shapes are not (T, 2) and (T,).
    """
    offsets, allowed = np.asarray(offsets), np.asarray(allowed, bool)
    if offsets.shape != (*allowed.shape, 2) or allowed.ndim != 1:
        raise ValueError(
            f"answer_span: offsets have shape {offsets.shape} and allowed {allowed.shape}; they "
            "are (T, 2) and (T,)"
        )
    first, text = start_char + len(text) - len(text.lstrip()), text.strip()
    starts, ends = offsets.T
    inside = np.flatnonzero(allowed & (starts < first + len(text)) & (ends > first))
    if not text or not len(inside):
        return NO_ANSWER
    start, end = int(inside[0]), int(inside[-1])
    # max: the first token may begin before the answer, as where that is a part of a word.
    before, behind = text[: max(0, starts[start] - first)], text[max(0, ends[end] - first) :]
    whole = all(c.isspace() or is_attached(c) for c in before + behind)
    return (start, end) if whole else NO_ANSWER


def answer_text(context: str, offsets: npt.ArrayLike, start: int, end: int) -> str:
    """The characters of the passage under the tokens from start to end; "" for no answer."""
    offsets = np.asarray(offsets)
    return context[offsets[start, 0] : offsets[end, 1]]


def best_spans(
    start_logits: npt.ArrayLike,
    end_logits: npt.ArrayLike,
    allowed: npt.ArrayLike,
    max_length: int,
    count: int = 1,
) -> list[Answer]:
    """The `count` spans of the highest start_logits[start] + end_logits[end], best first.

    Spans have start <= end, at most `max_length` tokens, and all their tokens are allowed; there
    may be fewer than `count` of them. Among equals the earlier and then the shorter comes first.

    start_logits, end_logits  (T,) numbers      allowed  (T,) bool

    Raises ValueError for other shapes, and for numbers below 1.
    """
    start, end = np.asarray(start_logits, np.float64), np.asarray(end_logits, np.float64)
    allowed = np.asarray(allowed, bool)
    if not start.shape == end.shape == allowed.shape or start.ndim != 1 or not start.size:
        raise ValueError(
            f"best_spans: start logits {start.shape}, end logits {end.shape} and allowed "
            f"{allowed.shape} must all be (T,), with T of 1 or more"
        )
    if max_length < 1 or count < 1:
        raise ValueError(f"best_spans: {max_length=} and {count=} must be 1 or more")

    # Row s, column n: the span of n + 1 tokens from s on. Beyond the text nothing is allowed.
    longest = min(max_length, len(start))
    padding = (0, longest - 1)
    scores = start[:, None] + sliding_window_view(np.pad(end, padding), longest)
    forbidden = np.cumsum(~np.pad(allowed, padding))  # equal at both ends: none between
    valid = allowed[:, None] & (
        sliding_window_view(forbidden, longest) == forbidden[: len(start), None]
    )
    spans = np.flatnonzero(valid)
    spans = spans[np.argsort(-scores.ravel()[spans], kind="stable")[:count]]
    return [
        Answer(int(s), int(s + n), float(scores[s, n]))
        for s, n in zip(*np.divmod(spans, longest), strict=True)
    ]


def decode_answer(
    start_logits: npt.ArrayLike,
    end_logits: npt.ArrayLike,
    allowed: npt.ArrayLike,
    max_length: int,
    n_best: int = 1,
    null_index: int | None = None,
    threshold: float = 0.0,
) -> Any:
    """The best Answer, or with n_best > 1 a list of up to so many, as `best_spans` finds them.

    null_index: the token that stands for no answer, in SQuAD v2 0 ([CLS]). When its own score,
    start_logits[null_index] + end_logits[null_index], is above that of the best span by more than
    `threshold`, Answer(null_index, null_index, its score) comes first.

    >>> decode_answer([0.1, 0.2, 5.0, 0.3], [6.0, 0.1, 0.2, 4.0], [True] * 4, max_length=30)
    Answer(start=2, end=3, score=9.0)

    Raises ValueError as `best_spans` does, and when no token is allowed and there is no null_index.
    """
    answers = best_spans(start_logits, end_logits, allowed, max_length, n_best)
    if null_index is not None:
        start, end = np.asarray(start_logits), np.asarray(end_logits)
        null = Answer(null_index, null_index, float(start[null_index]) + float(end[null_index]))
        if not answers or null.score - answers[0].score > threshold:
            answers = [null, *answers][:n_best]
    if not answers:
        raise ValueError("decode_answer: no token is allowed; the passage must have one at least")
    return answers[0] if n_best == 1 else answers
