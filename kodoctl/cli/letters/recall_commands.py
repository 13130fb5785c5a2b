"""recall plan|discard|list: choose dead letters, make a plan that sends them again or discards them, each exactly once,
and show what was done.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kodoctl.cli.common import command_target
from kodoctl.cli.common.command_target import TargetOptions, connects
from kodoctl.cli.common.console import Environment, command, reading, report, say, tell
from kodoctl.cli.common.extension_points import DONE_STORE, load
from kodoctl.cli.common.ledger_option import LedgerOption, ledger_named
from kodoctl.cli.common.options import Format, bundles
from kodoctl.cli.common.plan_files import keep_scratch, scratch_file, write_plan_text
from kodoctl.cli.common.terminal import show_lines
from kodoctl.cli.letters.recall_options import (
    Because,
    File,
    Limit,
    Out,
    Output,
    RecallFlags,
    Subscription,
    Topic,
    Where_,
    declared_schema,
    family_in,
)
from kodoctl.errors import Diagnostic, UsageError, Where, error, warning
from kodoctl.host.extras import needs_extra

if TYPE_CHECKING:
    from kodoctl.pulsar.session import Session
    from kodoctl.recall.message.payload_patch import Edit
    from kodoctl.recall.plan.destinations import RecallSource
    from kodoctl.recall.plan.recall_plan import RecallAction, RecallPlan
    from kodoctl.recall.plan.selection import Done
    from kodoctl.recall.recall_planner import Fill
    from kodoctl.topology.loaded_topology import LoadedTopology
    from kodoctl.topology.names import Level

STORE = "KODO_CONSUMER_STORE"  # the workers' own variable


@command
@connects
@bundles("asked", RecallFlags)
def plan(target: TargetOptions, asked: RecallFlags, output: Output = Format.TEXT) -> None:
    """Choose dead letters to send again; makes a plan.

    The plan freezes the choice: counts, samples, a hash. Consumes and sends nothing.
    """
    from kodoctl.recall.plan.recall_plan import RecallAction

    with target.session() as session:
        loaded, family = family_in(session, asked.topology, asked.env, asked.topic, asked.subscription)
        made = prepare_plan(session, RecallAction.SEND, asked, loaded, family)
        show_plan(made, session, asked.out, output)


@command
@connects
def discard(
    target: TargetOptions,
    topology: File,
    topic: Topic,
    subscription: Subscription,
    where: Where_,
    limit: Limit = 10_000,
    because: Because = "",
    out: Out = None,
    ledger: LedgerOption = None,
    env: Environment = None,
    output: Output = Format.TEXT,
) -> None:
    """Choose dead letters to be thrown away. Throws nothing away: `recall apply` does, when confirmed."""
    from kodoctl.recall.plan.recall_plan import RecallAction

    asked = RecallFlags(
        topology, topic, subscription, where, limit=limit, because=because, out=out, ledger=ledger, env=env
    )
    with target.session() as session:
        loaded, family = family_in(session, topology, env, topic, subscription)
        made = prepare_plan(session, RecallAction.DISCARD, asked, loaded, family)
        show_plan(made, session, out, output)


@reading
def list_(
    namespace: Annotated[str, typer.Argument(help="The namespace.", metavar="TENANT/NAMESPACE", show_default=False)],
    ledger: LedgerOption = None,
    output: Output = Format.TEXT,
) -> None:
    """Show the recalls, releases and discards of a namespace.

    Reads the recall ledger and no cluster. Shows, oldest first, the recalls of dead letters, the releases, moves and
    discards of waiting messages, and the lost messages that were sent again.
    """
    from kodoctl.recall.ledger.delta_ledger import DeltaLedger
    from kodoctl.render.recall import recall_list_lines

    space, book = str(command_target.parse_namespace(namespace)), ledger_named(ledger)
    rows = DeltaLedger(book).runs(space)
    if output is Format.JSON:
        say(json.dumps({"namespace": space, "ledger": book, "recalls": rows}, indent=1))
    else:
        show_lines(recall_list_lines(rows, space, book))


def prepare_plan(
    session: Session,
    action: RecallAction,
    asked: RecallFlags,
    loaded: LoadedTopology,
    family: RecallSource,
    *,
    fill: Fill | None = None,
    run: str | None = None,
    warn: Callable[[Iterable[Diagnostic]], None] = report,
    in_memory: bool = False,
) -> RecallPlan:
    """Makes a recall plan for the command's flags, from the dead letters of `family`; sends nothing. Raises
    KodoctlError.

    Args:
        fill: offers the letters to the selection (`kodoctl.recall.recall_planner.Fill`); None: they are read from the
            cluster.
        run: id of the run; None: a new one.
        warn: called once, with the warnings about letters that cannot be read, perhaps none.
        in_memory: the plan itself has all letters, and its limit is at most 100,000 (MAX_LETTERS); False: more than
            50,000 letters are in a temporary file (`RecallPlan.table`), which `show_plan` keeps beside the plan file.
    """
    from kodoctl.recall.cluster import RecallCluster
    from kodoctl.recall.filter.condition import parse
    from kodoctl.recall.ledger.delta_ledger import DeltaLedger
    from kodoctl.recall.plan.recall_plan import RecallAction
    from kodoctl.recall.recall_planner import RecallRequest, prepare

    now = int(time.time() * 1000)
    named = run or run_id(now)
    edit = patch_in(asked.edit, loaded, asked.topic) if asked.edit else None
    everything = asked.again or action is RecallAction.DISCARD
    with open_done_store(asked.store, family.named_in_full, again=everything) as done:
        request = RecallRequest(
            action, family, parse(asked.where, now), named, level_named(asked.to), asked.limit, asked.again, edit,
            done=done, path=loaded.source.name, environment=loaded.environment, because=asked.because,
            table=None if in_memory else scratch_file(asked.out),
        )  # fmt: skip
        cluster = RecallCluster(session)
        made = prepare(request, cluster, DeltaLedger(ledger_named(asked.ledger)), fill)
    warn(warning("K561", "messages cannot be read", line) for line in cluster.unread.lines())
    return made


def run_id(now: int) -> str:
    """Makes an id of a run: the time `now` (ms since the epoch) in UTC, and random characters."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now / 1000))}-{secrets.token_hex(4)}"


