"""What a supervisor, a load balancer and Prometheus ask.

- ``/healthz``: does the process answer?  A node that waits for a peer or a store is healthy.
- ``/readyz``: may clients be sent here?  503 says what it still waits for.
- ``/metrics``: everything in the registry, as Prometheus text.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from waystation.telemetry.exposition import CONTENT_TYPE, scrape
from waystation.telemetry.metrics import Registry
from waystation.version import VERSION

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

Readiness = Callable[[], Sequence[str]]
"""What the node still waits for; nothing once it is ready."""


def health_routes(registry: Registry, readiness: Readiness) -> list["Route"]:
    """The routes that every node has."""
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    async def healthz(_: "Request") -> "Response":
        return JSONResponse({"healthy": True, "version": VERSION})

    async def readyz(_: "Request") -> "Response":
        waiting_for = list(readiness())
        status = 503 if waiting_for else 200
        return JSONResponse({"ready": not waiting_for, "waiting_for": waiting_for}, status)

    async def metrics(_: "Request") -> "Response":
        return Response(await scrape(registry), media_type=CONTENT_TYPE)

    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)]
