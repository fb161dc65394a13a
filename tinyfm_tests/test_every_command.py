"""What every command promises: a row for each, a test for each promise.

What is special to a command is in the file of that command.
"""

import json
import os
import re
import shutil
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest

from tinyfm import cuda, pretrained
from tinyfm.demos import (
    answer,
    chat,
    classify,
    compare,
    denoise,
    embed,
    fill_mask,
    generate,
    tag,
    text_to_text,
    translate,
)
from tinyfm_tests import commands
from tinyfm_tests.commands import C_LOCALE

# -- the commands ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A command, a tiny training, and how its model is asked.

    plant: the function that stands for a bug once it is another.
    asked: options with a question, in Korean.
    folder: where the model goes by default; "": none is learnt.
    learn: the training, but for its steps, on `files` (contents by name).
    ends: how the line begins that a training says last, its score.
    tuned: more options of a training that begins with a model.
    options: more options, of the trained model.
    line: a line of standard input, and `blank` whether a blank one has a blank answer.
    refused: a line that has no answer, and gets a word at a prompt; "": each has one.
    prompt: what is said above the prompt.
    named: options that --help has, besides those of all.
    kept: options of a training that cannot be given anew with --resume, besides those of all.
    wrong: (option, value) that no training would have left in its folder, besides those of all.
    takes: what config.json may say that a model is, as messages list it.
    width: the field of config.json that has the width of the model, which is 16.
    """

    module: ModuleType
    plant: str
    asked: tuple[str, ...]
    folder: str = ""
    learn: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    ends: str = ""
    tuned: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    line: str = ""
    blank: bool = True
    refused: str = ""
    prompt: str = "One sentence a line"
    named: tuple[str, ...] = ()
    kept: tuple[tuple[str, ...], ...] = ()
    wrong: tuple[tuple[str, object], ...] = ()
    takes: str = ""
    width: str = "hidden_size"


def json_lines(*records):
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def sizes(**changes):
    """Options of a tiny model."""
    usual = {"hidden_size": 16, "layers": 1, "heads": 2, "ffn": 16} | changes
    return tuple(f"--{n.replace('_', '-')}={value}" for n, value in usual.items() if value)


def sentence(first):
    """Letters in the order of the alphabet, each a word, and a full stop."""
    return " ".join("abcdefghijklmnopqrstuvwxyz"[(first + i) % 26] for i in range(6)) + "."


DOCUMENTS = [[sentence(7 * i + 3 * j) for j in range(5)] for i in range(12)]
DOCUMENTS.append(["나 는 밥 을 먹 는 다.", "너 는 물 을 먹 는 다."])
TEXTS = {"texts.txt": "\n\n".join(map("\n".join, DOCUMENTS))}
NOUNS = {"kot": "고양이가", "pes": "개가", "dom": "집이", "les": "숲이"}
VERBS = {"vidi": "본다", "ljubi": "좋아한다", "najde": "찾는다", "pusti": "떠난다"}
PAIRS = [(f"{n} {v}.", f"{NOUNS[n]} {VERBS[v]}.") for n in NOUNS for v in VERBS]
CHATS = [
    [{"role": "user", "content": said}, {"role": "assistant", "content": answered}]
    for said, answered in [("a", "one"), ("b", "six"), ("안녕", "네"), ("more", "two")]
]
FACTS = [
    {
        "question": "where 한국",
        "context": f"kot {i} vidi pes",
        "answers": [{"text": str(i), "answer_start": 4}] * (i < 9),
    }
    for i in range(12)
]

OF_TEXTS = {"files": TEXTS, "ends": "1 held-out documents: ", "line": "나 는 <mask>"}
# Those that learn from a file of records, which --train names.
OF_RECORDS = ("--train", "--valid", "--test", "--skip-bad", "--epochs", "--max-length")
RECORDS_KEPT = (("--epochs=9",), ("--train=other",), ("--model=other",), ("--skip-bad",))
RECORDS_WRONG = (("train", ["a"]), ("test", 5), ("model", True), ("skip_bad", "yes"))


def of_records(content, *more, wrong=(), score="", **sized):
    """The fields of a row whose records are in one file; score: how theirs begins."""
    train = ("--train=rows", "--valid=rows", "--test=rows")
    return {
        "files": {"rows": content},
        "learn": (*train, *sizes(**sized), *more),
        "ends": f"rows: {score}",
        "tuned": ("--train=rows",),
        "kept": RECORDS_KEPT,
        "wrong": (*RECORDS_WRONG, *wrong),
    }


ENCODERS = "bert, roberta, distilbert"
ROWS = [
    Row(
        translate,
        plant="Translator.__call__",
        folder="translation-model",
        files={f"side{i}": "".join(f"{pair[i]}\n" for pair in PAIRS) for i in (0, 1)},
        learn=(
            *("--train", "side0", "side1", "--test", "side0", "side1", "--d-model=16"),
            *sizes(hidden_size=None, vocab_size=200, max_tokens=300, beams=1),
        ),
        ends="BLEU ",
        asked=("--text", "한국 kot vidi."),
        line="한국 pes najde.",
        refused="kot vidi " * 300,
        named=("--train", "--valid", "--test", "--text", "--plot", "--beams", "--average",
               "--schedule", "--skip-long"),
        kept=(("--train", "other"), ("--d-model=8",)),
        wrong=(("train", 5), ("train", ["a", "b", "c"]), ("valid", "a"), ("test", [1])),
        takes="transformer, marian",
        width="d_model",
    ),
    Row(
        fill_mask,
        plant="Filler.__call__",
        folder="masked-model",
        **OF_TEXTS,
        learn=("--corpus=texts.txt", *sizes(vocab_size=60, max_length=24, max_tokens=300)),
        asked=("--text", "나 는 [MASK] 을"),
        refused="a b",
        named=("--corpus", "--recipe", "--text", "--top-k"),
        kept=(("--recipe=roberta",), ("--corpus=korean",)),
        wrong=(("recipe", "both"), ("recipe", None), ("corpus", 5)),
        takes=ENCODERS,
    ),
    Row(
        classify,
        plant="outputs",
        folder="classifier",
        **of_records(
            "sentence\tlabel\n"
            + "".join(f"{'한국 ' * (i % 3)}kot vidi\t{'ab'[i % 2]}\n" for i in range(12)),
            wrong=(("text_columns", "ab"), ("text_columns", [1]), ("label_column", ["a"])),
            vocab_size=100,
        ),
        asked=("--text", "kot 한국"),
        line="kot 한국",
        refused="a\tb\tc",
        named=(*OF_RECORDS, "--text", "--pair"),
        takes=f"{ENCODERS}, openai-gpt, gpt2",
    ),
    Row(
        tag,
        plant="outputs",
        folder="tagger",
        **of_records("kot\tB-X\n한국\tI-X\nvidi\tO\n\n" * 12, vocab_size=100),
        asked=("--text", "kot 한국 vidi"),
        line="kot 한국 vidi",
        named=(*OF_RECORDS, "--text"),
        takes=ENCODERS,
    ),
    Row(
        answer,
        plant="outputs",
        folder="answerer",
        **of_records(json_lines(*FACTS), vocab_size=100),
        asked=("--question", "where 한국", "--context", "kot 3 vidi"),
        line="where 한국\tkot 3 vidi",
        refused="no tab",
        prompt="A question, a tab and a passage in each line",
        named=(*OF_RECORDS, "--question", "--context"),
        takes=ENCODERS,
    ),
    Row(
        embed,
        plant="Embedder.__call__",
        folder="embedder",
        learn=sizes(vocab_size=400, max_length=16, max_tokens=300),
        ends="generated pairs: ",
        asked=("--text", "나는 사과를 먹었다", "--text", "나는 잤다"),
        line="나는 잤다",
        blank=False,
        refused="cat " * 30,
        named=("--text", "--search", "--word", "--test", "--top-k"),
        kept=(("--vocab-size=300",),),
        takes=ENCODERS,
    ),
    Row(
        generate,
        plant="encode_prompt",
        folder="language-model",
        files=TEXTS,
        learn=(
            "--corpus=texts.txt",
            *sizes(ffn=None, context=24, batch_size=4, vocab_size=270, dropout=0.1),
        ),
        ends="1 held-out text: ",
        options=("--temperature=0", "--max-new-tokens=3"),
        asked=("--prompt", "나는"),
        line="나는",
        refused="a" * 30,
        prompt="One prompt a line",
        named=("--corpus", "--level", "--prompt", "--top-p", "--show-probabilities", "--beams"),
        kept=(("--level=char",), ("--corpus=other",)),
        wrong=(("corpus", 5), ("level", "word"), ("level", None)),
        takes="gpt2, openai-gpt",
        width="n_embd",
    ),
    Row(
        chat,
        plant="complete",
        folder="chat-model",
        **of_records(
            json_lines(*({"messages": messages} for messages in CHATS)),
            *("--level=char", "--max-length=80"),
            ffn=None,
        ),
        options=("--max-new-tokens=3",),
        asked=("--message", "안녕"),
        line="안녕",
        refused="b" * 90,
        prompt="A message a line, an empty one begins a new conversation",
        named=(*OF_RECORDS, "--message", "--level", "--beams", "--top-p"),
        takes="gpt2, openai-gpt",
        width="n_embd",
    ),
    Row(
        denoise,
        plant="Rewriter.restore",
        folder="denoising-model",
        **OF_TEXTS,
        learn=("--corpus=texts.txt", *sizes(vocab_size=280, max_length=24, max_tokens=300)),
        asked=("--text", "나 는 <mask> 을"),
        refused="a b",
        named=("--corpus", "--noise", "--compare", "--train", "--valid", "--text", "--summarize",
               "--plot", "--beams", "--min-new-tokens", "--max-new-tokens", "--length-penalty"),
        kept=(("--noise", "mask"), ("--corpus=korean",)),
        wrong=(("noise", ["fog"]), ("noise", "mask"), ("train", 5)),
        takes="bart",
        width="d_model",
    ),
    Row(
        text_to_text,
        plant="written",
        folder="text-model",
        **of_records(
            json_lines(
                *({"source": f"copy: {word}", "target": word} for word in ("red", "blue", "한국"))
            ),
            *("--pretraining-steps=1", "--max-tokens=300", "--max-length=40"),
            score="exact match",
            vocab_size=140,
        ),
        options=("--max-length=40", "--max-new-tokens=3"),
        asked=("--input", "copy: 한국"),
        line="copy: 한국",
        refused="copy " * 150,
        prompt="A task a line",
        named=(*OF_RECORDS, "--input", "--pretraining-steps", "--compare", "--plot", "--beams"),
        takes="t5, mt5",
        width="d_model",
    ),
    Row(
        compare,
        plant="views",
        asked=("--text", "나는 사과를 먹었다."),
        named=("--text", "--architectures", "--plot", "--target", "--hide", "--tokenizer"),
    ),
]  # fmt: skip
ALL = {row.module.__name__.rpartition(".")[2]: row for row in ROWS}
LEARNING = {name: row for name, row in ALL.items() if row.folder}
STEPS = 5
LEARNT = "learnt"  # the copy of a trained folder, beside the files of its training

each_command = pytest.mark.parametrize("name", ALL)
each_that_learns = pytest.mark.parametrize("name", LEARNING)


class Trained(NamedTuple):
    """What a tiny training leaves in a folder, beside its files, and says."""

    place: Path
    status: int
    out: str
    err: str


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What STEPS steps of a command leave: a function of its name; each is trained once."""

    @cache
    def train(name):
        place = tmp_path_factory.mktemp(name)
        for file, content in ALL[name].files.items():
            (place / file).write_text(content, encoding="utf-8")
        if not ALL[name].folder:
            return Trained(place, 0, "", "")
        return Trained(place, *call(name, *learn(name), cwd=place))

    return train


