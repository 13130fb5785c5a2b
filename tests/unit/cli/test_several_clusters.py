"""Several --context on one command line, and plan files of several clusters: what can be said before a cluster is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from kodoctl.errors import error
from kodoctl.plan import plan_file
from kodoctl.plan.fleet import FleetPlan, Member, dumps
from tests.brokers.workspace import run_main
from tests.samples.inventories import empty, planned, topology, wanted

PLAN = planned(wanted(topology()), empty())
FLEET = FleetPlan((Member("eu", PLAN), Member("far", None, (error("K514", "no broker answers", "away"),))))
TWO = ("--context", "eu", "--context", "far")


@pytest.fixture(autouse=True)
def files(folder: Path) -> None:
    """plan.json of one cluster, fleet.json of two; two contexts with one address."""
    contexts = [f'[contexts.{name}]\nadmin_url = "http://127.0.0.1:9"\n' for name in ("eu", "far")]
    (folder / "kodoctl.toml").write_text("".join(contexts), encoding="utf-8")
    (folder / "plan.json").write_text(plan_file.dumps(PLAN), encoding="utf-8")
    (folder / "fleet.json").write_text(dumps(FLEET), encoding="utf-8")


def test_two_contexts_that_share_one_of_several_brokers_are_one_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "lists.toml"
    file.write_text("[contexts.a]\nadmin_url='http://x:1,y:1'\n[contexts.b]\nadmin_url='http://z:1,y:1'\n")
    monkeypatch.setenv("KODOCTL_CONFIG", str(file))
    found = run_main("plan", "--context", "a", "--context", "b")
    assert (found.code, "K548" in found.err) == (64, True), found.text
    assert "a and b have the address http://y:1" in " ".join(found.err.split())


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["plan", "--context", "eu", "--context", "eu"], "name each context once"),
        (["plan", *TWO, "--admin-url", "http://x:1"], "write them into the contexts"),
        (["plan", *TWO], "eu and far have the address http://127.0.0.1:9"),
        (["drift", *TWO], "eu and far have the address http://127.0.0.1:9"),
        (["apply", *TWO, "--approved", "plan.json"], "the plan file is of one cluster"),
        (["undo", *TWO, "5f19", "a/b"], "an id takes one --context"),
        (["apply", *TWO, "plan.json"], "the plan file is of one cluster"),
        (["apply", "fleet.json", "--context", "eu"], "the plan file is of eu, far"),
        (["apply", "fleet.json", "--admin-url", "http://x:1"], "the plan file is of eu, far"),
        (["apply", "--approved", "fleet.json", "--admin-url", "http://x:1"], "the plan file is of eu, far"),
    ],
)
def test_what_cannot_be_is_told_before_any_cluster_is_asked(line: list[str], told: str) -> None:
    found = run_main(*line)
    assert found.code == 64, found.text
    assert "K548" in found.err
    assert told in " ".join(found.err.split())


@pytest.mark.parametrize("command", ["plan", "apply", "drift", "status"])
def test_an_empty_context_among_several_is_no_cluster(command: str) -> None:
    """As by a variable that is not set. Else the current context would be meant, and its plan alone would be shown."""
    found = run_main(command, "--context", "", "--context", "eu")
    assert (found.code, "[K501]" in found.err) == (64, True), found.text


def test_a_file_whose_first_context_is_empty_shows_all_its_plans(folder: Path) -> None:
    fleet = FleetPlan((Member("", PLAN), Member("eu", PLAN)))
    assert fleet.only is None
    (folder / "odd.json").write_text(dumps(fleet), encoding="utf-8")
    assert run_main("show", "odd.json").out.startswith("One plan over 2 clusters")


def test_a_file_of_several_clusters_is_shown_again_whole_or_one_of_them() -> None:
    whole = run_main("show", "fleet.json").out
    assert whole.startswith("One plan over 2 clusters: eu, far\n")
    assert "--- far: not planned" in whole
    assert run_main("show", "fleet.json", "--format", "json").json()["clusters"][1]["plan"] is None
    assert "One plan over 2 clusters" in run_main("show", "fleet.json", "--format", "html").out
    assert "## eu" in run_main("show", "fleet.json", "--format", "markdown").out
    assert run_main("show", "fleet.json", "--format", "github").out.endswith("far: not planned\n")
    assert run_main("show", "fleet.json", "--context", "eu").out.startswith(
        "fleet.json, context eu (cluster standalone"
    )
    assert "<title>kodoctl plan" in run_main("show", "fleet.json", "--context", "eu", "--format", "html").out


@pytest.mark.parametrize(("file", "known"), [("fleet.json", "known: eu"), ("plan.json", "of one cluster")])
def test_a_cluster_that_is_not_in_the_file_is_told(file: str, known: str) -> None:
    found = run_main("show", file, "--context", "far")
    assert found.code == 64
    assert known in " ".join(found.err.split())
