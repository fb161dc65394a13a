"""Greedy and beam search: worked examples, properties on scripted models, models, transformers."""

import itertools
import warnings
from functools import cache, partial

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import tinyfm
from tinyfm import nn
from tinyfm.generation import (
    GenerationConfig,
    GenerationMixin,
    GenerationOutput,
    beam_search,
    greedy_search,
    largest,
)
from tinyfm.models import Transformer, TransformerConfig
from tinyfm.models.marian import MarianMTModel
from tinyfm_tests import standin

PAD, START, EOS = 0, 1, 2


# -- scripted models -------------------------------------------------------------------------------


class Scripted(nn.Module, GenerationMixin):
    """The probabilities of a continuation are told by tell(source ids, ids so far).

    Its state keeps what each running sequence has said, as a cache would: without reordering, or
    with a source of another row, the model would go on with the words of somebody else.
    """

    def __init__(self, tell, **config):
        self.tell, self.begun, self.steps = tell, [], 0
        names = {"eos_token_id": EOS, "pad_token_id": PAD, "decoder_start_token_id": START}
        self.config = type("Config", (), names | config)

    def begin(self, input_ids, attention_mask, rows, max_length):
        self.begun.append((rows, max_length))
        source = np.asarray(input_ids)[rows]
        if attention_mask is not None:
            source = np.where(np.asarray(attention_mask)[rows] == 1, source, -1)
        return ScriptedState(source)

    def step(self, ids, state):
        self.steps += 1
        state.ids = np.concatenate([state.ids, ids], 1)
        told = [
            self.tell(tuple(int(i) for i in source if i >= 0), tuple(said.tolist()))
            for source, said in zip(state.source, state.ids, strict=True)
        ]
        with np.errstate(divide="ignore"):
            return np.log(told)


class ScriptedState:
    def __init__(self, source):
        self.source, self.ids = source, np.zeros((len(source), 0), int)

    def reorder(self, rows):
        self.source, self.ids = self.source[rows], self.ids[rows]


@cache
def random_words(source, said, words=6, spread=1.5):
    """Some distribution over words, another one after each text; the padding is never said."""
    scores = spread * np.random.default_rng([7, *source, 7, *said]).standard_normal(words)
    scores[PAD] = -np.inf
    return np.exp(scores) / np.exp(scores).sum()


def random_model(words=6, spread=1.5, **config):
    return Scripted(partial(random_words, words=words, spread=spread), **config)


def sources(*seeds, length=2):
    return np.array([[seed + 3, *[4] * (length - 1)] for seed in seeds])


def unpadded(row, end=EOS):
    """A row up to its end token, which may also be what it starts with (as in BART)."""
    said = row.tolist()
    return said[: said.index(end, 1) + 1] if end in said[1:] else said


# -- worked examples -------------------------------------------------------------------------------

# parity.md (d): what follows 1, 3 and 4
TOY = {1: [0, 0, 0.28, 0.40, 0.32], 3: [0, 0, 0.5, 0.2, 0.3], 4: [0, 0, 0.8, 0.12, 0.08]}
SOURCE = np.array([[5]])


def toy():
    return Scripted(lambda source, said: TOY.get(said[-1], [0, 0, 1, 0, 0]))


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
def test_r63_beams_of_the_toy(options, expected):
    made = toy().generate(
        SOURCE, max_length=8, num_beams=2, num_return_sequences=2, return_scores=True, **options
    )
    assert isinstance(made, GenerationOutput)
    assert [tuple(unpadded(row)) for row in made.sequences] == [*expected]
    assert_allclose(made.scores, [*expected.values()], atol=5e-5)


def test_greedy_search_of_the_toy():
    made = toy().generate(SOURCE, max_length=8, return_scores=True)
    assert_array_equal(made.sequences, [[1, 3, 2]])
    assert_allclose(made.scores, np.log([[0.4, 0.5]]))
    assert_array_equal(toy().generate(SOURCE, max_length=8, min_length=4), [[1, 3, 4, 3, 2]])
    assert_array_equal(toy().generate(SOURCE, max_length=8, min_new_tokens=3), [[1, 3, 4, 3, 2]])


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


def ends_after(steps):
    """Says 7 until it has said enough, and then nothing but the end."""

    def tell(source, said):
        told = np.full(9, 1e-4)
        told[EOS if len(said) >= steps[source[0]] else 7] = 1.0
        return told

    return Scripted(tell)


