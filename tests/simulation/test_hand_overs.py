"""Partitions that change hands, seed by seed: they rest no longer than documented; a worker that lets them is caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kodo_consumer.core.state.failover_partitions import ActivePartitions

from tests.native.compiled import INTERPRETED_ONLY
from tests.simulation.hand_overs import HandOvers
from tests.simulation.playing import first_seed
from tests.simulation.world import BrokenPromise

SEEDS = 10
_MANY = 2_000


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(_MANY, marks=[pytest.mark.full, pytest.mark.timeout(3600)])])
def test_a_partition_with_an_active_reader_rests_no_longer_than_documented(seeds: int) -> None:
    longest = max(HandOvers(first_seed() + number).run().rests for number in range(seeds))
    assert longest > 2.0, "partitions did change hands"


def _waits_for_all(right: Callable[..., Any]) -> Callable[..., Any]:
    def ready(self: Any, *given: Any) -> Any:
        return [] if any(left > 0 for left in self._leftovers.values()) else right(self, *given)

    return ready


MUTANTS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "messages are counted, and every partition waits": {
        "_ready": _waits_for_all, "_is_empty": lambda _: lambda *_given: False,
    },
}  # fmt: skip

CAUGHT_BY = {"messages are counted, and every partition waits": 0}


@INTERPRETED_ONLY
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_worker_that_lets_a_partition_rest_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, make in MUTANTS[mutant].items():
        monkeypatch.setattr(ActivePartitions, name, make(ActivePartitions.__dict__[name]))
    with pytest.raises(BrokenPromise):
        HandOvers(CAUGHT_BY[mutant]).run()
