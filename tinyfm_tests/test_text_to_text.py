"""The text_to_text command: its files, pretraining and tasks, what it writes, what it refuses."""

import gzip
import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tinyfm import InputError, models, pretrained
from tinyfm.demos import learning, text_learning, text_tasks, text_to_text, transfer
from tinyfm.demos.families import T5
from tinyfm.demos.finetuning import Model
from tinyfm.demos.records import Records, TextPair, read_text_pairs
from tinyfm.demos.templates import TASKS, learnt
from tinyfm.objectives import fill_spans
from tinyfm.tokenizer import Tokenizer
from tinyfm_tests import commands

# Of the default training, and what can be had without learning anything.
LEAST = {
    "translation: BLEU": (8, 1),
    "acceptability: accuracy": (0.65, 0.55),
    "similarity: Pearson": (0.25, 0.0),
    "summary: ROUGE-L": (0.8, 0.5),
    "question: exact match": (0.1, 0.05),
}

call = partial(commands.call, text_to_text)
refused = partial(commands.refused, text_to_text)
SIZES = ["--hidden-size=32", "--layers=1", "--heads=2", "--ffn=64", "--vocab-size=150"]
TINY = [*SIZES, "--max-tokens=300", "--max-length=40"]
PAIRS = [
    TextPair("copy: red", "red", "copy"),
    TextPair("copy: blue", "blue", "copy"),
    TextPair("copy: green", "green", "copy"),
    TextPair("length: red", "3", "length"),
    TextPair("length: blue", "4", "length"),
]
LINES = "".join(
    json.dumps({"source": source, "target": target, "task": task}) + "\n"
    for source, target, task, _ in PAIRS
)
COLUMNS = "".join(f"{pair.source}\t{pair.target}\n" for pair in PAIRS)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "pairs.jsonl"
    path.write_text(LINES, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(file, tmp_path_factory):
    """(folder, output) of a training that learns the pairs by heart."""
    folder = tmp_path_factory.mktemp("trained")
    how = [*TINY, "--dropout=0", "--lr=0.01", "--pretraining-steps=3", "--steps=90"]
    status, out, err = call("--train", file, "--test", file, *how, "--save", folder)
    assert (status, err) == (0, "")
    return folder, out


def opened(folder, max_length=40):
    model = pretrained.load(folder)
    return Model(model, pretrained.load_tokenizer(folder), max_length, T5)


@pytest.fixture(scope="module")
def model(trained):
    return opened(trained[0])


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, content",
    [
        ("plain.jsonl", LINES.encode()),
        ("packed.jsonl.gz", gzip.compress(LINES.encode())),
        ("marked.jsonl", f"\ufeff{LINES}".encode()),
        ("blank.jsonl", LINES.replace("\n", "\r\n\r\n").encode()),
        ("columns.tsv", COLUMNS.encode()),
    ],
)
def test_pairs_are_read(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    records = read_text_pairs(tmp_path / name)
    tasks = name != "columns.tsv"
    assert records == [pair if tasks else pair._replace(task="") for pair in PAIRS]
    assert records.where(2) == f"{tmp_path / name}:{5 if name == 'blank.jsonl' else 3}"


@pytest.mark.parametrize(
    "lines, row, said",
    [
        (LINES, "{", ": not JSON"),
        (LINES, '["a"]', ": no JSON object"),
        (LINES, '{"target": "a"}', ": no 'source'; every record needs one"),
        (LINES, '{"source": "a"}', ": no 'target'; every record needs one"),
        (LINES, '{"source": "a", "target": 5}', ": 'target' is no text"),
        (LINES, '{"source": " ", "target": "a"}', ": 'source' is blank"),
        (LINES, '{"source": "a", "target": "b", "task": 1}', ": 'task' is no text"),
        (COLUMNS, "a", ": 0 tabs; write source, tab, target"),
        (COLUMNS, "a\tb\tc", ": 2 tabs; write source, tab, target"),
        (COLUMNS, "a\t", ": 'target' is blank"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_of_its_row(lines, row, said, tmp_path, caplog):
    (tmp_path / "f").write_text(f"{lines}{row}\n", encoding="utf-8")
    assert f"text_to_text: f:6{said}" in refused("--train=f", place=tmp_path)
    kept = read_text_pairs(tmp_path / "f", skip=True)
    assert len(kept) == 5 and "dropped 1 of 6 rows" in caplog.text


def test_an_empty_file(tmp_path):
    (tmp_path / "f").write_text("")
    assert "f: the file is empty" in refused("--train=f", place=tmp_path)


# -- hidden spans ----------------------------------------------------------------------------------


def records_of(*texts):
    return Records(list(texts), [f"f:{i}" for i in range(1, len(texts) + 1)])


def test_texts_fill_the_inputs_and_no_token_is_lost(model):
    texts = records_of("red blue green " * 30, "copy", "length red")
    blocks = [e["input_ids"] for e in text_learning.SpanCorruption().examples(texts, model)]
    tokens = [model.tokenizer.encode(text).ids[:-1] for text in texts]
    assert np.concatenate(blocks).tolist() == [i for ids in tokens for i in ids]
    hidden = text_learning.corrupted(blocks, model, np.random.default_rng(0))
    sizes = [len(example["input_ids"]) for example in hidden]
    assert {*sizes[:-1]} == {model.max_length} and sizes[-1] <= model.max_length


def test_spans_are_hidden_anew_in_each_epoch_and_can_be_put_back(model):
    task, args = text_learning.SpanCorruption(), text_to_text.new_parser().parse_args([])
    examples = task.examples(records_of("red blue green copy " * 40), model)
    change = task.change(args, model)
    batch = {
        "input_ids": np.array([example["input_ids"] for example in examples[:2]]),
        "attention_mask": np.ones((2, len(examples[0]["input_ids"])), int),
    }
    rng = np.random.default_rng(0)
    first, second = change(batch, rng), change(batch, rng)
    assert first["labels"].tolist() != second["labels"].tolist()
    assert change(batch, np.random.default_rng(0))["labels"].tolist() == first["labels"].tolist()
    for made in (first, second):
        for block, ids, labels in zip(
            batch["input_ids"], made["input_ids"], made["labels"], strict=True
        ):
            filled = fill_spans(ids, labels, model.tokenizer.sentinels, model.tokenizer.eos_id)
            assert filled.tolist() == block.tolist()


def test_padding_is_not_corrupted(model):
    """The last block is shorter than the others."""
    task, args = text_learning.SpanCorruption(), text_to_text.new_parser().parse_args([])
    ids = model.tokenizer.encode("red blue green").ids[:-1]
    batch = {
        "input_ids": np.array([[*ids, 0, 0], [*ids, *ids[:2]]]),
        "attention_mask": np.array([[1] * len(ids) + [0, 0], [1] * (len(ids) + 2)]),
    }
    made = task.change(args, model)(batch, np.random.default_rng(0))
    seen = made["input_ids"][0][made["attention_mask"][0] == 1]
    labels = made["labels"][0][made["labels"][0] != -100]
    end = model.tokenizer.eos_id
    assert fill_spans(seen, labels, model.tokenizer.sentinels, end).tolist() == ids


def test_a_text_of_one_token_has_nothing_to_hide(model):
    bare = type("Bare", (), {"eos_id": 1, "encode_batch": lambda _, texts: [[5, 1]]})
    one = model._replace(tokenizer=bare())
    with pytest.raises(InputError, match=r"f:1: 1 token in all, .*; give longer texts, or --pre"):
        text_learning.SpanCorruption().examples(records_of("a"), one)


def test_r47_too_many_spans_for_the_sentinels(tmp_path):
    (tmp_path / "f").write_text("red " * 3000 + "\tblue\n", encoding="utf-8")
    how = ("--train=f", *SIZES, "--max-length=2500", "--max-tokens=5000")
    said = refused(*how, place=tmp_path)
    assert re.search(r"need \d+ sentinels, and there are 100; give shorter texts", said)


# -- tasks -----------------------------------------------------------------------------------------


def test_r44_one_end_token_on_both_sides_also_where_they_are_cut(model):
    short = model._replace(max_length=6)
    long = "red blue green copy " * 4
    pairs = [*PAIRS, TextPair(long, "red"), TextPair("red", long)]
    for pair, example in zip(pairs, text_learning.TextTasks().examples(pairs, short), strict=True):
        for ids, text in zip(example.values(), pair[:2], strict=True):
            whole = short.tokenizer.encode(text).ids
            assert ids == [*whole[:-1][:5], whole[-1]] and ids.count(1) == 1


def test_what_is_cut_is_counted_on_both_sides(tmp_path):
    (tmp_path / "f").write_text(f"a\tb\nc\t{'d ' * 30}\n{'e ' * 30}\tf\n", encoding="utf-8")
    how = (*SIZES, "--max-tokens=80", "--max-length=20", "--steps=1", "--pretraining-steps=1")
    status, out, _ = call("--train=f", *how, cwd=tmp_path)
    assert status == 0 and out.count("reach --max-length") == 1
    assert "2 of 3 records reach --max-length 20: what is beyond it is left out" in out


def test_pairs_are_learnt_and_score_the_same_again(trained, file):
    folder, out = trained
    end = out[out.rindex(f"{file}: ") :]
    assert end.splitlines()[1:] == [
        "    copy: exact match 1, F1 1",
        "    length: exact match 1, F1 1",
    ]
    assert call("--model", folder, "--test", file) == (0, end, "")


def test_the_scores_are_those_of_each_text_by_itself(trained, model):
    """Of a model that is asked what it has not learnt."""
    pairs = [*PAIRS, TextPair("length: green", "5", "length"), TextPair("copy: 3", "3", "copy")]
    made = []
    for source, *_ in pairs:
        ids = model.model.generate(
            [model.tokenizer.encode(source).ids], max_new_tokens=30, do_sample=False
        )
        made.append(model.tokenizer.decode(ids[0]))
    hits = [text == pair.target for text, pair in zip(made, pairs, strict=True)]
    score = text_learning.TextTasks().score(Records(pairs, [""] * 7), model)
    assert score.numbers["length exact match"] == np.mean([hits[3], hits[4], hits[5]])
    assert score.numbers["copy exact match"] == np.mean([*hits[:3], hits[6]])
    assert not all(hits)


def test_sentinels_of_a_file_are_those_of_an_input(tmp_path):
    """Learnt from a file, scored on it, and asked for: the same ids, and the same answer."""
    words = [("c", "d", "e"), ("f", "g", "h"), ("i", "j", "k")]
    rows = [
        {"source": f"{a} <extra_id_0> {c}", "target": f"<extra_id_0> {b} <extra_id_1>"}
        for a, b, c in words
    ]
    path = tmp_path / "holes.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    how = [*TINY, "--dropout=0", "--lr=0.01", "--pretraining-steps=2", "--steps=80"]
    status, out, err = call("--train", path, "--test", path, *how, "--save", tmp_path / "holes")
    assert (status, err) == (0, "") and "exact match 1" in out.splitlines()[-1]
    ready = opened(tmp_path / "holes")
    first, second = ready.tokenizer.sentinels[:2]
    for example in text_learning.TextTasks().examples(
        Records.generated([TextPair(**rows[0])], "row"), ready
    ):
        assert example["input_ids"].count(first) == 1
        assert [id for id in example["labels"] if id in ready.tokenizer.sentinels] == [
            first,
            second,
        ]
    for row in rows:
        status, said, err = call("--model", tmp_path / "holes", "--input", row["source"])
        assert (status, err) == (0, "")
        assert said.replace(" ", "").strip() == row["target"].replace(" ", "")


def test_texts_that_are_cut_are_said_with_the_score(trained, tmp_path):
    (tmp_path / "long.tsv").write_text("copy: red\tred\ncopy: " + "red " * 40 + "\tred\n")
    how = ("--model", trained[0], "--test", "long.tsv", "--max-length", 10)
    status, out, _ = call(*how, cwd=tmp_path)
    assert status == 0 and "of 1 of 2 texts the end was left out" in out


def test_known_tasks_have_their_own_scores_with_a_guess_beside_them(model, monkeypatch):
    pairs = [
        TextPair("a", "0.0", "similarity", "2.4"),
        TextPair("b", "5.0", "similarity", "2.4"),
        TextPair("c", "red cat.", "summary", "red."),
    ]
    monkeypatch.setattr(text_learning, "written", lambda *_: ["1.0", "3.0", "red cat."])
    score = text_learning.TextTasks().score(Records(pairs, [""] * 3), model)
    assert score.numbers == {"similarity Pearson": 1.0, "summary ROUGE-L": 1.0}
    _, first, second = score.text.splitlines()
    assert first == "    similarity: Pearson 1 (0), Spearman 1 (0)"
    assert second.startswith("    summary: ROUGE-L 1 (0.667), ")


# -- writing ---------------------------------------------------------------------------------------


def test_inputs_are_answered(trained):
    folder = trained[0]
    assert call("--model", folder, "--input", "length: blue") == (0, "4\n", "")
    lines = b"copy: red\n\nlength: red\n"
    assert call("--model", folder, stdin=lines) == (0, "red\n\n3\n", "")
    several = ("--beams=2", "--num-return-sequences=2")
    status, out, _ = call("--model", folder, "--input", "copy: blue", *several)
    assert status == 0 and out.split("\t")[0] == "blue" and out.count("\t") == 1


def test_spans_are_filled_by_what_is_only_pretrained(trained, monkeypatch):
    folder = trained[0] / text_to_text.PRETRAINED
    seen = []
    generate = models.T5ForConditionalGeneration.generate

    def noted(self, ids, *arguments, **options):
        seen.append(ids)
        sentinel = pretrained.load_tokenizer(folder).sentinels[0]
        return np.array([[0, sentinel, *generate(self, ids, *arguments, **options)[0][1:], 1, 0]])

    monkeypatch.setattr(models.T5ForConditionalGeneration, "generate", noted)
    status, out, err = call("--model", folder, "--input", "copy <extra_id_0> red")
    tokenizer = pretrained.load_tokenizer(folder)
    assert (status, err) == (0, "") and tokenizer.sentinels[0] in seen[0]
    assert out.startswith("<extra_id_0>") and "</s>" not in out and "<pad>" not in out


@pytest.mark.parametrize("size", ["t5", "mt5"])
def test_a_published_model_takes_any_input_and_learns_pairs(size, file, tmp_path):
    tokenizer = Tokenizer.train_unigram([LINES], 200)
    tokenizer.save(tmp_path / "body")
    config, cls = {
        "t5": (models.T5Config, models.T5ForConditionalGeneration),
        "mt5": (models.MT5Config, models.MT5ForConditionalGeneration),
    }[size]
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    known = {"summarization": {"prefix": "summarize: "}}
    body = cls(config(vocab_size=200, task_specific_params=known, **sizes))
    body.save_pretrained(tmp_path / "body")
    assert call("--model", tmp_path / "body", "--input", "whatever")[0] == 0
    how = ("--train", file, "--test", file, "--steps=2", "--save", tmp_path / "tuned")
    status, out, err = call(*how, "--model", tmp_path / "body")
    assert (status, err) == (0, "") and "5 records" in out
    assert not (tmp_path / "tuned" / text_to_text.PRETRAINED).exists()
    assert type(pretrained.load(tmp_path / "tuned")) is cls


# -- the generated tasks ---------------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch):
    """Little of the generated data."""
    records = {
        "translation": [{"english": "He ran.", "korean": "그는 달렸다."}],
        "acceptability": [{"sentence": "He run.", "label": "unacceptable"}],
        "similarity": [{"sentence1": "A b.", "sentence2": "A c.", "score": 2.5}],
        "summary": [{"passage": "It rained. A cat sat.", "summary": "A cat sat."}],
        "question": [{"question": "Who?", "context": "Ann sang.", "answer": "Ann"}],
    }
    pairs = text_tasks.pairs({name: 2 * some for name, some in records.items()})
    lines = Records.generated(["He ran far.", "Ann sang a song."], "line")
    monkeypatch.setattr(text_tasks, "records", lambda: (pairs, {"others": pairs}))
    monkeypatch.setattr(text_tasks, "texts", lambda: (lines, {"held-out lines": lines}))


def test_what_could_not_be_answered_is_found_before_a_training(few, tmp_path):
    how = (*TINY[:4], "--input", "shorten: It rained.")
    for steps in ("--pretraining-steps=1", "--pretraining-steps=0"):
        said = refused(*how, steps, place=tmp_path)
        assert "--input: this is put as no task that the model has learnt" in said


def test_inputs_that_are_put_as_no_task_it_has_learnt(few, file, tmp_path):
    how = (*TINY[:4], "--vocab-size=200", "--steps=1", "--pretraining-steps=1")
    status, out, err = call(*how, "--save=m", cwd=tmp_path)
    assert (status, err) == (0, "")
    assert re.findall("^    ([a-z]+): ", out, re.MULTILINE)[-5:] == learnt()
    assert call("--model=m", "--input", "summarize: It rained. A cat sat.", cwd=tmp_path)[0] == 0
    said = refused("--model=m", "--input", "shorten: It rained.", place=tmp_path)
    assert "--input: this is put as no task that the model has learnt; those are: " in said
    assert "translate English to Korean: ..., In Korean: ..., cola sentence: ..., " in said
    status, out, err = call("--model=m", stdin=b"cola sentence: He ran.\nHe ran.\n", cwd=tmp_path)
    assert status == 2 and out.count("\n") == 1 and "standard input:2: this is put as" in err
    # What was learnt from a file afterwards may be put in any way.
    call("--model=m", "--train", file, "--steps=1", "--save=more", cwd=tmp_path)
    assert call("--model=more", "--input", "shorten: It rained.", cwd=tmp_path)[0] == 0


def test_the_generated_tasks_for_a_model_that_is_there(few, trained, tmp_path):
    how = ("--model", trained[0], "--train=generated", "--steps=1", "--save=m")
    status, out, err = call(*how, cwd=tmp_path)
    assert (status, err) == (0, "") and out.startswith("10 records")
    assert not (tmp_path / "m" / text_to_text.PRETRAINED).exists()


def test_the_comparison_begins_with_the_same_and_has_as_many_steps_a_task(
    few, tmp_path, monkeypatch
):
    begun = []
    learn = transfer.Student.learn

    def noted(self, what, task, records, steps):
        weight = self.model.model.state_dict()["embedding.weight"].copy()
        begun.append(
            (
                what,
                {pair.task for pair in records if task.__class__.__name__ == "TextTasks"},
                steps,
                weight,
            )
        )
        learn(self, what, task, records, steps)

    monkeypatch.setattr(transfer.Student, "learn", noted)
    how = (*TINY[:4], "--vocab-size=200", "--steps=12", "--pretraining-steps=2", "--compare")
    status, out, err = call(*how, cwd=tmp_path)
    assert (status, err, [*tmp_path.iterdir()]) == (0, "", [])
    spans, mixture, *alone, scratch = begun
    assert [step for _, _, step, _ in begun] == [2, 12, 3, 3, 3, 3, 3, 12]
    assert [tasks for _, tasks, _, _ in alone] == [{name} for name in learnt()]
    assert mixture[1] == scratch[1] == {*learnt()}
    for _, _, _, weight in alone:
        assert (weight == mixture[3]).all() and (weight != spans[3]).any()
    assert (scratch[3] == spans[3]).all()
    title, *rows = out.splitlines()[-6:]
    assert title.split() == ["guessed", "mixture", "a", "model", "each", "not", "pretrained"]
    assert [row.split()[0] for row in rows] == learnt()
    assert all(len(row.split()) >= 6 for row in rows)


# -- going on --------------------------------------------------------------------------------------

STEPS = ("--pretraining-steps=6", "--steps=6", "--dropout=0.1", "--schedule=constant")


def weights(folder):
    return (Path(folder) / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def whole(file, tmp_path_factory):
    """What two trainings that nothing stops leave."""
    folder = tmp_path_factory.mktemp("whole")
    assert call("--train", file, *TINY, *STEPS, "--save", folder)[0] == 0
    return folder


def test_r38_stopped_while_it_pretrains(whole, file, tmp_path, monkeypatch):
    """And in a folder that holds an older model with its training."""
    assert call("--train", file, *TINY, "--pretraining-steps=1", "--steps=1", "--save=m",
                cwd=tmp_path)[0] == 0  # fmt: skip
    corrupted, calls = text_learning.corrupted, []

    def stop(*arguments):
        calls.append(arguments)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return corrupted(*arguments)

    monkeypatch.setattr(text_learning, "corrupted", stop)
    status, _, err = call("--train", file, *TINY, *STEPS, "--save=m", cwd=tmp_path)
    assert status == 130 and "what was learnt is in m/pretrained, --resume goes on" in err
    status, _, err = call("--resume", "--save=m", cwd=tmp_path)
    assert (status, err) == (0, "")
    for folder in (".", text_to_text.PRETRAINED):
        assert weights(tmp_path / "m" / folder) == weights(whole / folder)


def test_r38_stopped_between_the_two(whole, file, tmp_path, monkeypatch):
    run = text_to_text.run

    def first_only(task, *arguments):
        if isinstance(task, text_learning.TextTasks):
            raise KeyboardInterrupt
        return run(task, *arguments)

    monkeypatch.setattr(text_to_text, "run", first_only)
    assert call("--train", file, *TINY, *STEPS, "--save=m", cwd=tmp_path)[0] == 130
    monkeypatch.undo()
    assert call("--resume", "--save=m", cwd=tmp_path)[0] == 0
    assert weights(tmp_path / "m") == weights(whole)


def test_r38_more_steps_after_the_end(whole, file, tmp_path):
    how = ("--train", file, *TINY, *STEPS[:1], *STEPS[2:])
    assert call(*how, "--steps=4", "--save=m", cwd=tmp_path)[0] == 0
    status, out, err = call("--resume", "--steps=6", "--save=m", cwd=tmp_path)
    assert (status, err) == (0, "") and "after 6 steps" in out
    assert out.count(" an epoch") == 1, "nothing is done anew"
    assert weights(tmp_path / "m") == weights(whole)


def test_curves_of_both_trainings(file, tmp_path):
    how = ("--train", file, *TINY, "--pretraining-steps=1", "--steps=1", "--plot=p")
    status, out, err = call(*how, cwd=tmp_path)
    assert (status, err) == (0, "") and out.endswith("plots are in p\n")
    assert {path.name for path in (tmp_path / "p").iterdir()} == {"pretraining.png", "tasks.png"}


def test_without_pretraining(file, tmp_path):
    how = ("--train", file, *TINY, "--pretraining-steps=0", "--steps=1", "--save=m")
    status, _, err = call(*how, cwd=tmp_path)
    assert (status, err) == (0, "") and not (tmp_path / "m" / text_to_text.PRETRAINED).exists()
    assert learning.begun(tmp_path / "m")


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, said",
    [
        ("--model m --train f --pretraining-steps=5", "--pretraining-steps is for a new model"),
        ("--pretraining-steps=-1", "--pretraining-steps: give a whole number of at least 0"),
        ("--model m --steps=5", "--steps is for a training: give --train too"),
        ("--model m --plot=p", "--plot draws a training: give --train too"),
        ("--compare --train f", "--compare makes models of its own: leave --train out"),
        ("--compare --input a", "--compare makes models of its own: leave --input out"),
        ("--compare --resume", "--compare makes models of its own: leave --resume out"),
        ("--train f --hidden-size=16 --heads=3", "16 is not a multiple of --heads 3"),
        ("--train f --max-length=2", "--max-length 2: no text has something to hide and to keep"),
        ("--train f --max-length=1 --pretraining-steps=0", "--max-length 1: 1 special tokens"),
        (
            "--train f --max-tokens=4",
            "--max-tokens 4: a batch must hold a source and a target of --max",
        ),
        ("--train f --input=", "--input: no text; write a task"),
        ("--top-k=5", "--top-k is for drawing: give a --temperature above 0"),
    ],
)
def test_r77_bad_options(arguments, said, tmp_path):
    (tmp_path / "f").write_text(LINES, encoding="utf-8")
    assert said in refused(*arguments.split(), place=tmp_path)


def test_an_input_that_is_too_long(trained, tmp_path):
    how = ("--model", trained[0], "--max-length=5", "--input", "copy: red blue green")
    assert re.search(
        r"--input: \d+ tokens are over --max-length 5; cut", refused(*how, place=tmp_path)
    )


# -- the promise of the command --------------------------------------------------------------------


@pytest.mark.slow
def test_without_options_it_learns_five_tasks(tmp_path):
    status, out, err = commands.run("text_to_text", cwd=tmp_path)
    assert (status, err) == (0, "")
    learnt_tasks = out[out.rindex("tasks that it has learnt:") :]
    for name, (least, trivial) in LEAST.items():
        task, score = name.split(": ")
        found, guess = re.search(rf"{task}: .*?{score} (\S+) \((\S+?)\)", learnt_tasks).groups()
        assert float(guess) <= trivial < least <= float(found), name
    asked = (
        "--input",
        "summarize: It was late. The cat eats the cake in the hall. It rained all day.",
    )
    status, out, err = call("--model", tmp_path / "text-model", *asked)
    assert (status, out, err) == (0, "The cat eats the cake in the hall.\n", "")
    said = refused("--model=text-model", "--input=shorten: It was late.", place=tmp_path)
    assert all(task.wordings[0].split("{")[0] in said for n, task in TASKS.items() if n in learnt())
