"""Every lint rule seen failing, at the line and column where the mistake is, and seen content with what is right."""

import re

import pytest

from kodoctl.errors import Severity
from kodoctl.topology.lint.registry import RULES
from tests.unit.topology.topology_files import codes_in, found_in, marked


def sub(settings: str, topic: str = "") -> str:
    """One ground topic with one subscription."""
    return f"topics: {{orders: {{{topic}subscriptions: {{billing: {{{settings}}}}}}}}}\n"


def source(table: str, topic: str = "", name: str = "db") -> str:
    """One ground topic, and a source with one table in front of it."""
    return f"topics: {{orders: {{{topic}}}}}\nsources: {{{name}: {{database: DB_URL, tables: {{{table}}}}}}}\n"


def function(settings: str, name: str = "enrich") -> str:
    """A ground topic with a subscription, another one, and a function with its package."""
    package = "" if "package:" in settings else "package: 'builtin://enrich', "
    topics = "topics: {orders: {subscriptions: {billing: {}}}, shipments: {}}\n"
    return f"{topics}functions:\n  {name}: {{{package}{settings}}}\n"


def connector(settings: str, key: str = "sinks", more: str = "") -> str:
    """A ground topic with a subscription, another one, and a connector with its package; `more`: further keys."""
    topics = "topics: {orders: {subscriptions: {billing: {}}}, shipments: {}}\n"
    return f"{topics}{key}:\n  keep: {{package: 'builtin://keep', {settings}}}\n{more}"


def flow(*ways: str) -> str:
    """Ground topics with subscriptions that send to others: `a.s>b,c`; § stands before the key that sends."""
    sends: dict[str, dict[str, str]] = {}
    for way in ways:
        source, _, targets = way.partition(">")
        ground, _, name = source.partition(".")
        mark = "§" if targets.startswith("§") else ""
        sends.setdefault(ground, {})[name] = f"{mark}produces: [{targets.removeprefix('§')}]"
        for target in targets.removeprefix("§").split(","):
            sends.setdefault(target, {})
    topics = [
        f"  {ground}: {{levels: double, subscriptions: {{{', '.join(f'{name}: {{{told}}}' for name, told in found.items())}}}}}\n"
        for ground, found in sends.items()
        if not ground.endswith("-L2")
    ]
    return "topics:\n" + "".join(topics)


ORDERS = "topics: {orders: {subscriptions: {billing: {}}}}\n"
DEAD = "states: [], "
NO_DLQ = "states: [], dead_letter: false"
SET = "namespace_policies: "
KEPT = "topics: {orders: {ignore: [persistence]}}\nenvironments: {prod: {production: true}}"

