"""The Docker engine: what it asks of `docker`, and the whole way with a stand-in for it."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kodoctl.dev import docker, instance, process, service
from kodoctl.dev.instance import Auth, EngineName, Folder, Homes, Instance
from kodoctl.dev.ports import Ports
from kodoctl.dev.progress import quiet
from kodoctl.dev.resolve import UpFlags
from kodoctl.dev.service import InstanceState
from kodoctl.dev.up import up
from kodoctl.errors import KodoctlError
from tests.services.polling import eventually
from tests.services.ports import unusual_ports

INSTANCE = Instance("two", "4.2.4", EngineName.DOCKER, Auth.NONE, Ports(8081, 6651, 3182))


def test_the_command_that_starts_a_broker():
    assert docker.run_command(INSTANCE, Path("/home/me/kodoctl/dev/two/conf")) == [
        "run",
        "--detach",
        "--name",
        "kodoctl-dev-two",
        "--publish",
        "127.0.0.1:8081:8081",
        "--publish",
        "127.0.0.1:6651:6651",
        "--mount",
        "type=bind,src=/home/me/kodoctl/dev/two/conf/standalone.conf,dst=/pulsar/conf/standalone.conf,readonly",
        "--mount",
        "type=volume,src=kodoctl-dev-two,dst=/pulsar/data",
        "--env",
        "PULSAR_MEM=-Xms256m -Xmx1536m -XX:MaxDirectMemorySize=1024m",
        "--env",
        "PULSAR_GC=-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "apachepulsar/pulsar:4.2.4",
        "bin/pulsar",
        "standalone",
        "--no-functions-worker",
        "--no-stream-storage",
        "--bookkeeper-port",
        "3182",
    ]


def test_with_tokens_key_and_own_token_are_mounted_beside_it():
    command = docker.run_command(replace(INSTANCE, auth=Auth.TOKEN), Path("/conf"))
    assert [part for part in command if part.startswith("type=bind")] == [
        "type=bind,src=/conf/standalone.conf,dst=/pulsar/conf/standalone.conf,readonly",
        "type=bind,src=/conf/secret.key,dst=/pulsar/conf/secret.key,readonly",
        "type=bind,src=/conf/own-token,dst=/pulsar/conf/own-token,readonly",
    ]


DOCKER = """#!{python}
# keeps one container: its broker answers as soon as it runs, on the port and with the mark of the mounted file
import json, os, subprocess, sys
home = {home!r}
calls = open(os.path.join(home, "calls"), "a"); calls.write(json.dumps(sys.argv[1:]) + "\\n"); calls.close()
here = lambda name: os.path.join(home, name)
pid = int(open(here("container")).read()) if os.path.exists(here("container")) else None
def running():
    try: os.kill(pid, 0)
    except (OSError, TypeError): return False
    return open("/proc/%d/stat" % pid).read().rpartition(")")[2].split()[0] != "Z"
