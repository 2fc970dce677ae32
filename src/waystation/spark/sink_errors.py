"""Why a sink refuses to write, in words that Spark shows as they are.

Every one of them travels between processes, so that each can be made again from its facts.
"""

from collections.abc import Iterable

from waystation.model.error_codes import ErrorCode
from waystation.model.errors import WaystationError

__all__ = [
    "DecidedRowsMissingError",
    "LedgerBusyError",
    "LedgerFormatError",
    "NoSuchSinkError",
    "NoTwoPhaseCommitError",
    "OlderCheckpointError",
    "PreparedRowsGoneError",
    "ReplayDiffersError",
    "SinkError",
    "SinkOfAnotherQueryError",
    "SinkTakenOverError",
    "WrittenTooLateError",
]


class SinkError(WaystationError):
    """A sink cannot go on; ``sink`` says which."""

    code = ErrorCode.INVALID_TXN_STATE

    def __init__(self, sink: str, *facts: object) -> None:
        self.sink, self.facts = sink, facts
        super().__init__(f"sink {sink}: {self._sentence(*facts)}")

    def _sentence(self, *facts: object) -> str:
        """What is wrong and what to do."""
        return "; ".join(map(str, facts))

    def __reduce__(self) -> tuple[type["SinkError"], tuple[object, ...]]:
        return type(self), (self.sink, *self.facts)


class SinkOfAnotherQueryError(SinkError):
    """Facts: the query that has the sink, the last batch it decided, the query that wants it."""

    def _sentence(self, *facts: object) -> str:
        owner, batch, query = facts
        return (
            f"it belongs to query {owner}, which has written up to batch {batch}; this is query "
            f"{query}. Two queries may not share a sinkId: give each its own. If this one is to "
            "go on where that one stopped, start it with that one's checkpoint; if that checkpoint "
            "is lost, choose a new sinkId, or let this one go with `waystation sink resolve "
            f"{self.sink} --forget` and see to it yourself that nothing is written twice"
        )


class OlderCheckpointError(SinkError):
    """Facts: the batch that was to be written, the last batch that was decided."""

    def _sentence(self, *facts: object) -> str:
        batch, decided = facts
        return (
            f"batch {batch} was to be written, and batch {decided} is decided already: the "
            "checkpoint, or the batchId, is older than what the topic holds. Start with the newest "
            "checkpoint; if you want these rows once more, choose a new sinkId"
        )


class SinkTakenOverError(SinkError):
    """Facts: the run that was to write, and the one that has the sink; empty if none has."""

    def _sentence(self, *facts: object) -> str:
        run, holder = facts
        by = f"run {holder} has taken it over" if holder else "it was let go, or taken over"
        return (
            f"{by} from run {run}, which writes nothing more: nothing is lost. If two drivers run "
            "the same query, stop one of them"
        )


class WrittenTooLateError(SinkError):
    """Facts: the batch and the task, which wakes after others have done its work."""

    def _sentence(self, *facts: object) -> str:
        batch, task = facts
        return (
            f"task {task} has written its rows of batch {batch} after the batch was decided "
            "without it: another attempt has done its work, and these rows were taken back"
        )


class PreparedRowsGoneError(SinkError):
    """Facts: the batch, and (task, transactional id, what became of it) of each that is gone."""

    def _sentence(self, *facts: object) -> str:
        batch, gone = facts
        assert isinstance(gone, Iterable)
        return (
            f"batch {batch} cannot be committed, and nothing of it is visible: {_listed(gone)}, by "
            "an operator or by transaction.prepared.max.ms of the broker. Start the query again, "
            "which writes the batch anew; if it happens again, raise that limit"
        )


class DecidedRowsMissingError(SinkError):
    """Facts: the batch, and (task, transactional id, what became of it) of each that is gone."""

    def _sentence(self, *facts: object) -> str:
        batch, gone = facts
        assert isinstance(gone, Iterable)
        return (
            f"batch {batch} was decided, and some of its rows cannot become visible any more: "
            f"{_listed(gone)}, by an operator or by transaction.prepared.max.ms of the broker. "
            "The rest of the batch is visible. The sink stays stopped so that nobody overlooks "
            f"this: look at it with `waystation sink show {self.sink}`, write the missing rows "
            f"once more by other means, then `waystation sink resolve {self.sink} "
            "--accept-missing`"
        )


class ReplayDiffersError(SinkError):
    """Facts: the batch, how many rows were decided, how many came this time."""

    def _sentence(self, *facts: object) -> str:
        batch, then, now = facts
        return (
            f"batch {batch} is decided with {then} rows, and came again with {now}: none of them "
            "was written. The checkpoint was set back by a batch, or the query was changed or "
            "gives other rows each time. If what the topic holds of this batch is all there "
            f"should be, go on with `waystation sink resolve {self.sink}`; otherwise start with "
            "the newest checkpoint"
        )


class NoSuchSinkError(SinkError):
    """No facts: nothing was ever written into it, or it was forgotten."""

    code = ErrorCode.INVALID_REQUEST

    def _sentence(self, *facts: object) -> str:
        return "nothing was ever written under that name: `waystation sink list` shows all"


class NoTwoPhaseCommitError(SinkError):
    """Facts: the address of the brokers."""

    code = ErrorCode.UNSUPPORTED_VERSION

    def _sentence(self, *facts: object) -> str:
        (bootstrap,) = facts
        return (
            f"the brokers at {bootstrap} cannot prepare transactions (PrepareTxn, API key 10000), "
            "which deliveryGuarantee=exactly-once needs: write to a Waystation cluster, or set "
            "deliveryGuarantee to at-least-once"
        )


class LedgerBusyError(SinkError):
    """Facts: what was in the way for so long, and for how long in ms."""

    code = ErrorCode.REQUEST_TIMED_OUT

    def _sentence(self, *facts: object) -> str:
        why, waited_ms = facts
        return f"its record could not be read or changed for {waited_ms} ms: {why}"


class LedgerFormatError(SinkError):
    """Facts: what is wrong with the record."""

    code = ErrorCode.INVALID_RECORD

    def _sentence(self, *facts: object) -> str:
        return (
            f"its record in __waystation_sinks cannot be understood ({facts[0]}): was it written "
            "by a newer version? Use that one, or look at it with `waystation consume`"
        )


def _listed(gone: Iterable[object]) -> str:
    parts = []
    for one in gone:
        assert isinstance(one, tuple), f"{one!r} is not what became of a transaction"
        task, transactional_id, state = one
        parts.append(f"the transaction of task {task} ({transactional_id}) is {state}")
    return ", ".join(parts)
