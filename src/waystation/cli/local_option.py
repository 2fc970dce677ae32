"""Where the cluster of this machine is, and so where its brokers are."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = ["cluster_bootstrap_option", "local_option"]

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_FOLDER = "./cluster"
_VARIABLE = "WAYSTATION_BOOTSTRAP"
_ALONE = "localhost:9092"


def local_option(command: F) -> F:
    """``--data-dir``: where ``cluster up`` keeps everything."""
    return click.option(
        "--data-dir",
        "folder",
        type=click.Path(path_type=Path, file_okay=False),
        default=DEFAULT_FOLDER,
        envvar="WAYSTATION_CLUSTER",
        show_default=True,
        help="Where the cluster of this machine is kept. Environment: WAYSTATION_CLUSTER.",
    )(command)


def cluster_bootstrap_option(command: F) -> F:
    """``--bootstrap`` of commands that are about a cluster: that of this machine, if there is."""
    return click.option(
        "--bootstrap",
        default=_nearest,
        metavar="HOST:PORT",
        help="A broker, or several separated by commas. Environment: WAYSTATION_BOOTSTRAP.  "
        f"[default: the cluster in {DEFAULT_FOLDER} if `cluster up` made one, or {_ALONE}]",
    )(command)


def _nearest() -> str:
    if told := os.environ.get(_VARIABLE):
        return told
    folder = Path(os.environ.get("WAYSTATION_CLUSTER", DEFAULT_FOLDER))
    if (folder / "cluster.json").exists():
        from waystation.node.local import LocalNodes

        return LocalNodes(folder).plan.bootstrap
    return _ALONE
