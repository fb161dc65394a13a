"""BART's five noises: what each makes of a text, how much it hides, and what stays as it was."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyfm import InputError
from tinyfm.objectives import (
    denoise,
    denoising_examples,
    document_rotation,
    infilling_spans,
    sentence_permutation,
    text_infilling,
    text_tokens,
    token_deletion,
    token_masking,
)
from tinyfm.tokenizer import Tokenizer

A, B, C, D, E, STOP, MASK = 10, 11, 12, 13, 14, 5, 3
TEXT = [A, B, C, STOP, D, E, STOP]  # the paper's figure 2
IDS = st.lists(st.integers(4, 9), max_size=30)
SHARES = st.floats(0, 1)
SEEDS = st.integers(0, 10**6)
ALL = ("permute", "mask", "delete", "infill", "rotate")


def generator(seed=0):
    return np.random.default_rng(seed)


def as_words(text, words="ABCDE._"):
    return [dict(zip(words, [A, B, C, D, E, STOP, MASK], strict=True))[word] for word in text]


def is_subsequence(part, whole):
    rest = iter(whole)
    return all(token in rest for token in part)


# -- the worked values -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "noise, expected",
    [
        (lambda: token_masking(TEXT, MASK, None, 0.3, positions=[1, 4]), "A_C._E."),
        (lambda: token_deletion(TEXT, None, 0.3, positions=[1, 4]), "AC.E."),
        (lambda: text_infilling(TEXT, MASK, None, spans=[(1, 3), (5, 5)]), "A_.D_E."),
        (lambda: text_infilling(TEXT, MASK, None, spans=[(5, 5), (1, 3)]), "A_.D_E."),
        (lambda: sentence_permutation(TEXT, STOP, None, order=[1, 0]), "DE.ABC."),
        (lambda: document_rotation(TEXT, None, start=2), "C.DE.AB"),
    ],
    ids=["masked", "deleted", "infilled", "infilled in any order", "permuted", "rotated"],
)
def test_the_figure_of_the_paper(noise, expected):
    assert noise().tolist() == as_words(expected)


def test_one_mask_for_five_tokens():
    """UN Chief Says There Is No (Plan to Stop Chemical Weapons) in Syria."""
    original = [4154, 1231, 15674, 345, 1534, 440, 5427, 7, 12457, 14329, 28054, 11, 1854]
    spoilt = text_infilling(original, 50264, None, spans=[(6, 11)])
    assert spoilt.tolist() == [4154, 1231, 15674, 345, 1534, 440, 50264, 11, 1854]


@pytest.mark.parametrize(
    "spans, expected",
    [
        ([], "ABC.DE."),
        ([(0, 0), (7, 7)], "_ABC.DE._"),  # trap 79: an empty span hides nothing and adds a mask
        ([(3, 3), (3, 3)], "ABC__.DE."),
        ([(1, 4), (2, 6)], "A_."),  # what overlaps becomes one
        ([(0, 7), (2, 3), (0, 1)], "_"),
        ([(0, 2), (2, 3)], "__.DE."),  # what touches stays two
        ([(1, 3), (1, 1), (3, 3)], "A___.DE."),
    ],
)
def test_spans_that_meet(spans, expected):
    assert text_infilling(TEXT, MASK, None, spans=spans).tolist() == as_words(expected)


@pytest.mark.parametrize(
    "text, lengths",
    [
        ("ABC.DE.", [4, 3]),
        ("ABC.DE", [4, 2]),
        ("ABC", [3]),
        ("AB.", [3]),
        (".A.", [1, 2]),
        ("A...B.", [2, 4]),  # a stop after a stop ends nothing
        ("A.B", [2, 1]),
    ],
)
def test_where_sentences_end(text, lengths):
    ids = as_words(text)
    sentences = np.split(ids, np.cumsum(lengths)[:-1])
    expected = np.concatenate(sentences[::-1])
    order = range(len(lengths))[::-1]
    assert sentence_permutation(ids, STOP, None, order=order).tolist() == expected.tolist()


def test_several_marks_end_sentences():
    for marks in ({1, 2}, [2, 1], np.array([1, 2])):
        ids = sentence_permutation([7, 1, 8, 2, 9], marks, None, order=[2, 1, 0])
        assert ids.tolist() == [9, 8, 2, 7, 1]
    assert sentence_permutation([7, 1, 8], (), None, order=[0]).tolist() == [7, 1, 8]


# -- what holds for every text ---------------------------------------------------------------------


@given(IDS, SHARES, SEEDS)
def test_r45_masking_and_deletion_take_their_share_and_leave_the_rest(ids, p, seed):
    count = math.ceil(round(p * len(ids), 6))
    hidden = token_masking(ids, MASK, generator(seed), p)
    assert (hidden == MASK).sum() == count
    assert [(a, b) for a, b in zip(ids, hidden.tolist(), strict=True) if b not in (a, MASK)] == []
    left = token_deletion(ids, generator(seed), p)
    assert left.tolist() == hidden[hidden != MASK].tolist()  # the same draw of places


@pytest.mark.parametrize("n, p, count", [(1, 0.15, 1), (10, 0.3, 3), (100, 0.07, 7), (12, 0.25, 3)])
def test_r45_the_budget_is_rounded_up_and_short_texts_have_one(n, p, count):
    ids = np.arange(100, 100 + n)
    assert (token_masking(ids, MASK, generator(), p) == MASK).sum() == count
    assert len(token_deletion(ids, generator(), p)) == n - count


@given(IDS, SEEDS)
def test_permutation_moves_whole_sentences_and_rotation_all(ids, seed):
    stop = 4
    moved = sentence_permutation(ids, stop, generator(seed)).tolist()
    assert sorted(moved) == sorted(ids)
    cuts = [i + 1 for i, a in enumerate(ids[:-1]) if a == stop and (i == 0 or ids[i - 1] != stop)]
    ends = zip([0, *cuts], [*cuts, len(ids)], strict=True)
    for sentence in (ids[a:b] for a, b in ends):
        assert any(moved[i : i + len(sentence)] == sentence for i in range(len(ids) + 1))
    turned = document_rotation(ids, generator(seed)).tolist()
    assert turned in [ids[i:] + ids[:i] for i in range(len(ids) + 1)]


def test_all_orders_and_all_starts_are_as_likely():
    rng, ids = generator(), [7, STOP, 8, STOP, 9]
    orders = Counter(sentence_permutation(ids, STOP, rng).tobytes() for _ in range(3000))
    starts = Counter(document_rotation(ids[:4], rng).tobytes() for _ in range(2000))
    assert (len(orders), len(starts)) == (6, 3 + 1)
    assert max(abs(count - 500) for count in orders.values()) < 5 * 500**0.5
    assert max(abs(count - 500) for count in starts.values()) < 5 * 500**0.5


@given(st.lists(st.booleans(), max_size=40), SHARES, st.floats(0.1, 8), SEEDS)
def test_infilling_hides_words_and_leaves_the_rest_in_order(word_starts, ratio, mean, seed):
    ids = np.arange(100, 100 + len(word_starts))
    spans = infilling_spans(word_starts, generator(seed), ratio, mean)
    borders = {*np.flatnonzero(word_starts).tolist(), len(ids)}
    full = spans[spans[:, 0] < spans[:, 1]]
    assert {*full.ravel().tolist()} <= borders  # whole words
    assert len({*full[:, 0].tolist()}) == len(full)
    covered = np.zeros(len(ids), bool)
    for start, end in full:
        covered[start:end] = True
    budget = math.ceil(round(ratio * sum(word_starts), 6))
    assert covered[word_starts].sum() <= budget
    assert (len(full) > 0) == (budget > 0)

    spoilt = text_infilling(ids, MASK, generator(seed), ratio, mean, word_starts)
    assert spoilt.tolist() == text_infilling(ids, MASK, None, spans=spans).tolist()
    kept = spoilt[spoilt != MASK]
    assert kept.tolist() == ids[~covered].tolist()
    empty = len(spans) - len(full)
    runs = (np.diff(covered, prepend=False) & covered).sum()
    assert empty + runs <= (spoilt == MASK).sum() <= len(spans)
    everything = text_infilling(ids, MASK, None, spans=[(i, i + 1) for i in range(len(ids))])
    assert (everything == MASK).all() and len(everything) == len(ids)


def original_infilling(ids, word_starts, first, lengths):
    """The original's way: word by word behind each start, what is met there is dropped."""
    left = list(ids)
    for start in first:
        left[start] = MASK
    for start, length in zip(first, lengths, strict=True):
        words, place = length - 1, start + 1
        while place < len(ids) and (words := words - word_starts[place]) >= 0:
            left[place] = None
            place += 1
    return [token for token in left if token is not None]


