"""Reader of a broker's log: its last lines, its new lines, and the few lines that explain a failure."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Final, TextIO

from kodoctl.dev.typed_command import dev_command
from kodoctl.text.escaping import one_line

LIMIT: Final = 15
_WIDTH: Final = 300
_LONGEST: Final = 10_000
_LAST: Final = 3
_MATTERS: Final = re.compile(r" (ERROR|FATAL) |^Caused by:|^Error|^Exception in|^\S*(Exception|Error)\b|^#  ")
_HARMLESS: Final = re.compile(r"this is okay if|root path: \S+ already exists")
_GAVE_UP: Final = "Failed to start pulsar service."
_FRAME: Final = re.compile(r"^\s+(at |\.\.\. \d+ )")
_BLOCK: Final = 65_536
_LOOK_EVERY: Final = 0.2
_PORT_TAKEN: Final = "address already in use"
_HINTS: Final = (
    (r"no space left on device|disk quota exceeded", "the disk is full: make room there, then run the command again"),
    (_PORT_TAKEN, "another program was quicker to take one of its ports: run the command again"),
    (
        r"while lock file|resource temporarily unavailable|unable to lock|lock held by current process|/LOCK:",
        "another process has its data open: a broker that kodoctl did not start; end that one first",
    ),
    (
        r"invalidcookieexception",
        "the cluster knows it by data that it no longer has: put the data back, or give everything up with {reset}",
    ),
    (
        r"rocksdbexception|corrupt|checksum mismatch",
        "its data is damaged or not its own: give it up with {reset}",
    ),
    (r"outofmemoryerror|insufficient memory", "there is not enough memory for it: about 700 MB are needed"),
    (r"unsupportedclassversionerror", "this Java is too old for it"),
)


def printable(line: str) -> str:
    """The line with characters that could move a terminal's cursor as escapes, a tab as four spaces, and cut to 10,000
    characters: a log may contain text from outside.
    """
    return one_line(line.rstrip("\r\n").replace("\t", "    "), _LONGEST)


def tail(file: Path, count: int) -> list[str]:
    """The last `count` lines of a file, printable; [] if there is no file. Reads from the end, no more than it needs."""
    if count <= 0:
        return []
    try:
        with file.open("rb") as source:
            position, data = source.seek(0, 2), b""
            while position > 0 and data.count(b"\n") <= count:
                step = min(_BLOCK, position)
                position -= step
                source.seek(position)
                data = source.read(step) + data
    except FileNotFoundError:
        return []
    *lines, unfinished = data.decode("utf-8", "replace").split("\n")
    return [printable(line) for line in ([*lines, unfinished] if unfinished else lines)[-count:]]


def follow(file: Path, *, ended: Callable[[], bool] = lambda: False) -> Iterator[str]:
    """Yields lines that are written from now on, also if another file replaces the file or the file is emptied, until
    `ended` returns True. Looks 5 times a second, and blocks meanwhile.
    """
    source, rest = _open_log(file), ""
    source.seek(0, os.SEEK_END)
    try:
        while not ended():
            text = source.read()
            *lines, rest = (rest + text).split("\n")
            yield from map(printable, lines)
            if text:
                continue
            if _is_replaced(file, source):
                yield from [printable(rest)] if rest else []
                source.close()
                source, rest = _open_log(file), ""
            time.sleep(_LOOK_EVERY)
    finally:
        source.close()


def _open_log(file: Path) -> TextIO:
    return file.open(encoding="utf-8", errors="replace") if file.exists() else StringIO()


def _is_replaced(file: Path, source: TextIO) -> bool:
    try:
        now = file.stat()
    except FileNotFoundError:
        return False  # its successor is not there yet
    if isinstance(source, StringIO):
        return True
    then, position = os.fstat(source.fileno()), os.lseek(source.fileno(), 0, os.SEEK_CUR)
    return (now.st_ino, now.st_dev) != (then.st_ino, then.st_dev) or now.st_size < position


def reasons(lines: Sequence[str], limit: int = LIMIT) -> list[str]:
    """Lines that explain a failure, `limit` at most: errors and causes, each once (of too many, the first and the
    last), then up to three last lines of the log, or up to `limit` if there are no errors. Stack frames are left out. A
    line is cut to 300 characters.
    """
    readable = [line for line in lines if line.strip() and not _FRAME.match(line) and not _HARMLESS.search(line)]
    errors = _once(line for line in readable if _MATTERS.search(line))
    if len(errors) >= limit:
        return [*errors[: limit // 2], *errors[-(limit - limit // 2) :]]
    room = min(_LAST, limit - len(errors)) if errors else limit
    return _once([*errors, *readable[-room:]])


def _once(lines: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(one_line(line, _WIDTH) for line in lines))


def gave_up(lines: Sequence[str]) -> bool:
    """True if the broker logged that it failed to start. Its process may still run."""
    return any(_GAVE_UP in line for line in lines)


def port_taken(lines: Sequence[str]) -> bool:
    """True if the broker logged that a port is in use by another program."""
    return any(re.search(_PORT_TAKEN, line.lower()) for line in lines)


def hint(lines: Sequence[str], name: str) -> str | None:
    """Advice on the cause of a failure that these lines of the log show, for the instance `name`; None if the cause is
    unknown.
    """
    text = "\n".join(line for line in lines if _MATTERS.search(line)).lower() or "\n".join(lines).lower()
    found = next((advice for pattern, advice in _HINTS if re.search(pattern.lower(), text)), None)
    return found.format(reset=dev_command("reset", name)) if found else None
