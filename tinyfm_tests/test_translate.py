"""The translate command: training, scoring, translating, bad input."""

import argparse
import gzip
import json
import re
import shutil
import signal
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from safetensors.numpy import load_file

from tinyfm import cuda, data, pretrained, training
from tinyfm.demos import learning, translate
from tinyfm.files import read_arrays, write_arrays
from tinyfm_tests import commands
from tinyfm_tests.commands import C_LOCALE, ROOT, Terminal

TINY = [
    f"--{name}={value}"
    for name, value in {
        "d-model": 16, "layers": 1, "heads": 2, "ffn": 16, "vocab-size": 200, "max-tokens": 300,
    }.items()
]  # fmt: skip
MODEL = ["config.json", "model.safetensors", "tokenizer.json"]
FOLDER = sorted([*MODEL, "checkpoint", "generation_config.json", "tokenizer_config.json"])
APPLE = "나는 사과를 먹었다."

call, refused = (partial(function, translate) for function in (commands.call, commands.refused))
start, run = (partial(function, "translate") for function in (commands.start, commands.run))

# Sixteen sentences in two made-up languages, word for word.
NOUNS = {"kot": "cat", "pes": "dog", "dom": "house", "les": "forest"}
VERBS = {"vidi": "sees", "ljubi": "loves", "najde": "finds", "pusti": "leaves"}
PAIRS = [(f"{n} {v}.", f"the {NOUNS[n]} {VERBS[v]}.") for n in NOUNS for v in VERBS]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with good files and with every kind of bad one."""
    folder = tmp_path_factory.mktemp("files")
    source, target = ("".join(f"{pair[i]}\n" for pair in PAIRS).encode() for i in (0, 1))
    contents = {
        "source.txt": source,
        "target.txt": target,
        "source.txt.gz": gzip.compress(source),
        "target.txt.gz": gzip.compress(target),
        "short.txt": target.split(b"\n")[0] + b"\n",
        "empty.txt": b"",
        "blank.txt": b"\n" * len(PAIRS),
        "invalid.txt": target.replace(b"dog", b"d\xffg", 1),
        "damaged.gz": gzip.compress(target)[:-20],
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What a short default training leaves: (folder, status, out, err)."""
    place = tmp_path_factory.mktemp("trained")
    result = run("--steps", "5", *TINY, cwd=place)
    return place / "translation-model", *result


@pytest.fixture(scope="module")
def few(files):
    """Options that make it learn from 16 sentences and score none, where the rest matters."""
    return "--train", files / "source.txt", files / "target.txt", *TINY, "--beams", 1


@pytest.fixture(scope="module")
def small(few, tmp_path_factory):
    """A folder after 5 steps with `few`."""
    place = tmp_path_factory.mktemp("small")
    assert call("--steps", 5, *few, cwd=place)[0] == 0
    return place / "translation-model"


@pytest.fixture
def model(trained, tmp_path):
    """A copy of the trained folder, to be damaged."""
    return shutil.copytree(trained[0], tmp_path / "model")


# -- what it does ----------------------------------------------------------------------------------


def test_default_training_ends_with_a_score_and_a_folder(trained):
    folder, status, out, err = trained
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert re.match(r"\d+ pairs, \d+ subwords, [\d,]+ parameters, \d+ batches an epoch", lines[0])
    assert re.match(r"loss \d+\.\d+ after 5 steps, \d+ s; saved to translation-model$", lines[-5])
    for line, kind in zip(lines[-4::2], ("random held-out", "compositional"), strict=True):
        score = r"BLEU \d+\.\d\d greedy \(0\.0% exact\), \d+\.\d\d with 4 beams \(0\.0% exact\)"
        assert re.match(rf"{score}: \d+ {kind} sentences, \d+ s$", line)
    assert "smooth:exp" in lines[-3] and lines[-3] == lines[-1]
    assert sorted(path.name for path in folder.iterdir()) == FOLDER


def test_a_saved_model_translates_a_text_and_says_nothing_else(trained):
    status, out, err = run("--model", trained[0], "--text", APPLE)
    assert (status, err) == (0, "")
    assert out.count("\n") == 1


def test_a_blank_text_gives_a_blank_line(trained):
    assert call("--model", trained[0], "--text", "") == (0, "\n", "")


def test_r76_lines_of_standard_input(trained):
    status, out, err = run("--model", trained[0], stdin=b"hello\n\n   \n???\nzzqx\n")
    assert (status, err) == (0, "")
    lines = out.split("\n")
    assert len(lines) == 6 and lines[-1] == ""
    assert lines[1] == lines[2] == ""


