"""Which cluster a command talks to, with which token: flags, then environment, then a context; and no secret anywhere else."""

from __future__ import annotations

import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kodoctl.errors import KodoctlError, UsageError, Where
from kodoctl.pulsar.connection.connection import (
    Connection,
    Flags,
    check_context,
    connect,
    misspelled_variables,
    own_config,
    project_config,
    read_contexts,
    readable,
    remove_context,
    use_context,
    write_context,
)
from kodoctl.pulsar.connection.secret import Secret

USER = """
current = "dev"
[contexts.dev]
admin_url = "http://dev:8080"
broker_url = "pulsar://dev:6650"
token_file = "dev.token"
[contexts.prod]
admin_url = "https://prod:8443/"
env = "prod"
protected = true
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A user's configuration with two contexts; the token of dev is beside it."""
    file = tmp_path / "config" / "kodoctl.toml"
    file.parent.mkdir()
    file.write_text(USER)
    (file.parent / "dev.token").write_text("dev-token\n")
    (tmp_path / "work").mkdir()
    return {"KODOCTL_CONFIG": str(file)}


def _connect(environ: dict[str, str], folder: Path | None = None, **flags: str | None) -> Connection:
    return connect(Flags(**flags), environ, folder or Path(environ["KODOCTL_CONFIG"]).parents[1] / "work")


def _shown(connection: Connection) -> tuple[str, str | None, str | None, str | None]:
    token = connection.token.reveal() if connection.token else None
    return connection.admin_url, connection.broker_url, token, connection.context.name if connection.context else None


def test_the_current_context_is_used_when_nothing_else_is_said(environ: dict[str, str]) -> None:
    assert _shown(_connect(environ)) == ("http://dev:8080", "pulsar://dev:6650", "dev-token", "dev")


def test_the_environment_comes_before_the_current_context_and_takes_none_of_its_secrets(
    environ: dict[str, str],
) -> None:
    environ |= {"KODOCTL_ADMIN_URL": "http://other:8080", "KODOCTL_BROKER_URL": "pulsar://other:6650"}
    assert _shown(_connect(environ)) == ("http://other:8080", "pulsar://other:6650", None, None)


def test_flags_come_before_the_environment(environ: dict[str, str], tmp_path: Path) -> None:
    environ |= {"KODOCTL_ADMIN_URL": "http://other:8080", "KODOCTL_TOKEN": "from-environment"}
    (tmp_path / "t").write_text("from-flag")
    found = _connect(environ, admin_url="http://flag:1", broker_url="pulsar://flag:2", token_file=str(tmp_path / "t"))
    assert _shown(found) == ("http://flag:1", "pulsar://flag:2", "from-flag", None)


def test_a_context_asked_for_by_name_is_not_mixed_with_the_environment(environ: dict[str, str]) -> None:
    environ |= {
        "KODOCTL_ADMIN_URL": "http://other:8080",
        "KODOCTL_TOKEN": "other",
        "KODOCTL_BROKER_URL": "pulsar://other:1",
    }
    assert _shown(_connect(environ, context="dev")) == ("http://dev:8080", "pulsar://dev:6650", "dev-token", "dev")


def test_a_contexts_token_does_not_go_to_another_broker_than_its_own(environ: dict[str, str]) -> None:
    environ |= {"KODOCTL_BROKER_URL": "pulsar://other:6650"}
    assert _shown(_connect(environ)) == ("http://dev:8080", "pulsar://other:6650", None, "dev")
    assert _shown(_connect(environ, context="dev", broker_url="pulsar://asked:1"))[2] == "dev-token"


def test_a_token_of_the_environment_comes_as_text_or_as_a_file(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "t").write_text("  from-file\n")
    environ |= {"KODOCTL_ADMIN_URL": "http://other:8080"}
    assert _shown(_connect({**environ, "KODOCTL_TOKEN_FILE": str(tmp_path / "t")}))[2] == "from-file"
    assert _shown(_connect({**environ, "KODOCTL_TOKEN": "from-text\n"}))[2] == "from-text"
    assert _shown(_connect({**environ, "KODOCTL_TOKEN": "t"}, admin_url="http://flag:1"))[2] == "t"


