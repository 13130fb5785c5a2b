"""Evidence: live figures of the data and the clients that a change would put at risk."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlatformUser:
    """A user of an object of the whole cluster: the address of a namespace or a tenant, or words for brokers. `clusters`:
    those that a namespace of a tenant uses.
    """

    address: str
    clusters: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Evidence:
    """Live figures of a topic or subscription. Times are ms since the epoch.

    `entries`, `bytes`: the backlog; a topic's is that of its subscription with most. `messages`: number of messages in
    these entries (batches), None if the backlog is empty; `marks`: number of producers' marks that were found there and
    not counted in it; `unseen_marks`: `messages` may include more marks; `at_least`: the broker stopped counting early.
    `oldest`: publish time of the oldest message in a backlog, None if there is none or it is unknown. `clients`:
    `NAME@ADDRESS` of each connected client, with ` as ROLE` if the broker tells its role. `last_publish`: 0 for never,
    and for a subscription. `ledgers`: (closing time, bytes) of each stored ledger, if they were read; time 0: still
    open. Pulsar deletes data by whole ledgers.

    Those of a function are of its subscription on all of its inputs; `unread`: the reason why they are not known.
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
