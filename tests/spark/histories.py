"""Random histories of several topics, landed in random batches: what brokers, workers and producers do in the course of things,
and what they should not.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from kodo_pipeline.audit.judged_rows import RecalledLetter
from kodo_pipeline.evidence.reading_clock import ReadingClock
from kodo_pipeline.landing.landing_commits import LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.tables import COVERAGE, CURSORS, EVENTS, TRANSITIONS

from kodoctl.protocol.sequence_numbers import NOBODY
from kodoctl.topology.expand import Expansion, expand
from kodoctl.topology.load import load_topology
from kodoctl.topology.names import HOLDER, Level, State

BEGIN = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)
FILE = """
version: 1
name: histories
tenant: kodo
namespace: trade
defaults: {partitions: 1}
topics:
  plain: {subscriptions: {billing: {states: [retrying], audit: true}}}
  shared: {subscriptions: {billing: {states: [retrying], audit: true}, mail: {audit: true}}}
  loose: {subscriptions: {billing: {states: [retrying], audit: best_effort}}}
"""


def topology_of(file: str) -> Expansion:
    """What is in it."""
    return expand(load_topology(file))


@dataclass
class Lane:
    """One partition of a topic: `stored` positions, `acknowledged` ones by subscription, `gone` before they were read."""

    topic: Any
    ledger: int
    entry: int = 0
    stored: list = field(default_factory=list)
    acknowledged: dict = field(default_factory=dict)
    gone: set = field(default_factory=set)
    read: int = 0
    first: int = 0

    @property
    def name(self):
        return self.topic.name.full

    def unload(self):
        self.ledger, self.entry = self.ledger + 1000, 0

    def store(self):
        self.stored.append((self.ledger, self.entry))
        self.entry += 1
        return self.stored[-1]


@dataclass
class Message:
    """A stored message, and for which subscriptions it is open."""

    row: dict
    lane: Lane
    position: tuple
    open_for: set


class History:
    """What happens, and how it lands. `calm`: nothing is said of a message that is acknowledged; `recalls`: dead letters are
    sent again, or discarded.
    """

    def __init__(
        self, expansion: Expansion, landing: Landing, seed: int, *, calm: bool = False, recalls: bool = True
    ) -> None:
        self.expansion, self.landing, self.random = expansion, landing, random.Random(seed)
        self.calm, self.recalls = calm, recalls
        self.lanes = {}
        for at, topic in enumerate(expansion.topics):
            if topic.state is not State.READY or topic.level is Level.L1:
                lane = Lane(topic, 10 + at, first=10 + at)
                self.lanes[topic.ground, topic.state, topic.subscription] = lane
        self.now, self.run, self.batch = BEGIN, 0, 0
        self.messages: list[Message] = []
        self.events, self.records = [], []  # not landed yet
        self.kept: list[dict] = []  # records so far
        self.letters: list[RecalledLetter] = []
        self.numbers: dict[str, int] = {}
        self.sent: dict[str, int] = {}
        self.done: list[tuple[Message, str]] = []
        self.look("r0")
        self.end("r0")

    def chance(self, often: float) -> bool:
        return self.random.random() < often

    def subscriptions(self, ground):
        return list(self.expansion.topology.spec.topics[ground].subscriptions)

    # what happens

    def store(self, ground, state=State.READY, subscription=None, of=None, **columns):
        lane = self.lanes[ground, state, subscription]
        if self.chance(0.03):
            lane.unload()
        ledger, entry = lane.store()
        place = f"{ledger}:{entry}:0:-1"
        self.now += timedelta(milliseconds=self.random.randrange(1, 900))
        row = {
            "mid": of.row["mid"] if of else place, "id": place, "kodo_id": of and of.row["kodo_id"], "msg_topic": lane.name,
            "msg_partition": 0, "ledger": ledger, "entry": entry, "batch_index": -1, "topic": ground, "state": state.value,
            "subscription": subscription, "hop": of.row["hop"] + 1 if of else 0, "attempts": [], "size": 10,
            "publish_ts": self.now,
        } | columns  # fmt: skip
        readers = {subscription} if subscription else set(self.subscriptions(ground))
        message = Message(row, lane, (ledger, entry), readers)
        if self.chance(0.01):
            lane.gone.add((ledger, entry))  # trimmed before anybody read it
        else:
            self.events.append(row)
        self.messages.append(message)
        return message

    def send(self, ground):
        columns: dict[str, Any] = {}
        if self.chance(0.6):
            columns["kodo_id"] = f"order-{self.random.randrange(10**9)}"
        old = [one for one in self.messages if one.row["kodo_id"] and one.row["topic"] == ground]
        if old and self.chance(0.01 if self.calm else 0.03):  # its producer sends it again
            recent = [one for one in old if one.open_for] if self.calm else old
            columns["kodo_id"] = self.random.choice(recent or [self.messages[-1]]).row["kodo_id"]
        if self.chance(0.8):
            run = f"{ground}-p"
            self.sent[run] = self.sent.get(run, 0) + self.random.choices([1, 2, 0], [95, 3, 2])[0]
            if self.sent[run]:
                columns |= {"seq_run": run, "seq_partition": 0, "seq_number": self.sent[run]}
        if self.chance(0.05):
            columns["for_subscription"] = self.random.choice(["billing", "nobody"])
        if self.chance(0.02):
            columns["mid"] = (
                self.random.choice(self.messages).row["mid"] if self.messages and not self.calm else "9:9:9:9"
            )
        return self.store(ground, **columns)

    def mark(self, ground):
        run = f"{ground}-p"
        if self.sent.get(run):
            high = self.sent[run]
            void = [{"first": max(1, high - 1), "last": high - 1}] if high > 1 and self.chance(0.3) else []
            self.store(
                ground, for_subscription=NOBODY, seq_run=run, seq_partition=0, seq_high=high, seq_void=void,
                seq_end=self.chance(0.1), size=0,
            )  # fmt: skip

    def record(self, message, subscription, event, target=None, **columns):
        run = f"w-{subscription}-{message.row['topic']}"
        self.numbers[run] = self.numbers.get(run, 0) + (2 if self.chance(0.01) else 1)
        identity = message.row["kodo_id"] or message.row["mid"]
        row = {
            "worker_run": run, "number": self.numbers[run], "topic": message.row["topic"], "subscription": subscription,
            "at_ts": self.now, "msg_topic": message.lane.name, "id": message.row["id"], "identity": identity,
            "hop": message.row["hop"], "event": event, "rule": event, "target_topic": target and target.lane.name,
            "target_id": target and target.row["id"],
        } | columns  # fmt: skip
        self.records.append(row)
        self.kept.append(row)

    def acknowledge(self, message, subscription):
        name = HOLDER if message.lane.topic.state is State.DEAD else subscription
        message.lane.acknowledged.setdefault(name, set()).add(message.position)
        message.open_for.discard(subscription)

    def work(self, message, subscription):
        """What a worker, or somebody else, does with an open message."""
        ground, state = message.row["topic"], message.lane.topic.state
        if state is State.DEAD:
            if self.recalls:
                self.recall(message, subscription)
            return
        meant = message.row.get("for_subscription")
        kinds = {
            "done": 70,
            "moved": 10,
            "dead": 4,
            "discarded": 3,
            "skip": 2,
            "half": 5,
            "transferred": 3,
            "lose": 2,
            "open": 6,
        }
        kind = self.random.choices(list(kinds), list(kinds.values()))[0]
        if meant not in (None, subscription) and state is State.READY:
            kind = "skipped"
        retrying = (ground, State.RETRYING, subscription) in self.lanes
        match kind:
            case "moved" if retrying:
                self.record(message, subscription, "moved", self.store(ground, State.RETRYING, subscription, message))
            case "dead":
                self.record(message, subscription, "dead", self.store(ground, State.DEAD, subscription, message))
            case "transferred":
                other = self.random.choice(["plain", "shared"])
                self.record(message, subscription, "transferred", self.store(other))
            case "half":  # a crash before its acknowledgement
                self.record(message, subscription, "done")
                return
            case "open" | "skip":
                return
            case "lose":
                if self.chance(0.5) and retrying:  # moved, and its record is missing
                    self.store(ground, State.RETRYING, subscription, message)
            case "discarded" | "skipped":
                self.record(message, subscription, kind)
            case _:
                self.record(message, subscription, "done")
        self.acknowledge(message, subscription)
        self.done.append((message, subscription))

    def recall(self, letter, subscription):
        """What happens to a dead letter."""
        kind = self.random.choices(["stay", "sent", "discarded", "let go", "lost in its lane"], [60, 20, 10, 4, 3])[0]
        if kind == "stay":
            return
        row = letter.row
        recall_id = f"recall of {row['msg_topic']} {row['id']}"
        ledger, entry = letter.position
        place = (row["msg_topic"], 0, ledger, entry, -1, int(row["publish_ts"].timestamp() * 1000))
        if kind == "discarded":
            self.letters.append(RecalledLetter(*place, "discarded", recall_id, recall_id))
        elif kind != "let go":
            ground = row["topic"]
            state = State.RETRYING if (ground, State.RETRYING, subscription) in self.lanes else None
            if state is None:
                return
            copy = self.store(ground, state, subscription, recall=recall_id, mid=row["mid"], kodo_id=row["kodo_id"])
            receipt = f"{copy.position[0]}:{copy.position[1]}" if self.chance(0.8) else ""
            there = {"lane_topic": copy.lane.name, "lane_part": 0, "receipt": receipt}
            self.letters.append(RecalledLetter(*place, "sent", recall_id, recall_id, **there))
            if kind == "lost in its lane":
                self.acknowledge(copy, subscription)
        self.acknowledge(letter, subscription)

    def mischief(self):
        """What is seldom, and says more of what is settled."""
        settled = [one for one in self.done if not one[0].open_for]
        kind = self.random.choice(["late", "repeat", "forged", "future", "reset", "letter", "named"])
        some = self.random.choice(settled) if settled else None
        match kind:
            case "late" if some:
                self.record(*some, self.random.choice(["done", "discarded"]))
            case "repeat" if self.kept:
                self.records.append(dict(self.random.choice(self.kept)))
            case "forged" if some:
                self.record(
                    *some, "done", identity="somebody else", worker_run=f"forged-{self.random.randrange(99)}", number=1
                )
            case "future" if some:
                self.record(
                    *some, "moved", target_topic=some[0].lane.name, target_id=f"{some[0].lane.ledger}:99999:0:-1"
                )
            case "named" if some:
                self.record(
                    *some,
                    "moved",
                    target_topic=some[0].lane.name,
                    target_id=self.random.choice(self.messages).row["id"],
                )
            case "letter" if some:
                row = some[0].row
                ledger, entry = some[0].position
                place = (
                    row["msg_topic"],
                    0,
                    ledger,
                    entry,
                    -1,
                    int(row["publish_ts"].timestamp() * 1000) + self.random.choice([0, 1]),
                )
                self.letters.append(RecalledLetter(*place, "discarded", f"letter of {row['id']}", "x"))
            case "reset":
                lane = self.random.choice(list(self.lanes.values()))
                for names in lane.acknowledged.values():
                    names -= {one for one in names if self.chance(0.2)}

    def act(self, count):
        """Some of everything."""
        for _ in range(count):
            ground = self.random.choice(["plain", "plain", "shared", "loose"])
            self.send(ground)
            if self.chance(0.05):
                self.mark(ground)
        for message in list(self.messages):
            for subscription in sorted(message.open_for):
                if self.chance(0.75 if message.lane.topic.state is not State.DEAD else 0.1):
                    self.work(message, subscription)

    # how it lands

    def step(self, count, *, mischief=0):
        """Some traffic, and a run that lands it in one or several batches, or is cut off."""
        self.act(count)
        for _ in range(mischief):
            self.mischief()
        self.run += 1
        run = f"r{self.run}"
        self.look(run)
        if self.chance(0.5):
            self.act(count // 10)  # while it is read
        cut_off = self.chance(0.15)
        for last in range(self.random.choice([1, 2]), 0, -1):
            self.land(run, last == 1 and not cut_off)
        if not cut_off:
            self.end(run)

    def at(self):
        return int(self.now.timestamp() * 1000) + self.run

    def look(self, run):
        rows = []
        for lane in self.lanes.values():
            topic = lane.topic
            fixed = {
                "msg_topic": lane.name, "msg_partition": 0, "topic": topic.ground, "first_ledger": lane.first, "created_ts": BEGIN,
                "rewrites": 0, "taken_ts": datetime.fromtimestamp(self.at() / 1000, UTC), "ingest_run": run, "acknowledged": [],
                "audit": None if topic.state is not None else ("best_effort" if topic.ground == "loose" else "wait"),
            }  # fmt: skip
            last = lane.stored[-1] if lane.stored else (lane.first, -1)
            rows.append(fixed | {"subscription": "", "mark_ledger": last[0], "mark_entry": last[1]})
            if topic.state is None:
                continue
            names = (
                [HOLDER]
                if topic.state is State.DEAD
                else [topic.subscription]
                if topic.subscription
                else self.subscriptions(topic.ground)
            )
            rows += [fixed | {"subscription": name} | cursor(lane, name) for name in names]
        cursors = self.landing.write_rows(CURSORS, run, rows)
        self.landing.commit(
            LandingCommit(run, self.at(), tables={CURSORS.name: cursors}, facts=ReadingClock().to_facts())
        )

    def land(self, run, everything):
        """A batch: of every partition what was stored so far, or a part of that."""
        coverage, cut = [], {}
        for lane in self.lanes.values():
            if lane.topic.state is None and not lane.stored:
                lane.store()
            until = len(lane.stored) if everything else self.random.randint(lane.read, len(lane.stored))
            cut[lane.name] = set(lane.stored[lane.read : until])
            for ledger, places in groupby(lane.stored[lane.read : until], key=lambda one: one[0]):
                entries = [entry for _, entry in places]
                missing = sum((ledger, entry) in lane.gone for entry in entries)
                coverage.append(
                    {
                        "split_id": f"{lane.name} {ledger}:{entries[0]}", "msg_topic": lane.name, "msg_partition": 0,
                        "first": f"{ledger}:{entries[0]}", "last": f"{ledger}:{entries[-1]}", "entries_planned": len(entries),
                        "entries_seen": len(entries) - missing, "full": not missing, "state": "complete" if not missing else "timeout",
                        "ingest_run": run,
                    }
                )  # fmt: skip
            lane.read = until
        now = [one for one in self.events if (one["ledger"], one["entry"]) in cut[one["msg_topic"]]]
        self.events = [one for one in self.events if (one["ledger"], one["entry"]) not in cut[one["msg_topic"]]]
        records = len(self.records) if everything else self.random.randint(0, len(self.records))
        told, self.records = self.records[:records], self.records[records:]
        name = f"{self.batch:09d}-{run}"
        rows = {EVENTS: now, TRANSITIONS: told, COVERAGE: coverage}
        parts = {table.name: self.landing.write_rows(table, name, found) for table, found in rows.items()}
        self.landing.commit(LandingCommit(run, self.at(), self.batch, parts))
        self.batch += 1

    def end(self, run):
        self.landing.commit(LandingCommit(f"{run}-end", self.at(), facts={"complete": True}))


def cursor(lane, name):
    """Its mark, and what is acknowledged behind it."""
    known = lane.acknowledged.get(name, set())
    before = next((at for at, one in enumerate(lane.stored) if one not in known), len(lane.stored))
    mark = lane.stored[before - 1] if before else (lane.first, -1)
    rest = sorted(one for one in lane.stored[before:] if one in known)
    ranges = []
    for ledger, entry in rest:
        if ranges and (ranges[-1]["ledger"], ranges[-1]["last"] + 1) == (ledger, entry):
            ranges[-1]["last"] = entry
        else:
            ranges.append({"ledger": ledger, "first": entry, "last": entry})
    return {"mark_ledger": mark[0], "mark_entry": mark[1], "acknowledged": ranges}
