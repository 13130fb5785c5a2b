"""The commands, as far as they go without a broker: what is printed, and exit codes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from kodoctl.cli.application import app
from kodoctl.cli.dev import dev_progress, dev_views
from kodoctl.dev import service
from kodoctl.dev.dev_errors import failure
from kodoctl.dev.instance import Auth, EngineName, Homes, Instance, write
from kodoctl.dev.java_engine import JavaEngine
from kodoctl.dev.ports import Ports
from kodoctl.dev.process import Process
from kodoctl.dev.progress import Download, ProgressStep, WaitProgress

RUNNING = {
    "name": "dev",
    "version": "4.2.4",
    "engine": "java",
    "auth": "none",
    "admin_url": "http://127.0.0.1:8080",
    "broker_url": "pulsar://127.0.0.1:6650",
    "pid": 42,
    "folder": "/home/me/dev",
    "current": False,
    "already": False,
    "seconds": 7.6,
    "tokens": [],
    "state": "running",
    "problem": None,
}


@pytest.fixture
def kodoctl(tmp_path, monkeypatch):
    """Runs a command with folders of its own and nothing on the PATH."""
    monkeypatch.setenv("KODOCTL_DEV_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KODOCTL_CONFIG", str(tmp_path / "kodoctl.toml"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, ["dev", *arguments])


def remember(tmp_path, name="dev", **members):
    instance = Instance(name, "4.2.4", EngineName.JAVA, Auth.NONE, Ports(), ready_once=True)
    homes = Homes(tmp_path / "home", tmp_path)
    return write(homes.folder(name), Instance(**{**{k: getattr(instance, k) for k in instance.__slots__}, **members}))


class TestViews:
    def test_started(self):
        assert dev_views.startup_text(RUNNING) == (
            "`dev` is ready after 8 s: Pulsar 4.2.4 on Java.\n"
            "  admin    http://127.0.0.1:8080\n"
            "  broker   pulsar://127.0.0.1:6650\n"
            "  context  dev, as in kodoctl plan --context dev\n"
            "  data     /home/me/dev\n"
            "Stop it with `kodoctl dev down`; data is kept."
        )

    def test_running_already_and_current_with_tokens_under_another_name(self):
        tokens = [{"role": "planner", "may": "nothing by itself", "token": "a.b.c", "token_file": "/x"}]
        text = dev_views.startup_text(
            RUNNING | {"name": "two", "auth": "token", "already": True, "current": True, "tokens": tokens}
        )
        assert text.startswith("`two` runs already: Pulsar 4.2.4 on Java.\n")
        assert "context  two, the current one\n" in text
        assert "  planner: nothing by itself\n    a.b.c\n" in text
        assert text.endswith("Stop it with `kodoctl dev down --name two`; data is kept.")

    def test_listed(self):
        died = RUNNING | {"name": "two", "state": "died", "auth": "token"}
        hung = RUNNING | {"name": "three", "state": "not ready", "problem": "brokers/health: HTTP 500"}
        hidden = RUNNING | {"state": "unknown", "problem": "no daemon answers"}
        assert dev_views.instance_table([hidden]).endswith("`dev` may run or not: no daemon answers.")
        assert dev_views.instance_table([RUNNING, died, hung]) == (
            "NAME   STATE      PULSAR  AUTH   ADMIN                  BROKER\n"
            "dev    running    4.2.4   none   http://127.0.0.1:8080  pulsar://127.0.0.1:6650\n"
            "two    died       4.2.4   token  http://127.0.0.1:8080  pulsar://127.0.0.1:6650\n"
            "three  not ready  4.2.4   none   http://127.0.0.1:8080  pulsar://127.0.0.1:6650\n"
            "`two` was killed or crashed; why: `kodoctl dev logs --name two`, again: `kodoctl dev up --name two`.\n"
            "`three` runs, but cannot be used (brokers/health: HTTP 500); see `kodoctl dev logs --name three`."
        )

    def test_listed_cluster(self):
        urls = {"admin_url": "http://127.0.0.1:1,http://127.0.0.1:2", "broker_url": "pulsar://127.0.0.1:3,127.0.0.1:4"}
        parts = [
            {"name": "zookeeper", "state": "running", "pid": 7, "port": 2181},
            {"name": "broker-1", "state": "killed", "pid": None, "port": 8080},
        ]
        several = RUNNING | urls | {"state": "not ready", "problem": "not running", "nodes": parts}
        assert dev_views.instance_table([several]) == (
            "NAME  STATE      PULSAR  AUTH  ADMIN                    BROKER\n"
            "dev   not ready  4.2.4   none  http://127.0.0.1:1 (+1)  pulsar://127.0.0.1:3 (+1)\n"
            "Nodes of dev:\n"
            "  zookeeper  running  2181  pid 7\n"
            "  broker-1   killed   8080\n"
            "`dev` runs without broker-1 (killed); to start what is missing: `kodoctl dev up`."
        )


class TestProgress:
    def test_in_a_pipe_a_step_at_once_and_the_rest_every_ten_seconds(self, capsys, monkeypatch):
        now = [100.0]
        monkeypatch.setattr("time.monotonic", lambda: now[0])
        with dev_progress.show_progress() as tell:
            tell(ProgressStep("Fetching Pulsar"))
            for second in range(25):
                now[0] += 1
                tell(Download(second, second * 2, 260))
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err == "Fetching Pulsar\n  9 of about 260 MB, 18 files\n  19 of about 260 MB, 38 files\n"

    @pytest.mark.parametrize(
        ("event", "words"),
        [
            (Download(12.4, 3, 260), "12 of about 260 MB, 3 files"),
            (Download(12.4, 3, 0), "12 MB, 3 files"),
            (WaitProgress(7.2, 120), "waiting until it is ready: 7 s of at most 120 s"),
        ],
    )
    def test_words(self, event, words):
        assert dev_progress.words(event) == words

    def test_on_a_terminal_steps_stay_and_the_rest_is_one_living_line(self, monkeypatch, capsys):
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
        with dev_progress.show_progress() as tell:
            tell(ProgressStep("Starting [red]Pulsar[/red] 4.2.4"))
            tell(WaitProgress(7.2, 120))
        told = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)
        assert "Starting [red]Pulsar[/red] 4.2.4\n" in told


def test_no_instances_yet(kodoctl):
    told = kodoctl("status")
    assert told.exit_code == 1
    assert told.stdout == "No instances; start one with `kodoctl dev up`.\n"
    assert json.loads(kodoctl("status", "--format", "json").stdout) == {"format_version": 1, "instances": []}


@pytest.mark.parametrize(
    "command", [["status", "--name", "two"], ["logs", "--name", "two"], ["token", "x", "--name", "two"]]
)
def test_an_instance_that_is_not_there_names_those_that_are(kodoctl, tmp_path, command):
    remember(tmp_path)
    told = kodoctl(*command)
    assert told.exit_code == 64
    assert told.stderr == (
        "Error: instance not found [K615]\n  `two`: there are: dev; start it with `kodoctl dev up --name two`\n"
    )


def test_cleaning_up_what_is_not_there_is_no_error(kodoctl):
    assert kodoctl("down").stdout == "Nothing to stop: there is no instance `dev`.\n"
    assert kodoctl("down", "--all").stdout == "Nothing to stop: there is no instance.\n"
    assert kodoctl("reset", "--yes").stdout == "Nothing to remove: there is no instance `dev`.\n"


def test_stopped_and_died_are_told_apart(kodoctl, tmp_path):
    remember(tmp_path, "calm")
    remember(tmp_path, "dead", process=Process(1, "long ago"))
    told = kodoctl("status")
    assert told.exit_code == 1
    assert re.search(r"calm +stopped", told.stdout)
    assert re.search(r"dead +died", told.stdout)
    assert kodoctl("down", "--all").stdout == "`calm` was not running.\n`dead` was not running.\n"
    assert re.search(r"dead +stopped", kodoctl("status").stdout)


def test_an_instance_that_cannot_be_stopped_keeps_no_other_from_being_stopped(kodoctl, tmp_path, monkeypatch):
    names = ("calm", "dead", "deaf")
    for name in names:
        remember(tmp_path, name, process=Process(1, "long ago"))
    down = service.down

    def stop(places: Any, environ: Any, name: str, tell: Any) -> bool:
        if name in deaf:
            raise failure("K620", "does not end", f"`{name}`")
        return down(places, environ, name, tell)

    monkeypatch.setattr(service, "down", stop)
    deaf = {"calm"}
    told = kodoctl("down", "--all")
    assert (told.exit_code, told.stdout) == (1, "`dead` was not running.\n`deaf` was not running.\n")
    assert told.stderr.count("K620") == 1
    deaf = {"calm", "deaf"}
    assert kodoctl("down", "--all").stderr.count("K620") == 2


def test_removing_data_wants_to_be_said_twice_without_a_terminal(kodoctl, tmp_path):
    remember(tmp_path)
    told = kodoctl("reset")
    assert told.exit_code == 4
    assert "K619" in told.stderr
    assert "--auto-approve" in told.stderr
    assert (tmp_path / "home" / "dev").exists()
    assert kodoctl("reset", "--yes").stdout == "`dev` is removed with all its data.\n"
    assert not (tmp_path / "home" / "dev").exists()


def test_declining_keeps_everything(kodoctl, tmp_path, monkeypatch):
    remember(tmp_path)
    monkeypatch.setattr("kodoctl.cli.dev.dev_commands.is_terminal", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda question, err: False)
    told = kodoctl("reset")
    assert told.exit_code == 4
    assert "stays as it is" in told.stderr
    assert (tmp_path / "home" / "dev").exists()


def test_the_context_goes_with_the_data(kodoctl, tmp_path):
    remember(tmp_path)
    config = tmp_path / "kodoctl.toml"
    config.write_text(
        'current = "dev"\n[contexts.dev]\nadmin_url = "http://127.0.0.1:8080"\n[contexts.x]\nadmin_url = "http://x"\n'
    )
    kodoctl("reset", "--yes")
    assert config.read_text() == '[contexts.x]\nadmin_url = "http://x"\n'


def test_no_java_stops_up_and_leaves_no_instance(kodoctl):
    told = kodoctl("up")
    assert told.exit_code == 1
    assert "K601" in told.stderr
    assert told.stdout == ""
    assert "No instances" in kodoctl("status").stdout


def test_data_without_a_record_is_not_wiped(tmp_path):
    homes = Homes(tmp_path / "home", tmp_path / "jars")
    kept = homes.folder("dev").data / "kept"
    kept.parent.mkdir(parents=True)
    kept.write_text("precious")
    engine = JavaEngine(homes, {})
    instance = Instance("dev", "4.2.4", EngineName.JAVA, Auth.NONE, Ports())
    assert engine.leftover(instance) == f"the folder {kept.parent}"
    engine.wipe(instance)
    assert engine.leftover(instance) is None


def test_a_context_for_another_cluster_stops_up_before_anything_starts(kodoctl, tmp_path):
    (tmp_path / "kodoctl.toml").write_text('[contexts.dev]\nadmin_url = "https://pulsar.example.com"\n')
    told = kodoctl("up")
    assert told.exit_code == 1
    assert "K617" in told.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["up", "--version", "3.3"], "K611"),
        (["up", "--name", "../x"], "K612"),
        (["up", "--engine", "java", "--admin-port", "80"], "K605"),
        (["status", "--name", "A"], "K612"),
    ],
)
def test_what_cannot_be_is_a_usage_error(kodoctl, arguments, code):
    told = kodoctl(*arguments)
    assert told.exit_code == 64
    assert code in told.stderr


@pytest.mark.parametrize("home", ["file/below", "file"])
def test_a_home_that_cannot_be_a_folder_is_an_error_with_its_place(kodoctl, tmp_path, monkeypatch, home):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KODOCTL_DEV_HOME", str(tmp_path / home))
    told = kodoctl("up")
    assert told.exit_code == 1
    assert "K610" in told.stderr
    assert str(tmp_path / "file") in told.stderr
    assert "KODOCTL_DEV_HOME" in told.stderr


def test_the_log_of_one_that_never_wrote_any_is_empty(kodoctl, tmp_path):
    remember(tmp_path)
    told = kodoctl("logs")
    assert told.exit_code == 0
    assert told.stdout == ""


def test_the_log_ends_with_what_java_said_when_it_died(kodoctl, tmp_path):
    remember(tmp_path, process=Process(1, "long ago"))
    logs = tmp_path / "home" / "dev" / "logs"
    logs.mkdir()
    (logs / "broker.log").write_text("one\ntwo\nthree\n")
    (logs / "console.log").write_text("out of memory\n")
    assert kodoctl("logs").stdout == "one\ntwo\nthree\nout of memory\n"
    assert kodoctl("logs", "-n", "2").stdout == "three\nout of memory\n"
