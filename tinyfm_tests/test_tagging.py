"""Tags of words and labels of pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyfm.objectives import entities, tag_labels, word_tags

IDS = {"O": 0, "B-ORG": 1, "I-ORG": 2, "B-LOC": 3, "I-LOC": 4}
NAMES = {number: name for name, number in IDS.items()}


def test_r51_first_pieces_carry_the_tag():
    word_ids = [None, 0, 0, 1, 1, None]
    tags = ["B-ORG", "I-ORG"]
    assert tag_labels(word_ids, tags, IDS).tolist() == [-100, 1, -100, 2, -100, -100]
    assert tag_labels(word_ids, tags, IDS, all_pieces=True).tolist() == [-100, 1, 2, 2, 2, -100]
    predictions = ["O", "B-ORG", "O", "I-ORG", "B-LOC", "O"]
    assert word_tags(word_ids, predictions) == tags
    assert tag_labels([0, 0], ["O"], IDS, all_pieces=True).tolist() == [0, 0]


def test_haeundae_beach():
    # [CLS] ha ##eu ##nda ##e beach lies in bus ##an [SEP]
    word_ids = [None, 0, 0, 0, 0, 1, 2, 3, 4, 4, None]
    labels = tag_labels(word_ids, ["B-LOC", "I-LOC", "O", "O", "B-LOC"], IDS)
    assert labels.tolist() == [-100, 3, -100, -100, -100, 4, 0, 0, 3, -100, -100]


@pytest.mark.data
def test_haeundae_beach_with_the_vocabulary(data_folder):
    from tokenizers.implementations import BertWordPieceTokenizer

    vocabulary = data_folder / "tokenizers" / "bert-base-uncased" / "vocab.txt"
    words = ["Haeundae", "Beach", "lies", "in", "Busan"]
    encoded = BertWordPieceTokenizer(str(vocabulary)).encode(words, is_pretokenized=True)
    pieces = "[CLS] ha ##eu ##nda ##e beach lies in bus ##an [SEP]"
    assert encoded.tokens == pieces.split()
    labels = tag_labels(encoded.word_ids, ["B-LOC", "I-LOC", "O", "O", "B-LOC"], IDS)
    assert labels.tolist() == [-100, 3, -100, -100, -100, 4, 0, 0, 3, -100, -100]


SENTENCES = st.lists(st.tuples(st.sampled_from(sorted(IDS)), st.integers(1, 4)), max_size=8)


@given(SENTENCES, st.booleans())
def test_r51_word_tags_inverts_tag_labels(words, all_pieces):
    tags = [tag for tag, _ in words]
    pieces = [word for word, (_, count) in enumerate(words) for _ in range(count)]
    word_ids = [None, *pieces, None]
    labels = tag_labels(word_ids, tags, IDS, all_pieces).tolist()
    assert word_tags(word_ids, [NAMES.get(label, "B-LOC") for label in labels]) == tags
    assert labels.count(-100) == 2 + (0 if all_pieces else len(pieces) - len(words))
    if all_pieces:  # no entity is added to those of the words
        inside = [NAMES[label] for label in labels[1:-1]]
        assert [e.type for e in entities(inside)] == [e.type for e in entities(tags)]


BIOES = ["O", *(f"{sign}-{name}" for sign in "BIES" for name in ("ORG", "LOC"))]


@given(st.lists(st.tuples(st.sampled_from(BIOES), st.integers(1, 4)), max_size=8))
def test_r51_pieces_with_tags_are_the_entities_of_the_words(words):
    """Also where E and S, or nothing, part entities of one type."""
    word_ids = [word for word, (_, count) in enumerate(words) for _ in range(count)]
    tags = [tag for tag, _ in words]
    ids = {tag: number for number, tag in enumerate(BIOES)}
    labels = tag_labels(word_ids, tags, ids, all_pieces=True)
    found = entities([BIOES[label] for label in labels])
    as_words = [(e.type, word_ids[e.start], word_ids[e.end - 1] + 1) for e in found]
    assert as_words == [tuple(e) for e in entities(tags)]


def test_r51_words_that_were_cut_can_be_counted():
    words = ["B-ORG", "I-ORG", "O", "O", "B-LOC"]
    word_ids = [None, 0, 0, 1, 2, None]
    assert tag_labels(word_ids, words, IDS).tolist() == [-100, 1, -100, 2, 0, -100]
    found = word_tags(word_ids, [9, 1, 2, 3, 4, 9])
    assert found == [1, 3, 4] and len(words) - len(found) == 2
    assert word_tags([None, None], [0, 0]) == []


def test_a_word_without_pieces_keeps_its_place():
    word_ids = [None, 0, 2, None]
    assert word_tags(word_ids, ["O", "B-LOC", "I-LOC", "O"]) == ["B-LOC", "O", "I-LOC"]
    assert word_tags(word_ids, [0, 3, 4, 0], missing=0) == [3, 0, 4]
    assert tag_labels(word_ids, ["B-LOC", "O", "I-LOC"], IDS).tolist() == [-100, 3, 4, -100]


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"word 1 \(from 0\) has no tag; there are 1"):
        tag_labels([0, 1], ["O"], IDS)
    with pytest.raises(ValueError, match=r"word 0 \(from 0\) needs the unknown tag 'B-PER'"):
        tag_labels([0], ["B-PER"], IDS)
    with pytest.raises(ValueError, match="needs the unknown tag 'I-X'; known are B-X"):
        tag_labels([0, 0], ["B-X"], {"B-X": 0}, all_pieces=True)
    with pytest.raises(ValueError, match="1 predictions for 2 tokens"):
        word_tags([0, 1], ["O"])
