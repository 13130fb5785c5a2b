"""Commands that show the meaning of a topology file: expand, graph. They need no cluster."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.common.console import (
    Environment,
    Paths,
    paths_or_default,
    printing,
    reading,
    say,
    tell,
    write_file,
    write_output,
)
from kodoctl.errors import InvalidFileError, UsageError, Where, error

if TYPE_CHECKING:
    from kodoctl.topology.expand import Expansion


class ExpandFormat(StrEnum):
    """Formats in which `expand` prints the Pulsar objects of a file."""

    TREE = "tree"
    TABLE = "table"
    JSON = "json"


class GraphFormat(StrEnum):
    """Formats of `graph`: text of a diagram (Mermaid, DOT) or a picture (SVG, PNG)."""

    MERMAID = "mermaid"
    DOT = "dot"
    SVG = "svg"
    PNG = "png"


_SUFFIXES = {".mmd": GraphFormat.MERMAID, ".dot": GraphFormat.DOT, ".svg": GraphFormat.SVG, ".png": GraphFormat.PNG}


def load_expansions(
    paths: list[str] | None, environment: str | None, *, for_cluster: bool = False
) -> tuple[Sequence[Expansion], str | None]:
    """Expands the files in one environment (None: the base), without lint rules. Returns (expansions, name of the
    environment or None). Raises InvalidFileError if a file cannot be loaded, UsageError for an environment that the
    files lack. If the files have environments and none is given, a line on standard error names them; with
    `for_cluster`, UsageError is raised instead.
    """
    from kodoctl.topology.expand import expand as run
    from kodoctl.topology.load import BASE, choose_environment, environments_of, load_set, read_files

    files = read_files(paths_or_default(paths))
    if environment is None and not for_cluster and (names := environments_of(files)):
        tell(f"Shown without environment; --env has {', '.join(names)}.")
    chosen = choose_environment(files, environment if for_cluster else environment or BASE)
    loaded = load_set(files, chosen)
    if loaded.findings:
        raise InvalidFileError(*loaded.findings)
    return [run(topology) for topology in loaded.topologies], chosen


@reading
def expand(
    paths: Paths = None,
    environment: Environment = None,
    output: Annotated[ExpandFormat, typer.Option("--format", help="How it is printed.")] = ExpandFormat.TREE,
    explain: Annotated[
        bool, typer.Option("--explain", help="Where each value comes from: its line, or why it is derived.")
    ] = False,
) -> None:
    """Show the Pulsar objects that files declare.

    Topics with their partitions and policies, subscriptions, grants, payload schemas. Nothing is read from a cluster:
    `kodoctl plan` compares with one.

    Example: kodoctl expand topologies/trade.yaml --env prod --explain
    """
    from kodoctl.render.expansion import RENDERERS, WIDTH
    from kodoctl.topology.expansion_json import expansion_document

    expansions, chosen = load_expansions(paths, environment)
    width = min(120, max(60, shutil.get_terminal_size().columns)) if is_output_terminal() else WIDTH
    say(RENDERERS[output.value](expansion_document(expansions, chosen, explain=explain), width))


@reading
def graph(
    paths: Paths = None,
    environment: Environment = None,
    topic: Annotated[str | None, typer.Option("--topic", metavar="NAME", help="One ground topic only.")] = None,
    output: Annotated[
        GraphFormat | None,
        typer.Option("--format", help="Picture or text.", show_default="from the file's ending, else mermaid"),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("-o", "--out", metavar="FILE", help="Write there; no YAML file and no plan is replaced."),
    ] = None,
) -> None:
    """Draw lanes and the ways messages take between them.

    A terminal gets a hint instead of the source, unless --format names it.

    Mermaid shows in pull requests and wikis, DOT goes to Graphviz. SVG and PNG are drawn by Graphviz: it must be
    installed (the package `graphviz`).

    Example: kodoctl graph topologies/trade.yaml --topic orders --out orders.svg
    """
    from kodoctl.cli.common.plan_files import check_replaceable
    from kodoctl.cli.topology.graphviz import draw
    from kodoctl.render.graph_text import dot, mermaid
    from kodoctl.topology.graph import lane_graph

    expansions, _ = load_expansions(paths, environment)
    if file is not None:
        if any(_is_same(file, one.topology.source.name) for one in expansions):
            detail = "it is a topology that is drawn: name another with --out"
            raise UsageError(error("K021", "file exists", detail, Where(file)))
        check_replaceable(file)
    known = [name for expansion in expansions for name in expansion.topology.spec.topics]
    if topic is not None and topic not in known:
        raise UsageError(error("K022", "unknown topic", f"{topic!r}: these files have {', '.join(known)}"))
    lanes = lane_graph(expansions, topic)
    chosen = output or (_SUFFIXES.get(Path(file).suffix) if file else None) or GraphFormat.MERMAID
    if output is None and file is None and is_output_terminal():
        say("A picture: kodoctl graph --out lanes.svg (or .png). Its source, for a page: --format mermaid (or dot).")
    elif chosen is GraphFormat.MERMAID:
        write_output(mermaid(lanes), file)
    elif chosen is GraphFormat.DOT:
        write_output(dot(lanes), file)
    else:
        write_picture(draw(dot(lanes), chosen.value), file)


def _is_same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def is_output_terminal() -> bool:
    """True if standard output is a terminal."""
    return sys.stdout.isatty()


def write_picture(picture: bytes, file: str | None) -> None:
    """Writes a picture to a file, or to standard output if `file` is None. Raises UsageError if the file cannot be
    written (K020), or if that output is a terminal.
    """
    if file is not None:
        write_file(file, picture)
    elif is_output_terminal():
        raise UsageError(error("K023", "image output needs a file", "name a file: --out FILE"))
    else:
        with printing(sys.stdout):
            sys.stdout.buffer.write(picture)
            sys.stdout.buffer.flush()