SECRETS = [
    {"KODOCTL_TOKEN": "mine"},
    {"KODOCTL_OAUTH2_ISSUER": "https://i", "KODOCTL_OAUTH2_CLIENT_ID": "me", "KODOCTL_OAUTH2_CLIENT_SECRET": "s"},
]


@pytest.mark.parametrize("secret", SECRETS, ids=["token", "oauth2"])
@pytest.mark.parametrize("broker", [{}, {"KODOCTL_BROKER_URL": "pulsar://mine:1"}], ids=["", "broker"])
def test_credentials_of_the_environment_do_not_go_where_a_file_says(
    environ: dict[str, str], tmp_path: Path, secret: dict[str, str], broker: dict[str, str]
) -> None:
    """A repository's kodoctl.toml chose where KODOCTL_TOKEN goes."""
    folder = tmp_path / "work"
    (folder / "kodoctl.toml").write_text('current = "x"\n[contexts.x]\nadmin_url = "http://evil.example:8080"\n')
    found = _connect({**environ, **secret, **broker}, folder)
    assert (found.admin_url, found.token, found.oauth2) == ("http://evil.example:8080", None, None)
    assert "not to context x" in found.withheld
    for more, flags in (({"KODOCTL_ADMIN_URL": "http://mine:1"}, {}), ({}, {"admin_url": "http://mine:1"})):
        own = _connect({**environ, **secret, **broker, **more}, folder, **flags)
        assert (own.token or own.oauth2) is not None
        assert own.withheld == ""


EVIL = '[contexts.x]\nadmin_url = "http://evil.example:8080"\nbroker_url = "pulsar://evil.example:6650"\n'


@pytest.mark.parametrize("more", [{}, {"KODOCTL_BROKER_URL": "pulsar://mine:1"}, {"KODOCTL_CONTEXT": "dev"}])
def test_a_token_of_a_flag_does_not_go_where_only_a_file_of_the_working_folder_says(
    environ: dict[str, str], tmp_path: Path, more: dict[str, str]
) -> None:
    """A clone's kodoctl.toml chose where --token-file goes."""
    folder = tmp_path / "work"
    (tmp_path / "t").write_text("from-flag")
    token = {"token_file": str(tmp_path / "t")}
    (folder / "kodoctl.toml").write_text(f'current = "x"\n{EVIL}{EVIL.replace("contexts.x", "contexts.dev")}')
    with pytest.raises(UsageError) as caught:
        _connect({**environ, **more}, folder, **token)
    assert caught.value.diagnostics[0].code == "K528"
    assert "--token-file would go to http://evil.example:8080" in caught.value.diagnostics[0].detail
    with pytest.raises(UsageError, match="has a context of that name, too"):
        _connect(environ, folder, context="dev", **token)
    assert "from-flag" not in str(caught.value)
    for environment, flags in (
        ({}, {"admin_url": "http://mine:1"}),
        ({"KODOCTL_ADMIN_URL": "http://mine:1"}, {}),
        ({}, {"context": "x"}),
        ({}, {"context": "prod"}),
        ({"KODOCTL_CONTEXT": "x"}, {}),
    ):
        own = _connect({**environ, **environment}, folder, **flags, **token)
        assert own.token == Secret("from-flag"), (environment, flags)
    (folder / "kodoctl.toml").write_text('current = "prod"\n')
    assert _connect(environ, folder, **token).token == Secret("from-flag"), "a context of the user's own file"


