"""Sinks, IO sources and installed entry filters on a broker with a function worker: planned, applied, changed by hand,
adopted, and deleted only by leave.
"""

from __future__ import annotations

import json
from typing import Any

import pulsar
import pytest

from tests.brokers.function_worker import FunctionBroker
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually

pytestmark = pytest.mark.full  # a function worker; test_functions.py has one in every run
TEXT = pulsar.schema.StringSchema()
TOPICS = """\
orders: {subscriptions: {billing: {states: [], dead_letter: false}}}
failed: {}
ticks: {}
"""


def declare(space: Workspace, sinks: str = "", io_sources: str = "") -> None:
    """Writes the file with these entries; `$package` stands for the package of the broker, `$file` for the sink's file."""
    assert isinstance(space.broker, FunctionBroker)
    parts = {"sinks": sinks, "io_sources": io_sources}
    text = "".join(f"{key}: {{{entries}}}\n" for key, entries in parts.items() if entries)
    text = text.replace("$package", space.broker.package).replace("$file", str(space.folder / "kept.txt"))
    space.topology(TOPICS, head=text)


def keep(more: str = "") -> str:
    """A declaration of the sink `keep`; `more`: keys of it, after a comma."""
    return f"keep: {{package: '$package', class: Keep, inputs: [orders], config: {{file: '$file'}}{more}}}"


def tick(more: str = "", text: str = "tick") -> str:
    """A declaration of the IO source `tick`; `more`: keys of it, after a comma."""
    return f"tick: {{package: '$package', class: Tick, output: ticks, config: {{text: {text}}}{more}}}"


def call(space: Workspace, kind: str, method: str, name: str, **parts: str) -> Any:
    """A call about a sink or source, as somebody without kodoctl makes it; returns the JSON, None for none."""
    assert isinstance(space.broker, FunctionBroker)
    reply = space.broker.functions(method, f"{space.namespace}/{name}", kind, **parts)
    assert reply.ok, reply.text
    return reply.json() if reply.text else None


def running(space: Workspace, kind: str, name: str, count: int) -> None:
    """Waits until so many instances run."""
    eventually(lambda: call(space, kind, "GET", f"{name}/status")["numRunning"] == count, every=0.3)


def theirs(space: Workspace, **config: Any) -> None:
    """Somebody else's sink `theirs`."""
    assert isinstance(space.broker, FunctionBroker)
    own = {"className": "Keep", "inputs": [space.full("orders")], "configs": {"file": str(space.folder / "theirs.txt")}}
    sent = json.dumps({**own, "sourceSubscriptionName": "theirs", **config})
    call(space, "sinks", "POST", "theirs", config=sent, url=space.broker.package)


def test_a_sink_keeps_messages_and_gives_up_on_failed_ones(functions: Workspace) -> None:
    declare(functions, keep(", retries: 1, dead_letter_topic: failed, redelivery_delay: 1s"))
    assert "echo.jar; orders; 1 instance" in " ".join(functions.plan().out.split())
    functions.apply()
    functions.assert_settled()
    running(functions, "sinks", "keep", 1)
    with functions.client() as client:
        reader = client.subscribe(functions.full("failed"), "s", schema=TEXT)
        producer = client.create_producer(functions.full("orders"), schema=TEXT)
        producer.send("bad one")
        producer.send("good one")
        assert reader.receive(60_000).value() == "bad one"
    kept = functions.folder / "kept.txt"
    eventually(lambda: kept.exists() and kept.read_text(encoding="utf-8") == "good one\n")


def test_an_io_source_writes_to_its_topic(functions: Workspace) -> None:
    declare(functions, io_sources=tick())
    assert "echo.jar; ticks; 1 instance" in " ".join(functions.plan().out.split())
    functions.apply()
    functions.assert_settled()
    with functions.client() as client:
        reader = client.subscribe(functions.full("ticks"), "s", schema=TEXT)
        assert reader.receive(60_000).value() == "tick"


