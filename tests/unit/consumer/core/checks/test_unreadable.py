"""Messages that cannot be read as they were sent: contained, never handled, never the end of a lane."""

from __future__ import annotations

import pytest
from kodo_consumer.core.values.envelope import Level, State

from kodoctl.protocol.signing import Signer
from tests.unit.consumer.engine_bench import Bench, delivery, policy

BROKEN = delivery(1)._replace(broken="not UTF-8 text, and lost: properties")


def test_a_message_whose_properties_cannot_be_read_goes_to_the_dead_letters_unhandled() -> None:
    bench = Bench(policy())
    bench.give(BROKEN, delivery(2))
    assert [message.id for message in bench.take_all()] == ["7:2:0:-1"]
    ((_, sent),) = bench.published()
    assert (sent.topic, sent.payload) == ("persistent://p/n/t-L1-dead", b"x")
    assert sent.properties["kodo-reason"] == "not UTF-8 text, and lost: properties"
    (alarm,) = bench.engine.context.effects.alarms
    assert alarm.text.endswith("ready: a message goes to the dead letters: not UTF-8 text, and lost: properties")


def test_on_an_ordered_lane_it_holds_up_nobody_but_those_of_its_key_until_it_is_dead() -> None:
    bench = Bench(policy(ordered=True))
    bench.give(BROKEN, delivery(2, key="k"))
    assert [message.key for message in bench.take_all()] == ["k"]
    assert len(bench.published()) == 1
    assert bench.engine.check_invariants() == []


def test_without_dead_letters_it_stays_and_alarms_and_is_never_handled() -> None:
    bench = Bench(policy((Level.L1,), dead=False))
    bench.give(BROKEN)
    for _ in range(3):
        assert bench.take_all() == []
        bench.later(400)
    assert set(bench.alarms()) == {"stuck"}
    assert bench.engine.counts.waited["stuck"] == 4


@pytest.mark.parametrize("signer", [None, Signer(["a key that signs control"])], ids=["broken", "not signed"])
def test_control_properties_that_no_worker_wrote_stay_unhandled_where_there_are_no_dead_letters(
    signer: Signer | None,
) -> None:
    bench = Bench(policy((Level.L1,), dead=False, signer=signer))
    forged = {"kodo-hop": "1" if signer else "many"}
    bench.give(delivery(1)._replace(properties=forged), level=Level.L1, state=State.RETRYING)
    for _ in range(3):
        assert bench.take_all() == []
        bench.later(400)
    assert set(bench.alarms()) == {"stuck"}
    assert bench.engine.counts.unsigned == (signer is not None)