PROJECT = '[contexts.team]\nadmin_url = "http://team:1"\n'


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ('token_file = "~/.vault-token"', True),
        ('token_file = "/etc/hostname"', True),
        ('token_file = "../t"', True),
        ('token_file = "link"', True),
        ('oauth2_client_secret_file = "../t"\noauth2_issuer = "https://i"\noauth2_client_id = "c"', True),
        ('tls_cert = "../t"\ntls_key = "../t"', True),
        ('token_file = "t"', False),
        ('token_file = "../work/t"', False),
        ('tls_ca = "/etc/ssl/our.pem"', False),
    ],
)
def test_a_projects_file_names_no_secret_outside_of_its_folder(
    environ: dict[str, str], tmp_path: Path, line: str, refused: bool
) -> None:
    (tmp_path / "t").write_text("secret")
    folder = tmp_path / "work"
    (folder / "t").write_text("inside")
    (folder / "link").symlink_to(tmp_path / "t")
    (folder / "kodoctl.toml").write_text(f"{PROJECT}{line}\n")
    if not refused:
        assert "team" in read_contexts(environ, folder).by_name
        return
    with pytest.raises(KodoctlError) as caught:
        read_contexts(environ, folder)
    assert {finding.code for finding in caught.value.diagnostics} == {"K528"}
    assert "leads out of" in caught.value.diagnostics[0].detail


