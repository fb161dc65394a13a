"""The blocks: every layer and stack against finite differences, in float32, and by right values.

The list of classes is found from Module's subclasses; a class that has no case here fails a test.
"""

import math
import tracemalloc
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import tinyfm
from tinyfm import gradcheck, masks, models, nn, no_grad, ops, optim, pretrained, tensor
from tinyfm.autograd import Node, Tensor, raw
from tinyfm.models import bart, bert, distilbert, gpt, roberta, sentence_bert, transformer
from tinyfm.models.encoder_decoder import EncoderDecoderBody
from tinyfm_tests import standin

EXAMPLES = settings.default.max_examples
MASKS = ("none", "full", "causal", "prefix", "padding", "allowed")


# -- cases: for every class a way to draw a module with random weights, inputs and a call ----------


class Case(NamedTuple):
    module: nn.Module
    inputs: tuple  # Tensors that require gradients
    call: object  # call(*inputs) -> Tensor, or a tuple of them


CASES = {}


def case(cls):
    def enter(build):
        CASES[cls] = build
        return build

    return enter


def module_classes():
    """Every class of tinyfm below Module that can be called, and is whole."""

    def below(cls):
        for sub in cls.__subclasses__():
            yield sub
            yield from below(sub)

    return {
        cls
        for cls in below(nn.Module)
        if cls.__module__.startswith("tinyfm.")
        and cls.forward is not nn.Module.forward
        and getattr(cls, "embed_source", None) is not EncoderDecoderBody.embed_source
    }


CLASSES = sorted(module_classes(), key=lambda cls: cls.__name__)


def drawn(data, cls, dtype):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), label="seed"))
    return CASES[cls](Source(data.draw, rng, dtype))


class Source:
    """Where a case takes its choices, sizes and values from."""

    def __init__(self, draw, rng, dtype):
        self.draw, self.rng, self.dtype = draw, rng, dtype

    def choice(self, *values, label=None):
        return self.draw(st.sampled_from(values), label=label)

    def flag(self, label):
        return self.draw(st.booleans(), label=label)

    def size(self, most, least=1):
        return self.draw(st.integers(least, most))

    def input(self, *shape):
        return tensor(self.rng.standard_normal(shape).astype(self.dtype), requires_grad=True)

    def weighted(self, module):
        """The module with random values in every parameter, gains and biases too."""
        return randomized(module, self.rng, self.dtype)

    def mask(self, kind, batch, heads, queries, keys):
        """A mask of the kind for (queries, keys), and for its first keys as well."""
        rng = self.rng
        if kind == "prefix":
            return masks.prefix(rng.integers(0, keys + 1, batch))
        if kind == "padding":
            return masks.padding(rng.random((batch, keys)) < 0.7)  # holes; rows without any key
        if kind == "allowed":
            return masks.allowed(rng.random((batch, heads, queries, keys)) < 0.7)
        return {"none": None, "full": masks.full(), "causal": masks.causal()}[kind]

    def layer_config(self, **changes):
        gated = self.flag("gated")
        return nn.LayerConfig(
            **{
                "d_model": 4,
                "num_heads": 2,
                "d_ff": 5,
                "head_dim": self.choice(None, 3, label="head_dim"),
                "dropout": 0.0,
                "activation": self.choice(*nn.ACTIVATIONS, label="activation"),
                "gated": gated,
                "norm": self.choice("layer", "rms", label="norm"),
                "eps": 0.1,  # tame curvature, for the sake of the differences
                "norm_first": self.flag("norm_first"),
                "bias": self.flag("bias"),
                "scale": self.choice(None, 1.0, label="scale"),
                **changes,
            }
        )


def randomized(module, rng, dtype=np.float64):
    module.to(dtype=dtype)
    for p in module.parameters():
        p.data = (0.8 * rng.standard_normal(p.shape)).astype(dtype)
    return module


def masks_by_kind(kind, seed, batch=2, heads=2, queries=3, keys=3):
    return Source(None, np.random.default_rng(seed), None).mask(kind, batch, heads, queries, keys)


@case(nn.Linear)
def linear_case(s):
    inputs, outputs = s.size(4), s.size(4)
    module = s.weighted(nn.Linear(inputs, outputs, bias=s.flag("bias")))
    leading = s.choice((), (2,), (2, 3), (0,))
    return Case(module, (s.input(*leading, inputs),), module)


@case(nn.Embedding)
def embedding_case(s):
    # The padding id itself is left out: its gradient is zero by decree (R15), not by measurement.
    padding = s.choice(None, 0, 4)
    module = s.weighted(nn.Embedding(5, s.size(3), padding_idx=padding))
    ids = s.rng.choice([i for i in range(5) if i != padding], s.choice((), (6,), (2, 4)))
    return Case(module, (), lambda: module(ids))


@case(nn.LayerNorm)
def layer_norm_case(s):
    width = s.size(6, least=3)
    module = s.weighted(nn.LayerNorm(width, eps=s.choice(1e-2, 0.1), bias=s.flag("bias")))
    return Case(module, (s.input(*s.choice((), (3,), (2, 2)), width),), module)


@case(nn.RMSNorm)
def rms_norm_case(s):
    width = s.size(6, least=2)
    module = s.weighted(nn.RMSNorm(width, eps=s.choice(1e-2, 0.1)))
    return Case(module, (s.input(*s.choice((), (3,), (2, 2)), width),), module)


@case(nn.Dropout)
def dropout_case(s):
    module = nn.Dropout(s.choice(0.0, 0.3, 0.5, 1.0))
    module.train(s.flag("training"))
    seed = s.size(9)

    def call(x):
        tinyfm.manual_seed(seed)
        return module(x)

    return Case(module, (s.input(3, 4),), call)


@case(nn.LearnedPositions)
def learned_positions_case(s):
    module = s.weighted(nn.LearnedPositions(5, 3, unused=s.choice(0, 2, label="unused")))
    places = np.array([[s.size(4, least=0) for _ in range(3)] for _ in range(2)])  # repeats too
    return Case(module, (), lambda: module(places, np.zeros(1, s.dtype)))


@case(nn.SinusoidalPositions)
def sinusoidal_positions_case(s):
    module = nn.SinusoidalPositions(s.size(5), layout=s.choice("interleaved", "halves"))
    x = s.input(3, module.dim)
    start = s.size(4, least=0)
    return Case(module, (x,), lambda x: x + module(np.arange(start, start + 3), raw(x)))


@case(nn.RelativeBias)
def relative_bias_case(s):
    module = s.weighted(relative_bias(s.flag("bidirectional")))
    queries = s.size(4)
    keys = queries + s.size(4, least=0)
    return Case(module, (), lambda: module(queries, keys))


def relative_bias(bidirectional):
    return nn.RelativeBias(2, bidirectional, num_buckets=6, max_distance=5)


@case(nn.MultiHeadAttention)
def attention_case(s):
    batch, length, heads = s.size(2), s.size(4), 2
    cross, cached = s.flag("cross"), s.flag("cached")
    module = s.weighted(
        nn.MultiHeadAttention(
            4,
            heads,
            head_dim=s.choice(None, 3, label="head_dim"),
            cross=cross,
            bias=s.flag("bias"),
            dropout=s.choice(0.0, 0.3, label="dropout"),
            scale=s.choice(None, 1.0, label="scale"),
        )
    )
    keys = s.size(3) if cross else length
    mask = s.mask(s.choice(*MASKS, label="mask"), batch, heads, length, keys)
    inputs = [s.input(batch, length, 4)]
    inputs.append(s.input(batch, keys, 4) if cross else None)
    inputs.append(s.input(heads, length, keys) if s.flag("bias of scores") else None)
    inputs.append(s.input(heads, length + keys - 1) if s.flag("relative bias") else None)
    given = [i for i, x in enumerate(inputs) if x is not None]
    first = s.size(length)

    def call(*tensors):
        tinyfm.manual_seed(1)
        x, memory, bias, relative = (
            tensors[given.index(i)] if i in given else None for i in range(4)
        )
        if not cached:
            return module(x, memory, mask, bias, relative)
        return in_chunks(module, x, memory, mask, bias, relative, [first, length - first])

    return Case(module, tuple(inputs[i] for i in given), call)