# code, body with § before the place, what the finding says, the same without the mistake
CASES = [
    # K003 … K006: found by rules as well as by the loader
    ("K003", "topics: {orders: {ignore: [§publishrate]}}", "'publishrate' is no topic policy", "topics: {orders: {ignore: [publish_rate]}}"),
    ("K006", "defaults: {policies: {§retention: {time: 7d}}}\n" + ORDERS, "orders, orders-billing-RETRYING, orders-billing-PENDING and 2 more: retention: size is missing", "defaults: {policies: {retention: {time: 7d, size: 1GiB}}}\n" + ORDERS),
    ("K006", SET + "{§retention: {size: 1GiB}}\n" + ORDERS, "kodo/trade: retention: time is missing", SET + "{retention: {size: 1GiB, time: unlimited}}\n" + ORDERS),
    ("K006", SET + "{replication: [east, west], §allowed_clusters: [east]}\n" + ORDERS, "kodo/trade: allowed_clusters: west is missing, a cluster of `replication`", SET + "{replication: [east], allowed_clusters: [east]}\n" + ORDERS),
    ("K006", "defaults: {policies: {§retention: {time: 0s, size: 1GiB}}}\n" + sub(NO_DLQ), "time and size must both be 0", "defaults: {policies: {retention: {time: 0s, size: 0B}}}\n" + sub(NO_DLQ)),
    ("K006", "defaults: {policies: {§backlog_quota: {when_full: fail_producers}}}\n" + sub(NO_DLQ), "backlog_quota: size or time is missing", "defaults: {policies: {backlog_quota: {time: 1d, when_full: fail_producers}}}\n" + sub(NO_DLQ)),
    ("K006", "defaults: {policies: {§persistence: {ensemble: 3}}}\n" + sub(NO_DLQ), "write_quorum, ack_quorum missing", "defaults: {policies: {persistence: {ensemble: 3, write_quorum: 3, ack_quorum: 2}}}\n" + sub(NO_DLQ)),
    ("K006", "defaults: {policies: {§inactive_topic: {after: 1h}}}\n" + sub(NO_DLQ), "delete is missing", "defaults: {policies: {inactive_topic: {delete: no_subscriptions, after: 1h}}}\n" + sub(NO_DLQ)),
    ("K006", "defaults: {policies: {§inactive_topic: {delete: caught_up}}}\n" + sub(NO_DLQ), "after is missing", "defaults: {policies: {inactive_topic: {delete: never}}}\n" + sub(NO_DLQ)),
    ("K006", "defaults: {policies: {§inactive_topic: {delete: never, after: 1h}}}\n" + sub(NO_DLQ), "after means nothing", "defaults: {policies: {inactive_topic: {delete: never}}}\n" + sub(NO_DLQ)),
    # K019: lists that name what the file itself declares
    ("K019", ORDERS + "allow_destroy: [§topic.persistent://kodo/trade/orders]", "is declared by this file", ORDERS + "allow_destroy: [topic.persistent://kodo/trade/orders-L2]"),
    ("K019", ORDERS + "forget: [§topic.persistent://kodo/trade/orders]", "is declared by this file", ORDERS + "forget: [topic.persistent://kodo/trade/old]"),
    # K101
    ("K101", "version: 1\nname: §'my trade'\ntenant: kodo\nnamespace: trade\ntopics: {}", "name 'my trade': it holds ' '", "topics: {}"),
    ("K101", "version: 1\nname: trade\ntenant: §'..'\nnamespace: trade\ntopics: {}", "tenant '..': it is a relative path", "topics: {}"),
    ("K101", "version: 1\nname: trade\ntenant: kodo\nnamespace: §a/b\ntopics: {}", "namespace 'a/b': it holds '/'", "topics: {}"),
    ("K101", "version: 1\nname: trade\ntenant: kodo\nnamespace: §kodoctl\ntopics: {}", "holds kodoctl's own lease and journal topics", "topics: {}"),
    ("K101", "topics: {§orders-L2: {}}", "ground topic 'orders-L2' ends in -L2", "topics: {orders-2: {}}"),
    ("K101", "topics: {§orders-RETRYING: {}}", "ends in -RETRYING", "topics: {orders-retrying: {}}"),
    ("K101", "topics: {§orders-partition-0: {}}", "-partition-<number>", "topics: {orders-partition: {}}"),
    ("K101", "topics: {§orders-partition-x: {}}", "orders-partition-x: Pulsar creates no partitioned topic with -partition- in its name", "topics: {orders-partition-x: {partitioned: false}}"),
    ("K101", "topics: {§orders-partition-x: {subscriptions: {billing: {}}}}", "orders-partition-x: Pulsar creates no", "topics: {orders-x: {subscriptions: {billing: {}}}}"),
    ("K101", "topics: {orders-partition-x: {partitioned: false, subscriptions: {§billing: {}}}}", "orders-partition-x-billing-DLQ: Pulsar creates no", "topics: {orders-partition-x: {partitioned: false, subscriptions: {billing: {states: [], dead_letter: false}}}}"),
    ("K101", "topics: {orders-partition: {subscriptions: {§billing: {states: []}}}}", "orders-partition-billing-DLQ: Pulsar creates no", "topics: {orders-partition: {subscriptions: {billing: {states: [], dead_letter: false}}}}"),
    ("K101", "topics: {§__orders: {}}", "Pulsar's own", "topics: {_orders: {}}"),
    ("K101", "topics: {orders: {subscriptions: {§bill/ing: {}}}}", "subscription 'bill/ing': it holds '/'", ORDERS),
    ("K101", "topics: {orders: {subscriptions: {§billing-DLQ: {}}}}", "ends in -DLQ", ORDERS),
    ("K101", "topics: {orders: {subscriptions: {§kodo-hold: {}}}}", "names that begin so are kodoctl's", ORDERS),
    ("K101", "topics: {orders: {subscriptions: {§pulsar.repl.east: {}}}}", "names that begin so are Pulsar's (replicators)", ORDERS),
    # K102 inside one file (across files: below)
    ("K102", "topics:\n  a: {subscriptions: {b-c: {states: []}}}\n  §a-b: {subscriptions: {c: {states: []}}}", "a-b-c-DLQ belongs to a, subscription b-c and to a-b, subscription c: rename one", "topics:\n  a: {subscriptions: {b-c: {states: []}}}\n  ab: {subscriptions: {c: {states: []}}}"),
    # K103
    ("K103", "topics: {orders: {levels: [L1, §L9]}}", "the text 'L9' is no level", "topics: {orders: {levels: [L1, L8]}}"),
    ("K103", sub("level_weights: {§X: 3}"), "this is no level", sub("level_weights: {L1: 3}")),
    ("K103", "topics: {orders: {§levels: [L2]}}", "L1 is missing", "topics: {orders: {levels: [L2, L1]}}"),
    ("K103", "topics: {orders: {draining: [§L1], levels: [L1]}}", "cannot drain", "topics: {orders: {draining: [B1], levels: [L1]}}"),
    ("K103", "topics: {orders: {levels: [L1, L2, §L2]}}", "L2 is listed twice", "topics: {orders: {levels: [L1, L2]}}"),
    ("K103", "topics: {orders: {levels: [L1], draining: [§L1]}}", "cannot drain", "topics: {orders: {levels: [L1], draining: [L2]}}"),
    ("K103", "topics: {orders: {levels: double, draining: [§L2]}}", "L2 drains and is in use", "topics: {orders: {draining: [L2]}}"),
    ("K103", "topics: {orders: {backup: true, draining: [§B1]}}", "B1 drains and is in use", "topics: {orders: {draining: [B1]}}"),
    ("K103", sub("states: [retrying, §retrying]"), "retrying is listed twice", sub("states: [retrying]")),
    ("K103", sub("states: [retrying], draining: [§retrying]"), "retrying drains and is in use: take it out of `states`", sub("states: [pending], draining: [retrying]")),
    ("K103", sub("draining: [§blocking]"), "`states` has it by default: write `states: [retrying, pending]`", sub("states: [retrying, pending], draining: [blocking]")),
    ("K103", sub("routes: [{when: {property: size, exists: true}, to: §B1}]", "message_properties: {size: optional}, "), "B1 is no level of this topic: the levels are L1", sub("routes: [{when: {property: size, exists: true}, to: B1}]", "backup: true, message_properties: {size: optional}, ")),
    ("K103", sub("routes: [{when: {property: size, exists: true}, to: §B1}]", "draining: [B1], message_properties: {size: optional}, "), "B1 is draining", sub("", "draining: [B1], ")),
    ("K103", sub("routes: [{when: {property: s, at_least: 5}, to: L1}, {§when: {property: s, greater_than: 5}, to: L1}]", "message_properties: {s: optional}, "), "it can never match: route 1 matches all of it first", sub("routes: [{when: {property: s, greater_than: 5}, to: L1}, {when: {property: s, at_least: 5}, to: L1}]", "message_properties: {s: optional}, ")),
    ("K103", sub("level_weights: {§L2: 3}"), "L2 is no level of this topic", sub("level_weights: {L2: 3}", "levels: double, ")),
    ("K103", sub("isolate: {to: §B1}"), "there is no B1 to isolate to", sub("isolate: {to: pending}")),
    ("K103", sub("states: [], isolate: {to: §pending}"), "there is no pending to isolate to", sub("states: [pending], isolate: {to: pending}")),
    ("K103", sub("routes: [{§when: {property: s}, to: L1}]", "message_properties: {s: optional}, "), "it has none", sub("routes: [{when: {property: s, equals: 1}, to: L1}]", "message_properties: {s: optional}, ")),
    ("K103", sub("routes: [{§when: {property: s, equals: 1, exists: true}, to: L1}]", "message_properties: {s: optional}, "), "it has equals and exists", sub("routes: [{when: {property: s, in: [1]}, to: L1}]", "message_properties: {s: optional}, ")),
    ("K103", sub("routes: [{§when: {property: s, in: []}, to: L1}]", "message_properties: {s: optional}, "), "it can never match: not at dispatch", sub("routes: [{when: {property: s, not_in: []}, to: L1}]", "message_properties: {s: optional}, ")),
    # K103, K217, K218: limits of some lanes, slots of states and levels
    ("K103", sub("states: [retrying], limits: [{kind: rate, limit: 1/s, in: {states: [retrying, §pending]}}]"), "pending is off: the limit can never apply there; there is ready, retrying", sub("limits: [{kind: rate, limit: 1/s, in: {states: [retrying, pending]}}]")),
    ("K103", sub("limits: [{kind: rate, limit: 1/s, in: {levels: [§L2]}}]"), "L2 is no level of this topic; there is L1", sub("limits: [{kind: rate, limit: 1/s, in: {levels: [L2]}}]", "levels: double, ")),
    ("K103", sub("limits: [{kind: rate, limit: 1/s, §in: {states: [retrying], levels: [B1]}}]", "backup: true, "), "no lane has these states and levels", sub("limits: [{kind: rate, limit: 1/s, in: {states: [retrying], levels: [B1, L1]}}]", "backup: true, ")),
    ("K103", sub("states: [], concurrency: {states: {§retrying: {max: 8}}}"), "retrying is none of the states that workers read; there is ready", sub("concurrency: {states: {retrying: {max: 8}}}")),
    ("K103", sub("concurrency: {levels: {§L2: {min: 8}}}"), "L2 is none of the levels that workers read; there is L1", sub("concurrency: {levels: {L2: {min: 8}}}", "levels: double, ")),
    ("K103", sub("states: [retrying], concurrency: {lanes: {§L2/retrying: {max: 8}}}"), "there is L1/ready, L1/retrying", sub("states: [retrying], concurrency: {lanes: {L1/retrying: {max: 8}}}")),
    ("K217", sub("§concurrency: {total: 8, states: {retrying: {min: 5}, pending: {min: 4}}}"), "states.retrying 5 + states.pending 4: 9 slots are kept of 8", sub("concurrency: {total: 10, states: {retrying: {min: 5}, pending: {min: 4}}}")),
    ("K217", sub("§concurrency: {total: adaptive, states: {retrying: {min: 129}}}"), "129 slots are kept of 128", sub("concurrency: {total: adaptive, states: {retrying: {min: 127}}}")),
    ("K217", sub("states: [retrying], §concurrency: {total: 8, states: {retrying: {min: 8}}}"), "no slot is left for L1/ready", sub("states: [retrying], concurrency: {total: 8, states: {retrying: {min: 4}, ready: {min: 4}}}")),
    ("K217", sub("concurrency: {states: {retrying: {max: 4, min: §5}}}"), "min 5 is more than max 4", sub("concurrency: {states: {retrying: {max: 5, min: 5}}}")),
    ("K217", sub("concurrency: {levels: {L2: {max: §4}}, lanes: {L2/ready: {min: 3}, L2/retrying: {min: 2}}}", "levels: double, "), "max 4 is less than what is kept inside of it (lanes.L2/ready 3 + lanes.L2/retrying 2)", sub("concurrency: {levels: {L2: {max: 5}}, lanes: {L2/ready: {min: 3}, L2/retrying: {min: 2}}}", "levels: double, ")),
    ("K217", sub("limits: [{kind: quota, limit: 5/h, in: {states: [ready, pending, blocking]}}, §{kind: quota, by: key, limit: 9/h}]"), "this quota holds in other lanes than that of limit 1", sub("limits: [{kind: quota, limit: 5/h}, {kind: quota, by: key, limit: 9/h}]")),
    ("K217", sub("expected_workers: 2, concurrency: {states: {retrying: {min: 3}}}, limits: [{kind: concurrency, limit: §5, in: {states: [retrying]}}]"), "5 at once in 2 workers, and states.retrying keeps 3 slots in each", sub("expected_workers: 2, concurrency: {states: {retrying: {min: 3}}}, limits: [{kind: concurrency, limit: 6, in: {states: [retrying]}}]")),
    ("K217", sub("concurrency: {states: {retrying: {min: 4}, pending: {min: 4}}}, limits: [{kind: concurrency, limit: §6}]"), "6 at once in 1 worker, and states.retrying keeps 4 slots and states.pending keeps 4 slots in each", sub("concurrency: {states: {retrying: {min: 4}, pending: {min: 4}}}, limits: [{kind: concurrency, limit: 8}]")),
    ("K217", sub("expected_workers: 2, concurrency: {states: {retrying: {min: 3}}}, limits: [{kind: concurrency, scope: worker, limit: §2}]"), "2 at once in 1 worker, and", sub("expected_workers: 2, concurrency: {states: {retrying: {min: 3}}}, limits: [{kind: concurrency, scope: worker, limit: 2, in: {states: [ready]}}, {kind: concurrency, scope: worker, by: key, limit: 2}]")),
    ("K218", sub("concurrency: {total: 8, states: {retrying: {max: §8}}}"), "max 8 of 8 slots changes nothing", sub("concurrency: {total: 8, states: {retrying: {max: 7}}}")),
    ("K218", sub("concurrency: {states: {§retrying: {}}}"), "neither `max` nor `min`", sub("concurrency: {states: {retrying: {min: 1}}}")),
    ("K218", sub("concurrency: {states: {retrying: {max: 4}}, lanes: {L2/retrying: {max: §4}}}", "levels: double, "), "max 4 never counts: states.retrying has max 4", sub("concurrency: {states: {retrying: {max: 4}}, lanes: {L2/retrying: {max: 3}}}", "levels: double, ")),
    ("K218", sub("states: [], concurrency: {states: {ready: {max: 4}}, levels: {L1: {max: §4}}}"), "max 4 never counts: states.ready has max 4", sub("states: [retrying], concurrency: {states: {ready: {max: 4}}, levels: {L1: {max: 5}}}")),
    ("K218", sub("limits: [{kind: rate, limit: 1/s, §in: {}}]"), "`in` names neither states nor levels", sub("limits: [{kind: rate, limit: 1/s}]")),
    ("K218", sub("limits: [{kind: rate, limit: 10/s}, §{kind: rate, limit: 20/s, in: {states: [retrying]}}]"), "it never counts: limit 1 is as strict or stricter", sub("limits: [{kind: rate, limit: 10/s}, {kind: rate, limit: 5/s, in: {states: [retrying]}}]")),
    ("K218", sub("limits: [§{kind: rate, by: key, limit: 20/s}, {kind: rate, by: key, limit: 10/s}]"), "limit 2 is as strict or stricter", sub("limits: [{kind: rate, by: key, limit: 20/s, burst: 5}, {kind: rate, by: key, limit: 10/s}]")),
    ("K218", sub("limits: [{kind: concurrency, by: key, limit: 4, overrides: {a: 2}}, §{kind: concurrency, by: key, limit: 4, overrides: {a: 3}}]"), "limit 1 is as strict or stricter", sub("limits: [{kind: concurrency, by: key, limit: 4, overrides: {a: 9}}, {kind: concurrency, by: key, limit: 5, overrides: {a: 3}}, {kind: rate, by: key, limit: 1/s}]")),
    ("K218", sub("limits: [{kind: quota, limit: 4/d}, §{kind: quota, limit: 4/h}]"), "limit 1 is as strict or stricter", sub("limits: [{kind: quota, limit: 9/d}, {kind: quota, limit: 4/h}, {kind: quota, limit: 4/h, scope: worker}]")),
    # K104
    ("K104", sub("weights: {ready: §201}"), "201: a weight is 0 to 200", sub("weights: {ready: 200}")),
    ("K104", sub("weights: {ready: §-1}"), "-1: a weight is 0 to 200", sub("weights: {ready: 0}")),
    ("K104", sub("level_weights: {L1: §1000}"), "1000: a weight is 0 to 200", sub("level_weights: {L1: 1}")),
    ("K104", sub("§level_weights: {L1: 0}"), "all levels have weight 0", sub("level_weights: {L1: 0, L2: 1}", "levels: double, ")),
    ("K104", sub("states: [pending], §weights: {ready: 0, pending: 0}"), "all states have weight 0", sub("states: [pending], weights: {ready: 0, pending: 1}")),
    ("K104", sub("in_place: [1s, §6s]"), "6s: a wait in memory is above 0 and at most 5s", sub("in_place: [5s, 5s]")),
    ("K104", sub("in_place: [§0s]"), "0s: a wait in memory", sub("in_place: []")),
    ("K104", sub("retrying: {delays: [10s, §10s]}"), "10s does not rise above 10s", sub("retrying: {delays: [10s, 11s]}")),
    ("K104", sub("pending: {delays: [§0s]}"), "0s does not rise above 0s", sub("pending: {delays: [1ms]}")),
    ("K104", sub("blocking: {delays: [1s, 2s, 3s], attempts: §2}"), "blocking: 2 attempts never reach the last of 3 delays", sub("blocking: {delays: [1s, 2s, 3s], attempts: 3}")),
    ("K104", sub("backup: {attempts: §3}"), "backup: 3 attempts never reach the last of 4 delays", sub("backup: {attempts: 4}")),
    # K105
    ("K105", ORDERS + "environments: {prod: {topics: {§order: {partitions: 2}}}}", "topic 'order': the file has 'orders'; is it the one?", ORDERS + "environments: {prod: {topics: {shipments: {partitions: 2}, orders: {partitions: 2}}}}"),
    ("K105", source("public.orders: {topic: orders}") + "environments: {prod: {sources: {db: {tables: {§public.order: {topic: orders}}}}}}", "table 'public.order': db has 'public.orders'; is it the one?", source("public.orders: {topic: orders}") + "environments: {prod: {sources: {db: {database: OTHER_URL}}}}"),
    ("K105", ORDERS + "environments: {prod: {topics: {orders: {subscriptions: {§biling: {}}}}}}", "subscription 'biling': orders has 'billing'; is it the one?", ORDERS + "environments: {prod: {topics: {orders: {subscriptions: {mailing: {}}}}}}"),
    # K201
    ("K201", sub(DEAD + "dead_letter: {ttl: §6d}"), "orders-billing-DLQ: ttl 6d: at least 7d, better unlimited", sub(DEAD + "dead_letter: {ttl: 7d}")),
    ("K201", sub(DEAD + "dead_letter: {subscription_expiry: §90d}"), "subscription_expiry 90d would delete the holder", sub(DEAD + "dead_letter: {subscription_expiry: unlimited}")),
    ("K201", sub(DEAD + "dead_letter: {inactive_topic: {delete: §caught_up, after: 90d}}"), "inactive_topic caught_up would delete the topic", sub(DEAD + "dead_letter: {inactive_topic: {delete: never}}")),
    ("K201", SET + "{ttl: 1d}\n" + sub(DEAD + "dead_letter: {ttl: §inherit}"), "ttl 1d: at least 7d", SET + "{ttl: 1d}\n" + sub(DEAD + "dead_letter: {}")),
    # K202: 1 h of blocking, and 3 s of jitter
    ("K202", "defaults: {policies: {ttl: §1h}}\n" + ORDERS, "orders-billing-RETRYING, orders-billing-PENDING, orders-billing-BLOCKING: ttl 1h: messages wait up to 1h there; at least 61m, or unlimited", "defaults: {policies: {ttl: 61m}}\n" + ORDERS),
    ("K202", "defaults: {state_policies: {subscription_expiry: §30m}}\n" + ORDERS, "subscription_expiry 30m: messages wait up to 1h", "defaults: {state_policies: {subscription_expiry: unlimited}}\n" + ORDERS),
    ("K202", "defaults: {state_policies: {inactive_topic: {delete: caught_up, after: §10m}}}\n" + ORDERS, "inactive_topic 10m: messages wait up to 1h there; at least 61m, or `delete: never`", "defaults: {state_policies: {inactive_topic: {delete: no_subscriptions, after: 10m}}}\n" + ORDERS),
    ("K202", sub(NO_DLQ, "backup: true, policies: {ttl: §30m}, "), "orders: ttl 30m", sub(NO_DLQ, "policies: {ttl: 30m}, ")),
    ("K202", SET + "{ttl: §30m}\n" + sub("states: [retrying], retrying: {delays: [40m]}, dead_letter: false"), "messages wait up to 40m there; at least 41m", SET + "{ttl: 41m}\n" + sub("states: [retrying], retrying: {delays: [40m]}, dead_letter: false")),
    ("K202", SET + "{inactive_topic: {delete: caught_up, after: §10m}}\n" + ORDERS, "inactive_topic 10m: messages wait up to 1h there", SET + "{inactive_topic: {delete: caught_up, after: 61m}}\n" + ORDERS),
    ("K202", "defaults: {policies: {ttl: §2h}}\n" + sub("states: [pending], limits: [{kind: quota, limit: 10/d}]"), "messages wait up to 1d there; at least 1441m", "defaults: {policies: {ttl: 2h}}\n" + sub("states: [pending], limits: [{kind: rate, limit: 10/s}]")),
    # K203
    ("K203", sub(NO_DLQ, "policies: {backlog_quota: {size: 1GiB, when_full: §evict}}, "), "orders: evict drops unread messages", sub(NO_DLQ, "policies: {backlog_quota: {size: 1GiB, when_full: fail_producers}}, ")),
    ("K203", sub(NO_DLQ, "policies: {backlog_quota: {size: 1GiB, time: 1d, when_old: §evict}}, "), "orders: evict drops unread messages", sub(NO_DLQ, "policies: {backlog_quota: {size: unlimited, time: 1d, when_full: evict, when_old: fail_producers}}, ")),
    ("K203", SET + "{backlog_quota: {time: 1d, when_full: §evict}}\n" + sub(NO_DLQ), "evict drops unread messages", SET + "{backlog_quota: {time: unlimited, when_full: evict}}\n" + sub(NO_DLQ)),
    ("K103", sub("routes: [{when: §\"state = 'pending'\", to: L1}]"), "it can never match: not at dispatch", sub("routes: [{when: \"state = 'pending'\", at: [pending], to: L1}]")),
    ("K103", sub("routes: [{when: 'true', at: [§pending], to: L1}]", "" ).replace("routes", "states: [retrying], routes"), "it takes no message at pending: there is no lane of the state pending", sub("states: [pending], routes: [{when: 'true', at: [pending], to: L1}]")),
    ("K103", sub("routes: [{when: 'true', at: [§backup], to: L1}]"), "there is no lane of a backup level", sub("routes: [{when: 'true', at: [backup], to: L1}]", "backup: true, ")),
    ("K103", sub("routes: [{when: {property: s, equals: a}, at: [dispatch, retrying], to: L2}, {when: §\"properties['s'] = 'a' AND attempts >= 2\", at: [retrying], to: B1}]", "backup: true, levels: double, message_properties: {s: optional}, "), "it can never match: route 1 matches all of it first", sub("routes: [{when: {property: s, equals: a}, share: 50%, at: [dispatch, retrying], to: L2}, {when: \"properties['s'] = 'a' AND attempts >= 2\", at: [retrying], to: B1}]", "backup: true, levels: double, message_properties: {s: optional}, ")),
    ("K103", sub("routes: [{when: {property: s, exists: true}, to: B1}, {§when: {property: s, equals: a}, to: B1}]", "levels: [L1, L2, L3], backup: true, fair_by: uid, message_properties: {uid: required, s: optional}, exclusive_levels: {L2: [u7]}, "), "it can never match: route 1 matches all of it first", sub("routes: [{when: {property: s, exists: true}, to: L3}, {when: {property: s, equals: a}, to: B1}]", "levels: [L1, L2, L3], backup: true, fair_by: uid, message_properties: {uid: required, s: optional}, exclusive_levels: {L2: [u7]}, ")),
    ("K106", sub("routes: [{when: §\"tenant = 'a' AND age > 3\", to: L1}]"), "'age' is no fact of a message", sub("routes: [{when: \"tenant = 'a'\", to: L1}]")),
    ("K106", sub("routes: [{when: §\"properties['kodo-hop'] = '1'\", to: L1}]"), "kodo-hop is the platform's own", sub("routes: [{when: attempts > 1, at: [retrying], to: L1}]")),
    ("K107", sub("routes: [{when: \"level = 'L1' AND tenant = 'a'\", to: L2}, {when: \"level = 'L2' AND tenant = 'a'\", to: §L1}]", "backup: true, levels: double, message_properties: {s: optional}, "), "routes 1 and 2: L2 → L1 → L2", sub("routes: [{when: \"level = 'L1' AND tenant = 'a'\", to: L2}, {when: \"level = 'L2' AND tenant = 'a'\", to: B1}]", "backup: true, levels: double, message_properties: {s: optional}, ")),
    ("K107", sub("routes: [{when: level = 'L1', at: [retrying], to: L2}, {when: level = 'L2', at: [retrying], to: §L1}]", "backup: true, levels: double, message_properties: {s: optional}, "), "routes 1 and 2: L2 → L1 → L2", sub("routes: [{when: tenant = 'a', at: [retrying], to: B1}, {when: tenant = 'b', at: [backup], to: L1}]", "backup: true, levels: double, message_properties: {s: optional}, ")),
    ("K108", sub("routes: [{when: {property: s, in: [a, b]}, to: L2}, {§when: {property: s, in: [b, c]}, to: B1}]", "backup: true, levels: double, message_properties: {s: optional}, "), "route 1 takes b first", sub("routes: [{when: {property: s, in: [a, b]}, to: L2}, {when: {property: s, in: [c]}, to: B1}]", "backup: true, levels: double, message_properties: {s: optional}, ")),
    ("K109", sub("", "levels: [L1, S1], §exclusive_levels: {S1: [u7]}, "), "there are no tenants: write `fair_by`", sub("", "levels: [L1, L2, S1], backup: true, fair_by: uid, message_properties: {uid: required}, exclusive_levels: {S1: [u7]}, ")),
    ("K109", sub("", "levels: [L1, L2, S1], backup: true, fair_by: uid, message_properties: {uid: required}, exclusive_levels: {§L1: [u7]}, "), "L1 is the ground topic itself", sub("", "levels: [L1, L2, S1], backup: true, fair_by: uid, message_properties: {uid: required}, exclusive_levels: {S1: [u7]}, ")),
    ("K109", sub("", "levels: [L1, L2, S1], backup: true, fair_by: uid, message_properties: {uid: required}, exclusive_levels: {§B1: [u7]}, "), "B1 is a backup", sub("", "levels: [L1, L2, S1], backup: true, fair_by: uid, message_properties: {uid: required}, exclusive_levels: {S1: [u7]}, ")),
    ("K109", sub("", "levels: [L1, L2, S1], backup: true, fair_by: uid, message_properties: {uid: required}, exclusive_levels: {§L3: [u7]}, "), "L3 is no level of this topic: write it into the list", sub("", "levels: [L1, L2, S1], backup: true, fair_by: uid, message_properties: {uid: required}, exclusive_levels: {S1: [u7]}, ")),
    ("K109", sub("", "draining: [L3], levels: [L1, L2, S1], backup: true, fair_by: uid, message_properties: {uid: required}, exclusive_levels: {§L3: [u7]}, "), "L3 is draining and takes no messages", sub("", "levels: [L1, L2, S1], backup: true, fair_by: uid, message_properties: {uid: required}, exclusive_levels: {S1: [u7]}, ")),
    ("K109", sub("", "levels: [L1, L2, S1], backup: true, fair_by: uid, message_properties: {uid: required}, exclusive_levels: {S1: [u7, §u7]}, "), "u7 is listed twice", sub("", "levels: [L1, L2, S1], backup: true, fair_by: uid, message_properties: {uid: required}, exclusive_levels: {S1: [u7]}, ")),
    ("K109", sub("", "levels: [L1, L2, S1], backup: true, fair_by: uid, message_properties: {uid: required}, exclusive_levels: {S1: [u7], L2: [u8, §u7]}, "), "u7 has S1: a tenant has one exclusive level", sub("", "levels: [L1, L2, S1], backup: true, fair_by: uid, message_properties: {uid: required}, exclusive_levels: {S1: [u7]}, ")),
    ("K109", sub("routes: [{when: \"tenant = 'u1'\", to: §S1}]", "levels: [L1, L2, S1], backup: true, fair_by: uid, message_properties: {uid: required}, exclusive_levels: {S1: [u7, u8]}, "), "S1 admits only u7, u8, who are sent there without a route", sub("", "levels: [L1, L2, S1], backup: true, fair_by: uid, message_properties: {uid: required}, exclusive_levels: {S1: [u7]}, ")),
    ("K109", sub("type: §key_shared", "levels: [L1, L2, S1], backup: true, fair_by: uid, message_properties: {uid: required}, exclusive_levels: {S1: [u7]}, "), "S1: on another level a message would overtake others of its key", sub("", "levels: [L1, L2, S1], backup: true, fair_by: uid, message_properties: {uid: required}, exclusive_levels: {S1: [u7]}, ")),
    ("K204", sub("type: key_shared, §routes: [{when: 'true', to: L1}]"), "would overtake others of its key", sub("routes: [{when: 'true', to: L1}]")),
    # K204
    ("K204", sub("type: failover, backup: {§delays: [1s, 1m]}", "backup: true, "), "backup delay 1m in B1", sub("type: failover, backup: {delays: [1s, 5s]}", "backup: true, ")),
    ("K204", sub("type: exclusive, backup: {§delays: [6s]}", "draining: [B2], "), "backup delay 6s in B2", sub("type: key_shared, backup: {delays: [6s]}", "backup: true, ")),
    ("K204", sub("§on_failure: park"), "on_failure means nothing on a shared subscription", sub("type: key_shared, on_failure: park")),
    # K205
    ("K205", SET + "{§persistence: {ensemble: 2, write_quorum: 3, ack_quorum: 2}}\ntopics: {}", "ack_quorum 2 ≤ write_quorum 3 ≤ ensemble 2 does not hold", SET + "{persistence: {ensemble: 2, write_quorum: 2, ack_quorum: 2}}\ntopics: {}"),
    ("K205", SET + "{§persistence: {ensemble: 2, write_quorum: 3, ack_quorum: 2}}\ntopics: {orders: {}}", "ack_quorum 2 ≤ write_quorum 3 ≤ ensemble 2 does not hold", SET + "{persistence: {ensemble: 2}}\ntopics: {orders: {}}"),
    ("K205", "topics: {orders: {policies: {§persistence: {ensemble: 2, write_quorum: 3, ack_quorum: 2}}}}", "ack_quorum 2 ≤ write_quorum 3 ≤ ensemble 2 does not hold", "topics: {orders: {policies: {persistence: {ensemble: 1, write_quorum: 1, ack_quorum: 1}}}}"),
    ("K205", "§topics: {orders: {}}\nenvironments: {prod: {production: true}}", "nothing gives `persistence`", "topics: {orders: {ignore: [persistence]}}\nenvironments: {prod: {production: true}}"),
    ("K205", "§namespace_policies: {}\ntopics: {orders: {}}\nenvironments: {prod: {production: true}}", "nothing gives `persistence`", SET + "{persistence: {ensemble: 3, write_quorum: 3, ack_quorum: 2}}\ntopics: {orders: {}}\nenvironments: {prod: {production: true}}"),
    ("K205", SET + "{§persistence: {ensemble: 3, write_quorum: 2, ack_quorum: 2}}\ntopics: {orders: {}}\nenvironments: {prod: {production: true}}", "production keeps 3 copies and confirms 2; this is ensemble 3, write 2, ack 2", SET + "{persistence: {ensemble: 5, write_quorum: 3, ack_quorum: 3}}\ntopics: {orders: {}}\nenvironments: {prod: {production: true}}"),
    # K206
    ("K206", "topics: {orders: {policies: {retention: {time: 1d, size: 5GiB}, backlog_quota: {size: §5GiB}}}}", "backlog quota 5GiB is not below retention 5GiB", "topics: {orders: {policies: {retention: {time: 1d, size: 5GiB}, backlog_quota: {size: 4GiB}}}}"),
    ("K206", "topics: {orders: {policies: {retention: {time: 10m, size: unlimited}, backlog_quota: {time: §600s}}}}", "backlog quota 10m is not below retention 10m", "topics: {orders: {policies: {retention: {time: 10m, size: unlimited}, backlog_quota: {time: 599s}}}}"),
    ("K206", SET + "{retention: {time: 1d, size: 1GiB}}\ntopics: {orders: {policies: {backlog_quota: {size: §1GiB}}}}", "backlog quota 1GiB is not below retention 1GiB", SET + "{retention: {time: unlimited, size: unlimited}}\ntopics: {orders: {policies: {backlog_quota: {size: 1GiB}}}}"),
    ("K206", SET + "{backlog_quota: {size: 5GiB}}\ntopics: {orders: {policies: {retention: {time: 1d, size: §1GiB}}}}", "backlog quota 5GiB is not below retention 1GiB", SET + "{backlog_quota: {size: 5GiB}}\ntopics: {orders: {policies: {retention: {time: 0s, size: 0B}}}}"),
    ("K206", SET + "{retention: {time: 1d, size: 1GiB}, §backlog_quota: {size: 2GiB}}\ntopics: {}", "kodo/trade: backlog quota 2GiB is not below retention 1GiB", SET + "{retention: {time: 1d, size: 1GiB}, backlog_quota: {size: unlimited, time: 2d}}\ntopics: {}"),
    # K207
    ("K207", "topics: {orders: {partitions: §1025}}", "1025 partitions: above 1024 clients fail to connect", "topics: {orders: {partitions: 1024}}"),
    ("K207", "defaults: {partitions: §2000}\ntopics: {orders: {}}", "2000 partitions", "defaults: {partitions: 4}\ntopics: {orders: {}}"),
    ("K207", sub(DEAD + "dead_letter: {partitions: §3000}"), "orders-billing-DLQ: 3000 partitions", sub(DEAD + "dead_letter: {partitions: 3}")),
    ("K207", "topics: {orders: {policies: {max_message_size: §63KiB}}}", "max_message_size 63KiB", "topics: {orders: {policies: {max_message_size: 64KiB}}}"),
    # K208
    ("K208", sub("lookahead: {messages: 1000}, " + NO_DLQ, "policies: {max_unacked_per_consumer: §999}, "), "orders: max_unacked_per_consumer 999 is less than the 1000 messages the look-ahead holds", sub("lookahead: {messages: 1000}, " + NO_DLQ, "policies: {max_unacked_per_consumer: 1000}, ")),
    ("K208", sub("lookahead: {messages: 1000}, expected_workers: 3, " + NO_DLQ, "policies: {max_unacked_per_subscription: §2999}, "), "max_unacked_per_subscription 2999 is less than the 3000", sub("lookahead: {messages: 1000}, expected_workers: 3, " + NO_DLQ, "policies: {max_unacked_per_subscription: unlimited}, ")),
    # K214, K215
    ("K214", sub("lookahead: {messages: 2000}, isolate: {min: §501}", "fair_by: key, "), "min 501 is more than 25% of a look-ahead of 2000 messages", sub("lookahead: {messages: 2000}, isolate: {min: 500}", "fair_by: key, ")),
    ("K214", sub("lookahead: {messages: 2000}, isolate: {share: 50%, min: §1001}", "fair_by: key, "), "min of at most 1000", sub("lookahead: {messages: 2000}, isolate: {share: 50%}", "fair_by: key, ")),
    # K219, K220, K222
    ("K219", "defaults: {policies: {max_producers: §1}}\n" + sub(NO_DLQ), "max_producers 1: the workers and one more producer are 2", "defaults: {policies: {max_producers: 2}}\n" + sub(NO_DLQ)),
    ("K219", "topics: {orders: {policies: {max_producers: §3}, subscriptions: {a: {expected_workers: 2}, b: {}}}}\n", "orders: max_producers 3: the workers and one more producer are 4", "topics: {orders: {policies: {max_producers: 4}, subscriptions: {a: {expected_workers: 2}, b: {}}}}\n"),
    ("K219", SET + "{max_consumers: §1}\n" + sub("expected_workers: 2, " + NO_DLQ), "orders: max_consumers 1: the workers of all subscriptions are 2", SET + "{max_consumers: unlimited}\n" + sub("expected_workers: 2, " + NO_DLQ)),
    ("K219", "defaults: {policies: {max_consumers_per_subscription: §1}}\n" + sub("expected_workers: 2, " + NO_DLQ), "the workers of a subscription are 2", "defaults: {policies: {max_consumers_per_subscription: 2}}\n" + sub("expected_workers: 2, " + NO_DLQ)),
    ("K219", "topics: {orders: {policies: {max_subscriptions: §1}, subscriptions: {a: {}, b: {}}}}\n", "the subscriptions of the file are 2", "topics: {orders: {policies: {max_subscriptions: 2}, subscriptions: {a: {}, b: {}}}}\n"),
    ("K220", SET + "{max_topics: §1}\n" + sub("states: [retrying], dead_letter: false"), "kodo/trade: max_topics 1, and the files declare 2, each partition counted", SET + "{max_topics: 2}\n" + sub("states: [retrying], dead_letter: false")),
    ("K220", SET + "{max_topics: §3}\ndefaults: {partitions: 4}\n" + sub(NO_DLQ), "the files declare 4, each partition counted", SET + "{max_topics: 4}\ndefaults: {partitions: 4}\n" + sub(NO_DLQ)),
    ("K222", SET + "{encryption_required: §true}\n" + ORDERS, "they have no keys", SET + "{encryption_required: false}\n" + ORDERS),
    ("K207", "defaults: {policies: {backlog_quota: {size: §1KiB, when_full: fail_producers}}}\n" + sub("states: [retrying], dead_letter: false"), "orders, orders-billing-RETRYING: backlog_quota 1KiB: one message fills it, and whoever publishes stands still, workers that move messages there too; at least 68KiB", "defaults: {policies: {backlog_quota: {size: 68KiB, when_full: fail_producers}}}\n" + sub("states: [retrying], dead_letter: false")),
    ("K221", sub("error_text: §true, " + NO_DLQ), "no states, no backup and no dead letters", sub("error_text: true, " + DEAD + "dead_letter: true")),
    ("K221", sub("error_text: {audit: §true}"), "write `audit: true` beside it", sub("error_text: {audit: true}, audit: true")),
    ("K215", sub("expected_workers: 4, limits: [{kind: concurrency, §limit: 3}]"), "a concurrency of 3 is less than the 4 workers expected", sub("expected_workers: 4, limits: [{kind: concurrency, limit: 4}]")),
    ("K215", sub("expected_workers: 4, limits: [{kind: rate, §limit: 3/s}]"), "a burst of 3 is", sub("expected_workers: 4, limits: [{kind: rate, limit: 3/s, burst: 4}]")),
    ("K215", sub("expected_workers: 4, limits: [{kind: quota, §limit: 9/h, by: key, overrides: {u: 3/h}}]"), "a quota of 3 is", sub("expected_workers: 4, limits: [{kind: quota, limit: 3/h, scope: worker}]")),
    # K306
    ("K306", "payloads: {keep: never, §mask: ['$.a']}\ntopics: {orders: {}}", "with `keep: never` no payload lands", "payloads: {keep: never}\ntopics: {orders: {}}"),
    ("K306", "topics: {orders: {payloads: {keep: never, §mask: ['$.a']}}}", "with `keep: never` no payload lands", "topics: {orders: {payloads: {keep: 7d, mask: ['$.a']}}}"),
    # K209
    ("K209", "topics: {orders: {fair_by: §uid}}", "fair_by goes by 'uid': write `message_properties: {uid: required}`", "topics: {orders: {fair_by: uid, message_properties: {uid: required}}}"),
    ("K209", "topics: {orders: {fair_by: §uid, message_properties: {uid: optional}}}", "fair_by goes by 'uid'", "topics: {orders: {fair_by: key}}"),
    ("K209", sub("limits: [{kind: rate, by: §uid, limit: 1/s}]"), "a limit goes by 'uid'", sub("limits: [{kind: rate, limit: 1/s}]")),
    ("K209", sub("routes: [{when: {property: §size, exists: true}, to: L1}]"), "name it in `message_properties` (size: optional)", sub("routes: [{when: {property: size, exists: true}, to: L1}]", "message_properties: {size: optional}, ")),
    # K212: 12 × …, 60 × 1 m and 24 × 1 h are 26 h; the default of seven days is enough
    ("K212", sub("audit: {retention: {time: §2d}}"), "orders-billing-AUDIT: retention 2d: a message's longest life and a day more are 50h", sub("audit: {retention: {time: 51h}}")),
    ("K212", "topics: {orders: {subscriptions: {§billing: {audit: true, blocking: {delays: [2d]}}}}}", "retention 7d: a message's longest life and a day more are 1178h", sub("audit: {retention: {time: 50d}}, blocking: {delays: [2d]}")),
    # K213
    ("K213", sub(DEAD + "dead_letter: {max_message_size: §1MiB}", "policies: {max_message_size: 1MiB}, "), "orders-billing-DLQ: max_message_size 1MiB is less than the ready topic's 1MiB + 4KiB", sub(DEAD + "dead_letter: {max_message_size: 1028KiB}", "policies: {max_message_size: 1MiB}, ")),
    ("K213", sub(DEAD + "dead_letter: {max_message_size: §1MiB}"), "less than what the broker's own limit lets in", sub(DEAD + "dead_letter: {max_message_size: inherit}")),
    # K216
    ("K216", "§topics: {orders: {ignore: [persistence]}}\nenvironments: {prod: {production: true}}", "kodo/trade: production, and no file turns automatic topic creation off: a misspelt name is a new topic that nobody reads; write `namespace_policies: {auto_topic_creation: false}`", "topics: {orders: {ignore: [persistence]}}\nenvironments: {test: {production: false}}"),
    ("K216", "namespace_policies: {§auto_topic_creation: true}\n" + KEPT, "kodo/trade: production", "namespace_policies: {auto_topic_creation: false}\n" + KEPT),
    ("K216", "§namespace_policies: {retention: {time: 3d, size: 10GiB}}\n" + KEPT, "kodo/trade: production", "namespace_policies: {retention: {time: 3d, size: 10GiB}}\n" + KEPT.replace("true", "true, namespace_policies: {auto_topic_creation: false}")),
    ("K216", "namespace_policies: {§auto_topic_creation: {type: partitioned, partitions: 4}}\n" + KEPT, "kodo/trade: production", "namespace_policies: {auto_topic_creation: {type: partitioned, partitions: 4}}\n" + KEPT.replace("true", "true, namespace_policies: {auto_topic_creation: false}")),
    # K301
    ("K301", "topics:\n  a: {subscriptions: {s: {§produces: [b]}}}\n  b: {subscriptions: {s: {produces: [a]}}}\n", "a → b → a: message flow is a tree, never a ring", "topics:\n  a: {subscriptions: {s: {produces: [b]}}}\n  b: {subscriptions: {s: {produces: [c]}}}\n  c: {}\n"),
    ("K301", "topics: {a: {subscriptions: {s: {§produces: [a]}}}}\n", "a → a", "topics: {a: {subscriptions: {s: {}}}}"),
    ("K301", "topics: {a: {levels: double, subscriptions: {s: {§produces: [a-L2]}}}}\n", "a → a", "topics: {a: {levels: double, subscriptions: {s: {produces: [b]}}}, b: {}}"),
    # K305
    ("K305", flow("a.s>b,c", "b.s>d", "c.s>§d"), "what a message of a leads to can arrive in d twice: a (s) → b (s) → d and a (s) → c (s) → d; send it by one of them", flow("a.s>b,c", "b.s>d", "c.s>e")),
    ("K305", flow("a.s>b,d", "b.s>§d"), "a message of a leads to can arrive in d twice: a (s) → d and a (s) → b (s) → d", flow("a.s>b", "b.s>d")),
    ("K305", flow("a.s>d", "a.t>§d"), "twice: a (s) → d and a (t) → d", flow("a.s>d,d-L2", "b.t>d")),
    ("K305", flow("z.s>a", "a.s>b,c", "b.s>d", "c.s>§d", "d.s>e"), "twice: a (s) → b (s) → d and a (s) → c (s) → d", flow("z.s>a", "a.s>b", "b.s>c", "c.s>d", "x.s>d")),
    # K302
    ("K302", sub("produces: [§shipmnts]"), "'shipmnts' is no ground topic of these files", sub("produces: [shipments]")[:-3] + ", shipments: {}}"),
    ("K302", sub("produces: [§orders-billing-DLQ]"), "is no ground topic", sub("produces: [kodo/trade/other]")[:-3] + ", other: {}}"),
    ("K302", sub("produces: [§a/b/c]"), "is no ground topic", ORDERS),
    ("K302", sub("produces: [§a/b]"), "is no ground topic", ORDERS),
    # K110
    ("K110", source("public.orders: {topic: §order}"), "'order' is no topic of this file; did you mean 'orders'?", source("public.orders: {topic: orders}")),
    ("K110", source("public.orders: {topic: §x}"), "'x' is no topic of this file; topics here: orders", source("public.orders: {topic: orders}")),
    ("K110", source("§public.orders: {}"), "public.orders goes nowhere: name its `topic`", source("public.orders: {outbox: {topic: t, payload: p}}")),
    ("K110", source("§orders: {topic: orders}"), "table 'orders': write SCHEMA.TABLE", source("public.orders: {topic: orders}")),
    ("K110", source("§a.b.c: {topic: orders}"), "table 'a.b.c': write SCHEMA.TABLE", source("b.c: {topic: orders}")),
    ("K110", source("public.o: {topic: orders, payload: {column: a}, §columns: [b]}"), "the payload is one column, so `columns` chooses nothing", source("public.o: {topic: orders, columns: [b]}")),
    ("K110", source("public.o: {outbox: {topic: t, payload: p}, §payload: row}"), "public.o is an outbox, whose rows have their own: take out `payload`", source("public.o: {outbox: {topic: t, payload: p}}")),
    ("K110", source("public.o: {topic: orders}", "policies: {deduplication: §false}"), "orders: source 'db' sends here, and sends again after a failure", source("public.o: {topic: orders}", "policies: {deduplication: true}")),
    ("K110", source("public.o: {topic: orders}", "ignore: [deduplication]").replace("orders:", "§orders:", 1), "leave `deduplication` out of `ignore`", source("public.o: {topic: orders}", "ignore: [ttl]")),
    ("K110", source("public.o: {topic: orders}", "policies: {deduplication: §inherit}"), "leave `deduplication` out", source("public.o: {topic: orders}")),
    ("K110", source("public.o: {topic: orders}", name="§a/b"), "source 'a/b': it holds '/'", source("public.o: {topic: orders}", name="a.b")),
    ("K110", source("public.o: {topic: orders}", name="§" + "x" * 53), "64 characters: PostgreSQL takes 63", source("public.o: {topic: orders}", name="x" * 52)),
    ("K110", source("public.o: {topic: orders}", name="a-b: {database: X, tables: {s.t: {topic: orders}}}, §a.b"), "its slot would be kodo_trade_a_b, as that of the source at topologies/trade.yaml:6:11: rename one", source("public.o: {topic: orders}", name="a-b: {database: X, tables: {s.t: {topic: orders}}}, a.c")),
    # K112
    ("K112", function("inputs: [orders]", name="§a b"), "function 'a b': it holds ' '", function("inputs: [orders]", name="a.b")),
    ("K112", function("inputs: [§order]"), "'order' is no topic of this file; did you mean 'orders'?", function("inputs: [orders]")),
    ("K112", function("inputs: [orders], output: §x"), "'x' is no topic of this file; write TENANT/NAMESPACE/TOPIC", function("inputs: [orders], output: shipments")),
    ("K112", function("inputs: [§a/b]"), "'a/b' is no topic: write TENANT/NAMESPACE/TOPIC", function("inputs: [a/b/c]")),
    ("K112", function("inputs: [kodo/trade/orders], output: §orders"), "it would read what it writes, which Pulsar refuses: persistent://kodo/trade/orders", function("inputs: [orders], output: kodo/trade/x")),
    ("K112", function("inputs: [orders], subscription: §billing"), "workers read orders by 'billing'", function("inputs: [orders], subscription: enrich")),
    ("K112", function("inputs: [kodo/trade/orders], package: 'file:///x.jar'", name="§enrich"), "function 'enrich' needs its `class`", function("inputs: [orders], package: 'file:///x.jar', class: a.B")),
    ("K112", function("inputs: [orders], runtime: python, class: a.B, package: 'file:///x', guarantees: §effectively_once"), "python functions have no effectively_once", function("inputs: [orders], package: 'file:///x', class: a.B, guarantees: effectively_once")),
    ("K112", function("inputs: [orders], runtime: go, package: §builtin://x"), "a builtin function is Java, this one is go", function("inputs: [orders], runtime: go, package: 'file:///x'")),
    ("K112", function("inputs: [kodo/trade/orders], subscription: §billing"), "workers read kodo/trade/orders by 'billing'", function("inputs: [kodo/trade/orders], subscription: enrich")),
    ("K112", f"{function('inputs: [orders], subscription: e')}  other: {{package: 'builtin://x', inputs: [kodo/trade/orders], subscription: §e}}\n", "function.kodo/trade/enrich reads persistent://kodo/trade/orders by 'e', too", f"{function('inputs: [orders], subscription: e')}  other: {{package: 'builtin://x', inputs: [orders], subscription: f}}\n"),
    # K114
    ("K114", "topics: {}\nplatform: {tenants: {§a b: {clusters: [s]}}}\n", "'a b': it holds ' '", "topics: {}\nplatform: {tenants: {a.b: {clusters: [s]}}}\n"),
    ("K114", "create_tenant: {clusters: [t]}\ntopics: {}\nplatform: {tenants: {§kodo: {clusters: [s]}}}\n", "`create_tenant` declares 'kodo' with other values", "create_tenant: {clusters: [s]}\ntopics: {}\nplatform: {tenants: {kodo: {clusters: [s]}}}\n"),
    ("K114", "topics: {}\nplatform: {failure_domains: {a: {brokers: ['b:1']}, c: {brokers: ['d:1', §'b:1']}}}\n", "b:1 is in the failure domain 'a' already", "topics: {}\nplatform: {failure_domains: {a: {brokers: ['b:1']}, c: {brokers: ['d:1']}}}\n"),
    # K004: values of the objects of the whole cluster
    ("K004", "topics: {}\nplatform: {isolation_policies: {a: {namespaces: [a], primary: [§'(']}}}\n", "'(' is no regular expression", "topics: {}\nplatform: {isolation_policies: {a: {namespaces: [a], primary: ['()']}}}\n"),
    ("K004", "topics: {}\nplatform: {isolation_policies: {a: {namespaces: [§'a{99999999999}'], primary: [a]}}}\n", "is no regular expression: the repetition number is too large", "topics: {}\nplatform: {isolation_policies: {a: {namespaces: ['[[a]&&b]'], primary: [a]}}}\n"),
    ("K004", "topics: {}\nplatform: {clusters: {a: {service_url: §'http://user:pw@a', broker_service_url: 'pulsar://a'}}}\n", "should be http://HOST:PORT", "topics: {}\nplatform: {clusters: {a: {service_url: 'http://a', broker_service_url: 'pulsar://a'}}}\n"),
    ("K004", "topics: {}\nplatform: {clusters: {a: {service_url: §'http://a b', broker_service_url: 'pulsar://a'}}}\n", "should be http://HOST:PORT", "topics: {}\nplatform: {clusters: {a: {service_url: 'http://a,b', broker_service_url: 'pulsar://a'}}}\n"),
    ("K004", "topics: {}\nplatform: {clusters: {a: {service_url: 'http://a', broker_service_url: §\"pulsar://a\\n\"}}}\n", "should be pulsar://HOST:PORT", "topics: {}\nplatform: {clusters: {a: {service_url: 'http://a', broker_service_url: 'pulsar://a,b'}}}\n"),
    ("K004", "topics: {}\nplatform: {clusters: {a: {service_url: 'http://a', broker_service_url: §'http://a'}}}\n", "should be pulsar://HOST:PORT", "topics: {}\nplatform: {clusters: {a: {service_url: 'http://a', broker_service_url: 'pulsar+ssl://a'}}}\n"),
    ("K004", "topics: {}\nplatform: {clusters: {a: §{service_url: 'http://a'}}}\n", "needs a `service_url` and a `broker_service_url`", "topics: {}\nplatform: {clusters: {a: {service_url_tls: 'https://a', broker_service_url_tls: 'pulsar+ssl://a'}}}\n"),
    ("K112", function("output: shipments", name="§enrich"), "function 'enrich' reads nothing", function("inputs_pattern: 'persistent://a/b/c.*'")),
    ("K112", function("inputs: [orders], §settings: {retainOrdering: true, retainKeyOrdering: true}"), "exclude each other", function("inputs: [orders], settings: {retainOrdering: true}")),
    ("K112", function("inputs: [orders], guarantees: effectively_once, settings: {retainKeyOrdering: §true}"), "keeps no order of keys", function("inputs: [orders], settings: {retainKeyOrdering: true}")),
    ("K112", function("inputs: [orders], guarantees: effectively_once, settings: {maxMessageRetries: §1}"), "gives no message up", function("inputs: [orders], settings: {maxMessageRetries: 1}")),
    ("K112", function("inputs: [orders], settings: {deadLetterTopic: §x}"), "never gives up without maxMessageRetries", function("inputs: [orders], settings: {deadLetterTopic: x, maxMessageRetries: 1}")),
    ("K112", "topics: {}\npackages: {§'function://kodo/trade/x': {file: x.jar}}\n", "is no package: write function://kodo/trade/NAME@VERSION", "topics: {}\n"),
    ("K112", "topics: {}\npackages: {§'function://kodo/other/x@1': {file: x.jar}}\n", "is in another namespace: declare it in a file of kodo/other", "topics: {}\n"),
    ("K112", "topics: {}\npackages: {'function://kodo/trade/x@1': {file: §nowhere.jar}}\n", "nowhere.jar of function://kodo/trade/x@1: No such file", "topics: {}\n"),
    # K113
    ("K112", connector("inputs: [§order]"), "'order' is no topic of this file; did you mean 'orders'?", connector("inputs: [orders]")),
    ("K112", connector("inputs: [orders], subscription: §billing"), "workers read orders by 'billing', and the sink would take", connector("inputs: [orders], subscription: keep")),
    ("K112", connector("inputs: [orders], retries: 1, dead_letter_topic: §x"), "'x' is no topic of this file", connector("inputs: [orders], retries: 1, dead_letter_topic: shipments")),
    ("K112", connector("inputs: [orders], retries: 1, dead_letter_topic: §orders"), "it would read what it writes: persistent://kodo/trade/orders", connector("inputs: [orders], retries: 1, dead_letter_topic: kodo/trade/x")),
    ("K112", connector("inputs: [orders], dead_letter_topic: §shipments"), "sink 'keep' never gives up without `retries`", connector("inputs: [orders], retries: 2, dead_letter_topic: shipments")),
    ("K112", connector("inputs: [orders], guarantees: effectively_once, retries: §2"), "a failed message stops the instance", connector("inputs: [orders], guarantees: effectively_once")),
    ("K112", connector("output: §x", "io_sources"), "'x' is no topic of this file", connector("output: orders", "io_sources")),
    ("K112", connector("inputs: [orders]", more="io_sources: {§keep: {package: 'builtin://x', output: orders}}\n"), "sink.kodo/trade/keep has its name", connector("inputs: [orders]", more="io_sources: {tick: {package: 'builtin://x', output: orders}}\n")),
    ("K113", connector("inputs: [orders], config: {§password: x}"), "password of sink 'keep' stands in the file, and Pulsar shows it: name it in `secrets`", connector("inputs: [orders], secrets: {password: {path: a, key: b}}")),
    ("K113", connector("inputs: [orders], settings: {transformFunctionConfig: {§token: x}}"), "transformFunctionConfig.token of sink 'keep' stands in the file, and Pulsar shows it", connector("inputs: [orders], settings: {transformFunctionConfig: {a: x}}")),
    ("K113", function("inputs: [orders], config: {dbs: [{§token: x}]}"), "dbs.0.token of function 'enrich'", function("inputs: [orders], config: {dbs: [{user: x}]}")),
    ("K113", function("inputs: [orders], config: {db: {§password: x}, rate: 1}"), "db.password of function 'enrich' stands in the file", function("inputs: [orders], config: {db: {user: x}}")),
    # K111
    ("K111", source("§public.o: {topic: orders}", "message_properties: {uid: required}"), "no column gives 'uid', and orders requires it: write `properties: {uid: COLUMN}`", source("public.o: {topic: orders, properties: {uid: u}}", "message_properties: {uid: required}")),
    ("K111", source("public.o: {topic: orders, §properties: {a: a}}", "fair_by: uid, message_properties: {a: optional}"), "no column gives 'uid', and orders is fair by it", source("public.o: {topic: orders}", "fair_by: key")),
    ("K111", source("public.o: {topic: orders, properties: {§bukcet: a}}", "message_properties: {bucket: optional}"), "did you mean 'bucket'?", source("public.o: {topic: orders, properties: {other: a}}", "message_properties: {bucket: optional}")),
    ("K111", source("public.o: {topic: orders, properties: {§kodo-x: a}}"), "properties that begin so are kodoctl's", source("public.o: {topic: orders, properties: {x: a}}")),
    ("K111", source("public.o: {§outbox: {topic: t, payload: p}}", "message_properties: {uid: required}"), "rows for orders would lack what the topic requires", source("public.o: {outbox: {topic: t, payload: p, properties: q}}", "message_properties: {uid: required}")),
    # K303
    ("K303", sub("type: failover, expected_workers: §5", "partitions: 4, "), "5 workers expected, at most 4 can have work on a failover subscription", sub("type: failover, expected_workers: 4", "partitions: 4, ")),
    ("K303", sub("type: exclusive, expected_workers: §2", "partitions: 4, "), "at most 1", sub("type: key_shared, expected_workers: 20", "partitions: 4, ")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "wrong", "says", "right"),
    CASES,
    ids=lambda value: value if isinstance(value, str) and len(value) == 4 else "",
)
def test_a_mistake_is_found_where_it_is_and_only_there(code: str, wrong: str, says: str, right: str) -> None:
    text, place = marked(wrong)
    found = [finding for finding in found_in(text) if finding.code == code]
    assert [(finding.where.line, finding.where.column) for finding in found if finding.where] == [place]
    assert says in found[0].detail
    assert code not in codes_in(right)


