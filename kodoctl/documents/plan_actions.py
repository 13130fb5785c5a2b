# pure: every branch is tested
"""Words in the JSON of plans: the verbs of changes, and the prefix of a field that is a policy (`policies.ttl`)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

POLICY_PREFIX: Final = "policies."  # of the names of fields in JSON


class Action(StrEnum):
    """The verb of a change in a plan, and the symbol for it in texts."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    ADOPT = "adopt"
    FORGET = "forget"

    @property
    def symbol(self) -> str:
        """Symbol for people: `+` create, `~` update, `-` delete, `○` adopt, `.` forget."""
        return {"create": "+", "update": "~", "delete": "-", "adopt": "○", "forget": "."}[self.value]