def in_chunks(module, x, memory, mask, bias, relative, sizes):
    """What attention gives when x comes piece by piece, over a cache."""
    batch, length = x.shape[:2]
    keys = length if memory is None else memory.shape[1]
    cache = module.cache(batch, keys)
    pieces, start = [], 0
    for size in filter(None, sizes):
        stop = start + size
        seen = stop if memory is None else keys
        entries = size + seen - 1
        skipped = length - stop  # of the distances, those that lie before this piece's first
        pieces.append(
            module(
                x[:, start:stop],
                memory if start == 0 else None,
                part_of(mask, slice(start, stop), seen, batch, keys),
                None if bias is None else bias[:, start:stop, :seen],
                None if relative is None else relative[:, skipped : skipped + entries],
                cache=cache,
            )
        )
        start = stop
    return ops.concatenate(pieces, axis=1)


def part_of(mask, rows, keys, batch, all_keys):
    """The mask for some queries and the first keys; causal parts align by themselves."""
    if mask is None:
        return None
    return masks.Mask(
        causal=mask.causal,
        prefix=mask.prefix,
        keys=None if mask.keys is None else mask.keys[:, :keys],
        allowed=None if mask.allowed is None else mask.allowed[:, :, rows, :keys],
    )


@case(nn.FeedForward)
def feed_forward_case(s):
    module = s.weighted(nn.FeedForward(s.layer_config(activation_dropout=s.choice(0.0, 0.3))))

    def call(x):
        tinyfm.manual_seed(1)
        return module(x)

    return Case(module, (s.input(2, 2, 4),), call)


def dropped(s):
    """A layer config with each dropout on or off."""
    rates = {
        name: s.choice(0.0, 0.3) for name in ("dropout", "attention_dropout", "activation_dropout")
    }
    return s.layer_config(**rates)


@case(nn.Layer)
def layer_case(s):
    cross = s.flag("cross")
    module = s.weighted(nn.Layer(dropped(s), cross_attention=cross))
    mask = s.mask(s.choice(*MASKS), 2, 2, 3, 3)
    memory_mask = s.mask(s.choice("none", "padding"), 2, 2, 3, 2)
    inputs = [s.input(2, 3, 4), s.input(2, 5)] + [s.input(2, 2, 4)] * cross

    def call(x, relative_bias, memory=None):
        tinyfm.manual_seed(1)
        return module(x, mask, relative_bias, memory, memory_mask)

    return Case(module, tuple(inputs), call)


@case(nn.Encoder)
def encoder_case(s):
    layers = s.size(2, least=0)
    bias = relative_bias(True) if layers and s.flag("relative bias") else None
    norm = s.choice(None, True, False)
    module = s.weighted(nn.Encoder(dropped(s), layers, final_norm=norm, relative_bias=bias))
    mask = s.mask(s.choice(*MASKS), 2, 2, 3, 3)

    def call(x):
        tinyfm.manual_seed(1)
        return module(x, mask)

    return Case(module, (s.input(2, 3, 4),), call)


@case(nn.Decoder)
def decoder_case(s):
    cross, cached = s.flag("cross"), s.flag("cached")
    module = s.weighted(
        nn.Decoder(
            s.layer_config(),
            s.size(2),
            cross_attention=cross,
            final_norm=s.choice(None, True, False),
            relative_bias=relative_bias(False) if s.flag("relative bias") else None,
        )
    )
    memory_mask = s.mask(s.choice("none", "padding"), 2, 2, 3, 2)

    def call(x, memory=None):
        if not cached:
            return module(x, masks.causal(), memory, memory_mask)
        caches = module.caches(2, 3, 2)
        return tuple(
            module(piece, masks.causal(), memory, memory_mask, caches=caches)
            for piece in (x[:, :2], x[:, 2:])
        )

    return Case(module, (s.input(2, 3, 4), *[s.input(2, 2, 4)] * cross), call)


SMALL_TRANSLATOR = {"vocab_size": 7, "d_model": 4, "pad_token_id": 6, "eos_token_id": 2}
for side in ("encoder", "decoder"):
    SMALL_TRANSLATOR |= {f"{side}_layers": 1, f"{side}_attention_heads": 2, f"{side}_ffn_dim": 5}


def translator_case(s, module):
    ids, labels = s.rng.integers(0, 6, (2, 4)), s.rng.integers(0, 6, (2, 3))
    attention_mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0]])

    def call():
        tinyfm.manual_seed(1)
        return module(input_ids=ids, attention_mask=attention_mask, labels=labels).loss

    return Case(s.weighted(module), (), call)


@case(models.Transformer)
def transformer_case(s):
    config = models.TransformerConfig(
        **SMALL_TRANSLATOR,
        activation_function="gelu",
        max_position_embeddings=6,
        share_embeddings=s.flag("share_embeddings"),
        norm_first=s.flag("norm_first"),
        positions=s.choice("sinusoidal", "learned"),
    )
    return translator_case(s, models.Transformer(config))


def t5_config(s, kind):
    sizes = {"vocab_size": 7, "d_model": 4, "d_kv": 3, "d_ff": 5, "num_layers": 1, "num_heads": 2}
    return kind(
        **sizes,
        feed_forward_proj=s.choice("gelu", "gated-gelu"),
        tie_word_embeddings=s.flag("tie_word_embeddings"),
        layer_norm_epsilon=0.1,
        relative_attention_num_buckets=4,
        relative_attention_max_distance=3,
    )


def t5_encoder_case(s, module):
    ids, mask = s.rng.integers(0, 7, (2, 4)), np.array([[1, 1, 1, 1], [0, 1, 1, 0]])

    def call():
        tinyfm.manual_seed(1)
        return module(ids, mask).last_hidden_state

    return Case(s.weighted(module), (), call)


for cls in (models.T5ForConditionalGeneration, models.MT5ForConditionalGeneration):
    case(cls)(lambda s, cls=cls: translator_case(s, cls(t5_config(s, cls.config_class))))
for cls in (models.T5EncoderModel, models.MT5EncoderModel):
    case(cls)(lambda s, cls=cls: t5_encoder_case(s, cls(t5_config(s, cls.config_class))))


@case(models.MarianMTModel)
def marian_case(s):
    config = models.MarianConfig(**SMALL_TRANSLATOR, decoder_start_token_id=5)
    return translator_case(s, models.MarianMTModel(config))


@case(transformer.TransformerBody)
def transformer_body_case(s):
    config = models.TransformerConfig(**SMALL_TRANSLATOR, activation_function="gelu")
    module = s.weighted(transformer.TransformerBody(config))
    ids, target = s.rng.integers(0, 6, (2, 4)), s.rng.integers(0, 6, (2, 3))

    def call():
        tinyfm.manual_seed(1)
        return module(ids, decoder_input_ids=target).last_hidden_state

    return Case(module, (), call)


def bart_config(s, kind=models.BartConfig):
    foreign = {"source_vocab_size": 7, "source_layers": 1}
    return kind(
        **SMALL_TRANSLATOR,
        **(foreign if kind is models.BartTranslationConfig else {}),
        scale_embedding=s.flag("scale_embedding"),
        max_position_embeddings=6,
        classifier_dropout=0.2,
        num_labels=s.choice(1, 3),
    )


