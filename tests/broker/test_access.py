"""kodoctl against a broker that asks for tokens: who may do what, what the others are told, and that no token ever shows."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pulsar
import pytest
import requests

from consumer import Consumer, Message
from kodoctl.dev import jars, versions
from kodoctl.dev.progress import quiet
from tests.cluster import Json, Run, Workspace, isolated, run_main
from tests.conftest import Broker
from tests.dev_user import CACHE, VERSION, User

pytestmark = pytest.mark.broker

FILE = "J: {subscriptions: {s: {workers: [consumer]}}}"
_QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Closed(Broker):
    """A broker with token authentication. `tokens`: role -> token; `config`: the contexts that `dev up` wrote."""

    tokens: dict[str, str]
    config: Path

    def admin(self, method: str, path: str, body: object = None, **params: str) -> requests.Response:
        """As the super-user, without kodoctl."""
        headers = {"Authorization": f"Bearer {self.tokens['applier']}", "Content-Type": "application/json"}
        url = f"{self.admin_url}/admin/v2/{path}"
        return requests.request(method, url, json=body, params=params or None, timeout=30, headers=headers)


@dataclass
class Guarded(Workspace):
    """A workspace whose commands present a token; everything they said is kept."""

    said: list[str] = field(default_factory=list)

    def run(self, *arguments: str, code: int | None = 0) -> Run:
        found = run_main(*arguments, *self.connection())
        self.said.append(found.text)
        assert code is None or found.code == code, f"exit {found.code}, not {code}\n{found.text}"
        return found

    def as_(self, role: str | None) -> Guarded:
        """From here on with this role's token; None: with none."""
        assert isinstance(self.broker, Closed)
        self.options = ["--admin-url", self.broker.admin_url, "--broker-url", self.broker.broker_url]
        if role is not None:
            path = self.folder.parent / f"{self.folder.name}-token-{role}"
            path.write_text(self.broker.tokens.get(role, role), encoding="utf-8")
            self.options += ["--token-file", str(path)]
        return self

    def tenant_with(self, *admins: str) -> None:
        """The tenant's administrators."""
        body = {"allowedClusters": ["standalone"], "adminRoles": list(admins)}
        assert self.broker.admin("POST", f"tenants/{self.tenant}", body).ok


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    """One broker of our own for all of these tests."""
    jars.ensure(CACHE, versions.exact(VERSION), os.environ, quiet)
    user = User(tmp_path_factory.mktemp("user"))
    try:
        found: Json = user.starts("--name", "guarded", "--auth", "token")
        tokens = {one["role"]: one["token"] for one in found["tokens"]}
        yield Closed(found["admin_url"], found["broker_url"], tokens, user.config)
    finally:
        told = user.types("down", "--all")
    assert told.code == 0, told.err


@pytest.fixture
def guarded(closed: Closed, tmp_path: Path) -> Iterator[Guarded]:
    """A folder and a tenant of one's own; no token may ever be seen in what was said or written."""
    tenant = f"g{next(_numbers)}"
    assert closed.admin("PUT", f"tenants/{tenant}", {"allowedClusters": ["standalone"], "adminRoles": []}).ok
    folder = tmp_path / "work"
    folder.mkdir()
    with isolated(folder):
        workspace = Guarded(closed, folder, tenant)
        workspace.topology(FILE)
        yield workspace.as_("applier")
    written = [path.read_text(encoding="utf-8", errors="replace") for path in folder.rglob("*") if path.is_file()]
    seen = "\n".join([*workspace.said, *written])
    for role, token in closed.tokens.items():
        assert token not in seen, f"the token of {role} shows"
        assert token.split(".")[2] not in seen, f"the signature of {role}'s token shows"


def _words(text: str) -> str:
    return " ".join(text.split())


def test_the_applier_applies_and_a_second_plan_is_empty(guarded: Guarded) -> None:
    guarded.plan("--out", "plan.json", "--verbose")
    guarded.run("apply", "plan.json")
    guarded.assert_settled()
    assert "read in bulk" in guarded.plan("-v").err
    assert set(guarded.dump()["auth_policies"]["destination_auth"][guarded.full("J")]) == {"consumer"}


