"""What changes scores before a token is chosen, and tokens that are drawn."""

import math
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import tinyfm
from tinyfm.backend import generator
from tinyfm.generation import (
    GenerationConfig,
    never,
    no_ngram_twice,
    probabilities,
    repeated_less,
    sampled,
)
from tinyfm_tests.scripted import (
    EOS,
    PAD,
    SOURCE,
    START,
    Continuing,
    Scripted,
    random_model,
    sources,
    toy,
    unpadded,
)

FOUR = np.array([[0.5, 0.3, 0.15, 0.05]])


def kept(weights):
    return [np.flatnonzero(row).tolist() for row in weights]


# -- temperature, top-k, top-p ---------------------------------------------------------------------


def test_trap_54_tokens_as_probable_as_the_kth_are_kept():
    assert kept(probabilities(np.array([[3.0, 2, 2, 1]]), top_k=2)) == [[0, 1, 2]]


@pytest.mark.parametrize("k, n", [(100, 4), (4, 4), (1, 1), (0, 4)])
def test_r57_k_above_the_vocabulary_or_0_keeps_all(k, n):
    assert [len(row) for row in kept(probabilities(np.log(FOUR), top_k=k))] == [n]


@pytest.mark.parametrize("p, n", [(0.4, 1), (0.6, 2), (0.79, 2), (0.81, 3), (0.99, 4), (1.0, 4)])
def test_r56_trap_55_the_smallest_set_that_reaches_p_in_each_row(p, n):
    order = np.array([[0, 1, 2, 3], [3, 1, 0, 2], [1, 2, 3, 0]])
    weights = probabilities(np.log(FOUR[0][order]), top_p=p)
    assert [set(order[i][row]) for i, row in enumerate(kept(weights))] == [set(range(n))] * 3


def test_trap_56_top_p_comes_after_the_temperature_and_after_top_k():
    assert kept(probabilities(np.log(FOUR), 2.0, top_p=0.7)) == [[0, 1, 2]]
    assert kept(probabilities(np.log(FOUR), top_p=0.6)) == [[0, 1]]
    assert kept(probabilities(np.log(FOUR), top_k=2, top_p=0.6)) == [[0]]  # 0.5 of 0.8 reaches it


@pytest.mark.parametrize("p, ids", [(0.5, [2, 3]), (0.6, [1, 2, 3]), (1e-9, [3])])
def test_of_equally_probable_tokens_top_p_keeps_the_higher_ids(p, ids):
    assert kept(probabilities(np.zeros((1, 4)), top_p=p)) == [ids]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("temperature", [1e-4, 1e-5, 1e-320])
def test_r58_a_tiny_temperature_overflows_nowhere(temperature, dtype):
    made = probabilities(np.array([[2, 1.9, -1]], dtype), temperature)
    assert_array_equal(made, [[1, 0, 0]])


def test_a_temperature_is_a_power_of_the_probabilities():
    assert_allclose(probabilities(np.log(FOUR), 0.5), FOUR**2 / (FOUR**2).sum())


def plain_probabilities(scores, temperature, k, p):
    """One row in plain Python; and the masses at which top_p could stop."""
    scaled = [s / temperature for s in scores]
    least = sorted(scaled)[-k] if 0 < k < len(scaled) else -math.inf
    powers = [math.exp(s - max(scaled)) if s >= least else 0.0 for s in scaled]
    weights = [x / sum(powers) for x in powers]
    falling = sorted(range(len(weights)), key=lambda i: (weights[i], i), reverse=True)
    masses = [0.0, *accumulate(weights[i] for i in falling)]
    stay = {i for i, before in zip(falling, masses, strict=False) if before < p}
    left = [w if i in stay else 0.0 for i, w in enumerate(weights)]
    return [x / sum(left) for x in left], masses


@given(
    rows=st.lists(
        st.lists(st.integers(-6, 6).map(lambda n: n / 2), min_size=7, max_size=7), min_size=1
    ),
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    k=st.integers(0, 9),
    p=st.floats(0.01, 1),
)
def test_r56_probabilities_equal_their_plain_twin(rows, temperature, k, p):
    twins = [plain_probabilities(row, temperature, k, p) for row in rows]
    # At exact equality rounding decides.
    assume(all(abs(mass - p) > 1e-9 for _, masses in twins for mass in masses) or p == 1)
    made = probabilities(np.array(rows), temperature, k, p)
    assert_allclose(made, [weights for weights, _ in twins], rtol=1e-12)
    assert_allclose(made.sum(1), 1)


# -- processors ------------------------------------------------------------------------------------


def test_trap_58_a_penalty_makes_what_is_there_less_probable_once():
    ids, scores = np.array([[0, 1, 1, 0, 1]]), np.array([[4.0, -4, 4]])
    assert_array_equal(repeated_less(2.0)(ids, scores), [[2, -8, 4]])
    assert_array_equal(scores, [[4, -4, 4]])  # left as they were


