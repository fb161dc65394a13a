"""Tasks put as text, and the records that are made for them, against readers of their rules."""

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyfm.demos import korean_english, names, similar, text_tasks
from tinyfm.demos.templates import (
    HELD_OUT,
    LABELS,
    TASKS,
    fits,
    learnt,
    number_of_text,
    score_labels,
    score_numbers,
    text_of_number,
    with_dots,
)

# One of each task, and what is to be written.
RECORDS = {
    "translation": ({"english": "He ran.", "korean": "그는 달렸다."}, "그는 달렸다."),
    "acceptability": ({"sentence": "He run.", "label": "unacceptable"}, "unacceptable"),
    "similarity": ({"sentence1": "A b.", "sentence2": "A c.", "score": 2.5}, "2.4"),
    "summary": ({"passage": "It rained. A cat sat.", "summary": "A cat sat."}, "A cat sat."),
    "question": ({"question": "Who?", "context": "Ann sang.", "answer": "Ann"}, "Ann"),
    "place": ({"passage": "A cat sat in the hall.", "place": "in the hall"}, "in the hall"),
}
WORDINGS = [(name, wording) for name, task in TASKS.items() for wording in task.wordings]
WORD = st.text("abc.: ", min_size=1).filter(str.strip)


# -- templates -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TASKS)
def test_a_template_makes_texts_of_a_record_and_reads_what_is_written(name):
    record, target = RECORDS[name]
    templates = TASKS[name].templates()
    assert len({template(record)[0] for template in templates}) == len(templates) >= 2
    for template in templates:
        source, written = template(record)
        fields = re.findall(r"\{(\w+)\}", template.wording)
        assert written == target and all(record[field] in source for field in fields)
        known = 2.4 if name == "similarity" else target
        assert template.value(written) == known and template.value("") is None
        with pytest.raises(KeyError):
            template({})


def test_the_forms_of_the_paper():
    firsts = [with_dots(task.wordings[0]) for task in TASKS.values()]
    assert firsts[:5] == [
        "translate English to Korean: ...",
        "cola sentence: ...",
        "stsb sentence1: ... sentence2: ...",
        "summarize: ...",
        "question: ... context: ...",
    ]


@pytest.mark.parametrize("name, wording", WORDINGS)
def test_an_input_fits_the_wordings_of_its_own_task(name, wording):
    fitting = {other for other, w in WORDINGS if fits(w, wording.format(**RECORDS[name][0]))}
    # What is held out is asked in the words of a task that is learnt.
    assert fitting == ({name, "question"} if name in HELD_OUT else {name})


@given(st.sampled_from(WORDINGS), st.data())
def test_any_fields_fit_and_a_missing_one_does_not(chosen, data):
    _, wording = chosen
    parts = re.split(r"\{\w+\}", wording)
    words = [data.draw(WORD) for _ in parts[1:]]
    text = "".join(a + b for a, b in zip(parts, [*words, ""], strict=True))
    assert fits(wording, f" {text}\n")
    assert not fits(wording, "".join(parts).strip())
    assert not fits(wording, parts[0][1:] + text)


@pytest.mark.parametrize("number, text", [(2.57, "2.6"), (4.1, "4.0"), (2.5, "2.4"), (5, "5.0")])
def test_numbers_are_written_in_steps_of_a_fifth(number, text):
    assert text_of_number(number) == text


@given(st.floats(0, 5))
def test_the_nearest_step_is_read_again(number):
    assert abs(number_of_text(text_of_number(number)) - number) <= 0.1 + 1e-9


def test_no_other_text_is_a_number():
    texts = [f"{a}.{b}" for a in range(-1, 11) for b in range(100)]
    read = {text: number_of_text(text) for text in [*texts, "", "3", "3.0 ", "nan", "4.٠"]}
    assert {text for text, number in read.items() if number is not None} == {
        f"{k // 5}.{k % 5 * 2}" for k in range(26)
    }


def test_what_is_no_answer_is_wrong_and_not_left_out():
    assert score_labels([*LABELS] * 2, [*LABELS, "acceptably", ""])["accuracy"] == 0.5
    true, made = ["0.0", "1.0", "4.0", "5.0"], ["0.0", "1.0", "4.0", "much"]
    expected = np.corrcoef([0, 1, 4, 5], [0, 1, 4, -1])[0, 1]
    assert score_numbers(true, made)["Pearson"] == pytest.approx(expected)


# -- generated records -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made():
    """(to learn from, to test on, of the task that is held out)."""
    train, tests = text_tasks.records()
    return train, *tests.values()


def of(records, task):
    return [pair for pair in records if pair.task == task]


def test_the_mixture_has_all_tasks_but_the_one_that_is_held_out(made):
    train, test, zero_shot = made
    assert Counter(pair.task for pair in train) == text_tasks.TRAINED
    assert [*text_tasks.TRAINED] == learnt()
    assert Counter(pair.task for pair in zero_shot) == dict.fromkeys(HELD_OUT, text_tasks.TESTED)
    counts = Counter(pair.task for pair in test)
    assert counts.keys() == {*learnt()} and min(counts.values()) >= 80
    for task, wording in WORDINGS:
        some = of([*train, *zero_shot], task)
        assert 0.3 < np.mean([fits(wording, pair.source) for pair in some]) < 0.7


