"""The options of a training: how they are shown, settled, kept in a folder and recalled."""

import json

import pytest

from tinyfm import InputError
from tinyfm.checkpoints import MANIFEST
from tinyfm.demos import cli
from tinyfm.demos.learning import CHECKPOINT, OPTIONS, Option, Training

TRAINING = Training(
    kinds=("", "with a file"),
    options={
        "steps": Option(cli.positive_int, (10, 20), "optimizer steps"),
        "lr": Option(cli.positive_float, (0.1, 0.1), "peak learning rate"),
        "max_length": Option(cli.positive_int, (None, None), "the longest of all, unless given"),
    },
    schedules=("linear", "noam"),
    remembered={"corpus": lambda value: value is None or isinstance(value, str)},
)


def parsed(*arguments):
    parser = cli.Parser(prog="command")
    parser.add_argument("--save", default="folder")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--corpus")
    parser.add_argument("--seed", type=cli.seed)
    TRAINING.add_options(parser)
    return parser.parse_args([*map(str, arguments)]), parser


def settled(*arguments):
    args, _ = parsed(*arguments)
    TRAINING.settle(args, lambda args: int(args.corpus is not None))
    return args


@pytest.fixture
def begun(tmp_path):
    """A --save folder with the options of a training that has begun."""
    args = settled("--corpus", "c.txt", "--lr", 0.3, "--max-length", 7, "--save", tmp_path)
    with TRAINING.folder(args, prepare=lambda folder: None) as checkpoint:
        assert checkpoint == tmp_path / CHECKPOINT
        (checkpoint / MANIFEST).touch()  # as the first checkpoint leaves it, before the first step
    return tmp_path


def test_help_says_the_default_of_each_kind_of_training():
    text = " ".join(parsed()[1].format_help().split())
    assert "--steps N optimizer steps (default: 10; with a file 20)" in text
    assert "--lr X peak learning rate (default: 0.1)" in text
    assert "--max-length N the longest of all, unless given --schedule" in text
    assert "(default: linear; with a file noam)" in text


def test_what_is_left_out_is_settled_by_the_kind():
    args = settled()
    assert (args.steps, args.lr, args.schedule, args.seed) == (10, 0.1, "linear", 0)
    args = settled("--corpus", "c.txt", "--lr", 0.5, "--seed", 3)
    assert (args.steps, args.lr, args.schedule, args.seed) == (20, 0.5, "noam", 3)


def test_an_option_without_a_default_is_left_to_the_command():
    assert settled().max_length is None
    assert settled("--max-length", 5).max_length == 5


def test_resume_recalls_everything_and_takes_more_steps(begun):
    args = settled("--resume", "--save", begun)
    assert (args.steps, args.lr, args.max_length, args.corpus) == (20, 0.3, 7, "c.txt")
    assert (args.schedule, args.seed, args.save_every) == ("noam", 0, 1)
    args = settled("--resume", "--save", begun, "--steps", 99, "--lr", 0.3, "--corpus", "c.txt")
    assert (args.steps, args.lr) == (99, 0.3)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("--lr", 0.5), "--lr: the training in .* has 0.3; leave it out to go on"),
        (("--max-length", 9), "--max-length: the training in .* has 7"),
        (("--corpus", "d.txt"), "--corpus: the training in .* has c.txt"),
        (("--schedule", "cosine"), "--schedule: the training in .* has noam"),
        (("--seed", 1), "--seed: the training in .* has 0"),
    ],
)
def test_resume_with_other_options_is_refused(arguments, said, begun):
    with pytest.raises(InputError, match=said):
        settled("--resume", "--save", begun, *arguments)


@pytest.mark.parametrize("missing", [OPTIONS, MANIFEST])
def test_what_was_stopped_before_its_first_step_is_begun_anew(missing, begun):
    (begun / CHECKPOINT / missing).unlink()
    said = f"{missing}: no such file; {begun} holds no training to go on with, leave --resume out"
    with pytest.raises(InputError, match=said):
        settled("--resume", "--save", begun)


@pytest.mark.parametrize(
    "name, value",
    [("steps", "many"), ("steps", None), ("steps", 0), ("lr", "fast"), ("max_length", []),
     ("corpus", 5), ("schedule", "steep"), ("schedule", []), ("seed", -1), ("save_every", 0)],
)  # fmt: skip
def test_a_folder_with_values_of_the_wrong_kind_is_refused(name, value, begun):
    path = begun / CHECKPOINT / OPTIONS
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    with pytest.raises(InputError, match=f"{OPTIONS}: not the options of a training"):
        settled("--resume", "--save", begun)


@pytest.mark.parametrize("name", TRAINING.names)
def test_a_folder_that_lacks_an_option_is_refused(name, begun):
    path = begun / CHECKPOINT / OPTIONS
    values = json.loads(path.read_text())
    del values[name]
    path.write_text(json.dumps(values))
    with pytest.raises(InputError, match=f"{OPTIONS}: not the options of a training.*{name}"):
        settled("--resume", "--save", begun)


@pytest.mark.parametrize(
    "arguments, name",
    [("--lr 1", "lr"), ("--max-length 3", "max-length"), ("--schedule noam", "schedule"),
     ("--resume", "resume")],
)  # fmt: skip
def test_a_command_that_does_not_train_refuses_every_option_of_a_training(arguments, name):
    with pytest.raises(InputError, match=f"^--{name} is for a training: leave --model out$"):
        TRAINING.refuse(parsed(*arguments.split())[0])
    TRAINING.refuse(parsed("--seed", 1, "--save", "x")[0])
