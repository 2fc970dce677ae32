"""The files that show how to run a cluster under systemd and Kubernetes keep their word."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.command import waystation

from waystation.coordination.address import parse_address
from waystation.node.settings import from_environment, from_file, load

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


@pytest.mark.parametrize("name", ["etcd.yaml", "waystation.yaml"])
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
    assert labels == service["selector"] == claimed["selector"]["matchLabels"]
    assert labels == stateful["selector"]["matchLabels"]
    assert {one["name"]: one["port"] for one in service["ports"]} == named
    assert probes
    assert all(probe["httpGet"]["port"] in named for probe in probes)
    assert [one["name"] for one in container["volumeMounts"]] == [
        one["metadata"]["name"] for one in stateful["volumeClaimTemplates"]
    ]


def test_a_brokers_command_line_environment_and_probes_exist(bootstrap: str) -> None:
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