def test_lines_are_translated_as_texts_are(trained):
    _, out, _ = call("--model", trained[0], stdin=f"{APPLE}\n\n그는 학생이다.".encode())
    _, alone, _ = call("--model", trained[0], "--text", APPLE)
    lines = out.splitlines()
    assert lines[0] + "\n" == alone
    assert len(lines) == 3


def test_a_line_is_answered_before_the_next_is_read(trained):
    with start("--model", trained[0]) as process:
        for line in (APPLE, ""):
            process.stdin.write(f"{line}\n".encode())
            process.stdin.flush()
            assert process.stdout.readline().endswith(b"\n")
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_training_with_a_text_prints_the_translation_alone(files, tmp_path):
    train = ("--train", files / "source.txt", files / "target.txt")
    status, out, err = call(*train, "--steps", 2, *TINY, "--text", "kot vidi.", cwd=tmp_path)
    assert status == 0
    assert out.count("\n") == 1
    assert "saved to translation-model" in err


@pytest.mark.parametrize("suffix", ["txt", "txt.gz"])
def test_training_and_scoring_on_files(suffix, files, tmp_path):
    pair = (files / f"source.{suffix}", files / f"target.{suffix}")
    status, out, err = call(
        "--train", *pair, "--test", *pair, "--steps", 3, *TINY, "--save", tmp_path / "a" / "b"
    )
    assert (status, err) == (0, "")
    assert out.startswith("16 pairs, ")
    assert re.search(r"^BLEU \d+\.\d\d greedy .*: 16 test sentences", out, re.MULTILINE)
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == FOLDER


