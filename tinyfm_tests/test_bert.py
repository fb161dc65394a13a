"""BERT, RoBERTa and DistilBERT: values, counts, labels, folders; and beside transformers."""

import json

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.numpy import load_file

import tinyfm
from tinyfm import InputError, files, gradcheck, masks, models, pretrained
from tinyfm.models.bert import MaskedLMHead
from tinyfm.models.output import ModelOutput
from tinyfm.models.sentence_bert import mean_pool

SIZES = {
    "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 32, "max_position_embeddings": 20,
}  # fmt: skip
DISTIL = {
    "vocab_size": 50, "dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 32,
    "max_position_embeddings": 20,
}  # fmt: skip
FAMILIES = {
    "Bert": (models.BertConfig, SIZES),
    "Roberta": (models.RobertaConfig, SIZES),
    "DistilBert": (models.DistilBertConfig, DISTIL),
}
HEADS = [
    "Model", "ForPreTraining", "ForMaskedLM", "ForSequenceClassification", "ForMultipleChoice",
    "ForTokenClassification", "ForQuestionAnswering",
]  # fmt: skip
CLASSES = [
    (family, family + head)
    for family in FAMILIES
    for head in HEADS
    if hasattr(models, family + head)
]
each_class = pytest.mark.parametrize("family, name", CLASSES)
each_family = pytest.mark.parametrize("family", FAMILIES)


def new(family, name, seed=0, std=0.3, dtype=np.float64, **changes):
    """A small model with noise on every parameter."""
    tinyfm.manual_seed(seed)
    config, sizes = FAMILIES[family]
    model = getattr(models, name)(config(**sizes | changes)).to(dtype=dtype).eval()
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data = (p.data + std * rng.standard_normal(p.shape)).astype(dtype)
    return model


def batch(family, name, seed=0, padding="right", classes=3):
    """Inputs (2, 6), of which the second row has two tokens of padding, and labels."""
    rng, pad = np.random.default_rng(seed), int(family == "Roberta")
    ids = rng.integers(3, 50, (2, 6))
    mask = np.ones_like(ids)
    mask[1, slice(4, 6) if padding == "right" else slice(0, 2)] = 0
    inputs = {"input_ids": np.where(mask, ids, pad), "attention_mask": mask}
    if family == "Bert":
        inputs["token_type_ids"] = np.array([[0, 0, 0, 1, 1, 1]] * 2)
    hidden = np.where((rng.random(ids.shape) < 0.5) & (mask == 1), ids, -100)
    hidden[0, 1] = ids[0, 1]
    one_a_row = rng.integers(0, classes, 2) if classes > 1 else rng.standard_normal(2)
    labels = {
        "Model": {},
        "ForPreTraining": {"labels": hidden, "next_sentence_label": np.array([0, 1])},
        "ForMaskedLM": {"labels": hidden},
        "ForSequenceClassification": {"labels": one_a_row},
        "ForMultipleChoice": {"labels": np.array([1, 0])},
        "ForTokenClassification": {
            "labels": np.where(mask, rng.integers(0, classes, (2, 6)), -100),
        },
        "ForQuestionAnswering": {
            "start_positions": np.array([1, 9]),
            "end_positions": np.array([3, 2]),
        },
    }[name.removeprefix(family)]
    if name.endswith("MultipleChoice"):
        inputs = {key: np.stack([x, x[:, ::-1]], 1) for key, x in inputs.items()}
    return inputs, labels


def results(output):
    """The arrays of an output, by name."""
    names = output._fields if isinstance(output, ModelOutput) else output.keys()
    found = {name: getattr(output, name) for name in names if name != "loss"}
    return {name: x.data if isinstance(x, tinyfm.Tensor) else x for name, x in found.items()}


# -- values, without transformers ------------------------------------------------------------------

