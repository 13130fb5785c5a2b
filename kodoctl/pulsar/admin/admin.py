"""Port (interface) to Pulsar's admin API: one call gives one reply, which the caller interprets. Also object paths."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

from kodoctl.errors import ClusterError, Diagnostic, error
from kodoctl.pulsar.admin.missing_right import missing_right
from kodoctl.topology.names import partition_name

if TYPE_CHECKING:
    from kodoctl.pulsar.connection.wait_monitor import WaitMonitor
    from kodoctl.topology.names import NamespaceName, TopicName
    from kodoctl.topology.resources import FunctionKind

JSON: Final = "application/json"
PARTITIONED: Final = "application/vnd.partitioned-topic-metadata+json"
"""Content type of a request that creates a partitioned topic together with its properties."""
_BUSY: Final = frozenset({429, 500, 502, 503, 504})
_WITHOUT_OWNER: Final = ("Can't find owner for topic", "Failed to find ownership for")  # how Pulsar's 412 begins then
_UNSETTLED: Final = (
    "unable to persist readPosition",  # of a subscription that was made while its topic was unloaded
    "Failed to fence subscription",  # another request moves its cursor, or the one before is still at work
    "Subscription is fenced",
    "Failed for Subscription Busy",  # Pulsar's 412 behind `resetcursor`, whatever keeps the cursor
)
_LASTING: Final = (
    "No offloader found for driver",  # of a topic whose policies name a driver that is not installed
    "No such ledger exists",  # what BookKeeper lost, or somebody deleted: of a topic, or of its schema
    "No such entry",
)
_FUNCTION_PATHS: Final[Mapping[FunctionKind, str]] = {"function": "functions", "sink": "sinks", "io_source": "sources"}
VERSION_3: Final = (
    "v3/"  # begins the paths of what version 2 of the API has not, or in another form: functions, connectors
)
FUNCTION_API: Final = tuple(f"{VERSION_3}{part}/" for part in _FUNCTION_PATHS.values())
"""Beginnings of the paths that a function worker answers, in a broker or apart from the brokers."""
WITHOUT_WORKERS: Final = "the settings of this connection say that the cluster has no function worker"
NOT_SENT: Final = object()  # no body at all, which is not the same to Pulsar as a null body


def no_condition() -> None:
    """Default of `condition` in `Admin.call`: never raises, so every request is sent."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer of a broker to one call, or an answer that HttpAdmin makes itself because it sends no request on.

    Args:
        status: HTTP status.
        data: the decoded JSON, or the plain text if the body is not JSON; None if the body is empty or a web page.
        reason: one line of the text of a refusal (status 400 or above), else "".
        server_time: the header `Date` in ms since the epoch (the server's clock, whole seconds); None without a valid
            header.
        took: seconds from request to answer, of the last request of the call.
        foreign: the body is a web page or not JSON, so perhaps not from Pulsar.
        body, headers: as received.
        host: `http://HOST:PORT` that answered; "" if HttpAdmin made the answer.
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
        """True if the broker carried the request out, or has begun to (status 2xx)."""
        return 200 <= self.status < 300

    @property
    def missing(self) -> bool:
        """True if Pulsar answered that the object, or another one that it needs, does not exist. A `foreign` 404 is not
        such an answer: a proxy in front of Pulsar sent it, or Pulsar lacks the path.
        """
        return self.status == 404 and not self.foreign

    @property
    def forbidden(self) -> bool:
        """True if the broker refuses the role this request (status 401 or 403). A token that is not accepted raises in
        `call` instead.
        """
        return self.status in (401, 403)

    @property
    def lasting(self) -> bool:
        """True if the broker names one of the causes that are known to go on until somebody mends them: waiting is of
        no use.
        """
        return any(text in self.reason for text in _LASTING)

    @property
    def transient(self) -> bool:
        """True if the same request may succeed later: the broker is busy or fails (status 429, 500, 502, 503 or 504
        without a `lasting` cause), another request moves the cursor of the subscription, or the topic has no owner for
        a moment, as in an unload, a split and a fail-over (412, told by its text).

        A 412 about the topic itself, such as one with clients, is not transient. Nor is a 409: only the caller knows
        whether it means a change by another client at the same time.
        """
        passing = self.reason.startswith(_WITHOUT_OWNER) or any(text in self.reason for text in _UNSETTLED)
        return (self.status in _BUSY and not self.lasting) or (self.status == 412 and passing)

    def __str__(self) -> str:
        return f"{self.method} {self.path} answered {self.status}{f' ({self.reason})' if self.reason else ''}"


@dataclass(slots=True)
class RequestCount:
    """Numbers of requests, answered or not, including redirects, retries and lookups of brokers. `reads`: requests that
    change nothing (GET, analyzeBacklog); `writes`: all others; `by_path`: number by method and last part of the path,
    such as `GET partitioned-stats`.
    """

    reads: int = 0
    writes: int = 0
    by_path: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def add(self, method: str, path: str, *, reads: bool) -> None:
        """Counts one request. Several threads may call it."""
        with self._lock:
            if reads:
                self.reads += 1
            else:
                self.writes += 1
            kind = f"{method} {path.rsplit('/', 1)[-1]}"
            self.by_path[kind] = self.by_path.get(kind, 0) + 1


class Admin(Protocol):
    """Port to the admin API of one cluster (interface). HttpAdmin sends every request; FencedAdmin checks before each
    request but a GET that this process holds the lease, and raises LockedError if not.
    """

    @property
    def traffic(self) -> RequestCount:
        """Counts of the requests so far. Later requests change the same object."""

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
        content_type: str = JSON,
        condition: Callable[[], None] = no_condition,
        patient: bool = True,
    ) -> Reply:
        """Sends one call and blocks until its reply, which may be a refusal.

        A read (GET, analyzeBacklog) is sent again, at most as long as `waits` allows, if its answer is transient or the
        connection breaks; after that its transient answer is returned. A write is sent again only if no broker can have
        carried it out: its transient answer is returned at once. Raises LostReplyError if the result of a write is
        unknown; ClusterError if no broker answers, no token can be had or it is not accepted, redirects lead out of the
        cluster or in circles, or a web page answers with success; and the errors of `condition`.

        Args:
            path: path below `/admin/v2/`; one that begins with VERSION_3, below `/admin/`.
            body: is encoded as JSON; bytes are sent as they are; NOT_SENT: no body.
            query: query parameters.
            condition: is called right before each request is sent, after all waiting, so again for each redirect and
                retry. If it raises, the request is not sent.
            patient: False returns the transient answer of a read at once, too. For reads that may fail for ever because
                of data that others wrote.
        """


