"""Subword vocabularies: learnt from text, or read from the files of a published model.

Each function gives a backend of the `tokenizers` library: how text is normalised and split into
words, which pieces there are, and what a model's input has around them (the template).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyfm.errors import InputError
from tinyfm.files import read_bytes, read_json
from tinyfm.text import read_lines

if TYPE_CHECKING:
    import tokenizers

BPE_SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
BERT_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BART_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")  # and <mask>, the last id
T5_SPECIALS = ("<pad>", "</s>", "<unk>")
SENTINELS = 100  # how many of T5's <extra_id_0>, <extra_id_1>, ... there are, if nothing is said
END_OF_TEXT = "<|endoftext|>"  # GPT-2's only special token: it begins, parts and ends texts
# GPT-1's start, delimiter and extract token, by the roles that come nearest to theirs.
INPUT_FORMS = {"bos_token": "<start>", "sep_token": "<delimiter>", "cls_token": "<extract>"}
LONGEST_WORD = 100  # characters; WordPiece takes a longer word as unknown, as BERT's code does
SIGN = r"▁?[\p{N}\p{P}\p{S}&&[^▁]]"  # a punctuation mark, symbol or digit, a space before it too


# -- learnt ----------------------------------------------------------------------------------------


def learn_bpe(lines: Iterable[str], vocab_size: int, lowercase: bool) -> tokenizers.Tokenizer:
    """Byte-pair encoding over characters; see `Tokenizer.train`."""
    import tokenizers as hf
    from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

    backend = hf.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    # Lower-casing comes before NFC, because it can leave letters that still compose.
    backend.normalizer = normalizers.Sequence(
        ([normalizers.Lowercase()] if lowercase else [])
        + [
            normalizers.NFC(),
            normalizers.Replace(hf.Regex(r"\s+"), " "),
            normalizers.Strip(),
        ]
    )
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Split(hf.Regex(SIGN), "isolated")]
    )
    backend.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=list(BPE_SPECIALS),
        show_progress=False,
    )
    backend.train_from_iterator(_with_text(lines), trainer)
    return backend


def learn_wordpiece(
    lines: Iterable[str], vocab_size: int, lowercase: bool, strip_accents: bool
) -> tokenizers.Tokenizer:
    """BERT's subwords; see `Tokenizer.train_wordpiece`."""
    from tokenizers import normalizers, trainers

    def new(vocabulary: Mapping[str, int]) -> tokenizers.Tokenizer:
        backend = _wordpiece(vocabulary, "[UNK]", lowercase, strip_accents)
        # Stripping accents takes Korean syllables apart as well; they are put together again.
        backend.normalizer = normalizers.Sequence([backend.normalizer, normalizers.NFC()])
        return backend

    lines, backend = _with_text(lines), new({})
    # The trainer numbers the pieces of one character, ##c, as they come out of a hash table, and of
    # equally frequent merges the one of lower numbers wins: given in order, as if they were special
    # tokens, they make the vocabulary the same in every process.
    words = (word for line in _words(backend, lines) for word in line)
    pieces = sorted({f"##{c}" for word in words for c in word[1:]})
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[*BERT_SPECIALS, *pieces],
        show_progress=False,
    )
    backend.train_from_iterator(lines, trainer)
    backend = new(backend.get_vocab())
    _add_bert_template(backend, ("[CLS]", 2), ("[SEP]", 3))
    return backend