@given(st.lists(st.booleans(), min_size=1, max_size=25), SEEDS)
def test_spans_are_hidden_as_in_the_original(word_starts, seed):
    rng, ids = generator(seed), np.arange(100, 100 + len(word_starts))
    word_starts[0] = True
    words = np.flatnonzero(word_starts)
    first = rng.permutation(words)[: rng.integers(len(words) + 1)]
    lengths = rng.integers(1, 5, len(first))
    ends = [*words.tolist(), *[len(ids)] * 5]
    spans = [
        (start, ends[words.tolist().index(start) + length])
        for start, length in zip(first.tolist(), lengths.tolist(), strict=True)
    ]
    expected = original_infilling(ids, word_starts, first, lengths)
    assert text_infilling(ids, MASK, None, spans=spans).tolist() == expected


# -- how spans are drawn ---------------------------------------------------------------------------


@pytest.mark.parametrize("n, budget", [(10, 3), (12, 4), (100, 30)])
def test_trap_80_the_budget_is_a_share_of_the_words_rounded_up(n, budget):
    drawn = [infilling_spans(np.ones(n, bool), generator(seed)) for seed in range(100)]
    whole = [spans for spans in drawn if spans[:, 1].max() < n]  # none is cut by the text's end
    assert len(whole) > 20
    assert {int((spans[:, 1] - spans[:, 0]).sum()) for spans in whole} == {budget}


