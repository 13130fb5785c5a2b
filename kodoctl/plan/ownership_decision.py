"""Ownership decision: the action on an object, by three facts: its declaration, its existence, its owner. Pure;
independent of fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from kodoctl.plan.ownership import Claim
from kodoctl.pulsar.values.ledger import OwnershipKind


class OwnershipAction(Enum):
    """Action on an object. `FORGET_LOST`: it is absent, or another topology owns it by now."""

    CREATE = auto()
    KEEP = auto()
    ADOPT = auto()
    REFUSE = auto()
    FORGET = auto()
    FORGET_LOST = auto()
    DELETE = auto()
    IGNORE = auto()


@dataclass(frozen=True, slots=True)
class OwnershipDecision:
    """An action, its reason as a plan shows it, and the topology that owned the object so far."""

    action: OwnershipAction
    reason: str = ""
    owned_by: str | None = None


def decide_declared(owner: str, live: Claim | None, *, formerly: frozenset[str], take_over: bool) -> OwnershipDecision:
    """The decision about an object that the topology `owner` declares. `live`: its present owner, None if the object is
    absent; `formerly`: earlier names of the topology; `take_over`: it may take objects of other topologies.
    """
    match live:
        case None:
            return OwnershipDecision(OwnershipAction.CREATE, "declared, not there")
        case Claim(owner=None):
            return OwnershipDecision(OwnershipAction.ADOPT, "there, and nobody's yet")
        case Claim(owner=name, holding=None | OwnershipKind.INTENT) if name == owner:
            return OwnershipDecision(OwnershipAction.ADOPT, "carries our marker, the ledger does not hold it yet")
        case Claim(owner=name) if name == owner:
            return OwnershipDecision(OwnershipAction.KEEP)
        case Claim(owner=name) if name in formerly:
            return OwnershipDecision(OwnershipAction.ADOPT, f"{owner} was called {name}", name)
        case Claim(owner=name) if take_over:
            return OwnershipDecision(OwnershipAction.ADOPT, f"taken over from {name}", name)
        case _:
            return OwnershipDecision(OwnershipAction.REFUSE, owned_by=live.owner)


def decide_undeclared(
    owner: str, holding: OwnershipKind, live: Claim | None, *, forget: bool, destroy: bool
) -> OwnershipDecision:
    """The decision about an object that the ledger entry of `owner` lists as `holding`, and that no file declares.
    `live`: its present owner, None if the object is absent; `forget`, `destroy`: its address is named for that.
    """
    match live, holding:
        case None, OwnershipKind.INTENT:
            return OwnershipDecision(OwnershipAction.IGNORE)
        case None, _:
            return OwnershipDecision(OwnershipAction.FORGET_LOST, "is gone already")
        case Claim(owner=name), OwnershipKind.INTENT if name != owner:
            return OwnershipDecision(OwnershipAction.IGNORE)
        case Claim(owner=name), _ if name != owner:
            return OwnershipDecision(OwnershipAction.FORGET_LOST, "was made anew by somebody else")
        case _ if forget:
            return OwnershipDecision(OwnershipAction.FORGET, "named in `forget`")
        case _, OwnershipKind.ADOPTED if not destroy:
            reason = "no longer declared; was adopted, so it stays (allow_destroy would delete it)"
            return OwnershipDecision(OwnershipAction.FORGET, reason)
        case _:
            return OwnershipDecision(OwnershipAction.DELETE, "no longer declared")
