"""Reader of the functions and connectors of a namespace, and their form in requests to the function worker.

Pulsar gives functions no properties, and shows no package but that of a builtin connector (`archive`). kodoctl
therefore keeps its marker, and the package that it wrote last, in `customRuntimeOptions`. Neither the function's code
nor the worker reads that text; customizers on Kubernetes read it as a JSON object, and ignore members that they do not
know. To the worker, sinks and sources of Pulsar IO are functions, some of whose settings have other names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kodoctl.errors import ClusterError, error
from kodoctl.protocol.properties import OWNER_PROPERTY, PACKAGE_PROPERTY
from kodoctl.pulsar.admin.admin import Admin, functions_path, must
from kodoctl.pulsar.admin.admin_http import multipart
from kodoctl.pulsar.values.live_objects import NO_WORKER, FunctionFacts, LiveObject
from kodoctl.text.escaping import one_line
from kodoctl.topology.function_settings import settings_text, text_without_secrets
from kodoctl.topology.names import InvalidNameError, NamespaceName, TopicName
from kodoctl.topology.resources import BUILTIN, FUNCTION_KINDS, Address, FunctionKind, FunctionResource

GUARANTEES: Final = {
    "at_least_once": "ATLEAST_ONCE",
    "at_most_once": "ATMOST_ONCE",
    "effectively_once": "EFFECTIVELY_ONCE",
    "manual": "MANUAL",
}
_NAMES: Final = {sent: name for name, sent in GUARANTEES.items()}
_NOT_ENABLED: Final = "Function Worker is not enabled"


@dataclass(frozen=True, slots=True)
class _Words:
    """Names that the API has for the parts of a function of one kind; "" for a part that this kind has not."""

    form: str
    package: str
    config: str
    output: str
    subscription: str
    start: str


_WORDS: Final[Mapping[FunctionKind, _Words]] = {
    "function": _Words("functionConfig", "jar", "userConfig", "output", "subName", "subscriptionPosition"),
    "sink": _Words("sinkConfig", "archive", "configs", "", "sourceSubscriptionName", "sourceSubscriptionPosition"),
    "io_source": _Words("sourceConfig", "archive", "configs", "topicName", "", ""),
}


def read_functions(
    admin: Admin, kind: FunctionKind, namespace: NamespaceName
) -> tuple[list[LiveObject], dict[Address, str]]:
    """Reads all functions or connectors of one kind in a namespace, with their instances. Returns (objects, address ->
    reason for each object that is listed and cannot be read). If the list itself cannot be read, the reason is under
    `KIND.TENANT/NAMESPACE`. Never raises ClusterError.
    """
    here = f"{kind}.{namespace}"
    try:
        reply = admin.call("GET", functions_path(kind, namespace), patient=False)
        names = must(reply, f"listing {FUNCTION_KINDS[kind]} of {namespace}")
    except ClusterError as problem:
        why = _reason(problem)
        return [], {here: NO_WORKER if _NOT_ENABLED in why else why}
    if not isinstance(names, list):
        return [], {here: "the answer to a request for their names is no list"}
    objects, unread = [], {}
    for name in names:
        try:
            found = read_function(admin, kind, namespace, name)
        except ClusterError as problem:
            unread[f"{here}/{name}"] = _reason(problem)
        else:
            objects += [found] if found is not None else []
    return objects, unread


def _reason(problem: ClusterError) -> str:
    return problem.diagnostics[0].detail.replace("\n", "; ")


def read_function(admin: Admin, kind: FunctionKind, namespace: NamespaceName, name: str) -> LiveObject | None:
    """Reads a function or connector and its instances; None if there is none with this name. Raises ClusterError."""
    path = functions_path(kind, namespace, name)
    reply = admin.call("GET", path, patient=False)
    if reply.missing:
        return None
    config = must(reply, f"reading {kind}.{namespace}/{name}")
    if not isinstance(config, dict):
        raise ClusterError(error("K510", "the broker refused a request", f"{reply} without the function"))
    status = admin.call("GET", f"{path}/status", patient=False)
    found = status.data if status.ok and isinstance(status.data, dict) else None
    return parse(kind, namespace, name, config, found)


def parse(
    kind: FunctionKind,
    namespace: NamespaceName,
    name: str,
    config: Mapping[str, Any],
    status: Mapping[str, Any] | None,
) -> LiveObject:
    """Converts the JSON of a function or connector, and of its status (None: not known), to a live object."""
    options = options_of(config)
    words, needs = _WORDS[kind], config.get("resources") or {}
    sent = str(config.get("processingGuarantees"))
    output = config.get(words.output)
    resource = FunctionResource(
        kind=kind,
        namespace=namespace,
        name=name,
        package=str(config.get("archive") or (options or {}).get(PACKAGE_PROPERTY, "")),
        runtime="java" if kind != "function" else str(config.get("runtime")).lower(),
        inputs=frozenset(_full(topic) for topic in config.get("inputSpecs") or {}),
        subscription=(config.get(words.subscription) or f"{namespace}/{name}") if words.subscription else "",
        class_name=config.get("className") or "",
        output=_full(output) if output else "",
        start="earliest" if config.get(words.start) == "Earliest" else "latest",
        parallelism=int(config.get("parallelism") or 1),
        guarantees=_NAMES.get(sent, sent),
        config=settings_text(config.get(words.config) or {}),
        secrets=settings_text(_references(config.get("secrets") or {})),
        cpu=needs.get("cpu"),
        memory=needs.get("ram"),
        disk=needs.get("disk"),
    )
    if kind == "sink":
        dead = config.get("deadLetterTopic")
        resource = replace(
            resource,
            retries=config.get("maxMessageRetries"),
            dead_letter_topic=_full(dead) if dead else None,
            redelivery_delay=config.get("negativeAckRedeliveryDelayMs"),
        )
    marker = (options or {}).get(OWNER_PROPERTY)
    cleans_up = bool(words.subscription) and config.get("cleanupSubscription") is not False
    facts = FunctionFacts(cleans_up=cleans_up, has_foreign_options=options is None)
    if status is not None:
        problems = [one["status"].get("error") for one in status.get("instances") or [] if one.get("status")]
        error_text = next((one_line(text_without_secrets(str(text))) for text in problems if text), "")
        facts = replace(facts, instances=status.get("numInstances"), running=status.get("numRunning"), error=error_text)
    return LiveObject(resource, marker if isinstance(marker, str) else None, facts)


def options_of(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The runtime options of a function as a JSON object, {} if it has none; None if they are a text of another form,
    in which no marker fits.
    """
    try:
        found = json.loads(config.get("customRuntimeOptions") or "{}")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def options_form(function: FunctionResource, options: Mapping[str, Any]) -> tuple[bytes, str]:
    """Body and content type of the request that sets nothing but the runtime options of a function."""
    return _form(function, {"customRuntimeOptions": json.dumps(options, sort_keys=True)})