def test_every_rule_has_a_failing_and_a_passing_example_here() -> None:
    elsewhere = {"K304"}  # needs files: below
    assert {rule.code for rule in RULES} - {code for code, *_ in CASES} == elsewhere


def test_a_backup_alone_has_nothing_above_it() -> None:
    assert [finding.detail for finding in found_in("topics: {orders: {levels: [B1]}}")] == [
        "B1 is a backup with no level above it",
        "L1 is missing: it is the ground topic itself, and always part of the list",
    ]


def test_topics_that_share_a_wrong_value_are_named_together() -> None:
    body = "defaults: {policies: {ttl: 1m}}\ntopics:\n" + "".join(
        f"  t{n}: {{subscriptions: {{s: {{}}}}}}\n" for n in range(2000)
    )
    (finding,) = found_in(body)
    assert finding.detail.startswith("t0-s-RETRYING, t0-s-PENDING, t0-s-BLOCKING and 5,997 more: ttl 1m:")


def test_an_ignored_policy_is_not_judged() -> None:
    bad = "topics: {orders: {ignore: [ttl], policies: {ttl: 1s}, subscriptions: {s: {}}}}"
    assert not codes_in(bad)


# --- across files

SECOND = "version: 1\nname: other\ntenant: kodo\nnamespace: trade\n"


