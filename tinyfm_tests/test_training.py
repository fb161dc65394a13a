"""fit, accumulation, evaluation: R25, R28, R29, R39, and R66 as far as training goes."""

import itertools
import math
import re
import signal
import threading

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import tinyfm
from tinyfm import models, nn, optim, training
from tinyfm.models import ModelOutput
from tinyfm_tests.small_training import Training


def fit(model, batches, steps, lr=0.1, kind=optim.SGD, **options):
    """fit with a constant rate and no clipping, unless said otherwise: (history, optimizer)."""
    optimizer = kind(model.parameters(), lr=lr)
    options = {"clip": None, "progress": False, "schedule": optim.constant(), **options}
    schedule = options.pop("schedule")
    return training.fit(model, batches, optimizer, schedule, steps, **options), optimizer


class Toy(nn.Module):
    """loss = the mean of weight * values; every value is one labelled token."""

    def __init__(self):
        self.weight = nn.Parameter(np.ones(1))
        self.called = []  # (training, recording) of each call

    def forward(self, values):
        values = np.asarray(values, np.float64)
        loss = (self.weight * values).sum() / max(len(values), 1)
        self.called.append((self.training, loss.requires_grad))
        return ModelOutput(loss=loss, num_labels=len(values))


def batches(*values):
    return [{"values": v} for v in values]


def tiny_transformer(seed=0, dtype=np.float32, **changes):
    sides = {}
    for side in ("encoder", "decoder"):
        sides |= {f"{side}_layers": 1, f"{side}_attention_heads": 2, f"{side}_ffn_dim": 32}
    options = {"vocab_size": 12, "d_model": 16, "dropout": 0.0, "label_smoothing": 0.0}
    tinyfm.manual_seed(seed)
    model = models.Transformer(models.TransformerConfig(**options | sides | changes))
    return model.to(dtype=dtype)


def copies(rows, length=4, seed=0):
    """A batch whose targets are its sources, each with its end token 2."""
    ids = np.random.default_rng(seed).integers(3, 12, (rows, length))
    ids[:, -1] = 2
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "labels": ids}


def ragged(lengths, seed=0):
    """Copies of different lengths, padded as data.collate does it."""
    batch = copies(len(lengths), max(lengths), seed)
    beyond = np.arange(max(lengths)) >= np.array(lengths)[:, None]
    return {
        "input_ids": np.where(beyond, 0, batch["input_ids"]),
        "attention_mask": (~beyond).astype(int),
        "labels": np.where(beyond, -100, batch["labels"]),
    }


# -- the loop --------------------------------------------------------------------------------------


def test_fit_learns_to_copy():
    model = tiny_transformer()
    endless = (copies(32, seed=i) for i in itertools.count())
    history, _ = fit(model, endless, 300, lr=1e-2, kind=optim.Adam, clip=1.0)
    assert history[0]["loss"] > 2
    assert history[-1]["loss"] < 0.1
    unseen = copies(50, seed=10**6)["input_ids"]
    made = model.generate(unseen, max_length=5)
    assert (made[:, 1:] == unseen).mean() > 0.95


def test_history_has_a_record_of_every_step():
    history, _ = fit(
        Toy(), batches([2.0], [3.0], [4.0]), 3, lr=0.5, schedule=lambda step: 0.1 * step
    )
    assert [record["step"] for record in history] == [1, 2, 3]
    # Gradient 2, then 3, then 4, with the rates of the schedule.
    assert_allclose([record["lr"] for record in history], [0.05, 0.1, 0.15])
    assert_allclose([record["norm"] for record in history], [2, 3, 4])
    weights = [1, 1 - 0.05 * 2, 1 - 0.05 * 2 - 0.1 * 3]
    assert_allclose([record["loss"] for record in history], np.array(weights) * [2, 3, 4])


def test_clip_limits_the_step_and_the_record_tells_the_norm_before():
    model = Toy()
    history, _ = fit(model, batches([10.0]), 1, lr=1.0, clip=0.5)
    assert history[0]["norm"] == 10
    assert_allclose(model.weight.data, [0.5])


def test_gradients_are_gone_afterwards():
    model = Toy()
    model.weight.grad = np.full(1, 99.0)  # of somebody's earlier backward: not added
    fit(model, batches([1.0]), 1, lr=1.0)
    assert model.weight.grad is None
    assert_allclose(model.weight.data, [0])


