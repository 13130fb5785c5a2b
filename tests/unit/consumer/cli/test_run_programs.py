"""`kodo-consumer run app:consumer`: which consumers a command line means, and what it refuses before it connects."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kodo_consumer import Consumer, Producer
from kodo_consumer.cli.consumer_loading import ConsumerChoice, HandlerChoice, load_consumers, ready_consumers
from kodo_consumer.cli.options import LogOptions
from kodo_consumer.cli.worker_processes import WorkerCommand, run_group
from kodo_consumer.policy_builder import choose_topic, load
from kodo_consumer.sending.environment import Environment, options_of_program

from kodoctl.errors import UsageError
from tests.unit.consumer.topologies import DOUBLE, write

ONE = "  orders: {subscriptions: {billing: {states: [retrying]}}}\n"
PROGRAM = """
from kodo_consumer import Consumer

consumer = Consumer.load("t.yaml")
idle = Consumer.load("t.yaml")
number = 4


@consumer.handler
def bill(message): ...
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module in the working folder, with the consumers `consumer` and, without a handler, `idle`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.delenv("KODOCTL_ENV", raising=False)
    write(tmp_path, ONE)
    (tmp_path / "billing_app.py").write_text(PROGRAM, encoding="utf-8")
    return "billing_app"


def test_a_consumer_of_a_program_runs_with_its_own_topology_and_handler(program: str) -> None:
    (consumer,) = ready_consumers(ConsumerChoice.of([f"{program}:consumer"], [], [], [], ["L1/ready"]), {}, 9464)
    assert (consumer.policy.ground, consumer.policy.subscription) == ("orders", "billing")
    assert [lane.name for lane in consumer.policy.lanes] == ["L1/ready"]
    assert consumer.handling.name == f"{program}:bill"
    assert consumer.settings.port == 9464


@pytest.mark.parametrize(
    ("targets", "options", "refusal"),
    [
        (["t.yaml"], {}, "t.yaml: write MODULE:NAME of a consumer, such as app:consumer; with a topology file also"),
        (["a:b", "a:b"], {}, "a:b is named twice"),
        (["a:b"], {"topics": ["orders"]}, "--topic and --subscription go with --handler: a:b names them itself"),
        (["a:b", "c:d"], {"handlers": ["a:b"]}, "a:b c:d: --handler needs one topology file"),
        (["a:b"], {"lanes": ["L1", "L2"]}, "2 --lanes, 1 consumer: one --lanes for all, or one for each"),
        (["t.yaml"], {"handlers": ["a:b", "a:c"]}, "0 --topic, 0 --subscription, 2 --handler: as many of each"),
        (
            ["t.yaml"],
            {"handlers": ["a:b", "a:c"], "topics": ["orders"], "subscriptions": ["s", "s"]},
            "orders s is named twice",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(targets: list[str], options: dict[str, list[str]], refusal: str) -> None:
    given = {"topics": [], "subscriptions": [], "handlers": [], "lanes": []} | options
    with pytest.raises(UsageError) as raised:
        ConsumerChoice.of(targets, **given)
    assert refusal in str(raised.value)


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("number", "number is of the type int in billing_app.py; its consumers: consumer, idle"),
        ("nothing", "there is no nothing in billing_app.py; its consumers: consumer, idle"),
        ("idle", "no handler [K707] billing_app:idle: decorate one"),
    ],
)
def test_a_name_that_is_no_consumer_with_a_handler_is_refused(program: str, name: str, refusal: str) -> None:
    with pytest.raises(UsageError) as raised:
        load_consumers(ConsumerChoice((f"{program}:{name}",)), {})
    assert refusal in "\n".join(f"{one.summary} [{one.code}] {one.detail}" for one in raised.value.diagnostics)


def test_a_module_without_consumers_says_so(program: str) -> None:
    Path("empty_app.py").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match=r"there is no app in empty_app\.py; it has no consumer"):
        load_consumers(ConsumerChoice(("empty_app:app",)), {})


def test_a_handler_needs_neither_topic_nor_subscription_where_the_file_leaves_no_choice(program: str) -> None:
    choice = ConsumerChoice.of(["t.yaml"], [], [], [f"{program}:bill"], [])
    assert choice.handlers == (HandlerChoice(f"{program}:bill"),)
    (consumer,) = load_consumers(choice, {})
    assert (consumer.policy.ground, consumer.policy.subscription) == ("orders", "billing")


