"""A new project holds what its user said, and nothing that was there before is touched."""

import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from waystation.pipelines.init import command


def init(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def settings(project: Path) -> dict[str, str]:
    lines = (project / "conf" / "spark-defaults.conf").read_text().splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


def test_a_project_holds_what_was_said(tmp_path: Path) -> None:
    folder = tmp_path / "my orders"
    made = init(
        str(folder), "--bootstrap", "one:9092,two:9092", "--topic", "a", "--to", "b", "--json"
    )

    assert made.exit_code == 0, made.output
    assert sorted(json.loads(made.output)["files"]) == sorted(
        str(path) for path in folder.rglob("*") if path.is_file()
    )
    spec = yaml.safe_load((folder / "spark-pipeline.yml").read_text())
    assert spec["name"] == "my orders"
    assert spec["storage"] == f"file://{folder}/storage"
    told = settings(folder)
    assert told["spark.waystation.bootstrap"] == "one:9092,two:9092"
    assert (told["spark.waystation.topic"], told["spark.waystation.to"]) == ("a", "b")
    assert re.fullmatch("my-orders-[0-9a-f]{8}", told["spark.waystation.sink"])
    assert f"databaseName={folder}/catalog;" in told["spark.hadoop.javax.jdo.option.ConnectionURL"]
    assert not [path for path in folder.rglob("*.*") if "$" in path.read_text()]


def test_two_projects_of_one_name_have_sinks_of_their_own(tmp_path: Path) -> None:
    sinks = []
    for place in ("here", "there"):
        init(str(tmp_path / place / "orders"))
        sinks.append(settings(tmp_path / place / "orders")["spark.waystation.sink"])

    assert sinks[0] != sinks[1]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--topic", "a b"], "a b"),
        (["--to", "a/b"], "a/b"),
        (["--topic", "orders", "--to", "orders"], "--to"),
        (["--bootstrap", "host:port"], "port"),
        (["--bootstrap", ""], "host:port"),
    ],
)
def test_what_could_only_fail_is_refused(tmp_path: Path, arguments: list[str], named: str) -> None:
    refused = init(str(tmp_path / "project"), *arguments)

    assert refused.exit_code == 1
    assert refused.output.startswith("Error: ")
    assert named in refused.output
    assert not (tmp_path / "project").exists()


@pytest.mark.parametrize("name", ["a;b", 'a"b', "a'b", "a\\b", "a\nb"])
def test_a_folder_that_cannot_be_written_down_is_refused(tmp_path: Path, name: str) -> None:
    refused = init(str(tmp_path / name))

    assert refused.exit_code == 1
    assert "choose another folder" in refused.output


def test_what_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    refused = init(str(tmp_path))

    assert refused.exit_code == 1
    assert str(tmp_path) in refused.output
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_file_in_its_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert "is there already" in init(str(tmp_path / "file")).output
    assert "file" in init(str(tmp_path / "file" / "below")).output