def bart_case(cls, s):
    """Texts with one end token each, and what stands in the second behind it is padding."""
    config = bart_config(s, cls.config_class)
    if issubclass(cls, models.BartForConditionalGeneration):
        return translator_case(s, cls(config))
    module, ids = s.weighted(cls(config)), s.rng.integers(3, 6, (2, 4))
    ids[[0, 1], [3, 1]] = 2
    labels = {}
    if issubclass(cls, models.BartForSequenceClassification):
        number = config.num_labels == 1
        labels = {"labels": s.rng.standard_normal(2) if number else s.rng.integers(0, 3, 2)}
    elif issubclass(cls, models.BartForQuestionAnswering):
        places = s.rng.integers(0, 4, 2)
        labels = {"start_positions": places, "end_positions": places + 1}

    def call():
        tinyfm.manual_seed(1)
        output = module(ids, np.array([[1, 1, 1, 1], [1, 1, 0, 0]]), **labels)
        return output.loss if labels else output.last_hidden_state

    return Case(module, (), call)


for cls in module_classes():
    if issubclass(cls, models.BartModel | models.BartForConditionalGeneration):
        case(cls)(partial(bart_case, cls))


@case(bart.ClassificationHead)
def classification_head_case(s):
    module = s.weighted(bart.ClassificationHead(bart_config(s)))

    def call(x):
        tinyfm.manual_seed(1)
        return module(x)

    return Case(module, (s.input(3, 4),), call)


@case(bart.SourceEncoder)
def source_encoder_case(s):
    module = s.weighted(bart.SourceEncoder(bart_config(s, models.BartTranslationConfig)))
    ids, mask = s.rng.integers(0, 6, (2, 4)), masks.padding([[1, 1, 1, 1], [1, 1, 0, 0]])

    def call():
        tinyfm.manual_seed(1)
        return module(ids, mask)

    return Case(module, (), call)


SMALL_ENCODER = {"vocab_size": 7, "max_position_embeddings": 12, "pad_token_id": 6}
BERT = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2}
BERT |= {"intermediate_size": 5, "layer_norm_eps": 0.1, "hidden_act": "gelu"}
ENCODERS = {
    bert.BertConfig: BERT,
    roberta.RobertaConfig: BERT,
    distilbert.DistilBertConfig: {"dim": 4, "n_layers": 1, "n_heads": 2, "hidden_dim": 5},
}


def encoder_config(s, kind=bert.BertConfig, **changes):
    return kind(**SMALL_ENCODER, **ENCODERS[kind], **changes)


def encoder_labels(s, cls):
    """Labels for ids (2, 4), of the kind that the class takes."""
    words, rows = s.rng.integers(0, 7, (2, 4)), s.rng.integers(0, 3, 2)
    words[0, 0] = words[1, 3] = -100
    if issubclass(cls, bert.BertForPreTraining):
        return {"labels": words, "next_sentence_label": rows % 2}
    if issubclass(cls, bert.BertForQuestionAnswering):
        return {"start_positions": rows, "end_positions": rows + 1}
    if issubclass(cls, bert.BertForSequenceClassification):
        return {"labels": rows}
    if issubclass(cls, bert.BertForMultipleChoice):
        return {"labels": rows % 2}
    if issubclass(cls, bert.BertForTokenClassification):
        return {"labels": np.where(words >= 0, words % 3, -100)}
    return {} if issubclass(cls, bert.BertModel) else {"labels": words}


def encoder_model_case(cls, s):
    config = encoder_config(s, cls.config_class, num_labels=s.choice(3, label="labels"))
    if s.flag("number") and issubclass(cls, bert.BertForSequenceClassification):
        config = encoder_config(s, cls.config_class, num_labels=1)
    module, ids = s.weighted(cls(config)), s.rng.integers(0, 6, (2, 4))
    inputs = {"input_ids": ids, "attention_mask": np.array([[1, 1, 1, 1], [1, 1, 0, 0]])}
    if cls.config_class is bert.BertConfig:
        inputs["token_type_ids"] = s.rng.integers(0, 2, (2, 4))
    if issubclass(cls, bert.BertForMultipleChoice):
        inputs = {name: np.stack([x, x[::-1]], 1) for name, x in inputs.items()}
    labels = encoder_labels(s, cls)

    def call():
        tinyfm.manual_seed(1)
        output = module(**inputs, **labels)
        if labels:
            return output.loss
        pooled = () if module.pooler is None else (output.pooler_output,)
        return (output.last_hidden_state, *pooled)

    return Case(module, (), call)


for cls in module_classes():
    if issubclass(cls, bert.BertModel | bert.WithBody):
        case(cls)(partial(encoder_model_case, cls))


@case(sentence_bert.CosineRegression)
def cosine_regression_case(s):
    body = models.BertModel(encoder_config(s), pooler=False)
    module, ids = s.weighted(sentence_bert.CosineRegression(body)), s.rng.integers(0, 6, (2, 2, 4))
    mask = np.array([[[1, 1, 1, 1], [1, 1, 0, 0]], [[1, 0, 0, 0], [1, 1, 1, 0]]])
    scores = s.rng.uniform(-1, 1, 2)

    def call():
        tinyfm.manual_seed(1)
        return module(ids, mask, scores).loss

    return Case(module, (), call)


@case(bert.Embeddings)
def embeddings_case(s):
    module = s.weighted(bert.Embeddings(encoder_config(s, s.choice(*ENCODERS, label="family"))))
    ids = s.rng.integers(0, 6, (2, 4))

    def call():
        tinyfm.manual_seed(1)
        return module(ids)

    return Case(module, (), call)


@case(bert.Pooler)
def pooler_case(s):
    module = bert.Pooler(encoder_config(s, s.choice(*ENCODERS, label="family")), dropout=0.2)

    def call(x):
        tinyfm.manual_seed(1)
        return module(x)

    return Case(s.weighted(module), (s.input(2, 3, 4),), call)


@case(bert.MaskedLMHead)
def masked_lm_head_case(s):
    module = s.weighted(bert.MaskedLMHead(encoder_config(s)))
    labels = np.array([[1, -100, 6], [-100, -100, 0]])

    def call(x, table):
        return module(x, table), module.loss(x, table, labels)[0]

    return Case(module, (s.input(2, 3, 4), s.input(7, 4)), call)


SMALL_GPT = {"vocab_size": 7, "n_positions": 5, "n_embd": 4, "n_layer": 1, "n_head": 2}
SMALL_GPT |= {"layer_norm_epsilon": 0.1, "num_labels": 3}


def gpt_labels(s, cls, ids):
    """Labels of the kind that the class takes, for ids (2, 4) or (2, 2, 4)."""
    words, rows = np.where(s.rng.random(ids.shape) < 0.3, -100, ids), s.rng.integers(0, 2, 2)
    if issubclass(cls, gpt.GPT2DoubleHeadsModel):
        return {"labels": words, "mc_labels": rows}
    if issubclass(cls, gpt.GPT2ForSequenceClassification):
        return {"labels": rows, "lm_labels": words}
    return {"labels": ids} if issubclass(cls, gpt.GPT2LMHeadModel) else {}


def gpt_model_case(cls, s):
    module, ids = s.weighted(cls(cls.config_class(**SMALL_GPT))), s.rng.integers(0, 7, (2, 4))
    inputs = {"input_ids": ids, "attention_mask": np.array([[1, 1, 1, 1], [0, 1, 1, 1]])}
    both_orders = issubclass(cls, gpt.GPT2ForSequenceClassification) and s.flag("both_orders")
    if both_orders or issubclass(cls, gpt.GPT2DoubleHeadsModel):
        inputs = {name: np.stack([x, x[::-1]], 1) for name, x in inputs.items()}
    labels = gpt_labels(s, cls, inputs["input_ids"])

    def call():
        tinyfm.manual_seed(1)
        output = module(**inputs, **labels)
        return output.loss if labels else output.last_hidden_state

    return Case(module, (), call)


for cls in module_classes():
    if issubclass(cls, gpt.GPT2Model | gpt.WithBody):
        case(cls)(partial(gpt_model_case, cls))


