"""The grammar of the Korean-English corpus, against sentences and forms written by hand."""

import unicodedata
from functools import partial

import pytest

from tinyfm.demos.korean_english.grammar import (
    Circumstances,
    Setting,
    Thing,
    action,
    description,
    existence,
    with_article,
    with_particle,
    with_s,
)
from tinyfm.demos.korean_english.words import (
    ADJECTIVES,
    KNOWN,
    NOUNS,
    SPOTS,
    TIMES,
    VERBS,
    Tense,
)


def find(word, table):
    """A row by its Korean word: a verb by its stem and, where two share it, its English base."""
    stem, *base = word.split()
    rows = [v for v in table if v.korean.split()[0] == stem]
    return next(v for v in rows if not base or v.english.split()[0] == base[0])


def thing(noun, adjective=None, count=0, determiner=""):
    chosen = adjective and next(a for a in ADJECTIVES if a.attributive == adjective)
    return Thing(NOUNS[noun], chosen, count, determiner)


def other(word):
    """Who or what is no subject."""
    known = [somebody for somebody in KNOWN if somebody.korean == word and somebody.objective]
    return known[0] if known else thing(word)


def setting(tense, time, no, ask):
    tense = Tense(tense)
    return Setting(tense, next(t for t in TIMES if t[:2] == (tense, time)), no, ask)


def do(who, verb, what=None, tense="past", time="", no=False, ask=False, **around):
    """`who` and the others are words or things; a word stands for somebody known where it can."""
    who = who if isinstance(who, Thing) else find(who, KNOWN)
    what = other(what) if isinstance(what, str) else what
    around = {
        key: other(word) if key in ("receiver", "companion") else word
        for key, word in around.items()
    }
    when = setting(tense, time, no, ask)
    return action(when, who, find(verb, VERBS), what, Circumstances(**around))


def be(who, adjective, tense="now", time="", no=False, ask=False):
    who = who if isinstance(who, Thing) else find(who, KNOWN)
    word = next(a for a in ADJECTIVES if a.attributive == adjective)
    return description(setting(tense, time, no, ask), who, word)


def there(spot, what, tense="now", time="", no=False, ask=False):
    what = what if isinstance(what, Thing) else thing(what)
    place = next(s for s in SPOTS if s.korean == spot)
    return existence(setting(tense, time, no, ask), place, what)


D, B, T = partial(partial, do), partial(partial, be), partial(partial, there)

