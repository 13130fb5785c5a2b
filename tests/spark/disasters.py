"""Planted disasters and clean runs for the audit: what happens, what is to be found, and the verdict. Each is one world.

docs/explanation/audit.md has the table of them, and a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kodoctl.pipeline.verdict import DAY, Fate, Outcome
from kodoctl.topology.numbering import MAX_RANGES
from tests.spark.world import MINUTE, World

MANY = [(number, number) for number in range(2, 2 + MAX_RANGES)]
CLEAN, LOSS, DOUBT = Outcome.NO_LOSS, Outcome.LOSS, Outcome.INCONCLUSIVE


@dataclass(frozen=True)
class Disaster:
    """`lost`: how many are found lost. `says`: a part of the first reason."""

    title: str
    world: World
    outcome: Outcome
    fates: dict[Fate, int]
    says: str = ""


ALL: list[Disaster] = []


def case(title: str, outcome: Outcome, says: str = "", /, mode: str = "wait", **fates: int):
    """Plants what the function does; a message that was done stands beside it."""

    def plant(what: Callable[[World], None]) -> None:
        world = World(what.__name__.replace("_", "-"), mode)
        world.done()
        what(world)
        found = {Fate[name.upper()]: count for name, count in fates.items()}
        ALL.append(Disaster(title, world, outcome, {Fate.DONE: 1} | found, says))

    return plant


@case("a clean run: done, moved and done, discarded, dead, waiting, open", CLEAN, done=3, discarded=1, dead=1, open=1,
      waiting=1)  # fmt: skip
def clean(w):
    w.record(w.move(w.store()))
    w.record(w.move(w.move(w.store())))
    w.record(w.store(), "discarded")
    w.move(w.move(w.store()), "dead", event="dead")
    w.unacknowledged("ready", w.store())
    w.unacknowledged("retrying", w.move(w.store()))


@case("the handler handed it on to another topic, or a repeat was suppressed", CLEAN, done=3)
def handed_on(w):
    w.record(w.store(), "transferred", target_topic="persistent://t/n/elsewhere", target_id="5:5:0:-1")
    w.record(w.store(), "repeated")


@case("a message meant for another subscription, acknowledged unhandled", CLEAN, not_for_me=1)
def for_another(w):
    w.others = ("shipping",)
    w.store(for_subscription="shipping")


@case(
    "a message meant for a subscription that the file does not have", DOUBT, "1 message for subscription", not_for_me=1
)
def for_nobody(w):
    w.store(for_subscription="shipping")


@case(
    "removed behind our back: skipped, expired by TTL, evicted, or the cursor was reset", LOSS, "1 message lost", lost=1
)
def skipped(w):
    w.store()


@case("removed from a waiting state", LOSS, "1 message lost", lost=1)
def skipped_in_a_state(w):
    w.move(w.store())


@case("trimmed after a worker moved it and before it was read", LOSS, "1 message lost", lost=1)
def trimmed(w):
    w.move(w.store(), keep=False)


@case("trimmed before the first reading of where it waited", DOUBT, "not proved done", unproved=1)
def trimmed_before_the_first_range(w):
    w.move(w.store(), keep=False)
    w.lane = {"retrying": {"first_ledger": w.ledger("retrying"), "first_entry": 1}}


@case("the same, with the record of what became of it, or its recall, which was read", CLEAN, moving=1, done=2)
def settled_before_the_first_range(w):
    w.record(w.move(w.store(), keep=False))
    w.record(w.recall(w.move(w.store(), "dead", event="dead", keep=False)))
    w.lane = {state: {"first_ledger": w.ledger(state), "first_entry": 1} for state in ("retrying", "dead")}


@case("a dead letter trimmed before the first reading, and its recall, or that it was discarded, only booked", DOUBT,
      "not proved done", unproved=2)  # fmt: skip
def booked_before_the_first_range(w):
    sent, thrown = (w.move(w.store(), "dead", event="dead", keep=False) for _ in range(2))
    w.recall(sent, keep=False)
    w.discard(thrown)
    w.lane = {"dead": {"first_ledger": w.ledger("dead"), "first_entry": 2}}


@case("one of a batch was moved to a lane that was empty when it was read, others of the batch are open", DOUBT,
      "not proved done", unproved=1)  # fmt: skip
def moved_out_of_sight(w):
    message = w.store()
    w.move(message, keep=False)
    w.unacknowledged("ready", message)
    w.lane = {"retrying": {"last_ledger": None, "last_entry": None}}


@case("a dead letter let go by hand, and one that says it is another subscription's", LOSS, "2 messages lost", lost=2)
def dead_letter_skipped(w):
    w.move(w.store(), "dead", event="dead")
    message = w.store()
    w.record(message, "dead", w.store("dead", message, for_subscription="shipping"))
    w.marks["dead"] = ((w.ledger("dead"), 99), [])


@case("dead letters recalled and discarded by kodoctl", CLEAN, done=2, discarded=1)
def recalled(w):
    sent, thrown = (w.move(w.store(), "dead", event="dead") for _ in range(2))
    w.record(w.recall(sent))
    w.discard(thrown)


@case("a recalled letter, removed from its lane", LOSS, "1 message lost", lost=1)
def recalled_and_skipped(w):
    w.recall(w.move(w.store(), "dead", event="dead"))


@case("a recalled letter, trimmed in its lane before it was read", LOSS, "1 message lost", moving=1, lost=1)
def recalled_and_trimmed(w):
    w.recall(w.move(w.store(), "dead", event="dead"), keep=False)


@case("a recalled letter, trimmed before the first reading of its lane", DOUBT, "not proved done", moving=1, unproved=1)
def recalled_before_the_first_range(w):
    w.recall(w.move(w.store(), "dead", event="dead"), keep=False)
    w.lane = {"retrying": {"first_ledger": w.ledger("retrying"), "first_entry": 1}}


@case(
    "a recalled letter that was let go, into a lane that was empty when it was read, or is none",
    DOUBT,
    "not proved done",
    unproved=3,
)
def recalled_out_of_sight(w):
    w.recall(w.move(w.store(), "dead", event="dead"), keep=False)
    w.recall(w.move(w.store(), "dead", event="dead"), keep=False)
    w.letters[-1] = (*w.letters[-1][:-3], w.topic("gone"), *w.letters[-1][-2:])
    letter = w.move(w.store(), "dead", event="dead", batch=0)  # others of its batch are held
    w.recall(letter, keep=False)
    w.unacknowledged("dead", letter)
    w.lane = {"retrying": {"last_ledger": None, "last_entry": None}}


@case(
    "recalled letters that their broker had already: one was read, one only booked",
    DOUBT,
    "not proved done",
    done=2,
    unproved=1,
)
def had_already(w):
    w.record(w.recall(w.move(w.store(), "dead", event="dead"), known=False))
    w.recall(w.move(w.store(), "dead", event="dead"), keep=False, known=False)


@case("letters recalled after the reading, and how the broker had one already", CLEAN, moving=2)
def recalled_late(w):
    letter = w.move(w.store(), "dead", event="dead")
    w.recall(w.move(w.store(), "dead", event="dead"), keep=False, known=False)
    w.recall(letter, keep=False)
    del w.marks["dead"]
    behind = {"last_ledger": w.ledger("retrying") - 1, "stored_ledger": w.ledger("retrying") - 1}
    w.lane = {"retrying": behind}


@case("a dead letter that is there twice, recalled once", CLEAN, done=3)
def recalled_with_its_copy(w):
    for known in (True, False):
        message = w.store()
        copies = [w.move(message, "dead", event="dead", run=run, number=1) for run in (f"{known}-1", f"{known}-2")]
        w.record(w.recall(*copies, known=known))


@case("two clusters in one ledger of recalls: the other's line at the same place", DOUBT, "not proved done", done=2,
      unproved=1)  # fmt: skip
def two_clusters(w):
    sent, unmet = (w.move(w.store(), "dead", event="dead") for _ in range(2))
    there = w.record(w.recall(sent))
    w.recall(unmet, keep=False, known=False)
    lines = w.letters
    others = [(*one[:5], one[5] + 1, *one[6:]) for one in lines]
    w.letters = [*lines, (*others[0][:-1], f"{there.ledger}:77"), (*others[1][:-1], f"{there.ledger}:{there.entry}")]
    w.discard(unmet)
    w.letters[-1] = (*w.letters[-1][:5], 7, *w.letters[-1][6:])


@case("a ledger of recalls that saw another cluster", LOSS, "1 message lost", dead=1, lost=1)
def another_cluster(w):
    w.recall(w.move(w.store(), "dead", event="dead"), keep=False)
    w.discard(w.store("dead", keep=False))
    w.letters = [(*one[:5], one[5] + 1, *one[6:]) for one in w.letters]
    w.unacknowledged("dead", w.move(w.store(), "dead", event="dead"))


@case("trimmed or expired before it was read: the reading itself was short", DOUBT, "2 of 5 entries", open=0)
def not_all_read(w):
    w.parts = [replace(w.parts[0], planned=5, seen=2)]


@case("ledgers vanished between two readings", DOUBT, "do not continue")
def ranges_apart(w):
    w.parts = [replace(w.parts[0], problems=("ranges do not continue each other",))]


@case("the topic is older than the first reading", DOUBT, "before the first reading")
def begun_late(w):
    w.parts = [replace(w.parts[0], whole=False)]


@case("a TTL shorter than the time between two readings", DOUBT, "TTL")
def ttl(w):
    w.parts = [replace(w.parts[0], ttl=2 * DAY, unread=2 * DAY)]


@case("done twice: a crash after the work, before the record", CLEAN, twice=1)
def done_twice(w):
    message = w.done()
    w.record(message, run="w-2", number=1)


@case("doubled on the way: a crash between publish and acknowledge", CLEAN, twice=1)
def moved_twice(w):
    message = w.store()
    for run, number in (("w-1", None), ("w-2", 1)):
        w.record(w.move(message, run=run, number=number))


@case("moved over a connection that broke: the broker had it already, and does not say where", CLEAN, done=2)
def moved_already(w):
    message = w.store()
    w.record(w.store("retrying", message))
    w.record(message, "moved", target_topic=w.topic("retrying"), target_id="-1:-1:0:-1")


@case("sent twice by its producer, both done", CLEAN, twice=1)
def sent_twice(w):
    for _ in range(2):
        w.done(kodo_id="order-1")


@case("killed between publish and acknowledge: moved, no record yet, not acknowledged", CLEAN, open=1)
def killed(w):
    message = w.store()
    w.unacknowledged("ready", message)
    w.record(w.store("retrying", message))


@case("late: stored elsewhere after the reading ended", CLEAN, moving=1)
def late(w):
    message = w.store()
    w.unacknowledged("ready", message)
    there = w.move(message, keep=False)
    w.transitions[-1]["target_id"] = f"{there.ledger}:100:0:-1"


@case("open for longer than its horizon", DOUBT, "longer than the horizon", overdue=1)
def stuck(w):
    w.unacknowledged("ready", w.store(age=11 * MINUTE))


@case("stuck, and its producer's clock is a day ahead", DOUBT, "longer than the horizon", overdue=1)
def stuck_in_the_future(w):
    message = w.store(age=-DAY)
    w.unacknowledged("ready", message)
    w.lane = {"ready": {"aged_ledger": message.ledger, "aged_entry": message.entry}}


@case("a name that is too long to be one, and a record by its place", CLEAN, done=2)
def long_name(w):
    message = w.store(kodo_id="n" * 1_025)
    w.record(message, identity=message.mid)


@case("a name that is longer than a record keeps of it", CLEAN, done=2)
def cut_name(w):
    message = w.store(kodo_id="n" * 1_024)
    w.record(message, identity="n" * 200)


@case("a forged origin: a lost message hides behind one that is done", LOSS, "1 message lost", lost=1)
def forged_origin(w):
    done = w.done()
    w.store(mid=done.mid)


@case("a forged identity: two messages with one kodo-id, one of them lost", LOSS, "1 message lost", lost=1)
def forged_identity(w):
    w.done(kodo_id="order-1")
    w.store(kodo_id="order-1")


@case("a forged next hop: nothing is stored where the record says", LOSS, "1 message lost", lost=1)
def forged_target(w):
    message = w.store()
    w.record(message, "moved", target_topic=w.topic("retrying"), target_id=f"{w.ledger('retrying')}:7:0:-1")


@case("a forged next hop in the future of an acknowledged message", DOUBT, "not proved done", unproved=1)
def forged_future(w):
    w.record(w.store(), "moved", target_topic=w.topic("retrying"), target_id="999999999:7:0:-1")


@case("a forged record calls the message what it is not called", DOUBT, "not proved done", unproved=1)
def forged_name(w):
    w.record(w.store(), identity="order-9")


@case("a forged record of a message that never was", DOUBT, "no topic has", unknown=1)
def forged_record(w):
    there = w.store(keep=False)
    w.record(there)


@case("two different records with one number", DOUBT, "two different records", done=2)
def contradiction(w):
    w.record(w.store(), number=1)


@case("a record stored twice", CLEAN, done=2)
def stored_twice(w):
    message = w.store()
    w.record(message)
    w.record(message, number=2)


@case("the audit topic lags: its end was fixed before the cursors", DOUBT, "before the cursors were", unproved=1)
def lagging(w):
    w.parts += [replace(w.parts[0], topic=w.topic("ready") + "-billing-AUDIT", lags=True, audit=True)]
    w.lane = {"ready": {"proved": False}}
    w.store()


@case("records are missing: as many as messages without one", DOUBT, "or the records of them", done=2, lost=1)
def records_missing(w):
    w.store()
    w.record(w.store(), number=3)


@case("moved, and the record of the move is missing", DOUBT, "not proved done", unproved=1)
def move_unrecorded(w):
    message = w.store()
    w.unacknowledged("retrying", w.store("retrying", message))


@case("the subscription is gone from a partition", DOUBT, "no subscription billing", unproved=1)
def unsubscribed(w):
    w.parts = [replace(w.parts[0], without=("billing",))]
    w.marks["ready"] = None
    w.store()


@case("a subscription that began at the latest message", DOUBT, "not proved done", unproved=1)
def begun_at_latest(w):
    w.lane = {"ready": {"started_ledger": w.ledger("ready"), "started_entry": 1}}
    w.store()


@case("no audit records: acknowledged messages prove nothing", DOUBT, "keeps no audit records", mode="none", unproved=1)
def no_records(w):
    w.store()


@case("records that nobody waits for", DOUBT, "best_effort", mode="best_effort", unproved=1)
def best_effort(w):
    w.store()


@case(
    "a number of a producer is stored nowhere, and its mark says it was sent", LOSS, "sent and stored nowhere", done=3
)
def producer_gap(w):
    w.number(1)
    w.number(3)
    w.mark(3, end=True)


@case("the end of a producer's run is stored nowhere", LOSS, "2 messages sent and stored nowhere", done=2)
def producer_tail(w):
    w.number(1)
    w.mark(3, end=True)


@case("a number that its producer gave up", CLEAN, done=3)
def producer_void(w):
    w.number(1)
    w.number(3)
    w.mark(3, [(2, 2)], end=True)


@case("a producer killed before it told what it gave up", DOUBT, "died over", done=3)
def producer_killed(w):
    w.number(1)
    w.number(3)
    w.mark(3)


@case("more numbers given up than a mark holds, and others still on the way", DOUBT, "98 numbers", done=2)
def producer_marks(w):
    w.number(1)
    w.mark(600, MANY)
    w.mark(600, [(502, 502)])


@case("the same, and the reading ends between its marks", DOUBT, "99 numbers", done=2)
def producer_marks_apart(w):
    w.number(1)
    w.mark(502)
    w.mark(600, MANY)


@case("the same, and a later mark says that the others were sent", LOSS, "98 messages sent and stored nowhere", done=2)
def producer_marks_followed(w):
    w.number(1)
    w.mark(600, MANY)
    w.mark(600, [(502, 502)])
    w.mark(700)


@case("a producer's gap in a partition that was not read from its creation", DOUBT, "before the first reading", done=2)
def producer_gap_before(w):
    w.firm = False
    w.parts = [replace(w.parts[0], whole=False)]
    w.number(2)
    w.mark(2, end=True)


@case("a worker's clock a day ahead", CLEAN, done=2)
def worker_clock(w):
    w.done(age=-DAY)


@case("our clock behind the broker's while messages are open", DOUBT, "behind the broker's", open=1)
def our_clock(w):
    w.skew = 60 * MINUTE
    w.unacknowledged("ready", w.store())
