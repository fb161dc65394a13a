"""generate() on small models: caches, batches, prompts, positions, modes, other arrays."""

import warnings
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import tinyfm
from tinyfm import nn
from tinyfm.models import (
    BartConfig,
    BartForConditionalGeneration,
    GPT2LMHeadModel,
    OpenAIGPTLMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
    Transformer,
    TransformerConfig,
)
from tinyfm_tests import standin
from tinyfm_tests.scripted import EOS, PAD, START, Continuing


def noisy(model, seed, dtype, std):
    """With noise on every parameter, so that ends come at different times."""
    rng = np.random.default_rng(seed)
    for p in model.to(dtype=dtype).parameters():
        p.data = (p.data + std * rng.standard_normal(p.shape)).astype(dtype)
    return model.eval()


SIZES = {"layers": 2, "attention_heads": 2, "ffn_dim": 12}
SIDES = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in SIZES.items()}


def tiny(seed=0, dtype=np.float64, std=0.6, vocab_size=17, **changes):
    tinyfm.manual_seed(seed)
    config = TransformerConfig(vocab_size=vocab_size, d_model=8, dropout=0.0, **SIDES, **changes)
    return noisy(Transformer(config), seed, dtype, std)


def tiny_bart(seed=0, dtype=np.float64, std=0.6, **changes):
    tinyfm.manual_seed(seed)
    ids = {"pad_token_id": PAD, "bos_token_id": START, "eos_token_id": EOS}
    tanh = {"activation_function": "gelu_new"}  # erf on a device is cupyx's
    config = BartConfig(vocab_size=17, d_model=8, dropout=0.0, **SIDES | ids | tanh | changes)
    return noisy(BartForConditionalGeneration(config), seed, dtype, std)


def tiny_gpt(kind=GPT2LMHeadModel, seed=0, dtype=np.float64, std=0.4, **changes):
    tinyfm.manual_seed(seed)
    sizes = {"vocab_size": 17, "n_positions": 32, "n_embd": 8, "n_layer": 2, "n_head": 2}
    ids = {"pad_token_id": PAD, "bos_token_id": START, "eos_token_id": EOS}
    return noisy(kind(kind.config_class(**sizes | ids | changes)), seed, dtype, std)


def tiny_t5(seed=0, dtype=np.float64, std=0.4, **changes):
    tinyfm.manual_seed(seed)
    sizes = {"d_model": 8, "d_kv": 3, "d_ff": 12, "num_layers": 2, "num_heads": 2}
    ids = {"pad_token_id": PAD, "decoder_start_token_id": START, "eos_token_id": EOS}
    buckets = {"relative_attention_num_buckets": 6, "relative_attention_max_distance": 8}
    config = T5Config(vocab_size=17, dropout_rate=0.0, **sizes | ids | buckets | changes)
    return noisy(T5ForConditionalGeneration(config), seed, dtype, std)


# By family a model of a seed, and on which side its inputs are padded.
FAMILIES = {
    "transformer": (tiny, "right"),
    "bart": (tiny_bart, "right"),
    "t5": (tiny_t5, "right"),
    "gpt1": (partial(tiny_gpt, OpenAIGPTLMHeadModel), "left"),
    "gpt2": (partial(tiny_gpt, GPT2LMHeadModel), "left"),
}
GPTS = {"gpt1": OpenAIGPTLMHeadModel, "gpt2": GPT2LMHeadModel}
STRATEGIES = {
    "greedy": {},
    "sampling": {"do_sample": True, "seed": 7, "top_k": 9, "temperature": 1.5, "top_p": 0.95},
    "samples": {"do_sample": True, "seed": 7, "num_return_sequences": 3},
    "beams": {"num_beams": 3, "num_return_sequences": 3},
    "changed": {"repetition_penalty": 1.4, "min_new_tokens": 4},
    "no pair twice": {"no_repeat_ngram_size": 2},
}
ROWS = [[5, 6, 7, 8, 9], [9, 3, 4]]
IDS = np.array([[5, 6, 7, 8, 9], [9, 3, 4, 0, 0]])
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
LEFT_IDS, LEFT_MASK = np.array([[5, 6, 7, 8, 9], [0, 0, 9, 3, 4]]), MASK[:, ::-1]


