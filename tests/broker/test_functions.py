"""Functions on a broker with a function worker: planned, applied, changed by hand, adopted, and deleted only by leave."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pulsar
import pytest
import requests

from tests.brokers.function_worker import FunctionBroker
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually

TOPICS = """\
orders: {subscriptions: {billing: {states: [], dead_letter: false}}}
shipments: {}
"""
ENRICH = "enrich: {package: '$package', class: Echo, inputs: [orders], output: shipments"
THEIRS = "theirs: {package: '$package', class: Echo, inputs: [orders], subscription: theirs}"


def declare(space: Workspace, *entries: str) -> None:
    """Writes the file with these functions; `$package` stands for the package of the broker."""
    broker = space.broker
    assert isinstance(broker, FunctionBroker)
    lines = "".join(f"  {entry}\n" for entry in entries).replace("$package", broker.package)
    space.topology(TOPICS, head=f"functions:\n{lines}" if lines else "")


def applied(space: Workspace, more: str = "") -> str:
    """Applies the file with the function `enrich`, and returns its address."""
    declare(space, f"{ENRICH}{more}}}")
    space.apply()
    return f"function.{space.namespace}/enrich"


def call(space: Workspace, method: str, name: str, **parts: str) -> Any:
    """A call about a function, as somebody without kodoctl makes it; returns the JSON, None for none."""
    assert isinstance(space.broker, FunctionBroker)
    reply = space.broker.functions(method, f"{space.namespace}/{name}", **parts)
    assert reply.ok, reply.text
    return reply.json() if reply.text else None


def create(space: Workspace, name: str, **config: Any) -> None:
    """Somebody else's function."""
    assert isinstance(space.broker, FunctionBroker)
    config = {"runtime": "JAVA", "className": "Echo", "inputs": [space.full("orders")], **config}
    call(space, "POST", name, config=json.dumps(config), url=space.broker.package)


def running(space: Workspace, count: int) -> None:
    """Waits until so many instances of `enrich` run."""
    eventually(lambda: call(space, "GET", "enrich/status")["numRunning"] == count, every=0.3)


def test_a_declared_function_runs_and_the_second_plan_is_empty(functions: Workspace) -> None:
    declare(functions, f"{ENRICH}, parallelism: 2, config: {{rate: 5, list: [1, 2.5]}}}}")
    assert "echo.jar; orders → shipments; 2 instances" in " ".join(functions.plan().out.split())
    functions.apply()
    functions.assert_settled()
    running(functions, 2)
    text = pulsar.schema.StringSchema()
    with functions.client() as client:
        reader = client.subscribe(functions.full("shipments"), "s", schema=text)
        client.create_producer(functions.full("orders"), schema=text).send("one")
        assert reader.receive(30_000).value() == "one!"
    unmanaged = functions.plan_json()["unmanaged"]
    assert unmanaged == [f"subscription.{functions.full('shipments')}/s"], "its own subscription belongs to it"


def test_changed_settings_are_updated_and_changes_by_hand_are_drift(functions: Workspace) -> None:
    address = applied(functions, ", config: {a: 1}")
    declare(functions, f"{ENRICH}, parallelism: 2, config: {{a: 2}}, resources: {{memory: 512MiB}}}}")
    [change] = functions.plan_json()["changes"]
    fields = {one["name"]: (one["before"], one["after"]) for one in change["fields"]}
    assert fields == {"parallelism": (1, 2), "config": ({"a": 1}, {"a": 2}), "memory": (1 << 30, 512 << 20)}
    assert change["evidence"]["instances"] == 1
    functions.apply()
    functions.assert_settled()
    call(functions, "PUT", "enrich", config='{"parallelism": 3}')
    drift = functions.run("drift", code=3).out
    assert f"~ {address}" in drift
    assert "parallelism  3 → 2" in drift
    functions.apply()
    assert call(functions, "GET", "enrich")["parallelism"] == 2


def test_what_pulsar_cannot_change_is_refused_before_anything_is_written(functions: Workspace) -> None:
    applied(functions)
    declare(functions, "enrich: {package: 'builtin://x', inputs: [shipments], guarantees: manual, subscription: s}")
    refused = " ".join(functions.plan(code=4).out.split())
    for field in ("inputs", "subscription", "guarantees", "output", "package"):
        assert f"`{field}`" in refused, refused
    assert "[K450]" in refused


