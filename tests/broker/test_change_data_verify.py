"""`kodo-consumer source verify` on a real broker and a real PostgreSQL: a second reading of the log finds what the source
left out, and what it sent twice.
"""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from kodoctl.pulsar.values.publication_marker import PublicationMarker, with_marker
from tests.brokers.broker import Broker
from tests.brokers.source_run import SLOT, TOPOLOGY, Setting
from tests.services.polling import eventually

pytestmark = pytest.mark.broker


@pytest.fixture
def setting(broker: Broker, tenant: str, tmp_path: Path, logical_url: str) -> Setting:
    found = Setting(broker, tenant, tmp_path, logical_url)
    found.finish()
    return found


def test_each_commit_is_proved_whenever_the_source_is_killed(setting: Setting) -> None:
    code, said = setting.verify()
    assert (code, "the proof begins at" in said) == (6, True)
    for round_, step in enumerate(["sent.", "received", "confirm"]):
        for batch in range(10):
            setting.insert(round_ * 1_000 + batch * 100, 100)
        with setting.run(KILL_AT=step, KILL_NTH={"sent.": "250"}.get(step, "2")) as process:
            assert process.wait(60) == -signal.SIGKILL, setting.log
    setting.insert(9_000, 1)
    code, before = setting.verify("--wait", "0")
    assert code == 6, "nobody sent the last one"
    assert "not yet covered, committed at" in before
    assert "messages that these commits require: 3,001;" in before
    setting.sql("UPDATE orders SET id = -1 WHERE id = 5")
    setting.sql("INSERT INTO shop_outbox (topic, key, body) VALUES ('orders', 'k', 'bytes')")
    setting.sql("UPDATE shop_outbox SET key = 'other'")
    setting.finish()
    code, said = setting.verify("--format", "json")
    assert code == 0
    found = json.loads(said)
    assert found["verdict"] == "no loss"
    now = re.search(r"(\d+) stored once", before)
    proved = int(now[1]) if now else 0  # none, if the source reported nothing before it was killed
    assert proved + found["commits"]["stored once"] == 33, "an update of an outbox is no message"
    code, said = setting.verify()
    assert (code, "no commits" in said) == (0, True), "what is proved is not read again"


def test_a_commit_without_its_message_is_missing(setting: Setting) -> None:
    """The numbers of producers have no gap where a message was never numbered, or where the slot was moved."""
    setting.verify()
    setting.insert(0, 60)
    setting.insert(60, 1)
    setting.finish(KILL_AT="skip", KILL_NTH="61")
    setting.insert(61, 1)
    setting.move_slot()
    code, said = setting.verify()
    assert code == 5
    assert said.startswith("LOSS public.orders at ")
    assert "#0: missing, though a mark says that all up to" in said
    assert "#0: missing, and no stored mark covers it: was the slot moved (K793)?" in said
    assert "commits: 2 missing, 1 stored once" in said
    assert setting.verify()[0] == 5, "it is not forgotten"
    [(now,)] = setting.sql("SELECT pg_current_wal_flush_lsn()::text")
    assert setting.verify("--accept", "FF/0")[0] == 64, "after the end of the log"
    assert setting.verify("--accept", "0/1")[0] == 64, "proved already"
    assert setting.verify()[0] == 5, "nothing was accepted"
    code, said = setting.verify("--accept", now)
    assert code == 0
    assert f"accepted up to {now}, and passed over: commits: 2 missing" in said


@pytest.mark.full
def test_a_topology_that_changed_makes_no_change_missing(setting: Setting) -> None:
    """Without the level, the message of `slow` is not looked for where it is; without the column, no message is known."""
    setting.verify()
    setting.insert(0, 2)
    setting.insert(2, 1, "slow")
    setting.sql("DELETE FROM orders WHERE id = 0")
    setting.sql("ALTER TABLE orders ADD COLUMN area text")
    setting.finish()
    before = setting.file.read_text(encoding="utf-8")
    setting.change_file("levels: [L1, L2]", "levels: [L1]")
    setting.change_file(", routes: [{when: \"properties['bucket'] = 'slow'\", to: L2}]", "")
    code, said = setting.verify()
    assert code == 6
    assert "unknown, the topology changed since then, and no run has used the present file yet" in said
    assert "1 unknown, 2 stored once" in said
    setting.insert(3, 1)
    setting.finish()
    code, said = setting.verify()
    assert (code, "unknown, the topology changed at 0/" in said) == (6, True)
    setting.change_file("        topic: orders\n", "        topic: orders\n        deletes: ignore\n")
    assert "public.orders at" in setting.verify()[1], "nothing is said of the tombstone that the file sent before"
    setting.change_file("bucket: region", "bucket: area")
    code, said = setting.verify()
    assert (code, "the present file refuses it: public.orders: it has no column area" in said) == (6, True)
    setting.file.write_text(before, encoding="utf-8")
    code, said = setting.verify()
    assert (code, "commits: 3 stored once" in said) == (0, True), "as the finding says, by the file of before"


