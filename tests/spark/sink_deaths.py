"""A sink that dies on its way, or is stopped there and wakes up late.

``register_deadly`` makes the format ``deadly``: as ``waystation``, but where a plan says so it
kills the process it runs in, stops it (``kill -STOP``), lets it pause, or kills the broker, once.
Run as a program, this is a driver whose queries are all stopped at their points, or without any
a driver that writes until it is killed:

    python -m tests.spark.sink_deaths HOME BOOTSTRAP TOPIC POINT...
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from pyspark import TaskContext, cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from pyspark_waystation import DefaultSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_TASKS = ("written", "prepared", "task done")
OF_DRIVER = ("undecided", "decided", "one ended", "all ended", "committed")
POINTS = (*OF_TASKS, *OF_DRIVER)

EXIT, STOP, BROKER, PAUSE = "exit", "stop", "broker", "pause"

PAUSE_S = 2.5


class Plan(NamedTuple):
    """Who dies ``how``, and in which batch at which point; ``home`` remembers what happened."""

    home: Path
    how: str
    points: dict[int, str]

    def as_options(self) -> dict[str, str]:
        points = json.dumps(self.points)
        return {"deadly.home": str(self.home), "deadly.how": self.how, "deadly.points": points}

    def reach(self, batch: int, point: str) -> None:
        """Die, if it is time."""
        if self.points.get(batch) != point:
            return
        try:
            with (self.home / f"reached {batch} {point}").open("x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            return
        if self.how == EXIT:
            os._exit(9)
        if self.how == PAUSE:
            time.sleep(PAUSE_S)
            return
        if self.how == BROKER:
            os.kill(int((self.home / "broker.pid").read_text()), signal.SIGKILL)
            return
        # The daemon of a driver that dies takes its workers along, and the kernel wakes those
        # who lose their parents; not one that has left the family.
        os.setsid()
        os.kill(os.getpid(), signal.SIGSTOP)

    def say(self, batch: int, error: BaseException | None) -> None:
        """Note how it ended for a process that woke up late."""
        said = "nothing" if error is None else type(error).__name__
        for reached in self.home.glob(f"reached {batch} *"):
            if reached.read_text() == str(os.getpid()):
                reached.with_name(f"said {batch}").write_text(said)

    def has_reached(self, batch: int) -> int | None:
        """The process that has reached its point in the batch."""
        for reached in self.home.glob(f"reached {batch} *"):
            if content := reached.read_text():
                return int(content)
        return None

    def said(self, batch: int) -> str:
        """What ``say`` noted."""
        path = self.home / f"said {batch}"
        return path.read_text() if path.exists() else ""

    @contextlib.contextmanager
    def armed(self, batch: int) -> Iterator[None]:
        """The real sink, with the points in it."""
        from waystation.spark.sending import Sending
        from waystation.spark.sink_cluster import Coordinators
        from waystation.spark.sink_steps import SinkSteps

        prepare, finish = Sending.prepare, SinkSteps._finish
        end, commit_all = Coordinators.end, SinkSteps._commit_all

        def deadly_prepare(sending: Sending) -> Any:
            sending.flush()
            self.reach(batch, "written")
            prepared = prepare(sending)
            self.reach(batch, "prepared")
            return prepared

        async def deadly_finish(steps: SinkSteps, sink: str, state: Any) -> None:
            self.reach(batch, "decided")
            await finish(steps, sink, state)

        async def deadly_end(self_: Coordinators, transaction: Any, *, commit: bool) -> None:
            await end(self_, transaction, commit=commit)
            if commit:
                self.reach(batch, "one ended")

        async def deadly_commit_all(steps: SinkSteps, sink: str, them: Any) -> Any:
            missing = await commit_all(steps, sink, them)
            self.reach(batch, "all ended")
            return missing

        with (
            patch.object(Sending, "prepare", deadly_prepare),
            patch.object(SinkSteps, "_finish", deadly_finish),
            patch.object(Coordinators, "end", deadly_end),
            patch.object(SinkSteps, "_commit_all", deadly_commit_all),
        ):
            try:
                yield
            except BaseException as error:
                self.say(batch, error)
                raise
            self.say(batch, None)


class Deadly(DataSourceStreamArrowWriter):
    """The real writer, with the points around it."""

    def __init__(self, real: Any, plan: Plan) -> None:
        self.real, self.plan = real, plan

    def write(self, iterator: Iterator[Any]) -> Any:
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        with self.plan.armed(batch):
            message = self.real.write(iterator)
            self.plan.reach(batch, "task done")
        return message

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 - Spark's name
        with self.plan.armed(batchId):
            self.plan.reach(batchId, "undecided")
            self.real.commit(messages, batchId)
            self.plan.reach(batchId, "committed")

    def abort(self, messages: Any, batchId: int) -> None:  # noqa: N803 - Spark's name
        self.real.abort(messages, batchId)


class DeadlySource(DefaultSource):
    @classmethod
    def name(cls) -> str:
        return "deadly"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        told = {name: self.options[f"deadly.{name}"] for name in ("home", "how", "points")}
        points = {int(batch): point for batch, point in json.loads(told["points"]).items()}
        plan = Plan(Path(told["home"]), told["how"], points)
        options = {k: v for k, v in self.options.items() if not k.startswith("deadly.")}
        return Deadly(DefaultSource(options).streamWriter(schema, overwrite), plan)


def register_deadly(spark: "SparkSession") -> None:
    """Make the format ``deadly``."""
    # Workers do not find this module.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(DeadlySource)


def folder(home: Path, point: str) -> Path:
    """What belongs to the query that dies at ``point``."""
    return home / point.replace(" ", "-")


def name_of(topic: str, point: str) -> str:
    """Where that query writes, and the name of its sink."""
    return f"{topic}-{point.replace(' ', '-')}"


def _main() -> None:
    from pyspark.sql import SparkSession

    from tests.spark.sink_queries import counted, start

    home, bootstrap, topic, points = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{2 * max(len(points), 1)}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.speculation", "false")
        .config("spark.local.dir", str(home / "local"))
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .getOrCreate()
    )
    register_deadly(spark)
    for point in points:
        own = folder(home, point)
        plan = Plan(own, STOP, {1: point})
        start(
            counted(spark),
            bootstrap,
            name_of(topic, point),
            own / "checkpoint",
            "deadly",
            endless=True,
            sinkId=name_of(topic, point),
            **plan.as_options(),
        )
    while points:
        time.sleep(60)
    while True:
        query = start(
            counted(spark), bootstrap, topic, home / "checkpoint", endless=True, sinkId=topic
        )
        with contextlib.suppress(StreamingQueryException):
            query.awaitTermination()


if __name__ == "__main__":
    _main()
