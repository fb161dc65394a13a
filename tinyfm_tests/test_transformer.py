"""The Transformer of 2017: the model, its generation, its folders, and torch beside it."""

import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import tinyfm
from tinyfm import InputError, gradcheck, masks, nn, no_grad, optim, pretrained, tensor
from tinyfm.generation import GenerationMixin
from tinyfm.models import Transformer, TransformerConfig

EXAMPLES = settings.default.max_examples
SIDES = ("encoder", "decoder")


def tiny_config(**changes):
    options = {"vocab_size": 11, "d_model": 8, "dropout": 0.0, "label_smoothing": 0.0}
    for side in SIDES:
        options |= {f"{side}_layers": 2, f"{side}_attention_heads": 2, f"{side}_ffn_dim": 12}
    return TransformerConfig(**options | changes)


def tiny(seed=0, dtype=np.float64, std=None, **changes):
    """A small model; with std, noise on every parameter, gains and biases too."""
    tinyfm.manual_seed(seed)
    model = Transformer(tiny_config(**changes)).to(dtype=dtype)
    rng = np.random.default_rng(seed)
    if std:
        for p in model.parameters():
            p.data = (p.data + std * rng.standard_normal(p.shape)).astype(dtype)
    return model


def example(rows=2, source=5, target=4, seed=0, vocab=11):
    """Ids without the specials 0, 1 and 2."""
    rng = np.random.default_rng(seed)
    return {
        "input_ids": rng.integers(3, vocab, (rows, source)),
        "labels": rng.integers(3, vocab, (rows, target)),
    }


# -- the model -------------------------------------------------------------------------------------


def test_shapes_of_a_worked_example():
    """features.md section 3: source (2, 10), target (2, 8), 8000 words."""
    model = tiny(dtype=np.float32, vocab_size=8000, d_model=32)
    output = model(**example(2, 10, 8, vocab=8000))
    assert output.encoder_last_hidden_state.shape == (2, 10, 32)
    assert output.logits.shape == (2, 8, 8000)
    assert output.loss.shape == ()
    assert output.num_labels == 16


def test_norms_come_after_the_residuals_and_none_at_the_end():
    model = tiny()
    assert model.encoder.norm is None and model.decoder.norm is None
    assert not any(layer.norm_first for layer in model.encoder.layers + model.decoder.layers)
    modern = tiny(norm_first=True)
    assert modern.encoder.norm is not None and modern.decoder.norm is not None


def test_presets():
    base, big = TransformerConfig.base(), TransformerConfig.big()
    for config, layers, width, heads, ffn, dropout in (
        (base, 6, 512, 8, 2048, 0.1),
        (big, 6, 1024, 16, 4096, 0.3),
    ):
        assert (config.d_model, config.dropout, config.label_smoothing) == (width, dropout, 0.1)
        assert (config.attention_dropout, config.activation_dropout) == (0, 0)
        for side in SIDES:
            names = ("layers", "attention_heads", "ffn_dim")
            got = [getattr(config, f"{side}_{name}") for name in names]
            assert got == [layers, heads, ffn]
    assert TransformerConfig.big(dropout=0.2).dropout == 0.2


def test_the_model_is_its_blocks():
    """E sqrt(d) + PE, the stacks with their masks, h E^T: put together by hand."""
    model, batch = tiny(std=0.5), example()
    table, pe = model.embedding.weight.data, nn.sinusoids(5, 8)
    attention_mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    seen = masks.padding(attention_mask)
    memory = model.encoder(table[batch["input_ids"]] * math.sqrt(8) + pe, seen).data
    ids = np.concatenate([np.ones((2, 1), int), batch["labels"][:, :-1]], 1)
    hidden = model.decoder(table[ids] * math.sqrt(8) + pe[:4], masks.causal(), memory, seen).data
    output = model(**batch, attention_mask=attention_mask)
    assert_allclose(output.encoder_last_hidden_state.data, memory, atol=1e-12)
    assert_allclose(output.logits.data, hidden @ table.T, atol=1e-12)


def test_learned_positions_are_added_and_learn():
    model, batch = tiny(positions="learned", max_position_embeddings=6), example()
    before = model(**batch).logits.data
    model(**batch).loss.backward()
    for table, used in ((model.encoder_positions, 5), (model.decoder_positions, 4)):
        grad = table.weight.grad
        assert (grad[:used] != 0).any(1).all() and (grad[used:] == 0).all()
    model.encoder_positions.weight.data = np.zeros((6, 8))
    assert not np.allclose(model(**batch).logits.data, before)
    with pytest.raises(ValueError, match="position 6 is asked for, and 6 are learned"):
        model(**example(source=7))
    with pytest.raises(ValueError, match="positions is 'rotary': it must be one of"):
        tiny(positions="rotary")


def test_dropout_is_on_both_embeddings_and_off_in_evaluation():
    """With a rate of 1 nothing of either sentence is left in the first layer's input."""
    model = tiny(std=0.5, dropout=1.0)
    sources, targets = example(seed=1), example(seed=2)
    mixed = {"input_ids": sources["input_ids"], "labels": targets["labels"]}
    of_one, of_other = model(**sources).logits.data, model(**mixed).logits.data
    assert_array_equal(of_one, of_other)
    model.eval()
    assert (model(**sources).logits.data != model(**mixed).logits.data).any()


# -- labels and losses -----------------------------------------------------------------------------


