"""Texts to ids and back, in the subwords of each model."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tinyfm.errors import InputError
from tinyfm.files import read_bytes, read_json, replacing, write_json
from tinyfm.subwords import (
    END_OF_TEXT,
    INPUT_FORMS,
    SENTINELS,
    add_input_forms,
    hide_specials,
    learn_bpe,
    learn_byte_level,
    learn_characters,
    learn_unigram,
    learn_wordpiece,
    read_byte_level,
    read_sentencepiece,
    read_wordpiece,
    special_name,
)
from tinyfm.text import is_attached

if TYPE_CHECKING:
    import tokenizers

FILE, OPTIONS, SPECIALS = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
WORDPIECE, UNIGRAM = "vocab.txt", "spiece.model"
# The byte-level files: a vocabulary, its merges; Hugging Face's names and OpenAI's.
VOCABULARY, MERGES = "vocab.json", "merges.txt"
ENCODER, BPE = "encoder.json", "vocab.bpe"


class Encoding(NamedTuple):
    """A tokenised text: four lists with one entry per token.

    ids       the token's number
    type_ids  the segment: 0, and 1 in the second text of a pair (of families that tell them apart)
    offsets   (start, end): text[start:end] is what the token stands for, without the space before,
              and with the marks and unseen characters after it that no token stands for; (0, 0) for
              a token that the template adds
    word_ids  the index of the word, number or sign that the token is a piece of; None for a token
              that the template adds
    """

    ids: list[int]
    type_ids: list[int]
    offsets: list[tuple[int, int]]
    word_ids: list[int | None]


class Window(NamedTuple):
    """A question with a part of the passage; allowed: which tokens are the passage's."""

    encoding: Encoding
    allowed: list[bool]


