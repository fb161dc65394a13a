"""Pairs of segments for BERT, rows of sentences for RoBERTa."""

import logging
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tinyfm
from tinyfm.objectives import full_sentences, next_sentence_pairs


def corpus(sizes):
    """Documents with sentences of these lengths; token i of document d is 1000 d + i."""
    documents = []
    for number, lengths in enumerate(sizes):
        ids = iter(range(1000 * number, 1000 * number + 1000))
        documents.append([[next(ids) for _ in range(length)] for length in lengths])
    return documents


def pairs(documents, max_tokens=503, seed=0, **options):
    return list(next_sentence_pairs(documents, np.random.default_rng(seed), max_tokens, **options))


def passes(documents, count=400, **options):
    """The pairs of many passes with one generator."""
    rng = np.random.default_rng(0)
    options = {"max_tokens": 503, "short_prob": 0.0} | options
    return [p for _ in range(count) for p in next_sentence_pairs(documents, rng, **options)]


SIZES = st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=2, max_size=5).filter(
    lambda sizes: sum(map(any, sizes)) >= 2
)


@given(SIZES, st.integers(5, 60), st.floats(0, 1), st.integers(0, 99))
def test_r46_pairs_are_contiguous_and_in_budget(sizes, max_tokens, short_prob, seed):
    for a, b, label in pairs(corpus(sizes), max_tokens, seed, short_prob=short_prob):
        assert a and b and len(a) + len(b) + 3 <= max_tokens
        for segment in (a, b):
            assert segment == list(range(segment[0], segment[-1] + 1))
        same_document = a[0] // 1000 == b[0] // 1000
        assert same_document == (label == 0)
        if label == 0:
            assert b[0] > a[-1]
            trimmed = len(a) + len(b) + 3 == max_tokens
            assert trimmed or b[0] == a[-1] + 1


@given(SIZES, st.integers(0, 99))
def test_unused_sentences_are_put_back(sizes, seed):
    """Where nothing is trimmed, every token stands once in an `a` or in a true next segment."""
    used = []
    for a, b, label in pairs(corpus(sizes), seed=seed, short_prob=0):
        used += a if label else a + b
    assert sorted(used) == [i for document in corpus(sizes) for s in document for i in s]


