"""The grammar behind the corpus: what is said, put into Korean and into English.

From the small to the large: Korean particles and endings, English forms, things with their
adjectives and numbers, and the three kinds of sentences: `action`, `description`, `existence`.
"""

from dataclasses import dataclass
from typing import NamedTuple

from tinyfm.demos.korean_english.words import (
    DETERMINERS,
    DURATIONS,
    NUMERALS,
    PLACES,
    TOOLS,
    Adjective,
    Noun,
    Somebody,
    Spot,
    Tense,
    Time,
    Verb,
)

Pairs = tuple[tuple[str, str], ...]


class Sentence(NamedTuple):
    """A pair, and what of it can be held out of training.

    `combination` is the tense of an action and whether it is negative. `verb_objects` and
    `adjective_nouns` hold pairs of Korean words: the verb's stem or the adjective as it stands
    before nouns, and the noun.
    """

    korean: str
    english: str
    combination: tuple[Tense, bool] | None = None
    verb_objects: Pairs = ()
    adjective_nouns: Pairs = ()


# Korean. A Hangul syllable is U+AC00 + 28 x (its initial and vowel) + its final consonant (Unicode
# Standard, section 3.12). These are the numbers of the finals that the rules ask for:
NONE, NIEUN, RIEUL = 0, 4, 8


def with_particle(word: str, particles: str) -> str:
    """Attach the particle that fits: `particles` is the one after a consonant / after a vowel.

    >>> with_particle("책", "을/를"), with_particle("사과", "을/를")
    ('책을', '사과를')

    으로/로 takes ㄹ for a vowel, and a particle without a slash is always the same:

    >>> with_particle("펜", "으로/로"), with_particle("연필", "으로/로"), with_particle("집", "에")
    ('펜으로', '연필로', '집에')

    Raises ValueError for a word that does not end in a Hangul syllable.
    """
    after_consonant, _, after_vowel = particles.partition("/")
    final = _final(word)
    vowel = final == NONE or (final == RIEUL and after_vowel == "로")
    return word + (after_vowel if vowel and after_vowel else after_consonant)


def _final(word: str) -> int:
    if not "가" <= word[-1:] <= "힣":
        raise ValueError(f"no particle fits {word!r}: its end is not a Hangul syllable")
    return (ord(word[-1]) - ord("가")) % 28


def _with_final(word: str, final: int) -> str:
    return word[:-1] + chr(ord(word[-1]) - _final(word) + final)


class Forms(NamedTuple):
    """What the endings of a Korean verb or adjective are built on: 먹, 먹었, 먹을."""

    stem: str
    past: str
    future: str = ""  # of adjectives and 있다 only past and present are used here
    action: bool = False  # actions take -는다 in the present; adjectives and 있다 take -다

    def going_on(self) -> "Forms":
        """먹고 있."""
        return Forms(f"{self.stem}고 있", f"{self.stem}고 있었")

    def negated(self) -> "Forms":
        """먹지 않."""
        stem = f"{self.stem}지 않"
        return Forms(stem, f"{stem}았", f"{stem}을", self.action)

    def finite(self, tense: Tense, question: bool) -> str:
        """The end of a sentence: 먹었다, 먹는다, 먹을 것이다, or their questions.

        >>> make = Forms("만들", "만들었", "만들", action=True)
        >>> make.finite(Tense.HABIT, question=False), make.finite(Tense.HABIT, question=True)
        ('만든다', '만드니')
        """
        if tense is Tense.PAST:
            return self.past + ("니" if question else "다")
        if tense is Tense.FUTURE:
            return self.future + (" 거니" if question else " 것이다")
        final = _final(self.stem)
        if question:
            return (_with_final(self.stem, NONE) if final == RIEUL else self.stem) + "니"
        if not self.action:
            return self.stem + "다"
        if final in (NONE, RIEUL):
            return _with_final(self.stem, NIEUN) + "다"
        return self.stem + "는다"


THERE_IS, THERE_IS_NO = Forms("있", "있었"), Forms("없", "없었")


# English


def with_s(word: str) -> str:
    """Add the -s of a plural or of the third person: cats, watches, studies, goes."""
    if word.endswith(("s", "x", "z", "ch", "sh")) or word in ("do", "go"):
        return f"{word}es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}s"


def with_article(words: str) -> str:
    """Put a or an in front, by sound: an apple, an honest man, a uniform, a useful book."""
    silent_h, like_you = words.startswith(("hon", "hour")), words.startswith(("uni", "use"))
    vowel = silent_h or (words[0] in "aeiou" and not like_you)
    return f"{'an' if vowel else 'a'} {words}"