class Tokenizer:
    """A subword vocabulary, with what its model's inputs have around the text (the template).

    It is learnt from text by `train`, `train_wordpiece`, `train_byte_level`, `train_unigram` or
    `train_characters`, or read from a folder by `load`.  The template's special tokens are always
    added: [CLS] a [SEP] b [SEP] for BERT, <s> a </s></s> b </s> for RoBERTa and BART, a </s> b </s>
    for T5, nothing for the others.

    pad_id, unk_id, bos_id, eos_id, cls_id, sep_id, mask_id: the special tokens by what they do, as
        the folder says or by their usual names; None where the vocabulary has none.  One token may
        do several things: <s> is both the begin and the class token.
    special_ids: all special ids in order.  Text never gives them, but with special_tokens=True.
    sentinels: the ids of <extra_id_0>, <extra_id_1>, ..., which stand for the spans that T5 is to
        fill; T5's are 32099, 32098, ...; of other families none.
    len(tokenizer): the rows that an embedding table needs: the largest id plus 1.
    """

    # Any: whoever uses one knows that its family has it.
    pad_id: Any
    unk_id: Any
    bos_id: Any
    eos_id: Any
    cls_id: Any
    sep_id: Any
    mask_id: Any

    def __init__(
        self, backend: tokenizers.Tokenizer, options: Mapping[str, Any] | None = None
    ) -> None:
        """options: the content of tokenizer_config.json, which may name the special tokens."""
        options = options or {}
        backend.no_padding()  # a published file may ask for it, and for cutting
        backend.no_truncation()
        self._backend = backend
        self._names: dict[str, str] = {}
        self.pad_id = self._special_id(options, "pad", "[PAD]", "<pad>")
        self.unk_id = self._special_id(options, "unk", "[UNK]", "<unk>")
        self.bos_id = self._special_id(options, "bos", "<s>", END_OF_TEXT)
        self.eos_id = self._special_id(options, "eos", "</s>", END_OF_TEXT)
        self.cls_id = self._special_id(options, "cls", "[CLS]", "<s>")
        self.sep_id = self._special_id(options, "sep", "[SEP]", "</s>")
        self.mask_id = self._special_id(options, "mask", "[MASK]", "<mask>")
        sentinels = self._sentinel_ids()
        known = {token.content for token in backend.get_added_tokens_decoder().values()}
        backend.add_special_tokens(sorted({*self._names.values(), *sentinels} - known))
        added = backend.get_added_tokens_decoder()
        self.special_ids = tuple(sorted(i for i, token in added.items() if token.special))
        self.sentinels = tuple(sentinels.values())
        hide_specials(backend, [added[i].content for i in self.special_ids])
        self._size = max(backend.get_vocab().values(), default=-1) + 1

    def _special_id(self, options: Mapping[str, Any], role: str, *usual: str) -> int | None:
        for name in (special_name(options, role), *usual):
            if name is not None and (number := self._backend.token_to_id(name)) is not None:
                self._names[f"{role}_token"] = name
                return number
        return None

    def _sentinel_ids(self) -> dict[str, int]:
        """T5's sentinels in order; mT5's begin with a `▁`."""
        mark = "" if self.token_to_id("▁<extra_id_0>") is None else "▁"
        found: dict[str, int] = {}
        for k in count():
            name = f"{mark}<extra_id_{k}>"
            if (number := self.token_to_id(name)) is None:
                break
            found[name] = number
        return found

    # -- where it comes from -----------------------------------------------------------------------

    @classmethod
    def train(cls, lines: Iterable[str], vocab_size: int, *, lowercase: bool = False) -> Self:
        """Learn a joint vocabulary: byte-pair encoding over characters (Sennrich et al. 2016).

        One vocabulary serves both languages, so that source, target and output weights can be
        shared (Vaswani et al. 2017, section 5.1).  A text is brought into NFC, its runs of white
        space become one space each and its ends are trimmed; then

        - every space is written as `▁` and belongs to what follows it (Kudo and Richardson 2018),
          so that joining the tokens and reading `▁` as a space gives the text back; a `▁` in the
          text itself therefore comes back as a space;
        - punctuation marks, symbols and digits stand alone, with the `▁` before them if there is
          one: `Frau.` shares its first token with `Frau`, while ` (` and `(` stay different;
        - inside the remaining words the learnt merges apply.  Unknown characters become `<unk>`, a
          run of them one `<unk>`.

        The ids 0 to 3 are `<pad>`, `<s>`, `</s>` and `<unk>`.  No template is applied: whoever
        builds a model's input adds `<s>` and `</s>`.

        The vocabulary has about `vocab_size` tokens; equal lines give equal vocabularies.  It comes
        out smaller when no two neighbours occur together twice any more, and larger when the lines
        hold more different characters, for each of them is kept.

        Raises InputError when no line holds a character.
        """
        return cls(learn_bpe(lines, vocab_size, lowercase))

    @classmethod
    def train_wordpiece(
        cls,
        lines: Iterable[str],
        vocab_size: int,
        *,
        lowercase: bool = True,
        strip_accents: bool = False,
    ) -> Self:
        """Learn a vocabulary such as BERT's: WordPiece (Devlin et al. 2018, section 3).

        White space, punctuation marks and Chinese characters part the words; a word is cut into its
        longest pieces from the left, and all but the first begin with `##`.  A word with a part
        that no piece fits, or of more than 100 characters, is one [UNK].  Text is brought into NFC,
        also where its accents are stripped (which BERT's own code leaves to lower-casing).

        The ids 0 to 4 are [PAD], [UNK], [CLS], [SEP] and [MASK].  Size, equal lines and InputError
        as in `train`.
        """
        return cls(learn_wordpiece(lines, vocab_size, lowercase, strip_accents))

    @classmethod
    def train_byte_level(cls, texts: Iterable[str], vocab_size: int, *, bart: bool = False) -> Self:
        """Learn a vocabulary such as GPT-2's: byte-pair encoding over bytes (Radford et al. 2019,
        section 2.2).

        A text is its bytes in UTF-8, so that every text has its tokens and comes back unchanged,
        spaces and line ends too.  No merge crosses the border between a word, with the space before
        it, a number, a run of signs, and a run of white space.

        The id 0 is <|endoftext|>, which begins, parts and ends texts; 1 to 256 are the bytes.
        Larger ids are merges: as many as `vocab_size` leaves room for, fewer when no two neighbours
        occur together twice any more.  Equal texts and InputError as in `train`.

        bart: with the special tokens and the template of BART and RoBERTa instead.  The ids 0 to 3
        are <s>, <pad>, </s> and <unk>, which no text needs; 4 to 259 are the bytes; the last is
        <mask>, which takes the space before it along.
        """
        return cls(learn_byte_level(texts, vocab_size, bart))

    @classmethod
    def train_unigram(
        cls, lines: Iterable[str], vocab_size: int, *, sentinels: int = SENTINELS
    ) -> Self:
        """Learn a vocabulary such as T5's: pieces with probabilities (Kudo 2018; Raffel et al.
        2020, section 2.2.1).

        A text is brought into NFKC, which makes ｱ of half width and ½ the common ア and 1⁄2; runs
        of white space, line ends too, become one space each, the ends are trimmed, and every word
        begins with `▁`.  Punctuation marks, symbols and digits stand alone as in `train`.  Of all
        ways to cut a word the most probable is taken.  Unknown characters become `<unk>`.

        The ids 0 to 2 are <pad>, </s> and <unk>; then come the pieces, the most probable first; the
        last are the sentinels, <extra_id_0> the very last.  `vocab_size` counts all of these.

        Size, equal lines and InputError as in `train`.
        """
        return cls(learn_unigram(lines, vocab_size, sentinels))

    @classmethod
    def train_characters(cls, texts: Iterable[str]) -> Self:
        """A vocabulary of the characters in the texts, white space too, and nothing longer.

        The id 0 is <|endoftext|>, 1 is <unk>, which stands for any other character; the rest are in
        the order of their code points.  InputError as in `train`.
        """
        return cls(learn_characters(texts))

    def with_input_forms(self) -> Self:
        """This vocabulary and three new tokens, as GPT-1 has them around the texts of a task:
        <start> a <extract>, and <start> a <delimiter> b <extract> (Radford et al. 2018, section
        3.3).

        What a text means is read at the last, which is cls_id; bos_id and sep_id are the others.
        """
        made = self.with_special_tokens(INPUT_FORMS)
        add_input_forms(made._backend)
        return made

    def with_special_tokens(self, roles: Mapping[str, str]) -> Self:
        """This vocabulary and, as its last ids, new special tokens by what they do, such as
        {"eos_token": "<|endoftext|>"}."""
        import tokenizers as hf

        backend = hf.Tokenizer.from_str(self._backend.to_str())
        backend.add_special_tokens(list(roles.values()))
        return type(self)(backend, {**self._names, **roles})

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read tokenizer.json; or BERT's vocab.txt; or vocab.json and merges.txt of GPT-2's kind,
        which OpenAI calls encoder.json and vocab.bpe; or T5's spiece.model.

        The last needs the `sentencepiece` extra; what `save` writes does not.  Text is cut as
        SentencePiece itself does it, decomposed characters too; only U+0085, which is white space
        here, and piles of marks that no language has may come out otherwise.

        tokenizer_config.json and special_tokens_map.json, if they are there, name the special
        tokens and, for the older files, say how text is normalised.

        InputError names what is missing or damaged.
        """
        path = Path(folder)
        options: dict[str, Any] = {}
        for name in (SPECIALS, OPTIONS):
            if (path / name).is_file():
                options |= read_json(path / name)
        for name, read in READERS.items():
            if (path / name).is_file():
                try:
                    return cls(read(path, options), options)
                except InputError:
                    raise
                except Exception as error:  # the library raises nothing more specific
                    reason = str(error).partition("\n")[0]
                    raise InputError(
                        f"{path / name}: not a tokenizer that fits ({reason})"
                    ) from error
        raise InputError(
            f"{path}: holds no tokenizer; give a folder with {FILE}, {WORDPIECE}, {UNIGRAM}, "
            f"{VOCABULARY} and {MERGES}, or {ENCODER} and {BPE}"
        )

    def save(self, folder: str | Path) -> None:
        """Write tokenizer.json, making the folder if need be, and tokenizer_config.json.

        From the latter transformers knows the special tokens and whether the model takes segments.
        """
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        content = self._prepared().to_str(pretty=True)
        with replacing(path / FILE) as temporary:
            temporary.write_text(content, encoding="utf-8", newline="\n")
        segments = ["token_type_ids"] if 1 in self.encode("", "").type_ids else []
        inputs = ["input_ids", *segments, "attention_mask"]
        options = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs}
        write_json(path / OPTIONS, options | self._names)

    # -- texts to ids ------------------------------------------------------------------------------

    def encode(
        self,
        text: str,
        pair: str | None = None,
        special_tokens: bool = False,
        max_length: int | None = None,
    ) -> Encoding:
        """Tokenise one text, or two that follow each other.

        `</s>` and its like inside a text are ordinary characters, so that no text can end its own
        sentence; with `special_tokens=True` they give the special ids, and a text that ends in the
        token with which the template ends gets no second one.

        max_length: ends are cut off until no more tokens are left, of the longer text first; the
        template's tokens stay.  ValueError if they alone are more.
        """
        if special_tokens:
            text, pair = self._without_end(text), pair and self._without_end(pair)
        backend = self._prepared(special_tokens, max_length, pair is not None)
        return _encoding(backend.encode(text, pair), text, pair)

    def encode_all(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        max_length: int | None = None,
    ) -> list[Encoding]:
        """Many texts, or pairs, as `encode` gives them; on all cores."""
        backend = self._prepared(False, max_length, pairs is not None)
        found = backend.encode_batch(_inputs(texts, pairs))
        seconds = [None] * len(texts) if pairs is None else pairs
        return [_encoding(*each) for each in zip(found, texts, seconds, strict=True)]

    def encode_batch(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        max_length: int | None = None,
    ) -> list[list[int]]:
        """Only the ids of `encode_all`, which takes less time."""
        backend = self._prepared(False, max_length, pairs is not None)
        return [encoding.ids for encoding in backend.encode_batch_fast(_inputs(texts, pairs))]

    def encode_words(self, words: Sequence[str], max_length: int | None = None) -> Encoding:
        """Tokenise a text that is split into words already, as those with a tag each are.

        word_ids count the given words; a word of nothing but control characters may have no token.
        offsets are those in " ".join(words).
        """
        encoding = self.encode(" ".join(words), max_length=max_length)
        next_starts = [*accumulate(len(word) + 1 for word in words)]
        word_ids = [
            None if word is None else bisect_right(next_starts, start)
            for word, (start, _) in zip(encoding.word_ids, encoding.offsets, strict=True)
        ]
        return encoding._replace(word_ids=word_ids)

    def encode_windows(
        self, question: str, passage: str, max_length: int, stride: int = 0
    ) -> list[Window]:
        """A question with each part of a passage that is too long to be taken at once.

        Each window is at most max_length tokens; neighbouring parts share `stride` tokens, so that
        an answer at the end of one is seen whole in the next.  offsets are those in the question
        and in the whole passage.  ValueError if question and stride leave no room.
        """
        backend = self._prepared()
        extra = backend.num_special_tokens_to_add(True) - backend.num_special_tokens_to_add(False)
        room = max_length - len(backend.encode(question)) - extra
        if not 0 <= stride < room:
            raise ValueError(
                f"max_length is {max_length} and stride {stride}: the question leaves room for "
                f"{room} of the passage's tokens, and stride must be from 0 to less than that"
            )
        backend = self._prepared(False, max_length, True, strategy="only_second", stride=stride)
        first = backend.encode(question, passage)
        return [
            Window(_encoding(part, question, passage), [text == 1 for text in part.sequence_ids])
            for part in (first, *first.overflowing)
        ]

    def _without_end(self, text: str) -> str:
        """The text, without the token with which the template ends if it ends in it as well."""
        template, bare = self.encode("").ids, text.rstrip()
        end = self.id_to_token(template[-1]) if template else None
        return bare.removesuffix(end) if end and bare.endswith(end) else text

    def _prepared(
        self,
        special_tokens: bool = False,
        max_length: int | None = None,
        pair: bool = False,
        **cutting: Any,
    ) -> tokenizers.Tokenizer:
        """The backend, which keeps its settings from call to call, with those of this one."""
        self._backend.encode_special_tokens = not special_tokens
        if max_length is None:
            self._backend.no_truncation()
            return self._backend
        if max_length < (least := self._backend.num_special_tokens_to_add(pair)):
            raise ValueError(
                f"max_length is {max_length}, and the special tokens alone are {least}; raise it"
            )
        self._backend.enable_truncation(max_length, **cutting)
        return self._backend

    # -- ids to texts ------------------------------------------------------------------------------

    def decode(self, ids: Iterable[int], special_tokens: bool = False) -> str:
        """Return the text of the ids.

        Special tokens, `<unk>` among them, are left out, or with `special_tokens=True` written by
        their names, as T5's sentinels must be for spans to have a place.
        """
        return self._backend.decode([int(i) for i in ids], skip_special_tokens=not special_tokens)

    def token_to_id(self, token: str) -> int | None:
        """The id of a token, None if the vocabulary lacks it."""
        return self._backend.token_to_id(token)

    def id_to_token(self, id: int) -> str | None:
        """The token of an id, None if there is none."""
        return self._backend.id_to_token(int(id))

    def __len__(self) -> int:
        return self._size


def _read_whole(folder: Path, options: Mapping[str, Any]) -> tokenizers.Tokenizer:
    import tokenizers as hf

    # The file is read here and not by the library, which knows nothing of Python's file names.
    return hf.Tokenizer.from_str(read_bytes(folder / FILE).decode("utf-8-sig"))


# By the file that tells the kind, in the order in which they are looked for.
READERS = {
    FILE: _read_whole,
    WORDPIECE: lambda folder, options: read_wordpiece(folder / WORDPIECE, options),
    VOCABULARY: lambda folder, options: read_byte_level(
        folder / VOCABULARY, folder / MERGES, options
    ),
    ENCODER: lambda folder, options: read_byte_level(folder / ENCODER, folder / BPE, options),
    UNIGRAM: lambda folder, options: read_sentencepiece(folder / UNIGRAM, options),
}


def _inputs(texts: Sequence[str], pairs: Sequence[str] | None) -> list[Any]:
    return list(texts) if pairs is None else list(zip(texts, pairs, strict=True))


def _encoding(found: tokenizers.Encoding, text: str, pair: str | None) -> Encoding:
    texts = {None: "", 0: text, 1: pair or ""}  # None: of the template
    after = {sequence: len(whole) for sequence, whole in texts.items()}  # where the next token is
    offsets = []
    # From the end: what goes with a token stands before the next one of its text.
    for sequence, token, span in zip(
        found.sequence_ids[::-1], found.tokens[::-1], found.offsets[::-1], strict=True
    ):
        start, end = _without_space(texts[sequence], token, span)
        # Normalised, é may be e or one character, although the text has e and an accent.
        while start < end < after[sequence] and is_attached(texts[sequence][end]):
            end += 1
        after[sequence] = start
        offsets.append((start, end))
    return Encoding(found.ids, found.type_ids, offsets[::-1], found.word_ids)


def _without_space(text: str, token: str, span: tuple[int, int]) -> tuple[int, int]:
    start, end = span
    start = end - len(text[start:end].lstrip())
    # The first word may have no space before it; its `▁` then borrows the word's first character.
    return (start, start) if token == "▁" else (start, end)
