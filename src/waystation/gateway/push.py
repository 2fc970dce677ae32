"""Push: topics as Server-Sent Events, topics and queues over WebSockets.

Promises, of a subscriber without a group:

1. every message behind the place where it begins, once, in the order of its partition;
2. ``Last-Event-ID`` goes on exactly behind the message that had that id, at any node of the
   cluster and after any restart;
3. whoever does not read holds up nobody, and costs no more than the buffer of its connection.

Members of groups are in ``push_member.py``, sockets in ``sockets_topic.py`` and
``sockets_queue.py``.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta

from waystation.gateway.payloads import StoredMessage
from waystation.gateway.problems import ProblemError, problem_of
from waystation.gateway.push_events import SSE, problem_event
from waystation.gateway.push_member import Members
from waystation.gateway.push_meters import PushMeters
from waystation.gateway.push_start import SubscribeParams, check_member, wanted_by
from waystation.gateway.push_subscriber import Subscriber, Wanted
from waystation.gateway.push_tails import Tails
from waystation.gateway.queue_clients import QueueClients
from waystation.gateway.routes import Call, Route
from waystation.gateway.sockets import Conversation
from waystation.gateway.sockets_frames import QUEUE_FRAMES, TOPIC_FRAMES
from waystation.gateway.sockets_queue import QueueSocketParams, queue_conversation
from waystation.gateway.sockets_topic import TopicSocketParams, topic_conversation
from waystation.gateway.streams import Pushed, Wire, chunk
from waystation.model.errors import WaystationError

if TYPE_CHECKING:
    from waystation.client.metadata import TopicView
    from waystation.gateway.clients import Clients

__all__ = ["Push", "push_routes"]

_EVENTS: Final = "text/event-stream"
_RETRY: Final = b"retry: 1000\n"
_FAREWELL: Final = b": this node is about to stop, go on at another\n\n"
_UNBUFFERED: Final = ((b"x-accel-buffering", b"no"),)
"""Asks proxies to pass every event on as it comes."""


class EventsParams(SubscribeParams, frozen=True):
    """Which messages, from where on, and how many."""

    limit: (
        Annotated[int, Meta(ge=1, le=2**31, description="End after so many; never, if not given.")]
        | None
    ) = None


class Push:
    """All that is pushed by one node."""

    def __init__(self, meters: PushMeters) -> None:
        self.tails = Tails()
        self.members = Members()
        self.queues = QueueClients()
        self.meters = meters
        self._known: Clients | None = None

    async def events(self, call: Call[EventsParams, None]) -> Pushed:
        """Messages of a topic as they come, as Server-Sent Events."""
        clients, given = self.of(call.clients), call.parameters
        if given.group is not None:
            check_member(given)
            topic = await clients.topic(given.topic)
            self.members.check_room()
            return _stream(partial(self._to_member, clients, topic, given))
        header = call.headers.get(b"last-event-id", b"").decode("latin-1")
        wanted = await wanted_by(clients, given, header or None)
        self.tails.check_room(wanted.topic, wanted.partition)
        return _stream(partial(self._to_one, clients, wanted, given.limit))

    async def _to_member(
        self, clients: "Clients", topic: "TopicView", given: EventsParams, wire: Wire
    ) -> None:
        with self.meters.subscribed("events-group"):
            wire.write(chunk(_RETRY + b"\n"))
            pushing = self.members.events(clients, topic, given, given.limit, self.meters, wire)
            await _told(pushing, wire)

    async def _to_one(
        self, clients: "Clients", wanted: Wanted, limit: int | None, wire: Wire
    ) -> None:
        subscriber = Subscriber(
            clients,
            self.tails,
            self.meters,
            wanted,
            SSE,
            wire,
            credit=limit,
            is_limited=limit is not None,
        )
        with self.meters.subscribed("events"):
            wire.write(chunk(_RETRY + b"id: %s\n\n" % subscriber.id.encode()))
            await _told(subscriber.run(), wire)

    async def topic_socket(self, call: Call[TopicSocketParams, None]) -> Conversation:
        """A topic over a WebSocket."""
        return await topic_conversation(self, call)

    async def queue_socket(self, call: Call[QueueSocketParams, None]) -> Conversation:
        """A queue over a WebSocket."""
        return await queue_conversation(self, call)

    def of(self, clients: "Clients") -> "Clients":
        """The clients, which from now on are not closed before all of this has ended."""
        if self._known is not clients:
            self._known = clients
            clients.on_close.append(self.tails.aclose)
        return clients


def _stream(pour: Callable[[Wire], Awaitable[None]]) -> Pushed:
    return Pushed(pour, _EVENTS, _UNBUFFERED, _FAREWELL)


async def _told(pushing: Awaitable[None], wire: Wire) -> None:
    """Push; what ends it is the last event."""
    try:
        await pushing
    except ProblemError as error:
        wire.write(chunk(problem_event(error.problem)))
    except WaystationError as error:
        wire.write(chunk(problem_event(problem_of(error))))


def push_routes(meters: PushMeters) -> list[Route]:
    """The calls that push."""
    push = Push(meters)
    return [
        Route(
            method="GET",
            path="/v1/topics/{topic}/events",
            summary="Messages as they come, as Server-Sent Events",
            tag="push",
            handler=push.events,
            parameters=EventsParams,
            answer=StoredMessage,
            answer_types=(_EVENTS,),
            errors=(410, 416, 504),
        ),
        Route(
            method="GET",
            path="/v1/topics/{topic}/socket",
            summary="A topic over a WebSocket, with credit; docs/push.md says what is said",
            tag="push",
            handler=push.topic_socket,
            parameters=TopicSocketParams,
            status=101,
            frames=TOPIC_FRAMES,
            errors=(410, 416, 504),
        ),
        Route(
            method="GET",
            path="/v1/queues/{queue}/socket",
            summary="A queue over a WebSocket, with credit, ack and nack",
            tag="push",
            handler=push.queue_socket,
            parameters=QueueSocketParams,
            status=101,
            frames=QUEUE_FRAMES,
            errors=(504,),
        ),
    ]
