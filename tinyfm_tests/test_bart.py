"""BART: values, counts, labels, heads, translation, folders; and beside transformers.

Gradients of all its classes by finite differences are in test_nn.py.
"""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import tinyfm
from tinyfm import InputError, files, models, optim, pretrained, training
from tinyfm.models import BartConfig, BartForConditionalGeneration, BartForTranslation

SIZES = {"vocab_size": 50, "d_model": 16, "max_position_embeddings": 20}
for side in ("encoder", "decoder"):
    SIZES |= {f"{side}_layers": 2, f"{side}_attention_heads": 4, f"{side}_ffn_dim": 32}
HEADS = ["Model", "ForConditionalGeneration", "ForSequenceClassification", "ForQuestionAnswering"]
each_head = pytest.mark.parametrize("head", HEADS)

BATCH = {
    "input_ids": np.array([[5, 6, 7, 8, 9], [5, 6, 7, 8, 1]]),
    "attention_mask": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]),
    "decoder_input_ids": np.array([[2, 0, 5, 6], [2, 0, 7, 8]]),
}
# A batch with two end tokens a row, and one row padded.
TEXTS = {
    "input_ids": np.array([[0, 5, 2, 6, 7, 2], [0, 8, 2, 2, 1, 1]]),
    "attention_mask": np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]]),
}


def noisy(model, seed=0, std=0.3, dtype=np.float64):
    """The model in evaluation mode with noise on every parameter."""
    rng = np.random.default_rng(seed)
    for p in model.to(dtype=dtype).eval().parameters():
        p.data = (p.data + std * rng.standard_normal(p.shape)).astype(dtype)
    return model


def bart(head="ForConditionalGeneration", seed=0, dtype=np.float64, **changes):
    tinyfm.manual_seed(seed)
    return noisy(getattr(models, f"Bart{head}")(BartConfig(**SIZES | changes)), seed, dtype=dtype)


def results(output):
    """The arrays that a task is about, by name."""
    names = ("last_hidden_state", "logits", "start_logits", "end_logits")
    return {name: getattr(output, name).data for name in names if hasattr(output, name)}


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), encoding="utf-8")


# -- values ----------------------------------------------------------------------------------------


def test_the_golden_vector(tmp_path):
    """Values that transformers gives for a file filled by a rule (parity.md, i)."""
    bart().save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    file = {
        key: 0.3 * np.sin(1 + 0.7 * np.arange(x.size).reshape(x.shape) + 1.3 * j)
        for j, (key, x) in enumerate(sorted(files.read_arrays(path).items()))
    }
    assert len(file) == 92
    files.write_arrays(path, file)
    logits = pretrained.load(tmp_path, dtype=np.float64)(**BATCH).logits.data
    assert logits.sum() == pytest.approx(1.33160663, abs=1e-8)
    assert (logits**2).sum() == pytest.approx(133.95454451, abs=1e-7)
    assert_allclose(logits[0, -1, :3], [0.13626514, -0.47862356, 0.00370162], atol=1e-8)


@pytest.mark.parametrize(
    "config, name, count",
    [
        (BartConfig.base(), "BartForConditionalGeneration", 139_420_416),
        (BartConfig.base(), "BartModel", 139_420_416),
        (BartConfig.large(), "BartForConditionalGeneration", 406_291_456),
        (BartConfig.large(vocab_size=50264), "BartForConditionalGeneration", 406_290_432),
        (BartConfig.large(), "BartForSequenceClassification", 407_344_131),
    ],
)
def test_the_counts_of_the_published_sizes(config, name, count):
    """parity.md, f; the last one is the model of entailment, with three classes."""
    assert models.num_parameters(config, getattr(models, name)) == count


def test_a_config_alone_stands_for_the_model_without_a_head():
    assert models.num_parameters(BartConfig.base()) == 139_420_416
    assert pretrained.class_of(BartConfig()) is models.BartModel


