"""Evidence: live figures of the data and the clients that a change would put at risk."""

from __future__ import annotations

from dataclasses import dataclass

from kodoctl.text.formatting import many


@dataclass(frozen=True, slots=True)
class PlatformUser:
    """A user of an object of the whole cluster. `address`: address of a namespace or a Pulsar tenant, or a text about
    brokers; `clusters`: the clusters that a namespace uses, read only if the object is its tenant; else empty.
    """

    address: str
    clusters: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Evidence:
    """Live figures of a topic, a subscription, a function, or an object of the whole cluster. Times are ms since the
    epoch. Figures of a function are those of its subscription on all of its inputs.

    Args:
        entries, bytes: the backlog; that of a topic is the largest of its subscriptions.
        messages: number of messages in these entries (batches), without `marks`; None if the backlog is empty.
        marks: number of producers' marks that were found in the backlog.
        unseen_marks: `messages` may include more marks.
        at_least: there may be more messages, because the broker stopped counting early.
        oldest: publish time of the oldest message in the backlog; None if there is none or the time is unknown.
        clients: `NAME@ADDRESS` of each connected client, with ` as ROLE` if the broker tells its role.
        last_publish: time of the last publish to a topic; 0: never, or not of a topic.
        ledgers: (closing time, bytes) of each stored ledger, if they were read; time 0: still open. Pulsar deletes data
            by whole ledgers.
        unread: reason why the figures of a function are not known, else "".
        users: of an object of the whole cluster.
    """

    entries: int = 0
    messages: int | None = None
    marks: int = 0
    unseen_marks: bool = False
    at_least: bool = False
    bytes: int = 0
    oldest: int | None = None
    clients: tuple[str, ...] = ()
    last_publish: int = 0
    ledgers: tuple[tuple[int, int], ...] = ()
    unread: str = ""
    users: tuple[PlatformUser, ...] = ()  # of an object of the whole cluster

    def unread_text(self, entries: int) -> str:
        """Text for people about the number of unread messages, such as `at least 7 unread messages`, which names marks
        of producers apart: `no unread message, 2 marks of producers`. `entries`: number of entries of the backlog,
        which the text says if neither messages nor marks were counted.
        """
        if self.messages:
            least, marks = "at least " if self.at_least else "", " and marks of producers" if self.unseen_marks else ""
            return f"{least}{many(self.messages, 'unread message')}{marks}"
        if self.marks and self.messages == 0 and not self.at_least:
            return f"no unread message, {many(self.marks, 'mark')} of producers"
        return many(entries, "unread entry", "unread entries")
