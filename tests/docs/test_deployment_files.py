"""Manifests, units and the image's file, as far as they can be judged without a cluster and without Docker.

Kubernetes' schemas come with kubernetes-validate. Those of KEDA and of the Prometheus operator are in no package: the fields
here were compared with their CustomResourceDefinitions (`config/crd/bases/keda.sh_scaledobjects.yaml` of kedacore/keda,
`example/prometheus-operator-crd` of prometheus-operator/prometheus-operator) and with KEDA's page of the Prometheus scaler.
No test builds the image; the workflow `nightly` does, and starts it as a Pod does.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import typer
import yaml
from kodo_consumer.cli.main import app as consumer_app
from kodo_consumer.runtime.settings import VARIABLE, Settings, read_settings

from kodoctl.cli.application import app
from kodoctl.cli.lazy_commands import LazyGroup
from kodoctl.errors import ExitCode
from kodoctl.host.metrics_server import PATHS
from kodoctl.status.status_metrics import LANE_LABELS, STATUS_METRICS
from tests.docs.test_docs_run import ROOT, steps

_PAGES = sorted((ROOT / "docs").rglob("*.md"))
_PAGE = (ROOT / "docs/how-to/kubernetes.md").read_text(encoding="utf-8")
_YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_KUSTOMIZE = ROOT / "deploy" / "kustomize"
_IMAGE = ROOT / "deploy" / "Dockerfile"
_DASHBOARDS = ROOT / "consumer/kodo_consumer/adapters/metrics/dashboards"
_FIELDS = {
    "ScaledObject": {"scaleTargetRef", "minReplicaCount", "maxReplicaCount", "fallback", "advanced", "triggers"},
    "PodMonitor": {"selector", "podMetricsEndpoints"},
}


def _object(required: str, **properties: Any) -> Any:
    found = {"type": "object", "additionalProperties": False, "properties": properties}
    return {**found, "required": required.split()}


_NUMBER, _TEXT = {"type": "integer", "minimum": 0}, {"type": "string"}
_SCALED_OBJECT = _object(
    "scaleTargetRef triggers",
    scaleTargetRef=_object("name", name=_TEXT, kind=_TEXT, apiVersion=_TEXT),
    minReplicaCount=_NUMBER, maxReplicaCount=_NUMBER, pollingInterval=_NUMBER, cooldownPeriod=_NUMBER,
    fallback=_object("failureThreshold replicas", failureThreshold=_NUMBER, replicas=_NUMBER),
    advanced=_object("", horizontalPodAutoscalerConfig=_object("", behavior={"type": "object"})),
    triggers={"type": "array", "minItems": 1, "items": _object(
        "type metadata", type=_TEXT, name=_TEXT, metadata={"type": "object", "additionalProperties": _TEXT},
    )},
)  # fmt: skip
_TRIGGER_FIELDS = {"serverAddress", "query", "threshold", "activationThreshold", "ignoreNullValues"}

Manifest = dict[str, Any]


def _kustomizations(folder: Path) -> Iterator[tuple[Path, Manifest]]:
    """Folder and kustomization of an overlay, and of everything it is built of."""
    [file] = [*folder.glob("kustomization.y*ml")]
    one = yaml.safe_load(file.read_text(encoding="utf-8"))
    yield folder, one
    for name in (*one.get("resources", ()), *one.get("components", ())):
        if (folder / name).is_dir():
            yield from _kustomizations((folder / name).resolve())


KUSTOMIZATIONS = [*_kustomizations(_KUSTOMIZE / "example")]
FILES = [
    (folder / name).resolve()
    for folder, one in KUSTOMIZATIONS
    for name in one.get("resources", ())
    if not (folder / name).is_dir()
]
MANIFESTS: list[Manifest] = [
    manifest for file in FILES for manifest in yaml.safe_load_all(file.read_text(encoding="utf-8"))
]
GENERATED: dict[str, tuple[Path, Manifest]] = {
    made["name"]: (folder, made) for folder, one in KUSTOMIZATIONS for made in one.get("configMapGenerator", ())
}
NAMES = [f"{one['kind']}-{one['metadata']['name']}" for one in MANIFESTS]
UNITS = [(page, name, text) for page in _PAGES for name, text in steps(page) if name.endswith(".service")]
PODS = {
    one["metadata"]["name"]: (one["spec"]["jobTemplate"]["spec"] if one["kind"] == "CronJob" else one["spec"])[
        "template"
    ]
    for one in MANIFESTS
    if one["kind"] in ("Deployment", "CronJob")
}
CONTAINERS = {name: pod["spec"]["containers"][0] for name, pod in PODS.items()}


def _only(kind: str) -> Manifest:
    [manifest] = [one for one in MANIFESTS if one["kind"] == kind]
    return manifest


def _literals(name: str) -> dict[str, str]:
    return dict(text.split("=", 1) for text in GENERATED[name][1]["literals"])


def _options(args: list[str]) -> dict[str, Any]:
    """Values of a command's parameters; the program's own command line reads them, and refuses what it does not know."""
    program, *rest = args
    command: Any = typer.main.get_command({"kodoctl": app, "kodo-consumer": consumer_app}[program])
    while isinstance(command, LazyGroup):
        command = command.load_all()[rest.pop(0)]
    options: dict[str, Any] = command.make_context(program, rest).params
    return options


def _check(manifest: Manifest) -> None:
    """Against the schemas of Kubernetes. Every process of a run imports this file, and few need the library, which takes a second."""
    import kubernetes_validate

    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=NAMES)
def test_kubernetes_knows_every_field_of_a_manifest(manifest: Manifest) -> None:
    if manifest["kind"] in _FIELDS:
        assert set(manifest["spec"]) <= _FIELDS[manifest["kind"]]
    else:
        _check(manifest)


def _scaled_object() -> Manifest:
    """The object with the triggers of the example's overlay."""
    patch = yaml.safe_load((_KUSTOMIZE / "example/billing/scale.yaml").read_text(encoding="utf-8"))
    spec: Manifest = {**_only("ScaledObject")["spec"], **patch["spec"]}
    return spec