class LostReplyError(ClusterError):
    """A write got no answer: the broker may have carried it out or not. The caller has to read the object to know."""


class AdminError(ClusterError):
    """A refusal by a broker that the caller cannot handle. `reply`: the refusal; `doing`: the action, such as `reading
    X`, for the text.
    """

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
    if not reply.forbidden:
        return error("K510", "the broker refused a request", f"{doing}: {reply}")
    right = missing_right(reply.method, reply.path)
    advice = f"this needs a role with more rights (`kodoctl context test` says which): {right}"
    return error("K510", "the broker refused a request", f"{doing}: {reply}\n{advice}")


def must(reply: Reply, doing: str) -> Any:
    """Returns the data of a reply, None for an empty body. Raises AdminError if the status is not 2xx. `doing`: the
    action, such as `reading X`, for the error.
    """
    if not reply.ok:
        raise AdminError(reply, doing)
    return reply.data


def path_part(name: str) -> str:
    """Percent-encodes a name as one part of a path, also `.` and `..`, so that no name (but "") leads elsewhere."""
    return quote(name, safe="") if name not in (".", "..") else name.replace(".", "%2E")


def topic_path(topic: TopicName) -> str:
    """Path of a topic below `/admin/v2/`, `persistent/tenant/namespace/topic`; its local name is
    percent-encoded once.
    """
    return f"persistent/{topic.namespace}/{path_part(topic.local)}"


def partition_path(topic: TopicName, index: int) -> str:
    """Path of one partition of a topic below `/admin/v2/`; with PLAIN (-1) that of the topic itself."""
    return partition_name(topic_path(topic), index)


def namespace_path(namespace: NamespaceName) -> str:
    """Path of a namespace below `/admin/v2/`, `namespaces/tenant/namespace`."""
    return f"namespaces/{namespace}"


def functions_path(kind: FunctionKind, namespace: NamespaceName, name: str = "") -> str:
    """Path of a function or connector below `/admin/`; of all of this kind in the namespace if `name` is ""."""
    return f"{VERSION_3}{_FUNCTION_PATHS[kind]}/{namespace}{name and f'/{path_part(name)}'}"


def packages_path(kind: str, name: str) -> str:
    """Path below `/admin/` of the packages of a type (`kind`, such as `function`). `name`: TENANT/NAMESPACE for all
    packages there; TENANT/NAMESPACE/NAME for those of one name, and so on.
    """
    return f"{VERSION_3}packages/{kind}/{quote(name)}"


def schema_path(topic: TopicName) -> str:
    """Path of the schemas of a topic below `/admin/v2/`. Its local name is percent-encoded twice, because Pulsar
    decodes it twice here: encoded once, `a+b` names the schemas of the topic `a b`.
    """
    return f"schemas/{topic.namespace}/{path_part(path_part(topic.local))}"


def subscription_path(topic: TopicName, subscription: str, partition: int | None = None) -> str:
    """Path below `/admin/v2/` of a subscription on one partition of a topic (PLAIN: on the topic itself), None: on all
    of them. The subscription's name is percent-encoded twice, because Pulsar decodes it twice here: encoded once, `a+b`
    names the subscription `a b`.
    """
    path = topic_path(topic) if partition is None else partition_path(topic, partition)
    return f"{path}/subscription/{path_part(path_part(subscription))}"
