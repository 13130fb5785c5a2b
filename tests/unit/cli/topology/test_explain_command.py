"""explain at the command line: codes, and keys of the topology file."""

from __future__ import annotations

import json

import pytest

from kodoctl.errors.codes import CODES
from tests.brokers.workspace import run_main


@pytest.mark.parametrize("number", CODES)
def test_every_code_is_explained(number: str) -> None:
    ran = run_main("explain", number.lower())
    assert (ran.code, ran.err) == (0, "")
    shown = " ".join(ran.out.split())
    assert shown.startswith(f"{number}: {CODES[number].title} Kind: ")
    assert f"What to do: {' '.join(CODES[number].todo.split())}" in shown
    assert [line for line in ran.out.splitlines() if len(line) > 80] == []


def test_a_code_of_lint_is_explained_with_its_check_and_the_comment_that_allows_it() -> None:
    out = run_main("explain", "K203").out
    assert "Kind: error of lint. Group: Keeping messages.\nFinds backlog quotas with `evict`" in out
    assert "  # kodoctl: allow K203 because …\n" in out.replace("file: #", "file:  #")
    document = run_main("explain", "K102", "--format", "json").json()
    assert (document["code"], document["severity"], document["title"]) == ("K102", "error", CODES["K102"].title)
    assert "Also reported as: " in run_main("explain", "K548").out
    assert "allow" not in run_main("explain", "K548").out


def test_a_key_is_explained_as_a_table_and_as_json() -> None:
    assert run_main("explain", "topics.orders.partitions").out == (
        "topics.orders.partitions\n\n"
        "Partitions of the whole family (dead letters have their own number). Can grow,\nnever shrink.\n\n"
        "value      whole number\ninherited  defaults.partitions\nexample    4\n"
    )
    assert "\nKeys:\n  time  Whole minutes" in run_main("explain", "topics.orders.policies.retention").out
    assert "default    needed: there is no default\n" in run_main("explain", "tenant").out
    document = json.loads(run_main("explain", "topics.orders.partitions", "--format", "json").out)
    assert (document["path"], document["inherited"]) == ("topics.orders.partitions", ["defaults.partitions"])


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("K999", "no code K999; codes that look alike: K599\n"),
        ("K123456789", "no code K123456789\n"),
        ("topics.o.polices", "did you mean 'policies'"),
    ],
)
def test_what_does_not_exist_is_a_wrong_line(name: str, told: str) -> None:
    ran = run_main("explain", name)
    assert (ran.code, ran.out) == (64, "")
    assert "nothing to explain [K032]" in ran.err
    assert told in ran.err