@pytest.mark.parametrize("mean, zero", [(3.0, 0.049787), (3.5, 0.030197)])
def test_trap_82_lengths_are_poisson(mean, zero):
    lengths = []
    for seed in range(20):
        spans = infilling_spans(np.ones(20_000, bool), generator(seed), 0.3, mean)
        lengths += [end - start for start, end in spans.tolist() if end < 20_000]
    n, counts = len(lengths), Counter(lengths)
    assert n > 30_000
    assert abs(np.mean(lengths) - mean) < 5 * (mean / n) ** 0.5
    for k in range(9):
        chance = math.exp(-mean) * mean**k / math.factorial(k)
        assert abs(counts[k] / n - chance) < 5 * (chance / n) ** 0.5
    assert abs(counts[0] / n - zero) < 5 * (zero / n) ** 0.5


def test_spans_begin_anywhere_and_empty_ones_stand_anywhere():
    full, empty, n = Counter(), Counter(), 6
    rng = generator()
    for _ in range(3000):
        spans = infilling_spans(np.ones(n, bool), rng, ratio=1 / n, mean=0.5)
        for start, end in spans.tolist():
            (full if start < end else empty)[start] += 1
    assert sum(full.values()) == 3000 and sorted(full) == [*range(n)]
    assert max(abs(count - 500) for count in full.values()) < 5 * 500**0.5
    assert sorted(empty) == [*range(n + 1)]
    # A geometric number of them, with the mean P(0) / (1 - P(0)) = 1.54.
    assert abs(sum(empty.values()) / 3000 - 1 / (math.exp(0.5) - 1)) < 0.2
    mean = sum(empty.values()) / (n + 1)
    assert max(abs(count - mean) for count in empty.values()) < 8 * mean**0.5