@pytest.mark.parametrize(
    ("first", "second", "place", "says"),
    [
        ("topics: {orders: {}}", SECOND + "topics: {orders: {}}", (5, 10), "topic.persistent://kodo/trade/orders is declared at topologies/trade.yaml:5:10 already"),
        ("topics: {a: {levels: double}}", SECOND + "topics: {a-L2: {}}", (5, 10), "topic.persistent://kodo/trade/a-L2 is declared at"),
        (SET + "{}\ntopics: {}", SECOND + SET + "{}\ntopics: {}", (5, 1), "one file of a namespace has `namespace_policies`"),
        ("topics: {}", "version: 1\nname: trade\ntenant: kodo\nnamespace: n\ntopics: {}", (2, 7), "name 'trade' is topologies/trade.yaml:2:7's already"),
        ("create_tenant: {clusters: [a]}\ntopics: {}", SECOND + "create_tenant: {clusters: [b]}\ntopics: {}", (5, 1), "tenant.kodo is declared at"),
    ],
)  # fmt: skip
def test_two_files_cannot_declare_the_same_object(first: str, second: str, place: tuple[int, int], says: str) -> None:
    found = [finding for finding in found_in(first, second) if finding.code == "K102"]
    assert [(f.where.file, f.where.line, f.where.column) for f in found if f.where] == [
        ("topologies/other1.yaml", *place)
    ]
    assert says in found[0].detail


