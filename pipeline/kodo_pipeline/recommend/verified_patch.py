# adapter: reads a file
"""Patch of the topology file with the recommended changes: the text is edited, then parsed again and compared with the
recommendations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from kodo_pipeline.recommend.setting_patch import rewrite_setting, with_setting
from kodo_pipeline.recommend.yaml_patch import (
    CannotPatchError,
    ManagedRoute,
    Text,
    key_condition,
    move_tenants,
    rewrite_routes,
    yaml_scalar,
)
from kodoctl.errors import KodoctlError, Severity, Where, error
from kodoctl.text.escaping import one_line
from kodoctl.topology.fmt.tree import CannotFormatError, Path
from kodoctl.topology.lint.linter import check_set
from kodoctl.topology.load import source_of
from kodoctl.topology.model.subscription import Route
from kodoctl.topology.model.topology import KEY
from kodoctl.topology.names import Level
from kodoctl.topology.slot_ranges import total_slots

if TYPE_CHECKING:
    from kodo_pipeline.recommend.exclusive_tenants import ExclusiveLevel
    from kodo_pipeline.recommend.noisy_neighbours import LevelMove
    from kodo_pipeline.recommend.slot_use import SettingChange
    from kodo_pipeline.recommend.subscription_routes import SubscriptionRoutes
    from kodoctl.topology.expand import Expansion
    from kodoctl.topology.loaded_topology import SourceFile
    from kodoctl.topology.model.topology import Topology

_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class Recommendations:
    """Changes for a patch: moves of tenants by subscription, settings, and exclusive levels."""

    moves: Sequence[tuple[SubscriptionRoutes, Sequence[LevelMove]]]
    settings: Sequence[SettingChange]
    levels: Sequence[ExclusiveLevel] = ()

    def __bool__(self) -> bool:
        return bool(self.moves or self.settings or self.levels)

    def texts(self) -> list[str]:
        """A line of text for each change, for an error message. A tenant's name, which its senders choose, ends no line."""
        moved = [
            f"{place.topic} / {place.subscription}: {one_line(one.tenant)} from {one.source} to {one.target}"
            for place, some in self.moves
            for one in some
        ]
        return [
            *moved,
            *(f"{one.topic} / {one.subscription}: {'.'.join(map(str, one.path))} {one.after}" for one in self.settings),
            *(f"{one.topic}: exclusive_levels {one.level}: {one_line(one.tenant)}" for one in self.levels),
        ]


def patch_topology(expansion: Expansion, wanted: Recommendations) -> tuple[str, str]:
    """Reads the topology file, and returns (its text, the text with the recommended changes); writes nothing. Raises
    KodoctlError (K803) if the file has changed since it was expanded or cannot be edited so, or if the new text would
    not mean exactly these changes.
    """
    source, environment = expansion.topology.source, expansion.topology.environment
    before = _read_unchanged(source, wanted)
    mark = _BOM if before.startswith(_BOM) else ""
    after = before.removeprefix(_BOM)
    topics = expansion.topology.spec.topics
    try:
        for place, some in wanted.moves:
            after = _patch_moves(after, environment, place, some)
        for change in wanted.settings:
            key = str(change.path[0])
            path = _subscription(Text(after), environment, (change.topic, change.subscription), key)
            slots = total_slots(topics[change.topic].subscriptions[change.subscription])
            after = rewrite_setting(after, path, change, slots or change.total)
        for level in wanted.levels:
            after = _with_exclusive(after, environment, level)
    except (CannotPatchError, CannotFormatError) as problem:
        raise _refusal(source.name, wanted, str(problem)) from None
    after = f"{mark}{after}"
    _verify(expansion, wanted, after)
    return before, after


def _read_unchanged(source: SourceFile, wanted: Recommendations) -> str:
    """Reads the text of the file. Raises KodoctlError (K803) unless its content is that of `source`: the queries before
    a patch take minutes, and the places of routes and limits in a changed file may be others.
    """
    try:
        data = FilePath(source.path).read_bytes()
    except OSError as problem:
        raise _refusal(source.name, wanted, f"it cannot be read any more: {problem.strerror}") from None
    now = source_of(data, source.name).root
    if now is None or source.root is None or now.plain() != source.root.plain():
        raise _refusal(source.name, wanted, "it was changed while this command ran: run the command again")
    return data.decode("utf-8")


def _subscription(tree: Text, environment: str | None, names: tuple[str, str], key: str) -> Path:
    """Returns the path at which the subscription has `key`: in the overlay of the environment if the overlay has the
    key, else in the base, which every environment reads.
    """
    topic, subscription = names
    below: Path = ("topics", topic, "subscriptions", subscription)
    over: Path = ("environments", environment or "", *below)
    return over if environment is not None and tree.find((*over, key)) is not None else below


