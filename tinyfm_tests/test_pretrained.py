"""Folders: the table of names, strict opening, whole writing, and what damaged files say."""

import json
import pickle
import struct
import subprocess
import sys
import tracemalloc
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import tinyfm
from tinyfm import InputError, files, models, nn, optim, pretrained
from tinyfm.backend import generator
from tinyfm.models import Transformer, TransformerConfig
from tinyfm.pretrained import PretrainedConfig, PreTrainedModel
from tinyfm.renames import Rename
from tinyfm.tokenizer import Tokenizer

# -- a small model with every kind of entry --------------------------------------------------------


@dataclass
class ToyConfig(PretrainedConfig):
    model_type: ClassVar[str] = "toy"
    width: int = 2
    seed: int | None = None


class Toy(PreTrainedModel):
    """Two layers whose pair is one matrix here and two in files, a shared table, a task's head."""

    config_class = ToyConfig
    base_model_prefix = "toy"
    unused = ("toy.layers.*.positions",)
    task_head = ("classifier.*",)
    renames = (
        Rename("table", "toy.words", copies=("toy.again", "out")),
        Rename("layers.*.pair", "toy.layers.*.first", "toy.layers.*.second"),
        Rename(
            "layers.*.turned",
            "toy.layers.*.conv",
            split=lambda array: [array.T],
            join=lambda array: array.T,
        ),
        Rename("shift", "shift", split=lambda x: [x[None]], join=lambda x: x[0], optional=True),
    )

    def __init__(self, config):
        super().__init__(config)
        width = config.width
        self.table = nn.Embedding(5, width)
        self.layers = [nn.Module() for _ in range(2)]
        for layer in self.layers:
            layer.pair, layer.turned = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.shift = nn.new_parameter((5,), nn.zeros)
        self.warmth = nn.new_parameter((), nn.ones)
        self.classifier = nn.Linear(width, 3)


def toy(seed=0):
    rng = np.random.default_rng(seed)
    model = Toy(ToyConfig())
    for p in model.parameters():
        p.data = np.asarray(rng.standard_normal(p.shape), np.float32)
    return model


def toy_file(model):
    """What a file of this model holds, put together by hand."""
    state = model.state_dict()
    file = {"toy.words.weight": state["table.weight"], "shift": state["shift"].reshape(1, 5)}
    file["warmth"] = state["warmth"]
    for i in range(2):
        for kind in ("weight", "bias"):
            pair = state[f"layers.{i}.pair.{kind}"]
            file[f"toy.layers.{i}.first.{kind}"] = pair[:2]
            file[f"toy.layers.{i}.second.{kind}"] = pair[2:]
            file[f"toy.layers.{i}.conv.{kind}"] = state[f"layers.{i}.turned.{kind}"].T
            file[f"classifier.{kind}"] = state[f"classifier.{kind}"]
    return file


def write(folder, file, **config):
    folder.mkdir(exist_ok=True)
    config = {"architectures": ["Toy"], "model_type": "toy", "width": 2} | config
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    files.write_arrays(folder / "model.safetensors", file)
    return folder


def same_parameters(a, b):
    for (name, x), (other, y) in zip(a.state_dict().items(), b.state_dict().items(), strict=True):
        assert name == other
        assert_array_equal(x, y, strict=True)


def test_an_entry_fills_in_its_stars():
    entry = Rename("*.layers.*.x", "a.*.b.*.y", "*.z.*", copies=("*.copy",), optional=True)
    filled = entry.of("encoder.layers.12.x.weight")
    assert filled.own == "encoder.layers.12.x.weight"
    assert filled.files == ("a.encoder.b.12.y.weight", "encoder.z.12.weight")
    assert list(filled.copies) == ["encoder.copy.weight"]
    assert filled.optional
    assert entry.of("encoder.layers.12.x").files == ("a.encoder.b.12.y", "encoder.z.12")


@pytest.mark.parametrize(
    "other",
    [
        "layers.1.x.weight",
        "a.b.layers.1.x.weight",
        "a.layers.1.xx.weight",
        "a.layers.1.x.y.weight",
        "aXlayersX1Xx",
    ],
)
def test_an_entry_is_about_whole_parts_of_names(other):
    assert Rename("*.layers.*.x", "y").of(other) is None


def test_parts_are_stacked_unless_said_otherwise():
    entry, x = Rename("x", "a", "b", "c"), np.arange(12).reshape(6, 2)
    assert_array_equal(entry.split(x), [x[:2], x[2:4], x[4:]])
    assert_array_equal(entry.join(*entry.split(x)), x)


def test_the_table_is_read_in_both_directions(tmp_path):
    from safetensors.numpy import load_file

    model = toy()
    model.save_pretrained(tmp_path / "saved")
    file = load_file(tmp_path / "saved" / "model.safetensors")
    expected = toy_file(model)
    assert file.keys() == expected.keys()
    for name, array in expected.items():
        assert_array_equal(file[name], array)
    opened = Toy.from_pretrained(write(tmp_path / "made", expected))
    same_parameters(opened, model)
    assert opened.load_report == ([], [], [])


