"""Reading of history and drift for the console, by the same functions as the commands `history` and `drift`.

The first page that needs these functions imports them, and not this module, so that the first screen comes sooner.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from kodoctl.cli.common.command_target import shown_target
from kodoctl.cli.ui.page_names import of_topology
from kodoctl.errors import KodoctlError
from kodoctl.host.private_files import LEDGER
from kodoctl.pulsar.binary.client import BrokerClient
from kodoctl.pulsar.control.lease import held_by
from kodoctl.pulsar.session import Session
from kodoctl.ui.plan_views import DriftReading, NamespaceHistory, stopped_apply

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired
    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.topology.names import NamespaceName
    from kodoctl.ui.first_screen import CommandWords, DriftNews, StoppedApply


class PlanReading:
    """Reader of history and drift for the topologies of the command. `paths`: files or folders as the user named them,
    which are read again for a drift; `env`: value of --env; `ledger`: location of the recall ledger. At most one drift
    is read at a time; other threads wait.
    """

    def __init__(
        self,
        connection: Connection,
        admin: Admin,
        desired: Desired,
        paths: list[str] | None,
        env: str | None,
        ledger: str,
        words: CommandWords,
    ) -> None:
        self._connection, self._admin, self._paths, self._env = connection, admin, paths, env
        self._ledger, self._words = ledger, words
        self._expansions = {one.name: one for one in desired.expansions}
        self._lock = threading.Lock()
        self._drift: DriftReading | None = None

    def history(self, topology: str) -> NamespaceHistory:
        """Reads everything that was done in the namespace of a topology. Raises KodoctlError, also for an unknown
        topology.
        """
        from kodoctl.cli.apply.namespace_history import namespace_history

        space = of_topology(self._expansions, topology).namespace
        book = ("--ledger", self._ledger) if self._ledger != LEDGER else ()
        command = self._words.line_of_cluster("kodoctl history", str(space), *book)
        holder = self._holder(space)  # before the journal too: an apply that ends meanwhile was not cut off
        with BrokerClient(self._connection) as client:
            document = namespace_history(self._admin, client, space, self._ledger)
            return NamespaceHistory(document, command, holder or self._holder(space))

    def stopped(self) -> tuple[StoppedApply, ...]:
        """Reads the journals of all topologies. Returns the latest apply of each namespace that did not complete and
        whose lease nobody holds. A journal that cannot be read counts as none.
        """
        names = {one.namespace: one.name for one in reversed(self._expansions.values())}
        found: list[StoppedApply] = []
        with BrokerClient(self._connection) as client:
            for space, name in names.items():
                with suppress(KodoctlError):
                    stopped = self._stopped_in(client, space, name)
                    # read again: an apply that ended between its journal and its lease was not stopped
                    if stopped is not None and self._stopped_in(client, space, name) == stopped:
                        found.append(stopped)
        return tuple(found)

    def _stopped_in(self, client: BrokerClient, space: NamespaceName, name: str) -> StoppedApply | None:
        from kodoctl.cli.apply.namespace_history import journal_history
        from kodoctl.plan.history import to_json

        latest = journal_history(self._admin, client, space)[0].latest
        return stopped_apply(name, str(space), [] if latest is None else [to_json(latest)], self._holder(space))

    def _holder(self, space: NamespaceName) -> str:
        return str(held_by(self._admin, space) or "")

    def read_drift(self) -> DriftReading:
        """Compares the files, as they are now, with the cluster, keeps the result for `last_drift`, and returns it.
        Takes as long as a plan; one call at a time, others wait. Raises KodoctlError.
        """
        from kodoctl.cli.plan.drift_command import drift_document
        from kodoctl.cli.plan.planning_flow import PlanFlags, plan_all
        from kodoctl.plan.drift import split
        from kodoctl.plan.fleet import ONLY
        from kodoctl.plan.live.planner import Tolerance

        with self._lock, Session(self._connection, None, os.environ) as session:
            planned = plan_all(
                {ONLY: session}, self._paths, self._env, PlanFlags(), verbose=False, tolerance=Tolerance.LEFT_OUT
            )
            one = planned.prepared[ONLY]
            document = drift_document(session, split(one.plan, one.live, count_unmanaged=False))
            self._drift = DriftReading(int(time.time() * 1000), document, shown_target(self._connection))
            return self._drift

    def last_drift(self) -> DriftReading | None:
        """Result of the last `read_drift` that did not fail; None if there was none. Reads nothing."""
        return self._drift

    def drift_news(self) -> DriftNews | None:
        """Verdict of the last `read_drift` that did not fail, for the first screen; None if there was none. Reads
        nothing.
        """
        return self._drift.news() if self._drift is not None else None
