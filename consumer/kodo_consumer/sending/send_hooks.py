"""Interceptors of producers and outboxes: hooks before a message is checked, before it is published, and when it is
stored or has failed.

Spans are hooks of this interface. Sequence numbers are not: a message gets its number and goes to the client in one
step under one lock (NumberedPublisher.publish). A hook between the two would hold up all senders, and one that raises
or sends in another order would leave gaps, by which readers notice losses.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, Unpack, cast

from kodo_consumer.core.checks.message_validation import CheckedMessage
from kodo_consumer.core.values.broker import Confirmed, Receipt
from kodo_consumer.runtime.handler_results import call_problem, close, is_coroutine
from kodo_consumer.sending.pending_messages import OnStored, not_stored
from kodoctl.errors import UsageError, error
from kodoctl.text.escaping import one_line

if TYPE_CHECKING:
    from kodo_consumer.core.checks.message_validation import MessageValidator, NewMessage, SendOptions
    from kodo_consumer.core.values.broker import OnSent
    from kodo_consumer.sending.level_senders import LevelSender, PostedMessage
    from kodoctl.errors import ClusterError

log = logging.getLogger("kodo.producer")
Moment = Literal["send", "publish", "sent", "failed"]
MOMENTS: Final[tuple[Moment, ...]] = ("send", "publish", "sent", "failed")
SendHook = TypeVar("SendHook", bound="Callable[[Draft], Draft | Awaitable[Draft | None] | None]")
PublishHook = TypeVar(
    "PublishHook", bound="Callable[[CheckedMessage], Callable[[Receipt | BaseException], object] | None]"
)
SentHook = TypeVar("SentHook", bound="Callable[[SentMessage], object]")
FailedHook = TypeVar("FailedHook", bound="Callable[[SentMessage, ClusterError], object]")
_QUIET: Final = 10.0  # seconds between two entries about one hook
_MAX_SHOWN: Final = 200  # characters of a reason
_NOT_AWAITED: Final = ": only send_async awaits it"
_ON_A_THREAD: Final = ", and receipts come on a thread: it would never run"


class Draft:
    """A message to be sent: `payload`, any value, and `options`, a dictionary of the options that were given (see
    SendOptions). Both are checked when the message is sent, not before. The payload and the values of the options are
    the caller's own objects, no copies.
    """

    __slots__ = ("options", "payload")

    def __init__(self, payload: Any, **options: Unpack[SendOptions]) -> None:
        self.payload, self.options = payload, options

    def __repr__(self) -> str:
        return f"Draft({self.payload!r}, {', '.join(f'{name}={value!r}' for name, value in self.options.items())})"


class Veto(Exception):  # noqa: N818  # what a hook says, as Dead and Retry of handlers
    """A hook "send" or "publish" raises it, with a reason, to refuse a message: nothing is sent, or written by an
    outbox, and the caller gets UsageError (K734). `send_many` sends the other messages, and has that error among its
    failures.
    """


class SentMessage(NamedTuple):
    """A message that was published, as the hooks "sent" and "failed" get it: its identity (`kodo-id`), the full name of
    the topic of its level, and the draft as the hooks "send" have left it.
    """

    id: str
    topic: str
    draft: Draft


class SendHooks:
    """Interceptors of one sender, each kind in the order in which they were added. `moments`: moments that `add`
    accepts. `needs_drafts`: a hook of another moment than "publish" was added; the caller then makes a draft of each
    message, and passes it through `before` or `before_async`.
    """

    def __init__(self, *, moments: tuple[Moment, ...] = MOMENTS) -> None:
        self._moments, self.needs_drafts = moments, False
        self._hooks: dict[Moment, list[Callable[..., Any]]] = {moment: [] for moment in MOMENTS}
        self._logged: dict[object, float] = {}

    def add(self, moment: Moment, hook: Callable[..., Any]) -> None:
        """Adds a hook. Raises UsageError for a moment that is not in `moments`, for a hook that cannot be called with
        the arguments of its moment, as far as its signature shows, and for an async hook that nobody would await: of
        any moment but "send", and of "send" if "sent" is not in `moments`, as for an outbox.
        """
        if moment not in self._moments:
            raise _invalid(f"{moment!r}: there is {', '.join(self._moments)}")
        arguments = ("the message", "the error") if moment == "failed" else ("the message",)
        if problem := call_problem(hook, arguments):
            raise _invalid(f"{_name(hook)} is called with {' and '.join(arguments)}: {problem}")
        if moment != "send" and is_coroutine(hook):
            why = ", and nothing is awaited between check and send: it would never run"
            raise _invalid(f"{_name(hook)} is async{why if moment == 'publish' else _ON_A_THREAD}")
        if "sent" not in self._moments and is_coroutine(hook):
            raise _invalid(f"{_name(hook)} is async{_NOT_AWAITED}")
        self._hooks[moment].append(hook)
        self.needs_drafts |= moment != "publish"

    def before(self, draft: Draft) -> Draft:
        """The draft after all hooks "send". Each may change the draft in place and return None, or return another
        draft, which the next one gets. Raises UsageError for a veto, and for a hook that returns anything else, as an
        async one does; other exceptions of a hook pass. The hooks after it are not called then.
        """
        for hook in self._hooks["send"]:
            try:
                result = hook(draft)
            except Veto as veto:
                raise _vetoed(hook, veto) from None
            _refuse_awaitable(hook, result, _NOT_AWAITED)
            draft = _next_draft(hook, result, draft)
        return draft

    async def before_async(self, draft: Draft) -> Draft:
        """Does as `before`, but awaits an awaitable that a hook returns, and takes its result."""
        for hook in self._hooks["send"]:
            try:
                result = hook(draft)
                result = await result if inspect.isawaitable(result) else result
            except Veto as veto:
                raise _vetoed(hook, veto) from None
            draft = _next_draft(hook, result, draft)
        return draft

    def publish(
        self,
        by: LevelSender,
        form: MessageValidator,
        message: NewMessage,
        draft: Draft | None,
        on_receipt: OnStored,
        partition: int | None = None,
    ) -> PostedMessage:
        """Publishes a message by a sender, after the hooks "publish"; blocks as LevelSender.publish does. The receipt
        goes, on any thread, to the functions that these hooks have returned; then, with a `draft`, to the hooks "sent"
        or "failed"; then to `on_receipt`. An exception of such a function or hook is logged, at most once in 10 s for
        those of the same code.

        Raises as LevelSender.publish, and as hooks "publish" do (see `prepare`); nothing is published then. The
        functions that were returned before get the exception; hooks "failed" and `on_receipt` are not called.

        Args:
            by: sender of the level.
            form: rules for properties that a hook adds.
            message: the message.
            draft: the draft as the hooks "send" left it; None: hooks "sent" and "failed" are not called.
            on_receipt: gets the receipt.
            partition: number of the partition, which `await_room` returned; None: it is chosen.
        """
        outcomes = self.prepare(CheckedMessage(message, by.topic, form)) if self._hooks["publish"] else ()
        if not outcomes and draft is None:
            return by.publish(message, on_receipt, partition)
        sent = None if draft is None else SentMessage(message.id, by.topic, draft)
        report = partial(self._report, outcomes, sent, len(message.payload or b""), on_receipt)
        try:
            return by.publish(message, report, partition)
        except BaseException as problem:
            self._end(outcomes, problem)
            raise

    def prepare(self, message: CheckedMessage) -> Sequence[OnSent]:
        """Calls the hooks "publish" with a message. Returns the functions that they returned; the caller passes the
        outcome of the send to each. Raises UsageError for a veto, and for a hook that returns neither None nor a
        function; other exceptions of a hook pass. In each case the functions that were returned before get the
        exception, and the hooks after it are not called.
        """
        outcomes: list[OnSent] = []
        try:
            for hook in self._hooks["publish"]:
                if (outcome := hook(message)) is not None:
                    outcomes.append(_function(hook, outcome))
        except Veto as veto:
            refusal = _vetoed(hook, veto)
            self._end(outcomes, refusal)
            raise refusal from None
        except BaseException as problem:
            self._end(outcomes, problem)
            raise
        return outcomes

    def _end(self, outcomes: Sequence[OnSent], result: Receipt | BaseException) -> None:
        for outcome in outcomes:
            self._notify(outcome, result)

    def _report(
        self, outcomes: Sequence[OnSent], sent: SentMessage | None, size: int, on_receipt: OnStored, receipt: Receipt
    ) -> None:
        self._end(outcomes, receipt)
        if sent is not None:
            if isinstance(receipt, Confirmed):
                self._call("sent", sent)
            elif self._hooks["failed"]:
                self._call("failed", sent, not_stored(sent.topic, receipt, size))
        on_receipt(receipt)

    def _call(self, moment: Moment, *arguments: object) -> None:
        for hook in self._hooks[moment]:
            self._notify(hook, *arguments)

    def _notify(self, hook: Callable[..., object], *arguments: object) -> None:
        try:
            _refuse_awaitable(hook, hook(*arguments), _ON_A_THREAD)
        except BaseException:  # of the user's code, SystemExit as well: the message has its outcome all the same
            now, code = time.monotonic(), getattr(_unbound(hook), "__code__", type(hook))  # a function for each message
            if now - self._logged.get(code, float("-inf")) >= _QUIET:
                self._logged[code] = now
                log.warning("interceptor %s failed", _name(hook), exc_info=True)


def _next_draft(hook: Callable[..., Any], result: object, draft: Draft) -> Draft:
    if result is None:
        return draft
    if isinstance(result, Draft):
        return result
    raise _invalid(f"{_name(hook)} returned {type(result).__name__}: return None or a Draft")


def _refuse_awaitable(hook: Callable[..., Any], result: object, why: str) -> None:
    """Raises UsageError for a result that has to be awaited."""
    if result is not None and inspect.isawaitable(result):
        close(result)
        raise _invalid(f"{_name(hook)} is async{why}")


def _function(hook: Callable[..., Any], outcome: Any) -> OnSent:
    """Checks the function that a hook "publish" has returned for the outcome."""
    if not callable(outcome):
        close(outcome)
        raise _invalid(f"{_name(hook)} returned {type(outcome).__name__}: return None or a function")
    return cast("OnSent", outcome)


def _vetoed(hook: Callable[..., Any], veto: Veto) -> UsageError:
    reason = one_line(veto, _MAX_SHOWN) or "no reason given"
    return UsageError(error("K734", "message vetoed", f"{_name(hook)}: {reason}"))


def _invalid(detail: str) -> UsageError:
    return UsageError(error("K735", "invalid interceptor", detail))


def _name(hook: object) -> str:
    return str(getattr(_unbound(hook), "__qualname__", type(hook).__name__))


def _unbound(hook: object) -> object:
    return getattr(hook, "func", hook)  # of a partial
