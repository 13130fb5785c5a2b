"""One plan over two real brokers and a third that is away: what comes first, what waits, what refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.brokers.broker import Broker
from tests.brokers.dev_user import User
from tests.brokers.workspace import Workspace

pytestmark = pytest.mark.full  # a second broker
YES = ("--auto-approve", "--confirm", "us")


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of this module's own; each test has a tenant of its own there."""
    user = User(tmp_path_factory.mktemp("user"))
    try:
        started = user.starts("--name", "us")
        yield Broker(started["admin_url"], started["broker_url"])
    finally:
        told = user.types("down", "--all")
    assert told.code == 0, told.err


@pytest.fixture
def us(workspace: Workspace, second: Broker) -> Workspace:
    """The same workspace as the second broker shows it. Contexts: eu, us (protected), and far, where nobody answers."""
    second.tenant(workspace.tenant)
    places = {"eu": workspace.broker, "us": second, "far": Broker("http://127.0.0.1:9", "pulsar://127.0.0.1:9")}
    contexts = [
        f'[contexts.{name}]\nadmin_url = "{place.admin_url}"\nbroker_url = "{place.broker_url}"\n'
        f"protected = {str(name == 'us').lower()}\n"
        for name, place in places.items()
    ]
    (workspace.folder / "kodoctl.toml").write_text("".join(contexts), encoding="utf-8")
    return Workspace(second, workspace.folder, workspace.tenant)


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


def test_readers_show_each_cluster_and_one_that_is_away_hides_no_other(workspace: Workspace, us: Workspace) -> None:
    _reach(workspace, "eu", "us")
    workspace.topology("J: {subscriptions: {s: {states: [], dead_letter: false}}}")
    workspace.run("apply", *YES)
    _reach(workspace, "eu", "far", "us")
    status = workspace.run("status", code=1)
    heads = [line for line in status.out.splitlines() if line.startswith("---")]
    assert (heads, status.out.count("J / s")) == (["--- eu", "--- us"], 2)
    assert "--- far: not read\nError: no broker answers [K514]" in status.err
    clusters = workspace.run("status", "--format", "json", code=1).json()["clusters"]
    assert [(one["context"], one["status"] is None, len(one["problems"])) for one in clusters] == [
        ("eu", False, 0),
        ("far", True, 1),
        ("us", False, 0),
    ]
    history = workspace.run("history", workspace.namespace, "--format", "json", code=1).json()["clusters"]
    assert [one["history"] and len(one["history"]["applies"]) for one in history] == [1, None, 1]

    _reach(workspace, "eu", "us")
    shown = workspace.run("history", workspace.namespace).out.splitlines()
    assert (shown[0], shown[5], shown[1][8:]) == ("--- eu", "--- us", shown[6][8:])
    first = history[0]["history"]["applies"][0]["id"]
    one = workspace.run("history", workspace.namespace, "--id", first, code=64)
    assert "--- us: not read\nError: apply not found [K424]" in one.err
    assert "+ topic." in one.out


