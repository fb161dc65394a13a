"""The answer command: its files, long passages in windows, questions without an answer."""

import gzip
import json
import re
import unicodedata
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from tinyfm import Tensor, metrics
from tinyfm.demos import answer
from tinyfm.demos.encoders import open_model
from tinyfm.demos.finetuning import Model
from tinyfm.demos.records import Answer, Question
from tinyfm_tests import commands
from tinyfm_tests.test_finetuning import TINY

LEAST_EM = 0.6  # of the default training

call = partial(commands.call, answer)
refused = partial(commands.refused, answer)

# Where is the `moka`? The two words after it; the passage may tell of none.
FILLING = ("pa", "sol", "ki", "lum")
PLACES = ("oben", "unten", "rechts", "links")


def question(before, place, after):
    """A passage of so many words before and after the answer; place None: there is none."""
    words = [FILLING[i % 4] for i in range(before)]
    told = ["moka", "zu", place] if place else ["pa"]
    context = " ".join([*words, *told, *(FILLING[(i + 1) % 4] for i in range(after))])
    answers = [{"text": f"zu {place}", "answer_start": context.index("zu ")}] if place else []
    return {"question": "wo moka", "context": context, "answers": answers}


RECORDS = [
    question(before, place, after)
    for before in (0, 1, 2, 3, 5, 8)
    for place in (*PLACES, None)
    for after in (0, 1, 4)
]
ANSWERED = [record for record in RECORDS if record["answers"]]


def squad(records, version):
    """The same in SQuAD's shape: the questions of one passage together."""
    paragraphs = []
    for number, record in enumerate(records):
        asked = {"id": f"q{number}", "question": record["question"], "answers": record["answers"]}
        if version == "v2.0":
            asked["is_impossible"] = not record["answers"]
        paragraphs.append({"context": record["context"], "qas": [asked]})
    return {"version": version, "data": [{"title": "t", "paragraphs": paragraphs}]}


def by_column(record):
    """The answers as Hugging Face's data sets have them."""
    answers = record["answers"]
    columns = {key: [answer[key] for answer in answers] for key in ("text", "answer_start")}
    return record | {"answers": columns}


def lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


SHAPES = {
    "lines.jsonl": lines(RECORDS).encode(),
    "columns.jsonl": lines(map(by_column, RECORDS)).encode(),
    "squad2.json": json.dumps(squad(RECORDS, "v2.0")).encode(),
    "wide.json": json.dumps(squad(RECORDS, "v2.0"), indent=1).encode(),
    "packed.jsonl.gz": gzip.compress(lines(RECORDS).encode()),
    "marked.jsonl": ("\ufeff" + lines(RECORDS)).encode(),
}
LEARN = ["--hidden-size=32", "--layers=1", "--heads=2", "--ffn=32", "--dropout=0", "--lr=0.01"]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "lines.jsonl"
    path.write_bytes(SHAPES["lines.jsonl"])
    return path


@pytest.fixture(scope="module")
def learnt(file, tmp_path_factory):
    """(folder, output) of a training that learns the questions; it reads 16 tokens at once."""
    folder = tmp_path_factory.mktemp("learnt")
    status, out, err = call(
        "--train", file, "--test", file, *LEARN, "--steps=120", "--max-length=16", "--save", folder
    )
    assert (status, err) == (0, "")
    return folder, out


# -- files -----------------------------------------------------------------------------------------


def test_every_form_of_a_file_gives_the_same_model(tmp_path):
    models = set()
    for name, content in SHAPES.items():
        (tmp_path / name).write_bytes(content)
        how = ("--train", name, "--steps=2", *TINY, "--save", f"m{name}")
        status, out, _ = call(*how, cwd=tmp_path)
        assert status == 0 and out.startswith("90 records, "), name
        models.add((tmp_path / f"m{name}" / "model.safetensors").read_bytes())
    assert len(models) == 1


def test_a_file_of_squad_1_in_which_all_have_an_answer(learnt, tmp_path):
    (tmp_path / "f").write_text(json.dumps(squad(ANSWERED, "1.1")), encoding="utf-8")
    status, out, _ = call("--model", learnt[0], "--test", "f", cwd=tmp_path)
    assert (status, out) == (0, "f: EM 100.00%, F1 100.00% (72 questions)\n")