def test_a_little_less_than_the_ratio_is_hidden_for_spans_overlap():
    """A token is left if, of the spans that begin k before it, none is longer than k."""
    ids, spans_per_token = np.arange(100, 100_100), 0.3 / 3
    below = [math.exp(-3) * 3**k / math.factorial(k) for k in range(18)]
    longer = 1 - np.cumsum(below)
    hidden = 1 - np.prod(1 - spans_per_token * longer)
    assert 0.25 < hidden < 0.27
    spoilt = text_infilling(ids, MASK, generator())
    assert abs(1 - (spoilt != MASK).sum() / len(ids) - hidden) < 0.01


# -- composed --------------------------------------------------------------------------------------


@given(IDS, SEEDS)
def test_the_default_is_permutation_before_infilling(ids, seed):
    spoilt = denoise(ids, MASK, 4, generator(seed))
    rng = generator(seed)
    expected = text_infilling(sentence_permutation(ids, 4, rng), MASK, rng)
    assert spoilt.tolist() == expected.tolist()
    reverse = denoise(ids, MASK, 4, generator(seed), noises=("infill", "permute"))
    assert reverse.tolist() == expected.tolist()  # the order is the original's


@given(IDS, SEEDS, SHARES)
def test_each_noise_alone_is_the_function(ids, seed, ratio):
    alone = {
        "permute": lambda rng: sentence_permutation(ids, 4, rng),
        "mask": lambda rng: token_masking(ids, MASK, rng, ratio),
        "delete": lambda rng: token_deletion(ids, rng, ratio),
        "infill": lambda rng: text_infilling(ids, MASK, rng, ratio),
        "rotate": lambda rng: document_rotation(ids, rng),
    }
    assert tuple(alone) == ALL
    for noise, function in alone.items():
        spoilt = denoise(ids, MASK, 4, generator(seed), noises=[noise], ratio=ratio)
        assert spoilt.tolist() == function(generator(seed)).tolist()
    assert denoise(ids, MASK, 4, generator(seed), noises=()).tolist() == ids


@given(IDS, st.sets(st.sampled_from(ALL)), SHARES, SEEDS, st.data())
def test_any_noises_add_nothing_but_masks_and_leave_the_text_alone(ids, noises, ratio, seed, data):
    starts = data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids)))
    given_ids = np.array(ids, np.int32)
    spoilt = denoise(
        given_ids, MASK, 4, generator(seed), noises, ratio, 2.0, starts, random_share=0.0
    )
    assert spoilt.dtype == np.int64 and given_ids.tolist() == ids
    assert Counter(spoilt[spoilt != MASK].tolist()) <= Counter(ids)
    if not noises & {"permute", "rotate"}:
        assert is_subsequence(spoilt[spoilt != MASK].tolist(), ids)


def test_word_starts_move_with_their_tokens():
    """Words of two tokens, 10 11 and 20 21 and so on, in sentences of different lengths."""
    ids = [token for word in range(1, 13) for token in (10 * word, 10 * word + 1)]
    for end in (20, 14, 6, 4):
        ids.insert(end, STOP)
    starts = [token % 10 == 0 or token == STOP for token in ids]
    for seed in range(30):
        spoilt = denoise(ids, MASK, STOP, generator(seed), word_starts=starts).tolist()
        firsts = {token for token in spoilt if token % 10 == 0}
        assert firsts == {token - 1 for token in spoilt if token > 9 and token % 10 == 1}


def test_trap_81_a_share_of_the_masks_is_random_ids_special_ones_too():
    ids, options = np.full(60_000, 7), {"noises": ["mask"], "ratio": 1.0, "vocab_size": 6}
    spoilt = denoise(ids, MASK, (), generator(), random_share=0.1, **options)
    counts = np.bincount(spoilt, minlength=6)
    assert counts[0] == 0 and counts.sum() == counts[1:6].sum()
    others = [1, 2, 4, 5]  # 0.1 x 60000 over 1 to 5, of which MASK is one
    assert np.abs(counts[others] - 1200).max() < 5 * 1200**0.5
    spoilt = denoise(ids, MASK, (), generator(), random_share=1.0, **options)
    assert (spoilt != MASK).mean() > 0.75
    # Tokens of the text that are a mask by their id are no place of a mask.
    text = denoise([MASK] * 50, MASK, (), generator(), (), random_share=1.0, vocab_size=6)
    assert (text == MASK).all()


