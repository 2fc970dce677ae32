"""Options that commands share, and the pairs, times and durations that people type."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

__all__ = [
    "bootstrap_option",
    "example",
    "json_option",
    "pairs",
    "parse_duration",
    "parse_time",
    "yes_option",
]

F = TypeVar("F", bound=Callable[..., Any])

_DAYS = r"(?:(?P<weeks>\d+)w)?(?:(?P<days>\d+)d)?"
_TIME = r"(?:(?P<hours>\d+)h)?(?:(?P<minutes>\d+)m)?(?:(?P<seconds>\d+(?:\.\d+)?)s)?"
_DURATIONS = tuple(
    re.compile(one, re.IGNORECASE) for one in (f"P{_DAYS}(?:T{_TIME})?", _DAYS + _TIME)
)


def example(text: str) -> str:
    """The end of a command's help: how one would use it."""
    return f"\n\b\nExample:\n  {text}\n"


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


def parse_duration(text: str) -> timedelta:
    """A duration as ISO 8601 has it (``PT1H30M``), or as people do (``90m``, ``1d12h``)."""
    found = next((one for each in _DURATIONS if (one := each.fullmatch(text.strip()))), None)
    parts = {} if found is None else {unit: n for unit, n in found.groupdict().items() if n}
    if not parts:
        raise click.UsageError(f"{text!r} is no duration: give e.g. PT1H, 90m or 1d12h")
    return timedelta(**{unit: float(number) for unit, number in parts.items()})
