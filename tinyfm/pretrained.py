"""Models in folders, as Hugging Face keeps them: config.json and model.safetensors.

Classes register themselves by name, so that `load(folder)` finds the one that config.json names,
or the family's model without a head; of mere bases of models nothing is made.
Pickles are never read: opening one runs whatever code stands in it.
"""

from __future__ import annotations

import dataclasses
import numbers
import os
import warnings
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Self, get_args, get_type_hints

import numpy as np

from tinyfm.errors import InputError
from tinyfm.files import read_arrays, read_json, write_arrays, write_json
from tinyfm.generation import GenerationConfig, GenerationMixin, foreign_options
from tinyfm.hub import resolve
from tinyfm.nn import Module, without_memory
from tinyfm.renames import LoadReport, Rename, arranged, matches
from tinyfm.tokenizer import Tokenizer

CONFIG, WEIGHTS, GENERATION = "config.json", "model.safetensors", "generation_config.json"
SHARDS = "model.safetensors.index.json"  # in the place of WEIGHTS: which file has which array
HEADS = 100  # parameters that a model may have and its file may lack; far more than any head has
PICKLES = {".bin", ".ckpt", ".pkl", ".pt", ".pth"}
NUMBERS: dict[type, type] = {int: numbers.Integral, float: numbers.Real}  # also NumPy's
_classes: dict[str, type[PreTrainedModel]] = {}


