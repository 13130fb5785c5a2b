"""The danger rules: data loss by a change, and its permission. Pure: evidence and clock are passed in.

A finding of severity ERROR refuses the plan (exit 4); once its address is allowed it becomes a WARNING, so that the
reviewer still reads of the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kodoctl.errors import Diagnostic, Remedy, error, error_with_remedy, warning
from kodoctl.plan.changes import Change, Delete, FieldChange, PolicyChange, Update, with_context
from kodoctl.plan.danger.durability import durability_warnings
from kodoctl.plan.danger.evidence import DAY_MS
from kodoctl.plan.danger.functions import deletion_stake, package_use
from kodoctl.plan.danger.grants import changed_grant, takes_away
from kodoctl.plan.danger.platform_objects import platform_dangers, unserved, untrusted_record
from kodoctl.plan.policy_write_order import PULSAR_DEFAULTS, counting_value
from kodoctl.plan.schedule import resource_of
from kodoctl.pulsar.values.evidence import Evidence
from kodoctl.pulsar.values.live_objects import (
    FunctionFacts,
    Live,
    SlotFacts,
    SubscriptionFacts,
    TopicFacts,
)
from kodoctl.text.formatting import age_text, many, size_text
from kodoctl.topology.model.policies import BacklogQuota, InactiveTopic, PolicyValue, Retention
from kodoctl.topology.resources import (
    Address,
    FunctionResource,
    GrantResource,
    NamespaceResource,
    PackageResource,
    PlatformResource,
    SlotResource,
    SubscriptionResource,
    TopicResource,
    namespace_of_address,
)
from kodoctl.topology.units import UNLIMITED, Duration, Size, Unlimited, as_limit

K401 = "deletes data, or an object in use"
K402 = "a lowered value would drop stored data"
K409 = "takes away what another tenant's roles were given"
K405 = "partitions grown under an ordered subscription"
K441 = "unread messages would expire earlier"
_FULL = TopicFacts(storage_bytes=1 << 62, backlog_bytes=1 << 61, idle_bytes=1 << 61)  # whatever a policy drops, it has


@dataclass(frozen=True, slots=True)
class OtherDeletions:
    """Facts about all changes of a plan, by which each of them is judged. `gone`: addresses of the objects that it
    deletes; `own`: the policies that it changes on an object itself (`changed_policies`); `changes`: the changes by
    address, of several with one address the last.
    """

    gone: frozenset[Address]
    own: frozenset[tuple[Address, str]]
    changes: Mapping[Address, Change]


def changed_policies(changes: Iterable[Change]) -> frozenset[tuple[Address, str]]:
    """Returns (address, policy) of each policy that the changes set or unset on an object itself."""
    updates = [change for change in changes if isinstance(change, Update)]
    return frozenset((update.address, field.policy) for update in updates for field in update.policy_changes)


def _rest_of(changes: Sequence[Change]) -> OtherDeletions:
    return OtherDeletions(
        frozenset(change.address for change in changes if isinstance(change, Delete)),
        changed_policies(changes),
        {change.address: change for change in changes},
    )


@dataclass(frozen=True, slots=True)
class DangerRules:
    """Rules by which changes are judged, with their input. `ordered`: addresses of the topics with a subscription that
    keeps order; `live`: the live inventory; `evidence`: figures that were read, by address; `allowed`: addresses whose
    loss is allowed; `now`: ms since the epoch.
    """

    ordered: frozenset[Address]
    live: Live
    evidence: Mapping[Address, Evidence]
    allowed: frozenset[Address]
    now: int  # ms since the epoch

    def judge(self, changes: Iterable[Change]) -> tuple[Change, ...]:
        """Returns the changes in their order, each with its dangers and evidence in its context, in place of earlier
        ones; a change without any is returned as it is. A danger of severity ERROR refuses the plan. Most of these are
        a WARNING instead if the address is in `allowed`; some cannot be allowed, such as the deletion of a replication
        slot with a reader.
        """
        all_changes = tuple(changes)
        rest = _rest_of(all_changes)
        return tuple(self._judge_change(change, rest) for change in all_changes)

    def _judge_change(self, change: Change, rest: OtherDeletions) -> Change:
        dangers: list[Diagnostic] = []
        match change:
            case Delete(before=TopicResource()):
                dangers += self._deletion_dangers(change.address)
            case Delete(before=SubscriptionResource(topic=topic)) if f"topic.{topic}" not in rest.gone:
                dangers += self._deletion_dangers(change.address)
            case Delete(before=FunctionResource() as function):
                dangers += self._function_danger(function)
            case Delete(before=PackageResource() as package):
                dangers.append(self._package_danger(package, rest))
            case Delete(before=SlotResource()):
                dangers.append(self._slot_danger(change.address))
            case Delete(before=GrantResource()) | Update(before=GrantResource()):
                dangers += (*changed_grant(change, self.live), *self._of_another_tenant(change))
            case _ if isinstance(resource := resource_of(change), PlatformResource):
                found = self.evidence.get(change.address, Evidence())
                if isinstance(change, Delete | Update):
                    dangers += platform_dangers(change, found, rest.changes, self.allowed)
                dangers += untrusted_record(change, resource, self.live, self.allowed)
                dangers += unserved(change, self.live, self.allowed)
                return with_context(change, dangers=tuple(dangers)) if dangers or change.about.dangers else change
            case Update():
                dangers += (*self._update_dangers(change, rest), *durability_warnings(change))
            case _:
                pass
        shown = self._figures_of(change.address)
        if not dangers and not shown and not change.about.dangers:
            return change
        return with_context(change, dangers=tuple(dangers), evidence=shown)

    def _figures_of(self, address: Address) -> dict[str, Any]:
        live = self.live.objects.get(address)
        if live is not None and isinstance(live.facts, SlotFacts):
            return asdict(live.facts)
        instances = asdict(live.facts) if live is not None and isinstance(live.facts, FunctionFacts) else {}
        found = self.evidence.get(address)
        if found is None or found.unread:
            return instances
        return {
            **instances,
            "entries": found.entries,
            "messages": found.messages,
            "messages_at_least": found.at_least,
            "bytes": found.bytes,
            "oldest": found.oldest,
            "clients": list(found.clients),
            "last_publish": found.last_publish,
        }

    def _of_another_tenant(self, change: Delete | Update) -> Iterator[Diagnostic]:
        """Yields a refusal (K409) for a grant that only ledgers of another Pulsar tenant list: the administrators of
        that tenant can write any entry.
        """
        if not takes_away(change):
            return
        ours = {entry.namespace for entry in self.live.entries if change.address in entry.grants}
        if namespace_of_address(change.address).tenant not in {namespace.tenant for namespace in ours}:
            tenants = ", ".join(map(str, sorted(ours))) or "none"
            stake = f"it is another tenant's, and the ledger that says it was given is that of {tenants}"
            yield self._refusal("K409", K409, change.address, stake)

    def _refusal(self, code: str, summary: str, address: Address, stake: str) -> Diagnostic:
        return refusal(code, summary, address, stake, allowed=address in self.allowed)

    # --- K401

    def _deletion_dangers(self, address: Address) -> Iterator[Diagnostic]:
        facts = self.live.objects[address].facts
        assert facts is None or isinstance(facts, TopicFacts | SubscriptionFacts)
        found = self.evidence.get(address, Evidence())
        stake = [*_data(facts, found, self.now), *_use(facts, found, self.now)]
        if stake:
            yield self._refusal("K401", K401, address, ", ".join(stake))

    def _function_danger(self, function: FunctionResource) -> Iterator[Diagnostic]:
        facts = self.live.objects[function.address].facts
        assert isinstance(facts, FunctionFacts)
        evidence = self.evidence.get(function.address, Evidence())
        if stake := deletion_stake(function, facts, evidence, self.now):
            yield self._refusal("K401", K401, function.address, ", ".join(stake))

    def _package_danger(self, package: PackageResource, rest: OtherDeletions) -> Diagnostic:
        """The refusal (K401) of a package's deletion; K458, which nothing allows, while a known function or connector
        uses the package.
        """
        used, stake = package_use(package, self.live, rest.gone)
        if used:
            detail = f"{package.address}: {', '.join(used)} would not start any more: delete or update them first"
            return error("K458", "a package in use", detail)
        return self._refusal("K401", K401, package.address, stake)

    def _slot_danger(self, address: Address) -> Diagnostic:
        """The refusal (K401) of a slot's deletion, which always loses a position. Nothing allows it while the slot has
        a reader: the server would refuse it in the middle of an apply.
        """
        found = self.live.objects.get(address)
        facts = found.facts if found else None
        assert isinstance(facts, SlotFacts)
        since = f"changes since {facts.confirmed} ({size_text(facts.unconfirmed_bytes)} of WAL) are not sent any more"
        if facts.active_pid is not None:
            use = f"process {facts.active_pid} of the server sends to its reader: stop that, then plan again"
            return error("K401", K401, f"{address}: {since}; {use}")
        return self._refusal("K401", K401, address, since)

    # --- K402, K405, K441

    def _update_dangers(self, change: Update, rest: OtherDeletions) -> Iterator[Diagnostic]:
        for field in change.fields:
            match field:
                case FieldChange(name="partitions", before=old, after=new) if change.address in self.ordered:
                    shown = f"{change.address}: {old} → {new}"
                    yield warning("K405", K405, f"{shown}: keys move to other partitions, their order breaks once")
                case PolicyChange(policy=name) if name in PULSAR_DEFAULTS or name == "inactive_topic":
                    yield from self._policy_dangers(change, field, rest)
                case _:
                    pass

    def _policy_dangers(self, change: Update, field: PolicyChange, rest: OtherDeletions) -> Iterator[Diagnostic]:
        before, after = counting_value(field, after=False), counting_value(field, after=True)
        topics = tuple(affected_topics(self.live, change, field.policy, rest.own))
        of_namespace = isinstance(change.before, NamespaceResource)

        def stake(loss_of: Callable[[str, PolicyValue, PolicyValue, Address], str]) -> str:
            losses = ((address, loss_of(field.policy, before, after, address)) for address in topics)
            return _first_of(losses, of_namespace=of_namespace)

        values = f"{field.policy} {_shown_value(before)} → {_shown_value(after)}"
        losses = [f"would drop {lost}"] if (lost := stake(self._loss)) else []
        if self._loss_of(field.policy, before, after, _FULL, Evidence()) and (
            names := unknown_topics(self.live, change)
        ):
            losses.append(f"may drop messages of {names}")
        if losses:
            yield self._refusal("K402", K402, change.address, f"{values} {'; and '.join(losses)}")
        elif early := stake(self._earlier):
            advice = "apply checks the ages again, and refuses (K402) messages that are too old by then"
            yield warning("K441", K441, f"{change.address}: {values}: {early}; {advice}")

    def _loss(self, policy: str, before: PolicyValue, after: PolicyValue, address: Address) -> str:
        """Loss of a topic's stored data; "" for none. An upper bound, in whole ledgers."""
        found = self.live.objects.get(address)
        facts = found.facts if found else None
        if not isinstance(facts, TopicFacts):
            return ""
        return self._loss_of(policy, before, after, facts, self.evidence.get(address, Evidence()))

    def _loss_of(
        self, policy: str, before: PolicyValue, after: PolicyValue, facts: TopicFacts, evidence: Evidence
    ) -> str:
        match policy, before, after:
            case "retention", Retention(), Retention():
                return _retention_loss(before, after, facts, evidence, self.now)
            case "ttl", _, Duration() if after < as_limit(before) and facts.backlog_bytes:
                age = self.now - evidence.oldest if evidence.oldest else None
                if age is not None and age < after:
                    return ""
                return f"up to {size_text(facts.backlog_bytes)} of unread messages" + (
                    f", the oldest {age_text(age)} old" if age else ""
                )
            case "backlog_quota", _, BacklogQuota() if _evicts_earlier(before, after):
                return _eviction(after, facts, evidence, self.now)
            case "subscription_expiry", _, Duration() if after < as_limit(before) and facts.idle_bytes:
                return f"subscriptions without consumers and their {size_text(facts.idle_bytes)} of unread messages"
            case "inactive_topic", _, InactiveTopic(delete=mode) if (
                mode != "never" and _was_kept(before) and facts.storage_bytes
            ):
                return f"the whole topic with {size_text(facts.storage_bytes)} once it is inactive"
            case _:
                return ""

    def _earlier(self, policy: str, before: PolicyValue, after: PolicyValue, address: Address) -> str:
        """Unread messages of a topic that expire earlier than before if nobody reads them; "" for none. They are
        younger than the new value, so that `_loss` has none of them.
        """
        facts = self.live.objects[address].facts if address in self.live.objects else None
        oldest = self.evidence.get(address, Evidence()).oldest
        limit = _expiry(policy, before, after)
        if limit is None or oldest is None or not isinstance(facts, TopicFacts) or not facts.backlog_bytes:
            return ""
        age = age_text(max(0, self.now - oldest))
        return f"up to {size_text(facts.backlog_bytes)} of unread messages, the oldest {age} old, would expire at an age of {limit}"