if os.path.exists(here("no-daemon")): sys.exit("Cannot connect to the Docker daemon")
match sys.argv[1:]:
    case ["info"]: pass
    case ["image", "inspect", image]: sys.exit(not os.path.exists(here("image")))
    case ["pull", "--quiet", image]:
        if os.path.exists(here("no-image")): sys.exit("Error response: manifest unknown")
        open(here("image"), "w").close()
    case ["run", *rest]:
        if pid: sys.exit("Conflict. The container name is already in use")
        conf = next(a for a in rest if a.startswith("type=bind")).split("src=")[1].split(",")[0]
        code = open(here("server.py")).read()
        server = subprocess.Popen([sys.executable, "-c", code, conf], start_new_session=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        open(here("container"), "w").write(str(server.pid))
        open(here("volume"), "a").write("started ")
        if os.path.exists(here("port-taken")):
            sys.exit("docker: Error response: port is already allocated\\n\\nRun 'docker run --help' for more information")
    case ["inspect", "--format", "{{{{.State.Running}}}}", name]:
        if not pid: sys.exit("no such object")
        print(str(running()).lower())
    case ["stop", *rest]:
        if running(): os.kill(pid, 15)
    case ["rm", "--force", name]:
        if not pid: sys.exit("no such container")
        if running(): os.kill(pid, 9)
        os.remove(here("container"))
    case ["volume", "inspect", name]: sys.exit(not os.path.exists(here("volume")))
    case ["volume", "rm", "--force", name]:
        if os.path.exists(here("volume")): os.remove(here("volume"))
    case ["logs", "--tail", count, name]: print("broker says hello"); print("to stderr", file=sys.stderr)
    case ["logs", "--follow", *rest]: print("following"); print("\\x1b[2Jstill")
    case other: sys.exit("unknown: %s" % other)
"""

SERVER = """
import http.server, json, sys
conf = dict(line.rstrip("\\n").split("=", 1) for line in open(sys.argv[1]))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = {"/admin/v2/brokers/health": "ok"}.get(self.path) or json.dumps(conf)
        self.send_response(200); self.end_headers(); self.wfile.write(body.encode())
http.server.HTTPServer(("127.0.0.1", int(conf["webServicePort"])), Handler).serve_forever()
"""


class Daemon:
    """A stand-in `docker` first on the PATH, with its state in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        program = folder / "docker"
        program.write_text(DOCKER.format(python=sys.executable, home=str(folder)))
        program.chmod(0o755)
        (folder / "server.py").write_text(SERVER)
        self.environ = {"PATH": f"{folder}:/usr/bin:/bin"}

    @property
    def calls(self) -> list[list[str]]:
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def set(self, name: str) -> None:
        (self.folder / name).touch()

    def kill(self) -> None:
        """Ends the container; it is gone when this returns."""
        container = int((self.folder / "container").read_text())
        os.kill(container, signal.SIGKILL)
        eventually(lambda: process.identify(container) is None)


@pytest.fixture
def daemon(tmp_path):
    found = Daemon(tmp_path / "docker")
    yield found
    if found.has("container"):
        found.kill()


@pytest.fixture
def homes(tmp_path):
    return Homes(tmp_path / "instances", tmp_path / "jars")


@pytest.fixture
def asked():
    return UpFlags("two", preferred=unusual_ports())


def test_the_whole_life_of_an_instance(daemon, homes, asked):
    told = []
    result = up(homes, daemon.environ, asked, told.append)
    assert result.instance.engine is EngineName.DOCKER  # a daemon answers: it is chosen without asking
    assert "Fetching the image apachepulsar/pulsar:4.2.4" in told[0].text
    assert [one.state for one in service.status(homes, daemon.environ)] == [InstanceState.RUNNING]
    assert up(homes, daemon.environ, asked, quiet).already

    engine = service.engine_of(result.instance, homes, daemon.environ)
    assert engine.last_lines(result.instance, 5) == ["broker says hello", "to stderr"]
    assert list(engine.follow(result.instance)) == ["following", "\\x1b[2Jstill"]

    assert service.down(homes, daemon.environ, "two")
    assert not daemon.has("container")
    assert daemon.has("volume")  # data is kept
    assert [one.state for one in service.status(homes, daemon.environ)] == [InstanceState.STOPPED]
    assert not service.down(homes, daemon.environ, "two")

    up(homes, daemon.environ, asked, quiet)
    daemon.kill()
    assert [one.state for one in service.status(homes, daemon.environ)] == [InstanceState.DIED]
    up(homes, daemon.environ, asked, quiet)
    assert (daemon.folder / "volume").read_text() == "started started started "  # the same volume throughout

    service.reset(homes, daemon.environ, "two")
    assert not daemon.has("container")
    assert not daemon.has("volume")
    assert service.status(homes, daemon.environ) == []
    assert [call for call in daemon.calls if call[0] == "pull"] == [["pull", "--quiet", "apachepulsar/pulsar:4.2.4"]]


def test_the_configuration_is_for_inside_and_its_folder_is_private(daemon, homes, asked):
    up(homes, daemon.environ, asked, quiet)
    conf = homes.folder("two").conf
    assert "bindAddress=0.0.0.0\n" in (conf / "standalone.conf").read_text()
    assert (conf / "standalone.conf").stat().st_mode & 0o777 == 0o644  # the container's user is another one
    assert conf.stat().st_mode & 0o777 == 0o700


def test_with_tokens_the_configuration_has_places_and_no_secrets(daemon, homes, asked):
    up(homes, daemon.environ, replace(asked, auth=Auth.TOKEN), quiet)
    folder = homes.folder("two")
    conf = (folder.conf / "standalone.conf").read_text()
    assert "tokenSecretKey=file:///pulsar/conf/secret.key\n" in conf
    assert "brokerClientAuthenticationParameters=file:///pulsar/conf/own-token\n" in conf
    assert (folder.conf / "secret.key").read_bytes() == folder.key.read_bytes()
    assert (folder.conf / "own-token").read_text() == (folder.tokens / "admin").read_text()


def test_an_interrupt_as_soon_as_a_start_is_recorded_ends_what_was_started(daemon, homes, asked, monkeypatch):
    write = instance.write

    def interrupted(folder: Folder, record: Instance) -> Instance:
        write(folder, record)
        if daemon.has("container"):
            monkeypatch.undo()
            raise KeyboardInterrupt
        return record

    monkeypatch.setattr(instance, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        up(homes, daemon.environ, asked, quiet)
    assert not daemon.has("container")
    assert [one.state for one in service.status(homes, daemon.environ)] == [InstanceState.STOPPED]


def test_no_daemon_is_an_error_when_docker_was_asked_for(daemon, homes):
    daemon.set("no-daemon")
    with pytest.raises(KodoctlError, match=r"K618.*no Docker daemon answers"):
        up(homes, daemon.environ, UpFlags("two", engine=EngineName.DOCKER), quiet)
    assert service.status(homes, daemon.environ) == []


def test_without_a_daemon_it_is_java():
    assert service.best_engine({"PATH": "/nowhere"}) is EngineName.JAVA


def test_a_daemon_that_does_not_answer_is_none(daemon):
    assert service.best_engine(daemon.environ) is EngineName.DOCKER
    daemon.set("no-daemon")
    assert service.best_engine(daemon.environ) is EngineName.JAVA


def test_an_image_that_cannot_be_fetched_says_what_docker_said(daemon, homes, asked):
    daemon.set("no-image")
    with pytest.raises(KodoctlError, match=r"K618.*`docker pull` failed: Error response: manifest unknown"):
        up(homes, daemon.environ, asked, quiet)


def test_a_volume_of_another_home_is_not_wiped(daemon, homes, asked):
    daemon.set("volume")
    with pytest.raises(KodoctlError, match=r"K623.*the Docker volume kodoctl-dev-two is there.*\n.*another --name"):
        up(homes, daemon.environ, asked, quiet)
    assert daemon.has("volume")
    assert service.status(homes, daemon.environ) == []


def test_a_stop_without_a_daemon_is_not_taken_for_stopped(daemon, homes, asked):
    up(homes, daemon.environ, asked, quiet)
    daemon.set("no-daemon")
    for change in (service.down, service.reset):
        with pytest.raises(KodoctlError, match=r"K618.*no Docker daemon answers"):
            change(homes, daemon.environ, "two")
    with pytest.raises(KodoctlError, match="K618"):
        up(homes, {"PATH": "/nowhere"}, asked, quiet)
    assert daemon.has("volume")
    assert daemon.has("container")
    found = service.status(homes, daemon.environ)
    assert [(one.state, "no Docker daemon answers" in (one.problem or "")) for one in found] == [
        (InstanceState.UNKNOWN, True)
    ]


def test_a_start_that_fails_tells_the_log_and_leaves_nothing_running(daemon, homes, asked):
    (daemon.folder / "server.py").write_text("raise SystemExit(1)")
    with pytest.raises(KodoctlError, match=r"(?s)K608.*broker says hello"):
        up(homes, daemon.environ, asked, quiet)
    assert not daemon.has("container")


def test_a_container_that_docker_cannot_start_is_removed_and_the_reason_is_told(daemon, homes, asked):
    daemon.set("port-taken")
    with pytest.raises(KodoctlError, match=r"K618.*`docker run` failed: docker: Error response: port is already"):
        up(homes, daemon.environ, asked, quiet)
    assert not daemon.has("container")
    assert [one.state for one in service.status(homes, daemon.environ)] == [InstanceState.STOPPED]


def test_a_volume_is_not_wiped_by_a_start_that_replaces_one_on_java(daemon, homes, asked):
    daemon.set("volume")
    java = Instance("two", "4.2.4", EngineName.JAVA, Auth.NONE, Ports(8081, 6651, 3182))
    instance.write(homes.folder("two"), java)
    with pytest.raises(KodoctlError, match=r"K623.*the Docker volume"):
        up(homes, daemon.environ, asked, quiet)
    assert daemon.has("volume")
    assert service.find_instance(homes, "two") == java


def test_without_a_daemon_nobody_knows_whether_there_is_a_volume(daemon, homes):
    daemon.set("volume")
    daemon.set("no-daemon")
    with pytest.raises(KodoctlError, match="K618"):
        docker.DockerEngine(homes, daemon.environ).leftover(INSTANCE)
