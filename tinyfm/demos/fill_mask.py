"""Pretrain a small BERT on texts, and let it fill in hidden words.

    python -m tinyfm.demos.fill_mask                learns from Python's own manual, in English
    python -m tinyfm.demos.fill_mask --model FOLDER --text "The [MASK] statement is used to ..."
    python -m tinyfm.demos.fill_mask --model FOLDER < lines.txt      (on a terminal: a prompt)
    python -m tinyfm.demos.fill_mask --corpus korean --text "나는 아침에 [MASK] 먹었다."
    python -m tinyfm.demos.fill_mask --corpus FILE  a sentence a line, blank lines part documents
    python -m tinyfm.demos.fill_mask --recipe both  BERT's and RoBERTa's recipe beside each other

A tenth of the documents is held out, and every score is taken there. A training replaces what is in
its folder (--save); with --recipe both there is a folder in it for each. Each line of standard
input is answered by one line: the words and their probabilities, a tab between places.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tinyfm
from tinyfm.data import Example
from tinyfm.demos import cli, documents
from tinyfm.demos.encoders import (
    check_length,
    longest,
    new_config,
    new_example,
    new_optimizer,
    new_tokenizer,
    open_model,
)
from tinyfm.demos.learning import Look, Option, Say, Training, begun
from tinyfm.demos.modelling import new_model, size_options, train_model
from tinyfm.demos.pretraining import (
    RECIPES,
    Scores,
    check_documents,
    check_lengths,
    encode,
    hidden_once,
    new_batches,
    score,
    word_logits,
)
from tinyfm.errors import InputError
from tinyfm.tokenizer import Encoding, Tokenizer

# Of each option what fits Python's manual, the Korean sentences, and a file.
KINDS = ("", "with --corpus korean", "with a file")
TRAINING = Training(
    kinds=KINDS,
    options={
        "steps": Option(cli.positive_int, (2000, 3000, 4000), "optimizer steps"),
        **size_options(
            3,
            vocab_size=(2000, 3000, 8000),
            hidden_size=(64, 64, 128),
            layers=(2, 2, 4),
            ffn=(256, 256, 512),
        ),
        "max_length": Option(cli.positive_int, (64, 32, 128), "subwords in a text"),
        "max_tokens": Option(
            cli.positive_int, (1000, 1000, 2000), "tokens in a batch, with padding"
        ),
        "accumulate": Option(cli.positive_int, (1,) * 3, "batches that make one step"),
        "warmup": Option(
            cli.positive_int, (200, 200, 400), "steps until the learning rate is at its peak"
        ),
        "lr": Option(cli.positive_float, (4e-3, 4e-3, 1e-3), "peak learning rate"),
        "clip": Option(cli.positive_float, (1.0,) * 3, "limit of the gradient's norm"),
        "dropout": Option(cli.probability, (0.0, 0.0, 0.1), "share of the activations left out"),
    },
    schedules=("linear",) * 3,
    remembered={
        "corpus": lambda value: value is None or isinstance(value, str),
        "recipe": lambda value: value in RECIPES,
    },
)
SAMPLES = 3  # held-out sentences that are shown with a word hidden


def new_parser() -> cli.Parser:
    parser = cli.Parser("fill_mask", __doc__)
    work = parser.add_argument_group("what to do")
    work.add_argument(
        "--corpus", metavar="FILE", help="learn from this text (one sentence a line, a blank line "
        'between documents; may be .gz), or "korean": the embedded Korean sentences',
    )  # fmt: skip
    work.add_argument(
        "--recipe", choices=(*RECIPES, "both"), help="bert: next sentences are asked for, words "
        "are hidden once; roberta: they are not, words are hidden anew each time; both: one after "
        "the other, and a table (default: bert; with --corpus korean, which has no documents, "
        "roberta)",
    )  # fmt: skip
    TRAINING.add_folders(work, save="masked-model")
    work.add_argument(
        "--text", type=cli.text, metavar="TEXT", help="fill each [MASK] (or <mask>) in this; "
        "without it, after --model, in each line of standard input, or what is typed at a prompt",
    )  # fmt: skip
    work.add_argument(
        "--top-k", type=cli.positive_int, default=5, metavar="K", help="words that are shown for "
        "each place (default: %(default)s)",
    )  # fmt: skip
    TRAINING.add_options(parser)
    cli.add_common_options(parser)
    return parser


def main(args: argparse.Namespace) -> None:
    if args.model is not None:
        if args.corpus is not None or args.recipe is not None:
            raise InputError("--model uses a saved model, --corpus and --recipe make one")
        TRAINING.refuse(args)
    if args.corpus == "korean" and args.recipe in ("bert", "both"):
        raise InputError(
            "--corpus korean has single sentences and no documents, so that there is no next "
            "sentence to ask for; take --recipe roberta"
        )
    device = cli.choose_device(args)

    say = cli.new_say(quiet=args.text is not None)

    if args.model is not None:
        model, tokenizer = open_model(args.model, "ForMaskedLM")
        filler = Filler(model.to(device), tokenizer)
    else:
        filler = train_all(args, device, say)
    if args.text is not None:
        print_fills(filler, args.text, "--text", args.top_k)
    elif args.model is not None:
        cli.answer_lines(lambda line, where: print_line(filler, line, where, args.top_k))


# -- training --------------------------------------------------------------------------------------


def train_all(args: argparse.Namespace, device: str, say: Say) -> Filler:
    """One training, or with --recipe both two and a table of their scores; the first's filler."""
    if args.recipe != "both":
        filler, _ = train(args, device, say)
        return filler
    done: dict[str, tuple[Filler, Scores]] = {}
    own = args
    for recipe in RECIPES:
        folder = Path(args.save) / recipe
        # The second has the options of the first, and has not begun if that was interrupted.
        resume = args.resume and (not done or begun(folder))
        changes = {"recipe": recipe, "save": str(folder), "resume": resume}
        own = argparse.Namespace(**vars(own) | changes)
        done[recipe] = train(own, device, say)
    say(f"{'recipe':8}  {'masks':7}  {'MLM loss':>8}  {'MLM accuracy':>12}  {'NSP accuracy':>12}")
    for recipe, (_, scores) in done.items():
        masks = "dynamic" if RECIPES[recipe].dynamic else "static"
        follows = "-" if scores.next_sentence is None else f"{scores.next_sentence:.1%}"
        say(f"{recipe:8}  {masks:7}  {scores.loss:8.3f}  {scores.masked_lm:12.1%}  {follows:>12}")
    return done["bert"][0]


