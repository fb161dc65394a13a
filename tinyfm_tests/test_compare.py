"""The comparison of architectures: what they are given, see and share; the command."""

import argparse
import re

import numpy as np
import pytest

import tinyfm
from tinyfm import masks
from tinyfm.data import IGNORE_INDEX, collate
from tinyfm.demos import architectures, compare, korean_english
from tinyfm.demos.architectures import ARCHITECTURES, in_a_row, with_prefix
from tinyfm.tokenizer import Tokenizer
from tinyfm_tests import commands

PAD, END = 0, 2
PAIRS = [([5, 6, 7], [8, 9]), ([4], [6, 5, 8, 7]), ([9, 8, 5], [4])]
SMALL = {"d_model": 16, "heads": 2, "ffn": 24, "layers": 2, "dropout": 0.0, "seed": 0}
TINY = [str(x) for name, n in SMALL.items() for x in (f"--{name.replace('_', '-')}", n)]


@pytest.fixture
def task():
    tokenizer = Tokenizer.train(["a b c d", "b a d c"], 40)
    assert (tokenizer.pad_id, tokenizer.eos_id) == (PAD, END)
    return architectures.Task(tokenizer, 8, [], {})


@pytest.fixture
def few(monkeypatch):
    """The command learns from few sentences."""
    whole = korean_english.split()
    parts = korean_english.Split(whole.train[:400], whole.random[:6], whole.compositional[:6])
    monkeypatch.setattr(korean_english, "split", lambda: parts)


def new_model(architecture, task):
    tinyfm.manual_seed(1)
    args = argparse.Namespace(**SMALL)
    return architecture.build(args, task, args.layers // architecture.part).to(dtype=np.float64)


def named(name):
    return next(a for a in ARCHITECTURES if a.name.strip() == name)


each = pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda a: a.name.strip())


# -- what a model is given -------------------------------------------------------------------------


def test_source_and_target_in_a_row():
    inputs = in_a_row(collate(PAIRS[:2], PAD, END))
    no = IGNORE_INDEX
    assert inputs["input_ids"].tolist() == [
        [5, 6, 7, END, 8, 9, END, 0, 0],
        [PAD, PAD, 4, END, 6, 5, 8, 7, END],
    ]
    assert inputs["attention_mask"].tolist() == [
        [1, 1, 1, 1, 1, 1, 1, 0, 0],
        [0, 0, 1, 1, 1, 1, 1, 1, 1],
    ]
    assert inputs["labels"].tolist() == [
        [no, no, no, no, 8, 9, END, no, no],
        [no, no, no, no, 6, 5, 8, 7, END],
    ]


def test_r48_a_source_may_hold_the_padding_token():
    inputs = in_a_row(collate([([5, PAD, PAD], [6]), ([PAD], [7])], PAD, END))
    assert inputs["input_ids"][:, :4].tolist() == [[5, PAD, PAD, END], [PAD, PAD, PAD, END]]
    assert inputs["attention_mask"].sum(1).tolist() == [6, 4]


def test_r24_the_prefix_is_the_source_with_its_end():
    mask = with_prefix(collate(PAIRS[:2], PAD, END))["attention_mask"]
    assert mask.dense(2, 9, 9)[0, 0].astype(int).tolist() == [
        *[[1, 1, 1, 1, 0, 0, 0, 0, 0]] * 4,
        [1, 1, 1, 1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 1, 0, 0, 0],
        *[[1, 1, 1, 1, 1, 1, 1, 0, 0]] * 3,
    ]
    assert not mask.dense(2, 9, 9)[1, 0, :, :2].any()


@each
def test_all_are_asked_for_the_same_tokens(architecture, task):
    batch = collate(PAIRS, PAD, END)
    output = new_model(architecture, task)(**architecture.arrange(batch))
    assert output.num_labels == sum(len(target) + 1 for _, target in PAIRS)


@each
def test_a_batch_is_the_mean_of_its_pairs(architecture, task):
    model = new_model(architecture, task)

    def total(pairs):
        output = model(**architecture.arrange(collate(pairs, PAD, END)))
        return output.loss.item() * output.num_labels

    assert total(PAIRS) == pytest.approx(sum(total([pair]) for pair in PAIRS), rel=1e-10)


