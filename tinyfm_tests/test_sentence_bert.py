"""Vectors of sentences, and learning from how alike they are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import tinyfm
from tinyfm import models
from tinyfm.models.sentence_bert import CosineRegression, mean_pool


def test_mean_pool_by_hand():
    hidden = tinyfm.tensor([[[1.0, 2.0], [3.0, 6.0], [90.0, 90.0]], [[5.0, 7.0]] * 3])
    pooled = mean_pool(hidden, np.array([[1, 1, 0], [0, 0, 0]]))
    np.testing.assert_allclose(pooled.data, [[2, 4], [0, 0]])
    assert pooled.dtype == np.float32


@given(st.integers(1, 5), st.integers(0, 4), st.integers(0, 4), st.integers(0, 99))
def test_r17_padding_never_changes_a_vector(length, before, after, seed):
    """Whatever stands there, and on whichever side."""
    rng = np.random.default_rng(seed)
    hidden = rng.standard_normal((2, length, 3))
    noise = [1e6 * rng.standard_normal((2, n, 3)) for n in (before, after)]
    padded = np.concatenate([noise[0], hidden, noise[1]], axis=1)
    mask = np.repeat([[0] * before + [1] * length + [0] * after], 2, axis=0)
    pooled = mean_pool(tinyfm.tensor(padded), mask)
    np.testing.assert_allclose(pooled.data, hidden.mean(1), atol=1e-12)


def test_the_gradient_goes_to_real_tokens_alone():
    hidden = tinyfm.tensor(np.ones((1, 4, 2)), requires_grad=True)
    mask = np.array([[0, 1, 1, 0]])
    mean_pool(hidden, mask).sum().backward()
    np.testing.assert_allclose(hidden.grad[0, :, 0], [0, 0.5, 0.5, 0])
    assert tinyfm.gradcheck(lambda x: mean_pool(x, mask), hidden)


@pytest.mark.parametrize("kind", [bool, np.int32, np.float64])
def test_masks_of_any_kind(kind):
    hidden = tinyfm.tensor(np.arange(6.0).reshape(1, 3, 2))
    pooled = mean_pool(hidden, np.array([[1, 0, 1]]).astype(kind))
    np.testing.assert_allclose(pooled.data, [[2, 3]])
    assert pooled.dtype == np.float64


def test_the_loss_is_the_squared_error_of_the_cosine():
    """By hand from the vectors of both texts, each read alone."""
    config = models.BertConfig(
        vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    body = models.BertModel(config, pooler=False).to(dtype=np.float64).eval()
    ids = np.array([[[1, 2, 3], [4, 5, 0]], [[6, 7, 0], [6, 7, 0]]])
    mask = np.array([[[1, 1, 1], [1, 1, 0]], [[1, 1, 0], [1, 1, 0]]])
    output = CosineRegression(body)(ids, mask, labels=np.array([0.25, 0.5]))
    a, b = (
        body([ids[0, i, :n]]).last_hidden_state.data[0].mean(axis=0) for i, n in ((0, 3), (1, 2))
    )
    wanted = np.array([a @ b / np.linalg.norm(a) / np.linalg.norm(b), 1])
    assert_allclose(output.cosine.data, wanted, rtol=1e-12)
    assert_allclose(output.loss.item(), ((wanted - [0.25, 0.5]) ** 2).mean(), rtol=1e-12)
    assert output.num_labels == 2
