"""What people read of a recommendation."""

from __future__ import annotations

import subprocess

import pytest
from kodo_pipeline.recommend.exclusive_tenants import ExclusiveLevel
from kodo_pipeline.recommend.noisy_neighbours import LevelMove
from kodo_pipeline.recommend.recommendation_text import lines
from kodo_pipeline.recommend.report import document
from kodo_pipeline.recommend.slot_use import SettingChange
from kodo_pipeline.recommend.yaml_patch import unified_diff

from kodoctl.cli.common.terminal import show_lines


def victim(tenant, done, late, p95, p95_else):
    return {"tenant": tenant, "done": done, "late": late, "p95": p95, "p95_else": p95_else}


def load(subscription, runs, share, slot_share, late):
    return {"subscription": subscription, "runs": runs, "share": share, "slot_share": slot_share, "late": late}


def text(moves, victims=(), notes=(), settings=(), levels=()):
    found = document(300_000, 10_000, moves, settings, levels, {moves[0]: victims} if moves else {}, notes)
    return [line.text for line in lines(found)]


def test_a_move_with_its_evidence_and_who_waited():
    move = LevelMove("orders", "billing", "acme", "isolate", "L1", "B1", (0, 300_000), 0.8, 0.431, 0.012)
    victims = [victim("u2", 427, 200, 24_000.4, 130.0), victim("x" * 99, 3, 3, 1.0, None)]
    assert text([move], victims, ["orders has no `fair_by`: everybody is one tenant"]) == [
        "orders / billing: isolate acme, L1 -> B1",
        "  80% of all messages in 2 windows from 1970-01-01 00:00 to 1970-01-01 00:10 UTC; of what others had done, 43% came later than 10s, in all other windows 1%",
        "  who waited                done  late  p95 ms  p95 else",
        "  u2                         427   200  24,000       130",
        "  xxxxxxxxxxxxxxxxxxxxxxx…     3     3       1         -",
        "",
        "note: orders has no `fair_by`: everybody is one tenant",
    ]


def test_who_comes_back_and_that_there_is_nothing_to_do():
    move = LevelMove("orders", "billing", "acme", "upgrade", "B1", "L1", (0,), 0.01, None, None)
    assert text([move])[1] == (
        "  calm: 1.0% of all messages in 1 window from 1970-01-01 00:00 to 1970-01-01 00:05 UTC, and less than 12.5% in each"
    )
    assert text([]) == ["Nothing to change: nobody kept others waiting longer than 10s in three of the newest windows."]


def test_nobody_is_said_to_be_quiet_where_that_is_not_known():
    notes = ["orders has no `fair_by`: everybody is one tenant, and nobody can be moved"]
    first, note = text([], notes=notes)
    assert (first.startswith("Nothing to change by what is known: the notes"), note) == (True, f"note: {notes[0]}")
    assert "nobody kept others waiting" not in first


def test_windows_of_seconds_are_named_by_the_second():
    move = LevelMove("orders", "billing", "acme", "isolate", "L1", "B1", (0, 5_000), 0.8, 0.4, 0.0)
    first = [line.text for line in lines(document(5_000, 10_000, [move], [], [], {}, []))][1]
    assert "in 2 windows from 1970-01-01 00:00:00 to 1970-01-01 00:00:10 UTC" in first


def test_where_there_is_nothing_to_compare_with():
    move = LevelMove("orders", "billing", "acme", "degrade", "B1", "D1", (0,), 0.5, None, None)
    assert "0% came later than 10s" in text([move])[1]
    found = document(1, 2, [move], [], [], {}, [])
    assert (found["moves"][0]["others_late"], found["patch"]) == (None, "")


def test_a_share_without_another_window_says_that_it_cannot_be_compared():
    move = LevelMove("orders", "billing", "acme", "isolate", "L1", "B1", (0,), 0.8, 1.0, None)
    assert text([move])[1].endswith("100% came later than 10s; cannot compare: in no other window was anything done")


def test_a_promotion_and_a_return_with_the_tenant_s_own_figures():
    promoted = LevelMove("orders", "billing", "vip", "promote", "L1", "L2", (0, 600_000), 0.0312, 0.8, 0.1, 500)
    assert text([promoted])[:2] == [
        "orders / billing: promote vip, L1 -> L2",
        "  light: 3.1% of all runs, or of the slot time, in 2 windows from 1970-01-01 00:00 to 1970-01-01 00:15 UTC; of its own, 80% began later than 500ms, in all other windows 10%",
    ]
    back = LevelMove("orders", "billing", "vip", "return", "L2", "L1", (0,), 0.3, None, None, 500)
    assert text([back])[1] == (
        "  light no more: 30.0% of all runs, or of the slot time, in 1 window from 1970-01-01 00:00 to 1970-01-01 00:05 UTC"
    )
    (found,) = document(1, 2, [promoted], [], [], {}, [])["moves"]
    assert (found["own_late"], found["own_goal_ms"], found["others_late"]) == (0.8, 500, None)


