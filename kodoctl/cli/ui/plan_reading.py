"""Reading of plans and history for the console, by the same functions as `history`, `drift` and `steer --history`."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kodoctl.cli.apply.history_commands import journal_history
from kodoctl.cli.common.command_target import shown_target
from kodoctl.cli.plan.drift_command import drift_document
from kodoctl.cli.plan.planning_flow import PlanFlags, plan_all
from kodoctl.cli.ui.page_names import of_topology
from kodoctl.errors import KodoctlError
from kodoctl.host.private_files import LEDGER
from kodoctl.plan.drift import split
from kodoctl.plan.fleet import ONLY
from kodoctl.plan.history import to_json
from kodoctl.plan.live.planner import Tolerance
from kodoctl.pulsar.binary.client import BrokerClient
from kodoctl.pulsar.control.lease import held_by
from kodoctl.pulsar.control.override_store import OverrideStore
from kodoctl.pulsar.session import Session
from kodoctl.recall.ledger.delta_ledger import DeltaLedger
from kodoctl.text.escaping import shell_line
from kodoctl.ui.plan_views import DriftReading, NamespaceHistory, stopped_apply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kodoctl.documents.recall_document import RecallRunRow
    from kodoctl.plan.inventory import Desired
    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.topology.expand import Expansion
    from kodoctl.ui.first_screen import DriftNews, StoppedApply


class PlanReading:
    """Reads history and drift of the topologies of the command. `paths`: files or folders as the user named them, which
    drift reads again; `ledger`: location of the recall ledger. One drift is read at a time.
    """

    def __init__(
        self,
        connection: Connection,
        admin: Admin,
        desired: Desired,
        paths: list[str] | None,
        env: str | None,
        ledger: str,
    ) -> None:
        self._connection, self._admin, self._paths, self._env = connection, admin, paths, env
        self._ledger = ledger
        self._expansions = {one.name: one for one in desired.expansions}
        self._lock = threading.Lock()
        self._drift: DriftReading | None = None

    def history(self, topology: str) -> NamespaceHistory:
        """Reads the journal of a topology's namespace, the last changes of its live orders, and the recall ledger.
        Raises KodoctlError, but not for the ledger: `unread` has the reason then.
        """
        expansion = of_topology(self._expansions, topology)
        with BrokerClient(self._connection) as client:
            found = self._history(client, expansion, list(self._orders(expansion)))
        book = ["--ledger", self._ledger] if self._ledger != LEDGER else []
        command = shell_line(["kodoctl", "recall", "list", found.namespace, *book])
        found = replace(found, recall_list=command, ledger=self._ledger)
        try:
            return replace(found, recalls=self._recalls(found.namespace))
        except KodoctlError as problem:
            return replace(found, unread=str(problem.diagnostics[0].detail))

    def _recalls(self, namespace: str) -> list[RecallRunRow]:
        """Runs in the recall ledger; none, also without the extra `recall`, if the ledger's folder does not exist.
        Raises KodoctlError.
        """
        if "://" not in self._ledger and not Path(self._ledger).exists():
            return []
        return DeltaLedger(self._ledger).runs(namespace)

    def stopped(self) -> tuple[StoppedApply, ...]:
        """Reads the journals of all topologies for applies that stopped. One that cannot be read counts as none."""
        by_namespace = {one.namespace: one for one in reversed(self._expansions.values())}
        found: list[StoppedApply] = []
        with BrokerClient(self._connection) as client:
            for expansion in by_namespace.values():
                with suppress(KodoctlError):
                    stopped = stopped_apply(expansion.name, self._history(client, expansion, []))
                    found += [stopped] if stopped is not None else []
        return tuple(found)

    def _history(self, client: BrokerClient, expansion: Expansion, orders: list[tuple[str, str]]) -> NamespaceHistory:
        found, replays = journal_history(self._admin, client, expansion.namespace)
        applies = [to_json(one) for one in found.applies]
        holder = held_by(self._admin, expansion.namespace)
        rows = [one.row() for one in replays.values()]
        return NamespaceHistory(str(expansion.namespace), applies, rows, orders, found.foreign, str(holder or ""))

    def _orders(self, expansion: Expansion) -> Iterator[tuple[str, str]]:
        """(subscription, text) of the last orders that people gave or took back, the newest first."""
        grounds = {one.ground: one.name.full for one in expansion.topics if one.name.local == one.ground}
        for ground, topic in grounds.items():
            for name in expansion.topology.spec.topics[ground].subscriptions:
                try:
                    changes = OverrideStore(self._admin, topic, name).history()
                except KodoctlError as problem:
                    yield f"{ground} / {name}", f"cannot be read: {problem.diagnostics[0].detail}"
                else:
                    yield from ((f"{ground} / {name}", str(one)) for one in reversed(changes))

    def read_drift(self) -> DriftReading:
        """Compares the files, as they are now, with the cluster. Raises KodoctlError."""
        with self._lock, Session(self._connection, None, os.environ) as session:
            planned = plan_all(
                {ONLY: session}, self._paths, self._env, PlanFlags(), verbose=False, tolerance=Tolerance.LEFT_OUT
            )
            one = planned.prepared[ONLY]
            document = drift_document(session, split(one.plan, one.live, count_unmanaged=False))
            self._drift = DriftReading(int(time.time() * 1000), document, shown_target(self._connection))
            return self._drift

    def last_drift(self) -> DriftReading | None:
        """The drift that was read last, None for none."""
        return self._drift

    def drift_news(self) -> DriftNews | None:
        """The verdict of the drift that was read last, None for none."""
        return self._drift.news() if self._drift is not None else None