def test_packed_files_give_the_same_model(files, tmp_path):
    weights = []
    for suffix in ("txt", "txt.gz"):
        pair = (files / f"source.{suffix}", files / f"target.{suffix}")
        call("--train", *pair, "--steps", 3, *TINY, "--save", tmp_path / suffix)
        weights.append((tmp_path / suffix / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


def test_the_seed_is_that_of_the_weights_too(files, tmp_path):
    tables = []
    for seed in (0, 1):
        pair = (files / "source.txt", files / "target.txt")
        how = ("--steps", 1, "--lr", 1e-12, *TINY, "--seed", seed, "--save", tmp_path / str(seed))
        call("--train", *pair, *how)
        tables.append(pretrained.load(tmp_path / str(seed)).embedding.weight.data)
    assert (np.abs(tables[0] - tables[1])[1:] > 1e-3).mean() > 0.9


@pytest.fixture(scope="module")
def learnt(files, tmp_path_factory):
    """A word-for-word language of 16 sentences, by heart: (folder, standard output)."""
    folder = tmp_path_factory.mktemp("learnt")
    pair = (files / "source.txt", files / "target.txt")
    how = {"d-model": 32, "layers": 1, "heads": 2, "ffn": 32, "warmup": 20, "lr": 0.01}
    sizes = [f"--{name}={value}" for name, value in how.items()]
    learn = ("--train", *pair, "--test", *pair, "--steps", 120, *sizes, "--dropout", 0)
    status, out, _ = call(*learn, "--save", folder)
    assert status == 0
    return folder, out


PERFECT = "BLEU 100.00 greedy (100.0% exact), 100.00 with 4 beams (100.0% exact): 16 test sentences"


def test_files_are_learnt_and_the_folder_scores_the_same_again(learnt, files):
    folder, out = learnt
    assert f"\n{PERFECT}, " in out
    status, again, _ = call("--model", folder, "--test", files / "source.txt", files / "target.txt")
    assert status == 0
    assert again.startswith(PERFECT)
    assert call("--model", folder, "--text", "pes najde.") == (0, "the dog finds.\n", "")


def test_many_texts_give_what_each_gives_alone_in_their_order(learnt):
    translator = translate.Translator.load(str(learnt[0]), "cpu")
    texts = [
        "les pusti. dom vidi. kot ljubi.",
        "pes najde.",
        "",
        "kot",
        " ",
        "dom vidi. les",
        "pes",
    ]
    alone = [translator([text])[0] for text in texts]
    assert alone[1:3] == ["the dog finds.", ""] and alone[4] == ""
    assert len(set(alone)) > 4
    assert translator(texts) == alone
    assert translator(texts, max_tokens=12) == alone
    assert translator([]) == []


def test_a_translation_may_be_much_longer_than_its_source(tmp_path):
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    pairs = [(word, " ".join((words[i:] + words[:i]) * 3)) for i, word in enumerate(words)]
    lines = "".join(f"{source}\t{target}\n" for source, target in pairs)
    (tmp_path / "long.tsv").write_text(lines, encoding="utf-8")
    sizes = {"d-model": 32, "layers": 1, "heads": 2, "ffn": 32, "warmup": 20, "lr": 0.01}
    sizes |= {"vocab-size": 100, "steps": 150, "dropout": 0}
    options = [f"--{name}={value}" for name, value in sizes.items()]
    status, out, _ = call("--train", "long.tsv", "--test", "long.tsv", *options, cwd=tmp_path)
    assert status == 0
    assert "BLEU 100.00 greedy (100.0% exact), 100.00 with 4 beams (100.0% exact)" in out
    folder = tmp_path / "translation-model"
    assert call("--model", folder, "--text", "two") == (0, f"{pairs[1][1]}\n", "")
    (folder / "generation_config.json").unlink()  # as in folders of other software
    assert call("--model", folder, "--text", "two") == (0, f"{pairs[1][1]}\n", "")


def test_a_translation_without_an_end_is_cut(few, tmp_path):
    run("--steps", 1, *few, cwd=tmp_path)
    translator = translate.Translator.load(tmp_path / "translation-model", "cpu")
    longest = max(len(translator.tokenizer.encode(target).ids) for _, target in PAIRS)
    made = translator.model.generate([[5, 2]], eos_token_id=-1, pad_token_id=0)
    assert made.shape == (1, longest + 2 + 50)


def test_a_saved_model_is_tested_on_files_of_another_kind(trained, files):
    status, out, err = call(
        "--model", trained[0], "--test", files / "source.txt", files / "target.txt"
    )
    assert (status, err) == (0, "")
    assert re.match(r"BLEU \d+\.\d\d greedy .*: 16 test sentences", out)


def test_r54_files_under_a_c_locale(trained, tmp_path):
    """The same score as under UTF-8."""
    for name, lines in (("ko", [APPLE, "그는 학생이다."]), ("en", ["I ate an apple.", "He is."])):
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    how = ("--model", trained[0], "--test", tmp_path / "ko", tmp_path / "en")
    results = [run(*how, env=C_LOCALE), call(*how)]
    assert results[0][0] == 0 and results[0][1]
    score = [(status, re.sub(r", \d+ s", "", out), err) for status, out, err in results]
    assert score[0] == score[1]


def test_r54_training_under_a_c_locale(files, tmp_path):
    how = ("--test", files / "source.txt", files / "target.txt", "--beams", 1, "--text", APPLE)
    status, out, err = run("--steps", 2, *TINY, *how, cwd=tmp_path, env=C_LOCALE)
    assert status == 0 and out.count("\n") == 1
    assert "  kot vidi. -> " in err  # the samples
    assert re.search("[가-힣]", (tmp_path / "translation-model/tokenizer.json").read_text("utf-8"))


# -- R77: bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, said",
    [
        ("--norm-first maybe", "--norm-first: give yes or no, not 'maybe'"),
        ("--train a b c", "--train: give two files, or one with tabs"),
        ("--beams 0", "--beams: give a whole number of at least 1"),
        ("--length-penalty nan", "--length-penalty: give a number, not"),
        ("--valid a b", "--valid belongs to a training on files: give --train too"),
        ("--model m --plot p", "--plot draws the attention in a sentence: give it with --text"),
        ("--length-penalty 1000", "--length-penalty 1000.0: give a number from -100 to 100"),
        ("--model m --steps 5", "--steps is for a training: leave --model out"),
        ("--model m --resume", "--model translates with a saved model, --train makes one"),
        ("--plot=", "--plot: give the name of a folder, not ''"),
        ("--d-model 16 --heads 3", "--d-model 16 is not a multiple of --heads 3"),
    ],
)
def test_unknown_option_values(arguments, said, tmp_path):
    assert said in refused(*arguments.split(), place=tmp_path)


@pytest.mark.parametrize("option", ["--train", "--test"])
@pytest.mark.parametrize(
    "source, target, said",
    [
        ("none.txt", "target.txt", "none.txt: No such file"),
        ("source.txt", "none.txt.gz", "none.txt.gz: No such file"),
        ("source.txt", "short.txt", "short.txt has 1;"),
        ("empty.txt", "target.txt", "empty.txt: the file is empty"),
        ("source.txt", "blank.txt", "every pair has a blank side"),
        ("source.txt", "invalid.txt", "invalid.txt:5: not valid UTF-8"),
        ("source.txt", "damaged.gz", "damaged.gz: the gzip archive is cut short or damaged"),
        (".", "target.txt", "Is a directory"),
    ],
)
def test_files_that_cannot_be_used(option, source, target, said, files, tmp_path):
    assert said in refused(option, files / source, files / target, place=tmp_path)


def test_device_auto_without_a_gpu_says_so_and_goes_on(trained):
    if cuda.status()[0]:
        pytest.skip("there is a usable GPU here")
    status, out, err = call("--model", trained[0], "--text", APPLE, "--device", "auto")
    assert status == 0 and out
    assert err.startswith("no GPU, using the CPU: ") and err.count("\n") == 1


def test_a_folder_of_another_kind(model, tmp_path):
    path = model / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | {"architectures": ["BertModel"]}), encoding="utf-8")
    assert "BertModel" in refused("--model", model, "--text", APPLE, place=tmp_path)


