"""Runs a notebook through nbclient, in a process of its own: path of the .ipynb.

What the cells put out is written back into the file. Exit codes: 0 all cells ran, 1 a
cell failed, 3 the kernel died.
"""

from __future__ import annotations

import contextlib
import sys

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError


def run(path):
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=120, kernel_name="python3")
    try:
        client.execute()
    except CellExecutionError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except DeadKernelError:
        return 3
    finally:
        with contextlib.suppress(OSError):
            nbformat.write(notebook, path)
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1]))
