"""States of declared topics that no policy shows: terminated topics (K442), and live schemas that producers without a
schema do not fit (K443).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from kodoctl.errors import Diagnostic, Where, warning
from kodoctl.plan.changes import Adopt, Update
from kodoctl.plan.policy_levels import levels_of, namespace_changes
from kodoctl.pulsar.admin.admin_http import CONNECTIONS
from kodoctl.pulsar.inventory.schema_reader import read_schema
from kodoctl.pulsar.inventory.undeclarable import terminated_partitions
from kodoctl.pulsar.values.live_objects import TopicFacts
from kodoctl.topology.names import State
from kodoctl.topology.resources import NamespaceResource, SchemaResource, TopicResource, topic_address

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired
    from kodoctl.plan.plan import Plan
    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.pulsar.values.live_objects import Live
    from kodoctl.topology.names import TopicName


def topic_state_findings(
    admin: Admin, desired: Desired, live: Live, plan: Plan, *, of_all: bool
) -> Iterator[Diagnostic]:
    """Yields a warning (K442) for each topic that was terminated (its first partition is asked), so that it takes no
    more messages, and one (K443) for each ready topic that has a schema, and will refuse producers without one though
    the file declares none. Both look at the topics that the plan adopts or updates; K443 also at live topics whose
    schema validation the plan turns on, or whose validation is on though no file names it. Blocks; raises ClusterError.

    `of_all`: K442 looks at all declared topics without a connected producer as well; no figure of a topic tells that it
    was terminated. Each of both sends one request for each topic that it looks at.
    """
    places = {
        change.before.name: (change.before, change.about.where)
        for change in plan.changes
        if isinstance(change, Adopt | Update) and isinstance(change.before, TopicResource)
    }
    silent = _without_producers(desired, live) if of_all else {}
    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="state") as pool:
        ended = pool.map(lambda one: _terminated(admin, *one), {**silent, **places}.values())
        yield from filter(None, ended)
        wanted = [
            (topic, where)
            for topic, (where, is_new) in _without_schema(desired, live, plan).items()
            if topic in places or (is_new and topic_address(topic) in live.objects)
        ]
        yield from filter(None, pool.map(lambda one: _refusing(admin, *one), wanted))


def _without_producers(desired: Desired, live: Live) -> dict[TopicName, tuple[TopicResource, Where | None]]:
    """Declared topics that exist and have no connected producer: name -> (live topic, place in the file). A terminated
    topic has none, because Pulsar closes them.
    """
    found = {}
    for address, wanted in desired.objects.items():
        one = live.objects.get(address)
        if one is None or not isinstance(one.resource, TopicResource):
            continue
        if not (isinstance(one.facts, TopicFacts) and one.facts.producers):
            found[one.resource.name] = one.resource, wanted.where
    return found


def _terminated(admin: Admin, topic: TopicResource, where: Where | None) -> Diagnostic | None:
    """The warning about a terminated topic. The first partition speaks for all: Pulsar terminates them together."""
    if not terminated_partitions(admin, topic.name, min(topic.partitions, 1)):
        return None
    detail = f"{topic.name} was terminated: its stored messages can be read, and no producer can send there again"
    return warning("K442", "a terminated topic", detail, where)


def _without_schema(desired: Desired, live: Live, plan: Plan) -> dict[TopicName, tuple[Where | None, bool]]:
    """Ready topics whose schema validation is on after the plan, and for which the file declares no schema: name ->
    (place in the file, is news). It is news if the plan turns the validation on, or no file did.
    """
    declared = {one.resource.topic for one in desired.objects.values() if isinstance(one.resource, SchemaResource)}
    named = {
        one.resource.name for one in desired.objects.values()
        if isinstance(one.resource, NamespaceResource) and "schema_validation" in one.resource.policies
    }  # fmt: skip
    set_by_plan = namespace_changes(plan.changes)
    found = {}
    for expansion in desired.expansions:
        levels = levels_of(expansion.namespace, live, set_by_plan)
        for topic in expansion.topics:
            own = topic.resource.policies.get("schema_validation")
            before, after = (
                levels.effective("schema_validation", own, after=late).value is True for late in (False, True)
            )
            if after and topic.state is State.READY and topic.name not in declared:
                wanted = desired.objects.get(topic_address(topic.name))
                by_hand = own is None and expansion.namespace not in named
                found[topic.name] = (wanted.where if wanted else None, by_hand or not before)
    return found


def _refusing(admin: Admin, topic: TopicName, where: Where | None) -> Diagnostic | None:
    if read_schema(admin, topic) is None:
        return None
    detail = f"{topic} has a schema and validates: it refuses producers without one, as those of this file are"
    return warning("K443", "a topic that refuses producers without a schema", detail, where)
