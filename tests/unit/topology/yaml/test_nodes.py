"""YAML text to nodes: values of YAML 1.2 with their places, and an end to whatever is hostile."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kodoctl.topology.yaml import nodes
from kodoctl.topology.yaml.nodes import Node, parse


def root_of(text: str) -> Node:
    root, findings = parse(text.encode(), "f.yaml")
    assert not findings, [str(finding) for finding in findings]
    assert root is not None
    return root


def findings_of(data: str | bytes) -> list[tuple[str, int, int, str]]:
    raw = data.encode() if isinstance(data, str) else data
    found = []
    for finding in parse(raw, "f.yaml")[1]:
        assert finding.where is not None
        found.append((finding.code, finding.where.line, finding.where.column, f"{finding.summary}: {finding.detail}"))
    return found


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"), ("yes", "yes"), ("on", "on"), ("off", "off"), ("true", True), ("FALSE", False), ("~", None),
        ("null", None), ("", None), ("7", 7), ("-7", -7), ("+7", 7), ("010", 10), ("0o10", 8), ("0x1F", 31), ("1_000", "1_000"),
        ("1.5", 1.5), ("1.", 1.0), (".5", 0.5), ("1e3", 1000.0), (".inf", math.inf), ("-.INF", -math.inf), ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"), ("'7'", "7"), ('"true"', "true"), ("=", "="), ("-", "-"), ("7d", "7d"),
        ("1234567890123456789", 1234567890123456789), ("18446744073709551615", 2**64 - 1), ("1" * 30, float("1" * 30)),
    ],
)  # fmt: skip
def test_plain_values_mean_what_yaml_1_2_says(text: str, value: object) -> None:
    root = root_of(f"key: {text}\n" if text != "-" else "key: '-'\n")
    assert root.plain() == {"key": value}


def test_nan_is_a_number_that_is_none() -> None:
    value = root_of("key: .nan").plain()
    assert isinstance(value, dict)
    assert math.isnan(float(str(value["key"])))


def test_every_value_knows_where_it_and_its_key_stand() -> None:
    root = root_of("a:\n  b: [x, {c: d}]\n")
    assert isinstance(root.value, dict)
    inner = root.value["a"]
    assert isinstance(inner.value, dict)
    items = inner.value["b"]
    assert isinstance(items.value, list)
    found = [(str(node.where), str(node.key_where)) for node in (inner, items, *items.children())]
    assert found == [
        ("f.yaml:2:3", "f.yaml:1:1"),
        ("f.yaml:2:6", "f.yaml:2:3"),
        ("f.yaml:2:7", "f.yaml:2:7"),
        ("f.yaml:2:10", "f.yaml:2:10"),
    ]


def test_a_node_knows_where_it_ends() -> None:
    root = root_of("a: {x: 1,\n  y: 2}\nb:\n  c: |\n    text\nd: []\ne: {}\n")
    assert isinstance(root.value, dict)
    assert [(key, node.end_line) for key, node in root.value.items()] == [("a", 2), ("b", 5), ("d", 6), ("e", 7)]


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    root, findings = parse(b"\xef\xbb\xbfa: 1", "f.yaml")
    assert (findings, root and root.plain()) == ([], {"a": 1})


def test_an_alias_is_a_value_of_its_own_with_the_place_of_the_anchor() -> None:
    root = root_of("a: &x {k: 1}\nb: *x\nc: [*x]\nd: &y 5\ne: *y\n")
    assert root.plain() == {"a": {"k": 1}, "b": {"k": 1}, "c": [{"k": 1}], "d": 5, "e": 5}
    assert isinstance(root.value, dict)
    assert (str(root.value["b"].where), str(root.value["b"].key_where)) == ("f.yaml:1:4", "f.yaml:2:1")


@pytest.mark.parametrize(
    ("data", "code", "line", "column", "says"),
    [
        ("", "K001", 0, 0, "`kodoctl init` writes an example"),
        ("# nothing\n", "K001", 0, 0, "empty file"),
        ("a: [1\nb: 2", "K001", 2, 2, "did not find expected ',' or ']'"),
        ("a: 1\n b: 2", "K001", 2, 2, "this line stands further in than line 1, whose `a` has a value already"),
        ("a: b: c", "K001", 1, 5, "mapping values are not allowed"),
        ("a:\n\t- b", "K001", 2, 1, "this is a tab; indent with spaces"),
        ("a: b: c", "K001", 1, 5, "a text with `: ` in it needs quotes"),
        ("a: @b", "K001", 1, 4, "a text that begins with @ needs quotes"),
        ("a: 'b", "K001", 1, 4, "the quote that opens here is never closed"),
        ('x: 1\na: "b\nc: 1\nd: 2', "K001", 2, 4, "the quote that opens here is never closed"),
        ("a:\n  b: 1\n c: 2", "K001", 3, 2, "look at the indentation here"),
        ("a: 1\nb", "K001", 3, 1, "a key is followed by a colon"),
        ("[a]: 1", "K001", 1, 1, "lists, maps and aliases cannot be keys"),
        ("? a\n: &x 1\n? *x\n: 2", "K001", 3, 3, "lists, maps and aliases cannot be keys"),
        ('"a\\nb": 1', "K001", 1, 1, "write it on one line"),
        ("a: 1\nb: 2\na: 3", "K002", 3, 1, "'a' stands on line 1 already"),
        ('a: 1\n"a": 3', "K002", 2, 1, "'a' stands on line 1 already"),
        ("a: *nobody", "K008", 1, 4, "*nobody: no such anchor before this place"),
        ("a: &a [*a]", "K008", 1, 8, "*a: it would contain itself"),
        (b"a: \x00", "K012", 1, 4, "U+0000 is not allowed"),
        (b"a: 1\nb: \xff\n", "K012", 2, 4, "byte 0xff is not UTF-8"),
        (b"\xef\xbb\xbfa: 1\nb: \xc3\xbc\xff", "K012", 2, 5, "byte 0xff is not UTF-8"),
        ("a: 1\nb: '\x1b[31m'", "K012", 2, 5, "U+001B is not allowed"),
        ('a: 1\nb: "\\e[31m"', "K012", 2, 4, "U+001B, written as an escape"),
        ('"\\e": 1', "K012", 1, 1, "U+001B, written as an escape"),
        ("a: !!python/object/apply:os.system [x]", "K013", 1, 4, "python/object/apply:os.system"),
        ("a: !mine 5", "K013", 1, 4, "!mine"),
        ("a: ! 5", "K013", 1, 4, "!: remove it"),
        ("!!str a: 5", "K013", 1, 1, "quote the value to make it a text"),
        ("a: 1\n--- \nb: 2", "K014", 2, 1, "one file holds one document"),
        ("a: &a {x: 1}\nb:\n  <<: *a", "K011", 3, 3, "write the keys out"),
        ("a: " + "[" * 64 + "]" * 64, "K010", 1, 67, "more than 64 levels"),
        ("a:\n" + "- " * 80 + "x", "K010", 2, 127, "more than 64 levels"),
    ],
)
def test_what_cannot_be_read_says_what_and_where(
    data: str | bytes, code: str, line: int, column: int, says: str
) -> None:
    found = findings_of(data)
    assert found[0][:3] == (code, line, column)
    assert says in found[0][3]


def test_a_quoted_merge_key_is_an_ordinary_key() -> None:
    assert root_of("'<<': 1\n").plain() == {"<<": 1}


def test_sixty_four_levels_are_allowed() -> None:
    assert not findings_of("[" * 64 + "]" * 64)


@pytest.mark.parametrize(("inner", "outer", "allowed"), [(30, 33, True), (30, 34, False), (60, 60, False)])
def test_aliases_count_with_the_levels_of_what_they_stand_for(inner: int, outer: int, *, allowed: bool) -> None:
    text = f"a: &a {'[' * inner}{']' * inner}\nb: {'[' * outer}*a{']' * outer}\n"
    assert [found[0] for found in findings_of(text)] == ([] if allowed else ["K010"])
    chain = "".join(f"k{n}: &k{n} {'[' * 20}{f'*k{n - 1}' if n else ''}{']' * 20}\n" for n in range(100))
    assert [found[0] for found in findings_of(chain)] == ["K010"]


def test_an_alias_may_stand_for_the_text_of_a_key() -> None:
    assert root_of("a: &x 1\n&x b: 2\nc: *x\n").plain() == {"a": 1, "b": 2, "c": "b"}
    assert [found[0] for found in findings_of('&x "\\e": 1')] == ["K012"]


def test_a_file_of_just_eight_mebibytes_is_read_and_one_byte_more_is_not() -> None:
    assert not findings_of(b"a: 1\n#" + b"x" * (nodes.MAX_BYTES - 6))
    assert [found[0] for found in findings_of(b"a: 1\n#" + b"x" * (nodes.MAX_BYTES - 5))] == ["K009"]


def test_aliases_may_not_stand_for_more_values_than_the_budget() -> None:
    text = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 10)}]\n" for n in range(8)
    )
    assert [found[0] for found in findings_of(text)] == ["K008"]


@pytest.mark.parametrize("text", ["[" + "1," * 20_001 + "]", "".join(f"k{n}: 1\n" for n in range(20_001))])
def test_lists_and_maps_may_not_grow_without_end(text: str) -> None:
    code, _, _, says = findings_of(text)[0]
    assert code == "K008"
    assert "more than 20,000 in one list or map" in says


def test_a_file_may_not_hold_values_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MAX_NODES", 100)
    assert findings_of("\n".join(f"k{n}: [1, 2, 3]" for n in range(50)))[0][0] == "K008"


def test_no_more_findings_are_collected_than_anybody_reads() -> None:
    assert len(findings_of("a: 1\n" * 1000)) == nodes.MAX_FINDINGS


@given(st.binary(max_size=200))
def test_any_bytes_give_a_tree_or_findings(data: bytes) -> None:
    root, findings = parse(data, "f.yaml")
    assert root is not None or findings


YAMLISH = st.text(alphabet=st.sampled_from(list("abk:-?[]{}&*!|>'\"%#@,.~ \n\t\\x0189é\u2028\x85")), max_size=60)


@given(YAMLISH)
def test_any_text_that_looks_like_yaml_gives_a_tree_or_findings(text: str) -> None:
    root, findings = parse(text.encode(), "f.yaml")
    assert root is not None or findings
    if root is not None:
        root.plain()
