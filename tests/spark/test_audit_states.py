"""What befalls the state of audits, one thing after the other on one landing: it cannot be written, is of other rules, something is
said of messages that it has settled, dead letters are released, a file of it goes.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from kodo_pipeline.audit.audit_state import AuditState
from kodo_pipeline.audit.last_audit import StateProblem
from kodo_pipeline.evidence.audit_evidence import RANKS, Cause, MessageStatus
from kodo_pipeline.landing.delta_tables import LandingTable
from kodo_pipeline.landing.landing_commits import AUDIT_RUN, LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.state_tables import OPEN_EVENTS
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tests.spark.histories import FILE, topology_of
from tests.spark.test_audit_increments import by_increments, of_all_rows
from tests.spark.test_audit_reopened import SpokenOf

pytestmark = [pytest.mark.timeout(1800), pytest.mark.full]
PROBLEMS = {"Java is gone": Py4JError("Java is gone"), "no space": PySparkException("no space")}


class Audited(NamedTuple):
    """What an audit by increments found, what one of all rows finds, and how the first judged."""

    found: dict
    full: dict
    basis: dict


class Audits:
    """Audits of a landing whose dead letters nobody sends again: something is said of messages that are settled."""

    def __init__(self, spark, folder):
        file = folder / "histories.yaml"
        file.write_text(FILE, encoding="utf-8")
        self.spark, self.expansion = spark, topology_of(str(file))
        self.landing = Landing(str(folder / "landing"), "histories", None)
        self.history = SpokenOf(self.expansion, self.landing, 4, calm=True, recalls=False)
        self.runs, self.full = 0, {}

    def step(self, count, mischief=0):
        """Some traffic lands."""
        self.history.step(count, mischief=mischief)
        self.full = of_all_rows(self.spark, self.landing, self.expansion, self.history.letters)

    def audit(self):
        """The next one, which keeps its state."""
        self.runs += 1
        run = f"20260101-000000-{self.runs}"
        found = by_increments(self.spark, self.landing, self.expansion, self.history.letters, run)
        basis = found.pop("judged")
        return Audited(found, self.full, basis)


@pytest.fixture(scope="module")
def states(spark, tmp_path_factory):
    """Audits, the last one 10 steps after the state of another was kept; the dead letters that were settled before these 10:
    their number, and they themselves.
    """
    made = Audits(spark, tmp_path_factory.mktemp("states"))
    made.history.step(60)
    made.history.step(60)
    made.audit()
    fates = AuditState.of(made.landing.commits()).totals.fates
    settled = sum(count for (_, rank), count in fates.items() if rank == RANKS[MessageStatus.DEAD])
    dead = [one for one in made.history.messages if one.lane.topic.state == "dead" and one.open_for]
    made.step(10)
    return made, made.audit(), settled, dead


@pytest.fixture(scope="module")
def reopened(states):
    """Audits after something was said of settled messages, and after two dead letters were let go."""
    made, _, _, dead = states
    made.step(40, mischief=3)
    found = {"spoken of": made.audit()}
    for letter in dead[:2]:  # nobody knows why
        made.history.acknowledge(letter, letter.row["subscription"])
    made.step(40, mischief=2)
    found["released"] = made.audit()
    return found


@pytest.fixture(scope="module")
def damaged(spark, tmp_path_factory):
    """What was found where the state cannot be written, and where it goes while it is read."""
    made, found = Audits(spark, tmp_path_factory.mktemp("damaged")), {}
    made.step(60)
    for name, problem in PROBLEMS.items():
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Landing, "write_frame", _raising(problem))
            found[name] = made.audit()
    made.audit()
    for path in Path(made.landing.table(OPEN_EVENTS).folder.uri).rglob("*.parquet"):
        if "_delta_log" not in path.parts:
            path.unlink()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LandingTable, "holds", lambda *_: True)  # it was there when that was asked
        found["gone"] = made.audit()
    return found


def _raising(problem):
    def fail(*_, **__):
        raise problem

    return fail


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_state_that_spark_cannot_write_leaves_the_verdict(damaged, problem):
    found, full, basis = damaged[problem]
    assert found == full
    assert problem in basis["unsaved"]


def test_a_state_of_other_rules_is_made_anew(spark, tmp_path):
    made = Audits(spark, tmp_path)
    made.step(60)
    made.landing.commit(LandingCommit(AUDIT_RUN, made.history.at(), facts={"rules": 2, "batch": 0}))
    found, full, basis = made.audit()
    assert found == full
    assert (basis["all_rows"], basis["unsaved"]) == (True, "")
    assert basis["why"] == "the last audit was made by a kodoctl that judged by other rules"
    made.step(10)
    later = made.audit().basis
    assert (later["all_rows"], later["unsaved"]) == (False, "")


def test_dead_letters_are_settled(states):
    _, (found, full, basis), settled, _ = states
    assert settled > 1
    assert (basis["reopened"], found) == (0, full)


@pytest.mark.parametrize("name", ["spoken of", "released"])
def test_what_is_named_is_judged_again_and_nothing_else(reopened, name):
    found, full, basis = reopened[name]
    assert found == full
    assert 0 < basis["reopened"] < basis["settled_before"] / 4, basis


def test_settled_dead_letters_are_judged_again_when_they_are_released(states, reopened):
    found, full, basis = reopened["released"]
    assert found == full
    assert (basis["all_rows"], basis["reopened"] > 0) == (False, True), basis
    assert found["verdict"] == "loss"
    released = {one.row["id"] for one in states[3][:2]}
    assert {one["id"] for one in found["findings"] if one["cause"] == Cause.RELEASED} == released


def test_a_state_whose_file_goes_while_it_is_read_is_made_anew(damaged):
    found, full, basis = damaged["gone"]
    assert found == full
    assert (basis["all_rows"], basis["why"], basis["unsaved"]) == (True, StateProblem.NONE, "")