def test_labels_alone_are_shifted_right_for_the_decoder():
    model, batch = tiny(), example()
    labels = batch["labels"].copy()
    labels[1, 2:] = -100
    # <s> first, the last one dropped, padding where nothing is learnt.
    decoder_ids = np.array([[1, *labels[0, :3]], [1, labels[1, 0], labels[1, 1], 0]])
    implied = model(batch["input_ids"], labels=labels)
    explicit = model(batch["input_ids"], decoder_input_ids=decoder_ids, labels=labels)
    assert implied.loss.item() == explicit.loss.item()
    assert_array_equal(implied.logits.data, explicit.logits.data)
    assert implied.num_labels == 6


def test_without_target_there_is_a_clear_error():
    with pytest.raises(ValueError, match="give decoder_input_ids or labels"):
        tiny()(example()["input_ids"])


def test_lazy_logits_equal_explicit_ones():
    model, batch = tiny(), example()
    lazy = model(**batch)
    ids = np.concatenate([np.ones((2, 1), int), batch["labels"][:, :-1]], 1)
    explicit = model(batch["input_ids"], decoder_input_ids=ids)
    assert explicit.loss is None and explicit.num_labels is None
    assert explicit.logits.requires_grad and not lazy.logits.requires_grad
    assert_allclose(lazy.logits.data, explicit.logits.data, atol=1e-12)
    assert lazy.logits is lazy.logits  # computed once


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def test_the_loss_is_the_mean_over_labelled_tokens():
    """Not over sentences: the first has four labels, the second one (parity.md, trap 48)."""
    model, batch = tiny(), example()
    labels = batch["labels"]
    labels[1, 1:] = -100
    output = model(**batch)
    logs = log_softmax(output.logits.data)
    counted = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]
    wanted = np.mean([-logs[i, t, labels[i, t]] for i, t in counted])
    assert output.loss.item() == pytest.approx(wanted, rel=1e-12)
    assert output.num_labels == 5


def test_label_smoothing_is_for_training_only():
    model, batch = tiny(label_smoothing=0.1), example()
    logs = log_softmax(model(**batch).logits.data)
    nll = -np.take_along_axis(logs, batch["labels"][..., None], -1).mean()
    smoothed = 0.9 * nll - 0.1 * logs.mean()  # e / V on every class
    assert model(**batch).loss.item() == pytest.approx(smoothed, rel=1e-12)
    assert model.eval()(**batch).loss.item() == pytest.approx(nll, rel=1e-12)


def test_r30_padding_targets_change_neither_loss_nor_gradients():
    batch = example()
    wider = dict(batch, labels=np.pad(batch["labels"], ((0, 0), (0, 2)), constant_values=-100))
    results = []
    for given_batch in (batch, wider):
        model = tiny(label_smoothing=0.1)
        loss = model(**given_batch).loss
        loss.backward()
        results.append((loss.item(), [p.grad for p in model.parameters()]))
    assert results[1][0] == pytest.approx(results[0][0], rel=1e-12)
    for a, b in zip(results[0][1], results[1][1], strict=True):
        assert_allclose(b, a, atol=1e-12)


# -- tying -----------------------------------------------------------------------------------------


def test_one_matrix_serves_three_times():
    model = tiny()
    assert model.embedding.weight is model.decoder_embedding.weight is model.head.weight
    assert sum(p.shape == (11, 8) for p in model.parameters()) == 1
    untied = tiny(share_embeddings=False)
    tables = (untied.embedding, untied.decoder_embedding, untied.head)
    assert len({id(table.weight) for table in tables}) == 3


def test_the_shared_gradient_is_the_sum_of_the_three_uses():
    tied, untied, batch = tiny(std=0.3), tiny(share_embeddings=False), example()
    state = tied.state_dict()
    table = state["embedding.weight"]
    untied.load_state_dict(state | {"decoder_embedding.weight": table, "head.weight": table})
    losses = [model(**batch).loss for model in (tied, untied)]
    assert losses[0].item() == losses[1].item()
    for loss in losses:
        loss.backward()
    parts = [x.weight.grad for x in (untied.embedding, untied.decoder_embedding, untied.head)]
    assert all((part != 0).any() for part in parts)
    assert_allclose(tied.embedding.weight.grad, sum(parts), atol=1e-12)


def test_the_decoders_loss_reaches_the_source_embeddings():
    model, batch = tiny(share_embeddings=False), example(rows=1)
    model(**batch).loss.backward()
    reached = {i for i, row in enumerate(model.embedding.weight.grad) if (row != 0).any()}
    assert reached == set(batch["input_ids"].ravel())


@settings(max_examples=max(1, EXAMPLES // 33))
@given(
    seed=st.integers(0, 2**32 - 1),
    tied=st.booleans(),
    norm_first=st.booleans(),
    positions=st.sampled_from(["sinusoidal", "learned"]),
    smoothing=st.sampled_from([0.0, 0.1]),
    dropout=st.sampled_from([0.0, 0.2]),
)
def test_gradients_of_the_whole_model(seed, tied, norm_first, positions, smoothing, dropout):
    """Along directions in every parameter, the thrice-used table included; padding on both sides.

    No padding id stands in the target: its row is zero by decree (R15), not by measurement.
    """
    model = tiny(
        seed,
        std=0.5,
        share_embeddings=tied,
        norm_first=norm_first,
        positions=positions,
        label_smoothing=smoothing,
        activation_function="gelu",
        max_position_embeddings=5,
        encoder_layers=1,
        decoder_layers=1,
        **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), dropout),
    )
    batch = example(seed=seed)
    batch["labels"][1, 2:] = -100
    batch["decoder_input_ids"] = np.array([[1, 3, 4, 5], [1, 6, 7, 7]])
    batch["attention_mask"] = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])

    def loss(*_):
        tinyfm.manual_seed(1)
        return model(**batch).loss

    assert gradcheck(loss, *model.parameters(), max_entries=3, rtol=1e-4, atol=1e-6)


