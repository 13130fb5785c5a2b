"""Several brokers of one cluster: who may see the token, which address is used, and what a broker's failure looks like."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from urllib3 import HTTPConnectionPool
from urllib3.exceptions import ReadTimeoutError, SSLError

from kodoctl.errors import ClusterError
from kodoctl.pulsar.admin.admin import LostReplyError, Reply
from kodoctl.pulsar.admin.admin_errors import Silence, unreachable
from kodoctl.pulsar.admin.admin_http import CONNECTIONS, HttpAdmin
from kodoctl.pulsar.admin.confirmed_write import write_confirmed
from kodoctl.pulsar.admin.trusted_brokers import (
    ASK_EVERY_S,
    NAMED_FOR_S,
    Answer,
    Brokers,
    Course,
    NotNowError,
    topics_of,
)
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.connection.secret import Secret
from kodoctl.pulsar.connection.wait_monitor import FAIL_OVER_S
from tests.services.servers import Answer as Said
from tests.services.servers import Request, answer_json, serving

FINE = answer_json({"fine": True})
LIST = "/admin/v2/brokers"
READ = "persistent/t/ns/x/subscriptions"
NOT_ALLOWED = answer_json({"reason": "Unauthorized to … operation [LIST_BROKERS]"}, 401)


@contextmanager
def _admin(*urls: str, **options: Any) -> Iterator[tuple[HttpAdmin, list[float]]]:
    """A client that knows these addresses, and the pauses it asked for."""
    pauses: list[float] = []
    admin = HttpAdmin(Connection(",".join(urls), token=Secret("canary-token")), pause=pauses.append, **options)
    try:
        yield admin, pauses
    finally:
        admin.close()


def _to(url: str, request: Request) -> Said:
    return Said(307, headers={"Location": f"{url}{request.path}"})


@pytest.fixture
def dead() -> Iterator[str]:
    """An address where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{free.getsockname()[1]}"


# --- redirects: whom the token is shown


def test_threads_that_are_redirected_at_once_wait_for_the_one_that_asks_for_the_list() -> None:
    together = threading.Barrier(CONNECTIONS)
    with serving(lambda _: FINE) as owner:

        def answer(request: Request) -> Said:
            if request.path == LIST:
                time.sleep(0.2)
                return answer_json([owner.host])
            together.wait(20)
            return _to(owner.url, request)

        with serving(answer) as first, _admin(first.url) as (admin, _), ThreadPoolExecutor(CONNECTIONS) as pool:
            replies = list(pool.map(lambda number: admin.call("GET", f"tenants/{number}"), range(CONNECTIONS)))
    assert all(reply.ok for reply in replies)
    assert [request.path for request in first.requests].count(LIST) == 1


def _for_a_role(owner: str, look_up: Callable[[Request], Said]) -> Callable[[Request], Said]:
    """A broker that redirects to `owner`, and shows the list of brokers to super-users only."""

    def answer(request: Request) -> Said:
        if request.path == LIST:
            return NOT_ALLOWED
        return look_up(request) if request.path.startswith("/lookup/") else _to(owner, request)

    return answer


@pytest.mark.parametrize("key", ["httpUrl", "httpUrlTls"])
def test_a_role_that_may_not_list_brokers_learns_the_owner_by_a_lookup(key: str) -> None:
    with serving(lambda _: FINE) as owner:
        named = answer_json({"brokerUrl": "pulsar://b:6650", key: owner.url})
        with serving(_for_a_role(owner.url, lambda _: named)) as first, _admin(first.url) as (admin, _):
            assert admin.call("GET", READ).ok
            assert admin.call("PUT", READ, {}).ok
    assert [request.path for request in first.requests] == [
        f"/admin/v2/{READ}",
        LIST,
        "/lookup/v2/topic/persistent/t/ns/x",
        f"/admin/v2/{READ}",
    ]
    assert all(request.headers["Authorization"] == "Bearer canary-token" for request in owner.requests)


@pytest.mark.parametrize("moved", [False, True], ids=["without an owner", "moved since the redirect"])
def test_a_topic_that_a_trusted_broker_owns_by_now_is_asked_for_again_and_the_stranger_hears_nothing(
    moved: bool,
) -> None:
    owned = threading.Event()
    with serving(lambda _: FINE) as leader:

        def look_up(request: Request) -> Said:
            if not moved and not request.path.endswith("?authoritative=true"):
                return _to(leader.url, request)
            owned.set()
            return answer_json({"httpUrl": f"http://{request.headers['Host']}"})

        answer = _for_a_role(leader.url, look_up)
        with (
            serving(lambda request: FINE if owned.is_set() else answer(request)) as first,
            _admin(first.url) as (admin, _),
        ):
            assert admin.call("PUT", READ, {}).ok
    assert not leader.requests


