"""What goes wrong, when, drawn by the seed; and the moment from which nothing does any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kodoctl.protocol import properties as names

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

_FORGED = (
    {names.HOP: "many"}, {names.DUE: "-1"}, {names.ATTEMPTS_RETRYING: "9" * 30}, {names.RESERVED: "\u0663"},
    {names.ATTEMPTS_RETRYING: "999"}, {names.HOP: "900000"}, {names.DUE: str(10**14)}, {names.ATTEMPTS_BACKUP: "7"},
    {names.RECALL: "r1", names.AGAIN: "1"}, {names.QUOTA: "1"}, {names.ORIGIN_ID: "1:2:3:4"}, {names.RESERVED: "5"},
    {names.FOR: "somebody-else"}, {names.FOR: "somebody-else", names.HOP: "x"},
)  # fmt: skip

_RECEIPTS = 60.0  # seconds after which every receipt has come that was on its way when all was healed


class Faults:
    """Plans them all at the start, so that one of them more or less shifts as little as possible."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._sends: list[str] = []  # what becomes of the next sends
        self.jumped = 0.0  # seconds that clocks were put wrong, all jumps together

    def plan(self) -> None:
        """Draws the faults and when they are over."""
        world, rng = self.world, self.world.rng
        span = rng.choice([20.0, 60.0, 200.0])
        begin = world.now + (40 if world.opening.full else 0)
        for _ in range(rng.randint(0, 24)):
            world.at(begin + rng.random() * span, rng.choice(_KINDS), self)
        world.at(begin + span, self._heal)

    def _heal(self) -> None:
        """From now on nothing fails any more, but for handlers of messages that are wrong themselves."""
        world = self.world
        self._sends.clear()
        world.slow, world.healed, world.clock.ahead, world.broker.ignore_delays = 0.0, True, 0, False
        world.after(2_000.0, self._long_ago)
        self._help()
        world.after(_RECEIPTS, self._help)
        world.trace("healed")

    def _help(self) -> None:
        """What was refused everywhere waits until somebody helps: its worker is started anew."""
        world = self.world
        for process in world.processes:
            if process.alive and process.worker.counts.parked:
                process.kill()
        for book in world.books:
            if not any(process.alive and not process.draining for process in world.processes if process.book is book):
                world.start_process(book)

    def _long_ago(self) -> None:
        self.world.healed_long_ago = True

    # ---- one each

    def _pick(self) -> Process | None:
        self.world.opening.end()
        alive = [process for process in self.world.processes if process.alive and not process.draining]
        return self.world.rng.choice(alive) if alive else None

    def kill(self) -> None:
        """A process dies and is started again after a while, or at once."""
        process = self._pick()
        if process is not None:
            self.kill_this(process)

    def kill_this(self, process: Process) -> None:
        """The same to this one."""
        self.world.trace("kill", process.name)
        process.kill()
        self._restart(process)

    def drain(self) -> None:
        process = self._pick()
        if process is not None:
            self.world.trace("drain", process.name)
            process.drain()
            self._restart(process)

    def _restart(self, process: Process) -> None:
        if not self.world.healed:
            self.world.after(self.world.rng.choice([0.0, 1.0, 15.0]), self.world.start_process, process.book)

    def more(self) -> None:
        """One process more."""
        if len(self.world.processes) < 4:
            self.world.start_process(self.world.rng.choice(self.world.books))

    def disconnect(self) -> None:
        """The broker moves a topic: all its connections break."""
        book = self.world.rng.choice(self.world.books)
        topic = self.world.rng.choice(book.policy.lanes).topic
        self.world.trace("disconnect", topic)
        self.world.opening.end()
        self.world.broker.disconnect(topic)
        self.world.poke(topic)

    def repeat(self) -> None:
        """What a process got comes a second time on the same connection, though nothing broke."""
        process = self._pick()
        if process is None:
            return
        reader = self.world.rng.choice(process.connection.readers)
        self.world.trace("repeat", reader.topic)
        reader.repeat(self.world.rng.randint(1, 20))

    def sends(self) -> None:
        """The next sends fail, one way or another."""
        rng = self.world.rng
        kind = rng.choice(["lost", "receipt lost", "refused", "hangs", "well"])
        self._sends += [kind] * rng.choice([1, 3, 20])

    def slow(self) -> None:
        self.world.slow = self.world.rng.choice([0.05, 0.5, 3.0])
        self.world.after(self.world.rng.random() * 10, self._fast)

    def _fast(self) -> None:
        self.world.slow = 0.0

    def jump(self) -> None:
        """A machine's wall clock jumps."""
        process = self._pick()
        if process is not None:
            jump = self.world.rng.choice([-3_600_000, -10_000, 10_000, 3_600_000])
            self.jumped += abs(jump) / 1000
            process.jump(jump)

    def early(self) -> None:
        """The broker delivers before time."""
        world = self.world
        if world.rng.random() < 0.5:
            world.clock.ahead = world.rng.choice([100, 1_000, 30_000, 3_600_000])
            self.jumped += world.clock.ahead / 1000
        else:
            world.broker.ignore_delays = True
        for topic in dict.fromkeys(lane.topic for book in world.books for lane in book.policy.lanes):
            world.poke(topic)
        world.after(world.rng.random() * 5, self._on_time)

    def _on_time(self) -> None:
        self.world.clock.ahead, self.world.broker.ignore_delays = 0, False

    def next_send(self, topic: str) -> str:
        """What becomes of a send: `well`, or one of the ways it may fail."""
        return self._sends.pop() if self._sends else "well"

    def forged(self) -> dict[str, str]:
        """Control properties that no worker wrote; mostly none."""
        rng = self.world.rng
        return dict(rng.choice(_FORGED)) if rng.random() < 0.03 else {}


_KINDS = (
    Faults.kill, Faults.kill, Faults.kill, Faults.drain, Faults.more, Faults.disconnect, Faults.disconnect,
    Faults.repeat, Faults.sends, Faults.sends, Faults.sends, Faults.slow, Faults.jump, Faults.early,
)  # fmt: skip