def test_a_topology_that_is_given_twice_is_one_finding() -> None:
    text = "topics: {orders: {levels: double, subscriptions: {billing: {}, mailing: {}}}}"
    again = "version: 1\nname: trade\ntenant: kodo\nnamespace: trade\n" + text
    [found] = [finding for finding in found_in(text, again) if finding.code == "K102"]
    assert re.search(r"already, and both declare \d\d objects: is the topology given twice\?", found.detail)
    copy = [finding for finding in found_in(text, SECOND + text) if finding.code == "K102"]
    assert len(copy) == 3, "the ground topic and its two subscriptions"
    assert re.search(
        r"topic.persistent://kodo/trade/orders is declared at .*:5:10 already, with 1 other", copy[0].detail
    )


def test_slots_of_two_topologies_have_different_names() -> None:
    other = "version: 1\nname: trade-a\ntenant: kodo\nnamespace: other\n" + source("s.t: {topic: orders}", name="b")
    (found,) = found_in(source("s.t: {topic: orders}", name="a-b"), other)
    assert (found.code, found.where and found.where.file) == ("K110", "topologies/other1.yaml")
    twice = found_in(source("s.t: {topic: orders}"), source("s.t: {topic: orders}"))
    assert {finding.code for finding in twice} == {"K102"}, "the name of the topology is the mistake"


