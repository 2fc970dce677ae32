"""How options of source and sink are spelled, and what is said of one that nobody declared.

Spark hands names over in small letters, whatever the user wrote; errors show them as they are
documented.  Options of the client behind a source or a sink have ``kafka.`` in front.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Final

from waystation.client.bootstrap import parse_bootstrap
from waystation.client.options import ConnectionOptions
from waystation.client.settings import ConnectionSettings
from waystation.model.errors import WaystationError
from waystation.model.settings import Option, options_of
from waystation.spark.errors import BadOptionError

__all__ = [
    "CONNECTION",
    "PATIENCE",
    "Vocabulary",
    "by_spelling",
    "checked_bootstrap",
    "connection_options",
    "milliseconds",
    "parsed",
]

CONNECTION: Final = {str(one.kafka): one for one in options_of(ConnectionSettings)}
"""The options of every client, by their Kafka names."""

PATIENCE: Final = {"max.block.ms": "30000"}
"""A broker that restarts should not end a job: wait longer than a client at a terminal would."""

_PREFIX: Final = "kafka."
_SECURITY: Final = ("security.", "ssl.", "sasl.")
_UNITS_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The names that mean something to a source or to a sink, all in small letters."""

    known: Mapping[str, Option]
    client: Mapping[str, Option]
    """Those of the client behind it, without their prefix."""
    kafka_names: Mapping[str, str]
    """What Spark's own connector calls some of those that are known."""
    instead: Mapping[str, str]
    """What to say to who uses a name that means something elsewhere."""
    ignored: tuple[str, ...] = ()
    """What Spark hands on to everybody."""
    decided: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What may be said of the client's options, and changes nothing."""

    def sorted_out(self, texts: Mapping[str, str]) -> tuple[dict[Option, str], dict[str, str]]:
        """The options that were given, and those of the client behind."""
        said: dict[Option, str] = {}
        client: dict[str, str] = {}
        for given, text in texts.items():
            spelled = given.lower()
            name = spelled.removeprefix(_PREFIX)
            known = self.known.get(self.kafka_names.get(name, spelled))
            if spelled in self.ignored:
                continue
            if known is not None:
                if said.setdefault(known, text) != text:
                    raise BadOptionError(
                        f"{known.name} is given twice, as {said[known]} and {text}"
                    )
            elif name in self.decided:
                self._refuse_weaker(name, text)
            elif name in self.client and name not in self.instead:
                client[name] = text
            elif not _is_plain_security(name, text):
                raise BadOptionError(self._unknown(spelled, name))
        return said, client

    def understood(self, client: Mapping[str, str]) -> dict[str, Any]:
        """The client's options by the names of its fields."""
        return {
            self.client[name].field: parsed(self.client[name], text, name)
            for name, text in client.items()
        }

    def _refuse_weaker(self, name: str, text: str) -> None:
        allowed = self.decided[name]
        if text.strip().lower() not in allowed:
            raise BadOptionError(
                f"{_PREFIX}{name} is {text!r}, must be {allowed[0]}: rows could be lost or "
                "doubled otherwise; leave it away"
            )

    def _unknown(self, spelled: str, name: str) -> str:
        if name in self.instead:
            return f"unknown option {spelled}: {self.instead[name]}"
        near = get_close_matches(name, [*self.known, *self.client], n=2)
        shown = [self.known[one].name if one in self.known else _PREFIX + one for one in near]
        hint = (
            f"; did you mean {' or '.join(shown)}?" if shown else ": the documentation lists them"
        )
        return f"unknown option {spelled}{hint}"


def by_spelling(settings: type) -> dict[str, Option]:
    """The options that a class declares, as Spark spells them."""
    found = {one.name.lower(): one for one in options_of(settings)}
    assert len(found) == len(fields(settings)), "options differ by more than capitals"
    return found


def connection_options(client: Mapping[str, str]) -> ConnectionOptions:
    """The client's options by their Kafka names, as the client takes them."""
    found = ConnectionOptions()
    for name, text in client.items():
        known = CONNECTION[name]
        found.update({known.field: parsed(known, text, name)})  # type: ignore[misc]  # its names
    return found


def parsed(known: Option, text: str, name: str | None = None) -> Any:
    """The value of one option; ``BadOptionError`` names it as documented, or by ``name``."""
    try:
        return known.parse(text)
    except ValueError as problem:
        raise BadOptionError(f"{name or known.name} {problem}") from None


def checked_bootstrap(text: str) -> str:
    """``text`` itself, if it says where brokers are."""
    if not text:
        raise BadOptionError(
            "bootstrap.servers is missing: say where brokers are, e.g. localhost:9092"
        )
    try:
        parse_bootstrap(text)
    except (WaystationError, ValueError) as problem:
        raise BadOptionError(f"bootstrap.servers: {problem}") from None
    return text


def milliseconds(name: str, text: str) -> int:
    """A duration as people write it: ``90s``, ``15m``; a bare number counts milliseconds."""
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    if found is None or (found[2] or "ms") not in _UNITS_MS:
        raise BadOptionError(f"{name} is {text!r}, no duration: try 90s, 15m or 1h")
    return int(found[1]) * _UNITS_MS[found[2] or "ms"]


def _is_plain_security(name: str, text: str) -> bool:
    """Security that is none may be said; of the other kinds it would be wrong to read on."""
    if not name.startswith(_SECURITY):
        return False
    if name == "security.protocol" and text.strip().upper() == "PLAINTEXT":
        return True
    raise BadOptionError(
        f"{_PREFIX}{name}: this client speaks PLAINTEXT only as yet: give a listener of that kind "
        "in bootstrap.servers, and leave the option away"
    )
