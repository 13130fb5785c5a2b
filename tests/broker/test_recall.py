"""Recalls on the real broker: chosen letters arrive once, as they were, and nothing else is touched."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter

import pytest

from kodoctl.recall.ledger.delta_ledger import DeltaLedger
from kodoctl.recall.ledger.ledger_clusters import record_cluster
from kodoctl.recall.plan import letter_table, selection
from tests.broker.recalling import DLQ, RETRYING, Recalls
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually

pytestmark = pytest.mark.broker


@pytest.fixture
def recalls(workspace: Workspace) -> Recalls:
    """Applied topics without messages."""
    return Recalls(workspace)


def test_chosen_letters_arrive_once_as_they_were_with_fresh_counters(recalls: Recalls) -> None:
    recalls.die(range(40), batch=7)
    plan = recalls.plan("reason = 'timeout' AND payload.n < 30")
    assert (plan["summary"]["read"], plan["summary"]["chosen"]) == (40, 15)
    assert len(recalls.held()) == 40, "planning consumes nothing"
    report = recalls.apply()
    assert (report["sent"], report["acknowledged"], report["complete"]) == (15, 15, True)
    chosen = {n for n in range(30) if n % 2}
    assert recalls.arrived() == Counter(chosen)
    assert recalls.held() == set(range(40)) - chosen, "of a batch only the chosen ones go"
    for one in recalls.stored(RETRYING):
        n = json.loads(one.payload or b"")["n"]
        assert (one.key, one.ordering_key, one.event_time) == (f"k{n % 5}", "o", 1_000 + n)
        assert dict(one.properties) == {
            "uid": f"u{n % 3}", "kodo-id": f"id-{n}", "kodo-origin-id": f"9:{n}:0:-1", "kodo-recall": one.properties["kodo-recall"],
        }  # fmt: skip


def test_a_plan_carried_out_twice_and_a_second_plan_of_the_same_letters_send_nothing_again(recalls: Recalls) -> None:
    recalls.die(range(20), batch=6)
    recalls.plan("payload.n < 8")
    recalls.plan("payload.n < 12", file="wider.json")
    assert recalls.apply()["sent"] == 8
    again = recalls.apply()
    assert (again["sent"], again["already"], again["before"], again["gone"]) == (0, 8, 8, 0)
    wider = recalls.apply(file="wider.json")
    assert (wider["sent"], wider["already"], wider["before"], wider["gone"]) == (4, 0, 8, 0)
    assert recalls.arrived() == Counter(range(12))
    third = recalls.plan("payload.n < 12")
    assert third["letters"] == []
    assert recalls.arrived() == Counter(range(12))
    workspace = recalls.workspace
    history = workspace.run("history", workspace.namespace, "--ledger", ".kodoctl/recall", "--format", "json").json()
    assert [one["sent"] for one in history["recalls"]] == [8, 4]
    assert (history["ledger"], history["unknown"]) == (".kodoctl/recall", [])
    shown = " ".join(workspace.run("history", workspace.namespace).out.split())
    assert [f"messages of {DLQ}: {count} sent by" in shown for count in (8, 4)] == [True, True]


def test_the_ledger_of_another_cluster_is_refused(recalls: Recalls) -> None:
    recalls.die(range(4))
    recalls.plan("payload.n < 2")
    assert recalls.apply()["sent"] == 2
    workspace, tenant = recalls.workspace, recalls.workspace.tenant
    recalls.plan("true", file="rest.json")
    record_cluster(DeltaLedger("elsewhere"), tenant, "another-uuid", "ann", 1)
    chosen = ("topologies/trade.yaml", "--topic", "orders", "--subscription", "billing", "--where", "true")
    for command in (("plan", *chosen), ("apply", "rest.json")):
        refused = workspace.run("recall", *command, "--ledger", "elsewhere", code=4)
        assert f"it has recalls of {tenant} on another cluster (another-uuid), and this one is" in " ".join(
            refused.text.split()
        )
    assert len(recalls.held()) == 2
    history = workspace.run("history", workspace.namespace, "--ledger", "elsewhere", "--format", "json").json()
    assert (history["recalls"], len(history["unknown"])) == (None, 1)
    assert recalls.apply(file="rest.json")["sent"] == 2


def test_without_the_ledger_of_who_sent_them_letters_that_were_acknowledged_stay_sent(recalls: Recalls) -> None:
    recalls.die(range(6))
    recalls.plan()
    recalls.plan(file="other.json")
    recalls.apply()
    other = recalls.apply("--ledger", "elsewhere", file="other.json")
    assert (other["sent"], other["gone"]) == (0, 6)


def test_letters_go_to_the_level_named_for_their_subscription_alone(recalls: Recalls) -> None:
    file = recalls.workspace.folder / "topologies/trade.yaml"
    recalls.die(range(4))
    refused = recalls.recall(
        "plan", "topologies", "--topic", "orders", "--subscription", "billing", "--where", "true", "--to", "B1", code=4
    )
    assert "K565" in refused.err
    assert "deduplication: true" in refused.err
    file.write_text(
        file.read_text(encoding="utf-8").replace("fair_by: uid", "fair_by: uid\n    policies: {deduplication: true}"),
        encoding="utf-8",
    )
    recalls.workspace.apply("topologies")
    eventually(lambda: recalls.recall("plan", "topologies", "--topic", "orders", "--subscription", "billing", "--where", "true",
                                      "--to", "B1", "--out", "p.json", code=None).code == 0)  # fmt: skip
    recalls.apply()
    assert recalls.arrived("orders-B1") == Counter(range(4))
    assert {one.properties["kodo-for"] for one in recalls.stored("orders-B1")} == {"billing"}


def test_letters_that_a_worker_is_done_with_stay_unless_again_is_said(
    recalls: Recalls, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recalls.die(range(6))
    recalls.remember(postgres_url, 2, 4)
    assert recalls.plan("true", "--store", postgres_url)["summary"]["left_out"] == {"already_done": 2}
    monkeypatch.setenv("KODO_CONSUMER_STORE", postgres_url)
    words = ["topologies", "--topic", "orders", "--subscription", "billing", "--where", "true", "--out", "p.json"]
    told = recalls.recall("plan", *words).out
    assert "2 already done, says the workers' store (--again sends them once more)" in " ".join(told.split())
    assert recalls.apply()["sent"] == 4
    assert recalls.held() == {2, 4}, "nobody let them go"
    assert recalls.plan("true", "--again")["summary"]["chosen"] == 2
    recalls.apply()
    assert recalls.arrived() == Counter(range(6))
    monkeypatch.setenv("KODO_CONSUMER_STORE", "memory")
    assert recalls.plan()["summary"]["left_out"] == {}


def test_copies_of_a_letter_are_sent_once_and_all_acknowledged(recalls: Recalls) -> None:
    recalls.die([*range(5), *range(5)], batch=4)
    assert recalls.plan()["summary"]["left_out"] == {"repeat": 5}
    recalls.apply()
    assert recalls.arrived() == Counter(range(5))
    assert recalls.held() == set()
    booked = recalls.booked()
    assert set(booked) == {f"{one.ledger}:{one.entry}:0:{one.batch}" for one in recalls.stored(DLQ)}
    assert Counter(booked.values()) == Counter(dict.fromkeys(recalls.receipts(), 2)), "each by its own place"


def test_a_copy_or_an_old_letter_that_is_not_the_planned_one_stays(recalls: Recalls) -> None:
    from kodoctl.documents.json_form import seal_of

    recalls.die([*range(3), *range(3)])
    plan = recalls.plan("payload.n < 2")
    plan["letters"][0]["repeats"][0]["published"] += 1
    stored = {one.entry: one for one in recalls.stored(DLQ)}
    for entry in (2, 5):
        one = stored[entry]
        position = f"{one.ledger}:{entry}:0:-1"
        plan["settle"].append({"position": position, "published": one.publish_time + (entry == 5)})
    plan["seal"] = seal_of(plan)
    (recalls.workspace.folder / "p.json").write_text(json.dumps(plan), encoding="utf-8")
    report = recalls.apply(code=1)
    assert (report["sent"], len(report["elsewhere"]), report["acknowledged"]) == (2, 2, 4)
    assert recalls.held() == {0, 2}, "a copy of the first, and the second of two"


def test_a_letter_that_came_back_is_booked_before_it_is_let_go(recalls: Recalls) -> None:
    recalls.die([1])
    sent = recalls.plan()["letters"][0]["recall_id"]
    recalls.die([1], kodo_recall=sent)  # its recall, booked elsewhere, died
    (settled,) = recalls.plan(file="q.json")["settle"]
    assert recalls.apply(file="q.json")["acknowledged"] == 1
    assert recalls.booked() == {settled["position"]: ""}


def test_what_died_again_after_a_recall_is_not_recalled_in_circles(recalls: Recalls) -> None:
    recalls.die(range(3))
    recalls.die([7], kodo_recall="f" * 32)
    assert recalls.plan()["summary"]["left_out"] == {"recalled": 1}
    recalls.plan("true", "--again")
    assert recalls.apply()["sent"] == 4
    assert recalls.arrived() == Counter([0, 1, 2, 7])


def test_again_sends_once_more_what_was_sent_and_is_held_still(recalls: Recalls) -> None:
    recalls.die(range(8), batch=8)
    recalls.plan("payload.n < 3")
    recalls.apply()
    recalls.workspace.admin(
        "PUT", f"{recalls.workspace.path(DLQ)}/unload"
    )  # parts of a batch come back after an unload
    eventually(lambda: recalls.held() == set(range(8)))
    settled = recalls.plan("payload.n < 3")
    assert (settled["letters"], len(settled["settle"])) == ([], 3)
    report = recalls.apply()
    assert (report["sent"], report["acknowledged"]) == (0, 3)
    assert recalls.held() == set(range(3, 8))


def test_a_patched_payload_arrives_and_the_old_one_is_kept(recalls: Recalls) -> None:
    from deltalake import DeltaTable

    recalls.die(range(3))
    (recalls.workspace.folder / "patch.json").write_text('{"currency": "EUR", "fixed": true}', encoding="utf-8")
    recalls.plan("true", "--edit", "patch.json", "--because", "the mark is gone")
    recalls.apply()
    payloads = [
        json.loads(one.payload or b"")
        for local in (RETRYING, "orders-L2-billing-RETRYING")
        for one in recalls.stored(local)
    ]
    assert all(one["currency"] == "EUR" and one["fixed"] for one in payloads)
    rows = DeltaTable(".kodoctl/recall").to_pyarrow_table().to_pylist()
    old = [json.loads(row["payload"]) for row in rows if row["payload"]]
    assert sorted(one["n"] for one in old) == [0, 1, 2]
    assert {one["currency"] for one in old} == {"DEM"}


def test_a_letter_that_a_patch_makes_too_large_is_refused_and_the_others_are_sent(recalls: Recalls) -> None:
    """The client would send it again for ever, and nothing behind it."""
    recalls.die([1])
    recalls.die([2], pad="x" * 70_000)
    recalls.die([3, 5])
    limit = 66 << 10
    recalls.limit(RETRYING, limit)
    (recalls.workspace.folder / "patch.json").write_text(json.dumps({"note": "y" * 64_000}), encoding="utf-8")
    recalls.plan("true", "--edit", "patch.json")
    report = recalls.apply(code=1)
    (refused,) = report["refused"]
    assert re.search(rf": 134,\d\d\d bytes with its properties; .*{RETRYING} takes {limit:,} ", refused)
    assert (report["sent"], report["acknowledged"], report["unclear"]) == (3, 3, [])
    assert recalls.arrived() == Counter([1, 3, 5])
    assert recalls.held() == {2}
    recalls.limit(RETRYING, limit + 70_000)
    recalls.plan("true", "--edit", "patch.json", file="again.json")
    assert recalls.apply(file="again.json")["sent"] == 1
    assert recalls.arrived() == Counter([1, 2, 3, 5])


def test_discarding_needs_the_hash_and_is_booked(recalls: Recalls) -> None:
    recalls.die(range(10), batch=5)
    plan = recalls.plan("payload.n >= 4", "--because", "test data", verb="discard")
    refused = recalls.recall("apply", "p.json", code=64)
    assert plan["seal"][:12] in refused.err
    recalls.recall("apply", "p.json", "--hash", "0" * 12, code=4)
    assert recalls.held() == set(range(10))
    report = recalls.apply("--hash", plan["seal"][:12])
    assert (report["discarded"], report["sent"]) == (6, 0)
    assert recalls.held() == set(range(4))
    assert recalls.arrived() == Counter()
    assert recalls.plan(file="q.json")["summary"]["chosen"] == 4


def test_a_plan_of_many_segments_goes_on_where_the_last_one_ended(
    recalls: Recalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (letter_table, selection):
        monkeypatch.setattr(module, "SEGMENT", 20)
    recalls.die([*range(90), *range(5)], batch=7)
    plan = recalls.plan("payload.n < 80")
    assert (plan["letters"]["rows"], plan["letters"]["letters"], plan["settle"]) == (85, 80, [])
    report = recalls.apply()
    assert (report["sent"], report["acknowledged"], report["complete"]) == (80, 85, True)
    assert recalls.arrived() == Counter(range(80))
    assert recalls.held() == set(range(80, 90))
    again = recalls.apply()
    assert (again["sent"], again["already"], again["before"], again["complete"]) == (0, 80, 80, True)
    table = recalls.workspace.folder / "p.json.letters"
    table.write_bytes(table.read_bytes()[:-1])
    assert "K559" in recalls.recall("apply", "p.json", code=4).err


def test_letters_of_another_plan_that_is_not_finished_are_left_alone(recalls: Recalls) -> None:
    from kodoctl.recall.ledger.delta_ledger import DeltaLedger
    from kodoctl.recall.ledger.recall_ledger import RecallEntry, RecallEvent

    recalls.die(range(4))
    plan = recalls.plan()
    one = plan["letters"][0]
    DeltaLedger(".kodoctl/recall").append(
        [
            RecallEntry(
                "20200101-000000-abcdabcd", RecallEvent.INTENT, one["recall_id"], plan["dead_topic"], one["position"], 1
            )
        ]
    )
    report = recalls.apply(code=1)
    assert (report["sent"], len(report["elsewhere"])) == (3, 1)
    assert recalls.plan(file="q.json")["summary"]["left_out"] == {"unfinished": 1}


def test_a_plan_for_a_lane_outside_its_ground_is_refused(recalls: Recalls) -> None:
    from kodoctl.documents.json_form import seal_of

    recalls.die(range(2))
    plan = recalls.plan()
    for lane in plan["lanes"]:
        lane["topic"] = recalls.workspace.full("payroll")
    plan["seal"] = seal_of(plan)
    (recalls.workspace.folder / "forged.json").write_text(json.dumps(plan), encoding="utf-8")
    assert "no lane of orders / billing" in recalls.recall("apply", "forged.json", code=4).err


def test_where_control_properties_are_signed_a_recall_signs(recalls: Recalls, monkeypatch: pytest.MonkeyPatch) -> None:
    from kodoctl.protocol.signing import Signer

    recalls.die([1, 3], kodo_signature="1.forged")
    recalls.plan()
    assert "KODO_CONSUMER_SIGNING_KEYS" in recalls.recall("apply", "p.json", code=4).err
    assert recalls.arrived() == Counter()
    monkeypatch.setenv("KODO_CONSUMER_SIGNING_KEYS", "short")
    assert "K502" in recalls.recall("apply", "p.json", code=64).err
    monkeypatch.setenv("KODO_CONSUMER_SIGNING_KEYS", "a key of many characters")
    assert recalls.apply()["sent"] == 2
    signer, topic = Signer(["a key of many characters"]), recalls.workspace.full(RETRYING)
    for one in recalls.stored(RETRYING):
        assert signer.genuine(topic, one.payload, one.properties)
        assert "kodo-id" not in one.properties, "what a forger claimed is gone"


def test_one_recall_at_a_time(recalls: Recalls, monkeypatch: pytest.MonkeyPatch) -> None:
    from kodoctl.pulsar.binary import recall_transport

    recalls.die(range(3))
    recalls.plan()
    with recalls.workspace.client() as client, monkeypatch.context() as patience:
        patience.setattr(recall_transport, "_LOCK_WAIT", 1.0)
        held = client.subscribe(f"{recalls.workspace.full(DLQ)}-partition-0", "kodo-hold")
        assert "K563" in recalls.recall("apply", "p.json", code=7).err
        held.close()
    assert recalls.apply()["sent"] == 3


def test_a_consumer_that_works_meanwhile_gets_each_letter_once(recalls: Recalls) -> None:
    recalls.die(range(300), batch=20)
    recalls.plan()
    got: Counter[int] = Counter()
    with recalls.workspace.client() as client:
        consumer = client.subscribe(
            [recalls.workspace.full(RETRYING), recalls.workspace.full("orders-L2-billing-RETRYING")], "billing",
            consumer_type=__import__("pulsar").ConsumerType.Shared,
        )  # fmt: skip
        worker = threading.Thread(target=_consume, args=(consumer, got, 300))
        worker.start()
        recalls.apply()
        worker.join(60)
        consumer.close()
    assert got == Counter(range(300))


def _consume(consumer: object, got: Counter[int], number: int) -> None:
    while got.total() < number:
        message = consumer.receive(20_000)  # type: ignore[attr-defined]
        got[json.loads(message.data())["n"]] += 1
        consumer.acknowledge(message)  # type: ignore[attr-defined]


def test_peek_shows_counts_and_moves_nothing(recalls: Recalls) -> None:
    recalls.die(range(12), batch=5, **{"kodo-reason": "\x1b[31mred"})
    topic = recalls.workspace.full(DLQ)
    run = recalls.workspace.run("peek", topic, "--limit", "1", "--where", "payload.n > 3")
    assert "8 messages of 12 read; 1 shown (--limit). Nothing was consumed." in run.out
    assert "\x1b" not in run.out
    assert "\\x1b[31mred" in run.out
    assert max(map(len, run.out.splitlines())) <= 80 or "://" in max(run.out.splitlines(), key=len)
    found = recalls.workspace.run("peek", topic, "--json", "--limit", "2").json()
    assert (found["read"], found["matched"], len(found["messages"]), found["complete"]) == (12, 12, 2, False)
    assert (
        recalls.workspace.run("peek", f"{topic}-partition-0", "--limit", "0", "--scan", "5", "--json").json()["read"]
        == 5
    )
    assert recalls.workspace.run("peek", topic, "--since", "1h", "--json").json()["read"] == 12
    assert recalls.held() == set(range(12))


def test_peek_creates_nothing(recalls: Recalls) -> None:
    before = recalls.workspace.topics()
    assert "K560" in recalls.workspace.run("peek", recalls.workspace.full("nothing"), code=64).err
    assert "K560" in recalls.workspace.run("peek", "nothing", code=64).err
    assert recalls.workspace.topics() == before


def test_a_plan_that_is_too_old_is_refused_before_anything_is_read(recalls: Recalls) -> None:
    recalls.die(range(3))
    recalls.plan()
    refused = recalls.recall("apply", "p.json", "--max-age", "1ms", code=4)
    assert "K559" in refused.err
    assert "more than 1ms ago: plan again" in " ".join(refused.err.split())
    assert recalls.held() == {0, 1, 2}
    assert "K005" in recalls.recall("apply", "p.json", "--max-age", "long", code=64).err
    assert recalls.apply("--max-age", "1h")["sent"] == 3


def test_wrong_words_are_told_before_anything_is_read(recalls: Recalls) -> None:
    named = ("plan", "topologies", "--topic", "orders", "--subscription", "billing")
    wrong = recalls.recall(*named, "--where", "reasn = 'x'", code=64)
    assert "did you mean reason?" in wrong.err
    assert "^^^^^" in wrong.err
    assert "K567" in recalls.recall(*named, "--where", "true", "--limit", "0", code=64).err
    assert "K555" in recalls.recall(*named, "--where", "true", "--to", "Z9", code=64).err
    assert "K568" in recalls.recall(*named, "--where", "true", "--edit", "nothing.json", code=64).err
    assert "K016" in recalls.recall("apply", "nothing.json", code=64).err
    assert "K005" in recalls.recall("apply", "nothing.json", "--rate", "fast", code=64).err
    assert (
        "K022"
        in recalls.recall("plan", "topologies", "--topic", "x", "--subscription", "b", "--where", "true", code=64).err
    )
