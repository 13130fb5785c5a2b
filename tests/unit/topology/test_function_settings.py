"""Settings of functions have one text, whoever wrote them and however the worker stores numbers."""

from __future__ import annotations

import pytest

from kodoctl.topology.function_settings import settings_text


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
