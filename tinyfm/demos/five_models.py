"""One text as each of the five models is trained on it.

    model        reads                                  sees                        says
    Transformer  the text; its translation so far       all; what is to the left    the translation
    BERT         the text, some words hidden            all                         the hidden words
    GPT          the text                               what is to the left         each next word
    BART         what noise left; the text so far       all; what is to the left    the text
    T5           the text with holes; words so far      all; what is to the left    what was there

A `View` holds this in ids: what each stack of a model reads, the labels that it answers with, and
for every position whom it may see.  It is made by tinyfm.objectives and tinyfm.masks, of which a
training is made, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tinyfm import masks, objectives
from tinyfm.data import IGNORE_INDEX
from tinyfm.demos import korean_english
from tinyfm.errors import InputError
from tinyfm.tokenizer import Tokenizer

Ids = npt.NDArray[np.integer]
Seen = npt.NDArray[np.bool_]

EXAMPLE = "Thank you for inviting me to your party last week."  # Raffel et al. 2020, figure 2
PAIRS = [(EXAMPLE, "지난주 파티에 초대해 주셔서 감사합니다."), korean_english.SHOWN[:2]]
TRANSLATIONS = dict(PAIRS) | {b: a for a, b in PAIRS}

MOST_TOKENS = 512  # BERT's; what is drawn of a text is far less
MARKS = ("[CLS]", "[SEP]", "[MASK]", "<pad>", "<s>", "</s>", "<mask>", "<|endoftext|>")
SENTINELS = tuple(f"<extra_id_{k}>" for k in range(100))


class Stack(NamedTuple):
    """An encoder or a decoder.

    reads   (T,) ids
    labels  (T,) ids, -100 where no loss is taken
    sees    (T, Tk) bool, True where the row's position may look: by what is looked at, "source" (of
            a decoder, what the encoder has read) and "itself"
    others  by position, what is to be said there other than a token
    """

    name: str
    reads: Ids
    labels: Ids
    sees: Mapping[str, Seen]
    others: Mapping[int, str] = MappingProxyType({})

    @property
    def asked(self) -> Seen:
        """(T,) where a loss is taken."""
        return (self.labels != IGNORE_INDEX) | np.isin(np.arange(len(self.labels)), [*self.others])


class View(NamedTuple):
    """What one model makes of a text.

    learns: its objective.  stacks: encoder, decoder or both; the loss is at the last one.
    """

    model: str
    learns: str
    stacks: tuple[Stack, ...]
    remarks: tuple[str, ...] = ()

    @property
    def loss(self) -> tuple[int, int]:
        """Positions with a loss, and all of the stack that has it."""
        asked = self.stacks[-1].asked
        return int(asked.sum()), len(asked)

    @property
    def writing(self) -> tuple[str, int]:
        """Forward passes to write n tokens, and as many as this view has labels.

        An encoder runs once, a decoder once for every token; a training needs one pass of each.
        """
        names = [stack.name for stack in self.stacks]
        if "decoder" not in names:
            return "1, all at once", 1
        encoders = names.count("encoder")
        return "1 + n" if encoders else "n", encoders + self.loss[0]


# -- the text --------------------------------------------------------------------------------------


class Vocabulary:
    """Tokens of texts, and the special tokens of all five models.

    folder: of a tokenizer; without one the tokens are the words and punctuation marks of `texts`.
    """

    def __init__(self, texts: Sequence[str], folder: str | None = None) -> None:
        if folder is None:
            # In what comes twice there is no pair of pieces that is not worth a merge.
            cut = Tokenizer.train_wordpiece([*texts] * 2, 10**6, lowercase=False)
        else:
            cut = Tokenizer.load(folder)
        self.tokenizer = cut.with_special_tokens({name: name for name in (*MARKS, *SENTINELS)})
        self.sentinels = self.tokenizer.sentinels

    def id(self, mark: str) -> int:
        """Of a special token."""
        number = self.tokenizer.token_to_id(mark)
        assert number is not None
        return number

    def shown(self, id: int) -> str:
        """A token for reading: a dot where there is none, <0> for the sentinel <extra_id_0>."""
        if id == IGNORE_INDEX:
            return "·"
        if id in self.sentinels:
            return f"<{self.sentinels.index(id)}>"
        return self.tokenizer.decode([id]).strip() or str(self.tokenizer.id_to_token(id))


class Text(NamedTuple):
    """A text in tokens: ids (T,), and what the objectives want to know of them.

    hidden: (T,) bool, what BERT, BART and T5 shall hide; None: what each of them draws.
    """

    ids: Ids
    word_starts: Seen
    sentence_end_ids: set[int]
    hidden: Seen | None

    @property
    def sentences(self) -> list[list[int]]:
        """A sentence ends with its last mark."""
        ends = np.isin(self.ids, list(self.sentence_end_ids))
        last = np.flatnonzero(ends[:-1] & ~ends[1:]) + 1
        return [part.tolist() for part in np.split(self.ids, last)]


def new_text(
    text: str,
    vocabulary: Vocabulary,
    hide: Sequence[str] = (),
    name: str = "--text",
    least: int = 2,
) -> Text:
    """Tokenise a text; hide: words as they stand in it, hidden wherever they do.

    name: what a complaint calls the text.

    Raises InputError for a text of fewer than `least` tokens or of very many, and for words to hide
    that are not there or are all that is there.
    """
    ids, word_starts, ends = objectives.text_tokens(text, vocabulary.tokenizer)
    if not least <= len(ids) <= MOST_TOKENS:
        raise InputError(
            f"{name} has {len(ids)} token{'s' * (len(ids) != 1)}; give {least} to "
            f"{MOST_TOKENS}, such as a sentence"
        )
    hidden = None
    if hide:
        hidden = np.any([_places(words, text, vocabulary) for words in hide], axis=0)
        if hidden.all():
            raise InputError("--hide leaves nothing of the text; leave a word at least")
    return Text(ids, word_starts, ends, hidden)


def _places(words: str, text: str, vocabulary: Vocabulary) -> Seen:
    """(T,) bool: which tokens of the text are these words."""
    found = vocabulary.tokenizer.encode(text)
    own = [word is not None for word in found.word_ids]
    starts, ends = np.array(found.offsets)[own].T
    hidden = np.zeros(len(starts), bool)
    begin = text.find(words)
    while begin >= 0:
        end = begin + len(words)
        if begin in starts and end in ends:
            hidden |= (starts >= begin) & (ends <= end)
        begin = text.find(words, begin + 1)
    if not hidden.any():
        raise InputError(
            f"--hide {words!r}: the text has no such words; give whole ones as they stand there"
        )
    return hidden


# -- the five --------------------------------------------------------------------------------------


def views(text: Text, target: Text | None, vocabulary: Vocabulary, seed: int) -> list[View]:
    """The five models' views of a text; target: its translation, if one is known."""
    return [
        transformer(text, target, vocabulary),
        bert(text, vocabulary, np.random.default_rng(seed)),
        gpt(text, vocabulary),
        bart(text, vocabulary, np.random.default_rng(seed)),
        t5(text, vocabulary, np.random.default_rng(seed)),
    ]