def test_padding_on_the_left_is_not_there_for_the_penalty():
    ids, scores = np.array([[0, 1], [0, 1]]), np.full((2, 3), 4.0)
    real = np.array([[False, True], [True, True]])
    assert_array_equal(repeated_less(2.0, real)(ids, scores), [[4, 2, 4], [2, 2, 4]])
    longer = np.array([[0, 1, 0], [0, 1, 2]])  # what is said after the prompt always counts
    assert_array_equal(repeated_less(2.0, real)(longer, scores), [[2, 2, 4], [2, 2, 2]])


@given(
    ids=st.lists(st.lists(st.integers(0, 6), min_size=5, max_size=5), min_size=1, max_size=4),
    lengths=st.lists(st.integers(1, 3), min_size=4, max_size=4),
    penalty=st.sampled_from([0.5, 1.3, 2.0]),
    seed=st.integers(0, 1000),
)
def test_the_penalty_equals_its_plain_twin(ids, lengths, penalty, seed):
    """The prompt is the first three ids, of which the last lengths[i] are no padding."""
    scores = np.random.default_rng(seed).standard_normal((len(ids), 7)).astype(np.float32)
    real = np.array([[place >= 3 - n for place in range(3)] for n in lengths[: len(ids)]])
    made = repeated_less(penalty, real)(np.array(ids), scores)
    assert made.dtype == np.float32
    for row, n, before, after in zip(ids, lengths, scores, made, strict=False):
        for token in range(7):
            old = before[token]
            if token in row[3 - n :]:
                old = old * penalty if old < 0 else old / penalty
            assert after[token] == pytest.approx(old, rel=1e-6)


def test_no_ngram_twice_forbids_what_came_after_the_same_tokens():
    ids, scores = np.array([[1, 2, 3, 1]]), np.zeros((1, 5))
    assert_array_equal(no_ngram_twice(2)(ids, scores), [[0, 0, -np.inf, 0, 0]])
    assert_array_equal(no_ngram_twice(1)(ids, scores), [[0, -np.inf, -np.inf, -np.inf, 0]])
    assert_array_equal(no_ngram_twice(5)(ids, scores), scores)
    assert not scores.any()


@given(
    ids=st.integers(1, 9).flatmap(
        lambda n: st.lists(st.lists(st.integers(0, 2), min_size=n, max_size=n), min_size=1)
    ),
    size=st.integers(1, 4),
)
def test_no_ngram_twice_equals_its_plain_twin(ids, size):
    made = no_ngram_twice(size)(np.array(ids), np.zeros((len(ids), 3)))
    for row, scores in zip(ids, made, strict=True):
        grams = {tuple(row[i : i + size]) for i in range(len(row) - size + 1)}
        last = row[len(row) - size + 1 :]
        for token in range(3):
            assert (scores[token] == -np.inf) == ((*last, token) in grams)


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_text_has_the_same_words_twice(size, beams):
    model = random_model(30, eos_token_id=-1)
    made = model.generate(
        sources(*range(4)), num_beams=beams, no_repeat_ngram_size=size, max_length=20
    )
    for row in made.tolist():
        grams = [tuple(row[i : i + size]) for i in range(len(row) - size + 1)]
        assert len({*grams}) == len(grams)


def test_never_forbids_the_last_id_of_a_word_after_the_others():
    ids, scores = np.array([[1, 2], [2, 2]]), np.zeros((2, 4))
    made = never([[1, 2, 3], [0], [5, 5, 5, 1]])(ids, scores)
    assert_array_equal(made, [[-np.inf, 0, 0, -np.inf], [-np.inf, 0, 0, 0]])


@pytest.mark.parametrize("options", [{}, {"do_sample": True, "seed": 0}])
def test_where_no_token_is_left_an_error_says_so(options):
    model = Scripted(lambda *_: [0, 0, 0.1, 0.5, 0.4], pad_token_id=0)
    words = [[i] for i in range(5)]
    with pytest.raises(ValueError, match=r"row 0 has no token left after 1: .* loosen them"):
        model.generate(SOURCE, bad_words_ids=words, eos_token_id=-1, **options)
    # A row that has ended needs none: 0 ends, and then padding may not follow padding.
    ends = Scripted(lambda source, said: [0, 0, source[0] == 5, source[0] == 6, 0, 0])
    made = ends.generate(
        np.array([[5], [6]]), max_length=4, bad_words_ids=[[0, i] for i in range(6)], **options
    )
    assert_array_equal(made, [[START, EOS, PAD, PAD], [START, 3, 3, 3]])


# -- draws -----------------------------------------------------------------------------------------


