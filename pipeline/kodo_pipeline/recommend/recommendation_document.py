"""The JSON of `kodoctl pipeline recommend`."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class WaitingTenant(TypedDict):
    """A tenant whose messages waited while another tenant was loud. `done`, `late`: messages done in those windows, and
    how many of these later than the goal; `p95`, `p95_else`: 95th percentile of the time until done, in ms, in those
    windows and in all others, null: unknown.
    """

    tenant: str
    done: int
    late: int
    p95: float | None
    p95_else: float | None


RecommendedMove = TypedDict(
    "RecommendedMove",
    {
        "topic": str,
        "subscription": str,
        "tenant": str,
        "action": str,
        "from": str,
        "to": str,
        "windows": list[int],
        "share": float,
        "others_late": float | None,
        "others_late_else": float | None,
        "own_late": float | None,
        "own_late_else": float | None,
        "own_goal_ms": int | None,
        "victims": list[WaitingTenant],
    },
)
"""A tenant's move to another level. `action`: isolate, degrade or upgrade by the load of all; promote or return by its
own runs. `windows`: beginnings, ms since the epoch; `share`: the tenant's share of all messages in them, 0 to 1, for
promote and return the larger of its shares of the runs and of the slot time.

`others_late`, `others_late_else`: share of the messages that others had done later than the goal, in these windows and
in all others; null for promote and return. `own_late`, `own_late_else`: share of its own runs that began later than
`own_goal_ms`; null for the other actions. A share is null, too, if there was nothing to share.
"""

RecommendedSetting = TypedDict(
    "RecommendedSetting",
    {
        "topic": str,
        "subscription": str,
        "action": str,
        "path": str,
        "by": str | None,
        "from": int | None,
        "to": int,
        "who": str,
        "windows": list[int],
        "busy_slots": float,
        "total_slots": int,
        "needed_slots": int,
        "others_late": float | None,
        "others_late_else": float | None,
    },
)
"""A setting of a subscription. `action`: bulkhead, limit or concurrency; `path`: keys in the file, below the
subscription; `by`: the property of a limit. `who` had `busy_slots` of the `total_slots` of a worker in `windows`, on
average; others, for concurrency all arrivals, needed `needed_slots`. `from`: null if the file has none. `others_late`,
`others_late_else`: share of the runs that began later than the goal, in `windows` and in all others: for a bulkhead of
the others' runs, else of all; null without runs.
"""


class TenantShare(TypedDict):
    """Load of a tenant on one subscription in the newest windows. `runs`: number of handler runs; `share`,
    `slot_share`: shares of all runs and of the slot time, 0 to 1; `late`: share of its runs that began later than its
    goal, null without runs.
    """

    subscription: str
    runs: int
    share: float
    slot_share: float
    late: float | None


class RecommendedLevel(TypedDict):
    """An exclusive level for a TOPIC/TENANT that the user named, with the load of this tenant."""

    topic: str
    tenant: str
    level: str
    figures: list[TenantShare]


class RecommendationDocument(TypedDict):
    """Recommendations as JSON. `calm_share`: a tenant whose share is lower in every window counts as calm; `patch`: a
    unified diff, "" if there is nothing to change.
    """

    format_version: int
    window_ms: int
    goal_ms: int
    calm_share: float
    moves: list[RecommendedMove]
    settings: list[RecommendedSetting]
    levels: list[RecommendedLevel]
    notes: list[str]
    patch: str
    run: NotRequired[str]
