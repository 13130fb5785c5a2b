"""Options of the source: everything that is wrong at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kodoctl.errors import UsageError
from kodoctl.pipeline.source.options import addressed, read_options, unknown
from kodoctl.pulsar.access import OAuth2, Secret, Tls
from kodoctl.pulsar.connection import Connection

GOOD = {"topic": "a/b/c", "adminUrl": "http://h:8080/", "serviceUrl": "pulsar://h:6650"}


def test_what_nobody_said_has_defaults() -> None:
    found = read_options(GOOD, 3)
    assert [one.full for one in found.topics] == ["persistent://a/b/c"]
    assert (found.cores, found.splits, found.max_bytes, found.payload, found.strict) == (3, None, None, True, True)
    assert (found.connection.admin_url, found.connection.broker_url, found.connection.token) == (
        "http://h:8080", "pulsar://h:6650", None,
    )  # fmt: skip


def test_every_option_counts(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n", encoding="utf-8")
    found = read_options(
        GOOD
        | {
            "topics": "persistent://a/b/c-partition-3, a/b/d,a/b/c",
            "tokenFile": str(tmp_path / "token"),
            "payload": "False",
            "cores": "4",
            "splits": "2",
            "maxBytesPerTrigger": "10m",
            "rowsPerBatch": "7",
            "timeoutMs": "8",
            "publishTimeSkewMs": "0",
            "coverage": "/tmp/c",
            "failOnDataLoss": "false",
        },
        1,
    )
    assert [one.local for one in found.topics] == ["c", "d"]
    assert found.connection.token is not None
    assert found.connection.token.reveal() == "abc"
    assert (found.payload, found.cores, found.splits, found.max_bytes) == (False, 4, 2, 10 * 1024 * 1024)
    assert (found.rows, found.timeout, found.skew, found.coverage, found.strict) == (7, 8, 0, "/tmp/c", False)
    assert read_options(GOOD | {"maxBytesPerTrigger": "512"}, 1).max_bytes == 512
    assert read_options(GOOD | {"maxBytesPerTrigger": "1gb"}, 1).max_bytes == 1024**3


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    wrong = {
        "topic": "nonsense",
        "payload": "perhaps",
        "splits": "0",
        "maxBytesPerTrigger": "lots",
        "publishTimeSkewMs": "-1",
        "tokenFile": str(tmp_path / "none"),
    }
    with pytest.raises(UsageError) as caught:
        read_options(wrong, 1)
    told = str(caught.value)
    for name in (*wrong, "adminUrl"):
        assert name in told
    assert "is not a topic: write persistent://TENANT/NAMESPACE/TOPIC" in told
    with pytest.raises(UsageError, match="name `topic`"):
        read_options({name: GOOD[name] for name in ("adminUrl", "serviceUrl")}, 1)


def test_strange_names_are_known() -> None:
    assert unknown({"TOPIC": "x", "path": "", "colour": "red"}) == ["colour"]
    with pytest.raises(UsageError, match="no such option: colour"):
        read_options(GOOD | {"colour": "red"}, 1)


def test_access_that_tasks_could_not_be_given_is_refused_not_dropped() -> None:
    token = Connection("http://h:8080", "pulsar://h:6650", Secret("t"))
    assert addressed(token) == {"adminUrl": "http://h:8080", "serviceUrl": "pulsar://h:6650", "token": "t"}
    for other in ({"tls": Tls(ca=Path("ca.pem"))}, {"oauth2": OAuth2("https://i", "me", Secret("s"))}):
        with pytest.raises(UsageError, match="the pipeline shows tokens only"):
            addressed(replace(token, **other))
