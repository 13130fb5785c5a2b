"""A consumer's traffic on the real broker, and what the pipeline makes of it."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pulsar
import pytest
from kodo_pipeline.audit.audit_inputs import load_inputs
from kodo_pipeline.audit.incremental_audit import AuditOptions, judge_landing
from kodo_pipeline.ingest.job import IngestRequest, ingest, present
from kodo_pipeline.landing.landing_store import Landing

from kodoctl.protocol.audit_records import Event, Record, decode, encode
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology
from tests.broker.test_consumer_process import TOPOLOGY, Setting
from tests.brokers.topics import create_topics
from tests.services.polling import eventually

AUDITED = TOPOLOGY.replace("work: {{", "work: {{audit: true, ").replace(
    "topics:", "defaults: {{partitions: 1}}\ntopics:", 1
)
SENDER = """
import os
import sys

from kodo_consumer import Producer

file, admin, broker, count = sys.argv[1:]
keys = {name: os.environ[name] for name in os.environ.keys() & {"KODO_CONSUMER_SIGNING_KEYS"}}
with Producer.load(file, topic="jobs", admin_url=admin, broker_url=broker, environ=keys) as producer:
    for number in range(int(count)):
        producer.post(b"1", properties={"uid": "u1"})
"""


class Judged(Setting):
    """A consumer's traffic, and what the pipeline makes of it. Begun by a reading before the first message, unless told not to."""

    topology = AUDITED

    def __init__(self, spark, broker, tenant, folder, *, look=True):
        super().__init__(broker, tenant, folder)
        self.spark, self.namespace = spark, f"{tenant}/ns"
        self.declare(self.topology.format(tenant=tenant))
        create_topics(broker, str(self.file))
        self.landing = Landing(str(folder / "landing"), self.expansion.name, None)
        self.part = f"persistent/{self.namespace}/jobs-partition-0"
        self.runs = self.audits = 0
        self.judged = []  # by audit, whether all rows were
        if look:
            self.read()

    def declare(self, text):
        """The topology file."""
        self.file.write_text(text, encoding="utf-8")
        self.expansion = expand(load_topology(str(self.file)))

    def client(self):
        return closing(pulsar.Client(self.broker.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)))

    def read(self, *, accept_holes=False):
        """One ingest."""
        connection = Connection(admin_url=self.broker.admin_url, broker_url=self.broker.broker_url)
        run, self.runs = f"r{self.runs}", self.runs + 1
        request = IngestRequest(self.expansion, connection, self.landing, run, 1 << 28, accept_holes)
        ingest(request, present(request)[0], self.spark, lambda _: None)

    def verdict(self, ledger="recalls"):
        admin = HttpAdmin(Connection(admin_url=self.broker.admin_url, broker_url=self.broker.broker_url))
        ledger, self.audits = str(self.folder / ledger), self.audits + 1
        try:
            found, all_rows = (
                judge_landing(
                    self.spark,
                    self.landing,
                    load_inputs(self.spark, self.landing, self.expansion, admin, ledger, None),
                    options,
                )
                for options in (AuditOptions(f"a{self.audits}", few=0), AuditOptions("", few=1 << 62))
            )
        finally:
            admin.close()
        self.judged.append(found.pop("judged"))
        all_rows.pop("judged")
        assert found == all_rows, "by increments, and all at once"
        assert not self.judged[-1]["unsaved"]
        return found

    def work(self, count):
        """So many messages more, and every one done."""
        before = sum(self.done().values())
        with self.run():
            self.send(count)
            eventually(lambda: sum(self.done().values()) >= before + count and self.left() == 0, within=120)

    def finish(self, count):
        """A worker runs until that many different ones are done, and nothing is left."""
        with self.run():
            eventually(lambda: len(self.done()) == count and self.left() == 0, within=120)

    def send_apart(self, count):
        """So many messages by a process of its own, with the clock that it has."""
        addresses = [str(self.file), self.broker.admin_url, self.broker.broker_url, str(count)]
        subprocess.run([sys.executable, "-c", SENDER, *addresses], check=True, timeout=120)

    def skipped_is_lost(self):
        """Three more, and their cursor set behind them: just those are lost."""
        self.skip(3)
        return self.lost(3)

    def records(self):
        """What the audit topic has."""
        with self.client() as client:
            reader = client.create_reader(f"{self.topic}-work-AUDIT-partition-0", pulsar.MessageId.earliest)
            found = []
            while reader.has_message_available():
                found += decode(reader.read_next(5_000).data())
            return found

    def removed_and_forged(self, **columns):
        """A message removed behind our back, and somebody's record that it was done; `columns` of it are not as they should be."""
        self.publish()
        self.told("POST", "/subscription/work/skip_all")
        place = self.stored()[-1].message_id()
        identity = f"{place.ledger_id()}:{place.entry_id()}:0:-1"
        told: dict[str, Any] = {
            "run": f"forged-{time.time_ns()}", "subscription": "work", "number": 1, "at": int(time.time() * 1000),
            "topic": self.topic, "id": identity, "identity": identity, "hop": 0, "event": Event.DONE, "rule": "done",
        } | columns  # fmt: skip
        made = encode([Record(**told)])
        with self.client() as client:
            client.create_producer(f"{self.topic}-work-AUDIT").send(
                made.payload, properties=dict(made.properties), partition_key=made.key
            )

    def told(self, method, what, body=None, **params):
        """A call of the admin API about the ground topic."""
        answer = self.broker.admin(method, f"persistent/{self.namespace}/jobs{what}", body, **params)
        assert answer.ok, answer.text

    def skip(self, count):
        """So many messages, and their cursor set behind them."""
        self.send(count)
        self.told("POST", "/subscription/work/skip_all")

    def skip_on_an_added_partition(self, count):
        """The same on the second partition, which the topic has from now on."""
        self.told("POST", "/partitions", 2)
        with self.client() as client:
            producer = client.create_producer(f"{self.topic}-partition-1", batching_enabled=False)
            for _ in range(count):
                producer.send(b"7", properties={"uid": "u1"})
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

    def die(self, *identities):
        """Dead letters, as a worker leaves them."""
        with self.client() as client:
            producer = client.create_producer(f"{self.topic}-work-DLQ", batching_enabled=False)
            for name in identities:
                producer.send(b"7", properties={"uid": "u1", "kodo-id": name})

    def recall(self):
        """Every dead letter, back to where it is tried again."""
        named = ["--topic", "jobs", "--subscription", "work", "--where", "true", "--out", "plan.json"]
        where = ["--ledger", "recalls", "--admin-url", self.broker.admin_url, "--broker-url", self.broker.broker_url]
        self.told("POST", "-work-RETRYING/deduplicationEnabled", body=True)
        (self.folder / "plan.json").unlink(missing_ok=True)
        for words in (["plan", str(self.file), *named], ["apply", "plan.json", "--rate", "5000/s"]):
            run = [str(Path(sys.executable).with_name("kodoctl")), "recall", *words, *where]
            ended = subprocess.run(run, cwd=self.folder, timeout=120, capture_output=True, text=True, check=False)
            assert not ended.returncode, ended.stderr

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


def outcome(found):
    """The verdict, and what kinds of reasons there are."""
    return found["verdict"], {one["kind"] for one in found["reasons"]}


@pytest.fixture
def judged(spark, broker, tenant, tmp_path):
    """Looked at, and nothing stored yet."""
    return Judged(spark, broker, tenant, tmp_path)
