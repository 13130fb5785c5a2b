"""Paths to values in a document: where they lead, and what is no path."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest

from kodoctl.topology.json_paths import JsonPath

DOCUMENT = {"a": {"email": "x"}, "l": [{"iban": 1, "email": 3}, {"iban": 2}], "odd name": [5, 6]}


@pytest.mark.parametrize(
    ("path", "changed"),
    [
        ("$.a.email", {"a": {"email": 0}}),
        ("$.l[*].iban", {"l": [{"iban": 0, "email": 3}, {"iban": 0}]}),
        ("$['odd name'][0]", {"odd name": [0, 6]}),
        ('$["odd name"][*]', {"odd name": [0, 0]}),
        ("$..email", {"a": {"email": 0}, "l": [{"iban": 1, "email": 0}, {"iban": 2}]}),
        ("$..[1]", {"l": [{"iban": 1, "email": 3}, 0], "odd name": [5, 0]}),
        ("$.a.*", {"a": {"email": 0}}),
        ("$.*", {"a": 0, "l": 0, "odd name": 0}),
        ("$..*", {"a": 0, "l": 0, "odd name": 0}),
    ],
)
def test_a_path_leads_to_values(path: str, changed: dict[str, Any]) -> None:
    document = copy.deepcopy(DOCUMENT)
    assert JsonPath.parse(path).replace(document, 0)
    assert document == DOCUMENT | changed


@pytest.mark.parametrize("path", ["$.nothing", "$.a[0]", "$.l.iban", "$['odd name'][2]", "$.a.email.x", "$..nothing.x"])
def test_a_path_that_leads_nowhere_changes_nothing(path: str) -> None:
    document = copy.deepcopy(DOCUMENT)
    assert not JsonPath.parse(path).replace(document, 0)
    assert document == DOCUMENT


@pytest.mark.parametrize(
    "text", ["", "a", "$", "$.", "$x", "$.a b", "$.a[", "$[1:2]", "$...a", "$[?(@.a)]", "$.a.", "$['']"]
)
def test_what_is_no_path_is_told_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match=r"no path to values in a document: write \$\.customer"):
        JsonPath.parse(text)


def test_a_hostile_document_takes_no_longer_for_more_steps() -> None:
    """A sender nested an object, and each `..` of a mask multiplied the time by the depth."""
    document: Any = [{} for _ in range(1_000)]
    for _ in range(2_000):
        document = {"a": document}
    began = time.process_time()
    assert not JsonPath.parse("$..a..a..a..b").replace(document, 0)
    assert JsonPath.parse("$..a..a..a").replace(document, 0)
    assert time.process_time() - began < 5
    assert document == {"a": {"a": {"a": 0}}}