# -- what is allowed, and reported -----------------------------------------------------------------


def test_an_optional_tensor_may_be_missing(tmp_path):
    file = toy_file(toy())
    del file["shift"]
    model = Toy.from_pretrained(write(tmp_path, file))
    assert_array_equal(model.shift.data, np.zeros(5))
    assert model.load_report == (["shift"], [], [])


def test_r70_the_head_of_a_task_may_be_new_and_is_reported(tmp_path):
    file = {name: x for name, x in toy_file(toy()).items() if not name.startswith("classifier")}
    model = Toy.from_pretrained(write(tmp_path, file))
    assert model.load_report == ([], [], ["classifier.weight", "classifier.bias"])
    assert model.classifier.weight.data.any()  # at its initial values
    assert_array_equal(model.table.weight.data, file["toy.words.weight"])


def test_opening_draws_random_numbers_only_for_what_is_new(tmp_path):
    """The generator, and so a training that follows, is the same with and without it."""
    write(tmp_path / "whole", toy_file(toy()))
    file = {name: x for name, x in toy_file(toy()).items() if not name.startswith("classifier")}
    write(tmp_path / "new", file)
    tinyfm.manual_seed(3)
    before = generator().bit_generator.state
    pretrained.load(tmp_path / "whole")
    assert generator().bit_generator.state == before
    heads = []
    for _ in range(2):
        tinyfm.manual_seed(3)
        heads.append(Toy.from_pretrained(tmp_path / "new").classifier.weight.data)
    assert generator().bit_generator.state != before
    assert_array_equal(*heads)


def test_an_opened_model_has_memory_of_its_own(tmp_path):
    """It can be trained, and each parameter is one array in order."""
    folder = write(tmp_path, toy_file(toy()))
    model = Toy.from_pretrained(folder)
    for p in model.parameters():
        array = p._data
        assert array.base is None and array.flags.writeable and array.flags.c_contiguous
    before = {name: x.copy() for name, x in model.state_dict().items()}
    for p in model.parameters():
        p.grad = np.ones_like(p.data)
    optim.SGD(model.parameters(), lr=1.0).step()
    for name, x in model.state_dict().items():
        assert_array_equal(x, before[name] - 1)
    same_parameters(Toy.from_pretrained(folder), toy())


def test_what_the_model_does_without_is_reported(tmp_path):
    file = toy_file(toy()) | {"toy.layers.1.positions": np.ones(3, np.float32)}
    model = Toy.from_pretrained(write(tmp_path, file))
    assert model.load_report.unexpected == ["toy.layers.1.positions"]


def test_r67_a_shared_table_may_stand_under_any_of_its_names_or_all(tmp_path):
    model = toy()
    file = toy_file(model)
    table = file.pop("toy.words.weight")
    for i, names in enumerate(
        [["toy.again.weight"], ["out.weight"], ["toy.words.weight", "toy.again.weight"]]
    ):
        folder = write(tmp_path / str(i), file | dict.fromkeys(names, table))
        opened = Toy.from_pretrained(folder)
        same_parameters(opened, model)
        assert opened.load_report == ([], [], [])


def test_copies_that_differ_are_named(tmp_path):
    file = toy_file(toy())
    write(tmp_path, file | {"out.weight": file["toy.words.weight"] + 1})
    with pytest.raises(InputError, match=r"out\.weight and toy\.words\.weight must be equal"):
        Toy.from_pretrained(tmp_path)


def test_r69_the_prefix_may_be_left_out(tmp_path):
    model = toy()
    file = {name.removeprefix("toy."): x for name, x in toy_file(model).items()}
    file |= {"layers.0.positions": np.ones(3, np.float32), "out.weight": file["words.weight"]}
    opened = Toy.from_pretrained(write(tmp_path, file))
    same_parameters(opened, model)
    assert opened.load_report == ([], ["toy.layers.0.positions"], [])


# -- what is refused -------------------------------------------------------------------------------


def test_r70_all_that_does_not_fit_is_one_line(tmp_path):
    file = toy_file(toy())
    del file["toy.layers.0.first.bias"]
    file["toy.layers.1.conv.weight"] = np.ones((3, 2), np.float32)
    file["toy.layers.2.conv.weight"] = np.ones((2, 2), np.float32)
    with pytest.raises(InputError) as caught:
        Toy.from_pretrained(write(tmp_path, file))
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'model.safetensors'}: ")
    assert "\n" not in message
    for part in (
        "toy.layers.0.first.bias is missing",
        "toy.layers.2.conv.weight is unexpected",
        "toy.layers.1.conv.weight is (3, 2) instead of (2, 2)",
    ):
        assert part in message


