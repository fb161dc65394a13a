"""Scores of predictions against references."""

from collections.abc import Sequence
from typing import NamedTuple


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
