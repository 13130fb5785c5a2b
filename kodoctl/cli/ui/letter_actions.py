"""Plans on dead and waiting letters for the console: made and carried out by the functions of `recall` and `waiting`.

When a plan is confirmed, its file is written, in the form of the commands, so that a command can continue the work of a
console that was killed. The file is removed when everything in it is done.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kodoctl.cli.common.command_target import TargetOptions, shown_target
from kodoctl.cli.common.ledger_option import ledger_named
from kodoctl.cli.common.options import Format
from kodoctl.cli.letters.console_plans import PLANS, forget_plan, store_plan, unfinished_plans
from kodoctl.cli.letters.recall_apply import Background, approved_plan, confirm_plan
from kodoctl.cli.letters.recall_commands import prepare_plan
from kodoctl.cli.letters.recall_options import ApplyFlags, RecallFlags, family_in, file_with
from kodoctl.cli.letters.waiting_apply import SendPace, may_have_sent, send_paused
from kodoctl.cli.letters.waiting_planning import aimed_lane, plan_lane
from kodoctl.cli.ui.outcome_reading import OutcomeReading
from kodoctl.recall.ledger.delta_ledger import DeltaLedger
from kodoctl.recall.plan import recall_plan_file
from kodoctl.recall.plan.recall_plan import RecallAction
from kodoctl.render.recall import recall_plan_lines, recall_report_lines
from kodoctl.ui.action_forms import LetterRequest, button_words, narrowed
from kodoctl.ui.actions import ActionPlan, ActionResult, Choice, Confirmation, Watch

if TYPE_CHECKING:
    from kodoctl.errors import Diagnostic
    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.pulsar.session import Session
    from kodoctl.recall.plan.recall_plan import RecallPlan
    from kodoctl.topology.expand import Expansion
    from kodoctl.ui.action_forms import LaneFacts
    from kodoctl.ui.first_screen import CommandWords

_RATE: Final = "200/s"
_WAIT: Final = "1m"
_LANE: Final = re.compile(r'^ "lane": ', re.MULTILINE)  # a key of plans of waiting messages alone
PAGE_WORDS: Final = {
    "again": "“Also letters that a recall sent before” in the form",
    "limit": "“At most”",
    "patch": "`kodoctl recall plan --edit` changes the payloads",
    "part": "",
    "rest": "",
}
"""Words of the console in place of COMMAND_WORDS: its form has fields where the command has flags."""
_PARTS: Final = 12  # causes, and tenants, that a page offers alone


@dataclass(slots=True)
class _Attempts:
    """State of all attempts of this console at one plan. `kept`: as in `send_paused`; `since`: begin of the first
    attempt, ms since the epoch, 0: there was none.
    """

    kept: threading.Event = field(default_factory=threading.Event)
    since: int = 0


class LetterActions:
    """Maker of plans on dead and waiting letters. `env`: value of --env, `ledger`: value of --ledger;
    None: not given.
    """

    def __init__(self, target: TargetOptions, env: str | None, ledger: str | None, words: CommandWords) -> None:
        self._target, self._env, self._ledger, self._words = target, env, ledger, words

    @property
    def _ledger_words(self) -> Sequence[str]:
        return ("--ledger", self._ledger) if self._ledger is not None else ()

    def plan(self, request: LetterRequest, lane: LaneFacts, expansion: Expansion) -> ActionPlan:
        """Makes a plan on messages of a lane, as `recall plan`, `recall discard` and `waiting plan` do; sends nothing.
        Raises KodoctlError.
        """
        findings: list[Diagnostic] = []
        with self._target.session() as session:
            made = self._prepare(session, request, lane, findings)
            connection = session.connection
        form = recall_plan_file.to_json(made)
        short = recall_plan_file.hash_of(form)
        discards = made.action is RecallAction.DISCARD
        asked = short if discards and not made.empty else ""
        file = PLANS / f"{made.run}.json"
        return ActionPlan(
            lines=tuple(recall_plan_lines(form, shown_target(connection), names=PAGE_WORDS)),
            digest=form.get("seal", ""),
            commands=tuple(request.commands(self._words, lane, self._ledger_words)),
            continuing=self._continuing(file, waiting=bool(made.lane)),
            verb="" if made.empty else button_words(request.action, made.size, made.kind.noun),
            hash=asked,
            run=made.run,
            findings=tuple(findings),
            choices=tuple(_parts(form["summary"].get("by_cause", {}), form["summary"]["by_tenant"], request, lane)),
            confirm=partial(_confirm, connection, made, short),
            carry_out=partial(self._carry_out, made, file, short, expansion, _Attempts()),
        )

    def unfinished(self) -> list[str]:
        """Command lines that continue the plans in PLANS, sorted by the file of the plan."""
        return [
            command or self._continuing(file, waiting=_LANE.search(text) is not None)
            for file, text, command in unfinished_plans()
        ]

    def _continuing(self, file: Path, *, waiting: bool) -> str:
        group = "waiting" if waiting else "recall"
        return self._words.line_of_cluster(f"kodoctl {group} apply", str(file), *self._ledger_words)

    def _prepare(
        self, session: Session, request: LetterRequest, lane: LaneFacts, findings: list[Diagnostic]
    ) -> RecallPlan:
        file, to = self._words.files[request.topology], request.to or None
        if lane.lane:
            loaded, action = file_with(session, file, self._env, lane.ground), RecallAction(request.action.value)
            aim = aimed_lane(loaded, lane.ground, request.subscription, lane.lane, action, to)
            return plan_lane(
                session, loaded, aim, action, request.where, request.limit, request.because,
                ledger_named(self._ledger), findings.extend,
            )  # fmt: skip
        loaded, family = family_in(session, file, self._env, lane.ground, request.subscription)
        flags = RecallFlags(
            file, lane.ground, request.subscription, request.where, to, request.limit, request.again,
            because=request.because, ledger=self._ledger, env=self._env,
        )  # fmt: skip
        action = RecallAction(request.action.value)
        return prepare_plan(session, action, flags, loaded, family, warn=findings.extend, in_memory=True)

    def _carry_out(
        self,
        made: RecallPlan,
        file: Path,
        short: str,
        expansion: Expansion,
        attempts: _Attempts,
        confirmation: Confirmation,
        watch: Watch,
    ) -> ActionResult:
        """Carries a plan out, as `recall apply` and `waiting apply` do."""
        waiting, background = bool(made.lane), Background(watch.stop, watch.progress, watch.tell)
        continuing = self._continuing(file, waiting=waiting)
        store_plan(recall_plan_file.dumps(made), file, continuing)
        answer = confirmation.hash if made.action is RecallAction.DISCARD else short
        flags = ApplyFlags(str(file), _RATE, self._ledger, hash_=answer, confirm_name=[confirmation.context])
        if waiting:
            flags = replace(flags, max_age="1d")
        stays, attempts.since = False, attempts.since or int(time.time() * 1000)
        try:
            with approved_plan(self._target, flags, Format.JSON, waiting=waiting) as approved:
                began = time.monotonic()
                if waiting:
                    report, seconds, stays = send_paused(approved, SendPace.of(_WAIT, _RATE), background, attempts.kept)
                else:
                    report = approved.send(background=background)
                    seconds = time.monotonic() - began
        except BaseException:
            if not attempts.kept.is_set() and not may_have_sent(made, DeltaLedger(ledger_named(self._ledger))):
                forget_plan(file)
            raise
        complete = report.complete and not stays
        if complete:
            forget_plan(file)
        lines = tuple(recall_report_lines(report, made.action, seconds, made.kind.noun, PAGE_WORDS))
        sent = report.sent + report.had_already + (report.already if made.action.sends else 0)
        outcome = OutcomeReading(self._target, expansion, made, sent, attempts.since) if sent else None
        return ActionResult(lines, complete, () if complete else (continuing,), outcome)


def _confirm(connection: Connection, made: RecallPlan, short: str, typed: Confirmation) -> None:
    """Raises KodoctlError unless the typed texts confirm the plan, in the words of the command line."""
    answer = typed.hash if made.action is RecallAction.DISCARD else short
    confirm_plan(connection, made, short, answer, [typed.context])


def _parts(causes: dict[str, int], tenants: dict[str, int], request: LetterRequest, lane: LaneFacts) -> list[Choice]:
    """Parts of a plan that can be chosen alone: causes, and tenants if there are any."""
    facts = [("cause", causes)]
    facts += [("tenant", tenants)] if lane.fair_by else []
    return [
        Choice(fact, name, count, narrowed(request.where, fact, name))
        for fact, counts in facts
        if len(counts) > 1
        for name, count in list(counts.items())[:_PARTS]
    ]