def english_verb(verb: Verb, be: str, tense: Tense, alone: bool) -> tuple[str, str]:
    """Auxiliary and main verb; `alone`: a habit or a past without negation or question."""
    base, past, participle = verb.english.split()
    third_person = be == "is"
    match tense:
        case Tense.PAST:
            return ("", past) if alone else ("did", base)
        case Tense.HABIT if alone:
            return "", with_s(base) if third_person else base
        case Tense.HABIT:
            return "does" if third_person else "do", base
        case Tense.NOW:
            return be, participle
        case Tense.FUTURE:
            return "will", base


def english_be(be: str, tense: Tense) -> str:
    """am, are, is; in the past was, were."""
    if tense is not Tense.PAST:
        return be
    return "were" if be == "are" else "was"


# Parts of sentences


class Part(NamedTuple):
    """A part in both languages, with its Korean particle and its English preposition."""

    korean: str = ""
    english: str = ""


NOTHING = Part()


@dataclass(frozen=True)
class Thing:
    """A noun with what stands around it: 그 빨간 사과, 사과 세 개."""

    noun: Noun
    adjective: Adjective | None = None
    count: int = 0  # 0: not counted
    determiner: str = ""  # 이 or 그

    def korean(self, particles: str) -> str:
        adjective = self.adjective.attributive if self.adjective else ""
        counted = ([*NUMERALS][self.count - 1], self.noun.counter) if self.count else ()
        phrase = join(self.determiner, adjective, self.noun.korean, *counted)
        return with_particle(phrase, particles)

    def english(self, plural: bool = False) -> str:
        """With article or number; `plural`: apples, unless they are counted or none can be."""
        if self.count:
            return self._counted()
        if self.determiner:
            return f"{DETERMINERS[self.determiner]} {self.bare()}"
        if self.noun.article != "a":
            return join(self.noun.article, self.bare())
        return self.bare(plural=True) if plural else with_article(self.bare())

    def bare(self, plural: bool = False) -> str:
        """Adjective and noun alone."""
        singular = self.noun.english
        noun = (self.noun.plural or with_s(singular)) if plural else singular
        return join(self.adjective.english if self.adjective else "", noun)

    def _counted(self) -> str:
        numeral = [*NUMERALS.values()][self.count - 1]
        if not (measure := self.noun.measure):
            return f"{numeral} {self.bare(plural=self.count > 1)}"
        measured = with_article(measure) if self.count == 1 else f"{numeral} {with_s(measure)}"
        return f"{measured} of {self.bare()}"

    @property
    def adjective_nouns(self) -> Pairs:
        return ((self.adjective.attributive, self.noun.korean),) if self.adjective else ()


Who = Somebody | Thing  # anything that can be a subject or an object


def name(who: Who) -> str:
    """The Korean word alone."""
    return who.noun.korean if isinstance(who, Thing) else who.korean


def subject(who: Who, particles: str) -> Part:
    """나는 = I, 학생은 = the student, 학생 두 명이 = two students."""
    if isinstance(who, Thing):
        return Part(who.korean(particles), who.english())
    return Part(with_particle(who.korean, particles), who.english)


def other(who: Who | None, particles: str, preposition: str, plural: bool) -> Part:
    """All but the subject, if it is there: 나를 = me, 친구와 함께 = with a friend."""
    if who is None:
        return NOTHING
    if isinstance(who, Thing):
        return Part(who.korean(particles), join(preposition, who.english(plural)))
    return Part(with_particle(who.korean, particles), join(preposition, who.objective))


def agreement(who: Who) -> str:
    """am, are or is."""
    if isinstance(who, Thing):
        return "are" if who.count > 1 else "is"
    return who.be


def several(who: Who) -> bool:
    return who.count > 1 if isinstance(who, Thing) else who.plural


class Setting(NamedTuple):
    """What every sentence has: tense and time, and whether it denies or asks."""

    tense: Tense
    time: Time
    negative: bool = False
    question: bool = False


class Circumstances(NamedTuple):
    """What may stand around an action; places, tools and durations by their Korean words."""

    receiver: Who | None = None
    tool: str = ""
    place: str = ""  # where it happens or, if the verb goes somewhere, where to
    companion: Who | None = None
    duration: str = ""


ALONE = Circumstances()


# Sentences


