"""``waystation cluster``: drain, elect."""

import asyncio
from typing import TYPE_CHECKING

import click

from waystation.cli.asking import confirm, with_admin
from waystation.cli.local_option import cluster_bootstrap_option
from waystation.cli.moves import complain, leave, refusals
from waystation.cli.options import example, json_option, yes_option
from waystation.cli.output import print_json, say

if TYPE_CHECKING:
    from waystation.client.admin import Admin
    from waystation.model.ids import TopicPartition

_LOOK_EVERY_S = 0.5


# --- drain ----------------------------------------------------------------------------------


@click.command(
    epilog=example("waystation cluster drain 2 --wait\n  waystation cluster drain 2 --undo")
)
@click.argument("broker", metavar="N", type=int)
@click.option("--undo", is_flag=True, help="Let it hold replicas again.")
@click.option("--wait", is_flag=True, help="Return when it holds nothing any more.")
@cluster_bootstrap_option
@json_option
def drain(broker: int, undo: bool, wait: bool, bootstrap: str, as_json: bool) -> None:
    """Let others hold all that a broker holds.

    For a machine that is taken away for good; to restart one, that is not needed. The wish stays
    until --undo: no new replicas go there. Works for a broker that is dead, too.
    """

    async def work(admin: "Admin") -> int:
        if undo:
            await admin.undrain_broker(broker)
            told = {"broker": broker, "draining": False}
            print_json(told) if as_json else say(f"broker {broker} may hold replicas again")
            return 0
        held = await admin.drain_broker(broker)
        while wait and (held.replicas or held.leaders) and held.replicas > held.stuck:
            await asyncio.sleep(_LOOK_EVERY_S)
            held = await admin.drain_broker(broker)
        if as_json:
            print_json({"broker": broker, "draining": True, **held._asdict()})
        elif held.replicas or held.leaders:
            say(f"broker {broker} still holds {held.replicas} replicas and leads {held.leaders}")
        else:
            say(f"broker {broker} holds nothing: it may be switched off for good")
        if held.stuck:
            say(f"{held.stuck} of them have nowhere to go: add a broker, or lower their number")
        return 1 if wait and held.stuck else 0

    leave(with_admin(bootstrap, work))


# --- elect ----------------------------------------------------------------------------------


@click.command(
    epilog=example("waystation cluster elect\n  waystation cluster elect orders:0 --unclean")
)
@click.argument("partitions", metavar="[TOPIC:P...]", nargs=-1)
@click.option("--unclean", is_flag=True, help="Also by who may lack committed records.")
@yes_option
@cluster_bootstrap_option
@json_option
def elect(
    partitions: tuple[str, ...], unclean: bool, yes: bool, bootstrap: str, as_json: bool
) -> None:
    """Let preferred leaders lead again.

    Of the named partitions, or of all whose preferred leader is in sync and does not lead.

    With --unclean, partitions without a leader get one although it may lack records that were
    acknowledged: they are lost then. For when the brokers that have them will never come back.
    """
    places = [_place(one) for one in partitions] or None
    if unclean:
        if places is None:
            raise click.UsageError("--unclean needs the partitions to be named")
        confirm(f"Lose what the new leaders of {', '.join(partitions)} lack?", yes)

    async def work(admin: "Admin") -> int:
        outcomes = await admin.elect_leaders(places, unclean=unclean)
        refused = refusals(outcomes)
        elected = [str(one) for one, error in outcomes.items() if error is None]
        if as_json:
            print_json({"elected": elected, "refused": refused})
        else:
            say(f"elected: {', '.join(elected)}" if elected else "no leader has changed")
        complain(refused)
        return 1 if refused else 0

    leave(with_admin(bootstrap, work))


def _place(text: str) -> "TopicPartition":
    from waystation.model.ids import TopicPartition

    topic, _, number = text.rpartition(":")
    if not topic or not number.isdecimal():
        raise click.UsageError(f"{text!r}: must be TOPIC:PARTITION")
    return TopicPartition(topic, int(number))
