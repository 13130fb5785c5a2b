"""`import` of what people made with the admin API: the file lints, adopts, and heals what was half made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.shapes import SHAPES, Shape
from tests.brokers.workspace import Json, Workspace, run_main


def _made(workspace: Workspace, shape: Shape, partitions: int) -> None:
    """A family as somebody makes it by hand: nobody's, and without a holder for the dead letters."""
    for local, number in shape.partitions(partitions).items():
        names = shape.expected[local] - {"kodo-hold"}
        workspace.make_topic(local, number, *names)


def _imported(workspace: Workspace, name: str = "taken.yaml") -> Path:
    """The file that import writes, which lints clean."""
    path = workspace.folder / "topologies" / name
    workspace.run("import", workspace.namespace, "--out", str(path))
    lint = run_main("lint", "--strict", str(path))
    assert lint.code == 0, lint.text
    return path


def test_the_imported_file_names_a_schema_that_is_there(by_hand: Workspace) -> None:
    by_hand.make_topic("J", 1, "s")
    line = _imported(by_hand).read_text(encoding="utf-8").splitlines()[0]
    assert line == "# yaml-language-server: $schema=topology.v1.json"
    schema = by_hand.folder / "topologies" / "topology.v1.json"
    assert schema.read_text(encoding="utf-8").strip() == run_main("schema").out.strip()
    assert "yaml-language-server" not in by_hand.run("import", by_hand.namespace).out, "beside no file there is none"


def _said(plan: Json) -> dict[str, set[str]]:
    """Verb -> addresses."""
    found: dict[str, set[str]] = {}
    for change in plan["changes"]:
        found.setdefault(change["action"], set()).add(change["address"])
    return found


@pytest.fixture
def by_hand(workspace: Workspace) -> Workspace:
    workspace.admin("PUT", f"namespaces/{workspace.namespace}")
    return workspace


@pytest.mark.parametrize("name", SHAPES)
def test_a_family_made_by_hand_is_adopted_whole_and_gets_a_holder_for_its_dead_letters(
    by_hand: Workspace, name: str
) -> None:
    shape = SHAPES[name]
    _made(by_hand, shape, 2)
    _imported(by_hand)
    said = _said(by_hand.plan_json())
    letters = {local for local in shape.expected if local.endswith("-DLQ")}
    assert said.get("create", set()) == {f"subscription.{by_hand.full(local)}/kodo-hold" for local in letters}
    topics = {f"topic.{by_hand.full(local)}" for local in shape.expected}
    readers = {f"subscription.{by_hand.full(local)}/s" for local in set(shape.expected) - letters}
    assert said["adopt"] == topics | readers
    assert set(said) <= {"adopt", "create"}
    by_hand.apply()
    by_hand.assert_settled()
    assert by_hand.topics() == shape.partitions(2)
    assert all(by_hand.marker(local) == "ns" for local in shape.expected)


def test_policies_and_grants_that_are_live_are_in_the_file_and_stay_as_they_are(by_hand: Workspace) -> None:
    by_hand.make_topic("J", 2, "s")
    retention = {"retentionTimeInMinutes": 1440, "retentionSizeInMB": 100}
    by_hand.admin("POST", f"{by_hand.path('J')}/retention", retention)
    by_hand.admin("POST", f"{by_hand.path('J')}/messageTTL", messageTTL="3600")
    by_hand.admin("POST", f"{by_hand.path('J')}/maxProducers", 7)
    by_hand.admin("POST", f"namespaces/{by_hand.namespace}/messageTTL", 7200)
    by_hand.admin("POST", f"namespaces/{by_hand.namespace}/permissions/anna", ["consume"])
    before = by_hand.dump()
    text = _imported(by_hand).read_text(encoding="utf-8")
    for line in ("retention: {time: 1d, size: 100MiB}", "ttl: 1h", "max_producers: 7", "ttl: 2h", "anna"):
        assert line in text, text
    assert set(_said(by_hand.plan_json())) == {"adopt"}
    by_hand.apply()
    by_hand.assert_settled()
    after = by_hand.dump()
    assert by_hand.policy("J", "retention") == retention
    assert by_hand.policy("J", "maxProducers") == 7
    for document in (before, after):
        document.pop("properties", None)
    assert after == before


def test_a_subscription_that_one_partition_lacks_is_found_and_healed(by_hand: Workspace) -> None:
    by_hand.make_topic("J", 3, "s")
    by_hand.make_topic("J-s-RETRYING", 3, "s")
    by_hand.admin("DELETE", f"{by_hand.path('J-s-RETRYING-partition-1')}/subscription/s")
    _imported(by_hand)
    plan = by_hand.plan_json()
    address = f"subscription.{by_hand.full('J-s-RETRYING')}/s"
    assert _said(plan)["update"] == {address}
    (healed,) = (change for change in plan["changes"] if change["action"] == "update")
    assert [(one["name"], one["before"]) for one in healed["fields"]] == [("missing_on", [1])]
    by_hand.apply()
    assert by_hand.subscriptions("J-s-RETRYING") == [{"s"}] * 3
    by_hand.assert_settled()