GOLDEN = {  # parity.md (i), and (a) for DistilBERT: keys, sum, sum of squares, logits[0, -1, :3]
    "BertForPreTraining": (46, 4.06314599, 66.38525092, [-0.12203949, 0.36050685, 0.55335219]),
    "RobertaForMaskedLM": (42, 8.24583104, 233.19381464, [0.62974001, 1.23379926, 0.20548707]),
    "DistilBertForMaskedLM": (41, 7.50956909, 88.30451580, [0.53761477, 0.54794358, -0.06536070]),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_golden_vectors(name, tmp_path):
    """Values that transformers gives for a file filled by a rule."""
    family = name.split("For")[0]
    config, sizes = FAMILIES[family]
    getattr(models, name)(config(**sizes)).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    file = {
        key: 0.3 * np.sin(1 + 0.7 * np.arange(x.size).reshape(x.shape) + 1.3 * j)
        for j, (key, x) in enumerate(sorted(load_file(path).items()))
    }
    keys, total, squares, corner = GOLDEN[name]
    assert len(file) == keys
    files.write_arrays(path, file)
    model = pretrained.load(tmp_path, dtype=np.float64)
    pad = int(family == "Roberta")
    inputs = {
        "input_ids": np.array([[5, 6, 7, 8, 9], [5, 6, 7, 8, pad]]),
        "attention_mask": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]),
    }
    if family == "Bert":
        inputs["token_type_ids"] = np.array([[0, 0, 0, 1, 1]] * 2)
    output = model(**inputs)
    logits = (output.prediction_logits if "PreTraining" in name else output.logits).data
    seen = logits[inputs["attention_mask"] == 1]
    assert seen.sum() == pytest.approx(total, abs=1e-7)
    assert (seen**2).sum() == pytest.approx(squares, abs=1e-7)
    assert_allclose(logits[0, -1, :3], corner, atol=1e-8)
    if "PreTraining" in name:
        follows = [[0.24689074, -0.31099619], [0.24686251, -0.31102341]]
        assert_allclose(output.seq_relationship_logits.data, follows, atol=1e-8)


@pytest.mark.parametrize(
    "config, name, count",
    [
        (models.BertConfig.base(), "BertModel", 109_482_240),
        (models.BertConfig.base(), "BertForPreTraining", 110_106_428),
        (models.BertConfig.base(), "BertForMaskedLM", 109_514_298),
        (models.BertConfig.base(vocab_size=28996), "BertModel", 108_310_272),
        (models.BertConfig.large(), "BertModel", 335_141_888),
        (models.BertConfig.large(), "BertForPreTraining", 336_226_108),
        (models.RobertaConfig.base(), "RobertaModel", 124_645_632),
        (models.RobertaConfig.base(), "RobertaForMaskedLM", 124_697_433),
        (models.RobertaConfig.large(), "RobertaModel", 355_359_744),
        (models.RobertaConfig.large(), "RobertaForMaskedLM", 355_412_057),
        (models.DistilBertConfig(), "DistilBertModel", 66_362_880),
        (models.DistilBertConfig(), "DistilBertForMaskedLM", 66_985_530),
    ],
)
def test_the_counts_of_the_published_sizes(config, name, count):
    assert models.num_parameters(config, getattr(models, name)) == count


def test_positions_of_roberta_skip_padding():
    """By the ids, not by the mask; padding has the row of its id (parity.md, a)."""
    positions = new("Roberta", "RobertaModel").embeddings.positions
    ids = np.array([[0, 5, 6, 2, 1, 1], [1, 1, 0, 5, 2, 1]])
    assert positions(ids).tolist() == [[2, 3, 4, 5, 1, 1], [1, 1, 2, 3, 4, 1]]
    assert positions(np.array([[0, 1, 6, 2]])).tolist() == [[2, 1, 3, 4]]


@pytest.mark.parametrize("family, longest", [("Bert", 20), ("Roberta", 18), ("DistilBert", 20)])
def test_a_text_may_be_as_long_as_there_are_positions(family, longest):
    model = new(family, f"{family}Model")
    model(np.full((1, longest), 5))
    with pytest.raises(ValueError, match=f"{longest + 1} tokens long.* takes {longest}$"):
        model(np.full((1, longest + 1), 5))


def test_the_head_of_roberta_has_gelu_whatever_the_layers_have():
    config = models.RobertaConfig(**SIZES, hidden_act="relu")
    head = MaskedLMHead(config)
    assert head.activation(tinyfm.tensor([-1.0])).item() == pytest.approx(-0.15865525)


