"""`kodoctl peek --out`: a file is complete, or it is not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kodoctl.cli.letters import peek_command
from kodoctl.errors import ClusterError, KodoctlError, UsageError, error
from kodoctl.recall.message.message_rows import encoder_of


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("problem", [ClusterError(error("K514", "no broker answers", "")), KeyboardInterrupt()])
def test_an_end_amid_the_reading_leaves_no_file(tmp_path: Path, suffix: str, problem: BaseException) -> None:
    """The next run refused the part that the last one had left."""

    def letters() -> Iterator[Any]:
        raise problem
        yield

    out = tmp_path / f"x.{suffix}"
    unused: Any = None
    with pytest.raises((KodoctlError, KeyboardInterrupt)):
        peek_command._write(out, encoder_of(suffix), letters(), unused, unused, 10, None)
    assert not list(tmp_path.iterdir())


def test_a_file_that_came_meanwhile_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "x.jsonl"
    unused: Any = None

    def letters() -> Iterator[Any]:
        out.write_text("of another run")
        return
        yield

    with pytest.raises(UsageError, match="K021"):
        peek_command._write(out, encoder_of("jsonl"), letters(), unused, unused, 10, None)
    assert [one.read_text() for one in tmp_path.iterdir()] == ["of another run"]
