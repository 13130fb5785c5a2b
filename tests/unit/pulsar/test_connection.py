"""Which cluster a command talks to, with which token: flags, then environment, then a context; and no secret anywhere else."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from kodoctl.errors import KodoctlError, UsageError
from kodoctl.pulsar.access import Secret
from kodoctl.pulsar.connection import (
    Connection,
    Flags,
    connect,
    project_config,
    read_contexts,
    remove_context,
    use_context,
    user_config,
    write_context,
)

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


def _connect(environ: dict[str, str], folder: Path | None = None, **flags: str) -> Connection:
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
    assert _shown(_connect({**environ, "KODOCTL_TOKEN_FILE": str(tmp_path / "t")}))[2] == "from-file"
    assert _shown(_connect({**environ, "KODOCTL_TOKEN": "from-text\n"}))[2] == "from-text"


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


def test_the_users_file_is_where_configuration_belongs() -> None:
    assert user_config({}).name == "kodoctl.toml"


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