@pytest.mark.full
@pytest.mark.parametrize("seconds", ["1200", "-1200"])
def test_clocks_decide_nothing(setting: Setting, seconds: str) -> None:
    """The database's clock is 20 minutes before or after that of the source."""
    clock = {"KILL_AT": "clock", "KILL_NTH": seconds}
    setting.verify()
    setting.insert(0, 10)
    setting.finish(**clock)
    code, said = setting.verify(**clock)
    assert (code, "1 stored once" in said) == (0, True)
    setting.insert(10, 1)
    setting.move_slot()
    code, said = setting.verify(**clock)
    assert (code, "1 missing" in said) == (5, True)


@pytest.mark.parametrize(
    "keys",
    [pytest.param("", id="without keys", marks=pytest.mark.full), pytest.param("0123456789abcdef", id="with keys")],
)
def test_nothing_that_others_send_proves_a_change(setting: Setting, keys: str) -> None:
    """A change that was left out stays missing, whoever sends a message under its id; and one that is stored is not
    stored twice because of them.
    """
    signing = {"KODO_CONSUMER_SIGNING_KEYS": keys} if keys else {}
    setting.verify()
    setting.insert(0, 60)
    setting.insert(60, 1)
    setting.insert(61, 20)
    setting.finish(KILL_AT="skip", KILL_NTH="61", **signing)
    own = max(
        (one for _, one in setting.arrived() if one.data()), key=lambda one: (one.topic_name(), one.publish_timestamp())
    )
    setting.send(own.topic_name(), own.properties())
    code, said = setting.verify(**signing)
    assert (code, "commits: 1 missing, 2 stored once" in said) == (5, True)
    assert "sent by others with ids of this source, and without effect on the proof: 1 message," in said
    lost = re.search(r"public.orders at (\S+): missing", said)
    assert lost is not None
    properties = {**own.properties(), "kodo-id": f"{own.properties()['kodo-id'].rpartition(':')[0]}:{lost[1]}"}
    for topic in {one.topic_name() for _, one in setting.arrived()}:
        setting.send(topic, properties)
        setting.send(topic, {"kodo-covered": "0/0..FF/0", "kodo-routing": "0"}, "kodo-source-kodo_shop_x-7-1-covered")
    code, said = setting.verify(**signing)
    assert (code, f"public.orders at {lost[1]}: missing" in said) == (5, True)
    assert "and without effect on the proof: 3 messages," in said
    setting.send(
        own.topic_name(), {**properties, "kodo-seq": own.properties()["kodo-seq"]}, own.producer_name(), 1 << 62
    )
    code, said = setting.verify(**signing)
    assert code == 6, "somebody took the name of the source's producer while it was away"
    assert f"public.orders at {lost[1]}: unknown" in said
    assert ("no valid signature" if keys else "its messages are out of order") in said


@pytest.mark.full
def test_a_message_on_another_topic_is_not_that_of_the_change(
    broker: Broker, tenant: str, tmp_path: Path, logical_url: str
) -> None:
    """The source has it nowhere; but under its own names on the other topic. Only an own fault can do that."""
    text = TOPOLOGY.replace("sources:", "  bills: {{partitions: 2, subscriptions: {{work: {{states: []}}}}}}\nsources:")
    setting = Setting(broker, tenant, tmp_path, logical_url, topology=text)
    setting.finish()
    setting.verify()
    for row in range(2):
        setting.sql("INSERT INTO shop_outbox (topic, key, body) VALUES ('orders', 'k', 'a')")
        setting.finish(**({"KILL_AT": "skip", "KILL_NTH": "1"} if row else {}))
    own = next(one for _, one in setting.arrived() if one.data())
    code, said = setting.verify()
    assert code == 5
    lost = re.search(r"public.shop_outbox at (\S+): missing", said)
    assert lost is not None
    forged = {**own.properties(), "kodo-id": f"{own.properties()['kodo-id'].rpartition(':')[0]}:{lost[1]}"}
    topic = own.topic_name().replace("orders", "bills")
    setting.send(topic, forged, own.producer_name(), 1 << 61)
    code, said = setting.verify()
    assert (code, f"{lost[1]}: missing" in said) == (5, True)


