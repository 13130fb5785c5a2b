"""Reader of the functions and connectors of a namespace, and their form in requests to the function worker.

Pulsar gives functions no properties, and shows no package but that of a builtin connector (`archive`). kodoctl
therefore keeps its marker, and the package and a digest of the settings that it wrote last, in `customRuntimeOptions`.
Neither the code of the function nor the worker reads that text; customizers on Kubernetes read it as a JSON object, and
ignore members that they do not know.

Settings of a function may be secrets. Those that no apply wrote and no file declares are therefore never read into a
plan: HIDDEN stands in their place. To the worker, sinks and sources of Pulsar IO are functions, some of whose settings
have other names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kodoctl.errors import ClusterError, error
from kodoctl.protocol.properties import DECLARED_PROPERTY, OWNER_PROPERTY, PACKAGE_PROPERTY, SETTINGS_PROPERTY
from kodoctl.pulsar.admin.admin import WITHOUT_WORKERS, Admin, functions_path, must
from kodoctl.pulsar.admin.admin_http import multipart
from kodoctl.pulsar.values.live_objects import NO_WORKER, NO_WORKER_HERE, FunctionFacts, LiveObject
from kodoctl.text.escaping import one_line
from kodoctl.topology.function_settings import (
    NOT_SHOWN,
    only_declared,
    settings_text,
    shown_settings,
    text_without_secrets,
    with_recorded,
)
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
    admin: Admin, kind: FunctionKind, namespace: NamespaceName, declared: Iterable[FunctionResource] = ()
) -> tuple[list[LiveObject], dict[Address, str]]:
    """Reads all functions or connectors of one kind in a namespace, with their instances. Returns (objects, address ->
    reason for each object that is listed and cannot be read). If the list itself cannot be read, the reason is under
    `KIND.TENANT/NAMESPACE`; only NO_WORKER means that there are none. `declared`: functions of files, whose settings
    may be shown. Nothing is read a second time if a broker is busy. Never raises ClusterError.
    """
    here = f"{kind}.{namespace}"
    known = {one.address: one for one in declared}
    try:
        reply = admin.call("GET", functions_path(kind, namespace), patient=False)
        names = must(reply, f"listing {FUNCTION_KINDS[kind]} of {namespace}")
    except ClusterError as problem:
        return [], {here: _reason(problem)}
    if not isinstance(names, list):
        return [], {here: "the answer to a request for their names is no list"}
    objects, unread = [], {}
    for name in names:
        try:
            found = read_function(admin, kind, namespace, name, known.get(f"{here}/{name}"))
        except ClusterError as problem:
            unread[f"{here}/{name}"] = _reason(problem)
        else:
            objects += [found] if found is not None else []
    return objects, unread


def _reason(problem: ClusterError) -> str:
    why = problem.diagnostics[0].detail.replace("\n", "; ")
    if WITHOUT_WORKERS in why:
        return NO_WORKER
    return NO_WORKER_HERE if _NOT_ENABLED in why else why


def read_function(
    admin: Admin, kind: FunctionKind, namespace: NamespaceName, name: str, declared: FunctionResource | None = None
) -> LiveObject | None:
    """Reads a function or connector and its instances; None if there is none with this name. `declared`: as a file or a
    plan has it, with settings that may be shown. Raises ClusterError; a refusal to tell the instances is no error, they
    are then unknown (None).
    """
    path = functions_path(kind, namespace, name)
    reply = admin.call("GET", path, patient=False)
    if reply.missing:
        return None
    config = must(reply, f"reading {kind}.{namespace}/{name}")
    if not isinstance(config, dict):
        raise ClusterError(error("K510", "the broker refused a request", f"{reply} without the function"))
    status = admin.call("GET", f"{path}/status", patient=False)
    found = status.data if status.ok and isinstance(status.data, dict) else None
    return parse(kind, namespace, name, config, found, declared)


def parse(
    kind: FunctionKind,
    namespace: NamespaceName,
    name: str,
    config: Mapping[str, Any],
    status: Mapping[str, Any] | None,
    declared: FunctionResource | None = None,
) -> LiveObject:
    """Converts the JSON of a function or connector, and of its status (None: not known), to a live object. Its `config`
    is that of the worker if an apply wrote exactly this last; else HIDDEN stands in place of each value, except true
    and false, that `declared` (None: nothing) does not have at the same place. Its `settings` are only those that the
    last apply or `declared` has. Values of `secrets` that are no references are None.
    """
    options = options_of(config)
    settings = settings_text(config.get(_WORDS[kind].config) or {})
    shown = settings
    if (options or {}).get(SETTINGS_PROPERTY) != _digest(settings):
        shown = settings_text(only_declared(json.loads(settings), json.loads(declared.config) if declared else {}))
    words, needs, inputs = _WORDS[kind], config.get("resources") or {}, config.get("inputSpecs") or {}
    sent = str(config.get("processingGuarantees"))
    output = config.get(words.output)
    resource = FunctionResource(
        kind=kind,
        namespace=namespace,
        name=name,
        package=str(config.get("archive") or (options or {}).get(PACKAGE_PROPERTY, "")),
        runtime="java" if kind != "function" else str(config.get("runtime")).lower(),
        inputs=frozenset(_full(topic) for topic in inputs),
        subscription=(config.get(words.subscription) or f"{namespace}/{name}") if words.subscription else "",
        class_name=config.get("className") or "",
        output=_full(output) if output else "",
        start="earliest" if config.get(words.start) == "Earliest" else "latest",
        parallelism=int(config.get("parallelism") or 1),
        guarantees=_NAMES.get(sent, sent),
        config=shown,
        pattern=next((name for name, spec in inputs.items() if (spec or {}).get("regexPattern")), ""),
        settings=_further_settings(config, options or {}, declared),
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
    hidden = "" if shown == settings else _slow_digest(settings, resource.address)
    return LiveObject(resource, marker if isinstance(marker, str) else None, facts, hidden=hidden)


def _further_settings(config: Mapping[str, Any], options: Mapping[str, Any], declared: FunctionResource | None) -> str:
    """Settings by Pulsar's names that the last apply wrote or a file declares, as they are; those of NOT_SHOWN as the
    last apply wrote them.
    """
    written = options.get(DECLARED_PROPERTY)
    recorded = written if isinstance(written, dict) else {}
    shape = {**recorded, **(json.loads(declared.settings) if declared else {})}
    shown = shown_settings(config, shape).items()
    found = {name: with_recorded(one, recorded.get(name)) if name in NOT_SHOWN else one for name, one in shown}
    name = "transformFunctionConfig"  # may have secrets, as `configs`
    return settings_text(found | ({name: only_declared(found[name], shape[name])} if name in found else {}))


def _digest(settings: str) -> str:
    return hashlib.sha256(settings.encode()).hexdigest()


def _slow_digest(settings: str, salt: str) -> str:
    """Digest of settings with secrets: a plan contains it in a fingerprint, so that guessing has to be expensive."""
    return hashlib.scrypt(settings.encode(), salt=salt.encode(), n=1 << 13, r=8, p=1).hex()


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
    """Body and content type of the request that sets nothing but the runtime options of a function, all of them."""
    return _form(function, {"customRuntimeOptions": json.dumps(options, sort_keys=True)})


def request_form(
    function: FunctionResource, owner: str, options: Mapping[str, Any], before: FunctionResource | None
) -> tuple[bytes, str]:
    """Body and content type of the request that creates a function (`before` None) or updates it. `owner`: owner for
    its marker; `options`: its present runtime options, which stay besides those of kodoctl.

    An update contains the URL of a package only if the package changed, because the worker would load it again; a
    builtin package is always named. It contains no subscription, because the worker refuses one in an update, even the
    present one; nor, except in `function.settings`, inputs, start, retries, dead letter topic and redelivery delay.
    """
    words = _WORDS[function.kind]
    marked = {
        **options,
        OWNER_PROPERTY: owner,
        PACKAGE_PROPERTY: function.package,
        SETTINGS_PROPERTY: _digest(function.config),
        DECLARED_PROPERTY: json.loads(function.settings),
    }
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
        config["inputs"] = sorted(function.inputs - {function.pattern}) or None
        config["topicsPattern"] = function.pattern or None
        config[words.subscription] = function.subscription
        config[words.start] = function.start.capitalize()
        config["maxMessageRetries"] = function.retries
        config["deadLetterTopic"] = function.dead_letter_topic
        config["negativeAckRedeliveryDelayMs"] = function.redelivery_delay
    config |= json.loads(function.settings)
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
