"""Made-up landings: batches of events and audit records, written as an ingest would."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from kodo_pipeline.landing.landing_commits import LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.tables import EVENTS, TRANSITIONS

Row = dict[str, Any]


def event(place: str, state: str, at: datetime, tenant: str | None = "u1", **columns: Any) -> Row:
    """A message on a topic of `orders`, `place` such as `orders` or `orders-billing-RETRYING`."""
    subscription = None if state == "ready" else "billing"
    return {
        "msg_topic": f"persistent://kodo/trade/{place}", "topic": "orders", "subscription": subscription, "level": "L1",
        "state": state, "tenant": tenant, "attempts": [], "publish_ts": at, "size": 100,
    } | columns  # fmt: skip


def record(place: str, what: str, at: datetime, tenant: str | None = "u1", age: int = 100, **columns: Any) -> Row:
    """An audit record of `billing`; `what`: done, or the rule a message was moved by."""
    happened = what if what in ("done", "dead", "discarded", "repeated") else "moved"
    return {
        "msg_topic": f"persistent://kodo/trade/{place}", "topic": "orders", "subscription": "billing", "tenant": tenant,
        "event": happened, "rule": what, "age_ms": age, "at_ts": at, "publish_ts": at,
    } | columns  # fmt: skip


def land(landing: Landing, batch: int, events: Iterable[Row], records: Iterable[Row] = (), attempt: str = "a") -> None:
    """One batch that counts from now on."""
    name = f"{batch:09d}-{attempt}"
    tables = {table.name: landing.write_rows(table, name, rows)
              for table, rows in ((EVENTS, list(events)), (TRANSITIONS, list(records)))}  # fmt: skip
    landing.commit(LandingCommit(attempt, 1_800_000_000_000 + batch, batch, tables))