# -- who sees whom ---------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_r19_logits_never_depend_on_later_tokens(training, padded):
    model = tiny(std=0.4).train(training)
    source, ids = example()["input_ids"], example(target=8)["labels"]
    options = {}
    if padded:
        options["attention_mask"] = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]])
        options["decoder_attention_mask"] = np.array([[1] * 8, [1] * 7 + [0]])
    before = model(source, decoder_input_ids=ids, **options).logits.data
    changed = ids.copy()
    changed[:, 5] = 3 + (changed[:, 5] - 2) % 8  # another token
    after = model(source, decoder_input_ids=changed, **options).logits.data
    assert np.abs(after - before)[:, :5].max() == 0
    assert (np.abs(after - before)[:, 5].max(-1) > 1e-3).all()


def test_r22_source_padding_never_changes_the_logits():
    model, ids = tiny(std=0.4), np.array([[1, 4, 5]])
    alone = model(np.array([[5, 6, 7, 8]]), decoder_input_ids=ids).logits.data
    wide, mask = np.array([[5, 6, 7, 8, 1, 1]]), np.array([[1, 1, 1, 1, 0, 0]])
    assert_allclose(model(wide, mask, ids).logits.data, alone, atol=1e-12)
    assert np.abs(model(wide, None, ids).logits.data - alone).max() > 1e-2


def test_r22_no_gradient_reaches_source_padding():
    model = tiny(share_embeddings=False)
    wide, mask = np.array([[5, 6, 9, 9]]), np.array([[1, 1, 0, 0]])
    model(wide, mask, labels=np.array([[4, 5]])).loss.backward()
    assert (model.embedding.weight.grad[9] == 0).all()
    assert (model.embedding.weight.grad[5] != 0).any()


def test_a_padded_batch_equals_single_sentences():
    model = tiny(std=0.4)
    sources, targets = [[5, 6, 7, 8], [9, 3], [4, 10, 3]], [[3, 4], [5, 6, 7, 8], [9]]
    ids = np.array([s + [0] * (4 - len(s)) for s in sources])
    mask = np.array([[1] * len(s) + [0] * (4 - len(s)) for s in sources])
    labels = np.array([t + [-100] * (4 - len(t)) for t in targets])
    batch, total = model(ids, mask, labels=labels), 0.0
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        alone = model(np.array([source]), labels=np.array([target]))
        assert_allclose(batch.logits.data[i, : len(target)], alone.logits.data[0], atol=1e-12)
        total += alone.loss.item() * len(target)
    assert batch.loss.item() == pytest.approx(total / 7, rel=1e-12)


def test_a_mask_object_does_what_an_array_does():
    model, batch = tiny(), example()
    array = np.array([[1, 1, 1, 1, 0], [1, 0, 1, 0, 0]])
    target = np.array([[1, 1, 1, 0], [1, 1, 0, 0]])
    of_arrays = model(**batch, attention_mask=array, decoder_attention_mask=target)
    of_masks = model(
        **batch,
        attention_mask=masks.padding(array),
        decoder_attention_mask=masks.padding(target),
    )
    assert_array_equal(of_masks.logits.data, of_arrays.logits.data)


def test_a_mask_that_does_not_fit_says_so():
    with pytest.raises(ValueError, match=r"a mask of \(2, 4\) does not fit"):
        tiny()(**example(), attention_mask=np.ones((2, 4)))


def test_lists_do_as_arrays():
    model, batch = tiny(), example()
    lists = {name: ids.tolist() for name, ids in batch.items()}
    assert model(**lists).loss.item() == model(**batch).loss.item()


def test_output_attentions():
    model, batch = tiny(), example()
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    output = model(**batch, attention_mask=mask, output_attentions=True)
    kinds = {
        "encoder_attentions": (2, 2, 5, 5),
        "decoder_attentions": (2, 2, 4, 4),
        "cross_attentions": (2, 2, 4, 5),
    }
    for name, shape in kinds.items():
        layers = getattr(output, name)
        assert [w.shape for w in layers] == [shape] * 2
        assert_allclose([w.sum(-1) for w in layers], np.ones((2, *shape[:-1])))
    for w in output.encoder_attentions + output.cross_attentions:
        assert (w[1, ..., 3:] == 0).all()
    assert (np.triu(output.decoder_attentions[0], 1) == 0).all()
    plain = model(**batch, attention_mask=mask)
    assert not hasattr(plain, "cross_attentions")
    assert plain.loss.item() == output.loss.item()


# -- R32: sanity -----------------------------------------------------------------------------------


def small_model(vocab):
    """2 + 2 layers, width 64, float32."""
    widths = {f"{side}_ffn_dim": 128 for side in SIDES}
    heads = {f"{side}_attention_heads": 4 for side in SIDES}
    return tiny(dtype=np.float32, vocab_size=vocab, d_model=64, **widths, **heads)


@pytest.mark.parametrize("vocab", [100, 2000])
def test_r32_the_initial_loss_is_near_that_of_guessing(vocab):
    loss = small_model(vocab)(**example(4, 12, 12, vocab=vocab)).loss.item()
    assert math.log(vocab) < loss < math.log(vocab) + 1.0


