"""docs: a catalogue of topologies as a folder of pages, which needs no server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kodoctl.cli.common.command_target import (
    TargetOptions,
    commit_of,
    connects,
    environment_of,
)
from kodoctl.cli.common.console import Environment, Paths, command, finish, paths_or_default, report, say, tell
from kodoctl.cli.common.git import source_of_topology
from kodoctl.cli.topology.docs_folder import check_folder, write_pages
from kodoctl.cli.topology.expansion_commands import load_expansions
from kodoctl.cli.topology.graphviz import draw
from kodoctl.errors import ExitCode, Severity, UsageError, error, warning
from kodoctl.text.formatting import many, shorten_lines

if TYPE_CHECKING:
    from kodoctl.render.catalogue_html import CatalogueDrawings
    from kodoctl.render.shared_drawings import Drawing
    from kodoctl.topology.expand import Expansion
    from kodoctl.topology.flow_graph import FlowNode

Json = dict[str, Any]
_Key = tuple[str, str]  # file and ground topic of a drawing
_DrawAll = Callable[[list[str]], list[str]]
_MOST_NODES: Final = 300  # of a flow that is drawn


@command
@connects
def docs(
    target: TargetOptions,
    paths: Paths = None,
    env: Environment = None,
    out: Annotated[
        str, typer.Option("-o", "--out", help="Folder of the pages; only one of its own is replaced.", metavar="FOLDER")
    ] = "catalogue",
    against: Annotated[
        str | None,
        typer.Option("--against", help="Show the differences to a git revision, such as origin/main.", metavar="REF"),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Read backlogs, consumers and the last apply from the cluster.")
    ] = False,
) -> None:
    """Make a catalogue of topologies: pages with search and drawings.

    Every topology with its topics, policies and where each comes from, limits, routes, subscriptions, payload schemas,
    roles, and the flow of its messages. The pages need no server and ask none: open index.html, or publish the folder.

    Drawings need Graphviz (the package `graphviz`); without it, the flow is a list. What lint refuses is a warning.

    A cluster is read with --live only: exits 1 when some of its topics cannot be read, which the pages show as unknown.

    Example: kodoctl docs topologies/ --env prod --against origin/main --out site
    """
    from kodoctl.cli.topology.docs_live import with_live
    from kodoctl.render.catalogue_html import INDEX, catalogue_pages
    from kodoctl.topology.catalogue import catalogue_document

    folder = Path(out)
    earlier = check_folder(folder)
    if not live and any(asdict(target).values()):
        raise UsageError(
            error("K034", "no cluster is read", "--live reads the one that is named: add it, or leave the name out")
        )
    if live:
        with target.session() as session:
            expansions, chosen = load_expansions(paths, environment_of(session.connection, env), for_cluster=True)
            document = with_live(session, catalogue_document(expansions, chosen), expansions)
    else:
        expansions, chosen = load_expansions(paths, env)
        document = catalogue_document(expansions, chosen)
    named = paths_or_default(paths)
    document["commit"] = commit_of(named)
    document["repository"] = source_of_topology(expansions[0].topology.source.path).origin
    if against is not None:
        document = _with_changes(document, expansions, named, against, chosen)
    _warn_of_refusals(expansions, chosen, against)
    pages = catalogue_pages(document, drawings_of(document, expansions))
    write_pages(folder, pages, earlier)
    topics = sum(len(entry["topics"]) for entry in document["topologies"])
    say(
        f"{folder / INDEX} written: {many(len(expansions), 'topology', 'topologies')}, {many(topics, 'ground topic')}, {many(len(pages), 'page')}."
    )
    if unread := _unread_topics(document):
        detail = "\n".join(["the pages show them as unknown:", *shorten_lines(unread)])
        report([warning("K580", "part of a topic cannot be read", detail)])
        finish(ExitCode.ERROR)


def _warn_of_refusals(expansions: Sequence[Expansion], environment: str | None, against: str | None) -> None:
    """Reports the errors for which `lint` and `plan` refuse the files, team rules included, as warnings: reviewers of a
    pull request see the pages all the same.
    """
    from kodoctl.cli.common.team_rules_files import team_rules
    from kodoctl.topology.lint.linter import check_expanded

    rules = team_rules([one.topology.source for one in expansions], None, against)
    found = check_expanded(expansions, environment, rules)
    if errors := [one for one in found if one.severity is Severity.ERROR and one.allowed_because is None]:
        report([replace(one, severity=Severity.WARNING) for one in errors])
        tell("The pages show files that `kodoctl lint` and `kodoctl plan` refuse.")


def _unread_topics(document: Json) -> list[str]:
    """Name and reason of each topic that --live could not read."""
    unread = [topic for entry in document["topologies"] for topic in entry.get("live", {}).get("unread", [])]
    return [f"persistent://{topic['namespace']}/{topic['topic']}: {topic['reason']}" for topic in unread]


def _with_changes(
    document: Json, expansions: Sequence[Expansion], paths: Sequence[str], ref: str, environment: str | None
) -> Json:
    from kodoctl.cli.common.baseline_files import expansions_at
    from kodoctl.topology.catalogue_changes import with_changes

    commit, then = expansions_at(paths, ref, environment)
    return with_changes(document, expansions, then, ref, commit)


def drawings_of(document: Json, expansions: Sequence[Expansion]) -> CatalogueDrawings:
    """Makes the drawings of flows and lanes by Graphviz. A drawing that Graphviz cannot make is left out, and a warning
    is printed; without Graphviz there are none. A flow with more than _MOST_NODES nodes has none: nobody could read it.
    """
    from kodoctl.render.catalogue_html import CatalogueDrawings, CatalogueLinks
    from kodoctl.render.flow_text import flow_dot, map_dot
    from kodoctl.topology.flow_graph import flow_between, flow_graph, flow_of

    links = CatalogueLinks(document)
    graph = flow_graph(expansions)
    names = {one.topology.source.name: one.name for one in expansions}
    texts: dict[str, str] = {}
    if 0 < len(pairs := flow_between(graph)) <= _MOST_NODES:
        texts[""] = map_dot(pairs, names.__getitem__, links.from_index)
    for file in names:
        if len(flow := flow_of(graph, file)) <= _MOST_NODES:
            texts[file] = flow_dot(flow, links.node, partial(_caption, file, names))
    with _drawing() as draw_all:
        flows = dict(zip(texts, draw_all([*texts.values()]), strict=True))
        lanes = _draw_lanes(expansions, draw_all)
    return CatalogueDrawings(flows, lanes, flows.pop("", ""))


def _draw_lanes(expansions: Sequence[Expansion], draw_all: _DrawAll) -> dict[_Key, Drawing]:
    """The drawing of each ground topic, by file and name; one document for those that differ only in labels."""
    from kodoctl.render.graph_text import dot
    from kodoctl.render.shared_drawings import Drawing, shape_of, texts_between
    from kodoctl.topology.graph import ground_lane_graphs

    graphs = {
        (one.topology.source.name, ground): dot(lanes)
        for one in expansions
        for ground, lanes in ground_lane_graphs(one)
    }
    shapes = {key: shape_of(text) for key, text in graphs.items()}
    first: dict[str, _Key] = {}  # shape -> the topic whose graph is drawn for all of it
    for key, shape in shapes.items():
        first.setdefault(shape.key, key)
    drawn = dict(zip(first, draw_all([graphs[key] for key in first.values()]), strict=True))
    found: dict[_Key, Drawing] = {}
    for key, shape in shapes.items():
        document = drawn[shape.key]
        texts = texts_between(shapes[first[shape.key]].labels, shape.labels, document)
        if document and texts is not None:
            found[key] = Drawing(document, texts)
    alone = [key for key, shape in shapes.items() if key not in found and drawn[shape.key]]
    documents = zip(alone, draw_all([graphs[key] for key in alone]), strict=True)
    return found | {key: Drawing(document) for key, document in documents if document}


@contextmanager
def _drawing() -> Iterator[_DrawAll]:
    """Context with a function that returns the SVG document of each DOT graph, "" for one that Graphviz cannot draw. At
    its end, a warning reports these.

    Each graph has a process of its own: Graphviz 2.43 orders the groups of a second graph by addresses in memory, so
    that the same files would now and then give another page.
    """
    problems: list[UsageError] = []

    def attempt(text: str) -> str:
        try:
            return draw(text, "svg").decode()
        except UsageError as problem:
            problems.append(problem)
            return ""

    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="graphviz") as pool:
        yield lambda texts: list(pool.map(attempt, texts))
    if problems:
        first = problems[0].diagnostics[0]
        advice = first.detail.rpartition("\n")[0]  # without the last line, which is about the command `graph`
        report([replace(first, severity=Severity.WARNING, detail=f"pages have lists in place of drawings\n{advice}")])


def _caption(file: str, names: dict[str, str], node: FlowNode) -> str:
    """Text below a node of the flow: its kind, and its topology if that is another one."""
    return node.kind.value if node.file in (file, "") else f"{node.kind.value} of {names[node.file]}"
