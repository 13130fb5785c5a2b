# pure: every branch is tested
"""Idempotency guard between a worker and its handlers, if there is a store: done messages do not start again, and
starts are marked.

The guard takes messages from the worker, and is the work source of the handlers. It sends all results and all messages
that are about to start to the store in one exchange, so that many slots share one round trip. A done message is
acknowledged after the store has recorded it, and a message starts after the store has marked it. The guard marks only
messages that start at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, cast

from kodo_consumer.core.values.outcomes import DONE, Deferred, Outcome, Repeated
from kodo_consumer.core.values.store import KEEP_S, Store, StoreAnswer, name_of
from kodo_consumer.runtime.store_session import StoreSession
from kodo_consumer.runtime.suspect_messages import ELSEWHERE, SuspectMessages

if TYPE_CHECKING:
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.deferral import DeferringSource
    from kodo_consumer.core.values.handler_executor import WorkSource
    from kodo_consumer.core.values.policy import Policy
    from kodo_consumer.message import Message

_GRACE: Final = 5.0  # seconds a done message waits for a store that is down
_REPEATED: Final = Repeated()
_PAUSED: Final = Deferred("the store is down")


class GuardedMessages:
    """Messages that the guard took from the worker and has not handed back, each with its name in the store. A second
    copy of a message (its name was in the set already) has the name "". `deferred`: the messages of the set whose
    handler returned and that a token ends later; they take no slot. `open`: those of them that no token has ended yet.
    """

    def __init__(self) -> None:
        self.deferred: set[Message] = set()
        self.open: set[Message] = set()
        self._names: dict[Message, str] = {}
        self._used: set[str] = set()

    def __contains__(self, message: Message) -> bool:
        return message in self._names

    def __len__(self) -> int:
        return len(self._names)

    def add(self, message: Message) -> bool:
        """Adds a message. Returns False if it is the second copy of a message in the set, which is added as well."""
        name = name_of(message.effect)
        is_first = name not in self._used
        self._names[message] = name if is_first else ""
        self._used.add(name)
        return is_first

    def remove(self, message: Message) -> str | None:
        """Removes a message, also from `deferred` and `open`, and returns its name ("": it was a second copy); None: it
        was not in the set.
        """
        name = self._names.pop(message, None)
        self.deferred.discard(message)
        self.open.discard(message)
        if name is not None:
            self._used.discard(name)
        return name

    @property
    def at_work(self) -> int:
        """Number of messages without the deferred ones."""
        return len(self._names) - len(self.deferred)

    def names(self, messages: Sequence[Message]) -> list[str]:
        """Returns the names of those of `messages` that were added and not removed yet, in the same order. The name of
        a second copy is "".
        """
        return [self._names[one] for one in messages if one in self._names]


class UnconfirmedResults:
    """Results of done messages that the store has not confirmed yet, oldest first. While the store is down, each waits
    for it for `grace` seconds at most, and then goes back to the worker unconfirmed.
    """

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._results: deque[tuple[float, Message, Outcome]] = deque()

    def add(self, now: float, message: Message, outcome: Outcome) -> None:
        """Adds the result of a message that was done at `now` (seconds)."""
        self._results.append((now, message, outcome))

    def take(self, now: float, *, patient: bool) -> list[tuple[Message, Outcome]]:
        """Removes and returns the results that may go back to the worker at `now` (seconds): all of them or, with
        `patient` (the store is down), those of messages that were done at least `grace` seconds ago.
        """
        found = []
        while self._results and (not patient or now - self._results[0][0] >= self._grace):
            found.append(self._results.popleft()[1:])
        return found


class IdempotencyGuard:
    """Logic of the guard, without threads. One thread calls `step`, any thread the other methods. `go_on`: handlers run
    while the store is down; `keep`: seconds for which the store remembers ids of done messages.
    """

    def __init__(self, store: Store, policy: Policy, clock: Clock, *, go_on: bool, keep: float = KEEP_S) -> None:
        self.version = 0
        self._clock, self._lock = clock, threading.Lock()
        self.session = StoreSession(store, policy, clock, self._lock, go_on=go_on, keep=keep)
        self._suspects = SuspectMessages(self.session, policy)
        self._source: WorkSource | None = None
        self._ring: Callable[[], object] = lambda: None
        self._wake: Callable[[], object] = lambda: None
        self._out = GuardedMessages()
        self._ready: deque[Message] = deque()
        self._ended: list[tuple[Message, Outcome]] = []
        self._asked: list[Message] = []
        self._back: list[tuple[Message, Outcome]] = []
        self._late = UnconfirmedResults(min(_GRACE, policy.handler_timeout / 2000))
        self._leaving = False

    # ---- towards the handlers: WorkSource

    def next_batch(self, ended: Sequence[tuple[Message, Outcome]], most: int) -> list[Message]:
        """Accepts the results of handlers, and returns at most `most` messages that may start now. Never waits: the
        next `step` passes the results on to the store and the worker. Results of messages that were timed out are
        ignored.
        """
        with self._lock:
            self._ended += [(message, outcome) for message, outcome in ended if message in self._out]
            taken: list[Message] = []
            while len(taken) < most and self._ready:
                message = self._ready.popleft()
                if message in self._out:
                    taken.append(message)
        if ended:
            self._ring()
        return taken

    def next(self, finished: Message | None, outcome: Outcome | None) -> Message | None:
        """Does the same as `next_batch` for one result (both None: no handler ended) and one message. Returns None if
        no message may start now.
        """
        ended = [(finished, outcome)] if finished is not None and outcome is not None else []
        taken = self.next_batch(ended, 1)
        return taken[0] if taken else None

    def leave_open(self, message: Message, timeout: float | None) -> bool:
        """Leaves a message open, because its handler returned and a token ends the message later. Reports this to the
        worker, and lets the next `step` remove the message's mark from the store, so that nobody suspects the message
        if the worker dies. Returns False if its run has ended already. `timeout`: seconds from now after which the
        attempt counts as failed; None: as the settings say.
        """
        with self._lock:
            if message not in self._out:
                return False
            name = name_of(message.effect)
            self.session.unsaved.add(ended=[name])
            self._suspects.on_end(name)
            self._out.deferred.add(message)
            self._out.open.add(message)
        is_open = cast("DeferringSource", self._source).leave_open(message, timeout)
        self._ring()
        return is_open

    def end(self, message: Message, outcome: Outcome) -> bool:
        """Accepts the outcome of a deferred message, which the next `step` passes on. Returns False, without effect, if
        the message is not open.
        """
        with self._lock:
            if message not in self._out.open:
                return False
            self._out.open.remove(message)
            self._ended.append((message, outcome))
        self._ring()
        return True

    def fail(self, problem: BaseException) -> None:
        """Reports to the worker that its executor failed."""
        assert self._source is not None
        self._source.fail(problem)

    # ---- towards the worker

    def start(self, source: WorkSource, ring: Callable[[], object], wake: Callable[[], object]) -> None:
        """Opens the session with the store. The guard calls `ring` if a `step` is needed, and `wake` if handlers may
        take a message. Raises StoreDownError if the store is down, unless handlers may run without it.
        """
        self._source, self._ring, self._wake = source, ring, wake
        self.session.open()

    def time_out(self, message: Message) -> None:
        """Drops a message whose handler took too long: its result is ignored from now on, and the next `step` removes
        its mark from the store.
        """
        with self._lock:
            name = self._out.remove(message)
            if name is not None:
                self.session.unsaved.add(ended=[name])
                self._suspects.on_end(name)
        self._ring()

    def step(self) -> bool:
        """Does one exchange with the store, which may block, and one with the worker. Returns false if there was
        nothing to do.
        """
        source, session = self._source, self.session
        assert source is not None
        now = self._clock.now()
        asked, self._asked = self._asked, []
        any_ended = self._collect(now)
        known = self._ask(asked)
        back, self._back = self._back, []
        back += self._late.take(now, patient=session.down and not (session.go_on or self._leaving))
        if known is not None:
            back += self._start_allowed(asked, known, now)
        elif session.go_on:
            self._start(asked, guarded=False)
        else:
            back += [(message, _PAUSED) for message in asked]
        with self._lock:
            opened = [(message, outcome) for message, outcome in back if message in self._out.deferred]
            for message, _ in back:
                self._out.remove(message)
            shut = self._leaving or (session.down and not session.go_on)
            room = 0 if shut else self._suspects.room(self._out.at_work, now)
        for message, outcome in opened:
            cast("DeferringSource", source).end(message, outcome)
        back = [one for one in back if one not in opened] if opened else back
        taken = source.next_batch(back, room)
        self._take(taken)
        return bool(any_ended or asked or back or opened or taken)

    def leave(self) -> None:
        """Sends the last results to the store and the worker, and ends the session. Does not wait for handlers: the
        caller lets them end before. Raises StoreDownError if the store is down; the worker has the results then.
        """
        self._leaving = True
        if self.session.down:
            self.session.maintain()  # it may be back since the last second
        while self.step():
            pass
        self.session.leave()

    # ---- a step

    def _collect(self, now: float) -> bool:
        unsaved = self.session.unsaved
        with self._lock:
            ended, self._ended = self._ended, []
            for message, outcome in ended:
                name = name_of(message.effect)
                self._suspects.on_end(name)
                if outcome is DONE or isinstance(outcome, Repeated):
                    unsaved.add(done=dict.fromkeys((name, name_of(message.id))))
                    self._late.add(now, message, outcome)
                else:
                    unsaved.add(ended=[name])
                    self._back.append((message, outcome))
            for name in self._suspects.expired_marks(now):
                unsaved.add(ended=[name])
        return bool(ended)

    def _ask(self, asked: list[Message]) -> StoreAnswer | None:
        """Sends all news to the store. Returns its answer about messages that are to start; None: the store is down."""
        if self.session.down:
            return None
        with self._lock:
            sent = self.session.pending(self._out.names(asked))
        return self.session.exchange(sent)

    def _start_allowed(self, asked: list[Message], known: StoreAnswer, now: float) -> list[tuple[Message, Outcome]]:
        """Starts the messages that may start. Returns the other messages with their outcomes."""
        back: list[tuple[Message, Outcome]] = []
        start: list[Message] = []
        for message in asked:
            name = name_of(message.effect)
            mark = known.marks.get(name)
            if name in known.done:
                back.append((message, _REPEATED))
            elif mark is None:
                start.append(message)
            elif (outcome := self._suspects.outcome(name, mark, self._out.at_work, now)) is None:
                start.append(message)
                with self._lock:
                    if message in self._out:  # else it was timed out meanwhile
                        self._suspects.on_start(name)
            else:
                back.append((message, outcome))
        self._start(start)
        return back

    def _start(self, messages: list[Message], *, guarded: bool = True) -> None:
        if not messages:
            return
        with self._lock:
            self._ready.extend(messages)
            self.session.unguarded += 0 if guarded else len(messages)
        self.version += 1
        self._wake()

    def _take(self, taken: list[Message]) -> None:
        with self._lock:
            for message in taken:
                if self._out.add(message):
                    self._asked.append(message)
                else:  # two copies of one message: one after the other
                    self._back.append((message, ELSEWHERE))
