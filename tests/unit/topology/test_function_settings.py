"""Settings of functions have one text, whoever wrote them and however the worker stores numbers."""

from __future__ import annotations

import pytest

from kodoctl.topology.function_settings import settings_text, text_without_secrets


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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no suitable driver for jdbc:postgresql://ann:hun@ter2@db:5432/shop", "no suitable driver for jdbc:postgresql://(not shown)@db:5432/shop"),
        ("jdbc:oracle:thin:scott/tiger@//db:1521/x", "jdbc:oracle:thin:(not shown)@//db:1521/x"),
        ("jdbc:sqlserver://db;user=ann;password=hunter2;encrypt=true", "jdbc:sqlserver://db;user=ann;password=(not shown);encrypt=true"),
        ('{"secretKey": "hunter 2", "a": 1}', '{"secretKey": (not shown), "a": 1}'),
        ("Authorization: Bearer hunter2 was refused", "Authorization: Bearer (not shown) was refused"),
        ("password authentication failed for user ann", "password authentication failed for user ann"),
    ],
)  # fmt: skip
def test_an_error_shows_no_password(text: str, shown: str) -> None:
    assert text_without_secrets(text) == shown
