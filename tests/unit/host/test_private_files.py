"""What holds payloads, keys or secrets is for its owner alone, from its first moment; what is there keeps its mode."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from kodo_pipeline.charts.chart_files import write_pictures
from kodo_pipeline.landing.file_store import Storage
from prometheus_client import CollectorRegistry

from kodoctl.cli.common.plan_files import write_plan_text
from kodoctl.cli.status.exporter_command import _publish
from kodoctl.cli.topology.import_command import _files
from kodoctl.errors import UsageError
from kodoctl.host.private_files import create_private, make_folder, make_private, write_private, write_whole
from kodoctl.pulsar.connection.connection import write_context
from kodoctl.recall.ledger.delta_ledger import DeltaLedger
from kodoctl.recall.ledger.recall_ledger import RecallEntry, RecallEvent
from kodoctl.recall.plan.letter_table import LetterTableWriter
from kodoctl.topology.names import NamespaceName


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_private_file_is_private_also_when_it_was_not_before(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    file.chmod(0o644)
    write_private(file, "new")
    assert mode(file) == 0o600
    assert file.read_text() == "new"
    assert list(tmp_path.iterdir()) == [file]


def test_a_private_file_is_never_written_through_a_link(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_text("theirs")
    link.symlink_to(victim)
    create_private(link)
    assert (victim.read_text(), mode(link), link.is_symlink()) == ("theirs", 0o600, False)


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_private(tmp_path / "folder", "text")
    assert [one.name for one in tmp_path.iterdir()] == ["folder"]


def test_plans_with_their_letters_are_for_their_owner_alone(tmp_path: Path) -> None:
    for version in (1, 2):
        text = f'{{"format_version": 1, "kodoctl_version": "{version}", "action": "send"}}'
        write_plan_text(text, str(tmp_path / "plan.json"))
    with LetterTableWriter(tmp_path / "plan.json.letters") as table:
        table.close()
    assert {one.name: mode(one) for one in tmp_path.iterdir()} == {"plan.json": 0o600, "plan.json.letters": 0o600}


@pytest.mark.parametrize("work", ["create", "append"])
def test_a_ledger_is_for_its_owner_alone_unless_its_folder_is_there(work: str, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(0o755)
    for folder in (tmp_path / ".kodoctl" / "recall", shared):
        ledger = DeltaLedger(str(folder))
        if work == "create":
            ledger.create()
        else:
            ledger.append([RecallEntry("run", RecallEvent.INTENT, "id", "topic", "1:1:0:-1", 1)])
        assert ledger.exists()
    assert [mode(one) for one in (tmp_path / ".kodoctl", tmp_path / ".kodoctl" / "recall", shared)] == [
        0o700, 0o700, 0o755,
    ]  # fmt: skip


@pytest.mark.parametrize("work", ["create", "append"])
def test_a_ledger_at_a_uri_of_this_machine_is_for_its_owner_alone(work: str, tmp_path: Path) -> None:
    ledger = DeltaLedger(f"file://{tmp_path}/our%20data/recall")
    if work == "create":
        ledger.create()
    else:
        ledger.append([RecallEntry("run", RecallEvent.INTENT, "id", "topic", "1:1:0:-1", 1)])
    assert ledger.exists()
    assert [mode(tmp_path / one) for one in ("our data", "our data/recall")] == [0o700, 0o700]


def test_a_landing_is_made_as_the_system_says_within_a_folder_of_its_owner(tmp_path: Path) -> None:
    make_folder(tmp_path / ".kodoctl" / "landing")
    make_private(tmp_path / "own" / "deep")
    places = (".kodoctl", ".kodoctl/landing", "own", "own/deep")
    assert [mode(tmp_path / one) for one in places] == [0o700, 0o755, 0o700, 0o700]


NAMES = ("kodoctl.toml", "lanes.prom", "events.json")
WRITERS = {
    "context add --project": lambda folder: write_context(folder / "kodoctl.toml", "shop", {"admin_url": "http://h:1"}),
    "exporter --textfile": lambda folder: _publish(CollectorRegistry(), folder / "lanes.prom"),
    "a landing": lambda folder: Storage(str(folder)).write("events.json", {}),
    "a page": lambda folder: write_whole(folder / "lanes.prom", b"text"),
    "a plan": lambda folder: write_private(folder / "events.json", "text"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_nothing_is_written_through_a_link_that_lies_where_a_file_is_made(name: str, tmp_path: Path) -> None:
    """A clone has any links: `kodoctl.new` of one led into the user's own shell, which runs what TOML can say."""
    victim, folder = tmp_path / "victim", tmp_path / "clone"
    victim.write_text("mine")
    folder.mkdir()
    stems = (*NAMES, "kodoctl")
    for stem in stems:
        for link in (f"{stem}.new", f".{stem}", f".{stem}.new", f".{stem}.{os.getpid()}", f".{stem}.{os.getpid()}.new"):
            (folder / link).symlink_to(victim)
    WRITERS[name](folder)
    assert victim.read_text() == "mine"
    (made,) = [one for one in folder.iterdir() if not one.is_symlink()]
    assert made.name in NAMES
    assert mode(made) == (0o600 if name == "a plan" else 0o644)


def test_an_import_makes_nothing_at_the_end_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "ns.yaml").symlink_to(tmp_path / "not-there-yet")
    with pytest.raises(UsageError, match="K021"):
        _files([NamespaceName.parse("acme/ns")], str(tmp_path / "ns.yaml"), several=False)


def test_a_file_in_one_step_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "folder", b"text")
    assert [one.name for one in tmp_path.iterdir()] == ["folder"]


def test_pictures_replace_links_of_their_names(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine", encoding="utf-8")
    (tmp_path / "verdict.png").symlink_to(victim)
    write_pictures(str(tmp_path), [("verdict.png", b"PNG")])
    assert (victim.read_text(encoding="utf-8"), (tmp_path / "verdict.png").read_bytes()) == ("mine", b"PNG")


@pytest.mark.parametrize(("name", "text"), [("trade.yaml", "version: 1\n"), ("patch.json", '{"currency": "EUR"}')])
def test_a_plan_replaces_plan_files_alone(name: str, text: str, tmp_path: Path) -> None:
    """`--out trade.yaml` would take somebody's topology, `--out patch.json` the patch that a recall names beside it."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="K021"):
        write_plan_text("{}", str(tmp_path / name))
    assert (tmp_path / name).read_text(encoding="utf-8") == text


@pytest.mark.timeout(10)
def test_a_pipe_is_no_plan_file_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="K021"):
        write_plan_text("{}", str(tmp_path / "pipe"))