@each_class
def test_padding_changes_nothing_but_itself(family, name):
    """To the right; RoBERTa, which counts words, may be padded to the left too."""
    model, (inputs, _) = new(family, name), batch(family, name)
    whole = results(model(**inputs))
    if name.endswith("MultipleChoice"):
        inputs = {key: x[1:, :1, :4] for key, x in inputs.items()}
        whole = {key: x[1:, :1] for key, x in whole.items() if key == "logits"}
    else:
        inputs = {key: x[1:, :4] for key, x in inputs.items()}
        whole = {
            k: x[1:, :4] if x.ndim > 1 and x.shape[1] == 6 else x[1:] for k, x in whole.items()
        }
    alone = results(model(**inputs))
    for key, x in whole.items():
        assert_allclose(alone[key], x, atol=1e-12)


def test_left_padding_is_harmless_to_roberta_alone():
    for family in FAMILIES:
        model = new(family, f"{family}Model")
        inputs, _ = batch(family, f"{family}Model", padding="left")
        padded = model(**inputs).last_hidden_state.data[1, 2:]
        inputs = {key: x[1:, 2:] for key, x in inputs.items()}
        change = np.abs(model(**inputs).last_hidden_state.data[0] - padded).max()
        assert (change < 1e-12) == (family == "Roberta")


def test_a_mask_may_be_given_in_place_of_an_attention_mask():
    model, (inputs, _) = new("Bert", "BertModel"), batch("Bert", "BertModel")
    mask = masks.padding(inputs["attention_mask"])
    x, y = (model(**inputs | {"attention_mask": m}) for m in (inputs["attention_mask"], mask))
    assert_allclose(x.last_hidden_state.data, y.last_hidden_state.data)


def test_segments_are_refused_where_there_are_none():
    with pytest.raises(ValueError, match="token_type_ids: this model has no segments"):
        new("DistilBert", "DistilBertModel")([[5, 6]], token_type_ids=[[0, 1]])


# -- losses ----------------------------------------------------------------------------------------


@each_family
def test_only_labelled_words_enter_the_vocabulary_product(family, monkeypatch):
    """The same loss and the same gradients as when all do."""
    name = f"{family}ForMaskedLM"
    inputs, labels = batch(family, name)
    counted = int((labels["labels"] != -100).sum())
    model, entered = new(family, name), []
    transform = model.predictions.transform
    monkeypatch.setattr(
        model.predictions, "transform", lambda x: entered.append(x.shape) or transform(x)
    )
    output = model(**inputs, **labels)
    assert entered == [(counted, 16)] and output.num_labels == counted
    output.loss.backward()
    grads = [p.grad for p in model.parameters()]
    whole = new(family, name)
    logits = whole(**inputs).logits
    loss = tinyfm.ops.cross_entropy(logits, labels["labels"])
    loss.backward()
    assert output.loss.item() == pytest.approx(loss.item(), abs=1e-12)
    for grad, p in zip(grads, whole.parameters(), strict=True):
        assert_allclose(grad, p.grad, atol=1e-12)
    assert_allclose(output.logits.data, logits.data, atol=1e-12)  # of all words, when asked for


def test_the_loss_of_pretraining_is_the_sum_of_those_whose_labels_are_given():
    model = new("Bert", "BertForPreTraining")
    inputs, labels = batch("Bert", "BertForPreTraining")
    both = model(**inputs, **labels)
    words = model(**inputs, labels=labels["labels"])
    pairs = model(**inputs, next_sentence_label=labels["next_sentence_label"])
    assert both.loss.item() == pytest.approx(words.loss.item() + pairs.loss.item(), rel=1e-12)
    assert both.num_labels == words.num_labels == (labels["labels"] != -100).sum()
    assert pairs.num_labels == 2
    logits = both.seq_relationship_logits.data  # 0: b follows a
    log_probs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    assert pairs.loss.item() == pytest.approx(-(log_probs[0, 0] + log_probs[1, 1]) / 2)
    assert model(**inputs).loss is None


def test_one_label_is_a_number_to_be_predicted():
    model = new("Bert", "BertForSequenceClassification", num_labels=1)
    inputs, labels = batch("Bert", "BertForSequenceClassification", classes=1)
    output = model(**inputs, **labels)
    wanted = np.mean((output.logits.data[:, 0] - labels["labels"]) ** 2)
    assert output.loss.item() == pytest.approx(wanted, rel=1e-12)
    assert output.num_labels == 2


