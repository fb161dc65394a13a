"""The classify command: what its files may look like, its labels, its scores, its answers."""

import gzip
import json
import re
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tinyfm import metrics, models, pretrained
from tinyfm.data import collate_examples
from tinyfm.demos import classify
from tinyfm.demos.families import GPT1
from tinyfm.demos.finetuning import Model
from tinyfm.demos.records import Choice, Example
from tinyfm.tokenizer import Tokenizer
from tinyfm_tests import commands
from tinyfm_tests.test_finetuning import TINY, published

LEAST_ACCURACY = 0.8  # of the default training

call = partial(commands.call, classify)
refused = partial(commands.refused, classify)
LEARN = ["--hidden-size=32", "--layers=1", "--heads=2", "--ffn=32", "--dropout=0", "--lr=0.01"]

# Reviews in a made-up language: `moka` is good and `reti` bad, `lum` before them says the opposite.
WORDS = ("pa", "sol", "ki")
REVIEWS = [
    (" ".join((first, *lum, word, last)), "good" if (word == "moka") != bool(lum) else "bad")
    for first in WORDS
    for last in WORDS
    for lum in ((), ("lum",))
    for word in ("moka", "reti")
]


def stars(text):
    """What the numbers are: of the word, and half a star for `lum`."""
    return (4.0 if "moka" in text else 1.5) + 0.5 * ("lum" in text)


BLOCKS = {
    "classes.tsv": ["sentence\tlabel", *(f"{text}\t{label}" for text, label in REVIEWS)],
    "pairs.tsv": [
        "label\tsentence1\tsentence2",
        *(f"{label}\t{' '.join(t.split()[:-1])}\t{t.split()[-1]}" for t, label in REVIEWS),
    ],
    "numbers.jsonl": [{"sentence": text, "label": stars(text)} for text, _ in REVIEWS],
    "choices.jsonl": [
        {"context": text, "endings": [["good", "bad"][i % 2], ["good", "bad"][i % 2 == 0]],
         "label": int((label == "bad") != i % 2)}
        for i, (text, label) in enumerate(REVIEWS)
    ],
}  # fmt: skip
KINDS = tuple(BLOCKS)


def write(path, lines):
    lines = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    return {name: write(folder / name, lines) for name, lines in BLOCKS.items()}


@pytest.fixture(scope="module")
def learnt(files, tmp_path_factory):
    """For each kind of file (folder, output) of a training that learns it by heart."""
    place = tmp_path_factory.mktemp("learnt")
    results = {}
    for name, file in files.items():
        how = ("--train", file, "--test", file, *LEARN, "--steps=60", "--save", place / name)
        status, out, err = call(*how)
        assert (status, err) == (0, "")
        results[name] = place / name, out
    return results


# -- files -----------------------------------------------------------------------------------------

TEXTS, LABELS = zip(*REVIEWS, strict=True)
SHAPES = {
    "packed.tsv.gz": ((), gzip.compress("\n".join(BLOCKS["classes.tsv"]).encode())),
    "marked.tsv": ((), ("\ufeff" + "\n".join(BLOCKS["classes.tsv"])).encode()),
    "windows.tsv": ((), "\r\n".join(BLOCKS["classes.tsv"]).encode()),
    "lines.jsonl": (
        (), "".join(json.dumps({"label": y, "sentence": x}) + "\n" for x, y in REVIEWS).encode()
    ),
    "named.tsv": (
        ("--text-columns", "글", "--label-column", "stars"),
        "".join(f"{x}\t{y}\tz\n" for x, y in [("글", "stars"), *REVIEWS]).encode(),
    ),
    "headless.tsv": (
        ("--text-columns", "3", "--label-column", "1"),
        "".join(f"{y}\tz\t{x}\n" for x, y in REVIEWS).encode(),
    ),
}  # fmt: skip


