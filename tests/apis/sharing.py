"""A consumer of queues that says exactly what it means, and helps to set queues up."""

import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from tests.apis.asking import Asking
from waystation.messages.find_coordinator import FindCoordinatorRequest
from waystation.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
)
from waystation.messages.initialize_share_group_state import PartitionData as Begun
from waystation.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from waystation.messages.share_fetch import (
    BY_BATCH,
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from waystation.model.error_codes import ErrorCode
from waystation.model.ids import TopicId, uuid_text
from waystation.records.batch import records_of
from waystation.records.header import batches

GROUP, SHARE = 32, 2
_WITHIN_S = 10.0
_LATER = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


class Sharing(Asking):
    """One connection of one consumer."""

    group, member = "queue", "ann"
    epoch = 0

    def begin(self, topic: str, partitions: int = 1, start: int = 0, state_epoch: int = 1) -> UUID:
        """Let the group's queues over a topic begin at an offset; the topic's id."""
        topic_id = self.topic_id(topic)
        request = InitializeShareGroupStateRequest(
            group_id=self.group,
            topics=[
                InitializeStateData(
                    topic_id=topic_id,
                    partitions=[
                        Begun(partition=number, state_epoch=state_epoch, start_offset=start)
                        for number in range(partitions)
                    ],
                )
            ],
        )
        ends_at = time.monotonic() + _WITHIN_S
        while any(one.error_code in _LATER for one in self._outcomes(request)):
            self._look_for_coordinator(topic_id)
            assert time.monotonic() < ends_at, "nobody coordinates the state of queues"
            time.sleep(0.02)
        for outcome in self._outcomes(request):
            assert outcome.error_code == 0, outcome
        return topic_id

    def _outcomes(self, request: InitializeShareGroupStateRequest) -> Any:
        return self.ask(request, 0).results[0].partitions

    def _look_for_coordinator(self, topic_id: UUID) -> None:
        key = f"{self.group}:{uuid_text(TopicId(topic_id))}:0"
        self.ask(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key]), 6)

    def take(
        self,
        topic_id: UUID,
        *,
        partitions: Sequence[int] = (0,),
        acks: Sequence[tuple[int, int, list[int]]] = (),
        forgotten: Sequence[int] = (),
        max_records: int = 500,
        max_wait_ms: int = 5_000,
        min_bytes: int = 1,
        mode: int = BY_BATCH,
        batch_size: int = 0,
        renews: bool = False,
        version: int = 2,
        epoch: int | None = None,
    ) -> Any:
        """One ShareFetch; the whole reply.  ``acks`` are about the first partition."""
        self.send_take(
            topic_id,
            partitions=partitions,
            acks=acks,
            forgotten=forgotten,
            max_records=max_records,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            mode=mode,
            batch_size=batch_size,
            renews=renews,
            version=version,
            epoch=epoch,
        )
        return self.taken(version)

    def send_take(self, topic_id: UUID, **asked: Any) -> None:
        """Send a ShareFetch and do not wait."""
        version = asked.get("version", 2)
        epoch = asked.get("epoch")
        partitions = asked.get("partitions", (0,))
        acks = asked.get("acks", ())
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=asked.get("max_wait_ms", 5_000),
            min_bytes=asked.get("min_bytes", 1),
            max_bytes=1 << 24,
            max_records=asked.get("max_records", 500),
            batch_size=asked.get("batch_size", 0),
            is_renew_ack=asked.get("renews", False),
            topics=[
                FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        FetchPartition(
                            partition_index=number,
                            acknowledgement_batches=_batches(acks) if not place else [],
                        )
                        for place, number in enumerate(partitions)
                    ],
                )
            ]
            if partitions
            else [],
        )
        forgotten = asked.get("forgotten")
        if forgotten:
            request.forgotten_topics_data = [
                ForgottenTopic(topic_id=topic_id, partitions=list(forgotten))
            ]
        request.share_acquire_mode = asked.get("mode", BY_BATCH) if version >= 2 else BY_BATCH
        self.send(request, version)

    def taken(self, version: int = 2) -> Any:
        """The reply to a ShareFetch that was sent."""
        reply = self.receive(ShareFetchRequest.api, version)  # type: ignore[arg-type]
        if reply.error_code == 0:
            self.epoch += 1
        return reply

    def say(
        self,
        topic_id: UUID,
        acks: Sequence[tuple[int, int, list[int]]],
        *,
        partition: int = 0,
        version: int = 2,
        renews: bool = False,
        epoch: int | None = None,
    ) -> Any:
        """One ShareAcknowledge; the outcome for the partition, or the whole reply if it failed."""
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=renews,
            topics=[
                AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=[
                        AcknowledgePartition(
                            partition_index=partition, acknowledgement_batches=_batches(acks)
                        )
                    ],
                )
            ]
            if acks
            else [],
        )
        reply = self.ask(request, version)
        if reply.error_code:
            return reply
        self.epoch += 1
        return reply.responses[0].partitions[0] if acks else reply


def _batches(acks: Sequence[tuple[int, int, list[int]]]) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in acks
    ]


def ranges(reply: Any, partition: int | None = None) -> list[tuple[int, int, int]]:
    """What was acquired: first, last, delivery."""
    return [
        (one.first_offset, one.last_offset, one.delivery_count)
        for topic in reply.responses
        for told in topic.partitions
        if partition is None or told.partition_index == partition
        for one in told.acquired_records
    ]


def messages(reply: Any) -> list[tuple[int, bytes | None]]:
    """The messages that are the consumer's, as it would show them."""
    found = []
    for topic in reply.responses:
        for told in topic.partitions:
            view = memoryview(bytes(told.records))
            records = [
                record
                for at, header in batches(view)
                if not header.is_control
                for record in records_of(view[at : at + header.size_bytes])
            ]
            for one in told.acquired_records:
                found += [
                    (record.offset, record.value)
                    for record in records
                    if one.first_offset <= record.offset <= one.last_offset
                ]
    return found