def test_fit_sets_training_mode():
    model = Toy().eval()
    fit(model, batches([1.0]), 1)
    assert model.called == [(True, True)]


def test_frozen_parameters_are_trained_around():
    model = tiny_transformer()
    model.embedding.weight.requires_grad = False
    before = {name: p.data.copy() for name, p in model.named_parameters()}
    fit(model, [copies(4)], 1)
    changed = {name for name, p in model.named_parameters() if (p.data != before[name]).any()}
    assert changed == before.keys() - {"embedding.weight"}


def test_batches_that_run_out_are_an_error():
    with pytest.raises(ValueError, match="the batches ended before the last step"):
        fit(Toy(), batches([1.0], [1.0]), 3)


def test_an_interrupt_passes_through_after_a_whole_step():
    def interrupted():
        yield {"values": [1.0]}
        raise KeyboardInterrupt

    model = Toy()
    with pytest.raises(KeyboardInterrupt):
        fit(model, interrupted(), 5, lr=0.25)
    assert_allclose(model.weight.data, [0.75])


def test_an_interrupt_in_the_middle_of_an_update_waits_for_its_end():
    class Interrupted(optim.SGD):
        def update(self, *arguments):
            signal.raise_signal(signal.SIGINT)
            super().update(*arguments)

    model, handler = tiny_transformer(), signal.getsignal(signal.SIGINT)
    before = {name: p.data.copy() for name, p in model.named_parameters()}
    with pytest.raises(KeyboardInterrupt):
        fit(model, [copies(4)], 1, kind=Interrupted)
    assert all((p.data != before[name]).any() for name, p in model.named_parameters())
    assert signal.getsignal(signal.SIGINT) is handler


def test_fit_works_in_any_thread():
    model = Toy()
    thread = threading.Thread(target=fit, args=(model, batches([1.0]), 1, 0.25))
    thread.start()
    thread.join(timeout=60)
    assert_allclose(model.weight.data, [0.75])


@pytest.mark.parametrize("accumulate", [1, 2])
def test_one_seed_gives_bit_identical_weights_with_dropout_on(accumulate):
    def train(seed):
        rates = {"dropout": 0.3, "attention_dropout": 0.3, "activation_dropout": 0.3}
        model = tiny_transformer(seed, **rates)
        data = (copies(4, seed=i) for i in itertools.count())
        fit(model, data, 3, lr=1e-2, kind=optim.AdamW, accumulate=accumulate)
        return model.state_dict()

    first, again, other = train(1), train(1), train(2)
    for name in first:
        assert_array_equal(first[name], again[name], strict=True)
    assert (first["embedding.weight"] != other["embedding.weight"]).any()


# -- R28: accumulation -----------------------------------------------------------------------------


def test_r28_the_mean_is_over_tokens_and_not_over_batches():
    model = Toy()
    history, _ = fit(model, batches([4.0], [1.0] * 9), 1, lr=1.0, accumulate=2)
    assert history[0]["loss"] == pytest.approx(1.3)
    assert history[0]["norm"] == pytest.approx(1.3)
    assert_allclose(model.weight.data, [1 - 1.3])


@pytest.mark.parametrize("sharing", [True, False])
def test_r28_accumulated_batches_equal_the_big_batch(sharing):
    whole = ragged([4, 2, 3, 1, 4, 2])
    pieces = [
        {k: v[rows] for k, v in whole.items()} for rows in (slice(1), slice(1, 3), slice(3, 6))
    ]
    results = []
    for data, accumulate in (([whole], 1), (pieces, 3)):
        model = tiny_transformer(dtype=np.float64, share_embeddings=sharing, label_smoothing=0.1)
        history, _ = fit(model, data, 1, lr=1.0, accumulate=accumulate)
        results.append((history[0], model.state_dict()))
    (big, at_once), (small, piece_by_piece) = results
    assert small["loss"] == pytest.approx(big["loss"], rel=1e-12)
    assert small["norm"] == pytest.approx(big["norm"], rel=1e-12)
    for name in at_once:
        assert_allclose(piece_by_piece[name], at_once[name], atol=1e-10)


def test_r28_each_step_takes_its_own_batches():
    model = Toy()
    history, _ = fit(model, batches([1.0], [3.0], [5.0], [7.0]), 2, lr=0.0, accumulate=2)
    assert [record["loss"] for record in history] == [2, 6]