@pytest.mark.parametrize("beams", [1, 2])
def test_r59_rows_are_padded_after_their_end_and_the_last_end_ends_it(beams):
    model = ends_after({3: 2, 4: 5})
    made = model.generate(sources(0, 1), num_beams=beams, early_stopping=True, return_scores=True)
    best = made.sequences
    assert_array_equal(best, [[1, 7, 2, 0, 0, 0], [1, 7, 7, 7, 7, 2]])
    assert model.steps == (5 if beams == 1 else 6)  # the second beam ends one step later
    alone = ends_after({3: 2}).generate(sources(0), num_beams=beams, return_scores=True)
    scores = np.atleast_2d(made.scores.T).T
    assert_allclose(scores[0].sum(), alone.scores.sum())  # its score has stopped changing
    assert beams > 1 or not scores[0, 2:].any()


def test_what_follows_an_end_is_padding_whatever_the_padding_is():
    options = {"max_length": 8, "num_beams": 2, "num_return_sequences": 2}
    for pad in (0, 4):
        made = toy().generate(SOURCE, early_stopping="never", pad_token_id=pad, **options)
        assert_array_equal(made, [[1, 4, 2, pad], [1, 3, 4, 2]])


# -- plain twins -----------------------------------------------------------------------------------


def plain_beam_search(tell, source, length, options):
    """parity.md (d) for one input in plain Python; scored texts, the best first."""
    beams, penalty, early = options.num_beams, options.length_penalty, options.early_stopping
    running, pool = [(0.0, (START,))], []
    for new in range(1, length):
        candidates = []
        for total, said in running:
            told = tell(source, said)
            for word, p in enumerate(told):
                if p > 0 and not (word == EOS and new <= options.min_new_tokens):
                    candidates.append((total + np.log(p), (*said, word)))
        candidates = sorted(candidates, key=lambda c: -c[0])[: 2 * beams]
        over = [said[-1] == EOS or new + 1 == length for _, said in candidates]
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


# With True something better would come later; [5, 6]: an input that is over would find more while
# the other one runs; -1.0: "never" does not look ahead where longer sequences score worse.
@example(seeds=[2], early_stopping=True, **EXAMPLE)
@example(seeds=[5, 6], early_stopping=True, **EXAMPLE)
@example(seeds=[5, 6], early_stopping=False, **EXAMPLE)
@example(seeds=[5], early_stopping="never", **EXAMPLE | {"length_penalty": -1.0})
@given(seeds=st.lists(st.integers(0, 500), min_size=1, max_size=3), **search_options)
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
    for search in (beam_search, greedy_search):
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


@pytest.mark.parametrize("beams", [1, 2])
def test_a_model_that_has_diverged_does_not_break_the_search(beams):
    made = Scripted(lambda *_: np.full(9, np.nan)).generate(
        sources(1, 2), max_length=4, num_beams=beams, return_scores=True
    )
    assert len(made.sequences) == 2
    assert beams == 1 or (made.scores == -np.inf).all()


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


@given(seeds=st.lists(st.integers(0, 500), min_size=1, max_size=4), length=st.integers(1, 8))
def test_greedy_scores_are_those_of_the_tokens(seeds, length):
    model = random_model()
    made = model.generate(sources(*seeds), max_length=length, return_scores=True)
    assert made.scores.shape == (len(seeds), made.sequences.shape[1] - 1)
    for source, row, scores in zip(sources(*seeds), *made, strict=True):
        said = unpadded(row)
        told = [model.tell(tuple(source), tuple(said[:i]))[said[i]] for i in range(1, len(said))]
        assert_allclose(scores[: len(told)], np.log(told))
        assert not scores[len(told) :].any() and not row[len(said) :].any()


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


def test_where_fewer_sequences_exist_the_missing_ones_say_so():
    made = Scripted(lambda *_: [0, 0, 0.4, 0.6, 0], pad_token_id=4).generate(
        SOURCE, max_new_tokens=1, num_beams=3, num_return_sequences=3, return_scores=True
    )
    assert_array_equal(made.sequences, [[1, 3], [1, 2], [1, 4]])
    assert_allclose(made.scores, [np.log(0.6), np.log(0.4), -np.inf])


