"""cli.run in processes of its own: statuses, one-line errors, UTF-8, closed pipes, Ctrl-C."""

import argparse
import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest

from tinyfm import InputError, cuda
from tinyfm.demos import cli
from tinyfm_tests.commands import C_LOCALE, Terminal, environment, killed

# The command under test. Each job is what some real command does, or does wrong.
COMMAND = """
import sys, time
from tinyfm import InputError
from tinyfm.demos import cli

def main(args):
    if args.job == "bug":
        None + 1
    if args.job == "bad input":
        raise InputError("config.json:3: no such key\\nuse one of the others")
    if args.job == "open":
        open(args.text)
    if args.job == "wait":
        print("ready")
        time.sleep(60)
    if args.job == "flood":
        for i in range(100_000):
            print(i)
    if args.job == "flood stderr":
        for i in range(100_000):
            print(i, file=sys.stderr)
    if args.job == "echo":
        for line in cli.read_stdin_lines():
            print(f"<{line}>")
    if args.job == "ask":
        for line, name in cli.read_named_lines():
            print(f"<{line}>")
    if args.job == "say":
        print(args.text)
    if args.job == "surrogate":
        print("\\ud800", "\\udcff")
    if args.job == "half a line":
        print("half", end="")
    if args.job == "device":
        print(cli.choose_device(args))
    if args.job.startswith("status"):
        return int(args.job.split()[1])

parser = cli.Parser(prog="probe")
parser.add_argument("job")
parser.add_argument("--text", type=cli.text, default="")
parser.add_argument("--steps", type=cli.positive_int)
cli.add_common_options(parser)
sys.exit(cli.run(main, parser))
"""
KOREAN = "나는 학생입니다"


@pytest.fixture
def command(tmp_path):
    """Starts the command; what is still running after the test is killed."""
    script = tmp_path / "probe.py"
    script.write_text(COMMAND, encoding="utf-8")
    with ExitStack() as processes:

        def start(*arguments, env=None, **options):
            process = subprocess.Popen(
                [sys.executable, str(script), *arguments],
                env=environment(**(env or {})),
                **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | options,
            )
            return processes.enter_context(killed(process))

        yield start


def outcome(process, stdin=b""):
    """(status, stdout, stderr); whatever a command prints must be UTF-8."""
    out, err = process.communicate(stdin, timeout=60)
    return process.returncode, out.decode(), err.decode()


def test_a_bug_shows_its_traceback(command):
    status, out, err = outcome(command("bug"))
    assert (status, out) == (1, "")
    assert err.startswith("Traceback") and "TypeError" in err


@pytest.mark.parametrize(
    "arguments, line",
    [
        (["bad input"], "probe: config.json:3: no such key use one of the others"),
        (
            ["open", "--text", "/nowhere/x.txt"],
            "probe: /nowhere/x.txt: No such file or directory; give one that exists",
        ),
        (["open", "--text", "/"], "probe: /: Is a directory; give a file"),
        ([], "probe: the following arguments are required: job (see --help)"),
        (["echo", "--nonsense"], "probe: unrecognized arguments: --nonsense (see --help)"),
        (
            ["echo", "--steps", "0"],
            "probe: argument --steps: give a whole number of at least 1, not '0' (see --help)",
        ),
    ],
)
def test_bad_input_is_one_line_and_status_2(command, arguments, line):
    assert outcome(command(*arguments)) == (2, "", line + "\n")


def test_the_status_of_main(command, capsys):
    assert cli.run(lambda args: None, cli.Parser(), []) == 0
    assert outcome(command("nothing")) == (0, "", "")
    assert outcome(command("status 3")) == (3, "", "")


def test_help(command):
    status, out, err = outcome(command("--help"))
    assert (status, err) == (0, "")
    assert "--device {cpu,cuda,auto}" in out


def test_ctrl_c(command):
    process = command("wait")
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert outcome(process) == (130, "", "probe: interrupted\n")


@pytest.mark.parametrize("job", ["flood", "half a line", "--help"])
def test_a_closed_stdout_ends_quietly(command, job):
    reader, writer = os.pipe()
    process = command(job, stdout=writer)
    os.close(writer)
    if job == "flood":
        os.read(reader, 2)
    os.close(reader)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")


def test_a_closed_stderr_ends_quietly(command):
    process = command("flood stderr", stderr=subprocess.STDOUT)
    process.stdout.read(2)
    process.stdout.close()
    process.stdin.close()
    assert process.wait(timeout=60) == 0


def test_without_standard_streams(command):
    closed = {"preexec_fn": lambda: os.closerange(0, 2)}
    assert outcome(command("echo", **closed)) == (0, "", "")
    assert outcome(command("say", **closed)) == (0, "", "")


def test_lines_of_standard_input(command):
    assert outcome(command("echo"), b"") == (0, "", "")
    lines = f"\ufeffhello\n\n   \r\n???\x85\u2028\ufeff{KOREAN}".encode()
    expected = f"<hello>\n<>\n<   >\n<???\x85\u2028\ufeff{KOREAN}>\n"
    assert outcome(command("echo"), lines) == (0, expected, "")


