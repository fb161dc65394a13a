"""Models in folders, as Hugging Face keeps them: config.json and model.safetensors.

Files of other software have their own names for a model's parameters.  A model declares a table of
`Rename` entries, which is read in both directions: to open such files and to write them.  Opening
is strict: what is missing, left over or of another shape is an error that names it.

Classes register themselves by name, so that `load(folder)` finds the one that config.json names.
Pickles are never read: opening one runs whatever code stands in it.
"""

from __future__ import annotations

import dataclasses
import numbers
import os
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, NamedTuple, Self, get_args, get_type_hints

import numpy as np

from tinyfm.errors import InputError
from tinyfm.files import read_arrays, read_json, write_arrays, write_json
from tinyfm.generation import GenerationConfig, GenerationMixin
from tinyfm.nn import Module, without_memory

CONFIG, WEIGHTS, GENERATION = "config.json", "model.safetensors", "generation_config.json"
PICKLES = {".bin", ".ckpt", ".pkl", ".pt", ".pth"}
NUMBERS: dict[type, type] = {int: numbers.Integral, float: numbers.Real}  # also NumPy's
_classes: dict[str, type[PreTrainedModel]] = {}


class PretrainedConfig:
    """Base of the config dataclasses: to and from the dictionary in config.json."""

    model_type: ClassVar[str]

    def __post_init__(self) -> None:
        """Check the kinds of the values, which may come out of a file; numbers become Python's own.

        An int is at least 1, or as much as its field's metadata says under "least"; a float lies
        between 0 and 1 (all are probabilities or standard deviations); a str is one of metadata's
        "choices".  None is for the fields whose type has it.
        """
        hints = get_type_hints(type(self))
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            name, value = field.name, getattr(self, field.name)
            hint = hints[name]
            kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
            if value is None and NoneType in kinds:
                continue
            kind = kinds[0]
            fits = isinstance(value, NUMBERS.get(kind, kind))
            if not fits or (isinstance(value, bool) and kind is not bool):
                raise ValueError(f"{name} is {value!r}: it must be of type {kind.__name__}")
            if kind in NUMBERS:
                setattr(self, name, kind(value))
            if kind is int and value < (least := field.metadata.get("least", 1)):
                raise ValueError(f"{name} is {value}: it must be at least {least}")
            if kind is float and not 0 <= value <= 1:
                raise ValueError(f"{name} is {value}: it must be between 0 and 1")
            if (choices := field.metadata.get("choices")) and value not in choices:
                raise ValueError(f"{name} is {value!r}: it must be one of {', '.join(choices)}")

    @classmethod
    def field_names(cls) -> list[str]:
        """The fields that can be set; a family may have fixed others of its base."""
        return [f.name for f in dataclasses.fields(cls) if f.init]  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """A config of the known keys; others, of newer or foreign software, are ignored."""
        return cls(**{key: values[key] for key in cls.field_names() if key in values})

    def to_dict(self) -> dict[str, Any]:
        return {
            "model_type": self.model_type,
            **{key: getattr(self, key) for key in self.field_names()},
        }


# -- names in files --------------------------------------------------------------------------------


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


def _pattern(name: str) -> str:
    return re.escape(name).replace(r"\*", r"([^.]+)")


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(re.fullmatch(_pattern(pattern), name) for pattern in patterns)


class LoadReport(NamedTuple):
    """What a file lacked or held in excess, where that is allowed; names as in files.

    missing: the parameter has its initial value.  unexpected: the model has no use for it.
    new: layers that the class adds for its task; they are yet to be trained.
    """

    missing: list[str]
    unexpected: list[str]
    new: list[str]