# -- what it sees ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name, sees", [("language model", False), ("prefix LM", True)])
def test_r24_the_source_sees_itself_both_ways_in_a_prefix_lm_alone(name, sees, task):
    architecture = named(name)
    model = new_model(architecture, task)

    def logits(pair):
        inputs = architecture.arrange(collate([pair], PAD, END))
        return model(inputs["input_ids"], inputs["attention_mask"]).logits.numpy()[0]

    source, target = PAIRS[0]
    before = logits((source, target))
    other_source = logits(([*source[:-1], 4], target))
    other_target = logits((source, [*target[:-1], 4]))
    columns = len(source) + 1
    assert (other_source[:2] != before[:2]).any() == sees
    np.testing.assert_array_equal(other_target[: columns + 1], before[: columns + 1])
    assert (other_target[columns + 1] != before[columns + 1]).any()


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_prefix_lm_generates_what_its_forward_pass_says(use_cache, task):
    """Token by token over the whole row under the prefix mask, without cache or batch."""
    model = new_model(named("prefix LM"), task).eval()
    batch = collate([(source, []) for source, _ in PAIRS], PAD, END)
    inputs = with_prefix(batch | {"labels": batch["labels"][:, :0]})
    assert isinstance(inputs["attention_mask"], masks.Mask)
    steps = []
    made = model.generate(
        **{name: inputs[name] for name in ("input_ids", "attention_mask")},
        max_new_tokens=6,
        min_new_tokens=6,
        use_cache=use_cache,
        on_step=lambda logits: steps.append(logits.copy()),
    )
    for row, (source, _) in enumerate(PAIRS):
        ids, columns = [*source, END], len(source) + 1
        for n, logits in enumerate(steps):
            mask = masks.prefix(columns)
            alone = model(input_ids=[ids], attention_mask=mask).logits.numpy()[0, -1]
            np.testing.assert_allclose(logits[row], alone, atol=1e-10)
            ids.append(int(made[row, inputs["input_ids"].shape[1] + n]))


def test_beams_and_rows_of_a_prefix_lm_have_their_own_masks(task):
    model = new_model(named("prefix LM"), task).eval()
    batch = collate([(source, []) for source, _ in PAIRS], PAD, END)
    inputs = with_prefix(batch | {"labels": batch["labels"][:, :0]})
    options = {"num_beams": 3, "max_new_tokens": 5, "return_scores": True}
    together = model.generate(inputs["input_ids"], inputs["attention_mask"], **options)
    for row, (source, _) in enumerate(PAIRS):
        alone = model.generate([[*source, END]], masks.prefix(len(source) + 1), **options)
        assert together.scores[row] == pytest.approx(alone.scores[0], abs=1e-10)


def test_a_row_takes_its_prefix_along(task):
    """Rows that are reordered before the first step go on as the rows that they continue."""
    model = new_model(named("prefix LM"), task).eval()
    ids = np.array([[4, 5, 6, 7], [4, 5, 6, 7]])
    mask = masks.prefix([4, 1]) & masks.padding(np.ones((2, 4)))

    def logits(order):
        with tinyfm.no_grad():
            state = model.begin(ids, mask, np.arange(2), 6)
            state.reorder(np.array(order))
            return model.step(ids, state)

    as_they_are = logits([0, 1])
    assert (as_they_are[0] != as_they_are[1]).any()
    np.testing.assert_array_equal(logits([1, 0]), as_they_are[::-1])


# -- what is shared --------------------------------------------------------------------------------


def test_one_stack_serves_as_encoder_and_decoder(task):
    shared, apart = (new_model(named(name), task) for name in ("shared", "encoder-decoder"))
    for own, other in zip(shared.decoder.layers, shared.encoder.layers, strict=True):
        cross = {id(p) for part in (own.cross, own.cross_norm) for p in part.parameters()}
        assert {id(p) for p in own.parameters()} - {id(p) for p in other.parameters()} == cross
    encoder = sum(p.size for p in apart.encoder.parameters())
    sizes = [sum(p.size for p in model.parameters()) for model in (shared, apart)]
    assert sizes[1] - sizes[0] == encoder


def test_a_shared_matrix_gets_the_gradients_of_both_places(task):
    batch = collate(PAIRS, PAD, END)
    shared, apart = (new_model(named(name), task) for name in ("shared", "encoder-decoder"))
    values = shared.state_dict()
    apart.load_state_dict(
        {
            name: values.get(name, values.get(name.replace("decoder.", "encoder.", 1)))
            for name in apart.state_dict()
        }
    )
    for model in (shared, apart):
        model(**batch).loss.backward()
    layers = (apart.encoder.layers[0], apart.decoder.layers[0])
    parts = [layer.feed_forward.up.weight.grad for layer in layers]
    whole = shared.encoder.layers[0].feed_forward.up.weight.grad
    np.testing.assert_allclose(whole, parts[0] + parts[1], rtol=1e-8, atol=1e-12)


