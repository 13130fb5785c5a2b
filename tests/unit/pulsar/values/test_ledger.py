"""The ownership ledger as a property's text: exact both ways, refused when damaged, bounded."""

from __future__ import annotations

import base64
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kodoctl.errors import ClusterError
from kodoctl.pulsar.values import ledger as ledgers
from kodoctl.pulsar.values.ledger import Ledger, OwnershipKind, Source, decode, encode
from kodoctl.topology.names import NamespaceName
from tests.samples.inventories import HERE, applied, empty, planned, topology, wanted

_TEXT = st.text(max_size=20)
_LOCAL = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
_ADDRESS = st.builds(
    lambda kind, name: f"{kind}.persistent://acme/ns/{name}", st.sampled_from(["topic", "subscription"]), _LOCAL
) | st.just("namespace.acme/ns")
_GRANT = st.builds(
    lambda place, role: f"grant.{place}/{role}",
    st.sampled_from(["acme/ns", "persistent://acme/ns/J", "persistent://other/ns/J"]),
    _LOCAL,
)
_LEDGERS = st.builds(
    Ledger,
    name=st.just("trade"),
    namespace=st.just(HERE),
    source=st.builds(Source, st.none() | _TEXT, st.none() | _TEXT),
    environment=st.none() | _TEXT,
    digest=_TEXT,
    owned=st.dictionaries(_ADDRESS, st.sampled_from(OwnershipKind), max_size=8),
    namespace_keys=st.frozensets(_TEXT, max_size=3),
    grants=st.dictionaries(_GRANT, st.frozensets(st.sampled_from(["consume", "produce"])), max_size=4),
    consumers=st.dictionaries(_TEXT, st.dictionaries(_TEXT, st.integers() | _TEXT, max_size=2), max_size=2),
    databases=st.dictionaries(_TEXT, _TEXT, max_size=2),
)


@given(_LEDGERS)
def test_an_entry_reads_back_as_it_was_written(entry: Ledger) -> None:
    assert decode("trade", HERE, encode(entry)) == entry


@given(_LEDGERS)
def test_the_same_entry_is_always_the_same_text(entry: Ledger) -> None:
    assert encode(decode("trade", HERE, encode(entry))) == encode(entry)


@given(_LEDGERS, st.data())
def test_an_entry_with_one_byte_changed_is_refused_or_says_the_same(entry: Ledger, data: st.DataObject) -> None:
    text = encode(entry)
    position = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(min_codepoint=33, max_codepoint=126))
    try:
        found = decode("trade", HERE, text[:position] + other + text[position + 1 :])
    except ClusterError:
        return
    assert found == entry  # unused bits of base64


def _packed(document: object) -> str:
    return "1:" + base64.b64encode(zlib.compress(json.dumps(document).encode())).decode()


@pytest.mark.parametrize(
    "text",
    ["1:", "1:!!", "1:" + base64.b64encode(b"no zlib").decode(), _packed([]), _packed({}), _packed(None), _packed({"source": 1})],
    ids=["empty", "no base64", "no zlib", "a list", "no members", "null", "wrong types"],
)  # fmt: skip
def test_a_damaged_entry_is_told_with_the_way_out(text: str) -> None:
    with pytest.raises(ClusterError) as caught:
        decode("trade", HERE, text)
    [finding] = caught.value.diagnostics
    assert finding.code == "K521"
    assert "acme/ns" in finding.detail
    assert "'trade'" in finding.detail
    assert "remove it and adopt again" in finding.detail


def test_a_cut_entry_is_refused_and_never_read_in_part() -> None:
    text = encode(Ledger("trade", HERE, owned={"topic.persistent://acme/ns/J": OwnershipKind.CREATED}))
    for end in range(2, len(text) - 1):
        with pytest.raises(ClusterError):
            decode("trade", HERE, text[:end])


def test_an_entry_of_another_format_names_the_newer_kodoctl() -> None:
    with pytest.raises(ClusterError) as caught:
        decode("trade", HERE, "2:anything")
    assert caught.value.diagnostics[0].code == "K520"
    assert "a newer kodoctl" in caught.value.diagnostics[0].detail


def test_a_bomb_in_the_property_is_refused_before_it_fills_the_memory() -> None:
    bomb = "1:" + base64.b64encode(zlib.compress(b"[" + b" " * (65 << 20), 9)).decode()
    with pytest.raises(ClusterError, match="too large"):
        decode("trade", HERE, bomb)


def test_addresses_of_the_own_namespace_cost_no_prefix() -> None:
    near = Ledger("trade", HERE, owned={f"topic.persistent://acme/ns/t{n}": OwnershipKind.CREATED for n in range(200)})
    far = Ledger("trade", NamespaceName("acme", "far"), owned=near.owned)
    assert len(encode(near)) < len(encode(far))


def test_a_plan_whose_ledgers_would_not_fit_says_so_before_anything_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = applied(wanted(topology("{K: {}}", name="other")))
    side = wanted(topology())
    sizes = [len(encode(entry)) for there in (theirs, applied(side)) for entry in there.ledgers[HERE].values()]
    monkeypatch.setattr(ledgers, "MAX_BYTES", max(sizes))  # room for one of them
    plan = planned(side, theirs)
    assert [finding.code for finding in plan.findings] == ["K420"]
    assert "split the topologies over namespaces" in plan.findings[0].detail
    assert not planned(side, empty()).refused


def _entry(**changes: object) -> str:
    """An entry as it could be, with some of it replaced."""
    true = {"v": 1, "source": [None, None], "env": None, "digest": "d", "owned": {}, "keys": [], "grants": {}}
    return _packed({**true, "consumers": {}, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"owned": {"created": ["topic.persistent://bank/payments/t"]}},
        {"owned": {"created": ["namespace.bank/payments"]}},
        {"owned": {"created": ["tenant.a/b"]}},
        {"owned": {"created": ["cluster."]}},
        {"owned": {"created": ["topic.x"]}},
        {"owned": {"created": ["topic.persistent://acme/../ns/x"]}},
        {"owned": {"created": [5]}},
        {"grants": {"grant.x": ["produce"]}},
        {"grants": {"grant.persistent://../ns/t/payer": ["produce"]}},
        {"grants": {"topic.persistent://acme/ns/t": ["produce"]}},
        {"grants": {"grant.acme/ns/payer": [5]}},
        {"consumers": {"J/s": 5}},
        {"consumers": []},
        {"digest": 5},
        {"env": 5},
        {"keys": [5]},
        {"source": [5, None]},
    ],
    ids=str,
)
def test_an_entry_speaks_of_its_own_namespace_and_of_addresses_only(changes: dict[str, object]) -> None:
    """Whoever may write one namespace's properties wrote of another tenant's, or ended every plan with a defect."""
    assert decode("trade", HERE, _entry()).owned == {}
    with pytest.raises(ClusterError) as caught:
        decode("trade", HERE, _entry(**changes))
    assert caught.value.diagnostics[0].code == "K521"


@given(st.dictionaries(st.sampled_from(["source", "env", "digest", "owned", "keys", "grants", "consumers"]), st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=6,
)))  # fmt: skip
def test_whatever_an_entry_holds_it_is_read_or_refused(changes: dict[str, object]) -> None:
    try:
        found = decode("trade", HERE, _entry(**changes))
    except ClusterError:
        return
    assert decode("trade", HERE, encode(found)) == found
