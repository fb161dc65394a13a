"""Who may see whom: one half of what tells the five models apart (the other is `objectives/`).

**True means "may look"**, everywhere in tinyfm.  (torch.nn.Transformer's boolean masks say the
opposite: True blocks.)  A mask carries no query length.  It is laid on the scores bottom-right
aligned: the last query stands on the last key, so that the same causal mask is right for a whole
sequence (Tq = Tk) and for one new token behind a cache of keys (Tq = 1).

    encoder (Transformer, BERT, BART, T5)   padding(attention_mask)
    decoder, GPT                            causal() & padding(attention_mask)
    prefix LM                               prefix(lengths) & padding(attention_mask)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tinyfm.arrays import mixed_devices
from tinyfm.autograd import raw
from tinyfm.backend import Array, array_module, host, is_array


@dataclass(frozen=True, eq=False)
class Mask:
    """What may be seen: the AND of its parts.  Made by the functions below and by `&`.

    causal: query i sees key j when j <= i + Tk - Tq.
    prefix: (B,) lengths in key columns, padding included.  Every query sees the keys j < prefix;
        beyond them query i sees j <= i + Tk - Tq, so that this part is causal by itself (the prefix
        LM of Raffel et al. 2020, figure 3).
    keys: (B, Tk) bool, which keys exist.  A query that is padding itself still looks at them.
    allowed: bool, broadcastable to (B, H, Tq, Tk): packed documents, bands.
    """

    causal: bool = False
    prefix: Array | None = None
    keys: Array | None = None
    allowed: Array | None = None

    def __and__(self, other: Mask) -> Mask:
        """Pointwise AND, with one exception: a prefix mask is causal already, so causal & prefix
        is that prefix mask (and prefix & prefix the shorter one)."""
        if not isinstance(other, Mask):
            return NotImplemented
        prefixes = [p for p in (self.prefix, other.prefix) if p is not None]
        prefix = prefixes[0] if prefixes else None
        if len(prefixes) == 2:
            prefix = array_module(prefix).minimum(*prefixes)
        return Mask(
            causal=(self.causal or other.causal) and prefix is None,
            prefix=prefix,
            keys=_both(self.keys, other.keys),
            allowed=_both(self.allowed, other.allowed),
        )

    def dense(self, batch: int, queries: int, keys: int, like: Array | None = None) -> Array:
        """The mask as a bool array (batch, 1 or H, queries, keys), for reading and for drawing.

        like: an array whose library (NumPy or CuPy) the result shall have.

        >>> prefix(3).dense(1, 5, 5)[0, 0].astype(int)
        array([[1, 1, 1, 0, 0],
               [1, 1, 1, 0, 0],
               [1, 1, 1, 0, 0],
               [1, 1, 1, 1, 0],
               [1, 1, 1, 1, 1]])
        """
        parts = (like, self.prefix, self.keys, self.allowed)
        given = [a for a in parts if a is not None]
        xp = array_module(given[0]) if given else np
        self.check(batch, None, queries, keys)
        out = self.rows(xp.arange(batch), queries, keys, 0, queries)
        out = xp.ones((1, 1, 1, 1), bool) if out is None else out
        return xp.broadcast_to(out, (batch, out.shape[1], queries, keys))

    def rows(
        self, batch: Array, queries: int, keys: int, start: int, stop: int, head: Any = slice(None)
    ) -> Array | None:
        """The mask's rows start:stop for some members of the batch; None: everything is visible.

        batch: (N,) indices; head: a slice, or (N,) indices that go with those of `batch`.
        Returns a bool array broadcastable to (N, H, stop - start, keys), with H = 1 for (N,) heads.
        """
        xp = array_module(batch)
        seen = None
        if (self.causal or self.prefix is not None) and start < queries - 1:  # the last sees all
            j = xp.arange(keys)
            i = xp.arange(start, stop)[:, None] + (keys - queries)
            seen = (j <= i)[None, None]
            if self.prefix is not None:
                lengths = self._of(batch, self.prefix)
                seen = seen | (j < lengths[:, None, None, None])
        if self.keys is not None:
            seen = _both(seen, self._of(batch, self.keys)[:, None, None, :])
        if self.allowed is not None:
            seen = _both(seen, self._allowed_rows(batch, queries, keys, start, stop, head))
        return seen

    def sees_all(self, queries: int) -> bool:
        """Whether nothing is forbidden; to a single query, which stands on the last key, neither
        the causal part nor a prefix forbids anything."""
        return (
            self.keys is None
            and self.allowed is None
            and (queries == 1 or not (self.causal or self.prefix is not None))
        )

    def check(
        self, batch: int, heads: int | None, queries: int, keys: int, like: Array | None = None
    ) -> None:
        """Raise unless the parts fit scores (batch, heads, queries, keys), on like's device."""
        parts: tuple[tuple[Any, tuple], ...] = (
            (self.prefix, (batch,)),
            (self.keys, (batch, keys)),
            (self.allowed, (batch, heads, queries, keys)),
        )
        for part, sizes in parts:
            if part is None:
                continue
            if like is not None and type(part) is not type(like):
                raise mixed_devices("attention", [like], part)
            padded = (1,) * (len(sizes) - part.ndim) + part.shape
            fits = [n in (1, size) or size is None for n, size in zip(padded, sizes, strict=True)]
            if part is self.keys:
                fits.append(padded[1] == keys)  # one entry per key: a single one is a mistake
            if not all(fits):
                raise ValueError(
                    f"a mask of {part.shape} does not fit {queries} queries and {keys} keys in a "
                    f"batch of {batch}: it must be {sizes}, with keys in the cache included"
                )

    def _of(self, batch: Array, values: Array) -> Array:
        return values if len(values) == 1 else values[batch]

    def _allowed_rows(
        self, batch: Array, queries: int, keys: int, start: int, stop: int, head: Any
    ) -> Array:
        allowed: Array = self.allowed
        allowed = allowed.reshape((1,) * (4 - allowed.ndim) + allowed.shape)
        if allowed.shape[2] != 1:
            allowed = allowed[:, :, start:stop]
        if isinstance(head, slice):
            allowed = self._of(batch, allowed)
            return allowed[:, head] if allowed.shape[1] > 1 else allowed
        if len(allowed) == 1:
            return allowed[0, head if allowed.shape[1] > 1 else head * 0][:, None]
        return allowed[batch, head if allowed.shape[1] > 1 else head * 0][:, None]

    def reorder(self, rows: np.ndarray) -> Mask:
        """The mask of a batch whose members are picked by `rows` (R,), repeated or permuted."""
        picked = {
            name: value[array_module(value).asarray(rows)]
            for name, dims in (("prefix", 1), ("keys", 2), ("allowed", 4))
            if (value := getattr(self, name)) is not None and value.ndim == dims and len(value) > 1
        }
        return replace(self, **picked)


