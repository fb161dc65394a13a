"""Text in and out: lines of UTF-8 files, and a subword tokenizer learnt from them."""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from tinyfm.errors import InputError
from tinyfm.files import read_bytes, replacing

if TYPE_CHECKING:
    import tokenizers

logger = logging.getLogger(__name__)


def read_lines(path: str | Path) -> list[str]:
    """Return the lines of a UTF-8 text file, without their line ends.

    A name ending in `.gz` is unpacked. The encoding is UTF-8 whatever the locale says; a
    byte-order mark is dropped. Lines end in `\\n` or `\\r\\n` and in nothing else, so that two
    parallel files stay parallel: `str.splitlines` would also cut at U+2028 or a form feed.
    Blank lines are kept.

    Raises InputError, naming the file: missing, unreadable, a damaged archive, empty, or not
    UTF-8 (then with the number of the first bad line).
    """
    content = read_bytes(Path(path)).removeprefix(b"\xef\xbb\xbf")
    if not content:
        raise InputError(f"{path}: the file is empty; give one with a sentence in each line")
    lines = content.removesuffix(b"\n").split(b"\n")
    return [_decode(line, path, number) for number, line in enumerate(lines, 1)]


def _decode(line: bytes, path: str | Path, number: int) -> str:
    try:
        return line.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}:{number}: not valid UTF-8; save the file as UTF-8") from error


