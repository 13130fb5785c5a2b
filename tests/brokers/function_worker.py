"""A broker of one's own with a function worker, whose functions and connectors run in its threads, and their package."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from kodoctl.dev import jars, java, node_config, process, readiness, versions
from kodoctl.dev.progress import quiet
from tests.brokers.broker import CACHE, VERSION, Broker
from tests.brokers.workspace import Workspace, isolated
from tests.services.polling import eventually
from tests.services.ports import unusual_ports

_PACKAGES = "org.apache.pulsar.packages.management.storage.filesystem.FileSystemPackagesStorageProvider"
_MEMORY = java.Memory(128, 384, 384)
_NEEDS = {  # of the shipped functions_worker.yml, what has no default in the code
    "functionMetadataTopicName": "metadata",
    "functionAssignmentTopicName": "assignments",
    "clusterCoordinationTopicName": "coordinate",
    "pulsarFunctionsNamespace": "public/functions",
    "pulsarFunctionsCluster": "standalone",
    "schedulerClassName": "org.apache.pulsar.functions.worker.scheduler.RoundRobinScheduler",
    "functionRuntimeFactoryClassName": "org.apache.pulsar.functions.runtime.thread.ThreadRuntimeFactory",
    "functionRuntimeFactoryConfigs": "{threadGroupName: functions}",
    "additionalEnabledFunctionsUrlPatterns": "['.*']",
    "additionalEnabledConnectorUrlPatterns": "['.*']",
    "failureCheckFreqMs": 30_000,
    "rescheduleTimeoutMs": 60_000,
    "instanceLivenessCheckFreqMs": 30_000,
    "topicCompactionFrequencySec": 1800,
    "metricsSamplingPeriodSec": 60,
    "workerListProbeIntervalSec": 60,
    "rebalanceCheckFreqSec": -1,
    "initialBrokerReconnectMaxRetries": 60,
    "assignmentWriteMaxRetries": 60,
}
_CODE = {
    "Echo": """\
public class Echo implements java.util.function.Function<String, String> {
    public String apply(String text) { return text + "!"; }
}
""",
    "Keep": """\
