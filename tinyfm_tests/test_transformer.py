"""The Transformer of 2017: the model, its switches and its generation.

What it shares with other families is in test_families.py, torch stands beside it in test_torch.py.
"""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import tinyfm
from tinyfm import gradcheck, masks, nn, no_grad, optim
from tinyfm.generation import GenerationMixin
from tinyfm.models import Transformer, TransformerConfig, num_parameters

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
    model = tiny(dtype=np.float32, vocab_size=8000, d_model=512)
    output = model(**example(2, 10, 8, vocab=8000))
    assert output.encoder_last_hidden_state.shape == (2, 10, 512)
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


def test_initial_values():
    """Xavier for each projection by itself, N(0, 1 / d) for tables, zero biases, unit gains.

    q, k and v are one matrix (3d, d), which torch.nn.Transformer starts as one: within
    sqrt(6 / 4d) instead of sqrt(6 / 2d) (parity.md, trap 15).
    """
    model = tiny(d_model=64, encoder_ffn_dim=128, decoder_ffn_dim=128, vocab_size=2000)
    parts = {"qkv": 3, "kv": 2}
    for name, p in model.named_parameters():
        module, kind = name.split(".")[-2:]
        if module.endswith("norm"):
            assert (p.data == (kind == "weight")).all(), name
        elif kind == "bias":
            assert (p.data == 0).all(), name
        elif module != "embedding":
            for part in np.split(p.data, parts.get(module, 1)):
                bound = math.sqrt(6 / sum(part.shape))
                assert 0.98 * bound < np.abs(part).max() <= bound, name
                assert part.std() == pytest.approx(bound / math.sqrt(3), rel=0.05), name
    table = model.embedding.weight.data
    assert (table[0] == 0).all()  # the padding row
    assert table[1:].std() * math.sqrt(64) == pytest.approx(1, rel=0.01)


def test_initial_values_of_switches():
    untied = tiny(share_embeddings=False, positions="learned", d_model=64, vocab_size=2000)
    for table in (
        untied.embedding,
        untied.decoder_embedding,
        untied.head,
        untied.encoder_positions,
        untied.decoder_positions,
    ):
        assert table.weight.data.std() == pytest.approx(1 / 8, rel=0.02)
    narrow = tiny(init_std=0.02, d_model=64, vocab_size=2000)
    for name, p in narrow.named_parameters():
        if p.ndim == 2:
            assert p.data.std() == pytest.approx(0.02, rel=0.1), name


@pytest.mark.parametrize("preset", [TransformerConfig.base, TransformerConfig.big])
def test_switches_change_the_number_of_parameters(preset):
    """The exact numbers of both presets are in test_nn.py."""
    config, plain = preset(), num_parameters(preset())
    table = config.vocab_size * config.d_model
    positions = 2 * config.max_position_embeddings * config.d_model
    assert num_parameters(preset(share_embeddings=False)) == plain + 2 * table
    assert num_parameters(preset(positions="learned")) == plain + positions
    assert num_parameters(preset(norm_first=True)) == plain + 4 * config.d_model
    assert num_parameters(preset(final_logits_bias=True)) == plain  # read, not learned


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("positions", ["sinusoidal", "sinusoidal_halves"])
def test_the_input_of_the_first_layers_is_4_e_plus_p_for_a_width_of_16(positions, scaled):
    """parity.md, traps 16 and 17: the order of the sinusoids, and sqrt(d) on both sides."""
    model, seen = tiny(std=0.5, d_model=16, positions=positions, scale_embedding=scaled), []
    for stack in (model.encoder, model.decoder):
        first = stack.layers[0]
        stack.layers[0] = lambda x, *args, first=first, **options: (
            seen.append(x.data) or first(x, *args, **options)
        )
    batch = example()
    model(**batch)
    angles = np.arange(5)[:, None] / 10000 ** (np.arange(8) / 8)
    waves = np.stack([np.sin(angles), np.cos(angles)], 2)  # (position, frequency, sine or cosine)
    pe = (waves if positions == "sinusoidal" else waves.swapaxes(1, 2)).reshape(5, 16)
    ids = np.concatenate([np.ones((2, 1), int), batch["labels"][:, :-1]], 1)
    table = (4 if scaled else 1) * model.embedding.weight.data
    assert_allclose(seen[0], table[batch["input_ids"]] + pe, atol=1e-14)
    assert_allclose(seen[1], table[ids] + pe[:4], atol=1e-14)


