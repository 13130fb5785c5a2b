"""K110, K111: sources of change data that cannot work, or whose messages lack what their topic needs."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from kodoctl.errors import Severity
from kodoctl.topology.change_sources import MAX_IDENTIFIER, ChangeSource, TableMapping, change_sources
from kodoctl.topology.lint.registry import LintScope, RuleMatch, rule
from kodoctl.topology.model.source import ROW
from kodoctl.topology.model.topology import KEY, GroundTopic
from kodoctl.topology.names import RESERVED_PREFIX, State, why_not_pulsar_name

if TYPE_CHECKING:
    from kodoctl.errors import Where
    from kodoctl.topology.expand import Expansion
    from kodoctl.topology.yaml.nodes import Path

CANNOT_WORK: Final = "a source of change data that cannot work"
_OF_ROWS: Final = ("topic", "key", "properties", "payload", "columns", "deletes")


def _tables(scope: LintScope) -> Iterator[tuple[Expansion, Path, TableMapping]]:
    """Yields (expansion, path in the file, table) for every table of every source."""
    for expansion in scope.expansions:
        for source in change_sources(expansion.topology.spec):
            for table in source.tables:
                yield expansion, ("sources", source.name, "tables", table.name), table


@rule("K110", Severity.ERROR, CANNOT_WORK)
def source_names(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds sources whose name Pulsar refuses, whose slot name PostgreSQL refuses, or whose slot another source has,
    and tables that are not written SCHEMA.TABLE.
    """
    slots: dict[str, tuple[Expansion, Where]] = {}
    for expansion in scope.expansions:
        for source in change_sources(expansion.topology.spec):
            where = expansion.topology.where_key("sources", source.name)
            owner, before = slots.setdefault(source.slot, (expansion, where))
            if reason := why_not_pulsar_name(source.name):
                yield RuleMatch(where, f"source {source.name!r}: {reason}")
            elif len(source.slot) > MAX_IDENTIFIER:
                detail = f"its slot would be {source.slot}, {len(source.slot)} characters: PostgreSQL takes {MAX_IDENTIFIER}; shorten the name"
                yield RuleMatch(where, detail)
            elif before != where and (owner is expansion or owner.name != expansion.name):
                yield RuleMatch(
                    where, f"its slot would be {source.slot}, as that of the source at {before}: rename one"
                )
    for expansion, path, table in _tables(scope):
        parts = table.name.split(".")
        if len(parts) != 2 or not all(0 < len(part.encode()) <= MAX_IDENTIFIER for part in parts) or '"' in table.name:
            detail = f"table {table.name!r}: write SCHEMA.TABLE as the database has them, without quotes, such as public.orders"
            yield RuleMatch(expansion.topology.where_key(*path), detail)


@rule("K110", Severity.ERROR, CANNOT_WORK)
def source_tables(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds tables of sources with settings that cannot work: a table without `topic` (an outbox needs none), a topic
    that the file does not declare, or settings that exclude each other.
    """
    for expansion, path, table in _tables(scope):
        topology, spec = expansion.topology, table.spec
        if spec.outbox is not None:
            for key in _OF_ROWS:
                if key in spec.model_fields_set:
                    detail = f"{table.name} is an outbox, whose rows have their own: take out `{key}`, or `outbox`"
                    yield RuleMatch(topology.where_key(*path, key), detail)
            continue
        if spec.topic is None:
            detail = f"{table.name} goes nowhere: name its `topic`, or for an outbox the columns: `outbox: {{topic: topic, payload: payload}}`"
            yield RuleMatch(topology.where_key(*path), detail)
        elif spec.topic not in topology.spec.topics:
            near = get_close_matches(spec.topic, topology.spec.topics, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"topics here: {', '.join(topology.spec.topics)}"
            yield RuleMatch(topology.where(*path, "topic"), f"{spec.topic!r} is no topic of this file; {hint}")
        if spec.columns is not None and spec.payload != ROW:
            detail = "the payload is one column, so `columns` chooses nothing: take it out, or write `payload: row`"
            yield RuleMatch(topology.where_key(*path, "columns"), detail)


@rule("K110", Severity.ERROR, CANNOT_WORK)
def deduplicated_targets(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds ready topics to which a source sends and that lack deduplication, which the broker needs to store each
    change once.
    """
    for expansion in scope.expansions:
        grounds: dict[str, ChangeSource] = {}
        for source in change_sources(expansion.topology.spec):
            grounds = dict.fromkeys(source.targets(expansion.topology.spec), source) | grounds
        for topic in expansion.distinct:
            if (
                topic.state is State.READY
                and topic.ground in grounds
                and topic.resource.policies.get("deduplication") is not True
            ):
                name = grounds[topic.ground].name
                way_out = " of `ignore`" if "deduplication" in topic.ignore else ", which then is true"
                detail = (
                    f"source {name!r} sends here, and sends again after a failure: leave `deduplication` out{way_out}"
                )
                yield RuleMatch(scope.where(expansion, topic, "deduplication"), detail, topic.name.local)


@rule("K111", Severity.WARNING, "a source whose messages lack a property")
def source_properties(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds properties that a topic requires, or is fair by, and that no column gives. For a table that is no outbox, a
    required one is an error; so are property names that are kodoctl's own, or almost those of declared properties.
    """
    for expansion, path, table in _tables(scope):
        spec = expansion.topology.spec
        if table.spec.outbox is None:
            if (ground := spec.topics.get(table.spec.topic or "")) is not None:
                yield from _mapped(expansion, path, table, ground)
        elif table.spec.outbox.properties is None:
            needy = [name for name, ground in spec.topics.items() if _needed(ground)]
            if needy:
                place = expansion.topology.where_key(*path, "outbox")
                detail = (
                    f"rows for {', '.join(needy)} would lack what the topic requires: name the column of `properties`"
                )
                yield RuleMatch(place, detail)


def _needed(ground: GroundTopic) -> dict[str, bool]:
    """Message property -> True if the topic requires it, False if it is only fair by it."""
    needed = {name: True for name, need in ground.message_properties.items() if need == "required"}
    return needed if ground.fair_by in (None, KEY) else {str(ground.fair_by): False, **needed}


def _mapped(expansion: Expansion, path: Path, table: TableMapping, ground: GroundTopic) -> Iterator[RuleMatch]:
    mapped, topic = table.spec.properties, table.spec.topic
    place = expansion.topology.where_key(*path, "properties")
    for name, required in _needed(ground).items():
        if name not in mapped:
            why = "requires it" if required else "is fair by it, and would count all rows as one tenant"
            detail = f"no column gives {name!r}, and {topic} {why}: write `properties: {{{name}: COLUMN}}`"
            yield RuleMatch(place, detail, sure=required)
    for name in mapped:
        where = expansion.topology.where_key(*path, "properties", name)
        if name.startswith(RESERVED_PREFIX):
            yield RuleMatch(where, f"{name!r}: properties that begin so are kodoctl's: choose another", sure=True)
        elif name not in ground.message_properties and (
            near := get_close_matches(name, ground.message_properties, 1, 0.8)
        ):
            detail = f"{name!r} is not a declared message property of {topic}; did you mean {near[0]!r}?"
            yield RuleMatch(where, detail, sure=True)