# -- R25: batches without labels -------------------------------------------------------------------


def test_r25_a_batch_without_labels_is_left_out_and_said(capsys):
    model = Toy()
    history, _ = fit(model, batches([], [2.0], []), 1, lr=0.25)
    assert [record["loss"] for record in history] == [2]
    assert_allclose(model.weight.data, [0.5])
    out, err = capsys.readouterr()
    assert (out, err) == ("", "batch 1 had no labelled position and was left out\n")


def test_r25_in_an_accumulated_step_the_others_count(capsys):
    history, _ = fit(Toy(), batches([1.0], [], [3.0], [9.0]), 1, accumulate=3)
    assert history[0]["loss"] == 2
    assert "left out" in capsys.readouterr().err


def test_r25_a_transformer_on_such_a_batch_stays_as_it_is(capsys):
    model, nothing = tiny_transformer(), copies(2)
    nothing["labels"] = np.full((2, 4), -100)
    output = model(**nothing)
    output.loss.backward()
    assert (output.loss.item(), output.num_labels) == (0, 0)
    assert all(p.grad is None or (p.grad == 0).all() for p in model.parameters())
    alone, beside = tiny_transformer(), tiny_transformer()
    fit(alone, [copies(2)], 1)
    fit(beside, [nothing, copies(2)], 1)
    for name, x in alone.state_dict().items():
        assert_array_equal(beside.state_dict()[name], x)


def test_r25_nothing_but_such_batches_ends(capsys):
    with pytest.raises(ValueError, match="had no labelled position"):
        fit(Toy(), itertools.repeat({"values": []}), 1)


# -- R39: what is not finite -----------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_r39_a_bad_batch_changes_no_weight_and_is_said(bad, capsys):
    seen = []

    def watched(model):
        for values in ([1.0], [1.0], [bad], [1.0], [1.0]):
            seen.append(model.weight.data.copy())
            yield {"values": values}

    model = Toy()
    history, optimizer = fit(model, watched(model), 4, lr=0.125, kind=optim.Adam)
    assert_array_equal(seen[3], seen[2])  # after batch 3 = after batch 2
    assert len({float(x[0]) for x in seen}) == 4
    assert [record["step"] for record in history] == [1, 2, 3, 4]
    assert optimizer.state[0]["t"] == 4  # moments have not seen it
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"step 3, batch 3: loss {bad}, gradient norm {bad}: not applied\n"


def test_r39_the_message_names_the_batches_of_an_accumulated_step(capsys):
    values = [[1.0], [], [1.0], [1.0], [math.nan], [1.0], [1.0], [1.0]]
    fit(Toy(), batches(*values), 3, accumulate=2)
    assert capsys.readouterr().err.splitlines() == [
        "batch 2 had no labelled position and was left out",
        "step 3, batch 5-6: loss nan, gradient norm nan: not applied",
    ]


def test_r39_a_bad_gradient_under_a_finite_loss_changes_no_weight(capsys):
    class Steep(Toy):
        """Its loss is 0 and its slope is not finite, at the first call."""

        def forward(self, values):
            output = super().forward(values)
            if len(self.called) == 1:
                with np.errstate(divide="ignore"):
                    root = (self.weight.detach() * 0 + (self.weight - 1)) ** 0.5
                output.loss = root.sum()
            return output

    model = Steep()
    with np.errstate(divide="ignore"):
        history, _ = fit(model, batches([1.0], [1.0]), 1, lr=0.25)
    assert "loss 0.0, gradient norm inf: not applied" in capsys.readouterr().err
    assert_allclose(model.weight.data, [0.75])
    assert len(history) == 1


def test_r39_two_bad_steps_in_a_row_end_the_training(capsys):
    model = Toy()
    with pytest.raises(FloatingPointError, match=r"at step 2, batch 3: .* not finite twice in a"):
        fit(model, batches([1.0], [math.nan], [math.nan], [1.0]), 4, lr=0.25)
    assert_allclose(model.weight.data, [0.75])


