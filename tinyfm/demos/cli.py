"""What all commands share: exit statuses, UTF-8 streams, standard input by line, common options.

A command builds a `Parser`, does its work in `main(args)`, and ends with
`sys.exit(cli.run(main, parser))`. Results go to standard output, everything else to standard error.
"""

import argparse
import errno
import io
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NoReturn

from tinyfm import cuda
from tinyfm.errors import InputError


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaints are InputErrors, so that `run` prints them as one line.

    description: the command's docstring, which --help shows as it stands.
    """

    def __init__(self, prog: str | None = None, description: str | None = None) -> None:
        shape = argparse.RawDescriptionHelpFormatter
        super().__init__(prog, description=description, formatter_class=shape)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see --help)")


def run(
    main: Callable[[argparse.Namespace], int | None],
    parser: Parser,
    arguments: Sequence[str] | None = None,
) -> int:
    """Parse the command line, call `main(args)` and return the exit status.

    0: done, also when the reader of standard output has left early (`| head -1`).
    2: bad input (InputError, OSError, wrong options): one line on standard error.
    130: Ctrl-C. A command that has work to save catches KeyboardInterrupt, saves and raises again.
    Any other exception is a bug and leaves as it is: Python prints the traceback, status 1.
    """
    use_utf8()
    try:
        try:
            return main(parser.parse_args(arguments)) or 0
        finally:
            # Here and not at exit, where a closed pipe could no longer be caught. Print, unlike
            # sys.stdout.flush(), also works in a process started without standard output.
            print(end="", flush=True)
    except BrokenPipeError:  # an OSError, but not one that anybody needs to hear of
        _discard(1, 2)  # both, for `2>&1 | head` ties them to the same pipe
        return 0
    except (InputError, OSError) as error:
        report(parser, _message(error))
        if isinstance(error, OSError) and error.filename is None:
            _discard(1)
        return 2
    except KeyboardInterrupt:
        report(parser, "interrupted")
        return 130


def _discard(*descriptors: int) -> None:
    """Let what is left in the buffers go nowhere: Python flushes them once more at its exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def report(parser: argparse.ArgumentParser, message: str) -> None:
    """One line on standard error, `PROG: message`."""
    print(f"{parser.prog}: {' '.join(message.splitlines())}", file=sys.stderr)


REMEDIES = {
    errno.ENOENT: "give one that exists",
    errno.EACCES: "give one that you may use",
    errno.EPERM: "give one that you may use",
    errno.EROFS: "give one that can be written to",
    errno.EEXIST: "give another name",
    errno.ENOTDIR: "give another name",
    errno.EISDIR: "give a file",
    errno.ENAMETOOLONG: "give a shorter name",
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room on the disk",
}


def _message(error: Exception) -> str:
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error) or type(error).__name__
    # Whatever opens or writes a file names it; what is left are the streams.
    name = "standard output" if error.filename is None else error.filename
    remedy = REMEDIES.get(error.errno or 0)
    return f"{name}: {error.strerror}" + (f"; {remedy}" if remedy else "")


def use_utf8() -> None:
    """UTF-8 on all three streams, whatever the locale says.

    What UTF-8 cannot express (a lone surrogate out of a file name or of JSON) is printed as an
    escape. Every line is written at once, so that a program at the other end of a pipe gets its
    answer before it asks again.
    """
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)


def new_say(quiet: bool) -> Callable[[str], None]:
    """What tells of the work meanwhile: on standard output, or if quiet on standard error.

    Quiet is a command whose answer is all that standard output shall have.
    """
    from tqdm import tqdm

    tqdm.get_lock()  # made now: if Ctrl-C cut it short in the first write, tqdm would lack it

    def say(message: str) -> None:  # around the progress line, where there is one
        tqdm.write(message, file=sys.stderr if quiet else sys.stdout)

    return say


def read_stdin_lines() -> Iterator[str]:
    """The lines of standard input as they arrive, blank ones too, without their line ends.

    Decoded here by line, for Python's own decoder reads ahead: it would fail before the good
    lines in front of a bad one are out, and could not say which line is bad.
    """
    if sys.stdin is None:  # started with standard input closed
        return
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            # A byte-order mark can only stand at the very beginning.
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"standard input:{number}: not valid UTF-8 "
                f"(byte 0x{line[error.start]:02x} at position {error.start + 1}); send UTF-8"
            ) from None
        yield text.rstrip("\r\n")


