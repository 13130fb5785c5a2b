"""Live side of a plan: the objects that were read from a cluster, and figures about the use of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from kodoctl.topology.resources import (
    Address,
    Resource,
    TopicResource,
    database_of,
    is_function,
    is_package,
    topic_address,
)

if TYPE_CHECKING:
    from kodoctl.pulsar.values.ledger import Ledger
    from kodoctl.topology.model.policies import DelayedDelivery, Policies
    from kodoctl.topology.names import NamespaceName, TopicName

# reasons in `Live.unread_functions`
NO_WORKER: Final = "the cluster has no function worker, as the settings of its connection say"  # there are none
NO_WORKER_HERE: Final = "the broker has no function worker; whether workers run apart from it is unknown"
ALL_TABLES: Final = "all tables"  # in place of the tables of a publication that is FOR ALL TABLES


@dataclass(frozen=True, slots=True)
class SubscriptionFacts:
    """Backlog and use of a subscription. The backlog is summed over partitions and counts entries (batches), not
    messages. `consumers`: the largest number on one partition, because one client has a consumer on every partition;
    `steered`: text of its live orders (orders to its workers by `kodo-steer`) as the broker stores it, None if it has
    none.
    """

    backlog_entries: int = 0
    backlog_bytes: int = 0
    consumers: int = 0
    steered: str | None = None  # live orders to workers (`kodo-steer`), kept by every apply


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Stored data and use of a topic. Bytes are summed over partitions; `producers` and `consumers` are the largest
    number on one partition, because one client is on every partition. Times are ms since the epoch, 0: never.
    """

    storage_bytes: int = 0
    backlog_bytes: int = 0
    producers: int = 0
    consumers: int = 0
    busy_partitions: tuple[int, ...] = ()  # partitions with any connected client
    last_publish: int = 0
    idle_bytes: int = 0  # unread by durable subscriptions without consumers
    roles: tuple[tuple[str, int], ...] = ()  # role -> its connected consumers, where the broker tells roles
    unreplicated: tuple[
        tuple[str, int], ...
    ] = ()  # other cluster -> entries that it does not have yet, none that has all


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """Use of a replication slot. `confirmed`: position up to which changes are confirmed, "" for a slot that never had
    a reader; `unconfirmed_bytes`: bytes of WAL since then, 0 without such a position; `retained_bytes`: bytes of WAL
    that the server keeps for the slot.
    """

    plugin: str = "pgoutput"
    active_pid: int | None = None  # of the server process that sends to its reader
    confirmed: str = ""
    unconfirmed_bytes: int = 0
    retained_bytes: int = 0
    lost: bool = False  # the server removed WAL that the slot needs


