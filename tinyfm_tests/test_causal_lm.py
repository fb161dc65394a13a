"""Language modelling: which tokens count, and how texts become examples."""

import gzip
import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tinyfm.data import IGNORE_INDEX, collate_examples
from tinyfm.objectives import (
    chat_example,
    chat_parts,
    chat_prompt,
    pack,
    prefix_lm_example,
    sft_example,
    shifted,
    windows,
)
from tinyfm.tokenizer import Tokenizer

END = 50256
IDS = st.lists(st.integers(0, 99), max_size=12)


def counted(labels):
    """The positions at which there is a loss."""
    return np.flatnonzero(shifted(labels) != IGNORE_INDEX).tolist()


# -- the shift -------------------------------------------------------------------------------------


def test_r31_a_position_predicts_the_next_label():
    """labels [-100, 6, -100, 8]: the loss is at positions 0 and 2 (parity.md, b)."""
    assert shifted([-100, 6, -100, 8]).tolist() == [6, -100, 8, -100]
    assert shifted([[3, 4, 5], [6, 7, 8]]).tolist() == [[4, 5, -100], [7, 8, -100]]
    assert shifted(np.array([3, 4], np.int32)).dtype == np.int32


@given(st.lists(st.integers(0, 99), min_size=1, max_size=9), st.integers(0, 99))
def test_r31_the_first_label_never_matters(ids, other):
    labels = np.array(ids)
    before = labels.copy()
    targets = shifted(labels)
    assert_array_equal(labels, before)
    assert_array_equal(shifted([other, *ids[1:]]), targets)
    assert (targets != IGNORE_INDEX).sum() == len(ids) - 1  # L tokens give L - 1 losses


def test_r48_padding_has_no_label_and_the_end_token_keeps_its_own():
    """By position: pad and end are the same id."""
    texts = [[5, 6, 7, 2], [5, 2, 2, 2, 2, 2]]
    batch = collate_examples([{"input_ids": ids, "labels": ids} for ids in texts], pad_id=2)
    assert batch["input_ids"].tolist() == [[5, 6, 7, 2, 2, 2], texts[1]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 0, 0], [1] * 6]
    assert batch["labels"].tolist() == [[5, 6, 7, 2, -100, -100], texts[1]]


# -- documents -------------------------------------------------------------------------------------


def test_two_documents_are_packed_into_two_blocks_and_a_rest():
    """features.md, section 5: "I like cats." and "Paris is in France." in GPT-2's ids."""
    documents = [[40, 588, 11875, 13], [40313, 318, 287, 4881, 13]]
    blocks = [[40, 588, 11875, 13, END], [40313, 318, 287, 4881, 13]]
    whole, rest = pack(documents, 5, END, remainder="carry")
    assert (whole.tolist(), rest.tolist()) == (blocks, [END])
    assert pack(documents, 5, END).tolist() == blocks
    assert whole.dtype == rest.dtype == np.int64


@given(st.lists(IDS, max_size=6), st.integers(2, 7), st.lists(IDS, max_size=3))
def test_packing_loses_nothing_with_carry(documents, block, more):
    """Blocks and rest are the stream; the next call goes on where the rest ends."""
    stream = [token for ids in documents for token in (*ids, END)]
    blocks, rest = pack(documents, block, END, remainder="carry")
    assert blocks.shape[1] == block and len(rest) < block
    assert [*blocks.ravel(), *rest] == stream
    assert_array_equal(pack(iter(documents), block, END), blocks)
    # The rest begins the next call: packed in pieces, documents are what they are at once.
    carried, last = pack(more, block, END, remainder="carry", rest=rest)
    at_once, last_at_once = pack([*documents, *more], block, END, remainder="carry")
    assert_array_equal(np.concatenate([blocks, carried]), at_once)
    assert_array_equal(last, last_at_once)
    assert_array_equal(pack(more, block, END, rest=rest), carried)


def test_what_cannot_be_packed_is_refused():
    assert pack([], 4, END).shape == (0, 4)
    with pytest.raises(ValueError, match="block is 1: it must be at least 2"):
        pack([[1]], 1, END)
    with pytest.raises(ValueError, match="remainder is 'keep': it must be 'drop' or 'carry'"):
        pack([[1]], 4, END, remainder="keep")
    for documents, rest in (([[1.5]], ()), ([["a"]], ()), ([[1]], [2.5])):
        with pytest.raises(TypeError, match=r"the ids are .*: token ids are whole numbers"):
            pack(documents, 4, END, rest=rest)


