"""Generated reviews, tagged sentences and questions, against readers of the rules they state."""

import re
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyfm import metrics
from tinyfm.demos import facts, names, people, reviews
from tinyfm.demos.dice import Dice

SEEDS = st.integers(0, 2**64)


@pytest.mark.parametrize("data", [reviews, people, facts])
def test_examples_follow_the_seed(data):
    made = data.examples(300, seed=1)
    assert data.examples(300, seed=1) == made
    assert data.examples(300, seed=2) != made
    assert data.examples(10, seed=1) == made[:10]


@pytest.mark.parametrize("data", [reviews, people, facts])
def test_what_is_tested_is_not_trained(data):
    train, tests = data.records()
    ((_, test),) = tests.items()
    assert (len(train), len(test)) == (data.TRAINED, data.TESTED)
    assert len({str(record) for record in train}) == len(train)
    assert not {str(record) for record in train} & {str(record) for record in test}
    assert "generated" in train.where(0) and train.where(16).endswith("17")


def test_held_out_names_are_made_of_known_parts():
    known, new = names.names(held_out=False), names.names(held_out=True)
    every = [a + b + c for a in names.BEGINNINGS for b in names.MIDDLES for c in names.ENDS]
    assert sorted(known + new) == sorted(every) and len(set(every)) == len(every)
    assert len(new) * 4 == len(known)
    for cut in (slice(0, 3), slice(3, 6), slice(6, None)):
        assert {name[cut] for name in new} == {name[cut] for name in known}


def test_new_names_are_drawn_once():
    new_names = names.NewNames(Dice(0), held_out=True)
    assert len({new_names.draw() for _ in range(2000)}) == 2000


# Reviews

STRENGTHS = defaultdict(
    lambda: None,
    dict.fromkeys(("delicious", "wonderful", "splendid", "brilliant", "amazing"), 2)
    | dict.fromkeys(("fresh", "tasty", "good", "friendly", "helpful", "polite", "clean"), 1)
    | dict.fromkeys(("quiet", "comfortable", "funny", "clever", "moving", "lively", "graceful"), 1)
    | dict.fromkeys(("awful", "horrible", "terrible", "dreadful"), -2)
    | dict.fromkeys(("stale", "bland", "bad", "rude", "careless", "lazy", "dirty", "noisy"), -1)
    | dict.fromkeys(("uncomfortable", "dull", "silly", "boring", "clumsy", "tired"), -1)
    | {"liked": 1, "like": 1, "enjoyed": 1, "enjoy": 1, "loved": 2, "love": 2}
    | {"disliked": -1, "dislike": -1, "criticised": -1, "criticise": -1, "hated": -2, "hate": -2}
    | {"come": 1, "tell": 1, "complain": -1, "stay": -1},
)


def value_of_clause(words):
    """Rules 1 to 3."""
    turning = r"(i doubt that|nobody would say that|it is not true that) "
    keeping = r"(i am sure that|everybody would say that|it is true that) "
    if outer := re.match(turning, words):
        return -np.sign(value_of_clause(words[outer.end() :]))
    if outer := re.match(keeping, words):
        return value_of_clause(words[outer.end() :])
    (value,) = filter(None, map(STRENGTHS.__getitem__, words.split()))
    if re.search(r"\b(not|never)\b", words):
        return -np.sign(value)
    return value + np.sign(value) * bool(re.search(r"\b(very|really)\b", words))


def value_of_side(words):
    """Rule 4."""
    return sum(map(value_of_clause, words.split(" and ")))


def label_of(review):
    """Rule 5; the other side says the opposite."""
    words = review.removesuffix(".").lower()
    if " but " in words:
        other, decides = words.split(", but ")
    elif words.startswith("although "):
        other, decides = words.removeprefix("although ").split(", ")
    elif " although " in words:
        decides, other = words.split(", although ")
    else:
        other, decides = None, words
    value = value_of_side(decides)
    assert value != 0 and (other is None or value_of_side(other) * value < 0)
    return "positive" if value > 0 else "negative"


