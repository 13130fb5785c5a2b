"""States of declared topics that no policy shows, read for topics that a plan adopts or updates: terminated topics
(K442), and live schemas that producers without a schema do not fit (K443).
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
from kodoctl.topology.names import State
from kodoctl.topology.resources import SchemaResource, TopicResource, topic_address

if TYPE_CHECKING:
    from kodoctl.plan.changes import Change
    from kodoctl.plan.inventory import Desired
    from kodoctl.plan.plan import Plan
    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.pulsar.values.live_objects import Live
    from kodoctl.topology.names import TopicName


def topic_state_findings(admin: Admin, desired: Desired, live: Live, plan: Plan) -> Iterator[Diagnostic]:
    """Yields a warning (K442) for each topic that the plan adopts or updates and that was terminated, so that it takes
    no more messages. Yields a warning (K443) for each topic that the plan adopts or updates, or for which it turns
    schema validation on, and that will refuse producers without a schema though the file declares none. Sends one
    request for each topic that the plan adopts or updates, and one for each topic that may get K443. Raises
    ClusterError.
    """
    topics = [change for change in plan.changes if _is_live_topic(change)]
    places = {_before(change).name: change.about.where for change in topics}
    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="state") as pool:
        ended = pool.map(lambda change: _terminated(admin, _before(change), change.about.where), topics)
        yield from filter(None, ended)
        wanted = [
            (topic, places.get(topic, where))
            for topic, (where, is_new) in _without_schema(desired, live, plan).items()
            if topic in places or (is_new and topic_address(topic) in live.objects)
        ]
        yield from filter(None, pool.map(lambda one: _refusing(admin, *one), wanted))


def _is_live_topic(change: Change) -> bool:
    return isinstance(change, Adopt | Update) and isinstance(change.before, TopicResource)


def _before(change: Change) -> TopicResource:
    assert isinstance(change, Adopt | Update)
    assert isinstance(change.before, TopicResource)
    return change.before


def _terminated(admin: Admin, topic: TopicResource, where: Where | None) -> Diagnostic | None:
    """The warning about a terminated topic. The first partition speaks for all: Pulsar terminates them together."""
    if not terminated_partitions(admin, topic.name, min(topic.partitions, 1)):
        return None
    detail = f"{topic.name} was terminated: its stored messages can be read, and no producer can send there again"
    return warning("K442", "a terminated topic", detail, where)


def _without_schema(desired: Desired, live: Live, plan: Plan) -> dict[TopicName, tuple[Where | None, bool]]:
    """Ready topics whose schema validation is on after the plan, and for which the file declares no schema: name ->
    (place in the file, whether the plan turns the validation on, be it by a policy of the namespace).
    """
    declared = {one.resource.topic for one in desired.objects.values() if isinstance(one.resource, SchemaResource)}
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
                found[topic.name] = (wanted.where if wanted else None, not before)
    return found


def _refusing(admin: Admin, topic: TopicName, where: Where | None) -> Diagnostic | None:
    if read_schema(admin, topic) is None:
        return None
    detail = f"{topic} has a schema and validates: it refuses producers without one, as those of this file are"
    return warning("K443", "a topic that refuses producers without a schema", detail, where)
