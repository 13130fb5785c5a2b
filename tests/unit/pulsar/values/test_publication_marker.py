"""Owner of a publication, in the first line of its comment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kodoctl.pulsar.values.live_objects import ClusterIdentity, Live
from kodoctl.pulsar.values.publication_marker import PublicationMarker, owner_of, read_marker, with_marker
from kodoctl.topology.names import NamespaceName

HERE = NamespaceName("acme", "ns")
OURS = PublicationMarker("shop é", "acme/ns", "east", "u1")
LIVE = Live(ClusterIdentity("east", {"acme": "u1"}), {})


@pytest.mark.parametrize("text", [None, "", "ask Ann", "ask Ann\nor Bob"])
def test_a_marker_is_written_above_the_comment_and_taken_off_again(text: str | None) -> None:
    marked = with_marker(text, OURS)
    assert read_marker(marked) == OURS
    other = replace(OURS, topology="other")
    assert read_marker(with_marker(marked, other)) == other
    assert with_marker(with_marker(marked, other), None) == (text or None)
    assert read_marker(text) is None


@pytest.mark.parametrize(
    "text", ["kodoctl of later", "kodoctl []", 'kodoctl {"topology": "x"}', f"kodoctl {'[' * 99_999}"]
)
def test_a_marker_that_cannot_be_read_is_of_somebody_else(text: str) -> None:
    owner, is_foreign = owner_of(read_marker(text), HERE, LIVE)
    assert is_foreign
    assert text[:80] in str(owner)


def test_an_owner_is_a_name_here_and_a_text_elsewhere() -> None:
    assert owner_of(None, HERE, LIVE) == (None, False)
    assert owner_of(OURS, HERE, LIVE) == ("shop é", False)
    told = "shop é in acme/ns on cluster east"
    assert owner_of(OURS, NamespaceName("acme", "other"), LIVE) == (told, True)
    elsewhere = replace(LIVE, identity=ClusterIdentity("east", {"acme": "u2"}))
    assert owner_of(OURS, HERE, elsewhere) == (told, True)
    assert owner_of(OURS, HERE, Live(ClusterIdentity("east"), {})) == (told, True), "no apply was here yet"
    assert owner_of(OURS, HERE, replace(elsewhere, unseen=frozenset({HERE}))) == ("shop é", False)
