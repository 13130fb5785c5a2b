# adapter: reads the broker
"""Target lanes of a recall, one partition each, at the start of an attempt: opens and checks the lanes, and decides
about dead letters in doubt before anything else is sent. Raises RefusedError for a lane that cannot be used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from kodoctl.errors import KodoctlError, RefusedError, error
from kodoctl.pulsar.binary.message_reader import place_of
from kodoctl.recall.ledger.recall_ledger import LetterStatus, RecallEntry, RecallEvent
from kodoctl.recall.ledger.recovery import LaneScan, Recovery, recover
from kodoctl.recall.send.ledger_entries import recovery_entry
from kodoctl.topology.names import whole_topic

if TYPE_CHECKING:
    from kodoctl.pulsar.binary.message_reader import PartitionFacts
    from kodoctl.pulsar.binary.recall_transport import DedupProducer
    from kodoctl.recall.cluster import RecallCluster
    from kodoctl.recall.plan.recall_plan import RecallPlan


def open_lanes(
    plan: RecallPlan, cluster: RecallCluster, needed: Collection[int], open_ends: ExitStack
) -> tuple[dict[int, DedupProducer], dict[int, PartitionFacts]]:
    """Checks the needed lanes (indices into the plan's lanes) and opens them; `open_ends` closes them, also after an
    error. Returns their producers and their facts, which were read before, both by the lane's index. Raises the errors
    of `check_lanes`, LockedError if another process keeps the plan's producer on a lane for 15 s, and ClusterError.
    """
    facts = check_lanes(plan, cluster, needed)
    lanes = {}
    for index in facts:
        lane = cluster.lane(plan.lanes[index].part, plan.producer)
        open_ends.callback(lane.close)
        lanes[index] = lane
    return lanes, facts


def check_lanes(plan: RecallPlan, cluster: RecallCluster, needed: Collection[int]) -> dict[int, PartitionFacts]:
    """Reads the facts of the needed lanes (indices into the plan's lanes), by the lane's index. Raises RefusedError,
    naming every topic that has other partitions than planned, or else every one that cannot take messages
    (`check_targets`); UsageError if there is no such topic; ClusterError.
    """
    from kodoctl.recall.cluster import check_partitions

    topics = {plan.lanes[index].topic: plan.lanes[index].partitions for index in sorted(needed)}
    check_partitions(cluster, topics, planned=True)
    facts = {index: cluster.facts(plan.lanes[index].part) for index in sorted(needed)}
    check_targets(facts.values(), plan.reader_of)
    return facts


def check_targets(lanes: Iterable[PartitionFacts], reader_of: Callable[[str], str]) -> None:
    """Raises RefusedError if a target partition lacks deduplication (K565) or the subscription that `reader_of` names
    for its topic (K711). The error names all such topics, and says how to repair them. `reader_of`: returns the name
    of a subscription, given the full name of a topic.

    Without the subscription nothing would retain a sent message: its original would be acknowledged, and the message
    lost.
    """
    found = list(lanes)
    findings = []
    if without := {whole_topic(one.topic) for one in found if not one.deduplicates}:
        how = "write `deduplication: true` under the topic's `policies` (ready topics) or `state_policies`, and apply"
        findings.append(error("K565", "a lane without deduplication", "\n".join([*sorted(without), how])))
    if unread := {whole_topic(one.topic) for one in found if reader_of(whole_topic(one.topic)) not in one.cursors}:
        what = [
            f"{topic} has no subscription {reader_of(topic)}, so nothing would keep what is sent there"
            for topic in sorted(unread)
        ]
        detail = "\n".join([*what, "`kodoctl apply FILE` creates it"])
        findings.append(error("K711", "subscription not found", detail))
    if findings:
        raise RefusedError(*findings)


def settle_doubts(
    plan: RecallPlan,
    cluster: RecallCluster,
    known: Mapping[str, LetterStatus],
    booked: Mapping[str, int],
    lanes: Mapping[int, DedupProducer],
    now: int,
) -> list[RecallEntry]:
    """Reads back each lane of `lanes` that has letters in doubt, which an earlier attempt of the run may have sent.
    Returns entries for letters that must not be sent again: SENT if the letter was found, REFUSED if the broker passed
    its number without storing it, UNCLEAR if nobody can know. A letter in doubt without an entry has to be sent again
    under its number. A lane that cannot be read counts as one in which nothing was found.

    Raises UsageError if a lane's topic is gone, ClusterError if its facts cannot be read.

    Args:
        known: statuses by recall id of the letters of a segment, whose numbers are above those of the segments before;
            statuses of other runs are ignored.
        booked: by lane (full name of a partition), the highest number of the run that is certainly stored.
        lanes: producers of the lanes, by index.
        now: ms since the epoch.
    """
    found: list[RecallEntry] = []
    for lane in lanes.values():
        own = {recall_id: one for recall_id, one in known.items() if one.run == plan.run and one.lane == lane.part}
        doubts = {recall_id: one for recall_id, one in own.items() if one.event is RecallEvent.INTENT}
        if not doubts:
            continue
        watermark, highest = lane.last_number, booked.get(lane.part, 0)
        read_back = _read_back(cluster, lane.part, doubts, plan.kind.mark)
        age = now - min(one.at for one in doubts.values())
        given = max(highest, *(one.number for one in own.values()))
        numbers = {recall_id: one.number for recall_id, one in doubts.items()}
        for recall_id, verdict in recover(numbers, watermark, highest, given, age, read_back).items():
            if verdict is not Recovery.SEND:
                place = read_back.found.get(recall_id, "")
                found.append(recovery_entry(plan, recall_id, doubts[recall_id], verdict, now, place))
    return found


def _read_back(cluster: RecallCluster, part: str, doubts: Mapping[str, LetterStatus], mark: str) -> LaneScan:
    """Scans the lane from its end when the run began there; nothing is found if it cannot be read. The first message
    with a recall id counts, because whoever moved it later kept the id. Of copies with one publish time, which the
    client library sent twice, the last one counts, as with a receipt: kodoctl.recall.send.lane_duplicates finds the
    earlier ones.
    """
    facts = cluster.facts(part)
    begins = [place_of(one.note) for one in doubts.values() if ":" in one.note]
    begin = min(begins, default=(-1, -1))
    found: dict[str, str] = {}
    published: dict[str, int] = {}
    try:
        for stored in cluster.read_all(facts, begin if begin[0] >= 0 else None):
            recall_id, at = stored.properties.get(mark, ""), stored.publish_time
            if recall_id in doubts and published.setdefault(recall_id, at) == at:
                found[recall_id] = f"{stored.ledger}:{stored.entry}" if stored.batch < 0 else ""
    except KodoctlError:
        return LaneScan()
    whole = bool(begins) and (begin[0] < 0 or facts.first_ledger <= begin[0])
    return LaneScan(found, whole)
