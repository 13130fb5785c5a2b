"""Pages of a catalogue, without a browser."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from hypothesis import given

from kodoctl.render.catalogue_html import (
    INDEX,
    TOPICS_A_PAGE,
    CatalogueDrawings,
    CatalogueLinks,
    anchor,
    catalogue_pages,
)
from kodoctl.render.shared_drawings import Drawing
from kodoctl.topology.catalogue import catalogue_document
from kodoctl.topology.expand import Expansion
from kodoctl.topology.flow_graph import FlowKind, FlowNode
from tests.samples.catalogues import NOW, evil, expansions_of, shop
from tests.samples.reports import EVIL
from tests.unit.topology.valid import topologies

TRADE = "topologies/trade.html"
FILE = "f.yaml"


def pages(document: dict[str, Any], drawings: CatalogueDrawings | None = None) -> dict[str, str]:
    return dict(catalogue_pages(document, drawings or CatalogueDrawings()))


def words(html: str) -> str:
    """The text of a page, without styles and scripts, on one line."""
    inside = re.sub(r"<(style|script)[^>]*>.*?</\1>", "", html, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", inside)).split())


@pytest.fixture(scope="module")
def of_shop() -> dict[str, str]:
    return pages(catalogue_document(shop(), None))


def one(text: str) -> list[Expansion]:
    return expansions_of(text)


def test_a_page_for_each_topology_and_an_index(of_shop: dict[str, str]) -> None:
    assert list(of_shop) == [INDEX, "topologies/depot.html", TRADE]
    shown = words(of_shop[INDEX])
    assert "2 topologies 3 ground topics 3 subscriptions" in shown
    assert "depot Parcels on their way. Ask the team Hull." in shown
    assert '<a href="topologies/trade.html">trade</a>' in of_shop[INDEX]


def test_owners_and_labels_are_shown_and_found_by_the_search() -> None:
    head = "version: 1\nname: n\ntenant: t\nnamespace: n\n"
    body = "owners: shop\nlabels: {tier: gold}\ntopics: {J: {}, K: {owners: billing}}\n"
    shown = pages(catalogue_document(one(head + body), None))
    assert "owners: shop" in words(shown[INDEX])
    assert "owners shop labels tier=gold" in words(shown["topologies/n.html"])
    assert "owners billing labels tier=gold levels L1" in words(shown["topologies/n.html"])
    entries = json.loads(re.search(r'id="entries">(.*?)</script>', shown[INDEX])[1])  # type: ignore[index]  # it is there
    assert [entry[-1].split()[-2:] for entry in entries] == [
        ["shop", "tier=gold"],
        ["shop", "tier=gold"],
        ["billing", "tier=gold"],
    ]


def test_functions_and_objects_of_the_cluster_are_shown_and_found_by_the_search() -> None:
    text = """\
version: 1
name: n
tenant: t
namespace: n
topics: {J: {}}
functions: {enrich: {package: 'function://t/n/e@1', class: a.B, inputs: [J], config: {unit: EUR, m: [{token: t0p}]}}}
platform: {tenants: {other: {clusters: [east], admin_roles: [sre]}}}
"""
    shown = pages(catalogue_document(one(text), None))
    page = words(shown["topologies/n.html"])
    assert "function enrich" in page
    assert ":6 namespace t/n package function://t/n/e@1" in page
    assert "unit: EUR" in page
    assert "t0p" not in "".join(shown.values())
    assert ":7 clusters [east] admin roles [sre]" in page
    entries = json.loads(re.search(r'id="entries">(.*?)</script>', shown[INDEX])[1])  # type: ignore[index]  # it is there
    assert ["function", "enrich", "n", "topologies/n.html#objects"] in [entry[:4] for entry in entries]


def test_pages_load_nothing_and_forbid_it(of_shop: dict[str, str]) -> None:
    for text in of_shop.values():
        assert "default-src &#39;none&#39;" in text
        assert not re.search(r"""(?:src|srcset)=["']|url\(|@import""", text)
        assert {link.partition("#")[0] for link in re.findall(r'href="([^"]*)"', text)} <= {
            "",
            "../index.html",
            *of_shop,
            "depot.html",
            "trade.html",
        }


def test_policies_have_their_origins(of_shop: dict[str, str]) -> None:
    shown = re.sub(r"\S+/(topologies/)", r"\1", words(of_shop[TRADE]))
    assert "retention.time 7d topologies/trade.yaml:32" in shown
    assert "backlog_quota.size 5GiB namespace default, topologies/trade.yaml:14" in shown
    assert "ttl unlimited derived: dead letters wait for people" in shown
    assert "Broker default : ttl, subscription_expiry" in shown
    assert "Set by somebody else and left alone: publish_rate" in shown
    assert "which no file here declares : retention" in words(of_shop["topologies/depot.html"])


