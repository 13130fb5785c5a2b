"""Log output of a program that sets up none: lines for people, or a JSON object a line for collectors."""

from __future__ import annotations

import json
import logging
from datetime import date
from enum import StrEnum
from typing import Any, Final

_OURS: Final = ("kodo", "kodoctl")
_TIME: Final = "\x00time"  # of the library, until it has its own name
_OWN: Final = frozenset({"time", "level", "logger", "message", "worker", "traceback"})
_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


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


def set_up_logging(level: LogLevel, form: LogFormat, *, worker: int | None = None, replace: bool = False) -> None:
    """Writes the log of this process to standard error, from `level` on and in the format `form`. Does nothing where
    the program has set up its own, unless `replace`.

    `worker`: number of the worker process in its group, from 1; None: there is one only. Other libraries log from
    "info" on at the most.
    """
    root = logging.getLogger()
    if root.handlers and not replace:
        return
    handler = logging.StreamHandler()
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
                plain = {name: value if _is_plain(value) else repr(value) for name, value in log_data.items()}
                return json.dumps(plain, ensure_ascii=False)

    return EntryFormatter("{message}", style="{", timestamp=_TIME)


def _as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int)


class _TextFormatter(logging.Formatter):
    """Formatter of lines, in which no text of a message or an exception moves the cursor of a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """The entry with its traceback, without control characters but line ends and tabs."""
        return super().format(record).translate(_CONTROLS)
