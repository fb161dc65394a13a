"""Subword tokenizers: learnt ones, and those of published models."""

import gzip
import itertools
import json
import os
import shutil
import subprocess
import sys
import unicodedata
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyfm import InputError
from tinyfm.subwords import BERT_SPECIALS
from tinyfm.tokenizer import Tokenizer

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


def error_of(function, *arguments):
    with pytest.raises(InputError) as caught:
        function(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message


# -- what Tokenizer.train learns -------------------------------------------------------------------


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


def test_r77_a_damaged_tokenizer_is_named(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    tokenizer.save(tmp_path)
    content = path.read_bytes()
    for damaged in (b"", b"{", b"{}", content[:500], b"\xff\xfe", b"null"):
        path.write_bytes(damaged)
        assert error_of(Tokenizer.load, tmp_path).startswith(f"{path}: not a tokenizer that fits")
    path.write_bytes(content.replace(b"<pad>", b"<gap>"))
    assert Tokenizer.load(tmp_path).pad_id is None


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
from tinyfm.text import read_lines
from tinyfm.tokenizer import Tokenizer
tokenizer = Tokenizer.train(read_lines(sys.argv[1]), 200)
tokenizer.save(sys.argv[2])
ids = Tokenizer.load(sys.argv[2]).encode_batch(read_lines(sys.argv[1]))
print(*[i for row in ids for i in row])
"""


def test_r54_training_is_the_same_in_every_process_and_locale(tmp_path):
    corpus = tmp_path / "ko.txt"
    corpus.write_bytes("\n".join(LINES).encode())
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


# -- small vocabularies of the published kinds -----------------------------------------------------

PIECES = [
    *BERT_SPECIALS, *"abcdefghijklmnopqrstuvwxyz<>|/[].,?'",
    *(f"##{c}" for c in "acdefghijklmnopqrstuvwxyz"),
    "want", "##want", "##ed", "wa", "un", "runn", "##ing", "안녕", "cafe", "café", "he", "##llo",
]  # fmt: skip
MERGES = ["Ġ t", "h e", "Ġt he", "l l", "he ll"]


def write_bert(folder, pieces=PIECES, **options):
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(options), encoding="utf-8")
    return folder


def write_byte_level(folder, specials, merges=MERGES, **options):
    from tokenizers.pre_tokenizers import ByteLevel

    folder.mkdir(exist_ok=True)
    tokens = [*specials, *sorted(ByteLevel.alphabet())]
    tokens += [merge.replace(" ", "") for merge in MERGES]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(options), encoding="utf-8")
    return folder


def write_sentencepiece(folder, name="spiece.model", lines=(*LINES, "|[]_SEPMAKx"), **options):
    """A vocabulary that SentencePiece itself has learnt, with T5's special tokens."""
    from sentencepiece import SentencePieceTrainer

    folder.mkdir(exist_ok=True)
    with (folder / name).open("wb") as file:
        SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=file, vocab_size=400, character_coverage=1,
            hard_vocab_limit=False, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2,
            **options,
        )  # fmt: skip
    return folder


ROBERTA, GPT2 = ("<s>", "<pad>", "</s>", "<unk>", "<mask>"), ("<|endoftext|>",)


@pytest.fixture(scope="module")
def kinds(tmp_path_factory, tokenizer):
    """A tokenizer of each kind."""
    folder = tmp_path_factory.mktemp("kinds")
    return {
        "bpe": tokenizer,
        "bert": Tokenizer.load(write_bert(folder / "bert")),
        "wordpiece": Tokenizer.train_wordpiece(LINES, 300),
        "roberta": Tokenizer.load(write_byte_level(folder / "roberta", ROBERTA)),
        "gpt2": Tokenizer.load(write_byte_level(folder / "gpt2", GPT2)),
        "bytes": Tokenizer.train_byte_level(LINES, 300),
        "bart": Tokenizer.train_byte_level(LINES, 300, bart=True),
        "unigram": Tokenizer.train_unigram([*LINES, "|[]_SEPMAKx"], 100, sentinels=10),
        "t5": Tokenizer.load(write_sentencepiece(folder / "t5")),
        "characters": Tokenizer.train_characters([*LINES, "|[]"]),
    }


KINDS = [
    "bpe", "bert", "wordpiece", "roberta", "gpt2", "bytes", "characters", "bart", "unigram", "t5",
]  # fmt: skip
each_kind = pytest.mark.parametrize("kind", KINDS)
ROLES = ("pad", "unk", "bos", "eos", "cls", "sep", "mask")


def tokens(tokenizer, encoding):
    return [tokenizer.id_to_token(i) for i in encoding.ids]


@pytest.mark.parametrize(
    "kind, ids, special",
    [
        ("bpe", (0, 3, 1, 2, 1, 2, None), (0, 1, 2, 3)),
        ("bert", (0, 1, None, None, 2, 3, 4), (0, 1, 2, 3, 4)),
        ("wordpiece", (0, 1, None, None, 2, 3, 4), (0, 1, 2, 3, 4)),
        ("roberta", (1, 3, 0, 2, 0, 2, 4), (0, 1, 2, 3, 4)),
        ("gpt2", (None, None, 0, 0, None, None, None), (0,)),
        ("bytes", (None, None, 0, 0, None, None, None), (0,)),
        ("characters", (None, 1, 0, 0, None, None, None), (0, 1)),
        ("bart", (1, 3, 0, 2, 0, 2, 299), (0, 1, 2, 3, 299)),
        ("unigram", (0, 2, None, 1, None, 1, None), (0, 1, 2, *range(90, 100))),
        ("t5", (0, 2, None, 1, None, 1, None), (0, 1, 2, *range(95, 195))),
    ],
)
def test_the_special_tokens_of_each_kind(kinds, kind, ids, special):
    assert tuple(getattr(kinds[kind], f"{role}_id") for role in ROLES) == ids
    assert kinds[kind].special_ids == special


@pytest.mark.parametrize(
    "kind, single, pair, types",
    [
        ("bpe", "▁he", "▁he ▁a", [0, 1]),
        ("bert", "[CLS] he [SEP]", "[CLS] he [SEP] a [SEP]", [0, 0, 0, 1, 1]),
        ("roberta", "<s> he </s>", "<s> he </s> </s> a </s>", [0] * 6),
        ("gpt2", "he", "he a", [0, 1]),
        ("bytes", "he", "he a", [0, 1]),
        ("characters", "h e", "h e a", [0, 0, 1]),
        ("bart", "<s> he </s>", "<s> he </s> </s> a </s>", [0] * 6),
        ("unigram", "▁ h e </s>", "▁ h e </s> ▁ a </s>", [0] * 7),
        ("t5", "▁ he </s>", "▁ he </s> ▁ a </s>", [0] * 6),
    ],
)
def test_the_template_of_each_kind(kinds, kind, single, pair, types):
    t = kinds[kind] if kind != "bpe" else Tokenizer.train(["he a"] * 2, 20)
    assert tokens(t, t.encode("he")) == single.split()
    encoding = t.encode("he", "a")
    assert tokens(t, encoding) == pair.split()
    assert encoding.type_ids == types


@each_kind
@pytest.mark.parametrize("pair", [None, "The 3 dogs & cats"])
def test_offsets_lead_to_the_text_and_are_nothing_for_the_template(kinds, kind, pair):
    t, text = kinds[kind], "hello (old) man."
    encoding = t.encode(text, pair)
    assert len({*map(len, encoding)}) == 1
    spans = [span for span, word in zip(*encoding[2:], strict=True) if word is not None]
    whole = (text + (pair or "")).replace(" ", "")
    second = next((i for i in range(1, len(spans)) if spans[i][0] < spans[i - 1][0]), len(spans))
    found = [text[a:b] for a, b in spans[:second]] + [(pair or "")[a:b] for a, b in spans[second:]]
    assert "".join(found) == whole
    template = [i for i, word in enumerate(encoding.word_ids) if word is None]
    assert all(encoding.offsets[i] == (0, 0) for i in template)
    assert {encoding.ids[i] for i in template} <= set(t.special_ids)


@each_kind
def test_r43_control_text_is_ordinary_text_for_each_kind(kinds, kind):
    t, text = kinds[kind], "hello <|endoftext|> [SEP] </s> <mask> [MASK]"
    template = t.encode("").ids
    plain = t.encode(text)
    assert [i for i in plain.ids if i in t.special_ids and i != t.unk_id] == template
    assert t.encode_all([text]) == [plain] and t.encode_batch([text]) == [plain.ids]
    if kind in ("roberta", "gpt2", "bytes", "bart", "unigram", "t5"):
        assert t.decode(plain.ids) == text
    elif kind == "bert":
        assert t.decode(plain.ids).replace(" ", "") == text.lower().replace(" ", "")
    own = t.id_to_token(t.special_ids[-1])
    special = t.encode(f"hello {own}", special_tokens=True)
    assert t.special_ids[-1] in special.ids and t.encode(text) == plain


@each_kind
def test_batches_are_the_single_encodings_of_each_kind(kinds, kind):
    t, texts, pairs = kinds[kind], [*LINES, "hello"], [*LINES[::-1], "man"]
    for seconds in (None, pairs):
        for length in (None, 7):
            single = [
                t.encode(text, second, max_length=length)
                for text, second in zip(texts, seconds or [None] * len(texts), strict=True)
            ]
            assert t.encode_all(texts, seconds, length) == single
            assert t.encode_batch(texts, seconds, length) == [each.ids for each in single]
    with pytest.raises(ValueError):
        t.encode_batch(texts, pairs[:-1])


# -- cutting ---------------------------------------------------------------------------------------


def test_r53_the_longer_text_is_cut_first(kinds):
    t = kinds["bert"]
    encoding = t.encode("a " * 10, "b " * 4, max_length=12)
    assert tokens(t, encoding) == ["[CLS]", *"aaaaa", "[SEP]", *"bbbb", "[SEP]"]
    assert encoding.type_ids == [0] * 7 + [1] * 5
    encoding = t.encode("a", "b " * 12, max_length=12)
    assert tokens(t, encoding) == ["[CLS]", "a", "[SEP]", *"bbbbbbbb", "[SEP]"]
    with pytest.raises(ValueError, match="max_length is 2, and the special tokens alone are 3"):
        t.encode("a", "b", max_length=2)
    assert len(t.encode("a " * 10).ids) == 12, "the length is one call's"


@each_kind
@given(first=st.integers(0, 9), second=st.integers(-1, 9), length=st.integers(0, 20))
def test_r53_no_special_token_is_lost_and_nothing_more_than_needed(
    kinds, kind, first, second, length
):
    t, text, pair = kinds[kind], "a " * first, None if second < 0 else "b " * second
    whole, least = t.encode(text, pair), len(t.encode("", None if pair is None else "").ids)
    if length < least:
        with pytest.raises(ValueError, match="special tokens alone"):
            t.encode(text, pair, max_length=length)
        return
    cut = t.encode(text, pair, max_length=length)
    assert len(cut.ids) == min(length, len(whole.ids))
    assert len([word for word in cut.word_ids if word is None]) == least


@pytest.mark.parametrize("kind", ["bert", "wordpiece", "roberta", "unigram"])
@given(
    words=st.lists(st.sampled_from(["a", "he", "t,"]), max_size=40),
    stride=st.integers(0, 3),
    more=st.integers(1, 15),
)
def test_windows_see_the_whole_passage_in_parts_that_overlap(kinds, kind, words, stride, more):
    t, question, passage, room = kinds[kind], "man?", " ".join(words), stride + more
    length = len(t.encode(question, "").ids) + room
    windows = t.encode_windows(question, passage, length, stride)
    whole = t.encode(question, passage)
    body = [i for i, ok in enumerate(allowed(t, question, whole)) if ok]
    seen = []
    for window in windows:
        encoding, is_passage = window
        assert len(encoding.ids) == len(is_passage) <= length
        part = [i for i, ok in enumerate(is_passage) if ok]
        assert part == [i for i, ok in enumerate(allowed(t, question, encoding)) if ok]
        assert window is windows[-1] or len(part) == room
        found = [(encoding.ids[i], encoding.offsets[i]) for i in part]
        if seen:
            assert seen[len(seen) - stride :] == found[:stride]
        seen += found[stride if seen else 0 :]
    assert seen == [(whole.ids[i], whole.offsets[i]) for i in body]


def allowed(t, question, encoding):
    """Which tokens are the passage's: those after the question's and the template's."""
    before = len(t.encode(question, "").ids) - 1
    return [i >= before and i < len(encoding.ids) - 1 for i in range(len(encoding.ids))]


@pytest.mark.parametrize("stride", [-1, 2, 5])
def test_windows_without_room_are_refused(kinds, stride):
    with pytest.raises(ValueError, match="the question leaves room for 2 of the passage's tokens"):
        kinds["bert"].encode_windows("a b c", "he he he he he he", 8, stride)


# -- given words -----------------------------------------------------------------------------------


@each_kind
def test_r51_words_are_counted_as_they_are_given(kinds, kind):
    t, words = kinds[kind], ["hello-man", "(old)", "a b", "The", "9:30", "x"]
    encoding = t.encode_words(words)
    text = " ".join(words)
    pieces = [""] * len(words)
    for word, (start, end) in zip(encoding.word_ids, encoding.offsets, strict=True):
        if word is not None:
            pieces[word] += text[start:end]
    assert [piece.replace(" ", "") for piece in pieces] == [word.replace(" ", "") for word in words]
    assert encoding.ids == t.encode(text).ids
    assert len(t.encode_words(words, max_length=6).ids) == 6


def test_r51_a_word_without_a_token_takes_nobodys_place(kinds):
    encoding = kinds["bert"].encode_words(["a", "\x00", "", "b"])
    assert encoding.word_ids == [None, 0, 3, None]


# -- WordPiece -------------------------------------------------------------------------------------


def test_r41_a_word_fits_whole_or_is_one_unk(kinds):
    t = kinds["bert"]
    text = f"unwanted running unwantedX# {'x' * 101}"
    encoding = t.encode(text)
    wanted = "[CLS] un ##want ##ed runn ##ing un ##want ##ed ##x [UNK] [UNK] [SEP]"
    assert tokens(t, encoding) == wanted.split()
    assert [end - start for start, end in encoding.offsets[-3:-1]] == [1, 101]
    encoding = t.encode("unwantedB man")  # no piece is ##b
    assert tokens(t, encoding)[1] == "[UNK]" and encoding.offsets[1] == (0, 9)
    assert len(t.encode("x" * 100).ids) == 102


COMPOSED = "안녕 café"


@pytest.mark.parametrize(
    "options, wanted",
    [
        ({}, "cafe"),  # as in bert-base-uncased: accents go with the case
        ({"do_lower_case": True, "strip_accents": False}, "café"),
        ({"do_lower_case": False, "strip_accents": True}, "[UNK]"),  # Cafe
        ({"do_lower_case": False}, "[UNK]"),  # Café
    ],
)
def test_r40_lower_case_and_accents_are_options_of_the_folder(options, wanted, tmp_path):
    t = Tokenizer.load(write_bert(tmp_path, **options))
    assert tokens(t, t.encode("Café"))[1] == wanted


def test_chinese_characters_are_words_unless_the_folder_says_otherwise(tmp_path):
    pieces = [*BERT_SPECIALS, "漢", "##字", "字"]
    t = Tokenizer.load(write_bert(tmp_path, pieces))
    assert tokens(t, t.encode("漢字"))[1:-1] == ["漢", "字"]
    t = Tokenizer.load(write_bert(tmp_path, pieces, tokenize_chinese_chars=False))
    assert tokens(t, t.encode("漢字"))[1:-1] == ["漢", "##字"]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize(
    "options, decoded",
    [
        ({}, "안녕 café"),
        ({"strip_accents": True}, "안녕 cafe"),
        ({"lowercase": False}, "안녕 CAFé"),
        ({"lowercase": False, "strip_accents": True}, "안녕 CAFe"),
    ],
    ids=str,
)
def test_r40_korean_stays_composed(options, decoded, form):
    text = unicodedata.normalize(form, "안녕 CAFé")
    t = Tokenizer.train_wordpiece([text] * 2, 100, **options)
    encoding = t.encode(text)
    assert t.unk_id not in encoding.ids
    assert t.decode(encoding.ids) == decoded
    assert text[slice(*encoding.offsets[1])][0] == text[0]


COMPOSING = "Málaga 강남에 ÀÉÎ café, 가방."


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("unseen", ["", "\u200b", "\u00ad", "\ufeff", "\u0007"])
@pytest.mark.parametrize(
    "train",
    [
        partial(Tokenizer.train, vocab_size=200),
        partial(Tokenizer.train_wordpiece, vocab_size=200),
        partial(Tokenizer.train_wordpiece, vocab_size=200, lowercase=False),
        partial(Tokenizer.train_wordpiece, vocab_size=200, strip_accents=True),
        partial(Tokenizer.train_wordpiece, vocab_size=60),  # pieces of a letter each
        partial(Tokenizer.train_byte_level, vocab_size=400),
        partial(Tokenizer.train_unigram, vocab_size=60, sentinels=5),
    ],
)
def test_r41_offsets_reach_to_the_end_of_composed_characters(train, unseen, form):
    """Marks, jamo and what the normalizer leaves out belong to the token before them."""

    def spread(text):
        return text.replace(" ", f"{unseen} ").replace(",", f"{unseen},")

    t = train([COMPOSING, spread(COMPOSING)] * 2)
    text = spread(unicodedata.normalize(form, COMPOSING))
    for encoding in (t.encode(text), t.encode("", text)):
        covered = {i for start, end in encoding.offsets for i in range(start, end)}
        assert covered == {i for i, c in enumerate(text) if c != " "}


def test_a_mark_that_has_tokens_of_its_own_belongs_to_no_other():
    t = Tokenizer.train_byte_level(["x"], 257)
    assert t.encode("e\u0301\u200b.").offsets == [(0, 1), *[(1, 2)] * 2, *[(2, 3)] * 3, (3, 4)]


def test_a_learnt_wordpiece_vocabulary():
    t = Tokenizer.train_wordpiece(["running and running, unwanted"] * 3, 60)
    assert [t.id_to_token(i) for i in range(5)] == list(BERT_SPECIALS)
    assert tokens(t, t.encode("Running,")) == ["[CLS]", "running", ",", "[SEP]"]
    assert t.decode(t.encode("wanted ding").ids) == "wanted ding"
    assert len(Tokenizer.train_wordpiece(LINES, 120)) == 120
    assert "no text" in error_of(Tokenizer.train_wordpiece, ["", " "], 100)


# -- bytes and characters --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["roberta", "gpt2", "bytes", "bart"])
@given(text=st.text() | st.sampled_from(["지", "😀", " a", "  a  b", "\n", " <mask>", "the <s>"]))
def test_r42_every_text_comes_back_from_bytes(kinds, kind, text):
    encoding = kinds[kind].encode(text)
    assert kinds[kind].decode(encoding.ids) == text
    assert len({*map(len, encoding)}) == 1


def test_r42_a_character_that_is_cut_is_a_replacement_mark(kinds):
    ids = kinds["gpt2"].encode("a지").ids
    assert len(ids) == 4
    assert kinds["gpt2"].decode(ids[:3]).startswith("a\ufffd")


def test_r42_every_byte_is_a_token_of_its_own(kinds):
    """In texts all bytes are tried that UTF-8 has: not C0, C1 and F5 to FF."""
    codes = [*range(2048), *range(2048, 0xD800, 64), *range(0xE000, 0x110000, 64)]
    text = "".join(map(chr, codes))
    assert len({*text.encode()}) == 256 - 2 - 11
    assert kinds["gpt2"].decode(kinds["gpt2"].encode(text).ids) == text
    alphabet = Tokenizer.train_byte_level([text[:3]], 1)  # no room for merges
    assert len(alphabet) == 257 and all(alphabet.decode([i]) for i in range(1, 257))
    for character in "a지😀\n ":
        ids = alphabet.encode(character).ids
        assert len(ids) == len(character.encode()) and alphabet.decode(ids) == character


def test_a_learnt_byte_vocabulary_merges_what_is_frequent():
    source = "def run(self):\n        return self\n" * 3
    t = Tokenizer.train_byte_level([source], 300)
    assert tokens(t, t.encode(" return")) == ["Ġreturn"]
    assert tokens(t, t.encode("\n        return")) == ["Ċ" + "Ġ" * 7, "Ġreturn"]
    assert len(Tokenizer.train_byte_level([source], 260)) == 260


def test_no_text_is_no_vocabulary_of_bytes_or_characters():
    for error in (
        error_of(Tokenizer.train_byte_level, [" \n", ""], 300),
        error_of(Tokenizer.train_characters, []),
    ):
        assert error.startswith("no text to learn a vocabulary from")


TEXT = "\n".join(LINES)


@given(text=st.text(sorted({*TEXT})))
def test_characters_come_back_one_by_one(text):
    t = Tokenizer.train_characters([TEXT])
    encoding = t.encode(text)
    assert [t.id_to_token(i) for i in encoding.ids] == [*text]
    assert t.decode(encoding.ids) == text
    assert len(t) == 2 + len({*TEXT})


def test_an_unknown_character_is_one_token_and_no_text(kinds):
    t = kinds["characters"]
    assert t.encode("a漢字b").ids == [t.token_to_id("a"), 1, 1, t.token_to_id("b")]
    assert t.decode(t.encode("a漢b").ids) == "ab"


@pytest.mark.parametrize("kind", ["roberta", "bart"])
def test_a_space_belongs_to_the_mask_of_roberta_and_bart(kinds, kind):
    t = kinds[kind]
    encoding = t.encode("he <mask> (", special_tokens=True)
    assert [t.id_to_token(i).strip("Ġ") for i in encoding.ids][:3] == ["<s>", "he", "<mask>"]
    assert t.decode(encoding.ids) == "he (" and t.decode(encoding.ids[1:2]) == "he"


def test_the_ids_of_a_learnt_bart_vocabulary():
    t = Tokenizer.train_byte_level(["a cat"] * 2, 270, bart=True)
    assert [t.id_to_token(i) for i in range(4)] == ["<s>", "<pad>", "</s>", "<unk>"]
    assert len(t) == t.mask_id + 1 == 4 + 256 + 3 + 1  # merged are at, cat and the space with it
    assert tokens(t, t.encode("a cat")) == ["<s>", "a", "Ġcat", "</s>"]
    assert len(Tokenizer.train_byte_level(["a cat"] * 2, 262, bart=True)) == 262


# -- unigram ---------------------------------------------------------------------------------------


def test_a_learnt_unigram_vocabulary():
    t = Tokenizer.train_unigram(["the them then they there cat, mat."], 99, sentinels=3)
    assert len(t) == 25 and [t.id_to_token(i) for i in range(3)] == ["<pad>", "</s>", "<unk>"]
    assert [t.id_to_token(i) for i in t.sentinels] == [f"<extra_id_{k}>" for k in range(3)]
    assert t.sentinels == (24, 23, 22)
    wanted = "▁them ▁ <unk> , ▁they . </s>"
    assert tokens(t, t.encode("them 漢字, they.")) == wanted.split()
    assert t.decode(t.encode("the cat.").ids) == "the cat."


def test_frequent_words_are_pieces_of_a_unigram_vocabulary():
    """Also where no longer word begins with them, and the rare words' parts are not."""
    frequent = ["we were in a house", "she is out of a car"]
    rare = ["".join(letters) for letters in itertools.permutations("pqrst")]
    t = Tokenizer.train_unigram([*frequent * 200, *rare], 80, sentinels=1)
    words = [f"▁{word}" for line in frequent for word in line.split() if len(word) > 2]
    assert None not in map(t.token_to_id, words)
    assert all(t.decode(t.encode(word).ids) == word for word in [*frequent, *rare])


def test_the_size_of_a_unigram_vocabulary():
    characters = {c for line in LINES for c in line} - {" "} | {"▁"}
    assert len(Tokenizer.train_unigram(LINES, 90, sentinels=10)) == 90
    assert len(Tokenizer.train_unigram(LINES, 5, sentinels=2)) == 3 + len(characters) + 2
    assert Tokenizer.train_unigram(LINES, 90, sentinels=0).sentinels == ()
    assert "no text" in error_of(Tokenizer.train_unigram, ["", " "], 100)


@pytest.mark.parametrize("kind", ["unigram", "t5"])
def test_r44_a_text_ends_with_exactly_one_end_token(kinds, kind):
    t = kinds[kind]
    for text in ("good morning", "good morning</s>", "good morning </s>\n", "</s>", ""):
        assert t.encode(text, special_tokens=True).ids.count(1) == 1
        assert t.encode(text, special_tokens=True).ids[-1] == 1
    whole = t.encode("good morning").ids
    assert t.encode("good morning</s>", special_tokens=True).ids == whole
    ids = t.encode("good morning</s>", "old</s>", special_tokens=True).ids
    assert ids == whole + t.encode("old").ids
    cut = t.encode("man " * 600, max_length=512).ids
    assert len(cut) == 512 and cut.index(1) == 511
    assert t.encode_batch(["man " * 600], max_length=512) == [cut]


@pytest.mark.parametrize("kind", ["bert", "roberta", "bart"])
def test_an_end_that_the_text_brings_along_is_not_doubled(kinds, kind):
    t = kinds[kind]
    end = t.id_to_token(t.sep_id)
    whole = t.encode("he", "a", special_tokens=True)
    assert t.encode(f"he{end}", f"a{end}", special_tokens=True) == whole
    assert t.encode(f"{end}he", special_tokens=True).ids.count(t.sep_id) == 2


@pytest.mark.parametrize("kind", ["unigram", "t5"])
def test_r44_white_space_is_folded(kinds, kind):
    t = kinds[kind]
    assert t.encode("a  b\n").ids == t.encode("a b").ids
    assert t.encode("\u3000\u00a0man\t\n kept ").ids == t.encode("man kept").ids
    assert t.encode(" \n").ids == [t.eos_id]


@pytest.mark.parametrize("kind", ["unigram", "t5"])
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_r40_compatible_characters_and_decomposed_korean_are_composed(kinds, kind, form):
    t, text = kinds[kind], "나는 사과를 먹었다."
    ids = t.encode(unicodedata.normalize(form, text)).ids
    assert t.unk_id not in ids and t.decode(ids) == text
    assert t.encode("ｍａｎ ⑫").ids == t.encode("man 12").ids


@pytest.mark.parametrize("kind, last", [("unigram", 99), ("t5", 194)])
def test_sentinels_are_special_tokens_and_the_first_is_the_last_id(kinds, kind, last):
    t = kinds[kind]
    assert t.sentinels == tuple(range(last, last - (10 if kind == "unigram" else 100), -1))
    text = "The <extra_id_0> man <extra_id_1> kept"
    ids = t.encode(text, special_tokens=True).ids
    assert [i for i in ids if i in t.sentinels] == [last, last - 1]
    assert not {*t.encode(text).ids} & {*t.sentinels}
    assert t.decode(ids) == "The man kept" and t.decode(t.encode(text).ids) == text
    assert t.decode(ids, special_tokens=True) == "The<extra_id_0> man<extra_id_1> kept</s>"


@pytest.mark.parametrize("kind", ["bpe", "bert", "gpt2", "bart"])
def test_families_without_sentinels_have_none(kinds, kind):
    assert kinds[kind].sentinels == ()


def test_sentinels_among_the_pieces_are_found(kinds, tmp_path):
    """Published tokenizer.json have them there, and mT5 writes them with a ▁."""
    for mark in ("", "▁"):
        kinds["unigram"].save(tmp_path)
        path = tmp_path / "tokenizer.json"
        content = json.loads(path.read_text(encoding="utf-8"))
        plain = [token for token in content["added_tokens"] if token["id"] < 3]
        sentinels = [[f"{mark}<extra_id_{k}>", 0.0] for k in reversed(range(10))]
        content["added_tokens"] = plain
        content["model"]["vocab"] += sentinels
        path.write_text(json.dumps(content), encoding="utf-8")
        t = Tokenizer.load(tmp_path)
        assert t.sentinels == kinds["unigram"].sentinels
        assert t.special_ids == kinds["unigram"].special_ids
        text = "man <extra_id_3> </s>"
        assert not {*t.encode(text).ids[:-1]} & {*t.special_ids}
        assert t.decode(t.encode(text).ids) == text


visible = st.characters(exclude_categories=("M", "C"), exclude_characters="″‴⁗")
known = st.sampled_from(sorted({*TEXT} | {" "}))
white = st.sampled_from(" \t\n\r\u3000\u2028")
texts = st.text(known | known | visible | white, max_size=30)


@pytest.mark.parametrize("options", [{}, {"byte_fallback": True}], ids=str)
def test_a_spiece_model_is_read_as_sentencepiece_reads_it(options, tmp_path):
    from sentencepiece import SentencePieceProcessor

    folder = write_sentencepiece(tmp_path, **options)
    theirs = SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    t = Tokenizer.load(folder)
    assert len(t) == len(theirs) + 100 and t.sentinels[0] == len(t) - 1

    @given(texts)
    def same(text):
        ids = t.encode(text).ids
        assert ids == [*theirs.encode(text), t.eos_id]
        if t.unk_id not in ids:
            assert t.decode(ids) == theirs.decode(ids)

    same()
    decomposed = unicodedata.normalize("NFD", "나는 Groß Café")
    for text in ("", "man </s> <extra_id_3>", "old<pad>man <s>", "漢字 man", decomposed):
        assert t.encode(text).ids == [*theirs.encode(text), t.eos_id]


def test_the_folder_says_how_many_sentinels_follow_the_pieces(kinds, tmp_path):
    write_sentencepiece(tmp_path)
    for extra in (0, 7):
        options = json.dumps({"extra_ids": extra})
        (tmp_path / "tokenizer_config.json").write_text(options, encoding="utf-8")
        t = Tokenizer.load(tmp_path)
        assert len(t) == len(kinds["t5"]) - 100 + extra and len(t.sentinels) == extra


@pytest.mark.parametrize("missing", ["sentencepiece", "google.protobuf"])
def test_r77_a_spiece_model_without_the_extra_is_an_error_that_names_it(
    missing, tmp_path, monkeypatch
):
    write_sentencepiece(tmp_path)
    for name in [name for name in sys.modules if name.startswith("sentencepiece")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    message = error_of(Tokenizer.load, tmp_path)
    assert message.startswith(f"{tmp_path / 'spiece.model'}: ")
    assert "pip install 'tinyfm[sentencepiece]'" in message and "tokenizer.json" in message


def test_r77_a_spiece_model_that_is_none_is_named(tmp_path):
    write_sentencepiece(tmp_path, model_type="bpe")
    path = tmp_path / "spiece.model"
    assert error_of(Tokenizer.load, tmp_path).startswith(f"{path}: its pieces are not unigram's")
    for content in (b"", b"no model", path.read_bytes()[:99]):
        path.write_bytes(content)
        assert error_of(Tokenizer.load, tmp_path).startswith(f"{path}: ")


def test_a_prefix_space_is_an_option_of_the_folder(tmp_path):
    t = Tokenizer.load(write_byte_level(tmp_path, GPT2, add_prefix_space=True))
    assert tokens(t, t.encode("the")) == ["Ġthe"]
    assert t.encode("the").offsets == [(0, 3)]


# -- folders ---------------------------------------------------------------------------------------


def test_the_folder_may_name_its_special_tokens(tmp_path):
    pieces = ["<p>", "<u>", "<c>", "<e>", "<m>", "a"]
    roles = dict(zip(("pad", "unk", "cls", "sep", "mask"), pieces, strict=False))
    named = {f"{role}_token": name for role, name in roles.items()}
    write_bert(tmp_path, pieces, **named | {"mask_token": {"content": "<m>", "lstrip": False}})
    t = Tokenizer.load(tmp_path)
    assert [t.pad_id, t.unk_id, t.cls_id, t.sep_id, t.mask_id] == [0, 1, 2, 3, 4]
    assert t.special_ids == (0, 1, 2, 3, 4) and t.bos_id is None
    assert t.encode("a b").ids == [2, 5, 1, 3]
    (tmp_path / "tokenizer_config.json").rename(tmp_path / "special_tokens_map.json")
    assert Tokenizer.load(tmp_path).special_ids == t.special_ids


@each_kind
def test_a_saved_tokenizer_is_the_same(kinds, kind, tmp_path):
    t = kinds[kind]
    t.encode("a", max_length=5)  # leaves nothing in the file
    t.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    for text in (*LINES, "hello <mask> [MASK]"):
        for special in (False, True):
            assert again.encode(text, "he", special) == t.encode(text, "he", special)
    assert len(again) == len(t) and again.special_ids == t.special_ids
    assert [getattr(again, f"{r}_id") for r in ROLES] == [getattr(t, f"{r}_id") for r in ROLES]
    again.save(tmp_path / "again")
    for path in (tmp_path / "again").iterdir():
        assert path.read_bytes() == (tmp_path / path.name).read_bytes()


def test_names_of_ones_own_survive_saving(tmp_path):
    pieces = ["<p>", "<u>", "<c>", "<e>", "a"]
    named = {"pad_token": "<p>", "unk_token": "<u>", "cls_token": "<c>", "sep_token": "<e>"}
    Tokenizer.load(write_bert(tmp_path / "a", pieces, **named)).save(tmp_path / "b")
    t = Tokenizer.load(tmp_path / "b")
    assert (t.pad_id, t.unk_id, t.cls_id, t.sep_id) == (0, 1, 2, 3)


def test_padding_and_cutting_that_a_file_asks_for_are_the_callers_business(kinds, tmp_path):
    kinds["bert"].save(tmp_path)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["truncation"] = {
        "max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right",
    }  # fmt: skip
    content["padding"] = {
        "strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
        "pad_type_id": 0, "pad_token": "[PAD]",
    }  # fmt: skip
    path.write_text(json.dumps(content), encoding="utf-8")
    t = Tokenizer.load(tmp_path)
    assert t.encode("a b c d e") == kinds["bert"].encode("a b c d e")
    assert t.encode_batch(["a", "a b c d e"]) == kinds["bert"].encode_batch(["a", "a b c d e"])


def test_the_length_is_that_of_the_table_of_embeddings(kinds, tmp_path):
    kinds["gpt2"].save(tmp_path)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["added_tokens"].append(
        {**content["added_tokens"][0], "id": len(kinds["gpt2"]) + 6, "content": "<new>"}
    )
    content["model"]["vocab"]["<new>"] = len(kinds["gpt2"]) + 6
    path.write_text(json.dumps(content), encoding="utf-8")
    assert len(Tokenizer.load(tmp_path)) == len(kinds["gpt2"]) + 7


def test_r77_what_a_folder_lacks_is_named(tmp_path):
    assert error_of(Tokenizer.load, tmp_path).startswith(f"{tmp_path}: holds no tokenizer; give")
    assert "or encoder.json and vocab.bpe" in error_of(Tokenizer.load, tmp_path)
    assert "holds no tokenizer" in error_of(Tokenizer.load, tmp_path / "nowhere")
    write_bert(tmp_path / "a", ["[PAD]", "[UNK]", "a"])
    message = error_of(Tokenizer.load, tmp_path / "a")
    assert message.startswith(f"{tmp_path / 'a' / 'vocab.txt'}: the vocabulary lacks [CLS], [SEP]")
    folder = write_byte_level(tmp_path / "b", GPT2)
    (folder / "merges.txt").unlink()
    assert error_of(Tokenizer.load, folder).startswith(f"{folder / 'merges.txt'}: No such file")


@pytest.mark.parametrize("merge", ["th", "t ", " t"])
def test_r77_a_damaged_merge_is_named_with_its_line(merge, tmp_path):
    folder = write_byte_level(tmp_path, GPT2, [*MERGES, merge])
    said = f"{folder / 'merges.txt'}:7: not two pieces with a space between them"
    assert error_of(Tokenizer.load, folder) == said


def test_r77_merges_of_another_vocabulary_are_named(tmp_path):
    folder = write_byte_level(tmp_path, GPT2, [*MERGES, "q z"])
    message = error_of(Tokenizer.load, folder)
    assert message.startswith(f"{folder / 'vocab.json'}: not a tokenizer that fits (")
    assert "`qz` out of vocabulary" in message


@pytest.mark.parametrize("change", [{"a": "x"}, {"a": -1}, {"a": None}], ids=str)
def test_r77_a_damaged_vocabulary_is_named(change, tmp_path):
    path = write_byte_level(tmp_path, GPT2) / "vocab.json"
    vocabulary = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(vocabulary | change), encoding="utf-8")
    assert error_of(Tokenizer.load, tmp_path).startswith(f"{path}: not a tokenizer that fits")


def test_openais_names_of_the_byte_level_files(kinds, tmp_path):
    write_byte_level(tmp_path, GPT2)
    (tmp_path / "vocab.json").rename(tmp_path / "encoder.json")
    assert f"{tmp_path / 'vocab.bpe'}: No such file" in error_of(Tokenizer.load, tmp_path)
    (tmp_path / "merges.txt").rename(tmp_path / "vocab.bpe")
    t = Tokenizer.load(tmp_path)
    for text in LINES:
        assert t.encode(text) == kinds["gpt2"].encode(text)


def test_r77_a_vocabulary_of_characters_is_not_taken_for_one_of_bytes(tmp_path):
    """As GPT-1's, whose pieces end in </w>."""
    path = write_byte_level(tmp_path, GPT2) / "vocab.json"
    path.write_text(json.dumps({"a": 0, "b</w>": 1}), encoding="utf-8")
    message = error_of(Tokenizer.load, tmp_path)
    assert message.startswith(f"{path}: the vocabulary lacks ") and "and 252 more" in message


# -- beside transformers ---------------------------------------------------------------------------


@pytest.mark.parity
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "bpe"])
def test_transformers_opens_a_saved_tokenizer(kinds, kind, tmp_path):
    from transformers import AutoTokenizer

    t = kinds[kind]
    t.save(tmp_path)
    family = {"wordpiece": "bert", "bytes": "gpt2", "characters": "gpt2", "unigram": "t5"}
    family = family.get(kind, kind)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}), encoding="utf-8")
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text in (*LINES, "Hello <mask> [MASK] Café"):
        assert theirs(text)["input_ids"] == t.encode(text, special_tokens=True).ids
        found, own = theirs(text, "he"), t.encode(text, "he", special_tokens=True)
        assert found["input_ids"] == own.ids
        if family == "bert":
            assert found["token_type_ids"] == own.type_ids
        assert theirs.decode(own.ids, skip_special_tokens=True) == t.decode(own.ids)
    for role in ("pad", "mask", "cls", "sep"):
        assert getattr(theirs, f"{role}_token_id") == getattr(t, f"{role}_id")


