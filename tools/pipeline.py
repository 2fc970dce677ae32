"""The pipeline end to end: a load, a topic, `archive`, `metrics`, `capacity`, `audit`.

Starts a broker of its own and runs the commands a user would type.  A second run goes on where
the first one ended.  Ends with a failure if `audit` finds that lake and log differ.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from test_tools import java_home

from waystation import Producer
from waystation.testing.process import BrokerProcess

WAYSTATION = Path(sys.executable).parent / "waystation"
BOLD, DIM, PLAIN = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")
TOPIC = "orders"
GROUP = "archive-orders"
DAYS = 3
DAY_MS = 86_400_000
# As good as never: records that are days old must not be retention's before they are archived.
OPTIONS = ("retention.ms=604800000", f"retention.after.archive={GROUP}")


class Pipeline:
    """Runs commands against one broker, and stops with the first that fails."""

    def __init__(self, broker: BrokerProcess, out: Path) -> None:
        self._bootstrap = broker.bootstrap
        self.lake = out / "lake"
        self.metrics = out / "metrics"
        self.capacity = out / "capacity"
        self.checkpoints = out / "checkpoints"

    def say(self, text: str) -> None:
        print(f"\n{BOLD}{text}{PLAIN}", flush=True)

    def run(self, *arguments: object, check: bool = True) -> int:
        words = [str(one) for one in arguments]
        print(f"{DIM}$ waystation {' '.join(words)}{PLAIN}", flush=True)
        environment = {**os.environ, "WAYSTATION_BOOTSTRAP": self._bootstrap}
        if (java := java_home()) is not None:
            environment["JAVA_HOME"] = str(java)
        return subprocess.run([WAYSTATION, *words], env=environment, check=check).returncode

    def load(self, count: int) -> None:
        began_s = time.monotonic()
        asyncio.run(self._produce(count))
        took_s = time.monotonic() - began_s
        print(f"{count:,} orders of the last {DAYS} days in {took_s:.1f} s", flush=True)

    async def _produce(self, count: int) -> None:
        async with Producer(bootstrap=self._bootstrap, compression="lz4") as producer:
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

    pipeline.say("Lake and log, offset for offset")
    code = pipeline.run(
        "pipeline", "audit", "--topics", TOPIC, "--lake", pipeline.lake, "--complete", check=False
    )
    print(f"\ntable    {pipeline.lake}")
    print(f"reports  {pipeline.metrics}-report.html\n         {pipeline.capacity}-report.html")
    print(f'read it  spark.read.format("waystation.table").load("{pipeline.lake}")', flush=True)
    return code


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
