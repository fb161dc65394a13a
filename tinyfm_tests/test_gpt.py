"""GPT-1, GPT-2 and GPT-3: values, counts, labels, folders; and beside transformers."""

import dataclasses
import json
from functools import partial

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.numpy import load_file

import tinyfm
from tinyfm import InputError, files, gradcheck, masks, models, no_grad, ops, optim, pretrained
from tinyfm.models import GPT2Config, OpenAIGPTConfig
from tinyfm.models.output import ModelOutput

SIZES = {"vocab_size": 30, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 4}
FAMILIES = {"GPT2": GPT2Config, "OpenAIGPT": OpenAIGPTConfig}
HEADS = ["Model", "LMHeadModel", "ForSequenceClassification", "DoubleHeadsModel"]
CLASSES = [(family, family + head) for family in FAMILIES for head in HEADS]
assert_close = partial(assert_allclose, rtol=1e-12, atol=1e-12)
each_class = pytest.mark.parametrize("family, name", CLASSES)
each_family = pytest.mark.parametrize("family", FAMILIES)


def new(family, head="LMHeadModel", seed=0, std=0.3, dtype=np.float64, **changes):
    """A small model with noise on every parameter."""
    tinyfm.manual_seed(seed)
    model = getattr(models, family + head)(FAMILIES[family](**SIZES | changes))
    model = model.to(dtype=dtype).eval()
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data = (p.data + std * rng.standard_normal(p.shape)).astype(dtype)
    return model