def test_weights_that_are_whole_numbers(model, tmp_path):
    arrays = read_arrays(model / "model.safetensors")
    name = min(arrays)
    write_arrays(model / "model.safetensors", arrays | {name: arrays[name].astype(np.int64)})
    said = refused("--model", model, "--text", APPLE, place=tmp_path)
    assert f"{name} is of int64 and not of floating point" in said


def test_a_model_and_a_training_at_once(trained, files, tmp_path):
    said = refused(
        "--model", trained[0], "--train", files / "source.txt", files / "target.txt",
        place=tmp_path,
    )  # fmt: skip
    assert "--model" in said and "--train" in said


def test_a_place_to_save_that_is_none_is_found_before_the_training(tmp_path):
    (tmp_path / "file").touch()
    said = refused("--steps", 2, *TINY, "--save", tmp_path / "file", place=tmp_path)
    assert str(tmp_path / "file") in said


def test_r39_a_training_that_runs_away_is_said_and_saves_nothing(few, tmp_path):
    status, _, err = call("--steps", 20, *few, "--lr", "1e30", cwd=tmp_path)
    assert status == 2
    assert "Traceback" not in err
    assert re.match(r"translate: training stopped at step \d+.*: .*lower the learning rate", (
        err.splitlines()[-1]
    ))  # fmt: skip
    assert not list((tmp_path / "translation-model").glob("model*"))


# -- ends that are not bad input -------------------------------------------------------------------


@pytest.mark.parametrize("where", ["weights-", "optimizer-", "model.safetensors"])
def test_a_full_disk_at_any_file_leaves_no_half_one(where, few, tmp_path):
    planted = f"""
import safetensors.numpy
write = safetensors.numpy.save_file
def half(state, path, *rest):
    if {where!r} not in str(path):
        return write(state, path, *rest)
    path.write_bytes(b"half")
    raise OSError(28, "No space left on device", str(path))
safetensors.numpy.save_file = half
"""
    status, _, err = run("--steps", 2, *few, code=planted, cwd=tmp_path)
    assert status == 2
    assert where in err.splitlines()[-1]
    assert err.endswith("No space left on device; make room on the disk\n")
    files = [path.name for path in (tmp_path / "translation-model").rglob("*")]
    assert not [name for name in files if where in name or "partial" in name]
    assert ("checkpoint.json" in files) == (where == "model.safetensors")


# -- the promise of the first command --------------------------------------------------------------


@pytest.mark.slow
def test_without_options_it_learns_to_translate(tmp_path):
    status, out, err = run(cwd=tmp_path)
    assert (status, err) == (0, "")
    for kind, least in (("random held-out", 90), ("compositional", 70)):
        score = rf"^BLEU (\S+) greedy .*, (\S+) with 4 beams .*: \d+ {kind} sentences"
        assert min(map(float, re.search(score, out, re.MULTILINE).groups())) >= least
    for beams in (1, 4):
        apple = run("--model", "translation-model", "--text", APPLE, "--beams", beams, cwd=tmp_path)
        assert apple == (0, "I ate an apple.\n", "")


def test_a_batch_that_holds_no_pair_is_refused(tmp_path):
    status, out, err = call("--max-tokens", "2", cwd=tmp_path)
    assert (status, out) == (2, "")
    assert "embedded sentence:1: " in err and err.count("\n") == 1


