"""The Korean-English corpus: rules checked over all its sentences, its words, and its split.

The tables in capitals are written by hand too, so that no form is compared with itself.
"""

import hashlib
import os
import re
import subprocess
import sys
import unicodedata
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyfm.demos import korean_english
from tinyfm.demos.dice import Dice
from tinyfm.demos.korean_english import COMBINATION, SHARE, SHOWN, corpus, sentences, split
from tinyfm.demos.korean_english.grammar import (
    Thing,
)
from tinyfm.demos.korean_english.sense import draw
from tinyfm.demos.korean_english.words import (
    ADJECTIVES,
    COMPANIONS,
    KNOWN,
    NEW,
    NOUNS,
    PLACES,
    RECEIVERS,
    SPOTS,
    TIMES,
    TOOLS,
    VERBS,
    Tense,
    Time,
)

PAIRS = corpus()


def words(text):
    return {*text.split()}


# base, third person, past, participle
VERB_FORMS = """
    eat eats ate eating; drink drinks drank drinking; order orders ordered ordering;
    cook cooks cooked cooking; make makes made making; cut cuts cut cutting;
    wash washes washed washing; wipe wipes wiped wiping; read reads read reading;
    write writes wrote writing; send sends sent sending; give gives gave giving;
    show shows showed showing; watch watches watched watching;
    listen listens listened listening; draw draws drew drawing; buy buys bought buying;
    sell sells sold selling; choose chooses chose choosing; wear wears wore wearing;
    ride rides rode riding; take takes took taking; wait waits waited waiting;
    meet meets met meeting; help helps helped helping; visit visits visited visiting;
    clean cleans cleaned cleaning; open opens opened opening; close closes closed closing;
    paint paints painted painting; carry carries carried carrying;
    bring brings brought bringing; fix fixes fixed fixing; borrow borrows borrowed borrowing;
    use uses used using; study studies studied studying; teach teaches taught teaching;
    learn learns learned learning; play plays played playing; catch catches caught catching;
    plant plants planted planting; like likes liked liking; hate hates hated hating;
    sleep sleeps slept sleeping; laugh laughs laughed laughing; cry cries cried crying;
    run runs ran running; walk walks walked walking; swim swims swam swimming;
    dance dances danced dancing; sing sings sang singing; work works worked working;
    rest rests rested resting; exercise exercises exercised exercising;
    go goes went going; come comes came coming; return returns returned returning
"""
VERB_ROWS = [tuple(row.split()) for row in VERB_FORMS.split(";")]
BASE, THIRD, PAST, PARTICIPLE = map(frozenset, zip(*VERB_ROWS, strict=True))