def test_a_long_list_of_what_does_not_fit_is_cut_and_counted(tmp_path):
    write(tmp_path, {"x": np.ones(1, np.float32)})
    with pytest.raises(InputError, match=r"warmth is missing, .* and 7 more; get the") as caught:
        Toy.from_pretrained(tmp_path)  # 13 names of toy.* are missing, 1 is not known
    assert str(caught.value).count(" is missing") == 8


def test_half_of_a_pair_is_missing_even_in_a_new_head_of_other_names(tmp_path):
    file = toy_file(toy())
    del file["toy.layers.0.second.weight"]
    said = r"Toy: toy\.layers\.0\.second\.weight is missing; get the file again"
    with pytest.raises(InputError, match=said):
        Toy.from_pretrained(write(tmp_path, file))


def test_r73_a_pickle_is_never_read(tmp_path):
    class Bomb:
        def __reduce__(self):
            return open, (str(tmp_path / "it ran"), "w")

    write(tmp_path, toy_file(toy()))
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(InputError, match=r"pytorch_model\.bin: a pickle, .* save the model as mo"):
        Toy.from_pretrained(tmp_path)
    assert not (tmp_path / "it ran").exists()


def test_r73_arrays_of_numpy_are_not_read_either(tmp_path):
    write(tmp_path, toy_file(toy()))
    (tmp_path / "model.safetensors").unlink()
    np.savez(tmp_path / "model.npz", x=np.array([object()], dtype=object))
    with pytest.raises(InputError, match=r"model\.safetensors: no such file; the folder holds no"):
        Toy.from_pretrained(tmp_path)


def test_a_config_that_asks_for_much_is_compared_with_the_file_first(tmp_path):
    write(tmp_path, toy_file(toy()), width=30_000)  # a pair would take 7 GB
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"is \(5, 2\) instead of \(5, 30000\)"):
            Toy.from_pretrained(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_a_config_of_millions_of_layers_is_refused_after_a_few(tmp_path, monkeypatch):
    """As soon as there are clearly more parameters than the file has arrays."""
    tiny_bert().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text("utf-8")) | {"num_hidden_layers": 10**7}
    path.write_text(json.dumps(config), encoding="utf-8")
    made, new = [], nn.stacks.Layer
    monkeypatch.setattr(nn.stacks, "Layer", lambda *options: made.append(1) or new(*options))
    with pytest.raises(InputError, match=r"config\.json: more than \d+ parameter arrays are asked"):
        pretrained.load(tmp_path)
    assert 1 < len(made) < 20


# -- weights in several files ----------------------------------------------------------------------


def write_shards(folder, file, **places):
    """The file in parts, as the index says; places: other entries of the index."""
    write(folder, file)
    (folder / "model.safetensors").unlink()
    names = sorted(file)
    parts = {"model-1-of-2.safetensors": names[::2], "model-2-of-2.safetensors": names[1::2]}
    index = {name: part for part, names in parts.items() for name in names}
    for part, names in parts.items():
        files.write_arrays(folder / part, {name: file[name] for name in names})
    content = json.dumps({"metadata": {"total_size": 1}, "weight_map": index | places})
    (folder / "model.safetensors.index.json").write_text(content, encoding="utf-8")
    return folder


def test_weights_in_several_files_are_those_in_one(tmp_path):
    model = toy()
    opened = pretrained.load(write_shards(tmp_path, toy_file(model)))
    same_parameters(opened, model)
    assert opened.load_report == ([], [], [])
    opened.save_pretrained(tmp_path)
    same_parameters(pretrained.load(tmp_path), model)


@pytest.mark.parametrize(
    "places, named, said",
    [
        ({"more": "model-3-of-3.safetensors"}, "model-3-of-3.safetensors", "No such file"),
        ({"more": "model-2-of-2.safetensors"}, "model-2-of-2.safetensors", "differ .*: more$"),
        ({"shift": "model-2-of-2.safetensors"}, "model-1-of-2.safetensors", "differ .*: shift$"),
        *(
            ({"shift": file}, "model.safetensors.index.json", f"weight_map has {file!r} for shift,")
            for file in ("../x.safetensors", "/x.safetensors", "", ".", "..", "a/b", 3, None)
        ),
    ],
    ids=str,
)
def test_an_index_that_does_not_fit_its_files_is_named(places, named, said, tmp_path):
    write_shards(tmp_path, toy_file(toy()), **places)
    with pytest.raises(InputError, match=said) as caught:
        Toy.from_pretrained(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / named}: ")


@pytest.mark.parametrize("content", ["{}", '{"weight_map": 3}', '{"weight_map": ["x"]}', "{"])
def test_a_damaged_index_is_named(content, tmp_path):
    index = write_shards(tmp_path, toy_file(toy())) / "model.safetensors.index.json"
    index.write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        Toy.from_pretrained(tmp_path)
    assert str(caught.value).startswith(f"{index}: ")


