"""Views of lint findings: the text for people, SARIF and JSON for machines, annotations for pull requests."""

import json
from typing import Any

import jsonschema
import pytest

from kodoctl.errors import Diagnostic, Severity, Where, note
from kodoctl.render.finding_excerpts import excerpt_lines
from kodoctl.render.findings import as_json_text, github, gitlab, sarif, summary, text
from kodoctl.topology.lint.linter import LintReport
from tests.unit.topology.topology_files import FILE

REPORT = LintReport(
    (
        note("K019", "a note", "about nothing"),
        Diagnostic(Severity.ERROR, "K203", "evict on a topic", "orders: drops,\nunread: 100%", Where(FILE, 7, 3)),
        Diagnostic(Severity.WARNING, "K207", "a value", "partitions", Where(FILE), "it is a test"),
    ),
    files=2,
    ground_topics=1,
)


def test_text_is_one_line_a_finding_then_the_counts() -> None:
    shown = text(REPORT).splitlines()
    assert shown == [
        "- K019 note a note: about nothing",
        f"{FILE}:7:3 K203 error evict on a topic: orders: drops,; unread: 100%",
        f"{FILE} K207 allowed (it is a test) a value: partitions",
        "2 files, 1 ground topic: 1 error, 1 note, 1 allowed.",
    ]


def _shown(line: int, column: int, text: str, width: int = 60) -> list[str]:
    """Excerpt and carets of a finding at a place of a file whose last line is `text`."""
    found = LintReport((Diagnostic(Severity.ERROR, "K203", "evict", "", Where(FILE, line, column)),), 1, 1)
    return [one.text for one in excerpt_lines(found, lambda _: ["", text], width)][2:-2]


def test_an_excerpt_shows_the_line_of_the_file_with_carets_below_the_word() -> None:
    shown = [line.text for line in excerpt_lines(REPORT, lambda _: ["  orders: {}"] * 7, 80)]
    assert shown == [
        "note K019: a note", "  about nothing", "",
        "error K203: evict on a topic", f"  at {FILE}:7:3", "     7 |   orders: {}", "       |   ^^^^^^",
        "  orders: drops,", "  unread: 100%", "",
        "allowed K207: a value", f"  at {FILE}", "  partitions", "  allowed because it is a test", "",
        "2 files, 1 ground topic: 1 error, 1 note, 1 allowed.",
    ]  # fmt: skip
    styles = [line.style for line in excerpt_lines(REPORT, lambda _: [], 80) if line.style]
    assert styles == ["bold cyan", "bold red", "cyan", "dim", "cyan", "dim", "bold"]


@pytest.mark.parametrize("text", ['a: "postgresql://u:Hunter2@h/db"', "postgresql+psycopg://u:Hunter2@h/db"])
def test_an_excerpt_hides_the_password_of_an_address(text: str) -> None:
    shown = _shown(2, 4, text)
    assert "Hunter2" not in "".join(shown)
    assert "://*********@h/db" in shown[0]


@pytest.mark.parametrize(
    ("column", "text", "marked"),
    [
        (4, "a: 'x y', b", "'x y'"),
        (4, 'a: "x \\" y"', '"x \\" y"'),
        (4, "a: {b: c}", "{"),
        (1, "日本: {}", "日本"),
        (4, "a: \x1b[31m", "\\x1b"),
    ],
)
def test_carets_are_as_wide_as_the_word(column: int, text: str, marked: str) -> None:
    line, carets = _shown(2, column, text)
    at = line.index(marked)
    assert carets == f"{' ' * 7}|{' ' * (at - 8)}{'^' * (2 * len(marked) if marked == '日本' else len(marked))}"


def test_a_long_line_is_cut_around_the_place() -> None:
    line, carets = _shown(2, 103, f"{'a ' * 50}: word{' b' * 50}")
    assert len(line) == 60
    assert (line[9], line[-1]) == ("…", "…")
    assert line[carets.index("^") :].startswith("word")
    line, carets = _shown(2, 1, "x" * 200)
    assert (len(line), len(carets), line[-1], line[9]) == (60, 60, "…", "x")


@pytest.mark.parametrize(("line", "column"), [(0, 0), (3, 1), (2, 9)])
def test_a_place_behind_the_text_has_no_excerpt(line: int, column: int) -> None:
    assert _shown(line, column, "a: b") == []


def test_nothing_found_is_said() -> None:
    assert summary(LintReport((), 1, 2)) == "1 file, 2 ground topics: no findings."


def test_json_has_every_finding_with_its_place() -> None:
    found = json.loads(as_json_text(REPORT))
    assert {key: found[key] for key in ("format_version", "files", "ground_topics", "failed")} == {
        "format_version": 1,
        "files": 2,
        "ground_topics": 1,
        "failed": True,
    }
    assert [(one["code"], one["line"], one["allowed_because"]) for one in found["findings"]] == [
        ("K019", None, None),
        ("K203", 7, None),
        ("K207", 0, "it is a test"),
    ]


def test_annotations_escape_what_would_end_them_and_leave_out_what_is_allowed() -> None:
    assert github(REPORT).splitlines() == [
        "::notice title=K019 a note::about nothing",
        f"::error file={FILE},line=7,col=3,title=K203 evict on a topic::orders: drops,%0Aunread: 100%25",
        "2 files, 1 ground topic: 1 error, 1 note, 1 allowed.",
    ]


def test_a_code_quality_report_has_a_place_for_each_finding_and_leaves_out_what_is_allowed() -> None:
    first, second = json.loads(gitlab(REPORT))
    assert first["location"] == {"path": ".", "lines": {"begin": 1}}
    assert len(second.pop("fingerprint")) == 64
    assert second == {
        "description": "K203 evict on a topic: orders: drops,; unread: 100%",
        "check_name": "K203",
        "severity": "critical",
        "location": {"path": FILE, "lines": {"begin": 7}},
    }


def test_sarif_has_rules_places_and_suppressions() -> None:
    document = json.loads(sarif(REPORT))
    run = document["runs"][0]
    assert document["version"] == "2.1.0"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["K019", "K203", "K207"]
    jsonschema.validate(document, SARIF)
    first, second, third = run["results"]
    assert "locations" not in first
    assert second["locations"][0]["physicalLocation"]["region"] == {"startLine": 7, "startColumn": 3}
    assert third["suppressions"] == [{"kind": "inSource", "justification": "it is a test"}]
    assert third["locations"][0]["physicalLocation"]["region"] == {"startLine": 1, "startColumn": 1}


SARIF: dict[str, Any] = {  # what code scanning needs of SARIF 2.1.0
    "type": "object",
    "required": ["$schema", "version", "runs"],
    "properties": {
        "runs": {
            "items": {
                "required": ["tool", "results"],
                "properties": {
                    "results": {
                        "items": {
                            "required": ["ruleId", "level", "message"],
                            "properties": {
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": {"required": ["text"]},
                            },
                        }
                    }
                },
            }
        }
    },
}
