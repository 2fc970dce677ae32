"""Asking a node over HTTP on behalf of a command."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

__all__ = ["ask", "http_option"]

F = TypeVar("F", bound=Callable[..., Any])

_PATIENCE_S: Final = 60.0


def http_option(command: F) -> F:
    """``--http``: where a node's HTTP is."""
    return click.option(
        "--http",
        default="localhost:8090",
        envvar="WAYSTATION_HTTP_ADDRESS",
        show_default=True,
        metavar="HOST:PORT",
        help="HTTP of a node. Environment: WAYSTATION_HTTP_ADDRESS.",
    )(command)


def ask(address: str, method: str, path: str, body: object = None) -> Any:
    """What the node answers; a problem becomes one line that names the remedy."""
    import http.client

    import msgspec

    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise click.UsageError(f"--http {address!r}: must be HOST:PORT")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=_PATIENCE_S)
    content = None if body is None else msgspec.json.encode(body)
    headers = {} if body is None else {"content-type": "application/json"}
    try:
        connection.request(method, path, content, headers)
        response = connection.getresponse()
        told = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise click.ClickException(
            f"no node answers HTTP at {address}: {error}; --http says where one does"
        ) from None
    finally:
        connection.close()
    answer = _decoded(told)
    if response.status >= 400:
        raise click.ClickException(_problem(response.status, answer))
    return answer


def _decoded(told: bytes) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(told) if told else None
    except msgspec.DecodeError:
        return None


def _problem(status: int, answer: Any) -> str:
    if not isinstance(answer, dict) or "detail" not in answer:
        return f"the node answered {status}"
    remedy = answer.get("remedy")
    return f"{answer['detail']}; {remedy}" if remedy else str(answer["detail"])