@pytest.mark.parametrize(
    "look_up",
    [
        lambda _: answer_json({"httpUrl": "http://another:8080"}),
        lambda _: answer_json(["http://another:8080"]),
        lambda _: answer_json({"httpUrl": 5}),
        lambda _: answer_json({"reason": "no"}, 403),
        lambda request: Said(307, headers={"Location": f"http://127.0.0.1:1{request.path}"}),
        lambda request: Said(307, headers={"Location": request.path}),
    ],
)
def test_a_host_that_no_lookup_names_is_refused(look_up: Callable[[Request], Said]) -> None:
    with (
        serving(lambda _: FINE) as foreign,
        serving(_for_a_role(foreign.url, look_up)) as first,
        _admin(first.url) as (admin, _),
        pytest.raises(ClusterError) as caught,
    ):
        admin.call("PUT", READ, {})
    [finding] = caught.value.diagnostics
    assert finding.code == "K513"
    assert "if it is one, give its address as well (--admin-url" in finding.detail
    assert not foreign.requests


def test_a_host_that_is_configured_is_followed_without_a_question() -> None:
    with serving(lambda _: FINE) as owner, serving(lambda request: _to(owner.url, request)) as first:
        with _admin(first.url, owner.url) as (admin, _):
            assert admin.call("GET", READ).ok
        assert len(first.requests) == 1


def test_a_broker_that_has_no_time_to_say_who_is_one_is_asked_again() -> None:
    with serving(lambda _: FINE) as owner:

        def answer(request: Request) -> Said:
            if request.path != LIST:
                return _to(owner.url, request)
            return answer_json([owner.host]) if request.number > 4 else Said(503)

        with serving(answer) as first, _admin(first.url) as (admin, pauses):
            assert admin.call("GET", "tenants").ok
    assert len(pauses) == 2


class Cluster:
    """Answers of trusted brokers, by the clock of a test."""

    def __init__(self, *listed: str) -> None:
        self.listed, self.now = list(listed), 0.0
        self.asked: list[str] = []
        self.brokers = Brokers(("http://b1:8080",), lambda: self.now)

    def ask(self, url: str) -> Answer:
        self.asked.append(url)
        return Answer(Reply("GET", "brokers", 200, self.listed))

    def course(self, host: str, *topics: str) -> Course | str:
        try:
            return self.brokers.course("http://b1:8080/x", f"http://{host}/x", topics, self.ask, asked_again=False)
        except ClusterError as problem:
            return problem.diagnostics[0].code


def test_a_broker_that_joins_is_learnt_and_a_stranger_costs_one_request_in_some_seconds() -> None:
    cluster = Cluster("b1:8080", "b2:8080")
    assert cluster.course("b2:8080") is Course.FOLLOW
    assert [cluster.course("b3:8080") for _ in range(20)] == ["K513"] * 20
    assert len(cluster.asked) == 2
    cluster.listed.append("b3:8080")
    cluster.now += ASK_EVERY_S
    assert cluster.course("b3:8080") is Course.FOLLOW
    assert cluster.course("b4:8080") == "K513"
    assert len(cluster.asked) == 4


def test_a_host_is_no_broker_for_ever() -> None:
    cluster = Cluster("b2:8080")
    assert cluster.course("b2:8080") is Course.FOLLOW
    cluster.listed.clear()
    cluster.now += NAMED_FOR_S
    assert cluster.course("b2:8080") == "K513"


def test_strangers_without_number_do_not_fill_the_memory() -> None:
    cluster = Cluster()
    for number in range(1500):
        assert cluster.course(f"s{number}:1") == "K513"
    assert len(cluster.brokers._unnamed) == 1000
    cluster.now += ASK_EVERY_S
    assert cluster.course("s:1") == "K513"
    assert len(cluster.brokers._unnamed) == 1


def test_not_knowing_is_no_refusal() -> None:
    brokers = Brokers(("http://b1:8080",))
    with pytest.raises(NotNowError):
        brokers.course(
            "http://b1:8080/x",
            "http://b2:8080/x",
            (),
            lambda _: Answer(Reply("GET", "brokers", 503, None, "busy")),
            asked_again=False,
        )


