"""Task files: what is read out of each form, and what is said of what is wrong with it."""

import gzip
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyfm import InputError
from tinyfm.demos.records import (
    Answer,
    Choice,
    Example,
    Question,
    TaggedWords,
    read_classification,
    read_questions,
    read_tagging,
)


@pytest.fixture
def write(tmp_path):
    """A function that writes lines, or what JSON makes of them, and gives the path."""

    def write(*lines, name="file", start=""):
        text = "".join(f"{x if isinstance(x, str) else json.dumps(x)}\n" for x in lines)
        path = tmp_path / name
        content = (start + text).encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


def refused(read, path, *arguments, **options):
    """The message about the file, whose name is cut off its front."""
    with pytest.raises(InputError) as caught:
        read(path, *arguments, **options)
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message
    assert ";" in message or "Name" in message or "?" in message, "a remedy"
    return message.removeprefix(str(path))


def warning(caplog):
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("tinyfm.demos.records", logging.WARNING)
    return record.getMessage()


# Texts with labels


@pytest.mark.parametrize(
    "header, row, example",
    [
        ("sentence\tlabel", "good \t1", Example(("good ",), "1")),
        ("document\tlabel", "좋은영화\t1", Example(("좋은영화",), "1")),
        ("genre\tscore\tsentence1\tsentence2", "x\t5.000\ta\tb", Example(("a", "b"), 5.0)),
        ("sentence2\tlabel\tsentence1", "b\tyes\ta", Example(("a", "b"), "yes")),
        (
            "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
            '1\t7\t8\tHe said "so".\t"So',
            Example(('He said "so".', '"So'), "1"),
        ),
    ],
)
@pytest.mark.parametrize("name", ["file.tsv", "file.tsv.gz"])
def test_columns_are_found_by_their_names(write, header, row, example, name):
    for end in ("", "\r"):
        path = write(header + end, row + end, "", name=name, start="\ufeff")
        examples = read_classification(path)
        assert examples == [example] and examples.where(0) == f"{path}:2"


def test_columns_are_named_or_numbered(write):
    path = write("a\tb\tc\tlabel", "1\t2\t3\t4")
    assert read_classification(path, ["c", "a"], "b") == [Example(("3", "1"), "2")]
    assert read_classification(path, ["b"]) == [Example(("2",), "4")]
    path = write("gj04\t1\t\tThe pond froze.", "gj04\t0\t*\tThe more.")
    examples = read_classification(path, ["4"], "2")
    assert examples == [Example(("The pond froze.",), "1"), Example(("The more.",), "0")]
    assert examples.where(0) == f"{path}:1"
    assert read_classification(path, ["1", "4"], labelled=False)[1].texts == ("gj04", "The more.")


def test_json_lines(write):
    path = write({"sentence": "a {b}", "label": "x"}, "", {"label": 3, "sentence": "빵", "more": 0})
    examples = read_classification(path)
    assert examples == [Example(("a {b}",), "x"), Example(("빵",), "3")]
    assert examples.where(1) == f"{path}:3"
    path = write({"premise": "a", "hypothesis": "b", "label": True})
    assert read_classification(path) == [Example(("a", "b"), "true")]


def test_endings_to_choose_from(write):
    row = {"context": "He sat", "endings": ["down.", "up."], "label": 1}
    path = write(row, {**row, "label": "0"})
    assert read_classification(path) == [
        Choice("He sat", ("down.", "up."), 1),
        Choice("He sat", ("down.", "up."), 0),
    ]
    assert read_classification(path, labelled=False)[0].label is None


@pytest.mark.parametrize(
    "labels, options, read",
    [
        (["0", "1", "0"], {}, ["0", "1", "0"]),
        (["3", "4.5", "-1e0"], {}, [3.0, 4.5, -1.0]),
        ([" 1.0", "2 "], {}, [1.0, 2.0]),
        (["1.0", "2.0"], {"regression": False}, ["1.0", "2.0"]),
        (["1", "2"], {"regression": True}, [1.0, 2.0]),
        ([2, 2.5], {}, [2.0, 2.5]),
        ([2, 3], {}, ["2", "3"]),
        ([0.0, 1.0], {"classes": ["0.0", "1.0"]}, ["0.0", "1.0"]),
        (["v1.5", "1.5.2"], {}, ["v1.5", "1.5.2"]),
        ([" good", "bad "], {}, ["good", "bad"]),
        (["", "?"], {"labelled": False}, [None, None]),
    ],
)
def test_what_is_a_number_and_what_a_class(write, labels, options, read):
    path = write(*({"text": "a", "label": label} for label in labels))
    assert [example.label for example in read_classification(path, **options)] == read
    if all(isinstance(label, str) for label in labels):
        path = write("text\tlabel", *(f"a\t{label}" for label in labels))
        assert [example.label for example in read_classification(path, **options)] == read


