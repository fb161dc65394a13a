"""A Korean-English corpus, drawn from a grammar written for it, and its split for training.

Three kinds of sentences: what somebody does (민수는 어제 도서관에서 책 두 권을 읽었다. = Minsu read
two books at the library yesterday.), how something is (그 사과는 빨갛다. = The apple is red.) and
what there is (방에 고양이가 있다. = There is a cat in the room.). Korean is in the plain written
style: statements end in -다, questions in -니.

Each Korean sentence has exactly one English side, because these rules settle what Korean leaves
open:

- Tense. 먹었다 is the past (ate), 먹는다 the habit (eats), 먹고 있다 what goes on now (is eating),
  먹을 것이다 the future (will eat). Questions end in 먹었니, 먹니, 먹고 있니, 먹을 거니.
- Negation is the long form, -지 않다, and `not` without contraction. What is not there is 없다 and
  `no`: There is no cat in the room.
- Articles. A thing that can be counted is one new thing (an apple), what cannot be counted has no
  article (water), and what there is one of in the scene has `the` (the door). 이 is `this`; 그
  before a noun is `the`. Subjects with 은/는 are known (학생은 = the student), those with 이/가 are
  new (학생이 = a student).
- Number. Habits and likings are about the kind (He eats apples), but what one wears, rides or uses
  one at a time stays one (He uses a computer); several people wear or ride one each (They wore
  hats). Else more than one is counted: 사과 세 개 = three apples, 사과 한 개 = one apple. What has
  no number is measured: 커피 한 잔 = a cup of coffee.
- Senses. A word has one sense. Where a verb has two, its objects tell them apart: 자전거를 타다 is
  to ride a bicycle, 버스를 타다 to take a bus.
- Order. Korean: who, when, with whom, where, how long, to whom, with what, what or where to, how
  often, verb. English: who, how often, verb, what or where to, to whom, with what, where, with
  whom, how long, when.

The words and what goes with what stand in words.py (how to add one, too), the two
grammars in grammar.py, and what can be said in sense.py.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from tinyfm.demos.dice import Dice
from tinyfm.demos.korean_english.grammar import Sentence, Setting, Thing, action
from tinyfm.demos.korean_english.sense import draw
from tinyfm.demos.korean_english.words import KNOWN, NOUNS, TIMES, VERBS, Tense

SIZE = 30_000  # pairs in the corpus, out of the millions that the grammar allows
TESTED = 300  # sentences in each of the two test sets
SHARE = 0.05  # of the verb-object and of the adjective-noun pairs is held out

# Held out of training whatever the seed: 나는 사과를 먹었다. = I ate an apple.
SHOWN = action(Setting(Tense.PAST, TIMES[0]), KNOWN[0], VERBS[0], Thing(NOUNS["사과"]))

# The tense and negation of an action that training never sees together: 먹고 있지 않다, is not
# eating. Each part is frequent there, 먹고 있 with `is eating` and -지 않다 with `is not` (of
# adjectives), and so is the order of the words in both languages. They need only be put together.
COMBINATION = (Tense.NOW, True)


@cache
def sentences() -> tuple[Sentence, ...]:
    """The corpus with what the split needs to know of each pair."""
    dice = Dice(seed=0)
    distinct = {SHOWN[:2]: SHOWN}
    while len(distinct) < SIZE:
        sentence = draw(dice)
        distinct[sentence[:2]] = sentence
    return tuple(distinct.values())


def corpus() -> list[tuple[str, str]]:
    """All (Korean, English) pairs, each once, in the same order every time."""
    return [sentence[:2] for sentence in sentences()]


class Split(NamedTuple):
    """Pairs to learn from, and two sets of pairs that are not among them."""

    train: list[tuple[str, str]]
    random: list[tuple[str, str]]
    compositional: list[tuple[str, str]]


def split(seed: int = 0) -> Split:
    """Split the corpus for learning and for two tests, which ask different questions.

    random: new sentences out of parts that were seen together (300; `SHOWN` is among them).
    compositional: new combinations of parts that were each seen in other company (300). For 5% of
        the verb-object pairs, 5% of the adjective-noun pairs and for `COMBINATION`, no sentence
        that uses them is trained on; a third of the test uses each of these, and one only.

    The seed decides about the pairs and the sentences. What is left over, sentences that use what
    is held out and are not drawn for the test, is in none of the three.
    """
    dice = Dice(seed)
    verb_objects = {pair for s in sentences() for pair in s.verb_objects}
    adjective_nouns = {pair for s in sentences() for pair in s.adjective_nouns}
    held_verb_objects = hold_out(dice, verb_objects, never=SHOWN.verb_objects)
    held_adjective_nouns = hold_out(dice, adjective_nouns)

    groups = defaultdict[tuple[bool, bool, bool], list[Sentence]](list)
    for s in sentences():
        uses = (
            not held_verb_objects.isdisjoint(s.verb_objects),
            not held_adjective_nouns.isdisjoint(s.adjective_nouns),
            s.combination == COMBINATION,
        )
        groups[uses].append(s)
    seen = groups[False, False, False]
    kinds = groups[True, False, False], groups[False, True, False], groups[False, False, True]
    tested = {SHOWN, *dice.shuffled(s for s in seen if s != SHOWN)[: TESTED - 1]}
    compositional = [s for kind in kinds for s in dice.shuffled(kind)[: TESTED // len(kinds)]]
    return Split(
        [s[:2] for s in seen if s not in tested],
        [s[:2] for s in seen if s in tested],
        [s[:2] for s in compositional],
    )


def hold_out(
    dice: Dice, pairs: set[tuple[str, str]], never: Sequence[tuple[str, str]] = ()
) -> set[tuple[str, str]]:
    """Choose `SHARE` of the pairs, such that each word keeps at least two pairs in training.

    A word is in one chosen pair at most, and those in `never` are not chosen.
    """
    held: set[tuple[str, str]] = set()
    company = [Counter(pair[side] for pair in pairs) for side in (0, 1)]
    for first, second in dice.shuffled(sorted(pairs - set(never))):
        taken = any(first == pair[0] or second == pair[1] for pair in held)
        keeps_company = company[0][first] > 2 and company[1][second] > 2
        if len(held) < round(SHARE * len(pairs)) and keeps_company and not taken:
            held.add((first, second))
    return held