@pytest.mark.parametrize(
    "review, label",
    [
        ("The soup was not very tasty, but I loved the waiter.", "positive"),
        ("Although nobody would say that the room was dirty, it is true that I hated the bed.",
         "negative"),
        ("The soup was tasty and the waiter was very rude.", "negative"),
        ("I doubt that the film was not funny.", "positive"),
        ("I will never complain, although the bed was awful.", "positive"),
    ],
)  # fmt: skip
def test_the_rules_of_reviews_by_hand(review, label):
    assert label_of(review) == label


@given(SEEDS)
def test_labels_of_reviews_follow_the_rules(seed):
    for (review,), label in reviews.examples(40, seed):
        assert label_of(review) == label


def test_what_stands_before_a_clause_is_about_no_other_one():
    """`I doubt that A and B` doubts both; where one is meant, it is the last."""
    frames = [frame.lower() for frame in (*reviews.TURNING, *reviews.KEEPING)]
    ends = Counter()
    for (review,), _ in reviews.examples(3000):
        for side in re.split(r",? (?:but|although) |, ", review.lower()):
            first, *last = side.split(" and ")
            if last:
                assert not any(frame in first for frame in frames), review
                ends.update(frame for frame in frames if last[0].startswith(frame))
    assert set(ends) == set(frames)


def bag_of_words_accuracy(train, test):
    """Of logistic regression on which words a review has: what can be known without their order."""
    split = [[re.findall(r"\w+", text.lower()) for (text,), _ in part] for part in (train, test)]
    words = sorted({word for review in split[0] for word in review})
    x, x_test = (
        np.array([[word in review for word in words] for review in part], float) for part in split
    )
    y, y_test = (
        np.array([example.label == "positive" for example in part]) for part in (train, test)
    )
    mean = x.mean(0)
    x, x_test = x - mean, x_test - mean
    weight = np.zeros(len(words))
    for _ in range(8):  # Newton's steps, with a little weight decay
        p = 1 / (1 + np.exp(-x @ weight))
        hessian = (x * (p * (1 - p))[:, None]).T @ x + np.eye(len(words))
        weight += np.linalg.solve(hessian, x.T @ (y - p) - weight)
    return np.mean((x_test @ weight > 0) == y_test)


def test_reviews_cannot_be_told_by_their_words():
    train, tests = reviews.records()
    (test,) = tests.values()
    for part in (train, test):
        assert sum(label == "positive" for _, label in part) == len(part) / 2
    assert bag_of_words_accuracy(train, test) < 0.75


def test_reviews_use_every_rule():
    sentences = [f" {review.lower()} " for (review,), _ in reviews.examples(2000)]
    for sign in (", but ", " although ", ", although ", " and ", " not ", " never ", " very ",
                 " i doubt that ", " it is true that "):  # fmt: skip
        assert sum(sign in sentence for sentence in sentences) > 40, sign
    assert sum("," not in sentence for sentence in sentences) > 500


# Tagged sentences


def masked(sentence):
    """The sentence with a blank for each name, and the types of the blanks."""
    words, found = list(sentence.words), metrics.entities(sentence.tags)
    for _, start, end in reversed(found):
        words[start:end] = "_"
    return " ".join(words), [entity.type for entity in found]


@given(SEEDS)
def test_tags_begin_and_go_on(seed):
    for words, tags in people.examples(40, seed):
        assert len(words) == len(tags) and words[-1] == "." and not words[0][0].islower()
        for before, tag in zip(("O", *tags), tags, strict=False):
            assert tag[0] != "I" or before in (f"B-{tag[2:]}", tag)
        assert all(1 <= end - start <= 3 for _, start, end in metrics.entities(tags))


@given(SEEDS)
def test_what_stands_around_a_name_decides_its_type(seed):
    types = {}
    for sentence in people.examples(200, seed):
        frame, found = masked(sentence)
        assert types.setdefault(frame, found) == found