def on_terminal() -> bool:
    """Whether a person types standard input and reads standard output."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def read_named_lines(asked: str = "One sentence a line") -> Iterator[tuple[str, str]]:
    """(line, how to name it in a message) of standard input; on a terminal with a prompt.

    asked: what is to be typed there.

    The prompt ends with Ctrl-D. What is typed there can be edited and called back with the arrow
    keys where Python has readline; a line that is not UTF-8 is said and asked for again.
    """
    if not on_terminal():
        for number, line in enumerate(read_stdin_lines(), start=1):
            yield line, f"standard input:{number}"
        return
    with suppress(ImportError):  # not on Windows
        import locale

        # Elsewhere than in a UTF-8 locale readline drops what is not ASCII.
        if locale.nl_langinfo(locale.CODESET) == "UTF-8":
            import readline  # noqa: F401
    print(f"{asked}; Ctrl-D ends.", file=sys.stderr)
    while True:
        try:
            yield input("> "), "this line"
        except UnicodeDecodeError:
            print("not valid UTF-8; set the terminal to UTF-8", file=sys.stderr)
        except EOFError:
            print()
            return


def answer_lines(answer: Callable[[str, str], None], asked: str = "One sentence a line") -> None:
    """`answer(line, how to name it)` for each line of standard input, or at a prompt.

    Bad input ends the command; a person at a prompt is told and can type another line.
    """
    for line, where in read_named_lines(asked):
        try:
            answer(line, where)
        except InputError as error:
            if not on_terminal():
                raise
            print(error, file=sys.stderr)


def make_folder(path: str | os.PathLike[str]) -> None:
    """Make a folder for results, before the work for them; OSError if none can be written there."""
    Path(path).mkdir(parents=True, exist_ok=True)
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """--seed and --device."""
    # None where it is left out, so that it can be told from a 0 that is given.
    parser.add_argument("--seed", type=seed, metavar="N", help="of all randomness (default: 0)")
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda", "auto"),
        default="cpu",
        help="auto: the GPU if there is one (default: cpu)",
    )


def choose_device(args: argparse.Namespace) -> Literal["cpu", "cuda"]:
    """The device that --device asks for; without a GPU, cuda is an error and auto says so."""
    if args.device == "cpu":
        return "cpu"
    ok, reason = cuda.status()
    if ok:
        return "cuda"
    if args.device == "cuda":
        raise InputError(f"argument --device: cuda: {reason}; or use --device cpu")
    print(f"no GPU, using the CPU: {reason}", file=sys.stderr)
    return "cpu"


# Types for add_argument. argparse puts "argument --steps: " in front of what they complain of.


def positive_int(value: str) -> int:
    """A whole number of at least 1."""
    return _whole_number(value, least=1)


def seed(value: str) -> int:
    """A whole number of at least 0."""
    return _whole_number(value, least=0)


def positive_float(value: str) -> float:
    """A finite number above 0."""
    parsed = _number(value)
    if not 0 < parsed < math.inf:
        raise argparse.ArgumentTypeError(f"give a number above 0, not {value!r}")
    return parsed


def number(value: str) -> float:
    """A finite number."""
    if not math.isfinite(parsed := _number(value)):
        raise argparse.ArgumentTypeError(f"give a number, not {value!r}")
    return parsed


def probability(value: str) -> float:
    """A number from 0 to 1."""
    parsed = _number(value)
    if not 0 <= parsed <= 1:
        raise argparse.ArgumentTypeError(f"give a number from 0 to 1, not {value!r}")
    return parsed


def yes_or_no(value: str) -> str:
    """ "yes" or "no"."""
    if value not in ("yes", "no"):
        raise argparse.ArgumentTypeError(f"give yes or no, not {value!r}")
    return value


def folder(value: str) -> str:
    """The name of a folder, which need not exist; an empty one is a mistake of the shell's."""
    if not value:
        raise argparse.ArgumentTypeError("give the name of a folder, not ''")
    return value


def text(value: str) -> str:
    """Words, not a file name: read as UTF-8 whatever the locale.

    In a C locale Python hides each byte beyond ASCII in a surrogate, which suits file names (they
    turn back into the same bytes) but is no text.
    """
    try:
        return value.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        raise argparse.ArgumentTypeError(f"give UTF-8 text, not {value!r}") from None


def full_text(value: str) -> str:
    """A text that is not blank."""
    if not (decoded := text(value)).strip():
        raise argparse.ArgumentTypeError(f"give a text that is not blank, not {value!r}")
    return decoded


def _whole_number(value: str, least: int) -> int:
    try:
        parsed = int(value)
    except ValueError:
        parsed = least - 1
    if parsed < least:
        raise argparse.ArgumentTypeError(f"give a whole number of at least {least}, not {value!r}")
    return parsed


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return math.nan
