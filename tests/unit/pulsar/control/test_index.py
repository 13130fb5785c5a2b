"""Where topologies live: two applies at once lose nothing of each other's."""

from __future__ import annotations

import json
from collections.abc import Collection

import pytest

from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.control.control_namespace import read_control_namespace, write_index
from kodoctl.topology.names import NamespaceName
from tests.services.servers import Answer, Request, answer_json, serving

A, B, C = (NamespaceName("acme", name) for name in "abc")


class Properties:
    """The control namespace of a broker: a PUT of properties adds to those that are there, null takes one away. `between` is
    called once, before a write is carried out: somebody else who was quicker.
    """

    def __init__(self, **there: str) -> None:
        self.there: dict[str, str] = {"kodoctl.uuid": "u", **there}
        self.between = lambda: None
        self.conflicts = 0  # writes that are refused from now on, because another client changes the namespace

    def __call__(self, request: Request) -> Answer:
        if not request.is_write:
            return answer_json({"properties": self.there})
        between, self.between = self.between, lambda: None
        between()
        if self.conflicts:
            self.conflicts -= 1
            return Answer(409, b'{"reason": "Concurrent modification"}')
        for key, value in json.loads(request.body).items():
            self.there.pop(key, None)
            if value is not None:
                self.there[key] = value
        return Answer(204)


def _write(url: str, more: Collection[NamespaceName] = (), less: Collection[NamespaceName] = ()) -> None:
    gone = {("trade", one) for one in less}
    write_index(HttpAdmin(Connection(url)), "acme", more=[("trade", one) for one in more], less=gone)


def _known(url: str) -> set[NamespaceName]:
    return set(read_control_namespace(HttpAdmin(Connection(url)), "acme").index.get("trade", ()))


@pytest.mark.parametrize("listed", [(), (C,)])
def test_an_apply_in_another_namespace_meanwhile_is_not_lost(listed: tuple[NamespaceName, ...]) -> None:
    properties = Properties(**{"kodoctl.index/trade": json.dumps([str(one) for one in listed])} if listed else {})
    with serving(properties) as server:
        properties.between = lambda: _write(server.url, more=[B])
        _write(server.url, more=[A])
        assert _known(server.url) == {A, B, *listed}
        properties.between = lambda: _write(server.url, less=[B])
        _write(server.url, more=[C], less=[A])
        assert _known(server.url) == {C}


def test_what_an_earlier_kodoctl_listed_is_taken_from_its_list() -> None:
    properties = Properties(**{"kodoctl.index/trade": json.dumps([str(A), str(B)])})
    with serving(properties) as server:
        _write(server.url, less=[A])
        assert _known(server.url) == {B}
        _write(server.url, less=[B])
    assert properties.there == {"kodoctl.uuid": "u"}


def test_what_is_known_already_is_not_written() -> None:
    with serving(Properties(**{"kodoctl.place/trade/a": "1"})) as server:
        _write(server.url, more=[A], less=[B])
        assert not [request for request in server.requests if request.is_write]


def test_a_write_that_another_client_was_quicker_than_is_sent_again() -> None:
    properties = Properties()
    properties.conflicts = 1
    with serving(properties) as server:
        _write(server.url, more=[A])
        assert _known(server.url) == {A}