def padded(side):
    return (IDS, MASK) if side == "right" else (LEFT_IDS, LEFT_MASK)


# -- caches and batches ----------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("family", FAMILIES)
def test_r61_with_and_without_cache_the_tokens_are_the_same(family, strategy):
    """Traps 68 and 69: caches follow their rows, memory and mask are repeated for the beams."""
    new, side = FAMILIES[family]
    for seed in range(4):
        model, logits = new(seed), ([], [])
        options = {"max_new_tokens": 9, "return_scores": True, **STRATEGIES[strategy]}
        made = model.generate(*padded(side), on_step=logits[0].append, **options)
        anew = model.generate(*padded(side), use_cache=False, on_step=logits[1].append, **options)
        assert_array_equal(anew.sequences, made.sequences)
        assert_allclose(anew.scores, made.scores, rtol=1e-9)
        assert_allclose(np.array(logits[1]), np.array(logits[0]), atol=1e-9)


@pytest.mark.parametrize("strategy", ["greedy", "beams", "changed"])
@pytest.mark.parametrize("family", FAMILIES)
def test_r60_r22_a_row_of_a_batch_finds_what_it_finds_alone(family, strategy):
    """For GPT this says that positions are counted from the first token that is no padding."""
    new, side = FAMILIES[family]
    for seed in range(4):
        model = new(seed)
        options = {"max_new_tokens": 9, "return_scores": True, **STRATEGIES[strategy]}
        together = model.generate(*padded(side), **options)
        alone = model.generate([ROWS[1]], **options)
        rows = len(alone.sequences)
        start = 2 if side == "left" else 0
        end = start + alone.sequences.shape[1]
        assert_array_equal(together.sequences[rows:, start:end], alone.sequences)
        assert not together.sequences[rows:, end:].any()
        found = together.scores[rows:]
        if found.ndim == 2:
            assert not found[:, alone.scores.shape[1] :].any()
            found = found[:, : alone.scores.shape[1]]
        assert_allclose(found, alone.scores, rtol=1e-9)


@pytest.mark.parametrize("family", GPTS)
def test_r60_samples_of_a_padded_prompt_are_drawn_from_the_same_probabilities(family):
    model, logits = tiny_gpt(GPTS[family]), []
    options = {"do_sample": True, "max_new_tokens": 1, "on_step": logits.append}
    model.generate(LEFT_IDS, LEFT_MASK, **options)
    model.generate([ROWS[1]], **options)
    assert_allclose(logits[0][1:], logits[1], atol=1e-9)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in GPTS])
def test_r22_sources_are_encoded_once_and_their_keys_and_values_made_once_a_layer(
    family, monkeypatch
):
    model, encoded, projected = FAMILIES[family][0](), [], []
    encode, new_keys = type(model).encode, nn.Linear.forward
    of_memory = [layer.cross.kv for layer in model.decoder.layers]

    def watched_encode(self, input_ids, *rest):
        encoded.append(np.shape(input_ids))
        return encode(self, input_ids, *rest)

    def watched_linear(self, x):
        if self in of_memory:
            projected.append((of_memory.index(self), x.shape))
        return new_keys(self, x)

    monkeypatch.setattr(type(model), "encode", watched_encode)
    monkeypatch.setattr(nn.Linear, "forward", watched_linear)
    made = model.generate(IDS, MASK, num_beams=4, min_new_tokens=5)
    assert made.shape[1] > 5
    assert encoded == [IDS.shape]
    assert projected == [(0, (8, 5, 8)), (1, (8, 5, 8))]


# -- prompts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", GPTS)
def test_a_prompt_goes_on_with_the_most_probable_token_of_the_whole_text(family):
    """Greedy search by the definition: a forward pass over all there is, token by token."""
    model, text = tiny_gpt(GPTS[family], seed=3), [5, 6, 7]
    for _ in range(6):
        text.append(int(model(input_ids=[text]).logits.data[0, -1].argmax()))
    made = model.generate([[5, 6, 7]], max_new_tokens=6, eos_token_id=-1)
    assert_array_equal(made, [text])


