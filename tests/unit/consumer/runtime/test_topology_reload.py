"""A topology file that changes under a running worker: what is followed, what is refused, what needs a restart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from kodo_consumer.core.values.envelope import Level, State
from kodo_consumer.core.values.policy import Policy
from kodo_consumer.policy_builder import lint_warnings, load, policy_of
from kodo_consumer.runtime.topology_reload import Reloader, contents, structural

from kodoctl.protocol.signing import Signer
from tests.services.polling import eventually
from tests.unit.consumer.engine_bench import L2, policy
from tests.unit.consumer.topologies import write

TOPICS = """
  orders:
    fair_by: uid
    levels: double
    subscriptions:
      billing: {{in_place: [], {}}}
"""


class World:
    """A file, who watches it, and what was followed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = Path(self.write("limits: [{kind: rate, by: uid, limit: 10/s}]"))
        self.followed: list[Policy] = []
        self.reloader = Reloader(self.file, self.read, self.read(), self.followed.append)

    def write(self, settings: str) -> str:
        return write(self.folder, TOPICS.format(settings))

    def read(self) -> Policy:
        loaded = load(str(self.folder / "t.yaml"), "base")
        lint_warnings(loaded)
        return policy_of(loaded, "orders", "billing")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize(
    "settings",
    [
        "limits: [{kind: rate, by: uid, limit: 20/s}, {kind: concurrency, limit: 3}]",
        "tenant_weights: {u1: 3}",
        "level_weights: {L2: 7, L1: 3}",
        "retrying: {delays: [1m], attempts: 3}",
        "routes: [{when: {property: size, greater_than: 7}, to: L2}]",
        "retrying: {by_code: {psp: [40s]}}",
    ],
)
def test_weights_limits_delays_and_routes_are_followed(world: World, settings: str) -> None:
    world.write(settings)
    world.reloader.reload()
    assert world.followed == [world.reloader._present]
    assert world.followed[0].limits == world.read().limits
    world.reloader.reload()
    assert len(world.followed) == 1, "once"


def test_tenants_of_exclusive_levels_are_followed(world: World) -> None:
    world.file.write_text(
        world.file.read_text().replace("levels: double", "levels: double\n    exclusive_levels: {L2: [u7]}")
    )
    world.reloader.reload()
    assert [policy.exclusive_levels for policy in world.followed] == [{Level.L2: frozenset({"u7"})}]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("states: [retrying], tenant_weights: {u1: 3}", "levels or states"),
        ("states: [retrying, pending], draining: [blocking]", "levels or states, draining or levels"),
        ("type: key_shared", "subscription_type"),
        ("concurrency: 7", "concurrency"),
        ("audit: true", "audit"),
        ("expected_workers: 3", "expected_workers"),
        ("retrying: {delays: [30d], attempts: 3}", "a longer wait than any at the start"),
        ("dead_letter: false", "dead_letter"),
        ("lookahead: {messages: 777}", "lookahead_messages"),
    ],
)
def test_structure_says_restart_and_counts_in_no_part(
    world: World, settings: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.write(settings)
    world.reloader.reload()
    assert world.followed == []
    assert "reload: restart for" in caplog.text
    assert said in caplog.text


def test_a_broken_file_is_refused_with_every_finding_and_the_next_good_one_is_followed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.write("limits: [{kind: rate, limit: fast}], tenant_weigths: {u1: 3}")
    world.reloader.reload()
    assert world.followed == []
    assert "K005" in caplog.text
    assert "K003" in caplog.text
    assert "is refused, everything stays as it was" in caplog.text
    world.file.unlink()
    world.reloader.reload()
    assert world.followed == [], "between two steps of an editor"
    world.write("tenant_weights: {u1: 3}")
    world.reloader.reload()
    assert len(world.followed) == 1


def test_what_was_saved_since_it_was_loaded_is_followed(world: World) -> None:
    policy, text = world.read(), contents(world.file)
    world.write("tenant_weights: {u1: 3}")
    late = Reloader(world.file, world.read, policy, world.followed.append, text)
    late.start()
    eventually(lambda: world.followed)
    late.stop()
    assert world.followed[0].tenant_weights == {"u1": 3}


def test_a_wait_as_long_as_at_the_start_may_come_back(world: World) -> None:
    long, short = world.read().horizon, "10s"
    for delay in (short, f"{long}ms", f"{long + 1}ms"):
        world.write(f"limits: [], retrying: {{delays: [{delay}], attempts: 3}}")
        world.reloader.reload()
    assert [found.waits[State.RETRYING].delays for found in world.followed] == [(10_000,), (long,)]


def test_a_hangup_reads_the_file_although_it_did_not_change(world: World) -> None:
    world.reloader.reload()
    assert world.followed == []
    world.reloader.reload(always=True)
    assert len(world.followed) == 1


def test_the_file_is_watched_also_when_another_takes_its_place(world: World) -> None:
    world.reloader.start()
    try:
        world.write("tenant_weights: {u1: 3}")
        eventually(lambda: len(world.followed) == 1)
        other = world.folder / "other"
        other.mkdir()
        new = Path(write(other, TOPICS.format("tenant_weights: {u1: 4}")))
        new.replace(world.file)
        eventually(lambda: len(world.followed) == 2)
        (world.folder / "..data").symlink_to(other)
        write(other, TOPICS.format("tenant_weights: {u1: 5}"))
        world.file.unlink()
        world.file.symlink_to(Path("..data") / "t.yaml")
        eventually(lambda: len(world.followed) == 3)
        assert [found.tenant_weights["u1"] for found in world.followed] == [3, 4, 5]
    finally:
        world.reloader.stop()


def test_what_cannot_be_watched_is_told_and_ends_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    gone = Reloader(world.folder / "no" / "t.yaml", world.read, world.read(), world.followed.append)
    gone.start()
    eventually(lambda: "is no longer watched" in caplog.text)
    gone.stop()


def test_signing_may_be_rotated_but_not_begun_or_ended_on_the_way() -> None:
    old, new = Signer(["old-key-0123456789"]), Signer(["new-key-0123456789"])
    plain = policy()
    assert structural(replace(plain, signer=old), replace(plain, signer=new)) == []
    assert structural(plain, replace(plain, signer=old)) == ["signing_keys"]
    lanes = tuple(replace(lane, weight=9) if lane.level is L2 else lane for lane in plain.lanes)
    assert structural(plain, replace(plain, lanes=lanes)) == []
    assert structural(plain, policy(states=(State.RETRYING,))) == ["levels or states", "draining or levels"]


def test_the_watcher_of_files_is_quiet_or_a_log_in_the_folder_would_feed_itself(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    world.reloader.start()
    try:
        for number in (1, 2):  # the first may have been seen before the folder was watched
            (world.folder / "worker.log").write_text(f"line {number}\n", encoding="utf-8")
            world.write(f"tenant_weights: {{u1: {number + 2}}}")
            eventually(lambda seen=number: len(world.followed) == seen)  # type: ignore[misc]
    finally:
        world.reloader.stop()
    assert "t.yaml is followed" in caplog.text
    assert not [record for record in caplog.records if record.name.startswith("watchfiles")]


def test_a_reloader_that_was_stopped_reads_nothing_more(world: World) -> None:
    world.reloader.stop()
    world.write("tenant_weights: {u1: 3}")
    with world.reloader.watching():
        pass
    assert not world.followed
