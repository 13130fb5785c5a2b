"""Who the console answers: one browser, by its own address, and for writes only its own pages."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from copy import copy

import pytest

from kodoctl.errors import UsageError
from kodoctl.ui.application import console
from kodoctl.ui.web_server import ConsoleServer
from tests.samples.consoles import Console, data_of, served

METHODS = ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"]


@pytest.fixture(scope="module")
def reached() -> Iterator[Console]:
    with served(data_of()) as one:
        yield one


def test_the_printed_address_gives_a_cookie_that_scripts_and_other_sites_cannot_use(reached: Console) -> None:
    first = reached.ask(f"/?token={reached.token}", Cookie=None)
    assert first.status == 200
    cookie = first.headers["set-cookie"].lower()
    assert all(
        part in cookie
        for part in (reached.token.lower(), "httponly", "samesite=strict", f"path={reached.folder.lower()}/")
    )
    assert reached.token not in first.text
    assert 'url=./"' in first.text
    assert reached.ask().status == 200


@pytest.mark.parametrize("cookie", [None, "kodoctl-ui-1=x", "", "kodoctl-ui-{port}=", "kodoctl-ui-{port}=%C3%A9wrong"])
@pytest.mark.parametrize("path", ["/", "/lanes", "/console.js", "/console.css", "/none"])
def test_without_the_token_nothing_is_shown(reached: Console, path: str, cookie: str | None) -> None:
    answer = reached.ask(path, Cookie=cookie and cookie.format(port=reached.port))
    assert answer.status == 403
    assert answer.text == "Open the address that `kodoctl ui` printed: it has the token.\n"
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("token", ["", "x", "é", "kodo"])
def test_a_wrong_token_is_refused_with_the_cookie_as_well(reached: Console, token: str) -> None:
    answer = reached.ask(f"/?token={token.encode().hex()}")
    assert (answer.status, "set-cookie" in answer.headers) == (403, False)


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "[::1]:{port}",
        "127.0.0.1:{port}.evil.example",
    ],
)
def test_a_name_that_somebody_else_points_at_this_machine_is_refused(reached: Console, host: str | None) -> None:
    """DNS rebinding: the browser believes that the console belongs to a page of the attacker."""
    for path in ("/", f"/?token={reached.token}"):
        answer = reached.ask(path, Host=host and host.format(port=reached.port))
        assert answer.status in (400, 421)
        assert "billing" not in answer.text
        assert "set-cookie" not in answer.headers


def test_localhost_is_a_name_of_this_machine(reached: Console) -> None:
    assert reached.ask(Host=f"localhost:{reached.port}").status == 200


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "origin",
    [
        None,
        "null",
        "http://evil.example",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "https://127.0.0.1:{port}",
        "http://localhost:{port}",
    ],
)
def test_a_page_of_another_origin_cannot_act_with_the_cookie(reached: Console, method: str, origin: str | None) -> None:
    """Pages of other ports of this machine are of the same site: their requests carry the cookie."""
    answer = reached.ask("/", method, Origin=origin and origin.format(port=reached.port))
    assert (answer.status, answer.text) == (403, "Only a page of this console may do that.\n")


@pytest.mark.parametrize("method", METHODS)
def test_an_own_origin_without_the_token_cannot_act(reached: Console, method: str) -> None:
    own = f"http://127.0.0.1:{reached.port}"
    assert reached.ask("/", method, Origin=own, Cookie=None).status == 403
    assert reached.ask(f"/?token={reached.token}", method, Origin=own, Cookie=None).status == 403
    assert reached.ask("/", method, Origin=own).status == 405, "there is nothing that writes"


@pytest.mark.parametrize(
    ("path", "cookie"), [("/", True), ("/lanes", True), ("/none", True), ("/console.js", True), ("/", False)]
)
def test_every_answer_forbids_frames_scripts_of_others_and_storage(reached: Console, path: str, cookie: bool) -> None:
    answer = reached.ask(path) if cookie else reached.ask(path, Cookie=None)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; ")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin", "browsers send no Origin with forms otherwise"
    assert answer.headers["cache-control"] == "no-store"
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert "server" not in answer.headers


@pytest.mark.parametrize("path", ["/", "/lanes", "/?token={token}", "/x/", "{folder}", "{folder}x/", "/x/..{folder}/"])
def test_outside_of_its_folder_nothing_is_shown(reached: Console, path: str) -> None:
    """Other ports of this machine get the cookie of a folder only if they know its name."""
    reached_above = copy(reached)
    reached_above.folder = ""
    answer = reached_above.ask(path.format(token=reached.token, folder=reached.folder))
    assert (answer.status, "set-cookie" in answer.headers) == (403, False)


def test_two_consoles_have_tokens_and_cookies_of_their_own(reached: Console) -> None:
    with served(data_of()) as other:
        assert reached.token != other.token
        assert other.ask(Cookie=reached.own["Cookie"]).status == 403


def test_the_console_listens_on_this_machine_only_and_names_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=f"K036.*127.0.0.1:{port}: .*--port"):
            ConsoleServer(console(data_of()), port)


def test_a_console_that_was_closed_answers_nobody() -> None:
    with served(data_of()) as one:
        assert one.ask().status == 200
    with pytest.raises(ConnectionRefusedError):
        one.ask()