def transformer(text: Text, target: Text | None, vocabulary: Vocabulary) -> View:
    """Vaswani et al. 2017: every next word of the translation, the teacher's words before it."""
    source, labels = (np.append(side.ids, vocabulary.id("</s>")) for side in (text, target or text))
    remark = "No translation is known here, and the text stands in its place; --target gives one."
    return View(
        "Transformer (2017)",
        "a text in, its translation out",
        _two_stacks(source, labels, "<s>", vocabulary),
        () if target else (remark,),
    )


def bert(text: Text, vocabulary: Vocabulary, rng: np.random.Generator) -> View:
    """Devlin et al. 2018: hidden words; of several sentences also whether the rest follows."""
    cls, sep, mask = map(vocabulary.id, ("[CLS]", "[SEP]", "[MASK]"))
    sentences, remarks, others = text.sentences, [], {}
    if len(sentences) > 1:
        pairs = objectives.next_sentence_pairs([sentences], rng, len(text.ids) + 3, short_prob=0)
        a, b, label = next(pairs)
        ids = np.array([cls, *a, sep, *b, sep])
        others = {0: ("follows", "elsewhere")[label]}
        remarks.append(
            f"Segment 0 has {len(a) + 2} tokens and segment 1 {len(b) + 1}. At [CLS] a second loss "
            f"is taken: does segment 1 follow (label {label}), or is it from elsewhere (label 1)?"
        )
    else:
        ids = np.array([cls, *text.ids, sep])
    special = np.isin(ids, [cls, sep])
    if text.hidden is None:
        # Another word is to be one of this text: its words are the vocabulary of mask_tokens.
        known = np.unique(np.append(ids, mask))
        places, answers = objectives.mask_tokens(
            np.searchsorted(known, ids), special, int(np.searchsorted(known, mask)), len(known), rng
        )
        reads, chosen = known[places], answers != IGNORE_INDEX
        hidden, stayed = int((reads == mask).sum()), int((reads == ids)[chosen].sum())
        other = int(chosen.sum()) - hidden - stayed
        remark = (
            f"Of the chosen, {hidden} became [MASK] (the chance is 80%), {other} another word "
            f"(10%), and {stayed} stayed (10%)."
        )
    else:
        chosen = np.zeros(len(ids), bool)
        chosen[~special] = text.hidden
        reads = np.where(chosen, mask, ids)
        remark = (
            "What --hide names becomes [MASK]; of what chance chooses 10% would become another "
            "word, and 10% would stay."
        )
    labels = np.where(chosen, ids, IGNORE_INDEX)
    stack = Stack("encoder", reads, labels, {"itself": _all(ids, ids)}, others)
    learns = "hidden words, and whether a segment follows" if others else "hidden words"
    return View("BERT (2018)", learns, (stack,), (remark, *remarks))


