"""The hosts that a client's token may be sent to: the configured addresses, and brokers that one of these
names.

A redirect alone is no reason to trust a host: its target depends on the request, and so on names that others
choose. Two answers name brokers of the cluster as they registered themselves in its metadata: the list of
brokers, for super-users, and the lookup of a topic, for every role that may use the topic.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

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
    """Answer of a broker to a question of this module. `location`: of a redirect."""

    reply: Reply
    location: str = ""


Ask = Callable[[str], Answer]
"""A GET with the token to a URL of a trusted host."""


class Course(Enum):
    """Decision on a redirect."""

    FOLLOW = "the host is a broker of this cluster"
    ASK_AGAIN = "a known broker owns the topic by now, perhaps not the one that the redirect named"


class NotNowError(Exception):
    """The cluster cannot say at this moment whether a host is one of its brokers."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(str(reply))
        self.reply = reply


class Brokers:
    """Safe to use from several threads: all that meet an unknown host wait for the one that asks about it."""

    def __init__(self, addresses: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._addresses, self._clock = tuple(addresses), clock
        self._configured = frozenset(urlsplit(address).netloc for address in addresses)
        self._named: dict[str, float] = {}  # until when
        self._unnamed: dict[tuple[str, str], float] = {}  # host and topic -> when it is asked for again
        self._first = 0
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        """The configured address to begin with: the one that answered last."""
        return self._addresses[self._first]

    def after(self, address: str) -> str:
        """The next configured address, of one alone itself."""
        return self._addresses[(self._addresses.index(address) + 1) % len(self._addresses)]

    def failed(self, address: str) -> None:
        """Begins with the next address from now on, unless another thread did so already."""
        if self.address == address:
            self._first = self._addresses.index(self.after(address))

    def course(self, here: str, location: str, topics: Sequence[str], ask: Ask, *, asked_again: bool) -> Course:
        """Decision on a redirect from `here`, a trusted URL. `topics`: `persistent/tenant/namespace/topic`, of
        which one may be why the request was redirected. `asked_again`: an earlier decision about this request was
        ASK_AGAIN; otherwise a lookup that names another host is taken for a topic that moved since the redirect.
        Raises ClusterError (K513) for a host that no trusted broker names, NotNowError.
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
        """The configured address that a URL begins with, a path of its own included; of other brokers, scheme and host."""
        parts = urlsplit(url)
        return next((one for one in self._addresses if url.startswith(f"{one}/")), f"{parts.scheme}://{parts.netloc}")

    def _trusts(self, host: str) -> bool:
        return bool(host) and (host in self._configured or self._clock() < self._named.get(host, 0.0))

    def _list_brokers(self, origin: str, ask: Ask) -> set[str]:
        """The brokers that are alive, as a super-user sees them; none for other roles."""
        reply = _final_reply(ask(f"{origin}/admin/v2/brokers").reply)
        found = {str(host) for host in reply.data} if reply.ok and isinstance(reply.data, list) else set()
        return self._remember(found)

    def _looked_up(self, origin: str, topic: str, ask: Ask) -> tuple[set[str], bool]:
        """Looks up the topic's owner; also returns whether this request made a broker the owner.

        A topic without an owner also makes a broker redirect the lookup, to the broker that would get the
        topic, and no owner is named. Then that broker is asked to take the topic over, as it does when the
        leader sends a client there.
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
    """The topics whose owner a request of this path may be for: the one it names, and its first partition."""
    kind, *parts = path.split("/")
    if kind not in ("persistent", "schemas") or len(parts) < 3:
        return ()
    topic = "/".join(("persistent", *parts[:3]))
    return (topic,) if "-partition-" in parts[2] else (topic, f"{topic}-partition-0")


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
