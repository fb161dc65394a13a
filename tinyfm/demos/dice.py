"""Random choices that are the same in every version of Python."""

import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Of the random module only `random()` is promised never to change its sequence.

    (Its documentation, "Notes on Reproducibility".) So all that is needed is built on that.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self._random() < probability

    def one(self, options: Sequence[T]) -> T:
        """One of the options, each as likely as the others."""
        return options[int(self._random() * len(options))]

    def shuffled(self, items: Iterable[T]) -> list[T]:
        """The items in a random order."""
        return sorted(items, key=lambda _: self._random())
