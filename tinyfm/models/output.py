"""What a model's call returns."""

from __future__ import annotations

from typing import Any

from tinyfm.autograd import Tensor, no_grad


class ModelOutput:
    """Named results, as in Hugging Face's documentation: output.loss, output.logits and so on.

    loss: a 0-d Tensor, the mean over the labelled positions; None without labels.
    num_labels: how many those were; means over batches are weighted with it.  A loss of several
        parts, such as hidden words and pairs, has one number, and its other parts follow that.
    logits and other fields: a Tensor, or a function that makes it.  With labels the loss did not
        need the logits of all positions: they are computed when they are first asked for, without
        gradients and with the weights of that moment (so ask before the optimizer's step).
    """

    def __init__(
        self, *, loss: Tensor | None = None, num_labels: int | None = None, **fields: Any
    ) -> None:
        self.loss, self.num_labels = loss, num_labels
        self._fields = fields

    def extended(self, loss: tuple[Tensor, int] | None, **fields: Any) -> ModelOutput:
        """These fields and more; loss: with the number of labels that it is the mean of."""
        mean, count = loss or (None, None)
        return ModelOutput(loss=mean, num_labels=count, **self._fields, **fields)

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("_fields", {})
        if name not in fields:
            raise AttributeError(f"the output has {', '.join(fields)}, and no {name!r}")
        if callable(fields[name]):
            with no_grad():
                fields[name] = fields[name]()
        return fields[name]
