"""generate() on scripted models: when it stops, what follows an end, its options, bad input."""

import warnings
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tinyfm.generation import GenerationConfig
from tinyfm_tests.scripted import (
    EOS,
    SOURCE,
    START,
    Scripted,
    ends_after,
    random_model,
    random_words,
    sources,
    toy,
    unpadded,
)


def test_greedy_search_of_the_toy():
    made = toy().generate(SOURCE, max_length=8, return_scores=True)
    assert_array_equal(made.sequences, [[1, 3, 2]])
    assert_allclose(made.scores, np.log([[0.4, 0.5]]))
    assert_array_equal(toy().generate(SOURCE, max_length=8, min_length=4), [[1, 3, 4, 3, 2]])
    assert_array_equal(toy().generate(SOURCE, max_length=8, min_new_tokens=3), [[1, 3, 4, 3, 2]])


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


@pytest.mark.parametrize("beams", [1, 2])
def test_of_equally_probable_tokens_the_lowest_id_wins(beams):
    model = Scripted(lambda *_: [0, 0, 0, 0.25, 0.25, 0.25, 0.25])
    made = model.generate(
        SOURCE, max_new_tokens=3, num_beams=beams, num_return_sequences=beams, min_length=9
    )
    assert_array_equal(made, [[1, 3, 3, 3], [1, 3, 3, 4]][:beams])


@pytest.mark.parametrize("beams", [1, 2])
def test_r59_rows_are_padded_after_their_end_and_the_last_end_ends_it(beams):
    model = ends_after({3: 2, 4: 5})
    at_once = {"early_stopping": True} if beams > 1 else {}
    made = model.generate(sources(0, 1), num_beams=beams, return_scores=True, **at_once)
    best = made.sequences
    assert_array_equal(best, [[1, 7, 2, 0, 0, 0], [1, 7, 7, 7, 7, 2]])
    assert model.steps == (5 if beams == 1 else 6)  # the second beam ends one step later
    alone = ends_after({3: 2}).generate(sources(0), num_beams=beams, return_scores=True)
    scores = np.atleast_2d(made.scores.T).T
    assert_allclose(scores[0].sum(), alone.scores.sum())  # its score has stopped changing
    assert beams > 1 or not scores[0, 2:].any()


@pytest.mark.parametrize("beams", [1, 2])
def test_r59_without_a_padding_token_the_end_token_pads(beams):
    model = ends_after({3: 2, 4: 5})
    model.config.pad_token_id = None
    at_once = {"early_stopping": True} if beams > 1 else {}
    made = model.generate(sources(0, 1), num_beams=beams, **at_once)
    assert_array_equal(made, [[1, 7, 2, 2, 2, 2], [1, 7, 7, 7, 7, 2]])


