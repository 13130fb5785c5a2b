"""Folders of a landing: who removes empty ones takes no file from who is about to write one."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kodo_pipeline.landing.file_store import Storage, StoredInput, _create_file
from pyarrow import fs, parquet


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

    with _create_file(Removing(), f"{tmp_path}/attempt/date=1/part", in_folder=True) as out:
        out.write(b"x")
    assert (Path(tmp_path, "attempt/date=1/part").read_bytes(), Removing.made) == (b"x", 3)


class Refusing:
    """A file of a store that has no time for so many reads."""

    def __init__(self, data: bytes, refusals: int, text: str = "AWS Error: Failed to flush response stream") -> None:
        self._data, self._refusals, self._text = data, refusals, text
        self.asked: list[tuple[int, int]] = []

    def size(self) -> int:
        return len(self._data)

    def read_at(self, size: int, offset: int) -> bytes:
        self.asked.append((size, offset))
        if len(self.asked) <= self._refusals:
            raise OSError(self._text)
        return self._data[offset : offset + size]


def _stored(monkeypatch: pytest.MonkeyPatch, data: bytes, refusals: int, **more: str) -> tuple[Refusing, StoredInput]:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    file = Refusing(data, refusals, **more)
    return file, StoredInput(file)


def test_a_few_bytes_that_a_store_had_no_time_for_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = io.BytesIO()
    parquet.write_table(pa.table({"n": range(9)}), made)
    file, found = _stored(monkeypatch, made.getvalue(), refusals=3)
    assert found.readable()
    assert found.seekable()
    assert parquet.read_table(found).column("n").to_pylist() == list(range(9))
    assert len(set(file.asked[:4])) == 1
    assert (found.seek(-4, io.SEEK_END), found.read(), found.read(5)) == (found.size() - 4, b"PAR1", b"")
    assert (found.seek(0), found.seek(1, io.SEEK_CUR), found.read(3)) == (0, 1, b"AR1")


@pytest.mark.parametrize(("refusals", "text", "tries"), [
    (9, "Failed to flush response stream", 5),
    (1, "ACCESS_DENIED", 1),
])  # fmt: skip
def test_what_a_store_refuses_for_good_is_said(
    monkeypatch: pytest.MonkeyPatch, refusals: int, text: str, tries: int
) -> None:
    file, found = _stored(monkeypatch, b"x", refusals, text=text)
    with pytest.raises(OSError, match=text):
        found.read()
    assert len(file.asked) == tries


def test_files_of_a_store_are_read_that_way(monkeypatch: pytest.MonkeyPatch) -> None:
    class Store:
        def open_input_file(self, path: str) -> Any:
            assert path == "bucket/land/part"
            return io.BytesIO(b"x")

    folder = Storage("s3a://bucket/land")
    monkeypatch.setattr(folder, "_opened", (Store(), "bucket/land"))
    with folder.input("part") as found:
        assert isinstance(found, StoredInput)