def learn_byte_level(texts: Iterable[str], vocab_size: int, bart: bool) -> tokenizers.Tokenizer:
    """Byte-pair encoding over bytes; see `Tokenizer.train_byte_level`."""
    import tokenizers as hf
    from tokenizers import models, pre_tokenizers, trainers

    backend = _byte_level(hf.Tokenizer(models.BPE()), space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - bart,  # less one, the mask
        min_frequency=2,
        special_tokens=list(BART_SPECIALS) if bart else [END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(_with_text(texts), trainer)
    if bart:
        _add_bart_template(backend, ("<s>", 0), ("</s>", 2), space=False)
        _add_mask(backend, "<mask>")
    return backend


def learn_unigram(lines: Iterable[str], vocab_size: int, sentinels: int) -> tokenizers.Tokenizer:
    """Pieces with probabilities; see `Tokenizer.train_unigram`."""
    import tokenizers as hf
    from tokenizers import models, normalizers, pre_tokenizers, trainers

    def new(pieces: Sequence[tuple[str, float]] | None = None) -> tokenizers.Tokenizer:
        backend = hf.Tokenizer(models.Unigram(pieces, None if pieces is None else 2))
        backend.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
        _add_spaces(backend)
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [backend.pre_tokenizer, pre_tokenizers.Split(hf.Regex(SIGN), "isolated")]
        )
        return backend

    backend = new()
    words = [*_words(backend, _with_text(lines))]
    characters = {character for line in words for word in line for character in word}
    room = max(len(characters), vocab_size - len(T5_SPECIALS) - sentinels)
    # The trainer only thinks of pieces after which different characters come, so that a frequent
    # word would be none.  Every word therefore comes once more, with another character behind it.
    mark = next(c for c in map(chr, range(0xE000, 0xF900)) if c not in characters)
    again = [[word + mark for word in line] for line in words]
    learner = hf.Tokenizer(models.Unigram())
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.UnigramTrainer(
        vocab_size=len(T5_SPECIALS) + room + 1,
        special_tokens=list(T5_SPECIALS),
        unk_token="<unk>",
        show_progress=False,
    )
    learner.train_from_iterator(map(" ".join, [*words, *again]), trainer)
    pieces = _ordered(learner, room, without=mark)
    backend = new([*((token, 0.0) for token in T5_SPECIALS), *pieces])
    _add_t5_template(backend, "</s>", sentinels)
    return backend


def learn_characters(texts: Iterable[str]) -> tokenizers.Tokenizer:
    """Each character is a token; see `Tokenizer.train_characters`."""
    import tokenizers as hf
    from tokenizers import decoders, models

    tokens = [END_OF_TEXT, "<unk>", *sorted(set().union(*_with_text(texts)))]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    # Byte-pair encoding without a merge leaves characters.
    backend = hf.Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens([END_OF_TEXT, "<unk>"])
    return backend


def _ordered(backend: tokenizers.Tokenizer, room: int, without: str) -> list[tuple[str, float]]:
    """The learnt pieces and their scores, the most probable first: all characters, and of what is
    longer as much as there is room for; `without` a character that is none of the text's.

    The trainer goes through a hash table, so that its sums are off by roundings, and characters
    that it has no use for share the lowest score, each with 0.0001 more than the one before it, in
    whatever order.  Here they are made the same in every process.
    """
    learnt = json.loads(backend.to_str())["model"]["vocab"][len(T5_SPECIALS) :]
    lowest = min(score for _, score in learnt)
    useless = lowest + 0.0001 * len(learnt)
    scores = {
        piece: round(lowest if len(piece) == 1 and score < useless else score, 6)
        for piece, score in learnt
    }

    def likely(piece: str) -> tuple[float, str]:
        return -scores[piece], piece

    del scores[without]
    characters = [piece for piece in scores if len(piece) == 1]
    longer = sorted(scores.keys() - set(characters), key=likely)[: room - len(characters)]
    return [(piece, scores[piece]) for piece in sorted([*characters, *longer], key=likely)]


def _words(backend: tokenizers.Tokenizer, lines: Iterable[str]) -> Iterator[list[str]]:
    """The words of each line, normalised and parted as the backend does it."""
    for line in map(backend.normalizer.normalize_str, lines):
        yield [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(line)]


def _with_text(lines: Iterable[str]) -> list[str]:
    lines = [line for line in lines if line.strip()]
    if not lines:
        raise InputError("no text to learn a vocabulary from: every line is blank")
    return lines


# -- read ------------------------------------------------------------------------------------------


def read_wordpiece(path: Path, options: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """BERT's vocab.txt, one piece a line; options: the content of tokenizer_config.json.

    Without options text is lower-cased and loses its accents, as in bert-base-uncased.  InputError
    if a special token is missing that every text needs.
    """
    vocabulary = {piece: i for i, piece in enumerate(read_lines(path))}
    unknown, start, end = (
        special_name(options, role) or usual
        for role, usual in (("unk", "[UNK]"), ("cls", "[CLS]"), ("sep", "[SEP]"))
    )
    _check_has(path, vocabulary, (unknown, start, end))
    backend = _wordpiece(
        vocabulary,
        unknown,
        lowercase=options.get("do_lower_case", True),
        strip_accents=options.get("strip_accents"),
        chinese=options.get("tokenize_chinese_chars", True),
    )
    _add_bert_template(backend, (start, vocabulary[start]), (end, vocabulary[end]))
    return backend


def read_byte_level(
    vocabulary_path: Path, merges_path: Path, options: Mapping[str, Any]
) -> tokenizers.Tokenizer:
    """The vocabulary and the merges of GPT-2, RoBERTa or BART: byte-pair encoding over bytes.

    Hugging Face calls the files vocab.json and merges.txt, OpenAI encoder.json and vocab.bpe.

    A vocabulary with <s> and </s> brings RoBERTa's template, one without them none.  InputError if
    a byte is missing: then it is of another kind (GPT-1's is over characters).
    """
    import tokenizers as hf
    from tokenizers import models, pre_tokenizers

    vocabulary = read_json(vocabulary_path)
    _check_has(vocabulary_path, vocabulary, sorted(pre_tokenizers.ByteLevel.alphabet()))
    space = bool(options.get("add_prefix_space", False))
    backend = _byte_level(hf.Tokenizer(models.BPE(vocabulary, _read_merges(merges_path))), space)
    start, end = special_name(options, "cls") or "<s>", special_name(options, "sep") or "</s>"
    if start in vocabulary and end in vocabulary:
        _add_bart_template(backend, (start, vocabulary[start]), (end, vocabulary[end]), space)
    mask = special_name(options, "mask") or "<mask>"
    if mask in vocabulary:
        _add_mask(backend, mask)
    return backend


def read_sentencepiece(path: Path, options: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """T5's spiece.model: the pieces with their scores, and how text is normalised before.

    options, the content of tokenizer_config.json, may say by extra_ids how many sentinels follow
    the pieces: 100 if it does not, none for mT5, which has them among its pieces.

    InputError if the sentencepiece extra is missing, and for pieces of another algorithm.
    """
    import tokenizers as hf
    from tokenizers import models, normalizers

    try:
        from sentencepiece import sentencepiece_model_pb2
    except ImportError as error:
        raise InputError(
            f"{path}: reading it needs the packages sentencepiece and protobuf; "
            "pip install 'tinyfm[sentencepiece]', or give a folder with tokenizer.json"
        ) from error
    format: Any = sentencepiece_model_pb2  # makes its classes as it is imported
    model = format.ModelProto.FromString(read_bytes(path))
    if model.trainer_spec.model_type != model.trainer_spec.UNIGRAM:
        raise InputError(f"{path}: its pieces are not unigram's; give a folder with tokenizer.json")
    # SentencePiece's own sums tell no more decimals apart; with more, tokenizer.json would not give
    # the scores back, for the library reads long numbers inexactly.
    pieces = [(piece.piece, round(piece.score, 6)) for piece in model.pieces]
    end = special_name(options, "eos") or "</s>"
    _check_has(path, dict(pieces), [end])
    unknown, bytewise = model.trainer_spec.unk_id, model.trainer_spec.byte_fallback
    backend = hf.Tokenizer(models.Unigram(pieces, unknown, bytewise))
    if rules := model.normalizer_spec.precompiled_charsmap:
        # The library looks characters up one by one, so that it would not find a decomposed
        # syllable.  T5's rules are NFKC and more, so NFKC may come first.
        first = [normalizers.NFKC()] if "nfkc" in model.normalizer_spec.name else []
        backend.normalizer = normalizers.Sequence([*first, normalizers.Precompiled(rules)])
    _add_spaces(backend)
    _add_t5_template(backend, end, options.get("extra_ids", SENTINELS))
    return backend


def _byte_level(backend: tokenizers.Tokenizer, space: bool) -> tokenizers.Tokenizer:
    """Text is taken as UTF-8, each byte written as a letter; space: one is put before the text."""
    from tokenizers import decoders, pre_tokenizers

    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    backend.decoder = decoders.ByteLevel()
    return backend


def _add_spaces(backend: tokenizers.Tokenizer) -> None:
    """White space is folded, and each word begins with `▁` (Kudo and Richardson 2018)."""
    from tokenizers import decoders, pre_tokenizers

    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    # Pieces such as <0xE2>, which mT5's vocabulary has, are bytes of what has no other piece.
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])


def _read_merges(path: Path) -> list[tuple[str, str]]:
    merges = []
    for number, line in enumerate(read_lines(path), 1):
        if line and not (number == 1 and line.startswith("#version")):
            first, _, second = line.partition(" ")
            if not (first and second):
                raise InputError(f"{path}:{number}: not two pieces with a space between them")
            merges.append((first, second))
    return merges


def special_name(options: Mapping[str, Any], role: str) -> str | None:
    """The special token that tokenizer_config.json names for a role, such as "cls"; or None."""
    value = options.get(f"{role}_token")
    name = value.get("content") if isinstance(value, dict) else value
    return name if isinstance(name, str) else None


def _check_has(path: Path, vocabulary: Mapping[str, int], needed: Sequence[str]) -> None:
    if missing := [token for token in needed if token not in vocabulary]:
        more = f" and {len(missing) - 3} more" if missing[3:] else ""
        raise InputError(
            f"{path}: the vocabulary lacks {', '.join(missing[:3])}{more}; is it of another kind?"
        )


def _wordpiece(
    vocabulary: Mapping[str, int],
    unknown: str,
    lowercase: bool,
    strip_accents: bool | None,
    chinese: bool = True,
) -> tokenizers.Tokenizer:
    """strip_accents None: if lower-casing.  chinese: each Chinese character is a word."""
    import tokenizers as hf
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    backend = hf.Tokenizer(
        models.WordPiece(dict(vocabulary), unk_token=unknown, max_input_chars_per_word=LONGEST_WORD)
    )
    backend.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=chinese, strip_accents=strip_accents, lowercase=lowercase
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return backend


def add_input_forms(backend: tokenizers.Tokenizer) -> None:
    """GPT-1's template, whose tokens the vocabulary has; see `Tokenizer.with_input_forms`."""
    from tokenizers import processors

    start, between, end = INPUT_FORMS.values()
    backend.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}",
        pair=f"{start} $A {between} $B {end}",
        special_tokens=[(token, backend.token_to_id(token)) for token in INPUT_FORMS.values()],
    )