def test_r39_two_bad_steps_apart_do_not(capsys):
    bad = [math.nan]
    history, _ = fit(Toy(), batches(bad, [1.0], bad, [1.0]), 2)
    assert len(history) == 2


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_r39_saving_refuses_weights_that_are_not_finite(bad, tmp_path):
    model = tiny_transformer()
    weight = model.encoder.layers[0].feed_forward.up.weight
    weight.data = np.full(weight.shape, bad, np.float32)
    folder = tmp_path / "model"
    with pytest.raises(ValueError, match=r"encoder.layers.0.feed_forward.up.weight is not finite"):
        model.save_pretrained(folder)
    assert not folder.exists() or not list(folder.iterdir())
    model.save_pretrained(folder, force=True)
    loaded = models.Transformer.from_pretrained(folder)
    assert_array_equal(loaded.encoder.layers[0].feed_forward.up.weight.data, weight.data)


# -- R29, R66: evaluation --------------------------------------------------------------------------


def test_r29_perplexity_is_over_tokens():
    class Fixed:
        """Two sequences with summed losses 0.4 over 3 tokens and 1.5 over 5."""

        def __call__(self, rows):
            total, count = np.array([[0.4, 3], [1.5, 5]])[rows].sum(0)
            return ModelOutput(loss=tinyfm.tensor(np.array(total / count)), num_labels=int(count))

    apart = training.mean_loss(Fixed(), [{"rows": [0]}, {"rows": [1]}])
    together = training.mean_loss(Fixed(), [{"rows": [0, 1]}])
    assert math.exp(apart) == pytest.approx(1.2680750, abs=1e-6)
    assert math.exp(together) == pytest.approx(1.2680750, abs=1e-6)


def test_r29_the_loss_is_the_same_for_every_batch_size_and_padding():
    model, whole = tiny_transformer(dtype=np.float64).eval(), ragged([4, 2, 3, 1, 4, 2])
    losses = []
    for size in (1, 2, 4, 6):
        cut = [{k: v[i : i + size] for k, v in whole.items()} for i in range(0, 6, size)]
        losses.append(training.mean_loss(model, cut))
    wider = {k: np.pad(v, ((0, 0), (0, 3))) for k, v in whole.items()}
    wider["labels"][:, -3:] = -100
    losses.append(training.mean_loss(model, [wider]))
    assert_allclose(losses, losses[0], rtol=1e-12)


def test_r25_the_mean_loss_of_nothing_is_an_error():
    """A generator that has been used up would otherwise look like a perfect model."""
    batch = iter(list(batches([2.0])))
    assert training.mean_loss(Toy(), batch) > 0
    for nothing in (batch, batches([]), []):
        with pytest.raises(ValueError, match="no batch had a labelled position; give a list"):
            training.mean_loss(Toy(), nothing)


@pytest.mark.parametrize("name", ["step", "loss", "lr", "norm"])
def test_an_evaluation_does_not_overwrite_the_record(name):
    with pytest.raises(ValueError, match=f"evaluate returned '{name}', which is of the training"):
        Training().fit(1, evaluate=lambda model: {"dev": 1.0, name: 7.0})


@pytest.mark.parametrize("name", ["steps", "accumulate", "evaluate_every", "save_every", "keep"])
@pytest.mark.parametrize("value", [2.5, -1, "2"])
def test_counts_are_whole_numbers(name, value):
    options = {"steps": 1} | {name: value}
    with pytest.raises(ValueError, match=f"{name} is {value!r}: it must be a whole number of at"):
        Training().fit(**options)


def test_r66_evaluation_is_without_dropout_and_recording_and_restores_the_mode():
    for mode in (True, False):
        model = Toy().train(mode)
        with model.evaluating():
            assert training.mean_loss(model, batches([2.0], [4.0, 4.0])) == pytest.approx(10 / 3)
        assert model.called == [(False, False)] * 2
        assert model.training is mode


def test_r66_the_mode_is_restored_when_evaluation_fails():
    model = Toy()
    with pytest.raises(ZeroDivisionError), model.evaluating():
        raise ZeroDivisionError
    assert model.training
    assert model(values=[1.0]).loss.requires_grad


def test_r66_evaluation_of_a_model_with_dropout_is_repeatable():
    model = tiny_transformer(dropout=0.5, attention_dropout=0.5)

    with model.evaluating():
        first, second = (training.mean_loss(model, [copies(4)]) for _ in range(2))
    assert first == second


