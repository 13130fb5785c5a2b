"""Manifests, units and the image's file of the documentation, as far as they can be judged without a cluster and without Docker.

Kubernetes' schemas come with kubernetes-validate. KEDA's are in no package: the fields here were compared with its
CustomResourceDefinition (`config/crd/bases/keda.sh_scaledobjects.yaml` of kedacore/keda) and its page of the Prometheus
scaler. The image was not built by a test; its commands are those of the workflow `check`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import promql_parser
import pytest
import yaml
from kodo_consumer.runtime.settings import VARIABLE, Settings, read_settings

from kodoctl.status.status_metrics import LANE_LABELS, STATUS_METRICS
from tests.docs.test_docs_run import ROOT, steps

_PAGES = sorted((ROOT / "docs").rglob("*.md"))
_YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SCALED = "keda.sh/v1alpha1"
_SCALED_FIELDS = {
    "scaleTargetRef", "minReplicaCount", "maxReplicaCount", "fallback", "advanced", "triggers", "pollingInterval",
    "cooldownPeriod",
}  # fmt: skip
_TRIGGER_FIELDS = {"serverAddress", "query", "threshold", "activationThreshold", "ignoreNullValues"}
_IMAGE = ROOT / "deploy" / "worker.Dockerfile"

MANIFESTS: list[tuple[str, dict[str, Any]]] = [
    (page.stem, manifest)
    for page in _PAGES
    for block in _YAML.findall(page.read_text(encoding="utf-8"))
    if "apiVersion:" in block
    for manifest in yaml.safe_load_all(block)
]
NAMES = [f"{page}-{one['kind']}-{one['metadata']['name']}" for page, one in MANIFESTS]
UNITS = [(page, name, text) for page in _PAGES for name, text in steps(page) if name.endswith(".service")]


@pytest.mark.parametrize(("page", "manifest"), MANIFESTS, ids=NAMES)
def test_kubernetes_knows_every_field_of_a_manifest(page: str, manifest: dict[str, Any]) -> None:
    if manifest["apiVersion"] == _SCALED:
        assert set(manifest["spec"]) <= _SCALED_FIELDS, page
    else:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def test_a_field_that_kubernetes_does_not_know_is_noticed() -> None:
    [manifest] = [
        one for _, one in MANIFESTS if one["metadata"]["name"] == "kodo-exporter" and one["kind"] == "Service"
    ]
    wrong = {**manifest, "spec": {**manifest["spec"], "port": 9465}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


def test_what_a_deployment_names_is_there() -> None:
    for page, manifest in MANIFESTS:
        if manifest["kind"] != "Deployment":
            continue
        spec = manifest["spec"]["template"]["spec"]
        assert manifest["spec"]["selector"]["matchLabels"] == manifest["spec"]["template"]["metadata"]["labels"], page
        volumes = {volume["name"] for volume in spec["volumes"]}
        for container in spec["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes, page
            ports = {port["name"] for port in container["ports"]}
            probes = [value for key, value in container.items() if key.endswith("Probe")]
            assert {probe["httpGet"]["port"] for probe in probes} <= ports, page
            if "kodo-consumer" in container["args"]:
                assert spec["terminationGracePeriodSeconds"] * 1000 > Settings().drain_timeout, page


def test_a_scaled_object_asks_for_a_metric_of_the_exporter() -> None:
    [(page, scaled)] = [(page, one) for page, one in MANIFESTS if one["apiVersion"] == _SCALED]
    spec = scaled["spec"]
    assert (page, "Deployment", spec["scaleTargetRef"]["name"]) in {
        (page, one["kind"], one["metadata"]["name"]) for page, one in MANIFESTS
    }
    [trigger] = spec["triggers"]
    assert trigger["type"] == "prometheus"
    assert set(trigger["metadata"]) <= _TRIGGER_FIELDS
    assert all(isinstance(value, str) for value in trigger["metadata"].values()), "KEDA takes texts alone"
    query = trigger["metadata"]["query"]
    promql_parser.parse(query)
    [(metric, labels)] = re.findall(r"(kodo_\w+)\{(.*?)\}", query)
    assert metric in {one.name for one in STATUS_METRICS}
    assert set(re.findall(r"(\w+)=", labels)) <= set(LANE_LABELS)


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


def test_the_image_copies_what_is_there_and_sets_settings_that_exist() -> None:
    text = _IMAGE.read_text(encoding="utf-8").replace("\\\n", " ")
    copied = [words.split()[:-1] for words in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE)]
    assert [path for paths in copied for path in paths if not (ROOT / path).exists()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {path.split("/")[0] for path in packages} <= {path for paths in copied for path in paths}
    environ = dict(re.findall(rf"({VARIABLE}\w+)=(\S+)", text))
    assert read_settings(environ, Path("/")) == Settings(host="0.0.0.0", port=9464)  # within a container
    assert re.search(r"^USER \d+:\d+$", text, re.MULTILINE), "Kubernetes takes only a number for no root"