@pytest.mark.parity
@pytest.mark.parametrize(
    "name, kind", [("BertTokenizer", "bert"), ("RobertaTokenizer", "roberta"),
                   ("BartTokenizer", "roberta"), ("GPT2Tokenizer", "gpt2")],
)  # fmt: skip
def test_folders_are_read_as_transformers_reads_them(name, kind, kinds, tmp_path):
    import transformers

    if kind == "bert":
        write_bert(tmp_path)
    else:
        write_byte_level(tmp_path, ROBERTA if kind == "roberta" else GPT2)
    theirs = getattr(transformers, name).from_pretrained(tmp_path)
    # Not " <mask>": without a tokenizer.json transformers 5 forgets that the mask takes the space.
    for text in (*LINES, "Hello the<mask> [MASK] Café unwanted"):
        found = theirs(text, "he ll", return_offsets_mapping=True)
        own = kinds[kind].encode(text, "he ll", special_tokens=True)
        assert found["input_ids"] == own.ids
        if kind == "bert":
            assert found["token_type_ids"] == own.type_ids
            assert found["offset_mapping"] == own.offsets
            assert theirs.decode(own.ids, skip_special_tokens=True) == kinds[kind].decode(own.ids)


# -- published vocabularies ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def published(data_folder, tmp_path_factory):
    """Folders as the hub has them, GPT-2's as OpenAI has it, made of the shared vocabularies."""
    source, folder = data_folder / "tokenizers", tmp_path_factory.mktemp("published")
    for name in ("bert", "gpt2", "bart"):
        (folder / name).mkdir()
    shutil.copy(source / "bert-base-uncased" / "vocab.txt", folder / "bert")
    gpt2 = json.loads(gzip.decompress((source / "gpt2" / "encoder.json.gz").read_bytes()))
    tokens = {str(i): token for token, i in gpt2.items()}
    lines = gzip.decompress((source / "bart" / "dict.txt.gz").read_bytes()).decode().splitlines()
    words = [line.split()[0] for line in lines]
    bart = ["<s>", "<pad>", "</s>", "<unk>", *(tokens.get(word, word) for word in words)]
    vocabularies = {"gpt2": gpt2, "bart": {t: i for i, t in enumerate(bart)} | {"<mask>": 50264}}
    files = {"gpt2": ("encoder.json", "vocab.bpe"), "bart": ("vocab.json", "merges.txt")}
    for name, (pieces, merges) in files.items():
        (folder / name / pieces).write_text(json.dumps(vocabularies[name]), encoding="utf-8")
        shutil.copy(source / "gpt2" / "vocab.bpe", folder / name / merges)
    return {path.name: Tokenizer.load(path) for path in folder.iterdir()}


