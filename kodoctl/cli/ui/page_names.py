"""Lookup of topologies and lanes by the names that pages give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from kodoctl.errors import UsageError, error
from kodoctl.topology.names import HOLDER, State

if TYPE_CHECKING:
    from kodoctl.topology.expand import Expansion, FamilyTopic

T = TypeVar("T")


def of_topology(values: Mapping[str, T], topology: str) -> T:
    """Returns the value for the topology of this name. Raises UsageError (K022) if the command has no such topology."""
    if (found := values.get(topology)) is None:
        raise UsageError(error("K022", "unknown topic", f"there is no topology {topology!r} here"))
    return found


def lane_topic(expansion: Expansion, name: str) -> FamilyTopic:
    """The topic of a lane, by its name without tenant and namespace. Raises UsageError (K022) if there is none."""
    found = next((one for one in expansion.topics if one.name.local == name and one.state), None)
    if found is None:
        raise UsageError(error("K022", "unknown topic", f"{name} is no lane of {expansion.name}"))
    return found


def lane_reader(topic: FamilyTopic, subscription: str) -> str:
    """Name on Pulsar of the subscription that keeps the messages of a lane: HOLDER for dead letters, else
    `subscription`.
    """
    return HOLDER if topic.state is State.DEAD else subscription
