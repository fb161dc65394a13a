"""BART's denoising: spoil a text in any way, and learn to write it as it was.

The encoder reads what five noises, alone or composed, have left of a text; the decoder's labels are
the whole text (Lewis et al. 2020, section 2.2).  So an input may have any length, and one mask may
stand for any number of words.  Noises get a text without <s> and </s>, which stay where they are:
`denoising_examples` puts them around input and labels.

Noises only move, drop and hide tokens.  Each is therefore a list of places: where in the text the
tokens of its result come from, with MASK where none of them stands.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tinyfm.errors import InputError
from tinyfm.objectives.texts import Ids, text_ids, text_tokens
from tinyfm.tokenizer import Tokenizer

MASK = -1  # so that it is the last place of a text with the mask's id put behind (see _taken)
NOISES = ("permute", "mask", "delete", "infill", "rotate")  # in the order in which they are applied


# -- the five noises -------------------------------------------------------------------------------


def token_masking(
    ids: npt.ArrayLike,
    mask_id: int,
    rng: np.random.Generator | None,
    p: float,
    positions: Sequence[int] | None = None,
) -> Ids:
    """Hide ceil(p T) tokens, each behind a mask: ids (T,) -> (T,) int64.

    positions: these tokens instead of random ones; then rng may be None.

    >>> token_masking([10, 11, 12, 5, 13, 14, 5], mask_id=3, rng=None, p=0.3, positions=[1, 4])
    array([10,  3, 12,  5,  3, 14,  5])

    Raises TypeError for ids that are not integers, ValueError for ids of another shape, p outside
    0 to 1 and positions outside the text.
    """
    ids = text_ids(ids)
    return _taken(ids, _masked(len(ids), _positions(len(ids), rng, p, positions)), mask_id)


def token_deletion(
    ids: npt.ArrayLike,
    rng: np.random.Generator | None,
    p: float,
    positions: Sequence[int] | None = None,
) -> Ids:
    """Drop ceil(p T) tokens, so that the model has to find where some are missing.

    As `token_masking`, but (T,) becomes (T - ceil(p T),).

    >>> token_deletion([10, 11, 12, 5, 13, 14, 5], rng=None, p=0.3, positions=[1, 4])
    array([10, 12,  5, 14,  5])
    """
    ids = text_ids(ids)
    return np.delete(ids, _positions(len(ids), rng, p, positions))


def text_infilling(
    ids: npt.ArrayLike,
    mask_id: int,
    rng: np.random.Generator | None,
    ratio: float = 0.3,
    mean: float = 3.0,
    word_starts: npt.ArrayLike | None = None,
    spans: Sequence[tuple[int, int]] | npt.NDArray[np.int64] | None = None,
) -> Ids:
    """Hide spans of words, each behind one mask, so that the model has to tell how many there were.

    ratio, mean, word_starts: see `infilling_spans`, which draws the spans.
    spans: (start, end) for each, in tokens and without the end, instead of random ones; then rng
        may be None.  An empty span puts a mask before its start.  What overlaps becomes one mask;
        what only touches stays two, as in the original.

    ids (T,) -> int64, of another length.  Errors as in `token_masking`.

    >>> text_infilling([10, 11, 12, 5, 13, 14, 5], mask_id=3, rng=None, spans=[(1, 3), (5, 5)])
    array([10,  3,  5, 13,  3, 14,  5])
    """
    ids = text_ids(ids)
    if spans is None:
        starts = _word_starts(word_starts, len(ids))
        spans = infilling_spans(starts, _needed(rng, "spans"), ratio, mean)
    return _taken(ids, _infilled(len(ids), spans), mask_id)


def sentence_permutation(
    ids: npt.ArrayLike,
    sentence_end_id: int | Collection[int],
    rng: np.random.Generator | None,
    order: Sequence[int] | None = None,
) -> Ids:
    """Shuffle the sentences: ids (T,) -> (T,) int64.

    A sentence ends with a token of `sentence_end_id`, one id or several, unless another one stands
    before it; what is left at the end of the text is a sentence, too.
    order: the sentences, counted from 0, instead of a random order; then rng may be None.

    >>> sentence_permutation([10, 11, 12, 5, 13, 14, 5], 5, rng=None, order=[1, 0])
    array([13, 14,  5, 10, 11, 12,  5])

    Raises ValueError for an order that has not each sentence once; else as `token_masking`.
    """
    ids = text_ids(ids)
    return ids[_permuted(ids, sentence_end_id, rng, order)]


def document_rotation(
    ids: npt.ArrayLike, rng: np.random.Generator | None, start: int | None = None
) -> Ids:
    """Begin the text at another of its tokens, and put what stood before it to the end.

    ids (T,) -> (T,) int64.  All tokens are as likely to begin it, the first among them.
    start: this one instead of a random one; then rng may be None.

    >>> document_rotation([10, 11, 12, 5, 13, 14, 5], rng=None, start=2)
    array([12,  5, 13, 14,  5, 10, 11])

    Raises ValueError for a start outside the text; else as `token_masking`.
    """
    ids = text_ids(ids)
    return ids[_rotated(len(ids), rng, start)]


def denoise(
    ids: npt.ArrayLike,
    mask_id: int,
    sentence_end_id: int | Collection[int],
    rng: np.random.Generator,
    noises: Collection[str] = ("permute", "infill"),
    ratio: float = 0.3,
    mean: float = 3.0,
    word_starts: npt.ArrayLike | None = None,
    random_share: float = 0.0,
    vocab_size: int | None = None,
) -> Ids:
    """What the encoder gets to read of a text: ids (T,) -> int64, of another length.

    noises: which of permute, mask, delete, infill and rotate; they come in this order.
    ratio: the share that mask, delete and infill hide; mean, word_starts: see `infilling_spans`.
    random_share: so many of the masks become any id from 1 to vocab_size - 1, special ones too,
        each drawn for itself.  The authors' own command has 0.1, with a mean of 3.5.

    Raises ValueError for unknown noises and what is out of range; else as `token_masking`.
    """
    ids = text_ids(ids)
    starts = _word_starts(word_starts, len(ids))
    if unknown := [noise for noise in noises if noise not in NOISES]:
        raise ValueError(f"noise {unknown[0]!r} is unknown; choose from {', '.join(NOISES)}")
    _check_share("ratio", ratio)
    _check_share("random_share", random_share)
    if random_share and vocab_size is None:
        raise ValueError("random_share needs vocab_size, to draw ids from")

    places = np.arange(len(ids))
    for noise in (known for known in NOISES if known in noises):
        now, length = _taken(ids, places, mask_id), len(places)
        if noise == "permute":
            step = _permuted(now, sentence_end_id, rng)
        elif noise == "mask":
            step = _masked(length, _positions(length, rng, ratio))
        elif noise == "delete":
            step = np.delete(np.arange(length), _positions(length, rng, ratio))
        elif noise == "infill":
            step = _infilled(
                length, infilling_spans(_taken(starts, places, True), rng, ratio, mean)
            )
        else:
            step = _rotated(length, rng)
        places = _taken(places, step, MASK)

    spoilt = _taken(ids, places, mask_id)
    masks = np.flatnonzero(places == MASK)
    if random_share:
        replaced = masks[rng.random(len(masks)) < random_share]
        spoilt[replaced] = rng.integers(1, vocab_size, len(replaced))
    return spoilt


# -- what they draw --------------------------------------------------------------------------------


def infilling_spans(
    word_starts: npt.ArrayLike, rng: np.random.Generator, ratio: float = 0.3, mean: float = 3.0
) -> Ids:
    """Spans for `text_infilling` -> (K, 2) int64, each with its start and end in tokens.

    word_starts  (T,) bool, True where a word begins: spans begin there and are counted in words, as
                 in the original.  All True counts in tokens.
    ratio        ceil(ratio x words) words are hidden, fewer where spans overlap or the text ends
    mean         of the Poisson distribution of the lengths; the last length is cut to fit

    No two spans begin at one word.  Those of length 0 hide nothing, and are put anywhere between
    what is left, so that the model cannot rely on there being something behind each mask.

    Raises ValueError for a ratio outside 0 to 1 and a mean outside 0.1 to 100.
    """
    starts = np.asarray(word_starts, bool)
    _check_share("ratio", ratio)
    if not 0.1 <= mean <= 100:
        raise ValueError(f"mean is {mean}; give a mean length of spans from 0.1 to 100")
    words = np.flatnonzero(starts)
    lengths = _lengths(_share_of(len(words), ratio), mean, rng)

    hidden = lengths[lengths > 0]
    first = rng.permutation(len(words))[: len(hidden)]
    ends = np.append(words, len(starts))
    spans = np.stack([words[first], ends[np.minimum(first + hidden, len(words))]], axis=1)

    # Random slots among the tokens that are left and the new masks: so all arrangements are alike.
    left = np.append(np.flatnonzero(~_inside(len(starts), spans)), len(starts))
    inserted = len(lengths) - len(hidden)
    slots = np.sort(rng.permutation(len(left) - 1 + inserted)[:inserted])
    before = left[slots - np.arange(inserted)]
    return np.concatenate([spans, np.stack([before, before], axis=1)])


def _lengths(budget: int, mean: float, rng: np.random.Generator) -> Ids:
    """Poisson lengths, some of them 0, until together they are `budget` words."""
    chances = _poisson(mean)
    lengths = np.zeros(0, np.int64)
    while lengths.sum() < budget:
        lengths = np.append(lengths, rng.choice(len(chances), budget, p=chances))
    total = np.cumsum(lengths)
    lengths = lengths[: np.searchsorted(total, budget) + 1]
    lengths[-1:] -= total[len(lengths) - 1 : len(lengths)] - budget
    return lengths


def _poisson(mean: float) -> npt.NDArray[np.float64]:
    """P(0), P(1), ... up to the first beyond the mean that is below 1e-7, with the sum 1."""
    chances = [math.exp(-mean)]
    while len(chances) <= mean or chances[-1] >= 1e-7:
        chances.append(chances[-1] * mean / len(chances))
    return np.array(chances) / sum(chances)


def _share_of(count: int, share: float) -> int:
    """ceil(share x count), where 0.07 x 100 is 7 and not 7.000000000000001."""
    return math.ceil(round(share * count, 6))


def _positions(
    length: int,
    rng: np.random.Generator | None,
    p: float,
    positions: Sequence[int] | None = None,
) -> Ids:
    if positions is not None:
        chosen = np.asarray(positions)
        if chosen.size and (chosen.dtype.kind not in "iu" or chosen.ndim != 1):
            raise TypeError(
                f"positions are {chosen.dtype}, {chosen.shape}: give the places of tokens, "
                "integers (K,)"
            )
        chosen = chosen.astype(np.int64)
        if outside := [i for i in chosen.tolist() if not 0 <= i < length]:
            raise ValueError(f"position {outside[0]} is outside the text of {length} tokens")
        return chosen
    _check_share("p", p)
    return _needed(rng, "positions").permutation(length)[: _share_of(length, p)]


# -- as places -------------------------------------------------------------------------------------


def _taken(values: npt.NDArray, places: Ids, mask: int) -> npt.NDArray:
    """The values at the places, `mask` where none of them stands."""
    return np.append(values, mask)[places]


def _masked(length: int, positions: Ids) -> Ids:
    places = np.arange(length)
    places[positions] = MASK
    return places


def _infilled(length: int, spans: Sequence[tuple[int, int]] | npt.NDArray[np.int64]) -> Ids:
    spans = np.asarray(spans, np.int64).reshape(-1, 2)
    for start, end in spans.tolist():
        if not 0 <= start <= end <= length:
            raise ValueError(
                f"span ({start}, {end}) is not in the text of {length} tokens; give (start, end)"
            )
    starts, ends = spans.T
    empty = starts == ends
    places = _masked(length, starts[~empty])
    left = ~_inside(length, spans)
    return np.insert(places, starts[empty], MASK)[np.insert(left, starts[empty], True)]


def _inside(length: int, spans: Ids) -> npt.NDArray[np.bool_]:
    """(T,): which tokens a span hides beside its first one, in whose place the mask stands."""
    inside = np.zeros(length, bool)
    for start, end in spans:
        inside[start + 1 : end] = True
    return inside


def _permuted(
    ids: Ids,
    sentence_end_id: int | Collection[int],
    rng: np.random.Generator | None,
    order: Sequence[int] | None = None,
) -> Ids:
    if not isinstance(sentence_end_id, Collection):
        sentence_end_id = [sentence_end_id]
    ends = np.isin(ids, list(sentence_end_id))
    ends[1:] &= ~ends[:-1]
    ends[-1:] = False  # the last sentence ends there without saying so
    sentences = np.split(np.arange(len(ids)), np.flatnonzero(ends) + 1)
    if order is None:
        order = _needed(rng, "order").permutation(len(sentences)).tolist()
    elif sorted(order) != list(range(len(sentences))):
        raise ValueError(
            f"order is {list(order)}: it must have each of the {len(sentences)} sentences once, "
            "counted from 0"
        )
    return np.concatenate([sentences[i] for i in order])


def _rotated(length: int, rng: np.random.Generator | None, start: int | None = None) -> Ids:
    if start is None:
        start = int(_needed(rng, "start").integers(max(length, 1)))
    elif not 0 <= start < length:
        raise ValueError(f"start {start} is outside the text of {length} tokens")
    return np.roll(np.arange(length), -start)


# -- checks ----------------------------------------------------------------------------------------


def _word_starts(word_starts: npt.ArrayLike | None, length: int) -> npt.NDArray[np.bool_]:
    starts = np.ones(length, bool) if word_starts is None else np.asarray(word_starts, bool)
    if starts.shape != (length,):
        raise ValueError(
            f"word_starts have shape {starts.shape}, and the text has {length} tokens; give True "
            "or False for each"
        )
    return starts


def _check_share(name: str, share: float) -> None:
    if not 0 <= share <= 1:
        raise ValueError(f"{name} is {share}; give a share from 0 to 1")


def _needed(rng: np.random.Generator | None, otherwise: str) -> np.random.Generator:
    if rng is None:
        raise ValueError(f"rng is None; give a NumPy generator, or {otherwise}")
    return rng


# -- from text -------------------------------------------------------------------------------------


def denoising_examples(
    texts: Iterable[str],
    tokenizer: Tokenizer,
    rng: np.random.Generator,
    noises: Collection[str] = ("permute", "infill"),
    ratio: float = 0.3,
    mean: float = 3.0,
    random_share: float = 0.0,
    whole_words: bool = True,
    max_length: int | None = None,
) -> Iterator[dict[str, Ids]]:
    """One pass over the texts: each with noise as input_ids, and as it was as labels.

    Both have <s> before and </s> behind, and the decoder's first label is <s>.  Another pass, with
    the same generator, spoils the texts in another way.  Texts without a token are left out.

    whole_words: infilling counts in words, as the original does, or in tokens.
    max_length: of input and labels each, with <s> and </s>; ends of texts are cut off.

    Raises InputError for a vocabulary without <s>, </s> or a mask; else as `denoise`.
    """
    bos, eos, mask = tokenizer.bos_id, tokenizer.eos_id, tokenizer.mask_id
    if None in (bos, eos, mask):
        raise InputError("the vocabulary has no <s>, </s> or <mask>; take one such as BART's")
    if max_length is not None and max_length < 3:
        raise ValueError(f"max_length is {max_length}; <s>, a token and </s> need 3")
    room = None if max_length is None else max_length - 2
    for text in texts:
        ids, word_starts, sentence_end_ids = text_tokens(text, tokenizer)
        ids, word_starts = ids[:room], word_starts[:room]
        if not len(ids):
            continue
        spoilt = denoise(
            ids,
            mask,
            sentence_end_ids,
            rng,
            noises,
            ratio,
            mean,
            word_starts if whole_words else None,
            random_share,
            len(tokenizer),
        )
        yield {
            # Masks of empty spans may have made it longer.
            "input_ids": np.concatenate([[bos], spoilt[:room], [eos]]),
            "labels": np.concatenate([[bos], ids, [eos]]),
        }
