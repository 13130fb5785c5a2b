# pure: every branch is tested
"""Words in the JSON of plans: the verbs of changes, codes, and the prefix (`policies.`) of fields that are policies."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

UNREAD_CODES: Final = frozenset(
    {"K435", "K451", "K456"}
)  # warnings of a plan, which leaves alone what it could not read
POLICY_PREFIX: Final = "policies."  # of the names of fields in JSON


class Action(StrEnum):
    """Verb of a change in a plan, as its JSON has it."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    ADOPT = "adopt"
    FORGET = "forget"

    @property
    def symbol(self) -> str:
        """Symbol for people: `+` create, `~` update, `-` delete, `○` adopt, `.` forget."""
        return {"create": "+", "update": "~", "delete": "-", "adopt": "○", "forget": "."}[self.value]
