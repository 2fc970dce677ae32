"""A project of Spark's Declarative Pipelines, made ready to run: a topic, tables, a topic.

The project is the folder ``project/`` beside this file, copied as it stands but for what only its
user knows: the brokers, the topics, where it lies.  All of that is in its settings; the
transformations are the same for everybody until they are edited.

Two things are decided here, once, because they must stay the same from run to run: the catalog
and the storage lie in the project's own folder, and the sink has an id that no other project has.
"""

import json
import re
import uuid
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import click

from waystation.client.bootstrap import parse_bootstrap
from waystation.model.errors import WaystationError
from waystation.model.topics import check_topic_name
from waystation.pipelines.failures import JobError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = ["Project", "command", "make_project"]

_FILLED_IN = (".conf", ".md", ".yml")
_RENAMED = {"gitignore": ".gitignore"}
"""Under the name that it gets, git would go by it here too."""

_UNUSABLE = ";\"'\\\n"
"""What Derby, YAML and a shell would each read in their own way."""


@dataclass(frozen=True)
class Project:
    """What the user of a project decides."""

    folder: Path
    bootstrap: str
    topic: str
    to: str

    def check(self) -> None:
        """Raise if a run could only fail."""
        parse_bootstrap(self.bootstrap)
        for name in (self.topic, self.to):
            check_topic_name(name)
        if self.topic == self.to:
            raise JobError(
                f"the pipeline would read what it writes: {self.topic} is both its topic and the "
                "one it writes to. Remedy: give another one with --to"
            )
        if found := [mark for mark in _UNUSABLE if mark in str(self.folder)]:
            raise JobError(
                f"{str(self.folder)!r} has {found[0]!r} in it, which the catalog's address cannot "
                "hold. Remedy: choose another folder"
            )
        if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise JobError(
                f"{self.folder} is there already, and what is in it stays. "
                "Remedy: name a folder that is empty or does not exist"
            )


def make_project(project: Project) -> list[Path]:
    """Write the project, and return its files."""
    project.check()
    words = {
        "name": project.folder.name,
        "folder": str(project.folder),
        "bootstrap": project.bootstrap,
        "topic": project.topic,
        "to": project.to,
        "sink": _sink_id(project.folder.name),
    }
    return _copied(files(__package__) / "project", project.folder, words)


def _sink_id(name: str) -> str:
    """One that says whose it is, of letters that a sink's id may have."""
    return f"{re.sub(r'[^A-Za-z0-9._-]', '-', name)[:100]}-{uuid.uuid4().hex[:8]}"


def _copied(source: "Traversable", target: Path, words: dict[str, str]) -> list[Path]:
    target.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []
    for entry in sorted(source.iterdir(), key=lambda one: one.name):
        if entry.name.startswith(("__", ".")):
            continue
        path = target / _RENAMED.get(entry.name, entry.name)
        if entry.is_dir():
            made += _copied(entry, path, words)
            continue
        text = entry.read_text(encoding="utf-8")
        filled = Template(text).substitute(words) if path.suffix in _FILLED_IN else text
        path.write_text(filled, encoding="utf-8")
        made.append(path)
    return made


# --- the command ------------------------------------------------------------------------------

_EXAMPLE = """
\b
Example:
  waystation pipeline init ./orders-pipeline --topic orders
  cd orders-pipeline && SPARK_CONF_DIR=conf spark-pipelines run
"""


@click.command("init", epilog=_EXAMPLE)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--bootstrap",
    default="localhost:9092",
    envvar="WAYSTATION_BOOTSTRAP",
    show_default=True,
    metavar="HOST:PORT",
    help="A broker, or several separated by commas. Environment: WAYSTATION_BOOTSTRAP.",
)
@click.option(
    "--topic", default="orders", show_default=True, metavar="NAME", help="The topic to read."
)
@click.option("--to", metavar="NAME", help="The topic to write.  [default: TOPIC-checked]")
@click.option("--json", "json_output", is_flag=True, help="Print JSON, for scripts.")
def command(folder: Path, bootstrap: str, topic: str, to: str | None, json_output: bool) -> None:
    """Make a project of Spark Declarative Pipelines in DIR.

    A topic becomes the tables bronze, silver and gold, and a topic again. The project runs as it
    is, with spark-pipelines run; its README says how to make it yours.
    """
    project = Project(folder.resolve(), bootstrap, topic, to or f"{topic}-checked")
    try:
        made = make_project(project)
    except WaystationError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
    if json_output:
        click.echo(json.dumps({"folder": str(project.folder), "files": [str(p) for p in made]}))
        return
    for path in made:
        click.echo(path.relative_to(project.folder))
    click.echo(
        f"\nNext: create the topics {project.topic} and {project.to}, then\n"
        f"  cd {folder} && SPARK_CONF_DIR=conf spark-pipelines run\n"
        f"{folder / 'README.md'} has more."
    )


if __name__ == "__main__":
    command()
