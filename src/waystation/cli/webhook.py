"""``waystation webhook``: create, list, show, change, pause, resume, test, delete.

Webhooks belong to the HTTP interface, so that these commands ask a node over HTTP.
"""

from typing import Any, Final
from urllib.parse import quote

import click

from waystation.cli.asking import confirm
from waystation.cli.asking_http import ask, http_option
from waystation.cli.options import example, json_option, parse_duration, yes_option
from waystation.cli.output import print_json, print_table, say

_EXAMPLE = "waystation webhook create billing --topic orders --url https://example.com/hooks"
_PATH: Final = "/v1/webhooks"


@click.group(epilog=example(_EXAMPLE))
def webhook() -> None:
    """Push messages of a topic to a URL, signed, with retries and dead letters.

    Every message is posted until the target answers with 2xx, or is given up as a dead letter.
    """


@webhook.command(epilog=example(_EXAMPLE))
@click.argument("name")
@click.option("--topic", required=True, help="The topic whose messages are pushed.")
@click.option("--url", required=True, help="Where to: https:// or http://.")
@click.option("--secret", help="whsec_... to sign with; one is made and printed if not given.")
@click.option("--from-beginning", is_flag=True, help="Push all that the topic has, too.")
@click.option("--where", metavar="EXPRESSION", help="Only what an SQL condition means.")
@click.option("--values", type=click.Choice(["text", "json", "base64"]), help="How to write them.")
@click.option("--order-by-key", is_flag=True, help="Of each key one message after the other.")
@click.option("--batch", type=int, metavar="N", help="Messages per request.  [default: 1]")
@click.option("--concurrency", type=int, metavar="N", help="Requests at a time.  [default: 8]")
@click.option("--timeout", metavar="DURATION", help="For a whole request.  [default: 15s]")
@click.option("--max-deliveries", type=int, metavar="N", help="Tries.  [default: 20]")
@click.option("--retry-after", metavar="DURATION", help="The first wait.  [default: 1s]")
@click.option("--retry-at-most", metavar="DURATION", help="The longest wait.  [default: 15m]")
@click.option("--die-while-down", is_flag=True, help="Give up also while the target is down.")
@click.option("--dead-letters", metavar="TOPIC", help="[default: webhook.NAME.dead]")
@click.option("--paused", is_flag=True, help="Deliver nothing before it is resumed.")
@http_option
@json_option
def create(
    name: str,
    topic: str,
    url: str,
    secret: str | None,
    from_beginning: bool,
    where: str | None,
    values: str | None,
    order_by_key: bool,
    batch: int | None,
    concurrency: int | None,
    timeout: str | None,
    max_deliveries: int | None,
    retry_after: str | None,
    retry_at_most: str | None,
    die_while_down: bool,
    dead_letters: str | None,
    paused: bool,
    http: str,
    as_json: bool,
) -> None:
    """Create the webhook NAME; its secret is printed this once."""
    wanted = {
        "name": name,
        "topic": topic,
        "url": url,
        "secret": secret,
        "begin": "earliest" if from_beginning else None,
        "where": where,
        "values": values,
        "order": "key" if order_by_key else None,
        "batch_size": batch,
        "concurrency": concurrency,
        "timeout_ms": _ms(timeout),
        "max_deliveries": max_deliveries,
        "backoff_ms": _ms(retry_after),
        "backoff_max_ms": _ms(retry_at_most),
        "while_down": "count" if die_while_down else None,
        "dead_letter_topic": dead_letters,
        "paused": paused or None,
    }
    body = {field: value for field, value in wanted.items() if value is not None}
    made = ask(http, "POST", _PATH, body)
    if as_json:
        print_json(made)
        return
    say(f"created webhook {name}: topic {topic} is pushed to {url}")
    if made["secret"] is not None:
        say("its secret, which is shown this once:")
        click.echo(made["secret"])


@webhook.command("list", epilog=example("waystation webhook list --json"))
@http_option
@json_option
def list_webhooks(http: str, as_json: bool) -> None:
    """List the webhooks."""
    found = ask(http, "GET", _PATH)["webhooks"]
    if as_json:
        for one in found:
            print_json(one)
    elif found:
        rows = ((one["name"], one["topic"], *_standing(one), one["url"]) for one in found)
        print_table(("WEBHOOK", "TOPIC", "STATUS", "DELIVERED", "GIVEN UP", "URL"), rows)
    else:
        say("there are no webhooks; `waystation webhook create NAME --topic T --url U` makes one")


@webhook.command(epilog=example("waystation webhook show billing"))
@click.argument("name")
@http_option
@json_option
def show(name: str, http: str, as_json: bool) -> None:
    """Show the webhook NAME: how it goes, what waits, and why something fails."""
    found = ask(http, "GET", _path(name))
    if as_json:
        print_json(found)
        return
    state = found.pop("state")
    letters = found.pop("recently_given_up")
    rows = [*found.items(), *state.items()]
    print_table(("FIELD", "VALUE"), [(field, _text(value)) for field, value in rows])
    for one in letters:
        say(f"given up: partition {one['partition']}, offset {one['offset']}: {one['error']}")


@webhook.command(epilog=example("waystation webhook pause billing"))
@click.argument("name")
@http_option
@json_option
def pause(name: str, http: str, as_json: bool) -> None:
    """Deliver nothing of NAME until it is resumed; messages wait."""
    _told(ask(http, "POST", f"{_path(name)}/pause"), f"paused webhook {name}", as_json)


@webhook.command(epilog=example("waystation webhook resume billing"))
@click.argument("name")
@http_option
@json_option
def resume(name: str, http: str, as_json: bool) -> None:
    """Deliver NAME again."""
    _told(ask(http, "POST", f"{_path(name)}/resume"), f"resumed webhook {name}", as_json)


@webhook.command(epilog=example("waystation webhook test billing"))
@click.argument("name")
@http_option
@json_option
def test(name: str, http: str, as_json: bool) -> None:
    """Post a sample to the target of NAME; exit code 1 if it is not taken."""
    told = ask(http, "POST", f"{_path(name)}/test")
    if as_json:
        print_json(told)
    elif told["delivered"]:
        say(f"the target answered {told['status']} after {told['took_ms']} ms")
    if not told["delivered"]:
        raise click.ClickException(f"the target did not take it: {told['error']}")


@webhook.command(epilog=example("waystation webhook delete billing --yes"))
@click.argument("name")
@yes_option
@http_option
@json_option
def delete(name: str, yes: bool, http: str, as_json: bool) -> None:
    """Delete the webhook NAME, with its place in the topic; dead letters stay."""
    confirm(f"Delete {name}?", yes)
    ask(http, "DELETE", _path(name))
    _told({"webhook": name, "deleted": True}, f"deleted webhook {name}", as_json)


def _path(name: str) -> str:
    return f"{_PATH}/{quote(name, safe='')}"


def _ms(duration: str | None) -> int | None:
    return None if duration is None else round(parse_duration(duration).total_seconds() * 1_000)


def _standing(one: dict[str, Any]) -> tuple[object, ...]:
    state = one["state"]
    return state["status"], state["delivered"], state["given_up"]


def _text(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _told(answer: Any, line: str, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        say(line)
