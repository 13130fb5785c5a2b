"""ui: the console of this machine, until Ctrl-C."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from contextlib import closing
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.common import command_target
from kodoctl.cli.common.command_target import TargetOptions, connects
from kodoctl.cli.common.console import Environment, Paths, command, defect, end_process, say, tell
from kodoctl.cli.common.ledger_option import LedgerOption, ledger_named
from kodoctl.errors import ExitCode
from kodoctl.host.end_signals import ending_on_signals
from kodoctl.host.extras import needs_extra

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired
    from kodoctl.ui.first_screen import CommandWords


@command
@connects
def ui(
    target: TargetOptions,
    paths: Paths = None,
    env: Environment = None,
    audit: Annotated[
        list[Path] | None,
        typer.Option(
            "--audit",
            help="Last `pipeline audit --format json`, whose verdict is shown; may be repeated.",
            show_default="TOPOLOGY-audit.json of each topology",
            metavar="FILE",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1.", show_default="any free one")
    ] = 0,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser, too.")] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Only look: no page can change anything.")] = False,
    ledger: LedgerOption = None,
) -> None:
    """Serve a console of this cluster to the browser of this machine.

    Shows where messages wait, dead letters, workers and live orders, and what needs a person, with the command for it.
    Pages make the plans of these commands, and carry them out when you confirm, with your own context and rights. Ends
    at Ctrl-C.

    Only a browser that opens the printed address is answered. Needs the extra `ui`: pip install '.[ui]' in a clone of
    kodoctl.
    """
    _check_installed()
    from kodoctl.cli.ui.console_actions import ConsoleActions
    from kodoctl.cli.ui.console_data import NamedFiles, console_data
    from kodoctl.pulsar.admin.admin_http import HttpAdmin
    from kodoctl.ui.actions import ActionDesk
    from kodoctl.ui.application import console
    from kodoctl.ui.web_server import ConsoleServer

    connection = target.connection()
    desired = command_target.load_desired(paths, command_target.environment_of(connection, env))
    with closing(HttpAdmin(connection, limit=0.0)) as admin:
        words = _words(target, desired, paths, env)
        data = console_data(
            connection, admin, desired, words, NamedFiles(paths, env, audit or [], ledger_named(ledger))
        )
        desk = ActionDesk(defect)
        actions = None if read_only else (ConsoleActions(target, connection, desired, words, env, ledger), desk)
        with ending_on_signals() as stopped, closing(ConsoleServer(console(data, actions), port)) as server:
            tell(f"Console of {data.target}; Ctrl-C ends it. The address has a token: keep it to yourself.")
            say(server.address)
            if open_:
                _open(server.address)
            stopped.wait()
            desk.close(tell)
    # Threads that still read for pages may be within the client library: a normal end would abort, or wait for them.
    end_process(ExitCode.OK, at_once=True)


def _check_installed() -> None:
    """Raises UsageError (K035) if the extra `ui` is not installed."""
    with needs_extra("ui"):
        for library in ("starlette", "uvicorn"):
            import_module(library)


def _words(target: TargetOptions, desired: Desired, paths: list[str] | None, env: str | None) -> CommandWords:
    """Words of the commands that pages show: they reach the same cluster, in the same environment."""
    from kodoctl.ui.first_screen import CommandWords

    files = {one.name: str(one.topology.source.path) for one in desired.expansions}
    given = [(name.replace("_", "-"), value) for name, value in asdict(target).items() if value]
    cluster = [word for name, value in given for word in (f"--{name}", value)]
    return CommandWords(files, cluster, ["--env", env] if env else [], paths or [])


def _open(address: str) -> None:
    """Opens the address in the browser, by a file that only its owner may read: the arguments of a program, and with
    them the token, can be seen by every user of this machine.
    """
    import webbrowser

    file = Path(tempfile.mkdtemp(prefix="kodoctl-ui-")) / "open.html"  # a folder of mode 0700
    file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={address}">\n', encoding="utf-8")
    atexit.register(shutil.rmtree, file.parent, ignore_errors=True)
    if not webbrowser.open(file.as_uri()):
        tell("No browser was found: open the address yourself.")
