"""pipeline: the group of commands about what happened to every message."""

from __future__ import annotations

import typer

from kodoctl.cli import (
    pipeline_audit,
    pipeline_convert,
    pipeline_erase,
    pipeline_ingest,
    pipeline_maintain,
    pipeline_recall,
    pipeline_recommend,
    pipeline_report,
    pipeline_rollup,
    pipeline_run,
    pipeline_simulate,
    pipeline_sql,
)

app = typer.Typer(
    name="pipeline",
    help="What happened to every message, told from the data. Needs the extra `spark`: pip install '.[spark]' in a clone of kodoctl.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def register(parent: typer.Typer) -> None:
    """Adds the group and its commands."""
    app.command("run")(pipeline_run.run)
    app.command("ingest")(pipeline_ingest.ingest)
    app.command("rollup")(pipeline_rollup.rollup)
    app.command("recommend")(pipeline_recommend.recommend)
    app.command("lab")(pipeline_simulate.lab)
    app.command("audit")(pipeline_audit.audit)
    app.command("report")(pipeline_report.report)
    app.command("sql")(pipeline_sql.sql)
    app.command("maintain")(pipeline_maintain.maintain)
    app.command("erase")(pipeline_erase.erase)
    app.command("convert")(pipeline_convert.convert)
    app.add_typer(pipeline_recall.app)
    parent.add_typer(app)
