"""What the loader says about values that cannot be: one finding a place, in the words of the file, with what would do."""

import pytest

from kodoctl.topology.lint.linter import lint
from kodoctl.topology.load import source_of
from tests.unit.topology.topology_files import codes_in, found_in, marked

SUB = "topics: {orders: {subscriptions: {billing: {%s}}}}"
POLICY = "defaults: {policies: {%s}}\ntopics: {}"
STATES = "should be one of retrying, pending, blocking"

CASES = [
    # keys
    ("topics: {}\n§topic: {}", "K003 topic: did you mean 'topics'?"),
    (
        "topics: {orders: {subscriptions: {s: {§max_deferred: 2}}}}",
        "K003 topics.orders.subscriptions.s.max_deferred: it is a setting of workers: write it in kodo-consumer.toml",
    ),
    ("topics: {orders: {§chunking: true}}", "K003 topics.orders.chunking: messages are not sent in chunks, because"),
    ("topics: {}\n§quite_something: {}", "K003 quite_something: known here: allow_destroy, create_tenant"),
    ("topics: {orders: {§partition: 3}}", "K003 topics.orders.partition: did you mean 'partitions'?"),
    (SUB % "retrying: {§delay: [1s]}", "K003 topics.orders.subscriptions.billing.retrying.delay: did you mean 'delays'?"),
    (SUB % "limits: [{kind: rate, limit: 1/s, §windows: 5}]", "K003 topics.orders.subscriptions.billing.limits[0].windows: known here:"),
    (POLICY % "§retenton: {}", "K003 defaults.policies.retenton: did you mean 'retention'?"),
    (POLICY % "retention: {§times: 1d}", "K003 defaults.policies.retention.times: did you mean 'time'?"),
    (SUB % "limits: [{kind: concurrency, limit: §8/s}]", "K004 topics.orders.subscriptions.billing.limits[0].limit: the text '8/s', should be a whole number"),
    (SUB % "§delays: [1s]", "K003 topics.orders.subscriptions.billing.delays: it belongs into `backup` or `blocking` or `pending`"),
    ("topics: {orders: {partitions: §'4'}}", "should be a whole number (without quotes)"),
    ("topics: {orders: {fair_by: §5}}", "the number 5, should be a text such as uid (in quotes)"),
    # missing
    ("topics: {orders: {§payload: {type: json}}}", "K006 topics.orders.payload.schema is needed: a text such as ../schemas/payloads/order.schema.json"),
    (SUB % "limits: [§{limit: 1/s}]", "K006 topics.orders.subscriptions.billing.limits[0].kind is needed: rate, concurrency, quota"),
    (SUB % "limits: [§{kind: rate}]", "K006 topics.orders.subscriptions.billing.limits[0].limit is needed: a text such as 100/s"),
    (SUB % "routes: [§{to: L1}]", "K006 topics.orders.subscriptions.billing.routes[0].when is needed: a text such as tenant = 'u7' AND attempts >= 3, or a map"),
    # nothing
    ("topics: {§orders: }", "K015 topics.orders has no value: write a map ({} takes every default), or remove the key (null stands only in overlays)"),
    ("§topics:", "K015 topics has no value: write a map such as {orders: {subscriptions: {billing: {}}}}, or remove the key"),
    ("topics: {orders: {§levels: null}}", "K015 topics.orders.levels has no value: write one of single, double, or a list such as [L1, L2], or remove the key"),
    (SUB % "tenant_weights: {§u1: ~}", "K015 topics.orders.subscriptions.billing.tenant_weights.u1 has no value: write a whole number"),
    ("topics: {}\n§description:", "K015 description has no value: write a text such as Orders and shipments, or remove the key"),
    ("topics: {}\ndefaults: {policies: {§ttl: null}}", "K015 defaults.policies.ttl has no value: write"),
    ("topics: {}\nnamespace_policies: {§offload: ~}", "K015 namespace_policies.offload has no value: write `inherit`, or a map"),
    ("topics: {orders: {payload: {type: json, §schema: null}}}", "K015 topics.orders.payload.schema has no value: write a text"),
    (SUB % "states: [§null]", "K015 topics.orders.subscriptions.billing.states[0] has no value"),
    ("topics: {§'': {}}", "K004 topics: '' is no name: a name has 1 to 1024 characters"),
    ("topics: {orders: {message_properties: {? §" + "x" * 1025 + " : required}}}", "K004 topics.orders.message_properties: 'xxxxxxxxxxxxxxxxxxxx' is no name"),
    # wrong kinds
    ("topics: {orders: {description: §{a: b}}}", "K004 topics.orders.description: a map, should be a text"),
    ("topics: {orders: {description: §true}}", "K004 topics.orders.description: true, should be a text"),
    ("topics: {orders: {description: §1.5}}", "K004 topics.orders.description: the number 1.5, should be a text"),
    ("topics: §[]", "K004 topics: a list, should be a map"),
    ("topics: {orders: §5}", "K004 topics.orders: the number 5, should be a map"),
    ("topics: {orders: {partitions: §'4'}}", "K004 topics.orders.partitions: the text '4', should be a whole number"),
    ("topics: {orders: {partitions: §-1}}", "K004 topics.orders.partitions: the number -1 is out of bounds: it should be greater than or equal to 1"),
    ("topics: {orders: {partitions: §4.5}}", "K004 topics.orders.partitions: the number 4.5, should be a whole number"),
    ("topics: {orders: {backup: §yes}}", "K004 topics.orders.backup: the text 'yes', should be true or false"),
    ("topics: {orders: {description: §[a]}}", "K004 topics.orders.description: a list, should be a text such as one message for each order"),
    ("topics: {orders: {fair_by: §''}}", "K004 topics.orders.fair_by: the text '' is out of bounds"),
    ("topics: {orders: {levels: §triple}}", "K004 topics.orders.levels: the text 'triple', should be one of single, double, or a list"),
    ("topics: {orders: {producers: §checkout}}", "K004 topics.orders.producers: the text 'checkout', should be a list"),
    (SUB % "type: §sharde", "K004 topics.orders.subscriptions.billing.type: the text 'sharde', should be one of shared, key_shared, failover, exclusive"),
    (SUB % "states: [§ready]", "K004 topics.orders.subscriptions.billing.states[0]: 'ready' has no place here: retrying, pending and blocking"),
    (SUB % "states: [§retry]", f"K004 topics.orders.subscriptions.billing.states[0]: the text 'retry', {STATES}"),
    (SUB % "states: [§[retrying]]", f"K004 topics.orders.subscriptions.billing.states[0]: a list, {STATES}"),
    (SUB % "dead_letter: §never", "K004 topics.orders.subscriptions.billing.dead_letter: the text 'never', should be true or false, or a map"),
    (SUB % "audit: §yes", "K004 topics.orders.subscriptions.billing.audit: the text 'yes', should be true or false, or `best_effort`, or a map"),
    (SUB % "isolate: §on", "K004 topics.orders.subscriptions.billing.isolate: the text 'on', should be `off`, or a map"),
    (SUB % "concurrency: §many", "K004 topics.orders.subscriptions.billing.concurrency: the text 'many', should be a whole number, or `adaptive`"),
    (SUB % "retrying: §[10s]", "K004 topics.orders.subscriptions.billing.retrying: a list, should be a map"),
    (SUB % "retrying: {delays: §[]}", "K004 topics.orders.subscriptions.billing.retrying.delays: should hold at least one entry"),
    (SUB % "limits: [§5]", "K004 topics.orders.subscriptions.billing.limits[0]: the number 5, should be a map"),
    (SUB % "limits: [{kind: §rates}]", "K004 topics.orders.subscriptions.billing.limits[0].kind: the text 'rates', should be one of rate, concurrency, quota"),
    (SUB % "limits: [{kind: §}]", "K004 topics.orders.subscriptions.billing.limits[0].kind: nothing, should be one of rate, concurrency, quota"),
    (SUB % "routes: [{when: {property: a, equals: §[1]}, to: L1}]", "K004 topics.orders.subscriptions.billing.routes[0].when.equals: a list, should be a text"),
    (SUB % "routes: [{when: {property: a, at_least: §.nan}, to: L1}]", "K004 topics.orders.subscriptions.billing.routes[0].when.at_least: the number nan, should be a number"),
    (POLICY % "persistence: {mark_delete_rate: §'1'}", "K004 defaults.policies.persistence.mark_delete_rate: the text '1', should be a number"),
    ("topics: {orders: §{policies: {replication: [a]}, replication: [b]}}", "K004 topics.orders: `replication` stands here and in `policies`: write it once"),
    ("topics: {orders: {partitions: §0}}", "K004 topics.orders.partitions: 0: a plain topic, without partitions, is written `partitioned: false`"),
    ("topics: {orders: §{partitioned: false, partitions: 4}}", "K004 topics.orders: `partitions` and `partitioned: false` stand here: a plain topic has none; write one of them"),
    (SUB % "dead_letter: §{partitioned: false, partitions: 1}", "dead_letter: `partitions` and `partitioned: false` stand here: a plain topic has none; write one of them"),
    ("topics: {}\nallow_destroy: [§orders]", "K004 allow_destroy[0]: the text 'orders', should be a text"),
    (SUB % f"error_text: {{redact: §[{', '.join(['a'] * 21)}]}}", "error_text.redact: 21 entries, should be at most 20"),
    ("topics: {}\nsources: {db: {database: X, tables: §{}}}", "K004 sources.db.tables: 0 entries, should be at least 1"),
    # names of the user that are those of a union's branches
    (POLICY % "subscription_rates: {value: {messages: 1}, other: {messages: §0}}", "K004 defaults.policies.subscription_rates.other.messages: 0"),
    ("topics: {}\nnamespace_policies: {properties: {value: x, team: §1}}", "K004 namespace_policies.properties.team: the number 1"),
    ("topics: {value: {partitions: §-1}}", "K004 topics.value.partitions: the number -1"),
    # words that are nearly right
    ("topics: {orders: {levels: §doubl}}", "K004 topics.orders.levels: the text 'doubl', should be one of single, double, or a list such as [L1, L2]; did you mean 'double'?"),
    (SUB % "limits: [{kind: §rte, limit: 1/s}]", "kind: the text 'rte', should be one of rate, concurrency, quota; did you mean 'rate'?"),
    (SUB % "on_failure: §prak", "did you mean 'park'?"),
    # units
    (POLICY % "ttl: §7", "K005 defaults.policies.ttl: 7 has no unit: write one of ms, s, m, h, d, for example 7d or `unlimited`"),
    (POLICY % "ttl: §7 days", "K005 defaults.policies.ttl: '7 days' is not a duration: a number with one of the units ms, s, m, h, d"),
    (POLICY % "ttl: §true", "K005 defaults.policies.ttl: should be a text such as 7d or `unlimited`"),
    (POLICY % "ttl: §500ms", "K005 defaults.policies.ttl: 500ms cannot be stored: Pulsar counts in whole seconds here; the nearest is 1s"),
    (POLICY % "ttl: §1500ms", "K005 defaults.policies.ttl: 1500ms cannot be stored: Pulsar counts in whole seconds here; the nearest is 1s or 2s"),
    (POLICY % "ttl: §40000000d", "K005 defaults.policies.ttl: 40000000d is more than Pulsar can store (2147483647s)"),
    (POLICY % "max_message_size: §2GiB", "K005 defaults.policies.max_message_size: 2GiB is more than Pulsar can store (2147483647B)"),
    (POLICY % "compaction_threshold: §9000000TiB", "compaction_threshold: 9000000TiB is more than Pulsar can store"),
    (POLICY % f"ttl: §{'9' * 5000}d", f"K005 defaults.policies.ttl: '{'9' * 100}' is not a duration"),
    (POLICY % "retention: {time: §30s, size: 1GiB}", "K005 defaults.policies.retention.time: 30s cannot be stored: Pulsar counts in whole minutes here; the nearest is 1m"),
    (POLICY % "retention: {time: §90s, size: 1GiB}", "the nearest is 1m or 2m"),
    (POLICY % "retention: {time: 1d, size: §1MB}", "K005 defaults.policies.retention.size: 1000000B cannot be stored: Pulsar counts in whole MiB here; the nearest is 1MiB"),
    (POLICY % "publish_rate: {messages: §90/m}", "K005 defaults.policies.publish_rate.messages: 90/m cannot be stored: Pulsar counts per second here; the nearest are 1/s and 2/s"),
    (POLICY % "publish_rate: {messages: §30/m}", "the nearest is 1/s"),
    (POLICY % "publish_rate: {messages: §3000000000/s}", "is more than Pulsar can store"),
    (POLICY % "publish_rate: {size: §5MiB}", "K005 defaults.policies.publish_rate.size: '5MiB' is not a data rate"),
    (SUB % "handler_timeout: §30", "K005 topics.orders.subscriptions.billing.handler_timeout: 30 has no unit: write one of ms, s, m, h, d, for example 30s"),
    (SUB % "isolate: {share: §25}", "K005 topics.orders.subscriptions.billing.isolate.share: should be a percentage such as 25%"),
    # zeros that Pulsar, or a worker, would read as something else
    (POLICY % "ttl: §0s", "K004 defaults.policies.ttl: 0 means unlimited to Pulsar: write `unlimited`"),
    (POLICY % "subscription_expiry: §0m", "K004 defaults.policies.subscription_expiry: 0 means unlimited"),
    (POLICY % "compaction_threshold: §0B", "K004 defaults.policies.compaction_threshold: 0 means unlimited"),
    (POLICY % "max_producers: §0", "K004 defaults.policies.max_producers: 0 means unlimited"),
    (POLICY % "max_producers: §-1", "K004 defaults.policies.max_producers: should be between 1 and 2147483647, or `unlimited`"),
    (POLICY % "max_producers: §many", "K004 defaults.policies.max_producers: should be a whole number or `unlimited`"),
    (POLICY % "publish_rate: {messages: §0/s}", "K004 defaults.policies.publish_rate.messages: 0 means unlimited"),
    (POLICY % "publish_rate: {size: §0B/s}", "K004 defaults.policies.publish_rate.size: 0 means unlimited"),
    (POLICY % "backlog_quota: {size: §0B}", "K004 defaults.policies.backlog_quota.size: 0 would stop every producer"),
    (POLICY % "dispatch_rate: {period: §0s}", "K004 defaults.policies.dispatch_rate.period: 0 is no period: write at least 1s"),
    (POLICY % "max_message_size: §0B", "K004 defaults.policies.max_message_size: 0 leaves no room at all"),
    (SUB % "handler_timeout: §0s", "K004 topics.orders.subscriptions.billing.handler_timeout: 0 leaves no time at all"),
    (SUB % "limits: [{kind: rate, limit: §0/s}]", "K004 topics.orders.subscriptions.billing.limits[0].limit: 0 lets nothing through, ever"),
    (SUB % "isolate: {share: §0%}", "K004 topics.orders.subscriptions.billing.isolate.share: 0%: a share is above 0% and at most 100%"),
    (SUB % "isolate: {share: §101%}", "101%: a share is above 0% and at most 100%"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "says"), CASES)