import java.nio.file.*;
import java.util.Map;
import org.apache.pulsar.functions.api.Record;
import org.apache.pulsar.io.core.*;
public class Keep implements Sink<String> {
    private Path file;
    public void open(Map<String, Object> config, SinkContext context) { file = Path.of((String) config.get("file")); }
    public void write(Record<String> record) throws Exception {
        if (record.getValue().startsWith("bad")) { record.fail(); return; }
        Files.writeString(file, record.getValue() + "\\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        record.ack();
    }
    public void close() {}
}
""",
    "Tick": """\
import java.util.Map;
import org.apache.pulsar.functions.api.Record;
import org.apache.pulsar.io.core.*;
public class Tick implements Source<String> {
    private String text;
    public void open(Map<String, Object> config, SourceContext context) { text = (String) config.get("text"); }
    public Record<String> read() throws Exception { Thread.sleep(200); return () -> text; }
    public void close() {}
}
""",
    "Pass": """\
import org.apache.bookkeeper.mledger.Entry;
import org.apache.pulsar.broker.service.plugin.*;
public class Pass implements EntryFilter {
    public FilterResult filterEntry(Entry entry, FilterContext context) { return FilterResult.ACCEPT; }
    public void close() {}
}
""",
}
_FILTERS = ("pass", "also")
_FORMS = {"functions": "functionConfig", "sinks": "sinkConfig", "sources": "sourceConfig"}


class FunctionBroker(Broker):
    """A broker with a function worker. `package`: URL of a jar with the classes `Echo`, a function that adds an
    exclamation mark, `Keep`, a sink that appends texts to the `file` of its settings and fails at "bad", and `Tick`, a
    source of the `text` of its settings, five a second. The worker has `builtin://keep`, the sink, and the broker
    the entry filters `pass` and `also`, which accept all messages.
    """

    package: str = ""

    def functions(self, method: str, path: str, kind: str = "functions", **parts: str) -> requests.Response:
        """A plain call about functions, `sinks` or `sources`; `parts` are those of its form: `config` is JSON, `url` names
        the package.
        """
        names = {"config": (_FORMS[kind], "application/json"), "url": ("url", "text/plain")}
        files = {names[name][0]: (None, text, names[name][1]) for name, text in parts.items()}
        url = f"{self.admin_url}/admin/v3/{kind}/{path}"
        return requests.request(method, url, files=files or None, timeout=60)

    def upload_package(self, path: str) -> None:
        """Makes the jar a package of the cluster; `path`: TYPE/TENANT/NAMESPACE/NAME/VERSION."""
        parts = {
            "metadata": (None, b'{"description": "test"}', "application/json"),
            "file": ("x.jar", Path(self.package.removeprefix("file://")).read_bytes(), "application/java-archive"),
        }
        requests.post(f"{self.admin_url}/admin/v3/packages/{path}", files=parts, timeout=60).raise_for_status()


def _command(folder: Path, admin: int, broker: int, bookie: int, settings: str) -> list[str]:
    """The command that starts it in `folder`; writes its configuration there."""
    version = versions.exact(VERSION)
    found = java.find(os.environ, versions.java_needed(version))
    classpath = jars.ensure(CACHE, version, os.environ, quiet)
    own = {
        "functionsWorkerEnabled": "true",
        "functionsWorkerEnablePackageManagement": "true",
        "enablePackagesManagement": "true",
        "packagesManagementStorageProvider": _PACKAGES,
        "entryFiltersDirectory": str(folder / "filters"),
    }
    worker = {
        **_NEEDS,
        "workerId": "worker",
        "workerHostname": "127.0.0.1",
        "workerPort": admin,
        "pulsarServiceUrl": f"pulsar://127.0.0.1:{broker}",
        "pulsarWebServiceUrl": f"http://127.0.0.1:{admin}",
        "downloadDirectory": folder / "scratch/downloads",
        "connectorsDirectory": folder / "connectors",
    }
    parts = java.arguments(found.feature, classpath, scratch=folder / "scratch", bookie_port=bookie)
    start = parts.index("-cp")
    parts = [*java.options(found.feature, folder / "scratch", _MEMORY), *parts[start:]]
    parts.remove("--no-functions-worker")
    parts[parts.index("rocksdb:data/metadata")] = (
        f"rocksdb://{folder}/data/metadata"  # without // it counts as ZooKeeper
    )
    parts += ["--functions-worker-conf", "conf/functions_worker.yml"]
    texts = {
        "standalone.conf": settings + "".join(f"{key}={value}\n" for key, value in own.items()),
        "functions_worker.yml": "".join(f"{key}: {value}\n" for key, value in worker.items()),
        "log4j2.xml": node_config.packaged_text("log4j2.xml"),
        "logging.properties": "handlers=\n",
        "java.args": java.argument_file(parts),
    }
    for name, text in texts.items():
        (folder / "conf" / name).write_text(text, encoding="utf-8")
    return [str(found.program), "@conf/java.args"]


def _package(folder: Path) -> str:
    for name, text in _CODE.items():
        (folder / f"{name}.java").write_text(text, encoding="utf-8")
    libraries = ":".join(map(str, jars.ensure(CACHE, versions.exact(VERSION), os.environ, quiet)))
    compiler = ["javac", "--release", "17", "-cp", libraries, *(f"{name}.java" for name in _CODE)]
    classes = [f"{name}.class" for name in _CODE]
    service = folder / "META-INF/services/pulsar-io.yaml"
    service.parent.mkdir(parents=True)
    service.write_text("name: keep\ndescription: appends to a file\nsinkClass: Keep\n", encoding="utf-8")
    (folder / "connectors").mkdir()
    archive = ["jar", "cf", "connectors/keep.nar", *classes, "META-INF/services/pulsar-io.yaml"]
    commands = [compiler, ["jar", "cf", "echo.jar", *classes], archive]
    (folder / "filters").mkdir()
    for name in _FILTERS:
        place = folder / name / "META-INF/services/entry_filter.yml"
        place.parent.mkdir(parents=True)
        place.write_text(f"name: {name}\ndescription: accepts all\nentryFilterClass: Pass\n", encoding="utf-8")
        commands.append(["jar", "cf", f"filters/{name}.nar", "Pass.class", "-C", name, "META-INF"])
    for command in commands:
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return (folder / "echo.jar").as_uri()


@pytest.fixture(scope="module")
def function_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FunctionBroker]:
    """One broker with a worker for all tests of a module."""
    folder = tmp_path_factory.mktemp("worker")
    for name in ("conf", "data", "logs", "scratch"):
        (folder / name).mkdir()
    ports = unusual_ports()
    command = _command(
        folder, ports.admin, ports.broker, ports.bookie, node_config.render(ports, str(folder / "scratch"))
    )
    found = FunctionBroker(f"http://127.0.0.1:{ports.admin}", f"pulsar://127.0.0.1:{ports.broker}")
    found.package = _package(folder)
    running = process.start_detached(command, folder=folder, output=folder / "logs/console.log", environ=os.environ)
    try:
        target = readiness.ReadinessTarget(found.admin_url, None, str(folder / "scratch"))
        eventually(lambda: readiness.not_ready([target]) is None, within=240.0, every=0.5)
        eventually(lambda: found.functions("GET", "public/default").ok, within=120.0, every=0.5)
        yield found
    finally:
        if running is not None:
            process.stop(running, patience=20)


@pytest.fixture
def functions(function_broker: FunctionBroker, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Workspace]:
    """A folder and a Pulsar tenant of one's own on the broker with a worker."""
    tenant = f"f{abs(hash(request.node.nodeid)) % 10**8}"
    function_broker.tenant(tenant)
    with isolated(tmp_path), pytest.MonkeyPatch.context() as patch:
        patch.delenv("KODOCTL_FUNCTION_WORKER")
        found = Workspace(function_broker, tmp_path, tenant)
        yield found
        found.end_processes()