@pytest.mark.parametrize("beams", [1, 2])
def test_of_equally_probable_tokens_the_lowest_id_wins(beams):
    model = Scripted(lambda *_: [0, 0, 0, 0.25, 0.25, 0.25, 0.25])
    made = model.generate(
        SOURCE, max_new_tokens=3, num_beams=beams, num_return_sequences=beams, min_length=9
    )
    assert_array_equal(made, [[1, 3, 3, 3], [1, 3, 3, 4]][:beams])


def test_beams_add_up_in_the_dtype_of_the_logits():
    model = random_model()
    double, model.step = model.step, lambda *args: double(*args).astype(np.float32)
    options = {"num_beams": 3, "num_return_sequences": 3, "length_penalty": 0.0}
    made = model.generate(sources(1), max_length=8, return_scores=True, **options)
    assert_array_equal(made.scores.astype(np.float32), made.scores)


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("beams", [1, 2])
def test_r64_a_start_token_that_is_also_the_end_token_ends_nothing(beams):
    made = toy().generate(SOURCE, decoder_start_token_id=EOS, num_beams=beams)
    assert_array_equal(made[0, :2], [EOS, EOS])  # one step was made, and its token is the end
    assert not made[0, 2:].any()


@pytest.mark.parametrize("beams", [1, 3])
def test_r64_forced_tokens(beams):
    options = {"max_length": 5, "num_beams": beams, "return_scores": True}
    free = random_model().generate(sources(1), min_length=5, **options)
    assert free.sequences[0, 1] != 5 and free.sequences[0, -1] != EOS
    made = random_model(forced_bos_token_id=5).generate(
        sources(1), min_length=5, forced_eos_token_id=EOS, **options
    )
    assert made.sequences[0, 1] == 5
    assert_array_equal(made.sequences == EOS, [[False] * 4 + [True]])
    told = random_words
    said, source = made.sequences[0].tolist(), tuple(sources(1)[0])
    logs = [np.log(told(source, tuple(said[:i]))[said[i]]) for i in range(1, 5)]
    # Greedy reports what the model thinks of a forced token; beams take it for certain.
    expected = logs if beams == 1 else sum(logs[1:3]) / 4
    assert_allclose(made.scores[0], expected)


def test_a_forced_end_wins_over_a_forced_begin_and_a_minimal_length():
    made = random_model().generate(
        sources(1), max_length=2, min_length=9, forced_bos_token_id=5, forced_eos_token_id=EOS
    )
    assert_array_equal(made, [[START, EOS]])
    made = random_model().generate(sources(1), min_length=9, forced_bos_token_id=EOS)
    assert_array_equal(made, [[START, EOS]])


@pytest.mark.parametrize("beams", [1, 2])
def test_without_an_end_token_nothing_ends_and_no_token_is_forbidden(beams):
    model = Scripted(lambda *_: [0, 0, 0.2, 0.1, 0.7])  # the most probable id is the last one
    made = model.generate(
        SOURCE, max_length=5, min_length=9, eos_token_id=-1, num_beams=beams, length_penalty=0.0
    )
    assert_array_equal(made, [[START, 4, 4, 4, 4]])


@given(
    seeds=st.lists(st.integers(0, 500), min_size=1, max_size=3),
    least=st.integers(0, 7),
    beams=st.integers(1, 3),
    counted=st.sampled_from(["min_length", "min_new_tokens"]),
)
def test_r64_no_row_ends_too_early(seeds, least, beams, counted):
    made = random_model().generate(
        sources(*seeds), max_length=7, num_beams=beams, **{counted: least}
    )
    before = least + (counted == "min_new_tokens")  # min_length counts the start token
    for row in made:
        said = unpadded(row)
        assert EOS not in said[:before]


def test_options_left_out_come_from_the_models_config():
    config = {"num_beams": 2, "early_stopping": "never", "length_penalty": 2.0, "max_length": 8}
    model, plain = toy(), toy()
    for name, value in config.items():
        setattr(model.config, name, value)
    assert_array_equal(model.generate(SOURCE), plain.generate(SOURCE, **config))
    assert_array_equal(model.generate(SOURCE), [[1, 3, 3, 3, 3, 3, 4, 2]])
    made = model.generate(SOURCE, length_penalty=1.0, num_beams=None)  # None is left out
    assert_array_equal(made, [[1, 4, 2]])