def test_subscriptions_limits_routes_and_settings(of_shop: dict[str, str]) -> None:
    shown = re.sub(r" \S+/topologies/\S+", "", words(of_shop[TRADE]))
    for text in (
        "rate 100/s, for each value of uid, burst 200; over it, messages wait in pending",
        "quota 5000/h, for each value of bucket; over it, messages wait in blocking",
        "concurrency 8 handlers at once, for each value of uid; at it, the tenant is passed over",
        "size > 100000 → B1, as they are sent",
        "retrying 10s, 1m, then 5m each; 12 attempts, 51 min in all",
        "blocking 1h each; 24 attempts, 1 d in all",
        "handler_timeout 30s",
        "billing-sre recalls dead letters of orders / billing",
        "planner may consume namespace kodo/trade",
        "currency string required ISO 4217 code.",
        "uid (required), bucket (required), size (optional)",
        "checkout → orders → billing → shipments",
    ):
        assert text in shown
    depot = words(of_shop["topologies/depot.html"])
    assert "concurrency 4 handlers at once, of each worker, in {states: [retrying]}" in depot
    assert "public.scans parcels {deletes: ignore}" in depot


def test_a_plain_topic_has_no_partitions_and_counts_as_one() -> None:
    head = "version: 1\nname: x\ntenant: t\nnamespace: n\ntopics:\n"
    made = pages(catalogue_document(one(f"{head}  J:\n    partitioned: false\n"), None))
    (page,) = (text for path, text in made.items() if path != INDEX)
    assert "partitions none" in words(page)
    assert "1 topics on Pulsar 1 partitions" in words(made[INDEX])


def test_settings_that_few_files_have() -> None:
    text = """\
version: 1
name: x
formerly: y
tenant: t
namespace: n
topics:
  J:
    levels: double
    exclusive_levels: {L2: [u7]}
    compression: zstd
    payloads: {keep: 7d}
    payload: {type: avro, schema: nowhere.avsc}
    subscriptions:
      s:
        draining: [pending]
        retrying: {by_code: {busy: [5s]}}
        backup: {attempts: 2}
        concurrency: {total: 8, levels: {L2: {min: 2}}}
        limits: [{kind: rate, by: key, limit: 1/s, overrides: {a: 2/s}}]
        routes: [{when: "attempts > 3", at: [retrying], share: 10%, to: L2}]
sources: {db: {database: DB, tables: {s.out: {outbox: {topic: t, payload: p}}}}}
"""
    shown = words(pages(catalogue_document(one(text), None))["topologies/x.html"])
    for part in (
        "formerly y",
        "only in L2 u7",
        "compression zstd",
        "payloads that land {keep: 7d}",
        "L1 pending draining",
        "by code {busy: [5s]}",
        "other limits {a: 2/s}",
        "attempts > 3 → L2, at retrying, 10% of them",
        "unknown: No such file or directory",
        "s.out the topic that each row names",
        "producers no role named",
        "concurrency {total: 8, states: {}, levels: {L2: {min: 2}}, lanes: {}}",
        "backup no effect: there are no such lanes",
    ):
        assert part in shown