@pytest.mark.parametrize("threshold", ["-1000", "1000"])
def test_that_there_is_none_is_asked_only_where_it_may_be(threshold, learnt, file, tmp_path):
    """With a threshold that always, or never, leaves a question without an answer."""
    (tmp_path / "f").write_text(json.dumps(squad(ANSWERED, "1.1")), encoding="utf-8")
    how = ("--model", learnt[0], "--null-threshold", threshold)
    _, out, _ = call(*how, "--test", "f", cwd=tmp_path)
    assert out == "f: EM 100.00%, F1 100.00% (72 questions)\n"
    _, out, _ = call(*how, "--test", file)
    right, none = (20, 18) if threshold == "-1000" else (80, 0)
    share = f"EM {right}.00%, F1 {right}.00% (90 questions, 18 without an answer: {none} of them"
    assert share in out


@pytest.mark.parametrize(
    "change, said",
    [
        ({"question": None}, "f:1: 'question' is no text"),
        ({"context": " "}, "f:1: 'context' is blank"),
        ({"answers": [{"text": "moka", "answer_start": 1}]}, "f:1: answer_start 1 does not point"),
        ({"answers": [{"text": "pa"}]}, "f:1: answers are not of the form"),
        ({"is_impossible": True}, "f:1: 1 answers, but is_impossible is True"),
    ],
)
def test_what_is_wrong_with_a_line_is_said_of_it(change, said, tmp_path):
    (tmp_path / "f").write_text(lines([ANSWERED[0] | change]), encoding="utf-8")
    assert said in refused("--train", "f", place=tmp_path)


def test_what_is_wrong_in_squads_shape_is_said_of_the_question(tmp_path):
    whole = squad(ANSWERED, "1.1")
    whole["data"][0]["paragraphs"][2]["qas"][0]["answers"][0]["answer_start"] += 1
    (tmp_path / "f").write_text(json.dumps(whole), encoding="utf-8")
    assert "f: question q2: answer_start 6 does not" in refused("--train", "f", place=tmp_path)
    (tmp_path / "f").write_text('{"data": [{"paragraph": []}]}', encoding="utf-8")
    assert "f: not in SQuAD's shape after 0 questions" in refused("--train", "f", place=tmp_path)


# -- what is learnt --------------------------------------------------------------------------------


def test_answers_are_learnt_and_score_the_same_again(learnt, file):
    folder, out = learnt
    share = "EM 100.00%, F1 100.00%"
    last = f"{file}: {share} (90 questions, 18 without an answer: 18 of them found)\n"
    assert out.endswith(last)
    assert call("--model", folder, "--test", file) == (0, last, "")


def test_a_question_is_answered_as_a_line_is(learnt):
    asked = ("wo moka", "pa  moka zu  links sol ki")
    status, out, err = call("--model", learnt[0], "--question", asked[0], "--context", asked[1])
    assert (status, err) == (0, "")
    assert re.fullmatch(r"zu  links\t\d+\.\d{4}\n", out)  # as it stands in the passage
    given = "\t".join(asked)
    lines = f"{given}\n\n  \n{given}".encode()
    assert call("--model", learnt[0], stdin=lines) == (0, f"{out}\n\n{out}", "")


def test_the_best_answers_come_in_their_order(learnt):
    how = ("--model", learnt[0], "--question=wo moka", "--context", ANSWERED[0]["context"])
    _, out, _ = call(*how, "--n-best=4")
    answers, scores = zip(*(line.split("\t") for line in out.splitlines()), strict=True)
    assert len(set(answers)) == 4 and answers[0] == "zu oben"
    assert [float(s) for s in scores] == sorted(map(float, scores), reverse=True)
    _, out, _ = call(*how, "--n-best=4", "--null-threshold=-1000")
    assert out.startswith("(no answer)\t") and out.splitlines()[1].startswith("zu oben\t")


@pytest.mark.parametrize("before", [0, 9, 40, 200])
def test_r52_an_answer_anywhere_in_a_long_passage_is_found(before, learnt, tmp_path):
    """In windows of 16 tokens; and that there is none, over all of them."""
    record = question(before, "links", 200 - before)
    how = ("--model", learnt[0], "--question=wo moka")
    _, out, _ = call(*how, "--context", record["context"])
    assert out.startswith("zu links\t")
    _, out, _ = call(*how, "--context", question(before, None, 200 - before)["context"])
    assert out.startswith("(no answer)\t")


