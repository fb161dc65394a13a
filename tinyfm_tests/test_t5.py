"""T5 1.0 and 1.1 and mT5: buckets, values, counts, steps, folders; and beside transformers.

What it shares with other families is in test_families.py and test_generation_models.py.
"""

import bisect
import dataclasses
import json
import math
import warnings
from functools import partial

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import tinyfm
from tinyfm import InputError, files, gradcheck, models, nn, no_grad, optim, pretrained
from tinyfm.models import MT5Config, T5Config, T5EncoderModel, T5ForConditionalGeneration

SIZES = {
    "vocab_size": 40,
    "d_model": 16,
    "d_kv": 6,  # times 4 heads: more than d_model
    "d_ff": 32,
    "num_layers": 2,
    "num_heads": 4,
}
V1_1 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
VERSIONS = {"1.0": {}, "1.1": V1_1}
each_version = pytest.mark.parametrize("version", VERSIONS)
assert_close = partial(assert_allclose, rtol=1e-12, atol=1e-12)


def t5(seed=0, std=0.3, dtype=np.float64, config=T5Config, **changes):
    """A small model with noise on every parameter."""
    tinyfm.manual_seed(seed)
    options = SIZES | changes
    cls = T5ForConditionalGeneration
    cls = models.MT5ForConditionalGeneration if config is MT5Config else cls
    model = cls(config(**options)).to(dtype=dtype).eval()
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data = (p.data + std * rng.standard_normal(p.shape)).astype(dtype)
    return model


def batch(padding="right", seed=0, source=60, target=45):
    """Sources and targets long enough for the logarithmic buckets, of two lengths, and labels."""
    rng = np.random.default_rng(seed)
    mask, target_mask = np.ones((2, source), int), np.ones((2, target), int)
    mask[1, slice(-9, None) if padding == "right" else slice(0, 9)] = 0
    target_mask[1, -6:] = 0
    labels = rng.integers(2, 40, (2, target))
    labels[rng.random(labels.shape) < 0.2] = -100
    return {
        "input_ids": np.where(mask, rng.integers(2, 40, mask.shape), 0),
        "attention_mask": mask,
        "decoder_input_ids": rng.integers(0, 40, (2, target)),
        "decoder_attention_mask": target_mask,
        "labels": np.where(target_mask, labels, -100),
    }


def file_of(model, folder):
    model.save_pretrained(folder)
    return files.read_arrays(folder / "model.safetensors")


def rewrite(folder, arrays=None, **config):
    """Another file of weights, and fields of config.json that differ; None: that are not there."""
    if arrays is not None:
        files.write_arrays(folder / "model.safetensors", arrays)
    path = folder / "config.json"
    values = json.loads(path.read_text(encoding="utf-8")) | config
    values = {name: value for name, value in values.items() if value is not None}
    path.write_text(json.dumps(values), encoding="utf-8")


# -- a second model, from parity.md (a) alone, in NumPy --------------------------------------------

# The distances at which the buckets of one direction begin (parity.md).
TWO_SIDED = [*range(8), 8, 12, 16, 23, 32, 46, 64, 91]
CAUSAL = [*range(16), 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]


def bucket(distance, bidirectional):
    """Of one distance key - query."""
    if bidirectional:
        return bisect.bisect(TWO_SIDED, abs(distance)) - 1 + 16 * (distance > 0)
    return bisect.bisect(CAUSAL, max(-distance, 0)) - 1