@pytest.mark.parametrize("beams", [1, 2])
def test_a_model_that_has_diverged_does_not_break_the_search(beams):
    no_texts = pytest.warns(UserWarning, match="beams found 0 of 1 texts")
    with no_texts if beams > 1 else nullcontext():
        made = Scripted(lambda *_: np.full(9, np.nan)).generate(
            sources(1, 2), max_length=4, num_beams=beams, return_scores=True
        )
    assert len(made.sequences) == 2
    assert beams == 1 or (made.scores == -np.inf).all()


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
    made = model.generate(SOURCE, max_length=5, min_length=9, eos_token_id=-1, num_beams=beams)
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
            "num_return_sequences is 3: .* at most num_beams, which is 2",
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
        (
            {"temperature": -1.0},
            ValueError,
            "temperature is -1.0: it must be between 0 and 1,000,000",
        ),
        ({"temperature": np.nan}, ValueError, "temperature is nan: it must be between"),
        ({"temperature": np.inf}, ValueError, "temperature is inf: it must be between"),
        ({"top_k": -1}, ValueError, "top_k is -1: it must be at least 0"),
        ({"top_k": 2.5}, TypeError, "top_k is 2.5: it must be a whole number"),
        ({"top_p": 0.0}, ValueError, "top_p is 0.0: it must be above 0 and at most 1"),
        ({"top_p": 1.5}, ValueError, "top_p is 1.5: it must be above 0 and at most 1"),
        ({"top_p": True}, ValueError, "top_p is True: it must be above 0"),
        ({"repetition_penalty": 0}, ValueError, "repetition_penalty is 0: it must be above 0"),
        ({"no_repeat_ngram_size": -1}, ValueError, "no_repeat_ngram_size is -1: it must be at"),
        ({"do_sample": 1}, TypeError, "do_sample is 1: it must be True or False"),
        (
            {"do_sample": True, "num_beams": 2},
            ValueError,
            "do_sample with num_beams 2: beams do not sample, leave one out",
        ),
        (
            {"num_return_sequences": 2},
            ValueError,
            "num_return_sequences is 2: without do_sample it must be at most num_beams, which is 1",
        ),
        ({"pad_token_id": -2}, ValueError, "pad_token_id is -2: it must be at least -1"),
        ({"eos_token_id": -2}, ValueError, "eos_token_id is -2: it must be an id, -1 for none, or"),
        ({"eos_token_id": []}, ValueError, r"eos_token_id is \[\]: it must be an id"),
        ({"eos_token_id": [2, -1]}, ValueError, r"eos_token_id is \[2, -1\]: it must be an id"),
        ({"eos_token_id": [2, "x"]}, TypeError, "must be a whole number or a list of them"),
        ({"eos_token_id": True}, TypeError, "eos_token_id is True: it must be a whole number"),
        ({"seed": -1, "do_sample": True}, ValueError, "seed is -1: it must be a whole number of"),
        ({"seed": 1.5, "do_sample": True}, ValueError, "seed is 1.5: it must be a whole number"),
        ({"forced_bos_token_id": -1}, ValueError, "forced_bos_token_id is -1"),
        ({"beams": 3}, TypeError, "generate has no option 'beams': it has .*num_beams"),
    ],
)
def test_options_that_make_no_sense(options, error, says):
    with pytest.raises(error, match=says):
        toy().generate(SOURCE, **options)


@pytest.mark.parametrize("option", [{"temperature": 0.7}, {"top_k": 5}, {"top_p": 0.9}])
@pytest.mark.parametrize(
    "beams, remedy", [(1, "give do_sample=True"), (2, "leave num_beams out and give do_sample")]
)
def test_options_of_sampling_without_sampling_are_pointed_out(option, beams, remedy):
    (name,) = option
    with pytest.warns(UserWarning, match=f"{name} has no effect, .* sampled: {remedy}") as said:
        made = toy().generate(SOURCE, num_beams=beams, **option)
    assert said[0].filename == __file__
    assert_array_equal(made, toy().generate(SOURCE, num_beams=beams))


def test_options_that_are_no_wish_to_sample_are_not_pointed_out():
    """Their defaults, what changes nothing, what comes from the folder, temperature 0."""
    model = toy()
    model.generation_config = {"temperature": 0.7, "top_p": 0.9}
    for option in ({"temperature": 1.0}, {"temperature": 0}, {"top_k": 0}, {"top_k": 50}):
        assert_array_equal(model.generate(SOURCE, **option), [[1, 3, 2]])


@pytest.mark.parametrize(
    "options, says",
    [
        ({"length_penalty": 2.0}, "length_penalty has no effect, .* no beams: give num_beams"),
        ({"early_stopping": True}, "early_stopping has no effect, for there are no beams"),
        (
            {"min_new_tokens": 5, "max_new_tokens": 4},
            "min_new_tokens 5 is more than max_new_tokens 4, where generation stops",
        ),
    ],
)
def test_options_that_are_given_in_vain_are_pointed_out(options, says):
    with pytest.warns(UserWarning, match=says) as said:
        toy().generate(SOURCE, **options)
    assert len(said) == 1 and said[0].filename == __file__
    if "min_new_tokens" not in options:  # of the folder's own, and with beams, nothing is said
        toy().generate(SOURCE, num_beams=2, **options)
        model = toy()
        model.generation_config = options
        model.generate(SOURCE)


