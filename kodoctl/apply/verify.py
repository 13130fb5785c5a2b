"""Verification of the writes of a level: reads policies in bulk, subscriptions (also deleted ones) by one GET per
topic, grants by one GET per namespace, and deleted topics, whose subscriptions went with them, by the topic lists of
the namespace.

Pulsar answers 204 even to many wrong bodies, and parallel writers can undo each other: so a change counts as made only
when the broker shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from kodoctl.apply.deletes import what_is_left, why_still_there
from kodoctl.apply.namespaces import actions_text, read_grant, read_grants
from kodoctl.apply.topics import read_policy
from kodoctl.errors import ClusterError
from kodoctl.plan.changes import Change, Create, Delete, Update
from kodoctl.plan.field_diff import is_equal
from kodoctl.plan.schedule import Step, resource_of
from kodoctl.pulsar.admin.admin_http import CONNECTIONS
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError, poll_until
from kodoctl.pulsar.admin.topic_stats import TopicReading, read_same_kind, read_topic
from kodoctl.pulsar.inventory.live_inventory import list_topics
from kodoctl.pulsar.inventory.topic_policy_reader import PolicyReader, TopicPolicyReading
from kodoctl.pulsar.values.live_objects import validates
from kodoctl.topology.names import NamespaceName, TopicName
from kodoctl.topology.resources import Address, GrantResource, SubscriptionResource, TopicResource

if TYPE_CHECKING:
    from kodoctl.apply.source_writer import SourceWriter
    from kodoctl.plan.policy_levels import PolicyLevels
    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.pulsar.binary.client import BrokerClient
    from kodoctl.topology.model.policies import Policies, PolicyValue

_LISTING: Final = 2  # requests that list the topics of a namespace
Problem = tuple[Step, str]


class Verifier:
    """Comparison of the live cluster, and of the databases of sources, with the writes of one level of a plan: a
    broker's success is not believed until a read shows the change.
    """

    def __init__(
        self,
        admin: Admin,
        client: BrokerClient,
        levels: Callable[[NamespaceName], PolicyLevels],
        databases: SourceWriter,
    ) -> None:
        self._admin, self._client, self._levels, self._databases = admin, client, levels, databases

    def verify(self, steps: Sequence[Step]) -> list[Problem]:
        """Returns (step, text about the difference) for each of the steps that cluster or database does not show as
        carried out, or cannot be asked about. Waits up to 10 s for each value that appears late.

        Not checked are adoptions, forgets, tenants, namespaces, schemas, functions, packages and objects of the whole
        cluster; of topics, only policies and deletions are. If a part of the cluster cannot be read, all creates,
        updates and deletes among the steps are returned.
        """
        written = [step for step in steps if isinstance(step.change, Create | Update | Delete)]
        try:
            with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="verify") as pool:
                listed = self._listed(written, pool)
                return [
                    *self._policies(written, pool),
                    *self._subscriptions(written, listed, pool),
                    *self._grants(written),
                    *self._deletions(written, listed),
                    *self._in_databases(written),
                ]
        except ClusterError as problem:
            return [(step, f"written, but not read back: {problem.diagnostics[0].detail}") for step in written]

    def _policies(self, steps: Sequence[Step], pool: ThreadPoolExecutor) -> Iterator[Problem]:
        wanted = [(step, _topic(step), changed) for step in steps if (changed := _written_policies(step))]
        by_namespace: dict[NamespaceName, list[TopicName]] = {}
        for _, topic, _ in wanted:
            by_namespace.setdefault(topic.namespace, []).append(topic)
        reader = PolicyReader(self._admin, self._client, pool)
        with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="verify") as spaces:  # the reader's own reads topics

            def read(namespace: NamespaceName) -> TopicPolicyReading:
                return reader.read(namespace, by_namespace[namespace], validates=self._validates(namespace))

            readings = dict(zip(by_namespace, spaces.map(read, by_namespace), strict=True))
        for step, topic, changed in wanted:
            shown = readings[topic.namespace].of(topic)
            late = [name for name, value in changed.items() if not is_equal(name, shown.get(name), value)]
            for name in late:
                if not self._shows(topic, name, changed[name]):
                    now = read_policy(self._admin, topic, name, changed[name])
                    yield step, f"{name}: written {changed[name]}, the broker shows {now}"
                    break

    def _validates(self, namespace: NamespaceName) -> bool:
        levels = self._levels(namespace)
        return validates(levels.namespace_after, levels.broker)

    def _shows(self, topic: TopicName, name: str, wanted: PolicyValue | None) -> bool:
        return poll_until(lambda: is_equal(name, read_policy(self._admin, topic, name, wanted), wanted))

    def _listed(self, steps: Sequence[Step], pool: ThreadPoolExecutor) -> Mapping[NamespaceName, set[TopicName]]:
        """Topics of each namespace in which topics were deleted, or subscriptions of more topics than a list costs
        requests.
        """
        deleted = [resource_of(step.change) for step in steps if isinstance(step.change, Delete)]
        topics = {one.topic for one in deleted if isinstance(one, SubscriptionResource)}
        counts = Counter(topic.namespace for topic in topics)
        namespaces = {name for name, count in counts.items() if count > _LISTING}
        namespaces |= {one.name.namespace for one in deleted if isinstance(one, TopicResource)}

        def read(namespace: NamespaceName) -> set[TopicName]:
            return {topic for found in list_topics(self._admin, namespace, with_underscores=True) for topic in found}

        return dict(zip(namespaces, pool.map(read, namespaces), strict=True))

    def _subscriptions(
        self, steps: Sequence[Step], listed: Mapping[NamespaceName, set[TopicName]], pool: ThreadPoolExecutor
    ) -> Iterator[Problem]:
        found = [(step, one) for step in steps if isinstance(one := resource_of(step.change), SubscriptionResource)]
        names = sorted(
            {
                one.topic
                for step, one in found  # a deleted one went with a topic that is not in the list
                if not isinstance(step.change, Delete) or one.topic in listed.get(one.topic.namespace, {one.topic})
            }
        )
        readings = dict(zip(names, pool.map(lambda topic: read_topic(self._admin, topic), names), strict=True))
        for step, subscription in found:
            problem = _subscription_problem(step.change, subscription, readings.get(subscription.topic))
            if problem and not self._comes(step.change, subscription):
                yield step, problem

    def _comes(self, change: Change, subscription: SubscriptionResource) -> bool:
        return poll_until(
            lambda: not _subscription_problem(change, subscription, read_topic(self._admin, subscription.topic))
        )

    def _grants(self, steps: Sequence[Step]) -> Iterator[Problem]:
        shown: dict[NamespaceName, dict[Address, frozenset[str]]] = {}
        for step in steps:
            match step.change:
                case Create(after=GrantResource() as grant):
                    wanted = grant.actions
                case Update(after=GrantResource() as grant) as update:
                    wanted = update.granted_actions
                case Delete(before=GrantResource() as grant):
                    wanted = frozenset()
                case _:
                    continue
            namespace = grant.target if isinstance(grant.target, NamespaceName) else grant.target.namespace
            if namespace not in shown:
                shown[namespace] = read_grants(self._admin, namespace)
            if shown[namespace].get(grant.address, frozenset()) != wanted and not self._is_granted(grant, wanted):
                now = read_grant(self._admin, grant)
                yield step, f"written {actions_text(wanted)}, the broker shows {actions_text(now)}"

    def _is_granted(self, grant: GrantResource, wanted: frozenset[str]) -> bool:
        return poll_until(lambda: read_grant(self._admin, grant) == wanted)

    def _deletions(self, steps: Sequence[Step], listed: Mapping[NamespaceName, set[TopicName]]) -> Iterator[Problem]:
        for step in steps:
            match step.change:
                case Delete(before=TopicResource() as topic) if topic.name in listed[topic.name.namespace]:
                    if not self._goes(topic):
                        yield step, f"the broker did not delete it; {what_is_left(self._admin, topic)}"
                case _:
                    pass

    def _in_databases(self, steps: Sequence[Step]) -> Iterator[Problem]:
        for step in steps:
            try:
                problem = self._databases.problem_of(step.change)
            except WriteFailedError as unread:
                problem = f"written, but not read back: {unread}"
            if problem:
                yield step, problem

    def _goes(self, topic: TopicResource) -> bool:
        return poll_until(lambda: read_same_kind(self._admin, topic) is None)


def _topic(step: Step) -> TopicName:
    change = step.change
    assert isinstance(change, Create | Update)
    assert isinstance(change.after, TopicResource)
    return change.after.name


def _written_policies(step: Step) -> Policies:
    """Policy -> the value that a step wrote on a topic, None if it unset the policy."""
    match step.change:
        case Create(after=TopicResource()) | Update(after=TopicResource()) as change:
            return {one.policy: one.after for one in change.policy_changes}
        case _:
            return {}


def _subscription_problem(change: Change, subscription: SubscriptionResource, reading: TopicReading | None) -> str:
    """Text about the difference of a live subscription from a change that made or deleted it; "": there is none."""
    if isinstance(change, Delete):
        return why_still_there(reading, subscription, change.about.owner)
    everywhere = reading is not None and any(
        one.name == subscription.name and not one.missing_on for one in reading.subscriptions
    )
    return "" if everywhere else "written, but not on every partition"
