"""Questions about short passages of facts, generated, with the places of their answers.

    Belarimar was born in Corodavik in 1874. Selinodan had 3 children. Belarimar studied law.
    Where was Belarimar born?                   Corodavik
    How many children did Belarimar have?       (no answer: the passage tells it of another)

The rules: a passage tells three to six facts, each in a sentence of its own, of one or two people,
towns or buildings (KINDS). Nobody does anything before being born, and so it is with towns and
buildings. The question asks for a part of one of the facts. A fifth of the questions has no answer,
as in SQuAD 2.0 (Rajpurkar et al. 2018): the passage does not tell this of the one that is asked
about, though perhaps of the other; or it does not mention who is asked about.

No name in the test is known from training (names.py).
"""

from collections.abc import Sequence
from typing import NamedTuple

from tinyfm.demos.dice import Dice
from tinyfm.demos.names import NewNames
from tinyfm.demos.records import Answer, Question, Records

TRAINED, TESTED = 4000, 500  # questions to learn from, and others to test on
IMPOSSIBLE = 0.2


class Fact(NamedTuple):
    """One thing to tell: ways to say it, and questions with the part that each asks for.

    first: nothing that has a year came before it, for it is a birth, a founding or a building.
    """

    sayings: tuple[str, ...]
    questions: tuple[tuple[str, str], ...]
    first: bool = False


class Kind(NamedTuple):
    """What all of one kind are called, and what there is to tell of them."""

    called: str
    facts: tuple[Fact, ...]


PERSON = Kind(
    "{name}",
    (
        Fact(
            ("{who} was born in {town} in {year}.", "In {year}, {who} was born in {town}."),
            (("Where was {who} born?", "town"), ("When was {who} born?", "year")),
            first=True,
        ),
        Fact(
            ("{who} moved to {town} in {year}.", "In {year}, {who} moved to {town}."),
            (("Where did {who} move?", "town"), ("When did {who} move?", "year")),
        ),
        Fact(
            ("{who} married {person} in {year}.", "In {year}, {who} married {person}."),
            (("Whom did {who} marry?", "person"), ("When did {who} marry?", "year")),
        ),
        Fact(
            ("{who} studied {subject}.", "{who} went to school to learn {subject}."),
            (("What did {who} study?", "subject"),),
        ),
        Fact(
            ("{who} worked as a {job}.", "{who} earned money as a {job}."),
            (("What was the job of {who}?", "job"),),
        ),
        Fact(("{who} had {few} children.",), (("How many children did {who} have?", "few"),)),
    ),
)
TOWN = Kind(
    "{name}",
    (
        Fact(
            ("{who} was founded by {person} in {year}.", "In {year}, {person} founded {who}."),
            (("Who founded {who}?", "person"), ("When was {who} founded?", "year")),
            first=True,
        ),
        Fact(
            ("{who} lies on the river {river}.", "The river {river} flows through {who}."),
            (("On which river does {who} lie?", "river"),),
        ),
        Fact(
            ("{who} has {many} inhabitants.", "{many} people live in {who}."),
            (("How many people live in {who}?", "many"),),
        ),
        Fact(
            ("{who} is known for its {product}.", "Many visitors come to {who} for its {product}."),
            (("What is {who} known for?", "product"),),
        ),
        Fact(
            ("The mayor of {who} is {person}.", "{person} is the mayor of {who}."),
            (("Who is the mayor of {who}?", "person"),),
        ),
        Fact(
            ("A fire destroyed {who} in {year}.", "{who} burned down in {year}."),
            (("When did {who} burn down?", "year"),),
        ),
    ),
)
BUILDING = Kind(
    "the {name} Tower",
    (
        Fact(
            ("{who} was built by {person} in {year}.", "In {year}, {person} built {who}."),
            (("Who built {who}?", "person"), ("When was {who} built?", "year")),
            first=True,
        ),
        Fact(("{who} is {metres} metres high.",), (("How high is {who}?", "metres"),)),
        Fact(
            ("{who} cost {many} crowns.", "{many} crowns were paid for {who}."),
            (("How much did {who} cost?", "many"),),
        ),
        Fact(
            ("{who} stands in {town}.", "Visitors find {who} in {town}."),
            (("Where does {who} stand?", "town"),),
        ),
        Fact(
            ("{who} is made of {material}.", "The walls of {who} are of {material}."),
            (("What is {who} made of?", "material"),),
        ),
        Fact(
            ("{who} was closed in {year}.", "Since {year}, {who} has been closed."),
            (("When was {who} closed?", "year"),),
        ),
    ),
)
KINDS = (PERSON, TOWN, BUILDING)