@pytest.mark.parametrize("vocab", [100, 2000])
def test_r32_one_batch_is_overfitted(vocab):
    model, batch = small_model(vocab), example(4, 12, 12, vocab=vocab)
    optimizer = optim.Adam(model.parameters(), lr=3e-3)
    for step in range(1, 301):
        optimizer.zero_grad()
        loss = model(**batch).loss
        if loss.item() < 0.05:
            break
        loss.backward()
        optimizer.step(min(1.0, step / 20))
    assert loss.item() < 0.05
    other = example(4, 12, 12, seed=1, vocab=vocab)["input_ids"]
    ids = np.ones((4, 1), int)
    outputs = [model(x, decoder_input_ids=ids).logits.data for x in (batch["input_ids"], other)]
    assert np.abs(outputs[0] - outputs[1]).max() > 0.1


# -- generation ------------------------------------------------------------------------------------


class Scripted(nn.Module, GenerationMixin):
    """Says what its script says, row by row, and counts the steps."""

    def __init__(self, script, **config):
        self.script, self.steps = np.array(script), []
        names = {"eos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 1}
        self.config = type("Config", (), names | {"max_position_embeddings": 50} | config)

    def begin(self, input_ids, attention_mask, rows, max_length):
        assert_array_equal(rows, np.arange(len(input_ids)))
        return {"done": 0}

    def step(self, ids, state):
        state["done"] += ids.shape[1]
        self.steps.append(ids.shape)
        words = self.script[:, min(state["done"], self.script.shape[1]) - 1]
        return np.eye(10)[words]


SOURCE = np.zeros((1, 3), int)


def test_r59_a_row_is_padded_after_its_end_and_generation_stops_with_the_last_row():
    model = Scripted([[7, 2, 9, 9, 9, 9], [5, 6, 7, 8, 2, 9]])
    made = model.generate(np.zeros((2, 3), int), max_new_tokens=30)
    assert_array_equal(made, [[1, 7, 2, 0, 0, 0], [1, 5, 6, 7, 8, 2]])
    assert model.steps == [(2, 1)] * 5  # not 30


def test_later_steps_get_the_new_token_only_or_everything_without_a_cache():
    model = Scripted([[7, 8, 9, 2]])
    assert_array_equal(model.generate(SOURCE), [[1, 7, 8, 9, 2]])
    assert model.steps == [(1, 1)] * 4
    model.steps.clear()
    assert_array_equal(model.generate(SOURCE, use_cache=False), [[1, 7, 8, 9, 2]])
    assert model.steps == [(1, 1), (1, 2), (1, 3), (1, 4)]


@pytest.mark.parametrize(
    "options, length",
    [
        ({}, 21),  # 20 new tokens after the start
        ({"max_new_tokens": 3}, 4),
        ({"max_length": 3}, 3),
        ({"max_length": 1}, 1),
        ({"max_new_tokens": 0}, 1),
        ({"max_new_tokens": 4, "max_length": 2}, 5),
    ],
)
def test_lengths(options, length):
    made = Scripted([[7]]).generate(SOURCE, **options)
    assert made.shape == (1, length)
    assert made[0, 0] == 1 and (made[0, 1:] == 7).all()


@pytest.mark.parametrize("options", [{"max_length": 0}, {"max_new_tokens": -1}])
def test_lengths_that_make_no_sense(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"{name} is .*: it must be at least"):
        Scripted([[7]]).generate(SOURCE, **options)


def test_generation_stops_at_the_models_positions_and_says_so():
    model = Scripted([[7]], max_position_embeddings=6)
    with pytest.warns(UserWarning, match="stops at the model's 6 positions instead of 9"):
        made = model.generate(SOURCE, max_length=9)
    assert made.shape == (1, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.generate(SOURCE, max_length=6)


def test_special_ids_can_be_given():
    made = Scripted([[7, 8, 9], [5, 5, 5]]).generate(
        np.zeros((2, 3), int),
        max_new_tokens=3,
        eos_token_id=8,
        pad_token_id=4,
        decoder_start_token_id=6,
    )
    assert_array_equal(made, [[6, 7, 8, 4], [6, 5, 5, 5]])


def test_a_model_without_the_protocol_does_not_generate():
    class Mute(nn.Module, GenerationMixin):
        config = Scripted([[7]]).config

    with pytest.raises(NotImplementedError, match="Mute does not generate"):
        Mute().generate(SOURCE)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_r61_cache_on_and_off_give_the_same_tokens(seed, norm_first):
    model = tiny(seed, std=0.6, norm_first=norm_first, positions="learned").eval()
    source = example(3, seed=seed)["input_ids"]
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 1, 1, 0]])
    made = model.generate(source, mask, max_new_tokens=8)
    assert_array_equal(model.generate(source, mask, max_new_tokens=8, use_cache=False), made)


@pytest.mark.parametrize("sizes", [[1] * 6, [2, 3, 1], [5, 1], [6]])
def test_r21_r61_steps_give_the_logits_of_the_whole(sizes):
    model = tiny(std=0.4).eval()
    source, ids = example()["input_ids"], example(target=6)["labels"]
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    with no_grad():
        whole = model(source, mask, ids).logits.data
        state, end = model.begin(source, mask, np.arange(2), 6), 0
        for size in sizes:
            logits = model.step(ids[:, end : end + size], state)
            end += size
            assert type(logits) is np.ndarray
            assert_allclose(logits, whole[:, end - 1], atol=1e-12)