def test_the_ids_of_the_published_vocabulary():
    for config in (BartConfig(), BartConfig.base(), BartConfig.large()):
        ids = [getattr(config, f"{name}_token_id") for name in ("bos", "pad", "eos")]
        assert ids == [0, 1, 2]
        assert (config.decoder_start_token_id, config.forced_eos_token_id) == (2, 2)
        assert (config.vocab_size, config.max_position_embeddings) == (50265, 1024)
    assert BartConfig().forced_bos_token_id is None
    assert BartConfig.base().forced_bos_token_id == BartConfig.large().forced_bos_token_id == 0


@pytest.mark.parametrize("more, forced", [({}, 0), ({"bos_token_id": 7}, 7)])
def test_an_older_name_of_the_first_token(more, forced, tmp_path):
    BartForConditionalGeneration(BartConfig(**SIZES)).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    values = json.loads(path.read_text(encoding="utf-8")) | more
    for told in ({}, {"force_bos_token_to_be_generated": False}):
        path.write_text(json.dumps(values | told), encoding="utf-8")
        assert pretrained.load(tmp_path).config.forced_bos_token_id is None
    path.write_text(json.dumps(values | {"force_bos_token_to_be_generated": True}))
    model = pretrained.load(tmp_path)
    assert model.config.forced_bos_token_id == forced
    made = model.generate([[5, 6]], [[1, 1]], max_new_tokens=3)
    assert made[0, 1] == forced
    path.write_text(
        json.dumps(values | {"force_bos_token_to_be_generated": True, "forced_bos_token_id": 9})
    )
    assert pretrained.load(tmp_path).config.forced_bos_token_id == 9


def test_a_source_without_a_token_is_named():
    model = BartForConditionalGeneration(BartConfig(**SIZES))
    with pytest.raises(ValueError, match="input_ids has no token: give each source one"):
        model.generate(np.zeros((2, 0), int), max_new_tokens=2)


def test_there_are_three_classes_unless_the_config_says_so():
    assert BartConfig().num_labels == 3
    assert BartConfig(num_labels=5).num_labels == 5
    assert BartConfig(id2label={0: "no", 1: "yes"}).num_labels == 2


def test_initial_values_have_the_std_of_the_config():
    tinyfm.manual_seed(0)
    model = BartForConditionalGeneration(BartConfig(**SIZES | {"vocab_size": 7000}))
    table = model.embedding.weight.data
    assert not table[1].any() and table[2:].std() == pytest.approx(0.02, rel=0.01)
    for name, p in model.named_parameters():
        if p.ndim == 2:
            assert p.data.std() == pytest.approx(0.02, rel=0.15), name
        else:
            norm = name.endswith("norm.weight")
            assert (p.data == norm).all(), name


@pytest.mark.parametrize("scaled", [False, True])
def test_r74_the_first_layers_get_the_normed_sum_of_words_and_positions_from_row_2_on(scaled):
    """Traps 17, 29 and 30, in both stacks, each with its own table and norm."""
    model, seen = bart(scale_embedding=scaled), []
    for stack in (model.encoder, model.decoder):
        layer = stack.layers[0]
        stack.layers[0] = lambda x, *args, _layer=layer, **options: (
            seen.append(x.data) or _layer(x, *args, **options)
        )
    model(**BATCH)
    table = (4 if scaled else 1) * model.embedding.weight.data
    stacks = ("encoder", "input_ids"), ("decoder", "decoder_input_ids")
    for x, (side, name) in zip(seen, stacks, strict=True):
        positions = getattr(model, f"{side}_positions").weight.data
        assert positions.shape == (22, 16)
        total = table[BATCH[name]] + positions[2 : 2 + x.shape[1]]
        centred = total - total.mean(-1, keepdims=True)
        normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        norm = getattr(model, f"{side}_embedding_norm")
        assert_allclose(x, normed * norm.weight.data + norm.bias.data, atol=1e-12)