def test_a_file_with_several_subscriptions_makes_one_name_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, DOUBLE)
    path = "t.yaml"
    with pytest.raises(UsageError) as raised:
        Consumer.load(path)
    (finding,) = raised.value.diagnostics
    assert finding.code == "K767"
    assert finding.detail == (
        "t.yaml has orders billing, orders audit-log, shipments tracking: name topic and subscription"
    )
    assert Consumer.load(path, topic="shipments").policy.subscription == "tracking"
    assert Consumer.load(path, subscription="audit-log").policy.ground == "orders"
    with pytest.raises(UsageError, match=r"K767.*orders of t.yaml has orders billing, orders audit-log: name the sub"):
        Consumer.load(path, topic="orders")
    with pytest.raises(UsageError, match=r"K703.*has orders billing, orders audit-log, shipments tracking, not 'x'"):
        Consumer.load(path, subscription="x")
    with pytest.raises(UsageError, match=r"K702"):
        Consumer.load(path, topic="x")
    with pytest.raises(UsageError, match=r"K767.*has the topics orders, shipments: name one"):
        Producer.load(path)
    assert choose_topic(load(write(tmp_path, ONE), None), None) == "orders"
    with pytest.raises(UsageError, match=r"K703.*t.yaml has no subscription$"):
        Consumer.load(write(tmp_path, "  orders: {}\n"))


def test_options_of_the_command_count_in_the_program(program: str) -> None:
    environments = "environments: {small: {}, large: {}}\n"
    write(Path.cwd(), ONE, environments)
    with options_of_program({"env": "small", "context": "shop"}):
        (consumer,) = load_consumers(ConsumerChoice((f"{program}:consumer",)), {})
        assert consumer.environment is not None
        assert (consumer.environment.env, consumer.environment.flags.context) == ("small", "shop")
        assert Consumer.load("t.yaml", context="shop").environment is not None
        with pytest.raises(
            UsageError, match=r"K759.*loads with context 'other', the command line names context 'shop'"
        ):
            Consumer.load("t.yaml", context="other")
        with pytest.raises(UsageError, match=r"K759.*with admin_url 'http://b', the command line names context 'shop'"):
            Consumer.load("t.yaml", admin_url="http://b")
        with pytest.raises(UsageError, match=r"K759.*with env 'large', the command line names env 'small'"):
            Consumer.load("t.yaml", env="large")
        with options_of_program({"env": "large"}):
            assert Consumer.load("t.yaml").environment == Environment.of(env="large")
        code = "from kodo_consumer.sending.environment import Environment; print(Environment.of().flags.context)"
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert child.stdout == "shop\n", "processes of the handler load the program anew"
    assert Environment.of().env is None


def test_several_workers_are_refused_for_an_exclusive_consumer_of_a_program(program: str) -> None:
    write(Path.cwd(), "  orders: {subscriptions: {billing: {type: exclusive, states: []}}}\n")
    with pytest.raises(UsageError, match=r"K766.*orders billing is exclusive"):
        run_group(WorkerCommand(ConsumerChoice((f"{program}:consumer",)), None, {}, LogOptions()), 2)


@pytest.mark.parametrize(
    ("more", "names", "refusal"),
    [
        ("consumer.run()", ["consumer"], r"K731.*run: the program is being imported; put it under"),
        ("again = consumer", ["consumer", "again"], r"K759.*orders billing: one consumer for each subscription"),
        ("def __getattr__(name): raise RuntimeError('no')", ["x"], r"K718.*RuntimeError in broken_app.py:1\d: no"),
    ],
)
def test_programs_that_would_run_twice_or_cannot_be_read_are_refused(
    program: str, more: str, names: list[str], refusal: str
) -> None:
    Path("broken_app.py").write_text(f"{PROGRAM}\n{more}\n", encoding="utf-8")
    with pytest.raises(UsageError, match=refusal):
        load_consumers(ConsumerChoice(tuple(f"broken_app:{name}" for name in names)), {})


def test_consumers_of_equal_names_in_two_namespaces_run_together(program: str) -> None:
    text = Path("t.yaml").read_text(encoding="utf-8")
    Path("other.yaml").write_text(text.replace("namespace: ", "namespace: other-"), encoding="utf-8")
    Path("both_app.py").write_text(
        f"{PROGRAM}\nother = Consumer.load('other.yaml')\nother.handler(bill)\n", encoding="utf-8"
    )
    both = load_consumers(ConsumerChoice(("both_app:consumer", "both_app:other")), {})
    assert len({one.policy.ground_lane.topic for one in both}) == 2
    assert {one.policy.subscription for one in both} == {"billing"}
