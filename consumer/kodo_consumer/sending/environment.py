"""Environment of a process: its variables, contexts and working folder, with options that take precedence.

It is read once, here; the results are a topology, a connection and the real broker.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, Unpack, cast

from kodo_consumer.core.checks.message_validation import MessageValidator, validator_of
from kodo_consumer.core.payloads.schema_versions import SchemaVersions
from kodo_consumer.core.values.envelope import State
from kodoctl.errors import ClusterError, Diagnostic, UsageError, error
from kodoctl.host.host_facts import working_folder
from kodoctl.pulsar.connection.client_options import knock
from kodoctl.pulsar.connection.connection import Connection, Flags, connect, read_contexts, readable

if TYPE_CHECKING:
    from kodo_consumer.adapters.pulsar import AdminCluster, PulsarBroker
    from kodo_consumer.adapters.pulsar.schema_passthrough import SchemaTopics
    from kodo_consumer.core.values.policy import Policy
    from kodo_consumer.core.values.send_target import SendTarget
    from kodoctl.topology.loaded_topology import LoadedTopology


log = logging.getLogger("kodo.consumer")


class ConnectionOptions(TypedDict, total=False):
    """Choice of the cluster, and of the environment in the file (`env`), as on kodoctl's command line. `environ`
    replaces the environment variables of this process. Missing or None: not given.
    """

    env: str | None
    context: str | None
    admin_url: str | None
    broker_url: str | None
    token_file: str | None
    tls_cert: str | None
    tls_key: str | None
    tls_ca: str | None
    environ: Mapping[str, str] | None


_OPTIONS: Final = "_KODO_PROGRAM_OPTIONS"
"""Variable with the options of `options_of_program`, for processes that import the program anew."""
_CLUSTER: Final = frozenset({"context", "admin_url", "broker_url", "token_file", "tls_cert", "tls_key", "tls_ca"})


@contextmanager
def options_of_program(place: ConnectionOptions) -> Iterator[None]:
    """Context in which all consumers, producers and relays of this process, and of those that it starts, are loaded
    with the options of `place` (without `environ`), as a command line gives them for the program that it runs. Keeps
    them in an environment variable of the process meanwhile. For one thread at a time.
    """
    before = os.environ.get(_OPTIONS)
    os.environ[_OPTIONS] = json.dumps({name: value for name, value in place.items() if isinstance(value, str)})
    try:
        yield
    finally:
        del os.environ[_OPTIONS]
        if before is not None:
            os.environ[_OPTIONS] = before


def _with_options_of_program(place: ConnectionOptions) -> ConnectionOptions:
    """`place` with the options of the program. Raises UsageError if both choose a cluster and its credentials, or an
    environment, and differ: a token must not go to an address that is not its own.
    """
    given = {name: value for name, value in place.items() if value is not None}
    outer = _options_of_program()
    findings = []
    for group in (_CLUSTER, frozenset({"env"})):
        own, others = ({name: str(one[name]) for name in sorted(group & one.keys())} for one in (given, outer))
        if own and others and own != others:
            detail = f"the program loads with {_listed(own)}, the command line names {_listed(others)}: leave one"
            findings.append(error("K759", "options do not match", detail))
    if findings:
        raise UsageError(*findings)
    return cast("ConnectionOptions", outer | given)


def _options_of_program() -> dict[str, str]:
    try:
        options = json.loads(os.environ.get(_OPTIONS, "{}"))
    except ValueError:  # somebody else's
        return {}
    return options if isinstance(options, dict) else {}


def _listed(options: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value!r}" for name, value in options.items())


def reach(connection: Connection, policy: Policy, *, native: bool = True) -> tuple[PulsarBroker, AdminCluster]:
    """Returns the broker, connected, and its admin API, which connects with its first request. `native`: false: the
    native border (C++ module for bundles of messages) is not used. Raises ClusterError if there is no address of the
    binary port, or if no broker answers.
    """
    from kodo_consumer.adapters.pulsar import AdminCluster, PulsarBroker

    knock(connection)
    cluster = AdminCluster(connection)
    try:
        return PulsarBroker(
            connection,
            by_key=policy.by_key,
            outlets=_outlets(policy, cluster),
            largest=policy.largest,
            compression=policy.compression,
            native=native,
        ), cluster
    except BaseException:
        cluster.close()
        raise


def reach_send_target(
    connection: Connection, send_target: SendTarget, *, native: bool = True
) -> tuple[PulsarBroker, MessageValidator]:
    """Connects to the broker for a producer of one topic. Returns the broker and the validator of messages, whose
    limits on sizes and delays are the smaller ones of file and broker; those of the broker are left out if they cannot
    be read. Raises ClusterError.
    """
    from kodo_consumer.adapters.pulsar import PulsarBroker
    from kodo_consumer.adapters.pulsar.cluster_admin import limits_now
    from kodo_consumer.adapters.pulsar.schema_passthrough import SchemaTopics

    knock(connection)
    topic, outlets = send_target.topic, None
    if send_target.payload_type == "avro" and send_target.schema is not None:
        outlets = SchemaTopics(frozenset(), {topic: send_target.schema}, lambda _: None)
    largest_now, delays = limits_now(connection, topic)
    limits = [size for size in (send_target.largest.get(topic), largest_now) if size]
    largest = {topic: min(limits)} if limits else {}
    by_key, ordered = ({topic} if kept else () for kept in (send_target.by_key, send_target.ordered))
    form = validator_of(send_target, int(min(limits, default=0)), delays)
    broker = PulsarBroker(
        connection,
        by_key=by_key,
        ordered=ordered,
        outlets=outlets,
        largest=largest,
        compression={topic: send_target.compression} if send_target.compression else {},
        native=native,
    )
    return broker, form


def _outlets(policy: Policy, cluster: AdminCluster) -> SchemaTopics | None:
    """Topics whose messages are published with a schema: ready topics of Avro ground topics, of this one and of those
    in `produces`. None: there are none.
    """
    from kodo_consumer.adapters.pulsar.schema_passthrough import SchemaTopics

    ready = frozenset[str]()
    declared = dict(policy.produced_schemas)
    if policy.payload_type == "avro" and policy.payload_schema is not None:
        ready = frozenset(target.topic for target in policy.targets.values() if target.state is State.READY)
        declared |= dict.fromkeys(ready, policy.payload_schema)
    return SchemaTopics(ready, declared, SchemaVersions(policy, cluster).definition) if declared else None


def _forbidden_type(policy: Policy, topic: str, cluster: AdminCluster) -> Iterator[Diagnostic]:
    allowed = cluster.subscription_types(topic)
    if allowed and policy.subscription_type not in allowed:
        detail = (
            f"{policy.subscription} on {topic} is {policy.subscription_type}, and topic or namespace allow"
            f" {', '.join(sorted(allowed))} (`subscriptionTypesEnabled`)"
        )
        yield error("K713", "cannot subscribe", detail)


@dataclass(frozen=True, slots=True)
class Environment:
    """Environment variables, working folder and explicit options of a process. `flags`: options that choose cluster and
    credentials; `env`: the environment in the topology file that an option names; None: no option names one, and
    `topology` takes that of KODOCTL_ENV or of the context.
    """

    environ: Mapping[str, str]
    folder: Path
    flags: Flags
    env: str | None

    @classmethod
    def of(cls, **place: Unpack[ConnectionOptions]) -> Environment:
        """Returns the environment of this process. Options in `place` come first, then those of `options_of_program`,
        then the environment variables. Raises UsageError if `place` and `options_of_program` both choose a cluster with
        its credentials, or both an environment, and differ.
        """
        place = _with_options_of_program(place)
        environ = place.get("environ")
        flags = Flags(**{one.name: place.get(one.name) for one in fields(Flags)})  # type: ignore[arg-type]
        return cls(os.environ if environ is None else environ, working_folder(), flags, place.get("env"))

    def topology(self, path: str | Path) -> LoadedTopology:
        """Loads the topology file in the named environment, else in that of KODOCTL_ENV, else in that of the context.
        Raises KodoctlError.
        """
        from kodo_consumer.policy_builder import load

        return load(str(path), self.env or self.environ.get("KODOCTL_ENV") or self._context_env())

    def connection(self) -> Connection:
        """Returns the addresses and credentials of the cluster; nothing connects yet. Logs a warning if a token would
        go over a network without TLS. Raises UsageError if neither options, variables nor a context name a cluster,
        KodoctlError for faulty settings, also of contexts and credentials.
        """
        found = connect(self.flags, self.environ, self.folder)
        if warning := readable(found):
            log.warning("%s [%s]: %s", warning.summary, warning.code, warning.detail)
        return found

    def reach(self, policy: Policy, native: bool) -> tuple[PulsarBroker, AdminCluster]:  # noqa: FBT001
        """Connects for a worker of this policy, as the function `reach` does with `connection`; raises as both do."""
        return reach(self.connection(), policy, native=native)

    def start_findings(self, policy: Policy, native: bool) -> list[Diagnostic]:  # noqa: FBT001
        """Findings that a start would fail with, although all topics and subscriptions exist: forbidden types of
        subscriptions, and topics whose producer the broker refuses. Connects, and opens and closes each producer as a
        worker opens it, which shows missing rights, schemas, encryption, terminated topics and limits on producers;
        nothing is sent. Raises ClusterError if the binary port or the admin API does not answer.
        """
        broker, cluster = self.reach(policy, native)
        with closing(cluster), closing(broker):
            found = [finding for lane in policy.lanes for finding in _forbidden_type(policy, lane.topic, cluster)]
            for topic in sorted(policy.written_topics):
                try:
                    broker.publisher([topic], lambda _: None, policy.largest, moves=True).close()
                except ClusterError as problem:
                    found += problem.diagnostics
        return found

    def _context_env(self) -> str | None:
        contexts = read_contexts(self.environ, self.folder)
        named_by_address = self.flags.admin_url or self.environ.get("KODOCTL_ADMIN_URL")
        name = self.flags.context or (None if named_by_address else contexts.current)
        return contexts.get(name).env if name else None
