"""Settled messages that something new is about: they alone are judged again, and the verdict is that of all rows."""

from __future__ import annotations

from typing import Any

import pytest

from kodoctl.pipeline.audit.audit_inputs import landed_inputs
from kodoctl.pipeline.audit.audit_state import AuditState
from kodoctl.pipeline.audit.incremental_audit import AuditOptions, judge_landing
from kodoctl.pipeline.audit.verdict import RANKS, MessageStatus
from kodoctl.pipeline.ingest.landing_commits import AUDIT_RUN, LandingCommit
from kodoctl.pipeline.ingest.landing_store import Landing
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


@pytest.mark.parametrize(
    ("seed", "at_once"), [(1, 3), *(pytest.param(seed, 1, marks=pytest.mark.full) for seed in (1, 2, 3))]
)
def test_what_is_named_is_judged_again_and_nothing_else(spark, tmp_path, expansion, seed, at_once):
    landing = Landing(str(tmp_path / "landing"), "histories", None)
    history = SpokenOf(expansion, landing, seed, calm=True)
    history.step(60)
    bases = []
    while history.kinds or not bases:
        number = len(bases)
        history.step(40, mischief=min(at_once, len(history.kinds)) if number else 0)
        found, full = both(spark, landing, expansion, history.letters, f"20260101-000000-{number}")
        bases.append(found.pop("judged"))
        assert found == full, (number, bases)
    assert sum(one["reopened"] > 0 for one in bases) >= (2 if at_once > 1 else 3), bases
    assert all(one["reopened"] < one["settled_before"] / 4 for one in bases if one["reopened"]), bases


def test_dead_letters_are_settled_until_they_are_released(spark, tmp_path, expansion):
    landing = Landing(str(tmp_path / "landing"), "histories", None)
    history = History(expansion, landing, 4, calm=True, recalls=False)
    for _ in range(2):
        history.step(60)
    both(spark, landing, expansion, (), "20260101-000000-1")
    fates = AuditState.of(landing.commits()).totals.fates
    assert sum(count for (_, rank), count in fates.items() if rank == RANKS[MessageStatus.DEAD]) > 1
    dead = [one for one in history.messages if one.lane.topic.state == "dead" and one.open_for]
    history.step(10)
    found, full = both(spark, landing, expansion, (), "20260101-000000-2")
    assert (found.pop("judged")["reopened"], found) == (0, full)
    for letter in dead[:2]:  # nobody knows why
        history.acknowledge(letter, letter.row["subscription"])
    history.step(10)
    found, full = both(spark, landing, expansion, (), "20260101-000000-3")
    basis = found.pop("judged")
    assert found == full
    assert (basis["all_rows"], basis["reopened"] > 0) == (False, True), basis
    assert found["verdict"] == "loss"


def test_a_state_of_other_rules_is_made_anew(spark, tmp_path, expansion):
    landing = Landing(str(tmp_path / "landing"), "histories", None)
    history = History(expansion, landing, 5, calm=True, recalls=False)
    history.step(20)
    landing.commit(LandingCommit(AUDIT_RUN, history.at(), facts={"rules": 2, "batch": 0}))
    bases = []
    for run in ("20260101-000000-1", "20260101-000000-2"):
        inputs = landed_inputs(spark, landing, expansion, (), {}, None)
        bases.append(judge_landing(spark, landing, inputs, AuditOptions(run, few=0))["judged"])
    assert [(one["all_rows"], one["unsaved"]) for one in bases] == [(True, ""), (False, "")]
    assert bases[0]["why"] == "the last audit was made by a kodoctl that judged by other rules"
