"""Ownership decision: the action on an object, by three facts: its declaration, its existence, its owner. Pure;
independent of fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from kodoctl.plan.ownership import Claim
from kodoctl.pulsar.values.ledger import OwnershipKind


class OwnershipAction(Enum):
    """Action on an object, as ownership alone decides. CREATE makes an absent object; KEEP leaves the owner of one that
    is ours; ADOPT makes an object ours; REFUSE leaves one of another topology alone, with an error; FORGET gives up one
    that stays; FORGET_LOST takes one that is absent, or is no longer ours, out of the ledger; DELETE deletes one that
    is ours; IGNORE does nothing.
    """

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
    """Result of a decision. `action`: action on the object; `reason`: text that the plan shows, "" for none;
    `owned_by`: the topology that owns a declared object so far, if it has another name; else None.
    """

    action: OwnershipAction
    reason: str = ""
    owned_by: str | None = None


def decide_declared(owner: str, live: Claim | None, *, formerly: frozenset[str], take_over: bool) -> OwnershipDecision:
    """Decides on an object that the topology `owner` declares: CREATE if it is absent; KEEP if `owner` owns it and
    lists it in its ledger entry as created or adopted; ADOPT if `owner` owns it by its marker alone or as an intent, if
    nobody owns it, if an earlier name does (`formerly`), or with `take_over` if any other topology does; else REFUSE.
    `live`: the present owner, None if the object is absent.
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
    """Decides on an object that the ledger entry of `owner` lists as `holding`, and that no file declares. If it is
    absent, or not owned by `owner` any more: FORGET_LOST, or IGNORE if `holding` is an intent, whatever the flags say.
    Else FORGET with `forget`, or if the object was adopted and `destroy` is False; else DELETE. `live`: its present
    owner, None if the object is absent; `forget`, `destroy`: its address is named for that by a flag or in the file.
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
