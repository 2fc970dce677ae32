"""The keywords that ``Producer``, ``Consumer`` and ``Admin`` take, and how they are read.

What each means, its default and its bounds stand in ``settings.py``; here are the names and
types, for editors and type checkers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypedDict, TypeVar

from waystation.client.settings import (
    ASSIGNORS,
    ConnectionSettings,
    ConsumerSettings,
    MemberSettings,
    ProducerSettings,
    checked,
)
from waystation.model.errors import InvalidSettingsError
from waystation.model.settings import BALANCED, PROFILE, profiled, unknown_option

__all__ = [
    "ConnectionOptions",
    "ConsumerOptions",
    "ProducerOptions",
    "connection_settings",
    "consumer_settings",
    "pick_settings",
    "producer_settings",
]

T = TypeVar("T")


class ConnectionOptions(TypedDict, total=False):
    """See ``ConnectionSettings``."""

    client_id: str
    connect_timeout_ms: int
    request_timeout_ms: int
    metadata_timeout_ms: int
    metadata_max_age_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int


class ProducerOptions(ConnectionOptions, total=False):
    """See ``ProducerSettings``; ``acks`` may also be a number, as Kafka writes it."""

    profile: str
    acks: str | int
    idempotent: bool
    linger_ms: int
    batch_bytes: int
    compression: str
    compression_level: int | None
    partitioner: str
    buffer_bytes: int
    max_request_bytes: int
    max_in_flight: int
    delivery_timeout_ms: int
    transactional_id: str | None
    transaction_timeout_ms: int


class ConsumerOptions(ConnectionOptions, total=False):
    """See ``ConsumerSettings`` and, for those in a group, ``MemberSettings``."""

    profile: str
    auto_offset_reset: str
    isolation: str
    client_rack: str
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_partition_bytes: int
    prefetch_bytes: int
    batch_limit_bytes: int
    delivery: str
    auto_commit: bool
    auto_commit_interval_ms: int
    group_protocol: str
    assignors: str | Iterable[str]
    remote_assignor: str | None
    group_instance_id: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    rebalance_timeout_ms: int | None


def connection_settings(options: ConnectionOptions) -> ConnectionSettings:
    """For an admin, who has no others."""
    own, left = _pick(ConnectionSettings, options)
    _refuse(left, ConnectionSettings)
    return checked(ConnectionSettings(**own))


def pick_settings(options: Mapping[str, object], settings: type[T]) -> tuple[T, ConnectionSettings]:
    """Own settings that need no further look, and those of connections."""
    connection, left = _pick(ConnectionSettings, options)
    own, left = _pick(settings, left)
    _refuse(left, ConnectionSettings, settings)
    return checked(settings(**own)), checked(ConnectionSettings(**connection))


def producer_settings(options: ProducerOptions) -> tuple[ProducerSettings, ConnectionSettings]:
    """A producer's own settings and its connections'."""
    connection, left = _pick(ConnectionSettings, options)
    own, left = _pick(ProducerSettings, left)
    _refuse(left, ConnectionSettings, ProducerSettings)
    own["acks"] = acks = {"-1": "all"}.get(str(own.get("acks", "all")), str(own.get("acks", "all")))
    if own.setdefault("idempotent", acks == "all") and acks != "all":
        raise InvalidSettingsError(
            [f"idempotent needs acks='all', not {acks!r}: leave one of them away"]
        )
    settings = _profiled(checked(ProducerSettings(**own)), own)
    if problems := _untransactional(settings):
        raise InvalidSettingsError(problems)
    return settings, checked(ConnectionSettings(**connection))


def consumer_settings(
    options: ConsumerOptions,
) -> tuple[ConsumerSettings, MemberSettings, ConnectionSettings]:
    """A consumer's own settings, those of its part in a group, and its connections'."""
    connection, left = _pick(ConnectionSettings, options)
    own, left = _pick(ConsumerSettings, left)
    member, left = _pick(MemberSettings, left)
    _refuse(left, ConnectionSettings, ConsumerSettings, MemberSettings)
    if "assignors" in member:
        listed = member["assignors"]
        member["assignors"] = (listed,) if isinstance(listed, str) else tuple(listed)
    if member.get("delivery") == "exactly-once":
        own.setdefault("isolation", "read_committed")
        member.setdefault("auto_commit", False)
    reading = _profiled(checked(ConsumerSettings(**own)), own)
    settings = checked(MemberSettings(**member))
    if problems := _contradictions(settings) + _inexact(settings, reading):
        raise InvalidSettingsError(problems)
    return reading, settings, checked(ConnectionSettings(**connection))


def _untransactional(settings: ProducerSettings) -> list[str]:
    """What keeps a producer that has a transactional id from writing transactions."""
    if settings.transactional_id is None:
        return []
    problems = []
    if not settings.transactional_id:
        problems.append("transactional_id is empty: give it a name, or leave it away")
    if not settings.idempotent:
        problems.append("transactional_id needs idempotent=True and acks='all': leave both away")
    return problems


def _inexact(settings: MemberSettings, reading: ConsumerSettings) -> list[str]:
    """What keeps a consumer that shall be exact from it."""
    if settings.delivery != "exactly-once":
        return []
    problems = []
    if reading.isolation != "read_committed":
        problems.append(
            f"isolation is {reading.isolation!r}, must be 'read_committed' for "
            "delivery='exactly-once': a message that was aborted would be processed"
        )
    if settings.auto_commit:
        problems.append(
            "auto_commit is True, must be False for delivery='exactly-once': offsets go with the "
            "transaction"
        )
    return problems


def _contradictions(settings: MemberSettings) -> list[str]:
    problems = []
    if not settings.assignors:
        problems.append(f"assignors is empty, must name at least one of {', '.join(ASSIGNORS)}")
    if settings.heartbeat_interval_ms >= settings.session_timeout_ms:
        problems.append(
            f"heartbeat_interval_ms is {settings.heartbeat_interval_ms}, must be less than "
            f"session_timeout_ms ({settings.session_timeout_ms}): a third of it, or less"
        )
    return problems


def _pick(
    settings: type[Any], options: Mapping[str, object]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options that are fields of ``settings``, and the rest."""
    names = {field.name for field in fields(settings)}
    own = {name: value for name, value in options.items() if name in names}
    return own, {name: value for name, value in options.items() if name not in names}


def _profiled(settings: T, given: Mapping[str, object]) -> T:
    """``settings`` with the defaults of the profile that was given, where nothing else was."""
    return profiled(settings, str(given.get(PROFILE, BALANCED)), given)


def _refuse(left: Mapping[str, object], *known: type[Any]) -> None:
    names = [field.name for settings in known for field in fields(settings)]
    if left:
        raise InvalidSettingsError(unknown_option(name, names) for name in left)
