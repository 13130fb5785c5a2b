"""Surroundings of a deployment: no home folder, a user without a name, a deleted folder, nothing that can be written, variables
that platforms set by themselves. Nothing of these is a defect of kodoctl.
"""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import platformdirs
import pytest
from kodo_consumer.runtime.settings import Settings, read_settings
from kodo_pipeline.spark.spark_session import SparkSettings

from kodoctl.cli.common.console import defect
from kodoctl.cli.common.plan_files import scratch_file
from kodoctl.errors import KodoctlError, UsageError
from kodoctl.host.host_facts import (
    absolute_path,
    absolute_uri,
    expand_home,
    home_folder,
    is_listed_user,
    user_name,
    working_folder,
)
from kodoctl.pulsar.connection.connection import own_config, read_contexts, user_config
from kodoctl.pulsar.connection.credentials import tls_of
from kodoctl.pulsar.connection.secret import read_secret

FILE = "version: 1\nname: t\ntenant: acme\nnamespace: n\ntopics: {orders: {}}\n"


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without an entry in the list of users, and without HOME."""

    def nobody(*_: object) -> str:
        raise KeyError("getpwuid(): uid not found: 54321")

    for name in ("HOME", "XDG_CONFIG_HOME", "KODOCTL_CONFIG", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)


@pytest.mark.usefixtures("homeless")
def test_a_user_without_a_home_folder_has_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        platformdirs.user_config_path("kodoctl")
    assert user_config({}) is None
    assert read_contexts({}, tmp_path).by_name == {}
    (tmp_path / "kodoctl.toml").write_text('[contexts.shop]\nadmin_url = "http://h:1"\n', encoding="utf-8")
    assert list(read_contexts({}, tmp_path).by_name) == ["shop"]
    assert user_config({"KODOCTL_CONFIG": "/x/y.toml"}) == Path("/x/y.toml")
    with pytest.raises(UsageError, match="set HOME, or name a file in KODOCTL_CONFIG"):
        own_config({})
    assert expand_home("~/token") == Path("~/token")
    with pytest.raises(UsageError, match=r"K504.*No such file"):
        read_secret(Path("~/token"))


@pytest.mark.usefixtures("homeless")
def test_a_user_without_a_name_has_a_number() -> None:
    with pytest.raises((KeyError, OSError)):
        getpass.getuser()
    assert user_name() == f"uid {os.getuid()}"


@pytest.mark.usefixtures("homeless")
def test_spark_of_a_user_without_an_entry_is_given_an_absolute_home_folder() -> None:
    assert not is_listed_user()
    java = "spark.driver.extraJavaOptions"
    assert "-Duser.home=/nonexistent" in SparkSettings().configuration[java].split()
    assert "-Duser.home=/nonexistent" in SparkSettings(environ={"HOME": "here"}).configuration[java].split()
    assert "'-Duser.home=/my home'" in SparkSettings(environ={"HOME": "/my home"}).configuration[java]
    assert home_folder({"HOME": "/home/a"}) == "/home/a"


def test_spark_of_a_user_with_an_entry_finds_the_home_folder_there() -> None:
    assert is_listed_user()
    assert "user.home" not in SparkSettings().configuration["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize("module", ["kodoctl.cli.main", "kodo_consumer.cli.main"])
def test_a_folder_that_is_gone_is_said_in_words(module: str, tmp_path: Path) -> None:
    gone, file = tmp_path / "gone", tmp_path / "t.yaml"
    file.write_text(FILE, encoding="utf-8")
    gone.mkdir()
    command = (
        ["lint", str(file)]
        if module.startswith("kodoctl")
        else ["check", str(file), "--admin-url", "http://127.0.0.1:1"]
    )
    program = f"import os, sys; os.rmdir(os.getcwd()); sys.argv[1:] = {command!r}; from {module} import main; main()"
    done = subprocess.run([sys.executable, "-P", "-c", program], cwd=gone, capture_output=True, text=True, check=False)
    assert done.returncode == 64
    assert "no working folder [K031]" in done.stderr
    assert "Traceback" not in done.stderr
    assert "K599" not in done.stderr


def test_a_relative_name_in_a_folder_that_is_gone_is_said_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, token = tmp_path / "gone", tmp_path / "token"
    token.write_text("a-token\n", encoding="utf-8")
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for ask in (
        lambda: absolute_path("landing"),
        lambda: absolute_uri("landing"),
        lambda: tls_of({"tls_ca": "ca.pem"}, "the flags"),
        lambda: read_secret(Path("../token")),  # Linux still finds the folder above
    ):
        with pytest.raises(UsageError, match="no working folder"):
            ask()
    assert absolute_uri(f"{tmp_path}/landing") == f"{tmp_path}/landing"
    assert absolute_uri("s3://bucket/landing/") == "s3://bucket/landing"
    assert read_secret(token).file == str(token)
    with pytest.raises(UsageError, match=r"K525.*there is no such file"):
        tls_of({"tls_ca": f"{tmp_path}/ca.pem"}, "the flags")
    monkeypatch.chdir(tmp_path)
    assert absolute_uri("landing") == f"{tmp_path}/landing"


def test_the_working_folder_is_the_one_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert working_folder() == tmp_path


def test_a_disk_that_cannot_be_written_at_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with pytest.raises(UsageError, match=r"K535.*set TMPDIR to a folder"):
        scratch_file(None)
    finding = defect(ValueError("odd"))
    assert finding.code == "K599"
    assert "ValueError: odd" in finding.detail


@pytest.mark.parametrize("locale", ["C", "POSIX", "de_DE.ISO-8859-1", "xx_YY.none"])
def test_no_locale_changes_what_is_read_or_ends_a_command(locale: str, tmp_path: Path) -> None:
    file = tmp_path / "tö.yaml"
    file.write_text(FILE.replace("version: 1", "# größer → kleiner\nversion: 1"), encoding="utf-8")
    environ = {**os.environ, "LC_ALL": locale, "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    program = "import sys; sys.argv[1:] = ['lint', sys.argv[1]]; from kodoctl.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, file.name], cwd=tmp_path, env=environ, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("port", ["tcp://10.0.0.1:9464", "udp://10.0.0.1:53", "tcp://[fd00::1]:9464"])
def test_variables_that_a_platform_makes_beside_a_service_are_no_settings(
    port: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A service `kodo-consumer` in front of the metrics let no worker start."""
    made = {
        "KODO_CONSUMER_SERVICE_HOST": "10.0.0.1",
        "KODO_CONSUMER_SERVICE_PORT": "9464",
        "KODO_CONSUMER_SERVICE_PORT_METRICS": "9464",
        "KODO_CONSUMER_PORT": port,
        "KODO_CONSUMER_PORT_9464_TCP": port,
        "KODO_CONSUMER_PORT_9464_TCP_PROTO": "tcp",
        "KODO_CONSUMER_PORT_9464_TCP_PORT": "9464",
        "KODO_CONSUMER_PORT_9464_TCP_ADDR": "10.0.0.1",
    }
    assert read_settings(made, tmp_path) == Settings()
    assert caplog.messages == []
    assert read_settings({**made, "KODO_CONSUMER_PORT": "9464"}, tmp_path) == Settings(port=9464)
    (tmp_path / "kodo-consumer.toml").write_text("port = 9465", encoding="utf-8")
    assert read_settings(made, tmp_path) == Settings(port=9465)
    (tmp_path / "kodo-consumer.toml").unlink()
    with pytest.raises(UsageError, match="K708"):
        read_settings({"KODO_CONSUMER_PORT": "http://10.0.0.1:1"}, tmp_path)