def test_trap_67_padding_is_told_from_the_ids_where_it_is_another_token_than_the_end():
    model = tiny_gpt()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = model.generate(LEFT_IDS)
    assert_array_equal(made, model.generate(LEFT_IDS, LEFT_MASK))


@pytest.mark.parametrize("pad", [EOS, None])
@pytest.mark.parametrize(
    "ids", [[[2, 2, 5, 6]], [[5, 6, 7], [2, 8, 9]], [[5, 6, 2], [7, 8, 9]], [[2, 2, 2]]]
)
def test_trap_67_what_could_be_padding_or_ends_of_texts_is_kept_with_a_warning(ids, pad):
    model, logits = tiny_gpt(pad_token_id=pad), ([], [])
    with pytest.warns(
        UserWarning, match="end token 2.* if it is padding .* attention_mask"
    ) as said:
        model.generate(ids, max_new_tokens=1, on_step=logits[0].append)
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.generate(ids, np.ones_like(ids), max_new_tokens=1, on_step=logits[1].append)
    assert_allclose(logits[0], logits[1])


@pytest.mark.parametrize("ids", [[[5, 6], [7, 8]], [[2, 5, 6], [2, 7, 8]], [[5, 2, 6]]])
def test_texts_that_begin_with_the_end_token_or_hold_it_are_no_riddle(ids):
    """GPT-2 has one token for both: what begins a text is what ended the one before."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tiny_gpt(pad_token_id=None).generate(ids)


@pytest.mark.parametrize("options", [{}, {"num_beams": 2}, {"do_sample": True, "seed": 1}])
def test_r65_an_empty_prompt_is_the_begin_token(options):
    model, empty = tiny_gpt(), np.zeros((2, 0), int)
    made = model.generate(empty, **options)
    assert_array_equal(made, model.generate([[START], [START]], **options))
    assert_array_equal(model.generate([[]], bos_token_id=7)[:, 0], [7])


def test_r65_without_a_begin_token_an_empty_prompt_is_an_error():
    model = tiny_gpt(bos_token_id=None)
    with pytest.raises(ValueError, match="prompt is empty: give at least one token, or a bos"):
        model.generate([[]])


def test_r65_a_batch_with_an_empty_prompt_is_refused_as_a_whole():
    with pytest.raises(ValueError, match="prompt 1 is empty: begin it with a token"):
        tiny_gpt().generate([[5, 6], [0, 0]])


@pytest.mark.parametrize("options", [{}, {"num_beams": 2}, {"do_sample": True}])
def test_r65_no_new_tokens_give_the_prompt(options):
    assert_array_equal(tiny_gpt().generate(LEFT_IDS, max_new_tokens=0, **options), LEFT_IDS)


@pytest.mark.parametrize(
    "ids, mask, error, says",
    [
        (IDS, MASK, ValueError, "prompt 1 ends with padding, .*: pad on the left"),
        (IDS, None, ValueError, "prompt 1 ends with padding"),
        (IDS, MASK[:, 1:], ValueError, r"attention_mask is \(2, 4\), and input_ids are \(2, 5\)"),
        ([5, 6], None, ValueError, r"input_ids are \(2,\): they must be \(batch, length\)"),
        ([[5.0, 6.0]], None, TypeError, "input_ids are float64: token ids are integers"),
        ([[5, 17]], None, IndexError, "id 17 is outside the vocabulary of 17"),
    ],
)
def test_prompts_that_make_no_sense(ids, mask, error, says):
    with pytest.raises(error, match=says):
        tiny_gpt().generate(ids, mask)


def test_trap_66_the_prompt_counts_in_max_length_and_not_in_max_new_tokens():
    options, model = {"eos_token_id": -1}, tiny_gpt()
    assert model.generate([[5, 6]], **options).shape == (1, 22)
    assert model.generate([[5, 6]], max_length=5, **options).shape == (1, 5)
    assert model.generate([[5, 6]], max_new_tokens=5, **options).shape == (1, 7)
    assert tiny().generate([[5, 6]], **options).shape == (1, 21)  # and the start token
    assert tiny().generate([[5, 6]], max_length=5, **options).shape == (1, 5)
    assert tiny().generate([[5, 6]], max_new_tokens=5, **options).shape == (1, 6)


@pytest.mark.parametrize(
    "options, new", [({}, 1), ({"min_length": 5}, 3), ({"min_new_tokens": 5}, 6)]
)
def test_trap_65_minimal_lengths_count_the_prompt_or_leave_it_out(options, new):
    made = Continuing(lambda *_: [0, 0, 0.9, 0.1]).generate([[3, 3, 3]], **options)
    assert_array_equal(made, [[*[3] * (2 + new), EOS]])


@pytest.mark.parametrize("length", [2, 3])
def test_a_length_that_the_prompt_fills_is_pointed_out(length):
    says = f"max_length {length} counts the prompt, which has 3 tokens: .* give max_new_tokens"
    with pytest.warns(UserWarning, match=says) as said:
        made = tiny_gpt().generate([[5, 6, 7]], max_length=length)
    assert said[0].filename == __file__
    assert_array_equal(made, [[5, 6, 7]])


# -- positions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True, "seed": 0}])
def test_r62_at_the_last_position_generation_stops_and_says_so(options, cache):
    model, prompt = tiny_gpt(n_positions=12), [[5, 6, 7, 8, 9] * 2]
    options = {**options, "eos_token_id": -1, "use_cache": cache}
    with pytest.warns(UserWarning, match="stops at the model's 12 positions instead of 18"):
        made = model.generate(prompt, max_new_tokens=8, **options)
    assert_array_equal(made, model.generate(prompt, max_new_tokens=2, **options))
    assert made.shape == (1, 12)


def test_r62_a_prompt_that_is_too_long_says_both_lengths():
    model = tiny_gpt(n_positions=12)
    with pytest.raises(ValueError, match=r"13 tokens and the model takes 12 \(13 > 12\): cut it"):
        model.generate([[5] * 13])
    with pytest.warns(UserWarning, match="stops at the model's 12 positions"):
        assert_array_equal(model.generate([[5] * 12]), [[5] * 12])


# -- modes and arrays ------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["greedy", "sampling", "beams"])
@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_r66_no_dropout_no_graph_and_the_mode_comes_back(family, mode, strategy, monkeypatch):
    new, side = FAMILIES[family]
    model, logits = new(), []
    for module in model.modules():
        if hasattr(module, "p"):
            module.p = 0.5
    model.train(mode)
    step = type(model).step

    def watched(self, ids, state):
        assert not any(m.training for m in self.modules())
        assert not self(input_ids=IDS[:1], **inputs).logits.requires_grad
        return step(self, ids, state)

    inputs = {"labels": IDS[:1]} if side == "right" else {}
    monkeypatch.setattr(type(model), "step", watched)
    options = {**STRATEGIES[strategy], "on_step": logits.append}
    made = [model.generate(*padded(side), **options) for _ in range(2)]
    assert_array_equal(*made)
    assert logits
    assert all(m.training is mode for m in model.modules())
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("family", FAMILIES)
def test_on_stand_ins_the_tokens_are_those_on_numpy(family, strategy):
    """What only a GPU would show otherwise: nothing goes to the device or comes back unasked."""
    options = {"max_length": 12, "forced_eos_token_id": EOS, "bad_words_ids": [[5], [6, 7]]}
    new, side = FAMILIES[family]
    found = []
    for on_device in (False, True):
        model = new()
        if on_device:
            for p in model.parameters():
                p._data = standin.asarray(p._data)
        found.append(
            model.generate(*padded(side), return_scores=True, **STRATEGIES[strategy], **options)
        )
    assert_array_equal(found[1].sequences, found[0].sequences)
    assert_allclose(found[1].scores, found[0].scores, rtol=1e-9)
    assert type(found[1].sequences) is type(found[1].scores) is np.ndarray
