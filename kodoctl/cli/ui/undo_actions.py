"""Plans that take an apply back, for the console: made and carried out by the functions of `undo`.

The first plan imports these functions, and not this module, so that the first screen comes sooner.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kodoctl.cli.common import command_target
from kodoctl.cli.common.command_target import TargetOptions, shown_target
from kodoctl.errors import Severity
from kodoctl.text.line import Line
from kodoctl.topology.names import NamespaceName
from kodoctl.ui.actions import ActionPlan, ActionResult, Confirmation, Watch

if TYPE_CHECKING:
    from kodoctl.apply.report import ApplyEvent
    from kodoctl.plan.history_document import ApplyRow
    from kodoctl.plan.plan import Plan
    from kodoctl.ui.action_forms import UndoRequest
    from kodoctl.ui.first_screen import CommandWords


class UndoActions:
    """Maker of plans that take applies back. `confirm`: raises KodoctlError if the context is protected and its name
    was not typed.
    """

    def __init__(self, target: TargetOptions, words: CommandWords, confirm: Callable[[Confirmation], None]) -> None:
        self._target, self._words, self._confirm = target, words, confirm

    def applies(self, space: NamespaceName) -> list[ApplyRow]:
        """Reads the applies of a namespace, oldest first. Raises KodoctlError."""
        from kodoctl.cli.apply.namespace_history import journal_history
        from kodoctl.plan.history import to_json

        with self._target.session() as session:
            found, _ = journal_history(session.admin, session.client, space)
        return [to_json(one) for one in found.applies]

    def plan(self, request: UndoRequest, space: NamespaceName) -> ActionPlan:
        """Makes the plan of taking an apply back, and writes nothing. The plan has no verb, so that the page shows no
        button, if nothing is left to take back or if the plan is refused. Raises KodoctlError.
        """
        from kodoctl.plan import plan_file
        from kodoctl.plan.diff import Allowances
        from kodoctl.plan.live.undo_planner import prepare_undo
        from kodoctl.render.plan_text import plan_lines

        with self._target.session() as session:
            undoing = prepare_undo(session, space, request.apply_id, Allowances(destroy=frozenset(request.destroy)))
            target = shown_target(session.connection)
        plan, form = undoing.plan, plan_file.to_json(undoing.plan)
        lines = [*plan_lines(form, target)]
        if plan.empty:
            lines.append(Line(f"Nothing of {undoing.applied.id} is left to take back.", "bold"))
        else:
            commit = f"commit {undoing.applied.commit[:12]}" if undoing.applied.commit else "the change of the file"
            lines.append(Line(f"Then revert {commit}: else the next apply does it again."))
        return ActionPlan(
            lines=tuple(lines),
            digest=form["seal"],
            commands=(request.command(self._words, str(space)),),
            verb="" if plan.empty or plan.refused else "Take it back",
            findings=tuple(one for one in plan.all_findings() if one.severity is Severity.ERROR),
            confirm=self._confirm,
            carry_out=partial(self._carry_out, plan, space),
        )

    def _carry_out(self, plan: Plan, space: NamespaceName, _: Confirmation, watch: Watch) -> ActionResult:
        from kodoctl.apply.fleet_run import Task, run_fleet
        from kodoctl.apply.run import RunOptions
        from kodoctl.cli.apply.apply_report import context_name, report_texts
        from kodoctl.plan.fleet import ONLY

        def listen(event: ApplyEvent) -> None:
            watch.progress(event.number, event.total)

        options = RunOptions(command_target.who(), verb="undo", commit=command_target.commit_of(plan.paths))
        with self._target.session() as session:
            task = Task(ONLY, session, plan)
            (ended,) = run_fleet([task], [], options, listen=lambda _: listen, stop=watch.stop)
            context = context_name(session)
        assert ended.report is not None, "errors of one cluster are raised"
        lines = tuple(Line(text, hang=hang) for text, hang in report_texts(ended.report, context, repeats=False))
        history = self._words.line_of_cluster("kodoctl history", str(space), "--id", "last")
        return ActionResult(lines, ended.complete, (history,))
