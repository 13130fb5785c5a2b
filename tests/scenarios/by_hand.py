"""What people and programs do to a cluster and to files without kodoctl: the lines of a session that begin with `%`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.brokers.workspace import Workspace
from tests.services.polling import eventually

Action = Callable[..., list[str] | None]


def by_hand(line: str, workspace: Workspace, files: Path) -> list[str]:
    """Carries out one line, such as `publish trade/orders 12`; `files`: the scenario's folder. Answers what it shows."""
    verb, *words = shlex.split(line.replace("acme", workspace.tenant))
    if verb in ("use", "applied"):
        words[0] = str(files / words[0])
    return _VERBS[verb](workspace, *words) or []


def use(workspace: Workspace, source: str, name: str = "trade.yaml") -> None:
    """`use after.yaml [other.yaml]`: the scenario's file becomes topologies/NAME."""
    text = Path(source).read_text(encoding="utf-8")
    workspace.write(text.replace("acme", workspace.tenant), name)


def applied(workspace: Workspace, source: str, name: str = "trade.yaml") -> None:
    """`applied before.yaml [other.yaml]`: used, and applied without a word, long before the session begins."""
    use(workspace, source, name)
    workspace.apply()


def commit(workspace: Workspace) -> None:
    """`commit`: everything in the workspace becomes the last commit of a git repository there."""
    git = ["git", "-c", "user.name=anna", "-c", "user.email=anna@example.org", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "topologies"], ["commit", "-q", "-m", "reviewed"]):
        subprocess.run([*git, *words], cwd=workspace.folder, check=True, capture_output=True)


def rm(workspace: Workspace, name: str) -> None:
    """`rm other.yaml`: the file leaves topologies/."""
    (workspace.folder / "topologies" / name).unlink()


def cat(workspace: Workspace, name: str) -> list[str]:
    """`cat FILE`: shows a file of the workspace."""
    text = (workspace.folder / name).read_text(encoding="utf-8")
    return text.replace(workspace.tenant, "acme").rstrip("\n").split("\n")


def namespace(workspace: Workspace, name: str) -> None:
    """`namespace acme/trade`: made by hand."""
    workspace.admin("PUT", f"namespaces/{name}")


def topic(workspace: Workspace, place: str, partitions: str, *subscriptions: str) -> None:
    """`topic trade/orders 2 billing`: a partitioned topic with subscriptions."""
    space, local = place.split("/")
    workspace.make_topic(local, int(partitions), *subscriptions, namespace=space)


def plain_topic(workspace: Workspace, place: str) -> None:
    """`plain-topic trade/orders`: a topic without partitions."""
    space, local = place.split("/")
    workspace.admin("PUT", workspace.path(local, space))


def delete_topic(workspace: Workspace, place: str) -> None:
    """`delete-topic trade/orders`: with everything in it."""
    space, local = place.split("/")
    workspace.admin("DELETE", f"{workspace.path(local, space)}/partitions", force="true")


def unsubscribe(workspace: Workspace, place: str, name: str) -> None:
    """`unsubscribe trade/orders billing`: on every partition."""
    space, local = place.split("/")
    workspace.admin("DELETE", f"{workspace.path(local, space)}/subscription/{name}", force="true")


def ttl(workspace: Workspace, place: str, seconds: str) -> None:
    """`ttl trade/orders 3600`: sets a topic policy, and waits until the broker serves it."""
    space, local = place.split("/")
    workspace.admin("POST", f"{workspace.path(local, space)}/messageTTL", int(seconds), messageTTL=seconds)
    eventually(lambda: workspace.policy(local, "messageTTL", space) == int(seconds))


def max_topics(workspace: Workspace, name: str, number: str) -> None:
    """`max-topics acme/trade 1`: a limit of the namespace, waited for until the broker holds to it; 0 takes it away."""
    workspace.admin("POST", f"namespaces/{name}/maxTopicsPerNamespace", int(number))
    probe = f"persistent/{name}/probe/partitions"

    def holds() -> bool:
        made = workspace.broker.admin("PUT", probe, 1).ok
        if made:
            workspace.admin("DELETE", probe, force="true")
        return made is (number == "0")

    eventually(holds)


def subscribe(workspace: Workspace, place: str, name: str) -> None:
    """`subscribe trade/orders audit`: from the earliest message."""
    space, local = place.split("/")
    workspace.make_subscription(local, name, space)


def die(workspace: Workspace, place: str, *reasons: str) -> None:
    """`die trade/orders-billing-DLQ timeout=4 refused=2`: dead letters as a worker leaves them, so many for each reason."""
    with workspace.client() as client:
        producer = client.create_producer(f"persistent://{workspace.tenant}/{place}", batching_enabled=False)
        for reason, _, count in (text.partition("=") for text in reasons):
            for number in range(int(count)):
                properties = {"uid": f"u{number % 2}", "kodo-reason": reason, "kodo-level": "L1"}
                producer.send(b'{"n": %d}' % number, partition_key="k", properties=properties)


def publish(workspace: Workspace, place: str, number: str) -> None:
    """`publish trade/orders 12`: messages of 100 bytes, one entry each, by a producer whose name is always as long: it is
    stored with every message.
    """
    space, local = place.split("/")
    with workspace.client() as client:
        name = workspace.full(local, space)
        producer = client.create_producer(name, producer_name="checkout", batching_enabled=False)
        for _ in range(int(number)):
            producer.send(b"x" * 100)
        producer.close()


_DYING = """
import os, sys
from kodoctl.apply.journal import Journal
before = Journal.before
def until(journal, change, part):
    if change.address.startswith(os.environ["KODOCTL_TEST_DIES_AT"]):
        os._exit(9)
    before(journal, change, part)
Journal.before = until
from kodoctl.cli.main import main
main()
"""


def killed_before(workspace: Workspace, kind: str) -> None:
    """`killed-before subscription`: an apply that is killed when it comes to the first object of a kind."""
    command = [sys.executable, "-c", _DYING, "apply", "--auto-approve", *workspace.connection()]
    environ = {**os.environ, "KODOCTL_TEST_DIES_AT": f"{kind}."}
    done = subprocess.run(command, cwd=workspace.folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 9, done.stderr


_VERBS: dict[str, Action] = {
    "use": use, "applied": applied, "rm": rm, "cat": cat, "namespace": namespace, "topic": topic, "plain-topic": plain_topic,
    "delete-topic": delete_topic, "unsubscribe": unsubscribe, "ttl": ttl, "publish": publish, "die": die,
    "commit": commit, "max-topics": max_topics, "subscribe": subscribe, "killed-before": killed_before,
}  # fmt: skip
