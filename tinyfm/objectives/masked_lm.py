"""Masked language modelling: hide some words of a text, and learn to say what they were.

The loss is taken at the hidden places alone, so a model may look both ways without seeing the
answer.  Masks are static or dynamic by the moment of the call, not by another function:

static   BERT hides words once, while its data are prepared, in 10 copies of every text, and all
         epochs read these: `mask_tokens(np.repeat(ids, 10, axis=0), ...)`
dynamic  RoBERTa hides words anew whenever a text is read: call `mask_tokens` on each batch
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tinyfm.data import IGNORE_INDEX


def mask_tokens(
    ids: npt.ArrayLike,
    special: npt.ArrayLike,
    mask_id: int,
    vocab_size: int,
    rng: np.random.Generator,
    p: float = 0.15,
    recipe: str = "bert",
    special_ids: Sequence[int] = (),
    max_predictions: int | None = None,
) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.int64]]:
    """Choose about `p` of every text's tokens and hide most of them (Devlin et al. 2018, 3.1).

    80% of the chosen become `mask_id`, 10% a random id and 10% stay, each drawn for itself. Without
    the last two a model would learn that words other than [MASK] need no attention, and fine-tuned
    it meets nothing else.

    ids      (..., T) integers: one text or a batch; each row is a text
    special  (..., T) bool, True at [CLS], [SEP] and padding: these are never chosen
    returns  ids of the same shape and dtype, and labels (..., T) int64: the original id where a
             token was chosen, whatever stands there now, and -100 elsewhere

    recipe: how many tokens of a text are chosen, and what a random id is drawn from.
        bert     round(p * length), the length with its special tokens and halves to the even side
                 (Python's `round`); the whole vocabulary, special tokens included
        roberta  p * length, rounded up or down at random so that the mean is exact (fairseq); the
                 vocabulary without `special_ids`
        hf       every token with probability p, as in Hugging Face's collator; whole vocabulary
    Two rules hold for all three, although fairseq may choose special tokens and the collator
    nothing at all: special tokens are left alone, and any text with a normal token has at least one
    chosen.
    max_predictions: the most that are chosen in a text (BERT: 20 of 128, 77 of 512).

    The length is counted from the special token before the first normal one to the special token
    after the last, for what lies outside is padding.

    Raises TypeError for ids that are not integers, ValueError for an unknown recipe, shapes that
    differ, numbers out of range and ids of a dtype that does not hold the whole vocabulary.
    """
    ids, hidden = np.asarray(ids), np.array(ids)
    normal = ~np.asarray(special, bool)
    _check(ids, normal, mask_id, vocab_size, p, recipe, special_ids, max_predictions)

    length = _lengths(normal)
    candidates = normal.sum(axis=-1)
    if recipe == "bert":
        count = np.rint(p * length)
    elif recipe == "roberta":
        count = np.floor(p * length + rng.random(length.shape))
    else:  # independent draws: their number is binomial, and who they hit is uniform
        count = rng.binomial(candidates, p)
    most = candidates if max_predictions is None else np.minimum(candidates, max_predictions)
    count = np.minimum(np.maximum(count, 1), most)

    # A random order of every row with the special tokens last; the first `count` are chosen.
    order = np.argsort(np.where(normal, rng.random(ids.shape), 2.0), axis=-1)
    chosen = np.zeros(ids.shape, bool)
    np.put_along_axis(chosen, order, np.arange(ids.shape[-1]) < count[..., None], axis=-1)

    labels = np.where(chosen, ids.astype(np.int64), IGNORE_INDEX)
    fate = np.where(chosen, rng.random(ids.shape), np.nan)  # nan: neither below nor above
    hidden[fate < 0.8] = mask_id
    replaced = fate >= 0.9
    drawn_from = np.arange(vocab_size)
    if recipe == "roberta":
        drawn_from = np.delete(drawn_from, np.asarray(special_ids, int))
    hidden[replaced] = rng.choice(drawn_from, replaced.sum())
    return hidden, labels


def _lengths(normal: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """The length of each row's text with its special tokens, without padding on either side."""
    size = normal.shape[-1]
    places = np.arange(size)
    first = np.where(normal, places, size).min(axis=-1, initial=size)
    last = np.where(normal, places, -1).max(axis=-1, initial=-1)
    return np.minimum(last + 1, size - 1) - np.maximum(first - 1, 0) + 1


def _check(
    ids: npt.NDArray[np.integer],
    normal: npt.NDArray[np.bool_],
    mask_id: int,
    vocab_size: int,
    p: float,
    recipe: str,
    special_ids: Sequence[int],
    max_predictions: int | None,
) -> None:
    if not np.issubdtype(ids.dtype, np.integer):
        raise TypeError(f"mask_tokens: ids must be integers, not {ids.dtype}")
    if ids.shape != normal.shape or ids.ndim == 0:
        raise ValueError(
            f"mask_tokens: ids have shape {ids.shape} and special {normal.shape}; both are (..., T)"
        )
    if recipe not in ("bert", "hf", "roberta"):
        raise ValueError(f"mask_tokens: recipe {recipe!r} is unknown; take bert, hf or roberta")
    if not 0 < p <= 1:
        raise ValueError(f"mask_tokens: p is {p}; give a share above 0 and up to 1")
    if max_predictions is not None and max_predictions < 1:
        raise ValueError(f"mask_tokens: max_predictions is {max_predictions}; give 1 or more")
    for name, values in (("mask_id", [mask_id]), ("special_ids", special_ids)):
        if outside := [i for i in values if not 0 <= i < vocab_size]:
            raise ValueError(
                f"mask_tokens: {name} {outside[0]} is not below vocab_size {vocab_size}"
            )
    if (largest := np.iinfo(ids.dtype).max) < vocab_size - 1:
        raise ValueError(
            f"mask_tokens: ids of {ids.dtype} reach to {largest}, and a vocabulary of {vocab_size} "
            "to more; give int64"
        )
