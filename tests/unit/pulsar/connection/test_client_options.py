"""An address of the binary port that leads elsewhere is told as what is there, with where it was said, at once."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pulsar
import pytest

from kodoctl.errors import ClusterError
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.binary.client import BrokerClient
from kodoctl.pulsar.connection import client_options
from kodoctl.pulsar.connection.client_options import knock
from kodoctl.pulsar.connection.connection import Connection, Flags, connect
from kodoctl.pulsar.connection.credentials import OAuth2, Tls
from kodoctl.pulsar.connection.peer import WITHIN_S, PortError
from kodoctl.pulsar.connection.secret import Secret
from tests.brokers.authentication import SECRET, issuing, make_certificates
from tests.services.servers import speaking

PONG = bytes.fromhex("00000009 00000005 0813 9a0100")
WEB = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("tls") / "certificates", "broker", "client")


@pytest.fixture(scope="module")
def places(certificates: Path) -> Iterator[dict[str, str]]:
    """`host:port` of who speaks what."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates / "broker.pem", certificates / "broker.key")
    strict = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    strict.load_cert_chain(certificates / "broker.pem", certificates / "broker.key")
    strict.load_verify_locations(certificates / "ca.pem")
    strict.verify_mode = ssl.CERT_REQUIRED
    with ExitStack() as stack:
        enter = stack.enter_context
        yield {
            "broker": enter(speaking(PONG)),
            "TLS broker": enter(speaking(PONG, tls=tls)),
            "mutual TLS broker": enter(speaking(PONG, tls=strict)),
            "web": enter(speaking(WEB)),
            "TLS web": enter(speaking(WEB, tls=tls)),
            "other": enter(speaking(b"220 mail ready\r\n")),
        }


def _connection(url: str, certificates: Path) -> Connection:
    return Connection("http://127.0.0.1:1", url, tls=Tls(ca=certificates / "ca.pem"), broker_from="KODOCTL_BROKER_URL")


@pytest.mark.parametrize(
    ("scheme", "there", "says"),
    [
        ("pulsar", "TLS broker", "TLS is spoken there: write pulsar+ssl://HOST"),
        ("pulsar", "mutual TLS broker", "TLS is spoken there: write pulsar+ssl://HOST"),
        ("pulsar", "web", "HTTP is spoken there, as at the port of the admin API; the binary port is another one, 6650 as a rule"),
        ("pulsar", "TLS web", "HTTP is spoken there, as at the port of the admin API; the binary port is another one, 6650 as a rule"),
        ("pulsar", "other", "something answers there that is no broker"),
        ("pulsar+ssl", "broker", "the broker speaks no TLS there: write pulsar://HOST, or the port where it does, 6651 as a rule"),
        ("pulsar+ssl", "web", "HTTP is spoken there, as at the port of the admin API; the binary port is another one, 6651 as a rule"),
        ("pulsar+ssl", "TLS web", "HTTP is spoken there, as at the port of the admin API; the binary port is another one, 6651 as a rule"),
        ("pulsar+ssl", "other", "something answers there that is no broker"),
    ],
)  # fmt: skip
def test_another_protocol_at_the_address_is_named_with_what_to_write(
    places: dict[str, str], certificates: Path, scheme: str, there: str, says: str
) -> None:
    host = places[there]
    with pytest.raises(PortError) as caught:
        knock(_connection(f"{scheme}://{host}", certificates))
    (finding,) = caught.value.diagnostics
    assert finding.code == "K518"
    assert finding.detail == f"{scheme}://{host} (KODOCTL_BROKER_URL): {says.replace('HOST', host)}"


@pytest.mark.parametrize(("scheme", "there"), [("pulsar", "broker"), ("pulsar+ssl", "TLS broker")])
def test_a_broker_is_let_be(places: dict[str, str], certificates: Path, scheme: str, there: str) -> None:
    knock(_connection(f"{scheme}://{places[there]}", certificates))
    knock(_connection(f"{scheme}://{places['other']},{places[there]}/", certificates))
    knock(Connection("http://127.0.0.1:1"))


def test_where_none_of_several_answers_each_is_told(places: dict[str, str], certificates: Path) -> None:
    with pytest.raises(PortError) as caught:
        knock(_connection(f"pulsar://127.0.0.1:1,{places['web']}", certificates))
    assert [finding.detail.split(":")[0:3] for finding in caught.value.diagnostics] == [
        ["pulsar", "//127.0.0.1", "1 (KODOCTL_BROKER_URL)"],
        ["pulsar", "//127.0.0.1", f"{places['web'].partition(':')[2]} (KODOCTL_BROKER_URL)"],
    ]


def test_a_broker_that_asks_for_a_certificate_is_shown_ours_and_left_to_say_what_it_thinks_of_none(
    places: dict[str, str], certificates: Path
) -> None:
    connection = _connection(f"pulsar+ssl://{places['mutual TLS broker']}", certificates)
    knock(connection)  # an alert is an answer: the client's own error is about the certificate
    pair = Tls(certificates / "client.pem", certificates / "client.key", certificates / "ca.pem")
    knock(replace(connection, tls=pair))