class Reference:
    """The logits of a file's weights."""

    def __init__(self, file, heads=4, scaled=True):
        self.file, self.heads, self.scaled = file, heads, scaled

    def logits(self, ids, mask, target, target_mask=None):
        table, length = self.file["shared.weight"], target.shape[1]
        seen = mask[:, None, None, :] == 1
        memory = self.stack("encoder", table[ids], seen)
        causal = np.tril(np.ones((length, length), bool))
        if target_mask is not None:
            causal = causal & (target_mask[:, None, None, :] == 1)
        hidden = self.stack("decoder", table[target], causal, memory, seen)
        if self.scaled:
            hidden = hidden / math.sqrt(table.shape[1])
        return hidden @ self.file.get("lm_head.weight", table).T

    def stack(self, side, x, seen, memory=None, memory_seen=None):
        places = np.arange(x.shape[1])
        first = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        buckets = [[bucket(k - q, side == "encoder") for k in places] for q in places]
        bias = self.file[first][buckets].transpose(2, 0, 1)
        for i in range(sum(name.endswith("SelfAttention.q.weight") for name in self.of(side))):
            block, part = f"{side}.block.{i}.layer", 1
            y = self.norm(x, f"{block}.0.layer_norm")
            x = x + self.attention(f"{block}.0.SelfAttention", y, y, seen, bias)
            if memory is not None:
                y = self.norm(x, f"{block}.1.layer_norm")
                x = x + self.attention(f"{block}.1.EncDecAttention", y, memory, memory_seen, 0)
                part = 2
            y = self.norm(x, f"{block}.{part}.layer_norm")
            x = x + self.feed_forward(f"{block}.{part}.DenseReluDense", y)
        return self.norm(x, f"{side}.final_layer_norm")

    def of(self, side):
        return [name for name in self.file if name.startswith(f"{side}.")]

    def norm(self, x, name):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * self.file[f"{name}.weight"]

    def attention(self, name, x, memory, seen, bias):
        def heads(y, kind):
            y = y @ self.file[f"{name}.{kind}.weight"].T
            return y.reshape(*y.shape[:2], self.heads, -1).swapaxes(1, 2)

        q, k, v = heads(x, "q"), heads(memory, "k"), heads(memory, "v")
        scores = np.where(seen, q @ k.swapaxes(2, 3) + bias, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        merged = (weights @ v).swapaxes(1, 2).reshape(*x.shape[:2], -1)
        return merged @ self.file[f"{name}.o.weight"].T

    def feed_forward(self, name, x):
        if f"{name}.wi.weight" in self.file:
            wide = np.maximum(x @ self.file[f"{name}.wi.weight"].T, 0)
        else:
            gate = x @ self.file[f"{name}.wi_0.weight"].T
            gate = gate / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
            wide = gate * (x @ self.file[f"{name}.wi_1.weight"].T)
        return wide @ self.file[f"{name}.wo.weight"].T


# -- buckets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("bidirectional", [True, False])
def test_r23_traps_37_38_39_every_distance_has_the_bucket_of_the_table(bidirectional):
    distances = np.arange(-1000, 1001)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # log(0) at distance 0
        found = nn.relative_buckets(distances, bidirectional)
    assert found.tolist() == [bucket(d, bidirectional) for d in distances.tolist()]
    assert set(found.tolist()) == set(range(32)) - ({16} if bidirectional else set())


def test_r23_worked_values():
    distances = np.array([-128, -64, -20, -16, -8, -1, 0, 1, 8, 20, 64, 128])
    encoder = [15, 14, 10, 10, 8, 1, 0, 17, 24, 26, 30, 31]
    decoder = [31, 26, 17, 16, 8, 1, 0, 0, 0, 0, 0, 0]
    assert nn.relative_buckets(distances, True).tolist() == encoder
    assert nn.relative_buckets(distances, False).tolist() == decoder


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("queries, keys", [(1, 1), (5, 5), (1, 130), (3, 50)])
def test_the_bias_has_an_entry_for_each_distance_from_queries_on_the_last_keys(
    queries, keys, bidirectional
):
    bias = nn.RelativeBias(2, bidirectional)
    found = bias(queries, keys)
    assert found.shape == (2, queries + keys - 1)
    table = bias.weight.data
    for query in range(queries):
        for key in range(keys):
            distance = key - (keys - queries + query)
            entry = found.data[:, distance + keys - 1]
            assert_array_equal(entry, table[bucket(distance, bidirectional)])


@pytest.mark.parametrize("buckets, distance", [(2, 128), (3, 128), (32, 16), (8, 4)])
def test_buckets_that_cannot_be(buckets, distance):
    with pytest.raises(ValueError, match=f"{buckets} buckets up to distance {distance}: there mu"):
        nn.RelativeBias(2, True, buckets, distance)


# -- values ----------------------------------------------------------------------------------------


def names_in_files(gated, head):
    """The names that transformers saves and their shapes (parity.md, c)."""
    shapes = {"shared.weight": (40, 16)} | ({"lm_head.weight": (40, 16)} if head else {})
    wide = ("wi_0", "wi_1") if gated else ("wi",)
    for side in ("encoder", "decoder"):
        first = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        shapes |= {first: (32, 4), f"{side}.final_layer_norm.weight": (16,)}
        attentions = ["SelfAttention"] + ["EncDecAttention"] * (side == "decoder")
        for i in range(2):
            for n, attention in enumerate(attentions):
                part = f"{side}.block.{i}.layer.{n}"
                shapes |= {f"{part}.{attention}.{x}.weight": (24, 16) for x in "qkv"}
                shapes |= {f"{part}.{attention}.o.weight": (16, 24)}
                shapes |= {f"{part}.layer_norm.weight": (16,)}
            part = f"{side}.block.{i}.layer.{len(attentions)}"
            shapes |= {f"{part}.DenseReluDense.{x}.weight": (32, 16) for x in wide}
            shapes |= {f"{part}.DenseReluDense.wo.weight": (16, 32)}
            shapes |= {f"{part}.layer_norm.weight": (16,)}
    return shapes


GOLDEN = {  # parity.md (i): keys, sum, sum of squares, logits[0, -1, :3]
    "1.0": (47, 0.01055363, 0.02277374, [-0.00267383, 0.00091236, 0.00304425]),
    "1.1": (52, 0.04177315, 0.09376542, [-0.01768995, -0.01729103, 0.01066962]),
}


@each_version
def test_the_golden_vectors(version, tmp_path):
    """Values that transformers gives for a file filled by a rule."""
    keys, total, squares, corner = GOLDEN[version]
    shapes = names_in_files(gated=version == "1.1", head=version == "1.1")
    file = {
        name: 0.3 * np.sin(1 + 0.7 * np.arange(math.prod(shape)).reshape(shape) + 1.3 * j)
        for j, (name, shape) in enumerate(sorted(shapes.items()))
    }
    assert len(file) == keys
    config = {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", **SIZES}
    (tmp_path / "config.json").write_text(json.dumps(config | VERSIONS[version]))
    files.write_arrays(tmp_path / "model.safetensors", file)
    model = pretrained.load(tmp_path, dtype=np.float64)
    assert type(model) is T5ForConditionalGeneration and model.load_report == ([], [], [])
    ids = np.array([[5, 6, 7, 8, 9], [5, 6, 7, 8, 0]])
    target = np.array([[0, 5, 6, 7], [0, 7, 8, 9]])
    logits = model(ids, (ids > 0).astype(int), target).logits.data
    assert logits.sum() == pytest.approx(total, abs=1e-6)
    assert (logits**2).sum() == pytest.approx(squares, abs=1e-6)
    assert_allclose(logits[0, -1, :3], corner, atol=1e-6)


@each_version
@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("decoder_layers", [2, 3])
def test_logits_and_loss_are_those_of_an_independent_forward(
    version, padding, decoder_layers, tmp_path
):
    model = t5(num_decoder_layers=decoder_layers, **VERSIONS[version])
    reference = Reference(file_of(model, tmp_path), scaled=version == "1.0")
    inputs = batch(padding)
    wanted = reference.logits(*list(inputs.values())[:4])
    output = model(**inputs)
    assert_close(output.logits.data, wanted)
    logs = wanted - np.log(np.exp(wanted).sum(-1, keepdims=True))
    labels = inputs["labels"]
    counted = labels >= 0
    assert output.loss.item() == pytest.approx(-logs[counted, labels[counted]].mean(), rel=1e-12)
    assert output.num_labels == counted.sum()
    del inputs["decoder_attention_mask"], inputs["labels"]
    assert_close(model(**inputs).logits.data, reference.logits(*inputs.values()))


@each_version
def test_a_source_padded_on_the_left_gives_what_it_gives_alone(version):
    """Only distances count."""
    model, inputs = t5(**VERSIONS[version]), batch("left")
    ids, target = inputs["input_ids"][1:, 9:], inputs["decoder_input_ids"]
    padded = model(inputs["input_ids"], inputs["attention_mask"], target)
    assert_close(padded.logits.data[1:], model(ids, None, target[1:]).logits.data)


def test_trap_45_the_start_token_is_seen_although_it_is_the_padding_token():
    model, ids = t5(), np.array([[5, 6, 7]])
    logits = model(ids, decoder_input_ids=[[0, 7]]).logits.data
    assert_close(model(ids, None, [[0, 7]], [[1, 1]]).logits.data, logits)
    masked = model(ids, None, [[0, 7]], [[0, 1]]).logits.data
    assert np.abs(masked[0, 1] - logits[0, 1]).max() > 1e-3


def test_trap_36_scores_are_not_scaled_unless_asked_for(tmp_path):
    """With the scale, queries sqrt(d_kv) times as large give the same."""
    model = t5()
    scaled = t5(scale_attn_weights=True)
    scaled.load_state_dict(model.state_dict())
    assert [x.decoder.layers[1].cross.scale for x in (model, scaled)] == [1.0, None]
    for layer in (*scaled.encoder.layers, *scaled.decoder.layers):
        whole = layer.attention.qkv.weight
        whole.data = whole.data * np.repeat([math.sqrt(6), 1, 1], 24)[:, None]
        if layer.cross is not None:
            layer.cross.q.weight.data = layer.cross.q.weight.data * math.sqrt(6)
    inputs = batch()
    assert_close(scaled(**inputs).logits.data, model(**inputs).logits.data)
    scaled.save_pretrained(tmp_path)
    assert pretrained.load(tmp_path).config.scale_attn_weights


@pytest.mark.parametrize(
    "name, wanted",
    [
        ("relu", 1.0),
        ("gelu", 0.8413447),
        ("gelu_new", 0.8411920),
        ("gated-relu", 2.0),
        ("gated-silu", 1.4621172),
        ("gated-gelu", 1.682384),  # the form with tanh; the exact one gives 1.682689
        ("gated-gelu_new", 1.682384),
    ],
)
def test_trap_44_feed_forward_networks_by_name(name, wanted):
    """Of an input of 1, with a gate of weight 1 and a linear part of weight 2."""
    config = T5Config(feed_forward_proj=name, **SIZES | {"d_model": 1, "d_ff": 1}).layer()
    module = nn.FeedForward(config).to(dtype=np.float64).eval()
    weights = {"up": 2.0, "gate": 1.0} if config.gated else {"up": 1.0}
    for part, value in (weights | {"down": 1.0}).items():
        getattr(module, part).weight.data = [[value]]
    assert module(np.array([1.0])).data[0] == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(
    "flags, factor",
    [
        ({}, True),
        ({"tie_word_embeddings": True}, True),
        ({"tie_word_embeddings": False}, False),
        ({"tie_word_embeddings": True, "scale_decoder_outputs": False}, False),
        ({"tie_word_embeddings": False, "scale_decoder_outputs": True}, True),
    ],
)
@pytest.mark.parametrize("width, scale", [(8, 0.3535534), (512, 0.0441942), (768, 0.0360844)])
def test_r75_traps_18_43_what_the_head_reads_is_scaled(flags, factor, width, scale):
    model = t5(**{"d_model": width, **flags})
    inputs = batch(source=5, target=3)
    hidden = []
    norm = model.decoder.norm
    model.decoder.norm = lambda x: hidden.append(norm(x)) or hidden[0]
    logits = model(**inputs).logits.data
    plain = hidden[0].data @ model.head.weight.data.T
    assert_allclose(logits, plain * (scale if factor else 1), rtol=1e-6)
    assert (model.head is model.embedding) == flags.get("tie_word_embeddings", True)


def test_traps_21_and_42_norms_keep_the_mean_and_heads_may_be_wider_than_the_model():
    model = t5()
    layer = model.decoder.layers[0]
    assert layer.attention.qkv.weight.shape == (72, 16)
    assert layer.cross.out.weight.shape == (16, 24)
    norm = model.encoder.norm
    norm.weight.data = np.ones(16)
    x = np.tile([1.0, 2, 3, 4], 4)
    assert_allclose(norm(x).data[:4], [0.3651484, 0.7302967, 1.0954452, 1.4605935], atol=1e-6)
    assert not any(name.endswith(".bias") for name, _ in model.named_parameters())


# -- sizes and initial values ----------------------------------------------------------------------

COUNTS = {
    "small": (T5Config.small(), 60_506_624),
    "base": (T5Config.base(), 222_903_552),
    "large": (T5Config.large(), 737_668_096),
    "3B": (T5Config.xl(), 2_851_598_336),
    "11B": (T5Config.xxl(), 11_307_321_344),
    "1.1 small": (T5Config.v1_1("small"), 76_961_152),
    "1.1 base": (T5Config.v1_1("base"), 247_577_856),
    "1.1 large": (T5Config.v1_1("large"), 783_150_080),
    "1.1 xl": (T5Config.v1_1("xl"), 2_849_757_184),
    "1.1 xxl": (T5Config.v1_1("xxl"), 11_135_332_352),
}


@pytest.mark.parametrize("size", COUNTS)
def test_the_counts_of_the_published_sizes(size):
    config, count = COUNTS[size]
    assert models.num_parameters(config) == count


def test_the_encoder_alone_and_mt5_are_counted_too():
    encoder = models.num_parameters(T5Config.small(), T5EncoderModel)
    layer = 4 * 512 * 512 + 2 * 512 * 2048 + 2 * 512
    assert encoder == 32128 * 512 + 6 * layer + 512 + 32 * 8
    tables = 2 * (250112 - 32128) * 512
    small = T5Config.v1_1("small")
    assert models.num_parameters(MT5Config()) == models.num_parameters(small) + tables


def test_presets_may_be_changed_and_unknown_ones_are_named():
    assert T5Config.base(dropout_rate=0.0, d_ff=64).d_ff == 64
    assert T5Config.v1_1("xl", vocab_size=50).vocab_size == 50
    assert T5Config.large(num_decoder_layers=3).num_decoder_layers == 3
    with pytest.raises(
        ValueError, match=r"there is no T5 1\.1 of size '3B': take one of small, ba"
    ):
        T5Config.v1_1("3B")


def test_an_older_name_of_the_class(tmp_path):
    T5ForConditionalGeneration(T5Config(**SIZES)).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(values | {"architectures": ["T5WithLMHeadModel"]}))
    assert type(pretrained.load(tmp_path)) is T5ForConditionalGeneration


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"feed_forward_proj": "gated"}, "feed_forward_proj is 'gated': it must be one of relu,"),
        ({"feed_forward_proj": "geglu"}, "feed_forward_proj is 'geglu'"),
        ({"decoder_start_token_id": 40}, "decoder_start_token_id 40 is outside the 40 ids"),
        ({"dropout_rate": 1.5}, "dropout_rate is 1.5: it must be between 0 and 1"),
        ({"initializer_factor": -2.0}, "initializer_factor is -2.0: it must be between 0 and 100"),
        ({"num_layers": 0}, "num_layers is 0: it must be at least 1"),
    ],
)
def test_impossible_configs(changes, said):
    with pytest.raises(ValueError, match=said):
        T5Config(**SIZES | changes)


