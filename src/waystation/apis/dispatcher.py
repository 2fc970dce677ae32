"""From a frame to the handler of its API, and from the handler's result to the reply.

A handler returns its response, or an awaitable of it, or nothing if it replies by itself
later.  Whatever goes wrong inside one costs its own connection and no other.
"""

from collections.abc import Awaitable

from waystation.apis.api_versions import answer_unknown_version
from waystation.apis.call import Call
from waystation.apis.registry import APIS
from waystation.broker.broker import Broker
from waystation.model.errors import UnsupportedVersionError
from waystation.runtime.tasks import Tasks
from waystation.server.connection import Request, Respond
from waystation.telemetry.metrics import Histogram, Registry
from waystation.wire.message import Message
from waystation.wire.versions import ApiKey


def _duration(registry: Registry, key: ApiKey) -> Histogram:
    return registry.histogram(
        "waystation_api_seconds",
        "From a whole request to its reply; a fetch includes the wait it asked for.",
        api=key.name.title().replace("_", ""),
    )


class Dispatcher:
    """Hands each request to its API; given to the server as its ``handle``."""

    __slots__ = ("_broker", "_now", "_routes", "_tasks")

    def __init__(self, broker: Broker, tasks: Tasks, registry: Registry) -> None:
        self._broker = broker
        self._tasks = tasks
        self._now = broker.clock.monotonic
        self._routes = {
            int(key): (key, api.decode, api.answer, api.spoken, _duration(registry, key))
            for key, api in APIS.items()
        }

    def handle(self, request: Request, respond: Respond) -> None:
        """HOT: once per request."""
        route = self._routes.get(request.api_key)
        if route is None or not route[3].include(request.api_version):
            self._refuse(request, respond)
            return
        key, decode, answer, _, duration = route
        message = decode(request.body, request.api_version)
        call = Call(key, message, request, respond, duration, self._now)
        result = answer(self._broker, call)
        if result is None:
            return
        if isinstance(result, Message):
            call.reply(result)
        else:
            self._tasks.spawn(self._answer_later(call, result), f"api-{key.name.lower()}")

    def _refuse(self, request: Request, respond: Respond) -> None:
        if request.api_key == ApiKey.API_VERSIONS:
            respond(list(answer_unknown_version(request.correlation_id)))
            return
        raise UnsupportedVersionError(
            f"API {request.api_key} v{request.api_version} is not served here"
        )

    async def _answer_later(self, call: Call[Message], result: Awaitable[Message]) -> None:
        try:
            call.reply(await result)
        except Exception as error:  # the outermost frame of this task
            call.fail(error)