def affected_topics(
    live: Live, change: Update, policy: str, changed: Container[tuple[Address, str]]
) -> Iterator[Address]:
    """Yields the address of the topic that a change concerns, or those of the topics of its namespace that were read
    and have no value of their own. `changed`: (address of a topic, policy) for each policy that the plan changes on a
    topic itself: such a topic is judged by that change.
    """
    if not isinstance(change.before, NamespaceResource):
        yield change.address
        return
    for address, topic in live.topics_in(change.before.name):
        if policy not in topic.policies and (address, policy) not in changed and topic.name not in live.unread:
            yield address


def unknown_topics(live: Live, change: Update) -> str:
    """Text that names the first topic of a changed namespace of which only the name is known, and why, and counts the
    others; "" if there are none.
    """
    if not isinstance(change.before, NamespaceResource):
        return ""
    if not (unknown := sorted(live.unknown_topics_in(change.before.name))):
        return ""
    address, why = unknown[0]
    more = f" and {many(len(unknown) - 1, 'more topic')}" if len(unknown) > 1 else ""
    return f"{address}{more}: {why}"


def _first_of(stakes: Iterable[tuple[Address, str]], *, of_namespace: bool) -> str:
    """Text of the first stake that is not "", and the number of the others; "" if all are. `of_namespace`: the text
    names the topic of the stake.
    """
    found = [(address, text) for address, text in stakes if text]
    if not found:
        return ""
    first = f"{found[0][0]} {found[0][1]}" if of_namespace else found[0][1]
    return f"{first} and {many(len(found) - 1, 'more topic')}" if len(found) > 1 else first


