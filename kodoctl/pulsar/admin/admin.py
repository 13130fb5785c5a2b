"""The port to Pulsar's admin API: one call, one reply. The caller knows the meaning of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

from kodoctl.errors import ClusterError, Diagnostic, error

if TYPE_CHECKING:
    from kodoctl.pulsar.connection.wait_monitor import WaitMonitor
    from kodoctl.topology.names import NamespaceName, TopicName

PARTITIONED: Final = "application/vnd.partitioned-topic-metadata+json"
"""Content type of a request that makes a topic together with its properties."""
_BUSY: Final = frozenset({429, 500, 502, 503, 504})
_WITHOUT_OWNER: Final = ("Can't find owner for topic", "Failed to find ownership for")  # how Pulsar's 412 begins then
_UNSETTLED: Final = (
    "unable to persist readPosition",  # of a subscription that was made while its topic was unloaded
    "Failed to fence subscription",  # another request moves its cursor, or the one before is still at work
    "Subscription is fenced",
    "Failed for Subscription Busy",  # Pulsar's 412 behind `resetcursor`, whatever keeps the cursor
)
NOT_SENT: Final = object()  # no body at all, which is not the same to Pulsar as a null body


def no_condition() -> None:
    """Nothing stands in the way of a request."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer of a broker. `data` is the decoded JSON (or plain text), None for an empty body; `reason` is its
    text for a refusal. `server_time`: ms since the epoch by the server's clock, cut to whole seconds, between
    request and answer, which were `took` seconds apart; None: the answer had none. `foreign`: the body is no
    JSON and no text of Pulsar about its objects. `body` and `headers`: the answer as it came. `host`: who answered.
    """

    method: str
    path: str
    status: int
    data: Any = None
    reason: str = ""
    server_time: int | None = None
    took: float = 0.0
    foreign: bool = False
    body: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    host: str = ""

    @property
    def ok(self) -> bool:
        """True if the call succeeded (2xx)."""
        return 200 <= self.status < 300

    @property
    def missing(self) -> bool:
        """True if the object, or something around it, does not exist by Pulsar's answer. A web page with status
        404 comes from a server before Pulsar, or concerns a path that Pulsar lacks: that says nothing about
        objects.
        """
        return self.status == 404 and not self.foreign

    @property
    def forbidden(self) -> bool:
        """Known role, not allowed on this resource (Pulsar says 401 or 403, both with a JSON reason)."""
        return self.status in (401, 403)

    @property
    def transient(self) -> bool:
        """True if the same request may succeed later: a broker without time, a subscription whose cursor is
        being moved, or a topic between two brokers, as in an unload, a split and a fail-over.

        A 412 about the topic itself, such as one with clients, is not transient. Nor is a 409: only the caller
        knows whether it means another's change at the same time.
        """
        passing = self.reason.startswith(_WITHOUT_OWNER) or any(text in self.reason for text in _UNSETTLED)
        return self.status in _BUSY or (self.status == 412 and passing)

    def __str__(self) -> str:
        return f"{self.method} {self.path} answered {self.status}{f' ({self.reason})' if self.reason else ''}"


@dataclass(slots=True)
class RequestCount:
    """Requests sent so far; redirects and retries count, because the broker works for them too."""

    reads: int = 0
    writes: int = 0
    by_path: dict[str, int] = field(default_factory=dict)


class Admin(Protocol):
    """Anything that can carry an admin call."""

    @property
    def traffic(self) -> RequestCount:
        """Requests sent so far."""

    @property
    def waits(self) -> WaitMonitor:
        """Monitor that limits and reports waits for this cluster."""

    def call(
        self,
        method: str,
        path: str,
        body: Any = NOT_SENT,
        *,
        query: dict[str, str] | None = None,
        content_type: str = "application/json",
        condition: Callable[[], None] = no_condition,
        patient: bool = True,
    ) -> Reply:
        """Sends one call; `path` is below `/admin/v2/`. Reads are retried while the answer is transient or a
        connection breaks, and so are requests that certainly were not sent; a write with an answer is not. Not
        `patient`: any answer is returned, for requests that a sender's data may make fail permanently.

        `condition` is called right before each request on the wire, after all waiting, and for redirected
        requests as well; its exception is raised here, and that request is not sent. Raises LostReplyError if
        the result of a write is unknown, ClusterError if there is no broker or no valid token.
        """


class LostReplyError(ClusterError):
    """A write was sent and no answer came: it may or may not have happened. Read again before anything else."""


class AdminError(ClusterError):
    """A call was refused in a way its caller has no use for."""

    def __init__(self, reply: Reply, doing: str) -> None:
        super().__init__(_refusal(reply, doing))
        self.reply = reply


def _refusal(reply: Reply, doing: str) -> Diagnostic:
    if reply.status == 404 and reply.foreign:
        detail = (
            f"{reply.host or 'a server'} answers, but not as Pulsar's admin API: {reply} ({doing}); is it the right"
            " port (8080 as a rule)?"
        )
        return error("K523", "this is not Pulsar's admin API", detail)
    advice = "; this needs a role with more rights (`kodoctl context test` says which)" if reply.forbidden else ""
    return error("K510", "the broker refused a request", f"{doing}: {reply}{advice}")


def must(reply: Reply, doing: str) -> Any:
    """The reply's data. Raises AdminError, whose text names the action `doing`."""
    if not reply.ok:
        raise AdminError(reply, doing)
    return reply.data


def path_part(name: str) -> str:
    """A name as one part of a path, whatever it is: none leads to another object."""
    return quote(name, safe="") if name not in (".", "..") else name.replace(".", "%2E")


def topic_path(topic: TopicName) -> str:
    """Path of a topic below `/admin/v2/`, `persistent/tenant/namespace/topic`; its local name is percent-encoded once."""
    return f"persistent/{topic.namespace}/{path_part(topic.local)}"


def partition_path(topic: TopicName, index: int) -> str:
    """The path of one partition."""
    return f"{topic_path(topic)}-partition-{index}"


def namespace_path(namespace: NamespaceName) -> str:
    """Path of a namespace below `/admin/v2/`, `namespaces/tenant/namespace`."""
    return f"namespaces/{namespace}"


def schema_path(topic: TopicName) -> str:
    """Path of the schemas of a topic below `/admin/v2/`; its local name is percent-encoded once."""
    return f"schemas/{topic.namespace}/{path_part(topic.local)}"


def subscription_path(topic: TopicName, subscription: str) -> str:
    """The path of a subscription on all partitions."""
    return f"{topic_path(topic)}/subscription/{path_part(subscription)}"
