# adapter: a command line
"""Command `pipeline recommend`: finds tenants that delay others, from the counted tables, and prints a patch of the
topology file against that.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from kodo_pipeline.landing.command_options import (
    LandedFlags,
    Output,
    lightly,
    new_run,
    one_expansion,
)
from kodo_pipeline.recommend.recommendation_document import RecommendationDocument
from kodo_pipeline.spark.spark_progress import Bar
from kodoctl.cli.common.console import command, say, tell
from kodoctl.cli.common.options import Format, bundles
from kodoctl.cli.common.terminal import show_lines

Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        help="A tenant's own goal, by which it may be promoted: its runs should begin within this time. May be repeated.",
        metavar="TENANT=TIME",
    ),
]
Exclusive = Annotated[
    list[str] | None,
    typer.Option(
        "--exclusive",
        help="Make a level that admits this tenant alone, and recommend nothing else. May be repeated.",
        metavar="TOPIC/TENANT",
    ),
]
Goal = Annotated[
    str,
    typer.Option("--goal", help="Messages of quiet tenants should be done within this time.", metavar="TIME"),
]


@command
@bundles("asked", LandedFlags)
def recommend(
    asked: LandedFlags,
    goal: Goal = "10s",
    target: Targets = None,
    exclusive: Exclusive = None,
    output: Output = Format.TEXT,
) -> None:
    """Tell which tenants make others wait, with a patch.

    Names tenants that deserve a higher level, and slots to bound, too. Changes nothing.

    Example: kodoctl pipeline recommend topologies/trade.yaml | git apply
    """
    run = new_run()
    bar = Bar(output)
    bar.begin(run, "recommend")
    settings = asked.settings()
    from kodo_pipeline.landing.command_line import duration
    from kodo_pipeline.recommend.job import recommend as look
    from kodo_pipeline.recommend.job import recommend_exclusive
    from kodo_pipeline.recommend.recommendation_text import lines
    from kodo_pipeline.recommend.report import document
    from kodo_pipeline.recommend.slot_judgement import Goals, tenant_goals
    from kodo_pipeline.recommend.verified_patch import patch_topology
    from kodo_pipeline.recommend.yaml_patch import unified_diff
    from kodo_pipeline.rollup.job import check_counted, counted_tables

    goals = Goals(duration("--goal", goal), tenant_goals(target or ()))
    expansion = one_expansion(asked.topology, asked.env)
    place = asked.place(expansion, messages=True)
    check_counted(place)
    with bar.session(lightly(settings, place)) as spark:
        tables = counted_tables(spark, place)
        if exclusive:
            advice = recommend_exclusive(spark, place, tables.window, expansion, goals, exclusive)
        else:
            advice = look(spark, place, tables, expansion, goals)
    wanted = advice.wanted
    moves = [move for _, some in wanted.moves for move in some]
    figures = document(tables.window, goals.goal, moves, wanted.settings, wanted.levels, advice.victims, advice.notes)
    found: RecommendationDocument = {"run": run, **figures}
    if wanted:
        from kodoctl.cli.common.git import source_of_topology

        source = expansion.topology.source
        name = source_of_topology(Path(source.path)).path or Path(source.path).as_posix().lstrip("/")
        found["patch"] = unified_diff(name, *patch_topology(expansion, wanted))
    if output is Format.JSON:
        say(json.dumps(found, indent=2))
        return
    show_lines(lines(found))
    if wanted:
        tell("Nothing was changed. Pipe this into `git apply`, then look at `kodoctl plan`.")
        say()
        say(found["patch"], newline=False)