def request_form(
    function: FunctionResource, owner: str, options: Mapping[str, Any], before: FunctionResource | None
) -> tuple[bytes, str]:
    """Body and content type of the request that creates a function (`before` None) or updates it. `owner`: owner for
    its marker; `options`: its present runtime options.

    An update contains the URL of a package only if the package changed, because the worker would load it again. It
    contains no subscription, because the worker refuses a subscription in an update, even its present one.
    """
    words = _WORDS[function.kind]
    marked = {**options, OWNER_PROPERTY: owner, PACKAGE_PROPERTY: function.package}
    config: dict[str, Any] = {
        "className": function.class_name or None,
        "parallelism": function.parallelism,
        "processingGuarantees": GUARANTEES[function.guarantees],
        words.config: json.loads(function.config),
        "customRuntimeOptions": json.dumps(marked, sort_keys=True),
    }
    if function.kind == "function":
        config["runtime"] = function.runtime.upper()
    if function.output:
        config[words.output] = function.output
    if function.secrets is not None:
        config["secrets"] = json.loads(function.secrets)
    needs = {"cpu": function.cpu, "ram": function.memory, "disk": function.disk}
    if any(value is not None for value in needs.values()):
        config["resources"] = needs
    if before is None and words.subscription:
        config["inputs"] = sorted(function.inputs)
        config[words.subscription] = function.subscription
        config[words.start] = function.start.capitalize()
        config["maxMessageRetries"] = function.retries
        config["deadLetterTopic"] = function.dead_letter_topic
        config["negativeAckRedeliveryDelayMs"] = function.redelivery_delay
    parts = {}
    if function.package.startswith(BUILTIN):
        config[words.package] = function.package
    elif before is None or before.package != function.package:
        parts["url"] = function.package
    return _form(function, {name: value for name, value in config.items() if value is not None}, **parts)


def _references(secrets: Mapping[str, Any]) -> dict[str, Any]:
    """The secrets of a function by name. A value that is no reference may be the secret: None stands in its place."""
    return {
        name: value if isinstance(value, dict) and value.keys() == {"path", "key"} else None
        for name, value in secrets.items()
    }


def _form(function: FunctionResource, config: Mapping[str, Any], **parts: str) -> tuple[bytes, str]:
    return multipart({_WORDS[function.kind].form: json.dumps(config), **parts})


def _full(topic: str) -> str:
    """Full name of a topic as somebody wrote it: `topic`, `tenant/namespace/topic` or a full name; a pattern stays."""
    short = topic if "/" in topic else f"public/default/{topic}"
    try:
        return TopicName.parse(short).full
    except InvalidNameError:
        return topic
