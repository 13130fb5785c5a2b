"""One apply at a time where the broker's binary port is not known: a lock topic, broken by hand."""

from __future__ import annotations

import time

import pytest

from kodoctl.cli.common import command_target
from kodoctl.errors import LockedError
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.control.lease import Lease, hold
from kodoctl.pulsar.control.topic_lock import Lock, lock_holder, take_lock
from kodoctl.pulsar.session import Session
from kodoctl.pulsar.values import ledger
from kodoctl.pulsar.values.ledger import OwnershipKind
from kodoctl.topology.names import NamespaceName
from tests.brokers.workspace import Workspace
from tests.services.servers import Answer, Fault, Proxy, Request

pytestmark = pytest.mark.broker
SMALL = "{subscriptions: {s: {states: [], dead_letter: false}}}"


@pytest.fixture
def portless(workspace: Workspace) -> Workspace:
    """Somebody who knows the admin address only."""
    workspace.options = ["--admin-url", workspace.broker.admin_url]
    workspace.topology(f"J: {SMALL}")
    return workspace


def _locks(workspace: Workspace) -> list[str]:
    names = workspace.admin("GET", f"persistent/{workspace.tenant}/kodoctl/partitioned")
    return [name for name in names if "/lock-" in name]


def _space(workspace: Workspace) -> NamespaceName:
    return NamespaceName.parse(workspace.namespace)


def _lock(workspace: Workspace) -> Lock:
    found = take_lock(HttpAdmin(Connection(workspace.broker.admin_url)), _space(workspace), "somebody who died")
    assert found is not None
    return found


def test_an_apply_without_the_binary_port_applies_and_leaves_no_lock(portless: Workspace) -> None:
    applied = portless.apply()
    assert "there is no journal" in applied.err
    assert portless.topics() == {"J": 1}
    assert _locks(portless) == []
    portless.assert_settled()
    portless.options = []
    assert "Nothing was done" in portless.run("history", portless.namespace).text


def test_a_lock_that_somebody_left_is_named_to_both_kinds_of_apply_and_broken_by_hand(portless: Workspace) -> None:
    portless.apply()
    held = _lock(portless)
    portless.topology(f"J: {SMALL}\nK: {SMALL}")
    for options in (portless.options, []):
        portless.options = options
        refused = portless.apply(code=7)
        assert "K540" in refused.err
        assert "somebody who died, since 2" in " ".join(refused.err.split())
        assert f"kodoctl unlock {portless.namespace}" in " ".join(refused.err.split())
    assert portless.topics() == {"J": 1}
    portless.options = ["--admin-url", portless.broker.admin_url]
    assert "Unlocked" in portless.run("unlock", portless.namespace, "--auto-approve").text
    with pytest.raises(LockedError):
        held.beat()
    portless.apply()
    held.close()  # of no consequence: it is another's, or nobody's
    portless.assert_settled()
    assert "Nobody holds" in portless.run("unlock", portless.namespace).text


def test_who_has_the_binary_port_and_who_has_not_exclude_each_other(portless: Workspace) -> None:
    portless.apply()
    connection = Connection(portless.broker.admin_url, portless.broker.broker_url)
    with (
        Session(connection) as session,
        hold(session.admin, session.client, [_space(portless)], who="a port", plan="p", timeout=0) as lease,
    ):
        assert isinstance(lease, Lease)
        portless.topology(f"J: {SMALL}\nK: {SMALL}")
        refused = portless.apply(code=7)
        assert "a port" in refused.err
        assert _locks(portless) == []  # its own is given back when it finds the other
        assert lock_holder(session.admin, _space(portless)) is None
    portless.apply("--lock-timeout", "5s")
    assert portless.topics() == {"J": 1, "K": 1}


def test_the_holder_is_who_runs_it(portless: Workspace) -> None:
    portless.apply()
    admin = HttpAdmin(Connection(portless.broker.admin_url))
    assert take_lock(admin, _space(portless), command_target.who()) is not None
    assert take_lock(admin, _space(portless), "another") is None
    assert command_target.who() in str(lock_holder(admin, _space(portless)))


@pytest.mark.full
@pytest.mark.parametrize("comes_back", [True, False])
def test_an_apply_that_cannot_ask_for_its_lock_amid_its_work_stops_and_reports_what_it_did(
    workspace: Workspace, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, comes_back: bool
) -> None:
    """What is made is named in the ledger in any case; as made only where the lock turns out to be held still."""
    monkeypatch.setattr("kodoctl.pulsar.control.lease.HEARTBEAT_S", 1.0)
    workspace.options = ["--admin-url", proxy.url]
    workspace.topology("\n".join(f"t{number:02}: {SMALL}" for number in range(40)))
    refused = []

    def choose(request: Request) -> Fault | Answer | None:
        made = sum("/ns/t" in one.path and one.method == "PUT" for one in list(proxy.requests))
        if made >= 20 and request.method == "PUT" and not refused:
            time.sleep(1.5)  # a broker so slow that the lease must be asked for before the next request
        if made < 20 or "/lock-" not in request.path or request.method != "GET" or (comes_back and refused):
            return None
        refused.append(request)
        return Answer(403, b'{"reason": "made up by a test"}', {"Content-Type": "application/json"})

    proxy.choose = choose
    stopped = workspace.apply("--format", "json", code=1)
    report = stopped.lines_json()[-1]
    assert report["type"] == "report"
    assert refused
    done = {one["address"] for one in report["outcomes"] if one["status"] == "done"}
    assert 0 < len(done) < len(report["outcomes"])
    assert "the lease could not be confirmed [K541]" in report["notes"][0]
    assert any("the ledger was not written" in note for note in report["notes"]) is not comes_back
    assert not any("kodoctl history" in note for note in report["notes"]), "there is no journal without the binary port"
    properties = workspace.dump()["properties"]
    entry = ledger.decode("trade", _space(workspace), properties["kodoctl.topology/trade"])
    made = {address for address in done if address.startswith("topic.")}
    assert made
    assert {entry.owned[address] for address in made} == {OwnershipKind.CREATED if comes_back else OwnershipKind.INTENT}
    proxy.choose = lambda _: None
    if _locks(workspace):
        workspace.run("unlock", workspace.namespace, "--auto-approve")
    workspace.apply()
    workspace.assert_settled()
