"""Ownership decisions: each row of (declared, live, owned by) has one action."""

from __future__ import annotations

import pytest

from kodoctl.plan.ownership import Claim
from kodoctl.plan.ownership_decision import OwnershipAction, decide_declared, decide_undeclared
from kodoctl.pulsar.values.ledger import OwnershipKind

CREATED, ADOPTED, INTENT = OwnershipKind.CREATED, OwnershipKind.ADOPTED, OwnershipKind.INTENT


@pytest.mark.parametrize(
    ("live", "take_over", "action", "reason", "owned_by"),
    [
        (None, False, OwnershipAction.CREATE, "declared, not there", None),
        (Claim(None), False, OwnershipAction.ADOPT, "there, and nobody's yet", None),
        (Claim("trade", CREATED), False, OwnershipAction.KEEP, "", None),
        (Claim("trade", ADOPTED), True, OwnershipAction.KEEP, "", None),
        (Claim("trade"), False, OwnershipAction.ADOPT, "carries our marker, the ledger does not hold it yet", None),
        (Claim("trade", INTENT), False, OwnershipAction.ADOPT, "carries our marker, the ledger does not hold it yet", None),
        (Claim("old", CREATED), False, OwnershipAction.ADOPT, "trade was called old", "old"),
        (Claim("old"), True, OwnershipAction.ADOPT, "trade was called old", "old"),
        (Claim("other", CREATED), True, OwnershipAction.ADOPT, "taken over from other", "other"),
        (Claim("other", CREATED), False, OwnershipAction.REFUSE, "", "other"),
        (Claim("other"), False, OwnershipAction.REFUSE, "", "other"),
    ],
)  # fmt: skip
def test_a_declared_object(
    live: Claim | None, take_over: bool, action: OwnershipAction, reason: str, owned_by: str | None
) -> None:
    found = decide_declared("trade", live, formerly=frozenset({"old"}), take_over=take_over)
    assert (found.action, found.reason, found.owned_by) == (action, reason, owned_by)


@pytest.mark.parametrize(
    ("holding", "live", "named", "action"),
    [
        (CREATED, None, "", OwnershipAction.FORGET_LOST),
        (INTENT, None, "", OwnershipAction.IGNORE),
        (CREATED, Claim("other"), "", OwnershipAction.FORGET_LOST),
        (ADOPTED, Claim(None), "forget", OwnershipAction.FORGET_LOST),
        (INTENT, Claim(None), "", OwnershipAction.IGNORE),
        (CREATED, Claim("trade", CREATED), "", OwnershipAction.DELETE),
        (INTENT, Claim("trade", INTENT), "", OwnershipAction.DELETE),
        (CREATED, Claim("trade", CREATED), "forget", OwnershipAction.FORGET),
        (ADOPTED, Claim("trade", ADOPTED), "", OwnershipAction.FORGET),
        (ADOPTED, Claim("trade", ADOPTED), "destroy", OwnershipAction.DELETE),
        (ADOPTED, Claim("trade", ADOPTED), "forget destroy", OwnershipAction.FORGET),
    ],
)
def test_an_object_of_a_ledger_that_no_file_declares(
    holding: OwnershipKind, live: Claim | None, named: str, action: OwnershipAction
) -> None:
    found = decide_undeclared("trade", holding, live, forget="forget" in named, destroy="destroy" in named)
    assert found.action is action