def test_a_role_without_rights_is_told_what_it_lacks_and_writes_nothing(guarded: Guarded) -> None:
    guarded.apply()
    guarded.topology("J: {subscriptions: {s: {}}}\nK: {subscriptions: {s: {}}}")
    before = guarded.dump()
    guarded.as_("planner")
    for command in (["plan"], ["apply", "--auto-approve"], ["drift"]):
        refused = guarded.run(*command, code=1)
        assert "K510" in refused.err
        assert "this needs a role with more rights" in _words(refused.err)
        assert guarded.tenant in refused.err
        assert "Plan:" not in refused.out
    assert guarded.dump() == before


def test_the_administrator_of_a_tenant_plans_and_applies_there(guarded: Guarded) -> None:
    guarded.tenant_with("planner")
    guarded.as_("planner")
    assert guarded.plan().summary.startswith("Plan: ")
    guarded.apply()
    guarded.assert_settled()
    assert "No drift." in guarded.run("drift").out


def test_only_a_super_user_makes_a_tenant_and_others_are_told_so(guarded: Guarded) -> None:
    guarded.tenant_with("planner")
    text = f"version: 1\nname: new\ntenant: {guarded.tenant}-new\nnamespace: ns\n"
    text += f"create_tenant: {{clusters: [standalone], admin_roles: [planner]}}\ntopics:\n  {FILE}\n"
    path = guarded.write(text, "new.yaml")
    guarded.as_("planner")
    refused = guarded.run("apply", str(path), "--auto-approve", code=1)
    assert f"{guarded.tenant}-new" in refused.err
    assert "401" in refused.err or "403" in refused.err
    guarded.as_("applier").apply(str(path))
    guarded.as_("planner")
    guarded.assert_settled(str(path))


def test_who_may_consume_sees_the_status_but_no_plan(guarded: Guarded) -> None:
    guarded.topology(FILE, "namespace_grants: {planner: [consume]}\n")
    guarded.apply()
    guarded.as_("planner")
    assert "J" in guarded.run("status").out
    assert "this needs a role with more rights" in _words(guarded.plan(code=1).err)


@pytest.mark.parametrize("command", [["plan"], ["apply", "--auto-approve"], ["status"], ["drift"]], ids=lambda c: c[0])
def test_without_a_token_or_with_a_wrong_one_the_way_in_is_named(guarded: Guarded, command: list[str]) -> None:
    nobody = guarded.as_(None).run(*command, code=1)
    assert "K511" in nobody.err
    assert "KODOCTL_TOKEN_FILE, --token-file or the context's token_file" in _words(nobody.err)
    assert isinstance(guarded.broker, Closed)
    unsigned = guarded.broker.tokens["applier"].rpartition(".")[0]
    wrong = guarded.as_(f"{unsigned}.forged-canary").run(*command, code=1)
    assert "K511" in wrong.err
    assert "does not accept the token" in _words(wrong.err)
    assert "forged-canary" not in wrong.text


