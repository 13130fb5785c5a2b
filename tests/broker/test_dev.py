"""`kodoctl dev` with real brokers, started, killed and looked at as a user does: through the command line.

Starting takes 8 to 20 seconds, so one broker serves most tests; those that end it are last and put it back.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import platformdirs
import pulsar
import pytest
import requests

from kodoctl.dev import jars, ports, process, service, shared, versions
from kodoctl.dev import up as up_module
from kodoctl.dev.instance import EngineName, Homes
from kodoctl.dev.ports import AskedPorts
from kodoctl.dev.progress import Step, quiet
from kodoctl.dev.settle import Asked
from kodoctl.errors import KodoctlError

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("dev")]

VERSION = os.environ.get("KODOCTL_TEST_PULSAR", "4.2")
CACHE = platformdirs.user_cache_path("kodoctl")
TOPIC = "persistent://public/default/kept"


@dataclass(frozen=True)
class Told:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


class User:
    """Somebody with a home of their own (with a space in its name), who types commands."""

    def __init__(self, folder: Path) -> None:
        self.home, self.config = folder / "my home", folder / "kodoctl.toml"
        own = {"KODOCTL_DEV_HOME": str(self.home), "KODOCTL_CONFIG": str(self.config)}
        self.environ = {**os.environ, **own}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "kodoctl", "dev", *arguments]

    def types(self, *arguments: str, **environ: str) -> Told:
        told = subprocess.run(
            self.command(*arguments), env={**self.environ, **environ}, capture_output=True, text=True, check=False
        )
        return Told(told.returncode, told.stdout, told.stderr)

    def gets(self, *arguments: str) -> dict:
        told = self.types(*arguments, "--format", "json")
        assert told.code == 0, told.err
        return told.json

    def starts(self, *arguments: str) -> dict:
        base = shared.unusual_ports()
        named = ("--admin-port", base.admin), ("--broker-port", base.broker), ("--bookie-port", base.bookie)
        chosen = [part for option, port in named if option not in arguments for part in (option, str(port))]
        return self.gets("up", "--engine", "java", "--version", VERSION, *chosen, *arguments)

    def pid(self, name: str) -> int:
        return next(
            one["pid"] for one in self.types("status", "--format", "json").json["instances"] if one["name"] == name
        )


@pytest.fixture(scope="module")
def user(tmp_path_factory):
    jars.ensure(CACHE, versions.exact(VERSION), os.environ, quiet)
    found = User(tmp_path_factory.mktemp("user"))
    yield found
    told = found.types("down", "--all")
    assert told.code == 0, told.err


@pytest.fixture(scope="module")
def dev(user):
    """The broker that most tests look at."""
    return user.starts()


@pytest.fixture(scope="module")
def closed(user, dev):
    """A second broker beside the first, with token authentication."""
    return user.starts("--name", "closed", "--auth", "token")


def admin(instance: dict, method: str, path: str, body: object = None, token: str | None = None) -> requests.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return requests.request(method, f"{instance['admin_url']}/admin/v2/{path}", json=body, headers=headers, timeout=30)


def client(instance: dict, token: str | None = None) -> pulsar.Client:
    return pulsar.Client(
        instance["broker_url"],
        authentication=pulsar.AuthenticationToken(token) if token else None,
        operation_timeout_seconds=10,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )


def publish(instance: dict, texts: list[str]) -> None:
    with_client = client(instance)
    producer = with_client.create_producer(TOPIC)
    for text in texts:
        producer.send(text.encode())
    with_client.close()


def waiting(instance: dict) -> list[str]:
    """Every message of the topic, read without taking any away."""
    with_client = client(instance)
    reader = with_client.create_reader(TOPIC, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(10_000).data().decode())
    with_client.close()
    return found


def alive(pid: int) -> bool:
    return process.identify(pid) is not None


def until(condition, seconds: float = 60):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "not within the time"
        time.sleep(0.05)
    return found


def test_ready_means_ready(dev):
    assert admin(dev, "GET", "brokers/health").text == "ok"
    assert admin(dev, "GET", "namespaces/public/default").status_code == 200
    assert admin(dev, "GET", "brokers/version").text.strip('"') == dev["version"] == versions.exact(VERSION)
    assert not dev["already"]


def test_undeclared_topics_are_not_made(dev):
    with_client = client(dev)
    with pytest.raises(pulsar.TopicNotFound):
        with_client.create_producer("persistent://public/default/nobody-declared-me")
    with_client.close()


def test_delays_are_kept_to_a_tenth_of_a_second(dev):
    assert admin(dev, "PUT", "persistent/public/default/delayed").ok
    with_client = client(dev)
    consumer = with_client.subscribe("delayed", "s", consumer_type=pulsar.ConsumerType.Shared)
    producer = with_client.create_producer("delayed")
    begin = time.monotonic()
    producer.send(b"x", deliver_at=int(time.time() * 1000) + 500)
    consumer.receive(20_000)
    took = time.monotonic() - begin
    with_client.close()
    assert took >= 0.45


def test_up_again_says_how_to_connect_and_starts_nothing(user, dev):
    told = user.types("up")
    assert told.code == 0
    assert "`dev` runs already" in told.out
    assert dev["admin_url"] in told.out
    assert dev["broker_url"] in told.out
    assert user.pid("dev") == dev["pid"]


def test_status_for_people_and_for_scripts(user, dev):
    told = user.types("status")
    assert told.code == 0
    assert re.search(rf"dev +running +{dev['version']} +none +{dev['admin_url']} +{dev['broker_url']}", told.out)
    assert max(map(len, told.out.splitlines())) <= 80
    only = user.types("status", "--name", "dev", "--format", "json").json["instances"]
    assert [(one["name"], one["state"], one["pid"]) for one in only] == [("dev", "running", dev["pid"])]


def test_a_context_is_there_and_not_current_until_asked(user, dev):
    assert 'current = "dev"' not in user.config.read_text()
    assert f'admin_url = "{dev["admin_url"]}"' in user.config.read_text()
    assert user.types("up", "--use").code == 0
    assert 'current = "dev"' in user.config.read_text()


def test_logs_end_where_the_broker_is_and_follow_it(user, dev):
    assert len(user.types("logs", "-n", "5").out.splitlines()) == 5
    with subprocess.Popen(
        user.command("logs", "--follow", "-n", "0"), env=user.environ, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout is not None
        try:
            done = threading.Event()
            busy = threading.Thread(target=keep_busy, args=(dev, done))
            busy.start()
            assert any("seen-" in line for line in reader.stdout)
        finally:
            done.set()
            busy.join()
            reader.send_signal(signal.SIGINT)
    assert reader.returncode == 130


def keep_busy(instance: dict, done: threading.Event) -> None:
    """Something for the log, again and again: nobody can see when its reader begins to look."""
    while not done.wait(0.2):
        admin(instance, "PUT", f"persistent/public/default/seen-{time.monotonic_ns()}")


def test_a_taken_port_is_named_with_who_has_it(user, dev):
    taken = str(dev["admin_url"].rpartition(":")[2])
    told = user.types("up", "--name", "two", "--engine", "java", "--admin-port", taken)
    assert told.code == 1
    assert "K604" in told.err
    assert f"admin port {taken}" in told.err
    assert "taken by the instance `dev`" in told.err
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        if port <= ports.HIGHEST:
            told = user.types("up", "--name", "two", "--engine", "java", "--broker-port", str(port))
            assert "taken by another program" in told.err
    assert "two" not in user.types("status").out


def test_asking_for_something_else_than_runs_is_refused(user, dev):
    told = user.types("up", "--auth", "token")
    assert told.code == 1
    assert "K614" in told.err
    assert alive(dev["pid"])


def test_another_process_on_the_same_data_dies_and_the_reason_is_told(user, dev):
    base = shared.unusual_ports()
    homes = Homes(user.home, CACHE)
    rival = homes.folder("rival")
    rival.path.mkdir()
    rival.data.symlink_to(homes.folder("dev").data)
    record = json.loads(homes.folder("dev").record.read_text())
    record |= {
        "name": "rival",
        "process": None,
        "ports": {"admin": base.admin, "broker": base.broker, "bookie": base.bookie},
    }
    rival.record.write_text(json.dumps(record))
    try:
        told = user.types("up", "--name", "rival")
        assert told.code == 1
        assert "K608" in told.err
        assert "another process has its data open" in told.err
        assert re.search(r"\| .*LOCK", told.err)
        assert str(rival.logs / "broker.log") in told.err
        assert "\tat " not in told.err
    finally:
        rival.data.unlink()
        shutil.rmtree(rival.path)
    assert admin(dev, "GET", "brokers/health").text == "ok"


def test_data_that_nothing_says_the_name_of_is_not_wiped(user, dev):
    kept = user.home / "strange" / "data" / "kept"
    kept.parent.mkdir(parents=True)
    kept.write_text("precious")
    told = user.types("up", "--name", "strange", "--engine", "java", "--version", VERSION)
    assert told.code == 1
    assert "K623" in told.err
    assert str(kept.parent) in told.err
    assert kept.read_text() == "precious"
    assert "strange" not in user.types("status").out


def test_interrupting_a_start_ends_what_it_started(user, dev):
    base = shared.unusual_ports()
    chosen = ["--admin-port", str(base.admin), "--broker-port", str(base.broker), "--bookie-port", str(base.bookie)]
    with subprocess.Popen(
        user.command("up", "--name", "hasty", "--engine", "java", "--version", VERSION, *chosen),
        env=user.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        record = user.home / "hasty" / "instance.json"
        pid = until(lambda: record.exists() and (json.loads(record.read_text())["process"] or {}).get("pid"))
        assert alive(pid)
        command.send_signal(signal.SIGINT)
        _, told = command.communicate(timeout=60)
    assert command.returncode == 130
    assert "Interrupted." in told
    assert not alive(pid)
    assert user.types("reset", "--name", "hasty", "--yes").code == 0


def test_data_and_policies_outlive_down_and_kill_and_strangers_with_its_pid(user, dev):
    assert admin(dev, "PUT", "persistent/public/default/kept").ok
    assert admin(dev, "POST", "namespaces/public/default/messageTTL", 4711).ok
    publish(dev, ["one", "two"])

    assert user.types("down").out == "`dev` is stopped; data is kept.\n"
    assert not alive(dev["pid"])
    told = user.types("status", "--name", "dev")
    assert told.code == 1
    assert "stopped" in told.out

    again = user.gets("up")  # nothing is said anew: ports, version and engine are as before
    assert (again["admin_url"], again["broker_url"]) == (dev["admin_url"], dev["broker_url"])
    assert waiting(again) == ["one", "two"]
    publish(again, ["three"])

    os.kill(again["pid"], signal.SIGKILL)
    until(lambda: not alive(again["pid"]))
    told = user.types("status", "--name", "dev")
    assert told.code == 1
    assert "`dev` was killed or crashed" in told.out

    # its number is given to somebody else meanwhile: that one is not ours, and is left alone
    with subprocess.Popen(["/bin/sleep", "600"]) as stranger:
        record = user.home / "dev" / "instance.json"
        content = json.loads(record.read_text())
        content["process"]["pid"] = stranger.pid
        record.write_text(json.dumps(content))
        told = user.types("up")
        assert told.code == 0
        assert "killed or crashed; starting it again on the same data" in told.err
        assert stranger.poll() is None
        stranger.kill()
    assert waiting(again) == ["one", "two", "three"]
    assert admin(again, "GET", "namespaces/public/default/messageTTL").json() == 4711


def test_damaged_data_is_told_with_the_way_out(user):
    folder = user.home / "broken"
    shutil.copytree(user.home / "dev", folder, ignore=shutil.ignore_patterns("LOCK", "tmp"))
    base = shared.unusual_ports()
    record = json.loads((folder / "instance.json").read_text())
    record |= {
        "name": "broken",
        "process": None,
        "ports": {"admin": base.admin, "broker": base.broker, "bookie": base.bookie},
    }
    (folder / "instance.json").write_text(json.dumps(record))
    (folder / "data" / "metadata" / "CURRENT").write_text("garbage")
    told = user.types("up", "--name", "broken")
    assert told.code == 1
    assert "K608" in told.err
    assert "data is damaged" in told.err
    assert "`kodoctl dev reset --name broken`" in told.err
    assert "RocksDBException: CURRENT file" in told.err
    assert user.types("reset", "--name", "broken", "--yes").code == 0
    assert not folder.exists()


class TestTokens:
    """Who gets in, and what they may."""

    def test_two_run_side_by_side(self, user, dev, closed):
        told = user.types("status")
        assert told.code == 0
        assert re.search(r"closed +running +\S+ +token ", told.out)
        assert re.search(r"dev +running +\S+ +none ", told.out)
        assert dev["admin_url"] != closed["admin_url"]

    def test_nobody_gets_in_without_a_token_or_with_a_wrong_one(self, closed):
        for token in (None, "a.b.c"):
            assert admin(closed, "GET", "tenants", token=token).status_code == 401

    def test_each_role_may_what_up_said(self, user, closed):
        told = {role["role"]: role for role in closed["tokens"]}
        assert set(told) == {"applier", "planner", "consumer", "producer"}
        assert admin(closed, "GET", "tenants", token=told["applier"]["token"]).status_code == 200
        body = {"allowedClusters": ["standalone"], "adminRoles": ["planner"]}
        assert admin(closed, "PUT", "tenants/mine", body, told["applier"]["token"]).status_code == 204
        assert admin(closed, "GET", "namespaces/mine", token=told["planner"]["token"]).status_code == 200
        for role in ("consumer", "producer"):
            assert admin(closed, "GET", "namespaces/mine", token=told[role]["token"]).status_code in (401, 403)
        assert admin(closed, "PUT", "tenants/other", body, told["planner"]["token"]).status_code in (401, 403)

    def test_clients_get_in_with_what_they_were_granted(self, user, closed):
        applier = user.types("token", "applier", "--name", "closed").out.strip()
        someone = user.types("token", "some-service", "--name", "closed")
        assert someone.err == ""
        assert re.fullmatch(r"[\w-]+\.[\w-]+\.[\w-]+\n", someone.out)  # the token and nothing else
        assert admin(closed, "PUT", "persistent/public/default/granted", token=applier).ok
        path = "namespaces/public/default/permissions/some-service"
        assert admin(closed, "POST", path, ["produce"], applier).ok
        with_client = client(closed, someone.out.strip())
        with_client.create_producer("granted").send(b"x")
        with pytest.raises(pulsar.AuthorizationError):
            with_client.subscribe("granted", "s")
        with_client.close()

    def test_the_context_presents_the_appliers_token(self, user, closed):
        told = user.types("token", "applier", "--name", "closed").out.strip()
        found = re.search(r'\[contexts\.closed\][^\[]*token_file = "([^"]+)"', user.config.read_text())
        assert found
        assert Path(found[1]).read_text() == told

    def test_up_again_prints_the_same_tokens(self, user, closed):
        told = user.types("up", "--name", "closed")
        for role in closed["tokens"]:
            assert role["token"] in told.out
            assert f"{role['role']}: {role['may']}" in told.out

    def test_no_secret_gets_into_logs_and_no_file_with_one_is_for_others(self, user, closed):
        folder = user.home / "closed"
        admin_token = (folder / "tokens" / "admin").read_text()
        key = (folder / "secret.key").read_bytes()
        for file in [*(folder / "logs").iterdir(), *(folder / "conf").iterdir()]:
            content = file.read_bytes()
            assert key not in content
            assert base64.b64encode(key) not in content
            assert admin_token.encode() not in content
        for file in folder.rglob("*"):
            if file.is_file() and (key in file.read_bytes() or admin_token.encode() in file.read_bytes()):
                assert file.stat().st_mode & 0o077 == 0, file

    def test_no_tokens_for_a_broker_without_authentication(self, user, dev):
        told = user.types("token", "planner")
        assert told.code == 1
        assert "K616" in told.err
        assert told.out == ""


class TestMissing:
    """What a machine may lack. Nothing starts here."""

    def only(self, folder: Path, *programs: str) -> str:
        folder.mkdir()
        for program in programs:
            found = shutil.which(program)
            assert found
            (folder / program).symlink_to(found)
        return str(folder)

    @pytest.fixture
    def somebody(self, tmp_path):
        return User(tmp_path)

    def test_no_java(self, somebody, tmp_path):
        told = somebody.types("up", PATH=self.only(tmp_path / "bin"), JAVA_HOME="")
        assert told.code == 1
        assert "K601" in told.err
        assert "Traceback" not in told.err

    def test_java_too_old(self, somebody, tmp_path):
        old = tmp_path / "java"
        old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.22\" 2024-01-16' >&2\n")
        old.chmod(0o755)
        told = somebody.types("up", PATH=f"{tmp_path}:/usr/bin:/bin", JAVA_HOME="")
        assert told.code == 1
        assert "is Java 11; Pulsar needs 17 or newer" in told.err

    def test_no_maven(self, somebody, tmp_path):
        told = somebody.types("up", PATH=self.only(tmp_path / "bin", "java"), XDG_CACHE_HOME=str(tmp_path / "cache"))
        assert told.code == 1
        assert "K603" in told.err

    def test_no_network(self, somebody, tmp_path):
        """The user's real Maven with an empty repository of its own, and a proxy where nobody listens."""
        settings = tmp_path / ".m2" / "settings.xml"
        settings.parent.mkdir()
        settings.write_text(
            "<settings><mirrors><mirror><id>corp</id><mirrorOf>*</mirrorOf>"
            "<url>http://127.0.0.1:9/private-mirror</url></mirror></mirrors></settings>"
        )
        told = somebody.types(
            "up", "--engine", "java", XDG_CACHE_HOME=str(tmp_path / "cache"), MAVEN_OPTS=f"-Duser.home={tmp_path}"
        )
        assert told.code == 1
        assert "K606" in told.err
        assert "the Maven repository cannot be reached" in told.err
        assert "private-mirror" not in told.err
        assert "corp" not in told.err
        log = re.search(r"full log: (.*)", told.err)
        assert log
        assert "private-mirror" in Path(log[1]).read_text()
        assert "No instances" in somebody.types("status").out

    @pytest.fixture
    def tiny_disk(self, tmp_path):
        place = tmp_path / "tiny"
        place.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", place], check=False, capture_output=True
        )
        if mounted.returncode != 0:
            pytest.skip("mounting a small disk needs root")
        yield place
        subprocess.run(["umount", place], check=True)

    def test_disk_full(self, somebody, tiny_disk):
        told = somebody.types("up", "--engine", "java", KODOCTL_DEV_HOME=str(tiny_disk))
        assert told.code == 1
        assert "K607" in told.err
        assert "20 MB are free" in told.err
        (tiny_disk / "fill").write_bytes(b"x" * (20 * 2**20 - 64 * 1024))
        with pytest.raises(OSError, match="No space left"):
            (tiny_disk / "more").write_bytes(b"x" * 2**20)
        told = somebody.types("up", "--engine", "java", KODOCTL_DEV_HOME=str(tiny_disk))
        assert told.code == 1
        assert "K607" in told.err
        assert "Traceback" not in told.err


