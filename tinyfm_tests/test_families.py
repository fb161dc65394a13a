"""What every family of models has to do: a family is a row of FAMILIES, the tests are the same."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import tinyfm
from tinyfm import data, masks, models, nn, objectives, optim, pretrained, training
from tinyfm.autograd import Tensor

# -- families --------------------------------------------------------------------------------------


class Family(NamedTuple):
    """config: (vocabulary, dropout) -> 2 layers of width 64; ids below 3 are special ones.

    first_loss: ln V -> where the loss of an untrained model lies (R32).
    example: (rng, rows, source, target, vocabulary) -> inputs and labels, of ordinary words.
    """

    model: type
    config: Callable[[int, float], Any]
    first_loss: Callable[[float], tuple[float, float]]
    example: Callable[..., dict[str, np.ndarray]]


SIDES = {
    f"{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in {"layers": 2, "attention_heads": 4, "ffn_dim": 128}.items()
}


def transformer(vocab, dropout):
    options = {"vocab_size": vocab, "dropout": dropout, "label_smoothing": 0.0}
    return models.TransformerConfig(d_model=64, **options, **SIDES)


def marian(vocab, dropout):
    ids = {"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 2}
    return models.MarianConfig(vocab_size=vocab, dropout=dropout, d_model=64, **ids, **SIDES)


def bart(vocab, dropout):
    ids = {"pad_token_id": 0, "bos_token_id": 1}
    return models.BartConfig(vocab_size=vocab, dropout=dropout, d_model=64, **ids, **SIDES)


def bert(vocab, dropout, config=models.BertConfig):
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), dropout)
    return config(vocab_size=vocab, num_hidden_layers=2, **sizes, **rates)


def roberta(vocab, dropout):
    return bert(vocab, dropout, models.RobertaConfig)


def distilbert(vocab, dropout):
    sizes = {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128}
    rates = {"dropout": dropout, "attention_dropout": dropout}
    return models.DistilBertConfig(vocab_size=vocab, **sizes, **rates)


def gpt2(vocab, dropout, config=models.GPT2Config):
    sizes = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}
    rates = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    return config(vocab_size=vocab, **sizes, **rates, eos_token_id=2, pad_token_id=0)


def gpt1(vocab, dropout):
    return gpt2(vocab, dropout, models.OpenAIGPTConfig)


def t5(vocab, dropout, **changes):
    sizes = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
    return models.T5Config(
        vocab_size=vocab, dropout_rate=dropout, eos_token_id=2, **sizes, **changes
    )


def t5_1_1(vocab, dropout):
    return t5(vocab, dropout, feed_forward_proj="gated-gelu", tie_word_embeddings=False)


def source_and_target(rng, rows, source, target, vocab):
    return {
        "input_ids": rng.integers(3, vocab, (rows, source)),
        "labels": rng.integers(3, vocab, (rows, target)),
    }


MASK_ID = 2


def hidden_words(rng, rows, source, target, vocab):
    """Every third word of the source, from the second on, is hidden; no target."""
    ids = rng.integers(3, vocab, (rows, source))
    hidden = np.arange(source) % 3 == 1
    return {
        "input_ids": np.where(hidden, MASK_ID, ids),
        "labels": np.where(hidden, ids, data.IGNORE_INDEX),
    }


def hidden_words_of_pairs(rng, rows, source, target, vocab):
    """And whether the second half follows the first."""
    batch = hidden_words(rng, rows, source, target, vocab)
    halves = np.arange(source) >= source // 2
    return batch | {
        "token_type_ids": np.tile(halves.astype(int), (rows, 1)),
        "next_sentence_label": np.arange(rows) % 2,
    }


def next_words(rng, rows, source, target, vocab):
    """Every word of the source but the first is to be predicted; no target."""
    ids = rng.integers(3, vocab, (rows, source))
    return {"input_ids": ids, "labels": np.where(np.arange(source) > 0, ids, data.IGNORE_INDEX)}


def near(x):
    return 0.95 * x, 1.05 * x


def above(x):
    """Words start N(0, 1), and so their logits: half the variance comes on top."""
    return x, x + 1.5


FAMILIES = {
    "Transformer": Family(
        models.Transformer, transformer, lambda x: (x, x + 1.0), source_and_target
    ),
    "Marian": Family(models.MarianMTModel, marian, near, source_and_target),
    "BART": Family(models.BartForConditionalGeneration, bart, near, source_and_target),
    "T5": Family(models.T5ForConditionalGeneration, t5, above, source_and_target),
    "T5 1.1": Family(models.T5ForConditionalGeneration, t5_1_1, above, source_and_target),
    "BERT": Family(models.BertForMaskedLM, bert, near, hidden_words),
    "BERT, two tasks": Family(
        models.BertForPreTraining, bert, lambda x: near(x + math.log(2)), hidden_words_of_pairs
    ),
    "RoBERTa": Family(models.RobertaForMaskedLM, roberta, near, hidden_words),
    "DistilBERT": Family(models.DistilBertForMaskedLM, distilbert, near, hidden_words),
    "GPT-1": Family(models.OpenAIGPTLMHeadModel, gpt1, near, next_words),
    "GPT-2": Family(models.GPT2LMHeadModel, gpt2, near, next_words),
}
# Source and target: input_ids, decoder_input_ids.
ENCODER_DECODERS = ["Transformer", "Marian", "BART", "T5", "T5 1.1"]
DECODERS = ["GPT-1", "GPT-2"]  # input_ids are what it goes on with
# A loss that is one mean can be put together from parts; that of two tasks has two counts.
OF_ONE_TASK = [name for name in FAMILIES if name != "BERT, two tasks"]

each_family = pytest.mark.parametrize("family", FAMILIES)
each_encoder_decoder = pytest.mark.parametrize("family", ENCODER_DECODERS)
each_decoder = pytest.mark.parametrize("family", DECODERS)
each_that_generates = pytest.mark.parametrize("family", ENCODER_DECODERS + DECODERS)
each_family_of_one_task = pytest.mark.parametrize("family", OF_ONE_TASK)
VOCABULARY = 30


def new(family, seed=0, vocab=VOCABULARY, dropout=0.0, std=0.0, dtype=np.float64):
    """A fresh model; with std, noise on every parameter, gains and biases too."""
    tinyfm.manual_seed(seed)
    row, rng = FAMILIES[family], np.random.default_rng(seed)
    model = row.model(row.config(vocab, dropout)).to(dtype=dtype)
    for p in model.parameters() if std else []:
        p.data = (p.data + std * rng.standard_normal(p.shape)).astype(dtype)
    return model


def example(family, rows=2, source=6, target=5, seed=0, vocab=VOCABULARY):
    """Inputs and labels."""
    rng = np.random.default_rng(seed)
    return FAMILIES[family].example(rng, rows, source, target, vocab)


def logits_of(output):
    """(B, T, V)"""
    return output.logits if hasattr(output, "logits") else output.prediction_logits


def target_logits(model, ids, mask=None):
    """The decoder's logits (B, T, V) for ids (B, T), after a fixed source if it has one."""
    if not model.is_encoder_decoder:
        return model(ids, mask).logits.data
    source = source_and_target(np.random.default_rng(0), len(ids), 6, 5, VOCABULARY)["input_ids"]
    return model(source, decoder_input_ids=ids, decoder_attention_mask=mask).logits.data


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


