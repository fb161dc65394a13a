"""Text that is printed while it is made: whole characters, as soon as they are whole."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tinyfm.generation import TextStreamer, continued
from tinyfm_tests.scripted import EOS, SOURCE, Continuing, Scripted, sources, toy

MARK = "\ufffd"


class Bytes:
    """Each id is a byte, as in a byte-level vocabulary that has learnt no merges."""

    def decode(self, ids):
        return bytes(ids).decode("utf-8", errors="replace")


def streamed(data, **options):
    """The pieces in which a streamer writes the ids of `data`, and how much after each id."""
    pieces, counts = [], []
    streamer = TextStreamer(Bytes(), pieces.append, **options)
    for i in data:
        streamer(np.array([i]))
        counts.append(sum(map(len, pieces)))
    streamer.end()
    return pieces, counts


@example(f"a{MARK}{MARK}b{MARK}")  # marks that stand in the text itself
@example("é€😀")
@given(st.text())
def test_each_character_is_written_with_its_last_byte(text):
    data = text.encode()
    pieces, counts = streamed(data)
    assert "".join(pieces) == text and all(pieces)
    for i, count in enumerate(counts):
        whole = len(data[: i + 1].decode("utf-8", errors="ignore"))
        # A mark of the text's own cannot be told from half a character, and waits for what follows.
        assert count == len(text[:whole].rstrip(MARK))


@given(st.binary())
def test_what_never_becomes_a_character_is_written_as_marks(data):
    pieces, _ = streamed(data)
    assert "".join(pieces) == data.decode("utf-8", errors="replace")


def test_half_a_character_is_held_back_and_written_at_the_end_at_the_latest():
    assert streamed("a€".encode()[:-1]) == (["a", MARK], [1, 1, 1])
    assert streamed("a€".encode()) == (["a", "€"], [1, 1, 1, 2])


def test_the_pieces_of_a_published_kind_of_vocabulary():
    """What the library of the tokenizers decodes, with its own alphabet for bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    text, pieces = "a é 한국어 😀!", []
    streamer = TextStreamer(tokenizer, pieces.append)
    for i in tokenizer.encode(text).ids:
        streamer(np.array([i]))
    streamer.end()
    assert pieces == [*text]


def test_ids_to_skip_give_no_text():
    assert streamed([97, 33, 98, 34], skip=[33, 34]) == (["a", "b"], [1, 1, 2, 2])


class Words:
    """Each id is a word, and a space parts two of them, as in GPT-1's vocabulary."""

    def decode(self, ids):
        return " ".join(chr(i) for i in ids)


@given(st.text("ab"), st.text("ab"))
def test_a_prompt_is_gone_on_with_as_if_both_were_one_text(prompt, text):
    pieces, before = [], [*map(ord, prompt)]
    streamer = TextStreamer(Words(), pieces.append, before=before)
    for _ in range(2):
        for i in text:
            streamer(np.array([ord(i)]))
        streamer.end()
    whole = Words().decode(before) + "".join(pieces[: len(pieces) // 2])
    assert whole == Words().decode([*before, *map(ord, text)])
    assert pieces[: len(pieces) // 2] == pieces[len(pieces) // 2 :]
    assert continued(Words(), before, [*map(ord, text)]) == "".join(pieces[: len(pieces) // 2])


@pytest.mark.parametrize("prompt", [f"a{MARK}", "a€"])
def test_a_prompt_that_ends_in_a_mark_or_in_half_a_character(prompt):
    """A mark of the text's own is not written again; half a character is, when it is whole."""
    data = prompt.encode()
    assert continued(Bytes(), data, b"b") == "b"
    assert continued(Bytes(), "a€".encode()[:2], "€".encode()[1:] + b"b") == "€b"
    assert streamed("€".encode()[1:] + b"b", before="a€".encode()[:2])[0] == ["€", "b"]


def test_a_streamer_serves_again_and_knows_nothing_of_the_text_before():
    """The two halves of a character in two texts are two halves."""
    pieces = []
    streamer = TextStreamer(Bytes(), pieces.append)
    for data in ("€".encode()[:1], "€".encode()[1:]):
        for i in data:
            streamer(np.array([i]))
        streamer.end()
    assert pieces == [MARK, MARK * 2]


def test_pieces_are_printed_at_once(monkeypatch):
    happened = []

    class Screen:
        def write(self, text):
            happened.append(text)

        def flush(self):
            happened.append("flush")

    monkeypatch.setattr("sys.stdout", Screen())
    streamer = TextStreamer(Bytes())
    streamer(np.array([97]))
    assert happened == ["a", "flush"]


def test_generate_streams_each_new_token_and_says_when_it_is_over():
    class Record(list):
        def __call__(self, ids):
            assert not self.over
            self.append(ids.tolist())

        def end(self):
            self.over = True

        over = False

    record = Record()
    made = toy(Continuing).generate(np.array([[4, 1], [4, 4]]), max_length=8, streamer=record)
    assert record.over
    assert record == made[:, 2:].T.tolist()  # without the prompt, with the end and its padding
    assert record == [[3, 2], [2, 0]]


def test_one_sequence_is_shown_and_no_beams():
    spell = Scripted(lambda source, said: np.eye(256)[[97, 98, EOS][len(said) - 1]])
    pieces = []
    streamer = TextStreamer(Bytes(), pieces.append, skip=[EOS])
    spell.generate(SOURCE, streamer=streamer)
    assert pieces == ["a", "b"]
    with pytest.raises(ValueError, match="streamer: 2 sequences run and one can be shown"):
        spell.generate(sources(1, 2), streamer=streamer)
    with pytest.raises(ValueError, match="streamer: beams have no token that stays"):
        spell.generate(SOURCE, streamer=streamer, num_beams=2)
