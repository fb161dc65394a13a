"""Sequence pairs into padded batches of similar lengths."""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tinyfm.errors import InputError

IGNORE_INDEX = -100
"""The label of a position where no loss is taken."""

Pair = tuple[Sequence[int], Sequence[int]]
Batch = dict[str, npt.NDArray[np.int64]]


def collate(pairs: Iterable[Pair], pad_id: int, eos_id: int) -> Batch:
    """Close every sequence with `eos_id` and pad the pairs to one batch of int64 arrays.

    input_ids       (B, S)  the sources, padded with `pad_id`
    attention_mask  (B, S)  1 on the source and its end, 0 on padding
    labels          (B, T)  the targets, padded with -100; the model shifts them itself

    What is padding is decided by position, so a source may contain `pad_id`.
    """
    sources, targets = zip(*pairs, strict=True)
    input_ids, attention_mask = _rectangle(sources, eos_id, fill=pad_id)
    labels, _ = _rectangle(targets, eos_id, fill=IGNORE_INDEX)
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def _rectangle(
    sequences: Sequence[Sequence[int]], eos_id: int, fill: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    rows = np.full((len(sequences), max(map(len, sequences)) + 1), fill, np.int64)
    mask = np.zeros_like(rows)
    for row, seen, sequence in zip(rows, mask, sequences, strict=True):
        row[: len(sequence)] = sequence
        row[len(sequence)] = eos_id
        seen[: len(sequence) + 1] = 1
    return rows, mask


def evaluation_batches(
    pairs: Sequence[Pair], *, max_tokens: int, pad_id: int, eos_id: int
) -> Iterator[tuple[npt.NDArray[np.int64], Batch]]:
    """Yield (indexes, batch) once over all pairs, short ones first, in the same order every time.

    Row r of a batch is `pairs[indexes[r]]`, so `result[indexes[r]] = ...` restores the order. Every
    pair must get its answer: one that is longer than `max_tokens` comes as a batch of its own.
    No pairs, no batches. Where there is nothing but sources, let the targets be empty lists.
    """
    lengths = _lengths(pairs)
    for indexes in _cut(lengths, _by_length(lengths), max_tokens):
        yield indexes, collate([pairs[i] for i in indexes], pad_id, eos_id)


class Batches:
    """Training batches without end, of at most `max_tokens` tokens: rows x (source + target).

    Both lengths count with their end token and with padding, so `max_tokens` bounds the memory
    and the work of a step. Pairs are sorted by length and cut into batches, which are then
    shuffled: that keeps padding to a few percent. Every epoch draws anew, from (seed, epoch)
    alone, which of the pairs of equal lengths meet in a batch, and the order of the batches; their
    number and their shapes stay the same.

    epoch     the current epoch, from 0
    position  how many of its batches have been given out; `len(batches)` is their number

    Raises InputError when there is no pair, or when one does not fit into `max_tokens`.
    """

    def __init__(
        self, pairs: Sequence[Pair], *, max_tokens: int, pad_id: int, eos_id: int, seed: int
    ):
        if not pairs:
            raise InputError("no sentence pairs to train on")
        for name, value in (("max_tokens", max_tokens), ("seed", seed)):
            if not isinstance(value, int | np.integer):
                raise TypeError(f"{name} is {value!r}: it must be a whole number")
        max_tokens, seed = int(max_tokens), int(seed)  # JSON takes none of NumPy's
        self._lengths = _lengths(pairs)
        longest = int(self._lengths.sum(axis=1).argmax())
        if (size := self._lengths[longest].sum()) > max_tokens:
            raise InputError(
                f"pair {longest} (counted from 0) has {size} tokens with its end tokens, but a "
                f"batch holds max_tokens={max_tokens}; raise max_tokens or leave the pair out"
            )
        self._pairs = pairs
        self._max_tokens = max_tokens
        self._pad_id, self._eos_id = pad_id, eos_id
        ids = np.fromiter((i for pair in pairs for side in pair for i in side), np.int64)
        shapes = np.append(self._lengths, [[pad_id, eos_id]], axis=0)
        self._checksum = zlib.crc32(ids.tobytes(), zlib.crc32(shapes.tobytes()))
        self._begin(seed, epoch=0, position=0)

    def _begin(self, seed: int, epoch: int, position: int) -> None:
        rng = np.random.default_rng((seed, epoch))
        order = _by_length(self._lengths, ties=rng.permutation(len(self._pairs)))
        batches = _cut(self._lengths, order, self._max_tokens)
        if not 0 <= position <= len(batches):
            raise InputError(
                f"the saved training run stood at batch {position}, and an epoch has "
                f"{len(batches)}; begin the training anew"
            )
        self._seed, self.epoch, self.position = seed, epoch, position
        self._epoch_batches = [batches[i] for i in rng.permutation(len(batches))]

    def __len__(self) -> int:
        return len(self._epoch_batches)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        if self.position == len(self):
            self._begin(self._seed, self.epoch + 1, position=0)
        indexes = self._epoch_batches[self.position]
        self.position += 1
        return collate([self._pairs[i] for i in indexes], self._pad_id, self._eos_id)

    def padding_share(self) -> float:
        """The share of padding among all source and target positions of an epoch."""
        positions = sum(
            len(batch) * self._lengths[batch].max(axis=0).sum() for batch in self._epoch_batches
        )
        return float(1 - self._lengths.sum() / positions)

    def state_dict(self) -> dict[str, int]:
        """Where the stream stands: a few integers, from which `load_state_dict` goes on."""
        return {
            "seed": self._seed,
            "epoch": self.epoch,
            "position": self.position,
            "pairs": len(self._pairs),
            "max_tokens": self._max_tokens,
            "checksum": self._checksum,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with exactly the batch that would have come next when `state` was taken.

        Raises InputError, and stays where it is, when `state` was taken over other pairs (their
        number, or the checksum of their ids, differs) or with another `max_tokens`, for the batches
        would be different ones; and when it is damaged.
        """
        here = self.state_dict()
        if not isinstance(state, Mapping) or not all(
            isinstance(state.get(name), int) and state[name] >= 0 for name in here
        ):
            raise InputError(f"the place in the data is damaged: {state}; begin the training anew")
        for name in ("pairs", "max_tokens", "checksum"):
            if state[name] != here[name]:
                raise InputError(
                    f"the saved training run had {name}={state[name]}, this one has {here[name]}; "
                    "resume it with the same data and options"
                )
        self._begin(state["seed"], state["epoch"], state["position"])


def _lengths(pairs: Sequence[Pair]) -> npt.NDArray[np.int64]:
    """(N, 2): the lengths of source and target, end tokens included."""
    return np.array([(len(s) + 1, len(t) + 1) for s, t in pairs], np.int64).reshape(-1, 2)


def _by_length(
    lengths: npt.NDArray[np.int64], ties: npt.NDArray[np.int64] | None = None
) -> npt.NDArray[np.int64]:
    """The order by source length, and by target length among equal sources.

    The targets rise and fall in turn (boustrophedon order): where one source length ends and the
    next begins, neighbours still have similar targets, which saves a quarter of the padding.
    """
    source, target = lengths.T
    keys = (np.where(source % 2, target, -target), source)
    return np.lexsort(keys if ties is None else (ties, *keys))


def _cut(
    lengths: npt.NDArray[np.int64], order: npt.NDArray[np.int64], max_tokens: int
) -> list[npt.NDArray[np.int64]]:
    """Cut `order` where one more row would push the padded size over `max_tokens`."""
    cuts: list[int] = []
    start, longest = 0, np.zeros(2, np.int64)
    for end, size in enumerate(lengths[order]):
        longest = np.maximum(longest, size)
        if end > start and (end - start + 1) * longest.sum() > max_tokens:
            cuts.append(end)
            start, longest = end, size
    return np.split(order, cuts) if len(order) else []
