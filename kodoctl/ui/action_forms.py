# pure: every branch is tested
"""Requests for actions, as values: the fields of the forms, and the command lines that do the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from kodoctl.documents.recall_document import MAX_LETTERS
from kodoctl.errors import UsageError, error
from kodoctl.protocol.overrides import Override, OverrideKind
from kodoctl.recall.filter.condition import literal
from kodoctl.recall.plan.waiting_groups import NO_CAUSE
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodoctl.ui.first_screen import CommandWords

_USUAL_LIMIT: Final = 10_000


class LetterAction(StrEnum):
    """Actions on messages of a lane: SEND sends dead letters to a lane again; RELEASE sends waiting messages to their
    own lane, due at once; MOVE sends waiting messages to another lane; DISCARD acknowledges messages of both kinds.
    """

    SEND = "send"
    RELEASE = "release"
    MOVE = "move"
    DISCARD = "discard"


ACTION_WORDS: Final = {
    LetterAction.SEND: "Send again",
    LetterAction.RELEASE: "Release: due now, in their own lane",
    LetterAction.MOVE: "Move to another lane",
    LetterAction.DISCARD: "Discard",
}


@dataclass(frozen=True, slots=True)
class LaneFacts:
    """Facts about a lane by its topology file. `ground`: name of its ground topic; `lane`: such as `L1/retrying`, ""
    for dead letters; `actions`: those that its messages allow; `targets`: values that `LetterRequest.to` may have;
    `fair_by`: property of the tenants, None: there are none.
    """

    ground: str
    lane: str
    actions: tuple[LetterAction, ...]
    targets: tuple[str, ...]
    fair_by: str | None

    @property
    def name(self) -> str:
        """Name of the lane for people."""
        return self.lane or "dead letters"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterRequest:
    """Request for a plan on messages of a lane. `topology`: name of the topology; `topic`: the lane's topic without
    tenant and namespace; `where`: condition; `to`: level or lane, "" for the usual one; `limit`: most messages of the
    plan, 10,000 by default; `because`: reason for the record, "" for none; `again`: also dead letters that were
    recalled before, or whose message was processed.
    """

    topology: str
    topic: str
    subscription: str
    action: LetterAction
    where: str
    to: str = ""
    limit: int = _USUAL_LIMIT
    because: str = ""
    again: bool = False

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> LetterRequest:
        """Reads the fields of a form, which has a field for each attribute and `tenant`: the condition is `where`, for
        messages of that tenant alone unless `tenant` is "". An empty or missing `where` is `true`, such a `limit` is
        10,000; `again` is set by `yes`; other missing fields count as "". Raises UsageError for a `limit` that is no
        number in the console's range (K567) and for an unknown `action` (K039); checks nothing else.
        """
        limit, action = fields.get("limit", "").strip() or str(_USUAL_LIMIT), fields.get("action", "")
        if not (limit.isascii() and limit.isdigit() and len(limit) <= 9 and 1 <= int(limit) <= MAX_LETTERS):
            detail = f"{limit!r}: from 1 to {MAX_LETTERS:,} in the console; the command line takes more"
            raise UsageError(error("K567", "not a number of letters", detail))
        if action not in set(LetterAction):
            detail = f"{action!r}: choose one of {', '.join(LetterAction)}"
            raise UsageError(error("K039", "a form that cannot be used", detail))
        return cls(
            topology=fields.get("topology", ""),
            topic=fields.get("topic", ""),
            subscription=fields.get("subscription", ""),
            action=LetterAction(action),
            where=narrowed(fields.get("where", "").strip() or "true", "tenant", fields.get("tenant", "")),
            to=fields.get("to", ""),
            limit=int(limit),
            because=fields.get("because", "").strip(),
            again=fields.get("again") == "yes",
        )

    def fit(self, lane: LaneFacts) -> LetterRequest:
        """Returns the request without the fields that its action does not use: a discard of dead letters, as a command,
        has no `to` and no `again`, and so it never takes a letter that another recall has begun to send.
        """
        return self if lane.lane or self.action is not LetterAction.DISCARD else replace(self, to="", again=False)

    @property
    def form(self) -> dict[str, str]:
        """Fields of a form that has these values, by name, for the query of its address."""
        return {
            "topology": self.topology, "topic": self.topic, "subscription": self.subscription,
            "action": self.action.value, "where": self.where, "to": self.to, "limit": str(self.limit),
            "because": self.because, "again": "yes" if self.again else "",
        }  # fmt: skip

    def commands(self, words: CommandWords, lane: LaneFacts, ledger: Sequence[str]) -> list[str]:
        """Two command lines: the first makes the same plan as a file, the second carries that file out. `lane`: facts
        about the lane of the request, which fits it (`fit`); `ledger`: words of the option for the recall ledger, ()
        for none. Raises KeyError for a topology that `words` does not have.
        """
        group = "waiting" if lane.lane else "recall"
        plan = f"kodoctl {group} {'discard' if self.action is LetterAction.DISCARD and not lane.lane else 'plan'}"
        chosen = ["--topic", lane.ground, "--subscription", self.subscription]
        if lane.lane:
            chosen += ["--lane", lane.lane, "--action", self.action.value]
        chosen += ["--where", self.where]
        chosen += ["--to", self.to] if self.to else []
        chosen += ["--limit", str(self.limit)] if self.limit != _USUAL_LIMIT else []
        chosen += ["--again"] if self.again and not lane.lane else []
        chosen += ["--because", self.because] if self.because else []
        file = f"{group}.json"
        return [
            words.line(plan, self.topology, *chosen, *ledger, "--out", file),
            words.line_of_cluster(f"kodoctl {group} apply", file, *ledger),
        ]


def narrowed(where: str, fact: str, value: str) -> str:
    """Condition for the messages that meet `where` and whose `fact`, such as `tenant`, has this value. `where`: a
    condition, `true` for all messages; it is returned unchanged if `value` is "". The cause NO_CAUSE is that of
    messages without a cause.
    """
    if not value:
        return where
    part = f"{fact} = {literal(value)}"
    if (fact, value) == ("cause", NO_CAUSE):
        part = f"({part} OR cause IS NULL)"
    return part if where == "true" else f"({where}) AND {part}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRequest:
    """Request to give a live order, or to take one back (`back`). `ground`: name of the ground topic; `what`: kind of
    order; `details`: the fields of `Override` for its subject and value; `lasting`: duration such as `1h`; `why`:
    reason, "" for none.
    """

    topology: str
    ground: str
    subscription: str
    what: OverrideKind
    details: Mapping[str, str]
    lasting: str = "1h"
    why: str = ""
    back: bool = False

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> OrderRequest:
        """Reads the fields of a form, which are named as the attributes and the fields of `Override`. Raises UsageError
        (K039) for a kind of order that does not exist, and checks nothing else. An empty or missing `lasting` is `1h`;
        `back` is set by `yes`; empty details are left out. Blanks around details are removed, unless the order is taken
        back or the form has `exact=yes`: the details then name an order, or a tenant, that exists.
        """
        what = fields.get("what", "")
        if what not in set(OverrideKind):
            detail = f"{what!r} is no live order: {', '.join(OverrideKind)}"
            raise UsageError(error("K039", "a form that cannot be used", detail))
        back = fields.get("back") == "yes"
        exact = back or fields.get("exact") == "yes"
        given = {name: fields.get(name, "") for name in _DETAILS}
        details = {name: text for name, value in given.items() if (text := value if exact else value.strip(" \t"))}
        return cls(
            topology=fields.get("topology", ""),
            ground=fields.get("ground", ""),
            subscription=fields.get("subscription", ""),
            what=OverrideKind(what),
            details=details,
            lasting=fields.get("lasting", "").strip() or "1h",
            why=fields.get("why", "").strip(),
            back=back,
        )

    @property
    def place(self) -> dict[str, str]:
        """Query of the page with the subscription's orders, by name."""
        return {"topology": self.topology, "ground": self.ground, "subscription": self.subscription}

    def command(self, words: CommandWords, order: Override) -> str:
        """Command line of `kodo-consumer` that gives `order`, the order of this request, or takes it back. Raises
        KeyError for a topology that `words` does not have.
        """
        chosen = ["--topic", self.ground, "--subscription", self.subscription]
        subject = [(option, value) for option, value in _subject(order) if value]
        chosen += [word for pair in subject for word in pair]
        name = {OverrideKind.SLOTS: "concurrency"}.get(order.what, order.what.value)
        if order.what is OverrideKind.PAUSE:
            name = "resume" if self.back else "pause"
        elif self.back:
            chosen += ["--back"]
        else:
            chosen += ["--to", order.to, *(["--waiting", "stay"] if order.waiting else [])]
        if not self.back:
            chosen += ["--for", self.lasting, *(["--why", self.why] if self.why else [])]
        return words.line(f"kodo-consumer {name}", self.topology, *chosen)


