"""What a planted disaster is, and how one is planted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kodo_pipeline.audit.verdict import Outcome
from kodo_pipeline.evidence.audit_evidence import MessageStatus

from tests.spark.world import World

CLEAN, LOSS, DOUBT = Outcome.NO_LOSS, Outcome.LOSS, Outcome.INCONCLUSIVE


@dataclass(frozen=True)
class Disaster:
    """`lost`: how many are found lost. `says`: a part of the first reason."""

    title: str
    world: World
    outcome: Outcome
    fates: dict[MessageStatus, int]
    says: str = ""


ALL: list[Disaster] = []


def case(title: str, outcome: Outcome, says: str = "", /, mode: str = "wait", **fates: int):
    """Plants what the function does; a message that was done stands beside it."""

    def plant(what: Callable[[World], None]) -> None:
        world = World(what.__name__.replace("_", "-"), mode)
        world.done()
        what(world)
        found = {MessageStatus[name.upper()]: count for name, count in fates.items()}
        ALL.append(Disaster(title, world, outcome, {MessageStatus.DONE: 1} | found, says))

    return plant