def told(*weights):
    return Scripted(lambda *_: weights, eos_token_id=-1)


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, [0.1, 0.2, 0.3, 0.4]),
        ({"temperature": 0.5}, [1 / 30, 4 / 30, 9 / 30, 16 / 30]),
        ({"top_k": 2}, [0, 0, 3 / 7, 4 / 7]),
        ({"top_p": 0.65}, [0, 0, 3 / 7, 4 / 7]),
    ],
)
def test_tokens_come_as_often_as_they_are_probable(options, expected):
    n = 10_000
    made = told(0.1, 0.2, 0.3, 0.4).generate(
        SOURCE, do_sample=True, num_return_sequences=n, max_new_tokens=1, seed=3, **options
    )
    found = np.bincount(made[:, 1], minlength=4)
    expected = np.array(expected)
    deviation = np.sqrt(n * expected * (1 - expected))
    assert (abs(found - n * expected) <= 5 * deviation).all()


def test_a_token_without_probability_is_never_drawn():
    """Not even by the draws at the very ends of [0, 1)."""

    class Ends:
        def random(self, shape):
            return np.array([[0.0], [1 - 2**-53]])

    choose = sampled(GenerationConfig(do_sample=True, top_k=0), Ends())
    with np.errstate(divide="ignore"):
        scores = np.log(np.array([[0, 0.3, 0.7, 0]] * 2))
    assert_array_equal(choose(scores), [1, 2])


def test_trap_57_samples_are_of_the_50_most_probable_tokens_unless_told_otherwise():
    weights = np.linspace(2, 1, 100)
    model = told(*weights / weights.sum())
    options = {"do_sample": True, "num_return_sequences": 2000, "max_new_tokens": 1, "seed": 0}
    assert set(model.generate(SOURCE, **options)[:, 1]) == {*range(50)}
    assert set(model.generate(SOURCE, top_k=0, **options)[:, 1]) == {*range(100)}


def test_r66_one_seed_one_output():
    model = random_model()
    options = {"do_sample": True, "max_new_tokens": 12, "num_return_sequences": 3}
    made = model.generate(sources(1, 2), seed=7, **options)
    assert_array_equal(model.generate(sources(1, 2), seed=7, **options), made)
    assert not np.array_equal(model.generate(sources(1, 2), seed=8, **options), made)


def test_r66_without_a_seed_draws_come_from_the_one_generator():
    model, options = random_model(), {"do_sample": True, "num_return_sequences": 5}
    tinyfm.manual_seed(5)
    first = model.generate(sources(1), **options)
    second = model.generate(sources(1), **options)
    assert not np.array_equal(first, second)
    tinyfm.manual_seed(5)
    assert_array_equal(model.generate(sources(1), **options), first)
    state = generator().bit_generator.state
    model.generate(sources(1), seed=1, **options)
    model.generate(sources(1))
    assert generator().bit_generator.state == state  # a seed, and greedy search, need none


def test_r58_at_temperature_0_samples_are_the_most_probable_tokens():
    greedy = random_model().generate(sources(1, 2), max_length=9)
    options = {"do_sample": True, "num_return_sequences": 2, "max_length": 9}
    made = random_model().generate(sources(1, 2), temperature=0, **options)
    assert_array_equal(made, np.repeat(greedy, 2, 0))


def test_several_samples_of_several_prompts_stand_in_order():
    model = Continuing(lambda *_: [0, 0, 0, 0.4, 0.6], eos_token_id=-1)
    prompts = np.array([[3, 4], [4, 4], [3, 3]])
    made = model.generate(
        prompts, do_sample=True, num_return_sequences=4, max_new_tokens=9, return_scores=True
    )
    assert_array_equal(made.sequences[:, :2], np.repeat(prompts, 4, 0))
    assert len({tuple(row) for row in made.sequences[:, 2:].tolist()}) > 6  # each drawn anew
    assert_allclose(made.scores, np.log(np.where(made.sequences[:, 2:] == 3, 0.4, 0.6)))


def test_scores_of_samples_are_of_the_models_own_distribution():
    options = {"do_sample": True, "temperature": 0.1, "top_k": 2, "repetition_penalty": 1.5}
    made = toy().generate(SOURCE, seed=0, return_scores=True, max_length=4, **options)
    said = made.sequences[0].tolist()
    model = toy()
    expected = [np.log(model.tell((), said[:i])[said[i]]) for i in range(1, len(said))]
    assert_allclose(made.scores, [expected])


def test_r59_samples_are_padded_after_their_end_and_the_last_end_ends_it():
    model = Scripted(lambda *_: [0, 0, 0.3, 0.7])
    made = model.generate(
        SOURCE, do_sample=True, num_return_sequences=8, seed=1, max_length=99, return_scores=True
    )
    lengths = [len(unpadded(row)) for row in made.sequences]
    assert len({*lengths}) > 2 and max(lengths) == made.sequences.shape[1] < 99
    assert model.steps == max(lengths) - 1
    for row, scores, n in zip(*made, lengths, strict=True):
        assert row[n - 1] == EOS and not row[n:].any() and not scores[n - 1 :].any()