@each_version
@pytest.mark.parametrize("scaled", [False, True])
def test_initial_values(version, scaled):
    """parity.md (e); an unscaled head starts smaller, see T5ForConditionalGeneration."""
    sizes = {"d_model": 64, "d_kv": 16, "d_ff": 256, "num_heads": 16, "vocab_size": 500}
    tinyfm.manual_seed(0)
    config = T5Config(**sizes, num_layers=1, scale_attn_weights=scaled, **VERSIONS[version])
    model = T5ForConditionalGeneration(config)
    stds = {"q": 1 / 8 if scaled else 1 / 32, "k": 1 / 8, "v": 1 / 8, "o": 1 / 16, "wo": 1 / 16}
    stds |= dict.fromkeys(("wi", "wi_0", "wi_1", "relative_attention_bias", "lm_head"), 1 / 8)
    stds |= {"shared": 1.0}
    entries, checked = model.entries(), set()
    for own, p in model.named_parameters():
        for name, part in zip(entries[own].files, entries[own].split(p.data), strict=True):
            kind = name.split(".")[-2]
            if kind.endswith("layer_norm"):
                assert (part == 1).all()
                continue
            assert part.std() == pytest.approx(stds[kind], rel=5 / math.sqrt(part.size)), name
            checked.add(kind)
    absent = {"wi"} if version == "1.1" else {"wi_0", "wi_1", "lm_head"}
    assert checked == stds.keys() - absent
    for factor in (0.1, 2.0):
        other = T5ForConditionalGeneration(T5Config(**SIZES, initializer_factor=factor))
        assert other.embedding.weight.data.std() == pytest.approx(factor, rel=0.2)


