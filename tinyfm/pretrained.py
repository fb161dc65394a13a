"""Models in folders: config.json and model.safetensors, each file written whole or not at all.

Classes register themselves by name, so that `load(folder)` finds the one that config.json names.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, ClassVar, Self, get_type_hints

import numpy as np

from tinyfm.errors import InputError
from tinyfm.generation import GenerationMixin
from tinyfm.nn import Module
from tinyfm.text import replacing

CONFIG, WEIGHTS = "config.json", "model.safetensors"
_classes: dict[str, type[PreTrainedModel]] = {}


class PretrainedConfig:
    """Base of the config dataclasses: to and from the dictionary in config.json."""

    model_type: ClassVar[str]

    def __post_init__(self) -> None:
        """Check the kinds of the values, which may come out of a file.

        An int is at least 1, or as much as its field's metadata says under "least"; a float lies
        between 0 and 1 (all of them are probabilities); a str is one of metadata's "choices".
        """
        kinds = get_type_hints(type(self))
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            name, value, kind = field.name, getattr(self, field.name), kinds[field.name]
            value = float(value) if kind is float and type(value) is int else value
            wrong = not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
            if wrong:
                raise ValueError(f"{name} is {value!r}: it must be of type {kind.__name__}")
            if kind is int and value < (least := field.metadata.get("least", 1)):
                raise ValueError(f"{name} is {value}: it must be at least {least}")
            if kind is float and not 0 <= value <= 1:
                raise ValueError(f"{name} is {value}: it must be between 0 and 1")
            if (choices := field.metadata.get("choices")) and value not in choices:
                raise ValueError(f"{name} is {value!r}: it must be one of {', '.join(choices)}")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """A config of the known keys; others, of newer or foreign software, are ignored."""
        fields = {f.name for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
        return cls(**{k: v for k, v in values.items() if k in fields})

    def to_dict(self) -> dict[str, Any]:
        return {"model_type": self.model_type, **dataclasses.asdict(self)}  # type: ignore[call-overload]


class PreTrainedModel(Module, GenerationMixin):
    """A model with a config, which can be saved to a folder and opened from it."""

    config_class: ClassVar[type[PretrainedConfig]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _classes[cls.__name__] = cls

    def __init__(self, config: Any) -> None:
        self.config = config

    def save_pretrained(self, folder: str | os.PathLike[str], force: bool = False) -> None:
        """Write config.json and model.safetensors; each appears whole or not at all.

        Weights that are not finite are refused with a ValueError, unless forced.
        """
        from safetensors.numpy import save_file

        for name, array in self.state_dict().items():
            if not force and not np.isfinite(array).all():
                raise ValueError(f"{name} is not finite and is not saved (force=True saves it)")
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        state = {name: np.ascontiguousarray(array) for name, array in self.state_dict().items()}
        with replacing(path / WEIGHTS) as temporary:
            save_file(state, temporary)
        config = {"architectures": [type(self).__name__], **self.config.to_dict()}
        with replacing(path / CONFIG) as temporary:
            temporary.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], dtype: Any = None) -> Self:
        """The model in a folder, in evaluation mode; InputError names what is missing or wrong."""
        path = Path(folder)
        values = read_config(path)
        named = (values["architectures"] or [cls.__name__])[0]
        if named != cls.__name__:
            raise InputError(f"{path / CONFIG}: holds a {named}, and a {cls.__name__} is wanted")
        try:
            model = cls(cls.config_class.from_dict(values))
            model.load_state_dict(_read_weights(path / WEIGHTS))
        except (TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path}: {error}") from error
        return model.to(dtype=dtype).eval()


def class_of(config: PretrainedConfig) -> type[PreTrainedModel]:
    """The first model class that was made for configs of this type."""
    return next(cls for cls in _classes.values() if cls.config_class is type(config))


def load(folder: str | os.PathLike[str], dtype: Any = None) -> PreTrainedModel:
    """The model in a folder, of the class that its config.json names."""
    path = Path(folder)
    named = (read_config(path)["architectures"] or [None])[0]
    if named not in _classes:
        known = ", ".join(sorted(_classes))
        raise InputError(f"{path / CONFIG}: architecture {named!r} is not one of {known}")
    return _classes[named].from_pretrained(path, dtype)


def read_config(folder: Path) -> dict[str, Any]:
    """The dictionary in a folder's config.json."""
    path = folder / CONFIG
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give one that a training run has saved")
    if not path.is_file():
        raise InputError(
            f"{folder}: holds no {CONFIG}; give a folder that a training run has saved"
        )
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error})") from error
    if not isinstance(values, dict):
        raise InputError(f"{path}: not a JSON object")
    names = values.setdefault("architectures", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{path}: architectures is {names!r}, and not a list of names")
    return values


def _read_weights(path: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not path.is_file():
        raise InputError(f"{path}: no such file; the folder holds no weights")
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: not a readable safetensors file ({error})") from error
