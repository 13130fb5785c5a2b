"""Fairness index: messages of each tenant that were handled, compared with its fair share. Pure; measured by
kodo_consumer.adapters.metrics.tenant_fairness.

Fair shares are found by filling: a tenant that asks for less than an even (weighted) part gets all it asks for, and the
remainder is divided evenly among the others.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

H = TypeVar("H", bound=Hashable)

NOISY_SHARE: Final = 0.1  # of what is held, or of the handlers' time
NOISY_LEAST: Final = 30  # messages held
NOISY_TIMES: Final = 2.0  # its even share: of three tenants each has a third, and none is noisy
TELLING: Final = 20  # messages of fair share below which a window says nothing: one more or less would look unfair


@dataclass(frozen=True, slots=True)
class TenantWindow:
    """A tenant in one window of time. `served`: messages handled in it; `waiting`: messages that wait at its end;
    `waited_before`: some waited at its start; `weight`: weight of the tenant's fair share. `tenants`: number of tenants
    with equal figures, counted together.
    """

    served: int
    waiting: int
    waited_before: bool
    weight: int = 1
    tenants: int = 1

    @property
    def is_backlogged(self) -> bool:
        """True if messages of the tenant waited at both ends of the window. It could then have used more handlers."""
        return self.waiting > 0 and self.waited_before


@dataclass(frozen=True, slots=True)
class FairnessIndex:
    """Evenness of one window. `jain`: (Σx)²/(n·Σx²) over x = served ÷ fair share, 1 = even. `worst`: the least x of a
    backlogged tenant.
    """

    jain: float
    worst: float


EVEN: Final = FairnessIndex(1.0, 1.0)


def fair_shares(tallies: Mapping[H, TenantWindow]) -> dict[H, float]:
    """Number of messages, by name, that a fair scheduler would have served each tenant, if it had served as many in
    all.
    """
    left = float(sum(tally.tenants * tally.served for tally in tallies.values()))
    weight = sum(tally.tenants * tally.weight for tally in tallies.values())
    shares = {}
    for name, tally in sorted(tallies.items(), key=lambda item: (item[1].served + item[1].waiting) / item[1].weight):
        shares[name] = min(float(tally.served + tally.waiting), left * tally.weight / weight)
        left -= tally.tenants * shares[name]
        weight -= tally.tenants * tally.weight
    return shares


def says_nothing(served: int, backlogged: int) -> bool:
    """True if a window with `served` messages and `backlogged` tenants is too small to judge: the mean of the tenants'
    shares, and so the least of them, is below TELLING (20 messages). Saves a look at each tenant.
    """
    return served < TELLING * backlogged


def evenness(tallies: Mapping[H, TenantWindow]) -> FairnessIndex | None:
    """Evenness of a window, EVEN (1 and 1) if no tenant is backlogged. None: the fair share of a backlogged tenant is
    below TELLING (20 messages), too small to judge.

    A tenant with messages that wait at the end, and none at the start, wanted an unknown share of the window, and is
    left out.
    """
    if not any(tally.is_backlogged for tally in tallies.values()):
        return EVEN
    shares = fair_shares(tallies)
    known = {name: tally for name, tally in tallies.items() if tally.is_backlogged or not tally.waiting}
    if any(known[name].is_backlogged and shares[name] < TELLING for name in known):
        return None
    ratios = {name: tally.served / shares[name] for name, tally in known.items() if shares[name]}
    many = {name: known[name].tenants for name in ratios}
    total = sum(many[name] * ratio for name, ratio in ratios.items())
    squares = sum(many[name] * ratio * ratio for name, ratio in ratios.items())
    worst = min(ratio for name, ratio in ratios.items() if known[name].is_backlogged)
    return FairnessIndex(total * total / (sum(many.values()) * squares) if squares else 1.0, worst)


def noisy(counts: Mapping[str, int], busy: Mapping[str, float]) -> set[str]:
    """Names of tenants with more than a tenth and more than twice an even part of all messages in memory (`counts` by
    tenant; 30 at least) or of the handlers' time (`busy`, seconds by tenant).
    """
    tenants = max(len(counts), len(busy))
    if tenants < NOISY_TIMES / NOISY_SHARE:  # from there on it makes no difference how many there are
        tenants = max(1, len(counts.keys() | busy.keys()))
    part = max(NOISY_SHARE, NOISY_TIMES / tenants)
    most_held, most_busy = part * sum(counts.values()), part * sum(busy.values())
    found = {tenant for tenant, count in counts.items() if count > most_held and count >= NOISY_LEAST}
    return found | {tenant for tenant, seconds in busy.items() if seconds > most_busy}
