"""Tokens that an issuer gives: asked for once, before they end, and never with the secret anywhere it does not belong."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kodoctl.errors import ClusterError
from kodoctl.pulsar.connection.credentials import OAuth2
from kodoctl.pulsar.connection.oauth2 import TokenCache
from kodoctl.pulsar.connection.secret import Secret
from tests.brokers.authentication import SECRET, issuing
from tests.services.servers import Answer, Request, answer_json, serving

KEY = b"k" * 32


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def _cache(url: str, clock: Clock | None = None, secret: str = SECRET) -> TokenCache:
    return TokenCache(OAuth2(url, "client", Secret(secret)), clock=clock or Clock())


def test_a_token_is_kept_until_shortly_before_its_end() -> None:
    clock = Clock()
    with issuing(KEY, expires_in=100) as issuer:
        cache = _cache(issuer.url, clock)
        first = cache.token()
        clock.now = 79
        assert cache.token() == first
        clock.now = 81
        second = cache.token()
        assert second != first
        assert cache.renewed(first) == second  # somebody renewed it meanwhile: no request
        assert len(issuer.forms) == 2
        assert cache.renewed(second) != second


def test_a_token_without_an_end_is_kept_until_it_is_refused() -> None:
    clock = Clock()
    with issuing(KEY, expires_in=None) as issuer:
        cache = _cache(issuer.url, clock)
        cache.token()
        clock.now = 1e9
        cache.token()
        assert len(issuer.forms) == 1


def test_a_valid_token_is_used_while_the_issuer_fails() -> None:
    clock, is_down = Clock(), False

    def respond(request: Request) -> Answer:
        base = f"http://{request.headers['Host']}"
        if request.method != "POST":
            return answer_json({"token_endpoint": f"{base}/token"})
        return Answer(503, b"down") if is_down else answer_json({"access_token": "t1", "expires_in": 100})

    with serving(respond) as issuer:
        cache = _cache(issuer.url, clock)
        first, asked = cache.token(), len(issuer.requests)
        is_down, clock.now = True, 81
        assert [cache.token(), cache.token()] == [first, first]
        assert len(issuer.requests) == asked + 1, "not for each request of the cluster"
        clock.now = 87
        assert (cache.token(), len(issuer.requests)) == (first, asked + 2)
        with pytest.raises(ClusterError):
            cache.renewed(first)  # the cluster refused it: no use to send it again
        clock.now = 101
        with pytest.raises(ClusterError):
            cache.token()


def test_threads_share_one_request() -> None:
    with issuing(KEY) as issuer:
        cache = _cache(issuer.url)
        found: list[Secret] = []
        threads = [threading.Thread(target=lambda: found.append(cache.token())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(issuer.forms), len(set(found))) == (1, 1)


def _failure(respond: Callable[[Request], Answer], secret: str = SECRET) -> tuple[str, list[Request]]:
    with serving(respond) as server:
        with pytest.raises(ClusterError) as caught:
            _cache(server.url, secret=secret).token()
        [found] = caught.value.diagnostics
        assert found.code == "K526"
        assert server.url in found.detail
        assert secret not in found.detail
        return found.detail, server.requests


def _gives(answer: Answer, endpoint: str = "") -> Callable[[Request], Answer]:
    def respond(request: Request) -> Answer:
        base = f"http://{request.headers['Host']}"
        return answer if request.method == "POST" else answer_json({"token_endpoint": endpoint or f"{base}/token"})

    return respond


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (answer_json({"error": "invalid_client", "error_description": f"no {SECRET} here"}, 401), "401 (no *** here); check client id"),
        (answer_json({"error": "invalid_scope"}, 400), "400 (invalid_scope); check client id and secret, audience and scope"),
        (Answer(503, b"down"), "503 (Service Unavailable); try again later"),
        (answer_json({}), "no bearer token"),
        (answer_json({"access_token": 5}), "no bearer token"),
        (answer_json({"access_token": "x", "token_type": "mac"}), "no bearer token"),
        (answer_json(["x"]), "no bearer token"),
        (Answer(200, b"<html>log in"), "no bearer token"),
        (answer_json({"access_token": "two words"}), "cannot travel in a header"),
        (Answer(302, b"", {"Location": "http://elsewhere.test/"}), "no bearer token"),
        (Answer(cut=True), "cannot be reached"),
    ],
)  # fmt: skip
def test_what_an_issuer_answers_instead_is_told_without_the_secret(answer: Answer, said: str) -> None:
    assert said in _failure(_gives(answer))[0]


def test_an_issuer_that_does_not_say_where_it_gives_tokens_is_named_and_gets_no_secret() -> None:
    detail, requests = _failure(lambda _: Answer(404))
    assert ".well-known/openid-configuration or .well-known/oauth-authorization-server" in detail
    assert [request.method for request in requests] == ["GET", "GET"]


def test_the_second_way_of_discovery_does_as_well() -> None:
    def respond(request: Request) -> Answer:
        if request.path == "/.well-known/oauth-authorization-server":
            return answer_json({"token_endpoint": f"http://{request.headers['Host']}/t"})
        return answer_json({"access_token": "abc"}) if request.path == "/t" else Answer(404)

    with serving(respond) as server:
        assert _cache(server.url).token() == Secret("abc")


def test_a_secret_is_not_sent_in_the_open() -> None:
    detail, requests = _failure(_gives(answer_json({}), endpoint="http://tokens.example.org/token"))
    assert "tokens.example.org without TLS: the secret was not sent" in detail
    assert [request.method for request in requests] == ["GET"]


def test_an_issuer_that_is_not_there_is_told() -> None:
    with serving(lambda _: Answer()) as server:
        url = server.url
    with pytest.raises(ClusterError, match="cannot be reached"):
        _cache(url).token()