def train(args: argparse.Namespace, device: str, say: Say) -> tuple[Filler, Scores]:
    """Learn a vocabulary and a model; saved to --save, also on Ctrl-C."""
    TRAINING.settle(args, lambda args: {None: 0, "korean": 1}.get(args.corpus, 2))
    args.recipe = args.recipe or ("roberta" if args.corpus == "korean" else "bert")
    recipe = RECIPES[args.recipe]
    check_lengths(args, recipe.least)
    train_texts, held_out = documents.corpus(args.corpus, documents.python_manual)
    tinyfm.manual_seed(args.seed)
    tokenizer = new_tokenizer(args, (text for document in train_texts for text in document))
    model = new_model(recipe.cls, new_config(args, tokenizer)).to(device)
    filler = Filler(model, tokenizer)
    if args.text is not None:
        filler.encode(args.text, "--text")  # before the training: it may not do
    train_ids, test_ids = encode(train_texts, tokenizer), encode(held_out, tokenizer)
    for ids, what in ((train_ids, "to learn from"), (test_ids, "held out")):
        check_documents(ids, recipe.pairs, f"{args.corpus}: the documents {what}")
    batches = new_batches(
        train_ids, tokenizer, args.recipe, args.max_length, args.max_tokens, args.seed
    )
    tests = hidden_once(test_ids, tokenizer, recipe.pairs, args.max_length, 1, seed=0)
    samples = new_samples(held_out, filler)
    look = new_look(filler, tests, samples, args.top_k, say)

    sentences = sum(map(len, train_texts))
    what = f"recipe {args.recipe}: {len(train_texts)} documents, {sentences} sentences"
    optimizer = new_optimizer(model)
    train_model(TRAINING, args, model, tokenizer, batches, optimizer, look, say, what)
    scores = score(model, tests)
    say(f"{len(held_out)} held-out documents: {scores}")
    return filler, scores