NUMBERS = """
    apple apples, orange oranges, banana bananas, strawberry strawberries, tomato tomatoes,
    potato potatoes, egg eggs, sandwich sandwiches, cake cakes, book books, novel novels,
    magazine magazines, poem poems, story stories, movie movies, drama dramas, letter letters,
    email emails, song songs, picture pictures, photo photos, map maps, flower flowers,
    rose roses, tree trees, cat cats, dog dogs, rabbit rabbits, horse horses, bird birds,
    mouse mice, sheep sheep, friend friends, student students, doctor doctors, nurse nurses,
    singer singers, actor actors, child children, man men, woman women, cup cups, dish dishes,
    knife knives, chair chairs, desk desks, box boxes, bag bags, umbrella umbrellas,
    watch watches, hat hats, mask masks, helmet helmets, coat coats, shirt shirts,
    sweater sweaters, uniform uniforms, pencil pencils, pen pens, ball balls, doll dolls,
    toy toys, gift gifts, bicycle bicycles, motorcycle motorcycles, car cars, bus buses,
    taxi taxis, train trains, computer computers, camera cameras, game games
"""
PLURAL = dict(pair.split() for pair in NUMBERS.split(","))
PLURALS = {*PLURAL.values()}
MASS = words("""
    bread meat fish rice water milk juice coffee tea television music soccer basketball baseball
    English Korean math history science
""")
THE_ONE = words("""
    newspaper news radio subway piano guitar drums door window wall room kitchen classroom garden
    bathroom office library museum hospital park
""")
MEASURES = {"cup": "커피 차", "glass": "물 우유 주스", "bowl": "밥", "piece": "빵 고기 생선"}
VOWEL_SOUND = words("""
    apple orange egg email actor umbrella hour honest expensive interesting old
""")
COUNTERS = {
    "개": "사과 오렌지 바나나 딸기 토마토 감자 달걀 샌드위치 케이크 컵 접시 의자 책상 상자 가방 "
    "우산 시계 모자 마스크 헬멧 공 인형 장난감 선물",
    "조각": "빵 고기",
    "토막": "생선",
    "그릇": "밥",
    "잔": "물 우유 주스 커피 차",
    "권": "책 소설 잡지",
    "편": "시 이야기 영화 드라마",
    "통": "편지 이메일",
    "곡": "노래",
    "장": "그림 사진 지도",
    "송이": "꽃 장미",
    "그루": "나무",
    "마리": "고양이 개 토끼 말 새 쥐 양",
    "명": "친구 학생 의사 간호사 가수 배우 아이 남자 여자",
    "자루": "칼 연필 펜",
    "벌": "코트 셔츠 스웨터 유니폼",
    "대": "자전거 오토바이 자동차 버스 택시 기차 컴퓨터 카메라",
}
NUMERALS = {"한": "one", "두": "two", "세": "three", "네": "four", "다섯": "five"}


def test_the_sentence_that_is_shown():
    assert SHOWN[:2] == ("나는 사과를 먹었다.", "I ate an apple.") == PAIRS[0]


# Rules over all sentences


def final(syllable):
    """The final consonant, by the Unicode character database rather than by arithmetic."""
    return unicodedata.normalize("NFD", syllable)[2:]


def check_particles(korean):
    """At least one word carries a particle, and each the one that fits."""
    tokens = [token for token in korean[:-1].split() if parse_particle(token)]
    assert tokens, korean
    for word, particle in map(parse_particle, tokens):
        closed = bool(final(word[-1]))
        match particle:
            case "은" | "이" | "을" | "과":
                assert closed, korean
            case "는" | "가" | "를" | "와":
                assert not closed, korean
            case "으로":
                assert closed and final(word[-1]) != "\u11af", korean
            case "로":
                assert not closed or final(word[-1]) == "\u11af", korean


WITH_PARTICLES = {
    *(somebody.korean for somebody in KNOWN),
    *(word for nouns in (NOUNS, PLACES, TOOLS) for word in nouns),
    *COUNTERS,
}


def parse_particle(token):
    for particle in ("으로", *"은는이가을를과와로"):
        if token.endswith(particle) and token.removesuffix(particle) in WITH_PARTICLES:
            return token.removesuffix(particle), particle
    return None


def check_form(korean, english):
    question = english.endswith("?")
    assert korean.endswith("니?" if question else "다.")
    assert english[-1] == korean[-1] and english[0].isupper()
    for text in (korean, english):
        assert " ".join(text.split()) == text
        assert text.isprintable() and not re.search("[.?]", text[:-1])


def check_articles(english):
    words = english[:-1].split()
    for article, word in pairwise(words):
        if article.lower() in ("a", "an"):
            assert (article.lower() == "an") == (word in VOWEL_SOUND), english


ENGLISH_ADJECTIVES = words("""
    red blue yellow white black big small new old expensive heavy long short interesting sad
    beautiful cute hot cold sweet delicious useful quiet kind honest famous busy tired happy hungry
""")