def test_a_source_of_an_unknown_topic_is_not_judged_by_its_properties() -> None:
    assert codes_in(source("public.o: {topic: other, properties: {a: a}}", "fair_by: key")) == ["K110"]


def test_two_files_cannot_declare_the_same_function() -> None:
    (finding,) = found_in(
        function("inputs: [orders]"),
        f"{SECOND}topics: {{}}\nfunctions: {{enrich: {{package: 'builtin://x', inputs: [a/b/c]}}}}\n",
    )
    assert (finding.code, finding.where and finding.where.file) == ("K112", "topologies/other1.yaml")
    assert "trade declares function.kodo/trade/enrich too" in finding.detail


def test_two_files_cannot_declare_the_same_package() -> None:
    packages = "topics: {}\npackages: {'sink://kodo/trade/x@1': {file: x.jar}}\n"
    assert "trade declares sink://kodo/trade/x@1 too" in "".join(
        one.detail for one in found_in(packages, SECOND + packages)
    )


def test_two_files_may_share_a_namespace_and_say_the_same_of_a_tenant() -> None:
    tenant = "create_tenant: {clusters: [a]}\n"
    assert not codes_in(tenant + SET + "{}\ntopics: {orders: {}}", SECOND + tenant + "topics: {shipments: {}}")


