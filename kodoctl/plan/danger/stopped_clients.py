"""K433: policies that are legal, and stop clients that are connected now, at once or when they connect again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kodoctl.errors import Diagnostic, warning
from kodoctl.plan.changes import Change, Update
from kodoctl.plan.danger.data_loss import affected_topics, changed_policies, unknown_topics
from kodoctl.pulsar.values.live_objects import TopicFacts
from kodoctl.text.formatting import many, size_text
from kodoctl.topology.model.policies import BacklogQuota
from kodoctl.topology.units import UNLIMITED, as_limit

if TYPE_CHECKING:
    from kodoctl.pulsar.values.live_objects import Live
    from kodoctl.topology.model.policies import PolicyValue
    from kodoctl.topology.resources import Address

K433: Final = "a change that stops clients"
_BUSY: Final = TopicFacts(backlog_bytes=1 << 62, producers=1 << 31, consumers=1 << 31)  # whatever stops clients, it has


def stopped_clients(live: Live, changes: Sequence[Change]) -> Iterator[Diagnostic]:
    """Yields a warning (K433) for each policy of a topic or namespace that an update sets to a value which stops
    clients that are connected now, at once or when they connect again: `encryption_required`, `schema_validation`,
    `max_producers`, `max_consumers`, or a `backlog_quota` whose size is exceeded already and which stops producers; or
    which it unsets, so that such a value of the namespace or the broker applies. The warning names the policy, the
    first topic, the effect on its clients, and the number of further topics; and the topics of which only names are
    known.
    """
    own = changed_policies(changes)
    for change in changes:
        if not isinstance(change, Update):
            continue
        for field in change.policy_changes:
            after = field.counting(after=True)
            found = [
                f"{address}: {text}"
                for address in affected_topics(live, change, field.policy, own)
                if isinstance(facts := _facts(live, address), TopicFacts)
                and (text := _effect_on_clients(field.policy, after, facts))
            ]
            texts = [f"of {found[0]}"] if found else []
            if len(found) > 1:
                texts.append(f"so {many(len(found) - 1, 'more topic')}")
            if _effect_on_clients(field.policy, after, _BUSY) and (names := unknown_topics(live, change)):
                texts.append(f"may stop clients of {names}")
            if texts:
                yield warning("K433", K433, f"{field.policy} {'; '.join(texts)}", change.about.where)


def _facts(live: Live, address: Address) -> object:
    return live.objects[address].facts if address in live.objects else None


def _effect_on_clients(policy: str, after: PolicyValue | None, facts: TopicFacts) -> str:
    """The effect of a policy on the clients of a topic, as text; "" if there is none."""
    match policy, after:
        case "encryption_required", True if facts.producers:
            return f"its {many(facts.producers, 'producer')} cannot connect again without keys; workers have none"
        case "schema_validation", True if facts.producers:
            return f"those of its {many(facts.producers, 'producer')} that have no schema cannot connect again"
        case "max_producers", int() if after < facts.producers:
            return f"{facts.producers} producers are connected, of which {after} could connect again"
        case "max_consumers", int() if after < facts.consumers:
            return f"{facts.consumers} consumers are connected, of which {after} could connect again"
        case "backlog_quota", BacklogQuota(when_full="hold_producers" | "fail_producers") if (
            facts.backlog_bytes > as_limit(after.size or UNLIMITED)
        ):
            return f"{size_text(facts.backlog_bytes)} wait already, so that producers stop at once, workers that move messages too"
        case _:
            return ""
