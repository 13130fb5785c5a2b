"""Disasters on the real broker around what was there before it was read, and what others do on the same topics."""

from __future__ import annotations

import pulsar
import pytest
from deltalake import DeltaTable
from kodo_pipeline.evidence.audit_evidence import Cause
from kodo_pipeline.landing.landing_commits import newest_batch

from kodoctl.errors import KodoctlError
from tests.brokers.topics import EARLIEST, LATEST, unload
from tests.services.polling import eventually
from tests.spark.judged import Judged, fates_of, judged, outcome

__all__ = ["judged"]
pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]


def trimmed(judged, suffix=""):
    """Nothing that is acknowledged is kept, and the ledger it was in is closed."""
    judged.told("POST", f"{suffix}/retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    unload(judged.broker, f"{judged.topic}{suffix}")
    part = f"persistent/{judged.namespace}/jobs{suffix}"

    def gone():
        judged.broker.admin("POST", f"{part}/trim")
        return judged.broker.admin("GET", f"{part}-partition-0/internalStats").json()["numberOfEntries"] == 0

    eventually(gone, within=120, every=0.3)


# --- topics of which something is gone


@pytest.mark.full
def test_what_is_deleted_before_the_second_reading_is_never_no_loss(judged):
    judged.publish()
    judged.told("POST", "/subscription/work/skip_all")
    trimmed(judged)
    judged.read()
    assert outcome(judged.verdict()) == ("inconclusive", {"beginning"})


@pytest.mark.full
def test_what_was_deleted_before_the_first_reading_is_never_no_loss(spark, broker, tenant, tmp_path):
    judged = Judged(spark, broker, tenant, tmp_path, look=False)
    judged.publish()
    judged.told("POST", "/subscription/work/skip_all")
    trimmed(judged)
    judged.read()
    judged.work(5)
    judged.read()
    assert outcome(judged.verdict()) == ("inconclusive", {"beginning"})


@pytest.mark.full
def test_a_subscription_made_again_at_the_latest_message_has_lost_what_it_skipped(judged):
    judged.work(10)
    judged.send(3)
    judged.told("DELETE", "/subscription/work", force="true")
    judged.told("PUT", "/subscription/work", LATEST)
    judged.work(5)
    found = judged.lost(3)
    assert fates_of(found) == {"done": 15, "lost": 3}


@pytest.mark.full
def test_a_topic_made_again_is_not_the_one_that_was_read(judged):
    judged.publish()
    path = judged.part.removesuffix("-partition-0")
    assert judged.broker.admin("DELETE", f"{path}/partitions", force="true").ok
    assert judged.broker.admin("PUT", f"{path}/partitions", 1).ok
    judged.told("PUT", "/subscription/work", EARLIEST)
    judged.work(5)
    judged.read()
    found = judged.verdict()
    assert found["verdict"] == "inconclusive"
    assert "made again" in found["reasons"][0]["text"], found["reasons"]


@pytest.mark.full
def test_a_landing_whose_last_batch_somebody_took_away_is_refused(judged):
    judged.work(10)
    judged.read()
    judged.skipped_is_lost()
    last = newest_batch(judged.landing.commits())
    DeltaTable(f"{judged.landing.root.uri}/commits").delete(f"batch = {last}")
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)events has [0-9]+ of [0-9]+ rows that were committed to it"):
        judged.verdict()


@pytest.mark.full
def test_what_goes_with_a_deleted_subscription_or_topic_is_never_no_loss(judged):
    judged.work(10)
    judged.send(3)
    judged.read()
    assert outcome(judged.verdict()) == ("no loss", set())
    judged.told("DELETE", "/subscription/work", force="true")
    judged.read()
    assert outcome(judged.verdict()) == ("inconclusive", {"no subscription", "unproved"})
    assert judged.broker.admin("DELETE", f"{judged.part.removesuffix('-partition-0')}/partitions", force="true").ok
    judged.read()
    found = judged.verdict()
    assert "gone" in outcome(found)[1], found["reasons"]
    assert found["verdict"] == "inconclusive"


