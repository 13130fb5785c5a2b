"""`pipeline maintain` and `pipeline erase` as they are typed, killed at each stage, and on a disk that is full."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kodo_pipeline.landing.landing_commits import LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.tables import CURSORS, EVENTS, TABLES

from tests.brokers.workspace import Run, run_main
from tests.source_roots import PATHS
from tests.unit.pipeline.landings import anew, stored
from tests.unit.pipeline.upkeep.test_payload_removal import SECRET, anywhere, fill, proofs

FILE = "version: 1\nname: trade\ntenant: t\nnamespace: n\ntopics: {orders: {}, carts: {}}\n"
DYING = """
import os, signal

from kodo_pipeline.upkeep import landing_maintenance
from kodo_pipeline.upkeep import payload_removal
from kodo_pipeline.upkeep import unnamed_files
from kodo_pipeline.landing.delta_tables import LandingTable
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.table_writer import PartFile

STEPS = {
    "writing": (PartFile, "finish"), "written": (LandingTable, "exchange"), "recording": (Landing, "commit"),
    "removing": (payload_removal if os.environ["WHAT"] == "erase" else landing_maintenance, "remove_unnamed"),
    "exchanged.": (LandingTable, "exchange"), "log": (LandingTable, "tidy_log"),
}
owner, name = STEPS[os.environ["KILL_AT"]]
original = getattr(owner, name)


def dying(*given, **named):
    if os.environ["KILL_AT"].endswith("."):
        original(*given, **named)
    os.kill(os.getpid(), signal.SIGKILL)


setattr(owner, name, dying)
"""
FULL = """
import resource, signal

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond it fails, as on a disk that is full
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topology file beside a landing of four batches by a run that ended."""
    folder = tmp_path_factory.mktemp("template")
    (folder / "trade.yaml").write_text(FILE, encoding="utf-8")
    landing = Landing(str(folder), "trade", None)
    looked = landing.write_rows(CURSORS, "r", [{"ingest_run": "r", "msg_topic": "orders"}])
    landing.commit(LandingCommit("r", 1, tables={CURSORS.name: looked}))
    fill(landing)
    landing.commit(LandingCommit("r-end", 1, facts={"complete": True}))
    return folder


@pytest.fixture
def place(template: Path, tmp_path: Path) -> Path:
    """A copy for one test."""
    return Path(shutil.copytree(template, tmp_path, dirs_exist_ok=True))


def typed(place: Path, what: str, *more: str) -> tuple[str, ...]:
    return ("pipeline", what, str(place / "trade.yaml"), "--landing", str(place), *more)


def erase(place: Path, *more: str) -> Run:
    return run_main(*typed(place, "erase", "--tenant", "u1", "--reason", "asked for", *more))


def process(place: Path, script: str, what: str, *more: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, which runs the script first."""
    (place / "first").mkdir(exist_ok=True)
    (place / "first/sitecustomize.py").write_text(script, encoding="utf-8")
    path = f"{place}/first:{PATHS}"
    return subprocess.run(
        [sys.executable, "-m", "kodoctl", *typed(place, what, *more)], text=True, capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": path, "WHAT": what, **environ}, timeout=120,
    )  # fmt: skip


def test_maintain_tells_what_became_of_each_table(place: Path, landing: Landing) -> None:
    done = run_main(*typed(place, "maintain"))
    assert done.code == 0, done.text
    assert "events: 8 files became 2" in done.err
    assert "13 files became 4; 0 files that nothing names removed" in " ".join(done.out.split())
    again = run_main(*typed(place, "maintain", "--retain", "0s", "--format", "json")).lines_json()
    assert [one["event"] for one in again] == ["begin", *["table"] * 10, "end"]
    assert (again[-1]["before"], again[-1]["after"], again[-1]["expired"]) == (4, 4, 0)
    assert again[-1]["removed"] > 10
    assert len(stored(landing)) == 24


def test_payloads_that_the_file_keeps_no_longer_go(place: Path, landing: Landing) -> None:
    (place / "trade.yaml").write_text(f"{FILE}payloads: {{keep: 1d}}\n", encoding="utf-8")
    done = run_main(*typed(place, "maintain", "--retain", "0s"))
    assert "16 payloads removed that the file keeps no longer" in done.out
    assert anywhere(landing, SECRET) == []


@pytest.mark.parametrize(("text", "says"), [("8d", "7 days"), ("soon", "not a duration"), ("5", "for example 30s")])
def test_a_time_that_cannot_be_is_told(place: Path, text: str, says: str) -> None:
    done = run_main(*typed(place, "maintain", "--retain", text))
    assert (done.code, "[K586]" in done.err, says in " ".join(done.err.split())) == (64, True, True), done.err


def test_an_ingest_that_runs_has_maintain_and_erase_refused(place: Path, landing: Landing) -> None:
    with landing.alone():
        assert run_main(*typed(place, "maintain")).code == 7
        assert erase(place, "--yes").code == 7
    assert len(landing.snapshot(EVENTS).files["events"]) == 8


