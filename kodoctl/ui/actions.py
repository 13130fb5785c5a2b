"""Actions of the console: plans that a person makes on a page, reviews, confirms, and lets the console carry out.

An action lives in the console, not in the browser: it has an address, and goes on when its page is closed. Planning
and carrying out run on threads of their own. Each form of an action has a token that belongs to the plan it shows and
to one attempt, so that nothing else is carried out, and nothing twice.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from kodoctl.errors import Diagnostic, KodoctlError, LockedError, RefusedError, Severity, UsageError, error

if TYPE_CHECKING:
    from kodoctl.text.line import Line
    from kodoctl.ui.sent_outcome import OutcomeReader, SentOutcome

_MOST_AT_ONCE: Final = 4  # that are planned or carried out
JSON_FIELD: Final = "json:"  # before the name of a field whose value browsers would change
_OUTDATED: Final = frozenset({"K533", "K534", "K543", "K559", "K822"})  # codes after which only a new plan helps
_MOST_KEPT: Final = 40  # plans may have 100,000 letters


class ActionStage(StrEnum):
    """Stage of an action: it is being planned, waits for confirmation, is being carried out, or has ended. An action
    whose planning failed has ended, too, without a plan.
    """

    PLANNING = "planning"
    PLANNED = "planned"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Texts that the user typed: the name of a protected context, and the hash of a plan that discards. "": none."""

    context: str = ""
    hash: str = ""


@dataclass(frozen=True, slots=True)
class Watch:
    """Watch over an action that is carried out, which calls its functions. `stop`: event that is set to end the action
    in order; `progress`: takes the number of steps that are done, and of all; `tell`: takes a line for people.
    """

    stop: threading.Event
    progress: Callable[[int, int], None]
    tell: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ActionResult:
    """Result of an attempt. `lines`: report; `complete`: nothing is left to do; `commands`: command lines that show the
    record of it, or continue it; `outcome`: reads the outcome of the sent messages, None if none were sent.
    """

    lines: tuple[Line, ...]
    complete: bool
    commands: tuple[str, ...] = ()
    outcome: OutcomeReader | None = None

    @property
    def known(self) -> SentOutcome | None:
        """The outcome that was read last; None if none was read yet, or nothing was sent."""
        return self.outcome.last if self.outcome is not None else None


@dataclass(frozen=True, slots=True)
class Choice:
    """A part of a plan that can be chosen alone. `kind`: `cause` or `tenant`; `name`: that cause or tenant; `count`:
    number of its messages in the plan; `where`: condition of the part.
    """

    kind: str
    name: str
    count: int
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionPlan:
    """A plan that a page shows. `lines`: the plan as the command line prints it; `digest`: hash of everything that it
    does; `commands`: command lines that make and carry out the same plan anew; `continuing`: command line that goes on
    with this one once it has begun, "": there is none; `verb`: text of the button, "" if there is nothing to carry out
    or the plan is refused; `hash`: that the user has to type, "" if none; `run`: its name in history, "" for none;
    `findings`: warnings and refusals; `choices`: parts of it.

    `confirm`: raises KodoctlError unless the typed texts are right; `carry_out`: carries the plan out, and blocks
    meanwhile; raises KodoctlError.
    """

    lines: tuple[Line, ...]
    digest: str
    commands: tuple[str, ...]
    verb: str
    confirm: Callable[[Confirmation], None]
    carry_out: Callable[[Confirmation, Watch], ActionResult]
    hash: str = ""
    continuing: str = ""
    run: str = ""
    findings: tuple[Diagnostic, ...] = ()
    choices: tuple[Choice, ...] = ()