def test_a_line_is_answered_before_the_next_is_read(command):
    process = command("echo")
    for line in ("one", "two"):
        process.stdin.write(f"{line}\n".encode())
        process.stdin.flush()
        assert process.stdout.readline() == f"<{line}>\n".encode()
    assert outcome(process) == (0, "", "")


def test_invalid_bytes_name_the_line_after_the_good_ones_are_out(command):
    assert outcome(command("echo"), b"one\ntwo\nthr\xffee\nfour\n") == (
        2,
        "<one>\n<two>\n",
        "probe: standard input:3: not valid UTF-8 (byte 0xff at position 4); send UTF-8\n",
    )


@pytest.mark.parametrize("env", [{}, C_LOCALE, {"PYTHONIOENCODING": "latin-1"}], ids=str)
def test_korean_under_any_locale(command, env):
    assert outcome(command("say", "--text", KOREAN, env=env)) == (0, KOREAN + "\n", "")
    assert outcome(command("echo", env=env), KOREAN.encode()) == (0, f"<{KOREAN}>\n", "")
    assert outcome(command("surrogate", env=env)) == (0, "\\ud800 \\udcff\n", "")


@pytest.mark.parametrize("env", [{}, C_LOCALE, {"LC_ALL": "C"}])
def test_korean_at_a_prompt_under_any_locale(command, env):
    """Readline, where it knows of ASCII alone, would drop the rest of what is typed."""
    terminal = Terminal()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal.writer)
    process = command("ask", env=env | {"TERM": "dumb"}, **streams)
    for keys in (KOREAN + "\n", "\x04"):
        terminal.type_at_prompt(keys)
    process.communicate(timeout=60)
    assert f"<{KOREAN}>" in terminal.text()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_disk_behind_standard_output(command):
    with open("/dev/full", "w") as full:
        process = command("say", "--text", "x", stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert (
        err.decode() == "probe: standard output: No space left on device; make room on the disk\n"
    )


def test_a_folder_for_results(tmp_path, monkeypatch):
    cli.make_folder(tmp_path / "new" / "folder")
    cli.make_folder(tmp_path / "new" / "folder")
    assert (tmp_path / "new" / "folder").is_dir()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # nothing is denied to root
    with pytest.raises(PermissionError, match=re.escape(str(tmp_path))):
        cli.make_folder(tmp_path)


def test_text_that_is_not_utf8(command):
    status, out, err = outcome(command("say", "--text", b"\xff\xfe"))
    assert (status, out) == (2, "")
    assert err == "probe: argument --text: give UTF-8 text, not '\\udcff\\udcfe' (see --help)\n"


@pytest.fixture
def without_gpu(monkeypatch):
    monkeypatch.setattr(cuda, "status", lambda: (False, "no NVIDIA driver"))


@pytest.fixture
def with_gpu(monkeypatch):
    monkeypatch.setattr(cuda, "status", lambda: (True, ""))


def device(name):
    return cli.choose_device(argparse.Namespace(device=name))


def test_the_lock_of_tqdm_is_made_before_the_first_write(monkeypatch, capsys):
    """Ctrl-C while write() makes it would give it back in vain, with an AttributeError."""
    from tqdm import std, tqdm

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.delattr(tqdm, "_lock", raising=False)
    say = cli.new_say(quiet=True)
    monkeypatch.setattr(std, "TqdmDefaultWriteLock", interrupted)
    say("something")
    assert capsys.readouterr().err == "something\n"


def test_device_without_a_gpu(without_gpu, capsys):
    assert device("cpu") == "cpu"
    assert capsys.readouterr().err == ""
    assert device("auto") == "cpu"
    assert capsys.readouterr().err == "no GPU, using the CPU: no NVIDIA driver\n"
    with pytest.raises(InputError, match="--device: cuda: no NVIDIA driver; or use --device cpu"):
        device("cuda")


def test_device_with_a_gpu(with_gpu, capsys):
    assert [device(name) for name in ("cpu", "cuda", "auto")] == ["cpu", "cuda", "cuda"]
    assert capsys.readouterr() == ("", "")


def test_device_on_this_machine(command):
    ok, reason = cuda.status()
    status, out, err = outcome(command("device", "--device", "cuda"))
    if ok:
        assert (status, out, err) == (0, "cuda\n", "")
    else:
        assert (status, out) == (2, "")
        assert reason in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "convert, good, bad",
    [
        (cli.positive_int, {"1": 1, " 20 ": 20}, ["0", "-1", "1.5", "x", "", "1e3", "9" * 5000]),
        (cli.seed, {"0": 0, "7": 7}, ["-1", "0.0", "x", ""]),
        (cli.positive_float, {"1e-3": 1e-3, "2": 2.0}, ["0", "-1", "nan", "inf", "x", ""]),
        (cli.probability, {"0": 0.0, "0.1": 0.1, "1": 1.0}, ["-0.1", "1.01", "nan", "x", ""]),
    ],
)
def test_option_types(convert, good, bad):
    for value, expected in good.items():
        assert convert(value) == expected
    for value in bad:
        with pytest.raises(argparse.ArgumentTypeError, match=r"^give a .*number.*, not '"):
            convert(value)
