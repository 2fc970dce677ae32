"""The files that show how to run a cluster under systemd and Kubernetes keep their word."""

import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.examples.kubernetes_shapes import mistakes
from tests.support.command import waystation

from waystation.coordination.address import parse_address
from waystation.node.settings import from_environment, from_file, load
from waystation.testing.process import BrokerProcess

EXAMPLES = Path(__file__).parents[2] / "examples"
SYSTEMD, KUBERNETES = EXAMPLES / "systemd", EXAMPLES / "kubernetes"
DOCS = EXAMPLES.parent / "docs" / "operations"
PAGES = [DOCS / f"{name}.md" for name in ("cluster", "rolling-restart", "systemd", "kubernetes")]


# --- command lines --------------------------------------------------------------------------


def _commands(text: str) -> Iterator[list[str]]:
    """Every ``waystation`` command in a page or script, as words."""
    joined = text.replace("\\\n", " ")
    for found in re.finditer(r"(?:^|[\s`(/])waystation ([a-z][^`\n|#;&>]*)", joined, re.MULTILINE):
        yield found[1].split()


def _check(words: list[str]) -> None:
    """Whether there is such a command with all those options."""
    # "cluster up|down" names two commands in one.
    names = [word for word in words[:2] if re.fullmatch(r"[a-z|-]+", word)]
    group, sub = names[0], names[1] if len(names) > 1 and names[0] in GROUPS else None
    for one in (sub or "").split("|"):
        path = [group, *([one] if one else [])]
        ended = waystation(*path, "--help")
        assert ended.code == 0, f"{' '.join(words)}: {ended.err}"
        for word in words:
            if word.startswith("--"):
                option = word.partition("=")[0].rstrip(",.)")
                assert re.search(rf"{option}\b", ended.out), f"{' '.join(words)}: no {option}"


GROUPS = ("cluster", "topic", "group", "txn", "sink", "pipeline")


@pytest.mark.parametrize(
    "path",
    [*PAGES, SYSTEMD / "waystation-rolling-restart.sh"],
    ids=lambda path: path.name,
)
def test_every_command_and_option_in_a_page_exists(path: Path) -> None:
    found = {" ".join(words): words for words in _commands(path.read_text())}

    assert found
    for words in found.values():
        _check(words)


# --- systemd --------------------------------------------------------------------------------


def test_the_unit_is_valid_and_its_command_line_exists(tmp_path: Path) -> None:
    text = (SYSTEMD / "waystation.service").read_text()
    (command,) = re.findall(r"^ExecStart=(\S+) (.*)$", text, re.MULTILINE)
    _check(command[1].split())

    assert "Type=notify" in text
    if shutil.which("systemd-analyze"):
        unit = tmp_path / "waystation.service"
        unit.write_text(text.replace(command[0], sys.executable))
        checked = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(unit)],
            capture_output=True,
            text=True,
            check=False,
        )
        ours = [line for line in checked.stderr.splitlines() if "waystation" in line]
        assert ours == []


def test_the_options_in_the_file_are_options() -> None:
    settings = load([("file", from_file(SYSTEMD / "broker.toml"))])

    assert parse_address(settings.addresses.store).kind == "etcd"
    assert len(parse_address(settings.addresses.store).endpoints) == 3
    assert settings.broker.node_id == 1


def test_the_script_is_a_script() -> None:
    checked = subprocess.run(
        ["sh", "-n", str(SYSTEMD / "waystation-rolling-restart.sh")],
        capture_output=True,
        check=False,
    )

    assert checked.returncode == 0, checked.stderr


# --- Kubernetes -----------------------------------------------------------------------------


def _documents(name: str) -> dict[str, Any]:
    """The objects of a file by their kind."""
    found = list(yaml.safe_load_all((KUBERNETES / name).read_text()))
    assert all(one["apiVersion"] and one["metadata"]["name"] for one in found)
    return {one["kind"]: one for one in found}


FILES = ("etcd.yaml", "waystation.yaml")


@pytest.mark.parametrize("name", FILES)
def test_every_field_is_one_of_kubernetes(name: str) -> None:
    assert {kind: mistakes(one) for kind, one in _documents(name).items()} == {
        "Service": [],
        "PodDisruptionBudget": [],
        "StatefulSet": [],
    }


@pytest.mark.parametrize(
    ("before", "after", "mistake"),
    [
        (
            "apiVersion: policy/v1",
            "apiVersion: policy/v1beta1",
            "there is no PodDisruptionBudget in policy/v1beta1",
        ),
        ("maxUnavailable:", "maxUnavailble:", "PodDisruptionBudget.spec has no field maxUn"),
        ("  serviceName: waystation\n", "", "StatefulSet.spec lacks serviceName"),
        ("replicas: 3", 'replicas: "3"', "StatefulSet.spec.replicas is '3'"),
        ("Policy: Parallel", "Policy: parallel", "StatefulSet.spec.podManagementPolicy is 'par"),
        ("failureThreshold: 300", "failureTreshold: 300", "has no field failureTreshold"),
        ("{path: /healthz, port: http}", "{port: http}", "livenessProbe.httpGet lacks path"),
        ("ScheduleAnyway", "Anyway", "whenUnsatisfiable is 'Anyway'"),
        ("fieldPath: metadata.name}", "path: metadata.name}", "fieldRef lacks fieldPath"),
        ('cpu: "1"', "cpu: 1", "resources.requests.cpu is 1"),
    ],
)
def test_a_mistake_in_a_file_would_be_found(before: str, after: str, mistake: str) -> None:
    text = (KUBERNETES / "waystation.yaml").read_text()
    assert before in text
    broken = yaml.safe_load_all(text.replace(before, after))

    assert any(mistake in line for one in broken for line in mistakes(one))


