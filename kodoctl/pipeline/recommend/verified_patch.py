"""Patch of the topology file with recommended routes: edited as text, then read again and compared with the moves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from kodoctl.errors import KodoctlError, Severity, Where, error
from kodoctl.pipeline.recommend.yaml_patch import CannotPatchError, ManagedRoute, Text, move_tenants, rewrite_routes
from kodoctl.topology.fmt.tree import CannotFormatError, Path
from kodoctl.topology.lint.linter import check_set
from kodoctl.topology.load import source_of
from kodoctl.topology.model.subscription import Route

if TYPE_CHECKING:
    from kodoctl.pipeline.recommend.job import SubscriptionRoutes
    from kodoctl.pipeline.recommend.noisy_neighbours import LevelMove
    from kodoctl.topology.expand import Expansion
    from kodoctl.topology.model.topology import Topology

_BOM = "\ufeff"


def patch_topology(
    expansion: Expansion, moves: Sequence[tuple[SubscriptionRoutes, Sequence[LevelMove]]]
) -> tuple[str, str]:
    """(text of the file, text with the moves). Raises KodoctlError where the result would say anything else than
    meant.
    """
    source, environment = expansion.topology.source, expansion.topology.environment
    before = FilePath(source.path).read_bytes().decode("utf-8")
    mark = _BOM if before.startswith(_BOM) else ""
    after = before.removeprefix(_BOM)
    try:
        for place, some in moves:
            after = _moved(after, environment, place, some)
    except (CannotPatchError, CannotFormatError) as problem:
        raise _refused(source.name, moves, str(problem)) from None
    after = f"{mark}{after}"
    _verify(expansion, moves, after)
    return before, after


def _moved(text: str, environment: str | None, place: SubscriptionRoutes, moves: Sequence[LevelMove]) -> str:
    """One subscription. Where an overlay has its routes, there; else in the base, which every environment reads."""
    tree, overlay = Text(text), ("environments", environment or "", "topics", place.topic)
    topic: Path = ("topics", place.topic)
    path: Path = (*topic, "subscriptions", place.subscription)
    over: Path = (*overlay, "subscriptions", place.subscription)
    own = environment is not None and tree.find((*over, "routes")) is not None
    named = environment is not None and any(tree.find((*overlay, key)) is not None for key in ("backup", "levels"))
    backup = (overlay if named else topic) if place.adds else None
    return rewrite_routes(text, over if own else path, place.fair_by, place.routes, _places(moves), backup)


def _places(moves: Sequence[LevelMove]) -> dict[str, str | None]:
    return {one.tenant: None if one.action == "upgrade" else one.target for one in moves}


def _verify(expansion: Expansion, moves: Sequence[tuple[SubscriptionRoutes, Sequence[LevelMove]]], after: str) -> None:
    """Read as every command would read it: no error in any environment, the routes that were meant, nothing else
    changed.
    """
    source, environment = expansion.topology.source, expansion.topology.environment
    file = source_of(after.encode("utf-8"), source.name)
    for one in (None, *file.environments):
        expansions, findings = check_set([file], one)
        wrong = [found for found in findings if found.severity is Severity.ERROR and found.allowed_because is None]
        if wrong or len(expansions) != 1:
            raise _refused(source.name, moves, "; ".join(found.detail for found in wrong) or "it would not be read")
        if one == environment and _rest(expansions[0].topology.spec, moves) != _expected(expansion, moves):
            raise _refused(
                source.name, moves, "it is written in a way that is not edited here: aliases, or an overlay in the way"
            )


def _rest(
    spec: Topology, moves: Sequence[tuple[SubscriptionRoutes, Sequence[LevelMove]]]
) -> tuple[object, list[object]]:
    """(everything but the routes, the routes) as data."""
    data = spec.model_dump(by_alias=True, mode="json")
    routes: list[object] = []
    for place, _ in moves:
        ground = data["topics"][place.topic]
        routes.append(ground["subscriptions"][place.subscription].pop("routes"))
        if place.adds:
            ground["backup"] = True
    data.pop("environments", None)
    return data, routes


def _expected(
    expansion: Expansion, moves: Sequence[tuple[SubscriptionRoutes, Sequence[LevelMove]]]
) -> tuple[object, list[object]]:
    data, routes = _rest(expansion.topology.spec, moves)
    for (place, some), listed in zip(moves, routes, strict=True):
        assert isinstance(listed, list)
        kept, appended = move_tenants(place.routes, _places(some))
        for old, one in zip(place.routes, kept, strict=True):
            if one != old:
                listed[one.index] = _route(place, one)
        gone = {one.index for one in kept if not one.tenants}
        listed[:] = [one for at, one in enumerate(listed) if at not in gone] + [_route(place, one) for one in appended]
    return data, routes


def _route(place: SubscriptionRoutes, one: ManagedRoute) -> object:
    if not one.tenants:
        return None
    written = {"when": {"property": place.fair_by, "in": list(one.tenants)}, "to": one.to}
    return Route.model_validate(written).model_dump(by_alias=True, mode="json")


def _refused(name: str, moves: Sequence[tuple[SubscriptionRoutes, Sequence[LevelMove]]], why: str) -> KodoctlError:
    listed = [
        f"{place.topic} / {place.subscription}: {one.tenant} from {one.source} to {one.target}"
        for place, some in moves
        for one in some
    ]
    detail = "\n".join((why, "a route of each subscription would do", *listed))
    return KodoctlError(error("K803", "the file cannot be patched", detail, Where(name)))
