"""K209, K301 to K303, K305, K003, K019: message properties, flows between topics, and lists whose entries name nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter

from kodoctl.errors import Severity, Where
from kodoctl.topology import defaults
from kodoctl.topology.lint.registry import LintScope, RuleMatch, rule
from kodoctl.topology.model.policies import TOPIC_POLICY_NAMES
from kodoctl.topology.model.topology import KEY
from kodoctl.topology.names import State, TopicName, partition_numbers, produced_topic


@rule("K209", Severity.WARNING, "a property that messages need not carry")
def properties(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds properties that fairness or a limit uses and that are not required, and properties that a route uses and
    that are not declared. A name that is almost a declared one is an error: no message would ever have that property.
    """
    for expansion, path, ground in scope.grounds():
        if ground.fair_by and not _is_required(ground.fair_by, ground.message_properties):
            place = expansion.topology.where(*path, "fair_by")
            yield _not_required(place, "fair_by", ground.fair_by, ground.message_properties)
    for expansion, path, ground, subscription in scope.subscriptions():
        for index, limit in enumerate(subscription.limits):
            if limit.by and not _is_required(limit.by, ground.message_properties):
                place = expansion.topology.where(*path, "limits", index, "by")
                yield _not_required(place, "a limit", limit.by, ground.message_properties)
    if scope.routed:
        from kodoctl.topology.lint.route_checks import undeclared_properties

        for place, name, ground in undeclared_properties(scope.routed):
            detail = f"a route looks at {name!r}: name it in `message_properties` ({name}: optional)"
            yield _find_misspelling(place, name, ground.message_properties) or RuleMatch(place, detail)


def _is_required(name: str, declared: Mapping[str, str]) -> bool:
    return name == KEY or declared.get(name) == "required"


def _find_misspelling(place: Where, name: str, declared: Mapping[str, str]) -> RuleMatch | None:
    near = get_close_matches(name, declared, 1, 0.8) if name not in declared else []
    detail = f"{name!r} is not a declared message property; did you mean {''.join(near)!r}?"
    return RuleMatch(place, detail, sure=True) if near else None


def _not_required(place: Where, what: str, name: str, declared: Mapping[str, str]) -> RuleMatch:
    detail = f"{what} goes by {name!r}: write `message_properties: {{{name}: required}}`, else messages without it count as one tenant"
    return _find_misspelling(place, name, declared) or RuleMatch(place, detail)


@dataclass(frozen=True, slots=True)
class Flow:
    """One entry of `produces`: the handler of `subscription`, which reads ground topic `source`, sends to `target`.
    `target` is the ground topic of the named topic, or that topic itself if no file declares it; `file`: index in
    `LintScope.expansions` of the file that has the entry.
    """

    source: TopicName
    target: TopicName
    file: int
    subscription: str


def flows_of(scope: LintScope) -> list[Flow]:
    """The flows of all entries of `produces`, without duplicates, in the order of the files."""
    found = [
        Flow(
            TopicName(expansion.namespace, name),
            _ground_of(scope, produced_topic(expansion.namespace, text)),
            file,
            sub,
        )
        for file, expansion in enumerate(scope.expansions)
        for name, ground in expansion.topology.spec.topics.items()
        for sub, subscription in ground.subscriptions.items()
        for text in subscription.produces
    ]
    return list(dict.fromkeys(found))


def _where(scope: LintScope, flow: Flow) -> Where:
    path = ("topics", flow.source.local, "subscriptions", flow.subscription, "produces")
    return scope.expansions[flow.file].topology.where(*path)


