"""The Korean-English corpus: grammar against known sentences, and its split."""

import unicodedata
from itertools import pairwise

import pytest

from tinyfm.demos.korean_english import NOUNS, VERBS, corpus, split, with_particle, with_s

PAIRS = corpus()
ENGLISH = dict(PAIRS)


@pytest.mark.parametrize(
    "korean, english",
    [
        ("나는 사과를 먹었다.", "I ate an apple."),
        ("그녀는 어제 사과를 먹지 않았다.", "She did not eat an apple yesterday."),
        ("그는 책을 읽는다.", "He reads books."),
        ("우리는 책을 읽는다.", "We read books."),
        ("나는 문을 닫는다.", "I close the door."),
        ("그는 책을 읽지 않는다.", "He does not read books."),
        ("우리는 책을 읽지 않는다.", "We do not read books."),
        ("학생은 수학을 자주 공부한다.", "The student often studies math."),
        ("너는 빵을 자주 먹지 않는다.", "You do not often eat bread."),
        ("나는 지금 편지를 쓰고 있다.", "I am writing a letter now."),
        ("그들은 지금 음악을 듣고 있지 않다.", "They are not listening to music now."),
        ("민수는 노래를 듣는다.", "Minsu listens to songs."),
        ("나는 내일 문을 열 것이다.", "I will open the door tomorrow."),
        ("나는 내일 문을 열지 않을 것이다.", "I will not open the door tomorrow."),
        ("그녀는 접시를 씻는다.", "She washes dishes."),
        ("그는 모자를 썼다.", "He wore a hat."),
        ("그들은 모자를 썼다.", "They wore hats."),
        ("우리는 지난주에 버스를 탔다.", "We took a bus last week."),
        ("우리는 지난주에 말을 탔다.", "We rode horses last week."),
    ],
)
def test_known_sentences(korean, english):
    assert ENGLISH[korean] == english


def test_pairs_are_many_distinct_and_always_the_same():
    assert len(PAIRS) >= 4000
    assert len(ENGLISH) == len(PAIRS), "every Korean sentence has one English side"
    assert corpus() == PAIRS


def test_the_form_of_every_sentence():
    for korean, english in PAIRS:
        assert korean.endswith("다.") and english.endswith(".")
        assert english[0].isupper()
        for text in (korean, english):
            assert "  " not in text and text == text.strip() and text.count(".") == 1
        words = english[:-1].split()
        for article, noun in pairwise(words):
            if article in ("a", "an"):
                assert (article == "an") == (noun[0] in "aeiou"), english


def test_third_person_agrees():
    for _, english in PAIRS:
        third = english.startswith(("He ", "She ", "Minsu ", "The student "))
        assert not ({"does", "is"} & {*english.split()} and not third), english
        assert not ({"do", "are", "am"} & {*english.split()} and third), english


def test_the_tables_fit_together():
    used = {noun for verb in VERBS for noun in verb.objects.split()}
    assert used == NOUNS.keys()
    for verb in VERBS:
        assert verb.present.endswith("다") and not verb.stem.endswith("다")


def final_consonant(syllable):
    """By the Unicode character database rather than by arithmetic."""
    return len(unicodedata.normalize("NFD", syllable)) == 3


@pytest.mark.parametrize("particles", ["은/는", "이/가", "을/를"])
def test_particles_follow_the_final_consonant(particles):
    for word in [*NOUNS, "각", "가", "힣", "히"]:
        after_consonant, after_vowel = particles.split("/")
        expected = after_consonant if final_consonant(word[-1]) else after_vowel
        assert with_particle(word, particles) == word + expected


@pytest.mark.parametrize("word", ["", "TV", "3", "ㄱ"])
def test_no_particle_without_a_hangul_syllable(word):
    with pytest.raises(ValueError, match="no particle fits"):
        with_particle(word, "을/를")


@pytest.mark.parametrize(
    "word, expected",
    [
        ("cat", "cats"),
        ("watch", "watches"),
        ("wash", "washes"),
        ("fix", "fixes"),
        ("bus", "buses"),
        ("study", "studies"),
        ("buy", "buys"),
        ("listen to", "listens to"),
    ],
)
def test_with_s(word, expected):
    assert with_s(word) == expected


def test_split_keeps_test_sentences_out_of_training():
    train, test = split(PAIRS, held_out=200, seed=1)
    assert len(test) == len(set(test)) == 200
    assert set(train) | set(test) <= set(PAIRS)
    for side in (0, 1):
        assert {pair[side] for pair in train}.isdisjoint(pair[side] for pair in test)
    assert len(train) > len(PAIRS) - 220
    assert split(PAIRS, held_out=200, seed=1) == (train, test)
    assert split(PAIRS, held_out=200, seed=2)[1] != test
    assert len({english.split()[0] for _, english in test}) > 4, "the test is a random sample"


def test_split_draws_distinct_pairs():
    _, test = split(PAIRS[:3] * 10, held_out=2)
    assert len(set(test)) == 2


def test_split_drops_what_shares_a_side():
    pairs = [("가", "a"), ("나", "a"), ("나", "b"), ("다", "c"), ("다", "c")]
    seen = set()
    for seed in range(20):
        train, (held,) = split(pairs, held_out=1, seed=seed)
        assert train == [p for p in pairs if p[0] != held[0] and p[1] != held[1]]
        seen.add(held)
    assert seen == set(pairs)


@pytest.mark.parametrize("held_out", [-1, 0, 3, 4])
def test_split_needs_both_parts(held_out):
    with pytest.raises(ValueError, match=f"held_out={held_out} of 3 pairs"):
        split(PAIRS[:3], held_out=held_out)
