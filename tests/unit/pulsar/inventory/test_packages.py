"""Packages of functions and connectors: whether the cluster has them, and where that is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from kodoctl.pulsar.admin.admin import Admin, Reply
from kodoctl.pulsar.inventory.packages import missing_packages, read_packages
from kodoctl.topology.resources import FunctionKind, FunctionResource
from tests.samples.inventories import HERE

PLAIN = FunctionResource(HERE, "f", "", "java", frozenset(), "s")


class Cluster:
    """Answers GETs by path below `v3/`; a number is a refusal, and 404 stands for all others."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {name.replace("__", "@").replace("_", "/"): answer for name, answer in answers.items()}
        self.requests: list[str] = []
        self.reason = "no"

    def call(self, method: str, path: str, **_: Any) -> Reply:
        self.requests.append(path)
        answer = self.answers.get(path.removeprefix("v3/"), 404)
        status = answer if isinstance(answer, int) else 200
        return Reply(method, path, status, None if isinstance(answer, int) else answer, self.reason)


def missing(cluster: Cluster, *packages: str, kind: FunctionKind = "function") -> list[str]:
    functions = [replace(PLAIN, kind=kind, name=str(number), package=one) for number, one in enumerate(packages)]
    return list(missing_packages(cast("Admin", cluster), functions).values())


def test_a_package_of_the_cluster_is_there_or_not() -> None:
    cluster = Cluster(packages_function_a_b_c_1_metadata={}, packages_sink_a_b_c_latest_metadata={})
    assert missing(cluster, "function://a/b/c@1", "sink://a/b/c", "http://h/x.jar") == []
    assert missing(cluster, "function://a/b/c@2", "function://a/b/c@2") == ["the cluster has no function://a/b/c@2"] * 2
    assert len(cluster.requests) == 3
    for closed in (403, 503):
        assert missing(Cluster(packages_source_a_b_c_1_metadata=closed), "source://a/b/c@1") == []


def test_builtin_packages_are_those_of_the_kind() -> None:
    cluster = Cluster(sinks_builtinsinks=[{"name": "jdbc"}], sources_builtinsources=[], functions_builtins=503)
    assert missing(cluster, "builtin://jdbc", "builtin://x", kind="sink") == [
        "the worker has no builtin://x; it has jdbc"
    ]
    assert cluster.requests == ["v3/sinks/builtinsinks"]
    assert missing(cluster, "builtin://x", kind="io_source") == ["the worker has no builtin://x; it has none"]
    assert missing(cluster, "builtin://x", "builtin://y") == []
    assert cluster.requests.count("v3/functions/builtins") == 1


def test_packages_of_a_namespace_are_listed_for_an_import() -> None:
    cluster = Cluster(packages_function_acme_ns=["enrich"], packages_sink_acme_ns=503)
    assert read_packages(cast("Admin", cluster), HERE) == {
        "package.function://acme/ns/enrich": "its content is no file here: functions name it; `packages` takes new versions",
        "namespace.acme/ns packages": "they cannot be read: GET v3/packages/sink/acme/ns answered 503 (no)",
    }


def test_a_cluster_without_the_service_has_no_packages() -> None:
    cluster = Cluster(packages_function_acme_ns=503, packages_sink_acme_ns=503)
    cluster.reason = "Package Management Service is not enabled in the broker."
    assert read_packages(cast("Admin", cluster), HERE) == {}
