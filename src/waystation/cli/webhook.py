"""``waystation webhook``: create, list, show, change, pause, resume, test, delete.

Webhooks belong to the HTTP interface, so that these commands ask a node over HTTP.
"""

from typing import Any, Final
from urllib.parse import quote

import click

from waystation.cli.asking import confirm
from waystation.cli.asking_http import ask, http_option
from waystation.cli.options import example, json_option, yes_option
from waystation.cli.output import print_json, print_table, say
from waystation.cli.webhook_options import fields_of, tuning_options

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
@click.option("--order-by-key", is_flag=True, help="Of each key one message after the other.")
@tuning_options(shows_defaults=True)
@click.option("--die-while-down", is_flag=True, help="Give up also while the target is down.")
@click.option("--paused", is_flag=True, help="Deliver nothing before it is resumed.")
@http_option
@json_option
def create(
    name: str,
    topic: str,
    url: str,
    secret: str | None,
    from_beginning: bool,
    order_by_key: bool,
    die_while_down: bool,
    paused: bool,
    http: str,
    as_json: bool,
    **more: Any,
) -> None:
    """Create the webhook NAME; its secret is printed this once."""
    flags = {
        "begin": "earliest" if from_beginning else None,
        "order": "key" if order_by_key else None,
        "while_down": "count" if die_while_down else None,
        "paused": paused or None,
    }
    said = {"name": name, "topic": topic, "url": url, "secret": secret, **flags, **more}
    body = fields_of(said)
    made = ask(http, "POST", _PATH, body)
    if as_json:
        print_json(made)
        return
    say(f"created webhook {name}: topic {topic} is pushed to {url}")
    _say_secret(made)


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


@webhook.command(
    epilog=example(
        "waystation webhook change billing --url https://example.com/v2/hooks\n"
        "  waystation webhook change billing --new-secret --keep-old-secret 1h"
    )
)
@click.argument("name")
@click.option("--url", help="Where to: https:// or http://.")
@click.option("--secret", help="whsec_... to sign with from now on.")
@click.option("--new-secret", is_flag=True, help="Have a new secret made, and print it.")
@click.option(
    "--keep-old-secret",
    metavar="DURATION",
    help="For how long the old one signs too; 0s ends it now.  [default: 24h with a new one]",
)
@click.option("--where", metavar="EXPRESSION", help="Only what an SQL condition means.")
@click.option("--everything", is_flag=True, help="Push all messages: no condition any more.")
@click.option("--order", type=click.Choice(["none", "key"]), help="Of each key one by one, or not.")
@tuning_options(shows_defaults=False)
@click.option(
    "--while-down",
    type=click.Choice(["wait", "count"]),
    help="While the target is down messages wait, or die of their number of tries.",
)
@http_option
@json_option
def change(
    name: str, new_secret: bool, everything: bool, http: str, as_json: bool, **more: Any
) -> None:
    """Change the webhook NAME: what is not named stays as it is.

    With another secret, messages are signed by both for a while, so that receivers can change over.
    """
    if new_secret and more["secret"] is not None:
        raise click.UsageError("--secret gives a secret, --new-secret has one made: one of them")
    if everything and more["where"] is not None:
        raise click.UsageError("--where sets a condition, --everything ends it: one of them")
    body: dict[str, Any] = fields_of(more)
    body |= {"secret": None} if new_secret else {}
    body |= {"where": None} if everything else {}
    if not body:
        raise click.UsageError("say what to change; --help lists what can be")
    changed = ask(http, "PATCH", _path(name), body)
    _told(changed, f"changed webhook {name}: {', '.join(body)}", as_json)
    if not as_json:
        _say_secret(changed)


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


def _say_secret(answer: dict[str, Any]) -> None:
    if answer["secret"] is not None:
        say("its secret, which is shown this once:")
        click.echo(answer["secret"])


def _standing(one: dict[str, Any]) -> tuple[object, ...]:
    state = one["state"]
    return state["status"], state["delivered"], state["given_up"]


def _text(value: object) -> str:
    if isinstance(value, list):  # secrets that were replaced
        return ", ".join(f"{one['fingerprint']} until {one['until_ms']}" for one in value)
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _told(answer: Any, line: str, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        say(line)