def test_the_score_is_that_of_the_answers(file, tmp_path):
    """Of a model that has learnt next to nothing, counted from what it prints."""
    how = ("--train", file, "--steps=12", "--lr=0.003", *TINY, "--save", tmp_path)
    out = call(*how, "--test", file)[1]
    asked = "".join(f"{r['question']}\t{r['context']}\n" for r in RECORDS)
    _, answers, _ = call("--model", tmp_path, stdin=asked.encode())
    found = [line.split("\t")[0].replace("(no answer)", "") for line in answers.splitlines()]
    true = [[a["text"] for a in record["answers"]] for record in RECORDS]
    scores = metrics.squad_scores(true, found)
    said = re.search(r"lines\.jsonl: EM (\S+)%, F1 (\S+)%", out).groups()
    wanted = [100 * scores.exact_match, 100 * scores.f1]
    assert [float(x) for x in said] == pytest.approx(wanted, abs=0.01)
    assert scores.f1 > 0 and scores.exact_match < 1


# -- windows ---------------------------------------------------------------------------------------


@pytest.fixture
def ready(learnt):
    return Model(*open_model(learnt[0], "ForQuestionAnswering"), 16)


def test_r52_the_examples_point_at_the_answer_in_each_window_that_holds_it(ready):
    record = question(30, "links", 9)
    (place,) = record["answers"]
    answers = (Answer(place["text"], place["answer_start"]),)
    given = Question("wo moka", record["context"], answers)
    task = answer.Answering(0.0)
    examples = task.examples(answer.Records([given], ["f:1"]), ready)
    assert len(examples) > 4 and all(len(e["input_ids"]) <= 16 for e in examples)
    wanted = ready.tokenizer.encode("zu links").ids[1:-1]
    held = 0
    for example in examples:
        start, end, ids = (example[n] for n in ("start_positions", "end_positions", "input_ids"))
        passage = ids.index(ready.tokenizer.sep_id) + 1
        has = any(ids[i : i + len(wanted)] == wanted for i in range(passage, len(ids)))
        assert (ids[start : end + 1] == wanted) if has else (start, end) == (0, 0)
        held += has
    assert held >= 1


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("unseen", ["", "\u200b", "\u0301"])
def test_r52_an_answer_is_learnt_from_in_any_form(form, unseen, learnt):
    """And comes back whole: its last token reaches to the end of what it is written with."""
    ready = Model(*open_model(learnt[0], "ForQuestionAnswering"), 40)
    word = unicodedata.normalize(form, f"m\u00f3k\u00e1{unseen}")
    context = f"wo {word} zu"
    asked = Question("wo", context, (Answer(word, context.index(word)),))
    (window,) = answer.windows(asked, ready, "f:1")
    (example,) = answer.Answering(0.0).examples(answer.Records([asked], ["f:1"]), ready)
    start, end = example["start_positions"], example["end_positions"]
    assert start > 0
    assert answer.answer_text(context, window.encoding.offsets, start, end) == word


def test_without_an_answer_all_windows_point_at_the_first_token(ready):
    record = Question("wo moka", question(30, None, 9)["context"], ())
    examples = answer.Answering(0.0).examples(answer.Records([record], ["f:1"]), ready)
    assert len(examples) > 4
    assert {(e["start_positions"], e["end_positions"]) for e in examples} == {(0, 0)}


def test_every_token_of_the_passage_is_in_a_window_and_a_quarter_in_two(ready):
    words = " ".join(FILLING[i % 4] for i in range(50))
    windows = answer.windows(Question("wo moka", words, ()), ready, "f:1")
    places = [
        [place for place, mine in zip(w.encoding.offsets, w.allowed, strict=True) if mine]
        for w in windows
    ]
    assert sorted({p for part in places for p in part}) == [
        m.span() for m in re.finditer(r"\w+", words)
    ]
    for one, other in pairwise(places):
        assert len(set(one) & set(other)) == 3  # of 12 that the question leaves


