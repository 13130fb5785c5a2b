"""Apply does what was reviewed or nothing: plan files bound to cluster, files and objects; questions; exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from kodoctl.plan import plan_file
from kodoctl.plan.changes import ChangeContext, Delete
from kodoctl.plan.plan import fingerprint
from kodoctl.pulsar.connection.connection import Flags, connect
from kodoctl.pulsar.inventory.live_inventory import read_live
from kodoctl.pulsar.inventory.read_scope import ReadScope
from kodoctl.pulsar.session import Session
from kodoctl.topology.names import NamespaceName
from tests.brokers.workspace import Run, Workspace
from tests.services.servers import Fault, Proxy

SMALL = "{subscriptions: {s: {states: [], dead_letter: false}}}"


def _assert_nothing_was_written(workspace: Workspace, act: Callable[[], Run]) -> Run:
    """What a command said that left the namespace as it was, but for the changes of the test's own."""
    before = workspace.dump()
    said = act()
    assert workspace.dump() == before
    return said


@pytest.fixture
def planned(workspace: Workspace) -> Workspace:
    """J is applied; plan.json would give it another policy and make K."""
    workspace.topology(f"J: {SMALL}")
    workspace.apply()
    workspace.topology(
        f"J: {{policies: {{ttl: 14d}}, subscriptions: {{s: {{states: [], dead_letter: false}}}}}}\nK: {SMALL}"
    )
    workspace.plan("--out", "plan.json")
    return workspace


# --- plan files


def test_a_plan_file_is_carried_out_exactly_and_only_once(planned: Workspace) -> None:
    planned.run("apply", "plan.json")
    assert planned.topics() == {"J": 1, "K": 1}
    assert planned.policy("J", "messageTTL") == 14 * 86_400
    planned.assert_settled()
    refused = _assert_nothing_was_written(planned, lambda: planned.run("apply", "plan.json", code=4))
    assert refused.err.splitlines()[0] == "Error: the plan was applied already [K533]"
    assert ": complete" in refused.err.splitlines()[1]
    assert "plan again" in refused.err
    assert "for another cluster" not in refused.err
    told = re.search(r"`kodoctl (history \S+ --id \w+)`", " ".join(refused.err.split()))
    assert told is not None
    assert planned.full("K") in planned.run(*told[1].split()).out


@pytest.mark.parametrize("name", ["next.plan", "plan"])
def test_a_plan_file_of_any_name_is_known_by_its_content_and_nothing_to_do_is_a_report(
    planned: Workspace, name: str
) -> None:
    planned.plan("--out", name)
    done = planned.run("apply", name, "--format", "json").lines_json()
    assert (done[-1]["type"], done[-1]["counts"]["done"]) == ("report", len(done[-1]["outcomes"]))
    for line in (["apply"], ["destroy", "--name", "none", "--namespace", planned.namespace]):
        [report] = planned.run(*line, "--auto-approve", "--format", "json").lines_json()
        assert (report["type"], report["complete"], report["outcomes"]) == ("report", True, [])


def test_the_plan_of_a_first_apply_is_told_as_applied_although_the_cluster_has_a_new_identity_by_now(
    workspace: Workspace,
) -> None:
    workspace.topology(f"J: {SMALL}")
    workspace.plan("--out", "plan.json")
    workspace.run("apply", "plan.json")
    refused = _assert_nothing_was_written(workspace, lambda: workspace.run("apply", "plan.json", code=4))
    assert "Error: the plan was applied already [K533]" in refused.err
    assert "K534" not in refused.err


def test_a_plan_that_was_applied_in_part_is_told_as_that_with_the_way_to_continue(
    planned: Workspace, proxy: Proxy
) -> None:
    made = planned.path("K").rpartition("/")[2]
    proxy.choose = lambda request: Fault.FORBIDDEN_BEFORE if request.is_write and f"/{made}/" in request.path else None
    told = planned.run("apply", "plan.json", code=1).out
    assert f"`kodoctl apply --resume {planned.namespace}` continues with what is left." in told
    proxy.choose = lambda _: None
    refused = planned.run("apply", "plan.json", code=4).err
    assert refused.splitlines()[0] == "Error: the plan was applied already [K533]"
    assert ": incomplete" in refused.splitlines()[1]
    planned.run("apply", "--resume", planned.namespace, "--auto-approve")
    planned.assert_settled()
    refused = " ".join(planned.run("apply", "plan.json", code=4).err.split())
    assert "--resume" not in refused, "there is nothing to continue any more"


