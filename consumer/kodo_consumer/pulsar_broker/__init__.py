"""The real broker behind the ports: the only part of the consumer that imports `pulsar` or speaks the admin API."""

from kodo_consumer.pulsar_broker.cluster import AdminCluster
from kodo_consumer.pulsar_broker.connection import PulsarBroker

__all__ = ["AdminCluster", "PulsarBroker"]
