"""A small Korean-English corpus, generated from word lists and grammar rules.

Every sentence is a subject, sometimes a time, an object and a verb in one of four tenses,
affirmative or negative: 그녀는 어제 사과를 먹지 않았다. = She did not eat an apple yesterday.
Each Korean sentence has exactly one English side, because these rules settle what Korean leaves
open:

- 먹는다 is the habit (eats), 먹고 있다 what goes on now (is eating); the plain written style ends
  every sentence.
- Korean has neither articles nor number here. A thing that can be counted is one new thing (an
  apple), in the habit the kind (He eats apples), and one each where several people wear or ride it
  (They wore hats). What cannot be counted has no article (water), and what there is one of in the
  scene has `the` (the door). The noun decides.
- A word has one sense. Where a verb has two, its objects tell them apart: 자전거를 타다 is to ride
  a bicycle, 버스를 타다 to take a bus.
- Korean puts the time after the subject, a frequency before the verb; English puts the time at the
  end, `often` before the main verb.
- Negation is the long form, -지 않다, and `not` without contraction.

To enlarge the corpus, add rows to the tables: rules read nothing but their columns.
"""

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import numpy as np


class Tense(Enum):
    PAST = "past"
    HABIT = "habit"
    PROGRESSIVE = "progressive"
    FUTURE = "future"


class Noun(NamedTuple):
    """`article` is "a" for what can be counted, "the" for what is known, "" for all else."""

    korean: str
    english: str
    article: str = "a"


class Subject(NamedTuple):
    korean: str
    english: str
    be: str  # am, are or is: what the English verb agrees with
    plural: bool = False


class Time(NamedTuple):
    """A time with the tense that it asks for. The empty time stands for none."""

    tense: Tense
    korean: str = ""
    english: str = ""
    frequency: bool = False


class Verb(NamedTuple):
    """Korean forms to build on (먹, 먹는다, 먹었, 먹을), English forms, and the objects in Korean.

    `apiece` tells that several people need several objects, one each.
    """

    stem: str
    present: str
    past: str
    future: str
    english: str
    english_past: str
    participle: str
    objects: str
    apiece: bool = False


SUBJECTS = (
    Subject("나", "I", "am"),
    Subject("너", "you", "are"),
    Subject("그", "he", "is"),
    Subject("그녀", "she", "is"),
    Subject("우리", "we", "are", plural=True),
    Subject("그들", "they", "are", plural=True),
    Subject("민수", "Minsu", "is"),
    Subject("학생", "the student", "is"),
)

TIMES = (
    Time(Tense.PAST),
    Time(Tense.PAST, "어제", "yesterday"),
    Time(Tense.PAST, "지난주에", "last week"),
    Time(Tense.HABIT),
    Time(Tense.HABIT, "자주", "often", frequency=True),
    Time(Tense.PROGRESSIVE, "지금", "now"),
    Time(Tense.FUTURE),
    Time(Tense.FUTURE, "내일", "tomorrow"),
)

NOUNS = {
    noun.korean: noun
    for noun in (
        Noun("사과", "apple"),
        Noun("오렌지", "orange"),
        Noun("바나나", "banana"),
        Noun("달걀", "egg"),
        Noun("샌드위치", "sandwich"),
        Noun("케이크", "cake"),
        Noun("책", "book"),
        Noun("편지", "letter"),
        Noun("소설", "novel"),
        Noun("시", "poem"),
        Noun("영화", "movie"),
        Noun("노래", "song"),
        Noun("그림", "picture"),
        Noun("사진", "photo"),
        Noun("꽃", "flower"),
        Noun("나무", "tree"),
        Noun("고양이", "cat"),
        Noun("말", "horse"),
        Noun("친구", "friend"),
        Noun("의사", "doctor"),
        Noun("컵", "cup"),
        Noun("접시", "dish"),
        Noun("의자", "chair"),
        Noun("인형", "doll"),
        Noun("시계", "watch"),
        Noun("우산", "umbrella"),
        Noun("모자", "hat"),
        Noun("코트", "coat"),
        Noun("셔츠", "shirt"),
        Noun("자전거", "bicycle"),
        Noun("자동차", "car"),
        Noun("버스", "bus"),
        Noun("택시", "taxi"),
        Noun("빵", "bread", ""),
        Noun("고기", "meat", ""),
        Noun("생선", "fish", ""),
        Noun("물", "water", ""),
        Noun("우유", "milk", ""),
        Noun("커피", "coffee", ""),
        Noun("주스", "juice", ""),
        Noun("텔레비전", "television", ""),
        Noun("음악", "music", ""),
        Noun("영어", "English", ""),
        Noun("한국어", "Korean", ""),
        Noun("수학", "math", ""),
        Noun("역사", "history", ""),
        Noun("옷", "clothes", ""),
        Noun("신문", "newspaper", "the"),
        Noun("라디오", "radio", "the"),
        Noun("문", "door", "the"),
        Noun("창문", "window", "the"),
        Noun("방", "room", "the"),
        Noun("부엌", "kitchen", "the"),
        Noun("교실", "classroom", "the"),
    )
}

