"""The hook for commit messages: the length of the subject counts, in characters; the body may be long."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("a" * 72 + "\n\n" + "b" * 200 + "\n", 0),
        ("ä" * 72 + "\n", 0),
        ("a" * 73 + "\n", 1),
        ("\nbody\n", 1),
    ],
    ids=["long body", "letters of two bytes", "too long", "no subject"],
)
def test_a_subject_has_at_most_72_characters(message: str, code: int, tmp_path: Path) -> None:
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text(message, encoding="utf-8")

    done = subprocess.run([ROOT / ".ci" / "commit-subject", file], capture_output=True, text=True, check=False)

    assert done.returncode == code, done.stderr


def test_the_hook_is_configured() -> None:
    assert "entry: .ci/commit-subject" in (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