def phrases(words):
    """Every (first word, noun) of the English noun phrases that begin with an article or number."""
    for i, first in enumerate(words):
        if first.lower() in ("a", "an", "this", "the", "no", *NUMERALS.values()):
            rest = [word for word in words[i + 1 :] if word not in ENGLISH_ADJECTIVES]
            yield first.lower(), rest[0]


MEASURE_WORDS = {"cups", "glasses", "bowls", "pieces", *MEASURES}
# Nouns that only occur in fixed phrases: home, every day, with a towel.
NOT_TAUGHT = words("""
    day morning weekend week night hour hours minutes home school university market store cafe
    restaurant station hotel beach refrigerator table brush towel
""")


SINGULAR = {*PLURAL, *MASS, *THE_ONE, *NOT_TAUGHT}


def check_numbers(english):
    words = english[:-1].split()
    for first, noun in phrases(words):
        if noun in MEASURE_WORDS and "of" in words:
            assert (noun not in MEASURES) == (first in ("two", "three", "four", "five")), english
        elif first in ("two", "three", "four", "five"):
            assert noun in PLURALS or noun == "hours", english
        elif first in ("a", "an", "one"):
            assert noun in PLURAL or noun in NOT_TAUGHT, english
        elif first in ("this", "no"):
            assert noun in PLURAL or noun in MASS or noun == "morning", english
        elif noun != "children":
            assert noun in SINGULAR, english


COUNTED = re.compile(rf"(\S+) ({'|'.join(NUMERALS)}) ({'|'.join(COUNTERS)})[을를이가]")


def check_counters(korean, english):
    """Each counter fits its noun and its number is on the other side, no more and no less."""
    expected = Counter()
    for noun, numeral, counter in COUNTED.findall(korean):
        assert noun in COUNTERS[counter].split(), korean
        measure = [m for m, nouns in MEASURES.items() if noun in nouns.split()]
        expected[f"{measure[0]} of" if measure and numeral == "한" else NUMERALS[numeral]] += 1
    for numeral in re.findall(r"(두|세) 시간", korean):
        expected[NUMERALS[numeral]] += 1
    found = Counter(re.findall(r"\b(one|two|three|four|five)\b", english.lower()))
    found.update(re.findall(r"\ba ((?:cup|glass|bowl|piece) of)", english))
    assert found == expected, (korean, english)


FIRST, SEVERAL, ONE = "am", "are", "is"
PRONOUNS = {"i": FIRST, "you": SEVERAL, "we": SEVERAL, "they": SEVERAL}
PRONOUNS |= dict.fromkeys(("he", "she", "minsu", "seoyeon"), ONE)
DO = {FIRST: "do", SEVERAL: "do", ONE: "does"}
WAS = {FIRST: "was", SEVERAL: "were", ONE: "was"}


def subject(words):
    """(number of words, what the verb must agree with) of the subject that words begin with."""
    first = words[0].lower()
    if first in PRONOUNS:
        return 1, PRONOUNS[first]
    length = next(i for i, word in enumerate(words) if i and word not in ENGLISH_ADJECTIVES) + 1
    noun = words[length - 1]
    several = first in ("two", "three", "four", "five") or noun == "children"
    assert several == (noun in PLURALS and noun != "sheep"), words
    return length, SEVERAL if several else ONE


def check_agreement(english):
    """Subject, auxiliary and the form of the main verb."""
    words = english[:-1].split()
    if english.endswith("?"):
        auxiliary, words = words[0].lower(), words[1:]
        if words[0] == "there":
            return check_there(auxiliary, words[1:])
        length, number = subject(words)
        rest = words[length:]
        assert auxiliary in ("did", "will", number, DO[number], WAS[number]), english
    elif words[0] == "There":
        return check_there(words[1], words[2:])
    else:
        length, number = subject(words)
        rest = words[length:]
        rest = rest[1:] if rest[0] in ("often", "sometimes") else rest
        if rest[0] in (THIRD | PAST if number == ONE else BASE | PAST):
            return None
        auxiliary, rest = rest[0], rest[1:]
        assert auxiliary in ("did", "will", number, DO[number], WAS[number]), english
        assert auxiliary in (number, "will", WAS[number]) or rest[0] == "not", english
    main = next(word for word in rest if word not in ("not", "often", "sometimes"))
    if auxiliary in ("did", "will", "do", "does"):
        assert main in BASE, english
    elif auxiliary in ("was", "were"):
        assert main in ENGLISH_ADJECTIVES, english
    else:
        assert main in PARTICIPLE or main in ENGLISH_ADJECTIVES, english
    return None