def test_a_wrong_value_is_one_finding_that_says_what_would_do(body: str, says: str) -> None:
    text, place = marked(body)
    (finding,) = found_in(text)
    assert finding.where is not None
    assert (finding.where.line, finding.where.column) == place
    assert says in f"{finding.code} {finding.detail}"


REST = "name: n\ntenant: k\nnamespace: n\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- a\n", "1:1 K004 the file should be a map that begins with `version: 1`"),
        ("a scalar\n", "1:1 K004 the file should be a map that begins with `version: 1`"),
        (
            "apiVersion: v1\nkind: Service\nspec: {}\n",
            "1:1 K004 this is a Kubernetes object, not a topology: it has none of the keys version, name, tenant, namespace and topics",
        ),
        (
            "a: 1\nb: 2\n",
            "1:1 K004 this is no topology: it has none of the keys version, name, tenant, namespace and topics",
        ),
        (
            f"version: 2\n{REST}topics: 5",
            "1:10 K007 this kodoctl reads version 1; version 2 needs another one (see its CHANGELOG)",
        ),
        (f"version: '1'\n{REST}", "1:10 K007 version is a whole number: write `version: 1`"),
        (f"version: one\n{REST}", "1:10 K007 version is a whole number: write `version: 1`"),
        (f"version: true\n{REST}", "1:10 K007 version is a whole number: write `version: 1`"),
        (f"version: 1.0\n{REST}", "1:10 K007 version is a whole number: write `version: 1`"),
        (f"version: [1]\n{REST}", "1:10 K007 version is a whole number: write `version: 1`"),
        (f"{REST}topics: {{}}", "1:1 K006 version is needed: write `version: 1`"),
        (
            f"version:\n{REST}topics: {{}}",
            "1:1 K015 version has no value: write `1`, or remove the key (null stands only in overlays)",
        ),
        (f"version: 1\n{REST}", "1:1 K006 topics is needed: a map such as {orders: {subscriptions: {billing: {}}}}"),
    ],
)
def test_a_file_that_is_no_topology_of_ours_is_one_finding(text: str, says: str) -> None:
    (finding,) = lint([source_of(text.encode(), "f.yaml")]).findings
    assert f"{finding.where} {finding.code} {finding.detail}" == f"f.yaml:{says}"


def test_all_mistakes_of_a_file_are_found_at_once() -> None:
    body = "tenants: a\ntopics: {orders: {levels: triple, subscriptions: {s: {type: x, retrying: {delays: [1]}}}}}"
    assert codes_in(body) == ["K003", "K004", "K004", "K005"]


def test_missing_keys_of_an_almost_empty_file_are_named_one_by_one() -> None:
    assert [finding.detail.split()[0] for finding in found_in("version: 1\n")] == [
        "name",
        "namespace",
        "tenant",
        "topics",
    ]


def test_a_hopeless_file_ends_with_its_first_two_hundred_findings() -> None:
    body = "topics:\n" + "".join(f"  t{n}: {{x: 1}}\n" for n in range(5000))
    assert len(found_in(body)) == 200
