"""Atomic writing of files."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO


def is_special(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a device, a pipe or a socket, which may never end when read and must not be replaced."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


@contextmanager
def replacement(path: Path, write: Callable[[BinaryIO], Any], like: Path | None = None) -> Iterator[None]:
    """Write a partial file, which finally replaces the file; it gets the permissions of the old file, or of `like`.

    Raises
    ------
    OSError
        The folder is not writable, the disk is full, or the path is a device, a pipe or a socket, so that a user who
        may write to `/dev` does not replace `/dev/null`.
    """
    if is_special(path):
        raise OSError(errno.EEXIST, "It is a device, a pipe or a socket, which the file would replace", str(path))
    part, like = path.parent / f".{path.name}.{uuid.uuid4().hex}.part", like or path
    try:
        with open(part, "xb") as file:
            if like.exists():
                shutil.copymode(like, part)
            write(file)
            file.flush()
            os.fsync(file.fileno())
        yield
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    if os.name == "posix":  # also sync the directory entry
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