def check_there(auxiliary, words):
    assert auxiliary in (
        ("are", "were") if words[0] in ("two", "three", "four", "five") else ("is", "was")
    )


SSANG_SIOS = "\u11bb"  # the final consonant of the past: 먹었다
PAST_WORDS = PAST | {"did", "was", "were"}
TIME_WORDS = {
    "어제": "yesterday",
    "지난주에": "last week",
    "오늘 아침에": "this morning",
    "어젯밤에": "last night",
    "자주": "often",
    "가끔": "sometimes",
    "매일 아침": "every morning",
    "주말마다": "every weekend",
    "지금": "now",
    "내일": "tomorrow",
    "다음 주에": "next week",
    "오늘 밤에": "tonight",
    "삼십 분 동안": "for thirty minutes",
    "한 시간 동안": "for an hour",
    "두 시간 동안": "for two hours",
    "세 시간 동안": "for three hours",
}


def check_meaning(korean, english):
    """Times, tenses and negation are on both sides or on none."""
    words = set(english[:-1].lower().split())
    for here, there in TIME_WORDS.items():
        assert (here in korean) == (there in english), (korean, english)
    if final(korean[-3]) == SSANG_SIOS and korean[-3] != "있":
        assert words & PAST_WORDS, (korean, english)
    else:
        assert not words & PAST_WORDS - BASE, (korean, english)
    assert bool(re.search("지 않|없", korean)) == bool(words & {"not", "no"}), (korean, english)
    assert bool(re.search("것이다|거니", korean)) == ("will" in words), (korean, english)
    assert ("고 있" in korean) == bool(words & PARTICIPLE), (korean, english)


def check(pairs):
    for korean, english in pairs:
        check_form(korean, english)
        check_particles(korean)
        check_articles(english)
        check_numbers(english)
        check_counters(korean, english)
        check_agreement(english)
        check_meaning(korean, english)


def test_the_rules_hold_over_the_corpus():
    check(PAIRS)


@given(st.integers(0, 2**64))
def test_the_rules_hold_over_the_grammar(seed):
    dice = Dice(seed)
    check(draw(dice)[:2] for _ in range(30))


@pytest.mark.parametrize(
    "korean, english",
    [
        ("나는 사과을 먹었다.", "I ate an apple."),
        ("나는 연필으로 시를 썼다.", "I wrote a poem with a pencil."),
        ("나는 펜로 시를 썼다.", "I wrote a poem with a pen."),
        ("나는 사과를 먹었다.", "I ate a apple."),
        ("나는 유니폼을 입었다.", "I wore an uniform."),
        ("나는 한 시간 동안 잤다.", "I slept for a hour."),
        ("나는 사과를 먹었니?", "I ate an apple."),
        ("나는 사과를 먹었다.", "i ate an apple."),
        ("나는 사과 세 개를 먹었다.", "I ate three apple."),
        ("나는 사과 세 개를 먹었다.", "I ate two apples."),
        ("나는 사과 세 권을 먹었다.", "I ate three apples."),
        ("나는 사과를 먹었다.", "I ate an apples."),
        ("나는 커피 한 잔을 마셨다.", "I drank one cups of coffee."),
        ("나는 물을 마셨다.", "I drank a water."),
        ("그는 사과를 먹는다.", "He eat apples."),
        ("나는 사과를 먹는다.", "I eats apples."),
        ("그는 사과를 먹지 않는다.", "He do not eat apples."),
        ("그는 사과를 먹지 않는다.", "He does not eats apples."),
        ("그는 사과를 먹니?", "Do he eat apples?"),
        ("우리는 바빴다.", "We was busy."),
        ("나는 사과를 먹지 않았다.", "I ate an apple."),
        ("나는 사과를 먹을 것이다.", "I ate an apple."),
        ("나는 사과를 먹는다.", "I ate an apple."),
        ("나는 사과를 먹었다.", "I eat an apple."),
        ("나는 어제 사과를 먹었다.", "I ate an apple."),
        ("나는 사과를 먹었다.", "I ate an apple last week."),
        ("나는 사과를 먹고 있다.", "I will eat an apple."),
        ("방에 고양이 두 마리가 있다.", "There is two cats in the room."),
        ("개 두 마리가 자고 있다.", "Two dogs is sleeping."),
        ("개가 자고 있다.", "A dogs is sleeping."),
    ],
)
def test_the_rules_notice(korean, english):
    with pytest.raises(AssertionError):
        check([(korean, english)])


