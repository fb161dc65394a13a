"""Published names: what is asked of the hub, and what is said when it cannot be had."""

import fnmatch
import os
import subprocess
import sys

import pytest

from tinyfm import InputError, hub, pretrained
from tinyfm_tests.test_pretrained import saved


@pytest.fixture
def asked(monkeypatch):
    """The calls of the library, which fail; nothing leaves this machine."""
    calls = []

    def fetch(name, **options):
        calls.append((name, options))
        raise ConnectionError("no network\nand a second line")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    return calls


@pytest.mark.parametrize("name", ["bert-base-uncased", "google-bert/bert-base-uncased", "a/b.c_d"])
def test_a_name_that_is_no_folder_is_looked_up(name, asked):
    with pytest.raises(InputError) as raised:
        hub.resolve(name)
    assert asked == [(name, {"allow_patterns": hub.FILES})]
    message = str(raised.value)
    assert message.startswith(f"{name}: no such folder, and not to be had from the Hugging Face")
    assert "(no network)" in message and "\n" not in message and "give a folder" in message


@pytest.mark.parametrize(
    "name", ["/nowhere", "./bert", "../bert", "a/b/c", "", ".", "~/bert", "모델", "a b", "-x", "a/"]
)
def test_what_can_be_no_published_name_is_a_folder(name, asked):
    assert str(hub.resolve(name)) == os.path.normpath(name)
    assert asked == []


def test_folders_come_first_and_paths_are_always_folders(asked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bert").mkdir()
    assert hub.resolve("bert").samefile(tmp_path / "bert")
    hub.resolve(hub.Path("gpt2"))
    assert asked == []
    with pytest.raises(InputError, match="gpt2: no such folder; give a folder"):
        pretrained.load(hub.Path("gpt2"))


def test_models_and_tokenizers_are_opened_by_name(tmp_path, monkeypatch):
    model = saved(tmp_path)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: str(tmp_path))
    assert pretrained.load("some/name").config == model.config
    assert type(model).from_pretrained("some/name").config == model.config
    with pytest.raises(InputError, match=f"^{tmp_path}: holds no tokenizer"):
        pretrained.load_tokenizer("some/name")


def test_a_name_that_the_hub_does_not_know(monkeypatch):
    from huggingface_hub.errors import RepositoryNotFoundError

    class Unknown(RepositoryNotFoundError):
        def __init__(self):  # the library's own wants the server's answer
            pass

    def unknown(name, **options):
        raise Unknown

    monkeypatch.setattr("huggingface_hub.snapshot_download", unknown)
    with pytest.raises(InputError, match=r"no/such: .* \(it is not there, or not public\); give a"):
        hub.resolve("no/such")


@pytest.mark.parametrize(
    "file", ["model.safetensors", "model-00001-of-00002.safetensors", "tokenizer.json", "vocab.txt"]
)
def test_what_is_read_is_fetched(file):
    assert any(fnmatch.fnmatch(file, pattern) for pattern in hub.FILES)


@pytest.mark.parametrize(
    "file",
    ["pytorch_model.bin", "model.pt", "rust_model.ot", "training_args.bin", "tf_model.h5",
     "onnx/model.safetensors", "model.fp16.safetensors", "a.py", "1_Pooling/config.json"],
)  # fmt: skip
def test_r73_pickles_and_what_is_not_read_are_not_fetched(file):
    assert not any(fnmatch.fnmatch(file, pattern) for pattern in hub.FILES)


OFFLINE = """
import sys
from tinyfm import InputError, pretrained
print(type(pretrained.load("some/name")).__name__)
try:
    pretrained.load("some/other")
except InputError as error:
    print(error)
"""


def test_without_a_network_what_was_fetched_before_is_taken(tmp_path):
    """The library's own folders, and the library's own word for having no network."""
    cache = tmp_path / "models--some--name"
    saved(cache / "snapshots" / "0123abc")
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("0123abc")
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE],
        env={
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "HF_HUB_CACHE": str(tmp_path),
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "Transformer"
    assert second.startswith("some/other: no such folder, and not to be had from the Hugging Face")


@pytest.mark.hub
def test_a_published_model_is_fetched():
    model = pretrained.load("google-bert/bert-base-uncased")
    tokenizer = pretrained.load_tokenizer("google-bert/bert-base-uncased", model)
    assert model.config.vocab_size == len(tokenizer) == 30522
