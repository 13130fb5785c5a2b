"""Command-line hints: the arguments of a command on the same tables, for users to copy, and the parser of durations
that users type. Pure. A text that is no duration, or a duration of zero, raises UsageError.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kodoctl.errors import UsageError, error
from kodoctl.pipeline.ingest.landing_store import DEFAULT
from kodoctl.topology.units import Duration, UnitError

if TYPE_CHECKING:
    from kodoctl.documents.audit_document import LostLaneRow


def command_line(topology: str, environment: str | None, landing: str) -> str:
    """The argument and the options that name them."""
    options = [
        *(("--env", environment) if environment else ()),
        *(("--landing", landing) if landing != DEFAULT else ()),
    ]
    return shlex.join([topology, *options])


def resend_commands(lost: Sequence[LostLaneRow], typed: str, ledger: str = "") -> list[str]:
    """Returns the commands that send lost messages again and then read the result, in order. Empty if `lost` is empty.
    One plan command covers all lanes.

    `typed`: result of `command_line`; `ledger`: the recall ledger, "" for the default location.
    """
    book = f" {shlex.join(['--ledger', ledger])}" if ledger else ""
    files = [f"lost-{number}.json" for number, _ in enumerate(lost, 1)] if len(lost) > 1 else ["lost.json"]
    named = [("--topic", one["topic"], "--subscription", one["subscription"], "--lane", one["lane"]) for one in lost]
    of = f" {shlex.join(named[0])}" if len(lost) == 1 else ""
    commands = [f"kodoctl pipeline recall plan {typed}{of} --lost --out lost.json{book}"]
    commands += [f"kodoctl recall apply {file}{book}" for file in files]
    return [*commands, f"kodoctl pipeline ingest {typed}", f"kodoctl pipeline audit {typed}{book}"] if lost else []


def duration(option: str, text: str) -> int:
    """`10s` as ms. Raises UsageError, which names the option, for what is no time, or no time at all."""
    try:
        found = int(Duration.parse(text))
    except UnitError as problem:
        raise UsageError(error("K804", "not a time", f"{option}: {problem}")) from None
    if not found:
        raise UsageError(error("K804", "not a time", f"{option}: must be longer than zero"))
    return found
