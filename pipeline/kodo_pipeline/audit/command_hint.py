"""Hints after a loss: commands that send lost messages again, for users to copy. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kodoctl.text.escaping import shell_line

if TYPE_CHECKING:
    from kodo_pipeline.audit.audit_document import LostLaneRow


def resend_commands(lost: Sequence[LostLaneRow], typed: str, ledger: str = "") -> list[str]:
    """Commands that plan a resend of lost messages, apply the plans, and then ingest and audit the result, in order; []
    if `lost` is empty. One command makes the plans for all lanes.

    `typed`: text that names topology file, environment and landing (result of `command_line`); `ledger`: the recall
    ledger, "" for the default location.
    """
    book = f" {shell_line(['--ledger', ledger])}" if ledger else ""
    files = [f"lost-{number}.json" for number, _ in enumerate(lost, 1)] if len(lost) > 1 else ["lost.json"]
    named = [("--topic", one["topic"], "--subscription", one["subscription"], "--lane", one["lane"]) for one in lost]
    of = f" {shell_line(named[0])}" if len(lost) == 1 else ""
    commands = [f"kodoctl pipeline recall plan {typed}{of} --lost --out lost.json{book}"]
    commands += [f"kodoctl recall apply {file}{book}" for file in files]
    return [*commands, f"kodoctl pipeline ingest {typed}", f"kodoctl pipeline audit {typed}{book}"] if lost else []