@each_family
def test_one_class_of_words_and_one_choice_are_no_numbers(family):
    """The cross-entropy of a single class is 0, and what is ignored does not count."""
    name = f"{family}ForTokenClassification"
    model, (inputs, _) = new(family, name, num_labels=1), batch(family, name)
    labels = np.where(inputs["attention_mask"], 0, -100)
    output = model(**inputs, labels=labels)
    assert output.loss.item() == 0 and output.num_labels == 10
    with pytest.raises(TypeError, match="labels are float64"):
        model(**inputs, labels=labels.astype(float))
    name = f"{family}ForMultipleChoice"
    model, (inputs, _) = new(family, name), batch(family, name)
    output = model(**{key: x[:, :1] for key, x in inputs.items()}, labels=np.array([0, -100]))
    assert output.loss.item() == 0 and output.num_labels == 1


@each_family
def test_choices_have_three_axes(family):
    model = new(family, f"{family}ForMultipleChoice")
    with pytest.raises(ValueError, match=r"input_ids are \(2, 3\): they must be \(batch, ch"):
        model(np.full((2, 3), 5))


DROPOUTS = {  # of the layers, and of the heads
    "Bert": {"hidden_dropout_prob": 0.2, "classifier_dropout": 0.4},
    "Roberta": {"hidden_dropout_prob": 0.2, "classifier_dropout": 0.4},
    "DistilBert": {"dropout": 0.2, "seq_classif_dropout": 0.4, "qa_dropout": 0.3},
}
HEAD_DROPOUTS = {
    "ForSequenceClassification": (0.4, 0.4, 0.4),
    "ForMultipleChoice": (0.4, 0.2, 0.4),
    "ForTokenClassification": (0.4, 0.4, 0.2),
    "ForQuestionAnswering": (0.0, 0.0, 0.3),
}


@pytest.mark.parametrize("head", HEAD_DROPOUTS)
def test_the_dropouts_of_the_heads(head):
    """RoBERTa chooses with that of its layers, and so DistilBERT tags."""
    for (family, (config, sizes)), p in zip(FAMILIES.items(), HEAD_DROPOUTS[head], strict=True):
        model = getattr(models, family + head)(config(**sizes | DROPOUTS[family]))
        assert model.dropout.p == p, family


@pytest.mark.parity
@pytest.mark.parametrize("head", HEAD_DROPOUTS)
def test_the_dropouts_of_the_heads_are_those_of_transformers(head):
    for family, p in zip(FAMILIES, HEAD_DROPOUTS[head], strict=True):
        model = theirs(family, family + head, **DROPOUTS[family])
        owner = model if hasattr(model, "dropout") else model.classifier if p else None
        assert (owner.dropout.p if owner else 0) == p, family


def test_labels_of_the_wrong_kind_are_named():
    model = new("Bert", "BertForSequenceClassification", num_labels=3)
    inputs, _ = batch("Bert", "BertForSequenceClassification")
    with pytest.raises(TypeError, match="labels are float64: give the numbers of the classes"):
        model(**inputs, labels=np.array([0.5, 1.0]))
    with pytest.raises(ValueError, match=r"labels are \(3,\)"):
        model(**inputs, labels=np.array([0, 1, 2]))


def test_answers_that_were_cut_take_no_part_and_negative_ones_are_refused():
    model = new("Bert", "BertForQuestionAnswering")
    inputs, _ = batch("Bert", "BertForQuestionAnswering")
    places = {"start_positions": np.array([1, 6]), "end_positions": np.array([3, 6])}
    output = model(**inputs, **places)
    first = model(
        **{key: x[:1] for key, x in inputs.items()}, **{key: x[:1] for key, x in places.items()}
    )
    assert output.loss.item() == pytest.approx(first.loss.item(), rel=1e-12)
    assert output.num_labels == 1
    with pytest.raises(ValueError, match="start_positions are below 0"):
        model(**inputs, start_positions=np.array([-1, 2]), end_positions=np.array([1, 2]))


