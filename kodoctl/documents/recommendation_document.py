"""The JSON of `kodoctl pipeline recommend`."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class WaitingTenant(TypedDict):
    """A tenant that waited while another was loud. `p95`: ms in those windows, `p95_else`: in all others; null: none known."""

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
        "victims": list[WaitingTenant],
    },
)
"""A tenant's move to another level. `windows`: their first ms; `share`: of all messages in them, 0 to 1."""


class RecommendationDocument(TypedDict):
    """`calm_share`: a tenant below it in every window counts as calm; `patch`: a unified diff, empty without moves."""

    format_version: int
    window_ms: int
    goal_ms: int
    calm_share: float
    moves: list[RecommendedMove]
    notes: list[str]
    patch: str
    run: NotRequired[str]