def _expiry(policy: str, before: PolicyValue, after: PolicyValue) -> Duration | None:
    """Age at which Pulsar drops unread messages by the new value of a policy, if that is earlier than before; else
    None.
    """
    match policy, before, after:
        case "ttl", _, Duration() if after < as_limit(before):
            return after
        case "backlog_quota", _, BacklogQuota(evicts=(_, Duration() as age)):
            return age if age < as_limit(_evicts(before)[1]) else None
        case _:
            return None


def refusal(code: str, summary: str, address: Address, stake: str, *, allowed: bool, advice: str = "") -> Diagnostic:
    """Makes an error that names the remedy `--allow-destroy`; a warning without a remedy if `allowed`. `stake`: text of
    the loss; `advice`: a further line of the error.
    """
    if allowed:
        return warning(code, summary, f"{address}: {stake}; allowed by name")
    detail = f"{address}: {stake}\n{advice}" if advice else f"{address}: {stake}"
    remedy = Remedy("--allow-destroy", address)
    flags = f"--allow-destroy {address}, or the same address in the file's `allow_destroy`"
    return error_with_remedy(code, summary, detail, remedy, flags)


def _was_kept(before: PolicyValue | None) -> bool:
    return before is None or (isinstance(before, InactiveTopic) and before.delete == "never")


