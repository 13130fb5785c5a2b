"""Executor of a plan: runs its levels one after the other, the changes of a level in parallel, and
confirms each write.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from kodoctl.apply.barrier import ALONE, BarrierParty
from kodoctl.apply.fenced_admin import FencedAdmin
from kodoctl.apply.ledger_writer import LedgerWriter
from kodoctl.apply.report import ApplyEvent, ApplyReport, ChangeOutcome, ChangeStatus, Listen, Listener
from kodoctl.apply.source_writer import SourceWriter
from kodoctl.apply.step_writer import StepWriter
from kodoctl.apply.verify import Verifier
from kodoctl.errors import ClusterError, LockedError
from kodoctl.plan.changes import Change, Create
from kodoctl.plan.schedule import Step, StepKey, schedule
from kodoctl.pulsar.admin.admin_http import CONNECTIONS
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError
from kodoctl.topology.resources import NamespaceResource

if TYPE_CHECKING:
    from kodoctl.apply.journal import Journal
    from kodoctl.plan.plan import Plan
    from kodoctl.pulsar.session import Session
    from kodoctl.pulsar.values.live_objects import Live
    from kodoctl.topology.names import NamespaceName

_LOST: Final = "the lease was lost"
_UNWRITTEN: Final = "the ledger was not written: the lease was lost; the next plan shows what is left"
_UNSURE: Final = "lease lost before the write could be confirmed: whether it was done is not known"


class Executor:
    """Executor of one apply. `live`: the live inventory that the plan was checked with; `stop`: event after which no
    further change begins; the report lists these changes as not started, and changes that depend on them as skipped.
    `listen`: takes the events, from several threads.
    """

    def __init__(  # what an apply needs
        self,
        session: Session,
        plan: Plan,
        live: Live,
        journal: Journal,
        *,
        listen: Listen = lambda _: None,
        stop: threading.Event | None = None,
    ) -> None:
        databases = SourceWriter(session.variables, live)
        self._lease = journal.lease
        self._admin = admin = FencedAdmin(session.admin, self._lease.check)
        self._plan = plan
        self._listen, self._stop = Listener(listen), stop or threading.Event()
        self._journal = journal
        self._ledgers = LedgerWriter(admin, plan, live)
        self._writer = StepWriter(admin, plan, live, self._ledgers, databases)
        self._verifier = Verifier(admin, session.client, self._writer.levels, databases)
        self._journaled: set[StepKey] = set()
        self._lost: LockedError | None = None
        self._results: dict[StepKey, tuple[ChangeStatus, str]] = {}
        self._order = schedule(plan.changes)
        self._over = 0
        self._lock = threading.Lock()

    @property
    def ledgers_before(self) -> Mapping[str, str | None]:
        """Ownership ledgers that this apply may write, as they are in the live inventory:
        `TENANT/NAMESPACE/NAME of the topology` -> text; None if there was no ledger.
        """
        return self._ledgers.found

    @property
    def ledgers_removed(self) -> frozenset[tuple[NamespaceName, str]]:
        """(namespace, topology) of the ledgers that this apply writes and that are not on the cluster now, as
        `LedgerWriter.removed`.
        """
        return self._ledgers.removed

    def run(self, party: BarrierParty = ALONE) -> ApplyReport:
        """Carries out the plan, and blocks until all changes have ended. May be called once. Failures of changes and
        ledgers, and a lost lease, are in the report, which has no `id`; only an unexpected exception is raised.
        `party`: the barrier at which deletes wait for other clusters.
        """
        began, before = time.monotonic(), self._admin.traffic.writes
        order = self._order
        notes: list[str] = []
        with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="apply") as pool:
            for level in order.building:
                self._run_level(pool, level, order.waits_for, notes)
            party.report_built(done=all(status is ChangeStatus.DONE for status, _ in self._results.values()))
            why_not = party.wait_to_delete() if order.deleting else ""
            for level in order.deleting:
                if why_not:
                    self._skip(level, why_not)
                else:
                    self._run_level(pool, level, order.waits_for, notes)
        outcomes = self._outcomes()
        complete = all(outcome.status is ChangeStatus.DONE for outcome in outcomes)
        self._bookkeeping(lambda: self._ledgers.close(complete=complete), notes)
        if self._lost is not None:
            notes.insert(0, _words(self._lost))
        return ApplyReport(
            tuple(outcomes),
            tuple(dict.fromkeys([*notes, *self._listen.notes])),
            self._admin.traffic.writes - before,
            time.monotonic() - began,
            interrupted=self._stop.is_set(),
        )

    # --- one level

    def _run_level(
        self,
        pool: ThreadPoolExecutor,
        level: Sequence[Step],
        waits_for: Mapping[StepKey, frozenset[StepKey]],
        notes: list[str],
    ) -> None:
        ready = []
        for step in (one for one in level if one.key not in self._results):
            broken = [
                key
                for key in waits_for[step.key]
                if self._results.get(key, (ChangeStatus.DONE, ""))[0] is not ChangeStatus.DONE
            ]
            if broken:
                self._end(step, ChangeStatus.SKIPPED, f"waits for {broken[0][0]}, which was not done")
            else:
                ready.append(step)
        if not ready or not self._may_go_on(ready):
            return
        if not self._bookkeeping(
            lambda: self._ledgers.record_intents([s.change for s in ready if not _is_namespace(s.change)]), notes
        ):
            for step in ready:
                self._end(step, ChangeStatus.NOT_STARTED, "its intent could not be written")
            return
        list(pool.map(self._carry_out, ready))
        ready += [one for step in ready for one in self._deleted_with(step) if one.key in self._results]
        done = [step for step in ready if self._results[step.key][0] is ChangeStatus.DONE]
        for step, problem in self._verifier.verify(done):
            self._end(step, ChangeStatus.FAILED, problem)
        self._note(self._journal.settle)
        settled = [step.change for step in ready if self._results[step.key][0] is ChangeStatus.DONE]
        self._bookkeeping(lambda: self._ledgers.confirm(settled), notes)

    def _skip(self, steps: Iterable[Step], why: str) -> None:
        for step in steps:
            self._end(step, ChangeStatus.SKIPPED, why)

    def _may_go_on(self, steps: Iterable[Step]) -> bool:
        try:
            if not self._stop.is_set() and self._lost is None:
                self._lease.check()
                return True
        except LockedError as lost:
            self._lost = lost
        reason = "interrupted" if self._stop.is_set() else _LOST
        for step in steps:
            self._end(step, ChangeStatus.NOT_STARTED, reason)
        return False

    def _bookkeeping(self, write: Callable[[], None], notes: list[str]) -> bool:
        """Calls `write`, which writes ledgers. Returns False after a failure, which adds a note and leaves an intent
        that the next plan understands. If the lease was unconfirmed, the broker is asked again: finished changes are
        then recorded, but no further change begins.
        """
        try:
            if self._lost is not None:
                self._lease.ask()
            write()
        except LockedError as lost:
            self._lost = lost
            notes.append(_UNWRITTEN)
            return False
        except (WriteFailedError, ClusterError) as problem:
            notes.append(f"the ledger was not written: {problem}; the next plan shows what is left")
            return False
        return True

    def _carry_out(self, step: Step) -> None:
        if not self._may_go_on([step]):
            return
        deleted = self._deleted_with(step)
        if not self._note(lambda: self._announce(step, deleted)):
            self._end(step, ChangeStatus.NOT_STARTED, "interrupted" if self._stop.is_set() else _LOST)
            return
        self._journaled.update(one.key for one in (step, *deleted))
        self._listen(ApplyEvent("started", step.change, self._over, self._order.size))
        sent = self._admin.sent_here
        try:
            self._writer.write(step)
        except LockedError as lost:
            self._lost = lost
            if self._admin.sent_here > sent:
                self._end(step, ChangeStatus.FAILED, _UNSURE)
            else:
                self._end(step, ChangeStatus.NOT_STARTED, "interrupted" if self._stop.is_set() else _LOST)
        except WriteFailedError as problem:
            self._end(step, ChangeStatus.FAILED, str(problem))
        except ClusterError as problem:
            self._end(step, ChangeStatus.FAILED, problem.diagnostics[0].detail)
        else:
            self._end(step, ChangeStatus.DONE, "")
            for one in deleted:
                self._listen(ApplyEvent("started", one.change, self._over, self._order.size))
                self._end(one, ChangeStatus.DONE, "")

    def _deleted_with(self, step: Step) -> list[Step]:
        return [Step(change) for change in self._writer.deleted_with(step.change)]

    def _announce(self, step: Step, deleted: Iterable[Step]) -> None:
        """Records a step in the journal, and before it the steps `deleted`, which its write makes, so that an apply that
        dies or is stopped right after the write leaves none of them unrecorded.
        """
        for one in deleted:
            self._journal.before_with_topic(one.change, one.part.value)
        self._journal.before(step.change, step.part.value)

    def _end(self, step: Step, status: ChangeStatus, detail: str) -> None:
        with self._lock:
            if step.key not in self._results:
                self._over += 1
            self._results[step.key] = (status, detail)
            self._listen(ApplyEvent(status.value, step.change, self._over, self._order.size, detail))  # in this order
        if step.key in self._journaled and self._lost is None:
            self._note(lambda: self._journal.after(step.change, step.part.value, status.value, detail))

    def _note(self, tell: Callable[[], None]) -> bool:
        """Calls `tell`, which writes to the journal. Returns False if the lease is lost: then nothing
        more is written.
        """
        try:
            tell()
        except LockedError as lost:
            self._lost = lost
            return False
        return True

    def _outcomes(self) -> list[ChangeOutcome]:
        """One outcome for each change: of the two steps of a namespace's update, the worse one."""
        order = [ChangeStatus.DONE, ChangeStatus.NOT_STARTED, ChangeStatus.SKIPPED, ChangeStatus.FAILED]
        found: dict[tuple[str, str], tuple[ChangeStatus, str]] = {}
        for (address, kind, _), result in self._results.items():
            known = found.get((address, kind), (ChangeStatus.DONE, ""))
            found[address, kind] = max(known, result, key=lambda r: order.index(r[0]))
        missing = (ChangeStatus.NOT_STARTED, "")
        return [ChangeOutcome(c, *found.get((c.address, type(c).__name__), missing)) for c in self._plan.changes]


def _words(problem: LockedError) -> str:
    finding = problem.diagnostics[0]
    return f"{finding.summary} [{finding.code}]: {finding.detail}"


def _is_namespace(change: Change) -> bool:
    """True for the creation of a namespace: the request that creates it contains its intent."""
    return isinstance(change, Create) and isinstance(change.after, NamespaceResource)