def gpt(text: Text, vocabulary: Vocabulary) -> View:
    """Radford et al. 2018: every next word.  Input and labels are one text, a place apart."""
    (ids,) = objectives.pack([text.ids.tolist()], len(text.ids) + 1, vocabulary.id("<|endoftext|>"))
    stack = Stack("decoder", ids, objectives.shifted(ids), {"itself": _left(ids)})
    remark = "The last token has no next one: of L tokens L - 1 are said."
    return View("GPT (2018-2020)", "each next word", (stack,), (remark,))


def bart(text: Text, vocabulary: Vocabulary, rng: np.random.Generator) -> View:
    """Lewis et al. 2019: the whole text, out of what noise has left of it."""
    begin, end, mask = map(vocabulary.id, ("<s>", "</s>", "<mask>"))
    if text.hidden is None:
        spoilt = objectives.denoise(
            text.ids, mask, text.sentence_end_ids, rng, word_starts=text.word_starts
        )
    else:
        edges = np.flatnonzero(np.diff(text.hidden, prepend=False, append=False))
        spoilt = objectives.text_infilling(text.ids, mask, None, spans=edges.reshape(-1, 2))
    source, labels = (np.array([begin, *ids, end]) for ids in (spoilt, text.ids))
    return View(
        "BART (2019)",
        "a noised text in, the text as it was out",
        _two_stacks(source, labels, "</s>", vocabulary),
        ("One <mask> stands for a run of any length, also of none.",),
    )


def t5(text: Text, vocabulary: Vocabulary, rng: np.random.Generator) -> View:
    """Raffel et al. 2019: the hidden runs alone, each after its sentinel."""
    source, labels = objectives.span_corruption(
        text.ids, vocabulary.sentinels, vocabulary.id("</s>"), rng, text.hidden
    )
    length = objectives.raw_length(512)
    given, asked = objectives.corrupted_lengths(length)
    remarks = [
        f"Of a text of T5's full length, {length} tokens, it reads {given} and says {asked}."
    ]
    if text.hidden is None:
        remarks.append(
            "It always hides the end, of a short text nothing else; --hide names other words."
        )
    return View(
        "T5 (2019)",
        "a text with holes in, what was there out",
        _two_stacks(source, labels, "<pad>", vocabulary),
        tuple(remarks),
    )


def _two_stacks(
    source: Ids, labels: Ids, start: str, vocabulary: Vocabulary
) -> tuple[Stack, Stack]:
    """An encoder that reads the source, and a decoder that says the labels."""
    reads = objectives.teacher_forcing(labels, vocabulary.id(start), vocabulary.id("<pad>"))
    nothing = np.full_like(source, IGNORE_INDEX)
    return (
        Stack("encoder", source, nothing, {"itself": _all(source, source)}),
        Stack("decoder", reads, labels, {"source": _all(reads, source), "itself": _left(reads)}),
    )


def _all(queries: Ids, keys: Ids) -> Seen:
    """(Tq, Tk): all is seen that is no padding, of which a text alone has none."""
    mask = masks.padding(np.ones((1, len(keys))))
    return mask.dense(1, len(queries), len(keys))[0, 0]


def _left(ids: Ids) -> Seen:
    """(T, T): each sees itself and what stands before it."""
    mask = masks.causal() & masks.padding(np.ones((1, len(ids))))
    return mask.dense(1, len(ids), len(ids))[0, 0]
