"""Hosts that may receive a client's token: the configured addresses, and brokers that such a host names in an answer.

A redirect alone is no reason to trust a host: its target depends on the request, and so on names that others choose.
Two answers name brokers as they registered themselves in the cluster's metadata: the list of brokers, for super-users,
and the lookup of a topic, for every role that may use the topic.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from kodoctl.errors import ClusterError, error

if TYPE_CHECKING:
    from kodoctl.pulsar.admin.admin import Reply

ASK_EVERY_S: Final = 5.0  # a host that no broker names is asked for again no sooner
NAMED_FOR_S: Final = 600.0  # then it has to be named again: an address may be another one's by then
_MOST_UNNAMED: Final = 1000
_LOOKUPS: Final = 3
_URLS: Final = ("httpUrl", "httpUrlTls")


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a broker to a request of this module. `location`: target of a redirect (status 307 or 308), else ""."""

    reply: Reply
    location: str = ""


Ask = Callable[[str], Answer]
"""Sends a GET with the token to a URL of a trusted host. Follows no redirect."""


class Course(Enum):
    """Decision on a redirect: send the request to the target (FOLLOW), or once more to the URL at which it began
    (ASK_AGAIN).
    """

    FOLLOW = "the host is a broker of this cluster"
    ASK_AGAIN = "a known broker owns the topic by now, perhaps not the one that the redirect named"