def test_a_name_does_not_tell_its_type():
    """Each part of a name is as often in any type as all parts are."""
    parts, total = defaultdict(Counter), Counter()
    for words, tags in people.records()[0]:
        for type, start, end in metrics.entities(tags):
            if end - start == 1:
                total[type] += 1
                parts[words[start][:3]][type] += 1
                parts[words[start][6:]][type] += 1
    shares = {type: number / total.total() for type, number in total.items()}
    assert shares.keys() == {"PER", "LOC", "ORG"} and min(shares.values()) > 0.2
    for counts in parts.values():
        for type, share in shares.items():
            assert abs(counts[type] / counts.total() - share) < 0.15


def test_names_in_the_test_are_new_and_capitals_do_not_tell():
    train, tests = people.records()
    (test,) = tests.values()
    named = [
        {word for words, tags in part for word, tag in zip(words, tags, strict=True) if tag != "O"}
        for part in (train, test)
    ]
    assert named[0] & named[1] == {"Lake", "North", "New", "City", "Steel", "Bank", "Friends",
                                   "of", "&"}  # fmt: skip
    # All that a dictionary of the training words and capital letters can do
    seen = defaultdict(Counter)
    for words, tags in train:
        for word, tag in zip(words, tags, strict=True):
            seen[word][tag] += 1
    guesses = [
        [
            seen[word].most_common(1)[0][0] if word in seen else "B-PER" if word.istitle() else "O"
            for word in words
        ]
        for words, _ in test
    ]
    assert metrics.entity_f1([tags for _, tags in test], guesses).f1 < 0.5
    for sign in ("Yesterday", "On", "In", "on", "in", "last", "Friday", "May", "Judge"):
        assert sum(sign in words for words, _ in test) > 10, sign
    capitals = sum(
        word[0].isupper() and tag == "O"
        for words, tags in test
        for word, tag in zip(words[1:], tags[1:], strict=True)
    )
    assert capitals > 0.3 * len(test)


# Questions

NAME, YEAR, COUNT = "([A-Z][a-z]+)", "([12][0-9]{3})", "([0-9,]+)"
# How to look for an answer; WHO is what the question names.
LOOK = {
    "Where was WHO born": [f"WHO was born in {NAME}"],
    "When was WHO born": [f"WHO was born in {NAME} in {YEAR}", f"In {YEAR}, WHO was born"],
    "Where did WHO move": [f"WHO moved to {NAME}"],
    "When did WHO move": [f"WHO moved to {NAME} in {YEAR}", f"In {YEAR}, WHO moved"],
    "Whom did WHO marry": [f"WHO married {NAME}"],
    "When did WHO marry": [f"WHO married {NAME} in {YEAR}", f"In {YEAR}, WHO married"],
    "What did WHO study": [r"WHO studied (\w+)", r"WHO went to school to learn (\w+)"],
    "What was the job of WHO": [r"WHO (?:worked|earned money) as a (\w+)"],
    "How many children did WHO have": [r"WHO had (\d) children"],
    "Who founded WHO": [f"WHO was founded by {NAME}", f"{NAME} founded WHO"],
    "When was WHO founded": [f"WHO was founded by {NAME} in {YEAR}",
                             f"In {YEAR}, [A-Z][a-z]+ founded WHO"],
    "On which river does WHO lie": [f"WHO lies on the river {NAME}", f"{NAME} flows through WHO"],
    "How many people live in WHO": [f"{COUNT} people live in WHO", f"WHO has {COUNT} inhabitants"],
    "What is WHO known for": [r"WHO is known for its (\w+)", r"come to WHO for its (\w+)"],
    "Who is the mayor of WHO": [f"mayor of WHO is {NAME}", f"{NAME} is the mayor of WHO"],
    "When did WHO burn down": [f"fire destroyed WHO in {YEAR}", f"WHO burned down in {YEAR}"],
    "Who built WHO": [f"WHO was built by {NAME}", f"{NAME} built WHO"],
    "When was WHO built": [f"WHO was built by {NAME} in {YEAR}",
                           f"In {YEAR}, [A-Z][a-z]+ built WHO"],
    "How high is WHO": [r"WHO is (\d+) metres"],
    "How much did WHO cost": [f"WHO cost {COUNT} crowns", f"{COUNT} crowns were paid for WHO"],
    "Where does WHO stand": [f"WHO stands in {NAME}", f"find WHO in {NAME}"],
    "What is WHO made of": [r"WHO is made of (\w+)", r"walls of WHO are of (\w+)"],
    "When was WHO closed": [f"WHO was closed in {YEAR}", f"Since {YEAR}, WHO has been closed"],
}  # fmt: skip