@pytest.mark.data
def test_the_ids_of_bert_base_uncased(published):
    t = published["bert"]
    assert len(t) == 30522 and t.special_ids == (0, 100, 101, 102, 103)
    text = "my dog is hairy and he likes to play fetch in the park every morning"
    assert t.encode(text).ids == [
        101, 2026, 3899, 2003, 15892, 1998, 2002, 7777, 2000, 2377, 18584, 1999, 1996, 2380, 2296,
        2851, 102,
    ]  # fmt: skip
    pair = t.encode("my dog is hairy", "he likes to play")
    assert pair.ids == [101, 2026, 3899, 2003, 15892, 102, 2002, 7777, 2000, 2377, 102]
    assert pair.type_ids == [0] * 6 + [1] * 5
    masked = t.encode("my dog is [MASK]", special_tokens=True)
    assert masked.ids == [101, 2026, 3899, 2003, 103, 102] and t.token_to_id("apple") == 6207
    pair = t.encode("A man is playing guitar.", "A person plays music.")
    assert pair.type_ids == [0] * 8 + [1] * 6


@pytest.mark.data
def test_an_answer_and_tags_of_bert_base_uncased(published):
    t = published["bert"]
    passage = "The Eiffel Tower is a wrought-iron lattice tower in Paris, France."
    (window,) = t.encode_windows("Where is the Eiffel Tower?", passage, 384, 128)
    encoding, is_passage = window
    assert len(encoding.ids) == 28 and encoding.offsets[23] == (52, 57)
    assert passage[encoding.offsets[23][0] : encoding.offsets[25][1]] == "Paris, France"
    assert [i for i, ok in enumerate(is_passage) if ok] == [*range(10, 27)]
    encoding = t.encode_words(["Haeundae", "Beach", "lies", "in", "Busan"])
    wanted = "[CLS] ha ##eu ##nda ##e beach lies in bus ##an [SEP]"
    assert tokens(t, encoding) == wanted.split()
    assert encoding.word_ids == [None, 0, 0, 0, 0, 1, 2, 3, 4, 4, None]


