"""The platform of several teams, grown with infrastructure code: every policy that a namespace can have, few of topics.

Facts from the resources and their members in streamnative/terraform-provider-pulsar (examples, docs) and
streamnative/pulsar-resources-operator (its pages of namespaces and of topics): quotas by size and by age, grants of
service accounts, anti-affinity, persistence, offload with credentials, schemas. Names and figures are invented.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pulsar

from tests.broker.estates.estate_builder import A_GRANT, A_SCHEMA, ITS_TOPIC, NOT_PERSISTENT, Estate, EstateBuilder
from tests.broker.policy_table import ROWS
from tests.brokers.broker import PULSAR

if TYPE_CHECKING:
    from pulsar import ConsumerType

_MINUTES_OF_A_DAY = 1440
_GIB = 1 << 30
_RATE = {
    "dispatchThrottlingRateInMsg": 50, "dispatchThrottlingRateInByte": 2048, "ratePeriodInSecond": 1,
    "relativeToPublishRate": False,
}  # fmt: skip
_ELSEWHERE = {"offload", "shadow_topics", "subscription_rates", "subscription_types"}  # they need other objects
_GROUP = "platform-tier-2"
_INVOICE = {"type": "record", "name": "Invoice", "fields": [{"name": "id", "type": "string"}]}
_INVOICE_2 = {
    **_INVOICE,
    "fields": [*_INVOICE["fields"], {"name": "note", "type": ["null", "string"], "default": None}],
}


_SPACES = ("payments", "ledger", "archive", "tiered", "events", "guests", "untouched")


def _namespaces(to: EstateBuilder) -> None:
    to.namespaces(*_SPACES, bundles=2)
    for space, time, size in (("payments", 7 * _MINUTES_OF_A_DAY, 20_480), ("ledger", -1, -1), ("events", 0, 0)):
        to.set_on_namespace(space, "retention", {"retentionTimeInMinutes": time, "retentionSizeInMB": size})
    quota = {
        "limitSize": 10 * _GIB,
        "limitTime": 3600,
        "policy": "producer_exception",
    }  # a quota by size has no use for the time
    to.set_on_namespace("payments", "backlogQuota", quota, backlogQuotaType="destination_storage")
    by_age = {"limitSize": -1, "limitTime": 86_400, "policy": "consumer_backlog_eviction"}
    to.set_on_namespace("payments", "backlogQuota", by_age, backlogQuotaType="message_age")
    bookies = {
        "bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1, "managedLedgerMaxMarkDeleteRate": 0.5,
    }  # fmt: skip
    to.set_on_namespace("payments", "persistence", bookies)
    to.set_on_namespace("payments", "schemaCompatibilityStrategy", "BACKWARD_TRANSITIVE", "PUT")
    to.set_on_namespace("payments", "isAllowAutoUpdateSchema", value=False)
    to.set_on_namespace("payments", "schemaValidationEnforced", value=True)
    to.set_on_namespace("payments", "antiAffinity", "payments-and-ledger")
    to.set_on_namespace("payments", "maxConsumersPerSubscription", 50)
    to.set_on_namespace("payments", "maxTopicsPerNamespace", 100)
    to.set_on_namespace("payments", "subscriptionDispatchRate", _RATE)
    to.set_on_namespace("payments", "property/cost-center/4711", None, "PUT")
    to.set_on_namespace("guests", "schemaAutoUpdateCompatibilityStrategy", "FullTransitive", "PUT")
    to.set_on_namespace("ledger", "antiAffinity", "payments-and-ledger")
    to.set_on_namespace("ledger", "deduplication", value=True)
    to.set_on_namespace("ledger", "encryptionRequired", value=True)
    to.set_on_namespace("ledger", "subscriptionAuthMode", "Prefix")
    to.set_on_namespace("ledger", "permissions/subscription/ledger-writer", ["ledger-writer"])
    to.set_on_namespace("ledger", "dispatcherPauseOnAckStatePersistent", None)
    to.send("PUT", f"resourcegroups/{_GROUP}", {"publishRateInMsgs": 100_000})
    to.set_on_namespace("ledger", f"resourcegroup/{_GROUP}", None)
    store = {
        "managedLedgerOffloadDriver": "aws-s3", "s3ManagedLedgerOffloadBucket": "cold", "s3ManagedLedgerOffloadRegion": "eu",
        "s3ManagedLedgerOffloadCredentialId": "key", "s3ManagedLedgerOffloadCredentialSecret": "secret",
        "managedLedgerOffloadThresholdInBytes": _GIB, "managedLedgerOffloadDeletionLagInMillis": 300_000,
    }  # fmt: skip
    to.set_on_namespace("tiered", "offloadPolicies", store)  # no topic loads with a driver that is not installed
    to.set_on_namespace("archive", "offloadThreshold", 50 * _GIB, "PUT")
    to.set_on_namespace("archive", "persistence/bookieAffinity", {"bookkeeperAffinityGroupPrimary": "slow"})
    to.set_on_namespace("archive", "compactionThreshold", 0, "PUT")
    to.set_on_namespace("archive", "autoTopicCreation", {"allowAutoTopicCreation": False})
    made = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}
    to.set_on_namespace("events", "autoTopicCreation", made)
    to.set_on_namespace("events", "inactiveTopicPolicies", {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions", "maxInactiveDurationSeconds": 604_800,
        "deleteWhileInactive": True,
    })  # fmt: skip
    to.set_on_namespace("events", "messageTTL", 0)
    to.set_on_namespace("events", "replicatorDispatchRate", _RATE)
    to.set_on_namespace("events", "subscribeRate", {"subscribeThrottlingRatePerConsumer": 10, "ratePeriodInSecond": 30})


def _grants(to: EstateBuilder) -> None:
    to.grant("payments", "payments-api@example.org", "produce", "consume")
    to.grant("payments", "auditors", "consume")
    to.grant("guests", "partner:acme", "consume")
    to.grant("guests", "stream ops", "produce", "consume", "functions", "sources", "sinks", "packages")
    to.grant("events/clicks", "web", "produce")
    to.grant("events/clicks", "lab", "consume")
    to.grant("events/page-views", "web", "produce")
    to.grant("events/spare-partition-0", "lab", "consume")
    to.grant("events/live-clicks", "lab", "consume", domain="non-persistent")


def _topics(to: EstateBuilder) -> None:
    to.topics("payments", {"invoices": 3, "payouts": 2, "chargebacks": 1})
    to.topics("ledger", {"postings": 2, "balances": 1})
    to.topics("archive", {"everything": 2})
    to.topics("events", {"clicks": 3, "page-views": 0, "spare": 2})
    to.topics("events", {"live-clicks": 2, "cursor": 0}, "non-persistent")
    for row in ROWS:
        is_known = PULSAR >= (4, 2) or row.name != "subscription_expiry"
        if row.topic and is_known and row.name not in _ELSEWHERE:
            method, setting, value, query = row.request("topic")
            to.set_on_topic("archive/everything", setting, value, method, **query)
    to.set_on_topic(
        "events/clicks", "retention", {"retentionTimeInMinutes": 60, "retentionSizeInMB": 10}, isGlobal="true"
    )
    to.set_on_topic("events/clicks", "replication", [to.cluster])
    to.set_on_topic("events/clicks", "web%20hook/dispatchRate", _RATE)
    to.set_on_topic("events/spare", "properties", {"owner": "nobody", "ticket": "OPS-1"}, "PUT")
    to.set_on_topic("events/page-views", "properties", {"owner": "web"}, "PUT")
    to.set_on_topic("ledger/balances", "compactionThreshold", 1_048_576)
    to.set_on_topic("ledger/balances", "autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False})


def _subscriptions(to: EstateBuilder) -> None:
    types: list[tuple[str, str, ConsumerType]] = [
        ("payments/payouts", "bank", pulsar.ConsumerType.Exclusive),
        ("payments/payouts", "risk", pulsar.ConsumerType.Failover),
        ("events/spare", "counter", pulsar.ConsumerType.Shared),
        ("events/clicks", "by-user", pulsar.ConsumerType.KeyShared),
    ]
    with to.client() as client:
        producer = client.create_producer(to.full("events/spare"))
        for number in range(20):
            producer.send(b"{}", partition_key=str(number))
        for topic, name, kind in types:
            consumer = client.subscribe(to.full(topic), name, kind, initial_position=pulsar.InitialPosition.Earliest)
            if name == "counter":
                for _ in range(7):
                    consumer.acknowledge(consumer.receive(10_000))
            consumer.close()
    to.set_on_subscription("payments/payouts", "risk", "properties", {"team": "risk"}, method="PUT")
    to.subscribe("payments/invoices", "printer")
    to.subscribe("ledger/postings", "ledger-writer", "ledger-writer-shadow")
    to.subscribe("events/clicks", "mirror")
    to.set_on_subscription("events/clicks", "mirror", "replicatedSubscriptionStatus", value=True, method="POST")
    to.subscribe("events/page-views", f"{to.tenant}/events/enricher", "tail")


def _schemas(to: EstateBuilder) -> None:
    to.schema("payments/invoices", "AVRO", json.dumps(_INVOICE))
    to.schema("payments/invoices", "AVRO", json.dumps(_INVOICE_2))
    to.schema("payments/payouts", "JSON", json.dumps(_INVOICE))
    to.schema("payments/chargebacks", "STRING")


def build(to: EstateBuilder) -> None:
    """Makes the platform."""
    _namespaces(to)
    _topics(to)
    _subscriptions(to)
    _schemas(to)
    _grants(to)


PLATFORM_TEAM = Estate(
    build,
    adopted=28,
    left_out={
        "grant.non-events/live-clicks/lab": ITS_TOPIC,
        "grant.events/clicks/lab": A_GRANT,
        "grant.events/spare-partition-0/lab": A_GRANT,
        **{f"namespace.{space} bundles": "2: brokers split them, " for space in _SPACES},
        "namespace.guests schema_auto_update_compatibility_strategy": "set to FullTransitive; ",
        "namespace.archive offload": 'the format cannot express its value {"after_size": 53687091200}',
        "namespace.tiered offload": 'the format cannot express its value {"after_size": 1073741824, "delete_after": 300000, ',
        "schema.payments/chargebacks": A_SCHEMA.format("STRING"),
        "schema.payments/invoices": A_SCHEMA.format("AVRO"),
        "schema.payments/payouts": A_SCHEMA.format("JSON"),
        "subscription.events/clicks/mirror replicated": "its position is replicated to other clusters; ",
        "subscription.events/page-views/events/enricher": "its name: it holds '/': ",
        "subscription.payments/payouts/risk properties": 'set to {"team": "risk"}; ',
        "topic.non-events/cursor": NOT_PERSISTENT,
        "topic.non-events/live-clicks": NOT_PERSISTENT,
        "topic.events/clicks retention for all clusters": 'set to {"retentionSizeInMB": 10, "retentionTimeInMinutes": 60}; ',
        "topic.events/page-views properties": 'set to {"owner": "web"}; ',
        "topic.events/spare properties": 'set to {"owner": "nobody", "ticket": "OPS-1"}; ',
    },
)
