"""Made-up audit messages, as workers write them, of runs that took slots; and arrivals beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from kodoctl.protocol.audit_records import Event, Record, encode
from tests.spark.landed import Row

BEGIN = datetime(2026, 1, 1, 9, tzinfo=UTC)
MINUTES = 5  # of a window


@dataclass
class SlotTraffic:
    """Runs of the subscription `s` of one ground topic, by one worker."""

    topic: str
    records: list[Record] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def run(
        self, window: int, tenant: str, *, lane: str = "", many: int = 1, slot: int, wait: int = 0, hop: int = 0
    ) -> None:
        """Runs of `slot` ms that begin one after the other in the window, `wait` ms after their messages were stored."""
        for number in range(many):
            begins = BEGIN + timedelta(minutes=MINUTES * window, seconds=60 + 200 * number / many)
            ends = int(begins.timestamp() * 1000) + slot
            n = next(self.numbers)
            record = Record(f"w-{self.topic}", "s", n, ends, f"persistent://kodo/trade/{self.topic}{lane}", f"7:{n}:0:-1", f"m{n}", hop,
                            Event.DONE, "done", tenant=tenant, age=wait + slot, slot_time=slot)  # fmt: skip
            self.records.append(record)

    def audit(self) -> list[Row]:
        """The audit messages, the first of them twice: its receipt was lost."""
        encoded = [encode(some) for some in (self.records[at : at + 500] for at in range(0, len(self.records), 500))]
        name = f"persistent://kodo/trade/{self.topic}-s-AUDIT"
        rows: list[dict[str, Any]] = []
        for number, one in enumerate([encoded[0], *encoded]):
            at = datetime.fromtimestamp(self.records[-1].at / 1000, UTC)
            rows.append({
                "msg_topic": name, "topic": self.topic, "subscription": "s", "state": "audit", "level": None, "tenant": None,
                "id": f"9:{number}:0:-1", "attempts": [], "publish_ts": at, "payload": one.payload, "size": len(one.payload),
            })  # fmt: skip
        return rows
