"""A scripted broker that coordinates a group of one, and can be told to refuse.

``refuse(api, *codes)`` lets the next requests of that API fail with these codes; everything else
is answered as a real coordinator would answer its only member.
"""

from collections import defaultdict, deque

from tests.support.scripted_broker import TOPIC_ID
from tests.support.scripted_log import LogBroker
from waystation.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from waystation.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from waystation.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from waystation.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from waystation.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from waystation.messages.metadata import MetadataResponse, MetadataResponseBroker
from waystation.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from waystation.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from waystation.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from waystation.model.errors import ErrorCode
from waystation.wire.message import Message
from waystation.wire.versions import ApiKey


class GroupBroker(LogBroker):
    """Coordinates one member; ``committed`` is what it has committed, ``told`` the events."""

    def __init__(self, leaders: tuple[int, ...] = (1,)) -> None:
        super().__init__("orders", leaders)
        self.coordinator = 1
        self.generation = 0
        self.member_id = ""
        self.members_made = 0
        self.committed: dict[int, int] = {}
        self.told: list[str] = []
        self.target: list[int] | None = None
        self._refusals: defaultdict[ApiKey, deque[ErrorCode]] = defaultdict(deque)
        self.handlers |= {
            ApiKey.FIND_COORDINATOR: self.find_coordinator,
            ApiKey.JOIN_GROUP: self.join,
            ApiKey.SYNC_GROUP: self.sync,
            ApiKey.HEARTBEAT: self.heartbeat,
            ApiKey.LEAVE_GROUP: self.leave,
            ApiKey.OFFSET_COMMIT: self.commit,
            ApiKey.OFFSET_FETCH: self.fetch_offsets,
            ApiKey.CONSUMER_GROUP_HEARTBEAT: self.consumer_heartbeat,
        }

    def refuse(self, api: ApiKey, *codes: ErrorCode) -> None:
        self._refusals[api].extend(codes)

    def count(self, api: ApiKey) -> int:
        return len(self.requests(api))

    def metadata(self, request: Message) -> Message:
        response = super().metadata(request)
        assert isinstance(response, MetadataResponse)
        known = [broker.node_id for broker in response.brokers]
        if self.coordinator not in known:
            node = self.coordinator
            broker = MetadataResponseBroker(node_id=node, host=f"node-{node}", port=9092)
            response.brokers.append(broker)
        return response

    def find_coordinator(self, request: Message) -> Message:
        code = self._refusal(ApiKey.FIND_COORDINATOR)
        host = f"node-{self.coordinator}"
        one = Coordinator(
            key="billing", node_id=self.coordinator, host=host, port=9092, error_code=code
        )
        return FindCoordinatorResponse(
            coordinators=[one], node_id=self.coordinator, host=host, port=9092, error_code=code
        )

    # --- the classic protocol -------------------------------------------------------------------

    def join(self, request: Message) -> Message:
        assert isinstance(request, JoinGroupRequest)
        if code := self._refusal(ApiKey.JOIN_GROUP):
            return JoinGroupResponse(error_code=code)
        if not request.member_id:
            self.members_made += 1
            self.member_id = f"member-{self.members_made}"
            return JoinGroupResponse(
                error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=self.member_id
            )
        self.generation += 1
        self.told.append(f"joined {self.generation}")
        first = request.protocols[0]
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=first.name,
            leader=request.member_id,
            member_id=request.member_id,
            members=[JoinGroupResponseMember(member_id=request.member_id, metadata=first.metadata)],
        )

    def sync(self, request: Message) -> Message:
        assert isinstance(request, SyncGroupRequest)
        if code := self._refusal(ApiKey.SYNC_GROUP):
            return SyncGroupResponse(error_code=code)
        return SyncGroupResponse(
            protocol_type="consumer",
            protocol_name=request.protocol_name,
            assignment=request.assignments[0].assignment,
        )

    def heartbeat(self, request: Message) -> Message:
        assert isinstance(request, HeartbeatRequest)
        code = self._refusal(ApiKey.HEARTBEAT)
        if not code and request.generation_id != self.generation:
            code = ErrorCode.ILLEGAL_GENERATION
        return HeartbeatResponse(error_code=code)

    def leave(self, request: Message) -> Message:
        assert isinstance(request, LeaveGroupRequest)
        self.told.append(f"left {request.members[0].member_id}")
        return LeaveGroupResponse()

    # --- the server-side protocol ---------------------------------------------------------------

    def consumer_heartbeat(self, request: Message) -> Message:
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        if code := self._refusal(ApiKey.CONSUMER_GROUP_HEARTBEAT):
            return ConsumerGroupHeartbeatResponse(error_code=code)
        if request.member_epoch < 0:
            self.told.append(f"left {request.member_epoch}")
            return ConsumerGroupHeartbeatResponse(member_epoch=request.member_epoch)
        if request.member_epoch == 0:
            self.target = list(range(len(self.leaders)))
        assignment = None
        if self.target is not None:
            self.generation += 1
            self.told.append(f"epoch {self.generation}")
            topic = TopicPartitions(topic_id=TOPIC_ID, partitions=self.target)
            assignment = Assignment(topic_partitions=[topic])
        self.target = None
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=self.generation,
            heartbeat_interval_ms=10,
            assignment=assignment,
        )

    # --- offsets --------------------------------------------------------------------------------

    def commit(self, request: Message) -> Message:
        assert isinstance(request, OffsetCommitRequest)
        code = self._refusal(ApiKey.OFFSET_COMMIT)
        if not code and request.generation_id_or_member_epoch not in (-1, self.generation):
            code = ErrorCode.ILLEGAL_GENERATION
        topics = []
        for topic in request.topics:
            answers = []
            for one in topic.partitions:
                if not code:
                    self.committed[one.partition_index] = one.committed_offset
                    self.told.append(f"committed {one.partition_index}:{one.committed_offset}")
                answers.append(
                    OffsetCommitResponsePartition(
                        partition_index=one.partition_index, error_code=code
                    )
                )
            topics.append(
                OffsetCommitResponseTopic(
                    name=topic.name, topic_id=topic.topic_id, partitions=answers
                )
            )
        return OffsetCommitResponse(topics=topics)

    def fetch_offsets(self, request: Message) -> Message:
        assert isinstance(request, OffsetFetchRequest)
        code = self._refusal(ApiKey.OFFSET_FETCH)
        asked = (request.groups[0].topics if request.groups else request.topics) or []
        topics = [
            OffsetFetchResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=one, committed_offset=self.committed.get(one, -1)
                    )
                    for one in topic.partition_indexes
                ],
            )
            for topic in asked
        ]
        group = OffsetFetchResponseGroup(group_id="billing", topics=topics, error_code=code)
        return OffsetFetchResponse(groups=[group], topics=topics, error_code=code)

    def _refusal(self, api: ApiKey) -> ErrorCode:
        waiting = self._refusals[api]
        return waiting.popleft() if waiting else ErrorCode.NONE
