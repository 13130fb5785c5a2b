"""Log output of a program that sets up none: lines for people, or a JSON object a line for collectors."""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import Final

_OURS: Final = ("kodo", "kodoctl")


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
    for name in _OURS:
        logging.getLogger(name).setLevel(lowest)


def _text_formatter(worker: int | None) -> logging.Formatter:
    prefix = "" if worker is None else f"worker {worker} "
    return logging.Formatter(f"%(asctime)s {prefix}%(levelname)s %(name)s %(message)s")


def _json_formatter(worker: int | None) -> logging.Formatter:
    """Formatter of objects with `time` (UTC), `level`, `logger`, `message`, the fields of the entry, and `traceback`."""
    from pythonjsonlogger.json import JsonFormatter

    return JsonFormatter(
        "{levelname}{name}{message}",
        style="{",
        timestamp="time",
        rename_fields={"levelname": "level", "name": "logger", "exc_info": "traceback"},
        static_fields={} if worker is None else {"worker": worker},
    )
