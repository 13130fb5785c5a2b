"""Entries of the recall ledger: about a message that is sent or discarded, a copy that is only acknowledged, and a dead
letter in doubt once recovery has decided. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kodoctl.recall.ledger.recall_ledger import LetterStatus, RecallEntry, RecallEvent
from kodoctl.recall.ledger.recovery import Recovery

if TYPE_CHECKING:
    from kodoctl.recall.plan.recall_plan import RecallPlan, UnsentCopy
    from kodoctl.recall.send.sends_in_flight import InFlightMessage, SendOptions

_DECIDED: Final = {
    Recovery.STORED: (RecallEvent.SENT, "read back from its lane"),
    Recovery.SKIPPED_BY_BROKER: (RecallEvent.REFUSED, "the broker did not take it, and took later ones: plan again"),
    Recovery.UNKNOWN: (RecallEvent.UNCLEAR, "neither the broker's memory nor the lane can tell"),
}


def ledger_entries(
    plan: RecallPlan,
    messages: Iterable[tuple[InFlightMessage, RecallEvent]],
    options: SendOptions,
    begins: Mapping[int, str],
) -> list[RecallEntry]:
    """Ledger entries of messages that are recorded together, in the order of `messages`, each with its event and all
    with one time. `begins`: by a lane's index, the end of that lane before the messages are sent (`ledger:entry`); an
    intent stores this end, because a recovery reads the lane from there.
    """
    run, key, who, at = plan.run, plan.ledger_key, options.who, options.clock()
    lanes = [lane.part for lane in plan.lanes] if plan.action.sends else None
    found = []
    for message, event in messages:
        one, intent = message.chosen, event is RecallEvent.INTENT
        found.append(
            RecallEntry(
                run,
                event,
                one.recall_id,
                key,
                str(one.position),
                at,
                lanes[one.lane] if lanes is not None else "",
                one.number,
                message.receipt,
                begins.get(one.lane, "") if intent else message.note,
                who,
                one.published,
                message.letter.payload if intent and plan.edit is not None else None,
            )
        )
    return found


def copy_entry(plan: RecallPlan, further: UnsentCopy, sent: LetterStatus, options: SendOptions) -> RecallEntry:
    """Entry of a letter that is acknowledged and not sent, at its own position. `further`: the letter; `sent`: status
    of the message that was sent instead: its run (which may be another one than the plan's), event, lane, number and
    receipt are in the entry.
    """
    position, published = further.letter
    copy = further.first
    note = f"a copy of {copy.position}" if copy else "a letter that died again carries its recall id"
    status = sent._replace(position=str(position), at=options.clock(), note=note, published=published)
    return RecallEntry(
        recall_id=plan.recall_id_of(further.letter), dead_topic=plan.ledger_key, who=options.who, **status._asdict()
    )


def recovery_entry(
    plan: RecallPlan, letter: str, doubt: LetterStatus, verdict: Recovery, now: int, place: str
) -> RecallEntry:
    """Makes the ledger entry that says how a doubt about a letter was decided. Its run is that of `doubt`.

    Args:
        letter: recall id of the letter.
        doubt: its status so far.
        verdict: decision about the doubt; KeyError is raised for Recovery.SEND, after which the doubt stays.
        now: time of the entry, ms since the epoch.
        place: place of the stored message (`ledger:entry`), "" if none is known.
    """
    event, note = _DECIDED[verdict]
    status = doubt._replace(event=event, at=now, receipt=place, note=note)
    return RecallEntry(recall_id=letter, dead_topic=plan.ledger_key, **status._asdict())
