"""Conversations whose answers follow from the questions, generated; in English.

kind        the user says                                                   the assistant answers
repeat      Repeat the word house.                                          house
backwards   Write house backwards.                                          esuoh
capitals    Write house in capital letters.                                 HOUSE
letters     How many letters has house?                                     5
sum         How much is 37 plus 5?                                          42
choice      Which is a colour: cat, red, soup?                              red
told        The capital of Brea is Lork. Lork is the capital of what?       Brea
more        one of the first four, and then about the same word:
            And backwards? And in capital letters? And how many letters?

or the same in other words. The rules:

1. A word is made up of consonants and vowels by turns: it begins with consonants, has one or two
   groups of vowels, ends with consonants, or after the second group perhaps with its vowels, and
   has 3 to 5 letters. Names of countries and towns are such words too.
2. The first number of a sum is from 0 to 99, the second from 1 to 5.
3. Of the things to choose from each is of another sort (SORTS).
4. A fifth of all words, sums and choices is held out, told by their CRC-32 (`is_held_out`): what a
   test asks has not been seen in training, though its letters, numbers and things have.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

from tinyfm.demos.dice import Dice
from tinyfm.demos.records import Chat, Records

TRAINED, TESTED = 27000, 210  # conversations to learn from, and others to test on

Turn = tuple[str, str]  # what the user says, and the answer
Draw = Callable[[Dice, bool], list[Turn]]  # the turns of a conversation, held out or not

ONSETS = (
    *"bcdfghjklmnprstvwz", "bl", "br", "ch", "cl", "cr", "dr", "fl", "gr", "pl", "sh", "sl", "sp",
    "st", "th", "tr",
)  # fmt: skip
VOWELS = (*"aeiou", "ai", "ea", "ee", "oa", "oo", "ou")
CODAS = (*"bdgklmnprstx", "ck", "ld", "lk", "mp", "nd", "ng", "nt", "rd", "rk", "sh", "st", "th")
SHORTEST, LONGEST = 3, 5
FIRST, SECOND = range(100), range(1, 6)
SORTS = {
    "an animal": ("cat", "dog", "horse", "goat", "bear"),
    "a colour": ("red", "blue", "green", "white", "pink"),
    "a food": ("bread", "soup", "rice", "egg", "salt"),
}


def records() -> tuple[Records[Chat], dict[str, Records[Chat]]]:
    """TRAINED conversations to learn from, and by its name the test: TESTED other ones."""
    train, test = examples(TRAINED), examples(TESTED, held_out=True)
    return (
        Records.generated(train, "conversation"),
        {"instructions that it has not seen": Records.generated(test, "conversation")},
    )


def examples(count: int, seed: int = 0, held_out: bool = False) -> list[Chat]:
    """`count` conversations, the kinds in TURNS; equal seeds give equal ones."""
    dice = Dice(seed)
    return [new_chat(dice, TURNS[i % len(TURNS)], held_out) for i in range(count)]


def new_chat(dice: Dice, kind: str, held_out: bool) -> Chat:
    """A conversation of one of the KINDS, out of what is held out or out of the rest."""
    turns = KINDS[kind](dice, held_out)
    messages = (
        {"role": role, "content": content}
        for turn in turns
        for role, content in zip(("user", "assistant"), turn, strict=True)
    )
    return Chat(tuple(messages), kind)


def is_held_out(text: str) -> bool:
    """Whether a word, a sum or a choice is for tests only."""
    return zlib.crc32(text.encode()) % 5 == 0


def drawn(draw: Callable[[], str], held_out: bool) -> str:
    """The first of draws that belongs to the one part or the other."""
    while is_held_out(text := draw()) != held_out:
        pass
    return text


# -- words -----------------------------------------------------------------------------------------

# What may be asked about a word: how, how in a second question, and the answer.
QUESTIONS: dict[str, tuple[Sequence[str], Sequence[str], Callable[[str], str]]] = {
    "repeat": (("Repeat the word {}.", "Say {}."), ("Say it again.",), str),
    "backwards": (
        ("Write {} backwards.", "Reverse the word {}."),
        ("And backwards?", "And reversed?"),
        lambda word: word[::-1],
    ),
    "capitals": (
        ("Write {} in capital letters.", "Put {} in capitals."),
        ("And in capital letters?", "And in capitals?"),
        str.upper,
    ),
    "letters": (
        ("How many letters has {}?", "Count the letters of {}."),
        ("And how many letters?", "How long is it?"),
        lambda word: str(len(word)),
    ),
}


def new_word(dice: Dice, held_out: bool) -> str:
    """A made-up word (rule 1)."""

    def draw() -> str:
        word = ""
        while not SHORTEST <= len(word) <= LONGEST:
            word = dice.one(ONSETS) + dice.one(VOWELS)
            long = dice.chance(0.5)
            if long:
                word += dice.one(ONSETS) + dice.one(VOWELS)
            if not long or dice.chance(0.7):
                word += dice.one(CODAS)
        return word

    return drawn(draw, held_out)


def ask_word(kind: str) -> Draw:
    """One question about a word."""

    def draw(dice: Dice, held_out: bool) -> list[Turn]:
        ways, _, answer = QUESTIONS[kind]
        word = new_word(dice, held_out)
        return [(dice.one(ways).format(word), answer(word))]

    return draw


def ask_more(dice: Dice, held_out: bool) -> list[Turn]:
    """Two different questions about a word, of which the second does not name it."""
    word = new_word(dice, held_out)
    first, second = dice.shuffled(QUESTIONS)[:2]
    (ways, _, answer), (_, more, other) = QUESTIONS[first], QUESTIONS[second]
    return [(dice.one(ways).format(word), answer(word)), (dice.one(more), other(word))]


# -- numbers, things, facts ------------------------------------------------------------------------


def ask_sum(dice: Dice, held_out: bool) -> list[Turn]:
    text = drawn(lambda: f"{dice.one(FIRST)} plus {dice.one(SECOND)}", held_out)
    first, second = text.split(" plus ")
    way = dice.one(("How much is {}?", "What is {}?"))
    return [(way.format(text), str(int(first) + int(second)))]


def ask_choice(dice: Dice, held_out: bool) -> list[Turn]:
    def draw() -> str:
        things = dice.shuffled(dice.one(sort) for sort in SORTS.values())
        return f"{dice.one(list(SORTS))}: {', '.join(things)}"

    text = drawn(draw, held_out)
    sort, _, things = text.partition(": ")
    (chosen,) = (thing for thing in things.split(", ") if thing in SORTS[sort])
    way = dice.one(("Which is {}?", "Find {}."))
    return [(way.format(text), chosen)]


def ask_told(dice: Dice, held_out: bool) -> list[Turn]:
    """A country or its capital, which the question tells."""
    country = town = new_word(dice, held_out).capitalize()
    while town == country:
        town = new_word(dice, held_out).capitalize()
    fact = f"The capital of {country} is {town}."
    if dice.chance(0.5):
        return [(f"{fact} What is the capital of {country}?", town)]
    return [(f"{fact} {town} is the capital of what?", country)]


KINDS: dict[str, Draw] = {
    **{kind: ask_word(kind) for kind in QUESTIONS},
    "sum": ask_sum,
    "choice": ask_choice,
    "told": ask_told,
    "more": ask_more,
}
# What takes longer to learn comes more often.
TURNS = (*KINDS, "sum", "choice", "told", "more")
