"""Entry point of the script `kodoctl`: prepares the process for a short life, and runs the application."""

from __future__ import annotations

import atexit
import gc


def main() -> None:
    """Runs the command line and ends the process with its exit code. Before the application is imported, the garbage
    collector is set to collect rarely, because an import builds many objects.

    Only for commands that end soon: a process that lives longer, such as a worker of `kodo-consumer`, needs the
    collector as it is.
    """
    # A command builds many objects, drops few and ends: collecting early is waste, …
    gc.set_threshold(200_000, 20, 100)
    # … and so is a search of them all for cycles at the interpreter's end: a sixth of a short command.
    atexit.register(gc.freeze)

    from kodoctl.cli.application import app
    from kodoctl.cli.common.console import run_application
    from kodoctl.cli.common.pydantic_plugins import leave_out_plugins

    leave_out_plugins()
    run_application(app)
