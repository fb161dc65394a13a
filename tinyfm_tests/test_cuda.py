"""cuda.status() on planted CuPy modules, one a way to fail, and on this machine."""

import importlib.util
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from tinyfm import cuda


@pytest.fixture(autouse=True)
def fresh_status():
    cuda.status.cache_clear()
    yield
    cuda.status.cache_clear()


def raising(error):
    def call(*args, **kwargs):
        raise error

    return call


def plant(monkeypatch, driver=lambda: 13000, devices=lambda: 1, ones=np.ones):
    """A `cupy` that answers like the real one on a machine of the given kind."""
    cupy = ModuleType("cupy")
    cupy.cuda = SimpleNamespace(
        runtime=SimpleNamespace(driverGetVersion=driver, getDeviceCount=devices)
    )
    cupy.ones = ones
    monkeypatch.setitem(sys.modules, "cupy", cupy)


def test_a_working_gpu(monkeypatch):
    plant(monkeypatch)
    assert cuda.status() == (True, "")


def test_the_question_is_asked_once(monkeypatch):
    calls = []
    plant(monkeypatch, devices=lambda: calls.append("asked") or 1)
    assert cuda.status() == cuda.status()
    assert calls == ["asked"]


@pytest.mark.parametrize(
    "machine, expected",
    [
        ({"driver": lambda: 0}, "no NVIDIA driver"),
        ({"driver": raising(OSError("libcuda.so"))}, "found no usable GPU: libcuda.so"),
        ({"devices": lambda: 0}, "0 devices"),
        ({"devices": raising(RuntimeError("NoDevice"))}, "found no usable GPU: NoDevice"),
        ({"ones": raising(RuntimeError("no kernel image\nfor this card"))}, "image for this card"),
        ({"ones": np.zeros}, "failed a first computation: 0.0 instead of 12"),
    ],
    ids=["no driver", "driver raises", "0 devices", "no device", "old library", "wrong result"],
)
def test_an_unusable_gpu_has_a_reason_of_one_line(monkeypatch, machine, expected):
    plant(monkeypatch, **machine)
    ok, reason = cuda.status()
    assert not ok
    assert expected in reason and "\n" not in reason


def test_no_cupy(monkeypatch):
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(sys, "meta_path", [NoCuPy(), *sys.meta_path])
    assert cuda.status() == (False, 'CuPy is not installed: pip install "tinyfm[cuda13]"')


class NoCuPy:
    """An import hook under which CuPy is absent, or breaks while it loads."""

    def __init__(self, error=None):
        self.error = error or ModuleNotFoundError("No module named 'cupy'", name="cupy")

    def find_spec(self, name, path=None, target=None):
        if name == "cupy":
            raise self.error


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'fastrlock'", name="fastrlock"),
        ImportError("libcudart.so.13: cannot open shared object file"),
        RuntimeError("built for another NumPy"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_broken_cupy(monkeypatch, error):
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(sys, "meta_path", [NoCuPy(error), *sys.meta_path])
    assert cuda.status() == (False, f"CuPy cannot be imported: {error}")


def test_this_machine():
    ok, reason = cuda.status()
    assert ok == (reason == "")
    if importlib.util.find_spec("cupy") is None:
        assert "not installed" in reason


@pytest.mark.gpu
def test_this_gpu_computes():
    import cupy

    assert cupy.arange(3).sum().item() == 3


def test_importing_tinyfm_leaves_cupy_alone():
    code = "import sys, tinyfm.cuda; sys.exit('cupy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
