"""Sources of change data in the live inventory: which of their objects a plan reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kodoctl.pulsar.values.live_objects import DatabaseFacts
from kodoctl.topology.resources import Address, PublicationResource, database_of, namespace_of_address

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired
    from kodoctl.pulsar.values.live_objects import Live


def with_sources(live: Live, desired: Desired, variables: Mapping[str, str]) -> Live:
    """Reads the databases, and returns the live inventory with those publications and slots that the files declare, or
    that ledger entries of their topologies list, as far as they exist. `variables`: the environment variables with the
    URLs. A database that cannot be read, or is another one than a ledger entry with one of these objects names, raises
    nothing: it has a `problem` in `databases`, and its objects are not in the result. Blocks.
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
    """Does the same as `with_sources` for the sources whose publication or slot is among these addresses; reads both,
    even if only one is. `tables`: variable of a database -> tables to look at; None: no tables are looked at. Returns
    `live` itself if no address is one of a source.
    """
    found = frozenset(_both(addresses))
    if not found:
        return live
    from kodoctl.database.change_objects import read_sources

    return _without_others(read_sources(live, found, variables, tables or {}), found)


def _without_others(live: Live, addresses: Iterable[Address]) -> Live:
    """The live inventory without objects of databases that are not those of the last apply: what they lack is not gone,
    and what they have is not ours.
    """
    databases = dict(live.databases)
    for address in sorted(addresses):
        place = database_of(address)
        facts = databases.get(place[0]) if place else None
        if place is None or facts is None or facts.problem:
            continue
        for entry in live.entries:
            known = entry.databases.get(place[0], facts.identity)
            if address in entry.owned and known != facts.identity:
                databases[place[0]] = DatabaseFacts(_other_database(address, place[0], known, facts), is_other=True)
    others = {variable for variable, facts in databases.items() if facts.is_other}
    objects = {
        address: found
        for address, found in live.objects.items()
        if (place := database_of(address)) is None or place[0] not in others
    }
    return replace(live, objects=objects, databases=databases)


def _other_database(address: Address, variable: str, known: str, facts: DatabaseFacts) -> str:
    return (
        f"{variable} names the database {facts.name}, {facts.identity} (server/database), and {address} was applied in"
        f" {known}. If the source moved for good, stop it, drop publication and slot there, run `kodoctl forget"
        f" {address} --namespace {namespace_of_address(address)}`, and plan again"
    )


def _both(addresses: Iterable[Address]) -> Iterator[Address]:
    for address in addresses:
        if database_of(address) is not None:
            name = address.partition(".")[2]
            yield from (f"publication.{name}", f"slot.{name}")