def test_a_folders_settings_come_before_the_config_and_after_the_options():
    config = type("Config", (), {"num_beams": 5, "pad_token_id": 7, "eos_token_id": 8})
    saved = {"num_beams": 2, "max_length": 9, "eos_token_id": 3, "forced_eos_token_id": None}
    made = GenerationConfig.of(config, {"max_new_tokens": 4}, saved)
    assert (made.num_beams, made.eos_token_id, made.pad_token_id) == (2, 3, 7)
    assert (made.max_new_tokens, made.max_length) == (4, None)
    assert GenerationConfig.of(config, {"num_beams": 1}, saved).num_beams == 1
    # With a file of settings the config only tells ids, even where the file says nothing.
    assert GenerationConfig.of(config, {}, {"max_length": 9}).num_beams == 1


def test_generation_follows_what_was_saved_with_the_model():
    saved = {"num_beams": 2, "early_stopping": "never", "length_penalty": 2.0, "max_length": 8}
    model = toy()
    model.generation_config = saved
    assert_array_equal(model.generate(SOURCE), [[1, 3, 3, 3, 3, 3, 4, 2]])
    assert_array_equal(model.generate(SOURCE, length_penalty=1.0), [[1, 4, 2]])


@pytest.mark.parametrize("beams", [1, 2])
def test_bad_words_are_never_said(beams):
    """3 is most probable everywhere, 4 comes next; 3 alone may not follow 3, and 5 never comes."""

    def tell(source, said):
        return [0, 0, 0.02, 0.5, 0.08, 0.4]

    model = Scripted(tell)
    made = model.generate(
        np.array([[5]]), num_beams=beams, max_new_tokens=3, bad_words_ids=[[3, 3], [5], [3, 4, 2]]
    )
    assert made.tolist() == [[START, 3, 4, 3]]


def test_a_length_that_is_given_wins_over_both_in_the_config():
    config = type("Config", (), {"max_length": 9, "max_new_tokens": 4})
    assert GenerationConfig.of(config, {}).max_new_tokens == 4
    assert GenerationConfig.of(config, {"max_length": 6}).max_new_tokens is None
    assert GenerationConfig.of(config, {"max_new_tokens": 6}).max_length is None


@pytest.mark.parametrize(
    "options, error, says",
    [
        ({"max_length": 0}, ValueError, "max_length is 0: it must be at least 1"),
        ({"max_new_tokens": -1}, ValueError, "max_new_tokens is -1: it must be at least 0"),
        ({"min_length": -1}, ValueError, "min_length is -1: it must be at least 0"),
        ({"min_new_tokens": -2}, ValueError, "min_new_tokens is -2: it must be at least 0"),
        ({"num_beams": 0}, ValueError, "num_beams is 0: it must be at least 1"),
        ({"num_beams": 2.5}, TypeError, "num_beams is 2.5: it must be a whole number"),
        ({"num_beams": True}, TypeError, "num_beams is True: it must be a whole number"),
        ({"num_return_sequences": 0}, ValueError, "num_return_sequences is 0"),
        (
            {"num_return_sequences": 3, "num_beams": 2},
            ValueError,
            "num_return_sequences is 3: it must be at most num_beams, which is 2",
        ),
        (
            {"early_stopping": "x"},
            ValueError,
            "early_stopping is 'x': it must be True, False or 'never'",
        ),
        ({"early_stopping": 1}, ValueError, "early_stopping is 1"),
        ({"length_penalty": np.nan}, ValueError, "length_penalty is nan: it must be between"),
        ({"length_penalty": 400.0}, ValueError, "length_penalty is 400.0: it must be between"),
        ({"length_penalty": "x"}, ValueError, "length_penalty is 'x': it must be between"),
        ({"bad_words_ids": [5]}, ValueError, r"bad_words_ids is \[5\]: it must hold lists of ids"),
        ({"bad_words_ids": [[]]}, ValueError, r"bad_words_ids is \[\[\]\]"),
        ({"bad_words_ids": [[-1]]}, ValueError, r"bad_words_ids is \[\[-1\]\]"),
        ({"bad_words_ids": [["x"]]}, ValueError, "bad_words_ids is"),
        ({"bad_words_ids": 7}, ValueError, "bad_words_ids is 7"),
        ({"pad_token_id": -2}, ValueError, "pad_token_id is -2: it must be at least -1"),
        ({"forced_bos_token_id": -1}, ValueError, "forced_bos_token_id is -1"),
        ({"beams": 3}, TypeError, "generate has no option 'beams': it has .*num_beams"),
    ],
)
def test_options_that_make_no_sense(options, error, says):
    with pytest.raises(error, match=says):
        toy().generate(SOURCE, **options)


