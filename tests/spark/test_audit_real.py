"""From a real consumer's traffic to the verdict: no loss, and whatever removes messages behind its back is found."""

from __future__ import annotations

import time
from contextlib import closing

import pulsar
import pytest

from kodoctl.errors import KodoctlError
from kodoctl.pipeline.jobs.ingest import Request, ingest, present
from kodoctl.pipeline.jobs.judging import judge_landing
from kodoctl.pipeline.landing import Landing
from kodoctl.pulsar.admin_http import HttpAdmin
from kodoctl.pulsar.connection import Connection
from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology
from tests.broker.test_consumer_process import TOPOLOGY, Setting
from tests.support import create_topics, eventually, unload

pytestmark = [pytest.mark.broker, pytest.mark.full, pytest.mark.timeout(900)]
AUDITED = TOPOLOGY.replace("work: {{", "work: {{audit: true, ").replace(
    "topics:", "defaults: {{partitions: 1}}\ntopics:", 1
)
SWEEP = 7 * 60  # s: the broker looks at TTLs every five minutes
QUOTA = {"limitSize": 20_000, "limitTime": -1, "policy": "consumer_backlog_eviction"}


class Judged(Setting):
    """A consumer's traffic, and what the pipeline makes of it. Begun by a reading before the first message."""

    def __init__(self, spark, broker, tenant, folder):
        super().__init__(broker, tenant, folder)
        self.spark, self.namespace = spark, f"{tenant}/ns"
        self.file.write_text(AUDITED.format(tenant=tenant), encoding="utf-8")
        create_topics(broker, str(self.file))
        self.expansion = expand(load_topology(str(self.file)))
        self.landing = Landing(str(folder / "landing"), self.expansion.name, None)
        self.part = f"persistent/{self.namespace}/jobs-partition-0"
        self.runs = 0
        self.read()

    def client(self):
        return closing(pulsar.Client(self.broker.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)))

    def read(self, *, accept_holes=False):
        """One ingest."""
        connection = Connection(admin_url=self.broker.admin_url, broker_url=self.broker.broker_url)
        run, self.runs = f"r{self.runs}", self.runs + 1
        request = Request(self.expansion, connection, self.landing, run, 1 << 28, accept_holes)
        ingest(request, present(request)[0], self.spark, lambda _: None)

    def verdict(self):
        admin = HttpAdmin(Connection(admin_url=self.broker.admin_url, broker_url=self.broker.broker_url))
        try:
            return judge_landing(self.spark, self.landing, self.expansion, admin, str(self.folder / "recalls"))
        finally:
            admin.close()

    def work(self, count):
        """So many messages more, and every one done."""
        before = sum(self.done().values())
        with self.run():
            self.send(count)
            eventually(lambda: sum(self.done().values()) >= before + count and self.left() == 0, within=120)

    def told(self, method, what, body=None, **params):
        """A call of the admin API about the ground topic."""
        answer = self.broker.admin(method, f"persistent/{self.namespace}/jobs{what}", body, **params)
        assert answer.ok, answer.text

    def skip(self, count):
        """So many messages, and their cursor set behind them."""
        self.send(count)
        self.told("POST", "/subscription/work/skip_all")

    def expire(self, count):
        """The same by age."""
        self.send(count)

        def expired():
            told = self.broker.admin("POST", f"{self.part}/subscription/work/expireMessages/1")
            assert told.ok or told.status_code == 409, told.text  # 409: it is still at the last one
            return self.left() == 0

        eventually(expired, every=0.5)

    def reset(self, count):
        """The same by resetting the cursor to a moment."""
        self.send(count)
        time.sleep(0.01)
        self.told("POST", f"/subscription/work/resetcursor/{int(time.time() * 1000)}")

    def forge(self, count):
        """Messages that say they are one that is done, skipped."""
        (first,) = [one for one in self.stored() if one.properties().get("kodo-id") == "order-1"]
        ledger, entry = first.message_id().ledger_id(), first.message_id().entry_id()
        for _ in range(count):
            self.publish(**{"kodo-id": "order-1", "kodo-origin-id": f"{ledger}:{entry}:0:-1", "kodo-hop": "0"})
        self.told("POST", "/subscription/work/skip_all")

    def publish(self, **properties):
        """One message by somebody else's producer."""
        with self.client() as client:
            client.create_producer(self.topic, batching_enabled=False).send(
                b"7", properties={"uid": "u1", **properties}
            )

    def stored(self):
        """What the topic has."""
        with self.client() as client:
            reader = client.create_reader(f"{self.topic}-partition-0", pulsar.MessageId.earliest)
            found = []
            while reader.has_message_available():
                found.append(reader.read_next(5_000))
            return found

    def lost(self, count):
        """So many, and nothing else, are found lost now."""
        self.read()
        found = self.verdict()
        assert found["verdict"] == "loss", found["reasons"]
        assert [one["fate"] for one in found["findings"]] == ["lost"] * count
        return found


