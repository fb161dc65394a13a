"""How files name a model's parameters: tables that are read in both directions.

Files of other software have their own names, and their own order of things.  A model declares a
table of `Rename` entries; with it `arranged` turns a file's arrays into the model's, and the model
writes such files.  Opening is strict: what is missing, left over or of another shape is an error
that names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np


class Rename:
    """How files name, and perhaps arrange, what a model names otherwise.

    own: a parameter; or a module, for each of its parameters: the part that follows the module's
        name (.weight, .bias) follows in files too.  A * is any one part of a dotted name, such as
        a layer's number, and stands for the same part in the other names.
    files: the name in files; several where files keep apart what the model keeps as one array,
        by default one part below the other.
    split: the own array -> the file's arrays, one a name; join: the file's arrays -> the own one.
    copies: more names of the same array, in files that repeat a shared table wherever it is used.
        A copy does where the first name is missing; where both stand they must be equal.
    optional: a file may lack it, and the parameter then keeps its initial value.
    """

    def __init__(
        self,
        own: str,
        *files: str,
        split: Callable[[np.ndarray], Sequence[np.ndarray]] | None = None,
        join: Callable[..., np.ndarray] | None = None,
        copies: Sequence[str] = (),
        optional: bool = False,
    ) -> None:
        self.own, self.files, self.copies, self.optional = own, files, copies, optional
        one = len(files) == 1  # there is nothing to split then, and perhaps no dimension
        self.split = split or (lambda array: [array] if one else np.split(array, len(files)))
        self.join = join or (lambda *arrays: arrays[0] if one else np.concatenate(arrays))

    def of(self, parameter: str) -> Rename | None:
        """The entry with its stars filled in for a parameter; None if it is not about that one."""
        found = re.fullmatch(f"{_pattern(self.own)}(\\.\\w+)?", parameter)
        if found is None:
            return None
        *parts, ending = found.groups(default="")

        def filled(names: Sequence[str]) -> list[str]:
            return [name.replace("*", "{}").format(*parts) + ending for name in names]

        return Rename(
            parameter,
            *filled(self.files),
            split=self.split,
            join=self.join,
            copies=filled(self.copies),
            optional=self.optional,
        )


def below(own: str, files: str, table: Sequence[Rename]) -> tuple[Rename, ...]:
    """The table of a model that is the part `own` of another one, and the part `files` of files."""

    def moved(names: Sequence[str]) -> list[str]:
        return [f"{files}.{name}" for name in names]

    return tuple(
        Rename(
            f"{own}.{entry.own}",
            *moved(entry.files),
            split=entry.split,
            join=entry.join,
            copies=moved(entry.copies),
            optional=entry.optional,
        )
        for entry in table
    )


def _pattern(name: str) -> str:
    """The expression for a name in which * is any one part, and ** any number of them."""
    return re.escape(name).replace(r"\*\*", r".+").replace(r"\*", r"([^.]+)")


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name is one of the patterns, in which * is any one part and ** any number."""
    return any(re.fullmatch(_pattern(pattern), name) for pattern in patterns)


class LoadReport(NamedTuple):
    """What a file lacked or held in excess, where that is allowed; names as in files.

    missing: the parameter has its initial value.  unexpected: the model has no use for it.
    new: layers that the class adds for its task; they are yet to be trained.
    """

    missing: list[str]
    unexpected: list[str]
    new: list[str]


class Named(Protocol):
    """What `arranged` has to know of a model; see pretrained.PreTrainedModel."""

    base_model_prefix: str
    unused: tuple[str, ...]
    task_head: tuple[str, ...]

    def entries(self) -> dict[str, Rename]: ...

    def named_parameters(self) -> Iterator[tuple[str, Any]]: ...


def arranged(model: Named, file: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], LoadReport]:
    """The arrays of a file under the model's own names, arranged as the model has them.

    Only the model's names and shapes are looked at.  ValueError lists what does not fit.
    """
    entries, parameters = model.entries(), dict(model.named_parameters())
    expected = {
        name: like.shape
        for own, entry in entries.items()
        for name, like in zip(entry.files, entry.split(parameters[own].data), strict=True)
    }
    file, problems = _with_first_names(file, model, expected)
    left = [name for name in file if name not in expected]
    unexpected = [name for name in left if matches(name, model.unused)]
    report = LoadReport([], unexpected, [])
    for own, entry in entries.items():
        absent = [name for name in entry.files if name not in file]
        if entry.optional:
            report.missing.extend(absent)
        elif matches(own, model.task_head):
            report.new.extend(absent)
        else:
            problems += [f"{name} is missing" for name in absent]
    problems += [f"{name} is unexpected" for name in left if name not in unexpected]
    problems += [
        f"{name} is {file[name].shape} instead of {shape}"
        for name, shape in expected.items()
        if name in file and file[name].shape != shape
    ]
    problems += [
        f"{name} is of {file[name].dtype} and not of floating point"
        for name in expected
        if name in file and file[name].dtype.kind != "f"
    ]
    if problems:
        more = f" and {len(problems) - 8} more" if problems[8:] else ""
        raise ValueError(f"{type(model).__name__}: {', '.join(problems[:8])}{more}")
    whole = {own: entry for own, entry in entries.items() if all(n in file for n in entry.files)}
    return {own: e.join(*(file[n] for n in e.files)) for own, e in whole.items()}, report


def _with_first_names(
    file: dict[str, np.ndarray], model: Named, expected: Collection[str]
) -> tuple[dict[str, np.ndarray], list[str]]:
    """The file under the names that the model expects, each shared array once; wrong copies.

    Models and files are with or without the prefix, independently: a model without its head opens
    files of those with one, and the other way round.  Old files say gamma and beta.
    """
    copies = {copy: e.files[0] for e in model.entries().values() for copy in e.copies}
    whole, prefix, problems = {*expected, *copies}, f"{model.base_model_prefix}.", []
    file = {_GAMMA_BETA.sub(lambda old: OLD_ENDINGS[old[0]], name): x for name, x in file.items()}
    if model.base_model_prefix:
        wanted, there = (any(n.startswith(prefix) for n in names) for names in (whole, file))
        if wanted and not there:
            file = {name if name in whole else prefix + name: x for name, x in file.items()}
        elif there and not wanted:
            file = {name.removeprefix(prefix): x for name, x in file.items()}
    result = {name: array for name, array in file.items() if name not in copies}
    for copy, first in copies.items():
        if copy in file and not np.array_equal(result.setdefault(first, file[copy]), file[copy]):
            problems.append(f"{copy} and {first} must be equal (one shared table)")
    return result, problems


OLD_ENDINGS = {".gamma": ".weight", ".beta": ".bias"}  # of norms, before 2019
_GAMMA_BETA = re.compile(r"(?<=LayerNorm)\.(gamma|beta)$")
