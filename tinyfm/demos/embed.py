"""Vectors of sentences and words, and what is near to what.

    python -m tinyfm.demos.embed                    learns from generated sentences, in English
    python -m tinyfm.demos.embed --model FOLDER --text "A man plays." --text "Somebody plays."
    python -m tinyfm.demos.embed --model FOLDER --text "A man plays." --search lines.txt
    python -m tinyfm.demos.embed --model FOLDER --word bank --text "..." --text "..."
    python -m tinyfm.demos.embed --model FOLDER --word bank
    python -m tinyfm.demos.embed --model FOLDER --test pairs.tsv
    python -m tinyfm.demos.embed --model FOLDER < lines.txt > vectors.tsv

Two texts: the cosine of their vectors; the mean over the subwords, which padding does not change.
--search: the lines of a file that are nearest to the text, or to each line of standard input, whose
answers end with a blank line. A word in two texts: the cosine of its vectors there; a word alone:
its neighbours in the table of embeddings. --test: how well the cosines follow the scores of a file
with sentence1, sentence2 and score. A training, in which the cosines learn to follow such scores,
replaces what is in its folder (--save).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tinyfm
from tinyfm import metrics, models
from tinyfm.backend import to_numpy
from tinyfm.data import ExampleBatches
from tinyfm.demos import cli, similar
from tinyfm.demos.encoders import (
    check_length,
    new_config,
    new_example,
    new_optimizer,
    new_tokenizer,
    open_model,
)
from tinyfm.demos.learning import Option, Say, Training
from tinyfm.demos.modelling import new_model, outputs, size_options, train_model
from tinyfm.demos.pretraining import check_lengths
from tinyfm.demos.records import Records, read_classification
from tinyfm.demos.similar import Scored
from tinyfm.errors import InputError
from tinyfm.models.sentence_bert import CosineRegression, mean_pool
from tinyfm.text import read_lines
from tinyfm.tokenizer import Encoding, Tokenizer

TRAINING = Training(
    kinds=("",),
    options={
        "steps": Option(cli.positive_int, (800,), "optimizer steps"),
        **size_options(1, vocab_size=(1000,), hidden_size=(64,), ffn=(256,)),
        "max_length": Option(cli.positive_int, (64,), "subwords in a text"),
        "max_tokens": Option(cli.positive_int, (1000,), "tokens in a batch, padding included"),
        "warmup": Option(cli.positive_int, (80,), "steps until the learning rate is at its peak"),
        "lr": Option(cli.positive_float, (3e-3,), "peak learning rate"),
        "clip": Option(cli.positive_float, (1.0,), "limit of the gradient's norm"),
        "dropout": Option(cli.probability, (0.1,), "share of the activations left out"),
    },
    schedules=("linear",),
    remembered={},
)


def new_parser() -> cli.Parser:
    parser = cli.Parser("embed", __doc__)
    work = parser.add_argument_group("what to do")
    TRAINING.add_folders(work, save="embedder")
    work.add_argument(
        "--text", type=cli.text, action="append", metavar="TEXT", help="a sentence; twice: their "
        "similarity; once, without --search and --word: its vector",
    )  # fmt: skip
    work.add_argument(
        "--search", metavar="FILE", help="show the lines of this file (may be .gz) that are "
        "nearest to --text, or to each line of standard input",
    )  # fmt: skip
    work.add_argument(
        "--word", type=cli.text, metavar="WORD", help="compare this word in two --text, or show "
        "its neighbours in the table of embeddings",
    )  # fmt: skip
    work.add_argument(
        "--test", metavar="FILE", help="score the similarity of the pairs in this file: JSON lines "
        "or tab-separated columns sentence1, sentence2, score (or label)",
    )  # fmt: skip
    work.add_argument(
        "--top-k", type=cli.positive_int, default=5, metavar="K", help="lines or words that are "
        "shown (default: %(default)s)",
    )  # fmt: skip
    TRAINING.add_options(parser)
    cli.add_common_options(parser)
    return parser


def main(args: argparse.Namespace) -> None:
    check(args)
    device = cli.choose_device(args)
    lines = None if args.search is None else read_search(args.search)
    pairs = None if args.test is None else read_scores(args.test)
    asked = any(given is not None for given in (args.text, args.word, args.search))

    say = cli.new_say(quiet=asked)

    def ready(embedder: Embedder) -> None:  # before a training, too: it would be in vain
        check_texts(embedder, args, lines, pairs)

    if args.model is not None:
        model, tokenizer = open_model(args.model, "Model")
        embedder = Embedder(model.to(device), tokenizer)
        ready(embedder)
    else:
        embedder = train(args, device, say, ready)
        pairs = pairs or Records.generated(similar.split()[1], "pair")
    if pairs is not None:
        say(f"{args.test or 'generated pairs'}: {score(embedder, pairs)}")
    if args.word is not None:
        show_word(embedder, args)
    elif lines is not None:
        search(embedder, lines, args)
    elif args.text is not None and len(args.text) == 2:
        print(f"{cosines(*embedder(args.text)[:, None])[0]:.4f}")
    elif args.text is not None:
        print_vector(embedder, args.text[0])
    elif args.model is not None and args.test is None:
        cli.answer_lines(lambda line, where: print_vector(embedder, line, where))


def check(args: argparse.Namespace) -> None:
    """Options that exclude or need each other."""
    if args.model is not None:
        TRAINING.refuse(args)
    count = len(args.text or ())
    if count > 2:
        raise InputError(f"--text is given {count} times; give one text or two")
    if args.word is not None and count == 1:
        raise InputError("--word is compared in two texts: give --text twice, or not at all")
    if args.search is not None and (count == 2 or args.word is not None):
        raise InputError("--search takes one --text and no --word")


def check_texts(
    embedder: Embedder,
    args: argparse.Namespace,
    lines: Records[str] | None,
    pairs: Records[Scored] | None,
) -> None:
    """InputError, naming the place, for a text or a word that there can be no vector of."""
    texts = [(text, "--text") for text in args.text or ()]
    if lines is not None:
        texts += [(line, lines.where(i)) for i, line in enumerate(lines)]
    if pairs is not None:
        texts += [(side, pairs.where(i)) for i, pair in enumerate(pairs) for side in pair[:2]]
    embedder.encode([text for text, _ in texts], [where for _, where in texts])
    if args.word is not None and args.text is None:
        embedder.pieces(args.word)
    elif args.word is not None:
        for text in args.text:
            embedder.rows(args.word, text)


# -- vectors ---------------------------------------------------------------------------------------


class Embedder:
    """Vectors of texts: the mean over the subwords, special ones included, of the last layer."""

    def __init__(self, model: Any, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer

    def __call__(self, texts: Sequence[str], where: Sequence[str] | None = None) -> np.ndarray:
        """(N, d) float32; where: how an error names each text."""
        vectors: list[Any] = [None] * len(texts)
        examples = [new_example(e, self.model) for e in self.encode(texts, where)]
        for indexes, batch, output in outputs(self.model, examples):
            pooled = mean_pool(output.last_hidden_state, batch["attention_mask"])
            for i, vector in zip(indexes, to_numpy(pooled.data), strict=True):
                vectors[i] = vector
        return np.array(vectors)

    def encode(self, texts: Sequence[str], where: Sequence[str] | None = None) -> list[Encoding]:
        """The texts' subwords; InputError for a text that is too long for the model."""
        encodings = self.tokenizer.encode_all(texts)
        names = where or [f"text {i}" for i in range(1, len(texts) + 1)]
        for encoding, name in zip(encodings, names, strict=True):
            check_length(encoding, self.model, name)
        return encodings

    def of_word(self, word: str, text: str) -> np.ndarray:
        """(d,) the mean over the subwords of a word where it first stands in a text."""
        encoding, rows = self.rows(word, text)
        with self.model.evaluating():
            batch = {k: np.array([v]) for k, v in new_example(encoding, self.model).items()}
            hidden = to_numpy(self.model(**batch).last_hidden_state.data)[0]
        return hidden[rows].mean(axis=0)

    def rows(self, word: str, text: str) -> tuple[Encoding, list[int]]:
        """A text, and which of its subwords are the word's: a whole word, or else a part of one."""
        (encoding,) = self.encode([text], ["--text"])
        part = re.escape(word.strip())
        for pattern in (rf"(?<!\w){part}(?!\w)", part):
            if found := re.search(pattern, text, re.IGNORECASE):
                start, end = found.span()
                rows = [i for i, (a, b) in enumerate(encoding.offsets) if a < end and b > start]
                if rows:
                    return encoding, rows
        raise InputError(f"--text: {word!r} is not in {text!r}; give texts that hold it")

    def pieces(self, word: str) -> list[int]:
        """The ids of a word's subwords."""
        found = self.tokenizer.encode(word)
        ids = [i for i, w in zip(found.ids, found.word_ids, strict=True) if w is not None]
        if not {*ids} - {self.tokenizer.unk_id}:
            raise InputError(f"--word {word!r}: the vocabulary has nothing of it; give another")
        return ids

    def neighbours(self, word: str, top_k: int) -> list[tuple[str, float]]:
        """The whole words whose rows in the table of embeddings are nearest to the word's.

        Left out are pieces of words, signs, and the letters that words are spelt with.
        """
        own = self.pieces(word)
        # A published table may have more rows than there are subwords.
        table = to_numpy(self.model.embeddings.word.weight.data)[: len(self.tokenizer)]
        near = cosines(table[own].mean(axis=0)[None], table)
        leave_out = {*own, *self.tokenizer.special_ids}
        found: dict[str, float] = {}
        for i in np.argsort(-near, kind="stable"):
            text = self.tokenizer.decode([int(i)]).strip()
            spelling = len(text) == 1 and text.isascii()
            if i not in leave_out and text.isalnum() and not spelling:
                found.setdefault(text, float(near[i]))
                if len(found) == top_k:
                    break
        return list(found.items())


