"""Answers in passages: characters to tokens, logits to spans, tokens to characters."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyfm.objectives import answer_span, answer_text, best_spans, decode_answer

QUESTION = "Where is the Eiffel Tower?"
PASSAGE = "The Eiffel Tower is a wrought-iron lattice tower in Paris, France."
PIECES = r"E(?=iffel)|iff|el\b|\w+|[^\w\s]"  # as WordPiece cuts: e ##iff ##el


def offsets_and_allowed():
    """[CLS] question [SEP] passage [SEP], 28 tokens."""
    question, passage = (
        [match.span() for match in re.finditer(PIECES, text)] for text in (QUESTION, PASSAGE)
    )
    offsets = [(0, 0), *question, (0, 0), *passage, (0, 0)]
    allowed = [False] * (len(question) + 2) + [True] * len(passage) + [False]
    return np.array(offsets), np.array(allowed)


def test_r52_characters_become_tokens_and_come_back():
    offsets, allowed = offsets_and_allowed()
    assert len(offsets) == 28
    assert answer_span(offsets, allowed, 52, "Paris") == (23, 23)
    assert offsets[23].tolist() == [52, 57]
    assert answer_span(offsets, allowed, 52, "Paris, France") == (23, 25)
    assert answer_text(PASSAGE, offsets, 23, 25) == "Paris, France"
    assert answer_text(PASSAGE, offsets, 0, 0) == ""


@pytest.mark.data
def test_the_eiffel_tower_with_the_vocabulary(data_folder):
    from tokenizers.implementations import BertWordPieceTokenizer

    vocabulary = data_folder / "tokenizers" / "bert-base-uncased" / "vocab.txt"
    encoded = BertWordPieceTokenizer(str(vocabulary)).encode(QUESTION, PASSAGE)
    offsets, allowed = offsets_and_allowed()
    assert encoded.offsets == [tuple(pair) for pair in offsets.tolist()]
    assert [number == 1 for number in encoded.sequence_ids] == allowed.tolist()


@pytest.mark.parametrize(
    "start, text, expected",
    [
        (52, "Pari", "Paris"),  # within a word: all of it
        (53, "aris", "Paris"),
        (51, " Paris ", "Paris"),  # blanks do not count
        (22, "wrought-iron", "wrought-iron"),
        (30, "iron", "iron"),
        (4, "Eiffel", "Eiffel"),
        (0, "The", "The"),
        (52, "Paris, France.", "Paris, France."),
        (0, "", ""),
        (6, "", ""),
        (20, " ", ""),
        (52, "Paris, France. And", ""),  # beyond the passage
    ],
)
def test_answers_and_the_tokens_under_them(start, text, expected):
    offsets, allowed = offsets_and_allowed()
    span = answer_span(offsets, allowed, start, text)
    assert answer_text(PASSAGE, offsets, *span) == expected


def test_an_answer_that_was_cut_is_none():
    offsets, allowed = offsets_and_allowed()
    tokens = np.arange(28)
    for window, text, expected in [
        (tokens <= 25, "Paris, France", (23, 25)),
        (tokens <= 24, "Paris, France", (0, 0)),
        (tokens <= 22, "Paris, France", (0, 0)),
        (tokens >= 23, "Paris, France", (23, 25)),
        (tokens >= 24, "Paris, France", (0, 0)),
        (tokens >= 26, "Paris, France", (0, 0)),
    ]:
        assert answer_span(offsets, allowed & window, 52, text) == expected


def test_pieces_of_one_character_are_all_taken():
    offsets = [(0, 1), (0, 1), (0, 1), (2, 3), (2, 3)]  # bytes of two Korean letters
    assert answer_span(offsets, [True] * 5, 0, "한") == (0, 2)
    assert answer_span(offsets, [True] * 5, 2, "글") == (3, 4)


@pytest.mark.parametrize(
    "context, answer, spans",
    [
        ("in Ma\u0301laga\u0301 now", "Ma\u0301laga\u0301", [(0, 2), (3, 10), (12, 15)]),
        ("in \ufeffLyon\u200b now", "\ufeffLyon\u200b", [(0, 2), (4, 8), (10, 13)]),
        ("a \u1100\u1161\u11a8 b", "\u1100\u1161\u11a8", [(0, 1), (2, 3), (6, 7)]),  # 각
    ],
)
def test_r52_unseen_characters_and_marks_may_stand_at_the_ends_of_an_answer(context, answer, spans):
    start = context.index(answer)
    assert answer_span(spans, [True] * 3, start, answer) == (1, 1)
    # What is seen must be covered, as must what is before and behind it.
    assert answer_span(spans[:1] + spans[2:], [True] * 2, start, answer) == (0, 0)
    assert answer_span(spans, [True] * 3, start - 2, context[start - 2 :]) == (0, 2)
    assert answer_span(spans, [True, True, False], start, context[start:]) == (0, 0)


@given(st.lists(st.sampled_from(["ab", "c", "def"]), min_size=1, max_size=9), st.data())
def test_every_run_of_words_is_found(words, data):
    context = " ".join(words)
    spans = [match.span() for match in re.finditer(r"\w+", context)]
    start = data.draw(st.integers(0, len(words) - 1))
    end = data.draw(st.integers(start, len(words) - 1))
    text = context[spans[start][0] : spans[end][1]]
    found = answer_span([(0, 0), *spans], [False] + [True] * len(words), spans[start][0], text)
    assert found == (start + 1, end + 1)


# -- decoding -------------------------------------------------------------------------------------

START, END = [0.1, 0.2, 5.0, 0.3], [6.0, 0.1, 0.2, 4.0]


def test_r52_the_best_pair():
    assert decode_answer(START, END, [True] * 4, 30) == (2, 3, 9.0)
    assert decode_answer(START, END, [True] * 4, 1) == (0, 0, 6.1)
    start = [9.0, 0.2, 5.0, 0.3]
    assert decode_answer(start, END, [True] * 4, 30) == (0, 0, 15.0)
    assert decode_answer(start, END, [False, True, True, True], 30) == (2, 3, 9.0)


# Small whole numbers, so that there are ties.
LOGITS = st.lists(
    st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.booleans()), min_size=1, max_size=9
)


@given(LOGITS, st.integers(1, 12), st.integers(1, 60))
def test_r52_equals_brute_force(rows, max_length, count):
    start, end, allowed = zip(*rows, strict=True)
    spans = [
        (s, e, start[s] + end[e])
        for s in range(len(rows))
        for e in range(s, min(s + max_length, len(rows)))
        if all(allowed[s : e + 1])
    ]
    best = sorted(spans, key=lambda span: -span[2])[:count]  # sorted keeps the order of equals
    assert best_spans(start, end, allowed, max_length, count) == best
    if best:
        assert decode_answer(start, end, allowed, max_length) == best[0]
        if count > 1:
            assert decode_answer(start, end, allowed, max_length, n_best=count) == best


def test_r52_no_answer_is_compared_explicitly():
    start, end = [3.0, 0.0, 2.0], [2.5, 0.0, 3.0]  # null 5.5, best span 5.0
    allowed = [False, True, True]

    def decode(**options):
        return decode_answer(start, end, allowed, 5, null_index=0, **options)

    assert decode_answer(start, end, allowed, 5) == (2, 2, 5.0)
    assert decode() == (0, 0, 5.5)
    assert decode(threshold=0.25) == (0, 0, 5.5)
    assert decode(threshold=0.5) == (2, 2, 5.0)  # not by more than the threshold
    assert decode(threshold=-1) == (0, 0, 5.5)
    assert decode(n_best=3) == [(0, 0, 5.5), (2, 2, 5.0), (1, 2, 3.0)]
    assert decode(n_best=3, threshold=1) == [(2, 2, 5.0), (1, 2, 3.0), (1, 1, 0.0)]
    assert decode_answer(start, end, [False] * 3, 5, null_index=0, threshold=9) == (0, 0, 5.5)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (([0.0], [0.0, 1.0], [True], 5), r"start logits \(1,\), end logits \(2,\)"),
        (([], [], [], 5), r"must all be \(T,\)"),
        (([0.0], [0.0], [True], 0), "max_length=0 and count=1 must be 1 or more"),
        (([0.0], [0.0], [True], 5, 0), "count=0"),
        (([0.0], [0.0], [False], 5), "no token is allowed"),
    ],
)
def test_mistakes_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        decode_answer(*arguments)
    with pytest.raises(ValueError, match=r"offsets have shape \(1, 2\) and allowed \(2,\)"):
        answer_span([(0, 1)], [True, True], 0, "a")