@pytest.mark.parametrize("family, name", [x for x in CLASSES if x[1] != f"{x[0]}Model"])
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
    """Along directions in every parameter, the table that the head shares included.

    No padding id stands in the text, for its row has no gradient by decree (R15); no ReLU, whose
    kinks a finite difference steps over, in DistilBERT's classifiers.
    """
    classes = classes if name.endswith("SequenceClassification") else 3
    layers = "n_layers" if family == "DistilBert" else "num_hidden_layers"
    model = new(family, name, seed, num_labels=classes, **{layers: 1})
    if family == "DistilBert" and model.bert.pooler is not None:
        model.bert.pooler.activation = tinyfm.ops.tanh
    inputs, labels = batch(family, name, seed, padding, classes)
    inputs["input_ids"] = np.maximum(inputs["input_ids"], 3)

    def loss(*_):
        return model(**inputs, **labels).loss

    assert gradcheck(loss, *model.parameters(), max_entries=3, rtol=1e-4, atol=1e-6)


@each_family
def test_r17_padding_never_changes_the_vector_of_a_sentence(family):
    model, (inputs, _) = new(family, f"{family}Model"), batch(family, f"{family}Model")
    wide = mean_pool(model(**inputs).last_hidden_state, inputs["attention_mask"]).data[1]
    alone = {key: x[1:, :4] for key, x in inputs.items()}
    vector = mean_pool(model(**alone).last_hidden_state, alone["attention_mask"]).data[0]
    assert_allclose(wide, vector, atol=1e-12)


# -- folders ---------------------------------------------------------------------------------------


@each_class
def test_a_folder_gives_the_model_back(family, name, tmp_path):
    model, (inputs, _) = new(family, name), batch(family, name)
    model.save_pretrained(tmp_path)
    other = pretrained.load(tmp_path, dtype=np.float64)
    assert type(other) is type(model) and other.config == model.config
    assert other.load_report == ([], [], [])
    for key, x in results(model(**inputs)).items():
        assert_allclose(results(other(**inputs))[key], x, atol=1e-12)


def test_the_names_of_the_classes_are_in_the_folder(tmp_path):
    names = {0: "sad", 1: "happy", 2: "none"}
    new("Bert", "BertForSequenceClassification", id2label=names).save_pretrained(tmp_path)
    config = pretrained.load(tmp_path).config
    assert config.id2label == names and config.num_labels == 3
    assert config.label2id == {"sad": 0, "happy": 1, "none": 2}
    two = models.BertForSequenceClassification.from_pretrained(tmp_path / ".", id2label=names)
    assert two.config.id2label == names


@pytest.mark.parametrize(
    "change, said",
    [
        ({"id2label": {0: "a", 2: "b"}}, "it must name the classes 0, 1, ..."),
        ({"id2label": {}}, "it must name the classes"),
        ({"id2label": {0: "a"}, "num_labels": 2}, "num_labels is 2, and id2label names 1"),
        ({"id2label": {0: "a", 1: "a"}}, "it must name each class differently"),
        ({"num_labels": 10**12}, "num_labels is 10{12}: it must be at most 1000000"),
        ({"hidden_act": "mish"}, "hidden_act is 'mish'"),
        ({"problem_type": "multi_label_classification"}, "'multi_label_classification': it must"),
        ({"problem_type": "regression"}, "'regression' and num_labels 2: regression has 1 label"),
        ({"problem_type": "regression", "num_labels": 3}, "'regression' and num_labels 3"),
        (
            {"problem_type": "single_label_classification", "num_labels": 1},
            "single_label_classification' and num_labels 1: ",
        ),
        ({"is_decoder": True}, "is_decoder is True: only encoders"),
        ({"add_cross_attention": True}, "add_cross_attention is True: only encoders"),
        ({"is_decoder": "yes"}, "is_decoder is 'yes': it must be of type bool"),
    ],
)
@pytest.mark.parametrize("config", [models.BertConfig, models.RobertaConfig])
def test_impossible_configs(config, change, said):
    with pytest.raises(ValueError, match=said):
        config(**change)


@pytest.mark.parametrize("name", ["is_decoder", "add_cross_attention"])
@pytest.mark.parametrize("family", ["Bert", "Roberta"])
def test_a_decoder_is_refused_and_opened_as_an_encoder_only_on_request(family, name, tmp_path):
    new(family, f"{family}Model").save_pretrained(tmp_path)
    change_config(tmp_path, **{name: True})
    with pytest.raises(InputError, match=f"config.json: {name} is True: only encoders"):
        pretrained.load(tmp_path)
    assert not getattr(pretrained.load(tmp_path, **{name: False}).config, name)