def fates_of(found):
    """Of messages; producers' own marks are nobody's."""
    return {fate: count for fate, count in found["subscriptions"][0]["messages"].items() if fate != "not for me"}


@pytest.fixture
def judged(spark, broker, tenant, tmp_path):
    return Judged(spark, broker, tenant, tmp_path)


def test_no_loss_then_a_skip_is_a_loss_of_just_those_messages(spark, judged):
    judged.work(40)
    judged.read()
    found = judged.verdict()
    assert (found["verdict"], found["reasons"]) == ("no loss", [])
    assert found["subscriptions"][0]["messages"]["done"] == 40

    judged.send(3)
    judged.told("POST", "/subscription/work/skip_all")
    found = judged.lost(3)
    spark.read.parquet(f"{judged.landing.root.uri}/events/*").createOrReplaceTempView("events")
    bodies = {bytes(row.payload) for row in spark.sql(found["sql"][0]).collect()}
    assert bodies == {b"0", b"1", b"2"}


def test_whatever_moves_the_cursor_is_found_message_by_message(judged):
    judged.publish(**{"kodo-id": "order-1"})
    judged.work(10)
    expected = {
        judged.expire: {"done": 11, "lost": 1},
        judged.reset: {"done": 11, "lost": 3},
        judged.forge: {
            "done": 10,
            "lost": 4,
        },  # all that call themselves order-1 are one message, lost by its worst place
    }
    for number, (remove, fates) in enumerate(expected.items(), 1):
        remove(number)
        judged.read()
        found = judged.verdict()
        assert (found["verdict"], fates_of(found)) == ("loss", fates), (remove, found["reasons"])


def test_a_ttl_that_may_hide_something_leaves_a_doubt(judged):
    judged.work(10)
    judged.told("POST", "/messageTTL", messageTTL="3600")
    judged.read()
    found = judged.verdict()
    assert (found["verdict"], {one["kind"] for one in found["reasons"]}) == ("inconclusive", {"ttl"})
    assert fates_of(found) == {"done": 10}, "nothing is lost, and nobody may say so"


def test_what_the_broker_expires_by_a_ttl_is_lost(judged):
    judged.work(10)
    judged.send(4)
    judged.told("POST", "/messageTTL", messageTTL="1")
    eventually(lambda: judged.left() == 0, within=SWEEP, every=1)
    judged.told("DELETE", "/messageTTL")
    judged.lost(4)


def test_a_topic_that_is_truncated_before_it_is_read_is_never_no_loss(judged):
    judged.work(10)
    judged.send(4)
    judged.told("DELETE", "/truncate")
    judged.work(3)
    judged.read(accept_holes=True)
    assert judged.verdict()["verdict"] != "no loss"


def test_in_the_midst_of_traffic_nothing_is_called_lost(judged):
    judged.send(600)
    with judged.run(pause=0.1):
        eventually(lambda: sum(judged.done().values()) > 20, within=60)
        seen = []
        while sum(judged.done().values()) < 600 and len(seen) < 4:
            judged.read()
            found = judged.verdict()
            seen.append(found["subscriptions"][0]["messages"])
            assert (found["verdict"], found["reasons"]) == ("no loss", []), seen
        eventually(lambda: sum(judged.done().values()) >= 600 and judged.left() == 0, within=120)
    assert {"open", "waiting"} & seen[0].keys()
    judged.read()
    found = judged.verdict()
    assert (found["verdict"], fates_of(found)) == ("no loss", {"done": 600})


def test_what_a_backlog_quota_evicts_is_lost(judged):
    judged.work(10)
    judged.send(400)  # some 30 kB
    held = judged.left()  # entries
    judged.told("POST", "/backlogQuota", QUOTA, backlogQuotaType="destination_storage")
    eventually(lambda: judged.left() < held, within=150, every=1)
    judged.told("DELETE", "/backlogQuota", backlogQuotaType="destination_storage")
    judged.read()
    found = judged.verdict()
    fates = found["subscriptions"][0]["messages"]
    assert (found["verdict"], fates["done"]) == ("loss", 10)
    assert fates["lost"] + fates.get("open", 0) == 400


def test_what_retention_trims_before_it_is_read_is_never_no_loss(judged):
    judged.work(10)
    judged.read()
    assert judged.verdict()["verdict"] == "no loss"
    judged.work(10)
    judged.told("POST", "/retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    unload(judged.broker, judged.topic)

    def trimmed():
        judged.broker.admin("POST", f"persistent/{judged.namespace}/jobs/trim")
        place = f"persistent/{judged.namespace}/jobs-partition-0/internalStats"
        return len(judged.broker.admin("GET", place).json()["ledgers"]) == 1

    eventually(trimmed, within=120, every=1)
    with pytest.raises(KodoctlError, match="K574"):
        judged.read()
    judged.read(accept_holes=True)
    found = judged.verdict()
    assert found["verdict"] == "inconclusive"
    assert "coverage" in {one["kind"] for one in found["reasons"]}
