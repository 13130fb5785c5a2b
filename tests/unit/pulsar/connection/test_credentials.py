"""Where OAuth2 credentials and TLS files come from, what is wrong with them, and that contexts keep no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from kodoctl.errors import KodoctlError, UsageError
from kodoctl.pulsar.connection.connection import Connection, Flags, connect
from kodoctl.pulsar.connection.credentials import OAuth2, Tls
from kodoctl.pulsar.connection.secret import Secret
from tests.brokers.authentication import make_certificates
from tests.brokers.workspace import isolated, run_main

PLACE = {"KODOCTL_ADMIN_URL": "https://pulsar.example.org:8443", "KODOCTL_CONFIG": "/nowhere"}
CLIENT = {"KODOCTL_OAUTH2_ISSUER": "https://issuer.example.org/", "KODOCTL_OAUTH2_CLIENT_ID": "me"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("tls") / "certificates", "broker", "anna")


def _connect(folder: Path, environ: dict[str, str], **flags: str) -> Connection:
    return connect(Flags(**flags), PLACE | environ, folder)


def test_client_credentials_come_from_the_environment(tmp_path: Path) -> None:
    more = {"KODOCTL_OAUTH2_CLIENT_SECRET": "canary", "KODOCTL_OAUTH2_AUDIENCE": "pulsar"}
    found = _connect(tmp_path, CLIENT | more)
    assert found.oauth2 == OAuth2("https://issuer.example.org", "me", Secret("canary"), "pulsar", None)
    assert "canary" not in repr(found)
    (tmp_path / "s").write_text("of-a-file\n")
    found = _connect(tmp_path, CLIENT | {"KODOCTL_OAUTH2_CLIENT_SECRET_FILE": str(tmp_path / "s")})
    assert found.oauth2 is not None
    assert found.oauth2.secret == Secret("of-a-file")


def test_a_token_by_flag_comes_before_the_environment_s_credentials(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("by-flag")
    found = _connect(tmp_path, CLIENT | {"KODOCTL_OAUTH2_CLIENT_SECRET": "s"}, token_file=str(tmp_path / "t"))
    assert (found.token, found.oauth2) == (Secret("by-flag"), None)


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"KODOCTL_OAUTH2_ISSUER": "https://i.example.org"}, "oauth2_client_id, oauth2_client_secret_file missing"),
        ({"KODOCTL_OAUTH2_CLIENT_SECRET": "canary"}, "oauth2_issuer, oauth2_client_id missing"),
        (CLIENT | {"KODOCTL_OAUTH2_CLIENT_SECRET": "canary", "KODOCTL_TOKEN": "t"}, "both a token and OAuth2"),
        (CLIENT | {"KODOCTL_OAUTH2_CLIENT_SECRET": "two canary words"}, "not a token"),
        (CLIENT | {"KODOCTL_OAUTH2_CLIENT_SECRET": "canary", "KODOCTL_OAUTH2_ISSUER": "http://i.example.org"}, "KODOCTL_OAUTH2_*: 'http://i.example.org': an issuer is https://"),
        (CLIENT | {"KODOCTL_OAUTH2_CLIENT_SECRET": "canary", "KODOCTL_OAUTH2_ISSUER": "http://[x"}, "an issuer is https://"),
        ({"KODOCTL_TLS_CERT": "/nowhere.pem", "KODOCTL_TLS_KEY": "/nowhere.key"}, "there is no such file"),
        ({"KODOCTL_TLS_CERT": "/nowhere.pem"}, "a certificate and its key belong together"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_told_at_once_without_the_secret(
    tmp_path: Path, environ: dict[str, str], said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        _connect(tmp_path, environ)
    assert said in str(caught.value)
    assert "canary" not in str(caught.value)


def test_tls_files_are_looked_into_before_anybody_is_talked_to(tmp_path: Path, certificates: Path) -> None:
    ca, cert, key, other = (str(certificates / name) for name in ("ca.pem", "anna.pem", "anna.key", "broker.key"))
    found = _connect(tmp_path, {"KODOCTL_TLS_CA": ca}, tls_cert=cert, tls_key=key)
    assert found.tls == Tls(Path(cert), Path(key), None)  # the flags say it all, or nothing
    assert _connect(tmp_path, {"KODOCTL_TLS_CA": ca}).tls == Tls(ca=Path(ca))
    with pytest.raises(UsageError, match="cannot be used together"):
        _connect(tmp_path, {}, tls_cert=cert, tls_key=other)
    with pytest.raises(UsageError, match="no certificates in PEM form"):
        _connect(tmp_path, {}, tls_ca=key)
    locked = tmp_path / "locked.key"
    locked.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n")
    with pytest.raises(UsageError, match="cannot be used together"):  # and nobody is asked for a password
        _connect(tmp_path, {}, tls_cert=cert, tls_key=str(locked))


def _add(*arguments: str) -> tuple[int, str]:
    found = run_main("context", "add", *arguments)
    return found.code, found.text


def test_a_context_is_added_to_a_file_whose_comments_stay(tmp_path: Path, certificates: Path) -> None:
    with isolated(tmp_path):
        (tmp_path / "kodoctl.toml").write_text("# ours\n")
        (tmp_path / "secret").write_text("canary-of-the-file\n")
        oauth2 = (
            "--oauth2-issuer",
            "https://i.example.org",
            "--oauth2-client-id",
            "me",
            "--oauth2-client-secret-file",
            "secret",
        )
        tls = ("--tls-ca", str(certificates / "ca.pem"))
        where = ("--admin-url", "https://p.example.org:8443", "--broker-url", "pulsar+ssl://p.example.org:6651")
        code, text = _add("prod", *where, *oauth2, *tls, "--env", "prod", "--protected", "--project")
        assert code == 0, text
        written = (tmp_path / "kodoctl.toml").read_text()
        assert written.startswith("# ours\n")
        assert "canary" not in written + text
        assert 'oauth2_client_secret_file = "secret"' in written
        connection = connect(Flags(context="prod"), {"KODOCTL_CONFIG": "/nowhere"}, tmp_path)
        assert connection.oauth2 == OAuth2("https://i.example.org", "me", Secret("canary-of-the-file"))
        assert connection.tls == Tls(ca=certificates / "ca.pem")
        assert connection.context is not None
        assert (connection.context.env, connection.context.protected) == ("prod", True)
        shown = run_main("context", "show", "prod").text
        assert "oauth2_client_id" in shown
        assert "canary" not in shown

        assert "--replace" in _add("prod", "--admin-url", "http://other:1", "--project")[1]
        assert _add("prod", "--admin-url", "http://other:1", "--project", "--replace")[0] == 0
        assert "oauth2" not in (tmp_path / "kodoctl.toml").read_text()
        assert "Now using dev" in _add("dev", "--admin-url", "http://dev:1", "--use")[1]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--admin-url", "pulsar://x:1"], "K505"),
        (["--admin-url", "http://x:1", "--broker-url", "http://x:1"], "K505"),
        (["--admin-url", "http://x:1", "--token-file", "nowhere"], "K504"),
        (["--admin-url", "http://x:1", "--tls-cert", "nowhere"], "K525"),
        (["--admin-url", "http://x:1", "--oauth2-client-id", "me"], "K504"),
    ],
)
def test_what_no_command_could_use_is_not_written(tmp_path: Path, arguments: list[str], code: str) -> None:
    with isolated(tmp_path):
        found = run_main("context", "add", "x", *arguments)
        assert (found.code, code in found.err) == (64, True), found.text
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ["add", "x", "--admin-url", "http://x:1"],
        ["add", "x", "--admin-url", "http://x:1", "--replace"],
        ["add", "x", "--admin-url", "http://x:1", "--replace", "--project"],
        ["use", "x"],
    ],
    ids=" ".join,
)
def test_a_damaged_file_of_contexts_is_told_and_stays(
    tmp_path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with isolated(tmp_path):
        file = tmp_path / "kodoctl.toml"
        monkeypatch.setenv("KODOCTL_CONFIG", "/nowhere" if "--project" in arguments else str(file))
        file.write_text("[contexts.x]\nadmin_url = 'http://old:1'\n[contexts.x]\n")
        found = run_main("context", *arguments)
        assert found.code != 0
        assert "cannot read configuration [K502]" in found.err
        assert str(file) in found.err
        assert "old" in file.read_text()


def test_a_file_of_contexts_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with isolated(tmp_path):
        (tmp_path / "taken").write_text("")
        monkeypatch.setenv("KODOCTL_CONFIG", str(tmp_path / "taken" / "kodoctl.toml"))
        found = run_main("context", "add", "x", "--admin-url", "http://x:1")
        assert (found.code, "cannot write file [K020]" in found.err) == (64, True), found.text
        (tmp_path / "kodoctl.toml").write_text("[contexts.x]\nadmin_url = 'http://x:1'\n")
        assert "[K020]" in run_main("context", "use", "x").err


def test_two_ways_to_say_who_one_is_in_a_context_are_refused(tmp_path: Path) -> None:
    (tmp_path / "kodoctl.toml").write_text(
        '[contexts.x]\nadmin_url = "http://x:1"\ntoken_file = "t"\noauth2_issuer = "https://i"\noauth2_client_id = "me"\n'
        'oauth2_client_secret_file = "t"\n'
    )
    (tmp_path / "t").write_text("x")
    with pytest.raises(KodoctlError, match="both a token and OAuth2"):
        connect(Flags(context="x"), {"KODOCTL_CONFIG": "/nowhere"}, tmp_path)
