"""The tag command: its files, the tags it keeps, what it finds and where."""

import gzip
import json
import re
import unicodedata
from functools import partial

import numpy as np
import pytest

from tinyfm import metrics, pretrained
from tinyfm.demos import tag
from tinyfm.demos.encoders import open_model
from tinyfm.demos.finetuning import Model
from tinyfm_tests import commands
from tinyfm_tests.test_finetuning import TINY, published

LEAST_F1 = 0.9  # of the default training

call = partial(commands.call, tag)
refused = partial(commands.refused, tag)

# People are called Ann or Bob, some of them Lee as well; towns are Rome or 서울.
SENTENCES = [
    [(first, "B-PER"), *last, (verb, "O"), ("in", "O"), (town, "B-LOC"), (".", "O")]
    for first in ("Ann", "Bob")
    for last in ([], [("Lee", "I-PER")])
    for verb in ("slept", "ate", "sang")
    for town in ("Rome", "서울")
]
COLUMNS = "\n\n".join("\n".join("\t".join(pair) for pair in s) for s in SENTENCES)
OBJECTS = [
    dict(zip(("tokens", "ner_tags"), map(list, zip(*s, strict=True)), strict=True))
    for s in SENTENCES
]
LINES = "\n".join(map(json.dumps, OBJECTS))
SHAPES = {
    "columns.txt": COLUMNS.encode(),
    "spaces.txt": COLUMNS.replace("\t", " NN ").encode(),
    "documents.txt": f"-DOCSTART- O\n\n{COLUMNS}\n\n".encode(),
    "packed.txt.gz": gzip.compress(COLUMNS.encode()),
    "marked.txt": f"\ufeff{COLUMNS}".encode(),
    "windows.txt": COLUMNS.replace("\n", "\r\n").encode(),
    "lines.jsonl": LINES.encode(),
}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "columns.txt"
    path.write_bytes(SHAPES["columns.txt"])
    return path


@pytest.fixture(scope="module")
def learnt(file, tmp_path_factory):
    """(folder, output) of a training that learns the sentences by heart."""
    folder = tmp_path_factory.mktemp("learnt")
    how = ["--hidden-size=32", "--layers=1", "--heads=2", "--ffn=32", "--dropout=0", "--lr=0.01"]
    status, out, err = call(
        "--train", file, "--test", file, *how, "--steps=40", "--max-length=24", "--save", folder
    )
    assert (status, err) == (0, "")
    return folder, out


def test_every_form_of_a_file_gives_the_same_model(tmp_path):
    models = set()
    for name, content in SHAPES.items():
        (tmp_path / name).write_bytes(content)
        how = ("--train", name, "--steps=2", *TINY, "--save", f"m{name}")
        status, out, _ = call(*how, cwd=tmp_path)
        assert status == 0 and out.startswith("24 records, "), name
        models.add((tmp_path / f"m{name}" / "model.safetensors").read_bytes())
    assert len(models) == 1


def test_the_tags_are_kept_and_printed(learnt):
    """With the I-LOC that stands nowhere, so that a test may have it."""
    names = ["O", "B-LOC", "B-PER", "I-LOC", "I-PER"]
    assert f"labels: {', '.join(names)}\n" in learnt[1]
    config = json.loads((learnt[0] / "config.json").read_text("utf-8"))
    assert config["id2label"] == {str(i): name for i, name in enumerate(names)}
    assert config["label2id"] == {name: i for i, name in enumerate(names)}


def test_entities_are_learnt_and_score_the_same_again(learnt, file):
    folder, out = learnt
    last = f"{file}: precision 1.0000, recall 1.0000, F1 1.0000 of entities (24 sentences)\n"
    assert out.endswith(last)
    assert call("--model", folder, "--test", file) == (0, last, "")


