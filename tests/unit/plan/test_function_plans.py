"""Functions in a plan: compared, owned by marker and ledger, ordered by their topics, unknown where nobody could look."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from kodoctl.errors import Severity
from kodoctl.plan import serialization
from kodoctl.plan.approval import unapproved_changes
from kodoctl.plan.changes import Adopt, Change, Create, Delete, FieldName, Forget, Origin, Update
from kodoctl.plan.diff import Allowances, diff, with_namespaces
from kodoctl.plan.forget import forget_plan
from kodoctl.plan.git_baseline import Baseline
from kodoctl.plan.history import Applied
from kodoctl.plan.importing.import_planner import import_namespace
from kodoctl.plan.inventory import Desired
from kodoctl.plan.plan import make_plan
from kodoctl.plan.plan_file import to_json
from kodoctl.plan.schedule import schedule
from kodoctl.plan.staleness import of_others, staleness, unknown_objects
from kodoctl.plan.undo import backwards
from kodoctl.pulsar.values.ledger import OwnershipKind
from kodoctl.pulsar.values.live_objects import FunctionFacts, Live, LiveObject
from kodoctl.render.plan_markdown import plan_markdown
from kodoctl.render.plan_text import plan_lines
from kodoctl.render.plan_words import field_text, rollout_notes
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import FunctionResource, NamespaceResource, SubscriptionResource, TopicResource
from tests.samples.inventories import (
    HERE,
    NOW,
    applied,
    changed,
    difference,
    empty,
    live,
    planned,
    planned_part,
    said,
    topology,
    wanted,
    with_ledger,
)

TOPICS = "{orders: {}, shipments: {}}"
PLAIN = topology(TOPICS)
RUNNING = FunctionFacts(1, 1)
ENRICH = FunctionResource(
    HERE,
    "enrich",
    "builtin://enrich",
    "java",
    frozenset({"persistent://acme/ns/orders"}),
    "acme/ns/enrich",
    output="persistent://acme/ns/shipments",
)
FUNCTION = "package: 'builtin://enrich', inputs: [orders], output: shipments"


def declared(more: str = "", function: str = FUNCTION, topics: str = TOPICS) -> Desired:
    """A file with the function `enrich`; `more`: keys of it, after a comma."""
    return wanted(topology(topics, f"functions: {{enrich: {{{function}{more}}}}}\n"))


def there(side: Desired, **values: Any) -> Live:
    """The live side after an apply, with what the worker fills in; `values`: other values of the function."""
    found = {"class_name": "a.Enrich", "cpu": 1.0, "memory": 1 << 30, "disk": 10 << 30, **values}
    return changed(applied(side), LiveObject(replace(ENRICH, **found), "trade", RUNNING))


def of_function(changes: tuple[Change, ...]) -> list[Change]:
    return [change for change in changes if change.address == ENRICH.address]


def held(side: Live, how: OwnershipKind) -> Live:
    """The live side in which the entry of `trade` lists the function as `how`."""
    entry = side.ledgers[HERE]["trade"]
    return with_ledger(side, HERE, replace(entry, owned={**entry.owned, ENRICH.address: how}))


def test_what_the_worker_fills_in_is_no_change() -> None:
    assert planned(declared(), empty()).changes
    assert planned(declared(), there(declared())).empty


def test_changed_fields_are_an_update() -> None:
    file = declared(
        ", class: b.C, parallelism: 3, config: {a: 1, b: [{c: [2]}]}, resources: {cpu: 2, memory: 1MiB, disk: 1MiB}"
    )
    (change,) = planned(file, there(declared())).changes
    assert isinstance(change, Update)
    assert serialization.change_from_json(dict(serialization.change_to_json(change))) == change
    fields = {one.name: (one.before, one.after) for one in change.fields}
    assert fields.keys() == {"class", "parallelism", "config", "cpu", "memory", "disk"}
    assert fields["config"] == ({}, {"a": 1, "b": [{"c": [2]}]})


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"runtime": "go"}, "`runtime` go, the file says java"),
        ({"inputs": frozenset({"persistent://acme/ns/x"})}, "`inputs` persistent://acme/ns/x, the file says"),
        ({"subscription": "s"}, "`subscription` s"),
        ({"guarantees": "manual"}, "`guarantees` manual"),
        ({"package": "file:///x.jar"}, "`package` file:///x.jar"),
    ],
)
def test_fields_that_no_update_changes_are_refused(values: dict[str, Any], says: str) -> None:
    plan = planned(declared(), there(declared(), **values))
    (finding,) = plan.findings
    assert (finding.code, finding.severity) == ("K450", Severity.ERROR)
    assert says in finding.detail
    assert not of_function(plan.changes)


def test_an_output_cannot_go_and_text_options_leave_no_room_for_a_marker() -> None:
    without = declared(function="package: 'builtin://enrich', inputs: [orders]")
    (finding,) = planned(without, there(declared())).findings
    assert "`output` persistent://acme/ns/shipments, the file says none" in finding.detail
    text = LiveObject(ENRICH, None, replace(RUNNING, has_foreign_options=True))
    (finding,) = planned(declared(), changed(there(declared()), text)).findings
    assert "customRuntimeOptions" in finding.detail


def test_a_function_without_our_marker_is_ours_only_if_it_was_adopted() -> None:
    bare = changed(there(declared()), LiveObject(ENRICH, None, RUNNING))
    (adopt,) = planned(declared(), bare).changes
    assert isinstance(adopt, Adopt)
    (lost,) = planned(wanted(PLAIN), bare).changes
    assert isinstance(lost, Forget)
    assert lost.about.reason == "was made anew by somebody else"
    adopted = held(bare, OwnershipKind.ADOPTED)
    assert planned(declared(), adopted).empty
    (stays,) = planned(wanted(PLAIN), adopted).changes
    assert isinstance(stays, Forget)
    assert stays.before is not None


def test_an_intent_is_ours_with_the_marker_only() -> None:
    started = held(there(declared()), OwnershipKind.INTENT)
    (adopt,) = planned(declared(), started).changes
    assert isinstance(adopt, Adopt)
    assert planned(wanted(PLAIN), changed(started, LiveObject(ENRICH, None, RUNNING))).empty


def test_an_adoption_that_would_replace_unknown_code_needs_its_address() -> None:
    side = changed(applied(wanted(PLAIN)), LiveObject(replace(ENRICH, package=""), None, RUNNING))
    plan = planned(declared(), side)
    assert [one.code for one in plan.findings] == ["K417"]
    allowed = planned(declared(), side, adopt=[ENRICH.address])
    assert said(allowed.changes) == {("adopt", ENRICH.address), ("update", ENRICH.address)}
    levels = [[type(step.change) for step in level] for level in schedule(allowed.changes).building]
    assert levels == [[Adopt], [Update]]


def test_functions_of_others_are_listed_and_their_subscriptions_are_not() -> None:
    orders = TopicName(HERE, "orders")
    side = changed(
        applied(wanted(PLAIN)),
        LiveObject(ENRICH, None, RUNNING),
        LiveObject(SubscriptionResource(orders, ENRICH.subscription)),
        LiveObject(SubscriptionResource(orders, "theirs")),
    )
    found = difference(wanted(PLAIN), side).unmanaged
    assert found == (ENRICH.address, "subscription.persistent://acme/ns/orders/theirs")


def test_it_is_made_after_its_topics_and_deleted_before_them() -> None:
    building = schedule(planned(declared(), empty()).changes).building
    place = {step.change.address: number for number, level in enumerate(building) for step in level}
    topics = [f"topic.persistent://acme/ns/{name}" for name in ("orders", "shipments")]
    assert place[ENRICH.address] > max(place[topic] for topic in topics)
    gone = planned(wanted(topology("{shipments: {}}")), there(declared())).changes
    deleting = [[step.change.address for step in level] for level in schedule(gone).deleting]
    assert deleting == [[ENRICH.address], [topics[0]]]


@pytest.mark.parametrize("address", [ENRICH.address, "sink.acme/ns/keep", "io_source.acme/ns/tick"])
def test_a_plan_says_that_instances_restart(address: str) -> None:
    keys = "sinks: {keep: {package: 'builtin://keep', inputs: [orders]%s}}\nio_sources: {tick: {package: 'builtin://tick', output: orders%s}}\nfunctions: {enrich: {%s%s}}\n"
    side = applied(wanted(topology(TOPICS, keys % ("", "", FUNCTION, ""))))
    more = [", parallelism: 2" if address.startswith(kind) else "" for kind in ("sink", "io_source", "function")]
    plan = planned(wanted(topology(TOPICS, keys % (*more[:2], FUNCTION, more[2]))), side)
    assert [change.address for change in plan.changes] == [address]
    assert [note for note in rollout_notes(to_json(plan)) if "restart" in note]


def test_a_part_of_a_plan_takes_its_topics_along() -> None:
    plan = planned_part(declared(), empty(), ENRICH.address)
    assert {("create", "topic.orders"), ("create", "topic.shipments"), ("create", ENRICH.address)} <= said(plan.changes)


def test_a_part_that_deletes_a_topic_deletes_its_function_first() -> None:
    side = there(declared())
    only = wanted(topology("{shipments: {}}"))
    plan = planned_part(only, side, "topic.persistent://acme/ns/orders")
    assert said(plan.changes) == {("delete", "topic.orders"), ("delete", ENRICH.address)}


@pytest.mark.parametrize(
    ("topics", "more", "reader"),
    [
        ("{orders: {subscriptions: {s: {states: [], dead_letter: false}}}, shipments: {}}", "", "workers"),
        (TOPICS, "sinks: {other: {package: 'builtin://x', inputs: [orders], subscription: s}}\n", "sink.acme/ns/other"),
        (TOPICS, "sinks: {other: {package: 'builtin://x', inputs: [orders], subscription: t}}\n", None),
    ],
)
def test_a_subscription_that_others_get_is_not_deleted_with_its_function(
    topics: str, more: str, reader: str | None
) -> None:
    side = there(declared(", subscription: s"), subscription="s")
    findings = [one for one in planned(wanted(topology(topics, more)), side).findings if one.code == "K450"]
    assert [f"declare for {reader}:" in one.detail for one in findings] == ([True] if reader else [])
    kept = changed(side, LiveObject(replace(ENRICH, subscription="s"), "trade", replace(RUNNING, cleans_up=False)))
    assert not [one for one in planned(wanted(topology(topics, more)), kept).findings if one.code == "K450"]


def test_a_subscription_of_workers_is_not_deleted_under_a_function_that_reads_by_it() -> None:
    workers = wanted(topology("{orders: {subscriptions: {s: {states: [], dead_letter: false}}}, shipments: {}}"))
    plan = planned(declared(", subscription: s"), applied(workers))
    (finding,) = plan.findings
    subscription = "subscription.persistent://acme/ns/orders/s"
    assert (finding.code, finding.severity) == ("K450", Severity.ERROR)
    assert f"{ENRICH.address} reads by it" in finding.detail
    assert f"`kodoctl forget {subscription}`" in finding.detail
    given_up = changed(applied(wanted(PLAIN)), LiveObject(SubscriptionResource(TopicName(HERE, "orders"), "s")))
    plan = planned(declared(", subscription: s"), given_up)
    assert (said(plan.changes), plan.findings) == ({("create", ENRICH.address)}, ())


PATTERN = "persistent://acme/ns/ord.*"
MATCHING = f"package: 'builtin://enrich', inputs_pattern: '{PATTERN}', subscription: s"


def matched(**values: Any) -> Live:
    """The live side with a function that reads by a pattern, which matches `orders`."""
    values = {"inputs": frozenset({PATTERN}), "pattern": PATTERN, "subscription": "s", "output": "", **values}
    return there(declared(function=MATCHING), **values)


def test_topics_of_a_pattern_are_there_before_its_function_and_go_after_it() -> None:
    building = schedule(planned(declared(function=MATCHING), empty()).changes).building
    order = [step.change.address for level in building for step in level]
    assert order.index("topic.persistent://acme/ns/orders") < order.index(ENRICH.address)
    only = wanted(topology("{shipments: {}}"))
    plan = planned_part(only, matched(), "topic.persistent://acme/ns/orders")
    assert said(plan.changes) == {("delete", "topic.orders"), ("delete", ENRICH.address)}
    deleting = [step.change.address for level in schedule(plan.changes).deleting for step in level]
    assert deleting.index(ENRICH.address) < deleting.index("topic.persistent://acme/ns/orders")
    part = planned_part(declared(function=MATCHING), empty(), ENRICH.address)
    assert ("create", "topic.orders") in said(part.changes)


def test_a_subscription_that_a_pattern_reads_by_is_not_lost_with_its_function_nor_taken_from_it() -> None:
    workers = wanted(topology("{orders: {subscriptions: {s: {states: [], dead_letter: false}}}, shipments: {}}"))
    findings = [one for one in planned(workers, matched()).findings if one.code == "K450"]
    assert ["declare for workers:" in one.detail for one in findings] == [True]
    sink = "sinks: {other: {package: 'builtin://x', inputs: [orders], subscription: s}}\n"
    findings = [one for one in planned(wanted(topology(TOPICS, sink)), matched()).findings if one.code == "K450"]
    assert ["declare for sink.acme/ns/other:" in one.detail for one in findings] == [True]
    other = "sinks: {other: {package: 'builtin://x', inputs_pattern: 'persistent://acme/ns/or.*', subscription: s}}\n"
    findings = [one for one in planned(wanted(topology(TOPICS, other)), matched()).findings if one.code == "K450"]
    assert ["declare for sink.acme/ns/other:" in one.detail for one in findings] == [True]
    assert not [
        one
        for one in planned(workers, matched(pattern="x.*", inputs=frozenset({"x.*"}))).findings
        if one.code == "K450"
    ]
    (finding,) = planned(declared(function=MATCHING), applied(workers)).findings
    assert (finding.code, f"{ENRICH.address} reads by it" in finding.detail) == ("K450", True)


def test_a_name_is_taken_until_its_function_is_deleted() -> None:
    sink = wanted(topology(TOPICS, "sinks: {enrich: {package: 'builtin://x', inputs: [orders], subscription: t}}\n"))
    (finding,) = planned(sink, there(declared())).findings
    assert finding.code == "K450"
    assert "sink.acme/ns/enrich: function.acme/ns/enrich has its name" in finding.detail


def test_connectors_are_planned_as_functions_are() -> None:
    keys = "sinks: {keep: {package: 'builtin://keep', inputs: [orders], retries: 2, redelivery_delay: 1s}}\nio_sources: {tick: {package: 'builtin://tick', output: orders}}\n"
    file = wanted(topology(TOPICS, keys))
    plan = planned(file, empty())
    assert {("create", "sink.acme/ns/keep"), ("create", "io_source.acme/ns/tick")} <= said(plan.changes)
    for change in plan.changes:
        assert serialization.change_from_json(dict(serialization.change_to_json(change))) == change
    side = applied(file)
    facts = {"sink.acme/ns/keep": RUNNING, "io_source.acme/ns/tick": FunctionFacts(1, 1, cleans_up=False)}
    side = changed(side, *(replace(side.objects[address], facts=one) for address, one in facts.items()))
    assert planned(file, side).empty
    assert said(planned(wanted(PLAIN), side).changes) == {("delete", address) for address in facts}
    other = wanted(topology(TOPICS, keys.replace("retries: 2", "retries: 3, dead_letter_topic: shipments")))
    (finding,) = planned(other, side).findings
    assert "`retries` 2, the file says 3" in finding.detail
    assert "`dead_letter_topic` none, the file says persistent://acme/ns/shipments" in finding.detail
    assert "one of another name" in finding.detail


def test_secrets_are_compared_where_the_file_names_them() -> None:
    reference = {"password": {"path": "p", "key": "k"}}
    named = declared(", secrets: {password: {path: p, key: k}}")
    (change,) = planned(named, there(declared())).changes
    assert isinstance(change, Update)
    assert [(one.name, one.before, one.after) for one in change.fields] == [("secrets", {}, reference)]
    assert serialization.change_from_json(dict(serialization.change_to_json(change))) == change
    assert planned(declared(), there(declared(), secrets='{"password":null}')).empty
    (change,) = planned(named, there(declared(), secrets='{"password":null}')).changes
    assert isinstance(change, Update)
    (field,) = map(serialization.field_to_json, change.fields)
    assert field_text(field) == "password (not shown) → {key: k, path: p}"


def test_views_show_no_setting_whose_name_says_that_it_is_secret() -> None:
    live_config = '{"db":{"password":"hunter2","user":"anna"},"list":[{"api_key":"hunter2"}],"token":"hunter2"}'
    side = there(declared(), config=live_config)
    plan = planned(declared(", config: {token: hunter3, db: {password: hunter3}}"), side)
    (change,) = plan.changes
    assert isinstance(change, Update)
    (field,) = [serialization.field_to_json(one) for one in change.fields]
    assert field_text(field) == (
        "db.password (not shown) → (not shown), db.user anna → unset, list {api_key: (not shown)} → unset,"
        " token (not shown) → (not shown)"
    )
    (stale,) = staleness(plan, there(declared(), config=live_config.replace("hunter2", "hunter4")))
    assert "db: {password: (not shown), user: anna}" in stale.detail
    shown = [stale.detail, plan_markdown(to_json(plan), ""), *(line.text for line in plan_lines(to_json(plan), ""))]
    other = planned(declared(", config: {token: hunter4}"), side)
    (refusal,) = unapproved_changes(plan, other)
    assert "token: (not shown)" in refusal.detail
    secrets = '{"producerConfig":{"authToken":"hunter2"}}'
    own = planned(declared(", settings: {producerConfig: {authToken: hunter3}}"), there(declared(), settings=secrets))
    (change,) = own.changes
    assert isinstance(change, Update)
    (field,) = [serialization.field_to_json(one) for one in change.fields]
    (stale,) = staleness(own, there(declared(), settings=secrets.replace("hunter2", "hunter4")))
    (refused,) = unapproved_changes(other, own)
    assert "authToken: (not shown)" in refused.detail
    shown += [field_text(field), stale.detail, refused.detail]
    assert field_text(field) == "producerConfig.authToken (not shown) → (not shown)"
    assert "hunter" not in "".join([*shown, refusal.detail])


@pytest.mark.parametrize("name", get_args(FieldName))
def test_a_saved_plan_and_a_journal_know_every_field(name: str) -> None:
    with suppress(ValidationError):  # of the value
        serialization.field_from_json({"name": name, "before": None, "after": None})


def test_a_namespace_with_functions_of_others_stays() -> None:
    nothing = replace(declared(), expansions=(), objects={}, destroyed=frozenset({"trade"}))
    side = there(declared())
    theirs = LiveObject(replace(ENRICH, name="theirs"), None, RUNNING)
    space = f"namespace.{HERE}"
    for live_side, goes in ((side, True), (changed(side, theirs), False)):
        changes = with_namespaces(diff(nothing, live_side), nothing.names, live_side).changes
        assert (space in {change.address for change in changes if isinstance(change, Delete)}) == goes
    unread = replace(side, unread_functions={f"function.{HERE}": "no answer"})
    changes = with_namespaces(diff(nothing, unread), nothing.names, unread).changes
    assert space not in {change.address for change in changes if isinstance(change, Delete)}


def test_a_plan_is_carried_out_only_where_functions_can_be_read_and_are_ours() -> None:
    side = there(declared())
    plan = planned(declared(", parallelism: 2"), side)
    (finding,) = unknown_objects(plan, replace(side, unread_functions={f"function.{HERE}": "no answer"}))
    assert (finding.code, finding.severity) == ("K451", Severity.ERROR)
    assert f"{ENRICH.address}: no answer" in finding.detail
    assert not list(unknown_objects(plan, side))
    (stale,) = staleness(plan, there(declared(), parallelism=5))
    assert stale.code == "K533"
    (others,) = of_others(plan, changed(side, LiveObject(ENRICH, None, RUNNING)))
    assert "belongs to nobody" in others.detail


def test_a_function_is_given_up_without_its_worker_and_the_plan_says_that_its_marker_stays() -> None:
    side = there(declared())
    away = replace(changed(side, without=[ENRICH.address]), unread_functions={f"function.{HERE}": "no answer"})
    plan = forget_plan(away, [ENRICH.address], frozenset())
    (change,) = plan.changes
    assert isinstance(change, Forget)
    assert change.before is None
    assert change.about.reason == (
        "given up without a look at it (no answer): it stays as it is, and so does a marker of trade on it"
    )
    assert not [*plan.findings, *unknown_objects(plan, away), *staleness(plan, away), *of_others(plan, away)]
    (stale,) = staleness(plan, side)  # the worker is back: a new plan sees the function
    assert stale.code == "K533"


def _undone(changes: tuple[Change, ...], side: Live) -> tuple[set[tuple[str, str]], list[str]]:
    one = Applied("aa11", "apply", "anna", 1, None, "d", {}, ended=2, complete=True, total=9, done=changes)
    found, findings = backwards(one, side)
    return said(found), [finding.detail for finding in findings]


def test_an_undo_deletes_only_what_is_still_ours_and_makes_again_what_it_can() -> None:
    made = tuple(of_function(planned(declared(), empty()).changes))
    assert isinstance(made[0], Create)
    side = there(declared())
    assert _undone(made, side) == ({("delete", ENRICH.address)}, [])
    anew = changed(side, LiveObject(ENRICH, None, RUNNING))
    assert _undone(made, anew) == (
        set(),
        [f"{ENRICH.address}: somebody made it anew; change it by hand, or in the file"],
    )
    assert _undone(made, there(declared(), parallelism=3)) == (
        set(),
        [f"{ENRICH.address}: somebody changed it after it was made: parallelism; change it by hand, or in the file"],
    )
    deleted = tuple(of_function(planned(wanted(PLAIN), side).changes))
    gone = changed(side, without=[ENRICH.address])
    again = "if its subscription went with it, it reads from earliest on"
    assert _undone(deleted, gone) == (
        {("create", ENRICH.address)},
        [f"{ENRICH.address}: it is made again, without settings that files do not have; {again}"],
    )
    hidden = tuple(of_function(planned(wanted(PLAIN), there(declared(), secrets='{"password":null}')).changes))
    assert _undone(hidden, gone) == (
        set(),
        [f"{ENRICH.address}: kodoctl did not read its secrets, which were no references: password: declare it"],
    )
    transformed = '{"transformFunctionConfig":{"key":"(not shown)"}}'
    hidden = tuple(of_function(planned(wanted(PLAIN), there(declared(), settings=transformed)).changes))
    (refusal,) = _undone(hidden, gone)[1]
    assert "did not read settings that no apply wrote: transformFunctionConfig.key: declare it" in refusal
    updated = tuple(of_function(planned(declared(", settings: {timeoutMs: 5}"), side).changes))
    assert _undone(updated, side) == (set(), [f"{ENRICH.address}: settings stays as it became"])
    unknown = tuple(of_function(planned(wanted(PLAIN), there(declared(), package="")).changes))
    assert _undone(unknown, gone) == (set(), [f"{ENRICH.address}: where its package was, is not known: declare it"])
    assert (
        "could not be read" in _undone(deleted, replace(gone, unread_functions={f"function.{HERE}": "no answer"}))[1][0]
    )


def test_edits_and_drift_are_told_apart() -> None:
    now, before = declared(", class: b.C, config: {a: 2}, parallelism: 2"), declared(", config: {a: 1}")
    side = there(before, config='{"a":1}', parallelism=5)
    against = Baseline("origin/main", "f" * 40, before)
    plan = make_plan(now, side, diff(now, side), evidence={}, allowances=Allowances(), now=NOW, against=against)
    (change,) = plan.changes
    assert change.about.origin is Origin.BOTH
    assert {"class", "parallelism"} & set(change.about.drifted)
    assert "config" not in change.about.drifted


def test_an_import_lists_functions_and_what_reads_for_them() -> None:
    orders = TopicName(HERE, "orders")
    objects = [
        LiveObject(NamespaceResource(HERE, {})),
        LiveObject(TopicResource(orders, 1, {})),
        LiveObject(SubscriptionResource(orders, ENRICH.subscription)),
        LiveObject(ENRICH, None, RUNNING),
        LiveObject(replace(ENRICH, name="theirs", package="", kind="sink", subscription="t"), None, RUNNING),
    ]
    left_out = dict(import_namespace(live(objects, {}), HERE, "trade").left_out)
    assert "its package is builtin://enrich: declare it under `functions`, and --adopt it" in left_out[ENRICH.address]
    assert "Pulsar does not show its package: declare it under `sinks`" in left_out["sink.acme/ns/theirs"]
    assert left_out[f"subscription.{orders}/{ENRICH.subscription}"] == f"{ENRICH.address} reads by it"
    by_pattern = replace(ENRICH, inputs=frozenset({PATTERN}), pattern=PATTERN)
    left_out = dict(import_namespace(live([*objects[:3], LiveObject(by_pattern)], {}), HERE, "trade").left_out)
    assert left_out[f"subscription.{orders}/{ENRICH.subscription}"] == f"{ENRICH.address} reads by it"
    unread = replace(live(objects[:2], {}), unread_functions={f"function.{HERE}": "no right"})
    assert dict(import_namespace(unread, HERE, "trade").left_out) == {
        f"function.{HERE}": "they cannot be read: no right"
    }
    unread = replace(unread, unread_functions={ENRICH.address: "no answer"})
    assert dict(import_namespace(unread, HERE, "trade").left_out) == {ENRICH.address: "it cannot be read: no answer"}
    ours = there(declared())
    assert ENRICH.address not in dict(import_namespace(ours, HERE, "other").left_out)