CONFIGURATIONS = {
    "kodoctl.toml": '[contexts.shop]\nadmin_url = "http://h:1"\n',
    "kodo-consumer.toml": 'store = "memory"\n',
}
"""Files that are looked for in the working folder and above it: where commands go; where it stands what is done already."""


def _read(name: str, folder: Path) -> object:
    return read_contexts({}, folder).by_name if name == "kodoctl.toml" else read_settings({}, folder).store


@pytest.mark.usefixtures("homeless")
@pytest.mark.parametrize("link", [False, True], ids=["file", "link"])
@pytest.mark.parametrize(("name", "text"), CONFIGURATIONS.items())
def test_a_file_that_any_user_of_the_machine_may_have_put_above_the_working_folder_is_refused(
    name: str, text: str, link: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below /tmp another user chose the cluster of every command, and the store that says what a worker need not do."""
    shared, own = tmp_path / "shared", tmp_path / "own.toml"
    folder = shared / "mine" / "deep"
    folder.mkdir(parents=True)
    own.write_text(text, encoding="utf-8")
    file = shared / name
    if link:
        file.symlink_to(own)
    else:
        file.write_text(text, encoding="utf-8")
    shared.chmod(0o1777)
    assert _read(name, folder), "one's own, or root's"
    if os.getuid() == 0:
        os.chown(file, 65_534, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 65_534)
    with pytest.raises(KodoctlError, match="lies where everybody may write"):
        _read(name, folder)
    shared.chmod(0o755)
    assert _read(name, folder), "somebody deploys files, and somebody else runs them"
    shared.chmod(0o777)
    (shared / "mine" / name).write_text(text, encoding="utf-8")
    assert os.getuid() or _read(name, folder), "the nearest one counts"
