"""Models for the tests of generation whose every probability is told by a function."""

from functools import cache, partial

import numpy as np

from tinyfm import nn
from tinyfm.generation import GenerationMixin

PAD, START, EOS = 0, 1, 2


class Scripted(nn.Module, GenerationMixin):
    """The probabilities of a continuation are told by tell(source ids, ids so far).

    Its state keeps what each running sequence has said, as a cache would: without reordering, or
    with a source of another row, the model would go on with the words of somebody else.
    """

    def __init__(self, tell, **config):
        self.tell, self.begun, self.steps = tell, [], 0
        names = {"eos_token_id": EOS, "pad_token_id": PAD, "decoder_start_token_id": START}
        self.config = type("Config", (), names | config)

    def begin(self, input_ids, attention_mask, rows, max_length):
        self.begun.append((rows, max_length))
        source = np.asarray(input_ids)[rows]
        if attention_mask is not None:
            source = np.where(np.asarray(attention_mask)[rows] == 1, source, -1)
        return ScriptedState(source)

    def step(self, ids, state):
        self.steps += 1
        state.ids = np.concatenate([state.ids, ids], 1)
        told = [
            self.tell(tuple(int(i) for i in source if i >= 0), tuple(said.tolist()))
            for source, said in zip(state.source, state.ids, strict=True)
        ]
        with np.errstate(divide="ignore"):
            return np.log(told)


class Continuing(Scripted):
    """The same for a model without an encoder: what has been said begins with the prompt.

    The source is then empty.
    """

    is_encoder_decoder = False

    def begin(self, input_ids, attention_mask, rows, max_length):
        return super().begin(np.zeros((len(input_ids), 0), int), None, rows, max_length)


class ScriptedState:
    def __init__(self, source):
        self.source, self.ids = source, np.zeros((len(source), 0), int)

    def reorder(self, rows):
        self.source, self.ids = self.source[rows], self.ids[rows]


@cache
def random_words(source, said, words=6, spread=1.5):
    """Some distribution over words, another one after each text; the padding is never said."""
    scores = spread * np.random.default_rng([7, *source, 7, *said]).standard_normal(words)
    scores[PAD] = -np.inf
    return np.exp(scores) / np.exp(scores).sum()


def random_model(words=6, spread=1.5, **config):
    return Scripted(partial(random_words, words=words, spread=spread), **config)


def sources(*seeds, length=2):
    return np.array([[seed + 3, *[4] * (length - 1)] for seed in seeds])


def unpadded(row, end=EOS):
    """A row up to its end token, which may also be what it starts with (as in BART)."""
    said = row.tolist()
    return said[: said.index(end, 1) + 1] if end in said[1:] else said


# parity.md (d): what follows 1, 3 and 4
TOY = {1: [0, 0, 0.28, 0.40, 0.32], 3: [0, 0, 0.5, 0.2, 0.3], 4: [0, 0, 0.8, 0.12, 0.08]}
SOURCE = np.array([[5]])


def toy(kind=Scripted):
    return kind(lambda source, said: TOY.get(said[-1], [0, 0, 1, 0, 0]))


def ends_after(steps):
    """Says 7 until it has said enough, and then nothing but the end."""

    def tell(source, said):
        told = np.full(9, 1e-4)
        told[EOS if len(said) >= steps[source[0]] else 7] = 1.0
        return told

    return Scripted(tell)