def test_r22_rows_may_repeat_a_source_and_be_reordered():
    """What beam search does: memory, mask and caches follow their rows."""
    model = tiny(std=0.4).eval()
    source, ids = example()["input_ids"], example(3, target=4)["labels"]
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    rows, order = np.array([0, 1, 1]), np.array([0, 2, 1])
    with no_grad():
        whole = model(source[rows], mask[rows], ids).logits.data
        state = model.begin(source, mask, rows, 4)
        model.step(ids[:, :3], state)
        state.reorder(order)
        logits = model.step(ids[order, 3:], state)
    assert_allclose(logits, whole[order, 3], atol=1e-12)


def test_greedy_takes_the_most_probable_token():
    model = tiny(std=0.5).eval()
    source = example(1)["input_ids"]
    made = model.generate(source, max_new_tokens=5, eos_token_id=-1)
    logits = model(source, decoder_input_ids=made[:, :-1]).logits.data
    assert_array_equal(made[:, 1:], logits.argmax(-1))


def test_a_padded_row_generates_what_it_generates_alone():
    model = tiny(std=0.6).eval()
    together = model.generate(
        np.array([[5, 6, 7, 8], [9, 3, 0, 0]]), np.array([[1, 1, 1, 1], [1, 1, 0, 0]])
    )
    for row, source in zip(together, ([[5, 6, 7, 8]], [[9, 3]]), strict=True):
        alone = model.generate(np.array(source))[0]
        assert_array_equal(row[: len(alone)], alone)
        assert (row[len(alone) :] == 0).all()


@pytest.mark.parametrize("mode", [True, False])
def test_r66_generate_has_no_dropout_records_nothing_and_restores_the_mode(mode, monkeypatch):
    model = tiny(std=0.5, dropout=0.5, attention_dropout=0.5).train(mode)
    source, steps, plain = example()["input_ids"], [], Transformer.step

    def step(self, ids, state):
        assert not any(m.training for m in self.modules())
        assert state.memory is None or not state.memory.requires_grad
        steps.append(ids)
        return plain(self, ids, state)

    monkeypatch.setattr(Transformer, "step", step)
    assert_array_equal(model.generate(source), model.generate(source))
    assert steps
    assert all(m.training is mode for m in model.modules())


def test_r66_the_mode_is_restored_when_generation_fails():
    model = tiny()
    with pytest.raises(IndexError, match="id 11 is outside the vocabulary of 11"):
        model.generate(np.array([[11]]))
    assert model.training
    assert model(**example()).loss.requires_grad


# -- folders ---------------------------------------------------------------------------------------


def saved(folder, **changes):
    model = tiny(dtype=np.float32, std=0.5, **changes).eval()
    model.save_pretrained(folder)
    return model


def change_config(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | changes), encoding="utf-8")


def complaint(folder, name):
    """The InputError that both ways of opening give: one line that names the file."""
    for opened in (Transformer.from_pretrained, pretrained.load):
        with pytest.raises(InputError) as caught:
            opened(folder)
        message = str(caught.value)
        assert "\n" not in message
        assert str(name) in message
    return message


@pytest.mark.parametrize("changes", [{}, {"share_embeddings": False, "positions": "learned"}])
@pytest.mark.parametrize("opened", [pretrained.load, Transformer.from_pretrained])
def test_saved_and_opened_gives_the_same_logits_bit_for_bit(changes, opened, tmp_path):
    model = saved(tmp_path / "new" / "folder", **changes)
    other = opened(tmp_path / "new" / "folder")
    assert type(other) is Transformer and not other.training
    assert other.config == model.config
    batch = example()
    assert_array_equal(other(**batch).logits.data, model(**batch).logits.data, strict=True)
    assert (other.embedding.weight is other.head.weight) == (not changes)


def test_opened_in_another_dtype(tmp_path):
    saved(tmp_path)
    model = pretrained.load(tmp_path, dtype=np.float64)
    assert {p.dtype for p in model.parameters()} == {np.dtype(np.float64)}