@pytest.mark.slow
def test_the_commands_of_the_readme_run(tmp_path):
    """Word for word, in their order, but for steps and sizes; pip's part is .ci/run's."""
    pytest.importorskip("matplotlib")
    for part, count in (("train", 40), ("val", 5), ("test", 5)):
        for side, language in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in (PAIRS * 3)[:count])
            (tmp_path / f"{part}.{language}").write_text(text, encoding="utf-8")
    (tmp_path / "lines.txt").write_text(f"{APPLE}\n\n{APPLE}\n", encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^(?:pip .* && )?python (-m tinyfm\..*)$", readme, re.MULTILINE)
    assert len(lines) == 8
    texts = []
    for command in lines:
        sizes = ["--pairs=100"] if "demos.parses" in command else ["--steps=2", *TINY]
        if "--model" in command or "--resume" in command:
            sizes = []
        done = subprocess.run(
            " ".join([f'"{sys.executable}"', command, *sizes]),
            shell=True,
            cwd=tmp_path,
            env=commands.environment(),
            capture_output=True,
            encoding="utf-8",
        )
        assert done.returncode == 0, done.stderr
        texts.append(done.stdout)
    assert ["BLEU" in out for out in texts] == [True, False, False, False, True, True, False, True]
    counts = [out.count("\n") for out in texts[1:4]]
    assert counts == [1, 3, 1]  # the one --text, a line for each line of lines.txt, --text
    for file in ("en-de/config.json", "pictures/cross.png", "parser/config.json"):
        assert (tmp_path / file).is_file()


# -- files of other shapes, validation, sentences that are too long --------------------------------


def test_one_file_with_tabs_is_as_good_as_two(files, tmp_path):
    (tmp_path / "pairs.tsv").write_text("".join(f"{s}\t{t}\tid\n" for s, t in PAIRS), "utf-8")
    how = ("--steps", 2, *TINY, "--beams", 1)
    call("--train", tmp_path / "pairs.tsv", *how, "--save", tmp_path / "one")
    call("--train", files / "source.txt", files / "target.txt", *how, "--save", tmp_path / "two")
    one, two = (tmp_path / name / "model.safetensors" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    status, out, _ = call("--model", tmp_path / "one", "--test", tmp_path / "pairs.tsv")
    assert status == 0 and re.match(r"BLEU .*: 16 test sentences", out)


def test_a_line_without_a_tab(tmp_path):
    (tmp_path / "pairs.tsv").write_text("a\tA\nb B\n", encoding="utf-8")
    assert "pairs.tsv:2: no tab; " in refused("--train", "pairs.tsv", place=tmp_path)


def test_validation_is_said_and_is_the_loss_of_the_model(files, tmp_path):
    pair = (files / "source.txt", files / "target.txt")
    status, out, err = call(
        "--train", *pair, "--valid", *pair, "--steps", 4, *TINY, "--save", tmp_path / "m"
    )
    assert (status, err) == (0, "")
    said = re.findall(r"^  validation loss (\S+), perplexity (\S+)$", out, re.MULTILINE)
    assert len(said) >= 4
    translator = translate.Translator.load(tmp_path / "m", "cpu")
    encode = translator.tokenizer.encode_batch
    pairs = list(zip(*(encode([p[i] for p in PAIRS]) for i in (0, 1)), strict=True))
    loss = translator.model(**data.collate(pairs, 0, 2)).loss.item()
    assert float(said[-1][0]) == pytest.approx(loss, abs=6e-4)
    assert float(said[-1][1]) == pytest.approx(np.exp(loss), rel=1e-3)


@pytest.fixture
def long_files(tmp_path):
    """The third pair has too long a target."""
    lines = [f"{s}\n" for s, _ in PAIRS], [f"{t}\n" for _, t in PAIRS]
    lines[1][2] = "the dog " * 40 + "\n"
    for name, text in zip(("s", "t"), lines, strict=True):
        (tmp_path / name).write_text("".join(text), encoding="utf-8")
    return "s", "t"


@pytest.mark.parametrize(
    "option, name", [("--max-length=30", "--max-length"), ("--max-tokens=60", "--max-tokens")]
)
def test_a_training_pair_that_is_too_long_is_named(long_files, option, name, tmp_path):
    place = tmp_path
    said = refused("--train", *long_files, *TINY, option, place=place)
    assert re.search(rf"t:3: \d+ subwords, over {name}; raise it, or .*--skip-long", said)
    status, out, _ = call(
        "--train", *long_files, *TINY, option, "--skip-long", "--steps=1", cwd=place
    )
    assert status == 0
    assert re.match(r"15 pairs, .*; 1 pairs are too long and left out\n", out)


def test_a_training_without_a_pair_that_is_short_enough(few, tmp_path):
    said = refused(*few, "--skip-long", "--max-length=1", place=tmp_path)
    assert "all 16 pairs are over --max-length 1 or --max-tokens 300: none is left" in said


def test_a_sentence_of_valid_that_is_too_long_is_named(long_files, few, tmp_path):
    said = refused(*few, "--max-length=30", "--valid", *long_files, place=tmp_path)
    assert re.search(r"t:3: \d+ subwords, over --max-length", said)


def test_a_sentence_of_valid_that_is_too_long_may_be_left_out(long_files, few, tmp_path):
    """As one of the training: the loss is then that of the others."""
    (tmp_path / "short.tsv").write_text(
        "".join(f"{s}\t{t}\n" for i, (s, t) in enumerate(PAIRS) if i != 2), encoding="utf-8"
    )
    losses = []
    for valid in (long_files, ("short.tsv",)):
        how = ("--max-length=30", "--skip-long", "--steps=2", "--valid", *valid)
        status, out, _ = call(*few, *how, cwd=tmp_path)
        assert status == 0
        losses.append(re.findall("validation loss (\\S+)", out))
    assert losses[0] == losses[1] != []


def test_sizes_that_do_not_fit_into_the_memory(few, tmp_path):
    said = refused(*few, "--d-model=2000000000000000", place=tmp_path)
    assert "--d-model 2000000000000000" in said and "does not fit into the memory" in said


def test_extreme_length_penalties_say_nothing(learnt):
    for penalty in (-100, -30, 30, 100):
        status, out, err = run(
            "--model", learnt[0], "--text", "pes najde.", "--length-penalty", penalty
        )
        assert (status, err, out.count("\n")) == (0, "", 1)


def test_a_training_without_standard_error(few, tmp_path):
    done = subprocess.run(
        " ".join([sys.executable, "-m tinyfm.demos.translate", *map(str, few), "--steps=2 2>&-"]),
        shell=True,
        cwd=tmp_path,
        env=commands.environment(),
        stdout=subprocess.PIPE,
    )
    assert done.returncode == 0 and b"saved to translation-model" in done.stdout


def test_what_is_shown_meanwhile_is_not_too_long(long_files, tmp_path):
    """The first sentence of --valid is, and of the training, and is left out of both."""
    lines = "".join(f"{'kot vidi ' * (20 * (i == 0) + 1)}.\tthe cat.\n" for i in range(16))
    (tmp_path / "long.tsv").write_text(lines, encoding="utf-8")
    for valid in ((), ("--valid", "long.tsv")):
        how = ("--train", "long.tsv", *valid, "--max-length=30", "--skip-long", "--steps=5")
        status, out, err = call(*how, *TINY, cwd=tmp_path)
        assert (status, err) == (0, "")
        assert out.count("  kot vidi . -> ") == 10


def test_a_sentence_that_is_too_long_for_the_model_is_named(learnt, tmp_path):
    long = "kot vidi " * 300
    (tmp_path / "s").write_text(f"pes\n{long}\n", encoding="utf-8")
    (tmp_path / "t").write_text("dog\nlong\n", encoding="utf-8")
    said = r": \d+ subwords, and the model takes 256; cut the text into sentences"
    model = ("--model", learnt[0])
    assert re.search("s:2" + said, refused(*model, "--test", "s", "t", place=tmp_path))
    assert re.search("--text" + said, refused(*model, "--text", long, place=tmp_path))
    status, out, err = call(*model, stdin=f"pes\n{long}\n".encode())
    assert status == 2 and out.count("\n") == 1
    assert re.search("standard input:2" + said, err)


# -- going on --------------------------------------------------------------------------------------


def test_r38_a_training_that_was_stopped_goes_on_to_the_same_model(few, tmp_path):
    """Ctrl-C anywhere in the middle, --resume in a new process: the bytes of an undisturbed one."""
    how = ("--steps", 300, *few, "--accumulate", 2)
    assert call(*how, "--save", "whole", cwd=tmp_path)[0] == 0
    terminal = Terminal()
    with start(*how, "--save", "parts", cwd=tmp_path, stderr=terminal.writer) as process:
        terminal.wait_for(rb" (?!0)\d+/300 ")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert "--resume goes on" in terminal.text()
    assert process.returncode == 130
    status, _, err = run("--resume", "--save", "parts", cwd=tmp_path)
    assert (status, err) == (0, "")
    whole, parts = (tmp_path / name / "model.safetensors" for name in ("whole", "parts"))
    assert whole.read_bytes() == parts.read_bytes()


@pytest.mark.parametrize("content", [b"{", b"[]", None], ids=repr)
@pytest.mark.parametrize("damage", ["options.json", "checkpoint.json", "tokenizer.json", "weights"])
def test_a_damaged_training_is_named(damage, content, small, tmp_path):
    folder = shutil.copytree(small, tmp_path / "translation-model")
    (path,) = (folder / "checkpoint").glob(f"{damage}*")
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    status, out, err = call("--resume", "--steps", 9, cwd=tmp_path)
    assert status == 2 and "loss" not in out
    assert damage in err and err.count("\n") == 1


@pytest.mark.parametrize("arguments", [(), ("--resume", "--steps", 9)], ids=["anew", "resumed"])
def test_a_folder_is_for_one_training_at_a_time(arguments, small, few, tmp_path):
    """One that is refused has changed nothing, neither the vocabulary nor the options."""
    folder = shutil.copytree(small, tmp_path / "translation-model")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    arguments = arguments or (*few, "--steps", 2, "--vocab-size", 50)
    with training.alone(folder):
        said = refused(*arguments, place=tmp_path)
    assert "another training is using it; wait for its end" in said
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_training_that_fails_leaves_the_old_model_whole(small, few, tmp_path):
    folder = shutil.copytree(small, tmp_path / "translation-model")
    before = {name: (folder / name).read_bytes() for name in MODEL}
    fails = ("--steps", 20, *few, "--vocab-size=70", "--lr", "1e30")
    assert call(*fails, cwd=tmp_path)[0] == 2
    assert {name: (folder / name).read_bytes() for name in MODEL} == before


def test_a_new_training_forgets_the_old_one(small, few, tmp_path):
    folder = shutil.copytree(small, tmp_path / "translation-model")
    assert call("--steps", 5, "--seed", 3, *few, cwd=tmp_path)[0] == 0
    old, new = (p / "model.safetensors" for p in (small, folder))
    assert old.read_bytes() != new.read_bytes()
    assert call("--resume", "--seed", 3, cwd=tmp_path)[0] == 0


def test_a_full_disk_is_one_line_and_leaves_the_old_model(small, few, tmp_path):
    """As far as a limit on the size of files can play a full disk."""
    folder = shutil.copytree(small, tmp_path / "translation-model")
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    planted = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
"""
    status, _, err = run("--resume", "--steps", 9, code=planted, cwd=tmp_path)
    assert status == 2
    assert "Traceback" not in err and err.count("\n") == 1 and "File too large" in err
    names = ("config.json", "model.safetensors", "tokenizer.json")
    assert {name: (folder / name).read_bytes() for name in names} == {n: before[n] for n in names}
    assert call("--model", folder, "--text", "kot vidi.")[0] == 0
    assert not list(folder.rglob("*.partial"))
    assert call("--resume", "--steps", 9, cwd=tmp_path)[0] == 0


@pytest.mark.parametrize(
    "name, last", [("noam", 0.5), ("linear", 0.0), ("cosine", 0.0), ("constant", 1.0)]
)
def test_every_schedule_peaks_at_lr(name, last):
    args = argparse.Namespace(schedule=name, warmup=10, steps=40, lr=0.02)
    schedule = learning.new_schedule(args)
    rates = [schedule(step) for step in range(1, 41)]
    assert max(rates) == pytest.approx(0.02) and rates[-1] == pytest.approx(0.02 * last)
    assert name == "constant" or (rates.index(max(rates)) == 9 and rates[0] == pytest.approx(0.002))


def test_options_reach_the_model(files, tmp_path):
    given = {"norm-first": "yes", "dropout": 0.3, "label-smoothing": 0.2, "max-length": 40}
    options = [f"--{name}={value}" for name, value in given.items()]
    pair = (files / "source.txt", files / "target.txt")
    call("--train", *pair, "--steps", 1, *TINY, *options, "--save", tmp_path / "m")
    config = pretrained.load(tmp_path / "m").config
    assert config.norm_first is True
    assert (config.dropout, config.label_smoothing) == (0.3, 0.2)
    assert (config.max_position_embeddings, config.d_model, config.encoder_ffn_dim) == (41, 16, 16)
    assert (config.encoder_layers, config.decoder_attention_heads) == (1, 2)


def test_the_last_checkpoints_are_averaged(few, tmp_path):
    assert call("--steps", 20, *few, "--average", 3, cwd=tmp_path)[0] == 0
    folder = tmp_path / "translation-model"
    steps = [load_file(folder / f"checkpoint/weights-0000{n}.safetensors") for n in (18, 19, 20)]
    for name, p in pretrained.load(folder).named_parameters():
        mean = np.mean([arrays[name] for arrays in steps], axis=0, dtype=np.float64)
        np.testing.assert_allclose(p.data, mean, rtol=1e-6, atol=1e-9)
    assert len(list((folder / "checkpoint").glob("weights-*"))) == 3


def test_beams_and_length_penalty_reach_the_search(learnt, monkeypatch):
    translator = translate.Translator.load(learnt[0], "cpu")
    asked = []
    generate = translator.model.generate
    monkeypatch.setattr(
        translator.model, "generate", lambda *a, **o: asked.append(o) or generate(*a, **o)
    )
    translator(["pes vidi."], 3, -0.5)
    assert asked[0]["num_beams"] == 3 and asked[0]["length_penalty"] == -0.5


# -- pictures and the prompt -----------------------------------------------------------------------

PNG = b"\x89PNG\r\n\x1a\n"


def test_plots(trained, few, tmp_path):
    pytest.importorskip("matplotlib")
    status, _, _ = call("--steps", 3, *few, "--plot", "p", cwd=tmp_path)
    assert status == 0
    names = {"curves.png", "encoder.png", "decoder.png", "cross.png"}
    assert {path.name for path in (tmp_path / "p").iterdir()} == names
    assert all(path.read_bytes().startswith(PNG) for path in (tmp_path / "p").iterdir())
    status, out, _ = call("--model", trained[0], "--text", APPLE, "--plot", "q", cwd=tmp_path)
    assert status == 0 and out.count("\n") == 1
    assert {path.name for path in (tmp_path / "q").iterdir()} == names - {"curves.png"}


def test_plots_without_matplotlib(tmp_path):
    planted = """
sys.modules["matplotlib"] = None
"""
    said = refused("--plot", "p", code=planted, place=tmp_path)
    assert "pip install" in said and "plot" in said


def test_what_is_drawn_of_the_attention(learnt, monkeypatch, tmp_path):
    """Rows of cross-attention are named by the word that is about to be said."""
    drawn = {}
    monkeypatch.setattr(
        translate.plot, "attention", lambda *arrays, title: drawn.update({title: arrays})
    )
    translator = translate.Translator.load(learnt[0], "cpu")
    args = argparse.Namespace(beams=1, length_penalty=1.0, plot=tmp_path)
    translate.draw_attention(translator, "pes najde.", args)
    maps = translator.attention("pes najde.", "the dog finds.")
    said = [*maps.target[1:], "</s>"]
    expected = {
        "encoder": (maps.encoder, maps.source, maps.source),
        "decoder": (maps.decoder, maps.target, maps.target),
        "cross": (maps.cross, said, maps.source),
    }
    for name, (weights, rows, columns) in expected.items():
        *given, path = drawn[f"{name} attention"]
        assert path == tmp_path / f"{name}.png"
        assert given[1:] == [rows, columns]
        np.testing.assert_array_equal(given[0], weights)


def test_the_attention_of_a_translation_adds_up(learnt):
    translator = translate.Translator.load(learnt[0], "cpu")
    maps = translator.attention("pes najde.", "the dog finds.")
    assert "".join(maps.source).replace("▁", " ") == " pes najde.</s>"
    assert "".join(maps.target).replace("▁", " ") == "<s> the dog finds."
    s, t = len(maps.source), len(maps.target)
    shapes = {"encoder": (2, s, s), "decoder": (2, t, t), "cross": (2, t, s)}
    for name, shape in shapes.items():
        (layer,) = getattr(maps, name)
        assert layer.shape == shape
        np.testing.assert_allclose(layer.sum(-1), 1, rtol=1e-5)
    assert not np.triu(maps.decoder[0], 1).any()


def test_r76_a_prompt_on_a_terminal(learnt):
    """Typed at a real terminal: an answer to each line, a word on what is too long, Ctrl-D."""
    keys = ("pes najde.\n", "\n", "kot vidi " * 300 + "\n", "kot vidi.\n")
    status, shown, err = commands.typed("translate", "--model", learnt[0], keys=keys)
    assert status == 0
    assert "the dog finds." in shown and "the cat sees." in shown
    assert "this line: 600 subwords, and the model takes 256" in err
    assert err.startswith("One sentence a line; Ctrl-D ends.\n")