def _both(a: Array | None, b: Array | None) -> Array | None:
    return b if a is None else a if b is None else a & b


def _array(values: Any) -> Array:
    values = raw(values)
    return values if is_array(values) else np.asarray(values)


def full() -> Mask:
    """Everybody sees everybody."""
    return Mask()


def causal() -> Mask:
    """Each token sees itself and what stands before it."""
    return Mask(causal=True)


def prefix(lengths: Any) -> Mask:
    """Prefix LM: lengths, an int or (B,) ints; a prefix of 1 or 0 is the causal mask."""
    lengths = _array(lengths)
    if lengths.dtype.kind not in "iu":
        raise TypeError(f"prefix lengths are integers, not {lengths.dtype}")
    return Mask(prefix=lengths.reshape(-1))


def padding(attention_mask: Any) -> Mask:
    """Which keys exist: attention_mask (B, Tk), 1 or True for a token, 0 or False for padding."""
    attention_mask = _array(attention_mask)
    if attention_mask.ndim != 2:
        raise ValueError(f"attention_mask is {attention_mask.shape}: it must be (batch, keys)")
    return Mask(keys=attention_mask.astype(bool))


def of_tokens(attention_mask: Any, like: Array) -> Mask:
    """A Mask of what models are given: None (full), a Mask, or an attention_mask as in `padding`,
    which may also be on another device than `like`."""
    if attention_mask is None:
        return full()
    if isinstance(attention_mask, Mask):
        return attention_mask
    return padding(array_module(like).asarray(host(attention_mask)))


def allowed(array: Any) -> Mask:
    """Any mask at all: bool, broadcastable to (B, H, Tq, Tk), True where the query may look."""
    array = _array(array)
    if array.dtype != bool or not 2 <= array.ndim <= 4:
        raise TypeError(
            f"a mask is a bool array of 2 to 4 dimensions, True where a query may look; this one "
            f"is {array.dtype} {array.shape}"
        )
    return Mask(allowed=array)


def as_mask(mask: Any) -> Mask:
    """A Mask of what callers give: None (full), a Mask, or a bool array (see `allowed`)."""
    if mask is None:
        return Mask()
    return mask if isinstance(mask, Mask) else allowed(mask)
