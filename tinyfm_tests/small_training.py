"""A small training for the tests of checkpoints, with everything on that could go astray."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

import tinyfm
from tinyfm import checkpoints, models, optim, training
from tinyfm.backend import generator
from tinyfm.data import Batches, collate

ROOT = Path(__file__).parent.parent
KINDS = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "Adam": lambda p: optim.Adam(p, lr=0.01),
    "AdamW": lambda p: optim.AdamW(p, lr=0.01, weight_decay=0.1, decay=lambda q: q.ndim > 1),
}


def pairs(count=40, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 7, (count, 2))
    return [tuple(rng.integers(3, 12, n).tolist() for n in size) for size in sizes]


class Training:
    """Dropout, accumulation, clipping, warmup, decay, a frozen matrix, shuffled batches."""

    def __init__(self, kind="AdamW", seed=0, dtype=np.float32, width=16, count=40, max_tokens=60):
        tinyfm.manual_seed(seed)
        sides = {}
        for side in ("encoder", "decoder"):
            sides |= {f"{side}_layers": 1, f"{side}_attention_heads": 2, f"{side}_ffn_dim": 16}
        rates = {"dropout": 0.2, "attention_dropout": 0.2, "activation_dropout": 0.2}
        config = models.TransformerConfig(vocab_size=12, d_model=width, **sides, **rates)
        self.model = models.Transformer(config).to(dtype=dtype)
        self.model.decoder.layers[0].feed_forward.up.weight.requires_grad = False
        self.optimizer = KINDS[kind](self.model.parameters())
        options = {"max_tokens": max_tokens, "pad_id": 0, "eos_id": 2}
        self.batches = Batches(pairs(count), **options, seed=seed)
        self.dev = collate(pairs(5, seed=1), 0, 2)
        self.schedule = optim.linear(warmup=4, total=100)
        self.history = None

    def look(self, model):
        """An evaluation that draws from the generator and starts it anew."""
        generator().random(3)
        tinyfm.manual_seed(5)
        return {"dev": np.float32(training.mean_loss(model, [self.dev]))}

    def fit(self, steps, folder=None, **options):
        options = {"accumulate": 2, "clip": 0.5, "evaluate": self.look, **options}
        options = {"evaluate_every": 3, "save_every": 4, "progress": False, **options}
        self.history = training.fit(
            self.model,
            self.batches,
            self.optimizer,
            options.pop("schedule", self.schedule),
            steps,
            folder=folder,
            **options,
        )
        return self.outcome()

    def outcome(self):
        """All that a training leaves behind, byte for byte, and where the next step would start."""
        moments = self.optimizer.state_dict()
        arrays = {**self.model.state_dict()}
        for i, entry in enumerate(moments["state"]):
            arrays |= {f"{i}.{name}": np.asarray(value) for name, value in entry.items()}
        return {
            "arrays": {n: (a.shape, str(a.dtype), a.tobytes().hex()) for n, a in arrays.items()},
            "history": self.history,
            "generator": generator().bit_generator.state,
            "batches": self.batches.state_dict(),
        }


def go_on(steps, folder, **options):
    """A new Training, made with another seed, that goes on in the folder."""
    there = checkpoints.exists(folder)
    return Training(seed=99 if there else 0).fit(steps, folder, resume=there, **options)


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


def files_of(*steps):
    """The files of a checkpoint that keeps the weights of these steps."""
    weights = [f"weights-{step:06}.safetensors" for step in steps]
    return ["checkpoint.json", f"optimizer-{steps[-1]:06}.safetensors", *weights]


def as_json(outcome):
    return json.loads(json.dumps(outcome))


def snapshot(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class New:
    """A process with this file's names that runs `code`."""

    def __init__(self, code):
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"from tinyfm_tests.small_training import *\n{code}"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def end(self):
        """(exit status, standard output, standard error)."""
        try:
            out, err = self.process.communicate(timeout=120)
        finally:
            self.process.kill()
        return self.process.returncode, out, err