BY_HAND = [
    # Tenses, negation, questions
    (D("나", "먹", "사과"), "나는 사과를 먹었다.", "I ate an apple."),
    (D("그녀", "먹", "사과", no=True), "그녀는 사과를 먹지 않았다.", "She did not eat an apple."),
    (D("너", "먹", "사과", ask=True), "너는 사과를 먹었니?", "Did you eat an apple?"),
    (
        D("너", "먹", "사과", no=True, ask=True),
        "너는 사과를 먹지 않았니?",
        "Did you not eat an apple?",
    ),
    (D("그", "먹", "사과", "habit"), "그는 사과를 먹는다.", "He eats apples."),
    (D("우리", "먹", "사과", "habit"), "우리는 사과를 먹는다.", "We eat apples."),
    (
        D("그", "먹", "사과", "habit", no=True),
        "그는 사과를 먹지 않는다.",
        "He does not eat apples.",
    ),
    (D("그들", "먹", "빵", "habit", ask=True), "그들은 빵을 먹니?", "Do they eat bread?"),
    (D("나", "먹", "빵", "now"), "나는 빵을 먹고 있다.", "I am eating bread."),
    (
        D("그들", "듣", "음악", "now", "지금", no=True),
        "그들은 지금 음악을 듣고 있지 않다.",
        "They are not listening to music now.",
    ),
    (
        D("민수", "읽", "책", "now", ask=True),
        "민수는 책을 읽고 있니?",
        "Is Minsu reading a book?",
    ),
    (
        D("나", "열", "문", "future", "내일"),
        "나는 내일 문을 열 것이다.",
        "I will open the door tomorrow.",
    ),
    (
        D("나", "열", "문", "future", "내일", no=True),
        "나는 내일 문을 열지 않을 것이다.",
        "I will not open the door tomorrow.",
    ),
    (
        D("서연", "듣", "라디오", "future", "오늘 밤에", ask=True),
        "서연은 오늘 밤에 라디오를 들을 거니?",
        "Will Seoyeon listen to the radio tonight?",
    ),
    (
        D("그들", "돕", "너", "future", no=True, ask=True),
        "그들은 너를 돕지 않을 거니?",
        "Will they not help you?",
    ),
    # Stems that end in a vowel, in ㄹ and in other consonants, and irregular ones
    (D("너", "팔", "꽃", "habit", ask=True), "너는 꽃을 파니?", "Do you sell flowers?"),
    (
        D("그녀", "만들", "케이크", "habit"),
        "그녀는 케이크를 만든다.",
        "She makes cakes.",
    ),
    (D("의사", "돕", "그"), "의사는 그를 도왔다.", "The doctor helped him."),
    (
        D("학생", "걷", tense="future", place="공원"),
        "학생은 공원에서 걸을 것이다.",
        "The student will walk in the park.",
    ),
    (D("우리", "고르", "선물"), "우리는 선물을 골랐다.", "We chose a gift."),
    (D("아이들", "자르", "케이크"), "아이들은 케이크를 잘랐다.", "The children cut a cake."),
    (D("그녀", "춤추"), "그녀는 춤추었다.", "She danced."),
    (D("그", "쓰 write", "편지"), "그는 편지를 썼다.", "He wrote a letter."),
    (D("나", "하", "축구", "habit"), "나는 축구를 한다.", "I play soccer."),
    (D("나", "치", "피아노"), "나는 피아노를 쳤다.", "I played the piano."),
    # Times and how often
    (
        D("학생", "공부하", "수학", "habit", "자주"),
        "학생은 수학을 자주 공부한다.",
        "The student often studies math.",
    ),
    (
        D("너", "먹", "빵", "habit", "자주", no=True),
        "너는 빵을 자주 먹지 않는다.",
        "You do not often eat bread.",
    ),
    (
        D("그", "마시", "커피", "habit", "가끔"),
        "그는 커피를 가끔 마신다.",
        "He sometimes drinks coffee.",
    ),
    (
        D("그녀", "씻", "접시", "habit", "매일 아침"),
        "그녀는 매일 아침 접시를 씻는다.",
        "She washes dishes every morning.",
    ),
    (
        D("나", "읽", "신문", "habit", "매일"),
        "나는 매일 신문을 읽는다.",
        "I read the newspaper every day.",
    ),
    (
        D("우리", "타 ride", "말", time="지난주에"),
        "우리는 지난주에 말을 탔다.",
        "We rode horses last week.",
    ),
    (
        D("그", "자", time="어젯밤에", duration="한 시간 동안"),
        "그는 어젯밤에 한 시간 동안 잤다.",
        "He slept for an hour last night.",
    ),
    (
        D("민수", "보 watch", "영화", time="어제", place="집", duration="두 시간 동안"),
        "민수는 어제 집에서 두 시간 동안 영화를 보았다.",
        "Minsu watched a movie at home for two hours yesterday.",
    ),
    # Articles, numbers, counters, adjectives
    (D("그", "쓰 wear", "모자"), "그는 모자를 썼다.", "He wore a hat."),
    (D("그들", "쓰 wear", "모자"), "그들은 모자를 썼다.", "They wore hats."),
    (D("그", "쓰 wear", "모자", "habit"), "그는 모자를 쓴다.", "He wears a hat."),
    (D("그들", "쓰 wear", "모자", "habit"), "그들은 모자를 쓴다.", "They wear hats."),
    (
        D("아이들", "입", "유니폼", "now"),
        "아이들은 유니폼을 입고 있다.",
        "The children are wearing uniforms.",
    ),
    (
        D("그녀", "사용하", "컴퓨터", "habit"),
        "그녀는 컴퓨터를 사용한다.",
        "She uses a computer.",
    ),
    (D("나", "먹", thing("사과", count=3)), "나는 사과 세 개를 먹었다.", "I ate three apples."),
    (D("나", "먹", thing("사과", count=1)), "나는 사과 한 개를 먹었다.", "I ate one apple."),
    (
        D("나", "마시", thing("커피", count=1)),
        "나는 커피 한 잔을 마셨다.",
        "I drank a cup of coffee.",
    ),
    (
        D("그", "주문하", thing("주스", "차가운", 2), "future"),
        "그는 차가운 주스 두 잔을 주문할 것이다.",
        "He will order two glasses of cold juice.",
    ),
    (
        D("우리", "심", thing("나무", count=4), place="정원"),
        "우리는 정원에서 나무 네 그루를 심었다.",
        "We planted four trees in the garden.",
    ),
    (D("나", "그리", thing("양", count=5)), "나는 양 다섯 마리를 그렸다.", "I drew five sheep."),
    (D("나", "씻", thing("칼", count=2)), "나는 칼 두 자루를 씻었다.", "I washed two knives."),
    (
        D("그녀", "만나", thing("아이", "귀여운", 2)),
        "그녀는 귀여운 아이 두 명을 만났다.",
        "She met two cute children.",
    ),
    (
        D("너", "사", thing("유니폼", determiner="그")),
        "너는 그 유니폼을 샀다.",
        "You bought the uniform.",
    ),
    (D("나", "사", "유니폼"), "나는 유니폼을 샀다.", "I bought a uniform."),
    (
        D("나", "읽", thing("소설", "재미있는")),
        "나는 재미있는 소설을 읽었다.",
        "I read an interesting novel.",
    ),
    (
        D("나", "읽", thing("책", "유용한")),
        "나는 유용한 책을 읽었다.",
        "I read a useful book.",
    ),
    (
        D("그", "만나", thing("남자", "정직한")),
        "그는 정직한 남자를 만났다.",
        "He met an honest man.",
    ),
    (
        D("그", "타 ride", thing("자전거", "빨간", determiner="이"), "now"),
        "그는 이 빨간 자전거를 타고 있다.",
        "He is riding this red bicycle.",
    ),
    (D("나", "잡", thing("쥐"), "habit"), "나는 쥐를 잡는다.", "I catch mice."),
    (
        D("나", "좋아하", thing("꽃", "노란"), "habit"),
        "나는 노란 꽃을 좋아한다.",
        "I like yellow flowers.",
    ),
    (
        D("너", "싫어하", "우유", "habit", ask=True),
        "너는 우유를 싫어하니?",
        "Do you hate milk?",
    ),
    (
        D("아이들", "좋아하", "그녀", "habit", no=True),
        "아이들은 그녀를 좋아하지 않는다.",
        "The children do not like her.",
    ),
    # Places, tools, receivers, company
    (
        D("민수", "읽", thing("책", count=2), time="어제", place="도서관"),
        "민수는 어제 도서관에서 책 두 권을 읽었다.",
        "Minsu read two books at the library yesterday.",
    ),
    (
        D("나", "그리", "그림", tool="연필"),
        "나는 연필로 그림을 그렸다.",
        "I drew a picture with a pencil.",
    ),
    (
        D("나", "그리", "그림", "habit", tool="펜"),
        "나는 펜으로 그림을 그린다.",
        "I draw pictures with a pen.",
    ),
    (
        D("그녀", "가", time="어제", place="학교", tool="지하철"),
        "그녀는 어제 지하철로 학교에 갔다.",
        "She went to school by subway yesterday.",
    ),
    (D("그", "오", tense="now", place="집"), "그는 집에 오고 있다.", "He is coming home."),
    (
        D("우리", "돌아가", place="호텔"),
        "우리는 호텔로 돌아갔다.",
        "We returned to the hotel.",
    ),
    (
        D("의사", "돌아가", tense="habit", time="가끔", place="병원"),
        "의사는 병원으로 가끔 돌아간다.",
        "The doctor sometimes returns to the hospital.",
    ),
    (
        D("나", "주", "선물", receiver="친구"),
        "나는 친구에게 선물을 주었다.",
        "I gave a gift to a friend.",
    ),
    (
        D("그", "보여주", "사진", "habit", receiver="나"),
        "그는 나에게 사진을 보여준다.",
        "He shows photos to me.",
    ),
    (
        D("너", "놀", tense="future", companion="서연", place="바닷가"),
        "너는 서연과 함께 바닷가에서 놀 것이다.",
        "You will play at the beach with Seoyeon.",
    ),
    (
        D("그녀", "보 watch", "야구", "habit", companion="친구"),
        "그녀는 친구와 함께 야구를 본다.",
        "She watches baseball with friends.",
    ),
    (
        D("나", "기다리", "버스", time="오늘 아침에", place="역"),
        "나는 오늘 아침에 역에서 버스를 기다렸다.",
        "I waited for a bus at the station this morning.",
    ),
    # Somebody new
    (
        D(thing("고양이"), "자", tense="now", place="방"),
        "고양이가 방에서 자고 있다.",
        "A cat is sleeping in the room.",
    ),
    (
        D("고양이", "자", tense="now", place="방"),
        "고양이는 방에서 자고 있다.",
        "The cat is sleeping in the room.",
    ),
    (
        D(thing("개", count=2), "달리", tense="now", place="공원"),
        "개 두 마리가 공원에서 달리고 있다.",
        "Two dogs are running in the park.",
    ),
    (D(thing("학생", "피곤한"), "쉬"), "피곤한 학생이 쉬었다.", "A tired student rested."),
    (
        D(thing("여자", count=3), "입", "코트"),
        "여자 세 명이 코트를 입었다.",
        "Three women wore coats.",
    ),
    # How things are
    (B(thing("사과", determiner="그"), "빨간"), "그 사과는 빨갛다.", "The apple is red."),
    (
        B(thing("커피", determiner="이"), "뜨거운", no=True),
        "이 커피는 뜨겁지 않다.",
        "This coffee is not hot.",
    ),
    (
        B(thing("편지", determiner="그"), "긴", ask=True),
        "그 편지는 기니?",
        "Is the letter long?",
    ),
    (B(thing("방"), "조용한", "past"), "방은 조용했다.", "The room was quiet."),
    (
        B("우리", "바쁜", "past", "어제", no=True),
        "우리는 어제 바쁘지 않았다.",
        "We were not busy yesterday.",
    ),
    (B("나", "배고픈", time="지금"), "나는 지금 배고프다.", "I am hungry now."),
    (B("너", "피곤한", "past", ask=True), "너는 피곤했니?", "Were you tired?"),
    # What there is
    (T("방", "고양이"), "방에 고양이가 있다.", "There is a cat in the room."),
    (
        T("책상 위", thing("책", count=2), "past", "어제"),
        "어제 책상 위에 책 두 권이 있었다.",
        "There were two books on the desk yesterday.",
    ),
    (
        T("냉장고 안", "우유", no=True),
        "냉장고 안에 우유가 없다.",
        "There is no milk in the refrigerator.",
    ),
    (T("교실", "아이", ask=True), "교실에 아이가 있니?", "Is there a child in the classroom?"),
    (
        T("정원", thing("꽃", "빨간"), "past", no=True, ask=True),
        "정원에 빨간 꽃이 없었니?",
        "Was there no red flower in the garden?",
    ),
    (
        T("식탁 위", thing("커피", count=2)),
        "식탁 위에 커피 두 잔이 있다.",
        "There are two cups of coffee on the table.",
    ),
]


