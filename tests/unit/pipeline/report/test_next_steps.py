"""What to do: every doubt has its advice, and every command can be copied as it is."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import Any

import pytest
import typer.main
from kodo_pipeline.report import next_steps as module
from kodo_pipeline.report.document import document

from kodoctl.recall.filter.condition import literal, parse
from kodoctl.text.escaping import printable
from tests.samples.reports import ABOUT, EVIL, audited, busy, failure, late, made, quiet, tenant, wait


def titles(found):
    return [one["title"] for one in found["advice"]]


def test_a_loss_comes_first_and_names_messages():
    found = made()["advice"]
    assert found[0]["title"] == "Find the lost messages and send them again"
    assert (
        found[0]["commands"][1]
        == "kodo-consumer why topologies/trade.yaml --topic orders --subscription billing 7:0:0:-1"
    )
    assert len(found[0]["commands"]) == 8, "three messages, and the four that send them again"


@pytest.mark.parametrize("facts", [busy(), quiet()])
def test_commands_that_read_the_ledger_of_recalls_name_it(facts):
    found = document(replace(ABOUT, ledger="books/of recalls"), facts)["advice"]
    commands = [one for step in found for one in step["commands"]]
    reading = [one for one in commands if re.match(r"kodoctl (recall|pipeline (audit|report|recall)) ", one)]
    assert reading
    assert all(one.endswith(" --ledger 'books/of recalls'") for one in reading)
    assert not [one for one in commands if "--ledger" in one and one not in reading]


def test_what_was_never_stored_is_for_its_producers_to_send():
    unstored: Any = {"kind": "producer", "proves": "loss", "text": "3 messages sent and stored nowhere"}
    audit = audited(lost=3)
    both = made(busy(audit={**audit, "reasons": [*audit["reasons"], unstored]}))["advice"][0]
    assert both["why"].endswith(" Others never reached a topic: only their producers can send them again.")
    only = made(busy(audit={**audited(), "verdict": "loss", "reasons": [unstored]}))["advice"][0]
    assert only["why"] == "They never reached a topic: only their producers can send them again."


def test_nothing_to_complain_of_is_no_empty_page():
    assert titles(made(quiet())) == ["Come back tomorrow"]


OF = 'topologies/trade.yaml --topic orders --subscription billing --where "cause = '
SENDING = [
    f"kodoctl recall plan {OF}'negative amount'\" --out recall.json",
    "kodoctl recall apply recall.json --rate 200/s",
]


def test_dead_letters_are_recalled_by_the_cause_most_died_of():
    tried = [failure("retrying", "negative amount", 30), failure("dead", "negative amount", 12, "dead")]
    found = made(busy(failures=tried))["advice"][-1]
    assert found["commands"] == SENDING
    assert "12 messages wait" in found["why"]


def test_letters_that_sending_again_cannot_cure_are_to_be_discarded():
    """A handler that gave up at the first run decides about the same message in the same way."""
    found = made()["advice"][-1]
    assert found["commands"] == [
        f"kodoctl recall discard {OF}'negative amount'\" --because TEXT --out discard.json",
        "kodoctl recall apply discard.json",
        *SENDING,
    ]
    assert "the cause 'negative amount' were given up at their first run" in found["why"]
    elsewhere = {**failure("retrying", "negative amount", 9), "subscription": "stock"}
    assert made(busy(failures=[failure("dead", "negative amount", 12, "dead"), elsewhere]))["advice"][-1] == found


def with_tenants(*tenants):
    """A day on which these tenants had messages."""
    return made(busy(counted={**busy().counted, "tenants": list(tenants)}))["advice"]


def test_a_customer_whose_every_run_fails_is_named():
    found = with_tenants(
        tenant("acme", 5, 0, None, failed=25), tenant("ben", 9, 1, None, failed=8), tenant("it's", 9, 0, None, failed=9),
        tenant("cleo", 9, 0, None, failed=4), tenant(None, 9, 0, None, failed=6),
    )  # fmt: skip
    steps = [one for one in found if "every run" in one["title"]]
    assert [one["title"] for one in steps] == [
        "Find out why every run of acme fails",
        "Find out why every run of it's fails",
        "Find out why every run of messages without a tenant fails",
    ]
    assert "25 runs of handlers failed on orders for acme" in steps[0]["why"]
    assert steps[0]["commands"] == [
        "kodoctl waiting list topologies/trade.yaml --topic orders --where \"tenant = 'acme'\" --by cause"
    ]
    assert "--where" not in steps[2]["commands"][0]


@pytest.mark.parametrize(
    ("name", "said", "where"),
    [
        ("(none)", "messages without a tenant", "tenant = '(none)'"),  # as conditions name them
        ("(unknown)", "messages whose tenant cannot be read", ""),  # which conditions do not tell from the others
    ],
)
def test_messages_without_a_tenant_are_no_customer_of_that_name(name, said, where):
    (step,) = [one for one in with_tenants(tenant(name, 9, 0, None, failed=9)) if "every run" in one["title"]]
    assert step["title"] == f"Find out why every run of {said} fails"
    line = shlex.split(step["commands"][0])
    assert (line[line.index("--where") + 1] if "--where" in line else "") == where


@pytest.mark.parametrize("name", [EVIL, 'it\'s $HOME `id` "x" \\ !', "a" * 200])
def test_no_name_of_a_customer_becomes_a_command_of_its_own(name):
    (step,) = [one for one in with_tenants(tenant(name, 9, 0, None, failed=9)) if "every run" in one["title"]]
    line = shlex.split(step["commands"][0])
    assert line[:6] == ["kodoctl", "waiting", "list", "topologies/trade.yaml", "--topic", "orders"]
    assert ("--where" in line) is (name.isprintable() and len(name) <= 60)
    if "--where" in line:
        parse(line[line.index("--where") + 1], 1)


def test_messages_that_a_limit_holds_back_for_long_are_to_be_decided_about():
    (step,) = [one for one in made()["advice"] if "a limit holds back" in one["title"]]
    assert step["why"].startswith(
        "107 messages wait in L1 blocking of orders / billing, the oldest for 52 min. A limit sent messages of this topic"
        " aside 1,890 times, most often those of mega."
    )
    assert step["commands"] == [
        "kodoctl waiting list topologies/trade.yaml --topic orders --subscription billing --lane L1/blocking",
        "kodoctl plan topologies/trade.yaml",
    ]
    full = [{**wait("L1", "blocking", 900, 10**9, 1), "topic": f"own-{number}"} for number in range(3)]
    again = made(busy(waiting=[*full, *busy().waiting]))["advice"]
    assert step in again, "lanes without a limit take no place of the few that are named"
    free = [one for one in with_tenants(tenant("anna", 9, 9, late(1, 1, 1))) if "a limit" in one["title"]]
    assert free == [], "blocked by its handler, not by a limit"


def test_a_cause_that_looks_like_a_command_to_a_ci_job_is_quoted_so_that_it_can_be_copied():
    """The page escapes such a command: in double quotes the condition would then be another one."""
    facts = busy(failures=[failure("dead", "bank ::error::down", 1, "dead")], waiting=[wait(None, "dead", 1, 1, 1)])
    (command, *_) = made(facts)["advice"][-1]["commands"]
    assert printable(command) == command
    assert "--where $'cause = " in command


@pytest.mark.parametrize("reason", [EVIL, 'it\'s $HOME `id` "x" \\ !', "a" * 200, ""])
def test_no_cause_becomes_a_command_of_its_own(reason):
    facts = busy(failures=[failure("dead", reason, 1, "dead")], failed=1, waiting=[wait(None, "dead", 1, 1, 1)])
    command = made(facts)["advice"][-1]["commands"][0]
    where = shlex.split(command)[shlex.split(command).index("--where") + 1]
    assert where == (f"cause = {literal(reason)}" if reason.isprintable() and reason else "true")
    parse(where, 1)


def test_letters_of_another_subscription_have_their_own_cause():
    other = {**failure("dead", "no stock", 9, "dead"), "subscription": "stock"}
    facts = busy(failures=[other], waiting=[wait(None, "dead", 1, 1, 1)])
    assert "--where true" in made(facts)["advice"][-1]["commands"][0]
    assert "1 message waits" in made(facts)["advice"][-1]["why"]


KINDS = [
    kind for kinds in module._DOUBTS for kind in kinds
]  # those of kodo_pipeline.audit.verdict, which a test below holds against its source


@pytest.mark.parametrize("kind", KINDS)
def test_every_doubt_has_advice_with_commands_that_can_be_typed(kind):
    audit: Any = {**audited(short=True), "reasons": [{"kind": kind, "proves": "inconclusive", "text": ""}]}
    (found,) = made(replace(quiet(), audit=audit))["advice"]
    assert found["why"].endswith(".")
    for command in found["commands"]:
        assert "{" not in command
        assert shlex.split(command)[0] == "kodoctl"


def test_no_kind_of_doubt_is_without_advice():
    import inspect

    from kodo_pipeline.audit import verdict

    known = set(re.findall(r'_doubt\(\s*"([a-z ]+)"', inspect.getsource(verdict))) | {
        one.value for one in verdict._DOUBTS
    }
    assert known == set(KINDS)


def test_a_noisy_tenant_that_others_wait_for_is_to_be_held():
    groups = [{**one, "latency_ms": late(500, 200_000, 300_000)} for one in busy().groups]
    assert titles(made(busy(groups=groups)))[-1] == "Keep a noisy tenant from delaying the others"
    (last,) = [one for one in made(busy(groups=groups))["advice"] if "noisy" in one["title"]]
    assert last["commands"][0] == "kodoctl pipeline recommend topologies/trade.yaml"


def test_advice_names_options_that_exist():
    from kodo_consumer.cli.main import app as consumer

    from kodoctl.cli.application import app

    roots: dict[str, Any] = {"kodoctl": typer.main.get_command(app), "kodo-consumer": typer.main.get_command(consumer)}
    every = {line for _, _, lines in module._DOUBTS.values() for line in lines}
    every |= {line for one in made()["advice"] for line in one["commands"]}
    for line in every:
        words = shlex.split(line)
        command = roots[words.pop(0)]
        while words and words[0] in getattr(command, "commands", {}):
            command = command.load_all()[words.pop(0)]
        options = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, line


def test_lost_messages_have_the_commands_that_send_them_again():
    (step,) = [one for one in made()["advice"] if "lost messages" in one["title"]]
    assert "`recall plan --lost`" in step["why"]
    assert step["commands"][-4:] == [
        "kodoctl pipeline recall plan topologies/trade.yaml --topic orders --subscription billing --lane L1/ready --lost --out lost.json",
        "kodoctl recall apply lost.json",
        "kodoctl pipeline ingest topologies/trade.yaml",
        "kodoctl pipeline audit topologies/trade.yaml",
    ]
