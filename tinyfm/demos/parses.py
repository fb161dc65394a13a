"""Make pairs of an English sentence and its parse: the second task of the paper.

    python -m tinyfm.demos.parses --save parses
    python -m tinyfm.demos.translate --train parses/train.tsv --test parses/test.tsv

A parse is a text too, so that the model that translates learns to parse (Vaswani et al. 2017,
section 6.3):

    the cat saw a dog with a hat
    (S (NP the cat) (VP saw (NP (NP a dog) (PP with (NP a hat)))))

The sentences come from a small recursive grammar. Each has one parse, by these rules:

- with, near and beside go with the noun just before them; before, after and during stand at the
  end and go with all that the sentence tells.
- `that` goes with the noun just before it: a dog that slept, a dog that a boy saw.
- `and` closes the nearest `both` that is open; where none is, it joins the verbs of the sentence.
"""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

from tinyfm.demos import cli
from tinyfm.demos.dice import Dice
from tinyfm.errors import InputError
from tinyfm.files import replacing

LIVING = ("cat", "dog", "bird", "horse", "mouse", "boy", "girl", "man", "woman", "doctor", "king")
THINGS = ("hat", "book", "ball", "bicycle", "tree", "house", "chair", "flower", "letter", "box")
EVENTS = ("party", "storm", "game", "meal", "concert", "journey")
ADJECTIVES = ("big", "small", "red", "black", "happy", "quiet", "tall", "pretty")
OF_NOUNS, OF_SENTENCES = ("with", "near", "beside"), ("before", "after", "during")
TRANSITIVE = ("saw", "found", "liked", "followed", "drew", "heard", "remembered", "forgot")
INTRANSITIVE = ("slept", "laughed", "waited", "danced", "ran", "smiled")

DEPTH = 2  # noun phrases inside a noun phrase inside the sentence


class Tree(NamedTuple):
    """A phrase: its label and its parts, words or phrases.

    >>> cat = Tree("S", (Tree("NP", ("the", "cat")), Tree("VP", ("slept",))))
    >>> cat.sentence(), str(cat)
    ('the cat slept', '(S (NP the cat) (VP slept))')
    """

    label: str
    parts: tuple["Tree | str", ...]

    def sentence(self) -> str:
        """The words alone."""
        return " ".join(part.sentence() if isinstance(part, Tree) else part for part in self.parts)

    def __str__(self) -> str:
        return f"({self.label} {' '.join(map(str, self.parts))})"


def pairs(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """`count` different (sentence, parse) pairs; the same seed gives the same ones."""
    dice = Dice(seed)
    parses: dict[str, str] = {}
    while len(parses) < count:
        tree = draw_sentence(dice)
        parses[tree.sentence()] = str(tree)
    return list(parses.items())


def draw_sentence(dice: Dice) -> Tree:
    """Somebody did something, or two things, perhaps after the party."""
    verbs = draw_verb_phrase(dice, DEPTH)
    if dice.chance(0.25):
        verbs = Tree("VP", (verbs, "and", draw_verb_phrase(dice, DEPTH)))
    if dice.chance(0.25):
        event = Tree("NP", ("the", dice.one(EVENTS)))
        verbs = Tree("VP", (verbs, Tree("PP", (dice.one(OF_SENTENCES), event))))
    return Tree("S", (draw_noun_phrase(dice, DEPTH, LIVING), verbs))


def draw_verb_phrase(dice: Dice, depth: int) -> Tree:
    """Slept; saw a cat."""
    if dice.chance(0.3):
        return Tree("VP", (dice.one(INTRANSITIVE),))
    return Tree("VP", (dice.one(TRANSITIVE), draw_noun_phrase(dice, depth, LIVING + THINGS)))


def draw_noun_phrase(dice: Dice, depth: int, nouns: tuple[str, ...], in_both: bool = False) -> Tree:
    """A cat, a small cat, a cat with a hat, a cat that slept, both a cat and a dog.

    What is inside has one less of `depth`, and with none left there is nothing inside. `in_both`
    keeps two `both` from following each other.
    """
    noun = dice.one(nouns)
    adjective = (dice.one(ADJECTIVES),) if dice.chance(0.25) else ()
    simple = Tree("NP", (dice.one(("the", "a")), *adjective, noun))
    if depth == 0 or dice.chance(0.5):
        return simple
    match dice.one(("of noun", "clause") if in_both else ("of noun", "clause", "both")):
        case "of noun":
            other = draw_noun_phrase(dice, depth - 1, LIVING + THINGS)
            return Tree("NP", (simple, Tree("PP", (dice.one(OF_NOUNS), other))))
        case "clause":
            return Tree("NP", (simple, draw_clause(dice, depth - 1, noun in LIVING)))
        case _:
            first = draw_noun_phrase(dice, depth - 1, nouns, in_both=True)
            second = draw_noun_phrase(dice, depth - 1, nouns, in_both=True)
            return Tree("NP", ("both", first, "and", second))


def draw_clause(dice: Dice, depth: int, living: bool) -> Tree:
    """That slept, which the living can; that a boy saw."""
    if living and dice.chance(0.6):
        return Tree("SBAR", ("that", draw_verb_phrase(dice, depth)))
    who = draw_noun_phrase(dice, depth, LIVING)
    return Tree("SBAR", ("that", Tree("S", (who, Tree("VP", (dice.one(TRANSITIVE),))))))


def new_parser() -> cli.Parser:
    parser = cli.Parser("parses", __doc__)
    parser.add_argument(
        "--save",
        type=cli.folder,
        metavar="FOLDER",
        default="parses",
        help="where train.tsv, valid.tsv and test.tsv go (default: %(default)s)",
    )
    parser.add_argument(
        "--pairs",
        type=cli.positive_int,
        default=6000,
        metavar="N",
        help="pairs in all; a twentieth each is for valid and for test (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=cli.seed, default=0, metavar="N", help="of all randomness (default: 0)"
    )
    return parser


def main(args: argparse.Namespace) -> None:
    part = args.pairs // 20
    if part == 0:
        raise InputError(f"argument --pairs: give at least 20, not {args.pairs}")
    made = pairs(args.pairs, args.seed)
    folder = Path(args.save)
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"train": made[2 * part :], "valid": made[part : 2 * part], "test": made[:part]}
    for name, lines in parts.items():
        path = folder / f"{name}.tsv"
        content = "".join(f"{sentence}\t{parse}\n" for sentence, parse in lines)
        with replacing(path) as temporary:
            temporary.write_text(content, encoding="utf-8", newline="\n")
        print(f"{path}: {len(lines)} pairs")


if __name__ == "__main__":
    sys.exit(cli.run(main, new_parser()))
