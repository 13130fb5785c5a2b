"""Loading: environment, connection, settings; and what `import kodo_consumer` costs."""

from __future__ import annotations

import importlib
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import kodo_consumer
import pytest
from kodo_consumer import AsyncHandle, Consumer, Discard, Handle, Message
from kodo_consumer.core import CoreStatus
from kodo_consumer.core.values.broker import BorderStatus
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.core.values.counters import Counts
from kodo_consumer.core.values.envelope import Outgoing
from kodo_consumer.core.values.handler_executor import HandlerExecutor
from kodo_consumer.running.running_worker import _fast_text
from kodo_consumer.runtime.async_executor import AsyncExecutor
from kodo_consumer.runtime.handler_import import load_handler
from kodo_consumer.runtime.middleware import Hooks
from kodo_consumer.runtime.settings import Settings, read_settings
from kodo_consumer.runtime.thread_executor import ThreadExecutor
from kodo_consumer.testing import MemoryBroker

from kodoctl.errors import InvalidFileError, KodoctlError, UsageError
from kodoctl.topology.lint.linter import lint
from kodoctl.topology.load import read_files
from tests.services.polling import eventually
from tests.unit.consumer.runtime.worker_place import MemoryCluster
from tests.unit.consumer.topologies import DOUBLE, write

SMALL = "  J: {subscriptions: {s: {}}}\n"
ENVIRONMENTS = "environments: {prod: {namespace: live}, test: {namespace: try}}\n"


def _namespace(folder: Path, **place: object) -> str:
    path = write(folder, SMALL, ENVIRONMENTS)
    found = Consumer.load(path, topic="J", subscription="s", **place)  # type: ignore[arg-type]
    return found.policy.lanes[0].topic.split("/")[3]


def test_the_environment_is_the_argument_else_the_variable_else_the_contexts(tmp_path: Path) -> None:
    config = tmp_path / "kodoctl.toml"
    config.write_text('current = "c"\n[contexts.c]\nadmin_url = "http://127.0.0.1:1"\nenv = "test"\n', encoding="utf-8")
    environ = {"KODOCTL_CONFIG": str(config)}
    assert _namespace(tmp_path, environ=environ) == "try"
    assert _namespace(tmp_path, environ={}, env="base") == "n"
    assert _namespace(tmp_path, environ=environ | {"KODOCTL_ENV": "prod"}) == "live"
    assert _namespace(tmp_path, environ=environ | {"KODOCTL_ENV": "prod"}, env="test") == "try"
    assert _namespace(tmp_path, environ=environ, context="c") == "try"
    assert _namespace(tmp_path, environ=environ | {"KODOCTL_ADMIN_URL": ""}) == "try", "an empty variable names nothing"
    none = {"KODOCTL_CONFIG": str(tmp_path / "none.toml")}
    for place in ({"environ": environ, "admin_url": "http://127.0.0.1:1"}, {"environ": none}):
        with pytest.raises(UsageError, match="K017"):
            _namespace(tmp_path, **place)


MISTAKEN = """
  J:
    subscriptions:
      s: {retrying: {delays: [1m, 30s]}, weights: {ready: 300}}
"""


def test_a_file_with_lint_errors_is_refused_with_all_of_them_and_what_is_allowed_is_not(tmp_path: Path) -> None:
    path = write(tmp_path, MISTAKEN)
    with pytest.raises(InvalidFileError) as refused:
        Consumer.load(path, topic="J", subscription="s", environ={})
    assert refused.value.diagnostics == lint(read_files([path])).findings
    assert [(finding.code, finding.where.line) for finding in refused.value.diagnostics if finding.where] == [
        ("K104", 9),
        ("K104", 9),
    ]
    allowed = MISTAKEN.replace("300}}", "300}}  # kodoctl: allow K104 because tried")
    assert Consumer.load(write(tmp_path, allowed), topic="J", subscription="s", environ={}).lanes()


def test_lint_errors_count_in_the_environment_that_is_run(tmp_path: Path) -> None:
    overlay = "environments: {prod: {topics: {J: {subscriptions: {s: {weights: {ready: 300}}}}}}, test: {}}\n"
    path = write(tmp_path, SMALL, overlay)
    Consumer.load(path, topic="J", subscription="s", environ={}, env="test")
    with pytest.raises(InvalidFileError, match="K104"):
        Consumer.load(path, topic="J", subscription="s", environ={}, env="prod")


def test_warnings_of_lint_are_told_at_the_start_and_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    topics = "  J: {fair_by: uid, subscriptions: {s: {produces: [elsewhere]}}}\n"
    path = write(tmp_path, topics)
    for _ in range(2):
        found = Consumer.load(path, topic="J", subscription="s", environ={"KODOCTL_CONFIG": str(tmp_path / "none")})
        found.handler(lambda message: None)
        assert caplog.messages == [] or _ == 1
        with pytest.raises(UsageError, match="K503"):
            found.start()
    (told,) = caplog.messages
    assert told.startswith(f"{path}:6:16 K209 warning"), "whether another file has `elsewhere` is not known"


