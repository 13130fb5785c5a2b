"""Plan files of consoles: the command that continues each, and when they go."""

from __future__ import annotations

from pathlib import Path

from kodoctl.cli.letters.console_plans import PLANS, forget_plan, store_plan, unfinished_plans

TEXT = '{\n "kind": "kodoctl recall plan"\n}\n'
LINE = "kodoctl recall apply .kodoctl/plans/one.json --ledger s3://b/l --context prod"


def test_a_plan_is_continued_by_the_command_of_its_own_console(folder: Path) -> None:
    assert unfinished_plans() == []
    store_plan(TEXT, PLANS / "one.json", LINE)
    (PLANS / "two.json").write_text("{}")
    assert unfinished_plans() == [(PLANS / "one.json", TEXT, LINE), (PLANS / "two.json", "{}", "")]
    assert (folder / PLANS / "one.command").stat().st_mode & 0o077 == 0


def test_a_file_that_went_meanwhile_is_no_plan(folder: Path) -> None:
    store_plan(TEXT, PLANS / "one.json", LINE)
    (PLANS / "gone.json").symlink_to("nowhere")
    (PLANS / "folder.json").mkdir()
    assert [file.name for file, _, _ in unfinished_plans()] == ["one.json"]


def test_a_plan_that_is_done_goes_and_files_elsewhere_stay(folder: Path) -> None:
    store_plan(TEXT, PLANS / "one.json", LINE)
    Path("own.json").write_text(TEXT)
    for file in (folder / PLANS / "one.json", Path("own.json"), PLANS / "never.json"):
        forget_plan(file)
    assert list(PLANS.iterdir()) == []
    assert Path("own.json").read_text() == TEXT