def test_every_form_of_a_file_gives_the_same_model(files, tmp_path):
    models = set()
    for name, (options, content) in {"": ((), files["classes.tsv"].read_bytes()), **SHAPES}.items():
        (tmp_path / f"f{name}").write_bytes(content)
        how = ("--train", f"f{name}", *options, "--steps=2", *TINY, "--save", f"m{name}")
        status, out, _ = call(*how, cwd=tmp_path)
        assert status == 0 and out.startswith("36 records, "), name
        assert "labels: bad, good\n" in out
        models.add((tmp_path / f"m{name}" / "model.safetensors").read_bytes())
    assert len(models) == 1


def test_r54_korean_names_of_columns_under_a_c_locale(tmp_path):
    options, content = SHAPES["named.tsv"]
    (tmp_path / "f").write_bytes(content)
    how = ("--train=f", *options, "--steps=1", *TINY)
    status, out, err = commands.run("classify", *how, cwd=tmp_path, env=commands.C_LOCALE)
    assert (status, err) == (0, "") and out.startswith("36 records, ")


@pytest.mark.parametrize(
    "labels, names",
    [
        (["10", "9", "2"], ["2", "9", "10"]),
        (["no", "10", "9"], ["10", "9", "no"]),
        (["나쁨", "좋음", "나쁨"], ["나쁨", "좋음"]),
        ([True, False, True], ["false", "true"]),
    ],
)
def test_the_names_of_the_labels_are_kept_and_printed(labels, names, tmp_path):
    """In the order of the numbers where they are numbers; --model reads them back."""
    rows = [{"text": f"pa {i}", "label": label} for i, label in enumerate(labels)]
    how = ("--train", write(tmp_path / "f", rows), "--steps=1", *TINY, "--save", tmp_path / "m")
    status, out, _ = call(*how)
    assert status == 0 and f"labels: {', '.join(names)}\n" in out
    config = json.loads((tmp_path / "m" / "config.json").read_text("utf-8"))
    assert config["id2label"] == {str(i): name for i, name in enumerate(names)}
    assert config["label2id"] == {name: i for i, name in enumerate(names)}
    _, out, _ = call("--model", tmp_path / "m", "--text=pa")
    cells = out.rstrip("\n").split("\t")
    assert sorted(cells[::2]) == sorted(names)
    shares = [float(cell) for cell in cells[1::2]]
    assert shares == sorted(shares, reverse=True) and sum(shares) == pytest.approx(1, abs=2e-4)


# -- what is learnt --------------------------------------------------------------------------------

PERFECT = {
    "classes.tsv": "accuracy 1.0000, macro F1 1.0000, Matthews 1.0000, F1 of good 1.0000 (36",
    "pairs.tsv": "accuracy 1.0000, macro F1 1.0000, Matthews 1.0000, F1 of good 1.0000 (36",
    "numbers.jsonl": r"Pearson (0\.99|1\.0)\d+, Spearman 0\.9\d+ (36",
    "choices.jsonl": "accuracy 1.0000 (36",
}


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_is_learnt_and_scores_the_same_again(name, learnt, files):
    folder, out = learnt[name]
    last = out.splitlines()[-1]
    pattern = PERFECT[name].replace("(36", r"\(36 records\)")
    assert re.fullmatch(rf"{re.escape(str(files[name]))}: {pattern}", last), last
    assert call("--model", folder, "--test", files[name]) == (0, last + "\n", "")


@pytest.mark.parametrize(
    "name, texts, best",
    [
        ("classes.tsv", ("pa moka sol",), "good"),
        ("classes.tsv", ("pa lum moka sol",), "bad"),
        ("pairs.tsv", ("pa lum reti", "sol"), "good"),
        ("choices.jsonl", ("pa moka sol", "bad", "good"), "good"),
        ("choices.jsonl", ("pa reti sol", "bad", "good"), "bad"),
    ],
)
def test_texts_are_classified_as_lines_are(name, texts, best, learnt):
    folder, (text, *pair) = learnt[name][0], texts
    more = ("--pair", *pair) if pair else ()
    status, out, err = call("--model", folder, "--text", text, *more)
    assert (status, err) == (0, "")
    cells = out.rstrip("\n").split("\t")
    assert cells[0] == best and float(cells[1]) > 0.5 and len(cells) == 4
    line = "\t".join(texts)
    assert call("--model", folder, stdin=f"{line}\n\n   \n{line}".encode()) == (
        0, f"{out}\n\n{out}", ""
    )  # fmt: skip