def test_a_bias_of_the_logits_is_added_and_not_learned():
    model, batch = tiny(std=0.5, final_logits_bias=True, label_smoothing=0.1), example()
    before = model.eval()(**batch).logits.data
    bias = model.final_logits_bias.data.copy()
    model.final_logits_bias.data = np.zeros(11)
    without = model(**batch)
    assert_allclose(before - bias, without.logits.data, atol=1e-12)
    model.train()
    model.final_logits_bias.data = bias
    output = model(**batch)
    logs = log_softmax(before)
    nll = -np.take_along_axis(logs, batch["labels"][..., None], -1).mean()
    assert output.loss.item() == pytest.approx(0.9 * nll - 0.1 * logs.mean(), rel=1e-12)
    output.loss.backward()
    assert model.final_logits_bias.grad is None
    with no_grad():
        model.eval()
        state = model.begin(batch["input_ids"], None, np.arange(2), 4)
        ids = np.concatenate([np.ones((2, 1), int), batch["labels"][:, :-1]], 1)
        assert_allclose(model.step(ids, state), before[:, -1], atol=1e-12)


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
    """e / V on every class, over the labelled rows alone (parity.md, traps 46 and 47)."""
    model, batch = tiny(label_smoothing=0.1), example()
    labels = batch["labels"]
    labels[1, 2:] = -100
    logs = log_softmax(model(**batch).logits.data)[labels >= 0]
    nll = -np.take_along_axis(logs, labels[labels >= 0][:, None], -1).mean()
    smoothed = 0.9 * nll - 0.1 * logs.mean()
    assert model(**batch).loss.item() == pytest.approx(smoothed, rel=1e-12)
    assert model.eval()(**batch).loss.item() == pytest.approx(nll, rel=1e-12)


def test_r25_without_a_labelled_position_loss_and_gradients_are_zero():
    """parity.md, trap 49: never nan, which would poison the optimizer's moments."""
    model, batch = tiny(std=0.4, label_smoothing=0.1), example()
    output = model(batch["input_ids"], labels=np.full((2, 4), -100))
    assert (output.loss.item(), output.num_labels) == (0, 0)
    output.loss.backward()
    assert all((p.grad == 0).all() for p in model.parameters())


# -- tying -----------------------------------------------------------------------------------------


def test_one_matrix_serves_three_times():
    model = tiny()
    assert model.embedding.weight is model.decoder_embedding.weight is model.head.weight
    assert sum(p.shape == (11, 8) for p in model.parameters()) == 1
    untied = tiny(share_embeddings=False)
    tables = (untied.embedding, untied.decoder_embedding, untied.head)
    assert len({id(table.weight) for table in tables}) == 3


def test_r35_the_shared_table_is_counted_and_updated_once():
    """parity.md, trap 70: by one sum of gradients, and its users still look at one array."""
    model = tiny(std=0.3)
    table, size = model.embedding.weight, 11 * 8
    untied = tiny(share_embeddings=False)
    counts = [sum(p.size for p in x.parameters()) for x in (model, untied)]
    assert counts[1] - counts[0] == 2 * size
    before = table.data.copy()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    model(**example()).loss.backward()
    optimizer.step()
    assert_allclose(table.data, before - 0.1 * table.grad, atol=1e-15)
    assert model.decoder_embedding.weight is model.head.weight is table


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


@pytest.mark.parametrize("tied", [True, False])
@settings(max_examples=max(1, EXAMPLES // 50))
@given(
    seed=st.integers(0, 2**32 - 1),
    norm_first=st.booleans(),
    positions=st.sampled_from(["sinusoidal", "sinusoidal_halves", "learned"]),
    scaled=st.booleans(),
    bias=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.1]),
    dropout=st.sampled_from([0.0, 0.2]),
)
def test_gradients_of_the_whole_model(
    tied, seed, norm_first, positions, scaled, bias, smoothing, dropout
):
    """Along directions in every parameter, the thrice-used table included; padding on both sides.

    No padding id stands in the target: its row is zero by decree (R15), not by measurement.  GELU
    in place of ReLU, whose kinks a finite difference steps over.
    """
    model = tiny(
        seed,
        std=0.5,
        share_embeddings=tied,
        norm_first=norm_first,
        positions=positions,
        scale_embedding=scaled,
        final_logits_bias=bias,
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
    """What beam search does: memory, mask and caches follow their rows (traps 68 and 69)."""
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


def test_r66_the_mode_is_restored_when_generation_fails():
    model = tiny()
    with pytest.raises(IndexError, match="id 11 is outside the vocabulary of 11"):
        model.generate(np.array([[11]]))
    assert model.training
    assert model(**example()).loss.requires_grad
