"""What happens to dead letters that kodoctl recalled or discarded, and to its ledger."""

from __future__ import annotations

from tests.spark.disasters.planting import CLEAN, DOUBT, LOSS, case


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
    w.letters[-1] = (*w.letters[-1][:-4], w.topic("gone"), *w.letters[-1][-3:])
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
    receipts = f"{there.ledger}:77", f"{there.ledger}:{there.entry}"
    w.letters = [*lines, *((*one[:-2], receipt, "") for one, receipt in zip(others, receipts, strict=True))]
    w.discard(unmet)
    w.letters[-1] = (*w.letters[-1][:5], 7, *w.letters[-1][6:])


@case("a ledger of recalls that saw another cluster", LOSS, "1 message lost", dead=1, lost=1)
def another_cluster(w):
    w.recall(w.move(w.store(), "dead", event="dead"), keep=False)
    w.discard(w.store("dead", keep=False))
    w.letters = [(*one[:5], one[5] + 1, *one[6:]) for one in w.letters]
    w.unacknowledged("dead", w.move(w.store(), "dead", event="dead"))


@case("a dead letter trimmed before the first reading, and its recall, or that it was discarded, only booked", DOUBT,
      "not proved done", unproved=2)  # fmt: skip
def booked_before_the_first_range(w):
    sent, thrown = (w.move(w.store(), "dead", event="dead", keep=False) for _ in range(2))
    w.recall(sent, keep=False)
    w.discard(thrown)
    w.lane = {"dead": {"first_ledger": w.ledger("dead"), "first_entry": 2}}