@pytest.mark.full
def test_a_quiet_topic_that_retention_empties_and_the_broker_loads_again_is_no_loss(judged):
    judged.work(10)
    judged.read()
    trimmed(judged)
    judged.read()
    for _ in range(2):
        unload(judged.broker, judged.topic)  # its empty ledger is replaced
        judged.read()
    judged.work(5)
    judged.read()
    found = judged.verdict()
    assert outcome(found) == ("no loss", set()), found["reasons"]
    assert fates_of(found) == {"done": 15}


# --- recalls


@pytest.mark.full
@pytest.mark.parametrize("looked", [False, True])
def test_a_recalled_letter_that_is_deleted_unread_is_never_no_loss(spark, broker, tenant, tmp_path, looked):
    judged = Judged(spark, broker, tenant, tmp_path, look=looked)
    judged.die("order-1")
    judged.recall()
    judged.told("POST", "-work-RETRYING/subscription/work/skip_all")
    judged.told("POST", "-work-RETRYING/deduplicationEnabled", body=False)  # its cursor keeps them
    trimmed(judged, "-work-RETRYING")
    judged.read()
    found = judged.verdict()
    assert outcome(found) == ("inconclusive", {"unproved"}), found["reasons"]
    assert [one["cause"] for one in found["findings"]] == [Cause.UNCONFIRMED_RECALL.value]
    judged.work(3)
    judged.read()
    assert judged.verdict()["verdict"] == "inconclusive", "nothing that comes later says what became of it"


@pytest.mark.full
def test_copies_of_a_dead_letter_are_recalled_once_and_none_is_lost(judged):
    judged.die("order-1", "order-1", "order-2")
    judged.recall()
    judged.finish(1)
    judged.read()
    found = judged.verdict()
    assert outcome(found) == ("no loss", set()), found["reasons"]
    assert fates_of(found) == {"done": 2}
    judged.die("order-3")
    judged.recall()
    judged.told("POST", "-work-RETRYING/subscription/work/skip_all")
    judged.lost(1)


@pytest.mark.full
def test_a_foreign_consumer_at_one_ingest_takes_no_loss_back(judged):
    judged.work(5)
    judged.skipped_is_lost()
    with judged.client() as client:
        foreign = client.subscribe(judged.topic, "work", consumer_type=pulsar.ConsumerType.Shared)
        judged.send(2)
        for _ in range(3):  # its producer's mark, too
            foreign.acknowledge(foreign.receive(5_000))
        eventually(lambda: judged.left() == 0)
        judged.read()
        found = judged.verdict()
        assert (found["verdict"], fates_of(found)) == ("loss", {"done": 5, "lost": 3, "unproved": 2})
        assert "unrecorded workers" in outcome(found)[1]
    judged.work(4)
    judged.read()
    found = judged.verdict()
    assert (found["verdict"], fates_of(found)) == ("loss", {"done": 9, "lost": 3, "unproved": 2})
    judged.skip(1)
    judged.read()
    assert fates_of(judged.verdict()) == {"done": 9, "lost": 4, "unproved": 2}


@pytest.mark.full
def test_a_foreign_subscription_on_the_same_topics_changes_no_verdict(judged):
    with judged.client() as client:
        for suffix in ("", "-work-RETRYING", "-work-AUDIT"):
            foreign = client.subscribe(
                f"{judged.topic}{suffix}", "theirs", consumer_type=pulsar.ConsumerType.Shared,
                initial_position=pulsar.InitialPosition.Earliest,
            )  # fmt: skip
        judged.work(5)
        foreign.acknowledge(foreign.receive(5_000))
        judged.told("POST", "/subscription/theirs/skip_all")
        judged.read()
        found = judged.verdict()
        assert (outcome(found), fates_of(found)) == (("no loss", set()), {"done": 5})
        judged.skipped_is_lost()
    judged.told("DELETE", "/subscription/theirs", force="true")
    judged.read()
    found = judged.verdict()
    assert (found["verdict"], fates_of(found)) == ("loss", {"done": 5, "lost": 3})