def test_saving_over_several_files_leaves_one(tmp_path):
    """Those that the index names go; no others, however they are called."""
    file = toy_file(toy())
    write_shards(tmp_path / "m", file, more="../other.safetensors")
    others = [tmp_path / "other.safetensors", tmp_path / "m" / "model-3-of-2.safetensors"]
    for other in others:
        other.touch()
    toy(1).save_pretrained(tmp_path / "m")  # a damaged index names nothing
    same_parameters(pretrained.load(tmp_path / "m"), toy(1))
    write_shards(tmp_path / "m", file, more="config.json", again="model.safetensors")
    toy(2).save_pretrained(tmp_path / "m")
    same_parameters(pretrained.load(tmp_path / "m"), toy(2))
    names = {path.name for path in (tmp_path / "m").iterdir()}
    assert names == {"config.json", "model.safetensors", others[1].name}
    assert others[0].exists()


def test_what_several_files_lack_is_said_of_the_index(tmp_path):
    file = toy_file(toy())
    del file["toy.words.weight"]
    with pytest.raises(InputError, match=r"index\.json: Toy: toy\.words\.weight is missing; get"):
        Toy.from_pretrained(write_shards(tmp_path, file))


# -- tokenizers ------------------------------------------------------------------------------------


def test_a_tokenizer_has_to_fit_the_table_of_embeddings(tmp_path):
    tokenizer = Tokenizer.train_wordpiece(["a man ran"] * 2, 40)
    for vocab_size in (len(tokenizer), len(tokenizer) + 3, len(tokenizer) - 1):
        model = saved(tmp_path, vocab_size=vocab_size)
        tokenizer.save(tmp_path)
        if vocab_size >= len(tokenizer):  # tables are often longer
            found = pretrained.load_tokenizer(tmp_path, model)
            assert found.encode("a man") == tokenizer.encode("a man")
        else:
            said = f"the tokenizer has {len(tokenizer)} subwords and the model {vocab_size}"
            with pytest.raises(InputError, match=said):
                pretrained.load_tokenizer(tmp_path, model)
    assert len(pretrained.load_tokenizer(str(tmp_path))) == len(tokenizer)


# -- BERT ------------------------------------------------------------------------------------------


def tiny_bert(name="BertForPreTraining", **changes):
    tinyfm.manual_seed(0)
    sizes = {"vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 12}
    config = models.BertConfig(**sizes | changes, num_attention_heads=2, max_position_embeddings=6)
    return getattr(models, name)(config)


WORDS = "bert.embeddings.word_embeddings.weight"


def test_r67_a_tied_table_is_one_after_training_and_saving(tmp_path):
    tiny_bert().save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    file = dict(files.read_arrays(path))
    assert not any(name.startswith("cls.predictions.decoder") for name in file)
    file["cls.predictions.decoder.weight"] = file.pop(WORDS)  # only the head's copy
    files.write_arrays(path, file)
    model = models.BertForPreTraining.from_pretrained(tmp_path)
    assert model.load_report.missing == []
    ids = np.array([[3, 4, 5]])
    model(ids, labels=ids, next_sentence_label=np.array([1])).loss.backward()
    optim.SGD(model.parameters(), lr=0.1).step()
    model.save_pretrained(tmp_path / "trained")
    again = models.BertForPreTraining.from_pretrained(tmp_path / "trained")
    assert again.load_report.missing == []
    same_parameters(again, model)
    assert_allclose(again(ids).prediction_logits.data, model(ids).prediction_logits.data, atol=1e-6)
    saved_table = files.read_arrays(tmp_path / "trained" / "model.safetensors")[WORDS]
    assert not np.array_equal(saved_table, file["cls.predictions.decoder.weight"])


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("old", [True, False])
def test_r69_four_ways_to_save_a_bert(prefix, old, tmp_path):
    model = tiny_bert()
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    file = {name: array + 0 for name, array in files.read_arrays(path).items()}
    if not prefix:
        file = {name.removeprefix("bert."): x for name, x in file.items()}
    if old:
        for new, ending in (("LayerNorm.weight", "LayerNorm.gamma"), ("Norm.bias", "Norm.beta")):
            file = {name.replace(new, ending): x for name, x in file.items()}
    files.write_arrays(path, file)
    opened = models.BertForPreTraining.from_pretrained(tmp_path)
    same_parameters(opened, model)
    assert opened.load_report == ([], [], [])


def test_r70_a_pretrained_bert_becomes_a_classifier_or_says_what_does_not_fit(tmp_path):
    tiny_bert().save_pretrained(tmp_path)
    model = models.BertForSequenceClassification.from_pretrained(tmp_path, num_labels=3)
    assert model.load_report.new == ["classifier.weight", "classifier.bias"]
    assert model.load_report.missing == [] and model.classifier.weight.shape == (3, 8)
    with pytest.raises(InputError, match="model_type is 'bert', and Transformer opens"):
        Transformer.from_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    file = dict(files.read_arrays(path))
    files.write_arrays(path, file | {WORDS: file[WORDS].T})
    with pytest.raises(InputError, match=rf"{WORDS} is \(8, 11\) instead of \(11, 8\)"):
        models.BertForPreTraining.from_pretrained(tmp_path)
    del file["bert.encoder.layer.0.output.dense.bias"]
    files.write_arrays(path, file)
    with pytest.raises(InputError, match=r"0\.output\.dense\.bias is missing"):
        models.BertForPreTraining.from_pretrained(tmp_path)
    models.BertModel(model.config).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"missing; config.json says BertModel: open that, or"):
        models.BertForMaskedLM.from_pretrained(tmp_path)


