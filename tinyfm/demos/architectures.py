"""Three architectures on one task, as in the T5 paper (Raffel et al. 2020, section 3.2, table 2).

                     layers     sees                                      parameters   a step costs
encoder-decoder      L + L      the source both ways                      2 P          M
  shared             L + L      the same, one stack for both              P            M
  half as deep       L/2 + L/2  the same                                  P            M/2
language model       L          what is to the left                       P            M
prefix LM            L          the source both ways, then to the left    P            M

A language model reads source and target as one sequence; the loss is on the target in all of them.
L + L layers cost what L do, since each token passes one of the stacks only.  (What P and M leave
out: cross-attention, and that attention looks over a longer sequence.)

The task here is small: in a few minutes all five come near each other, and what differs is how soon
they learn.  The order is not the paper's, whose models had far more to learn.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tinyfm
from tinyfm import masks, models, optim, plot, training
from tinyfm.data import IGNORE_INDEX, Batch, Batches, evaluation_batches
from tinyfm.demos import cli, korean_english
from tinyfm.demos.learning import Option, Say, Training, fit
from tinyfm.errors import InputError
from tinyfm.metrics import corpus_bleu
from tinyfm.models.flops import training_flops
from tinyfm.tokenizer import Tokenizer

TRAINING = Training(
    kinds=("",),
    options={
        "steps": Option(cli.positive_int, (500,), "optimizer steps of each architecture"),
        "vocab_size": Option(
            cli.positive_int, (1500,), "subwords to learn, for both languages together"
        ),
        "d_model": Option(cli.positive_int, (128,), "width of the models"),
        "layers": Option(cli.positive_int, (2,), "L of the table, an even number"),
        "heads": Option(cli.positive_int, (4,), "attention heads"),
        "ffn": Option(cli.positive_int, (512,), "width of the feed-forward networks"),
        "max_tokens": Option(cli.positive_int, (1500,), "tokens in a batch, padding included"),
        "warmup": Option(cli.positive_int, (100,), "steps until the learning rate is at its peak"),
        "lr": Option(cli.positive_float, (3e-3,), "peak learning rate"),
        "dropout": Option(cli.probability, (0.0,), "share of the activations left out"),
    },
    schedules=("linear",),
    remembered={},
)
BATCH_TOKENS = 4000  # where nothing is learnt
Pairs = list[tuple[list[int], list[int]]]


class Task(NamedTuple):
    """What is to be learnt: Korean to English, as ids.

    longest: positions that the longest sentence takes, with a start and an end token.
    tests: by name, pairs of ids, and their English as text.
    """

    tokenizer: Tokenizer
    longest: int
    train: Pairs
    tests: dict[str, tuple[Pairs, list[str]]]


class Architecture(NamedTuple):
    """A row of the table.

    build: makes the model of so many layers; arrange: a batch of data.collate -> the model's input.
    part: of the L layers one such part is used.
    """

    name: str
    build: Callable[[argparse.Namespace, Task, int], Any]
    arrange: Callable[[Batch], dict[str, Any]]
    part: int = 1

    def layers(self, whole: int) -> str:
        """As the table writes it, where L is `whole`."""
        own = str(whole // self.part)
        return f"{own} + {own}" if self.arrange is apart else own


class Result(NamedTuple):
    """flops: of a training step, on average.

    loss, bleu, exact: on held-out sentences; new_bleu: where words are combined anew.
    history: the records of the training, with validation_loss where it was looked at.
    """

    parameters: int
    flops: float
    loss: float
    bleu: float
    exact: float
    new_bleu: float
    history: list[dict[str, float]]


# -- the models ------------------------------------------------------------------------------------


def two_stacks(args: argparse.Namespace, task: Task, layers: int) -> models.Transformer:
    """An encoder and a decoder; what is no size is as in `one_stack`."""
    sides: dict[str, Any] = {}
    for side in ("encoder", "decoder"):
        sides[f"{side}_layers"] = layers
        sides[f"{side}_attention_heads"] = args.heads
        sides[f"{side}_ffn_dim"] = args.ffn
    return models.Transformer(
        models.TransformerConfig(
            vocab_size=len(task.tokenizer),
            d_model=args.d_model,
            activation_function="gelu_new",
            dropout=args.dropout,
            label_smoothing=0.0,
            max_position_embeddings=task.longest,
            positions="learned",
            scale_embedding=False,
            norm_first=True,
            init_std=init_std(args),
            pad_token_id=task.tokenizer.pad_id,
            bos_token_id=task.tokenizer.bos_id,
            eos_token_id=task.tokenizer.eos_id,
            decoder_start_token_id=task.tokenizer.bos_id,
            **sides,
        )
    )


def shared_stacks(args: argparse.Namespace, task: Task, layers: int) -> models.Transformer:
    """One stack in both places; the decoder has its cross-attention besides."""
    model = two_stacks(args, task, layers)
    for own, other in zip(model.decoder.layers, model.encoder.layers, strict=True):
        for name in ("attention", "attention_norm", "feed_forward", "feed_forward_norm"):
            setattr(own, name, getattr(other, name))
    model.decoder.norm = model.encoder.norm
    return model


def one_stack(args: argparse.Namespace, task: Task, layers: int) -> models.GPT2LMHeadModel:
    """A decoder, for source and target in a row."""
    return models.GPT2LMHeadModel(
        models.GPT2Config(
            vocab_size=len(task.tokenizer),
            n_positions=2 * task.longest,
            n_embd=args.d_model,
            n_layer=layers,
            n_head=args.heads,
            n_inner=args.ffn,
            resid_pdrop=args.dropout,
            embd_pdrop=args.dropout,
            attn_pdrop=0.0,
            initializer_range=init_std(args),
            bos_token_id=task.tokenizer.bos_id,
            eos_token_id=task.tokenizer.eos_id,
            pad_token_id=task.tokenizer.pad_id,
        )
    )


def init_std(args: argparse.Namespace) -> float:
    """GPT-2's 0.02 belongs to its width of 768."""
    return 0.02 * (768 / args.d_model) ** 0.5


