"""What `make test` sees of a real consumer's traffic before a verdict; test_audit_real.py has the long ones."""

from __future__ import annotations

import pytest

from tests.spark.judged import fates_of, judged

__all__ = ["judged"]

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]


def test_a_skip_is_the_only_thing_between_traffic_and_no_loss(judged):
    judged.work(10)
    judged.skip(3)
    found = judged.lost(3)
    assert fates_of(found) == {"done": 10, "lost": 3}
    assert [one["kind"] for one in found["reasons"]] == ["lost"], "all else is proved"