def test_a_generator_decides_all():
    ids = np.arange(100)
    one, two, other = (denoise(ids, 200, 9, generator(seed), ALL).tolist() for seed in (3, 3, 4))
    assert one == two != other
    rng = generator(3)
    assert denoise(ids, 200, 9, rng, ALL).tolist() != denoise(ids, 200, 9, rng, ALL).tolist()


@pytest.mark.parametrize("ids", [[], [7]])
def test_texts_without_and_with_one_token(ids):
    for seed in range(20):
        spoilt = denoise(ids, MASK, 4, generator(seed))
        assert (spoilt == MASK).sum() == len(spoilt)  # the one token is always hidden
        assert bool(len(spoilt)) == bool(ids)
        assert denoise(ids, MASK, 4, generator(seed), ("permute", "rotate")).tolist() == ids
        assert denoise(ids, MASK, 4, generator(seed), ratio=0).tolist() == ids
    assert token_deletion(ids, generator(), 0.1).tolist() == []


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: token_masking([1.5], MASK, generator(), 0.1), TypeError, "integers, not float64"),
        (lambda: denoise([[1]], MASK, 4, generator()), ValueError, r"shape \(1, 1\)"),
        (lambda: token_masking([1], MASK, generator(), 1.1), ValueError, "p is 1.1"),
        (lambda: token_deletion([1], generator(), -0.1), ValueError, "p is -0.1"),
        (lambda: token_masking([1], MASK, None, 0.1), ValueError, "rng is None; .* or positions"),
        (lambda: token_masking([1], MASK, None, 0.1, [1]), ValueError, "position 1 is outside"),
        (lambda: token_deletion([1], None, 0.1, [-1]), ValueError, "position -1 is outside"),
        (lambda: text_infilling([1], MASK, generator(), 30), ValueError, "ratio is 30"),
        (lambda: text_infilling([1], MASK, generator(), mean=0), ValueError, "mean is 0"),
        (lambda: text_infilling([1], MASK, None), ValueError, "or spans"),
        (lambda: text_infilling([1], MASK, None, spans=[(0, 2)]), ValueError, r"\(0, 2\) is not"),
        (lambda: text_infilling([1], MASK, None, spans=[(1, 0)]), ValueError, r"\(1, 0\) is not"),
        (
            lambda: text_infilling([1, 2], MASK, generator(), word_starts=[True]),
            ValueError,
            r"shape \(1,\), and the text has 2 tokens",
        ),
        (lambda: sentence_permutation([1], 4, None), ValueError, "or order"),
        (lambda: sentence_permutation([4, 1], 4, None, [0, 0]), ValueError, "of the 2 sentences"),
        (lambda: document_rotation([1], None, 1), ValueError, "start 1 is outside"),
        (lambda: denoise([1], MASK, 4, generator(), ["swap"]), ValueError, "'swap' is unknown"),
        (lambda: denoise([1], MASK, 4, generator(), ["mask"], 2), ValueError, "ratio is 2"),
        (
            lambda: denoise([1], MASK, 4, generator(), random_share=0.1),
            ValueError,
            "needs vocab_size",
        ),
        (
            lambda: denoise([1], MASK, 4, generator(), random_share=2, vocab_size=9),
            ValueError,
            "random_share is 2",
        ),
    ],
)
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


# -- from text -------------------------------------------------------------------------------------