def test_r46_one_document_has_only_true_next_sentences():
    for seed in range(50):
        made = pairs(corpus([[3, 4, 5]]), seed=seed)
        assert made and all(label == 0 for *_, label in made)
    # Sentences beyond the target length, and one that is left over.
    made = pairs(corpus([[9, 9, 9, 9, 9]]), max_tokens=10, short_prob=0)
    assert [(a[0] // 9, b[0] // 9, label) for a, b, label in made] == [(0, 1, 0), (2, 3, 0)]


def test_r46_two_documents_about_half():
    made = passes(corpus([[3, 4, 5], [5, 4, 3]]))
    assert all((a[0] // 1000 == b[0] // 1000) == (label == 0) for a, b, label in made)
    # Three sentences: true next with 1/2; else one or two are left, and of two again with 1/2.
    # One left over is random.  So a document gives 1/2 + 1/8 true pairs and 1 random one.
    labels = np.array([p.label for p in made])
    assert abs((labels == 0).sum() / 800 - 0.625) < 5 * 0.5 / 800**0.5
    assert abs(labels.sum() / 800 - 1) < 5 * 0.75 / 800**0.5
    assert 0.3 < 1 - labels.mean() < 0.5


def test_r46_documents_of_one_sentence_are_warned_of(caplog):
    with caplog.at_level(logging.WARNING):
        made = pairs(corpus([[3], [4], [0, 5]]))
    assert "all 3 documents have one sentence" in caplog.text
    assert len(made) == 3 and all(label == 1 for *_, label in made)
    assert all(a[0] // 1000 != b[0] // 1000 for a, b, _ in made)
    caplog.clear()
    pairs(corpus([[3], [4, 5]]))
    assert not caplog.text


@pytest.mark.parametrize(
    "sizes, count", [([], "0 sentences"), ([[]], "0"), ([[0, 4]], "1 sentence ")]
)
def test_r46_a_corpus_without_pairs_is_refused(sizes, count):
    with pytest.raises(tinyfm.InputError, match=f"a corpus of {count}.*has no pairs"):
        next_sentence_pairs(corpus(sizes), np.random.default_rng(0), 128)


def test_a_single_sentence_gets_a_random_one():
    """Each sentence fills its target, so there is no rest that might follow."""
    made = passes(corpus([[20, 20], [20, 20]]), max_tokens=23, count=20)
    assert len(made) == 80 and all(label == 1 for *_, label in made)


def test_splits_documents_and_beginnings_are_uniform():
    lengths = Counter(len(p.a) for p in passes(corpus([[1, 1, 1, 1]]), count=3000))
    made = passes(corpus([[1], [1], [1, 1, 1]]), count=3000)
    begins = Counter(p.b[0] for p in made if p.a[0] == 0)
    shares_of_b = {1000: 1 / 2, 2000: 1 / 6, 2001: 1 / 6, 2002: 1 / 6}
    for counts, shares in ((lengths, dict.fromkeys((1, 2, 3), 1 / 3)), (begins, shares_of_b)):
        assert counts.keys() == shares.keys()
        for key, share in shares.items():
            assert abs(counts[key] / 3000 - share) < 5 * (0.25 / 3000) ** 0.5


def test_a_random_segment_fills_up_to_the_target():
    made = passes(corpus([[1] * 60, [1] * 60]), max_tokens=13, count=50)
    randoms = [(len(a), len(b)) for a, b, label in made if label == 1]
    assert all(a + b <= 10 for a, b in randoms)
    assert {a for a, _ in randoms} == set(range(1, 10))  # no `a` was cut for a longer b


@given(st.integers(1, 20), st.integers(1, 20), st.integers(2, 30), st.integers(0, 99))
def test_the_longer_segment_is_cut(first, second, budget, seed):
    [(a, b, _)] = pairs(corpus([[first, second]]), budget + 3, seed, short_prob=0)
    while first + second > budget:
        if first > second:
            first -= 1
        else:  # b, where both are equal
            second -= 1
    assert (len(a), len(b)) == (first, second)


def test_segments_are_cut_at_both_ends():
    made = passes(corpus([[4, 6]]), max_tokens=11, count=1000)
    assert {tuple(a) for a, *_ in made} == {(0, 1, 2, 3)}
    # Two tokens fall: both in front, one on each side, both behind with 1/4, 1/2, 1/4.
    begins = Counter(b[0] - 4 for _, b, _ in made)
    for front, share in enumerate((1 / 4, 1 / 2, 1 / 4)):
        assert abs(begins[front] / 1000 - share) < 5 * (0.25 / 1000) ** 0.5
    assert sum(begins.values()) == 1000


def test_some_targets_are_short():
    document = corpus([[1] * 40])
    lengths = [len(a) + len(b) for a, b, _ in pairs(document, max_tokens=13, short_prob=0)]
    assert lengths == [10] * 4
    for short_prob in (0.5, 1):
        firsts = Counter()
        for seed in range(600):
            a, b, _ = pairs(document, max_tokens=13, seed=seed, short_prob=short_prob)[0]
            firsts[len(a) + len(b)] += 1
        assert firsts.keys() == set(range(2, 11))
        assert abs(firsts[10] / 600 - (1 - short_prob * 8 / 9)) < 5 * (0.25 / 600) ** 0.5


@pytest.mark.parametrize("options", [{"max_tokens": 4}, {"short_prob": 1.5}])
def test_mistakes_are_named(options):
    [(name, value)] = options.items()
    with pytest.raises(ValueError, match=f"{name} is {value}"):
        pairs(corpus([[3, 3]]), **options)


# -- RoBERTa --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "max_tokens, rows",
    [
        (6, [[1, 2, 3, 9, 4, 5], [6, 7, 8]]),
        (5, [[1, 2, 3], [4, 5, 6, 7, 8]]),
        (9, [[1, 2, 3, 9, 4, 5, 6, 7, 8]]),
        (2, [[1, 2], [3], [4, 5], [6, 7], [8]]),
    ],
)
def test_full_sentences(max_tokens, rows):
    documents = [[[1, 2], [], [3]], [], [[4, 5], [6, 7, 8]]]
    assert list(full_sentences(documents, max_tokens, separator=[9])) == rows


@given(SIZES, st.integers(1, 30), st.sampled_from([(), (-1,), (-1, -2)]))
def test_full_sentences_lose_nothing(sizes, max_tokens, separator):
    rows = list(full_sentences(iter(corpus(sizes)), max_tokens, separator))
    sentences = [s for document in corpus(sizes) for s in document if s]
    assert [i for row in rows for i in row if i >= 0] == [i for s in sentences for i in s]
    for row in rows:
        assert 0 < len(row) <= max_tokens
        tokens = [i for i in row if i >= 0]
        rebuilt = tokens[:1]
        for before, after in pairwise(tokens):
            rebuilt += [*(separator if before // 1000 != after // 1000 else ()), after]
        assert row == rebuilt
    ends, starts = {s[-1] for s in sentences}, {s[0]: len(s) for s in sentences}
    for row, following in pairwise(rows):
        whole = row[-1] in ends and following[0] in starts
        assert whole or max(map(len, sentences)) > max_tokens
        if whole:  # and no more would have fitted
            gap = len(separator) * (row[-1] // 1000 != following[0] // 1000)
            assert len(row) + gap + min(starts[following[0]], max_tokens) > max_tokens


def test_a_row_needs_a_token():
    with pytest.raises(ValueError, match="max_tokens is 0"):
        full_sentences([], 0)
