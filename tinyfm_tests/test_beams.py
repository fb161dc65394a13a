"""Beam search: worked examples, plain twins, properties on scripted models."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tinyfm.generation import (
    GenerationConfig,
    GenerationOutput,
    beam_search,
    largest,
    search_by_token,
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

# What the drawn options leave, and whether they make sense together, is not what is tested.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{said}")
    for said in ("beams found", "length_penalty has no effect", "early_stopping has no effect")
]

# -- worked examples -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, expected",
    [
        # Ending at once, -1.2730, is third of the first step's four best: not within the best two.
        ({"length_penalty": 0.0}, {(1, 4, 2): -1.3626, (1, 3, 2): -1.6094}),
        ({}, {(1, 4, 2): -0.6813, (1, 3, 2): -0.8047}),
        ({"early_stopping": True}, {(1, 4, 2): -0.6813, (1, 3, 2): -0.8047}),
        ({"early_stopping": "never"}, {(1, 4, 2): -0.6813, (1, 3, 4, 2): -0.7811}),
        ({"length_penalty": -1.0}, {(1, 4, 2): -2.7252, (1, 3, 2): -3.2189}),
        (
            {"length_penalty": 2.0, "early_stopping": "never"},
            {(1, 3, 3, 3, 3, 3, 4, 2): -0.1792, (1, 3, 3, 3, 3, 3, 3, 2): -0.1971},
        ),
    ],
)
def test_r63_traps_60_to_63_beams_of_the_toy(options, expected):
    """A prompt of 1 counts as much as a start token: the length is that of the new tokens."""
    options |= {"num_beams": 2, "num_return_sequences": 2, "return_scores": True}
    for made in (
        toy().generate(SOURCE, max_length=8, **options),
        toy(Continuing).generate([[1]], max_new_tokens=7, **options),
    ):
        assert isinstance(made, GenerationOutput)
        assert [tuple(unpadded(row)) for row in made.sequences] == [*expected]
        assert_allclose(made.scores, [*expected.values()], atol=5e-5)
    longer = toy(Continuing).generate([[4, 3, 1]], max_new_tokens=7, **options)
    assert_array_equal(longer.sequences[:, 2:], made.sequences)
    assert_allclose(longer.scores, made.scores)


def test_trap_59_a_beams_penalty_is_on_log_probabilities():
    """Logits are all above 0 here, and would be divided; what is there already counts twice."""
    model = Scripted(lambda *_: [0, 0, 0.1, 0.6, 0.3])
    plain, model.step = model.step, lambda *given: plain(*given) + 50.0
    made = model.generate(
        SOURCE, num_beams=2, repetition_penalty=2.0, max_new_tokens=2, min_length=9,
        num_return_sequences=2, length_penalty=0.0, return_scores=True,
    )  # fmt: skip
    assert_array_equal(made.sequences, [[START, 3, 3], [START, 3, 4]])
    assert_allclose(made.scores, [3 * np.log(0.6), np.log(0.6 * 0.3)])


def r63_words(source, said):
    """Ids: end 0, A 1, B 2; the start token is 3, the padding 4."""
    written = "".join("_AB"[i] for i in said[1:])
    table = {"": (0, 0.6, 0.4), "B": (0.02, 0.01, 0.97), "BBB": (0.95, 0.03, 0.02)}
    table["BB"] = table["B"]
    return [*table.get(written, (0.55, 0.25, 0.2)), 0, 0]


@pytest.mark.parametrize(
    "options, expected, score",
    [
        ({"length_penalty": 0.0}, [3, 2, 2, 2, 0], -1.028502),
        ({}, [3, 2, 2, 2, 0], -0.257126),
        ({"length_penalty": -1.0}, [3, 1, 0], 2 * -1.108663),
    ],
)
def test_r63_beams_find_what_greedy_search_misses(options, expected, score):
    ids = {"eos_token_id": 0, "pad_token_id": 4, "decoder_start_token_id": 3, "max_new_tokens": 5}
    greedy = Scripted(r63_words).generate(SOURCE, **ids, return_scores=True)
    assert_array_equal(greedy.sequences, [[3, 1, 0]])
    assert_allclose(greedy.scores.sum(), -1.108663, atol=1e-6)
    made = Scripted(r63_words).generate(
        SOURCE, num_beams=2, early_stopping="never", return_scores=True, **ids, **options
    )
    assert_array_equal(unpadded(made.sequences[0], 0), expected)
    assert_allclose(made.scores, [score], atol=1e-6)


def test_trap_64_what_follows_an_end_is_padding_whatever_the_padding_is():
    options = {"max_length": 8, "num_beams": 2, "num_return_sequences": 2}
    for pad in (0, 4):
        made = toy().generate(SOURCE, early_stopping="never", pad_token_id=pad, **options)
        assert_array_equal(made, [[1, 4, 2, pad], [1, 3, 4, 2]])


def test_where_fewer_sequences_exist_the_missing_ones_say_so():
    model = Scripted(lambda *_: [0, 0, 0.4, 0.6, 0], pad_token_id=4)
    options = {"num_beams": 3, "return_scores": True}
    with pytest.warns(UserWarning, match="beams found 2 of 3 texts: .* ask for fewer, or") as said:
        made = model.generate(SOURCE, max_new_tokens=1, num_return_sequences=3, **options)
    assert said[0].filename == __file__
    model.generate(SOURCE, max_new_tokens=1, num_return_sequences=2, **options)
    model.generate(SOURCE, max_new_tokens=0, num_return_sequences=3, **options)
    assert_array_equal(made.sequences, [[1, 3], [1, 2], [1, 4]])
    assert_allclose(made.scores, [np.log(0.6), np.log(0.4), -np.inf])


# -- plain twins -----------------------------------------------------------------------------------


def plain_beam_search(tell, source, length, options):
    """parity.md (d) for one input in plain Python; scored texts, the best first."""
    beams, penalty, early = options.num_beams, options.length_penalty, options.early_stopping
    last, looked_at = options.ends, beams * max(2, 1 + len(options.ends))
    running, pool = [(0.0, (START,))], []
    for new in range(1, length):
        candidates = []
        for total, said in running:
            told = tell(source, said)
            for word, p in enumerate(told):
                if p > 0 and not (word in last and new <= options.min_new_tokens):
                    candidates.append((total + np.log(p), (*said, word)))
        candidates = sorted(candidates, key=lambda c: -c[0])[:looked_at]
        over = [said[-1] in last or new + 1 == length for _, said in candidates]
        for (total, said), ends in list(zip(candidates, over, strict=True))[:beams]:
            if ends:
                pool.append((total / new**penalty, said))
        pool = sorted(pool, key=lambda c: -c[0])[:beams]
        running = [c for c, ends in zip(candidates, over, strict=True) if not ends][:beams]
        if not running or (len(pool) == beams and early is True):
            break
        reach = length - 1 if early == "never" and penalty > 0 else new
        if len(pool) == beams and running[0][0] / reach**penalty <= pool[-1][0]:
            break
    return pool


search_options = {
    "num_beams": st.integers(2, 5),
    "length_penalty": st.sampled_from([0.0, 1.0, 2.0, -1.0, 0.6]),
    "early_stopping": st.sampled_from([False, True, "never"]),
    "min_new_tokens": st.sampled_from([0, 0, 3]),
    "max_length": st.integers(2, 8),
}


EXAMPLE = {"num_beams": 2, "length_penalty": 1.0, "min_new_tokens": 0, "max_length": 8}
FAR = EXAMPLE | {"length_penalty": 2.0}  # with three ends among the best four: the rest counts too


# With True something better would come later; [5, 6]: an input that is over would find more while
# the other one runs; -1.0: "never" does not look ahead where longer sequences score worse.
@example(seeds=[2], early_stopping=True, eos_token_id=EOS, **EXAMPLE)
@example(seeds=[5, 6], early_stopping=True, eos_token_id=EOS, **EXAMPLE)
@example(seeds=[5, 6], early_stopping=False, eos_token_id=EOS, **EXAMPLE)
@example(seeds=[5], early_stopping="never", eos_token_id=EOS, **EXAMPLE | {"length_penalty": -1.0})
@example(seeds=[3], early_stopping="never", eos_token_id=[3, EOS, 5], **FAR)
@given(
    seeds=st.lists(st.integers(0, 500), min_size=1, max_size=3),
    eos_token_id=st.sampled_from([EOS, [EOS, 4], [3, EOS, 5]]),
    **search_options,
)
def test_r63_beam_search_equals_its_plain_twin(seeds, max_length, **options):
    """Of several inputs each one goes its own way, whenever the others stop."""
    model, beams = random_model(), options["num_beams"]
    options |= {"max_length": max_length, "num_return_sequences": beams}
    made = model.generate(sources(*seeds), return_scores=True, **options)
    config = GenerationConfig(**options)
    expected = []
    for source in sources(*seeds):
        pool = plain_beam_search(model.tell, tuple(source), max_length, config)
        expected += (pool + [(-np.inf, (START,))] * beams)[:beams]
    longest = max(len(said) for _, said in expected)
    padded = [[*said, *[PAD] * (longest - len(said))] for _, said in expected]
    assert_array_equal(made.sequences, padded)
    assert_allclose(made.scores, [score for score, _ in expected], rtol=1e-12)


@given(
    seed=st.integers(0, 1000),
    words=st.integers(3, 4),
    length=st.integers(2, 4),
    penalty=st.sampled_from([0.0, 1.0, 2.0, -1.0]),
)
def test_r63_a_wide_beam_equals_exhaustive_search(seed, words, length, penalty):
    """Every text that can be said, scored, against the best ones that a wide beam returns."""
    model, source = random_model(words), sources(seed)
    texts = []
    for new in range(1, length + 1):
        for said in itertools.product(range(words), repeat=new):
            if PAD in said or EOS in said[:-1] or (said[-1] != EOS and new < length):
                continue
            told = [model.tell(tuple(source[0]), (START, *said[:i]))[said[i]] for i in range(new)]
            texts.append((np.log(told).sum() / new**penalty, [START, *said]))
    texts.sort(key=lambda text: -text[0])
    options = {"max_new_tokens": length, "length_penalty": penalty, "early_stopping": "never"}
    options |= {"num_beams": (words - 1) ** length, "num_return_sequences": min(5, len(texts))}
    made = model.generate(source, return_scores=True, **options)
    assert [unpadded(row) for row in made.sequences] == [ids for _, ids in texts[:5]]
    assert_allclose(made.scores, [score for score, _ in texts[:5]])


@given(seed=st.integers(0, 1000), length=st.integers(2, 8))
def test_r63_a_beam_of_width_1_equals_greedy_search(seed, length):
    """Stopped at its first end: later ones could score better per token."""
    model, rows = random_model(), np.array([0])
    found = []
    for search in (beam_search, search_by_token):
        state = model.begin(sources(seed), None, rows, length)
        found.append(
            search(
                lambda ids, rows, state=state: model.step(ids[:, -1:], state),
                np.array([[START]]),
                length,
                GenerationConfig(early_stopping=True, eos_token_id=EOS, length_penalty=0.0),
            )
        )
    assert_array_equal(found[0].sequences, found[1].sequences)
    assert_allclose(found[0].scores, found[1].scores.sum(1))


@given(
    x=st.tuples(st.integers(1, 4), st.integers(2, 400), st.integers(0, 10**6)),
    kinds=st.integers(1, 12),
    data=st.data(),
)
def test_largest_equals_a_stable_sort(x, kinds, data):
    rows, width, seed = x
    k = data.draw(st.integers(1, min(width, 9)))
    rng = np.random.default_rng(seed)
    table = np.append(rng.standard_normal(kinds), -np.inf)  # few values, so that many are equal
    values = table[rng.integers(len(table), size=(rows, width))]
    found, places = largest(values, k)
    expected = np.argsort(-values, 1, kind="stable")[:, :k]
    assert_array_equal(places, expected)
    assert_array_equal(found, np.take_along_axis(values, expected, 1))


# -- properties ------------------------------------------------------------------------------------


@given(seeds=st.lists(st.integers(0, 500), min_size=1, max_size=3), **search_options)
def test_scores_are_those_of_the_sequences(seeds, length_penalty, num_beams, **options):
    """Beams: sum of log-probabilities over length ** penalty, distinct and in order."""
    model = random_model()
    options |= {"num_beams": num_beams, "num_return_sequences": num_beams}
    made = model.generate(
        sources(*seeds), return_scores=True, length_penalty=length_penalty, **options
    )
    groups = zip(np.repeat(sources(*seeds), num_beams, 0), made.sequences, made.scores, strict=True)
    for source, row, score in groups:
        said = unpadded(row)
        told = [model.tell(tuple(source), tuple(said[:i]))[said[i]] for i in range(1, len(said))]
        if said[-1] == PAD:  # fewer sequences exist
            assert score == -np.inf and set(said[1:]) == {PAD}
        else:
            assert_allclose(score, np.log(told).sum() / len(told) ** length_penalty)
    for rows, scores in zip(
        made.sequences.reshape(len(seeds), num_beams, -1),
        made.scores.reshape(len(seeds), num_beams),
        strict=True,
    ):
        real = scores > -np.inf
        assert len({tuple(row) for row in rows[real]}) == real.sum()
        assert (np.diff(scores[real]) <= 0).all()


@given(
    seeds=st.lists(st.integers(0, 500), min_size=2, max_size=4),
    lengths=st.lists(st.integers(1, 3), min_size=4, max_size=4),
    **search_options | {"num_beams": st.integers(1, 4)},
)
def test_r22_a_row_of_a_batch_finds_what_it_finds_alone(seeds, lengths, **options):
    """With its padding masked, and with the scores."""
    many = sources(*seeds, length=3)
    mask = np.array([np.arange(3) < n for n in lengths[: len(seeds)]]).astype(int)
    together = random_model().generate(many, mask, return_scores=True, **options)
    for i, (row, scores) in enumerate(zip(*together, strict=True)):
        alone = random_model().generate(
            many[i : i + 1, : lengths[i]], return_scores=True, **options
        )
        n = alone.sequences.shape[1]
        assert_array_equal(row[:n], alone.sequences[0])
        assert not row[n:].any()
        found = np.atleast_1d(scores)
        assert_allclose(found[: np.size(alone.scores[0])], alone.scores[0])


@given(seeds=st.lists(st.integers(0, 500), min_size=1, max_size=3), **search_options)
def test_r61_beams_with_and_without_cache(seeds, **options):
    model = random_model()
    made = model.generate(sources(*seeds), return_scores=True, **options)
    assert len(model.begun) == 1
    rows, length = model.begun[0]
    assert_array_equal(rows, np.repeat(np.arange(len(seeds)), options["num_beams"]))
    assert length == options["max_length"]
    steps = model.steps
    anew = model.generate(sources(*seeds), return_scores=True, use_cache=False, **options)
    assert len(model.begun) == 1 + steps  # it has begun at each step
    assert_array_equal(anew.sequences, made.sequences)
    assert_array_equal(anew.scores, made.scores)


@pytest.mark.parametrize("early_stopping", [False, True, "never"])
def test_fewer_sequences_asked_for_are_the_first_ones(early_stopping):
    options = {"num_beams": 4, "early_stopping": early_stopping, "return_scores": True}
    every = random_model().generate(sources(1, 2), num_return_sequences=4, **options)
    best = random_model().generate(sources(1, 2), **options)
    two = random_model().generate(sources(1, 2), num_return_sequences=2, **options)
    for made, n in ((best, 1), (two, 2)):
        length = made.sequences.shape[1]
        expected = every.sequences.reshape(2, 4, -1)[:, :n, :length].reshape(2 * n, length)
        assert_array_equal(made.sequences, expected)
        assert_array_equal(made.scores, every.scores.reshape(2, 4)[:, :n].reshape(-1))


def test_beams_add_up_in_the_dtype_of_the_logits():
    model = random_model()
    double, model.step = model.step, lambda *args: double(*args).astype(np.float32)
    options = {"num_beams": 3, "num_return_sequences": 3, "length_penalty": 0.0}
    made = model.generate(sources(1), max_length=8, return_scores=True, **options)
    assert_array_equal(made.scores.astype(np.float32), made.scores)