@pytest.mark.parametrize("sentence, korean, english", BY_HAND, ids=[row[1] for row in BY_HAND])
def test_sentences_written_by_hand(sentence, korean, english):
    assert sentence()[:2] == (korean, english)


# Forms


def final(syllable):
    """The final consonant, by the Unicode character database rather than by arithmetic."""
    return unicodedata.normalize("NFD", syllable)[2:]


IRREGULAR = {  # past and future
    "듣": ("들었", "들을"),
    "걷": ("걸었", "걸을"),
    "돕": ("도왔", "도울"),
    "쓰": ("썼", "쓸"),
    "고르": ("골랐", "고를"),
    "자르": ("잘랐", "자를"),
    "나르": ("날랐", "나를"),
}


def regular(stem):
    """Past stems that are right, and the future stem, by the school rules in jamo."""
    initial, vowel, *coda = unicodedata.normalize("NFD", stem[-1])
    joined = {"ᅡ": "ᅡ", "ᅢ": "ᅢ", "ᅩ": "ᅪ", "ᅮ": "ᅯ", "ᅵ": "ᅧ"}  # with the 아 or 어 that follows
    pasts = {stem + ("았" if vowel in "ᅡᅩ" else "었")}
    if stem[-1] == "하":
        pasts = {stem[:-1] + "했"}
    elif not coda and vowel in joined:
        short = stem[:-1] + initial + joined[vowel] + "ᆻ"
        pasts = {short} if vowel in "ᅡᅢ" else pasts | {short}  # 보았 and 봤, but only 갔
    future = stem if coda == ["ᆯ"] else stem + ("을" if coda else "ᆯ")
    nfc = partial(unicodedata.normalize, "NFC")
    return {nfc(past) for past in pasts}, nfc(future)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.english)