@pytest.fixture
def here(name, trained, tmp_path):
    """A folder with the files of the command and a copy of its model, to be damaged."""
    for path in trained(name).place.iterdir():
        if path.is_dir():
            shutil.copytree(path, tmp_path / LEARNT)
        else:
            shutil.copy(path, tmp_path)
    return tmp_path


def learn(name, steps=STEPS):
    return *ALL[name].learn, f"--steps={steps}"


def use(name, folder=LEARNT):
    """The options that use a model; none of a command that has none."""
    row = ALL[name]
    return (f"--model={folder}", *row.options) if row.folder else ()


def ask(name, folder=LEARNT):
    return *use(name, folder), *ALL[name].asked


def call(name, *arguments, **options):
    return commands.call(ALL[name].module, *arguments, **options)


def refused(name, *arguments, **options):
    return commands.refused(ALL[name].module, *arguments, **options)


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


def change(path, **values):
    """Other values in a file of JSON."""
    old = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(old | values), encoding="utf-8")


# -- learning --------------------------------------------------------------------------------------


@each_command
def test_help_in_a_process_of_its_own(name):
    status, out, err = commands.run(name, "--help")
    assert (status, err) == (0, "") and out.startswith(f"usage: {name} ")
    shared = ("--model", "--save", "--resume", "--device") if name in LEARNING else ()
    for option in (*shared, "--steps", "--seed", "--schedule", *ALL[name].named):
        assert re.search(rf" {option}\b", out), option