# -- who sees whom ---------------------------------------------------------------------------------


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("training", [False, True])
@each_that_generates
def test_r19_logits_never_depend_on_later_tokens(family, training, padded):
    model = new(family, std=0.1).train(training)
    ids = np.random.default_rng(0).integers(3, VOCABULARY, (2, 8))
    mask = np.array([[1] * 8, [1] * 7 + [0]]) if padded else None
    before = target_logits(model, ids, mask)
    changed = ids.copy()
    changed[:, 5] = 3 + (changed[:, 5] - 2) % (VOCABULARY - 3)  # another token
    change = np.abs(target_logits(model, changed, mask) - before)
    assert change[:, :5].max() < 1e-12
    assert (change[:, 5].max(-1) > 1e-3).all()


@each_that_generates
def test_r19_the_first_position_sees_itself(family):
    model = new(family, std=0.1)
    logits = [target_logits(model, np.array([[word]])) for word in (5, 6)]
    assert np.abs(logits[0] - logits[1]).max() > 1e-3


@each_encoder_decoder
def test_r22_source_padding_never_changes_the_logits(family):
    model, ids = new(family, std=0.1), np.array([[1, 4, 5]])
    alone = model(np.array([[5, 6, 7, 8]]), decoder_input_ids=ids).logits.data
    wide, mask = np.array([[5, 6, 7, 8, 1, 1]]), np.array([[1, 1, 1, 1, 0, 0]])
    for seen in (mask, masks.padding(mask)):
        assert_allclose(model(wide, seen, ids).logits.data, alone, atol=1e-12)
    assert np.abs(model(wide, None, ids).logits.data - alone).max() > 1e-3