@pytest.mark.parametrize(
    ("path", "topics"),
    [
        ("persistent/t/ns/x/subscriptions", ("persistent/t/ns/x", "persistent/t/ns/x-partition-0")),
        ("persistent/t/ns/x-partition-3/stats", ("persistent/t/ns/x-partition-3",)),
        ("schemas/t/ns/x/schemas", ("persistent/t/ns/x", "persistent/t/ns/x-partition-0")),
        ("schemas/t/ns/a%252Fb/schema", ("persistent/t/ns/a%2Fb", "persistent/t/ns/a%2Fb-partition-0")),
        ("namespaces/t/ns/unload", ()),
        ("persistent/t/ns", ()),
    ],
)
def test_a_redirect_is_explained_by_the_owner_of_the_topic_in_the_path(path: str, topics: tuple[str, ...]) -> None:
    assert topics_of(path) == topics


def test_a_path_before_the_admin_api_stays() -> None:
    """A gateway may serve several clusters below paths of its own."""
    cluster = Cluster("b2:8080")
    brokers = Brokers(("http://gateway/one",), lambda: 0.0)
    assert (
        brokers.course("http://gateway/one/admin/v2/x", "http://b2:8080/x", (), cluster.ask, asked_again=False)
        is Course.FOLLOW
    )
    assert cluster.asked == ["http://gateway/one/admin/v2/brokers"]


# --- waiting


@pytest.mark.parametrize(
    "words",
    [
        "Can't find owner for topic persistent://t/ns/x",
        "Failed to find ownership for topic:x",
        "Unable to find position for position specified: unable to persist readPosition for cursor reset 374:-1",
        "Failed for Subscription Busy: Failed to fence subscription",
        "Failed to fence subscription",
        "Failed for Subscription Busy: Failed to disconnect consumers from subscription",
    ],
)
def test_a_topic_between_two_brokers_is_waited_for(words: str) -> None:
    said = answer_json({"reason": words}, 412)
    with (
        serving(lambda request: FINE if request.number > 5 else said) as server,
        _admin(server.url) as (admin, pauses),
    ):
        assert admin.call("GET", READ).ok
    assert len(pauses) == 5


def test_a_read_that_is_redirected_to_a_dead_broker_waits_for_another_owner(dead: str) -> None:
    with (
        serving(lambda request: FINE if request.number > 8 else _to(dead, request)) as first,
        _admin(first.url) as (admin, pauses),
    ):
        admin._brokers._named[urlsplit(dead).netloc] = float("inf")
        assert admin.call("GET", READ).ok
    assert len(pauses) == 8


def test_a_write_that_was_redirected_to_a_dead_broker_was_not_sent_and_is_tried_again(dead: str) -> None:
    asked: list[int] = []
    with (
        serving(lambda request: FINE if request.number > 3 else _to(dead, request)) as first,
        _admin(first.url, dead) as (admin, pauses),
    ):
        reply = admin.call("PUT", READ, {}, condition=lambda: asked.append(len(pauses)))
    assert reply.ok
    assert len(first.requests) == 4
    assert asked[-1] == len(pauses) > 0, "the lease is asked for right before each request, after the pause"


def test_a_broker_that_stays_dead_is_named_and_so_is_the_healthy_one_that_redirects(dead: str) -> None:
    with serving(lambda request: _to(dead, request)) as first, _admin(first.url) as (admin, pauses):
        admin._brokers._named[urlsplit(dead).netloc] = float("inf")
        with pytest.raises(ClusterError) as caught:
            admin.call("GET", READ)
    [finding] = caught.value.diagnostics
    assert finding.code == "K514"
    assert finding.detail.startswith(f"{dead}: Connection refused; {first.url} answers, and redirected there.")
    assert FAIL_OVER_S <= sum(pauses) < FAIL_OVER_S + 4.5


def test_a_broker_that_lives_and_hangs_on_one_topic_is_told_from_one_that_is_dead() -> None:
    """Waiting for another owner of its topics is of no use: it has them until it is restarted."""
    hangs = ReadTimeoutError(HTTPConnectionPool("b1"), "x", "read timed out")
    silence = Silence("http://b1:8080", "http://b2:8080", hangs)
    found = unreachable(Connection("http://b2:8080"), f"GET {READ}", silence, {}, 60.0, reads=True)
    [finding] = found.diagnostics
    assert (finding.code, finding.summary) == ("K514", "a broker does not answer")
    assert "http://b2:8080 answers, and redirected there. That broker takes connections" in finding.detail
    assert "restart it" in finding.detail
    assert "new owner" not in finding.detail