def test_the_wording_does_not_tell_the_answer(made):
    for wording in TASKS["acceptability"].wordings:
        some = [pair for pair in made[0] if fits(wording, pair.source)]
        assert 0.45 < np.mean([pair.target == pair.guess for pair in some]) < 0.55


def test_nothing_of_a_test_is_learnt(made):
    train, test, _ = made
    lines, _ = text_tasks.texts()
    read = {*lines} | {text for pair in train for text in pair[:2]}
    for pair in of(test, "translation"):
        assert {pair.guess, pair.target}.isdisjoint(read)
    known = {*names.names(held_out=False)}
    for pair in of(test, "question"):
        assert known.isdisjoint(re.findall(r"\w+", pair.source))
    for task in ("acceptability", "similarity", "summary"):
        sources = ({pair.source for pair in of(some, task)} for some in (train, test))
        assert not set.intersection(*sources)


@pytest.mark.parametrize("task", learnt())
def test_the_truth_scores_best_and_a_guess_far_below(task, made):
    some = of(made[1], task)
    true = [pair.target for pair in some]
    best = TASKS[task].score(true, true)
    guess = TASKS[task].score(true, [pair.guess for pair in some])
    for name, score in best.items():
        assert score == pytest.approx(100 if name == "BLEU" else 1)
        assert guess[name] < 0.7 * score


def test_translations_are_short_sentences_of_the_grammar(made):
    corpus = {english: korean for korean, english in korean_english.corpus()}
    pairs = [(p.guess, p.target) for p in of([*made[0], *made[1]], "translation")]
    assert all(corpus[english] == korean for english, korean in pairs)
    assert max(len(english.split()) for english, _ in pairs) == text_tasks.MOST_WORDS


def test_half_of_the_sentences_have_one_mistake():
    english = {english for _, english in korean_english.corpus()}
    train, test = text_tasks.acceptability()
    for some in (train, test):
        assert abs(np.mean([r["label"] == "acceptable" for r in some]) - 0.5) < 0.01
        for record in some:
            assert (record["sentence"] in english) == (record["label"] == "acceptable")


@pytest.mark.parametrize(
    "sentence, broken",
    [
        ("Are they reading?", ["Is they reading?"]),
        ("I am tall.", ["I is tall."]),
        ("He had an egg.", ["He had egg an."]),
        ("The door was open.", ["The door were open.", "Door the was open."]),
        ("Birds sing.", []),
    ],
)
def test_mistakes(sentence, broken):
    assert sorted(text_tasks.breaks(sentence)) == sorted(broken)


def groups(sentence):
    """Each of the four parts of a sentence of similar.py with its group."""
    _, who, deed, _, thing, *place = sentence.split()
    parts = (who, deed, thing, " ".join(place))
    kinds = (similar.WHO, similar.DEEDS, similar.THINGS, similar.PLACES)
    return [
        (word, next(group for group, words in kind.items() if word in words))
        for word, kind in zip(parts, kinds, strict=True)
    ]


def test_likeness_is_told_on_a_scale_to_five():
    for record in text_tasks.similarity()[1]:
        a, b = groups(record["sentence1"]), groups(record["sentence2"])
        points = [2 if x == y else int(x[1] == y[1]) for x, y in zip(a, b, strict=True)]
        assert record["score"] == sum(points) * 5 / 8


def test_a_summary_is_the_one_sentence_that_is_no_aside():
    train, test = text_tasks.summaries()
    places = Counter()
    for record in [*train, *test]:
        sentences = re.findall(r"[^.]+\.", record["passage"])
        sentences = [sentence.strip() for sentence in sentences]
        (main,) = set(sentences) - {*text_tasks.ASIDES}
        assert (len(set(sentences)), main) == (3, record["summary"])
        assert main.endswith(f" {record['place']}.")
        assert record["place"] in {place for some in similar.PLACES.values() for place in some}
        places[sentences.index(main)] += 1
    assert all(places[i] > 0.3 * places.total() for i in range(3))


def test_a_question_is_answered_by_its_passage():
    for part in text_tasks.questions():
        for record in part:
            assert f" {record['answer']}" in f" {record['context']}"
            assert record["context"].endswith(".") and record["context"].count(". ") == 2


def test_lines_to_pretrain_on_hold_some_out_and_no_tasks():
    lines, tests = text_tasks.texts()
    ((_, held_out),) = tests.items()
    assert len(held_out) == pytest.approx(len(lines) / (text_tasks.EVERY - 1), rel=0.01)
    assert not any(fits(wording, line) for line in lines[::50] for _, wording in WORDINGS)
    assert "generated line 1" in lines.where(0)
