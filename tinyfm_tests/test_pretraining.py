"""What fill_mask learns from: documents, examples, hidden words, batches, scores."""

import argparse
from itertools import islice, pairwise

import numpy as np
import pytest

import tinyfm
from tinyfm import InputError, models
from tinyfm.data import IGNORE_INDEX
from tinyfm.demos import documents, pretraining
from tinyfm.demos.pretraining import RECIPES, Hide, encode, hidden_once, new_batches, whole_texts
from tinyfm.tokenizer import Tokenizer

TEXTS = [["a b c d e", "b c d", "c d e f a b"], ["f e d c", "d a", "b b b f"], ["e e a"]]
PAD, UNK, CLS, SEP, MASK = range(5)


@pytest.fixture(scope="module")
def tokenizer():
    """Letters, which are words; f is not known."""
    return Tokenizer.train_wordpiece(["a b c d e"] * 2, 10)


@pytest.fixture(scope="module")
def ids(tokenizer):
    return encode(TEXTS, tokenizer)


def sentences_of(rows):
    """Lists of ids, cut at every [SEP]."""
    flat = [i for row in rows for i in row["input_ids"] if i != CLS]
    cuts = [-1, *(n for n, i in enumerate(flat) if i == SEP)]
    return [flat[a + 1 : b] for a, b in pairwise(cuts)]


# -- documents -------------------------------------------------------------------------------------


def test_the_manual_of_python_is_prose_in_documents():
    found = documents.python_manual()
    sentences = [sentence for document in found for sentence in document]
    assert len(found) > 40 and len(sentences) > 1000
    assert min(map(len, found)) > 0 and max(map(len, found)) > 20
    assert len(set(sentences)) == len(sentences)
    assert all(len(sentence.split()) > 3 and "\n" not in sentence for sentence in sentences)
    assert not [s for s in sentences if ">>>" in s or "::=" in s]


@pytest.mark.parametrize(
    "text, prose",
    [
        ("The pass statement does nothing.", True),
        ("It may be called as follows:", True),
        ("Naming and binding", False),
        ("x = [1, 2, 3].", False),
        ("the_name: (a | b | c) ::= [d].", False),
        ("x ** y is a power.", False),
        ("(1, 2), (3, 4) and (5, 6).", False),
    ],
)
def test_what_prose_is(text, prose):
    assert documents._is_prose(text) == prose


def test_korean_documents_are_single_sentences():
    found = documents.korean()
    assert len(found) > 1000 and {len(document) for document in found} == {1}
    assert any("먹었다" in document[0] for document in found)


def test_blank_lines_part_documents(tmp_path):
    (tmp_path / "t").write_text("\n\n a b \nc\r\n \t\n\nd\n", encoding="utf-8")
    assert documents.read(tmp_path / "t") == [["a b", "c"], ["d"]]
    (tmp_path / "t").write_text("\n \n", encoding="utf-8")
    with pytest.raises(InputError, match="t: every line is blank; give one sentence a line"):
        documents.read(tmp_path / "t")


