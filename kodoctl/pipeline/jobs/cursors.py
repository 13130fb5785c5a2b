"""How far subscriptions are, asked before anything is cut: what is acknowledged then must be found behind it later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

from kodoctl.pipeline.source.asking import internal_stats
from kodoctl.pulsar.admin import Admin, topic_path
from kodoctl.pulsar.messages import cursor_of
from kodoctl.topology.expand import Expansion, FamilyTopic
from kodoctl.topology.names import HOLDER, State

_ENDLESS: Final = 2**62  # the last entry of a ledger whose size nobody needs
Row = dict[str, Any]


def read_cursors(admin: Admin, expansion: Expansion, run: str, now: int) -> list[Row]:
    """Rows of the table `cursors`: declared subscriptions of every partition that is there. `now`: ms since the epoch."""
    rows: list[Row] = []
    for topic in expansion.topics:
        names = _declared(expansion, topic)
        found = internal_stats(admin, topic.name) if names else None
        if not found:
            continue
        fixed = {
            "msg_topic": topic.name.full,
            "topic": topic.ground,
            "ttl_ms": _ttl(admin, topic),
            "taken_ts": datetime.fromtimestamp(now / 1000, UTC),
            "ingest_run": run,
        }
        rows += [{**fixed, **row} for number, stats in found.items() for row in _of_partition(number, stats, names)]
    return rows


def _declared(expansion: Expansion, topic: FamilyTopic) -> Sequence[str]:
    match topic.state:
        case None:
            return ()
        case State.READY:
            return list(expansion.topology.spec.topics[topic.ground].subscriptions)
        case State.DEAD:
            return [HOLDER]
        case _:
            return [topic.subscription] if topic.subscription else ()


def _of_partition(number: int, stats: Mapping[str, Any], names: Sequence[str]) -> Iterator[Row]:
    ledgers = sorted(int(one["ledgerId"]) for one in stats.get("ledgers") or ())
    for name, data in (stats.get("cursors") or {}).items():
        if name not in names:
            continue
        cursor = cursor_of(data)
        yield {
            "msg_partition": number,
            "subscription": name,
            "mark_ledger": cursor.mark[0],
            "mark_entry": cursor.mark[1],
            "acknowledged": [one for first, last in cursor.ranges for one in _by_ledger(first, last, ledgers)],
            "first_ledger": ledgers[0] if ledgers else -1,
        }


def _by_ledger(first: tuple[int, int], last: tuple[int, int], ledgers: Sequence[int]) -> Iterator[Row]:
    """A range that may span ledgers, ledger by ledger."""
    spanned = [
        first[0],
        *(one for one in ledgers if first[0] < one < last[0]),
        *([last[0]] if last[0] > first[0] else []),
    ]
    begin = first[1]
    for ledger, following in pairwise([*spanned, None]):
        yield {"ledger": ledger, "first": begin, "last": last[1] if following is None else _ENDLESS}
        begin = 0


def _ttl(admin: Admin, topic: FamilyTopic) -> int | None:
    reply = admin.call("GET", f"{topic_path(topic.name)}/messageTTL", query={"applied": "true"})
    seconds = reply.data if reply.ok and isinstance(reply.data, int) else 0
    return seconds * 1000 or None
