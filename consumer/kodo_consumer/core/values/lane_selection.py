"""Lane selection: the lanes that one worker reads, of all lanes of its subscription. Other workers read the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.values.limit_policy import Concurrency
from kodoctl.errors import Diagnostic, UsageError, error, warning
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodo_consumer.core.values.policy import Lane, Policy

ALL: Final = "all"
_FEWEST: Final = 2  # workers that a subscription has where lanes are left to others
_FORM: Final = "write names with commas between them, such as L2, retrying,pending, L1/ready or !B1"


@dataclass(frozen=True, slots=True)
class LaneSelection:
    """Lanes chosen by names of levels, states and lanes, and by `all`. The worker reads the lanes that `included` names
    (every lane if it is empty), except the lanes that `excluded` names.
    """

    included: tuple[str, ...]
    excluded: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> LaneSelection:
        """The selection that a user writes: names with commas between them, such as `L2`, `retrying,pending` or
        `L1/ready`, or `all`; `!` before a name excludes its lanes. Raises ValueError for an empty text or name and for
        `!all`. Names of no lane are found by `select_lanes` only.
        """
        terms = [term.strip() for term in text.split(",")]
        names = [term.removeprefix("!").strip() for term in terms]
        if not all(names):
            raise ValueError(f"a name is missing in {text!r}: {_FORM}")
        marked = list(zip(names, [term.startswith("!") for term in terms], strict=True))
        if (ALL, True) in marked:
            raise ValueError(f"!{ALL} leaves no lane: {_FORM}")
        included, excluded = (
            tuple(dict.fromkeys(name for name, is_off in marked if is_off is off)) for off in (False, True)
        )
        return cls(included, excluded)

    def __str__(self) -> str:
        return ",".join([*self.included, *(f"!{name}" for name in self.excluded)])

    def reads(self, lane: Lane) -> bool:
        """True for a lane that the worker is to read."""
        names = {ALL, lane.name, lane.level.value, lane.state.value}
        return (not self.included or not names.isdisjoint(self.included)) and names.isdisjoint(self.excluded)


def given_selection(text: str | None) -> LaneSelection | None:
    """The selection in a caller's text; None if there is no text. Raises UsageError as LaneSelection.parse raises
    ValueError.
    """
    if text is None:
        return None
    try:
        return LaneSelection.parse(text)
    except ValueError as problem:
        raise UsageError(error("K764", "invalid lane selection", str(problem))) from None


def select_lanes(policy: Policy, selection: LaneSelection | None) -> Policy:
    """The policy of a worker that reads only the selected lanes (None: all) of `policy`, whose `lanes` are all lanes.
    The selected lanes share the worker's slot time by their weights; the others come into `unread`, and get new
    indices, as the selected ones do. Targets of moves stay. Raises UsageError with every name that no lane has, and if
    no lane is left.
    """
    if selection is None:
        return policy
    if findings := list(_findings(policy, selection)):
        raise UsageError(*findings)
    chosen = [lane for lane in policy.lanes if selection.reads(lane)]
    others = [lane for lane in policy.lanes if not selection.reads(lane)]
    common = gcd(*(lane.weight for lane in chosen)) or 1
    total = sum(lane.weight for lane in chosen) or 1
    lanes = [
        replace(lane, index=index, weight=lane.weight // common, share=lane.weight / total)
        for index, lane in enumerate(chosen)
    ]
    unread = [replace(lane, index=index, weight=0, share=0.0) for index, lane in enumerate(others, len(lanes))]
    return replace(policy, lanes=tuple(lanes), unread=tuple(unread))


def limit_warnings(policy: Policy) -> Iterator[Diagnostic]:
    """Warnings (K765) about limits that may let more pass than the file seems to say, because other workers read some
    lanes of the subscription; none if this worker reads all of them.
    """
    if not policy.unread:
        return
    if policy.expected_workers < _FEWEST and any(limit.shared for limit in policy.limits):
        detail = (
            f"{policy.ground} {policy.subscription} expects {policy.expected_workers} worker, and other workers have to read"
            f" {many(len(policy.unread), 'lane')}: until these are counted, which takes half a minute, or without the"
            f" broker's statistics, each takes all of a limit; write `expected_workers: {_FEWEST}` or more"
        )
        yield warning("K765", "limit beyond the lanes of a worker", detail)
    for limit in policy.limits:
        if isinstance(limit, Concurrency) and not limit.shared:
            by = f" by {limit.by}" if limit.by else ""
            detail = (
                f"concurrency{by} with `scope: worker` counts the handlers of this worker only, not those of"
                f" {many(len(policy.unread), 'lane')} of other workers; `scope: subscription` and a store count all"
            )
            yield warning("K765", "limit beyond the lanes of a worker", detail)


def _findings(policy: Policy, selection: LaneSelection) -> Iterator[Diagnostic]:
    known = {ALL} | {name for lane in policy.lanes for name in (lane.name, lane.level.value, lane.state.value)}
    unknown = [name for name in (*selection.included, *selection.excluded) if name not in known]
    what = f"{str(selection)!r} of {policy.ground} {policy.subscription}"
    lanes = f"its lanes are {', '.join(lane.name for lane in policy.lanes)}"
    if unknown:
        names = ", ".join(repr(name) for name in unknown)
        yield error("K764", "invalid lane selection", f"{what}: no level, state or lane is named {names}; {lanes}")
    if known.issuperset(selection.included) and not any(map(selection.reads, policy.lanes)):
        yield error("K764", "invalid lane selection", f"{what}: no lane is left; {lanes}")


def lane_lines(policy: Policy) -> list[str]:
    """One line for people for each lane, those that this worker reads first: topic, share of slot time, whether it is
    draining, and bulkheads; of a lane that the worker does not read: topic, and that it is not read here.
    """
    width = max(len(lane.topic) for lane in policy.every_lane)
    read = [
        "  ".join(
            [f"{lane.topic:<{width}}", f"{lane.share:6.1%}", *["draining"] * lane.draining, *_slots(policy, lane)]
        )
        for lane in policy.lanes
    ]
    return [*read, *(f"{lane.topic:<{width}}  not read here" for lane in policy.unread)]


def slots_text(policy: Policy) -> str:
    """Number of messages that handlers may work on at once, such as `32 slots`, or `up to 32 slots` if the concurrency
    adapts itself: `Policy.concurrency` of this policy, in which a batch handler counts each message of its batches.
    """
    return f"{'up to ' if policy.adaptive else ''}{many(policy.concurrency, 'slot')}"


def _slots(policy: Policy, lane: Lane) -> list[str]:
    """Bulkheads of a lane, in the order of the file."""
    return [str(one) for one in policy.bulkheads if one.lanes.has(lane.level, lane.state)]