def action(
    setting: Setting, who: Who, verb: Verb, what: Who | None = None, around: Circumstances = ALONE
) -> Sentence:
    """What somebody does, who is known (나는 사과를 먹었다) or new (고양이 두 마리가 자고 있다)."""
    tense, time, negative, question = setting
    habit = tense is Tense.HABIT
    actor = subject(who, "은/는" if isinstance(who, Somebody) else "이/가")
    when, often = Part(time.korean, time.english), NOTHING
    if time.frequency:
        when, often = often, when
    # In the number that the verb and the tense ask for: about the kind, or one for each.
    kind = verb.number == "any" and (habit or verb.state)
    each = verb.number == "each" and several(who)
    complement = other(what, "을/를", verb.preposition, plural=kind or each)
    receiver = other(around.receiver, "에게", "to", plural=habit)
    companion = other(around.companion, "과 함께/와 함께", "with", plural=habit)
    tool, place, destination = NOTHING, NOTHING, NOTHING
    if around.tool:
        tool = Part(with_particle(around.tool, "으로/로"), TOOLS[around.tool])
    if around.place and verb.goes:
        destination = Part(with_particle(around.place, verb.goes), PLACES[around.place].to)
    elif around.place:
        place = Part(with_particle(around.place, "에서"), PLACES[around.place].english)

    stem, past, future = verb.korean.split()
    forms = Forms(stem, past, future, action=True)
    forms = forms.going_on() if tense is Tense.NOW else forms
    forms = forms.negated() if negative else forms
    alone = not negative and not question
    auxiliary, main = english_verb(verb, agreement(who), tense, alone)
    pair = _pair(
        setting,
        (
            actor.korean,
            when.korean,
            companion.korean,
            place.korean,
            around.duration,
            receiver.korean,
            tool.korean,
            destination.korean,
            complement.korean,
            often.korean,
            forms.finite(tense, question),
        ),
        (
            *_opening(setting, actor.english, auxiliary),
            often.english,
            main,
            complement.english,
            receiver.english,
            destination.english,
            tool.english,
            place.english,
            companion.english,
            DURATIONS.get(around.duration, ""),
            when.english,
        ),
    )
    things = [x for x in (who, what) if isinstance(x, Thing)]
    return Sentence(
        *pair,
        combination=(tense, negative),
        verb_objects=((stem, what.noun.korean),) if isinstance(what, Thing) else (),
        adjective_nouns=tuple(both for thing in things for both in thing.adjective_nouns),
    )


def description(setting: Setting, who: Who, adjective: Adjective) -> Sentence:
    """How somebody or something is: 그 사과는 빨갛다."""
    of = subject(who, "은/는")
    forms = Forms(adjective.stem, adjective.past)
    forms = forms.negated() if setting.negative else forms
    be = english_be(agreement(who), setting.tense)
    pair = _pair(
        setting,
        (of.korean, setting.time.korean, forms.finite(setting.tense, setting.question)),
        (*_opening(setting, of.english, be), adjective.english, setting.time.english),
    )
    if isinstance(who, Thing):
        return Sentence(*pair, adjective_nouns=((adjective.attributive, who.noun.korean),))
    return Sentence(*pair)


def existence(setting: Setting, spot: Spot, thing: Thing) -> Sentence:
    """What there is somewhere: 방에 고양이 두 마리가 있다."""
    forms = THERE_IS_NO if setting.negative else THERE_IS
    be = english_be(agreement(thing), setting.tense)
    pair = _pair(
        setting,
        (
            setting.time.korean,
            with_particle(spot.korean, "에"),
            thing.korean("이/가"),
            forms.finite(setting.tense, setting.question),
        ),
        (
            *((be, "there") if setting.question else ("there", be)),
            f"no {thing.bare()}" if setting.negative else thing.english(),
            spot.english,
            setting.time.english,
        ),
    )
    return Sentence(*pair, adjective_nouns=thing.adjective_nouns)


def _opening(setting: Setting, who: str, auxiliary: str) -> tuple[str, ...]:
    """he did not; in questions did he not."""
    first = (auxiliary, who) if setting.question else (who, auxiliary)
    return (*first, "not" if setting.negative else "")


def _pair(setting: Setting, korean: tuple[str, ...], english: tuple[str, ...]) -> tuple[str, str]:
    end = "?" if setting.question else "."
    spoken = join(*english)
    return f"{join(*korean)}{end}", f"{spoken[0].upper()}{spoken[1:]}{end}"


def join(*words: str) -> str:
    """The words that are there, with spaces between them."""
    return " ".join(filter(None, words))
