"""fmt: one order and one indentation; comments, blank lines, quotes and above all the data stay."""

import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kodoctl.topology.fmt.formatter import format_text
from kodoctl.topology.fmt.tree import CannotFormatError
from kodoctl.topology.yaml.comments import find_comments
from kodoctl.topology.yaml.nodes import parse
from tests.unit.topology.valid import topologies, written

ROOT = Path(__file__).parents[4]


def text(body: str) -> str:
    return textwrap.dedent(body).lstrip("\n")


PAIRS = {
    "keys come in the order of the models": (
        """
        topics: {}
        namespace: n
        version: 1
        tenant: k
        name: n
        """,
        """
        version: 1
        name: n
        tenant: k
        namespace: n
        topics: {}
        """,
    ),
    "names of the user keep their order": (
        """
        topics:
          b: {}
          a: {}
        """,
        """
        topics:
          b: {}
          a: {}
        """,
    ),
    "comments and blank lines above a key move with it": (
        """
        # the file

        tenant: k   # Pulsar's

        # who owns it
        # (see the wiki)
        name: n
        version: 1
        """,
        """
        # the file

        version: 1

        # who owns it
        # (see the wiki)
        name: n
        tenant: k   # Pulsar's
        """,
    ),
    "comments deeper than a key belong to what is above them": (
        """
        topics:
          a:
            backup: true
            # more about a
            levels: double
            # the end of a
          # the end of topics
        name: n
        """,
        """
        name: n
        topics:
          a:
            # more about a
            levels: double
            backup: true
            # the end of a
          # the end of topics
        """,
    ),
    "indentation is two spaces a level": (
        """
        topics:
            a:
                # deep
                subscriptions:
                        s:
                            limits:
                            - kind: rate
                              limit: 1/s
                            -   kind: quota
                                limit: 1/h
                            -
                                kind: concurrency
                                limit: 1
                            - {kind: rate, limit: 2/s}
        """,
        """
        topics:
          a:
            # deep
            subscriptions:
              s:
                limits:
                  - kind: rate
                    limit: 1/s
                  - kind: quota
                    limit: 1/h
                  -
                    kind: concurrency
                    limit: 1
                  - {kind: rate, limit: 2/s}
        """,
    ),
    "flow maps are put in order where they stand": (
        """
        topics: {a: {subscriptions: {s: {dead_letter: {ttl: 7d, partitions: 2}, states: []}}, levels: double}}
        """,
        """
        topics: {a: {levels: double, subscriptions: {s: {states: [], dead_letter: {partitions: 2, ttl: 7d}}}}}
        """,
    ),
    "flow maps over several lines trade their entries": (
        """
        defaults: {policies: {
          ttl: 7d,
          retention: {size: 1GiB,
                      time: 1d} }}
        """,
        """
        defaults: {policies: {
          retention: {time: 1d,
                      size: 1GiB},
          ttl: 7d }}
        """,
    ),
    "a flow map with comments in it stays": (
        """
        defaults: {policies: {ttl: 7d, # days
          retention: {time: 1d, size: 1GiB}}}
        """,
        """
        defaults: {policies: {ttl: 7d, # days
          retention: {time: 1d, size: 1GiB}}}
        """,
    ),
    "the first key of a list entry takes the dash": (
        """
        topics:
          a:
            subscriptions:
              s:
                routes:
                  # all
                  - to: L1
                    # big ones
                    when:
                      greater_than: 5
                      property: size
        """,
        """
        topics:
          a:
            subscriptions:
              s:
                routes:
                  # all
                  # big ones
                  - when:
                      property: size
                      greater_than: 5
                    to: L1
        """,
    ),
    "texts stay as they are written": (
        """
        description: |
            two
              lines # no comment

        name: 'n'
        tenant: "k"
        namespace: >-
          folded
          text
        """,
        """
        name: 'n'

        description: |
            two
              lines # no comment
        tenant: "k"
        namespace: >-
          folded
          text
        """,
    ),
    "overlays have the order of what they overlay, production first": (
        """
        environments:
          prod:
            topics: {a: {backup: true, levels: null}}
            defaults: {partitions: 3}
            production: true
          dev: {}
        """,
        """
        environments:
          prod:
            production: true
            defaults: {partitions: 3}
            topics: {a: {levels: null, backup: true}}
          dev: {}
        """,
    ),
    "anchors and aliases stay with their entries": (
        """
        topics:
          a: &one
            backup: true
            levels: &l [L1, L2]
          b: *one
          c:
            draining: []
            levels: *l
            producers:
            - &p shop
            -   *p
        """,
        """
        topics:
          a: &one
            levels: &l [L1, L2]
            backup: true
          b: *one
          c:
            levels: *l
            draining: []
            producers:
              - &p shop
              - *p
        """,
    ),
    "nested lists and anchored lists keep their dashes": (
        """
        forget: &all
        - a.b
        -
          c.d
        allow_destroy: *all
        """,
        None,
    ),
    "what stands around the document stays": (
        """
        %YAML 1.2
        # head
        ---
        # below
        tenant: k
        name: n
        # foot
        ...
        # after
        """,
        """
        %YAML 1.2
        # head
        ---
        # below
        name: n
        tenant: k
        # foot
        ...
        # after
        """,
    ),
    "a document on one line": ("{tenant: k, name: n}  # all\n", "{name: n, tenant: k}  # all\n"),
    "trailing blanks and blank lines at the end go": ("name: n   \n#c  \n   \ntenant: k\n\n\n", "name: n\n#c\n\ntenant: k\n"),
    "a missing last line break is added": ("name: n", "name: n\n"),
    "commented-out keys at the margin stay at the margin": (
        """
        topics:
            a:
        #       backup: true
                levels: double
        """,
        """
        topics:
          a:
        #       backup: true
            levels: double
        """,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", [name for name, (_, after) in PAIRS.items() if after is not None])
def test_layout(what: str) -> None:
    before, after = PAIRS[what]
    assert after is not None
    assert format_text(text(before)) == text(after)
    assert format_text(text(after)) == text(after)


def test_a_file_whose_aliases_would_come_before_their_anchors_stays() -> None:
    before, _ = PAIRS["nested lists and anchored lists keep their dashes"]
    with pytest.raises(CannotFormatError, match="an alias would come before its anchor"):
        format_text(text(before))
    swapped = text(before).replace("forget: &all", "allow_destroy: &all").replace("allow_destroy: *all", "forget: *all")
    assert format_text(swapped) == "allow_destroy: &all\n  - a.b\n  -\n    c.d\nforget: *all\n"


def test_lists_in_lists_are_laid_out_too() -> None:
    assert format_text("forget:\n-   - a\n    -   b\n- c\n") == "forget:\n  - - a\n    - b\n  - c\n"


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ("? name\n: n\n? tenant\n: k\n", "line 1 holds more than a key and its value"),
        ("name: n\rtenant: k\n", "line breaks that editors do not agree on"),
        ("name: 'n\u2028m'\n", "line breaks that editors do not agree on"),
        ("tenant: |+\n  k\n\nname: n\n", "its data would change"),
        ("", "it is empty"),
    ],
)
def test_what_cannot_be_laid_out_safely_is_refused(before: str, why: str) -> None:
    with pytest.raises(CannotFormatError, match=why):
        format_text(before)


def test_line_ends_of_windows_and_a_byte_order_mark_stay() -> None:
    assert format_text("\ufefftenant: k\r\nname: n\r\n") == "\ufeffname: n\r\ntenant: k\r\n"


@pytest.mark.parametrize("path", sorted((ROOT / "topologies").rglob("*.yaml")), ids=lambda path: path.stem)
def test_our_topologies_are_laid_out(path: Path) -> None:
    assert format_text(path.read_text(encoding="utf-8")) == path.read_text(encoding="utf-8")


@given(topologies(), st.data())
def test_layout_is_stable_and_changes_neither_data_nor_comments(document: dict[str, Any], data: st.DataObject) -> None:
    before = written(document, data.draw)
    try:
        after = format_text(before)
    except CannotFormatError:
        pytest.fail(f"refused:\n{before}")
    assert format_text(after) == after
    assert plain(after) == plain(before)
    assert comments(after) == comments(before)


def plain(source: str) -> Any:
    root, findings = parse(source.encode(), "f")
    assert root is not None
    assert not findings
    return root.plain()


def comments(source: str) -> list[str]:
    return sorted(comment.text for comment in find_comments(source))