class ParallelText(list[tuple[str, str]]):
    """Pairs (source, target) that remember where they stand: `where(i)` is "train.de.gz:17".

    That is what a message about pair i should name.  Slices are plain lists.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]], paths: Sequence[str], lines: list[int]):
        super().__init__(pairs)
        self._paths, self._lines = paths, lines

    def where(self, index: int, side: int = 0) -> str:
        """File and line of one side (0: source, 1: target) of a pair."""
        return f"{self._paths[side]}:{self._lines[index]}"

    def places(self, side: int = 0) -> list[str]:
        """`where` of every pair."""
        return [self.where(index, side) for index in range(len(self))]


def read_pairs(source_path: str | Path, target_path: str | Path | None = None) -> ParallelText:
    """Return the pairs (source, target) of two files, or of one file with a tab in each line.

    Two files: equal line numbers belong together.  One file: source, tab, target; what follows
    after another tab (a licence, an id) is left out.  A pair with a blank side teaches nothing and
    is left out as well; how many were is reported as a warning of the logger `tinyfm.text`, which
    Python prints to stderr by default.

    Raises InputError, naming file and line: files of unequal length, a line without a tab, no pair
    that is left, and all that `read_lines` raises.
    """
    if target_path is None:
        pairs, paths = _split_at_tabs(source_path), [str(source_path)] * 2
    else:
        sources, targets = read_lines(source_path), read_lines(target_path)
        if len(sources) != len(targets):
            raise InputError(
                f"{source_path} has {len(sources)} lines and {target_path} has {len(targets)}; "
                "line n of one must be the translation of line n of the other"
            )
        pairs, paths = (
            list(zip(sources, targets, strict=True)),
            [str(source_path), str(target_path)],
        )
    lines = [number for number, pair in enumerate(pairs, 1) if all(map(str.strip, pair))]
    names = " and ".join(dict.fromkeys(paths))
    if not lines:
        raise InputError(f"{names}: every pair has a blank side; are these the right files?")
    if dropped := len(pairs) - len(lines):
        logger.warning(
            "%s: dropped %d of %d pairs, which have a blank side", names, dropped, len(pairs)
        )
    return ParallelText([pairs[number - 1] for number in lines], paths, lines)


def _split_at_tabs(path: str | Path) -> list[tuple[str, str]]:
    pairs = []
    for number, line in enumerate(read_lines(path), 1):
        source, tab, rest = line.partition("\t")
        if not tab and line.strip():
            raise InputError(
                f"{path}:{number}: no tab; each line must be source, tab, target; or give two files"
            )
        pairs.append((source, rest.partition("\t")[0]))
    return pairs


class Encoding(NamedTuple):
    """A tokenised text: four lists with one entry per token.

    ids       the token's number
    type_ids  0 in the first text, 1 in the second text of a pair
    offsets   (start, end): text[start:end] is what the token stands for, without the space before
    word_ids  the index of the word, number or sign that the token is a piece of
    """

    ids: list[int]
    type_ids: list[int]
    offsets: list[tuple[int, int]]
    word_ids: list[int | None]


class Tokenizer:
    """A joint subword vocabulary: byte-pair encoding over characters (Sennrich et al. 2016).

    One vocabulary serves both languages, so that source, target and output weights can be shared
    (Vaswani et al. 2017, section 5.1). A text is brought into NFC, its runs of white space become
    one space each and its ends are trimmed; then

    - every space is written as `▁` and belongs to what follows it (Kudo and Richardson 2018), so
      that joining the tokens and reading `▁` as a space gives the text back; a `▁` in the text
      itself therefore comes back as a space;
    - punctuation marks, symbols and digits stand alone, with the `▁` before them if there is one:
      `Frau.` shares its first token with `Frau`, while ` (` and `(` stay different;
    - inside the remaining words the learnt merges apply. Unknown characters become `<unk>`, a run
      of them one `<unk>`.

    The ids 0 to 3 are `<pad>`, `<s>`, `</s>` and `<unk>`, which the attributes `pad_id`, `bos_id`,
    `eos_id` and `unk_id` hold. No template is applied: whoever builds a model's input adds `<s>`
    and `</s>`.
    """

    SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")
    FILE_NAME = "tokenizer.json"

    def __init__(self, backend: "tokenizers.Tokenizer"):
        self._backend = backend
        self.pad_id, self.bos_id, self.eos_id, self.unk_id = map(
            self._special_id, self.SPECIAL_TOKENS
        )

    def _special_id(self, token: str) -> int:
        number = self._backend.token_to_id(token)
        if number is None:
            raise InputError(f"the vocabulary lacks {token}")
        return number

    @classmethod
    def train(cls, lines: Iterable[str], vocab_size: int, *, lowercase: bool = False) -> Self:
        """Learn a vocabulary of about `vocab_size` tokens; equal lines give equal vocabularies.

        It comes out smaller when no two neighbours occur together twice any more, and larger when
        the lines hold more different characters, for each of them is kept.

        Raises InputError when no line holds a character.
        """
        import tokenizers as hf
        from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

        lines = [line for line in lines if line.strip()]
        if not lines:
            raise InputError("no text to learn a vocabulary from: every line is blank")
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
            special_tokens=list(cls.SPECIAL_TOKENS),
            show_progress=False,
        )
        backend.train_from_iterator(lines, trainer)
        return cls(backend)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read `folder/tokenizer.json`; InputError names that file if it cannot be used."""
        import tokenizers as hf

        path = Path(folder) / cls.FILE_NAME
        # The file is read here and not by the library, which knows nothing of Python's file names.
        content = read_bytes(path)
        try:
            return cls(hf.Tokenizer.from_str(content.decode("utf-8-sig")))
        except Exception as error:  # the library raises nothing more specific
            raise InputError(f"{path}: not a tokenizer that fits ({error})") from error

    def save(self, folder: str | Path) -> None:
        """Write `folder/tokenizer.json`, making the folder if need be."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        content = self._backend.to_str(pretty=True)
        with replacing(Path(folder) / self.FILE_NAME) as temporary:
            temporary.write_text(content, encoding="utf-8", newline="\n")

    def encode(self, text: str, pair: str | None = None, special_tokens: bool = False) -> Encoding:
        """Tokenise one text, or two that follow each other.

        `</s>` and its like inside a text are ordinary characters, so that no text can end its own
        sentence; with `special_tokens=True` they give the special ids.
        """
        self._backend.encode_special_tokens = not special_tokens
        encoding = self._backend.encode(text, pair)
        offsets = [
            _without_space(pair if type_id and pair else text, token, span)
            for type_id, token, span in zip(
                encoding.type_ids, encoding.tokens, encoding.offsets, strict=True
            )
        ]
        return Encoding(encoding.ids, encoding.type_ids, offsets, encoding.word_ids)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, as `encode` with its defaults gives them, on all cores."""
        self._backend.encode_special_tokens = True
        return [encoding.ids for encoding in self._backend.encode_batch(list(texts))]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the ids. Special tokens, `<unk>` among them, are left out."""
        return self._backend.decode([int(i) for i in ids])

    def token_to_id(self, token: str) -> int | None:
        """The id of a token, None if the vocabulary lacks it."""
        return self._backend.token_to_id(token)

    def id_to_token(self, id: int) -> str | None:
        """The token of an id, None if there is none."""
        return self._backend.id_to_token(int(id))

    def __len__(self) -> int:
        return self._backend.get_vocab_size()


def _without_space(text: str, token: str, span: tuple[int, int]) -> tuple[int, int]:
    start, end = span
    start = end - len(text[start:end].lstrip())
    # The first word may have no space before it; its `▁` then borrows the word's first character.
    return (start, start) if token == "▁" else (start, end)
