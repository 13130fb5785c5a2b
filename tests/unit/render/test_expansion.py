"""Tree and table of an expansion: golden for a family with everything, and never wider than asked for."""

import pytest

from kodoctl.render.expansion import as_json, table, totals, tree
from kodoctl.topology.expansion_json import expansion_document
from tests.unit.topology.topology_files import expanded

BODY = """\
create_tenant: {clusters: [standalone], admin_roles: [ops]}
namespace_policies: {retention: {time: 3d, size: 20GiB}}
namespace_grants: {planner: [consume]}
topics:
  orders:
    description: one for each order
    levels: double
    ignore: [publish_rate]
    producers: [shop]
    subscriptions:
      billing: {states: [retrying], draining: [pending], audit: true, workers: [w], recall: [sre], produces: [x/y/z], start: latest}
  empty: {levels: []}
"""

TREE = """\
trade: kodo/trade (topologies/trade.yaml, base)
├─ around the topics
│  ├─ tenant kodo
│  │  clusters     standalone
│  │  admin roles  ops
│  ├─ namespace kodo/trade
│  │  retention  {time: 3d, size: 20GiB}
│  ├─ roles on namespace kodo/trade
│  │  may consume  planner
│  └─ roles on topic persistent://x/y/z
│     may produce  w
├─ orders: one for each order
│  ├─ ready
│  │  orders-L2  L2
│  │    partitions     1
│  │    ignored        publish_rate
│  │    subscriptions  billing from earliest
│  │    may consume    w
│  │    may produce    shop, sre, w
│  ├─ ready
│  │  orders  L1
│  │    partitions     1
│  │    ignored        publish_rate
│  │    subscriptions  billing from latest
│  │    may consume    w
│  │    may produce    shop, sre, w
│  ├─ retrying of billing
│  │  orders-L2-billing-RETRYING  L2
│  │  orders-billing-RETRYING     L1
│  │    partitions         1
│  │    deduplication      true
│  │    schema_validation  false
│  │    ignored            publish_rate
│  │    subscriptions      billing from earliest
│  │    may consume        w
│  │    may produce        sre, w
│  ├─ pending of billing (draining: read, no longer written)
│  │  orders-L2-billing-PENDING  L2
│  │  orders-billing-PENDING     L1
│  │    partitions         1
│  │    deduplication      true
│  │    schema_validation  false
│  │    ignored            publish_rate
│  │    subscriptions      billing from earliest
│  │    may consume        w
│  │    may produce        w
│  ├─ dead of billing
│  │  orders-billing-DLQ
│  │    partitions           1
│  │    backlog_quota        {size: unlimited, time: unlimited, when_full:
│  │                         hold_producers}
│  │    inactive_topic       {delete: never}
│  │    schema_validation    false
│  │    subscription_expiry  unlimited
│  │    ttl                  unlimited
│  │    ignored              publish_rate
│  │    subscriptions        kodo-hold from earliest
│  │    may consume          sre
│  │    may produce          w
│  └─ audit of billing
│     orders-billing-AUDIT
│       partitions      1
│       backlog_quota   {size: unlimited, time: unlimited, when_full:
│                       hold_producers}
│       inactive_topic  {delete: never}
│       retention       {time: 7d, size: unlimited}
│       ttl             unlimited
│       ignored         publish_rate
│       may produce     w
└─ empty

1 tenant, 1 namespace, 8 topics with 8 partitions, 7 subscriptions, 17 grants.\
"""

TABLE = """\
TOPIC                       LEVEL  STATE     PARTITIONS  SUBSCRIPTIONS
orders-L2                   L2     ready     1           billing
orders                      L1     ready     1           billing
orders-L2-billing-RETRYING  L2     retrying  1           billing
orders-billing-RETRYING     L1     retrying  1           billing
orders-L2-billing-PENDING   L2     pending   1           billing
orders-billing-PENDING      L1     pending   1           billing
orders-billing-DLQ          -      dead      1           kodo-hold
orders-billing-AUDIT        -      audit     1           -

1 tenant, 1 namespace, 8 topics with 8 partitions, 7 subscriptions, 17 grants.\
"""


