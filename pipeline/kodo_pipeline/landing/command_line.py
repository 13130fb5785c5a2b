# pure: every branch is tested
"""Text of command-line arguments that name a topology and its landing, for hints, and the parser of durations in
options. Pure.
"""

from __future__ import annotations

from kodoctl.errors import UsageError, error
from kodoctl.host.private_files import LANDING
from kodoctl.text.escaping import shell_line
from kodoctl.topology.units import Duration, UnitError


def command_line(topology: str, environment: str | None, landing: str) -> str:
    """Argument and options, quoted for a shell, that name the topology file, its environment and the landing. An option
    with its default value is left out.
    """
    options = [
        *(("--env", environment) if environment else ()),
        *(("--landing", landing) if landing != LANDING else ()),
    ]
    return shell_line([topology, *options])


def duration(option: str, text: str) -> int:
    """Parses a duration such as `10s` to ms. `option`: name of the option, for the error. Raises UsageError (K804) if
    the text is no duration, or if the duration is zero.
    """
    try:
        found = int(Duration.parse(text))
    except UnitError as problem:
        raise UsageError(error("K804", "not a time", f"{option}: {problem}")) from None
    if not found:
        raise UsageError(error("K804", "not a time", f"{option}: must be longer than zero"))
    return found
