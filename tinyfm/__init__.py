"""tinyfm: a small autograd over NumPy and CuPy arrays, and the founding language models on it."""

__version__ = "0.1.0"

from tinyfm import (
    cuda,
    generation,
    masks,
    metrics,
    models,
    nn,
    objectives,
    ops,
    optim,
    pretrained,
    training,
)
from tinyfm.autograd import Tensor, no_grad, op, tensor
from tinyfm.backend import manual_seed, settings
from tinyfm.checking import GradientError, gradcheck
from tinyfm.errors import InputError

__all__ = [
    "GradientError",
    "InputError",
    "Tensor",
    "cuda",
    "generation",
    "gradcheck",
    "manual_seed",
    "masks",
    "metrics",
    "models",
    "nn",
    "no_grad",
    "objectives",
    "op",
    "ops",
    "optim",
    "pretrained",
    "settings",
    "tensor",
    "training",
]