def cosines(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(N,) the cosines of the rows of x and y, (N, d) or (1, d); 0 where a row is zero."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    norms = np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1)
    return (x * y).sum(axis=-1) / np.where(norms == 0, 1, norms)


# -- what is asked ---------------------------------------------------------------------------------


def show_word(embedder: Embedder, args: argparse.Namespace) -> None:
    if args.text is None:
        for token, near in embedder.neighbours(args.word, args.top_k):
            print(f"{near:.4f}\t{token}")
        return
    a, b = (embedder.of_word(args.word, text) for text in args.text)
    print(f"{cosines(a[None], b[None])[0]:.4f}")


def search(embedder: Embedder, lines: Sequence[str], args: argparse.Namespace) -> None:
    """The nearest lines of a file, to --text or to each line of standard input."""
    found = embedder(lines)

    def answer(text: str, where: str) -> None:
        near = cosines(embedder([text], [where]), found)
        for i in np.argsort(-near, kind="stable")[: args.top_k]:
            print(f"{near[i]:.4f}\t{lines[i]}")
        if args.text is None:
            print()

    if args.text is not None:
        answer(args.text[0], "--text")
    else:
        cli.answer_lines(answer)


def print_vector(embedder: Embedder, text: str, where: str = "--text") -> None:
    print("\t".join(f"{x:.6g}" for x in embedder([text], [where])[0]))


def read_search(path: str) -> Records[str]:
    """The lines of a file, without blank ones."""
    lines = [(n, line) for n, line in enumerate(read_lines(path), 1) if line.strip()]
    if not lines:
        raise InputError(f"{path}: every line is blank; give a file of texts")
    return Records([line for _, line in lines], [f"{path}:{n}" for n, _ in lines])


def read_scores(path: str) -> Records[Scored]:
    columns = ("sentence1", "sentence2")
    records: Records[Any] = read_classification(path, columns, regression=True, options=False)
    pairs = [Scored(r.texts[0], r.texts[1], r.label) for r in records]
    return Records(pairs, [records.where(i) for i in range(len(records))])


def score(embedder: Embedder, pairs: Sequence[Scored]) -> str:
    a, b, given = zip(*pairs, strict=True)
    near = cosines(embedder(a), embedder(b))
    return (
        f"Pearson {metrics.pearson(given, near):.6f}, Spearman "
        f"{metrics.spearman(given, near):.6f} ({len(pairs)} pairs)"
    )


# -- training --------------------------------------------------------------------------------------


def train(
    args: argparse.Namespace, device: str, say: Say, ready: Callable[[Embedder], None]
) -> Embedder:
    """A small model whose cosines learn to follow the scores of generated pairs.

    ready: called with the embedder before it learns.
    """
    TRAINING.settle(args, lambda args: 0)
    pairs, tests = similar.split()
    tinyfm.manual_seed(args.seed)
    texts = [text for pair in [*pairs, *tests] for text in (pair.a, pair.b)]
    tokenizer = new_tokenizer(args, texts[: 2 * len(pairs)])
    ids = tokenizer.encode_batch(texts)
    check_lengths(args, max(map(len, ids)))
    examples = [
        {"input_ids": ids[2 * i : 2 * i + 2], "labels": pair.score / similar.MOST}
        for i, pair in enumerate(pairs)
    ]
    body = new_model(models.BertModel, new_config(args, tokenizer), pooler=False)
    model = CosineRegression(body).to(device)
    embedder = Embedder(body, tokenizer)
    ready(embedder)
    batches = ExampleBatches(
        examples, max_tokens=args.max_tokens, pad_id=tokenizer.pad_id, seed=args.seed
    )

    def look(_: Any) -> dict[str, float]:
        say(f"  {score(embedder, tests)}")
        return {}

    what = f"{len(pairs)} pairs"
    optimizer = new_optimizer(model)
    train_model(TRAINING, args, model, tokenizer, batches, optimizer, look, say, what, saved=body)
    return embedder


if __name__ == "__main__":
    sys.exit(cli.run(main, new_parser()))
