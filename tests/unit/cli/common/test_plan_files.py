"""Plan files: a plan replaces plans of its own kind, and no other file."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from kodo_pipeline.report.report_command import _writable
from kodo_pipeline.write_off.write_off_plan import WriteOffPlan

from kodoctl.cli.common.plan_files import is_plan_file, read_plan_text, scratch_file, write_plan_text
from kodoctl.errors import UsageError
from kodoctl.plan import fleet
from kodoctl.recall.plan import recall_plan_file, replay_plan
from tests.samples.inventories import empty, planned, topology, wanted
from tests.unit.recall.plan.test_plan_file import PLAN as RECALL
from tests.unit.recall.plan.test_replay_plan import made as replay

APPLY = planned(wanted(topology("{J: {}}")), empty())
SEVERAL = fleet.FleetPlan((fleet.Member("east", APPLY), fleet.Member("west", APPLY)))
TEXTS = {
    "an apply": [fleet.dumps(fleet.alone(APPLY)), fleet.dumps(SEVERAL)],
    "a recall": [recall_plan_file.dumps(RECALL)],
    "a replay": [replay_plan.dumps(replay())],
    "a write-off": [
        json.dumps(WriteOffPlan("w1", 1, "trade", None, "landed", "known", "loss", ()).document(), indent=1)
    ],
}


@pytest.mark.parametrize("kind", TEXTS)
def test_a_plan_replaces_plans_of_its_own_kind_even_those_that_were_cut(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    for text in TEXTS[kind]:
        for before in (*TEXTS[kind], *(one[:200] for one in TEXTS[kind]), ""):
            file.write_text(before, encoding="utf-8")
            write_plan_text(text, str(file))
            assert file.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("kind", TEXTS)
def test_a_plan_replaces_no_plan_of_another_kind(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    for text in TEXTS[kind]:
        file.write_text(text, encoding="utf-8")
        for other in TEXTS.keys() - {kind}:
            for another in TEXTS[other]:
                with pytest.raises(
                    UsageError, match=f"it is the plan of {kind}; a plan replaces plan files of its own"
                ):
                    write_plan_text(another, str(file))
        if kind != "a recall":
            with pytest.raises(UsageError, match=rf"K021.*the plan of {kind}"):
                scratch_file(str(file))
        assert file.read_text(encoding="utf-8") == text


def test_a_report_replaces_its_page_but_no_topology(tmp_path: Path) -> None:
    for name in ("report.html", "trade.yaml", "kodoctl-rules.yaml"):
        (tmp_path / name).write_text("text", encoding="utf-8")
    _writable(str(tmp_path / "report.html"), None)
    for name in ("trade.yaml", "kodoctl-rules.yaml"):
        with pytest.raises(UsageError, match=r"K021.*a YAML file"):
            _writable(str(tmp_path / name), None)


@pytest.mark.timeout(10)
def test_a_plan_that_comes_through_a_pipe_is_read_whole() -> None:
    """As of `apply <(gpg -d plan.gpg)`, whose name says nothing."""
    text = TEXTS["an apply"][0]
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb"):
        with os.fdopen(writer, "w", encoding="utf-8") as stream:
            stream.write(text)
        assert is_plan_file(f"/dev/fd/{reader}")
        assert read_plan_text(f"/dev/fd/{reader}", "kodoctl plan") == text


@pytest.mark.parametrize("out", ["", ".", "/"])
def test_a_path_that_names_no_file_is_refused(out: str) -> None:
    with pytest.raises(UsageError, match=r"K535.*names no file"):
        write_plan_text(TEXTS["a recall"][0], out)
    with pytest.raises(UsageError, match=r"K535.*names no file"):
        scratch_file(out)


def test_a_folder_or_a_device_is_not_replaced(tmp_path: Path) -> None:
    """As root, a plan at /dev/null would replace the device."""
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as device:
        device.bind(str(tmp_path / "device"))
    for name in ("folder", "device"):
        with pytest.raises(UsageError, match=r"K021.*it is no plan file"):
            write_plan_text(TEXTS["an apply"][0], str(tmp_path / name))
        with pytest.raises(UsageError, match=r"K021.*it is no plan file"):
            scratch_file(str(tmp_path / name))
    assert ((tmp_path / "folder").is_dir(), (tmp_path / "device").is_socket()) == (True, True)
