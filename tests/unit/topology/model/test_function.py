"""Packages and settings of functions that a file may have."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from kodoctl.topology.model.function import Function, SecretReference, Sink

FORMS = "should be builtin://NAME"
SECRET = "an address with a user, password or token does not belong into the file"


@pytest.mark.parametrize(
    "package",
    [
        "builtin://x",
        "function://a/b/c@1",
        "sink://a/b/c@1",
        "source://a/b/c@1",
        "http://h/x.jar?keyboard=a",
        "http://h/x.jar?token",
        "https://h/" + "?_token" * 2_000,  # must not take longer than a short one
        "http://h/x.jar",
        "https://h/x@2.jar",
        "file:///x",
    ],
)
def test_addresses_of_packages(package: str) -> None:
    assert Function.model_validate({"package": package, "inputs": ["orders"]}).package == package


@pytest.mark.parametrize(
    ("package", "says"),
    [("x.jar", FORMS), ("topic://a/b/c@1", FORMS), ("http://", FORMS), ("function://a/b@1", FORMS), ("sink://a/b/c@", FORMS), ("http://u:p@h/x", SECRET), ("https://u@h/x", SECRET), ("https://h/x?a=b&private_token=x", SECRET), ("https://h/x.jar?X-Amz-Signature=x", SECRET), ("https://h/x?api_key=x", SECRET), ("https://h/x?sig=x", SECRET), ("https://h/x?AUTH=x", SECRET), ("HTTPS://h/x?a&b?db-key=x", SECRET), ("builtin://x\n", FORMS), (1, "valid string")],
)  # fmt: skip
def test_what_is_no_address_of_a_package(package: Any, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Function.model_validate({"package": package, "inputs": ["orders"]})


def test_a_secret_is_a_reference_and_no_error_repeats_it() -> None:
    given = {"package": "builtin://x", "inputs": ["orders"]}
    sink = Sink.model_validate({**given, "secrets": {"password": {"path": "p", "key": "k"}}})
    assert sink.secrets == {"password": SecretReference(path="p", key="k")}
    with pytest.raises(ValidationError, match="should name the place of the secret") as caught:
        Sink.model_validate({**given, "secrets": {"password": "hunter2"}})
    assert "hunter2" not in caught.value.errors(include_input=False)[0]["msg"]


def test_settings_are_json() -> None:
    given = {"package": "builtin://x", "inputs": ["orders"]}
    assert Function.model_validate({**given, "config": {"a": [1, None, "x"]}}).config == {"a": [1, None, "x"]}
    for value in (float("inf"), {1, 2}, 10**400, {1: "x", "b": "y"}):
        with pytest.raises(ValidationError, match="should hold texts, numbers"):
            Function.model_validate({**given, "config": {"a": value}})


@pytest.mark.parametrize("config", [{"a": None}, {"b": {"a": None}}, {"b": [1, {"a": None}]}])
def test_a_name_without_a_value_which_the_worker_drops(config: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="'a' has no value"):
        Function.model_validate({"package": "builtin://x", "inputs": ["orders"], "config": config})


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"autoAck": "(not shown)"}, "kodoctl shows in place of a value: write the value"), ({"autoAckk": True}, "'autoAckk' is not one of ")],
)  # fmt: skip
def test_settings_that_no_worker_may_get(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Function.model_validate({"package": "builtin://x", "inputs": ["orders"], "settings": settings})
    assert says in str(caught.value)