def test_numbers_are_predicted(learnt):
    lines = [f"pa {words} sol" for words in ("moka", "reti", "lum reti")]
    _, out, _ = call("--model", learnt["numbers.jsonl"][0], stdin="\n".join(lines).encode())
    found = [float(line) for line in out.split()]
    assert found == pytest.approx([stars(line) for line in lines], abs=0.2)


def test_the_score_is_that_of_the_answers(files, tmp_path):
    """Of a model that has learnt next to nothing, counted from what it prints."""
    how = ("--train", files["classes.tsv"], "--steps=2", *TINY, "--save", tmp_path)
    out = call(*how, "--test", files["classes.tsv"])[1]
    _, answers, _ = call("--model", tmp_path, stdin="".join(f"{t}\n" for t in TEXTS).encode())
    found = [line.split("\t")[0] for line in answers.splitlines()]
    shown = dict(re.findall(r"([A-Za-z][A-Za-z1 ]*?) (-?\d\.\d{4})", out.splitlines()[-1]))
    right = np.mean([a == b for a, b in zip(found, LABELS, strict=True)])
    assert float(shown["accuracy"]) == pytest.approx(right, abs=1e-4) and right < 1
    assert float(shown["Matthews"]) == pytest.approx(metrics.matthews(LABELS, found), abs=1e-4)
    assert float(shown["F1 of good"]) == pytest.approx(metrics.f1(LABELS, found, "good"), abs=1e-4)


@pytest.mark.parametrize("family", ["Bert", "Roberta"])
def test_r53_pairs_keep_the_special_tokens_and_are_cut_at_the_longer_side(family, tmp_path):
    model = pretrained.load(published(tmp_path, family))
    tokenizer = pretrained.load_tokenizer(tmp_path, model)
    task, special = classify.Classification(), len(tokenizer.encode("", "").ids)
    records = [Example(("k o t v i d i k o t", "k o"), "a"), Example(("k o", "k o t v i d i"), "a")]
    for record in records:
        whole = [[i for i, w in zip(e.ids, e.word_ids, strict=True) if w is not None]
                 for e in map(tokenizer.encode, record.texts)]  # fmt: skip
        short = min(map(len, whole))
        (made,) = task.inputs([record], Model(model, tokenizer, special + short + 4))
        first, second = (ids[: max(4, short)] if len(ids) > short else ids for ids in whole)
        ids = [tokenizer.cls_id, *first, tokenizer.sep_id, *second, tokenizer.sep_id]
        if family == "Roberta":
            ids.insert(len(first) + 1, tokenizer.sep_id)
            assert "token_type_ids" not in made
        else:
            types = [0] * (len(first) + 2) + [1] * (len(second) + 1)
            assert made["token_type_ids"] == types
        assert made["input_ids"] == ids


def test_endings_are_pairs_with_their_beginning(tmp_path):
    model = pretrained.load(published(tmp_path, "Bert"))
    ready = Model(model, pretrained.load_tokenizer(tmp_path, model), 20)
    task = classify.Classification()
    (made,) = task.inputs([Choice("kot", ("vidi", "ab"), 0)], ready)
    pairs = task.inputs([Example(("kot", "vidi"), ""), Example(("kot", "ab"), "")], ready)
    assert made == {name: [pair[name] for pair in pairs] for name in pairs[0]}


