"""Small worlds for the audit, as literal rows: a ground topic with one subscription, its lanes, and what happened there."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any, cast

from kodo_pipeline.evidence.audit_evidence import PartitionCoverage, SequenceGap, SubscriptionTotals
from kodo_pipeline.evidence.reading_clock import ReadingClock
from kodo_pipeline.report.report_tables import waiting

from kodoctl.protocol.properties import FOR, SEQ
from kodoctl.protocol.sequence_numbers import NOBODY
from kodoctl.protocol.signing import Signer

NOW = 1_700_000_000_000
MINUTE = 60_000
LAST = 99  # entry up to which every lane was read
EVENTS = """msg_topic string, msg_partition int, ledger bigint, entry bigint, batch_index int, mid string, kodo_id string,
  state string, hop int, recall string, for_subscription string, seq_run string, seq_partition int, seq_number bigint,
  seq_high bigint, seq_void array<struct<first: bigint, last: bigint>>, seq_end boolean, publish_ts timestamp, size bigint,
  properties map<string,string>"""
TRANSITIONS = """worker_run string, number bigint, topic string, subscription string, msg_topic string, id string, identity string, hop int,
  event string, rule string, target_topic string, target_id string"""
_numbers = count()


@dataclass(frozen=True)
class Message:
    """Where it is stored. `mid` and `identity` are the same on all its hops."""

    topic: str
    id: str
    mid: str
    identity: str
    hop: int
    ledger: int
    entry: int
    batch: int


@dataclass
class World:
    """One ground topic, one subscription. Lanes by state; all that is stored is acknowledged unless `open_from` says so."""

    name: str
    mode: str = "wait"
    events: list = field(default_factory=list)
    transitions: list = field(default_factory=list)
    letters: list = field(default_factory=list)
    marks: dict = field(default_factory=dict)  # state -> (mark, ranges); None: no cursor
    lane: dict = field(default_factory=dict)  # state -> other columns of its lane
    parts: list = field(default_factory=list)
    others: tuple = ()  # further subscriptions of the ready topic
    firm: bool = True
    clock: ReadingClock = field(default_factory=ReadingClock)
    keys: str = ""  # what producers sign with, and the audit knows

    def __post_init__(self):
        self.family = next(_numbers)
        self.parts = [PartitionCoverage(f"persistent://t/n/{self.name}", 0, 1, 1)]
        self._entries = {"ready": count(), "retrying": count(), "dead": count()}
        self._numbers = count(1)

    def topic(self, state):
        return f"persistent://t/n/{self.name}" + ("" if state == "ready" else f"-billing-{state.upper()}")

    def ledger(self, state):
        return 100 * (self.family + 1) + ["ready", "retrying", "dead"].index(state)

    def store(self, state="ready", of=None, *, mid=None, kodo_id=None, age=MINUTE, keep=True, batch=-1, **columns):
        """A message is stored; `keep=False`: and removed before anybody reads it."""
        ledger, entry = self.ledger(state), next(self._entries[state])
        place = f"{ledger}:{entry}:0:{batch}"
        mid = mid or (of.mid if of else place)
        identity = kodo_id or (of.identity if of else mid)
        found = Message(self.topic(state), place, mid, identity, of.hop + 1 if of else 0, ledger, entry, batch)
        if keep:
            row = {
                "msg_topic": found.topic, "msg_partition": 0, "ledger": ledger, "entry": entry, "batch_index": batch, "mid": mid,
                "kodo_id": identity if identity != mid else None, "state": state, "hop": found.hop, "recall": None,
                "for_subscription": None, "seq_run": None, "seq_partition": None, "seq_number": None, "seq_high": None,
                "seq_void": None, "seq_end": None,
                "publish_ts": datetime.fromtimestamp((NOW - age) / 1000, UTC), "size": 1, "properties": {},
            } | columns  # fmt: skip
            self.events.append(row)
        return found

    def record(self, message, event="done", to=None, *, run="w-1", number=None, **columns):
        """A worker records what it did with a message."""
        self.transitions.append(
            {
                "worker_run": f"{self.name}-{run}", "topic": self.name, "number": next(self._numbers) if number is None else number,
                "subscription": "billing", "msg_topic": message.topic, "id": message.id, "identity": message.identity,
                "hop": message.hop, "event": event, "rule": event, "target_topic": to.topic if to else "",
                "target_id": to.id if to else "",
            } | columns
        )  # fmt: skip
        return message

    def move(self, message, to="retrying", *, event="moved", keep=True, batch=-1, **columns):
        """A worker moves it and records that."""
        there = self.store(to, message, keep=keep, batch=batch)
        self.record(message, event, there, **columns)
        return there

    def done(self, **columns):
        """One message that is stored and done."""
        return self.record(self.store(**columns))

    def number(self, number, **columns):
        """A message with a producer's number, done."""
        return self.done(seq_run=f"{self.name}-p", seq_partition=0, seq_number=number, **columns)

    def mark(self, high, void=(), *, end=False, by="", run="p", of="", **columns):
        """A mark, skipped by the worker. `by`: the key it is signed with; `of`: a state, for whose topic it was signed."""
        ranges = [{"first": first, "last": last} for first, last in void]
        properties = {SEQ: f"{high} {ranges} {end}", FOR: NOBODY}
        if by:
            properties = Signer([by]).signed(self.topic(of or "ready"), b"", properties)
        message = self.store(
            for_subscription=NOBODY,
            seq_run=f"{self.name}-{run}",
            seq_partition=0,
            seq_high=high,
            seq_void=ranges,
            seq_end=end,
            **{"size": 0, "properties": properties, **columns},
        )
        self.record(message, "skipped")

    def recall(self, letter, *copies, keep=True, known=True, **columns):
        """A dead letter is sent by kodoctl and let go with its copies; `known=False`: its broker had it, nobody could read where."""
        there = self.store("retrying", mid=letter.mid, keep=keep, recall=f"recall of {letter.id}", **columns)
        where = f"recall of {letter.id}", there.topic, 0, f"{there.ledger}:{there.entry}" if known else "", ""
        for one in (letter, *copies):
            self._book(one, "sent", where)
        return there

    def discard(self, letter, **columns):
        """A dead letter is thrown away by kodoctl."""
        self._book(letter, "discarded", ("", "", -1, "", ""), **columns)

    def _book(self, letter, settled, where, published=NOW - MINUTE):
        place = letter.topic, 0, letter.ledger, letter.entry, letter.batch
        self.letters.append((*place, published, settled, f"recall of {letter.id}", *where))
        self.marks["dead"] = ((self.ledger("dead"), LAST), [])

    def unacknowledged(self, state, message):
        """Its cursor stands before this message, and has acknowledged everything behind it."""
        behind = {"ledger": message.ledger, "first": message.entry + 1, "last": LAST}
        self.marks[state] = ((message.ledger, message.entry - 1), [behind])

    def lanes(self):
        """Rows of kodo_pipeline.audit.positions.LANES."""
        for at, state in enumerate(("ready", "retrying", "dead")):
            default = ((self.ledger(state), -1 if state == "dead" else LAST), [])
            mark, ranges = self.marks.get(state, default) or ((None, None), None)
            row = {
                "lane": 3 * self.family + at, "family": self.family, "topic": self.name, "msg_topic": self.topic(state),
                "msg_partition": 0, "subscription": "billing", "state": state, "mark_ledger": mark[0], "mark_entry": mark[1],
                "acknowledged": ranges, "aged_ledger": None, "aged_entry": None, "started_ledger": None, "started_entry": None, "proven_ranges": [], "first_ledger": None, "first_entry": None,
                "last_ledger": self.ledger(state), "last_entry": LAST, "stored_ledger": self.ledger(state), "stored_entry": LAST, "covered": True, "proved": self.mode == "wait",
                "recorded": self.mode == "wait", "horizon": 10 * MINUTE, "read_at": NOW,
            }  # fmt: skip
            yield row | self.lane.get(state, {})
            if state == "ready":
                for number, name in enumerate(self.others):
                    family = 1_000 * (number + 1) + self.family
                    yield row | {"subscription": name, "family": family, "lane": 3 * family}

    def tally(self, fates, missing, contradictions):
        return SubscriptionTotals(self.name, "billing", cast("Any", self.mode), fates, missing, contradictions)

    def gap(self, partition, run, missing, told, claimed):
        return SequenceGap(self.topic("ready"), partition, run, missing, told, self.firm, claimed - told)


def waiting_of(judged):
    """What waits in each lane, as a page has it, of an AuditResult."""
    lanes = waiting(judged.verdicts, judged.lanes, 0, judged.rows.dead_letters)
    return sorted(lanes, key=lambda one: (one["msg_topic"], one["subscription"]))
