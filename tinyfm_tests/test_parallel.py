"""One batch on several threads: what comes out is what one thread makes of it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import tinyfm
from tinyfm import autograd, backend, masks, models, nn, optim, parallel, training
from tinyfm.gradients import collected
from tinyfm.models.sentence_bert import CosineRegression
from tinyfm_tests.small_training import Training
from tinyfm_tests.test_families import FAMILIES


@pytest.fixture(autouse=True)
def however_little_there_is_to_do(monkeypatch):
    monkeypatch.setattr(parallel, "LEAST_WORK", 0)


def forward_and_backward(model, batch, threads):
    """Loss, labels, gradients, and the next draw of the generator."""
    tinyfm.manual_seed(1)
    for p in model.parameters():
        p.grad = None
    with tinyfm.settings(threads=threads):
        loss, labels = parallel.backward(model, batch)
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return loss, labels, gradients, backend.draw_seed()


def assert_same(found, wanted):
    assert found[1] == wanted[1] and found[3] == wanted[3]
    assert_allclose(found[0], wanted[0], rtol=1e-12)
    assert found[2].keys() == wanted[2].keys() != set()
    for name, gradient in wanted[2].items():
        assert_allclose(found[2][name], gradient, rtol=1e-9, atol=1e-11, err_msg=name)


def calls_of(model, monkeypatch):
    """The list of the numbers of rows that the model is called with, from now on."""
    rows, forward = [], type(model).forward

    def spied(self, input_ids, *args, **options):
        rows.append(len(input_ids))
        return forward(self, input_ids, *args, **options)

    monkeypatch.setattr(type(model), "forward", spied)
    return rows


def new(family, dropout=0.3):
    tinyfm.manual_seed(0)
    family = FAMILIES[family]
    model = family.model(family.config(17, dropout)).to(dtype=np.float64).train()
    for p in model.parameters():  # fresh biases are zero, and hide what they should show
        with p.writing() as array:
            array[...] += 0.05 * np.random.default_rng(p.size).standard_normal(p.shape)
    return model, family.example(np.random.default_rng(0), 5, 6, 7, 17)


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_parts_of_a_batch_come_to_the_whole(family, threads, monkeypatch):
    """Dropout included: each part takes its own rows of the masks."""
    model, batch = new(family)
    rows = calls_of(model, monkeypatch)
    whole = forward_and_backward(model, batch, 1)
    apart = forward_and_backward(model, batch, threads)
    assert_same(apart, whole)
    parts = [1, 2, 2] if threads == 3 else [2, 3]
    assert rows[:1] == [5] and sorted(rows[1:]) == (parts if model.separable else [5])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_separable_model_has_one_mean_as_its_loss(family):
    """The claim itself, without threads: rows alone, weighted with their labels."""
    model, batch = new(family, dropout=0.0)
    whole = model(**batch)
    rows = [model(**{name: x[i : i + 1] for name, x in batch.items()}) for i in range(5)]
    mean = sum(r.loss.item() * r.num_labels for r in rows) / sum(r.num_labels for r in rows)
    if model.separable:
        assert_allclose(mean, whole.loss.item(), rtol=1e-12)


def classifier(kind, **sizes):
    tinyfm.manual_seed(0)
    config = models.BertConfig(
        vocab_size=17, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, hidden_dropout_prob=0.3, **sizes,
    )  # fmt: skip
    return kind(config).to(dtype=np.float64).train()


IDS = np.random.default_rng(2).integers(3, 17, (5, 6))


@pytest.mark.parametrize(
    "model, batch",
    [
        (classifier(models.BertForSequenceClassification), {"labels": [0, 1, 1, -100, 0]}),
        (
            classifier(models.BertForSequenceClassification, num_labels=1),
            {"labels": [0.1, 0.5, 2.0, -1.0, 3.0]},
        ),
        (classifier(models.BertForTokenClassification), {"labels": IDS % 2}),
        (
            classifier(models.BertForMultipleChoice),
            {
                "input_ids": np.stack([IDS, IDS[::-1], IDS // 2], 1),
                "labels": IDS[:, 0] % 3,
            },
        ),
        (
            CosineRegression(classifier(models.BertModel)),
            {
                "input_ids": np.stack([IDS, IDS[::-1]], 1),
                "attention_mask": np.ones((5, 2, 6), int),
                "labels": np.linspace(-1, 1, 5),
            },
        ),
    ],
    ids=["classes", "numbers", "tokens", "choices", "likeness"],
)
def test_fine_tuned_models_too(model, batch, monkeypatch):
    batch = {"input_ids": IDS} | batch
    rows = calls_of(model, monkeypatch)
    assert_same(forward_and_backward(model, batch, 2), forward_and_backward(model, batch, 1))
    assert sorted(rows[:2]) == [2, 3] and rows[2:] == [5]


def test_two_losses_of_two_counts_stay_together(monkeypatch):
    """Start and end of an answer: a part with a cut one would weigh the other wrongly."""
    model = classifier(models.BertForQuestionAnswering)
    rows = calls_of(model, monkeypatch)
    batch = {"input_ids": IDS, "start_positions": [0, 9, 2, 3, 1], "end_positions": [1, 9, 9, 4, 2]}
    assert_same(forward_and_backward(model, batch, 2), forward_and_backward(model, batch, 1))
    assert rows == [5, 5]


@pytest.mark.parametrize(
    "mask",
    [
        masks.padding(np.arange(6) < np.array([[6], [3], [1], [5], [2]])),
        masks.prefix([1, 2, 3, 4, 5]),
        masks.prefix(2),
        masks.allowed(np.tril(np.ones((6, 6), bool), 1)),
        masks.allowed(np.random.default_rng(3).random((5, 4, 6, 6)) < 0.7),
    ],
    ids=["padding", "prefix", "one prefix", "a band", "anything"],
)
def test_masks_are_cut_with_their_rows(mask, monkeypatch):
    model, _ = new("GPT-2")
    rows = calls_of(model, monkeypatch)
    batch = {"input_ids": IDS, "attention_mask": mask, "labels": IDS}
    assert_same(forward_and_backward(model, batch, 2), forward_and_backward(model, batch, 1))
    assert sorted(rows[:2]) == [2, 3]


def test_lists_and_a_part_without_labels():
    model, _ = new("GPT-2")
    batch = {"input_ids": IDS.tolist(), "labels": np.where(np.arange(5)[:, None] < 2, -100, IDS)}
    found = forward_and_backward(model, batch, 2)
    assert_same(found, forward_and_backward(model, batch, 1))
    assert found[1] == 3 * 5
    nothing = batch | {"labels": np.full((5, 6), -100)}
    assert forward_and_backward(model, nothing, 2)[:3] == (0.0, 0, {})


@pytest.mark.parametrize(
    "change",
    [
        lambda batch: {name: x[:1] for name, x in batch.items()},
        lambda batch: batch | {"position_ids": np.arange(6)[None]},  # one row for all
    ],
)
def test_what_has_no_rows_to_share_stays_whole(change, monkeypatch):
    model, _ = new("GPT-2")
    rows = calls_of(model, monkeypatch)
    batch = change({"input_ids": IDS, "labels": IDS})
    forward_and_backward(model, batch, 2)
    assert rows == [len(batch["input_ids"])]


def test_small_work_is_not_shared(monkeypatch):
    model, batch = new("GPT-2")
    rows = calls_of(model, monkeypatch)
    monkeypatch.setattr(parallel, "LEAST_WORK", 1e10)
    forward_and_backward(model, batch, 2)
    assert rows == [5]


def test_gradients_are_added_to_those_that_are_there():
    model, batch = new("GPT-2", dropout=0.0)
    once = forward_and_backward(model, batch, 2)[2]
    once = {name: gradient.copy() for name, gradient in once.items()}
    with tinyfm.settings(threads=2):
        parallel.backward(model, batch)
    for name, p in model.named_parameters():
        assert_allclose(p.grad, 2 * once[name], rtol=1e-12)


def test_threads_give_the_same_bits_from_run_to_run():
    model, batch = new("Transformer")
    first, second = (forward_and_backward(model, batch, 2) for _ in range(2))
    assert first[0] == second[0]
    for name, gradient in first[2].items():
        assert_array_equal(gradient, second[2][name])


@pytest.mark.parametrize("bad", [0, 4])
def test_an_error_in_a_part_is_the_callers(bad):
    """In the first part, on the caller's thread, or in the other; and no gradient is left."""
    model, _ = new("GPT-2")
    ids = IDS.copy()
    ids[bad, 2] = 99
    with tinyfm.settings(threads=2), pytest.raises(IndexError, match="id 99 is outside"):
        parallel.backward(model, {"input_ids": ids, "labels": IDS})
    assert all(p.grad is None for p in model.parameters())
    assert autograd._recording.get()