def _is_acyclic(flows: list[Flow]) -> bool:
    graph: dict[TopicName, set[TopicName]] = {}
    for flow in flows:
        graph.setdefault(flow.source, set()).add(flow.target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        return False
    return True


@rule("K301", Severity.ERROR, "cycle in the message flow")
def rings(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds flows that lead back to the topic where they began, one ring for each group of topics that reach each
    other: such messages would circulate for ever.
    """
    flows = flows_of(scope)
    if _is_acyclic(flows):
        return
    from kodoctl.topology.graph import find_rings

    targets: dict[TopicName, dict[TopicName, Flow]] = {}
    for flow in flows:
        targets.setdefault(flow.source, {})[flow.target] = flow
    for ring in find_rings(targets):
        shown = " → ".join(topic.local for topic in (*ring, ring[0]))
        where = _where(scope, targets[ring[0]][ring[1 % len(ring)]])
        yield RuleMatch(where, f"{shown}: message flow is a tree, never a ring; break it at one of these")


@rule("K305", Severity.WARNING, "a topic that messages reach by two ways")
def joins(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds topics to which two ways of flows lead from the same topic: the results of one message arrive there twice.
    Topics further on, which these two ways reach together, are not listed again. Finds nothing if the flows of the
    files have a cycle, which `rings` reports.
    """
    flows = flows_of(scope)
    if not _is_acyclic(flows):
        return  # which K301 says
    into: dict[TopicName, list[Flow]] = {}
    for flow in flows:
        into.setdefault(flow.target, []).append(flow)
    for target, last in into.items():
        if (ways := _two_ways(last, into)) is not None:
            begin = ways[0][0].source.local
            shown = " and ".join(_in_words(way) for way in ways)
            detail = (
                f"what a message of {begin} leads to can arrive in {target.local} twice: {shown};"
                " send it by one of them, or let the handlers there expect both"
            )
            yield RuleMatch(_where(scope, ways[1][-1]), detail)


def _two_ways(last: list[Flow], into: Mapping[TopicName, list[Flow]]) -> tuple[list[Flow], list[Flow]] | None:
    """Two ways that begin at the same topic and end with two different flows of `last`, each a list of flows in their
    order; None if there are none. `into`: topic -> flows that end there.

    It goes upwards from each flow in turn, and never twice through a topic.
    """
    ways: dict[TopicName, list[Flow]] = {}
    for flow in last:
        above = deque([[flow]])
        while above:
            way = above.popleft()
            other = ways.setdefault(way[0].source, way)
            if other is way:
                above += [[before, *way] for before in into.get(way[0].source, ())]
            elif other[-1] is not flow:  # else they meet further up already, which is told there
                return other, way
    return None


def _in_words(way: list[Flow]) -> str:
    """`orders (billing) → invoices (print) → letters`."""
    return " → ".join([*(f"{flow.source.local} ({flow.subscription})" for flow in way), way[-1].target.local])


def _ground_of(scope: LintScope, name: TopicName) -> TopicName:
    """Ground topic of the family of the topic `name` (orders-L2: orders); `name` itself if no file declares it."""
    topic = scope.topics.get(name)
    return TopicName(name.namespace, topic.ground) if topic else name


@rule("K302", Severity.WARNING, "produces to a topic that no file declares")
def undeclared_targets(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds entries of `produces` that are no ready topic (the topic of a level) of any file: without automatic topic
    creation a send to such a topic would fail.
    """
    for expansion, path, _, subscription in scope.subscriptions():
        for index, target in enumerate(subscription.produces):
            topic = scope.topics.get(produced_topic(expansion.namespace, target))
            if topic is None or topic.state is not State.READY:
                where = expansion.topology.where(*path, "produces", index)
                yield RuleMatch(
                    where,
                    f"{target!r} is no ground topic of these files: declare it, or name its file to this command too",
                )


@rule("K303", Severity.WARNING, "more consumers than can work")
def idle_workers(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds subscriptions with more `expected_workers` than can have work: one for each partition (failover), or one in
    all (exclusive).
    """
    for expansion, path, ground, subscription in scope.subscriptions():
        parts = len(partition_numbers(defaults.partitions(expansion.topology.spec, ground)))
        most = {"failover": parts, "exclusive": 1}.get(subscription.type)
        if most is not None and subscription.expected_workers > most:
            detail = f"{subscription.expected_workers} workers expected, at most {most} can have work on a {subscription.type} subscription"
            yield RuleMatch(expansion.topology.where(*path, "expected_workers"), detail)


@rule("K003", Severity.ERROR, "unknown key")
def unknown_policies(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds names in a list `ignore` that are no topic policies."""
    for expansion, path, ground in scope.grounds():
        for index, name in enumerate(ground.ignore):
            if name not in TOPIC_POLICY_NAMES:
                detail = f"{name!r} is no topic policy: {', '.join(sorted(TOPIC_POLICY_NAMES))}"
                yield RuleMatch(expansion.topology.where(*path, "ignore", index), detail)


@rule("K019", Severity.WARNING, "an allowance that allows nothing")
def stale_lists(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds addresses in `allow_destroy` or `forget` of objects that the same file declares."""
    for expansion in scope.expansions:
        spec = expansion.topology.spec
        for key, addresses in (("allow_destroy", spec.allow_destroy), ("forget", spec.forget)):
            for index, address in enumerate(addresses):
                if address in expansion.resources:
                    detail = f"{address} is declared by this file: remove it here, or there"
                    yield RuleMatch(expansion.topology.where(key, index), detail)