def test_a_setting_with_its_figures():
    path = ("concurrency", "states", "retrying", "max")
    bulkhead = SettingChange("orders", "billing", "bulkhead", path, None, 13, "retrying", (0,), 14.21, 16, 3, 0.4, 0.0)
    limit = SettingChange("orders", "billing", "limit", ("limits",), 9, 4, "acme", (0,), 7.0, 8, 4, None, None, "uid")
    assert text([], settings=[bulkhead, limit])[:5] == [
        "orders / billing: bulkhead concurrency.states.retrying.max, none -> 13",
        "  retrying had 14.2 of 16 slots of a worker in 1 window from 1970-01-01 00:00 to 1970-01-01 00:05 UTC; what others had to do needs 3; 40% of their runs began later than 10s, in all other windows 0%",
        "",
        "orders / billing: limit limits of handlers at once by uid, 9 -> 4",
        "  acme had 7.0 of 8 slots of a worker in 1 window from 1970-01-01 00:00 to 1970-01-01 00:05 UTC; what others had to do needs 4; 0% of all runs began later than 10s",
    ]
    more = SettingChange(
        "orders", "billing", "concurrency", ("concurrency", "total"), 8, 12, "all lanes", (0,), 7.9, 8, 12, 0.4, None
    )
    assert (
        "; what arrived needs 12; 40% of all runs began later than 10s; cannot compare" in text([], settings=[more])[1]
    )
    (found, other) = document(1, 2, [], [bulkhead, limit], [], {}, [])["settings"]
    assert (found["path"], found["from"], found["by"]) == ("concurrency.states.retrying.max", None, None)
    assert (other["others_late"], other["by"]) == (None, "uid")


def test_an_exclusive_level_with_what_its_tenant_brings():
    figures = (load("billing", 42, 0.1234, 0.5, 0.25), load("audit", 0, 0.0, 0.0, None))
    level = ExclusiveLevel("orders", "u7", "S1", ("[L1, S1]", ["L1", "S1"]), figures)
    assert text([], levels=[level])[:3] == [
        "orders: exclusive level S1 for u7",
        "  billing: 42 runs in the newest windows, 12.3% of all runs and 50.0% of the slot time; 25% of them began later than its goal",
        "  audit: 0 runs in the newest windows, 0.0% of all runs and 0.0% of the slot time",
    ]
    released = LevelMove("orders", "billing", "u7", "exclusive", "B1", "L1", (), 0, None, None)
    found = document(1, 2, [released], [], [level], {}, [])
    assert (found["moves"], found["levels"][0]["figures"][1]["late"]) == ([], None)


NEW = f"{'n' * 70}.yml"
"""Name of a file so long that a line of 80 columns with its heading has no room for another word."""
FOREIGN = " ".join((f"--- a/{NEW}", f"+++ b/{NEW}", f"@@ -0,0 +1 @@ {'p' * 66}", f"+{'e' * 79}", "z" * 80))
"""A patch that makes a file, in words of a name: folded to 80 columns, each of its lines begins one."""


def recommended(name):
    """Everything that is recommended, with this name of a tenant."""
    move = LevelMove("orders", "billing", name, "isolate", "L1", "B1", (0, 300_000), 0.8, 0.431, 0.012)
    bulkhead = SettingChange("o", "b", "limit", ("limits",), 9, 4, name, (0,), 7.0, 8, 4, None, None, name)
    level = ExclusiveLevel("orders", name, "S1", ("[L1, S1]", ["L1", "S1"]), (load(name, 42, 0.1, 0.5, 0.2),))
    victims = {move: [victim(name, 427, 200, 24_000.4, 130.0)]}
    return document(300_000, 10_000, [move], [bulkhead], [level], victims, [name])


@pytest.mark.parametrize("columns", [40, 80, 132])
def test_no_word_of_a_name_begins_a_line(columns, monkeypatch, capsys):
    """`git apply`, which reads all of it, finds patches by how lines begin."""
    monkeypatch.setenv("COLUMNS", str(columns))
    for length in range(1, columns):
        show_lines(lines(recommended(f"{'x' * length} {FOREIGN}")))
        begun = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line[:1].strip()]
        assert begun == ["orders", "o", "orders:", "note:"]


def test_a_patch_in_the_name_of_a_tenant_is_not_applied(tmp_path, monkeypatch, capsys):
    """Customers choose their names; the documented way is `kodoctl pipeline recommend FILE | git apply`."""
    monkeypatch.setenv("COLUMNS", "80")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "trade.yaml").write_text("a: 1\n")
    name = f"{'x' * (80 - len('orders / billing: isolate '))} {FOREIGN}"
    move = LevelMove("orders", "billing", name, "isolate", "L1", "B1", (0,), 0.8, 0.431, 0.012)
    show_lines(lines(document(300_000, 10_000, [move], [], [], {}, [])))
    patch = unified_diff("trade.yaml", "a: 1\n", "a: 2\n")
    applied = subprocess.run(
        ["git", "apply"], cwd=tmp_path, input=capsys.readouterr().out + patch, text=True, check=False
    )
    assert applied.returncode == 0
    assert (tmp_path / "trade.yaml").read_text() == "a: 2\n"
    assert sorted(one.name for one in tmp_path.iterdir()) == [".git", "trade.yaml"]
