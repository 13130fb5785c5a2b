"""Reader of everything that was done in a namespace: the journal, the recall ledger and the history of live orders.

Nothing is stored for it: each command keeps its own record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kodoctl.errors import KodoctlError
from kodoctl.plan.history import parse, read_history, to_json
from kodoctl.plan.history_document import HistoryDocument, OrderRow
from kodoctl.pulsar.admin.admin import AdminError
from kodoctl.pulsar.control.control_namespace import cluster_identity
from kodoctl.pulsar.control.journal import read_journal
from kodoctl.pulsar.inventory.order_history import OrderHistory, read_order_history
from kodoctl.recall.ledger.ledger_clusters import check_cluster
from kodoctl.recall.plan.replay_history import read_replays

if TYPE_CHECKING:
    from kodoctl.documents.recall_document import RecallRunRow
    from kodoctl.plan.history import History
    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.pulsar.binary.client import BrokerClient
    from kodoctl.recall.plan.replay_history import Replays
    from kodoctl.topology.names import NamespaceName


def journal_history(admin: Admin, client: BrokerClient, space: NamespaceName) -> tuple[History, Replays]:
    """Reads the journal of a namespace, and returns (applies, replays). Raises ClusterError."""
    entries = [parse(one) for one in read_journal(admin, client, space)]
    return read_history(entries), read_replays(entries, str(space))


def namespace_history(admin: Admin, client: BrokerClient, space: NamespaceName, ledger: str) -> HistoryDocument:
    """Reads everything that was done in a namespace, also in one that was deleted. `ledger`: location of the recall
    ledger. Other records that cannot be read are named in `unknown`. Raises ClusterError if the journal cannot be read.
    """
    found, replays = journal_history(admin, client, space)
    books, unlisted = _orders(admin, space)
    recalls, unread = _recalls(admin, space, ledger)
    return HistoryDocument(
        namespace=str(space),
        applies=[to_json(one) for one in found.applies],
        replays=[one.row() for one in replays.values()],
        recalls=recalls,
        orders=sorted((row for book in books for row in _order_rows(book)), key=lambda row: row["at"]),
        ledger=ledger,
        unknown=[*found.foreign, *replays.unread(), *unread, *unlisted, *_unknown_orders(books)],
    )


def _recalls(admin: Admin, space: NamespaceName, ledger: str) -> tuple[list[RecallRunRow] | None, list[str]]:
    """(runs in the recall ledger, None: not known; sentences about unknown records)."""
    try:
        is_there = "://" in ledger or Path(ledger).exists()
    except OSError as problem:  # such as of a folder that may not be entered
        return None, [f"recalls, releases and discards: {ledger}: {problem.strerror}"]
    if not is_there:
        return None, [f"recalls, releases and discards: there is no ledger {ledger} here; --ledger names another"]
    from kodoctl.recall.ledger.delta_ledger import DeltaLedger

    try:
        book = DeltaLedger(ledger)
        check_cluster(book, space.tenant, cluster_identity(admin, space.tenant))
        return book.runs(str(space)), []
    except KodoctlError as problem:
        return None, [f"recalls, releases and discards: {problem.diagnostics[0].detail}"]


def _orders(admin: Admin, space: NamespaceName) -> tuple[list[OrderHistory], list[str]]:
    """(live orders by subscription, sentences about unknown records)."""
    try:
        return read_order_history(admin, space), []
    except KodoctlError as problem:
        if isinstance(problem, AdminError) and problem.reply.missing:  # they went with the namespace
            return [], []
        return [], [f"live orders: {problem.diagnostics[0].detail}"]


def _order_rows(book: OrderHistory) -> Iterator[OrderRow]:
    for one in book.changes:
        yield OrderRow(
            topic=book.topic, subscription=book.subscription, at=one.at, who=one.who, back=one.back,
            order=str(one.order), until=one.order.until, why=one.order.why,
        )  # fmt: skip


def _unknown_orders(books: Iterable[OrderHistory]) -> Iterator[str]:
    for book in books:
        name = " / ".join(filter(None, (book.topic, book.subscription)))
        if book.unread:
            yield f"live orders of {name}: {book.unread}"
        elif book.is_cut:
            yield f"live orders of {name} before the last {len(book.changes)}: they are not kept"