GOOD = "good\t1"


@pytest.mark.parametrize(
    "lines, options, message",
    [
        (["a\tb\tlabel", "x\ty\t1"], {}, ": the columns are 'a', 'b', 'label', and none is "),
        (
            ["a\tb\tlabel", *["x\ty\t1"] * 5, "x\ty"],
            {"text_columns": ["a"]},
            ":7: 2 columns, but the first line has 3",
        ),
        (["sentence\tlabel", GOOD, "one\ttwo\t0"], {}, ":3: 3 columns, but the first line has 2"),
        (["sentence\tlabel", "a plain line"], {}, ":2: 1 column, but"),
        (
            ["sentence\twhat", GOOD],
            {},
            ": the columns are 'sentence', 'what', and none is label or score or",
        ),
        (["sentence\tlabel", GOOD], {"label_column": "x"}, ": no column 'x' among 'sentence',"),
        ([GOOD], {"text_columns": ["1"], "label_column": "3"}, ": no column '3' among '1', '2'"),
        (["a\tb\tc\tlabel", "1\t2\t3\t4"], {"text_columns": ["a", "b", "c"]}, ": 3 columns of"),
        (["sentence\tlabel", " \t1"], {}, ":2: 'sentence' is blank"),
        (["sentence\tlabel", "a\t "], {}, ":2: label ' ' is no class"),
        (
            ["sentence\tlabel", GOOD, "a\tmaybe"],
            {"classes": ["0", "1"]},
            ":3: label 'maybe' is none of '0', '1'",
        ),
        (["sentence\tlabel", "a\t3.5", "a\tmaybe"], {}, ":3: label 'maybe' is no number"),
        (["sentence\tlabel", "a\tnan"], {"regression": True}, ":2: label 'nan' is no number"),
        (["sentence\tlabel"], {}, ": no records"),
        (["", ""], {}, ": no records"),
        ([{"text": "a", "label": 1}, "{text"], {}, ":2: not JSON"),
        ([{"text": "a", "label": 1}, "[1]"], {}, ":2: no JSON object"),
        ([{"text": "a", "label": 1}, {"text": "a"}], {}, ":2: no 'label'"),
        ([{"text": "a", "label": 1}, {"label": 1}], {}, ":2: no 'text'"),
        ([{"text": "a", "label": 1}, {"text": 5, "label": 1}], {}, ":2: 'text' is no text"),
        ([{"text": "\ud800", "label": 1}], {}, ":1: 'text' holds half a character"),
        ([{"text": "a", "label": None}], {}, ":1: label None is no class"),
        ([{"text": "a", "label": ["x"]}], {}, ":1: label ['x'] is no class"),
        ([{"text": "a", "label": 1.5}, {"text": "a", "label": True}], {}, ":2: label True is no"),
        ([{"text": "a", "label": 10**400}], {"regression": True}, ":1: label 1000"),
        (
            [{"text": "a", "label": "long " * 99}],
            {"regression": True},
            ":1: label 'long long lo...",
        ),
    ],
)
def test_r80_what_is_wrong_with_texts_and_labels(write, lines, options, message):
    assert refused(read_classification, write(*lines), **options).startswith(message)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"label": 2}, ":2: label 2 is none of 0 to 1"),
        ({"label": -1}, ":2: label -1 is none"),
        ({"label": True}, ":2: label True is none"),
        ({"endings": "down"}, ":2: 'endings' is no list"),
        ({"endings": []}, ":2: 'endings' is no list"),
        ({"endings": ["x", " "]}, ":2: 'endings' is blank"),
        ({"endings": ["x", "y", "z"]}, ":2: 3 endings, but 2 in most records; give as"),
    ],
)
def test_r80_what_is_wrong_with_endings(write, change, message):
    row = {"context": "He sat", "endings": ["down.", "up."], "label": 1}
    assert refused(read_classification, write(row, row | change)).startswith(message)