def test_a_function_of_others_is_listed_and_adopted_by_name_only(functions: Workspace) -> None:
    applied(functions)
    create(functions, "theirs", subName="theirs", parallelism=2)
    address = f"function.{functions.namespace}/theirs"
    assert functions.plan_json()["unmanaged"] == [address]
    declare(functions, f"{ENRICH}}}", THEIRS)
    assert "K417" in functions.plan(code=4).out
    functions.apply("--adopt", address)
    functions.assert_settled()
    declare(functions, f"{ENRICH}}}")
    assert "was adopted, so it stays" in " ".join(functions.apply().text.split())
    assert call(functions, "GET", "theirs")["parallelism"] == 1


def test_a_function_that_others_made_anew_is_neither_changed_nor_deleted(functions: Workspace) -> None:
    address = applied(functions)
    call(functions, "DELETE", "enrich")
    eventually(lambda: call(functions, "GET", "") == [])
    create(functions, "enrich", output=functions.full("shipments"))
    assert "K417" in functions.plan(code=4).out
    declare(functions)
    [change] = functions.plan_json()["changes"]
    assert (change["address"], change["action"]) == (address, "forget")
    functions.apply()
    assert call(functions, "GET", "") == ["enrich"]


def test_unread_messages_and_running_instances_keep_a_function(functions: Workspace) -> None:
    address = applied(functions)
    running(functions, 1)
    declare(functions)
    assert "1 instance running" in functions.plan(code=4).out
    call(functions, "POST", "enrich/stop")
    running(functions, 0)
    declare(functions, f"{ENRICH}}}")
    assert "0 of 1 instance running" in functions.plan().out
    assert "read by" not in functions.run("status").out
    declare(functions)
    functions.publish("orders", 3)
    refused = " ".join(functions.plan(code=4).out.split())
    assert "read by" in functions.run("status").out, "its function is in no file any more"
    assert f"its subscription {functions.namespace}/enrich goes with it: 3 unread messages" in refused
    assert functions.apply(code=4)
    functions.apply("--allow-destroy", address)
    functions.assert_settled()
    assert call(functions, "GET", "") == []
    assert functions.subscriptions("orders") == [{"billing"}]


def test_destroy_deletes_the_function_before_its_topics_and_keeps_a_namespace_with_others(functions: Workspace) -> None:
    address = applied(functions)
    create(functions, "theirs", subName="billing")
    running(functions, 1)
    topics = [f"topic.{functions.full(name)}" for name in ("orders", "shipments")]
    call(functions, "POST", "theirs/stop")
    allowed = [flag for one in (address, *topics) for flag in ("--allow-destroy", one)]
    functions.run("destroy", "topologies", "--auto-approve", *allowed)
    assert call(functions, "GET", "") == ["theirs"]
    assert functions.dump()


def test_a_renamed_topology_takes_its_function_along(functions: Workspace) -> None:
    applied(functions)
    trade = functions.folder / "topologies/trade.yaml"
    text = trade.read_text(encoding="utf-8").replace("name: trade\n", "name: shop\nformerly: trade\n", 1)
    trade.write_text(text, encoding="utf-8")
    functions.apply()
    functions.assert_settled()
    assert json.loads(call(functions, "GET", "enrich")["customRuntimeOptions"])["kodoctl"] == "shop"


def test_declared_packages_are_uploaded_before_their_functions_and_never_overwritten(functions: Workspace) -> None:
    assert isinstance(functions.broker, FunctionBroker)
    url = f"function://{functions.namespace}/echo@1"
    jar = functions.folder / "topologies/echo.jar"
    function = f"functions:\n  enrich: {{package: '{url}', class: Echo, inputs: [orders], output: shipments}}\n"
    head = f"packages: {{'{url}': {{file: echo.jar}}}}\n"
    functions.topology(TOPICS, head=head + function)
    content = Path(functions.broker.package.removeprefix("file://")).read_bytes()
    jar.write_bytes(content)
    assert f"package.{url}" in functions.plan().out
    functions.apply()
    functions.assert_settled()
    running(functions, 1)
    jar.write_bytes(content + b"x")
    refused = " ".join(functions.plan(code=4).out.split())
    assert "[K458]" in refused
    assert "other content under this version" in refused
    functions.topology(TOPICS, head=function)
    assert "No changes" in functions.plan().out, "an earlier version stays"
    assert "would not start any more" in functions.plan("--allow-destroy", f"package.{url}", code=4).out
    functions.topology(TOPICS)
    call(functions, "POST", "enrich/stop")
    running(functions, 0)
    functions.apply("--allow-destroy", f"package.{url}")
    path = f"{functions.broker.admin_url}/admin/v3/packages/function/{functions.namespace}/echo"
    assert requests.get(f"{path}/1/metadata", timeout=60).status_code == 404