@each_that_learns
def test_a_training_ends_with_a_score_and_a_folder(name, trained):
    place, status, out, err = trained(name)
    assert (status, err) == (0, "")
    *_, saved, score = [x for x in out.splitlines() if x.startswith(("loss ", ALL[name].ends))]
    folder = place / ALL[name].folder
    assert re.match(rf"loss \d+\.\d+ after {STEPS} steps, \d+ s; saved to {folder.name}$", saved)
    assert score.startswith(ALL[name].ends)
    files = {"checkpoint", "config.json", "model.safetensors", "tokenizer.json"}
    files.add("tokenizer_config.json")
    assert {path.name for path in folder.iterdir()} - files <= {
        "generation_config.json",
        text_to_text.PRETRAINED,
    }
    assert files <= {path.name for path in folder.iterdir()}


@each_that_learns
def test_one_seed_gives_the_same_model(name, here):
    for seed in (0, 1):
        assert call(name, *learn(name), "--seed", seed, "--save", seed, cwd=here)[0] == 0
    same, other, first = (weights(here / folder) for folder in ("0", "1", LEARNT))
    assert same == first != other


@each_that_learns
def test_r38_ctrl_c_saves_and_resume_goes_on_to_the_same_model(name, here):
    """In the middle of the fourth step."""
    status, out, err = commands.interrupted(name, *learn(name), "--save=parts", cwd=here)
    assert status == 130
    assert "what was learnt is in parts, --resume goes on" in err and "Traceback" not in err
    assert err.rstrip().splitlines()[-1] == f"{name}: interrupted"
    assert f"after {STEPS} steps" not in out and f"\n{ALL[name].ends}" not in out
    files, wanted = ({path.name for path in (here / f).iterdir()} for f in ("parts", LEARNT))
    assert files == wanted
    assert weights(here / "parts") != weights(here / LEARNT)
    model = pretrained.load(here / "parts")
    assert all(np.isfinite(p.data).all() for p in model.parameters())
    assert call(name, *ask(name, "parts"), cwd=here)[0] == 0
    status, out, err = call(name, "--resume", "--save=parts", cwd=here)
    assert (status, err) == (0, "") and f" after {STEPS} steps" in out
    assert weights(here / "parts") == weights(here / LEARNT)