def test_dropout_is_where_the_reference_has_it(monkeypatch):
    """On embeddings, probabilities, each sublayer, inside feed-forward, and the final norms."""
    drawn = []
    for module in (nn.layers, nn.attention):
        monkeypatch.setattr(module, "draw_seed", lambda m=module: drawn.append(m) or 1)
    model = t5(num_decoder_layers=3, **V1_1).train()
    inputs = batch(source=4, target=3)
    model(**inputs)
    on_probabilities = 2 * 1 + 3 * 2
    elsewhere = (2 + 2 * 3) + (2 + 3 * 4)
    assert [drawn.count(m) for m in (nn.attention, nn.layers)] == [on_probabilities, elsewhere]
    rates = {m.p for m in model.modules() if isinstance(m, nn.Dropout)}
    rates |= {m.dropout for m in model.modules() if isinstance(m, nn.MultiHeadAttention)}
    assert rates == {0.1}


# -- the shared table ------------------------------------------------------------------------------


def test_trap_40_each_stack_has_one_table_of_biases_and_cross_attention_none(tmp_path):
    file = file_of(t5(), tmp_path)
    places = [f"{side}.block.0.layer.0.SelfAttention" for side in ("decoder", "encoder")]
    tables = sorted(name for name in file if "relative_attention_bias" in name)
    assert tables == [f"{place}.relative_attention_bias.weight" for place in places]