def test_r74_cached_steps_use_rows_2_3_4():
    """A gradient tells which rows of the table took part."""
    model, ids = bart(), BATCH["decoder_input_ids"]
    caches = model.decoder.caches(2, 3, 5)
    mask = model._padding(BATCH["attention_mask"])
    memory = model.encode(BATCH["input_ids"], mask)
    for step in range(3):
        hidden = model.decode(ids[:, step : step + 1], memory, mask, caches=caches)
    hidden.sum().backward()
    reached = (model.decoder_positions.weight.grad != 0).any(1)
    assert reached.nonzero()[0].tolist() == [2, 3, 4]


def test_a_text_may_be_as_long_as_there_are_positions():
    model = bart()
    model(np.full((1, 20), 5))
    with pytest.raises(ValueError, match="position 20 is asked for, and 20 are learned"):
        model(np.full((1, 21), 5))


def test_trap_31_padding_on_the_left_moves_the_positions():
    """As in transformers: the source of BART is padded on the right."""
    model, target = bart(), BATCH["decoder_input_ids"][:1]
    alone = model(np.array([[5, 6, 7]]), None, target).logits.data
    right = model(np.array([[5, 6, 7, 1]]), np.array([[1, 1, 1, 0]]), target).logits.data
    left = model(np.array([[1, 5, 6, 7]]), np.array([[0, 1, 1, 1]]), target).logits.data
    assert_allclose(right, alone, atol=1e-12)
    assert np.abs(left - alone).max() > 1e-2


# -- labels and generation -------------------------------------------------------------------------


def test_r64_labels_are_shifted_behind_the_end_token():
    """Traps 33 and 34: the target begins with <s>, and no -100 reaches the decoder."""
    model, labels = bart(), np.array([[0, 10, 11, 2], [0, 12, 2, -100]])
    implied = model(BATCH["input_ids"], labels=labels)
    ids = np.array([[2, 0, 10, 11], [2, 0, 12, 2]])
    logits = model(BATCH["input_ids"], decoder_input_ids=ids).logits.data
    assert_allclose(implied.logits.data, logits, atol=1e-12)
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    counted = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2)]
    wanted = -np.mean([logs[i, t, labels[i, t]] for i, t in counted])
    assert implied.loss.item() == pytest.approx(wanted, rel=1e-12)
    assert_array_equal(model._shifted(np.array([[0, 12, -100, 5]])), [[2, 0, 12, 1]])


@each_head
def test_without_a_target_the_decoder_reads_the_source_shifted_right(head):
    model = bart(head)
    shifted = np.array([[2, 0, 5, 2, 6, 7], [2, 0, 8, 2, 2, 1]])
    implied, explicit = model(**TEXTS), model(**TEXTS, decoder_input_ids=shifted)
    for name, x in results(implied).items():
        assert_allclose(x, results(explicit)[name], atol=1e-12)


def test_trap_32_the_bias_of_the_logits_counts():
    model, bias = bart(), np.zeros(50)
    bias[2] = 50
    model.final_logits_bias.data = bias
    assert not model.final_logits_bias.requires_grad
    made = model.generate(BATCH["input_ids"], BATCH["attention_mask"], max_new_tokens=5)
    assert_array_equal(made, [[2, 2], [2, 2]])
    made = model.generate(BATCH["input_ids"], min_length=4, max_new_tokens=8)  # trap 65
    assert (made[:, [0, 4]] == 2).all() and (made[:, 1:4] != 2).all() and made.shape == (2, 5)


@pytest.mark.parametrize("beams", [1, 3])
def test_r64_generation_begins_and_ends_as_the_config_forces_it(beams):
    model = bart(forced_bos_token_id=0)
    made = model.generate(BATCH["input_ids"], num_beams=beams, min_length=30, max_length=7)
    assert made.shape == (2, 7)
    assert (made[:, [0, 1, -1]] == [2, 0, 2]).all()


