"""From a real consumer's traffic to the verdict: no loss, and after a skip behind its back, loss with the right ids."""

from __future__ import annotations

import pytest

from kodoctl.pipeline.jobs.ingest import Request, ingest, present
from kodoctl.pipeline.jobs.judging import judge_landing
from kodoctl.pipeline.landing import Landing
from kodoctl.pulsar.admin_http import HttpAdmin
from kodoctl.pulsar.connection import Connection
from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology
from tests.broker.test_consumer_process import TOPOLOGY, Setting
from tests.support import create_topics, eventually

pytestmark = [pytest.mark.broker, pytest.mark.full, pytest.mark.timeout(900)]
AUDITED = TOPOLOGY.replace("work: {{", "work: {{audit: true, ").replace(
    "topics:", "defaults: {{partitions: 1}}\ntopics:", 1
)


def test_no_loss_then_a_skip_is_a_loss_of_just_those_messages(spark, broker, tenant, tmp_path):
    setting = Setting(broker, tenant, tmp_path)
    setting.file.write_text(AUDITED.format(tenant=tenant), encoding="utf-8")
    create_topics(broker, str(setting.file))
    expansion = expand(load_topology(str(setting.file)))
    connection = Connection(admin_url=broker.admin_url, broker_url=broker.broker_url)
    landing = Landing(str(tmp_path / "landing"), expansion.name, None)

    def read(run):
        request = Request(expansion, connection, landing, run, 1 << 28)
        ingest(request, present(request)[0], spark, lambda _: None)
        admin = HttpAdmin(connection)
        try:
            return judge_landing(spark, landing, expansion, admin, str(tmp_path / "recalls"))
        finally:
            admin.close()

    request = Request(expansion, connection, landing, "r0", 1 << 28)
    ingest(request, present(request)[0], spark, lambda _: None)  # before the first message: all of them are seen
    with setting.run():
        setting.send(40)
        eventually(lambda: len(setting.done()) == 40 and setting.left() == 0, within=120)
    found = read("r1")
    assert (found["verdict"], found["reasons"]) == ("no loss", [])
    assert found["subscriptions"][0]["messages"]["done"] == 40

    setting.send(3)
    place = f"persistent/{tenant}/ns/jobs/subscription/work/skip_all"
    assert broker.admin("POST", place).ok
    found = read("r2")
    assert found["verdict"] == "loss"
    assert [one["fate"] for one in found["findings"]] == ["lost"] * 3
    spark.read.parquet(f"{landing.root.uri}/events/*").createOrReplaceTempView("events")
    bodies = {bytes(row.payload) for row in spark.sql(found["sql"][0]).collect()}
    assert bodies == {b"0", b"1", b"2"}
