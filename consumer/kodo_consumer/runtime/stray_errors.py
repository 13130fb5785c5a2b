"""Stray errors: exceptions outside of handler runs, in threads that a handler started, in finalizers and in callbacks.

Python prints them with their whole text. If a consumer of the process redacts error texts, they go to the log by the
same function as errors of handlers. A hook that the program itself has set for stray errors stays in use.
"""

from __future__ import annotations

import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from kodo_consumer.runtime.handler_errors import log, report_error

if TYPE_CHECKING:
    import logging
    from collections.abc import Mapping, Sequence

    from kodo_consumer.core.values.error_text import ErrorTextReader

_readers: Final[WeakKeyDictionary[object, ErrorTextReader]] = WeakKeyDictionary()
_changes: Final = threading.Lock()


def redact_stray_errors(texts: ErrorTextReader | None, owner: object) -> None:
    """Lets the process log stray errors, redacted by `texts` as long as `owner` exists, because threads of its handlers
    may outlive its worker. Sets the process's hooks `threading.excepthook` and `sys.unraisablehook` for that, and
    leaves one that the application has set. Does nothing if `texts` is None or redacts nothing.
    """
    if texts is None or not texts.redacts:
        return
    with _changes:
        _readers[owner] = texts
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _of_thread
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _of_finalizer


def report_stray_error(text: str, problem: BaseException, to: logging.Logger = log) -> None:
    """Logs a stray error to `to`, at the level error. If consumers of the process redact, all of them redact it, and it
    has no traceback; else it has its traceback. `text`: words before it, which may stay as they are: no secrets.
    """
    first, *others = _all_readers() or [None]
    report_error(first, text, problem, say=partial(_log, to, others))


def _all_readers() -> list[ErrorTextReader | None]:
    with _changes:
        return list(_readers.values())


def _log(
    to: logging.Logger,
    others: Sequence[ErrorTextReader | None],
    text: str,
    problem: BaseException | None,
    _fields: Mapping[str, object],
) -> None:
    for texts in others:
        text = text if texts is None else texts.redact(text)
    to.error("%s", text, exc_info=problem)


def _of_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is SystemExit or args.exc_value is None or not _all_readers():
        threading.__excepthook__(args)
    else:
        report_stray_error(f"a thread failed with {args.exc_type.__name__}", args.exc_value)


def _of_finalizer(args: sys.UnraisableHookArgs) -> None:
    if args.exc_value is None or not _all_readers():
        sys.__unraisablehook__(args)
    else:  # the object's own text may be a secret as well
        report_stray_error(f"a finalizer failed with {args.exc_type.__name__}", args.exc_value)
