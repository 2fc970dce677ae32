"""``waystation queue send | receive | ack | nack | extend``: messages of queues."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from waystation.cli.options import bootstrap_option, example, json_option, pairs
from waystation.cli.output import counted, print_json, say, write
from waystation.cli.queue_options import PATIENCE_MS, group_option, milliseconds

if TYPE_CHECKING:
    from waystation.client.message import Message
    from waystation.client.queue import Queue, QueueMessage
    from waystation.client.queue_receipts import HeldMessage, Receipt, Receipts
    from waystation.client.receipt_settling import Outcomes

__all__ = ["ack", "extend", "nack", "receive", "send"]

_AT_ONCE = 500
_BLOCK = 500
_MORE_MS = 100


# --- send -----------------------------------------------------------------------------------


@click.command(
    epilog=example(
        "echo 'customer-7:book' | waystation queue send orders --key-separator :\n"
        "  waystation queue send orders --value urgent --priority 9\n"
        "  waystation queue send orders --value 'cart still open?' --after 10m"
    )
)
@click.argument("name")
@click.option("--value", help="Send this instead of each line of standard input.")
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Send each line of this file.",
)
@click.option("--key", help="The key of every message.")
@click.option("--key-separator", help="A line is KEY, this, VALUE.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header; again.")
@click.option("--priority", type=int, help="0, the lowest, to 9; the group must heed priorities.")
@click.option("--after", metavar="D", help="Deliver so much later: 90s, 10m, PT1H.")
@click.option("--at", metavar="TIME", help="Deliver then: ISO 8601, or ms since 1970.")
@bootstrap_option
@json_option
def send(
    name: str,
    value: str | None,
    path: Path | None,
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    priority: int | None,
    after: str | None,
    at: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Send each line of input to the queue NAME.

    Ends with an error if any message was not stored. With --json, prints where each one went.
    """
    if value is not None and path is not None:
        raise click.UsageError("--value and --file exclude each other")
    if after is not None and at is not None:
        raise click.UsageError("--after and --at exclude each other")
    from waystation.client.queue_sending import priority_header

    if priority is not None:
        priority_header(priority)  # a mistake is told before anything is read
    if after is not None:
        milliseconds(after, "--after")
    timing = _timing(after, at)
    listed = pairs(headers, "--header")

    async def work() -> int:
        import asyncio

        from waystation.client.queue import Queue

        sent = 0
        async with Queue(name, bootstrap, metadata_timeout_ms=PATIENCE_MS) as queue:
            async for lines in _lines(value, path):
                for begin in range(0, len(lines), _AT_ONCE):
                    going = [
                        queue.send(content, key=own, headers=listed, priority=priority, **timing)
                        for own, content in _split(
                            lines[begin : begin + _AT_ONCE], key, key_separator
                        )
                    ]
                    for told in await asyncio.gather(*going):
                        sent += 1
                        if as_json:
                            print_json(told._asdict())
        return sent

    sent = _run(work())
    if not as_json:
        say(f"sent {counted(sent, 'message')} to {name}")
    if sent and _run(_is_passed_over(name, bootstrap)):
        say(
            f"hint: nobody has received from {name} yet, and its group begins at the end: what was "
            f"sent before a consumer comes is never received. `waystation queue create {name}` "
            "lets it begin with the oldest message"
        )


async def _is_passed_over(name: str, bootstrap: str) -> bool:
    from waystation.client.admin import Admin

    async with Admin(bootstrap, metadata_timeout_ms=PATIENCE_MS) as admin:
        return await admin.passes_over(name)


def _timing(after: str | None, at: str | None) -> dict[str, Any]:
    from waystation.cli.schedule_options import moment

    if after is not None:
        return {"deliver_after": after}
    return {} if at is None else {"deliver_at": moment(at)}


def _split(
    lines: list[bytes], key: str | None, separator: str | None
) -> list[tuple[bytes | None, bytes]]:
    fixed = None if key is None else key.encode()
    between = None if separator is None else separator.encode()
    pairs_found: list[tuple[bytes | None, bytes]] = []
    for line in lines:
        own, found, rest = (line, b"", b"") if between is None else line.partition(between)
        pairs_found.append((own, rest) if found else (fixed, line))
    return pairs_found


