"""Report of recommendations as a JSON document. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kodo_pipeline.recommend.noisy_neighbours import CALM, LevelMove
from kodo_pipeline.recommend.recommendation_document import RecommendedLevel
from kodoctl.documents.json_form import row_of

if TYPE_CHECKING:
    from kodo_pipeline.recommend.exclusive_tenants import ExclusiveLevel
    from kodo_pipeline.recommend.recommendation_document import (
        RecommendationDocument,
        RecommendedMove,
        RecommendedSetting,
        WaitingTenant,
    )
    from kodo_pipeline.recommend.slot_use import SettingChange

FORMAT_VERSION: Final = 1
OWN: Final = ("promote", "return")  # actions by the runs of the tenant itself


def document(
    window: int,
    goal: int,
    moves: Sequence[LevelMove],
    settings: Sequence[SettingChange],
    levels: Sequence[ExclusiveLevel],
    victims: Mapping[LevelMove, Sequence[WaitingTenant]],
    notes: Sequence[str],
) -> RecommendationDocument:
    """Makes the JSON document of recommendations, with an empty patch. `moves`: those with the action `exclusive` are
    left out, because `levels` has them; `window`: width of a window in ms; `goal`: ms.
    """
    return {
        "format_version": FORMAT_VERSION,
        "window_ms": window,
        "goal_ms": goal,
        "calm_share": CALM,
        "moves": [_move(one, victims.get(one, ())) for one in moves if one.action != "exclusive"],
        "settings": [_setting(one) for one in settings],
        "levels": [row_of(RecommendedLevel, one) for one in levels],
        "notes": list(notes),
        "patch": "",
    }


def _move(one: LevelMove, victims: Sequence[WaitingTenant]) -> RecommendedMove:
    by_own = one.action in OWN
    late, late_else = _round(one.late), _round(one.late_else)
    return {
        "topic": one.topic,
        "subscription": one.subscription,
        "tenant": one.tenant,
        "action": one.action,
        "from": one.source,
        "to": one.target,
        "windows": list(one.windows),
        "share": round(one.share, 4),
        "others_late": None if by_own else late,
        "others_late_else": None if by_own else late_else,
        "own_late": late if by_own else None,
        "own_late_else": late_else if by_own else None,
        "own_goal_ms": one.goal if by_own else None,
        "victims": list(victims),
    }


def _setting(one: SettingChange) -> RecommendedSetting:
    return {
        "topic": one.topic,
        "subscription": one.subscription,
        "action": one.action,
        "path": ".".join(map(str, one.path)),
        "by": one.by or None,
        "from": one.before,
        "to": one.after,
        "who": one.who,
        "windows": list(one.windows),
        "busy_slots": round(one.busy, 2),
        "total_slots": one.total,
        "needed_slots": one.needed,
        "others_late": _round(one.late),
        "others_late_else": _round(one.late_else),
    }


def _round(share: float | None) -> float | None:
    return None if share is None else round(share, 4)
