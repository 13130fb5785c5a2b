"""Sending of many messages in one call: pipelined, and every message accounted for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kodo_consumer.core.checks.message_validation import SendOptions
from kodo_consumer.core.payloads.plain_values import is_model
from kodo_consumer.core.values.broker import Confirmed, Receipt, Rejected, Unconfirmed
from kodo_consumer.core.values.wire_texts import kind_of
from kodo_consumer.sending.numbered_publisher import RECEIPT_TIMEOUT
from kodo_consumer.sending.pending_messages import OnStored, not_stored
from kodo_consumer.sending.send_hooks import Draft
from kodoctl.errors import KodoctlError, UsageError, error
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodo_consumer.sending.level_senders import PostedMessage

_SHOWN: Final = 10  # failures that the text of the error has
# refusals of one message: others may be sent
_OF_ONE: Final = frozenset({"K716", "K717", "K729", "K730", "K732", "K734"})
_ONE: Final = (str, bytes, bytearray, memoryview, Mapping, Draft)  # what is one payload, though Python iterates it
Post = Callable[[Any, OnStored, SendOptions], "PostedMessage"]


class SendManyError(KodoctlError):
    """Some messages of a call of `send_many` were refused or have no receipt. `failures`: the error of each, by its
    index; `identities`: of all messages up to the last one that was tried, "" for those that were refused. If
    `send_many` ended early, messages after these were not read: `messages` raised an exception, the cluster takes no
    messages, or the producer was closed, for example.
    """

    def __init__(
        self, topic: str, failures: Mapping[int, KodoctlError], identities: Sequence[str], *, early: bool
    ) -> None:
        self.failures, self.identities = dict(sorted(failures.items())), list(identities)
        first = [f"[{at}] {problem.diagnostics[0]}" for at, problem in list(self.failures.items())[:_SHOWN]]
        more = [f"and {len(self.failures) - _SHOWN} more, in `failures`"] if len(self.failures) > _SHOWN else []
        rest = [f"it ended there: nothing from [{len(identities)}] on was read"] if early else []
        of = f"{len(self.failures)} of {many(len(identities), 'message')} for {topic}"
        super().__init__(error("K733", "messages not sent", "; ".join([of, *first, *more, *rest])))


def _problems(messages: Any, options: SendOptions) -> Iterator[str]:
    """Texts about arguments of a call that cannot be meant: a text or a model would be sent piece by piece."""
    if isinstance(messages, _ONE) or is_model(messages) or not isinstance(messages, Iterable):
        yield f"messages is {kind_of(messages)}, not a list or another iterable of payloads"
    if "id" in options:
        yield "id: an identity is of one message; give each a Draft of its own"


class _Sent:
    """A message of the call. `size`: bytes of payload, once it was sent."""

    __slots__ = ("at", "by", "size")

    def __init__(self, at: int, by: ManySends) -> None:
        self.at, self.by, self.size = at, by, 0

    def take_size(self, size: int) -> None:
        """Takes the bytes of payload, which the text of an error has."""
        self.size = size

    def on_receipt(self, receipt: Receipt) -> None:
        """Takes the receipt of the message."""
        self.by.on_receipt(self, receipt)


class ManySends:
    """One call of `send_many`. `post`: sends a message; `unclaimed`: gets the receipts of a call that was interrupted,
    if they report failures or come later.
    """

    def __init__(self, topic: str, post: Post, unclaimed: OnStored) -> None:
        self._topic, self._post, self._unclaimed = topic, post, unclaimed
        self._lock = threading.Condition()
        self._out: set[int] = set()  # indexes of messages without receipt
        self._lost: dict[_Sent, Unconfirmed | Rejected] = {}
        self._refused: dict[int, KodoctlError] = {}
        self._identities: list[str] = []
        self._interrupted = False

    def send(self, messages: Iterable[Any], options: SendOptions) -> list[str]:
        """Sends the messages and waits for their receipts, at most 90 s after the last send. Returns their identities,
        in order. Raises UsageError for arguments that cannot be meant, and SendManyError if a message was refused or
        has no receipt. An exception of the iterator `messages` is raised after the receipts of the messages before it,
        unless one of these has failed.
        """
        if problems := list(_problems(messages, options)):
            raise UsageError(*(error("K730", "not an argument of a message", detail) for detail in problems))
        try:
            early = not self._post_all(messages, options)
        except Exception as problem:  # of `messages`: what was sent before gets its receipts first
            self._wait()
            if failed := self._error(early=True):
                raise failed from problem
            problem.add_note(f"{many(len(self._identities), 'message')} before it were sent to {self._topic}")
            raise
        except BaseException:
            self._interrupt()
            raise
        self._wait()
        if failed := self._error(early=early):
            raise failed
        return self._identities

    def on_receipt(self, sent: _Sent, receipt: Receipt) -> None:
        """Takes a receipt, on any thread."""
        with self._lock:
            if self._interrupted:
                self._unclaimed(receipt)
                return
            self._out.discard(sent.at)
            if not isinstance(receipt, Confirmed):
                self._lost[sent] = receipt
            if not self._out:
                self._lock.notify_all()

    def _post_all(self, messages: Iterable[Any], options: SendOptions) -> bool:
        """Posts all messages. Returns False if it ended before the last one, because no more can be sent."""
        for at, message in enumerate(messages):
            payload, own = message, options
            if isinstance(message, Draft):
                payload, own = message.payload, {**options, **message.options}
            sent = _Sent(at, self)
            with self._lock:
                self._out.add(at)
            try:
                posted = self._post(payload, sent.on_receipt, own)
            except KodoctlError as problem:
                with self._lock:
                    self._out.discard(at)
                self._refused[at] = problem
                self._identities.append("")
                if problem.diagnostics[0].code not in _OF_ONE:
                    return False
            else:
                sent.take_size(posted.size)
                self._identities.append(posted.name)
        return True

    def _wait(self) -> None:
        """Waits for the receipts of all messages; publishers give a message up before this does."""
        with self._lock:
            self._lock.wait_for(lambda: not self._out, RECEIPT_TIMEOUT)

    def _interrupt(self) -> None:
        """Hands receipts over that report a failure, so that `flush` or the end of the program reports them."""
        with self._lock:
            self._interrupted = True
            for receipt in self._lost.values():
                self._unclaimed(receipt)

    def _error(self, *, early: bool) -> SendManyError | None:
        """The error to raise; None: all messages that were read are stored."""
        with self._lock:
            lost = {sent.at: not_stored(self._topic, receipt, sent.size) for sent, receipt in self._lost.items()}
            late = {at: not_stored(self._topic, Unconfirmed("no receipt in time"), 0) for at in self._out}
        failures = {**self._refused, **lost, **late}
        return SendManyError(self._topic, failures, self._identities, early=early) if failures else None
