"""Between a worker and its handlers where there is a store: what was done is not started again, what is started is
marked.

Towards the worker it takes messages, towards the handlers it is the desk they take them from. In between, all that
ended and all that is about to start goes to the store in one exchange, so that many slots share one round trip: a
done message is acknowledged after the store knows of it, a message starts after the store knows of that. Nothing is
marked that does not start at once.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

from kodo_consumer.core.clock import Clock
from kodo_consumer.core.handler_executor import WorkSource
from kodo_consumer.core.outcomes import DONE, Died, Outcome, Postponed, Repeated
from kodo_consumer.core.poison import (
    MAX_CRASHES,
    CrashMark,
    Heartbeats,
    Judgement,
    PoisonState,
    SoloRun,
    judge,
    reason_of,
)
from kodo_consumer.core.policy import Policy
from kodo_consumer.core.store import KEEP_S, Exchange, Store, StoreAnswer, StoreDownError, name_of
from kodo_consumer.message import Message

log = logging.getLogger("kodo.consumer")
PROBE: Final = "kodo: is the store there?"
_GRACE: Final = 5.0  # seconds a done message waits for a store that is down
_MOST_UNSAVED: Final = 100_000
_RESERVE: Final = 10_000
_BURIED: Final = 60.0  # seconds the mark of a dead message is kept: until it is surely among the dead letters
_REPEATED: Final = Repeated()
_PAUSED: Final = Postponed("the store is down")
_ELSEWHERE: Final = Postponed("it is being handled already")
_NOT_ALONE: Final = Postponed("it must run alone")


@dataclass(slots=True)
class PendingWrites:
    """What the store has yet to be told. Bounded: of what was done the oldest is forgotten, `forgotten` counts it."""

    done: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    forgotten: int = 0

    def __bool__(self) -> bool:
        return bool(self.done or self.ended)

    def add(self, *, done: Iterable[str] = (), ended: Iterable[str] = ()) -> None:
        """More to tell."""
        self.done += done
        self.ended += ended
        over = max(0, len(self.done) - _MOST_UNSAVED)
        self.forgotten += over
        del self.done[:over], self.ended[: max(0, len(self.ended) - _MOST_UNSAVED)]


class IdempotencyGuard:
    """The logic, without threads. `step` and `keep_house` are each called by one thread, the rest by any.

    `go_on`: whether handlers go on while the store is down. `keep`: seconds for which the id of a done message is
    remembered. A repeat may come long after its first: as a copy of a move that waits for its turn as long as others
    of its topic do. `ring` asks for a step, `wake` tells the handlers that there is something to take.
    """

    def __init__(self, store: Store, policy: Policy, clock: Clock, *, go_on: bool, keep: float = KEEP_S) -> None:
        self.version = 0
        self.down = False
        self.unguarded = 0  # starts without a mark, since the store is down
        self.ring: Callable[[], object] = lambda: None
        self.wake: Callable[[], object] = lambda: None
        self._store, self._policy, self._clock, self._go_on = store, policy, clock, go_on
        self._keep_s = keep
        self._grace = min(_GRACE, policy.handler_timeout / 2000)
        self._lock = threading.Lock()
        self._desk: WorkSource | None = None
        self._out: dict[Message, str] = {}  # taken from the worker and not handed back: their names
        self._names: set[str] = set()
        self._ready: deque[Message] = deque()
        self._ended: list[tuple[Message, Outcome]] = []
        self._asked: list[Message] = []
        self._back: list[tuple[Message, Outcome]] = []
        self._late: deque[tuple[float, Message, Outcome]] = deque()  # done, and the store does not know
        self._unsaved = PendingWrites()
        self._buried: deque[tuple[float, str]] = deque()
        self._solitude = SoloRun(policy.concurrency)
        self._signs = Heartbeats()
        self._since_prune = 0
        self._workers = policy.expected_workers
        self._leaving = False

    # ---- towards the handlers: Desk

    def exchange(self, ended: Sequence[tuple[Message, Outcome]], most: int) -> list[Message]:
        """See WorkSource."""
        with self._lock:
            self._ended += [(message, outcome) for message, outcome in ended if message in self._out]
            taken: list[Message] = []
            while len(taken) < most and self._ready:
                message = self._ready.popleft()
                if message in self._out:
                    taken.append(message)
        if ended:
            self.ring()
        return taken

    def turn(self, finished: Message | None, outcome: Outcome | None) -> Message | None:
        """See WorkSource."""
        ended = [(finished, outcome)] if finished is not None and outcome is not None else []
        taken = self.exchange(ended, 1)
        return taken[0] if taken else None

    def broke(self, problem: BaseException) -> None:
        """See WorkSource."""
        assert self._desk is not None
        self._desk.broke(problem)

    # ---- towards the worker

    def start(self, desk: WorkSource) -> None:
        """Begins. Raises StoreDownError unless handlers may go on without the store."""
        self._desk = desk
        try:
            self._store.create()
            self._observe()
        except StoreDownError as problem:
            if not self._go_on:
                raise
            self._fell(problem)

    def abandon(self, message: Message) -> None:
        """The worker has given this message up: its handler took too long."""
        with self._lock:
            name = self._out.pop(message, None)
            if name is not None:
                self._names.discard(name)
                self._unsaved.add(ended=[name])
                self._solitude.settled(name)
        self.ring()

    def step(self) -> bool:
        """One exchange with the store and one with the worker. False: there was nothing to do."""
        desk = self._desk
        assert desk is not None
        now = self._clock.now()
        asked, self._asked = self._asked, []
        any_ended = self._collect(now)
        known = self._ask(asked)
        back = self._held_back(now)
        if known is not None:
            back += self._judged(asked, known, now)
        elif self._go_on:
            self._start(asked, guarded=False)
        else:
            back += [(message, _PAUSED) for message in asked]
        with self._lock:
            for message, _ in back:
                self._names.discard(self._out.pop(message, ""))
            shut = self._leaving or (self.down and not self._go_on)
            room = 0 if shut else self._solitude.room(len(self._out), now)
        taken = desk.exchange(back, room)
        self._take(taken)
        return bool(any_ended or asked or back or taken)

    def leave(self) -> None:
        """The handlers have ended: tells the store the rest. Raises StoreDownError."""
        self._leaving = True
        while self.step():
            pass
        self._store.leave()

    # ---- a step

    def _collect(self, now: float) -> bool:
        with self._lock:
            ended, self._ended = self._ended, []
            for message, outcome in ended:
                name = name_of(message.effect)
                self._solitude.settled(name)
                if outcome is DONE or isinstance(outcome, Repeated):
                    self._unsaved.add(done=dict.fromkeys((name, name_of(message.id))))
                    self._late.append((now, message, outcome))
                else:
                    self._unsaved.add(ended=[name])
                    self._back.append((message, outcome))
            while self._buried and self._buried[0][0] <= now:
                self._unsaved.add(ended=[self._buried.popleft()[1]])
        return bool(ended)

    def _ask(self, asked: list[Message]) -> StoreAnswer | None:
        """What the store knows of messages about to start, and tells it the rest. None: it is down."""
        if self.down:
            return None
        with self._lock:
            told = Exchange(
                list(self._unsaved.done), list(self._unsaved.ended), [self._out[m] for m in asked if m in self._out]
            )
        if not (told.done or told.ended or told.starting):
            return StoreAnswer()
        try:
            known = self._store.exchange(told)
        except StoreDownError as problem:
            self._fell(problem)
            return None
        self._saved(told)
        return known

    def _saved(self, told: Exchange) -> None:
        with self._lock:
            del self._unsaved.done[: len(told.done)], self._unsaved.ended[: len(told.ended)]
            self._since_prune += len(told.done)

    def _held_back(self, now: float) -> list[tuple[Message, Outcome]]:
        """What may be handed back now: not what is done while the store does not know, but for so long."""
        back, self._back = self._back, []
        patience = self._grace if self.down and not (self._go_on or self._leaving) else 0.0
        while self._late and (not patience or now - self._late[0][0] >= patience):
            _, message, outcome = self._late.popleft()
            back.append((message, outcome))
        return back

    def _judged(self, asked: list[Message], known: StoreAnswer, now: float) -> list[tuple[Message, Outcome]]:
        """Starts what may start; answers the others with what becomes of them."""
        back: list[tuple[Message, Outcome]] = []
        start: list[Message] = []
        if known.marks:
            self._observe_or_not()
        for message in asked:
            name = name_of(message.effect)
            if name in known.done:
                back.append((message, _REPEATED))
            elif (mark := known.marks.get(name)) is None or (outcome := self._on_suspicion(name, mark, now)) is None:
                start.append(message)
            else:
                back.append((message, outcome))
        self._start(start)
        return back

    def _on_suspicion(self, name: str, mark: CrashMark, now: float) -> Outcome | None:
        """What becomes of a message with a mark; None: it starts."""
        judgement = _own(mark) if mark.run == self._store.run else judge(mark, self._signs.lives)
        run, crashes = self._store.run, judgement.crashes
        match judgement.standing:
            case PoisonState.CLEAR:
                return None
            case PoisonState.ELSEWHERE:
                return _ELSEWHERE
            case PoisonState.POISON:
                log.error("%s is dead: it %s", name, reason_of(crashes))
                self._solitude.settled(name)
                if self._taken_over(name, mark, CrashMark(run, crashes=crashes)):
                    if self._policy.dead_letter is not None:  # else it stays, and must never start again
                        self._buried.append((now + _BURIED, name))
                    return Died(reason_of(crashes))
                return _ELSEWHERE
            case PoisonState.SUSPECT:
                self._solitude.met(name, now)
                if len(self._out) > 1:
                    return _NOT_ALONE
                log.warning(
                    "%s was being handled when a worker ended: it runs alone (crashes while alone: %d)", name, crashes
                )
                return None if self._taken_over(name, mark, CrashMark(run, alone=True, crashes=crashes)) else _ELSEWHERE
            case _:
                assert_never(judgement.standing)

    def _taken_over(self, name: str, found: CrashMark, mark: CrashMark) -> bool:
        try:
            return self._store.take_over(name, found, mark)
        except StoreDownError as problem:
            self._fell(problem)
            return False

    def _start(self, messages: list[Message], *, guarded: bool = True) -> None:
        if not messages:
            return
        with self._lock:
            self._ready.extend(messages)
            self.unguarded += 0 if guarded else len(messages)
        self.version += 1
        self.wake()

    def _take(self, taken: list[Message]) -> None:
        with self._lock:
            for message in taken:
                name = name_of(message.effect)
                if name in self._names:  # two copies of one message: one after the other
                    self._out[message] = ""
                    self._back.append((message, _ELSEWHERE))
                else:
                    self._out[message] = name
                    self._names.add(name)
                    self._asked.append(message)

    # ---- the store: down, there again, kept in order

    def _fell(self, problem: StoreDownError) -> None:
        self.down = True
        what = "handlers go on without it" if self._go_on else "nothing is started until it is back"
        log.error("the store cannot be asked, %s: %s", what, problem)

    def keep_house(self, *, prune: bool = False) -> None:
        """A sign of life; finds out whether a store that was down is there again; with `prune` forgets old ids."""
        try:
            if self.down:
                self._store.create()
                self._observe()
                self._probe()
            else:
                self._observe()
            if prune and self._since_prune:
                self._since_prune = 0
                self._store.prune(self.keep, self._keep_s)
        except StoreDownError as problem:
            log.debug("the store cannot be asked: %s", problem)

    @property
    def keep(self) -> int:
        """Ids of done messages to remember however old they are: everything all workers may hold, and a reserve."""
        return self._workers * self._policy.lookahead_messages + _RESERVE

    def _probe(self) -> None:
        with self._lock:
            told = Exchange(list(self._unsaved.done), [*self._unsaved.ended, PROBE])
        self._store.exchange(told)
        self._saved(Exchange(told.done, told.ended[:-1]))
        with self._lock:
            started, self.unguarded = self.unguarded, 0
            forgotten, self._unsaved.forgotten = self._unsaved.forgotten, 0
            self.down = False
        log.warning("the store is back; meanwhile %d started unmarked, %d done were not saved", started, forgotten)

    def _observe(self) -> None:
        beats = self._store.beat()
        self._workers = max(self._policy.expected_workers, len(beats))
        self._signs.observe(beats, self._clock.now())

    def _observe_or_not(self) -> None:
        try:
            self._observe()
        except StoreDownError as problem:
            log.debug("signs of life cannot be read: %s", problem)


def _own(mark: CrashMark) -> Judgement:
    """This worker's own mark on a message it is about to start: from a commit whose answer was lost, or of a dead one."""
    if mark.crashes >= MAX_CRASHES:
        return Judgement(PoisonState.POISON, mark.crashes)
    return Judgement(PoisonState.SUSPECT if mark.alone or mark.crashes else PoisonState.CLEAR, mark.crashes)
