# pure: every branch is tested
"""Idempotency guard between a worker and its handlers, where there is a store: done messages do not start again, and
starts are marked.

It takes messages from the worker, and is the work source of the handlers. In between, all that
ended and all that is about to start goes to the store in one exchange, so that many slots share one round trip: a
done message is acknowledged after the store knows of it, a message starts after the store knows of that. Nothing is
marked that does not start at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.values.outcomes import DONE, Deferred, Outcome, Repeated
from kodo_consumer.core.values.store import KEEP_S, Store, StoreAnswer, name_of
from kodo_consumer.runtime.store_session import StoreSession
from kodo_consumer.runtime.suspect_messages import ELSEWHERE, SuspectMessages

if TYPE_CHECKING:
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.handler_executor import WorkSource
    from kodo_consumer.core.values.policy import Policy
    from kodo_consumer.message import Message

_GRACE: Final = 5.0  # seconds a done message waits for a store that is down
_REPEATED: Final = Repeated()
_PAUSED: Final = Deferred("the store is down")


class GuardedMessages:
    """Messages that are taken from the worker and not handed back, by name; of one that came twice the second has none."""

    def __init__(self) -> None:
        self._names: dict[Message, str] = {}
        self._used: set[str] = set()

    def __contains__(self, message: Message) -> bool:
        return message in self._names

    def __len__(self) -> int:
        return len(self._names)

    def add(self, message: Message) -> bool:
        """Takes a message. False: a copy of it is there."""
        name = name_of(message.effect)
        is_first = name not in self._used
        self._names[message] = name if is_first else ""
        self._used.add(name)
        return is_first

    def remove(self, message: Message) -> str | None:
        """Its name; None: it is not there any more."""
        name = self._names.pop(message, None)
        if name is not None:
            self._used.discard(name)
        return name

    def names(self, messages: Sequence[Message]) -> list[str]:
        """Returns the names of those of `messages` that were added and not removed yet, in the same order. The name of
        a second copy is "".
        """
        return [self._names[one] for one in messages if one in self._names]


class UnconfirmedResults:
    """Done messages of which the store does not know yet. They wait `grace` seconds for one that is down."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._results: deque[tuple[float, Message, Outcome]] = deque()

    def add(self, now: float, message: Message, outcome: Outcome) -> None:
        """One more."""
        self._results.append((now, message, outcome))

    def take(self, now: float, *, patient: bool) -> list[tuple[Message, Outcome]]:
        """Removes and returns the results that may be handed back: all or, with `patient`, the ones that have waited
        long enough.
        """
        found = []
        while self._results and (not patient or now - self._results[0][0] >= self._grace):
            found.append(self._results.popleft()[1:])
        return found


class IdempotencyGuard:
    """The logic, without threads. `step` is for one thread, the rest for any. See StoreSession for `go_on` and `keep`."""

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
        """See WorkSource."""
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
        """See WorkSource."""
        ended = [(finished, outcome)] if finished is not None and outcome is not None else []
        taken = self.next_batch(ended, 1)
        return taken[0] if taken else None

    def fail(self, problem: BaseException) -> None:
        """See WorkSource."""
        assert self._source is not None
        self._source.fail(problem)

    # ---- towards the worker

    def start(self, source: WorkSource, ring: Callable[[], object], wake: Callable[[], object]) -> None:
        """Begins: `ring` asks for a step, `wake` tells the handlers that there is something to take. Raises StoreDownError
        unless handlers may go on without the store.
        """
        self._source, self._ring, self._wake = source, ring, wake
        self.session.open()

    def time_out(self, message: Message) -> None:
        """The worker has given this message up: its handler took too long."""
        with self._lock:
            name = self._out.remove(message)
            if name is not None:
                self.session.unsaved.add(ended=[name])
                self._suspects.on_end(name)
        self._ring()

    def step(self) -> bool:
        """One exchange with the store and one with the worker. False: there was nothing to do."""
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
            for message, _ in back:
                self._out.remove(message)
            shut = self._leaving or (session.down and not session.go_on)
            room = 0 if shut else self._suspects.room(len(self._out), now)
        taken = source.next_batch(back, room)
        self._take(taken)
        return bool(any_ended or asked or back or taken)

    def leave(self) -> None:
        """The handlers have ended: tells the store the rest. Raises StoreDownError."""
        self._leaving = True
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
        """Answer of the store about messages that are to start, after it took the news. None: it is down."""
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
            elif mark is None or (outcome := self._suspects.outcome(name, mark, len(self._out), now)) is None:
                start.append(message)
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
