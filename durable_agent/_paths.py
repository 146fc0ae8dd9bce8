"""Paths as strings, and what a status says: pure, no call to the disk."""

# Strings all the way: the store joins two names a call, and `Path` costs more.
# ruff: noqa: PTH100, PTH118, PTH119, PTH120
from __future__ import annotations

import os
import stat


def join(directory: str, name: str) -> str:
    """Return the path of a name in a directory."""
    return os.path.join(directory, name)


def name_of(path: str) -> str:
    """Return the last component of a path."""
    return os.path.basename(path)


def parent_of(path: str) -> str:
    """Return the directory that a path is in."""
    return os.path.dirname(path)


def absolute(path: str | os.PathLike[str]) -> str:
    """Return the path from the top, symlinks kept."""
    return os.path.abspath(os.fspath(path))


def identity(status: os.stat_result) -> tuple[int, int]:
    """Return which file a status is about: what a path must still lead to."""
    return status.st_dev, status.st_ino


def is_file(status: os.stat_result) -> bool:
    """Whether it is a file, and no link, directory or device."""
    return stat.S_ISREG(status.st_mode)


def is_dir(status: os.stat_result) -> bool:
    """Whether it is a directory, and no link to one."""
    return stat.S_ISDIR(status.st_mode)