@pytest.mark.data
def test_the_ids_of_gpt2_and_bart(published):
    t = published["gpt2"]
    assert t.encode("Hello world").ids == [15496, 995]
    assert len(t) == 50257 and t.special_ids == (50256,) and t.eos_id == t.bos_id == 50256
    fox = [464, 2068, 7586, 21831, 18045, 625, 262, 16931, 3290]
    assert t.encode("The quick brown fox jumps over the lazy dog").ids == fox
    assert t.encode("Hello<|endoftext|>", special_tokens=True).ids == [15496, 50256]
    t = published["bart"]
    assert len(t) == 50265 and t.special_ids == (0, 1, 2, 3, 50264)
    text = "UN Chief Says There Is No <mask> in Syria"
    assert t.encode(text, special_tokens=True).ids == [
        0, 4154, 1231, 15674, 345, 1534, 440, 50264, 11, 1854, 2,
    ]  # fmt: skip
    assert t.encode("UN Chief Says There Is No Plan to Stop Chemical Weapons in Syria").ids == [
        0, 4154, 1231, 15674, 345, 1534, 440, 5427, 7, 12457, 14329, 28054, 11, 1854, 2,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def t5(data_folder, tmp_path_factory):
    """The folder of the published T5 vocabulary."""
    folder = tmp_path_factory.mktemp("t5")
    packed = data_folder / "tokenizers" / "t5" / "spiece.model.gz"
    (folder / "spiece.model").write_bytes(gzip.decompress(packed.read_bytes()))
    return folder


@pytest.mark.data
def test_the_ids_of_t5(t5):
    t = Tokenizer.load(t5)
    assert len(t) == 32100 and t.sentinels == tuple(range(32099, 31999, -1))
    assert (t.pad_id, t.eos_id, t.unk_id, t.token_to_id("▁Hello")) == (0, 1, 2, 8774)
    assert t.encode("Hello").ids == [8774, 1]
    text = "summarize: The cat sat on the mat all day."
    assert t.encode(text).ids == [21603, 10, 37, 1712, 3, 7, 144, 30, 8, 6928, 66, 239, 5, 1]
    assert t.encode("A cat rested.").ids == [71, 1712, 5701, 26, 5, 1]
    text = "Thank you <extra_id_0> me to your party <extra_id_1> week."
    hidden = t.encode(text, special_tokens=True).ids
    assert hidden == [1562, 25, 32099, 140, 12, 39, 1088, 32098, 471, 5, 1]
    text = "<extra_id_0> for inviting <extra_id_1> last <extra_id_2>"
    said = t.encode(text, special_tokens=True).ids
    assert said == [32099, 21, 14256, 32098, 336, 32097, 1]
    assert t.decode(said) == "for inviting last"


@pytest.mark.data
def test_t5_cuts_real_sentences_as_sentencepiece_does(t5, data_folder):
    from sentencepiece import SentencePieceProcessor

    theirs, t = SentencePieceProcessor(model_file=str(t5 / "spiece.model")), Tokenizer.load(t5)
    for name in ("multi30k/val.de.gz", "kor_eng/tatoeba_kor_eng.tsv.gz"):
        lines = gzip.decompress((data_folder / name).read_bytes()).decode().splitlines()[:1000]
        assert t.encode_batch(lines) == [[*ids, 1] for ids in theirs.encode(lines)]

    @given(texts)
    def same(text):
        assert t.encode(text).ids == [*theirs.encode(text), 1]

    same()


@pytest.mark.data
@pytest.mark.parity
def test_t5_cuts_text_as_transformers_does(t5, data_folder, tmp_path):
    from transformers import AutoTokenizer, T5Tokenizer

    t = Tokenizer.load(t5)
    t.save(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5"}), encoding="utf-8")
    packed = data_folder / "multi30k" / "val.de.gz"
    lines = gzip.decompress(packed.read_bytes()).decode().splitlines()[:300]
    published, saved = T5Tokenizer.from_pretrained(t5), AutoTokenizer.from_pretrained(tmp_path)
    for theirs in (published, saved):
        assert len(theirs) == 32100
        assert theirs(lines)["input_ids"] == t.encode_batch(lines)

    @given(texts, st.text())
    def same(text, any_text):
        text = f"{text}<extra_id_7> {text}"
        ids = t.encode(text, special_tokens=True).ids
        assert published(text)["input_ids"] == saved(text)["input_ids"] == ids
        assert saved(any_text)["input_ids"] == t.encode(any_text).ids

    same()


@pytest.mark.parametrize(
    "train",
    [
        partial(Tokenizer.train_wordpiece, vocab_size=60),
        partial(Tokenizer.train_byte_level, vocab_size=280),
        partial(Tokenizer.train_byte_level, vocab_size=280, bart=True),
        partial(Tokenizer.train_unigram, vocab_size=60, sentinels=5),
    ],
)
def test_equal_lines_give_equal_vocabularies(train, tmp_path):
    """Also among pieces that are equally frequent, of which the library's order is by chance."""
    tied = [f"{a}{b}{c}{d}" for a in "abcd" for b in "efgh" for c in "ijkl" for d in "mnop"]

    def saved(lines):
        train(lines).save(tmp_path)
        return (tmp_path / "tokenizer.json").read_bytes()

    for lines in (tied, LINES):
        assert len({saved(lines) for _ in range(6)}) == 1
