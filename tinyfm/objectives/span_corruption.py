"""T5's span corruption: hide runs of a text, and learn to say what stood in each.

Every hidden run becomes one sentinel, another for each, and the labels are these runs after their
sentinels (Raffel et al. 2020, section 3.1.4 and figure 2).  So the decoder writes the 15% that are
hidden and not, as BART's does, the whole text:

    text     Thank you for inviting me to your party last week .
    input    Thank you <0> me to your party <1> week . </s>
    labels   <0> for inviting <1> last <2> </s>
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tinyfm.errors import InputError
from tinyfm.objectives.texts import Ids, text_ids, text_tokens
from tinyfm.tokenizer import Tokenizer


def span_corruption(
    ids: npt.ArrayLike,
    sentinels: Sequence[int],
    end_id: int,
    rng: np.random.Generator | None = None,
    mask: npt.ArrayLike | None = None,
) -> tuple[Ids, Ids]:
    """A text (T,) -> input ids and labels, int64, which both end with `end_id`.

    sentinels  in the order of their use: 32099, 32098, ... in T5's vocabulary
    mask       (T,) bool, True where a token is hidden; without it `random_spans_noise_mask` draws
               15% in spans of 3 on average

    Labels have the next sentinel for each run that is kept after a hidden one.  So they close with
    one where the text ends with a kept token, as in the paper's figure; where it ends hidden, as
    T5's own masks always do, they do not.  A text that begins hidden begins with the first sentinel
    on both sides.  `fill_spans` is the inverse.

    >>> span_corruption([10, 11, 12, 13, 14], [99, 98, 97], 1, mask=[0, 0, 1, 1, 0])
    (array([10, 11, 99, 14,  1]), array([99, 12, 13, 98,  1]))

    Raises InputError for a text of fewer than 2 tokens, one that has a sentinel itself, and one
    that needs more sentinels than there are; ValueError for a mask of another shape and for one
    that hides all or nothing.
    """
    ids = text_ids(ids)
    if len(ids) < 2:
        raise InputError(
            f"a text of {len(ids)} tokens has nothing to hide and keep; give 2 or more"
        )
    if mask is None:
        if rng is None:
            raise ValueError("give the mask of what is hidden, or rng to draw it")
        mask = random_spans_noise_mask(len(ids), rng)
    hidden = np.asarray(mask, bool)
    if hidden.shape != ids.shape:
        raise ValueError(f"mask has shape {hidden.shape} and ids {ids.shape}; give one for each")
    if hidden.all() or not hidden.any():
        raise ValueError("mask hides all tokens or none; hide and keep one at least")
    if (held := np.isin(ids, sentinels)).any():
        raise InputError(f"the text has the sentinel {ids[held][0]} itself; leave it out")

    begins = hidden & ~np.append(False, hidden[:-1])
    needed = int(begins.sum()) + int(not hidden[-1])
    if needed > len(sentinels):
        raise InputError(
            f"the hidden runs of a text of {len(ids)} tokens need {needed} sentinels, and there "
            f"are {len(sentinels)}; give shorter texts, or hide fewer and longer runs"
        )
    marks = np.asarray(sentinels, np.int64)[:needed]
    runs = np.cumsum(begins) - 1
    inputs = np.where(begins, marks[runs], ids)[begins | ~hidden]
    # A sentinel goes before each hidden run, and before the end where kept tokens stand.
    before = np.append(np.cumsum(hidden)[begins] - 1, [] if hidden[-1] else [hidden.sum()])
    labels = np.insert(ids[hidden], before.astype(int), marks)
    return np.append(inputs, end_id), np.append(labels, end_id)


def fill_spans(
    ids: npt.ArrayLike, labels: npt.ArrayLike, sentinels: Sequence[int], end_id: int
) -> Ids:
    """Put each run of the labels in the place of its sentinel: the inverse of `span_corruption`.

    Both sides may have lost their end token.  For labels that a model wrote: where they leave out a
    sentinel of the input nothing is put, and what they have before the first one is dropped.

    >>> fill_spans([10, 11, 99, 14, 1], [99, 12, 13, 98, 1], [99, 98, 97], end_id=1)
    array([10, 11, 12, 13, 14])
    """
    kept, answers = (_without_end(text_ids(side), end_id) for side in (ids, labels))
    marks = np.flatnonzero(np.isin(answers, sentinels))
    runs = {int(run[0]): run[1:] for run in np.split(answers, marks)[1:]}
    known = set(sentinels)
    nothing = np.zeros(0, np.int64)
    filled = [runs.get(id, nothing) if id in known else [id] for id in kept.tolist()]
    return np.concatenate([nothing, *filled])


def _without_end(ids: Ids, end_id: int) -> Ids:
    return ids[:-1] if len(ids) and ids[-1] == end_id else ids


# -- what is hidden --------------------------------------------------------------------------------


def random_spans_noise_mask(
    length: int, rng: np.random.Generator, p: float = 0.15, mean: float = 3.0
) -> npt.NDArray[np.bool_]:
    """T5's own choice of what to hide -> (length,) bool, under the name of its authors' code.

    round(p x length) tokens are hidden, at least one and not all, in round(hidden / mean) spans,
    halves to the even side (Python's `round`).  The lengths of the hidden spans, and those of the
    kept ones between, are drawn so that all divisions into so many parts are as likely.  The first
    part is kept and the last one hidden: in a text of 30 tokens or fewer it is the end.

    Raises ValueError for a length below 2, p outside 0 to 1 and a mean below 1.
    """
    hidden, spans = _counts(length, p, mean)
    parts = _parts(length - hidden, spans, rng), _parts(hidden, spans, rng)
    return np.repeat(np.tile([False, True], spans), np.stack(parts, axis=1).ravel())


def _counts(length: int, p: float, mean: float) -> tuple[int, int]:
    """How many of `length` tokens are hidden, and in how many spans."""
    if length < 2:
        raise ValueError(f"length is {length}; one token to hide and one to keep need 2")
    if not 0 < p < 1:
        raise ValueError(f"p is {p}; give a share above 0 and below 1")
    if not mean >= 1:
        raise ValueError(f"mean is {mean}; give a mean length of spans of 1 or more")
    hidden = min(max(round(length * p), 1), length - 1)
    return hidden, min(max(round(hidden / mean), 1), length - hidden)


def _parts(total: int, count: int, rng: np.random.Generator) -> Ids:
    """`total` divided into `count` parts of 1 or more, at random."""
    cuts = np.sort(rng.permutation(total - 1)[: count - 1]) + 1
    return np.diff(cuts, prepend=0, append=total)


def corrupted_lengths(length: int, p: float = 0.15, mean: float = 3.0) -> tuple[int, int]:
    """How long input and labels become, with their end tokens, if T5 hides parts of a text.

    >>> corrupted_lengths(568)
    (512, 114)
    """
    hidden, spans = _counts(length, p, mean)
    return length - hidden + spans + 1, hidden + spans + 1


def raw_length(input_length: int, p: float = 0.15, mean: float = 3.0) -> int:
    """The longest text whose input is no longer than `input_length`: T5 cuts its data by it.

    >>> raw_length(512)
    568

    Raises ValueError for an input_length below 3, which no text of 2 tokens fits.
    """
    if input_length < 3:
        raise ValueError(f"input_length is {input_length}; a text of 2 tokens needs 3")
    length = 2
    while corrupted_lengths(length + 1, p, mean)[0] <= input_length:
        length += 1
    return length


# -- from text -------------------------------------------------------------------------------------


def span_corruption_examples(
    texts: Iterable[str],
    tokenizer: Tokenizer,
    rng: np.random.Generator,
    input_length: int = 512,
    p: float = 0.15,
    mean: float = 3.0,
) -> Iterator[dict[str, Ids]]:
    """One pass over the texts: examples with input_ids, no longer than input_length, and labels.

    The texts are put together, with nothing between them, and cut where they fill an input, as T5
    does, so that nothing needs padding; only the last example is shorter, and a single token that
    is left over has none.  Another pass, with the same generator, hides other spans.

    Raises InputError for a vocabulary without end token or sentinels; else as `span_corruption`.
    """
    sentinels, end_id = tokenizer.sentinels, tokenizer.eos_id
    if end_id is None or not sentinels:
        raise InputError("the vocabulary has no </s> or no <extra_id_0>; take one such as T5's")
    documents = (text_tokens(text, tokenizer).ids for text in texts)
    for block in _blocks(documents, raw_length(input_length, p, mean)):
        if len(block) > 1:
            mask = random_spans_noise_mask(len(block), rng, p, mean)
            inputs, labels = span_corruption(block, sentinels, end_id, mask=mask)
            yield {"input_ids": inputs, "labels": labels}


def _blocks(documents: Iterable[Ids], length: int) -> Iterator[Ids]:
    """The documents one after the other, cut after each `length` tokens, and what is left."""
    rest = np.zeros(0, np.int64)
    for ids in documents:
        rest = np.append(rest, ids)
        while len(rest) >= length:
            yield rest[:length]
            rest = rest[length:]
    if len(rest):
        yield rest