def test_a_package_that_no_apply_uploaded_is_not_taken_for_the_file(functions: Workspace) -> None:
    assert isinstance(functions.broker, FunctionBroker)
    declare(functions)
    functions.apply()
    functions.broker.upload_package(f"function/{functions.namespace}/echo/1")
    (functions.folder / "topologies/echo.jar").write_bytes(b"x")
    functions.topology(TOPICS, head=f"packages: {{'function://{functions.namespace}/echo@1': {{file: echo.jar}}}}\n")
    assert "no apply uploaded it whole" in " ".join(functions.plan(code=4).out.split())


SETTINGS = (
    "retainKeyOrdering: true, timeoutMs: 20000, maxMessageRetries: 3, deadLetterTopic: '$dead',"
    " producerConfig: {maxPendingMessages: 5}, cleanupSubscription: false,"
    " outputSchemaType: string, inputSpecs: {'$in': {receiverQueueSize: 7}}"
)


def test_settings_by_pulsars_names_are_planned_written_and_healed(functions: Workspace) -> None:
    names = {"$dead": "shipments-dead", "$in": "orders"}
    text = SETTINGS
    for mark, name in names.items():
        text = text.replace(mark, functions.full(name))
    address = applied(functions, f", settings: {{{text}}}")
    functions.assert_settled()
    live = call(functions, "GET", "enrich")
    assert (live["retainKeyOrdering"], live["timeoutMs"], live["maxMessageRetries"]) == (True, 20000, 3)
    call(functions, "PUT", "enrich", config='{"timeoutMs": 30000}')
    drift = " ".join(functions.run("drift", code=3).out.split())
    assert f"~ {address}" in drift
    assert re.search("timeoutMs 30,?000 → 20,?000", drift), drift
    declare(functions, f"{ENRICH}, settings: {{{text.replace('receiverQueueSize: 7', 'receiverQueueSize: 8')}}}}}")
    functions.apply()
    functions.assert_settled()
    assert call(functions, "GET", "enrich")["inputSpecs"][functions.full("orders")]["receiverQueueSize"] == 8
    declare(functions, f"{ENRICH}, settings: {{retainKeyOrdering: false, outputSchemaType: json}}}}")
    refused = " ".join(functions.plan(code=4).out.split())
    assert "`retainKeyOrdering` true, the file says false" in refused
    assert "`outputSchemaType` string, the file says json" in refused


def test_a_function_reads_topics_by_a_pattern(functions: Workspace) -> None:
    pattern = functions.full("ord.*")
    declare(functions, f"enrich: {{package: '$package', class: Echo, inputs_pattern: '{pattern}'}}")
    functions.apply()
    functions.assert_settled()
    assert call(functions, "GET", "enrich")["inputSpecs"][pattern]["regexPattern"] is True


def test_an_undo_deletes_what_the_apply_made(functions: Workspace) -> None:
    declare(functions)
    functions.apply()
    address = applied(functions)
    call(functions, "POST", "enrich/stop")
    running(functions, 0)
    functions.run("undo", "last", functions.namespace, "--auto-approve", "--allow-destroy", address)
    assert call(functions, "GET", "") == []


def test_an_apply_reports_what_the_worker_refuses(functions: Workspace) -> None:
    declare(functions, f"{ENRICH.replace('Echo', 'Nowhere')}}}")
    failed = " ".join(functions.apply(code=1).text.split())
    assert "Function class Nowhere must be in class path" in failed
    applied(functions)
    functions.assert_settled()


def test_an_import_names_functions_and_their_subscriptions(functions: Workspace) -> None:
    functions.admin("PUT", f"namespaces/{functions.namespace}")
    functions.make_topic("orders")
    create(functions, "theirs", subName="theirs")
    eventually(lambda: functions.subscriptions("orders") == [{"theirs"}])
    left_out = functions.run("import", functions.namespace).text
    assert f"function.{functions.namespace}/theirs" in left_out
    assert "Pulsar does not show its package" in " ".join(left_out.split())


@pytest.mark.parametrize("text", ["no JSON", "[1]"])
def test_runtime_options_that_leave_no_room_for_a_marker_are_kept(functions: Workspace, text: str) -> None:
    applied(functions)
    create(functions, "theirs", subName="theirs", customRuntimeOptions=text)
    declare(functions, f"{ENRICH}}}", THEIRS)
    assert "customRuntimeOptions" in functions.plan("--adopt", "*", code=4).out
    assert call(functions, "GET", "theirs")["customRuntimeOptions"] == text
