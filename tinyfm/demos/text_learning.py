"""How text_to_text learns: hidden spans of texts, then tasks put as text; and what a model writes.

Both are tasks as finetuning.py knows them, for one T5 after the other.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tinyfm.backend import host
from tinyfm.data import Batch, Example, collate_examples, example_batches
from tinyfm.demos import cli, text_tasks
from tinyfm.demos.families import T5, Family
from tinyfm.demos.finetuning import GENERATED, Change, Model, Score, Task, new_training
from tinyfm.demos.learning import Option, Training
from tinyfm.demos.modelling import BATCH_TOKENS, mean_loss, pad_id
from tinyfm.demos.records import Records, TextPair, read_text_pairs
from tinyfm.demos.templates import TASKS, Scores, fits, learnt, score_texts, with_dots
from tinyfm.errors import InputError
from tinyfm.objectives import raw_length, span_corruption

HEAD = "ForConditionalGeneration"
SENTINEL = re.compile(r"\s*<extra_id_\d+>\s*")
MORE = 10  # tokens, by which what a model writes may be longer than the longest target
Ids = Sequence[int] | np.ndarray


def _training() -> Training:
    shared = new_training(
        sizes={"vocab_size": (3500, 4000, 4000), "ffn": (384, 384, 384)},
        epochs=(5, 3, 3),
        max_length=(128, 128, 512),
        max_tokens=(1000, 2000, 2000),
        lr=(1e-3, 1e-3, 3e-4),
        dropout=(0.0, 0.1, 0.1),
    )
    steps = Option(
        cli.seed, (400, 1000, 0), "optimizer steps on hidden spans, before those on tasks; 0: none"
    )
    return replace(shared, options={**shared.options, "pretraining_steps": steps})


TRAINING = _training()
# A pretraining keeps the options of the training after it, for --resume.
PRETRAINING = replace(
    TRAINING,
    remembered={
        **TRAINING.remembered,
        "then": lambda value: isinstance(value, dict) and value.keys() == {*TRAINING.names},
    },
)


# -- hidden spans ----------------------------------------------------------------------------------


class SpanCorruption(Task[str]):
    """Texts, of which 15% are hidden anew in each epoch (objectives/span_corruption.py)."""

    heads = (HEAD,)
    families = (T5,)
    lowercase = False
    asked: Sequence[str] = ()

    def read(self, path: str, args: argparse.Namespace, model: Any = None) -> Records[str]:
        """Sources and targets, each a text by itself, without sentinels."""
        pairs = read_text_pairs(path, skip=bool(args.skip_bad))
        texts = [
            (plain, pairs.where(i))
            for i, pair in enumerate(pairs)
            for text in pair[:2]
            if (plain := SENTINEL.sub(" ", text).strip())
        ]
        return Records(*map(list, zip(*texts, strict=True)))

    def embedded(self) -> tuple[Records[str], dict[str, Records[str]]]:
        self.asked = TextTasks().lines(text_tasks.records()[0])
        return text_tasks.texts()

    def lines(self, records: Records[str]) -> list[str]:
        """With those of the generated tasks, whose words need their pieces too."""
        return [*records, *self.asked]

    def examples(self, records: Records[str], model: Model) -> list[Example]:
        """The texts one after the other, cut where they fill an input once spans are hidden; of a
        last token that is left alone there is none."""
        if model.max_length < 3:
            raise InputError(
                f"--max-length {model.max_length}: no text has something to hide and to keep in "
                "so few tokens; give 3 or more"
            )
        stream = np.concatenate(model.tokenizer.encode_batch(records))
        stream = stream[stream != model.tokenizer.eos_id]
        cuts = np.arange(0, len(stream), raw_length(model.max_length))
        blocks = [block for block in np.split(stream, cuts) if len(block) > 1]
        if not blocks:
            raise InputError(
                f"{records.where(0)}: {len(stream)} token in all, of which nothing can be hidden; "
                "give longer texts, or --pretraining-steps 0"
            )
        corrupted(blocks[:1], model, np.random.default_rng(0))  # are there sentinels enough?
        return [{"input_ids": block} for block in blocks]

    def cut(self, records: Records[str], examples: list[Example], model: Model) -> int:
        """What does not fit into an input stands in the next one."""
        return 0

    def change(self, args: argparse.Namespace, model: Model) -> Change:
        def hide(batch: Batch, rng: np.random.Generator) -> Batch:
            rows = zip(batch["input_ids"], batch["attention_mask"], strict=True)
            blocks = [ids[seen == 1] for ids, seen in rows]
            return collate_examples(corrupted(blocks, model, rng), pad_id(model.model))

        return hide

    def check_asked(self, args: argparse.Namespace, model: Model) -> None:
        """Whether the model that comes of it could answer."""
        if args.input is not None:
            known = [wording for name in generated(args) for wording in TASKS[name].wordings]
            encode_input(args.input, "--input", model, known)

    def score(self, records: Records[str], model: Model) -> Score:
        """The loss of what is hidden, drawn the same way each time."""
        blocks = [example["input_ids"] for example in self.examples(records, model)]
        loss = mean_loss(model.model, corrupted(blocks, model, np.random.default_rng(0)))
        return Score(f"loss {loss:.3f}", {"span_loss": loss})


def corrupted(blocks: Sequence[Ids], model: Model, rng: np.random.Generator) -> list[Example]:
    """Blocks of ids -> examples with spans hidden; InputError: too few sentinels."""
    sentinels, end = model.tokenizer.sentinels, model.tokenizer.eos_id
    pairs = (span_corruption(block, sentinels, end, rng) for block in blocks)
    return [{"input_ids": inputs, "labels": labels} for inputs, labels in pairs]


# -- tasks as text ---------------------------------------------------------------------------------


class TextTasks(Task[TextPair]):
    """Texts and what is to be written of them, of several tasks at once."""

    heads = (HEAD,)
    families = (T5,)
    lowercase = False

    def read(self, path: str, args: argparse.Namespace, model: Any = None) -> Records[TextPair]:
        return read_text_pairs(path, skip=bool(args.skip_bad))

    def embedded(self) -> tuple[Records[TextPair], dict[str, Records[TextPair]]]:
        return text_tasks.records()

    def reading(
        self, records: Records[TextPair], family: Family, args: argparse.Namespace
    ) -> dict[str, Any]:
        """The tasks that the model will know, in its config.json."""
        known = {name: {"templates": [*TASKS[name].wordings]} for name in generated(args)}
        return {"task_specific_params": known or None}

    def lines(self, records: Records[TextPair]) -> list[str]:
        return [SENTINEL.sub(" ", text) for pair in records for text in pair[:2]]

    def examples(self, records: Records[TextPair], model: Model) -> list[Example]:
        """Both sides end in one end token, also where they are cut; <extra_id_0> is a sentinel."""

        def ids(text: str) -> list[int]:
            return model.tokenizer.encode(
                text, special_tokens=True, max_length=model.max_length
            ).ids

        return [{"input_ids": ids(pair.source), "labels": ids(pair.target)} for pair in records]

    def cut(self, records: Records[TextPair], examples: list[Example], model: Model) -> int:
        """Of a target, too, the end may be left out."""
        return sum(max(map(len, example.values())) >= model.max_length for example in examples)

    def score(self, records: Records[TextPair], model: Model) -> Score:
        """By task, each with the scores of its own."""
        examples = self.examples(records, model)
        most = max(len(example["labels"]) for example in examples) + MORE
        greedy = {"max_new_tokens": most, "do_sample": False, "num_beams": 1}
        made = written([example["input_ids"] for example in examples], model, greedy)
        scores = score_tasks(records, made)
        cut = self.cut(records, examples, model)
        guesses = [pair.guess for pair in records]
        trivial = score_tasks(records, guesses) if all(guesses) else {}
        parts = [told(task, found, trivial.get(task, {})) for task, found in scores.items()]
        if cut:
            parts.append(f"of {cut} of {len(records)} texts the end was left out")
        lines = "".join(f"\n    {part}" for part in parts)
        return Score(lines if len(parts) > 1 else parts[0], first_scores(scores))

    def check_asked(self, args: argparse.Namespace, model: Model) -> None:
        if args.input is not None:
            encode_input(args.input, "--input", model, known_wordings(model.model.config))


def generated(args: argparse.Namespace) -> list[str]:
    """The tasks of the mixture, if it is learnt; what is in a file nobody can tell."""
    return learnt() if args.train in (None, GENERATED) else []


def score_tasks(pairs: Sequence[TextPair], made: Sequence[str]) -> dict[str, Scores]:
    """The scores by task of what was written for each pair."""
    tasks = defaultdict[str, list[tuple[str, str]]](list)
    for pair, text in zip(pairs, made, strict=True):
        tasks[pair.task].append((beside_sentinels(pair.target), beside_sentinels(text)))
    scores = {task: TASKS[task].score if task in TASKS else score_texts for task in tasks}
    return {task: scores[task](*zip(*some, strict=True)) for task, some in tasks.items()}


def beside_sentinels(text: str) -> str:
    """The text without the spaces around its sentinels, which tokens do not keep."""
    return SENTINEL.sub(lambda found: found[0].strip(), text)


def first_scores(scores: dict[str, Scores]) -> Scores:
    """Of each task the score that counts most, under the names of both."""
    firsts = ((task, *next(iter(some.items()))) for task, some in scores.items())
    return {f"{task} {name}".strip(): value for task, name, value in firsts}


def guessed(pairs: Sequence[TextPair]) -> Scores:
    """`first_scores` of guesses."""
    return first_scores(score_tasks(pairs, [pair.guess for pair in pairs]))


def told(task: str, scores: Scores, trivial: Scores) -> str:
    """The scores, and in brackets those of guesses, where there are any."""
    parts = []
    for name, value in scores.items():
        beside = f" ({trivial[name]:.3g})" if name in trivial else ""
        parts.append(f"{name} {value:.3g}{beside}")
    return f"{task}: {', '.join(parts)}" if task else ", ".join(parts)


# -- what a model writes ---------------------------------------------------------------------------


def written(sources: Sequence[Ids], model: Model, options: dict[str, Any]) -> list[str]:
    """What the model writes of each source, under the options of `generate`; with options for
    several texts, several of each, in order."""
    examples: list[Example] = [{"input_ids": ids} for ids in sources]
    found: list[list[str]] = [[] for _ in sources]
    filling = pad_id(model.model)
    for rows, batch in example_batches(examples, max_tokens=BATCH_TOKENS, pad_id=filling):
        made = host(model.model.generate(batch["input_ids"], batch["attention_mask"], **options))
        for i, row in zip(np.repeat(rows, len(made) // len(rows)), made.tolist(), strict=True):
            found[i].append(plain_text(row, model))
    return [text for texts in found for text in texts]


def plain_text(ids: Ids, model: Model) -> str:
    """With sentinels, but without what begins, ends and pads a text."""
    tokenizer = model.tokenizer
    shown = {*range(len(tokenizer))} - {*tokenizer.special_ids} | {*tokenizer.sentinels}
    return tokenizer.decode([i for i in ids if i in shown], special_tokens=True)


def encode_input(text: str, where: str, model: Model, known: Sequence[str]) -> Ids:
    """The ids of an input, in which <extra_id_0> and its like are sentinels.

    known: the wordings that will do; none: anything will.
    InputError, naming the input by `where`: it is blank, too long, or in none of these wordings.
    """
    if not text.strip():
        raise InputError(f"{where}: no text; write a task")
    if known and not any(fits(wording, text) for wording in known):
        raise InputError(
            f"{where}: this is put as no task that the model has learnt; those are: "
            f"{', '.join(map(with_dots, known))}"
        )
    ids = model.tokenizer.encode(text, special_tokens=True).ids
    if len(ids) > model.max_length:
        raise InputError(
            f"{where}: {len(ids)} tokens are over --max-length {model.max_length}; cut the text"
        )
    return ids


def known_wordings(config: Any) -> list[str]:
    """The templates of the tasks that a model has been trained on here; of others none."""
    tasks = (config.task_specific_params or {}).values()
    known = (task.get("templates") for task in tasks if isinstance(task, dict))
    return [str(w) for wordings in known if isinstance(wordings, list) for w in wordings]
