"""Reader of the functions of a namespace, and the form in which a function worker takes one.

Pulsar gives functions no properties, and never shows their package. kodoctl therefore keeps its marker and the package
that it wrote last in `customRuntimeOptions`, which code and worker do not read, and customizers on Kubernetes read as a
JSON object whose other members they ignore.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kodoctl.errors import ClusterError, error
from kodoctl.protocol.properties import OWNER_PROPERTY, PACKAGE_PROPERTY
from kodoctl.pulsar.admin.admin import Admin, functions_path, must
from kodoctl.pulsar.admin.admin_http import multipart
from kodoctl.pulsar.values.live_objects import NO_WORKER, FunctionFacts, LiveObject
from kodoctl.text.escaping import one_line
from kodoctl.topology.function_settings import settings_text
from kodoctl.topology.names import InvalidNameError, NamespaceName, TopicName
from kodoctl.topology.resources import BUILTIN, FunctionResource

GUARANTEES: Final = {
    "at_least_once": "ATLEAST_ONCE",
    "at_most_once": "ATMOST_ONCE",
    "effectively_once": "EFFECTIVELY_ONCE",
    "manual": "MANUAL",
}
_NAMES: Final = {sent: name for name, sent in GUARANTEES.items()}
_NOT_ENABLED: Final = "Function Worker is not enabled"


def read_functions(admin: Admin, namespace: NamespaceName) -> list[LiveObject] | str:
    """Reads all functions of a namespace, with their instances; the reason as text if any of them cannot be read."""
    try:
        names = must(admin.call("GET", functions_path(namespace), patient=False), f"listing functions of {namespace}")
        if not isinstance(names, list):
            return "the answer to a request for their names is no list"
        found = [read_function(admin, namespace, name) for name in names]
    except ClusterError as problem:
        why = problem.diagnostics[0].detail
        return NO_WORKER if _NOT_ENABLED in why else why.replace("\n", "; ")
    return [one for one in found if one is not None]


def read_function(admin: Admin, namespace: NamespaceName, name: str) -> LiveObject | None:
    """Reads a function and its instances; None if there is no such function. Raises ClusterError."""
    path = functions_path(namespace, name)
    reply = admin.call("GET", path, patient=False)
    if reply.missing:
        return None
    config = must(reply, f"reading the function {namespace}/{name}")
    if not isinstance(config, dict):
        raise ClusterError(error("K510", "the broker refused a request", f"{reply} without the function"))
    status = admin.call("GET", f"{path}/status", patient=False)
    return parse(namespace, name, config, status.data if status.ok and isinstance(status.data, dict) else None)


def parse(
    namespace: NamespaceName, name: str, config: Mapping[str, Any], status: Mapping[str, Any] | None
) -> LiveObject:
    """Converts the JSON of a function, and of its status (None: not known), to a live object."""
    options = options_of(config)
    needs = config.get("resources") or {}
    sent = str(config.get("processingGuarantees"))
    resource = FunctionResource(
        namespace=namespace,
        name=name,
        package=str((options or {}).get(PACKAGE_PROPERTY, "")),
        runtime=str(config.get("runtime")).lower(),
        inputs=frozenset(_full(topic) for topic in config.get("inputSpecs") or {}),
        subscription=config.get("subName") or f"{namespace}/{name}",
        class_name=config.get("className") or "",
        output=_full(config["output"]) if config.get("output") else "",
        start="earliest" if config.get("subscriptionPosition") == "Earliest" else "latest",
        parallelism=int(config.get("parallelism") or 1),
        guarantees=_NAMES.get(sent, sent),
        config=settings_text(config.get("userConfig") or {}),
        cpu=needs.get("cpu"),
        memory=needs.get("ram"),
        disk=needs.get("disk"),
    )
    marker = (options or {}).get(OWNER_PROPERTY)
    facts = FunctionFacts(cleans_up=config.get("cleanupSubscription") is not False, has_foreign_options=options is None)
    if status is not None:
        problems = [one["status"].get("error") for one in status.get("instances") or [] if one.get("status")]
        error_text = next((one_line(str(text)) for text in problems if text), "")
        facts = replace(facts, instances=status.get("numInstances"), running=status.get("numRunning"), error=error_text)
    return LiveObject(resource, marker if isinstance(marker, str) else None, facts)


def options_of(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The runtime options of a function as a JSON object, {} if it has none; None if they are a text of another form, in
    which no marker fits.
    """
    try:
        found = json.loads(config.get("customRuntimeOptions") or "{}")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def request_form(
    function: FunctionResource, owner: str, options: Mapping[str, Any], before: FunctionResource | None
) -> tuple[bytes, str]:
    """Body and content type of the request that creates a function (`before` None) or updates it. `owner`: name for its
    marker; `options`: its runtime options so far.

    An update contains the URL of a package only if it changed, because the worker would load it again. It contains no
    subscription, because the worker refuses even the name that it gave itself.
    """
    marked = {**options, OWNER_PROPERTY: owner, PACKAGE_PROPERTY: function.package}
    config: dict[str, Any] = {
        "className": function.class_name or None,
        "output": function.output or None,
        "runtime": function.runtime.upper(),
        "parallelism": function.parallelism,
        "processingGuarantees": GUARANTEES[function.guarantees],
        "userConfig": json.loads(function.config),
        "customRuntimeOptions": json.dumps(marked, sort_keys=True),
    }
    needs = {"cpu": function.cpu, "ram": function.memory, "disk": function.disk}
    if any(value is not None for value in needs.values()):
        config["resources"] = needs
    if before is None:
        config["inputs"] = sorted(function.inputs)
        config["subName"] = function.subscription
        config["subscriptionPosition"] = function.start.capitalize()
    parts = {}
    if function.package.startswith(BUILTIN):
        config["jar"] = function.package
    elif before is None or before.package != function.package:
        parts["url"] = function.package
    sent = {name: value for name, value in config.items() if value is not None}
    return multipart({"functionConfig": json.dumps(sent), **parts})


def _full(topic: str) -> str:
    """Full name of a topic as somebody wrote it: `topic`, `tenant/namespace/topic` or a full name; a pattern stays."""
    short = topic if "/" in topic else f"public/default/{topic}"
    try:
        return TopicName.parse(short).full
    except InvalidNameError:
        return topic