def test_a_projects_file_does_not_take_the_name_of_a_protected_context(environ: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "work"
    (folder / "kodoctl.toml").write_text(PROJECT.replace("team", "prod"))
    with pytest.raises(KodoctlError, match="K528"):
        read_contexts(environ, folder)
    (folder / "kodoctl.toml").write_text(PROJECT.replace("team", "dev"))
    assert read_contexts(environ, folder).by_name["dev"].admin_url == "http://dev:1"


def test_ones_own_file_may_lie_in_the_folder_one_works_in(environ: dict[str, str]) -> None:
    folder = Path(environ["KODOCTL_CONFIG"]).parent
    (folder / "kodoctl.toml").write_text(f'{PROJECT}token_file = "/etc/hostname"\n')
    assert "team" in read_contexts(environ, folder).by_name


@pytest.mark.parametrize(
    ("admin_url", "broker_url", "told"),
    [
        ("http://pulsar.example:8080", None, "http://pulsar.example:8080"),
        ("https://pulsar.example:8443", "pulsar://pulsar.example:6650", "pulsar://pulsar.example:6650"),
        ("https://pulsar.example:8443", "pulsar+ssl://pulsar.example:6651", ""),
        ("http://127.0.0.1:8080", "pulsar://localhost:6650", ""),
        ("http://[::1]:8080", None, ""),
    ],
)
def test_a_token_that_others_on_the_way_can_read_is_told(admin_url: str, broker_url: str | None, told: str) -> None:
    found = readable(Connection(admin_url, broker_url, Secret("t")))
    assert (found.detail.startswith(told) if found else "") == bool(told) or not told
    assert (found is not None) is bool(told)
    assert readable(Connection(admin_url, broker_url)) is None


@pytest.mark.parametrize("content", ["", "   ", "two words", "two\nlines", "umlaut-ä", "bell\x07"])
def test_what_cannot_be_a_token_is_refused_and_never_quoted(
    environ: dict[str, str], tmp_path: Path, content: str
) -> None:
    (tmp_path / "t").write_text(content)
    with pytest.raises(UsageError) as caught:
        _connect(environ, token_file=str(tmp_path / "t"))
    assert caught.value.diagnostics[0].code == "K504"
    if content.strip():
        assert content not in str(caught.value)
        with pytest.raises(UsageError) as caught:
            _connect({**environ, "KODOCTL_TOKEN": content})
        assert content not in str(caught.value)


def test_a_missing_token_file_is_named(environ: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="No such file"):
        _connect(environ, token_file="/nowhere/token")


def test_the_projects_file_is_found_upwards_and_comes_before_the_users(environ: dict[str, str], tmp_path: Path) -> None:
    inner = tmp_path / "work" / "deep" / "deeper"
    inner.mkdir(parents=True)
    (tmp_path / "work" / "kodoctl.toml").write_text('current = "team"\n[contexts.team]\nadmin_url = "http://team:1"\n')
    assert project_config(inner) == tmp_path / "work" / "kodoctl.toml"
    assert _shown(_connect(environ, inner))[0] == "http://team:1"
    assert set(read_contexts(environ, inner).by_name) == {"dev", "prod", "team"}
    assert _shown(_connect({**environ, "KODOCTL_CONTEXT": "dev"}, inner))[3] == "dev"


def test_a_context_knows_its_environment_and_whether_it_is_protected(environ: dict[str, str]) -> None:
    context = _connect(environ, context="prod").context
    assert context is not None
    assert (context.env, context.protected, context.broker_url) == ("prod", True, None)


def test_nothing_named_anywhere_says_how_to_name_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--context or --admin-url"):
        connect(Flags(), {"KODOCTL_CONFIG": str(tmp_path / "none")}, tmp_path)


def test_an_unknown_context_names_the_known_ones(environ: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="known: dev, prod"):
        _connect(environ, context="stage")


@pytest.mark.parametrize(
    "url", ["dev:8080", "ftp://dev:8080", "http://", "http://user:secret@dev:8080", "http://[::1", "http://dev:port", "pulsar://dev:6650"]
)  # fmt: skip
def test_what_is_no_address_is_refused_without_its_credentials(environ: dict[str, str], url: str) -> None:
    with pytest.raises(UsageError) as caught:
        _connect(environ, admin_url=url)
    assert caught.value.diagnostics[0].code == "K505"
    assert "secret" not in str(caught.value)


def test_several_brokers_are_one_address(environ: dict[str, str]) -> None:
    found = _connect(environ, admin_url="http://a:1", broker_url="pulsar://a:6650,b:6650")
    assert found.broker_url == "pulsar://a:6650,b:6650"


@pytest.mark.parametrize(
    "text",
    [
        "not toml",
        "contexts = 5",
        "current = 5",
        "[contexts]\nx = 1",
        "[contexts.x]\nbroker_url = 'pulsar://x:1'",
        "[contexts.x]\nadmin_url = 5",
        "[contexts.x]\nadmin_url = 'http://x:1'\ncolour = 'red'",
    ],
)
def test_a_damaged_configuration_is_told_with_its_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "kodoctl.toml"
    file.write_text(text)
    with pytest.raises(KodoctlError) as caught:
        read_contexts({"KODOCTL_CONFIG": str(file)}, Path("/"))
    assert all(
        finding.code == "K502" and finding.where and finding.where.file == str(file)
        for finding in caught.value.diagnostics
    )


def test_a_written_context_keeps_comments_and_can_be_chosen_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "kodoctl.toml"
    write_context(file, "one", {"admin_url": "http://one:1"})
    file.write_text("# mine\n" + file.read_text())
    write_context(file, "two", {"admin_url": "http://two:1", "protected": True})
    use_context(file, "two")
    found = read_contexts({"KODOCTL_CONFIG": str(file)}, tmp_path)
    assert (set(found.by_name), found.current) == ({"one", "two"}, "two")
    remove_context(file, "two")
    remove_context(file, "never there")
    found = read_contexts({"KODOCTL_CONFIG": str(file)}, tmp_path)
    assert (set(found.by_name), found.current) == ({"one"}, None)
    assert file.read_text().startswith("# mine\n")
    remove_context(tmp_path / "no-file", "one")


DAMAGED = {
    "no TOML": "[contexts",
    "a key twice": "current = 'a'\ncurrent = 'b'\n",
    "a context twice": "[contexts.a]\nadmin_url = 'http://a:1'\n[contexts.a]\nenv = 'x'\n",
    "no tables": "contexts = 5\n",
    "a list of tables": "[[contexts]]\nadmin_url = 'http://a:1'\n",
    "no text": b"\xff\xfe",
    "too deep": "x = " + "[" * 20_000,
}


@pytest.mark.parametrize(
    "change",
    [
        lambda file: write_context(file, "x", {"admin_url": "http://x:1"}),
        lambda file: remove_context(file, "a"),
        lambda file: use_context(file, "a"),
    ],
    ids=["write", "remove", "use"],
)
@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_configuration_is_not_changed_and_told(tmp_path: Path, change: Any, content: str | bytes) -> None:
    file = tmp_path / "kodoctl.toml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = file.read_bytes()
    with pytest.raises(KodoctlError) as caught:
        change(file)
    (finding,) = caught.value.diagnostics
    assert (finding.code, finding.where) == ("K502", Where(str(file)))
    assert finding.detail
    assert file.read_bytes() == before
    with pytest.raises(KodoctlError):
        read_contexts({"KODOCTL_CONFIG": str(file)}, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        'contexts = {a = {admin_url = "http://a:1"}, b = {admin_url = "http://b:1"}}\n',
        '[contexts]\na = {admin_url = "http://a:1"}\nb.admin_url = "http://b:1"\n',
        '[contexts.a]\nadmin_url = "http://a:1"\n[other]\n[contexts.b]\nadmin_url = "http://b:1"',
    ],
)
def test_however_a_file_writes_its_contexts_one_is_added_replaced_and_removed(tmp_path: Path, text: str) -> None:
    file = tmp_path / "kodoctl.toml"
    file.write_text(text)
    write_context(file, "c", {"admin_url": "http://c:1", "protected": True})
    write_context(file, "a", {"admin_url": "http://new:1"})
    remove_context(file, "b")
    use_context(file, "c")
    content = tomllib.loads(file.read_text())
    assert content["contexts"] == {
        "a": {"admin_url": "http://new:1"},
        "c": {"admin_url": "http://c:1", "protected": True},
    }
    assert content["current"] == "c"


