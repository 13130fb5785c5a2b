"""Names of the properties that kodoctl, the consumer, recall and the pipeline put on messages and Pulsar objects.

One list for all of them. Workers and recalls pass unknown `kodo-` properties of a message on unchanged.
"""

from __future__ import annotations

from typing import Final

# --- on Pulsar objects (the admin side)
OWNER_PROPERTY: Final = "kodoctl"  # on topics, subscriptions, functions and packages: the topology that owns them
PACKAGE_PROPERTY: Final = "kodoctl-package"  # on functions, beside the owner: the package that was written last
SETTINGS_PROPERTY: Final = "kodoctl-settings"  # beside them: digest of the settings that were written last
DIGEST_PROPERTY: Final = (
    "kodoctl-sha256"  # on packages, beside the owner: digest of the content, once all of it is there
)
DECLARED_PROPERTY: Final = "kodoctl-declared"  # and by Pulsar's names what the key `settings` had then
LEDGER_PREFIX: Final = "kodoctl.topology/"  # on namespaces: the ownership ledger of one topology
CONTROL_NAMESPACE: Final = "kodoctl"  # lease and journal topics, UUID, index
UUID_PROPERTY: Final = "kodoctl.uuid"
INDEX_PREFIX: Final = "kodoctl.index/"  # on the control namespace: topology name -> its namespaces, as first written
PLACE_PREFIX: Final = "kodoctl.place/"  # on the control namespace: topology name/namespace, one property each
STEER_PROPERTY: Final = "kodo-steer"  # on subscriptions: live orders for workers, kept by plan
STEER_HISTORY_PROPERTY: Final = "kodo-steer-history"  # on subscriptions: the last orders that people gave and took back

# --- on messages
PREFIX: Final = "kodo-"
ID: Final = "kodo-id"  # identity for deduplication, stamped by a producer or an outbox row
MAX_ID: Final = 1_024  # characters of it: a longer one names nothing
SEQ: Final = "kodo-seq"  # producer run, partition and number, for gap detection
COVERED: Final = "kodo-covered"  # on marks of a source: FROM..TO, the log of its database of which all is stored
ROUTING: Final = "kodo-routing"  # on the same marks: hash of what decided topic and key, kodo_consumer.source.identity
ORIGIN_ID: Final = "kodo-origin-id"  # ledger:entry:partition:batch index of the first hop
ORIGIN_TOPIC: Final = "kodo-origin-topic"
ORIGIN_TIME: Final = "kodo-origin-time"  # publish time of the first hop, ms since the epoch
ATTEMPTS_RETRYING: Final = "kodo-attempts-retrying"
ATTEMPTS_PENDING: Final = "kodo-attempts-pending"
ATTEMPTS_BLOCKING: Final = "kodo-attempts-blocking"
ATTEMPTS_BACKUP: Final = "kodo-attempts-backup"
DUE: Final = "kodo-due"  # not before, ms since the epoch
RESERVED: Final = "kodo-reserved"  # the moment a limiter reserved, ms since the epoch: a refusal after it counts
REASON: Final = "kodo-reason"  # short, no secrets
POSTPONED_REASON: Final = "postponed"  # begins the reason of a message that a handler postponed: it did not fail
OVER_LIMIT_REASON: Final = "over its limit"  # of every message that waits elsewhere because of a limit
ERROR: Final = "kodo-error"  # redacted text of the error that its last failed run ended with
REDACTED: Final = "[redacted]"  # stands in these two for what was taken out
ERROR_STACK: Final = "kodo-error-stack"  # redacted end of that error's stack: module.function:line, the innermost last
MAX_ERROR: Final = 2_048  # bytes of each of the two
QUOTA: Final = "kodo-quota"  # a quota has counted this message: retries do not count again, a recall does
HOP: Final = "kodo-hop"  # number of moves so far
ROUTES: Final = "kodo-routes"  # how many of them a route made
POSTPONED: Final = "kodo-postponed"  # how many of them a handler asked for by postponing: no attempts
FOR: Final = "kodo-for"  # the one subscription a message on a ready topic is meant for
FROM_LEVEL: Final = "kodo-level"  # the level a dead letter died in: where recall sends it
PARENT: Final = "kodo-parent"  # origin id of the message whose handler transferred this one
RECALL: Final = "kodo-recall"  # recall id
AGAIN: Final = "kodo-again"  # that recall sent it though it may be done: handled once for each such recall
RELEASE: Final = "kodo-release"  # entry of the plan of `kodoctl waiting` that released or moved it
SCHEMA: Final = "kodo-schema"  # schema version the payload was written with
ENCRYPTION: Final = (
    "kodo-encryption"  # what the owner of an encrypted payload needs: kodoctl.pulsar.binary.message_decoding
)
ENCRYPTED: Final = "its payload is encrypted for somebody else"  # all that is wrong with it: it goes on as it is
SIGNATURE: Final = "kodo-signature"  # of all other headers, topic and payload: kodoctl.protocol.signing
TRACE_NAMES: Final = frozenset({"traceparent", "tracestate", "baggage"})
"""Properties that pass W3C trace contexts on. Any message may have them, also if the file does not declare them."""


def identity(given: str | None, origin: str | None, position: str) -> str:
    """Identity of a message, the same on all its hops: its property `kodo-id` (`given`), else `kodo-origin-id`
    (`origin`), else `position`, written `ledger:entry:partition:batch index`. A property that is missing (None), empty
    or longer than 1,024 characters (MAX_ID) is ignored; its signature is not checked here.
    """
    if given and len(given) <= MAX_ID:
        return given
    return origin if origin and len(origin) <= MAX_ID else position


def first_sent(origin_time: str | None, published: int) -> int:
    """Time in ms since the epoch when a message was first sent: its property `kodo-origin-time` (`origin_time`), else
    `published`, its publish time where it is stored now. A property that is no whole number above 0 of at most 15
    digits is ignored, and so is one that is later than `published`.
    """
    if not origin_time or not (origin_time.isascii() and origin_time.isdigit() and len(origin_time) <= 15):
        return published
    return min(int(origin_time) or published, published)
