"""Hypothesis profiles, and the rule that a test whose needs are absent is skipped with the reason.

HYPOTHESIS_PROFILE picks a profile: `dev` (the default), `ci` (the default where CI is set; every
run draws the same examples) or `thorough` (ten times the examples).
"""

import importlib.util
import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Workers of pytest-xdist share the cores, so each computes on one; said before NumPy is loaded.
if "PYTEST_XDIST_WORKER" in os.environ:
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):  # NumPy's, and torch's
        os.environ.setdefault(name, "1")

from tinyfm import cuda

# Neither a deadline nor the health check that watches the clock: a busy machine is not a bug.
UNTIMED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", **UNTIMED)
settings.register_profile("ci", derandomize=True, **UNTIMED)
settings.register_profile("thorough", max_examples=10 * settings.default.max_examples, **UNTIMED)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
)

# A shell starts a background job with Ctrl-C ignored, and what it starts inherits that: the tests
# of Ctrl-C shall find it as a user does.
signal.signal(signal.SIGINT, signal.default_int_handler)


def no_gpu():
    ok, reason = cuda.status()
    return "" if ok else reason


def no_parity_packages():
    missing = [name for name in ("torch", "transformers") if not importlib.util.find_spec(name)]
    return f"{' and '.join(missing)} not installed (the parity extra)" if missing else ""


def no_hub():
    return "" if os.environ.get("TINYFM_HUB") else "TINYFM_HUB is not set"


def no_data():
    folder = os.environ.get("TINYFM_DATA")
    if not folder:
        return "TINYFM_DATA is not set"
    return "" if Path(folder).is_dir() else f"TINYFM_DATA names no folder: {folder}"


WHY_NOT = {"gpu": no_gpu, "parity": no_parity_packages, "hub": no_hub, "data": no_data}


@pytest.hookimpl(trylast=True)  # after -m has deselected, so that only what would run is asked for
def pytest_collection_modifyitems(items):
    for item in items:
        for marker in WHY_NOT.keys() & {mark.name for mark in item.iter_markers()}:
            if reason := WHY_NOT[marker]():
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def data_folder():
    """The folder of shared test data; a test that uses it is marked `data`."""
    return Path(os.environ["TINYFM_DATA"])
