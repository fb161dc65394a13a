"""What can be said: random sentences that make sense, out of the words and the grammar.

Every choice is left to the `Dice`. What fits what is read from the columns of the words; the rules
of sense that no column holds are stated where they apply.
"""

from collections.abc import Sequence

from tinyfm.demos.dice import Dice
from tinyfm.demos.korean_english.grammar import (
    Circumstances,
    Sentence,
    Setting,
    Thing,
    Who,
    action,
    description,
    existence,
    name,
    several,
)
from tinyfm.demos.korean_english.words import (
    ADJECTIVES,
    COMPANIONS,
    DETERMINERS,
    DURATIONS,
    KNOWN,
    NEW,
    NOUNS,
    NUMERALS,
    RECEIVERS,
    SPOTS,
    TIMES,
    VERBS,
    Adjective,
    Noun,
    Somebody,
    Tense,
    Time,
    Verb,
)

TIMES_OF = {tense: [time for time in TIMES if time.tense is tense] for tense in Tense}
PERSONS = [somebody for somebody in KNOWN if somebody.objective]  # who can be met

# An action's verb and object; a verb without objects has a chance for each of its places.
ACTIONS: list[tuple[Verb, Noun | None]] = [
    *((verb, NOUNS[noun]) for verb in VERBS for noun in verb.objects.split()),
    *((verb, None) for verb in VERBS if not verb.objects for _ in verb.places.split()),
]
DESCRIPTIONS: list[tuple[Adjective, Noun | Somebody]] = [
    *(
        (adjective, NOUNS[noun])
        for adjective in ADJECTIVES
        if adjective.stem and not adjective.people
        for noun in adjective.nouns.split()
    ),
    *(
        (adjective, somebody)
        for adjective in ADJECTIVES
        if adjective.people
        for somebody in KNOWN
        if somebody.kind != "animal"
    ),
]
FITTING = {
    noun: [adjective for adjective in ADJECTIVES if noun in adjective.nouns.split()]
    for noun in NOUNS
}


def draw_action(dice: Dice) -> Sentence:
    verb, noun = dice.one(ACTIONS)
    tense = dice.one((Tense.PAST, Tense.HABIT) if verb.state else tuple(Tense))
    # Somebody new comes in with an event, not with a habit, a question or what did not happen.
    event = tense in (Tense.PAST, Tense.NOW) and not verb.state
    who: Who
    if event and dice.chance(0.2):
        who = draw_new(dice, verb, noun)
        negative = question = False
    else:
        who = draw_known(dice, verb, noun)
        negative = dice.chance(0.3)
        question = dice.chance(0.25) and not who.speaker
    times = [time for time in TIMES_OF[tense] if fits(time, verb, noun, negative)]
    time = dice.one(times)
    # What comes to an end has a number and lasts, and so has what is done at set times.
    at_set_times = bool(time.korean) and not time.frequency
    ends = tense in (Tense.PAST, Tense.FUTURE) or (tense is Tense.HABIT and at_set_times)
    measurable = ends and not negative and not verb.state

    what: Who | None = None
    if verb.persons and dice.chance(0.3):
        what = dice.one(others(who))
    elif noun:
        what = draw_object(dice, noun, tense, who, verb, measurable)
    counted = isinstance(what, Thing) and what.count > 0
    around = draw_circumstances(dice, verb, who, measurable and not counted)
    return action(Setting(tense, time, negative, question), who, verb, what, around)


def others(who: Who) -> list[Somebody]:
    """Whom one can meet: not oneself, and no "we meet me"."""
    if isinstance(who, Thing):
        return PERSONS
    return [x for x in PERSONS if x is not who and not (who.speaker and x.speaker)]


def fits(time: Time, verb: Verb, noun: Noun | None, negative: bool) -> bool:
    """Whether the action can be said to happen at that time."""
    if (negative and time.affirmative) or (time.daily and not verb.daily):
        return False
    if verb.state:
        return not time.korean
    # "I read the newspaper" is what I did; to be a habit it needs a time.
    the_one = noun is not None and noun.article == "the"
    return bool(time.korean) or not (the_one and time.tense is Tense.HABIT)


