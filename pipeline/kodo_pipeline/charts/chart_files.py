# adapter: a command line
"""--png: where commands write their charts, and that it can be done before Spark takes its time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kodoctl.cli.common.console import replace_file, say
from kodoctl.errors import UsageError, error


def check_drawable() -> None:
    """Raises UsageError where the library that draws is missing."""
    try:
        import matplotlib as mpl  # noqa: F401
    except ImportError:
        detail = "matplotlib draws its charts: pip install '.[spark]' in a clone of kodoctl"
        raise UsageError(error("K811", "charts cannot be drawn", detail)) from None


def make_folder(folder: Path) -> None:
    """Creates a folder and its parent folders. Raises UsageError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UsageError(error("K020", "cannot write file", f"{folder}: {problem.strerror}")) from None


def write_pictures(folder: str, pictures: Sequence[tuple[str, bytes]]) -> None:
    """Replaces each picture (name of the file, PNG) in the folder, which may be a clone with links of any name."""
    for name, data in pictures:
        replace_file(Path(folder) / name, data)


def say_pictures(folder: str, pictures: Sequence[tuple[str, bytes]]) -> None:
    """Prints the folder of the pictures, and their names, on standard output."""
    say(f"pictures: {Path(folder).absolute()} ({', '.join(name for name, _ in pictures)})")