def batch(head, seed=0, padding="right", classes=3):
    """Inputs (2, 6), of which the second row has two tokens of padding, id 0, and labels."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, 30, (2, 6))
    mask = np.ones_like(ids)
    mask[1, slice(4, 6) if padding == "right" else slice(0, 2)] = 0
    ids = np.where(mask, ids, 0)
    inputs = {"input_ids": ids, "attention_mask": mask}
    words = np.where(mask & (rng.random(ids.shape) < 0.8), ids, -100)
    words[0, 1] = ids[0, 1]
    one_a_row = rng.integers(0, classes, 2) if classes > 1 else rng.standard_normal(2)
    if head == "DoubleHeadsModel":  # as second choice the same text with other words
        other = np.where(mask, ids % 29 + 1, 0)
        inputs = {name: np.stack([x, x], 1) for name, x in inputs.items()}
        inputs["input_ids"] = np.stack([ids, other], 1)
        words = np.stack([words, np.where(words == -100, -100, other)], 1)
    labels = {
        "Model": {},
        "LMHeadModel": {"labels": words},
        "ForSequenceClassification": {"labels": one_a_row},
        "DoubleHeadsModel": {"labels": words, "mc_labels": np.array([1, 0])},
    }[head]
    return inputs, labels


def results(output):
    """The arrays of an output, by name."""
    names = output._fields if isinstance(output, ModelOutput) else output.keys()
    found = {name: getattr(output, name) for name in names if name != "loss"}
    return {name: x.data if isinstance(x, tinyfm.Tensor) else x for name, x in found.items()}


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def into_the_decoder(body, *inputs, **options):
    """What the first layer gets, (B, T, d)."""
    seen, first = [], body.decoder.layers[0]
    body.decoder.layers[0] = lambda x, *rest, **more: seen.append(x.data) or first(x, *rest, **more)
    try:
        body(*inputs, **options)
    finally:
        body.decoder.layers[0] = first
    return seen[0]


# -- values, without transformers ------------------------------------------------------------------

GOLDEN = {  # parity.md (i): keys, sum, sum of squares, logits[0, -1, :3]
    "OpenAIGPT": (26, -4.25453792, 71.31727294, [-0.65401480, -0.05736237, 0.63072512]),
    "GPT2": (28, -9.51825609, 68.23056186, [-0.58958396, -0.51528321, 0.38037396]),
}


@each_family
def test_the_golden_vectors(family, tmp_path):
    """Values that transformers gives for a file filled by a rule."""
    new(family).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    file = {
        key: 0.3 * np.sin(1 + 0.7 * np.arange(x.size).reshape(x.shape) + 1.3 * j)
        for j, (key, x) in enumerate(sorted(load_file(path).items()))
    }
    keys, total, squares, corner = GOLDEN[family]
    assert len(file) == keys
    files.write_arrays(path, file)
    model = pretrained.load(tmp_path, dtype=np.float64)
    ids = np.array([[5, 6, 7, 8, 9], [5, 6, 7, 8, 0]])
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]])
    logits = model(ids, mask).logits.data
    seen = logits[mask == 1]
    assert seen.sum() == pytest.approx(total, abs=1e-7)
    assert (seen**2).sum() == pytest.approx(squares, abs=1e-7)
    assert_close(logits[0, -1, :3], corner, atol=1e-8)


@pytest.mark.parametrize(
    "config, name, count",
    [
        (GPT2Config.gpt1(), "OpenAIGPTLMHeadModel", 116_534_784),
        (GPT2Config.gpt1(), "OpenAIGPTDoubleHeadsModel", 116_534_784 + 769),
        (GPT2Config.small(), "GPT2LMHeadModel", 124_439_808),
        (GPT2Config.medium(), "GPT2LMHeadModel", 354_823_168),
        (GPT2Config.large(), "GPT2LMHeadModel", 774_030_080),
        (GPT2Config.xl(), "GPT2LMHeadModel", 1_557_611_200),
        (GPT2Config.gpt3("125M"), "GPT2LMHeadModel", 125_226_240),
        (GPT2Config.gpt3("350M"), "GPT2LMHeadModel", 355_871_744),
        (GPT2Config.gpt3("760M"), "GPT2LMHeadModel", 760_300_032),
        (GPT2Config.gpt3("1.3B"), "GPT2LMHeadModel", 1_315_723_264),
        (GPT2Config.gpt3("2.7B"), "GPT2LMHeadModel", 2_651_553_280),
        (GPT2Config.gpt3("6.7B"), "GPT2LMHeadModel", 6_658_404_352),
        (GPT2Config.gpt3("13B"), "GPT2LMHeadModel", 12_853_386_240),
        (GPT2Config.gpt3("175B"), "GPT2LMHeadModel", 174_604_259_328),
    ],
)
def test_trap_70_the_counts_of_the_published_sizes(config, name, count):
    assert models.num_parameters(config, getattr(models, name)) == count


@pytest.mark.parametrize("width, heads", [(2048, 24), (5140, 40)])
def test_trap_74_two_rows_of_gpt3s_table_cannot_be_built(width, heads):
    """As printed, that is; "1.3B" has 16 heads here and "13B" a width of 5120."""
    with pytest.raises(ValueError, match=f"d_model {width} is not a multiple of num_heads {heads}"):
        models.num_parameters(GPT2Config(n_embd=width, n_head=heads, n_layer=1))


def test_presets_may_be_changed_and_unknown_ones_are_named():
    config = GPT2Config.gpt3("175B", n_layer=2)
    assert (config.n_layer, config.n_embd, config.n_head, config.n_positions) == (
        2,
        12288,
        96,
        2048,
    )
    assert GPT2Config.xl(n_embd=800).n_embd == 800
    with pytest.raises(ValueError, match=r"no GPT-3 of size '1B': take one of 125M, .*, 175B$"):
        GPT2Config.gpt3("1B")


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx: no such"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings is False: the head is always"),
        ({"activation_function": "mish"}, "activation_function is 'mish': it must be one of"),
        ({"n_layer": 0}, "n_layer is 0: it must be at least 1"),
    ],
)
def test_impossible_configs(changes, said):
    with pytest.raises(ValueError, match=said):
        GPT2Config(**changes)


def test_trap_3_gelu_is_the_form_with_tanh_in_gpt_1():
    up = new("OpenAIGPT").transformer.decoder.layers[0].feed_forward
    assert up.activation(tinyfm.tensor([1.0])).item() == pytest.approx(0.8411920, abs=1e-6)
    plain = new("OpenAIGPT", afn="relu").transformer.decoder.layers[0].feed_forward
    assert plain.activation(tinyfm.tensor([-1.0])).item() == 0
    exact = new("GPT2", activation_function="gelu").transformer.decoder.layers[0].feed_forward
    assert exact.activation(tinyfm.tensor([1.0])).item() == pytest.approx(0.8413447, abs=1e-6)


def test_traps_4_and_87_only_gpt_2_has_a_norm_at_the_end_and_its_output_is_the_last_state():
    assert new("OpenAIGPT").transformer.decoder.norm is None
    body = new("GPT2", "Model")
    body.decoder.norm.weight.data = np.zeros(16)
    body.decoder.norm.bias.data = np.arange(16.0)
    state = body([[5, 6, 7]]).last_hidden_state.data
    assert_array_equal(state, np.broadcast_to(np.arange(16.0), (1, 3, 16)))


@each_family
def test_the_model_is_its_blocks(family):
    """Word and position, then each layer as section 3.1 or section 2.3 has it, then h E^T."""

    def norm(x, layer):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return x * layer.weight.data + layer.bias.data

    def linear(x, layer):
        return x @ layer.weight.data.T + layer.bias.data

    def attend(x, layer):
        q, k, v = np.split(linear(x, layer.qkv), 3, -1)
        heads = []
        for h in range(4):
            part = slice(4 * h, 4 * h + 4)
            scores = q[:, part] @ k[:, part].T / 2
            scores[np.triu_indices(len(x), 1)] = -np.inf
            heads.append(np.exp(log_softmax(scores)) @ v[:, part])
        return linear(np.concatenate(heads, -1), layer.out)

    def feed(x, layer):
        x = linear(x, layer.up)
        return linear(x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2, layer.down)

    model, ids = new(family), [5, 6, 7, 5, 9]
    body = model.transformer
    x = body.tokens.weight.data[ids] + body.positions.weight.data[:5]
    for layer in body.decoder.layers:
        n, m = layer.attention_norm, layer.feed_forward_norm
        if family == "GPT2":
            x = x + attend(norm(x, n), layer.attention)
            x = x + feed(norm(x, m), layer.feed_forward)
        else:
            x = norm(x + attend(x, layer.attention), n)
            x = norm(x + feed(x, layer.feed_forward), m)
    if family == "GPT2":
        x = norm(x, body.decoder.norm)
    output = model([ids], output_attentions=True)
    assert_close(output.logits.data[0], x @ body.tokens.weight.data.T)
    assert_close(output.last_hidden_state.data[0], x)
    assert [weights.shape for weights in output.attentions] == [(1, 4, 5, 5)] * 2
    assert not np.triu(output.attentions[1][0, 0], 1).any()


def test_scores_may_be_left_unscaled():
    """scale_attn_weights=False: as if the queries were sqrt(head_dim) = 2 times as long."""
    model = new("GPT2", scale_attn_weights=False)
    plain, ids = new("GPT2"), [[5, 6, 7, 8]]
    for layer in plain.transformer.decoder.layers:
        for p in (layer.attention.qkv.weight, layer.attention.qkv.bias):
            p.data = np.concatenate([2 * p.data[:16], p.data[16:]])
    assert_close(model(ids).logits.data, plain(ids).logits.data)


def test_trap_84_what_is_added_to_the_residual_starts_smaller_in_gpt_2():
    for family, end in (("GPT2", 0.01), ("OpenAIGPT", 0.02)):
        tinyfm.manual_seed(0)
        config = FAMILIES[family](**SIZES | {"n_embd": 128, "vocab_size": 400})
        model = getattr(models, f"{family}Model")(config)
        for name, p in model.named_parameters():
            if p.ndim == 2:
                ends = name.endswith(("out.weight", "down.weight"))
                assert p.data.std() == pytest.approx(end if ends else 0.02, rel=0.05), name
            else:
                assert (p.data == (name.endswith("norm.weight"))).all(), name


@each_family
def test_trap_6_a_token_type_is_a_word_of_the_same_table(family):
    body = new(family, "Model")
    ids, types = np.array([[5, 6, 7]]), np.array([[3, 3, 4]])
    plain = into_the_decoder(body, ids)
    assert_close(plain[0], body.tokens.weight.data[ids[0]] + body.positions.weight.data[:3])
    typed = into_the_decoder(body, ids, token_type_ids=types)
    assert_close(typed, plain + body.tokens.weight.data[types], atol=1e-14)


# -- who sees whom ---------------------------------------------------------------------------------


@each_family
def test_r60_trap_7_positions_are_counted_from_the_first_real_token(family):
    model = new(family)
    ids, mask = np.array([[0, 0, 3, 4, 5], [3, 4, 5, 6, 7]]), np.array([[0, 0, 1, 1, 1], [1] * 5])
    table = model.transformer
    first = into_the_decoder(table, ids, mask)
    assert_close(
        first[0, 2:], table.tokens.weight.data[[3, 4, 5]] + table.positions.weight.data[:3]
    )
    logits = model(ids, mask).logits.data
    for row, real in ((0, slice(2, 5)), (1, slice(0, 5))):
        alone = model(ids[row : row + 1, real]).logits.data[0]
        assert_close(logits[row, real], alone)
    counted_anew = model(ids, mask, position_ids=np.arange(5)[None]).logits.data
    assert np.abs(counted_anew - logits)[0, 2:].max() > 1e-3
    assert_close(counted_anew[1], logits[1])
    given = model(ids, mask, position_ids=np.array([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]))
    assert_close(given.logits.data[mask == 1], logits[mask == 1])


@each_family
def test_r60_a_prompt_padded_on_the_left_goes_on_as_it_does_alone(family):
    model = new(family, std=0.6)
    ids, mask = np.array([[0, 0, 3, 4, 5], [3, 4, 5, 6, 7]]), np.array([[0, 0, 1, 1, 1], [1] * 5])
    options = {"max_new_tokens": 7, "eos_token_id": -1}
    together = model.generate(ids, mask, **options)
    assert_array_equal(model.generate(ids, mask, use_cache=False, **options), together)
    for row, real in ((0, slice(2, 5)), (1, slice(0, 5))):
        alone = model.generate(ids[row : row + 1, real], **options)[0]
        assert_array_equal(together[row, real.start :], alone)


@each_family
def test_traps_5_10_and_11_a_row_of_padding_is_finite_and_so_are_its_gradients(family):
    """What looks at nothing gets zeros from attention: tinyfm's own choice (parity.md, a)."""
    model = new(family)
    ids, mask = np.array([[0, 0, 5, 6], [0, 0, 0, 0]]), np.array([[0, 0, 1, 1], [0, 0, 0, 0]])
    output = model(ids, mask, labels=np.where(mask, ids, -100), output_attentions=True)
    for weights in output.attentions:
        assert not weights[0, :, :2].any() and not weights[1].any()
    assert np.isfinite(output.logits.data).all()
    output.loss.backward()
    assert all(np.isfinite(p.grad).all() for p in model.parameters())


