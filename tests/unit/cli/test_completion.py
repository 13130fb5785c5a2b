"""Values that a shell completes, as bash asks for them."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer.main
from kodo_consumer.cli.main import app as consumer_app

from kodoctl.cli.application import app
from kodoctl.cli.completion import completer
from kodoctl.cli.lazy_commands import LazyGroup
from kodoctl.dev import instance
from tests.brokers.workspace import run_main

SHOP = """\
version: 1
name: shop
tenant: kodo
namespace: shop
topics:
  orders: {subscriptions: {billing: {}, mailing: {}}}
  parcels: {subscriptions: {labels: {}}}
  "a*": {}
environments: {prod: {}, dev: {}}
"""


@pytest.fixture(autouse=True)
def files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the default folder, beside others that name no namespace; one elsewhere, two contexts, and no development instance."""
    (folder / "topologies").mkdir()
    (folder / "topologies" / "shop.yaml").write_text(SHOP, encoding="utf-8")
    (folder / "topologies" / "kodoctl-rules.yaml").write_text("version: 1\nrules: {}\n", encoding="utf-8")
    (folder / "topologies" / "a.yaml").write_text("version: 1\n", encoding="utf-8")  # somebody begins to write it
    (folder / "other.yml").write_text(SHOP.replace("orders", "letters"), encoding="utf-8")
    (folder / "broken.yaml").write_text("a: [", encoding="utf-8")
    contexts = [f'[contexts.{name}]\nadmin_url = "http://127.0.0.1:1"\n' for name in ("eu", "us")]
    (folder / "kodoctl.toml").write_text("".join(contexts), encoding="utf-8")
    monkeypatch.setenv("KODOCTL_DEV_HOME", str(folder / "dev"))


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch) -> object:
    """Completes a line, whose last word is incomplete."""

    def values(line: str) -> list[str]:
        monkeypatch.setenv("_KODOCTL_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        ran = run_main()
        assert ran.err == ""
        return ran.out.split()

    return values


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("kodoctl plan --context ", ["eu", "us"]),
        ("kodoctl plan --context eu --context u", ["us"]),
        ("kodoctl context use e", ["eu"]),
        ("kodoctl plan --env ", ["base", "dev", "prod"]),
        ("kodoctl graph --topic ", ["orders", "parcels"]),
        ("kodoctl graph other.yml --topic ", ["letters", "parcels"]),
        ("kodoctl graph broken.yaml gone.yaml --topic ", []),
        ("kodoctl waiting list topologies/shop.yaml --subscription ", ["billing", "labels", "mailing"]),
        ("kodoctl recall plan topologies/shop.yaml --topic parcels --subscription ", ["labels"]),
        ("kodoctl history ", ["kodo/shop"]),
        ("kodoctl peek kodo/shop/p", ["kodo/shop/parcels"]),
        ("kodoctl send --topology other.yml ", ["letters", "parcels"]),
        ("kodoctl undo ", ["last"]),
        ("kodoctl dev logs --name ", []),
        ("kodoctl plan --format ma", ["markdown"]),
        ("kodoctl destroy --name ", []),
    ],
)
def test_a_value_is_completed(line: str, values: list[str], complete, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodoctl.cli.completion._JOURNAL_S", 0.01)
    assert complete(line) == values


def test_instances_of_development_brokers_are_completed(complete, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [type("Record", (), {"name": name})() for name in ("dev", "est")]
    monkeypatch.setattr(instance, "all_instances", lambda _: found)
    assert complete("kodoctl dev logs --name ") == ["dev", "est"]


def test_each_option_with_known_values_completes_in_every_command() -> None:
    found: dict[str, int] = {}

    def walk(command: object, path: str) -> None:
        if isinstance(command, LazyGroup):
            for name, child in command.load_all().items():
                walk(child, f"{path} {name}")
            return
        for parameter in command.params:  # type: ignore[attr-defined]
            if completer(path, parameter) is not None:
                found[parameter.opts[0]] = found.get(parameter.opts[0], 0) + 1

    for one in (app, consumer_app):
        walk(typer.main.get_command(one), str(one.info.name))
    assert found["--context"] > 30
    assert found["--env"] > 30
    assert found["--topic"] > 5
    assert found["--name"] >= 10
