"""Somebody who types `kodoctl dev` commands, and what they would look at."""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs
import pulsar
import requests

from kodoctl.dev import process
from tests.services.ports import unusual_ports

VERSION = os.environ.get("KODOCTL_TEST_PULSAR", "4.2")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
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


def listening(pid: int) -> dict[int, Address]:
    """Ports that a process listens on, with the address of each, as the kernel says (Linux)."""
    sockets = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed in the meantime
            sockets.add(str(file.readlink()))
    rows = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()
    ]
    own = [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]  # 0A: LISTEN
    return {int(port, 16): _address(text) for text, _, port in (place.partition(":") for place in own)}


def _address(text: str) -> Address:
    """Of an address that the kernel writes as words of the machine's own byte order; IPv4 also where it is mapped."""
    words = [int(text[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(text), 8)]
    found = ipaddress.ip_address(b"".join(words))
    return getattr(found, "ipv4_mapped", None) or found


def until(condition, seconds: float = 60):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "not within the time"
        time.sleep(0.05)
    return found