def test_a_port_taken_at_the_last_moment_is_chosen_anew(tmp_path, monkeypatch):
    """The check says free, and a stranger is quicker: the broker dies of it, and others are tried."""
    base = shared.unusual_ports()
    homes = Homes(tmp_path, CACHE)
    told = []
    with socket.create_server(("127.0.0.1", base.bookie)):
        lies = iter([True])
        honest = ports.is_free
        monkeypatch.setattr(ports, "is_free", lambda port: honest(port) or (port == base.bookie and next(lies, False)))
        asked = Asked("racer", VERSION, engine=EngineName.JAVA, preferred=base)
        try:
            result = up_module.up(homes, os.environ, asked, told.append)
            assert result.instance.ports.bookie != base.bookie
            assert Step("A port was taken in the meantime; choosing others") in told
        finally:
            service.reset(homes, os.environ, "racer")


def test_another_broker_on_the_port_is_not_taken_for_ours(dev, user, tmp_path, monkeypatch):
    monkeypatch.setattr(ports, "is_free", lambda port: True)
    base = shared.unusual_ports()
    taken = int(dev["admin_url"].rpartition(":")[2])
    asked = Asked("fooled", VERSION, engine=EngineName.JAVA, ports=AskedPorts(taken, base.broker, base.bookie))
    homes = Homes(tmp_path, CACHE)
    with pytest.raises(KodoctlError, match=r"(?s)K608.*quicker to take one of its ports"):
        up_module.up(homes, os.environ, asked)
    assert not any(one.state is service.State.RUNNING for one in service.status(homes, os.environ))
    assert admin(dev, "GET", "brokers/health").text == "ok"