def test_r71_a_bert_in_bfloat16_is_widened(tmp_path):
    """As published ones are; the file is put together by hand."""
    tiny_bert().save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    halves = {n: x.view(np.uint32) >> 16 for n, x in files.read_arrays(path).items()}
    header, place = {}, 0
    for name, x in halves.items():
        end = place + 2 * x.size
        header[name] = {"dtype": "BF16", "shape": x.shape, "data_offsets": [place, end]}
        place = end
    content = b"".join(x.astype("<u2").tobytes() for x in halves.values())
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content)
    for dtype in (np.float32, np.float64):
        table = models.BertForPreTraining.from_pretrained(tmp_path, dtype).state_dict()
        wanted = (halves[WORDS] << 16).view(np.float32).astype(dtype)
        assert_array_equal(table["bert.embeddings.word.weight"], wanted, strict=True)


# -- configs ---------------------------------------------------------------------------------------


def test_fields_may_be_changed_while_opening(tmp_path):
    tiny().save_pretrained(tmp_path)
    for opened in (Transformer.from_pretrained, pretrained.load):
        model = opened(tmp_path, dropout=0.3, label_smoothing=0.2)
        assert (model.config.dropout, model.config.label_smoothing) == (0.3, 0.2)
        assert model.dropout.p == 0.3
        with pytest.raises(TypeError, match="TransformerConfig has no field dropuot"):
            opened(tmp_path, dropuot=0.3)
        with pytest.raises(InputError, match=r"config\.json with \{'dropout': 2\}: dropout is 2"):
            opened(tmp_path, dropout=2)


def test_a_value_may_be_none_where_its_type_says_so():
    assert ToyConfig(seed=None).seed is None and ToyConfig(seed=3).seed == 3
    for bad in ({"width": None}, {"seed": "x"}, {"seed": 0}, {"seed": 1.0}, {"seed": True}):
        with pytest.raises(ValueError, match=f"{next(iter(bad))} is "):
            ToyConfig(**bad)


def test_the_model_type_picks_a_class_where_no_architecture_is_named(tmp_path):
    write(tmp_path, toy_file(toy()), architectures=None)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    del config["architectures"]
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert type(pretrained.load(tmp_path)) is Toy
    del config["model_type"]
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert type(Toy.from_pretrained(tmp_path)) is Toy
    with pytest.raises(InputError, match="model_type None is not one that can be opened: "):
        pretrained.load(tmp_path)


NATURAL = {
    "BertConfig": "BertModel",
    "RobertaConfig": "RobertaModel",
    "DistilBertConfig": "DistilBertModel",
    "GPT2Config": "GPT2Model",
    "OpenAIGPTConfig": "OpenAIGPTModel",
    "BartConfig": "BartModel",
    "MarianConfig": "MarianMTModel",
    "T5Config": "T5ForConditionalGeneration",
    "MT5Config": "MT5ForConditionalGeneration",
    "TransformerConfig": "Transformer",
}


@pytest.mark.parametrize("config", NATURAL)
def test_without_an_architecture_a_folder_is_the_familys_model_without_a_head(
    config, tmp_path, monkeypatch
):
    """As AutoModel of transformers has it; of families that have no such model the first one."""
    name = NATURAL[config]
    written = {"model_type": getattr(models, config).model_type}
    (tmp_path / "config.json").write_text(json.dumps(written), encoding="utf-8")
    opened = []

    def from_pretrained(cls, folder, dtype):
        opened.append(cls.__name__)

    monkeypatch.setattr(getattr(models, name), "from_pretrained", classmethod(from_pretrained))
    pretrained.load(tmp_path)
    assert opened == [name]


def test_only_classes_that_can_be_asked_for_are_opened():
    own = {
        cls.__name__
        for cls in pretrained._classes.values()
        if cls.__module__.startswith("tinyfm.models")
    }
    assert own <= set(models.__all__)
    assert not issubclass(Toy, Base) and "Base" not in pretrained._classes


class Base(PreTrainedModel, base=True):
    """A base of models with a config of its own."""

    config_class = ToyConfig


