"""`kodo-consumer` without a cluster: exit codes and what it says."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from kodo_consumer import Consumer
from kodo_consumer.cli.consumer_loading import ConsumerChoice, HandlerChoice, load_consumers, ready_consumers
from kodo_consumer.cli.main import main
from kodo_consumer.cli.worker_commands import _policies, _subscriptions
from kodo_consumer.consumer import _policy_for_handler
from kodo_consumer.policy_builder import load
from kodo_consumer.runtime.middleware import Hooks
from kodo_consumer.testing import Harness

from kodoctl.errors import UsageError
from tests.brokers.workspace import this_process_goes_on
from tests.unit.consumer.topologies import DOUBLE, write


def _exit_code(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["kodo-consumer", *arguments])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as end, this_process_goes_on():
        main()
    assert isinstance(end.value.code, int)
    return end.value.code


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KODOCTL_CONFIG", str(tmp_path / "none.toml"))
    for name in ("KODOCTL_ADMIN_URL", "KODOCTL_BROKER_URL", "KODOCTL_ENV"):
        monkeypatch.delenv(name, raising=False)


def test_usage_errors_exit_64(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(monkeypatch, "--nonsense") == 64
    assert _exit_code(monkeypatch, "run") == 64
    assert _exit_code(monkeypatch, "--help") == 0
    assert "drain and exit 0" in capsys.readouterr().out


def test_what_is_wrong_is_said_with_its_code_and_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, DOUBLE)
    asked = ["run", path, "--topic", "orders", "--handler", "app:bill", "--subscription"]
    assert _exit_code(monkeypatch, *asked, "nobody") == 64
    assert "Error: unknown subscription [K703]\n  orders has billing" in capsys.readouterr().err
    assert _exit_code(monkeypatch, *asked, "billing") == 64
    assert "handler not found [K718]" in capsys.readouterr().err
    (tmp_path / "app.py").write_text("def bill(message): ...\n", encoding="utf-8")
    assert _exit_code(monkeypatch, *asked, "billing") == 64
    assert "no cluster named [K503]" in capsys.readouterr().err
    assert _exit_code(monkeypatch, *asked, "billing", "--admin-url", "http://127.0.0.1:1") == 1
    assert "no address of the broker's binary port [K516]" in capsys.readouterr().err
    assert _exit_code(monkeypatch, "check", path) == 64
    assert _exit_code(monkeypatch, "check", path, "--topic", "x", "--admin-url", "http://127.0.0.1:1") == 64
    assert "unknown ground topic [K702]" in capsys.readouterr().err
    broken = write(tmp_path, "  J: {payload: {type: json, schema: missing.json}, subscriptions: {s: {}}}\n")
    assert _exit_code(monkeypatch, "run", broken, "--topic", "J", "--subscription", "s", "--handler", "app:bill") == 1
    assert f"at {broken}:" in capsys.readouterr().err


def test_several_workers_are_refused_what_each_would_have_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "  J: {subscriptions: {s: {type: exclusive}, t: {}}}\n")
    asked = ["run", path, "--topic", "J", "--handler", "app:bill", "--workers"]
    assert _exit_code(monkeypatch, *asked, "0", "--subscription", "s") == 64
    assert _exit_code(monkeypatch, *asked, "2", "--subscription", "nobody") == 64
    assert "[K703]" in capsys.readouterr().err
    monkeypatch.setenv("KODO_CONSUMER_STORE", "memory")
    assert _exit_code(monkeypatch, *asked, "4", "--subscription", "s", "--port", "65533") == 64
    told = capsys.readouterr().err
    assert told.count("not for several workers [K766]") == 3
    assert "J s is exclusive: its topics have one consumer at a time" in told
    assert "`store` is memory, which each process has for itself" in told
    assert "--port 65533: the last worker would listen on 65536" in told
    assert _exit_code(monkeypatch, *asked, "4", "--subscription", "s", "--dry-run") == 64
    assert capsys.readouterr().err.count("not for several workers [K766]") == 2
    monkeypatch.setenv("KODO_CONSUMER_PORT", "65533")
    assert _exit_code(monkeypatch, *asked, "4", "--subscription", "s") == 64
    assert " port 65533: the last worker would listen on 65536" in capsys.readouterr().err
    monkeypatch.delenv("KODO_CONSUMER_PORT")
    monkeypatch.setenv("KODO_CONSUMER_STORE", "sqlite:///kodo.db")
    started: list[tuple[object, int]] = []
    monkeypatch.setattr(
        "kodo_consumer.cli.worker_processes.WorkerGroup", lambda size, work, **_: _Group(started, size, work)
    )
    assert _exit_code(monkeypatch, *asked, "4", "--subscription", "t", "--port", "65532") == 7
    ((work, size),) = started
    assert (size, work.args[0].choice.handlers) == (4, (HandlerChoice("app:bill", "J", "t"),))  # type: ignore[attr-defined]


class _Group:
    def __init__(self, started: list[tuple[object, int]], size: int, work: object) -> None:
        started.append((work, size))

    def run(self) -> int:
        return 7


def test_each_worker_of_several_has_ports_of_its_own_and_expects_the_others(tmp_path: Path) -> None:
    path = write(tmp_path, "  J: {subscriptions: {s: {expected_workers: 3}, t: {}}}\n")
    (tmp_path / "ported.py").write_text("def bill(message): ...\n", encoding="utf-8")
    choice = ConsumerChoice.of([path], ["J"], ["s", "t"], ["ported:bill"] * 2, ())
    first, last = (ready_consumers(choice, {"environ": {}}, 9464, worker=number, workers=2) for number in (0, 1))
    assert [one.settings.port for one in (*first, *last)] == [9464, 9465, 9466, 9467]
    assert {one.settings.workers for one in (*first, *last)} == {2}
    assert [one.settings.port for one in ready_consumers(choice, {"environ": {}}, 0, worker=1)] == [0, 0]
    policies = [_policy_for_handler(one.handling, Hooks(), 2, one.policy) for one in last]
    assert [policy.expected_workers for policy in policies] == [3, 2], "more than the file says only where it says less"


def test_what_nobody_foresaw_shows_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def surprise(*_: object, **__: object) -> None:
        raise ZeroDivisionError("one over none")

    monkeypatch.setattr("kodo_consumer.consumer.Consumer.load", surprise)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert _exit_code(monkeypatch, "run", "x", "--topic", "J", "--subscription", "s", "--handler", "app:bill") == 1
    assert "Error: a defect of kodoctl [K599]\n  ZeroDivisionError: one over none\n" in capsys.readouterr().err
    assert len(list(tmp_path.glob("kodoctl-*.txt"))) == 1


def test_everything_wrong_with_several_handlers_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, DOUBLE)
    text = "def two(a, b): ...\ndef stream(message):\n    yield\ndef fine(message): ...\n"
    (tmp_path / "several.py").write_text(text, encoding="utf-8")
    (tmp_path / "fails.py").write_text("1 / 0\n", encoding="utf-8")
    asked = ["run", path, "--topic", "orders", "--topic", "orders", "--topic", "orders", "--topic", "shipments"]
    pairs = [
        ("billing", "several:two"),
        ("audit-log", "fails:bill"),
        ("nobody", "several:fine"),
        ("tracking", "several:stream"),
    ]
    for name, handler in pairs:
        asked += ["--subscription", name, "--handler", handler]
    assert _exit_code(monkeypatch, *asked) == 64
    said = capsys.readouterr().err
    assert "missing a required argument: 'b'" in said
    assert "fails:bill: ZeroDivisionError in" in said
    assert "orders has billing, audit-log, not 'nobody'" in said
    assert "several:stream is a generator" in said


OWN = """
from dataclasses import replace

