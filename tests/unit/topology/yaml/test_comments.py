"""Comments are found where YAML sees them: a # inside a text is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kodoctl.topology.yaml.comments import Comment, find_comments
from kodoctl.topology.yaml.nodes import parse


@pytest.mark.parametrize(
    ("text", "comments"),
    [
        ("a: 1 # one", [(1, 6, "# one", False)]),
        ("# alone \na: 1", [(1, 1, "# alone", True)]),
        ("a: 'x # y' # z", [(1, 12, "# z", False)]),
        ("a: x#y", []),
        ("'k # k': 1 # c", [(1, 12, "# c", False)]),
        ("a: |\n  # text\n# c\nb: 1", [(3, 1, "# c", True)]),
        ("a: | # c\n  # text\nb: > # d", [(1, 6, "# c", False), (3, 6, "# d", False)]),
        ("a: |2- # c\n\n  # text\n", [(1, 8, "# c", False)]),
        ("a: [1, # c\n  2]", [(1, 8, "# c", False)]),
        ("a: [1]#c", [(1, 7, "#c", False)]),
        ("a: 'two\n  # lines' # c # d", [(2, 12, "# c # d", False)]),
        ("a: 1\n\n#", [(3, 1, "#", True)]),
        ("a: é # ü", [(1, 6, "# ü", False)]),
    ],
)
def test_a_comment_is_what_yaml_takes_for_one(text: str, comments: list[tuple[int, int, str, bool]]) -> None:
    assert list(find_comments(text)) == [Comment(*one) for one in comments]


@given(
    st.lists(
        st.sampled_from(["a: 1", "'b#': '# x'", "# c", "  # d", "x: |", "    # text", "", "y: [#", "]", 'z: "#"']),
        max_size=8,
    )
)
def test_a_text_without_its_comments_means_the_same(lines: list[str]) -> None:
    text = "\n".join([*lines, ""])
    root, findings = parse(text.encode(), "f")
    if root is None or findings:
        return
    rows = text.splitlines()
    for comment in find_comments(text):
        rows[comment.line - 1] = rows[comment.line - 1][: comment.column - 1]
    again, _ = parse("\n".join([*rows, ""]).encode(), "f")
    assert again is not None
    assert again.plain() == root.plain()
