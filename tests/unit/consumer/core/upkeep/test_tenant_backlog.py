"""The tenant that causes a backlog, and the command that helps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kodo_consumer.core.upkeep.tenant_backlog import NO_TENANT, TenantCause, TenantShare, tenant_cause
from kodo_consumer.core.values.limit_policy import NOBODY, Concurrency
from kodo_consumer.core.values.policy import IsolationPolicy, Policy

from kodoctl.topology.names import Level
from tests.unit.consumer.engine_bench import policy

ONE = replace(policy(levels=(Level.L1,)), fair_by="uid")
WITH_BACKUP = replace(policy(levels=(Level.L1, Level.B1)), fair_by="uid")
FEW_SLOTS = "--value=acme --to=2` gives it fewer slots"


def _shares(*shares: tuple[str, float]) -> list[TenantShare]:
    return [TenantShare(*one) for one in shares]


def test_the_largest_share_is_of_everything_that_was_counted() -> None:
    assert TenantShare.largest({"a": 3, "b": 1}, 8) == ("a", 3 / 8)
    assert TenantShare.largest({"a": 3}, 2) == ("a", 1.0), "figures of two moments"
    assert TenantShare.largest({}, 8) == NO_TENANT


def test_a_tenant_is_the_cause_with_most_of_the_messages_or_of_the_time() -> None:
    even = _shares(("a", 0.4), ("b", 0.5))
    assert tenant_cause(even, even) is None
    assert tenant_cause(_shares(("a", 0.9), ("a", 0.8)), even) == ("a", pytest.approx(0.85), 0.2)
    assert tenant_cause(even, _shares(("b", 0.7), ("b", 0.7))) == ("b", 0.25, 0.7)
    assert tenant_cause(_shares(("a", 1.0), ("a", 0.8)), []) == ("a", 0.9, 0.0)
    assert tenant_cause([], []) is None
    assert tenant_cause([NO_TENANT], [NO_TENANT]) is None


def test_a_tenant_that_is_alone_and_messages_without_one_are_no_cause() -> None:
    alone = _shares(("a", 1.0), ("a", 1.0))
    assert tenant_cause(alone, alone) is None
    assert tenant_cause(_shares((NOBODY, 0.9)), _shares((NOBODY, 0.9))) is None


def _limited(by: str | None, **overrides: int) -> Policy:
    return replace(ONE, limits=(Concurrency(by, 8, shared=False, overrides=overrides),))


@pytest.mark.parametrize(
    ("of", "remedy"),
    [
        (ONE, "declare a level below L1 to move it to, a concurrency limit by uid, or `isolate`"),
        (_limited("bank"), "declare a level below L1"),
        (_limited("uid", acme=4), FEW_SLOTS),
        (_limited("uid"), FEW_SLOTS.replace("=2", "=4")),
        (_limited("uid", acme=1), "declare a level below L1"),
        (WITH_BACKUP, "--tenant=acme --to=B1` lets the others go first"),
        (replace(WITH_BACKUP, subscription_type="key_shared"), "declare a level below L1"),
        (
            replace(WITH_BACKUP, subscription_type="key_shared", isolate=IsolationPolicy(0.5, 10, "pending")),
            "`kodo-consumer pause FILE --topic t --subscription s --tenant=acme` lets it wait",
        ),
    ],
)
def test_the_remedy_is_an_order_that_the_subscription_can_follow(of: Policy, remedy: str) -> None:
    text = TenantCause("acme", 0.8, 0.9).text(of)
    assert text.startswith("tenant 'acme' has 80% of the waiting messages and 90% of the handlers' time: ")
    assert remedy in text


def test_the_whole_command() -> None:
    text = TenantCause("a c'me", 0.8, 0.1).text(WITH_BACKUP)
    assert text == (
        'tenant "a c\'me" has 80% of the waiting messages: `kodo-consumer move FILE --topic t --subscription s'
        """ "--tenant=a c'me" --to=B1` lets the others go first"""
    )


@pytest.mark.parametrize("tenant", ["a\nERROR forged", "\x1b[2J", "\u202eevil", "`rm -rf /`", "-x", "a" * 300])
def test_a_hostile_tenant_forges_nothing(tenant: str) -> None:
    text = TenantCause(tenant, 0.8, 0.1).text(WITH_BACKUP)
    assert text.isprintable()
    assert len(text) < 400
    assert tenant not in text or tenant in ("-x", "`rm -rf /`")
    if tenant.isprintable() and len(tenant) < 200:
        assert "--tenant" in text