# -- their input -----------------------------------------------------------------------------------


def apart(batch: Batch) -> dict[str, Any]:
    """Source and target for an encoder and a decoder: as they are."""
    return dict(batch)


def in_a_row(batch: Batch) -> dict[str, Any]:
    """Sources (B, S) and targets (B, T) as one sequence (B, S + T), with labels on the target.

    The source's end token parts them.  Its padding moves to the left, so that the target begins in
    the same column everywhere and right behind the source.
    """
    real, labels = batch["attention_mask"], batch["labels"]
    order = np.argsort(real, axis=1, kind="stable")  # padding first, and all else as it was
    source, real = (np.take_along_axis(x, order, 1) for x in (batch["input_ids"], real))
    said = labels != IGNORE_INDEX
    return {
        "input_ids": np.append(source, np.where(said, labels, 0), 1),
        "attention_mask": np.append(real, said, 1),
        "labels": np.append(np.full_like(source, IGNORE_INDEX), labels, 1),
    }


def with_prefix(batch: Batch) -> dict[str, Any]:
    """The same, where the tokens of the source see each other."""
    inputs, columns = in_a_row(batch), batch["input_ids"].shape[1]
    mask = masks.padding(inputs["attention_mask"]) & masks.prefix(columns)
    return inputs | {"attention_mask": mask}


ARCHITECTURES = (
    Architecture("encoder-decoder", two_stacks, apart),
    Architecture("  shared", shared_stacks, apart),
    Architecture("  half as deep", two_stacks, apart, part=2),
    Architecture("language model", one_stack, in_a_row),
    Architecture("prefix LM", one_stack, with_prefix),
)


# -- the comparison --------------------------------------------------------------------------------


def compare(args: argparse.Namespace, say: Say) -> dict[str, Result]:
    """Train all architectures on the same batches, score them, and say the table."""
    check(args)
    task = new_task(args)
    say(
        f"{len(task.train)} pairs, {len(task.tokenizer)} subwords, {args.steps} steps of at most "
        f"{args.max_tokens} tokens; L = {args.layers}"
    )
    results = {}
    for architecture in ARCHITECTURES:
        results[architecture.name] = run(architecture, args, task, say)
    for line in table(results, args.layers):
        say(line)
    return results


def check(args: argparse.Namespace) -> None:
    """Sizes that do not go together."""
    if args.d_model % args.heads:
        raise InputError(f"--d-model {args.d_model} is not a multiple of --heads {args.heads}")
    if args.layers % 2:
        raise InputError(f"--layers {args.layers}: one has half of them; give an even number")


def new_task(args: argparse.Namespace) -> Task:
    """The embedded sentences and a vocabulary learnt from them."""
    parts = korean_english.split()
    tokenizer = Tokenizer.train([text for pair in parts.train for text in pair], args.vocab_size)

    def encoded(pairs: Sequence[tuple[str, str]]) -> Pairs:
        sides = (tokenizer.encode_batch(texts) for texts in zip(*pairs, strict=True))
        return list(zip(*sides, strict=True))

    train = encoded(parts.train)
    tests = {
        name: (encoded(pairs), [english for _, english in pairs])
        for name, pairs in (("held out", parts.random), ("new combinations", parts.compositional))
    }
    everything = [*train, *(pair for pairs, _ in tests.values() for pair in pairs)]
    longest = 2 + max(len(ids) for pair in everything for ids in pair)
    if args.max_tokens < 2 * longest:
        raise InputError(
            f"--max-tokens {args.max_tokens}: a batch must hold the longest pair; give "
            f"{2 * longest} or more"
        )
    return Task(tokenizer, longest, train, tests)