def test_the_classes_of_a_model_that_knows_them_stay(learnt, tmp_path):
    """In its own order, though the file has one of them only, or calls them in another order."""
    folder, _ = learnt["classes.tsv"]
    config = json.loads((folder / "config.json").read_text("utf-8"))
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    swapped = config | {"id2label": {"0": "good", "1": "bad"}, "label2id": {"good": 0, "bad": 1}}
    (tmp_path / "config.json").write_text(json.dumps(swapped), encoding="utf-8")
    file = write(tmp_path / "f", [{"text": "pa", "label": y} for y in ("bad", "good", "bad")])
    how = ("--train", file, "--model", tmp_path, "--steps=1", "--lr=1e-9", "--save", tmp_path / "n")
    status, out, _ = call(*how)
    assert status == 0 and "labels: good, bad\n" in out and "new, and" not in out
    assert pretrained.load(tmp_path / "n").config.id2label == {0: "good", 1: "bad"}
    _, before, _ = call("--model", tmp_path, "--text", "pa moka sol")
    assert call("--model", tmp_path / "n", "--text", "pa moka sol") == (0, before, "")


def test_classes_that_are_as_many_take_the_place_of_those_that_were(learnt, tmp_path):
    file = write(tmp_path / "f", [{"text": "pa", "label": y} for y in ("no", "yes", "no")])
    how = ("--train", file, "--model", learnt["classes.tsv"][0], "--steps=1", "--save", tmp_path)
    status, out, _ = call(*how)
    assert status == 0 and "labels: no, yes\n" in out and "new, and" not in out


@pytest.mark.parametrize("labels, has", [(["a", "b", "c"], "a, b, c"), ([1.5, 2.5], "numbers")])
def test_a_head_for_other_labels(labels, has, learnt, tmp_path):
    write(tmp_path / "f", [{"text": "pa", "label": y} for y in labels])
    said = refused("--train=f", "--model", learnt["classes.tsv"][0], place=tmp_path)
    assert f"trained for the labels bad, good, and the file has {has}; begin with" in said


# -- GPT's input forms -----------------------------------------------------------------------------

GPT = ("--architecture=gpt", "--hidden-size=32", "--layers=2", "--heads=2", "--dropout=0",
       "--lr=0.003")  # fmt: skip


@pytest.fixture(scope="module")
def learnt_by_gpt(files, tmp_path_factory):
    """The same as `learnt` for a GPT, which goes on predicting words."""
    place = tmp_path_factory.mktemp("learnt_by_gpt")
    results = {}
    for name, file in files.items():
        how = ("--train", file, "--test", file, *GPT, "--steps=120", "--save", place / name)
        status, out, err = call(*how)
        assert (status, err) == (0, "")
        results[name] = place / name, out
    return results


def opened(folder):
    net = pretrained.load(folder)
    return Model(net, pretrained.load_tokenizer(folder), 60, GPT1)


@pytest.mark.parametrize("name", KINDS)
def test_gpt_learns_each_kind_and_scores_the_same_again(name, learnt_by_gpt, files):
    folder, out = learnt_by_gpt[name]
    last = out.splitlines()[-1]
    pattern = PERFECT[name].replace("(36", r"\(36 records\)")
    assert re.fullmatch(rf"{re.escape(str(files[name]))}: {pattern}", last), last
    assert call("--model", folder, "--test", files[name]) == (0, last + "\n", "")
    head = "DoubleHeadsModel" if name == "choices.jsonl" else "ForSequenceClassification"
    assert type(pretrained.load(folder)).__name__ == f"OpenAIGPT{head}"


@pytest.mark.parametrize(
    "name, texts, best",
    [
        ("classes.tsv", ("pa lum moka sol",), "bad"),
        ("pairs.tsv", ("pa lum reti", "sol"), "good"),
        ("choices.jsonl", ("pa moka sol", "bad", "good"), "good"),
    ],
)
def test_gpt_classifies_texts_as_lines(name, texts, best, learnt_by_gpt):
    folder, (text, *pair) = learnt_by_gpt[name][0], texts
    more = ("--pair", *pair) if pair else ()
    status, out, err = call("--model", folder, "--text", text, *more)
    assert (status, err) == (0, "") and out.startswith(f"{best}\t")
    assert call("--model", folder, stdin="\t".join(texts).encode()) == (0, out, "")