def test_one_file_owns_a_tenant_and_others_may_create_it() -> None:
    owned = "platform: {tenants: {kodo: {clusters: [a]}}}\n"
    created = "create_tenant: {clusters: [a]}\n"
    assert not codes_in(f"{owned}topics: {{}}", f"{SECOND}{created}topics: {{}}")
    assert codes_in(f"{owned}topics: {{}}", f"{SECOND}{owned}topics: {{}}") == ["K102"]


def test_flows_and_effective_policies_cross_files() -> None:
    owner = "version: 1\nname: owner\ntenant: kodo\nnamespace: trade\nnamespace_policies: {ttl: 1m}\ntopics: {b: {subscriptions: {s: {states: [], dead_letter: false, produces: [a]}}}}\n"
    user = "topics: {a: {subscriptions: {s: {states: [retrying], dead_letter: false, produces: [kodo/trade/b]}}}}\n"
    found = {finding.code: finding for finding in found_in(user, owner)}
    assert found.keys() == {"K202", "K301"}
    assert str(found["K202"].where) == "topologies/other1.yaml:5:27", "the namespace's value is what is wrong"
    assert found["K301"].detail.startswith("a → b → a")


def test_two_ways_are_found_where_they_meet_and_not_again_below_and_not_beside_a_ring() -> None:
    diamond = ("a.s>b,c", "b.s>d", "c.s>d")
    assert codes_in(flow(*diamond, "d.s>e", "d.t>f", "x.s>f")) == ["K305"]
    assert codes_in(flow(*diamond, "d.s>a")) == ["K301"]
    assert not codes_in(flow(*(f"t{n}.s>u{n},log" for n in range(1000)), *(f"u{n}.s>v" for n in range(0, 1000, 2)))), (
        "many that send to one topic are no two ways of one message"
    )