def _topic(tree: Text, environment: str | None, topic: str) -> Path:
    """Returns the path at which the topic has its levels: in the overlay of the environment if the overlay has any,
    else in the base.
    """
    over: Path = ("environments", environment or "", "topics", topic)
    there = environment is not None and any(tree.find((*over, key)) is not None for key in ("backup", "levels"))
    return over if there else ("topics", topic)


def _patch_moves(text: str, environment: str | None, place: SubscriptionRoutes, moves: Sequence[LevelMove]) -> str:
    tree = Text(text)
    path = _subscription(tree, environment, (place.topic, place.subscription), "routes")
    topic = _topic(tree, environment, place.topic)
    adds = [(topic, key, value) for key, (value, _) in place.adds(one.target for one in moves).items()]
    return rewrite_routes(text, path, place.fair_by, place.routes, _places(moves), adds)


def _with_exclusive(text: str, environment: str | None, one: ExclusiveLevel) -> str:
    edited = Text(text)
    topic = _topic(edited, environment, one.topic)
    edited.put(topic, "levels", one.levels[0])
    admitted = f"[{yaml_scalar(one.tenant)}]"
    there = edited.find((*topic, "exclusive_levels"))
    if there is not None and there.entries:
        edited.set_key((*topic, "exclusive_levels"), one.level, [admitted])
    else:
        edited.put(topic, "exclusive_levels", f"{{{one.level}: {admitted}}}")
    return edited.result()


def _places(moves: Sequence[LevelMove]) -> dict[str, str | None]:
    return {one.tenant: None if one.target == Level.L1.value else one.target for one in moves}


def _verify(expansion: Expansion, wanted: Recommendations, after: str) -> None:
    """Raises KodoctlError unless the new text, read as every command reads it, has no error in any environment, and has
    the recommended changes and no others.
    """
    source, environment = expansion.topology.source, expansion.topology.environment
    file = source_of(after.encode("utf-8"), source.name)
    for one in (None, *file.environments):
        expansions, findings = check_set([file], one)
        wrong = [found for found in findings if found.severity is Severity.ERROR and found.allowed_because is None]
        if wrong or len(expansions) != 1:
            raise _refusal(source.name, wanted, "; ".join(found.detail for found in wrong) or "it would not be read")
        if one == environment and _data(expansions[0].topology.spec) != _expected_data(expansion, wanted):
            raise _refusal(
                source.name, wanted, "it is written in a way that is not edited here: aliases, or an overlay in the way"
            )


def _data(spec: Topology) -> dict[str, Any]:
    data = spec.model_dump(by_alias=True, mode="json")
    data.pop("environments", None)
    return data


def _expected_data(expansion: Expansion, wanted: Recommendations) -> dict[str, Any]:
    spec = expansion.topology.spec
    data = _data(spec)
    for place, some in wanted.moves:
        ground = data["topics"][place.topic]
        ground.update({key: value for key, (_, value) in place.adds(one.target for one in some).items()})
        listed = ground["subscriptions"][place.subscription]["routes"]
        kept, appended = move_tenants(place.routes, _places(some))
        for old, one in zip(place.routes, kept, strict=True):
            if one != old:
                listed[one.index] = _route(place, one)
        gone = {one.index for one in kept if not one.tenants}
        listed[:] = [one for at, one in enumerate(listed) if at not in gone] + [_route(place, one) for one in appended]
    for change in wanted.settings:
        subscription = spec.topics[change.topic].subscriptions[change.subscription]
        with_setting(subscription, data["topics"][change.topic]["subscriptions"][change.subscription], change)
    for level in wanted.levels:
        data["topics"][level.topic]["levels"] = level.levels[1]
        data["topics"][level.topic]["exclusive_levels"][level.level] = [level.tenant]
    return data


def _route(place: SubscriptionRoutes, one: ManagedRoute) -> object:
    if not one.tenants:
        return None
    when: object = {"property": place.fair_by, "in": list(one.tenants)}
    written = {"when": key_condition(one.tenants) if place.fair_by == KEY else when, "to": one.to}
    return Route.model_validate(written).model_dump(by_alias=True, mode="json")


def _refusal(name: str, wanted: Recommendations, why: str) -> KodoctlError:
    detail = "\n".join((why, "write what was recommended by hand:", *wanted.texts()))
    return KodoctlError(error("K803", "the file cannot be patched", detail, Where(name)))