# -- labels ----------------------------------------------------------------------------------------


@each_family
def test_r30_padding_columns_change_neither_loss_nor_gradients(family):
    batch = example(family) | {"attention_mask": np.ones((2, 6), int)}
    fill = {"labels": data.IGNORE_INDEX, "input_ids": new(family).config.pad_token_id}
    wider = {
        name: np.pad(x, ((0, 0), (0, 3)), constant_values=fill.get(name, 0)) if x.ndim > 1 else x
        for name, x in batch.items()
    }
    results = []
    for inputs in (batch, wider):
        model = new(family, std=0.1)
        output = model(**inputs)
        output.loss.backward()
        assert output.num_labels == (batch["labels"] != data.IGNORE_INDEX).sum()
        results.append((output.loss.item(), [p.grad for p in model.parameters()]))
    (loss, grads), (wide_loss, wide_grads) = results
    assert wide_loss == pytest.approx(loss, rel=1e-12)
    for grad, wide_grad in zip(grads, wide_grads, strict=True):
        if grad is not None:  # what is read from files and not learned has none
            assert_allclose(wide_grad, grad, atol=1e-12)


@each_encoder_decoder
def test_r31_logits_at_a_position_are_scored_against_its_label_which_it_has_not_seen(family):
    """The shift is in the decoder's inputs, and nowhere else."""
    model, batch = new(family, std=0.1).eval(), example(family)
    labels = batch["labels"]
    output = model(**batch)
    scores = np.take_along_axis(log_softmax(output.logits.data), labels[..., None], -1)
    assert output.loss.item() == pytest.approx(-scores.mean(), rel=1e-12)
    changed = labels.copy()
    changed[:, 2] = 3 + (changed[:, 2] - 2) % (VOCABULARY - 3)
    change = np.abs(model(**batch | {"labels": changed}).logits.data - output.logits.data)
    assert change[:, :3].max() < 1e-12
    assert (change[:, 3].max(-1) > 1e-3).all()
    config = model.config
    start = np.full((2, 1), config.decoder_start_token_id)
    explicit = model(**batch, decoder_input_ids=np.concatenate([start, labels[:, :-1]], 1))
    assert_allclose(explicit.logits.data, output.logits.data, atol=1e-12)


# -- training --------------------------------------------------------------------------------------


@each_family
def test_r10_a_training_step_stays_in_float32(family, monkeypatch):
    """Activations of all modules, loss, gradients, parameters, the optimizer's moments."""
    model, activations = new(family, dropout=0.1, dtype=np.float32), []
    call = nn.Module.__call__

    def watched(module, *args, **options):
        result = call(module, *args, **options)
        if isinstance(result, Tensor):
            activations.append(result)
        return result

    monkeypatch.setattr(nn.Module, "__call__", watched)
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    loss = model(**example(family)).loss
    loss.backward()
    optimizer.step()
    assert len(activations) > 20
    arrays = [loss, *activations, *model.parameters()]
    arrays += [p.grad for p in model.parameters() if p.grad is not None]
    arrays += [x for state in optimizer.state for x in state.values() if np.ndim(x)]
    assert {x.dtype for x in arrays} == {np.dtype(np.float32)}


@pytest.mark.parametrize("vocab", [100, 2000])
@each_family
def test_r32_the_first_loss_is_near_that_of_guessing(family, vocab):
    model = new(family, vocab=vocab, dtype=np.float32)
    least, most = FAMILIES[family].first_loss(math.log(vocab))
    assert least < model(**example(family, 4, 12, 12, vocab=vocab)).loss.item() < most


@pytest.mark.parametrize("vocab", [100, 2000])
@each_family
def test_r32_one_batch_is_overfitted(family, vocab):
    model = new(family, vocab=vocab, dtype=np.float32)
    batch = example(family, 4, 12, 12, vocab=vocab)
    optimizer = optim.Adam(model.parameters(), lr=3e-3)
    for step in range(1, 301):
        optimizer.zero_grad()
        loss = model(**batch).loss
        if loss.item() < 0.05:
            break
        loss.backward()
        optimizer.step(min(1.0, step / 20))
    assert loss.item() < 0.05
    other = batch | {"input_ids": example(family, 4, 12, 12, seed=1, vocab=vocab)["input_ids"]}
    assert np.abs(logits_of(model(**batch)).data - logits_of(model(**other)).data).max() > 0.1


