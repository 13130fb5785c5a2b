# adapter: reads the broker and the landing
"""Check that workers record their acknowledgements: finds consumers of an audited subscription that do not announce
audit records. They were started before `audit: true`, or are not workers of kodoctl.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kodo_pipeline.evidence.readings import mode_of
from kodo_pipeline.evidence.start_positions import WAITS
from kodo_pipeline.source.partition_stats import map_concurrently
from kodoctl.protocol.audit_records import RECORDS_METADATA
from kodoctl.pulsar.admin.topic_stats import read_stats
from kodoctl.topology.names import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.topology.expand import Expansion


def unrecorded_subscriptions(admin: Admin, expansion: Expansion) -> set[tuple[str, str]]:
    """Finds subscriptions with the audit mode `wait` to which a consumer is connected that does not announce audit
    records: (ground topic, subscription) of each. Asks the broker. Raises ClusterError if it does not answer.
    """
    grounds = expansion.topology.spec.topics
    audited = {
        (topic, name)
        for topic, ground in grounds.items()
        for name, spec in ground.subscriptions.items()
        if mode_of(spec) == WAITS
    }
    asked = [
        (topic, readers)
        for topic in expansion.topics
        if topic.state not in (None, State.DEAD)
        and (readers := {(ground, name) for ground, name in audited
                         if ground == topic.ground and topic.subscription in (None, name)})
    ]  # fmt: skip
    answers = map_concurrently(partial(read_stats, admin), [topic.name for topic, _ in asked])
    return {
        one
        for (_, readers), stats in zip(asked, answers, strict=True)
        for part in (stats or {}).get("partitions", {}).values()
        for one in readers
        if _is_unrecorded(part, one[1])
    }


def _is_unrecorded(part: Mapping[str, Any], subscription: str) -> bool:
    consumers = ((part.get("subscriptions") or {}).get(subscription) or {}).get("consumers") or ()
    return any((one.get("metadata") or {}).get(RECORDS_METADATA) != WAITS for one in consumers)