def test_options_of_summaries_in_an_older_config_are_followed(tmp_path):
    """What the config of bart-large-cnn says; task_specific_params is for others (parity.md, c)."""
    model = bart()
    model.save_pretrained(tmp_path)
    options = {
        "num_beams": 4, "length_penalty": 2.0, "max_length": 14, "min_length": 9,
        "no_repeat_ngram_size": 3, "early_stopping": True, "forced_bos_token_id": 0,
    }  # fmt: skip
    other = {"summarization": {"num_beams": 1, "max_length": 4}}
    change_config(tmp_path, **options, task_specific_params=other, add_bias_logits=False)
    opened = pretrained.load(tmp_path, dtype=np.float64)
    assert options.items() <= opened.generation_config.items()
    wanted = model.generate(BATCH["input_ids"], BATCH["attention_mask"], **options)
    made = opened.generate(BATCH["input_ids"], BATCH["attention_mask"])
    assert_array_equal(made, wanted)
    assert 9 <= made.shape[1] <= 14 and (made[:, 1] == 0).all()


# -- heads -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row, place", [([0, 5, 2, 6, 2], 4), ([0, 5, 2, 1, 1], 2), ([2, 5, 6, 7, 8], 0)]
)
def test_trap_35_a_text_is_classified_at_its_last_end_token(row, place):
    model, ids = bart("ForSequenceClassification", num_labels=4), np.array([row])
    output = model(ids)
    head, vector = model.classification_head, output.last_hidden_state.data[0, place]
    inner = np.tanh(head.dense.weight.data @ vector + head.dense.bias.data)
    wanted = head.out_proj.weight.data @ inner + head.out_proj.bias.data
    assert_allclose(output.logits.data, [wanted], atol=1e-12)


@pytest.mark.parametrize(
    "rows, says",
    [
        ([[0, 5, 2, 2], [0, 5, 6, 2]], r"text 1 has 1 end tokens \(2\), and text 0 has 2: each "),
        ([[0, 5, 6, 7], [0, 6, 5, 7]], r"text 0 has 0 end tokens \(2\), and text 0 has 0: each "),
    ],
)
def test_trap_35_texts_need_as_many_end_tokens_and_at_least_one(rows, says):
    with pytest.raises(ValueError, match=says):
        bart("ForSequenceClassification")(np.array(rows))


def test_padding_changes_no_class_and_no_answer():
    for head in ("ForSequenceClassification", "ForQuestionAnswering"):
        model = bart(head)
        whole, alone = model(**TEXTS), model(TEXTS["input_ids"][1:, :4])
        for name, x in results(alone).items():
            wide = results(whole)[name][1:]
            assert_allclose(wide[:, :4], x, atol=1e-12)


def test_one_label_is_a_number_to_be_predicted():
    model, numbers = bart("ForSequenceClassification", num_labels=1), np.array([0.5, 2.0])
    output = model(**TEXTS, labels=numbers)
    wanted = np.mean((output.logits.data[:, 0] - numbers) ** 2)
    assert output.loss.item() == pytest.approx(wanted, rel=1e-12) and output.num_labels == 2


def test_dropout_of_the_classifier_comes_before_both_products():
    config = BartConfig(**SIZES, dropout=0.0, classifier_dropout=0.5)
    head = models.BartForSequenceClassification(config).classification_head
    assert head.dropout.p == 0.5
    seen = []
    head.dropout = lambda x: seen.append(x.shape) or x
    head(tinyfm.tensor(np.ones((2, 16), np.float32)))
    assert seen == [(2, 16), (2, 16)]


# -- translation (section 3.4) ---------------------------------------------------------------------

FOREIGN = {
    "input_ids": np.array([[60, 3, 61, 5], [4, 62, 2, 1]]),
    "attention_mask": np.array([[1, 1, 1, 1], [1, 1, 1, 0]]),
    "labels": np.array([[0, 10, 11, 2], [0, 12, 2, -100]]),
}


@pytest.fixture
def translator(tmp_path):
    """A new source encoder of 70 words on a BART out of a folder."""
    bart(dtype=np.float32).save_pretrained(tmp_path)
    tinyfm.manual_seed(1)
    return BartForTranslation.from_pretrained(tmp_path, source_vocab_size=70, source_layers=1)


