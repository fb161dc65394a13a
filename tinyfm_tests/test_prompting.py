"""Prompts with no, one and a few examples, and for a summary."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyfm.demos.prompting import few_shot, one_shot, tldr, zero_shot

WORDS = st.text(st.characters(categories=["L", "N"]), min_size=1)
PAIRS = st.lists(st.tuples(WORDS, WORDS), max_size=5)


@given(query=WORDS, examples=PAIRS, instruction=WORDS)
def test_a_few_examples_stand_in_order_before_the_question(query, examples, instruction):
    prompt = few_shot(query, examples, instruction, between=" ->")
    first, *middle, last = prompt.split("\n")
    assert (first, last) == (instruction, f"{query} ->")
    assert [tuple(line.split(" -> ")) for line in middle] == examples
    assert few_shot(query, examples, between=" ->") == prompt.removeprefix(f"{instruction}\n")


@given(query=WORDS, example=st.tuples(WORDS, WORDS), instruction=WORDS)
def test_none_and_one_are_cases_of_a_few(query, example, instruction):
    assert zero_shot(query, instruction) == few_shot(query, [], instruction)
    assert one_shot(query, example, instruction) == few_shot(query, [example], instruction)
    assert one_shot(query, example, instruction).count("=>") == 2


@pytest.mark.parametrize("text", ["It rained.", "It rained.\n\n", "It rained. "])
def test_a_summary_is_asked_for_on_a_line_of_its_own(text):
    assert tldr(text) == "It rained.\nTL;DR:"


@given(query=WORDS, examples=PAIRS, text=WORDS)
def test_no_prompt_ends_with_a_space(query, examples, text):
    """For the tokens that follow begin with the space before their word."""
    for prompt in (few_shot(query, examples), zero_shot(query, "Do."), tldr(text)):
        assert re.search(r"\S$", prompt)
