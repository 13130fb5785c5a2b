"""kodoctl as a user runs it, in this process: what it prints and answers."""

from __future__ import annotations

from dataclasses import dataclass

import click
import typer
from typer.testing import CliRunner

from kodoctl.cli.application import app


@dataclass(frozen=True)
class Ran:
    """What one command printed, and its exit code."""

    code: int
    out: str
    err: str
    raw: bytes


def kodoctl(*arguments: str) -> Ran:
    """Runs a command in the current folder; an exception of ours that escapes is a failure of the test."""
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(
        result.exception, SystemExit | click.ClickException | typer.Exit
    ):
        raise result.exception
    assert "[K599]" not in result.stderr, result.stderr
    return Ran(result.exit_code, result.stdout, result.stderr, result.stdout_bytes)
