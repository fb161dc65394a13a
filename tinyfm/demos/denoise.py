r"""Pretrain a small BART on spoilt texts, let it restore others, and teach it to summarise.

    python -m tinyfm.demos.denoise                  learns from Python's own documentation
    python -m tinyfm.demos.denoise --model FOLDER --text "The <mask> statement <mask> a value."
    python -m tinyfm.demos.denoise --model FOLDER < lines.txt        (on a terminal: a prompt)
    python -m tinyfm.demos.denoise --corpus korean --noise mask
    python -m tinyfm.demos.denoise --corpus FILE    a sentence a line, blank lines part documents
    python -m tinyfm.demos.denoise --compare        each noise alone, and the two of the paper
    python -m tinyfm.demos.denoise --train FILE --summarize FILE     learns to summarise, is scored
    python -m tinyfm.demos.denoise --model FOLDER --summarize FILE   a line for each document

A tenth of the documents is held out. For the scores spans of their words are hidden, each behind
one <mask>. A span is restored if the model, which has the true text before it, writes all that was
hidden and then goes on with what follows. A training replaces what is in its folder (--save).

--text shows the best texts that beams find, each behind its score; a line of standard input is
answered by the best one, in which \n is a line end. --train and --summarize read JSON lines of
{"document": ..., "summary": ...} (or source, target), or document, tab, summary; ROUGE is shown
where there are summaries, beside that of the documents' first sentences.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tinyfm
from tinyfm import plot
from tinyfm.data import Example, ExampleBatches
from tinyfm.demos import cli, documents
from tinyfm.demos.denoising import (
    DEFAULT,
    LEAST,
    Scores,
    Spoil,
    new_model,
    new_test,
    new_tokenizer,
    score,
    whole_sentences,
)
from tinyfm.demos.encoders import new_optimizer
from tinyfm.demos.finetuning import is_text
from tinyfm.demos.language import ESCAPES, checked
from tinyfm.demos.learning import Look, Option, Say, Training, begun
from tinyfm.demos.modelling import mean_loss, open_model, size_options, train_model
from tinyfm.demos.pretraining import check_lengths
from tinyfm.demos.records import read_summaries
from tinyfm.demos.rewriting import FAMILIES, HEAD, Rewriter, generation_config
from tinyfm.demos.summarizing import learn_summaries, report
from tinyfm.errors import InputError
from tinyfm.objectives.denoising import NOISES

# Of each option what fits Python's manual, the Korean sentences, a file of text, and summaries.
KINDS = ("", "with --corpus korean", "with a file", "with --train", "with --train and --model")


def are_noises(value: Any) -> bool:
    """Whether it is some noises, or none is named."""
    return value is None or (isinstance(value, list) and set(value) <= set(NOISES))


TRAINING = Training(
    kinds=KINDS,
    options={
        "steps": Option(cli.positive_int, (1800, 1800, 4000, 3000, 2000), "optimizer steps"),
        **size_options(
            5,
            vocab_size=(2000, 3000, 8000, 8000, 8000),
            ffn=(256, 256, 512, 512, 512),
        ),
        "max_length": Option(
            cli.positive_int, (32, 32, 128, 256, 256), "tokens in a text; longer ones are cut"
        ),
        "max_tokens": Option(
            cli.positive_int, (1000, 1000, 2000, 2000, 2000), "tokens in a batch, with padding"
        ),
        "accumulate": Option(cli.positive_int, (1,) * 5, "batches that make one step"),
        "warmup": Option(
            cli.positive_int, (100, 100, 400, 300, 200), "steps until the learning rate is at its "
            "peak"
        ),
        "lr": Option(cli.positive_float, (3e-3, 3e-3, 1e-3, 1e-3, 5e-4), "peak learning rate"),
        "clip": Option(cli.positive_float, (1.0,) * 5, "limit of the gradient's norm"),
        "dropout": Option(
            cli.probability, (0.0, 0.0, 0.1, 0.1, 0.1), "share of the activations left out"
        ),
    },
    schedules=("linear",) * 5,
    remembered={
        **dict.fromkeys(("corpus", "train", "valid", "model"), is_text),
        "noise": are_noises,
    },
)  # fmt: skip
NO_SUMMARIES = "--summarize needs a model that does: give it by --model, or --train"
SAMPLES, SHORT = 2, 40  # held-out texts that are shown spoilt and restored; their most tokens


def new_parser() -> cli.Parser:
    parser = cli.Parser("denoise", __doc__)
    work = parser.add_argument_group("what to do")
    work.add_argument(
        "--corpus", metavar="FILE", help="learn from this text (one sentence a line, a blank line "
        'between documents; may be .gz), or "korean": the embedded Korean sentences',
    )  # fmt: skip
    work.add_argument(
        "--noise", choices=NOISES, nargs="+", metavar="NAME", help="how texts are spoilt: some of "
        f"{', '.join(NOISES)}, which come in this order (default: {' '.join(DEFAULT)})",
    )  # fmt: skip
    work.add_argument(
        "--compare", action="store_true", help="learn from each noise alone and from the default, "
        "as many steps, and show a table",
    )  # fmt: skip
    file: dict[str, Any] = {"metavar": "FILE"}
    work.add_argument("--train", **file, help="learn to summarise from this file; may be .gz")
    work.add_argument("--valid", **file, help="show the loss on this file of summaries meanwhile")
    TRAINING.add_folders(
        work,
        save="denoising-model",
        model="with --train: begin with this model; else use it as it is, saved or published",
    )
    work.add_argument(
        "--text", type=cli.text, metavar="TEXT", help="put words in the place of each <mask> (or "
        "[MASK]) in this; without it, after --model, in each line of standard input, or what is "
        "typed at a prompt",
    )  # fmt: skip
    work.add_argument(
        "--summarize", **file, help="summarise what is in this file, a document a line",
    )  # fmt: skip
    work.add_argument(
        "--plot", type=cli.folder, metavar="FOLDER", help="draw the curves of the training (needs "
        "matplotlib)",
    )  # fmt: skip
    search = parser.add_argument_group(
        "how to search", "The defaults are those of --text; of summaries they stand in the folder."
    )
    for name, (kind, metavar, meaning) in SEARCH.items():
        option = name.replace("_", "-")
        search.add_argument(f"--{option}", type=kind, metavar=metavar, help=meaning)
    TRAINING.add_options(parser)
    cli.add_common_options(parser)
    return parser


# The options of `generate` that can be given, but for the first by their own names.
SEARCH = {
    "beams": (cli.positive_int, "N", "texts that are followed at a time, and of --text shown "
              "(default: 4)"),
    "min_new_tokens": (cli.seed, "N", "no end before so many"),
    "max_new_tokens": (cli.positive_int, "N", "stop after so many"),
    "length_penalty": (cli.number, "X", "above 0 favours long texts (default: 1)"),
    "no_repeat_ngram_size": (cli.seed, "N", "no N tokens come twice"),
}  # fmt: skip


def main(args: argparse.Namespace) -> None:
    learning = args.model is None or args.train is not None
    check(args, learning)
    options = search_options(args)
    device = cli.choose_device(args)
    say = cli.new_say(quiet=args.text is not None or not learning)
    if args.plot is not None:
        plot.check()
    records = None  # read before the training: they may not do
    if args.summarize is not None:
        records = read_summaries(args.summarize, labelled=False)

    if learning:
        rewriter = train(args, device, options, say)
    else:
        model, tokenizer = open_model(args.model, HEAD, families=FAMILIES)
        rewriter = Rewriter(model.to(device), tokenizer, options)
    if args.text is not None:
        print_restored(rewriter, args.text, "--text")
    if records is not None:
        summaries = report(rewriter, args.summarize, records, say)
        if not (learning and any(record.summaries for record in records)):  # else it is a test
            print("\n".join(summary.translate(ESCAPES) for summary in summaries))
    elif not learning and args.text is None:
        cli.answer_lines(lambda line, where: print_line(rewriter, line, where))


def check(args: argparse.Namespace, learning: bool) -> None:
    """Options that exclude or need each other."""
    names = ("corpus", "noise", "compare")
    pretraining = [name for name in names if getattr(args, name) not in (None, False)]
    if args.noise and args.compare:
        raise InputError("--compare tries every noise: leave --noise out")
    if args.train is not None:
        if pretraining:
            raise InputError(
                f"--train learns from summaries, --{pretraining[0]} from texts: give one of them"
            )
        own = [name for name in (*size_options(1), "dropout") if getattr(args, name) is not None]
        if args.model is not None and own:
            raise InputError(
                f"--{own[0].replace('_', '-')} is for a new model, and that in {args.model} has "
                "its own: leave it or --model out"
            )
    elif args.model is not None:
        if pretraining:
            raise InputError(f"--model uses a saved model, --{pretraining[0]} makes one")
        TRAINING.refuse(args)
    elif args.summarize is not None and not args.resume:
        raise InputError(NO_SUMMARIES)
    if args.valid is not None and args.train is None and not args.resume:
        raise InputError("--valid belongs to --train: give that too")
    if args.plot is not None and not learning:
        raise InputError("--plot draws the curves of a training, and --model alone has none")


def search_options(args: argparse.Namespace) -> dict[str, Any]:
    """What `generate` is to be told; InputError: an option out of its range."""
    options = {name: value for name in SEARCH if (value := getattr(args, name)) is not None}
    if "beams" in options:
        options["num_beams"] = options.pop("beams")
    return checked(options)


# -- restoring -------------------------------------------------------------------------------------


def print_restored(rewriter: Rewriter, text: str, where: str) -> None:
    """A line for each text that beams find, the best first: score, tab, text."""
    for restored, score_ in rewriter.restore(rewriter.encode(text, where)):
        print(f"{score_:.3f}\t{restored.translate(ESCAPES)}")


def print_line(rewriter: Rewriter, line: str, where: str) -> None:
    """One line, the best text; a blank one of blanks."""
    found = ""
    if line.strip():
        found = rewriter.restore(rewriter.encode(line, where))[0].text
    print(found.translate(ESCAPES))


# -- training --------------------------------------------------------------------------------------


def train(args: argparse.Namespace, device: str, options: dict[str, Any], say: Say) -> Rewriter:
    """What the arguments ask for; the model is saved to --save, also on Ctrl-C."""
    if args.compare:
        return compare(args, device, options, say)
    chosen = args.max_length
    settle(args)
    if args.train is not None:
        return learn_summaries(TRAINING, args, chosen, device, options, say)
    return pretrain(args, device, options, say)[0]


def settle(args: argparse.Namespace) -> None:
    """Fill in what is left out: with --resume from the folder, else what fits what is learnt."""
    TRAINING.settle(args, kind)
    if args.train is None:
        if args.summarize is not None:
            raise InputError(NO_SUMMARIES)
        args.noise = list(dict.fromkeys(args.noise or DEFAULT))
    elif args.text is not None:
        raise InputError("--text is restored, and --train learns to summarise: leave one out")


def kind(args: argparse.Namespace) -> int:
    """The place in KINDS of what the arguments ask for."""
    if args.train is not None:
        return 3 if args.model is None else 4
    return {None: 0, "korean": 1}.get(args.corpus, 2)


def compare(args: argparse.Namespace, device: str, options: dict[str, Any], say: Say) -> Rewriter:
    """Learn from each noise alone and from the default; a table, and the default's rewriter."""
    done: list[tuple[str, Rewriter, float, Scores]] = []
    given = args
    for noises in (*([noise] for noise in NOISES), DEFAULT):
        name = "-".join(noises)
        folder = Path(args.save) / name
        # Those after the first have its options, and have not begun if it was interrupted.
        changes = {
            "noise": noises,
            "save": str(folder),
            "plot": args.plot and str(Path(args.plot) / name),
            "resume": args.resume and (not done or begun(folder)),
        }
        given = argparse.Namespace(**vars(given) | changes)
        settle(given)
        done.append((" ".join(noises), *pretrain(given, device, options, say)))
    say(f"{'noise':16}  {'its own loss':>12}  {'loss':>6}  {'hidden':>6}  {'spans':>6}")
    for name, _, loss, scores in done:
        say(
            f"{name:16}  {loss:12.3f}  {scores.loss:6.3f}  {scores.hidden:6.1%}  "
            f"{scores.restored:6.1%}"
        )
    return done[-1][1]