def test_the_end_of_the_proof_frees_the_log(setting: Setting) -> None:
    assert "there was no slot" in setting.verify("--end")[1]
    assert '"dropped": false' in setting.verify("--end", "--format", "json")[1]
    setting.verify()
    assert len(setting.sql("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")) == 2
    code, said = setting.verify("--end")
    assert (code, "is dropped" in said) == (0, True)
    assert setting.verify("--accept", "x")[0] == 64
    assert setting.verify("--accept", "0/1", "--end")[0] == 64
    setting.sql("SELECT pg_drop_replication_slot(%s)", SLOT)
    code, said = setting.verify()
    assert (code, "K794" in said) == (1, True)


@pytest.mark.full
def test_a_stored_commit_is_proved_when_the_source_has_reported_it(setting: Setting) -> None:
    """Until then it may come again: here to other partitions, because the topic got more of them meanwhile."""
    setting.verify()
    setting.insert(0, 20)
    with setting.run(KILL_AT="reports", KILL_NTH=str(setting.end_number())) as process:
        assert process.wait(60) == -signal.SIGKILL, setting.log
    assert len(setting.rows()) == 20
    assert setting.verify("--wait", "0")[0] == 6
    for topic in ("orders", "orders-L2"):
        assert setting.broker.admin("POST", f"persistent/{setting.tenant}/ns/{topic}/partitions", 5).ok
    setting.finish()
    setting.partitions = 5
    is_twice = set(setting.rows().values()) != {1}
    assert is_twice, "some rows belong to another partition now"
    code, said = setting.verify()
    assert (code, "1 twice" in said) == (5, True)


@pytest.mark.full
def test_a_change_that_the_source_may_have_left_out_is_unknown(setting: Setting) -> None:
    """Its row was gone, and is there again when the log is read a second time; or it was there, and is gone now."""
    setting.sql("ALTER TABLE orders ALTER note SET STORAGE EXTERNAL")
    setting.sql("INSERT INTO orders SELECT n, 1, 'eu', repeat('x', 9000) FROM generate_series(1, 2) n")
    setting.finish()
    setting.verify()
    setting.sql("UPDATE orders SET id = 3 WHERE id = 2")
    setting.finish()
    setting.sql("DELETE FROM orders WHERE id = 3")
    setting.finish()
    assert setting.verify()[0] == 0, "the message of the old key and that of the new one are stored"
    setting.sql("UPDATE orders SET region = 'us' WHERE id = 1")
    setting.sql("DELETE FROM orders WHERE id = 1")
    setting.finish()
    setting.sql("INSERT INTO orders VALUES (1, 1, 'eu', repeat('y', 9000))")
    setting.finish()
    code, said = setting.verify()
    assert (code, "unknown, the log does not repeat a large value" in said) == (6, True)
    assert "1 unknown, 2 stored once" in said


def test_the_proof_of_another_topology_is_not_ended(setting: Setting) -> None:
    setting.verify()
    marker = PublicationMarker("shop", f"{setting.tenant}/other", "standalone", "6c4d4e7c-5b3a-4c6f-9d1e-0a3a8a4c1d2e")
    comment = with_marker("", marker)
    setting.sql(f"COMMENT ON PUBLICATION {SLOT} IS '{comment}'")
    code, said = setting.verify("--end")
    assert (code, "belongs to the topology" in said) == (64, True)
    assert len(setting.sql("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")) == 2


@pytest.mark.full
def test_a_source_that_is_at_work_is_waited_for(setting: Setting) -> None:
    setting.verify()
    with setting.run() as process:
        eventually(lambda: setting.log.count("changes of") == 2, within=60)
        setting.insert(0, 500)
        code, said = setting.verify("--wait", "30")
        assert (code, "1 stored once" in said) == (0, True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
