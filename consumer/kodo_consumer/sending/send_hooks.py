"""Interceptors of producers and outboxes: hooks before a message is sent, and when it is stored or has failed."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Unpack

from kodo_consumer.core.values.broker import Confirmed, Receipt
from kodo_consumer.runtime.handler_results import call_problem, close, is_coroutine
from kodo_consumer.sending.pending_messages import OnStored, not_stored
from kodoctl.errors import UsageError, error
from kodoctl.text.escaping import one_line

if TYPE_CHECKING:
    from kodo_consumer.core.checks.message_validation import NewMessage, SendOptions
    from kodo_consumer.core.values.broker import OnSent
    from kodo_consumer.sending.level_senders import LevelSender, PostedMessage

    Follow = Callable[[NewMessage, str], OnSent | None]

log = logging.getLogger("kodo.producer")
Moment = Literal["send", "sent", "failed"]
MOMENTS: Final[tuple[Moment, ...]] = ("send", "sent", "failed")
_QUIET: Final = 10.0  # seconds between two entries about one hook
_MAX_SHOWN: Final = 200  # characters of a reason


class Draft:
    """A message to be sent: its payload, and its options as a dictionary. `options`: see SendOptions. Nothing of it is
    checked before it is sent.
    """

    __slots__ = ("options", "payload")

    def __init__(self, payload: Any, **options: Unpack[SendOptions]) -> None:
        self.payload, self.options = payload, options

    def __repr__(self) -> str:
        return f"Draft({self.payload!r}, {', '.join(f'{name}={value!r}' for name, value in self.options.items())})"


class Veto(Exception):  # noqa: N818  # what a hook says, as Dead and Retry of handlers
    """A hook before sending raises it, with a reason: the message is not sent, and the caller gets UsageError (K734)."""


class SentMessage(NamedTuple):
    """A message that was sent: its identity (`kodo-id`), its topic, and the draft that the hooks have left."""

    id: str
    topic: str
    draft: Draft


class SendHooks:
    """Interceptors of one sender, each kind in the order in which they were added. `moments`: those that `add` takes.
    `is_empty`: none was added.

    `follow`: the library's own interceptor; None: there is none. It is called with each checked message and its topic
    before the message is published. It may add properties, and returns the function that takes the outcome of the send;
    None if no function needs it.
    """

    def __init__(self, follow: Follow | None = None, *, moments: tuple[Moment, ...] = MOMENTS) -> None:
        self._follow, self._moments, self.is_empty = follow, moments, True
        self._hooks: dict[Moment, list[Callable[..., Any]]] = {moment: [] for moment in MOMENTS}
        self._logged: dict[object, float] = {}

    def add(self, moment: Moment, hook: Callable[..., Any]) -> None:
        """Adds a hook. Raises UsageError for an unknown moment, a hook that cannot be called as it will be, and an
        async one that nobody would await.
        """
        if moment not in self._moments:
            raise _invalid(f"{moment!r}: there is {', '.join(self._moments)}")
        arguments = ("the message", "the error") if moment == "failed" else ("the message",)
        if problem := call_problem(hook, arguments):
            raise _invalid(f"{_name(hook)} is called with {' and '.join(arguments)}: {problem}")
        if moment != "send" and is_coroutine(hook):
            raise _invalid(f"{_name(hook)} is async, and receipts come on a thread: it would never run")
        self._hooks[moment].append(hook)
        self.is_empty = False

    def before(self, draft: Draft) -> Draft:
        """The draft after all hooks "send", which may change it in place. One that returns None leaves the draft as it
        is by then; one may return another draft. Raises UsageError for a veto, for a hook that is async and for one
        that returns anything else; other exceptions of a hook pass.
        """
        for hook in self._hooks["send"]:
            try:
                result = hook(draft)
            except Veto as veto:
                raise _vetoed(hook, veto) from None
            if result is not None and inspect.isawaitable(result):
                close(result)
                raise _invalid(f"{_name(hook)} is async: only send_async awaits it")
            draft = _next_draft(hook, result, draft)
        return draft

    async def before_async(self, draft: Draft) -> Draft:
        """Does as `before`, and awaits hooks that are async."""
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
        message: NewMessage,
        draft: Draft | None,
        on_receipt: OnStored,
        partition: int | None = None,
    ) -> PostedMessage:
        """Publishes a message by a sender. The receipt goes to `follow`, to the hooks "sent" or "failed", then to
        `on_receipt`. `draft`: as the hooks "send" left it; None: no hook was added. An exception of a hook is logged,
        at most once in 10 s for each hook. Raises as LevelSender.publish; then `follow` gets the exception, the hooks
        nothing.
        """
        on_sent = None if self._follow is None else self._follow(message, by.topic)
        if on_sent is None and draft is None:
            return by.publish(message, on_receipt, partition)
        sent = None if draft is None else SentMessage(message.id, by.topic, draft)
        report = partial(self._report, on_sent, sent, len(message.payload or b""), on_receipt)
        try:
            return by.publish(message, report, partition)
        except BaseException as problem:
            if on_sent is not None:
                on_sent(problem)
            raise

    def _report(
        self, on_sent: OnSent | None, sent: SentMessage | None, size: int, on_receipt: OnStored, receipt: Receipt
    ) -> None:
        if on_sent is not None:
            on_sent(receipt)
        if sent is not None:
            if isinstance(receipt, Confirmed):
                self._call("sent", sent)
            elif self._hooks["failed"]:
                self._call("failed", sent, not_stored(sent.topic, receipt, size))
        on_receipt(receipt)

    def _call(self, moment: Moment, *arguments: object) -> None:
        for hook in self._hooks[moment]:
            try:
                hook(*arguments)
            except Exception as problem:  # of the user's code; the message is sent all the same
                now = time.monotonic()
                if now - self._logged.get(hook, float("-inf")) >= _QUIET:
                    self._logged[hook] = now
                    log.warning("interceptor %s failed", _name(hook), exc_info=problem)


def _next_draft(hook: Callable[..., Any], result: object, draft: Draft) -> Draft:
    if result is None:
        return draft
    if isinstance(result, Draft):
        return result
    raise _invalid(f"{_name(hook)} returned {type(result).__name__}: return None or a Draft")


def _vetoed(hook: Callable[..., Any], veto: Veto) -> UsageError:
    reason = one_line(veto, _MAX_SHOWN) or "no reason given"
    return UsageError(error("K734", "message vetoed", f"{_name(hook)}: {reason}"))


def _invalid(detail: str) -> UsageError:
    return UsageError(error("K735", "invalid interceptor", detail))


def _name(hook: object) -> str:
    return str(getattr(hook, "__qualname__", type(hook).__name__))