def test_traps_70_and_71_one_table_gets_the_gradients_of_its_three_uses(tmp_path):
    """Source, target and head; the padding row learns from look-ups as well."""
    ids, target = [[5, 6, 0, 7], [8, 0, 9, 5]], [[0, 5, 6], [0, 9, 5]]
    inputs = {"input_ids": ids, "decoder_input_ids": target, "labels": [[5, 6, 1], [9, 5, 1]]}
    model = t5()
    model(**inputs).loss.backward()
    whole = model.embedding.weight.grad.copy()
    uses = []
    for use in ("embed_source", "embed_target", "head"):
        other, table = t5(), nn.Embedding(40, 16).to(dtype=np.float64)
        table.weight.data = other.embedding.weight.data
        setattr(other, use, table if use == "head" else lambda ids, *_, table=table: table(ids))
        other(**inputs).loss.backward()
        uses.append(table.weight.grad)
    assert_close(sum(uses), whole)
    assert all(np.abs(grad[0]).max() > 1e-6 for grad in uses)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    optimizer.step()
    assert model.head is model.embedding
    file = file_of(model, tmp_path)
    assert "lm_head.weight" not in file
    other = pretrained.load(tmp_path, dtype=np.float64)
    assert other.head is other.embedding
    assert_array_equal(other.head.weight.data, model.embedding.weight.data)


