"""Folders of files, on a disk or in an object store, through Arrow's file systems: for data files of the tables, and
coverage records of runs.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

from kodoctl.errors import KodoctlError, error
from kodoctl.host.host_facts import absolute_uri
from kodoctl.host.private_files import write_whole

ALIASES: Final = {
    "s3a://": "s3://",
    "s3n://": "s3://",
    "gcs://": "gs://",
}  # Spark's words for what Arrow calls otherwise
STORE: Final = {"AWS_ALLOW_HTTP": "true"}  # of delta-rs: the environment names the endpoint, http:// only on purpose
_S3: Final = (
    "\nthe way in: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, and AWS_ENDPOINT_URL for a store of your own"
)
_SPARKS: Final = 86_400  # seconds that an empty folder of Spark's stays
_TRIES: Final = 5
_AT_ONCE: Final = 16  # documents fetched side by side: a store answers each in tens of milliseconds, whatever its size
_CUT: Final = "Failed to flush response stream"  # Amazon's library, of a 503 with more text than bytes were asked for
_PAUSE: Final = 0.1  # seconds before such a read is tried again, then twice as long
T = TypeVar("T")


class StoredFile(NamedTuple):
    """A file in a folder: `size` in bytes, and `at`, the time when it was written, in seconds since the epoch by the
    store's clock.
    """

    size: int
    at: float


class Storage:
    """A folder on a disk or in an object store, which need not exist. The constructor takes a relative path too, and
    connects to nothing. `uri`: absolute path or URI, in Spark's form; `local`: path of a folder on a disk, None for a
    store. The methods raise KodoctlError (K573) if the store refuses an operation.
    """

    def __init__(self, uri: str) -> None:
        self.uri = absolute_uri(uri)
        self.local = Path(self.uri.removeprefix("file://")) if self.uri.startswith(("/", "file://")) else None
        self._opened: tuple[Any, str] | None = None

    def __truediv__(self, name: str) -> Self:
        return type(self)(f"{self.uri}/{name}")

    @property
    def address(self) -> str:
        """The URI in the form that Arrow and delta-rs take: `s3://` for `s3a://` and `s3n://`, `gs://` for `gcs://`;
        else unchanged.
        """
        return next(
            (self.uri.replace(old, new, 1) for old, new in ALIASES.items() if self.uri.startswith(old)), self.uri
        )

    @contextmanager
    def _fs(self, name: str = "") -> Iterator[tuple[Any, str]]:
        """Context with (Arrow's file system, path of the folder in it), which turns errors into KodoctlError (K573).
        `name`: file in the folder, for the error.
        """
        from pyarrow import fs

        try:
            if self._opened is None:
                known = self.address
                # One request for a small object instead of three, and nothing begun where a process is killed.
                options = "?allow_delayed_open=true" if known.startswith("s3://") and "?" not in known else ""
                self._opened = fs.FileSystem.from_uri(known + options)
            yield self._opened
        except (OSError, ValueError, NotImplementedError) as problem:
            where = f"{self.uri}/{name}" if name else self.uri
            detail = f"{where}: {problem}{way_in(self.uri)}"
            raise KodoctlError(error("K573", "the landing cannot be used", detail)) from None

    def opened(self) -> tuple[Any, str]:
        """Returns (Arrow's file system, path of the folder in it). The first call makes the file system, later ones
        reuse it.
        """
        with self._fs() as found:
            return found

    def write(self, name: str, document: object) -> None:
        """Writes a document as the JSON file `name` atomically, in a folder that is created if needed. An existing file
        is replaced.
        """
        self.write_bytes(name, json.dumps(document, separators=(",", ":"), sort_keys=True).encode())

    def write_bytes(self, name: str, data: bytes) -> None:
        """Writes the file `name` atomically, in a folder that is created if needed. An existing file is replaced."""
        with self._fs(name) as (system, base):
            if self.local is None:
                with system.open_output_stream(f"{base}/{name}") as out:  # stores show an object when it is whole
                    out.write(data)
                return
            self.local.mkdir(parents=True, exist_ok=True)
            write_whole(self.local / name, data)

    def documents(self) -> dict[str, Any]:
        """Reads every JSON file (`.json`) directly in the folder: document by file name, sorted by name. {} if there is
        no folder. A file that is no JSON raises KodoctlError.
        """
        with self._fs() as (system, base):
            names = sorted(info.base_name for info in _list_files(system, base) if info.base_name.endswith(".json"))
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                found = pool.map(lambda name: _document(system, base, name), names)
                return dict(zip(names, found, strict=True))

    @contextmanager
    def output(self, name: str) -> Iterator[Any]:
        """Context with a file to write bytes to, in place of an old one of that name. `name` may contain folders, which
        are created. Unlike `write` it is not atomic: an error in the block may leave a part of the file. Raises
        KodoctlError (K573), also for an OSError or ValueError of the block.
        """
        in_folder = self.local is not None
        with self._fs(name) as (system, base), _create_file(system, f"{base}/{name}", in_folder=in_folder) as out:
            yield out

    @contextmanager
    def input(self, name: str) -> Iterator[Any]:
        """Context with a file to read from, at any position. Raises KodoctlError (K573) if it does not exist, also for
        an OSError or ValueError of the block.
        """
        with self._fs(name) as (system, base), system.open_input_file(f"{base}/{name}") as file:
            yield file if self.local is not None else StoredInput(file)

    def files(self) -> list[str]:
        """Sorted paths, relative to this folder, of all files in it at any depth; [] without a folder."""
        return sorted(self.written())

    def written(self) -> dict[str, StoredFile]:
        """Size and time of each file in this folder at any depth, by relative path; {} without a folder."""
        from pyarrow import fs

        with self._fs() as (system, base):
            found = system.get_file_info(fs.FileSelector(base, allow_not_found=True, recursive=True))
            return {
                info.path.removeprefix(f"{base}/"): StoredFile(info.size, info.mtime_ns / 1e9)
                for info in found
                if info.type == fs.FileType.File
            }

    def delete(self, names: Iterable[str]) -> None:
        """Deletes files by their relative paths, several at a time; a missing file is no error."""

        def delete_one(name: str) -> None:
            with suppress(FileNotFoundError):
                system.delete_file(f"{base}/{name}")

        with self._fs() as (system, base), ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(delete_one, names))

    def prune(self) -> None:
        """Removes folders in this one that contain no file at any depth, except folders here whose names begin with
        `_`, and deeper ones of such names that changed in the last day. A folder that gets a file meanwhile stays. Does
        nothing in an object store, which has no folders.
        """
        before = time.time() - _SPARKS
        for name in self.folders() if self.local is not None else ():
            if not name.startswith("_"):
                _remove_empty(self.local / name, before)  # type: ignore[operator]

    def folders(self) -> list[str]:
        """Sorted names of the folders directly in this one; [] without a folder."""
        from pyarrow import fs

        with self._fs() as (system, base):
            return sorted(info.base_name for info in _list_files(system, base) if info.type == fs.FileType.Directory)

    def exists(self) -> bool:
        """True if there is a folder or a file at this address."""
        from pyarrow import fs

        with self._fs() as (system, base):
            return bool(system.get_file_info(base).type != fs.FileType.NotFound)

    def remove(self) -> None:
        """Deletes the folder with all of its content; does nothing if there is none."""
        if self.exists():
            with self._fs() as (system, base):
                system.delete_dir(base)


class StoredInput(io.RawIOBase):
    """A file in an object store, opened for reading. If a busy store refuses a read, the read is tried again
    (`read_again`).
    """

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file, self._at = file, 0

    def size(self) -> int:
        """Size of the file in bytes."""
        return int(self._file.size())

    def readable(self) -> bool:
        """Always True."""
        return True

    def seekable(self) -> bool:
        """Always True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves the position, as a file of the `io` module does, and returns the new one."""
        self._at = offset + (0, self._at, self.size())[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Returns up to `size` bytes from the position on, as `io.RawIOBase.read` does. A negative `size` reads to the
        end.
        """
        most = self.size() - self._at
        data = bytes(read_again(lambda: self._file.read_at(most if size < 0 else min(size, most), self._at)))
        self._at += len(data)
        return data


def read_again(read: Callable[[], T]) -> T:
    """Calls `read`, up to five times (with pauses of 0.1 to 0.8 s) if the store is busy, and returns its result. Other
    errors are raised at once. Arrow itself repeats a read after a 503, except when the store's error text is longer
    than the few requested bytes: Amazon's library then reports that the caller could not take the answer.
    """
    for number in range(_TRIES - 1):
        try:
            return read()
        except OSError as problem:
            if _CUT not in str(problem):
                raise
        time.sleep(_PAUSE * 2**number)
    return read()


def way_in(uri: str) -> str:
    """Hint for errors: text, beginning with a line break, about the environment variables with the keys of an S3 store;
    "" for any other address.
    """
    return _S3 if uri.startswith(("s3://", "s3a://", "s3n://")) else ""


def _create_file(system: Any, path: str, *, in_folder: bool) -> Any:
    """Opens a new file for writing. In a folder it tries again, because another process may remove the empty folder
    before the file is there.
    """
    for _ in range(_TRIES if in_folder else 0):  # stores have no folders
        system.create_dir(path.rpartition("/")[0])
        with suppress(FileNotFoundError):
            return system.open_output_stream(path)
    return system.open_output_stream(path)


def _remove_empty(folder: Path, before: float) -> None:
    """Removes empty folders by `rmdir`, which leaves folders that are not empty. Spark's own folders, whose names begin
    with `_`, stay if they changed after `before`: a task may be about to write there.
    """
    with suppress(OSError):
        for one in folder.iterdir():
            if one.is_dir() and (not one.name.startswith("_") or one.stat().st_mtime < before):
                _remove_empty(one, before)
        folder.rmdir()


def _list_files(system: Any, base: str) -> Any:
    from pyarrow import fs

    return system.get_file_info(fs.FileSelector(base, allow_not_found=True))


def _document(system: Any, base: str, name: str) -> Any:
    try:
        return json.loads(read_again(lambda: _read_file(system, f"{base}/{name}")))
    except ValueError as problem:
        raise ValueError(f"{name} is no JSON document: {problem}") from None


def _read_file(system: Any, path: str) -> bytes:
    with system.open_input_stream(path) as file:
        return bytes(file.read())