def test_sentences_make_sense():
    """What no grammar forbids but nobody says; by the Korean side and its tense."""
    counted = re.compile(rf"({'|'.join(NUMERALS)}) ({'|'.join(COUNTERS)})[을를] | 동안 ")
    this = re.compile(r"(^| )[이그] \S+[을를] |(^| )[이그] \S+ \S+[을를] ")
    new = re.compile(rf"^(\S+ )?({'|'.join(n for nouns in NEW.values() for n in nouns)})[이가] ")
    found = Counter()
    for korean, english, combination, *_ in sentences():
        if combination is None:
            continue
        tense, negative = combination
        habit, liking = tense is Tense.HABIT, re.search("[좋싫]", korean)
        if counted.search(korean):
            found["counted"] += 1
            assert not negative and tense is not Tense.NOW and not liking, korean
            assert not habit or re.search("매일|주말마다", korean), korean
        if this.search(korean):
            found["this"] += 1
            assert not habit or liking, korean
            one_each = re.search(r"\b(wear|wore|wearing|ride|rode|riding)\b", english)
            assert not (one_each and re.match("우리|그들|아이들|.*[두세네섯] 명이", korean)), korean
        if new.search(korean):
            found["new"] += 1
            assert not negative and korean.endswith("다."), korean
            assert tense in (Tense.PAST, Tense.NOW) and not liking, korean
        if re.search("매일|주말마다|가끔", korean):
            found["set times"] += 1
            assert not negative, korean
        if re.match("나는|우리는", korean):
            found["we"] += 1
            assert korean.endswith("다."), korean
            assert not {"me", "us"} & {*english[:-1].split()}, english
    assert min(found.values()) > 500 and len(found) == 5, found


def test_each_side_has_exactly_one_other_side():
    """Over the corpus and as many sentences again that are not in it."""
    dice = Dice(1)
    pairs = {*PAIRS, *(draw(dice)[:2] for _ in range(20_000))}
    assert len(pairs) > len(PAIRS) + 10_000
    for side in (0, 1):
        twice = [text for text, n in Counter(pair[side] for pair in pairs).items() if n > 1]
        assert twice == []


def test_the_corpus_is_large_and_distinct():
    assert len(PAIRS) == len(set(PAIRS)) >= 20_000
    assert [sentence[:2] for sentence in sentences()] == PAIRS
    lengths = [len(english.split()) for _, english in PAIRS]
    assert sum(4 <= n <= 12 for n in lengths) > 0.9 * len(lengths)


def test_the_corpus_and_its_split_are_the_same_in_every_process():
    code = (
        "import hashlib; from tinyfm.demos.korean_english import corpus, split; "
        "print(hashlib.sha256(repr((corpus(), split(3))).encode()).hexdigest())"
    )
    there = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        check=True,
        text=True,
    )
    here = hashlib.sha256(repr((corpus(), split(3))).encode()).hexdigest()
    assert there.stdout.strip() == here