@each_version
@settings(
    max_examples=max(1, settings.default.max_examples // 100),
    phases=[Phase.generate],  # a seed does not shrink
)
@given(
    seed=st.integers(0, 2**32 - 1),
    padding=st.sampled_from(["right", "left"]),
    proj=st.sampled_from(["gelu", "silu"]),
)
def test_gradients_of_the_whole_model(version, seed, padding, proj):
    """Along directions in every parameter, the shared table and the biases included."""
    kind = VERSIONS[version] or {"feed_forward_proj": proj}
    model, inputs = t5(seed, **kind), batch(padding, seed, source=20, target=18)
    assert gradcheck(
        lambda *_: model(**inputs).loss, *model.parameters(), max_entries=3, rtol=1e-4, atol=1e-6
    )


# -- steps -----------------------------------------------------------------------------------------


@each_version
@pytest.mark.parametrize("sizes", [[1] * 45, [20, 1, 24], [1, 44], [45]])
def test_r23_r61_trap_41_steps_give_the_logits_of_the_whole(version, sizes):
    """Over caches a new query stands where it stands in the whole text."""
    model, inputs = t5(**VERSIONS[version]), batch()
    ids, mask, target = (inputs[x] for x in ("input_ids", "attention_mask", "decoder_input_ids"))
    whole = model(ids, mask, target).logits.data
    with no_grad():
        state, end = model.begin(ids, mask, np.arange(2), 45), 0
        for size in sizes:
            start, end = end, end + size
            assert_close(model.step(target[:, start:end], state), whole[:, end - 1])


def test_trap_41_a_row_of_biases_behind_a_cache_is_that_of_the_whole():
    bias = nn.RelativeBias(2, bidirectional=False, num_buckets=6, max_distance=9)
    whole = bias(7, 7).data
    for query in range(7):
        row = bias(1, query + 1).data
        assert_array_equal(row, whole[:, 6 - query : 7])


@pytest.mark.parametrize("beams", [1, 3])
def test_r22_trap_69_sources_are_encoded_once_and_their_keys_made_once_a_layer(beams, monkeypatch):
    model, calls = t5(num_decoder_layers=3), []
    projections = {id(layer.cross.kv): i for i, layer in enumerate(model.decoder.layers)}
    call = nn.Module.__call__

    def watched(module, *args, **options):
        if module is model.encoder:
            calls.append("encoder")
        if id(module) in projections:
            calls.append(projections[id(module)])
        return call(module, *args, **options)

    monkeypatch.setattr(nn.Module, "__call__", watched)
    inputs = batch()
    made = model.generate(
        inputs["input_ids"],
        inputs["attention_mask"],
        num_beams=beams,
        max_new_tokens=6,
        eos_token_id=-1,
    )
    assert made.shape == (2, 7)
    assert calls == ["encoder", 0, 1, 2]


def test_r64_labels_are_shifted_behind_the_start_token():
    model, ids = t5(), np.array([[5, 6, 7], [8, 9, 0]])
    labels = np.array([[7, 8, 1, -100], [9, 1, -100, -100]])
    explicit = model(ids, decoder_input_ids=[[0, 7, 8, 1], [0, 9, 1, 0]]).logits.data
    assert_close(model(ids, labels=labels).logits.data, explicit)
    other = t5(decoder_start_token_id=3)
    assert_array_equal(model.generate(ids)[:, 0], [0, 0])
    assert_array_equal(other.generate(ids)[:, 0], [3, 3])


def test_trap_66_lengths_count_the_start_token_or_not():
    model, ids = t5(), np.array([[5, 6, 7]])
    lengths = [({}, 21), ({"max_length": 5}, 5), ({"max_new_tokens": 5}, 6)]
    for options, length in lengths:
        assert model.generate(ids, eos_token_id=-1, **options).shape == (1, length)


# -- folders ---------------------------------------------------------------------------------------


@each_version
def test_files_have_the_names_of_transformers(version, tmp_path):
    model = t5(**VERSIONS[version])
    file = file_of(model, tmp_path)
    gated = version == "1.1"
    assert {name: x.shape for name, x in file.items()} == names_in_files(gated, head=gated)
    cross = model.decoder.layers[1].cross
    assert_array_equal(
        file["decoder.block.1.layer.1.EncDecAttention.v.weight"], cross.kv.weight.data[24:]
    )
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert (config["architectures"], config["model_type"]) == (["T5ForConditionalGeneration"], "t5")
    assert config["tie_word_embeddings"] is config["scale_decoder_outputs"] is not gated


def with_copies(file):
    """As older files have them."""
    table = file["shared.weight"]
    return file | {f"{side}.embed_tokens.weight": table for side in ("encoder", "decoder")}


def with_head(file):
    return file | {"lm_head.weight": file["shared.weight"]}


def under_another_name(file):
    """R67: the table is a copy alone."""
    file = dict(file)
    return file | {"encoder.embed_tokens.weight": file.pop("shared.weight")}


def with_a_bias_of_cross_attention(file):
    name = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    return file | {name: np.ones((32, 4), np.float32)}


@pytest.mark.parametrize(
    "change", [with_copies, with_head, under_another_name, with_a_bias_of_cross_attention]
)
@each_version
def test_r67_r69_files_of_other_versions_open(version, change, tmp_path):
    model, inputs = t5(dtype=np.float32, **VERSIONS[version]), batch()
    file = file_of(model, tmp_path)
    if change is with_head and version == "1.1":
        change = dict  # it has one
    rewrite(tmp_path, change(file))
    other = pretrained.load(tmp_path)
    extra = [] if change is not with_a_bias_of_cross_attention else [list(change(file))[-1]]
    assert other.load_report == ([], extra, [])
    assert_array_equal(other(**inputs).logits.data, model(**inputs).logits.data)


def test_published_configs_lack_what_later_models_vary(tmp_path):
    """And t5-small's has old fields, and options for tasks, which generation does not follow."""
    model, inputs = t5(dtype=np.float32), batch()
    model.save_pretrained(tmp_path)
    lacking = ("feed_forward_proj", "num_decoder_layers", "relative_attention_max_distance")
    flags = ("tie_word_embeddings", "scale_decoder_outputs", "scale_attn_weights")
    old = {"n_positions": 512, "output_past": True, "is_encoder_decoder": True}
    tasks = {"summarization": {"num_beams": 4, "length_penalty": 2.0, "max_length": 200}}
    rewrite(tmp_path, **dict.fromkeys((*lacking, *flags)), **old, task_specific_params=tasks)
    other = pretrained.load(tmp_path)
    assert other.config == dataclasses.replace(model.config, task_specific_params=tasks)
    assert other.generation_config == {}
    assert_array_equal(other(**inputs).logits.data, model(**inputs).logits.data)


NEWER = {"tie_word_embeddings": True, "scale_decoder_outputs": False}


@pytest.mark.parametrize(
    "flags, scaled",
    [
        (NEWER, False),  # trap 43: how transformers 5 saves version 1.1
        ({"tie_word_embeddings": False, "scale_decoder_outputs": None}, False),
        ({"tie_word_embeddings": None, "scale_decoder_outputs": None}, True),
        ({"tie_word_embeddings": True, "scale_decoder_outputs": None}, True),
        ({"tie_word_embeddings": True, "scale_decoder_outputs": True}, True),
    ],
)
def test_r75_trap_43_a_head_in_the_file_is_used_whatever_the_flags_say(flags, scaled, tmp_path):
    model, inputs = t5(**V1_1), batch()
    wanted = model(**inputs).logits.data * (0.25 if scaled else 1)
    model.save_pretrained(tmp_path / "first")
    rewrite(tmp_path / "first", **flags)
    folder = tmp_path / "first"
    for again in ("second", "third"):
        other = pretrained.load(folder, dtype=np.float64)
        assert other.head is not other.embedding
        assert other.config.scale_decoder_outputs is scaled
        assert_close(other(**inputs).logits.data, wanted)
        folder = tmp_path / again
        other.save_pretrained(folder)


def test_r75_a_tied_model_may_be_unscaled(tmp_path):
    """A fresh version 1.1 of transformers 5: its head is the table."""
    model, inputs = t5(dtype=np.float32), batch()
    model.save_pretrained(tmp_path)
    rewrite(tmp_path, **NEWER)
    other = pretrained.load(tmp_path)
    assert other.head is other.embedding
    assert_allclose(other(**inputs).logits.data, 4 * model(**inputs).logits.data, rtol=1e-4)


def test_r70_what_is_missing_or_too_much_is_an_error(tmp_path):
    file = file_of(t5(**V1_1), tmp_path)
    without = {name: x for name, x in file.items() if name != "lm_head.weight"}
    rewrite(tmp_path, without)
    with pytest.raises(InputError, match=r"lm_head\.weight is missing"):
        pretrained.load(tmp_path)
    rewrite(tmp_path, file, feed_forward_proj="relu")
    with pytest.raises(InputError, match=r"DenseReluDense.wi.weight is missing.*wi_0.weight is un"):
        pretrained.load(tmp_path)
    rewrite(tmp_path, file, feed_forward_proj="gated-gelu", num_decoder_layers=1)
    with pytest.raises(InputError, match=r"decoder.block.1.* is unexpected"):
        pretrained.load(tmp_path)


@each_version
@pytest.mark.parametrize("change", [dict, under_another_name])
def test_the_encoder_opens_alone_from_the_file_of_a_whole_model(version, change, tmp_path):
    model, inputs = t5(**VERSIONS[version]), batch("left")
    file = change(file_of(model, tmp_path))
    rewrite(tmp_path, file)
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    wanted = model(**inputs, output_attentions=True)
    encoder = T5EncoderModel.from_pretrained(tmp_path, dtype=np.float64)
    others = [name for name in file if name.startswith(("decoder.", "lm_head."))]
    assert sorted(encoder.load_report.unexpected) == sorted(others)
    assert encoder.load_report.missing == encoder.load_report.new == []
    output = encoder(ids, mask, output_attentions=True)
    assert_close(output.last_hidden_state.data, wanted.encoder_last_hidden_state.data)
    assert_close(np.array(output.attentions), np.array(wanted.encoder_attentions))
    assert_close(encoder(ids[1:, 9:]).last_hidden_state.data, output.last_hidden_state.data[1:, 9:])
    encoder.save_pretrained(tmp_path / "alone")
    alone = pretrained.load(tmp_path / "alone", dtype=np.float64)
    assert type(alone) is T5EncoderModel and alone.load_report == ([], [], [])
    assert_close(alone(ids, mask).last_hidden_state.data, output.last_hidden_state.data)
    with pytest.raises(InputError, match=r"decoder.block.0.* is missing"):
        T5ForConditionalGeneration.from_pretrained(tmp_path / "alone")
    with pytest.raises(ValueError, match=r"ids are \(60,\): they must be \(batch, length\)"):
        encoder(ids[0])


@pytest.mark.parametrize("flags", [{}, {"tie_word_embeddings": True}])
def test_mt5_opens_as_version_1_1_and_is_never_scaled(flags, tmp_path):
    """Newer files say that words are tied, while the head stands in the file."""
    model, inputs = t5(config=MT5Config), batch()
    assert isinstance(model, T5ForConditionalGeneration)
    assert (model.config.feed_forward_proj, model.config.model_type) == ("gated-gelu", "mt5")
    same = t5(**V1_1)
    same.load_state_dict(model.state_dict())
    wanted = same(**inputs).logits.data
    assert_array_equal(model(**inputs).logits.data, wanted)
    model.save_pretrained(tmp_path)
    rewrite(tmp_path, scale_decoder_outputs=None, **flags)
    other = pretrained.load(tmp_path, dtype=np.float64)
    assert type(other) is models.MT5ForConditionalGeneration
    assert_array_equal(other(**inputs).logits.data, wanted)
    encoder = models.MT5EncoderModel.from_pretrained(tmp_path, dtype=np.float64)
    states = encoder(inputs["input_ids"], inputs["attention_mask"]).last_hidden_state.data
    assert_array_equal(states, other(**inputs).encoder_last_hidden_state.data)
    with pytest.raises(InputError, match="model_type is 'mt5', and T5ForConditionalGeneration"):
        T5ForConditionalGeneration.from_pretrained(tmp_path)


# -- beside transformers ---------------------------------------------------------------------------

OTHERS = {
    "1.0": ("T5", {"num_decoder_layers": 3}),
    "1.1": ("T5", V1_1),
    "gelu": ("T5", {"feed_forward_proj": "gelu"}),
    "gated relu, scaled": ("T5", {"feed_forward_proj": "gated-relu"}),
    "mT5": ("MT5", {}),
}


def theirs(family, kind, seed=1):
    """A model of transformers in float64 with random values in every parameter, and a head of its
    own where the config says so, which transformers has out of files alone."""
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    start = {"decoder_start_token_id": 0}
    config = getattr(transformers, f"{family}Config")(**SIZES | start | kind)
    model = getattr(transformers, f"{family}ForConditionalGeneration")(config).double().eval()
    generator = torch.Generator().manual_seed(seed)
    if kind.get("tie_word_embeddings") is False or family == "MT5":
        model.lm_head.weight = torch.nn.Parameter(torch.zeros_like(model.lm_head.weight))
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.3 * torch.randn(p.shape, generator=generator, dtype=torch.float64))
    return model


