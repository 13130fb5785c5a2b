"""Wrong addresses of a real broker: each command says at once what is on the other side, and what to write."""

from __future__ import annotations

import time

import pytest
from kodo_consumer import Consumer, Producer

from kodoctl.errors import ClusterError
from tests.brokers.workspace import Workspace
from tests.services.servers import speaking

pytestmark = pytest.mark.broker
FILE = "J: {subscriptions: {s: {states: [], dead_letter: false}}}"


def _words(text: str) -> str:
    return " ".join(text.split())


def _at(workspace: Workspace, broker_url: str, admin_url: str = "") -> None:
    workspace.options = ["--admin-url", admin_url or workspace.broker.admin_url, "--broker-url", broker_url]


@pytest.mark.parametrize(
    ("scheme", "port", "says"),
    [
        ("pulsar", "admin", "HTTP is spoken there, as at the port of the admin API"),
        ("pulsar+ssl", "admin", "HTTP is spoken there, as at the port of the admin API"),
        ("pulsar+ssl", "broker", "the broker speaks no TLS there: write pulsar://"),
    ],
)
def test_a_plan_goes_on_without_the_binary_port_and_says_what_is_there_and_an_apply_ends_before_it_asks(
    workspace: Workspace, scheme: str, port: str, says: str
) -> None:
    workspace.topology(FILE)
    workspace.apply()
    there = {"admin": workspace.broker.admin_url, "broker": workspace.broker.broker_url}[port].partition("://")[2]
    _at(workspace, f"{scheme}://{there}")
    planned = workspace.plan()
    assert "Warning: the broker's binary port does not answer [K518]" in planned.err
    assert f"{scheme}://{there} (--broker-url): {says}" in _words(planned.err)
    workspace.topology(FILE.replace("J:", "J: {}\nK:"))
    applied = workspace.run("apply", "topologies", code=1)
    assert "Error: the broker's binary port does not answer [K518]" in applied.err
    assert "K539" not in applied.err, "nobody is asked for what cannot be done"
    new = workspace.topology(
        FILE, name="new", namespace="new"
    )  # nothing is there that the binary port would be read for
    assert "K539" not in workspace.run("apply", str(new), code=1).err
    assert "K518" in workspace.run("history", workspace.namespace, code=1).err


def test_an_admin_address_that_is_the_binary_port_is_told_as_that(workspace: Workspace) -> None:
    workspace.topology(FILE)
    host = workspace.broker.broker_url.partition("://")[2]
    _at(workspace, workspace.broker.broker_url, f"http://{host}")
    assert "Pulsar's binary protocol is spoken there, which is for --broker-url" in _words(workspace.plan(code=1).err)
    _at(workspace, workspace.broker.broker_url, workspace.broker.admin_url.replace("http:", "https:"))
    assert "no TLS is spoken there: write http://" in _words(workspace.plan(code=1).err)


def test_a_silent_address_ends_the_start_of_a_consumer_and_of_a_producer_after_five_seconds(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = workspace.topology(FILE)
    workspace.apply()
    with speaking(None) as host:
        monkeypatch.setenv("KODOCTL_BROKER_URL", f"pulsar://{host}")
        admin = workspace.broker.admin_url
        consumer = Consumer.load(file, topic="J", subscription="s", admin_url=admin)
        consumer.handler(lambda _: None)
        for start in (consumer.start, lambda: Producer.load(file, topic="J", admin_url=admin)):
            began = time.monotonic()
            with pytest.raises(ClusterError, match=r"\(KODOCTL_BROKER_URL\): silent for 5 s; is this the address"):
                start()
            assert 4.9 < time.monotonic() - began < 25, "the client's own limits begin at 30 s"
