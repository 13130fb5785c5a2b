"""Variants of an arm: the same arm in another environment, in a process of its own.

`sync-python` is `sync` with KODO_CONSUMER_NATIVE=false. `--variant NAME=VARIABLE=VALUE` adds a variant, such as
`interpreted=KODO_FAST_CORE=false`. With `--beside CHECKOUT` there is `sync-before`, which is the arm `sync` of that checkout, run by its own program.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BEFORE = "before"  # the variant of another checkout


@dataclass(frozen=True)
class Variants:
    """Environments by the name of a variant, and the other checkout, where there is one."""

    environments: dict[str, dict[str, str]] = field(
        default_factory=lambda: {"python": {"KODO_CONSUMER_NATIVE": "false"}}
    )
    beside: Path | None = None

    @property
    def names(self) -> list[str]:
        return [*self.environments, *[BEFORE] * (self.beside is not None)]

    def split(self, arm: str) -> tuple[str, str]:
        """The arm itself and the name of its variant, empty for none."""
        name, _, variant = arm.rpartition("-")
        return (name, variant) if name and variant in (*self.environments, BEFORE) else (arm, "")

    def one(self, program: str, arm: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
        """Command and environment of one run of an arm: `PROGRAM.py --one ARM ...`, of this checkout or the other one."""
        name, variant = self.split(arm)
        if variant != BEFORE:
            here = [sys.executable, str(Path(__file__).with_name(program)), "--one", name, *arguments]
            return here, os.environ | self.environments.get(variant, {})
        assert self.beside is not None, "an arm of another checkout needs --beside"
        command = [sys.executable, str(self.beside / "benchmarks/consumer" / program), "--one", name, *arguments]
        return command, os.environ | {"PYTHONPATH": f"{self.beside / 'consumer'}{os.pathsep}{self.beside}"}

    def run(self, program: str, arm: str, *arguments: str, timeout: float = 900) -> dict[str, Any]:
        """The record of one run: what it prints in its last line."""
        command, environ = self.one(program, arm, *arguments)
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=timeout, check=False)
        if done.returncode:
            sys.exit(f"{arm} ended with {done.returncode}:\n{done.stderr[-3000:]}")
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return found


def variant(text: str) -> tuple[str, dict[str, str]]:
    """`NAME=VARIABLE=VALUE[,VARIABLE=VALUE]`. Raises ValueError."""
    name, _, rest = text.partition("=")
    pairs = [one.partition("=") for one in rest.split(",")]
    if not name.isalnum() or not all(variable and mark for variable, mark, _ in pairs):
        raise ValueError(text)
    return name, {variable: value for variable, _, value in pairs}


def add_variants(parser: argparse.ArgumentParser) -> None:
    """Options of programs whose arms have variants."""
    parser.add_argument(
        "--beside", type=Path, metavar="CHECKOUT", help="another checkout: its arms are named ARM-before"
    )
    parser.add_argument(
        "--variant", type=variant, action="append", default=[], metavar="NAME=VARIABLE=VALUE",
        help="ARM-NAME is ARM with these environment variables; may be repeated",
    )  # fmt: skip


def variants_of(arguments: argparse.Namespace, arms: Sequence[str], known: Sequence[str]) -> Variants:
    """The variants asked for. Ends the process where an arm is none of these or needs another checkout."""
    found = Variants(Variants().environments | dict(arguments.variant), arguments.beside and arguments.beside.resolve())
    for arm in arms:
        name, variant = found.split(arm)
        if name not in known:
            sys.exit(f"no arm is named {arm}; there is {', '.join(known)}, each also with -{', -'.join(found.names)}")
        if variant == BEFORE and found.beside is None:
            sys.exit(f"{arm} is of another checkout: name it by --beside")
    return found