def test_the_layers_of_all_are_alike(task):
    """The decoder-only layer has the shapes and switches of an encoder layer."""
    encoder = new_model(named("encoder-decoder"), task).encoder
    decoder = new_model(named("language model"), task).transformer.decoder
    shapes = [{n: p.shape for n, p in s.named_parameters()} for s in (encoder, decoder)]
    assert shapes[0] == shapes[1]
    for mine, other in zip(encoder.layers, decoder.layers, strict=True):
        assert mine.norm_first == other.norm_first
        assert mine.feed_forward.activation is other.feed_forward.activation
        assert mine.dropout.p == other.dropout.p
        assert mine.attention.dropout == other.attention.dropout


# -- the command -----------------------------------------------------------------------------------


def rows_of(out):
    """The numbers of the table by architecture: P, its ratio, GFLOP, M, loss, BLEU, exact, BLEU."""
    rows = re.findall(r"^ *(\S.*?)  +\d(?: \+ \d)? +([\d,]+ .*)$", out, re.MULTILINE)
    return {
        name: [float(x) for x in re.findall(r"[\d.]+", row.replace(",", ""))] for name, row in rows
    }


def test_the_table_has_five_rows_and_a_picture(few, tmp_path):
    sizes = [*TINY, "--steps", 10, "--vocab-size", 300]
    status, out, err = commands.call(
        compare, "--architectures", *sizes, "--plot", tmp_path / "pictures"
    )
    assert (status, err) == (0, "")
    assert (tmp_path / "pictures" / "architectures.png").read_bytes().startswith(b"\x89PNG")
    numbers = rows_of(out)
    assert [*numbers] == [architecture.name.strip() for architecture in ARCHITECTURES]
    sizes = {name: row[0] for name, row in numbers.items()}
    assert sizes["language model"] == sizes["prefix LM"]
    assert numbers["language model"][1:4:2] == [1.0, 1.0]  # P and M are its own
    for name, (size, ratio, _, cost, *_) in numbers.items():
        assert ratio == pytest.approx(size / sizes["language model"], abs=0.005)
        assert (cost < 0.8) == (name == "half as deep")


def test_the_picture_has_losses_over_operations(tmp_path):
    history = [{"step": 1, "loss": 5.0}, {"step": 2, "loss": 4.0, "validation_loss": 3.0}]
    history.append({"step": 3, "loss": 3.0, "validation_loss": 2.0})
    scores = {"bleu": 0.0, "exact": 0.0, "new_bleu": 0.0}
    results = {
        name: architectures.Result(parameters=1, flops=flops, loss=2.0, history=history, **scores)
        for name, flops in (("one", 4e12), ("  other", 1e12))
    }
    (axes,) = architectures.draw(results, tmp_path / "picture.png").axes
    drawn = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert drawn == {"one": [[8, 3], [12, 2]], "other": [[2, 3], [3, 2]]}


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        ([], "give either --text TEXT or --architectures"),
        (["--architectures", "--layers", 3], "--layers 3: one has half of them"),
        (["--architectures", "--d-model", 15], "--d-model 15 is not a multiple of --heads 2"),
        (["--architectures", "--max-tokens", 20], "--max-tokens 20: a batch must hold the longest"),
        (["--architectures", "--steps", 0], "argument --steps: give a whole number"),
    ],
)
def test_what_does_not_go_is_refused(arguments, complaint, few, tmp_path):
    small = [*TINY, "--steps", 2, "--vocab-size", 300]
    assert complaint in commands.refused(compare, *small, *arguments, place=tmp_path)


@pytest.mark.parametrize(
    "arguments, remedy",
    [(["--lr", 1e30], "lower the learning rate"), (["--ffn", 10**15], "make it smaller")],
)
def test_what_goes_wrong_later_says_what_to_do(arguments, remedy, few, tmp_path):
    small = ["--architectures", *TINY, "--steps", 4, "--vocab-size", 300]
    status, _, err = commands.call(compare, *small, *arguments, cwd=tmp_path)
    assert status == 2 and remedy in err.splitlines()[-1]


@pytest.mark.slow
def test_without_options_all_five_learn_to_translate(tmp_path):
    """Of what the one task shares out, each gets most right: random sentences, new combinations."""
    status, out, _ = commands.call(compare, "--architectures", cwd=tmp_path)
    assert status == 0
    for name, (*_, bleu, exact, new_bleu) in rows_of(out).items():
        assert bleu > 90 and exact > 75 and new_bleu > 65, name
