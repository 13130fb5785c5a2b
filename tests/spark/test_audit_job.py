"""The audit of a landing's tables: from their rows to the document. Cases that share a verdict are ground topics of one audit."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count

import pytest
from kodo_pipeline.audit.job import audit
from kodo_pipeline.audit.judged_rows import LandedTables, RecalledLetter
from kodo_pipeline.audit.positions import LANES
from kodo_pipeline.audit.recalled import WEIGHED, recalled_positions
from kodo_pipeline.evidence.reading_clock import ReadingClock
from kodo_pipeline.landing.tables import COVERAGE, CURSORS, EVENTS, TRANSITIONS

from kodoctl.protocol.properties import FOR, SEQ
from kodoctl.protocol.sequence_numbers import NOBODY
from kodoctl.protocol.signing import Signer
from kodoctl.pulsar.connection.secret import Secret
from kodoctl.topology.names import HOLDER
from tests.unit.topology.topology_files import expanded

FILE = "defaults: {{partitions: 1}}\ntopics:\n{}"
TOPIC = "  {}: {{subscriptions: {{billing: {{states: [retrying], audit: true}}}}}}\n"
SOME_TIME = datetime(2026, 1, 1, tzinfo=UTC)
PUBLISHED = int(SOME_TIME.timestamp() * 1000)
LATER = SOME_TIME.replace(hour=1)
HOUR = PUBLISHED + 3_600_000
KEY = "the key of the platform"
RUN = "0" * 15  # of a producer
pytestmark = pytest.mark.timeout(900)
_numbers = count(1)


def frame(spark, table, rows):
    return spark.createDataFrame([tuple(row.get(name) for name in table.names) for row in rows], table.spark())


@dataclass
class Case:
    """A ground topic of which a message was done, one moved and then done, and one died: the first `records` of that are there."""

    name: str
    records: int = 4
    is_audit_new: bool = False  # `audit: true` since the second run
    letters: list = field(default_factory=list)

    def __post_init__(self):
        self.ready = f"persistent://kodo/trade/{self.name}"
        self.retrying, self.dead, self.audit = (f"{self.ready}-billing-{one}" for one in ("RETRYING", "DLQ", "AUDIT"))
        number = next(_numbers)
        self.topics = dict(zip((self.ready, self.retrying, self.dead, self.audit), count(10 * number), strict=False))
        moved = self.event(self.retrying, "retrying", 0, self.place(self.ready, 1), hop=1)
        dead = self.event(self.dead, "dead", 0, self.place(self.ready, 2), hop=1)
        self.events = [*(self.event(self.ready, "ready", entry) for entry in range(3)), moved, dead]
        self.transitions = [
            self.record(1, self.ready, 0),
            self.record(2, self.ready, 1, "moved", moved),
            self.record(3, self.ready, 2, "dead", dead),
            self.record(4, self.retrying, 0, identity=self.place(self.ready, 1), hop=1),
        ][: self.records]

    def place(self, topic, entry):
        return f"{self.topics[topic]}:{entry}:0:-1"

    def event(self, topic, state, entry, mid=None, **columns):
        place = self.place(topic, entry)
        return {
            "mid": mid or place, "id": place, "msg_topic": topic, "msg_partition": 0, "ledger": self.topics[topic], "entry": entry,
            "batch_index": -1, "topic": self.name, "state": state, "hop": 0, "publish_ts": SOME_TIME,
        } | columns  # fmt: skip

    def record(self, number, topic, entry, kind="done", target=None, **columns):
        place = self.place(topic, entry)
        return {
            "worker_run": f"w-{self.name}", "number": number, "topic": self.name, "subscription": "billing", "msg_topic": topic,
            "id": place, "identity": place, "hop": 0, "event": kind, "rule": kind, "target_topic": target and target["msg_topic"],
            "target_id": target and target["id"],
        } | columns  # fmt: skip

    def settled(self, topic, settled="discarded", **columns):
        """The message in the first entry of the topic was discarded by kodoctl, or sent again."""
        made = RecalledLetter(
            topic, 0, self.topics[topic], 0, -1, PUBLISHED, settled, f"{settled} {topic}", f"{settled} {topic}"
        )
        self.letters.append(made._replace(**columns))
        return self

    def settled_dead(self):
        """Its dead letter was discarded."""
        return self.settled(self.dead)

    def cursors(self):
        for run, entry in (("r1", -1), ("r2", 2)):
            taken = SOME_TIME.replace(minute=int(run[1]))
            names = (self.ready, "billing"), (self.retrying, "billing"), (self.dead, HOLDER), (self.audit, "")
            for topic, name in names:
                mark = -1 if topic == self.audit or (topic == self.dead and run == "r1") else entry
                is_kept = topic == self.audit and not (self.is_audit_new and run == "r1")
                yield {
                    "msg_topic": topic, "msg_partition": 0, "subscription": name, "mark_ledger": self.topics[topic],
                    "mark_entry": mark, "acknowledged": [], "rewrites": 0, "first_ledger": self.topics[topic], "taken_ts": taken,
                    "ingest_run": run, "audit": "wait" if is_kept else None,
                }  # fmt: skip

    def coverage(self):
        for topic, ledger in self.topics.items():
            yield {
                "split_id": topic, "msg_topic": topic, "msg_partition": 0, "first": f"{ledger}:0", "last": f"{ledger}:2",
                "entries_planned": 3, "entries_seen": 3, "full": True, "state": "complete", "ingest_run": "r2",
            }  # fmt: skip


def judged(spark, *cases, keys=None, **columns):
    """The document on all cases at once; `columns` of its tables."""
    rows = {
        EVENTS: [row for one in cases for row in one.events],
        TRANSITIONS: [row for one in cases for row in one.transitions],
        COVERAGE: [row for one in cases for row in one.coverage()],
        CURSORS: [row for one in cases for row in one.cursors()],
    }
    tables = LandedTables(*(frame(spark, table, some) for table, some in rows.items()), **columns)
    expansion = expanded(FILE.format("".join(TOPIC.format(one.name) for one in cases)))
    letters = [letter for one in cases for letter in one.letters]
    return tables, audit(spark, tables, expansion, letters=letters, keys=keys)


def messages(document, name):
    """By their fate."""
    (found,) = [one["messages"] for one in document["subscriptions"] if one["topic"] == name]
    return found


def texts(document, kind):
    return [one["text"] for one in document["reasons"] if one["kind"] == kind]


def newer():
    """A message is open that was published an hour after the reading."""
    found = Case("newer").settled_dead()
    found.events.append(found.event(found.ready, "ready", 3, publish_ts=LATER))
    return found


def signed():
    """A producer, which signs, sent three messages, and two are there."""
    found, run = Case("signed", records=0), {"seq_run": RUN, "seq_partition": 0}
    said = {SEQ: f"{RUN}:0:high=3:end", FOR: NOBODY}
    properties = Signer([KEY]).signed(found.ready, b"", said)
    mark = found.event(
        found.ready, "ready", 2, **run, seq_high=3, seq_end=True, for_subscription=NOBODY, size=0, properties=properties
    )
    found.events = [
        *(found.event(found.ready, "ready", entry, **run, seq_number=entry + 1) for entry in range(2)),
        mark,
    ]
    found.transitions = [found.record(entry + 1, found.ready, entry) for entry in range(2)]
    found.transitions.append(found.record(3, found.ready, 2, "skipped"))
    return found


@pytest.fixture(scope="module")
def lost(spark):
    """(cases by name, tables, document) of losses, by who has the keys, of a landing whose last run was cut short."""
    released = Case("released", records=3).settled_dead()
    there = {"lane_topic": released.retrying, "lane_part": 0, "receipt": f"{released.topics[released.retrying]}:1"}
    released.settled(released.retrying, "sent", sending="r 1 lane", recall_id="w", **there)
    copy = released.event(released.retrying, "retrying", 1, released.place(released.ready, 1), hop=1)
    released.events.append(copy | {"recall": "w"})
    elsewhere = Case("elsewhere")
    elsewhere.settled(elsewhere.dead, published=PUBLISHED + 1)  # the same place of another cluster
    cases = {one.name: one for one in (Case("removed", records=3), elsewhere, released, signed(), newer())}
    return cases, *judged(spark, *cases.values(), keys=Secret(KEY), landed_at=HOUR + 1000)


@pytest.fixture(scope="module")
def doubted(spark):
    """The document on what nobody can prove, without the keys."""
    late = Case("late").settled_dead()
    late.events[2] |= {"publish_ts": LATER}
    began = Case("began", records=3, is_audit_new=True).settled_dead()
    return judged(spark, began, late, newer(), signed())[1]


def test_what_was_done_or_discarded_is_no_loss(spark):
    """Also a letter beside one that waited, and one of a level that is the backup of another, whose record is missing."""
    waiting, backup = Case("waiting", records=3).settled_dead(), Case("backup").settled_dead()
    waiting.settled(waiting.retrying)
    backup.settled(backup.ready, holder="billing")
    backup.transitions = [row | {"number": number} for number, row in enumerate(backup.transitions[1:], 1)]
    found = judged(spark, Case("all").settled_dead(), waiting, backup)[1]
    assert (found["verdict"], found["reasons"]) == ("no loss", [])
    assert messages(found, "all") == {"discarded": 1, "done": 2}
    assert messages(found, "waiting") == {"discarded": 2, "done": 1}
    assert messages(found, "backup") == {"discarded": 2, "done": 1}


def test_what_nobody_answers_for_is_lost(lost):
    cases, _, found = lost
    assert found["verdict"] == "loss"
    assert messages(found, "elsewhere") == {"done": 2, "lost": 1}
    assert "elsewhere / billing: 1 message lost" in texts(found, "lost")
    removed, released = cases["removed"], cases["released"]
    named = [(one["fate"], one["topic"], one["msg_topic"], one["id"]) for one in found["findings"]]
    assert [one for one in named if one[1] == "removed"] == [
        ("lost", "removed", removed.dead, removed.place(removed.dead, 0)),
        ("lost", "removed", removed.retrying, removed.place(removed.retrying, 0)),
    ]
    assert [one for one in named if one[1] == "released"] == [
        ("lost", "released", released.retrying, released.place(released.retrying, 1))
    ], "its copy was acknowledged without a record"


def test_queries_show_the_messages_and_the_records_behind_findings(spark, lost):
    cases, tables, found = lost
    tables.events.createOrReplaceTempView("events")
    tables.transitions.createOrReplaceTempView("transitions")
    queries = [one for one in found["sql"] if f"'{cases['removed'].ready}-" in one]
    assert [spark.sql(query).count() for query in queries] == [1, 1, 1, 1]


@pytest.mark.full
def test_what_was_acknowledged_before_anybody_knew_that_its_record_would_be_there_is_a_doubt(doubted):
    assert doubted["verdict"] == "inconclusive"
    assert messages(doubted, "began") == {"discarded": 1, "done": 1, "unproved": 1}
    assert texts(doubted, "unproved") == ["began / billing: 1 message acknowledged, not proved done"]


def test_of_a_lane_that_all_subscriptions_read_only_what_was_done_for_the_own_one_counts(spark):
    ready = Case("orders").ready
    place = {"msg_topic": ready, "msg_partition": 0, "ledger": 7, "entry": 0, "batch_index": -1}
    letter = RecalledLetter(**place, published=1, settled="discarded", recall_id="b", sending="b")
    rows = [
        (*letter._replace(ledger=ledger, holder=holder), True, False)
        for ledger, holder in ((7, "billing"), (8, "mail"), (9, ""))
    ]
    names = [field.name for field in spark.createDataFrame([], LANES).schema]
    lanes = [
        {"lane": at, "family": at, "msg_topic": ready, "msg_partition": 0, "subscription": name, "state": "ready"}
        for at, name in enumerate(("billing", "mail"))
    ]
    table = spark.createDataFrame([tuple(lane.get(name) for name in names) for lane in lanes], LANES)
    found = recalled_positions(spark.createDataFrame(rows, WEIGHED), table).where("discarded")
    assert sorted((row["lane"], row["ledger"]) for row in found.collect()) == [(0, 7), (1, 8)]


def test_marks_of_producers_who_sign_prove_a_loss_to_who_has_the_keys_and_a_doubt_to_others(lost, doubted):
    def reasons(document):
        return [(one["proves"], one["text"]) for one in document["reasons"] if "producer run" in one["text"]]

    run = f"{lost[0]['signed'].ready}-partition-0, producer run {RUN}"
    assert reasons(lost[2]) == [("loss", f"{run}: 1 message sent and stored nowhere")]
    [(proves, text)] = reasons(doubted)
    assert proves == "inconclusive"
    assert text.startswith(f"{run}: 1 number missing, by marks whose signature was not verified")
    assert "KODO_CONSUMER_SIGNING_KEYS" in text


@pytest.mark.full
def test_an_open_message_that_was_published_after_the_reading_is_a_doubt_and_one_of_a_later_run_is_none(
    spark, lost, doubted
):
    (text,) = texts(doubted, "clock")
    topic, _, said = text.partition(": ")
    assert topic.startswith("persistent://")
    assert said.startswith("1 open message with a publish time after the reading"), "of one that is done nobody asks it"
    assert "a producer's clock is ahead" in said, "no worker moved it"
    assert not texts(lost[2], "clock"), "a run that was cut short landed it"
    (text,) = texts(judged(spark, newer(), landed_at=HOUR + 1000, clock=ReadingClock(None))[1], "clock")
    assert text.startswith("the cluster's clock is unknown")