@dataclass(slots=True)
class PlannedAction:
    """One action. `title`: text about it; `back`: path and query of the form that it comes from; `began`: time at which
    its present stage began, in ms since the epoch; `attempt`: number of attempts begun; `done`, `total`: steps of the
    last one, 0 if not known; `notes`: lines about the last one; `problems`: findings because of which planning or the
    last attempt failed; `refused`: they came with a RefusedError; `has_begun`: an attempt has done a part.
    """

    id: str
    title: str
    back: str
    began: int
    stage: ActionStage = ActionStage.PLANNING
    plan: ActionPlan | None = None
    result: ActionResult | None = None
    problems: tuple[Diagnostic, ...] = ()
    refused: bool = False
    has_begun: bool = False
    attempt: int = 0
    done: int = 0
    total: int = 0
    notes: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def state_text(self) -> str:
        """Words for its stage, with the outcome of its messages as it was read last."""
        match self.stage:
            case ActionStage.PLANNING:
                return "is being planned"
            case ActionStage.RUNNING:
                return "is being carried out"
        if self.refusals:
            first = self.refusals[0]
            return f"refused: {first.summary}{f': {first.detail.splitlines()[0]}' if first.detail else ''}"
        if self.plan is None:
            return f"no plan could be made: {self.problems[0].summary}"
        if self.stage is ActionStage.PLANNED:
            return "planned, not carried out" if self.plan.verb else "planned: there is nothing to do"
        if self.result is None:
            return f"ended by an error: {self.problems[0].summary}"
        if self.result.outcome is None:
            return "done" if self.result.complete else "ended, not complete"
        known = self.result.known
        text = known.text if known is not None else "sent; nobody has looked yet what became of the messages"
        return text if self.result.complete else f"ended, not complete; {text}"

    @property
    def is_busy(self) -> bool:
        """True while a thread plans the action or carries it out."""
        return self.stage in (ActionStage.PLANNING, ActionStage.RUNNING)

    @property
    def is_void(self) -> bool:
        """True if the last attempt was refused with a code after which the plan is given up, mostly because files or
        cluster have changed or the plan is too old: the action cannot be carried out again.
        """
        return self.refused and any(one.code in _OUTDATED for one in self.problems)

    @property
    def refusals(self) -> tuple[Diagnostic, ...]:
        """Findings because of which the plan was not made, may not be carried out, or was not; empty if it was not
        refused.
        """
        if self.refused:
            return self.problems
        found = self.plan.findings if self.plan is not None and not self.plan.verb else ()
        return tuple(one for one in found if one.severity is Severity.ERROR)

    @property
    def is_open(self) -> bool:
        """True if the plan may be carried out: there was no attempt, or the last one failed or left a part that another
        may do. False while the action is busy, and if its plan has no `verb` or it is void.
        """
        if self.plan is None or not self.plan.verb or self.is_void:
            return False
        return self.stage is ActionStage.PLANNED or (
            self.stage is ActionStage.ENDED and (self.result is None or not self.result.complete)
        )

    @property
    def next_command(self) -> str:
        """Command line that comes next after the attempts so far; "" if there was none, or nothing is left to do. It
        continues a plan of which a part was done, also an outdated one, and makes another one anew.
        """
        if self.plan is None or not self.attempt or not (self.is_open or self.is_void):
            return ""
        if self.plan.continuing and (self.has_begun or self.result is not None):
            return self.plan.continuing
        return ((self.result.commands if self.result is not None else ()) or self.plan.commands)[0]


