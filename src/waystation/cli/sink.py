"""``waystation sink``: list, show, resolve."""

from typing import TYPE_CHECKING, Any, TypeVar

import click

from waystation.cli.asking import confirm
from waystation.cli.options import bootstrap_option, example, json_option, yes_option
from waystation.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from waystation.spark.sink_cluster import Sinks
    from waystation.spark.sink_state import SinkState

T = TypeVar("T")

_PATIENCE_MS = 15_000


@click.group(epilog=example("waystation sink list"))
def sink() -> None:
    """List, show and resolve what Spark writes into topics."""


# --- list -----------------------------------------------------------------------------------


@sink.command("list", epilog=example("waystation sink list --json"))
@bootstrap_option
@json_option
def list_sinks(bootstrap: str, as_json: bool) -> None:
    """List sinks and how far each has come.

    STATE is free (nobody writes), cleaning or writing (a run of the query has the sink), or
    unended: a batch is decided, and not all of it is known to be visible.
    """
    found = _with_sinks(bootstrap, lambda sinks: sinks.every())
    if as_json:
        for name, state in found.items():
            print_json(_summary(name, state))
    elif found:
        rows = (
            (name, state.query, state.batch, _shown_rows(state), _standing(state))
            for name, state in found.items()
        )
        print_table(("SINK", "QUERY", "BATCH", "ROWS", "STATE"), rows)
    else:
        say("there are no sinks; a Spark query that writes exactly once makes one")


# --- show -----------------------------------------------------------------------------------


@sink.command(epilog=example("waystation sink show orders-by-country"))
@click.argument("name", metavar="SINK")
@bootstrap_option
@json_option
def show(name: str, bootstrap: str, as_json: bool) -> None:
    """Show a sink, its last batch and what is open.

    Each transaction of the last batch is listed with what became of it, and each that is open
    though no batch is decided that it belongs to: readers of committed messages wait behind those.
    """
    told = _with_sinks(bootstrap, lambda sinks: _described(sinks, name))
    if as_json:
        print_json(told)
        return
    run = told["run"] or "none"
    say(f"sink {name} of query {told['query']}: {told['state']}; the run that may write is {run}")
    if told["batch"] < 0:
        say("no batch is decided yet")
    else:
        rows = "an unknown number of" if told["rows"] is None else told["rows"]
        say(
            f"batch {told['batch']} was decided last, by run {told['decided_by']}, with {rows} rows"
        )
    if told["transactions"]:
        titles = ("TASK", "TRANSACTIONAL ID", "DECIDED", "STATE")
        print_table(titles, (tuple(one.values()) for one in told["transactions"]))


async def _described(sinks: "Sinks", name: str) -> dict[str, Any]:
    from waystation.spark.sink_errors import NoSuchSinkError

    opened = await sinks.open_of(name)
    state = await sinks.steps.state(name)
    if state is None:
        raise NoSuchSinkError(name)
    listed = [
        _transaction(name, one.transactional_id, "yes", await sinks.outcome(one))
        for one in state.decided
    ]
    for one in opened:
        if one.transaction not in state.decided:
            word = "prepared" if one.is_prepared else "ongoing"
            listed.append(_transaction(name, one.transaction.transactional_id, "no", word))
    return {**_summary(name, state), "transactions": listed}


def _transaction(name: str, transactional_id: str, decided: str, state: str) -> dict[str, Any]:
    from waystation.spark.sink_state import task_of
    from waystation.spark.sink_steps import named

    task = task_of(name, transactional_id)
    return {
        "task": "?" if task is None else named(task),
        "transactional_id": transactional_id,
        "decided": decided,
        "state": state,
    }


# --- resolve --------------------------------------------------------------------------------


@sink.command(
    epilog=example(
        "waystation sink resolve orders-by-country\n"
        "  waystation sink resolve orders-by-country --forget"
    )
)
@click.argument("name", metavar="SINK")
@click.option("--accept-missing", is_flag=True, help="Also if decided rows are gone for good.")
@click.option("--forget", is_flag=True, help="Then forget it: another query may use its name.")
@yes_option
@bootstrap_option
@json_option
def resolve(
    name: str, accept_missing: bool, forget: bool, yes: bool, bootstrap: str, as_json: bool
) -> None:
    """End all that a sink has left open.

    What is decided becomes visible, the rest is taken back. A query that still writes into the
    sink is stopped by it; started again, it goes on after the last batch that was decided.
    """
    confirm(f"Resolve sink {name}, and stop whoever writes into it?", yes)

    async def work(sinks: "Sinks") -> dict[str, Any]:
        from uuid import uuid4

        run = f"operator-{uuid4()}"
        done = await sinks.steps.resolve(name, run, accept_missing=accept_missing)
        if forget:
            await sinks.steps.forget(name)
        return {"sink": name, **done._asdict(), "forgotten": forget}

    told = _with_sinks(bootstrap, work)
    if as_json:
        print_json(told)
        return
    for word in ("committed", "aborted"):
        for one in told[word]:
            say(f"{word} {one}")
    for task, one, state in told["missing"]:
        say(f"missing: the rows of task {task} ({one}), which is {state}")
    say(f"sink {name} is {'forgotten' if forget else 'free'}: nothing of it is open")


# --- what is said of a sink -----------------------------------------------------------------


def _summary(name: str, state: "SinkState") -> dict[str, Any]:
    return {
        "sink": name,
        "query": state.query,
        "run": state.run,
        "state": _standing(state),
        "batch": state.batch,
        "rows": None if state.rows < 0 else state.rows,
        "decided_by": state.decided_by,
    }


def _standing(state: "SinkState") -> str:
    if not state.ended:
        return "unended"
    return state.phase if state.run else "free"


def _shown_rows(state: "SinkState") -> object:
    return "-" if state.rows < 0 else state.rows


def _with_sinks(bootstrap: str, work: "Callable[[Sinks], Awaitable[T]]") -> T:
    from waystation.runtime.loops import run
    from waystation.spark.sink_cluster import open_sinks

    async def working() -> T:
        async with open_sinks(
            bootstrap, patience_ms=_PATIENCE_MS, metadata_timeout_ms=3_000
        ) as sinks:
            return await work(sinks)

    return run(working())