def test_a_training_comes_to_the_same_on_two_threads(monkeypatch):
    def history(threads):
        run = Training(dtype=np.float64)
        with tinyfm.settings(threads=threads):
            run.fit(6)
        return run.history, {n: p.numpy().copy() for n, p in run.model.named_parameters()}

    (records, weights), (records2, weights2) = history(1), history(2)
    for record, other in zip(records, records2, strict=True):
        assert record.keys() == other.keys()
        for name, value in record.items():  # "dev" is of float32
            assert_allclose(other[name], value, rtol=1e-6 if name == "dev" else 1e-9, err_msg=name)
    for name, array in weights.items():
        assert_allclose(weights2[name], array, rtol=1e-7, atol=1e-10, err_msg=name)


def test_a_model_of_ones_own_is_left_whole_unless_it_says_more(monkeypatch):
    class Mine(nn.Module):
        def __init__(self):
            self.table = nn.Embedding(17, 3)

        def forward(self, input_ids):
            x = self.table(input_ids)
            loss = ((x - x.mean(axis=0)) ** 2).mean()  # rows change each other
            return models.output.ModelOutput(loss=loss, num_labels=len(input_ids))

    model = Mine()
    rows = calls_of(model, monkeypatch)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    training.fit(model, [{"input_ids": IDS}], optimizer, optim.constant(), 1, progress=False)
    assert rows == [5]


def test_collected_gradients_leave_grad_alone():
    x = tinyfm.tensor([1.0, 2.0], requires_grad=True)
    with collected() as gradients:
        (x * x).sum().backward()
        (x * 3).sum().backward()
    assert x.grad is None
    assert_array_equal(gradients[x], [5, 7])
    (x * x).sum().backward()
    assert_array_equal(x.grad, [2, 4])
