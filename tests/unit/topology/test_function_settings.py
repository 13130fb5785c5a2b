"""Settings of functions have one text, whoever wrote them and however the worker stores numbers."""

from __future__ import annotations

import pytest

from kodoctl.topology.function_settings import (
    HIDDEN,
    hidden_names,
    settings_text,
    shown_settings,
    text_without_secrets,
    with_recorded,
    without_secrets,
)


@pytest.mark.parametrize(
    ("declared", "shown"),
    [
        ({"b": 5, "a": True}, {"a": True, "b": 5.0}),
        ({"a": {"b": [1, 2.5, "x"]}}, {"a": {"b": [1.0, 2.5, "x"]}}),
        ({"a": 2**60 + 1}, {"a": float(2**60)}),
    ],
)
def test_what_a_worker_shows_is_what_was_declared(declared: dict[str, object], shown: dict[str, object]) -> None:
    assert settings_text(declared) == settings_text(shown)


def test_other_values_have_other_texts() -> None:
    assert settings_text({"a": 1}) == '{"a":1}'
    assert settings_text({"a": "ü"}) == '{"a":"ü"}'
    assert len({settings_text({"a": value}) for value in (0, 1, 1.5, "1", False, True, None)}) == 7


def test_hidden_values_are_named_by_their_places() -> None:
    settings = {"db": {"password": HIDDEN, "user": "anna"}, "list": ["x", HIDDEN], "on": True}
    assert list(hidden_names(settings)) == ["db.password", "list[1]"]


def test_of_a_live_configuration_only_what_is_declared_is_taken() -> None:
    live = {"a": {"b": 1, "c": 2}, "d": 3, "f": None}
    assert shown_settings(live, {"a": {"b": 5}, "e": {"x": 1}, "f": False, "g": True}) == {
        "a": {"b": 1}, "e": {"x": None}, "f": False, "g": None,
    }  # fmt: skip


def test_what_a_worker_does_not_show_is_as_it_was_written() -> None:
    assert with_recorded({"a": {"b": None, "c": 2}, "d": None}, {"a": {"b": 1, "c": 3}}) == {
        "a": {"b": 1, "c": 2}, "d": None,
    }  # fmt: skip
    assert with_recorded(None, 5) == 5


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no suitable driver for jdbc:postgresql://ann:hun@ter2@db:5432/shop", "no suitable driver for jdbc:postgresql://(not shown)@db:5432/shop"),
        ("jdbc:oracle:thin:scott/tiger@//db:1521/x", "jdbc:oracle:thin:(not shown)@//db:1521/x"),
        ("jdbc:sqlserver://db;user=ann;password=hunter2;encrypt=true", "jdbc:sqlserver://db;user=ann;password=(not shown);encrypt=true"),
        ('{"secretKey": "hunter 2", "a": 1}', '{"secretKey": (not shown), "a": 1}'),
        ("Authorization: Bearer hunter2 was refused", "Authorization: Bearer (not shown) was refused"),
        ("password authentication failed for user ann", "password authentication failed for user ann"),
        ("sslKeyPassphrase=hunter2 is wrong", "sslKeyPassphrase=(not shown) is wrong"),
        (r'{"password": "hun\"ter 2", "a": 1}', '{"password": (not shown), "a": 1}'),
        (r'bad config {\"password\": \"hunter 2\", \"a\": 1}', r'bad config {\"password\": (not shown), \"a\": 1}'),
    ],
)  # fmt: skip
def test_an_error_shows_no_password(text: str, shown: str) -> None:
    assert text_without_secrets(text) == shown


def test_secret_values_are_found_by_their_names_at_any_depth() -> None:
    settings = {"user": "ann", "tls": [{"keyPassphrase": "hunter2", "path": "/k"}], "apiKey": None}
    assert without_secrets(settings) == {
        "user": "ann", "tls": [{"keyPassphrase": HIDDEN, "path": "/k"}], "apiKey": None,
    }  # fmt: skip
