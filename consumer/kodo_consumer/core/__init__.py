# pure: every branch is tested
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
    import kodo_fast  # noqa: F401  # first, so that it can be told from one without the module
    from kodo_fast.compiled_core import use_compiled_core
except ImportError as problem:
    COMPILED = CoreStatus(
        compiled=False,
        detail={
            "kodo_fast": "kodo-fast is not installed",
            "kodo_fast.compiled_core": "the installed kodo-fast is of an earlier release, which has none",
        }.get(problem.name or "", f"kodo-fast cannot be imported: {problem}"),
    )
else:
    COMPILED = CoreStatus(*use_compiled_core(Path(__file__).parents[1]))