# fmt: off
VERBS = (
    Verb("먹", "먹는다", "먹었", "먹을", "eat", "ate", "eating",
         "사과 바나나 달걀 샌드위치 빵 고기"),
    Verb("마시", "마신다", "마셨", "마실", "drink", "drank", "drinking", "물 우유 커피 주스"),
    Verb("읽", "읽는다", "읽었", "읽을", "read", "read", "reading", "책 소설 시 신문"),
    Verb("쓰", "쓴다", "썼", "쓸", "write", "wrote", "writing", "편지 소설 시"),
    Verb("보", "본다", "봤", "볼", "watch", "watched", "watching", "영화 텔레비전"),
    Verb("듣", "듣는다", "들었", "들을", "listen to", "listened to", "listening to",
         "음악 노래 라디오"),
    Verb("부르", "부른다", "불렀", "부를", "sing", "sang", "singing", "노래"),
    Verb("그리", "그린다", "그렸", "그릴", "draw", "drew", "drawing", "그림 나무 고양이"),
    Verb("찍", "찍는다", "찍었", "찍을", "take", "took", "taking", "사진"),
    Verb("사", "산다", "샀", "살", "buy", "bought", "buying", "오렌지 책 꽃 우산 옷"),
    Verb("팔", "판다", "팔았", "팔", "sell", "sold", "selling", "꽃 자동차 시계"),
    Verb("만들", "만든다", "만들었", "만들", "make", "made", "making", "케이크 의자 인형"),
    Verb("요리하", "요리한다", "요리했", "요리할", "cook", "cooked", "cooking", "고기 생선"),
    Verb("입", "입는다", "입었", "입을", "wear", "wore", "wearing", "코트 셔츠", apiece=True),
    Verb("쓰", "쓴다", "썼", "쓸", "wear", "wore", "wearing", "모자", apiece=True),
    Verb("타", "탄다", "탔", "탈", "ride", "rode", "riding", "자전거 말", apiece=True),
    Verb("타", "탄다", "탔", "탈", "take", "took", "taking", "버스 택시"),
    Verb("만나", "만난다", "만났", "만날", "meet", "met", "meeting", "친구 의사"),
    Verb("씻", "씻는다", "씻었", "씻을", "wash", "washed", "washing", "컵 접시"),
    Verb("고치", "고친다", "고쳤", "고칠", "fix", "fixed", "fixing", "자전거 시계"),
    Verb("빌리", "빌린다", "빌렸", "빌릴", "borrow", "borrowed", "borrowing", "책 우산"),
    Verb("열", "연다", "열었", "열", "open", "opened", "opening", "문 창문"),
    Verb("닫", "닫는다", "닫았", "닫을", "close", "closed", "closing", "문 창문"),
    Verb("청소하", "청소한다", "청소했", "청소할", "clean", "cleaned", "cleaning", "방 부엌 교실"),
    Verb("공부하", "공부한다", "공부했", "공부할", "study", "studied", "studying",
         "영어 수학 역사"),
    Verb("가르치", "가르친다", "가르쳤", "가르칠", "teach", "taught", "teaching", "영어 한국어"),
)
# fmt: on


def with_particle(word: str, particles: str) -> str:
    """Attach the particle that fits: `particles` is the one after a consonant / after a vowel.

    >>> with_particle("책", "을/를"), with_particle("사과", "을/를")
    ('책을', '사과를')

    A Hangul syllable is U+AC00 + 28 x (its initial and vowel) + its final consonant, where final
    0 is none (Unicode Standard, section 3.12). Raises ValueError for a word that ends in no such
    syllable.
    """
    if not "가" <= word[-1:] <= "힣":
        raise ValueError(f"no particle fits {word!r}: its end is not a Hangul syllable")
    after_consonant, after_vowel = particles.split("/")
    final = (ord(word[-1]) - ord("가")) % 28
    return word + (after_consonant if final else after_vowel)