@dataclass(frozen=True, slots=True)
class PublicationFacts:
    """Owner of a publication in its database. `owned`: our role is, or belongs to, the role that owns it; `foreign`:
    its marker names a topology of another namespace or cluster.
    """

    owned: bool = True
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table of a source. `kind`: as pg_class.relkind; `key`: columns of the primary key; `identity`: columns that the
    server logs of a deleted row, None: no replica identity.
    """

    kind: str
    columns: frozenset[str]
    key: tuple[str, ...]
    identity: frozenset[str] | None
    readable: bool = True
    owned: bool = True  # this role is, or belongs to, its owner
    logged: bool = True  # False: unlogged or temporary, which no reader of the WAL sees
    uneven: str | None = None  # a partition with another kind of replica identity than the table; None: there is none


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """Facts about the database of a source. `problem`: the reason why it could not be read or may not be used; "" if
    the facts are known. With a problem all other values are defaults, except `is_other`. `is_other`: the problem is
    that the database is not the one that the ledger names. `identity`: SYSTEM/OID, the identifier of the server's files
    and the number of the database.
    """

    problem: str = ""
    identity: str = ""
    is_other: bool = False
    name: str = ""
    wal_level: str = "logical"
    free_slots: int = 2
    role: str = ""
    may_replicate: bool = True
    may_create: bool = True
    standby: bool = False
    tables: Mapping[str, TableFacts] = field(default_factory=dict)  # by SCHEMA.TABLE, those that exist
    taken: Mapping[str, str] = field(default_factory=dict)  # slots with names of ours -> the other database they are of


@dataclass(frozen=True, slots=True)
class FunctionFacts:
    """Instances of a function or connector.

    Args:
        instances, running: number of instances, and of those that run; None if the worker did not answer.
        error: error text of the first instance that reports one, without secrets; "" if there is none.
        cleans_up: Pulsar deletes the subscription of the function together with it; False if it has none.
        has_foreign_options: the runtime options are a text that has no room for a marker.
    """

    instances: int | None = None
    running: int | None = None
    error: str = ""
    cleans_up: bool = True
    has_foreign_options: bool = False


@dataclass(frozen=True, slots=True)
class PlatformFacts:
    """Owner of an object of the whole cluster that a ledger outside of the object's home lists. `owner`: name of that
    ledger's topology; `home`: namespace of that ledger.
    """

    owner: str
    home: NamespaceName


@dataclass(frozen=True, slots=True)
class LiveObject:
    """An object that exists on the cluster. `marker`: name of the topology that owns it, by a property of the object;
    None if no topology has marked it, and for kinds that no property marks, such as a namespace. The marker of a
    publication that another namespace or cluster owns is a text that also names that place. `facts`: figures about its
    use, or about its owner; `stalls_delivery`: the topic has a delayed-delivery value of its own, which every apply
    removes.
    """

    resource: Resource
    marker: str | None = None
    facts: TopicFacts | SubscriptionFacts | SlotFacts | PublicationFacts | FunctionFacts | PlatformFacts | None = None
    stalls_delivery: bool = False  # a topic-level delayed-delivery value stands on it: always ours to remove
    hidden: str = ""  # digest of settings that `resource` does not show; "": it shows all

    @property
    def is_foreign(self) -> bool:
        """True for a publication whose marker names a topology of another namespace or cluster, and for an object of
        the whole cluster that a topology of another namespace owns.
        """
        return isinstance(self.facts, PlatformFacts) or (
            isinstance(self.facts, PublicationFacts) and self.facts.foreign
        )


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """Identity of a cluster: its name, and a UUID for each Pulsar tenant (None until a first apply stores one)."""

    cluster: str
    uuids: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Live:
    """Live inventory: everything that was read from the cluster for one command. Objects that could not be read are
    listed as such (`unseen`, `unread`, `unread_functions`, `unread_platform`; in `databases`, those with a `problem`),
    because unknown is never absent. `is_unknown` tells it for one publication, slot, function, connector, package or
    object of the whole cluster.
    """

    identity: ClusterIdentity
    objects: Mapping[Address, LiveObject] = field(repr=False)
    ledgers: Mapping[NamespaceName, Mapping[str, Ledger]] = field(default_factory=dict, repr=False)
    namespace_policies: Mapping[NamespaceName, Policies] = field(default_factory=dict)
    broker_defaults: Policies = field(default_factory=dict)
    default_delays: DelayedDelivery | None = None  # where a namespace says nothing; None: only super-users may ask
    failover_delay: int | None = None  # ms until a new active consumer gets messages; None: only super-users may ask
    bundles: Mapping[NamespaceName, int] = field(default_factory=dict)  # number of each namespace that could be read
    clusters: frozenset[str] = frozenset()  # that the instance knows; none: not read
    brokers: frozenset[str] | None = None  # that run, as HOST:PORT; None: not asked, or this role may not
    bookies: int | None = None  # None: not asked, or only super-users may
    absent_tenants: frozenset[str] = frozenset()
    # Pulsar tenant -> roles that may write ledgers or journals in it; None: they could not be read
    record_writers: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    unsupported: frozenset[str] = frozenset()  # topic policies this broker does not have
    unseen: frozenset[NamespaceName] = frozenset()  # of which only topics and subscriptions could be read
    unread: Mapping[TopicName, str] = field(default_factory=dict)  # why only names are known of these
    # topics of other topologies in the namespaces that were read, of which only names are known -> their topology
    others: Mapping[TopicName, str] = field(default_factory=dict, repr=False)
    # the databases that were looked at, readable or not, by the variable of their URL
    databases: Mapping[str, DatabaseFacts] = field(default_factory=dict, repr=False)
    # why a function, connector or package could not be read, and why those of a kind could not be listed: `KIND.TENANT/NAMESPACE`
    unread_functions: Mapping[Address, str] = field(default_factory=dict)
    missing_packages: Mapping[Address, str] = field(default_factory=dict)  # of functions and connectors of the files
    unread_platform: Mapping[Address, str] = field(default_factory=dict)  # why these objects could not be read
    undeclarable: Mapping[str, str] = field(default_factory=dict, repr=False)  # seen by an import: name -> reason
    policies_read: str = "bulk"  # how topic policies were read: bulk, single requests, or none needed
    read_at: float = float("-inf")  # end of the reading, by time.monotonic; -inf: not by this process, or long ago

    @property
    def entries(self) -> Iterator[Ledger]:
        """The ownership ledgers of all topologies in the namespaces that were read."""
        for entries in self.ledgers.values():
            yield from entries.values()

    def entry(self, namespace: NamespaceName | None, name: str) -> Ledger | None:
        """The ownership ledger of a topology in a namespace; None if it has none there, if the namespace was not read,
        or for the namespace None.
        """
        return self.ledgers.get(namespace, {}).get(name) if namespace else None

    def is_unknown(self, address: Address) -> bool:
        """True if it is not known whether or how an object exists: a publication or a slot in a database that was not
        read, a function, connector or package that could not be read or listed (also if the cluster has no function
        worker), or an object of the whole cluster that this role may not read.
        """
        if address in self.unread_platform:
            return True
        if is_function(address) or is_package(address):
            return self.why_unread(address) is not None
        place = database_of(address)
        return place is not None and bool(self.databases.get(place[0], DatabaseFacts("not read")).problem)

    def why_unread(self, function: Address) -> str | None:
        """The reason why a function, connector or package could not be read or listed, such as NO_WORKER; None if it
        was read, does not exist, or was not asked for.
        """
        return self.unread_functions.get(function, self.unread_functions.get(function.rpartition("/")[0]))

    def unknown_functions_in(self, namespace: NamespaceName) -> dict[Address, str]:
        """Returns the reasons in `unread_functions` that concern one namespace, without NO_WORKER (which says that
        there are none): by the address of a function or connector, or by the `KIND.TENANT/NAMESPACE` that could not be
        listed.
        """
        own = f"{namespace}/"
        unknown = ((one, why) for one, why in self.unread_functions.items() if why != NO_WORKER)
        return {one: why for one, why in unknown if f"{one.partition('.')[2]}/".startswith(own)}

    def topics_in(self, namespace: NamespaceName) -> Iterator[tuple[Address, TopicResource]]:
        """Yields (address, topic) for each topic of a namespace that was read. Of a topic in `unread` only the name is
        true: it has 0 partitions and no policies here.
        """
        yield from self._topics.get(namespace, ())

    def unknown_topics_in(self, namespace: NamespaceName) -> Iterator[tuple[Address, str]]:
        """Yields (address, reason) for each topic of a namespace of which only the name is known, so that a change of
        the namespace may concern its messages and clients: those in `unread` and in `others`.
        """
        for topic, why in self.unread.items():
            if topic.namespace == namespace:
                yield topic_address(topic), f"it cannot be read: {why}"
        for topic, owner in self.others.items():
            if topic.namespace == namespace:
                yield (
                    topic_address(topic),
                    f"a topic of the topology {owner}, which a plan of other files does not read",
                )

    @cached_property
    def _topics(self) -> dict[NamespaceName, list[tuple[Address, TopicResource]]]:
        topics: dict[NamespaceName, list[tuple[Address, TopicResource]]] = {}
        for address, found in self.objects.items():
            if isinstance(found.resource, TopicResource):
                topics.setdefault(found.resource.name.namespace, []).append((address, found.resource))
        return topics


def validates(namespace: Policies, broker: Policies) -> bool:
    """True if Pulsar enforces schemas on topics without a value of their own, by the policy of the namespace or, if
    that is unset, of the broker.
    """
    return namespace.get("schema_validation", broker.get("schema_validation")) is True