@each_family
@pytest.mark.parametrize("sizes", [[1] * 6, [2, 3, 1], [5, 1], [6]])
@pytest.mark.parametrize("left", [0, 2])
def test_r21_r61_traps_8_and_9_steps_give_the_logits_of_the_whole(family, sizes, left):
    model, ids = new(family), np.array([[5, 6, 7, 8, 9, 5], [3, 4, 5, 6, 7, 8]])
    real = np.ones_like(ids)
    real[1, :left] = 0
    mask = real if left else None
    whole = model(ids, mask).logits.data
    caches, end = model.transformer.decoder.caches(2, 6), 0
    with no_grad():
        state = model.begin(ids, mask, np.arange(2), 6)
        for size in sizes:
            new_ones = slice(end, end + size)
            end += size
            so_far = real[:, :end] if left else None
            logits = model(ids[:, new_ones], so_far, caches=caches).logits.data
            counted = real[:, new_ones] == 1
            assert_close(logits[counted], whole[:, new_ones][counted])
            last = model.step(ids[:, new_ones], state)
            assert type(last) is np.ndarray
            counted = real[:, end - 1] == 1
            assert_close(last[counted], whole[:, end - 1][counted])


@each_family
def test_r24_a_prefix_is_read_in_one_step_and_what_follows_in_others(family):
    model, ids = new(family), np.array([[0, 5, 6, 7, 8, 9], [3, 4, 5, 6, 7, 8]])
    real = ids != 0
    seen = masks.prefix(np.array([4, 3])) & masks.padding(real)
    whole = model(ids, seen).logits.data
    prompt = masks.prefix(np.array([4, 3])) & masks.padding(real[:, :4])
    with no_grad():
        state = model.begin(ids[:, :4], prompt, np.arange(2), 6)
        assert_close(model.step(ids[:, :4], state), whole[:, 3])
        state.reorder(np.array([1, 0]))
        assert_close(model.step(ids[::-1, 4:5], state), whole[::-1, 4])
        assert_close(model.step(ids[::-1, 5:], state), whole[::-1, 5])


def test_rows_of_a_state_may_be_repeated_and_reordered():
    """What beam search does: caches and padding follow their rows (trap 68)."""
    model = new("GPT2")
    ids, mask = np.array([[0, 0, 3, 4], [5, 6, 7, 8]]), np.array([[0, 0, 1, 1], [1] * 4])
    with no_grad():
        state = model.begin(ids, mask, np.array([0, 1, 1]), 5)
        model.step(ids[[0, 1, 1]], state)
        state.reorder(np.array([2, 0, 1]))
        logits = model.step(np.array([[9], [5], [6]]), state)
    for row, text in enumerate([[5, 6, 7, 8, 9], [3, 4, 5], [5, 6, 7, 8, 6]]):
        assert_close(logits[row], model([text]).logits.data[0, -1])


def kept(body, ids, mask=None):
    """The keys and values of each layer for a prompt: (layers, 2, H, T, dim)."""
    caches = body.decoder.caches(1, len(ids))
    with no_grad():
        body([ids], mask, caches=caches)
    return np.array([cache.own.filled() for cache in caches])[:, :, 0]