def test_r50_windows():
    inputs, targets = windows(np.arange(8), 4)
    assert inputs.shape == targets.shape == (4, 4)
    assert (inputs[0].tolist(), targets[0].tolist()) == ([0, 1, 2, 3], [1, 2, 3, 4])
    assert (inputs[-1].tolist(), targets[-1].tolist()) == ([3, 4, 5, 6], [4, 5, 6, 7])
    assert len(windows(np.arange(5), 4)[0]) == 1
    with pytest.raises(ValueError, match="4 tokens are too few for a block of 4"):
        windows(np.arange(4), 4)
    for block in (0, -1):
        with pytest.raises(ValueError, match=f"block is {block}: it must be at least 1"):
            windows(np.arange(4), block)


@given(st.integers(1, 8), st.integers(1, 12))
def test_r50_every_window_is_there_and_its_targets_follow_it(block, more):
    ids = np.random.default_rng(block * more).integers(0, 1000, block + more)
    inputs, targets = windows(ids.tolist(), block)
    assert len(inputs) == len(targets) == len(ids) - block
    for start, (piece, after) in enumerate(zip(inputs, targets, strict=True)):
        assert_array_equal([*piece, after[-1]], ids[start : start + block + 1])
        assert_array_equal(after[:-1], piece[1:])
    assert np.shares_memory(windows(ids, block)[0], ids)  # views: long texts are not copied


# -- prompts and answers ---------------------------------------------------------------------------


def test_r49_only_the_response_and_its_end_are_trained_on():
    ids, labels = sft_example([10, 11, 12], [20, 21], end_id=2)
    assert ids == [10, 11, 12, 20, 21, 2]
    assert labels == [-100, -100, -100, 20, 21, 2]


def test_r49_twelve_and_three_tokens_are_losses_at_11_12_and_13():
    _, labels = sft_example(range(12), [12, 13], end_id=14)
    assert counted(labels) == [11, 12, 13]


@given(IDS, IDS, st.integers(0, 99))
def test_r49_whatever_the_prompt_holds(prompt, response, end):
    """Even the response, the end token or the padding id."""
    ids, labels = sft_example(prompt, response, end)
    assert ids == [*prompt, *response, end]
    assert labels == [-100] * len(prompt) + [*response, end]


def encode(text):
    return list(text.encode())


MARKERS = ["", "Assistant:", "User: x\n", "\n", "Assistant: a\nUser:", "지"]
CONTENT = st.sampled_from(MARKERS) | st.text(max_size=8)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant"]), "content": CONTENT}
    ),
    max_size=6,
)


def test_a_conversation_as_text():
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is it?"},
        {"role": "assistant", "content": "A question."},
        {"role": "user", "content": "Why?"},
    ]
    parts = list(chat_parts(messages))
    text = "System: Be brief.\nUser: What is it?\nAssistant: A question.User: Why?\n"
    assert "".join(part for part, _ in parts) == text
    assert [part for part, said in parts if said] == [" A question."]
    assert bytes(chat_prompt(messages, encode, 0)) == (
        b"System: Be brief.\nUser: What is it?\nAssistant: A question.\0User: Why?\nAssistant:"
    )


@given(MESSAGES, st.integers(256, 300))
def test_r49_every_turn_of_the_assistant_is_labelled_and_nothing_else(messages, end):
    """Whatever the contents are, markers of the template included."""
    ids, labels = chat_example(messages, encode, end)
    said = [encode(f" {m['content']}") for m in messages if m["role"] == "assistant"]
    assert [label for label in labels if label != -100] == [x for s in said for x in (*s, end)]
    assert all(label in (-100, token) for token, label in zip(ids, labels, strict=True))
    unsaid = [token for token, label in zip(ids, labels, strict=True) if label == -100]
    assert bytes(unsaid).decode() == "".join(
        "Assistant:" if m["role"] == "assistant" else f"{m['role'].capitalize()}: {m['content']}\n"
        for m in messages
    )


@given(MESSAGES, CONTENT)
def test_an_answer_is_asked_for_as_it_was_learnt(messages, answer):
    """The prompt is what stands before the first label of the turn to come."""
    prompt = chat_prompt(messages, encode, 256)
    whole = [*messages, {"role": "assistant", "content": answer}]
    ids, labels = chat_example(whole, encode, 256)
    response = [*encode(f" {answer}"), 256]
    assert ids == prompt + response
    assert labels[len(prompt) :] == response
    assert labels[len(prompt) - 1] == -100


