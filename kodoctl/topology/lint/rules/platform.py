"""K114: objects of the whole cluster that Pulsar refuses, or that two files or entries declare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kodoctl.errors import Severity
from kodoctl.topology.lint.registry import LintScope, RuleMatch, rule
from kodoctl.topology.names import why_not_pulsar_name

if TYPE_CHECKING:
    from kodoctl.topology.expand import Expansion
    from kodoctl.topology.model.platform import Platform

UNUSABLE_OBJECT: Final = "an object of the cluster that cannot be"
_KINDS: Final = ("tenants", "clusters", "resource_groups", "failure_domains", "isolation_policies")


def _platforms(scope: LintScope) -> Iterator[tuple[Expansion, Platform]]:
    """Yields (expansion, its `platform`) for every file that has one."""
    for expansion in scope.expansions:
        if (platform := expansion.topology.spec.platform) is not None:
            yield expansion, platform


@rule("K114", Severity.ERROR, UNUSABLE_OBJECT)
def platform_names(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds names under `platform` that Pulsar refuses, and a tenant there that `create_tenant` of the same file
    declares with other values.
    """
    for expansion, platform in _platforms(scope):
        for kind in _KINDS:
            for name in getattr(platform, kind):
                if reason := why_not_pulsar_name(name):
                    yield RuleMatch(expansion.topology.where_key("platform", kind, name), f"{name!r}: {reason}")
        spec = expansion.topology.spec
        own, created = platform.tenants.get(spec.tenant), spec.create_tenant
        if (
            own
            and created
            and (set(own.clusters), set(own.admin_roles))
            != (
                set(created.clusters),
                set(created.admin_roles),
            )
        ):
            detail = f"`create_tenant` declares {spec.tenant!r} with other values: take it out"
            yield RuleMatch(expansion.topology.where_key("platform", "tenants", spec.tenant), detail)


@rule("K114", Severity.ERROR, UNUSABLE_OBJECT)
def failure_domain_brokers(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds a broker in two failure domains, which Pulsar refuses."""
    domains: dict[str, str] = {}
    for expansion, platform in _platforms(scope):
        for name, domain in platform.failure_domains.items():
            for index, broker in enumerate(domain.brokers):
                if (other := domains.setdefault(broker, name)) != name:
                    where = expansion.topology.where("platform", "failure_domains", name, "brokers", index)
                    yield RuleMatch(where, f"{broker} is in the failure domain {other!r} already: keep it in one")
