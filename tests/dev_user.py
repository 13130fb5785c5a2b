"""Somebody who types `kodoctl dev` commands, and what they would look at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import platformdirs
import pulsar
import requests

from kodoctl.dev import process
from tests.ports import unusual_ports

VERSION = os.environ.get("KODOCTL_TEST_PULSAR", "4.2")
CACHE = platformdirs.user_cache_path("kodoctl")


@dataclass(frozen=True)
class Told:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


class User:
    """Somebody with a home of their own (with a space in its name) and a wide screen, who types commands."""

    def __init__(self, folder: Path) -> None:
        self.home, self.config = folder / "my home", folder / "kodoctl.toml"
        own = {"KODOCTL_DEV_HOME": str(self.home), "KODOCTL_CONFIG": str(self.config), "COLUMNS": "1000"}
        self.environ = {**os.environ, **own}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "kodoctl", "dev", *arguments]

    def types(self, *arguments: str, **environ: str) -> Told:
        told = subprocess.run(
            self.command(*arguments), env={**self.environ, **environ}, capture_output=True, text=True, check=False
        )
        return Told(told.returncode, told.stdout, told.stderr)

    def gets(self, *arguments: str) -> dict:
        told = self.types(*arguments, "--format", "json")
        assert told.code == 0, told.err
        return told.json

    def starts(self, *arguments: str) -> dict:
        base = unusual_ports()
        named = ("--admin-port", base.admin), ("--broker-port", base.broker), ("--bookie-port", base.bookie)
        chosen = [part for option, port in named if option not in arguments for part in (option, str(port))]
        return self.gets("up", "--engine", "java", "--version", VERSION, *chosen, *arguments)

    def pid(self, name: str) -> int:
        return next(
            one["pid"] for one in self.types("status", "--format", "json").json["instances"] if one["name"] == name
        )


def admin(instance: dict, method: str, path: str, body: object = None, token: str | None = None) -> requests.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return requests.request(method, f"{instance['admin_url']}/admin/v2/{path}", json=body, headers=headers, timeout=30)


def client(instance: dict, token: str | None = None) -> pulsar.Client:
    return pulsar.Client(
        instance["broker_url"],
        authentication=pulsar.AuthenticationToken(token) if token else None,
        operation_timeout_seconds=10,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )


def alive(pid: int) -> bool:
    return process.identify(pid) is not None


def until(condition, seconds: float = 60):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "not within the time"
        time.sleep(0.05)
    return found