async def _lines(value: str | None, path: Path | None) -> AsyncIterator[list[bytes]]:
    from waystation.cli.lines import lines_of, lines_of_stdin

    if value is not None:
        yield [value.encode()]
        return
    async for lines in lines_of_stdin() if path is None else lines_of(path):
        yield lines


# --- receive --------------------------------------------------------------------------------


@click.command(
    epilog=example(
        "waystation queue receive orders --count 10 --json\n"
        "  waystation queue receive orders --follow\n"
        "  waystation queue receive orders --hold     # prints a receipt; then, within its lock:\n"
        "  waystation queue ack orders RECEIPT"
    )
)
@click.argument("name")
@click.option(
    "--count", type=click.IntRange(min=1), default=1, show_default=True, help="At most so many."
)
@click.option(
    "--wait", default="1s", show_default=True, metavar="D", help="How long to wait for the first."
)
@click.option("--follow", is_flag=True, help="Go on until Ctrl-C.")
@click.option("--hold", is_flag=True, help="Do not acknowledge; print receipts, to do it by.")
@click.option("--lock", metavar="D", help="With --hold: for so long, whatever the group says.")
@click.option("--no-ack", is_flag=True, help="Give the messages back when they are printed.")
@group_option
@bootstrap_option
@json_option
def receive(
    name: str,
    count: int,
    wait: str,
    follow: bool,
    hold: bool,
    lock: str | None,
    no_ack: bool,
    group: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Print messages of the queue NAME, and acknowledge them once they are printed.

    With --hold they stay locked for as long as the group's share.record.lock.duration.ms says, and
    each is printed with a receipt: `waystation queue ack`, `nack` and `extend` take it, from any
    process. What is not acknowledged by then is delivered again.

    text writes values, one per line, with --hold after the receipt and a tab. --json writes key,
    value, topic, partition, offset, timestamp, deliveries, headers and the receipt.
    """
    if hold and (no_ack or follow):
        raise click.UsageError("--hold excludes --no-ack and --follow")
    if lock is not None and not hold:
        raise click.UsageError("--lock is for what is held: give --hold too")
    lock_ms = None if lock is None else milliseconds(lock, "--lock")
    wait_ms = milliseconds(wait, "--wait")

    async def work() -> int:
        from waystation.client.queue_receipts import Receipts

        if hold:
            own = Receipts(name, bootstrap, group=group, metadata_timeout_ms=PATIENCE_MS)
            async with own as receipts:
                held = await receipts.hold(count, wait_ms, lock_ms=lock_ms)
            return _print_held(name, held, as_json)
        from waystation.client.queue import Queue

        async with Queue(name, bootstrap, group=group, metadata_timeout_ms=PATIENCE_MS) as queue:
            if follow:
                return await _follow(queue, as_json, no_ack=no_ack)
            return await _receive(queue, count, wait_ms, as_json, no_ack=no_ack)

    if not _run(work()) and not as_json:
        say(f"nothing came within {wait}")


async def _receive(queue: "Queue", count: int, wait_ms: int, as_json: bool, *, no_ack: bool) -> int:
    await queue.join()  # which takes its time, and is no part of the wait
    received = 0
    while received < count:
        limit = min(count - received, _BLOCK)
        messages = await queue.receive(limit, _MORE_MS if received else wait_ms)
        if not messages:
            break
        received += len(messages)
        await _print(queue, messages, as_json, no_ack=no_ack)
    return received


async def _follow(queue: "Queue", as_json: bool, *, no_ack: bool) -> int:
    received = 0
    while True:
        messages = await queue.receive(_BLOCK, 1_000)
        received += len(messages)
        await _print(queue, messages, as_json, no_ack=no_ack)


async def _print(
    queue: "Queue", messages: list["QueueMessage"], as_json: bool, *, no_ack: bool
) -> None:
    if messages:
        write(b"".join(_shown(one, one.deliveries, None, as_json) for one in messages))
        await (queue.nack(messages) if no_ack else queue.ack(messages))


def _print_held(name: str, held: list["HeldMessage"], as_json: bool) -> int:
    write(b"".join(_shown(one.message, one.deliveries, one, as_json) for one in held))
    if held and not as_json:
        say(f"held for {held[0].lock_ms / 1_000:g} s: `waystation queue ack {name} RECEIPT`")
    return len(held)


def _shown(
    message: "Message | QueueMessage",
    deliveries: int,
    held: "HeldMessage | None",
    as_json: bool,
) -> bytes:
    if not as_json:
        value = b"null" if message.value is None else message.value
        return (b"" if held is None else f"{held.receipt}\t".encode()) + value + b"\n"
    import msgspec

    from waystation.cli.consume import readable

    fields: dict[str, object] = {
        "key": readable(message.key),
        "value": readable(message.value),
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
        "deliveries": deliveries,
        "headers": [[name, readable(content)] for name, content in message.headers],
    }
    if held is not None:
        fields |= {"receipt": str(held.receipt), "lock_ms": held.lock_ms}
    return msgspec.json.encode(fields) + b"\n"


# --- settle ---------------------------------------------------------------------------------

Settle = Callable[["Receipts", list["Receipt"]], Awaitable["Outcomes"]]


@click.command(epilog=example("waystation queue ack orders 0-17-pS3kXq7cQ5mTtW2vB8yZ1A"))
@click.argument("name")
@click.argument("receipts", nargs=-1, required=True)
@group_option
@bootstrap_option
@json_option
def ack(
    name: str, receipts: tuple[str, ...], group: str | None, bootstrap: str, as_json: bool
) -> None:
    """Acknowledge messages that `receive --hold` has printed: they are done."""
    what = "acknowledged"
    _settle(name, receipts, group, bootstrap, as_json, what, lambda own, all_: own.ack_all(all_))


@click.command(
    epilog=example(
        "waystation queue nack orders 0-17-pS3kXq7cQ5mTtW2vB8yZ1A --reject\n"
        "  waystation queue nack orders 0-17-pS3kXq7cQ5mTtW2vB8yZ1A --delay 30s"
    )
)
@click.argument("name")
@click.argument("receipts", nargs=-1, required=True)
@click.option("--reject", is_flag=True, help="Give them up, as dead letters, instead of back.")
@click.option("--why", default="", metavar="TEXT", help="With --reject: goes with them.")
@click.option("--delay", metavar="D", help="Let them come again so much later: 30s, 5m.")
@group_option
@bootstrap_option
@json_option
def nack(
    name: str,
    receipts: tuple[str, ...],
    reject: bool,
    why: str,
    delay: str | None,
    group: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Give messages that `receive --hold` has printed back, for another try, or up."""
    if reject and delay is not None:
        raise click.UsageError("--reject and --delay exclude each other")
    if why and not reject:
        raise click.UsageError("--why is for what is given up: say --reject too")
    wait_ms = None if delay is None else milliseconds(delay, "--delay")
    what = "rejected" if reject else "given back"
    _settle(
        name,
        receipts,
        group,
        bootstrap,
        as_json,
        what,
        lambda own, all_: own.nack_all(all_, requeue=not reject, delay=wait_ms, why=why),
    )


@click.command(epilog=example("waystation queue extend orders 0-17-pS3kXq7cQ5mTtW2vB8yZ1A"))
@click.argument("name")
@click.argument("receipts", nargs=-1, required=True)
@click.option("--lock", metavar="D", help="For so long from now on, whatever the group says.")
@group_option
@bootstrap_option
@json_option
def extend(
    name: str,
    receipts: tuple[str, ...],
    lock: str | None,
    group: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Begin the locks of held messages anew; their receipts stay the same."""
    lock_ms = None if lock is None else milliseconds(lock, "--lock")
    _settle(
        name,
        receipts,
        group,
        bootstrap,
        as_json,
        "extended",
        lambda own, all_: own.extend_all(all_, lock_ms),
    )


def _settle(
    name: str,
    texts: tuple[str, ...],
    group: str | None,
    bootstrap: str,
    as_json: bool,
    what: str,
    settle: Settle,
) -> None:
    """Settle all that can be; the first that cannot be is the error at the end."""
    from waystation.client.queue_receipts import Receipt, Receipts

    wanted = [Receipt.of(text) for text in texts]

    async def work() -> None:
        async with Receipts(name, bootstrap, group=group, metadata_timeout_ms=PATIENCE_MS) as own:
            outcomes = await settle(own, wanted)
        for one, error in outcomes.items():
            if error is None and as_json:
                print_json({"queue": name, "receipt": str(one), "outcome": what})
            elif error is None:
                say(f"{what} {one.partition}-{one.offset}")
        for error in outcomes.values():
            if error is not None:
                raise error

    _run(work())


def _run(work: Any) -> Any:
    from waystation.runtime.loops import run

    return run(work)