def _evicts(quota: PolicyValue) -> tuple[Size | Unlimited, Duration | Unlimited]:
    return quota.evicts if isinstance(quota, BacklogQuota) else (UNLIMITED, UNLIMITED)


def _evicts_earlier(before: PolicyValue, after: BacklogQuota) -> bool:
    return any(as_limit(new) < as_limit(old) for old, new in zip(_evicts(before), after.evicts, strict=True))


def _eviction(after: BacklogQuota, facts: TopicFacts, evidence: Evidence, now: int) -> str:
    """Text of the loss by a quota that evicts: the backlog beyond its size; all of it if the oldest message is older
    than the quota allows.
    """
    most, oldest = map(as_limit, after.evicts)
    over = facts.backlog_bytes - most
    age = now - evidence.oldest if evidence.oldest else float("inf")
    if facts.backlog_bytes and age > oldest:
        over = facts.backlog_bytes
    return f"up to {size_text(int(over))} of unread messages" if over > 0 else ""


def _retention_loss(before: Retention, after: Retention, facts: TopicFacts, evidence: Evidence, now: int) -> str:
    """Text of the loss of acknowledged data by a lower retention; "" for none. Pulsar drops whole closed ledgers beyond
    either limit.
    """
    assert before.time is not None
    assert before.size is not None
    assert after.time is not None
    assert after.size is not None
    lower = as_limit(after.time) < as_limit(before.time) or as_limit(after.size) < as_limit(before.size)
    kept = facts.storage_bytes - facts.backlog_bytes
    if not lower or kept <= 0:
        return ""
    too_old = sum(size for closed, size in evidence.ledgers if not closed or now - closed > as_limit(after.time))
    too_much = max(0.0, kept - as_limit(after.size))
    loss = min(kept, max(too_old if evidence.ledgers else kept, int(too_much)))
    return f"up to {size_text(int(loss))} of kept messages" if loss > 0 else ""


