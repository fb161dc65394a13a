"""Names that nobody has: Belarimar, Corodavik, Selinodan.

Each is a beginning, a middle and an end. A fifth of them is held out of all training data: those
whose parts stand at places that add up to a multiple of five. So each part of a held-out name is
known from other names, and the name itself is new. There are so many that a vocabulary of subwords
learns the parts and not the names. To what a name belongs, a person or a town, it does not tell.
"""

from functools import cache
from itertools import product

from tinyfm.demos.dice import Dice

BEGINNINGS = (
    "Bel", "Cor", "Dar", "Fen", "Gal", "Hol", "Jor", "Kel", "Lam", "Mor",
    "Nor", "Pel", "Ras", "Sel", "Tor", "Vas", "Wil", "Yar", "Zan", "Rud",
)  # fmt: skip
MIDDLES = tuple(map("".join, product("aeiou", "dlmnrs", "aeiou")))
ENDS = (
    "mar", "vik", "dan", "by", "ton", "lo", "ne", "ster", "wen", "rick",
    "sa", "gard", "ki", "feld", "bo", "thal",
)  # fmt: skip
PARTS = 5


@cache
def names(held_out: bool) -> tuple[str, ...]:
    """All names that are held out, or all others."""
    parts = product(enumerate(BEGINNINGS), enumerate(MIDDLES), enumerate(ENDS))
    return tuple(
        beginning + middle + end
        for (i, beginning), (j, middle), (k, end) in parts
        if ((i + j + k) % PARTS == 0) == held_out
    )


class NewNames:
    """Names out of one of the two parts, each only once."""

    def __init__(self, dice: Dice, held_out: bool) -> None:
        self._dice, self._names = dice, names(held_out)
        self._used: set[str] = set()

    def draw(self) -> str:
        """A name that has not been drawn here before."""
        while (name := self._dice.one(self._names)) in self._used:
            pass
        self._used.add(name)
        return name