@pytest.mark.parametrize("name", KINDS)
def test_the_input_forms_of_gpt_1(name, learnt_by_gpt, files):
    """Section 3.3: what stands around the texts, and each record's texts in their order."""
    ready = opened(learnt_by_gpt[name][0])
    tokenizer, task = ready.tokenizer, classify.Classification()
    start, between, end = map(tokenizer.token_to_id, ("<start>", "<delimiter>", "<extract>"))
    assert (tokenizer.bos_id, tokenizer.sep_id, tokenizer.cls_id) == (start, between, end)
    records = task.read(str(files[name]), classify.new_parser().parse_args([]))

    def words(text):
        return [i for i in tokenizer.encode(text).ids if i not in (start, end)]

    for record, example in zip(records, task.inputs(records, ready), strict=True):
        if name == "choices.jsonl":
            expected = [[start, *words(record.context), between, *words(ending), end]
                        for ending in record.endings]  # fmt: skip
        elif name == "pairs.tsv":
            first, second = map(words, record.texts)
            expected = [start, *first, between, *second, end]
        else:
            expected = [start, *words(*record.texts), end]
        assert example == {"input_ids": expected}


@pytest.fixture(scope="module")
def similar(tmp_path_factory):
    """(file of pairs, of which half share their word, folder of a GPT that rates them)."""
    place = tmp_path_factory.mktemp("similar")
    words = ("moka", "reti", "lum", "vidi")
    rows = [{"sentence1": f"pa {a}", "sentence2": f"{b} ki", "label": 4.5 if a == b else 1.0}
            for a in words for b in words]  # fmt: skip
    file = write(place / "f", rows)
    assert call("--train", file, *GPT, "--steps=120", "--save", place / "m")[::2] == (0, "")
    return file, place / "m"


def test_pairs_with_numbers_are_read_in_both_orders(similar):
    """And so have the same rating in both; of classes the order counts unless told."""
    _, folder = similar
    ready = opened(folder)
    record = Example(("pa moka", "reti ki"), None)
    (made,) = classify.Classification().inputs([record], ready)
    forth, back = made["input_ids"]
    cut = forth.index(ready.tokenizer.sep_id)
    assert back == [forth[0], *forth[cut + 1 : -1], forth[cut], *forth[1:cut], forth[-1]]
    lines = [call("--model", folder, "--text", a, "--pair", b)[1]
             for a, b in (("pa moka", "reti ki"), ("reti ki", "pa moka"))]  # fmt: skip
    assert float(lines[0]) == pytest.approx(float(lines[1]), abs=1e-3)
    same = call("--model", folder, "--text", "pa moka", "--pair", "moka ki")[1]
    assert float(same) > float(lines[0]) + 1


def test_classes_of_pairs_in_both_orders(files, learnt_by_gpt, tmp_path):
    how = ("--train", files["pairs.tsv"], *GPT, "--steps=2", "--both-orders")
    assert call(*how, cwd=tmp_path)[0] == 0
    ready = opened(tmp_path / "classifier")
    task = classify.Classification()
    pair = [Example(("pa moka", "reti"), "bad"), Example(("reti", "pa moka"), "bad")]
    first, second = task.logits(pair, ready)
    assert first == pytest.approx(second, abs=1e-5)
    first, second = task.logits(pair, opened(learnt_by_gpt["pairs.tsv"][0]))
    assert np.abs(first - second).max() > 0.1
    # What is trained further keeps its way of reading.
    more = ("--train", files["pairs.tsv"], "--model=classifier", "--steps=1", "--save=more")
    assert call(*more, cwd=tmp_path)[0] == 0
    assert pretrained.load(tmp_path / "more").config.both_orders


