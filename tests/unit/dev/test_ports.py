"""Ports of an instance: preferred, next free, asked, kept."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kodoctl.dev.ports import HIGHEST, AskedPorts, Ports, check_nodes, choose, is_free, keep
from kodoctl.errors import KodoctlError, UsageError

PREFERRED = Ports()


def everything_free(port):
    return True


def all_but(*taken):
    return lambda port: port not in taken


def test_the_usual_ports_when_they_are_free():
    assert choose(AskedPorts(), PREFERRED, {}, everything_free) == Ports(8080, 6650, 3181)


def test_the_next_free_one_when_a_usual_port_is_taken():
    assert choose(AskedPorts(), PREFERRED, {}, all_but(8080, 8081, 6650)) == Ports(8082, 6651, 3181)


def test_ports_of_a_stopped_instance_stay_its_own():
    assert choose(AskedPorts(), PREFERRED, {8080: "other", 3181: "other"}, everything_free) == Ports(8081, 6650, 3182)


def test_an_asked_port_is_not_given_to_another_role():
    assert choose(AskedPorts(broker=8080), PREFERRED, {}, everything_free) == Ports(8081, 8080, 3181)


def test_an_asked_port_that_is_taken_is_named_with_how_to_see_who_has_it():
    with pytest.raises(KodoctlError) as caught:
        choose(AskedPorts(admin=9000), PREFERRED, {}, all_but(9000))
    text = str(caught.value)
    assert "K604" in text
    assert "admin port 9000" in text
    assert "another program" in text
    assert "ss -ltnp" in text or "lsof" in text
    assert "--admin-port" in text


def test_the_instance_that_has_the_asked_port_is_named():
    with pytest.raises(KodoctlError, match="taken by the instance `other`"):
        choose(AskedPorts(admin=9000), PREFERRED, {9000: "other"}, all_but(9000))


@pytest.mark.parametrize("port", [0, 80, 1023, 32768, 46000, 65536])
def test_ports_the_system_uses_itself_are_refused(port):
    with pytest.raises(UsageError, match=r"K605"):
        choose(AskedPorts(broker=port), PREFERRED, {}, everything_free)


def test_two_roles_cannot_share_a_port():
    with pytest.raises(UsageError, match="must differ"):
        choose(AskedPorts(admin=9000, broker=9000), PREFERRED, {}, everything_free)


def test_no_free_port_at_all_is_an_error_not_an_endless_search():
    with pytest.raises(KodoctlError, match="no free port from 8080 to 32767"):
        choose(AskedPorts(), PREFERRED, {}, lambda port: False)


@given(st.sets(st.integers(3181, 8200)), st.sets(st.integers(3181, 8200)))
def test_chosen_ports_differ_are_free_unclaimed_and_below_the_systems_own(taken, claimed):
    ports = choose(AskedPorts(), PREFERRED, dict.fromkeys(claimed, "other"), lambda port: port not in taken)
    assert len(set(ports.all())) == 3
    assert not set(ports.all()) & (taken | claimed)
    assert max(ports.all()) <= HIGHEST


class TestKept:
    known = Ports(8080, 6650, 3181)

    def test_the_same_again(self):
        assert keep("dev", self.known, AskedPorts(), {}, everything_free) == self.known

    def test_admin_and_broker_may_move(self):
        assert keep("dev", self.known, AskedPorts(admin=9000, broker=9001), {}, everything_free) == Ports(
            9000, 9001, 3181
        )

    def test_the_bookie_cannot_move_and_says_why(self):
        with pytest.raises(KodoctlError, match=r"K613.*belongs to bookie port 3181"):
            keep("dev", self.known, AskedPorts(bookie=4000), {}, everything_free)

    def test_asking_for_the_same_bookie_port_is_fine(self):
        assert keep("dev", self.known, AskedPorts(bookie=3181), {}, everything_free) == self.known

    def test_a_taken_bookie_port_offers_the_two_ways_out(self):
        with pytest.raises(KodoctlError) as caught:
            keep("mine", self.known, AskedPorts(), {}, all_but(3181))
        assert "bookie port 3181" in str(caught.value)
        assert "free the port, or give the data up with `kodoctl dev reset --name mine`" in str(caught.value)

    def test_a_taken_admin_port_can_be_chosen_anew(self):
        with pytest.raises(KodoctlError, match="or choose another with --admin-port"):
            keep("dev", self.known, AskedPorts(), {}, all_but(8080))

    def test_moving_onto_the_bookie_port_is_refused(self):
        with pytest.raises(UsageError, match="must differ"):
            keep("dev", self.known, AskedPorts(admin=3181), {}, everything_free)


def test_a_node_whose_port_somebody_took_while_it_did_not_run_is_refused_by_name():
    check_nodes("three", {"bookie-1": 3181, "bookie-2": 3182}, everything_free)
    with pytest.raises(KodoctlError, match="K604") as caught:
        check_nodes("three", {"bookie-1": 3181, "bookie-2": 3182}, all_but(3182))
    assert "bookie-2 port 3182 on 127.0.0.1 is taken by another program" in str(caught.value)
    assert "bookie-2 of `three` is known by it: free it, or give the data up" in str(caught.value)


def test_a_port_with_a_listener_is_not_free_and_free_again_after_it():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
    assert is_free(port)


def test_a_listener_on_all_addresses_counts_too():
    with socket.create_server(("", 0)) as server:
        assert not is_free(server.getsockname()[1])


def test_connections_left_behind_by_a_server_do_not_count():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        accepted.close()  # this side closes first: the port is left in TIME_WAIT
        client.close()
    assert is_free(port)