def test_ids_that_nobody_knows_are_asked_for():
    model = toy()
    model.config.decoder_start_token_id = None
    with pytest.raises(ValueError, match="decoder_start_token_id is missing: give it"):
        model.generate(SOURCE)
    assert_array_equal(model.generate(SOURCE, decoder_start_token_id=1), [[1, 3, 2]])
    model = Scripted(lambda *_: [0, 0, 0, 1], pad_token_id=None, eos_token_id=None)
    with pytest.raises(ValueError, match="pad_token_id is missing: give it"):
        model.generate(SOURCE)
    assert_array_equal(model.generate(SOURCE, pad_token_id=0, max_length=3), [[1, 3, 3]])


@pytest.mark.parametrize("beams", [1, 2])
def test_r59_without_a_padding_token_the_end_token_pads(beams):
    model = ends_after({3: 2, 4: 5})
    model.config.pad_token_id = None
    made = model.generate(sources(0, 1), num_beams=beams, early_stopping=True)
    assert_array_equal(made, [[1, 7, 2, 2, 2, 2], [1, 7, 7, 7, 7, 2]])


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("cache", [True, False])
def test_r62_at_the_models_positions_generation_stops_and_says_so(beams, cache):
    model = random_model(max_position_embeddings=4)
    options = {"num_beams": beams, "min_length": 9, "use_cache": cache}
    with pytest.warns(UserWarning, match="stops at the model's 4 positions instead of 9") as said:
        made = model.generate(sources(1), max_length=9, **options)
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_array_equal(model.generate(sources(1), max_length=4, **options), made)
    assert made.shape == (1, 4)


def test_r62_sinusoids_have_no_limit_and_a_model_may_say_its_own():
    assert random_model(max_position_embeddings=4).position_limit() == 4
    assert random_model(max_position_embeddings=4, positions="learned").position_limit() == 4
    assert random_model(max_position_embeddings=4, positions="sinusoidal").position_limit() is None
    assert random_model().position_limit() is None  # no positions at all
    made = random_model(max_position_embeddings=4, positions="sinusoidal").generate(
        sources(1), max_length=9, min_length=9
    )
    assert made.shape == (1, 9)

    class Short(Scripted):
        def position_limit(self):
            return 2

    with pytest.warns(UserWarning, match="the model's 2 positions instead of 21"):
        assert Short(random_words).generate(sources(1)).shape == (1, 2)


@pytest.mark.parametrize("beams", [1, 2])
def test_r65_no_new_tokens_and_no_rows(beams):
    options = {"num_beams": beams, "num_return_sequences": beams}
    made = random_model().generate(sources(1, 2), max_new_tokens=0, **options)
    assert_array_equal(made, np.full((2 * beams, 1), START))
    none = random_model().generate(np.zeros((0, 3), int), return_scores=True, **options)
    assert none.sequences.shape == (0, 1) and len(none.scores) == 0


# -- models ----------------------------------------------------------------------------------------


def tiny(seed=0, dtype=np.float64, std=0.6, vocab_size=17, **changes):
    """A small model with noise on every parameter, so that ends come at different times."""
    tinyfm.manual_seed(seed)
    sizes = {"layers": 2, "attention_heads": 2, "ffn_dim": 12}
    sides = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in sizes.items()}
    config = TransformerConfig(vocab_size=vocab_size, d_model=8, dropout=0.0, **sides, **changes)
    model = Transformer(config).to(dtype=dtype)
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data = (p.data + std * rng.standard_normal(p.shape)).astype(dtype)
    return model.eval()


IDS = np.array([[5, 6, 7, 8, 9], [9, 3, 4, 0, 0]])
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])


@pytest.mark.parametrize("seed", range(20))
def test_r61_r22_beams_of_a_model_with_and_without_cache(seed):
    """Traps 68 and 69: caches follow their rows, memory and mask are repeated for the beams."""
    model = tiny(seed, norm_first=seed % 2 == 0)
    options = {"num_beams": 3, "num_return_sequences": 3, "max_new_tokens": 9}
    made = model.generate(IDS, MASK, return_scores=True, **options)
    anew = model.generate(IDS, MASK, return_scores=True, use_cache=False, **options)
    assert_array_equal(anew.sequences, made.sequences)
    assert_allclose(anew.scores, made.scores, rtol=1e-9)
    alone = model.generate(IDS[1:, :3], return_scores=True, **options)
    n = alone.sequences.shape[1]
    assert_array_equal(made.sequences[3:, :n], alone.sequences)
    assert not made.sequences[3:, n:].any()
    assert_allclose(made.scores[3:], alone.scores, rtol=1e-9)