def test_korean_verbs_are_conjugated_by_the_rules(verb):
    stem, past, future = verb.korean.split()
    pasts, regular_future = regular(stem)
    if stem in IRREGULAR:
        assert (past, future) == IRREGULAR[stem]
    else:
        assert past in pasts and future == regular_future


@pytest.mark.parametrize("particles", ["은/는", "이/가", "을/를", "과 함께/와 함께"])
def test_particles_follow_the_final_consonant(particles):
    for word in [*NOUNS, "각", "가", "힣", "히"]:
        after_consonant, after_vowel = particles.split("/")
        expected = after_consonant if final(word[-1]) else after_vowel
        assert with_particle(word, particles) == word + expected


@pytest.mark.parametrize(
    "word, expected",
    [("집", "집으로"), ("학교", "학교로"), ("호텔", "호텔로"), ("힣", "힣으로"), ("역", "역으로")],
)
def test_ro_takes_rieul_for_a_vowel(word, expected):
    assert with_particle(word, "으로/로") == expected
    assert with_particle(word, "에") == word + "에"


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
        ("go", "goes"),
        ("photo", "photos"),
    ],
)
def test_with_s(word, expected):
    assert with_s(word) == expected


@pytest.mark.parametrize(
    "words", ["an apple", "an hour", "an honest man", "a uniform", "a useful map", "a big egg"]
)
def test_with_article(words):
    assert with_article(words.split(" ", 1)[1]) == words
