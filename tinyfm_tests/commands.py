"""Commands for their tests: in this process where only the answer matters, else in their own."""

import errno
import fcntl
import io
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import tinyfm
from tinyfm.demos import cli

ROOT = Path(tinyfm.__file__).parent.parent
C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def environment(**more):
    """This tinyfm to import, and nothing of this shell's Python settings: PYTHONUNBUFFERED, say,
    would hide lost flushes."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


@contextmanager
def killed(process):
    """The process, which does not outlive the block, whatever happens there."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def start(name, *arguments, code=None, env=None, **options):
    """The command in a process of its own, which Ctrl-C reaches: `with start(...) as process`.

    code: runs before the command, in the same process.
    """
    command = ("-m", f"tinyfm.demos.{name}")
    if code is not None:
        end = f"sys.exit(cli.run({name}.main, {name}.new_parser()))"
        command = ("-c", f"import sys\nfrom tinyfm.demos import cli, {name}\n{code}\n{end}")
    return killed(
        subprocess.Popen(
            [sys.executable, *command, *map(str, arguments)],
            env=environment(**(env or {})),
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | options,
        )
    )


def run(name, *arguments, stdin=b"", **options):
    """(status, standard output, standard error) of the command in a process of its own."""
    with start(name, *arguments, **options) as process:
        out, err = process.communicate(stdin, timeout=600)
    return process.returncode, out.decode("utf-8"), err.decode("utf-8")


STALLED = """
import itertools, time
from tinyfm import training
numbers, clip = itertools.count(1), training.clip_grad_norm
def stalled(*arguments):
    if next(numbers) == 4:
        print("stalled", file=sys.stderr)
        time.sleep(600)
    return clip(*arguments)
training.clip_grad_norm = stalled
"""


def interrupted(name, *arguments, cwd):
    """What `run` gives of a training that gets Ctrl-C in the middle of its fourth step.

    Standard error is a terminal, with a progress line.
    """
    terminal = Terminal()
    with start(name, *arguments, stderr=terminal.writer, code=STALLED, cwd=cwd) as process:
        terminal.wait_for(b"stalled")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
    return process.returncode, out.decode("utf-8"), terminal.text()


def typed(name, *arguments, keys, **options):
    """(status, what the terminal shows, standard error) of a command that is asked at a prompt.

    keys: what is typed, each at a new prompt; Ctrl-D follows.
    """
    terminal = Terminal()
    streams = dict.fromkeys(("stdin", "stdout"), terminal.writer)
    with start(name, *arguments, env={"TERM": "dumb"}, **streams, **options) as process:
        for each in (*keys, "\x04"):
            terminal.type_at_prompt(each)
        _, err = process.communicate(timeout=120)
    return process.returncode, terminal.text(), err.decode("utf-8")


def call(module, *arguments, stdin=b"", cwd=os.curdir):
    """What `run` gives, without the half second that a process takes to start.

    Not for what belongs to the process: locale, signals, pipes, a limit, a planted bug.
    """
    given = io.TextIOWrapper(io.BytesIO(stdin))
    out, err = (io.TextIOWrapper(io.BytesIO()) for _ in range(2))
    with chdir(cwd), redirect_stdout(out), redirect_stderr(err), mock.patch("sys.stdin", given):
        try:
            status = cli.run(module.main, module.new_parser(), [*map(str, arguments)])
        except SystemExit as end:  # --help
            status = end.code
        for stream in (out, err):
            stream.flush()
    return status, *(stream.buffer.getvalue().decode("utf-8") for stream in (out, err))


def refused(module, *arguments, place, **own_process):
    """The one line on standard error of a command that ends with status 2 and changes no file.

    own_process: what `run` takes besides; then the command has a process of its own.
    """

    def files():
        return {path: path.is_file() and path.read_bytes() for path in place.rglob("*")}

    name, before = module.__name__.rpartition(".")[2], files()
    if own_process:
        status, out, err = run(name, *arguments, cwd=place, **own_process)
    else:
        status, out, err = call(module, *arguments, cwd=place)
    assert (status, out) == (2, ""), err
    assert err.startswith(f"{name}: ") and err.count("\n") == 1, err
    assert files() == before
    return err


class Terminal:
    """A pseudo-terminal that does not echo, read by a thread so that its buffer never fills."""

    def __init__(self):
        self._reader, self.writer = os.openpty()
        rows_and_columns = struct.pack("HHHH", 24, 120, 0, 0)  # tqdm is silent in one without
        fcntl.ioctl(self.writer, termios.TIOCSWINSZ, rows_and_columns)
        settings = termios.tcgetattr(self.writer)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(self.writer, termios.TCSANOW, settings)
        self._bytes, self._grown = b"", threading.Condition()
        self._typed = 0  # how much was shown when keys were typed last
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        while True:
            try:
                new = os.read(self._reader, 1 << 16)
            except OSError as error:  # how Linux says that the last writer is gone
                assert error.errno == errno.EIO
                new = b""
            with self._grown:
                self._bytes += new
                self._grown.notify_all()
            if not new:
                return

    def type_at_prompt(self, keys):
        """Type once a prompt is the last thing shown since what was typed before.

        Any earlier, readline would not yet have set the terminal up, and Ctrl-D could be lost.
        """
        with self._grown:
            self._wait(lambda: self._bytes[self._typed :].endswith(b"> "))
            self._typed = len(self._bytes)
        os.write(self._reader, keys.encode())

    def wait_for(self, pattern):
        self._wait(lambda: re.search(pattern, self._bytes))

    def _wait(self, shown):
        with self._grown:
            assert self._grown.wait_for(shown, timeout=120), self._bytes

    def text(self):
        """Everything, once the process has ended and this side is closed too."""
        os.close(self.writer)
        self._thread.join(timeout=60)
        os.close(self._reader)
        return self._bytes.decode("utf-8")