def test_the_folder_names_its_class_and_keeps_a_shared_table_once(tmp_path):
    from safetensors.numpy import load_file

    model = saved(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["Transformer"]
    assert (config["model_type"], config["d_model"]) == ("transformer", 8)
    assert load_file(tmp_path / "model.safetensors").keys() == model.state_dict().keys()


def test_a_config_ignores_unknown_keys():
    config = TransformerConfig.from_dict({"d_model": 64, "torch_dtype": "float16", "new": [1]})
    assert config == TransformerConfig(d_model=64)


def test_a_missing_folder(tmp_path):
    assert "no such folder" in complaint(tmp_path / "none", tmp_path / "none")


def test_a_folder_without_config(tmp_path):
    assert "config.json" in complaint(tmp_path, tmp_path)


def test_a_folder_without_weights(tmp_path):
    saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    complaint(tmp_path, tmp_path / "model.safetensors")


DAMAGED = ["{", "", "[]", '"x"', "[" * 10, '{"architectures": 5}', '{"architectures": [["x"]]}']


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_config(text, tmp_path):
    saved(tmp_path)
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    complaint(tmp_path, tmp_path / "config.json")


@pytest.mark.parametrize(
    "change",
    [
        {"d_model": 0},
        {"d_model": "wide"},
        {"d_model": 7},  # not a multiple of the heads
        {"encoder_attention_heads": 0},
        {"encoder_layers": 2.5},
        {"vocab_size": -1},
        {"pad_token_id": 10**6},
        {"eos_token_id": None},
        {"dropout": "x"},
        {"activation_function": ["relu"]},
        {"activation_function": "tan"},
        {"positions": 3},
    ],
    ids=str,
)
def test_a_config_with_impossible_values(change, tmp_path):
    saved(tmp_path)
    change_config(tmp_path, **change)
    complaint(tmp_path, tmp_path)


def test_damaged_weights(tmp_path):
    saved(tmp_path)
    path = tmp_path / "model.safetensors"
    for content in (path.read_bytes()[:-5], b"", b"nonsense"):
        path.write_bytes(content)
        complaint(tmp_path, path)


def test_weights_that_do_not_fit_the_config(tmp_path):
    saved(tmp_path)
    change_config(tmp_path, vocab_size=12)
    message = complaint(tmp_path, tmp_path)
    assert "embedding.weight is (11, 8) instead of (12, 8)" in message


def test_a_folder_of_another_class(tmp_path):
    saved(tmp_path)
    change_config(tmp_path, architectures=["BertModel"])
    assert "BertModel" in complaint(tmp_path, tmp_path / "config.json")


class Stopped(Exception):
    pass


@pytest.mark.parametrize("before", [True, False], ids=["over an old one", "new"])
@pytest.mark.parametrize("failing", ["weights", "config"])
def test_nothing_is_half_written_when_writing_fails(before, failing, tmp_path, monkeypatch):
    if before:
        saved(tmp_path)
    content = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def half(path):
        path.write_bytes(b"half of it")
        raise Stopped

    model = tiny(seed=1, dtype=np.float32)
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        if failing == "weights":
            patch.setattr("safetensors.numpy.save_file", lambda state, path: half(path))
        else:
            patch.setattr("pathlib.Path.write_text", lambda path, *a, **b: half(path))
        model.save_pretrained(tmp_path)
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    if failing == "weights":
        assert left == content
    else:  # the weights came first, and are whole
        assert left.keys() == content.keys() | {"model.safetensors"}
        assert left.get("config.json") == content.get("config.json")
        if before:
            loaded = pretrained.load(tmp_path).state_dict()
            assert_array_equal(loaded["embedding.weight"], model.embedding.weight.data)


def test_r54_the_config_is_utf8_and_may_begin_with_a_byte_order_mark(tmp_path):
    saved(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    text = json.dumps(config | {"note": "나는 학생입니다"}, ensure_ascii=False)
    path.write_bytes(b"\xef\xbb\xbf" + text.encode("utf-8"))
    assert pretrained.load(tmp_path).config.d_model == 8
    path.write_bytes(text.encode("euc-kr"))
    complaint(tmp_path, path)


# -- beside torch: float64, random weights everywhere ----------------------------------------------


def random_parameters(module, seed=1):
    rng = np.random.default_rng(seed)
    module.to(dtype=np.float64)
    for p in module.parameters():
        p.data = 0.5 * rng.standard_normal(p.shape)
    return module


def copied(target, *sources):
    """Writes tinyfm parameters, one below the other, into torch's; the pair, for its gradients."""
    import torch

    with torch.no_grad():
        target.copy_(torch.tensor(np.concatenate([p.data for p in sources])))
    return target, sources


def copy_linear(theirs, ours):
    return [copied(theirs.weight, ours.weight), copied(theirs.bias, ours.bias)]


def copy_attention(theirs, ours):
    inputs = [ours.q, ours.kv] if ours.cross else [ours.qkv]
    return [
        copied(theirs.in_proj_weight, *(x.weight for x in inputs)),
        copied(theirs.in_proj_bias, *(x.bias for x in inputs)),
        *copy_linear(theirs.out_proj, ours.out),
    ]


def copy_layer(theirs, ours):
    pairs = copy_attention(theirs.self_attn, ours.attention)
    norms = [ours.attention_norm]
    if ours.cross is not None:
        pairs += copy_attention(theirs.multihead_attn, ours.cross)
        norms.append(ours.cross_norm)
    norms.append(ours.feed_forward_norm)
    for i, norm in enumerate(norms, 1):
        pairs += copy_linear(getattr(theirs, f"norm{i}"), norm)
    pairs += copy_linear(theirs.linear1, ours.feed_forward.up)
    return pairs + copy_linear(theirs.linear2, ours.feed_forward.down)


def copy_stack(theirs, ours):
    pairs = []
    for a, b in zip(theirs.layers, ours.layers, strict=True):
        pairs += copy_layer(a, b)
    return pairs + (copy_linear(theirs.norm, ours.norm) if ours.norm is not None else [])


def same_parameter_gradients(pairs):
    for target, sources in pairs:
        grads = np.concatenate([p.grad for p in sources])
        assert_allclose(grads, target.grad.numpy(), atol=1e-10)


def same_everywhere(theirs, ours, pairs, *inputs):
    """Results of both functions, and every gradient, from one random upstream gradient."""
    import torch

    other_inputs = [torch.tensor(x, requires_grad=True) for x in inputs]
    own_inputs = [tensor(x, requires_grad=True) for x in inputs]
    wanted, got = theirs(*other_inputs), ours(*own_inputs)
    assert_allclose(got.data, wanted.detach().numpy(), atol=1e-10)
    upstream = np.random.default_rng(99).standard_normal(got.shape)
    wanted.backward(torch.tensor(upstream))
    got.backward(upstream)
    for x, y in zip(own_inputs, other_inputs, strict=True):
        assert_allclose(x.grad, y.grad.numpy(), atol=1e-10)
    same_parameter_gradients(pairs)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parity
def test_linear_equals_torchs():
    import torch

    ours = random_parameters(nn.Linear(4, 3))
    theirs = torch.nn.Linear(4, 3, dtype=torch.float64)
    same_everywhere(theirs, ours, copy_linear(theirs, ours), normal(2, 5, 4))


@pytest.mark.parity
@pytest.mark.parametrize("eps", [1e-5, 1e-12, 0.1])
def test_layer_norm_equals_torchs(eps):
    import torch

    ours = random_parameters(nn.LayerNorm(6, eps))
    theirs = torch.nn.LayerNorm(6, eps, dtype=torch.float64)
    same_everywhere(theirs, ours, copy_linear(theirs, ours), normal(2, 5, 6))


@pytest.mark.parity
def test_rms_norm_equals_torchs():
    import torch

    ours = random_parameters(nn.RMSNorm(6))
    theirs = torch.nn.RMSNorm(6, eps=1e-6, dtype=torch.float64)
    same_everywhere(theirs, ours, [copied(theirs.weight, ours.weight)], normal(2, 5, 6))


@pytest.mark.parity
@pytest.mark.parametrize("padding", [None, 2])
def test_embedding_equals_torchs(padding):
    import torch

    ours = random_parameters(nn.Embedding(7, 3, padding))
    theirs = torch.nn.Embedding(7, 3, padding, dtype=torch.float64)
    ids = np.array([[1, 2, 2, 6], [1, 1, 0, 2]])
    pairs = [copied(theirs.weight, ours.weight)]
    same_everywhere(lambda: theirs(torch.tensor(ids)), lambda: ours(ids), pairs)


# tinyfm: True may look.  torch: True may not.
SEEN = {
    "none": None,
    "causal": masks.causal(),
    "padding with holes": masks.padding([[1, 0, 1, 1, 0], [1, 1, 1, 1, 1]]),
    "allowed": masks.allowed(
        (np.random.default_rng(5).random((2, 2, 5, 5)) < 0.6) | np.eye(5, dtype=bool)
    ),
    "causal and padding": masks.causal() & masks.padding([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]]),
    "prefix": masks.prefix([2, 4]),
}


@pytest.mark.parity
@pytest.mark.parametrize("kind", SEEN)
def test_self_attention_equals_torchs(kind):
    import torch

    ours = random_parameters(nn.MultiHeadAttention(6, 2))
    theirs = torch.nn.MultiheadAttention(6, 2, batch_first=True, dtype=torch.float64)
    mask, blocked = SEEN[kind], None
    if mask is not None:
        dense = np.broadcast_to(mask.dense(2, 5, 5), (2, 2, 5, 5))
        blocked = torch.tensor(~dense.reshape(4, 5, 5))
    same_everywhere(
        lambda x: theirs(x, x, x, attn_mask=blocked, need_weights=False)[0],
        lambda x: ours(x, mask=mask),
        copy_attention(theirs, ours),
        normal(2, 5, 6),
    )


@pytest.mark.parity
@pytest.mark.parametrize("padded", [True, False])
def test_cross_attention_equals_torchs(padded):
    import torch

    ours = random_parameters(nn.MultiHeadAttention(6, 3, cross=True))
    theirs = torch.nn.MultiheadAttention(6, 3, batch_first=True, dtype=torch.float64)
    keys = np.array([[1, 1, 0, 1], [1, 0, 0, 0]], bool)
    options = {"key_padding_mask": torch.tensor(~keys)} if padded else {}
    same_everywhere(
        lambda x, m: theirs(x, m, m, need_weights=False, **options)[0],
        lambda x, m: ours(x, m, masks.padding(keys) if padded else None),
        copy_attention(theirs, ours),
        normal(2, 5, 6),
        normal(2, 4, 6, seed=1),
    )


@pytest.mark.parity
def test_attention_weights_equal_torchs():
    import torch

    ours = random_parameters(nn.MultiHeadAttention(6, 2))
    theirs = torch.nn.MultiheadAttention(6, 2, batch_first=True, dtype=torch.float64)
    copy_attention(theirs, ours)
    x, seen = normal(2, 5, 6), []
    ours(x, weights=seen)
    y = torch.tensor(x)
    wanted = theirs(y, y, y, average_attn_weights=False)[1]
    assert_allclose(seen[0], wanted.detach().numpy(), atol=1e-10)


def layer_config(norm_first=False, activation="relu"):
    return nn.LayerConfig(
        d_model=6, num_heads=2, d_ff=9, dropout=0.0, norm_first=norm_first, activation=activation
    )


def torch_options(norm_first, activation="relu"):
    import torch

    return {
        "d_model": 6,
        "nhead": 2,
        "dim_feedforward": 9,
        "dropout": 0.0,
        "activation": activation,
        "batch_first": True,
        "norm_first": norm_first,
        "dtype": torch.float64,
    }


PADDING = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)