def _check_behavior(spec: Manifest) -> None:
    """KEDA hands the behaviour on to an autoscaler of Kubernetes, whose schema knows every field of it."""
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    scaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "keda"},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", **spec["scaleTargetRef"]},
            "maxReplicas": spec["maxReplicaCount"],
            "behavior": behavior,
        },
    }
    _check(scaler)


def test_keda_and_kubernetes_know_every_field_of_the_scaled_object() -> None:
    import jsonschema
    import kubernetes_validate

    spec = _scaled_object()
    jsonschema.validate(spec, _SCALED_OBJECT)
    _check_behavior(spec)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**spec, "minReplicaCount": "2"}, _SCALED_OBJECT)
    config = {"behavior": {"scaleDown": {"policies": [{"type": "Pods", "value": 1, "seconds": 60}]}}}
    with pytest.raises(kubernetes_validate.ValidationError):
        _check_behavior({**spec, "advanced": {"horizontalPodAutoscalerConfig": config}})


def test_a_field_that_kubernetes_does_not_know_is_noticed() -> None:
    manifest = _only("Service")
    wrong = {**manifest, "spec": {**manifest["spec"], "port": 9465}}
    import kubernetes_validate

    with pytest.raises(kubernetes_validate.ValidationError):
        _check(wrong)


def test_the_example_is_built_of_every_file() -> None:
    others = {
        (folder / name).resolve()
        for folder, one in KUSTOMIZATIONS
        for name in [
            *[file.rpartition("=")[2] for made in one.get("configMapGenerator", ()) for file in made.get("files", ())],
            *[patch["path"] for patch in one.get("patches", ())],
            *one.get("configurations", ()),
        ]
    }
    used = {*FILES, *others, *(file for folder, _ in KUSTOMIZATIONS for file in folder.glob("kustomization.y*ml"))}
    assert {file for file in _KUSTOMIZE.rglob("*") if file.is_file()} == {
        file for file in used if file.is_relative_to(_KUSTOMIZE)
    }