def test_an_apply_over_two_clusters_is_taken_back_and_continued_on_both(workspace: Workspace, us: Workspace) -> None:
    _reach(workspace, "eu", "us")
    workspace.topology("J: {}\nK: {}")
    workspace.run("apply", *YES)
    workspace.topology("J: {}\nK: {}\nL: {}")
    workspace.run("apply", *YES)
    undo = ("undo", "last", workspace.namespace)
    assert "K539" in workspace.run(*undo, "--confirm", "us", code=64).err, "eu asks, too"
    assert "K537" in workspace.run(*undo, "--auto-approve", code=64).err, "and us by its name"
    workspace.run(*undo, *YES)
    assert workspace.topics() == us.topics() == {"J": 1, "K": 1}
    assert "an id takes one --context" in " ".join(workspace.run("undo", "1", workspace.namespace, code=64).err.split())

    workspace.topology("J: {}")
    _reach(workspace, "eu", "far", "us")
    workspace.run("apply", *YES, code=1)
    _reach(workspace, "eu", "us")
    assert workspace.topics() == us.topics() == {"J": 1, "K": 1}
    workspace.run("apply", "--resume", workspace.namespace, *YES)
    assert workspace.topics() == us.topics() == {"J": 1}
    over = workspace.run("apply", "--resume", workspace.namespace, *YES, code=64).err
    assert over.count("nothing to continue [K425]") == 2
    assert ("eu: the latest apply" in over, "us: the latest apply" in over) == (True, True)

    workspace.topology("J: {}\nM: {}")
    _reach(workspace, "eu")
    workspace.run("apply", *YES)
    _reach(workspace, "eu", "us")
    unlike = " ".join(workspace.run(*undo, *YES, code=64).err.split())
    assert "the latest applies are not those of one command: eu " in unlike
    assert (workspace.topics(), us.topics()) == ({"J": 1, "M": 1}, {"J": 1})


def test_what_was_approved_for_two_clusters_is_all_that_a_merge_applies(workspace: Workspace, us: Workspace) -> None:
    _reach(workspace, "eu", "far")
    workspace.topology("J: {}")
    workspace.run("plan", "--out", "away.json", code=1)
    _reach(workspace, "eu", "us")
    workspace.plan("--out", "approved.json")
    workspace.topology("J: {}\nK: {}")
    refused = workspace.run("apply", "--approved", "approved.json", "--confirm", "us", code=4)
    assert "not in the approved plan [K544]" in refused.err
    assert us.broker.admin("GET", f"namespaces/{us.tenant}").json() == []
    workspace.topology("J: {}")
    _reach(workspace)
    workspace.options = ["--confirm", "us"]  # the contexts are those of the file
    workspace.run("apply", "--approved", "approved.json")
    assert workspace.topics() == us.topics() == {"J": 1}
    places = workspace.folder / "kodoctl.toml"
    places.write_text(places.read_text(encoding="utf-8").replace("127.0.0.1:9", us.broker.admin_url.split("/")[-1]))
    refused = workspace.run("apply", "--approved", "away.json", code=4)
    assert "far could not be planned when away.json was made" in " ".join(refused.err.split())


def test_destroy_and_forget_write_to_all_clusters_or_to_none(workspace: Workspace, us: Workspace) -> None:
    _reach(workspace, "eu", "us")
    workspace.topology("J: {subscriptions: {s: {states: [], dead_letter: false}}}\nK: {}")
    workspace.run("apply", *YES)
    us.publish("J", 3)
    _reach(workspace, "eu", "far", "us")
    away = workspace.run("destroy", "topologies", *YES, code=1)
    assert "far: " in away.err
    assert (away.out, workspace.topics(), us.topics()) == ("", {"J": 1, "K": 1}, {"J": 1, "K": 1})

    _reach(workspace, "eu", "us")
    refused = workspace.run("destroy", "topologies", *YES, code=4)
    assert "3 unread messages" in refused.out, "of us, and eu waits for it"
    assert workspace.topics() == us.topics() == {"J": 1, "K": 1}
    kept = f"topic.{workspace.full('K')}"
    gone = workspace.run("forget", kept, "--auto-approve", code=64)
    assert "K537" in gone.err
    workspace.run("forget", kept, *YES)
    assert (workspace.marker("K"), us.marker("K")) == (None, None)
    assert "nothing to forget [K419]" in workspace.run("forget", kept, *YES, code=4).out

    allowed = ("--allow-destroy", f"topic.{workspace.full('J')}", "--allow-destroy", f"namespace.{workspace.namespace}")
    workspace.run("destroy", "topologies", *allowed, *YES)
    assert workspace.topics() == us.topics() == {"K": 1}
    nothing = workspace.run("destroy", "topologies", *YES)
    assert nothing.err == "Nothing of trade is on eu.\nNothing of trade is on us.\n"
