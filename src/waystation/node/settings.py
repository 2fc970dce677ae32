"""Where a node's options come from: a file, the environment, the command line.

Later sources win over earlier ones.  Every option may be given by its own name or by Kafka's
(``retention.ms`` or ``log.retention.ms``), and every problem of every source is reported at
once.  What a topic may set for itself is a broker option too: the default for topics that do
not.  A ``profile`` is the default of several options at once; those that are given themselves win,
whatever their source.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from waystation.broker.settings import BrokerSettings
from waystation.coordination.address import parse_address
from waystation.gateway.settings import GatewaySettings
from waystation.groups.settings import GroupSettings
from waystation.model.errors import InvalidConfigError, InvalidSettingsError
from waystation.model.settings import (
    BALANCED,
    Option,
    option,
    options_of,
    profiled,
    unknown_option,
)
from waystation.model.topics import TopicSettings
from waystation.scheduling.settings import ScheduleSettings
from waystation.server.settings import ServerSettings
from waystation.sharing.settings import ShareSettings
from waystation.storage.settings import StorageSettings
from waystation.transactions.settings import TransactionSettings

ENVIRONMENT_PREFIX = "WAYSTATION_"

_HOUR_MS, _MINUTE_MS = 3_600_000, 60_000

# Kafka's options in coarser units -> (the option in milliseconds, the factor).
_COARSER = {
    "log.retention.hours": ("log.retention.ms", _HOUR_MS),
    "log.retention.minutes": ("log.retention.ms", _MINUTE_MS),
    "log.roll.hours": ("log.roll.ms", _HOUR_MS),
    "log.roll.jitter.hours": ("log.roll.jitter.ms", _HOUR_MS),
}
_OTHER_NAMES = {"log.dir": "log.dirs", "data.dir": "log.dirs", "data.dirs": "log.dirs"}


def _check_store(text: str) -> None:
    try:
        parse_address(text)
    except InvalidConfigError as problem:
        raise ValueError(f"is wrong: {problem}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressSettings:
    """Where the node listens and where it keeps its things."""

    listen: str = option(
        "127.0.0.1:9092",
        doc="HOST:PORT of the Kafka protocol; port 0 takes a free one.",
        kafka="listeners",
    )
    advertise: str = option(
        "",
        doc="HOST:PORT that clients are told to connect to; what it listens on if empty.",
        kafka="advertised.listeners",
    )
    http: str = option(
        "127.0.0.1:8090",
        doc="HOST:PORT of HTTP: health, metrics, and the queue for everyone (docs/http.md). The "
        "latter needs --insecure beyond loopback: nothing is authenticated. 'none' turns HTTP off.",
    )
    store: str = option(
        "sqlite",
        rule=_check_store,
        doc="The coordination service: sqlite, which is embedded and serves one node, or "
        "etcd://HOST:PORT,.../FOLDER or zookeeper://HOST:PORT,.../FOLDER for a cluster.",
    )
    log_dirs: tuple[str, ...] = option(
        ("./data",),
        doc="Directories that hold the logs, comma-separated. New partitions go to the one with "
        "the fewest; one that fails takes only its own partitions offline.",
    )
    insecure: bool = option(
        False,
        doc="Allow listening beyond loopback although nothing is authenticated.",
    )


_GROUPS = (
    AddressSettings,
    BrokerSettings,
    GatewaySettings,
    GroupSettings,
    ScheduleSettings,
    ServerSettings,
    ShareSettings,
    StorageSettings,
    TopicSettings,
    TransactionSettings,
)


class NodeSettings(NamedTuple):
    """The settings of every package of one node, and the texts they were read from."""

    addresses: AddressSettings
    broker: BrokerSettings
    gateway: GatewaySettings
    groups: GroupSettings
    schedules: ScheduleSettings
    server: ServerSettings
    shares: ShareSettings
    storage: StorageSettings
    topics: TopicSettings
    transactions: TransactionSettings
    static: Mapping[str, str]


def load(sources: Iterable[tuple[str, Mapping[str, str]]]) -> NodeSettings:
    """Settings from named sources of texts, later ones winning."""
    known = _known_names()
    texts: dict[str, str] = {}
    values: dict[type, dict[str, Any]] = {group: {} for group in _GROUPS}
    problems: list[str] = []
    for source, given in sources:
        for name, text in given.items():
            canonical, scale = _canonical(name)
            if canonical not in known:
                problems.append(f"{source}: {unknown_option(name, [*known, *_COARSER])}")
                continue
            group, found = known[canonical]
            try:
                scaled = _scaled(text, scale)
                values[group][found.field] = found.parse(scaled)
                texts[broker_level_name(found)] = scaled
            except ValueError as problem:
                problems.append(f"{source}: {name} {problem}")
    if problems:
        raise InvalidSettingsError(problems)
    profile = values[TopicSettings].get("profile", BALANCED)
    return NodeSettings(
        AddressSettings(**values[AddressSettings]),
        BrokerSettings(**values[BrokerSettings]),
        GatewaySettings(**values[GatewaySettings]),
        GroupSettings(**values[GroupSettings]),
        ScheduleSettings(**values[ScheduleSettings]),
        profiled(ServerSettings(**values[ServerSettings]), profile, values[ServerSettings]),
        ShareSettings(**values[ShareSettings]),
        StorageSettings(**values[StorageSettings]),
        TopicSettings(**values[TopicSettings]),
        TransactionSettings(**values[TransactionSettings]),
        texts,
    )


def all_options() -> list[Option]:
    """Every option a node knows, group by group."""
    return [one for group in _GROUPS for one in options_of(group)]


def broker_level_name(known: Option) -> str:
    """The name by which a broker, not a topic, is given this option."""
    return known.kafka or known.name


def from_file(path: Path) -> dict[str, str]:
    """The options of a TOML file; tables nest by dots: ``[log] retention.ms = 1`` is fine."""
    try:
        return dict(_flatten("", tomllib.loads(path.read_text())))
    except OSError as error:
        raise InvalidSettingsError([f"cannot read {path}: {error.strerror}"]) from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidSettingsError([f"{path} is no TOML file: {error}"]) from error


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """``WAYSTATION_LOG_RETENTION_MS`` and the like, under the options' own names."""
    spelled = {name.upper().replace(".", "_"): name for name in [*_known_names(), *_COARSER]}
    found = {}
    for variable, text in environment.items():
        if variable.startswith(ENVIRONMENT_PREFIX):
            bare = variable.removeprefix(ENVIRONMENT_PREFIX)
            if bare in spelled:
                found[spelled[bare]] = text
    return found


def _known_names() -> dict[str, tuple[type, Option]]:
    known: dict[str, tuple[type, Option]] = {}
    for group in _GROUPS:
        for one in options_of(group):
            known[one.name] = (group, one)
            if one.kafka:
                known[one.kafka] = (group, one)
    return known


def _canonical(name: str) -> tuple[str, int]:
    if name in _COARSER:
        return _COARSER[name]
    return _OTHER_NAMES.get(name, name), 1


def _scaled(text: str, factor: int) -> str:
    """The text in milliseconds; -1 means no limit in any unit."""
    if factor == 1:
        return text
    try:
        count = int(text)
    except ValueError:
        raise ValueError(f"is {text!r}, must be a whole number") from None
    return str(count * factor if count >= 0 else count)


def _flatten(prefix: str, table: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(f"{prefix}{key}.", value)
        elif isinstance(value, list):
            yield prefix + key, ",".join(map(str, value))
        elif isinstance(value, bool):
            yield prefix + key, "true" if value else "false"
        else:
            yield prefix + key, str(value)
