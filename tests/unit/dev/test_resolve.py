"""What `up` starts, from what was asked and what is there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kodoctl.dev.instance import Auth, EngineName, Instance
from kodoctl.dev.ports import AskedPorts, ClusterPorts, Ports
from kodoctl.dev.process import Process
from kodoctl.dev.resolve import MachineFacts, UpFlags, check_running, settle
from kodoctl.errors import KodoctlError, UsageError

KNOWN = Instance(
    "dev", "4.0.7", EngineName.JAVA, Auth.TOKEN, Ports(9080, 9650, 9181), ready_once=True, process=Process(1, "x")
)


def around(*taken, claims=None, best=EngineName.JAVA):
    return MachineFacts(claims or {}, lambda port: port not in taken, lambda: best)


def test_a_new_instance_gets_the_defaults():
    assert settle(UpFlags(), None, around()) == Instance("dev", "4.2.4", EngineName.JAVA, Auth.NONE, Ports())


def test_a_new_instance_gets_what_was_asked():
    asked = UpFlags("x", "4.0", Auth.TOKEN, EngineName.DOCKER, AskedPorts(9000, 9001, 9002))
    expected = Instance("x", "4.0.7", EngineName.DOCKER, Auth.TOKEN, Ports(9000, 9001, 9002))
    assert settle(asked, None, around()) == expected


def test_docker_is_taken_when_it_is_best_and_nothing_was_asked():
    assert settle(UpFlags(), None, around(best=EngineName.DOCKER)).engine is EngineName.DOCKER


def test_an_instance_with_data_comes_back_as_it_was_without_its_old_process():
    assert settle(UpFlags(), KNOWN, around()) == replace(KNOWN, process=None)


def test_the_remembered_engine_counts_more_than_the_best():
    assert settle(UpFlags(), KNOWN, around(best=EngineName.DOCKER)).engine is EngineName.JAVA


def test_authentication_may_change_with_the_next_start():
    assert settle(UpFlags(auth=Auth.NONE), KNOWN, around()).auth is Auth.NONE


def test_one_that_never_was_ready_is_decided_anew():
    stillborn = replace(KNOWN, ready_once=False)
    assert settle(UpFlags(), stillborn, around()) == Instance("dev", "4.2.4", EngineName.JAVA, Auth.NONE, Ports())


@pytest.mark.parametrize("version", ["4.0", "4.0.7"])
def test_asking_for_the_line_or_the_release_of_the_data_is_fine(version):
    assert settle(UpFlags(version=version), KNOWN, around()).version == "4.0.7"


def test_a_line_is_served_by_any_release_of_it():
    assert settle(UpFlags(version="4.0"), replace(KNOWN, version="4.0.9"), around()).version == "4.0.9"


def test_data_of_another_version_is_not_touched_and_says_what_to_do():
    with pytest.raises(KodoctlError) as caught:
        settle(UpFlags(version="4.2"), KNOWN, around())
    text = str(caught.value)
    assert "K613" in text
    assert "made with Pulsar 4.0.7, not 4.2.4" in text
    assert "another --name" in text
    assert "`kodoctl dev reset`" in text


def test_data_of_another_engine_is_not_touched():
    with pytest.raises(KodoctlError, match="made with the java engine, not docker"):
        settle(UpFlags(engine=EngineName.DOCKER), KNOWN, around())


def test_a_version_that_is_none_is_a_usage_error():
    with pytest.raises(UsageError, match=r"K611.*4\.2 \(4\.2\.4\), 4\.0 \(4\.0\.7\)"):
        settle(UpFlags(version="3.3"), None, around())


class TestRunning:
    @pytest.mark.parametrize(
        "asked",
        [
            UpFlags(),
            UpFlags(version="4.0", auth=Auth.TOKEN, engine=EngineName.JAVA),
            UpFlags(ports=AskedPorts(9080, 9650, 9181)),
        ],
    )
    def test_nothing_to_say_when_it_is_what_was_asked(self, asked):
        check_running(asked, KNOWN)

    @pytest.mark.parametrize(
        ("asked", "told"),
        [
            (UpFlags(version="4.2"), "Pulsar 4.0.7, asked 4.2"),
            (UpFlags(auth=Auth.NONE), "auth token, asked none"),
            (UpFlags(engine=EngineName.DOCKER), "engine java, asked docker"),
            (UpFlags(ports=AskedPorts(admin=1234)), "admin port 9080, asked 1234"),
            (UpFlags(ports=AskedPorts(bookie=1234)), "bookie port 9181, asked 1234"),
        ],
    )
    def test_every_difference_is_named(self, asked, told):
        with pytest.raises(KodoctlError) as caught:
            check_running(asked, KNOWN)
        assert "K614" in str(caught.value)
        assert told in str(caught.value)
        assert "`kodoctl dev down`" in str(caught.value)


def test_a_cluster_has_ports_of_its_own_for_each_node():
    found = settle(UpFlags(brokers=2, bookies=3), None, around(3182, best=EngineName.DOCKER))
    assert found.engine is EngineName.JAVA
    assert found.cluster == ClusterPorts(3185, (3181, 3183, 3184), ((8080, 6650), (8081, 6651)))
    assert found.admin_url == "http://127.0.0.1:8080,http://127.0.0.1:8081"
    assert found.broker_url == "pulsar://127.0.0.1:6650,127.0.0.1:6651"
    assert len(set(found.all_ports())) == 8


@pytest.mark.parametrize(("brokers", "bookies", "expected"), [(2, None, (2, 3)), (None, 1, (3, 1))])
def test_what_is_not_said_of_a_cluster_is_three(brokers, bookies, expected):
    cluster = settle(UpFlags(brokers=brokers, bookies=bookies), None, around()).cluster
    assert cluster is not None
    assert (len(cluster.brokers), len(cluster.bookies)) == expected


def test_no_cluster_on_docker():
    with pytest.raises(UsageError, match="K624"):
        settle(UpFlags(brokers=3, engine=EngineName.DOCKER), None, around())


class TestAClusterWithData:
    KNOWN = replace(KNOWN, cluster=ClusterPorts(9190, (9181, 9182, 9183), ((9080, 9650), (9081, 9651), (9082, 9652))))

    def test_it_comes_back_as_it_was(self):
        assert settle(UpFlags(brokers=3), self.KNOWN, around()) == replace(self.KNOWN, process=None)

    def test_its_ports_stay(self):
        with pytest.raises(KodoctlError, match="K613"):
            settle(UpFlags(ports=AskedPorts(admin=8080)), self.KNOWN, around())
        with pytest.raises(KodoctlError, match=r"cluster port 9652 .* taken"):
            settle(UpFlags(), self.KNOWN, around(9652))

    def test_its_size_stays(self):
        with pytest.raises(KodoctlError, match="3 brokers, not 2"):
            settle(UpFlags(brokers=2), self.KNOWN, around())
        with pytest.raises(KodoctlError, match="brokers 3, asked 2"):
            check_running(UpFlags(brokers=2), self.KNOWN)

    def test_a_standalone_does_not_become_one(self):
        with pytest.raises(KodoctlError, match="a standalone broker, not a cluster"):
            settle(UpFlags(brokers=3), KNOWN, around())
