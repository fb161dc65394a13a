"""Text out of a model: `model.generate()`, over a small protocol that every generating model has.

state = model.begin(input_ids, attention_mask, rows, max_length)
    the encoder, if there is one, runs once, caches are taken; rows (R,): the input row of each
    running sequence
logits = model.step(ids, state)
    ids (R, n) -> logits (R, V) of the last position, a plain array; the first step gets the
    whole decoder prompt, the later ones one new token a row
state.reorder(rows)
    go on with these rows of the running sequences (beam search)

options.py has the options, processors.py what changes scores, searches.py how tokens are chosen,
streaming.py prints them as they come, and mixin.py puts a model under all of it.
"""

from tinyfm.generation.mixin import DEFAULT_NEW_TOKENS, GenerationMixin, Streamer
from tinyfm.generation.options import GenerationConfig, foreign_options
from tinyfm.generation.processors import (
    Processor,
    never,
    no_end_before,
    no_ngram_twice,
    only,
    processors,
    repeated_less,
)
from tinyfm.generation.searches import (
    GenerationOutput,
    NoTokenLeft,
    beam_search,
    largest,
    most_probable,
    probabilities,
    sampled,
    search_by_token,
)
from tinyfm.generation.streaming import TextStreamer, continued

__all__ = [
    "DEFAULT_NEW_TOKENS",
    "GenerationConfig",
    "GenerationMixin",
    "GenerationOutput",
    "NoTokenLeft",
    "Processor",
    "Streamer",
    "TextStreamer",
    "beam_search",
    "continued",
    "foreign_options",
    "largest",
    "most_probable",
    "never",
    "no_end_before",
    "no_ngram_twice",
    "only",
    "probabilities",
    "processors",
    "repeated_less",
    "sampled",
    "search_by_token",
]
