"""Made-up landings: traffic as literal rows, written as an ingest writes them, for whatever reads a landing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count, groupby
from pathlib import Path

from kodo_pipeline.evidence.reading_clock import ReadingClock
from kodo_pipeline.landing.landing_commits import LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.tables import COVERAGE, CURSORS, EVENTS, TRANSITIONS

from kodoctl.topology.expand import Expansion, FamilyTopic
from kodoctl.topology.names import HOLDER, Level, State

BEGIN = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)
RUN = "w-1"


@dataclass
class Traffic:
    """What happens on the one ground topic of a topology, for its one subscription. Times are seconds since BEGIN; every lane
    has one partition. All that is stored is acknowledged, unless it `waits`.
    """

    expansion: Expansion
    events: list[dict] = field(default_factory=list)
    transitions: list[dict] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.entries: Counter[str] = Counter()
        self.open: dict[str, set[int]] = {}
        self.numbers = count(1)
        (self.ground, spec), *_ = self.expansion.topology.spec.topics.items()
        (self.subscription,) = spec.subscriptions

    def topic(self, state: State | None, level: Level | None = None) -> FamilyTopic:
        """One of the family."""
        return next(one for one in self.expansion.topics if (one.state, one.level) == (state, level))

    def ledger(self, topic: FamilyTopic) -> int:
        """Each topic has one."""
        return 7 + self.expansion.topics.index(topic)

    def store(
        self, at: float, tenant: str, *, state=State.READY, level=Level.L1, of=None, waits=False, keep=True, **columns
    ) -> dict:
        """A message, or with `of` its next hop; `keep=False`: removed before anybody reads it."""
        topic = self.topic(state, None if state is State.DEAD else level)
        name, ledger = topic.name.full, self.ledger(topic)
        entry = self.entries[name]
        self.entries[name] += keep
        place = f"{ledger}:{entry}:0:-1"
        row = {
            "mid": of["mid"] if of else place, "id": place, "msg_topic": name, "msg_partition": 0, "ledger": ledger,
            "entry": entry, "batch_index": -1, "topic": self.ground, "level": topic.level and topic.level.value,
            "state": state.value, "subscription": topic.subscription, "tenant": tenant, "hop": of["hop"] + 1 if of else 0,
            "attempts": [("retrying", 1)] if state is State.RETRYING else [], "size": 10,
            "publish_ts": BEGIN + timedelta(seconds=at),
        } | columns  # fmt: skip
        if keep:
            self.events.append(row)
        if waits or state is State.DEAD:
            self.open.setdefault(name, set()).add(entry)
        return row

    def record(self, at: float, message: dict, event="done", to=None, *, rule=None, reason=None) -> dict:
        """What the worker says of it."""
        first = next((one for one in self.events if one["id"] == message["mid"]), message)
        stored = (first["publish_ts"] - BEGIN).total_seconds()
        self.transitions.append(
            {
                "worker_run": RUN, "number": next(self.numbers), "topic": self.ground, "subscription": self.subscription,
                "at_ts": BEGIN + timedelta(seconds=at), "msg_topic": message["msg_topic"], "id": message["id"],
                "identity": message["mid"], "hop": message["hop"], "event": event, "rule": rule or event,
                "target_topic": to and to["msg_topic"], "target_id": to and to["id"], "reason": reason,
                "tenant": message["tenant"], "age_ms": round(1000 * (at - stored)),
            }
        )  # fmt: skip
        return message

    def done(self, at: float, tenant: str, took: float = 0.1, **columns) -> dict:
        """One message stored and done."""
        return self.record(at + took, self.store(at, tenant, **columns))

    def move(self, at: float, message: dict, to: State, *, rule=None, reason=None, **columns) -> dict:
        """The worker moves it on."""
        there = self.store(at, message["tenant"], state=to, of=message, reason=reason, **columns)
        event = "dead" if to is State.DEAD else "moved"
        self.record(at, message, event, there, rule=rule or (event if event == "dead" else to.value), reason=reason)
        return there

    def land(self, folder: Path, ended: float, *, runs: int = 2) -> Landing:
        """Two runs: one that found nothing yet, one that read everything. `runs=1`: the first one only, and cut off."""
        landing = Landing(str(folder), self.expansion.name, self.expansion.topology.environment)
        for run, at in [("r1", -1.0), ("r2", ended)][:runs]:
            now = BEGIN + timedelta(seconds=at)
            ms = int(now.timestamp() * 1000)
            cursors = landing.write_rows(CURSORS, run, list(self._cursors(run, now)))
            landing.commit(LandingCommit(run, ms, tables={CURSORS.name: cursors}, facts=ReadingClock().to_facts()))
            if run == "r2":
                rows = {EVENTS: self.events, TRANSITIONS: self.transitions, COVERAGE: list(self._coverage(run))}
                parts = {
                    table.name: landing.write_rows(table, f"{0:09d}-{run}", found) for table, found in rows.items()
                }
                landing.commit(LandingCommit(run, ms, 0, parts))
            if runs == 2:
                landing.commit(LandingCommit(f"{run}-end", ms, facts={"complete": True}))
        return landing

    def _cursors(self, run: str, now: datetime):
        for topic in self.expansion.topics:
            fixed = {"created_ts": BEGIN, "rewrites": 0, "taken_ts": now, "ingest_run": run}
            if topic.state is None:
                yield {
                    "msg_topic": topic.name.full, "msg_partition": 0, "topic": topic.ground, "subscription": "",
                    "mark_ledger": self.ledger(topic), "mark_entry": -1, "acknowledged": [],
                    "first_ledger": self.ledger(topic), "audit": "wait",
                } | fixed  # fmt: skip
            else:
                ledger, last = self.ledger(topic), self.entries[topic.name.full] - 1
                held = self.open.get(topic.name.full, set()) if run == "r2" else set(range(last + 1))
                mark = min(held, default=last + 1) - 1
                yield {
                    "msg_topic": topic.name.full, "msg_partition": 0, "topic": topic.ground,
                    "subscription": HOLDER if topic.state is State.DEAD else self.subscription, "mark_ledger": ledger,
                    "mark_entry": mark, "acknowledged": list(_ranges(ledger, set(range(mark + 1, last + 1)) - held)),
                    "first_ledger": ledger,
                } | fixed  # fmt: skip

    def _coverage(self, run: str):
        for topic in self.expansion.topics:
            ledger = self.ledger(topic)
            entries = self.entries[topic.name.full] if topic.state is not None else 1
            if entries:
                yield {
                    "split_id": topic.name.full, "msg_topic": topic.name.full, "msg_partition": 0, "first": f"{ledger}:0",
                    "last": f"{ledger}:{entries - 1}", "entries_planned": entries, "entries_seen": entries, "rows": entries,
                    "full": True, "state": "complete", "ingest_run": run,
                }  # fmt: skip


def _ranges(ledger: int, entries: set[int]):
    for _, found in groupby(enumerate(sorted(entries)), key=lambda one: one[1] - one[0]):
        numbers = [entry for _, entry in found]
        yield {"ledger": ledger, "first": numbers[0], "last": numbers[-1]}
