"""Sources of change data in the live inventory: which of their objects a plan reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from kodoctl.topology.resources import Address, PublicationResource, database_of

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired
    from kodoctl.pulsar.values.live_objects import Live


def with_sources(live: Live, desired: Desired, variables: Mapping[str, str]) -> Live:
    """Returns the live inventory with the publications and slots that the files declare, or that ledger entries of
    their topologies list. `variables`: the environment variables with the URLs.
    """
    entries = (entry.addresses for entry in live.entries if entry.name in desired.all_names)
    tables: dict[str, frozenset[str]] = {}
    for wanted in desired.objects.values():
        if isinstance(one := wanted.resource, PublicationResource):
            tables[one.database] = tables.get(one.database, frozenset()) | one.tables
    return with_objects(live, frozenset(desired.objects).union(*entries), variables, tables)


def with_objects(
    live: Live,
    addresses: Iterable[Address],
    variables: Mapping[str, str],
    tables: Mapping[str, frozenset[str]] | None = None,
) -> Live:
    """Returns the live inventory with the publications and slots among these addresses, each with the other one of its
    source. `tables`: variable of a database -> tables to look at; None: none.
    """
    found = frozenset(_both(addresses))
    if not found:
        return live
    from kodoctl.database.change_objects import read_sources

    return read_sources(live, found, variables, tables or {})


def _both(addresses: Iterable[Address]) -> Iterator[Address]:
    for address in addresses:
        if database_of(address) is not None:
            name = address.partition(".")[2]
            yield from (f"publication.{name}", f"slot.{name}")
