"""The families that are fine-tuned: how a model is made or opened, how it reads texts, how it
learns.

BERT sees both sides of every word, and two texts as one input. GPT sees what is to the left, so
that the meaning of a text is read at its end; what its input looks like depends on the task
(Radford et al. 2018, section 3.3 and figure 1):

classification   <start> text <extract>
entailment       <start> first <delimiter> second <extract>
similarity       as that, and the two in the other order; the vectors at <extract> are added
choice           <start> context <delimiter> ending <extract> for each ending, which compete

T5 reads a text that names its task, and writes the answer (templates.py).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from tinyfm import models
from tinyfm.demos import encoders, language
from tinyfm.demos.modelling import check_heads, new_model, vocabulary
from tinyfm.subwords import BPE_SPECIALS, END_OF_TEXT
from tinyfm.tokenizer import Encoding, Tokenizer


class Family:
    """BERT and its kin; others differ from it.

    types: what config.json calls its models; a new one is of the first.
    choice: the end of the name of the class that chooses among endings.
    generative: whether its models predict the next word as well.
    unit: what its vocabulary is said to be of.
    """

    name: ClassVar[str] = "bert"
    types: ClassVar[Sequence[str]] = encoders.FAMILIES
    choice: ClassVar[str] = "ForMultipleChoice"
    generative: ClassVar[bool] = False
    unit: ClassVar[str] = "subwords"
    new_optimizer: Callable[..., Any] = staticmethod(encoders.new_optimizer)

    def new_tokenizer(
        self, args: argparse.Namespace, lines: Iterable[str], lowercase: bool
    ) -> Tokenizer:
        """A vocabulary of the lines; with --resume the one of the training that goes on."""
        return encoders.new_tokenizer(args, lines, lowercase)

    def new_model(
        self, args: argparse.Namespace, tokenizer: Tokenizer, head: str, **config: Any
    ) -> Any:
        """A model of the sizes in args, with random weights; config: more fields."""
        return new_model(
            models.with_head(self.types[0], head), encoders.new_config(args, tokenizer, **config)
        )

    def prepared(self, model: Any, tokenizer: Tokenizer) -> tuple[Any, Tokenizer]:
        """An opened model and its tokenizer as they are to be trained."""
        return model, tokenizer

    def longest(self, model: Any) -> int:
        """How many tokens an input may have, special ones included."""
        return encoders.longest(model)

    def example(self, encoding: Encoding, model: Any) -> dict[str, Any]:
        """An encoded text as the model's input."""
        return dict(encoders.new_example(encoding, model))


class LanguageModels(Family):
    """GPT-2 and GPT-1 as they predict words; a new model is a small GPT-2."""

    name = "gpt"
    types = language.FAMILIES
    generative = True
    unit = "in the vocabulary"
    new_optimizer: Callable[..., Any] = staticmethod(language.new_optimizer)

    def new_tokenizer(
        self, args: argparse.Namespace, lines: Iterable[str], lowercase: bool
    ) -> Tokenizer:
        return language.new_tokenizer(args, lines, args.level)

    def new_model(
        self, args: argparse.Namespace, tokenizer: Tokenizer, head: str, **config: Any
    ) -> Any:
        sizes = argparse.Namespace(**vars(args) | {"context": args.max_length})
        return language.new_model(sizes, tokenizer)

    def prepared(self, model: Any, tokenizer: Tokenizer) -> tuple[Any, Tokenizer]:
        """GPT-1 has no token that ends a text: a new one is learnt."""
        if tokenizer.eos_id is None:
            tokenizer = tokenizer.with_special_tokens({"eos_token": END_OF_TEXT})
        if model.config.eos_token_id is None:
            model.config.eos_token_id = tokenizer.eos_id
        return with_room(model, tokenizer), tokenizer

    def longest(self, model: Any) -> int:
        return model.config.n_positions

    def example(self, encoding: Encoding, model: Any) -> dict[str, Any]:
        return {"input_ids": encoding.ids}


