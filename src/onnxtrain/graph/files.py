"""Files that are written in one piece or not at all."""

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
    """Whether a path is a device, a pipe or a socket: reading may never end, a file must not take its place."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


@contextmanager
def replacement(path: Path, write: Callable[[BinaryIO], Any], like: Path | None = None) -> Iterator[None]:
    """Write a partial file, which replaces the file at the end: with the permissions that this or `like` had.

    Raises
    ------
    OSError
        The folder is not to be written to, the disk is full, or the path is a device, a pipe or a socket: whoever may
        write to `/dev` would replace `/dev/null`.
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
    if os.name == "posix":  # that the name stands for the new file is written too
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
