"""How much a listener lets its clients take, and for how long."""

from dataclasses import dataclass

from waystation.model.settings import option

_INT32_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Options of the Kafka listener; names are Kafka's wherever Kafka has the option."""

    socket_request_max_bytes: int = option(
        100 << 20,
        at_least=1 << 10,
        at_most=_INT32_MAX,
        doc="The largest request that is read. A client that announces a larger one is cut off "
        "before any memory is set aside for it.",
        kafka="socket.request.max.bytes",
    )
    queued_max_request_bytes: int = option(
        256 << 20,
        at_least=1 << 20,
        doc="How many bytes of large requests may be arriving at once, over all connections. "
        "Beyond it further large requests wait in their sender's socket; one alone may exceed "
        "it. Lower saves memory during a surge, higher lets more senders of large batches "
        "proceed side by side.",
        kafka="queued.max.request.bytes",
    )
    max_connections: int = option(
        _INT32_MAX,
        at_least=1,
        live=True,
        doc="How many connections may be open at once; further ones are closed at once.",
        kafka="max.connections",
    )
    max_connections_per_ip: int = option(
        _INT32_MAX,
        at_least=1,
        live=True,
        doc="How many connections one address may have open; further ones are closed at once.",
        kafka="max.connections.per.ip",
    )
    connections_max_idle_ms: int = option(
        600_000,
        at_least=1_000,
        live=True,
        doc="Close a connection over which nothing moved for this long. One that waits for its "
        "reply, such as a long poll, is not idle.",
        kafka="connections.max.idle.ms",
    )
    max_inflight_requests_per_connection: int = option(
        1_000,
        at_least=1,
        doc="How many requests of one connection may be without a reply before reading from it "
        "stops. Higher lets a pipelining client run further ahead and costs memory per client.",
    )
    socket_listen_backlog_size: int = option(
        1_024,
        at_least=1,
        doc="How many connections the kernel may hold that were not accepted yet. Kafka's 50 "
        "drops connections when a thousand clients arrive together.",
        kafka="socket.listen.backlog.size",
    )
    socket_read_linger_ms: int = option(
        1,
        at_least=0,
        at_most=1_000,
        live=True,
        latency=0,
        doc="A client that waits for 32 replies or more and sends little at a time is read from no "
        "more often than this: one read then brings several requests. 0 reads whatever is there "
        "at once, which takes some six times as many reads. It follows the profile that the "
        "broker was started with.",
    )
    socket_send_buffer_bytes: int = option(
        -1,
        at_least=-1,
        doc="The kernel's send buffer per connection; -1 lets the kernel size it by itself.",
        kafka="socket.send.buffer.bytes",
    )
    socket_receive_buffer_bytes: int = option(
        -1,
        at_least=-1,
        doc="The kernel's receive buffer per connection; -1 lets the kernel size it by itself.",
        kafka="socket.receive.buffer.bytes",
    )
