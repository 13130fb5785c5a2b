"""One plan over two real brokers and a third that is away: what comes first, what waits, what refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.brokers.broker import Broker
from tests.brokers.dev_user import User
from tests.brokers.workspace import Workspace

YES = ("--auto-approve", "--confirm", "us")


@pytest.fixture
def us(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """The same workspace as the second broker shows it. Contexts: eu, us (protected), and far, where nobody answers."""
    user = User(tmp_path_factory.mktemp("user"))
    try:
        found = user.starts("--name", "us")
        second = Broker(found["admin_url"], found["broker_url"])
        second.tenant(workspace.tenant)
        places = {"eu": workspace.broker, "us": second, "far": Broker("http://127.0.0.1:9", "pulsar://127.0.0.1:9")}
        contexts = [
            f'[contexts.{name}]\nadmin_url = "{place.admin_url}"\nbroker_url = "{place.broker_url}"\n'
            f"protected = {str(name == 'us').lower()}\n"
            for name, place in places.items()
        ]
        (workspace.folder / "kodoctl.toml").write_text("".join(contexts), encoding="utf-8")
        yield Workspace(second, workspace.folder, workspace.tenant)
    finally:
        told = user.types("down", "--all")
    assert told.code == 0, told.err


def _reach(workspace: Workspace, *contexts: str) -> None:
    workspace.options = [word for context in contexts for word in ("--context", context)]


def test_one_plan_goes_over_two_clusters_and_what_is_away_stops_neither(workspace: Workspace, us: Workspace) -> None:
    _reach(workspace, "eu", "us")
    workspace.topology("J: {subscriptions: {s: {states: [], dead_letter: false}}}\nK: {}")
    planned = workspace.plan("--out", "fleet.json")
    assert planned.out.startswith("One plan over 2 clusters: eu, us\n")
    assert planned.out.count("+ topic.") == 2
    assert "differ" not in planned.out
    assert "K537" in workspace.run("apply", "fleet.json", code=64).err
    workspace.run("apply", "fleet.json", "--confirm", "us")
    assert workspace.topics() == us.topics() == {"J": 1, "K": 1}

    workspace.topology("J: {partitions: 2, subscriptions: {s: {states: [], dead_letter: false}}}\nL: {}")
    workspace.admin("POST", f"{workspace.path('J')}/partitions", 2)
    _reach(workspace, "eu", "far", "us")
    away = workspace.run("apply", *YES, code=1)
    assert "~ update: partitions 1 → 2" in away.out
    assert "--- far: not planned, not applied\nError: no broker answers [K514]" in away.err
    assert "deletes come last: far did not do all that comes before" in " ".join(away.out.split())
    assert workspace.topics() == us.topics() == {"J": 2, "K": 1, "L": 1}

    _reach(workspace, "eu", "us")
    assert workspace.run("drift").out.count("No drift; not applied yet: trade.") == 2
    workspace.plan("--out", "fleet.json")
    workspace.admin("DELETE", f"{workspace.path('K')}/partitions")
    refused = workspace.run("apply", "fleet.json", "--confirm", "us", code=4)
    assert "--- eu: not applied\nError: the cluster changed since the plan [K533]" in refused.err
    assert "--- us: not applied\nError: another cluster of the plan refused [K549]" in refused.err
    assert us.topics() == {"J": 2, "K": 1, "L": 1}

    done = [json.loads(line) for line in workspace.run("apply", *YES, "--format", "json").out.splitlines()]
    ended = {line["context"]: line["complete"] for line in done if line["type"] == "report"}
    assert ended == {"eu": True, "us": True}
    assert workspace.topics() == us.topics() == {"J": 2, "L": 1}
    assert "No changes" in workspace.plan("--detailed-exitcode").out
