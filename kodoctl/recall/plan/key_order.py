"""Order of keys while messages of an ordered lane are sent again: checks which messages of a key a plan must take, so
that none of them comes after a later message.

A release sends to the end of the same lane. If it takes a message of a key, it must take all later ones of the key in
the lane; earlier ones may stay, and come first as before. A move must take all messages of a key.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kodoctl.errors import Diagnostic, RefusedError, error
from kodoctl.protocol import properties
from kodoctl.recall.plan.recall_plan import RecallAction
from kodoctl.text.formatting import many
from kodoctl.topology.names import partition_name, partition_numbers

if TYPE_CHECKING:
    from kodoctl.recall.cluster import RecallCluster
    from kodoctl.recall.message.stored_message import DeadLetter, Position
    from kodoctl.recall.plan.recall_plan import LetterRef, PlannedLetter, RecallPlan

_SHOWN: Final = 5  # keys that are named


@dataclass(slots=True)
class KeyCount:
    """Counts of the unacknowledged messages of one key in a lane. `key`: as `order_key` returns it; `stored`: number of
    all of them; `taken`: number of those that leave the lane by a plan; `split`: a message that stays is stored after
    one that leaves.
    """

    key: str
    stored: int = 0
    taken: int = 0
    split: bool = False

    def __str__(self) -> str:
        return f"{self.key}: {self.taken:,} of {many(self.stored, 'message')}"


def order_key(letter: DeadLetter) -> str:
    """Text for the key within which workers keep order: the ordering key, else the key. All messages of a partition
    that have neither count as one key.
    """
    return letter.ordering_key or letter.key or f"(no key, partition {letter.position.partition})"


class KeyOrder:
    """Keys of the unacknowledged messages of an ordered lane, to prove that a plan does not send a later message of a
    key before an earlier one. `add` must get every unacknowledged message that the subscription handles there, in the
    order of storing.
    """

    def __init__(self) -> None:
        self._keys: list[tuple[Position, str]] = []

    def add(self, letter: DeadLetter) -> None:
        """Adds a message of the lane, chosen or not."""
        self._keys.append((letter.position, order_key(letter)))

    def split_keys(self, action: RecallAction, planned: Container[Position]) -> list[KeyCount]:
        """Returns the keys whose order would be broken if the messages at the positions `planned` were sent, in the
        order of their first messages. `planned` is the result of `leaving`: not only the messages that are sent. A
        release breaks it if it leaves a message of the key after one that it takes; any other action counts as a move
        and breaks it if it takes only a part of the key's messages. Not for a discard, which breaks no order.
        """
        found: dict[str, KeyCount] = {}
        for position, key in self._keys:
            count = found.setdefault(key, KeyCount(key))
            count.stored += 1
            if position in planned:
                count.taken += 1
            elif count.taken:
                count.split = True  # it would come before what is sent
        whole = action is RecallAction.RELEASE
        return [one for one in found.values() if one.split or (not whole and 0 < one.taken < one.stored)]

    def check(self, action: RecallAction, planned: Collection[Position]) -> None:
        """Raises RefusedError (K555) if the order of a key would break: see `split_keys`. A discard is never refused.
        `planned`: positions of all messages that leave the lane, not only of those that are sent: see `leaving`.
        """
        if action.sends and (split := self.split_keys(action, planned)):
            raise RefusedError(_split(split))


def _split(keys: list[KeyCount]) -> Diagnostic:
    more = [f"  and {len(keys) - _SHOWN:,} more"] if len(keys) > _SHOWN else []
    detail = [
        "the lane keeps the order of its keys, and the plan takes a part of these alone:",
        *(f"  {one}" for one in keys[:_SHOWN]),
        *more,
        "Choose by key, such as --where \"key IN ('k1', 'k2')\", with a --limit that is large enough; or discard. Nothing was sent.",
    ]
    return error("K555", "nowhere to send to", "\n".join(detail))


def leaving(letters: Iterable[PlannedLetter], settle: Iterable[LetterRef]) -> set[Position]:
    """Positions of all messages that leave the lane when a plan is carried out: `letters`, which it sends or discards;
    the copies of each; and `settle`, which an earlier recall sent or discarded. `letters` is iterated twice, so it must
    not be an iterator.
    """
    found = {one.position for one in letters}
    for one in letters:
        found.update(ref.position for ref in one.repeats)
    return found.union(ref.position for ref in settle)


def check_keys(plan: RecallPlan, cluster: RecallCluster) -> None:
    """Checks that a plan still keeps the order of keys, before anything is sent. Reads the unacknowledged messages of
    its source lane; a partition without the plan's holder counts as empty. A discard is never refused, and nothing is
    read for it. Raises RefusedError (K559) if `split_keys` returns a key: it says that messages of the key came since
    the plan; or if the lane has other partitions than planned (K822). Raises UsageError if there is no such topic,
    ClusterError. `plan`: must have its letters in memory (no table).
    """
    from kodoctl.recall.cluster import check_partitions

    if not plan.action.sends:
        return
    check_partitions(cluster, {plan.source_topic: plan.source_partitions}, planned=True)
    keys = KeyOrder()
    for letter in _unacknowledged_letters(plan, cluster):
        keys.add(letter)
    if split := keys.split_keys(plan.action, leaving(plan.letters, plan.settle)):
        names = ", ".join(one.key for one in split[:_SHOWN])
        detail = f"messages of {many(len(split), 'key')} came since the plan ({names}): plan again; nothing was sent"
        raise RefusedError(error("K559", "recall plan that cannot be carried out", detail))


def _unacknowledged_letters(plan: RecallPlan, cluster: RecallCluster) -> Iterator[DeadLetter]:
    """Yields the messages for the subscription that it has not acknowledged, in their order."""
    from kodoctl.recall.cluster import letter_of

    for number in partition_numbers(plan.source_partitions):
        facts = cluster.facts(partition_name(plan.source_topic, number))
        cursor = facts.cursors.get(plan.holder)
        if cursor is None:
            continue
        for stored in cluster.read_all(facts, cursor.mark if cursor.mark[0] >= 0 else None):
            if not cursor.has((stored.ledger, stored.entry)) and _is_for(plan, stored.properties):
                yield letter_of(stored, plan.source_topic, None)


def _is_for(plan: RecallPlan, given: Mapping[str, str]) -> bool:
    return given.get(properties.FOR, plan.subscription) == plan.subscription


def late_arrivals(plan: RecallPlan, cluster: RecallCluster) -> Iterator[str]:
    """Yields a line of text for each message that arrived while the plan was carried out, and is stored before a sent
    message of its key. Only a release can have such messages; nothing is read for other actions. Reads the lane again,
    from the last planned message of each partition. Raises UsageError if there is no such topic, ClusterError. `plan`:
    must have its letters in memory (no table).
    """
    if plan.action is not RecallAction.RELEASE:
        return
    sent = {one.recall_id for one in plan.letters}
    for number in sorted({one.position.partition for one in plan.letters}):
        last = max(one.position for one in plan.letters if one.position.partition == number)
        yield from _partition_arrivals(plan, cluster, number, (last.ledger, last.entry), sent)


def _partition_arrivals(
    plan: RecallPlan, cluster: RecallCluster, number: int, after: tuple[int, int], sent: Container[str]
) -> Iterator[str]:
    from kodoctl.recall.cluster import letter_of

    came: dict[str, list[Position]] = {}
    for stored in cluster.read_all(cluster.facts(partition_name(plan.source_topic, number)), after):
        letter = letter_of(stored, plan.source_topic, None)
        key = order_key(letter)
        if letter.properties.get(plan.kind.mark) in sent:
            for position in came.pop(key, ()):
                yield f"{position}: it came meanwhile, and stands before what was sent of its key {key}"
        elif _is_for(plan, letter.properties):
            came.setdefault(key, []).append(letter.position)
