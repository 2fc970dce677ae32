"""``waystation cluster``: several brokers, started, looked at, moved and rescued.

Each command is imported when it is asked for, as those of ``main.py`` are.
"""

from importlib import import_module

import click

from waystation.cli.main import LazyGroup
from waystation.cli.options import example

COMMANDS = {
    "up": "Start a cluster on this machine, in the background.",
    "down": "Stop it.",
    "start": "Start a broker of it, or etcd, that does not run.",
    "kill": "Kill a broker of it, or etcd.",
    "logs": "Show what a broker of it, or etcd, says.",
    "status": "Show brokers, leaders, and what is not as it should be.",
    "reassign": "Give partitions other replicas.",
    "drain": "Let others hold all that a broker holds.",
    "rebalance": "Even out what brokers hold and lead.",
    "elect": "Let preferred leaders lead again.",
    "migrate": "Move a single node's metadata to etcd or ZooKeeper.",
    "recover": "Rebuild lost metadata from what data directories hold.",
}
"""Each with its line in --help, as one would need them."""

_FILES = {
    **dict.fromkeys(("up", "down", "start", "kill", "logs"), "cluster_local"),
    "status": "cluster_status",
    **dict.fromkeys(("reassign", "rebalance"), "cluster_moves"),
    **dict.fromkeys(("drain", "elect"), "cluster_brokers"),
    "migrate": "cluster_migrate",
    "recover": "cluster_recover",
}


class ClusterCommands(LazyGroup):
    """A group whose commands are in files that say what they have in common."""

    lines = COMMANDS

    def find(self, name: str) -> object:
        """The command, by its name, in its file."""
        return getattr(import_module(f"waystation.cli.{_FILES[name]}"), name)


@click.group(
    cls=ClusterCommands,
    epilog=example(
        "waystation cluster up --nodes 3\n  waystation cluster kill 2\n  waystation cluster down"
    ),
)
def cluster() -> None:
    """Start, watch, move and rescue several brokers."""