def test_r80_the_first_record_may_be_the_one_of_another_number_of_endings(write, caplog):
    row = {"context": "He sat", "endings": ["down.", "up."], "label": 1}
    path = write({**row, "endings": ["a", "b", "c"]}, row, row)
    assert refused(read_classification, path).startswith(":1: 3 endings, but 2 in most records")
    assert [len(choice.endings) for choice in read_classification(path, skip=True)] == [2, 2]
    assert "dropped 1 of 3 rows" in warning(caplog)


def test_where_columns_cannot_be_named_the_file_is_to_be_changed(write):
    path, read = write("a\tb\tscore", "x\ty\t1"), read_classification
    for options in ({}, {"text_columns": ["c"]}, {"text_columns": ["a"], "label_column": "c"}):
        assert "; name " in refused(read, path, **options)
        assert refused(read, path, **options, options=False).endswith("; call it so in the file")
    path = write("a\tb\tc", "x\ty\t1")
    assert "--" not in refused(read, path, ["a"], options=False)


def test_r80_bad_rows_are_dropped_counted_and_reported(write, caplog):
    lines = ["sentence\tlabel", *[GOOD] * 5, "good", *[GOOD] * 44]
    path = write(*lines)
    examples = read_classification(path, skip=True)
    assert len(examples) == 49 and examples.where(5) == f"{path}:8"
    assert warning(caplog).startswith(f"{path}: dropped 1 of 50 rows ({path}:7: 1 column, but")
    caplog.clear()
    assert len(read_classification(write("sentence\tlabel", GOOD), skip=True)) == 1
    assert not caplog.records
    lines = ['{"sentence', {"sentence": "a", "label": 1.5}, {"sentence": "a", "label": "x"}]
    assert len(read_classification(write(*lines), skip=True)) == 1
    assert "dropped 2 of 3 rows" in warning(caplog) and "; ...)" in warning(caplog)
    assert "every record is bad" in refused(
        read_classification, write("text\tlabel", " \t1"), skip=True
    )


@given(
    st.lists(st.tuples(st.text("ab 가\"'\\,{}", min_size=1), st.sampled_from("xyz")), min_size=1)
)
def test_rows_come_back_as_they_were_written(tmp_path_factory, rows):
    rows = [(text, label) for text, label in rows if text.strip()] or [("a", "x")]
    path = tmp_path_factory.mktemp("rows") / "file"
    path.write_text("text\tlabel\n" + "".join(f"{t}\t{c}\n" for t, c in rows), encoding="utf-8")
    expected = [Example((text,), label) for text, label in rows]
    assert read_classification(path) == expected
    lines = [json.dumps({"text": text, "label": label}, ensure_ascii=False) for text, label in rows]
    path.write_text("\n".join(lines), encoding="utf-8")
    assert read_classification(path) == expected


# Tagged words

SENTENCES = [
    TaggedWords(("Haeundae", "Beach", "is", "{"), ("B-LOC", "I-LOC", "O", "O")),
    TaggedWords(("Mina",), ("B-PER",)),
]


@pytest.mark.parametrize(
    "lines",
    [
        ["Haeundae\tB-LOC", "Beach\tI-LOC", "is\tO", "{\tO", "", "Mina\tB-PER"],
        ["", "Haeundae B-LOC", "Beach I-LOC", "is O", "{ O", "", " ", "Mina B-PER", ""],
        [
            "-DOCSTART- -X- O",
            "",
            "Haeundae N B-LOC",
            "Beach N I-LOC",
            "is V O",
            "{ ( O",
            "",
            "-DOCSTART- -X- O",
            "",
            "Mina N B-PER",
        ],
        [{"tokens": list(words), "ner_tags": list(tags)} for words, tags in SENTENCES],
    ],
)
def test_sentences_of_tagged_words(write, lines):
    for name in ("file", "file.gz"):
        assert read_tagging(write(*lines, name=name)) == SENTENCES
    unlabelled = read_tagging(write(*lines), labelled=False)
    assert unlabelled == [(words, None) for words, _ in SENTENCES]


