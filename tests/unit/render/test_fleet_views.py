"""A plan over several clusters: what is the same is shown once, what differs object by object, what is away is said."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kodoctl.errors import error
from kodoctl.plan.fleet import FleetPlan, Member, to_json
from kodoctl.plan.plan import Plan
from kodoctl.pulsar.values.live_objects import ClusterIdentity
from kodoctl.render.fleet_text import ORDER, fleet_github, fleet_gitlab, fleet_html, fleet_lines, fleet_markdown
from kodoctl.render.plan_markdown import LIMIT
from kodoctl.text.formatting import MAX_LISTED
from tests.samples.inventories import applied, empty, planned, topology, wanted

FILE = wanted(topology("{J: {partitions: 3}}"))
BEFORE = applied(wanted(topology("{J: {}, K: {}}")))
TARGETS = {"eu": "context eu, http://eu", "us": "context us, http://us", "asia": "context asia, http://asia"}
GONE = Member("far", None, (error("K514", "no broker answers", "http://far: connection refused"),))


def _at(plan: Plan, cluster: str) -> Plan:
    return replace(plan, identity=ClusterIdentity(cluster, {"acme": f"{cluster}-1234-5678"}))


FRESH, GROWN = planned(FILE, empty()), planned(FILE, BEFORE)


def _text(*members: Member) -> str:
    return "\n".join(line.text for line in fleet_lines(to_json(FleetPlan(members)), TARGETS))


def _fleet(**plans: Plan) -> tuple[Member, ...]:
    return tuple(Member(context, _at(plan, context)) for context, plan in plans.items())


def test_clusters_that_get_the_same_are_shown_together() -> None:
    text = _text(*_fleet(eu=FRESH, us=FRESH))
    assert text.startswith("One plan over 2 clusters: eu, us\n")
    assert (
        "--- eu, us\ncontext eu, http://eu (cluster eu, eu-1234-)\ncontext us, http://us (cluster us, us-1234-)\n"
        in text
    )
    assert text.count("+ topic.persistent://acme/ns/J") == 1
    assert "differ" not in text
    assert text.endswith("eu  Plan: 2 to create, 0 to update, 0 to delete, 0 to adopt, 0 unchanged.\n"
                         "us  Plan: 2 to create, 0 to update, 0 to delete, 0 to adopt, 0 unchanged.")  # fmt: skip


def test_where_clusters_differ_is_shown_object_by_object_and_in_which_order_things_go() -> None:
    text = _text(*_fleet(eu=FRESH, asia=GROWN))
    assert "--- eu\n" in text
    assert "--- asia\n" in text
    assert (
        "Where the clusters differ:\n"
        "    namespace.acme/ns\n"
        "      eu    + create: without policies of its own\n"
        "      asia  as it is\n"
        "    topic.persistent://acme/ns/J\n"
        "      eu    + create: 3 partitions\n"
        "      asia  ~ update: partitions 1 → 3\n"
        "    topic.persistent://acme/ns/K\n"
        "      eu    as it is\n"
        "      asia  - delete\n"
    ) in text
    assert ORDER in text


def test_a_cluster_that_could_not_be_planned_is_told_with_what_that_means() -> None:
    text = _text(*_fleet(eu=GROWN), GONE)
    assert "--- far: not planned\nError: no broker answers [K514]\n  http://far: connection refused" in text
    assert "far  not planned" in text
    assert text.endswith(
        "Without far: the others can be applied, but for their deletes, which wait for all."
        " Plan again once it answers, or leave its --context out."
    )


def test_refused_in_one_is_refused_in_all() -> None:
    refused = replace(FRESH, findings=(error("K411", "partitions would shrink"),))
    text = _text(*_fleet(eu=FRESH, us=refused))
    assert "us  refused. Plan: 2 to create" in text
    assert text.endswith("Refused in one cluster is refused in all: nothing can be applied.")


def test_long_lists_of_differences_are_cut_and_counted() -> None:
    many = planned(wanted(topology("{%s}" % ", ".join(f"T{n}: {{}}" for n in range(30)))), empty())  # noqa: UP031
    document = to_json(FleetPlan(_fleet(eu=many, us=planned(FILE, BEFORE))))
    assert f"… and {len(document['differences']) - MAX_LISTED} more" in _text(*_fleet(eu=many, us=GROWN))
    assert "… and" in fleet_markdown(document, TARGETS)


@pytest.mark.parametrize("number", [1, 2_000])
def test_a_comment_fits_and_says_the_same(number: int) -> None:
    names = ", ".join(f"some-longer-name-of-a-topic-{n}: {{}}" for n in range(number))
    large = planned(wanted(topology(f"{{{names}}}")), empty())
    document = to_json(FleetPlan((*_fleet(eu=large, us=GROWN), GONE)))
    text = fleet_markdown(document, TARGETS)
    assert len(text.encode()) <= LIMIT
    for words in ("**far not planned**", "**Where the clusters differ**", "## eu", "## us", ORDER):
        assert words in text


@pytest.mark.parametrize(
    ("planned_at", "away", "differing"), [(2, 300, 1), (120, 0, 1), (120, 300, 30), (400, 0, 1), (3, 0, 30)]
)
def test_a_comment_fits_however_many_clusters_there_are(planned_at: int, away: int, differing: int) -> None:
    """Each cluster has a plan of its own, or a long reason why it has none."""
    plans = {}
    for number in range(planned_at):
        names = ", ".join(f"topic-{number}-{one}: {{}}" for one in range(differing))
        plans[f"cluster-with-a-long-name-{number}"] = planned(wanted(topology(f"{{{names}}}")), BEFORE)
    reason = error("K514", "no broker answers", "http://far.example.org:8080: connection refused; " * 9)
    members = [*_fleet(**plans), *(Member(f"far-{number}", None, (reason,)) for number in range(away))]
    document = to_json(FleetPlan(tuple(members)))
    targets = {member.context: f"context {member.context}, http://a.example.org:8080" for member in members}
    text = fleet_markdown(document, targets)
    assert len(text.encode()) <= LIMIT
    assert text.count("\n### kodoctl plan: changes\n") >= min(planned_at, 15)
    assert "**Where the clusters differ**" in text
    assert ("could not be shown in a comment (" in text) is (planned_at > 100)
    assert ("more unplanned clusters" in text) is (away > 100)


def test_a_page_has_every_cluster_each_group_whole_and_asks_for_nothing() -> None:
    evil = "<img src=x onerror=alert(1)>"
    refused = replace(GROWN, findings=(error("K411", "partitions would shrink", evil),))
    page = fleet_html(to_json(FleetPlan((*_fleet(eu=FRESH, us=FRESH, asia=refused), GONE))), TARGETS)
    for words in (
        "<h2>eu, us</h2>",
        "<h2>asia</h2>",
        "far: not planned",
        "http://far: connection refused",
        "context us, http://us (cluster us, us-1234-)",
        "Where the clusters differ: 3",
        "as it is",
        "Refused in one cluster is refused in all",
        "partitions would shrink",
        '<span class="verdict refused">refused</span>',
        ORDER,
    ):
        assert words in page, words
    assert "<img" not in page
    assert "<script src" not in page
    assert page.count('id="search"') == 1
    assert page.count("<h1>") == 1
    quiet = fleet_html(to_json(FleetPlan(_fleet(eu=planned(FILE, applied(FILE))))), TARGETS)
    assert 'id="search"' not in quiet


def test_a_code_quality_report_has_the_clusters_that_were_not_planned() -> None:
    rows = json.loads(fleet_gitlab(to_json(FleetPlan((*_fleet(eu=FRESH, us=GROWN), GONE))), TARGETS))
    assert rows[-1]["check_name"] == GONE.problems[0].code
    assert len({row["fingerprint"] for row in rows}) == len(rows)
    assert json.loads(fleet_gitlab(to_json(FleetPlan((GONE,))), TARGETS))[0]["location"]["path"] == "."


def test_annotations_end_with_every_cluster() -> None:
    document = to_json(FleetPlan((*_fleet(eu=FRESH, us=GROWN), GONE)))
    lines = fleet_github(document, TARGETS).splitlines()
    assert [line.partition(":")[0] for line in lines[-3:]] == ["eu", "us", "far"]