def test_entities_are_found_with_their_places(learnt):
    text = "  Ann Lee   sang in\t서울."
    status, out, err = call("--model", learnt[0], "--text", text)
    assert (status, err) == (0, "")
    found = [line.split("\t") for line in out.splitlines()]
    assert [cells[:2] for cells in found] == [["PER", "Ann Lee"], ["LOC", "서울"]]
    assert [text[int(start) : int(end)] for *_, start, end in found] == ["Ann Lee", "서울"]


def test_places_are_those_of_whole_words_though_they_are_of_many_pieces(tmp_path, monkeypatch):
    model = pretrained.load(published(tmp_path, "Bert"))
    ready = Model(model, pretrained.load_tokenizer(tmp_path, model), 40)
    monkeypatch.setattr(tag, "predicted_tags", lambda *_: [["B-PER", "I-PER", "O", "B-LOC"]])
    found = tag.find(ready, " kot  vidi- pes")
    assert found == [("PER", "kot  vidi", 1, 10), ("LOC", "pes", 12, 15)]


def test_places_are_those_of_whole_words_in_any_form(learnt, monkeypatch):
    """A decomposed character, with what is not seen, belongs to its word to its end."""
    ready = Model(*open_model(learnt[0], "ForTokenClassification"), 40)
    words = ["서울", "Rome\u0301", "강\u200b"]
    text = unicodedata.normalize("NFD", f"Ann {' '.join(words)}")
    tags = ["O", "B-LOC", "B-LOC", "B-LOC"]
    monkeypatch.setattr(tag, "predicted_tags", lambda *_: [tags])
    found = [one.text for one in tag.find(ready, text)]
    assert found == [unicodedata.normalize("NFD", word) for word in words]


def test_capitals_are_kept_in_a_vocabulary_that_is_learnt(learnt):
    tokenizer = pretrained.load_tokenizer(learnt[0])
    assert tokenizer.encode("Ann").ids != tokenizer.encode("ann").ids


def test_a_blank_line_ends_the_entities_of_each_line(learnt):
    lines = "Bob ate in Rome.\n\n???\nAnn slept in 서울."
    status, out, err = call("--model", learnt[0], stdin=lines.encode())
    assert (status, err) == (0, "")
    first, last = (call("--model", learnt[0], "--text", x)[1] for x in lines.split("\n")[::3])
    assert first.count("\n") == last.count("\n") == 2
    assert re.fullmatch(rf"{first}\n\n(.+\n)*\n{last}\n", out)
    assert call("--model", learnt[0], "--text", "") == (0, "", "")


def test_the_score_is_that_of_what_it_finds(file, tmp_path):
    """Of a model that has learnt next to nothing, from the logits of each word by itself."""
    how = ("--train", file, "--steps=8", "--lr=0.01", *TINY, "--save", tmp_path)
    out = call(*how, "--test", file)[1]
    model, tokenizer = open_model(tmp_path, "ForTokenClassification")
    true, found = [], []
    for sentence in SENTENCES:
        words, tags = zip(*sentence, strict=True)
        pieces = [tokenizer.encode(word).ids[1:-1] for word in words]
        inner = [piece for word in pieces for piece in word]
        ids = [tokenizer.cls_id, *inner, tokenizer.sep_id]
        best = model(input_ids=[ids]).logits.data[0].argmax(-1)
        firsts = np.cumsum([1, *map(len, pieces[:-1])])
        true.append(list(tags))
        found.append([model.config.id2label[int(best[i])] for i in firsts])
    scores = metrics.entity_f1(true, found)
    said = re.search(r"precision (\S+), recall (\S+), F1 (\S+) of entities", out).groups()
    assert [float(x) for x in said] == pytest.approx(scores[:3], abs=1e-4)
    assert 0 < scores.f1 < 1