@pytest.mark.parametrize("mode", [True, False])
@each_family
def test_r66_evaluation_has_no_dropout_records_nothing_and_restores_the_mode(family, mode):
    model, batch = new(family, std=0.1, dropout=0.5).train(mode), example(family)
    with model.evaluating():
        outputs = [model(**batch) for _ in range(2)]
    logits = [logits_of(output) for output in outputs]
    assert not any(x.requires_grad for x in (*logits, *(output.loss for output in outputs)))
    assert_allclose(logits[0].data, logits[1].data, atol=1e-12)
    assert all(module.training is mode for module in model.modules())
    losses = [model(**batch).loss.item() for _ in range(2)]
    assert (abs(losses[0] - losses[1]) > 1e-3) == mode


# -- folders ---------------------------------------------------------------------------------------


@each_family
def test_a_folder_gives_the_model_back_bit_for_bit(family, tmp_path):
    model, batch = new(family, std=0.1, dtype=np.float32).eval(), example(family)
    logits = logits_of(model(**batch)).data
    model.save_pretrained(tmp_path)
    opened = [pretrained.load(tmp_path), type(model).from_pretrained(tmp_path)]
    for other in opened:
        assert type(other) is type(model) and not other.training
        assert other.config == model.config
        assert other.load_report == ([], [], [])
        state = other.state_dict()
        assert list(state) == list(model.state_dict())
        for name, array in model.state_dict().items():
            assert_array_equal(state[name], array, strict=True)
        assert_allclose(logits_of(other(**batch)).data, logits, atol=1e-5)


@each_family
def test_a_folder_of_float64_opens_without_rounding(family, tmp_path):
    model = new(family, std=0.1)
    model.save_pretrained(tmp_path)
    exact = pretrained.load(tmp_path, dtype=np.float64).state_dict()
    rounded = pretrained.load(tmp_path).state_dict()
    for name, array in model.state_dict().items():
        assert_array_equal(exact[name], array, strict=True)
        assert_array_equal(rounded[name], array.astype(np.float32), strict=True)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@each_family
