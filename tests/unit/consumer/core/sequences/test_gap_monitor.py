"""A subscription with one reader: the engine tells what never came."""

from __future__ import annotations

from kodoctl.protocol.properties import SEQ
from kodoctl.protocol.sequence_numbers import Number, new_run
from kodoctl.protocol.signing import Signer
from tests.unit.consumer.engine_bench import L1, Bench, delivery, policy

RUN = new_run(1_800_000_000_000, "abcd")


def test_a_sole_reader_raises_an_alarm_for_a_number_that_never_came() -> None:
    bench = Bench(policy(subscription_type="exclusive", in_place=()))
    for number in (1, 2, 4):
        bench.give(delivery(number)._replace(properties={SEQ: str(Number(RUN, 0, number))}), level=L1)
    bench.later(1.0)
    bench.later(600.0)
    assert bench.engine.gap_monitor is not None
    bench.engine.on_disconnect(0)
    assert "missing" in bench.alarms()


def test_several_readers_have_nobody_who_could_tell() -> None:
    assert Bench(policy()).engine.gap_monitor is None


def test_a_number_that_is_not_signed_is_not_believed() -> None:
    bench = Bench(policy(subscription_type="exclusive", in_place=(), signer=Signer(["a key that signs control"])))
    bench.give(delivery(1)._replace(properties={SEQ: str(Number(RUN, 0, 1_000_000))}), level=L1)
    bench.later(600.0)
    assert "missing" not in bench.alarms()
    assert bench.engine.gap_monitor is not None
    assert not bench.engine.gap_monitor.gaps.lost
