# pure: every branch is tested
"""Resources of the functions and connectors that a topology declares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from kodoctl.topology import defaults
from kodoctl.topology.function_settings import settings_text
from kodoctl.topology.model.function import Function, IoSource, Sink
from kodoctl.topology.names import TopicName, produced_topic, ready_name
from kodoctl.topology.resources import FunctionKind, FunctionResource

if TYPE_CHECKING:
    from kodoctl.topology.model.topology import Topology
    from kodoctl.topology.names import NamespaceName


def declared_functions(spec: Topology) -> Iterator[tuple[FunctionKind, str, Function | Sink | IoSource]]:
    """Yields (kind, name, declaration) of every function, sink and IO source of a file."""
    yield from (("function", name, function) for name, function in spec.functions.items())
    yield from (("sink", name, sink) for name, sink in spec.sinks.items())
    yield from (("io_source", name, source) for name, source in spec.io_sources.items())


def function_resources(spec: Topology, namespace: NamespaceName) -> Iterator[FunctionResource]:
    """Yields the resource of every function, sink and IO source of a file."""
    for kind, name, function in declared_functions(spec):
        needs, secrets = function.resources, function.secrets
        shared = FunctionResource(
            kind=kind,
            namespace=namespace,
            name=name,
            package=function.package,
            runtime="java",
            inputs=frozenset(),
            subscription="",
            class_name=function.class_name or "",
            parallelism=function.parallelism,
            guarantees=function.guarantees,
            config=settings_text(function.config),
            settings=settings_text(function.settings),
            secrets=None if secrets is None else settings_text({k: one.model_dump() for k, one in secrets.items()}),
            cpu=None if needs is None else needs.cpu,
            memory=None if needs is None or needs.memory is None else int(needs.memory),
            disk=None if needs is None or needs.disk is None else int(needs.disk),
        )
        match function:
            case Function(runtime=runtime, output=output):
                yield replace(_reader(shared, spec, function), runtime=runtime, output=_output(namespace, output) or "")
            case Sink(retries=retries, redelivery_delay=delay):
                yield replace(
                    _reader(shared, spec, function),
                    retries=retries,
                    dead_letter_topic=_output(namespace, function.dead_letter_topic),
                    redelivery_delay=None if delay is None else int(delay),
                )
            case _:
                yield replace(shared, output=_output(namespace, function.output) or "")


def _reader(shared: FunctionResource, spec: Topology, function: Function | Sink) -> FunctionResource:
    """The function or sink with its inputs and its subscription."""
    here = shared.namespace
    inputs = (topic for target in function.inputs for topic in _input_topics(spec, here, target))
    return replace(
        shared,
        inputs=frozenset(topic.full for topic in inputs) | frozenset(filter(None, [function.inputs_pattern])),
        pattern=function.inputs_pattern or "",
        subscription=function.subscription or f"{here}/{shared.name}",
        start=function.start,
    )


def _output(namespace: NamespaceName, target: str | None) -> str | None:
    return None if target is None else produced_topic(namespace, target).full


def _input_topics(spec: Topology, namespace: NamespaceName, target: str) -> Iterator[TopicName]:
    """Yields the ready topics of all levels of a ground topic of the file, draining ones included; for any other text
    the one topic that it names (`produced_topic`).
    """
    ground = spec.topics.get(target)
    if ground is None:
        yield produced_topic(namespace, target)
        return
    for level in defaults.read_levels(ground):
        yield TopicName(namespace, ready_name(target, level))