def changed_by_training(model):
    """The names of the parameters that two steps of training.fit change."""
    before = {name: x.copy() for name, x in model.state_dict().items()}
    optimizer = optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    training.fit(model, [FOREIGN] * 2, optimizer, optim.constant(), steps=2, progress=False)
    after = model.state_dict()
    return {name for name in before if not np.array_equal(before[name], after[name])}


def test_the_source_encoder_is_new_and_the_rest_is_the_files(translator):
    assert translator.load_report.missing == [] and translator.load_report.new
    assert all(name.startswith("source.") for name in translator.load_report.new)
    state = bart(dtype=np.float32).state_dict()
    learnt = translator.state_dict()
    assert {name for name in learnt if name not in state} == {
        name for name in learnt if name.startswith("source.")
    }
    for name, x in state.items():
        assert_array_equal(learnt[name], x)
    assert translator.source.embedding.weight.shape == (70, 16)


def test_step_one_trains_the_source_encoder_positions_and_the_first_input_projection(translator):
    changed = changed_by_training(translator.learn_source())
    source = {name for name in translator.state_dict() if name.startswith("source.")}
    projection = {f"encoder.layers.0.attention.qkv.{kind}" for kind in ("weight", "bias")}
    positions = {f"{side}_positions.weight" for side in ("encoder", "decoder")}
    assert changed == source | projection | positions


def test_step_two_trains_everything(translator):
    translator.learn_source()
    changed = changed_by_training(translator.learn_all())
    words = {"embedding.weight"}  # the target's, of which the decoder and the head learn
    assert words < changed == translator.state_dict().keys() - {"final_logits_bias"}


def test_the_encoder_gets_what_the_source_encoder_says_in_the_place_of_embeddings(translator):
    """LN(source + P), as LN(E + P) before."""
    model, seen = noisy(translator), []
    first = model.encoder.layers[0]
    model.encoder.layers[0] = lambda x, *args, **options: seen.append(x.data) or first(x, *args)
    model(**FOREIGN)
    words = model.source(FOREIGN["input_ids"], model._padding(FOREIGN["attention_mask"])).data
    total = words + model.encoder_positions.weight.data[2:6]
    centred = total - total.mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    norm = model.encoder_embedding_norm
    assert_allclose(seen[0], normed * norm.weight.data + norm.bias.data, atol=1e-12)


def test_r22_padding_of_the_foreign_text_changes_nothing_and_order_does(translator):
    model = noisy(translator)
    target = FOREIGN["labels"][1:, :3]
    padded = model(FOREIGN["input_ids"][1:], FOREIGN["attention_mask"][1:], labels=target)
    alone = model(FOREIGN["input_ids"][1:, :3], labels=target)
    assert_allclose(padded.logits.data, alone.logits.data, atol=1e-12)
    model.encoder_positions.weight.data = np.zeros((22, 16))  # BART's; the source has its own
    losses = [model(np.array([ids]), labels=target).loss.item() for ids in ([4, 62, 2], [62, 4, 2])]
    assert abs(losses[0] - losses[1]) > 1e-6


def test_a_translator_generates_and_comes_back_from_its_folder(translator, tmp_path):
    model = noisy(translator)
    folder = tmp_path / "translator"
    model.save_pretrained(folder)
    other = pretrained.load(folder, dtype=np.float64)
    assert type(other) is BartForTranslation and other.config == model.config
    assert other.load_report == ([], [], [])
    source = FOREIGN["input_ids"], FOREIGN["attention_mask"]
    made = model.generate(*source, num_beams=2, max_new_tokens=6)
    assert_array_equal(other.generate(*source, num_beams=2, max_new_tokens=6), made)
    assert_array_equal(
        model.generate(*source, num_beams=2, max_new_tokens=6, use_cache=False), made
    )
    with pytest.raises(ValueError, match="BartForTranslation: give decoder_input_ids or labels"):
        model(FOREIGN["input_ids"])


