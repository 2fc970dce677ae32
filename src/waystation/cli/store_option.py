"""``--store`` of commands about several brokers: a service, never one node's own file."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["shared_store_option"]

F = TypeVar("F", bound=Callable[..., Any])


def shared_store_option(help_text: str, *, required: bool = False) -> Callable[[F], F]:
    """``--store``, checked as far as that can be done without asking anybody."""
    return click.option("--store", required=required, callback=_checked, help=help_text)


def _checked(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    from waystation.coordination.address import parse_address
    from waystation.model.errors import InvalidConfigError

    if text is None:
        return None
    try:
        kind = parse_address(text).kind
    except InvalidConfigError as error:
        raise click.UsageError(f"--store {error}", context) from error
    if kind == "sqlite":
        raise click.UsageError(
            "--store sqlite is the file of one node: name etcd://HOST:PORT or "
            "zookeeper://HOST:PORT. `waystation serve` alone starts a single node",
            context,
        )
    return text