def pretrain(
    args: argparse.Namespace, device: str, options: dict[str, Any], say: Say
) -> tuple[Rewriter, float, Scores]:
    """Learn a vocabulary and a model, saved to --save, also on Ctrl-C; what it restores of texts
    that were held out: their loss with the noise that was learnt, and the scores of the test."""
    check_lengths(args, LEAST)
    if args.plot is not None:
        cli.make_folder(args.plot)
    train_texts, held_out = documents.corpus(args.corpus, documents.python_prose)
    tinyfm.manual_seed(args.seed)
    tokenizer = new_tokenizer(args, (text for document in train_texts for text in document))
    model = new_model(args, tokenizer).to(device)
    model.generation_config = generation_config(tokenizer, max_length=args.max_length)
    rewriter = Rewriter(model, tokenizer, options)
    if args.text is not None:
        rewriter.encode(args.text, "--text")  # before the training: it may not do
    learnt, tests = (
        whole_sentences(texts, tokenizer, args.max_length) for texts in (train_texts, held_out)
    )
    for texts, what in ((learnt, "to learn from"), (tests, "held out")):
        if not texts:
            raise InputError(
                f"{args.corpus}: the documents {what} have no text of two tokens or more; give "
                "sentences"
            )
    spoil, test_spoil = (Spoil(texts, tokenizer, args.noise) for texts in (learnt, tests))
    batches = ExampleBatches(
        spoil.whole,
        max_tokens=args.max_tokens,
        pad_id=tokenizer.pad_id,
        seed=args.seed,
        change=spoil,
    )
    test = new_test(tests, tokenizer)
    own = test_spoil.once()
    samples = [e for e in own if len(e["labels"]) <= SHORT][:SAMPLES]
    look = new_look(rewriter, test, samples, say)

    sentences = sum(map(len, train_texts))
    what = (
        f"noise {' '.join(args.noise)}: {len(train_texts)} documents, {sentences} sentences, "
        f"{len(learnt)} texts"
    )
    optimizer = new_optimizer(model)
    history = train_model(TRAINING, args, model, tokenizer, batches, optimizer, look, say, what)
    if args.plot is not None:
        plot.curves(history, Path(args.plot) / "curves.png")
    scores = score(model, test)
    say(f"{len(held_out)} held-out documents: {scores}")
    return rewriter, mean_loss(model, own), scores


def new_look(
    rewriter: Rewriter, test: Sequence[Example], samples: Sequence[Example], say: Say
) -> Look:
    """What fit's `evaluate` does: the samples, and the scores on what is held out, returned."""

    def look(model: Any) -> dict[str, float]:
        for sample in samples:
            made = rewriter.restore(sample["input_ids"], num_beams=1)[0].text
            say(f"  spoilt    {rewriter.with_masks(sample['input_ids'])}")
            say(f"  restored  {made}")
            say(f"  original  {rewriter.tokenizer.decode(sample['labels'])}")
        scores = score(model, test)
        say(f"  {scores}")
        return {
            "validation_loss": scores.loss,
            "hidden_tokens": scores.hidden,
            "restored_spans": scores.restored,
        }

    return look


if __name__ == "__main__":
    sys.exit(cli.run(main, new_parser()))