@case(gpt.ChoiceHead)
def choice_head_case(s):
    module = s.weighted(gpt.ChoiceHead(gpt.GPT2Config(**SMALL_GPT)))

    def call(x):
        tinyfm.manual_seed(1)
        return module(x)

    return Case(module, (s.input(3, 4),), call)


def test_every_class_has_a_case():
    assert set(CASES) == set(CLASSES)


def test_the_list_of_classes_is_found():
    assert {nn.Linear, nn.MultiHeadAttention, nn.Decoder, models.Transformer} <= set(CLASSES)


# -- what holds for every class --------------------------------------------------------------------


def kept_off_the_kink(module):
    """Makes the ReLUs of a module refuse examples in which one stands within 1e-3 of its kink."""

    def relu(x):
        assume(np.abs(raw(x)).min(initial=1.0) > 1e-3)
        return ops.relu(x)

    for part in module.modules():
        if getattr(part, "activation", None) is ops.relu:
            part.activation = relu


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_gradients(cls):
    model = issubclass(cls, pretrained.PreTrainedModel)
    stack = model or cls in (nn.Layer, nn.Encoder, nn.Decoder)
    fewer = 50 if model else 12 if stack else 4

    @settings(max_examples=max(1, EXAMPLES // fewer))
    @given(data=st.data())
    def check(data):
        module, inputs, call = drawn(data, cls, np.float64)
        kept_off_the_kink(module)
        assume(all(np.isfinite(y.data).all() for y in outputs(call(*inputs))))
        leaves = (*inputs, *module.parameters())
        options = {"atol": 1e-6, "max_entries": 4 if stack else 16}
        # The parameters are reached by the module itself.
        assert gradcheck(lambda *_: call(*inputs), *leaves, **options)

    check()


def outputs(result):
    return list(result) if isinstance(result, tuple) else [result]


def graph(result):
    """Every node that a result was made by."""
    found, stack = set(), [result._node]
    while stack:
        node = stack.pop()
        if type(node) is Node and node not in found:
            found.add(node)
            stack += node.parents
    return found


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_r10_float32_stays_float32(cls):
    """Results, everything between, gradients, and the state of an optimizer."""

    @settings(max_examples=max(1, EXAMPLES // 10))
    @given(data=st.data())
    def check(data):
        module, inputs, call = drawn(data, cls, np.float32)
        parameters = module.parameters()
        for y in outputs(call(*inputs)):
            assert y.dtype == np.float32
            if y.requires_grad:
                assert {n.dtype.name for n in graph(y) if hasattr(n, "dtype")} <= {"float32"}
                y.backward(np.ones(y.shape), retain_graph=True)
        for leaf in (*inputs, *parameters):
            assert leaf.grad is None or leaf.grad.dtype == np.float32
        if not parameters:
            return
        optimizer = optim.AdamW(parameters, lr=1e-3)
        optimizer.step(np.float64(0.5))
        for p, state in zip(parameters, optimizer.state, strict=True):
            assert p.dtype == np.float32
            if p.grad is not None:
                assert (state["m"].dtype, state["v"].dtype) == (np.float32, np.float32)

    check()


def test_a_float64_detour_would_be_noticed():
    x = tensor(np.ones(2, np.float32), requires_grad=True)
    y = x.astype(np.float64).sum().astype(np.float32)
    assert {n.dtype.name for n in graph(y)} == {"float32", "float64"}


def test_a_wrong_gradient_in_a_layer_would_be_noticed(monkeypatch):
    """Attention that forgets one of the two paths to its scores."""
    module, x = attention_of(), tensor(np.random.default_rng(0).standard_normal((2, 3, 6)), True)
    assert gradcheck(module, x)
    plain = ops.attention
    monkeypatch.setattr(ops, "attention", lambda q, k, *a, **b: plain(q, raw(k), *a, **b))
    with pytest.raises(tinyfm.GradientError):
        gradcheck(module, x)


# -- layers ----------------------------------------------------------------------------------------


def test_linear_by_hand():
    layer = nn.Linear(2, 3)
    layer.weight.data = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    layer.bias.data = np.array([0.5, 0, -1], np.float32)
    assert_array_equal(layer(np.array([[1.0, 10.0]], np.float32)).data, [[21.5, 43, 64]])
    assert nn.Linear(2, 3, bias=False).bias is None


def test_initial_values():
    tinyfm.manual_seed(0)
    weight = nn.Linear(100, 300).weight.data
    bound = math.sqrt(6 / 400)  # Glorot and Bengio
    assert bound * 0.99 < np.abs(weight).max() <= bound
    assert_allclose(weight.std(), bound / math.sqrt(3), rtol=0.02)
    table = nn.Embedding(300, 100).weight.data
    assert_allclose(table.std(), 0.1, rtol=0.02)
    assert_allclose(table.mean(), 0, atol=2e-3)
    norm = nn.LayerNorm(3)
    assert_array_equal(norm.weight.data, [1, 1, 1])
    assert_array_equal(norm.bias.data, [0, 0, 0])


def test_one_seed_gives_the_same_weights():
    def build(seed):
        tinyfm.manual_seed(seed)
        return nn.Encoder(nn.LayerConfig(d_model=4, num_heads=2, d_ff=8), 1).state_dict()

    first, again, other = build(3), build(3), build(4)
    for name in first:
        assert_array_equal(first[name], again[name])
    assert (first["layers.0.attention.qkv.weight"] != other["layers.0.attention.qkv.weight"]).any()


def test_norms_use_their_own_gain_bias_and_eps():
    x = np.array([[1.0, 2, 3, 4]])
    layer = nn.LayerNorm(4, eps=1e-5).to(dtype=np.float64)
    layer.weight.data, layer.bias.data = np.array([1.0, 1, 1, 2]), np.array([0.0, 0, 1, 0])
    assert_allclose(
        layer(x).data, [[-1.3416354, -0.4472118, 1.4472118, 2.6832708]], atol=1e-7
    )  # R11
    layer.eps = 1.25  # the variance itself: the root is of twice as much
    assert_allclose(layer(x).data[0, 0], -1.5 / math.sqrt(2.5))
    rms = nn.RMSNorm(4).to(dtype=np.float64)
    assert_allclose(rms(x).data, [[0.3651484, 0.7302967, 1.0954452, 1.4605935]], atol=1e-7)


def test_dropout_draws_anew_in_training_and_does_nothing_in_evaluation():
    x, layer = np.ones(1000, np.float32), nn.Dropout(0.5)
    tinyfm.manual_seed(0)
    first, second = layer(x).data, layer(x).data
    assert set(first) == set(second) == {0, 2}
    assert (first != second).any()
    tinyfm.manual_seed(0)
    assert_array_equal(layer(x).data, first)
    assert layer.eval()(x) is x


def test_learned_positions():
    layer = nn.LearnedPositions(5, 2)
    places = np.array([[1, 2], [0, 4]])
    assert_array_equal(layer(places, layer.weight.data).data, layer.weight.data[places])
    later = nn.LearnedPositions(5, 2, unused=2)
    assert later.weight.shape == (7, 2)
    assert_array_equal(later(places, later.weight.data).data, later.weight.data[places + 2])
    for positions in (layer, later):
        with pytest.raises(ValueError, match="position 5 is asked for, and 5 are learned"):
            positions(np.arange(6), layer.weight.data)


@pytest.mark.parametrize(
    "layout, row_1_of_8, row_3_of_4",
    [
        (
            "interleaved",
            [0.841471, 0.540302, 0.099833, 0.995004, 0.010000, 0.999950, 0.001000, 1.0],
            [0.14112, -0.98999, 0.03, 0.99955],
        ),
        (
            "halves",
            [0.841471, 0.099833, 0.01, 0.001, 0.540302, 0.995004, 0.99995, 1.0],
            [0.14112, 0.03, -0.98999, 0.99955],
        ),
    ],
)
def test_sinusoids(layout, row_1_of_8, row_3_of_4):
    assert_allclose(nn.sinusoids(2, 8, layout)[1], row_1_of_8, atol=1e-6)
    assert_allclose(nn.sinusoids(4, 4, layout)[3], row_3_of_4, atol=1e-5)


def test_sinusoidal_positions_grow_with_demand_and_take_the_dtype_asked_for():
    layer = nn.SinusoidalPositions(6)
    for start, stop in ((0, 3), (2, 5), (40, 50), (0, 1)):
        got = layer(np.arange(start, stop), np.zeros(1, np.float32))
        assert got.dtype == np.float32
        assert_array_equal(got, nn.sinusoids(stop, 6)[start:].astype(np.float32))
    assert layer.parameters() == []
    with pytest.raises(ValueError, match="layout 'thirds'"):
        nn.SinusoidalPositions(6, layout="thirds")


# -- R15 and R16: the embedding --------------------------------------------------------------------


def stepped(embedding, steps=3):
    """The table after steps of AdamW with decay on the look-up of [0, 0, 2]."""
    optimizer = optim.AdamW(embedding.parameters(), lr=0.1, weight_decay=0.5)
    for _ in range(steps):
        optimizer.zero_grad()
        embedding(np.array([0, 0, 2])).sum().backward()
        optimizer.step()
    return embedding.weight.data


def test_r15_the_padding_row_is_zero_after_init_and_reinit():
    embedding = nn.Embedding(4, 2, padding_idx=0, init=nn.ones)
    assert_array_equal(embedding.weight.data, [[0, 0], [1, 1], [1, 1], [1, 1]])
    embedding.weight.data = embedding.initial(nn.normal(1.0))((4, 2))
    assert_array_equal(embedding.weight.data[0], [0, 0])
    assert (embedding.weight.data[1:] != 0).all()


def test_r15_a_look_up_gives_the_padding_row_no_gradient():
    embedding = nn.Embedding(4, 2, padding_idx=0)
    embedding(np.array([0, 0, 2])).sum().backward()
    assert_array_equal(embedding.weight.grad, [[0, 0], [0, 0], [1, 1], [0, 0]])


def test_r15_optimizer_steps_leave_the_padding_row_zero():
    embedding = nn.Embedding(4, 2, padding_idx=0)
    before = embedding.weight.data.copy()
    after = stepped(embedding)
    assert_array_equal(after[0], [0, 0])
    assert (after[1:] != before[1:]).all()


def test_r15_a_padding_row_from_a_checkpoint_is_kept():
    embedding = nn.Embedding(4, 2, padding_idx=0)
    embedding.load_state_dict({"weight": np.full((4, 2), 7.0)})
    assert_array_equal(embedding.weight.data[0], [7, 7])
    assert_array_equal(embedding(np.array([0])).data, [[7, 7]])


def test_r15_optimizer_steps_leave_a_padding_row_from_a_checkpoint():
    embedding = nn.Embedding(4, 2, padding_idx=0)
    embedding.load_state_dict({"weight": np.full((4, 2), 7.0)})
    assert_array_equal(stepped(embedding)[0], [7, 7])


def test_r15_a_tied_head_reaches_the_padding_row():
    embedding = nn.Embedding(4, 2, padding_idx=0).to(dtype=np.float64)
    hidden = embedding(np.array([0, 2]))
    ops.linear(hidden.detach(), embedding.weight).sum().backward()  # the head alone
    head = embedding.weight.grad.copy()
    embedding.weight.grad = None
    ops.linear(embedding(np.array([0, 2])), embedding.weight).sum().backward()
    assert_array_equal(embedding.weight.grad[0], head[0])
    assert (head[0] != 0).all()


def test_r15_without_padding_idx_every_row_learns():
    embedding = nn.Embedding(4, 2)
    embedding(np.array([0, 0, 2])).sum().backward()
    assert_array_equal(embedding.weight.grad, [[2, 2], [0, 0], [1, 1], [0, 0]])


@pytest.mark.parametrize("bad", [17, -1, -100])
@pytest.mark.parametrize("form", [lambda bad: [[bad]], lambda bad: np.array([[3, bad]])])
def test_r16_an_id_outside_the_vocabulary(bad, form):
    with pytest.raises(IndexError, match=rf"id {bad} is outside the vocabulary of 17"):
        nn.Embedding(17, 8)(form(bad))


@pytest.mark.parametrize("ids", [[[1.0]], np.array([[1.0]]), np.array([True])])
def test_r16_ids_that_are_no_integers(ids):
    with pytest.raises(TypeError, match="token ids are integers"):
        nn.Embedding(17, 8)(ids)


# -- attention -------------------------------------------------------------------------------------


def attention_of(seed=0, **options):
    rng = np.random.default_rng(seed)
    return randomized(nn.MultiHeadAttention(6, 2, **options), rng)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("head_dim", [None, 2])
@pytest.mark.parametrize("scale", [None, 1.0])
def test_attention_head_by_head(cross, head_dim, scale):
    """The definition, with a loop over heads, each a contiguous slice of the projections."""
    module = attention_of(head_dim=head_dim, cross=cross, scale=scale)
    rng, width = np.random.default_rng(1), head_dim or 3
    x, memory = rng.standard_normal((3, 6)), rng.standard_normal((4, 6))
    if cross:
        q = module.q(x).data
        k, v = np.split(module.kv(memory).data, 2, axis=-1)
    else:
        q, k, v = np.split(module.qkv(x).data, 3, axis=-1)
    parts = []
    for head in range(2):
        columns = slice(head * width, (head + 1) * width)
        scores = q[:, columns] @ k[:, columns].T * (scale or width**-0.5)
        parts.append(softmax(scores) @ v[:, columns])
    wanted = np.concatenate(parts, 1) @ module.out.weight.data.T + module.out.bias.data
    got = module(x[None], memory[None] if cross else None)
    assert_allclose(got.data[0], wanted, atol=1e-12)


@pytest.mark.parametrize("kind", MASKS)
def test_attention_weights_are_handed_out(kind):
    """They are a distribution over what the mask lets be seen, and make the result."""
    module, mask = attention_of(), masks_by_kind(kind, seed=5)
    x, seen = np.random.default_rng(2).standard_normal((2, 3, 6)), []
    result = module(x, mask=mask, weights=seen)
    (weights,) = seen
    visible = (mask or masks.full()).dense(2, 3, 3)
    assert weights.shape == (2, 2, 3, 3)
    assert (weights[~np.broadcast_to(visible, weights.shape)] == 0).all()
    rows = np.broadcast_to(visible.any(-1), weights.shape[:3])
    assert_allclose(weights.sum(-1), rows)  # 1, and 0 for a query that may look nowhere
    v = ops.split_heads(module.qkv(x), parts=3, heads=2)[2].data
    heads = (weights @ v).swapaxes(1, 2).reshape(2, 3, 6)
    assert_allclose(module.out(heads).data, result.data, atol=1e-12)


def test_attention_dropout_is_for_training_only():
    x = np.random.default_rng(0).standard_normal((1, 3, 6))
    module = attention_of(dropout=1.0)
    assert_allclose(module(x).data, np.broadcast_to(module.out.bias.data, (1, 3, 6)))
    assert_array_equal(module.eval()(x).data, attention_of()(x).data)


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="d_model 6 is not a multiple of num_heads 4"):
        nn.MultiHeadAttention(6, 4)
    assert nn.MultiHeadAttention(6, 4, head_dim=5).qkv.weight.shape == (60, 6)


def test_r20_heads_are_merged_token_by_token():
    heads = np.array([[[[1.0, 2], [3, 4]], [[5, 6], [7, 8]]]])
    merged = ops.merge_heads(heads).data
    assert_array_equal(merged, [[[1, 2, 5, 6], [3, 4, 7, 8]]])
    (back,) = ops.split_heads(merged, parts=1, heads=2)
    assert_array_equal(back.data, heads)


def test_r20_without_positions_an_encoder_does_not_know_the_order():
    rng = np.random.default_rng(0)
    encoder = randomized(nn.Encoder(nn.LayerConfig(d_model=6, num_heads=2, d_ff=8), 2), rng).eval()
    x, order = rng.standard_normal((2, 5, 6)), np.array([3, 0, 4, 1, 2])
    assert_allclose(encoder(x[:, order]).data, encoder(x).data[:, order], atol=1e-12)


def test_r21_new_queries_see_the_cache_and_themselves():
    seen = masks.causal().dense(1, 2, 5)[0, 0].astype(int)
    assert_array_equal(seen, [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]])


@pytest.mark.parametrize("kind", ["causal", "prefix", "padding", "allowed"])
@settings(max_examples=max(1, EXAMPLES // 10))
@given(sizes=st.lists(st.integers(1, 3), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_r21_chunks_of_any_length_give_what_the_whole_gives(kind, sizes, seed):
    length = sum(sizes)
    mask = masks.causal() & masks_by_kind(kind, seed, queries=length, keys=length)
    if kind == "prefix":  # its queries look ahead, into what a cache has not yet seen
        mask = masks.prefix(np.minimum(mask.prefix, sizes[0]))
    module, rng = attention_of(seed), np.random.default_rng(seed)
    x, bias = rng.standard_normal((2, length, 6)), rng.standard_normal((2, length, length))
    relative = rng.standard_normal((2, 2 * length - 1))
    with no_grad():
        whole = module(x, None, mask, bias, relative)
        pieces = in_chunks(module, Tensor(x), None, mask, bias, relative, sizes)
    assert_allclose(pieces.data, whole.data, atol=1e-12)


def test_r21_a_filled_cross_cache_needs_no_memory():
    module, rng = attention_of(cross=True), np.random.default_rng(0)
    x, memory = rng.standard_normal((2, 3, 6)), rng.standard_normal((2, 4, 6))
    cache = module.cache(2, 4)
    with no_grad():
        first = module(x, memory, cache=cache)
        again = module(x, memory=None, cache=cache)
    assert cache.length == 4
    assert_array_equal(again.data, first.data)


# -- the cache -------------------------------------------------------------------------------------


def keys_and_values(length, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((2, 2, 3, length, 4)).astype(dtype)


@settings(max_examples=max(1, EXAMPLES // 4))
@given(sizes=st.lists(st.integers(1, 3), min_size=1, max_size=4), spare=st.integers(0, 2))
def test_cache_in_chunks_holds_the_whole(sizes, spare):
    k, v = keys_and_values(sum(sizes))
    cache, end = nn.KVCache(2, 3, sum(sizes) + spare, 4), 0
    for size in sizes:
        got = cache.append(k[:, :, end : end + size], v[:, :, end : end + size])
        end += size
        assert cache.length == end
        assert_array_equal(got[0], k[:, :, :end], strict=True)
        assert_array_equal(got[1], v[:, :, :end], strict=True)


def test_cache_takes_its_memory_once_and_gives_views():
    k, v = keys_and_values(4)
    cache = nn.KVCache(2, 3, 4, 4)
    cache.append(k[:, :, :1], v[:, :, :1])
    buffers = cache._keys, cache._values
    for i in range(1, 4):
        got = cache.append(k[:, :, i : i + 1], v[:, :, i : i + 1])
        assert cache._keys is buffers[0] and cache._values is buffers[1]
        assert got[0].base is buffers[0] and got[1].base is buffers[1]
    assert buffers[0].nbytes == k.nbytes


def test_cache_appending_allocates_nothing_of_its_size():
    cache = nn.KVCache(1, 4, 1000, 64)
    new = np.ones((1, 4, 1, 64), np.float32)
    cache.append(new, new)  # 1 MB each
    tracemalloc.start()
    try:
        for _ in range(50):
            cache.append(new, new)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20_000


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cache_keeps_the_dtype(dtype):
    k, v = keys_and_values(2, dtype=dtype)
    cache = nn.KVCache(2, 3, 5, 4)
    assert [x.dtype for x in cache.append(k, v)] == [dtype, dtype]


def test_cache_refuses_what_does_not_fit_and_stays_as_it_was():
    k, v = keys_and_values(3)
    cache = nn.KVCache(2, 3, 4, 4)
    cache.append(k, v)
    with pytest.raises(ValueError, match=r"\(2, 3, 4, 4\) with 3 positions filled cannot take"):
        cache.append(k[:, :, :2], v[:, :, :2])
    with pytest.raises(ValueError, match=r"cannot take \(1, 3, 1, 4\)"):
        cache.append(k[:1, :, :1], v[:1, :, :1])
    assert cache.length == 3
    assert_array_equal(cache.filled()[0], k)


def test_cache_reorder():
    k, v = keys_and_values(3)
    cache = nn.KVCache(2, 3, 5, 4)
    cache.append(k, v)
    cache.reorder(np.array([0, 1]))  # in order: nothing to do
    assert_array_equal(cache.filled()[0], k)
    cache.reorder(np.array([1, 1]))
    assert_array_equal(cache.filled()[0], k[[1, 1]])
    assert_array_equal(cache.filled()[1], v[[1, 1]])
    nn.KVCache(2, 3, 5, 4).reorder(np.array([1, 0]))  # empty: nothing to copy


def test_cache_of_a_layer_reorders_both_attentions():
    k, v = keys_and_values(2)
    cache = nn.LayerCache(nn.KVCache(2, 3, 2, 4), nn.KVCache(2, 3, 2, 4))
    cache.own.append(k, v)
    cache.cross.append(v, k)
    cache.reorder(np.array([1, 0]))
    assert_array_equal(cache.own.filled()[0], k[::-1])
    assert_array_equal(cache.cross.filled()[0], v[::-1])
    nn.LayerCache(cache.own, None).reorder(np.array([0, 1]))


def test_cache_with_and_without_recording_in_turn():
    """A prompt without recording, a step with it, one more without."""
    k, v = keys_and_values(3, dtype=np.float64)
    new = tensor(k[:, :, 1:2], requires_grad=True)
    cache = nn.KVCache(2, 3, 3, 4)
    cache.append(k[:, :, :1], v[:, :, :1])
    keys, _ = cache.append(new, v[:, :, 1:2])
    keys.sum().backward()
    assert_array_equal(new.grad, np.ones(new.shape))
    keys, values = cache.append(Tensor(k[:, :, 2:]).detach(), v[:, :, 2:])
    assert_array_equal(raw(keys), k)
    assert_array_equal(raw(values), v)


# -- stacks ----------------------------------------------------------------------------------------


def config(**changes):
    return nn.LayerConfig(**{"d_model": 6, "num_heads": 2, "d_ff": 8, "dropout": 0.0, **changes})


def stack(module, seed=0):
    rng = np.random.default_rng(seed)
    return randomized(module, rng), rng.standard_normal((2, 3, 6)), rng.standard_normal((2, 4, 6))


@pytest.mark.parametrize("activation", nn.ACTIVATIONS)
def test_activations_by_value(activation):
    x = np.array([1.0, 2.0, -1.0])
    wanted = {  # R13, parity.md
        "relu": [1, 2, 0],
        "silu": [0.7310586, 1.7615942, -0.2689414],
        "swish": [0.7310586, 1.7615942, -0.2689414],
        "gelu": [0.8413447, 1.9544997, -0.1586553],
        "gelu_new": [0.8411920, 1.9545977, -0.1588080],
        "gelu_pytorch_tanh": [0.8411920, 1.9545977, -0.1588080],
    }
    assert_allclose(nn.ACTIVATIONS[activation](x).data, wanted[activation], atol=1e-7)


def test_gated_feed_forward_activates_the_gate():
    module = nn.FeedForward(config(d_model=1, num_heads=1, d_ff=1, activation="gelu_new", gated=1))
    module.gate.weight.data = module.down.weight.data = np.ones((1, 1), np.float32)
    module.up.weight.data = np.full((1, 1), 2, np.float32)
    assert_allclose(module(np.ones((1, 1), np.float32)).data, [[1.682384]], atol=1e-6)


def test_feed_forward_drops_after_the_activation():
    module, x, _ = stack(nn.FeedForward(config(activation_dropout=1.0)))
    assert_allclose(module(x).data, np.broadcast_to(module.down.bias.data, x.shape))
    assert (module.eval()(x).data != module.down.bias.data).any()


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("norm, kind", [("layer", nn.LayerNorm), ("rms", nn.RMSNorm)])
def test_a_layer_is_its_sublayers_with_residuals_and_norms(norm_first, norm, kind):
    layer, x, memory = stack(nn.Layer(config(norm_first=norm_first, norm=norm), True))
    mask, memory_mask = masks.causal(), masks.padding([[1, 1, 0, 1], [1, 1, 1, 0]])
    relative = np.random.default_rng(1).standard_normal((2, 5))
    sublayers = (
        (lambda y: layer.attention(y, mask=mask, relative_bias=relative), layer.attention_norm),
        (lambda y: layer.cross(y, memory, memory_mask), layer.cross_norm),
        (layer.feed_forward, layer.feed_forward_norm),
    )
    y = x
    for sublayer, its_norm in sublayers:
        assert type(its_norm) is kind
        y = y + sublayer(its_norm(y)).data if norm_first else its_norm(y + sublayer(y)).data
    assert_allclose(layer(x, mask, relative, memory, memory_mask).data, y, atol=1e-12)


def test_the_switches_reach_every_block():
    layer = nn.Layer(config(head_dim=5, scale=0.7, attention_dropout=0.3, eps=0.2), True)
    for attention in (layer.attention, layer.cross):
        assert (attention.head_dim, attention.scale, attention.dropout) == (5, 0.7, 0.3)
        assert attention.out.weight.shape == (6, 10)
    for norm in (layer.attention_norm, layer.cross_norm, layer.feed_forward_norm):
        assert norm.eps == 0.2
    stacks = nn.Encoder(config(eps=0.2), 1, True), nn.Decoder(config(eps=0.2), 1, True, True)
    assert [stack.norm.eps for stack in stacks] == [0.2, 0.2]


def test_r23_one_relative_bias_reaches_all_layers_of_a_stack():
    for kind, options in ((nn.Encoder, {}), (nn.Decoder, {"cross_attention": False})):
        bias = relative_bias(kind is nn.Encoder)
        module, x, _ = stack(kind(config(), 2, relative_bias=bias, **options))
        y = x
        for layer in module.layers:
            y = layer(y, relative_bias=bias(3, 3)).data
        assert_allclose(module(x).data, y, atol=1e-12)
        module.relative_bias = None
        assert (module(x).data != y).any()


def test_a_layer_drops_each_sublayer_and_never_the_residual():
    layer, x, memory = stack(nn.Layer(config(dropout=1.0, norm_first=True), True))
    assert_array_equal(layer(x, memory=memory).data, x)


@pytest.mark.parametrize("kind", [nn.Encoder, nn.Decoder])
@pytest.mark.parametrize(
    "norm_first, final_norm, wanted",
    [
        (False, None, False),
        (True, None, True),
        (False, True, True),
        (True, False, False),
    ],
)
def test_the_final_norm(kind, norm_first, final_norm, wanted):
    options = {} if kind is nn.Encoder else {"cross_attention": False}
    module, x, _ = stack(kind(config(norm_first=norm_first), 2, final_norm=final_norm, **options))
    y = x
    for layer in module.layers:
        y = layer(y).data
    assert (module.norm is not None) == wanted
    assert_allclose(module(x).data, module.norm(y).data if wanted else y, atol=1e-12)


def test_bias_off_leaves_no_bias_but_the_norms():
    decoder = nn.Decoder(config(bias=False, gated=True), 1)
    biases = {name for name, _ in decoder.named_parameters() if name.endswith("bias")}
    norms = ("attention_norm", "cross_norm", "feed_forward_norm")
    assert biases == {f"layers.0.{norm}.bias" for norm in norms}


def test_without_cross_attention_a_decoder_has_no_trace_of_it():
    decoder = nn.Decoder(config(), 2, cross_attention=False)
    assert not any("cross" in name for name, _ in decoder.named_parameters())
    assert decoder.caches(2, 5)[0].cross is None


def test_stacks_hand_out_the_weights_of_each_layer():
    encoder, x, memory = stack(nn.Encoder(config(), 2))
    seen = []
    encoder(x, masks.causal(), weights=seen)
    assert [w.shape for w in seen] == [(2, 2, 3, 3)] * 2
    decoder, x, memory = stack(nn.Decoder(config(), 2))
    own, across = [], []
    decoder(x, masks.causal(), memory, weights=(own, across))
    assert [w.shape for w in own + across] == [(2, 2, 3, 3)] * 2 + [(2, 2, 3, 4)] * 2
    assert (np.triu(own[0], 1) == 0).all()


@pytest.mark.parametrize("relative", [False, True])
def test_a_decoder_with_caches_gives_what_it_gives_at_once(relative):
    bias = relative_bias(False) if relative else None
    decoder, x, memory = stack(nn.Decoder(config(norm_first=True), 2, relative_bias=bias))
    memory_mask = masks.padding([[1, 1, 0, 1], [1, 1, 1, 0]])
    with no_grad():
        whole = decoder(x, masks.causal(), memory, memory_mask).data
        caches = decoder.caches(2, 3, 4)
        steps = [
            decoder(x[:, i : i + 1], masks.causal(), memory, memory_mask, caches=caches).data
            for i in range(3)
        ]
    assert_allclose(np.concatenate(steps, 1), whole, atol=1e-12)


def test_evaluation_has_no_dropout_anywhere():
    rates = {"dropout": 0.5, "attention_dropout": 0.5, "activation_dropout": 0.5}
    decoder, x, memory = stack(nn.Decoder(config(**rates), 2))
    plain, _, _ = stack(nn.Decoder(config(), 2))
    assert_array_equal(decoder.eval()(x, None, memory).data, plain(x, None, memory).data)
    assert (decoder.train()(x, None, memory).data != plain(x, None, memory).data).any()


@pytest.mark.parametrize("bad", [{"activation": "tan"}, {"norm": "batch"}])
def test_unknown_switches_name_the_known_ones(bad):
    (value,) = bad.values()
    with pytest.raises(ValueError, match=f"'{value}' is unknown: use .*(relu|rms)"):
        config(**bad)


# -- Module ----------------------------------------------------------------------------------------


class Pair(nn.Module):
    """Two names for one table, and layers in a list."""

    def __init__(self):
        self.table = nn.Embedding(3, 2)
        self.head = self.table
        self.layers = [nn.Linear(2, 2), nn.Dropout(0.5), nn.Linear(2, 2, bias=False)]
        self.scale = nn.Parameter(np.ones(2, np.float32))
        self.nothing = None


NAMES = ["scale", "table.weight", "layers.0.weight", "layers.0.bias", "layers.2.weight"]


def test_names_and_shared_parameters():
    model = Pair()
    assert [name for name, _ in model.named_parameters()] == NAMES
    assert len(model.parameters()) == len({id(p) for p in model.parameters()}) == len(NAMES)
    assert list(model.state_dict()) == NAMES


def test_modules_walks_the_tree():
    model = Pair()
    names = [name for name, _ in model.children()]
    assert names == ["table", "head", "layers.0", "layers.1", "layers.2"]
    assert next(model.modules()) is model


def test_state_dict_goes_round():
    tinyfm.manual_seed(1)
    model, other = Pair(), Pair()
    other.load_state_dict(model.state_dict())
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert_array_equal(a.data, b.data, strict=True)
        assert not np.shares_memory(a.data, b.data)


def test_state_dict_cannot_be_written_through():
    with pytest.raises(ValueError, match="read-only"):
        Pair().state_dict()["scale"][0] = 5


def test_loading_converts_to_the_parameters_dtype():
    model = nn.Linear(2, 1)
    model.load_state_dict({"weight": np.array([[1.0, 2.0]]), "bias": np.array([3], np.int64)})
    assert [p.dtype for p in model.parameters()] == [np.float32, np.float32]
    assert_array_equal(model.weight.data, [[1, 2]])


def test_loading_takes_lists_and_tensors():
    model = nn.Linear(2, 1)
    model.load_state_dict({"weight": [[1, 2]], "bias": tinyfm.tensor([3.0])})
    assert_array_equal(model.weight.data, np.float32([[1, 2]]), strict=True)
    assert_array_equal(model.bias.data, np.float32([3]), strict=True)
    there = tinyfm.tensor(standin.asarray(np.float32([4])))  # as on another device
    model.load_state_dict({"weight": [[1, 2]], "bias": there})
    assert_array_equal(model.bias.data, np.float32([4]), strict=True)
    with pytest.raises(ValueError, match=r"weight is \(2,\) instead of \(1, 2\)"):
        model.load_state_dict({"weight": tinyfm.tensor([1.0, 2.0]), "bias": [3]})


def test_loading_tells_all_that_does_not_fit_in_one_error_and_changes_nothing():
    model = Pair()
    before = {name: x.copy() for name, x in model.state_dict().items()}
    state = {name: x + 1 for name, x in before.items()}
    del state["layers.0.bias"]
    state["extra"] = np.zeros(1)
    state["table.weight"] = np.zeros((4, 2))
    with pytest.raises(ValueError) as caught:
        model.load_state_dict(state)
    message = str(caught.value)
    assert message.startswith("Pair cannot take these values: ")
    for problem in (
        "missing layers.0.bias",
        "unexpected extra",
        "table.weight is (4, 2) instead of (3, 2)",
    ):
        assert problem in message
    for name, x in model.state_dict().items():
        assert_array_equal(x, before[name])


def test_loading_between_forward_and_backward_is_noticed():
    model = nn.Linear(2, 1)
    y = model(np.ones((1, 2), np.float32)).sum()
    model.load_state_dict(model.state_dict())
    with pytest.raises(RuntimeError, match="written since"):
        y.backward()


def test_train_and_eval_reach_all_below():
    model = Pair()
    assert all(m.training for m in model.modules())
    assert model.eval() is model
    assert not any(m.training for m in model.modules())
    assert all(m.training for m in model.train().modules())


def test_ctrl_c_on_the_way_to_evaluation_leaves_the_modes():
    class Interrupted(Pair):
        def eval(self):
            super().eval()
            raise KeyboardInterrupt

    model = Interrupted()
    with pytest.raises(KeyboardInterrupt), model.evaluating():
        pass
    assert all(m.training for m in model.modules())


def test_to_keeps_parameter_objects_and_ties():
    model = Pair()
    model.table.weight.grad = np.ones((3, 2), np.float32)
    before = model.parameters()
    values = [p.data.copy() for p in before]
    assert model.to(dtype=np.float64) is model
    assert [id(p) for p in model.parameters()] == [id(p) for p in before]
    assert model.head.weight is model.table.weight
    assert model.table.weight.grad is None  # of the old dtype
    for p, value in zip(before, values, strict=True):
        assert_array_equal(p.data, value.astype(np.float64), strict=True)
    model.to("cpu")
    with pytest.raises(ValueError, match="device 'tpu' is unknown"):
        model.to("tpu")


def test_frozen_parameters_have_no_gradient_no_decay_and_no_moments():
    model = nn.Linear(2, 2)
    model.weight.requires_grad = False
    before = model.weight.data.copy()
    optimizer = optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        model(np.ones((1, 2), np.float32)).sum().backward()
        assert model.weight.grad is None
        optimizer.step()
    assert_array_equal(model.weight.data, before)
    assert optimizer.state[0] == {} and optimizer.state[1]["t"] == 2
    assert model.weight is model.parameters()[0]  # still a parameter, and saved
    assert "weight" in model.state_dict()


def test_frozen_after_a_gradient_came_is_left_alone_too():
    model = nn.Linear(2, 2)
    model(np.ones((1, 2), np.float32)).sum().backward()
    model.weight.requires_grad = False
    before = model.weight.data.copy()
    optim.AdamW(model.parameters(), lr=0.1).step()
    assert_array_equal(model.weight.data, before)


def test_calling_a_module_without_forward():
    with pytest.raises(NotImplementedError, match="Pair defines no forward"):
        Pair()()


# -- counting without memory -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "preset, count",
    [
        (models.TransformerConfig.base, 63_082_496),
        (models.TransformerConfig.big, 214_245_376),
    ],
)
def test_parameters_of_published_sizes_are_counted_without_allocating(preset, count):
    tracemalloc.start()
    try:
        assert models.num_parameters(preset(), models.Transformer) == count
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000  # the weights are 250 and 860 MB


def test_without_memory_ends_with_its_block():
    with pytest.raises(RuntimeError, match="stop"), nn.without_memory():
        assert nn.Linear(3, 4).weight.data.strides == (0, 0)
        raise RuntimeError("stop")
    assert nn.Linear(3, 4).weight.data.strides == (12, 4)


def test_without_memory_stops_where_there_are_too_many_parameters():
    with nn.without_memory(most=3):
        layer = nn.Linear(3, 4)
        norm = nn.LayerNorm(4, bias=False)
        with pytest.raises(ValueError, match="more than 3 parameter arrays are asked for"):
            nn.Linear(3, 4)
    assert layer.weight.data.strides == norm.weight.data.strides[:1] * 2 == (0, 0)
    with nn.without_memory(most=2), nn.without_memory():  # each block has its own count
        nn.FeedForward(nn.LayerConfig(d_model=4, num_heads=2, d_ff=8))
    nn.Linear(3, 4)


# -- wrong sizes and moves ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: nn.Dropout(2.0), ValueError, "dropout p is 2.0"),
        (lambda: nn.MultiHeadAttention(8, 0), ValueError, "num_heads is 0"),
        (lambda: nn.Linear(2, 2).to(np.float64), TypeError, r"to\(dtype=\.\.\.\)"),
        (lambda: nn.Linear(2, 2).to(dtype=int), TypeError, "floating-point"),
        (lambda: nn.Linear(2, 2).to("tpu"), ValueError, "device 'tpu' is unknown"),
    ],
)
def test_wrong_sizes_and_moves_say_what_is_wrong(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.skipif(tinyfm.cuda.status()[0], reason="there is a GPU")
def test_a_move_to_a_gpu_that_is_not_there_gives_the_reason():
    with pytest.raises(RuntimeError, match=r"device 'cuda': .*use 'cpu'"):
        nn.Linear(2, 2).to("cuda")


def test_packed_projections_start_like_separate_ones():
    tinyfm.manual_seed(0)
    attention = nn.MultiHeadAttention(64, 4)
    bound = math.sqrt(6 / (64 + 64))  # Xavier of each (64, 64), not of (192, 64)
    for part in np.split(attention.qkv.weight.data, 3):
        assert 0.98 * bound < np.abs(part).max() <= bound


def test_a_cache_in_a_graph_is_reordered_without_writing_into_it():
    tinyfm.manual_seed(1)
    attention, x = nn.MultiHeadAttention(4, 2).to(dtype=np.float64), np.random.default_rng(0)
    first, second = (tensor(x.standard_normal((2, 1, 4)), requires_grad=True) for _ in range(2))

    def both(first, second):
        cache = attention.cache(2, 2)
        early = attention(first, cache=cache)
        cache.reorder(np.array([1, 0]))
        return early, attention(second, cache=cache)

    assert gradcheck(both, first, second)
