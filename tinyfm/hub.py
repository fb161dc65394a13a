"""Published models by name: from the Hugging Face hub, or from what was fetched from it before."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tinyfm.errors import InputError

NAME = re.compile(r"[a-z0-9][\w.-]*(/[a-z0-9][\w.-]*)?", re.ASCII | re.IGNORECASE)
# All that is read of a model; never a pickle.
FILES = [
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model-*-of-*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
]


def resolve(folder: str | os.PathLike[str]) -> Path:
    """The folder; or, for a text such as "google-bert/bert-base-uncased" that is the name of none,
    the one with the published model's files, which are fetched unless they are there already.

    Where there is no network, what was fetched before is taken.  InputError if there is no way to
    the files.
    """
    path = Path(folder)
    if path.exists() or not isinstance(folder, str) or not NAME.fullmatch(folder):
        return path
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        return Path(snapshot_download(folder, allow_patterns=FILES))
    except Exception as error:  # of the network too, whose library differs by version
        unknown = isinstance(error, RepositoryNotFoundError)
        reason = "it is not there, or not public" if unknown else str(error).partition("\n")[0]
        raise InputError(
            f"{folder}: no such folder, and not to be had from the Hugging Face hub ({reason}); "
            "give a folder, or a published model's name where there is a network"
        ) from error
