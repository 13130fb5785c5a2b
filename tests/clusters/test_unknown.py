"""What cannot be read is unknown, and never absent: plans while a broker dies, and while parts of the namespace move.

Each plan either says what the cluster is like, word for word what a plan says in calm, or refuses with a clear error. What is in
the file is on the cluster, and ten topics that are no longer in it hold unread messages, so that each plan shows ten deletes with
K401.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pulsar
import pytest

from kodoctl.cli.common.command_target import load_desired
from kodoctl.errors import KodoctlError
from kodoctl.plan.changes import Change, Update
from kodoctl.plan.diff import Allowances
from kodoctl.plan.inventory import Desired
from kodoctl.plan.live.planner import plan_live
from kodoctl.plan.plan import Plan
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.session import Session
from tests.brokers.cluster import Cluster, owner_url
from tests.brokers.workspace import run_main

log = logging.getLogger(__name__)
pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]
BROKERS = ("broker-1", "broker-2", "broker-3")
OLD = 10
UNREAD = 20
KEPT = """\
  orders:
    levels: double
    backup: true
    partitions: 3
    policies: {retention: {time: 7d, size: 20GiB}}
    subscriptions:
      billing: {retrying: {delays: [10s, 1m], attempts: 3}, backup: {delays: [1m], attempts: 3}}
      invoices: {states: [], dead_letter: false}
  shipments:
    partitions: 4
    subscriptions: {tracking: {retrying: {delays: [10s], attempts: 3}}, mail: {states: [], dead_letter: false}}
  clicks: {partitions: 2, subscriptions: {counting: {states: [], dead_letter: false}}}