def test_changed_settings_are_updated_and_changes_by_hand_are_drift(functions: Workspace) -> None:
    declare(functions, keep(), tick())
    functions.apply()
    declare(
        functions,
        keep(", parallelism: 2, secrets: {password: {path: warehouse, key: password}}"),
        tick(", resources: {memory: 512MiB}", text="tock"),
    )
    fields = {
        change["address"].partition(".")[0]: {one["name"]: (one["before"], one["after"]) for one in change["fields"]}
        for change in functions.plan_json()["changes"]
    }
    reference = {"password": {"path": "warehouse", "key": "password"}}
    assert fields == {
        "sink": {"parallelism": (1, 2), "secrets": ({}, reference)},
        "io_source": {"config": ({"text": "tick"}, {"text": "tock"}), "memory": (1 << 30, 512 << 20)},
    }
    functions.apply()
    functions.assert_settled()
    call(functions, "sinks", "PUT", "keep", config='{"parallelism": 3}')
    call(functions, "sources", "PUT", "tick", config='{"parallelism": 4}')
    drift = functions.run("drift", code=3).out
    assert f"~ sink.{functions.namespace}/keep" in drift
    assert f"~ io_source.{functions.namespace}/tick" in drift
    functions.apply()
    assert call(functions, "sinks", "GET", "keep")["parallelism"] == 2
    assert call(functions, "sources", "GET", "tick")["parallelism"] == 1


def test_what_pulsar_cannot_change_is_refused_before_anything_is_written(functions: Workspace) -> None:
    declare(functions, keep(), tick())
    functions.apply()
    other = "keep: {package: 'builtin://x', inputs: [ticks], guarantees: at_most_once, subscription: s, retries: 3, redelivery_delay: 2s}"
    declare(functions, other, tick(", guarantees: at_most_once"))
    refused = " ".join(functions.plan(code=4).out.split())
    for field in ("inputs", "subscription", "guarantees", "retries", "redelivery_delay", "package"):
        assert f"`{field}`" in refused, refused
    assert refused.count("[K450]") == 2


def test_a_sink_of_others_is_adopted_by_name_only_and_its_secrets_are_not_shown(functions: Workspace) -> None:
    declare(functions, keep())
    functions.apply()
    config: dict[str, Any] = {"file": str(functions.folder / "theirs.txt"), "user": "hunter2", "list": ["hunter2", 2]}
    theirs(functions, secrets={"password": "hunter2"}, parallelism=2, configs=config)
    address = f"sink.{functions.namespace}/theirs"
    assert functions.plan_json()["unmanaged"] == [address]
    mine = (
        "theirs: {package: '$package', class: Keep, inputs: [orders], subscription: theirs, config: {file: '$theirs'}}"
    )
    declare(functions, f"{keep()}, {mine}".replace("$theirs", config["file"]))
    assert "K417" in functions.plan(code=4).out
    shown = [functions.plan("--adopt", address, "--out", "p.plan").text, functions.plan("--adopt", address).text]
    shown += [functions.run("plan", "--adopt", address, "--format", one).text for one in ("json", "markdown", "html")]
    shown.append((functions.folder / "p.plan").read_text(encoding="utf-8"))
    assert config["file"] in shown[2], "the file has it"
    shown.append(functions.run("apply", "p.plan", "--auto-approve").text)
    shown.append(functions.run("history", functions.namespace, "--format", "json").text)
    assert [text for text in shown if "hunter2" in text] == []
    assert "(not shown)" in shown[2]
    functions.assert_settled()
    declare(functions, keep())
    assert "was adopted, so it stays" in " ".join(functions.apply().text.split())
    left = call(functions, "sinks", "GET", "theirs")
    assert (left["parallelism"], left["secrets"]) == (1, {"password": "hunter2"})


def test_unread_messages_and_running_instances_keep_them(functions: Workspace) -> None:
    declare(functions, keep(), tick())
    functions.apply()
    sink, source = f"sink.{functions.namespace}/keep", f"io_source.{functions.namespace}/tick"
    running(functions, "sinks", "keep", 1)
    running(functions, "sources", "tick", 1)
    declare(functions)
    assert functions.plan(code=4).out.count("1 instance running") == 2
    call(functions, "sinks", "POST", "keep/stop")
    call(functions, "sources", "POST", "tick/stop")
    running(functions, "sinks", "keep", 0)
    running(functions, "sources", "tick", 0)
    functions.publish("orders", 3)
    refused = " ".join(functions.plan(code=4).out.split())
    assert f"its subscription {functions.namespace}/keep goes with it: 3 unread messages" in refused
    assert f"--allow-destroy {source}" not in refused
    functions.apply("--allow-destroy", sink)
    functions.assert_settled()
    assert call(functions, "sinks", "GET", "") == call(functions, "sources", "GET", "") == []
    assert functions.subscriptions("orders") == [{"billing"}]


