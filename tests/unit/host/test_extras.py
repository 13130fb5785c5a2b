"""Extras: those that commands name exist, and a command that misses one says how to install it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from kodoctl.host.extras import Extra, install_command

ROOT = Path(__file__).parents[3]
WITHOUT = """
import sys
for name in ("sqlalchemy", "fastavro"):
    sys.modules[name] = None
from {part}.cli.main import main
main()
"""
FILE = """
version: 1
name: shop
tenant: kodo
namespace: shop
topics:
  orders:
    payload: {type: avro, schema: order.avsc}
    subscriptions: {billing: {}, shipping: {}}
"""
APP = """
from kodo_consumer import Consumer
{more}
consumer = Consumer.load("shop.yaml", subscription="orders/billing")
@consumer.handler
def bill(message): pass
"""
NOWHERE = {"KODO_CONSUMER_OUTBOX_URL": "sqlite:///shop.db", "KODO_CONSUMER_INBOX_URL": "sqlite:///shop.db"}


def test_each_extra_is_one_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {*get_args(Extra)} | {"fast"} == {*project["optional-dependencies"]}


def bare(part: str, folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command without SQLAlchemy and fastavro, in a folder."""
    command = [sys.executable, "-c", WITHOUT.format(part=part), *arguments]
    environ = {**os.environ, **NOWHERE, **variables}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.yaml").write_text(FILE.replace("    payload: {type: avro, schema: order.avsc}\n", ""), "utf-8")
    (tmp_path / "app.py").write_text(APP.format(more=""), "utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [("outbox", "schema"), ("outbox", "list"), ("outbox", "run", "shop.yaml"), ("inbox", "schema"), ("inbox", "list")],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_command_on_a_database_says_how_to_install_it(command: tuple[str, ...], shop: Path) -> None:
    done = bare("kodo_consumer", shop, *command)
    assert (done.returncode, done.stdout) == (64, ""), done.stderr
    expected = f"Error: database cannot be used [K721]\n  sqlalchemy is missing: {install_command('database')}\n"
    assert done.stderr.endswith(expected), done.stderr


@pytest.mark.parametrize(
    ("more", "variables"),
    [
        ("from kodo_consumer.outbox import Outbox", {}),
        ("from kodo_consumer.inbox import Inbox", {}),
        ("from kodo_consumer import dedup; dedup.create_tables(None)", {}),
        ("from kodo_consumer import dedup; dedup.take_token(None, 'token')", {}),
        ("", {"KODO_CONSUMER_STORE": "sqlite:///shop.db"}),
    ],
)
def test_a_worker_with_a_database_says_how_to_install_it(more: str, variables: dict[str, str], shop: Path) -> None:
    (shop / "app.py").write_text(APP.format(more=more), "utf-8")
    done = bare("kodo_consumer", shop, "run", "app:consumer", **variables)
    assert done.returncode == 64
    assert done.stderr.endswith(f"sqlalchemy is missing: {install_command('database')}\n"), done.stderr
    assert "K721" in done.stderr


def test_a_worker_without_a_database_needs_none(shop: Path) -> None:
    """It gets as far as the broker, of which there is none."""
    nobody = {"KODOCTL_ADMIN_URL": "http://127.0.0.1:1", "KODOCTL_BROKER_URL": "pulsar://127.0.0.1:1"}
    done = bare("kodo_consumer", shop, "check", "shop.yaml", **nobody)
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr, done.stderr


def test_lint_of_avro_says_how_to_install_it_among_its_findings(shop: Path) -> None:
    (shop / "shop.yaml").write_text(FILE.replace("shipping: {}", "shipping: {limits: 1}"), "utf-8")
    (shop / "order.avsc").write_text('{"type": "record", "name": "O", "fields": []}', "utf-8")
    assert "limits" in bare("kodoctl", shop, "lint", "shop.yaml").stdout
    (shop / "shop.yaml").write_text(FILE, "utf-8")
    done = bare("kodoctl", shop, "lint", "shop.yaml")
    assert done.returncode == 1
    assert (
        f"K304 error payload schema that cannot be used: order.avsc: Avro needs fastavro: {install_command('avro')}"
        in done.stdout
    )
