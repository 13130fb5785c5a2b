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
import threading
import time
from pathlib import Path

import pulsar
import pytest

from kodoctl.dev import jars, ports, service, versions
from kodoctl.dev.instance import EngineName, Homes
from kodoctl.dev.ports import AskedPorts
from kodoctl.dev.progress import ProgressStep, quiet
from kodoctl.dev.resolve import UpFlags
from kodoctl.dev.up import up
from kodoctl.errors import KodoctlError
from tests.brokers.dev_user import CACHE, VERSION, User, admin, alive, client, listening, until
from tests.services.ports import unusual_ports

pytestmark = pytest.mark.broker

TOPIC = "persistent://public/default/kept"


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


def test_ready_means_ready(dev):
    assert admin(dev, "GET", "brokers/health").text == "ok"
    assert admin(dev, "GET", "namespaces/public/default").status_code == 200
    assert admin(dev, "GET", "brokers/version").text.strip('"') == dev["version"] == versions.exact(VERSION)
    assert not dev["already"]


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux says it there")
@pytest.mark.parametrize("which", ["dev", pytest.param("closed", marks=pytest.mark.full)])
def test_nobody_on_another_machine_reaches_any_port_of_it(user, which, request):
    instance = request.getfixturevalue(which)
    found = listening(instance["pid"])
    record = json.loads((user.home / instance["name"] / "instance.json").read_text())
    assert found.keys() >= set(record["ports"].values())
    assert [f"{address}:{port}" for port, address in found.items() if not address.is_loopback] == []
    # the storage asks for the name of where it listens: no answer must not be waited for
    assert "dns.timeout" in (user.home / instance["name"] / "conf" / "jndi.properties").read_text()


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
    base = unusual_ports()
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
    base = unusual_ports()
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


@pytest.mark.full
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
    base = unusual_ports()
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


@pytest.mark.full
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


@pytest.mark.full
def test_another_broker_on_the_port_is_not_taken_for_ours(dev, user, tmp_path, monkeypatch):
    monkeypatch.setattr(ports, "is_free", lambda port: True)
    monkeypatch.setattr("kodoctl.dev.up._ATTEMPTS", 2)
    base = unusual_ports()
    taken = int(dev["admin_url"].rpartition(":")[2])
    asked = UpFlags("fooled", VERSION, engine=EngineName.JAVA, ports=AskedPorts(taken, base.broker, base.bookie))
    homes, said = Homes(tmp_path, CACHE), []
    with pytest.raises(KodoctlError, match=r"(?s)K608.*quicker to take one of its ports"):
        up(homes, os.environ, asked, said.append)
    assert said.count(ProgressStep("A port was taken in the meantime; trying again")) == 1
    assert not any(one.state is service.InstanceState.RUNNING for one in service.status(homes, os.environ))
    assert admin(dev, "GET", "brokers/health").text == "ok"