class ActionDesk:
    """All actions of a console, of which the last 40 are kept. Methods may be called from any thread. `defect`: makes a
    finding of an unexpected exception; `form_token`: secret of all forms that begin to plan.
    """

    def __init__(self, defect: Callable[[Exception], Diagnostic]) -> None:
        self.defect, self._secret = defect, secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._actions: dict[str, PlannedAction] = {}
        self._threads: dict[str, threading.Thread] = {}  # by the id of the action
        self._closed = False
        self.form_token = self._sign("form")

    def actions(self) -> list[PlannedAction]:
        """Copies of all actions that the console still has, the newest first."""
        with self._lock:
            return [replace(one) for one in reversed(self._actions.values())]

    def get(self, name: str) -> PlannedAction:
        """A copy of the action of this id, as it is now: a page must not show a plan with the token of another moment.
        Raises UsageError (K038) if the console does not know it.
        """
        with self._lock:
            return replace(self._known(name))

    def _known(self, name: str) -> PlannedAction:
        if (found := self._actions.get(name)) is None:
            detail = "the console was started anew since then, or has made many plans since: nothing of it is lost, open Actions, or plan again"
            raise UsageError(error("K038", "unknown action", detail))
        return found

    def token(self, action: PlannedAction) -> str:
        """Secret of the forms that act on the plan of an action as it is now. It changes when an attempt begins."""
        return self._token(action, action.attempt)

    def check_form(self, token: str) -> None:
        """Raises RefusedError (K039) unless `token` is that of a form of this console."""
        if not hmac.compare_digest(token.encode(), self.form_token.encode()):
            raise _no_form()

    def plan(self, title: str, back: str, make: Callable[[], ActionPlan]) -> PlannedAction:
        """Begins to plan by `make` on a thread of its own, and returns the new action at once. `title`: text about the
        action; `back`: path and query of its form. An exception of `make` becomes the action's `problems`. Raises
        LockedError (K037) if four actions are busy, or the console is about to end.
        """
        action = PlannedAction(secrets.token_urlsafe(9), title, back, _now())

        with self._lock:
            self._check_room()
            self._actions[action.id] = action
            self._drop_old()
            self._start(action, lambda: {"plan": make()}, ActionStage.PLANNED)
        return action

    def carry_out(self, name: str, token: str, confirmation: Confirmation) -> PlannedAction:
        """Begins to carry out the plan of an action on a thread of its own, and returns the action at once; does
        nothing else if the form was sent before or the action is not open. Raises UsageError (K038) for an unknown
        action, RefusedError (K039) for a form that is not of this plan, LockedError (K037) as `plan` does, and the
        errors of the confirmation.
        """
        with self._lock:
            action = self._known(name)
            plan = action.plan
            if plan is None or not self._is_form_of(action, token):
                raise _no_form()
            if not action.is_open or not hmac.compare_digest(token.encode(), self.token(action).encode()):
                return action  # sent twice
            self._check_room()
            plan.confirm(confirmation)
            action.attempt, action.stage, action.began = action.attempt + 1, ActionStage.RUNNING, _now()
            action.result, action.problems, action.refused, action.done, action.total = None, (), False, 0, 0
            action.notes.clear()
            action.stop.clear()

            def progress(done: int, total: int) -> None:
                action.done, action.total = done, total
                action.has_begun = action.has_begun or done > 0

            watch = Watch(action.stop, progress, action.notes.append)

            self._start(action, lambda: {"result": plan.carry_out(confirmation, watch)}, ActionStage.ENDED)
        return action

    def stop(self, name: str, token: str) -> PlannedAction:
        """Asks the running attempt of an action to end in order, and returns the action without waiting; does nothing
        if none runs. Raises UsageError (K038) for an unknown action, RefusedError (K039) for a form that is not of its
        plan.
        """
        with self._lock:
            action = self._known(name)
            if not self._is_form_of(action, token):
                raise _no_form()
            if action.stage is ActionStage.RUNNING:
                action.stop.set()
        return action

    def close(self, tell: Callable[[str], None]) -> None:
        """Ends all attempts in order, and waits until they have ended, but for no plan that is being made; nothing
        begins any more. `tell`: takes a line about each attempt that is waited for, and one with the next command for
        each action that is not complete.
        """
        with self._lock:
            self._closed = True
            running = [one for one in self._actions.values() if one.stage is ActionStage.RUNNING]
            threads = [self._threads[one.id] for one in running]
        for action in running:
            tell(f"Interrupted: {action.title}; finishing what has begun. Ctrl-C again stops at once.")
            action.stop.set()
        for thread in threads:
            thread.join()
        for action in reversed(self.actions()):
            if not action.is_busy and (command := action.next_command):
                tell(f"Not complete: {action.title}. Next: {command}")

    def _check_room(self) -> None:
        if self._closed:
            raise LockedError(error("K037", "the console is busy", "it is about to end: start it again"))
        busy = [one.title for one in self._actions.values() if one.is_busy]
        if len(busy) >= _MOST_AT_ONCE:
            raise LockedError(
                error("K037", "the console is busy", f"{'; '.join(busy)}: wait until one of them has ended")
            )

    def _drop_old(self) -> None:
        idle = [name for name, one in self._actions.items() if not one.is_busy]
        for name in idle[: max(0, len(self._actions) - _MOST_KEPT)]:
            del self._actions[name]

    def _start(self, action: PlannedAction, work: Callable[[], Mapping[str, Any]], last: ActionStage) -> None:
        """Runs `work` on a thread, after which the action has the fields that it returns, or its error as problems, and
        is in the stage `last`.
        """

        def run() -> None:
            try:
                fields = work()
            except KodoctlError as problem:
                fields = {"problems": problem.diagnostics, "refused": isinstance(problem, RefusedError)}
            except Exception as problem:  # noqa: BLE001  # a defect must not leave a page that waits for ever
                fields = {"problems": (self.defect(problem),)}
            with self._lock:
                for name, value in fields.items():
                    setattr(action, name, value)
                action.began = _now()
                action.stage = last if action.plan is not None else ActionStage.ENDED

        thread = threading.Thread(target=run, name="kodo-action", daemon=True)
        self._threads = {name: one for name, one in self._threads.items() if one.is_alive()} | {action.id: thread}
        thread.start()

    def _is_form_of(self, action: PlannedAction, token: str) -> bool:
        tokens = [self._token(action, attempt) for attempt in range(action.attempt + 1)]
        return any(hmac.compare_digest(token.encode(), one.encode()) for one in tokens)

    def _token(self, action: PlannedAction, attempt: int) -> str:
        return self._sign(action.id, action.plan.digest if action.plan else "", str(attempt))

    def _sign(self, *texts: str) -> str:
        return hmac.new(self._secret, "\0".join(texts).encode(), hashlib.sha256).hexdigest()


def _no_form() -> RefusedError:
    detail = "the form is not of this console and plan, perhaps because the console was started anew: open it again; nothing was done"
    return RefusedError(error("K039", "a form that cannot be used", detail))


def _now() -> int:
    return time.time_ns() // 1_000_000


def fields_of(body: bytes) -> Mapping[str, str]:
    """Fields of a form as browsers send it, by name; of a name that comes twice, the last value. A field `json:NAME`
    gives the field NAME, with a value written as a JSON string. `body`: body of the request. Raises UsageError (K039)
    for anything else.
    """
    try:
        given = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=50, strict_parsing=bool(body)))
        coded = {name for name in given if name.startswith(JSON_FIELD)}
        plain = {name: value for name, value in given.items() if name not in coded}
        return plain | {name.removeprefix(JSON_FIELD): _text(given[name]) for name in coded}
    except (ValueError, TypeError, RecursionError) as problem:
        raise UsageError(error("K039", "a form that cannot be used", f"not the fields of a form: {problem}")) from None


def _text(form: str) -> str:
    """The text of a JSON string. Raises ValueError, TypeError, RecursionError."""
    if not isinstance(text := json.loads(form), str):
        raise TypeError(f"{form[:40]!r} is no text")
    text.encode()  # raises for half a surrogate pair, which no request to the cluster can contain
    return text
