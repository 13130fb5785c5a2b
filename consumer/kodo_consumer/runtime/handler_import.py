"""Import of the user's handler or consumer. Errors name the user's files and lines, never ours."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar

import kodoctl
from kodo_consumer.core.values.object_use import misuse_error
from kodoctl.errors import Diagnostic, KodoctlError, UsageError, error
from kodoctl.host.host_facts import working_folder

T = TypeVar("T")
_OURS: Final = (f"{Path(__file__).parents[1]}/", f"{Path(str(kodoctl.__file__)).parent}/")
_LISTED: Final = 8  # names that are shown where none is near
_MISSING: Final = object()


def load_handler(text: str) -> Callable[..., Any]:
    """Imports the handler that `text` names as `module:function`; puts the working folder first in `sys.path`, if it is
    not there. Raises UsageError, or the KodoctlError that the module raises.
    """
    module, name = _import_module(text, "write MODULE:FUNCTION, for example app:bill")
    found = _value(text, module, name, _MISSING)
    if found is _MISSING:
        raise _no_handler(f"{text}: {_no_name(module, name)}")
    if not callable(found):
        file, kind = _file_of(module), type(found).__name__
        advice = "name a function that takes a message"
        if kind == "Consumer":
            advice = f"name it alone: `kodo-consumer run {text}`"
        raise _no_handler(f"{text}: {name} in {file} is of the type {kind}; {advice}")
    handler: Callable[..., Any] = found
    return handler


def load_object(text: str, kind: type[T], example: str) -> T:
    """Imports the object of the type `kind` that `text` names as `module:name`, as `load_handler` does. `example`: such
    a name, for the error. Raises UsageError, or the KodoctlError that the module raises.
    """
    what = kind.__name__.lower()
    module, name = _import_module(text, f"write MODULE:NAME of a {what}, for example {example}")
    found = _value(text, module, name, None)
    if isinstance(found, kind):
        return found
    names = [key for key, value in vars(module).items() if isinstance(value, kind)]
    listed = f"; its {what}s: {', '.join(names)}" if names else f"; it has no {what}"
    why = f"{name} is of the type {type(found).__name__}" if found is not None else f"there is no {name}"
    raise _no_handler(f"{text}: {why} in {_file_of(module)}{listed}")


def _value(text: str, module: ModuleType, name: str, missing: object) -> Any:
    """Value of a name in a module; `missing` if there is no such name. Raises UsageError."""
    try:
        return getattr(module, name, missing)
    except Exception as problem:  # noqa: BLE001  # of a `__getattr__` of the module's own
        raise UsageError(error("K718", "handler cannot be imported", f"{text}: {import_failure(problem)}")) from None


def _import_module(text: str, form: str) -> tuple[ModuleType, str]:
    """Module and name that `text` names as `module:name`; the module is imported. `form`: how the text is written, for
    the error. Raises UsageError.
    """
    module_name, _, name = text.partition(":")
    if not module_name or not name:
        raise _no_handler(f"{text}: {form}")
    if (folder := str(working_folder())) not in sys.path:
        sys.path.insert(0, folder)
    try:
        with importing():
            module = import_module(module_name)
    except KodoctlError:
        raise
    except (Exception, SystemExit) as problem:  # noqa: BLE001  # whatever a module does when it is imported
        if isinstance(problem, ModuleNotFoundError | TypeError) and not _users_frames(problem):
            raise _no_handler(f"{text}: {_no_module(module_name)}") from None
        raise UsageError(error("K718", "handler cannot be imported", f"{text}: {import_failure(problem)}")) from None
    return module, name


def import_failure(problem: BaseException) -> str:
    """Text for an exception of a module that was imported: `ValueError in helper.py:2: why; reached from app.py:1`."""
    frames = [f"{_short_path(frame.filename)}:{frame.lineno}" for frame in _users_frames(problem)]
    why = str(problem)
    if isinstance(problem, SyntaxError) and problem.filename:
        place = _short_path(problem.filename)
        frames.append(f"{place}:{problem.lineno}" if problem.lineno else place)
        why = f"{problem.msg}: {problem.text.strip()}" if problem.text else problem.msg
    if not frames:
        return f"{type(problem).__name__}: {why}"
    *callers, place = dict.fromkeys(frames)
    way = f"; reached from {', '.join(reversed(callers))}" if callers else ""
    return f"{type(problem).__name__} in {place}: {why}{way}"


_importing = threading.Event()


@contextmanager
def importing() -> Iterator[None]:
    """Context in which a command imports a program, on the main thread: meanwhile `refuse_to_run_in_an_import` raises."""
    _importing.set()
    try:
        yield
    finally:
        _importing.clear()


def refuse_to_run_in_an_import() -> None:
    """Raises UsageError if a command is importing the program that makes this call: it would run inside the import, and
    then once more.
    """
    if _importing.is_set():
        raise misuse_error('run: the program is being imported; put it under `if __name__ == "__main__":`')


def _no_handler(detail: str) -> UsageError:
    finding: Diagnostic = error("K718", "handler not found", detail)
    return UsageError(finding)


def _users_frames(problem: BaseException) -> list[traceback.FrameSummary]:
    """Frames of the exception's traceback, outermost first, without our code and the import system, and without
    libraries if there are others.
    """
    frames = [
        frame
        for frame in traceback.extract_tb(problem.__traceback__)
        if not frame.filename.startswith(_OURS) and not frame.filename.startswith("<frozen ")
    ]
    libraries = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "purelib", "platlib")})
    own = [frame for frame in frames if not frame.filename.startswith(libraries)]
    return own or [frame for frame in frames if "/importlib/" not in frame.filename]


def _no_module(name: str) -> str:
    folder = working_folder()
    if name.endswith(".py") or "/" in name or name.startswith("."):
        proper = name.removesuffix(".py").strip("./").replace("/", ".")
        return f"a module is named without folders and .py, such as {proper}:FUNCTION"
    near = get_close_matches(name, sorted(_modules(folder)), 1, 0.6)
    return f"there is no module {name}, looked for in {folder} first{_suggestion(near)}"


def _modules(folder: Path) -> Iterator[str]:
    with suppress(OSError):  # the folder cannot be read
        for path in folder.iterdir():
            if path.suffix == ".py":
                yield path.stem
            elif os.path.exists(path / "__init__.py"):  # noqa: PTH110  # raises nothing for folders of other users
                yield path.name


def _no_name(module: ModuleType, name: str) -> str:
    functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
    near = get_close_matches(name, functions, 1, 0.6)
    own = [key for key in functions if getattr(vars(module)[key], "__module__", None) == module.__name__]
    listed = f"; it has {', '.join(own[:_LISTED])}" if own and not near else ""
    return f"{_file_of(module)} has no {name}{_suggestion(near) or listed}"


def _suggestion(near: list[str]) -> str:
    return f"; did you mean {near[0]}?" if near else ""


def _file_of(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)  # built-in modules have none
    return _short_path(file) if file else module.__name__


def _short_path(file: str) -> str:
    """Path of a file for people: relative to the working folder if the file is within it."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):  # it is elsewhere, or the folder was deleted while the worker ran
        return file