def _arrange(
    model: PreTrainedModel, file: dict[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], LoadReport]:
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
    unexpected = [name for name in left if _matches(name, model.unused)]
    report = LoadReport([], unexpected, [])
    for own, entry in entries.items():
        absent = [name for name in entry.files if name not in file]
        if entry.optional:
            report.missing.extend(absent)
        elif _matches(own, model.task_head):
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
    file: dict[str, np.ndarray], model: PreTrainedModel, expected: Collection[str]
) -> tuple[dict[str, np.ndarray], list[str]]:
    """The file with its prefix and each shared array once; and the copies that are none."""
    copies = {copy: e.files[0] for e in model.entries().values() for copy in e.copies}
    prefix, problems = f"{model.base_model_prefix}.", []
    if model.base_model_prefix and not any(name.startswith(prefix) for name in file):
        whole = {*expected, *copies}
        file = {name if name in whole else prefix + name: x for name, x in file.items()}
    result = {name: array for name, array in file.items() if name not in copies}
    for copy, first in copies.items():
        if copy in file and not np.array_equal(result.setdefault(first, file[copy]), file[copy]):
            problems.append(f"{copy} and {first} must be equal (one shared table)")
    return result, problems


# -- models ----------------------------------------------------------------------------------------


class PreTrainedModel(Module, GenerationMixin):
    """A model with a config, which can be saved to a folder and opened from it.

    A class declares what its files look like:
    renames: the table; parameters that no entry is about have their own names there.
    base_model_prefix: the first part of names, which files of the model without its head lack.
    unused: names in files, with * for a part, that the model does without.
    task_head: own names, with * for a part, that the class adds for a task and that files may lack.

    generation_config: the content of generation_config.json, which `generate` follows, and which is
        saved with the model.
    """

    config_class: ClassVar[type[PretrainedConfig]]
    renames: tuple[Rename, ...] = ()
    base_model_prefix: ClassVar[str] = ""
    unused: ClassVar[tuple[str, ...]] = ()
    task_head: ClassVar[tuple[str, ...]] = ()
    load_report: LoadReport | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _classes[cls.__name__] = cls

    def __init__(self, config: Any) -> None:
        self.config = config
        self.generation_config = {}

    def entries(self) -> dict[str, Rename]:
        """The entry of the table for each parameter, by its own name."""

        def entry(name: str) -> Rename:
            found = (rename.of(name) for rename in self.renames)
            return next(filter(None, found), Rename(name, name))

        return {name: entry(name) for name, _ in self.named_parameters()}

    def save_pretrained(self, folder: str | os.PathLike[str], force: bool = False) -> None:
        """Write config.json and model.safetensors; each appears whole or not at all.

        Weights that are not finite are refused with a ValueError, unless forced.
        """
        values = self.state_dict()
        state: dict[str, np.ndarray] = {}
        for name, entry in self.entries().items():
            if not force and not np.isfinite(values[name]).all():
                raise ValueError(f"{name} is not finite and is not saved (force=True saves it)")
            state |= zip(entry.files, entry.split(values[name]), strict=True)
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        write_arrays(path / WEIGHTS, state)
        config = {"architectures": [type(self).__name__], **self.config.to_dict()}
        write_json(path / CONFIG, config)
        if self.generation_config:
            write_json(path / GENERATION, self.generation_config)
        else:
            (path / GENERATION).unlink(missing_ok=True)  # that of another model

    @classmethod
    def from_pretrained(
        cls, folder: str | os.PathLike[str], dtype: Any = None, **config: Any
    ) -> Self:
        """The model in a folder, in evaluation mode; float32 unless dtype says otherwise.

        config: fields that shall differ from config.json, such as dropout=0.3.

        InputError, one line, names the file and what is wrong in it.  What a file may lack or hold
        in excess stands in the model's `load_report`.
        """
        path = Path(folder)
        values = read_config(path)
        own = cls.config_class.model_type
        if (other := values.get("model_type", own)) != own:
            raise InputError(
                f"{path / CONFIG}: model_type is {other!r}, and {cls.__name__} opens {own!r}; "
                "tinyfm.pretrained.load(folder) picks the class"
            )
        if unknown := config.keys() - set(cls.config_class.field_names()):
            raise TypeError(
                f"{cls.config_class.__name__} has no field {', '.join(sorted(unknown))}"
            )
        try:
            new_config = cls.config_class.from_dict(values | config)
            with without_memory():  # none is taken before the file is known to fit
                skeleton = cls(new_config)
        except (TypeError, ValueError) as error:
            changed = f" with {config}" if config else ""
            raise InputError(f"{path / CONFIG}{changed}: {error}") from error
        file = _read_weights(path)
        try:
            state, report = _arrange(skeleton, file)
        except ValueError as error:
            raise InputError(f"{path / WEIGHTS}: {error}") from error
        if report.missing or report.new:
            model = cls(new_config).to(dtype=dtype)
            model.load_state_dict(model.state_dict() | state)
        else:  # no random numbers are drawn only to be overwritten
            model = skeleton
            model.allocate(state, np.float32 if dtype is None else dtype)
        model.load_report = report
        if (path / GENERATION).is_file():
            model.generation_config = read_json(path / GENERATION)
        else:
            model.generation_config = _older_options(values, model.config)
        try:
            GenerationConfig.of(model.config, {}, model.generation_config)
        except (TypeError, ValueError) as error:
            name = GENERATION if (path / GENERATION).is_file() else CONFIG
            raise InputError(f"{path / name}: {error}") from error
        return model.eval()


