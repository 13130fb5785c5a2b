"""Signatures of control properties: what they cover, what keys are taken, what is printed of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kodoctl.protocol.signing import Signer, is_unmarked, strip_platform_properties

OLD, NEW = "old-key-0123456789", "new-key-0123456789"
TOPIC = "persistent://kodo/trade/orders"
PROPERTIES = {"kodo-id": "order-1", "kodo-hop": "1", "uid": "u1"}
texts = st.text(max_size=8)


def test_any_key_verifies_and_the_first_signs() -> None:
    both = Signer([NEW, OLD])
    by_old, by_both = (signer.signed(TOPIC, b"x", PROPERTIES) for signer in (Signer([OLD]), both))
    assert both.genuine(TOPIC, b"x", by_old)
    assert both.genuine(TOPIC, b"x", by_both)
    assert Signer([NEW]).genuine(TOPIC, b"x", by_both)
    assert not Signer([NEW]).genuine(TOPIC, b"x", by_old), "a key that was taken out counts no more"
    assert not Signer([OLD]).genuine(TOPIC, b"x", by_both)


@pytest.mark.parametrize(
    ("topic", "payload", "changes"),
    [
        (f"{TOPIC}-L2", b"x", {}),
        (TOPIC, b"y", {}),
        (TOPIC, None, {}),
        (TOPIC, b"", {}),
        (TOPIC, b"x", {"kodo-hop": "0"}),
        (TOPIC, b"x", {"kodo-attempts-retrying": "0"}),
        (TOPIC, b"x", {"kodo-signature": ""}),
        (TOPIC, b"x", {"kodo-signature": "1.é"}),
        (TOPIC, b"x", {"kodo-signature": "x" * 1_000_000}),
    ],
)
def test_whatever_is_changed_breaks_it(topic: str, payload: bytes | None, changes: dict[str, str]) -> None:
    signer = Signer([OLD])
    signed = signer.signed(TOPIC, b"x", PROPERTIES)
    assert not signer.genuine(topic, payload, signed | changes)
    assert not signer.genuine(TOPIC, b"x", {k: v for k, v in signed.items() if k != "kodo-id"}), "or left out"
    assert not signer.genuine(TOPIC, b"x", PROPERTIES), "or not signed at all"


def test_a_partition_is_its_topic_and_users_properties_are_theirs() -> None:
    signer = Signer([OLD])
    signed = signer.signed(f"{TOPIC}-partition-3", b"x", PROPERTIES)
    assert signer.genuine(TOPIC, b"x", signed | {"uid": "u2"})
    assert signer.signed(TOPIC, b"x", signed) == signed, "an old signature is replaced, not signed"


@given(st.dictionaries(texts, texts, max_size=3), st.dictionaries(texts, texts, max_size=3))
def test_no_two_messages_have_one_signature(one: dict[str, str], other: dict[str, str]) -> None:
    signer = Signer([OLD])
    left, right = ({f"kodo-{k}": v for k, v in found.items() if k != "signature"} for found in (one, other))
    signature = signer.signed(TOPIC, b"", left)["kodo-signature"]
    assert signer.genuine(TOPIC, b"", {**right, "kodo-signature": signature}) == (left == right)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "no key"),
        ("", "fewer than 16 characters"),
        ([OLD, "guessme"], "key 2 has fewer than 16 characters"),
        (7, "write a list of texts"),
        ([7], "write a list of texts"),
    ],
)
def test_keys_that_are_none_are_refused_and_never_shown(value: object, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        Signer.parse(value)
    assert "guessme" not in str(refused.value)


def test_keys_come_as_list_or_text_and_are_not_printed() -> None:
    signer = Signer.parse(f"{NEW}, {OLD}")
    assert repr(signer) == "Signer(2 keys)"
    assert signer.genuine(TOPIC, b"x", Signer.parse([OLD]).signed(TOPIC, b"x", PROPERTIES))


def test_what_is_the_platforms_and_what_is_not() -> None:
    assert strip_platform_properties(PROPERTIES) == {"uid": "u1"}
    assert is_unmarked({"uid": "u1", "KODO-hop": "7"})
    assert not is_unmarked(PROPERTIES)


def test_what_an_encrypted_payload_needs_is_kept_as_nothing_is_decided_by_it() -> None:
    assert strip_platform_properties({"kodo-encryption": "{}", "kodo-hop": "7"}) == {"kodo-encryption": "{}"}
    assert is_unmarked({"kodo-encryption": "{}"})