def test_the_tree_shows_the_frame_and_every_family() -> None:
    assert tree(expansion_document([expanded(BODY)], None)) == TREE


def test_the_table_has_a_row_for_each_topic() -> None:
    assert table(expansion_document([expanded(BODY)], None)) == TABLE


def test_several_namespaces_are_told_apart_in_the_table() -> None:
    other = "version: 1\nname: other\ntenant: kodo\nnamespace: other\ntopics: {orders: {}}\n"
    shown = table(expansion_document([expanded("topics: {orders: {}}"), expanded(other)], None))
    assert [line.split()[0] for line in shown.splitlines()[1:3]] == ["kodo/trade/orders", "kodo/other/orders"]


@pytest.mark.parametrize("width", [80, 120])
def test_an_explained_tree_fits_the_width(width: int) -> None:
    shown = tree(expansion_document([expanded(BODY)], None, explain=True), width)
    assert max(map(len, shown.splitlines()[:-1])) <= width, "the last line counts, and is as long as it is"
    assert "derived: dead letters wait for people" in " ".join(shown.replace("│", " ").split())


def test_an_explained_table_has_a_row_for_each_value() -> None:
    shown = table(expansion_document([expanded(BODY)], None, explain=True)).splitlines()
    assert shown[0].split() == ["RESOURCE", "POLICY", "VALUE", "FROM"]
    assert any(line.split() == ["kodo/trade", "retention.time", "3d", "topologies/trade.yaml:6"] for line in shown)


def test_production_and_descriptions_are_shown_in_the_head() -> None:
    body = "description: Orders\ntopics: {}\nenvironments: {prod: {production: true}}\n"
    shown = tree(expansion_document([expanded(body, "prod")], "prod"))
    assert shown.splitlines() == [
        "trade: kodo/trade (topologies/trade.yaml, environment prod, production)",
        "│  Orders",
        "",
        "Nothing.",
    ]


def test_owners_and_labels_are_shown_in_the_head() -> None:
    shown = tree(expansion_document([expanded("owners: [shop, sre]\nlabels: {tier: gold}\ntopics: {}")], None))
    assert shown.splitlines()[1:3] == ["│  owners: shop, sre", "│  labels: tier=gold"]


def test_a_schema_is_shown_where_it_is_uploaded() -> None:
    document = expansion_document([expanded("topics: {orders: {}}")], None)
    address = "schema.persistent://kodo/trade/orders"
    document["resources"][address] = {
        "kind": "schema",
        "topology": "trade",
        "topic": "persistent://kodo/trade/orders",
        "type": "AVRO",
        "definition": "string",
    }
    assert "schema      AVRO" in tree(document)
    assert totals(document) == "1 topic with 1 partition, 1 schema."


def test_the_machine_form_is_the_document() -> None:
    assert as_json({"a": "é"}) == '{\n  "a": "é"\n}'


def test_a_source_shows_its_slot_and_where_rows_go() -> None:
    body = "topics: {J: {}}\nsources: {db: {description: the shop, database: DB_URL, snapshot: false, tables: {s.a: {topic: J}, s.out: {outbox: {topic: t, payload: p}}}}}"
    document = expansion_document([expanded(body)], None)
    assert document["topologies"][0]["sources"]["db"]["tables"]["s.a"] == {"topic": "J"}
    assert tree(document).splitlines()[1:9] == [
        "├─ source db: the shop",
        "│  └─ slot kodo_trade_db",
        "│     database     in the variable DB_URL",
        "│     publication  kodo_trade_db",
        "│     publishes    insert, update, delete, truncate",
        "│     snapshot     false",
        "│     s.a          → J",
        "│     s.out        outbox: each row names its topic",
    ]
    assert totals(document).endswith(", 1 publication, 1 slot.")