def draw_known(dice: Dice, verb: Verb, object: Noun | None) -> Somebody:
    """Who does it, and to nobody of the same name: no student meets a student."""
    able = [somebody for somebody in KNOWN if somebody.kind in verb.who.split()]
    return dice.one([x for x in able if not object or x.korean != object.korean])


def draw_new(dice: Dice, verb: Verb, object: Noun | None) -> Thing:
    """A child, a tired doctor, two women."""
    able = [NOUNS[noun] for kind in verb.who.split() for noun in NEW[kind]]
    noun = dice.one([noun for noun in able if noun is not object])
    return Thing(noun, draw_adjective(dice, noun, 0.2), draw_count(dice, 0.3))


def draw_object(
    dice: Dice, noun: Noun, tense: Tense, who: Who, verb: Verb, measurable: bool
) -> Thing:
    """An apple, three red apples, this apple."""
    adjective = draw_adjective(dice, noun, 0.3)
    if noun.counter and verb.number == "any" and measurable and (count := draw_count(dice, 0.3)):
        return Thing(noun, adjective, count)
    # A habit is not about this one thing, and one hat is not worn by several people.
    one = (tense is not Tense.HABIT or verb.state) and not (verb.number == "each" and several(who))
    if noun.counter and one and dice.chance(0.2):
        return Thing(noun, adjective, determiner=dice.one([*DETERMINERS]))
    return Thing(noun, adjective)


def draw_adjective(dice: Dice, noun: Noun, chance: float) -> Adjective | None:
    fitting = FITTING[noun.korean]
    return dice.one(fitting) if fitting and dice.chance(chance) else None


def draw_count(dice: Dice, chance: float) -> int:
    return 1 + dice.one(range(len(NUMERALS))) if dice.chance(chance) else 0


def draw_circumstances(dice: Dice, verb: Verb, who: Who, lasting: bool) -> Circumstances:
    """To whom, with what, where, with whom and how long, as far as it is said."""

    def somebody(nouns: Sequence[str]) -> Who:
        options: list[Who] = [*others(who)]
        options += [Thing(NOUNS[noun]) for noun in nouns if noun != name(who)]
        return dice.one(options)

    def some(words: Sequence[str], chance: float) -> str:
        return dice.one(words) if words and dice.chance(chance) else ""

    return Circumstances(
        receiver=somebody(RECEIVERS) if verb.receiver else None,
        tool=some(verb.tools.split(), 0.3),
        place=some(verb.places.split(), 1 if verb.goes else 0.35),
        companion=somebody(COMPANIONS) if verb.together and dice.chance(0.2) else None,
        duration=some([*DURATIONS], 0.2) if verb.lasting and lasting else "",
    )


def draw_description(dice: Dice) -> Sentence:
    adjective, of = dice.one(DESCRIPTIONS)
    setting = draw_setting(dice, adjective.passing)
    if isinstance(of, Somebody):
        question = setting.question and not of.speaker
        return description(setting._replace(question=question), of, adjective)
    determiner = "" if of.article == "the" else dice.one([*DETERMINERS])
    return description(setting, Thing(of, determiner=determiner), adjective)


def draw_existence(dice: Dice) -> Sentence:
    spot = dice.one(SPOTS)
    noun = NOUNS[dice.one(spot.things.split())]
    setting = draw_setting(dice, timed=True)
    count = 0 if setting.negative else draw_count(dice, 0.5)
    return existence(setting, spot, Thing(noun, draw_adjective(dice, noun, 0.3), count))


def draw_setting(dice: Dice, timed: bool) -> Setting:
    """Of a sentence about what is or was."""
    tense = dice.one((Tense.PAST, Tense.NOW))
    time = dice.one([time for time in TIMES_OF[tense] if timed or not time.korean])
    return Setting(tense, time, dice.chance(0.3), dice.chance(0.25))


DRAWS = (*[draw_action] * 12, draw_description, draw_existence)


def draw(dice: Dice) -> Sentence:
    """One sentence of the grammar."""
    return dice.one(DRAWS)(dice)