@pytest.mark.parametrize(
    ("ca", "host", "advice"),
    [
        ("other", "127.0.0.1", "name whom to trust with --tls-ca"),
        ("ca", "localhost", "use a name that its certificate has"),
    ],
)
def test_a_certificate_that_is_not_trusted_is_told_at_once(
    places: dict[str, str], certificates: Path, ca: str, host: str, advice: str
) -> None:
    url = f"pulsar+ssl://{places['TLS broker'].replace('127.0.0.1', host)}"
    connection = replace(_connection(url, certificates), tls=Tls(ca=certificates / f"{ca}.pem"))
    with pytest.raises(PortError) as caught:
        knock(connection)
    assert caught.value.diagnostics[0].code == "K527"
    assert caught.value.diagnostics[0].detail.endswith(advice)


def test_an_address_where_nobody_answers_is_named_after_five_seconds_of_silence_and_asked_once(
    monkeypatch: pytest.MonkeyPatch, certificates: Path
) -> None:
    assert WITHIN_S == 5
    with speaking(None) as host:
        client = BrokerClient(_connection(f"pulsar://{host}", certificates))
        for seconds in (2.0, 600.0, 600.0):  # each of many questions would wait as long
            monkeypatch.setattr(client_options, "WITHIN_S", seconds)
            with pytest.raises(
                PortError, match=r"\(KODOCTL_BROKER_URL\): silent for 2 s; is this the address"
            ) as caught:
                client.get()
        assert client.problem is caught.value
    with pytest.raises(PortError, match="Connection refused"):
        knock(_connection(f"pulsar://{host}", certificates))


def test_an_address_is_named_with_the_flag_variable_or_context_that_says_it(tmp_path: Path) -> None:
    file = tmp_path / "kodoctl.toml"
    file.write_text('current = "dev"\n[contexts.dev]\nadmin_url = "http://h:1"\nbroker_url = "pulsar://h:2"\n')
    environ = {"KODOCTL_CONFIG": str(tmp_path / "none.toml")}
    found = [
        connect(Flags(broker_url="pulsar://h:3"), {**environ, "KODOCTL_BROKER_URL": "pulsar://h:4"}, tmp_path),
        connect(Flags(), {**environ, "KODOCTL_BROKER_URL": "pulsar://h:4"}, tmp_path),
        connect(Flags(), environ, tmp_path),
    ]
    assert [(one.broker_url, one.broker_from) for one in found] == [
        ("pulsar://h:3", "--broker-url"),
        ("pulsar://h:4", "KODOCTL_BROKER_URL"),
        ("pulsar://h:2", f"broker_url of context dev in {file}"),
    ]


@pytest.mark.parametrize(
    ("scheme", "there", "says"),
    [
        ("http", "broker", "Pulsar's binary protocol is spoken there, which is for --broker-url"),
        ("https", "broker", "Pulsar's binary protocol is spoken there, which is for --broker-url"),
        ("http", "TLS broker", "Pulsar's binary protocol is spoken there, which is for --broker-url"),
        ("http", "TLS web", "TLS is spoken there: write https://HOST"),
        ("https", "web", "no TLS is spoken there: write http://HOST"),
    ],
)
def test_an_admin_address_where_another_protocol_is_spoken_is_told_as_that(
    places: dict[str, str], scheme: str, there: str, says: str
) -> None:
    host = places[there]
    admin = HttpAdmin(Connection(f"{scheme}://{host}"), limit=0.0)
    with pytest.raises(ClusterError) as caught:
        admin.call("GET", "clusters")
    assert caught.value.diagnostics[0].code == "K514"
    assert caught.value.diagnostics[0].detail.startswith(f"{scheme}://{host}: {says.replace('HOST', host)}")


@pytest.mark.parametrize(("scheme", "there", "code"), [("https", "TLS web", "K527"), ("http", "other", "K514")])
def test_an_admin_address_that_fails_for_another_reason_is_told_as_before(
    places: dict[str, str], scheme: str, there: str, code: str
) -> None:
    admin = HttpAdmin(Connection(f"{scheme}://{places[there]}"), limit=0.0)
    with pytest.raises(ClusterError) as caught:
        admin.call("GET", "clusters")
    assert caught.value.diagnostics[0].code == code
    assert "spoken there" not in caught.value.diagnostics[0].detail


def test_a_second_client_of_a_process_waits_for_no_issuer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker makes one while it runs, because sends hang: then the issuer may be away as well."""
    monkeypatch.setattr(pulsar, "AuthenticationToken", lambda current: current)
    with issuing(b"k" * 32, expires_in=0.1) as issuer:
        connection = Connection("http://127.0.0.1:1", oauth2=OAuth2(issuer.url, "client", Secret(SECRET)))
        first = client_options._authentication(connection)()
    time.sleep(0.1)
    current = client_options._authentication(connection)
    assert current() == first, "the last one, while the issuer is away"