SHARING = """
import os, pathlib, pytest

@pytest.mark.parametrize("number", range(4))
def test_it(broker, namespace, number):
    assert broker.admin("GET", "namespaces/" + namespace).ok
    pathlib.Path(os.environ["OUT"], f"{number}-{os.getpid()}").write_text(broker.admin_url)
    if number == 3 and "HANG" in os.environ:
        import time
        time.sleep(600)
"""


class TestSharing:
    """The fixture `broker` of a run, tried in runs of their own."""

    @pytest.fixture
    def run(self, tmp_path):
        root = Path(__file__).parents[2]
        shutil.copy(root / "tests" / "conftest.py", tmp_path)
        (tmp_path / "test_sharing.py").write_text(SHARING)
        (tmp_path / "out").mkdir()
        environ = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("KODOCTL_TEST_ADMIN", "KODOCTL_TEST_BROKER", "PYTEST_"))
        }
        config = ["-c", str(root / "pyproject.toml"), "--rootdir", str(tmp_path), "-p", "no:cacheprovider"]
        base = [sys.executable, "-m", "pytest", "-q", *config, str(tmp_path)]

        def start(*options: str, **more: str) -> subprocess.Popen[str]:
            return subprocess.Popen(
                [*base, *options],
                env={**environ, "OUT": str(tmp_path / "out"), **more},
                stdout=subprocess.PIPE,
                text=True,
            )

        return start

    def outcome(self, tmp_path):
        files = list((tmp_path / "out").iterdir())
        return {file.name.split("-")[1] for file in files}, {file.read_text() for file in files}

    def gone(self, url: str) -> bool:
        return ports.is_free(int(url.rpartition(":")[2]))

    def test_workers_share_one_and_it_ends_with_the_run(self, run, tmp_path):
        with run("-n", "2") as pytest_process:
            told, _ = pytest_process.communicate(timeout=240)
        assert pytest_process.returncode == 0, told
        workers, urls = self.outcome(tmp_path)
        assert len(workers) == 2
        assert len(urls) == 1
        assert self.gone(urls.pop())

    def test_it_ends_with_a_run_that_is_asked_to_end(self, run, tmp_path):
        with run(HANG="1") as pytest_process:
            until(lambda: len(list((tmp_path / "out").iterdir())) == 4, 200)
            pytest_process.send_signal(signal.SIGTERM)
            pytest_process.communicate(timeout=60)
        assert pytest_process.returncode == 2  # as after Ctrl-C
        _, urls = self.outcome(tmp_path)
        assert self.gone(urls.pop())
