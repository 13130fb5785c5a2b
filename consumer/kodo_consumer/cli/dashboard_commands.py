"""Command `dashboards`: the Grafana dashboard and the alert rules of this version, for a monitoring system."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from kodoctl.cli.common.console import command, say, write_file
from kodoctl.errors import UsageError, error


@command
def dashboards(
    output: Annotated[Path, typer.Option("-o", "--out", help="Folder they are written to.", metavar="DIR")],
) -> None:
    """Write the Grafana dashboard and the Prometheus alert rules.

    Files of their names are replaced.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UsageError(error("K761", "cannot make folder", f"{output}: {problem.strerror}")) from None
    for file in sorted(
        files("kodo_consumer.adapters.metrics").joinpath("dashboards").iterdir(), key=lambda file: file.name
    ):
        if file.name.endswith((".json", ".yaml")):
            write_file(str(output / file.name), file.read_bytes())
            say(str(output / file.name))
