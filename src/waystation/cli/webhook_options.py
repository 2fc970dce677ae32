"""What a webhook can be told on the command line, when it is made and later."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from waystation.cli.options import parse_duration

__all__ = ["fields_of", "tuning_options"]

F = TypeVar("F", bound=Callable[..., Any])

_TUNING: Final[list[tuple[str, dict[str, Any], str, str]]] = [
    (
        "--values",
        {"type": click.Choice(["text", "json", "base64"])},
        "How to write values.",
        "text",
    ),
    ("--batch", {"type": int, "metavar": "N"}, "Messages per request.", "1"),
    ("--concurrency", {"type": int, "metavar": "N"}, "Requests at a time, per node.", "8"),
    ("--timeout", {"metavar": "DURATION"}, "For a whole request.", "15s"),
    ("--max-deliveries", {"type": int, "metavar": "N"}, "Tries.", "20"),
    ("--retry-after", {"metavar": "DURATION"}, "The first wait.", "1s"),
    ("--retry-at-most", {"metavar": "DURATION"}, "The longest wait.", "15m"),
    ("--dead-letters", {"metavar": "TOPIC"}, "Where what is given up goes.", "webhook.NAME.dead"),
]
_FIELDS: Final = {
    "batch": "batch_size",
    "timeout": "timeout_ms",
    "retry_after": "backoff_ms",
    "retry_at_most": "backoff_max_ms",
    "dead_letters": "dead_letter_topic",
    "keep_old_secret": "secret_grace_ms",
}
_DURATIONS: Final = {"timeout", "retry_after", "retry_at_most", "keep_old_secret"}


def tuning_options(*, shows_defaults: bool) -> Callable[[F], F]:
    """How messages are pushed; without defaults where what is not said stays as it is."""

    def decorate(command: F) -> F:
        for name, more, text, default in reversed(_TUNING):
            told = f"{text}  [default: {default}]" if shows_defaults else text
            command = click.option(name, help=told, **more)(command)
        return command

    return decorate


def fields_of(said: dict[str, Any]) -> dict[str, Any]:
    """The fields of a request's body; options that were not given are left away."""
    return {
        _FIELDS.get(name, name): _ms(value) if name in _DURATIONS else value
        for name, value in said.items()
        if value is not None
    }


def _ms(duration: str) -> int:
    return round(parse_duration(duration).total_seconds() * 1_000)
