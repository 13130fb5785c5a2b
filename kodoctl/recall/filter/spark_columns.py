"""The facts of a message (kodoctl.recall.filter.fields) as Spark SQL over a stored message's columns. Pure: texts
only.

The columns are those that the Pulsar source gives (kodoctl.pipeline.ingest.tables.MESSAGES). An ordering key is none
of them.
"""

from __future__ import annotations

from typing import Final

from kodoctl.protocol import properties
from kodoctl.protocol.error_causes import MAX_CAUSE, REPLACEMENTS
from kodoctl.recall.filter.spark_sql import ended, quoted
from kodoctl.recall.stored_message import ATTEMPTS, MAX_NUMBER, NOBODY
from kodoctl.topology.model.topology import KEY

ABSENT: Final = frozenset({"ordering_key"})
_EPOCH: Final = "timestamp_millis(0)"


def fact_columns(fair_by: str | None) -> dict[str, str]:
    """Fact -> expression, and `properties`; `fair_by` names the property (or the key) that tells the tenant."""
    position = "concat_ws(':', `ledger`, `entry`, greatest(`partition`, 0), `batch_index`)"
    published = f"nullif(`publish_ts`, {_EPOCH})"
    return {
        "id": f"coalesce({_naming(properties.ID)}, {_naming(properties.ORIGIN_ID)}, {position})",
        "position": position,
        "topic": "`topic`",
        "partition": "CAST(greatest(`partition`, 0) AS DOUBLE)",
        "key": "nullif(`key`, '')",
        "tenant": _tenant(fair_by),
        "reason": _text(properties.REASON),
        "error": _text(properties.ERROR),
        "error_stack": _text(properties.ERROR_STACK),
        "cause": cause_column(_text(properties.REASON), _text(properties.ERROR)),
        "level": _text(properties.FROM_LEVEL),
        "attempts": "(" + " + ".join(map(_count, ATTEMPTS)) + ")",
        "attempts_retrying": _count(properties.ATTEMPTS_RETRYING),
        "attempts_pending": _count(properties.ATTEMPTS_PENDING),
        "attempts_blocking": _count(properties.ATTEMPTS_BLOCKING),
        "attempts_backup": _count(properties.ATTEMPTS_BACKUP),
        "hops": _count(properties.HOP),
        "recall": _text(properties.RECALL),
        "origin_id": _text(properties.ORIGIN_ID),
        "origin_topic": _text(properties.ORIGIN_TOPIC),
        "dead_at": published,
        "published_at": f"coalesce(nullif({_moment(properties.ORIGIN_TIME)}, {_EPOCH}), {published})",
        "event_at": f"nullif(`event_ts`, {_EPOCH})",
        "due_at": _moment(properties.DUE),
        "payload": "try_validate_utf8(CAST(`payload` AS STRING))",
        "payload_size": "CAST(length(`payload`) AS DOUBLE)",
        "properties": "`properties`",
    }


def _text(name: str) -> str:
    return f"`properties`[{quoted(name)}]"


def _filled(name: str) -> str:
    return f"nullif({_text(name)}, '')"


def cause_column(reason: str, error: str) -> str:
    """Expression of the cause of two expressions, as kodoctl.protocol.error_causes has it; concat_ws leaves out what is
    NULL.
    """
    text = f"concat_ws(': ', nullif({reason}, ''), nullif({error}, ''))"
    for pattern, instead in REPLACEMENTS:
        text = f"regexp_replace({text}, {quoted(pattern)}, {quoted(instead)})"
    return f"nullif(left({text}, {MAX_CAUSE}), '')"


def _naming(name: str) -> str:
    """As kodoctl.protocol.properties.identity has it."""
    return f"(CASE WHEN length({_text(name)}) BETWEEN 1 AND {properties.MAX_ID} THEN {_text(name)} END)"


def _number(name: str) -> str:
    """As Letter.number reads it."""
    text = _text(name)
    digits = f"{text} RLIKE {quoted(ended('^[0-9]{1,18}$'))}"
    return f"(CASE WHEN {digits} AND try_cast({text} AS BIGINT) <= {MAX_NUMBER} THEN try_cast({text} AS BIGINT) END)"


def _count(name: str) -> str:
    return f"coalesce(CAST({_number(name)} AS DOUBLE), 0D)"


def _moment(name: str) -> str:
    return f"timestamp_millis({_number(name)})"


def _tenant(fair_by: str | None) -> str:
    if fair_by is None:
        return quoted(NOBODY)
    value = "nullif(`key`, '')" if fair_by == KEY else _filled(fair_by)
    return f"coalesce({value}, {quoted(NOBODY)})"
