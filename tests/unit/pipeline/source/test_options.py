"""Options of the source: everything that is wrong at once."""

from __future__ import annotations

import pickle
from copy import deepcopy
from pathlib import Path

import pytest
from kodo_pipeline.source.options import connection_options, read_options, unknown

from kodoctl.errors import UsageError
from kodoctl.pulsar.connection.connection import Connection, Flags, connect
from kodoctl.pulsar.connection.secret import Secret
from tests.brokers.authentication import make_certificates

GOOD = {"topic": "a/b/c", "adminUrl": "http://h:8080/", "serviceUrl": "pulsar://h:6650"}


def test_what_nobody_said_has_defaults() -> None:
    found = read_options(GOOD, 3)
    assert [one.full for one in found.topics] == ["persistent://a/b/c"]
    assert (found.cores, found.splits, found.max_bytes, found.payload, found.strict) == (3, None, None, True, True)
    assert (found.connection.admin_url, found.connection.broker_url, found.connection.token) == (
        "http://h:8080", "pulsar://h:6650", None,
    )  # fmt: skip


def test_several_brokers_are_given_with_commas_and_what_is_no_address_is_told() -> None:
    lists = {"adminUrl": "http://a:8080,http://b:8080", "serviceUrl": "pulsar://a:6650,pulsar://b:6650"}
    found = read_options(GOOD | lists, 1).connection
    assert (found.admin_urls, found.broker_url) == (("http://a:8080", "http://b:8080"), "pulsar://a:6650,b:6650")
    assert read_options(GOOD | connection_options(found), 1).connection == found
    with pytest.raises(UsageError) as caught:
        read_options(GOOD | {"adminUrl": "h:8080", "serviceUrl": "http://h:6650"}, 1)
    assert [one.code for one in caught.value.diagnostics] == ["K505", "K505"]
    assert [one.detail.partition(":")[0] for one in caught.value.diagnostics] == ["adminUrl", "serviceUrl"]


def test_every_option_counts(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n", encoding="utf-8")
    found = read_options(
        {name: value for name, value in GOOD.items() if name != "topic"}
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
        "timeoutMs": str(2**31),
        "rowsPerBatch": "9" * 30,
        "tokenFile": str(tmp_path / "none"),
    }
    with pytest.raises(UsageError) as caught:
        read_options(wrong, 1)
    told = str(caught.value)
    for name in (*(name for name in wrong if name != "tokenFile"), "adminUrl", wrong["tokenFile"]):
        assert name in told
    assert "is not a topic: write persistent://TENANT/NAMESPACE/TOPIC" in told
    with pytest.raises(UsageError, match="give `topic` or `topics`, not both"):
        read_options(GOOD | {"topic": "a/b/c", "topics": "a/b/d"}, 1)
    with pytest.raises(UsageError, match="name `topic`"):
        read_options({name: GOOD[name] for name in ("adminUrl", "serviceUrl")}, 1)


def test_strange_names_are_known() -> None:
    assert unknown({"TOPIC": "x", "path": "", "colour": "red"}) == ["colour"]
    with pytest.raises(UsageError, match="no such option: colour"):
        read_options(GOOD | {"colour": "red"}, 1)
    with pytest.raises(UsageError, match=r"(?s)no such option: topc.*name `topic`.*adminUrl"):
        read_options({"topc": "a/b/c"}, 1)


def test_secrets_go_to_tasks_by_the_name_of_their_place_and_come_back_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, tls = tmp_path / "t", {"KODOCTL_TLS_CA": str(make_certificates(tmp_path / "tls", "broker") / "ca.pem")}
    file.write_text("canary-1\n", encoding="utf-8")
    client = {"KODOCTL_OAUTH2_ISSUER": "https://i.example.org", "KODOCTL_OAUTH2_CLIENT_ID": "me"}
    for environ in (
        {},
        tls,
        {"KODOCTL_TOKEN_FILE": str(file)},
        {"KODOCTL_TOKEN": "canary-2"},
        client | tls | {"KODOCTL_OAUTH2_CLIENT_SECRET": "canary-3", "KODOCTL_OAUTH2_AUDIENCE": "a"},
        client | {"KODOCTL_OAUTH2_CLIENT_SECRET_FILE": str(file), "KODOCTL_OAUTH2_SCOPE": "b c"},
    ):
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        connection = connect(Flags(admin_url="http://h:8080", broker_url="pulsar://h:6650"), environ, tmp_path)
        told = connection_options(connection)
        assert "canary" not in str(told)
        assert b"canary" not in pickle.dumps(connection)
        assert pickle.loads(pickle.dumps(connection)) == connection
        assert read_options(told | {"topic": "a/b/c"}, 1).connection == connection
        assert deepcopy(connection.token) is connection.token


def test_access_that_tasks_cannot_have_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="in no file and no variable"):
        connection_options(Connection("http://h:8080", "pulsar://h:6650", Secret("canary")))
    plain = read_options(GOOD | {"token": "canary"}, 1).connection
    assert plain.token == Secret("canary")
    assert pickle.loads(pickle.dumps(plain)) == plain, "who writes it into an option has shown it to Spark"
    wrong = {"tokenFile": "/nowhere", "tlsCert": "/nowhere.pem", "oauth2ClientId": "me", "splits": "0"}
    with pytest.raises(UsageError) as caught:
        read_options(GOOD | wrong, 1)
    assert [one.code for one in caught.value.diagnostics] == ["K504", "K525", "K504", "K572"]
    monkeypatch.setenv("OUR_TOKEN", "one")
    client = {
        "oauth2Issuer": "https://i.example.org",
        "oauth2ClientId": "me",
        "oauth2ClientSecretVariable": "OUR_TOKEN",
    }
    with pytest.raises(UsageError, match="both a token and OAuth2"):
        read_options(GOOD | client | {"tokenVariable": "OUR_TOKEN"}, 1)
    sent = pickle.dumps(read_options(GOOD | {"tokenVariable": "OUR_TOKEN"}, 1))
    monkeypatch.delenv("OUR_TOKEN")
    with pytest.raises(UsageError, match=r"K504.*OUR_TOKEN is not set where it is needed"):
        pickle.loads(sent)
