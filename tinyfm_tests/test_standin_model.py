"""Whole models with their training steps and their decoding on stand-in arrays, against NumPy's.

What only a GPU would show otherwise: a NumPy array that strays into the model, an implicit wait
for the device, a function that CuPy lacks.
"""

import numpy as np
import pytest

import tinyfm
from tinyfm import models, optim, training
from tinyfm_tests import standin

IDS = np.array([[3, 4, 5, 2], [6, 7, 2, 0]])
REAL = np.array([[1, 1, 1, 1], [1, 1, 1, 0]])
TEXT = {"input_ids": IDS, "attention_mask": REAL}
WORDS = np.where(REAL, IDS, -100)
PROMPTS = {"input_ids": IDS[:, ::-1], "attention_mask": REAL[:, ::-1]}  # padded on the left
BOTH_ORDERS = {name: np.stack([x, x[:, ::-1]], 1) for name, x in (TEXT | {"labels": WORDS}).items()}

NO_DROPOUT = {
    "BERT": dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0),
    "GPT": dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop", "summary_first_dropout"), 0.0),
}


def transformer(**switches):
    sides = {"layers": 2, "attention_heads": 2, "ffn_dim": 12}
    sizes = {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in sides.items()}
    config = models.TransformerConfig(
        vocab_size=11, d_model=8, dropout=0.0, max_position_embeddings=20, **sizes, **switches
    )
    return models.Transformer(config)


def bart(cls, **changes):
    sizes = {"layers": 2, "attention_heads": 2, "ffn_dim": 12}
    sizes = {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in sizes.items()}
    sizes |= {"vocab_size": 11, "d_model": 8, "max_position_embeddings": 20}
    options = {"dropout": 0.0, "pad_token_id": 0, "activation_function": "gelu_new"}
    return cls(cls.config_class(**sizes | options | changes))


def bert(cls, config=models.BertConfig):
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 12, "max_position_embeddings": 20}
    sizes |= {"hidden_act": "gelu_new"}  # erf, which is cupyx's, has its turn in test_standin.py
    return cls(config(vocab_size=11, **sizes, **NO_DROPOUT["BERT"]))


def gpt(cls, config=models.GPT2Config):
    sizes = {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 20}
    return cls(config(vocab_size=11, **sizes, **NO_DROPOUT["GPT"], eos_token_id=2, pad_token_id=0))


def t5():
    sizes = {"d_model": 8, "d_kv": 3, "d_ff": 12, "num_layers": 2, "num_heads": 2}
    kind = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    config = models.T5Config(vocab_size=11, dropout_rate=0.0, **sizes, **kind)
    return models.T5ForConditionalGeneration(config)


TRANSFORMER = TEXT | {"labels": np.array([[8, 9, 2], [5, 2, -100]])}
# Each model with inputs and labels.
MODELS = {
    "Transformer": (transformer, TRANSFORMER),
    "Transformer, modern": (
        lambda: transformer(positions="learned", share_embeddings=False, norm_first=True),
        TRANSFORMER,
    ),
    "BART": (lambda: bart(models.BartForConditionalGeneration), TRANSFORMER),
    "BART, classes": (
        lambda: bart(models.BartForSequenceClassification),
        TEXT | {"labels": np.array([1, 0])},
    ),
    "BART, answers": (
        lambda: bart(models.BartForQuestionAnswering),
        TEXT | {"start_positions": np.array([1, 0]), "end_positions": np.array([2, 1])},
    ),
    "BART, foreign": (
        lambda: bart(models.BartForTranslation, source_vocab_size=9, source_layers=1),
        TRANSFORMER,
    ),
    "T5": (t5, TRANSFORMER),
    "BERT": (
        lambda: bert(models.BertForPreTraining),
        TEXT
        | {"labels": np.array([[-100, 4, -100, 2], [-100, -100, 8, -100]])}
        | {"token_type_ids": np.array([[0, 0, 1, 1]] * 2), "next_sentence_label": np.array([0, 1])},
    ),
    "RoBERTa": (
        lambda: bert(models.RobertaForSequenceClassification, models.RobertaConfig),
        TEXT | {"labels": np.array([1, 0])},
    ),
    "GPT-2": (lambda: gpt(models.GPT2LMHeadModel), PROMPTS | {"labels": WORDS[:, ::-1]}),
    "GPT-1, both orders": (
        lambda: gpt(models.OpenAIGPTForSequenceClassification, models.OpenAIGPTConfig),
        BOTH_ORDERS | {"labels": np.array([1, 0]), "lm_labels": BOTH_ORDERS["labels"]},
    ),
    "GPT-1, choices": (
        lambda: gpt(models.OpenAIGPTDoubleHeadsModel, models.OpenAIGPTConfig),
        BOTH_ORDERS | {"mc_labels": np.array([1, 0]), "token_type_ids": BOTH_ORDERS["input_ids"]},
    ),
}
# Those that generate, with sources or prompts.
GENERATORS = {"Transformer": TEXT, "Transformer, modern": TEXT, "GPT-2": PROMPTS}
GENERATORS |= dict.fromkeys(("BART", "BART, foreign", "T5"), TEXT)
each_model = pytest.mark.parametrize("name", MODELS)
each_generator = pytest.mark.parametrize("name", GENERATORS)


