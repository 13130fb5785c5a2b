"""Log output of a program that sets up none: lines for people, or a JSON object a line for collectors."""

from __future__ import annotations

import json
import logging
from datetime import date
from enum import StrEnum
from traceback import TracebackException
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO

if TYPE_CHECKING:
    from types import TracebackType

_OURS: Final = ("kodo", "kodoctl")
_TIME: Final = "\x00time"  # of the library, until it has its own name
_OWN: Final = frozenset({"time", "level", "logger", "message", "worker", "traceback"})
_IN_LINE: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) != "\t"}
_CONTROLS: Final = {code: text for code, text in _IN_LINE.items() if chr(code) != "\n"}


class LogLevel(StrEnum):
    """Lowest level of the log's entries."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """Format of the log's entries."""

    TEXT = "text"
    JSON = "json"


class LogSetup(NamedTuple):
    """Arguments of a call of `set_up_logging`. A worker passes them to its handler processes, which set up their log in
    the same way.
    """

    level: LogLevel
    form: LogFormat
    worker: int | None
    replace: bool

    def apply(self) -> None:
        """Calls `set_up_logging` in this process with these arguments."""
        set_up_logging(self.level, self.form, worker=self.worker, replace=self.replace)


class _Handler(logging.StreamHandler[TextIO]):
    """Handler that `set_up_logging` made for `setup`."""

    def __init__(self, setup: LogSetup) -> None:
        super().__init__()
        self.setup = setup


def present_setup() -> LogSetup | None:
    """Arguments of the `set_up_logging` that is in effect in this process; None if the program has set up its own log
    output, or nobody has.
    """
    return next((one.setup for one in logging.getLogger().handlers if isinstance(one, _Handler)), None)


def set_up_logging(level: LogLevel, form: LogFormat, *, worker: int | None = None, replace: bool = False) -> None:
    """Writes the log of this process to standard error, from `level` on and in the format `form`. Does nothing if the
    root logger has handlers, because the program has set up its own log output, unless `replace`.

    Other libraries log nothing below "info", even if `level` is "debug". A level that the program gave the loggers
    `kodo` and `kodoctl` before stays, unless `replace`.

    Args:
        level: lowest level of entries.
        form: text lines or JSON.
        worker: number of the worker process in its group, from 1, which each entry has; None: there is only one.
        replace: replaces the handlers of the root logger, and the levels of the loggers `kodo` and `kodoctl`.
    """
    root = logging.getLogger()
    if root.handlers and not replace:
        return
    handler = _Handler(LogSetup(level, form, worker, replace))
    handler.setFormatter(_json_formatter(worker) if form is LogFormat.JSON else _text_formatter(worker))
    root.handlers = [handler]
    lowest = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(max(lowest, logging.INFO))
    for logger in map(logging.getLogger, _OURS):
        if replace or not logger.level:  # a level that the program gave it stays
            logger.setLevel(lowest)


def _text_formatter(worker: int | None) -> logging.Formatter:
    prefix = "" if worker is None else f"worker {worker} "
    return _TextFormatter(f"%(asctime)s {prefix}%(levelname)s %(name)s %(message)s")


def _json_formatter(worker: int | None) -> logging.Formatter:
    """Formatter of objects with `time` (UTC), `level`, `logger`, `message`, `worker`, the fields of the entry, and
    `traceback`. Fields of a program that have one of these names have an underscore behind it.
    """
    from pythonjsonlogger.json import JsonFormatter

    class EntryFormatter(JsonFormatter):
        def add_fields(self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]) -> None:
            super().add_fields(log_data, record, message_dict)
            own = {"time": log_data.pop(_TIME), "level": record.levelname, "logger": record.name}
            own |= {"message": record.getMessage()} | ({} if worker is None else {"worker": worker})
            traceback = log_data.pop("exc_info", None)
            del log_data["message"]
            others = {f"{name}_" if name in _OWN else name: value for name, value in log_data.items()}
            log_data.clear()
            log_data |= own | others | ({"traceback": traceback} if traceback else {})

        def jsonify_log_record(self, log_data: dict[str, Any]) -> str:
            try:
                return json.dumps(log_data, default=_as_text, ensure_ascii=False, allow_nan=False)
            except (TypeError, ValueError):  # NaN, keys that are no texts, an object within itself
                plain = {str(name): value if _is_plain(value) else repr(value) for name, value in log_data.items()}
                return json.dumps(plain, ensure_ascii=False)

    return EntryFormatter("{message}", style="{", timestamp=_TIME)


def _as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int)


def traceback_text(problem: BaseException, trace: TracebackType | None) -> str:
    """Traceback of an exception as text. Line ends and other control characters in texts and notes of exceptions are
    escaped, so that none of these begins a line of its own. `trace`: frames of the exception (None: it has none); its
    causes and contexts keep their own.
    """
    found = TracebackException(type(problem), problem, trace, compact=True)
    rest: list[TracebackException | None] = [found]
    while rest:
        if (one := rest.pop()) is None:
            continue
        text: Any = one  # its text has no public name
        text._str = str(text._str).translate(_IN_LINE)  # noqa: SLF001
        if isinstance(notes := getattr(one, "__notes__", None), list):
            text.__notes__ = [str(note).translate(_IN_LINE) for note in notes]
        rest += [one.__cause__, one.__context__, *(one.exceptions or ())]
    return "".join(found.format()).rstrip("\n")


class _TextFormatter(logging.Formatter):
    """Formatter of lines, in which no text of a message or an exception moves the cursor of a terminal, or looks like
    another entry.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The entry with its traceback, without control characters but tabs, and line ends of the traceback."""
        if record.exc_info:
            record.exc_text = None  # it may be another formatter's
        return super().format(record).translate(_CONTROLS)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # of logging
        """The entry's first line."""
        return super().formatMessage(record).translate(_IN_LINE)

    def formatException(self, ei: Any) -> str:  # noqa: N802  # of logging
        """The traceback; `ei`: as sys.exc_info returns it."""
        return super().formatException(ei) if ei[1] is None else traceback_text(ei[1], ei[2])