def test_one_line_says_that_a_worker_is_ready(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """One for each worker, however many a process has, and nothing else about its start."""
    caplog.set_level(logging.INFO, "kodo.consumer")
    policy = Consumer.load(write(tmp_path, SMALL), topic="J", subscription="s", environ={}).policy
    for _ in range(2):
        broker = MemoryBroker(SystemClock())
        broker.create_for(policy)
        consumer = Consumer(policy, lambda: (broker, MemoryCluster(policy)))  # noqa: B023  # called at once
        consumer.handler(lambda message: None)
        consumer.start()
        before_stop = list(caplog.messages)
        consumer.stop()
        assert [text for text in before_stop if text.startswith("ready: ")] == before_stop
    line = f"ready: J/s, {len(policy.lanes)} lanes, 32 slots, kodo-fast "
    ready = [text for text in caplog.messages if text.startswith("ready: ")]
    assert len(ready) == 2
    assert all(text.startswith(line) and "the broker is in memory" in text for text in ready)


@pytest.mark.parametrize(
    ("border", "core", "text"),
    [
        ((True, "1.0"), (True, "80 modules"), "kodo-fast on"),
        ((False, "kodo-fast is not installed"), (False, "kodo-fast is not installed"), "kodo-fast off (not installed)"),
        ((False, "off here"), (False, "another build"), "kodo-fast off (off here; another build)"),
        ((True, "1.0"), (False, "another build"), "kodo-fast without compiled core (another build)"),
        ((False, "off here"), (True, "80 modules"), "kodo-fast without native border (off here)"),
    ],
)
def test_the_ready_line_says_why_kodo_fast_is_not_used(
    border: tuple[bool, str], core: tuple[bool, str], text: str
) -> None:
    assert _fast_text(BorderStatus(*border), CoreStatus(*core)) == text


def test_counts_and_what_is_in_flight_are_public_and_copies(tmp_path: Path) -> None:
    policy = Consumer.load(write(tmp_path, SMALL), topic="J", subscription="s", environ={}).policy
    broker = MemoryBroker(SystemClock())
    broker.create_for(policy)
    consumer = Consumer(policy, lambda: (broker, MemoryCluster(policy)))
    started, released = threading.Event(), threading.Event()

    @consumer.handler
    def handle(message: Message) -> None:
        if message.data == b"discarded":
            raise Discard
        if message.data == b"slow":
            started.set()
            released.wait(30)

    assert (consumer.counts, consumer.in_flight) == (Counts(), {})
    consumer.start()
    for payload in (b"quick", b"discarded", b"slow"):
        broker.send(Outgoing(policy.lanes[0].topic, payload, {}))
    broker.step()
    assert started.wait(30)
    eventually(lambda: consumer.counts.done + consumer.counts.finished.total() == 2)
    before = consumer.counts
    assert (before.received, before.started, before.done, before.finished) == (3, 3, 1, {"discarded": 1})
    assert {name: held for name, held in consumer.in_flight.items() if held} == {"L1/ready": 1}
    released.set()
    consumer.stop()
    assert (before.done, consumer.counts.done) == (1, 2), "what was read before counts no further"


def test_a_program_reads_why_its_consumer_does_no_work(tmp_path: Path) -> None:
    policy = Consumer.load(write(tmp_path, SMALL), topic="J", subscription="s", environ={}).policy
    broker = MemoryBroker(SystemClock())
    broker.create_for(policy)
    consumer = Consumer(policy, lambda: (broker, MemoryCluster(policy)))
    consumer.handler(lambda message: None)
    assert consumer.problems == ["not started"]
    consumer.start()
    assert consumer.problems == []
    assert consumer._running is not None
    consumer._running.worker.fail(ValueError("a thread ended"))
    assert consumer.problems == ["the worker broke: ValueError('a thread ended')"]
    with pytest.raises(ValueError, match="a thread ended"):
        consumer.stop()
    assert consumer.problems == ["draining"]


def test_lanes_are_shown_with_their_share(tmp_path: Path) -> None:
    path = write(tmp_path, "  J: {draining: [L2], subscriptions: {s: {states: [retrying]}}}\n")
    assert Consumer.load(path, topic="J", subscription="s", environ={}).lanes() == [
        "persistent://p/n/J-L2              41.7%  draining",
        "persistent://p/n/J-L2-s-RETRYING   25.0%  draining",
        "persistent://p/n/J                 20.8%",
        "persistent://p/n/J-s-RETRYING      12.5%",
    ]


def test_lanes_are_shown_with_the_slots_they_may_take_or_keep(tmp_path: Path) -> None:
    slots = "{total: 8, states: {retrying: {max: 4}}, levels: {L2: {min: 2}}, lanes: {L2/ready: {max: 6, min: 1}}}"
    path = write(
        tmp_path, f"  J: {{levels: double, subscriptions: {{s: {{states: [retrying], concurrency: {slots}}}}}}}\n"
    )
    assert Consumer.load(path, topic="J", subscription="s", environ={}).lanes() == [
        "persistent://p/n/J-L2              41.7%  L2 min 2  L2/ready max 6 min 1",
        "persistent://p/n/J-L2-s-RETRYING   25.0%  retrying max 4  L2 min 2",
        "persistent://p/n/J                 20.8%",
        "persistent://p/n/J-s-RETRYING      12.5%  retrying max 4",
    ]


def test_plain_handlers_run_on_threads_and_coroutines_on_a_loop(tmp_path: Path) -> None:
    loaded = Consumer.load(write(tmp_path, DOUBLE), topic="orders", subscription="billing", environ={})

    async def later(message: kodo_consumer.Message) -> None:
        pass

    class Callable:
        async def __call__(self, message: kodo_consumer.Message) -> None:
            pass

    def runner_of(handler: Any) -> HandlerExecutor:
        loaded.handler(handler)
        return loaded.handling.runner(loaded.policy, None, Hooks())

    assert isinstance(runner_of(lambda message: None), ThreadExecutor)
    for handler in (later, Callable()):
        runner = runner_of(handler)
        assert isinstance(runner, AsyncExecutor)
        runner.stop()
    assert loaded.handler(later) is later
    assert loaded.summary() == []


def test_settings_are_the_variables_then_the_files_then_the_defaults(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert read_settings({}, inner) == Settings(30_000)
    (tmp_path / "kodo-consumer.toml").write_text('drain_timeout = "5s"', encoding="utf-8")
    assert read_settings({}, inner) == Settings(5_000)
    assert read_settings({"KODO_CONSUMER_NATIVE": "false"}, inner) == Settings(5_000, native=False)
    assert read_settings({"KODO_CONSUMER_DRAIN_TIMEOUT": "1m"}, inner) == Settings(60_000)


@pytest.mark.parametrize("text", ["drain_timeout = 5", "drain_timeout = '5'", "typo = 1", "["])
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "kodo-consumer.toml").write_text(text, encoding="utf-8")
    with pytest.raises(KodoctlError, match="K708"):
        read_settings({}, tmp_path)


def test_a_variable_that_makes_no_sense_is_a_mistake_of_the_command_and_one_mistyped_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UsageError, match="K708"):
        read_settings({"KODO_CONSUMER_DRAIN_TIMEOUT": "soon"}, tmp_path)
    services = {"KODO_CONSUMER_SERVICE_HOST": "10.0.0.1", "KODO_CONSUMER_PORT_9464_TCP": "tcp://10.0.0.1:9464"}
    for _ in range(2):
        assert read_settings({"KODO_CONSUMER_DRIAN_TIMEOUT": "5s", **services}, tmp_path) == Settings()
    (told,) = caplog.messages
    assert (
        told == "KODO_CONSUMER_DRIAN_TIMEOUT is no setting and changes nothing: is KODO_CONSUMER_DRAIN_TIMEOUT meant?"
    )


