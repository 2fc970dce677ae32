"""``waystation pipeline``: the ready-made Spark jobs.

Each job is a file in ``pipelines/`` with a command of its own, which is imported when it is
asked for; Spark is started by the job, not by asking what jobs there are.
"""

from importlib import import_module

import click

from waystation.cli.main import LazyGroup
from waystation.cli.options import example

JOBS = {
    "archive": "Write topics to a table of a lake or to a topic, each record once.",
    "transform": "Write what becomes of topics into a topic, by SQL or a function.",
    "replay": "Send messages of the past into a topic once more, from a lake or a topic.",
    "dedupe": "Copy topics into a topic, each message id once.",
    "sessions": "Tell which messages of a key belong together, when they have ended.",
    "metrics": "Count what comes by the minute, into a table and a report.",
    "capacity": "Tell how much there is, how fast it grows, how long the disk lasts.",
    "audit": "Compare topics with their lake, offset for offset.",
    "init": "Make a project of Spark Declarative Pipelines.",
}
"""Each is the attribute ``command`` in the module of that name, with its line in --help."""


class Jobs(LazyGroup):
    """A group whose commands are the jobs."""

    lines = JOBS

    def find(self, name: str) -> object:
        """The job's own command."""
        return import_module(f"waystation.pipelines.{name}").command


@click.group(
    cls=Jobs,
    epilog=example(
        "waystation pipeline archive --topics orders --lake ./lake/orders --available-now\n"
        "  waystation pipeline audit --topics orders --lake ./lake/orders"
    ),
)
def pipeline() -> None:
    """Run Spark jobs over topics: tables, metrics, reports.

    Needs Java 17 or newer and pip install 'waystation[pipelines]'.
    """
