"""FLOPs of a training step, against the matrix products that really run and counts by hand."""

import operator

import numpy as np
import pytest

import tinyfm
from tinyfm import models, nn
from tinyfm.data import IGNORE_INDEX
from tinyfm.models.flops import training_flops
from tinyfm_tests import standin

V, D = 13, 8


def transformer():
    sides = {"attention_heads": 2, "ffn_dim": 12}
    sizes = {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in sides.items()}
    layers = {"encoder_layers": 2, "decoder_layers": 3}
    return models.Transformer(
        models.TransformerConfig(vocab_size=V, d_model=D, dropout=0.0, **layers, **sizes)
    )


def gpt():
    sizes = {"vocab_size": V, "n_embd": D, "n_layer": 2, "n_head": 2, "n_inner": 12}
    rates = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    ends = {"bos_token_id": 1, "eos_token_id": 2}
    return models.GPT2LMHeadModel(models.GPT2Config(n_positions=9, **sizes, **rates, **ends))


def bart_with_a_source():
    sides = {"layers": 2, "attention_heads": 2, "ffn_dim": 12}
    sizes = {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in sides.items()}
    foreign = {"source_vocab_size": 7, "source_layers": 1, "max_position_embeddings": 9}
    return models.BartForTranslation(
        models.BartTranslationConfig(
            vocab_size=V, d_model=D, dropout=0.0, activation_function="relu", **foreign, **sizes
        )
    )


def t5():
    sizes = {"vocab_size": V, "d_model": D, "d_kv": 3, "num_heads": 2, "d_ff": 12}
    layers = {"num_layers": 2, "num_decoder_layers": 3}
    return models.T5ForConditionalGeneration(
        models.T5Config.v1_1("small", **sizes, **layers, dropout_rate=0.0)
    )


# Labels everywhere, but for the last position of GPT, which predicts nothing.
CASES = {
    "Transformer": (transformer, {"input_ids": np.full((3, 5), 4), "labels": np.full((3, 7), 6)}),
    "BART with a source encoder": (
        bart_with_a_source,
        {"input_ids": np.full((3, 5), 4), "labels": np.full((3, 7), 6)},
    ),
    "T5 1.1": (t5, {"input_ids": np.full((3, 5), 4), "labels": np.full((3, 7), 6)}),
    "GPT": (gpt, {"input_ids": np.full((3, 7), 4), "labels": np.full((3, 7), 6)}),
}


@pytest.fixture
def products(monkeypatch):
    """The operations of each product of two matrices on stand-in arrays, as they run."""
    call, counted = standin.call, []

    def counting(function, *args, **options):
        if function in (operator.matmul, np.matmul) and min(x.ndim for x in args) > 1:
            left, right = args
            batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
            counted.append(2 * int(np.prod((*batch, *left.shape[-2:], right.shape[-1]))))
        return call(function, *args, **options)

    monkeypatch.setattr(standin, "call", counting)
    return counted


@pytest.mark.parametrize("case", CASES)
def test_flops_are_those_of_the_products_that_run(case, products):
    new, batch = CASES[case]
    tinyfm.manual_seed(0)
    model = new()
    for p in model.parameters():
        p._data = standin.asarray(p._data)
    model(**batch).loss.backward()
    unlabelled = len(batch["labels"]) if case == "GPT" else 0
    on_the_cpu = sum(products) - 3 * 2 * unlabelled * V * D  # a GPU computes these too
    assert training_flops(model, batch) == on_the_cpu


@pytest.mark.parametrize("case", CASES)
def test_only_labels_cost_a_product_with_the_output_matrix(case):
    new, batch = CASES[case]
    labels = batch["labels"].copy()
    labels[:, -2:] = IGNORE_INDEX
    saved = training_flops(new(), batch) - training_flops(new(), batch | {"labels": labels})
    assert saved == 3 * 2 * (3 * 2) * V * D


def test_flops_of_gpt2_small_are_about_six_for_each_weight_and_token():
    """Kaplan et al. 2020, section 2.1: 6 N a token, and 12 n_layer d_model a key to look at."""
    with nn.without_memory():
        model = models.GPT2LMHeadModel(models.GPT2Config.small())
    ids = np.zeros((1, 1024), int)
    matrices = 12 * 12 * 768**2
    body = 1024 * (6 * matrices + 12 * 12 * 768 * 1024)
    head = 1023 * 6 * 50257 * 768
    assert training_flops(model, {"input_ids": ids, "labels": ids}) == body + head


def test_a_model_without_a_count_is_refused():
    with nn.without_memory():
        model = models.BertForMaskedLM(models.BertConfig())
    with pytest.raises(TypeError, match="no BertForMaskedLM: give an encoder-decoder"):
        training_flops(model, {"input_ids": [[1]], "labels": [[1]]})
