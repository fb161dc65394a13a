"""Generated sentences for the embed command, and pairs of them whose likeness follows a rule.

A sentence tells who does what to which thing, and where:

    the cat eats the apple in the kitchen

Each word comes from a group of words that do the same: cats and dogs eat and follow, teachers and
doctors eat and write. Only groups that go together meet in a sentence, so that
the company of a word tells its group. Two sentences are as alike as their four parts are: 1 for the
same word, a half for two of one group, 0 else, and the sum of the parts (0 to 4) is the score.

No sentence of the test is known from training. The share of words that two of them have in common
(Jaccard's, of all their different words) alone goes with their scores at Pearson 0.859.
"""

from __future__ import annotations

from typing import NamedTuple

from tinyfm.demos.dice import Dice

WHO = {
    "animals": ("cat", "dog", "horse", "rabbit", "fox", "bear"),
    "people": ("teacher", "doctor", "farmer", "sailor", "painter", "judge"),
}
THINGS = {
    "food": ("apple", "carrot", "cake", "fish", "soup", "pear"),
    "writings": ("letter", "poem", "book", "report", "story", "song"),
    "vehicles": ("car", "bus", "truck", "bicycle", "boat", "train"),
}
DEEDS = {
    "eating": ("eats", "tastes", "swallows", "smells"),
    "moving": ("follows", "passes", "watches", "hears"),
    "writing": ("reads", "writes", "copies", "burns"),
    "owning": ("drives", "repairs", "sells", "paints"),
}
# Who does what to which things.
CAN = {
    "animals": (("eating", "food"), ("moving", "vehicles")),
    "people": (("eating", "food"), ("writing", "writings"), ("owning", "vehicles")),
}
PLACES = {
    "inside": ("in the kitchen", "in the hall", "in the office", "in the cellar"),
    "outside": ("in the garden", "at the river", "in the field", "on the beach"),
}
TRAINED, TESTED = 4000, 500  # pairs to learn from, and others to test on
MOST = 4  # the score of a sentence and itself


class Scored(NamedTuple):
    """Two sentences, and how alike they are, on any scale."""

    a: str
    b: str
    score: float


class Part(NamedTuple):
    """A word, or words, and the group that it is of."""

    words: str
    group: str


Sentence = tuple[Part, ...]


def split() -> tuple[list[Scored], list[Scored]]:
    """TRAINED pairs to learn from, and TESTED ones of other sentences."""
    test = pairs(TESTED, seed=1)
    tested = {text for pair in test for text in (pair.a, pair.b)}
    made = pairs(2 * TRAINED, seed=0)  # some two thirds are left
    return [pair for pair in made if tested.isdisjoint((pair.a, pair.b))][:TRAINED], test


def pairs(count: int, seed: int) -> list[Scored]:
    """Pairs of all degrees of likeness: parts of one group become the same word by chance."""
    dice, found = Dice(seed), list[Scored]()
    while len(found) < count:
        a, b = _draw(dice), _draw(dice)
        keep = dice.one((0.0, 0.3, 0.6, 0.9))
        parts = zip(a, b, strict=True)
        b = tuple(x if x.group == y.group and dice.chance(keep) else y for x, y in parts)
        found.append(Scored(_text(a), _text(b), likeness(a, b)))
    return found


def likeness(a: Sentence, b: Sentence) -> float:
    """0 to 4 by the rule above."""
    parts = zip(a, b, strict=True)
    return sum(1.0 if x == y else 0.5 if x.group == y.group else 0.0 for x, y in parts)


def _draw(dice: Dice) -> Sentence:
    """Who, the deed, the thing, the place."""
    who = dice.one(tuple(WHO))
    deed, things = dice.one(CAN[who])
    where = dice.one(tuple(PLACES))
    return (
        Part(dice.one(WHO[who]), who),
        Part(dice.one(DEEDS[deed]), deed),
        Part(dice.one(THINGS[things]), things),
        Part(dice.one(PLACES[where]), where),
    )


def _text(parts: Sentence) -> str:
    who, deed, thing, where = (part.words for part in parts)
    return f"the {who} {deed} the {thing} {where}"
