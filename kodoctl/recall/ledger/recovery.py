"""Recovery after a crash: decides which letters with an intent are stored. A pure decision from the facts that can be
read.

The broker remembers, by producer name and partition, the highest number that it accepted (its watermark). While that
memory is sound, sending a number again is harmless: the broker drops numbers that it has, and letters found in the lane
are not sent again. The memory is not sound if the watermark is lower than the ledger's number, or higher than every
number that the run may have sent: then somebody else sent under its name, and the broker would drop letters that it
does not have. It cannot be judged if both are empty and the oldest intent is an hour old (SOUND_FOR): brokers forget a
name after hours without messages. In these cases only reading the lane back decides: a letter that is found there is
stored; one that is not found is not stored, if nothing of the lane was trimmed since its intent.

The broker may also pass a number without storing its letter: it refuses a letter (too large for the topic, say) and
stores the letters after it. If that letter were sent again, the broker would drop it as a duplicate: a letter that is
nowhere in a lane that was read completely is SKIPPED_BY_BROKER.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

SOUND_FOR: Final = 3_600_000  # ms: brokers keep a silent producer's number for 6 hours unless told otherwise


class Recovery(Enum):
    """Decision about a letter in doubt, which an earlier attempt may have sent. `SEND`: send it (again) under its
    number: if it is stored, the broker drops it; `STORED`: it is stored; `SKIPPED_BY_BROKER`: the broker passed
    its number without storing it; `UNKNOWN`: nobody can know.
    """

    SEND = auto()
    STORED = auto()
    SKIPPED_BY_BROKER = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class LaneScan:
    """Letters in doubt that were found in a lane (a target partition), read from the end that it had before the first
    of them may have been sent, up to its present end. `found`: recall id -> position (`ledger:entry`; "" for a message
    in a batch); `whole`: that end is known, and no entry after it was removed. The default means that the lane cannot
    be read.
    """

    found: Mapping[str, str] = field(default_factory=dict)
    whole: bool = False


def recover(
    doubts: Mapping[str, int], watermark: int, booked: int, given: int, age: int, read_back: LaneScan
) -> dict[str, Recovery]:
    """Decides about each letter in doubt in one lane, by recall id.

    Args:
        doubts: recall id -> sequence number with which the letter may have been sent.
        watermark: the highest number that the broker remembers of the run's producer on the lane; -1: none.
        booked: the highest number of the run that the ledger has as stored in the lane; 0: none.
        given: the highest number that the run may have sent to the lane.
        age: ms since the oldest intent of `doubts`.
        read_back: result of reading the lane.
    """
    found, whole = read_back.found, read_back.whole
    young = watermark < 0 and booked == 0 and age < SOUND_FOR  # never a receipt: the first letters of a lane
    is_sound = max(booked, 1) <= watermark <= given  # the broker's memory
    sure = whole or young or is_sound

    def verdict(recall_id: str, number: int) -> Recovery:
        if recall_id in found:
            return Recovery.STORED
        if whole and number <= watermark:
            return Recovery.SKIPPED_BY_BROKER
        return Recovery.SEND if sure else Recovery.UNKNOWN

    return {recall_id: verdict(recall_id, number) for recall_id, number in doubts.items()}
