"""Sentences of people, places and organisations, generated, with their names tagged.

    Belarimar Corodavik worked for Selinodan .      B-PER I-PER O O B-ORG O
    In May , rain flooded Selinodan .               O O O O O B-LOC O

The rules: a name may be that of a person (PER), a place (LOC) or an organisation (ORG), and what
stands around it decides: who was born or was hired is a person, where one lives is a place, who
hires or has an office is an organisation (FRAMES has all of it). Names are made of one to three
words. One word alone tells nothing; in `Lake Selinodan` or `Selinodan Steel` the other word does.
Days, months, titles and the first word of a sentence have capitals and are no names.

No name in the test is known from training (names.py); words such as Lake and Steel are. Every
sentence of the test has a name.
"""

from collections.abc import Iterator

from tinyfm.demos.dice import Dice
from tinyfm.demos.names import names
from tinyfm.demos.records import Records, TaggedWords

TRAINED, TESTED = 4000, 500  # sentences to learn from, and others to test on

# In capitals what is drawn: names, and words out of WORDS.
FRAMES = (
    "PER was born in LOC",
    "PER moved from LOC to LOC",
    "PER lived near LOC",
    "PER worked for ORG",
    "PER founded ORG in LOC",
    "PER sold ORG",
    "PER and PER met in LOC",
    "PER told reporters that ORG would close",
    "PER , who was born in LOC , worked for ORG",
    "TITLE PER opened a school in LOC",
    "TITLE PER left ORG",
    "her brother PER got lost near LOC",
    "the chairman of ORG , PER , resigned",
    "people in LOC voted for PER",
    "the streets of LOC were empty",
    "rain flooded LOC",
    "the road from LOC to LOC was closed",
    "TITLE PER and his sister PER stayed in LOC",
    "ORG hired PER",
    "ORG closed its office in LOC",
    "ORG , based in LOC , hired NUMBER people",
    "shares of ORG fell",
    "customers of ORG wrote to PER",
    "NUMBER workers of ORG went on strike in LOC",
)
NAMELESS = (
    "the shops were closed",
    "prices rose by NUMBER percent",
    "the TITLE met NUMBER doctors",
)
BEFORE = ("yesterday ,", "on DAY ,", "in MONTH ,")
AFTER = ("on DAY", "in MONTH", "last year")
WORDS = {
    "DAY": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "MONTH": ("January", "March", "April", "May", "June", "August", "October", "December"),
    "TITLE": ("Professor", "President", "Judge", "Captain"),
    "NUMBER": ("12", "40", "75", "200"),
}
# One name in half of the cases, else one of the longer forms.
FORMS = {
    "PER": ("NAME NAME", "NAME NAME", "NAME NAME NAME"),
    "LOC": ("Lake NAME", "North NAME", "NAME City", "New NAME City"),
    "ORG": ("NAME Steel", "NAME Bank", "NAME & NAME", "Friends of NAME"),
}


def records() -> tuple[Records[TaggedWords], dict[str, Records[TaggedWords]]]:
    """TRAINED sentences to learn from, and by its name the test: TESTED with other names."""
    train = Records.generated(examples(TRAINED), "sentence")
    test = Records.generated(examples(TESTED, held_out=True), "sentence")
    return train, {"names that it has not seen": test}


def examples(count: int, seed: int = 0, held_out: bool = False) -> list[TaggedWords]:
    """`count` different sentences, with the names for the test or the others."""
    dice, pool = Dice(seed), names(held_out)
    frames = FRAMES if held_out else FRAMES + NAMELESS
    sentences: dict[TaggedWords, None] = {}
    while len(sentences) < count:
        sentences[draw_sentence(dice, dice.one(frames), pool)] = None
    return list(sentences)


def draw_sentence(dice: Dice, frame: str, pool: tuple[str, ...]) -> TaggedWords:
    """The frame, perhaps with a time before or after it, filled in."""
    if dice.chance(0.3):
        frame = f"{dice.one(BEFORE)} {frame}"
    elif dice.chance(0.5):
        frame = f"{frame} {dice.one(AFTER)}"
    tagged = [pair for part in frame.split() for pair in draw_part(dice, part, pool)]
    words, tags = zip(*tagged, (".", "O"), strict=True)
    return TaggedWords((words[0][0].upper() + words[0][1:], *words[1:]), tags)


def draw_part(dice: Dice, part: str, pool: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """A word of a frame with its tag, or what is drawn for it."""
    if part not in FORMS:
        yield dice.one(WORDS.get(part, (part,))), "O"
        return
    form = "NAME" if dice.chance(0.5) else dice.one(FORMS[part])
    for index, word in enumerate(form.split()):
        name = dice.one(pool) if word == "NAME" else word
        yield name, f"{'I' if index else 'B'}-{part}"