def test_a_file_that_would_be_written_wrongly_is_not_written(tmp_path: Path) -> None:
    """The next context became a part of the new one."""
    file = tmp_path / "kodoctl.toml"
    before = 'contexts.a.admin_url = "http://a:1"\ncontexts.b.admin_url = "http://b:1"\n'
    file.write_text(before)
    with pytest.raises(KodoctlError, match=r"K502.*begin each context with a line \[contexts\.NAME\]"):
        write_context(file, "c", {"admin_url": "http://c:1"})
    assert file.read_text() == before
    use_context(file, "a")
    assert tomllib.loads(file.read_text()) == {**tomllib.loads(before), "current": "a"}


def test_the_users_file_is_where_configuration_belongs() -> None:
    assert own_config({}).name == "kodoctl.toml"


def test_a_secret_shows_itself_only_when_asked() -> None:
    secret = Secret("canary")
    connection = Connection("http://x:1", None, secret)
    for shown in (
        str(secret),
        repr(secret),
        f"{secret}",
        f"{secret!r}",
        repr(connection),
        str(asdict(connection)),
        repr(vars),
        f"{[secret]}",
    ):
        assert "canary" not in shown
    assert secret.reveal() == "canary"
    assert secret == Secret("canary") != Secret("other")
    assert hash(secret) == hash(Secret("canary"))
    assert not hasattr(secret, "__dict__")


@pytest.mark.parametrize(
    "text", ["http://a:8080,b:8080", "http://a:8080,http://b:8080", "http://a:8080/, http://b:8080", "http://a:8080, b:8080/ ", "http://a:8080,b:8080,a:8080"]
)  # fmt: skip
def test_several_admin_addresses_are_one_list_however_they_are_written(environ: dict[str, str], text: str) -> None:
    for found in (_connect(environ, admin_url=text), _connect({**environ, "KODOCTL_ADMIN_URL": text})):
        assert found.admin_url == "http://a:8080,b:8080"
        assert found.admin_urls == ("http://a:8080", "http://b:8080")


def test_a_list_of_binary_ports_is_written_as_the_client_takes_it(environ: dict[str, str]) -> None:
    found = _connect(environ, admin_url="http://a:1", broker_url="pulsar+ssl://a:6651,pulsar+ssl://b:6651")
    assert found.broker_url == "pulsar+ssl://a:6651,b:6651"