LINES = [
    "The cat sat. It slept all day!",
    "Is it 5 o'clock? No... 나는 사과를 먹었다.",
    "Naïve 🙂 day.",
]
SPECIALS = {"bos_token": "<s>", "eos_token": "</s>", "mask_token": "<mask>"}
LEARN = {
    "byte_level": lambda: Tokenizer.train_byte_level(LINES * 3, 320),
    "spaces": lambda: Tokenizer.train(LINES * 3, 120),
    "wordpiece": lambda: Tokenizer.train_wordpiece(LINES * 3, 120),
    "unigram": lambda: Tokenizer.train_unigram(LINES * 3, 120, sentinels=4),
}


@pytest.fixture(scope="module", params=LEARN)
def tokenizer(request):
    return LEARN[request.param]().with_special_tokens(SPECIALS)


@pytest.mark.parametrize("line", LINES)
def test_words_and_sentence_ends_of_a_text(tokenizer, line):
    ids, word_starts, ends = text_tokens(line, tokenizer)
    assert not {*ids.tolist()} & {*tokenizer.special_ids} - {tokenizer.unk_id}
    assert word_starts.sum() == len(line.split())
    pieces = np.split(ids, np.flatnonzero(word_starts)[1:])
    words = [tokenizer.decode(piece).strip() for piece in pieces]
    if tokenizer.unk_id is None:
        assert words == line.split()
    marks = {tokenizer.decode([id]).strip() for id in ends}
    assert marks == {sign for sign in line if sign in ".!?"} - ({"."} - marks)


@pytest.mark.parametrize("whole_words", [True, False])
def test_examples_from_text(tokenizer, whole_words):
    def examples(seed, lines=LINES, **options):
        rng = generator(seed)
        return list(denoising_examples(lines, tokenizer, rng, whole_words=whole_words, **options))

    for example, line in zip(examples(1), LINES, strict=True):
        text = text_tokens(line, tokenizer)
        for ids in example.values():
            assert (ids[0], ids[-1]) == (tokenizer.bos_id, tokenizer.eos_id)
        assert example["labels"][1:-1].tolist() == text.ids.tolist()
        assert tokenizer.mask_id in example["input_ids"]
    rng = generator(2)
    (first,) = denoising_examples(LINES[:1], tokenizer, rng, whole_words=whole_words)
    text, rng = text_tokens(LINES[0], tokenizer), generator(2)
    starts = text.word_starts if whole_words else None
    spoilt = denoise(text.ids, tokenizer.mask_id, text.sentence_end_ids, rng, word_starts=starts)
    assert first["input_ids"][1:-1].tolist() == spoilt.tolist()

    assert [len(e["labels"]) for e in examples(1, max_length=5)] == [5, 5, 5]
    short = [e for seed in range(40) for e in examples(seed, max_length=4, mean=0.5)]
    assert max(len(e["input_ids"]) for e in short) == 4
    assert len(examples(1, ["", LINES[0], ""])) == 1


def test_examples_are_made_as_they_are_asked_for():
    tokenizer = LEARN["spaces"]().with_special_tokens(SPECIALS)
    endless = denoising_examples(iter(lambda: LINES[0], None), tokenizer, generator())
    inputs = {next(endless)["input_ids"].tobytes() for _ in range(20)}
    assert len(inputs) > 1


def test_a_vocabulary_without_a_mask_and_texts_without_room_are_named():
    tokenizer = LEARN["spaces"]()
    with pytest.raises(InputError, match="no <s>, </s> or <mask>"):
        next(denoising_examples(LINES, tokenizer, generator()))
    tokenizer = tokenizer.with_special_tokens(SPECIALS)
    with pytest.raises(ValueError, match="max_length is 2"):
        next(denoising_examples(LINES, tokenizer, generator(), max_length=2))


@pytest.mark.parametrize("positions", [[True, False], [0.5], [[0]]])
def test_positions_are_places_and_no_mask(positions):
    with pytest.raises(TypeError, match=r"positions are .* give the places of tokens"):
        token_masking([1, 2], 3, None, 0.5, positions)
    with pytest.raises(TypeError, match=r"positions are .* give the places of tokens"):
        token_deletion([1, 2], None, 0.5, positions)
