"""`kodoctl send` on the real broker: what is stored, what is refused before it, and that nothing is created."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pulsar
import pytest
from kodo_consumer.core.payloads.codec import Payloads

from tests.brokers.topics import messages
from tests.brokers.workspace import Run, Workspace
from tests.services.polling import eventually
from tests.services.servers import Fault, Proxy, Request

pytestmark = pytest.mark.broker
TOPICS = """
orders:
  levels: double
  message_properties: {uid: required, size: optional}
  payload: {type: json, schema: order.json}
  subscriptions:
    billing:
      states: []
      dead_letter: false
      routes: [{when: "properties['uid'] = 'vip'", to: L2}]
plain:
  partitions: 2
  subscriptions: {all: {states: [], dead_letter: false}}
"""
SCHEMA = '{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}'
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}]}


@pytest.fixture
def applied(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace whose topics are applied, on a screen of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    file = workspace.topology(TOPICS)
    (file.parent / "order.json").write_text(SCHEMA, encoding="utf-8")
    workspace.apply(str(file))
    return workspace


FILE = ["--topology", "topologies/trade.yaml"]


def stored(workspace: Workspace, topic: str) -> list[pulsar.Message]:
    """All messages of a topic."""
    return messages(workspace.broker, workspace.full(topic))


def typed(workspace: Workspace, data: bytes, *arguments: str) -> Run:
    """The command with these bytes on its standard input."""
    source = workspace.folder / "stdin"
    source.write_bytes(data)
    with source.open("rb") as stdin:
        process = workspace.process(*arguments, stdin=stdin)
        out, err = process.communicate(timeout=120)
    return Run(process.returncode, out, err)


def test_one_message_is_checked_by_the_file_stored_with_its_options_and_told_with_its_identity(
    applied: Workspace,
) -> None:
    told = applied.run("send", "orders", '{"n": 1}', *FILE, "--property", "uid=u1")
    identity, topic = told.out.split()
    assert topic == applied.full("orders")
    assert (
        applied.run("send", "orders", '{"n": 2}', *FILE, "--property", "uid=vip").out.split()[1].endswith("orders-L2")
    )
    more = ["--key", "k", "--id", "mine", "--event-time", "2026-11-30T10:00:00+01:00", "--level", "L2"]
    assert applied.run("send", "orders", '{"n": 3}', *FILE, "--property", "uid=a=ö", *more).out.startswith("mine  ")
    (first,) = stored(applied, "orders")
    assert (first.data(), first.properties()) == (b'{"n": 1}', {"uid": "u1", "kodo-id": identity})
    *_, third = stored(applied, "orders-L2")
    assert (third.partition_key(), third.event_timestamp()) == ("k", 1_796_029_200_000)
    assert third.properties() == {"uid": "a=ö", "kodo-id": "mine"}


def test_each_line_is_a_message_and_machines_read_a_document(applied: Workspace) -> None:
    told = typed(applied, b'{"n": 1}\r\n\n{"n": 2}', "send", "orders", "-", "--lines", *FILE, "--property", "uid=u")
    assert (told.code, told.err) == (0, "")
    assert told.out == f"2 messages stored in {applied.full('orders')}\n"
    piped = typed(applied, b'{"n": 3}', "send", "orders", "--file", "-", *FILE, "--property", "uid=u")
    assert (piped.code, stored(applied, "orders")[-1].data()) == (0, b'{"n": 3}')
    (applied.folder / "lines").write_bytes(b"a\n\xff\xfe\nc\n")
    named = [applied.full("plain").removeprefix("persistent://"), "--file", "lines"]
    document = applied.run("send", *named, "--lines", "--json").json()
    assert document["format_version"] == 1
    assert [(one["line"], one["status"], one["topic"]) for one in document["messages"]] == [
        (line, "stored", applied.full("plain")) for line in (1, 2, 3)
    ]
    found = {one.properties()["kodo-id"]: one.data() for one in stored(applied, "plain")}
    assert [found[one["id"]] for one in document["messages"]] == [b"a", b"\xff\xfe", b"c"]
    whole = applied.run("send", *named, "--json").json()["messages"]
    assert [one["line"] for one in whole] == [None]
    assert stored(applied, "plain")[-1].data() in (b"a\n\xff\xfe\nc\n", *found.values())
    assert Counter(one.data() for one in stored(applied, "plain"))[b"a\n\xff\xfe\nc\n"] == 1


def test_nothing_is_sent_if_one_line_is_refused_and_all_refusals_are_told(applied: Workspace) -> None:
    lines = b'{"n": 1}\n{"n": "a"}\n{"n": "b"}\n\n{"m": 1}\n{'
    told = typed(applied, lines, "send", "orders", "-", "--lines", *FILE, "--property", "uid=u")
    assert (told.code, told.out) == (64, "")
    assert "lines 2-3: payload breaks its schema at $.n: type" in told.err
    assert "line 5: payload breaks its schema at $: required" in told.err
    assert "line 6: payload is not JSON" in told.err
    assert told.err.endswith("Nothing was sent: 4 of 5 messages refused.\n")
    told = applied.run("send", "orders", '{"n": 1}', *FILE, "--property", "colour=red", code=64)
    assert "missing: uid; the topology requires it" in told.err
    assert "--property" in told.err
    assert "not declared: colour; declared: uid, size" in told.err
    assert told.err.endswith("Nothing was sent.\n")
    assert stored(applied, "orders") == []


def test_a_message_that_is_too_large_for_its_topic_is_refused_before_any_is_sent(applied: Workspace) -> None:
    path = applied.path("plain")
    applied.admin("POST", f"{path}/maxMessageSize", 1_000)
    eventually(lambda: applied.admin("GET", f"{path}/maxMessageSize") == 1_000)
    lines = b"small\n" + b"x" * 2_000
    told = typed(applied, lines, "send", applied.full("plain"), "-", "--lines")
    assert told.code == 64
    assert "line 2:" in told.err
    assert "K729" in told.err
    assert "--topology FILE compresses as the file declares" in " ".join(told.err.split())
    assert stored(applied, "plain") == []


def test_a_topic_that_does_not_exist_is_told_with_the_command_that_creates_it_and_is_not_created(
    applied: Workspace,
) -> None:
    creates = {"allowAutoTopicCreation": True, "topicType": "non-partitioned"}
    applied.admin("POST", f"namespaces/{applied.namespace}/autoTopicCreation", creates)
    before = applied.topics()
    assert "`kodoctl apply FILE` creates it" in applied.run("send", applied.full("orderz"), "x", code=64).err
    applied.topology("orders: {subscriptions: {a: {states: []}}}\nnew: {subscriptions: {a: {states: []}}}")
    told = applied.run("send", "new", "x", *FILE, code=64)
    assert "K710" in told.err
    assert "`kodoctl apply topologies/trade.yaml` creates it" in " ".join(told.err.split())
    assert applied.topics() == before
    assert set(applied.admin("GET", f"persistent/{applied.namespace}")) == {
        f"{applied.full(name)}-partition-{index}" for name, count in before.items() for index in range(count)
    }


def test_a_topic_that_cannot_be_looked_for_is_not_taken_for_a_missing_nor_for_an_existing_one(
    applied: Workspace, proxy: Proxy
) -> None:
    for path in ("/partitions", "/internalStats", "/schema"):

        def choose(request: Request, end: str = path) -> Fault | None:
            return Fault.FORBIDDEN_BEFORE if request.path.endswith(end) else None

        proxy.choose = choose
        applied.admin("PUT", applied.path(name := f"single{len(path)}"))
        told = applied.run("send", applied.full(name), "x", code=1)
        assert "the broker refused a request [K510]" in told.err
        assert stored(applied, name) == []


def test_a_level_that_a_route_needs_and_nobody_created_is_told(applied: Workspace) -> None:
    applied.admin("DELETE", f"{applied.path('orders-L2')}/partitions", force="true")
    told = applied.run("send", "orders", '{"n": 2}', *FILE, "--property", "uid=vip", code=1)
    assert f"{applied.full('orders-L2')}: `kodoctl apply topologies/trade.yaml` creates it" in " ".join(
        told.err.split()
    )
    assert told.out == ""


def test_a_payload_is_checked_once(applied: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[bytes] = []
    check = Payloads.json
    monkeypatch.setattr(Payloads, "json", lambda self, data, *more: (checked.append(data), check(self, data, *more))[1])
    applied.run("send", "orders", '{"n": 1}', *FILE, "--property", "uid=u1")
    assert checked == [b'{"n": 1}']
    assert len(stored(applied, "orders")) == 1


def test_without_a_file_payloads_are_encoded_by_the_avro_schema_of_the_topic_and_other_schemas_are_refused(
    applied: Workspace,
) -> None:
    for name, kind in (("avro", "AVRO"), ("json", "JSON")):
        applied.make_topic(name)
        body: dict[str, Any] = {"type": kind, "schema": json.dumps(AVRO), "properties": {}}
        applied.admin("POST", f"schemas/{applied.namespace}/{name}/schema", body)
    applied.run("send", applied.full("avro"), '{"n": 3}')
    (only,) = stored(applied, "avro")
    assert only.data() == b"\x06"
    assert only.schema_version(), "stored with the version that readers need"
    refused = applied.run("send", applied.full("avro"), '{"n": "x"}', code=64)
    assert "payload does not fit its Avro schema at $.n" in refused.err
    assert "write it as JSON" in applied.run("send", applied.full("avro"), "n: 3", code=64).err
    assert "has a schema of type JSON" in " ".join(applied.run("send", applied.full("json"), "{}", code=64).err.split())
    assert len(stored(applied, "avro")) == 1
    assert stored(applied, "json") == []


def test_mistakes_on_the_line_are_told_together_before_the_cluster_is_asked(applied: Workspace) -> None:
    wrong = "--property a --property b=1 --property b=2 --event-time soon --lines --id x --level L2"
    told = applied.run("send", "t/n/x", *wrong.split(), code=64).err
    for text in ("'a': write NAME=VALUE", "b: given twice", "'soon'", "no payload", "--id is for", "--level is about"):
        assert text in " ".join(told.split())
    assert "write persistent://TENANT/NAMESPACE/TOPIC" in applied.run("send", "orders", "x", code=64).err
    assert "trade.yaml has orders, plain" in " ".join(applied.run("send", "order", "x", *FILE, code=64).err.split())
    assert "orders takes messages on L2, L1" in applied.run("send", "orders", "x", *FILE, "--level", "L9", code=64).err
    assert "is a partition" in applied.run("send", applied.full("plain-partition-0"), "x", code=64).err
    assert "K016" in applied.run("send", "plain", "--file", "nothing.json", *FILE, code=64).err
    assert "K717" in applied.run("send", "plain", "x", "--property", "kodo-hop=1", *FILE, code=64).err
    told = typed(applied, b"", "send", "plain", "-", *FILE).err
    assert "standard input is empty" in told
    assert stored(applied, "plain") == []


def test_a_protected_context_is_confirmed_by_its_name_and_a_broker_that_is_away_is_told(applied: Workspace) -> None:
    addresses = applied.connection()
    applied.options = ["--context", "prod"]
    context = f'[contexts.prod]\nadmin_url = "{addresses[1]}"\nbroker_url = "{addresses[3]}"\nprotected = true\n'
    (applied.folder / "kodoctl-user.toml").write_text(context, encoding="utf-8")
    assert "say --confirm prod" in applied.run("send", "plain", "x", *FILE, code=64).err
    assert "K538" in applied.run("send", "plain", "x", *FILE, "--confirm", "dev", code=4).err
    assert stored(applied, "plain") == []
    applied.run("send", "plain", "x", *FILE, "--confirm", "prod")
    assert len(stored(applied, "plain")) == 1
    applied.options = [*addresses[:3], "pulsar://127.0.0.1:1"]
    assert "K518" in applied.run("send", "plain", "x", *FILE, code=1).err
