"""Flags that choose some of the objects (`--target`, `--exclude`), by addresses and by patterns of them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kodoctl.expressions.evaluator import like

if TYPE_CHECKING:
    from kodoctl.topology.resources import Address


@dataclass(frozen=True, slots=True)
class TargetFlags:
    """Values of the flags: addresses, or patterns of them in which `*` stands for any text, `/` included."""

    targets: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.targets or self.excludes)

    def names(self, address: Address) -> bool:
        """True if the flags alone choose an address."""
        return self.targeted(address) and not self.excluded(address)

    def targeted(self, address: Address) -> bool:
        """True if a target fits; without any, all do."""
        return not self.targets or any(fits(pattern, address) for pattern in self.targets)

    def excluded(self, address: Address) -> bool:
        """True if an exclusion fits."""
        return any(fits(pattern, address) for pattern in self.excludes)


WHOLE: Final = TargetFlags()
"""No flags: nothing is left out."""


def fits(pattern: str, address: Address) -> bool:
    """True if a pattern names an address: it is that address, or `*` stands for the rest."""
    if "*" not in pattern:
        return pattern == address
    plain = re.sub(r"([\\%_])", r"\\\1", pattern)
    return like(address, plain.replace("*", "%"), fold=False)