def test_a_word_may_be_a_brace(write):
    assert read_tagging(write("{ O", "Mina B-PER")) == [(("{", "Mina"), ("O", "B-PER"))]


def test_words_without_tags_are_read_where_none_are_wanted(write):
    path = write("Mina", "slept", "", "So")
    sentences = read_tagging(path, labelled=False)
    assert sentences == [(("Mina", "slept"), None), (("So",), None)]
    assert [sentences.where(i) for i in (0, 1)] == [f"{path}:1", f"{path}:4"]


@pytest.mark.parametrize(
    "lines, options, message",
    [
        (["Mina\tB-PER", "slept"], {}, ":2: no tag after 'slept'"),
        (["Mina\tB-PER", "slept\t"], {}, ":2: tag '' is neither O"),
        (["Mina\tNOUN"], {}, ":1: tag 'NOUN' is neither O"),
        (["\tO"], {}, ":1: 'word' is blank"),
        (["Mina\tB-XYZ"], {"tags": ["O", "B-PER"]}, ":1: tag 'B-XYZ' is none of O, B-PER"),
        (["", ""], {}, ": no records"),
        ([{"tokens": ["a", "b"], "ner_tags": ["O"]}], {}, ":1: 2 tokens but 1 ner_tags"),
        ([{"tokens": ["a"], "ner_tags": [0]}], {}, ":1: 'ner_tags' is no text"),
        ([{"tokens": ["a"]}], {}, ":1: no 'ner_tags'"),
        ([{"tokens": "a", "ner_tags": ["O"]}], {}, ":1: 'tokens' is no list"),
    ],
)
def test_r80_what_is_wrong_with_tagged_words(write, lines, options, message):
    assert refused(read_tagging, write(*lines), **options).startswith(message)


def test_r80_sentences_with_a_bad_line_are_dropped(write, caplog):
    path = write("a\tO", "b", "", "Mina\tB-PER")
    assert read_tagging(path, skip=True) == [SENTENCES[1]]
    assert warning(caplog).startswith(f"{path}: dropped 1 of 2 rows ({path}:2: no tag after 'b'")


# Questions

CONTEXT = "민수는 빵을 먹었다. Minsu ate bread."
BREAD = {"text": "bread", "answer_start": CONTEXT.index("bread")}
QUESTION = {"question": "What?", "context": CONTEXT, "answers": [BREAD]}
READ = Question("What?", CONTEXT, (Answer("bread", BREAD["answer_start"]),))


def squad(*questions, **more):
    paragraph = {"context": CONTEXT, "qas": list(questions)}
    return {"version": "v2.0", "data": [{"title": "Bread", "paragraphs": [paragraph]}], **more}


def test_questions_by_line(write):
    lists = {"text": ["bread", "빵을"], "answer_start": [BREAD["answer_start"], 4]}
    path = write(QUESTION, {**QUESTION, "answers": lists}, {**QUESTION, "answers": []})
    questions = read_questions(path)
    two = (*READ.answers, Answer("빵을", 4))
    assert questions == [READ, READ._replace(answers=two), READ._replace(answers=())]
    assert questions.where(2) == f"{path}:3"
    path = write({"question": "What?", "context": CONTEXT})
    assert read_questions(path, labelled=False) == [READ._replace(answers=())]


@pytest.mark.parametrize("indent", [None, 2])
def test_questions_of_squad(write, indent):
    asked = {"question": "What?", "id": "a1", "answers": [BREAD], "is_impossible": False}
    none = {"question": "Who slept?", "id": "a2", "answers": [], "is_impossible": True}
    plausible = {**none, "plausible_answers": [BREAD]}
    path = write(json.dumps(squad(asked, plausible), indent=indent), name="squad.json.gz")
    questions = read_questions(path)
    titled = READ._replace(title="Bread")
    assert questions == [titled, titled._replace(question="Who slept?", answers=())]
    assert questions.where(1) == f"{path}: question a2"


