"""Settled messages that something new is about: they alone are judged again, and the verdict is that of all rows."""

from __future__ import annotations

from typing import Any

import pytest
from kodo_pipeline.landing.landing_store import Landing

from tests.spark.histories import History
from tests.spark.test_audit_increments import both, expansion

__all__ = ["expansion"]
pytestmark = pytest.mark.timeout(1800)
KINDS = ("late", "named", "letter", "forged", "future")


class SpokenOf(History):
    """A history in which something is said of messages that the last audit settled: nothing is read, or sent, again."""

    def __init__(self, *typed, **more):
        self.kinds, self.judged = list(KINDS), 0
        super().__init__(*typed, **more)

    def step(self, count, *, mischief=0):
        self.judged = len(self.done)
        super().step(count, mischief=mischief)

    def mischief(self):
        asked = self.kinds.pop(0)
        rng: Any = self.random
        choice, done = rng.choice, self.done
        rng.choice = lambda known: asked if "late" in known else choice(known)
        self.done = done[: self.judged]
        try:
            super().mischief()
        finally:
            rng.choice, self.done = choice, done


@pytest.mark.full
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_is_named_is_judged_again_and_nothing_else(spark, tmp_path, expansion, seed):
    landing = Landing(str(tmp_path / "landing"), "histories", None)
    history = SpokenOf(expansion, landing, seed, calm=True)
    history.step(60)
    bases = []
    while history.kinds or not bases:
        number = len(bases)
        history.step(40, mischief=min(1, len(history.kinds)) if number else 0)
        found, full = both(spark, landing, expansion, history.letters, f"20260101-000000-{number}")
        bases.append(found.pop("judged"))
        assert found == full, (number, bases)
    assert sum(one["reopened"] > 0 for one in bases) >= 3, bases
    assert all(one["reopened"] < one["settled_before"] / 4 for one in bases if one["reopened"]), bases