def test_an_unknown_role_is_named():
    with pytest.raises(ValueError, match="role 'tool' is unknown: use one of system, user"):
        chat_example([{"role": "tool", "content": "x"}], encode, 256)
    for role in ("user", "assistant"):
        with pytest.raises(TypeError, match="the content of a message is None: it must be a text"):
            chat_example([{"role": role, "content": None}], encode, 256)


# -- prefix LM -------------------------------------------------------------------------------------


def test_r24_the_last_of_the_prefix_predicts_the_first_target():
    ids, labels, prefix = prefix_lm_example([5, 6, 7, 8, 9], prefix=3)
    assert (ids, labels, prefix) == ([5, 6, 7, 8, 9], [-100, -100, -100, 8, 9], 3)
    assert counted(labels) == [2, 3]


@given(st.lists(st.integers(0, 99), min_size=1, max_size=12), st.data())
def test_r24_what_follows_the_prefix_is_labelled(ids, data):
    prefix = data.draw(st.integers(0, len(ids)))
    same, labels, length = prefix_lm_example(np.array(ids), prefix)
    assert (same, length) == (ids, prefix)
    assert labels == [-100] * prefix + ids[prefix:]
    assert counted(labels) == list(range(max(prefix, 1) - 1, len(ids) - 1))


def test_r24_each_prefix_is_drawn_as_often():
    """1 to L - 1: at least one token sees, and one is predicted."""
    rng, draws = np.random.default_rng(0), 6000
    lengths = [prefix_lm_example(range(5), rng=rng)[2] for _ in range(draws)]
    found, counts = np.unique(lengths, return_counts=True)
    assert found.tolist() == [1, 2, 3, 4]
    assert np.abs(counts - draws / 4).max() < 5 * (draws * 3 / 16) ** 0.5  # 5 standard deviations


def test_prefixes_that_cannot_be():
    with pytest.raises(ValueError, match="give the prefix's length, or rng to draw it"):
        prefix_lm_example([1, 2])
    with pytest.raises(ValueError, match="a text of 1 tokens cannot be split; it needs 2"):
        prefix_lm_example([1], rng=np.random.default_rng(0))
    for prefix in (-1, 3):
        with pytest.raises(ValueError, match=f"prefix is {prefix}: it must be between 0 and the 2"):
            prefix_lm_example([1, 2], prefix)
    with pytest.raises(TypeError, match=r"prefix is 1\.5: it must be a whole number"):
        prefix_lm_example([1, 2], 1.5)


# -- with the vocabulary of GPT-2 ------------------------------------------------------------------


@pytest.fixture(scope="module")
def gpt2(data_folder, tmp_path_factory):
    source, folder = data_folder / "tokenizers" / "gpt2", tmp_path_factory.mktemp("gpt2")
    shutil.copy(source / "vocab.bpe", folder / "merges.txt")
    vocabulary = json.loads(gzip.decompress((source / "encoder.json.gz").read_bytes()))
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    tokenizer = Tokenizer.load(folder)
    return lambda text: list(tokenizer.encode(text).ids)


@pytest.mark.data
def test_the_fox_has_nine_tokens_and_eight_losses(gpt2):
    ids = gpt2("The quick brown fox jumps over the lazy dog")
    assert ids == [464, 2068, 7586, 21831, 18045, 625, 262, 16931, 3290]
    assert counted(ids) == list(range(8))
    assert gpt2("Hello world") == [15496, 995]


@pytest.mark.data
def test_r49_the_capital_of_france(gpt2):
    prompt = gpt2("Q: What is the capital of France?\nA:")
    assert prompt == [48, 25, 1867, 318, 262, 3139, 286, 4881, 30, 198, 32, 25]
    ids, labels = sft_example(prompt, gpt2(" Paris."), END)
    assert ids == [*prompt, 6342, 13, END]
    assert labels == [-100] * 12 + [6342, 13, END]
    assert counted(labels) == [11, 12, 13]


@pytest.mark.data
def test_cats_and_paris(gpt2):
    documents = [gpt2("I like cats."), gpt2("Paris is in France.")]
    whole, rest = pack(documents, 5, END, remainder="carry")
    assert whole.tolist() == [[40, 588, 11875, 13, END], [40313, 318, 287, 4881, 13]]
    assert rest.tolist() == [END]