@contextmanager
def open_done_store(store: str | None, subscription: str, *, again: bool = False) -> Iterator[Done | None]:
    """Context with a function that takes identities of messages, and returns those of them that are done, by the
    workers' deduplication store. The function is called once at the beginning, so that a store that cannot be reached
    raises at once.

    The context has None if there is no store to query: if neither `store` nor KODO_CONSUMER_STORE names one, if `again`
    is set, or if the variable is `memory`, because no other process can read the workers' own memory. Raises
    KodoctlError, such as UsageError (K721) if the extra `database` is missing.

    Args:
        store: URL of the store; None: the value of KODO_CONSUMER_STORE.
        subscription: its full name in the store, such as `kodo/trade/orders:billing`.
        again: messages that are done are chosen, too, so that no store is needed.
    """
    from kodoctl.pulsar.connection.secret import Secret

    workers = os.environ.get(STORE, "")
    text = store if store is not None else workers if workers != "memory" else ""
    if again or not text:
        yield None
        return
    with needs_extra("database"):
        opened: Callable[[Secret, str], AbstractContextManager[Done]] = load(DONE_STORE)
    with opened(Secret(text), subscription) as done:
        done([""])  # a store that cannot be asked is told at once, and also where no letter has to ask
        yield done


def level_named(text: str | None) -> Level | None:
    """Parses the level of `--to`; None if the option was not given. Raises UsageError (K555) for an unknown level."""
    from kodoctl.topology.names import Level

    try:
        return Level(text) if text else None
    except ValueError:
        detail = f"--to {text}: levels are {', '.join(Level)}"
        raise UsageError(error("K555", "nowhere to send to", detail)) from None


def patch_in(file: str, loaded: LoadedTopology, topic: str) -> Edit:
    """Reads the patch in the file of `--edit`, together with the schema that the topic's payloads have. Raises
    UsageError (K568) for an unusable patch, InvalidFileError for an unusable schema.
    """
    from kodoctl.recall.message.payload_patch import Edit, NotEditableError, read_patch
    from kodoctl.recall.message.stored_message import NotJsonError

    try:
        patch = read_patch(Path(file).read_text(encoding="utf-8"))
    except (OSError, NotJsonError, NotEditableError, UnicodeDecodeError) as problem:
        detail = str(getattr(problem, "strerror", None) or problem)
        raise UsageError(error("K568", "a patch that cannot be used", detail, Where(file))) from None
    return Edit(patch, declared_schema(loaded, topic))


def _print_json(form: Any) -> None:
    say(json.dumps(form, indent=1))


def show_plan(
    made: RecallPlan,
    session: Session,
    out: str | None,
    output: Format,
    apply: str = "recall apply",
    print_json: Callable[[Any], None] = _print_json,
) -> None:
    """Writes the plan to the file `out` (None: nowhere), the letters of a large plan to a second file beside it, and
    prints the plan. `apply`: command that carries it out, for the text; `print_json`: receives the plan if `output` is
    JSON. Raises UsageError if a file cannot be written, or `out` has something else than a recall's plan.
    """
    from kodoctl.recall.plan import recall_plan_file
    from kodoctl.recall.plan.letter_table import SUFFIX
    from kodoctl.render.recall import recall_plan_lines

    if made.table is not None and out is not None:
        place = keep_scratch(made.table.path, f"{out}{SUFFIX}")
        made = replace(made, table=replace(made.table, path=place))
    form = recall_plan_file.to_json(made)
    if out is not None:
        write_plan_text(recall_plan_file.dumps(made), out)
    if output is Format.JSON:
        print_json(form)
    else:
        show_lines(recall_plan_lines(form, command_target.shown_target(session.connection)))
    if made.table is not None:
        tell(
            f"Its letters are in {out}{SUFFIX}, which belongs beside it."
            if out
            else "Without --out its letters are kept nowhere."
        )
    if out is not None:
        tell(f"Plan written to {out}; carry it out with: kodoctl {apply} {out}")