def test_the_size_of_the_foreign_vocabulary_has_to_be_given(tmp_path):
    bart(dtype=np.float32).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"config\.json: source_vocab_size is missing: give the"):
        BartForTranslation.from_pretrained(tmp_path)


# -- folders ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [{}, {"num_labels": 2}, {"id2label": {0: "no", 1: "yes"}}])
def test_two_classes_without_names_are_counted_in_the_head(asked, tmp_path):
    """transformers writes no names for two, and takes the absence of names for three."""
    bart("ForSequenceClassification", num_labels=2).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text("utf-8"))
    config = {name: x for name, x in config.items() if name not in ("num_labels", "id2label")}
    path.write_text(json.dumps(config), encoding="utf-8")
    model = models.BartForSequenceClassification.from_pretrained(tmp_path, **asked)
    assert model.config.num_labels == 2 and not model.load_report.new
    with pytest.raises(InputError, match=r"out_proj.weight is \(2, 16\) instead of \(5, 16\)"):
        models.BartForSequenceClassification.from_pretrained(tmp_path, num_labels=5)


@each_head
def test_a_folder_gives_the_model_back(head, tmp_path):
    model = bart(head)
    model.save_pretrained(tmp_path)
    other = pretrained.load(tmp_path, dtype=np.float64)
    assert type(other) is type(model) and other.config == model.config
    assert other.load_report == ([], [], [])
    for name, x in results(model(**TEXTS)).items():
        assert_allclose(results(other(**TEXTS))[name], x, atol=1e-12)
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    assert (config["architectures"], config["model_type"]) == ([f"Bart{head}"], "bart")
    assert not config.keys() & {"positions", "share_embeddings", "norm_first", "final_logits_bias"}


def with_copies(file):
    table = file["model.shared.weight"]
    names = ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    return file | {f"{name}.weight": table for name in names}


def without_shared(file):
    file = with_copies(file)
    del file["model.shared.weight"], file["model.decoder.embed_tokens.weight"]
    return file


VERSION = np.full(1, 3, np.float32)
FILES = {
    "no prefix": lambda file: {n.removeprefix("model."): x for n, x in file.items()},
    "tied copies": with_copies,
    "no shared": without_shared,
    "no prefix, no shared": lambda file: {
        n.removeprefix("model."): x for n, x in without_shared(file).items()
    },
    "version": lambda file: file | {"model.encoder.version": VERSION},
    "version, no prefix": lambda file: FILES["no prefix"](file) | {"encoder.version": VERSION},
    "no bias": lambda file: {n: x for n, x in file.items() if n != "final_logits_bias"},
    "a task": lambda file: file | {"classification_head.dense.bias": VERSION},
}


@pytest.mark.parametrize("change", FILES)
def test_r67_files_of_other_versions_open(change, tmp_path):
    """Trap 73 among them; the tied tables are one object."""
    model = bart(dtype=np.float32)
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    files.write_arrays(path, FILES[change](files.read_arrays(path)))
    other = pretrained.load(tmp_path)
    assert other.load_report.missing == (["final_logits_bias"] if change == "no bias" else [])
    assert other.head is other.embedding is other.decoder_embedding
    logits = model(**BATCH).logits.data
    if change == "no bias":
        logits = logits - model.final_logits_bias.data
    assert_allclose(other(**BATCH).logits.data, logits, atol=1e-5)


def test_copies_that_differ_are_refused(tmp_path):
    bart(dtype=np.float32).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    file = with_copies(files.read_arrays(path))
    files.write_arrays(path, file | {"lm_head.weight": file["lm_head.weight"] + 1})
    with pytest.raises(InputError, match=r"weight and model\.shared\.weight must be equal"):
        pretrained.load(tmp_path)
    change_config(tmp_path, tie_word_embeddings=False)
    with pytest.raises(InputError, match="tie_word_embeddings is False: the head is always the"):
        pretrained.load(tmp_path)


