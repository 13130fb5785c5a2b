"""K112, K113: functions and connectors that no worker would take or that would read what others read, and secrets in
their settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from kodoctl.errors import Severity, Where
from kodoctl.topology.function_expansion import declared_functions
from kodoctl.topology.function_settings import is_secret_name
from kodoctl.topology.lint.registry import LintScope, RuleMatch, rule
from kodoctl.topology.model.function import Function, Sink
from kodoctl.topology.names import InvalidNameError, TopicName, why_not_pulsar_name
from kodoctl.topology.resources import BUILTIN, FUNCTION_KINDS, FunctionResource, kind_label

if TYPE_CHECKING:
    from kodoctl.topology.expand import Expansion
    from kodoctl.topology.model.function import IoSource
    from kodoctl.topology.yaml.nodes import Path

UNUSABLE_FUNCTION: Final = "a function or connector that cannot work"


@dataclass(frozen=True, slots=True)
class _Declared:
    """A function or connector where a file declares it. `path`: of its entry."""

    expansion: Expansion
    path: Path
    resource: FunctionResource
    spec: Function | Sink | IoSource

    def where(self, *below: str | int) -> Where:
        """The place of the entry, or of a value in it."""
        topology = self.expansion.topology
        return topology.where(*self.path, *below) if below else topology.where_key(*self.path)

    @property
    def label(self) -> str:
        """Its kind and name in messages."""
        return f"{kind_label(self.resource.kind)} {self.resource.name!r}"


def _functions(scope: LintScope) -> Iterator[_Declared]:
    for expansion in scope.expansions:
        for kind, name, spec in declared_functions(expansion.topology.spec):
            resource = expansion.resources[f"{kind}.{expansion.namespace}/{name}"]
            assert isinstance(resource, FunctionResource)
            yield _Declared(expansion, (FUNCTION_KINDS[kind], name), resource, spec)


@rule("K112", Severity.ERROR, UNUSABLE_FUNCTION)
def function_names(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds names that Pulsar refuses, and names that two functions or connectors of a namespace have, in one file or
    several.
    """
    declared: dict[str, _Declared] = {}
    for one in _functions(scope):
        address = one.resource.address
        first = declared.setdefault(address.partition(".")[2], one)
        if reason := why_not_pulsar_name(one.resource.name):
            yield RuleMatch(one.where(), f"{one.label}: {reason}")
        elif first.resource.address != address:
            detail = f"{first.resource.address} has its name, and a worker has one name once: name another one"
            yield RuleMatch(one.where(), f"{one.label}: {detail}")
        elif first is not one:
            yield RuleMatch(one.where(), f"{first.expansion.name} declares {address} too: keep it in one file")


