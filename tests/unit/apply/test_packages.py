"""Packages: uploaded once, with their digest last, and deleted only where nothing is known to use them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from kodoctl.apply.packages import delete_package, mark_package, upload_package
from kodoctl.errors import ClusterError
from kodoctl.plan.changes import ChangeContext, Delete
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.values.live_objects import NO_WORKER_HERE
from kodoctl.topology.resources import PackageResource
from tests.samples.inventories import HERE
from tests.services.servers import Answer, Request, answer_json, serving

CONTENT = b"\x00jar\xff"
DIGEST = sha256(CONTENT).hexdigest()
OURS = {"kodoctl": "trade", "kodoctl-sha256": DIGEST}


class Store:
    """The packages of a broker: `properties` of the one that there is, None: none; `refuses`: the status of an upload."""

    def __init__(self, properties: dict[str, str] | None = None, refuses: int = 204) -> None:
        self.properties, self.refuses = properties, refuses
        self.functions: list[str] = []
        self.unread = 0  # answers of 503 after a deletion
        self.sent: list[str] = []

    def answer(self, request: Request) -> Answer:
        if request.is_write:
            self.sent.append(request.method)
            if request.method == "POST":
                head = request.body.partition(b'name="metadata"')[2].partition(b"\r\n\r\n")[2].partition(b"\r\n--")[0]
                self.properties = json.loads(head)["properties"]
                assert b'filename="file"' in request.body
                assert CONTENT in request.body
                return Answer(self.refuses)
            self.properties = json.loads(request.body)["properties"] if request.method == "PUT" else None
            return Answer(204)
        if self.sent == ["DELETE"] and self.unread:
            self.unread -= 1
            return Answer(503)
        if "/v3/packages/" in request.path:
            found: Any = {"description": "d", "properties": self.properties}
            return Answer(404) if self.properties is None else answer_json(found)
        if request.path.endswith("/x"):
            return answer_json({"customRuntimeOptions": json.dumps({"kodoctl-package": self.functions[0]})})
        return answer_json(["x"] if self.functions and "functions" in request.path else [])


@contextmanager
def _admin(store: Store) -> Iterator[HttpAdmin]:
    with serving(store.answer) as server:
        admin = HttpAdmin(Connection(server.url), limit=0.0, pause=lambda _: None)
        yield admin
        admin.close()


@pytest.fixture
def package(tmp_path: Path) -> PackageResource:
    file = tmp_path / "x.jar"
    file.write_bytes(CONTENT)
    return PackageResource("function", HERE, "enrich", "1", DIGEST, str(file))


def test_the_digest_is_written_when_all_of_the_content_is_there(package: PackageResource) -> None:
    store = Store()
    with _admin(store) as admin:
        upload_package(admin, package, "trade")
    assert (store.sent, store.properties) == (["POST", "PUT"], OURS)
    broken = Store(refuses=503)
    with _admin(broken) as admin, pytest.raises(ClusterError):
        upload_package(admin, package, "trade")
    assert (broken.sent, broken.properties) == (["POST"], {"kodoctl": "trade"})


def test_only_the_planned_file_is_uploaded_and_only_where_the_version_is_free(package: PackageResource) -> None:
    store = Store(properties={})
    with _admin(store) as admin:
        with pytest.raises(WriteFailedError, match="somebody made this version"):
            upload_package(admin, package, "trade")
        Path(package.file).write_bytes(b"other")
        with pytest.raises(WriteFailedError, match="not the file that was planned"):
            upload_package(admin, package, "trade")
        Path(package.file).unlink()
        with pytest.raises(WriteFailedError, match="No such file"):
            upload_package(admin, package, "trade")
    assert not store.sent


def test_only_the_package_that_the_plan_saw_gets_another_owner(package: PackageResource) -> None:
    store = Store({**OURS, "kodoctl": "old", "team": "a"})
    with _admin(store) as admin:
        mark_package(admin, package, "trade", "old")
        assert store.properties == {**OURS, "team": "a"}
        with pytest.raises(WriteFailedError, match="made it anew"):
            mark_package(admin, package, "bank", "old")


@pytest.mark.parametrize(
    ("properties", "used", "allowed", "refused"),
    [
        (OURS, None, True, None),
        (None, None, True, None),
        (OURS, None, False, "nobody allowed the deletion"),
        (OURS, "function://acme/ns/enrich@1", True, "function.acme/ns/x would not start any more"),
        (OURS, "function://acme/ns/enrich", True, "function.acme/ns/x would not start any more"),
        (OURS, "function://acme/ns/enrich@2", True, None),
        ({**OURS, "kodoctl": "bank"}, None, True, "belongs to bank"),
        ({**OURS, "kodoctl-sha256": "x"}, None, True, "other content since the plan"),
    ],
)
def test_a_package_is_deleted_by_leave_and_if_nothing_is_known_to_use_it(
    package: PackageResource, properties: dict[str, str] | None, used: str | None, *, allowed: bool, refused: str | None
) -> None:
    store = Store(properties)
    store.functions = [used] if used else []
    change = Delete(package, ChangeContext("trade", "no longer declared"))
    with _admin(store) as admin:
        if refused:
            with pytest.raises(WriteFailedError, match=refused):
                delete_package(admin, change, marker="trade", allowed=allowed)
        else:
            delete_package(admin, change, marker="trade", allowed=allowed)
    assert store.sent == ([] if refused or properties is None else ["DELETE"])


def test_a_deletion_that_cannot_be_read_back_at_once_is_read_again(package: PackageResource) -> None:
    store = Store(OURS)
    store.unread = 2
    with _admin(store) as admin:
        delete_package(
            admin, Delete(package, ChangeContext("trade", "no longer declared")), marker="trade", allowed=True
        )
    assert (store.sent, store.unread) == (["DELETE"], 0)


@pytest.mark.parametrize(
    ("status", "reason", "unknown", "refused"),
    [
        (503, "Function worker service is not done initializing", [NO_WORKER_HERE], True),
        (409, "Function Worker is not enabled", ["503"], True),
        (409, "Function Worker is not enabled", [], True),
        (409, "Function Worker is not enabled", [NO_WORKER_HERE], False),
    ],
)
def test_a_package_whose_use_cannot_be_known_is_deleted_only_where_the_plan_said_so(
    package: PackageResource, status: int, reason: str, unknown: list[str], *, refused: bool
) -> None:
    """A broker without function workers refused what the plan had allowed, for ever."""
    store = Store(OURS)

    def answer(request: Request) -> Answer:
        if "/v3/packages/" in request.path:
            return store.answer(request)
        return answer_json({"reason": reason}, status)

    change = Delete(package, ChangeContext("trade", "no longer declared"))
    with serving(answer) as server:
        admin = HttpAdmin(Connection(server.url), limit=0.0, pause=lambda _: None)
        if refused:
            with pytest.raises(WriteFailedError, match="is not known"):
                delete_package(admin, change, marker="trade", allowed=True, unknown=unknown)
        else:
            delete_package(admin, change, marker="trade", allowed=True, unknown=unknown)
        admin.close()
    assert store.sent == ([] if refused else ["DELETE"])