def test_every_word_is_used():
    english = Counter(word for _, e in PAIRS for word in re.findall(r"\w+", e.lower()))
    forms = {*BASE, *THIRD, *PAST, *PARTICIPLE} - {"liking", "hating"}
    nouns = {*PLURAL, *PLURAL.values(), *THE_ONE, *(word.lower() for word in MASS)}
    nouns -= {"buses", "taxis", "trains"}  # taken one at a time
    for words in (forms, nouns, ENGLISH_ADJECTIVES):
        assert [word for word in words if not english[word]] == []


# The words


def test_the_tables_of_the_grammar_are_those_written_by_hand():
    assert {tuple(v.english.split()) for v in VERBS} == {
        (base, past, participle) for base, _, past, participle in VERB_ROWS
    }
    counted = [noun for noun in NOUNS.values() if noun.article == "a"]
    assert {n.english: Thing(n).bare(plural=True) for n in counted} == PLURAL
    assert {n.english for n in NOUNS.values() if n.article == ""} == MASS
    assert {n.english for n in NOUNS.values() if n.article == "the"} == THE_ONE
    assert {a.english for a in ADJECTIVES} == ENGLISH_ADJECTIVES
    by_counter = {}
    for noun in NOUNS.values():
        if noun.counter:
            by_counter.setdefault(noun.counter, set()).add(noun.korean)
    assert by_counter == {counter: {*nouns.split()} for counter, nouns in COUNTERS.items()}


def test_the_columns_name_words_that_exist():
    used = {noun for verb in VERBS for noun in verb.objects.split()}
    used |= {noun for adjective in ADJECTIVES for noun in adjective.nouns.split()}
    used |= {noun for spot in SPOTS for noun in spot.things.split()}
    used |= {noun for nouns in NEW.values() for noun in nouns} | {*RECEIVERS, *COMPANIONS}
    assert used == NOUNS.keys()
    assert {place for verb in VERBS for place in verb.places.split()} == PLACES.keys()
    assert {tool for verb in VERBS for tool in verb.tools.split()} == TOOLS.keys()
    kinds = {kind for verb in VERBS for kind in verb.who.split()}
    assert kinds == NEW.keys() == {somebody.kind for somebody in KNOWN}
    for verb in VERBS:
        assert all(PLACES[place].to for place in verb.places.split() if verb.goes)
    assert {time.tense for time in TIMES if time == Time(time.tense)} == {*Tense}


def test_words_come_in_company():
    """Nothing is learnt of a verb from one object or of an adjective from one noun."""
    assert all(len(verb.objects.split()) != 1 for verb in VERBS)
    assert all(len(verb.objects.split() or verb.places.split()) >= 2 for verb in VERBS)
    assert all(len(adjective.nouns.split()) >= 3 for adjective in ADJECTIVES)


def test_dice_are_fair():
    dice = Dice(0)
    thrown = Counter(dice.one("abc") for _ in range(3000))
    assert all(900 < n < 1100 for n in thrown.values()) and len(thrown) == 3
    assert 900 < sum(dice.chance(1 / 3) for _ in range(3000)) < 1100
    assert not any(dice.chance(0) for _ in range(100)) and all(dice.chance(1) for _ in range(100))
    shuffled = dice.shuffled(range(50))
    assert shuffled != sorted(shuffled) == [*range(50)]
    assert [Dice(7).one(range(1000)) for _ in range(3)] == [int(0.32383276483316237 * 1000)] * 3


# The split


SEEDS = (0, 1, 2)
BY_PAIR = {sentence[:2]: sentence for sentence in sentences()}
FEATURES = ("verb_objects", "adjective_nouns")