@pytest.mark.parametrize("name", ["classes.tsv", "choices.jsonl", "similar"])
def test_the_auxiliary_loss_is_that_of_all_next_words(name, learnt_by_gpt, files, similar):
    """Section 3.2: the task's loss and the weight times that of words; weight 0 leaves them out."""
    file, folder = similar if name == "similar" else (files[name], learnt_by_gpt[name][0])
    ready, task, args = opened(folder), classify.Classification(), classify.new_parser()
    args = args.parse_args([])
    examples = task.examples(task.read(str(file), args), ready)
    batch = collate_examples(examples, 0)
    losses = {}
    for weight in (None, 0.0, 2.0):
        args.lm_weight = weight
        changed = task.change(args, ready)(dict(batch), np.random.default_rng(0))
        losses[weight] = ready.model(**changed).loss.item()
        assert (len(changed) < len(batch)) == (weight == 0)
    lists = [example["input_ids"] for example in examples]
    rows = [row for ids in lists for row in (ids if isinstance(ids[0], list) else [ids])]
    words, net = [], ready.model
    for row in rows:
        hidden = net.transformer(np.array([row])).last_hidden_state.data[0]
        logits = (hidden @ net.transformer.tokens.weight.data.T).astype(np.float64)
        logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        words += [-logs[i, new] for i, new in enumerate(row[1:])]
    for weight, factor in ((None, 0.5), (2.0, 2.0)):
        found = losses[weight] - losses[0.0]
        assert found == pytest.approx(factor * np.mean(words), rel=1e-4)


def test_several_weights_give_a_table_and_go_on(files, tmp_path):
    file = files["classes.tsv"]
    how = ("--train", file, "--test", file, *GPT, "--steps=3", "--schedule=constant")
    how += ("--lm-weight", "0", "0.5")
    status, out, err = call(*how, "--save=m", "--text=pa moka sol", cwd=tmp_path)
    assert (status, len(out.splitlines())) == (0, 1)
    head, *rows = (line.split() for line in err.splitlines()[-3:])
    assert head[:3] == ["LM", "weight", "accuracy"] and [row[0] for row in rows] == ["0", "0.5"]
    for weight, row in zip(("0", "0.5"), rows, strict=True):
        folder = tmp_path / "m" / f"lm-weight-{weight}"
        scored = call("--model", folder, "--test", file)[1]
        assert re.findall(r" (-?\d\.\d{4})", scored) == row[1:]
        single = (*how[:2], *GPT, "--steps=3", "--schedule=constant", "--lm-weight", weight)
        assert call(*single, "--save=single", cwd=tmp_path)[0] == 0
        names = (folder / "model.safetensors", tmp_path / "single" / "model.safetensors")
        assert names[0].read_bytes() == names[1].read_bytes()
    assert call("--model", folder, "--text=pa moka sol")[1] == out
    how = ("--resume", "--save=m", "--lm-weight", "0", "0.5", "--steps=4")
    status, out, err = call(*how, cwd=tmp_path)
    assert (status, err) == (0, "") and out.count("after 4 steps") == 2


@pytest.mark.parametrize("family", ["GPT2", "OpenAIGPT"])
@pytest.mark.parametrize("name", ["classes.tsv", "choices.jsonl"])
def test_a_language_model_learns_the_tokens_of_the_input_forms(family, name, files, tmp_path):
    """They are new rows of its table; the words that it knew begin as they were."""
    tokenizer = Tokenizer.train_byte_level(TEXTS, 270)
    tokenizer.save(tmp_path / "body")
    cls = getattr(models, f"{family}LMHeadModel")
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 60}
    body = cls(cls.config_class(vocab_size=len(tokenizer), **sizes))
    body.save_pretrained(tmp_path / "body")
    how = ("--train", files[name], "--test", files[name], "--steps=1", "--lr=1e-7")
    status, out, err = call(*how, "--model=body", cwd=tmp_path)
    assert (status, err) == (0, "")
    assert re.search(r"new, and to be learnt: .*, 4 rows of transformer.tokens.weight\n", out)
    tuned = pretrained.load(tmp_path / "classifier")
    rows = tuned.transformer.tokens.weight.data
    assert type(tuned).__name__.startswith(family) and len(rows) == len(tokenizer) + 4
    before = body.transformer.tokens.weight.data
    assert np.abs(rows[: len(before)] - before).max() < 1e-5
    # Padding is no token of a text: it is left out without a mask as with one.
    wider = Tokenizer.load(tmp_path / "classifier")
    pad = tuned.config.pad_token_id
    assert pad == wider.pad_id == len(tokenizer) + 3
    texts = [wider.encode(TEXTS[0]).ids, wider.encode(TEXTS[0][:5]).ids]
    ids = np.array([row + [pad] * (len(texts[0]) - len(row)) for row in texts])
    if name == "classes.tsv":
        masked, told = (tuned(ids, mask).logits.data for mask in (ids != pad, None))
        assert_allclose(told, masked, atol=1e-6)
    again = call("--model", tmp_path / "classifier", "--test", files[name])
    assert again == (0, out.splitlines()[-1] + "\n", "")
    status, out, err = call(*how, "--model=classifier", "--save=more", cwd=tmp_path)
    assert (status, err) == (0, "") and "new, and" not in out