def test_an_architecture_that_nobody_knows(tmp_path):
    write(tmp_path, toy_file(toy()), architectures=["ToyForSomething"])
    with pytest.raises(InputError, match=r"'ToyForSomething' is not one .*: .*Toy, .*Transformer"):
        pretrained.load(tmp_path)
    assert type(Toy.from_pretrained(tmp_path)) is Toy  # another head's folder, if asked for


def test_a_folder_of_another_family(tmp_path):
    write(tmp_path, toy_file(toy()))
    with pytest.raises(InputError) as caught:
        Transformer.from_pretrained(tmp_path)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "config.json"))
    assert "model_type is 'toy', and Transformer opens 'transformer'" in message


# -- the settings of generation --------------------------------------------------------------------


def test_generation_settings_go_with_the_model(tmp_path):
    settings = {"num_beams": 6, "bad_words_ids": [[7]], "note": "소리"}
    write(tmp_path / "a", toy_file(toy()))
    (tmp_path / "a" / "generation_config.json").write_text(json.dumps(settings), encoding="utf-8")
    model = pretrained.load(tmp_path / "a")
    assert model.generation_config == settings
    model.save_pretrained(tmp_path / "b")
    assert pretrained.load(tmp_path / "b").generation_config == settings
    toy().save_pretrained(tmp_path / "b")  # a model that has none leaves none of the old one
    assert pretrained.load(tmp_path / "b").generation_config == {}


def test_damaged_generation_settings_are_named(tmp_path):
    write(tmp_path, toy_file(toy()))
    (tmp_path / "generation_config.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match=r"generation_config\.json: damaged, or not JSON"):
        pretrained.load(tmp_path)


@pytest.mark.parametrize(
    "settings", [{"num_beams": 0}, {"bad_words_ids": [7]}, {"eos_token_id": [1, "x"]}]
)
def test_generation_settings_that_make_no_sense_are_named(settings, tmp_path):
    write(tmp_path, toy_file(toy()))
    (tmp_path / "generation_config.json").write_text(json.dumps(settings), encoding="utf-8")
    with pytest.raises(InputError, match=rf"generation_config\.json: {next(iter(settings))} is "):
        pretrained.load(tmp_path)


@pytest.mark.parametrize("name", ["generation_config.json", "config.json"])
def test_options_that_generate_lacks_are_named_once_where_they_would_change_the_text(
    name, tmp_path
):
    foreign = {"min_p": 0.1, "typical_p": 0.9, "suppress_tokens": [3], "num_beam_groups": 2}
    idle = {"typical_p": 1.0, "min_p": None, "suppress_tokens": [], "guidance_scale": 1}
    others = {"max_length": 9, "cache_implementation": "static", "output_scores": True}
    write(tmp_path, toy_file(toy()))
    path = tmp_path / name
    before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    path.write_text(json.dumps(before | idle | others), encoding="utf-8")
    pretrained.load(tmp_path)
    path.write_text(json.dumps(before | others | foreign), encoding="utf-8")
    names = "min_p, num_beam_groups, suppress_tokens, typical_p"
    with pytest.warns(UserWarning, match=rf"{name}: generate has no {names} and goes") as said:
        pretrained.load(tmp_path)
    assert len(said) == 1


def small_gpt(**ends):
    sizes = {"vocab_size": 11, "n_positions": 12, "n_embd": 8, "n_layer": 1, "n_head": 2}
    return models.GPT2LMHeadModel(models.GPT2Config(**sizes, **ends)).eval()


@pytest.mark.parametrize("settings", [None, {"top_k": 3}, {"eos_token_id": [7, 4]}])
def test_several_end_tokens_of_a_folder_all_end_a_text_and_the_config_has_the_first(
    settings, tmp_path
):
    small_gpt().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | {"eos_token_id": [7, 5]}
    path.write_text(json.dumps(config), encoding="utf-8")
    if settings is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(settings), encoding="utf-8")
    ends = (settings or {}).get("eos_token_id", [7, 5])
    for folder in (tmp_path, tmp_path / "again"):
        model = pretrained.load(folder)
        assert model.config.eos_token_id == 7
        wanted = (settings or {}) | {"eos_token_id": ends}
        if folder == tmp_path:
            wanted |= {} if settings else {"bos_token_id": 50256}
        else:  # as it was written: with the ids of the config
            wanted = {"bos_token_id": 50256} | wanted
        assert model.generation_config == wanted
        (made,) = model.generate([[1]], max_new_tokens=3, forced_eos_token_id=ends[1])
        assert made[-1] in ends
        assert models.GPT2Model.from_pretrained(folder).config.eos_token_id == 7
        model.save_pretrained(tmp_path / "again")


# -- tinyfm's own folders --------------------------------------------------------------------------


def tiny(seed=0, **changes):
    """A small Transformer with noise on every parameter."""
    tinyfm.manual_seed(seed)
    options = {"vocab_size": 11, "d_model": 8, "dropout": 0.0, "label_smoothing": 0.0}
    for side in ("encoder", "decoder"):
        options |= {f"{side}_layers": 2, f"{side}_attention_heads": 2, f"{side}_ffn_dim": 12}
    model = Transformer(TransformerConfig(**options | changes))
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data = (p.data + 0.5 * rng.standard_normal(p.shape)).astype(np.float32)
    return model.eval()