class PretrainedConfig:
    """Base of the config dataclasses: to and from the dictionary in config.json."""

    model_type: ClassVar[str]

    def __post_init__(self) -> None:
        """Check the kinds of the values, which may come out of a file; numbers become Python's own.

        An int is at least 1, or as much as its field's metadata says under "least"; a float lies
        between 0 and 1 (most are probabilities or standard deviations) or metadata's "most"; a str
        is one of metadata's "choices".  None is for the fields whose type has it.
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
            most = field.metadata.get("most", 1)
            if kind is float and not 0 <= value <= most:
                raise ValueError(f"{name} is {value}: it must be between 0 and {most}")
            if (choices := field.metadata.get("choices")) and value not in choices:
                raise ValueError(f"{name} is {value!r}: it must be one of {', '.join(choices)}")

    @classmethod
    def field_names(cls) -> list[str]:
        """The fields that can be set; a family may have fixed others of its base."""
        return [f.name for f in dataclasses.fields(cls) if f.init]  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """A config of the known keys; others, of newer or foreign software, are ignored.

        Of several end tokens it has the first; all of them are a matter of generation_config.
        """
        known = {key: values[key] for key in cls.field_names() if key in values}
        if _several_ends(known):
            known["eos_token_id"] = known["eos_token_id"][0]
        return cls(**known)

    def to_dict(self) -> dict[str, Any]:
        return {
            "model_type": self.model_type,
            **{key: getattr(self, key) for key in self.field_names()},
        }


def _several_ends(values: dict[str, Any]) -> bool:
    """Whether a config.json has a list of end tokens, as those of newer models do."""
    ends = values.get("eos_token_id")
    return isinstance(ends, list) and len(ends) > 0


NUMBER, CLASSES = "regression", "single_label_classification"
MOST_CLASSES = 10**6  # without names of their own: a wrong number would fill the memory with names


@dataclasses.dataclass
class ClassifierConfig(PretrainedConfig):
    """A config with the classes of a task.

    id2label: the names of the classes 0, 1, ...; LABEL_0 and so on unless given.
    num_labels: how many there are, 2 unless given; 1: of whole texts a number is predicted.
    label2id: the reverse of id2label, made from it.
    problem_type: what config.json may say of that, too; it has to fit.
    """

    num_labels: int | None = None
    id2label: dict | None = None
    label2id: dict | None = None
    problem_type: str | None = dataclasses.field(
        default=None, metadata={"choices": (NUMBER, CLASSES)}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.id2label
        if names is None and (self.num_labels or 0) > MOST_CLASSES:
            raise ValueError(f"num_labels is {self.num_labels}: it must be at most {MOST_CLASSES}")
        if names is None:
            names = {i: f"LABEL_{i}" for i in range(self.num_labels or 2)}
        if sorted(map(str, names)) != sorted(map(str, range(len(names)))) or not names:
            raise ValueError(f"id2label is {names}: it must name the classes 0, 1, ...")
        if self.num_labels not in (None, len(names)):
            raise ValueError(f"num_labels is {self.num_labels}, and id2label names {len(names)}")
        self.num_labels = len(names)
        if self.problem_type not in (None, NUMBER if self.num_labels == 1 else CLASSES):
            raise ValueError(
                f"problem_type is {self.problem_type!r} and num_labels {self.num_labels}: "
                f"{NUMBER} has 1 label, and {CLASSES} more"
            )
        self.id2label = {i: str(name) for i, name in sorted((int(k), v) for k, v in names.items())}
        self.label2id = {name: i for i, name in self.id2label.items()}
        if len(self.label2id) < len(names):
            raise ValueError(f"id2label is {names}: it must name each class differently")


# What a given field puts out of force when a folder is opened with it.
REPLACES = {
    "num_labels": ("id2label", "label2id", "problem_type"),
    "id2label": ("num_labels", "label2id", "problem_type"),
}


# -- models ----------------------------------------------------------------------------------------


class PreTrainedModel(Module, GenerationMixin):
    """A model with a config, which can be saved to a folder and opened from it.

    A class that is only a base of models says so: class WithBody(PreTrainedModel, base=True).
    It declares what its files look like:
    renames: the table; parameters that no entry is about have their own names there.
    base_model_prefix: the first part of names, which files of the model without its head lack.
    unused: names in files, with * for a part, that the model does without.
    task_head: own names, with * for a part, that the class adds for a task and that files may lack.

    generation_config: the content of generation_config.json, which `generate` follows, and which is
        saved with the model.
    """

    config_class: ClassVar[type[PretrainedConfig]]
    renames: tuple[Rename, ...] = ()
    base_model_prefix: str = ""
    unused: tuple[str, ...] = ()
    task_head: tuple[str, ...] = ()
    load_report: LoadReport | None = None

    def __init_subclass__(cls, base: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        if hasattr(cls, "config_class") and not base:
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

        The weights of another model that lay there, in one file or several, go.
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
            write_json(path / GENERATION, _special_ids(self.config) | self.generation_config)
        else:
            (path / GENERATION).unlink(missing_ok=True)  # that of another model
        _remove_shards(path / SHARDS)

    @classmethod
    def fitted(cls, values: dict[str, Any], file: dict[str, np.ndarray]) -> dict[str, Any]:
        """The values of config.json, corrected where the file of weights knows better."""
        return values

    @classmethod
    def from_pretrained(
        cls, folder: str | os.PathLike[str], dtype: Any = None, **config: Any
    ) -> Self:
        """The model in a folder, or of a published name, in evaluation mode; float32 unless dtype
        says otherwise.

        config: fields that shall differ from config.json, such as dropout=0.3.

        InputError, one line, names the file and what is wrong in it.  What a file may lack or hold
        in excess stands in the model's `load_report`.
        """
        path = resolve(folder)
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
        for name in config:
            values = {n: v for n, v in values.items() if n not in REPLACES.get(name, ())}
        weights, file = _read_weights(path)
        try:
            new_config = cls.config_class.from_dict(cls.fitted(values, file) | config)
            # No memory is taken, nor much time, before the file is known to fit; it may keep apart
            # what is one parameter here, and lack a new head.
            with without_memory(most=len(file) + HEADS):
                skeleton = cls(new_config)
        except (TypeError, ValueError) as error:
            changed = f" with {config}" if config else ""
            raise InputError(f"{path / CONFIG}{changed}: {error}") from error
        others = _of_another_task(cls, values["architectures"], file)
        file = {name: array for name, array in file.items() if name not in others}
        try:
            state, report = arranged(skeleton, file)
        except ValueError as error:
            remedy = "get the file again, or the config.json that belongs to it"
            if (named := values["architectures"][:1]) not in ([], [cls.__name__]):
                remedy = f"{CONFIG} says {named[0]}: open that, or give another folder"
            raise InputError(f"{weights}: {error}; {remedy}") from error
        report.unexpected.extend(others)
        if report.missing or report.new:
            model = cls(new_config).to(dtype=dtype)
            model.load_state_dict(model.state_dict() | state)
        else:  # no random numbers are drawn only to be overwritten
            model = skeleton
            model.allocate(state, np.float32 if dtype is None else dtype)
        model.load_report = report
        told = GENERATION if (path / GENERATION).is_file() else CONFIG
        if told == GENERATION:
            model.generation_config = read_json(path / GENERATION)
            if _several_ends(values):
                model.generation_config.setdefault("eos_token_id", values["eos_token_id"])
        else:
            model.generation_config = _older_options(values, model.config)
        try:
            GenerationConfig.of(model.config, {}, model.generation_config)
        except (TypeError, ValueError) as error:
            raise InputError(f"{path / told}: {error}") from error
        if foreign := foreign_options(model.generation_config if told == GENERATION else values):
            warnings.warn(
                f"{path / told}: generate has no {', '.join(foreign)} and goes on without; its "
                "texts are not those that the model's makers mean",
                stacklevel=2,
            )
        return model.eval()


# What models of several tasks call their own layer, although it does another thing in each.
TASK_LAYERS = ("classifier.**", "qa_outputs.**")


def _of_another_task(
    cls: type[PreTrainedModel], architectures: Sequence[str], file: Collection[str]
) -> list[str]:
    """The names in a file of another task's own layer, which must not pass for that of cls.

    A model that rates sentences and one that tags words both have a `classifier`.
    """
    if not architectures or architectures[0] not in _classes:
        return []
    head, other = (name.partition("For")[2] for name in (cls.__name__, architectures[0]))
    return [name for name in file if head != other and matches(name, TASK_LAYERS)]


def _older_options(values: dict[str, Any], config: PretrainedConfig) -> dict[str, Any]:
    """The options of `generate` in a config.json from before generation_config.json; else none."""
    names = [field.name for field in dataclasses.fields(GenerationConfig)]
    more = _several_ends(values)  # of which the config has one
    if not more and not any(name in values for name in set(names) - set(config.field_names())):
        return {}
    found = {name: getattr(config, name, values.get(name)) for name in names}
    if more:
        found["eos_token_id"] = values["eos_token_id"]
    return {name: value for name, value in found.items() if value is not None}


def _special_ids(config: PretrainedConfig) -> dict[str, int]:
    """The ids that a config names, for transformers looks for them in generation_config.json alone
    where there is one."""
    names = ("bos_token_id", "decoder_start_token_id", "eos_token_id", "pad_token_id")
    ids = ((name, getattr(config, name, None)) for name in names)
    return {name: id for name, id in ids if id is not None}


def class_of(config: PretrainedConfig) -> type[PreTrainedModel]:
    """The first model class that was made for configs of this type; TypeError if none was."""
    for cls in _classes.values():
        if cls.config_class is type(config):
            return cls
    raise TypeError(
        f"no model is made from a {type(config).__name__}: give a config, such as one of "
        f"{', '.join(sorted({cls.config_class.__name__ for cls in _classes.values()}))}"
    )


OLD_NAMES = {"T5WithLMHeadModel": "T5ForConditionalGeneration"}  # of classes, in config.json


def load(folder: str | os.PathLike[str], dtype: Any = None, **config: Any) -> PreTrainedModel:
    """The model in a folder, or of a published name such as "google-bert/bert-base-uncased", of the
    class that its config.json names; see `from_pretrained`.

    Without `architectures` the first class for the `model_type` is taken.
    """
    path = resolve(folder)
    values = read_config(path)
    named = [OLD_NAMES.get(name, name) for name in values["architectures"][:1]]
    kind = values.get("model_type")
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


def load_tokenizer(
    folder: str | os.PathLike[str], model: PreTrainedModel | None = None
) -> Tokenizer:
    """The tokenizer in a folder, or of a published name.

    InputError names what is missing or damaged; or, with a model, says that its table of embeddings
    has too few rows for the tokenizer.
    """
    path = resolve(folder)
    tokenizer = Tokenizer.load(path)
    if model is not None and len(tokenizer) > model.config.vocab_size:
        raise InputError(
            f"{path}: the tokenizer has {len(tokenizer)} subwords and the model "
            f"{model.config.vocab_size}; they do not belong together"
        )
    return tokenizer


# -- folders ---------------------------------------------------------------------------------------


def read_config(folder: Path) -> dict[str, Any]:
    """The dictionary in a folder's config.json, in which `architectures` is a list of names."""
    remedy = "give a folder that save_pretrained or a training run has written"
    if folder.is_file():
        raise InputError(f"{folder}: is a file; {remedy}")
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; {remedy}")
    if not (folder / CONFIG).is_file():
        raise InputError(f"{folder}: holds no {CONFIG}; {remedy}")
    values = read_json(folder / CONFIG)
    if values.get("architectures") is None:  # missing, or null
        values["architectures"] = []
    names = values["architectures"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{folder / CONFIG}: architectures is {names!r}, and not a list of names")
    return values


def _read_weights(folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """The arrays in model.safetensors, or in the files of the index; and the file or index."""
    if (path := folder / WEIGHTS).is_file():
        return path, read_arrays(path)
    if (index := folder / SHARDS).is_file():
        return index, _read_shards(index)
    for other in sorted(folder.iterdir()):
        if other.suffix in PICKLES:
            raise InputError(
                f"{other}: a pickle, which is never read, for it may run any code; save the "
                f"model as {WEIGHTS} with the software that wrote it"
            )
    raise InputError(f"{path}: no such file; the folder holds no weights")


def _read_shards(index: Path) -> dict[str, np.ndarray]:
    places = _shards(index)
    arrays: dict[str, np.ndarray] = {}
    for file in sorted(set(places.values())):
        found = read_arrays(index.parent / file)
        listed = {name for name, place in places.items() if place == file}
        if different := sorted(listed ^ found.keys()):
            more = f" and {len(different) - 3} more" if different[3:] else ""
            raise InputError(
                f"{index.parent / file}: it and {index.name} differ in what it holds: "
                f"{', '.join(different[:3])}{more}"
            )
        arrays |= found
    return arrays


def _shards(index: Path) -> dict[str, str]:
    """The file of each array, by name; InputError for one that is not in the index's own folder."""
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict):
        raise InputError(f"{index}: has no weight_map, which names the file of each array")
    for name, file in places.items():
        if not isinstance(file, str) or file in ("", "..") or file != Path(file).name:
            raise InputError(
                f"{index}: weight_map has {file!r} for {name}, which is no file of the folder; get "
                "the index again"
            )
    return places


def _remove_shards(index: Path) -> None:
    """Remove an index of weights, and the files of weights that it names."""
    if not index.is_file():
        return
    with suppress(InputError):  # a damaged index names nothing
        for file in {*_shards(index).values()} - {WEIGHTS}:
            if Path(file).suffix == Path(WEIGHTS).suffix:
                (index.parent / file).unlink(missing_ok=True)
    index.unlink()
