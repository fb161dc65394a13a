"""Where the loss is taken: each objective turns token ids into inputs and labels.

Plain arrays in, plain arrays out; nothing here knows a model.
"""

from tinyfm.objectives.translation import teacher_forcing

__all__ = ["teacher_forcing"]
