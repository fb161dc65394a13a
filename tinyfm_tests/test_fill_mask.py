"""The fill_mask command: learning, its two recipes, filling, bad input."""

import json
import re
import shutil
import string
from collections import Counter
from functools import partial

import numpy as np
import pytest

from tinyfm import models, pretrained
from tinyfm.data import IGNORE_INDEX
from tinyfm.demos import documents, fill_mask, pretraining
from tinyfm_tests import commands

LEAST_NEXT_SENTENCE = 0.5  # accuracy of the default training: better than guessing

SIZES = {"hidden-size": 16, "layers": 1, "heads": 2, "ffn": 16, "vocab-size": 60}
TINY = [f"--{k}={v}" for k, v in {**SIZES, "max-length": 24, "max-tokens": 300}.items()]
FOLDER = ["checkpoint", "config.json", "model.safetensors", "tokenizer.json"]
FOLDER = [*FOLDER, "tokenizer_config.json"]

call, refused = (partial(function, fill_mask) for function in (commands.call, commands.refused))
run = partial(commands.run, "fill_mask")


def sentence(first, count=7):
    """Letters in the order of the alphabet, each a word."""
    return " ".join(string.ascii_lowercase[(first + i) % 26] for i in range(count))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Good texts and bad ones."""
    folder = tmp_path_factory.mktemp("texts")
    rng = np.random.default_rng(0)
    parts = [[sentence(rng.integers(26)) for _ in range(5)] for _ in range(12)]
    parts.append(["나 는 밥 을 먹 는 다", "너 는 물 을 먹 는 다"])
    whole = "\n\n".join("\n".join(part) for part in parts)
    contents = {
        "texts.txt": whole.encode(),
        "one.txt": b"a b c\nd e f\n",
        "single.txt": b"a b c\n\nd e f\n\ng h i\n",
        "held.txt": b"a b c\n\nd e f\n\ng h i\nj k l\n",
        "signs.txt": b"\x01\n\n\x02\n\n\x03\n",
        "masks.txt": whole.encode() + b"\n\n" + b"a b c [MASK] d e <mask> f\n" * 8,
        "empty.txt": b"",
        "blank.txt": b"\n \n",
        "invalid.txt": b"a b\n\xff\n",
        "damaged.gz": b"abc",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def few(files):
    return "--corpus", files / "texts.txt", *TINY


@pytest.fixture(scope="module")
def trained(few, tmp_path_factory):
    """(folder, status, out, err) of five steps of BERT's recipe."""
    place = tmp_path_factory.mktemp("trained")
    result = call("--steps", 5, *few, cwd=place)
    return place / "masked-model", *result


# -- learning --------------------------------------------------------------------------------------


def test_a_training_ends_with_scores_and_a_folder(trained):
    folder, status, out, err = trained
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert re.match(
        r"recipe bert: 12 documents, \d+ sentences, \d+ subwords, [\d,]+ param", lines[0]
    )
    assert re.match(r"  (\w )+\[MASK\]( \w)+ -> (\S+, ){4}\S+$", lines[1])  # a sample
    scores = (
        r"MLM loss \d\.\d{3}, accuracy \d+\.\d% of \d+ words, NSP accuracy \d+\.\d% of \d+ pairs"
    )
    assert re.match(rf"  {scores}$", lines[2])
    assert re.match(r"loss \d\.\d+ after 5 steps, \d+ s; saved to masked-model$", lines[-2])
    assert re.match(rf"1 held-out documents: {scores}$", lines[-1])
    assert sorted(path.name for path in folder.iterdir()) == FOLDER
    assert type(pretrained.load(folder)) is models.BertForPreTraining


def test_it_learns_what_can_be_known(tmp_path):
    """Each line has one word again and again, so that a hidden one follows from the others."""
    lines = [" ".join(letter * 6) for letter in "abcdef"]
    (tmp_path / "same.txt").write_text("\n\n".join(lines * 3), encoding="utf-8")
    how = {"steps": 100, "max-length": 8, "hidden-size": 32, "lr": 0.01, "warmup": 10, "dropout": 0}
    options = [f"--{name}={value}" for name, value in how.items()]
    status, out, err = call(
        "--corpus", "same.txt", *TINY, *options, "--recipe=roberta",
        "--text", "d d [MASK] d [MASK]", cwd=tmp_path,
    )  # fmt: skip
    assert status == 0
    assert float(re.findall(r"accuracy (\S+)% of", err)[-1]) == 100
    assert [block.splitlines()[0].split("\t")[1] for block in out.split("\n\n")] == ["d", "d"]


