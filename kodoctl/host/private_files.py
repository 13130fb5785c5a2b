"""Files and folders that only their owner may read (plans, ledgers and secrets contain payloads, keys or credentials),
and files that are replaced atomically.

Existing folders keep their mode, because their owner may share them on purpose. No file is written through a symbolic
link at its path: a folder may be a clone of a repository, or shared with other users.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

OWN: Final = ".kodoctl"
"""Name of the folder in a working folder for the files of kodoctl, unless the user names another place."""
LANDING: Final = f"{OWN}/landing"
"""Default folder of the landing, in the working folder."""
LEDGER: Final = f"{OWN}/recall"
"""Folder of the recall ledger if no landing is named."""


def make_private(folder: Path) -> None:
    """Creates a folder that only its owner can enter (mode 0700), and missing folders above likewise; a folder that
    exists keeps its mode. Raises OSError.
    """
    _make(folder, others=0)


def make_folder(folder: Path) -> None:
    """Creates a folder with the system's usual mode, and missing folders above; each new one named `.kodoctl` is for
    its owner alone. A folder that exists keeps its mode. Raises OSError.
    """
    _make(folder, others=0o077)


def _make(folder: Path, others: int) -> None:
    for one in (*reversed(folder.parents), folder):
        if not one.is_dir():
            one.mkdir(0o700 if one.name == OWN else 0o700 | others, exist_ok=True)


def create_private(file: Path) -> None:
    """Removes any old file, then creates an empty file of mode 0600, for a library that then writes into it itself.
    Raises OSError; the old file may then be gone.
    """
    os.close(_create_file(file, 0o600))


def put_in_place(file: Path, name: Path) -> None:
    """Makes a complete file available as `name`, a path in the same folder. If a hard link can be made, `file` stays as
    a second name, and FileExistsError is raised if `name` is taken. Otherwise, as on a file system without hard links,
    `file` is renamed, and a file that is at `name` is replaced. Raises OSError.
    """
    try:
        name.hardlink_to(file)
    except FileExistsError:
        raise
    except OSError:
        file.replace(name)


def write_whole(file: Path, content: bytes) -> None:
    """Creates or replaces a file atomically: readers see the old content or the new one, also after a loss of power.
    The mode is the system's usual one, whatever the old file had. Raises OSError, and then leaves the old file as it
    was. Two threads must not replace the same file at a time.
    """
    _replace(file, content, 0o666)


def write_private(file: Path, content: str | bytes, mode: int = 0o600) -> None:
    """Creates or replaces a file atomically by one with exactly the permissions `mode`, which only its owner may read
    until it is complete. A str is written as UTF-8. Raises OSError, and then leaves the old file as it was. Two threads
    must not replace the same file at a time.
    """
    _replace(file, content.encode() if isinstance(content, str) else content, 0o600, mode)


def _replace(file: Path, content: bytes, created: int, mode: int | None = None) -> None:
    """Writes a new file beside `file`, with the mode `created`, then `mode`, and puts it in the file's place."""
    scratch = file.with_name(f".{file.name}.{os.getpid()}.new")
    try:
        with os.fdopen(_create_file(scratch, created), "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
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
