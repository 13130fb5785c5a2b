"""`# kodoctl: allow Kxxx because …` switches one finding off for one place, and says why."""

import pytest

from kodoctl.topology.lint import suppressions
from tests.unit.topology.topology_files import codes_in, found_in, report_on

BAD = "    policies: {backlog_quota: {size: 1GiB, when_full: evict}}"


def orders(comment: str = "", *, above: str = "", on_topic: str = "") -> str:
    lines = [f"topics:{comment if not on_topic and not above else ''}"]
    lines += [above] if above else []
    lines += [f"  orders:{on_topic}", BAD, "    subscriptions: {billing: {states: [], dead_letter: false}}"]
    return "\n".join(lines) + "\n"


def test_without_a_comment_the_finding_stands() -> None:
    assert codes_in(orders()) == ["K203"]


@pytest.mark.parametrize(
    "body",
    [
        orders(" # kodoctl: allow K203 because it is a cache"),
        orders(on_topic=" # kodoctl: allow K203 because it is a cache"),
        orders(above="  # kodoctl: allow K203 because it is a cache"),
        orders(above="  # kodoctl: allow K203 because it is a cache\n\n  # and more to say"),
        orders().replace(BAD, BAD + " # kodoctl: allow K203 because it is a cache"),
        orders(above="  # kodoctl: allow K203, K205 because it is a cache") + "",
    ],
)
def test_a_comment_holds_for_its_line_or_for_the_entry_below_with_everything_inside(body: str) -> None:
    (finding,) = [one for one in report_on(body).findings if one.code == "K203"]
    assert finding.allowed_because == "it is a cache"


def test_allowed_findings_do_not_fail_the_command() -> None:
    report = report_on(orders(on_topic=" # kodoctl: allow K203 because it is a cache"))
    assert not report.failed
    assert not report.warned


def test_a_comment_elsewhere_allows_nothing_and_is_said_to() -> None:
    body = orders() + "  other: {} # kodoctl: allow K203 because it is a cache\n"
    assert [(f.code, f.detail) for f in found_in(body)] == [
        ("K203", "orders: evict drops unread messages; hold_producers and fail_producers do not"),
        ("K019", "no K203 is found there: remove the comment"),
    ]


@pytest.mark.parametrize(
    ("comment", "says"),
    [
        ("# kodoctl: allow K203", "write `allow K203 because …`"),
        ("# kodoctl: allow K203 because", "write `# kodoctl: allow Kxxx because …`"),
        ("# kodoctl: ignore K203", "write `# kodoctl: allow Kxxx because …`"),
        ("# kodoctl: allow 203 because x", "write `# kodoctl: allow Kxxx because …`"),
        ("#kodoctl:", "write `# kodoctl: allow Kxxx because …`"),
    ],
)
def test_a_comment_that_says_something_else_is_found(comment: str, says: str) -> None:
    found = [one for one in found_in(f"topics: {{orders: {{}}}} {comment}\n") if one.code == "K018"]
    assert [(one.detail, one.where and (one.where.line, one.where.column)) for one in found] == [(says, (5, 22))]


def test_a_comment_in_a_text_is_no_comment() -> None:
    body = 'description: "x # kodoctl: nonsense"\ntopics: {orders: {description: "# kodoctl: nonsense"}}\n'
    assert not codes_in(body)


def test_a_comment_at_the_end_of_the_file_is_about_nothing() -> None:
    assert codes_in("topics: {orders: {}}\n# kodoctl: allow K203 because why not\n") == ["K019"]


def test_allowances_hold_in_environments_too() -> None:
    body = orders(on_topic=" # kodoctl: allow K203 because it is a cache")
    body += "environments: {prod: {defaults: {partitions: 2}}}\n"
    assert not codes_in(body)


def test_allowances_without_end_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suppressions, "MAX_ALLOWS", 3)
    body = "topics: {orders: {}}\n" + "# kodoctl: allow K203, K205 because x\n" * 5
    found = found_in(body)
    assert [one.code for one in found if one.code != "K019"] == ["K018"]
    assert "more than 3 allowances" in found[-1].detail or any("more than 3 allowances" in one.detail for one in found)


@pytest.mark.parametrize("broken", ["topics", "environment", "second file"])
def test_a_comment_is_not_called_idle_while_a_file_has_errors(broken: str) -> None:
    body = orders(on_topic=" # kodoctl: allow K203 because it is a cache").replace("{size: 1GiB", "{size: 1GB")
    other = "version: 1\nname: other\ntenant: kodo\nnamespace: other\ntopics: {}\n"
    assert not codes_in(body, other)
    overlaid = "topics: {orders: {}}\nenvironments:\n  prod:\n    defaults: {partitions: two}\n    topics:\n"
    overlaid += f"      orders: # kodoctl: allow K203 because it is a cache\n    {BAD}\n"
    wrong = {
        "topics": (body + "    partitions: two\n", other),
        "environment": (overlaid, f"{other}environments: {{prod: {{}}}}\n"),
        "second file": (body.replace("when_full: evict", "when_full: hold_producers"), f"{other}colour: red\n"),
    }
    assert codes_in(*wrong[broken]) in (["K003"], ["K004"])
