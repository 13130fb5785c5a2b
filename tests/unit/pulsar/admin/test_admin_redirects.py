"""Redirects of the admin API: which are followed, with method, body and token, and which end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from kodoctl.errors import ClusterError
from kodoctl.pulsar.connection.wait_monitor import FAIL_OVER_S
from tests.services.servers import Answer, Request, Server, answer_json, serving
from tests.unit.pulsar.admin.test_admin_http import FINE, TOKEN, _admin


def _redirect(target: str, status: int = 307) -> Answer:
    return Answer(status, headers={"Location": target})


@contextmanager
def _two_brokers(listed: bool, status: int = 307) -> Iterator[tuple[Server, Server]]:
    """One that sends everything on to another, which it lists as a broker of its cluster or not."""
    with serving(lambda _: FINE) as owner:

        def send_on(request: Request) -> Answer:
            if request.path == "/admin/v2/brokers":
                return answer_json([owner.host] if listed else [])
            return _redirect(f"{owner.url}{request.path}", status)

        with serving(send_on) as first:
            yield first, owner


@pytest.mark.parametrize("status", [307, 308])
def test_another_broker_of_the_cluster_is_followed_with_method_body_and_token(status: int) -> None:
    with _two_brokers(True, status) as (first, owner), _admin(first.url) as (admin, _):
        assert admin.call("PUT", "x", {"a": 1}, query={"k": "v"}).ok
        admin.call("PUT", "y", {"a": 2})
    assert [(r.method, r.path, r.body) for r in owner.requests] == [
        ("PUT", "/admin/v2/x?k=v", b'{"a": 1}'), ("PUT", "/admin/v2/y", b'{"a": 2}'),
    ]  # fmt: skip
    assert owner.requests[0].headers["Authorization"] == f"Bearer {TOKEN}"
    assert [r.path for r in first.requests].count("/admin/v2/brokers") == 1  # asked once
    assert (admin.traffic.writes, admin.traffic.reads) == (4, 1)  # the brokers work for redirects too


def test_a_foreign_host_is_refused_and_never_sees_the_token() -> None:
    with (
        _two_brokers(False) as (first, foreign),
        _admin(first.url) as (admin, _),
        pytest.raises(ClusterError) as caught,
    ):
        admin.call("PUT", "x", {})
    [finding] = caught.value.diagnostics
    assert finding.code == "K513"
    assert "the token was not sent there" in finding.detail
    assert not foreign.requests


@pytest.mark.parametrize(
    "target",
    ["https://{own}/x", "ftp://{own}/x", "//{own}/x", "https://127.0.0.1:1/x", "//127.0.0.1/x", "/relative", ""],
)
def test_another_scheme_or_no_address_at_all_is_refused(target: str) -> None:
    """On the allowed host as well, where nothing but the scheme keeps the token from going along."""
    with (
        serving(lambda request: _redirect(target.format(own=request.headers["Host"]))) as server,
        _admin(server.url) as (admin, _),
        pytest.raises(ClusterError) as caught,
    ):
        admin.call("GET", "x")
    [finding] = caught.value.diagnostics
    to = urlsplit(target.format(own=server.host))
    assert finding.code == "K513"
    assert f"redirects to {to.scheme}://{to.netloc}, which is not a broker" in finding.detail
    assert [request.path for request in server.requests] == ["/admin/v2/x"]


@pytest.mark.parametrize("status", [301, 302, 303])
def test_other_redirects_are_answers_not_orders(status: int) -> None:
    with (
        serving(lambda r: _redirect(f"http://{r.headers['Host']}/elsewhere", status)) as server,
        _admin(server.url) as (admin, _),
    ):
        assert admin.call("GET", "x").status == status
    assert len(server.requests) == 1


def test_redirects_in_a_circle_end() -> None:
    with (
        serving(lambda r: _redirect(f"http://{r.headers['Host']}{r.path}")) as server,
        _admin(server.url) as (admin, pauses),
        pytest.raises(ClusterError, match=f"more than 5 redirects, the last one to {server.url}") as caught,
    ):
        admin.call("GET", "x")
    assert [finding.code for finding in caught.value.diagnostics] == ["K512"]
    assert len(server.requests) == 6 * (len(pauses) + 1)
    assert sum(pauses) >= FAIL_OVER_S


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "x"),
        ("PUT", "x"),
        ("DELETE", "x"),
        ("POST", "persistent/t/n/t-partition-0/subscription/s/analyzeBacklog"),
    ],
)
def test_a_circle_of_redirects_while_a_topic_moves_is_waited_for(method: str, path: str) -> None:
    """Nobody has done anything with the request, a write included."""

    def moves(request: Request) -> Answer:
        return FINE if request.number > 12 else _redirect(f"http://{request.headers['Host']}{request.path}")

    asked: list[int] = []
    with serving(moves) as server, _admin(server.url) as (admin, pauses):
        assert admin.call(method, path, condition=lambda: asked.append(len(pauses))).ok
    assert len(pauses) == 2
    assert asked[-1] == 2, "the lease is asked for right before each request, after the pause"