def test_a_token_comes_from_the_environment_too(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = guarded.broker
    assert isinstance(closed, Closed)
    guarded.as_(None)
    monkeypatch.setenv("KODOCTL_TOKEN", closed.tokens["applier"])
    guarded.apply()
    monkeypatch.delenv("KODOCTL_TOKEN")
    monkeypatch.setenv("KODOCTL_TOKEN_FILE", str(guarded.folder.parent / f"{guarded.folder.name}-token-applier"))
    guarded.assert_settled()


def test_the_context_of_the_broker_is_listed_shown_tried_and_used(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = guarded.broker
    assert isinstance(closed, Closed)
    mine = guarded.folder.parent / "contexts.toml"
    mine.write_text(closed.config.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setenv("KODOCTL_CONFIG", str(mine))

    def says(*arguments: str, code: int = 0) -> str:
        found = run_main(*arguments)
        guarded.said.append(found.text)
        assert found.code == code, found.text
        return found.text

    assert closed.admin_url in says("context", "list")
    assert "token_file" in says("context", "show", "guarded")
    assert "super-user" in says("context", "test", "guarded")
    assert "binary port: answers" in says("context", "test", "guarded")
    assert "no cluster named" in says("plan", code=64)
    says("context", "use", "guarded")
    assert "Plan: " in says("plan")
    assert says("plan").startswith("context guarded, ")
    says("apply", "--auto-approve", "--context", "guarded")
    assert "No changes" in says("plan")
    assert "unknown context" in says("plan", "--context", "nowhere", code=64)


def test_a_context_whose_token_is_not_taken_fails_its_test(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f'[contexts.bad]\nadmin_url = "{guarded.broker.admin_url}"\nbroker_url = "{guarded.broker.broker_url}"\n'
    (guarded.folder / "kodoctl.toml").write_text(f'{text}token_file = "bad-token"\n', encoding="utf-8")
    (guarded.folder / "bad-token").write_text("a.bad.token\n", encoding="utf-8")
    found = run_main("context", "test", "bad")
    assert found.code == 1
    assert "admin API: failed" in found.out
    assert "binary port: not tried" in found.out
    assert "does not accept the token" in _words(found.err)


def _letters(guarded: Guarded, *numbers: int) -> None:
    """Dead letters as a worker leaves them."""
    assert isinstance(guarded.broker, Closed)
    token = pulsar.AuthenticationToken(guarded.broker.tokens["applier"])
    client = pulsar.Client(guarded.broker.broker_url, authentication=token, logger=_QUIET)
    producer = client.create_producer(guarded.full("J-s-DLQ"))
    for number in numbers:
        producer.send(json.dumps({"n": number}).encode(), properties={"kodo-reason": "x", "kodo-level": "L1"})
    client.close()


def test_who_may_recall_recalls_and_may_do_nothing_else(guarded: Guarded) -> None:
    """`recall: [role]` is enough for plan, apply and discard; and without it each says which right is missing."""
    guarded.topology("J: {subscriptions: {s: {workers: [consumer], recall: [planner]}}}")
    guarded.apply()
    grants = guarded.dump()["auth_policies"]["destination_auth"]
    held = {topic.rpartition("/")[2]: roles["planner"] for topic, roles in grants.items() if "planner" in roles}
    assert held == {"J": ["produce"], "J-s-DLQ": ["consume"], "J-s-RETRYING": ["produce"]}
    _letters(guarded, *range(6))
    guarded.as_("planner")
    chosen = ("topologies", "--topic", "J", "--subscription", "s", "--where")
    guarded.run("recall", "plan", *chosen, "payload.n < 3", "--out", "p.json")
    report = json.loads(guarded.run("recall", "apply", "p.json", "--format", "json").out)
    assert (report["sent"], report["complete"]) == (3, True)
    plan = json.loads(
        guarded.run("recall", "discard", *chosen, "payload.n > 4", "--out", "d.json", "--format", "json").out
    )
    guarded.run("recall", "apply", "d.json", "--hash", plan["seal"][:12])
    assert "this needs a role with more rights" in _words(guarded.run("apply", "--auto-approve", code=1).err)
    guarded.as_("consumer")
    refused = guarded.run("recall", "plan", *chosen, "true", "--out", "q.json", code=1)
    assert "K5" in refused.err
    assert "J-s-DLQ" in refused.err


def test_what_a_worker_may_no_longer_send_to_dies_with_that_reason(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its right to RETRYING is revoked while it runs; what it may still send to, the dead letters, has them then."""
    guarded.topology("J: {subscriptions: {s: {workers: [consumer], in_place: [], retrying: {delays: [1s]}}}}")
    guarded.apply()
    closed = guarded.broker
    assert isinstance(closed, Closed)
    monkeypatch.setenv("KODOCTL_TOKEN", closed.tokens["consumer"])
    place = {"admin_url": closed.admin_url, "broker_url": closed.broker_url}
    consumer = Consumer.load(guarded.folder / "topologies", topic="J", subscription="s", **place)  # type: ignore[arg-type]
    seen: list[bytes] = []

    @consumer.handler
    def handle(message: Message) -> None:
        seen.append(message.data)
        raise ValueError

    token = pulsar.AuthenticationToken(closed.tokens["applier"])
    client = pulsar.Client(closed.broker_url, authentication=token, logger=_QUIET)
    consumer.start()
    try:
        retrying = guarded.full("J-s-RETRYING").replace("://", "/")
        assert closed.admin("POST", f"{retrying}/permissions/consumer", ["consume"]).ok
        assert closed.admin("PUT", f"{retrying}-partition-0/unload").ok
        client.create_producer(guarded.full("J")).send(b"x")
        reader = client.create_reader(f"{guarded.full('J-s-DLQ')}-partition-0", pulsar.MessageId.earliest)
        letter = reader.read_next(60_000)
    finally:
        consumer.stop()
        client.close()
    assert seen == [b"x"]
    assert letter.properties()["kodo-reason"] == "refused by its target: not authorised"
