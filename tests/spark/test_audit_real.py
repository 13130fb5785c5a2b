"""From a real consumer's traffic to the verdict: no loss, and whatever removes messages behind its back is found."""

from __future__ import annotations

import pytest
from kodo_pipeline.ingest.job import HolesError
from kodo_pipeline.landing.tables import EVENTS

from tests.brokers.topics import unload
from tests.brokers.wire_producer import WireProducer, numeric, wire_metadata
from tests.services.polling import eventually
from tests.spark.judged import fates_of, judged, outcome

__all__ = ["judged"]
pytestmark = [pytest.mark.broker, pytest.mark.full, pytest.mark.timeout(900)]
SWEEP = 7 * 60  # s: the broker looks at TTLs every five minutes
QUOTA = {"limitSize": 20_000, "limitTime": -1, "policy": "consumer_backlog_eviction"}


def test_no_loss_then_a_skip_is_a_loss_of_just_those_messages(spark, judged):
    judged.work(40)
    judged.read()
    found = judged.verdict()
    assert (found["verdict"], found["reasons"]) == ("no loss", [])
    assert found["subscriptions"][0]["messages"]["done"] == 40

    judged.send(3)
    judged.told("POST", "/subscription/work/skip_all")
    found = judged.lost(3)
    judged.landing.read(spark, EVENTS).createOrReplaceTempView("events")
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
    for _ in range(8):  # a broker evicts whole entries, and none of a single one
        judged.send(50)  # some 30 kB in all
    held = judged.left()
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
    for _ in range(2):
        with pytest.raises(HolesError, match="K574"):
            judged.read()
        verdict, kinds = outcome(judged.verdict())
        assert verdict == "inconclusive"
        assert "left" in kinds, "all others were read, and judged"
    judged.read(accept_holes=True)
    found = judged.verdict()
    assert found["verdict"] == "inconclusive"
    assert "coverage" in {one["kind"] for one in found["reasons"]}


def test_what_the_client_library_throws_away_is_lost_and_stops_no_ingest(judged):
    """It acknowledges such a message by itself; the ingest ended with K574 over it, each time."""
    judged.work(3)
    with WireProducer(judged.broker.broker_url, f"{judged.topic}-partition-0") as producer:
        producer.send(wire_metadata(numeric(8, 2) + numeric(9, 5)), b"no zlib")
    judged.work(3)
    judged.lost(1)
