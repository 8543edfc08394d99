"""The manifests in the documentation are what Kubernetes takes, and ask for what there is."""

import copy
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from kinesis_spout.consumer.consumer import LAST_COMMIT_SECONDS
from kinesis_spout.consumer.dead_lettering import LAST_LETTERS_SECONDS
from kinesis_spout.monitoring.server import _Handler
from kinesis_spout.settings import SpoutConfig

PAGE = Path(__file__).parents[2] / "docs/how-to/kubernetes.md"
VERSIONS = ("1.29", kubernetes_validate.latest_version())


def documents() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The manifest, and the parts of containers that replace its probes."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    manifest, *parts = [yaml.safe_load(block) for block in blocks]
    return manifest, parts


def container(manifest: dict[str, Any]) -> dict[str, Any]:
    (only,) = manifest["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def with_probes(manifest: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    changed = copy.deepcopy(manifest)
    container(changed).update(part)
    return changed


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_the_manifest_with_each_kind_of_probe(version: str) -> None:
    manifest, parts = documents()
    assert len(parts) == 1
    for each in (manifest, *(with_probes(manifest, part) for part in parts)):
        kubernetes_validate.validate(each, version, strict=True)


def test_the_check_sees_a_mistake() -> None:
    manifest, _ = documents()
    broken = with_probes(manifest, {"livenessProbe": {"httpGet": {"path": "/livez"}}})
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


def test_probes_and_scrapes_ask_for_what_is_answered() -> None:
    manifest, parts = documents()
    only = container(manifest)
    annotations = manifest["spec"]["template"]["metadata"]["annotations"]
    (port,) = only["ports"]
    asked = {only[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert asked | {annotations["prometheus.io/path"]} <= _Handler._answers.keys()
    assert only["livenessProbe"]["httpGet"]["path"] == "/livez", "never what depends on something outside"
    assert annotations["prometheus.io/port"] == str(port["containerPort"])
    variables = {each["name"].lower() for each in only["env"] if each["name"].startswith("KINESIS_SPOUT_")}
    assert {name.removeprefix("kinesis_spout_") for name in variables} <= set(SpoutConfig.__struct_fields__)
    commands = [part[probe]["exec"]["command"] for part in parts for probe in part]
    assert all(command[:2] == ["kinesis-spout", "health"] for command in commands)


def test_a_pod_has_time_to_store_what_is_finished() -> None:
    manifest, _ = documents()
    seconds = manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    stop = SpoutConfig.of(stream="orders", app="billing").stop_timeout_seconds
    assert seconds > stop + LAST_LETTERS_SECONDS + LAST_COMMIT_SECONDS
