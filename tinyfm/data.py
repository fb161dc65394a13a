"""Batches: pairs of sequences and examples of many fields, padded; windows of a long text."""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tinyfm.errors import InputError

IGNORE_INDEX = -100
"""The label of a position where no loss is taken."""

Pair = tuple[Sequence[int], Sequence[int]]
Example = Mapping[str, Any]
Batch = dict[str, npt.NDArray[Any]]


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


class _Stream:
    """Batches without end over rows of known lengths, at most `max_tokens` positions in each.

    Rows are sorted by length and cut into batches, which are then shuffled: that keeps padding to a
    few percent. Every epoch draws anew, from (seed, epoch) alone, which of the rows of equal
    lengths meet in a batch, and the order of the batches; their number and their shapes stay the
    same.

    lengths: (N, k), for each row those of its k sequences, which are padded apart.
    checksum: of all that the batches are made of.
    """

    _rows = "rows"  # what a row is called in messages and in the state

    def __init__(
        self, lengths: npt.NDArray[np.int64], checksum: int, *, max_tokens: int, seed: int
    ):
        max_tokens, seed = _whole("max_tokens", max_tokens), _whole("seed", seed)
        longest = int(lengths.sum(axis=1).argmax())
        if (size := lengths[longest].sum()) > max_tokens:
            raise InputError(
                f"{self._rows[:-1]} {longest} (counted from 0) has {size} tokens, special "
                f"ones included, but a batch holds max_tokens={max_tokens}; raise max_tokens or "
                "leave it out"
            )
        self._lengths, self._checksum, self._max_tokens = lengths, checksum, max_tokens
        self._begin(seed, epoch=0, position=0)

    def _batch(self, indexes: npt.NDArray[np.int64]) -> Batch:
        """The batch of these rows."""
        raise NotImplementedError

    def _begin(self, seed: int, epoch: int, position: int) -> None:
        rng = np.random.default_rng((seed, epoch))
        order = _by_length(self._lengths, ties=rng.permutation(len(self._lengths)))
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
        return self._batch(indexes)

    def padding_share(self) -> float:
        """The share of padding among all positions of an epoch."""
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
            self._rows: len(self._lengths),
            "max_tokens": self._max_tokens,
            "checksum": self._checksum,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with exactly the batch that would have come next when `state` was taken.

        Raises InputError, and stays where it is, when `state` was taken over other rows (their
        number, or the checksum of their ids, differs) or with another `max_tokens`, for the batches
        would be different ones; and when it is damaged.
        """
        _check_state(state, self.state_dict(), (self._rows, "max_tokens", "checksum"))
        self._begin(state["seed"], state["epoch"], state["position"])


def _whole(name: str, value: Any) -> int:
    """The value as Python's own int, for JSON takes none of NumPy's; TypeError: no whole number."""
    if not isinstance(value, int | np.integer):
        raise TypeError(f"{name} is {value!r}: it must be a whole number")
    return int(value)


OPTIONS = ("max_tokens", "length", "rows")  # in a state; the rest is about the data


def _check_state(state: Any, here: Mapping[str, int], same: Sequence[str]) -> None:
    """InputError if a saved state is damaged, or differs from that of `here` in one of `same`."""
    if not isinstance(state, Mapping) or not all(
        isinstance(state.get(name), int) and state[name] >= 0 for name in here
    ):
        raise InputError(f"the place in the data is damaged: {state}; begin the training anew")
    for name in same:
        if state[name] != here[name]:
            changed = "" if name in OPTIONS else "the data have changed: "
            raise InputError(
                f"{changed}the saved training run had {name}={state[name]}, this one has "
                f"{here[name]}; resume it with the same data and options"
            )


class Batches(_Stream):
    """Training batches without end, of at most `max_tokens` tokens: rows x (source + target).

    Both lengths count with their end token and with padding, so `max_tokens` bounds the memory
    and the work of a step. Pairs of similar lengths share a batch; every epoch mixes them anew.

    epoch     the current epoch, from 0
    position  how many of its batches have been given out; `len(batches)` is their number

    Raises InputError when there is no pair, or when one does not fit into `max_tokens`.
    """

    _rows = "pairs"

    def __init__(
        self, pairs: Sequence[Pair], *, max_tokens: int, pad_id: int, eos_id: int, seed: int
    ):
        if not pairs:
            raise InputError("no sentence pairs to train on")
        self._pairs, self._pad_id, self._eos_id = pairs, pad_id, eos_id
        lengths = _lengths(pairs)
        ids = np.fromiter((i for pair in pairs for side in pair for i in side), np.int64)
        shapes = np.append(lengths, [[pad_id, eos_id]], axis=0)
        checksum = zlib.crc32(ids.tobytes(), zlib.crc32(shapes.tobytes()))
        super().__init__(lengths, checksum, max_tokens=max_tokens, seed=seed)

    def _batch(self, indexes: npt.NDArray[np.int64]) -> Batch:
        return collate([self._pairs[i] for i in indexes], self._pad_id, self._eos_id)


# -- examples: one text with whatever is known about it --------------------------------------------


def collate_examples(examples: Sequence[Example], pad_id: int) -> dict[str, npt.NDArray[Any]]:
    """Pad examples, which all have the same fields, to one batch, and add `attention_mask`.

    A field has a number for each token (input_ids, token_type_ids, the labels of words): it becomes
    (B, T), padded with `pad_id` in input_ids, -100 in labels, 1 in special and 0 elsewhere. Or it
    is one number for the text, and becomes (B,). Where the input_ids of an example are C lists, as
    for a choice among C texts, fields of tokens become (B, C, T).
    """
    batch = {
        name: _padded([example[name] for example in examples], fill)
        for name in examples[0]
        for fill in [pad_id if name == "input_ids" else _FILLS.get(name, 0)]
    }
    seen = [_ones(example["input_ids"]) for example in examples]
    return batch | {"attention_mask": _padded(seen, 0)}


_FILLS = {"labels": IGNORE_INDEX, "special": 1}


def _is_nested(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and np.ndim(value[0]) == 1


def _rows_of(value: Any) -> Any:
    return value if _is_nested(value) else [value]


def _ones(ids: Any) -> Any:
    return [[1] * len(row) for row in ids] if _is_nested(ids) else [1] * len(ids)


def _padded(values: Sequence[Any], fill: int) -> npt.NDArray[Any]:
    if not _is_nested(values[0]) and np.ndim(values[0]) == 0:
        return np.array(values)
    rows = [row for value in values for row in _rows_of(value)]
    kinds = (np.asarray(row).dtype for row in rows if len(row))  # an empty list would be float64
    padded = np.full((len(rows), max(map(len, rows))), fill, next(kinds, np.int64))
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    return padded.reshape(len(values), -1, padded.shape[1]) if _is_nested(values[0]) else padded


class ExampleBatches(_Stream):
    """Training batches without end of examples, at most `max_tokens` positions in each.

    examples: dicts as `collate_examples` takes them; similar lengths share a batch.
    change: called with each batch and a generator of its own; what it returns is the batch. So
        words are hidden anew in every epoch. The numbers depend on seed, epoch and place alone.

    epoch, position, len(): as of Batches.  InputError: no example, or one beyond `max_tokens`.
    """

    _rows = "examples"

    def __init__(
        self,
        examples: Sequence[Example],
        *,
        max_tokens: int,
        pad_id: int,
        seed: int,
        change: Callable[[Batch, np.random.Generator], Batch] | None = None,
    ):
        if not examples:
            raise InputError("no examples to train on")
        self._examples, self._pad_id, self._change = examples, pad_id, change
        checksum = zlib.crc32(str(pad_id).encode())
        for example in examples:
            for name, value in example.items():
                for row in _rows_of(value):
                    checksum = zlib.crc32(np.asarray(row).tobytes(), checksum)
                    checksum = zlib.crc32(f"{name} {np.size(row)}".encode(), checksum)
        lengths = _example_lengths(examples)
        super().__init__(lengths, checksum, max_tokens=max_tokens, seed=seed)

    def _batch(self, indexes: npt.NDArray[np.int64]) -> Batch:
        batch = collate_examples([self._examples[i] for i in indexes], self._pad_id)
        if self._change is None:
            return batch
        rng = np.random.default_rng((self._seed, self.epoch, self.position))
        return self._change(batch, rng)


def example_batches(
    examples: Sequence[Example], *, max_tokens: int, pad_id: int
) -> Iterator[tuple[npt.NDArray[np.int64], Batch]]:
    """Yield (indexes, batch) once over all examples, as `evaluation_batches` does over pairs."""
    lengths = _example_lengths(examples)
    for indexes in _cut(lengths, _by_length(lengths), max_tokens):
        yield indexes, collate_examples([examples[i] for i in indexes], pad_id)


def _example_lengths(examples: Sequence[Example]) -> npt.NDArray[np.int64]:
    """(N, 1): how many positions each takes; all C texts of a choice, as long as the longest.

    (N, 2) where labels are another text than the input, with lengths of their own.
    """

    def length(ids: Any) -> int:
        return len(ids) * max(map(len, ids)) if _is_nested(ids) else len(ids)

    sources = [length(e["input_ids"]) for e in examples]
    labels = [e.get("labels", ()) for e in examples]
    targets = [length(row) if isinstance(row, Sized) else 1 for row in labels]
    apart = any(1 < target != source for source, target in zip(sources, targets, strict=True))
    return np.array([sources, targets] if apart else [sources], np.int64).T


# -- windows of a long text ------------------------------------------------------------------------


class WindowBatches:
    """Training batches without end: `rows` windows of `length` tokens, anywhere in a long text.

    ids (L,) -> input_ids and labels (rows, length), which are the same: the model shifts them.
    Where the windows of a batch begin depends on (seed, position) alone.

    position: how many batches have been given out; len(): so many take as many tokens as there are.
    InputError: the text is shorter than a window.
    """

    def __init__(self, ids: npt.ArrayLike, *, length: int, rows: int, seed: int):
        length, rows = _whole("length", length), _whole("rows", rows)
        self._ids = np.asarray(ids, np.int64)
        if len(self._ids) < length:
            raise InputError(
                f"{len(self._ids)} tokens are too few for a window of {length}; give more text or "
                "shorter windows"
            )
        self._length, self._rows, self._seed = length, rows, _whole("seed", seed)
        self.position = 0
        self._checksum = zlib.crc32(self._ids.tobytes())

    def __len__(self) -> int:
        return -(-len(self._ids) // (self._rows * self._length))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        rng = np.random.default_rng((self._seed, self.position))
        starts = rng.integers(len(self._ids) - self._length + 1, size=(self._rows, 1))
        self.position += 1
        windows = self._ids[starts + np.arange(self._length)]
        return {"input_ids": windows, "labels": windows}

    def padding_share(self) -> float:
        """A window is full."""
        return 0.0

    def state_dict(self) -> dict[str, int]:
        """Where the stream stands: a few integers, from which `load_state_dict` goes on."""
        return {
            "seed": self._seed,
            "position": self.position,
            "length": self._length,
            "rows": self._rows,
            "checksum": self._checksum,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with exactly the batch that would have come next when `state` was taken.

        InputError, and it stays where it is: another text or other sizes, or a damaged state.
        """
        _check_state(state, self.state_dict(), ("length", "rows", "checksum"))
        self._seed, self.position = state["seed"], state["position"]


# -- lengths ---------------------------------------------------------------------------------------


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
    source, *targets = lengths.T
    keys = (*(np.where(source % 2, target, -target) for target in targets), source)
    return np.lexsort(keys if ties is None else (ties, *keys))


def _cut(
    lengths: npt.NDArray[np.int64], order: npt.NDArray[np.int64], max_tokens: int
) -> list[npt.NDArray[np.int64]]:
    """Cut `order` where one more row would push the padded size over `max_tokens`."""
    cuts: list[int] = []
    start, longest = 0, np.zeros(lengths.shape[1], np.int64)
    for end, size in enumerate(lengths[order]):
        longest = np.maximum(longest, size)
        if end > start and (end - start + 1) * longest.sum() > max_tokens:
            cuts.append(end)
            start, longest = end, size
    return np.split(order, cuts) if len(order) else []