@pytest.mark.parametrize("name", PODS)
def test_a_pod_is_restricted_and_has_no_account(name: str) -> None:
    """As the Pod Security Standard `restricted` says, and more."""
    spec = PODS[name]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert f"USER {spec['securityContext']['runAsUser']}:{spec['securityContext']['fsGroup']}" in _IMAGE.read_text(
        "utf-8"
    )
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    [container] = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"].keys() == {"memory"}, "a worker that is throttled looks like one that hangs"


@pytest.mark.parametrize("name", PODS)
def test_what_a_pod_names_is_there(name: str) -> None:
    spec, container = PODS[name]["spec"], CONTAINERS[name]
    [image] = [
        one
        for _, kustomization in KUSTOMIZATIONS
        for one in kustomization.get("images", ())
        if one["name"] == container["image"]
    ]
    assert {"newName", "newTag"} < set(image)
    secrets = dict(re.findall(r"^kubectl create secret generic (\S+) (.*)$", _PAGE, re.MULTILINE))
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()
    for volume in volumes.values():
        assert volume.get("configMap", {"name": "topologies"})["name"] in GENERATED
        assert volume.get("secret", {"secretName": "pulsar"})["secretName"] in secrets
    for source in container["envFrom"]:
        if "secretRef" in source:
            assert source["secretRef"]["name"] in secrets
        else:
            assert _literals(source["configMapRef"]["name"])
    token = Path(_literals("pulsar")["KODOCTL_TOKEN_FILE"])
    assert f"--from-file={token.name}" in secrets[volumes["pulsar"]["secret"]["secretName"]]
    assert [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "pulsar"] == [
        str(token.parent)
    ]
    for value in re.findall(r"\$\((\w+)\)", " ".join(container["args"])):
        assert value in {**_literals("pulsar"), **_literals("landing")}


@pytest.mark.parametrize("name", PODS)
def test_a_program_takes_its_arguments_and_serves_where_it_is_probed(name: str) -> None:
    container = CONTAINERS[name]
    options = _options(container["args"])
    probes = [value["httpGet"] for key, value in container.items() if key.endswith("Probe")]
    assert {probe["path"] for probe in probes} <= {*PATHS.split(", ")}
    assert {probe["port"] for probe in probes} == {port["name"] for port in container.get("ports", ())}
    if probes:
        [port] = container["ports"]
        image = read_settings(_image_settings(), Path("/"))
        assert port["containerPort"] == (options.get("port") or image.port)
        assert options.get("host", image.host) == "0.0.0.0"
    if "/tmp" in " ".join(container["args"]):
        assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}


def test_selectors_find_the_pods() -> None:
    labels = {name: pod["metadata"]["labels"] for name, pod in PODS.items()}
    for manifest in MANIFESTS:
        spec, name = manifest["spec"], manifest["metadata"]["name"]
        if manifest["kind"] in ("Deployment", "PodDisruptionBudget"):
            assert spec["selector"]["matchLabels"].items() <= labels[name].items()
        if manifest["kind"] == "Service":
            assert spec["selector"].items() <= labels[name].items()
            assert {port["targetPort"] for port in spec["ports"]} <= {
                port["name"] for port in CONTAINERS[name]["ports"]
            }
    monitor = _only("PodMonitor")["spec"]
    assert all(monitor["selector"]["matchLabels"].items() <= one.items() for one in labels.values())
    assert all(
        "metrics" in [port["name"] for port in one.get("ports", [{"name": "metrics"}])] for one in CONTAINERS.values()
    )
    assert monitor["podMetricsEndpoints"] == [{"port": "metrics", "honorLabels": True}]


def test_a_worker_has_time_to_drain() -> None:
    assert PODS["kodo-worker"]["spec"]["terminationGracePeriodSeconds"] * 1000 > Settings().drain_timeout