def test_there_is_no_answer_where_that_is_said_in_every_window(ready, monkeypatch):
    """Its score is the smallest of all windows: the one with the answer says it is there."""
    record = Question("wo moka", " ".join(FILLING[i % 4] for i in range(20)), ())
    count = len(answer.windows(record, ready, ""))
    assert count > 1

    def outputs(model, examples):
        for i, example in enumerate(examples):
            logits = np.full((1, len(example["input_ids"])), -9.0)
            logits[0, 0] = nothing[i] / 2
            logits[0, 5 + i] = best[i] / 2
            both = {f"{side}_logits": Tensor(logits) for side in ("start", "end")}
            yield [i], None, SimpleNamespace(**both)

    monkeypatch.setattr(answer, "outputs", outputs)
    best, nothing = [1.0] * (count - 1) + [3.0], [5.0] * (count - 1) + [2.0]
    for threshold, found in ((0.0, 3.0), (-1.5, 2.0), (None, 3.0)):
        ((only,),) = answer.find(ready, [record], ["f"], 1, threshold)
        assert only.score == found and (only.text == "") == (found == 2.0)
    nothing[-1] = 3.5
    for threshold, text in ((0.0, ""), (1.0, only.text), (None, only.text)):
        assert answer.find(ready, [record], ["f"], 1, threshold)[0][0].text == text

    best[0] = 4.0  # of a text that is found in the other windows too, where it scores less
    same = Question("wo moka", "pa " * 20, ())
    assert answer.find(ready, [same], ["f"], 1, None) == [[("pa", 4.0)]]


def test_a_question_that_leaves_no_room(learnt, file, tmp_path):
    long = "wo moka " * 6
    said = r": the question has 14 subwords, and with 16 in all there is no room for the passage; "
    asked = ("--question", long + "wo moka", "--context", "pa")
    assert re.search("--question: the question has 16 ", refused(
        "--model", learnt[0], *asked, place=tmp_path))  # fmt: skip
    assert call("--model", learnt[0], "--question", long, "--context", "pa sol ki")[0] == 0
    (tmp_path / "f").write_text(lines([ANSWERED[0], ANSWERED[1] | {"question": long + "wo"}]))
    said = "f:2: the question has 15 subwords, and with 16 in all there is no room for the passage"
    assert said in refused("--train=f", "--max-length=16", place=tmp_path)
    assert said in refused("--model", learnt[0], "--test=f", place=tmp_path)
    for option in ("--valid=f", "--test=f"):  # before the work begins
        assert said in refused("--train", file, "--max-length=16", option, place=tmp_path)
    status, out, err = call("--model", learnt[0], stdin=f"wo\tpa\n{long}wo\tpa\n".encode())
    assert status == 2 and out.count("\n") == 1
    assert "standard input:2: the question has 15 subwords" in err


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("--question=wo",), "--question and --context belong together: give both"),
        (("--context=pa",), "--question and --context belong together: give both"),
        (("--n-best=0",), "--n-best: give a whole number of at least 1"),
        (("--null-threshold=nan",), "--null-threshold: give a number"),
    ],
)
def test_bad_options(arguments, said, learnt, tmp_path):
    assert said in refused("--model", learnt[0], *arguments, place=tmp_path)


@pytest.mark.parametrize("line", ["wo moka", "wo moka\t ", "\tpa moka"])
def test_a_line_without_a_question_or_a_passage(line, learnt):
    status, out, err = call("--model", learnt[0], stdin=f"\n{line}\n".encode())
    assert (status, out) == (2, "\n")
    assert err == "answer: standard input:2: give a question, a tab and a passage\n"


def test_a_passage_of_nothing_that_the_tokenizer_keeps(learnt):
    how = ("--model", learnt[0], "--question=wo", "--context=\x01")
    assert call(*how)[1].startswith("(no answer)\t")


@pytest.mark.slow
def test_without_options_it_learns_to_answer(tmp_path):
    status, out, err = commands.run("answer", cwd=tmp_path)
    assert (status, err) == (0, "")
    scores = re.findall(r"^[^ ].*: EM (\S+)%, F1", out, re.MULTILINE)
    assert scores and min(map(float, scores)) >= 100 * LEAST_EM


def test_a_question_that_leaves_no_room_is_found_before_the_training(tmp_path):
    asked = ("--question", "who " * 300, "--context", "a b c")
    assert "--question: the question has " in refused("--steps", 2, *TINY, *asked, place=tmp_path)
