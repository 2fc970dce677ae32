"""ShareGroupDescribe: share groups, their members, and what each of them reads."""

from waystation.apis.call import Call
from waystation.apis.coordinated import GROUP_OPERATIONS, Decide, ask_each, nameless, replying
from waystation.broker.broker import Broker
from waystation.cluster.image import ClusterImage
from waystation.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from waystation.model.errors import WaystationError
from waystation.sharing.group_commands import ShareGroupDescription, ShareMemberDescription
from waystation.sharing.group_records import Partitions

_ASSIGNOR = "simple"


def answer(broker: Broker, call: Call[ShareGroupDescribeRequest]) -> None:
    """Each group asked for."""
    asked = call.message.group_ids

    def respond(
        answers: list[ShareGroupDescription | WaystationError],
    ) -> ShareGroupDescribeResponse:
        groups = [_group(broker.image, *one) for one in zip(asked, answers, strict=True)]
        if call.message.include_authorized_operations:
            for group in groups:
                if not group.error_code:
                    group.authorized_operations = GROUP_OPERATIONS
        return ShareGroupDescribeResponse(groups=groups)

    ask_each(broker, [(group_id, _decide(group_id)) for group_id in asked], replying(call, respond))


def _decide(group_id: str) -> Decide:
    return lambda groups, now, to: groups.describe_share(now, group_id, to)


def _group(
    image: ClusterImage, group_id: str, answer: ShareGroupDescription | WaystationError
) -> DescribedGroup:
    if not group_id:
        answer = nameless()
    if isinstance(answer, WaystationError):
        return DescribedGroup(group_id=group_id, error_code=answer.code, error_message=str(answer))
    return DescribedGroup(
        group_id=group_id,
        group_state=answer.state,
        group_epoch=answer.epoch,
        assignment_epoch=answer.assignment_epoch,
        assignor_name=_ASSIGNOR,
        members=[_member(image, one) for one in answer.members],
    )


def _member(image: ClusterImage, one: ShareMemberDescription) -> Member:
    return Member(
        member_id=one.member_id,
        rack_id=one.rack_id,
        member_epoch=one.member_epoch,
        client_id=one.client_id,
        client_host=one.client_host,
        subscribed_topic_names=list(one.topics),
        assignment=_assignment(image, one.assigned),
    )


def _assignment(image: ClusterImage, partitions: Partitions) -> Assignment:
    """The partitions by name; of a topic that is gone there is nothing to tell."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(
                topic_id=topic_id,
                topic_name=image.topics_by_id[topic_id].name,
                partitions=list(indexes),
            )
            for topic_id, indexes in partitions
            if topic_id in image.topics_by_id
        ]
    )
