"""Files and folders that only their owner may read: plans, ledgers, secrets. They hold payloads, keys and credentials.
And files that are written in one step, whoever may read them.

Folders that are there keep their mode: their owner may share them on purpose. A folder may be a clone, or of several
users: a file is never written through a link that lies where it is made.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

OWN: Final = ".kodoctl"
"""Folder in a working folder, for what kodoctl keeps there unless another place is named."""
LANDING: Final = f"{OWN}/landing"
LEDGER: Final = f"{OWN}/recall"
"""The ledger of recalls, where no landing is named."""


def make_private(folder: Path) -> None:
    """A folder that only its owner can enter, and each folder above that is missing. Raises OSError."""
    _make(folder, others=0)


def make_folder(folder: Path) -> None:
    """A folder as the system makes it, and each folder above that is missing; `.kodoctl` is for its owner alone.
    Raises OSError.
    """
    _make(folder, others=0o077)


def _make(folder: Path, others: int) -> None:
    for one in (*reversed(folder.parents), folder):
        if not one.is_dir():
            one.mkdir(0o700 if one.name == OWN else 0o700 | others, exist_ok=True)


def create_private(file: Path) -> None:
    """An empty file, for a library that opens files by itself. One that is there is replaced. Raises OSError."""
    os.close(_create_file(file, 0o600))


def write_whole(file: Path, content: bytes) -> None:
    """A file in one step, with the mode that the system gives: whoever reads it meanwhile sees the last one, or this one.
    Raises OSError.
    """
    _replace(file, content, 0o666)


def write_private(file: Path, content: str | bytes, mode: int = 0o600) -> None:
    """A file in one step, never readable by others than `mode` says, not even for a moment. Raises OSError."""
    _replace(file, content.encode() if isinstance(content, str) else content, 0o600, mode)


def _replace(file: Path, content: bytes, created: int, mode: int | None = None) -> None:
    """Writes a new file beside `file`, with the mode `created`, then `mode`, and puts it in the file's place."""
    scratch = file.with_name(f".{file.name}.{os.getpid()}.new")
    try:
        with os.fdopen(_create_file(scratch, created), "wb") as stream:
            stream.write(content)
        if mode is not None:
            scratch.chmod(mode)
        scratch.replace(file)
    except OSError:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise


def _create_file(file: Path, mode: int) -> int:
    file.unlink(missing_ok=True)
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