def blocked_padding():
    import torch

    return torch.tensor(~PADDING)


def blocked_future(length):
    import torch

    return torch.triu(torch.ones(length, length, dtype=torch.bool), 1)


@pytest.mark.parity
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_feed_forward_equals_torchs(activation):
    import torch

    ours = random_parameters(nn.FeedForward(layer_config(activation=activation)))
    kink = torch.nn.ReLU() if activation == "relu" else torch.nn.GELU()
    theirs = torch.nn.Sequential(torch.nn.Linear(6, 9), kink, torch.nn.Linear(9, 6)).double()
    pairs = copy_linear(theirs[0], ours.up) + copy_linear(theirs[2], ours.down)
    same_everywhere(theirs, ours, pairs, normal(2, 5, 6))


@pytest.mark.parity
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layer_equals_torchs(norm_first, activation):
    import torch

    ours = random_parameters(nn.Layer(layer_config(norm_first, activation)))
    theirs = torch.nn.TransformerEncoderLayer(**torch_options(norm_first, activation))
    same_everywhere(
        lambda x: theirs(x, src_key_padding_mask=blocked_padding()),
        lambda x: ours(x, masks.padding(PADDING)),
        copy_layer(theirs, ours),
        normal(2, 5, 6),
    )


@pytest.mark.parity
@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_layer_equals_torchs(norm_first):
    import torch

    ours = random_parameters(nn.Layer(layer_config(norm_first), True))
    theirs = torch.nn.TransformerDecoderLayer(**torch_options(norm_first))
    same_everywhere(
        lambda x, m: theirs(x, m, blocked_future(4), memory_key_padding_mask=blocked_padding()),
        lambda x, m: ours(x, masks.causal(), None, m, masks.padding(PADDING)),
        copy_layer(theirs, ours),
        normal(2, 4, 6),
        normal(2, 5, 6, seed=1),
    )