def live(lanes: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    document = catalogue_document(one("version: 1\nname: x\ntenant: t\nnamespace: n\ntopics: {J: {subscriptions: {s: {states: [retrying]}}}}"), "prod")  # fmt: skip
    document["live"] = {"target": "context dev", "at": NOW, "broker": {"ttl": "unlimited", "retention": {"time": "0s"}}}
    namespace = {"policies": {"retention": {"time": "3d"}}, "applied": None, "unknown": ""}
    document["topologies"][0]["live"] = {"lanes": lanes, "unread": [], **namespace, **more}
    return document


def lane(topic: str, state: str, **more: Any) -> dict[str, Any]:
    figures = {"there": True, "entries": 0, "oldest": None, "consumers": 0, **more}
    return {"subscription": "s", "topic": topic, "state": state, **figures}


APPLIED = {"id": "4c7c", "verb": "apply", "who": "ann@desk", "began": NOW - 7_200_000, "state": "complete"}


def test_live_figures() -> None:
    found = pages(
        live(
            [
                lane("J", "ready", entries=1_203, oldest=NOW - 300_000, consumers=2),
                lane("J-s-RETRYING", "retrying", entries=2),
                lane("J-s-DLQ", "dead", entries=7, oldest=NOW - 9_000_000),
            ],
            applied=APPLIED,
        )
    )
    shown, index = words(found["topologies/x.html"]), words(found[INDEX])
    assert "L1 ready 1,203 5 min 2 J 1" in shown
    assert "L1 retrying 2 unknown 0 J-s-RETRYING 1" in shown, "a batch whose age nobody knows"
    assert "dead letters 7 2 h held for recalls J-s-DLQ 1" in shown
    assert "read from context dev at 2026-01-01 11:55 UTC" in shown
    for text in (shown, index):
        assert "1,205 waiting, oldest 5 min; 7 dead" in text
        assert "apply complete, 2 h ago" in text
    assert "2 h ago, 4c7c by ann@desk" in shown


def test_unknown_is_no_number_and_missing_is_told_apart() -> None:
    unread = {"ground": "J", "topic": "J-s-DLQ", "reason": "403"}
    found = pages(
        live([lane("J", "ready"), lane("J-s-RETRYING", "retrying", there=False)], unread=[unread], unknown="no answer")
    )
    shown, index = words(found["topologies/x.html"]), words(found[INDEX])
    assert "L1 ready 0 - 0 J 1" in shown
    assert "L1 retrying missing J-s-RETRYING 1" in shown
    assert "dead letters unknown unknown unknown J-s-DLQ 1" in shown
    assert "J-s-DLQ: unknown, 403" in shown
    assert "0 waiting; 1 lane missing; 1 topic unknown unknown: no answer" in index
    assert "never" in words(pages(live([lane("J", "ready")]))[INDEX])
    assert "no lanes" in words(pages(live([]))[INDEX])


def test_policies_above_the_topics_as_the_cluster_has_them() -> None:
    shown = words(pages(live([]))["topologies/x.html"])
    assert "retention {time: 3d} namespace default, as read" in shown
    assert "ttl unlimited broker default, as read" in shown
    assert "Broker default : backlog_quota, " in shown
    unknown = words(pages(live([], policies=None))["topologies/x.html"])
    assert "as read" not in unknown
    assert "Namespace or broker default, which no file here declares : retention, " in unknown


def test_differences_to_a_revision() -> None:
    document = catalogue_document(shop(), None) | {"repository": "forge.example/shop", "commit": "c0ffee" * 4}
    document["against"] = {"ref": "main", "commit": "decade" * 4, "removed": [{"name": "old", "file": "old.yaml"}]}
    depot, trade = document["topologies"]
    depot["changes"] = None
    trade["changes"] = [["a.b", "1d", "2d"], ["c", None, [1]], ["d", True, None], ["e", [{"k": 1}], [{"k": 2}]]]
    found = pages(document)
    index = words(found[INDEX])
    assert (
        "without environment, repository forge.example/shop, commit c0ffeec0ffee compared with main, commit decadedecade"
        in index
    )
    assert "Changes since main depot new trade 4 changes old removed, was in old.yaml" in index
    shown = words(found[TRADE])
    for text in ("a.b 1d → 2d", "c new: 1", "d removed: true", "e - {k: 1} + {k: 2}"):
        assert text in shown
    assert 'href="topologies/trade.html#changes"' in found[INDEX]
    depot["changes"] = trade["changes"] = document["against"]["removed"] = []
    assert "Changes since main None." in words(pages(document)[INDEX])


def test_differences_do_not_show_secrets_of_a_function() -> None:
    document = catalogue_document(shop(), None)
    document["against"] = {"ref": "main", "commit": "decade" * 4, "removed": []}
    depot, trade = document["topologies"]
    depot["changes"] = []
    trade["changes"] = [
        ["sinks.s.config.password", "hunter1", "hunter2"],
        ["sinks.s.config.auth.token.value", None, "hunter3"],
        ["functions.f.config", None, {"limit": 5, "secret": "hunter4"}],
        ["functions.g", {"code": "builtin://g", "config": {"apiKey": "hunter5"}}, None],
        ["functions.h.config.limit", 5, 6],
        ["sinks.db.v2.config.password", "hunter6", "hunter7"],
        ["sinks.s.settings.transformFunctionConfig.authToken", "hunter9", "hunter9!"],
        ["io_sources", None, {"db.v2": {"config": {"token": "hunter8"}}}],
    ]
    found = pages(document)[TRADE]
    assert "hunter" not in found
    for text in ("password (not shown)", "{limit: 5, secret: (not shown)}", "apiKey: (not shown)", "limit 5 → 6"):
        assert text in words(found)


def test_the_search_finds_topologies_topics_lanes_and_roles(of_shop: dict[str, str]) -> None:
    found = re.search(r'id="entries">(.*?)</script>', of_shop[INDEX], re.DOTALL)
    assert found
    entries = json.loads(found[1])
    assert [kind for kind, *_ in entries].count("topic") == 3
    orders = next(entry for entry in entries if entry[1] == "orders")
    assert orders[:5] == ["topic", "orders", "trade", f"{TRADE}#topic-orders", "one message for each order"]
    assert {"orders-billing-DLQ", "checkout", "uid"} <= {*orders[5].split()}
    assert ["subscription", "billing", "trade", f"{TRADE}#topic-orders~billing", "reads orders"] in [
        entry[:5] for entry in entries
    ]
    assert any(entry[0] == "source" and "public.scans" in entry[5] for entry in entries)


def test_drawings_stand_in_the_pages() -> None:
    document = catalogue_document(shop(), None)
    file = document["topologies"][1]["file"]
    svg = '<svg width="9pt" height="9pt" viewBox="0 0 9 9" xmlns="http://www.w3.org/2000/svg"><path d="M1"/></svg>'
    found = pages(document, CatalogueDrawings({file: svg}, {(file, "orders"): Drawing(svg)}, svg))
    assert found[INDEX].count('<path d="M1">') == 1
    assert found[TRADE].count('<path d="M1">') == 2
    assert "checkout → orders" not in words(found[TRADE]), "the drawing shows it"


def test_a_large_topology_has_pages_of_topics() -> None:
    """Its own page lists them and folds its roles; links and the search lead to the page that has a topic."""
    names = [f"t{number:03}" for number in range(2 * TOPICS_A_PAGE + 1)]
    each = "{producers: [shop], subscriptions: {s: {workers: [w], dead_letter: false, states: []}}}"
    topics = "\n".join(f"  {name}: {each}" for name in names)
    found = pages(catalogue_document(one(f"version: 1\nname: n\ntenant: t\nnamespace: n\ntopics:\n{topics}\n"), None))
    own, *parts = [path for path in found if path != INDEX]
    assert parts == [f"topologies/n-topics-{number}.html" for number in (1, 2, 3)]
    assert 'id="topic-t000"' not in found[own]
    assert '<a href="n-topics-2.html">t200 to t399</a>' in found[own]
    assert "shop sends to t000, t001, t002, t003, t004 and 396 more" in words(found[own])
    for path, first, last in zip(parts, ("t000", "t200", "t400"), ("t199", "t399", "t400"), strict=True):
        assert all(f'<section class="topic" id="topic-{name}">' in found[path] for name in (first, last))
    assert "topics 2 of 3 · before: t000 to t199 · after: t400 to t400" in words(found[parts[1]])
    assert '"topologies/n-topics-2.html#topic-t200~s"' in found[INDEX]
    assert '<section id="overview">' not in found[parts[1]]


def test_nothing_hostile_gets_into_a_page() -> None:
    document, _ = evil()
    for text in pages(document).values():
        for piece in ("<img src=x", "<script>alert", "\x1b", "\u202e"):
            assert piece not in text
        assert "&lt;img src=x onerror=alert(1)&gt;" in text


@given(topologies())
def test_every_topology_that_loads_has_its_page(document: dict[str, Any]) -> None:
    (expansion,) = expansions_of(json.dumps(document))
    found = pages(catalogue_document([expansion], None))
    shown = words(found[f"topologies/{document['name']}.html"])
    for topic in expansion.topics:
        assert topic.name.local in shown


def test_addresses_are_plain_and_no_two_are_alike() -> None:
    names = ["a b", "a_20_b", "../x", "A", "a", EVIL, "x" * 300, "."]
    document = {
        "topologies": [{"name": name, "file": f"{number}.yaml", "topics": []} for number, name in enumerate(names)]
    }
    links = CatalogueLinks(document)
    found = [links.from_index(f"{number}.yaml") for number in range(len(names))]
    assert all(re.fullmatch(r"topologies/[A-Za-z0-9_-][A-Za-z0-9._-]*\.html", one) for one in found)
    assert len({one.lower() for one in found}) == len(names)
    assert found[0] == "topologies/a_20_b.html"
    assert found[-1] == "topologies/topology.html"


@pytest.mark.parametrize(
    ("node", "address"),
    [
        (FlowNode(FlowKind.TOPIC, FILE, "J"), "x.html#topic-J"),
        (FlowNode(FlowKind.CONSUMER, FILE, "s", "J"), "x.html#topic-J~s"),
        (FlowNode(FlowKind.TABLE, FILE, "db: t"), "x.html#sources"),
        (FlowNode(FlowKind.PRODUCER, FILE, "r"), "x.html#roles"),
        (FlowNode(FlowKind.ELSEWHERE, "", "a/b/c"), ""),
    ],
)
def test_nodes_of_the_flow_lead_to_sections(node: FlowNode, address: str) -> None:
    assert CatalogueLinks({"topologies": [{"name": "x", "file": FILE, "topics": []}]}).node(node) == address
    assert anchor("a b") == "topic-a_20_b"
