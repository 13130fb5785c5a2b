"""Folders of a landing: who removes empty ones takes no file from who is about to write one."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from kodoctl.pipeline.ingest.file_store import Storage, _created


def test_empty_folders_go_and_all_others_stay(tmp_path: Path) -> None:
    for name in (
        "gone/date=1/topic=x",
        "kept/date=1",
        "kept/date=2",
        "job/_temporary/0/task",
        "old/_temporary/0",
        "_delta_log",
    ):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "kept/date=1/part").touch()
    day = time.time() - 90_000
    for name in ("old/_temporary/0", "old/_temporary"):
        os.utime(tmp_path / name, (day, day))
    Storage(str(tmp_path)).prune()
    found = {str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*")}
    assert found == {"kept", "kept/date=1", "kept/date=1/part", "job", "job/_temporary", "job/_temporary/0", "job/_temporary/0/task",
                     "_delta_log"}  # fmt: skip
    Storage(str(tmp_path / "nothing")).prune()


def test_a_file_that_comes_while_empty_folders_are_removed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "attempt/date=1").mkdir(parents=True)
    rmdir = Path.rmdir

    def written_first(folder: Path) -> None:
        (tmp_path / "attempt/date=1/part").touch()
        rmdir(folder)

    monkeypatch.setattr(Path, "rmdir", written_first)
    Storage(str(tmp_path)).prune()
    assert (tmp_path / "attempt/date=1/part").exists()


def test_a_folder_that_is_removed_before_its_first_file_is_made_again(tmp_path: Path) -> None:
    class Removing:
        made, opened = 0, fs.LocalFileSystem()

        def create_dir(self, path: str) -> None:
            self.opened.create_dir(path)
            Removing.made += 1
            if self.made < 3:
                Path(path).rmdir()

        def open_output_stream(self, path: str) -> Any:
            return self.opened.open_output_stream(path)

    with _created(Removing(), f"{tmp_path}/attempt/date=1/part", in_folder=True) as out:
        out.write(b"x")
    assert (Path(tmp_path, "attempt/date=1/part").read_bytes(), Removing.made) == (b"x", 3)