@pytest.mark.parity
@pytest.mark.parametrize("final_norm", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_stack_equals_torchs(norm_first, final_norm):
    import torch

    ours = random_parameters(nn.Encoder(layer_config(norm_first), 3, final_norm))
    theirs = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(**torch_options(norm_first)),
        3,
        torch.nn.LayerNorm(6, dtype=torch.float64) if final_norm else None,
        enable_nested_tensor=False,
    )
    same_everywhere(
        lambda x: theirs(x, src_key_padding_mask=blocked_padding()),
        lambda x: ours(x, masks.padding(PADDING)),
        copy_stack(theirs, ours),
        normal(2, 5, 6),
    )


@pytest.mark.parity
@pytest.mark.parametrize("final_norm", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_stack_equals_torchs(norm_first, final_norm):
    import torch

    ours = random_parameters(nn.Decoder(layer_config(norm_first), 3, True, final_norm))
    theirs = torch.nn.TransformerDecoder(
        torch.nn.TransformerDecoderLayer(**torch_options(norm_first)),
        3,
        torch.nn.LayerNorm(6, dtype=torch.float64) if final_norm else None,
    )
    same_everywhere(
        lambda x, m: theirs(x, m, blocked_future(4), memory_key_padding_mask=blocked_padding()),
        lambda x, m: ours(x, masks.causal(), m, masks.padding(PADDING)),
        copy_stack(theirs, ours),
        normal(2, 4, 6),
        normal(2, 5, 6, seed=1),
    )


@pytest.mark.parity
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("norm_first", [False, True])
def test_the_whole_model_equals_torch_nn_transformer(norm_first, tied):
    """Logits, loss and all gradients; torch's has final norms, so ours is given them too."""
    import torch

    model = tiny(norm_first=norm_first, share_embeddings=tied, label_smoothing=0.1)
    model.encoder = nn.Encoder(model.config.layer("encoder"), 2, final_norm=True)
    model.decoder = nn.Decoder(model.config.layer("decoder"), 2, final_norm=True)
    random_parameters(model)
    options = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
    layer = torch.nn.TransformerEncoderLayer(8, 2, 12, **options, dtype=torch.float64)
    encoder = torch.nn.TransformerEncoder(
        layer, 2, torch.nn.LayerNorm(8, dtype=torch.float64), enable_nested_tensor=False
    )
    other = torch.nn.Transformer(
        8, 2, 2, 2, 12, custom_encoder=encoder, **options, dtype=torch.float64
    )
    pairs = copy_stack(other.encoder, model.encoder) + copy_stack(other.decoder, model.decoder)
    own_tables = (model.embedding, model.decoder_embedding, model.head)
    tables = [torch.tensor(x.weight.data.copy(), requires_grad=True) for x in own_tables]
    batch = example()
    batch["labels"][1, 2:] = -100
    batch["decoder_input_ids"] = np.array([[1, 3, 4, 5], [1, 6, 7, 7]])
    pe = torch.tensor(nn.sinusoids(5, 8))

    def embedded(table, ids):
        return table[torch.tensor(ids)] * math.sqrt(8) + pe[: ids.shape[1]]

    hidden = other(
        embedded(tables[0], batch["input_ids"]),
        embedded(tables[1], batch["decoder_input_ids"]),
        tgt_mask=blocked_future(4),
        src_key_padding_mask=blocked_padding(),
        memory_key_padding_mask=blocked_padding(),
    )
    logits = hidden @ tables[2].T
    wanted = torch.nn.functional.cross_entropy(
        logits.reshape(8, 11), torch.tensor(batch["labels"].ravel()), label_smoothing=0.1
    )
    output = model(**batch, attention_mask=PADDING.astype(int))
    assert_allclose(output.logits.data, logits.detach().numpy(), atol=1e-10)
    assert output.loss.item() == pytest.approx(wanted.item(), abs=1e-10)
    wanted.backward()
    output.loss.backward()
    same_parameter_gradients(pairs)
    grads = [table.grad.numpy() for table in tables]
    if tied:
        assert_allclose(model.embedding.weight.grad, sum(grads), atol=1e-10)
    else:
        for ours, grad in zip(own_tables, grads, strict=True):
            assert_allclose(ours.weight.grad, grad, atol=1e-10)
