"""Run chapters of the guided tour and save them with what they show.

A file is left as it was if a cell raises or hangs.  A chapter takes less than a minute on two idle
cores.  Nothing is kept that tells when, or on which machine, a chapter was run.
"""

import argparse
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def run(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook,
        timeout=600,  # of a cell, on a busy machine
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("chapters", nargs="+", metavar="FILE", type=Path)
    for path in parser.parse_args().chapters:
        if not path.is_file():
            parser.error(f"{path}: no such file")
        print(path, flush=True)
        run(path)
