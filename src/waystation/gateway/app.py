"""The HTTP application, and how it is served beside the broker.

Starlette and uvicorn are imported here by the functions that need them: a node with HTTP turned
off does not pay their 90 ms and 11 MB.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from waystation.gateway.health import Readiness, health_routes
from waystation.runtime import sockets
from waystation.runtime.tasks import spawn
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Registry

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette

_events = get_logger("gateway")
_GRACE_S: Final = 5


def build_app(registry: Registry, readiness: Readiness) -> "Starlette":
    """The application of one node."""
    from starlette.applications import Starlette

    return Starlette(routes=health_routes(registry, readiness))


class HttpServer:
    """A served application; ``port`` is the one that was bound."""

    def __init__(self, server: "uvicorn.Server", serving: "asyncio.Task[Any]", port: int) -> None:
        self._server = server
        self._serving = serving
        self.port = port

    async def aclose(self) -> None:
        """Let nobody in, finish what was asked within seconds, close the rest."""
        self._server.should_exit = True
        await asyncio.wait([self._serving])


async def serve_http(app: "Starlette", host: str, port: int) -> HttpServer:
    """Serve ``app`` on the running loop; returns once clients are let in."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Signals are the node's affair."""
            yield

        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            started.set_result(None)

    bound = await sockets.bind(host, port)
    bound_port = int(bound[0].getsockname()[1])
    started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    server = Server(
        uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=_GRACE_S,
        )
    )
    serving = spawn(server.serve(sockets=bound), "http")
    await asyncio.wait((started, serving), return_when=asyncio.FIRST_COMPLETED)
    if not started.done():
        raise RuntimeError("HTTP did not start") from serving.exception()
    _events.info("http.started", host=host, port=bound_port)
    return HttpServer(server, serving, bound_port)