def with_s(word: str) -> str:
    """Add the -s of a plural or of the third person: cats, watches, studies, listens to."""
    head, *rest = word.split(" ")
    if head.endswith(("s", "x", "z", "ch", "sh")):
        head += "es"
    elif head.endswith("y") and head[-2] not in "aeiou":
        head = head[:-1] + "ies"
    else:
        head += "s"
    return " ".join([head, *rest])


def korean_predicate(verb: Verb, tense: Tense, negative: bool) -> str:
    """먹었다, 먹는다, 먹고 있다, 먹을 것이다, or their negatives in -지 않다."""
    match tense, negative:
        case Tense.PAST, False:
            return f"{verb.past}다"
        case Tense.PAST, True:
            return f"{verb.stem}지 않았다"
        case Tense.HABIT, False:
            return verb.present
        case Tense.HABIT, True:
            return f"{verb.stem}지 않는다"
        case Tense.PROGRESSIVE, False:
            return f"{verb.stem}고 있다"
        case Tense.PROGRESSIVE, True:
            return f"{verb.stem}고 있지 않다"
        case Tense.FUTURE, False:
            return f"{verb.future} 것이다"
        case _:
            return f"{verb.stem}지 않을 것이다"


def english_predicate(
    subject: Subject, verb: Verb, tense: Tense, negative: bool, adverb: str = ""
) -> str:
    """Auxiliary, not, adverb and main verb, as far as the sentence has them."""
    third_person = subject.be == "is"
    match tense, negative:
        case Tense.PAST, False:
            auxiliary, main = "", verb.english_past
        case Tense.PAST, True:
            auxiliary, main = "did", verb.english
        case Tense.HABIT, False:
            auxiliary, main = "", with_s(verb.english) if third_person else verb.english
        case Tense.HABIT, True:
            auxiliary, main = "does" if third_person else "do", verb.english
        case Tense.PROGRESSIVE, _:
            auxiliary, main = subject.be, verb.participle
        case _:
            auxiliary, main = "will", verb.english
    return _join(auxiliary, "not" if negative else "", adverb, main)


def english_object(noun: Noun, plural: bool) -> str:
    """An apple or apples; water and the door are the same in both."""
    if noun.article != "a":
        return _join(noun.article, noun.english)
    if plural:
        return with_s(noun.english)
    return f"{'an' if noun.english[0] in 'aeiou' else 'a'} {noun.english}"


def sentence(
    subject: Subject, time: Time, noun: Noun, verb: Verb, negative: bool
) -> tuple[str, str]:
    """Put one Korean sentence and its English side together."""
    nothing, words = ("", ""), (time.korean, time.english)
    frequency, when = (words, nothing) if time.frequency else (nothing, words)
    korean = _join(
        with_particle(subject.korean, "은/는"),
        when[0],
        with_particle(noun.korean, "을/를"),
        frequency[0],
        korean_predicate(verb, time.tense, negative),
    )
    plural = time.tense is Tense.HABIT or (verb.apiece and subject.plural)
    english = _join(
        subject.english,
        english_predicate(subject, verb, time.tense, negative, frequency[1]),
        english_object(noun, plural),
        when[1],
    )
    return f"{korean}.", f"{english[0].upper()}{english[1:]}."


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _sentences() -> Iterator[tuple[str, str]]:
    for verb in VERBS:
        for noun in verb.objects.split():
            for time in TIMES:
                for subject in SUBJECTS:
                    for negative in (False, True):
                        yield sentence(subject, time, NOUNS[noun], verb, negative)


def corpus() -> list[tuple[str, str]]:
    """All (Korean, English) pairs, each once, in the same order every time."""
    return list(_sentences())


def split(
    pairs: list[tuple[str, str]], held_out: int, seed: int = 0
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return (train, test): `held_out` random pairs for the test, and the others to learn from.

    A pair that shares its Korean or its English sentence with one of the test goes into neither
    part, so that no test sentence occurs in training. The same seed gives the same split.

    Raises ValueError when `held_out` leaves nothing on one of the two sides.
    """
    distinct = list(dict.fromkeys(pairs))
    chosen = np.random.default_rng(seed).permutation(len(distinct))[: max(held_out, 0)]
    test = [distinct[i] for i in chosen]
    unseen = [{pair[side] for pair in test} for side in (0, 1)]
    train = [pair for pair in pairs if pair[0] not in unseen[0] and pair[1] not in unseen[1]]
    if not train or not test:
        raise ValueError(f"held_out={held_out} of {len(distinct)} pairs leaves one part empty")
    return train, test
