"""The exporter tells of each topic that can no longer be read, once, and follows its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kodoctl.cli.common.followed_files import FollowedFiles
from kodoctl.cli.status.exporter_command import DeclaredTopics, _tell_unread
from kodoctl.errors import InvalidFileError, UsageError
from kodoctl.status.lane_status import UnreadTopic
from tests.samples.inventories import topology


def test_topics_of_one_name_in_two_namespaces_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (UnreadTopic(f"kodo/{name}", "orders", "orders", "gone") for name in ("trade", "stock"))
    _tell_unread((first,), ())
    _tell_unread((first, second), (first,))
    _tell_unread((), (first, second))
    assert capsys.readouterr().err.splitlines() == [
        "kodo/trade/orders cannot be read: gone",
        "kodo/stock/orders cannot be read: gone",
        "All topics can be read again.",
    ]


@pytest.mark.parametrize("broken", ["version: 1\ntopics: [", topology("{J: {subscriptons: {}}}"), None])
def test_it_follows_its_files_and_keeps_what_they_declared_while_they_are_invalid(
    broken: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trade.yaml"

    def write(text: str | None) -> None:
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_text(text, encoding="utf-8")

    def topics() -> tuple[set[str], bool]:
        found = declared.latest()
        names = {topic.name.local for one in found.expansions for topic in one.topics}
        return {name for name in names if len(name) == 1}, bool(declared.problem)

    declared = DeclaredTopics(FollowedFiles([str(tmp_path)], None, lambda _: None), "dev")
    write(topology("{J: {}}"))
    assert topics() == topics() == ({"J"}, False)
    assert capsys.readouterr().err.count("Reading ") == 1, "a file that did not change is not told of again"
    write(topology("{J: {}, K: {}}"))
    assert topics() == ({"J", "K"}, False)
    capsys.readouterr()
    write(broken)
    assert topics() == topics() == ({"J", "K"}, True)
    said = capsys.readouterr().err
    assert said.count("The files are invalid now: the lanes are those that they declared before.") == 1
    assert "Reading " not in said
    assert "K0" in said
    write(topology("{J: {}, K: {}}"))
    assert topics() == ({"J", "K"}, False), "the same as before: only the trouble is over"
    write(topology("{L: {}}"))
    assert topics() == ({"L"}, False)


def test_an_invalid_file_at_the_start_ends_it(tmp_path: Path) -> None:
    file = tmp_path / "trade.yaml"
    declared = DeclaredTopics(FollowedFiles([str(file)], None, lambda _: None), "dev")
    with pytest.raises(UsageError):
        declared.latest()
    file.write_text("version: 1\n", encoding="utf-8")
    with pytest.raises(InvalidFileError):
        declared.latest()


def test_a_file_whose_schema_was_broken_is_read_again_though_it_did_not_change_itself(tmp_path: Path) -> None:
    """The text of a topology is not all that makes it valid."""
    file, schema = tmp_path / "trade.yaml", tmp_path / "order.json"
    file.write_text(topology("{J: {payload: {type: json, schema: order.json}}}"), encoding="utf-8")
    schema.write_text('{"type": "object"}', encoding="utf-8")
    files = FollowedFiles([str(file)], None, lambda _: None)
    files.latest()
    schema.write_text("{", encoding="utf-8")
    file.write_text(file.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")
    files.latest()
    assert files.problem is not None
    schema.write_text('{"type": "object"}', encoding="utf-8")
    files.latest()
    assert files.problem is None


def test_warnings_are_passed_on_where_they_are_new(tmp_path: Path) -> None:
    file, warned = tmp_path / "trade.yaml", list[int]()
    files = FollowedFiles([str(file)], None, lambda found: warned.append(len(found)))
    for text in (topology("{J: {}}"), topology("{J: {}}"), topology("{J: {}, K: {}}")):
        file.write_text(text, encoding="utf-8")
        files.read()
    assert len(warned) == len(set(warned)), "once each"