def test_both_recipes_side_by_side(few, tmp_path):
    status, out, err = call("--steps", 2, *few, "--recipe", "both", cwd=tmp_path)
    assert (status, err) == (0, "")
    *_, bert, roberta = out.splitlines()
    assert re.match(r"bert      static      \d\.\d{3} +\d+\.\d% +\d+\.\d%$", bert)
    assert re.match(r"roberta   dynamic     \d\.\d{3} +\d+\.\d% +-$", roberta)
    classes = [
        type(pretrained.load(tmp_path / "masked-model" / name)) for name in fill_mask.RECIPES
    ]
    assert classes == [models.BertForPreTraining, models.BertForMaskedLM]


@pytest.mark.parametrize("done", [1, 2])
def test_both_recipes_go_on_from_where_they_stood(done, few, tmp_path):
    """The second one takes the options of the first if it had not begun."""
    call("--steps", 3, *few, "--recipe", "both", "--lr", 0.002, cwd=tmp_path)
    folder = tmp_path / "masked-model"
    before = (folder / "roberta" / "model.safetensors").read_bytes()
    if done == 1:
        shutil.rmtree(folder / "roberta")
    status, out, _ = call("--resume", "--recipe", "both", cwd=tmp_path)
    assert status == 0 and "roberta   dynamic" in out
    assert (folder / "roberta" / "model.safetensors").read_bytes() == before


def test_long_samples_and_texts_with_masks_of_their_own(files, tmp_path):
    """They are not shown, or shown whole; a training does not end over them."""
    for name, option in (("texts.txt", "--max-length=7"), ("masks.txt", "--max-length=30")):
        status, out, err = call(
            "--corpus", files / name, *TINY, option, "--steps=1", cwd=tmp_path
        )  # fmt: skip
        assert (status, err) == (0, "")
        assert (" -> " in out) == (name == "masks.txt")


def test_resume_keeps_the_recipe(trained, tmp_path):
    model = shutil.copytree(trained[0], tmp_path / "model")
    status, out, _ = call("--resume", "--save", model, "--steps", 6)
    assert status == 0 and "recipe bert" in out and " after 6 steps" in out


# -- filling ---------------------------------------------------------------------------------------


def expected(folder, text, place):
    """(token, probability) of the whole vocabulary at a place, best first."""
    model = models.BertForMaskedLM.from_pretrained(folder)
    tokenizer = pretrained.load_tokenizer(folder, model)
    ids = tokenizer.encode(text, special_tokens=True).ids
    logits = model(input_ids=[ids]).logits.data[0, place].astype(np.float64)
    shares = np.exp(logits) / np.exp(logits).sum()
    return [(tokenizer.id_to_token(i), shares[i]) for i in np.argsort(-shares)]


@pytest.mark.parametrize("mask", ["[MASK]", "<mask>"])
def test_each_hidden_place_gets_its_likeliest_tokens(mask, trained):
    status, out, err = call(
        "--model", trained[0], "--text", f"a {mask} c {mask}", "--top-k", 3
    )  # fmt: skip
    assert (status, err) == (0, "")
    blocks = [block.splitlines() for block in out.split("\n\n")]
    for place, lines in zip((2, 4), blocks, strict=True):
        wanted = expected(trained[0], "a [MASK] c [MASK]", place)[:3]
        assert lines == [f"{share:.3f}\t{token}" for token, share in wanted]


def test_a_published_table_may_have_rows_for_no_token(trained, tmp_path):
    config = models.BertConfig(
        vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=20,
    )  # fmt: skip
    models.BertForMaskedLM(config).save_pretrained(tmp_path)
    shutil.copy(trained[0] / "tokenizer.json", tmp_path)
    status, out, _ = call("--model", tmp_path, "--text", "a [MASK]", "--top-k", 200)
    assert status == 0
    tokens = [line.split("\t")[1] for line in out.splitlines()]
    assert len(set(tokens)) == len(pretrained.load_tokenizer(tmp_path)) == len(tokens)