@pytest.mark.parametrize(
    "change, message",
    [
        (
            {"answers": [{"text": "bread", "answer_start": 4}]},
            "answer_start 4 does not point at 'bread' but at '빵을 먹었'",
        ),
        ({"answers": [{"text": ".", "answer_start": -1}]}, "answer_start -1 does not point"),
        ({"answers": [{"text": "bread", "answer_start": "25"}]}, "answer_start '25' is no whole"),
        ({"answers": [{"text": "bread"}]}, "answers are not of the form"),
        ({"answers": ["bread"]}, "answers are not of the form"),
        ({"answers": {"text": ["bread"], "answer_start": []}}, "answers are not of the form"),
        ({"answers": None}, "answers are not of the form"),
        ({"answers": [{"text": " ", "answer_start": 3}]}, "'answer' is blank"),
        ({"answers": [], "is_impossible": False}, "0 answers, but is_impossible is False"),
        ({"is_impossible": True}, "1 answers, but is_impossible is True"),
        ({"question": ""}, "'question' is blank"),
    ],
)
def test_r80_what_is_wrong_with_questions(write, change, message):
    bad = QUESTION | change
    assert refused(read_questions, write(QUESTION, bad)).startswith(f":2: {message}")
    named = {**bad, "id": "q7"}
    assert refused(read_questions, write(squad(named))).startswith(f": question q7: {message}")
    assert refused(read_questions, write(squad(bad))).startswith(
        f": question 1 of the file: {message}"
    )


@pytest.mark.parametrize(
    "lines, message",
    [
        ([QUESTION, "{"], ":2: not JSON"),
        ([QUESTION, {"question": "What?", "context": CONTEXT}], ":2: no 'answers'"),
        (["not JSON"], ": damaged, or not JSON"),
        ([squad()], ": no records"),
        ([{"data": [{"paragraphs": [{"qas": []}]}]}], ": not in SQuAD's shape"),
        ([{"data": 5}], ": not in SQuAD's shape"),
        ([{"data": ["x"]}], ": not in SQuAD's shape"),
    ],
)
def test_r80_what_is_wrong_with_files_of_questions(write, lines, message):
    assert refused(read_questions, write(*lines)).startswith(message)


@pytest.mark.parametrize("first", ['{"question', json.dumps(QUESTION)[:-1], "x", "[]"])
def test_r80_a_file_by_lines_may_begin_with_a_bad_one(write, caplog, first):
    path = write(first, QUESTION, {**QUESTION, "id": 3})
    assert refused(read_questions, path).startswith(":1: no")
    assert read_questions(path, skip=True) == [READ, READ]
    assert warning(caplog).startswith(f"{path}: dropped 1 of 3 rows ({path}:1: no")


def test_r80_bad_questions_are_dropped(write, caplog):
    good, bad = {**QUESTION, "id": "a"}, {**QUESTION, "id": "b", "answers": ["x"]}
    path = write(squad(good, bad))
    assert len(read_questions(path, skip=True)) == 1
    assert warning(caplog).startswith(f"{path}: dropped 1 of 2 rows ({path}: question b: answers")


@pytest.mark.parametrize("read", [read_classification, read_tagging, read_questions])
def test_files_that_are_not_there_or_empty(write, tmp_path, read):
    assert "No such file" in refused(read, tmp_path / "none")
    assert "the file is empty" in refused(read, write())


# Real files


@pytest.mark.data
@pytest.mark.parametrize(
    "file, columns, size, kind",
    [
        ("sst2/dev.tsv", (), 872, str),
        ("cola/in_domain_dev.tsv", (["4"], "2"), 527, str),
        ("mrpc/msr_paraphrase_train.txt.gz", (), 4076, str),
        ("stsb/test.tsv", (), 1379, float),
        ("nsmc/dev.tsv", (), 2000, str),
    ],
)
def test_real_files_with_labels(data_folder, file, columns, size, kind):
    examples = read_classification(data_folder / file, *columns)
    assert len(examples) == size
    assert {type(example.label) for example in examples} == {kind}


@pytest.mark.data
def test_real_files_with_tags_and_questions(data_folder):
    assert len(read_tagging(data_folder / "wikiann_en" / "dev.txt.gz")) == 10_000
    questions = read_questions(data_folder / "squad_v11_dev" / "xquad.en.json.gz")
    assert (len(questions), len({question.title for question in questions})) == (1190, 48)