def _older_options(values: dict[str, Any], config: PretrainedConfig) -> dict[str, Any]:
    """The options of `generate` in a config.json from before generation_config.json; else none."""
    names = [field.name for field in dataclasses.fields(GenerationConfig)]
    if not any(name in values for name in set(names) - set(config.field_names())):
        return {}
    found = {name: getattr(config, name, values.get(name)) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def class_of(config: PretrainedConfig) -> type[PreTrainedModel]:
    """The first model class that was made for configs of this type; TypeError if none was."""
    for cls in _classes.values():
        if cls.config_class is type(config):
            return cls
    raise TypeError(
        f"no model is made from a {type(config).__name__}: give a config, such as one of "
        f"{', '.join(sorted({cls.config_class.__name__ for cls in _classes.values()}))}"
    )


def load(folder: str | os.PathLike[str], dtype: Any = None, **config: Any) -> PreTrainedModel:
    """The model in a folder, of the class that its config.json names; see `from_pretrained`.

    Without `architectures` the first class for the `model_type` is taken.
    """
    path = Path(folder)
    values = read_config(path)
    named, kind = values["architectures"][:1], values.get("model_type")
    found = [
        cls
        for name, cls in _classes.items()
        if name in named or (not named and cls.config_class.model_type == kind)
    ]
    if not found:
        what = f"architecture {named[0]!r}" if named else f"model_type {kind!r}"
        known = ", ".join(sorted(_classes))
        raise InputError(f"{path / CONFIG}: {what} is not one that can be opened: {known}")
    return found[0].from_pretrained(path, dtype, **config)


# -- folders ---------------------------------------------------------------------------------------


def read_config(folder: Path) -> dict[str, Any]:
    """The dictionary in a folder's config.json, in which `architectures` is a list of names."""
    remedy = "give a folder that save_pretrained or a training run has written"
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; {remedy}")
    if not (folder / CONFIG).is_file():
        raise InputError(f"{folder}: holds no {CONFIG}; {remedy}")
    values = read_json(folder / CONFIG)
    names = values.setdefault("architectures", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{folder / CONFIG}: architectures is {names!r}, and not a list of names")
    return values


def _read_weights(folder: Path) -> dict[str, np.ndarray]:
    path = folder / WEIGHTS
    if not path.is_file():
        for other in sorted(folder.iterdir()):
            if other.suffix in PICKLES:
                raise InputError(
                    f"{other}: a pickle, which is never read, for it may run any code; save the "
                    f"model as {WEIGHTS} with the software that wrote it"
                )
        raise InputError(f"{path}: no such file; the folder holds no weights")
    return read_arrays(path)