def test_a_roberta_has_its_own_mask(trained, tmp_path):
    """A folder of another family, with <mask>, two positions of which none is a token's."""
    model, tokenizer = roberta(tmp_path)
    status, out, err = call("--model", tmp_path, "--text", "a [MASK] c", "--top-k", 1)
    assert (status, err) == (0, "")
    ids = tokenizer.encode("a<mask> c", special_tokens=True).ids
    wanted = model(input_ids=[ids]).logits.data[0, ids.index(tokenizer.mask_id)].argmax()
    assert out.split("\t")[1] == f"{tokenizer.id_to_token(wanted)}\n"
    status, _, err = call("--model", tmp_path, "--text", "a")
    assert status == 2 and "--text: no <mask> in 'a'" in err
    status, _, err = call("--model", tmp_path, "--text", "<mask>" * 17)
    assert status == 2 and "19 subwords with the special ones, and the model takes 18" in err


def roberta(folder):
    """A small one with the letters as its vocabulary, in a folder."""
    from tokenizers.pre_tokenizers import ByteLevel

    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted(ByteLevel.alphabet())]
    config = models.RobertaConfig(
        vocab_size=len(pieces), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=20,
    )  # fmt: skip
    model = models.RobertaForMaskedLM(config).eval()
    model.save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate(pieces)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return model, pretrained.load_tokenizer(folder, model)


def test_r76_each_line_of_standard_input_is_answered_by_one_line(trained):
    lines = ["a [MASK] c", "", "  ", "!?! [MASK]", "<mask> zzqx [MASK] ☃", "나 는 [MASK]"]
    status, out, err = call("--model", trained[0], "--top-k", 2, stdin="\n".join(lines).encode())
    assert (status, err) == (0, "")
    answers = out.split("\n")
    assert len(answers) == 7 and answers[1] == answers[2] == answers[6] == ""
    (best, share), (second, _) = expected(trained[0], "a [MASK] c", 2)[:2]
    assert answers[0].startswith(f"{best} {share:.3f} {second} 0.")
    assert [answer.count("\t") for answer in answers] == [0, 0, 0, 0, 1, 0, 0]


@pytest.mark.parametrize(
    "line, said",
    [
        (b"a b", "standard input:2: no [MASK] in 'a b'; put it where a word is wanted"),
        (b"[mask]", "standard input:2: no [MASK] in '[mask]'"),
        (b"a [MASK] " * 20, "standard input:2: 42 subwords with the special ones, and the model"),
        (b"\xff [MASK]", "standard input:2: not valid UTF-8"),
    ],
)
def test_lines_that_cannot_be_filled(line, said, trained):
    status, out, err = call("--model", trained[0], stdin=b"a [MASK]\n" + line + b"\nb [MASK]")
    assert (status, out.count("\n")) == (2, 1)
    assert said in err and err.count("\n") == 1


# -- R77: bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, said",
    [
        ("--top-k 0", "--top-k: give a whole number of at least 1"),
        ("--recipe gpt", "--recipe: invalid choice: 'gpt'"),
        ("--model m --corpus=", "--corpus and --recipe make one"),
        ("--model m --recipe bert", "--corpus and --recipe make one"),
        ("--model m --resume", "--resume is for a training: leave --model out"),
        ("--model m --schedule noam", "--schedule is for a training: leave --model out"),
        ("--model m --max-length 9", "--max-length is for a training: leave --model out"),
        ("--resume --recipe both", "masked-model/bert holds no training to go on with"),
        ("--hidden-size 16 --heads 3", "--hidden-size 16 is not a multiple of --heads 3"),
        ("--max-length 4", "--max-length 4: too short for texts"),
        ("--max-length 2 --recipe roberta", "give 3 or more"),
        ("--max-tokens 20", "--max-tokens 20: a batch must hold a text of --max-length"),
        ("--corpus korean --recipe bert", "no documents, so that there is no next sentence"),
        ("--corpus korean --recipe both", "take --recipe roberta"),
    ],
)
def test_options_that_do_not_do(arguments, said, files, tmp_path):
    corpus = (
        () if "korean" in arguments or "model" in arguments else ("--corpus", files / "one.txt")
    )
    if "heads" in arguments:
        corpus = ("--corpus", files / "texts.txt")
    if "resume" in arguments:
        corpus = ()
    assert said in refused(*corpus, *arguments.split(), place=tmp_path)


