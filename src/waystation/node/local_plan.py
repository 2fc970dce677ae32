"""What a cluster in the background of one machine consists of: brokers, ports, options, a store.

A plan is kept in a file and only ever grows: brokers keep their numbers and ports, since clients
and other brokers know them by these.
"""

import socket
from collections.abc import Collection, Iterator
from itertools import count, islice

import msgspec

from waystation.model.errors import WaystationError

HOST = "127.0.0.1"
_KAFKA_PORT, _HTTP_PORT = 9092, 8090
_ETCD_PORTS = (2379, 2380)
_NODES = 3
_LAST_PORT = 65_535


class LocalClusterError(WaystationError):
    """The cluster in the background is not as the command needs it."""


class LocalBroker(msgspec.Struct, frozen=True):
    """One broker's number and ports."""

    id: int
    kafka_port: int
    http_port: int

    @property
    def name(self) -> str:
        """How its files are called."""
        return f"broker-{self.id}"

    @property
    def kafka(self) -> str:
        """Where clients connect."""
        return f"{HOST}:{self.kafka_port}"

    @property
    def http(self) -> str:
        """Where health and metrics are."""
        return f"{HOST}:{self.http_port}"


class LocalPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for; without ``etcd_ports`` the store is somebody else's."""

    store: str
    brokers: tuple[LocalBroker, ...]
    options: dict[str, str] = {}
    etcd_ports: tuple[int, int] | None = None
    version: int = 1

    @property
    def bootstrap(self) -> str:
        """All brokers: one that is dead does not matter to whoever asks."""
        return ",".join(broker.kafka for broker in self.brokers)


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody asks of a cluster; ``None`` leaves it as it is, a port of 0 is any."""

    nodes: int | None = None
    store: str | None = None
    options: dict[str, str] = {}
    kafka_port: int | None = None
    http_port: int | None = None


def first_plan(wish: Wish) -> LocalPlan:
    """The plan of a new cluster; its ports are free now."""
    kafka = _KAFKA_PORT if wish.kafka_port is None else wish.kafka_port
    http = (_HTTP_PORT if kafka else 0) if wish.http_port is None else wish.http_port
    if kafka and not _is_free(kafka):
        raise LocalClusterError(
            f"port {kafka} is taken by another process, perhaps another broker. Remedy: stop it, "
            "or choose another with --port"
        )
    etcd_ports, store = None, wish.store
    if store is None:
        usual = bool(kafka) and all(map(_is_free, _ETCD_PORTS))
        first, second = _ETCD_PORTS if usual else tuple(islice(_ports(0, ()), 2))
        etcd_ports, store = (first, second), f"etcd://{HOST}:{first}/waystation"
    brokers = _brokers(1, wish.nodes or _NODES, kafka, http, etcd_ports or ())
    return LocalPlan(
        store=store, brokers=brokers, options=dict(wish.options), etcd_ports=etcd_ports
    )


def grown(plan: LocalPlan, wish: Wish) -> LocalPlan:
    """The plan with what is asked for added to it, or why it cannot be."""
    there = len(plan.brokers)
    if wish.store is not None and wish.store != plan.store:
        raise LocalClusterError(
            f"this cluster keeps its metadata at {plan.store}, not at {wish.store}: take another "
            "--data-dir for another cluster"
        )
    if wish.nodes is not None and wish.nodes < there:
        raise LocalClusterError(
            f"this cluster has {there} brokers. Remedy: to go on with {wish.nodes}, drain the "
            "others (waystation cluster drain N) and stop them (waystation cluster kill N)"
        )
    if wish.kafka_port not in (None, 0, plan.brokers[0].kafka_port):
        raise LocalClusterError(f"this cluster has its ports: {plan.bootstrap}; brokers keep them")
    last = plan.brokers[-1]
    taken = [port for each in plan.brokers for port in (each.kafka_port, each.http_port)]
    added = _brokers(
        last.id + 1, (wish.nodes or there) - there, last.kafka_port + 1, last.http_port + 1, taken
    )
    return msgspec.structs.replace(
        plan, brokers=(*plan.brokers, *added), options={**plan.options, **wish.options}
    )


def _brokers(
    first_id: int, number: int, kafka: int, http: int, taken: Collection[int]
) -> tuple[LocalBroker, ...]:
    """Brokers with consecutive numbers, and ports from the given ones on."""
    kafka_ports = list(islice(_ports(kafka, taken), number))
    http_ports = list(islice(_ports(http, {*taken, *kafka_ports}), number))
    rows = zip(count(first_id), kafka_ports, http_ports, strict=False)
    return tuple(LocalBroker(*row) for row in rows)


def _ports(first: int, taken: Collection[int]) -> Iterator[int]:
    """Free ports from ``first`` on, or any if it is 0."""
    if first:
        yield from (p for p in range(first, _LAST_PORT) if p not in taken and _is_free(p))
    with_owners: list[socket.socket] = []  # kept open, so that none is offered twice
    try:
        while True:
            with_owners.append(socket.create_server((HOST, 0)))
            port = with_owners[-1].getsockname()[1]
            if port not in taken:
                yield port
    finally:
        for one in with_owners:
            one.close()


def _is_free(port: int) -> bool:
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True


__all__ = ["HOST", "LocalBroker", "LocalClusterError", "LocalPlan", "Wish", "first_plan", "grown"]
