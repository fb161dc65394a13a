"""The generated parses, against a parser that knows the stated rules and not the grammar's code."""

from functools import partial
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyfm.demos import parses
from tinyfm.demos.parses import pairs
from tinyfm_tests import commands

NEAR_NOUNS = {"with", "near", "beside"}
AT_THE_END = {"before", "after", "during"}
WITH_OBJECT = {"saw", "found", "liked", "followed", "drew", "heard", "remembered", "forgot"}
ALONE = {"slept", "laughed", "waited", "danced", "ran", "smiled"}


class Parser:
    """Recursive descent, by the rules in the docstring of parses.py: it never has a choice."""

    def __init__(self, sentence):
        self.words = sentence.split()[::-1]

    def next(self):
        return self.words[-1] if self.words else ""

    def sentence(self):
        who, verbs = self.noun_phrase(), self.verb_phrase()
        if self.next() == "and":
            verbs = f"(VP {verbs} {self.words.pop()} {self.verb_phrase()})"
        if self.next() in AT_THE_END:
            verbs = f"(VP {verbs} (PP {self.words.pop()} {self.noun_phrase()}))"
        assert not self.words
        return f"(S {who} {verbs})"

    def verb_phrase(self):
        verb = self.words.pop()
        if verb in ALONE:
            return f"(VP {verb})"
        assert verb in WITH_OBJECT
        return f"(VP {verb} {self.noun_phrase()})"

    def noun_phrase(self):
        if self.next() == "both":
            both, first = self.words.pop(), self.noun_phrase()
            assert self.next() == "and"
            return f"(NP {both} {first} {self.words.pop()} {self.noun_phrase()})"
        words = [self.words.pop()]
        assert words[0] in ("a", "the")
        stops = NEAR_NOUNS | AT_THE_END | WITH_OBJECT | ALONE | {"that", "and", ""}
        while self.next() not in stops:
            words.append(self.words.pop())
        assert len(words) in (2, 3)  # an adjective or none
        simple = f"(NP {' '.join(words)})"
        if self.next() in NEAR_NOUNS:
            return f"(NP {simple} (PP {self.words.pop()} {self.noun_phrase()}))"
        if self.next() == "that":
            self.words.pop()
            return f"(NP {simple} (SBAR that {self.clause()}))"
        return simple

    def clause(self):
        if self.next() in WITH_OBJECT | ALONE:
            return self.verb_phrase()
        who = self.noun_phrase()
        assert self.next() in WITH_OBJECT
        return f"(S {who} (VP {self.words.pop()}))"


BY_HAND = {
    "the cat slept": "(S (NP the cat) (VP slept))",
    "the cat saw a dog with a hat": (
        "(S (NP the cat) (VP saw (NP (NP a dog) (PP with (NP a hat)))))"
    ),
    "a small boy near a tree beside the house ran": (
        "(S (NP (NP a small boy) (PP near (NP (NP a tree) (PP beside (NP the house))))) (VP ran))"
    ),
    "the dog that saw a cat slept": (
        "(S (NP (NP the dog) (SBAR that (VP saw (NP a cat)))) (VP slept))"
    ),
    "the dog that a boy saw slept": (
        "(S (NP (NP the dog) (SBAR that (S (NP a boy) (VP saw)))) (VP slept))"
    ),
    "both the cat and a dog slept": "(S (NP both (NP the cat) and (NP a dog)) (VP slept))",
    "the cat saw both a dog and a bird and slept": (
        "(S (NP the cat) (VP (VP saw (NP both (NP a dog) and (NP a bird))) and (VP slept)))"
    ),
    "the cat saw a dog after the party": (
        "(S (NP the cat) (VP (VP saw (NP a dog)) (PP after (NP the party))))"
    ),
    "the cat ran and saw a dog that slept during the storm": (
        "(S (NP the cat) (VP (VP (VP ran) and (VP saw (NP (NP a dog) (SBAR that (VP slept))))) "
        "(PP during (NP the storm))))"
    ),
}


@pytest.mark.parametrize("sentence", BY_HAND)
def test_the_rules_by_hand(sentence):
    assert Parser(sentence).sentence() == BY_HAND[sentence]


@given(st.integers(0, 2**64))
def test_every_sentence_has_the_one_parse_that_the_rules_give(seed):
    for sentence, parse in pairs(40, seed):
        assert Parser(sentence).sentence() == parse


def test_pairs_are_distinct_and_follow_the_seed():
    made = pairs(3000, seed=1)
    assert len({sentence for sentence, _ in made}) == len({parse for _, parse in made}) == 3000
    assert pairs(3000, seed=1) == made
    assert pairs(3000, seed=2) != made
    assert pairs(10, seed=1) == made[:10]


def test_sentences_recurse_and_use_every_construction():
    made = pairs(3000)
    assert all(len(parse.split()) < 100 for _, parse in made)
    text = " ".join(parse for _, parse in made)
    for sign in (
        "(PP with",
        "(PP after",
        "(SBAR that (VP",
        "(SBAR that (S",
        "(NP both",
        ") and (VP",
    ):
        assert text.count(sign) > 100, sign
    assert "(SBAR that (VP saw (NP (NP" in text, "phrases inside phrases inside phrases"


call = partial(commands.call, parses)


def read(path):
    lines = path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    return [tuple(line.split("\t")) for line in lines]


def test_the_command_writes_three_files(tmp_path):
    folder = tmp_path / "new" / "folder"
    status, out, err = commands.run("parses", "--pairs", 200, "--seed", 3, "--save", folder)
    assert (status, err) == (0, "")
    parts = [read(folder / f"{n}.tsv") for n in ("train", "valid", "test")]
    assert [len(part) for part in parts] == [180, 10, 10]
    assert sorted(chain.from_iterable(parts)) == sorted(pairs(200, seed=3))
    assert all(f"{n} pairs" in out for n in (180, 10))


@pytest.mark.parametrize(
    "option, value, complaint",
    [
        ("--pairs", "19", "argument --pairs: give at least 20, not 19"),
        ("--pairs", "many", "argument --pairs: give a whole number"),
        ("--seed", "-1", "argument --seed: give a whole number"),
    ],
)
def test_bad_options_are_one_line(tmp_path, option, value, complaint):
    status, out, err = call(option, value, "--save", tmp_path / "parses")
    assert (status, out) == (2, "")
    assert err.startswith(f"parses: {complaint}") and err.count("\n") == 1
    assert not (tmp_path / "parses").exists()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "taken").write_text("a file", encoding="utf-8")
    status, out, err = call("--pairs", "20", "--save", tmp_path / "taken")
    assert (status, out) == (2, "")
    assert str(tmp_path / "taken") in err and err.count("\n") == 1