def test_words_that_are_cut_are_counted_and_are_missed(learnt, tmp_path):
    """24 tokens with two special ones: of 30 words 8 are cut, and with them one of two names."""
    sentence = ["Ann\tB-PER", *["in\tO"] * 27, "Bob\tB-PER", ".\tO"]
    (tmp_path / "f").write_text("\n".join(sentence), encoding="utf-8")
    _, out, _ = call("--model", learnt[0], "--test", "f", cwd=tmp_path)
    said = "recall 0.5000, F1 0.6667 of entities (1 sentences; 8 words are cut and count as O)"
    assert out == f"f: precision 1.0000, {said}\n"
    status, out, err = call("--model", learnt[0], "--text", "Ann " + "in " * 27 + "Bob.")
    assert (status, out) == (0, "PER\tAnn\t0\t3\n")
    assert err == "--text: 32 subwords, and the model takes 24: the end is cut\n"
    status, _, err = call("--model", learnt[0], stdin=b"Ann\n" + b"in " * 30)
    assert status == 0 and err.startswith("standard input:2: 32 subwords, and")


def test_words_without_a_piece_are_o(learnt):
    model = Model(*open_model(learnt[0], "ForTokenClassification"), 24)
    task = tag.Tagging()
    record = tag.TaggedWords(("Ann", "\x00", "slept"), ("B-PER", "O", "O"))
    score = task.score(tag.Records([record], ["f:1"]), model)
    assert score.numbers == {"precision": 1, "recall": 1, "F1": 1}
    (example,) = task.examples([record], model)
    ids = model.model.config.label2id
    assert example["labels"].tolist() == [-100, ids["B-PER"], ids["O"], -100]


@pytest.mark.parametrize(
    "text, said",
    [
        ("Ann\tB-PER\nate\n", "f:2: no tag after 'ate'; put a tab and a tag there"),
        ("Ann\tB-PER\nate\tVERB\n", "f:2: tag 'VERB' is neither O nor B-TYPE"),
        ("Ann\tO\nate\tO\n\nBob\tO", "f:1: here and in the rest of the file every tag is O"),
        ('{"tokens": ["Ann"], "ner_tags": []}\n', "f:1: 'ner_tags' is no list of texts"),
        ('{"tokens": ["Ann", "ate"], "ner_tags": ["O"]}', "f:1: 2 tokens but 1 ner_tags"),
        ('{"tokens": ["Ann"]}', "f:1: no 'ner_tags'"),
        ('{"tokens": ["Ann"], "ner_tags": [1]}', "f:1: 'ner_tags' is no text"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_of_its_row(text, said, tmp_path):
    (tmp_path / "f").write_text(text, encoding="utf-8")
    assert said in refused("--train", "f", place=tmp_path)


@pytest.mark.parametrize("option", ["--valid", "--test"])
def test_tags_that_the_model_lacks(option, file, learnt, tmp_path):
    (tmp_path / "f").write_text("Ann\tB-PER\nate\tO\nEOF\tB-ORG", encoding="utf-8")
    said = "f:3: tag 'B-ORG' is none of O, B-LOC, B-PER, I-LOC, I-PER"
    assert said in refused("--train", file, option, "f", place=tmp_path)
    if option == "--test":
        assert said in refused("--model", learnt[0], option, "f", place=tmp_path)


def test_a_model_that_tags_something_else(learnt, tmp_path):
    model = pretrained.load(learnt[0])
    model.config.id2label = dict(enumerate(("NOUN", "VERB", "X", "Y", "Z")))
    model.config.label2id = {name: i for i, name in model.config.id2label.items()}
    model.save_pretrained(tmp_path / "m")
    pretrained.load_tokenizer(learnt[0]).save(tmp_path / "m")
    said = refused("--model=m", "--text=Ann", place=tmp_path)
    assert "m: tag 'NOUN' is neither O nor B-TYPE" in said and "give a model that" in said


@pytest.mark.slow
def test_without_options_it_learns_to_tag(tmp_path):
    status, out, err = commands.run("tag", cwd=tmp_path)
    assert (status, err) == (0, "")
    scores = re.findall(r"^[^ ].*: precision .*, F1 (\S+) of", out, re.MULTILINE)
    assert scores and min(map(float, scores)) >= LEAST_F1
