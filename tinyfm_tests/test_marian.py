"""Marian: the Transformer with other choices, in Hugging Face's folders."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import tinyfm
from tinyfm import InputError, files, models, nn, optim, pretrained
from tinyfm.models import MarianConfig, MarianMTModel, Transformer, TransformerConfig

SIZES = {
    "vocab_size": 50,
    "d_model": 16,
    "max_position_embeddings": 20,
    "pad_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 0,
}
for side in ("encoder", "decoder"):
    SIZES |= {f"{side}_layers": 2, f"{side}_attention_heads": 4, f"{side}_ffn_dim": 32}

BATCH = {
    "input_ids": np.array([[5, 6, 7, 8, 9], [5, 6, 7, 8, 0]]),
    "attention_mask": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]),
    "decoder_input_ids": np.array([[2, 0, 5, 6], [2, 0, 7, 8]]),
}


def marian(seed=0, std=0.3, dtype=np.float64, **changes):
    """A small model with noise on every parameter."""
    tinyfm.manual_seed(seed)
    model = MarianMTModel(MarianConfig(**SIZES | changes)).to(dtype=dtype).eval()
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data = (p.data + std * rng.standard_normal(p.shape)).astype(dtype)
    return model


def names_in_files(layers=2):
    """The keys that transformers saves (parity.md, c)."""
    kinds = ("weight", "bias")
    names = {"model.shared.weight", "final_logits_bias"}
    for side in ("encoder", "decoder"):
        attentions = ["self_attn"] if side == "encoder" else ["self_attn", "encoder_attn"]
        parts = ["fc1", "fc2", "final_layer_norm"] + [f"{x}_layer_norm" for x in attentions]
        parts += [f"{x}.{y}_proj" for x in attentions for y in ("q", "k", "v", "out")]
        places = [f"model.{side}.layers.{i}.{part}" for i in range(layers) for part in parts]
        names |= {f"{place}.{kind}" for place in places for kind in kinds}
    return names


# -- without transformers --------------------------------------------------------------------------


def test_the_golden_vector(tmp_path):
    """Values that transformers gives for a file filled by a rule (parity.md, i)."""
    shapes = {"model.shared.weight": (50, 16), "final_logits_bias": (1, 50)}
    file = {}
    for j, name in enumerate(sorted(names_in_files())):
        width = 32 if ".fc1." in name else 16
        square = (width, 32 if ".fc2." in name else 16)
        norm = "layer_norm" in name or name.endswith("bias")
        shape = shapes.get(name, (width,) if norm else square)
        flat = 0.3 * np.sin(1 + 0.7 * np.arange(np.prod(shape)) + 1.3 * j)
        file[name] = flat.reshape(shape)
    assert len(file) == 86
    config = {"architectures": ["MarianMTModel"], "model_type": "marian", **SIZES}
    config |= {"activation_function": "swish", "scale_embedding": True, "bos_token_id": None}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    files.write_arrays(tmp_path / "model.safetensors", file)
    model = pretrained.load(tmp_path, dtype=np.float64)
    assert type(model) is MarianMTModel
    logits = model(**BATCH).logits.data
    assert logits.sum() == pytest.approx(5.13434106, abs=1e-6)
    assert (logits**2).sum() == pytest.approx(142.68590704, abs=1e-6)
    assert_allclose(logits[0, -1, :3], [0.84564765, 0.89395465, -0.14840078], atol=1e-6)


def test_files_have_the_names_of_transformers(tmp_path):
    model = marian()
    model.save_pretrained(tmp_path)
    file = files.read_arrays(tmp_path / "model.safetensors")
    assert file.keys() == names_in_files()
    assert file["final_logits_bias"].shape == (1, 50)
    cross = model.decoder.layers[1].cross
    name = "model.decoder.layers.1.encoder_attn"
    assert_array_equal(file[f"{name}.v_proj.weight"], cross.kv.weight.data[16:])
    assert_array_equal(file[f"{name}.k_proj.bias"], cross.kv.bias.data[:16])
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert (config["architectures"], config["model_type"]) == (["MarianMTModel"], "marian")
    assert not config.keys() & {"positions", "share_embeddings", "norm_first", "final_logits_bias"}


def test_defaults_are_those_of_the_published_models():
    config = MarianConfig()
    assert config.vocab_size == 58101
    assert config.pad_token_id == config.decoder_start_token_id == 58100
    assert (config.eos_token_id, config.bos_token_id) == (0, None)
    assert (config.d_model, config.max_position_embeddings) == (512, 512)
    for side in ("encoder", "decoder"):
        sizes = [getattr(config, f"{side}_{x}") for x in ("layers", "attention_heads", "ffn_dim")]
        assert sizes == [6, 8, 2048]
    assert (config.activation_function, config.scale_embedding) == ("swish", True)
    assert (config.dropout, config.attention_dropout, config.activation_dropout) == (0.1, 0, 0)


def test_what_it_learns_is_as_much_as_the_base_transformer():
    """63,082,496 for 37,000 words (parity.md, f): the bias on the logits is read, not learned."""
    ids = {"pad_token_id": 0, "decoder_start_token_id": 0}
    config = MarianConfig(vocab_size=37000, **ids)
    assert models.num_parameters(config) == 63_082_496
    model, labels = marian(), np.array([[4, 5], [6, 7]])
    before = model.final_logits_bias.data.copy()
    optimizer = optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    model(BATCH["input_ids"], labels=labels).loss.backward()
    optimizer.step()
    assert model.final_logits_bias.grad is None
    assert_array_equal(model.final_logits_bias.data, before)


def test_initial_values_have_the_std_of_the_config():
    """N(0, 0.02**2), not a normal cut at two of them, whose std is 0.0176 (trap 83)."""
    tinyfm.manual_seed(0)
    model = MarianMTModel(MarianConfig(**SIZES | {"vocab_size": 7000}))
    table = model.embedding.weight.data
    assert not table[0].any()  # the padding row
    assert table[1:].size > 100_000
    assert table[1:].std() == pytest.approx(0.02, rel=0.01)
    for name, p in model.named_parameters():
        if p.ndim == 2:
            assert p.data.std() == pytest.approx(0.02, rel=0.15), name
        elif not name.endswith("norm.weight"):
            assert not p.data.any(), name


@pytest.mark.parametrize("scaled", [True, False])
def test_the_input_of_the_first_layer_is_the_scaled_embedding_plus_sinusoids(scaled):
    """4 E + P for a width of 16 (trap 17), P in halves (trap 16)."""
    model, seen = marian(scale_embedding=scaled), []
    first = model.encoder.layers[0]
    model.encoder.layers[0] = lambda x, *args, **options: seen.append(x.data) or first(x)
    model(**BATCH)
    table, angles = model.embedding.weight.data, np.arange(5)[:, None] / 10000 ** (np.arange(8) / 8)
    positions = np.concatenate([np.sin(angles), np.cos(angles)], 1)
    expected = (4 if scaled else 1) * table[BATCH["input_ids"]] + positions
    assert_allclose(seen[0], expected, atol=1e-14)


def test_the_bias_of_the_logits_counts():
    """50 at the end token: generation ends at once (trap 32); the loss sees it too."""
    model = marian()
    labels = np.array([[2], [2]])
    plain = model(**BATCH).logits.data, model(BATCH["input_ids"], labels=labels).loss.item()
    bias = np.zeros(50)
    bias[2] = 50
    change = bias - model.final_logits_bias.data
    model.final_logits_bias.data = bias
    assert_allclose(model(**BATCH).logits.data, plain[0] + change, atol=1e-12)
    assert model(BATCH["input_ids"], labels=labels).loss.item() < 1e-12 < plain[1]
    made = model.generate(BATCH["input_ids"], BATCH["attention_mask"], max_new_tokens=5)
    assert_array_equal(made, [[0, 2], [0, 2]])


def test_labels_are_shifted_behind_the_padding_token():
    model, labels = marian(), np.array([[5, 6, 2], [7, 2, -100]])
    ids = np.array([[0, 5, 6], [0, 7, 2]])
    implied = model(BATCH["input_ids"], labels=labels).logits.data
    explicit = model(BATCH["input_ids"], decoder_input_ids=ids).logits.data
    assert_allclose(implied, explicit, atol=1e-12)


def test_the_padding_row_learns_from_the_head_alone():
    """Its look-ups give it no gradient, its logit does (trap 71)."""
    model = marian()
    hidden = {}
    decode = model.decode
    model.decode = lambda *args, **options: hidden.setdefault("h", decode(*args, **options))
    output = model(**BATCH, labels=np.array([[5, 6, 7, 2], [8, 9, 2, -100]]))
    hidden["h"].retain_grad()
    output.loss.backward()
    logits, h = output.logits.data, hidden["h"].data
    pad_probability = np.exp(logits[..., 0]) / np.exp(logits).sum(-1)
    pad_probability[1, 3] = 0
    expected = (pad_probability[..., None] * h).sum((0, 1)) / 7
    assert_allclose(model.embedding.weight.grad[0], expected, atol=1e-12)


@pytest.mark.parametrize(
    "change",
    [
        {"share_encoder_decoder_embeddings": False},
        {"tie_word_embeddings": False},
        {"decoder_vocab_size": 49},
    ],
)
def test_separate_tables_are_refused(change, tmp_path):
    marian(dtype=np.float32).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | change), encoding="utf-8")
    with pytest.raises(InputError, match=r"config\.json: .*one table for source, target and outp"):
        pretrained.load(tmp_path)


def test_choices_that_make_a_model_another_one_are_no_options():
    for name in ("positions", "share_embeddings", "final_logits_bias", "norm_first"):
        with pytest.raises(TypeError, match=name):
            MarianConfig(**{name: getattr(MarianConfig(), name)})


def test_what_files_of_other_versions_lack_or_add_is_allowed(tmp_path):
    model = marian(dtype=np.float32)
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    file = files.read_arrays(path)
    del file["final_logits_bias"]
    table, sinusoids = file["model.shared.weight"], nn.sinusoids(20, 16).astype(np.float32)
    for side in ("encoder", "decoder"):
        file[f"model.{side}.embed_tokens.weight"] = table
        file[f"model.{side}.embed_positions.weight"] = sinusoids
    file["lm_head.weight"] = table
    files.write_arrays(path, file)
    opened = pretrained.load(tmp_path)
    assert opened.load_report.missing == ["final_logits_bias"]
    assert sorted(opened.load_report.unexpected) == [
        "model.decoder.embed_positions.weight",
        "model.encoder.embed_positions.weight",
    ]
    model.final_logits_bias.data = np.zeros(50, np.float32)
    assert_allclose(opened(**BATCH).logits.data, model(**BATCH).logits.data, atol=1e-6)


@settings(max_examples=max(1, settings.default.max_examples // 20))
@given(
    seed=st.integers(0, 2**32 - 1),
    width=st.sampled_from([4, 6, 12]),
    activation=st.sampled_from(["relu", "gelu", "swish"]),
    scaled=st.booleans(),
)
def test_a_transformer_becomes_a_marian_model(seed, width, activation, scaled):
    tinyfm.manual_seed(seed)
    changes = {"d_model": width, "decoder_start_token_id": 1, "scale_embedding": scaled}
    heads = {f"{side}_attention_heads": 2 for side in ("encoder", "decoder")}
    config = TransformerConfig(activation_function=activation, **SIZES | changes | heads)
    model = Transformer(config).to(dtype=np.float64).eval()
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data = 0.5 * rng.standard_normal(p.shape)
    other = MarianMTModel.from_transformer(model)
    assert not other.training
    assert_allclose(other(**BATCH).logits.data, model(**BATCH).logits.data, atol=1e-10)
    made = [x.generate(BATCH["input_ids"], BATCH["attention_mask"]) for x in (model, other)]
    assert_array_equal(made[1], made[0])


@pytest.mark.parametrize(
    "change",
    [
        {"positions": "learned"},
        {"positions": "sinusoidal_halves"},
        {"share_embeddings": False},
        {"norm_first": True},
    ],
)
def test_a_transformer_of_another_kind_does_not_become_one(change):
    with pytest.raises(ValueError, match="a Marian model has sinusoidal positions, one table"):
        MarianMTModel.from_transformer(Transformer(TransformerConfig(**SIZES | change)))


def test_a_bias_of_the_logits_goes_along():
    model = Transformer(TransformerConfig(**SIZES, final_logits_bias=True)).eval()
    model.final_logits_bias.data = np.arange(50, dtype=np.float32)
    other = MarianMTModel.from_transformer(model)
    assert_allclose(other(**BATCH).logits.data, model(**BATCH).logits.data, atol=1e-4)


def test_options_of_generate_in_an_older_config_are_followed_and_kept(tmp_path):
    """Folders from before generation_config.json have them in config.json (parity.md, c)."""
    model, source = marian(), BATCH["input_ids"]
    model.save_pretrained(tmp_path)
    options = {"num_beams": 3, "bad_words_ids": [[9], [4]], "max_length": 12, "min_length": 6}
    path = tmp_path / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | options), encoding="utf-8")
    wanted = model.generate(source, **options)
    assert wanted.shape != model.generate(source).shape
    for _ in range(2):
        opened = pretrained.load(tmp_path, dtype=np.float64)
        assert_array_equal(opened.generate(source), wanted)
        opened.save_pretrained(tmp_path)
    path.write_text(json.dumps(config | {"num_beams": 0}), encoding="utf-8")
    (tmp_path / "generation_config.json").unlink()
    with pytest.raises(InputError, match=r"config\.json: num_beams is 0: it must be at least 1"):
        pretrained.load(tmp_path)


# -- beside transformers ---------------------------------------------------------------------------


@st.composite
def configs(draw):
    """Fields of a Marian config, as small as they may be."""
    ids = st.integers(0, 12)
    fields = {
        "vocab_size": draw(st.integers(13, 40)),
        "max_position_embeddings": draw(st.integers(8, 20)),
        "activation_function": draw(st.sampled_from(["swish", "silu", "relu", "gelu", "gelu_new"])),
        "scale_embedding": draw(st.booleans()),
        "dropout": draw(st.sampled_from([0.0, 0.3])),
        "attention_dropout": draw(st.sampled_from([0.0, 0.2])),
        "activation_dropout": draw(st.sampled_from([0.0, 0.1])),
        "init_std": draw(st.sampled_from([0.02, 0.5])),
        "forced_eos_token_id": draw(st.none() | ids),
        **{f"{name}_token_id": draw(ids) for name in ("pad", "eos", "decoder_start")},
    }
    head_dim, heads = draw(st.integers(1, 4)), [draw(st.sampled_from([1, 2, 4])) for _ in range(2)]
    fields["d_model"] = head_dim * 4
    for side, number in zip(("encoder", "decoder"), heads, strict=True):
        fields[f"{side}_attention_heads"] = number
        fields[f"{side}_layers"] = draw(st.integers(1, 3))
        fields[f"{side}_ffn_dim"] = draw(st.integers(1, 9))
    return fields


def theirs(fields, seed):
    """A model of transformers in float64, with noise on every parameter."""
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model = transformers.MarianMTModel(transformers.MarianConfig(**fields)).double().eval()
    generator = torch.Generator().manual_seed(seed)
    learned = dict(model.named_parameters()) | {"final_logits_bias": model.final_logits_bias}
    with torch.no_grad():
        for name, p in learned.items():
            if "embed_positions" not in name:
                p.copy_(0.3 * torch.randn(p.shape, generator=generator, dtype=torch.float64))
    return model


def reopened(folder):
    import torch
    import transformers

    model, info = transformers.MarianMTModel.from_pretrained(
        folder, dtype=torch.float64, output_loading_info=True
    )
    assert not any(info.values()), info
    return model.eval()


def random_batch(vocab, pad, seed):
    """Sources padded right and left and with a hole; labels with -100; a padded target."""
    rng, rows, source, target = np.random.default_rng(seed), 3, 7, 5
    mask = rng.random((rows, source)) < 0.7
    mask[np.arange(rows), rng.integers(0, source, rows)] = True
    labels = rng.integers(0, vocab, (rows, target))
    labels[rng.random((rows, target)) < 0.3] = -100
    labels[0, 0] = 3
    short = [1] * (target - 2) + [0] * 2
    return {
        "input_ids": np.where(mask, rng.integers(0, vocab, (rows, source)), pad),
        "attention_mask": mask.astype(int),
        "decoder_input_ids": rng.integers(0, vocab, (rows, target)),
        "decoder_attention_mask": np.array([[1] * target, short, [1] * target]),
        "labels": labels,
    }


def tensors(batch):
    import torch

    return {name: torch.tensor(x) for name, x in batch.items()}


@pytest.mark.parity
@settings(max_examples=max(1, settings.default.max_examples // 4))
@given(fields=configs(), seed=st.integers(0, 2**32 - 1))
def test_models_of_transformers_open_and_go_back(fields, seed, tmp_path_factory):
    """Logits, loss and every gradient in float64; their sinusoids are float32, hence 1e-8."""
    folder, other = tmp_path_factory.mktemp("marian"), theirs(fields, seed)
    other.save_pretrained(folder / "theirs")
    model = pretrained.load(folder / "theirs", dtype=np.float64)
    assert type(model) is MarianMTModel and not model.training
    assert model.load_report == ([], [], [])
    assert {name: getattr(model.config, name) for name in fields} == fields
    batch = random_batch(fields["vocab_size"], fields["pad_token_id"], seed)
    wanted = other(**tensors(batch), use_cache=False)
    got = model(**batch)
    valid = batch["decoder_attention_mask"].astype(bool)
    assert_allclose(got.logits.data[valid], wanted.logits.detach().numpy()[valid], atol=1e-8)
    counted = np.where(valid, batch["labels"], -100)  # rows that see nothing differ by design
    wanted = other(**tensors(batch | {"labels": counted}), use_cache=False)
    got = model(**batch | {"labels": counted})
    assert got.loss.item() == pytest.approx(wanted.loss.item(), abs=1e-8)
    wanted.loss.backward()
    got.loss.backward()
    entries, grads = model.entries(), dict(other.named_parameters())
    for own, p in model.named_parameters():
        if p.requires_grad:
            for name, part in zip(entries[own].files, entries[own].split(p.grad), strict=True):
                assert_allclose(part, grads[name].grad.numpy(), atol=1e-8)
    model.save_pretrained(folder / "ours")
    back = reopened(folder / "ours")
    logits = [x(**tensors(batch)).logits.detach().numpy() for x in (back, other)]
    assert_allclose(logits[0], logits[1], atol=1e-12)
    assert {name: getattr(back.config, name) for name in fields} == fields


@pytest.mark.parity
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_transformer_of_tinyfm_opens_in_transformers(activation, tmp_path):
    tinyfm.manual_seed(0)
    config = TransformerConfig(activation_function=activation, **SIZES)
    model = Transformer(config).to(dtype=np.float64).eval()
    rng = np.random.default_rng(0)
    for p in model.parameters():
        p.data = 0.5 * rng.standard_normal(p.shape)
    MarianMTModel.from_transformer(model).save_pretrained(tmp_path)
    logits = reopened(tmp_path)(**tensors(BATCH)).logits.detach().numpy()
    assert_allclose(logits, model(**BATCH).logits.data, atol=1e-7)