@pytest.mark.parametrize(
    "arguments, said",
    [
        ("--lm-weight 0", "--lm-weight is for GPT: give --architecture gpt"),
        ("--both-orders", "--both-orders is for GPT: give --architecture gpt"),
        ("--architecture gpt --both-orders", "f:2: no pair of texts; leave --both-orders out"),
        ("--architecture gpt --ffn 64", "--ffn is for BERT: those of GPT are four times"),
        ("--architecture gpt --model m", "--architecture is for a new model, and that in m has"),
        ("--architecture gpt --lm-weight -1", "--lm-weight: give a number of at least 0"),
        ("--architecture gpt --lm-weight 1 1.0", "--lm-weight: a weight is given twice"),
        ("--architecture gpt --lm-weight 0 1", "--lm-weight: several are compared by a test; give"),
        ("--architecture gpt --hidden-size 16 --heads 3", "16 is not a multiple of --heads 3"),
        ("--architecture gpt --max-length 2", "--max-length 2: 2 special tokens stand around a"),
        ("--architecture elmo", "--architecture: invalid choice: 'elmo'"),
    ],
)
def test_options_that_are_not_for_the_architecture(arguments, said, files, tmp_path):
    (tmp_path / "f").write_bytes(files["classes.tsv"].read_bytes())
    assert said in refused("--train", "f", *arguments.split(), place=tmp_path)


@pytest.mark.parametrize("architecture", ["bert", "gpt"])
def test_max_length_has_to_hold_what_stands_around_the_texts(architecture, files, tmp_path):
    """Three tokens around two texts or a context and its ending; two around one, as one is left."""
    tiny = [option for option in TINY if architecture == "bert" or "ffn" not in option]
    how = ("--architecture", architecture, "--max-length=3", "--steps=1", *tiny)
    said = "--max-length 3: 3 special tokens stand around two texts; give more"
    for name in ("pairs.tsv", "choices.jsonl"):
        assert said in refused("--train", files[name], *how, place=tmp_path)
    one = ("--train", files["classes.tsv"], *how, "--save", tmp_path / "m")
    place = tmp_path / "empty"
    place.mkdir()
    assert said in refused(*one, "--text=pa", "--pair=pa", place=place)
    assert call(*one)[0] == 0
    asked = ("--model", tmp_path / "m", "--max-length=3")
    assert call(*asked, "--text=pa moka")[0] == 0
    assert said in refused(*asked, "--text=pa", "--pair=pa", place=place)
    assert said in call(*asked, stdin=b"pa\nmoka\tpa\n")[2]