"""
REFUSALS = frozenset({"K510", "K513", "K514", "K518", "K580"})
Said = frozenset[tuple[object, ...]]


@dataclass
class Tally:
    """Of plans made beside each other: how many told the truth, which refused, and what each untrue one said."""

    complete: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    false: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def plans(self) -> int:
        """All of them."""
        return self.complete + self.refused.total() + len(self.false)

    def __str__(self) -> str:
        return f"{self.plans} plans: {self.complete} complete, refused {dict(self.refused)}, {len(self.false)} untrue"


def said(plan: Plan) -> Said:
    """What a plan would do, and why not, without figures that change with time."""
    changes = {(*_change(change), tuple(sorted(one.code for one in change.about.dangers))) for change in plan.changes}
    return frozenset({*changes, *((finding.code, finding.detail) for finding in plan.findings)})


def _change(change: Change) -> tuple[object, ...]:
    fields = change.fields if isinstance(change, Update) else ()
    return type(change).__name__, change.address, tuple((one.name, str(one.before), str(one.after)) for one in fields)


@dataclass
class Planned:
    """A namespace on the cluster, the file as it is now, and what each plan has to say."""

    cluster: Cluster
    namespace: str
    file: Path
    desired: Desired
    tally: Tally = field(default_factory=Tally)
    truth: Said = frozenset()

    def session(self, number: int) -> Session:
        """Through one broker alone."""
        broker = self.cluster.through(number)
        return Session(Connection(broker.admin_url, broker.broker_url))

    def plan(self, number: int) -> Plan:
        """One plan through a broker (1 to 3), as a command makes it."""
        with self.session(number) as session:
            return plan_live(session, self.desired, Allowances()).plan

    def check(self, number: int, at: float) -> None:
        """One plan, counted; `at`: seconds since what happened to the cluster."""
        try:
            now = said(self.plan(number))
        except KodoctlError as refusal:
            [code, *_] = {finding.code for finding in refusal.diagnostics}
            with self.tally.lock:
                self.tally.refused[code] += 1
                if code not in REFUSALS:
                    self.tally.false.append(f"{at:.1f} s, through broker-{number}: {refusal}")
            return
        with self.tally.lock:
            if now == self.truth:
                self.tally.complete += 1
            else:
                more, less = sorted(map(str, now - self.truth)), sorted(map(str, self.truth - now))
                self.tally.false.append(f"{at:.1f} s, through broker-{number}: {more[:5]} instead of {less[:5]}")

    def plan_for(self, seconds: float, brokers: list[int], meanwhile: Callable[[], object] | None = None) -> None:
        """Plans through each of these brokers, one a second, while something goes on."""
        began = time.monotonic()

        def one_after_the_other(number: int) -> None:
            for second in itertools.count():
                if (at := time.monotonic() - began) >= seconds:
                    return
                if at >= second:
                    self.check(number, at)
                time.sleep(max(0.05, second + 1 - (time.monotonic() - began)) if at < second + 1 else 0)

        def go_on() -> None:
            while meanwhile is not None and time.monotonic() - began < seconds:
                meanwhile()

        threads = [threading.Thread(target=one_after_the_other, args=(number,)) for number in brokers]
        for thread in (*threads, threading.Thread(target=go_on)):
            thread.start()
            threads.append(thread)
        for thread in threads:
            thread.join()

    def spread(self) -> None:
        """Gives each broker its share of the bundles, also one that has just been started, and waits until a plan can be made."""
        self.cluster.spread(self.namespace)
        while True:
            try:
                self.plan(1)
            except KodoctlError:
                time.sleep(0.5)
            else:
                return

    def owned_by(self, number: int) -> int:
        """Partitions with unread messages that a broker has."""
        names = [f"persistent://{self.namespace}/old-{n}-partition-{part}" for n in range(OLD) for part in (0, 1)]
        url = self.cluster.admin_urls[number - 1]
        return sum(owner_url(url, name) == url for name in names)


@pytest.fixture
def planned(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Planned]:
    with _on(cluster, namespace, tmp_path) as found:
        yield found


@contextmanager
def _on(cluster: Cluster, namespace: str, folder: Path) -> Iterator[Planned]:
    tenant, _, local = namespace.partition("/")
    head = f"version: 1\nname: trade\ntenant: {tenant}\nnamespace: {local}\ndefaults: {{policies: {{retention: {{time: 3d, size: 1GiB}}}}}}\ntopics:\n"
    old = "".join(
        f"  old-{n}: {{partitions: 2, subscriptions: {{s: {{states: [], dead_letter: false}}}}}}\n" for n in range(OLD)
    )
    file, broker = folder / "trade.yaml", cluster.through(1)
    file.write_text(head + KEPT + old, encoding="utf-8")
    where = ["--admin-url", broker.admin_url, "--broker-url", broker.broker_url]
    done = run_main("apply", str(file), "--auto-approve", *where)
    assert done.code == 0, done.text
    client = pulsar.Client(cluster.broker_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    try:
        for topic in [*(f"old-{n}" for n in range(OLD)), "orders", "shipments"]:
            producer = client.create_producer(f"persistent://{namespace}/{topic}", batching_enabled=False)
            for _ in range(UNREAD):
                producer.send(b"unread")
    finally:
        client.close()
    file.write_text(head + KEPT, encoding="utf-8")
    found = Planned(cluster, namespace, file, load_desired([str(file)], None))
    found.spread()
    found.truth = said(found.plan(1))
    deletes = [one for one in found.truth if one[0] == "Delete" and "K401" in str(one[-1])]
    assert len(deletes) == OLD, found.truth
    assert not any(one[0] in ("Create", "Update", "Adopt") for one in found.truth)
    yield found


def _death(planned: Planned, number: int, seconds: float) -> None:
    assert planned.owned_by(number) > 0
    planned.cluster.kill(f"broker-{number}")
    try:
        planned.plan_for(seconds, [other for other in (1, 2, 3) if other != number])
    finally:
        planned.cluster.start(f"broker-{number}")
        planned.cluster.wait_ready(f"broker-{number}")


def test_a_plan_through_a_healthy_broker_says_nothing_untrue_after_another_broker_died(planned: Planned) -> None:
    _death(planned, 2, 40)
    assert planned.tally.false == [], planned.tally
    assert planned.tally.complete > 0, planned.tally


def test_an_apply_in_the_window_of_a_death_deletes_no_unread_message(planned: Planned) -> None:
    """Nobody allowed it to: a partition that cannot be asked counts neither as gone nor as empty, in the last look as in the first."""
    killed = next(number for number in (2, 3) if planned.owned_by(number))
    other = planned.cluster.through(5 - killed)
    where = ["--admin-url", other.admin_url, "--broker-url", planned.cluster.broker_url]
    planned.cluster.kill(f"broker-{killed}")
    end, refusals = time.monotonic() + 40, Counter[str]()
    while time.monotonic() < end:
        done = run_main("apply", str(planned.file), "--auto-approve", *where)
        assert done.code != 0, done.text
        refusals.update(code for code in ("K401", *REFUSALS) if code in done.text)
    log.warning("%s", refusals)
    assert refusals["K401"] > 0, done.text
    planned.cluster.start(f"broker-{killed}")
    planned.cluster.wait_ready(f"broker-{killed}")
    assert said(planned.plan(1)) == planned.truth
    for n in range(OLD):
        stats = planned.cluster.admin("GET", f"persistent/{planned.namespace}/old-{n}/partitioned-stats").json()
        assert stats["subscriptions"]["s"]["msgBacklog"] == UNREAD


def test_a_plan_says_nothing_untrue_while_bundles_are_unloaded_and_split(planned: Planned) -> None:
    _storm(planned, 15)
    assert planned.tally.false == [], planned.tally
    assert planned.tally.complete > 0, planned.tally


def test_a_plan_says_nothing_untrue_while_a_broker_is_restarted(planned: Planned) -> None:
    """In order: then it answers for a moment as if no policy of its topics were set."""

    def restart() -> None:
        planned.cluster.stop("broker-3")
        planned.cluster.start("broker-3")
        planned.spread()

    planned.plan_for(20, [1, 2], restart)
    assert planned.tally.false == [], planned.tally
    assert planned.tally.complete > 0, planned.tally


def _storm(planned: Planned, seconds: float) -> None:
    turn = itertools.count()

    def unload() -> None:
        path, number = f"namespaces/{planned.namespace}", next(turn)
        bounds = planned.cluster.admin("GET", f"{path}/bundles").json()["boundaries"]
        at = number % (len(bounds) - 1)
        bundle = f"{path}/{bounds[at]}_{bounds[at + 1]}"
        if number % 6 == 5:
            planned.cluster.admin("PUT", f"{bundle}/split", unload="true")
        else:
            planned.cluster.admin("PUT", f"{path}/unload" if number % 6 == 2 else f"{bundle}/unload")
        time.sleep(0.3)

    planned.plan_for(seconds, [1, 2, 3], unload)


@pytest.mark.timeout(3_600)
def test_two_hundred_plans_through_the_windows_of_twenty_deaths_say_nothing_untrue(planned: Planned) -> None:
    deaths = 0
    while deaths < 20 or planned.tally.plans < 200:  # a busy machine makes fewer plans in a window
        _death(planned, deaths % 3 + 1, 45)
        planned.spread()
        deaths += 1
    log.warning("%s", planned.tally)
    assert planned.tally.false == [], planned.tally
    assert planned.tally.plans >= 200, planned.tally