@pytest.mark.parametrize("count", [1, 2, 3, 9, 10, 99])
def test_a_tenth_is_held_out_but_never_all(count):
    found = [[f"{i}"] * (1 + i * 7 % 13) for i in range(count)]
    rest, held_out = documents.split(found)
    assert sorted(rest + held_out) == sorted(found)
    assert len(held_out) == (0 if count == 1 else max(1, (count + 4) // 10))
    assert rest == [document for document in found if document in rest], "the order stays"


# -- examples --------------------------------------------------------------------------------------


def test_encode_leaves_out_what_has_no_token(tokenizer):
    a, b = (tokenizer.token_to_id(letter) for letter in "ab")
    assert encode([["a b", "\x01", "f"], ["\x02"], ["B"]], tokenizer) == [[[a, b], [UNK]], [[b]]]


def test_pairs_have_their_segments_and_hide_nothing_special(ids, tokenizer):
    for seed in range(20):
        for text in whole_texts(ids, tokenizer, True, 12, np.random.default_rng(seed)):
            row, kinds = text["input_ids"], text["token_type_ids"]
            assert len(row) <= 12 and row[0] == CLS and row[-1] == SEP and row.count(SEP) == 2
            first = row.index(SEP) + 1
            assert kinds == [0] * first + [1] * (len(row) - first)
            assert text["special"] == [int(i in (CLS, SEP)) for i in row]
            assert text["next_sentence_label"] in (0, 1)


def test_a_pair_with_label_0_stands_in_a_document_as_it_is(ids, tokenizer):
    wholes = [[i for sentence in document for i in sentence] for document in ids]
    labels = set()
    for seed in range(20):
        for text in whole_texts(ids, tokenizer, True, 100, np.random.default_rng(seed)):
            a, b = sentences_of([text])
            together = any(
                whole[i : i + len(a + b)] == a + b for whole in wholes for i in range(len(whole))
            )
            assert together or text["next_sentence_label"] == 1
            labels.add(text["next_sentence_label"])
    assert labels == {0, 1}


def test_rows_have_every_token_once_and_separators_between_documents(ids, tokenizer):
    for length in (4, 8, 100):
        rows = whole_texts(ids, tokenizer, False, length, np.random.default_rng(0))
        assert all(len(row["input_ids"]) <= length for row in rows)
        assert all(
            row["special"] == [int(i in (CLS, SEP)) for i in row["input_ids"]] for row in rows
        )
        assert rows[0].keys() == {"input_ids", "special"}
        joined = [i for part in sentences_of(rows) for i in part]
        assert joined == [i for document in ids for sentence in document for i in sentence]
    assert sentences_of(rows) == [[i for s in document for i in s] for document in ids]


@pytest.mark.parametrize("recipe", ["bert", "roberta"])
def test_hide_leaves_special_places_alone_and_labels_what_stood_there(recipe, tokenizer):
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 10, (50, 40))
    special = np.zeros_like(ids)
    special[:, [0, 20, 39]] = 1
    given = {"input_ids": ids.copy(), "special": special, "other": 1}
    hidden = Hide(tokenizer, recipe)(given, rng)
    assert hidden.keys() == {"input_ids", "labels", "other"}
    assert set(given) == {"input_ids", "special", "other"}, "what is given stays as it is"
    chosen = hidden["labels"] != IGNORE_INDEX
    assert not chosen[special == 1].any()
    np.testing.assert_array_equal(hidden["labels"][chosen], ids[chosen])
    np.testing.assert_array_equal(hidden["input_ids"][~chosen], ids[~chosen])
    assert (chosen.sum(1) == 6).all(), "15% of 40"
    drawn = hidden["input_ids"][chosen]
    assert 0.7 < (drawn == MASK).mean() < 0.9
    if recipe == "roberta":
        assert not set(drawn.tolist()) & {PAD, UNK, CLS, SEP}


def test_copies_differ_in_pairs_and_in_hidden_words(ids, tokenizer):
    examples = hidden_once(ids, tokenizer, True, 12, 10, seed=1)
    once = len(hidden_once(ids, tokenizer, True, 12, 1, seed=1))
    assert 5 * once < len(examples) < 20 * once
    assert len({str(example["labels"]) for example in examples}) > len(examples) / 3
    for example in examples:
        assert "special" not in example and (example["labels"] != IGNORE_INDEX).any()

    def plain(found):
        return [{k: np.asarray(v).tolist() for k, v in example.items()} for example in found]

    assert plain(hidden_once(ids, tokenizer, True, 12, 10, seed=1)) == plain(examples)
    assert plain(hidden_once(ids, tokenizer, True, 12, 10, seed=2)) != plain(examples)


def epoch(batches):
    return list(islice(batches, len(batches)))


def hidden_in(batches):
    """{text as it was: labels} of one epoch."""
    rows = {}
    for batch in epoch(batches):
        for row, labels in zip(batch["input_ids"], batch["labels"], strict=True):
            whole = np.where(labels == IGNORE_INDEX, row, labels)
            rows.setdefault(tuple(whole), []).append(tuple(labels))
    return {text: sorted(labels) for text, labels in rows.items()}


def test_static_masks_stay_and_dynamic_ones_change_from_epoch_to_epoch(tokenizer):
    rng = np.random.default_rng(0)
    many = [[rng.integers(5, 10, 9).tolist() for _ in range(6)] for _ in range(10)]
    for recipe, stays in (("bert", True), ("roberta", False)):
        batches = new_batches(many, tokenizer, recipe, 20, 200, seed=0)
        first, second = hidden_in(batches), hidden_in(batches)
        if stays:  # ten copies of every text, the same ones in both epochs
            assert sum(map(len, first.values())) == sum(map(len, second.values()))
            assert first == second
        else:
            assert first.keys() == second.keys() and first != second
            drawn = [b["input_ids"][b["labels"] != IGNORE_INDEX] for b in epoch(batches)]
            assert not {PAD, UNK, CLS, SEP} & {*np.concatenate(drawn).tolist()}
        names = {"input_ids", "labels", "attention_mask"}
        names |= {"token_type_ids", "next_sentence_label"} if stays else set()
        assert next(batches).keys() == names


@pytest.mark.parametrize(
    "length, tokens, said",
    [(4, 100, "--max-length 4: .* give 5 or more"), (50, 49, "--max-tokens 49: .* 50; give that")],
)
def test_lengths_are_checked(length, tokens, said):
    with pytest.raises(InputError, match=said):
        pretraining.check_lengths(argparse.Namespace(max_length=length, max_tokens=tokens), 5)
    pretraining.check_lengths(argparse.Namespace(max_length=5, max_tokens=5), 5)


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_least_length_of_a_recipe_is_enough(recipe, ids, tokenizer):
    batches = new_batches(ids, tokenizer, recipe, RECIPES[recipe].least, 20, seed=0)
    assert next(batches)["input_ids"].shape[1] <= RECIPES[recipe].least
    with pytest.raises(ValueError):
        new_batches(ids, tokenizer, recipe, RECIPES[recipe].least - 1, 20, seed=0)


# -- scores ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", RECIPES)
def test_scores_are_those_of_each_text_alone(recipe, ids, tokenizer):
    how = RECIPES[recipe]
    tinyfm.manual_seed(0)
    config = models.BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=20, initializer_range=0.5,
    )  # fmt: skip
    model = how.cls(config).eval()
    tests = hidden_once(ids, tokenizer, how.pairs, 12, 3, seed=0)
    loss = right = words = follows = 0
    for example in tests:
        batch = {name: np.asarray(value)[None] for name, value in example.items()}
        labels, label = batch.pop("labels"), batch.pop("next_sentence_label", None)
        output = model(**batch)
        logits = output.prediction_logits if how.pairs else output.logits
        places = labels[0] != IGNORE_INDEX
        rows, wanted = logits.data[0][places].astype(np.float64), labels[0][places]
        shares = np.exp(rows) / np.exp(rows).sum(-1, keepdims=True)
        loss -= np.log(shares[np.arange(len(wanted)), wanted]).sum()
        right += (rows.argmax(-1) == wanted).sum()
        words += len(wanted)
        if how.pairs:
            follows += int(output.seq_relationship_logits.data.argmax() == label[0])
    found = pretraining.score(model, tests)
    assert (found.loss, found.masked_lm, found.words) == pytest.approx(
        (loss / words, right / words, words), rel=1e-5
    )
    assert (found.next_sentence, found.pairs) == (
        (pytest.approx(follows / len(tests)), len(tests)) if how.pairs else (None, 0)
    )
    assert ("NSP" in str(found)) == how.pairs