@pytest.mark.parametrize("option", ["--architecture=gpt", "--both-orders", "--lm-weight=0"])
def test_options_of_a_training_of_gpt_without_one(option, learnt_by_gpt, tmp_path):
    said = refused("--model", learnt_by_gpt["pairs.tsv"][0], option, place=tmp_path)
    assert f"{option.partition('=')[0]} is for a training: give --train too" in said


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines, said",
    [
        (["review\tlabel", "a\tb"], r"f: the columns are 'review', 'label', .* --text-columns"),
        (["sentence\tstars", "a\tb"], r"f: the columns are 'sentence', 'stars', .* --label-column"),
        (["sentence\tlabel", "a\tb", " \tc"], r"f:3: 'sentence' is blank"),
        (["sentence\tlabel", "a\t1.5", "a\tx"], r"f:3: label 'x' is no number"),
        (["sentence\tlabel", "a\tb", "c\t "], r"f:3: label ' ' is no class"),
        (["sentence\tlabel", "a\tb", "c\tb"], r"f:2: label 'b' is the only one in the file"),
        (['{"sentence": "a", "label": 1}', "{"], r"f:2: not JSON"),
        (['{"sentence": "a", "label": 1}', '{"sentence": "a"}'], r"f:2: no 'label'"),
        (
            ['{"context": "a", "endings": ["b", "c"], "label": 2}'],
            r"f:1: label 2 is none of 0 to 1",
        ),
        (['{"context": "a", "endings": ["b"], "label": 0}'], r"f:1: 1 ending; give two or more"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_of_its_row(lines, said, tmp_path):
    write(tmp_path / "f", lines)
    assert re.search(said, refused("--train", "f", place=tmp_path))


@pytest.mark.parametrize("option", ["--valid", "--test"])
@pytest.mark.parametrize(
    "train, lines, said",
    [
        ("classes.tsv", ["sentence\tlabel", "a\tgood", "a\tfine"], "f:3: label 'fine' is none of"),
        ("numbers.jsonl", ["sentence\tlabel", "a\tgood"], "f:2: label 'good' is no number"),
        ("classes.tsv", ['{"context": "a", "endings": ["b", "c"], "label": 1}'], "f: has endings"),
        ("choices.jsonl", ["sentence\tlabel", "a\t1"], "f: has classes or numbers, and the model"),
    ],
)
def test_a_test_that_is_not_for_the_model(option, train, lines, said, files, learnt, tmp_path):
    write(tmp_path / "f", lines)
    how = ("--train", files[train], option, "f", *TINY)
    assert said in refused(*how, place=tmp_path)
    if option == "--test":
        assert said in refused("--model", learnt[train][0], option, "f", place=tmp_path)


@pytest.mark.parametrize(
    "name, arguments, said",
    [
        ("classes.tsv", ("--pair", "a"), "--pair is the second text: give the first with --text"),
        ("classes.tsv", ("--text", "a", "--pair", "b", "c"), "--text: 3 texts; give one, or two"),
        ("choices.jsonl", ("--text", "a"), "--text: the model chooses among endings; give a text"),
        ("choices.jsonl", ("--text", "a", "--pair", "b"), "give a text and two or more"),
    ],
)
def test_too_few_texts_or_too_many(name, arguments, said, learnt, tmp_path):
    assert said in refused("--model", learnt[name][0], *arguments, place=tmp_path)


def test_a_bad_line_of_standard_input_is_named_after_the_answers_before_it(learnt):
    status, out, err = call("--model", learnt["classes.tsv"][0], stdin=b"pa\na\tb\tc\npa\n")
    assert status == 2 and out.count("\n") == 1
    assert err.startswith("classify: standard input:2: 3 texts;") and err.count("\n") == 1


# -- the promise of the command --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["bert", "gpt"])
def test_without_a_file_it_learns_to_classify(architecture, tmp_path):
    status, out, err = commands.run("classify", "--architecture", architecture, cwd=tmp_path)
    assert (status, err) == (0, "")
    accuracies = re.findall(r"^[^ ].*: accuracy (\S+),", out, re.MULTILINE)
    assert accuracies and min(map(float, accuracies)) >= LEAST_ACCURACY
    text = ("--model", tmp_path / "classifier", "--text", "The soup was not good.")
    assert call(*text)[1].startswith("negative\t")


def test_texts_that_cannot_be_classified_are_found_before_the_training(tmp_path):
    three = ("--text", "a", "--pair", "b", "c")
    said = refused("--steps", 2, *TINY, *three, place=tmp_path)
    assert "--text: 3 texts; give one, or two that belong together" in said