@each_that_learns
def test_r38_more_steps_after_the_end(name, here):
    """With a rate that does not depend on them as if they had been asked for at once; no fewer."""
    for steps, folder in ((5, "whole"), (3, "parts")):
        how = (*learn(name, steps), "--schedule=noam", "--warmup=2", "--save", folder)
        assert call(name, *how, cwd=here)[0] == 0
    status, out, err = call(name, "--resume", "--steps=5", "--save=parts", cwd=here)
    assert (status, err) == (0, "") and "after 5 steps" in out
    assert weights(here / "whole") == weights(here / "parts")
    said = refused(name, "--resume", "--steps=4", "--save=parts", place=here)
    assert "at step 5 already" in said


@each_that_learns
def test_resume_takes_its_options_from_the_folder(name, here):
    for option in (("--lr", "0.5"), ("--seed", "7"), *ALL[name].kept):
        said = refused(name, "--resume", f"--save={LEARNT}", *option, place=here)
        named = option[0].partition("=")[0]
        assert re.search(rf"{named}: the training in {LEARNT} has .*; leave it out", said)


WRONG = (("steps", "many"), ("seed", -1), ("schedule", "steep"), ("schedule", 4))


@pytest.mark.parametrize(
    "name, option, value",
    [(name, *each) for name, row in LEARNING.items() for each in (*WRONG, *row.wrong)],
    ids=str,
)
def test_an_option_of_the_wrong_kind_in_the_folder(name, option, value, here):
    change(here / LEARNT / "checkpoint" / "options.json", **{option: value})
    said = refused(name, "--resume", f"--save={LEARNT}", place=here)
    assert "options.json: not the options of a training" in said