def test_r22_each_source_is_encoded_once(monkeypatch):
    model, encoded, plain = tiny(), [], Transformer.encode

    def encode(self, input_ids, *rest):
        encoded.append(np.shape(input_ids))
        return plain(self, input_ids, *rest)

    monkeypatch.setattr(Transformer, "encode", encode)
    model.generate(IDS, MASK, num_beams=4)
    assert encoded == [IDS.shape]


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("mode", [True, False])
def test_r66_a_search_has_no_dropout_records_nothing_restores_the_mode(mode, beams, monkeypatch):
    model, steps, plain = tiny(), [], Transformer.step
    model.dropout.p = 0.5
    model.train(mode)

    def step(self, ids, state):
        assert not any(m.training for m in self.modules())
        assert state.memory is None or not state.memory.requires_grad
        steps.append(ids)
        return plain(self, ids, state)

    monkeypatch.setattr(Transformer, "step", step)
    made = [model.generate(IDS, MASK, num_beams=beams) for _ in range(2)]
    assert_array_equal(*made)
    assert steps
    assert all(m.training is mode for m in model.modules())
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("beams", [1, 3])
def test_a_search_on_stand_ins_equals_that_on_numpy(beams):
    """What only a GPU would show otherwise: nothing goes to the device or comes back unasked."""
    options = {"num_beams": beams, "num_return_sequences": beams, "min_length": 4, "max_length": 8}
    options |= {"forced_bos_token_id": 5, "forced_eos_token_id": EOS}
    found = []
    for on_device in (False, True):
        model = tiny()
        if on_device:
            for p in model.parameters():
                p._data = standin.asarray(p._data)
        found.append(model.generate(IDS, MASK, return_scores=True, **options))
    assert_array_equal(found[1].sequences, found[0].sequences)
    assert_allclose(found[1].scores, found[0].scores, rtol=1e-9)
    assert type(found[1].sequences) is type(found[1].scores) is np.ndarray


# -- transformers ----------------------------------------------------------------------------------


def marian_pair(rng, folder):
    """A random Marian model of transformers in float64 and the same one of ours."""
    import torch
    import transformers

    vocab, d_head = int(rng.integers(14, 40)), int(rng.choice([2, 4, 8]))
    sizes = {"vocab_size": vocab, "decoder_vocab_size": vocab, "max_position_embeddings": 24}
    for side in ("encoder", "decoder"):
        sizes |= {
            f"{side}_layers": int(rng.integers(1, 4)),
            f"{side}_attention_heads": int(rng.choice([2, 4])),
            f"{side}_ffn_dim": int(rng.integers(8, 25)),
        }
    pad, eos = ((0, 2), (0, 1), (vocab - 1, 0), (3, 2))[rng.integers(4)]
    ids = {"pad_token_id": pad, "eos_token_id": eos, "forced_eos_token_id": None}
    ids["decoder_start_token_id"] = int(rng.choice([pad, 1]))
    switches = {"scale_embedding": True, "activation_function": "swish"}
    config = transformers.MarianConfig(**sizes, **ids, **switches, d_model=4 * d_head)
    theirs = transformers.MarianMTModel(config).double().eval()
    std = rng.choice([0.3, 0.6, 1.0])
    with torch.no_grad():
        for name, p in [*theirs.named_parameters(), *theirs.named_buffers()]:
            if "embed_positions" in name:  # as exact as ours, and not rounded to float32
                p.copy_(torch.from_numpy(nn.sinusoids(*p.shape, "halves")))
            else:
                p.copy_(torch.from_numpy(std * rng.standard_normal(p.shape)))
        theirs.final_logits_bias[0, eos] = rng.uniform(3, 9) * std  # or few would ever end
    theirs.save_pretrained(folder)
    return theirs, MarianMTModel.from_pretrained(folder, dtype=np.float64)