def features(pairs, name):
    return {pair for text in pairs for pair in getattr(BY_PAIR[text], name)}


@pytest.mark.parametrize("seed", SEEDS)
def test_split_keeps_test_sentences_out_of_training(seed):
    train, random, compositional = parts = split(seed)
    assert len(random) == len(compositional) == 300
    assert len(train) >= 20_000
    for part in parts:
        assert len(set(part)) == len(part) and set(part) <= BY_PAIR.keys()
    for side in (0, 1):
        texts = [{pair[side] for pair in part} for part in parts]
        assert texts[0].isdisjoint(texts[1] | texts[2]) and texts[1].isdisjoint(texts[2])
    assert SHOWN[:2] in random


@pytest.mark.parametrize("seed", SEEDS)
def test_split_holds_out_pairs_and_a_combination(seed):
    train, random, compositional = split(seed)
    unseen = [features(PAIRS, name) - features(train, name) for name in FEATURES]
    for name, pairs in zip(FEATURES, unseen, strict=True):
        assert len(pairs) == round(SHARE * len(features(PAIRS, name))) >= 8
    assert not any(BY_PAIR[pair].combination == COMBINATION for pair in train)
    kinds = Counter()
    for pair in compositional:
        s = BY_PAIR[pair]
        new = (
            not unseen[0].isdisjoint(s.verb_objects),
            not unseen[1].isdisjoint(s.adjective_nouns),
            s.combination == COMBINATION,
        )
        assert sum(new) == 1, pair
        kinds[new] += 1
    assert [*kinds.values()] == [100, 100, 100]
    for pair in random:
        s = BY_PAIR[pair]
        assert unseen[0].isdisjoint(s.verb_objects) and unseen[1].isdisjoint(s.adjective_nouns)
        assert s.combination != COMBINATION


@pytest.mark.parametrize("seed", range(5))
def test_every_word_of_the_compositional_part_is_trained_on(seed):
    train, _, compositional = split(seed)
    english = {word for _, text in train for word in text[:-1].lower().split()}
    assert {word for _, text in compositional for word in text[:-1].lower().split()} <= english
    for name in FEATURES:
        trained = features(train, name)
        for first, second in features(compositional, name):
            held_out = (first, second) not in trained
            assert sum(first == pair[0] for pair in trained) >= 1 + held_out, first
            assert sum(second == pair[1] for pair in trained) >= 1 + held_out, second


def test_both_halves_of_the_combination_are_trained_on():
    train = split().train
    tense, negative = COMBINATION
    trained = Counter(BY_PAIR[pair].combination for pair in train)
    assert trained[tense, not negative] > 2000
    assert all(trained[other, negative] > 500 for other in Tense if other != tense)
    # Their words too, and in that order, of adjectives.
    assert sum(korean.endswith("고 있다.") for korean, _ in train) > 1000
    assert sum("지 않다." in korean and " is not " in english for korean, english in train) > 100


def test_the_seed_decides_about_the_split():
    assert split(1) == split(1)
    first, second = split(1), split(2)
    assert first.random != second.random and first.compositional != second.compositional
    assert features(first.train, "verb_objects") != features(second.train, "verb_objects")


@pytest.mark.parametrize("seed", range(20))
def test_held_out_words_keep_company(seed):
    pairs = {(v, o) for v in "abcdefgh" for o in "ABCDEFGH" if (v > "d") or (o > "D")}
    pairs |= {("rare", "A"), ("rare", "B"), ("a", "Rare"), ("b", "Rare")}
    held = korean_english.hold_out(Dice(seed), pairs, never=[("e", "A")])
    assert len(held) == round(SHARE * len(pairs)) == 3
    for side in (0, 1):
        assert len({pair[side] for pair in held}) == 3, "no word twice"
        kept = Counter(pair[side] for pair in pairs - held)
        assert all(kept[word] >= 2 for word in {pair[side] for pair in pairs})
    assert ("e", "A") not in held
