"""Text files and the subword tokenizer."""

import gzip
import json
import logging
import os
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyfm.errors import InputError
from tinyfm.text import Tokenizer, read_lines, read_pairs

LINES = [
    "나는 사과를 먹었다.",
    "그녀는 어제 사과를 먹지 않았다.",
    "Eine alte Frau (78) sagt: »Guten Tag, Frau Groß!«",
    "Das Café öffnet um 9:30 Uhr; 12 Männer warten <dort>.",
    "The old man kept saying 'hello' to 3 dogs & 4 cats / birds + $5.",
] * 2


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(LINES, 300)


def write(path, content):
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def error_of(function, *arguments):
    with pytest.raises(InputError) as caught:
        function(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message


# Files


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_r54_lines_are_utf8_without_mark_and_line_ends(tmp_path, name):
    content = b"\xef\xbb\xbf" + "사과\r\n\r\n a b \nlast".encode()
    assert read_lines(write(tmp_path / name, content)) == ["사과", "", " a b ", "last"]


def test_only_line_feeds_end_a_line(tmp_path):
    text = "one\u2028still one\x0cstill\x85one\rone\ntwo\n"
    assert read_lines(write(tmp_path / "a", text.encode())) == [*text.split("\n")[:2]]


def test_r54_bad_bytes_name_file_and_line(tmp_path):
    path = write(tmp_path / "latin1.txt", b"fine\nStra\xdfe\n")
    assert error_of(read_lines, path).startswith(f"{path}:2: not valid UTF-8; save")


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_an_empty_file_is_refused(tmp_path, content):
    path = write(tmp_path / "empty", content)
    assert (
        error_of(read_lines, path)
        == f"{path}: the file is empty; give one with a sentence in each line"
    )


def test_r77_what_cannot_be_read_is_named(tmp_path):
    missing = tmp_path / "missing.txt"
    assert error_of(read_lines, missing).startswith(f"{missing}: No such file or directory; give")
    assert error_of(read_lines, tmp_path).startswith(f"{tmp_path}: Is a directory; give a file")


@pytest.mark.parametrize("damage", ["cut", "flipped", "not gzip"])
def test_a_damaged_archive_is_named(tmp_path, damage):
    content = bytearray(gzip.compress(os.urandom(500).hex().encode()))
    if damage == "cut":
        content = content[:200]
    elif damage == "flipped":
        content[200] ^= 255
    else:
        content = bytearray(b"plain text")
    path = tmp_path / "a.gz"
    path.write_bytes(content)
    assert error_of(read_lines, path).startswith(f"{path}: the gzip archive is cut short or")


def test_pairs_keep_lines_together(tmp_path):
    source = write(tmp_path / "s.gz", "하나\n둘\n".encode())
    target = write(tmp_path / "t", b"one\r\ntwo")
    assert read_pairs(source, target) == [("하나", "one"), ("둘", "two")]


def test_r80_dropped_pairs_are_counted_and_reported(tmp_path, caplog):
    source = write(tmp_path / "s", b"a\n\nc\nd\n")
    target = write(tmp_path / "t", b"A\nB\n \t\nD\n")
    with caplog.at_level(logging.WARNING):
        assert read_pairs(source, target) == [("a", "A"), ("d", "D")]
    assert [record.getMessage() for record in caplog.records] == [
        f"{source} and {target}: dropped 2 of 4 pairs, which have a blank side"
    ]


def test_nothing_is_reported_when_nothing_is_dropped(tmp_path, caplog):
    path = write(tmp_path / "s", b"a\nb\n")
    read_pairs(path, path)
    assert caplog.records == []


def test_unequal_files_are_refused_with_both_counts(tmp_path):
    source, target = write(tmp_path / "s", b"a\nb\n"), write(tmp_path / "t", b"A\nB\n\n")
    message = error_of(read_pairs, source, target)
    assert f"{source} has 2 lines and {target} has 3" in message


def test_files_without_a_full_pair_are_refused(tmp_path):
    source, target = write(tmp_path / "s", b"a\n\n"), write(tmp_path / "t", b"\nB\n")
    message = error_of(read_pairs, source, target)
    assert str(source) in message and str(target) in message


def test_pairs_from_one_file_end_at_the_second_tab(tmp_path):
    path = write(
        tmp_path / "pairs.tsv.gz", "Go.\t가.\tCC-BY 2.0\tid 7\n\nI see.\t알겠어.\r\n".encode()
    )
    assert read_pairs(path) == [("Go.", "가."), ("I see.", "알겠어.")]


def test_a_line_without_a_tab_is_named(tmp_path):
    path = write(tmp_path / "pairs.tsv", b"a\tA\n\nb B\n")
    assert error_of(read_pairs, path).startswith(f"{path}:3: no tab; each line must be source, tab")


def test_pairs_know_where_they_stand(tmp_path):
    source = write(tmp_path / "s", b"a\n\nc\n")
    target = write(tmp_path / "t", b"A\nB\nC\n")
    pairs = read_pairs(source, target)
    assert [pairs.where(1), pairs.where(1, 1)] == [f"{source}:3", f"{target}:3"]
    both = write(tmp_path / "pairs.tsv", b"\t\nb\tB\n")
    assert read_pairs(both).where(0, 1) == f"{both}:2"


# Tokenizer


def test_special_ids_are_fixed(tokenizer):
    ids = [tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id]
    assert ids == [0, 1, 2, 3]
    assert [tokenizer.id_to_token(i) for i in ids] == ["<pad>", "<s>", "</s>", "<unk>"]
    assert tokenizer.token_to_id("</s>") == 2
    assert tokenizer.token_to_id("no such token") is None
    assert tokenizer.id_to_token(len(tokenizer)) is None
    assert tokenizer.id_to_token(len(tokenizer) - 1) is not None


words = st.text(sorted(set("".join(LINES)) - {" "}), min_size=1, max_size=12)


@given(st.lists(words, max_size=8).map(" ".join))
def test_decoding_gives_known_text_back(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


@given(st.lists(words, max_size=8).map(" ".join))
def test_offsets_and_words_fit_the_text(tokenizer, text):
    encoding = tokenizer.encode(text)
    assert "".join(text[start:end] for start, end in encoding.offsets) == text.replace(" ", "")
    assert encoding.word_ids == sorted(encoding.word_ids)
    assert len({*map(len, encoding)}) == 1


@given(st.text())
def test_every_text_is_accepted(tokenizer, text):
    encoding = tokenizer.encode(text)
    assert set(encoding.ids).isdisjoint({0, 1, 2})
    assert set(encoding.type_ids) <= {0}
    tokenizer.decode(encoding.ids)


def test_r40_decomposed_korean_is_recomposed(tokenizer):
    text = "나는 사과를 먹었다."
    encoding = tokenizer.encode(unicodedata.normalize("NFD", text))
    assert encoding.ids == tokenizer.encode(text).ids
    assert 3 not in encoding.ids
    assert tokenizer.decode(encoding.ids) == text


def test_r40_lower_casing_keeps_accents():
    lower = Tokenizer.train(["Das CAFÉ Café café 안녕"] * 2, 100, lowercase=True)
    decomposed = unicodedata.normalize("NFD", "Das CAFÉ 안녕")
    assert lower.decode(lower.encode(decomposed).ids) == "das café 안녕"


def test_white_space_is_folded(tokenizer):
    text = " \u00a0man \t kept\u3000\n"
    assert tokenizer.encode(text).ids == tokenizer.encode("man kept").ids
    assert tokenizer.decode(tokenizer.encode(text).ids) == "man kept"


def test_signs_and_digits_stand_alone(tokenizer):
    text = "Frau, Frau. (Frau) 78 + 9"
    encoding = tokenizer.encode(text)
    words = {}
    for word, (start, end) in zip(encoding.word_ids, encoding.offsets, strict=True):
        words[word] = words.get(word, "") + text[start:end]
    assert [*words.values()] == ["Frau", ",", "Frau", ".", "(", "Frau", *")78+9"]
    assert tokenizer.encode("Frau.").ids[0] == tokenizer.encode("Frau").ids[0]
    assert len(tokenizer.encode("Frau.").ids) == 2


def test_unknown_characters_become_one_unk(tokenizer):
    encoding = tokenizer.encode("man 漢字漢")
    assert [i for i in encoding.ids if i == 3] == [3]
    assert tokenizer.decode(encoding.ids).strip() == "man"


def test_r43_control_text_is_ordinary_text(tokenizer):
    text = "hello </s> <s> <pad><unk>"
    plain = tokenizer.encode(text)
    assert set(plain.ids).isdisjoint({0, 1, 2, 3})
    assert tokenizer.decode(plain.ids) == text
    assert tokenizer.encode_batch([text]) == [plain.ids]
    special = tokenizer.encode(text, special_tokens=True).ids
    assert special[-4:] == [2, 1, 0, 3]
    assert tokenizer.encode(text) == plain, "the option lasts for one call"


def test_r43_control_text_is_not_learnt_as_a_special():
    lines = ["a<s>b", "c<s>d", "e<s>f"]  # nothing is frequent but "<s>"
    ids = Tokenizer.train(lines, 100).encode_batch(lines)
    assert all(1 not in row for row in ids)


def test_pairs_have_types_and_their_own_offsets(tokenizer):
    encoding = tokenizer.encode("The old man", "alte Frau")
    first, second = tokenizer.encode("The old man"), tokenizer.encode("alte Frau")
    assert encoding.ids == first.ids + second.ids
    assert encoding.type_ids == [0] * len(first.ids) + [1] * len(second.ids)
    assert encoding.offsets == first.offsets + second.offsets


def test_batches_are_single_encodings(tokenizer):
    assert tokenizer.encode_batch(LINES) == [tokenizer.encode(line).ids for line in LINES]
    assert tokenizer.encode_batch([]) == []


def test_specials_are_not_decoded(tokenizer):
    ids = tokenizer.encode("old man").ids
    assert tokenizer.decode([1, *ids, 2, 0, 0]) == "old man"


def test_saved_and_loaded_is_the_same(tokenizer, tmp_path):
    folder = tmp_path / "한국어" / "model"
    tokenizer.save(folder)
    loaded = Tokenizer.load(folder)
    assert len(loaded) == len(tokenizer)
    assert loaded.encode_batch(LINES) == tokenizer.encode_batch(LINES)
    assert loaded.encode("</s>").ids == tokenizer.encode("</s>").ids
    assert json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]["type"] == "BPE"


def test_r77_missing_or_damaged_tokenizer_is_named(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    assert error_of(Tokenizer.load, tmp_path).startswith(f"{path}: No such file or directory; give")
    tokenizer.save(tmp_path)
    content = path.read_bytes()
    for damaged in (b"", b"{", b"{}", content[:500], b"\xff\xfe", b"null"):
        path.write_bytes(damaged)
        assert error_of(Tokenizer.load, tmp_path).startswith(f"{path}: not a tokenizer that fits")
    path.write_bytes(content.replace(b"<pad>", b"[PAD]"))
    assert "lacks <pad>" in error_of(Tokenizer.load, tmp_path)


def test_no_text_is_no_vocabulary():
    for lines in ([], ["", "  "]):
        assert "no text" in error_of(Tokenizer.train, lines, 100)


def test_vocabulary_size():
    tokenizer = Tokenizer.train(LINES, 150)
    assert len(tokenizer) == 150
    characters = {c for line in LINES for c in line} - {" "} | {"▁"}
    assert len(Tokenizer.train(LINES, 5)) == len(characters) + 4


TRAIN_AND_PRINT = """
import sys
from tinyfm.text import Tokenizer, read_lines
tokenizer = Tokenizer.train(read_lines(sys.argv[1]), 200)
tokenizer.save(sys.argv[2])
ids = Tokenizer.load(sys.argv[2]).encode_batch(read_lines(sys.argv[1]))
print(*[i for row in ids for i in row])
"""


def test_r54_training_is_the_same_in_every_process_and_locale(tmp_path):
    corpus = write(tmp_path / "ko.txt", "\n".join(LINES).encode())
    here = Tokenizer.train(LINES, 200)
    here.save(tmp_path / "here")
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONHASHSEED": "7"}
    there = subprocess.run(
        [sys.executable, "-c", TRAIN_AND_PRINT, corpus, tmp_path / "there"],
        env={**os.environ, **locale, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert there.returncode == 0, there.stderr
    ids = [i for row in here.encode_batch(LINES) for i in row]
    assert there.stdout.split() == list(map(str, ids))
    saved = [(tmp_path / name / "tokenizer.json").read_bytes() for name in ("here", "there")]
    assert saved[0] == saved[1]
