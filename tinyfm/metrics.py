"""Scores of predictions against references: small functions over plain lists.

Language models have perplexity; translations BLEU (0 to 100); summaries ROUGE; classes accuracy, F1
and Matthews' coefficient; numbers Pearson's and Spearman's; tagged words entity F1; answers exact
match and F1. All but the first two go up to 1. The truth comes first and the predictions second,
but for BLEU and ROUGE, where it is the other way round, as in sacrebleu. Lists that are empty or
differ in length are a ValueError that names the function and the lengths.
"""

import math
import re
import string
from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Labels = Sequence[Hashable] | npt.NDArray[Any]


class Bleu(NamedTuple):
    """A BLEU score (0 to 100) and the settings that it was taken with, smoothing included."""

    score: float
    signature: str


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Bleu:
    """BLEU over a whole corpus, one reference a sentence (Papineni et al. 2002, Post 2018).

    The n-grams of all sentences are counted together; the mean of sentence scores would be
    another number. The settings are sacrebleu's own, so that scores compare with published ones:
    13a tokens, case kept, and `exp` smoothing, which replaces a zero count among longer n-grams
    by 1/2, 1/4, ... but leaves the score 0 where not even one word matches.

    Texts are as people write them, not cut into tokens, which other software would cut anew.

    13a cuts at spaces and punctuation, so a Korean word with its particle counts as one token.

    Raises ValueError when the lists differ in length or are empty.
    """
    from sacrebleu import BLEU

    if len(hypotheses) != len(references):
        raise ValueError(
            f"corpus_bleu: {len(hypotheses)} hypotheses but {len(references)} references; "
            "every sentence needs exactly one"
        )
    if not hypotheses:
        raise ValueError("corpus_bleu: no sentences to score")
    bleu = BLEU(force=True)  # no warning where a few texts look as if they were tokens
    score = bleu.corpus_score(hypotheses, [references]).score
    return Bleu(score, str(bleu.get_signature()))


class Rouge(NamedTuple):
    """The means over all texts, 0 to 1, under the names that rouge-score gives them."""

    rouge1: float
    rouge2: float
    rougeL: float


def rouge(predictions: Sequence[str], references: Sequence[str | Sequence[str]]) -> Rouge:
    """ROUGE-1, ROUGE-2 and ROUGE-L of summaries, each as F1 (Lin 2004).

    references: of each text one, or several, of which the one with the best ROUGE-1 gives all three
    scores, as in SciTLDR (Cachola et al. 2020)

    ROUGE-1 and -2 count the words and the pairs of neighbours that both texts have, as often as
    both have them; ROUGE-L is the longest sequence of words that is in both in this order, with or
    without others between.

    Words are taken as the package rouge-score takes them by default: lower-cased runs of a to z and
    0 to 9, and not stemmed, which would find a few more. What is in another script than the Latin
    one, such as Korean, therefore scores nothing.

    A share of nothing is 0.0. ValueError also for a text without a reference.
    """
    _check_lengths("rouge", references, predictions)
    several = [[text] if isinstance(text, str) else text for text in references]
    for number, texts in enumerate(several):
        if not texts:
            raise ValueError(f"rouge: text {number} has no reference; give at least one")
    best = [
        max(_rouge(text, prediction) for text in texts)
        for texts, prediction in zip(several, predictions, strict=True)
    ]
    return Rouge(*(sum(scores) / len(scores) for scores in zip(*best, strict=True)))


def rouge_words(text: str) -> list[str]:
    """The words of a text that ROUGE counts."""
    return re.findall("[a-z0-9]+", text.lower())


def _rouge(*texts: str) -> Rouge:
    reference, words = map(rouge_words, texts)
    pairs = list(pairwise(reference)), list(pairwise(words))
    return Rouge(
        _f1(_common(reference, words), len(reference), len(words)),
        _f1(_common(*pairs), *map(len, pairs)),
        _f1(_longest_common(reference, words), len(reference), len(words)),
    )


def _longest_common(a: list[str], b: list[str]) -> int:
    """The length of the longest sequence that comes out of both by leaving words out."""
    row = [0] * (len(b) + 1)  # of the words of a so far and the first 0, 1, ... of b
    for word in a:
        above, row = row, [0]
        for j, other in enumerate(b):
            row.append(above[j] + 1 if word == other else max(above[j + 1], row[j]))
    return row[-1]


# Language models


def perplexity(sums: npt.ArrayLike, counts: npt.ArrayLike) -> float:
    """exp(total negative log-likelihood / counted tokens): among how many words it hesitates.

    sums: in nats, of each batch or text, or of all; counts: how many tokens each one is the sum of.
    Only the totals matter, so that the batches, and the padding in them, do not. A mean over texts
    would be another number.

    Infinite where it is beyond the floating point numbers. Raises ValueError when the two differ in
    shape or no token was counted.
    """
    losses, tokens = np.asarray(sums, np.float64), np.asarray(counts)
    if losses.shape != tokens.shape:
        raise ValueError(f"perplexity: sums {losses.shape} but counts {tokens.shape}")
    if not tokens.sum() > 0:
        raise ValueError("perplexity: no tokens were counted; give a text of at least two")
    with np.errstate(over="ignore"):
        return float(np.exp(losses.sum() / tokens.sum()))