def test_everything_public_is_there_and_nothing_is_imported_before_its_use() -> None:
    aliases = {"AsyncHandle": AsyncHandle, "Handle": Handle}  # of types, which have the names of their types
    for name in kodo_consumer.__all__:
        public = getattr(kodo_consumer, name)
        assert public == aliases[name] if name in aliases else public.__name__ == name
    with pytest.raises(AttributeError, match="nothing"):
        _ = kodo_consumer.nothing
    shown = {name for name in dir(kodo_consumer) if not name.startswith("__")}
    modules = shown - set(kodo_consumer.__all__)
    assert modules == {"dedup", "errors", "inbox", "outbox", "testing"}
    for name in modules:
        assert kodo_consumer.__getattr__(name) is importlib.import_module(f"kodo_consumer.{name}")
    errors = importlib.import_module("kodo_consumer.errors")
    assert all(
        issubclass(getattr(errors, name), errors.KodoctlError) for name in errors.__all__ if name != "Diagnostic"
    )
    with pytest.raises(AttributeError, match="nothing"):
        _ = errors.nothing
    look = (
        "import sys, kodo_consumer; print([m for m in ('pulsar', 'pydantic', 'typer', 'asyncio') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_handler_is_found_by_module_and_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_app.py").write_text("def bill(message): ...\nnumber = 3\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert load_handler("own_app:bill").__name__ == "bill"
    for wrong in ("own_app", "own_app:", ":bill", "own_app:missing", "no_such_app:bill", "own_app:number"):
        with pytest.raises(UsageError, match="K718"):
            load_handler(wrong)


@pytest.mark.parametrize("native", [True, False])
def test_the_state_of_the_border_is_one_line(native: bool) -> None:
    assert str(BorderStatus(native, "why")) == f"native border: {'on' if native else 'off'} (why)"
