"""One step of BERT's masked language modelling: forward, backward, AdamW; beside transformers.

    python -m bench.masked_lm [--shape base|small] [--rounds 7] [--no-save]

8 texts of 128 tokens, some with padding, of which 15% are labelled, with dropout 0.1.  First both
sides, from the same weights and without dropout, must give the same loss and the same norm of the
gradient.  The torch side is transformers' BertForMaskedLM with scaled_dot_product_attention and
fused AdamW.  It puts its head on all rows and tinyfm on the labelled ones alone, so two more rows
show both sides alike: with the head on labelled rows, and with the head on all.  A last row has the
limit: the matrix products of tinyfm's step alone, of which NumPy does none faster.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import tinyfm
from bench import THREADS, common, products
from tinyfm import models, objectives, ops, optim
from tinyfm.demos.cli import positive_int


class Shape(NamedTuple):
    config: models.BertConfig
    batch: int
    length: int

    def __str__(self) -> str:
        config = self.config
        return (
            f"d {config.hidden_size}, {config.num_hidden_layers} layers, V {config.vocab_size}, "
            f"{self.batch} x {self.length} tokens"
        )


SMALL = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}
SHAPES = {
    "base": Shape(models.BertConfig.base(), 8, 128),
    "small": Shape(models.BertConfig(vocab_size=1000, num_hidden_layers=2, **SMALL), 4, 32),
}
GOAL = 0.8
CLS, SEP, MASK, ORDINARY = 1, 2, 3, 4  # ids from ORDINARY on are words
ADAMW: dict[str, Any] = {"lr": 1e-4, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.01}


class Head(NamedTuple):
    """Whether all rows enter the head of each side, or the labelled ones alone."""

    name: str
    ours_whole: bool
    theirs_whole: bool


HEADS = (
    Head("each as it is: labelled rows, all rows", False, True),
    Head("head on labelled rows", False, False),
    Head("head on all rows", True, True),
)


def batch_of(shape: Shape) -> dict[str, np.ndarray]:
    """[CLS] random words [SEP]; row i ends i % 8 positions early; 15% of the words are hidden."""
    rng = np.random.default_rng(0)
    vocab, ends = shape.config.vocab_size, shape.length - 1 - np.arange(shape.batch) % 8
    ids = rng.integers(ORDINARY, vocab, (shape.batch, shape.length))
    places = np.arange(shape.length)
    ids[:, 0] = CLS
    ids[np.arange(shape.batch), ends] = SEP
    ids[places > ends[:, None]] = shape.config.pad_token_id
    hidden, labels = objectives.mask_tokens(ids, ids < ORDINARY, MASK, vocab, rng)
    seen = (places <= ends[:, None]).astype(np.int64)
    return {"input_ids": hidden, "attention_mask": seen, "labels": labels}


def our_loss(model: Any, batch: dict[str, np.ndarray], whole: bool) -> Any:
    if not whole:
        return model(**batch).loss
    inputs = {name: array for name, array in batch.items() if name != "labels"}
    return ops.cross_entropy(model(**inputs).logits, batch["labels"])


def their_loss(torch: Any, model: Any, batch: dict[str, Any], whole: bool) -> Any:
    if whole:
        return model(**batch).loss
    labels = batch["labels"]
    hidden = model.bert(batch["input_ids"], attention_mask=batch["attention_mask"])[0]
    labelled = labels != -100
    return torch.nn.functional.cross_entropy(model.cls(hidden[labelled]), labels[labelled])


def step_of(loss: Callable[[], Any], optimizer: Any) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def their_model(transformers: Any, model: Any) -> Any:
    """transformers' model out of the folder that tinyfm writes."""
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return transformers.BertForMaskedLM.from_pretrained(folder, attn_implementation="sdpa")


def assert_same_work(*sides: tuple[Any, Callable[[], Any]]) -> None:
    """Loss and norm of the gradient, without dropout, of two models and the losses they are for."""
    values: list[list[np.float32]] = []
    for model, loss in sides:
        model.eval()
        value = loss()
        value.backward()
        norm = math.sqrt(sum(float((p.grad**2).sum()) for p in model.parameters()))
        values.append([np.float32(value.item()), np.float32(norm)])
        model.train()
    common.assert_same("masked language modelling", *values)


def measure(shape: Shape, head: Head, rounds: int) -> dict[str, Any]:
    torch, transformers = common.peer("torch"), common.peer("transformers")
    tinyfm.manual_seed(0)
    batch, ours = batch_of(shape), models.BertForMaskedLM(shape.config)
    our_loss_now = partial(our_loss, ours, batch, head.ours_whole)
    step, their_step = step_of(our_loss_now, optim.AdamW(ours.parameters(), **ADAMW)), None
    if torch is not None and transformers is not None:
        torch.set_num_threads(THREADS)
        tensors = {name: torch.tensor(array) for name, array in batch.items()}
        theirs = their_model(transformers, ours)
        their_loss_now = partial(their_loss, torch, theirs, tensors, head.theirs_whole)
        assert_same_work((ours, our_loss_now), (theirs, their_loss_now))
        optimizer = torch.optim.AdamW(theirs.parameters(), **ADAMW, fused=True)
        their_step = step_of(their_loss_now, optimizer)
    mine, other = common.alternate(step, their_step, rounds)
    with_goal = not head.ours_whole and head.theirs_whole
    reached = None
    if other is not None and with_goal:
        reached = mine.median[0] <= GOAL * other.median[0]
    return common.row(
        "masked language modelling", f"{shape}; {head.name}", "ms", mine.times(1e3),
        None if other is None else other.times(1e3), peer="transformers",
        goal=f"<= {GOAL} x" if with_goal else "", reached=reached,
    )  # fmt: skip


def limit(shape: Shape, rounds: int) -> dict[str, Any]:
    tinyfm.manual_seed(0)
    batch, model = batch_of(shape), models.BertForMaskedLM(shape.config)
    step = step_of(partial(our_loss, model, batch, False), optim.AdamW(model.parameters(), **ADAMW))
    return products.limit("masked language modelling", str(shape), step, rounds)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="base")
    parser.add_argument("--rounds", type=positive_int, default=7)
    parser.add_argument(
        "--no-save", action="store_true", help="write no result file; nor does --shape small"
    )
    options = parser.parse_args(arguments)
    allocator = common.set_allocator("keep")
    shape = SHAPES[options.shape]
    rows = [measure(shape, head, options.rounds) for head in HEADS]
    rows.append(limit(shape, options.rounds))
    measured = common.facts(allocator=allocator, rounds=options.rounds)
    print(common.table(rows))
    if options.shape == "base" and not options.no_save:
        print("written:", common.write_results("masked_lm", rows, measured))


if __name__ == "__main__":
    common.command(main)