def logits(model):
    return model(np.array([[3, 4, 5]]), labels=np.array([[6, 7]])).logits.data


def saved(folder, **changes):
    model = tiny(**changes)
    model.save_pretrained(folder)
    return model


def change_config(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | changes), encoding="utf-8")


def complaint(folder, name):
    """The InputError that both ways of opening give: one line that names the file."""
    for opened in (Transformer.from_pretrained, pretrained.load):
        with pytest.raises(InputError) as caught:
            opened(folder)
        message = str(caught.value)
        assert "\n" not in message
        assert str(name) in message
    return message


def test_the_switches_of_the_transformer_survive(tmp_path):
    model = saved(tmp_path / "new" / "folder", share_embeddings=False, positions="learned")
    other = pretrained.load(tmp_path / "new" / "folder")
    assert other.config == model.config
    assert_allclose(logits(other), logits(model), atol=1e-5)
    assert other.embedding.weight is not other.head.weight


def test_the_folder_names_its_class_and_keeps_a_shared_table_once(tmp_path):
    model = saved(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["Transformer"]
    assert (config["model_type"], config["d_model"]) == ("transformer", 8)
    file = files.read_arrays(tmp_path / "model.safetensors")
    assert file.keys() == model.state_dict().keys()
    other = pretrained.load(tmp_path)
    assert other.embedding.weight is other.head.weight is other.decoder_embedding.weight


def test_folders_of_version_0_1_0_open(tmp_path):
    """Their names and fields, as they were; the layout of arrays too."""
    model = saved(tmp_path, encoder_layers=1, decoder_layers=1)
    names = {"embedding.weight"}
    for side, blocks in (("encoder", ["attention"]), ("decoder", ["attention", "cross"])):
        parts = ["feed_forward.up", "feed_forward.down", "feed_forward_norm"]
        for block in blocks:
            projections = ["qkv"] if block == "attention" else ["q", "kv"]
            parts += [f"{block}.{x}" for x in [*projections, "out"]] + [f"{block}_norm"]
        names |= {f"{side}.layers.0.{part}.{kind}" for part in parts for kind in ("weight", "bias")}
    assert files.read_arrays(tmp_path / "model.safetensors").keys() == names
    config = {
        "architectures": ["Transformer"], "model_type": "transformer", "vocab_size": 11,
        "d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 12, "decoder_ffn_dim": 12,
        "activation_function": "relu", "dropout": 0.0, "attention_dropout": 0.0,
        "activation_dropout": 0.0, "label_smoothing": 0.0, "max_position_embeddings": 512,
        "positions": "sinusoidal", "share_embeddings": True, "norm_first": False,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert_allclose(logits(pretrained.load(tmp_path)), logits(model), atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_r71_files_of_any_width_open_in_the_dtype_asked_for(dtype, tmp_path):
    file = {name: x.astype(dtype) for name, x in toy_file(toy()).items()}
    write(tmp_path, file)
    for wanted in (None, np.float64, np.float16):
        table = Toy.from_pretrained(tmp_path, dtype=wanted).table.weight.data
        expected = file["toy.words.weight"].astype(wanted or np.float32)
        assert_array_equal(table, expected, strict=True)


def test_numbers_of_numpy_are_numbers(tmp_path):
    """A size may be computed with NumPy; the config holds Python's, which JSON can hold."""
    values = {"vocab_size": np.int64(11), "dropout": np.float32(0.5), "activation_dropout": 0}
    config = TransformerConfig(**values)
    assert (config.vocab_size, config.dropout, config.activation_dropout) == (11, 0.5, 0.0)
    kinds = [type(getattr(config, name)) for name in values]
    assert kinds == [int, float, float]
    json.dumps(config.to_dict())
    for wrong in (11.0, np.float64(11), True, np.True_, "11"):
        with pytest.raises(ValueError, match=r"vocab_size is .*: it must be of type int"):
            TransformerConfig(vocab_size=wrong)
    with pytest.raises(ValueError, match="norm_first is 1: it must be of type bool"):
        TransformerConfig(norm_first=1)


def test_a_class_for_a_config_that_has_none_is_asked_for():
    for thing in (object(), PretrainedConfig):
        with pytest.raises(TypeError, match=r"no model is made from a .* TransformerConfig"):
            models.num_parameters(thing)


def test_a_config_ignores_unknown_keys():
    config = TransformerConfig.from_dict({"d_model": 64, "torch_dtype": "float16", "new": [1]})
    assert config == TransformerConfig(d_model=64)


# -- damage ----------------------------------------------------------------------------------------


def test_a_missing_folder(tmp_path):
    assert "no such folder" in complaint(tmp_path / "none", tmp_path / "none")


def test_a_file_in_place_of_a_folder(tmp_path):
    saved(tmp_path)
    file = tmp_path / "config.json"
    assert "is a file; give a folder that" in complaint(file, file)


def test_a_config_whose_architectures_are_null(tmp_path):
    """As if there were none: the first class for the model_type."""
    write(tmp_path, toy_file(toy()), architectures=None)
    same_parameters(pretrained.load(tmp_path), toy())
    assert pretrained.read_config(tmp_path)["architectures"] == []


def test_a_folder_without_config(tmp_path):
    assert "config.json" in complaint(tmp_path, tmp_path)


def test_a_folder_without_weights(tmp_path):
    saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert "no such file" in complaint(tmp_path, tmp_path / "model.safetensors")


DAMAGED = [
    "{",
    "",
    "[]",
    '"x"',
    "[" * 10,
    "[" * 100_000,
    '{"architectures": 5}',
    '{"architectures": [["x"]]}',
    '{"model_type": ["x"]}',
]


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_config(text, tmp_path):
    saved(tmp_path)
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    complaint(tmp_path, tmp_path / "config.json")


@pytest.mark.parametrize(
    "change",
    [
        {"d_model": 0},
        {"d_model": "wide"},
        {"d_model": 7},  # not a multiple of the heads
        {"encoder_attention_heads": 0},
        {"encoder_layers": 2.5},
        {"vocab_size": -1},
        {"pad_token_id": 10**6},
        {"eos_token_id": 11},  # the ids are 0 to 10
        {"pad_token_id": -1},
        {"eos_token_id": None},
        {"dropout": "x"},
        {"activation_function": ["relu"]},
        {"activation_function": "tan"},
        {"positions": 3},
    ],
    ids=str,
)
def test_a_config_with_impossible_values(change, tmp_path):
    saved(tmp_path)
    change_config(tmp_path, **change)
    complaint(tmp_path, tmp_path / "config.json")


HUGE = struct.pack("<Q", 10**12) + b"{}"
BFLOAT16 = b'{"x":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}'


def test_damaged_weights(tmp_path):
    saved(tmp_path)
    path = tmp_path / "model.safetensors"
    whole = path.read_bytes()
    bfloat16 = struct.pack("<Q", len(BFLOAT16)) + BFLOAT16 + b"\x80\x3f"
    page = b"<!DOCTYPE html><html><body>Not Found</body></html>"
    for content in (whole[:-5], b"", b"nonsense", HUGE, page, bfloat16):
        path.write_bytes(content)
        complaint(tmp_path, path)


def test_weights_that_do_not_fit_the_config(tmp_path):
    saved(tmp_path)
    change_config(tmp_path, vocab_size=12)
    message = complaint(tmp_path, tmp_path / "model.safetensors")
    assert "embedding.weight is (11, 8) instead of (12, 8)" in message


# -- writing ---------------------------------------------------------------------------------------


class Stopped(Exception):
    pass


@pytest.mark.parametrize("before", [True, False], ids=["over an old one", "new"])
@pytest.mark.parametrize("failing", ["weights", "config"])
def test_nothing_is_half_written_when_writing_fails(before, failing, tmp_path, monkeypatch):
    if before:
        saved(tmp_path)
    content = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def half(path):
        path.write_bytes(b"half of it")
        raise Stopped

    model = tiny(seed=1)
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        if failing == "weights":
            patch.setattr("safetensors.numpy.save_file", lambda state, path, *_: half(path))
        else:
            patch.setattr("pathlib.Path.write_text", lambda path, *a, **b: half(path))
        model.save_pretrained(tmp_path)
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    if failing == "weights":
        assert left == content
    else:  # the weights came first, and are whole
        assert left.keys() == content.keys() | {"model.safetensors"}
        assert left.get("config.json") == content.get("config.json")
        if before:
            loaded = pretrained.load(tmp_path).state_dict()
            assert_array_equal(loaded["embedding.weight"], model.embedding.weight.data)


def test_a_full_disk_is_an_oserror_that_names_the_file_and_leaves_the_old_one(tmp_path):
    saved(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    code = (
        "import resource, signal, sys\n"
        "from tinyfm_tests.test_pretrained import saved\n"
        "from pathlib import Path\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n"
        "    saved(Path(sys.argv[1]), seed=1)\n"
        "except OSError as error:\n"
        "    print(error.strerror, error.filename)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"File too large {tmp_path / 'model.safetensors'}\n"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_r54_the_config_is_utf8_and_may_begin_with_a_byte_order_mark(tmp_path):
    saved(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    text = json.dumps(config | {"note": "나는 학생입니다"}, ensure_ascii=False)
    path.write_bytes(b"\xef\xbb\xbf" + text.encode("utf-8"))
    assert pretrained.load(tmp_path).config.d_model == 8
    path.write_bytes(text.encode("euc-kr"))
    complaint(tmp_path, path)
