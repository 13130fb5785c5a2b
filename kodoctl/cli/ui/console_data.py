"""Data of the console's pages, read from one cluster by the same functions as `status`, `peek` and `why`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kodoctl.cli.common.command_target import shown_target
from kodoctl.cli.common.console import defect
from kodoctl.cli.ui.audit_reading import AuditReading
from kodoctl.cli.ui.background_facts import BackgroundFacts
from kodoctl.cli.ui.message_reading import MessageReading, limit_text
from kodoctl.cli.ui.plan_reading import PlanReading
from kodoctl.status.lane_status import StatusReading
from kodoctl.status.status_reader import read_lanes
from kodoctl.topology.names import State
from kodoctl.ui.application import ConsoleData

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired
    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.ui.first_screen import CommandWords

_READING_S: Final = 30.0  # for one reading of all lanes; topics that are not read by then are shown as unread


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """Files of the command as the user named them. `paths`: None for the default folder; `env`: environment, None for
    the context's; `audits`: documents of the last audits; `ledger`: location of the recall ledger.
    """

    paths: list[str] | None
    env: str | None
    audits: list[Path]
    ledger: str


def console_data(
    connection: Connection, admin: Admin, desired: Desired, words: CommandWords, files: NamedFiles
) -> ConsoleData:
    """Makes the functions and readers with which the console's pages read the cluster for the topologies of the
    command. Reads nothing itself.
    """
    context = connection.context
    messages = MessageReading(connection, admin, desired)
    plans = PlanReading(connection, admin, desired, files.paths, files.env, files.ledger, words)
    return ConsoleData(
        target=shown_target(connection),
        production=context is not None and context.protected,
        words=words,
        read_status=partial(_read_status, admin, desired),
        read_audit=AuditReading(files.audits, words, desired),
        read_facts=BackgroundFacts(
            messages.causes, plans.stopped, plans.drift_news, _limit_texts(desired), _tenants(desired)
        ),
        messages=messages,
        plans=plans,
        defect=defect,
    )


def _limit_texts(desired: Desired) -> dict[tuple[str, str, str, str], str]:
    """Words for the limits that hold messages back in pending and blocking lanes, as in `ScreenFacts`."""
    texts = {
        (one.name, ground, name, str(state)): limit_text(subscription, state)
        for one in desired.expansions
        for ground, topic in one.topology.spec.topics.items()
        for name, subscription in topic.subscriptions.items()
        for state in (State.PENDING, State.BLOCKING)
    }
    return {place: text for place, text in texts.items() if text}


def _tenants(desired: Desired) -> dict[tuple[str, str], str]:
    """Properties by which the files tell tenants apart, as in `ScreenFacts`."""
    topics = ((one.name, *each) for one in desired.expansions for each in one.topology.spec.topics.items())
    return {(name, ground): topic.fair_by for name, ground, topic in topics if topic.fair_by}


def _read_status(admin: Admin, desired: Desired) -> StatusReading:
    end = time.monotonic() + _READING_S
    statuses, unread = read_lanes(admin, desired.expansions, lambda: time.monotonic() > end)
    return StatusReading(_now(), statuses, unread)


def _now() -> int:
    return int(time.time() * 1000)