def test_an_undo_that_was_done_in_part_is_continued_by_the_command_that_its_report_names(
    planned: Workspace, proxy: Proxy
) -> None:
    """The same command again would take back what it had done."""
    planned.run("apply", "plan.json")
    made = planned.path("K").rpartition("/")[2]
    proxy.choose = lambda request: Fault.FORBIDDEN_BEFORE if request.is_write and f"/{made}/" in request.path else None
    told = planned.run("undo", "last", planned.namespace, "--auto-approve", code=1).out
    proxy.choose = lambda _: None
    assert planned.topics() == {"J": 1, "K": 1}
    command = re.search(r"`kodoctl (.+)` continues with what is left", told)
    assert command is not None, told
    planned.run(*command[1].split(), "--auto-approve")
    planned.topology(f"J: {SMALL}")
    planned.assert_settled()


def test_a_policy_changed_since_the_plan_refuses_it_and_says_planned_was_and_now(planned: Workspace) -> None:
    planned.admin("POST", f"{planned.path('J')}/messageTTL", messageTTL="60")
    refused = _assert_nothing_was_written(planned, lambda: planned.run("apply", "plan.json", code=4))
    said = " ".join(refused.err.split())
    for words in ("planned update", "was partitions 1", "ttl 1m", "nothing was written: plan again"):
        assert words in said
    assert planned.topics() == {"J": 1}


def test_everything_that_changed_since_the_plan_is_listed_at_once(planned: Workspace) -> None:
    planned.admin("POST", f"{planned.path('J')}/messageTTL", messageTTL="60")
    planned.make_topic("K")
    refused = " ".join(planned.run("apply", "plan.json", code=4).err.split())
    assert f"topic.{planned.full('J')}: planned update" in refused
    assert f"topic.{planned.full('K')}: planned create; was absent; now partitions 1" in refused
    assert planned.policy("J", "messageTTL") == 60
    assert planned.marker("K") is None


def test_what_the_plan_does_not_touch_may_change(planned: Workspace) -> None:
    planned.make_topic("unrelated")
    planned.run("apply", "plan.json")
    assert planned.topics() == {"J": 1, "K": 1, "unrelated": 1}


def test_another_apply_since_the_plan_refuses_it(planned: Workspace) -> None:
    other = planned.topology(f"J: {SMALL}\nL: {SMALL}")
    planned.apply(str(other))
    planned.topology(
        f"J: {{policies: {{ttl: 14d}}, subscriptions: {{s: {{states: [], dead_letter: false}}}}}}\nK: {SMALL}"
    )
    refused = planned.run("apply", "plan.json", code=4)
    assert "was written by another apply: plan again" in refused.err
    assert planned.topics() == {"J": 1, "L": 1}


def test_a_file_that_means_something_else_than_when_it_was_planned_refuses_the_plan(planned: Workspace) -> None:
    path = planned.folder / "topologies" / "trade.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("14d", "15d"), encoding="utf-8")
    refused = _assert_nothing_was_written(planned, lambda: planned.run("apply", "plan.json", code=4))
    assert "means something else than when the plan was made" in refused.err
    path.write_text(f"# a comment means nothing\n{text}", encoding="utf-8")
    planned.run("apply", "plan.json")
    planned.assert_settled()


def test_a_plan_file_that_somebody_edited_is_refused(planned: Workspace) -> None:
    path = planned.folder / "plan.json"
    path.write_text(path.read_text(encoding="utf-8").replace("14d", "99d"), encoding="utf-8")
    refused = _assert_nothing_was_written(planned, lambda: planned.run("apply", "plan.json", code=None))
    assert "K532" in refused.err
    assert refused.code in (1, 4)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format_version": 99}', "no json"])
def test_a_file_that_is_no_plan_is_told_as_such(workspace: Workspace, text: str) -> None:
    (workspace.folder / "plan.json").write_text(text, encoding="utf-8")
    found = workspace.run("apply", "plan.json", code=None)
    assert found.code in (1, 4, 64)
    assert "K53" in found.err


def test_a_refused_plan_is_written_down_and_cannot_be_applied(workspace: Workspace) -> None:
    workspace.topology(f"J: {SMALL}\nK: {SMALL}")
    workspace.apply()
    workspace.publish("J", 1)
    workspace.topology(f"K: {SMALL}")
    workspace.plan("--out", "plan.json", code=4)
    assert json.loads((workspace.folder / "plan.json").read_text(encoding="utf-8"))
    assert "K536" in workspace.run("apply", "plan.json", code=4).err
    assert workspace.topics() == {"J": 1, "K": 1}


