# adapter: reads the broker
"""Planner of a recall: reads the dead letters without consuming them, up to the last message stored at the
start.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kodoctl.documents.recall_document import MAX_LETTERS
from kodoctl.errors import ClusterError, UsageError, error
from kodoctl.recall.cluster import RecallCluster, check_partitions, letter_of
from kodoctl.recall.ledger.ledger_clusters import check_cluster
from kodoctl.recall.ledger.recall_ledger import RecallLedger, latest_status
from kodoctl.recall.plan.key_order import KeyOrder, leaving
from kodoctl.recall.plan.recall_plan import RecallPlan
from kodoctl.recall.plan.selection import LetterSelection, SelectionRequest
from kodoctl.recall.send.partition_lanes import check_targets
from kodoctl.topology.names import TopicName, partition_name, partition_numbers

if TYPE_CHECKING:
    from pathlib import Path

    from kodoctl.recall.message.stored_message import DeadLetter, Position
    from kodoctl.recall.plan.destinations import RecallSource


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRequest(SelectionRequest):
    """Request for a recall plan: the input of its selection, and the file of the topology (`path`, `environment`),
    which apply reads again. `because`: reason, for the ledger; `table`: file for the letters if they are too many for
    memory; None: no `limit` above MAX_LETTERS (100,000) is allowed.
    """

    path: str
    environment: str | None
    because: str = ""
    table: Path | None = None


Fill = Callable[[SelectionRequest, LetterSelection], None]
"""Offers every unacknowledged letter to a selection, oldest first in each partition."""


def prepare(
    request: RecallRequest, cluster: RecallCluster, ledger: RecallLedger, fill: Fill | None = None
) -> RecallPlan:
    """Makes the plan, and sends nothing. Letters that are too many for memory go to the request's file `table`;
    statuses come from `ledger`, not from `known`. `fill`: passes the letters to the selection; None: they are read from
    the cluster. Raises UsageError for an impossible limit, patch, target or file; RefusedError for other partitions
    than in the file, targets without deduplication or subscription, a ledger of another cluster or a broken order of
    keys; KodoctlError for failed reads.
    """
    family = request.family
    if request.limit < 1 or (request.table is None and request.limit > MAX_LETTERS):
        most = "1 or more" if request.table else f"from 1 to {MAX_LETTERS:,}; more messages are more plans"
        raise UsageError(error("K567", "not a number of letters", f"--limit {request.limit}: {most}"))
    if request.action.sends:
        family.check_target(request.to)
    if request.edit is not None and family.payload_type == "avro":
        detail = f"payloads of {family.ground} are Avro: only JSON payloads can be patched"
        raise UsageError(error("K568", "a patch that cannot be used", detail))
    tenant = TopicName.parse(family.source_topic).namespace.tenant
    identity = cluster.identity(tenant)
    check_cluster(ledger, tenant, identity)
    request = replace(request, known=latest_status(ledger.entries(family.ledger_key)))
    selection, keys = LetterSelection(request), KeyOrder()
    if fill is not None:
        fill(request, selection)
    for letter in held_letters(family, cluster, selection.count_entry) if fill is None else ():
        selection.offer(letter)
        if family.ordered:
            keys.add(letter)
    lanes, letters, settle, summary = selection.finish(request.table)
    keys.check(request.action, leaving(letters, settle))
    check_partitions(cluster, {lane.topic: lane.partitions for lane in lanes})
    check_targets([cluster.facts(lane.part) for lane in lanes], family.reader_of)
    return RecallPlan(
        action=request.action,
        run=request.run,
        made_at=request.condition.now,
        cluster=identity,
        topology=family.name,
        path=request.path,
        environment=request.environment,
        topic=family.ground,
        subscription=family.subscription,
        source_topic=family.source_topic,
        source_partitions=family.source_partitions,
        holder=family.holder,
        where=request.condition.text,
        to=request.to.value if request.to else family.target_name,
        limit=request.limit,
        again=request.again,
        because=request.because,
        edit=request.edit.patch if request.edit else None,
        lanes=lanes,
        letters=letters,
        settle=settle,
        summary=summary,
        lane=family.lane,
        landing=family.landing,
        table=selection.written,
    )


def held_letters(
    family: RecallSource, cluster: RecallCluster, pass_over: Callable[[Position], None] | None = None
) -> Generator[DeadLetter]:
    """Yields the messages of a source that its `holder` (the subscription that retains them) has not acknowledged, one
    partition after the other, oldest first in each, up to the message that was the last when its reading began; of a
    batch that is acknowledged in part, all messages. Adds unacknowledged entries without a message to the cluster's
    `unread`. Does not yield messages that are not for the subscription (`RecallSource.is_for`); `pass_over` is called
    with their positions. Raises RefusedError, before anything is read, if the topic has other partitions than the file;
    ClusterError, also without a `holder`; UsageError if there is no such topic or partition.
    """
    check_partitions(cluster, {family.source_topic: family.source_partitions})
    for number in partition_numbers(family.source_partitions):
        part = partition_name(family.source_topic, number)
        facts = cluster.facts(part)
        cursor = facts.cursors.get(family.holder)
        if cursor is None:
            raise no_holder(part, family.holder)
        for stored in cluster.read_all(facts, cursor.mark if cursor.mark[0] >= 0 else None, cluster.unread):
            if not cursor.has((stored.ledger, stored.entry)):
                letter = letter_of(stored, family.source_topic, family.fair_by)
                if family.is_for(letter.properties):
                    yield letter
                elif pass_over is not None:
                    pass_over(letter.position)
        cluster.unread.leave_out(part, cursor)


def no_holder(part: str, holder: str) -> ClusterError:
    """Returns the error (K566) for the partition `part`, full name, that lacks the subscription `holder`, which would
    retain its messages.
    """
    detail = f"{part} has no subscription {holder}, so nothing keeps its messages: `kodoctl apply FILE` creates it"
    return ClusterError(error("K566", "no holder of dead letters", detail))