def _add_bart_template(
    backend: tokenizers.Tokenizer, start: tuple[str, int], end: tuple[str, int], space: bool
) -> None:
    """<s> a </s>, or <s> a </s></s> b </s>, as RoBERTa and BART have it."""
    from tokenizers import processors

    backend.post_processor = processors.RobertaProcessing(end, start, add_prefix_space=space)


def _add_mask(backend: tokenizers.Tokenizer, mask: str) -> None:
    """RoBERTa's and BART's mask stands for a word together with the space before it."""
    import tokenizers as hf

    backend.add_special_tokens([hf.AddedToken(mask, lstrip=True)])


def _add_t5_template(backend: tokenizers.Tokenizer, end: str, sentinels: int) -> None:
    """a </s>, or a </s> b </s>, all of one segment; and the sentinels, of which the first is the
    last id (Raffel et al. 2020, section 3.1.4)."""
    from tokenizers import processors

    backend.add_special_tokens([f"<extra_id_{k}>" for k in reversed(range(sentinels))])
    backend.post_processor = processors.TemplateProcessing(
        single=["$A", end],
        pair=["$A", end, "$B", end],
        special_tokens=[(end, backend.token_to_id(end))],
    )


def hide_specials(backend: tokenizers.Tokenizer, names: Sequence[str]) -> None:
    """Let text that looks like a special token be text for a unigram model too.

    It looks for all its pieces in the text, and the special ones, of probability 1, would win.  So
    what looks like one is parted after its first character.
    """
    import tokenizers as hf
    from tokenizers import models, pre_tokenizers

    def found(name: str) -> bool:
        return name in backend.encode(name, add_special_tokens=False).tokens

    backend.encode_special_tokens = True
    if isinstance(backend.model, models.Unigram) and any(map(found, names)):
        looks = "|".join(f"{re.escape(name[0])}(?={re.escape(name[1:])})" for name in names)
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [backend.pre_tokenizer, pre_tokenizers.Split(hf.Regex(looks), "isolated")]
        )


def _add_bert_template(
    backend: tokenizers.Tokenizer, start: tuple[str, int], end: tuple[str, int]
) -> None:
    """[CLS] a [SEP], or [CLS] a [SEP] b [SEP] with type 1 from b on (section 3 of BERT)."""
    from tokenizers import processors

    backend.post_processor = processors.BertProcessing(end, start)
