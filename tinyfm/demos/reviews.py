"""Opinions in English, generated, whose labels follow from what is said and not from single words.

    The soup was not very tasty, but I loved the waiter.                                positive
    Although nobody would say that the room was dirty, it is true that I hated the bed. negative

The rules that give an opinion its label, positive or negative:

1. A clause praises (+) or blames (-), with a strength: 1 for most words, 2 for those like
   `delicious`, `awful`, `loved` and `hated`. `very` and `really` add 1.
2. `not` and `never` turn a clause into its weak opposite: not very tasty and I will not come back
   are -1, not awful and I will not complain +1.
3. So do `I doubt that`, `nobody would say that` and `it is not true that` before a clause, while
   `I am sure that`, `everybody would say that` and `it is true that` leave it as it is.
4. Clauses joined by `and` add up, and never to 0: the stronger one decides. Only the last of them
   has something before it, for `I doubt that A and B` would doubt both.
5. In `A, but B` and `although A, B` what decides is B; in `A, although B` it is A. The two sides
   are of opposite value.

Half of the opinions are positive.
"""

from typing import NamedTuple

from tinyfm.demos.dice import Dice
from tinyfm.demos.records import Example, Records

TRAINED, TESTED = 5000, 500  # opinions to learn from, and others to test on


class Kind(NamedTuple):
    """Things of one kind and what is said of them; the last word of praise and blame is strong."""

    things: tuple[str, ...]
    praise: tuple[str, ...]
    blame: tuple[str, ...]


FOOD = Kind(
    ("soup", "bread", "fish", "cake", "coffee", "salad"),
    ("fresh", "tasty", "good", "delicious"),
    ("stale", "bland", "bad", "awful"),
)
PEOPLE = Kind(
    ("waiter", "cook", "host", "doorman"),
    ("friendly", "helpful", "polite", "wonderful"),
    ("rude", "careless", "lazy", "horrible"),
)
PLACES = Kind(
    ("room", "bed", "bath", "garden"),
    ("clean", "quiet", "comfortable", "splendid"),
    ("dirty", "noisy", "uncomfortable", "terrible"),
)
SHOWS = Kind(
    ("film", "play", "story", "song"),
    ("funny", "clever", "moving", "brilliant"),
    ("dull", "silly", "boring", "dreadful"),
)
ARTISTS = Kind(
    ("singer", "actor", "dancer"),
    ("good", "lively", "graceful", "amazing"),
    ("bad", "clumsy", "tired", "awful"),
)
SCENES = ((FOOD, PEOPLE), (PLACES, PEOPLE), (FOOD, PLACES), (SHOWS, ARTISTS))

# As it was (I liked it), as it was not (I did not like it), and its value.
VERBS = (
    ("liked", "like", 1),
    ("enjoyed", "enjoy", 1),
    ("loved", "love", 2),
    ("disliked", "dislike", -1),
    ("criticised", "criticise", -1),
    ("hated", "hate", -2),
)
PLANS = (("come back", 1), ("tell my friends to go", 1), ("complain", -1), ("stay away", -1))

DEGREES = ("very", "really")
NEGATIONS = ("not", "never")
TURNING = ("I doubt that", "nobody would say that", "it is not true that")
KEEPING = ("I am sure that", "everybody would say that", "it is true that")


class Opinion(NamedTuple):
    """Words and what they are worth: praise above 0, blame below."""

    words: str
    value: int

    def turned(self, words: str) -> "Opinion":
        """The weak opposite, said in these words."""
        return Opinion(words, -1 if self.value > 0 else 1)


def records() -> tuple[Records[Example], dict[str, Records[Example]]]:
    """TRAINED opinions to learn from, and by its name the test: TESTED other ones."""
    made = examples(TRAINED + TESTED)
    test = Records.generated(made[:TESTED], "opinion")
    return Records.generated(made[TESTED:], "opinion"), {"opinions that it has not seen": test}


def examples(count: int, seed: int = 0) -> list[Example]:
    """`count` different opinions, by turns positive and negative; equal seeds give equal ones."""
    dice = Dice(seed)
    labels: dict[str, str] = {}
    while len(labels) < count:
        words, value = draw_review(dice)
        if (value > 0) == (len(labels) % 2 == 0):
            labels[words[0].upper() + words[1:] + "."] = "positive" if value > 0 else "negative"
    return [Example((sentence,), label) for sentence, label in labels.items()]


def draw_review(dice: Dice) -> Opinion:
    """One side, or two that contradict each other."""
    scene = dice.one(SCENES)
    if dice.chance(0.6):
        return draw_side(dice, scene)
    first, last = draw_side(dice, scene), draw_side(dice, scene)
    while first.value * last.value > 0:
        last = draw_side(dice, scene)
    match dice.one(("but", "although first", "although last")):
        case "but":
            return Opinion(f"{first.words}, but {last.words}", last.value)
        case "although first":
            return Opinion(f"although {first.words}, {last.words}", last.value)
        case _:
            return Opinion(f"{first.words}, although {last.words}", first.value)


def draw_side(dice: Dice, scene: tuple[Kind, ...]) -> Opinion:
    """A clause, or two joined by `and`."""
    if dice.chance(0.85):
        return draw_clause(dice, scene)
    first, second = draw_bare(dice, scene), draw_clause(dice, scene)
    while first.value + second.value == 0:
        second = draw_clause(dice, scene)
    return Opinion(f"{first.words} and {second.words}", first.value + second.value)


def draw_clause(dice: Dice, scene: tuple[Kind, ...]) -> Opinion:
    """A bare one, perhaps with a frame."""
    clause = draw_bare(dice, scene)
    if dice.chance(0.85):
        return clause
    if dice.chance(0.5):
        return clause._replace(words=f"{dice.one(KEEPING)} {clause.words}")
    return clause.turned(f"{dice.one(TURNING)} {clause.words}")


def draw_bare(dice: Dice, scene: tuple[Kind, ...]) -> Opinion:
    """What something was like, whether I liked it, or what I will do."""
    draw = dice.one((draw_description, draw_description, draw_feeling, draw_plan))
    return draw(dice, dice.one(scene))


def draw_description(dice: Dice, kind: Kind) -> Opinion:
    """The soup was (not) (very) tasty."""
    sign, adjectives = dice.one(((1, kind.praise), (-1, kind.blame)))
    adjective = dice.one(adjectives)
    strength = 2 if adjective == adjectives[-1] else 1
    if dice.chance(0.25):
        adjective, strength = f"{dice.one(DEGREES)} {adjective}", strength + 1
    thing = dice.one(kind.things)
    said = Opinion(f"the {thing} was {adjective}", sign * strength)
    if dice.chance(0.7):
        return said
    return said.turned(f"the {thing} was {dice.one(NEGATIONS)} {adjective}")


def draw_feeling(dice: Dice, kind: Kind) -> Opinion:
    """I liked the soup; I did not like it."""
    past, plain, value = dice.one(VERBS)
    thing = dice.one(kind.things)
    said = Opinion(f"I {past} the {thing}", value)
    return said if dice.chance(0.7) else said.turned(f"I did not {plain} the {thing}")


def draw_plan(dice: Dice, kind: Kind) -> Opinion:
    """I will (not) come back."""
    plan, value = dice.one(PLANS)
    said = Opinion(f"I will {plan}", value)
    return said if dice.chance(0.7) else said.turned(f"I will {dice.one(NEGATIONS)} {plan}")
