"""Command `pipeline erase`: removes the payloads of one tenant from the landing, after confirmation, and records the
erasure. Starts no Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kodo_pipeline.landing.command_line import command_line
from kodo_pipeline.landing.command_options import (
    File,
    LandingOption,
    Output,
    PipelineProgress,
    landed_place,
    new_run,
    one_expansion,
    spark_settings,
)
from kodoctl.cli.common.console import Environment, command, is_terminal
from kodoctl.cli.common.options import Format
from kodoctl.cli.common.terminal import say_folded
from kodoctl.errors import RefusedError, UsageError, error
from kodoctl.host.host_facts import user_name
from kodoctl.host.private_files import LANDING
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodo_pipeline.upkeep.payload_removal import PayloadSelection

Tenant = Annotated[str, typer.Option("--tenant", help="Whose payloads: a value of `fair_by`.", metavar="TENANT")]
Reason = Annotated[str, typer.Option("--reason", help="Why, for the record.", metavar="TEXT")]
Topic = Annotated[str | None, typer.Option("--topic", help="Of one ground topic; without it of all.", metavar="TOPIC")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be erased, and end.")]
Yes = Annotated[bool, typer.Option("--auto-approve", help="Do not ask.")]


@command
def erase(
    topology: File,
    tenant: Tenant,
    reason: Reason,
    topic: Topic = None,
    landing: LandingOption = LANDING,
    env: Environment = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Erase the landed payloads of one tenant.

    Identities, sizes, digests and so every proof stay.
    """
    view = _View(output, new_run())
    view.line("begin", f"Run {view.run}: payloads of a tenant are looked for.", command="erase")
    spark_settings(None, None)  # the same extra has what it needs
    expansion = one_expansion(topology, env)
    _check(tenant, reason, topic, list(expansion.topology.spec.topics))
    from kodo_pipeline.upkeep.landing_maintenance import record_run
    from kodo_pipeline.upkeep.payload_removal import ErasureRequest, select_tenant
    from kodo_pipeline.upkeep.payload_removal import erase as erase_landed

    place = landed_place(expansion, landing, command_line(topology, env, landing), messages=True)
    with place.alone():
        place.recover()
        shown = select_tenant(place, tenant, topic)
    view.plan(shown, tenant)
    if dry_run:
        return
    _confirm(shown, tenant, yes=yes)  # no run waits for the answer
    with place.alone() as alone, record_run(place, view.run, "erase", alone=alone):
        place.recover()
        asked = ErasureRequest(place, view.run, tenant, topic, reason, user_name(), alone)
        messages, removed = erase_landed(asked, select_tenant(place, tenant, topic))
    view.end(messages, removed, shown=shown.messages, alone=alone)


def _check(tenant: str, reason: str, topic: str | None, topics: list[str]) -> None:
    wrong = [f"{name} is empty: give a text" for name, text in (("--tenant", tenant), ("--reason", reason))
             if not text.strip()]  # fmt: skip
    if topic is not None and topic not in topics:
        wrong.append(f"--topic {topic}: the file has {', '.join(topics)}")
    if wrong:
        raise UsageError(error("K588", "an erasure that cannot be meant", "\n".join(wrong)))


def _confirm(found: PayloadSelection, tenant: str, *, yes: bool) -> None:
    if yes:
        return
    if not is_terminal():
        detail = f"this removes {many(found.messages, 'payload')} of {tenant} for good: say --auto-approve"
        raise RefusedError(error("K619", "not confirmed", detail))
    if not typer.confirm(f"Erase {many(found.messages, 'payload')} of {tenant} for good?", err=True):
        raise RefusedError(error("K619", "not confirmed", "nothing was erased"))


class _View(PipelineProgress):
    """Progress of `pipeline erase`: the plan and the result."""

    def plan(self, found: PayloadSelection, tenant: str) -> None:
        """Prints the payloads that would be erased."""
        facts: dict[str, Any] = {"messages": found.messages, "bytes": found.bytes, "files": len(found.files)}
        times = {"since": found.since, "until": found.until}
        if self.json:
            self.line("plan", "", tenant=tenant, topics=dict(found.topics), **facts, **times)
            return
        what = f"{many(found.messages, 'payload')} ({found.bytes / 1e6:.1f} MB) in {many(len(found.files), 'file')}"
        say_folded(f"{tenant}: {what}")
        for name, messages in found.topics.items():
            say_folded(f"  {name}: {messages:,}")

    def end(self, messages: int, removed: int, *, shown: int, alone: bool) -> None:
        """Prints the payloads that were erased. `shown`: the number of payloads in the plan."""
        if self.json:
            self.line("end", "", messages=messages, removed=removed, alone=alone)
            return
        gone = f"{many(messages, 'payload')} erased, {many(removed, 'old file')} removed, {self.seconds:.1f} s"
        say_folded(f"{gone}; the table `erasures` has the record.")
        if messages != shown:
            say_folded(f"The plan showed {shown:,}: some landed, or went, before it was confirmed.")
        if not alone:
            say_folded(
                "In a store, what killed runs left within the last day is removed by a later `pipeline maintain`."
            )