# --- which cluster


def test_a_plan_for_a_cluster_that_was_set_up_anew_is_refused(planned: Workspace) -> None:
    """Every development broker is called `standalone`: what tells two of them apart is the UUID that the first apply stored."""
    key = next(key for key in planned.dump("kodoctl")["properties"] if "uuid" in key)
    planned.admin("PUT", f"namespaces/{planned.tenant}/kodoctl/properties", {key: str(uuid4())})
    refused = _assert_nothing_was_written(planned, lambda: planned.run("apply", "plan.json", code=4))
    assert "K534" in refused.err
    assert "plan for another cluster" in refused.err


def test_a_plan_made_before_somebodys_first_apply_is_refused_after_it(workspace: Workspace) -> None:
    first = workspace.topology(f"J: {SMALL}", name="first")
    workspace.plan(str(first), "--out", "plan.json")
    second = workspace.topology(f"K: {SMALL}", name="second", namespace="other")
    workspace.apply(str(second))
    assert "K534" in workspace.run("apply", "plan.json", code=4).err
    assert workspace.topics("other") == {"K": 1}


def test_every_plan_names_the_cluster_it_is_for(planned: Workspace) -> None:
    head = planned.plan().out.splitlines()[0]
    assert planned.broker.admin_url in head
    assert f"cluster {planned.broker.cluster}" in head
    uuid = next(text for key, text in planned.dump("kodoctl")["properties"].items() if "uuid" in key)
    assert uuid[:8] in head
    assert uuid in (planned.folder / "plan.json").read_text(encoding="utf-8")


# --- questions


@pytest.fixture
def typing(workspace: Workspace) -> Callable[..., tuple[int, str]]:
    """A person at a terminal: runs a command, waits to be asked, types an answer; answers exit code and what was shown."""
    environ = {key: value for key, value in os.environ.items() if key != "CI"}

    def type_(answer: str, *arguments: str) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "kodoctl", *arguments, *workspace.connection()]
        process = subprocess.Popen(
            command, cwd=workspace.folder, env=environ, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs
        )
        os.close(theirs)
        shown = b""
        while not shown.endswith(b":"):
            shown += os.read(ours, 1024)
        os.write(ours, f"{answer}\n".encode())
        out, _ = process.communicate(timeout=60)
        with os.fdopen(ours, "rb", buffering=0) as rest:
            try:
                while more := rest.read(4096):
                    shown += more
            except OSError:  # the other side has closed: all was read
                pass
        return process.returncode, (out + shown).decode()

    return type_


def test_without_a_terminal_nobody_is_asked_and_nothing_is_written(workspace: Workspace) -> None:
    workspace.topology(f"J: {SMALL}")
    refused = workspace.run("apply", code=64)
    assert "--auto-approve or apply a plan file" in refused.err
    assert "Plan: 3 to create" in refused.out
    assert workspace.admin("GET", f"namespaces/{workspace.tenant}") == []
    workspace.apply()
    workspace.run("destroy", "topologies", code=64)
    assert workspace.topics() == {"J": 1}


@pytest.mark.parametrize("answer", ["no", "YES"])
def test_any_answer_but_yes_changes_nothing(
    workspace: Workspace, typing: Callable[..., tuple[int, str]], answer: str
) -> None:
    workspace.topology(f"J: {SMALL}")
    code, shown = typing(answer, "apply")
    assert code == 4, shown
    assert "nothing was applied" in " ".join(shown.split()).lower()
    assert workspace.admin("GET", f"namespaces/{workspace.tenant}") == []


def test_yes_applies_what_was_shown(workspace: Workspace, typing: Callable[..., tuple[int, str]]) -> None:
    workspace.topology(f"J: {SMALL}")
    code, shown = typing("yes", "apply")
    assert code == 0, shown
    assert "Apply these changes? Type 'yes' to confirm" in shown
    assert workspace.topics() == {"J": 1}


@pytest.fixture
def protected(workspace: Workspace) -> Workspace:
    """The broker as the protected context `prod`."""
    config = (
        f'[contexts.prod]\nadmin_url = "{workspace.broker.admin_url}"\n'
        f'broker_url = "{workspace.broker.broker_url}"\nprotected = true\n'
    )
    Path(workspace.folder / "kodoctl.toml").write_text(config, encoding="utf-8")
    workspace.options = ["--context", "prod"]
    workspace.topology(f"J: {SMALL}")
    return workspace


