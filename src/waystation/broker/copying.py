"""What a follower does with one answer of its leader: append, cut, begin anew, or wait.

``replication/follower.py`` decides; this carries it out on the partition's log, and tells those who
watch.  Nothing here waits: a log is never seen between two of its states.  A cut that would keep
the loop for long is prepared first, while the leader is asked again (``cuts.py``); so is what a log
inherits that begins anew (``key_gathering.py``).
"""

from collections.abc import Callable

from waystation.broker.cuts import Cuts
from waystation.broker.key_gathering import KeyGathering
from waystation.broker.settings import BrokerSettings
from waystation.broker.throttle import FollowerThrottle
from waystation.model.errors import CorruptBatchError, WaystationError
from waystation.model.offsets import Offset
from waystation.partition.partition import Partition
from waystation.records.header import check
from waystation.replication.follower import (
    Answer,
    Append,
    BackOff,
    FollowerState,
    Question,
    StartAnew,
    Step,
    Truncate,
)
from waystation.runtime.clock import Clock, SteadyClock
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Registry

_events = get_logger("replication")


class Copying:
    """Carries answers out; what all conversations of a broker share."""

    def __init__(
        self,
        settings: Callable[[], BrokerSettings],
        throttle: FollowerThrottle,
        clock: Clock,
        registry: Registry,
        keys: KeyGathering,
    ) -> None:
        self.settings = settings
        self.keys = keys
        self.throttle = throttle
        self.clock = clock
        # Waits are counted in steady time, records dated by the wall's.
        self.steady = SteadyClock(clock)
        self.cuts = Cuts()
        self._received = registry.counter(
            "waystation_replication_received_bytes_total",
            "Bytes of record batches copied from leaders.",
        )
        self._refused = registry.counter(
            "waystation_replication_refused_total",
            "Answers of leaders that could not be carried out: damaged, or the disk is full.",
        )
        self._cut = registry.counter(
            "waystation_replication_truncations_total",
            "Times that a follower cut off what its leader does not have.",
        )
        self._lost = registry.counter(
            "waystation_replication_committed_cut_total",
            "Times that a follower cut off committed records, after an unclean election.",
        )

    def carry_out(
        self, partition: Partition, state: FollowerState, question: Question, answer: Answer
    ) -> BackOff | None:
        """Do what the answer asks for; how long to wait if that, or the question, failed."""
        step = state.decide(question, answer, partition, self.steady.now())
        if isinstance(step, BackOff):
            return step
        if isinstance(step, Truncate) and not self.cuts.ready(partition, step.offset):
            return state.failed(question, self.steady.now())
        beginning = _beginning(partition, step)
        if beginning is not None and not self.keys.ready(
            partition, state.leader, state.epoch, beginning
        ):
            return state.failed(question, self.steady.now())
        try:
            if beginning is not None:
                _events.info("replica.begins", partition=str(partition.name), at=beginning)
                self.keys.begin(partition, beginning)
            self._do(partition, step)
        except (WaystationError, OSError) as error:
            self._refused.add()
            damaged = isinstance(error, CorruptBatchError)
            _events.warning(
                "replica.damaged" if damaged else "replica.not.written",
                partition=str(partition.name),
                leader=state.leader,
                reason=str(error),
            )
            return state.failed(question, self.steady.now())
        state.carried_out(step, partition)
        return None

    def _do(self, partition: Partition, step: Step) -> None:
        match step:
            case Append():
                if step.data:
                    partition.append_replicated(step.data, self.clock.now())
                    self._received.value += len(step.data)
                    self.throttle.received(partition, len(step.data))
                partition.learn(step.mark, step.log_start)
            case Truncate():
                self._tell_cut(partition, step)
                partition.truncate_to(step.offset, self.cuts.take(partition))
            case _:
                pass

    def _tell_cut(self, partition: Partition, step: Truncate) -> None:
        self._cut.add()
        facts = {
            "partition": str(partition.name),
            "at": step.offset,
            "log_end": partition.log_end,
            "epoch": partition.leadership.epoch,
        }
        if step.loses_committed:
            self._lost.add()
            _events.error("replica.cut.committed", **facts)
        else:
            _events.info("replica.cut", **facts)


def _beginning(partition: Partition, step: Step) -> Offset | None:
    """Where the log has to begin anew before a step is done; ``None``: it goes on.

    A leader's log may begin in the midst of a batch, which it sends whole: a log that has nothing
    yet then begins with that batch.
    """
    if isinstance(step, StartAnew):
        return step.offset
    if not isinstance(step, Append) or not step.data or partition.log_start != partition.log_end:
        return None
    try:
        first = check(step.data)
    except CorruptBatchError:
        return None  # whoever appends it tells
    return first.base_offset if first.base_offset < partition.log_end <= first.last_offset else None