@each_family
def test_r24_a_longer_prefix_changes_earlier_keys_and_values_and_a_longer_causal_prompt_does_not(
    family,
):
    """Why a prefix LM cannot reuse its cache.  From the second layer on: those of the first are of
    the word and its place alone."""
    body, short, long = new(family, "Model"), [5, 6, 7], [5, 6, 7, 8, 9]
    causal, longer = kept(body, short), kept(body, long)
    assert_close(longer[..., :3, :], causal)
    both = [kept(body, ids, masks.prefix(len(ids))) for ids in (short, long)]
    change = np.abs(both[1][..., :3, :] - both[0])
    assert change[0].max() < 1e-12
    assert (change[1].max((1, 3)) > 1e-3).all()  # keys and values, of every position
    assert_close(both[0][0], causal[0])


def test_the_cache_of_gpt_2_small_has_the_size_of_the_worked_example():
    """features.md, section 5: 92,160 numbers after 5 tokens; 72 MiB at 1024, in float32."""
    with tinyfm.nn.without_memory():
        decoder = models.GPT2Model(GPT2Config.small()).decoder
    shapes = {cache.own.shape for cache in decoder.caches(1, 5)}
    assert shapes == {(1, 12, 5, 64)} and len(decoder.layers) == 12
    for length, numbers in ((5, 92_160), (1024, 72 * 2**20 // 4)):
        caches = decoder.caches(1, length)
        assert sum(2 * np.prod(cache.own.shape) for cache in caches) == numbers


@each_family
def test_r24_a_prefix_sees_itself_whole_and_what_follows_is_causal(family):
    model, ids = new(family), np.array([[5, 6, 7, 8, 9]])
    causal = model(ids).logits.data
    assert_close(model(ids, masks.prefix(1)).logits.data, causal)
    full = model(ids, masks.prefix(5)).logits.data
    assert np.abs(full - causal)[0, :4].max(-1).min() > 1e-3
    before = model(ids, masks.prefix(3)).logits.data
    for place, moved in ((2, [0, 1, 2, 3, 4]), (3, [3, 4]), (4, [4])):
        other = ids.copy()
        other[0, place] += 10
        change = np.abs(model(other, masks.prefix(3)).logits.data - before)[0].max(-1)
        assert np.flatnonzero(change > 1e-6).tolist() == moved
        assert change[: moved[0]].max(initial=0) < 1e-12


def test_a_mask_object_does_what_an_array_does():
    for head in HEADS[1:]:
        model, (inputs, labels) = new("GPT2", head), batch(head, padding="left")
        inputs["attention_mask"] = inputs["attention_mask"].reshape(-1, 6)
        given = inputs | {"attention_mask": masks.padding(inputs["attention_mask"])}
        if head == "DoubleHeadsModel":
            inputs["attention_mask"] = inputs["attention_mask"].reshape(2, 2, 6)
        first, second = model(**inputs, **labels), model(**given, **labels)
        assert second.loss.item() == first.loss.item()
        for key, x in results(first).items():
            assert_array_equal(results(second)[key], x)


@each_family
def test_r62_a_text_may_be_as_long_as_there_are_positions(family):
    model = new(family, n_positions=12)
    model(np.full((1, 12), 5))
    with pytest.raises(ValueError, match=r"13 tokens and the model takes 12 \(13 > 12\)"):
        model(np.full((1, 13), 5))
    with pytest.raises(ValueError, match=r"13 > 12"):
        model.generate(np.full((1, 13), 5))
    options = {"max_new_tokens": 8, "eos_token_id": -1}
    made = []
    for cache in (True, False):
        with pytest.warns(UserWarning, match="stops at the model's 12 positions instead of 18"):
            made.append(model.generate(np.arange(3, 13)[None], use_cache=cache, **options))
    assert made[0].shape == (1, 12)
    assert_array_equal(*made)


def test_inputs_that_do_not_fit_say_so():
    model = new("GPT2")
    with pytest.raises(ValueError, match=r"input_ids are \(3,\): they must be \(batch, length\)"):
        model([5, 6, 7])
    with pytest.raises(ValueError, match=r"attention_mask is \(1, 2\): it must be \(batch, 3\)"):
        model([[5, 6, 7]], [[1, 1]])
    with pytest.raises(IndexError, match="id 30 is outside the vocabulary of 30"):
        model([[30]])


# -- losses ----------------------------------------------------------------------------------------


@each_family
def test_r31_logits_are_scored_against_the_next_token(family):
    model, ids = new(family), np.array([[3, 4, 5, 6, 7]])
    output = model(ids, labels=ids)
    scores = log_softmax(model(ids).logits.data)[0, np.arange(4), ids[0, 1:]]
    assert output.loss.item() == pytest.approx(-scores.mean(), rel=1e-12)
    assert output.num_labels == 4
    ignored = np.array([[-100, 4, 5, 6, 7]])
    assert model(ids, labels=ignored).loss.item() == output.loss.item()
    assert_close(output.logits.data, model(ids).logits.data)


def test_trap_50_labels_count_at_the_position_before():
    model, ids = new("GPT2"), np.array([[5, 6, 7, 8]])
    scores = log_softmax(model(ids).logits.data)[0]
    output = model(ids, labels=np.array([[-100, 6, -100, 8]]))
    assert output.loss.item() == pytest.approx(-(scores[0, 6] + scores[2, 8]) / 2, rel=1e-12)
    assert output.num_labels == 2


@each_family
@pytest.mark.parametrize("padding", ["right", "left"])
def test_r29_r30_padding_changes_neither_loss_nor_gradients(family, padding):
    """On either side, also where its labels were not set to -100: the mask says it."""
    ids = np.array([[5, 6, 7, 8]])
    around = ((0, 0), (3, 0) if padding == "left" else (0, 3))
    wide, mask = np.pad(ids, around, constant_values=9), np.pad(np.ones_like(ids), around)
    found = []
    for inputs in (
        {"input_ids": ids, "labels": ids},
        {"input_ids": wide, "attention_mask": mask, "labels": np.where(mask, wide, -100)},
        {"input_ids": wide, "attention_mask": mask, "labels": wide},
    ):
        model = new(family)
        output = model(**inputs)
        output.loss.backward()
        assert output.num_labels == 3
        found.append([output.loss.data, *(p.grad for p in model.parameters())])
    for other in found[1:]:
        for x, y in zip(other, found[0], strict=True):
            assert_close(x, y)


def test_trap_70_the_shared_table_is_one_and_moves_once():
    """Its gradient is that of the look-up and that of the head, added."""
    model, ids = new("GPT2"), np.array([[5, 6, 7, 8]])
    table = model.transformer.tokens.weight
    assert [name for name, p in model.named_parameters() if p is table] == [
        "transformer.tokens.weight"
    ]
    model(ids, labels=ids).loss.backward()
    whole, before = table.grad.copy(), table.data.copy()

    def alone(embedded, head):
        hidden = model.transformer(ids).last_hidden_state
        hidden = hidden if embedded else hidden.detach()
        weight = table if head else table.detach()
        table.grad = None
        ops.cross_entropy(ops.linear(hidden, weight)[0, :-1], ids[0, 1:]).backward()
        return table.grad

    assert_close(whole, alone(True, False) + alone(False, True))
    table.grad = whole
    optim.SGD(model.parameters(), lr=0.5).step()
    assert_close(table.data, before - 0.5 * whole)
    state = model.transformer(ids).last_hidden_state.data
    assert_close(model(ids).logits.data, state @ table.data.T)


POOLED = [([5, 6, 0, 0], 1), ([0, 0, 5, 6], 3), ([5, 0, 6, 0], 2), ([0, 0, 0, 0], 0)]


@each_family
@pytest.mark.parametrize("ids, place", POOLED)
def test_trap_53_a_text_is_judged_at_its_last_token_that_is_no_padding(family, ids, place):
    """Told by the id of padding, or by the mask, which is believed first."""
    model = new(family, "ForSequenceClassification", pad_token_id=0)
    state = model.transformer([ids]).last_hidden_state.data[0]
    wanted = state[place] @ model.score.weight.data.T
    assert_close(model([ids]).logits.data[0], wanted)
    mask = np.array([ids]) != 0
    other = np.where(mask, ids, 9)  # padding of another id
    masked = model(other, mask.astype(int))
    state = masked.last_hidden_state.data[0, place]
    assert_close(masked.logits.data[0], state @ model.score.weight.data.T)


def test_where_nothing_says_which_tokens_are_padding_only_one_text_can_be_judged():
    model = new("GPT2", "ForSequenceClassification")
    state = model.transformer([[5, 0]]).last_hidden_state.data[0, 1]
    assert_close(model([[5, 0]]).logits.data[0], state @ model.score.weight.data.T)
    with pytest.raises(ValueError, match="where the texts end is not known: give an attention_m"):
        model([[5, 6], [7, 0]])
    with_mask = model([[5, 6], [7, 0]], [[1, 1], [1, 0]]).logits.data[1]
    assert_close(with_mask, model([[7]]).logits.data[0])


@each_family
def test_both_orders_of_two_texts_are_added(family):
    """Similarity (GPT-1, section 3.3): h = h(a, b) + h(b, a), whatever is padded, and segments."""
    model = new(family, "ForSequenceClassification", num_labels=2)
    orders = np.array([[[1, 5, 6, 2, 7, 3], [1, 7, 2, 5, 6, 3]], [[1, 8, 2, 9, 9, 3]] * 2])
    types, mask = np.where(orders < 4, 8, 9), np.ones_like(orders)
    texts = orders.reshape(-1, 6), None, types.reshape(-1, 6)
    states = model.transformer(*texts).last_hidden_state.data[:, -1].reshape(2, 2, 16)
    wanted = states.sum(1) @ model.score.weight.data.T
    inputs = {"input_ids": orders, "attention_mask": mask, "token_type_ids": types}
    got = model(**inputs, labels=np.array([1, 0]))
    assert_close(got.logits.data, wanted)
    scores = log_softmax(wanted)
    assert got.loss.item() == pytest.approx(-(scores[0, 1] + scores[1, 0]) / 2, rel=1e-12)
    wide = {name: np.pad(x, ((0, 0), (0, 0), (0, 2))) for name, x in inputs.items()}
    assert_close(model(**wide).logits.data, wanted)
    turned = {name: x[:, ::-1] for name, x in inputs.items()}
    assert_close(model(**turned).logits.data, wanted)


@each_family
@pytest.mark.parametrize("orders", [1, 2])
def test_the_auxiliary_loss_is_half_that_of_the_words(family, orders):
    model = new(family, "ForSequenceClassification")
    rng = np.random.default_rng(0)
    shape = (3, 2, 5) if orders == 2 else (3, 5)
    ids = rng.integers(1, 30, shape)
    mask = np.ones_like(ids)
    mask[1, ..., 3:] = 0
    words = np.where(mask, ids, -100)
    labels = np.array([0, 1, 1])
    task = model(ids, mask, labels=labels)
    logits = log_softmax(
        model.transformer(ids.reshape(-1, 5), mask.reshape(-1, 5)).last_hidden_state.data
        @ model.transformer.tokens.weight.data.T
    )
    scores = np.take_along_axis(logits[:, :-1], ids.reshape(-1, 5)[:, 1:, None], 2)[..., 0]
    auxiliary = -scores[words.reshape(-1, 5)[:, 1:] != -100].mean()
    for options, weight in (({}, 0.5), ({"lm_weight": 0.0}, 0.0), ({"lm_weight": 2.0}, 2.0)):
        output = model(ids, mask, labels=labels, lm_labels=words, **options)
        assert output.loss.item() == pytest.approx(task.loss.item() + weight * auxiliary, rel=1e-12)
        assert output.num_labels == 3
    alone = model(ids, mask, lm_labels=words)
    assert alone.loss.item() == pytest.approx(auxiliary, rel=1e-12)


def test_one_label_is_a_number_to_be_predicted():
    model = new("GPT2", "ForSequenceClassification", num_labels=1)
    inputs, labels = batch("ForSequenceClassification", classes=1)
    output = model(**inputs, **labels)
    wanted = np.mean((output.logits.data[:, 0] - labels["labels"]) ** 2)
    assert output.loss.item() == pytest.approx(wanted, rel=1e-12)


@each_family
def test_one_choice_is_no_number_and_choices_have_three_axes(family):
    model, (inputs, _) = new(family, "DoubleHeadsModel"), batch("DoubleHeadsModel")
    one = {name: x[:, :1] for name, x in inputs.items()}
    output = model(**one, mc_labels=np.array([0, -100]))
    assert output.loss.item() == 0 and output.num_labels == 1
    with pytest.raises(ValueError, match=r"input_ids are \(2, 6\): they must be \(batch, ch"):
        model(inputs["input_ids"][:, 0])


@each_family
def test_the_right_one_of_several_texts(family):
    """mc_token_ids, or the mask, or the end of the row says where each is judged."""
    model = new(family, "DoubleHeadsModel")
    inputs, labels = batch("DoubleHeadsModel")
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    places = np.array([[5, 2], [0, 3]])
    head = model.multiple_choice_head.summary

    def scores(places, output):
        states = output.last_hidden_state.data.reshape(2, 2, 6, 16)
        at = np.take_along_axis(states, places[..., None, None], 2)[:, :, 0]
        return at @ head.weight.data[0] + head.bias.data

    for told, wanted, texts in (
        ({"mc_token_ids": places}, places, inputs),
        ({}, np.array([[5, 5], [3, 3]]), inputs),
        ({}, np.full((2, 2), 5), {"input_ids": ids}),
    ):
        output = model(**texts, **told)
        assert output.loss is None and output.logits.shape == (2, 2, 6, 30)
        assert_close(output.mc_logits.data, scores(wanted, output))
    plain = model(**inputs)
    chosen = log_softmax(plain.mc_logits.data)
    task = -(chosen[0, 1] + chosen[1, 0]) / 2
    words = [model(ids[i : i + 1], mask[i : i + 1]).logits.data[0] for i in range(2)]
    assert_close(np.stack(words), plain.logits.data)
    scored = np.take_along_axis(log_softmax(plain.logits.data)[:, :, :-1], ids[:, :, 1:, None], 3)[
        ..., 0
    ]
    language = -scored[labels["labels"][:, :, 1:] != -100].mean()
    both = model(**inputs, **labels)
    assert both.loss.item() == pytest.approx(task + 0.5 * language, rel=1e-12)
    assert both.num_labels == 2
    assert both.mc_loss.item() == pytest.approx(task, rel=1e-12)
    assert both.lm_loss.item() == pytest.approx(language, rel=1e-12)
    assert_close(both.logits.data, plain.logits.data)
    assert model(**inputs, **labels, lm_weight=0.0).loss.item() == pytest.approx(task, rel=1e-12)
    alone = model(**inputs, labels=labels["labels"])
    assert alone.loss.item() == pytest.approx(language, rel=1e-12)
    assert alone.num_labels == (labels["labels"][:, :, 1:] != -100).sum()
    assert model(**inputs, mc_labels=labels["mc_labels"]).loss.item() == pytest.approx(task)


@each_class
@settings(
    max_examples=max(1, settings.default.max_examples // 50),
    phases=[Phase.generate],  # a seed does not shrink
)
@given(
    seed=st.integers(0, 2**32 - 1),
    padding=st.sampled_from(["right", "left"]),
    classes=st.sampled_from([1, 3]),
)
def test_gradients_of_the_whole_model(family, name, seed, padding, classes):
    """Along directions in every parameter, the table that the head shares included."""
    head = name.removeprefix(family)
    model = new(family, head, seed, num_labels=classes)
    inputs, labels = batch(head, seed, padding, classes)
    if head == "ForSequenceClassification":
        labels["lm_labels"] = batch("LMHeadModel", seed, padding)[1]["labels"]

    def loss(*_):
        output = model(**inputs, **labels)
        return output.last_hidden_state if head == "Model" else output.loss

    assert gradcheck(loss, *model.parameters(), max_entries=3, rtol=1e-4, atol=1e-6)


# -- folders ---------------------------------------------------------------------------------------


@each_class
def test_a_folder_gives_the_model_back(family, name, tmp_path):
    head = name.removeprefix(family)
    model, (inputs, _) = new(family, head), batch(head)
    model.save_pretrained(tmp_path)
    other = pretrained.load(tmp_path, dtype=np.float64)
    assert type(other) is type(model) and other.config == model.config
    assert other.load_report == ([], [], [])
    for key, x in results(model(**inputs)).items():
        assert_close(results(other(**inputs))[key], x)


def test_the_names_in_files_are_those_of_transformers(tmp_path):
    """parity.md (c): matrices (in, out), no copy of the table, and for GPT-1 no norm at the end."""
    shapes = {}
    for family in FAMILIES:
        new(family).save_pretrained(tmp_path / family)
        file = load_file(tmp_path / family / "model.safetensors")
        shapes[family] = {name.removeprefix("transformer."): x.shape for name, x in file.items()}
        assert all(name.startswith("transformer.") for name in file)
    layer = {
        "attn.c_attn.weight": (16, 48), "attn.c_attn.bias": (48,),
        "attn.c_proj.weight": (16, 16), "attn.c_proj.bias": (16,),
        "mlp.c_fc.weight": (16, 64), "mlp.c_fc.bias": (64,),
        "mlp.c_proj.weight": (64, 16), "mlp.c_proj.bias": (16,),
        "ln_1.weight": (16,), "ln_1.bias": (16,), "ln_2.weight": (16,), "ln_2.bias": (16,),
    }  # fmt: skip
    layers = {f"h.{i}.{name}": shape for i in range(2) for name, shape in layer.items()}
    assert shapes["GPT2"] == layers | {
        "wte.weight": (30, 16), "wpe.weight": (16, 16), "ln_f.weight": (16,), "ln_f.bias": (16,)
    }  # fmt: skip
    assert shapes["OpenAIGPT"] == layers | {
        "tokens_embed.weight": (30, 16), "positions_embed.weight": (16, 16)
    }  # fmt: skip


@each_family
def test_r68_trap_1_square_projections_are_read_in_their_stored_orientation(family, tmp_path):
    sizes = {"n_embd": 2, "n_head": 1, "n_layer": 1}
    new(family, **sizes).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    name = "transformer.h.0.attn.c_proj"
    stored = {f"{name}.weight": np.array([[1.0, 2.0], [3.0, 4.0]]), f"{name}.bias": np.zeros(2)}
    files.write_arrays(path, load_file(path) | stored)
    model = pretrained.load(tmp_path, dtype=np.float64)
    out = model.transformer.decoder.layers[0].attention.out
    assert out(np.array([1.0, 0.0])).data.tolist() == [1, 2]
    assert out(np.array([1.0, 1.0])).data.tolist() == [4, 6]


@pytest.mark.parametrize("name", ["attn.c_attn", "mlp.c_fc", "mlp.c_proj"])
def test_r68_a_matrix_that_lies_the_other_way_is_refused_where_its_shape_tells(name, tmp_path):
    new("GPT2").save_pretrained(tmp_path)
    path, key = tmp_path / "model.safetensors", f"transformer.h.1.{name}.weight"
    file = load_file(path)
    shape = file[key].shape
    files.write_arrays(path, file | {key: file[key].T})
    said = f"{key} is {shape[::-1]} instead of {shape}"
    with pytest.raises(InputError) as caught:
        pretrained.load(tmp_path)
    assert said in str(caught.value)


def without_prefix(file, table):
    return {name.removeprefix("transformer."): x for name, x in file.items()}


def with_buffers(file, table):
    """As old files have them; trap 2: the names of the biases of c_attn end alike."""
    triangle = {f"transformer.h.{i}.attn.bias": np.tril(np.ones((1, 1, 16, 16))) for i in range(2)}
    masked = {f"transformer.h.{i}.attn.masked_bias": np.float32(-1e4) for i in range(2)}
    return file | triangle | masked


def as_on_the_hub(file, table):
    return without_prefix(with_buffers(file, table), table)


def with_head(file, table):
    return file | {"lm_head.weight": file[table]}


def head_alone(file, table):
    """Trap 72: as transformers writes GPT-1's double heads."""
    file = with_head(file, table)
    del file[table]
    return file


def with_another_head(file, table):
    return file | {"multiple_choice_head.summary.weight": np.ones((1, 16), np.float32)}


@each_family
@pytest.mark.parametrize(
    "change",
    [without_prefix, with_buffers, as_on_the_hub, with_head, head_alone, with_another_head],
)
def test_r67_r69_trap_72_files_of_other_versions_open(family, change, tmp_path):
    """By the language model and, where it can be, by the body alone."""
    model = new(family, dtype=np.float32)
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    table = f"transformer.{'wte' if family == 'GPT2' else 'tokens_embed'}.weight"
    files.write_arrays(path, change(load_file(path), table))
    ids = [[5, 6, 7, 8]]
    other = type(model).from_pretrained(tmp_path)
    assert other.load_report.missing == other.load_report.new == []
    assert_array_equal(other(ids).logits.data, model(ids).logits.data)
    body = getattr(models, f"{family}Model").from_pretrained(tmp_path)
    assert body.load_report.missing == body.load_report.new == []
    assert_array_equal(body(ids).last_hidden_state.data, other(ids).last_hidden_state.data)


def test_r67_a_head_that_is_not_the_table_is_refused(tmp_path):
    model = new("GPT2", dtype=np.float32)
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    file = load_file(path)
    files.write_arrays(path, file | {"lm_head.weight": file["transformer.wte.weight"] + 1})
    with pytest.raises(
        InputError, match=r"lm_head.weight and transformer.wte.weight must be equal"
    ):
        pretrained.load(tmp_path)


@each_family
def test_r70_a_task_is_put_on_a_pretrained_body_and_another_family_is_refused(family, tmp_path):
    base = new(family, dtype=np.float32)
    base.save_pretrained(tmp_path)
    rates = getattr(models, f"{family}ForSequenceClassification")
    model = rates.from_pretrained(tmp_path, num_labels=3, pad_token_id=0)
    assert model.load_report == ([], [], ["score.weight"])
    assert (model.score.weight.shape, model.config.pad_token_id) == ((3, 16), 0)
    for name, array in base.transformer.state_dict().items():
        assert_array_equal(model.transformer.state_dict()[name], array)
    chooses = getattr(models, f"{family}DoubleHeadsModel").from_pretrained(tmp_path)
    summary = "multiple_choice_head.summary"
    assert chooses.load_report.new == [f"{summary}.weight", f"{summary}.bias"]
    model.save_pretrained(tmp_path)
    again = type(base).from_pretrained(tmp_path)
    assert again.load_report == ([], ["score.weight"], [])
    other = models.OpenAIGPTModel if family == "GPT2" else models.GPT2Model
    with pytest.raises(InputError, match=r"model_type is '.*', and .* opens"):
        other.from_pretrained(tmp_path)


@each_family
@pytest.mark.parametrize(
    "changes",
    [
        {"summary_activation": "tanh"},
        {"summary_use_proj": False},
        {"summary_proj_to_labels": False},
        {"summary_type": "mean"},
    ],
)
def test_r67_another_head_that_chooses_is_refused_by_the_class_that_has_one(
    family, changes, tmp_path
):
    (name,) = changes
    new(family).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    for head in HEADS[:3]:
        assert getattr(models, family + head).from_pretrained(tmp_path).config is not None
    with pytest.raises(InputError, match=rf"config\.json: {name} is .*: the head that chooses has"):
        getattr(models, f"{family}DoubleHeadsModel").from_pretrained(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | changes | {name: USUAL[name]}))
    getattr(models, f"{family}DoubleHeadsModel").from_pretrained(tmp_path)


USUAL = {
    "summary_activation": "",
    "summary_use_proj": True,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
}


def test_published_configs_of_gpt_1_lack_most_keys(tmp_path):
    """No ids of special tokens, and keys of old software."""
    values = {
        "afn": "gelu",
        "n_ctx": 512,
        "n_special": 0,
        "n_embd": 768,
        "model_type": "openai-gpt",
    }
    config = OpenAIGPTConfig.from_dict(values)
    assert config == OpenAIGPTConfig()
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (None, None, None)
    assert {"activation_function", "n_inner"}.isdisjoint(config.to_dict())
    assert config == OpenAIGPTConfig.from_dict(config.to_dict())
    assert GPT2Config.from_dict(dataclasses.asdict(GPT2Config())).eos_token_id == 50256


# -- beside transformers ---------------------------------------------------------------------------


def theirs(family, head, **changes):
    """A model of transformers in float64 with random values in every parameter."""
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    config = getattr(transformers, f"{family}Config")(**SIZES, pad_token_id=0, **changes)
    model = getattr(transformers, family + head)(config).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.3 * torch.randn(p.shape, generator=generator, dtype=torch.float64))
    return model


def tensors(inputs):
    import torch

    return {name: torch.tensor(x) for name, x in inputs.items()}


def their_loss(output, labels):
    """Of words, in float64: transformers itself takes that loss in float32."""
    import torch

    if "mc_labels" not in labels and output.logits.ndim < 3:
        return output.loss
    targets = torch.tensor(labels["labels"][..., 1:].ravel())
    loss = torch.nn.functional.cross_entropy(output.logits[..., :-1, :].flatten(0, -2), targets)
    assert loss.item() == pytest.approx(output.loss.item(), abs=1e-5)
    return output.mc_loss + 0.5 * loss if "mc_labels" in labels else loss


def their_grads(model, other):
    """(name, tinyfm's gradient, the other's) for each array in files, shared ones once."""
    entries = model.entries()
    grads = {name: p.grad.numpy() for name, p in other.named_parameters(remove_duplicate=False)}
    for own, p in model.named_parameters():
        for key, part in zip(entries[own].files, entries[own].split(p.grad), strict=True):
            yield key, part, grads[key]


@pytest.mark.parity
@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize(
    "family, name, classes",
    [
        *((family, name, 3) for family, name in CLASSES),
        *((family, f"{family}ForSequenceClassification", 1) for family in FAMILIES),
    ],
)
def test_models_of_transformers_open_and_go_back(family, name, classes, padding, tmp_path):
    """Every output, the loss and every gradient, in float64; and their own reading of our file.

    On real tokens: rows that see nothing are zeros here.  Positions, which transformers does not
    count from the mask, are given to it.
    """
    import torch
    import transformers

    head = name.removeprefix(family)
    other = theirs(family, head, num_labels=classes)
    other.save_pretrained(tmp_path / "theirs")
    model = pretrained.load(tmp_path / "theirs", dtype=np.float64)
    assert type(model).__name__ == name and model.load_report == ([], [], [])
    inputs, labels = batch(head, padding=padding, classes=classes)
    mask = inputs["attention_mask"]
    if head == "DoubleHeadsModel":  # by default the last position, for them be it padding or not
        inputs["mc_token_ids"] = np.array([[5, 2], [3, 2]])
    if head in ("LMHeadModel", "DoubleHeadsModel"):  # nor does it know where a text begins
        labels["labels"][..., 1:][mask[..., :-1] == 0] = -100
    rows = mask.reshape(-1, 6)  # which transformers does not flatten by itself
    for_them = inputs | {
        "attention_mask": rows,
        "position_ids": np.maximum(rows.cumsum(1) - 1, 0),
    }
    got, wanted = model(**inputs, **labels), other(**tensors(for_them | labels))
    compared = results(got).keys() & wanted.keys()
    assert compared

    def same(ours, their):
        real = mask == 1 if ours.shape[: mask.ndim] == mask.shape else ...
        assert_close(ours[real], their.detach().numpy()[real])

    for key in compared:
        same(results(got)[key], wanted[key])
    if head == "Model":
        loss, their = (x.last_hidden_state for x in (got, wanted))
        upstream = np.random.default_rng(2).standard_normal(loss.shape) * mask[..., None]
        loss.backward(upstream)
        their.backward(torch.tensor(upstream))
    else:
        loss = their_loss(wanted, labels)
        assert got.loss.item() == pytest.approx(loss.item(), abs=1e-10)
        got.loss.backward()
        loss.backward()
    for key, ours, their in their_grads(model, other):
        assert_close(ours, their, atol=1e-10, err_msg=key)
    model.save_pretrained(tmp_path / "ours")
    back, info = getattr(transformers, name).from_pretrained(
        tmp_path / "ours", dtype=torch.float64, output_loading_info=True
    )
    assert not any(info.values()), info
    again = back.eval()(**tensors(for_them | labels))
    for key in compared:
        same(again[key].detach().numpy(), wanted[key])


@pytest.mark.parity
@each_family
def test_the_model_trains_as_torchs(family, tmp_path):
    """Loss, every gradient and, after three steps of AdamW, every parameter."""
    import torch

    other = theirs(family, "LMHeadModel")
    other.save_pretrained(tmp_path)
    model = pretrained.load(tmp_path, dtype=np.float64)
    settings = {"lr": 0.01, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
    ours = optim.AdamW(model.parameters(), **settings)
    torchs = torch.optim.AdamW(other.parameters(), **settings)
    before = {key: x.copy() for key, x in model.state_dict().items()}
    for step in range(3):
        inputs, labels = batch("LMHeadModel", seed=step)
        output = other(**tensors(inputs | labels))
        losses = model(**inputs, **labels).loss, their_loss(output, labels)
        assert losses[0].item() == pytest.approx(losses[1].item(), abs=1e-10)
        for optimizer, loss in zip((ours, torchs), losses, strict=True):
            optimizer.zero_grad()
            loss.backward()
        for key, own, their in their_grads(model, other):
            assert_close(own, their, atol=1e-10, err_msg=key)
        ours.step()
        torchs.step()
    entries, learnt = model.entries(), dict(other.named_parameters())
    for own, p in model.named_parameters():
        for key, part in zip(entries[own].files, entries[own].split(p.data), strict=True):
            # A gradient that is nothing but rounding (of keys' biases) is as large as any to Adam.
            part, their = (
                np.delete(x, slice(16, 32), -1) if key.endswith("c_attn.bias") else x
                for x in (part, learnt[key].detach().numpy())
            )
            assert_close(part, their, atol=1e-9, err_msg=key)
        assert np.abs(p.data - before[own]).max() > 1e-3
