"""The founding models, one file each, put together from the blocks of `tinyfm.nn`."""

from typing import Any

from tinyfm.models.output import ModelOutput
from tinyfm.models.transformer import Transformer, TransformerConfig
from tinyfm.nn import without_memory
from tinyfm.pretrained import class_of

__all__ = ["ModelOutput", "Transformer", "TransformerConfig", "num_parameters"]


def num_parameters(config: Any, cls: type | None = None) -> int:
    """How many parameters a model has, shared ones once; counted without allocating the weights.

    cls: the model's class; without it the first one for such a config.
    """
    with without_memory():
        return sum(p.size for p in (cls or class_of(config))(config).parameters())
