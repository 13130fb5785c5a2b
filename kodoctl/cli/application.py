"""The typer application of `kodoctl`, over the table of its commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import typer

from kodoctl import __version__
from kodoctl.cli.lazy_commands import LazyCommand, LazyGroup, group


class Commands(LazyGroup):
    """The root group: every command with its name, its function, and the first sentence of its help."""

    sections: ClassVar[Mapping[str, Sequence[str]]] = {
        "Topology files": ("init", "lint", "fmt", "schema", "explain", "expand", "graph", "docs"),
        "Plan and apply": ("plan", "apply", "show", "drift", "import", "destroy", "forget"),
        "Applies": ("history", "undo", "unlock"),
        "Messages": ("status", "ui", "send", "peek", "recall", "waiting", "replay", "pipeline", "exporter"),
        "Pull requests, clusters, development": ("review", "context", "dev"),
    }
    table = (
        LazyCommand("lint", "kodoctl.cli.topology.topology_commands:lint", "Check topology files: every finding at once, with its place."),
        LazyCommand("fmt", "kodoctl.cli.topology.topology_commands:fmt", "Put keys in one order and indentation at two; comments stay."),
        LazyCommand("init", "kodoctl.cli.topology.topology_commands:init", "Write a commented example and the schema for editors."),
        LazyCommand("schema", "kodoctl.cli.topology.topology_commands:schema", "Print the JSON Schema of a file, for editors."),
        LazyCommand("explain", "kodoctl.cli.topology.explain_command:explain", "Explain a code such as K410, or a key of the topology file."),
        LazyCommand("expand", "kodoctl.cli.topology.expansion_commands:expand", "Show the Pulsar objects that files declare."),
        LazyCommand("graph", "kodoctl.cli.topology.expansion_commands:graph", "Draw lanes and the ways messages take between them."),
        LazyCommand("docs", "kodoctl.cli.topology.docs_command:docs", "Make a catalogue of topologies: pages with search and drawings."),
        LazyCommand("plan", "kodoctl.cli.plan.plan_command:plan", "Show the changes an apply would make, and data at stake."),
        LazyCommand("apply", "kodoctl.cli.apply.apply_command:apply", "Carry out a reviewed plan file; or plan, show and ask first."),
        LazyCommand("drift", "kodoctl.cli.plan.drift_command:drift", "Compare the live cluster with the last apply."),
        LazyCommand("destroy", "kodoctl.cli.apply.destroy_command:destroy", "Delete everything a topology created."),
        LazyCommand("show", "kodoctl.cli.plan.plan_views:show", "Show a plan file again, in any view."),
        LazyCommand("import", "kodoctl.cli.topology.import_command:import_", "Write topology files for live objects that nobody owns."),
        LazyCommand("forget", "kodoctl.cli.apply.ownership_commands:forget", "Give up ownership of live objects, which stay as they are."),
        LazyCommand("history", "kodoctl.cli.apply.history_commands:history", "Show the applies, recalls and live orders of a namespace."),
        LazyCommand("undo", "kodoctl.cli.apply.history_commands:undo", "Take an apply back: plan it backwards, show, ask, carry out."),
        LazyCommand("unlock", "kodoctl.cli.apply.history_commands:unlock", "Take the lease of a namespace from an apply that hangs."),
        LazyCommand("status", "kodoctl.cli.status.status_command:status", "Show levels and states and their waiting messages."),
        LazyCommand("ui", "kodoctl.cli.ui.ui_command:ui", "Serve a console of this cluster to the browser of this machine."),
        LazyCommand("exporter", "kodoctl.cli.status.exporter_command:exporter", "Export depth and age of all lanes as Prometheus metrics."),
        LazyCommand("send", "kodo_consumer.cli.send_command:send", "Send a message, or each line of a file as one."),
        LazyCommand("peek", "kodoctl.cli.letters.peek_command:peek", "Look at stored messages, oldest first; consumes nothing."),
        group("review", "Plans in pull requests. Run it in a job of GitHub or GitLab, with its variables and GITHUB_TOKEN or GITLAB_TOKEN.", (
            LazyCommand("post", "kodoctl.cli.plan.review_commands:post", "Show a plan in a pull request."),
            LazyCommand("approved", "kodoctl.cli.plan.review_commands:fetch_approved", "Fetch the plan that was approved."),
        )),
        group("recall", "Dead letters: choose, review, send again or discard.", (
            LazyCommand("plan", "kodoctl.cli.letters.recall_commands:plan", "Choose dead letters to send again; makes a plan."),
            LazyCommand("discard", "kodoctl.cli.letters.recall_commands:discard", "Choose dead letters to be thrown away."),
            LazyCommand("apply", "kodoctl.cli.letters.recall_apply:apply", "Send the letters of a plan, each exactly once."),
            LazyCommand("list", "kodoctl.cli.letters.recall_commands:list_", "Show the recalls, releases and discards of a namespace."),
        )),
        group("waiting", "Messages that wait: list, release, move or discard them.", (
            LazyCommand("list", "kodoctl.cli.letters.waiting_commands:list_", "Show waiting messages by lane, cause, tenant and due time."),
            LazyCommand("plan", "kodoctl.cli.letters.waiting_commands:plan", "Choose waiting messages of a lane; makes a plan."),
            LazyCommand("apply", "kodoctl.cli.letters.waiting_apply:apply", "Carry out a plan: release, move or discard its messages."),
            LazyCommand("release", "kodoctl.cli.letters.waiting_release:release", "Release the waiting messages of some lanes in one run."),
        )),
        group("replay", "Handled messages: choose, review, deliver again, undo.", (
            LazyCommand("plan", "kodoctl.cli.letters.replay_commands:plan", "Choose handled messages to deliver again; makes a plan."),
            LazyCommand("apply", "kodoctl.cli.letters.replay_apply:apply", "Carry out a plan: its messages, and no others, come again."),
            LazyCommand("undo", "kodoctl.cli.letters.replay_apply:undo", "Take a replay back: what has not come again comes no more."),
            LazyCommand("list", "kodoctl.cli.letters.replay_apply:list_", "Show the replays of a namespace, oldest first."),
        )),
        group("pipeline", "What happened to every message, told from the data. Needs the extra `spark`: pip install '.[spark]' in a clone of kodoctl.", (
            LazyCommand("run", "kodo_pipeline.run.run_command:run", "Ingest, roll up, audit and report in one Spark session."),
            LazyCommand("ingest", "kodo_pipeline.ingest.ingest_command:ingest", "Land the stored messages of the topics as tables."),
            LazyCommand("rollup", "kodo_pipeline.rollup.rollup_command:rollup", "Count landed messages by window, lane and tenant."),
            LazyCommand("recommend", "kodo_pipeline.recommend.recommend_command:recommend", "Tell which tenants make others wait, with a patch."),
            LazyCommand("lab", "kodo_pipeline.simulate.lab_command:lab", "Replay landed traffic with other weights, limits or routes."),
            LazyCommand("audit", "kodo_pipeline.audit.audit_command:audit", "Tell from landed tables whether a message was lost."),
            LazyCommand("report", "kodo_pipeline.report.report_command:report", "Make one page about a landing, for everybody."),
            LazyCommand("sql", "kodo_pipeline.sql.sql_command:sql", "Ask the landing's tables in SQL, without Spark."),
            LazyCommand("maintain", "kodo_pipeline.upkeep.maintain_command:maintain", "Keep the landing small."),
            LazyCommand("erase", "kodo_pipeline.upkeep.erase_command:erase", "Erase the landed payloads of one tenant."),
            group("write-off", "Known losses and doubts: settle them by name.", (
                LazyCommand("plan", "kodo_pipeline.write_off.write_off_commands:plan", "Choose losses and doubts to settle; makes a plan."),
                LazyCommand("apply", "kodo_pipeline.write_off.write_off_commands:apply", "Book a plan: verdicts then leave out what it names."),
            )),
            LazyCommand("convert", "kodo_pipeline.landing.convert_command:convert", "Convert a landing of an older kodoctl into Delta tables."),
            group("recall", "Dead letters, chosen and sent again by Spark.", (
                LazyCommand("plan", "kodo_pipeline.recall.recall_command:plan", "Choose dead or lost messages with Spark; makes a plan."),
                LazyCommand("apply", "kodo_pipeline.recall.recall_command:apply", "Send the letters of a plan, each exactly once."),
            )),
        )),
        group("context", "Named clusters of kodoctl.toml.", (
            LazyCommand("add", "kodoctl.cli.dev.context_commands:add", "Add a context to the user's configuration."),
            LazyCommand("list", "kodoctl.cli.dev.context_commands:list_", "List all contexts; * marks the current one."),
            LazyCommand("use", "kodoctl.cli.dev.context_commands:use", "Make a context the current one (in the user's configuration)."),
            LazyCommand("show", "kodoctl.cli.dev.context_commands:show", "Show one context."),
            LazyCommand("test", "kodoctl.cli.dev.context_commands:try_", "Try a context: what answers, and what may be done."),
        )),
        group("dev", "A real Pulsar on this machine: one process, or a cluster.", (
            LazyCommand("up", "kodoctl.cli.dev.dev_commands:up", "Start a broker or a cluster, or show how to connect to it."),
            LazyCommand("down", "kodoctl.cli.dev.dev_commands:down", "Stop a broker and keep its data."),
            LazyCommand("status", "kodoctl.cli.dev.dev_commands:status", "Show instances."),
            LazyCommand("logs", "kodoctl.cli.dev.dev_commands:logs", "Show the end of a broker's log, or of a node's."),
            LazyCommand("kill", "kodoctl.cli.dev.dev_commands:kill", "End a node of a cluster at once, as a crash does (SIGKILL)."),
            LazyCommand("pause", "kodoctl.cli.dev.dev_commands:pause", "Stop a node as it is (SIGSTOP)."),
            LazyCommand("resume", "kodoctl.cli.dev.dev_commands:resume", "Let a node that was paused go on (SIGCONT)."),
            LazyCommand("stop", "kodoctl.cli.dev.dev_commands:stop", "End a node in order."),
            LazyCommand("start", "kodoctl.cli.dev.dev_commands:start_node", "Start a node again on its data, and wait until it is ready."),
            LazyCommand("token", "kodoctl.cli.dev.dev_commands:token", "Print a token for a role, and nothing else."),
            LazyCommand("reset", "kodoctl.cli.dev.dev_commands:reset", "Stop a broker and remove it with all its data."),
        )),
    )  # fmt: skip


app = typer.Typer(
    name="kodoctl",
    cls=Commands,
    help="Message topologies on Apache Pulsar: declared in one YAML file, planned against the live cluster, applied as reviewed.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(asked: bool) -> None:  # typer's callback signature
    if asked:
        typer.echo(f"kodoctl {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Root command `kodoctl`, which has the option --version, the commands and the groups of commands."""