FIRST, LATER = range(1700, 1940), range(18, 60)  # the year of a first fact, and how long after it
NAMED = ("town", "person", "river")
VALUES: dict[str, Sequence[object]] = {
    "few": range(2, 10),
    "metres": range(20, 200),
    "many": [f"{thousands},{hundreds}00" for thousands in range(1, 90) for hundreds in range(10)],
    "subject": ("law", "music", "medicine", "history", "physics", "botany", "Latin"),
    "job": ("painter", "baker", "teacher", "sailor", "printer", "nurse", "judge", "farmer"),
    "product": ("glass", "cheese", "wine", "carpets", "clocks", "apples", "roses"),
    "material": ("brick", "granite", "marble", "oak", "steel", "sandstone"),
}


def records() -> tuple[Records[Question], dict[str, Records[Question]]]:
    """TRAINED questions to learn from, and by its name the test: TESTED with other names."""
    train = Records.generated(examples(TRAINED), "question")
    test = Records.generated(examples(TESTED, held_out=True), "question")
    return train, {"passages with names that it has not seen": test}


def examples(count: int, seed: int = 0, held_out: bool = False) -> list[Question]:
    """`count` questions, each about its own passage, with the names for the test or the others."""
    dice = Dice(seed)
    return [draw_question(dice, NewNames(dice, held_out)) for _ in range(count)]


class Told(NamedTuple):
    """A fact of somebody or something, in one saying, filled in."""

    who: str
    fact: Fact
    saying: str
    values: dict[str, str]

    @property
    def sentence(self) -> str:
        return capitalised(self.saying.format(**self.values))

    def answer(self, part: str) -> Answer:
        """The part and where it stands in the sentence."""
        before = self.saying.partition(f"{{{part}}}")[0]
        return Answer(self.values[part], len(before.format(**self.values)))


def draw_question(dice: Dice, new_names: NewNames) -> Question:
    """A passage and a question about it, which it may leave open."""
    kind = dice.one(KINDS)
    called = [kind.called.format(name=new_names.draw()) for _ in range(dice.one((1, 1, 2)))]
    known = dice.shuffled((who, fact) for who in called for fact in kind.facts)
    number = dice.one((3, 4, 5, 6))
    begun = {who: dice.one(FIRST) for who in called}
    told = [tell(dice, who, fact, begun[who], new_names) for who, fact in known[:number]]
    context = " ".join(one.sentence for one in told)
    if dice.chance(IMPOSSIBLE):
        untold = known[number:]
        if dice.chance(0.5) or not untold:
            untold = [(kind.called.format(name=new_names.draw()), dice.one(told).fact)]
        who, fact = dice.one(untold)
        question, _ = dice.one(fact.questions)
        return Question(question.format(who=who), context, ())
    index = dice.one(range(len(told)))
    question, part = dice.one(told[index].fact.questions)
    words, place = told[index].answer(part)
    place += sum(len(one.sentence) + 1 for one in told[:index])
    return Question(question.format(who=told[index].who), context, (Answer(words, place),))


def tell(dice: Dice, who: str, fact: Fact, begun: int, new_names: NewNames) -> Told:
    """The fact in one of its sayings, with all that it is about drawn; begun: the year of birth."""
    saying = dice.one(fact.sayings)
    values = {name: str(dice.one(options)) for name, options in VALUES.items()}
    values["year"] = str(begun if fact.first else begun + dice.one(LATER))
    values |= {name: new_names.draw() for name in NAMED}
    return Told(who, fact, saying, {"who": who, **values})


def capitalised(sentence: str) -> str:
    """The same with a capital in front."""
    return sentence[0].upper() + sentence[1:]
