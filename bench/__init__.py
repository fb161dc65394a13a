"""Benchmarks: tinyfm beside its peers, by the rules that bench/results/README.md states.

Run from the repository's root: `python -m bench.ops`, then `python -m bench.report`.
"""

import os

THREADS = 2

# Read by OpenBLAS and OpenMP when NumPy is imported, hence here, before any bench imports it.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = str(THREADS)
