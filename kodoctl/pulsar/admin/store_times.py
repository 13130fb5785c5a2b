# adapter: reads the broker
"""Times at which a broker stored messages, by its own clock: when it closed each ledger of a partition, and, where its
configuration has it note them (AppendBrokerTimestampMetadataInterceptor), the time of each entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from kodoctl.pulsar.admin.admin import Admin, must, topic_path
from kodoctl.topology.names import TopicName

_NOTED: Final = "X-Pulsar-Broker-Entry-METADATA-timestamp"


def closing_times(admin: Admin, part: str) -> Mapping[int, int] | None:
    """Reads when the broker closed each ledger of a partition: ledger -> ms since the epoch. `part`: full name of the
    partition, or of a plain topic. The last ledger counts as open and is left out, and so are ledgers without a time.
    If a broker died, the time is that of the next start. None: this role may not read it. Raises ClusterError, also if
    there is no such partition.
    """
    reply = admin.call("GET", f"{topic_path(TopicName.parse(part))}/internal-info")
    if reply.forbidden:
        return None
    ledgers = (must(reply, f"reading ledgers of {part}") or {}).get("ledgers") or []
    return {int(one["ledgerId"]): int(one["timestamp"]) for one in ledgers[:-1] if one.get("timestamp")}


def noted_time(admin: Admin, part: str, place: tuple[int, int]) -> int | None:
    """Reads when an entry (ledger, entry) was stored, in ms since the epoch. None: the broker does not note it, or does
    not return the entry, for any reason, also a passing one. `part`: full name of the partition, or of a plain topic.
    Raises ClusterError if no broker answers.
    """
    path = f"{topic_path(TopicName.parse(part))}/ledger/{place[0]}/entry/{place[1]}"
    reply = admin.call("GET", path, patient=False)
    text = reply.headers.get(_NOTED) if reply.ok else None
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000) if text else None
    except ValueError:
        return None