_DETAILS: Final = ("lane", "tenant", "limit", "by", "value", "to", "within", "waiting")
ORDER_WORDS: Final = {
    OverrideKind.PAUSE: "Pause",
    OverrideKind.LIMIT: "Change a limit",
    OverrideKind.MOVE: "Move a tenant",
    OverrideKind.WEIGHT: "Weight",
    OverrideKind.SLOTS: "Slots",
}


def order_fields(order: Override) -> dict[str, str]:
    """Fields, by name, of a form that takes an order back (`OrderRequest.of`); without empty ones, and without those
    that name the subscription (`OrderRequest.place`).
    """
    values = {name: getattr(order, name) for name in _DETAILS}
    return {"what": order.what.value, "back": "yes", **{name: value for name, value in values.items() if value}}


def _subject(order: Override) -> list[tuple[str, str]]:
    """Options that name the subject of an order, with their values."""
    match order.what:
        case OverrideKind.LIMIT:
            return [("--kind", order.limit), ("--by", order.by), ("--in", order.within), ("--value", order.value)]
        case OverrideKind.SLOTS:
            return [("--in", order.within)]
        case _:
            return [("--lane", order.lane), ("--tenant", order.tenant)]


@dataclass(frozen=True, slots=True)
class UndoRequest:
    """Request to take an apply back. `apply_id`: id of the apply; `destroy`: addresses of the objects that may be
    destroyed.
    """

    topology: str
    apply_id: str
    destroy: tuple[str, ...] = ()

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> UndoRequest:
        """Reads the fields of a form: `topology`, `id` and `destroy` (addresses with blanks or line ends between them).
        A missing field counts as ""; nothing is checked.
        """
        return cls(fields.get("topology", ""), fields.get("id", "").strip(), tuple(fields.get("destroy", "").split()))

    def command(self, words: CommandWords, namespace: str) -> str:
        """Command line of `kodoctl undo` that takes the same apply back. `namespace`: namespace of the apply,
        `TENANT/NAMESPACE`.
        """
        allowed = [word for one in self.destroy for word in ("--allow-destroy", one)]
        return words.line_of_cluster("kodoctl undo", self.apply_id, namespace, *allowed)


def letter_title(request: LetterRequest, lane: LaneFacts) -> str:
    """Title of a plan on messages, for lists and headings: `Send again: orders / billing, dead letters`."""
    return f"{ACTION_WORDS[request.action].partition(':')[0]}: {lane.ground} / {request.subscription}, {lane.name}"


def button_words(action: LetterAction, count: int, noun: str) -> str:
    """Text of the button that carries out a plan on `count` messages: `Send 3 letters again`. `noun`: word for one of
    them, such as `letter`.
    """
    verb = {LetterAction.SEND: "Send"}.get(action, action.value.capitalize())
    return f"{verb} {many(count, noun)}{' again' if action is LetterAction.SEND else ''}"
