"""Generated conversations, against a reader of the rules that they state."""

import re
import zlib

from hypothesis import given
from hypothesis import strategies as st

from tinyfm.demos import instructions
from tinyfm.demos.dice import Dice
from tinyfm.demos.instructions import KINDS, SORTS, TURNS

SEEDS = st.integers(0, 2**64)
CHOICE = r"(?:Which is|Find) ((an? \w+): (.*))[?.]"
TOLD = (
    r"The capital of (\w+) is (\w+)\. "
    r"(?:What is the capital of (\w+)|(\w+) is the capital of what)\?"
)


def answered(question, word):
    """The answer to a question, and the word that it or the question before it is about."""
    if found := re.fullmatch(TOLD, question):
        country, town, asked, other = found.groups()
        assert country != town
        return {country: town, town: country}[asked or other], None
    if found := re.fullmatch(CHOICE, question):
        _, sort, things = found.groups()
        things = things.split(", ")
        assert sorted(name for name in SORTS for thing in things if thing in SORTS[name]) == sorted(
            SORTS
        )
        (chosen,) = (thing for thing in things if thing in SORTS[sort])
        return chosen, None
    if found := re.search(r"(\d+) plus (\d+)", question):
        first, second = map(int, found.groups())
        assert 0 <= first < 100 and 1 <= second <= 5
        return str(first + second), None
    if names := re.findall("[a-z]+", re.sub(TELLING, "", question)):
        (word,) = names
    if re.search("backwards|[Rr]everse", question):
        return "".join(reversed(word)), word
    if "capitals" in question or "capital letters" in question:
        return "".join(letter.upper() for letter in word), word
    if re.search("Repeat|Say", question):
        return word, word
    assert re.search("letters|long", question)
    return str(len(word)), word


# What stands in the questions about words, but for the words.
TELLING = (
    r"Repeat the word|Say it again|Say|Write|Reverse the word|Put|How many letters has|Count the "
    r"letters of|And how many letters|How long is it|And|backwards|reversed|in capital letters|in "
    r"capitals"
)


@given(seed=SEEDS, kind=st.sampled_from(sorted(KINDS)), held_out=st.booleans())
def test_answers_follow_from_the_questions(seed, kind, held_out):
    chat = instructions.new_chat(Dice(seed), kind, held_out)
    roles = [message["role"] for message in chat.messages]
    turns = [message["content"] for message in chat.messages]
    assert chat.kind == kind and roles == ["user", "assistant"] * (2 if kind == "more" else 1)
    word = None
    for question, answer in zip(turns[::2], turns[1::2], strict=True):
        expected, word = answered(question, word)
        assert answer == expected


@given(seed=SEEDS, kind=st.sampled_from(sorted(KINDS)), held_out=st.booleans())
def test_what_is_held_out_is_never_learnt(seed, kind, held_out):
    """A fifth of all words, sums and choices, by their CRC-32."""
    question = instructions.new_chat(Dice(seed), kind, held_out).messages[0]["content"]
    if found := re.fullmatch(TOLD, question):
        keys = [name.lower() for name in found.groups() if name]
    elif found := re.fullmatch(CHOICE, question) or re.search(r"(\d+ plus \d+)", question):
        keys = [found[1]]
    else:
        keys = re.findall("[a-z]+", re.sub(TELLING, "", question))
    assert keys and {zlib.crc32(key.encode()) % 5 == 0 for key in keys} == {held_out}


@given(seed=SEEDS)
def test_words_are_made_as_the_rules_say(seed):
    word = instructions.new_word(Dice(seed), held_out=False)
    consonants, vowels = "[bcdfghjklmnprstvwxz]", "[aeiou]"
    assert 3 <= len(word) <= 5
    group = rf"{consonants}{{1,2}}{vowels}{{1,2}}"
    assert re.fullmatch(rf"{group}(?:{group})?{consonants}{{1,2}}|{group}{group}", word)


def test_all_kinds_come_by_turns_and_follow_the_seed():
    count = 20 * len(TURNS)
    made = instructions.examples(count, seed=1)
    assert [chat.kind for chat in made] == list(TURNS) * 20 and {*TURNS} == {*KINDS}
    assert instructions.examples(count, seed=1) == made != instructions.examples(count, seed=2)
    assert instructions.examples(10, seed=1) == made[:10]


def test_records_to_learn_from_and_to_test_on():
    train, tests = instructions.records()
    ((name, test),) = tests.items()
    assert (len(train), len(test)) == (instructions.TRAINED, instructions.TESTED)
    assert "not seen" in name and train.where(16) == "generated conversation 17"
    assert not {chat.messages[0]["content"] for chat in train} & {
        chat.messages[0]["content"] for chat in test
    }


def test_the_second_question_is_another_one():
    for seed in range(50):
        chat = instructions.new_chat(Dice(seed), "more", held_out=False)
        first, second = (message["content"].lower() for message in chat.messages[::2])
        said = ("backwards|reverse", "capital", "repeat|say")
        kinds = [[bool(re.search(words, q)) for words in said] for q in (first, second)]
        assert kinds[0] != kinds[1]
