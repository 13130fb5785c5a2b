"""A web shop with Java services, whose clients made retry and dead letter topics, each release in its own way.

Facts from apache/pulsar#22705, #19841 and #18149 and apache/pulsar-client-go#891: `TOPIC-SUBSCRIPTION-RETRY` and `-DLQ` as
plain topics, as partitioned ones, and after the name of a partition. Names are invented.
"""

from __future__ import annotations

from datetime import timedelta

import pulsar
from pulsar import ConsumerType

from tests.broker.estates.estate_builder import ITS_TOPIC, JAVAS_RETRY, NO_FAMILY, Estate, EstateBuilder

_TOPICS = {
    "orders": {
        "created": 4, "paid": 2, "cart": 3, "created-billing-DLQ": 1, "created-billing-RETRY": 0, "created-warehouse-RETRY": 0,
        "created-warehouse-DLQ": 0, "legacy": 0, "test": 0, "export.tmp": 0,
        **{f"cart-partition-{number}-recommender-DLQ": 0 for number in range(3)},
    },
    "payments": {
        "requested": 2, "events": 4, "refund.v1": 2, "events-ledger-DLQ": 1, "events-ledger-RETRY": 4, "requested-psp-RETRY": 2,
        "requested-psp-DLQ": 0, "dlq-payments": 0, "retry_payments": 0,
    },
    "fulfilment": {"planned": 2, "reserved": 2, "planned-carrier-RETRY": 0, "planned-carrier-DLQ": 0},
    "notifications": {"mail-out": 3, "push-out": 3, "mail-out-mailer-DLQ": 0},
}  # fmt: skip
_READERS = (
    ("orders/created", "billing", ConsumerType.Shared), ("orders/created", "warehouse", ConsumerType.KeyShared),
    ("orders/created", "fraud-check", ConsumerType.Failover), ("orders/created", "export", ConsumerType.Exclusive),
    ("orders/cart", "recommender", ConsumerType.KeyShared), ("orders/created-billing-RETRY", "billing", ConsumerType.Shared),
    ("orders/created-billing-DLQ", "dlq-inspector", ConsumerType.Shared), ("orders/legacy", "nightly job", ConsumerType.Exclusive),
    ("payments/requested", "psp", ConsumerType.Shared), ("payments/events", "ledger", ConsumerType.Failover),
    ("payments/events-ledger-RETRY", "ledger", ConsumerType.Shared), ("payments/dlq-payments", "ops", ConsumerType.Shared),
    ("fulfilment/planned", "carrier", ConsumerType.KeyShared), ("fulfilment/reserved", "shop/front", ConsumerType.Shared),
    ("fulfilment/reserved", "reporting-RETRY", ConsumerType.Shared), ("notifications/mail-out", "mailer", ConsumerType.Shared),
    ("notifications/push-out", "pusher", ConsumerType.Shared), ("notifications/push-out", "pusher-blue", ConsumerType.Shared),
)  # fmt: skip


def build(to: EstateBuilder) -> None:
    """Makes the shop."""
    to.namespaces(*_TOPICS)
    for space, topics in _TOPICS.items():
        to.topics(space, topics)
        to.set_on_namespace(space, "retention", {"retentionTimeInMinutes": 4320, "retentionSizeInMB": 10_240})
    with to.client() as client:
        for topic, name, kind in _READERS:
            client.subscribe(to.full(topic), name, kind, initial_position=pulsar.InitialPosition.Earliest).close()
        for topic, delay in (("notifications/mail-out", timedelta(hours=1)), ("orders/created-warehouse-DLQ", None)):
            producer = client.create_producer(to.full(topic))
            for number in range(5):
                producer.send(b"{}", {"RECONSUMETIMES": "17"}, partition_key=str(number), deliver_after=delay)
            producer.close()
    to.set_on_namespace("notifications", "messageTTL", 86_400)
    to.set_on_namespace(
        "notifications", "delayedDelivery", {"tickTime": 1000, "active": True, "maxDeliveryDelayInMillis": 604_800_000}
    )
    to.set_on_namespace("payments", "deduplication", value=True)
    to.set_on_namespace("payments", "subscriptionTypesEnabled", ["Shared", "Failover"])
    to.set_on_topic("orders/created", "maxUnackedMessagesOnConsumer", 2000)
    to.set_on_topic("orders/created-billing-DLQ", "retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
    delays = {"tickTime": 5000, "active": True, "maxDeliveryDelayInMillis": 0}
    to.set_on_topic("notifications/mail-out", "delayedDelivery", delays)


WEB_SHOP = Estate(
    build,
    adopted=42,
    created=5,
    left_out={
        "subscription.fulfilment/reserved/shop/front": "its name: it holds '/': ",
        "subscription.notifications/mail-out/mailer": ITS_TOPIC,
        "subscription.orders/created-billing-DLQ/dlq-inspector": "it reads a -DLQ topic; ",
        "subscription.orders/legacy/nightly job": "its name: it holds ' ': ",
        "topic.notifications/mail-out": "it has a delayed-delivery policy of its own, ",
        "topic.notifications/mail-out-mailer-DLQ": (
            "it ends in -DLQ and does not fit a family: it is of the family of mail-out, which is not in this file"
        ),
        **{f"topic.orders/cart-partition-{number}-recommender-DLQ": NO_FAMILY.format("-DLQ") for number in range(3)},
        "topic.fulfilment/planned-carrier-RETRY as a retry topic": JAVAS_RETRY,
        "topic.orders/created-billing-RETRY as a retry topic": JAVAS_RETRY,
        "topic.orders/created-warehouse-RETRY as a retry topic": JAVAS_RETRY,
        "topic.payments/events-ledger-RETRY as a retry topic": JAVAS_RETRY,
        "topic.payments/requested-psp-RETRY as a retry topic": JAVAS_RETRY,
    },
)