@each_family
def test_only_the_head_of_words_needs_a_tied_table(family, tmp_path):
    new(family, f"{family}ForMaskedLM").save_pretrained(tmp_path)
    change_config(tmp_path, tie_word_embeddings=False)
    said = "config.json: tie_word_embeddings is False: untied heads are not supported"
    with pytest.raises(InputError, match=said):
        pretrained.load(tmp_path)
    body = getattr(models, f"{family}Model").from_pretrained(tmp_path)
    body.save_pretrained(tmp_path / "body")
    assert pretrained.load(tmp_path / "body").config.tie_word_embeddings is False


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), encoding="utf-8")


@pytest.mark.parametrize(
    "kind, labels", [("regression", 1), ("single_label_classification", 3), (None, 3)]
)
def test_the_problem_type_is_kept(kind, labels, tmp_path):
    name = "BertForSequenceClassification"
    new("Bert", name, num_labels=labels, problem_type=kind).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text("utf-8"))["problem_type"] == kind
    assert pretrained.load(tmp_path).config.problem_type == kind
    change_config(tmp_path, problem_type="multi_label_classification")
    with pytest.raises(InputError, match=r"problem_type is 'multi_label_classification': it must "):
        pretrained.load(tmp_path)


@pytest.mark.parametrize("change", [{"num_labels": 3}, {"id2label": {0: "a", 1: "b", 2: "c"}}])
def test_other_labels_put_the_problem_type_out_of_force(change, tmp_path):
    base = new("Bert", "BertForMaskedLM", num_labels=1, problem_type="regression")
    base.save_pretrained(tmp_path)
    model = models.BertForSequenceClassification.from_pretrained(tmp_path, **change)
    assert (model.config.num_labels, model.config.problem_type) == (3, None)


@each_family
def test_a_task_is_put_on_a_pretrained_body(family, tmp_path):
    """Only the head is new, and is reported; the body is the file's."""
    base = new(family, f"{family}ForMaskedLM", dtype=np.float32)
    base.save_pretrained(tmp_path)
    cls = getattr(models, f"{family}ForSequenceClassification")
    model = cls.from_pretrained(tmp_path, num_labels=5)
    assert model.config.num_labels == 5 and model.classifier.weight.shape == (5, 16)
    report = model.load_report
    assert report.missing == []
    assert all(name.split(".")[0] not in ("embeddings", "encoder") for name in report.new)
    assert {name.rpartition(".")[0] for name in report.new} == {
        "Bert": {"bert.pooler.dense", "classifier"},
        "Roberta": {"classifier.dense", "classifier.out_proj"},
        "DistilBert": {"pre_classifier", "classifier"},
    }[family]
    assert report.unexpected  # the head of masked words
    learnt = model.bert.state_dict()
    for name, array in base.bert.state_dict().items():
        assert_array_equal(learnt[name], array)


@each_family
def test_the_body_alone_opens_from_a_folder_with_a_head_and_the_other_way_round(family, tmp_path):
    name = f"{family}ForTokenClassification"
    with_head = new(family, name, dtype=np.float32)
    with_head.save_pretrained(tmp_path)
    body = getattr(models, f"{family}Model").from_pretrained(tmp_path)
    inputs, _ = batch(family, name)
    wanted = with_head.bert(**inputs).last_hidden_state.data
    assert_allclose(body(**inputs).last_hidden_state.data, wanted, atol=1e-6)
    body.save_pretrained(tmp_path)
    again = getattr(models, name).from_pretrained(tmp_path)
    assert_allclose(again.bert(**inputs).last_hidden_state.data, wanted, atol=1e-6)
    assert {new.split(".")[0] for new in again.load_report.new} == {"classifier"}


