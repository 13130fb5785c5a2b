"""Journal of an apply: entries in the lease topic of each namespace, so that an apply can be continued and undone.

Each write has one entry before it and one after it. The write is sent when the entry before it is stored. The entry
after it is sent while other writes begin, but stored before the ledger records the write (`settle`). Entries keep their
order.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kodoctl.plan import history
from kodoctl.plan.ownership import namespace_of
from kodoctl.plan.schedule import resource_of

if TYPE_CHECKING:
    from kodoctl.plan.changes import Change
    from kodoctl.pulsar.control.lease import Lease
    from kodoctl.topology.names import NamespaceName

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Heading:
    """Content of the first entry of an apply in the journal.

    Args:
        verb: command that applies, such as `apply` or `undo`.
        who: the user, as text.
        commit: commit of the files; None: not known.
        plan: first digits of the digest of the declared objects; "" for a plan that no file declares, such as an undo.
        changes: number of changes.
        document: JSON of the whole plan; the entry goes without one that is too large for it (`pack`).
    """

    verb: str
    who: str
    commit: str | None
    plan: str
    changes: int
    document: str = field(repr=False)  # the plan's own JSON


class Journal:
    """Writer of the journal entries of one apply. Without the binary port there is no journal: then entries are
    dropped.

    Methods that wait for the broker (`begin`, `before`, `settle`, `end`) raise LockedError if the lease is lost;
    without a journal, only if `Lease.check` noticed the loss before. `along` and `after` do not wait: if their entry
    cannot be stored, the next `settle` or `end` raises, or a `before` in the journal of the same namespace.
    """

    def __init__(self, lease: Lease, namespaces: Iterable[NamespaceName]) -> None:
        self.lease = lease
        self.namespaces = tuple(sorted(namespaces))
        self.id = secrets.token_hex(4)

    def begin(self, heading: Heading, ledgers: Mapping[str, str | None]) -> None:
        """Writes the first entry into the journal of every namespace, and returns after all are stored. `ledgers`: the
        ownership ledgers that the apply writes, as they were before it, by `TENANT/NAMESPACE/NAME of the topology`
        (None: there was no ledger), as `Executor.ledgers_before` has them; the entry of each namespace has all of them.
        """
        entry = {
            "v": history.FORMAT_VERSION,
            "verb": heading.verb,
            "who": heading.who,
            "commit": heading.commit,
            "plan": heading.plan,
            "changes": heading.changes,
            "ledgers": dict(ledgers),
            "packed": history.pack(heading.document),
        }
        self._everywhere("begin", entry)

    def before(self, change: Change, part: str) -> None:
        """Records that the write of a change is about to be sent; returns after the entry is stored. `part`: value of
        the `part` of its step (`UpdatePhase`).
        """
        self.lease.write(self._place(change), self._before(change, part))

    def before_with_topic(self, change: Change, part: str) -> None:
        """Records a change that needs no write of its own, because the write of another change makes it, such as the
        end of a subscription with its topic. To call before the `before` of that write, which waits until both entries
        are stored; this method does not wait. `part`: as in `before`.
        """
        self.lease.note(self._place(change), self._before(change, part))

    def after(self, change: Change, part: str, status: str, detail: str) -> None:
        """Records the result of a write, without waiting; `settle` waits until the entry is stored. `status`: value of
        a `ChangeStatus`; `detail`: reason of a failure, cut to 2,000 characters.
        """
        step = {**history.step_json(change, part), "status": status, "detail": detail[:2_000]}
        self.lease.note(self._place(change), {**self._entry("after"), **step})

    def settle(self) -> None:
        """Blocks until every entry is stored."""
        self.lease.settle()

    def end(self, *, complete: bool) -> None:
        """Writes the last entry into the journal of every namespace, and returns after all are stored. `complete`: all
        changes were made. Without this entry, the apply still runs, died or lost its lease.
        """
        self._everywhere("end", {"complete": complete})

    def _everywhere(self, kind: str, entry: Json) -> None:
        self.lease.write_everywhere({**self._entry(kind), **entry})

    def _before(self, change: Change, part: str) -> Json:
        from kodoctl.plan import serialization

        return {
            **self._entry("before"),
            **history.step_json(change, part),
            "change": serialization.change_to_json(change),
        }

    def _place(self, change: Change) -> NamespaceName:
        """The namespace in whose journal a change is recorded."""
        resource = resource_of(change)
        place = namespace_of(resource) if resource is not None else None
        return place if place in self.namespaces else self.namespaces[0]

    def _entry(self, kind: str) -> Json:
        return {"kind": kind, "apply": self.id, "at": int(time.time() * 1000)}