def test_r39_saving_refuses_weights_that_are_not_finite(family, value, tmp_path):
    model = new(family, dtype=np.float32)
    model.save_pretrained(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    name, parameter = list(model.named_parameters())[-1]
    spoilt = parameter.data.copy()
    spoilt.flat[-1] = value
    parameter.data = spoilt
    with pytest.raises(ValueError, match=rf"{name} is not finite .* \(force=True saves it\)"):
        model.save_pretrained(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    model.save_pretrained(tmp_path, force=True)
    assert_array_equal(pretrained.load(tmp_path).state_dict()[name], spoilt)


# -- training --------------------------------------------------------------------------------------


def ragged(family, rows=6):
    """A batch in which rows have unequal numbers of labels."""
    batch = example(family, rows) | {"attention_mask": np.ones((rows, 6), int)}
    batch["labels"][[1, 4], 2:] = data.IGNORE_INDEX
    return batch


def cut(batch, *ends):
    """The batch in pieces that end before these rows."""
    return [
        {name: array[start:end] for name, array in batch.items()}
        for start, end in zip((0, *ends), (*ends, len(batch["labels"])), strict=True)
    ]


@each_family_of_one_task
def test_r28_accumulated_batches_equal_the_big_batch(family):
    results = []
    for pieces in ([ragged(family)], cut(ragged(family), 1, 3)):
        model = new(family, std=0.1)
        history = training.fit(
            model,
            pieces,
            optim.SGD(model.parameters(), lr=1.0),
            optim.constant(),
            steps=1,
            accumulate=len(pieces),
            clip=None,
            progress=False,
        )
        results.append((history[0]["loss"], model.state_dict()))
    (loss, whole), (summed, pieces) = results
    assert summed == pytest.approx(loss, rel=1e-12)
    for name, array in whole.items():
        assert_allclose(pieces[name], array, atol=1e-10)


@each_family_of_one_task
def test_r29_the_mean_loss_is_the_same_for_every_batch_size(family):
    model = new(family, std=0.1).eval()
    whole = training.mean_loss(model, [ragged(family)])
    for ends in ((1,), (2, 4), (1, 2, 3, 4, 5)):
        assert training.mean_loss(model, cut(ragged(family), *ends)) == pytest.approx(
            whole, rel=1e-12
        )
    means = [training.mean_loss(model, [piece]) for piece in cut(ragged(family), 1, 2, 3, 4, 5)]
    assert abs(np.mean(means) - whole) > 1e-3  # what a mean over sentences would be


def batches(family, seed):
    """Shuffled batches of 20 rows of random lengths; words are hidden anew each time."""
    rng = np.random.default_rng(0)
    pairs = [
        [rng.integers(3, VOCABULARY, n).tolist() for n in row]
        for row in rng.integers(1, 7, (20, 2))
    ]
    options = {"max_tokens": 30, "pad_id": new(family).config.pad_token_id, "seed": seed}
    if family in ENCODER_DECODERS:
        return data.Batches(pairs, **options, eos_id=2)
    if family in DECODERS:
        examples = [{"input_ids": a + b, "labels": a + b} for a, b in pairs]
        return data.ExampleBatches(examples, **options)

    def hide(batch, rng):
        special = batch["attention_mask"] == 0
        ids = (MASK_ID, VOCABULARY)
        hidden, labels = objectives.mask_tokens(batch["input_ids"], special, *ids, rng)
        return batch | {"input_ids": hidden, "labels": labels}

    more = {"next_sentence_label": 1} if family == "BERT, two tasks" else {}
    examples = [{"input_ids": a + b, **more} for a, b in pairs]
    return data.ExampleBatches(examples, **options, change=hide)


@each_family
def test_r38_resume_is_exact(family, tmp_path):
    """Dropout, accumulation, shuffled batches: 3 steps, a checkpoint, 4 more, or 7 at once."""

    def go(steps, seed, folder, resume):
        model = new(family, seed, dropout=0.2, dtype=np.float32)
        optimizer = optim.AdamW(model.parameters(), lr=0.01)
        how = {"accumulate": 2, "folder": folder, "resume": resume, "progress": False}
        schedule = optim.linear(2, 10)
        history = training.fit(model, batches(family, seed), optimizer, schedule, steps, **how)
        return history, {name: array.tobytes() for name, array in model.state_dict().items()}

    whole = go(7, 0, tmp_path / "whole", resume=False)
    go(3, 0, tmp_path / "parts", resume=False)
    assert go(7, 9, tmp_path / "parts", resume=True) == whole


# -- generation ------------------------------------------------------------------------------------


@pytest.mark.parametrize("beams", [1, 3])
@each_encoder_decoder
def test_r59_r61_r22_generation_with_and_without_cache_alone_and_padded(family, beams):
    model = new(family, std=0.5)
    ids, mask = np.array([[5, 6, 7, 8, 9], [9, 3, 4, 0, 0]]), np.array([[1] * 5, [1, 1, 1, 0, 0]])
    options = {"num_beams": beams, "max_new_tokens": 8, "forced_eos_token_id": 2}
    made = model.generate(ids, mask, **options)
    assert_array_equal(model.generate(ids, mask, use_cache=False, **options), made)
    alone = model.generate(ids[1:, :3], **options)[0]
    assert_array_equal(made[1, : len(alone)], alone)
    for row in made:
        end = 1 + row[1:].tolist().index(2)
        assert (row[end + 1 :] == 0).all()


@pytest.mark.parametrize("beams", [1, 3])
@each_decoder
def test_r59_r61_r60_prompts_with_and_without_cache_alone_and_padded_on_the_left(family, beams):
    model = new(family, std=0.5)
    ids, mask = np.array([[5, 6, 7, 8, 9], [0, 0, 9, 3, 4]]), np.array([[1] * 5, [0, 0, 1, 1, 1]])
    options = {"num_beams": beams, "max_new_tokens": 8, "forced_eos_token_id": 2}
    made = model.generate(ids, mask, **options)
    assert_array_equal(model.generate(ids, mask, use_cache=False, **options), made)
    assert_array_equal(made[:, :5], ids)
    alone = model.generate(ids[1:, 2:], **options)[0]
    assert_array_equal(made[1, 2:][: len(alone)], alone)
    for row in made[:, 5:]:
        end = row.tolist().index(2)
        assert (row[end + 1 :] == 0).all()


@each_that_generates
def test_r66_generation_knows_no_dropout_and_keeps_the_mode(family):
    model = new(family, std=0.3, dropout=0.5).train()
    ids = example(family)["input_ids"]
    first, second = (model.generate(ids, num_beams=2, max_new_tokens=6) for _ in range(2))
    assert_array_equal(first, second)
    assert all(module.training for module in model.modules())
    assert all(p.grad is None for p in model.parameters())
