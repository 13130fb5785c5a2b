"""Markers of functions: only the function that the plan saw is marked, or updated."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from kodoctl.apply.functions import delete_function, mark_function, update_function
from kodoctl.plan.changes import ChangeContext, Delete
from kodoctl.protocol.properties import DECLARED_PROPERTY, OWNER_PROPERTY
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.inventory.functions import read_function
from kodoctl.topology.resources import FunctionResource
from tests.samples.inventories import HERE
from tests.services.servers import Answer, Request, answer_json, serving

ENRICH = FunctionResource(HERE, "enrich", "builtin://x", "java", frozenset({"persistent://acme/ns/a"}), "s")


@pytest.mark.parametrize(
    ("marker", "refused"),
    [("old", None), ("trade", None), ("bank", "it belongs to 'bank' since the plan"), (None, "somebody made it anew since the plan"), (404, "it is gone since the plan")],
)  # fmt: skip
def test_only_the_function_that_the_plan_saw_is_marked_or_updated(marker: Any, refused: str | None) -> None:
    said = {OWNER_PROPERTY: marker}

    def worker(request: Request) -> Answer:
        if request.is_write:
            said[OWNER_PROPERTY] = "trade"
            return Answer(204)
        options = json.dumps(said) if marker else ""
        return Answer(404) if marker == 404 else answer_json({"customRuntimeOptions": options})

    with serving(worker) as server:
        with pytest.raises(WriteFailedError, match=refused) if refused else nullcontext():
            mark_function(HttpAdmin(Connection(server.url)), ENRICH, "trade", "old")
        if refused:
            with pytest.raises(WriteFailedError, match=refused):
                update_function(HttpAdmin(Connection(server.url)), ENRICH, ENRICH, "trade", "old")
        assert [one.method for one in server.requests if one.is_write] == ([] if refused else ["PUT"])


def test_a_marker_that_the_worker_does_not_show_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodoctl.pulsar.admin.confirmed_write.PATIENCE_S", 0.0)
    options = json.dumps({OWNER_PROPERTY: "old"})

    def worker(request: Request) -> Answer:
        return Answer(204) if request.is_write else answer_json({"customRuntimeOptions": options})

    with serving(worker) as server, pytest.raises(WriteFailedError, match="does not show it as it was written"):
        mark_function(HttpAdmin(Connection(server.url)), ENRICH, "trade", "old")


def _update(admin: HttpAdmin, function: FunctionResource, owner: str, planned: str) -> None:
    update_function(admin, function, replace(function, parallelism=2), owner, planned)


@pytest.mark.parametrize("write", [mark_function, _update])
def test_a_request_is_not_repeated_over_a_function_of_somebody_else(write: Any) -> None:
    said = {OWNER_PROPERTY: "old"}

    def worker(request: Request) -> Answer:
        if request.is_write:
            said[OWNER_PROPERTY] = "bank"
            return Answer(503)
        found = {"customRuntimeOptions": json.dumps(said), "inputSpecs": {"acme/ns/a": {}}, "subName": "s"}
        return answer_json(found | {"runtime": "JAVA", "processingGuarantees": "ATLEAST_ONCE"})

    with serving(worker) as server:
        admin = HttpAdmin(Connection(server.url))
        live = read_function(admin, "function", HERE, "enrich")
        assert live is not None
        assert isinstance(live.resource, FunctionResource)
        with pytest.raises(WriteFailedError, match="it belongs to 'bank' since the plan"):
            write(admin, live.resource, "trade", "old")
        assert [one.method for one in server.requests if one.is_write] == ["PUT"]


@pytest.mark.parametrize("write", [mark_function, _update])
def test_a_function_that_somebody_takes_between_two_reads_is_left_alone(write: Any) -> None:
    reads: list[str] = []

    def worker(request: Request) -> Answer:
        if request.is_write or request.path.endswith("/status"):
            return Answer(204)
        reads.append(request.path)
        options = json.dumps({OWNER_PROPERTY: "old" if len(reads) < 3 else "bank"})
        found = {"customRuntimeOptions": options, "inputSpecs": {"acme/ns/a": {}}, "subName": "s"}
        return answer_json(found | {"runtime": "JAVA", "processingGuarantees": "ATLEAST_ONCE"})

    with serving(worker) as server:
        admin = HttpAdmin(Connection(server.url))
        live = read_function(admin, "function", HERE, "enrich")
        assert live is not None
        with pytest.raises(WriteFailedError, match="it belongs to 'bank' since the plan"):
            write(admin, live.resource, "trade", "old")
        assert [one.method for one in server.requests if one.is_write] == []


@pytest.mark.parametrize(("refusals", "limit", "refused"), [
    (3, 60.0, None),
    (99, 0.0, "whether it took effect is not known: .*503.*; plan again"),
])  # fmt: skip
def test_a_worker_that_is_busy_after_a_deletion_is_awaited(refusals: int, limit: float, refused: str | None) -> None:
    said: dict[str, int] = {}

    def worker(request: Request) -> Answer:
        if request.is_write:
            said["busy"] = refusals
            return Answer(204)
        if said.get("busy", 0) > 0:
            said["busy"] -= 1
            return Answer(503)
        options = json.dumps({OWNER_PROPERTY: "trade"})
        return Answer(404) if said else answer_json({"customRuntimeOptions": options, "cleanupSubscription": False})

    with serving(worker) as server:
        admin = HttpAdmin(Connection(server.url), limit=limit, pause=lambda _: None)
        change = Delete(ENRICH, ChangeContext("trade", "no longer declared"))
        with pytest.raises(WriteFailedError, match=refused) if refused else nullcontext():
            delete_function(admin, change, marker="trade", allowed=True)
        assert [one.method for one in server.requests if one.is_write] == ["DELETE"]


def test_a_changed_setting_that_may_be_secret_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodoctl.pulsar.admin.confirmed_write.PATIENCE_S", 0.0)
    recorded = {"transformFunctionConfig": "1"}

    def worker(request: Request) -> Answer:
        if request.is_write:
            recorded["transformFunctionConfig"] = "2"
            return Answer(204)
        options = json.dumps({OWNER_PROPERTY: "trade", DECLARED_PROPERTY: recorded})
        return answer_json({"customRuntimeOptions": options, "processingGuarantees": "ATLEAST_ONCE"})

    after = FunctionResource(
        HERE, "s", "", "java", frozenset(), f"{HERE}/s", kind="sink", settings='{"transformFunctionConfig":"2"}'
    )
    with serving(worker) as server:
        admin = HttpAdmin(Connection(server.url))
        live = read_function(admin, "sink", HERE, "s", after)
        assert live is not None
        assert isinstance(live.resource, FunctionResource)
        assert live.resource.settings == '{"transformFunctionConfig":"(not shown)"}'
        update_function(admin, live.resource, after, "trade", "trade")
    assert recorded == {"transformFunctionConfig": "2"}


def test_stats_that_cannot_be_read_after_a_deletion_make_it_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodoctl.pulsar.admin.confirmed_write.PATIENCE_S", 0.1)
    said: list[str] = []

    def worker(request: Request) -> Answer:
        if request.is_write:
            said.append(request.method)
            return Answer(204)
        if "functions" not in request.path:
            return Answer(503)
        return Answer(404) if said else answer_json({"customRuntimeOptions": json.dumps({OWNER_PROPERTY: "trade"})})

    with serving(worker) as server:
        admin = HttpAdmin(Connection(server.url), limit=0.0, pause=lambda _: None)
        change = Delete(ENRICH, ChangeContext("trade", "no longer declared"))
        delete_function(admin, change, marker="trade", allowed=True)
        assert said == ["DELETE"]