def tensors(inputs):
    import torch

    return {name: torch.tensor(x) for name, x in inputs.items()}


def reopened(model, folder):
    """What transformers reads in a folder that `model` is saved to."""
    import torch
    import transformers

    model.save_pretrained(folder)
    cls = getattr(transformers, type(model).__name__)
    back, info = cls.from_pretrained(folder, dtype=torch.float64, output_loading_info=True)
    assert not any(info.values()), info
    return back.eval()


@pytest.mark.parity
@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("kind", OTHERS)
def test_models_of_transformers_open_and_go_back(kind, padding, tmp_path, monkeypatch):
    """Logits, loss and every gradient, in float64.

    To 1e-6, for their norms take the mean square in float32; and to 1e-12 where what they call
    float32 is float64.
    """
    import torch

    other = theirs(*OTHERS[kind])
    other.save_pretrained(tmp_path / "theirs")
    model = pretrained.load(tmp_path / "theirs", dtype=np.float64)
    assert type(model).__name__ == type(other).__name__ and model.load_report == ([], [], [])
    inputs = batch(padding)
    output = model(**inputs)
    logits = other(**tensors(inputs)).logits.detach().numpy()
    assert_allclose(output.logits.data, logits, atol=1e-6)
    monkeypatch.setattr(torch, "float32", torch.float64)
    exact = other(**tensors(inputs))
    monkeypatch.undo()
    assert_close(output.logits.data, exact.logits.detach().numpy())
    states = exact.encoder_last_hidden_state.detach().numpy()
    real = inputs["attention_mask"] == 1
    assert_close(output.encoder_last_hidden_state.data[real], states[real])
    assert output.loss.item() == pytest.approx(exact.loss.item(), abs=1e-12)
    output.loss.backward()
    exact.loss.backward()
    entries = model.entries()
    grads = {name: p.grad.numpy() for name, p in other.named_parameters(remove_duplicate=False)}
    for own, p in model.named_parameters():
        for name, part in zip(entries[own].files, entries[own].split(p.grad), strict=True):
            assert_close(part, grads[name], err_msg=name)
    again = reopened(model, tmp_path / "ours")(**tensors(inputs)).logits.detach().numpy()
    assert_close(again, logits)


