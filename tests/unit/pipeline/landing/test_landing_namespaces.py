"""Two files of one name, in different namespaces, that are given one landing: the second is refused, by every command."""

from __future__ import annotations

from pathlib import Path

import pytest
from kodo_pipeline.landing.landing_commits import LandingCommit, TableFiles, landed_namespace
from kodo_pipeline.landing.landing_store import Landing, must_be_same_namespace
from kodo_pipeline.landing.tables import CURSORS

from kodoctl.errors import KodoctlError
from kodoctl.topology.names import NamespaceName
from tests.brokers.workspace import isolated, run_main
from tests.unit.pipeline.landings import batch
from tests.unit.topology.topology_files import expanded

EXPANSION = expanded("topics:\n  orders: {subscriptions: {billing: {}}}")  # in kodo/trade
NOWHERE = ("--admin-url", "http://127.0.0.1:1", "--broker-url", "pulsar://127.0.0.1:1")


def begins(run: str, at: int, *topics: str) -> LandingCommit:
    """A run, which has fixed its topics; `topics` of none: of a kodoctl that did not write them down."""
    facts = {"topics": [f"persistent://{one}" for one in topics]} if topics else {}
    return LandingCommit(run, at, tables={CURSORS.name: TableFiles.of(())}, facts=facts)


def ends(run: str) -> LandingCommit:
    return LandingCommit(f"{run}-end", 1, facts={"complete": True})


@pytest.mark.parametrize(("commits", "landed"), [
    ([], None),
    ([begins("r1", 1)], None),
    ([begins("r1", 1, "a/n/orders")], "a/n"),
    ([begins("r1", 1, "a/n/orders"), begins("r2", 2, "b/n/orders")], "a/n"),
    ([begins("r1", 1, "a/n/orders"), begins("r2", 2, "b/n/orders"), ends("r2")], "b/n"),
    ([begins("r1", 1, "a/n/orders"), ends("r1"), begins("r2", 2, "b/n/orders")], "a/n"),
    ([begins("r1", 1, "a/n/orders"), ends("r1"), begins("r2", 2), ends("r2")], None),
])  # fmt: skip
def test_the_namespace_is_that_of_the_last_run_that_ended_or_of_the_first_that_began(
    commits: list[LandingCommit], landed: str | None
) -> None:
    assert landed_namespace(commits) == (None if landed is None else NamespaceName.parse(landed))


def filled(folder: Path, topic: str) -> Landing:
    """One run with a batch, of that topic."""
    landing = Landing(str(folder), "trade", None)
    looked = landing.write_rows(CURSORS, "r", [{"ingest_run": "r", "msg_topic": f"persistent://{topic}"}])
    facts = {"topics": [f"persistent://{topic}"]}
    landing.commit(LandingCommit("r", 1, tables={CURSORS.name: looked}, facts=facts))
    landing.commit(batch(landing, 0, "r"))
    landing.commit(ends("r"))
    return landing


@pytest.mark.parametrize("topic", ["other/trade/orders", "kodo/other/orders"])
def test_a_landing_of_another_tenant_or_namespace_is_refused_with_both_names(tmp_path: Path, topic: str) -> None:
    landing = filled(tmp_path, topic)
    with pytest.raises(KodoctlError, match=rf"K590(?s:.*)topics of {topic[:-7]}, and trade is in kodo/trade"):
        must_be_same_namespace(landing, EXPANSION, landing.commits())


def test_the_same_namespace_and_one_that_nobody_wrote_down_are_not_refused(tmp_path: Path) -> None:
    landing = filled(tmp_path, "kodo/trade/carts")
    must_be_same_namespace(landing, EXPANSION, landing.commits())
    must_be_same_namespace(landing, EXPANSION, [begins("r", 1)])


@pytest.mark.parametrize("command", [
    ("maintain",), ("erase", "--tenant", "u1", "--reason", "asked for", "--yes"), ("sql", "SELECT count(*) FROM events"),
    ("rollup",), ("recommend", "--goal", "1s"), ("audit", *NOWHERE), ("report", *NOWHERE),
])  # fmt: skip
def test_every_command_refuses_a_landing_of_another_namespace_and_changes_nothing(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    filled(tmp_path / "landed", "other/trade/orders")
    (tmp_path / "trade.yaml").write_text(
        "version: 1\nname: trade\ntenant: kodo\nnamespace: trade\ntopics:\n  orders: {subscriptions: {billing: {}}}\n",
        encoding="utf-8",
    )
    before = {path: path.read_bytes() for path in (tmp_path / "landed").rglob("*") if path.is_file()}
    name, *more = command
    with isolated(tmp_path):
        found = run_main("pipeline", name, "trade.yaml", *more, "--landing", "landed")
    assert (found.code, "[K590]" in found.err) == (1, True), found.text
    assert "name a landing of its own with --landing" in " ".join(found.err.split())
    assert {path: path.read_bytes() for path in (tmp_path / "landed").rglob("*") if path.is_file()} == before