def random_batch(rng, vocab, pad):
    rows, width = rng.integers(1, 5), rng.integers(2, 9)
    ids = rng.integers(0, vocab, (rows, width))
    mask = np.arange(width) < rng.integers(1, width + 1, (rows, 1))
    mask[rng.integers(rows)] = True
    return np.where(mask, ids, pad), mask.astype(int)


def random_options(rng, vocab):
    beams = int(rng.integers(1, 7))
    options = {
        "num_beams": beams,
        "num_return_sequences": int(rng.integers(1, beams + 1)),
        ("max_length" if rng.random() < 0.5 else "max_new_tokens"): int(rng.integers(3, 21)),
    }
    if rng.random() < 0.4:
        for name in ("min_length", "min_new_tokens"):
            if rng.random() < 0.6:
                options[name] = int(rng.integers(1, 12))
    if rng.random() < 0.25:
        options["forced_bos_token_id"] = int(rng.integers(4, vocab))
    if beams > 1:
        options["length_penalty"] = float(rng.choice([0.0, 1.0, 1.0, 2.0, -1.0, 0.6]))
        options["early_stopping"] = (False, True, "never")[rng.integers(3)]
    return options


@pytest.mark.parity
@pytest.mark.parametrize("seed", range(50))
def test_ids_and_scores_equal_those_of_transformers(seed, tmp_path, monkeypatch):
    """Five configurations for each of 50 Marian models, 250 in all.

    What follows an end is not compared: transformers' beams fill up with the end token where the
    padding is 0.  Its search cuts logits to what it calls float32: here that is float64, so that
    models that repeat themselves, whose sequences score nearly the same, can be compared.
    """
    import torch

    monkeypatch.setattr(torch, "float32", torch.float64)
    monkeypatch.setattr(torch, "float", torch.float64)
    rng = np.random.default_rng(seed)
    theirs, ours = marian_pair(rng, tmp_path)
    end, vocab = ours.config.eos_token_id, ours.config.vocab_size
    output = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}
    for _ in range(5):
        ids, mask = random_batch(rng, vocab, ours.config.pad_token_id)
        options = random_options(rng, vocab)
        if rng.random() < 0.3:
            options["forced_eos_token_id"] = end
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # lengths that fit badly: they warn, and go on
            batch = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
            expected = theirs.generate(**batch, **options, **output)
        made = ours.generate(ids, mask, return_scores=True, **options)
        sequences = expected.sequences.numpy()
        assert made.sequences.shape == sequences.shape, options
        for row, other in zip(made.sequences, sequences, strict=True):
            assert unpadded(row, end) == unpadded(other, end), options
            assert set(row[len(unpadded(row, end)) :]) <= {ours.config.pad_token_id}
        if options["num_beams"] > 1:
            scores = expected.sequences_scores.numpy()
        else:
            logs = torch.stack(expected.logits, 1).log_softmax(-1).numpy()
            scores = np.take_along_axis(logs, sequences[:, 1:, None], 2)[:, :, 0]
            for row, said in zip(scores, sequences, strict=True):
                row[len(unpadded(said, end)) - 1 :] = 0
        assert_allclose(made.scores, scores, rtol=1e-7, atol=1e-7)


@pytest.mark.parity
@pytest.mark.parametrize("seed", range(8))
def test_generation_follows_the_folders_settings_as_transformers_does(seed, tmp_path):
    import torch

    rng = np.random.default_rng(seed)
    theirs, ours = marian_pair(rng, tmp_path)
    vocab = ours.config.vocab_size
    words = rng.integers(4, vocab, (6, 1)).tolist() + rng.integers(4, vocab, (20, 2)).tolist()
    settings = {"num_beams": 3, "max_length": 12, "length_penalty": 0.5, "bad_words_ids": words}
    theirs.generation_config.update(**settings)
    theirs.save_pretrained(tmp_path)
    ours = MarianMTModel.from_pretrained(tmp_path, dtype=np.float64)
    assert settings.items() <= ours.generation_config.items()
    ids, mask = random_batch(rng, vocab, ours.config.pad_token_id)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = theirs.generate(torch.from_numpy(ids), attention_mask=torch.from_numpy(mask))
    end = ours.config.eos_token_id
    made = ours.generate(ids, mask)
    assert made.shape == tuple(expected.shape)
    for row, other in zip(made, expected.numpy(), strict=True):
        assert unpadded(row, end) == unpadded(other, end)
