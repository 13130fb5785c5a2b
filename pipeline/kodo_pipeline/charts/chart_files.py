# adapter: a command line
"""Files of the option `--png`: written after the work, with checks before Spark starts that charts can be drawn and
written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kodoctl.cli.common.console import replace_file, say
from kodoctl.errors import UsageError, error
from kodoctl.host.extras import install_command


def check_drawable() -> None:
    """Raises UsageError if matplotlib cannot be imported, as when it is not installed."""
    try:
        import matplotlib as mpl  # noqa: F401
    except ImportError:
        detail = f"matplotlib draws its charts: {install_command('spark')}"
        raise UsageError(error("K811", "charts cannot be drawn", detail)) from None


def make_folder(folder: Path) -> None:
    """Creates a folder and its parent folders, as far as they do not exist. Raises UsageError if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UsageError(error("K020", "cannot write file", f"{folder}: {problem.strerror}")) from None


def write_pictures(folder: str, pictures: Sequence[tuple[str, bytes]]) -> None:
    """Writes each picture, (file name, PNG), into the folder, which must exist. An existing file or symbolic link of
    that name is replaced, because the folder may be a clone with links of any name. Raises UsageError at the first file
    that cannot be written; those before it stay.
    """
    for name, data in pictures:
        replace_file(Path(folder) / name, data)


def say_pictures(folder: str, pictures: Sequence[tuple[str, bytes]]) -> None:
    """Prints the absolute path of the folder of the pictures, and their names, on standard output."""
    say(f"pictures: {Path(folder).absolute()} ({', '.join(name for name, _ in pictures)})")