def test_automatic_topic_creation_is_told_once_for_a_namespace_and_may_be_allowed() -> None:
    owner = f"{SECOND}{SET}{{auto_topic_creation: false}}\ntopics: {{}}\nenvironments: {{prod: {{production: true}}}}\n"
    assert codes_in(KEPT, owner.replace("false", "true")) == ["K216"]
    assert not codes_in(KEPT, owner)
    assert codes_in(KEPT, SECOND + KEPT.replace("orders", "shipments")) == ["K216"]
    assert not codes_in(KEPT.replace("}}\nenv", "}} # kodoctl: allow K216 because the brokers forbid it\nenv"))


@pytest.mark.parametrize(
    "text",
    [
        "{orders: {fair_by: custmer, message_properties: {customer: required}}}",
        "{orders: {message_properties: {customer: required}, subscriptions: {s: {limits: [{kind: rate, by: custmer, limit: 1/s}]}}}}",
        "{orders: {message_properties: {customer: optional}, subscriptions: {s: {routes: [{when: {property: custmer, exists: true}, to: L1}]}}}}",
    ],
)
def test_a_property_that_is_almost_a_declared_one_is_an_error_that_names_it(text: str) -> None:
    found = [one for one in found_in(f"topics: {text}\n") if one.code == "K209"]
    assert [(one.severity, one.detail) for one in found] == [
        (Severity.ERROR, "'custmer' is not a declared message property; did you mean 'customer'?")
    ]