class GPT(LanguageModels):
    """GPT-1 and GPT-2 as they learn tasks; a new model is a small GPT-1."""

    types = language.FAMILIES[::-1]
    choice = "DoubleHeadsModel"
    unit = Family.unit
    new_optimizer: Callable[..., Any] = staticmethod(encoders.new_optimizer)

    def new_tokenizer(
        self, args: argparse.Namespace, lines: Iterable[str], lowercase: bool
    ) -> Tokenizer:
        def learnt() -> Tokenizer:
            return Tokenizer.train(lines, args.vocab_size, lowercase=lowercase).with_input_forms()

        return vocabulary(args, learnt)

    def new_model(
        self, args: argparse.Namespace, tokenizer: Tokenizer, head: str, **config: Any
    ) -> Any:
        check_heads(args)
        names = ("resid_pdrop", "embd_pdrop", "attn_pdrop", "summary_first_dropout")
        sizes = models.OpenAIGPTConfig(
            vocab_size=len(tokenizer),
            n_positions=args.max_length,
            n_embd=args.hidden_size,
            n_layer=args.layers,
            n_head=args.heads,
            initializer_range=0.02 * (768 / args.hidden_size) ** 0.5,
            pad_token_id=tokenizer.pad_id,
            **dict.fromkeys(names, args.dropout),
            **config,
        )
        return new_model(models.with_head(self.types[0], head), sizes)

    def prepared(self, model: Any, tokenizer: Tokenizer) -> tuple[Any, Tokenizer]:
        """A pretrained model learns the tokens of the input forms, which are new to it.

        Padding is one more: without a mask, a text is read at its last token that is not padding.
        """
        if not tokenizer.encode("").ids:
            tokenizer = tokenizer.with_input_forms()
        if model.config.pad_token_id is None:
            if tokenizer.pad_id is None:
                tokenizer = tokenizer.with_special_tokens({"pad_token": BPE_SPECIALS[0]})
            model.config.pad_token_id = tokenizer.pad_id
        return with_room(model, tokenizer), tokenizer


class TextToText(Family):
    """T5 and mT5; a new model is a small T5 of version 1.1, which learns much faster with Adam: its
    head is small from the beginning, where version 1.0 has the large vectors of its words."""

    name = "t5"
    types = (models.T5Config.model_type, models.MT5Config.model_type)
    generative = True

    def new_tokenizer(
        self, args: argparse.Namespace, lines: Iterable[str], lowercase: bool
    ) -> Tokenizer:
        return vocabulary(args, lambda: Tokenizer.train_unigram(lines, args.vocab_size))

    def new_model(
        self, args: argparse.Namespace, tokenizer: Tokenizer, head: str, **config: Any
    ) -> Any:
        check_heads(args)
        sizes = models.T5Config(
            vocab_size=len(tokenizer),
            d_model=args.hidden_size,
            d_kv=args.hidden_size // args.heads,
            d_ff=args.ffn,
            num_layers=args.layers,
            num_heads=args.heads,
            feed_forward_proj="gated-gelu",
            tie_word_embeddings=False,
            dropout_rate=args.dropout,
            pad_token_id=tokenizer.pad_id,
            eos_token_id=tokenizer.eos_id,
            decoder_start_token_id=tokenizer.pad_id,
            **config,
        )
        return new_model(models.with_head(self.types[0], head), sizes)

    def longest(self, model: Any) -> int:
        """There are no positions; what is as long as this does not fit into a memory."""
        return 1 << 20

    def example(self, encoding: Encoding, model: Any) -> dict[str, Any]:
        return {"input_ids": encoding.ids}


BERT, GPT1, LANGUAGE, T5 = Family(), GPT(), LanguageModels(), TextToText()


def family_of(model_type: str | None, families: Sequence[Family]) -> Family:
    """The one that has models of this type; the first if none has."""
    return next((family for family in families if model_type in family.types), families[0])


def with_room(model: Any, tokenizer: Tokenizer) -> Any:
    """A GPT whose table of words has a row for each token; those that it lacks are random."""
    size, known = len(tokenizer), model.config.vocab_size
    if size <= known:
        return model
    name = "transformer.tokens.weight"
    larger = type(model)(replace(model.config, vocab_size=size))
    state = model.state_dict()
    state[name] = np.concatenate([state[name], larger.state_dict()[name][known:]])
    larger.load_state_dict(state)
    larger.generation_config, larger.load_report = model.generation_config, model.load_report
    larger.load_report.new.append(f"{size - known} rows of {name}")
    return larger