def test_a_write_whose_tls_connection_broke_while_it_was_answered_may_have_arrived() -> None:
    damaged = SSLError(ssl.SSLError(1, "[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC] decryption failed"))
    silence = Silence("https://b1:8443", None, damaged)
    assert not silence.not_sent
    found = unreachable(Connection("https://b1:8443"), f"PUT {READ}", silence, {}, 1.0, reads=False)
    assert isinstance(found, LostReplyError)


def test_a_write_for_which_no_tls_connection_was_made_was_not_sent() -> None:
    with (
        serving(lambda _: FINE) as server,
        _admin(server.url.replace("http:", "https:")) as (admin, _),
        pytest.raises(ClusterError, match="K527 error no TLS connection") as caught,
    ):
        admin.call("PUT", READ, {})
    assert not isinstance(caught.value, LostReplyError)


def test_a_write_whose_answer_is_lost_behind_a_redirect_names_both() -> None:
    with serving(lambda _: Said(cut=True)) as owner:

        def answer(request: Request) -> Said:
            return answer_json([owner.host]) if request.path == LIST else _to(owner.url, request)

        with serving(answer) as first, _admin(first.url) as (admin, _), pytest.raises(LostReplyError) as lost:
            admin.call("PUT", READ, {})
    assert f"PUT {READ} at {owner.url}: " in lost.value.diagnostics[0].detail
    assert f"{first.url} answers, and redirected there" in lost.value.diagnostics[0].detail


def test_a_write_whose_answer_is_lost_is_looked_up_before_it_is_sent_through_another_broker() -> None:
    looks: list[int] = []
    with (
        serving(lambda _: Said(cut=True)) as first,
        serving(lambda _: FINE) as second,
        _admin(first.url, second.url) as (admin, _),
    ):
        reply = write_confirmed(admin, "PUT", READ, {}, done=lambda: bool(looks.append(len(second.requests))))
    assert reply is not None
    assert reply.ok
    assert (len(first.requests), len(second.requests), looks) == (1, 1, [0])


# --- several addresses


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_an_address_that_is_dead_is_left_at_once_and_for_good(dead: str, method: str) -> None:
    with serving(lambda _: FINE) as second, _admin(dead, second.url) as (admin, pauses):
        for _ in range(3):
            assert admin.call(method, "tenants").ok
        assert (admin.traffic.reads, admin.traffic.writes) == ((4, 0) if method == "GET" else (0, 4))
    assert pauses == []


def test_who_does_not_wait_uses_the_other_address_all_the_same(dead: str) -> None:
    with serving(lambda _: FINE) as second, _admin(dead, second.url, limit=0.0) as (admin, pauses):
        assert admin.call("GET", "tenants").ok
    assert pauses == []


def test_a_read_that_one_broker_leaves_without_answer_is_asked_of_another() -> None:
    with (
        serving(lambda _: Said(cut=True)) as first,
        serving(lambda _: FINE) as second,
        _admin(first.url, second.url) as (admin, pauses),
    ):
        assert admin.call("GET", "tenants").ok
    assert (len(first.requests), pauses) == (1, [])


@pytest.mark.parametrize("status", [502, 503, 504])
def test_an_address_without_time_is_left_for_the_next_call(status: int) -> None:
    with (
        serving(lambda _: Said(status)) as first,
        serving(lambda _: FINE) as second,
        _admin(first.url, second.url) as (admin, _),
    ):
        assert admin.call("PUT", "x", {}).status == status
        assert admin.call("PUT", "x", {}).ok


def test_where_none_answers_one_error_names_all(dead: str) -> None:
    other = "http://127.0.0.1:1"
    with _admin(dead, other) as (admin, _), pytest.raises(ClusterError) as caught:
        admin.call("PUT", "tenants/x", {})
    [finding] = caught.value.diagnostics
    assert finding.code == "K514"
    assert finding.detail.startswith("none of 2 addresses answers:\n")
    assert [row.split(" ")[0] for row in finding.detail.splitlines()[1:]] == [f"{dead}:", f"{other}:"]


def test_the_token_goes_to_all_addresses_that_were_given_and_a_bad_one_names_the_broker_that_refused() -> None:
    refused = Said(401, b"", {"Content-Type": "text/html"})
    with (
        serving(lambda _: refused) as first,
        _admin(first.url, "http://127.0.0.1:1") as (admin, _),
        pytest.raises(ClusterError, match=f"{first.host} does not accept the token"),
    ):
        admin.call("GET", "tenants")
    assert first.requests[0].headers["Authorization"] == "Bearer canary-token"
