# pure: every branch is tested
"""Words of the documents of plans: the verbs of changes, and the names of policies among fields."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

POLICY_PREFIX: Final = "policies."  # of the names of fields in JSON


class Action(StrEnum):
    """The verbs of the plan, with the symbol people read."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    ADOPT = "adopt"
    FORGET = "forget"

    @property
    def symbol(self) -> str:
        """`+ ~ - ○ .`"""
        return {"create": "+", "update": "~", "delete": "-", "adopt": "○", "forget": "."}[self.value]