def test_a_context_may_have_lists(environ: dict[str, str], tmp_path: Path) -> None:
    values = {"admin_url": "http://a:8080,b:8080", "broker_url": "pulsar://a:6650,b:6650"}
    file = tmp_path / "lists.toml"
    check_context(file, "three", values, environ)
    write_context(file, "three", values)
    found = connect(Flags(context="three"), {"KODOCTL_CONFIG": str(file)}, tmp_path)
    assert (found.admin_urls, found.broker_url) == (("http://a:8080", "http://b:8080"), "pulsar://a:6650,b:6650")


@pytest.mark.parametrize(
    ("admin", "broker", "faults"),
    [
        ("http://a:8080,b:80800", None, ["'http://b:80800', one of 2 addresses: write http://HOST:PORT; a port is a number below 65536"]),
        ("a:8080,http://b:8080", None, ["'a:8080', one of 2 addresses: write http://HOST:PORT"]),
        ("http://a:8080,", None, ["'http://a:8080,': between two commas, or beside one, there is none"]),
        ("http://a:8080,https://b:8443", None, ["'http://a:8080,https://b:8443': the addresses of one cluster begin with the same of http and https"]),
        ("http://a:8080,pulsar://b:6650", None, ["'pulsar://b:6650', one of 2 addresses: write http://HOST:PORT; an address with pulsar:// belongs to --broker-url"]),
        ("http://a:8080,a..b:8080", None, ["'http://a..b:8080', one of 2 addresses: write http://HOST:PORT"]),
        ("http://a:8080", f"pulsar://{'a' * 64}:6650", [f"'pulsar://{'a' * 64}:6650': write pulsar://HOST:PORT"]),
        ("http://a:8080", "pulsar://a:6650,b:x", ["'pulsar://b:x', one of 2 addresses: write pulsar://HOST:PORT; a port is a number below 65536"]),
        ("http://a:8080,u:secret@b:1", "pulsar://a,http://b:8080", [
            "'b:1', one of 2 addresses: write http://HOST:PORT; a user does not belong into it: tokens are given with --token-file",
            "'http://b:8080', one of 2 addresses: write pulsar://HOST:PORT; an address with http:// belongs to --admin-url",
        ]),
    ],
)  # fmt: skip
def test_every_fault_of_a_list_is_told_at_once_and_nothing_else(
    environ: dict[str, str], admin: str, broker: str | None, faults: list[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        _connect(environ, admin_url=admin, broker_url=broker)
    assert [finding.code for finding in caught.value.diagnostics] == ["K505"] * len(faults)
    assert [finding.detail.partition(": ")[2] for finding in caught.value.diagnostics] == faults


def test_a_refused_address_names_its_flag_variable_or_context(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    write_context(file, "bad", {"admin_url": "a:1", "broker_url": "b:1"})
    found = []
    for flags, variables in (
        (Flags(admin_url="a:1", broker_url="b:1"), {}),
        (Flags(), {"KODOCTL_ADMIN_URL": "a:1", "KODOCTL_BROKER_URL": "b:1"}),
        (Flags(context="bad"), {"KODOCTL_ADMIN_URL": "http://a:1"}),
        (Flags(context="bad", broker_url="b:1"), {}),
    ):
        with pytest.raises(UsageError) as caught:
            connect(flags, {"KODOCTL_CONFIG": str(file), **variables}, tmp_path)
        found.append([one.detail.partition(": ")[0] for one in caught.value.diagnostics])
    assert found == [
        ["--admin-url", "--broker-url"],
        ["KODOCTL_ADMIN_URL", "KODOCTL_BROKER_URL"],
        [f"admin_url of context bad in {file}", f"broker_url of context bad in {file}"],
        [f"admin_url of context bad in {file}", "--broker-url"],
    ]


@pytest.mark.parametrize("key", ["admin_url", "broker_url"])
def test_an_empty_address_of_a_context_is_refused(key: str, environ: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "empty.toml"
    values = {"admin_url": "http://a:1", "broker_url": "pulsar://a:2", key: ""}
    with pytest.raises(UsageError, match=f"K505.*'': write {'http' if key == 'admin_url' else 'pulsar'}://HOST:PORT"):
        check_context(file, "bad", values, environ)
    write_context(file, "bad", values)
    with pytest.raises(UsageError, match=f"K505.*{key} of context bad in .*: '': write"):
        connect(Flags(context="bad"), {"KODOCTL_CONFIG": str(file)}, tmp_path)
    found = connect(
        Flags(context="bad", **{key: "http://b:1" if key == "admin_url" else "pulsar://b:1"}),
        {"KODOCTL_CONFIG": str(file)},
        tmp_path,
    )
    assert "b:1" in f"{found.admin_url} {found.broker_url}"


def test_a_token_that_one_of_several_addresses_shows_to_everybody_is_warned_of(environ: dict[str, str]) -> None:
    token = Secret("canary")
    assert readable(Connection("http://127.0.0.1:1,localhost:2", token=token)) is None
    warned = readable(Connection("http://127.0.0.1:1,far:2", "pulsar+ssl://far:1,further:2", token))
    assert warned is not None
    assert warned.detail.startswith("http://127.0.0.1:1,far:2: whoever is on the way")


def test_a_variable_that_is_almost_one_of_ours_is_told_and_a_platforms_is_not() -> None:
    platform = {
        "KODOCTL_SERVICE_HOST": "10.0.0.1",
        "KODOCTL_PORT": "tcp://10.0.0.1:80",
        "KODOCTL_PORT_80_TCP_ADDR": "x",
    }
    ours = {"KODOCTL_ADMIN_URL": "http://x", "KODOCTL_TLS_CA": "ca.pem", "KODOCTL_DEV_HOME": "/d"}
    found = misspelled_variables({"KODOCTL_ADMIN_ULR": "http://prod", "KODOCTL_TOKENFILE": "t", **platform, **ours})
    assert [(one.code, one.detail) for one in found] == [
        ("K030", "KODOCTL_ADMIN_ULR: is KODOCTL_ADMIN_URL meant?"),
        ("K030", "KODOCTL_TOKENFILE: is KODOCTL_TOKEN_FILE meant?"),
    ]


def test_the_address_of_function_workers_is_of_the_environment_or_the_context(environ: dict[str, str]) -> None:
    file = Path(environ["KODOCTL_CONFIG"])
    assert _connect(environ).function_worker is None
    file.write_text(USER.replace("[contexts.dev]\n", '[contexts.dev]\nfunction_worker = "http://w1:6750,w2:6750"\n'))
    found = _connect(environ)
    assert (found.function_worker, _shown(found)[2]) == ("http://w1:6750,w2:6750", "dev-token")
    other = _connect({**environ, "KODOCTL_FUNCTION_WORKER": "http://other:6750"})
    assert (other.function_worker, _shown(other)[2]) == ("http://other:6750", None), "a context's token is for its own"
    none = _connect({**environ, "KODOCTL_FUNCTION_WORKER": "none"})
    assert (none.function_worker, _shown(none)[2]) == ("none", "dev-token")
    assert (
        _connect({**environ, "KODOCTL_FUNCTION_WORKER": "none"}, context="dev").function_worker
        == "http://w1:6750,w2:6750"
    )
    with pytest.raises(UsageError) as refusal:
        _connect({**environ, "KODOCTL_FUNCTION_WORKER": "nowhere"})
    assert refusal.value.diagnostics[0].code == "K505"
    assert "or 'none'" in refusal.value.diagnostics[0].detail


@pytest.mark.parametrize("more", ["", 'current = "dev"\n', '# mine\n\n[contexts.prod]\nadmin_url = "http://p:1"\n'])
def test_any_context_can_be_removed_the_last_one_too(tmp_path: Path, more: str) -> None:
    file = tmp_path / "kodoctl.toml"
    file.write_text(f'{more}\n[contexts.dev]\nadmin_url = "http://a:1"\n', encoding="utf-8")
    remove_context(file, "dev")
    assert "dev" not in file.read_text(encoding="utf-8")
    use_context(file, "prod")
    write_context(file, "dev", {"admin_url": "http://b:1"})
    assert "http://b:1" in file.read_text(encoding="utf-8")
