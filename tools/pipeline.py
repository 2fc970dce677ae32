"""The pipeline end to end: from a load through every job into tables, reports and topics again.

Starts a broker of its own and runs the commands a user would type: `archive`, `metrics`,
`capacity`, `transform`, `replay`, `audit`.  A second run goes on where the first one ended.  Ends
with a failure if `audit` finds that lake and log differ, or if what `transform` and `replay` wrote
is not what they should have written, message by message.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline_audit import by_key, differences, order_of, read_committed
from test_tools import java_home

from waystation import Message, Producer
from waystation.testing.process import BrokerProcess

WAYSTATION = Path(sys.executable).parent / "waystation"
BOLD, DIM, PLAIN = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")
TOPIC, LARGE, REFUSED, AGAIN = "orders", "orders-large", "orders-refused", "orders-again"
GROUP = "archive-orders"
DAYS = 3
DAY_MS = 86_400_000
LARGE_AMOUNT, AGAIN_AMOUNT = 50, 150
SQL = f"""SELECT key, headers, timestamp, struct(value.order, value.amount) AS value
  FROM {TOPIC} WHERE value.amount > {LARGE_AMOUNT}"""
# As good as never: records that are days old must not be retention's before they are archived.
OPTIONS = ("retention.ms=604800000", f"retention.after.archive={GROUP}")
# What is older than that may have been deleted from one topic and not yet from another.
KEPT_DAYS = 6
RETENTION = ("--config", "retention.ms=604800000")


class Pipeline:
    """Runs commands against one broker, and stops with the first that fails."""

    def __init__(self, broker: BrokerProcess, out: Path) -> None:
        self.bootstrap = broker.bootstrap
        self.lake = out / "lake"
        self.metrics = out / "metrics"
        self.capacity = out / "capacity"
        self.checkpoints = out / "checkpoints"

    def say(self, text: str) -> None:
        print(f"\n{BOLD}{text}{PLAIN}", flush=True)

    def run(self, *arguments: object, check: bool = True) -> int:
        words = [str(one) for one in arguments]
        print(f"{DIM}$ waystation {' '.join(words)}{PLAIN}", flush=True)
        environment = {**os.environ, "WAYSTATION_BOOTSTRAP": self.bootstrap}
        if (java := java_home()) is not None:
            environment["JAVA_HOME"] = str(java)
        return subprocess.run([WAYSTATION, *words], env=environment, check=check).returncode

    def load(self, count: int) -> None:
        began_s = time.monotonic()
        asyncio.run(self._produce(count))
        took_s = time.monotonic() - began_s
        print(f"{count:,} orders of the last {DAYS} days in {took_s:.1f} s", flush=True)

    async def _produce(self, count: int) -> None:
        async with Producer(bootstrap=self.bootstrap, compression="lz4") as producer:
            generated = orders(count, int(time.time() * 1_000))
            for number, (timestamp_ms, key, value) in enumerate(generated):
                producer.submit(TOPIC, value, key=key, timestamp=timestamp_ms)
                if number % 100 == 0:
                    await producer.drain()
            await producer.flush()


def orders(count: int, now_ms: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Orders of some customers who order more every day; now and then something is no order."""
    chance = random.Random(now_ms)
    for number in range(count):
        age_ms = int(DAYS * DAY_MS * (1 - number / count) ** 1.3)
        customer = f"customer-{int(chance.paretovariate(1.2)) % 1_000}"
        value = {
            "order": number,
            "customer": customer,
            "amount": round(chance.expovariate(0.02), 2),
            "items": chance.randint(1, 9),
        }
        text = json.dumps(value) if number % 1_000 else "two coffees, please"
        yield now_ms - age_ms, customer.encode(), text.encode()


