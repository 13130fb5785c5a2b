"""Reader of the live side of a plan: everything that a command needs to know of its namespaces, with a limited number
of requests.

Per command: clusters, version, configuration. Per namespace: one GET of the namespace (policies, grants, ledgers), two
topic lists, one bulk read of topic policies. Per topic: one GET (partitions, marker, subscriptions of each partition,
clients, backlog, last publish).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kodoctl.errors import ClusterError, Diagnostic, error
from kodoctl.pulsar.admin.admin import Admin, AdminError, must, namespace_path
from kodoctl.pulsar.admin.admin_http import CONNECTIONS
from kodoctl.pulsar.admin.broker_info import Server, read_bookies, read_server
from kodoctl.pulsar.admin.omitted_partitions import UnknownPartitionsError, may_be_left_out
from kodoctl.pulsar.admin.topic_stats import TopicReading, read_plain_topic, read_topic
from kodoctl.pulsar.control.control_namespace import read_control_namespace
from kodoctl.pulsar.inventory.bulk_policies import SYSTEM_TOPIC
from kodoctl.pulsar.inventory.functions import read_functions
from kodoctl.pulsar.inventory.namespace_policies import read_apart
from kodoctl.pulsar.inventory.packages import missing_packages, read_named_packages, read_packages
from kodoctl.pulsar.inventory.platform_objects import read_brokers, read_owners, read_platform_object
from kodoctl.pulsar.inventory.policy_requests import APART, read_namespace_policies
from kodoctl.pulsar.inventory.schema_reader import read_schema
from kodoctl.pulsar.inventory.topic_policy_reader import PolicyReader, TopicPolicyReading
from kodoctl.pulsar.inventory.undeclarable import (
    beyond_format,
    plain_subscriptions,
    read_undeclarable,
    termination,
    topic_states,
)
from kodoctl.pulsar.values.ledger import read_ledgers
from kodoctl.pulsar.values.live_objects import ClusterIdentity, Live, LiveObject, PlatformFacts, validates
from kodoctl.topology.names import NamespaceName, TopicName, whole_topic
from kodoctl.topology.resources import (
    FUNCTION_KINDS,
    Address,
    FunctionKind,
    FunctionResource,
    GrantResource,
    NamespaceResource,
    PackageResource,
    Resource,
    SchemaResource,
    SubscriptionResource,
    TenantResource,
    TopicResource,
    is_of_platform,
    is_package,
    namespace_of_address,
    parse_package,
    topic_address,
    topic_of_address,
)

if TYPE_CHECKING:
    from kodoctl.pulsar.binary.client import BrokerClient
    from kodoctl.pulsar.inventory.read_scope import ReadScope
    from kodoctl.pulsar.values.ledger import Ledger
    from kodoctl.topology.model.policies import Policies, PolicyValue

_SYSTEM: Final = frozenset({
    SYSTEM_TOPIC, "__transaction_buffer_snapshot", "__transaction_buffer_snapshot_indexes",
    "__transaction_buffer_snapshot_segments",
})  # fmt: skip
_PENDING_ACK: Final = "__transaction_pending_ack"
_NUL: Final = "\0"  # in a path: a broker's HTTP server answers 400 to whatever is asked


@dataclass(slots=True)
class _Reading:
    """State of a read so far."""

    objects: dict[Address, LiveObject] = field(default_factory=dict)
    ledgers: dict[NamespaceName, dict[str, Ledger]] = field(default_factory=dict)
    policies: dict[NamespaceName, Policies] = field(default_factory=dict)
    bundles: dict[NamespaceName, int] = field(default_factory=dict)
    uuids: dict[str, str | None] = field(default_factory=dict)
    absent_tenants: set[str] = field(default_factory=set)
    record_writers: dict[str, frozenset[str] | None] = field(default_factory=dict)
    how: set[str] = field(default_factory=set)
    unseen: set[NamespaceName] = field(default_factory=set)
    unread: dict[TopicName, str] = field(default_factory=dict)
    others: dict[TopicName, str] = field(default_factory=dict)
    undeclarable: dict[str, str] = field(default_factory=dict)
    unread_functions: dict[Address, str] = field(default_factory=dict)
    missing_packages: dict[Address, str] = field(default_factory=dict)
    unread_platform: dict[Address, str] = field(default_factory=dict)
    brokers: frozenset[str] | None = None

    def add(self, part: _Reading) -> None:
        """Adds the reading of one namespace."""
        self.objects |= part.objects
        self.ledgers |= part.ledgers
        self.policies |= part.policies
        self.bundles |= part.bundles
        self.how |= part.how
        self.unseen |= part.unseen
        self.unread |= part.unread
        self.others |= part.others
        self.undeclarable |= part.undeclarable


def read_live(admin: Admin, client: BrokerClient, scope: ReadScope) -> Live:
    """Reads the live objects of a scope, in several threads, and blocks meanwhile. An unknown object never counts as
    absent: functions, connectors and packages that cannot be read are listed in `Live.unread_functions`, others that
    the scope allows to be unreadable in `unseen`, `unread` and so on; for the rest, ClusterError is raised. Databases
    of sources are not read.
    """
    server = read_server(admin)
    reading = _Reading()
    with _pool() as pool:
        namespaces = set(scope.namespaces)
        elsewhere: set[NamespaceName] = set()
        for tenant in sorted({namespace.tenant for namespace in scope.namespaces} | scope.tenants):
            index = _read_tenant(admin, tenant, scope, reading)
            namespaces |= {namespace for name in scope.names for namespace in index.get(name, ())}
            elsewhere.update(namespace for places in index.values() for namespace in places)
        _read_namespaces(_Reader(admin, client, server, pool), sorted(namespaces), scope, reading)
        for namespace in sorted({*scope.grants_only, *_granted_elsewhere(reading, scope)} - namespaces):
            _add(reading, (LiveObject(grant) for grant in _read_grants(admin, namespace, scope, reading)))
        for namespace, kind in sorted(_with_functions(namespaces, reading, scope)):
            found, unread = read_functions(admin, kind, namespace, scope.functions)
            _add(reading, found)
            reading.unread_functions |= unread
        found, unread = read_named_packages(admin, _packages(namespaces, reading, scope))
        _add(reading, found)
        reading.unread_functions |= unread
        reading.missing_packages = missing_packages(admin, _with_new_packages(reading, scope))
        _read_platform(_Reader(admin, client, server, pool), elsewhere - namespaces, scope, reading)
        _read_declared_schemas(admin, pool, scope, reading)
        if scope.everything:
            _list_schemas(admin, pool, reading)
            resources = [one.resource for one in reading.objects.values()]
            topics = [one for one in resources if isinstance(one, TopicResource) and one.name not in reading.unread]
            for settings in pool.map(lambda topic: termination(admin, topic.name, topic.partitions), topics):
                reading.undeclarable |= settings
    return Live(
        identity=ClusterIdentity(server.cluster, reading.uuids),
        objects=reading.objects,
        ledgers=reading.ledgers,
        namespace_policies=reading.policies,
        broker_defaults=server.defaults,
        default_delays=server.delays,
        failover_delay=server.failover_delay,
        bundles=reading.bundles,
        clusters=server.clusters,
        brokers=reading.brokers,
        bookies=read_bookies(admin) if scope.bookies else None,
        absent_tenants=frozenset(reading.absent_tenants),
        record_writers=reading.record_writers,
        unsupported=server.unsupported,
        unseen=frozenset(reading.unseen),
        unread=reading.unread,
        others=reading.others,
        undeclarable=reading.undeclarable,
        unread_functions=reading.unread_functions,
        missing_packages=reading.missing_packages,
        unread_platform=reading.unread_platform,
        policies_read=" and ".join(sorted(reading.how)) or "none",
    )


def _read_platform(reader: _Reader, elsewhere: Iterable[NamespaceName], scope: ReadScope, reading: _Reading) -> None:
    """Reads the objects of the whole cluster that the scope names, or that our ledgers list; for an import those of all
    ledgers. In a reduced read, and for an import, those that this role may not read are noted. `elsewhere`:
    namespaces with topologies that were not read. A ledger there, or in another namespace that was, may list one of
    the objects, too.
    """
    every = [entry for entries in reading.ledgers.values() for entry in entries.values()]
    entries = [entry for entry in every if scope.everything or entry.name in scope.names]
    listed = {address: entry.namespace for entry in entries for address in entry.owned if is_of_platform(address)}
    homes = sorted({**listed, **scope.platform}.items())

    owners = read_owners(reader.admin, elsewhere) if homes else {}
    owners |= {
        address: PlatformFacts(entry.name, entry.namespace)
        for address, home in homes
        for entry in every
        if entry.namespace != home and address in entry.owned
    }

    def read(one: tuple[Address, NamespaceName]) -> LiveObject | None:
        try:
            found = read_platform_object(reader.admin, reader.server.cluster, *one)
        except AdminError as problem:
            if not (scope.reduced or scope.everything) or not problem.reply.forbidden:
                raise
            reading.unread_platform[one[0]] = problem.diagnostics[0].detail
            return None
        return LiveObject(found, facts=owners.get(one[0])) if found is not None else None

    _add(reading, (found for found in reader.pool.map(read, homes) if found is not None))
    if any(address.startswith("isolation_policy.") for address, _ in homes):
        reading.brokers = read_brokers(reader.admin, reader.server.cluster)


def _read_declared_schemas(admin: Admin, pool: ThreadPoolExecutor, scope: ReadScope, reading: _Reading) -> None:
    """Reads the declared schemas that the flags choose. Raises one ClusterError for all that cannot be read; in a
    lenient read their topics are unread.
    """
    wanted = [one for one in scope.schemas if one.topic not in reading.unread and scope.selection.names(one.address)]
    findings = []
    for schema, found in zip(
        wanted, pool.map(lambda one: _readable_schema(admin, one.topic, one), wanted), strict=True
    ):
        if isinstance(found, str) and scope.lenient:
            reading.unread[schema.topic] = found
        elif isinstance(found, str):
            way_out = f"`plan` and `apply` go on without it by --exclude {schema.address}"
            findings.append(error("K580", "part of a topic cannot be read", f"{found}\n{way_out}"))
        elif found is not None:
            _add(reading, [LiveObject(found)])
    if findings:
        raise ClusterError(*findings)


def _list_schemas(admin: Admin, pool: ThreadPoolExecutor, reading: _Reading) -> None:
    """Notes the schema of every topic that could be read, and the topics whose schema cannot be read. No request can
    name the schema of a topic with a slash in its name, which clients may bring into being as a plain one.
    """
    topics = [found.resource for found in reading.objects.values() if isinstance(found.resource, TopicResource)]
    named = [topic.name for topic in topics if "/" not in topic.name.local and _is_readable(topic.name)]
    names = [topic for topic in named if topic not in reading.unread]
    for name, schema in zip(
        names, pool.map(lambda topic: _readable_schema(admin, topic, patient=False), names), strict=True
    ):
        if isinstance(schema, str):
            reading.undeclarable[f"schema.{name}"] = f"it cannot be read: {schema}"
        elif schema is not None:
            _add(reading, [LiveObject(schema)])


def _readable_schema(
    admin: Admin, topic: TopicName, declared: SchemaResource | None = None, *, patient: bool = True
) -> SchemaResource | str | None:
    """The result of `read_schema`; the reason as text if it failed. For a declared schema, raises ClusterError if no
    broker answers, its topic has no owner for now, or the role lacks the right.
    """
    try:
        return read_schema(admin, topic, declared, patient=patient)
    except ClusterError as problem:
        reply = problem.reply if isinstance(problem, AdminError) else None
        passes = reply is None or reply.forbidden or (reply.transient and reply.status != 500)
        if declared is not None and passes:
            raise
        return problem.diagnostics[0].detail


@contextmanager
def _pool() -> Iterator[ThreadPoolExecutor]:
    """Context with a thread pool. If the block raises, requests that have not begun are cancelled: each might wait for
    a broker that is gone.
    """
    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="read") as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@dataclass(frozen=True, slots=True)
class _Reader:
    admin: Admin
    client: BrokerClient
    server: Server
    pool: ThreadPoolExecutor


def _add(reading: _Reading, found: Iterable[LiveObject]) -> None:
    for one in found:
        reading.objects[one.resource.address] = one


def _with_functions(
    namespaces: Iterable[NamespaceName], reading: _Reading, scope: ReadScope
) -> Iterator[tuple[NamespaceName, FunctionKind]]:
    """Kinds of functions and connectors that are read, by namespace: those of the scope, and those of which our ledgers
    list some. An import reads all, where a worker answers, a destroy all of a namespace that it may delete, and a plan
    all that may use packages of ours.
    """
    declared = {(one.namespace, one.kind) for one in scope.functions}
    for namespace in namespaces:
        ours = [entry for name, entry in reading.ledgers.get(namespace, {}).items() if name in scope.names]
        owned = {address.partition(".")[0] for entry in ours for address in entry.owned}
        every = scope.everything or "package" in owned or (scope.neighbours and "namespace" in owned)
        for kind in FUNCTION_KINDS:
            if (namespace, kind) in declared or kind in owned or every:
                yield namespace, kind


def _packages(namespaces: Iterable[NamespaceName], reading: _Reading, scope: ReadScope) -> Iterable[PackageResource]:
    """Packages of the scope, and those that ledgers of our topologies list."""
    found = {package.address: package for package in scope.uploads}
    for namespace in namespaces:
        for name, entry in reading.ledgers.get(namespace, {}).items():
            for address in entry.owned if name in scope.names else ():
                if is_package(address) and (package := parse_package(address.partition(".")[2])) is not None:
                    found.setdefault(address, package)
    return [found[address] for address in sorted(found)]


def _with_new_packages(reading: _Reading, scope: ReadScope) -> Iterator[FunctionResource]:
    """Declared functions and connectors that the live ones do not have the package of, if packages matter."""
    for one in sorted(scope.functions, key=lambda function: function.address) if scope.packages else ():
        live = reading.objects.get(one.address)
        has_it = (
            live is not None and isinstance(live.resource, FunctionResource) and live.resource.package == one.package
        )
        is_uploaded = any(package.url == one.package for package in scope.uploads)
        if not has_it and not is_uploaded and scope.selection.names(one.address):
            yield one


def _granted_elsewhere(reading: _Reading, scope: ReadScope) -> Iterator[NamespaceName]:
    """Namespaces in which roles have grants by the ledgers of our topologies."""
    for entries in reading.ledgers.values():
        for name, entry in entries.items():
            if name in scope.names:
                yield from map(namespace_of_address, entry.grants)


def _read_grants(
    admin: Admin, namespace: NamespaceName, scope: ReadScope, reading: _Reading
) -> Iterator[GrantResource]:
    """Grants in a namespace that is not ours; a namespace that does not exist has none. In a reduced read, a forbidden
    namespace is added to `reading.unseen`.
    """
    reply = admin.call("GET", namespace_path(namespace))
    if scope.reduced and reply.forbidden:
        reading.unseen.add(namespace)
    elif not reply.missing:
        yield from grants_of(namespace, must(reply, f"reading grants of {namespace}"))


def _read_tenant(
    admin: Admin, tenant: str, scope: ReadScope, reading: _Reading
) -> dict[str, tuple[NamespaceName, ...]]:
    """Reads the tenant and its control namespace. Returns the index: topology name -> its namespaces."""
    reply = admin.call("GET", f"tenants/{tenant}")
    if reply.missing:
        reading.absent_tenants.add(tenant)
        reading.uuids[tenant] = None
        return {}
    reading.record_writers[tenant] = None
    if not reply.forbidden:
        found = must(reply, f"reading the Pulsar tenant {tenant}")
        clusters, roles = found.get("allowedClusters") or [], found.get("adminRoles") or []
        _add(reading, [LiveObject(TenantResource(tenant, frozenset(clusters), frozenset(roles)))])
    try:
        control_namespace = read_control_namespace(admin, tenant)
    except AdminError as problem:
        if scope.reduced and problem.reply.forbidden:
            return {}
        raise
    reading.uuids[tenant] = control_namespace.uuid
    if not reply.forbidden:
        reading.record_writers[tenant] = control_namespace.producers | frozenset(roles)
    return dict(control_namespace.index)


def _read_namespaces(reader: _Reader, namespaces: Iterable[NamespaceName], scope: ReadScope, reading: _Reading) -> None:
    """Reads namespaces in parallel, and adds them to `reading` in their order. Their topics are read by the pool of the
    reader, so that none of its threads waits for another.
    """

    def read(namespace: NamespaceName) -> _Reading:
        part = _Reading()
        _read_namespace(reader, namespace, scope, part)
        return part

    with _pool() as pool:
        for part in pool.map(read, namespaces):
            reading.add(part)


def _read_namespace(reader: _Reader, namespace: NamespaceName, scope: ReadScope, reading: _Reading) -> None:
    reply = reader.admin.call("GET", namespace_path(namespace))
    if reply.missing:
        reading.ledgers[namespace] = {}
        return
    if scope.reduced and reply.forbidden:
        reading.unseen.add(namespace)
        reading.policies[namespace], reading.ledgers[namespace] = {}, {}
        _read_topics(reader, namespace, scope, reading)
        return
    dump = must(reply, f"reading namespace {namespace}")
    reading.ledgers[namespace] = read_ledgers(namespace, dump)
    policies = {
        **read_namespace_policies(dump, reader.server.cluster),
        **_read_apart(reader.admin, namespace, scope, reading),
    }
    reading.policies[namespace] = policies
    if bundles := dump.get("bundles"):
        reading.bundles[namespace] = bundles["numBundles"]
    _add(reading, [LiveObject(NamespaceResource(namespace, policies))])
    _add(reading, (LiveObject(grant) for grant in grants_of(namespace, dump)))
    if scope.everything:
        reading.undeclarable |= read_undeclarable(reader.admin, namespace, dump, reader.server)
        reading.undeclarable |= read_packages(reader.admin, namespace)
    _read_topics(reader, namespace, scope, reading)


def _read_apart(admin: Admin, namespace: NamespaceName, scope: ReadScope, reading: _Reading) -> Policies:
    """Reads the policies with a request of their own that a file or a ledger names; for an import all of them, of which
    those that the role may not read are noted.
    """
    ours = [entry for name, entry in reading.ledgers[namespace].items() if name in scope.names]
    named = APART if scope.everything else scope.named.union(*(entry.namespace_keys for entry in ours))
    found: dict[str, PolicyValue] = {}
    for name in named & APART:
        try:
            found |= read_apart(admin, namespace, (name,))
        except AdminError as problem:
            if not scope.everything or not problem.reply.forbidden:
                raise
            reading.undeclarable[f"namespace.{namespace} {name}"] = f"it cannot be read: {problem.reply}"
    return found


def grants_of(namespace: NamespaceName, dump: dict[str, Any]) -> Iterator[GrantResource]:
    """Yields the grants in the JSON of a namespace: on the namespace itself and on single persistent topics. Grants on
    subscriptions and on non-persistent topics are left out.
    """
    auth = dump.get("auth_policies") or {}
    for role, actions in (auth.get("namespace_auth") or {}).items():
        yield GrantResource(namespace, role, frozenset(actions))
    for topic, roles in (auth.get("destination_auth") or {}).items():
        if topic.startswith("persistent://"):
            for role, actions in roles.items():
                yield GrantResource(TopicName.listed(topic), role, frozenset(actions))


def _read_topics(reader: _Reader, namespace: NamespaceName, scope: ReadScope, reading: _Reading) -> None:
    partitioned, plain = list_topics(reader.admin, namespace, with_underscores=scope.everything)
    declared = {topic for topic in scope.declared if topic.namespace == namespace}
    foreign = _owned_by_others(reading.ledgers[namespace], scope)
    unreadable = [topic for topic in plain if not _is_readable(topic)]
    _add(reading, (LiveObject(TopicResource(topic, 0, {})) for topic in unreadable))
    readable = frozenset(plain) - frozenset(unreadable)
    topics = [topic for topic in (*partitioned, *sorted(readable)) if topic not in scope.known]
    wanted = [t for t in topics if t in declared or scope.everything or topic_address(t) not in foreign]
    reading.others |= {topic: foreign[topic_address(topic)] for topic in set(topics) - set(wanted)}
    if scope.only is not None:
        wanted = [topic for topic in wanted if topic in scope.only]
    owned = _owned_topics(reading.ledgers[namespace], scope)
    ours = {topic for topic in wanted if topic in declared or topic.full in owned}
    asked = {  # beside the policies
        topic: _submit(reader, topic, scope, is_ours=topic in ours, is_plain=topic in readable) for topic in wanted
    }
    left_out = [topic for topic in wanted if not scope.selection.names(topic_address(topic))]
    # `choose` refuses a plan of which another object needs one of these
    known, unread = _all_known({topic: asked.pop(topic) for topic in left_out}, lambda *_: True)
    policies = PolicyReader(reader.admin, reader.client, reader.pool, reader.server.version).read(
        namespace,
        [topic for topic in wanted if topic not in unread],
        validates=validates(reading.policies[namespace], reader.server.defaults),
        checked=namespace not in reading.unseen,
    )
    if wanted:
        reading.how.add(policies.how)
    if scope.everything:
        reading.undeclarable.update(_topic_settings(namespace, policies))
        for subscriptions in reader.pool.map(lambda topic: plain_subscriptions(reader.admin, topic), unreadable):
            reading.undeclarable |= subscriptions
    goes_on = partial(may_be_left_out, everything=scope.everything, lenient=scope.lenient)
    others, not_needed = _all_known(asked, lambda topic, why: goes_on(why, is_ours=topic in ours))
    reading.unread |= unread | not_needed
    # the name is all that is known of these
    _add(reading, (LiveObject(TopicResource(topic, 0, {})) for topic in reading.unread))
    for found in (*known, *others):
        if found is not None and found.name not in policies.gone:
            reading.undeclarable.update(topic_states(found) if scope.everything else ())
            _add_topic(reading, found, policies.of(found.name), stalls=found.name.full in policies.delayed)


def _topic_settings(namespace: NamespaceName, reading: TopicPolicyReading) -> Iterator[tuple[str, str]]:
    """Yields (printed name, reason) for each topic policy that is set and that a topology file cannot declare."""
    if reading.others is None:
        yield (
            f"namespace.{namespace} topic policies",
            f"those that the format does not have are not known: {reading.how}",
        )
    for topic, settings in (reading.others or {}).items():
        for name, value in settings.items():
            yield f"{topic_address(topic)} {name}", beyond_format(value)


def _submit(
    reader: _Reader, topic: TopicName, scope: ReadScope, *, is_ours: bool, is_plain: bool
) -> Future[TopicReading | None]:
    """Submits the read of one topic. Omitted partitions of a topic that is not ours are asked individually only for an
    import, which would adopt the topic; those of an excluded topic never.
    """
    of = None if is_ours or scope.everything else scope.names
    if scope.selection.excluded(topic_address(topic)):
        of = frozenset()
    return reader.pool.submit(read_plain_topic if is_plain else read_topic, reader.admin, topic, of=of)


def _all_known(
    asked: Mapping[TopicName, Future[TopicReading | None]], may_lack: Callable[[TopicName, ClusterError], bool]
) -> tuple[list[TopicReading | None], dict[TopicName, str]]:
    """Waits for the reads. Returns the readings, and the reasons by topic for unreadable topics that `may_lack` allows.
    After the first other topic with unknown partitions, cancels the reads that have not begun, and raises one error for
    all such topics, with the flag that plans without each.
    """
    known: list[TopicReading | None] = []
    unread: dict[TopicName, str] = {}
    for topic, answer in asked.items():
        try:
            known.append(answer.result())
        except ClusterError as problem:
            unclear = problem if isinstance(problem, UnknownPartitionsError) else None
            if may_lack(topic, problem):
                unread[topic] = unclear.reason if unclear else problem.diagnostics[0].detail
            elif unclear:
                unknown = [one.exception() for one in asked.values() if not one.cancel()]
                found = [
                    one for one in unknown if isinstance(one, UnknownPartitionsError) and not may_lack(one.topic, one)
                ]
                raise ClusterError(*(_with_way_out(one) for one in found)) from None
            else:
                raise
    return known, unread


def _with_way_out(problem: UnknownPartitionsError) -> Diagnostic:
    [finding] = problem.diagnostics
    flag = f"--exclude {topic_address(problem.topic)}"
    return replace(finding, detail=f"{finding.detail}\n`plan`, `apply` and `destroy` go on without it by {flag}")


def _owned_topics(entries: dict[str, Ledger], scope: ReadScope) -> set[str]:
    """Full names of the topics that our topologies own, or own a subscription of."""
    mine = [address for name, ledger in entries.items() if name in scope.names for address in ledger.owned]
    return {topic_of_address(address) for address in mine}


def _owned_by_others(entries: dict[str, Ledger], scope: ReadScope) -> dict[Address, str]:
    return {address: name for name, ledger in entries.items() if name not in scope.names for address in ledger.owned}


def list_topics(
    admin: Admin, namespace: NamespaceName, *, with_underscores: bool = False
) -> tuple[list[TopicName], list[TopicName]]:
    """Lists (partitioned, plain) topics of a namespace, each in order of their names. Topics whose name begins with
    `__` are left out; with `with_underscores` only Pulsar's system topics are. A partitioned topic counts as plain if a
    plain one has the same name, or if no request can contain its name, so that only the name can be read. A partition
    without its partitioned topic is a plain one. Raises ClusterError.
    """
    doing = f"listing topics of {namespace}"
    names = must(admin.call("GET", f"persistent/{namespace}/partitioned"), doing)
    partitioned = {TopicName.listed(name) for name in names}
    names = must(admin.call("GET", f"persistent/{namespace}"), doing)
    plain = {topic for topic in partitioned if _NUL in topic.local}
    for name in names:
        whole = whole_topic(name)
        if whole == name or TopicName.listed(whole) not in partitioned:
            plain.add(TopicName.listed(name))
    partitioned -= plain
    hidden = _is_system if with_underscores else _has_underscores
    return sorted(t for t in partitioned if not hidden(t)), sorted(t for t in plain if not hidden(t))


def _is_readable(topic: TopicName) -> bool:
    """False for plain topics that no file can declare because requests about them fail, or concern a partition."""
    return _NUL not in topic.local and whole_topic(topic.local) == topic.local


def _has_underscores(topic: TopicName) -> bool:
    return topic.local.startswith("__")


def _is_system(topic: TopicName) -> bool:
    """True for a topic that brokers make. Other names with underscores are of clients, such as `__consumer_offsets`."""
    return whole_topic(topic.local) in _SYSTEM or topic.local.endswith(_PENDING_ACK)


def _add_topic(reading: _Reading, found: TopicReading, policies: Policies, *, stalls: bool) -> None:
    resource: Resource = TopicResource(found.name, found.partitions, policies, found.missing)
    objects = [LiveObject(resource, found.marker, found.facts, stalls)]
    for subscription in found.subscriptions:
        sub = SubscriptionResource(found.name, subscription.name, missing_on=subscription.missing_on)
        objects.append(LiveObject(sub, subscription.marker, subscription.facts))
    _add(reading, objects)