@pytest.mark.parametrize(
    "name, said",
    [
        ("none.txt", "none.txt: No such file"),
        (".", "Is a directory"),
        ("empty.txt", "empty.txt: the file is empty"),
        ("blank.txt", "blank.txt: every line is blank; give one sentence a line"),
        ("invalid.txt", "invalid.txt:2: not valid UTF-8"),
        ("damaged.gz", "damaged.gz: the gzip archive is cut short or damaged"),
        ("one.txt", "one.txt: one document, and none to hold out; put a blank line"),
        ("single.txt", "single.txt: the documents to learn from have one sentence each"),
        ("held.txt", "held.txt: the documents held out have one sentence each"),
        ("signs.txt", "signs.txt: the documents to learn from have no word"),
    ],
)
def test_texts_that_do_not_do(name, said, files, tmp_path):
    assert said in refused("--corpus", files / name, *TINY, place=tmp_path)


def test_single_sentences_do_without_the_next_one(files, tmp_path):
    status, _, err = call(
        "--corpus", files / "single.txt", *TINY, "--recipe", "roberta", "--steps", 1, cwd=tmp_path
    )
    assert (status, err) == (0, "")


@pytest.mark.parametrize(
    "text, said",
    [("a b", "--text: no [MASK] in 'a b'"), ("[MASK] " * 30, "--text: 32 subwords with")],
)
def test_a_text_that_cannot_be_filled_is_said_before_the_training(text, said, few, tmp_path):
    assert said in refused(*few, "--text", text, place=tmp_path)


def test_a_model_that_has_learnt_no_words(trained, tmp_path):
    models.BertModel.from_pretrained(trained[0]).save_pretrained(tmp_path / "m")
    shutil.copy(trained[0] / "tokenizer.json", tmp_path / "m")
    said = refused("--model", tmp_path / "m", "--text", "a [MASK]", place=tmp_path)
    assert "cls.predictions.bias is missing" in said


# -- the promises ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_without_options_it_learns_english(tmp_path):
    """More words right than by naming the most frequent one, and more pairs than by guessing."""
    status, out, err = run(cwd=tmp_path)
    assert (status, err) == (0, "")
    last = out.splitlines()[-1]
    right, words = re.search(r"accuracy (\S+)% of (\d+) words", last).groups()
    follows = re.search(r"NSP accuracy (\S+)%", last)[1]
    model = pretrained.load(tmp_path / "masked-model")
    tokenizer = pretrained.load_tokenizer(tmp_path / "masked-model", model)
    held_out = pretraining.encode(documents.split(documents.python_manual())[1], tokenizer)
    length = model.config.max_position_embeddings
    tests = pretraining.hidden_once(held_out, tokenizer, True, length, 1, seed=0)
    labels = np.concatenate([example["labels"] for example in tests])
    counts = Counter(labels[labels != IGNORE_INDEX].tolist())
    assert counts.total() == int(words)
    assert float(right) / 100 > max(counts.values()) / counts.total()
    assert float(follows) / 100 > LEAST_NEXT_SENTENCE


@pytest.mark.slow
def test_without_options_it_learns_korean(tmp_path):
    status, out, err = run(
        "--corpus", "korean", "--text", "나는 아침에 [MASK] 먹었다.", "--top-k", 10, cwd=tmp_path
    )
    assert status == 0 and "recipe roberta" in err
    assert "빵을" in [line.split("\t")[1] for line in out.splitlines()]


@pytest.mark.hub
def test_what_bert_base_says_of_france():
    status, out, _ = call(
        "--model", "google-bert/bert-base-uncased", "--text", "The capital of France is [MASK]."
    )
    assert status == 0
    assert out.splitlines()[:3] == ["0.417\tparis", "0.071\tlille", "0.063\tlyon"]