def test_drift_is_not_tried_again_and_other_failures_are() -> None:
    job = _only("CronJob")["spec"]["jobTemplate"]["spec"]
    first = job["podFailurePolicy"]["rules"][0]
    assert first["action"] == "FailJob"
    assert first["onExitCodes"] == {
        "containerName": "drift",
        "operator": "In",
        "values": [ExitCode.DRIFT, ExitCode.USAGE],
    }
    assert job["template"]["spec"]["restartPolicy"] == "Never", "Kubernetes refuses a podFailurePolicy otherwise"
    assert job["backoffLimit"] > 0


def test_a_scaled_object_asks_for_a_metric_of_the_exporter() -> None:
    spec = _only("ScaledObject")["spec"]
    assert spec["scaleTargetRef"]["name"] == "kodo-worker"
    assert "replicas" not in next(one["spec"] for one in MANIFESTS if one["metadata"]["name"] == "kodo-worker")
    patch = yaml.safe_load((_KUSTOMIZE / "example/billing/scale.yaml").read_text(encoding="utf-8"))
    assert {key: patch[key] for key in ("apiVersion", "kind", "metadata")} == {
        key: _only("ScaledObject")[key] for key in ("apiVersion", "kind", "metadata")
    }
    [trigger] = patch["spec"]["triggers"]
    assert trigger["type"] == "prometheus"
    assert set(trigger["metadata"]) <= _TRIGGER_FIELDS
    assert all(isinstance(value, str) for value in trigger["metadata"].values()), "KEDA takes texts alone"
    query = trigger["metadata"]["query"]
    promql_parser.parse(query)
    [(metric, labels)] = re.findall(r"(kodo_\w+)\{(.*?)\}", query)
    assert metric in {one.name for one in STATUS_METRICS}
    values = dict(re.findall(r'(\w+)="(.*?)"', labels))
    assert values.keys() <= set(LANE_LABELS)
    topology = yaml.safe_load((_KUSTOMIZE / "example/topologies/shop.yaml").read_text(encoding="utf-8"))
    assert values["namespace"] == f"{topology['tenant']}/{topology['namespace']}"
    subscription = topology["topics"][values["topic"]]["subscriptions"][values["subscription"]]
    assert subscription["expected_workers"] == spec["minReplicaCount"]


def test_the_page_shows_the_topology_and_the_query_of_the_example() -> None:
    shown = dict(steps(ROOT / "docs/how-to/kubernetes.md"))["shop.yaml"]
    assert shown.partition("\n")[2] == (_KUSTOMIZE / "example/topologies/shop.yaml").read_text(encoding="utf-8")
    [query] = [yaml.safe_load(block) for block in _YAML.findall(_PAGE) if block.startswith("triggers:")]
    scale = yaml.safe_load((_KUSTOMIZE / "example/billing/scale.yaml").read_text(encoding="utf-8"))
    assert query == scale["spec"]


