"""Adapters of Pulsar: the only part of the consumer that imports `pulsar` or calls the admin API."""

from kodo_consumer.adapters.pulsar.cluster_admin import AdminCluster
from kodo_consumer.adapters.pulsar.pulsar_broker import PulsarBroker

__all__ = ["AdminCluster", "PulsarBroker"]
