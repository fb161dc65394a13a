"""Tasks put to a language model as text that it goes on with: zero, one or a few examples.

A task is described in words, shown by examples, or both, and asked in the same form (Brown et al.
2020, section 2, figure 2.1); no weight changes. What is built here is plain text for
`python -m tinyfm.demos.generate --prompt`, or for `model.generate` after a tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence

ARROW = " =>"


def zero_shot(query: str, instruction: str, between: str = ARROW) -> str:
    """A description of the task, and what is asked.

    >>> print(zero_shot("cheese", "Translate English to French:"))
    Translate English to French:
    cheese =>
    """
    return few_shot(query, (), instruction, between)


def one_shot(
    query: str, example: tuple[str, str], instruction: str = "", between: str = ARROW
) -> str:
    """The same after one example.

    >>> print(one_shot("cheese", ("sea otter", "loutre de mer"), "Translate English to French:"))
    Translate English to French:
    sea otter => loutre de mer
    cheese =>
    """
    return few_shot(query, (example,), instruction, between)


def few_shot(
    query: str,
    examples: Sequence[tuple[str, str]],
    instruction: str = "",
    between: str = ARROW,
) -> str:
    """Examples (question, answer), and a question whose answer is to be made; one after the other.

    between: stands between a question and its answer, which a space parts from it. The prompt ends
        with it and without that space, for tokens begin with the space before their word.

    >>> print(few_shot("2 + 2?", [("3 + 4?", "7"), ("5 + 1?", "6")], between=" A:"))
    3 + 4? A: 7
    5 + 1? A: 6
    2 + 2? A:
    """
    lines = [instruction] if instruction else []
    lines += [f"{question}{between} {answer}" for question, answer in examples]
    return "\n".join([*lines, f"{query}{between}"])


def tldr(text: str) -> str:
    """A text that asks for its summary (Radford et al. 2019, section 3.6).

    The paper draws 100 tokens with top_k=2 and takes the first three sentences.

    >>> print(tldr("It rained all day and all night. The river rose.\\n"))
    It rained all day and all night. The river rose.
    TL;DR:
    """
    return f"{text.rstrip()}\nTL;DR:"
