"""Subword vocabularies: learnt from text, or read from the files of a published model.

Each function gives a backend of the `tokenizers` library: how text is normalised and split into
words, which pieces there are, and what a model's input has around them (the template).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyfm.errors import InputError
from tinyfm.files import read_json
from tinyfm.text import read_lines

if TYPE_CHECKING:
    import tokenizers

BPE_SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
BERT_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
END_OF_TEXT = "<|endoftext|>"  # GPT-2's only special token: it begins, parts and ends texts
# GPT-1's start, delimiter and extract token, by the roles that come nearest to theirs.
INPUT_FORMS = {"bos_token": "<start>", "sep_token": "<delimiter>", "cls_token": "<extract>"}
LONGEST_WORD = 100  # characters; WordPiece takes a longer word as unknown, as BERT's code does


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
    alone = hf.Regex(r"▁?[\p{N}\p{P}\p{S}&&[^▁]]")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Split(alone, "isolated")]
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
    pieces = sorted({f"##{c}" for word in _words(backend, lines) for c in word[1:]})
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


def learn_byte_level(texts: Iterable[str], vocab_size: int) -> tokenizers.Tokenizer:
    """Byte-pair encoding over bytes; see `Tokenizer.train_byte_level`."""
    import tokenizers as hf
    from tokenizers import models, pre_tokenizers, trainers

    backend = _byte_level(hf.Tokenizer(models.BPE()), space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(_with_text(texts), trainer)
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


def _words(backend: tokenizers.Tokenizer, lines: Iterable[str]) -> set[str]:
    """The different words of the lines, normalised and parted as the backend does it."""
    normalized = map(backend.normalizer.normalize_str, lines)
    found = map(backend.pre_tokenizer.pre_tokenize_str, normalized)
    return {word for words in found for word, _ in words}


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
    from tokenizers import models, pre_tokenizers, processors

    vocabulary = read_json(vocabulary_path)
    _check_has(vocabulary_path, vocabulary, sorted(pre_tokenizers.ByteLevel.alphabet()))
    space = bool(options.get("add_prefix_space", False))
    backend = _byte_level(hf.Tokenizer(models.BPE(vocabulary, _read_merges(merges_path))), space)
    start, end = special_name(options, "cls") or "<s>", special_name(options, "sep") or "</s>"
    if start in vocabulary and end in vocabulary:
        backend.post_processor = processors.RobertaProcessing(
            (end, vocabulary[end]), (start, vocabulary[start]), add_prefix_space=space
        )
    mask = special_name(options, "mask") or "<mask>"
    if mask in vocabulary:  # it stands for a word together with the space before it
        backend.add_special_tokens([hf.AddedToken(mask, lstrip=True)])
    return backend


def _byte_level(backend: tokenizers.Tokenizer, space: bool) -> tokenizers.Tokenizer:
    """Text is taken as UTF-8, each byte written as a letter; space: one is put before the text."""
    from tokenizers import decoders, pre_tokenizers

    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    backend.decoder = decoders.ByteLevel()
    return backend


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


def _add_bert_template(
    backend: tokenizers.Tokenizer, start: tuple[str, int], end: tuple[str, int]
) -> None:
    """[CLS] a [SEP], or [CLS] a [SEP] b [SEP] with type 1 from b on (section 3 of BERT)."""
    from tokenizers import processors

    backend.post_processor = processors.BertProcessing(end, start)
