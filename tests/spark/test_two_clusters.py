"""Two real clusters with topics of the same names under one landing: the second is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kodoctl.dev.instance import EngineName
from kodoctl.dev.resolve import UpFlags
from kodoctl.errors import KodoctlError
from tests.brokers import shared_broker
from tests.brokers.broker import CACHE, VERSION, Broker
from tests.services.ports import unusual_ports
from tests.spark.judged import Judged, fates_of

pytestmark = [pytest.mark.broker, pytest.mark.full, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Another cluster, by another name."""
    run = tmp_path_factory.mktemp("second")
    asked = UpFlags("second", VERSION, engine=EngineName.JAVA, preferred=unusual_ports())
    try:
        found = shared_broker.join(run, CACHE, os.environ, asked)
        yield Broker(found.admin_urls[0], found.broker_urls[0], cluster=found.cluster)
    finally:
        shared_broker.close_run(run, os.environ)


def _there(spark: object, broker: Broker, tenant: str, folder: Path) -> Judged:
    """The same file on the cluster, with a landing that others may have as well."""
    folder.mkdir(exist_ok=True)
    return Judged(spark, broker, tenant, folder, look=False)


def test_of_two_clusters_with_the_same_topics_the_second_is_refused_and_a_landing_of_its_own_is_apart(
    spark, broker, second, tenant, tmp_path
):
    second.tenant(tenant)
    one, other = _there(spark, broker, tenant, tmp_path / "one"), _there(spark, second, tenant, tmp_path / "other")
    apart, other.landing = other.landing, one.landing
    one.read()
    one.work(5)
    one.read()
    other.work(3)
    before = one.landing.commits()
    for what in (other.read, lambda: other.read(accept_holes=True), other.verdict):
        with pytest.raises(KodoctlError, match=r"K589(?s:.*)another cluster"):
            what()
    assert one.landing.commits() == before, "nothing was written"
    assert one.verdict()["verdict"] == "no loss"
    other.landing = apart
    other.read()
    other.skip(2)
    other.read()
    assert fates_of(other.verdict()) == {"done": 3, "lost": 2}
    one.read()
    found = one.verdict()
    assert (found["verdict"], fates_of(found)) == ("no loss", {"done": 5})
