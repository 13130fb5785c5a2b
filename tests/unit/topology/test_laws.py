"""What holds for every file: any text gives findings or a topology, expansion is total, names are unique unless K102."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kodoctl.render.findings import RENDERERS
from kodoctl.topology.expand import Expansion, expand
from kodoctl.topology.expansion_json import expansion_document
from kodoctl.topology.graph import lane_graph
from kodoctl.topology.lint.linter import check_set, lint
from kodoctl.topology.load import environments_of, load_set, source_of
from tests.samples.profiles import examples
from tests.unit.topology.topology_files import FILE
from tests.unit.topology.valid import topologies, written

KEYS = st.sampled_from(
    [
        "version",
        "name",
        "tenant",
        "namespace",
        "topics",
        "defaults",
        "policies",
        "retention",
        "time",
        "size",
        "ttl",
        "levels",
        "backup",
        "subscriptions",
        "states",
        "environments",
        "prod",
        "production",
        "limits",
        "kind",
        "by",
        "limit",
        "routes",
        "when",
        "to",
        "property",
        "payload",
        "type",
        "schema",
        "audit",
        "dead_letter",
        "draining",
        "formerly",
        "<<",
    ]
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 2**40),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        [
            "1",
            "7d",
            "1GiB",
            "100/s",
            "unlimited",
            "inherit",
            "double",
            "L1",
            "L9",
            "B1",
            "retrying",
            "rate",
            "no",
            "é",
            "a b",
            "\u2028",
            "../x",
        ]
    ),
)
SHAPELESS = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=25
)
HEADED = st.builds(
    lambda rest, topics: {"version": 1, "name": "n", "tenant": "k", "namespace": "s", **rest, "topics": topics},
    st.dictionaries(KEYS, SHAPELESS, max_size=3),
    st.dictionaries(st.sampled_from(["a", "a-L2", "b c", ""]), SHAPELESS, max_size=3),
)


def everything(data: bytes) -> None:
    """Reads, lints and prints, as the command does."""
    report = lint([source_of(data, FILE)])
    for render in RENDERERS.values():
        render(report)
    assert report.findings or report.files == 1


@given(st.binary(max_size=300))
def test_any_bytes_are_linted_to_an_end(data: bytes) -> None:
    everything(data)


@given(SHAPELESS | HEADED, st.data())
@examples(200)
def test_any_yaml_is_linted_to_an_end(document: Any, data: st.DataObject) -> None:
    everything(
        written(document, data.draw).encode()
        if isinstance(document, dict | list) and document
        else repr(document).encode()
    )


def every_expansion(document: dict[str, Any], draw: Any) -> list[Expansion]:
    files = [source_of(written(document, draw).encode(), FILE)]
    found = []
    for environment in (None, *environments_of(files)):
        loaded = load_set(files, environment)
        assert not loaded.findings, [str(finding) for finding in loaded.findings]
        found.append(expand(loaded.topologies[0]))
    return found


@given(topologies(), st.data())
def test_what_loads_expands_explains_and_draws(document: dict[str, Any], data: st.DataObject) -> None:
    for expansion in every_expansion(document, data.draw):
        shown = expansion_document([expansion], expansion.topology.environment, explain=True)
        assert shown["resources"].keys() == expansion.resources.keys() == expansion.places.keys()
        lane_graph([expansion])


@given(topologies(), st.data())
def test_names_are_unique_unless_lint_says_k102(document: dict[str, Any], data: st.DataObject) -> None:
    files = [source_of(written(document, data.draw).encode(), FILE)]
    (expansion,), findings = check_set(files, None)
    twice = [name for name, times in Counter(topic.name.full for topic in expansion.topics).items() if times > 1]
    assert bool(twice) <= ("K102" in {finding.code for finding in findings})


@given(topologies(), st.data())
def test_the_same_file_gives_the_same_resources(document: dict[str, Any], data: st.DataObject) -> None:
    text = written(document, data.draw).encode()
    first, second = (expand(load_set([source_of(text, FILE)], None).topologies[0]) for _ in range(2))
    assert first.resources == second.resources
    assert list(first.resources) == list(second.resources)