@pytest.mark.parametrize(
    "change",
    [
        lambda file: {n.removeprefix("bert."): x for n, x in file.items()},
        lambda file: {n.replace("LayerNorm.weight", "LayerNorm.gamma"): x for n, x in file.items()},
        lambda file: {n.replace("LayerNorm.bias", "LayerNorm.beta"): x for n, x in file.items()},
        lambda file: file | {"bert.embeddings.position_ids": np.arange(20)[None]},
        lambda file: file | {"cls.seq_relationship.weight": np.ones((2, 16), np.float32)},
        lambda file: file | {"bert.pooler.dense.bias": np.ones(16, np.float32)},
        lambda file: (
            file
            | {"cls.predictions.decoder.weight": file["bert.embeddings.word_embeddings.weight"]}
        ),
        lambda file: {
            n.replace("cls.predictions.bias", "cls.predictions.decoder.bias"): x
            for n, x in file.items()
        },
    ],
    ids=[
        "no prefix",
        "gamma",
        "beta",
        "position_ids",
        "nsp",
        "pooler",
        "tied copy",
        "decoder.bias",
    ],
)
def test_r67_r69_files_of_other_versions_open(change, tmp_path):
    model = new("Bert", "BertForMaskedLM", dtype=np.float32)
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    files.write_arrays(path, change(load_file(path)))
    other = models.BertForMaskedLM.from_pretrained(tmp_path)
    assert other.load_report.missing == other.load_report.new == []
    inputs, _ = batch("Bert", "BertForMaskedLM")
    assert_allclose(other(**inputs).logits.data, model(**inputs).logits.data, atol=1e-6)


# -- beside transformers ---------------------------------------------------------------------------


def theirs(family, name, **changes):
    """A model of transformers in float64 with random values in every parameter."""
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    config, sizes = getattr(transformers, f"{family}Config"), FAMILIES[family][1]
    if family == "Roberta":
        changes |= {"layer_norm_eps": 1e-5, "type_vocab_size": 1, "pad_token_id": 1}
    model = getattr(transformers, name)(config(**sizes, **changes)).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.3 * torch.randn(p.shape, generator=generator, dtype=torch.float64))
    return model


def tensors(inputs):
    import torch

    return {name: torch.tensor(x) for name, x in inputs.items()}


@pytest.mark.parity
@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize(
    "family, name, classes",
    [
        *((family, name, 2 if "Question" in name else 3) for family, name in CLASSES),
        *((family, f"{family}ForSequenceClassification", 1) for family in FAMILIES),
        *((family, f"{family}ForTokenClassification", 1) for family in FAMILIES),
    ],
)
def test_models_of_transformers_open_and_go_back(family, name, classes, padding, tmp_path):
    """Every output, the loss and every gradient, in float64; and their own reading of our file."""
    import torch
    import transformers

    other = theirs(family, name, num_labels=classes)
    other.save_pretrained(tmp_path / "theirs")
    model = pretrained.load(tmp_path / "theirs", dtype=np.float64)
    assert type(model).__name__ == name and model.load_report == ([], [], [])
    inputs, labels = batch(family, name, padding=padding, classes=classes)
    got, wanted = model(**inputs, **labels), other(**tensors(inputs | labels))
    compared = results(got).keys() & wanted.keys()
    assert compared
    for key in compared:
        assert_allclose(results(got)[key], wanted[key].detach().numpy(), atol=1e-10)
    if labels:
        assert got.loss.item() == pytest.approx(wanted.loss.item(), abs=1e-10)
        got.loss.backward()
        wanted.loss.backward()
        entries, grads = model.entries(), dict(other.named_parameters())
        for own, p in model.named_parameters():
            for key, part in zip(entries[own].files, entries[own].split(p.grad), strict=True):
                assert_allclose(part, grads[key].grad.numpy(), atol=1e-8)
    model.save_pretrained(tmp_path / "ours")
    back, info = getattr(transformers, name).from_pretrained(
        tmp_path / "ours", dtype=torch.float64, output_loading_info=True
    )
    assert not any(info.values()), info
    again = back.eval()(**tensors(inputs))
    for key in compared:
        assert_allclose(again[key].detach().numpy(), wanted[key].detach().numpy(), atol=1e-12)
    assert back.config.num_labels == classes


def test_the_layer_of_another_task_does_not_pass_for_the_own_one(tmp_path):
    """Both are called classifier, and have the same shape when there are as many classes."""
    rates = new("Bert", "BertForSequenceClassification", num_labels=3)
    rates.save_pretrained(tmp_path)
    tags = models.BertForTokenClassification.from_pretrained(tmp_path, np.float64)
    assert tags.load_report.new == ["classifier.weight", "classifier.bias"]
    assert {"classifier.weight", "classifier.bias"} <= {*tags.load_report.unexpected}
    again = models.BertForSequenceClassification.from_pretrained(tmp_path, np.float64)
    assert not again.load_report.new
    assert_array_equal(again.classifier.weight.data, rates.classifier.weight.data)