# Classes


def accuracy(true: Labels, predicted: Labels) -> float:
    """The share of equal labels."""
    pairs = _pairs("accuracy", true, predicted)
    return sum(t == p for t, p in pairs) / len(pairs)


def f1(true: Labels, predicted: Labels, positive: Hashable) -> float:
    """F1 of one class: the harmonic mean of precision and recall, 2 TP / (2 TP + FP + FN).

    0.0 where the class occurs neither in truth nor in predictions, so that it is undefined.
    """
    pairs = [(t == positive, p == positive) for t, p in _pairs("f1", true, predicted)]
    there, named = (sum(each) for each in zip(*pairs, strict=True))
    return _f1(sum(t and p for t, p in pairs), there, named)


def macro_f1(true: Labels, predicted: Labels) -> float:
    """The mean of the F1 of every class that occurs in truth or predictions."""
    classes = {label for pair in _pairs("macro_f1", true, predicted) for label in pair}
    return sum(f1(true, predicted, positive=c) for c in classes) / len(classes)


def matthews(true: Labels, predicted: Labels) -> float:
    """Matthews' correlation coefficient, in Gorodkin's form (2004) for any number of classes.

    (c s - sum_k t_k p_k) / sqrt((s^2 - sum_k t_k^2) (s^2 - sum_k p_k^2)) for s examples, of which
    c are right, t_k are of class k and p_k were predicted as k. Two classes make it
    (TP TN - FP FN) / sqrt((TP+FP) (TP+FN) (TN+FP) (TN+FN)) (Matthews 1975).

    0.0 where truth or predictions are all of one class, so that it is undefined.
    """
    pairs = _pairs("matthews", true, predicted)
    size, right = len(pairs), sum(t == p for t, p in pairs)
    t, p = map(Counter, zip(*pairs, strict=True))
    spread = (size**2 - sum(n**2 for n in t.values())) * (size**2 - sum(n**2 for n in p.values()))
    if spread == 0:
        return 0.0
    return (right * size - sum(t[k] * p[k] for k in t)) / math.sqrt(spread)


def _pairs(function: str, true: Labels, predicted: Labels) -> list[tuple[Hashable, Hashable]]:
    _check_lengths(function, true, predicted)
    # Python's own objects, for NumPy's booleans add up to booleans.
    t, p = (x.tolist() if isinstance(x, np.ndarray) else x for x in (true, predicted))
    return list(zip(t, p, strict=True))


# Numbers


