"""One worker: what it holds, what becomes of each message, and the threads around that.

Its hot modules are compiled where kodo-fast is installed and has a build of exactly these sources, else interpreted.
"""

from pathlib import Path
from typing import NamedTuple


class CoreStatus(NamedTuple):
    """Whether hot modules of the core are compiled. `detail`: what they are, or why they are interpreted."""

    compiled: bool
    detail: str

    def __str__(self) -> str:
        """One line for logs and commands."""
        return f"compiled core: {'on' if self.compiled else 'off'} ({self.detail})"


try:
    from kodo_fast.compiled_core import use_compiled_core
except ImportError:
    COMPILED = CoreStatus(compiled=False, detail="kodo-fast is not installed")
else:
    COMPILED = CoreStatus(*use_compiled_core(Path(__file__).parents[1]))