@pytest.mark.parametrize("head", HEADS[2:])
def test_r70_a_task_is_put_on_a_pretrained_model_and_alone_is_new(head, tmp_path):
    base = bart(dtype=np.float32)
    base.save_pretrained(tmp_path)
    model = getattr(models, f"Bart{head}").from_pretrained(tmp_path)
    new = {"ForSequenceClassification": "classification_head", "ForQuestionAnswering": "qa_outputs"}
    report = model.load_report
    assert report.new and {name.split(".")[0] for name in report.new} == {new[head]}
    assert (report.missing, report.unexpected) == ([], ["final_logits_bias"])
    state = model.state_dict()
    for name, x in base.state_dict().items():
        if name != "final_logits_bias":
            assert_array_equal(state[name], x)


def test_the_body_opens_from_a_folder_with_a_head_and_the_other_way_round(tmp_path):
    model = bart()
    model.save_pretrained(tmp_path)
    body = models.BartModel.from_pretrained(tmp_path, np.float64)
    hidden = model(**BATCH).last_hidden_state.data
    assert_allclose(body(**BATCH).last_hidden_state.data, hidden, atol=1e-12)
    body.save_pretrained(tmp_path)
    assert "shared.weight" in files.read_arrays(tmp_path / "model.safetensors")
    again = BartForConditionalGeneration.from_pretrained(tmp_path, np.float64)
    assert again.load_report.missing == ["final_logits_bias"]
    assert_allclose(again(**BATCH).last_hidden_state.data, hidden, atol=1e-12)
    with pytest.raises(NotImplementedError, match="BartModel does not generate"):
        body.generate(BATCH["input_ids"], max_new_tokens=3)


def test_choices_that_make_a_model_another_one_are_no_options():
    for name in ("positions", "share_embeddings", "final_logits_bias", "norm_first"):
        with pytest.raises(TypeError, match=name):
            BartConfig(**{name: getattr(BartConfig(), name)})


# -- beside transformers ---------------------------------------------------------------------------


@st.composite
def configs(draw):
    """Fields of a BART config, as small as they may be."""
    fields = {
        "vocab_size": draw(st.integers(13, 40)),
        "max_position_embeddings": draw(st.integers(8, 20)),
        "activation_function": draw(st.sampled_from(["gelu", "relu", "gelu_new"])),
        "scale_embedding": draw(st.booleans()),
        "init_std": draw(st.sampled_from([0.02, 0.5])),
        "classifier_dropout": draw(st.sampled_from([0.0, 0.3])),
        "num_labels": draw(st.sampled_from([1, 2, 3, 5])),
        "forced_eos_token_id": draw(st.none() | st.integers(0, 12)),
        "pad_token_id": draw(st.sampled_from([0, 1, 3])),
        "decoder_start_token_id": draw(st.integers(0, 12)),
    }
    head_dim, heads = draw(st.integers(1, 4)), [draw(st.sampled_from([1, 2, 4])) for _ in range(2)]
    fields["d_model"] = head_dim * 4
    for side, number in zip(("encoder", "decoder"), heads, strict=True):
        fields[f"{side}_attention_heads"] = number
        fields[f"{side}_layers"] = draw(st.integers(1, 3))
        fields[f"{side}_ffn_dim"] = draw(st.integers(1, 9))
    return fields


def theirs(name, fields, seed):
    """A model of transformers in float64 with random values in every parameter and buffer."""
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    config = transformers.BartConfig(**fields)
    model = getattr(transformers, name)(config).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in (*model.parameters(), *model.buffers()):
            p.copy_(0.3 * torch.randn(p.shape, generator=generator, dtype=torch.float64))
    return model