# -- being asked -----------------------------------------------------------------------------------


@each_command
def test_r54_korean_under_a_c_locale(name, trained):
    """The same answer as under UTF-8."""
    place = trained(name).place
    how = ask(name, ALL[name].folder)
    status, out, err = commands.run(name, *how, env=C_LOCALE, cwd=place)
    assert (status, out, err) == call(name, *how, cwd=place)
    assert (status, err) == (0, "") and out


@each_that_learns
def test_r76_r78_lines_of_standard_input_under_a_c_locale(name, trained):
    """Each is answered as it is alone; there may be none."""
    place, row = trained(name).place, ALL[name]
    how, line = use(name, row.folder), row.line.encode()
    lines = b"\n" + line + b"\n  \n"
    status, out, err = commands.run(name, *how, stdin=lines, env=C_LOCALE, cwd=place)
    assert (status, out, err) == call(name, *how, stdin=lines, cwd=place)
    assert (status, err) == (0, "")
    blank, answered = (call(name, *how, stdin=lines, cwd=place)[1] for lines in (b"\n", line))
    assert out == blank + answered + blank and answered
    assert (blank == "\n") == row.blank
    assert call(name, *how, cwd=place) == (0, "", "")


@each_that_learns
def test_r78_bytes_that_are_no_text(name, trained):
    """What stands before them is answered."""
    place, how = trained(name).place, use(name, ALL[name].folder)
    status, out, err = call(name, *how, stdin=b"\n\xff\xfe\n", cwd=place)
    assert (status, out) == (2, call(name, *how, stdin=b"\n", cwd=place)[1])
    assert err.startswith(f"{name}: standard input:2: not valid UTF-8") and err.count("\n") == 1


@each_that_learns
def test_r76_a_prompt_on_a_terminal(name, trained):
    """Typed at a real terminal; what cannot be answered is said, and asked for again."""
    place, row = trained(name).place, ALL[name]
    keys = [f"{line}\n" for line in (row.line, "", row.refused, row.line)]
    status, shown, err = commands.typed(name, *use(name, row.folder), keys=keys, cwd=place)
    assert status == 0
    said, *others = err.splitlines()
    assert said == f"{row.prompt}; Ctrl-D ends."
    assert len([x for x in others if x.startswith("this line: ")]) == bool(row.refused)
    answered = call(name, *use(name, row.folder), stdin=row.line.encode(), cwd=place)[1]
    assert answered.replace("\\n", "\n") in shown.replace("\r\n", "\n")


@each_command
def test_a_closed_output_ends_quietly(name, trained):
    reader, writer = os.pipe()
    row, place = ALL[name], trained(name).place
    how = use(name, row.folder) or row.asked
    with commands.start(name, *how, stdout=writer, cwd=place) as process:
        os.close(writer)
        os.close(reader)
        _, err = process.communicate(f"{row.line}\n".encode() * 3, timeout=60)
    assert (process.returncode, err) == (0, b"")


@each_command
def test_a_bug_shows_its_traceback(name, trained):
    planted = f"{name}.{ALL[name].plant} = lambda *arguments, **options: None + 1"
    how = ask(name, ALL[name].folder)
    status, out, err = commands.run(name, *how, code=planted, cwd=trained(name).place)
    assert (status, out) == (1, "")
    assert err.startswith("Traceback") and "TypeError" in err.splitlines()[-1]


