"""What a model's call returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinyfm.autograd import Tensor, no_grad


class ModelOutput:
    """Named results, as in Hugging Face's documentation: output.loss, output.logits and so on.

    loss: a 0-d Tensor, the mean over the labelled positions; None without labels.
    num_labels: how many those were; sums over batches are weighted with it.
    logits: a Tensor.  With labels the loss did not need them, and they are computed when they are
        asked for, without gradients.
    """

    def __init__(
        self,
        *,
        logits: Tensor | Callable[[], Tensor] | None = None,
        loss: Tensor | None = None,
        num_labels: int | None = None,
        **fields: Any,
    ) -> None:
        self.loss, self.num_labels = loss, num_labels
        self._logits = logits
        vars(self).update(fields)

    @property
    def logits(self) -> Tensor | None:
        if callable(self._logits):
            with no_grad():
                self._logits = self._logits()
        return self._logits
