"""K112, K113: functions that no worker would take or that would read what others read, and secrets in their settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from kodoctl.errors import Severity
from kodoctl.topology.lint.registry import LintScope, RuleMatch, rule
from kodoctl.topology.names import InvalidNameError, TopicName, why_not_pulsar_name
from kodoctl.topology.resources import BUILTIN, FunctionResource

if TYPE_CHECKING:
    from kodoctl.topology.expand import Expansion
    from kodoctl.topology.model.function import Function
    from kodoctl.topology.yaml.nodes import Path

UNUSABLE_FUNCTION: Final = "a function that cannot work"
_SECRET: Final = re.compile("passw|secret|token|credential|api_?-?key|private_?-?key", re.IGNORECASE)


def _functions(scope: LintScope) -> Iterator[tuple[Expansion, Path, str, Function]]:
    """Yields (expansion, path in the file, name, function) for every function."""
    for expansion in scope.expansions:
        for name, function in expansion.topology.spec.functions.items():
            yield expansion, ("functions", name), name, function


def _resource(expansion: Expansion, name: str) -> FunctionResource:
    found = expansion.resources[f"function.{expansion.namespace}/{name}"]
    assert isinstance(found, FunctionResource)
    return found


@rule("K112", Severity.ERROR, UNUSABLE_FUNCTION)
def function_names(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds names that Pulsar cannot have, and functions that two files declare."""
    declared: dict[str, str] = {}
    for expansion, path, name, _ in _functions(scope):
        where = expansion.topology.where_key(*path)
        address = f"function.{expansion.namespace}/{name}"
        owner = declared.setdefault(address, expansion.name)
        if reason := why_not_pulsar_name(name):
            yield RuleMatch(where, f"function {name!r}: {reason}")
        elif owner != expansion.name:
            yield RuleMatch(where, f"{owner} declares {address} too: keep it in one file")


@rule("K112", Severity.ERROR, UNUSABLE_FUNCTION)
def function_topics(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds inputs and outputs that are no topics, an output that is an input, and a subscription that others read by."""
    for expansion, path, name, function in _functions(scope):
        topology = expansion.topology
        targets: list[tuple[Path, str]] = [(("inputs", index), target) for index, target in enumerate(function.inputs)]
        if function.output is not None:
            targets.append((("output",), function.output))
        for place, target in targets:
            if problem := _why_no_topic(target, expansion):
                yield RuleMatch(topology.where(*path, *place), f"{target!r} {problem}")
        resource = _resource(expansion, name)
        if resource.output in resource.inputs:
            detail = f"it would read what it writes, which Pulsar refuses: {resource.output}"
            yield RuleMatch(topology.where(*path, "output"), detail)
        for target in function.inputs:
            ground = topology.spec.topics.get(target)
            full = f"persistent://{target.removeprefix('persistent://')}"
            declared = f"subscription.{full}/{function.subscription}"
            if (ground is not None and function.subscription in ground.subscriptions) or any(
                declared in one.resources for one in scope.expansions
            ):
                detail = f"workers read {target} by {function.subscription!r}, and the function would take messages from them: name another one"
                yield RuleMatch(topology.where(*path, "subscription"), detail)


@rule("K112", Severity.ERROR, UNUSABLE_FUNCTION)
def function_subscriptions(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds functions that read a topic by the subscription of another one, which goes when either is deleted."""
    readers: dict[tuple[str, str], str] = {}
    for expansion, path, name, _ in _functions(scope):
        resource = _resource(expansion, name)
        for topic in sorted(resource.inputs):
            other = readers.setdefault((topic, resource.subscription), resource.address)
            if other != resource.address:
                detail = (
                    f"{other} reads {topic} by {resource.subscription!r}, too: each would get a part of the messages,"
                    " and the deletion of one would take the subscription of both: name another one"
                )
                yield RuleMatch(expansion.topology.where(*path, "subscription"), detail)
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
    """Finds a missing class, and guarantees that a language does not have."""
    for expansion, path, name, function in _functions(scope):
        topology, runtime = expansion.topology, function.runtime
        builtin = function.package.startswith(BUILTIN)
        of_package = runtime == "go" or (runtime == "java" and builtin)
        if function.class_name is None and not of_package:
            yield RuleMatch(
                topology.where_key(*path), f"function {name!r} needs its `class`, such as com.example.Enrich"
            )
        if runtime != "java" and function.guarantees == "effectively_once":
            yield RuleMatch(topology.where(*path, "guarantees"), f"{runtime} functions have no effectively_once")
        if runtime != "java" and builtin:
            yield RuleMatch(topology.where(*path, "package"), f"a builtin function is Java, this one is {runtime}")


@rule("K113", Severity.WARNING, "a secret in the settings of a function")
def function_secrets(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds settings whose name says that they are secret: files and Pulsar show them to many."""
    for expansion, path, name, function in _functions(scope):
        for inner in _named_secret(function.config):
            detail = f"{'.'.join(map(str, inner))} of function {name!r} stands in the file, and Pulsar shows it"
            yield RuleMatch(expansion.topology.where_key(*path, "config", *inner), detail)


def _named_secret(settings: dict[str, Any], above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    for name, value in settings.items():
        if not isinstance(value, dict) and _SECRET.search(str(name)):
            yield (*above, str(name))
        yield from _secrets_below(value, (*above, str(name)))


def _secrets_below(value: Any, above: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict):
        yield from _named_secret(value, above)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _secrets_below(one, (*above, index))
