"""What a supervisor, a load balancer and Prometheus ask.

- ``/healthz``: does the process answer?  A node that waits for a peer or a store is healthy.
- ``/readyz``: may clients be sent here?  503 says what it still waits for.
- ``/metrics``: everything in the registry, as Prometheus text.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from waystation.gateway.routes import Call, Reply, Route
from waystation.telemetry.exposition import CONTENT_TYPE, scrape
from waystation.telemetry.metrics import Registry
from waystation.version import VERSION

__all__ = ["Health", "Readiness", "Ready", "health_routes"]

Readiness = Callable[[], Sequence[str]]
"""What the node still waits for; nothing once it is ready."""


class Health(msgspec.Struct):
    """The process answers."""

    healthy: bool
    version: str


class Ready(msgspec.Struct):
    """Whether clients may be sent here."""

    ready: bool
    waiting_for: list[str]
    """What the node still waits for."""


def health_routes(registry: Registry, readiness: Readiness) -> list[Route]:
    """The routes that every node has."""

    async def healthz(_: Call[Any, Any]) -> Health:
        return Health(True, VERSION)

    async def readyz(_: Call[Any, Any]) -> Reply:
        waiting_for = list(readiness())
        answer = Ready(not waiting_for, waiting_for)
        return Reply(msgspec.json.encode(answer), 503 if waiting_for else 200)

    async def metrics(_: Call[Any, Any]) -> Reply:
        return Reply(await scrape(registry), media_type=CONTENT_TYPE)

    return [
        Route(
            method="GET",
            path="/healthz",
            summary="Does the process answer?",
            tag="health",
            handler=healthz,
            answer=Health,
        ),
        Route(
            method="GET",
            path="/readyz",
            summary="May clients be sent here?",
            tag="health",
            handler=readyz,
            answer=Ready,
            others={503: Ready},
        ),
        Route(
            method="GET",
            path="/metrics",
            summary="Everything measured, as Prometheus reads it",
            tag="health",
            handler=metrics,
            answer=str,
            answer_types=(CONTENT_TYPE,),
        ),
    ]
