"""A translator: a Transformer with its tokenizer, texts in and texts out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tinyfm import models, pretrained
from tinyfm.backend import to_numpy
from tinyfm.data import evaluation_batches
from tinyfm.demos.modelling import check_family
from tinyfm.errors import InputError
from tinyfm.tokenizer import Tokenizer

FAMILIES = (models.TransformerConfig.model_type, models.MarianConfig.model_type)
BATCH_TOKENS = 4000  # of source and target together, in one batch of translations
MORE = 50  # subwords, by which a translation may be longer than any that was learnt


class AttentionMaps(NamedTuple):
    """Who looks at whom: for each layer an array (heads, queries, keys), and their tokens."""

    source: list[str]  # with the end token: queries and keys of the encoder, keys of cross
    target: list[str]  # with the start token: queries and keys of the decoder, queries of cross
    encoder: list[np.ndarray]
    decoder: list[np.ndarray]
    cross: list[np.ndarray]


class Translator:
    """Translates texts, and shows its attention while it does."""

    def __init__(self, model: models.Transformer, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer

    @classmethod
    def load(cls, folder: str | Path, device: str) -> Translator:
        """The translator that `save` has written; InputError names what does not fit."""
        path = pretrained.resolve(Path(folder))  # as text it may name one of the hub's
        check_family(path, pretrained.read_config(path), FAMILIES)
        model = pretrained.load(path)
        if not isinstance(model, models.Transformer):
            raise InputError(f"{folder}: holds a {type(model).__name__}, which does not translate")
        for name, array in model.state_dict().items():
            if not np.isfinite(array).all():  # save_pretrained writes such weights when forced
                raise InputError(f"{folder}: the weight {name} is not finite; train the model anew")
        tokenizer = Tokenizer.load(folder)
        if None in (tokenizer.pad_id, tokenizer.eos_id):
            raise InputError(f"{folder}: the tokenizer has no token for padding or for the end")
        if len(tokenizer) != model.config.vocab_size:
            raise InputError(
                f"{folder}: the tokenizer has {len(tokenizer)} subwords and the model "
                f"{model.config.vocab_size}; they do not belong together"
            )
        model.generation_config = {
            "max_length": model.config.max_position_embeddings,  # unless the folder has its own
            **(model.generation_config or {}),
        }
        return cls(model.to(device), tokenizer)

    def expect(self, targets: Iterable[Sequence[int]]) -> None:
        """Note how long translations may be: as the longest target's ids, and MORE.

        Without a bound, one that never comes to its end would go on for ever.
        """
        longest = max(map(len, targets)) + 2  # the start and the end token
        self.model.generation_config = {"max_length": longest + MORE}

    def save(self, folder: str | Path) -> None:
        self.model.save_pretrained(folder)
        self.tokenizer.save(folder)

    def encode(self, texts: Sequence[str], where: Sequence[str] | None = None) -> list[list[int]]:
        """The ids of the texts; a text that is too long for the model is an InputError.

        where: how the error names each text, a file and line for example; else by its number.
        """
        sources = self.tokenizer.encode_batch(texts)
        limit = self.model.config.max_position_embeddings - 1  # the end token needs a place too
        for i, ids in enumerate(sources):
            if len(ids) > limit:
                name = where[i] if where is not None else f"text {i + 1}"
                raise InputError(
                    f"{name}: {len(ids)} subwords, and the model takes {limit}; cut the text into "
                    "sentences"
                )
        return sources

    def __call__(
        self,
        texts: Sequence[str],
        num_beams: int = 1,
        length_penalty: float = 1.0,
        where: Sequence[str] | None = None,
        max_tokens: int = BATCH_TOKENS,
    ) -> list[str]:
        """The translation of each text, greedy or by beam search; a blank text gives a blank one.

        max_tokens bounds the memory of a batch, beams included.
        """
        search: dict[str, Any] = {"length_penalty": length_penalty} if num_beams > 1 else {}
        sources = self.encode(texts, where)
        results = [""] * len(texts)
        full = [i for i, ids in enumerate(sources) if ids]
        pairs: list[tuple[list[int], list[int]]] = [(sources[i], []) for i in full]
        for indexes, batch in evaluation_batches(
            pairs,
            max_tokens=max(1, max_tokens // num_beams),
            pad_id=self.tokenizer.pad_id,
            eos_id=self.tokenizer.eos_id,
        ):
            made: Any = self.model.generate(
                batch["input_ids"],
                batch["attention_mask"],
                num_beams=num_beams,
                **search,
            )
            for i, ids in zip(indexes, made, strict=True):
                results[full[i]] = self.tokenizer.decode(ids.tolist())
        return results

    def attention(self, text: str, translation: str) -> AttentionMaps:
        """The attention probabilities while `translation` is read off `text`."""
        config = self.model.config
        source = [*self.encode([text])[0], config.eos_token_id]
        target = [config.decoder_start_token_id, *self.tokenizer.encode_batch([translation])[0]]
        with self.model.evaluating():
            output = self.model(
                np.array([source]), decoder_input_ids=np.array([target]), output_attentions=True
            )
        tokens = ([str(self.tokenizer.id_to_token(i)) for i in ids] for ids in (source, target))
        kinds = (output.encoder_attentions, output.decoder_attentions, output.cross_attentions)
        maps = ([to_numpy(layer)[0] for layer in layers] for layers in kinds)
        return AttentionMaps(*tokens, *maps)  # type: ignore[arg-type]