@pytest.mark.parity
@pytest.mark.parametrize("kind", [{}, V1_1])
def test_the_encoder_of_tinyfm_opens_in_transformers(kind, tmp_path):
    tinyfm.manual_seed(0)
    model = T5EncoderModel(T5Config(**SIZES | kind)).to(dtype=np.float64).eval()
    inputs = {
        name: x for name, x in batch("left").items() if name in ("input_ids", "attention_mask")
    }
    states = reopened(model, tmp_path)(**tensors(inputs)).last_hidden_state.detach().numpy()
    real = inputs["attention_mask"] == 1
    assert_allclose(model(**inputs).last_hidden_state.data[real], states[real], atol=1e-6)


@pytest.mark.parity
@settings(max_examples=settings.default.max_examples // 2)
@given(buckets=st.integers(4, 64), factor=st.integers(2, 20), bidirectional=st.booleans())
def test_other_numbers_of_buckets(buckets, factor, bidirectional):
    """But for distances where a bucket begins exactly, which their float32 may round down."""
    import torch
    from transformers.models.t5.modeling_t5 import T5Attention

    most = factor * (buckets // 2)
    distances = np.arange(-300, 300)
    made = nn.relative_buckets(distances, bidirectional, buckets, most)
    wanted = T5Attention._relative_position_bucket(
        torch.tensor(distances), bidirectional, buckets, most
    ).numpy()
    differ = np.flatnonzero(made != wanted)
    one_side = buckets // 2 if bidirectional else buckets
    exact = one_side // 2
    for i in differ:
        place = math.log(abs(distances[i]) / exact) / math.log(most / exact) * (one_side - exact)
        assert place == pytest.approx(round(place), abs=1e-4)