@pytest.mark.parametrize(
    "options, id",
    [
        ({"bad_words_ids": [[3], [3, 99]]}, 99),
        ({"forced_bos_token_id": 5}, 5),
        ({"forced_eos_token_id": 6}, 6),
    ],
)
@pytest.mark.parametrize("beams", [1, 2])
def test_tokens_that_the_vocabulary_lacks_are_named_before_anything_is_generated(
    options, id, beams
):
    model = toy()
    model.config.vocab_size = 5
    (name,) = options
    says = f"{name} has the id {id}, and the vocabulary has 5 tokens, 0 to 4: leave it out"
    with pytest.raises(ValueError, match=says):
        model.generate(SOURCE, num_beams=beams, **options)
    assert not model.begun
    model.generation_config = options
    with pytest.raises(ValueError, match=says):
        model.generate(SOURCE, num_beams=beams)
    # What ends or pads a sequence may be a token that is never made.
    model.generation_config = {"eos_token_id": 7, "pad_token_id": 8, "min_new_tokens": 2}
    assert model.generate(SOURCE, num_beams=beams, max_length=5).shape == (1, 5)


# -- several end tokens ----------------------------------------------------------------------------


@given(
    seeds=st.lists(st.integers(0, 500), min_size=1, max_size=4),
    ends=st.lists(st.sampled_from([EOS, 3, 5]), min_size=1, max_size=4),
    strategy=st.sampled_from([{}, {"num_beams": 3}, {"do_sample": True, "seed": 1}]),
    least=st.integers(0, 4),
)
def test_each_of_several_tokens_ends_a_sequence_and_none_too_early(seeds, ends, strategy, least):
    made = random_model().generate(
        sources(*seeds), max_length=7, eos_token_id=ends, min_new_tokens=least, **strategy
    )
    for row in made[:, 1:]:
        found = [place for place, token in enumerate(row) if token in ends]
        assert not found or found[0] >= least
        after = row[found[0] + 1 :] if found else []
        assert not any(after)  # padding, which this model never says
        assert found or 0 not in row


def test_several_ends_are_one_where_the_others_are_never_said():
    for options in ({}, {"num_beams": 3}, {"do_sample": True, "seed": 3}, {"min_new_tokens": 3}):
        one, several = (
            random_model(eos_token_id=ends).generate(sources(1, 2, 3), max_length=7, **options)
            for ends in (EOS, [EOS, 99, EOS])
        )
        assert_array_equal(several, one)


@pytest.mark.parametrize("beams", [1, 2])
def test_without_a_padding_token_the_first_of_several_ends_pads(beams):
    model = ends_after({3: 2, 4: 5})
    model.config.pad_token_id, model.config.eos_token_id = None, [8, EOS]
    made = model.generate(sources(0, 1), num_beams=beams)
    assert_array_equal(made, [[1, 7, 2, 8, 8, 8], [1, 7, 7, 7, 7, 2]])


def test_a_way_to_choose_that_is_given_wins_over_a_saved_one():
    beams, samples = {"num_beams": 4}, {"do_sample": True, "top_p": 0.5}
    made = GenerationConfig.of(None, {"do_sample": True}, beams)
    assert (made.do_sample, made.num_beams) == (True, 1)
    made = GenerationConfig.of(None, {"num_beams": 3}, samples)
    assert (made.do_sample, made.num_beams, made.top_p) == (False, 3, 0.5)
    made = GenerationConfig.of(None, {"num_beams": 1}, samples)
    assert made.do_sample
    with pytest.raises(ValueError, match="do_sample with num_beams 4"):
        GenerationConfig.of(None, {}, beams | samples)


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