def found_answers(question, context):
    """The spans in the passage that answer the question."""
    for form, patterns in LOOK.items():
        if asked := re.fullmatch(form.replace("WHO", r"(the \w+ Tower|\w+)") + r"\?", question):
            who = f"(?i:{asked[1]})"
            matches = (
                match
                for pattern in patterns
                for match in re.finditer(pattern.replace("WHO", who), context)
            )
            return [(match[match.lastindex], match.start(match.lastindex)) for match in matches]
    raise AssertionError(f"no such question: {question}")


@given(SEEDS, st.booleans())
def test_passages_hold_exactly_the_answer_that_is_given(seed, held_out):
    for question, context, answers, _ in facts.examples(20, seed, held_out):
        assert found_answers(question, context) == list(answers)
        for text, start in answers:
            assert context[start : start + len(text)] == text


FIRST = ("When was WHO born", "When was WHO founded", "When was WHO built")
LATER = ("When did WHO move", "When did WHO marry", "When did WHO burn down", "When was WHO closed")


def test_nothing_is_done_before_a_birth_a_founding_or_a_building():
    compared = Counter()
    for record in facts.examples(3000):
        context = record.context
        subjects = re.findall(r"(?i:the) \w+ Tower|[A-Z]\w+", context)
        for subject in {name.replace("The ", "the ") for name in subjects}:
            years = {
                form: int(found[0][0])
                for form in (*FIRST, *LATER)
                if (found := found_answers(f"{form.replace('WHO', subject)}?", context))
            }
            begun = [years[form] for form in FIRST if form in years]
            for form in set(LATER) & years.keys():
                if begun:
                    assert begun[0] < years[form] < begun[0] + 60, context
                    compared[form] += 1
    assert compared.keys() == set(LATER) and min(compared.values()) > 20


def test_a_fifth_of_the_questions_has_no_answer():
    train, tests = facts.records()
    (test,) = tests.values()
    for part in (train, test):
        open_questions = [record for record in part if not record.answers]
        assert 0.15 < len(open_questions) / len(part) < 0.25
        sentences = [record.context.split(". ") for record in part]
        assert {len(told) for told in sentences} == {3, 4, 5, 6}
        assert not any(sentence[0].islower() for told in sentences for sentence in told)
        # of somebody who is told of, and of somebody who is not
        strangers = [who(record.question).lower() not in record.context.lower()
                     for record in open_questions]  # fmt: skip
        assert 0.3 < np.mean(strangers) < 0.7
    asked = Counter(re.sub(re.escape(who(record.question)), "WHO", record.question)
                    for record in train)  # fmt: skip
    assert asked.keys() == {f"{form}?" for form in LOOK} and min(asked.values()) > 50


def who(question):
    return re.search(r"the \w+ Tower|[A-Z]\w+", question[1:])[0]


def test_passages_of_the_test_have_new_names():
    train, tests = facts.records()
    (test,) = tests.values()
    known, new = (
        {name for record in part for name in re.findall(r"[A-Z][a-z]+", record.context)}
        for part in (train, test)
    )
    assert new & set(names.names(held_out=True)) and known & set(names.names(held_out=False))
    assert not new & set(names.names(held_out=False))
    assert not known & set(names.names(held_out=True))
