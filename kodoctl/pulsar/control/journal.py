"""Reader of a namespace's journal of applies, whose entries are in the namespace's lease topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.control.control_namespace import control_namespace, lease_topic

if TYPE_CHECKING:
    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.pulsar.binary.client import BrokerClient
    from kodoctl.topology.names import NamespaceName

_READ_S: Final = 15.0


def read_journal(admin: Admin, client: BrokerClient, namespace: NamespaceName) -> Iterator[bytes]:
    """Yields the bytes of each entry of the lease topic, oldest first, including heartbeats of leases; nothing if there
    was no apply in the namespace yet. Applies without the binary port leave no entries. Raises ClusterError, at the
    iteration, also if the connection has no binary port.
    """
    import pulsar

    topic = lease_topic(namespace)
    local = quote(topic.rpartition("/")[2], safe="")
    if admin.call("GET", f"persistent/{control_namespace(namespace.tenant)}/{local}/stats").missing:
        return  # a reader would have it created where that is automatic
    try:
        with client.reader(topic, pulsar.MessageId.earliest, f"the journal of {namespace}") as reader:
            while (found := reader.take(_READ_S)) is not None:
                if not found:
                    detail = f"{topic}: no entry came within {_READ_S:.0f} s, though there are more"
                    raise ClusterError(error("K561", "messages cannot be read", detail))
                yield from (message.data() for message in found)
    except pulsar.PulsarException as problem:
        raise ClusterError(error("K561", "messages cannot be read", f"{topic}: {problem}")) from None