from kodo_consumer import Consumer, Message

consumer = Consumer.load("t.yaml", topic="orders", subscription="billing")
consumer.settings = replace(consumer.settings, drain_timeout=1_234)
seen = []


class Shop:
    __slots__ = ()

    def bill(self, message):
        seen.append("bill")


@consumer.handler
def bill(message: Message) -> None:
    seen.append("bill")


@consumer.middleware
def around(message: Message, handle) -> None:
    seen.append("before")
    handle(message)


other = Consumer.load("t.yaml", topic="shipments", subscription="tracking")
ship = other.handler(Shop().bill)
other.middleware(around)


def plain(message: Message) -> None:
    seen.append("plain")
"""


def _loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *wanted: str) -> tuple[list[Consumer], ModuleType]:
    path = write(tmp_path, DOUBLE)
    name = f"own_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(OWN, encoding="utf-8")
    monkeypatch.setattr(sys, "path", list(sys.path))
    topics, subscriptions, handlers = zip(*(one.split() for one in wanted), strict=True)
    choice = ConsumerChoice.of([path], topics, subscriptions, [f"{name}:{handler}" for handler in handlers], ())
    found = load_consumers(choice, {})
    return found, sys.modules[name]


@pytest.mark.parametrize(
    ("wanted", "seen"),
    [
        ("orders billing bill", ["before", "bill"]),
        ("shipments tracking ship", ["before", "bill"]),
        ("orders audit-log plain", ["plain"]),
    ],
    ids=["function", "method", "declared by nobody"],
)
def test_a_handler_named_in_a_command_keeps_what_its_consumer_has_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str, seen: list[str]
) -> None:
    (consumer,), app = _loaded(tmp_path, monkeypatch, wanted)
    assert consumer.settings.drain_timeout == (1_234 if "billing" in wanted else 30_000)
    harness = Harness(consumer)
    harness.send(b"x", properties={"uid": "u"})
    harness.run()
    assert app.seen == seen


def test_a_handler_of_another_subscription_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"K763.*:bill is the handler of orders billing, not of orders audit-log"):
        _loaded(tmp_path, monkeypatch, "orders audit-log bill")


def test_options_that_do_not_match_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["run", write(tmp_path, DOUBLE), "--topic", "orders", "--subscription", "billing", "--handler", "a:b"]
    assert _exit_code(monkeypatch, *asked, "--handler", "a:c") == 64
    assert "1 --subscription, 2 --handler" in " ".join(capsys.readouterr().err.split())
    assert _exit_code(monkeypatch, *asked, "--subscription", "billing", "--handler", "a:c") == 64
    assert "orders billing is named twice" in capsys.readouterr().err


def test_a_check_of_one_subscription_skips_topics_without_it(tmp_path: Path) -> None:
    path = write(tmp_path, "  a: {subscriptions: {s: {}, t: {}}}\n  b: {subscriptions: {t: {}}}\n")
    loaded = load(path, "base")
    assert _subscriptions(loaded, None, "s") == [("a", "s")]
    assert _subscriptions(loaded, None, "t") == [("a", "t"), ("b", "t")]
    assert _subscriptions(loaded, None, None) == [("a", "s"), ("a", "t"), ("b", "t")]
    assert _subscriptions(loaded, "b", "s") == [("b", "s")], "who names both is told what is there"
    assert _subscriptions(loaded, "a", None) == [("a", "s"), ("a", "t")]
    with pytest.raises(UsageError, match=r"K703.*has s, t, not 'x'"):
        _subscriptions(loaded, None, "x")


def test_a_check_lists_the_faults_of_all_subscriptions(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, "  a: {subscriptions: {s: {}}}\n"), "base")
    with pytest.raises(UsageError) as refused:
        _policies(loaded, [("a", "x"), ("b", "s"), ("a", "s")], None)
    assert [finding.code for finding in refused.value.diagnostics] == ["K703", "K702"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["concurrency", "--in", "L1"], "name --max or --min, or --back to take the order back; not both"),
        (["concurrency", "--in", "L1", "--max", "2", "--back"], "name --max or --min, or --back"),
        (["weight", "--tenant", "u1"], "name --to, or --back to take the order back; not both"),
        (["limit", "--kind", "rate", "--by", "gone", "--back", "--release"], "no limits of this kind and property"),
    ],
)
def test_orders_that_cannot_be_are_refused_before_the_cluster_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], reason: str
) -> None:
    name, *options = words
    asked = [name, write(tmp_path, DOUBLE), "--topic", "orders", "--subscription", "billing", *options]
    assert _exit_code(monkeypatch, *asked, "--admin-url", "http://127.0.0.1:1") == 64
    told = " ".join(capsys.readouterr().err.split())
    assert "[K780]" in told
    assert reason in told


def test_a_message_without_a_name_is_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, DOUBLE)
    asked = ["why", path, "", "--topic", "orders", "--subscription", "billing", "--admin-url", "http://127.0.0.1:1"]
    assert _exit_code(monkeypatch, *asked) == 64
    assert "no name given" in capsys.readouterr().err
