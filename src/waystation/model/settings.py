"""Options: declared once, with bounds and prose, and parsed from text in one place.

A settings class is a frozen dataclass whose fields are made by ``option()``.  The field
``segment_bytes`` is the option ``segment.bytes`` unless it names another.  Parsing reports
every problem at once, and an unknown name comes with its nearest neighbours.

A profile is a word for a set of defaults: an option says what its default is under each.  It
never changes an option that anybody has set.
"""

import dataclasses
import difflib
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from waystation.model.errors import InvalidSettingsError

T = TypeVar("T")

PROFILE = "profile"
"""The option that names a profile, wherever there is one."""
BALANCED, LATENCY, THROUGHPUT = PROFILES = ("balanced", "latency", "throughput")

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class Option(NamedTuple):
    """What is known of one option; ``kind`` is bool, int, float, str or tuple (a list)."""

    name: str
    field: str
    kind: type
    default: Any
    at_least: float | None
    at_most: float | None
    choices: tuple[str, ...] | None
    live: bool
    doc: str
    kafka: str | None
    rule: Callable[[Any], None] | None
    by_profile: tuple[tuple[str, Any], ...] = ()

    @property
    def profiles(self) -> dict[str, Any]:
        """The defaults under those profiles that have another."""
        return dict(self.by_profile)

    def parse(self, text: str) -> Any:
        """The value that ``text`` stands for; ``ValueError`` says what is wrong with it."""
        value = _PARSERS[self.kind](text.strip())
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """Raise ``ValueError`` if ``value`` is out of bounds, no choice or against the rule."""
        if self.choices is not None:
            if value == ():
                raise ValueError(f"is empty, must be one or more of {', '.join(self.choices)}")
            for item in value if self.kind is tuple else (value,):
                if item not in self.choices:
                    raise ValueError(f"is {item!r}, must be one of {', '.join(self.choices)}")
        if self.at_least is not None and value < self.at_least:
            raise ValueError(f"is {value}, must be at least {self.at_least}")
        if self.at_most is not None and value > self.at_most:
            raise ValueError(f"is {value}, must be at most {self.at_most}")
        if self.rule is not None:
            self.rule(value)

    def format(self, value: Any) -> str:
        """The text that ``parse`` reads back to ``value``."""
        if isinstance(value, bool):
            return "true" if value else "false"
        return ",".join(value) if isinstance(value, tuple) else str(value)


def option(
    default: T,
    *,
    doc: str,
    name: str | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    choices: tuple[str, ...] | None = None,
    live: bool = False,
    kafka: str | None = None,
    rule: Callable[[T], None] | None = None,
    latency: T | None = None,
    throughput: T | None = None,
) -> T:
    """Declare one option as a dataclass field; ``live`` ones may change without a restart.

    A ``rule`` raises ``ValueError`` for what neither bounds nor choices can tell.  ``latency``
    and ``throughput`` are its defaults under those profiles, where they differ.
    """
    profiles = ((LATENCY, latency), (THROUGHPUT, throughput))
    facts = {
        "name": name,
        "at_least": at_least,
        "at_most": at_most,
        "choices": choices,
        "live": live,
        "doc": doc,
        "kafka": kafka,
        "rule": rule,
        "by_profile": tuple(one for one in profiles if one[1] is not None),
    }
    return dataclasses.field(default=default, metadata=facts)


_KNOWN: dict[type, tuple[Option, ...]] = {}


def options_of(settings: type) -> tuple[Option, ...]:
    """All options of a settings class, in the order they are declared."""
    known = _KNOWN.get(settings)
    if known is None:
        kinds = typing.get_type_hints(settings)
        known = tuple(
            Option(
                field=field.name,
                kind=_kind(kinds[field.name]),
                default=field.default,
                **{**field.metadata, "name": field.metadata["name"] or _dotted(field.name)},
            )
            for field in dataclasses.fields(settings)
        )
        _KNOWN[settings] = known
    return known


def parse_settings(settings: type[T], texts: Mapping[str, str]) -> T:
    """An instance from option names and texts; options not named keep their default."""
    options = {one.name: one for one in options_of(settings)}
    values, problems = {}, []
    for name, text in texts.items():
        known = options.get(name)
        if known is None:
            problems.append(unknown_option(name, options))
            continue
        try:
            values[known.field] = known.parse(text)
        except ValueError as problem:
            problems.append(f"{name} {problem}")
    if problems:
        raise InvalidSettingsError(problems)
    return settings(**values)


def profiled(settings: T, profile: str, given: typing.Container[str]) -> T:
    """``settings`` with the defaults of ``profile``, but for the fields that were ``given``."""
    values = {
        one.field: one.profiles[profile]
        for one in options_of(type(settings))
        if profile in one.profiles and one.field not in given
    }
    return dataclasses.replace(settings, **values) if values else settings  # type: ignore[type-var]


def unknown_option(name: str, known: typing.Iterable[str]) -> str:
    """The sentence for an option nobody declared, with the nearest that someone did."""
    near = difflib.get_close_matches(name, list(known), n=2)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"unknown option {name}{hint}"


def _dotted(field: str) -> str:
    return field.replace("_", ".")


def _kind(annotation: Any) -> type:
    """The parser's key for an annotation: ``tuple[str, ...]`` is a list, a NewType its base."""
    if isinstance(annotation, types.GenericAlias):
        return tuple
    return typing.cast(type, getattr(annotation, "__supertype__", annotation))


def _parse_bool(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(f"is {text!r}, must be true or false")


def _parse_int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"is {text!r}, must be a whole number") from None


def _parse_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"is {text!r}, must be a number") from None


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


_PARSERS: dict[type, typing.Callable[[str], Any]] = {
    bool: _parse_bool,
    int: _parse_int,
    float: _parse_float,
    str: str,
    tuple: _parse_list,
}