def _data(facts: TopicFacts | SubscriptionFacts | None, found: Evidence, now: int) -> Iterator[str]:
    entries = max(found.entries, facts.backlog_entries if isinstance(facts, SubscriptionFacts) else 0)
    if entries or (isinstance(facts, TopicFacts) and facts.backlog_bytes):
        age = f", the oldest {age_text(now - found.oldest)} old" if found.oldest else ""
        size = found.bytes or (facts.backlog_bytes if facts else 0)
        yield f"{found.unread_text(entries)} ({size_text(size)}{age})"
    if isinstance(facts, TopicFacts) and facts.storage_bytes > facts.backlog_bytes:
        yield f"{size_text(facts.storage_bytes - facts.backlog_bytes)} of kept messages"
    for cluster, entries in facts.unreplicated if isinstance(facts, TopicFacts) else ():
        yield f"{many(entries, 'entry', 'entries')} that cluster {cluster} does not have yet"


def _use(facts: TopicFacts | SubscriptionFacts | None, found: Evidence, now: int) -> Iterator[str]:
    if facts is None:
        return
    if facts.consumers:
        yield f"{many(facts.consumers, 'consumer')} connected{_client_names(found)}"
    if isinstance(facts, TopicFacts):
        if facts.producers:
            yield f"{many(facts.producers, 'producer')} connected{_client_names(found) if not facts.consumers else ''}"
        if facts.last_publish and now - facts.last_publish < DAY_MS:
            yield f"last publish {age_text(now - facts.last_publish)} ago"


def _client_names(found: Evidence) -> str:
    shown = ", ".join(found.clients[:3])
    return f" ({shown}{', …' if len(found.clients) > 3 else ''})" if shown else ""


def _shown_value(value: PolicyValue | None) -> str:
    if value is None:
        return "unset"
    if isinstance(value, Retention):
        return f"{value.time}/{value.size}"
    if isinstance(value, BacklogQuota):
        of_age = f", {value.time} {value.when_old}" if value.when_old else ""
        return f"{value.size or value.time} {value.when_full}{of_age}"
    return value.delete or "unset" if isinstance(value, InactiveTopic) else str(value)
