"""Scores against values worked out by hand."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyfm import metrics
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


# Summaries


@pytest.mark.parametrize(
    "prediction, reference, scores",
    [
        # 3 of 4 words and 1 of 3 pairs are common; police the gunman, or police kill, in order
        ("police kill the gunman", "police killed the gunman", (3 / 4, 1 / 3, 3 / 4)),
        ("the gunman kill police", "police killed the gunman", (3 / 4, 1 / 3, 2 / 4)),
        ("the the the cat", "the cat the", (2 * 3 / 7, 2 * 1 / 5, 2 * 2 / 7)),
        ("The CAT-2, sat!", "the cat 2 sat", (1, 1, 1)),
        ("cats", "cat", (0, 0, 0)),  # no stemming
        ("cat", "cat", (1, 0, 1)),  # one word has no pair
        ("dog", "the dog was found", (2 * 1 / 5, 0, 2 * 1 / 5)),
        ("a b c d", "d c b a", (1, 0, 1 / 4)),
        ("", "cat", (0, 0, 0)),
        ("cat", "", (0, 0, 0)),
        ("", "", (0, 0, 0)),
        ("사과를 먹었다", "사과를 먹었다", (0, 0, 0)),
    ],
)
def test_rouge_of_one_text(prediction, reference, scores):
    assert metrics.rouge([prediction], [reference]) == pytest.approx(scores)


def test_rouge_of_several_texts_and_references():
    # The first reference has the better ROUGE-1, 3/4, though ROUGE-2 is 0 with it.
    several = ["c x b a", "a b"]
    assert metrics.rouge(["a b c d"], [several]) == pytest.approx((3 / 4, 0, 1 / 4))
    assert metrics.rouge(["a b c d"], [several[1:]]) == pytest.approx((4 / 6, 2 / 4, 4 / 6))
    scores = metrics.rouge(["a b c d", "x"], [several, "y"])
    assert scores == pytest.approx((3 / 8, 0, 1 / 8))
    assert scores.rougeL == scores[2]


def test_a_text_without_a_reference_is_refused():
    with pytest.raises(ValueError, match="rouge: text 1 has no reference; give at least one"):
        metrics.rouge(["a", "b"], ["a", ()])


texts = st.lists(st.sampled_from(["a", "b", "The", "x9", "né", "b.", "빵"]), max_size=12)


@pytest.mark.parity
@given(texts.map(" ".join), texts.map(" ".join))
def test_rouge_is_that_of_rouge_score(prediction, reference):
    rouge_scorer = pytest.importorskip("rouge_score.rouge_scorer")
    scorer = rouge_scorer.RougeScorer(metrics.Rouge._fields)
    expected = [score.fmeasure for score in scorer.score(reference, prediction).values()]
    assert metrics.rouge([prediction], [reference]) == pytest.approx(expected, abs=1e-12)


# Language models


def test_r29_perplexity_is_taken_over_all_tokens():
    assert metrics.perplexity([0.4, 1.5], [3, 5]) == pytest.approx(math.exp(1.9 / 8), rel=1e-12)
    assert math.exp(1.9 / 8) == pytest.approx(1.2680750, abs=1e-7)
    per_text = math.exp((0.4 / 3 + 1.5 / 5) / 2)
    assert abs(metrics.perplexity([0.4, 1.5], [3, 5]) - per_text) > 0.01


@given(st.lists(st.floats(0, 20), min_size=1, max_size=20), st.data())
def test_r29_perplexity_is_the_same_for_every_batch_size(losses, data):
    """And a batch in which all is padding adds nothing."""
    ends = sorted(data.draw(st.lists(st.integers(0, len(losses)), max_size=5)))
    batches = [losses[a:b] for a, b in zip([0, *ends], [*ends, len(losses)], strict=True)]
    sums, counts = [math.fsum(batch) for batch in batches], [len(batch) for batch in batches]
    whole = math.exp(math.fsum(losses) / len(losses))
    assert metrics.perplexity(sums, np.array(counts)) == pytest.approx(whole, rel=1e-9)
    assert metrics.perplexity(sum(losses), len(losses)) == pytest.approx(whole, rel=1e-9)


def test_perplexity_of_guessing_is_the_number_of_words():
    assert metrics.perplexity(8 * math.log(50257), 8) == pytest.approx(50257)
    assert metrics.perplexity(0.0, 8) == 1.0


@pytest.mark.filterwarnings("error")
def test_perplexity_beyond_the_numbers_is_infinite():
    assert metrics.perplexity(1e6, 1) == math.inf
    assert metrics.perplexity(math.inf, 1) == math.inf


@pytest.mark.parametrize(
    "sums, counts, said",
    [
        (0.0, 0, "no tokens were counted; give a text"),
        ([], [], "no tokens were counted"),
        ([1.0, 2.0], [3], r"sums \(2,\) but counts \(1,\)"),
    ],
)
def test_a_perplexity_of_nothing_is_refused(sums, counts, said):
    with pytest.raises(ValueError, match=f"perplexity: {said}"):
        metrics.perplexity(sums, counts)


# Classes


@pytest.mark.parametrize("make", [list, np.array])
def test_class_scores_of_a_confusion_table(make):
    # 6 true positives, 3 true negatives, 1 false positive, 2 false negatives
    true = make([1] * 6 + [0] * 3 + [0] + [1] * 2)
    predicted = make([1] * 6 + [0] * 3 + [1] + [0] * 2)
    assert metrics.accuracy(true, predicted) == pytest.approx(9 / 12)
    assert metrics.f1(true, predicted, positive=1) == pytest.approx(2 * 6 / (2 * 6 + 1 + 2))
    assert metrics.f1(true, predicted, positive=0) == pytest.approx(2 * 3 / (2 * 3 + 2 + 1))
    assert metrics.macro_f1(true, predicted) == pytest.approx((12 / 15 + 6 / 9) / 2)
    matthews = (6 * 3 - 1 * 2) / math.sqrt((6 + 1) * (6 + 2) * (3 + 1) * (3 + 2))
    assert metrics.matthews(true, predicted) == pytest.approx(matthews)


def test_class_names_and_three_classes():
    true, predicted = ["a", "a", "b", "c"], ["a", "b", "b", "b"]
    assert metrics.accuracy(true, predicted) == 0.5
    assert metrics.macro_f1(true, predicted) == pytest.approx((2 / 3 + 2 / 4 + 0) / 3)
    # c s - sum t p = 2 * 4 - (2 * 1 + 1 * 3 + 1 * 0); 16 - (4 + 1 + 1) and 16 - (1 + 9)
    assert metrics.matthews(true, predicted) == pytest.approx(3 / math.sqrt(10 * 6))
    assert metrics.matthews(true, true) == 1
    assert metrics.macro_f1(["a", "a"], ["a", "b"]) == pytest.approx((2 / 3 + 0) / 2)


def test_undefined_class_scores_are_zero():
    assert metrics.f1(["no", "no"], ["no", "no"], positive="yes") == 0.0
    assert metrics.matthews([1, 0, 1], [1, 1, 1]) == 0.0
    assert metrics.matthews([1, 1], [1, 1]) == 0.0


# Numbers


def test_correlations_worked_by_hand():
    x, y = [1, 2, 3, 4, 5], [2, 1, 4, 3, 5]
    assert metrics.pearson(x, y) == pytest.approx(0.8)  # sum of products 8, of squares 10 each
    assert metrics.spearman(x, y) == pytest.approx(1 - 6 * 4 / (5 * 24))  # 1 - 6 sum d^2/(n^3 - n)
    assert metrics.pearson([1, 2, 4], [1, 4, 16]) == pytest.approx(24 / math.sqrt(14 / 3 * 126))
    assert metrics.spearman([1, 2, 4], [1, 4, 16]) == pytest.approx(1)
    assert metrics.spearman([1, 2, 4], [16, 4, 1]) == pytest.approx(-1)
    # ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4
    assert metrics.spearman([1, 7, 7, 9], [1, 2, 3, 4]) == pytest.approx(4.5 / math.sqrt(4.5 * 5))


def test_undefined_correlations_are_zero():
    for correlation in (metrics.pearson, metrics.spearman):
        assert correlation([0.1, 0.1, 0.1], [1, 2, 3]) == 0.0
        assert correlation([1, 2, 3], [5, 5, 5]) == 0.0
        assert correlation([4], [4]) == 0.0


@given(
    st.lists(st.integers(-9, 9), min_size=2, max_size=9).filter(lambda x: len(set(x)) > 1),
    st.sampled_from([1e-200, -1e-3, 1.0, -7.0, 1e306]),
    st.sampled_from([0.0, 1.0, -100.0]),
)
def test_correlation_ignores_scale_and_shift(x, scale, shift):
    y = [scale * (number + shift) for number in x]
    for correlation in (metrics.pearson, metrics.spearman):
        assert correlation(x, y) == pytest.approx(math.copysign(1, scale))


# Tagged words


@pytest.mark.parametrize(
    "tags, found",
    [
        ("B-LOC I-LOC O O B-LOC", [("LOC", 0, 2), ("LOC", 4, 5)]),
        ("B-PER B-PER I-PER", [("PER", 0, 1), ("PER", 1, 3)]),
        ("O I-PER I-PER", [("PER", 1, 3)]),  # an I that begins
        ("B-PER I-LOC I-LOC", [("PER", 0, 1), ("LOC", 1, 3)]),  # another type begins anew
        ("B-PER O I-PER", [("PER", 0, 1), ("PER", 2, 3)]),
        ("B-PER E-PER S-PER I-PER", [("PER", 0, 2), ("PER", 2, 3), ("PER", 3, 4)]),
        ("B-PER E-PER I-PER", [("PER", 0, 2), ("PER", 2, 3)]),
        ("B-a-b I-a-b B-b", [("a-b", 0, 2), ("b", 2, 3)]),
        ("O O", []),
        ("", []),
    ],
)
def test_entities(tags, found):
    assert metrics.entities(tags.split()) == found


@pytest.mark.parametrize("tag", ["PER", "B", "B-", "", "o", "L-PER", "0"])
def test_what_is_no_tag_is_refused(tag):
    with pytest.raises(ValueError, match=f"tag {tag!r} is neither O"):
        metrics.entities([tag])


def test_entity_scores_count_whole_entities():
    true = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O"]]
    predicted = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "B-LOC"]]  # 4 found, 2 of 3 right
    assert metrics.entity_f1(true, predicted) == pytest.approx((2 / 4, 2 / 3, 4 / 7, 3))
    assert metrics.entity_f1_by_type(true, predicted) == {
        "LOC": pytest.approx((1 / 2, 1 / 2, 1 / 2, 2)),
        "PER": pytest.approx((1 / 2, 1, 2 / 3, 1)),
    }
    half = [["B-PER", "O", "O", "O"], ["O", "O"]]  # half an entity is none
    assert metrics.entity_f1(true, half) == (0, 0, 0, 3)
    assert metrics.entity_f1([["O"]], [["O"]]) == (0, 0, 0, 0)


def test_entities_are_told_apart_by_their_sentence():
    assert metrics.entity_f1([["B-X"], ["O"]], [["O"], ["B-X"]]).f1 == 0


# Answers


@pytest.mark.parametrize(
    "answers, predicted, exact, overlap",
    [
        (["Eiffel Tower"], "the eiffel tower!", 1, 1),
        (["in Paris, France"], "Paris", 0, 2 * 1 / (3 + 1)),
        (["Lyon", "Paris"], "Paris", 1, 1),
        (["red wine", "white wine bottle"], "white wine", 0, 2 * 2 / (3 + 2)),
        (["no no yes"], "no yes yes", 0, 2 * 2 / 6),  # bags, not sets
        (["no no"], "no no no", 0, 2 * 2 / 5),
        (["Anatole"], "an atole", 0, 0),  # articles are whole words
        (["U.S."], "US", 1, 1),
        ([], "", 1, 1),
        ([], "the", 1, 1),  # nothing is left of it
        ([], "Paris", 0, 0),
        ([""], "", 1, 1),
        (["Paris"], "", 0, 0),
        (["the", "Paris"], "a", 0, 0),
        (["빵을"], "빵을.", 1, 1),
    ],
)
def test_squad_scores_of_one_question(answers, predicted, exact, overlap):
    assert metrics.squad_scores([answers], [predicted]) == pytest.approx((exact, overlap))


def test_squad_scores_are_means_and_answers_are_lists():
    scores = metrics.squad_scores([["a cat"], ["dog", "big dog"]], ["cat", "big red dog"])
    assert scores == pytest.approx((1 / 2, (1 + 4 / 5) / 2))
    with pytest.raises(TypeError, match="a list of texts for each question"):
        metrics.squad_scores(["Paris"], ["Paris"])


# All of them


SCORES = (
    metrics.accuracy,
    partial(metrics.f1, positive=1),
    metrics.macro_f1,
    metrics.matthews,
    metrics.pearson,
    metrics.spearman,
    metrics.entity_f1,
    metrics.entity_f1_by_type,
    metrics.squad_scores,
    lambda true, predicted: metrics.rouge(predicted, true),
)


@pytest.mark.parametrize("score", SCORES)
def test_lists_that_do_not_fit_are_refused(score):
    with pytest.raises(ValueError, match=r"^\w+: 2 true but 1 predicted"):
        score([1, 0], [1])
    with pytest.raises(ValueError, match=r"^\w+: nothing to score"):
        score([], [])


def test_what_cannot_be_correlated_is_refused():
    with pytest.raises(ValueError, match="pearson: not all numbers are finite"):
        metrics.pearson([1, 2], [1, math.nan])
    with pytest.raises(ValueError, match="spearman: shapes"):
        metrics.spearman([[1, 2]], [[1, 2]])
    with pytest.raises(ValueError, match="sentence 1 has 2 true and 1 predicted tags"):
        metrics.entity_f1([["O"], ["O", "O"]], [["O"], ["O"]])


TAGS = [f"{prefix}-{type}" for prefix in "BIES" for type in ("X", "Y")]


@pytest.mark.parity
@given(st.lists(st.lists(st.sampled_from([*TAGS, "O", "O"]), min_size=1), min_size=1), st.data())
def test_entities_are_those_of_seqeval(sentences, data):
    seqeval = pytest.importorskip("seqeval.metrics")
    from seqeval.metrics.sequence_labeling import get_entities

    for tags in sentences:
        expected = [(type, start, last + 1) for type, start, last in get_entities(tags)]
        assert metrics.entities(tags) == expected
    predicted = [data.draw(st.permutations(tags)) for tags in sentences]
    scores = metrics.entity_f1(sentences, predicted)
    expected = [
        score(sentences, predicted, zero_division=0)
        for score in (seqeval.precision_score, seqeval.recall_score, seqeval.f1_score)
    ]
    assert scores[:3] == pytest.approx(expected)


@pytest.mark.parity
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=30))
def test_correlations_are_those_of_scipy(pairs):
    stats = pytest.importorskip("scipy.stats")
    x, y = np.array(pairs, float).T
    if min(np.ptp(x), np.ptp(y)) == 0:
        return
    assert metrics.pearson(x, y) == pytest.approx(stats.pearsonr(x, y)[0], abs=1e-12)
    assert metrics.spearman(x, y) == pytest.approx(stats.spearmanr(x, y)[0], abs=1e-12)