def pearson(true: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """Pearson's correlation coefficient of two lists of numbers: how well a line fits.

    0.0 where all of one list are equal, so that it is undefined. ValueError for what is no finite
    number or not one-dimensional.
    """
    return _correlation(_numbers("pearson", true, predicted))


def spearman(true: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """Spearman's rank correlation: Pearson's of the ranks; equal numbers share their mean rank.

    Undefined cases and errors as in `pearson`.
    """
    x, y = _numbers("spearman", true, predicted)
    return _correlation((_mean_ranks(x), _mean_ranks(y)))


def _numbers(
    function: str, *lists: npt.ArrayLike
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    x, y = (np.asarray(numbers, np.float64) for numbers in lists)
    if x.ndim != 1 or y.ndim != 1:
        raise ValueError(f"{function}: shapes {x.shape} and {y.shape}; give two flat lists")
    _check_lengths(function, x, y)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError(f"{function}: not all numbers are finite; leave NaN and infinity out")
    return x, y


def _correlation(pair: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]) -> float:
    if any(x.min() == x.max() for x in pair):  # their mean may be off by a rounding, so not std
        return 0.0
    x, y = (x / np.abs(x).max() for x in pair)  # so that no sum or square overflows or vanishes
    x, y = x - x.mean(), y - y.mean()
    return float(np.clip(x @ y / math.sqrt((x @ x) * (y @ y)), -1, 1))


def _mean_ranks(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)  # the rank of the last of each group of equals, from 1
    return (last - (counts - 1) / 2)[inverse]


# Tagged words


class Entity(NamedTuple):
    """Words start to end (exclusive) of a sentence name something of this type."""

    type: str
    start: int
    end: int


def split_tag(tag: str) -> tuple[str, str]:
    """ "B-PER" -> ("B", "PER"), "O" -> ("O", ""); ValueError for what is no such tag."""
    prefix, _, type = tag.partition("-")
    if tag != "O" and not (prefix in ("B", "I", "E", "S") and type):
        raise ValueError(f"tag {tag!r} is neither O nor B-TYPE, I-TYPE, E-TYPE or S-TYPE")
    return prefix, type


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of one sentence of BIO tags (B begins, I is inside, O is outside).

    Also BIOES, where E ends an entity and S is one alone. Grouped as conlleval and seqeval do by
    default, which forgives a false beginning: an I or E that does not go on with a B or I of its
    type begins an entity itself.

    >>> [tuple(entity) for entity in entities(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"])]
    [('PER', 0, 2), ('LOC', 3, 4), ('LOC', 4, 5)]
    """
    found: list[Entity] = []
    before = ("O", "")
    for index, tag in enumerate(tags):
        prefix, type = split_tag(tag)
        if prefix in ("I", "E") and before in (("B", type), ("I", type)):
            found[-1] = found[-1]._replace(end=index + 1)
        elif prefix != "O":
            found.append(Entity(type, index, index + 1))
        before = prefix, type
    return found


class EntityScores(NamedTuple):
    """Precision, recall and F1 (0 to 1), and how many entities there truly are."""

    precision: float
    recall: float
    f1: float
    support: int


def entity_f1(true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> EntityScores:
    """Scores over the entities of all sentences: right is one whose type and both ends are.

    true, predicted: the tags of each sentence, as many as it has words. The counts of all types
    are taken together (the micro average, as in CoNLL-2003).

    A share of nothing is 0.0: the precision where none was predicted, the recall where none is
    there, the F1 where none was right. ValueError also for a sentence with more or fewer tags
    predicted than it has.
    """
    return _entity_scores(*_all_entities("entity_f1", true, predicted))


def entity_f1_by_type(
    true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, EntityScores]:
    """`entity_f1` of each type in truth or predictions, in alphabetical order."""
    there, found = _all_entities("entity_f1_by_type", true, predicted)
    return {
        type: _entity_scores(*({e for e in of if e[1].type == type} for of in (there, found)))
        for type in sorted({entity.type for _, entity in there | found})
    }


def _all_entities(
    function: str, true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> tuple[set[tuple[int, Entity]], set[tuple[int, Entity]]]:
    """The true and the predicted (number of the sentence, entity) pairs."""
    _check_lengths(function, true, predicted)
    for number, (t, p) in enumerate(zip(true, predicted, strict=True)):
        if len(t) != len(p):
            raise ValueError(
                f"{function}: sentence {number} has {len(t)} true and {len(p)} predicted tags; "
                "every word needs one of each"
            )
    there, found = (
        {(number, entity) for number, tags in enumerate(sentences) for entity in entities(tags)}
        for sentences in (true, predicted)
    )
    return there, found


def _entity_scores(there: set[tuple[int, Entity]], found: set[tuple[int, Entity]]) -> EntityScores:
    right = len(there & found)
    return EntityScores(
        precision=right / len(found) if found else 0.0,
        recall=right / len(there) if there else 0.0,
        f1=_f1(right, len(there), len(found)),
        support=len(there),
    )


# Answers


class SquadScores(NamedTuple):
    """The means over all questions, 0 to 1."""

    exact_match: float
    f1: float


def squad_scores(answers: Sequence[Sequence[str]], predicted: Sequence[str]) -> SquadScores:
    """Exact match and F1 of answers, as SQuAD 1.1 and 2.0 take them (Rajpurkar et al. 2016, 2018).

    answers: all that count as right for each question; none, where it has no answer
    predicted: one text for each question, empty for "it has none"

    Before texts are compared they are lower-cased and lose ASCII punctuation, a, an, the and
    needless white space. F1 is that of the bags of words. The best of the answers counts, each
    score on its own. A question without an answer gives 1 for an empty prediction, else 0.
    """
    _check_lengths("squad_scores", answers, predicted)
    if any(isinstance(right, str) for right in answers):
        raise TypeError("squad_scores: answers is a list with a list of texts for each question")
    exact = overlap = 0.0
    for right, text in zip(answers, predicted, strict=True):
        # What is nothing but punctuation and articles counts only where there is nothing else.
        references = [r for r in map(_normalised, right) if r] or [[]]
        words = _normalised(text)
        exact += max(words == reference for reference in references)
        overlap += max(_overlap(reference, words) for reference in references)
    return SquadScores(exact / len(predicted), overlap / len(predicted))


def _normalised(text: str) -> list[str]:
    bare = text.lower().translate(str.maketrans("", "", string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", bare).split()


def _overlap(reference: list[str], words: list[str]) -> float:
    if not (reference and words):
        return float(reference == words)
    return _f1(_common(reference, words), len(reference), len(words))


# Of several


def _common(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """How many they have in common, each as often as both have it."""
    return (Counter(a) & Counter(b)).total()


def _f1(right: int, there: int, named: int) -> float:
    """2 TP / (2 TP + FN + FP), the harmonic mean of right / there and right / named; or 0.0."""
    return 2 * right / (there + named) if right else 0.0


def _check_lengths(function: str, true: Sequence[Any] | np.ndarray, predicted: Any) -> None:
    if len(true) != len(predicted):
        raise ValueError(
            f"{function}: {len(true)} true but {len(predicted)} predicted; "
            "every example needs one of each"
        )
    if len(true) == 0:
        raise ValueError(f"{function}: nothing to score; give at least one example")