def test_what_the_format_cannot_say_is_listed_with_the_reason_and_stays_unmanaged(by_hand: Workspace) -> None:
    by_hand.make_topic("J", 1, "s")
    by_hand.admin("PUT", by_hand.path("plain-L2"))
    by_hand.make_topic("odd-DLQ", 1)
    text = _imported(by_hand).read_text(encoding="utf-8")
    left_out = [line for line in text.splitlines() if line.startswith("#")]
    assert any("/ns/plain-L2" in line and "does not fit a family" in line for line in left_out), text
    assert any("/ns/odd-DLQ" in line for line in left_out), text
    by_hand.apply()
    by_hand.assert_settled()
    assert "Unmanaged" in by_hand.plan().out
    assert by_hand.marker("odd-DLQ") is None


def test_messages_and_positions_survive_an_import(by_hand: Workspace) -> None:
    by_hand.make_topic("J", 2, "s")
    by_hand.publish("J", 5)
    _imported(by_hand)
    by_hand.apply()
    stats = by_hand.admin("GET", f"{by_hand.path('J')}/partitioned-stats", getPreciseBacklog="true")
    assert stats["subscriptions"]["s"]["msgBacklog"] == 5


def test_importing_what_is_owned_already_finds_nothing_and_an_existing_file_is_never_overwritten(
    by_hand: Workspace,
) -> None:
    by_hand.make_topic("J", 1, "s")
    path = _imported(by_hand)
    kept = path.read_text(encoding="utf-8")
    by_hand.run("import", by_hand.namespace, "--out", str(path), code=64)
    assert path.read_text(encoding="utf-8") == kept
    by_hand.apply()
    again = by_hand.run("import", by_hand.namespace)
    assert "0 ground topics" in again.err
    by_hand.run("import", f"{by_hand.tenant}/nowhere", code=64)


def test_a_tenant_becomes_a_file_for_each_namespace_and_all_of_them_plan_to_adoption(by_hand: Workspace) -> None:
    for namespace in ("other", "empty"):
        by_hand.admin("PUT", f"namespaces/{by_hand.tenant}/{namespace}")
    for number in range(20):
        by_hand.make_topic(f"J{number}", 2, "s")
        by_hand.make_topic(f"J{number}-s-RETRYING", 2, "s")
    by_hand.make_topic("K", 1, "t", namespace="other")
    by_hand.admin("PUT", by_hand.path("odd-DLQ", "other"))
    files = by_hand.folder / "topologies"
    found = by_hand.run("import", by_hand.tenant, "--out", str(files))
    assert {file.name for file in files.iterdir()} == {"ns.yaml", "other.yaml", "topology.v1.json"}
    assert f"{by_hand.tenant}/empty: nothing to adopt; no file" in found.err
    assert f"{files}/ns.yaml: 20 ground topics, 80 objects to adopt" in found.err
    assert "1 ground topic, 2 objects to adopt, 1 left out (listed at the end of the file)" in found.err
    assert found.err.endswith(f"Next: kodoctl plan {files}\n")
    said = _said(by_hand.plan_json())
    assert {verb: len(addresses) for verb, addresses in said.items()} == {"adopt": 82}
    by_hand.apply()
    by_hand.assert_settled()
    again = by_hand.run("import", by_hand.tenant, "--out", str(files), code=64)
    assert again.err.count("file exists [K021]") == 2  # and nothing was written beside them
    nothing = by_hand.run("import", by_hand.tenant, "--out", "again").err
    assert f"{by_hand.tenant}/other: nothing to adopt, 1 left out; no file" in nothing
    assert "/other/odd-DLQ: it ends in -DLQ and does not fit a family" in nothing
    assert not (by_hand.folder / "again").exists()


def test_import_says_all_that_is_not_there_and_which_options_do_not_fit(by_hand: Workspace) -> None:
    found = by_hand.run("import", f"{by_hand.tenant}/no", f"{by_hand.tenant}/neither", "--out", "files", code=64)
    assert found.err.count("namespace not found [K509]") == 2
    assert "no tenant nobody" in by_hand.run("import", "nobody", "--out", "files", code=64).err
    assert "name their folder with --out" in by_hand.run("import", by_hand.tenant, code=64).err
    assert (
        "--name is for one namespace" in by_hand.run("import", by_hand.tenant, "--out", "f", "--name", "x", code=64).err
    )
    assert "not a namespace [K507]" in by_hand.run("import", "a/b/c", code=64).err
    assert not (by_hand.folder / "files").exists()
