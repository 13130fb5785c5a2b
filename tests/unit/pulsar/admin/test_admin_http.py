"""The HTTP adapter against a real server: retries, lost replies, redirects, what a 401 means, and whom the token is shown."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kodoctl.apply.namespaces import read_grants
from kodoctl.errors import ClusterError
from kodoctl.pulsar.admin.admin import NOT_SENT, WITHOUT_WORKERS, AdminError, LostReplyError, must
from kodoctl.pulsar.admin.admin_http import FIRST_S, HttpAdmin, multipart
from kodoctl.pulsar.admin.topic_stats import read_topic
from kodoctl.pulsar.connection.connection import Connection, Context
from kodoctl.pulsar.connection.secret import Secret
from kodoctl.pulsar.connection.wait_monitor import FAIL_OVER_S
from kodoctl.pulsar.control.control_namespace import read_control_namespace
from kodoctl.pulsar.control.lease import held_by
from kodoctl.pulsar.control.topic_lock import lock_holder
from kodoctl.pulsar.inventory.schema_reader import read_schema
from kodoctl.topology.names import NamespaceName, TopicName
from tests.services.servers import Answer, Request, answer_html, answer_json, serving

TOKEN = "canary-token"


@contextmanager
def _admin(
    server_url: str, token: str | None = TOKEN, options: dict[str, Any] | None = None, **parts: Any
) -> Iterator[tuple[HttpAdmin, list[float]]]:
    """The adapter with a clock that does not wait, and the pauses it asked for."""
    pauses: list[float] = []
    connection = Connection(server_url, token=Secret(token) if token else None, **parts)
    admin = HttpAdmin(connection, pause=pauses.append, **(options or {}))
    try:
        yield admin, pauses
    finally:
        admin.close()


def _after(failures: int, bad: Answer, good: Answer) -> Callable[[Request], Answer]:
    return lambda request: bad if request.number <= failures else good


def _always(answer: Answer) -> Callable[[Request], Answer]:
    return lambda _: answer


FINE = answer_json({"fine": True})


@pytest.mark.parametrize("bad", [Answer(429), Answer(500), Answer(502), Answer(503), Answer(504), Answer(cut=True)])
def test_a_read_is_asked_again_until_the_broker_has_time(bad: Answer) -> None:
    with serving(_after(3, bad, FINE)) as server, _admin(server.url) as (admin, pauses):
        assert admin.call("GET", "clusters").data == {"fine": True}
    assert len(server.requests) == 4
    assert all(0 < pause <= 4.5 for pause in pauses)


def test_a_read_that_never_succeeds_ends_with_the_brokers_own_words() -> None:
    with serving(lambda _: answer_json({"reason": "no bookies"}, 500)) as server, _admin(server.url) as (admin, pauses):
        reply = admin.call("GET", "clusters")
    assert (reply.status, reply.reason) == (500, "no bookies")
    assert FAIL_OVER_S <= sum(pauses) < FAIL_OVER_S + 4.5
    assert len(server.requests) == len(pauses) + 1
    assert str(reply) == "GET clusters answered 500 (no bookies)"


@pytest.mark.parametrize("status", [400, 404, 409, 412, 422])
def test_an_answer_that_will_not_change_is_not_asked_for_again(status: int) -> None:
    with serving(lambda _: answer_json({"reason": "no"}, status)) as server, _admin(server.url) as (admin, _):
        assert admin.call("GET", "x").status == status
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_write_is_never_sent_twice_by_the_adapter(status: int) -> None:
    with serving(lambda _: Answer(status)) as server, _admin(server.url) as (admin, _):
        assert admin.call("PUT", "x", {}).status == status
    assert len(server.requests) == 1


def test_a_write_whose_connection_breaks_is_lost_not_failed() -> None:
    with (
        serving(lambda _: Answer(cut=True)) as server,
        _admin(server.url) as (admin, _),
        pytest.raises(LostReplyError) as lost,
    ):
        admin.call("PUT", "tenants/x", {})
    assert lost.value.diagnostics[0].code == "K515"
    assert "PUT tenants/x" in lost.value.diagnostics[0].detail


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_a_write_that_a_busy_broker_answers_is_sent_once(method: str) -> None:
    with serving(lambda _: Answer(503)) as server, _admin(server.url) as (admin, pauses):
        assert admin.call(method, "persistent/t/ns/x/subscription/s/skip_all").status == 503
    assert (len(server.requests), pauses) == (1, [])


def test_a_write_that_gets_no_answer_in_time_is_lost() -> None:
    go_on = threading.Event()

    def slow(_: Request) -> Answer:
        go_on.wait(5)
        return FINE

    with serving(slow) as server, _admin(server.url, options={"timeout": 0.2}) as (admin, _):
        with pytest.raises(LostReplyError, match="no answer in time"):
            admin.call("POST", "x", {})
        go_on.set()


def test_uploads_and_counts_of_a_backlog_have_the_time_that_they_take() -> None:
    def slow(_: Request) -> Answer:
        time.sleep(0.5)
        return FINE

    with serving(slow) as server, _admin(server.url, options={"timeout": 0.2}) as (admin, _):
        body, kind = multipart({"file": b"code"})
        assert admin.call("POST", "functions/a/b/c", body, content_type=kind).ok
        assert admin.call("POST", "persistent/a/b/c/subscription/s/analyzeBacklog").ok
        with pytest.raises(LostReplyError):
            admin.call("POST", "x", {})


def test_nobody_listening_is_told_with_address_context_and_reason(tmp_path: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        context = Context("dev", tmp_path, url)
        with _admin(url, context=context) as (admin, pauses), pytest.raises(ClusterError) as caught:
            admin.call("GET", "clusters")
    [finding] = caught.value.diagnostics
    assert finding.code == "K514"
    assert f"{url} (context dev): Connection refused" in finding.detail
    assert FIRST_S <= sum(pauses) < FIRST_S + 4.5, "nothing answered yet: this is no fail-over"


def test_a_host_that_does_not_exist_is_told_in_words() -> None:
    with _admin("http://no-such-host.invalid:8080") as (admin, _), pytest.raises(ClusterError) as caught:
        admin.call("GET", "clusters")
    assert "HTTPConnectionPool" not in str(caught.value)
    assert "object at 0x" not in str(caught.value)


# --- what a body is


def test_no_body_a_null_body_and_a_query_are_three_things() -> None:
    with serving(lambda _: Answer(204)) as server, _admin(server.url) as (admin, _):
        admin.call("POST", "a", NOT_SENT)
        admin.call("POST", "b", None)
        admin.call("POST", "c", NOT_SENT, query={"messageTTL": "60"})
        admin.call("PUT", "d", {"x": 1}, content_type="application/vnd.partitioned-topic-metadata+json")
    assert [request.body for request in server.requests] == [b"", b"null", b"", b'{"x": 1}']
    assert server.requests[2].path == "/admin/v2/c?messageTTL=60"
    assert server.requests[3].headers["Content-Type"] == "application/vnd.partitioned-topic-metadata+json"


FAILED_WITHIN = "\n --- An unexpected error occurred in the server ---\n\nMessage: org.apache.zookeeper.X: KeeperErrorCode = Y\n\nStacktrace:\n\nat …"


@pytest.mark.parametrize(
    ("answer", "data", "reason"),
    [
        (Answer(204), None, ""),
        (answer_json([]), [], ""),
        (Answer(200, b"4.2.4", {"Content-Type": "text/plain"}), "4.2.4", ""),
        (answer_json({"reason": "first\nsecond"}, 412), {"reason": "first\nsecond"}, "first"),
        (answer_json({"reason": FAILED_WITHIN}, 500), {"reason": FAILED_WITHIN}, "org.apache.zookeeper.X: KeeperErrorCode = Y"),
        (Answer(400, b"Cannot deserialize\n at [Source]", {"Content-Type": "text/plain"}), "Cannot deserialize\n at [Source]", "Cannot deserialize"),
        (answer_html("<html>no such path</html>", 404), None, "Not Found"),
        (answer_json({}, 412), {}, "Precondition Failed"),
        (answer_json({"reason": "x" * 1_000_000}, 412), {"reason": "x" * 1_000_000}, "x" * 500),
    ],
)  # fmt: skip
def test_an_answer_is_read_as_what_it_is(answer: Answer, data: Any, reason: str) -> None:
    with serving(lambda _: answer) as server, _admin(server.url) as (admin, _):
        reply = admin.call("GET", "x")
    assert (reply.data, reply.reason) == (data, reason)


HERE = NamespaceName("acme", "ns")
READS: dict[str, Callable[[HttpAdmin], object]] = {
    "topic": lambda admin: read_topic(admin, TopicName(HERE, "J")),
    "schema": lambda admin: read_schema(admin, TopicName(HERE, "J")),
    "grants": lambda admin: read_grants(admin, HERE) or None,
    "index": lambda admin: read_control_namespace(admin, "acme").uuid,
    "lock": lambda admin: lock_holder(admin, HERE),
    "lease": lambda admin: held_by(admin, HERE),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_only_pulsar_itself_says_that_something_is_absent(read: Callable[[HttpAdmin], object]) -> None:
    """A server before the broker that answers 404 made a plan that creates everything, and a lock that nobody holds."""
    said = answer_json({"reason": "Namespace does not exist"}, 404)
    with serving(lambda _: said) as server, _admin(server.url) as (admin, _):
        assert read(admin) is None
    for page in (answer_html("<html>404</html>", 404), Answer(404, b"default backend - 404")):
        refused = pytest.raises(
            ClusterError, match=r"K523.* answers, but not as Pulsar's admin API: .* answered 404 .*8080"
        )
        with serving(_always(page)) as server, _admin(server.url) as (admin, _), refused as caught:
            read(admin)
        assert server.url.rstrip("/") in caught.value.diagnostics[0].detail, "the address is what has to be corrected"


def test_a_web_page_is_not_taken_for_an_empty_answer() -> None:
    page = answer_html("<html>Sign in</html>", 200)
    with serving(lambda _: page) as server, _admin(server.url) as (admin, _), pytest.raises(ClusterError) as caught:
        admin.call("GET", "clusters")
    assert caught.value.diagnostics[0].code == "K523"
    assert "a web page" in caught.value.diagnostics[0].detail


# --- tokens


def test_an_html_401_is_a_bad_token_and_ends_everything() -> None:
    with (
        serving(lambda _: answer_html("Error 401 Authentication required", 401)) as server,
        _admin(server.url) as (admin, _),
        pytest.raises(ClusterError) as caught,
    ):
        admin.call("GET", "x")
    [finding] = caught.value.diagnostics
    assert (finding.code, "does not accept the token" in finding.detail) == ("K511", True)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        ({"exp": 1_767_225_600}, "does not accept the token, which expired on 2026-01-01 00:00 UTC: get a new one"),
        ({"exp": 99_999_999_999}, "does not accept the token: expired, of another cluster, or damaged"),
        ({"exp": "soon"}, "does not accept the token: expired, of another cluster, or damaged"),
        ({}, "does not accept the token: expired, of another cluster, or damaged"),
        ([], "does not accept the token: expired, of another cluster, or damaged"),
    ],
)
def test_a_token_that_says_itself_when_it_expired_is_called_expired(claims: Any, says: str) -> None:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    with (
        serving(lambda _: answer_html("Error 401 Authentication required", 401)) as server,
        _admin(server.url, f"e30.{payload}.c2ln") as (admin, _),
        pytest.raises(ClusterError) as caught,
    ):
        admin.call("GET", "x")
    assert caught.value.diagnostics[0].detail.endswith(says)


def test_an_html_401_without_a_token_asks_for_one() -> None:
    with (
        serving(lambda _: answer_html("", 401)) as server,
        _admin(server.url, None) as (admin, _),
        pytest.raises(ClusterError, match="asks for a token: KODOCTL_TOKEN_FILE"),
    ):
        admin.call("GET", "x")


@pytest.mark.parametrize("status", [401, 403])
def test_a_json_401_or_403_is_one_refused_resource(status: int) -> None:
    with (
        serving(lambda _: answer_json({"reason": "Unauthorized to …"}, status)) as server,
        _admin(server.url) as (admin, _),
    ):
        reply = admin.call("GET", "tenants/acme")
    assert reply.forbidden
    with pytest.raises(AdminError) as caught:
        must(reply, "reading the tenant")
    assert "reading the tenant: GET tenants/acme answered" in str(caught.value)
    assert "a role with more rights" in str(caught.value)


def test_the_token_travels_in_the_header_and_a_proxy_of_the_shell_never_sees_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving(lambda _: Answer(500)) as proxy, serving(lambda _: FINE) as server:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        with _admin(server.url) as (admin, _):
            assert admin.call("GET", "x").data == {"fine": True}
        assert server.requests[0].headers["Authorization"] == f"Bearer {TOKEN}"
        assert not proxy.requests


def test_a_netrc_of_the_user_does_not_replace_the_token(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    with serving(lambda _: FINE) as server, _admin(server.url) as (admin, _):
        admin.call("GET", "x")
    assert server.requests[0].headers["Authorization"] == f"Bearer {TOKEN}"


# --- counting, several threads


def test_every_request_is_counted_by_kind() -> None:
    with serving(_after(1, Answer(503), FINE)) as server, _admin(server.url) as (admin, _):
        admin.call("GET", "a/b")
        admin.call("PUT", "a/b")
    assert (admin.traffic.reads, admin.traffic.writes) == (2, 1)
    assert admin.traffic.by_path == {"GET b": 2, "PUT b": 1}


def test_many_threads_share_kept_alive_connections() -> None:
    with serving(lambda _: FINE) as server, _admin(server.url) as (admin, _):
        threads = [threading.Thread(target=lambda: [admin.call("GET", "x") for _ in range(10)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert admin.traffic.reads == len(server.requests) == 80


def test_counting_a_backlog_is_a_read_whatever_the_method_and_a_topic_of_that_name_is_not() -> None:
    count = "persistent/t/ns/orders/subscription/billing/analyzeBacklog"
    with serving(lambda _: FINE) as server, _admin(server.url) as (admin, _):
        admin.call("POST", count, {})
        admin.call("DELETE", "persistent/t/ns/analyzeBacklog")
        admin.call("PUT", "persistent/t/ns/orders/subscription/analyzeBacklog", {})
    assert (admin.traffic.reads, admin.traffic.writes) == (1, 2)


def test_a_count_whose_connection_breaks_is_no_lost_write() -> None:
    count = "persistent/t/ns/orders/subscription/billing/analyzeBacklog"
    with (
        serving(lambda _: Answer(cut=True)) as server,
        _admin(server.url, options={"limit": 0.0}) as (admin, _),
        pytest.raises(ClusterError) as problem,
    ):
        admin.call("POST", count, {})
    assert not isinstance(problem.value, LostReplyError)
    assert problem.value.diagnostics[0].code == "K514"


def test_who_asks_again_soon_anyway_tries_a_read_once() -> None:
    with serving(_after(1, Answer(503), FINE)) as server, _admin(server.url, options={"limit": 0.0}) as (admin, pauses):
        assert admin.call("GET", "tenants").status == 503
        assert pauses == []
        assert admin.call("GET", "tenants").ok


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("Thu, 01 Jan 2026 00:00:07 GMT", 1_767_225_607_000),
        ("Thu, 01 Jan 2026 02:00:07 +0200", 1_767_225_607_000),
        ("yesterday", None),
        ("Thu, 99 Jan 2026 00:00:07 GMT", None),
        ("", None),
    ],
)
def test_an_answer_tells_the_server_s_clock_where_it_is_one(said: str, read: int | None) -> None:
    with serving(lambda _: answer_json([], Date=said)) as server, _admin(server.url) as (admin, _):
        reply = admin.call("GET", "clusters")
    assert (reply.server_time, reply.data) == (read, [])
    assert reply.took >= 0


def test_how_long_an_answer_took_is_that_of_the_last_try() -> None:
    def slow_then_busy(request: Request) -> Answer:
        if request.number == 1:
            time.sleep(1.0)
            return Answer(503)
        return FINE

    with serving(slow_then_busy) as server, _admin(server.url) as (admin, _):
        began = time.monotonic()
        took = admin.call("GET", "clusters").took
        assert took <= time.monotonic() - began - 1.0, "without the first try"


def test_calls_about_functions_go_to_the_workers_that_run_apart() -> None:
    with serving(lambda _: answer_json(["broker"])) as broker, serving(lambda _: answer_json(["worker"])) as worker:
        admin = HttpAdmin(Connection(broker.url, function_worker=worker.url))
        for kind in ("functions", "sinks", "sources"):
            assert admin.call("GET", f"v3/{kind}/acme/ns").data == ["worker"]
        assert admin.call("GET", "v3/packages/sink/acme/ns").data == ["broker"]
        assert admin.call("GET", "namespaces/acme").data == ["broker"]
        assert admin.traffic.reads == 5
        admin.close()


def test_nothing_is_asked_of_workers_that_the_settings_say_are_not_there() -> None:
    with serving(lambda _: answer_json([])) as broker:
        admin = HttpAdmin(Connection(broker.url, function_worker="none"))
        reply = admin.call("GET", "v3/functions/acme/ns")
        assert (reply.status, reply.reason) == (409, WITHOUT_WORKERS)
        assert not broker.requests
        admin.close()