class NotNowError(Exception):
    """The cluster cannot say now whether a host is one of its brokers. `reply`: its transient answer."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(str(reply))
        self.reply = reply


class Brokers:
    """Trusted hosts of one cluster: the configured `addresses` always, and each broker that a trusted host names, for
    NAMED_FOR_S seconds. Several threads may use it: while one thread asks about an unknown host, other threads with an
    unknown host wait.
    """

    def __init__(self, addresses: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._addresses, self._clock = tuple(addresses), clock
        self._configured = frozenset(urlsplit(address).netloc for address in addresses)
        self._named: dict[str, float] = {}  # until when
        self._unnamed: dict[tuple[str, str], float] = {}  # host and topic -> when it is asked for again
        self._first = 0
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        """The configured address that a request tries first; `failed` changes it."""
        return self._addresses[self._first]

    def after(self, address: str) -> str:
        """The configured address that follows `address`, cyclically; `address` itself if it is the only one."""
        return self._addresses[(self._addresses.index(address) + 1) % len(self._addresses)]

    def failed(self, address: str) -> None:
        """Reports that `address` does not answer: from now on requests try the next address first. Does nothing if
        another thread has reported it already.
        """
        if self.address == address:
            self._first = self._addresses.index(self.after(address))

    def course(self, here: str, location: str, topics: Sequence[str], ask: Ask, *, asked_again: bool) -> Course:
        """Decides on a redirect from the trusted URL `here` to `location`: to follow it, or to send the request once
        more to the URL at which it began. If the target is unknown, sends requests to trusted hosts by `ask`. Raises
        ClusterError (K513) for a host that no trusted broker names and for another scheme, NotNowError if the cluster
        cannot say that now.

        Args:
            topics: topics (`persistent/tenant/namespace/topic`) to whose owner the redirect may lead.
            asked_again: an earlier decision about this request was ASK_AGAIN. If False, a lookup that names a third
                host is taken as a sign that the topic has moved since the redirect.
        """
        source, target = urlsplit(here), urlsplit(location)
        if target.scheme != source.scheme:
            raise _foreign(source.netloc, location)
        if self._trusts(target.netloc):
            return Course.FOLLOW
        with self._lock:  # whoever waits here knows what the first one learnt
            if self._trusts(target.netloc):
                return Course.FOLLOW
            key = target.netloc, next(iter(topics), "")
            if self._clock() < self._unnamed.get(key, 0.0):
                raise _foreign(source.netloc, location)
            origin = self._base(here)
            if target.netloc in self._list_brokers(origin, ask):
                return Course.FOLLOW
            moved = False
            for topic in topics:
                owners, taken = self._looked_up(origin, topic, ask)
                if target.netloc in owners:
                    return Course.FOLLOW
                if taken:
                    return Course.ASK_AGAIN
                moved = moved or bool(owners)
            if moved and not asked_again:
                return Course.ASK_AGAIN
            self._remember_unnamed(key)
        raise _foreign(source.netloc, location)

    def _base(self, url: str) -> str:
        """The configured address (with its path) with which a URL begins; for another broker, scheme and host."""
        parts = urlsplit(url)
        return next((one for one in self._addresses if url.startswith(f"{one}/")), f"{parts.scheme}://{parts.netloc}")

    def _trusts(self, host: str) -> bool:
        return bool(host) and (host in self._configured or self._clock() < self._named.get(host, 0.0))

    def _list_brokers(self, origin: str, ask: Ask) -> set[str]:
        """Reads the hosts of all living brokers, which are trusted from now on; empty if the role is no super-user."""
        reply = _final_reply(ask(f"{origin}/admin/v2/brokers").reply)
        found = {str(host) for host in reply.data} if reply.ok and isinstance(reply.data, list) else set()
        return self._remember(found)

    def _looked_up(self, origin: str, topic: str, ask: Ask) -> tuple[set[str], bool]:
        """Looks up the topic's owner. Returns its hosts (HTTP, HTTPS), which are trusted from now on, and whether this
        request made a broker the owner.

        If a topic has no owner, a broker redirects the lookup to the broker that would get the topic, and names no
        owner. If that one is not trusted, `origin` itself is asked to take the topic over, as it does when the leader
        sends a client there.
        """
        url = f"{origin}/lookup/v2/topic/{topic}"
        for _ in range(_LOOKUPS):
            answer = ask(url)
            if answer.reply.status not in (307, 308):
                return self._remember(set(_hosts(_final_reply(answer.reply)))), False
            target = urlsplit(answer.location)
            if target.scheme != urlsplit(origin).scheme or not self._trusts(target.netloc):
                break
            url = answer.location
        answer = ask(f"{origin}/lookup/v2/topic/{topic}?authoritative=true")
        found = self._remember(set(_hosts(_final_reply(answer.reply))))
        return found, bool(found)

    def _remember(self, hosts: set[str]) -> set[str]:
        until = self._clock() + NAMED_FOR_S
        self._named.update(dict.fromkeys(hosts, until))
        return hosts

    def _remember_unnamed(self, key: tuple[str, str]) -> None:
        now = self._clock()
        if len(self._unnamed) >= _MOST_UNNAMED:
            self._unnamed = {one: until for one, until in self._unnamed.items() if until > now}
        if len(self._unnamed) < _MOST_UNNAMED:
            self._unnamed[key] = now + ASK_EVERY_S


def topics_of(path: str) -> tuple[str, ...]:
    """Topics whose owner has to answer a request with this path: the topic in the path, and its partition 0 unless the
    path names a partition; () if the path is not about a topic.
    """
    kind, *parts = path.split("/")
    if kind not in ("persistent", "schemas") or len(parts) < 3:
        return ()
    local = parts[2] if kind == "persistent" else unquote(parts[2])  # `schema_path` encodes it twice
    topic = "/".join(("persistent", *parts[:2], local))
    return (topic,) if "-partition-" in local else (topic, f"{topic}-partition-0")


def _final_reply(reply: Reply) -> Reply:
    if reply.transient:
        raise NotNowError(reply)
    return reply


def _hosts(reply: Reply) -> Iterator[str]:
    document: Any = reply.data if reply.ok and isinstance(reply.data, dict) else {}
    for key in _URLS:
        if isinstance(url := document.get(key), str) and (host := urlsplit(url).netloc):
            yield host


def _foreign(source: str, location: str) -> ClusterError:
    target = urlsplit(location)
    detail = (
        f"{source} redirects to {target.scheme}://{target.netloc}, which is not a broker of this cluster: the token was not sent"
        " there; if it is one, give its address as well (--admin-url http://HOST:PORT,HOST:PORT)"
    )
    return ClusterError(error("K513", "redirected to a foreign host", detail))