def test_an_erasure_is_shown_and_confirmed_before_anything_goes(place: Path, landing: Landing) -> None:
    for more, code in ((("--dry-run",), 0), ((), 4)):
        done = erase(place, *more)
        assert done.code == code, done.text
        assert "u1: 8 payloads (0.0 MB) in 8 files" in done.out
        assert "orders: 4" in done.out
    assert "[K619]" in done.err
    assert "say --auto-approve" in done.err
    assert len(anywhere(landing, SECRET)) == 8
    assert "8 payloads erased" in erase(place, "--yes").out
    assert anywhere(landing, SECRET) == []
    lines = erase(place, "--yes", "--topic", "carts", "--format", "json").lines_json()
    assert [one["event"] for one in lines] == ["begin", "plan", "end"]
    assert (lines[1]["messages"], lines[1]["since"], lines[2]["messages"]) == (0, None, 0)


def test_an_ingest_runs_while_an_erasure_waits_for_its_answer_and_what_it_lands_goes_too(
    place: Path, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answered(text: str, **_: object) -> bool:
        with anew(landing).alone():
            fill(landing, 5, 4)
        return "8 payloads" in text

    monkeypatch.setattr("kodo_pipeline.upkeep.erase_command.is_terminal", lambda: True)
    monkeypatch.setattr("kodo_pipeline.upkeep.erase_command.typer.confirm", answered)
    done = erase(place)
    assert "10 payloads erased" in done.out
    assert "The plan showed 8: some landed, or went, before it was confirmed" in done.out
    assert anywhere(landing, SECRET) == []
    monkeypatch.setattr("kodo_pipeline.upkeep.erase_command.typer.confirm", lambda *_, **__: False)
    assert "nothing was erased" in erase(place).err


def test_an_erasure_by_a_user_without_a_name_is_recorded_with_the_number(
    place: Path, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nameless() -> str:
        raise KeyError(os.getuid())

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert "8 payloads erased" in erase(place, "--yes").out
    assert {row["by"] for row in stored(landing, "erasures")} == {f"uid {os.getuid()}"}


def test_an_erasure_that_cannot_be_meant_is_told_with_all_that_is_wrong(place: Path) -> None:
    done = run_main(*typed(place, "erase", "--tenant", " ", "--reason", "", "--topic", "nothing"))
    assert done.code == 64
    assert all(one in done.err for one in ("[K588]", "--tenant is empty", "--reason is empty", "--topic nothing"))


BRIEF = [("maintain", "written"), ("erase", "exchanged.")]
KILLS = [
    *(("maintain", stage) for stage in ("writing", "written", "exchanged.", "log", "removing", "recording")),
    *(("erase", stage) for stage in ("recording", "writing", "written", "exchanged.", "removing")),
]


@pytest.mark.parametrize(
    ("what", "stage"), [pytest.param(*one, marks=[] if one in BRIEF else pytest.mark.full) for one in KILLS]
)
def test_a_kill_at_any_stage_leaves_every_row_once_and_the_next_ends_it(
    place: Path, landing: Landing, what: str, stage: str
) -> None:
    before = proofs(landing)
    more = ("--tenant", "u1", "--reason", "r", "--yes") if what == "erase" else ("--retain", "0s")
    killed = process(place, DYING, what, *more, KILL_AT=stage)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert proofs(anew(landing)) == before
    assert len(anew(landing).snapshot(*TABLES).commits) >= 6
    done = run_main(*typed(place, what, *more))
    assert done.code == 0, done.text
    assert proofs(anew(landing)) == before
    named = {one.path for one in anew(landing).snapshot(EVENTS).files["events"]}
    there = {one for one in (landing.root / "events").files() if one.endswith(".parquet") and "_delta_log" not in one}
    assert there == named
    assert (anywhere(landing, SECRET) == []) is (what == "erase")


@pytest.mark.parametrize("what", ["maintain", "erase"])
def test_a_disk_that_is_full_is_told_and_nothing_is_half(place: Path, landing: Landing, what: str) -> None:
    for number in range(4, 8):
        fill(landing, number + 1, number, properties=[("n", os.urandom(5_000).hex())])
    before, files = proofs(landing), landing.snapshot(EVENTS).files["events"]
    more = ("--tenant", "u1", "--reason", "r", "--yes") if what == "erase" else ()
    failed = process(place, FULL, what, *more)
    assert failed.returncode == 1, failed.stderr
    assert "[K573]" in failed.stderr
    assert "File too large" in failed.stderr
    assert proofs(anew(landing)) == before
    assert sorted(one.path for one in anew(landing).snapshot(EVENTS).files["events"]) == sorted(
        one.path for one in files
    )
    left = [one for one in (landing.root / "events").files() if one.endswith(".parquet") and "_delta_log" not in one]
    assert len(left) == len(files), "what was begun takes no room"
    assert run_main(*typed(place, what, *more)).code == 0
    assert proofs(anew(landing)) == before
