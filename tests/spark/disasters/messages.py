"""What happens to messages, their records, and the reading of both."""

from __future__ import annotations

from dataclasses import replace

from kodo_pipeline.audit.verdict import DAY
from kodo_pipeline.evidence.reading_clock import ReadingClock

from tests.spark.disasters.planting import CLEAN, DOUBT, LOSS, case
from tests.spark.world import MINUTE


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


@case("stored in an inbox and acknowledged: waiting there, done from there, and dead", CLEAN, stored=1, done=2, dead=1)
def stored_in_an_inbox(w):
    w.record(w.store(), "stored")
    w.record(w.record(w.store(), "stored", run="w-1-inbox", number=1))
    message = w.record(w.store(), "stored", run="w-1-inbox", number=2)
    w.move(message, "dead", event="dead")


@case("stored in an inbox longer ago than its horizon, and not ended", DOUBT, "longer than the horizon", overdue=1)
def long_in_an_inbox(w):
    w.record(w.store(age=11 * MINUTE), "stored")


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


@case("trimmed or expired before it was read: the reading itself was short", DOUBT, "2 of 5 seen", open=0)
def not_all_read(w):
    w.parts = [
        replace(w.parts[0], entries_planned=5, entries_seen=2, problems=("entries 1:0 to 1:4: timeout, 2 of 5 seen",))
    ]


@case("ledgers vanished between two readings", DOUBT, "do not continue")
def ranges_apart(w):
    w.parts = [replace(w.parts[0], problems=("ranges do not continue each other",))]


@case("the topic is older than the first reading", DOUBT, "before the first reading")
def begun_late(w):
    w.parts = [replace(w.parts[0], from_creation=False)]


@case("a TTL shorter than the time between two readings", DOUBT, "TTL")
def ttl(w):
    w.parts = [replace(w.parts[0], ttl=2 * DAY, unread=2 * DAY)]


@case("done twice: a crash after the work, before the record", CLEAN, duplicated=1)
def done_twice(w):
    message = w.done()
    w.record(message, run="w-2", number=1)


@case("doubled on the way: a crash between publish and acknowledge", CLEAN, duplicated=1)
def moved_twice(w):
    message = w.store()
    for run, number in (("w-1", None), ("w-2", 1)):
        w.record(w.move(message, run=run, number=number))


@case("moved over a connection that broke: the broker had it already, and does not say where", CLEAN, done=2)
def moved_already(w):
    message = w.store()
    w.record(w.store("retrying", message))
    w.record(message, "moved", target_topic=w.topic("retrying"), target_id="-1:-1:0:-1")


@case("sent twice by its producer, both done", CLEAN, duplicated=1)
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
    w.parts += [replace(w.parts[0], topic=w.topic("ready") + "-billing-AUDIT", read_before_cursors=True, audit=True)]
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
    w.parts = [replace(w.parts[0], missing_subscriptions=("billing",))]
    w.marks["ready"] = None
    w.store()


@case("a subscription that began at the latest message", DOUBT, "not proved done", unproved=1)
def begun_at_latest(w):
    w.lane = {"ready": {"started_ledger": w.ledger("ready"), "started_entry": 1}}
    w.store()


@case(
    "lost while the records were complete, and a consumer that keeps none was connected since",
    LOSS,
    "message lost",
    lost=1,
    unproved=1,
)
def lost_before_a_foreign_consumer(w):
    known = {"after_ledger": w.ledger("ready"), "after_entry": -1, "last_ledger": w.ledger("ready"), "last_entry": 0}
    w.lane = {"ready": {"started_ledger": w.ledger("ready"), "started_entry": 1, "proven_ranges": [known]}}
    w.store()
    w.store()


@case("no audit records: acknowledged messages prove nothing", DOUBT, "keeps no audit records", mode="none", unproved=1)
def no_records(w):
    w.store()


@case("records that nobody waits for", DOUBT, "best_effort", mode="best_effort", unproved=1)
def best_effort(w):
    w.store()


@case("a worker's clock a day ahead", CLEAN, done=2)
def worker_clock(w):
    w.done(age=-DAY)


@case("the clock of the ingest's machine an hour ahead of the cluster's while messages are open", CLEAN, open=1)
def fast_machine(w):
    w.clock = ReadingClock(60 * MINUTE)
    w.unacknowledged("ready", w.store())


@case("the same, an hour behind", CLEAN, open=1)
def slow_machine(w):
    w.clock = ReadingClock(-60 * MINUTE)
    w.unacknowledged("ready", w.store())


@case(
    "the cluster's clock set back an hour between two readings, while messages are open",
    DOUBT,
    "1h behind the time",
    open=1,
)
def cluster_set_back(w):
    w.clock = ReadingClock(0, 60 * MINUTE)
    w.unacknowledged("ready", w.store())


@case("a cluster that does not tell its clock, while messages are open", DOUBT, "clock is unknown", open=1)
def cluster_without_clock(w):
    w.clock = ReadingClock(None)
    w.unacknowledged("ready", w.store())