def test_an_undo_and_a_destroy_take_them_away(functions: Workspace) -> None:
    declare(functions)
    functions.apply()
    declare(functions, keep(), tick())
    functions.apply()
    allowed = [
        f"--allow-destroy={kind}.{functions.namespace}/{name}"
        for kind, name in (("sink", "keep"), ("io_source", "tick"))
    ]
    functions.run("undo", "last", functions.namespace, "--auto-approve", *allowed)
    assert call(functions, "sinks", "GET", "") == call(functions, "sources", "GET", "") == []
    functions.apply()
    theirs(functions)
    topics = [f"--allow-destroy=topic.{functions.full(name)}" for name in ("orders", "failed", "ticks")]
    failed = functions.run("destroy", "topologies", "--auto-approve", *allowed, *topics, code=None).text
    assert call(functions, "sinks", "GET", "") == ["theirs"], failed
    assert functions.dump()


def test_a_package_of_the_cluster_has_to_exist(functions: Workspace) -> None:
    broker = functions.broker
    assert isinstance(broker, FunctionBroker)
    declare(functions)
    functions.apply()
    name = f"{functions.namespace}/keep"
    entry = f"package: 'sink://{name}@1', class: Keep, inputs: [orders], config: {{file: '$file'}}"
    declare(functions, f"keep: {{{entry}}}, other: {{package: 'builtin://nowhere', inputs: [orders]}}")
    refused = " ".join(functions.plan(code=4).out.split())
    assert f"the cluster has no sink://{name}@1" in refused
    assert "the worker has no builtin://nowhere; it has keep" in refused
    assert refused.count("[K453]") == 2
    broker.upload_package(f"sink/{name}/1")
    declare(functions, f"keep: {{{entry}}}")
    functions.apply()
    functions.assert_settled()
    running(functions, "sinks", "keep", 1)
    left_out = " ".join(functions.run("import", functions.namespace).text.split())
    assert f"package.sink://{name}" in left_out


def test_a_builtin_sink_of_others_is_adopted_as_it_is(functions: Workspace) -> None:
    declare(functions)
    functions.apply()
    config = {
        "archive": "builtin://keep",
        "inputs": [functions.full("orders")],
        "configs": {"file": str(functions.folder / "kept.txt")},
    }
    call(functions, "sinks", "POST", "keep", config=json.dumps({**config, "sourceSubscriptionPosition": "Earliest"}))
    assert "its package is builtin://keep" in " ".join(functions.run("import", functions.namespace).text.split())
    entry = "package: 'builtin://keep', inputs: [orders], config: {file: '$file'}"
    declare(functions, f"keep: {{{entry}}}")
    functions.apply()
    functions.assert_settled()
    declare(functions, f"keep: {{{entry}, parallelism: 2}}")
    functions.apply()
    functions.assert_settled()
    running(functions, "sinks", "keep", 2)


def test_an_import_names_sinks_and_sources(functions: Workspace) -> None:
    functions.admin("PUT", f"namespaces/{functions.namespace}")
    functions.make_topic("orders")
    theirs(functions)
    left_out = " ".join(functions.run("import", functions.namespace).text.split())
    assert f"sink.{functions.namespace}/theirs" in left_out
    assert "declare it under `sinks`" in left_out


def test_entry_filters_that_are_installed_go_from_the_file_to_the_broker_and_back(functions: Workspace) -> None:
    topic, namespace = functions.path("J"), f"namespaces/{functions.namespace}"

    def live() -> tuple[object, object]:
        return functions.policy("J", "entryFilters"), functions.dump().get("entryFilters")

    declared = ({"entryFilterNames": "also"}, {"entryFilterNames": "pass,also"})
    functions.topology("J: {policies: {entry_filters: [also]}}", "namespace_policies: {entry_filters: [pass, also]}\n")
    functions.apply()
    assert live() == declared
    functions.assert_settled()
    functions.admin("POST", f"{topic}/entryFilters", {"entryFilterNames": "pass"})
    functions.admin("DELETE", f"{namespace}/entryFilters")
    assert functions.run("drift", code=3).out.count("entry_filters") == 2
    functions.apply()
    assert live() == declared
    functions.topology("J: {}", "namespace_policies: {}\n")
    functions.apply()
    assert live() == (None, None)
    functions.assert_settled()
