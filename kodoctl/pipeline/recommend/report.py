"""Report of a recommendation: one JSON document. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from kodoctl.pipeline.recommend.noisy_neighbours import CALM, LevelMove

if TYPE_CHECKING:
    from kodoctl.documents.recommendation_document import RecommendationDocument, WaitingTenant

FORMAT_VERSION: Final = 1


class Victim(NamedTuple):
    """A tenant that waited while another was loud: what it had done then, what of it too late, its p95 then and else
    in ms.
    """

    tenant: str
    done: int
    late: int
    p95: float | None
    p95_else: float | None


def document(
    window: int,
    goal: int,
    moves: Sequence[LevelMove],
    victims: Mapping[LevelMove, Sequence[Victim]],
    notes: Sequence[str],
) -> RecommendationDocument:
    """For machines. Times are ms."""
    return {
        "format_version": FORMAT_VERSION,
        "window_ms": window,
        "goal_ms": goal,
        "calm_share": CALM,
        "moves": [
            {
                "topic": one.topic,
                "subscription": one.subscription,
                "tenant": one.tenant,
                "action": one.action,
                "from": one.source,
                "to": one.target,
                "windows": list(one.windows),
                "share": round(one.share, 4),
                "others_late": one.late and round(one.late, 4),
                "others_late_else": one.late_else and round(one.late_else, 4),
                "victims": [cast("WaitingTenant", victim._asdict()) for victim in victims.get(one, ())],
            }
            for one in moves
        ],
        "notes": list(notes),
        "patch": "",
    }
