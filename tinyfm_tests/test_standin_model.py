"""A whole model with its training step and its decoding on stand-in arrays, against NumPy's.

What only a GPU would show otherwise: a NumPy array that strays into the model, an implicit wait
for the device, a function that CuPy lacks.
"""

import numpy as np
import pytest

import tinyfm
from tinyfm import models, optim, training
from tinyfm_tests import standin

BATCH = {
    "input_ids": np.array([[3, 4, 5, 2], [6, 7, 2, 0]]),
    "attention_mask": np.array([[1, 1, 1, 1], [1, 1, 1, 0]]),
    "labels": np.array([[8, 9, 2], [5, 2, -100]]),
}


def new_model(on_device, **switches):
    tinyfm.manual_seed(3)
    sides = {"layers": 2, "attention_heads": 2, "ffn_dim": 12}
    sizes = {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in sides.items()}
    config = models.TransformerConfig(
        vocab_size=11, d_model=8, dropout=0.0, max_position_embeddings=20, **sizes, **switches
    )
    model = models.Transformer(config)
    if on_device:
        for p in model.parameters():
            p._data = standin.asarray(p._data)
    return model


SWITCHES = [{}, {"positions": "learned", "share_embeddings": False, "norm_first": True}]


@pytest.mark.parametrize("switches", SWITCHES)
def test_training_steps_on_stand_ins_equal_those_of_numpy(switches):
    losses, weights = [], []
    for on_device in (False, True):
        model = new_model(on_device, **switches)
        optimizer = optim.AdamW(model.parameters(), 1e-2, eps=1e-2, decay=lambda p: p.ndim > 1)
        history = training.fit(
            model, [BATCH] * 6, optimizer, optim.constant(), 3, accumulate=2, clip=0.5
        )
        losses.append([record["loss"] for record in history])
        weights.append(model.state_dict())
        kind = standin.ndarray if on_device else np.ndarray
        assert {type(p._data) for p in model.parameters()} == {kind}
        state = [x for s in optimizer.state for name, x in s.items() if name != "t"]
        assert {type(x) for x in state} == {kind}
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    for name in weights[0]:
        np.testing.assert_allclose(weights[1][name], weights[0][name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("switches", SWITCHES)
def test_logits_and_attentions_on_stand_ins_equal_those_of_numpy(switches):
    outputs = []
    for on_device in (False, True):
        model = new_model(on_device, **switches).eval()
        out = model(**BATCH, output_attentions=True)
        outputs.append([out.logits.numpy(), *map(get, out.cross_attentions), out.num_labels])
    for ours, reference in zip(outputs[1], outputs[0], strict=True):
        np.testing.assert_allclose(ours, reference, atol=1e-5)


def get(x):
    return x.get() if isinstance(x, standin.ndarray) else x


@pytest.mark.parametrize("use_cache", [True, False])
def test_greedy_decoding_on_stand_ins_equals_that_of_numpy(use_cache):
    ids = [
        new_model(on_device).generate(
            BATCH["input_ids"], BATCH["attention_mask"], max_new_tokens=6, use_cache=use_cache
        )
        for on_device in (False, True)
    ]
    assert ids[0].shape == (2, 7)
    np.testing.assert_array_equal(ids[1], ids[0])


def test_a_bad_id_is_found_on_the_host_before_it_is_uploaded():
    with pytest.raises(IndexError, match="id 11 is outside the vocabulary of 11"):
        new_model(True)(input_ids=np.array([[3, 11]]), labels=np.array([[2]]))


def test_a_state_is_reordered_by_rows_from_the_host():
    for on_device in (False, True):
        model = new_model(on_device).eval()
        with tinyfm.no_grad():
            state = model.begin(BATCH["input_ids"], BATCH["attention_mask"], np.arange(2), 5)
            model.step(np.array([[1], [1]]), state)
            state.reorder(np.array([1, 1]))
            logits = get(model.step(np.array([[8], [8]]), state))
        np.testing.assert_allclose(logits[0], logits[1], atol=1e-6)