def random_batch(head, fields, seed):
    """Sources padded on the right and on the left, with two end tokens each; S != T; labels."""
    rng, vocab = np.random.default_rng(seed), fields["vocab_size"]
    mask = np.array([[1] * 7, [1] * 5 + [0] * 2, [0] + [1] * 6])
    ids = rng.integers(4, vocab, (3, 7))
    ids[np.arange(3), rng.integers(1, 4, 3)] = 2
    ids[:, 4] = 2
    inputs = {"input_ids": np.where(mask, ids, fields["pad_token_id"]), "attention_mask": mask}
    if head in ("Model", "ForConditionalGeneration"):
        inputs["decoder_input_ids"] = rng.integers(0, vocab, (3, 5))
        inputs["decoder_attention_mask"] = np.array([[1] * 5, [1] * 3 + [0] * 2, [1] * 5])
    words = np.where(rng.random((3, 5)) < 0.3, -100, rng.integers(0, vocab, (3, 5)))
    words[0, 0], words[1, 3:] = 3, -100  # rows that see nothing differ by design
    number = fields["num_labels"] == 1
    labels = {
        "Model": {},
        "ForConditionalGeneration": {"labels": words},
        "ForSequenceClassification": {
            "labels": rng.standard_normal(3) if number else rng.integers(0, fields["num_labels"], 3)
        },
        "ForQuestionAnswering": {
            "start_positions": np.array([1, 3, 9]),
            "end_positions": np.array([3, 4, 2]),
        },
    }[head]
    return inputs, labels


def tensors(batch):
    import torch

    return {name: torch.tensor(x) for name, x in batch.items()}


@pytest.mark.parity
@each_head
@settings(max_examples=max(1, settings.default.max_examples // 10))
@given(fields=configs(), seed=st.integers(0, 2**32 - 1))
def test_models_of_transformers_open_and_go_back(head, fields, seed, tmp_path_factory):
    """Every output, the loss and every gradient, in float64; and their own reading of our file."""
    import torch
    import transformers

    folder, name = tmp_path_factory.mktemp("bart"), f"Bart{head}"
    other = theirs(name, fields, seed)
    other.save_pretrained(folder / "theirs")
    model = pretrained.load(folder / "theirs", dtype=np.float64)
    assert type(model).__name__ == name and model.load_report == ([], [], [])
    same = fields.keys() - ({"num_labels"} if head != "ForSequenceClassification" else set())
    assert all(getattr(model.config, key) == fields[key] for key in same)
    inputs, labels = random_batch(head, fields, seed)
    got, wanted = model(**inputs, **labels), other(**tensors(inputs | labels), use_cache=False)
    seen = inputs.get("decoder_attention_mask", np.ones((3, 7))) == 1

    def valid(x):
        return x[seen] if x.shape[:2] == seen.shape else x

    compared = results(got).keys() & wanted.keys()
    assert compared
    for key in compared:
        assert_allclose(
            valid(results(got)[key]), valid(wanted[key].detach().numpy()), atol=1e-12, rtol=1e-11
        )
    if labels:
        assert got.loss.item() == pytest.approx(wanted.loss.item(), abs=1e-10)
        got.loss.backward()
        wanted.loss.backward()
        entries, grads = model.entries(), dict(other.named_parameters())
        for own, p in model.named_parameters():
            if p.requires_grad:
                for key, part in zip(entries[own].files, entries[own].split(p.grad), strict=True):
                    assert_allclose(part, grads[key].grad.numpy(), atol=1e-10, rtol=1e-9)
    model.save_pretrained(folder / "ours")
    back, info = getattr(transformers, name).from_pretrained(
        folder / "ours", dtype=torch.float64, output_loading_info=True
    )
    assert not any(info.values()), info
    again = back.eval()(**tensors(inputs), use_cache=False)
    for key in compared:
        assert_allclose(again[key].detach().numpy(), wanted[key].detach().numpy(), atol=1e-12)
    assert all(getattr(back.config, key) == fields[key] for key in same - {"forced_eos_token_id"})
    if head == "ForConditionalGeneration":
        assert back.generation_config.forced_eos_token_id == fields["forced_eos_token_id"]