@pytest.mark.parametrize("name", FILES)
def test_the_objects_belong_together(name: str) -> None:
    objects = _documents(name)
    service, claimed, stateful = (
        objects[kind]["spec"] for kind in ("Service", "PodDisruptionBudget", "StatefulSet")
    )
    pod = stateful["template"]
    (container,) = pod["spec"]["containers"]
    labels = pod["metadata"]["labels"]
    named = {one["name"]: one["containerPort"] for one in container["ports"]}
    probes = [container[key] for key in container if key.endswith("Probe")]

    assert stateful["serviceName"] == objects["Service"]["metadata"]["name"]
    assert service["clusterIP"] == "None", "each pod needs a name of its own"
    # Two of three servers, or replicas, must stay whoever takes machines away.
    assert (claimed["maxUnavailable"], stateful["replicas"]) == (1, 3)
    assert _kept_apart(pod["spec"]) == [("kubernetes.io/hostname", labels)]
    known = {one["name"] for one in container["env"]}
    words = [*container.get("command", ()), *container.get("args", ())]
    assert {name for word in words for name in re.findall(r"\$\((\w+)\)", word)} <= known
    assert labels == service["selector"] == claimed["selector"]["matchLabels"]
    assert labels == stateful["selector"]["matchLabels"]
    assert {one["name"]: one["port"] for one in service["ports"]} == named
    assert probes
    assert all(probe["httpGet"]["port"] in named for probe in probes)
    assert [one["name"] for one in container["volumeMounts"]] == [
        one["metadata"]["name"] for one in stateful["volumeClaimTemplates"]
    ]


def _kept_apart(pod: dict[str, Any]) -> list[tuple[str, dict[str, str]]]:
    """By what pods are kept apart, and which."""
    anti = pod.get("affinity", {}).get("podAntiAffinity", {})
    rules = [
        *pod.get("topologySpreadConstraints", ()),
        *anti.get("requiredDuringSchedulingIgnoredDuringExecution", ()),
    ]
    return [(one["topologyKey"], one["labelSelector"]["matchLabels"]) for one in rules]


def test_the_names_of_the_pods_are_those_that_the_set_gives_them() -> None:
    """A pod of a set has a name by the set's, in the domain of the set's service."""
    etcd, brokers = _documents("etcd.yaml"), _documents("waystation.yaml")
    name, domain = etcd["StatefulSet"]["metadata"]["name"], etcd["Service"]["metadata"]["name"]
    pods = [f"{name}-{n}" for n in range(etcd["StatefulSet"]["spec"]["replicas"])]
    (server,) = etcd["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    told = dict(word.removeprefix("--").split("=", 1) for word in server["command"][1:])
    (broker,) = brokers["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    (store,) = [word for word in broker["args"] if word.startswith("--store=")]

    members = ",".join(f"{pod}=http://{pod}.{domain}:2380" for pod in pods)
    assert told["initial-cluster"] == members
    assert told["name"] == "$(POD)"
    assert told["initial-advertise-peer-urls"] == f"http://$(POD).{domain}:2380"
    assert told["advertise-client-urls"] == f"http://$(POD).{domain}:2379"
    endpoints = parse_address(store.removeprefix("--store=")).endpoints
    assert endpoints == tuple(f"{pod}.{domain}:2379" for pod in pods)


def test_a_broker_answers_its_probes(broker: BrokerProcess) -> None:
    spec = _documents("waystation.yaml")["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    probes = [container[key] for key in container if key.endswith("Probe")]

    assert len(probes) == 3
    for path in {probe["httpGet"]["path"] for probe in probes}:
        with urllib.request.urlopen(f"http://{broker.http}{path}", timeout=20) as answer:
            assert answer.status == 200, path


def test_a_brokers_command_line_and_environment_exist() -> None:
    spec = _documents("waystation.yaml")["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    _check(container["args"])
    before_stop = container["lifecycle"]["preStop"]["exec"]["command"]
    assert before_stop.pop(0) == "waystation"
    _check(before_stop)

    ours = {one["name"]: "1" for one in container["env"] if one["name"].startswith("WAYSTATION_")}
    assert len(from_environment(ours)) == len(ours) == 2
    given = dict(word.removeprefix("--").split("=", 1) for word in container["args"] if "=" in word)
    told = {"store": given["store"], "listen": given["listen"], "http": given["http"]}
    settings = load([("args", told)])
    endpoints = parse_address(settings.addresses.store).endpoints
    etcd = _documents("etcd.yaml")
    assert len(endpoints) == etcd["StatefulSet"]["spec"]["replicas"]
    assert all(f".{etcd['Service']['metadata']['name']}:2379" in one for one in endpoints)
    assert f".{_documents('waystation.yaml')['Service']['metadata']['name']}." in given["advertise"]


def test_what_preStop_waits_for_fits_into_the_grace_period() -> None:  # noqa: N802  Kubernetes' word
    spec = _documents("waystation.yaml")["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    (wait,) = [w for w in container["lifecycle"]["preStop"]["exec"]["command"] if "--wait" in w]

    assert wait == "--wait=5m"
    assert spec["terminationGracePeriodSeconds"] >= 5 * 60 + 60


def test_the_image_installs_what_a_cluster_needs() -> None:
    text = (KUBERNETES / "Dockerfile").read_text()

    assert "[cluster]" in text
    assert 'ENTRYPOINT ["waystation"]' in text
