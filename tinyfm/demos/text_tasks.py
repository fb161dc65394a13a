"""Records for the tasks of templates.py, made by rules.

translation     English and Korean sentences of at most MOST_WORDS English words (korean_english)
acceptability   half of the English ones are left as they are, half broken by one of two rules: an
                article behind the word that it belongs before; is for are and so on, which does not
                go with the subject
similarity      two sentences whose four parts are the same word, of one group, or neither
                (similar.py); the sum, 0 to 4, is stretched to 0 to 5
summary         a passage of one sentence in which something happens among ASIDES, in any order; its
                summary is that sentence
question        a passage of two people, towns or buildings or one, in three sentences, and a
                question that it answers (facts.py)
place           where something happens in a passage as for a summary

Nothing of a test is in what is learnt: no sentence, in `question` not even a name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

from tinyfm.demos import facts, korean_english, similar
from tinyfm.demos.dice import Dice
from tinyfm.demos.facts import capitalised
from tinyfm.demos.records import Question, Records, TextPair
from tinyfm.demos.templates import HELD_OUT, LABELS, MOST, TASKS, Record, learnt

# Records to learn from: more, where there is more to learn or where they are short.
TRAINED = {
    "translation": 2500,
    "acceptability": 4000,
    "similarity": 2500,
    "summary": 500,
    "question": 2000,
}
TESTED = 100  # others of each task to test on
FACTS = 11000  # passages to read, of which some are asked about
EVERY = 50  # one line in so many is held out of pretraining
MOST_WORDS = 6
ASIDES = (
    "It was a warm day.", "It rained all day.", "The wind was cold.", "Nobody was there.",
    "The sun was low.", "It was late.", "Snow lay on the hills.", "All was quiet.",
    "The moon was bright.", "It was a long week.", "The roads were empty.", "Dark clouds came.",
)  # fmt: skip
PLACE_WORDS = 3  # at the end of each sentence of similar.py


@cache
def records() -> tuple[Records[TextPair], dict[str, Records[TextPair]]]:
    """The mixture to learn from; and by their names the tests: of the
    tasks that are learnt, and of the one that is not."""
    made = {name: make() for name, make in MAKERS.items()}
    train = pairs({name: made[name][0][:count] for name, count in TRAINED.items()})
    test = pairs({name: made[name][1][:TESTED] for name in learnt()})
    zero_shot = pairs({name: made[name][1][:TESTED] for name in HELD_OUT})
    return train, {"tasks that it has learnt": test, "zero-shot, a task that it has not": zero_shot}


@cache
def texts() -> tuple[Records[str], dict[str, Records[str]]]:
    """What there is to read without a task: lines to pretrain on, and others, held out."""
    pages = [sentence for pair in korean_english.split().train for sentence in pair]
    pages += [f"{capitalised(text)}." for pair in similar.split()[0] for text in (pair.a, pair.b)]
    pages += [question.context for question in facts.examples(FACTS)]
    held_out = pages[::EVERY]
    del pages[::EVERY]
    return (
        Records.generated(pages, "line"),
        {"held-out lines": Records.generated(held_out, "line")},
    )


def pairs(by_task: dict[str, Sequence[Record]]) -> Records[TextPair]:
    """The records of each task as text, in wordings that are drawn: none tells of the answer."""
    dice, found = Dice(seed=0), list[TextPair]()
    for name, some in by_task.items():
        templates = TASKS[name].templates()
        for record in some:
            source, target = dice.one(templates)(record)
            found.append(TextPair(source, target, name, TASKS[name].guess(record)))
    return Records.generated(found, "text")


# -- the records of each task: (to learn from, to test on) -----------------------------------------

Parts = tuple[list[Record], list[Record]]


def translations() -> Parts:
    split = korean_english.split()
    return _short(split.train), _short(split.random)


def _short(both: Sequence[tuple[str, str]]) -> list[Record]:
    return [
        {"english": english, "korean": korean}
        for korean, english in both
        if len(english.split()) <= MOST_WORDS
    ]


def acceptability() -> Parts:
    """Of other sentences than those that are learnt as translations."""
    train, test = (
        [record["english"] for record in some if breaks(record["english"])]
        for some in translations()
    )
    return judged(train[TRAINED["translation"] :], seed=0), judged(test, seed=1)


def judged(sentences: Sequence[str], seed: int) -> list[Record]:
    """Every second one broken by one of the ways that there are."""
    dice = Dice(seed)
    made: list[Record] = []
    for i, sentence in enumerate(sentences):
        broken = dice.one(breaks(sentence)) if i % 2 == 0 else sentence
        made.append({"sentence": broken, "label": LABELS[i % 2]})
    return made


WRONG_FORMS = {
    "is": "are", "are": "is", "am": "is", "was": "were", "were": "was", "does": "do", "do": "does",
    "has": "have", "have": "has",
}  # fmt: skip
ARTICLES = ("a", "an", "the")


def breaks(sentence: str) -> list[str]:
    """The sentence with one mistake, for each that can be made.

    >>> breaks("She is eating an apple.")
    ['She are eating an apple.', 'She is eating apple an.']
    """
    words = re.findall(r"[^\s.?]+", sentence)
    end = sentence[-1]

    def rebuilt(changed: Sequence[str]) -> str:
        return capitalised(" ".join(changed)) + end

    found = []
    for i, word in enumerate(words):
        if wrong := WRONG_FORMS.get(word.lower()):
            found.append(rebuilt([*words[:i], wrong, *words[i + 1 :]]))
    for i, word in enumerate(words[:-1]):
        if word.lower() in ARTICLES:
            moved = [words[i + 1], word.lower()]
            found.append(rebuilt([*words[:i], *moved, *words[i + 2 :]]))
    return found


def similarity() -> Parts:
    train, test = similar.split()
    return rated(train), rated(test)


def rated(some: Sequence[similar.Scored]) -> list[Record]:
    """Pairs with their score on the tasks' scale."""
    return [
        {"sentence1": a, "sentence2": b, "score": score * MOST / similar.MOST}
        for a, b, score in some
    ]


def summaries() -> Parts:
    """Passages about the sentences of similar.py."""
    train, test = ([pair.a for pair in part] for part in similar.split())
    return passages(train, seed=0), passages(test, seed=1)


def passages(events: Sequence[str], seed: int) -> list[Record]:
    dice = Dice(seed)
    made: list[Record] = []
    for event in events:
        sentence = capitalised(event) + "."
        told = dice.shuffled([sentence, *dice.shuffled(ASIDES)[:2]])
        place = " ".join(event.split()[-PLACE_WORDS:])
        made.append({"passage": " ".join(told), "summary": sentence, "place": place})
    return made


def questions() -> Parts:
    return (
        answerable(facts.examples(FACTS)),
        answerable(facts.examples(10 * TESTED, held_out=True)),
    )


def answerable(asked: Sequence[Question]) -> list[Record]:
    """Those that have an answer, about three facts."""
    return [
        {"question": one.question, "context": one.context, "answer": one.answers[0].text}
        for one in asked
        if one.answers and len(re.findall(r"\.( |$)", one.context)) == 3
    ]


MAKERS: dict[str, Callable[[], Parts]] = {
    "translation": translations,
    "acceptability": acceptability,
    "similarity": similarity,
    "summary": summaries,
    "question": questions,
    "place": summaries,
}