def run_all(pipeline: Pipeline, count: int) -> int:
    done = pipeline.checkpoints
    pipeline.say("A topic that keeps everything until it is archived")
    options = [word for option in OPTIONS for word in ("--config", option)]
    pipeline.run("topic", "create", TOPIC, "--partitions", "6", "--if-not-exists", *options)
    for topic in (LARGE, REFUSED, AGAIN):
        pipeline.run("topic", "create", topic, "--partitions", "6", "--if-not-exists", *RETENTION)
    pipeline.load(count)

    pipeline.say("Every record into a lake table, once; what is no JSON into its quarantine")
    archive = [
        "--topics",
        TOPIC,
        "--lake",
        pipeline.lake,
        "--group",
        GROUP,
        "--value-format",
        "json",
    ]
    pipeline.run(
        "pipeline", "archive", *archive, "--checkpoint", done / "archive", "--available-now"
    )
    pipeline.run("group", "describe", GROUP)

    pipeline.say("What went through, window by window")
    metrics = ["--topics", TOPIC, "--to", pipeline.metrics, "--checkpoint", done / "metrics"]
    pipeline.run("pipeline", "metrics", *metrics, "--window", "3600", "--available-now")

    pipeline.say("How much comes in, and how long the disk will do")
    pipeline.run("pipeline", "capacity", "--topics", TOPIC, "--to", pipeline.capacity)

    pipeline.say("Large orders into a topic of their own, once; what is no order into another")
    transform = ["--topics", TOPIC, "--to", LARGE, "--dead-letters", REFUSED, "--sql", SQL]
    transform += ["--value-format", "json", "--checkpoint", done / "transform"]
    pipeline.run("pipeline", "transform", *transform, "--available-now")

    pipeline.say("The largest orders of the last day once more, from the lake")
    now = datetime.now(UTC)
    since, again = now.timestamp() - DAY_MS / 1_000, done / f"replay-{now:%Y%m%d-%H%M%S}"
    replay = ["--lake", pipeline.lake, "--where", f"value.amount > {AGAIN_AMOUNT}", "--to", AGAIN]
    replay += ["--from", datetime.fromtimestamp(since, UTC).isoformat(), "--checkpoint", again]
    pipeline.run("pipeline", "replay", *replay, "--dry-run")
    pipeline.run("pipeline", "replay", *replay)

    pipeline.say("Lake and log, offset for offset")
    code = pipeline.run(
        "pipeline", "audit", "--topics", TOPIC, "--lake", pipeline.lake, "--complete", check=False
    )
    pipeline.say("What was written into topics, message by message")
    clean = asyncio.run(audit_topics(pipeline.bootstrap, since, again))
    print(f"\ntable    {pipeline.lake}")
    print(f"reports  {pipeline.metrics}-report.html\n         {pipeline.capacity}-report.html")
    print(f'read it  spark.read.format("waystation.table").load("{pipeline.lake}")', flush=True)
    return code or (0 if clean else 1)


async def audit_topics(bootstrap: str, since_s: float, again: Path) -> bool:
    """Whether the topics that jobs wrote to hold what they should; says what is wrong."""
    oldest_ms = (time.time() - KEPT_DAYS * 86_400) * 1_000

    async def there(topic: str) -> list[Message]:
        return [one for one in await read_committed(bootstrap, topic) if one.timestamp >= oldest_ms]

    orders_there = await there(TOPIC)
    run = json.loads((again / "replay.json").read_text())["run"].encode()
    checks: list[tuple[str, Callable[[Message], Any], Callable[[Message], Any]]] = [
        (LARGE, large_order, order_of),
        (REFUSED, no_order, lambda message: [(message.value or b"").decode()]),
        (
            AGAIN,
            lambda message: order_to_repeat(message, since_s),
            lambda message: (
                order_of(message) if dict(message.headers)["replay.run"] == run else None
            ),
        ),
    ]
    clean = True
    for topic, wanted, found in checks:
        told = by_key(await there(topic), found)
        wrong = differences(by_key(orders_there, wanted), told)
        count = sum(map(len, told.values()))
        shown = ", ".join(f"{number:,} {what}" for what, number in wrong.items())
        print(f"{topic}: {count:,} messages, {shown}", flush=True)
        clean = clean and not any(wrong.values())
    return clean


def large_order(message: Message) -> Any:
    """What `transform` makes of a message of the topic."""
    order = order_of(message)
    if order is None or order["amount"] <= LARGE_AMOUNT:
        return None
    return {"order": order["order"], "amount": order["amount"]}


def no_order(message: Message) -> Any:
    """What it puts aside."""
    return [(message.value or b"").decode()] if order_of(message) is None else None


def order_to_repeat(message: Message, since_s: float) -> Any:
    """What `replay` sends once more."""
    order = order_of(message)
    if order is None or order["amount"] <= AGAIN_AMOUNT:
        return None
    # The command was told the time in microseconds, and rounds it as messages are: to ms.
    return order if message.timestamp >= round(since_s * 1_000) else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("data/pipeline"))
    parser.add_argument("--records", type=int, default=200_000)
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    broker = BrokerProcess(out / "broker", options={"group.initial.rebalance.delay.ms": "0"})
    with broker.start():
        return run_all(Pipeline(broker, out), arguments.records)


if __name__ == "__main__":
    sys.exit(main())
