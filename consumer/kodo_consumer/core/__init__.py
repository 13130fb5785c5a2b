# pure: every branch is tested
"""Core of a worker: state, rules and the engine that decides about each message. It starts no thread and connects to no
broker itself.

Its hot modules are imported compiled where kodo-fast is installed and has a build of exactly these sources, else
interpreted. `COMPILED` says which.
"""

from pathlib import Path
from typing import NamedTuple


class CoreStatus(NamedTuple):
    """State of the compiled core. `compiled`: True if the hot modules are imported compiled. `detail`, for people:
    number of modules and digest of their sources, or the reason why they are interpreted.
    """

    compiled: bool
    detail: str

    def __str__(self) -> str:
        """One line for logs and commands, such as `compiled core: off (kodo-fast is not installed)`."""
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