def test_r66_every_module_gets_back_its_own_mode():
    model = tiny_transformer()
    model.encoder.eval()  # a frozen part of a model in training
    with model.evaluating():
        assert not any(m.training for m in model.modules())
    assert not any(m.training for m in model.encoder.modules())
    assert all(m.training for m in model.decoder.modules())


def test_evaluation_within_fit():
    """Every n steps and after the last; its numbers are in that step's record."""
    model, at = Toy(), []

    def dev(m):
        assert not m.training
        at.append(len([1 for mode, _ in m.called if mode]))
        return {"dev": float(len(at))}

    history, _ = fit(model, batches(*[[1.0]] * 5), 5, evaluate=dev, evaluate_every=2)
    assert at == [2, 4, 5]
    assert [record.get("dev") for record in history] == [None, 1, None, 2, 3]
    assert all(mode for mode, _ in model.called)  # training went on in training mode
    at.clear()
    fit(Toy(), batches([1.0], [1.0]), 2, evaluate=dev)
    assert at == [2]


def test_r66_evaluation_does_not_move_the_random_numbers():
    """Nor does an evaluation that fails, or one that starts the generator anew."""

    def train(evaluate):
        model = tiny_transformer(dropout=0.3)
        data = (copies(4, seed=i) for i in itertools.count())
        fit(model, data, 4, evaluate=evaluate, evaluate_every=1)
        return model.state_dict()

    def draws(model):
        model.generate(copies(2)["input_ids"], max_length=4)
        return {"drawn": tinyfm.backend.generator().random()}

    def seeds(model):
        tinyfm.manual_seed(0)
        return draws(model)

    alone = train(None)
    for evaluate in (draws, seeds):
        for name, x in train(evaluate).items():
            assert_array_equal(x, alone[name], strict=True)
    before = tinyfm.backend.generator().bit_generator.state
    with pytest.raises(ZeroDivisionError):
        fit(Toy(), batches([1.0]), 1, evaluate=lambda model: (draws(tiny_transformer()), 1 / 0))
    assert tinyfm.backend.generator().bit_generator.state == before


def test_r66_evaluation_keeps_no_graph():
    model = tiny_transformer(dropout=0.3)
    history, _ = fit(
        model, [copies(4)], 1, evaluate=lambda m: {"recorded": m(**copies(4)).loss.requires_grad}
    )
    assert history[-1]["recorded"] == 0


def test_records_hold_plain_numbers():
    """So that JSON can hold them: what comes from NumPy, too."""
    rate = lambda step: np.float32(0.5)  # noqa: E731
    history, _ = fit(
        Toy(), batches([1.0]), 1, schedule=rate, evaluate=lambda model: {"dev": np.float32(2)}
    )
    assert {type(value) for value in history[0].values()} == {int, float}
    assert (history[0]["lr"], history[0]["dev"]) == (pytest.approx(0.05), 2.0)


# -- the progress line -----------------------------------------------------------------------------


def test_the_progress_line(capsys):
    fit(Toy(), batches([2.0], [4.0]), 2, lr=0.25, progress=True, description="learning")
    out, err = capsys.readouterr()
    assert out == ""
    last = re.split(r"[\r\n]", err.strip())[-1]
    # Weight 1, then 0.5; the second batch has the loss 0.5 * 4.
    assert re.match(r"learning: 100%\|.*\| 2/2 \[.*loss 2\.000 lr 2\.50e-01 \d+ tokens/s", last), (
        last
    )
    assert re.search(r"learning: +50%.*1/2 \[\d+:\d+<\d+:\d+.*loss 2\.000", err)  # time left


def test_messages_and_the_progress_line_share_standard_error(capsys):
    fit(Toy(), batches([], [2.0]), 1, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "batch 1 had no labelled position and was left out\n" in err


@pytest.mark.parametrize("progress", [False, None])
def test_without_a_terminal_there_is_no_progress_line(progress, capsys):
    fit(Toy(), batches([1.0]), 1, progress=progress)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "option",
    [{"accumulate": 0}, {"steps": -1}, {"evaluate_every": -2}, {"save_every": 0}, {"keep": 0}],
)
def test_counts_that_make_no_sense_are_refused(option):
    model = Toy()
    arguments = {"steps": 1} | option
    with pytest.raises(ValueError, match=f"{next(iter(option))} is"):
        training.fit(
            model, batches([1.0]), optim.SGD(model.parameters(), 1), optim.constant(), **arguments
        )
