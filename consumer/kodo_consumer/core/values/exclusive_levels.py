"""Exclusive levels: a level that the file keeps for named tenants admits nobody else, and their messages belong there.

Backup levels are everybody's: they are the last stop of all levels. Only the tenant and the present level of a message
decide here, not its headers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from kodoctl.topology.names import Level

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet


@dataclass(frozen=True)
class ExclusiveLevels:
    """Exclusive levels of a subscription. `tenants`: by exclusive level, the only tenants that it admits; messages of
    these tenants belong there. None of these levels is L1 or a backup level, and no tenant is in two of them.
    """

    tenants: Mapping[Level, AbstractSet[str]] = field(default_factory=dict)

    @cached_property
    def _level_of(self) -> Mapping[str, Level]:
        return {tenant: level for level, tenants in self.tenants.items() for tenant in tenants}

    def own_level(self, tenant: str) -> Level | None:
        """The exclusive level that names the tenant; None: no level does."""
        return self._level_of.get(tenant)

    def level_of(self, tenant: str, level: Level) -> Level:
        """Level where a message of the tenant belongs that is on `level`, or is sent there: `level` itself if it is a
        backup level; else the exclusive level that names the tenant; without one, L1 if `level` is exclusive, else
        `level`.
        """
        if level.is_backup:
            return level
        own = self.own_level(tenant)
        if own is not None:
            return own
        return Level.L1 if level in self.tenants else level

    def rule_for(self, tenant: str, level: Level) -> str:
        """Reason, for people, why `level_of` moves a message of the tenant away from `level`. Only for a level that
        `level_of` changes.
        """
        own = self.own_level(tenant)
        return f"exclusive level: {own} is this tenant's" if own else f"exclusive level: {level} is of other tenants"

    def why_not_admitted(self, tenant: str, level: Level) -> str:
        """Reason why an exclusive level does not admit the tenant, with the names of those that it admits; "" if it
        does, and for each other level, although messages of the tenant may belong elsewhere (`level_of`).
        """
        only = self.tenants.get(level)
        return f"{level} admits only {', '.join(sorted(only))}" if only is not None and tenant not in only else ""

    def routes_to(self, tenant: str, level: Level) -> bool:
        """True if a route to `level` counts for the tenant: if `level` is a backup level, or if neither `level` is
        exclusive nor an exclusive level names the tenant.
        """
        return level.is_backup or (level not in self.tenants and tenant not in self._level_of)


EVERYBODY: Final = ExclusiveLevels()
"""No level is exclusive."""