def test_a_protected_context_wants_its_name_whatever_else_was_said(protected: Workspace) -> None:
    assert "--confirm prod" in protected.apply(code=64).err
    assert "is not the context's name; nothing was written" in protected.apply("--confirm", "dev", code=4).err
    assert protected.admin("GET", f"namespaces/{protected.tenant}") == []
    protected.plan("--out", "plan.json")
    assert "--confirm prod" in protected.run("apply", "plan.json", code=64).err
    protected.run("apply", "plan.json", "--confirm", "prod")
    assert protected.topics() == {"J": 1}
    assert protected.plan().out.startswith("context prod, ")
    protected.apply()  # nothing is left to write


def test_a_protected_context_wants_its_name_for_a_change_of_the_ledger_alone(protected: Workspace) -> None:
    protected.apply("--confirm", "prod")
    protected.topology("J: {subscriptions: {s: {concurrency: 3, states: [], dead_letter: false}}}")
    refused = _assert_nothing_was_written(protected, lambda: protected.apply(code=64))
    assert "--confirm prod" in refused.err
    protected.apply("--confirm", "prod")
    protected.assert_settled()


def test_a_protected_context_asks_for_its_name_at_a_terminal(
    protected: Workspace, typing: Callable[..., tuple[int, str]]
) -> None:
    code, shown = typing("yes", "apply")
    assert code == 4, shown
    code, shown = typing("prod", "apply", "--auto-approve")
    assert code == 0, shown
    assert "'prod' is protected. Type its name" in shown
    assert protected.topics() == {"J": 1}


# --- exit codes


def test_exit_codes_of_plan_and_drift(workspace: Workspace) -> None:
    workspace.topology(f"J: {SMALL}")
    workspace.plan("--detailed-exitcode", code=2)
    workspace.plan(code=0)
    workspace.apply()
    workspace.plan("--detailed-exitcode", code=0)
    workspace.run("drift", code=0)
    workspace.publish("J", 1)
    workspace.topology(f"K: {SMALL}")
    workspace.plan("--detailed-exitcode", code=4)  # refused wins over changes
    workspace.run("plan", "--no-such-flag", code=64)
    workspace.run("plan", "no-such-file.yaml", code=None)
    workspace.topology("J: {partitions: lots}")
    assert "K0" in workspace.plan(code=1).err


def test_a_broker_that_does_not_answer_is_an_error_that_names_it(workspace: Workspace) -> None:
    workspace.topology(f"J: {SMALL}")
    workspace.options = ["--admin-url", "http://127.0.0.1:9", "--broker-url", "pulsar://127.0.0.1:9"]
    found = workspace.run("plan", code=1)
    assert "http://127.0.0.1:9" in found.err
    assert "Connection refused" in found.err


def test_an_edited_plan_file_with_a_seal_of_its_own_takes_nothing_of_others(workspace: Workspace) -> None:
    """The seal has no key. What is not the plan's topology's stays, whatever the file allows; so does what apply judges anew."""
    workspace.topology(f"J: {SMALL}", name="other")
    workspace.apply()
    (workspace.folder / "topologies" / "other.yaml").unlink()
    workspace.topology(f"K: {SMALL}")
    workspace.plan("--out", "plan.json")
    flags = Flags(None, workspace.broker.admin_url, workspace.broker.broker_url)
    with Session(connect(flags, {}, workspace.folder)) as session:
        space = NamespaceName.parse(workspace.namespace)
        live = read_live(session.admin, session.client, ReadScope((space,), frozenset({"other"}), everything=True))
    address = f"topic.{workspace.full('J')}"
    file = workspace.folder / "plan.json"
    plan = plan_file.loads(file.read_text(), "plan.json")
    doomed = Delete(live.objects[address].resource, ChangeContext("other"))
    edited = replace(
        plan,
        changes=(*plan.changes, doomed),
        allowances=replace(plan.allowances, destroy=frozenset({address})),
        fingerprints={**plan.fingerprints, address: fingerprint(address, live)},
    )
    file.write_text(plan_file.dumps(edited))
    refused = workspace.run("apply", "plan.json", code=4)
    assert "another topology owns it [K410]" in refused.err
    assert "J" in workspace.topics()
