"""`kodo-consumer source run` as a process on a real broker and a real PostgreSQL: each committed row once, whenever the
process is killed.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from kodo_consumer.core.sequences.sequencer import key_hash
from kodo_consumer.source.positions import Position, read_lsn

from kodoctl.database.change_objects import IDENTITY
from kodoctl.protocol.properties import LEDGER_PREFIX
from kodoctl.pulsar.values.ledger import Ledger, encode
from kodoctl.topology.names import NamespaceName
from tests.brokers.broker import Broker
from tests.brokers.source_run import SLOT, Setting
from tests.brokers.topics import algorithms
from tests.services.databases import Postgres
from tests.services.polling import eventually

pytestmark = pytest.mark.broker


@pytest.fixture
def setting(broker: Broker, tenant: str, tmp_path: Path, logical_url: str) -> Setting:
    return Setting(broker, tenant, tmp_path, logical_url)


def test_rows_of_before_and_changes_become_messages(setting: Setting) -> None:
    setting.sql("INSERT INTO orders VALUES (1, 12345678901234567890.10, 'eu', NULL), (2, 2, 'slow', 'é')")
    with setting.run() as process:
        eventually(setting.has_slot, within=25)
        setting.sql("UPDATE orders SET total = 3 WHERE id = 1")
        setting.sql("UPDATE orders SET id = 20 WHERE id = 2")
        setting.sql("DELETE FROM orders WHERE id = 1")
        setting.sql(
            "INSERT INTO shop_outbox (topic, key, body, properties) VALUES ('orders', 'k', 'bytes', '{\"a\": \"b\"}')"
        )
        setting.sql("UPDATE shop_outbox SET key = 'other'")
        setting.sql("ALTER TABLE orders ADD COLUMN extra int[]")
        setting.sql("INSERT INTO orders VALUES (3, 1, 'eu', 'x', '{1,NULL,3}')")
        setting.sql("TRUNCATE orders")
        setting.await_confirmed(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    arrived = [(topic, one) for topic, one in setting.arrived() if "kodo-id" in one.properties()]
    by_key: dict[str, list[Any]] = {}
    for topic, message in arrived:
        by_key.setdefault(message.partition_key(), []).append((topic, message.data().decode()))
        assert message.topic_name().endswith(f"-partition-{key_hash(message.partition_key()) % 2}")
        assert message.event_timestamp() > 0
    assert {key: sorted(found, reverse=True) for key, found in by_key.items() if key == "2"} == {
        "2": [("orders-L2", '{"id":2,"total":"2","region":"slow","note":"é"}'), ("orders", "")]
    }, "the log of a changed key has the key alone: no property by which to route"
    del by_key["2"]
    assert by_key == {
        "1": [
            ("orders", '{"id":1,"total":"12345678901234567890.10","region":"eu","note":null}'),
            ("orders", '{"id":1,"total":"3","region":"eu","note":null}'),
            ("orders", ""),
        ],
        "20": [("orders-L2", '{"id":20,"total":"2","region":"slow","note":"é"}')],
        "3": [("orders", '{"id":3,"total":"1","region":"eu","note":"x","extra":[1,null,3]}')],
        "k": [("orders", "bytes")],
    }
    assert setting.missing_numbers() == 0
    stored = Counter[str]()
    for local in ("orders", "orders-L2"):
        for number in range(2):
            stored += algorithms(setting.broker, f"persistent/{setting.tenant}/ns/{local}-partition-{number}")
    assert set(stored) == {"LZ4"}, "as the file declares, marks too"
    assert "TRUNCATE of public.orders" in setting.log
    assert "public.orders has other columns" in setting.log
    assert "with extra" in setting.log
    assert "sent 8, truncates 1, schema changes 1" in setting.log


@pytest.mark.parametrize(
    ("step", "nth"),
    [
        ("received", 4),
        *(
            pytest.param(step, nth, marks=pytest.mark.full)
            for step, nth in (("sent.", 700), ("event.", 900), ("confirm", 2), ("confirmed.", 2))
        ),
    ],
)
def test_a_source_that_is_killed_sends_every_commit_once(setting: Setting, step: str, nth: int) -> None:
    setting.finish()
    for batch in range(20):
        setting.insert(batch * 100, 100)
    with setting.run(KILL_AT=step, KILL_NTH=str(nth)) as process:
        assert process.wait(60) == -signal.SIGKILL, setting.log
    setting.insert(2_000, 50)
    setting.finish()
    assert setting.rows() - Counter(map(str, range(2_050))) == Counter()
    assert Counter(map(str, range(2_050))) - setting.rows() == Counter()
    assert setting.missing_numbers() == 0


@pytest.mark.full
@pytest.mark.parametrize("how", ["forgot", "new names"])
def test_a_broker_that_does_not_know_the_numbers_gets_no_change_twice(setting: Setting, how: str) -> None:
    """It forgets them if nobody runs the source for six hours: here, because deduplication is off for a moment. And
    another file, as of other routes, gives the producers other names.
    """
    setting.finish()
    for batch in range(5):
        setting.insert(batch * 100, 100)
    with setting.run(KILL_AT="confirm", KILL_NTH="2") as process:
        assert process.wait(60) == -signal.SIGKILL, setting.log
    before = len(setting.rows())
    assert before, "some are stored, and the slot does not know it"
    assert not setting.is_confirmed()
    if how == "forgot":
        setting.forget_numbers()
    else:
        setting.change_file("partitions: 2", "message_properties: {bucket: optional}\n    partitions: 2")
    setting.insert(500, 10)
    setting.finish()
    assert setting.rows() == Counter({str(number): 1 for number in range(510)})
    assert setting.missing_numbers() == 0
    known = re.search(r"known (\d+)", setting.log)
    assert known is not None
    assert 0 < int(known[1]) <= before, "those that the source had reported do not come"


@pytest.mark.full
def test_a_file_that_comes_back_sends_no_change_twice(setting: Setting) -> None:
    """As where a new file is taken back, because its process died: the broker knows the numbers of the file of before,
    and they say nothing of what another file stored.
    """
    before = setting.file.read_text(encoding="utf-8")
    setting.finish()
    setting.insert(0, 40)
    setting.finish()
    setting.insert(40, 20)
    with setting.run(KILL_AT="reports", KILL_NTH=str(setting.end_number())) as process:
        assert process.wait(60) == -signal.SIGKILL
    setting.change_file("partitions: 2", "message_properties: {bucket: optional}\n    partitions: 2")
    setting.insert(60, 40)
    with setting.run(KILL_AT="reports", KILL_NTH=str(setting.end_number())) as process:
        assert process.wait(60) == -signal.SIGKILL
    setting.file.write_text(before, encoding="utf-8")
    setting.insert(100, 10)
    setting.finish()
    assert setting.rows() == Counter({str(number): 1 for number in range(110)})
    assert setting.missing_numbers() == 0


@pytest.mark.full
@pytest.mark.parametrize("how", ["another file", "no snapshot"])
def test_a_file_that_died_at_once_is_known_to_the_next_one(setting: Setting, how: str) -> None:
    """It was killed in its first commit, before it could say what is stored."""
    if how == "another file":
        setting.finish()
        setting.change_file("partitions: 2", "message_properties: {bucket: optional}\n    partitions: 2")
    else:
        setting.change_file("SHOP_DATABASE_URL\n", "SHOP_DATABASE_URL\n    snapshot: false\n")
    with setting.run(KILL_AT="sent.", KILL_NTH="200") as process:
        eventually(lambda: setting.log.count("changes of") == 1 + (how == "another file"), within=60)
        setting.verify()
        setting.insert(0, 500)
        assert process.wait(60) == -signal.SIGKILL, setting.log
    assert setting.rows(), "some are stored, and no mark covers them"
    setting.change_file("    compression: lz4\n", "    message_properties: {bucket: optional, more: optional}\n")
    if how == "another file":
        setting.change_file("    message_properties: {bucket: optional}\n", "")
    setting.finish()
    assert setting.rows() == Counter({str(number): 1 for number in range(500)})
    assert setting.missing_numbers() == 0
    code, said = setting.verify()
    assert (code, "sent by others" in said) == (0, False)


@pytest.mark.full
def test_a_message_that_others_send_is_not_taken_for_one_that_is_stored(setting: Setting) -> None:
    """Where the broker does not know the numbers, the partition says what is stored; not what others say is stored."""
    setting.finish()
    setting.insert(0, 10)
    setting.finish()
    own = next(one for _, one in setting.arrived() if one.data())
    setting.insert(10, 1)
    [lsn] = setting.open_commits()
    prefix = own.properties()["kodo-id"].rpartition(":")[0]
    for topic in {one.topic_name() for _, one in setting.arrived()}:
        number = f"0123456789abcde:{topic[-1]}:1"
        setting.send(topic, {"kodo-id": f"{prefix}:{lsn}#0", "kodo-seq": number})
    setting.change_file("partitions: 2", "message_properties: {bucket: optional}\n    partitions: 2")
    setting.finish()
    assert setting.rows() - Counter({"-1": 2}) == Counter(str(number) for number in range(11))


@pytest.mark.full
@pytest.mark.parametrize(
    "keys",
    [pytest.param("", id="without keys"), pytest.param("0123456789abcdef", id="with keys")],
)
def test_a_number_that_others_raised_loses_no_change(setting: Setting, keys: str) -> None:
    """Who takes the name of a producer while the source is away makes the broker drop the changes that follow."""
    signing = {"KODO_CONSUMER_SIGNING_KEYS": keys} if keys else {}
    setting.finish(**signing)
    setting.insert(0, 40)
    setting.finish(**signing)
    setting.insert(40, 40)
    with setting.run(KILL_AT="reports", KILL_NTH=str(setting.end_number()), **signing) as process:
        assert process.wait(60) == -signal.SIGKILL
    own = max((one for _, one in setting.arrived() if one.data()), key=lambda one: one.publish_timestamp())
    setting.insert(80, 40)
    lsn = setting.open_commits()[-1]
    forged = {**own.properties(), "kodo-id": f"{own.properties()['kodo-id'].rpartition(':')[0]}:{lsn}#78"}
    number = Position(read_lsn(lsn), 78).number
    setting.send(own.topic_name(), forged if keys else {}, own.producer_name(), number)
    with setting.run(**signing) as process:
        assert process.wait(60) == 64
    said = " ".join(setting.log.split())
    assert "K792" in said
    assert "somebody else sent under its name" in said
    setting.sql("SELECT pg_drop_replication_slot(%s)", SLOT)
    setting.finish(**signing)
    assert set(setting.rows()) - {"-1"} == {str(number) for number in range(120)}


@pytest.mark.full
def test_a_slot_that_was_moved_is_found_after_the_broker_forgot_the_position(setting: Setting) -> None:
    """After six hours without a run the broker has no number of the last mark; the mark itself is still stored."""
    setting.finish()
    setting.insert(0, 10)
    setting.finish()
    setting.insert(10, 10)
    setting.move_slot()
    setting.forget_numbers()
    with setting.run() as process:
        assert process.wait(60) == 64
    assert "K793" in setting.log
    assert "would not show" not in setting.log


@pytest.mark.full
def test_the_connection_is_kept_while_a_partition_is_read(
    broker: Broker, tenant: str, tmp_path: Path, own_postgres: Postgres
) -> None:
    """The server ends a stream that reports nothing for wal_sender_timeout."""
    own_postgres.restart_with(wal_level="logical", wal_sender_timeout="2s")
    setting = Setting(broker, tenant, tmp_path, own_postgres.create().replace("+psycopg", ""))
    setting.finish()
    setting.insert(0, 400)
    setting.finish()
    setting.insert(400, 100)
    setting.change_file("partitions: 2", "message_properties: {bucket: optional}\n    partitions: 2")
    setting.finish(KILL_AT="slow read", KILL_NTH="25")
    assert "reading what an earlier process stored there" in setting.log
    assert "next try in" not in setting.log
    assert setting.rows() == Counter({str(number): 1 for number in range(500)})


def promote(setting: Setting, server: Postgres) -> None:
    """Makes the server begin a new timeline, as a standby that becomes the primary."""
    [(folder,)] = setting.sql("SELECT current_setting('data_directory')")
    server.stop()
    signal_file = Path(folder, "standby.signal")
    signal_file.touch()
    owner = Path(folder).stat()
    os.chown(signal_file, owner.st_uid, owner.st_gid)
    server.start()
    setting.sql("SELECT pg_promote()")


@pytest.mark.full
def test_a_commit_of_another_timeline_has_another_id(
    broker: Broker, tenant: str, tmp_path: Path, own_postgres: Postgres
) -> None:
    """A standby that becomes the primary counts positions from where it was, and what the old primary sent after that may
    have the position of a new commit. What was sent before that is known, under the numbers of the old timeline.
    """
    own_postgres.restart_with(wal_level="logical")
    setting = Setting(broker, tenant, tmp_path, own_postgres.create().replace("+psycopg", ""))
    setting.insert(0, 40)
    setting.finish()
    setting.verify()
    setting.insert(40, 40)
    with setting.run(KILL_AT="reports", KILL_NTH=str(setting.end_number())) as process:
        assert process.wait(60) == -signal.SIGKILL
    own = max((one for _, one in setting.arrived() if one.data()), key=lambda one: one.publish_timestamp())
    promote(setting, own_postgres)
    setting.insert(100, 1)
    lsn = setting.open_commits()[-1]
    number = int(Position(read_lsn(lsn), 0).number)
    prefix = own.properties()["kodo-id"].rpartition(":")[0]
    for topic in {
        one.topic_name() for _, one in setting.arrived()
    }:  # what the old primary sent under the same position
        properties = {"kodo-id": f"{prefix}:{lsn}#0", "kodo-seq": f"0123456789abcde:{topic[-1]}:1"}
        setting.send(topic, properties, own.producer_name(), number)
    setting.insert(101, 40)
    setting.finish()
    assert setting.rows() - Counter({"-1": 2}) == Counter(str(number) for number in (*range(80), *range(100, 141)))
    ids = {one.properties()["kodo-id"] for _, one in setting.arrived() if "kodo-id" in one.properties()}
    assert {one.rpartition(":")[0] for one in ids} == {prefix, f"{prefix}@2"}
    code, said = setting.verify()
    assert (code, "3 stored once" in said) == (0, True)
    setting.insert(200, 1)
    setting.move_slot()
    promote(setting, own_postgres)
    with setting.run() as process:
        assert process.wait(60) == 64
    assert "K793" in setting.log, "marks of the old timeline say what is stored"


@pytest.mark.full
def test_a_snapshot_without_room_for_its_slots_sends_nothing(
    broker: Broker, tenant: str, tmp_path: Path, own_postgres: Postgres
) -> None:
    """The slot of `source verify` may have the last place. Each try would send all rows once more."""
    own_postgres.restart_with(wal_level="logical", max_replication_slots="2")
    setting = Setting(broker, tenant, tmp_path, own_postgres.create().replace("+psycopg", ""))
    setting.insert(0, 10)
    setting.finish()
    setting.verify()
    setting.sql("SELECT pg_drop_replication_slot(%s)", SLOT)
    with setting.run():
        eventually(lambda: setting.log.count("takes 2 replication slots, and the server has 1 free") >= 2, within=60)
        assert setting.rows() == Counter({str(number): 1 for number in range(10)})
        setting.verify("--end")
        eventually(setting.has_slot, within=60)


@pytest.mark.parametrize(
    "step", ["sent.", *(pytest.param(step, marks=pytest.mark.full) for step in ("snapshot-sent", "slot-made."))]
)
def test_a_snapshot_that_is_killed_begins_anew(setting: Setting, step: str) -> None:
    setting.insert(0, 300)
    with setting.run(KILL_AT=step, KILL_NTH="150" if step == "sent." else "1") as process:
        assert process.wait(60) == -signal.SIGKILL, setting.log
    assert setting.has_slot() == (step == "slot-made.")
    setting.finish()
    rows = setting.rows()
    assert set(rows) == {str(number) for number in range(300)}
    assert set(rows.values()) <= ({1} if step == "slot-made." else {1, 2})


def test_a_commit_that_was_skipped_is_missed_by_its_number(setting: Setting) -> None:
    setting.finish()
    setting.insert(0, 100)
    setting.finish(KILL_AT="skip", KILL_NTH="50")
    assert len(setting.rows()) == 99
    assert setting.missing_numbers() == 1


@pytest.mark.full
@pytest.mark.parametrize("how", ["advanced", "made anew"])
def test_a_slot_that_somebody_moved_is_no_quiet_loss(setting: Setting, how: str) -> None:
    setting.finish()
    setting.insert(0, 10)
    setting.finish()
    setting.insert(10, 10)
    if how == "advanced":
        setting.move_slot()
    else:
        setting.sql("SELECT pg_drop_replication_slot(%s)", SLOT)
        setting.sql("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", SLOT)
    with setting.run() as process:
        assert process.wait(60) == 64
    said = " ".join(setting.log.split())
    assert "K793" in said
    assert "is passed over" in said
    assert len(setting.rows()) == 10
    [(position,)] = setting.sql("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", SLOT)
    assert f"--accept-gap {position}" in said
    setting.change_file("partitions: 2", "message_properties: {bucket: optional}\n    partitions: 2")
    for other in ("0/1", "0/2"):
        with setting.run("--accept-gap", other) as process:
            assert process.wait(60) == 64, (
                "another position than that of the slot, and a start of another file covers nothing"
            )
    setting.insert(20, 5)
    setting.finish("--accept-gap", position)
    assert set(setting.rows()) == {str(number) for number in [*range(10), *range(20, 25)]}
    setting.insert(25, 5)
    setting.finish()
    assert len(setting.rows()) == 20


@pytest.mark.full
def test_marks_cover_the_log_without_a_gap_but_for_that_which_was_accepted(setting: Setting) -> None:
    for number in range(3):
        setting.insert(number, 1)
        with setting.run() as process:
            eventually(setting.has_slot, within=60)
            setting.insert(10 + number, 1)
            setting.await_confirmed(process)
            process.kill() if number else process.terminate()
    covered = [
        one.properties()["kodo-covered"].split("..")
        for _, one in setting.arrived()
        if "kodo-covered" in one.properties()
    ]
    spans = sorted((read_lsn(first), read_lsn(last)) for first, last in covered)
    assert spans[0][0] == 0, "the snapshot"
    assert all(after[0] <= before[1] for before, after in itertools.pairwise(spans))
    [(confirmed,)] = setting.sql(
        "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", SLOT
    )
    assert read_lsn(confirmed) <= spans[-1][1]


@pytest.mark.full
def test_transactions_that_interleave_abort_and_are_large(setting: Setting) -> None:
    setting.finish()
    with psycopg.connect(setting.url) as one, psycopg.connect(setting.url) as other, setting.run() as process:
        one.execute("INSERT INTO orders SELECT n, 1, 'eu', 'one' FROM generate_series(1, 100000) n")
        other.execute("INSERT INTO orders VALUES (200001, 1, 'eu', 'other')")
        with one.transaction(force_rollback=True):
            one.execute("INSERT INTO orders VALUES (300001, 1, 'eu', 'aborted')")
        setting.insert(200_002, 1)
        other.commit()
        one.commit()
        setting.sql("DELETE FROM orders WHERE false")  # the end of the log is known again
        setting.await_confirmed(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    rows = setting.rows()
    assert rows == Counter({str(number): 1 for number in [*range(1, 100_001), 200_001, 200_002]})


@pytest.mark.full
def test_a_publication_of_another_topology_is_not_read(setting: Setting) -> None:
    setting.finish()
    marker = {"topology": "shop-db", "namespace": f"{setting.tenant}/ns", "cluster": "c", "tenant_uuid": "u"}
    setting.sql(f"COMMENT ON PUBLICATION {SLOT} IS 'kodoctl {json.dumps(marker)}'")
    with setting.run() as process:
        assert process.wait(60) == 64
    assert f"belongs to the topology shop-db in {setting.tenant}/ns" in " ".join(setting.log.split())
    marker |= {"topology": "shop", "cluster": "prod"}
    setting.sql(f"COMMENT ON PUBLICATION {SLOT} IS 'kodoctl {json.dumps(marker)}'")
    with setting.run() as process:
        assert process.wait(60) == 64
    assert "on cluster prod" in " ".join(setting.log.split()), "of the same topology on another cluster"


def test_a_database_that_was_never_applied_gets_no_slot(setting: Setting) -> None:
    """A variable that names another database than that of the last apply: the right name in the wrong place."""
    namespace = NamespaceName(setting.tenant, "ns")
    applied = Ledger("shop", namespace, digest="0" * 64, databases={"SHOP_DATABASE_URL": "7300000000000000001/16384"})
    properties = {f"{LEDGER_PREFIX}shop": encode(applied)}
    assert setting.broker.admin("PUT", f"namespaces/{namespace}/properties", properties).ok
    setting.insert(0, 5)
    with setting.run() as process:
        assert process.wait(60) == 64
    said = " ".join(setting.log.split())
    assert "K440" in said
    assert "was applied in 7300000000000000001/16384: nothing was sent" in said
    assert not setting.has_slot()
    assert setting.arrived() == []
    [(here,)] = setting.sql(IDENTITY.lstrip())
    properties = {f"{LEDGER_PREFIX}shop": encode(replace(applied, databases={"SHOP_DATABASE_URL": here}))}
    assert setting.broker.admin("PUT", f"namespaces/{namespace}/properties", properties).ok
    setting.finish()
    assert len(setting.rows()) == 5


def test_a_slot_of_another_database_is_told_before_any_row_is_sent(setting: Setting, logical_server: Postgres) -> None:
    """Each try sent the snapshot, which came in vain: the name of its slot was taken."""
    setting.insert(0, 5)
    other = logical_server.create()
    try:
        with psycopg.connect(other.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute(f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')".encode())
        with setting.run() as process:
            assert process.wait(60) == 64
    finally:
        logical_server.drop_slots(other)
        logical_server.drop(other)
    assert f"of the same server has a slot {SLOT}" in " ".join(setting.log.split())
    assert setting.arrived() == []


@pytest.mark.full
def test_a_second_process_waits_and_takes_over(setting: Setting) -> None:
    setting.finish()
    with setting.run() as first, setting.run() as second:
        eventually(lambda: "another `source run` has it" in setting.log, within=60)
        setting.insert(0, 10)
        setting.await_confirmed(first)
        first.kill()
        second_pid = second.pid
        setting.insert(10, 10)
        setting.await_confirmed(second)
        assert second.pid == second_pid
    assert "is active for PID" in setting.log
    assert setting.rows() == Counter({str(number): 1 for number in range(20)})


@pytest.mark.full
def test_a_mapped_column_that_vanished_stops_it_and_nothing_is_lost(setting: Setting) -> None:
    setting.finish()
    setting.insert(-5, 5)
    setting.insert(0, 5)
    setting.sql("ALTER TABLE orders RENAME COLUMN region TO area")
    setting.insert(5, 5)
    with setting.run() as process:
        assert process.wait(60) == 64
    assert "K791" in setting.log
    assert "it has no column region any more" in setting.log
    assert set(setting.rows()) == {str(number) for number in range(-5, 5)}


@pytest.mark.full
def test_a_large_value_that_an_update_left_alone_is_read_from_the_table(setting: Setting) -> None:
    setting.finish()
    setting.sql("ALTER TABLE orders ALTER COLUMN note SET STORAGE EXTERNAL")
    setting.sql("INSERT INTO orders VALUES (1, 1, 'eu', repeat('x', 20000))")
    setting.sql("UPDATE orders SET total = 2")
    setting.finish()
    notes = [json.loads(one.data())["note"] for _, one in setting.arrived() if one.data()]
    assert notes == ["x" * 20_000] * 2
    setting.sql("UPDATE orders SET total = 3")
    setting.sql("DELETE FROM orders")
    setting.finish()
    assert "its row was deleted by a later commit" in setting.log


@pytest.mark.full
def test_a_database_that_goes_away_and_comes_back(
    broker: Broker, tenant: str, tmp_path: Path, own_postgres: Postgres
) -> None:
    own_postgres.restart_with(wal_level="logical")
    setting = Setting(broker, tenant, tmp_path, own_postgres.create().replace("+psycopg", ""))
    with setting.run() as process:
        eventually(setting.has_slot, within=25)
        setting.insert(0, 1_000)
        own_postgres.stop()
        eventually(lambda: "next try in" in setting.log, within=60)
        own_postgres.start()
        setting.insert(1_000, 10)
        setting.await_confirmed(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert "it works again" in setting.log
    assert setting.rows() == Counter({str(number): 1 for number in range(1_010)})
    assert setting.missing_numbers() == 0


@pytest.mark.full
def test_lag_at_a_thousand_rows_a_second(setting: Setting) -> None:
    setting.finish()
    over = threading.Event()
    with setting.run() as process:
        eventually(lambda: "changes of" in setting.log, within=60)
        began = time.monotonic()
        for second in range(20):
            setting.insert(second * 100, 100)
            over.wait(max(0.0, began + second / 10 - time.monotonic()))
        setting.await_confirmed(process)
        assert time.monotonic() - began < 60, "a source that stood still would need its next try"
