"""Scores against values worked out by hand."""

import math

import pytest

from tinyfm.metrics import corpus_bleu

REFERENCE = "the cat sat on the mat today"


@pytest.mark.parametrize(
    "hypothesis, reference, score",
    [
        (REFERENCE, REFERENCE, 100),
        # 6/7, 4/6, 2/5 and 1/4 of the n-grams match, and the length is right
        ("the cat sat on a mat today", REFERENCE, 100 * (6 / 7 * 4 / 6 * 2 / 5 * 1 / 4) ** 0.25),
        # all n-grams match, and 5 words for 7 cost exp(1 - 7/5)
        ("the cat sat on the", REFERENCE, 100 * math.exp(1 - 7 / 5)),
        ("", REFERENCE, 0),
        ("yes", "no", 0),
        ("나는 사과를 먹었다 .", "나는 사과를 먹었다.", 100),
        ("The cat sat on the mat today", REFERENCE, 100 * (6 / 7 * 5 / 6 * 4 / 5 * 3 / 4) ** 0.25),
    ],
)
def test_r55_bleu_of_one_sentence(hypothesis, reference, score):
    assert corpus_bleu([hypothesis], [reference]).score == pytest.approx(score, abs=1e-4)


def test_r55_bleu_is_taken_over_the_corpus():
    # n-grams of both sentences together: 5/8, 3/6, 2/4, 1/2
    hypotheses = ["a b c d", "v w x y"]
    references = ["a b c d", "v z z z"]
    together = 100 * (5 / 8 * 3 / 6 * 2 / 4 * 1 / 2) ** 0.25
    assert corpus_bleu(hypotheses, references).score == pytest.approx(together)


def test_r55_smoothing_is_exponential_and_stated():
    # 3/4 of the words, 1/3 of the bigrams; no longer n-gram: 1/2 of 1/2, then 1/4 of 1/1
    bleu = corpus_bleu(["a b x d"], ["a b c d"])
    assert bleu.score == pytest.approx(100 * (3 / 4 * 1 / 3 * 1 / 4 * 1 / 4) ** 0.25)
    assert {"smooth:exp", "tok:13a", "case:mixed"} <= set(bleu.signature.split("|"))


def test_texts_that_look_cut_into_tokens_are_scored_without_a_word(caplog):
    assert corpus_bleu(
        ["a cat sits here ."] * 200, ["a cat sits here ."] * 200
    ).score == pytest.approx(100)
    assert not caplog.records


def test_r55_mismatched_lists_are_refused():
    with pytest.raises(ValueError, match="2 hypotheses but 1 references"):
        corpus_bleu(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="1 hypotheses but 2 references"):
        corpus_bleu(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="no sentences"):
        corpus_bleu([], [])
