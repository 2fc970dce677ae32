"""The HTTP application, and how it is served beside the broker.

uvicorn is imported here by the functions that need it, and everything beyond health when the first
call for it comes: a node with HTTP turned off, or never asked, does not pay for them.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from waystation.runtime import sockets
from waystation.runtime.tasks import spawn
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Registry

if TYPE_CHECKING:
    import uvicorn

    from waystation.client.transport import Connect
    from waystation.gateway.asgi import Gateway
    from waystation.gateway.bodies import Limits
    from waystation.gateway.clients import Clients
    from waystation.gateway.health import Readiness
    from waystation.gateway.push_meters import PushMeters
    from waystation.gateway.routes import Route, Routes
    from waystation.gateway.settings import GatewaySettings
    from waystation.gateway.webhook_running import Webhooks

_events = get_logger("gateway")
_GRACE_S: Final = 5


class Reach(NamedTuple):
    """How the gateway's clients reach the cluster: where to begin, and by which connections."""

    bootstrap: str
    connect: "Connect"


class App:
    """The application of one node; health from the start, the rest from its first call on."""

    def __init__(
        self,
        health: "list[Route]",
        reach: Reach | None,
        limits: "Limits | None" = None,
        settings: "GatewaySettings | None" = None,
        webhooks: "Webhooks | None" = None,
        pushing: "PushMeters | None" = None,
    ) -> None:
        from waystation.gateway.bodies import Limits
        from waystation.gateway.clients import Clients
        from waystation.gateway.hosts import Hosts
        from waystation.gateway.routes import Routes
        from waystation.gateway.settings import GatewaySettings
        from waystation.gateway.streams import Streams

        self.limits = limits or Limits()
        self._settings = settings or GatewaySettings()
        self._health = health
        self._webhooks = webhooks
        self._pushing = pushing
        self._reach = reach
        self.hosts = Hosts(self._settings.http_hosts)
        self._streams = Streams(self.limits.streams)
        self._clients: Clients | None = None
        if reach is not None:
            self._clients = Clients(
                *reach, waiting=self.limits.waiting, message_bytes=self.limits.body_bytes
            )
        self._paths = frozenset(route.path for route in health)
        self._first = self._gateway(Routes(health))
        self._whole: Gateway | None = None if reach is not None else self._first

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        gateway = self._whole
        if gateway is None:
            gateway = self._first
            if scope["path"] not in self._paths:
                gateway = await self._load()
        await gateway(scope, receive, send)

    async def stop_streams(self) -> None:
        """End the answers that go on, and let none begin; other calls are answered still."""
        await self._streams.stop()

    async def aclose(self) -> None:
        """Close the clients: calls that need them are refused from now on."""
        await self._streams.stop()
        if self._clients is not None:
            await self._clients.close()

    async def _load(self) -> "Gateway":
        routes = await asyncio.to_thread(
            _all_routes, self._health, self._settings, self._webhooks, self._pushing
        )
        if self._whole is None:
            self._whole = self._gateway(routes)
        return self._whole

    def _gateway(self, routes: "Routes") -> "Gateway":
        from waystation.gateway.asgi import Gateway

        # Without any, nobody calls for them.
        return Gateway(
            routes, cast("Clients", self._clients), self.limits, self._streams, self.hosts
        )


def build_app(
    registry: Registry,
    readiness: "Readiness",
    reach: Reach | None = None,
    limits: "Limits | None" = None,
    settings: "GatewaySettings | None" = None,
    webhooks: "Webhooks | None" = None,
) -> App:
    """The application of one node; without ``reach`` it has health and metrics only."""
    from waystation.gateway.health import health_routes
    from waystation.gateway.push_meters import PushMeters

    # Shown from the start, though nobody is pushed to yet.
    pushing = None if reach is None else PushMeters(registry)
    return App(health_routes(registry, readiness), reach, limits, settings, webhooks, pushing)


class HttpServer:
    """A served application; ``port`` is the one that was bound."""

    def __init__(
        self,
        app: App,
        server: "uvicorn.Server",
        serving: "asyncio.Task[Any]",
        watching: "asyncio.Task[Any]",
        port: int,
    ) -> None:
        self._app = app
        self._server = server
        self._serving = serving
        self._watching = watching
        self.port = port

    async def aclose(self) -> None:
        """Let nobody in, finish what was asked within seconds, close the rest."""
        await self._app.stop_streams()
        self._server.should_exit = True
        await asyncio.wait([self._serving])
        self._watching.cancel()
        await asyncio.wait([self._watching])


async def serve_http(app: App, host: str, port: int) -> HttpServer:
    """Serve ``app`` on the running loop; returns once clients are let in."""
    import uvicorn

    from waystation.gateway.protocol import bounded_protocol, bounded_sockets, watch

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Signals are the node's affair."""
            yield

        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            started.set_result(None)

    app.hosts.listens_on(host)
    bound = await sockets.bind(host, port)
    bound_port = int(bound[0].getsockname()[1])
    started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    server = Server(
        uvicorn.Config(
            app,
            http=bounded_protocol(app.limits),
            ws=cast("Any", bounded_sockets(app.limits)),
            ws_max_size=app.limits.frame_bytes,
            ws_ping_interval=app.limits.ping_s,
            ws_ping_timeout=app.limits.ping_s,
            ws_per_message_deflate=False,
            interface="asgi3",
            proxy_headers=False,  # nobody asks who the caller says it is
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_keep_alive=app.limits.idle_s,
            timeout_graceful_shutdown=_GRACE_S,
        )
    )
    serving = spawn(server.serve(sockets=bound), "http")
    await asyncio.wait((started, serving), return_when=asyncio.FIRST_COMPLETED)
    if not started.done():
        raise RuntimeError("HTTP did not start") from serving.exception()
    watching = spawn(watch(server.server_state.connections), "http-watch")
    _events.info("http.started", host=host, port=bound_port)
    return HttpServer(app, server, serving, watching, bound_port)


def _all_routes(
    health: "list[Route]",
    settings: "GatewaySettings",
    webhooks: "Webhooks | None",
    pushing: "PushMeters | None",
) -> "Routes":
    import waystation.gateway.sockets_protocol  # noqa: F401 - the first socket need not wait
    from waystation.gateway.rest import rest_routes

    return rest_routes(health, settings, webhooks, pushing)
