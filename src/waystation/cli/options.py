"""Options that commands share, and the pairs and times that people type."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

__all__ = ["bootstrap_option", "json_option", "pairs", "parse_time", "yes_option"]

F = TypeVar("F", bound=Callable[..., Any])


def bootstrap_option(command: F) -> F:
    """``--bootstrap``: where the broker is."""
    return click.option(
        "--bootstrap",
        default="localhost:9092",
        envvar="WAYSTATION_BOOTSTRAP",
        show_default=True,
        metavar="HOST:PORT",
        help="A broker, or several separated by commas. Environment: WAYSTATION_BOOTSTRAP.",
    )(command)


def json_option(command: F) -> F:
    """``--json``: for scripts."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")(command)


def yes_option(command: F) -> F:
    """``--yes``: for whoever is sure."""
    return click.option("--yes", is_flag=True, help="Do not ask for confirmation.")(command)


def pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    """Read ``name=value`` as given to ``option``."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{option} {text!r}: must be NAME=VALUE")
        found[name.strip()] = value
    return found


def parse_time(text: str) -> int:
    """Milliseconds since 1970 from a number of them or an ISO 8601 time.

    A time without a zone is this machine's.
    """
    if text.isdigit():
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1_000)
    except ValueError:
        raise click.UsageError(
            f"{text!r} is no time: give ISO 8601, e.g. 2026-01-31T09:30:00Z, or ms since 1970"
        ) from None