def run(architecture: Architecture, args: argparse.Namespace, task: Task, say: Say) -> Result:
    """Train and score one architecture."""
    tinyfm.manual_seed(args.seed)
    try:
        model = architecture.build(args, task, args.layers // architecture.part)
    except MemoryError as error:
        raise InputError(
            f"--d-model {args.d_model}, --ffn {args.ffn}, --layers {args.layers}: the model does "
            "not fit into the memory; make it smaller"
        ) from error
    size = sum(p.size for p in model.parameters())
    name, layers = architecture.name.strip(), architecture.layers(args.layers)
    say(f"{name}: {layers} layers, {size:,} parameters")

    def batches() -> Iterator[dict[str, Any]]:
        ids = {"pad_id": task.tokenizer.pad_id, "eos_id": task.tokenizer.eos_id}
        stream = Batches(task.train, max_tokens=args.max_tokens, seed=args.seed, **ids)
        return map(architecture.arrange, stream)

    held_out, english = task.tests["held out"]
    looked_at = [architecture.arrange(batch) for _, batch in each_once(held_out, task)]

    def look(model: Any) -> dict[str, float]:
        loss = training.mean_loss(model, looked_at)
        say(f"  loss on held-out sentences {loss:.3f}")
        return {"validation_loss": loss}

    optimizer = optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    history = fit(model, batches(), optimizer, look, None, args, say)
    made = translations(architecture, model, held_out, task)
    new_pairs, new_english = task.tests["new combinations"]
    new_made = translations(architecture, model, new_pairs, task)
    steps = islice(batches(), args.steps)
    return Result(
        parameters=size,
        flops=sum(training_flops(model, batch) for batch in steps) / args.steps,
        loss=history[-1]["validation_loss"],
        bleu=corpus_bleu(made, english).score,
        exact=sum(map(str.__eq__, made, english)) / len(english),
        new_bleu=corpus_bleu(new_made, new_english).score,
        history=history,
    )


def each_once(pairs: Pairs, task: Task) -> Iterator[tuple[np.ndarray, Batch]]:
    """(indexes, batch) once over the pairs."""
    ids = {"pad_id": task.tokenizer.pad_id, "eos_id": task.tokenizer.eos_id}
    return evaluation_batches(pairs, max_tokens=BATCH_TOKENS, **ids)


def translations(architecture: Architecture, model: Any, pairs: Pairs, task: Task) -> list[str]:
    """What the model makes of the sources, by the most probable token at each step."""
    texts = [""] * len(pairs)
    for indexes, batch in each_once([(source, []) for source, _ in pairs], task):
        inputs = architecture.arrange(batch | {"labels": batch["labels"][:, :0]})
        prompt = inputs["input_ids"]
        made = model.generate(prompt, inputs["attention_mask"], max_new_tokens=task.longest - 1)
        begin = 1 if model.is_encoder_decoder else prompt.shape[1]
        for i, ids in zip(indexes, made[:, begin:].tolist(), strict=True):
            texts[i] = task.tokenizer.decode(ids)
    return texts


def table(results: dict[str, Result], layers: int) -> list[str]:
    """The lines of the table; P and M are those of the language model."""
    base = results["language model"]
    lines = [
        f"{'':15}  {'layers':6}  {'parameters':>17}  {'GFLOP a step':>13}  {'loss':>5}  {'BLEU':>5}"
        f"  {'exact':>6}  {'BLEU, new combinations':>22}"
    ]
    for architecture in ARCHITECTURES:
        result = results[architecture.name]
        size, cost = result.parameters / base.parameters, result.flops / base.flops
        lines.append(
            f"{architecture.name:15}  {architecture.layers(layers):6}  {result.parameters:9,} "
            f"({size:.2f} P)  {result.flops / 1e9:5.2f} ({cost:.2f} M)  {result.loss:5.3f}  "
            f"{result.bleu:5.2f}  {result.exact:6.1%}  {result.new_bleu:22.2f}"
        )
    return lines


def draw(results: dict[str, Result], path: Path) -> Any:
    """A figure of the held-out losses over the operations that were spent on them."""
    return plot.lines(
        {
            name.strip(): [
                (record["step"] * result.flops / 1e12, record["validation_loss"])
                for record in result.history
                if "validation_loss" in record
            ]
            for name, result in results.items()
        },
        path,
        x="TFLOP of training",
        y="loss on held-out sentences",
        yscale="log",
    )
