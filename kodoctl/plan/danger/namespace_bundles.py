# pure: every branch is tested
"""Bundles of namespaces (K444): their number is fixed when a namespace is created, and brokers alone raise it later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kodoctl.errors import Diagnostic, warning
from kodoctl.topology.resources import NamespaceResource

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired
    from kodoctl.pulsar.values.live_objects import Live


def bundle_findings(desired: Desired, live: Live) -> Iterator[Diagnostic]:
    """Yields a warning (K444) for each namespace that exists with fewer bundles than its file declares. More are no
    finding, because brokers split bundles under load; nor is a number that could not be read.
    """
    for wanted in desired.objects.values():
        match wanted.resource:
            case NamespaceResource(name=name, policies=policies) if name in live.bundles:
                there, declared = live.bundles[name], policies.get("bundles", 0)
                if there < declared:
                    detail = (
                        f"{name} has {there} bundles, the file says {declared}: an apply does not change the number"
                    )
                    yield warning("K444", "fewer bundles than declared", detail, wanted.where)
            case _:
                pass
