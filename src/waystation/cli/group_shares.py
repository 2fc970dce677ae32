"""What ``waystation group`` shows of share groups, whose members share partitions."""

from typing import TYPE_CHECKING, Any

from waystation.cli.output import print_table, say

if TYPE_CHECKING:
    from waystation.client.admin import Admin
    from waystation.client.group_descriptions import GroupDescription


async def described(admin: "Admin", found: "GroupDescription") -> dict[str, Any]:
    """All that is told of a share group."""
    positions = await admin.share_group_offsets(found.group_id)
    readers: dict[Any, list[str]] = {}
    for one in found.members:
        for where in one.assignment:
            readers.setdefault(where, []).append(one.member_id)
    partitions = [
        {
            "topic": where.topic,
            "partition": where.partition,
            "start": told.start,
            "lag": told.lag,
            "members": readers.get(where, []),
        }
        for where, told in sorted(positions.items())
    ]
    return {
        "group": found.group_id,
        "state": found.state,
        "kind": found.kind,
        "assignor": found.assignor,
        "coordinator": str(found.coordinator),
        "members": [
            {
                "member": one.member_id,
                "client": one.client_id,
                "host": one.host,
                "topics": one.topics,
                "partitions": [list(where) for where in one.assignment],
            }
            for one in found.members
        ],
        "partitions": partitions,
        "total": {
            "partitions": len(partitions),
            "lag": sum(told.lag or 0 for told in positions.values()),
        },
    }


def show_queues(told: dict[str, Any]) -> None:
    """Where each queue begins, how many messages wait, and how many members read it."""
    if told["partitions"]:
        say("")
        rows = (
            (
                one["topic"],
                one["partition"],
                "-" if one["start"] is None else one["start"],
                "-" if one["lag"] is None else one["lag"],
                len(one["members"]),
            )
            for one in told["partitions"]
        )
        print_table(("TOPIC", "PARTITION", "START", "LAG", "READERS"), rows)
    lag = told["total"]["lag"]
    say(f"total lag: {lag} message{'' if lag == 1 else 's'} that nobody has acknowledged")
