"""Hostile messages among honest ones, on a real broker, and what became of each."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kodo_consumer import Consumer, Message
from kodo_consumer.runtime.worker import Worker

from tests.brokers.broker import Broker
from tests.brokers.topics import backlog, create_topics, messages
from tests.brokers.wire_producer import WireProducer, binary, wire_metadata
from tests.hostile.messages import Fate, Hostile, hostile
from tests.services.polling import eventually

TOPOLOGY: Final = """
version: 1
name: hostile
tenant: {tenant}
namespace: ns
topics:
  jobs:
    partitions: 1
    fair_by: uid
    subscriptions: {{work: {{states: [retrying], in_place: [], retrying: {{delays: [1s], attempts: 1}}}}}}
"""
_HONEST_EVERY: Final = 7


@dataclass(slots=True)
class Sent:
    """One message with its place, `ledger:entry`; "" where the broker did not take it."""

    hostile: Hostile
    lane: str
    place: str = ""


@dataclass
class Campaign:
    """A topology with a ready and a retrying lane, its consumer, and what was sent to them."""

    broker: Broker
    namespace: str
    folder: Path
    sent: list[Sent] = field(default_factory=list)
    honest: int = 0
    handled: Counter[bytes] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.file = self.folder / "t.yaml"
        self.file.write_text(TOPOLOGY.format(tenant=self.namespace.partition("/")[0]), encoding="utf-8")
        create_topics(self.broker, str(self.file))
        self.topic = f"persistent://{self.namespace}/jobs"
        self.lanes = (self.topic, f"{self.topic}-work-RETRYING")
        self.dead = f"{self.topic}-work-DLQ"
        self._lock = threading.Lock()
        at = {"admin_url": self.broker.admin_url, "broker_url": self.broker.broker_url}
        self.consumer = Consumer.load(self.file, topic="jobs", subscription="work", environ={}, **at)
        self.consumer.settings = replace(self.consumer.settings, port=0)
        self.consumer.handler(self._handle)

    def _handle(self, message: Message) -> None:
        with self._lock:
            self.handled[message.data] += 1

    def send(self, seed: int, count: int) -> None:
        """Hostile messages of this seed to every lane, with honest ones of another tenant among them."""
        drawn = list(hostile(seed, count))
        for index, lane in enumerate(self.lanes):
            self._send(lane, drawn[index :: len(self.lanes)])

    def _send(self, lane: str, drawn: Sequence[Hostile]) -> None:
        uid = binary(4, binary(1, b"uid") + binary(2, b"honest"))
        with WireProducer(self.broker.broker_url, f"{lane}-partition-0") as producer:
            begun: list[tuple[int, Sent]] = []
            for number, one in enumerate(drawn):
                if number % _HONEST_EVERY == 0:
                    producer.begin(wire_metadata(uid), b"honest-%d" % self.honest)
                    self.honest += 1
                sent = Sent(one, lane)
                begun.append((producer.begin(one.metadata, one.body, one.command, one.checksum), sent))
                self.sent.append(sent)
            receipts = producer.receipts()
        for number, sent in begun:
            if not isinstance(found := receipts[number], str):
                sent.place = "{}:{}".format(*found)

    def of(self, *fates: Fate) -> list[Sent]:
        """What has one of these fates."""
        return [sent for sent in self.sent if sent.hostile.fate in fates]

    @property
    def honest_handled(self) -> int:
        """Honest messages that were handled, repeats among them."""
        with self._lock:
            return sum(times for data, times in self.handled.items() if data.startswith(b"honest-"))

    def left(self) -> int:
        """Entries that the subscription has not acknowledged, in all lanes."""
        return sum(backlog(self.broker, lane, "work") for lane in self.lanes)

    def come_to_rest(self, within: float) -> None:
        """Until nothing is left but what nobody gets."""
        withheld = len(self.of(Fate.WITHHELD))
        eventually(lambda: self.left() == withheld, within=within, every=0.3)

    def letters(self) -> Counter[bytes]:
        """Payloads of the dead letters."""
        return Counter(letter.data() for letter in messages(self.broker, self.dead))

    def run(self, seed: int, count: int, within: float) -> str:
        """Sends, consumes until nothing is left, and judges; answers figures. Raises AssertionError, with the seed."""
        self.send(seed, count)
        self.consumer.start()
        try:
            self.come_to_rest(within)
            worker = self._worker
            assert worker.problem is None, seed
            assert health(self.consumer, "/healthz") == (200, []), seed
            eventually(
                lambda: health(self.consumer, "/readyz") == (200, []), within=within
            )  # "blocked" until read anew
        finally:
            self.consumer.stop()
        letters = self.letters()
        assert self.misread(letters) == [], f"seed {seed}"
        counts, told = worker.counts, worker.alarms.counts["thrown_away"]
        unseen = sum(not self._known(sent, letters) for sent in self.of(Fate.NOT_OURS))
        assert counts.finished["not_for_me"] + counts.marks >= unseen, f"seed {seed}: acknowledged without a word"
        thrown_away = len(self.of(Fate.THROWN_AWAY))
        assert told >= thrown_away, f"seed {seed}: {thrown_away - told} of {thrown_away} thrown away without a word"
        assert all(not sent.place for sent in self.of(Fate.REFUSED)), f"seed {seed}"
        fates = Counter(sent.hostile.fate.value for sent in self.sent)
        return (
            f"seed {seed}: {count:,} hostile ({', '.join(f'{fate} {n:,}' for fate, n in fates.items())}), {self.honest:,} honest; "
            f"handled {self.handled.total():,}, dead letters {letters.total():,}, for others {unseen}, told as thrown away {told}"
        )

    def misread(self, letters: Counter[bytes]) -> list[str]:
        """Messages that were not handled once, and are not a dead letter once, with their payload; payloads nobody sent."""
        seen = letters + self.handled
        honest = {b"honest-%d" % number for number in range(self.honest)}
        found = [f"{data!r}: handled {self.handled[data]} times" for data in honest if self.handled[data] != 1]
        for sent in self.of(Fate.READ):
            found += [
                f"{sent.hostile.form} at {sent.place}: {seen[payload]} times"
                for payload in sent.hostile.payloads
                if seen[payload] != 1
            ]
        sent_at_all = honest.union(*(sent.hostile.payloads for sent in self.sent))
        return found + [f"{data[:60]!r} was never sent" for data in seen if data not in sent_at_all]

    def _known(self, sent: Sent, letters: Counter[bytes]) -> bool:
        return any(letters[payload] or self.handled[payload] for payload in sent.hostile.payloads)

    @property
    def _worker(self) -> Worker:
        running = self.consumer._running
        assert running is not None
        return running.worker


def health(consumer: Consumer, path: str) -> tuple[int, list[str]]:
    """Status and what the only worker says."""
    try:
        with urllib.request.urlopen(f"http://{consumer.address}{path}", timeout=10) as answer:
            status, body = answer.status, answer.read()
    except urllib.error.HTTPError as problem:
        status, body = problem.code, problem.read()
    return status, json.loads(body)["workers"][0]["problems"]
