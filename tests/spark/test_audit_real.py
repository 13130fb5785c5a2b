"""From a real consumer's traffic to the verdict: no loss, and whatever removes messages behind its back is found."""

from __future__ import annotations

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
QUOTA = {"limitSize": 20_000, "limitTime": -1, "policy": "consumer_backlog_eviction"}
MINUTES = 5 * 60  # the broker looks at TTLs and quotas once a minute, or in five


class Judged(Setting):
    """A consumer's traffic, and what the pipeline makes of it. Begun by a reading before the first message."""

    def __init__(self, spark, broker, tenant, folder):
        super().__init__(broker, tenant, folder)
        self.spark, self.namespace = spark, f"{tenant}/ns"
        self.file.write_text(AUDITED.format(tenant=tenant), encoding="utf-8")
        create_topics(broker, str(self.file))
        self.expansion = expand(load_topology(str(self.file)))
        self.landing = Landing(str(folder / "landing"), self.expansion.name, None)
        self.runs = 0
        self.read()

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
            eventually(lambda: sum(self.done().values()) == before + count and self.left() == 0, within=120)

    def told(self, method, what, body=None, **params):
        """A call of the admin API about the ground topic."""
        answer = self.broker.admin(method, f"persistent/{self.namespace}/jobs{what}", body, **params)
        assert answer.ok, answer.text

    def lost(self, count):
        """So many, and nothing else, are found lost now."""
        self.read()
        found = self.verdict()
        assert found["verdict"] == "loss", found["reasons"]
        assert [one["fate"] for one in found["findings"]] == ["lost"] * count
        return found


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


def test_what_a_ttl_takes_from_a_subscription_is_lost(judged):
    judged.work(10)
    judged.send(4)
    judged.told("POST", "/messageTTL", messageTTL="1")
    eventually(lambda: judged.left() == 0, within=MINUTES, every=1)
    judged.told("DELETE", "/messageTTL")
    judged.lost(4)


def test_what_a_backlog_quota_evicts_is_lost(judged):
    judged.work(10)
    judged.send(400)  # some 30 kB
    judged.told("POST", "/backlogQuota", QUOTA, backlogQuotaType="destination_storage")
    eventually(lambda: judged.left() < 400, within=MINUTES, every=1)
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

    eventually(trimmed, within=MINUTES, every=1)
    with pytest.raises(KodoctlError, match="K574"):
        judged.read()
    judged.read(accept_holes=True)
    found = judged.verdict()
    assert found["verdict"] == "inconclusive"
    assert "coverage" in {one["kind"] for one in found["reasons"]}