def new_look(
    filler: Filler, tests: Sequence[Example], samples: Sequence[str], top_k: int, say: Say
) -> Look:
    """What fit's `evaluate` does: the samples, and the scores on what is held out, returned."""

    def look(model: Any) -> dict[str, float]:
        for text in samples:
            for fills in filler(text, top_k, "the sample"):
                say(f"  {text} -> {', '.join(fill.token for fill in fills)}")
        scores = score(model, tests)
        say(f"  {scores}")
        return {"validation_loss": scores.loss, "masked_lm_accuracy": scores.masked_lm}

    return look


def new_samples(held_out: Sequence[Sequence[str]], filler: Filler) -> list[str]:
    """Some held-out sentences that fit into the model, a long word in the middle hidden."""
    mask = str(filler.tokenizer.id_to_token(filler.tokenizer.mask_id))
    samples = []
    for document in held_out:
        for sentence in document:
            words = sentence.split()
            middle = range(1, len(words) - 1)
            if 6 <= len(words) <= 14 and any(words[i].isalpha() for i in middle):
                place = max((i for i in middle if words[i].isalpha()), key=lambda i: len(words[i]))
                text = " ".join([*words[:place], mask, *words[place + 1 :]])
                ids = filler.tokenizer.encode(text, special_tokens=True).ids
                if len(ids) <= longest(filler.model):
                    samples.append(text)
                    break
    return samples[:SAMPLES]


# -- filling ---------------------------------------------------------------------------------------


class Fill(NamedTuple):
    token: str
    probability: float


class Filler:
    """Fills hidden places in texts by a model of masked words."""

    def __init__(self, model: Any, tokenizer: Tokenizer) -> None:
        if tokenizer.mask_id is None:
            raise InputError("the tokenizer has no [MASK] token; take a model of hidden words")
        self.model, self.tokenizer = model, tokenizer

    def __call__(self, text: str, top_k: int, where: str) -> list[list[Fill]]:
        """For each [MASK] or <mask> the top_k tokens, best first; places do not see each other."""
        encoding, places = self.encode(text, where)
        batch = {k: np.array([v]) for k, v in new_example(encoding, self.model).items()}
        with self.model.evaluating():
            logits = word_logits(self.model, self.model(**batch))[0]
        return [self._best(logits[place].astype(np.float64), top_k) for place in places]

    def encode(self, text: str, where: str) -> tuple[Encoding, list[int]]:
        """A text as the model takes it, and the hidden places.

        InputError, naming the text by `where`: nothing is hidden, or it is too long.
        """
        mask = str(self.tokenizer.id_to_token(self.tokenizer.mask_id))
        for name in ("[MASK]", "<mask>"):
            text = text.replace(name, mask)
        encoding = self.tokenizer.encode(text, special_tokens=True)
        places = [i for i, token in enumerate(encoding.ids) if token == self.tokenizer.mask_id]
        if not places:
            raise InputError(f"{where}: no {mask} in {text!r}; put it where a word is wanted")
        check_length(encoding, self.model, where)
        return encoding, places

    def _best(self, logits: np.ndarray, top_k: int) -> list[Fill]:
        weights = np.exp(logits - logits.max())
        known = weights[: len(self.tokenizer)]  # a published table may have rows for no token
        best = np.argsort(-known, kind="stable")[:top_k]
        tokens = (str(self.tokenizer.id_to_token(i)) for i in best)
        return [
            Fill(t, float(w)) for t, w in zip(tokens, weights[best] / weights.sum(), strict=True)
        ]


def print_fills(filler: Filler, text: str, where: str, top_k: int) -> None:
    """A line for each fill: probability, tab, token; a blank line between places."""
    for i, fills in enumerate(filler(text, top_k, where)):
        if i:
            print()
        for token, probability in fills:
            print(f"{probability:.3f}\t{token}")


def print_line(filler: Filler, text: str, where: str, top_k: int) -> None:
    """One line: the tokens and their probabilities, a tab between places; a blank one of blanks."""
    fills = filler(text, top_k, where) if text.strip() else []
    print("\t".join(" ".join(f"{t} {p:.3f}" for t, p in place) for place in fills))


if __name__ == "__main__":
    sys.exit(cli.run(main, new_parser()))
