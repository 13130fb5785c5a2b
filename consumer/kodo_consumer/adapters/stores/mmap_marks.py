"""Crash marks without a database: one memory-mapped file for each worker, in a folder. The files survive the process,
but not a crash of the machine.

A mark costs a copy into memory, and the system keeps the pages after the process ends. A worker locks its file while it
lives. A worker that starts adopts the unlocked files: so marks work for restarts on the same machine, not for a message
that goes to another one. Done messages are not remembered.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import struct
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Final

from kodo_consumer.core.values.poison import CrashMark
from kodo_consumer.core.values.store import Exchange, StoreAnswer, StoreDownError
from kodoctl.errors import KodoctlError, error

_RECORDS: Final = 8_192
_SIZE: Final = 256  # bytes of a record: state, alone, crashes, length of the name, name
_HEAD: Final = struct.Struct("<BBHH")
_LONGEST: Final = _SIZE - _HEAD.size
_MOST_ADOPTED: Final = 1_024
_SUFFIX: Final = ".marks"
_DEAD: Final = ""  # the run of adopted marks: nobody lives by that name


def open_file_store(folder: Path, subscription: str) -> FileStore:
    """Opens a new file store (crash marks in a mapped file) in `folder`, which it creates if missing, for a new worker
    run. Raises KodoctlError (K740) if the folder, or the file of a dead worker in it, cannot be read and written, or if
    the disk has no room for the file (2 MiB).
    """
    from kodo_consumer.adapters.stores.factory import new_run

    try:
        folder.mkdir(parents=True, exist_ok=True)
        return FileStore(folder, subscription, new_run())
    except OSError as problem:
        raise KodoctlError(error("K740", "store cannot be opened", f"crash_marks: {problem}")) from None


def _create_locked(path: Path) -> BinaryIO:
    """Creates a file and locks it. A worker that starts at the same time may lock the empty file first, and delete it as
    one of a dead worker: then it is created again. Raises OSError.
    """
    while True:
        file = path.open("x+b")
        fcntl.flock(file, fcntl.LOCK_EX)
        if path.exists():
            return file
        file.close()


class FileStore:
    """Implementation of kodo_consumer.core.values.store.Store by one mapped file of this worker, which has its crash
    marks and those that it adopted. It remembers no done messages. Identities are names as `name_of` makes them. The
    constructor adopts at most 1,024 marks of dead workers of the subscription; it deletes a dead worker's file once it
    has all marks of it. It raises OSError if the folder is missing or has no room for the file, or if the folder or
    the file of a dead worker cannot be read and written. Not thread-safe, except `beat`.
    """

    def __init__(self, folder: Path, subscription: str, run: str) -> None:
        self.run = run
        group = hashlib.sha256(subscription.encode()).hexdigest()[:12]
        self._path = folder / f"{group}.{run.replace(':', '-').replace('/', '-')}{_SUFFIX}"
        self._file = _create_locked(self._path)
        self._take_room()
        self._map = mmap.mmap(self._file.fileno(), _RECORDS * _SIZE)
        self._free = deque(range(_RECORDS))
        self._places: dict[str, int] = {}
        self._adopted: dict[str, CrashMark] = {}
        self._beats = 0
        for path in sorted(folder.glob(f"{group}.*{_SUFFIX}")):
            if path != self._path:
                self._adopt(path)

    def create(self) -> None:
        """Does nothing: the constructor made the file."""

    def exchange(self, request: Exchange) -> StoreAnswer:
        """Clears the marks of done and of ended messages, also adopted ones, and writes the marks of messages that
        start. No message counts as done. A starting message keeps a mark that was adopted from a dead worker, or that
        `take_over` wrote with crashes, and the answer has it. The answer lacks this run's other marks, which are
        written anew, and marks of live workers, which are unknown here. Raises StoreDownError if the file would need
        more than 8,192 marks; the changes before the first mark without room stay.
        """
        for name in (*request.done, *request.ended):
            self._clear(name)
        marks: dict[str, CrashMark] = {}
        for name in request.starting:
            if (mark := self._adopted.get(name)) is not None:
                marks[name] = mark
            else:
                self._write(name, CrashMark(self.run))
        return StoreAnswer(marks=marks)

    def take_over(self, identity: str, found: CrashMark, mark: CrashMark) -> bool:
        """Replaces the mark `found` of a message by `mark` and returns True. Returns False, and changes nothing, only
        if the message has another mark that the answer of `exchange` would have (an adopted one, or one with crashes);
        else it gets `mark` even if it has no mark, because no other worker writes this file. Raises StoreDownError if
        the file has no room.
        """
        if self._adopted.get(identity, found) != found:
            return False
        self._adopted.pop(identity, None)
        self._write(identity, mark)
        if mark.crashes:  # a dead message that cannot leave asks again
            self._adopted[identity] = mark
        return True

    def beat(self) -> Mapping[str, int]:
        """Adds one beat. Returns the number of beats of this run alone, by its name: the locks on the files show which
        other workers live.
        """
        self._beats += 1
        return {self.run: self._beats}

    def prune(self, keep: int, seconds: float) -> int:  # noqa: ARG002  # nothing is kept
        """Returns 0: there are no records of done messages."""
        return 0

    def leave(self) -> None:
        """Clears the marks of this run; marks that it adopted from dead workers, and those that `take_over` wrote with
        crashes, stay in the file for the next worker. If no mark is left, deletes the file.
        """
        for name in [name for name in self._places if name not in self._adopted]:
            self._clear(name)
        if not self._places:
            self._path.unlink(missing_ok=True)

    def interrupt(self) -> None:
        """Does nothing: a mapped file does not hang."""

    def close(self) -> None:
        """Unmaps and closes the file, which frees its lock: the next worker of the subscription that starts adopts the
        marks that are left in it. Only `close` may be called afterwards.
        """
        self._map.close()
        self._file.close()

    def _take_room(self) -> None:
        """Writes the whole file, as zeros, so that the disk has room for each mark: a full disk raises OSError here, and
        the file is deleted. A mark in a sparse file would end the process by SIGBUS.
        """
        try:
            self._file.write(bytes(_RECORDS * _SIZE))
            self._file.flush()
        except OSError:
            self._path.unlink(missing_ok=True)
            self._file.close()  # may raise the same again, of bytes that it still holds
            raise

    def _adopt(self, path: Path) -> None:
        """Adopts the marks of a dead worker and deletes its file. Marks beyond `_MOST_ADOPTED` stay in the file for the
        next worker that starts. The file of a live worker is locked and stays unchanged.
        """
        try:
            with path.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                records = file.read(_RECORDS * _SIZE)
                places = range(0, len(records) - _SIZE + 1, _SIZE)
                adopted = [at for at in places if self._adopt_record(records[at : at + _SIZE])]
                if len(adopted) == len(places):
                    path.unlink(missing_ok=True)
                    return
                for at in adopted:
                    file.seek(at)
                    file.write(bytes(1))
        except (BlockingIOError, FileNotFoundError):
            return  # it lives, or another worker was first

    def _adopt_record(self, record: bytes) -> bool:
        """Returns False if the record has a mark that this worker cannot take any more."""
        state, alone, crashes, length = _HEAD.unpack_from(record)
        if state != 1 or length > _LONGEST:
            return True
        if len(self._adopted) >= _MOST_ADOPTED:
            return False
        name = record[_HEAD.size : _HEAD.size + length].decode("utf-8", "replace")
        mark = CrashMark(_DEAD, bool(alone), crashes)
        self._adopted[name] = mark
        self._write(name, mark)
        return True

    def _write(self, name: str, mark: CrashMark) -> None:
        place = self._places.get(name)
        if place is None:
            if not self._free:
                raise StoreDownError(f"more than {_RECORDS} marks")
            place = self._places[name] = self._free.popleft()
        data = name.encode()  # at most 200 bytes: see name_of
        at = place * _SIZE
        self._map[at + _HEAD.size : at + _HEAD.size + len(data)] = data
        self._map[at : at + _HEAD.size] = _HEAD.pack(1, mark.alone, min(mark.crashes, 65_535), len(data))

    def _clear(self, name: str) -> None:
        self._adopted.pop(name, None)
        place = self._places.pop(name, None)
        if place is not None:
            self._map[place * _SIZE] = 0
            self._free.append(place)
