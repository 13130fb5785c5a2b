"""Plan of a write-off: losses and doubts that prevent the verdict *no loss* and are to be accepted, in a file with a
hash. Pure.

A reviewer of the file sees each message and each doubt by name; `apply` books exactly these.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from kodo_pipeline.audit.write_offs import WrittenOff
from kodoctl.errors import UsageError, Where, error

FORMAT_VERSION: Final = 1
MOST: Final = 100_000  # messages of a plan
MORE: Final = (
    f"more messages are lost, or not proved done: a plan names {MOST:,} at most; book this one, then plan again"
)
HASH: Final = 12  # digits that are shown, and typed


@dataclass(frozen=True, slots=True)
class WriteOffPlan:
    """Plan of a write-off. `landing`: address of the landing of the topology and environment, in which it is booked;
    `made_at`: ms since the epoch; `verdict`: verdict of the audit from which it was made; `items`: losses and doubts to
    accept, among them MOST messages at most; `stays`: texts of the reasons that remain when the plan is booked, first
    MORE if there are more than MOST messages.
    """

    run: str
    made_at: int
    topology: str
    environment: str | None
    landing: str
    reason: str
    verdict: str
    items: tuple[WrittenOff, ...]
    stays: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """The plan as JSON, for the file and for output: its fields, and `hash`, a digest of them."""
        rows = {"items": [one._asdict() for one in self.items], "stays": list(self.stays)}
        body = {"format_version": FORMAT_VERSION, **asdict(self), **rows}
        return {**body, "hash": _digest(body)}

    def rows(self, by: str, now: int) -> list[dict[str, Any]]:
        """Rows of the table `write_offs` for the items. `by`: the user; `now`: ms since the epoch."""
        fixed = {"at_ts": datetime.fromtimestamp(now / 1000, UTC), "run": self.run, "reason": self.reason, "by": by}
        return [{**one._asdict(), **fixed} for one in self.items]


def loads(text: str, file: str) -> WriteOffPlan:
    """Parses the text of a plan's file. Raises UsageError (K827) if the text is no plan, or was changed."""
    try:
        given = json.loads(text)
        if given["format_version"] == FORMAT_VERSION and given.pop("hash") == _digest(given):
            items, stays = tuple(WrittenOff(**one) for one in given["items"]), tuple(given["stays"])
            del given["format_version"]
            return WriteOffPlan(**{**given, "items": items, "stays": stays})
    except (ValueError, KeyError, TypeError):
        pass
    detail = "it is none, or not as it was written: `kodoctl pipeline write-off plan … --out FILE` makes one"
    raise UsageError(error("K827", "no plan of a write-off", detail, Where(file)))


def choose_items(
    items: Sequence[WrittenOff], topic: str | None, subscription: str | None, grounds: dict[str, str]
) -> list[WrittenOff]:
    """Returns the items of a ground topic and a subscription; None: of all. Items without a subscription belong to
    every subscription. `grounds`: ground topic by full name of a topic.
    """
    return [
        one
        for one in items
        if topic in (None, one.topic, grounds.get(one.topic))
        and (subscription is None or one.subscription in ("", subscription))
    ]


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:HASH]
