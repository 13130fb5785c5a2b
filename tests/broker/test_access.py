"""kodoctl against a broker that asks for tokens: who may do what, what the others are told, and that no token ever shows."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pulsar
import pytest
from kodo_consumer import Consumer, Message

from kodoctl.pulsar.connection import credentials
from kodoctl.pulsar.connection.client_options import create_client
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.connection.credentials import OAuth2, Tls
from kodoctl.pulsar.connection.secret import Secret
from tests.brokers.authentication import FILE, SECRET, Closed, Guarded, issuing
from tests.brokers.dev_user import until
from tests.brokers.workspace import run_main
from tests.faults.files import words

pytestmark = pytest.mark.broker


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
        assert "this needs a role with more rights" in words(refused.err)
        assert f"an admin role of the Pulsar tenant {guarded.tenant}" in words(refused.err)
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


def test_only_a_super_user_reads_and_changes_objects_of_the_whole_cluster(guarded: Guarded) -> None:
    guarded.tenant_with("planner")
    name = f"{guarded.tenant}-new"
    text = f"version: 1\nname: estate\ntenant: {guarded.tenant}\nnamespace: estate\n"
    text += f"platform: {{resource_groups: {{{name}: {{publish_rate: {{messages: 5/s}}}}}}}}\ntopics: {{}}\n"
    path = str(guarded.write(text, "estate.yaml"))
    guarded.as_("planner")
    plan = words(guarded.plan(path).out)
    assert "K456 warning" in plan or "[K456]" in plan
    assert "a super-user (`superUserRoles` of the brokers)" in plan
    refused = guarded.run("apply", path, "--auto-approve", code=1)
    assert f"reading resource_group.{name}" in words(refused.err)
    assert "a super-user (`superUserRoles` of the brokers)" in words(refused.err)
    guarded.as_("applier").apply(path)
    guarded.assert_settled(path)
    guarded.as_("planner").run("import", f"{guarded.tenant}/estate")
    assert "where it could be read" in words(guarded.run("plan", path, "--detailed-exitcode", code=1).out)
    guarded.as_("applier")
    guarded.write(text.replace("platform:", "description: '' #"), "estate.yaml")
    guarded.run("apply", path, "--auto-approve", "--allow-destroy", f"resource_group.{name}")


def test_a_grant_that_is_taken_away_names_who_is_connected_with_it(guarded: Guarded) -> None:
    guarded.topology("J: {partitions: 2, producers: [planner], subscriptions: {s: {workers: [consumer]}}}")
    guarded.apply()
    guarded.topology("J: {partitions: 2, subscriptions: {s: {}}}")
    with guarded.connected("consumer") as consumer, guarded.connected("planner") as producer:
        consumer.subscribe(guarded.full("J"), "s", consumer_type=pulsar.ConsumerType.Shared)
        producer.create_producer(guarded.full("J"))
        told = {one["address"]: one for one in guarded.plan_json()["changes"]}
    (danger,) = told[f"grant.{guarded.full('J')}/consumer"]["dangers"]
    assert (danger["code"], danger["severity"]) == ("K404", "warning")
    assert "connected with that role: 1 consumer of J; its producers, if any, are not known" in danger["detail"]
    other = told[f"grant.{guarded.full('J')}/planner"]["dangers"][0]
    assert "no consumer is connected with that role" in other["detail"]


def test_who_may_consume_sees_the_status_and_a_plan_of_topics_alone(guarded: Guarded) -> None:
    grants = "namespace_grants: {planner: [consume]}\n"
    guarded.topology(f"{FILE}\nL: {{subscriptions: {{s: {{states: [], dead_letter: false}}}}}}", grants)
    guarded.apply()
    guarded.as_("planner")
    assert "J" in guarded.run("status").out
    same = guarded.plan()
    assert same.summary.startswith("No changes"), same.text
    assert "not all could be seen [K429]" in same.out
    guarded.topology(
        f"{FILE.replace('{', '{policies: {ttl: 9d}, ', 1)}\nK: {{}}", f"{grants}namespace_policies: {{ttl: 30d}}\n"
    )
    said = {(one["action"], one["address"]) for one in guarded.plan_json()["changes"]}
    assert ("create", f"topic.{guarded.full('K')}") in said
    assert ("update", f"topic.{guarded.full('J')}") in said
    assert {("delete", f"topic.{guarded.full('L')}"), ("delete", f"subscription.{guarded.full('L')}/s")} <= said
    assert all(address.startswith(("topic.", "subscription.")) for _, address in said)
    guarded.plan("--out", "reduced.json")
    document = json.loads(Path("reduced.json").read_text(encoding="utf-8"))
    assert (document["complete"], document["unseen"]) == (False, [guarded.namespace])
    before = guarded.dump()
    for command in (["reduced.json"], ["--approved", "reduced.json", "--auto-approve"]):
        assert "a reduced plan cannot be applied [K430]" in guarded.as_("applier").run("apply", *command, code=4).err
    assert guarded.dump() == before
    guarded.as_("planner")
    for line in ("drift", "apply --auto-approve"):
        assert "this needs a role with more rights" in words(guarded.run(*line.split(), code=1).err)


@pytest.mark.parametrize("command", [["plan"], ["apply", "--auto-approve"], ["status"], ["drift"]], ids=lambda c: c[0])
def test_without_a_token_or_with_a_wrong_one_the_way_in_is_named(guarded: Guarded, command: list[str]) -> None:
    nobody = guarded.as_(None).run(*command, code=1)
    assert "K511" in nobody.err
    assert "KODOCTL_TOKEN_FILE, --token-file or the context's token_file" in words(nobody.err)
    assert isinstance(guarded.broker, Closed)
    unsigned = guarded.broker.tokens["applier"].rpartition(".")[0]
    wrong = guarded.as_(f"{unsigned}.forged-canary").run(*command, code=1)
    assert "K511" in wrong.err
    assert "does not accept the token" in words(wrong.err)
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
    assert "does not accept the token" in words(found.err)


def _letters(guarded: Guarded, *numbers: int) -> None:
    """Dead letters as a worker leaves them."""
    with guarded.connected("applier") as client:
        producer = client.create_producer(guarded.full("J-s-DLQ"))
        for number in numbers:
            producer.send(json.dumps({"n": number}).encode(), properties={"kodo-reason": "x", "kodo-level": "L1"})


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
    assert "this needs a role with more rights" in words(guarded.run("apply", "--auto-approve", code=1).err)
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

    consumer.start()
    with guarded.connected("applier") as client, contextlib.ExitStack() as ends:
        ends.callback(consumer.stop)
        retrying = guarded.full("J-s-RETRYING").replace("://", "/")
        assert closed.admin("POST", f"{retrying}/permissions/consumer", ["consume"]).ok
        assert closed.admin("PUT", f"{retrying}-partition-0/unload").ok
        client.create_producer(guarded.full("J")).send(b"x")
        reader = client.create_reader(f"{guarded.full('J-s-DLQ')}-partition-0", pulsar.MessageId.earliest)
        letter = reader.read_next(60_000)
    assert seen == [b"x"]
    assert letter.properties()["kodo-reason"] == "refused by its target: not authorised"


# --- certificates, and tokens that an issuer gives


def test_over_tls_a_certificate_is_enough_for_plan_and_apply(guarded: Guarded) -> None:
    guarded.certified("applier")
    guarded.apply()
    guarded.assert_settled()
    assert "read in bulk" in guarded.plan("-v").err
    refused = guarded.certified("planner").plan(code=1)
    assert "this needs a role with more rights" in words(refused.err)
    assert "K511" in guarded.certified(None).plan(code=1).err


@pytest.mark.parametrize(
    ("ca", "host", "advice"),
    [
        ("other", "127.0.0.1", "name whom to trust with --tls-ca"),
        ("ca", "localhost", "use a name that its certificate has"),
    ],
    ids=["CA", "host name"],
)
def test_a_broker_that_cannot_prove_who_it_is_gets_nothing(guarded: Guarded, ca: str, host: str, advice: str) -> None:
    refused = guarded.certified("applier", ca=ca, host=host).plan(code=1)
    assert "K527" in refused.err
    assert advice in words(refused.err)


@pytest.mark.parametrize(
    ("admin", "broker", "says"),
    [
        ("http", "pulsar+ssl", "TLS is spoken there: write https://"),
        ("https", "pulsar", "TLS is spoken there: write pulsar+ssl://"),
    ],
)
def test_a_plain_address_of_a_port_where_tls_is_spoken_is_told_as_that(
    guarded: Guarded, admin: str, broker: str, says: str
) -> None:
    guarded.certified("applier")
    for option, scheme in (("--admin-url", admin), ("--broker-url", broker)):
        place = guarded.options.index(option) + 1
        guarded.options[place] = f"{scheme}://{guarded.options[place].partition('://')[2]}"
    assert says in words(guarded.run("apply", "--auto-approve", code=1).err)


def test_the_binary_port_is_held_to_its_name_as_well(guarded: Guarded) -> None:
    closed = guarded.broker
    assert isinstance(closed, Closed)
    guarded.certified("applier")
    wrong = closed.broker_tls.replace("127.0.0.1", "localhost")
    connection = Connection(
        closed.admin_tls, wrong, Secret(closed.tokens["applier"]), tls=Tls(ca=closed.certificates / "ca.pem")
    )
    client = create_client(connection)
    with pytest.raises(pulsar.PulsarException):
        client.get_topic_partitions("persistent://public/default/x")
    client.close()


def test_an_authority_of_the_system_is_trusted_on_the_binary_port_as_well(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client library looks at certifi's alone, where nobody names a file."""
    closed = guarded.broker
    assert isinstance(closed, Closed)
    monkeypatch.setenv("SSL_CERT_FILE", str(closed.certificates / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(closed.certificates / "none"))
    credentials._system_authorities.cache_clear()
    client = create_client(Connection(closed.admin_tls, closed.broker_tls, Secret(closed.tokens["applier"])))
    with pytest.raises(pulsar.TopicNotFound):  # so the broker answered
        client.get_topic_partitions("persistent://public/default/nobody-made-me")
    client.close()
    credentials._system_authorities.cache_clear()


def test_tokens_of_an_issuer_are_fetched_once_and_renewed_when_they_end_early(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = guarded.broker
    assert isinstance(closed, Closed)
    guarded.as_(None)
    with issuing(closed.key, iter([3600.0])) as issuer:
        settings = {
            "ISSUER": issuer.url,
            "CLIENT_ID": "applier",
            "CLIENT_SECRET": SECRET,
            "AUDIENCE": "pulsar",
            "SCOPE": "a b",
        }
        for name, value in settings.items():
            monkeypatch.setenv(f"KODOCTL_OAUTH2_{name}", value)
        guarded.apply()
        guarded.assert_settled()
        wanted = {"grant_type": "client_credentials", "client_id": "applier", "client_secret": SECRET}
        assert issuer.forms == [{**wanted, "audience": "pulsar", "scope": "a b"}]
    with issuing(closed.key, iter([-60.0])) as issuer:  # over before it is used, whatever its issuer says
        monkeypatch.setenv("KODOCTL_OAUTH2_ISSUER", issuer.url)
        guarded.assert_settled()
        assert len(issuer.forms) == 2
    with issuing(closed.key, iter([-60.0] * 3)) as issuer:
        monkeypatch.setenv("KODOCTL_OAUTH2_ISSUER", issuer.url)
        refused = guarded.plan(code=1)
        assert "K511" in refused.err
        assert "not even a new one" in words(refused.err)
        assert len(issuer.forms) == 2


def test_a_connection_outlives_the_token_it_began_with(guarded: Guarded) -> None:
    """The broker asks for another one when it ends, and takes nothing more from who has none."""
    guarded.apply()
    closed = guarded.broker
    assert isinstance(closed, Closed)
    with issuing(closed.key, iter([2.0] * 2), expires_in=2) as issuer:
        settings = OAuth2(issuer.url, "applier", Secret(SECRET))
        client = create_client(Connection(closed.admin_url, closed.broker_url, oauth2=settings))
        try:
            producer = client.create_producer(guarded.full("J"), send_timeout_millis=5_000)
            until(lambda: producer.send(b"x") and len(issuer.forms) == 3, 30)
            producer.send(b"x")
        finally:
            client.close()


# --- least privilege: docs/how-to/least-privilege.md, held against denied calls


@pytest.mark.parametrize(
    ("role", "may"),
    [
        ("super-user", "yes yes yes yes"),
        ("tenant admin", "yes yes no yes"),
        ("consume", "no no no yes"),
        ("produce", "no no no yes"),
        ("nothing", "no no no no"),
    ],
)
def test_a_context_tells_what_may_be_done_and_which_right_is_missing(guarded: Guarded, role: str, may: str) -> None:
    granted = {"consume": ["consume"], "produce": ["produce"]}.get(role)
    guarded.topology(FILE, f"namespace_grants: {{planner: {json.dumps(granted)}}}\n" if granted else "")
    guarded.apply()
    if role == "tenant admin":
        guarded.tenant_with("planner")
    guarded.as_("applier" if role == "super-user" else "planner")
    token = guarded.options[guarded.options.index("--token-file") + 1]
    places = guarded.options[:4]
    added = run_main("context", "add", "tried", *places, "--token-file", token, "--replace")
    assert added.code == 0, added.text
    told = run_main("context", "test", "tried", "--namespace", guarded.namespace)
    assert told.code == 0, told.text
    lines = told.out.splitlines()[-4:]
    assert [line[2:38].strip() for line in lines] == [
        "plan, drift, import",
        "apply, destroy, forget, undo",
        "apply that creates a Pulsar tenant",
        "status",
    ]
    assert " ".join(line[38:].split(",")[0] for line in lines) == may
    assert "binary port: answers" in told.out
    # and it is so
    assert guarded.run("drift", code=None).code == (0 if may.startswith("yes") else 1)
    assert guarded.run("status", code=None).code == (0 if may.endswith("yes") else 1)


def test_the_right_to_produce_is_enough_to_send_and_the_right_to_consume_is_not(guarded: Guarded) -> None:
    topics = "orders: {producers: [planner], subscriptions: {billing: {states: [], dead_letter: false}}}"
    file = guarded.topology(topics, "namespace_grants: {consumer: [consume]}\n")
    guarded.apply(str(file))
    topic = guarded.full("orders")
    assert guarded.as_("planner").run("send", topic, "x").out.split()[1] == topic
    assert guarded.run("send", "orders", "x", "--topology", str(file)).out.split()[1] == topic
    assert "K510" in guarded.run("send", guarded.full("other"), "x", code=1).err, (
        "whether it exists is not for this role"
    )
    refused = guarded.as_("consumer").run("send", topic, "x", code=1).err
    assert "this role may not produce there" in " ".join(refused.split())
    assert guarded.run("peek", topic, "--json").json()["read"] == 2