def new_model(name, on_device):
    tinyfm.manual_seed(3)
    model = MODELS[name][0]()
    if on_device:
        for p in model.parameters():
            p._data = standin.asarray(p._data)
    return model


def get(x):
    x = x._data if isinstance(x, tinyfm.Tensor) else x
    return x.get() if isinstance(x, standin.ndarray) else x


@each_model
def test_training_steps_on_stand_ins_equal_those_of_numpy(name):
    losses, weights = [], []
    for on_device in (False, True):
        model = new_model(name, on_device)
        optimizer = optim.AdamW(model.parameters(), 1e-2, eps=1e-2, decay=lambda p: p.ndim > 1)
        history = training.fit(
            model, [MODELS[name][1]] * 6, optimizer, optim.constant(), 3, accumulate=2, clip=0.5
        )
        losses.append([record["loss"] for record in history])
        weights.append(model.state_dict())
        kind = standin.ndarray if on_device else np.ndarray
        assert {type(p._data) for p in model.parameters()} == {kind}
        state = [x for s in optimizer.state for name, x in s.items() if name != "t"]
        assert {type(x) for x in state} == {kind}
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    for key in weights[0]:
        np.testing.assert_allclose(weights[1][key], weights[0][key], rtol=1e-3, atol=1e-5)


@each_model
def test_outputs_and_attentions_on_stand_ins_equal_those_of_numpy(name):
    outputs = []
    for on_device in (False, True):
        model = new_model(name, on_device).eval()
        out = model(**MODELS[name][1], output_attentions=True)
        fields = [getattr(out, field) for field in out._fields]
        arrays = [x for field in fields for x in (field if isinstance(field, list) else [field])]
        outputs.append([*map(get, arrays), get(out.loss), out.num_labels])
        assert len(arrays) > 3
    for ours, reference in zip(outputs[1], outputs[0], strict=True):
        np.testing.assert_allclose(ours, reference, atol=1e-5)


@pytest.mark.parametrize("use_cache", [True, False])
@each_generator
def test_greedy_decoding_on_stand_ins_equals_that_of_numpy(name, use_cache):
    ids = [
        new_model(name, on_device).generate(
            **GENERATORS[name], max_new_tokens=6, use_cache=use_cache, eos_token_id=-1
        )
        for on_device in (False, True)
    ]
    assert ids[0].shape == (2, 10 if name == "GPT-2" else 7)
    np.testing.assert_array_equal(ids[1], ids[0])


@pytest.mark.parametrize("name", ["Transformer", "BERT", "GPT-2"])
def test_a_bad_id_is_found_on_the_host_before_it_is_uploaded(name):
    with pytest.raises(IndexError, match="id 11 is outside the vocabulary of 11"):
        new_model(name, True)(input_ids=np.array([[3, 11]]), labels=np.array([[2, 2]]))


@each_generator
def test_a_state_is_reordered_by_rows_from_the_host(name):
    prompt = PROMPTS["input_ids"] if name == "GPT-2" else np.array([[1], [1]])
    for on_device in (False, True):
        model = new_model(name, on_device).eval()
        with tinyfm.no_grad():
            state = model.begin(**GENERATORS[name], rows=np.arange(2), max_length=5)
            model.step(prompt, state)
            state.reorder(np.array([1, 1]))
            logits = get(model.step(np.array([[8], [8]]), state))
        np.testing.assert_allclose(logits[0], logits[1], atol=1e-6)
