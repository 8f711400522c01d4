"""A file is written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator


def refuse_devices(path: str | os.PathLike) -> None:
    """Raise OSError for no name, and for what is there and is no file: a file that is renamed to it would take its place."""
    if not os.fspath(path):
        raise FileNotFoundError("the name of the file to write is empty")
    if os.path.exists(path) and not os.path.isfile(path):
        kind = "a folder" if os.path.isdir(path) else "a device, not a file"
        raise (IsADirectoryError if os.path.isdir(path) else OSError)(f"{os.fspath(path)!r} is {kind}")


@contextlib.contextmanager
def whole(path: str | os.PathLike) -> Iterator[str]:
    """The name of a file to write, which takes the place of *path* when this ends without an error, and is removed otherwise.

    It has the name of *path* in a temporary folder beside it. Raises OSError on a folder or a device.
    """
    refuse_devices(path)
    folder, name = os.path.split(os.path.realpath(path))
    with tempfile.TemporaryDirectory(dir=folder, prefix=f".{name}.") as temporary:
        written = os.path.join(temporary, name)
        yield written
        os.replace(written, os.path.join(folder, name))