@rule("K112", Severity.ERROR, UNUSABLE_FUNCTION)
def function_topics(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds inputs, outputs and dead letter topics that are neither a ground topic of the file nor a valid full name;
    an output or dead letter topic that is an input, too; and a `subscription` by which workers read an input. Topics of
    `inputs_pattern` are not checked.
    """
    for one in _functions(scope):
        yield from _topics_of(one)
        if isinstance(one.spec, Function | Sink):
            yield from _shared_with_workers(one, one.spec, scope)


def _topics_of(one: _Declared) -> Iterator[RuleMatch]:
    spec, resource = one.spec, one.resource
    targets: list[tuple[Path, str]] = []
    if isinstance(spec, Function | Sink):
        targets += [(("inputs", index), target) for index, target in enumerate(spec.inputs)]
    key = "dead_letter_topic" if isinstance(spec, Sink) else "output"
    written = getattr(spec, key)
    if written is not None:
        targets.append(((key,), written))
    for place, target in targets:
        if problem := _why_no_topic(target, one.expansion):
            yield RuleMatch(one.where(*place), f"{target!r} {problem}")
    output = resource.output or resource.dead_letter_topic
    if output in resource.inputs:
        refused = "" if isinstance(spec, Sink) else ", which Pulsar refuses"
        yield RuleMatch(one.where(key), f"it would read what it writes{refused}: {output}")


def _shared_with_workers(one: _Declared, spec: Function | Sink, scope: LintScope) -> Iterator[RuleMatch]:
    if spec.subscription is None:
        return  # then a worker reads by one of the function's own
    for target in spec.inputs:
        ground = one.expansion.topology.spec.topics.get(target)
        full = f"persistent://{target.removeprefix('persistent://')}"
        declared = f"subscription.{full}/{spec.subscription}"
        if (ground is not None and spec.subscription in ground.subscriptions) or any(
            declared in other.resources for other in scope.expansions
        ):
            detail = f"workers read {target} by {spec.subscription!r}, and the {kind_label(one.resource.kind)} would take messages from them: name another one"
            yield RuleMatch(one.where("subscription"), detail)


@rule("K112", Severity.ERROR, UNUSABLE_FUNCTION)
def function_subscriptions(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds functions and sinks that read a topic by the same subscription as another function or sink: each would get
    a part of the messages, and the deletion of one would remove the subscription of both.
    """
    readers: dict[tuple[str, str], str] = {}
    for one in _functions(scope):
        resource = one.resource
        for topic in sorted(resource.inputs):
            other = readers.setdefault((topic, resource.subscription), resource.address)
            if other != resource.address:
                detail = (
                    f"{other} reads {topic} by {resource.subscription!r}, too: each would get a part of the messages,"
                    " and the deletion of one would take the subscription of both: name another one"
                )
                yield RuleMatch(one.where("subscription"), detail)
                break


def _why_no_topic(target: str, expansion: Expansion) -> str | None:
    topics = expansion.topology.spec.topics
    if "/" in target:
        try:
            TopicName.parse(target)
        except InvalidNameError:
            return "is no topic: write TENANT/NAMESPACE/TOPIC, or a ground topic of this file"
        return None
    if target in topics:
        return None
    near = get_close_matches(target, topics, 1)
    return f"is no topic of this file; {f'did you mean {near[0]!r}?' if near else 'write TENANT/NAMESPACE/TOPIC'}"


@rule("K112", Severity.ERROR, UNUSABLE_FUNCTION)
def function_code(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds functions without a `class`, except Go and builtin Java functions, which need none; and functions in a
    language other than Java that have `effectively_once` or name a builtin package. Connectors are not checked.
    """
    for one in _functions(scope):
        function = one.spec
        if not isinstance(function, Function):
            continue  # the archive of a connector names its class
        runtime, builtin = function.runtime, function.package.startswith(BUILTIN)
        of_package = runtime == "go" or (runtime == "java" and builtin)
        if function.class_name is None and not of_package:
            yield RuleMatch(one.where(), f"{one.label} needs its `class`, such as com.example.Enrich")
        if runtime != "java" and function.guarantees == "effectively_once":
            yield RuleMatch(one.where("guarantees"), f"{runtime} functions have no effectively_once")
        if runtime != "java" and builtin:
            yield RuleMatch(one.where("package"), f"a builtin function is Java, this one is {runtime}")


@rule("K112", Severity.ERROR, UNUSABLE_FUNCTION)
def function_settings(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds functions and sinks without inputs, and `settings` of functions and connectors that exclude each other,
    that `guarantees: effectively_once` excludes, or that have no effect without another one.
    """
    for one in _functions(scope):
        spec, settings = one.spec, one.spec.settings
        if isinstance(spec, Function | Sink) and not spec.inputs and spec.inputs_pattern is None:
            yield RuleMatch(one.where(), f"{one.label} reads nothing: name its `inputs`, or an `inputs_pattern`")
        if settings.get("retainOrdering") and settings.get("retainKeyOrdering"):
            yield RuleMatch(one.where("settings"), "retainOrdering and retainKeyOrdering exclude each other")
        if settings.get("retainKeyOrdering") and spec.guarantees == "effectively_once":
            yield RuleMatch(one.where("settings", "retainKeyOrdering"), "effectively_once keeps no order of keys")
        if settings.get("maxMessageRetries") is not None and spec.guarantees == "effectively_once":
            yield RuleMatch(one.where("settings", "maxMessageRetries"), "effectively_once gives no message up")
        if settings.get("deadLetterTopic") and settings.get("maxMessageRetries") is None:
            detail = f"{one.label} never gives up without maxMessageRetries: name their number"
            yield RuleMatch(one.where("settings", "deadLetterTopic"), detail)


@rule("K112", Severity.ERROR, UNUSABLE_FUNCTION)
def sink_retries(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds sinks with a `dead_letter_topic` but without `retries`, and sinks with `retries` and `effectively_once`:
    such a sink never gives a message up.
    """
    for one in _functions(scope):
        sink = one.spec
        if not isinstance(sink, Sink):
            continue
        if sink.dead_letter_topic is not None and sink.retries is None:
            yield RuleMatch(
                one.where("dead_letter_topic"), f"{one.label} never gives up without `retries`: name their number"
            )
        if sink.retries is not None and sink.guarantees == "effectively_once":
            detail = f"{one.label} has effectively_once, by which a failed message stops the instance: none is given up"
            yield RuleMatch(one.where("retries"), detail)


@rule("K112", Severity.ERROR, UNUSABLE_FUNCTION)
def declared_packages(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds packages whose name is invalid, of another namespace or in two files, and those whose file cannot be read."""
    declared: dict[str, Expansion] = {}
    for expansion in scope.expansions:
        topology = expansion.topology
        for name, package in topology.packages.items():
            where, found = topology.where_key("packages", name), package.resource
            if found is None:
                form = f"function://{expansion.namespace}/NAME@VERSION, or sink://, source://"
                yield RuleMatch(where, f"{name!r} is no package: write {form}")
            elif found.namespace != expansion.namespace:
                yield RuleMatch(where, f"{name} is in another namespace: declare it in a file of {found.namespace}")
            elif declared.setdefault(name, expansion) is not expansion:
                yield RuleMatch(where, f"{declared[name].name} declares {name} too: keep it in one file")
            elif package.problem is not None:
                detail = f"{found.file} of {name}: {package.problem}"
                yield RuleMatch(topology.where("packages", name, "file"), detail)


@rule("K113", Severity.WARNING, "a secret in the settings of a function or connector")
def function_secrets(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds values in `config` and `settings` of functions and connectors, at any depth, whose name says that they are
    secret: everybody who may read the file or the function in Pulsar can see them.
    """
    for one in _functions(scope):
        advised = {"config": ": name it in `secrets`", "settings": ""}  # a worker resolves secrets for `config` alone
        for key, advice in advised.items():
            for inner in _named_secret(getattr(one.spec, key)):
                detail = f"{'.'.join(map(str, inner))} of {one.label} stands in the file, and Pulsar shows it{advice}"
                yield RuleMatch(one.expansion.topology.where_key(*one.path, key, *inner), detail)


def _named_secret(settings: dict[str, Any], above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    for name, value in settings.items():
        if not isinstance(value, dict) and is_secret_name(str(name)):
            yield (*above, str(name))
        yield from _secrets_below(value, (*above, str(name)))


def _secrets_below(value: Any, above: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict):
        yield from _named_secret(value, above)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _secrets_below(one, (*above, index))
