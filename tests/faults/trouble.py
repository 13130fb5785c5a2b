"""The faults, each with what it may double: handler runs, never effects. The rows of the fault matrix that one machine allows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pulsar

from tests.faults.campaign import EVERYTHING, HELD, Campaign, Fault

STEPS = (
    "handler", "effect", "committed", "marked", "published", "stored", "acknowledged", "draining", "drained",
)  # fmt: skip
"""Where a consumer can die: in the handler, in its transaction, after that, after the store knows, while a message is on its
way, when that has its receipt, after an acknowledgement, while it drains, and when it has drained.
"""
Trouble = tuple[str, Fault, int]
HOSTILE = (
    {"kodo-attempts-retrying": "many"}, {"kodo-attempts-retrying": "-1"}, {"kodo-attempts-retrying": str(2**63)},
    {"kodo-hop": "999999"}, {"kodo-due": "1e9"}, {"kodo-due": "9" * 20}, {"KODO-HOP": "1", "kodo-hop": "2"},
    {"kodo-for": "somebody-else"}, {"kodo-quota": ""}, {"kodo-id": ""}, {"kodo-nobody-knows": "x" * 900_000},
    {"kodo-reason": "\u001b[31mred\u0000"}, {"kodo-origin-id": "0:0:0:0"}, {"kodo-seq": "x"}, {"kodo-recall": "r"},
)  # fmt: skip
BODIES = (
    b"", b"{", b"\xff\xfe", b"null", b"[" * 100_000, b'{"n": "x"}', b'{"n": 1e999}', b"x" * (4 << 20),
    json.dumps({"n": -1, "proof": "none"}).encode()[:-1],
)  # fmt: skip


def kills(count: int) -> Iterator[Trouble]:
    """Kills of the consumer: each named step in turn, and at any moment."""
    for number in range(count):
        step = STEPS[number // 2 % len(STEPS)]
        if number % 2:
            yield "kill -9 of a consumer, at any moment", Campaign.kill, HELD
        else:
            yield f"kill -9 of a consumer: {step}", partial(Campaign.die_at, step=step), 2 * HELD


def wires(seconds: float) -> Iterator[Trouble]:
    """Every way a wire can be bad, for so long."""

    def bad(**quality: object) -> Fault:
        def fault(campaign: Campaign) -> None:
            campaign.machine.wire.set(**quality)
            time.sleep(seconds)
            campaign.machine.wire.set()
            if "deaf" in quality or "mute" in quality:  # those connections are of no use any more
                campaign.machine.wire.reset()

        return fault

    yield "connections reset (RST)", lambda campaign: campaign.machine.wire.reset(), EVERYTHING
    yield "connections ended (FIN)", lambda campaign: campaign.machine.wire.finish(), EVERYTHING
    yield "half open: nothing passes, nobody is told", bad(deaf=True, mute=True), EVERYTHING
    yield "one way only: the broker hears nothing", bad(deaf=True), EVERYTHING
    yield "one way only: no receipt comes back", bad(mute=True), EVERYTHING
    yield "no new connections, the old ones reset", _shut_out(seconds), EVERYTHING
    yield "200 ms latency", bad(latency=0.2), EVERYTHING
    yield "10 KiB/s", bad(per_second=10 << 10, slice=1 << 10), EVERYTHING
    yield "byte by byte", bad(slice=1), EVERYTHING


def _shut_out(seconds: float) -> Fault:
    def fault(campaign: Campaign) -> None:
        campaign.machine.wire.set(refuses=True)
        campaign.machine.wire.reset()
        time.sleep(seconds)
        campaign.machine.wire.set()

    return fault


def brokers(count: int) -> Iterator[Trouble]:
    """The broker dies, and now and then is stopped in good order."""
    for number in range(count):
        if number % 4 == 3:
            yield "broker restarted", lambda campaign: _again(campaign, killed=False), EVERYTHING
        else:
            yield "kill -9 of the broker", lambda campaign: _again(campaign, killed=True), EVERYTHING


def _again(campaign: Campaign, *, killed: bool) -> None:
    machine = campaign.machine
    (machine.kill if killed else machine.stop)()
    machine.wire.reset()
    machine.start()


def freezes(*seconds: float) -> Iterator[Trouble]:
    """The broker hangs: below and above what clients take for alive."""

    def frozen(span: float) -> Fault:
        def fault(campaign: Campaign) -> None:
            campaign.machine.freeze()
            time.sleep(span)
            campaign.machine.thaw()
            campaign.machine.await_ready()

        return fault

    for span in seconds:
        yield f"broker frozen (SIGSTOP) for {span:.0f} s", frozen(span), EVERYTHING


def clocks(*seconds: float) -> Iterator[Trouble]:
    """The consumers' wall clock jumps, for two seconds. The clock itself is ours to move: no library that fakes it for
    whole processes. What is made to wait meanwhile waits by so much longer, for the broker believes the due time.
    """
    for jump in seconds:
        name = f"the consumers' clock jumps by {jump:+.0f} s"
        yield name, partial(Campaign.jump, milliseconds=round(jump * 1000)), 0


def hostile() -> Iterator[Trouble]:
    """Properties that no worker wrote and payloads that are none, on every topic that is read."""
    yield "hostile properties and payloads", _send_hostile, 0


def _send_hostile(campaign: Campaign) -> None:
    client = pulsar.Client(campaign.machine.broker.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        for suffix in ("", "-B1", "-billing-RETRYING"):
            producer = client.create_producer(campaign.topic + suffix)
            for properties in HOSTILE:
                campaign.tally.hostile += 1
                producer.send(b'{"n": -1, "proof": "hostile"}', properties=properties)
            for payload in BODIES:
                campaign.tally.hostile += 1
                producer.send(payload)
            producer.close()
    finally:
        client.close()


def full_disk(seconds: float) -> Iterator[Trouble]:
    """No byte is free where the broker stores. Needs a disk of the broker's own (root)."""

    def fault(campaign: Campaign) -> None:
        ballast = campaign.machine.fill_disk()
        time.sleep(seconds)
        ballast.unlink()
        with suppress(AssertionError):  # it may have ended itself, which a full disk gives it every right to
            campaign.machine.await_ready(within=20)
            return
        campaign.machine.kill()
        campaign.machine.start()

    yield "the broker's disk is full", fault, EVERYTHING


def drains(count: int) -> Iterator[Trouble]:
    """Rolling restarts: SIGTERM, an orderly end, the next one."""
    for _ in range(count):
        yield "SIGTERM of a consumer", Campaign.drain, 0
