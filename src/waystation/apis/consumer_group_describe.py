"""ConsumerGroupDescribe: groups of the server-side protocol and their members."""

from waystation.apis.call import Call
from waystation.apis.coordinated import GROUP_OPERATIONS, Decide, ask_each, nameless, replying
from waystation.broker.broker import Broker
from waystation.cluster.image import ClusterImage
from waystation.cluster.views import find_shown_by_id
from waystation.groups.commands import ConsumerGroupDescription, ConsumerMemberDescription
from waystation.groups.records import Partitions
from waystation.messages.consumer_group_describe import (
    CLASSIC_MEMBER,
    CONSUMER_MEMBER,
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from waystation.model.errors import WaystationError


def answer(broker: Broker, call: Call[ConsumerGroupDescribeRequest]) -> None:
    """Each group asked for."""
    asked = call.message.group_ids

    def respond(
        answers: list[ConsumerGroupDescription | WaystationError],
    ) -> ConsumerGroupDescribeResponse:
        groups = [_group(broker.image, *one) for one in zip(asked, answers, strict=True)]
        if call.message.include_authorized_operations:
            for group in groups:
                if not group.error_code:
                    group.authorized_operations = GROUP_OPERATIONS
        return ConsumerGroupDescribeResponse(groups=groups)

    ask_each(broker, [(group_id, _decide(group_id)) for group_id in asked], replying(call, respond))


def _decide(group_id: str) -> Decide:
    return lambda groups, now, to: groups.describe_consumer(now, group_id, to)


def _group(
    image: ClusterImage, group_id: str, answer: ConsumerGroupDescription | WaystationError
) -> DescribedGroup:
    if not group_id:
        answer = nameless()
    if isinstance(answer, WaystationError):
        return DescribedGroup(group_id=group_id, error_code=answer.code, error_message=str(answer))
    return DescribedGroup(
        group_id=group_id,
        group_state=answer.state,
        group_epoch=answer.epoch,
        assignment_epoch=answer.target_epoch,
        assignor_name=answer.assignor,
        members=[_member(image, one) for one in answer.members],
    )


def _member(image: ClusterImage, one: ConsumerMemberDescription) -> Member:
    return Member(
        member_id=one.member_id,
        instance_id=one.instance_id,
        rack_id=one.rack_id,
        member_epoch=one.member_epoch,
        client_id=one.client_id,
        client_host=one.client_host,
        subscribed_topic_names=list(one.topics),
        subscribed_topic_regex=one.topic_regex or "",
        assignment=_assignment(image, one.assignment),
        target_assignment=_assignment(image, one.target),
        member_type=CLASSIC_MEMBER if one.is_classic else CONSUMER_MEMBER,
    )


def _assignment(image: ClusterImage, partitions: Partitions) -> Assignment:
    """The partitions by name; of a topic that is gone there is nothing to tell."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(
                topic_id=topic_id,
                topic_name=topic.name,
                partitions=list(indexes),
            )
            for topic_id, indexes in partitions
            if (topic := find_shown_by_id(image, topic_id)) is not None
        ]
    )
