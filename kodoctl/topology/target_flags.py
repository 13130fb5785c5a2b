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
    """Values of `--target` and `--exclude`: addresses, or patterns in which `*` stands for any text, `/` included."""

    targets: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.targets or self.excludes)

    def names(self, address: Address) -> bool:
        """True if the flags choose an address: it is targeted and not excluded."""
        return self.targeted(address) and not self.excluded(address)

    def targeted(self, address: Address) -> bool:
        """True if one of `targets` fits the address, or there are no targets."""
        return not self.targets or any(fits(pattern, address) for pattern in self.targets)

    def excluded(self, address: Address) -> bool:
        """True if one of `excludes` fits the address."""
        return any(fits(pattern, address) for pattern in self.excludes)


WHOLE: Final = TargetFlags()
"""No flags: everything is chosen."""


def fits(pattern: str, address: Address) -> bool:
    """True if a pattern is the address, or matches it with `*` for any text."""
    if "*" not in pattern:
        return pattern == address
    plain = re.sub(r"([\\%_])", r"\\\1", pattern)
    return like(address, plain.replace("*", "%"), fold=False)
