"""A file's nodes -> the model, or the errors of pydantic."""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from kodoctl.topology.model.topology import VERSION, GroundTopic, Topology
from kodoctl.topology.yaml.nodes import MAX_FINDINGS, Node

# a ground topic is validated within a file, because building a validator of its own costs 0.1 s a start
_ANY_HEAD: Final = {"version": VERSION, "name": "n", "tenant": "t", "namespace": "n"}


def validate(merged: Node, root: Node, base: Topology | None) -> tuple[Topology | None, list[ErrorDetails]]:
    """The model of `merged`, ground topic by ground topic, so that a hopeless file is given up early.

    Ground topics that are the very nodes of `root` are taken from its model, `base`.
    """
    assert isinstance(merged.value, dict)
    plain: dict[str, object] = {key: node.plain() for key, node in merged.value.items() if key != "topics"}
    topics, before = merged.value.get("topics"), root.members("topics")
    if topics is not None:
        plain["topics"] = {} if isinstance(topics.value, dict) else topics.plain()
    head, details = _attempt(plain)
    grounds: dict[str, GroundTopic] = {}
    for name, node in merged.members("topics").items():
        if base is not None and before.get(name) is node:
            grounds[name] = base.topics[name]
            continue
        one, wrong = _attempt({**_ANY_HEAD, "topics": {name: node.plain()}})
        grounds |= one.topics if one else {}
        details += wrong
        if len(details) >= MAX_FINDINGS:
            break
    if head is None or details:
        return None, details[:MAX_FINDINGS]
    return head.model_copy(update={"topics": grounds}), []


def _attempt(document: dict[str, object]) -> tuple[Topology | None, list[ErrorDetails]]:
    try:
        return Topology.model_validate(document), []
    except ValidationError as problem:
        return None, problem.errors(include_url=False)