# -- R77: bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, said",
    [
        ("--nonsense", "unrecognized arguments: --nonsense"),
        ("--steps 0", "--steps: give a whole number of at least 1, not '0'"),
        ("--steps many", "--steps: give a whole number of at least 1, not 'many'"),
        ("--dropout 2", "--dropout: give a number from 0 to 1, not '2'"),
        ("--lr -1", "--lr: "),
        ("--seed -1", "--seed: give a whole number of at least 0, not '-1'"),
        ("--device tpu", "--device: invalid choice: 'tpu'"),
        ("--schedule steep", "--schedule: invalid choice: 'steep'"),
        ("--save=", "--save: give the name of a folder, not ''"),
        ("--model=", "--model: give the name of a folder, not ''"),
        ("--model ./none", "none: no such folder"),
        ("--resume", "FOLDER holds no training to go on with, leave --resume out to begin one"),
    ],
)
@each_that_learns
def test_r77_options_that_do_not_do(name, arguments, said, tmp_path):
    assert said.replace("FOLDER", ALL[name].folder) in refused(
        name, *arguments.split(), place=tmp_path
    )


@each_that_learns
def test_a_model_that_is_a_file_is_named(name, tmp_path):
    (tmp_path / LEARNT).touch()
    said = refused(name, "--model", tmp_path / LEARNT, *ALL[name].asked, place=tmp_path)
    assert f"{tmp_path / LEARNT}: is a file; give a folder" in said


@each_that_learns
def test_r79_cuda_without_a_gpu(name, tmp_path):
    ok, reason = cuda.status()
    if ok:
        pytest.skip("there is a usable GPU here")
    said = refused(name, "--device", "cuda", place=tmp_path)
    assert reason in said and "--device cpu" in said


@each_that_learns
@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_r77_a_model_folder_that_lacks_a_file_or_has_a_damaged_one(name, file, here):
    for content in (b"{", b"", b"\xff\xfe\x00"):
        (here / LEARNT / file).write_bytes(content)
        assert file in refused(name, *ask(name), place=here)
    (here / LEARNT / file).unlink()
    said = refused(name, *ask(name), place=here)
    assert LEARNT in said and file.removesuffix(".json") in said


@each_that_learns
def test_a_folder_of_another_family(name, here):
    takes = ALL[name].takes
    for kind in {"transformer", "marian", "bert", "gpt2", "bart", "t5", None} - {
        *takes.split(", ")
    }:
        change(here / LEARNT / "config.json", model_type=kind)
        said = refused(name, *ask(name), place=here)
        assert f"config.json: model_type is {kind!r}, and this command takes {takes};" in said


@each_that_learns
def test_a_folder_of_other_sizes(name, here):
    row, path = ALL[name], here / LEARNT / "config.json"
    config = path.read_text(encoding="utf-8")
    change(path, **{row.width: "many"})
    said = refused(name, *ask(name), place=here)
    assert f"{row.width} is 'many': it must be of type int" in said
    path.write_text(config, encoding="utf-8")
    change(path, vocab_size=9)
    assert "instead of (9, 16)" in refused(name, *ask(name), place=here)


@each_that_learns
def test_weights_that_are_not_finite(name, here):
    for value in (np.nan, -np.inf):
        spoilt = pretrained.load(here / LEARNT)
        weight, array = next((n, p) for n, p in spoilt.named_parameters() if p.ndim == 1)
        array.data = np.full_like(array.data, value)
        spoilt.save_pretrained(here / LEARNT, force=True)
        said = refused(name, *ask(name), place=here)
        assert f"{LEARNT}: the weight {weight} is not finite; train the model anew" in said


@each_that_learns
def test_a_vocabulary_that_does_not_fit_the_embedding(name, here):
    """Its ids would lie outside the table; also where the model is to be trained."""
    from tokenizers import Tokenizer

    path = str(here / LEARNT / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    tokenizer.add_tokens([f"new{i}" for i in range(500)])
    tokenizer.save(path)
    for how in (ALL[name].asked, *([ALL[name].tuned] if ALL[name].tuned else [])):
        said = refused(name, f"--model={LEARNT}", *how, place=here)
        assert re.search(rf"{LEARNT}: the tokenizer has \d+ .*they do not belong together", said)
