# pure: every branch is tested
"""Findings about functions and connectors that could not be read (K451), do not run (K452), have no package (K453), or
whose names or subscriptions others have (K450), and the loss by deleting one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kodoctl.errors import Diagnostic, error, note, warning
from kodoctl.plan.changes import Change, Create, Delete
from kodoctl.pulsar.values.live_objects import NO_WORKER_HERE, FunctionFacts
from kodoctl.text.formatting import age_text, many, size_text
from kodoctl.topology.resources import (
    FUNCTION_KINDS,
    FunctionResource,
    PackageResource,
    SubscriptionResource,
    TopicResource,
    kind_label,
)

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired
    from kodoctl.pulsar.values.evidence import Evidence
    from kodoctl.pulsar.values.live_objects import Live
    from kodoctl.topology.names import NamespaceName
    from kodoctl.topology.resources import Address

FUNCTIONS_UNREAD: Final = "functions or connectors could not be read"
UNCHANGEABLE: Final = "a change that no function or connector can take"
_ADVICE: Final = (
    ": name the workers' address in the context (`function_worker`, or KODOCTL_FUNCTION_WORKER), start one"
    " (functionsWorkerEnabled=true in broker.conf), or say `none` there"
)
STOPPED: Final = "a function or connector that does not run"


def function_findings(desired: Desired, part: Desired, live: Live, changes: Sequence[Change]) -> Iterator[Diagnostic]:
    """Yields the findings K450 to K453 about functions, connectors and packages, except those that the comparison
    (`diff`) has among its conflicts. `part`: the selected part of `desired` in a plan of a part, else `desired` itself.
    """
    yield from unread_functions(part, live)
    yield from stopped_functions(part, live)
    yield from missing_packages(part, live)
    yield from taken_subscriptions(desired, live, changes)
    yield from handed_subscriptions(desired, changes)
    yield from taken_names(live, changes)


def unread_functions(desired: Desired, live: Live) -> Iterator[Diagnostic]:
    """Yields a finding (K451) for each function, connector or package that could not be read, and for each kind of
    functions or connectors that could not be listed in a namespace, if `desired` declares it, or one of the kind there,
    or a ledger of its topologies lists one: a warning, because the rest can be carried out; an error for a destroy,
    which would leave them behind, and for a topology that was renamed, because their markers would still have its
    earlier name.
    """
    for place, why in sorted(live.unread_functions.items()):
        where = next((one.where for one in desired.objects.values() if _is_in(one.resource.address, place)), None)
        ours = (entry for entry in live.entries if entry.name in desired.all_names)
        owners = {entry.name for entry in ours if any(_is_in(address, place) for address in entry.owned)}
        if where is None and not owners:
            continue
        kind, _, name = place.partition(".")
        is_one = kind == "package" or name.count("/") == 2
        subject = place if is_one else f"{kind_label(kind)}s of {name}"
        if desired.destroyed:
            detail = f"{subject}: {why}; they are not deleted, and go on running: let it be reached and plan again, or"
            yield error("K451", FUNCTIONS_UNREAD, f"{detail} let `kodoctl forget` give them up", where)
        elif earlier := sorted(owners - desired.names):
            detail = f"{subject}: {why}; their markers name {', '.join(earlier)}, and would name no owner after this"
            yield error("K451", FUNCTIONS_UNREAD, f"{detail} apply: let it be reached and plan again", where)
        else:
            unknown = "how it is, is unknown, and it is" if is_one else "whether they exist is unknown, and they are"
            detail = f"{subject}: {why}; {unknown} left alone"
            yield warning("K451", FUNCTIONS_UNREAD, f"{detail}{_ADVICE if why == NO_WORKER_HERE else ''}", where)


def kept_namespace(namespace: NamespaceName, unknown: Mapping[Address, str]) -> Diagnostic:
    """A warning (K451) about a namespace that a destroy keeps, because whether functions or connectors of others live
    in it is not known. `unknown`: result of `Live.unknown_functions_in`, not empty; the warning has its first reason.
    """
    address, why = f"namespace.{namespace}", next(iter(unknown.values()))
    detail = f"{address} stays, and is nobody's then, because functions or connectors of others may live in it: {why}"
    advice = _ADVICE if why == NO_WORKER_HERE else ": let them be reached"
    return warning("K451", FUNCTIONS_UNREAD, f"{detail}{advice}; --allow-destroy {address} deletes it, too")


def stopped_functions(desired: Desired, live: Live) -> Iterator[Diagnostic]:
    """Yields a finding (K452) for each declared function or connector that exists and not all of whose instances run: a
    warning if the worker names an error, else a note, because somebody may have stopped it. If the worker did not say
    how many run, there is no finding.
    """
    for address, wanted in sorted(desired.objects.items()):
        found = live.objects.get(address)
        match found.facts if found else None:
            case FunctionFacts(instances=int() as all_, running=int() as running, error=text) if running < all_:
                detail = f"{address}: {running} of {many(all_, 'instance')} running"
                if text:
                    yield warning("K452", STOPPED, f"{detail}: {text}", wanted.where)
                else:
                    yield note("K452", STOPPED, detail, wanted.where)
            case _:
                pass


def missing_packages(desired: Desired, live: Live) -> Iterator[Diagnostic]:
    """Yields an error (K453) for each declared function or connector in `missing_packages` of `live`: the cluster lacks
    its package, and the files do not upload it.
    """
    for address, why in sorted(live.missing_packages.items()):
        if address in desired.objects:
            yield error("K453", "a package that does not exist", f"{address}: {why}", desired.objects[address].where)


def taken_subscriptions(desired: Desired, live: Live, changes: Iterable[Change]) -> Iterator[Diagnostic]:
    """Yields an error (K450) for each deleted function or sink with which Pulsar would delete a subscription that is
    still needed, because the files declare it for workers, or another declared function or sink reads by it, or may
    read by it because its pattern may match the topic; it names the first such subscription.
    """
    readers = dict.fromkeys(desired.objects, "workers")
    subscriptions: dict[Address, SubscriptionResource] = {}
    topics = [one.resource.name for one in live.objects.values() if isinstance(one.resource, TopicResource)]
    for address, wanted in desired.objects.items():
        match wanted.resource:
            case FunctionResource() as other:
                named = {*other.input_topics, *filter(other.may_match, topics)}
                own = {one.address: one for one in (SubscriptionResource(topic, other.subscription) for topic in named)}
                readers = {**dict.fromkeys(own, address), **readers, **dict.fromkeys(other.subscriptions, address)}
                subscriptions |= own
            case SubscriptionResource() as subscription:
                subscriptions[address] = subscription
            case _:
                pass
    for change in changes:
        if not isinstance(change, Delete) or not isinstance(function := change.before, FunctionResource):
            continue
        facts = live.objects[change.address].facts
        read = {address for address, one in subscriptions.items() if function.may_read_by(one)}
        taken = sorted(read | readers.keys() & set(function.subscriptions))
        if isinstance(facts, FunctionFacts) and facts.cleans_up and taken:
            detail = (
                f"{change.address}: Pulsar deletes {taken[0]} with it, which the files declare for {readers[taken[0]]}:"
                " name another subscription there; or declare it when this deletion is applied"
            )
            where = desired.objects.get(readers[taken[0]], desired.objects.get(taken[0]))
            yield error("K450", UNCHANGEABLE, detail, where.where if where else None)


def handed_subscriptions(desired: Desired, changes: Iterable[Change]) -> Iterator[Diagnostic]:
    """Yields an error (K450) for each deleted subscription that a declared function or sink reads by, or may read by
    because its pattern may match the topic: it would lose its position.
    """
    functions = [one.resource for one in desired.objects.values() if isinstance(one.resource, FunctionResource)]
    for change in changes:
        if not isinstance(change, Delete) or not isinstance(subscription := change.before, SubscriptionResource):
            continue
        reader = next((one.address for one in functions if one.may_read_by(subscription)), None)
        if reader is not None:
            detail = (
                f"{change.address} is no longer declared, and {reader} reads by it: name another subscription there, or"
                f" give this one up first (`kodoctl forget {change.address}`)"
            )
            yield error("K450", UNCHANGEABLE, detail, desired.objects[reader].where)


def taken_names(live: Live, changes: Iterable[Change]) -> Iterator[Diagnostic]:
    """Yields an error (K450) for each function or connector to be created whose name one of another kind (function,
    sink, IO source) has in the same namespace, even if the plan deletes that one: deletions come last. It sees only
    those in `live`, which may not have all kinds of a namespace.
    """
    for change in changes:
        if not isinstance(change, Create) or not isinstance(function := change.after, FunctionResource):
            continue
        for kind in FUNCTION_KINDS:
            other = replace(function, kind=kind).address
            if other != change.address and other in live.objects:
                detail = f"{change.address}: {other} has its name, and a worker has one name once"
                advice = "take that one out and apply first, or declare this one under another name"
                yield error("K450", UNCHANGEABLE, f"{detail}: {advice}", change.about.where)


def _is_in(address: Address, place: Address) -> bool:
    """True for the address of a function or connector that is this one, or of this kind in this namespace."""
    return place in (address, address.rpartition("/")[0])


def package_use(package: PackageResource, live: Live, gone: Collection[Address]) -> tuple[list[Address], str]:
    """Returns (sorted addresses of the functions and connectors in `live` that are known to use a package and are not
    in `gone`, text about others that may use it, never ""). Only kodoctl records which package a function has: Pulsar
    does not show it. One that the plan updates to another package counts as well. `gone`: addresses of deleted objects.
    """
    here = [one.resource for one in live.objects.values() if isinstance(one.resource, FunctionResource)]
    staying = [one for one in here if one.address not in gone]
    used = sorted(one.address for one in staying if package.is_used_by(one))
    stake = "functions of other namespaces may use it, which Pulsar does not tell"
    if unknown := live.unknown_functions_in(package.namespace):
        stake += f"; whether functions of its own do, is not known: {next(iter(unknown.values()))}"
    elif others := sorted(one.address for one in staying if not one.package):
        stake += f"; and so may {', '.join(others[:3])}{' and others' if others[3:] else ''}"
    return used, stake


def deletion_stake(function: FunctionResource, facts: FunctionFacts, found: Evidence, now: int) -> list[str]:
    """Texts of the loss by the deletion of a function or connector: the backlog of its subscription, if Pulsar deletes
    that with it, and its running instances, or that one of these is not known; [] for none. `found`: the evidence of
    the function; `now`: ms since the epoch.
    """
    stake = []
    if facts.cleans_up and found.unread:
        stake.append(f"its subscription {function.subscription} goes with it, unread messages unknown: {found.unread}")
    elif facts.cleans_up and found.entries:
        age = f", the oldest {age_text(now - found.oldest)} old" if found.oldest else ""
        unread = f"{found.unread_text(found.entries)} ({size_text(found.bytes)}{age})"
        stake.append(f"its subscription {function.subscription} goes with it: {unread}")
    if facts.running is None:
        stake.append("whether instances run is not known")
    elif facts.running:
        stake.append(f"{many(facts.running, 'instance')} running")
    return stake