def test_configmaps_have_the_files_that_the_command_writes(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", "from kodo_consumer.cli.main import main; main()", "dashboards", "--out", tmp_path],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    made = ["kodo-dashboard", "kodo-alerts"]
    files = [file.rpartition("=")[2] for name in made for file in GENERATED[name][1]["files"]]
    assert sorted(files) == sorted(file.name for file in tmp_path.iterdir())
    for name, file in zip(made, files, strict=True):
        assert GENERATED[name][0] == _DASHBOARDS
        assert (_DASHBOARDS / file).read_bytes() == (tmp_path / file).read_bytes()


@pytest.mark.skipif(
    not (shutil.which("kustomize") or shutil.which("kubectl")), reason="neither kustomize nor kubectl here"
)
def test_kustomize_builds_the_example_and_a_second_program(tmp_path: Path) -> None:
    for folder in (_KUSTOMIZE, _DASHBOARDS):
        shutil.copytree(folder, tmp_path / folder.relative_to(ROOT))
    example = tmp_path / _KUSTOMIZE.relative_to(ROOT) / "example"
    shutil.copytree(example / "billing", example / "shipping")
    for file in ("kustomization.yaml", "shipping/kustomization.yaml"):
        text = (example / file).read_text(encoding="utf-8")
        other = text.replace(" billing]", " billing, shipping]").replace("-billing", "-shipping")
        (example / file).write_text(other, encoding="utf-8")

    program = ["kustomize", "build"] if shutil.which("kustomize") else ["kubectl", "kustomize"]
    done = subprocess.run([*program, example], capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr
    built = {
        (one["kind"], re.sub(r"-[a-z0-9]{10}$", "", one["metadata"]["name"])): one
        for one in yaml.safe_load_all(done.stdout)
    }
    worker = ["Deployment", "PodDisruptionBudget", "ScaledObject"]
    assert built.keys() == {
        *((one["kind"], one["metadata"]["name"]) for one in MANIFESTS if one["metadata"]["name"] != "kodo-worker"),
        *(("ConfigMap", name) for name in GENERATED),
        *((kind, f"kodo-worker-{name}") for kind in worker for name in ("billing", "shipping")),
    }
    configs = {one["metadata"]["name"] for one in built.values() if one["kind"] == "ConfigMap"}
    for (kind, _), one in built.items():
        assert one["metadata"]["namespace"] == "shop"
        if kind not in _FIELDS:
            _check(one)
        assert {*re.findall(r"'configMap(?:Ref)?': {'name': '([^']+)'", str(one))} <= configs
        assert not re.search(r"'image': '[\w-]+'", str(one)), "an image without a registry"
    for name in ("kodo-worker-billing", "kodo-worker-shipping"):
        deployment, budget, scaled = [built[kind, name]["spec"] for kind in worker]
        assert deployment["selector"] == budget["selector"] == {"matchLabels": {"app.kubernetes.io/name": name}}
        assert scaled["scaleTargetRef"]["name"] == name
        assert scaled["triggers"]
    for name, key, file in (("dashboard", "kodo.json", "consumer.json"), ("alerts", "kodo.yaml", "alerts.yaml")):
        assert built["ConfigMap", f"kodo-{name}"]["data"][key] == (_DASHBOARDS / file).read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize(("page", "name", "text"), UNITS, ids=[name for _, name, _ in UNITS])
def test_systemd_takes_a_unit(page: Path, name: str, text: str, tmp_path: Path) -> None:
    unit = tmp_path / name
    installed = re.sub(r"^(Exec\w+=)/\S+", rf"\g<1>{sys.executable}", text, flags=re.MULTILINE)
    unit.write_text(installed, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert name not in done.stderr, f"{page.name}: {done.stderr}"


def _image_settings() -> dict[str, str]:
    return dict(re.findall(rf"({VARIABLE}\w+)=(\S+)", _IMAGE.read_text(encoding="utf-8")))


def test_the_image_copies_what_is_there_and_sets_settings_that_exist() -> None:
    text = _IMAGE.read_text(encoding="utf-8").replace("\\\n", " ")
    copied = [words.split()[:-1] for words in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE)]
    assert [path for paths in copied for path in paths if not (ROOT / path).exists()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {path.split("/")[0] for path in packages} <= {path for paths in copied for path in paths}
    assert read_settings(_image_settings(), Path("/")) == Settings(host="0.0.0.0", port=9464)  # within a container
    assert re.search(r"^USER \d+:\d+$", text, re.MULTILINE), "Kubernetes takes only a number for no root"
    [extras] = re.findall(r"^# Extras of pyproject.toml, with commas: ([\w, ]+)\.", text, re.MULTILINE)
    assert {*extras.split(", ")} == project["project"]["optional-dependencies"].keys() - {"fast"}


def test_the_image_has_the_connector_of_the_page() -> None:
    [connector] = re.findall(r"^ARG CONNECTOR=(\S+)$", _IMAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert f"spark.jars.packages {connector}\n" in (ROOT / "docs/how-to/object-stores.md").read_text(encoding="utf-8")
