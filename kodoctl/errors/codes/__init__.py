"""Every code of a finding or an error, from the file to the consumer: one list, so that none has two meanings.

A code never changes its meaning. A test compares this list with the sources: exactly the codes in use are listed.
"""

from __future__ import annotations

from typing import Final

from kodoctl.errors.codes.cluster_codes import CLUSTER_CODES
from kodoctl.errors.codes.code import Code
from kodoctl.errors.codes.message_codes import MESSAGE_CODES
from kodoctl.errors.codes.topology_codes import TOPOLOGY_CODES

__all__ = ["CODES", "GROUPS", "Code"]

GROUPS: Final[dict[str, dict[str, Code]]] = {**TOPOLOGY_CODES, **CLUSTER_CODES, **MESSAGE_CODES}
CODES: Final = {number: code for group in GROUPS.values() for number, code in group.items()}
