"""The sentences that the embed command learns from, and the pairs that it is scored on."""

from collections import Counter

import numpy as np

from tinyfm import metrics
from tinyfm.demos import similar

WORDS = {
    word: (part, group)
    for part, groups in enumerate((similar.WHO, similar.DEEDS, similar.THINGS, similar.PLACES))
    for group, words in groups.items()
    for word in words
}


def parts(sentence):
    """(words, group) of who, deed, thing and place, read back from the text."""
    start, who, deed, article, thing, *place = sentence.split()
    assert (start, article) == ("the", "the")
    words = [who, deed, thing, " ".join(place)]
    assert [WORDS[word][0] for word in words] == [0, 1, 2, 3]
    return [(word, WORDS[word][1]) for word in words]


def test_every_word_has_one_place_and_one_group():
    groups = (similar.WHO, similar.DEEDS, similar.THINGS, similar.PLACES)
    assert len(WORDS) == sum(len(words) for group in groups for words in group.values())


def sentences():
    return [text for pair in similar.split()[0] for text in (pair.a, pair.b)]


def test_sentences_make_sense():
    found = sentences()
    for sentence in found:
        (_, who), (_, deed), (_, things), _ = parts(sentence)
        assert (deed, things) in similar.CAN[who]
    assert {word for sentence in found for word, _ in parts(sentence)} == set(WORDS)


def test_no_sentence_of_the_test_is_learnt_from():
    train, test = similar.split()
    assert (len(train), len(test)) == (similar.TRAINED, similar.TESTED)
    known, asked = ({text for pair in part for text in pair[:2]} for part in (train, test))
    assert not known & asked
    assert {w for text in asked for w, _ in parts(text)} == set(WORDS)  # of known words


def test_what_common_words_tell_is_said():
    """The baseline in the docstring: Jaccard's index of the words of each pair of the test."""
    test = similar.split()[1]
    words = [(set(pair.a.split()), set(pair.b.split())) for pair in test]
    shares = [len(a & b) / len(a | b) for a, b in words]
    told = metrics.pearson([pair.score for pair in test], shares)
    assert f"at Pearson {told:.3f}." in similar.__doc__


def test_words_of_a_group_have_the_same_company():
    """Each fares with every deed and thing that its group goes with, so it can be learnt."""
    company = {word: set() for word in WORDS}
    for sentence in sentences():
        (who, _), *rest = parts(sentence)
        company[who] |= {group for _, group in rest}
    for who, words in similar.WHO.items():
        wanted = {g for pair in similar.CAN[who] for g in pair} | set(similar.PLACES)
        assert all(company[word] == wanted for word in words)


def test_the_score_is_that_of_the_rule():
    for a, b, score in similar.split()[0]:
        wanted = sum(
            1 if x == y else 0.5 if gx == gy else 0
            for (x, gx), (y, gy) in zip(parts(a), parts(b), strict=True)
        )
        assert score == wanted


def test_there_are_pairs_of_every_likeness():
    """Also those that chance alone would hardly give, of three or four parts in common."""
    counts = Counter(pair.score for pair in similar.split()[1])
    assert counts.total() == similar.TESTED
    assert all(counts[score] >= 5 for score in np.arange(0, 4.5, 0.5))
    assert max(counts.values()) < similar.TESTED / 2


def test_the_seed_decides():
    assert similar.pairs(50, seed=1) == similar.pairs(50, seed=1) != similar.pairs(50, seed=5)
